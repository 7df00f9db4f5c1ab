/*
 * The hot path makes no system call and allocates nothing: a process with a session, and memory
 * reserved, gives up all system calls but exit (a violation kills it) and then appends, commits,
 * marks, rolls back, forks, reads tables, attends and evicts 10,000 times. Its allocations are counted
 * meanwhile.
 * Thread: one; nanomsg's worker keeps its system calls.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/kvcache.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define ROUNDS 10000u
#define LAYERS 2u
#define ROW 64u /* f32 elements of K or V of one token */
#define KEPT 100u
#define MOST 1000u
#define AHEAD 5u
#define SLOTS (12 * AHEAD)
#define RESERVE 16000u /* more than MOST: blocks that a fork froze are not used again */

enum { CHILD_NO_SECCOMP = 77, CHILD_ALLOCATED = 78, CHILD_WRONG_BYTES = 79, CHILD_FAILED = 80 };

/* ---- allocations -------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static const char *const unusable = "a sanitizer has allocators and system calls of its own";
static volatile uint64_t n_allocations;
#else
static const char *const unusable;
static _Thread_local volatile uint64_t n_allocations; /* the compiler knows malloc */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);

/* These come before those of the C library. */
#define VISIBLE __attribute__((visibility("default")))

VISIBLE void *malloc(size_t size)
{
	n_allocations++;
	return __libc_malloc(size);
}

VISIBLE void *calloc(size_t n, size_t size)
{
	n_allocations++;
	return __libc_calloc(n, size);
}

VISIBLE void *realloc(void *memory, size_t size)
{
	n_allocations++;
	return __libc_realloc(memory, size);
}
#endif

/* ---- the child ---------------------------------------------------------------------------- */

/* Only exit and exit_group are left to this thread. False: there are no filters here. */
static bool give_up_system_calls(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(rules) / sizeof(rules[0]), rules};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void must(bool is_true, const char *what)
{
	if (is_true)
		return;
	fprintf(stderr, "%s: %s\n", what, kvc_error_text());
	_exit(CHILD_FAILED);
}

#define MUST(what) must(what, #what)

struct work {
	kvc_writer *writer;
	kvc_seq *seq;
	float rows[AHEAD * ROW];
	float q[AHEAD * 2 * ROW], out[AHEAD * 2 * ROW], weights[4 * (MOST + AHEAD)];
	kvc_seq *full; /* a layer of SLOTS slots with a policy */
	kvc_policy *policy;
};

/* Begins an update of AHEAD tokens under the policy, and commits it. */
static int evict(struct work *work, unsigned round)
{
	struct kvc_policy_plan plan;
	int rc = kvc_update_begin(work->full, AHEAD, KVC_UPDATE_SCATTER);

	for (unsigned i = 0; i < AHEAD * ROW; i++)
		work->rows[i] = (float)(round + i);
	rc = rc || kvc_policy_choose(work->policy, 0, AHEAD, &plan) ||
	     kvc_policy_write(work->policy, 0, work->rows, work->rows, NULL, NULL) ||
	     kvc_policy_score(work->policy, 0, work->weights);
	return rc || kvc_commit(work->writer, &work->full, 1);
}

/* A sequence whose policy needs all that there is: scores, positions, norms, errors. */
static void set_up_policy(struct work *work, kvc_session *session,
			  struct kvc_layout_options *fields)
{
	const struct kvc_policy_options policy = {.size = sizeof(policy),
						  .name = "qh2o-vlen",
						  .grace_tokens = 2,
						  .normalise_scores = 1};
	const struct kvc_journal_options journal = {.size = sizeof(journal),
						    .mode = KVC_JOURNAL_UNDO};
	struct kvc_layer layer = {4, ROW / 4, ROW / 4, SLOTS};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	kvc_layout *layout;
	int n = kvc_policy_planes(&policy, 1, &layer, planes);

	MUST(n == KVC_POLICY_PLANES);
	fields->n_layers = 1;
	fields->layers = &layer;
	fields->k_format = fields->v_format = KVC_U8;
	fields->n_planes = (uint32_t)n;
	fields->planes = planes;
	MUST((layout = kvc_layout_register(session, fields)) != NULL);
	MUST((work->full = kvc_seq_new(work->writer, layout, NULL)) != NULL);
	MUST(kvc_journal_set(work->full, &journal) == 0);
	MUST((work->policy = kvc_policy_new(work->full, &policy)) != NULL);
	MUST(kvc_reserve(work->full, SLOTS + 4 * AHEAD) == 0);
	for (unsigned i = 0; i <= SLOTS / AHEAD; i++) {
		uint64_t rows = kvc_policy_rows(work->policy, AHEAD);

		MUST(kvc_reserve_scatter(work->full, 4, 4 * rows, 4) == 0);
		MUST(evict(work, i) == 0);
	}
}

static void set_up(struct work *work, const char *runtime_dir)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = runtime_dir};
	struct kvc_layer layers[LAYERS] = {{4, ROW / 4, ROW / 4, 0}, {4, ROW / 4, ROW / 4, 0}};
	struct kvc_layout_options fields = {
		.size = sizeof(fields),
		.fingerprint = "hot path",
		.n_layers = LAYERS,
		.layers = layers,
		.dtype = KVC_F32,
		.block_tokens = 16,
	};
	kvc_session *session;
	kvc_layout *layout;

	MUST((session = kvc_open(&options)) != NULL);
	MUST((layout = kvc_layout_register(session, &fields)) != NULL);
	MUST((work->writer = kvc_writer_new(session)) != NULL);
	MUST((work->seq = kvc_seq_new(work->writer, layout, NULL)) != NULL);
	MUST(kvc_reserve(work->seq, RESERVE) == 0);
	MUST(kvc_reserve_forks(work->seq, 1) == 0);
	set_up_policy(work, session, &fields);
}

static int append(struct work *work, kvc_seq *seq, unsigned round)
{
	int rc = kvc_append_begin(seq, AHEAD);

	for (unsigned i = 0; i < AHEAD * ROW; i++)
		work->rows[i] = (float)(round + i);
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		rc |= kvc_write(seq, layer, work->rows, work->rows);
	return rc | kvc_commit(work->writer, &seq, 1);
}

/* The last token's first element, through the table and through the last run. */
static int look(kvc_seq *seq, float expected)
{
	struct kvc_layer_view view;
	struct kvc_run runs[MOST / 16 + 2];
	struct kvc_paged paged;
	uint64_t last, generation, update;
	int64_t n;
	const float *by_table, *by_run;

	if (kvc_view_table(seq, 1, &view) || kvc_version_of(seq, &generation, &update))
		return -1;
	last = view.length_tokens - 1;
	if (kvc_view_arena(seq, 1, view.blocks[last / 16].arena, &paged))
		return -1;
	by_table = (const float *)paged.k +
		   ((uint64_t)view.blocks[last / 16].block * 16 + last % 16) * ROW;
	n = kvc_view_runs(seq, 1, runs, MOST / 16 + 2);
	if (n < 1)
		return -1;
	by_run = (const float *)runs[n - 1].k + (last - runs[n - 1].first_token) * ROW;
	return by_table == by_run && *by_table == expected ? 0 : -1;
}

/* Over the second layer, with current tokens, or without. */
static int attend(struct work *work, kvc_seq *seq, bool is_current)
{
	struct kvc_attend_args args = {
		.size = sizeof(args),
		.n_query_heads = 8,
		.n_tokens = AHEAD,
		.q = work->q,
		.k = is_current ? work->rows : NULL,
		.v = is_current ? work->rows : NULL,
		.out = work->out,
		.weights = work->weights,
	};

	return kvc_attend(seq, 1, &args);
}

static int one_round(struct work *work, unsigned round)
{
	float last = (float)(round + (AHEAD - 1) * ROW);
	kvc_mark mark;
	kvc_seq *fork;
	int rc = 0;

	if (kvc_length(work->seq) + 4 * AHEAD > MOST)
		rc |= kvc_rollback_keep(work->seq, KEPT);
	rc |= append(work, work->seq, round);
	rc |= kvc_mark_set(work->seq, &mark);
	rc |= append(work, work->seq, round + 1);
	rc |= append(work, work->seq, round + 2);
	rc |= kvc_rollback_remove(work->seq, 2);
	rc |= kvc_rollback_mark(work->seq, &mark);
	rc |= kvc_mark_release(work->seq, &mark);
	rc |= look(work->seq, last);
	if (round % 50 == 0)
		rc |= attend(work, work->seq, true) | attend(work, work->seq, false);
	if (round % 10 == 0)
		rc |= evict(work, round) || kvc_rollback_steps(work->full, 1);
	if (round % 1000 || rc)
		return rc;
	/* A fork takes blocks of the reserve, and the parent's last block is copied: seldom,
	 * for what a fork froze goes back to the daemon and not to the reserve. */
	fork = kvc_fork_local(work->seq, AHEAD);
	if (!fork)
		return -1;
	rc |= append(work, fork, round);
	rc |= look(fork, last);
	return rc | kvc_seq_drop(fork);
}

static void child(const char *runtime_dir)
{
	static struct work work;
	uint64_t n_before;
	int rc = 0;

	set_up(&work, runtime_dir);
	MUST(append(&work, work.seq, 0) == 0);
	MUST(attend(&work, work.seq, true) == 0);
	if (!give_up_system_calls())
		_exit(CHILD_NO_SECCOMP);
	n_before = n_allocations;
	for (unsigned round = 1; round <= ROUNDS && rc == 0; round++)
		rc = one_round(&work, round);
	if (rc)
		_exit(CHILD_WRONG_BYTES);
	_exit(n_allocations == n_before ? 0 : CHILD_ALLOCATED);
}

/* Status of a process that runs fn. */
static int status_of(void (*fn)(const char *), const char *argument)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		fn(argument);
	assert_int_equal(kt_wait_child(pid, 60000, &status), 0);
	return status;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void skip_where_it_says_nothing(void)
{
	const char *preload = getenv("LD_PRELOAD");

	if (unusable)
		kt_skip("%s", unusable);
	if (preload && strstr(preload, "vgpreload"))
		kt_skip("valgrind makes system calls of its own");
}

static void test_hot_path(void **state)
{
	struct kt_daemon *daemon;
	int status;

	(void)state;
	skip_where_it_says_nothing();
	daemon = kt_daemon_start(NULL);
	assert_non_null(daemon);
	status = status_of(child, kt_daemon_dir(daemon));
	assert_int_equal(kt_daemon_stop(daemon), 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_SECCOMP)
		kt_skip("seccomp filters are not to be had here");
	assert_false(WIFSIGNALED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void calls_the_system(const char *argument)
{
	(void)argument;
	if (!give_up_system_calls())
		_exit(CHILD_NO_SECCOMP);
	_exit((int)syscall(__NR_getppid) & 1);
}

static void test_filter(void **state)
{
	int status;

	(void)state;
	skip_where_it_says_nothing();
	status = status_of(calls_the_system, NULL);
	if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_NO_SECCOMP)
		kt_skip("seccomp filters are not to be had here");
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGSYS);
}

static void test_counter(void **state)
{
	uint64_t before = n_allocations;
	char *volatile copy;

	(void)state;
	skip_where_it_says_nothing();
	copy = strdup("counted");
	assert_true(n_allocations > before);
	free(copy);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("10,000 rounds of the hot path make no system call and allocate nothing",
		test_hot_path),
	KT_TEST("a system call under the filter would have been seen", test_filter),
	KT_TEST("an allocation would have been counted", test_counter),
};

KT_MAIN(tests)
