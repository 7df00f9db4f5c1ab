/*
 * model-check [--steps N] [--seed S] [--format F] [--episode N] [--verbose]
 *
 * Episodes of random operations on the data plane, each in a world of its own that follows from
 * the episode's seed; after each operation everything that can be read equals a simple shadow.
 * An episode that fails (also by dying or hanging) is run again and again with operations taken
 * out, as long as it still fails; then seed and what is left of it are printed.
 *
 * As a test (no arguments) a few thousand steps. `--steps 1000000` is the stress run. A seed that
 * is printed is that of an episode: `--seed S --steps 1` runs it alone.
 *
 * With fault injection writers die between any two stores, and the core freezes there.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/model/mc.h"
#include "tests/model/mc_options.h"

#define EPISODE_OPS 150
#define EPISODE_LIMIT_S 120
#define SHRINK_RUNS 600

/* ---- episodes ----------------------------------------------------------------------------- */

struct run {
	uint64_t seed;
	uint32_t format;
	int n_ops;
	bool kept[EPISODE_OPS];
};

/* What a child tells the parent while it lives. */
struct report {
	uint64_t seed, n_ops, n_deaths, n_freezes, n_refused;
};

static struct report *report;

static void run_episode(const struct run *run, bool verbose)
{
	struct mc_world *world = mc_world_new(run->seed, run->format, verbose);
	for (int i = 0; i < run->n_ops; i++)
		if (run->kept[i])
			mc_step(world, mc_op_number(run->seed, (uint64_t)i));
	report->n_ops += world->n_ops;
	report->n_deaths += world->n_deaths;
	report->n_freezes += world->n_freezes;
	report->n_refused += world->n_refused;
	mc_world_free(world);
}

static struct run whole(uint64_t seed, uint32_t format)
{
	struct run run = {.seed = seed, .format = format, .n_ops = EPISODE_OPS};

	memset(run.kept, 1, sizeof(run.kept));
	return run;
}

/* ---- failures ----------------------------------------------------------------------------- */

enum say { SAY_NOTHING, SAY_FAULT, SAY_ALL };

/* Runs one episode in a child; true: it fails. */
static bool fails(const struct run *run, enum say say)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		alarm(EPISODE_LIMIT_S);
		if (say == SAY_NOTHING &&
		    (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)))
			_exit(2);
		run_episode(run, say == SAY_ALL);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (say == SAY_ALL && WIFSIGNALED(status))
		printf("  died of signal %d\n", WTERMSIG(status));
	return status != 0;
}

/* Takes out chunks of operations as long as it still fails. */
static void shorten(struct run *run)
{
	int n_runs = 0;

	for (int chunk = EPISODE_OPS / 2; chunk; chunk /= 2)
		for (int first = 0; first < EPISODE_OPS && n_runs < SHRINK_RUNS; first += chunk) {
			struct run less = *run;
			bool any = false;

			for (int i = first; i < first + chunk && i < EPISODE_OPS; i++) {
				any |= less.kept[i];
				less.kept[i] = false;
			}
			if (!any)
				continue;
			n_runs++;
			if (fails(&less, SAY_NOTHING))
				*run = less;
		}
}

static void tell(uint64_t seed, uint32_t format)
{
	struct run run = whole(seed, format);

	printf("episode with seed %llu fails:\n", (unsigned long long)seed);
	if (!fails(&run, SAY_FAULT)) {
		printf("  ... but not when it is run alone\n");
		return;
	}
	shorten(&run);
	printf("shortened:\n");
	fails(&run, SAY_ALL);
}

/* ---- main --------------------------------------------------------------------------------- */

/* Runs episodes one after the other in a child, until one fails. 0: none did. */
static int run_all(const struct mc_options *o)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		for (uint64_t seed = o->seed; report->n_ops < o->steps; seed++) {
			struct run run = whole(seed, o->format);

			alarm(EPISODE_LIMIT_S);
			run_episode(&run, o->verbose);
		}
		fflush(stdout);
		_exit(0); /* who died left memory behind: no look for leaks */
	}
	waitpid(pid, &status, 0);
	return status;
}

int main(int argc, char **argv)
{
	struct mc_options o = {.steps = 6000, .seed = 1};
	int status;

	if (mc_options_read(argc, argv, &o))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	report = mmap(NULL, sizeof(*report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (report == MAP_FAILED)
		return 2;
	printf("TAP version 13\n1..1\n");
	status = run_all(&o);
	if (status)
		tell(report->seed, o.format);
	printf("# %llu steps: %llu deaths, %llu freezes, %llu refused for lack of blocks or rows\n",
	       (unsigned long long)report->n_ops, (unsigned long long)report->n_deaths,
	       (unsigned long long)report->n_freezes, (unsigned long long)report->n_refused);
	printf("%sok 1 - after each of many random operations everything equals the shadow\n",
	       status ? "not " : "");
	return status != 0;
}
