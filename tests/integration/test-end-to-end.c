/*
 * The public interface on a real daemon: every kind of layout through append, fork of a fork,
 * rollback, digest and both views; batches, local forks, limits, threads while front and core are
 * killed, and the end of the daemon.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/kvcache.h"
#include "client/rpc.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_;

#define ok(call)                                                                                   \
	do {                                                                                       \
		if ((call) != 0)                                                                   \
			fail_msg("%s: %s: %s", #call, kvc_status_name(kvc_error()),                    \
				 kvc_error_text());                                                \
	} while (0)

#define there(pointer)                                                                             \
	do {                                                                                       \
		if (!(pointer))                                                                    \
			fail_msg("%s: %s: %s", #pointer, kvc_status_name(kvc_error()),                 \
				 kvc_error_text());                                                \
	} while (0)

#define refused(call, status)                                                                      \
	do {                                                                                       \
		assert_int_equal(call, -1);                                             \
		assert_string_equal(kvc_status_name(kvc_error()), #status);                        \
	} while (0)

#define refused_null(call, status)                                                                 \
	do {                                                                                       \
		assert_null(call);                                                                 \
		assert_string_equal(kvc_status_name(kvc_error()), #status);                        \
	} while (0)

static kvc_session *open_session(void)
{
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = kt_daemon_dir(daemon_)};
	kvc_session *session = kvc_open(&options);

	there(session);
	return session;
}

/* ---- layouts ----------------------------------------------------------------------------- */

struct geometry {
	const char *name;
	uint32_t n_layers, dtype, block_tokens, opaque_bytes;
	struct kvc_layer layers[4];
};

static const struct geometry geometries[] = {
	{"equal layers of bf16", 2, KVC_BF16, 16, 0, {{2, 32, 32, 0}, {2, 32, 32, 0}}},
	{"K wider than V", 1, KVC_F32, 4, 0, {{3, 20, 7, 0}}},
	{"no V", 2, KVC_F16, 8, 0, {{1, 33, 0, 0}, {1, 5, 0, 0}}},
	{"another head count in each layer", 3, KVC_F32, 4, 0, {{1, 8, 8, 0}, {4, 8, 8, 0}, {3, 6, 2, 0}}},
	{"two groups, one bounded", 3, KVC_BF16, 4, 0, {{2, 8, 8, 0}, {2, 8, 8, 200}, {1, 4, 4, 0}}},
	{"opaque", 0, 0, 0, 24, {{0, 0, 0, 0}}},
};

static kvc_layout *register_layout(kvc_session *session, const struct geometry *g)
{
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {7},
					     .n_layers = g->n_layers,
					     .layers = g->layers,
					     .dtype = g->dtype,
					     .block_tokens = g->block_tokens,
					     .opaque_bytes = g->opaque_bytes};
	kvc_layout *layout = kvc_layout_register(session, &options);

	there(layout);
	return layout;
}

static uint32_t n_layers_of(const struct geometry *g)
{
	return g->n_layers ? g->n_layers : 1;
}

static size_t row_bytes(const struct geometry *g, uint32_t layer, int is_value)
{
	const struct kvc_layer *l = &g->layers[layer];

	if (g->n_layers == 0)
		return is_value ? 0 : g->opaque_bytes;
	return (size_t)l->n_query_groups * (is_value ? l->v_width : l->k_width) *
	       (g->dtype == KVC_F32 ? 4 : 2);
}

/* Byte i of a token's row; `stream` says who wrote it. */
static uint8_t byte_of(uint32_t layer, int is_value, uint64_t token, uint32_t stream, size_t i)
{
	return (uint8_t)(layer * 31 + (uint32_t)is_value * 97 + token * 7 + stream * 53 + i * 3 + 1);
}

static void fill(uint8_t *to, const struct geometry *g, uint32_t layer, int is_value,
		 uint64_t first, uint64_t n, uint32_t stream)
{
	size_t row = row_bytes(g, layer, is_value);

	for (uint64_t t = 0; t < n; t++)
		for (size_t i = 0; i < row; i++)
			to[t * row + i] = byte_of(layer, is_value, first + t, stream, i);
}

#define MOST_TOKENS 64

/* Appends n tokens of a stream; what is at token t afterwards is streams[t]. */
static void append(kvc_seq *seq, const struct geometry *g, uint64_t n, uint32_t stream,
		   kvc_writer *writer, uint32_t *streams)
{
	static _Thread_local uint8_t k[MOST_TOKENS * 512], v[MOST_TOKENS * 512];
	uint64_t first = kvc_length(seq);

	assert_true(n <= MOST_TOKENS);
	ok(kvc_reserve(seq, n));
	ok(kvc_append_begin(seq, n));
	for (uint32_t layer = 0; layer < n_layers_of(g); layer++) {
		fill(k, g, layer, 0, first, n, stream);
		fill(v, g, layer, 1, first, n, stream);
		ok(kvc_write(seq, layer, k, row_bytes(g, layer, 1) ? v : NULL));
	}
	ok(kvc_commit(writer, &seq, 1));
	for (uint64_t t = 0; streams && t < n; t++)
		streams[first + t] = stream;
}

static void check_row(const uint8_t *row, size_t n_bytes, uint32_t layer, int is_value,
		      uint64_t token, uint32_t stream)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (row[i] != byte_of(layer, is_value, token, stream, i))
			fail_msg("layer %u %s token %llu byte %zu", layer, is_value ? "V" : "K",
				 (unsigned long long)token, i);
}

/* Every element of a layer through its block table. */
static void check_table(kvc_seq *seq, const struct geometry *g, uint32_t layer,
			const uint32_t *streams)
{
	struct kvc_layer_view view;
	struct kvc_paged paged;

	ok(kvc_view_table(seq, layer, &view));
	assert_int_equal(view.length_tokens, kvc_length(seq));
	assert_int_equal(view.k_row_bytes, row_bytes(g, layer, 0));
	assert_int_equal(view.v_row_bytes, row_bytes(g, layer, 1));
	for (uint64_t t = 0; t < view.length_tokens; t++) {
		struct kvc_block b = view.blocks[t / view.block_tokens];
		uint64_t slot = (uint64_t)b.block * view.block_tokens + t % view.block_tokens;

		ok(kvc_view_arena(seq, layer, b.arena, &paged));
		assert_true(b.block < paged.n_blocks);
		check_row((const uint8_t *)paged.k + slot * view.k_row_bytes, view.k_row_bytes,
			  layer, 0, t, streams[t]);
		if (view.v_row_bytes)
			check_row((const uint8_t *)paged.v + slot * view.v_row_bytes,
				  view.v_row_bytes, layer, 1, t, streams[t]);
	}
}

/* The same through its runs. */
static void check_runs(kvc_seq *seq, uint32_t layer, const uint32_t *streams)
{
	struct kvc_run runs[256];
	int64_t n = kvc_view_runs(seq, layer, runs, 256);
	uint64_t token = 0;

	assert_in_range(n, kvc_length(seq) > 0, 256);
	for (int64_t r = 0; r < n; r++) {
		assert_int_equal(runs[r].first_token, token);
		for (uint64_t i = 0; i < runs[r].n_tokens; i++, token++) {
			check_row((const uint8_t *)runs[r].k + i * runs[r].k_row_bytes,
				  runs[r].k_row_bytes, layer, 0, token, streams[token]);
			if (runs[r].v)
				check_row((const uint8_t *)runs[r].v + i * runs[r].v_row_bytes,
					  runs[r].v_row_bytes, layer, 1, token, streams[token]);
		}
	}
	assert_int_equal(token, kvc_length(seq));
}

static void check_all(kvc_seq *seq, const struct geometry *g, const uint32_t *streams)
{
	for (uint32_t layer = 0; layer < n_layers_of(g); layer++) {
		check_table(seq, g, layer, streams);
		check_runs(seq, layer, streams);
	}
}

static uint64_t snapshot(kvc_seq *seq, const char *name)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};
	uint64_t id = 0;

	ok(kvc_snapshot(seq, &options, &id));
	assert_true(id != 0);
	return id;
}

static void test_geometry(void **state)
{
	const struct geometry *g = *state;
	kvc_session *one = open_session(), *two = open_session();
	kvc_layout *layout = register_layout(one, g);
	kvc_writer *w1 = kvc_writer_new(one), *w2 = kvc_writer_new(two);
	uint32_t s0[128], s1[128], s2[128];
	uint8_t digests[3][16];
	kvc_seq *seq, *fork1, *fork2;

	there(w1);
	there(w2);
	assert_memory_equal(kvc_layout_hash(layout), kvc_layout_hash(register_layout(two, g)), 32);
	there(seq = kvc_seq_new(w1, layout, NULL));
	append(seq, g, 22, 1, w1, s0);
	snapshot(seq, "e2e/one");
	there(fork1 = kvc_fork(w2, "e2e/one", NULL));
	memcpy(s1, s0, sizeof(s1));
	append(fork1, g, 9, 2, w2, s1);
	append(seq, g, 5, 3, w1, s0);
	snapshot(fork1, "e2e/two");
	there(fork2 = kvc_fork(w1, "e2e/two", NULL));
	memcpy(s2, s1, sizeof(s2));
	append(fork2, g, 20, 4, w1, s2);
	ok(kvc_rollback_remove(fork2, 25)); /* below the second snapshot */
	append(fork2, g, 11, 5, w1, s2);
	assert_int_equal(kvc_length(fork2), 37);
	ok(kvc_seq_drop(fork1)); /* the parent goes first */
	ok(kvc_remove(one, "e2e/one"));
	ok(kvc_remove(one, "e2e/two"));
	check_all(seq, g, s0);
	check_all(fork2, g, s2);
	/* the same tokens appended from nothing have the same digest */
	ok(kvc_digest(fork2, digests[0]));
	there(fork1 = kvc_seq_new(w2, register_layout(two, g), NULL));
	append(fork1, g, 22, 1, w2, s1);
	append(fork1, g, 4, 2, w2, s1);
	append(fork1, g, 11, 5, w2, s1);
	ok(kvc_digest(fork1, digests[1]));
	assert_memory_equal(digests[0], digests[1], 16);
	append(fork1, g, 1, 6, w2, s1);
	ok(kvc_digest(fork1, digests[2]));
	assert_memory_not_equal(digests[0], digests[2], 16);
	kvc_close(one);
	kvc_close(two);
}

static void test_layouts(void **state)
{
	kvc_session *one = open_session(), *two = open_session();
	kvc_layout *a = register_layout(one, &geometries[0]);
	kvc_layout *b = register_layout(one, &geometries[1]);
	uint8_t hash[32];

	(void)state;
	assert_ptr_equal(register_layout(one, &geometries[0]), a);
	memcpy(hash, kvc_layout_hash(a), sizeof(hash));
	ok(kvc_layout_compare(a, kvc_layout_find(two, hash)));
	refused(kvc_layout_compare(a, b), KVC_ELAYOUT);
	assert_non_null(strstr(kvc_error_text(), "layout field"));
	hash[5] ^= 1;
	refused_null(kvc_layout_find(two, hash), KVC_ENOTFOUND);
	assert_int_equal(kvc_layout_token_bytes(b), 3 * 27 * 4);
	kvc_close(one);
	kvc_close(two);
}

/* ---- limits ------------------------------------------------------------------------------ */

static void test_writer_limit(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writers[KV_WRITERS_MAX];
	kvc_seq *seq;

	(void)state;
	for (uint32_t i = 0; i < KV_WRITERS_MAX; i++)
		there(writers[i] = kvc_writer_new(session));
	refused_null(kvc_writer_new(session), KVC_ELIMIT);
	there(seq = kvc_seq_new(writers[3], register_layout(session, &geometries[0]), NULL));
	refused(kvc_writer_free(writers[3]), KVC_EBUSY);
	kvc_seq_free(seq);
	ok(kvc_writer_free(writers[3]));
	there(kvc_writer_new(session));
	kvc_close(session);
}

static void test_length_limits(void **state)
{
	const struct geometry *g = &geometries[4];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = 30};
	kvc_layout *layout = register_layout(session, g);
	kvc_seq *seq, *bounded;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, &options));
	append(seq, g, 20, 1, writer, NULL);
	ok(kvc_reserve(seq, 10));
	refused(kvc_reserve(seq, 11), KVC_ERANGE);
	there(bounded = kvc_seq_new(writer, layout, NULL));
	ok(kvc_reserve(bounded, 200));
	refused(kvc_reserve(bounded, 201), KVC_EBOUND);
	options.max_tokens = (uint64_t)KV_TOKENS_MAX + 1;
	refused_null(kvc_seq_new(writer, layout, &options), KVC_ERANGE);
	kvc_close(session);
}

static void test_name_limits(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, &geometries[0]);
	char name[KV_NAME_BYTES_MAX + 2];
	struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	kvc_seq *seq;

	(void)state;
	memset(name, 'n', sizeof(name));
	name[KV_NAME_BYTES_MAX + 1] = '\0';
	refused_null(kvc_seq_new(writer, layout, &options), KVC_ENAME);
	name[KV_NAME_BYTES_MAX] = '\0';
	there(seq = kvc_seq_new(writer, layout, &options));
	refused(kvc_seq_name(seq, "a b"), KVC_ENAME);
	refused(kvc_seq_name(seq, ""), KVC_ENAME);
	kvc_seq_free(seq);
	there(seq = kvc_takeover(writer, name));
	ok(kvc_seq_drop(seq));
	refused_null(kvc_takeover(writer, name), KVC_ENOTFOUND);
	kvc_close(session);
}

static void test_many(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *session = open_session();
	kvc_layout *layout = register_layout(session, g);
	kvc_writer *writers[2] = {kvc_writer_new(session), kvc_writer_new(session)};
	kvc_seq *seqs[KV_TARGETS_MAX + 1], *fork;
	uint64_t ids[KV_TARGETS_MAX + 1];
	uint32_t streams[MOST_TOKENS];

	(void)state;
	for (uint32_t i = 0; i <= KV_TARGETS_MAX; i++) {
		there(seqs[i] = kvc_seq_new(writers[i % 2], layout, NULL));
		append(seqs[i], g, 1 + i % 20, i, writers[i % 2], NULL);
	}
	refused(kvc_snapshot_many(seqs, NULL, ids, KV_TARGETS_MAX + 1), KVC_ETOOBIG);
	ok(kvc_snapshot_many(seqs, NULL, ids, KV_TARGETS_MAX));
	append(seqs[7], g, 1, 99, writers[1], NULL);
	there(fork = kvc_fork_id(writers[0], ids[7], NULL));
	assert_int_equal(kvc_length(fork), 8);
	for (int t = 0; t < 8; t++)
		streams[t] = 7;
	check_all(fork, g, streams);
	kvc_close(session);
	session = open_session(); /* anonymous snapshots went with it */
	there(writers[0] = kvc_writer_new(session));
	refused_null(kvc_fork_id(writers[0], ids[8], NULL), KVC_ENOTFOUND);
	kvc_close(session);
}

/* ---- reading only ------------------------------------------------------------------------ */

static void test_open_snapshot(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *one = open_session(), *two = open_session();
	kvc_writer *w1 = kvc_writer_new(one), *w2 = kvc_writer_new(two);
	uint32_t streams[128];
	kvc_seq *seq, *opened;

	(void)state;
	there(seq = kvc_seq_new(w1, register_layout(one, g), NULL));
	append(seq, g, 33, 1, w1, streams);
	snapshot(seq, "e2e/read");
	there(opened = kvc_open_snapshot(w2, "e2e/read"));
	append(seq, g, 4, 2, w1, NULL);
	ok(kvc_remove(one, "e2e/read"));
	kvc_close(one);
	assert_int_equal(kvc_length(opened), 33);
	check_all(opened, g, streams);
	refused(kvc_reserve(opened, 1), KVC_EREADONLY);
	refused(kvc_append_begin(opened, 1), KVC_EREADONLY);
	refused_null(kvc_open_snapshot(w2, "e2e/read"), KVC_ENOTFOUND);
	kvc_seq_free(opened);
	kvc_close(two);
}

/* ---- batches and local forks ------------------------------------------------------------- */

static void test_batch(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, g);
	struct kvc_batch_tensor tensor, again;
	kvc_batch *batch;

	(void)state;
	refused_null(kvc_batch_new(writer, layout, 0, 10), KVC_ERANGE);
	refused_null(kvc_batch_new(writer, layout, 1000, 1000000), KVC_EPOOL);
	there(batch = kvc_batch_new(writer, layout, 5, 100));
	ok(kvc_batch_view(batch, 1, &tensor));
	assert_int_equal(tensor.n_rows, 5);
	assert_int_equal(tensor.k_seq_stride_bytes, 7 * 16 * 128);
	for (uint32_t r = 0; r < 5; r++)
		append(kvc_batch_seq(batch, r), g, 40 + r, r, writer, NULL);
	for (uint32_t r = 0; r < 5; r++)
		append(kvc_batch_seq(batch, r), g, 60 - r, r + 10, writer, NULL);
	ok(kvc_batch_view(batch, 1, &again));
	assert_ptr_equal(tensor.k, again.k);
	for (uint32_t r = 0; r < 5; r++)
		for (uint64_t t = 0; t < 100; t++)
			check_row((const uint8_t *)tensor.v + r * tensor.v_seq_stride_bytes +
					  t * tensor.v_row_bytes,
				  128, 1, 1, t, t < 40 + r ? r : r + 10);
	kvc_seq_free(kvc_batch_seq(batch, 2)); /* not the caller's to free */
	assert_int_equal(kvc_length(kvc_batch_seq(batch, 2)), 100);
	snapshot(kvc_batch_seq(batch, 3), "e2e/batch");
	ok(kvc_rollback_keep(kvc_batch_seq(batch, 3), 50));
	append(kvc_batch_seq(batch, 3), g, 1, 20, writer, NULL);
	refused(kvc_batch_view(batch, 1, &again), KVC_ESPLIT);
	assert_non_null(strstr(kvc_error_text(), "row 3"));
	ok(kvc_remove(session, "e2e/batch"));
	kvc_batch_free(batch);
	there(batch = kvc_batch_new(writer, layout, 2, 1));
	kvc_close(session); /* frees it */
}

struct gauges {
	uint64_t live, reserved, cached, quarantined, free, total;
	uint32_t n_sequences, n_snapshots;
};

static struct gauges gauges_of(kvc_session *session)
{
	Kv__Wire__Request request;
	Kv__Wire__Status status = KV__WIRE__STATUS__INIT;
	Kv__Wire__Reply *reply;
	struct gauges now;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &status;
	there(reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_STATUS_RESULT));
	now = (struct gauges){
		.live = reply->status_result->pool_live_bytes,
		.reserved = reply->status_result->pool_reserved_bytes,
		.cached = reply->status_result->pool_cached_bytes,
		.quarantined = reply->status_result->pool_quarantined_bytes,
		.free = reply->status_result->pool_free_bytes,
		.total = reply->status_result->pool_total_bytes,
		.n_sequences = reply->status_result->n_sequences,
		.n_snapshots = reply->status_result->n_snapshots,
	};
	rpc_reply_free(reply);
	assert_int_equal(now.live + now.reserved + now.cached + now.quarantined + now.free, now.total);
	return now;
}

static void test_gauges(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, g);
	struct gauges before, after;
	kvc_seq *seq, *fork, *local;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, NULL));
	append(seq, g, 20, 1, writer, NULL);
	snapshot(seq, "e2e/base");
	before = gauges_of(session);
	for (int i = 0; i < 30; i++) {
		there(fork = kvc_fork(writer, "e2e/base", NULL));
		append(fork, g, 30, 2, writer, NULL);
		ok(kvc_rollback_remove(fork, 35));
		ok(kvc_reserve_forks(fork, 2));
		ok(kvc_reserve(fork, 40));
		there(local = kvc_fork_local(fork, 5));
		append(local, g, 5, 3, writer, NULL);
		kvc_seq_free(fork);
		kvc_seq_free(local);
	}
	ok(kvc_writer_free(kvc_writer_new(session)));
	after = gauges_of(session);
	assert_int_equal(after.n_sequences, before.n_sequences);
	assert_int_equal(after.n_snapshots, before.n_snapshots);
	assert_int_equal(after.live, before.live);
	ok(kvc_remove(session, "e2e/base"));
	kvc_seq_free(seq);
	after = gauges_of(session);
	assert_int_equal(after.live, 0);
	assert_int_equal(after.n_snapshots, 0);
	kvc_close(session);
}

/* ---- threads under fire ------------------------------------------------------------------ */

#define THREADS 4
#define ROUNDS  40

struct worker {
	kvc_session *session;
	kvc_layout *layout;
	uint32_t number;
	unsigned n_done;
};

/* cmocka's assertions are the test thread's; here the first failure ends the thread. */
#define TRY(call)                                                                                  \
	do {                                                                                       \
		if (!(call)) {                                                                     \
			fprintf(stderr, "%s: %s: %s\n", #call, kvc_status_name(kvc_error()),           \
				kvc_error_text());                                                 \
			return NULL;                                                               \
		}                                                                                  \
	} while (0)

static void *work(void *arg)
{
	struct worker *me = arg;
	const struct geometry *g = &geometries[0];
	kvc_writer *writer = kvc_writer_new(me->session);
	uint8_t k[8 * 128], digest[16], first[16];

	TRY(writer);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		kvc_seq *fork = kvc_fork(writer, "e2e/shared", NULL);

		TRY(fork);
		TRY(kvc_length(fork) == 20);
		for (uint32_t n = 0; n < 3; n++) {
			TRY(kvc_reserve(fork, 8) == 0);
			TRY(kvc_append_begin(fork, 8) == 0);
			for (uint32_t layer = 0; layer < 2; layer++) {
				fill(k, g, layer, 0, 20 + n * 8, 8, 3);
				TRY(kvc_write(fork, layer, k, k) == 0);
			}
			TRY(kvc_commit(writer, &fork, 1) == 0);
		}
		TRY(kvc_rollback_remove(fork, 4) == 0);
		TRY(kvc_digest(fork, digest) == 0);
		if (round == 0)
			memcpy(first, digest, sizeof(first));
		TRY(memcmp(first, digest, sizeof(first)) == 0);
		TRY(kvc_seq_drop(fork) == 0);
		me->n_done++;
	}
	TRY(kvc_writer_free(writer) == 0);
	me->n_done++;
	return NULL;
}

static void start_workers(struct worker *workers, pthread_t *threads, kvc_session *session,
			  kvc_layout *layout)
{
	for (uint32_t i = 0; i < THREADS; i++) {
		workers[i] = (struct worker){.session = session, .layout = layout, .number = i};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
	}
}

static void test_threads_under_fire(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, g);
	struct worker workers[THREADS];
	pthread_t threads[THREADS];
	kvc_seq *seq;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, NULL));
	append(seq, g, 20, 1, writer, NULL);
	snapshot(seq, "e2e/shared");
	start_workers(workers, threads, session, layout);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(kt_daemon_kill_front(daemon_), 0);
		ok(kvc_ping(session));
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
		ok(kvc_ping(session));
	}
	for (uint32_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(workers[i].n_done, ROUNDS + 1);
	}
	ok(kvc_remove(session, "e2e/shared"));
	kvc_close(session);
}

/* ---- the end of the daemon --------------------------------------------------------------- */

static void test_keeper_killed(void **state)
{
	const struct geometry *g = &geometries[0];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, g);
	uint32_t streams[128];
	int64_t begin_ms;
	kvc_seq *seq;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, NULL));
	append(seq, g, 20, 1, writer, streams);
	ok(kvc_reserve(seq, 30));
	assert_int_equal(kill(kt_daemon_keeper(daemon_), SIGKILL), 0);
	assert_int_equal(kt_daemon_wait_end(daemon_, 5000), SIGKILL);
	begin_ms = kt_now_ms();
	refused(kvc_ping(session), KVC_EDAEMON);
	assert_in_range(kt_now_ms() - begin_ms, 0, kt_scale_ms(100));
	append(seq, g, 30, 2, writer, streams); /* what is reserved needs no daemon */
	check_all(seq, g, streams);
	kvc_close(session);
}

/* ---- ------------------------------------------------------------------------------------- */

static int start_daemon(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int stop_daemon(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

static int forget_daemon(void **state)
{
	(void)state;
	kt_daemon_stop(daemon_);
	return 0;
}

#define GEOMETRY(i, name)                                                                          \
	KT_TEST_PARAM("append, fork of a fork, rollback, digest, views: " name, test_geometry,         \
		      (void *)(uintptr_t)&geometries[i])

static const struct CMUnitTest tests[] = {
	GEOMETRY(0, "equal layers of bf16"),
	GEOMETRY(1, "K wider than V"),
	GEOMETRY(2, "no V"),
	GEOMETRY(3, "another head count in each layer"),
	GEOMETRY(4, "two groups, one bounded"),
	GEOMETRY(5, "opaque"),
	KT_TEST("equal layouts are one, and others differ by a named field", test_layouts),
	KT_TEST("a session has 64 writers, and not 65", test_writer_limit),
	KT_TEST("no sequence is longer than its table or its bound", test_length_limits),
	KT_TEST("a name has 255 bytes, and not 256", test_name_limits),
	KT_TEST("64 sequences of two writers are one snapshot, and not 65", test_many),
	KT_TEST("an opened snapshot outlives its name and its writer, and takes no tokens",
		test_open_snapshot),
	KT_TEST("a batch is one strided tensor until a row leaves its run", test_batch),
	KT_TEST("what forks used comes back when they are freed", test_gauges),
	KT_TEST("threads of one session go on while front and core are killed",
		test_threads_under_fire),
};

static const struct CMUnitTest last[] = {
	KT_TEST("a daemon whose keeper was killed is reported within 100 ms", test_keeper_killed),
};

int main(int argc, char **argv)
{
	const struct kt_group groups[] = {
		{tests, sizeof(tests) / sizeof(tests[0]), start_daemon, stop_daemon},
		{last, sizeof(last) / sizeof(last[0]), start_daemon, forget_daemon},
	};

	return kt_run(argc, argv, groups, 2);
}
