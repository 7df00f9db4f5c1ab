/*
 * offload, fetch, io_cpu: a snapshot of 1 GiB in blocks of 2 MiB saved to the daemon's disk pool,
 * and loaded again, checksums on and durable, against fio writing and reading a file of the same
 * folder (bench_fio). Each save has bytes that the store has not, each load goes into new memory.
 *
 * CPU time is that of the core's process while it loads, less what the two hashes over the bytes
 * (checksum and digest) take in this process.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "tests/bench/bench.h"
#include "tests/bench/fio.h"
#include "tests/support/daemon.h"
#include "tests/support/tmpdir.h"

#define BLOCK_BYTES (2u << 20)
#define N_BLOCKS 512u
#define FILE_BYTES ((uint64_t)N_BLOCKS * BLOCK_BYTES)
#define MIB (FILE_BYTES >> 20)
#define PAIRS 9u
#define CALLS_MAX 32u

struct disk_bench {
	struct kt_daemon *daemon;
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	struct bench_fio fio;
	char *dir;
	uint64_t stamp; /* in every block of what is saved next */
	double own_us[CALLS_MAX], fio_us[CALLS_MAX];
	size_t n_own, n_fio;
};

/* CPU time of the core's process. */
static double core_us(const struct disk_bench *b)
{
	char path[64], text[1024], *at;
	unsigned long user, system;
	FILE *file;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", kt_daemon_core(b->daemon));
	file = fopen(path, "re");
	BENCH_CHECK(file != NULL);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	at = strrchr(text, ')');
	BENCH_CHECK(at && sscanf(at, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
				 &system) == 2);
	return (double)(user + system) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

static void append_block(struct disk_bench *b, kvc_seq *seq, char *block, uint64_t i)
{
	memcpy(block, &(uint64_t[]){b->stamp, i}, 16);
	BENCH_CHECK(kvc_append_begin(seq, 1) == 0);
	BENCH_CHECK(kvc_write(seq, 0, block, NULL) == 0);
	BENCH_CHECK(kvc_commit(b->writer, &seq, 1) == 0);
}

/* A snapshot of bytes that were never there before. */
static void make_source(struct disk_bench *b)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = "source", .replace = 1};
	kvc_seq *seq = kvc_seq_new(b->writer, b->layout, NULL);
	char *block = malloc(BLOCK_BYTES);

	BENCH_CHECK(seq && block);
	memset(block, 0x5a, BLOCK_BYTES);
	b->stamp++;
	BENCH_CHECK(kvc_reserve(seq, N_BLOCKS) == 0);
	for (uint64_t i = 0; i < N_BLOCKS; i++)
		append_block(b, seq, block, i);
	BENCH_CHECK(kvc_snapshot(seq, &options, NULL) == 0);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	free(block);
}

/* Bytes a nanosecond. */
static double save(void *arg)
{
	const struct kvc_save_options options = {
		.size = sizeof(options), .name = "saved", .replace = 1};
	struct disk_bench *b = arg;
	struct kvc_saved_result result;
	uint64_t begin;
	double ns;

	make_source(b);
	begin = bench_now_ns();
	BENCH_CHECK(kvc_save(b->session, "source", &options, NULL, NULL, &result) == 0);
	ns = bench_since_ns(begin);
	BENCH_CHECK(result.n_bytes == FILE_BYTES && result.n_known == 0);
	return (double)FILE_BYTES / ns;
}

static double load(void *arg)
{
	struct disk_bench *b = arg;
	struct kvc_saved_result result;
	double cpu_before, ns;
	uint64_t begin;

	if (kvc_remove(b->session, "saved"))
		BENCH_CHECK(kvc_error() == KVC_ENOTFOUND);
	cpu_before = core_us(b);
	begin = bench_now_ns();
	BENCH_CHECK(kvc_load(b->session, "saved", NULL, NULL, NULL, &result) == 0);
	ns = bench_since_ns(begin);
	BENCH_CHECK(result.n_bytes == FILE_BYTES && b->n_own < CALLS_MAX);
	b->own_us[b->n_own++] = (core_us(b) - cpu_before) / (double)MIB;
	return (double)FILE_BYTES / ns;
}

static double fio(void *arg)
{
	struct disk_bench *b = arg;

	BENCH_CHECK(b->n_fio < CALLS_MAX);
	return bench_fio_run(&b->fio, &b->fio_us[b->n_fio++]);
}

/* Of one hash, us per MiB. */
static double hash_us(void)
{
	char *block = malloc(BLOCK_BYTES);
	double us[CALLS_MAX];
	XXH64_hash_t sum = 0;

	BENCH_CHECK(block != NULL);
	memset(block, 0x5a, BLOCK_BYTES);
	for (size_t i = 0; i < CALLS_MAX; i++) {
		uint64_t begin = bench_now_ns();

		sum += XXH3_128bits(block, BLOCK_BYTES).low64;
		us[i] = bench_since_ns(begin) / 1000 / (BLOCK_BYTES >> 20);
		memcpy(block, &sum, sizeof(sum));
	}
	free(block);
	return bench_median(us, CALLS_MAX);
}

static void compare_cpu(struct disk_bench *b)
{
	const size_t first = b->n_own - PAIRS;
	const double hashes = 2 * hash_us();
	struct bench_result *result = bench_result("io_cpu");

	for (size_t i = first; i < b->n_own; i++)
		b->own_us[i] -= hashes;
	bench_pairs(result, b->own_us + first, b->fio_us + first, PAIRS, 1);
	snprintf(result->note, sizeof(result->note), "less %.0f us for two hashes", hashes);
}

static void open_all(struct disk_bench *b)
{
	struct kvc_session_options session = {.size = sizeof(session), .deadline_ms = 60000};
	struct kvc_layout_options layout = {.size = sizeof(layout), .opaque_bytes = BLOCK_BYTES};

	session.runtime_dir = kt_daemon_dir(b->daemon);
	b->session = kvc_open(&session);
	BENCH_CHECK(b->session != NULL);
	layout.fingerprint[0] = 9;
	layout.block_tokens = 1;
	b->layout = kvc_layout_register(b->session, &layout);
	BENCH_CHECK(b->layout != NULL);
	b->writer = kvc_writer_new(b->session);
	BENCH_CHECK(b->writer != NULL);
}

void bench_group_disk(void)
{
	static struct disk_bench b;
	char disk_dir[256];
	const char *const arguments[] = {"--pool-bytes", "3200M",        "--disk-dir",
					 disk_dir,       "--disk-bytes", "2560M",
					 "--log-level",  "warn",         NULL};

	b.dir = kt_tmpdir_new();
	snprintf(disk_dir, sizeof(disk_dir), "%s/store", b.dir);
	b.daemon = kt_daemon_start(arguments);
	BENCH_CHECK(b.daemon != NULL);
	open_all(&b);
	bench_fio_open(&b.fio, b.dir, FILE_BYTES, BLOCK_BYTES);
	b.fio.write = true;
	bench_compare(bench_result("offload"), (struct bench_side){save, &b},
		      (struct bench_side){fio, &b}, PAIRS, 1);
	b.fio.write = false;
	b.n_own = b.n_fio = 0;
	bench_compare(bench_result("fetch"), (struct bench_side){load, &b},
		      (struct bench_side){fio, &b}, PAIRS, 1);
	compare_cpu(&b);
	bench_fio_close(&b.fio);
	kvc_close(b.session);
	kt_daemon_stop(b.daemon);
	kt_tmpdir_free(b.dir);
}
