/*
 * kvcbench: how fast kvcached is, against references that run beside it.
 *
 * Starts a private daemon, runs each group of rows in a process of its own (bench.h), prints the
 * table and, with --json, writes the same as a list of objects. Every row is there, also one that
 * misses its limit or could not be measured; that is no failure of the program. Exit status 1: a
 * row has no number; 2: wrong use, or no daemon.
 */
#include <stdio.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/group.h"
#include "tests/support/daemon.h"
#include "tests/support/tmpdir.h"

static const struct bench_group groups[] = {
	{bench_group_data, {"token_commit", "commit_only", "commit_batch", "fork_first_write"}},
	{bench_group_rollback, {"rollback_1k", "rollback_128k"}},
	{bench_group_local, {"fork_local_4k", "fork_local_128k"}},
	{bench_group_calls, {"rpc", "snapshot_4k", "snapshot_128k", "fork_4k", "fork_128k"}},
	{bench_group_open, {"open_cached", "open_new"}},
	{bench_group_commands, {"commands"}},
	{bench_group_memory, {"memory_table", "memory_forks"}},
	{bench_group_quantise,
	 {"quantise_int8", "quantise_u8", "quantise_u4", "quantise_q4", "quantise_fp8"}},
	{bench_group_dequantise,
	 {"dequantise_int8", "dequantise_u8", "dequantise_u4", "dequantise_q4", "dequantise_fp8"}},
	{bench_group_undo, {"undo_update", "undo_rollback"}},
	{bench_group_flat, {"undo_flat", "replay_flat"}},
	{bench_group_replay,
	 {"replay_update", "replay_rollback_append", "replay_rollback_scatter"}},
	{bench_group_fold, {"fold"}},
	{bench_group_size, {"bytes_per_token_int8", "bytes_per_token_u8", "bytes_per_token_u4"}},
	{bench_group_samples, {"samples"}},
	{bench_group_attend_int8,
	 {"attend_int8_g1", "attend_int8_g1_t2", "attend_int8_g4", "attend_int8_g4_t2"}},
	{bench_group_attend_bf16,
	 {"attend_bf16_g1", "attend_bf16_g1_t2", "attend_bf16_g4", "attend_bf16_g4_t2"}},
	{bench_group_attend_u8,
	 {"attend_u8_g1", "attend_u8_g1_t2", "attend_u8_g4", "attend_u8_g4_t2"}},
	{bench_group_attend_fp8,
	 {"attend_fp8_g1", "attend_fp8_g1_t2", "attend_fp8_g4", "attend_fp8_g4_t2"}},
	{bench_group_attend_u4,
	 {"attend_u4_g1", "attend_u4_g1_t2", "attend_u4_g4", "attend_u4_g4_t2"}},
	{bench_group_attend_q4,
	 {"attend_q4_g1", "attend_q4_g1_t2", "attend_q4_g4", "attend_q4_g4_t2"}},
	{bench_group_attend_versus, {"attend_int8_vs_bf16_g1", "attend_int8_vs_bf16_g4"}},
	{bench_group_attend_overlay, {"attend_overlay"}},
	{bench_group_attend_fork, {"attend_fork"}},
	{bench_group_attend_linear, {"attend_linear"}},
	{bench_group_attend_prefill, {"attend_prefill"}},
	{bench_group_token_rate, {"token_rate_512", "token_rate_2k"}},
	{bench_group_h2o, {"h2o_step"}},
	{bench_group_attend_peak, {"peak"}},
	{bench_group_disk, {"offload", "fetch", "io_cpu"}},
	{bench_group_restart_store, {"restart_store"}},
	{bench_group_io, {"io_write", "io_read", "io_cpu_engine"}},
	{bench_group_restart, {"restart"}},
	{bench_group_redis, {"redis_put", "redis_get_first", "redis_get"}},
};

struct options {
	const char *json;
	const char *only;
};

static int usage(FILE *out)
{
	fprintf(out, "usage: kvcbench [--json FILE] [--only TEXT]\n"
		     "Measures kvcached. --only: groups with a row whose name contains TEXT.\n");
	return out == stdout ? 0 : 2;
}

static bool is_wanted(const struct bench_group *group, const char *only)
{
	for (size_t i = 0; i < BENCH_GROUP_ROWS && group->rows[i]; i++)
		if (!only || strstr(group->rows[i], only))
			return true;
	return false;
}

static int run(const struct options *options)
{
	/* Pools for the longest caches; memory that is not used is not taken. */
	static const char *const arguments[] = {"--pool-bytes", "2560M", "--log-level", "warn",
						NULL};
	struct kt_daemon *daemon;
	int rc = 0;

	kt_tmproot_make();
	daemon = kt_daemon_start(arguments);
	if (daemon) {
		bench_runtime_dir = kt_daemon_dir(daemon);
		for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
			if (is_wanted(&groups[i], options->only))
				bench_group_run(&groups[i]);
		bench_print(options->only);
		rc = kt_daemon_stop(daemon) ? 2 : bench_complete(options->only) ? 0 : 1;
	}
	kt_tmproot_remove();
	return daemon ? rc : 2;
}

int main(int argc, char **argv)
{
	struct options options = {0};
	int rc;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0)
			return usage(stdout);
		if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
			options.json = argv[++i];
		else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
			options.only = argv[++i];
		else
			return usage(stderr);
	}
	bench_results_make();
	rc = run(&options);
	if (options.json && bench_write_json(options.json))
		rc = 2;
	return rc;
}
