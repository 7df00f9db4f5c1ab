/*
 * Eight clients, each a process: fork a snapshot, append and commit a token, roll it back, free
 * the fork; the messages that all of them sent in a slice of time, against the round trips of as
 * many clients with one echo in a slice of the same length. The slices take turns.
 */
#include "tests/bench/bench.h"

#define CLIENTS 8
#define TOKENS 91
#define SLICES 25
#define SLICE_NS 100000000u

enum { ECHO = 1, WORK = 2, END = 3 };

static void publish(struct bench_cache *cache)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = "bench/commands"};
	kvc_seq *seq = bench_seq(cache, TOKENS, 0, NULL);

	BENCH_CHECK(kvc_snapshot(seq, &options, NULL) == 0);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
}

static void work(struct bench_cache *cache, struct bench_echo *echo)
{
	kvc_seq *seq = kvc_fork(cache->writer, "bench/commands", NULL);

	BENCH_CHECK(seq && kvc_length(seq) == TOKENS);
	bench_echo_like_last_call(echo);
	BENCH_CHECK(kvc_reserve(seq, 1) == 0);
	bench_append(cache, seq, 1);
	BENCH_CHECK(kvc_rollback_remove(seq, 1) == 0);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
}

/* One slice; messages and nanoseconds go to the group. */
static void slice(int fd, uint64_t what, struct bench_cache *cache, struct bench_echo *echo)
{
	uint64_t before = bench_meter.n_requests;
	uint64_t begin = bench_now_ns(), end = begin;

	while (end - begin < SLICE_NS) {
		if (what == ECHO)
			bench_echo_call(echo);
		else
			work(cache, echo);
		end = bench_now_ns();
	}
	bench_tell(fd, bench_meter.n_requests - before);
	bench_tell(fd, end - begin);
}

static void client(int fd, void *arg)
{
	struct bench_echo *echo = arg;
	struct bench_cache cache;
	uint64_t what;

	bench_cache_open(&cache, 1, KVC_RAW, BENCH_SOURCE_BYTES);
	bench_echo_connect(echo);
	bench_tell(fd, 1);
	while ((what = bench_hear(fd)) != END)
		slice(fd, what, &cache, echo);
	bench_cache_close(&cache);
	bench_tell(fd, 1);
}

/* Messages a second of all clients. */
static double rate(const struct bench_helper *clients, uint64_t what)
{
	double sum = 0;

	for (int i = 0; i < CLIENTS; i++)
		bench_tell(clients[i].fd, what);
	for (int i = 0; i < CLIENTS; i++) {
		uint64_t n = bench_hear(clients[i].fd), ns = bench_hear(clients[i].fd);

		sum += (double)n / (double)ns * 1e9;
	}
	return sum;
}

static double work_rate(void *clients)
{
	return rate(clients, WORK);
}

static double echo_rate(void *clients)
{
	return rate(clients, ECHO);
}

void bench_group_commands(void)
{
	struct bench_helper clients[CLIENTS];
	struct bench_cache cache;
	struct bench_echo echo;

	bench_echo_start(&echo);
	for (int i = 0; i < CLIENTS; i++)
		clients[i] = bench_helper_start(client, &echo);
	for (int i = 0; i < CLIENTS; i++)
		bench_hear(clients[i].fd);
	bench_cache_open(&cache, 1, KVC_RAW, BENCH_SOURCE_BYTES);
	publish(&cache);
	bench_compare(bench_result("commands"), (struct bench_side){work_rate, clients},
		      (struct bench_side){echo_rate, clients}, SLICES, 1);
	for (int i = 0; i < CLIENTS; i++) {
		bench_tell(clients[i].fd, END);
		bench_hear(clients[i].fd);
		bench_helper_stop(&clients[i]);
	}
	BENCH_CHECK(kvc_remove(cache.session, "bench/commands") == 0);
	bench_cache_close(&cache);
	bench_echo_stop(&echo);
}
