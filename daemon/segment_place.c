/* Places in a control segment (daemon/segment.h): filling one, and reading what a writer made of
 * it. */
#include "daemon/segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PEEK_TRIES 64

/* ---- places ------------------------------------------------------------------------------- */

static struct kv_shm_entry *entries(const struct segment *segment, const struct seg_place *place,
				    uint32_t g, unsigned copy)
{
	return kv_shm_entry(segment->base, place->table_off[g], place->n_entries[g], copy, 0);
}

void segment_place_spare(struct segment *segment, const struct seg_place *place)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);

	memset((void *)shm, 0, offsetof(struct kv_shm_place, marks));
	shm->writer = place->writer;
	shm->n_groups = place->n_groups;
	shm->layout_id = place->layout_id;
	shm->seq_id = place->seq_id;
	shm->max_tokens = place->max_tokens;
	memcpy(shm->table_off, place->table_off, sizeof(shm->table_off));
	memcpy(shm->n_entries, place->n_entries, sizeof(shm->n_entries));
	atomic_store_explicit(&shm->freeze_count, 1, memory_order_release);
}

int segment_ranges(const struct seg_place *place, uint32_t group, uint64_t first, uint64_t n,
		   segment_range_fn *fn, void *arg)
{
	uint32_t n_entries = place->n_entries[group], entry;
	uint64_t step;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < n; i += step) {
		entry = (uint32_t)((first + i) % n_entries);
		step = n_entries - entry < n - i ? n_entries - entry : n - i;
		rc = fn(arg, entry, i, step);
	}
	return rc;
}

struct fill {
	struct kv_shm_entry *table;
	const uint64_t *refs;
	uint64_t stamp;
};

static int fill_range(void *arg, uint32_t entry, uint64_t i, uint64_t n)
{
	const struct fill *fill = arg;
	struct kv_shm_entry *at = fill->table + entry;

	for (const uint64_t *ref = fill->refs + i; n--; ref++, at++) {
		atomic_store_explicit(&at->ref, kv_ref(0, kv_ref_arena(*ref), kv_ref_block(*ref)),
				      memory_order_relaxed);
		atomic_store_explicit(&at->stamp, fill->stamp, memory_order_relaxed);
	}
	return 0;
}

static void fill_tables(struct segment *segment, const struct seg_place *place,
			const struct seg_state *state, uint64_t stamp)
{
	for (uint32_t g = 0; g < place->n_groups; g++) {
		struct fill fill = {entries(segment, place, g, 0), state->refs[g], stamp};

		segment_ranges(place, g, state->first_block[g], state->n_blocks[g], fill_range,
			       &fill);
	}
}

static void fill_marks(struct kv_shm_place *shm, const struct seg_state *state)
{
	for (uint32_t i = 0; i < state->head.n_marks; i++) {
		struct kv_shm_mark *mark = &shm->marks[i];

		atomic_store_explicit(&mark->id, state->marks[i].id, memory_order_relaxed);
		atomic_store_explicit(&mark->update, state->marks[i].update, memory_order_relaxed);
		atomic_store_explicit(&mark->length_tokens, state->marks[i].length_tokens,
				      memory_order_relaxed);
		atomic_store_explicit(&mark->journal_end, state->marks[i].journal_end,
				      memory_order_relaxed);
	}
}

void segment_place_init(struct segment *segment, const struct seg_place *place,
			const struct seg_state *state, enum kv_head_state head_state,
			uint64_t base_id)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);
	struct kv_head head = {0};
	uint64_t stamp = kv_word_update(kv_word_load(segment_writer(segment, place->writer)));

	segment_place_spare(segment, place);
	atomic_store_explicit(&shm->base_id, base_id, memory_order_relaxed);
	if (state) {
		head = state->head;
		fill_tables(segment, place, state, stamp);
		fill_marks(shm, state);
	}
	head.state = kv_head_with_state(head.state, head_state);
	atomic_store_explicit(&shm->rows_end, head.journal_end, memory_order_relaxed);
	kv_head_store(&shm->copy[0], &head, stamp);
}

/* ---- reading ------------------------------------------------------------------------------ */

static int read_head(const struct kv_shm_place *shm, const struct seg_place *place,
		     const struct kv_layout *layout, struct seg_state *state, struct errbuf *err)
{
	int c = kv_head_current(shm, state->update);
	const char *wrong;

	if (c < 0)
		return errbuf_set(err, KV_EINVAL, "sequence in place %u was never committed",
				  place->index);
	kv_head_load(&shm->copy[c], &state->head);
	state->stamp = atomic_load_explicit(&shm->copy[c].stamp, memory_order_relaxed);
	wrong = kv_head_wrong(layout, &state->head, place->max_tokens);
	if (wrong)
		return errbuf_set(
			err, KV_EINVAL,
			"header in place %u makes no sense (%s): length %llu of at most %llu, base "
			"%llu, journal rows %llu to %llu, %u marks, state %#x",
			place->index, wrong, (unsigned long long)state->head.length_tokens,
			(unsigned long long)place->max_tokens,
			(unsigned long long)state->head.base_tokens,
			(unsigned long long)state->head.journal_first,
			(unsigned long long)state->head.journal_end, state->head.n_marks,
			state->head.state);
	return 0;
}

/* A mark may have more tokens than the one behind it (scatter updates write without appending),
 * but not more rows. */
static int read_marks(const struct kv_shm_place *shm, const struct seg_place *place,
		      struct seg_state *state, struct errbuf *err)
{
	uint64_t before = 0;

	for (uint32_t i = 0; i < state->head.n_marks; i++) {
		const struct kv_shm_mark *mark = &shm->marks[i];
		struct seg_mark *out = &state->marks[i];

		out->id = atomic_load_explicit(&mark->id, memory_order_relaxed);
		out->update = atomic_load_explicit(&mark->update, memory_order_relaxed);
		out->length_tokens = atomic_load_explicit(&mark->length_tokens,
							  memory_order_relaxed);
		out->journal_end = atomic_load_explicit(&mark->journal_end, memory_order_relaxed);
		if (out->length_tokens > place->max_tokens || out->journal_end < before ||
		    out->journal_end > state->head.journal_end)
			return errbuf_set(err, KV_EINVAL, "mark %u makes no sense", i);
		before = out->journal_end;
	}
	return 0;
}

struct reading {
	const struct kv_shm_entry *t0, *t1;
	const struct seg_place *place;
	uint32_t group;
	struct seg_state *state;
	struct errbuf *err;
};

static int read_range(void *arg, uint32_t entry, uint64_t i, uint64_t n)
{
	const struct reading *r = arg;
	uint64_t *ref = r->state->refs[r->group] + i;

	for (uint64_t end = entry + n; entry < end; entry++) {
		const struct kv_shm_entry *e0 = &r->t0[entry], *e1 = &r->t1[entry];
		int c = kv_stamps_current(&e0->stamp, &e1->stamp, r->state->update);

		if (c < 0)
			return errbuf_set(
				r->err, KV_EINVAL,
				"entry %u of group %u in place %u, a block of the sequence, was "
				"never committed",
				entry, r->group, r->place->index);
		*ref++ = atomic_load_explicit(c ? &e1->ref : &e0->ref, memory_order_relaxed);
	}
	return 0;
}

static int read_table(const struct segment *segment, const struct seg_place *place, uint32_t g,
		      struct seg_state *state, struct errbuf *err)
{
	struct reading reading = {
		entries(segment, place, g, 0), entries(segment, place, g, 1), place, g, state, err};
	uint64_t n = state->n_blocks[g];

	state->refs[g] = malloc((n ? n : 1) * sizeof(uint64_t));
	if (!state->refs[g])
		return errbuf_set(err, KV_ENOMEM, "no memory for a block table of %llu blocks",
				  (unsigned long long)n);
	return segment_ranges(place, g, state->first_block[g], n, read_range, &reading);
}

int segment_read(const struct segment *segment, const struct seg_place *place,
		 const struct kv_layout *layout, uint64_t update, struct seg_state *state,
		 struct errbuf *err)
{
	const struct kv_shm_place *shm = segment_place(segment, place->index);

	memset(state, 0, sizeof(*state));
	state->update = update;
	if (read_head(shm, place, layout, state, err) || read_marks(shm, place, state, err))
		return -1;
	for (uint32_t g = 0; g < place->n_groups; g++) {
		struct kv_window window = kv_head_window(layout, &state->head, g);

		if (g < layout->n_layer_groups)
			state->n_slots[g] = kv_layout_slots(layout, g, state->head.base_tokens);
		state->first_block[g] = window.first;
		state->n_blocks[g] = window.n;
		if (read_table(segment, place, g, state, err)) {
			seg_state_fini(state);
			return -1;
		}
	}
	return 0;
}

void seg_state_fini(struct seg_state *state)
{
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
		free(state->refs[g]);
		state->refs[g] = NULL;
	}
}

void seg_state_share(struct seg_state *state, const struct kv_layout *layout)
{
	kv_head_share(&state->head);
	for (uint32_t g = layout->n_layer_groups; g < layout->n_groups; g++) {
		struct kv_window window = kv_head_window(layout, &state->head, g);

		if (window.n && window.first > state->first_block[g])
			memmove(state->refs[g],
				state->refs[g] + (window.first - state->first_block[g]),
				window.n * sizeof(uint64_t));
		state->first_block[g] = window.first;
		state->n_blocks[g] = window.n;
	}
}

int segment_peek(const struct segment *segment, uint32_t index, uint32_t writer,
		 struct kv_head *head, uint64_t *update)
{
	struct kv_shm_writer *w = segment_writer(segment, writer);
	const struct kv_shm_place *shm = segment_place(segment, index);

	for (int i = 0; i < PEEK_TRIES; i++) {
		uint64_t word = kv_word_load(w);
		int c = kv_head_current(shm, kv_word_update(word));

		if (c < 0) {
			*head = (struct kv_head){.state = KV_HEAD_NONE};
		} else {
			kv_head_load(&shm->copy[c], head);
		}
		/* An acquire fence keeps the loads above the second look at the word. */
		atomic_thread_fence(memory_order_acquire);
		*update = kv_word_update(word);
		if (kv_word_update(kv_word_load(w)) == *update)
			return 0;
	}
	return -EAGAIN;
}
