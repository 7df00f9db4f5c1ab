#include "proto/journal.h"

struct kv_row_parts kv_row_parts(const struct kv_layout *layout, uint32_t layer)
{
	const struct kv_layer *l = &layout->layers[layer];
	struct kv_row_parts parts = {
		.k_bytes = l->k_width * kv_dtype_bytes(layout->dtype),
		.v_bytes = l->v_width * kv_dtype_bytes(layout->dtype),
	};

	for (uint32_t p = 0; p < layout->n_slot_planes; p++)
		parts.planes_bytes +=
			layout->regions[kv_layout_region(layout, layer, KV_PART_PLANE + p)]
				.vector_bytes;
	return parts;
}

struct kv_window kv_head_window(const struct kv_layout *layout, const struct kv_head *head,
				uint32_t group)
{
	uint32_t rows_log2, first, now;

	switch (layout->groups[group].kind) {
	case KV_GROUP_JOURNAL:
		if (head->journal_first >= head->journal_end)
			return (struct kv_window){0, 0};
		rows_log2 = layout->journal[kv_head_mode(head->state)].rows_log2;
		return (struct kv_window){head->journal_first >> rows_log2,
					  ((head->journal_end - 1) >> rows_log2) -
						  (head->journal_first >> rows_log2) + 1};
	case KV_GROUP_STATES:
		first = kv_planes_first(head->planes);
		now = kv_planes_now(head->planes);
		if (now == 0)
			return (struct kv_window){0, 0};
		if (first == 0)
			first = 1;
		return (struct kv_window){first - 1, (uint64_t)now - first + 1};
	default:
		return (struct kv_window){
			0, kv_layout_blocks(layout,
					    kv_layout_slots(layout, group, head->base_tokens))};
	}
}

void kv_head_share(struct kv_head *head)
{
	head->n_marks = 0;
	if (kv_head_mode(head->state) == KV_JOURNAL_REPLAY)
		return;
	/* Rows of an undo journal may tell of slots that were overwritten; they stay behind. */
	if (head->journal_first != head->journal_end)
		head->state |= KV_HEAD_SCATTERED;
	head->journal_first = head->journal_end;
	head->planes = kv_planes(kv_planes_now(head->planes), kv_planes_now(head->planes));
}

static void raise_to(_Atomic uint64_t *mark, uint64_t to)
{
	if (atomic_load_explicit(mark, memory_order_relaxed) < to)
		atomic_store_explicit(mark, to, memory_order_release);
}

void kv_place_freeze(struct kv_shm_place *place, const struct kv_layout *layout,
		     const struct kv_head *head)
{
	uint64_t count = atomic_load_explicit(&place->freeze_count, memory_order_relaxed);

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		raise_to(&place->frozen_slots[g], kv_layout_slots(layout, g, head->base_tokens));
	/* blocks of an undo journal are in no snapshot */
	if (kv_head_mode(head->state) == KV_JOURNAL_REPLAY)
		raise_to(&place->frozen_rows, head->journal_end);
	KV_FAULT_POINT();
	atomic_store_explicit(&place->freeze_count, count + 1, memory_order_release);
	KV_FAULT_POINT();
}

const char *kv_head_wrong(const struct kv_layout *layout, const struct kv_head *head,
			  uint64_t max_tokens)
{
	enum kv_journal_mode mode = kv_head_mode(head->state);
	uint32_t first = kv_planes_first(head->planes), now = kv_planes_now(head->planes);

	if (kv_head_state(head->state) > KV_HEAD_SNAPSHOT || mode > KV_JOURNAL_REPLAY ||
	    head->state & ~KV_HEAD_BITS)
		return "unknown state";
	if (head->length_tokens > max_tokens || head->base_tokens > head->length_tokens ||
	    (mode != KV_JOURNAL_REPLAY && head->base_tokens != head->length_tokens))
		return "length";
	if (head->n_marks > KV_MARKS_MAX)
		return "number of marks";
	if (head->journal_first > head->journal_end || head->journal_end > UINT64_MAX / 2 ||
	    (mode == KV_JOURNAL_NONE && head->journal_end != head->journal_first) ||
	    (layout->journal_group == layout->n_groups && mode != KV_JOURNAL_NONE))
		return "journal bounds";
	if (mode != KV_JOURNAL_NONE &&
	    kv_head_window(layout, head, layout->journal_group).n > KV_JOURNAL_BLOCKS_MAX)
		return "journal bounds";
	if (first > now || (first == 0) != (now == 0) || now - first >= KV_STATES_MAX ||
	    (layout->states_group == layout->n_groups && now))
		return "versions of the sequence planes";
	return NULL;
}
