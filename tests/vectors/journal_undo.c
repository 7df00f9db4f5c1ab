/* Undo traces: slots are overwritten in place, and get their old bytes back. */
#include <stdlib.h>
#include <string.h>

#include "tests/vectors/journal.h"

struct undo {
	struct run run;
	kvc_seq *seqs[ROWS_MAX];
	struct write writes[ROWS_MAX];
};

static bool reserve(struct undo *u, kvc_seq *seq, uint64_t n_tokens, uint64_t n_rows)
{
	return bare_reserve(u->run.bare, seq, n_tokens) == 0 &&
	       bare_reserve_scatter(u->run.bare, seq, 1, n_rows, 8) == 0;
}

static bool init(struct undo *u, const struct trace_event *event)
{
	const struct run *r = &u->run;
	size_t row = (size_t)r->H * r->L * r->hs;
	const unsigned char *k = trace_bytes(event, "key_all", "bf16", r->B * row);
	const unsigned char *v = trace_bytes(event, "value_all", "bf16", r->B * row);
	struct kvc_journal_options o = {.size = sizeof(o), .mode = KVC_JOURNAL_UNDO};

	if (!k || !v)
		return false;
	for (uint32_t b = 0; b < r->B; b++) {
		struct write *w = &u->writes[b];

		u->seqs[b] = bare_seq(r->bare, r->writer, r->L, NULL);
		transpose(r, k + b * row * 2, r->L, w->k);
		transpose(r, v + b * row * 2, r->L, w->v);
		if (kvc_journal_set(u->seqs[b], &o) || !reserve(u, u->seqs[b], r->L, 1) ||
		    kvc_append_begin(u->seqs[b], r->L) || kvc_write(u->seqs[b], 0, w->k, w->v))
			return false;
	}
	return kvc_commit(r->writer, NULL, 0) == 0;
}

/* Slots and vectors of row b: those of the update, then those of the grace period. */
static bool read_write(struct undo *u, const struct trace_event *event, uint32_t b, struct write *w)
{
	const struct run *r = &u->run;
	const struct trace_item *slots = trace_item(event, "slots");
	const struct trace_item *grace = trace_item(event, "grace_slots");
	size_t n = slots && slots->ints ? slots->dims[2] : 0,
	       m = grace && grace->ints ? grace->n : 0;
	size_t row = (n + m) * r->H * r->hs;
	const unsigned char *k = trace_bytes(event, "key", "bf16", r->B * row);
	const unsigned char *v = trace_bytes(event, "value", "bf16", r->B * row);

	if (!n || n + m > ENTRIES_MAX || !k || !v || slots->n != (size_t)r->B * r->H * n)
		return false;
	w->n = n + m;
	for (size_t h = 0; h < r->H; h++)
		for (size_t i = 0; i < n + m; i++)
			w->slots[h * w->n + i] =
				(uint32_t)(i < n ? slots->ints[(b * r->H + h) * n + i] :
						   grace->ints[i - n]);
	transpose(r, k + b * row * 2, n + m, w->k);
	transpose(r, v + b * row * 2, n + m, w->v);
	return true;
}

/* The bytes in the slots of the update before it. */
static void check_before(struct undo *u, const struct trace_event *event, uint32_t b,
			 const struct write *w)
{
	static unsigned char k[SLOTS_MAX * HEADS_MAX * WIDTH_MAX * 2], v[sizeof(k)];
	const struct run *r = &u->run;
	size_t vector = 2 * (size_t)r->hs;
	const unsigned char *want_k = trace_bytes(event, "before_key", "bf16",
						  w->n * r->B * r->H * r->hs);
	const unsigned char *want_v = trace_bytes(event, "before_value", "bf16",
						  w->n * r->B * r->H * r->hs);
	bool good = want_k && want_v && kvc_read(u->seqs[b], 0, 0, r->L, k, v) == 0;

	for (size_t h = 0; good && h < r->H; h++)
		for (size_t i = 0; good && i < w->n; i++) {
			size_t at = ((size_t)w->slots[h * w->n + i] * r->H + h) * vector;
			size_t from = ((b * r->H + h) * w->n + i) * vector;

			good = memcmp(k + at, want_k + from, vector) == 0 &&
			       memcmp(v + at, want_v + from, vector) == 0;
		}
	check(good, r, "row %u does not hold what was there before the update", b);
}

static bool update(struct undo *u, const struct trace_event *event)
{
	for (uint32_t b = 0; b < u->run.B; b++) {
		struct write *w = &u->writes[b];

		if (!read_write(u, event, b, w))
			return false;
		check_before(u, event, b, w);
		if (!reserve(u, u->seqs[b], 1, w->n * u->run.H) ||
		    kvc_update_begin(u->seqs[b], 0, 0) || !scatter(&u->run, u->seqs[b], w))
			return false;
	}
	return kvc_commit(u->run.writer, NULL, 0) == 0;
}

static bool one_event(struct undo *u, const struct trace_event *event)
{
	if (strcmp(event->kind, "init") == 0)
		return init(u, event);
	if (!u->seqs[0])
		return false;
	if (strcmp(event->kind, "update") == 0)
		return update(u, event);
	for (uint32_t b = 0; b < u->run.B; b++)
		if (strcmp(event->kind, "undo") == 0) {
			if (kvc_rollback_steps(u->seqs[b], (uint64_t)event->words[0]))
				return false;
		} else if (kvc_replay(u->seqs[b], (uint64_t)event->words[0]) != event->words[0]) {
			return false;
		}
	return true;
}

void run_undo(const struct trace *trace)
{
	struct undo *u = calloc(1, sizeof(*u));

	if (!run_shape(&u->run, trace)) {
		check(false, NULL, "a shape that this program does not know");
		free(u);
		return;
	}
	run_open(&u->run, KV_FORMAT_RAW);
	for (uint32_t i = 1; i + 1 < trace->n_events; i++) {
		u->run.event_number = i;
		if (!one_event(u, &trace->events[i])) {
			check(false, &u->run, "%s: %s", trace->events[i].kind, kvc_error_text());
			break;
		}
		check_all(&u->run, &trace->events[i], u->seqs, u->run.L);
	}
	run_close(&u->run);
	free(u);
}
