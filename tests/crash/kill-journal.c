/*
 * kill-journal [--episodes N] [--seed S] [--format F]: a writer dies at every point of every
 * operation.
 *
 * A history of random operations (tests/model/mc.h) runs once without a death, which says how many
 * points between two stores each of them has. Then, for each point, a child runs the history up to
 * that operation; at the point its writer is gone, the core puts right what it left, another writer
 * takes the sequences over, and everything must be as before the operation or as after it, every
 * byte, also of snapshots. Then a few more operations, and no block may be left with anybody.
 * Prints TAP.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/model/mc.h"

#define OPS 60
#define MORE_OPS 3
#define POINTS_MAX 200u /* of one operation; what it has more is left out, and said */
#define LIMIT_S 60
#define SENTENCE "a writer that dies between any two stores leaves the state before or after"

struct options {
	uint64_t n_episodes, seed;
	uint32_t format;
};

struct count {
	uint64_t n_points, n_left_out;
};

/* Every arena and the segment are shared memory: a child makes a world of its own. */
static void die_at(uint64_t seed, uint32_t format, uint64_t op, uint64_t point)
{
	struct mc_world *w = mc_world_new(seed, format, false);

	for (uint64_t i = 0; i < op; i++)
		mc_step_dying(w, mc_op_number(seed, i), 0);
	mc_step_dying(w, mc_op_number(seed, op), point);
	for (uint64_t i = 1; i <= MORE_OPS; i++)
		mc_step_dying(w, mc_op_number(seed, op + i), 0);
	mc_world_free(w);
}

/* In a child: a wrong state may crash. */
static bool run_point(uint64_t seed, uint32_t format, uint64_t op, uint64_t point)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(LIMIT_S);
		die_at(seed, format, op, point);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		printf("  seed %llu: death at point %llu of operation %llu (status %#x)\n",
		       (unsigned long long)seed, (unsigned long long)point, (unsigned long long)op,
		       (unsigned)status);
	return status == 0;
}

static bool run_episode(uint64_t seed, uint32_t format, struct count *count)
{
	struct mc_world *w = mc_world_new(seed, format, false);
	bool good = true;

	for (uint64_t op = 0; good && op < OPS; op++) {
		uint64_t n = mc_step_dying(w, mc_op_number(seed, op), 0);

		if (n > POINTS_MAX) {
			count->n_left_out += n - POINTS_MAX;
			n = POINTS_MAX;
		}
		for (uint64_t point = 1; good && point <= n; point++)
			good = run_point(seed, format, op, point);
		count->n_points += n;
	}
	mc_world_free(w);
	return good;
}

#ifdef KV_FAULT_INJECTION
static const char *const why_not = NULL;
#else
static const char *const why_not = "needs --enable-fault-injection";
#endif

static int run(const struct options *o)
{
	struct count count = {0, 0};
	bool good = true;

	printf("TAP version 13\n1..1\n");
	if (why_not) {
		printf("ok 1 - " SENTENCE " # SKIP %s\n", why_not);
		return 0;
	}
	for (uint64_t i = 0; good && i < o->n_episodes; i++)
		good = run_episode(o->seed + i, o->format, &count);
	printf("# %llu points of %llu operations, %llu more left out\n",
	       (unsigned long long)count.n_points, (unsigned long long)(o->n_episodes * OPS),
	       (unsigned long long)count.n_left_out);
	printf("%sok 1 - " SENTENCE "\n", good ? "" : "not ");
	return !good;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"episodes", required_argument, NULL, 'e'},
						{"seed", required_argument, NULL, 's'},
						{"format", required_argument, NULL, 'f'},
						{NULL, 0, NULL, 0}};
	struct options o = {.n_episodes = 2, .seed = 1};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 'e')
			o.n_episodes = strtoull(optarg, NULL, 10);
		else if (c == 's')
			o.seed = strtoull(optarg, NULL, 10);
		else if (c != 'f' || (o.format = kv_format_find(optarg)) == 0)
			return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run(&o);
}
