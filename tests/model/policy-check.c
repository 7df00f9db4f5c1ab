/*
 * policy-check [--steps N] [--seed S] [--format F] [--verbose]
 *
 * Episodes of random updates under random policies (head of pw.h), each in a world of its own that
 * follows from the episode's seed; after each operation everything that can be read equals the
 * policy on plain arrays, and attention inside updates equals sums in f64. When it fails, also by
 * dying or hanging, it prints the episode's seed and its last operations; `--seed S --steps 1` runs
 * that episode alone.
 *
 * As a test (no arguments) a few thousand steps. `--steps 1000000` is the stress run.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/model/mc_options.h"
#include "tests/model/pw.h"

#define EPISODE_OPS 250
#define EPISODE_LIMIT_S 120

static void run_episode(uint64_t seed, const struct mc_options *o)
{
	struct pw_world *world;

	pw_report->seed = seed;
	alarm(EPISODE_LIMIT_S);
	world = pw_world_new(seed, o->format, o->verbose);
	for (uint64_t i = 0; i < EPISODE_OPS; i++)
		pw_step(world, mc_op_number(seed, i));
	pw_report->n_ops += world->n_ops;
	pw_report->n_steps += world->n_steps;
	pw_report->n_attended += world->n_attended;
	pw_report->n_refused += world->n_refused;
	pw_world_free(world);
}

/* In a child, until an episode fails. 0: none did. */
static int run_all(const struct mc_options *o)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		for (uint64_t seed = o->seed; pw_report->n_ops < o->steps; seed++)
			run_episode(seed, o);
		exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static void tell(void)
{
	uint64_t n = pw_report->n_lines, first = n > PW_LINES ? n - PW_LINES : 0;

	printf("# episode with seed %llu fails behind these operations:\n",
	       (unsigned long long)pw_report->seed);
	for (; first < n; first++)
		printf("#   %s\n", pw_report->lines[first % PW_LINES]);
}

int main(int argc, char **argv)
{
	struct mc_options o = {.steps = 5000, .seed = 1};
	int status;

	if (mc_options_read(argc, argv, &o))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	pw_report = mmap(NULL, sizeof(*pw_report), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pw_report == MAP_FAILED)
		return 2;
	printf("TAP version 13\n1..1\n");
	status = run_all(&o);
	if (status)
		tell();
	printf("# %llu operations, %llu with updates, %llu attended, %llu refused: journal full\n",
	       (unsigned long long)pw_report->n_ops, (unsigned long long)pw_report->n_steps,
	       (unsigned long long)pw_report->n_attended, (unsigned long long)pw_report->n_refused);
	printf("%sok 1 - under any policy everything equals the policy on plain arrays\n",
	       status ? "not " : "");
	return status != 0;
}
