/*
 * io_read, io_write, io_cpu_engine: a file of 1 GiB through the I/O engine in requests of 2 MiB,
 * eight at a time, against fio with the same ring, file, block size and depth: direct I/O,
 * registered memory and file. Both fill and empty the same eight buffers over and over, and neither
 * counts what it does before the first request and behind the last.
 *
 * The same buffers to the very page: how many runs of physical memory they are decides on rate and
 * CPU time more than any program (a factor of four), and is a matter of luck. They lie in a memfd,
 * in huge pages if the kernel has some, that fio maps too.
 *
 * CPU time is that of all threads for the engine, of its one for fio, in reads.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "offload/io.h"
#include "tests/bench/bench.h"
#include "tests/bench/fio.h"
#include "tests/support/tmpdir.h"

#define FILE_BYTES (UINT64_C(1) << 30)
#define BLOCK_BYTES (2u << 20)
#define DEPTH BENCH_FIO_DEPTH
#define MEMORY_BYTES (DEPTH * BLOCK_BYTES)
#define MIB_PER_FILE (FILE_BYTES >> 20)
#define PAIRS 9u
#define CALLS_MAX 32u

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif

struct io_bench {
	enum io_op op;
	struct bench_fio fio;
	struct io_engine *engine;
	int file, memory_fd;
	uint32_t n_begun, n_ended;
	struct io_request requests[DEPTH];
	struct iovec iov[DEPTH];
	char *memory; /* [DEPTH][BLOCK_BYTES] */
	bool is_huge;
	/* CPU time of each call, us per MiB */
	double own_us[CALLS_MAX], fio_us[CALLS_MAX];
	size_t n_own, n_fio;
};

/* ---- product -------------------------------------------------------------------------------- */

static void submit_next(struct io_request *request)
{
	struct io_bench *b = request->arg;
	const size_t i = (size_t)(request - b->requests);

	if (b->n_begun * (uint64_t)BLOCK_BYTES == FILE_BYTES)
		return;
	request->op = b->op;
	request->off = b->n_begun++ * (uint64_t)BLOCK_BYTES;
	b->iov[i] = (struct iovec){b->memory + i * BLOCK_BYTES, BLOCK_BYTES};
	BENCH_CHECK(io_submit(b->engine, request) == 0);
}

static void block_done(struct io_request *request, int result)
{
	struct io_bench *b = request->arg;

	if (result)
		bench_die("a transfer of the engine failed: %s", strerror(-result));
	b->n_ended++;
}

static double cpu_us(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 +
	       (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

/* Bytes a nanosecond. */
static double run_engine(void *arg)
{
	struct io_bench *b = arg;
	struct pollfd event = {.fd = io_fd(b->engine), .events = POLLIN};
	const double cpu_before = cpu_us();
	const uint64_t begin = bench_now_ns();
	double ns;

	b->n_begun = b->n_ended = 0;
	for (uint32_t i = 0; i < DEPTH; i++)
		submit_next(&b->requests[i]);
	while (b->n_ended * (uint64_t)BLOCK_BYTES < FILE_BYTES) {
		poll(&event, 1, -1);
		io_reap(b->engine, bench_now_ns());
	}
	ns = bench_since_ns(begin);
	BENCH_CHECK(b->n_own < CALLS_MAX);
	b->own_us[b->n_own++] = (cpu_us() - cpu_before) / MIB_PER_FILE;
	return (double)FILE_BYTES / ns;
}

/* ---- reference ------------------------------------------------------------------------------ */

/* Bytes a nanosecond. */
static double run_fio(void *arg)
{
	struct io_bench *b = arg;

	BENCH_CHECK(b->n_fio < CALLS_MAX);
	b->fio.write = b->op == IO_WRITE;
	return bench_fio_run(&b->fio, &b->fio_us[b->n_fio++]);
}

/* ---- the rows ------------------------------------------------------------------------------- */

static int open_file(struct io_bench *b)
{
	struct errbuf err;
	uint32_t align;
	char *dir = kt_tmpdir_new();
	int fd;

	bench_fio_open(&b->fio, dir, FILE_BYTES, BLOCK_BYTES);
	free(dir);
	fd = io_open_file(b->fio.path, O_RDWR, 0600, &align, &err);
	if (fd < 0)
		bench_die("%s", err.text);
	if (align == 1)
		bench_die("%s: no direct I/O there", b->fio.path);
	return fd;
}

static void make_memory(struct io_bench *b)
{
	char *room = mmap(NULL, MEMORY_BYTES + BLOCK_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);

	BENCH_CHECK(room != MAP_FAILED);
	room += -(uintptr_t)room % BLOCK_BYTES;
	b->memory_fd = memfd_create("kvcbench-io", MFD_CLOEXEC);
	BENCH_CHECK(b->memory_fd >= 0 && ftruncate(b->memory_fd, MEMORY_BYTES) == 0);
	b->memory = mmap(room, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 b->memory_fd, 0);
	BENCH_CHECK(b->memory == room);
	memset(b->memory, 0x5A, MEMORY_BYTES);
	b->fio.memory_fd = b->memory_fd;
	b->is_huge = madvise(b->memory, MEMORY_BYTES, MADV_COLLAPSE) == 0;
}

static void open_engine(struct io_bench *b, int fd)
{
	const struct io_options options = {.kind = IO_URING, .depth = DEPTH};
	struct errbuf err;

	b->engine = io_open(&options, &err);
	if (!b->engine)
		bench_die("%s", err.text);
	b->file = io_file_add(b->engine, fd);
	BENCH_CHECK(b->file >= 0);
	make_memory(b);
	io_memory_add(b->engine, b->memory, MEMORY_BYTES);
	for (size_t i = 0; i < DEPTH; i++)
		b->requests[i] = (struct io_request){.file = b->file,
						     .iov = &b->iov[i],
						     .n_iov = 1,
						     .done = block_done,
						     .settled = submit_next,
						     .arg = b};
}

static void compare(struct io_bench *b, enum io_op op, const char *name)
{
	struct bench_result *result = bench_result(name);

	b->op = op;
	b->n_own = b->n_fio = 0;
	bench_compare(result, (struct bench_side){run_engine, b}, (struct bench_side){run_fio, b},
		      PAIRS, 1);
	snprintf(result->note, sizeof(result->note), "%s%s", io_text(b->engine),
		 b->is_huge ? ", huge pages" : ", no huge pages");
}

/* Of the reads; the pairs of the warm-up come first. */
static void compare_cpu(struct io_bench *b)
{
	const size_t first = b->n_own - PAIRS;

	bench_pairs(bench_result("io_cpu_engine"), b->own_us + first, b->fio_us + first, PAIRS, 1);
}

void bench_group_io(void)
{
	static struct io_bench b;
	const int fd = open_file(&b);

	open_engine(&b, fd);
	compare(&b, IO_WRITE, "io_write");
	compare(&b, IO_READ, "io_read");
	compare_cpu(&b);
	io_close(b.engine);
	close(fd);
	kt_remove_tree(b.fio.dir);
}
