/*
 * The core is killed with 4 GiB of host caches in more than 100,000 blocks: how long until its
 * successor answers and serves reads again.
 *
 * Sixteen sequences, each also as a snapshot whose digests are known, written by processes that
 * have gone. Timed is from the kill until a session that was there before has had an answer, and a
 * new one has attached, opened a snapshot and read a byte of its first and of its last block. What
 * the core does behind that (locking, verification) is waited for between two kills, for a machine
 * that has just begun to work is another one. With less memory at hand the caches are smaller, and
 * the row says so. The daemon is the row's own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/rpc.h"
#include "tests/bench/bench.h"
#include "tests/support/daemon.h"

#define N_SEQS 16u
#define BLOCK_TOKENS 8u
#define TOKEN_BYTES (2 * BENCH_ROW_BYTES)
#define ALL_BYTES (UINT64_C(4) << 30)
#define SPARE_BYTES (UINT64_C(3) << 30) /* for everything else on the machine */
#define N_KILLS 5

/* MemAvailable. */
static uint64_t available_bytes(void)
{
	unsigned long long kib = 0;
	char line[256];
	FILE *file = fopen("/proc/meminfo", "re");

	BENCH_CHECK(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	fclose(file);
	return kib * 1024;
}

/* As much of it as the machine has room for, down to a sixty-fourth. */
static uint64_t bytes_to_use(void)
{
	uint64_t free_bytes = available_bytes(), bytes = ALL_BYTES;

	while (bytes > ALL_BYTES / 64 && bytes + SPARE_BYTES > free_bytes)
		bytes /= 2;
	return bytes;
}

struct caches {
	uint64_t bytes, seq_tokens;
	struct kt_daemon *daemon;
	const char *dir;
	kvc_session *session; /* there before the kills */
};

static void open_cache(struct bench_cache *cache)
{
	const struct kvc_layer layer = {BENCH_HEADS, BENCH_WIDTH, BENCH_WIDTH, 0};
	struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = "restart",
		.n_layers = 1,
		.layers = &layer,
		.dtype = KVC_BF16,
		.block_tokens = BLOCK_TOKENS,
	};
	struct kvc_session_options session = {.size = sizeof(session),
					      .runtime_dir = bench_runtime_dir};

	*cache = (struct bench_cache){.n_layers = 1};
	BENCH_CHECK(cache->session = kvc_open(&session));
	BENCH_CHECK(cache->layout = kvc_layout_register(cache->session, &options));
	BENCH_CHECK(cache->writer = kvc_writer_new(cache->session));
	bench_cache_source(cache, BENCH_SOURCE_BYTES);
}

/* A process that fills the pool and goes. */
static void fill(int fd, void *arg)
{
	const struct caches *caches = arg;
	struct bench_cache cache;
	char name[32];

	open_cache(&cache);
	for (unsigned i = 0; i < N_SEQS; i++) {
		struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};
		kvc_seq *seq;

		snprintf(name, sizeof(name), "restart/seq-%u", i);
		seq = bench_seq(&cache, caches->seq_tokens, 0, name);
		snprintf(name, sizeof(name), "restart/%u", i);
		BENCH_CHECK(kvc_snapshot(seq, &options, NULL) == 0);
		BENCH_CHECK(kvc_verify(cache.session, name, NULL, NULL, NULL) == 0);
	}
	bench_cache_close(&cache);
	bench_tell(fd, 1);
}

/* A byte of the first and of the last block of a layer. */
static void read_two(kvc_seq *seq, uint64_t n_tokens)
{
	struct kvc_run runs[64];
	const volatile char *k;
	int64_t n = kvc_view_runs(seq, 0, runs, 64);

	BENCH_CHECK(n > 0 && n <= 64);
	k = runs[0].k;
	BENCH_CHECK(k[1] == 0x3f || k[1] == (char)0xbf);
	BENCH_CHECK(runs[n - 1].first_token + runs[n - 1].n_tokens == n_tokens);
	k = (const char *)runs[n - 1].k + (runs[n - 1].n_tokens - 1) * runs[n - 1].k_row_bytes;
	BENCH_CHECK(k[1] == 0x3f || k[1] == (char)0xbf);
}

static void serve_anew(const struct caches *caches, unsigned number)
{
	struct kvc_session_options options = {.size = sizeof(options), .runtime_dir = caches->dir};
	kvc_session *session;
	kvc_writer *writer;
	kvc_seq *seq;
	char name[32];

	snprintf(name, sizeof(name), "restart/%u", number % N_SEQS);
	BENCH_CHECK(session = kvc_open(&options));
	BENCH_CHECK(writer = kvc_writer_new(session));
	BENCH_CHECK(seq = kvc_open_snapshot(writer, name));
	read_two(seq, caches->seq_tokens);
	kvc_seq_free(seq);
	kvc_close(session);
}

/* What the core has to do behind its last start; 0: nothing is left. */
static uint64_t left_bytes(const struct caches *caches, uint64_t *all_bytes)
{
	Kv__Wire__Reply *reply = bench_status(caches->session);
	const Kv__Wire__StatusResult *status = reply->status_result;
	const Kv__Wire__StartInfo *start = status->start;
	uint64_t left;

	*all_bytes = start ? start->to_lock_bytes + start->to_verify_bytes : 0;
	left = *all_bytes - (start ? start->locked_bytes + start->verified_bytes : 0) +
	       status->pool_quarantined_bytes;
	rpc_reply_free(reply);
	return left;
}

/* Until nothing is left; a core that has begun has as much as there is. */
static void wait_until_settled(const struct caches *caches)
{
	const struct timespec pause = {.tv_nsec = 10000000};
	uint64_t all_bytes = 0;

	while (left_bytes(caches, &all_bytes))
		nanosleep(&pause, NULL);
	BENCH_CHECK(all_bytes == 0 || all_bytes >= caches->bytes);
}

static double kill_core(void *arg)
{
	static unsigned number;
	struct caches *caches = arg;
	pid_t core = kt_daemon_core(caches->daemon);
	uint64_t begin;
	double ns;

	wait_until_settled(caches);
	BENCH_CHECK(core > 0);
	begin = bench_now_ns();
	BENCH_CHECK(kill(core, SIGKILL) == 0);
	BENCH_CHECK(kvc_ping(caches->session) == 0);
	serve_anew(caches, number++);
	ns = bench_since_ns(begin);
	return ns;
}

static void start(struct caches *caches)
{
	struct kvc_session_options options = {.size = sizeof(options)};
	char pool[32];
	const char *const arguments[] = {"--pool-bytes", pool, "--log-level", "error", NULL};
	struct bench_helper filler;

	caches->bytes = bytes_to_use();
	caches->seq_tokens = caches->bytes / N_SEQS / TOKEN_BYTES;
	snprintf(pool, sizeof(pool), "%llu", (unsigned long long)(caches->bytes + (256u << 20)));
	BENCH_CHECK(caches->daemon = kt_daemon_start(arguments));
	bench_runtime_dir = caches->dir = options.runtime_dir = kt_daemon_dir(caches->daemon);
	filler = bench_helper_start(fill, caches);
	bench_hear(filler.fd);
	bench_helper_stop(&filler);
	BENCH_CHECK(caches->session = kvc_open(&options));
}

void bench_group_restart(void)
{
	struct bench_result *result = bench_result("restart");
	struct caches caches = {0};

	start(&caches);
	bench_alone(result, (struct bench_side){kill_core, &caches}, N_KILLS, 1e9);
	if (caches.bytes < ALL_BYTES)
		snprintf(result->note, sizeof(result->note),
			 "with %llu MiB in %llu blocks: there is no memory for more",
			 (unsigned long long)caches.bytes >> 20,
			 (unsigned long long)(caches.bytes / TOKEN_BYTES / BLOCK_TOKENS));
	kvc_close(caches.session);
	kt_daemon_stop(caches.daemon);
}
