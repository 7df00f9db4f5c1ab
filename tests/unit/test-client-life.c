/*
 * The library over restarts, deaths and deadlines of a daemon that does what the test wants. See
 * client/rpc.c and client/link.c for the rules.
 */
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/wait.h"
#include "tests/unit/client-fake.h"

/* ---- scripts --------------------------------------------------------------------------- */

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

/* ---- restarts ---------------------------------------------------------------------------- */

struct restart {
	unsigned n_silent;
	uint8_t first_boot;
	bool has_result; /* the core kept the result of the old life's request */
};

static enum fake_answer restart_script(struct fake *fake, const Kv__Wire__Request *request,
				       struct fake_reply *answer)
{
	struct restart *restart = fake_arg(fake);

	if (restart->n_silent) {
		restart->n_silent--;
		return FAKE_SILENT;
	}
	if (request->boot.data[0] == restart->first_boot && !restart->has_result)
		answer->reply.status = KV_ERESTARTED;
	return FAKE_REPLY;
}

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

/* A call is in flight when the core dies. */
static void restart_under_call(struct fake *fake, struct restart *restart)
{
	struct pinger pinger = {.session = fake_open_with(fake, FAKE_DEADLINE_MS, 60000)};
	pthread_t thread;

	restart->n_silent = 1;
	restart->first_boot = fake_boot(fake)[0];
	fake_set_script(fake, restart_script, NULL, restart);
	assert_int_equal(pthread_create(&thread, NULL, ping_main, &pinger), 0);
	fake_wait_heard(fake, 1);
	fake_restart(fake);
	pthread_join(thread, NULL);
	assert_int_equal(pinger.rc, 0);
	assert_int_equal(fake_n_hellos(fake), 2);
	assert_int_equal(fake_heard(fake, 1).id, 1);
	assert_int_equal(fake_heard(fake, 1).boot[0], restart->first_boot);
	kvc_close(pinger.session);
}

static void test_restart_not_run(void **state)
{
	struct fake *fake = fake_new();
	struct restart restart = {.has_result = false};

	(void)state;
	restart_under_call(fake, &restart);
	assert_int_equal(fake_n_heard(fake), 3);
	assert_int_equal(fake_heard(fake, 2).id, 2);
	assert_int_equal(fake_heard(fake, 2).acked, 1);
	assert_int_equal(fake_heard(fake, 2).boot[0], restart.first_boot + 1);
	fake_free(fake);
}

static void test_restart_kept_result(void **state)
{
	struct fake *fake = fake_new();
	struct restart restart = {.has_result = true};

	(void)state;
	restart_under_call(fake, &restart);
	assert_int_equal(fake_n_heard(fake), 2);
	fake_free(fake);
}

static void test_restart_between_calls(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct restart restart = {.first_boot = fake_boot(fake)[0]};

	(void)state;
	fake_set_script(fake, restart_script, NULL, &restart);
	fake_restart(fake);
	assert_ping(session);
	assert_int_equal(fake_n_hellos(fake), 2);
	assert_ping(session);
	assert_int_equal(fake_n_hellos(fake), 2);
	kvc_close(session);
	fake_free(fake);
}

static void test_restarted_same_boot(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct failing failing = {KV_ERESTARTED, ""};

	(void)state;
	fake_set_script(fake, fail_script, NULL, &failing);
	assert_status(kvc_ping(session), KVC_ERESTARTED);
	assert_int_equal(fake_n_heard(fake), 1);
	kvc_close(session);
	fake_free(fake);
}

static bool refuse_old_session(struct fake *fake, const Kv__Wire__AttachRequest *request,
			       Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)fake;
	(void)fds;
	(void)n_fds;
	if (request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO && request->hello->session)
		reply->status = KV_ESESSION;
	return true;
}

static void test_session_lost(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct counted counted = {1000};

	(void)state;
	fake_set_script(fake, silent_first, refuse_old_session, &counted);
	fake_restart(fake);
	assert_status(kvc_ping(session), KVC_ESESSION);
	assert_status(kvc_ping(session), KVC_ESESSION);
	assert_int_equal(fake_n_hellos(fake), 2);
	kvc_close(session);
	fake_free(fake);
}

/* ---- deadlines and death ----------------------------------------------------------------- */

static void test_deadline(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open_with(fake, 150, 1000);
	struct counted counted = {1};
	int64_t begin_ms = kt_now_ms();

	(void)state;
	fake_set_script(fake, silent_first, NULL, &counted);
	assert_status(kvc_ping(session), KVC_ETIMEOUT);
	assert_in_range(kt_now_ms() - begin_ms, 150, kt_scale_ms(2000));
	assert_non_null(strstr(kvc_error_text(), "150 ms"));
	assert_ping(session);
	assert_int_equal(fake_heard(fake, 1).id, 2);
	assert_int_equal(fake_heard(fake, 1).acked, 1);
	kvc_close(session);
	fake_free(fake);
}

static bool mute(struct fake *fake, const Kv__Wire__AttachRequest *request,
		 Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)fake;
	(void)request;
	(void)reply;
	(void)fds;
	(void)n_fds;
	return false;
}

static void test_open_deadline(void **state)
{
	struct fake *fake = fake_new();
	int64_t begin_ms = kt_now_ms();

	(void)state;
	fake_set_script(fake, NULL, mute, NULL);
	assert_null(session_open(fake_dir(fake), 100, 1000));
	assert_int_equal(kvc_error(), KVC_ETIMEOUT);
	assert_in_range(kt_now_ms() - begin_ms, 100, kt_scale_ms(2000));
	fake_free(fake);
}

static bool is_watch(const Kv__Wire__AttachRequest *request)
{
	return request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_WATCH;
}

/* Nothing for the first watch; its answer comes with the second's. */
static bool late_watch(struct fake *fake, const Kv__Wire__AttachRequest *request,
		       Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	bool *is_first = fake_arg(fake);
	Kv__Wire__AttachReply late = *reply;

	(void)fds;
	(void)n_fds;
	if (!is_watch(request))
		return true;
	if (*is_first) {
		*is_first = false;
		return false;
	}
	late.status = KV_ELIMIT;
	fake_attach_send(fake, &late);
	return true;
}

static void test_late_answer(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open_with(fake, 150, 1000);
	bool is_first = true;
	int fd;

	(void)state;
	fake_set_script(fake, NULL, late_watch, &is_first);
	assert_status(kvc_watch(session, "a"), KVC_ETIMEOUT);
	fd = kvc_watch(session, "b");
	assert_true(fd >= 0);
	close(fd);
	fake_set_script(fake, NULL, NULL, NULL);
	kvc_close(session);
	fake_free(fake);
}

static bool full_watch(struct fake *fake, const Kv__Wire__AttachRequest *request,
		       Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)fake;
	(void)fds;
	(void)n_fds;
	if (is_watch(request)) {
		reply->status = KV_ELIMIT;
		reply->detail = (char *)"too many";
	}
	return true;
}

static void test_watch_refused(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);

	(void)state;
	fake_set_script(fake, NULL, full_watch, NULL);
	assert_status(kvc_watch(session, "a"), KVC_ELIMIT);
	assert_string_equal(kvc_error_text(), "too many");
	assert_status(kvc_watch(session, "bad name"), KVC_ENAME);
	assert_status(kvc_watch(session, NULL), KVC_EINVAL);
	kvc_close(session);
	fake_free(fake);
}

static void test_daemon_gone(void **state)
{
	struct fake *fake = fake_new();
	struct pinger pinger = {.session = fake_open(fake)};
	struct counted counted = {1000};

	(void)state;
	fake_set_script(fake, silent_first, NULL, &counted);
	fake_die(fake);
	for (int i = 0; i < 3; i++) {
		ping_main(&pinger);
		assert_int_equal(pinger.rc, -1);
		assert_int_equal(pinger.status, KVC_EDAEMON);
		assert_in_range(pinger.took_ms, 0, kt_scale_ms(100));
	}
	kvc_close(pinger.session);
	fake_free(fake);
}

static void test_daemon_dies_under_call(void **state)
{
	struct fake *fake = fake_new();
	struct pinger pinger = {.session = fake_open(fake)};
	struct counted counted = {1000};
	pthread_t thread;
	int64_t begin_ms;

	(void)state;
	fake_set_script(fake, silent_first, NULL, &counted);
	assert_int_equal(pthread_create(&thread, NULL, ping_main, &pinger), 0);
	fake_wait_heard(fake, 1);
	begin_ms = kt_now_ms();
	fake_die(fake);
	pthread_join(thread, NULL);
	assert_int_equal(pinger.rc, -1);
	assert_int_equal(pinger.status, KVC_EDAEMON);
	assert_in_range(kt_now_ms() - begin_ms, 0, kt_scale_ms(100));
	kvc_close(pinger.session);
	fake_free(fake);
}

static enum fake_answer wait_script(struct fake *fake, const Kv__Wire__Request *request,
				    struct fake_reply *answer)
{
	struct counted *counted = fake_arg(fake);

	if (request->command_case != KV__WIRE__REQUEST__COMMAND_WAIT)
		return FAKE_DEFAULT;
	(void)answer;
	if (counted->n_silent == 0)
		return FAKE_REPLY;
	counted->n_silent--;
	return FAKE_SILENT;
}

static void test_wait(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct counted counted = {2};

	(void)state;
	fake_set_script(fake, wait_script, NULL, &counted);
	assert_int_equal(kvc_wait(session, "a", 5000), 0);
	assert_int_equal(fake_n_heard(fake), 3);
	counted.n_silent = 1000;
	assert_status(kvc_wait(session, "a", 120), KVC_ETIMEOUT);
	assert_non_null(strstr(kvc_error_text(), "120 ms"));
	assert_status(kvc_wait(session, "a b", 120), KVC_ENAME);
	kvc_close(session);
	fake_free(fake);
}

/* ---- fork -------------------------------------------------------------------------------- */

static int in_child(struct fake *fake, struct kvc_session *session, struct kvc_writer *writer)
{
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = fake_dir(fake)};

	if (kvc_ping(session) != -1 || kvc_error() != KVC_EFORKED)
		return 1;
	if (kvc_writer_free(writer) != -1 || kvc_error() != KVC_EFORKED)
		return 2;
	if (kvc_fork(writer, "a", NULL) || kvc_error() != KVC_EFORKED)
		return 3;
	if (kvc_watch(session, "a") != -1 || kvc_error() != KVC_EFORKED)
		return 4;
	if (kvc_open(&options) || kvc_error() != KVC_EFORKED)
		return 5;
	kvc_close(session);
	return 0;
}

static void test_fork(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);
	struct kvc_writer *writer = kvc_writer_new(session);
	int status = -1;
	pid_t pid = fork();

	(void)state;
	if (pid == 0)
		_exit(in_child(fake, session, writer));
	assert_int_equal(kt_wait_child(pid, 5000, &status), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_ping(session);
	assert_int_equal(kvc_writer_free(writer), 0);
	kvc_close(session);
	fake_free(fake);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a call in flight over a restart is issued anew when it was not run",
		test_restart_not_run),
	KT_TEST("a call in flight over a restart gets the result that was kept",
		test_restart_kept_result),
	KT_TEST("a restart between two calls is not seen by the caller",
		test_restart_between_calls),
	KT_TEST("ERESTARTED without a new boot id is the caller's to know",
		test_restarted_same_boot),
	KT_TEST("a session that the daemon does not know any more has ended", test_session_lost),
	KT_TEST("a call without a reply ends at its deadline", test_deadline),
	KT_TEST("opening ends at its deadline", test_open_deadline),
	KT_TEST("an answer that comes late is not taken for the next one's", test_late_answer),
	KT_TEST("a watch that is refused says why", test_watch_refused),
	KT_TEST("a daemon that is gone is reported within 100 ms", test_daemon_gone),
	KT_TEST("a daemon that dies under a call is reported within 100 ms",
		test_daemon_dies_under_call),
	KT_TEST("waiting for a name goes in turns up to its deadline", test_wait),
	KT_TEST("every call in a forked child is refused and the parent goes on", test_fork),
};

KT_MAIN(tests)
