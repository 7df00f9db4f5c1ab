/*
 * Jobs as the library follows them, against a daemon that says what the test wants: progress,
 * cancel, failure, a core that went meanwhile. See client/jobs.h.
 */
#include <stdio.h>
#include <string.h>

#include "tests/support/runner.h"
#include "tests/unit/client-fake.h"

#define JOB 55u
#define TOTAL 1000u

static uint8_t digest[16] = {0xd1, 0xd2};

/* What the daemon does with a job: how often it says that it runs, and how it ends. */
struct script {
	unsigned n_running;
	uint32_t end;    /* state at the end */
	uint32_t status; /* of the job */
	const char *detail;
	size_t n_digest;
	bool is_decided; /* a cancel comes too late */
	bool forgets;    /* questions about it: no such job */
	uint8_t boot;    /* not 0: of the answers to questions about it */

	/* what was asked */
	unsigned n_begun, n_asked, n_cancels;
	bool replace;
	uint64_t n_tokens;
	char name[64], as_name[64], source[64];
	Kv__Wire__JobResult job;
	uint8_t other_boot[16];
};

static void take_command(struct script *script, const Kv__Wire__Request *request)
{
	switch (request->command_case) {
	case KV__WIRE__REQUEST__COMMAND_SAVE:
		snprintf(script->source, sizeof(script->source), "%s", request->save->source->name);
		snprintf(script->name, sizeof(script->name), "%s", request->save->name);
		script->replace = request->save->replace != 0;
		break;
	case KV__WIRE__REQUEST__COMMAND_LOAD:
		snprintf(script->name, sizeof(script->name), "%s", request->load->name);
		snprintf(script->as_name, sizeof(script->as_name), "%s", request->load->as_name);
		script->replace = request->load->replace != 0;
		script->n_tokens = request->load->n_tokens;
		break;
	case KV__WIRE__REQUEST__COMMAND_JOB_GET: script->n_asked++; break;
	case KV__WIRE__REQUEST__COMMAND_JOB_CANCEL:
		script->n_cancels++;
		if (script->is_decided)
			break;
		script->n_running = 0;
		script->end = 4;
		break;
	default: break;
	}
}

static enum fake_answer job_script(struct fake *fake, const Kv__Wire__Request *request,
				   struct fake_reply *answer)
{
	struct script *script = fake_arg(fake);
	Kv__Wire__JobResult *job = &script->job;
	bool is_question = request->command_case == KV__WIRE__REQUEST__COMMAND_JOB_GET ||
			   request->command_case == KV__WIRE__REQUEST__COMMAND_JOB_CANCEL;

	if (request->command_case < KV__WIRE__REQUEST__COMMAND_VERIFY)
		return FAKE_DEFAULT;
	script->n_begun += !is_question;
	take_command(script, request);
	if (is_question && script->forgets) {
		answer->reply.status = KV_ENOTFOUND;
		return FAKE_REPLY;
	}
	if (is_question && script->boot) {
		memset(script->other_boot, script->boot, sizeof(script->other_boot));
		answer->reply.boot.data = script->other_boot;
	}
	kv__wire__job_result__init(job);
	job->job_id = JOB;
	job->state = script->n_running ? 1 : script->end;
	job->n_total_bytes = TOTAL;
	job->n_done_bytes = script->n_running ? TOTAL / 10 : TOTAL;
	script->n_running -= script->n_running > 0;
	job->n_blocks = 7;
	job->n_known = 3;
	job->digest = (ProtobufCBinaryData){script->n_digest, digest};
	if (job->state == 3) {
		job->status = script->status;
		job->detail = (char *)(uintptr_t)script->detail;
	}
	answer->reply.result_case = KV__WIRE__REPLY__RESULT_JOB;
	answer->reply.job = job;
	return FAKE_REPLY;
}

struct world {
	struct fake *fake;
	struct kvc_session *session;
	struct script script;
};

static void begin(struct world *w, struct script script)
{
	w->fake = fake_new();
	w->session = fake_open(w->fake);
	w->script = script;
	fake_set_script(w->fake, job_script, NULL, &w->script);
}

static void end(struct world *w)
{
	kvc_close(w->session);
	fake_free(w->fake);
}

/* ---- to the end --------------------------------------------------------------------------- */

struct seen {
	unsigned n;
	unsigned cancel_at; /* not 0: the call that says so */
	uint64_t done, total;
};

static int progress(void *arg, uint64_t n_done_bytes, uint64_t n_bytes)
{
	struct seen *seen = arg;

	seen->done = n_done_bytes;
	seen->total = n_bytes;
	return ++seen->n == seen->cancel_at;
}

static void test_save(void **state)
{
	struct kvc_save_options options = {sizeof(options), "on/disk", 1};
	struct kvc_saved_result result;
	struct seen seen = {0};
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 3, .end = 2, .n_digest = 16});
	assert_int_equal(kvc_save(w.session, "in/memory", &options, progress, &seen, &result), 0);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.done, TOTAL / 10);
	assert_int_equal(seen.total, TOTAL);
	assert_int_equal(w.script.n_asked, 3);
	assert_string_equal(w.script.source, "in/memory");
	assert_string_equal(w.script.name, "on/disk");
	assert_true(w.script.replace);
	assert_int_equal(result.n_bytes, TOTAL);
	assert_int_equal(result.n_blocks, 7);
	assert_int_equal(result.n_known, 3);
	assert_memory_equal(result.digest, digest, sizeof(digest));
	end(&w);
}

static void test_load(void **state)
{
	struct kvc_load_options options = {
		.size = sizeof(options), .name = "in/memory", .n_tokens = 12};
	struct world w;

	(void)state;
	begin(&w, (struct script){.end = 2, .n_digest = 16});
	assert_int_equal(kvc_load(w.session, "on/disk", &options, NULL, NULL, NULL), 0);
	assert_int_equal(w.script.n_asked, 0);
	assert_string_equal(w.script.name, "on/disk");
	assert_string_equal(w.script.as_name, "in/memory");
	assert_false(w.script.replace);
	assert_int_equal(w.script.n_tokens, 12);
	assert_int_equal(kvc_load(w.session, "on/disk", NULL, NULL, NULL, NULL), 0);
	assert_string_equal(w.script.as_name, "");
	assert_int_equal(w.script.n_tokens, 0);
	end(&w);
}

static void test_failed(void **state)
{
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 1,
				  .end = 3,
				  .status = KV_ECORRUPT,
				  .detail = "block 7 of group 1 is damaged"});
	assert_status(kvc_load(w.session, "a", NULL, NULL, NULL, NULL), KVC_ECORRUPT);
	assert_string_equal(kvc_error_text(), "block 7 of group 1 is damaged");
	w.script.detail = "";
	assert_status(kvc_verify(w.session, "a", NULL, NULL, NULL), KVC_ECORRUPT);
	assert_string_equal(kvc_error_text(), kv_status_text(KV_ECORRUPT));
	end(&w);
}

static void test_nonsense(void **state)
{
	struct world w;

	(void)state;
	begin(&w, (struct script){.end = 2, .n_digest = 15});
	assert_status(kvc_save(w.session, "a", NULL, NULL, NULL, NULL), KVC_EPROTO);
	w.script.end = 9;
	assert_status(kvc_save(w.session, "a", NULL, NULL, NULL, NULL), KVC_EPROTO);
	end(&w);
}

static void test_names(void **state)
{
	struct kvc_save_options options = {.size = sizeof(options), .name = "a b"};
	struct world w;
	size_t n;

	(void)state;
	begin(&w, (struct script){.end = 2, .n_digest = 16});
	n = fake_n_heard(w.fake);
	assert_status(kvc_save(w.session, NULL, NULL, NULL, NULL, NULL), KVC_EINVAL);
	assert_status(kvc_load(w.session, NULL, NULL, NULL, NULL, NULL), KVC_EINVAL);
	assert_status(kvc_saved_remove(w.session, NULL), KVC_EINVAL);
	assert_int_equal(kvc_save(w.session, "a", &options, NULL, NULL, NULL), -1);
	assert_int_equal(kvc_error(), KVC_ENAME);
	options.size = 1;
	assert_int_equal(kvc_save(w.session, "a", &options, NULL, NULL, NULL), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
	assert_int_equal(fake_n_heard(w.fake), n);
	end(&w);
}

/* ---- cancelled ---------------------------------------------------------------------------- */

static void test_cancelled(void **state)
{
	struct seen seen = {.cancel_at = 2};
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 9, .end = 2, .n_digest = 16});
	assert_status(kvc_save(w.session, "a", NULL, progress, &seen, NULL), KVC_ECANCELLED);
	assert_int_equal(seen.n, 2);
	assert_int_equal(w.script.n_cancels, 1);
	end(&w);
}

static void test_cancelled_too_late(void **state)
{
	struct seen seen = {.cancel_at = 1};
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 4, .end = 2, .n_digest = 16, .is_decided = true});
	assert_int_equal(kvc_save(w.session, "a", NULL, progress, &seen, NULL), 0);
	assert_int_equal(seen.n, 1);
	assert_int_equal(w.script.n_cancels, 1);
	end(&w);
}

/* ---- a core that went --------------------------------------------------------------------- */

/* The next life gives the same number to another job. */
static void test_other_life(void **state)
{
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 1, .end = 2, .n_digest = 16, .boot = 0xee});
	assert_status(kvc_load(w.session, "a", NULL, NULL, NULL, NULL), KVC_ERESTARTED);
	assert_non_null(strstr(kvc_error_text(), "repeat the call"));
	w.script.n_running = 1;
	assert_status(kvc_save(w.session, "a", NULL, NULL, NULL, NULL), KVC_ERESTARTED);
	end(&w);
}

static void test_begun_anew(void **state)
{
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 1, .end = 2, .n_digest = 16, .boot = 0xee});
	assert_int_equal(kvc_verify(w.session, "a", NULL, NULL, NULL), 0);
	assert_int_equal(w.script.n_begun, 2);
	end(&w);
}

/* The same life that has forgotten a job is not the next one. */
static void test_forgotten(void **state)
{
	struct world w;

	(void)state;
	begin(&w, (struct script){.n_running = 2, .forgets = true});
	assert_status(kvc_save(w.session, "a", NULL, NULL, NULL, NULL), KVC_ENOTFOUND);
	end(&w);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a save is followed to its end and says what was saved", test_save),
	KT_TEST("a load passes on name, part and new name", test_load),
	KT_TEST("a job that fails gives its status and text", test_failed),
	KT_TEST("a state or digest that makes no sense is refused", test_nonsense),
	KT_TEST("names and options are checked before the daemon is asked", test_names),
	KT_TEST("a cancel is passed on once, and the end awaited", test_cancelled),
	KT_TEST("a cancel that comes too late changes nothing", test_cancelled_too_late),
	KT_TEST("a save or load that went with its core is the caller's to know", test_other_life),
	KT_TEST("a verification that went with its core is begun anew", test_begun_anew),
	KT_TEST("a job that the same life does not know is not found", test_forgotten),
};

KT_MAIN(tests)
