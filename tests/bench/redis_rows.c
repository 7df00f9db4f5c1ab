/*
 * Blocks of 2 MiB from one process to another, against Redis over a UNIX socket.
 *
 * put: blocks are appended to a sequence that has a name and committed one by one; from its commit on
 * any process can fork the sequence and read the block. The sequence before was dropped first, as a
 * SET replaces what its key had. get_first: what has just been put is opened by the other process,
 * and its digest computed, which must be the writer's: every byte is read and checked. That process
 * is in the middle of its life: it has a snapshot of the same arena open, and memory that comes back
 * to the arena has been mapped before. get: it reads the same bytes again and again, in place.
 * Against it SET, and GET into the reader's memory, which checks nothing. The writer is a helper,
 * the reader this process; a sample is 8 blocks, of get 4 blocks four times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/plain_read.h"
#include "tests/bench/bench.h"
#include "tests/bench/redis.h"

#define BLOCK_BYTES (UINT64_C(2) << 20)
#define N_BLOCKS 8u
#define N_AGAIN 4u
#define N_TIMES 4u
#define N_PAIRS 41u
#define SAMPLE_BYTES (N_BLOCKS * BLOCK_BYTES)
#define NAME "redis/blocks"
#define SNAPSHOT "redis/snapshot"
#define OTHER "redis/other"

/* What the reader tells the writer to do. */
enum { WRITER_END, WRITER_PUT, WRITER_SET };

struct side {
	kvc_session *session;
	kvc_writer *writer;
	kvc_layout *layout;
	kvc_seq *seq;
	int redis;
	int other;   /* the reader's end of the pair with the writer */
	char *bytes; /* a sample */
	volatile uint64_t sum;
};

static void side_open(struct side *side, const struct redis_server *server)
{
	const struct kvc_session_options session = {.size = sizeof(session),
						    .runtime_dir = bench_runtime_dir};
	const struct kvc_layout_options layout = {
		.size = sizeof(layout), .fingerprint = "redis", .opaque_bytes = BLOCK_BYTES};

	memset(side, 0, sizeof(*side));
	side->redis = redis_connect(server);
	BENCH_CHECK(side->session = kvc_open(&session));
	BENCH_CHECK(side->layout = kvc_layout_register(side->session, &layout));
	BENCH_CHECK(side->writer = kvc_writer_new(side->session));
	BENCH_CHECK(side->bytes = malloc(SAMPLE_BYTES));
	for (uint64_t i = 0; i < SAMPLE_BYTES / 8; i++)
		((uint64_t *)side->bytes)[i] = i * UINT64_C(0x9e3779b97f4a7c15);
}

static void side_close(struct side *side)
{
	kvc_close(side->session);
	close(side->redis);
	free(side->bytes);
}

/* ---- the writer --------------------------------------------------------------------------- */

static void put_blocks(struct side *side)
{
	const struct kvc_seq_options named = {
		.size = sizeof(named), .name = NAME, .max_tokens = N_BLOCKS};

	BENCH_CHECK(side->seq = kvc_seq_new(side->writer, side->layout, &named));
	BENCH_CHECK(kvc_reserve(side->seq, N_BLOCKS) == 0);
	for (unsigned b = 0; b < N_BLOCKS; b++) {
		BENCH_CHECK(kvc_append_begin(side->seq, 1) == 0);
		BENCH_CHECK(kvc_write(side->seq, 0, side->bytes + b * BLOCK_BYTES, NULL) == 0);
		BENCH_CHECK(kvc_commit(side->writer, &side->seq, 1) == 0);
	}
}

static double rate_of(uint64_t begin, uint64_t n_blocks)
{
	return (double)(n_blocks * BLOCK_BYTES) / bench_since_ns(begin);
}

static double put(void *arg)
{
	struct side *side = arg;
	uint64_t begin = bench_now_ns();

	if (side->seq)
		BENCH_CHECK(kvc_seq_drop(side->seq) == 0);
	put_blocks(side);
	return rate_of(begin, N_BLOCKS);
}

static const char *key_of(unsigned block, char key[32])
{
	snprintf(key, 32, "block:%u", block);
	return key;
}

static double redis_put(void *arg)
{
	struct side *side = arg;
	uint64_t begin = bench_now_ns();
	char key[32];

	for (unsigned b = 0; b < N_BLOCKS; b++)
		redis_set(side->redis, key_of(b, key), side->bytes + b * BLOCK_BYTES, BLOCK_BYTES);
	return rate_of(begin, N_BLOCKS);
}

/* Blocks that the reader has not seen, as a snapshot; their digest through the pair. */
static void put_for_reader(struct side *side, int fd)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = SNAPSHOT, .replace = 1};
	uint64_t digest[2];

	((uint64_t *)side->bytes)[0]++;
	put(side);
	BENCH_CHECK(kvc_snapshot(side->seq, &options, NULL) == 0);
	BENCH_CHECK(kvc_digest(side->seq, (uint8_t *)digest) == 0);
	bench_tell(fd, digest[0]);
	bench_tell(fd, digest[1]);
}

static void write_blocks(int fd, void *arg)
{
	const struct kvc_snapshot_options other = {.size = sizeof(other), .name = OTHER};
	struct side side;
	uint64_t wish;

	side_open(&side, arg);
	bench_compare(bench_result("redis_put"), (struct bench_side){put, &side},
		      (struct bench_side){redis_put, &side}, N_PAIRS, 1);
	BENCH_CHECK(kvc_snapshot(side.seq, &other, NULL) == 0);
	bench_tell(fd, 1);
	while ((wish = bench_hear(fd)) != WRITER_END) {
		if (wish == WRITER_PUT) {
			put_for_reader(&side, fd);
		} else {
			redis_put(&side);
			bench_tell(fd, 1);
		}
	}
	BENCH_CHECK(kvc_seq_drop(side.seq) == 0);
	BENCH_CHECK(kvc_remove(side.session, SNAPSHOT) == 0);
	BENCH_CHECK(kvc_remove(side.session, OTHER) == 0);
	side_close(&side);
}

/* ---- the reader --------------------------------------------------------------------------- */

static double get_first(void *arg)
{
	struct side *side = arg;
	uint64_t expected[2], digest[2], begin;
	double gb_s;

	bench_tell(side->other, WRITER_PUT);
	expected[0] = bench_hear(side->other);
	expected[1] = bench_hear(side->other);
	begin = bench_now_ns();
	BENCH_CHECK(side->seq = kvc_open_snapshot(side->writer, SNAPSHOT));
	BENCH_CHECK(kvc_digest(side->seq, (uint8_t *)digest) == 0);
	BENCH_CHECK(memcmp(digest, expected, sizeof(digest)) == 0);
	gb_s = rate_of(begin, N_BLOCKS);
	kvc_seq_free(side->seq);
	return gb_s;
}

static void redis_get_blocks(struct side *side, unsigned n)
{
	char key[32];

	for (unsigned b = 0; b < n; b++)
		redis_get(side->redis, key_of(b, key), side->bytes + b * BLOCK_BYTES, BLOCK_BYTES);
}

static double redis_get_first(void *arg)
{
	struct side *side = arg;
	uint64_t begin;

	bench_tell(side->other, WRITER_SET);
	bench_hear(side->other);
	begin = bench_now_ns();
	redis_get_blocks(side, N_BLOCKS);
	return rate_of(begin, N_BLOCKS);
}

/* Of the first n blocks in place, run by run, the sum of their words. */
static void sum_blocks(struct side *side, uint64_t n)
{
	struct kvc_run runs[N_BLOCKS];
	int64_t n_runs = kvc_view_runs(side->seq, 0, runs, N_BLOCKS);

	side->sum = 0;
	for (int64_t i = 0; i < n_runs && n; i++) {
		const uint64_t now = runs[i].n_tokens < n ? runs[i].n_tokens : n;
		const struct plain_plane plane = {.memory = (void *)(uintptr_t)runs[i].k,
						  .n_bytes = now * BLOCK_BYTES,
						  .n_mapped_bytes = now * BLOCK_BYTES};

		BENCH_CHECK(runs[i].k_row_bytes == BLOCK_BYTES);
		side->sum += plain_read(&plane, NULL);
		n -= now;
	}
	BENCH_CHECK(n == 0);
}

static double get_again(void *arg)
{
	struct side *side = arg;
	uint64_t begin = bench_now_ns();

	for (unsigned i = 0; i < N_TIMES; i++)
		sum_blocks(side, N_AGAIN);
	return rate_of(begin, N_TIMES * N_AGAIN);
}

static double redis_get_again(void *arg)
{
	struct side *side = arg;
	uint64_t begin = bench_now_ns();

	for (unsigned i = 0; i < N_TIMES; i++)
		redis_get_blocks(side, N_AGAIN);
	return rate_of(begin, N_TIMES * N_AGAIN);
}

/* Both have what was put last: Redis, and the sequence by its name alone. */
static void check_bytes(struct side *side)
{
	const struct plain_plane plane = {
		.memory = side->bytes, .n_bytes = SAMPLE_BYTES, .n_mapped_bytes = SAMPLE_BYTES};

	bench_tell(side->other, WRITER_SET);
	bench_hear(side->other);
	redis_get_blocks(side, N_BLOCKS);
	BENCH_CHECK(side->seq = kvc_fork(side->writer, NAME, NULL));
	sum_blocks(side, N_BLOCKS);
	BENCH_CHECK(side->sum == plain_read(&plane, NULL));
	BENCH_CHECK(kvc_seq_drop(side->seq) == 0);
}

static void read_blocks(struct side *side)
{
	kvc_seq *other;

	BENCH_CHECK(other = kvc_open_snapshot(side->writer, OTHER));
	bench_compare(bench_result("redis_get_first"), (struct bench_side){get_first, side},
		      (struct bench_side){redis_get_first, side}, N_PAIRS, 1);
	check_bytes(side);
	BENCH_CHECK(side->seq = kvc_open_snapshot(side->writer, SNAPSHOT));
	bench_compare(bench_result("redis_get"), (struct bench_side){get_again, side},
		      (struct bench_side){redis_get_again, side}, N_PAIRS, 1);
	kvc_seq_free(side->seq);
	kvc_seq_free(other);
}

void bench_group_redis(void)
{
	struct redis_server server;
	struct bench_helper writer;
	struct side side;

	redis_start(&server);
	writer = bench_helper_start(write_blocks, &server);
	bench_hear(writer.fd);
	side_open(&side, &server);
	side.other = writer.fd;
	read_blocks(&side);
	side_close(&side);
	bench_tell(writer.fd, WRITER_END);
	bench_helper_stop(&writer);
	redis_stop(&server);
}
