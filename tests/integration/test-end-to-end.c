/*
 * The public interface on a real daemon: opened snapshots, batches, local forks and what comes back
 * of them, threads while front and core are killed, and the end of the daemon.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/rpc.h"
#include "tests/integration/shadow.h"
#include "tests/support/wait.h"

/* ---- reading only ------------------------------------------------------------------------ */

static void test_open_snapshot(void **state)
{
	const struct geometry *g = &geometries[PLAIN];
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
	const struct geometry *g = &geometries[PLAIN];
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
	assert_int_equal(now.live + now.reserved + now.cached + now.quarantined + now.free,
			 now.total);
	return now;
}

static void test_gauges(void **state)
{
	const struct geometry *g = &geometries[PLAIN];
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
#define ROUNDS 40

struct worker {
	kvc_session *session;
	kvc_layout *layout;
	uint32_t number;
	unsigned n_done;
};

/* cmocka's assertions are the test thread's; here the first failure ends the thread. */
#define TRY(call) \
	do { \
		if (!(call)) { \
			fprintf(stderr, "%s: %s: %s\n", #call, kvc_status_name(kvc_error()), \
				kvc_error_text()); \
			return NULL; \
		} \
	} while (0)

static void *work(void *arg)
{
	struct worker *me = arg;
	const struct geometry *g = &geometries[PLAIN];
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
	const struct geometry *g = &geometries[PLAIN];
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
	const struct geometry *g = &geometries[PLAIN];
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

static int forget_daemon(void **state)
{
	(void)state;
	kt_daemon_stop(daemon_);
	return 0;
}

static const struct CMUnitTest tests[] = {
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
