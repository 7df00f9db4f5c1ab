/*
 * tests/vectors/journal FOLDER: runs traces of scattered writes, their undo and redo, and of
 * updates that are kept over a quantised base (tests/data/journal/ORIGIN says what a trace is)
 * over the data plane, without a daemon.
 *
 * undo_*: each row of the batch is a sequence with an undo journal. Before each update the bytes of
 * its slots, after each event all bytes must be what the trace says. overlay_*: each row of each of
 * two caches is a sequence with a replay journal over a quantised base. After each update and
 * rollback what kvc_read shows must be what the trace says, and the base untouched; a fold must
 * store each vector that was written as the trace has it, and leave the others as they were.
 *
 * Prints what is wrong; ends with "N passed, N failed"; status 1 if anything failed or there was
 * nothing to do, 2 for wrong use.
 */
#include "tests/vectors/journal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static unsigned n_passed, n_failed;
static const char *trace_name;

void check(bool good, const struct run *run, const char *what, ...)
{
	va_list args;

	if (good) {
		n_passed++;
		return;
	}
	n_failed++;
	printf("FAILED: %s, event %u: ", trace_name, run ? run->event_number : 0);
	va_start(args, what);
	vprintf(what, args);
	va_end(args);
	printf("\n");
}

/* ---- what both kinds share ------------------------------------------------------------------ */

bool run_shape(struct run *run, const struct trace *trace)
{
	const struct trace_event *head = &trace->events[0];
	const char *dtype = trace_text(head, "dtype");

	run->B = (uint32_t)trace_number(head, "B", 0);
	run->H = (uint32_t)trace_number(head, "H", 0);
	run->L = (uint32_t)trace_number(head, "L", 0);
	run->hs = (uint32_t)trace_number(head, "hs", 0);
	return dtype && strcmp(dtype, "bf16") == 0 && run->B >= 1 && run->B <= ROWS_MAX &&
	       run->H >= 1 && run->H <= HEADS_MAX && run->L >= 1 && run->L <= SLOTS_MAX &&
	       run->hs >= 16 && run->hs <= WIDTH_MAX && run->hs % 2 == 0;
}

void run_open(struct run *run, uint32_t format)
{
	struct kv_layout *layout = calloc(1, sizeof(*layout)), *derived;
	struct errbuf err = {0};

	layout->fingerprint[0] = 1;
	layout->n_layers = 1;
	layout->layers = calloc(1, sizeof(layout->layers[0]));
	layout->layers[0] = (struct kv_layer){run->H, run->hs, run->hs, run->L};
	layout->dtype = KV_DTYPE_BF16;
	layout->k_format = layout->v_format = format;
	layout->block_tokens = 8;
	if (kv_layout_check(layout, &err) || !(derived = kv_layout_copy(layout))) {
		fprintf(stderr, "layout: %s\n", err.text);
		exit(2);
	}
	kv_layout_free(layout);
	run->bare = bare_new(derived);
	run->writer = bare_writer(run->bare, 0);
}

void run_close(struct run *run)
{
	while (run->writer->seqs) {
		segment_place(&run->bare->segment, run->writer->seqs->place)->seq_id = 0;
		seq_end(run->writer->seqs, SEQ_END_DROPPED);
	}
	bare_take_back(run->bare, run->writer, true);
	writer_free(run->writer);
	bare_free(run->bare);
}

/* Vectors [H][n][hs] of a row of the batch, as a call takes them: [n][H][hs]. */
void transpose(const struct run *run, const unsigned char *from, size_t n, unsigned char *to)
{
	size_t bytes = 2 * (size_t)run->hs;

	for (size_t h = 0; h < run->H; h++)
		for (size_t i = 0; i < n; i++)
			memcpy(to + (i * run->H + h) * bytes, from + (h * n + i) * bytes, bytes);
}

/* All that a row shows, [H][n][hs]. */
static bool read_row(const struct run *run, kvc_seq *seq, size_t n, unsigned char *k,
		     unsigned char *v)
{
	static unsigned char rows[2][SLOTS_MAX * HEADS_MAX * WIDTH_MAX * 2];
	size_t bytes = 2 * (size_t)run->hs;

	if (kvc_read(seq, 0, 0, n, rows[0], rows[1]))
		return false;
	for (size_t h = 0; h < run->H; h++)
		for (size_t i = 0; i < n; i++) {
			memcpy(k + (h * n + i) * bytes, rows[0] + (i * run->H + h) * bytes, bytes);
			memcpy(v + (h * n + i) * bytes, rows[1] + (i * run->H + h) * bytes, bytes);
		}
	return true;
}

static void check_side(const struct run *run, const struct trace_event *event, const char *side,
		       const unsigned char *bytes, size_t n)
{
	char name[32];
	const char *want;
	const struct trace_item *all;

	snprintf(name, sizeof(name), "%s_xxh64", side);
	want = trace_text(event, name);
	check(want && XXH64(bytes, n, 0) == strtoull(want, NULL, 16), run,
	      "hash of all %ss is %016" PRIx64 ", not %s", side, (uint64_t)XXH64(bytes, n, 0),
	      want ? want : "there");
	snprintf(name, sizeof(name), "%s_all", side);
	all = trace_item(event, name);
	if (all)
		check(all->n_bytes == n && memcmp(all->bytes, bytes, n) == 0, run,
		      "%ss differ from those of the trace", side);
}

void check_all(const struct run *run, const struct trace_event *event, kvc_seq *const *seqs,
	       size_t n_slots)
{
	static unsigned char k[ROWS_MAX * SLOTS_MAX * HEADS_MAX * WIDTH_MAX * 2], v[sizeof(k)];
	size_t row = run->H * n_slots * run->hs * 2;
	bool good = true;

	for (uint32_t b = 0; b < run->B && good; b++)
		good = kvc_slots(seqs[b], 0) == n_slots &&
		       read_row(run, seqs[b], n_slots, k + b * row, v + b * row);
	check(good, run, "reading: %s", kvc_error_text());
	if (!good)
		return;
	check_side(run, event, "key", k, run->B * row);
	check_side(run, event, "value", v, run->B * row);
}

/* How many entries from `first` on name no slot twice for any head. */
static size_t distinct(const struct write *w, size_t n_heads, size_t first)
{
	size_t n = first + 1;

	for (; n < w->n; n++)
		for (size_t h = 0; h < n_heads; h++)
			for (size_t i = first; i < n; i++)
				if (w->slots[h * w->n + i] == w->slots[h * w->n + n])
					return n - first;
	return n - first;
}

/* One kvc_scatter for each part without repetition: later ones win. */
bool scatter(const struct run *run, kvc_seq *seq, const struct write *w)
{
	static uint32_t index[HEADS_MAX * ENTRIES_MAX];
	size_t vector = 2 * (size_t)run->hs * run->H, n;

	for (size_t first = 0; first < w->n; first += n) {
		n = distinct(w, run->H, first);
		for (size_t h = 0; h < run->H; h++)
			for (size_t i = 0; i < n; i++)
				index[h * n + i] = w->slots[h * w->n + first + i];
		if (kvc_scatter(seq, 0, n, index, 0, w->k + first * vector, w->v + first * vector,
				NULL))
			return false;
	}
	return true;
}

/* ---- traces --------------------------------------------------------------------------------- */

static void run_trace(const char *folder, const char *name)
{
	struct trace trace;
	char reason[160];

	trace_name = name;
	if (!trace_read(folder, name, &trace, reason))
		check(false, NULL, "%s", reason);
	else if (strncmp(trace.form, "kvundo 1", 8) == 0)
		run_undo(&trace);
	else if (strncmp(trace.form, "kvoverlay 1", 11) == 0)
		run_overlay(&trace);
	trace_free(&trace);
}

/* Traces of other kinds may lie beside these. */
static bool is_ours(const char *name)
{
	return strncmp(name, "undo_", 5) == 0 || strncmp(name, "overlay_", 8) == 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	if (trace_each(argv[1], is_ours, run_trace) == 0)
		printf("%s: no traces\n", argv[1]);
	printf("%u passed, %u failed\n", n_passed, n_failed);
	return n_failed != 0 || n_passed == 0;
}
