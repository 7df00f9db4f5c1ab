/*
 * A second process opens a snapshot that the first has published, and reads its first byte: with
 * the arena mapped already because another snapshot in it is open, and, each time in a new
 * session, with an arena that it has never seen. The second process is this one; a helper is the
 * first.
 */
#include "tests/bench/bench.h"

#define TOKENS 4091

struct opening {
	struct bench_cache cache;
	struct bench_echo echo;
};

static void publish(int fd, void *arg)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = "bench/open"};
	struct kvc_snapshot_options other = {.size = sizeof(other), .name = "bench/other"};
	struct bench_cache cache;
	kvc_seq *seq;

	(void)arg;
	bench_cache_open(&cache, BENCH_LAYERS, KVC_RAW, BENCH_SOURCE_BYTES);
	seq = bench_seq(&cache, TOKENS, 0, NULL);
	BENCH_CHECK(kvc_snapshot(seq, &options, NULL) == 0);
	BENCH_CHECK(kvc_rollback_remove(seq, 1) == 0);
	BENCH_CHECK(kvc_snapshot(seq, &other, NULL) == 0);
	bench_tell(fd, 1);
	bench_hear(fd);
	BENCH_CHECK(kvc_remove(cache.session, "bench/open") == 0);
	BENCH_CHECK(kvc_remove(cache.session, "bench/other") == 0);
	BENCH_CHECK(kvc_seq_drop(seq) == 0);
	bench_cache_close(&cache);
	bench_tell(fd, 1);
}

static double open_and_read(struct opening *opening, kvc_writer *writer, char first_byte)
{
	uint64_t begin = bench_now_ns();
	kvc_seq *seq = kvc_open_snapshot(writer, "bench/open");
	struct kvc_run run;
	double ns;

	BENCH_CHECK(seq && kvc_view_runs(seq, 0, &run, 1) >= 1);
	BENCH_CHECK(*(const volatile char *)run.k == first_byte);
	ns = bench_since_ns(begin);
	kvc_seq_free(seq);
	bench_echo_like_last_call(&opening->echo);
	return ns;
}

static double open_cached(void *arg)
{
	struct opening *opening = arg;

	return open_and_read(opening, opening->cache.writer, opening->cache.source[0]);
}

static double open_new(void *arg)
{
	struct opening *opening = arg;
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = bench_runtime_dir};
	kvc_session *session = kvc_open(&options);
	kvc_writer *writer;
	double ns;

	BENCH_CHECK(session && (writer = kvc_writer_new(session)) != NULL);
	ns = open_and_read(opening, writer, opening->cache.source[0]);
	kvc_close(session);
	return ns;
}

void bench_group_open(void)
{
	struct opening opening;
	struct bench_side echo = {bench_echo_call, &opening.echo};
	struct bench_helper owner;
	kvc_seq *other; /* keeps the arena mapped */

	bench_echo_start(&opening.echo);
	owner = bench_helper_start(publish, NULL);
	bench_hear(owner.fd);
	bench_cache_open(&opening.cache, BENCH_LAYERS, KVC_RAW, BENCH_SOURCE_BYTES);
	bench_echo_connect(&opening.echo);
	BENCH_CHECK(other = kvc_open_snapshot(opening.cache.writer, "bench/other"));
	bench_compare(bench_result("open_cached"), (struct bench_side){open_cached, &opening}, echo,
		      401, 1000);
	bench_compare(bench_result("open_new"), (struct bench_side){open_new, &opening}, echo, 101,
		      1000);
	kvc_seq_free(other);
	bench_cache_close(&opening.cache);
	bench_tell(owner.fd, 1);
	bench_hear(owner.fd);
	bench_helper_stop(&owner);
	bench_echo_stop(&opening.echo);
}
