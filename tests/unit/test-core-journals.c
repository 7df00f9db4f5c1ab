/*
 * Journals and versions of sequence planes in the core: what snapshots, forks and parking keep of
 * them, that a restart changes nothing, who may roll back, and digests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "tests/support/craft.h"
#include "tests/support/runner.h"

#define UID 1000u
#define BLOCK_TOKENS 4u
#define BOUND 8u
#define LENGTH 20u
#define PLANE_BYTES 100u

struct world {
	struct fake_core *f;
	struct craft a;
	struct kv_layout *layout;
};

static void begin(struct world *w)
{
	static struct kv_layer layers[2] = {{2, 4, 4, 0}, {1, 8, 4, BOUND}};
	static struct kv_plane planes[3] = {{"position", KV_PLANE_SLOT, 4},
					    {"counters", KV_PLANE_SEQUENCE, PLANE_BYTES},
					    {"more", KV_PLANE_SEQUENCE, 4}};
	struct kv_layout layout = {.fingerprint = {1},
				   .n_layers = 2,
				   .layers = layers,
				   .dtype = KV_DTYPE_F32,
				   .k_format = KV_FORMAT_RAW,
				   .v_format = KV_FORMAT_RAW,
				   .block_tokens = BLOCK_TOKENS,
				   .n_planes = 3,
				   .planes = planes};
	struct settings settings;

	log_init(LOG_LEVEL_ERROR);
	settings_default(&settings);
	settings.pool_bytes = 64u << 20;
	settings.arena_bytes = 16u << 20;
	settings.huge = settings.mlock = SETTINGS_NO;
	*w = (struct world){.f = fake_core_new(&settings)};
	craft_begin(&w->a, w->f, UID, &layout);
	w->layout = w->a.layout;
}

static void end(struct world *w)
{
	craft_end(&w->a);
	fake_core_free(w->f);
}

static uint64_t rows_per_block(const struct world *w, enum kv_journal_mode mode)
{
	return UINT64_C(1) << w->layout->journal[mode].rows_log2;
}

/* Blocks for all that a header has, in the table and committed with it; all bytes are zero. */
static uint32_t make(struct world *w, const char *name, const struct kv_head *head)
{
	return craft_make(&w->a, name, 1u << 20, head, NULL);
}

static struct kv_head head_of(const struct world *w, enum kv_journal_mode mode)
{
	uint64_t rows = rows_per_block(w, mode);
	struct kv_head head = {.length_tokens = LENGTH,
			       .base_tokens = mode == KV_JOURNAL_REPLAY ? 13 : LENGTH,
			       .position = 90,
			       .state = kv_head_word(KV_HEAD_LIVE, mode),
			       .planes = kv_planes(1020, 1027),
			       .n_marks = 2};

	if (mode == KV_JOURNAL_NONE) {
		head.planes = 0;
		return head;
	}
	head.journal_first = (KV_JOURNAL_BLOCKS_MAX - 1) * rows + 3;
	head.journal_end = (KV_JOURNAL_BLOCKS_MAX + 1) * rows + 2;
	head.state |= KV_HEAD_SCATTERED;
	return head;
}

static struct object *find(const struct world *w, const char *name)
{
	struct object *object = names_find(w->f->core, UID, name);

	assert_non_null(object);
	return object;
}

static void restart(struct world *w)
{
	assert_int_equal(fake_core_restart(w->f), 0);
	fake_settle(w->f);
}

/* ---- what is kept ------------------------------------------------------------------------- */

static void assert_counts(const struct world *w, const struct state *state, uint64_t n_journal,
			  uint64_t n_states, uint32_t n_marks)
{
	assert_int_equal(state->n_blocks[0], state->head.base_tokens == LENGTH ? 5 : 4);
	assert_int_equal(state->n_slots[0], state->head.base_tokens);
	assert_int_equal(state->n_blocks[1], 2);
	assert_int_equal(state->n_slots[1], BOUND);
	assert_int_equal(state->n_blocks[w->layout->journal_group], n_journal);
	assert_int_equal(state->n_blocks[w->layout->states_group], n_states);
	assert_int_equal(state->head.n_marks, n_marks);
}

static void test_kept(void **state)
{
	struct world w;

	(void)state;
	begin(&w);
	for (int mode = KV_JOURNAL_NONE; mode <= KV_JOURNAL_REPLAY; mode++) {
		static const char *const names[] = {"none", "undo", "replay"};
		struct kv_head head = head_of(&w, (enum kv_journal_mode)mode);
		char snap[32];

		make(&w, names[mode], &head);
		snprintf(snap, sizeof(snap), "%s-snap", names[mode]);
		craft_snapshot(&w.a, names[mode], snap);
	}
	assert_counts(&w, find(&w, "none-snap")->state, 0, 0, 0);
	assert_counts(&w, find(&w, "undo-snap")->state, 0, 1, 0);
	assert_int_equal(find(&w, "undo-snap")->state->first_block[w.layout->states_group], 1026);
	assert_counts(&w, find(&w, "replay-snap")->state, 3, 8, 0);
	fake_client_kill(w.a.c);
	assert_counts(&w, find(&w, "none")->state, 0, 0, 2);
	assert_counts(&w, find(&w, "undo")->state, 3, 8, 2);
	assert_counts(&w, find(&w, "replay")->state, 3, 8, 2);
	end(&w);
}

/* A snapshot or fork of a sequence that waits keeps no more than one of a live one. */
static void test_kept_of_parked(void **state)
{
	struct kv_head head;
	struct world w;
	struct craft b;
	uint32_t place;

	(void)state;
	begin(&w);
	head = head_of(&w, KV_JOURNAL_UNDO);
	make(&w, "undo", &head);
	fake_client_kill(w.a.c);
	craft_begin(&b, w.f, UID, w.layout);
	craft_snapshot(&b, "undo", "snap");
	assert_counts(&w, find(&w, "snap")->state, 0, 1, 0);
	assert_counts(&w, find(&w, "undo")->state, 3, 8, 2);
	place = craft_fork(&b, 0, "undo", 64);
	assert_int_equal(craft_head(&b, place).journal_first, head.journal_end);
	assert_int_equal(craft_head(&b, place).n_marks, 0);
	assert_int_equal(craft_head(&b, place).planes, kv_planes(1027, 1027));
	assert_int_equal(kv_head_mode(craft_head(&b, place).state), KV_JOURNAL_UNDO);
	assert_true(craft_head(&b, place).state & KV_HEAD_SCATTERED);
	assert_true(craft_entry_get(&b, place, w.layout->states_group, 1026) != 0);
	assert_int_equal(craft_entry_get(&b, place, w.layout->states_group, 1025), 0);
	assert_int_equal(craft_entry_get(&b, place, w.layout->journal_group, KV_JOURNAL_BLOCKS_MAX),
			 0);
	place = craft_takeover(&b, 0, "undo", 64);
	assert_int_equal(craft_head(&b, place).journal_first, head.journal_first);
	assert_int_equal(craft_head(&b, place).n_marks, 2);
	assert_int_equal(craft_head(&b, place).planes, head.planes);
	assert_true(craft_entry_get(&b, place, w.layout->journal_group, KV_JOURNAL_BLOCKS_MAX) !=
		    0);
	craft_end(&b);
	end(&w);
}

static void test_restart(void **state)
{
	static const char *const names[] = {"undo", "replay", "undo-snap", "replay-snap"};
	struct state before[4];
	uint64_t *refs[4][KV_GROUPS_MAX];
	struct world w;

	(void)state;
	begin(&w);
	for (int i = 0; i < 2; i++) {
		struct kv_head head = head_of(&w, i ? KV_JOURNAL_REPLAY : KV_JOURNAL_UNDO);

		make(&w, names[i], &head);
		craft_snapshot(&w.a, names[i], names[i + 2]);
	}
	fake_client_kill(w.a.c);
	for (int i = 0; i < 4; i++) {
		before[i] = *find(&w, names[i])->state;
		for (uint32_t g = 0; g < w.layout->n_groups; g++)
			refs[i][g] = state_copy(before[i].refs[g],
						before[i].n_blocks[g] * sizeof(uint64_t));
	}
	restart(&w);
	for (int i = 0; i < 4; i++) {
		const struct state *after = find(&w, names[i])->state;

		assert_memory_equal(&after->head, &before[i].head, sizeof(after->head));
		assert_memory_equal(after->n_slots, before[i].n_slots, sizeof(after->n_slots));
		assert_memory_equal(after->n_blocks, before[i].n_blocks, sizeof(after->n_blocks));
		assert_memory_equal(after->first_block, before[i].first_block,
				    sizeof(after->first_block));
		for (uint32_t g = 0; g < w.layout->n_groups; g++) {
			assert_memory_equal(after->refs[g], refs[i][g],
					    after->n_blocks[g] * sizeof(uint64_t));
			free(refs[i][g]);
		}
		for (uint32_t m = 0; m < after->head.n_marks; m++)
			assert_int_equal(after->marks[m].journal_end, after->head.journal_end);
	}
	end(&w);
}

/* A live place keeps its tables over a restart. */
static void test_restart_live(void **state)
{
	struct kv_head head;
	struct world w;

	(void)state;
	begin(&w);
	head = head_of(&w, KV_JOURNAL_REPLAY);
	make(&w, "replay", &head);
	restart(&w);
	assert_int_equal(fake_client_again(w.a.c), 0);
	craft_snapshot(&w.a, "replay", "snap");
	assert_counts(&w, find(&w, "snap")->state, 3, 8, 0);
	end(&w);
}

/* ---- operators' rollbacks ----------------------------------------------------------------- */

static void test_rollback(void **state)
{
	const struct {
		const char *name;
		struct kv_head head;
		uint64_t keep;
		uint32_t status;
	} cases[] = {
		{"plain", {.length_tokens = 8, .base_tokens = 8, .position = 50, .state = 1}, 6, 0},
		{"undo",
		 {.length_tokens = 8, .base_tokens = 8, .state = 0x101},
		 6,
		 KV_EUNSUPPORTED},
		{"same", {.length_tokens = 8, .base_tokens = 8, .state = 0x101}, 8, 0},
		{"replay",
		 {.length_tokens = 8, .base_tokens = 8, .state = 0x201},
		 6,
		 KV_EUNSUPPORTED},
		{"wrapped", {.length_tokens = 9, .base_tokens = 9, .state = 1}, 6, KV_EUNSUPPORTED},
		{"scattered",
		 {.length_tokens = 8, .base_tokens = 8, .state = 1 | KV_HEAD_SCATTERED},
		 6,
		 KV_EUNSUPPORTED},
		{"planes",
		 {.length_tokens = 8, .base_tokens = 8, .planes = 0x200000002, .state = 1},
		 6,
		 KV_EJOURNAL},
		{"planes-same",
		 {.length_tokens = 8, .base_tokens = 8, .planes = 0x200000002, .state = 1},
		 8,
		 0},
	};
	struct craft b;
	struct world w;

	(void)state;
	begin(&w);
	craft_begin(&b, w.f, UID, w.layout);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		make(&w, cases[i].name, &cases[i].head);
	for (int parked = 0; parked < 2; parked++) {
		for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
			uint64_t keep = cases[i].keep - (parked && i == 0 ? 3 : 0);

			if (craft_rollback(&b, cases[i].name, keep) != cases[i].status)
				fail_msg("%s, %s", cases[i].name, parked ? "parked" : "live");
		}
		if (!parked) {
			/* the position goes back by as many tokens as the length */
			assert_int_equal(craft_head(&w.a, 0).length_tokens, 6);
			assert_int_equal(craft_head(&w.a, 0).base_tokens, 6);
			assert_int_equal(craft_head(&w.a, 0).position, 48);
			fake_client_kill(w.a.c);
		}
	}
	assert_int_equal(find(&w, "plain")->state->head.length_tokens, 3);
	assert_int_equal(find(&w, "plain")->state->head.base_tokens, 3);
	assert_int_equal(find(&w, "plain")->state->head.position, 45);
	assert_int_equal(find(&w, "plain")->state->n_blocks[0], 1);
	assert_int_equal(find(&w, "undo")->state->head.length_tokens, 8);
	craft_end(&b);
	end(&w);
}

/* ---- digests ------------------------------------------------------------------------------ */

/* Fills what a block of each layer group and version holds, from its number. */
static void fill_blocks(const struct world *w, uint32_t place, const struct kv_head *head)
{
	for (uint32_t g = 0; g < w->layout->n_groups; g++) {
		struct kv_window window = kv_head_window(w->layout, head, g);
		const struct kv_group *group = &w->layout->groups[g];

		for (uint64_t i = 0; i < window.n && group->kind != KV_GROUP_JOURNAL; i++) {
			uint64_t ref = craft_entry_get(&w->a, place, g, window.first + i);

			for (uint32_t r = 0; r < group->n_regions; r++) {
				uint32_t n =
					w->layout->regions[group->first_region + r].piece_bytes;
				uint8_t *bytes = malloc(n);

				memset(bytes, (int)(1 + 31 * g + 7 * i + r), n);
				craft_write(&w->a, ref, r, 0, bytes, n);
				free(bytes);
			}
		}
	}
}

static void put_row(const struct world *w, uint32_t place, uint64_t number,
		    const struct kv_row *row, const uint8_t *payload, size_t n)
{
	uint64_t ref = craft_entry_get(&w->a, place, w->layout->journal_group,
				       number / rows_per_block(w, KV_JOURNAL_REPLAY));

	craft_row(&w->a, ref, KV_JOURNAL_REPLAY, number, row, payload, n);
}

/* Rows of all slots, many times over, among records and rows that make no sense. Row number i has
 * bytes from i. */
static struct kv_row row_at(uint64_t i, uint64_t length)
{
	uint64_t draw = i * UINT64_C(6364136223846793005) + 1442695040888963407;
	struct kv_row row = {.kind = KV_ROW_VECTOR, .layer = draw >> 60 & 1, .token = (uint32_t)i};

	draw >>= 20;
	row.slot = (uint32_t)(draw % (row.layer ? BOUND : length));
	row.head = row.layer ? 0 : draw >> 8 & 1;
	row.flags = draw >> 12 & 1 ? KV_ROW_BASE : 0;
	switch (draw >> 16 & 15) {
	case 0: row.kind = KV_ROW_RECORD; break;
	case 1: row.kind = KV_ROW_VOID; break;
	case 2: row.slot += row.layer ? BOUND : (uint32_t)length; break; /* holds nothing */
	case 3: row.layer = 2; break;
	case 4: row.head = 2; break;
	default: break;
	}
	return row;
}

static void payload_at(uint64_t i, uint8_t payload[64])
{
	for (unsigned b = 0; b < 64; b++)
		payload[b] = (uint8_t)(i * 11 + b);
}

static void digest_blocks(const struct world *w, uint32_t place, const struct kv_head *head,
			  struct kv_digest *digest)
{
	XXH3_state_t *state = XXH3_createState();

	for (uint32_t g = 0; g < w->layout->n_layer_groups; g++) {
		const struct kv_group *group = &w->layout->groups[g];
		uint64_t n_slots = kv_layout_slots(w->layout, g, head->base_tokens);

		kv_digest_group(digest, g, n_slots);
		for (uint64_t b = 0; b * BLOCK_TOKENS < n_slots; b++) {
			uint64_t ref = craft_entry_get(&w->a, place, g, b), left;
			struct kv_block_digest out;
			void *pieces[8];

			left = n_slots - b * BLOCK_TOKENS;
			for (uint32_t r = 0; r < group->n_regions; r++) {
				uint32_t n =
					w->layout->regions[group->first_region + r].piece_bytes;

				pieces[r] = malloc(n);
				craft_read(&w->a, ref, r, 0, pieces[r], n);
			}
			kv_block_digest(state, w->layout, g, (const void *const *)pieces,
					left < BLOCK_TOKENS ? (uint32_t)left : BLOCK_TOKENS, &out);
			kv_digest_block(digest, &out);
			for (uint32_t r = 0; r < group->n_regions; r++)
				free(pieces[r]);
		}
	}
	XXH3_freeState(state);
}

/* As proto/digest.h has it, in the plainest way: the last row of each layer, head, slot. */
static void digest_rows(const struct world *w, const struct kv_head *head, struct kv_digest *digest)
{
	uint64_t length = head->length_tokens, n = 0;
	uint64_t *last = calloc(4 * length, sizeof(last[0])); /* row + 1 */

	for (uint64_t i = head->journal_first; i < head->journal_end; i++) {
		struct kv_row row = row_at(i, length);
		uint64_t *at;

		if (row.kind != KV_ROW_VECTOR || row.layer > 1 || row.head > 1 ||
		    row.slot >= (row.layer ? BOUND : length))
			continue;
		at = &last[(2u * row.layer + row.head) * length + row.slot];
		n += *at == 0;
		*at = i + 1;
	}
	if (n)
		kv_digest_rows(digest, n);
	for (uint64_t at = 0; at < 4 * length; at++) {
		uint8_t payload[64];
		struct kv_row row;

		if (!last[at])
			continue;
		row = row_at(last[at] - 1, length);
		payload_at(last[at] - 1, payload);
		kv_digest_row(digest, w->layout, &row, payload);
	}
	free(last);
}

static void expect(const struct world *w, uint32_t place, const struct kv_head *head,
		   uint8_t out[KV_DIGEST_BYTES])
{
	struct kv_digest digest;
	uint32_t version = kv_planes_now(head->planes);

	assert_int_equal(kv_digest_begin(&digest, w->layout, head->length_tokens, head->position),
			 0);
	digest_blocks(w, place, head, &digest);
	if (version) {
		uint8_t block[1024];
		uint64_t ref = craft_entry_get(&w->a, place, w->layout->states_group, version - 1);

		craft_read(&w->a, ref, 0, 0, block,
			   w->layout->groups[w->layout->states_group].block_bytes);
		kv_digest_states(&digest, w->layout, block);
	}
	if (kv_head_mode(head->state) == KV_JOURNAL_REPLAY)
		digest_rows(w, head, &digest);
	kv_digest_final(&digest, out);
}

static void check_digest_of(struct world *w, const struct kv_head *head)
{
	uint32_t place = make(w, "seq", head);
	uint8_t expected[KV_DIGEST_BYTES], payload[64];
	Kv__Wire__Reply *reply;

	fill_blocks(w, place, head);
	for (uint64_t i = head->journal_first; i < head->journal_end; i++) {
		struct kv_row row = row_at(i, head->length_tokens);

		payload_at(i, payload);
		if (kv_head_mode(head->state) == KV_JOURNAL_REPLAY)
			put_row(w, place, i, &row, payload, 52);
	}
	expect(w, place, head, expected);
	craft_snapshot(&w->a, "seq", "snap");
	for (int again = 0; again < 2; again++) {
		reply = craft_verify(&w->a, "snap");
		assert_int_equal(reply->job->state, 2);
		assert_int_equal(reply->job->n_done_bytes, reply->job->n_total_bytes);
		assert_int_equal(reply->job->digest.len, KV_DIGEST_BYTES);
		assert_memory_equal(reply->job->digest.data, expected, KV_DIGEST_BYTES);
		kv__wire__reply__free_unpacked(reply, NULL);
	}
}

static void check_digest(uint64_t n_rows, enum kv_journal_mode mode)
{
	struct kv_head head;
	struct world w;

	begin(&w);
	head = head_of(&w, mode);
	head.n_marks = 0;
	if (mode != KV_JOURNAL_NONE)
		head.journal_end = head.journal_first + n_rows;
	check_digest_of(&w, &head);
	end(&w);
}

static void test_digests(void **state)
{
	(void)state;
	check_digest(0, KV_JOURNAL_NONE);
	check_digest(500, KV_JOURNAL_UNDO); /* its rows are not in it */
	check_digest(0, KV_JOURNAL_REPLAY);
	check_digest(1, KV_JOURNAL_REPLAY);
	check_digest(900, KV_JOURNAL_REPLAY);
}

/* More than are sorted at a time, several times over: of few slots, and of so many that most rows
 * are in force. */
static void test_digest_of_many_rows(void **state)
{
	static const uint64_t lengths[] = {LENGTH, 30000, 1000000};

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct kv_head head = {.length_tokens = lengths[i],
				       .position = lengths[i],
				       .journal_first = 5,
				       .journal_end = 120000,
				       .state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_REPLAY)};
		struct world w;

		begin(&w);
		check_digest_of(&w, &head);
		end(&w);
	}
}

static void test_rest_is_verified(void **state)
{
	Kv__Wire__Reply *reply;
	struct kv_head head;
	uint32_t place;
	struct world w;
	uint64_t ref;

	(void)state;
	begin(&w);
	head = head_of(&w, KV_JOURNAL_REPLAY);
	place = make(&w, "seq", &head);
	fill_blocks(&w, place, &head);
	craft_snapshot(&w.a, "seq", "snap");
	kv__wire__reply__free_unpacked(craft_verify(&w.a, "snap"), NULL);
	ref = craft_entry_get(&w.a, place, w.layout->states_group, 1026);
	craft_write(&w.a, ref, 0, PLANE_BYTES - 1, "!", 1);
	reply = craft_verify(&w.a, "snap");
	assert_int_equal(reply->job->state, 3);
	assert_int_equal(reply->job->status, KV_ECORRUPT);
	assert_int_equal(reply->job->n_bad_blocks, 0);
	kv__wire__reply__free_unpacked(reply, NULL);
	/* what lies between the planes is nobody's */
	craft_write(&w.a, ref, 0, PLANE_BYTES - 1, "\x1f", 1);
	end(&w);
}

static void test_show(void **state)
{
	Kv__Wire__Reply *reply;
	struct kv_head head;
	struct world w;

	(void)state;
	begin(&w);
	head = head_of(&w, KV_JOURNAL_REPLAY);
	make(&w, "seq", &head);
	for (int parked = 0; parked < 2; parked++) {
		const Kv__Wire__Object *o;
		struct craft b;

		craft_begin(&b, w.f, UID, w.layout);
		reply = craft_show(&b, "seq");
		o = reply->objects->objects[0];
		assert_int_equal(o->state, parked ? 2 : 1);
		assert_int_equal(o->journal_mode, 2);
		assert_int_equal(o->n_journal_rows, head.journal_end - head.journal_first);
		assert_int_equal(o->base_tokens, 13);
		assert_int_equal(o->length_tokens, LENGTH);
		assert_int_equal(o->position, 90);
		assert_int_equal(o->n_journal_bytes,
				 3 * w.layout->groups[w.layout->journal_group].block_bytes);
		assert_int_equal(o->n_bytes,
				 o->n_journal_bytes + 4 * w.layout->groups[0].block_bytes +
					 2 * w.layout->groups[1].block_bytes +
					 8 * w.layout->groups[w.layout->states_group].block_bytes);
		kv__wire__reply__free_unpacked(reply, NULL);
		craft_end(&b);
		fake_client_kill(w.a.c);
	}
	end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("snapshots keep replay journals and nothing of undo journals, parking keeps all",
		test_kept),
	KT_TEST("snapshots and forks of a parked sequence keep no more, a takeover keeps all",
		test_kept_of_parked),
	KT_TEST("journals, versions and marks are the same after a restart", test_restart),
	KT_TEST("a live sequence has its windows after a restart", test_restart_live),
	KT_TEST("an operator rolls back what was appended, and nothing else", test_rollback),
	KT_TEST("verify hashes blocks, sequence planes and rows in force", test_digests),
	KT_TEST("verify sorts more rows than fit into one run", test_digest_of_many_rows),
	KT_TEST("verify finds sequence planes that are not what they were", test_rest_is_verified),
	KT_TEST("a listing shows the journal", test_show),
};

KT_MAIN(tests)
