/*
 * Saved snapshots in the core against random commands, a disk that fails now and then, sessions
 * that go and cores that end: what is loaded is one of the contents that were saved, and when all
 * is given back nothing is left. The seed is printed; KV_SEED gives another.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/disk.h"
#include "daemon/jobs.h"
#include "daemon/objects.h"
#include "daemon/state_log.h"
#include "tests/support/runner.h"
#include "tests/unit/saved-world.h"

#define CONTENTS 3
#define NAMES 4
#define JOBS 6
#define STEPS 600

struct model {
	struct world w;
	uint8_t digests[CONTENTS][KV_DIGEST_BYTES];
	uint64_t jobs[JOBS]; /* 0: none */
	unsigned n_loaded, n_saved;
};

static const char *name_of(char *out, char kind, int number)
{
	snprintf(out, 16, "%c%d", kind, number);
	return out;
}

/* ---- commands, whatever they say ------------------------------------------------------------ */

/* The reply, which may be a refusal; the job's number if it began one. */
static uint64_t ask(struct model *m, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply = fake_call(m->w.a.c, request);
	uint64_t id = 0;

	assert_non_null(reply);
	if (reply->status == 0 && reply->result_case == KV__WIRE__REPLY__RESULT_JOB)
		id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

static uint64_t ask_save(struct model *m)
{
	char from[16], name[16];
	Kv__Wire__Target target;
	COMMAND(SAVE, save, Save);

	kv__wire__save__init(&command);
	target = craft_named(name_of(from, rand() % 4 ? 's' : 'l', rand() % CONTENTS));
	command.source = &target;
	command.name = (char *)(uintptr_t)name_of(name, 'n', rand() % NAMES);
	command.replace = rand() % 3 != 0;
	return ask(m, &request);
}

static uint64_t ask_load(struct model *m)
{
	char name[16], as[16];
	COMMAND(LOAD, load, Load);

	kv__wire__load__init(&command);
	command.name = (char *)(uintptr_t)name_of(name, 'n', rand() % NAMES);
	command.as_name = (char *)(uintptr_t)name_of(as, 'l', rand() % NAMES);
	command.replace = rand() % 3 != 0;
	return ask(m, &request);
}

static uint64_t ask_check(struct model *m)
{
	COMMAND(STORE_CHECK, store_check, StoreCheck);

	kv__wire__store_check__init(&command);
	command.repair = rand() % 2 == 0;
	return ask(m, &request);
}

static void ask_remove_saved(struct model *m, int number)
{
	char name[16];
	COMMAND(SAVED_REMOVE, saved_remove, SavedRemove);

	kv__wire__saved_remove__init(&command);
	command.name = (char *)(uintptr_t)name_of(name, 'n', number);
	ask(m, &request);
}

static void ask_remove(struct model *m, int number)
{
	char name[16];
	Kv__Wire__Target target = craft_named(name_of(name, 'l', number));
	COMMAND(REMOVE, remove, Remove);

	kv__wire__remove__init(&command);
	command.source = &target;
	ask(m, &request);
}

/* ---- what must hold --------------------------------------------------------------------------- */

static bool is_content(const struct model *m, const uint8_t *digest)
{
	for (int i = 0; i < CONTENTS; i++)
		if (memcmp(m->digests[i], digest, KV_DIGEST_BYTES) == 0)
			return true;
	return false;
}

static void check_loaded(struct model *m)
{
	char name[16];

	for (int i = 0; i < NAMES; i++) {
		struct world_result result;
		const struct object *object = world_find(&m->w, name_of(name, 'l', i));

		if (!object)
			continue;
		assert_true(object->has_digest && is_content(m, object->digest));
		result = world_verify(&m->w, name);
		if (result.status == KV_EQUOTA)
			continue;
		world_assert_ok(&result);
		assert_true(is_content(m, result.digest));
		m->n_loaded++;
	}
}

static void restart(struct model *m)
{
	/* now and then the catalogue is long enough to be written anew */
	if (rand() % 2) {
		for (int i = 0; i < 60000; i++)
			log_object(m->w.f->core, world_find(&m->w, "s0"));
		state_commit(m->w.f->core);
		assert_true(m->w.f->core->catalogue.end_off < 4u << 20);
	}
	assert_int_equal(fake_core_restart(m->w.f), 0);
	assert_non_null(m->w.f->core->disk->store);
	fake_client_again(m->w.a.c);
	memset(m->jobs, 0, sizeof(m->jobs));
}

static void one_step(struct model *m)
{
	uint64_t *job = &m->jobs[rand() % JOBS];

	if (*job && rand() % 8 == 0) {
		world_cancel(&m->w, *job);
		*job = 0;
	}
	switch (rand() % 16) {
	case 0:
	case 1:
	case 2:
	case 3: *job = ask_save(m); break;
	case 4:
	case 5:
	case 6:
	case 7: *job = ask_load(m); break;
	case 8: *job = ask_check(m); break;
	case 9: ask_remove_saved(m, rand() % NAMES); break;
	case 10: ask_remove(m, rand() % NAMES); break;
	case 11:
		if (rand() % 3 == 0)
			restart(m);
		break;
	case 12:
		if (rand() % 8 == 0)
			check_loaded(m);
		break;
	default:
		for (int i = rand() % 40; i > 0; i--)
			loop_once(m->w.f->env.loop, 1);
		break;
	}
	world_stats(&m->w);
}

/* ---- a run -------------------------------------------------------------------------------------- */

static void begin(struct model *m, const char *rules)
{
	*m = (struct model){0};
	setenv("KV_IO_FAULTS", rules, 1);
	world_begin_as(&m->w, &world_fields, 0, true);
	for (int i = 0; i < CONTENTS; i++) {
		struct kv_head head = world_head(&m->w, (enum kv_journal_mode)i, 0);
		struct world_result result;
		char name[16], live[16];

		world_make(&m->w, name_of(live, 'w', i), &head);
		craft_snapshot(&m->w.a, live, name_of(name, 's', i));
		result = world_verify(&m->w, name);
		world_assert_ok(&result);
		memcpy(m->digests[i], result.digest, sizeof(result.digest));
	}
}

static bool some_job_runs(const struct model *m)
{
	const struct idlist *jobs = &m->w.f->core->jobs;

	for (size_t i = 0; i < jobs->n; i++)
		if (((const struct job *)jobs->items[i].thing)->phase == JOB_RUNNING)
			return true;
	return false;
}

static void run(const char *rules)
{
	struct model m;
	uint64_t used;

	begin(&m, rules);
	used = world_used_bytes(&m.w);
	for (int i = 0; i < STEPS; i++)
		one_step(&m);
	while (some_job_runs(&m))
		loop_once(m.w.f->env.loop, 10);
	world_wait_transfers(&m.w);
	check_loaded(&m);
	assert_true(m.n_loaded > 0);
	for (int i = 0; i < NAMES; i++) {
		ask_remove_saved(&m, i);
		ask_remove(&m, i);
	}
	for (int i = 0; i < 20; i++)
		loop_once(m.w.f->env.loop, 1);
	assert_int_equal(world_used_bytes(&m.w), used);
	assert_int_equal(world_stats(&m.w).used_bytes, 0);
	assert_int_equal(world_stats(&m.w).n_saved, 0);
	print_message("%u times something that was loaded verified\n", m.n_loaded);
	world_end(&m.w);
	unsetenv("KV_IO_FAULTS");
}

static void seed(void)
{
	const char *text = getenv("KV_SEED");
	unsigned number = text ? (unsigned)strtoul(text, NULL, 10) : 1;

	print_message("KV_SEED=%u\n", number);
	srand(number);
}

static void test_healthy(void **state)
{
	(void)state;
	seed();
	run("read:100000:eio");
}

static void test_slow(void **state)
{
	(void)state;
	seed();
	run("any:3+4:late=3");
}

static void test_failing(void **state)
{
	(void)state;
	seed();
	run("read:25+40:eio,write:20+31:enospc,any:3+9:short,write:11+13:late=4,read:9+17:late=4");
}

static const struct CMUnitTest tests[] = {
	KT_TEST("random commands on a healthy disk", test_healthy),
	KT_TEST("random commands on a slow disk", test_slow),
	KT_TEST("random commands on a disk that fails now and then", test_failing),
};

KT_MAIN(tests)
