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
