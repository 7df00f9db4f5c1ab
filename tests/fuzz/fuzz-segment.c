/*
 * A control segment that says anything: read by the core, acted on under a hold, and taken up by
 * the library.
 *
 * The input is a list of {offset 4 bytes little-endian, value 8 bytes} that are stored in the
 * writers, places and tables of a segment; offsets count words of 4 bytes, round and round. The
 * core keeps what it relies on in memory of its own (struct seg_place): a place of two layer
 * groups, one of them a ring, with a replay journal and sequence planes.
 * Thread: one.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/hold.h"
#include "tests/fuzz/target.h"
#include "tests/support/bare.h"

#define EDITS_MAX 512
#define BLOCK_TOKENS 4u
#define MAX_TOKENS 4096u
#define BOUND 8u
#define LENGTH 20u
#define BASE 13u

static struct kv_layout *make_layout(void)
{
	static struct kv_layer layers[2] = {{1, 16, 16, 0}, {2, 16, 16, BOUND}};
	static struct kv_plane planes[2] = {{"position", KV_PLANE_SLOT, 4},
					    {"counters", KV_PLANE_SEQUENCE, 64}};
	struct kv_layout fields = {.fingerprint = {1},
				   .n_layers = 2,
				   .layers = layers,
				   .dtype = KV_DTYPE_F32,
				   .k_format = KV_FORMAT_INT8,
				   .v_format = KV_FORMAT_U8,
				   .block_tokens = BLOCK_TOKENS,
				   .n_planes = 2,
				   .planes = planes};

	return kv_layout_copy(&fields);
}

/* What the place holds before it is scribbled over. */
static void fill(const struct kv_layout *layout, struct seg_state *state)
{
	state->head = (struct kv_head){.length_tokens = LENGTH,
				       .base_tokens = BASE,
				       .position = LENGTH,
				       .journal_end = 30,
				       .planes = kv_planes(1, 2),
				       .n_marks = 1,
				       .state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_REPLAY)};
	state->marks[0] = (struct seg_mark){1, 1, LENGTH, 30};
	for (uint32_t g = 0; g < layout->n_groups; g++) {
		state->n_blocks[g] = kv_head_window(layout, &state->head, g).n;
		state->refs[g] = calloc(state->n_blocks[g] + 1, sizeof(uint64_t));
		for (uint64_t i = 0; i < state->n_blocks[g]; i++)
			state->refs[g][i] = kv_ref(0, g + 1, (uint32_t)i);
	}
}

static void put_record(struct bare *bare, uint64_t row, const struct kv_record *record)
{
	const struct kv_layout *layout = bare->layout.fields;
	const struct kv_journal_shape *shape = &layout->journal[KV_JOURNAL_REPLAY];
	char *block = bare->arenas[layout->journal_group].map.base +
		      (row >> shape->rows_log2) * layout->groups[layout->journal_group].block_bytes;
	const struct kv_row header = {.kind = KV_ROW_RECORD};

	memcpy(block + kv_row_off(shape, row), &header, sizeof(header));
	memcpy(block + kv_row_payload_off(shape, row), record, sizeof(*record));
}

/* One step of rows that nobody wrote, between two records. */
static void fill_journal(struct bare *bare, const struct kv_head *head)
{
	put_record(bare, 0,
		   &(struct kv_record){
			   .update = 1, .length_tokens = BASE, .position = BASE, .planes = 1});
	put_record(bare, head->journal_end - 1,
		   &(struct kv_record){.update = 1,
				       .length_tokens = LENGTH,
				       .position = LENGTH,
				       .planes = kv_planes_now(head->planes),
				       .n_rows = (uint32_t)head->journal_end - 2,
				       .n_steps = 1});
}

/* Writers, arena numbers and places: up to here words are stored; tables: two pages of each. */
static void scribble(struct bare *bare, const struct seg_place *place, const uint8_t *data,
		     size_t size)
{
	char *base = bare->segment.base;
	uint64_t places_end = segment_head(&bare->segment)->places_off + 2 * KV_SHM_PAGE;
	uint64_t n_words = (places_end + (2 * place->n_groups - 1) * KV_SHM_PAGE) / 4 - 1;

	for (int i = 0; i < EDITS_MAX && size >= 12; i++, data += 12, size -= 12) {
		uint64_t off;
		uint32_t word;

		memcpy(&word, data, sizeof(word));
		off = KV_SHM_PAGE + word % n_words * 4; /* nobody looks at the head again */
		if (off >= places_end - 4) {
			off -= places_end - 4;
			off = place->table_off[off / (2 * KV_SHM_PAGE) % place->n_groups] +
			      off % (2 * KV_SHM_PAGE);
		}
		memcpy(base + off, data + 4, 8);
	}
}

static void check_state(const struct seg_place *place, const struct seg_state *state)
{
	must(state->head.length_tokens <= place->max_tokens);
	must(state->head.n_marks <= KV_MARKS_MAX);
	must(state->head.base_tokens <= state->head.length_tokens);
	must(state->head.journal_first <= state->head.journal_end);
	must(kv_head_state(state->head.state) <= KV_HEAD_SNAPSHOT);
	must(kv_head_mode(state->head.state) <= KV_JOURNAL_REPLAY);
	for (uint32_t i = 0; i < state->head.n_marks; i++)
		must(state->marks[i].journal_end <= state->head.journal_end);
	for (uint32_t g = 0; g < place->n_groups; g++) {
		must(state->n_slots[g] <= place->max_tokens);
		must(state->n_blocks[g] <= place->n_entries[g]);
		for (uint64_t i = 0; i < state->n_blocks[g]; i++)
			must(kv_ref_arena(state->refs[g][i]) < KV_ARENAS_MAX);
	}
}

/* What the core does to a live sequence, whatever is in its segment. */
static void act(struct bare *bare, struct seg_place *place, int what)
{
	struct kv_shm_writer *writer = segment_writer(&bare->segment, place->writer);
	struct seg_state *state = calloc(1, sizeof(*state));
	struct errbuf err = {0};
	bool bumped;

	must(state != NULL);
	if (hold_try(writer) == 0) {
		if (segment_read(&bare->segment, place, bare->layout.fields, hold_update(writer),
				 state, &err) == 0) {
			check_state(place, state);
			if (what == 2) {
				seg_state_share(state, bare->layout.fields);
				check_state(place, state);
			} else if (what == 0)
				hold_freeze(&bare->segment, place, bare->layout.fields, state,
					    &bumped, &err);
			else
				hold_rollback(&bare->segment, place, state,
					      state->head.length_tokens / 2);
			seg_state_fini(state);
		} else {
			must(err.status == KV_EINVAL && err.text[0]);
		}
		hold_release(writer, what == 1);
	} else {
		hold_cancel(writer);
	}
	free(state);
}

static void act_all(struct bare *bare, struct seg_place *place)
{
	struct kv_shm_writer *writer = segment_writer(&bare->segment, place->writer);
	struct kv_head head;
	uint64_t update;
	bool was_held, is_open;

	segment_peek(&bare->segment, place->index, place->writer, &head, &update);
	act(bare, place, 0);
	act(bare, place, 1);
	act(bare, place, 2);
	hold_recover(writer, &was_held);
	hold_clear(&bare->segment, place);
	update = hold_outcome(writer, &is_open);
	must(hold_bury(writer) == update);
	hold_clear(&bare->segment, place);
	act(bare, place, 0);
}

/* The library takes up a place that the core gave out; its own process may have damaged it. */
static void take_up(struct bare *bare, struct kvc_writer *writer)
{
	struct kvc_seq *seq;

	writer->update = kv_word_update(kv_word_load(writer->shm));
	seq = seq_attach(writer, &bare->layout, 0, 1, 0);
	if (!seq)
		return;
	must(kvc_length(seq) <= MAX_TOKENS);
	seq_end(seq, SEQ_END_PARKED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bare *bare = bare_new(make_layout());
	struct kvc_writer *writer = bare_writer(bare, 0);
	struct seg_state *state = calloc(1, sizeof(*state));
	struct kvc_seq *seq;

	must(state != NULL);
	fill(bare->layout.fields, state);
	fill_journal(bare, &state->head);
	seq = bare_seq(bare, writer, MAX_TOKENS, state);
	must(seq != NULL);
	seg_state_fini(state);
	free(state);
	seq_end(seq, SEQ_END_PARKED); /* the place stays as it is */
	scribble(bare, &bare->places[0], data, size);
	act_all(bare, &bare->places[0]);
	scribble(bare, &bare->places[0], data, size);
	take_up(bare, writer);
	writer_free(writer);
	bare_free(bare);
	return 0;
}
