/*
 * Overlay traces: two caches over quantised bases. Updates are rows of a replay journal; `commit`
 * is kvc_fold. `read` shows a base that the trace's own program stored, with vectors that it
 * quantised once more without need: it is loaded as it stands.
 */
#include <stdlib.h>
#include <string.h>

#include "client/journal.h"
#include "tests/vectors/journal.h"

#define CACHES 2
#define UPDATES_MAX 64

struct cache {
	kvc_seq *seqs[ROWS_MAX];
	size_t n_tokens;
	/* updates in force: steps of each, and the length before it */
	uint64_t n_steps[UPDATES_MAX];
	size_t length_before[UPDATES_MAX];
	uint32_t n_updates;
	/* what is stored, [row]: [slot][head] of all parts */
	unsigned char *stored[ROWS_MAX];
	const struct trace_event *committed; /* what the trace's program had stored */
};

struct overlay {
	struct run run;
	uint32_t format;
	struct cache caches[CACHES];
	struct write write;
};

/* ---- stored bytes --------------------------------------------------------------------------- */

static size_t stored_bytes(const struct overlay *o)
{
	return o->run.bare->layout.fields->layer_maps[0].stored_bytes;
}

static void save(const struct overlay *o, kvc_seq *seq, uint32_t head, size_t slot,
		 unsigned char *to)
{
	(void)o;
	journal_save_slot(seq, 0, head, slot, UINT32_MAX, (char *)to);
}

/* Copies the stored bytes of the base of a cache. */
static void save_base(struct overlay *o, struct cache *c)
{
	const struct run *r = &o->run;

	for (uint32_t b = 0; b < r->B; b++) {
		size_t n = (size_t)c->seqs[b]->head.base_tokens;

		free(c->stored[b]);
		c->stored[b] = calloc(r->L * r->H + 1, stored_bytes(o));
		for (size_t s = 0; s < n; s++)
			for (uint32_t h = 0; h < r->H; h++)
				save(o, c->seqs[b], h, s,
				     c->stored[b] + (s * r->H + h) * stored_bytes(o));
	}
}

/* One vector as an event of the trace has it: all parts in written order. */
static bool expected(const struct overlay *o, const struct trace_event *event, size_t n_slots,
		     size_t i, unsigned char *to)
{
	static const char *const names[] = {"k_codes", "k_scale", "k_zp",
					    "v_codes", "v_scale", "v_zp"};
	static const char *const types[] = {"u8", "f32", "i32", "u8", "f32", "i32"};
	size_t codes = o->format == KV_FORMAT_U4 ? o->run.hs / 2 : o->run.hs;

	for (int p = 0; p < 6; p++) {
		size_t bytes = p % 3 ? 4 : codes, n = o->run.B * o->run.H * n_slots;
		const unsigned char *from = trace_bytes(event, names[p], types[p],
							n * (p % 3 ? 1 : codes));

		if (!from)
			return false;
		memcpy(to, from + i * bytes, bytes);
		to += bytes;
	}
	return true;
}

/* Vectors that `dirty` marks (NULL: all) are as the event has them, the others as they were. */
static void check_stored(struct overlay *o, struct cache *c, const struct trace_event *event,
			 const long *dirty)
{
	const struct run *r = &o->run;
	unsigned char got[4 * WIDTH_MAX], want[4 * WIDTH_MAX];
	bool good = true, untouched = true;

	for (uint32_t b = 0; b < r->B; b++)
		for (uint32_t h = 0; h < r->H; h++)
			for (size_t s = 0; s < c->n_tokens; s++) {
				size_t i = (size_t)b * r->H + h;

				save(o, c->seqs[b], h, s, got);
				if (dirty && !dirty[i * r->L + s])
					untouched &= memcmp(got,
							    c->stored[b] + (s * r->H + h) *
										   stored_bytes(o),
							    stored_bytes(o)) == 0;
				else
					good &= expected(o, event, c->n_tokens, i * c->n_tokens + s,
							 want) &&
						memcmp(got, want, stored_bytes(o)) == 0;
			}
	check(good, r, "codes, scales and zero points of written vectors");
	check(untouched, r, "vectors that nobody wrote have changed");
}

/* The base has not changed. */
static void check_base(struct overlay *o, struct cache *c)
{
	const struct run *r = &o->run;
	unsigned char got[4 * WIDTH_MAX];
	bool good = true;

	for (uint32_t b = 0; b < r->B; b++)
		for (size_t s = 0; s < c->seqs[b]->head.base_tokens; s++)
			for (uint32_t h = 0; h < r->H; h++) {
				save(o, c->seqs[b], h, s, got);
				good &= memcmp(got, c->stored[b] + (s * r->H + h) * stored_bytes(o),
					       stored_bytes(o)) == 0;
			}
	check(good, r, "the base has changed");
}

/* ---- events --------------------------------------------------------------------------------- */

static bool reserve(struct overlay *o, kvc_seq *seq, uint64_t n_tokens, uint64_t n_rows)
{
	return bare_reserve(o->run.bare, seq, n_tokens) == 0 &&
	       bare_reserve_scatter(o->run.bare, seq, 1, n_rows, 8) == 0;
}

/* A sequence of n tokens with these vectors, [H][n][hs]. */
static kvc_seq *prefill(struct overlay *o, const unsigned char *k, const unsigned char *v, size_t n)
{
	struct write *w = &o->write;
	kvc_seq *seq = bare_seq(o->run.bare, o->run.writer, o->run.L, NULL);

	transpose(&o->run, k, n, w->k);
	transpose(&o->run, v, n, w->v);
	if (bare_reserve(o->run.bare, seq, n) || kvc_append_begin(seq, n) ||
	    kvc_write(seq, 0, w->k, w->v) || kvc_commit(o->run.writer, &seq, 1))
		return NULL;
	return seq;
}

static bool base(struct overlay *o, struct cache *c, const struct trace_event *event)
{
	const struct run *r = &o->run;
	const struct trace_item *key = trace_item(event, "key");
	size_t n = key && key->n_dims == 4 ? key->dims[2] : 0, row = n * r->H * r->hs;
	const unsigned char *k = trace_bytes(event, "key", "bf16", r->B * row);
	const unsigned char *v = trace_bytes(event, "value", "bf16", r->B * row);
	struct kvc_journal_options options = {.size = sizeof(options), .mode = KVC_JOURNAL_REPLAY};

	if (!k || !v || n > r->L || c->seqs[0])
		return false;
	c->n_tokens = n;
	for (uint32_t b = 0; b < r->B; b++) {
		c->seqs[b] = prefill(o, k + b * row * 2, v + b * row * 2, n);
		if (!c->seqs[b])
			return false;
	}
	check_stored(o, c, event, NULL);
	save_base(o, c);
	for (uint32_t b = 0; b < r->B; b++)
		if (kvc_journal_set(c->seqs[b], &options))
			return false;
	return true;
}

/* Entry of the write that is token slot `slot` for all heads. */
static size_t entry_of(const struct run *r, const struct write *w, uint32_t slot)
{
	for (size_t i = 0; i < w->n; i++) {
		size_t n_heads = 0;

		for (size_t h = 0; h < r->H; h++)
			n_heads += w->slots[h * w->n + i] == slot;
		if (n_heads == r->H)
			return i;
	}
	return SIZE_MAX;
}

/* Takes entry i out of the write. */
static void take_out(const struct run *r, struct write *w, size_t i)
{
	size_t vectors = 2 * (size_t)r->hs * r->H;

	for (size_t h = 0, to = 0; h < r->H; h++)
		for (size_t e = 0; e < w->n; e++)
			if (e != i)
				w->slots[to++] = w->slots[h * w->n + e];
	memmove(w->k + i * vectors, w->k + (i + 1) * vectors, (w->n - i - 1) * vectors);
	memmove(w->v + i * vectors, w->v + (i + 1) * vectors, (w->n - i - 1) * vectors);
	w->n--;
}

static bool read_write(struct overlay *o, const struct trace_event *event, uint32_t b)
{
	const struct run *r = &o->run;
	const struct trace_item *slots = trace_item(event, "slots");
	size_t n = slots && slots->ints && slots->n_dims == 3 ? slots->dims[2] : 0;
	size_t row = n * r->H * r->hs;
	const unsigned char *k = trace_bytes(event, "key", "bf16", r->B * row);
	const unsigned char *v = trace_bytes(event, "value", "bf16", r->B * row);

	if (!n || n > ENTRIES_MAX || !k || !v || slots->n != (size_t)r->B * r->H * n)
		return false;
	o->write.n = n;
	for (size_t i = 0; i < r->H * n; i++)
		o->write.slots[i] = (uint32_t)slots->ints[b * r->H * n + i];
	transpose(r, k + b * row * 2, n, o->write.k);
	transpose(r, v + b * row * 2, n, o->write.v);
	return true;
}

/* New tokens first, each in the slot behind the last; the rest is scattered. */
static bool write_row(struct overlay *o, const struct cache *c, uint32_t b, size_t n_new)
{
	const struct run *r = &o->run;
	size_t vectors = 2 * (size_t)r->hs * r->H;
	struct write *w = &o->write;

	if (!reserve(o, c->seqs[b], n_new, (w->n + n_new) * r->H) ||
	    kvc_update_begin(c->seqs[b], n_new, 0))
		return false;
	for (size_t t = 0; t < n_new; t++) {
		size_t i = entry_of(r, w, (uint32_t)(c->n_tokens + t));

		if (i == SIZE_MAX || kvc_write_rows(c->seqs[b], 0, t, 1, w->k + i * vectors,
						    vectors, w->v + i * vectors, vectors))
			return false;
		take_out(r, w, i);
	}
	return scatter(r, c->seqs[b], w);
}

static uint64_t steps_of(kvc_seq *seq)
{
	struct kvc_journal_info info;

	return kvc_journal_info(seq, &info) ? 0 : info.n_steps;
}

static bool update(struct overlay *o, struct cache *c, const struct trace_event *event)
{
	long length = trace_number(event, "current_length", -1);
	uint64_t before = steps_of(c->seqs[0]);

	if (c->n_updates == UPDATES_MAX || length < (long)c->n_tokens || length > (long)o->run.L)
		return false;
	for (uint32_t b = 0; b < o->run.B; b++)
		if (!read_write(o, event, b) || !write_row(o, c, b, (size_t)length - c->n_tokens))
			return false;
	if (kvc_commit(o->run.writer, NULL, 0))
		return false;
	c->length_before[c->n_updates] = c->n_tokens;
	c->n_steps[c->n_updates++] = steps_of(c->seqs[0]) - before;
	c->n_tokens = (size_t)length;
	return true;
}

static bool rollback(struct overlay *o, struct cache *c, const struct trace_event *event)
{
	uint64_t n_steps = 0;

	for (long n = event->words[1]; n > 0; n--) {
		if (c->n_updates == 0)
			return false;
		n_steps += c->n_steps[--c->n_updates];
		c->n_tokens = c->length_before[c->n_updates];
	}
	for (uint32_t b = 0; b < o->run.B; b++)
		if (kvc_rollback_steps(c->seqs[b], n_steps))
			return false;
	return true;
}

static bool fold(struct overlay *o, struct cache *c, const struct trace_event *event)
{
	const struct trace_item *dirty = trace_item(event, "dirty");

	if (!dirty || !dirty->ints || dirty->n != (size_t)o->run.B * o->run.H * o->run.L)
		return false;
	for (uint32_t b = 0; b < o->run.B; b++)
		if (kvc_fold(c->seqs[b], 0) < 0)
			return false;
	check_stored(o, c, event, dirty->ints);
	save_base(o, c);
	c->n_updates = 0;
	c->committed = event;
	return true;
}

/* Sequences with the stored bytes of the trace's program. */
static bool read_loaded(struct overlay *o, struct cache *c, const struct trace_event *event)
{
	const struct run *r = &o->run;
	kvc_seq *loaded[ROWS_MAX];
	unsigned char stored[4 * WIDTH_MAX];

	if (!c->committed)
		return false;
	memset(o->write.k, 0, sizeof(o->write.k));
	for (uint32_t b = 0; b < r->B; b++) {
		loaded[b] = prefill(o, o->write.k, o->write.k, c->n_tokens);
		if (!loaded[b])
			return false;
		for (uint32_t h = 0; h < r->H; h++)
			for (size_t s = 0; s < c->n_tokens; s++) {
				if (!expected(o, c->committed, c->n_tokens,
					      ((size_t)b * r->H + h) * c->n_tokens + s, stored))
					return false;
				journal_restore_slot(loaded[b], 0, h, s, UINT32_MAX,
						     (char *)stored);
			}
	}
	check_all(r, event, loaded, c->n_tokens);
	return true;
}

static bool one_event(struct overlay *o, const struct trace_event *event)
{
	struct cache *c;

	if (event->words[0] < 0 || event->words[0] >= CACHES)
		return false;
	c = &o->caches[event->words[0]];
	if (strcmp(event->kind, "base") == 0) {
		if (!base(o, c, event))
			return false;
	} else if (!c->seqs[0]) {
		return false;
	} else if (strcmp(event->kind, "commit") == 0) {
		return fold(o, c, event);
	} else if (strcmp(event->kind, "read") == 0) {
		return read_loaded(o, c, event);
	} else if (strcmp(event->kind, "update") == 0 ? !update(o, c, event) :
							!rollback(o, c, event)) {
		return false;
	}
	check(c->n_updates == (uint64_t)trace_number(event, "pending", c->n_updates), &o->run,
	      "%u updates are pending", c->n_updates);
	check(c->n_tokens == (uint64_t)trace_number(event, "current_length", (long)c->n_tokens),
	      &o->run, "the length is %zu", c->n_tokens);
	check_base(o, c);
	check_all(&o->run, event, c->seqs, c->n_tokens);
	return true;
}

static uint32_t format_of(const struct trace *trace)
{
	const char *name = trace_text(&trace->events[0], "quantizer");

	if (name && strcmp(name, "torch-quantized8") == 0)
		return KV_FORMAT_U8;
	return name && strcmp(name, "torch-quantized4") == 0 ? KV_FORMAT_U4 : 0;
}

void run_overlay(const struct trace *trace)
{
	struct overlay *o = calloc(1, sizeof(*o));

	o->format = format_of(trace);
	if (!run_shape(&o->run, trace) || !o->format) {
		check(false, NULL, "a shape that this program does not know");
		free(o);
		return;
	}
	run_open(&o->run, o->format);
	for (uint32_t i = 1; i + 1 < trace->n_events; i++) {
		o->run.event_number = i;
		if (!one_event(o, &trace->events[i])) {
			check(false, &o->run, "%s: %s", trace->events[i].kind, kvc_error_text());
			break;
		}
	}
	run_close(&o->run);
	for (uint32_t i = 0; i < CACHES; i++)
		for (uint32_t b = 0; b < ROWS_MAX; b++)
			free(o->caches[i].stored[b]);
	free(o);
}
