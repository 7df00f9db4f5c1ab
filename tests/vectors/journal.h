/* tests/vectors/journal: what its two kinds of traces share. */
#ifndef KVCACHED_TESTS_VECTORS_JOURNAL_H
#define KVCACHED_TESTS_VECTORS_JOURNAL_H

#include "tests/support/bare.h"
#include "tests/vectors/trace.h"

#define ROWS_MAX 8 /* of a batch */
#define HEADS_MAX 8
#define SLOTS_MAX 128
#define WIDTH_MAX 128
#define ENTRIES_MAX 256 /* of an update */
#define PART_BYTES ((size_t)ENTRIES_MAX * HEADS_MAX * WIDTH_MAX * 2)

struct run {
	uint32_t B, H, L, hs;
	uint32_t event_number;
	struct bare *bare;
	struct kvc_writer *writer;
};

/* Slots [H][n] of one row of a batch, and vectors [n][H][hs]. */
struct write {
	size_t n;
	uint32_t slots[HEADS_MAX * ENTRIES_MAX];
	unsigned char k[PART_BYTES], v[PART_BYTES];
};

/* One more check; says what is wrong. */
void check(bool good, const struct run *run, const char *what, ...)
	__attribute__((format(printf, 3, 4)));

bool run_shape(struct run *run, const struct trace *trace);
void run_open(struct run *run, uint32_t format); /* one layer of L slots */
void run_close(struct run *run);

void transpose(const struct run *run, const unsigned char *from, size_t n, unsigned char *to);
bool scatter(const struct run *run, kvc_seq *seq, const struct write *w);

/* All rows show what the event says: hashes, and the arrays that are there. */
void check_all(const struct run *run, const struct trace_event *event, kvc_seq *const *seqs,
	       size_t n_slots);

void run_undo(const struct trace *trace);
void run_overlay(const struct trace *trace);

#endif
