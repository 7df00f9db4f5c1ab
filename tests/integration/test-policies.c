/*
 * Policies on a real daemon: what they go by travels with snapshots and forks and survives their
 * process and the core, so that the next slots are those of a run that nobody disturbed. Named
 * cases: a last-recent cache rolled back past what it still holds (KV-15), positions after eviction
 * (KV-25).
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/shadow.h"
#include "tests/support/client.h"
#include "tests/support/wait.h"

#define WIDTH 32u
#define HEADS 4u
#define TOKENS_MAX 64u /* of an update */
#define SLOTS_MAX 64u
#define FINGERPRINT 15

/* ---- a cache with a policy ------------------------------------------------------------------ */

/* One layer with slots, and one without bound. */
struct cache {
	const struct setting *setting;
	kvc_session *session;
	kvc_writer *writer;
	kvc_seq *seq;
	kvc_policy *policy;
};

struct setting {
	const char *name;
	uint32_t grace, slots;
	enum kvc_journal_mode mode;
};

static const struct setting settings[] = {
	{"h2o", 3, 24, KVC_JOURNAL_UNDO},
	{"h2o", 3, 24, KVC_JOURNAL_REPLAY},
	{"lastrec", 0, 24, KVC_JOURNAL_UNDO},
	{"lastrec", 0, 24, KVC_JOURNAL_REPLAY},
};
#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

static struct kvc_policy_options options_of(const struct setting *s)
{
	return (struct kvc_policy_options){.size = sizeof(struct kvc_policy_options),
					   .name = s->name,
					   .grace_tokens = s->grace};
}

static kvc_layout *layout_of(kvc_session *session, const struct setting *s)
{
	const struct kvc_policy_options policy = options_of(s);
	const struct kvc_layer layers[2] = {{HEADS, WIDTH, WIDTH, s->slots},
					    {HEADS, WIDTH, WIDTH, 0}};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = {FINGERPRINT},
		.n_layers = 2,
		.layers = layers,
		.dtype = KVC_F32,
		.k_format = KVC_RAW,
		.v_format = KVC_INT8,
		.block_tokens = 8,
		.planes = planes,
	};
	int n_planes = kvc_policy_planes(&policy, 2, layers, planes);
	kvc_layout *layout;

	ok(n_planes < 0 ? -1 : 0);
	options.n_planes = (uint32_t)n_planes;
	there(layout = kvc_layout_register(session, &options));
	return layout;
}

static struct cache cache_open(const struct setting *s)
{
	struct cache c = {.setting = s, .session = open_session()};

	there(c.writer = kvc_writer_new(c.session));
	return c;
}

/* A hand for the sequence that the cache has now. */
static void take_hand(struct cache *c)
{
	const struct kvc_policy_options options = options_of(c->setting);

	there(c->seq);
	kvc_policy_free(c->policy);
	there(c->policy = kvc_policy_new(c->seq, &options));
}

static struct cache cache_new(const struct setting *s, const char *name, uint32_t keep_steps)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	const struct kvc_journal_options journal = {
		.size = sizeof(journal), .mode = s->mode, .keep_steps = keep_steps};
	struct cache c = cache_open(s);

	there(c.seq = kvc_seq_new(c.writer, layout_of(c.session, s), &options));
	ok(kvc_journal_set(c.seq, &journal));
	take_hand(&c);
	return c;
}

static void cache_close(struct cache *c)
{
	kvc_policy_free(c->policy);
	ok(kvc_seq_drop(c->seq));
	kvc_close(c->session);
}

/* ---- updates -------------------------------------------------------------------------------- */

/* Far from zero, and as int8 stores it exactly enough to be told apart. */
static float element(uint64_t position, uint32_t layer, uint32_t head, int is_value, uint32_t i)
{
	uint64_t x = position * 1000003 + layer * 10007 + head * 101 + (uint32_t)is_value * 11 + i;

	x = (x + 1) * UINT64_C(6364136223846793005);
	return 3.0f + (float)(x >> 48) / 16384.0f;
}

static void fill_vectors(float *to, uint64_t first, uint64_t n, uint32_t layer, int is_value)
{
	for (uint64_t i = 0; i < n * HEADS * WIDTH; i++)
		to[i] = element(first + i / (HEADS * WIDTH), layer, (uint32_t)(i / WIDTH % HEADS),
				is_value, (uint32_t)(i % WIDTH));
}

/* What an update chose, and what the cache is then. */
struct told {
	uint32_t slots[HEADS];
	uint8_t digest[16];
};

/* Queries that like tokens of some positions more than others. */
static void fill_queries(float *q, uint64_t first, uint64_t n)
{
	for (uint64_t i = 0; i < n * HEADS * WIDTH; i++)
		q[i] = element(first * 7 + i, 5, 0, 0, 0) - 5.0f;
}

/* A layer of the open update; what it chose for its first token. */
static void do_layer(struct cache *c, uint32_t layer, uint64_t n, struct told *told)
{
	static float k[TOKENS_MAX * HEADS * WIDTH], v[TOKENS_MAX * HEADS * WIDTH];
	static float q[TOKENS_MAX * HEADS * WIDTH], out[TOKENS_MAX * HEADS * WIDTH];
	static float weights[HEADS * 1024];
	struct kvc_attend_args args = {.size = sizeof(args),
				       .n_query_heads = HEADS,
				       .n_tokens = n,
				       .q = q,
				       .k = k,
				       .v = v,
				       .out = out,
				       .weights = weights};
	struct kvc_policy_plan plan;

	fill_vectors(k, kvc_position(c->seq), n, layer, 0);
	fill_vectors(v, kvc_position(c->seq), n, layer, 1);
	fill_queries(q, kvc_position(c->seq), n);
	ok(kvc_policy_choose(c->policy, layer, n, &plan));
	for (uint32_t h = 0; plan.slots && h < HEADS; h++)
		told->slots[h] = plan.slots[plan.shared ? 0 : h * n];
	ok(kvc_policy_write(c->policy, layer, k, v, NULL, NULL));
	args.slots = plan.slots;
	args.shared_slots = plan.shared;
	ok(kvc_attend(c->seq, layer, &args));
	ok(kvc_policy_score(c->policy, layer, weights));
}

static void begin(struct cache *c, uint64_t n)
{
	uint64_t n_rows = kvc_policy_rows(c->policy, n) + n * 2 * HEADS;

	ok(kvc_reserve(c->seq, n));
	if (c->setting->mode != KVC_JOURNAL_NONE)
		ok(kvc_reserve_scatter(c->seq, 1, n_rows, 8));
	ok(kvc_update_begin(c->seq, n, KVC_UPDATE_SCATTER));
}

static void update(struct cache *c, uint64_t n, struct told *told)
{
	begin(c, n);
	for (uint32_t layer = 0; layer < 2; layer++)
		do_layer(c, layer, n, told);
	ok(kvc_commit(c->writer, &c->seq, 1));
	ok(kvc_digest(c->seq, told->digest));
}

static void decode(struct cache *c, uint64_t n, struct told *told)
{
	memset(told, 0, n * sizeof(*told));
	for (uint64_t i = 0; i < n; i++)
		update(c, 1, &told[i]);
}

static void prompt(struct cache *c, uint64_t n)
{
	struct told told;

	update(c, n, &told);
}

/* Decodes, and is told what a run told that nobody disturbed. */
static void assert_decodes(struct cache *c, const struct told *expected, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		struct told told = {0};

		update(c, 1, &told);
		assert_memory_equal(told.slots, expected[i].slots, sizeof(told.slots));
		assert_memory_equal(told.digest, expected[i].digest, sizeof(told.digest));
	}
}

/* ---- runs that are disturbed ----------------------------------------------------------------- */

#define PROMPT 18u
#define BEFORE 20u /* steps until something happens */
#define STEPS 50u  /* in all */

/* What each step tells when nothing happens. */
static void undisturbed(const struct setting *s, struct told told[STEPS])
{
	struct cache c = cache_new(s, "policies/undisturbed", 0);

	prompt(&c, PROMPT);
	decode(&c, STEPS, told);
	cache_close(&c);
}

static const struct setting *setting_of(const char *arg)
{
	return &settings[strtoul(arg, NULL, 10)];
}

static void start(struct kt_kid *kid, const char *role, size_t setting)
{
	char arg[16];

	snprintf(arg, sizeof(arg), "%zu", setting);
	kt_kid_start(kid, role, kt_daemon_dir(daemon_), arg);
}

static kvc_session *session_at(const char *dir)
{
	const struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = dir};

	return kvc_open(&options);
}

/* Goes on from a snapshot, and says what it was told. */
static int role_fork(const char *dir, const char *arg, int in, int out)
{
	struct cache c = {.setting = setting_of(arg), .session = session_at(dir)};
	struct told told[STEPS - BEFORE];

	(void)in;
	there(c.writer = kvc_writer_new(c.session));
	c.seq = kvc_fork(c.writer, "policies/snapshot", NULL);
	take_hand(&c);
	decode(&c, STEPS - BEFORE, told);
	if (write(out, told, sizeof(told)) != (ssize_t)sizeof(told))
		return 1;
	cache_close(&c);
	return 0;
}

static void check_fork(size_t number)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options),
						     .name = "policies/snapshot"};
	const struct setting *s = &settings[number];
	struct told told[STEPS], its[STEPS - BEFORE];
	struct cache c;
	struct kt_kid kid;

	undisturbed(s, told);
	c = cache_new(s, "policies/parent", 0);
	prompt(&c, PROMPT);
	assert_decodes(&c, told, BEFORE);
	ok(kvc_snapshot(c.seq, &options, NULL));
	start(&kid, "fork", number);
	assert_decodes(&c, told + BEFORE, STEPS - BEFORE);
	kt_kid_read(&kid, its, sizeof(its));
	assert_int_equal(kt_kid_wait(&kid), 0);
	assert_memory_equal(its, told + BEFORE, sizeof(its));
	ok(kvc_remove(c.session, "policies/snapshot"));
	cache_close(&c);
}

static void test_fork(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SETTINGS; i++)
		check_fork(i);
}

/* Decodes, and is killed when slots are chosen and written. */
static int role_writer(const char *dir, const char *arg, int in, int out)
{
	const struct kvc_seq_options options = {.size = sizeof(options), .name = "policies/killed"};
	struct cache c = {.setting = setting_of(arg), .session = session_at(dir)};
	const struct kvc_journal_options journal = {.size = sizeof(journal),
						    .mode = c.setting->mode};
	struct told told[BEFORE];

	there(c.writer = kvc_writer_new(c.session));
	there(c.seq = kvc_seq_new(c.writer, layout_of(c.session, c.setting), &options));
	ok(kvc_journal_set(c.seq, &journal));
	take_hand(&c);
	prompt(&c, PROMPT);
	decode(&c, BEFORE, told);
	begin(&c, 1);
	do_layer(&c, 0, 1, told);
	if (write(out, "", 1) != 1)
		return 1;
	return (int)read(in, told, 1); /* for ever */
}

static bool takes_over(void *arg)
{
	struct cache *c = arg;

	c->seq = kvc_takeover(c->writer, "policies/killed");
	return c->seq != NULL;
}

static void check_takeover(size_t number)
{
	const struct setting *s = &settings[number];
	struct told told[STEPS];
	struct kt_kid kid;
	struct cache c;
	char byte;

	undisturbed(s, told);
	start(&kid, "writer", number);
	kt_kid_read(&kid, &byte, 1);
	c = cache_open(s);
	refused_null(kvc_takeover(c.writer, "policies/killed"), KVC_EBUSY);
	assert_true(WIFSIGNALED(kt_kid_kill(&kid)));
	kt_wait_until(takes_over, &c, 5000);
	take_hand(&c);
	assert_int_equal(kvc_position(c.seq), PROMPT + BEFORE);
	assert_decodes(&c, told + BEFORE, 10);
	ok(kvc_reserve_scatter(c.seq, 1, 64, 8));
	ok(kvc_rollback_steps(c.seq, 20)); /* also what the dead one did */
	assert_decodes(&c, told + BEFORE - 10, STEPS - BEFORE + 10);
	cache_close(&c);
}

static void test_takeover(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SETTINGS; i++)
		check_takeover(i);
}

static void check_core(const struct setting *s)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options),
						     .name = "policies/snapshot"};
	struct told told[STEPS];
	struct cache c, fork;

	undisturbed(s, told);
	c = cache_new(s, "policies/core", 0);
	prompt(&c, PROMPT);
	assert_decodes(&c, told, BEFORE);
	ok(kvc_snapshot(c.seq, &options, NULL));
	begin(&c, 1);
	do_layer(&c, 0, 1, &(struct told){0});
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	ok(kvc_abort(c.seq));
	assert_decodes(&c, told + BEFORE, 10);
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	fork = cache_open(s);
	fork.seq = kvc_fork(fork.writer, "policies/snapshot", NULL);
	take_hand(&fork);
	assert_decodes(&fork, told + BEFORE, STEPS - BEFORE);
	ok(kvc_reserve_scatter(c.seq, 1, 64, 8));
	ok(kvc_rollback_steps(c.seq, 15));
	assert_decodes(&c, told + BEFORE - 5, STEPS - BEFORE + 5);
	ok(kvc_remove(c.session, "policies/snapshot"));
	cache_close(&fork);
	cache_close(&c);
}

static void test_core(void **state)
{
	(void)state;
	for (size_t i = 0; i < N_SETTINGS; i++)
		check_core(&settings[i]);
}

/* ---- what is where --------------------------------------------------------------------------- */

/* Positions of the bounded layer, [slots][heads]; each slot has the vectors of its position. */
static uint64_t positions_of(struct cache *c, int32_t positions[SLOTS_MAX * HEADS])
{
	static float k[SLOTS_MAX * HEADS * WIDTH];
	uint64_t n = kvc_slots(c->seq, 0);

	ok(kvc_read_plane(c->seq, "position", 0, 0, n, positions));
	ok(kvc_read(c->seq, 0, 0, n, k, NULL));
	for (uint64_t i = 0; i < n * HEADS; i++)
		for (uint32_t d = 0; d < WIDTH; d++)
			assert_true(k[i * WIDTH + d] == element((uint64_t)positions[i], 0,
								(uint32_t)(i % HEADS), 0, d));
	return n;
}

/* In order of positions each head has the first `pinned`, and of the others the last. */
static void assert_last_recent(struct cache *c, uint32_t pinned)
{
	int32_t positions[SLOTS_MAX * HEADS];
	uint64_t n = positions_of(c, positions), length = kvc_position(c->seq);

	assert_int_equal(n, length < SLOTS_MAX ? length : SLOTS_MAX);
	for (uint32_t h = 0; h < HEADS; h++)
		for (uint64_t rank = 0; rank < n; rank++) {
			uint64_t want = rank < pinned ? rank : length - n + rank;
			uint64_t n_found = 0;

			for (uint64_t slot = 0; slot < n; slot++)
				n_found += positions[slot * HEADS + h] == (int32_t)want;
			assert_int_equal(n_found, 1);
		}
}

/* ---- KV-15: rolled back past what it still holds --------------------------------------------- */

/* Goes back, and on by 5 with the slots that the first run chose there. */
static void back_and_on(struct cache *c, uint64_t n, uint32_t pinned, const struct told *told)
{
	uint64_t length = kvc_position(c->seq) - n;

	ok(kvc_reserve_scatter(c->seq, 1, 64, 8));
	ok(kvc_rollback_remove(c->seq, n));
	assert_int_equal(kvc_position(c->seq), length);
	assert_last_recent(c, pinned);
	assert_decodes(c, told + length, 5);
	assert_last_recent(c, pinned);
}

static void check_kv15(const char *name, uint32_t pinned, enum kvc_journal_mode mode)
{
	const struct setting s = {name, 0, SLOTS_MAX, mode};
	struct cache c = cache_new(&s, "policies/kv15", 200);
	struct told told[101];

	/* token by token: told[i] is of position i */
	decode(&c, 60, told);
	back_and_on(&c, 10, pinned, told);
	decode(&c, 45, told + 55);
	assert_int_equal(kvc_position(c.seq), 100);
	assert_last_recent(&c, pinned);
	back_and_on(&c, 10, pinned, told);
	assert_decodes(&c, told + 95, 5);
	back_and_on(&c, 40, pinned, told);
	assert_decodes(&c, told + 65, 35);
	back_and_on(&c, 64, pinned, told);
	cache_close(&c);
}

static void test_kv15(void **state)
{
	(void)state;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		check_kv15("lastrec", 8, mode);
		check_kv15("ring", 0, mode);
	}
}

/* What the journal has forgotten, or was never kept, is refused, and not a byte changes. */
static void test_kv15_refused(void **state)
{
	static const struct setting none = {"lastrec", 0, SLOTS_MAX, KVC_JOURNAL_NONE},
				    undo = {"lastrec", 0, SLOTS_MAX, KVC_JOURNAL_UNDO};
	struct cache c = cache_new(&none, "policies/kv15", 0);
	struct told told[100];
	uint8_t digest[16];

	(void)state;
	decode(&c, 60, told);
	refused(kvc_rollback_remove(c.seq, 10), KVC_EJOURNAL);
	ok(kvc_digest(c.seq, digest));
	assert_memory_equal(digest, told[59].digest, 16);
	decode(&c, 4, told);
	refused(kvc_update_begin(c.seq, 1, KVC_UPDATE_SCATTER), KVC_EBOUND);
	cache_close(&c);
	c = cache_new(&undo, "policies/kv15", 8);
	decode(&c, 100, told);
	refused(kvc_rollback_remove(c.seq, 64), KVC_EJOURNAL);
	ok(kvc_digest(c.seq, digest));
	assert_memory_equal(digest, told[99].digest, 16);
	assert_last_recent(&c, 8);
	cache_close(&c);
}

/* ---- KV-25: positions after eviction --------------------------------------------------------- */

#define KV25_SLOTS 32u

struct map {
	int32_t positions[SLOTS_MAX * HEADS];
	char state[4096]; /* counters and scores */
	uint8_t digest[16];
};

static struct map map_of(struct cache *c)
{
	size_t n_bytes = KV25_SLOTS * HEADS * 4 + 64;
	struct map map = {0};

	assert_int_equal(positions_of(c, map.positions), KV25_SLOTS);
	memcpy(map.state, kvc_plane_get(c->seq, "policy"), n_bytes);
	ok(kvc_digest(c->seq, map.digest));
	return map;
}

/* Each head has KV25_SLOTS positions below `next`, none twice; returns in how many slots heads
 * differ. */
static uint32_t check_positions(const struct map *map, uint64_t next)
{
	uint32_t n_other = 0;

	for (uint32_t h = 0; h < HEADS; h++) {
		bool seen[128] = {false};

		for (uint32_t slot = 0; slot < KV25_SLOTS; slot++) {
			int32_t position = map->positions[slot * HEADS + h];

			assert_in_range(position, 0, next - 1);
			assert_false(seen[position]);
			seen[position] = true;
			n_other += position != map->positions[slot * HEADS];
		}
		for (uint64_t p = next - 3; p < next; p++) /* the grace period */
			assert_true(seen[p]);
	}
	return n_other;
}

static void check_kv25(enum kvc_journal_mode mode)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options),
						     .name = "policies/kv25s"};
	const struct setting s = {"h2o", 3, KV25_SLOTS, mode};
	struct cache c = cache_new(&s, "policies/kv25", 0), child = c;
	struct map at50, at55, now;
	struct told told[30];

	prompt(&c, 20);
	decode(&c, 30, told);
	assert_int_equal(kvc_position(c.seq), 50);
	at50 = map_of(&c);
	assert_true(check_positions(&at50, 50) > KV25_SLOTS / 4);
	ok(kvc_snapshot(c.seq, &options, NULL));
	decode(&c, 5, told);
	at55 = map_of(&c);
	check_positions(&at55, 55);
	ok(kvc_reserve_scatter(c.seq, 1, 64, 8));
	ok(kvc_rollback_steps(c.seq, 5));
	now = map_of(&c);
	assert_memory_equal(&now, &at50, sizeof(now));
	child.seq = kvc_fork(child.writer, "policies/kv25s", NULL);
	child.policy = NULL;
	take_hand(&child);
	assert_int_equal(kvc_position(child.seq), 50);
	assert_decodes(&child, told, 5);
	now = map_of(&child);
	assert_memory_equal(&now, &at55, sizeof(now));
	now = map_of(&c);
	assert_memory_equal(&now, &at50, sizeof(now));
	kvc_policy_free(child.policy);
	ok(kvc_seq_drop(child.seq));
	ok(kvc_remove(c.session, "policies/kv25s"));
	cache_close(&c);
}

static void test_kv25(void **state)
{
	(void)state;
	check_kv25(KVC_JOURNAL_UNDO);
	check_kv25(KVC_JOURNAL_REPLAY);
}

/* ------------------------------------------------------------------------------------------- */

static const struct CMUnitTest tests[] = {
	KT_TEST("a fork in another process takes the slots that its parent takes", test_fork),
	KT_TEST("who takes over from a killed writer takes the slots that it would have taken",
		test_takeover),
	KT_TEST("slots are the same when the core has died, also of forks and after rollbacks",
		test_core),
	KT_TEST("KV-15 a last-recent cache goes back past what it still holds, exactly", test_kv15),
	KT_TEST("KV-15 what nobody kept is refused, and not a byte changes", test_kv15_refused),
	KT_TEST("KV-25 positions are absolute for each head, also after a rollback and in a fork",
		test_kv25),
};

static const struct kt_role roles[] = {{"fork", role_fork}, {"writer", role_writer}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start_daemon,
				       stop_daemon};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
