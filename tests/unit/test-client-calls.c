/*
 * Calls of the library against a daemon that says what the test wants: ids, resends, sizes,
 * nonsense, threads. See client/rpc.c for the rules.
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/error.h"
#include "client/link.h"
#include "client/rpc.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"
#include "tests/unit/client-fake.h"

/* ---- the usual case ---------------------------------------------------------------------- */

static void test_header(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct fake_heard heard;

	(void)state;
	for (uint64_t i = 1; i <= 3; i++) {
		assert_ping(session);
		heard = fake_heard(fake, i - 1);
		assert_int_equal(heard.command, KV__WIRE__REQUEST__COMMAND_NOOP);
		assert_int_equal(heard.session, FAKE_SESSION);
		assert_int_equal(heard.id, i);
		assert_int_equal(heard.acked, i - 1);
		assert_int_equal(heard.token[15], 0x70);
		assert_memory_equal(heard.boot, fake_boot(fake), 16);
		assert_in_range(heard.deadline_ms, FAKE_DEADLINE_MS - 250, FAKE_DEADLINE_MS - 1);
	}
	kvc_close(session);
	fake_free(fake);
}

struct failing {
	uint32_t status;
	const char *detail;
};

static enum fake_answer fail_script(struct fake *fake, const Kv__Wire__Request *request,
				    struct fake_reply *answer)
{
	const struct failing *failing = fake_arg(fake);

	(void)request;
	answer->reply.status = failing->status;
	answer->reply.detail = (char *)failing->detail;
	return FAKE_REPLY;
}

static void test_status_and_detail(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct failing failing = {KV_EPOOL, "none left\nof 64 MiB"};

	(void)state;
	fake_set_script(fake, fail_script, NULL, &failing);
	assert_status(kvc_ping(session), KVC_EPOOL);
	assert_string_equal(kvc_error_text(), "none left of 64 MiB");
	failing.detail = "";
	assert_status(kvc_ping(session), KVC_EPOOL);
	assert_string_equal(kvc_error_text(), "pool is exhausted");
	failing.status = 77; /* of a later version */
	assert_status(kvc_ping(session), 77);
	kvc_close(session);
	fake_free(fake);
}

/* ---- resending --------------------------------------------------------------------------- */

struct counted {
	unsigned n_silent; /* how many requests get no answer */
};

static enum fake_answer silent_first(struct fake *fake, const Kv__Wire__Request *request,
				     struct fake_reply *answer)
{
	struct counted *counted = fake_arg(fake);

	(void)request;
	(void)answer;
	if (counted->n_silent == 0)
		return FAKE_DEFAULT;
	counted->n_silent--;
	return FAKE_SILENT;
}

static void test_resend(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open_with(fake, FAKE_DEADLINE_MS, 50);
	struct counted counted = {3};

	(void)state;
	fake_set_script(fake, silent_first, NULL, &counted);
	assert_ping(session);
	assert_true(fake_n_heard(fake) >= 4);
	for (size_t i = 0; i < fake_n_heard(fake); i++) {
		assert_int_equal(fake_heard(fake, i).id, 1);
		assert_int_equal(fake_heard(fake, i).acked, 0);
	}
	assert_ping(session);
	assert_int_equal(fake_heard(fake, fake_n_heard(fake) - 1).id, 2);
	assert_int_equal(fake_heard(fake, fake_n_heard(fake) - 1).acked, 1);
	kvc_close(session);
	fake_free(fake);
}

/* ---- sizes and nonsense ------------------------------------------------------------------ */

static void test_too_big(void **state)
{
	static char name[KV_REQUEST_BYTES_MAX + 1];
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	Kv__Wire__Request request;
	Kv__Wire__Wait wait = KV__WIRE__WAIT__INIT;
	Kv__Wire__Reply *reply;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_WAIT;
	request.wait = &wait;
	wait.name = name;
	assert_status(session_call(session, &request, &reply, 0), KVC_ETOOBIG);
	assert_non_null(strstr(kvc_error_text(), "131072"));
	assert_int_equal(fake_n_heard(fake), 0);
	assert_ping(session);
	kvc_close(session);
	fake_free(fake);
}

enum nonsense {
	GARBAGE,
	EMPTY,
	WRONG_ID,
	WRONG_SESSION,
	WRONG_VERSION,
	NO_RESULT,
	NO_PLACES,
	FAR_PLACE,
	NO_SEQ_ID,
	STRANGE_LAYOUT,
};

static enum fake_answer nonsense_script(struct fake *fake, const Kv__Wire__Request *request,
					struct fake_reply *answer)
{
	static Kv__Wire__PlacesResult places;
	static Kv__Wire__Place place, *place_at[1] = {&place};
	static Kv__Wire__LayoutResult layout;

	if (request->command_case == KV__WIRE__REQUEST__COMMAND_WRITER_NEW)
		return FAKE_DEFAULT;
	kv__wire__places_result__init(&places);
	kv__wire__place__init(&place);
	kv__wire__layout_result__init(&layout);
	answer->reply.result_case = KV__WIRE__REPLY__RESULT_PLACES;
	answer->reply.places = &places;
	places.n_places = 1;
	places.places = place_at;
	place.seq_id = 1;
	place.layout_id = 1;
	switch (*(enum nonsense *)fake_arg(fake)) {
	case GARBAGE: memset(answer->bytes, 0xff, answer->n_bytes = 100); return FAKE_BYTES;
	case EMPTY: answer->n_bytes = 0; return FAKE_BYTES;
	case WRONG_ID: answer->reply.id++; break;
	case WRONG_SESSION: answer->reply.session++; break;
	case WRONG_VERSION: answer->reply.version++; break;
	case NO_RESULT: answer->reply.result_case = KV__WIRE__REPLY__RESULT__NOT_SET; break;
	case NO_PLACES: places.n_places = 0; break;
	case FAR_PLACE: place.place = KV_PLACES_MAX; break;
	case NO_SEQ_ID: place.seq_id = 0; break;
	case STRANGE_LAYOUT:
		if (request->command_case == KV__WIRE__REQUEST__COMMAND_LAYOUT_GET) {
			answer->reply.result_case = KV__WIRE__REPLY__RESULT_LAYOUT;
			answer->reply.layout = &layout;
		}
		break;
	}
	return FAKE_REPLY;
}

static void test_nonsense(void **state)
{
	static const struct {
		enum nonsense what;
		int status;
	} rows[] = {
		{GARBAGE, KVC_EPROTO},         {EMPTY, KVC_EVERSION},
		{WRONG_ID, KVC_EPROTO},        {WRONG_SESSION, KVC_EPROTO},
		{WRONG_VERSION, KVC_EVERSION}, {NO_RESULT, KVC_EPROTO},
		{NO_PLACES, KVC_EPROTO},       {FAR_PLACE, KVC_EPROTO},
		{NO_SEQ_ID, KVC_EPROTO},       {STRANGE_LAYOUT, KVC_EPROTO},
	};
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct kvc_writer *writer = kvc_writer_new(session);
	enum nonsense what;

	(void)state;
	assert_non_null(writer);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		what = rows[i].what;
		fake_set_script(fake, nonsense_script, NULL, &what);
		assert_null(kvc_fork(writer, "source", NULL));
		if (kvc_error() != rows[i].status)
			fail_msg("row %zu: %s: %s", i, kvc_status_name(kvc_error()),
				 kvc_error_text());
		fake_set_script(fake, NULL, NULL, NULL);
		assert_ping(session);
	}
	kvc_close(session);
	fake_free(fake);
}

/* ---- several threads --------------------------------------------------------------------- */

struct pinger {
	struct kvc_session *session;
	int rc;
	int status;
	int64_t took_ms;
};

static void *ping_main(void *arg)
{
	struct pinger *pinger = arg;
	int64_t begin_ms = kt_now_ms();

	pinger->rc = kvc_ping(pinger->session);
	pinger->status = kvc_error();
	pinger->took_ms = kt_now_ms() - begin_ms;
	return NULL;
}

#define THREADS 8
#define PINGS 100

static void *many_pings(void *arg)
{
	struct pinger *pinger = arg;

	for (int i = 0; i < PINGS && pinger->rc == 0; i++)
		pinger->rc = kvc_ping(pinger->session);
	return NULL;
}

static void test_threads(void **state)
{
	static bool seen[THREADS * PINGS + 1];
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct pinger pingers[THREADS];
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++) {
		pingers[i] = (struct pinger){.session = session};
		assert_int_equal(pthread_create(&threads[i], NULL, many_pings, &pingers[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(pingers[i].rc, 0);
	}
	for (size_t i = 0; i < THREADS * PINGS; i++) {
		struct fake_heard heard = fake_heard(fake, i);

		assert_in_range(heard.id, 1, THREADS * PINGS);
		assert_false(seen[heard.id]);
		seen[heard.id] = true;
		assert_in_range(heard.id - heard.acked, 1, KV_IN_FLIGHT_MAX);
	}
	kvc_close(session);
	fake_free(fake);
}

static enum fake_answer silent_id_1(struct fake *fake, const Kv__Wire__Request *request,
				    struct fake_reply *answer)
{
	const bool *answers = fake_arg(fake);

	(void)answer;
	return request->id == 1 && !*answers ? FAKE_SILENT : FAKE_DEFAULT;
}

/* The oldest call does not end: the others go on up to the window, and no further. */
static void test_window(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open_with(fake, 400, 60000);
	struct pinger slow = {.session = session};
	bool answers = false;
	pthread_t thread;

	(void)state;
	fake_set_script(fake, silent_id_1, NULL, &answers);
	assert_int_equal(pthread_create(&thread, NULL, ping_main, &slow), 0);
	fake_wait_heard(fake, 1);
	for (uint64_t id = 2; id <= KV_IN_FLIGHT_MAX; id++)
		assert_ping(session);
	assert_ping(session); /* waits for the slow one's deadline */
	pthread_join(thread, NULL);
	assert_int_equal(slow.status, KVC_ETIMEOUT);
	assert_int_equal(fake_heard(fake, KV_IN_FLIGHT_MAX - 1).id, KV_IN_FLIGHT_MAX);
	assert_int_equal(fake_heard(fake, KV_IN_FLIGHT_MAX - 1).acked, 0);
	assert_int_equal(fake_heard(fake, KV_IN_FLIGHT_MAX).id, KV_IN_FLIGHT_MAX + 1);
	assert_int_equal(fake_heard(fake, KV_IN_FLIGHT_MAX).acked, KV_IN_FLIGHT_MAX);
	kvc_close(session);
	fake_free(fake);
}

/* Of all threads but this one: which signals they block. */
static void assert_other_threads_block_all(void)
{
	DIR *dir = opendir("/proc/self/task");
	struct dirent *entry;
	unsigned n_others = 0;

	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		char path[64], line[256];
		unsigned long long blocked = 0;
		FILE *file;

		if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%d/status", atoi(entry->d_name));
		file = fopen(path, "re");
		assert_non_null(file);
		while (fgets(line, sizeof(line), file))
			sscanf(line, "SigBlk: %llx", &blocked);
		fclose(file);
		assert_int_equal(blocked >> (SIGTERM - 1) & 1, 1);
		assert_int_equal(blocked >> (SIGINT - 1) & 1, 1);
		assert_int_equal(blocked >> (SIGUSR1 - 1) & 1, 1);
		n_others++;
	}
	closedir(dir);
	assert_true(n_others >= 1);
}

static void test_worker_signals(void **state)
{
	char *dir = kt_tmpdir_new();
	char address[128];
	struct wire wire;
	sigset_t now;

	(void)state;
	snprintf(address, sizeof(address), "ipc://%s/command.sock", dir);
	assert_int_equal(wire_open(&wire, address, 1000, kvc_err()), 0);
	assert_other_threads_block_all();
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	assert_int_equal(sigismember(&now, SIGTERM), 0);
	wire_close(&wire);
	kt_tmpdir_free(dir);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a worker of nanomsg blocks all signals", test_worker_signals),
	KT_TEST("a request carries session, token, boot id, id and what has arrived", test_header),
	KT_TEST("status and detail of a reply become the error", test_status_and_detail),
	KT_TEST("a request that is sent again keeps its id", test_resend),
	KT_TEST("a request above the limit is not sent", test_too_big),
	KT_TEST("replies that make no sense are refused and the session goes on", test_nonsense),
	KT_TEST("threads of a session call side by side, each id once", test_threads),
	KT_TEST("no id is further than the window from the oldest call", test_window),
};

KT_MAIN(tests)
