#include "tests/bench/fio.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"

/* Its exit status; 127: there is none. */
static int call(const struct bench_fio *fio, const char *output)
{
	char command[1024], memory[64] = "";
	int status;

	if (fio->memory_fd >= 0)
		snprintf(memory, sizeof(memory), "--mem=mmapshared:/proc/%d/fd/%d", getpid(),
			 fio->memory_fd);
	/* It leaves files of its own where it is. */
	snprintf(command, sizeof(command),
		 "cd %s && exec fio --name=kvcbench --filename=%s --rw=%s --size=%llu --bs=%u "
		 "--iodepth=%u --ioengine=io_uring --direct=1 --fixedbufs=1 --registerfiles=1 "
		 "%s --output-format=json --output=%s",
		 fio->dir, fio->path, fio->write ? "write" : "read",
		 (unsigned long long)fio->n_bytes, fio->block_bytes, BENCH_FIO_DEPTH, memory,
		 output);
	status = system(command);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static double number_of(const json_t *object, const char *name)
{
	const json_t *value = json_object_get(object, name);

	BENCH_CHECK(json_is_number(value));
	return json_number_value(value);
}

double bench_fio_run(const struct bench_fio *fio, double *cpu_us)
{
	char output[320];
	json_t *all, *job, *side;
	double share, rate;
	int rc;

	snprintf(output, sizeof(output), "%s/fio.json", fio->dir);
	rc = call(fio, output);
	if (rc == 127)
		bench_die("fio is not installed: scripts/deps --bench");
	if (rc)
		bench_die("fio ended with status %d", rc);
	all = json_load_file(output, 0, NULL);
	job = json_array_get(json_object_get(all, "jobs"), 0);
	side = json_object_get(job, fio->write ? "write" : "read");
	BENCH_CHECK(number_of(side, "io_bytes") == (double)fio->n_bytes);
	rate = number_of(side, "bw_bytes") / 1e9;
	share = (number_of(job, "usr_cpu") + number_of(job, "sys_cpu")) / 100;
	*cpu_us = share * number_of(side, "runtime") * 1000 / (double)(fio->n_bytes >> 20);
	json_decref(all);
	return rate;
}

void bench_fio_open(struct bench_fio *fio, const char *dir, uint64_t n_bytes, uint32_t block_bytes)
{
	double us;

	*fio = (struct bench_fio){.n_bytes = n_bytes, .block_bytes = block_bytes, .memory_fd = -1};
	snprintf(fio->dir, sizeof(fio->dir), "%s", dir);
	snprintf(fio->path, sizeof(fio->path), "%s/fio-file", dir);
	fio->write = true;
	bench_fio_run(fio, &us);
}

void bench_fio_close(struct bench_fio *fio)
{
	unlink(fio->path);
}
