/*
 * The rows and their limits, the table on the terminal, the JSON file.
 *
 * Every row is in both, also one that misses and one that could not be measured: its numbers are
 * null then, and a note says why.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/bench/bench.h"

/* clang-format off */
const struct bench_row bench_rows[] = {
	{"rpc",              "us",    BENCH_RATIO, false, 1.6,  "round trip of a command that does nothing", "echo"},
	{"token_commit",     "us",    BENCH_RATIO, false, 1.10, "a token written layer by layer and committed", "memcpy"},
	{"commit_only",      "us",    BENCH_VALUE, false, 0.1,  "an update without data, begun and committed", NULL},
	{"commit_batch",     "us",    BENCH_VALUE, false, 1,    "commit of 32 sequences without data", NULL},
	{"rollback_1k",      "us",    BENCH_VALUE, false, 1,    "rollback of 1 or 100 of 1k tokens", NULL},
	{"rollback_128k",    "us",    BENCH_RATIO, false, 1.5,  "the same of 128k tokens", "rollback_1k"},
	{"snapshot_4k",      "us",    BENCH_RATIO, false, 2.0,  "snapshot of 4k tokens by the daemon", "echo"},
	{"snapshot_128k",    "us",    BENCH_RATIO, false, 2.0,  "the same of 128k tokens", "echo"},
	{"fork_4k",          "us",    BENCH_RATIO, false, 2.0,  "fork of 4k tokens by the daemon", "echo"},
	{"fork_128k",        "us",    BENCH_RATIO, false, 2.0,  "the same of 128k tokens", "echo"},
	{"fork_local_4k",    "us",    BENCH_VALUE, false, 5,    "fork inside the session and its drop, 4k tokens", NULL},
	{"fork_local_128k",  "us",    BENCH_VALUE, false, 25,   "the same of 128k tokens", NULL},
	{"fork_first_write", "us",    BENCH_RATIO, false, 1.3,  "first append of a fork inside a block", "memcpy"},
	{"open_cached",      "us",    BENCH_RATIO, false, 2,    "a snapshot opened and a byte of it read", "echo"},
	{"open_new",         "us",    BENCH_RATIO, false, 6,    "the same when its arena is to be mapped", "echo"},
	{"commands",         "1/s",   BENCH_RATIO, true,  0.5,  "messages of 8 clients at work", "echo of 8 clients"},
	{"memory_table",     "bytes", BENCH_VALUE, false, 64,   "bookkeeping a block and sequence", NULL},
	{"memory_forks",     "KiB",   BENCH_RATIO, false, 1.02, "live bytes of four forks that did not write", "one"},
	{"quantise_int8",    "GB/s", BENCH_RATIO, true,  0.5,  "vectors stored as int8, bf16 of width 128, one core", "memcpy"},
	{"quantise_u8",      "GB/s", BENCH_RATIO, true,  0.5,  "vectors stored as u8, bf16 of width 128, one core", "memcpy"},
	{"quantise_u4",      "GB/s", BENCH_RATIO, true,  0.35, "vectors stored as u4, bf16 of width 128, one core", "memcpy"},
	{"quantise_q4",      "GB/s", BENCH_RATIO, true,  0.35, "vectors stored as q4, bf16 of width 128, one core", "memcpy"},
	{"quantise_fp8",     "GB/s", BENCH_RATIO, true,  0.35, "vectors stored as fp8, bf16 of width 128, one core", "memcpy"},
	{"dequantise_int8",  "GB/s", BENCH_RATIO, true,  0.5,  "vectors read from int8, bf16 of width 128, one core", "memcpy"},
	{"dequantise_u8",    "GB/s", BENCH_RATIO, true,  0.5,  "vectors read from u8, bf16 of width 128, one core", "memcpy"},
	{"dequantise_u4",    "GB/s", BENCH_RATIO, true,  0.35, "vectors read from u4, bf16 of width 128, one core", "memcpy"},
	{"dequantise_q4",    "GB/s", BENCH_RATIO, true,  0.35, "vectors read from q4, bf16 of width 128, one core", "memcpy"},
	{"dequantise_fp8",   "GB/s", BENCH_RATIO, true,  0.35, "vectors read from fp8, bf16 of width 128, one core", "memcpy"},
	{"undo_update",      "us",    BENCH_RATIO, false, 1.6,  "scatter update of a token, int8, 32 layers x 8 heads", "quantising into the slots"},
	{"undo_rollback",    "us",    BENCH_RATIO, false, 3,    "its rollback", "copying the stored bytes"},
	{"undo_flat",        "us",    BENCH_RATIO, false, 1.5,  "update and rollback of 8 heads at 128k tokens", "in turn in 128 sequences of 1k"},
	{"replay_flat",      "us",    BENCH_RATIO, false, 1.5,  "the same with a replay journal", "in turn in 128 sequences of 1k"},
	{"replay_update",    "us",    BENCH_RATIO, false, 1.6,  "scatter update of a token into a replay journal", "memcpy"},
	{"replay_rollback_append", "us", BENCH_VALUE, false, 1, "rollback of a token in a replay journal", NULL},
	{"replay_rollback_scatter", "us", BENCH_VALUE, false, 20, "the same of a scatter update of 256 rows", NULL},
	{"fold",             "us",    BENCH_RATIO, false, 1.5,  "256 tokens of a replay journal folded into int8", "quantising into the slots"},
	{"bytes_per_token_int8", "bytes", BENCH_VALUE, false, 67225, "everything that 4k tokens take as int8, a token", NULL},
	{"bytes_per_token_u8", "bytes", BENCH_VALUE, false, 70328, "the same as u8", NULL},
	{"bytes_per_token_u4", "bytes", BENCH_VALUE, false, 37232, "the same as u4", NULL},
	{"samples",          "s",     BENCH_RATIO, false, 1.05, "five samples of a prompt of 1,500 tokens, a process each", "prompt once, five decodes"},
	{"attend_int8_g1",      "us",    BENCH_RATIO, false, 2.0,  "attention of a token over 32k, int8, one query head a group", "sum of the bytes"},
	{"attend_int8_g1_t2",   "us",    BENCH_RATIO, false, 2.0,  "attention of a token over 32k, int8, one query head a group, two threads", "sum of the bytes"},
	{"attend_int8_g4",      "us",    BENCH_RATIO, false, 3.5,  "attention of a token over 32k, int8, four query heads a group", "sum of the bytes"},
	{"attend_int8_g4_t2",   "us",    BENCH_RATIO, false, 3.5,  "attention of a token over 32k, int8, four query heads a group, two threads", "sum of the bytes"},
	{"attend_bf16_g1",      "us",    BENCH_RATIO, false, 2.0,  "attention of a token over 32k, bf16, one query head a group", "sum of the bytes"},
	{"attend_bf16_g1_t2",   "us",    BENCH_RATIO, false, 2.0,  "attention of a token over 32k, bf16, one query head a group, two threads", "sum of the bytes"},
	{"attend_bf16_g4",      "us",    BENCH_RATIO, false, 3.5,  "attention of a token over 32k, bf16, four query heads a group", "sum of the bytes"},
	{"attend_bf16_g4_t2",   "us",    BENCH_RATIO, false, 3.5,  "attention of a token over 32k, bf16, four query heads a group, two threads", "sum of the bytes"},
	{"attend_u8_g1",        "us",    BENCH_RATIO, false, 3,    "attention of a token over 32k, u8, one query head a group", "sum of the bytes"},
	{"attend_u8_g1_t2",     "us",    BENCH_RATIO, false, 3,    "attention of a token over 32k, u8, one query head a group, two threads", "sum of the bytes"},
	{"attend_u8_g4",        "us",    BENCH_RATIO, false, 5,    "attention of a token over 32k, u8, four query heads a group", "sum of the bytes"},
	{"attend_u8_g4_t2",     "us",    BENCH_RATIO, false, 5,    "attention of a token over 32k, u8, four query heads a group, two threads", "sum of the bytes"},
	{"attend_fp8_g1",       "us",    BENCH_RATIO, false, 3,    "attention of a token over 32k, fp8, one query head a group", "sum of the bytes"},
	{"attend_fp8_g1_t2",    "us",    BENCH_RATIO, false, 3,    "attention of a token over 32k, fp8, one query head a group, two threads", "sum of the bytes"},
	{"attend_fp8_g4",       "us",    BENCH_RATIO, false, 5,    "attention of a token over 32k, fp8, four query heads a group", "sum of the bytes"},
	{"attend_fp8_g4_t2",    "us",    BENCH_RATIO, false, 5,    "attention of a token over 32k, fp8, four query heads a group, two threads", "sum of the bytes"},
	{"attend_u4_g1",        "us",    BENCH_RATIO, false, 4,    "attention of a token over 32k, u4, one query head a group", "sum of the bytes"},
	{"attend_u4_g1_t2",     "us",    BENCH_RATIO, false, 4,    "attention of a token over 32k, u4, one query head a group, two threads", "sum of the bytes"},
	{"attend_u4_g4",        "us",    BENCH_RATIO, false, 7,    "attention of a token over 32k, u4, four query heads a group", "sum of the bytes"},
	{"attend_u4_g4_t2",     "us",    BENCH_RATIO, false, 7,    "attention of a token over 32k, u4, four query heads a group, two threads", "sum of the bytes"},
	{"attend_q4_g1",        "us",    BENCH_RATIO, false, 4,    "attention of a token over 32k, q4, one query head a group", "sum of the bytes"},
	{"attend_q4_g1_t2",     "us",    BENCH_RATIO, false, 4,    "attention of a token over 32k, q4, one query head a group, two threads", "sum of the bytes"},
	{"attend_q4_g4",        "us",    BENCH_RATIO, false, 7,    "attention of a token over 32k, q4, four query heads a group", "sum of the bytes"},
	{"attend_q4_g4_t2",     "us",    BENCH_RATIO, false, 7,    "attention of a token over 32k, q4, four query heads a group, two threads", "sum of the bytes"},
	{"attend_int8_vs_bf16_g1", "1/s",   BENCH_RATIO, true,  1.6,  "steps over 32k tokens, int8, one query head a group", "bf16"},
	{"attend_int8_vs_bf16_g4", "1/s",   BENCH_RATIO, true,  1.15, "the same, four query heads a group", "bf16"},
	{"attend_overlay",      "us",    BENCH_RATIO, false, 1.10, "256 journal rows over 32k tokens of int8", "none"},
	{"attend_fork",         "us",    BENCH_RATIO, false, 1.05, "a fork of a fork, three runs, 32k tokens", "one run"},
	{"attend_linear",       "ns",    BENCH_RATIO, false, 1.15, "time a token of 1 M tokens", "of 100k"},
	{"attend_prefill",      "us",    BENCH_RATIO, false, 1.5,  "512 queries over 4k tokens, four query heads a group", "f32 matrix product"},
	{"token_rate_512", "1/s", BENCH_RATIO, true, 0.97, "tokens decoded by the example model at 512, int8", "raw bf16"},
	{"token_rate_2k", "1/s", BENCH_RATIO, true, 1.0, "the same at 2,048", "raw bf16"},
	{"h2o_step",            "us",    BENCH_RATIO, false, 4,    "h2o at 8k slots: a token chosen for, written, scored", "scores read once"},
	{"peak",                "KiB",   BENCH_RATIO, false, 1.03, "most memory of a process at 131,072 tokens, four layers", "bytes of the cache"},
	{"offload",             "GB/s",  BENCH_RATIO, true,  0.85, "1 GiB in blocks of 2 MiB saved, durable", "fio, direct"},
	{"fetch",               "GB/s",  BENCH_RATIO, true,  0.85, "the same loaded, all verified", "fio, direct"},
	{"io_cpu",              "us",    BENCH_RATIO, false, 1.1,  "CPU time of a MiB loaded, hashes apart", "fio, direct"},
	{"restart_store",       "s",     BENCH_VALUE, false, 5,    "a store of 1 TiB with 500,000 saved blocks opens", NULL},
	{"io_write",            "GB/s",  BENCH_RATIO, true,  0.85, "1 GiB written by the I/O engine, 2 MiB, eight at a time, direct", "fio"},
	{"io_read",             "GB/s",  BENCH_RATIO, true,  0.85, "the same read", "fio"},
	{"io_cpu_engine",       "us",    BENCH_RATIO, false, 1.1,  "CPU time of a MiB read by the I/O engine", "fio"},
	{"restart",             "s",     BENCH_VALUE, false, 1,    "the core killed with 4 GiB in 131,072 blocks: until reads are served", NULL},
	{"redis_put",           "GB/s",  BENCH_RATIO, true,  2,    "blocks of 2 MiB stored so that another process can read them", "Redis"},
	{"redis_get_first",     "GB/s",  BENCH_RATIO, true,  4,    "read by it for the first time, and checked", "Redis"},
	{"redis_get",           "GB/s",  BENCH_RATIO, true,  10,   "read by it again", "Redis"},
};
/* clang-format on */
const size_t bench_n_rows = sizeof(bench_rows) / sizeof(bench_rows[0]);

static struct bench_result *results;

void bench_results_make(void)
{
	results = mmap(NULL, sizeof(results[0]) * bench_n_rows, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (results == MAP_FAILED)
		abort();
	for (size_t i = 0; i < bench_n_rows; i++)
		snprintf(results[i].note, sizeof(results[i].note), "was not asked for");
}

struct bench_result *bench_result(const char *name)
{
	for (size_t i = 0; i < bench_n_rows; i++)
		if (strcmp(bench_rows[i].name, name) == 0)
			return &results[i];
	abort();
}

/* ---- people ------------------------------------------------------------------------------- */

static bool reaches(const struct bench_row *row, const struct bench_result *result)
{
	double got = row->field == BENCH_VALUE ? result->value : result->ratio;

	return result->measured && (row->at_least ? got >= row->limit : got <= row->limit);
}

static const char *number(char text[16], double value)
{
	snprintf(text, 16, value >= 1000 ? "%.0f" : value >= 10 ? "%.1f" : "%.3f", value);
	return text;
}

static void print_row(const struct bench_row *row, const struct bench_result *result)
{
	char value[16], reference[16] = "", ratio[16] = "", limit[24], bound[16];

	if (result->has_reference) {
		number(reference, result->reference_value);
		number(ratio, result->ratio);
	}
	snprintf(limit, sizeof(limit), "%s %s %g", row->field == BENCH_VALUE ? "value" : "ratio",
		 row->at_least ? ">=" : "<=", row->limit);
	snprintf(bound, sizeof(bound), "%s", reaches(row, result) ? "" : "  MISSES");
	if (result->measured)
		printf("%-23s %9s %9s %-5s %6s  %-14s%s\n%s%s%s", row->name,
		       number(value, result->value), reference, row->unit, ratio, limit, bound,
		       result->note[0] ? "  (" : "", result->note, result->note[0] ? ")\n" : "");
	else
		printf("%-23s not measured: %s\n", row->name, result->note);
}

static bool is_wanted(const struct bench_row *row, const char *only)
{
	return !only || strstr(row->name, only);
}

void bench_print(const char *only)
{
	unsigned n_rows = 0, n_reached = 0;

	printf("%-23s %9s %9s %-5s %6s  %s\n", "row", "value", "reference", "unit", "ratio",
	       "limit");
	for (size_t i = 0; i < bench_n_rows; i++) {
		if (!is_wanted(&bench_rows[i], only))
			continue;
		print_row(&bench_rows[i], &results[i]);
		n_rows++;
		n_reached += reaches(&bench_rows[i], &results[i]);
	}
	printf("%u of %u reached\n", n_reached, n_rows);
}

bool bench_complete(const char *only)
{
	for (size_t i = 0; i < bench_n_rows; i++)
		if (is_wanted(&bench_rows[i], only) && !results[i].measured)
			return false;
	return true;
}

/* ---- machines ----------------------------------------------------------------------------- */

static json_t *number_or_null(bool there, double value)
{
	return there ? json_real(value) : json_null();
}

int bench_write_json(const char *path)
{
	json_t *list = json_array();
	int rc;

	for (size_t i = 0; i < bench_n_rows; i++) {
		const struct bench_result *r = &results[i];
		bool compared = r->measured && r->has_reference;

		json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s?, s:o, s:o, s:s*}",
						      "name", bench_rows[i].name, "value",
						      number_or_null(r->measured, r->value), "unit",
						      bench_rows[i].unit, "reference",
						      bench_rows[i].reference, "reference_value",
						      number_or_null(compared, r->reference_value),
						      "ratio", number_or_null(compared, r->ratio),
						      "note", r->note[0] ? r->note : NULL));
	}
	rc = json_dump_file(list, path, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
	json_decref(list);
	if (rc)
		fprintf(stderr, "cannot write %s\n", path);
	return rc;
}
