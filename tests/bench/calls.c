/*
 * Commands of one client: nothing, snapshots, forks, each at a length that ends with a block and
 * at one that does not. The echo is as long as the command, both ways. Between two snapshots the
 * sequence's last token is written anew, so that each freezes something.
 */
#include "client/seq.h"
#include "tests/bench/bench.h"

#define PAIRS 201

struct command {
	struct bench_cache *cache;
	struct bench_echo *echo;
	kvc_seq *seq;
};

/* The time since begin, after a timed call: the echo is to be as long as that. */
static double timed(struct command *command, uint64_t begin)
{
	double ns = bench_since_ns(begin);

	bench_echo_like_last_call(command->echo);
	return ns;
}

static uint64_t n_copied_bytes(const struct command *command)
{
	return atomic_load(&command->cache->writer->shm->n_copied_bytes);
}

static double ping(void *arg)
{
	struct command *command = arg;
	uint64_t begin = bench_now_ns();

	BENCH_CHECK(kvc_ping(command->cache->session) == 0);
	return timed(command, begin);
}

/* What goes before a snapshot: the copying leaves little in the cache. */
static void write_last_anew(struct command *command)
{
	BENCH_CHECK(kvc_rollback_remove(command->seq, 1) == 0);
	BENCH_CHECK(kvc_reserve(command->seq, 1) == 0);
	bench_append(command->cache, command->seq, 1);
}

static double take_snapshot(void *arg)
{
	struct command *command = arg;
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = "bench/snapshot"};
	uint64_t begin, n_copied;
	double ns;

	write_last_anew(command);
	n_copied = n_copied_bytes(command);
	begin = bench_now_ns();
	BENCH_CHECK(kvc_snapshot(command->seq, &options, NULL) == 0);
	ns = timed(command, begin);
	BENCH_CHECK(n_copied == n_copied_bytes(command));
	BENCH_CHECK(kvc_remove(command->cache->session, "bench/snapshot") == 0);
	return ns;
}

/* The echo in the same state of the cache. */
static double echo_after_writing(void *arg)
{
	struct command *command = arg;

	write_last_anew(command);
	return bench_echo_call(command->echo);
}

static double echo(void *arg)
{
	struct command *command = arg;

	return bench_echo_call(command->echo);
}

static double fork_base(void *arg)
{
	struct command *command = arg;
	uint64_t n_copied = n_copied_bytes(command);
	uint64_t begin = bench_now_ns();
	kvc_seq *fork = kvc_fork(command->cache->writer, "bench/base", NULL);
	double ns = timed(command, begin);

	BENCH_CHECK(fork && n_copied == n_copied_bytes(command));
	BENCH_CHECK(kvc_seq_drop(fork) == 0);
	return ns;
}

static void measure(const char *name, bench_call *call, bench_call *reference,
		    struct command *command)
{
	struct bench_result result;

	bench_compare(&result, (struct bench_side){call, command},
		      (struct bench_side){reference, command}, PAIRS, 1000);
	bench_keep_worse(bench_result(name), &result);
}

static void publish_base(struct command *command)
{
	struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = "bench/base", .replace = 1};

	BENCH_CHECK(kvc_snapshot(command->seq, &options, NULL) == 0);
}

static void measure_length(const char *snapshot, const char *fork, uint32_t n_layers,
			   uint64_t n_tokens, struct bench_echo *an_echo)
{
	struct bench_cache cache;
	struct command command = {.cache = &cache, .echo = an_echo};

	bench_cache_open(&cache, n_layers, KVC_RAW, BENCH_SOURCE_BYTES);
	command.seq = bench_seq(&cache, n_tokens, 1, NULL);
	for (int i = 0; i < 2; i++) {
		publish_base(&command);
		measure(snapshot, take_snapshot, echo_after_writing, &command);
		measure(fork, fork_base, echo, &command);
		BENCH_CHECK(kvc_rollback_remove(command.seq, 5) == 0);
	}
	BENCH_CHECK(kvc_remove(cache.session, "bench/base") == 0);
	BENCH_CHECK(kvc_seq_drop(command.seq) == 0);
	bench_cache_close(&cache);
}

void bench_group_calls(void)
{
	struct bench_echo an_echo;
	struct bench_cache cache;
	struct command command = {.cache = &cache, .echo = &an_echo};

	bench_echo_start(&an_echo);
	bench_cache_open(&cache, 1, KVC_RAW, BENCH_SOURCE_BYTES);
	bench_echo_connect(&an_echo);
	ping(&command);
	bench_compare(bench_result("rpc"), (struct bench_side){ping, &command},
		      (struct bench_side){echo, &command}, 2001, 1000);
	bench_cache_close(&cache);
	measure_length("snapshot_4k", "fork_4k", BENCH_LAYERS, 4096, &an_echo);
	measure_length("snapshot_128k", "fork_128k", 1, 131072, &an_echo);
	bench_echo_stop(&an_echo);
}
