/*
 * What is stored of vectors, in every format: a vector is quantised once, when it is written, and
 * its bytes stay what they are, whatever happens to its neighbours, to snapshots and forks, and in
 * which process they are read.
 *
 * Values lie far from zero (so do zero points of u8 and u4, beyond 0 to 255) as keys often do.
 * Caches that quantise ranges of slots again, or whose saved zero points were bytes, lost them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/format.h"
#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"

#define N_LAYERS 2u
#define N_HEADS 4u
#define WIDTH 64u
#define N_SLOTS 128u
#define N_UPDATES 200u
#define ROW (N_HEADS * WIDTH)
/* Codes of f32, a scale of q4's groups, a zero point: room for the stored form of any vector. */
#define STORED_BYTES 512u

static struct kt_daemon *daemon_;

static int start(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

/* ---- caches --------------------------------------------------------------------------------- */

struct client {
	kvc_session *session;
	kvc_writer *writer;
};

static struct client client_open(const char *dir)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};
	struct client c = {.session = kvc_open(&options)};

	assert_non_null(c.session);
	c.writer = kvc_writer_new(c.session);
	assert_non_null(c.writer);
	return c;
}

/* K in one format, V in the next one. */
static kvc_seq *seq_new(const struct client *c, uint32_t format)
{
	const struct kvc_layer layer = {N_HEADS, WIDTH, WIDTH, 0};
	const struct kvc_layer layers[N_LAYERS] = {layer, layer};
	const struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = {5},
		.n_layers = N_LAYERS,
		.layers = layers,
		.dtype = KVC_F32,
		.k_format = format,
		.v_format = format % KV_FORMAT_MAX + 1,
		.block_tokens = 16,
	};
	kvc_layout *layout = kvc_layout_register(c->session, &options);
	kvc_seq *seq = layout ? kvc_seq_new(c->writer, layout, NULL) : NULL;

	assert_non_null(seq);
	return seq;
}

/* ---- values --------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

/* Each vector has a middle of its own, up to 6,000 away from zero, and a width of 1 around it. */
static void fill(float *rows, size_t n_vectors, uint32_t *random)
{
	for (size_t i = 0; i < n_vectors; i++) {
		float middle = (float)(next_random(random) % 12001) - 6000.0f;

		for (size_t e = 0; e < WIDTH; e++)
			rows[i * WIDTH + e] = middle + (float)next_random(random) * 0x1p-24f;
	}
}

static void append(const struct client *c, kvc_seq *seq, uint32_t n, uint32_t *random)
{
	static float k[N_SLOTS * ROW], v[N_SLOTS * ROW];

	kt_ok(kvc_reserve(seq, n));
	kt_ok(kvc_append_begin(seq, n));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		fill(k, n * N_HEADS, random);
		fill(v, n * N_HEADS, random);
		kt_ok(kvc_write(seq, layer, k, v));
	}
	kt_ok(kvc_commit(c->writer, &seq, 1));
}

/* ---- stored bytes --------------------------------------------------------------------------- */

struct stored {
	uint32_t n_slots;
	uint8_t k[N_LAYERS][N_SLOTS][N_HEADS][STORED_BYTES];
	uint8_t v[N_LAYERS][N_SLOTS][N_HEADS][STORED_BYTES];
};

static struct stored *stored_new(void)
{
	struct stored *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	return s;
}

static void save_vector(uint8_t *to, uint32_t format, const void *codes, const void *scale,
			const void *zero, size_t at)
{
	struct kv_format_bytes bytes;

	kt_ok(kv_format_bytes(format, KV_DTYPE_F32, WIDTH, &bytes, NULL));
	assert_in_range(bytes.codes + bytes.scale + bytes.zero, 1, STORED_BYTES);
	memcpy(to, (const char *)codes + at * bytes.codes, bytes.codes);
	if (bytes.scale)
		memcpy(to + bytes.codes, (const char *)scale + at * bytes.scale, bytes.scale);
	if (bytes.zero)
		memcpy(to + bytes.codes + bytes.scale, (const char *)zero + at * bytes.zero,
		       bytes.zero);
}

/* All parts of all vectors as they lie in blocks. */
static void save(kvc_seq *seq, struct stored *out)
{
	out->n_slots = 0;
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		struct kvc_run runs[N_SLOTS];
		struct kvc_layer_view view;
		int64_t n = kvc_view_runs(seq, layer, runs, N_SLOTS);
		uint32_t slot = 0;

		assert_in_range(n, 0, N_SLOTS);
		kt_ok(kvc_view_table(seq, layer, &view));
		for (int64_t r = 0; r < n; r++)
			for (size_t i = 0; i < runs[r].n_tokens; i++, slot++)
				for (uint32_t h = 0; h < N_HEADS; h++) {
					const struct kvc_run *run = &runs[r];
					size_t at = i * N_HEADS + h;

					save_vector(out->k[layer][slot][h], view.k_format, run->k,
						    run->k_scale, run->k_zero, at);
					save_vector(out->v[layer][slot][h], view.v_format, run->v,
						    run->v_scale, run->v_zero, at);
				}
		out->n_slots = slot;
	}
}

/* How many vectors of the first n_slots differ that are not marked as written. */
static unsigned int count_changed(const struct stored *a, const struct stored *b, uint32_t n_slots,
				  bool (*written)[N_SLOTS][N_HEADS])
{
	unsigned int n = 0;

	for (uint32_t l = 0; l < N_LAYERS; l++)
		for (uint32_t s = 0; s < n_slots; s++)
			for (uint32_t h = 0; h < N_HEADS; h++)
				if (!written || !written[l][s][h])
					n += memcmp(a->k[l][s][h], b->k[l][s][h], STORED_BYTES) !=
						     0 ||
					     memcmp(a->v[l][s][h], b->v[l][s][h], STORED_BYTES) !=
						     0;
	return n;
}

/* ---- appended tokens ------------------------------------------------------------------------ */

static void test_append(void **state)
{
	struct stored *before = stored_new(), *after = stored_new();
	struct client c = client_open(kt_daemon_dir(daemon_));
	uint32_t random = 1;

	(void)state;
	for (uint32_t format = 1; format <= KV_FORMAT_MAX; format++) {
		kvc_seq *seq = seq_new(&c, format);

		for (uint32_t n = 0; n < N_SLOTS; n++) {
			save(seq, before);
			append(&c, seq, 1, &random);
			save(seq, after);
			assert_int_equal(after->n_slots, n + 1);
			assert_int_equal(count_changed(before, after, n, NULL), 0);
		}
		kvc_seq_free(seq);
	}
	kvc_close(c.session);
	free(before);
	free(after);
}

/* ---- overwritten slots ---------------------------------------------------------------------- */

static void journal(kvc_seq *seq, uint32_t mode)
{
	const struct kvc_journal_options options = {
		.size = sizeof(options), .mode = mode, .keep_steps = N_UPDATES};

	kt_ok(kvc_journal_set(seq, &options));
}

/* One vector a head and layer, into a slot of its own; the slots are marked. */
static void overwrite(const struct client *c, kvc_seq *seq, bool (*written)[N_SLOTS][N_HEADS],
		      uint32_t *random)
{
	float k[ROW], v[ROW];

	kt_ok(kvc_reserve_scatter(seq, 1, N_LAYERS * N_HEADS, N_SLOTS / 16));
	kt_ok(kvc_update_begin(seq, 0, 0));
	for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
		uint32_t index[N_HEADS];

		for (uint32_t h = 0; h < N_HEADS; h++) {
			index[h] = next_random(random) % (N_SLOTS - 8);
			written[layer][index[h]][h] = true;
		}
		fill(k, N_HEADS, random);
		fill(v, N_HEADS, random);
		kt_ok(kvc_scatter(seq, layer, 1, index, 0, k, v, NULL));
	}
	kt_ok(kvc_commit(c->writer, &seq, 1));
}

/* Each update changes what it writes and nothing else; what none has written never changes; a
 * rollback of all of them gives the first bytes. */
static void check_overwrite(const struct client *c, kvc_seq *seq, bool in_place)
{
	static bool now[N_LAYERS][N_SLOTS][N_HEADS], ever[N_LAYERS][N_SLOTS][N_HEADS];
	struct stored *first = stored_new(), *before = stored_new(), *after = stored_new();
	unsigned int n_changed = 0;
	uint32_t random = 2;

	memset(ever, 0, sizeof(ever));
	save(seq, first);
	for (uint32_t i = 0; i < N_UPDATES; i++) {
		memset(now, 0, sizeof(now));
		save(seq, before);
		overwrite(c, seq, now, &random);
		save(seq, after);
		assert_int_equal(count_changed(before, after, N_SLOTS, now), 0);
		n_changed += count_changed(before, after, N_SLOTS, NULL);
		for (size_t at = 0; at < sizeof(ever); at++)
			((bool *)ever)[at] |= ((bool *)now)[at];
	}
	assert_int_equal(count_changed(first, after, N_SLOTS, ever), 0);
	/* Two vectors may have one stored form in a coarse format, but seldom. */
	assert_in_range(n_changed, in_place ? N_UPDATES * N_LAYERS * N_HEADS * 9 / 10 : 0,
			in_place ? N_UPDATES * N_LAYERS * N_HEADS : 0);
	kt_ok(kvc_rollback_steps(seq, N_UPDATES));
	save(seq, after);
	assert_int_equal(count_changed(first, after, N_SLOTS, NULL), 0);
	free(first);
	free(before);
	free(after);
}

static void test_overwrite(uint32_t mode)
{
	struct client c = client_open(kt_daemon_dir(daemon_));
	uint32_t random = 3;

	for (uint32_t format = 1; format <= KV_FORMAT_MAX; format++) {
		kvc_seq *seq = seq_new(&c, format);
		uint8_t before[16], after[16];

		append(&c, seq, N_SLOTS, &random);
		journal(seq, mode);
		kt_ok(kvc_digest(seq, before));
		check_overwrite(&c, seq, mode == KVC_JOURNAL_UNDO);
		kt_ok(kvc_digest(seq, after));
		assert_memory_equal(before, after, sizeof(after));
		kvc_seq_free(seq);
	}
	kvc_close(c.session);
}

static void test_undo(void **state)
{
	(void)state;
	test_overwrite(KVC_JOURNAL_UNDO);
}

static void test_replay(void **state)
{
	(void)state;
	test_overwrite(KVC_JOURNAL_REPLAY);
}

/* ---- elsewhere ------------------------------------------------------------------------------ */

/* As it counts, and as it is stored. */
struct image {
	float k[N_LAYERS][N_SLOTS * ROW], v[N_LAYERS][N_SLOTS * ROW];
	struct stored stored;
};

static struct image *image_of(kvc_seq *seq)
{
	struct image *image = calloc(1, sizeof(*image));

	assert_non_null(image);
	assert_int_equal(kvc_length(seq), N_SLOTS);
	for (uint32_t layer = 0; layer < N_LAYERS; layer++)
		kt_ok(kvc_read(seq, layer, 0, N_SLOTS, image->k[layer], image->v[layer]));
	save(seq, &image->stored);
	return image;
}

static void assert_image(kvc_seq *seq, const struct image *image)
{
	struct image *now = image_of(seq);

	assert_memory_equal(now, image, sizeof(*now));
	free(now);
	kvc_seq_free(seq);
}

/* Another process: opens and forks the snapshot `name`, writes what it finds. */
static int reader(const char *dir, const char *name, int in, int out)
{
	struct client c = client_open(dir);
	kvc_seq *seqs[] = {kvc_open_snapshot(c.writer, name), kvc_fork(c.writer, name, NULL)};

	(void)in;
	for (int i = 0; i < 2; i++) {
		struct image *image = image_of(seqs[i]);
		const char *bytes = (const char *)image;

		for (size_t at = 0; at < sizeof(*image);) {
			ssize_t n = write(out, bytes + at, sizeof(*image) - at);

			if (n <= 0)
				return 1;
			at += (size_t)n;
		}
		free(image);
	}
	kvc_close(c.session);
	return 0;
}

static void assert_elsewhere(const char *name, const struct image *image)
{
	struct image *there = calloc(1, sizeof(*there));
	struct kt_kid kid;

	assert_non_null(there);
	kt_kid_start(&kid, "reader", kt_daemon_dir(daemon_), name);
	for (int i = 0; i < 2; i++) {
		kt_kid_read(&kid, there, sizeof(*there));
		assert_memory_equal(there, image, sizeof(*there));
	}
	assert_int_equal(kt_kid_wait(&kid), 0);
	free(there);
}

/* u8 and u4 keep zero points as they are. */
static void check_zero_points(kvc_seq *seq)
{
	struct kvc_layer_view view;
	struct kvc_run run;
	unsigned int n_far = 0;

	kt_ok(kvc_view_table(seq, 0, &view));
	if (view.k_format != KVC_U8 && view.k_format != KVC_U4)
		return;
	assert_true(kvc_view_runs(seq, 0, &run, 1) >= 1);
	for (size_t i = 0; i < run.n_tokens * N_HEADS; i++)
		n_far += ((const int32_t *)run.k_zero)[i] < 0 ||
			 ((const int32_t *)run.k_zero)[i] > 255;
	assert_true(n_far > run.n_tokens * N_HEADS * 9 / 10);
}

static void test_round_trip(void **state)
{
	const struct kvc_snapshot_options named = {.size = sizeof(named), .name = "stored"};
	uint32_t random = 4;

	(void)state;
	for (uint32_t format = 1; format <= KV_FORMAT_MAX; format++) {
		struct client c = client_open(kt_daemon_dir(daemon_));
		kvc_seq *seq = seq_new(&c, format), *local;
		struct image *image;

		append(&c, seq, N_SLOTS, &random);
		check_zero_points(seq);
		image = image_of(seq);
		kt_ok(kvc_snapshot(seq, &named, NULL));
		kt_ok(kvc_reserve_forks(seq, 1));
		local = kvc_snapshot_local(seq);
		append(&c, seq, 3, &random);
		assert_image(local, image);
		assert_image(kvc_fork(c.writer, "stored", NULL), image);
		assert_elsewhere("stored", image);
		kvc_close(c.session);
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
		assert_elsewhere("stored", image);
		c = client_open(kt_daemon_dir(daemon_));
		kt_ok(kvc_remove(c.session, "stored"));
		kvc_close(c.session);
		free(image);
	}
}

static const struct CMUnitTest tests[] = {
	KT_TEST("an appended token changes no stored byte of the others, in any format",
		test_append),
	KT_TEST("overwriting one slot a head quantises no other again, and is undone to the byte",
		test_undo),
	KT_TEST("with a replay journal no stored byte changes at all", test_replay),
	KT_TEST("vectors far from zero are the same in snapshots, forks, other processes and after "
		"a restart",
		test_round_trip),
};

static const struct kt_role roles[] = {{"reader", reader}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
