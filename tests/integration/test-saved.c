/*
 * What is saved comes back in another life of the machine as it was: of every storage format, with
 * rings, planes, journals of both modes, marks, lineage and digest; and it goes on from there as if
 * nothing had happened.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rpc.h"
#include "tests/integration/machine.h"
#include "tests/integration/shadow.h"
#include "tests/support/client.h"

#define WIDTH 32u
#define HEADS 2u
#define ROW (HEADS * WIDTH)
#define LAYERS 2u
#define RING 24u
#define OPAQUE_BYTES 100u
#define SLOTS_MAX 80u
#define MOST_MARKS 4u

/* ---- kinds of caches ---------------------------------------------------------------------- */

struct kind {
	const char *name;
	uint32_t k_format, v_format;
	bool has_ring, has_planes, is_opaque, scatters;
	uint32_t journal; /* enum kvc_journal_mode */
};

static const struct kind kinds[] = {
	{.name = "raw", .k_format = KVC_RAW, .v_format = KVC_RAW},
	{.name = "int8", .k_format = KVC_INT8, .v_format = KVC_U4},
	{.name = "u8", .k_format = KVC_U8, .v_format = KVC_FP8, .has_planes = true},
	{.name = "ring",
	 .k_format = KVC_RAW,
	 .v_format = KVC_INT8,
	 .has_ring = true,
	 .journal = KVC_JOURNAL_UNDO},
	{.name = "undo",
	 .k_format = KVC_Q4,
	 .v_format = KVC_Q4,
	 .has_ring = true,
	 .has_planes = true,
	 .scatters = true,
	 .journal = KVC_JOURNAL_UNDO},
	{.name = "replay",
	 .k_format = KVC_INT8,
	 .v_format = KVC_INT8,
	 .scatters = true,
	 .journal = KVC_JOURNAL_REPLAY},
	{.name = "replay-all",
	 .k_format = KVC_U8,
	 .v_format = KVC_U4,
	 .has_ring = true,
	 .has_planes = true,
	 .scatters = true,
	 .journal = KVC_JOURNAL_REPLAY},
	{.name = "opaque", .is_opaque = true},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static kvc_layout *layout_of(kvc_session *session, const struct kind *kind)
{
	const struct kvc_layer layers[LAYERS] = {{HEADS, WIDTH, WIDTH, 0},
						 {HEADS, WIDTH, WIDTH, kind->has_ring ? RING : 0}};
	static const struct kvc_plane planes[2] = {{"position", KVC_PLANE_SLOT, 4},
						   {"counter", KVC_PLANE_SEQUENCE, 8}};
	struct kvc_layout_options options = {.size = sizeof(options), .fingerprint = {3, 1}};
	kvc_layout *layout;

	if (kind->is_opaque) {
		options.opaque_bytes = OPAQUE_BYTES;
	} else {
		options.n_layers = LAYERS;
		options.layers = layers;
		options.dtype = KVC_F32;
		options.k_format = kind->k_format;
		options.v_format = kind->v_format;
		options.block_tokens = 8;
		options.n_planes = kind->has_planes ? 2 : 0;
		options.planes = planes;
	}
	there(layout = kvc_layout_register(session, &options));
	return layout;
}

static void fill_vectors(float *to, uint64_t token, uint32_t layer, int is_value)
{
	for (uint32_t i = 0; i < ROW; i++)
		to[i] = (float)((token * 131 + layer * 17 + (uint32_t)is_value * 7 + i * 29) %
				251) -
			100.0f;
}

static void write_layers(kvc_seq *seq, const struct kind *kind, uint64_t token)
{
	const uint32_t position[HEADS] = {(uint32_t)token, (uint32_t)token + 1000};
	const void *planes[1] = {position};
	float k[ROW], v[ROW];

	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		fill_vectors(k, token, layer, 0);
		fill_vectors(v, token, layer, 1);
		ok(kvc_write(seq, layer, k, v));
		if (kind->has_planes)
			ok(kvc_write_planes(seq, layer, 0, 1, planes));
	}
	if (kind->has_planes)
		ok(kvc_plane_set(seq, "counter", &token, sizeof(token)));
}

/* One update of one token; `token` says what it holds. */
static void append_one(kvc_writer *writer, kvc_seq *seq, const struct kind *kind, uint64_t token)
{
	uint8_t bytes[OPAQUE_BYTES];

	ok(kvc_reserve(seq, 1));
	ok(kvc_append_begin(seq, 1));
	if (kind->is_opaque) {
		for (uint32_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)(token * 31 + i * 7);
		ok(kvc_write(seq, 0, bytes, NULL));
	} else {
		write_layers(seq, kind, token);
	}
	ok(kvc_commit(writer, &seq, 1));
}

/* Is there a journal already, and what it would overwrite? */
static bool may_scatter(kvc_seq *seq, const struct kind *kind)
{
	struct kvc_journal_info info;

	ok(kvc_journal_info(seq, &info));
	return kind->scatters && info.mode != KVC_JOURNAL_NONE && kvc_slots(seq, 0) >= 12;
}

/* Slots of layer 0, another one for each head, are overwritten. */
static void scatter_one(kvc_writer *writer, kvc_seq *seq, uint64_t token)
{
	const uint32_t index[HEADS] = {(uint32_t)token % 5, (uint32_t)token % 7 + 5};
	float k[ROW], v[ROW];

	ok(kvc_reserve_scatter(seq, 1, HEADS, 4));
	ok(kvc_update_begin(seq, 0, 0));
	fill_vectors(k, token + 500, 0, 0);
	fill_vectors(v, token + 500, 0, 1);
	ok(kvc_scatter(seq, 0, 1, index, 0, k, v, NULL));
	ok(kvc_commit(writer, &seq, 1));
}

static void append_tokens(kvc_writer *writer, kvc_seq *seq, const struct kind *kind, uint64_t first,
			  uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		append_one(writer, seq, kind, first + i);
		if (i % 4 == 3 && may_scatter(seq, kind))
			scatter_one(writer, seq, first + i);
	}
}

/* An empty sequence of that kind; an undo journal from the start, a replay journal later. */
static kvc_seq *seq_new(const struct machine *m, const struct kind *kind, const char *name)
{
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = name, .max_tokens = 4096};
	const struct kvc_journal_options undo = {.size = sizeof(undo), .mode = KVC_JOURNAL_UNDO};
	kvc_seq *seq;

	there(seq = kvc_seq_new(m->writer, layout_of(m->session, kind), &options));
	if (kind->journal == KVC_JOURNAL_UNDO)
		ok(kvc_journal_set(seq, &undo));
	return seq;
}

static void begin_replay(kvc_seq *seq, const struct kind *kind)
{
	const struct kvc_journal_options replay = {.size = sizeof(replay),
						   .mode = KVC_JOURNAL_REPLAY};

	if (kind->journal == KVC_JOURNAL_REPLAY)
		ok(kvc_journal_set(seq, &replay));
}

/* ---- all that can be read ----------------------------------------------------------------- */

struct image {
	uint8_t digest[16];
	uint64_t length, position, slots[LAYERS], counter;
	float k[LAYERS][SLOTS_MAX * ROW], v[LAYERS][SLOTS_MAX * ROW];
	uint32_t positions[LAYERS][SLOTS_MAX * HEADS];
};

static struct image *image_of(kvc_seq *seq, const struct kind *kind)
{
	struct image *image = calloc(1, sizeof(*image));
	const uint64_t *counter;

	assert_non_null(image);
	ok(kvc_digest(seq, image->digest));
	image->length = kvc_length(seq);
	image->position = kvc_position(seq);
	for (uint32_t l = 0; l < (kind->is_opaque ? 1 : LAYERS); l++) {
		image->slots[l] = kvc_slots(seq, l);
		assert_true(image->slots[l] <= SLOTS_MAX);
		ok(kvc_read(seq, l, 0, image->slots[l], image->k[l],
			    kind->is_opaque ? NULL : image->v[l]));
		if (kind->has_planes)
			ok(kvc_read_plane(seq, "position", l, 0, image->slots[l],
					  image->positions[l]));
	}
	counter = kind->has_planes ? kvc_plane_get(seq, "counter") : NULL;
	image->counter = counter ? *counter : 0;
	return image;
}

/* Gives up nothing. */
static void assert_image(kvc_seq *seq, const struct kind *kind, const struct image *expected)
{
	struct image *now = image_of(seq, kind);

	if (now->length != expected->length || memcmp(now->digest, expected->digest, 16) != 0)
		fail_msg("%s: another length or digest", kind->name);
	if (memcmp(now, expected, sizeof(*now)) != 0)
		fail_msg("%s: the digest is the same and what is read is not", kind->name);
	free(now);
}

static void snapshot_as(kvc_seq *seq, const char *name)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};

	ok(kvc_snapshot(seq, &options, NULL));
}

/* ---- every kind --------------------------------------------------------------------------- */

struct kept {
	struct image *snapshot, *parked;
	char snapshot_name[32];
};

static void make(struct machine *m, const struct kind *kind, struct kept *kept)
{
	kvc_seq *seq = seq_new(m, kind, kind->name);

	snprintf(kept->snapshot_name, sizeof(kept->snapshot_name), "%s.snap", kind->name);
	append_tokens(m->writer, seq, kind, 1, 20);
	begin_replay(seq, kind);
	append_tokens(m->writer, seq, kind, 21, 21);
	snapshot_as(seq, kept->snapshot_name);
	kept->snapshot = image_of(seq, kind);
	append_tokens(m->writer, seq, kind, 42, 13);
	kept->parked = image_of(seq, kind);
	kvc_seq_free(seq);
}

static void assert_digest(const struct kvc_saved_result *result, const struct image *image)
{
	assert_memory_equal(result->digest, image->digest, sizeof(result->digest));
}

static void check_snapshot(struct machine *m, const struct kind *kind, const struct kept *kept)
{
	struct kvc_saved_result result = machine_load(m, kept->snapshot_name);
	kvc_seq *seq;

	assert_digest(&result, kept->snapshot);
	there(seq = kvc_open_snapshot(m->writer, kept->snapshot_name));
	assert_image(seq, kind, kept->snapshot);
	kvc_seq_free(seq);
	ok(kvc_verify(m->session, kept->snapshot_name, NULL, NULL, NULL));
}

/* Its writer goes on, and back again. */
static void check_parked(struct machine *m, const struct kind *kind, const struct kept *kept)
{
	struct kvc_saved_result result = machine_load(m, kind->name);
	kvc_seq *seq;

	assert_digest(&result, kept->parked);
	there(seq = kvc_takeover(m->writer, kind->name));
	assert_image(seq, kind, kept->parked);
	append_one(m->writer, seq, kind, 99);
	append_one(m->writer, seq, kind, 100);
	assert_int_equal(kvc_length(seq), kept->parked->length + 2);
	if (kind->journal == KVC_JOURNAL_NONE && kind->has_planes) {
		refused(kvc_rollback_remove(seq, 2), KVC_EJOURNAL);
	} else {
		ok(kvc_rollback_remove(seq, 2));
		assert_image(seq, kind, kept->parked);
	}
	kvc_seq_free(seq);
}

static void test_every_kind(void **state)
{
	struct kept kept[N_KINDS] = {0};
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	for (size_t i = 0; i < N_KINDS; i++) {
		struct kvc_saved_result result;

		make(&m, &kinds[i], &kept[i]);
		result = machine_save(&m, kept[i].snapshot_name);
		assert_digest(&result, kept[i].snapshot);
		result = machine_save(&m, kinds[i].name);
		assert_digest(&result, kept[i].parked);
		/* what the snapshot and the sequence have in common is on the disk once */
		assert_true(result.n_known > 0);
	}
	machine_power_cut(&m);
	refused_null(kvc_open_snapshot(m.writer, kept[0].snapshot_name), KVC_ENOTFOUND);
	for (size_t i = 0; i < N_KINDS; i++) {
		check_snapshot(&m, &kinds[i], &kept[i]);
		check_parked(&m, &kinds[i], &kept[i]);
		free(kept[i].snapshot);
		free(kept[i].parked);
	}
	machine_end(&m);
}

/* ---- back to where it was ----------------------------------------------------------------- */

/* Goes back to each mark and gives what was there; marks are the newest last. */
static void test_marks(void **state)
{
	struct image *images[MOST_MARKS];
	kvc_mark marks[MOST_MARKS];
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	for (size_t i = 0; i < N_KINDS; i++) {
		const struct kind *kind = &kinds[i];
		kvc_seq *seq;

		if (kind->journal == KVC_JOURNAL_NONE)
			continue;
		seq = seq_new(&m, kind, kind->name);
		append_tokens(m.writer, seq, kind, 1, 20);
		begin_replay(seq, kind);
		for (uint32_t at = 0; at < MOST_MARKS; at++) {
			ok(kvc_reserve(seq, 1));
			ok(kvc_mark_set(seq, &marks[at]));
			images[at] = image_of(seq, kind);
			append_tokens(m.writer, seq, kind, 21 + at * 6, 6);
		}
		kvc_seq_free(seq);
		machine_save(&m, kind->name);
		machine_power_cut(&m);
		machine_load(&m, kind->name);
		there(seq = kvc_takeover(m.writer, kind->name));
		for (uint32_t at = MOST_MARKS; at-- > 0;) {
			ok(kvc_reserve_scatter(seq, 1, 64, 8));
			ok(kvc_rollback_mark(seq, &marks[at]));
			assert_image(seq, kind, images[at]);
			free(images[at]);
		}
		kvc_seq_free(seq);
	}
	machine_end(&m);
}

/* Step by step, and forward again; folded, it is what the original is when it is folded. */
static void test_replay(void **state)
{
	const struct kind *kind = &kinds[5];
	struct image *before, *after, *folded;
	struct kvc_journal_info info, loaded;
	struct machine m;
	kvc_seq *seq, *fork;

	(void)state;
	assert_string_equal(kind->name, "replay");
	machine_begin(&m, NULL);
	seq = seq_new(&m, kind, "replay");
	append_tokens(m.writer, seq, kind, 1, 24);
	begin_replay(seq, kind);
	append_tokens(m.writer, seq, kind, 25, 10);
	before = image_of(seq, kind);
	append_tokens(m.writer, seq, kind, 35, 3);
	after = image_of(seq, kind);
	ok(kvc_journal_info(seq, &info));
	snapshot_as(seq, "to-fold");
	there(fork = kvc_fork(m.writer, "to-fold", NULL));
	assert_true(kvc_fold(fork, 0) > 0);
	folded = image_of(fork, kind);
	kvc_seq_free(fork);
	kvc_seq_free(seq);
	machine_save(&m, "replay");
	machine_power_cut(&m);
	machine_load(&m, "replay");
	there(seq = kvc_takeover(m.writer, "replay"));
	ok(kvc_journal_info(seq, &loaded));
	assert_int_equal(loaded.mode, KVC_JOURNAL_REPLAY);
	assert_int_equal(loaded.n_rows, info.n_rows);
	assert_int_equal(loaded.n_steps, info.n_steps);
	assert_int_equal(loaded.base_tokens, 24);
	ok(kvc_rollback_steps(seq, 3));
	assert_image(seq, kind, before);
	assert_int_equal(kvc_replay(seq, 0), 3);
	assert_image(seq, kind, after);
	assert_true(kvc_fold(seq, 0) > 0);
	assert_image(seq, kind, folded);
	kvc_seq_free(seq);
	free(before);
	free(after);
	free(folded);
	machine_end(&m);
}

/* ---- forks -------------------------------------------------------------------------------- */

static Kv__Wire__Reply *show(const struct machine *m, const char *name)
{
	Kv__Wire__Request request;
	Kv__Wire__Show command = KV__WIRE__SHOW__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Reply *reply;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)(uintptr_t)name;
	command.source = &target;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &command;
	there(reply = rpc_ask(m->session, &request, KV__WIRE__REPLY__RESULT_OBJECTS));
	assert_int_equal(reply->objects->n_objects, 1);
	return reply;
}

static void assert_parent(const struct machine *m, const char *child, const char *parent)
{
	Kv__Wire__Reply *of_child = show(m, child), *of_parent = show(m, parent);

	assert_int_equal(of_child->objects->objects[0]->parent_id,
			 of_parent->objects->objects[0]->id);
	rpc_reply_free(of_child);
	rpc_reply_free(of_parent);
}

/* A prompt of 40 tokens, five blocks a layer group of 8, and two forks with three more. */
static void test_forks(void **state)
{
	static const char *const names[2] = {"fork/1", "fork/2"};
	const struct kind *kind = &kinds[1];
	struct kvc_saved_result prompt, result;
	struct image *images[2];
	struct machine m;
	kvc_seq *seq;
	uint64_t used;

	(void)state;
	machine_begin(&m, NULL);
	seq = seq_new(&m, kind, NULL);
	append_tokens(m.writer, seq, kind, 1, 40);
	snapshot_as(seq, "prompt");
	kvc_seq_free(seq);
	prompt = machine_save(&m, "prompt");
	assert_int_equal(prompt.n_known, 0);
	used = machine_disk_used(&m);
	for (uint64_t i = 0; i < 2; i++) {
		const struct kvc_seq_options named = {.size = sizeof(named), .name = names[i]};

		there(seq = kvc_fork(m.writer, "prompt", &named));
		append_tokens(m.writer, seq, kind, 100 * (i + 1), 3);
		images[i] = image_of(seq, kind);
		kvc_seq_free(seq);
		result = machine_save(&m, names[i]);
		assert_int_equal(result.n_known, prompt.n_blocks);
		assert_int_equal(result.n_blocks, prompt.n_blocks + 1);
	}
	/* one more block each */
	assert_int_equal(machine_disk_used(&m), used + 2 * used / prompt.n_blocks);
	machine_power_cut(&m);
	assert_int_equal(machine_disk_used(&m), used + 2 * used / prompt.n_blocks);
	machine_load(&m, "prompt");
	for (uint64_t i = 0; i < 2; i++) {
		machine_load(&m, names[i]);
		assert_parent(&m, names[i], "prompt");
		there(seq = kvc_takeover(m.writer, names[i]));
		assert_image(seq, kind, images[i]);
		kvc_seq_free(seq);
		free(images[i]);
	}
	/* a fork outlives what it was forked from */
	ok(kvc_saved_remove(m.session, "prompt"));
	ok(kvc_remove(m.session, "fork/1"));
	machine_load(&m, "fork/1");
	machine_end(&m);
}

/* ---- parts -------------------------------------------------------------------------------- */

static void test_first_tokens(void **state)
{
	const struct kind *kind = &kinds[0];
	struct kvc_load_options part = {.size = sizeof(part), .name = "part", .n_tokens = 21};
	struct kvc_saved_result result;
	struct image *image, *all;
	struct machine m;
	kvc_seq *seq, *fork;

	(void)state;
	machine_begin(&m, NULL);
	seq = seq_new(&m, kind, "whole");
	append_tokens(m.writer, seq, kind, 1, 50);
	all = image_of(seq, kind);
	snapshot_as(seq, "cut");
	there(fork = kvc_fork(m.writer, "cut", NULL));
	ok(kvc_rollback_keep(fork, part.n_tokens));
	image = image_of(fork, kind);
	kvc_seq_free(fork);
	kvc_seq_free(seq);
	machine_save(&m, "whole");
	machine_power_cut(&m);
	ok(kvc_load(m.session, "whole", &part, NULL, NULL, &result));
	assert_digest(&result, image);
	assert_int_equal(result.n_blocks, 3);
	there(seq = kvc_takeover(m.writer, "part"));
	assert_image(seq, kind, image);
	append_tokens(m.writer, seq, kind, 22, 29);
	assert_image(seq, kind, all);
	kvc_seq_free(seq);
	part.name = "all";
	part.n_tokens = 50;
	ok(kvc_load(m.session, "whole", &part, NULL, NULL, &result));
	assert_digest(&result, all);
	part.name = "more";
	part.n_tokens = 51;
	refused(kvc_load(m.session, "whole", &part, NULL, NULL, NULL), KVC_ERANGE);
	refused_null(kvc_takeover(m.writer, "more"), KVC_ENOTFOUND);
	free(image);
	free(all);
	machine_end(&m);
}

/* What blocks do not say of an earlier length. */
static void test_no_part(void **state)
{
	static const struct {
		size_t kind;
		int status;
	} cases[] = {{2, KVC_EJOURNAL}, {3, KVC_EUNSUPPORTED}, {5, KVC_EUNSUPPORTED}};
	struct kvc_load_options part = {.size = sizeof(part), .name = "part", .n_tokens = 21};
	struct machine m;

	(void)state;
	machine_begin(&m, NULL);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct kind *kind = &kinds[cases[i].kind];
		struct kept kept;

		make(&m, kind, &kept);
		machine_save(&m, kind->name);
		assert_int_equal(kvc_load(m.session, kind->name, &part, NULL, NULL, NULL), -1);
		assert_int_equal(kvc_error(), cases[i].status);
		free(kept.snapshot);
		free(kept.parked);
	}
	refused_null(kvc_takeover(m.writer, "part"), KVC_ENOTFOUND);
	machine_end(&m);
}

/* ---- what is alive ------------------------------------------------------------------------ */

static void test_live(void **state)
{
	const struct kind *kind = &kinds[0];
	struct kvc_load_options as = {.size = sizeof(as), .name = "loaded"};
	struct kvc_saved_result result;
	struct image *image;
	struct machine m;
	kvc_seq *seq, *opened;

	(void)state;
	machine_begin(&m, NULL);
	seq = seq_new(&m, kind, "live");
	append_tokens(m.writer, seq, kind, 1, 30);
	image = image_of(seq, kind);
	result = machine_save(&m, "live");
	assert_digest(&result, image);
	append_tokens(m.writer, seq, kind, 31, 5);
	ok(kvc_load(m.session, "live", &as, NULL, NULL, NULL));
	there(opened = kvc_open_snapshot(m.writer, "loaded"));
	assert_image(opened, kind, image);
	kvc_seq_free(opened);
	assert_int_equal(kvc_length(seq), 35);
	free(image);
	kvc_seq_free(seq);
	machine_end(&m);
}

/* An end in order saves what has a name, but does not touch what is saved. */
static void test_orderly_end(void **state)
{
	const struct kind *kind = &kinds[4];
	struct machine m;
	struct kept kept;
	kvc_seq *seq;

	(void)state;
	machine_begin(&m, NULL);
	make(&m, kind, &kept);
	machine_save(&m, kind->name);
	there(seq = kvc_takeover(m.writer, kind->name));
	append_tokens(m.writer, seq, kind, 200, 2);
	kvc_seq_free(seq);
	machine_restart(&m);
	check_snapshot(&m, kind, &kept); /* nobody has saved it */
	check_parked(&m, kind, &kept);   /* somebody had */
	free(kept.snapshot);
	free(kept.parked);
	machine_end(&m);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("snapshots and sequences of every kind are loaded in another life as they were",
		test_every_kind),
	KT_TEST("marks lead back to what was there, in another life", test_marks),
	KT_TEST("a replay journal goes back, forward and into blocks as the original does",
		test_replay),
	KT_TEST("forks are saved without what they share, and keep their parent", test_forks),
	KT_TEST("the first tokens of what was saved are what a rollback leaves", test_first_tokens),
	KT_TEST("a part of a ring, of planes or of a journal is refused", test_no_part),
	KT_TEST("a sequence is saved under its writer, which goes on", test_live),
	KT_TEST("an end in order saves what has a name and is not saved yet", test_orderly_end),
};

KT_MAIN(tests)
