/*
 * kvcachectl bench attend: how fast this machine attends over the cache, format by format, with
 * the daemon that runs: a step of one token over one layer (kvc_attend), against the plain read of
 * the same bytes (plain_read.h), in turns. Values are medians.
 *
 * Each format has a session of its own, so that its peak is that of the cache it names: the most
 * memory that the process had, shared memory counted once, before the plane to compare with was
 * made. What it makes is gone afterwards; an interrupt cancels.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/compute/attend.h"
#include "client/ctl/bench_value.h"
#include "client/ctl/demo.h"
#include "client/ctl/plain_read.h"
#include "client/ctl/progress.h"
#include "client/error.h"
#include "client/workers.h"
#include "proto/limits.h"

#define PAIRS 21
#define CHUNK_TOKENS 256 /* of an update */
#define TOKENS 32768
#define HEADS 8
#define GROUP 4
#define WIDTH 128
#define GROUP_MAX 64

struct attend_line {
	uint32_t format;
	uint64_t token_bytes, peak_bytes;
	double attend_s, read_s, ratio; /* ratio: median of those of the pairs */
};

struct attend_bench {
	struct ctl *ctl;
	uint32_t n_tokens, n_heads, group, width, n_threads;
	uint32_t formats[KV_FORMAT_MAX];
	size_t n_formats;
	struct attend_line lines[KV_FORMAT_MAX];
	uint16_t *rows; /* bf16 vectors of CHUNK_TOKENS tokens */
	float *q, *out;
	kvc_workers *workers;
	/* of a format */
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	kvc_seq *seq;
	struct plain_plane plane;
};

/* ---- the command line ----------------------------------------------------------------------- */

static int take_number(struct ctl *ctl, const struct ctl_args *args, const char *name, uint32_t max,
		       uint32_t fallback, uint32_t *number)
{
	uint64_t n;

	if (ctl_option_number(ctl, args, name, 1, max, fallback, &n))
		return -1;
	*number = (uint32_t)n;
	return 0;
}

/* Can vectors of this width be stored so? */
static bool is_storable(uint32_t format, uint32_t width, struct errbuf *err)
{
	struct kv_format_bytes bytes;

	return kv_format_bytes(format, KV_DTYPE_BF16, width, &bytes, err) == 0;
}

/* All that the width allows. */
static void take_all_formats(struct attend_bench *b)
{
	static const uint32_t formats[] = {KV_FORMAT_RAW, KV_FORMAT_INT8, KV_FORMAT_U8,
					   KV_FORMAT_FP8, KV_FORMAT_U4,   KV_FORMAT_Q4};
	struct errbuf err;

	for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
		if (is_storable(formats[i], b->width, &err))
			b->formats[b->n_formats++] = formats[i];
}

static int take_format(struct attend_bench *b, const struct ctl_args *args, const char *word)
{
	uint32_t format = kv_format_find(word);
	struct errbuf err;

	if (!format || b->n_formats == KV_FORMAT_MAX)
		return ctl_usage(
			b->ctl, args->command,
			"--format has %s; it is a list of at most %u of raw, int8, u8, u4, "
			"q4, fp8 and int8-model, with commas between them",
			format ? "too many" : word, (unsigned)KV_FORMAT_MAX);
	if (!is_storable(format, b->width, &err))
		return ctl_usage(b->ctl, args->command, "--format %s, --width %" PRIu32 ": %s",
				 word, b->width, err.text);
	b->formats[b->n_formats++] = format;
	return 0;
}

static int take_formats(struct attend_bench *b, const struct ctl_args *args)
{
	const char *given = ctl_option(args, "format");
	char *text, *rest = NULL;
	int code = 0;

	if (!given) {
		take_all_formats(b);
		return 0;
	}
	text = ctl_format("%s", given);
	for (char *w = strtok_r(text, ",", &rest); w && !code; w = strtok_r(NULL, ",", &rest))
		code = take_format(b, args, w);
	if (!code && !b->n_formats)
		code = ctl_usage(b->ctl, args->command, "--format names no format");
	free(text);
	return code;
}

static int take_options(struct attend_bench *b, const struct ctl_args *args)
{
	struct ctl *ctl = b->ctl;

	return take_number(ctl, args, "tokens", KV_TOKENS_MAX - 1, TOKENS, &b->n_tokens) ||
			       take_number(ctl, args, "heads", KV_HEADS_MAX, HEADS, &b->n_heads) ||
			       take_number(ctl, args, "group", GROUP_MAX, GROUP, &b->group) ||
			       take_number(ctl, args, "width", KV_ATTEND_WIDTH_MAX, WIDTH,
					   &b->width) ||
			       take_number(ctl, args, "threads", WORKERS_MAX, 1, &b->n_threads) ||
			       take_formats(b, args) ?
		       CTL_USAGE :
		       0;
}

/* ---- a cache to attend over ----------------------------------------------------------------- */

static int set_up(struct attend_bench *b)
{
	size_t n_row = (size_t)b->n_heads * b->width, n_q = n_row * b->group;
	uint64_t random = BENCH_RANDOM;

	b->rows = ctl_alloc(CHUNK_TOKENS * n_row, sizeof(b->rows[0]));
	b->q = ctl_alloc(n_q, sizeof(b->q[0]));
	b->out = ctl_alloc(n_q, sizeof(b->out[0]));
	for (size_t i = 0; i < CHUNK_TOKENS * n_row; i++) {
		union {
			float value;
			uint32_t bits;
		} x = {bench_value(&random)};

		b->rows[i] = (uint16_t)(x.bits >> 16);
	}
	for (size_t i = 0; i < n_q; i++)
		b->q[i] = bench_value(&random);
	if (b->n_threads > 1)
		b->workers = kvc_workers_new(b->n_threads);
	return b->n_threads > 1 && !b->workers ? -1 : 0;
}

static void tear_down(struct attend_bench *b)
{
	kvc_workers_free(b->workers);
	free(b->rows);
	free(b->q);
	free(b->out);
}

static int open_cache(struct attend_bench *b, uint32_t format)
{
	const struct kvc_layer layer = {b->n_heads, b->width, b->width, 0};
	const struct kvc_seq_options seq = {.size = sizeof(seq), .max_tokens = b->n_tokens + 1};
	struct kvc_session_options session = {.size = sizeof(session)};
	struct kvc_layout_options layout = {
		.size = sizeof(layout),
		.n_layers = 1,
		.layers = &layer,
		.dtype = KVC_BF16,
		.k_format = format,
		.v_format = format,
	};

	session.runtime_dir = b->ctl->runtime_dir;
	session.deadline_ms = b->ctl->deadline_ms;
	memset(layout.fingerprint, 0xbe, sizeof(layout.fingerprint));
	b->session = kvc_open(&session);
	b->layout = b->session ? kvc_layout_register(b->session, &layout) : NULL;
	b->writer = b->layout ? kvc_writer_new(b->session) : NULL;
	b->seq = b->writer ? kvc_seq_new(b->writer, b->layout, &seq) : NULL;
	return b->seq ? 0 : -1;
}

static void close_cache(struct attend_bench *b)
{
	plain_plane_fini(&b->plane);
	kvc_seq_free(b->seq);
	kvc_layout_free(b->layout);
	kvc_close(b->session);
	b->seq = NULL;
	b->layout = NULL;
	b->session = NULL;
}

static int check_interrupt(void)
{
	return progress_interrupted() ? kvc_fail(KVC_ECANCELLED, "bench attend: cancelled") : 0;
}

static int fill(struct attend_bench *b, const char *label)
{
	for (uint64_t done = 0, n; done < b->n_tokens; done += n) {
		n = b->n_tokens - done < CHUNK_TOKENS ? b->n_tokens - done : CHUNK_TOKENS;
		progress_draw(b->ctl, label, done, b->n_tokens);
		if (check_interrupt() || kvc_reserve(b->seq, n) || kvc_append_begin(b->seq, n) ||
		    kvc_write(b->seq, 0, b->rows, b->rows) || kvc_commit(b->writer, &b->seq, 1))
			return -1;
	}
	return 0;
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* The most memory of this process since its last reset; 0 if /proc does not say. */
static uint64_t peak_bytes(void)
{
	unsigned long long kib = 0;
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %llu kB", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib * 1024;
}

/* Where that is not allowed the peak is that of the whole command. */
static void reset_peak(void)
{
	FILE *file = fopen("/proc/self/clear_refs", "we");

	if (file) {
		fputs("5", file);
		fclose(file);
	}
}

static int attend(struct attend_bench *b, double *seconds)
{
	const struct kvc_attend_args args = {
		.size = sizeof(args),
		.n_query_heads = b->n_heads * b->group,
		.n_tokens = 1,
		.q = b->q,
		.k = b->rows,
		.v = b->rows,
		.out = b->out,
		.workers = b->workers,
	};
	double start_s = demo_now_s();

	if (kvc_attend(b->seq, 0, &args))
		return -1;
	*seconds = demo_now_s() - start_s;
	return 0;
}

static double read_plain(struct attend_bench *b)
{
	static volatile uint64_t sum; /* nothing is left out as unused */
	double start_s = demo_now_s();

	sum = sum + plain_read(&b->plane, b->workers);
	return demo_now_s() - start_s;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double values[PAIRS])
{
	qsort(values, PAIRS, sizeof(values[0]), compare);
	return values[PAIRS / 2];
}

/* Both in turns, each first in every second pair; the first pair does not count. */
static int compare_with_read(struct attend_bench *b, struct attend_line *line, const char *label)
{
	double attends[PAIRS], reads[PAIRS], ratios[PAIRS], warm_up;

	if (attend(b, &warm_up))
		return -1;
	read_plain(b);
	for (unsigned i = 0; i < PAIRS; i++) {
		progress_draw(b->ctl, label, i, PAIRS);
		if (i % 2)
			reads[i] = read_plain(b);
		if (check_interrupt() || attend(b, &attends[i]))
			return -1;
		if (i % 2 == 0)
			reads[i] = read_plain(b);
		ratios[i] = attends[i] / reads[i];
	}
	line->attend_s = median(attends);
	line->read_s = median(reads);
	line->ratio = median(ratios);
	return 0;
}

static int measure(struct attend_bench *b, struct attend_line *line, uint32_t format)
{
	char label[32];
	double first_s;
	int rc = -1;

	snprintf(label, sizeof(label), "%s", kv_format_name(format));
	line->format = format;
	reset_peak();
	if (open_cache(b, format) || fill(b, label) || attend(b, &first_s))
		goto out;
	line->token_bytes = kvc_layout_token_bytes(b->layout);
	line->peak_bytes = peak_bytes();
	if (plain_plane_init(&b->plane, b->seq, 0) == 0)
		rc = compare_with_read(b, line, label);
out:
	progress_clear(b->ctl);
	close_cache(b);
	return rc;
}

/* ---- what comes out ------------------------------------------------------------------------- */

static double bytes_of(const struct attend_bench *b, const struct attend_line *line)
{
	return (double)line->token_bytes * b->n_tokens;
}

static void print_text(const struct attend_bench *b)
{
	static const char *const titles[] = {"TOKENS/S", "GB/S",        "READ GB/S",
					     "RATIO",    "BYTES/TOKEN", "PEAK MEMORY"};
	struct table *table = table_new();

	fprintf(b->ctl->out.stream, "%s, %s,", units_of(b->n_tokens, "token").s,
		units_of(b->n_heads, "KV head").s);
	fprintf(b->ctl->out.stream, " %s each, width %" PRIu32 ", %s\n",
		units_of(b->group, "query head").s, b->width, units_of(b->n_threads, "thread").s);
	table_column(table, "FORMAT", TABLE_LEFT);
	for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++)
		table_column(table, titles[i], TABLE_RIGHT);
	for (size_t i = 0; i < b->n_formats; i++) {
		const struct attend_line *line = &b->lines[i];

		table_cell(table, PLAIN, "%s", kv_format_name(line->format));
		table_cell(table, BOLD, "%s",
			   units_count((uint64_t)(b->n_tokens / line->attend_s)).s);
		table_cell(table, PLAIN, "%.2f", bytes_of(b, line) / line->attend_s * 1e-9);
		table_cell(table, PLAIN, "%.2f", bytes_of(b, line) / line->read_s * 1e-9);
		table_cell(table, BOLD, "%.2f", line->ratio);
		table_cell(table, PLAIN, "%s", units_count(line->token_bytes).s);
		table_cell(table, PLAIN, "%s", units_bytes(line->peak_bytes).s);
	}
	table_print(table, &b->ctl->out, 0);
}

static void print_json(const struct attend_bench *b)
{
	json_t *formats = json_array();

	for (size_t i = 0; i < b->n_formats; i++) {
		const struct attend_line *line = &b->lines[i];

		json_array_append_new(
			formats, json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I}", "name",
					   kv_format_name(line->format), "tokens_per_s",
					   b->n_tokens / line->attend_s, "bytes_per_s",
					   bytes_of(b, line) / line->attend_s, "read_bytes_per_s",
					   bytes_of(b, line) / line->read_s, "ratio", line->ratio,
					   "token_bytes", (json_int_t)line->token_bytes,
					   "peak_bytes", (json_int_t)line->peak_bytes));
	}
	ctl_print_json(b->ctl,
		       json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "n_tokens",
				 (json_int_t)b->n_tokens, "n_heads", (json_int_t)b->n_heads,
				 "group", (json_int_t)b->group, "width", (json_int_t)b->width,
				 "n_threads", (json_int_t)b->n_threads, "n_rounds",
				 (json_int_t)PAIRS, "formats", formats));
}

/* The library's error; where memory is short, with what helps. */
static int fail(struct attend_bench *b)
{
	int status = kvc_error();
	bool is_short = status == KVC_EPOOL || status == KVC_EQUOTA;
	struct errbuf err = {KV_OK, ""};

	errbuf_set(&err, status, "%s%s", kvc_error_text(),
		   is_short ? "; attend over fewer tokens (--tokens), or give the daemon a larger "
			      "pool (kvcached --pool-bytes)" :
			      "");
	return ctl_fail(b->ctl, &err);
}

int cmd_bench_attend(struct ctl *ctl, const struct ctl_args *args)
{
	struct attend_bench b = {.ctl = ctl};
	struct progress progress;
	int code = take_options(&b, args);

	if (code)
		return code;
	progress_begin(&progress);
	if (set_up(&b))
		code = fail(&b);
	for (size_t i = 0; i < b.n_formats && !code; i++)
		if (measure(&b, &b.lines[i], b.formats[i]))
			code = fail(&b);
	progress_end(&progress);
	if (!code && ctl->json)
		print_json(&b);
	else if (!code)
		print_text(&b);
	tear_down(&b);
	return code;
}
