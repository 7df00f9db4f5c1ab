/*
 * A request that arrives more than once runs once.
 *
 * An operator's session, made by hand, acts on a sequence of a client of the library. Commands
 * that need the writer's word are kept waiting (the client is in the middle of an update) while
 * nanomsg sends them again and again; then they run. Each is also said again by hand, with the
 * same number. What counts is the effect: lengths, numbers of objects, granted bytes.
 */
#include <nanomsg/nn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/kvcache.h"
#include "client/session.h"
#include "proto/commit.h"
#include "tests/support/daemon.h"
#include "tests/support/raw_client.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define RESEND_MS 20
#define N_SENT 4
#define WAIT_MS 10000
#define N_TOKENS 20

static struct kt_daemon *daemon_;
static struct raw_client *operator_, *observer;
static kvc_session *session;
static kvc_layout *layout;
static kvc_writer *writer;
static kvc_seq *seq;
static uint8_t body[KV_REQUEST_BYTES_MAX];
static size_t n_body;

/* ---- what there is ------------------------------------------------------------------------ */

struct counts {
	uint64_t n_requests;
	uint64_t n_sequences, n_snapshots, n_layouts;
	uint64_t granted_bytes;
	uint64_t length_tokens;
};

static uint64_t length_of_victim(void)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Show show = KV__WIRE__SHOW__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Reply *reply;
	uint64_t length;

	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &show;
	show.source = &target;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)"victim";
	reply = raw_call(observer, &request);
	assert_int_equal(reply->status, KV_OK);
	assert_int_equal(reply->objects->n_objects, 1);
	length = reply->objects->objects[0]->length_tokens;
	kv__wire__reply__free_unpacked(reply, NULL);
	return length;
}

static struct counts count(void)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Status status = KV__WIRE__STATUS__INIT;
	Kv__Wire__Reply *reply;
	struct counts counts = {.length_tokens = length_of_victim()};

	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &status;
	reply = raw_call(observer, &request);
	assert_int_equal(reply->status, KV_OK);
	counts.n_requests = reply->status_result->n_requests;
	counts.n_sequences = reply->status_result->n_sequences;
	counts.n_snapshots = reply->status_result->n_snapshots;
	counts.n_layouts = reply->status_result->n_layouts;
	counts.granted_bytes = reply->status_result->pool_live_bytes +
			       reply->status_result->pool_reserved_bytes;
	kv__wire__reply__free_unpacked(reply, NULL);
	return counts;
}

/* ---- set-up ------------------------------------------------------------------------------- */

static void append(uint64_t n)
{
	float rows[N_TOKENS * 16] = {1};

	assert_int_equal(kvc_reserve(seq, n), 0);
	assert_int_equal(kvc_append_begin(seq, n), 0);
	assert_int_equal(kvc_write(seq, 0, rows, rows), 0);
	assert_int_equal(kvc_commit(writer, &seq, 1), 0);
}

static uint32_t new_writer(void)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__WriterNew new = KV__WIRE__WRITER_NEW__INIT;
	Kv__Wire__Reply *reply;
	uint32_t index;

	request.command_case = KV__WIRE__REQUEST__COMMAND_WRITER_NEW;
	request.writer_new = &new;
	reply = raw_call(operator_, &request);
	assert_int_equal(reply->result_case, KV__WIRE__REPLY__RESULT_WRITER);
	index = reply->writer->writer;
	kv__wire__reply__free_unpacked(reply, NULL);
	return index;
}

static int before(void **state)
{
	struct kvc_layer layer = {1, 16, 16, 0};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {7},
					     .n_layers = 1,
					     .layers = &layer,
					     .dtype = KVC_F32,
					     .block_tokens = 16};
	struct kvc_session_options open = {.size = sizeof(open)};
	struct kvc_seq_options named = {
		.size = sizeof(named), .name = "victim", .max_tokens = 4096};

	(void)state;
	open.runtime_dir = kt_daemon_dir(daemon_);
	session = kvc_open(&open);
	assert_non_null(session);
	layout = kvc_layout_register(session, &options);
	assert_non_null(layout);
	writer = kvc_writer_new(session);
	assert_non_null(writer);
	seq = kvc_seq_new(writer, layout, &named);
	assert_non_null(seq);
	append(N_TOKENS);
	operator_ = raw_attach(kt_daemon_dir(daemon_));
	observer = raw_attach(kt_daemon_dir(daemon_));
	assert_int_equal(new_writer(), 0);
	return 0;
}

static int after(void **state)
{
	(void)state;
	raw_bye(operator_);
	raw_free(operator_);
	raw_free(observer);
	assert_int_equal(kvc_seq_drop(seq), 0);
	kvc_layout_free(layout);
	kvc_close(session);
	return 0;
}

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

/* ---- the writer in the middle of an update ------------------------------------------------ */

static struct kv_shm_writer *word(void)
{
	return (void *)((char *)session->segment + session->segment->writers_off);
}

static void move_word(enum kv_word_state to)
{
	uint64_t now = kv_word_load(word());

	assert_true(kv_word_swap(word(), now,
				 kv_word(to, kv_word_generation(now), kv_word_update(now))));
}

static bool is_wanted(void *arg)
{
	(void)arg;
	return kv_word_state(kv_word_load(word())) == KV_WANTED;
}

struct sent {
	uint64_t first; /* requests that the core had seen */
	uint64_t n_own; /* of ours since */
};

static bool was_sent_again(void *arg)
{
	struct sent *sent = arg;

	sent->n_own += 2;
	return count().n_requests >= sent->first + sent->n_own + N_SENT;
}

/* ---- saying it more than once ------------------------------------------------------------- */

static void pack(Kv__Wire__Request *request)
{
	request->deadline_ms = 60000;
	n_body = raw_pack(operator_, request, body);
}

/* Kept waiting until nanomsg has sent it N_SENT times, then run. The reply. */
static Kv__Wire__Reply *say_while_open(void)
{
	int s = raw_socket(kt_daemon_dir(daemon_), RESEND_MS);
	struct sent sent = {0};
	Kv__Wire__Reply *reply;
	uint8_t *bytes;
	int n;

	move_word(KV_OPEN);
	sent.first = count().n_requests;
	assert_int_equal(nn_send(s, body, n_body, 0), n_body);
	assert_true(kt_wait_until(was_sent_again, &sent, WAIT_MS));
	assert_true(kt_wait_until(is_wanted, NULL, WAIT_MS));
	move_word(KV_HELD);
	n = nn_recv(s, &bytes, NN_MSG, 0);
	assert_true(n > 0);
	reply = kv__wire__reply__unpack(NULL, (size_t)n, bytes);
	nn_freemsg(bytes);
	nn_close(s);
	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	return reply;
}

/* The same bytes again, on a new socket: the same reply, to the byte. */
static void say_again(const Kv__Wire__Reply *first)
{
	static uint8_t a[KV_REQUEST_BYTES_MAX], b[KV_REQUEST_BYTES_MAX];
	size_t n = kv__wire__reply__pack(first, a);

	for (int i = 0; i < 3; i++) {
		int s = raw_socket(kt_daemon_dir(daemon_), RESEND_MS);
		Kv__Wire__Reply *reply = raw_exchange(s, body, n_body);

		assert_non_null(reply);
		assert_int_equal(kv__wire__reply__get_packed_size(reply), n);
		kv__wire__reply__pack(reply, b);
		assert_memory_equal(a, b, n);
		kv__wire__reply__free_unpacked(reply, NULL);
		nn_close(s);
	}
}

static Kv__Wire__Reply *say_once(void)
{
	Kv__Wire__Reply *reply = raw_exchange(operator_->socket, body, n_body);

	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	return reply;
}

static Kv__Wire__Target victim(void)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)"victim";
	return target;
}

static void test_rollback(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Rollback rollback = KV__WIRE__ROLLBACK__INIT;
	Kv__Wire__RollbackOne one = KV__WIRE__ROLLBACK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = victim();
	Kv__Wire__Reply *reply;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_ROLLBACK;
	request.rollback = &rollback;
	rollback.n_ones = 1;
	rollback.ones = ones;
	one.source = &target;
	one.mode = 2;
	one.n_tokens = 3;
	pack(&request);
	reply = say_while_open();
	assert_int_equal(reply->rollback->ones[0]->length_tokens, N_TOKENS - 3);
	assert_int_equal(count().length_tokens, N_TOKENS - 3);
	say_again(reply);
	assert_int_equal(count().length_tokens, N_TOKENS - 3);
	kv__wire__reply__free_unpacked(reply, NULL);
	/* and with a number of its own it is another one */
	request.id = 0;
	pack(&request);
	reply = say_once();
	assert_int_equal(count().length_tokens, N_TOKENS - 6);
	kv__wire__reply__free_unpacked(reply, NULL);
}

static void test_snapshot(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Snapshot snapshot = KV__WIRE__SNAPSHOT__INIT;
	Kv__Wire__SnapshotOne one = KV__WIRE__SNAPSHOT_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = victim();
	Kv__Wire__Reply *reply;
	uint64_t n;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = &snapshot;
	snapshot.n_ones = 1;
	snapshot.ones = ones;
	one.source = &target;
	pack(&request);
	n = count().n_snapshots;
	reply = say_while_open();
	assert_int_equal(count().n_snapshots, n + 1);
	say_again(reply);
	assert_int_equal(count().n_snapshots, n + 1);
	kv__wire__reply__free_unpacked(reply, NULL);
}

static void test_fork(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Fork fork_ = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = victim();
	Kv__Wire__Reply *reply;
	uint64_t n;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &fork_;
	fork_.n_ones = 1;
	fork_.ones = ones;
	one.source = &target;
	pack(&request);
	n = count().n_sequences;
	reply = say_while_open();
	assert_int_equal(count().n_sequences, n + 1);
	say_again(reply);
	assert_int_equal(count().n_sequences, n + 1);
	kv__wire__reply__free_unpacked(reply, NULL);
}

/* A sequence without name would be another one each time. */
static void test_seq_new(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__SeqNew new = KV__WIRE__SEQ_NEW__INIT;
	Kv__Wire__Reply *reply;
	uint64_t n = count().n_sequences;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_NEW;
	request.seq_new = &new;
	new.layout_id = layout->id;
	pack(&request);
	reply = say_once();
	say_again(reply);
	assert_int_equal(count().n_sequences, n + 1);
	kv__wire__reply__free_unpacked(reply, NULL);
}

static void test_reserve(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reserve reserve = KV__WIRE__RESERVE__INIT;
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	Kv__Wire__Reply *reply;
	uint64_t before_bytes, after_bytes, n_blocks = 0;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_RESERVE;
	request.reserve = &reserve;
	reserve.layout_id = layout->id;
	reserve.n_needs = 1;
	reserve.needs = needs;
	need.n_blocks = 5;
	pack(&request);
	before_bytes = count().granted_bytes;
	reply = say_once();
	for (size_t i = 0; i < reply->runs->n_runs; i++)
		n_blocks += reply->runs->runs[i]->n_blocks;
	assert_int_equal(n_blocks, 5);
	after_bytes = count().granted_bytes;
	assert_true(after_bytes >= before_bytes + 5 * 16 * kvc_layout_token_bytes(layout));
	say_again(reply);
	assert_int_equal(count().granted_bytes, after_bytes);
	kv__wire__reply__free_unpacked(reply, NULL);
}

/* The store outlives the core: what was run before its death is not run by the next. */
static void test_restart(void **state)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Rollback rollback = KV__WIRE__ROLLBACK__INIT;
	Kv__Wire__RollbackOne one = KV__WIRE__ROLLBACK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = victim();
	Kv__Wire__Reply *reply, *again;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_ROLLBACK;
	request.rollback = &rollback;
	rollback.n_ones = 1;
	rollback.ones = ones;
	one.source = &target;
	one.mode = 2;
	one.n_tokens = 3;
	pack(&request);
	reply = say_once();
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	assert_int_equal(raw_attach_again(operator_), KV_OK);
	assert_int_equal(raw_attach_again(observer), KV_OK);
	assert_int_equal(kvc_ping(session), 0);
	again = raw_exchange(operator_->socket, body, n_body);
	assert_non_null(again);
	assert_int_equal(again->status, KV_OK);
	assert_int_equal(again->rollback->ones[0]->length_tokens, N_TOKENS - 3);
	assert_int_equal(count().length_tokens, N_TOKENS - 3);
	kv__wire__reply__free_unpacked(again, NULL);
	kv__wire__reply__free_unpacked(reply, NULL);
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, before, after)

static const struct CMUnitTest tests[] = {
	TEST("a rollback of 3 that is sent again and again removes 3", test_rollback),
	TEST("a snapshot that is sent again and again is one", test_snapshot),
	TEST("a fork that is sent again and again is one", test_fork),
	TEST("a sequence that is asked for again and again is one", test_seq_new),
	TEST("blocks that are asked for again and again are given once", test_reserve),
	TEST("a rollback that the last core ran is not run by the next", test_restart),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
