/*
 * kvc_attend where a policy chooses the slots: current tokens in slots of each head's own, vectors
 * that the open update has moved, positions and windows; and calls that make no sense.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/journal.h"
#include "client/slots.h"
#include "client/workers.h"
#include "tests/support/runner.h"
#include "tests/unit/attend-world.h"

#define BOUND 150u
#define HEADS 2u

static const uint32_t formats[] = {KV_FORMAT_RAW, KV_FORMAT_INT8, KV_FORMAT_U4, KV_FORMAT_Q4,
				   KV_FORMAT_FP8};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

static struct jw *world(uint32_t format)
{
	struct jw_shape shape = {1, {{HEADS, 32, 64, BOUND}}, format, format, 16, false, 0, 0};

	return jw_new(&shape);
}

/* n tokens, the last ones over the oldest where it is full; half of them in blocks. */
static kvc_seq *filled(struct jw *w, enum kvc_journal_mode mode, uint64_t n)
{
	kvc_seq *seq = jw_seq(w);
	uint64_t half = n / 2 < BOUND ? n / 2 : BOUND;

	aw_append(w, seq, 0, half, 50);
	jw_journal(w, seq, mode);
	aw_append(w, seq, half, n - half, 1);
	return seq;
}

/* ---- against the reference ------------------------------------------------------------------- */

/* An update of n tokens with moves before it, one list of slots a head. */
struct update {
	uint64_t n_tokens, n_moves;
	const uint32_t *slots, *from, *to; /* [HEADS][n] */
	bool shared;
};

static uint32_t at(const uint32_t *list, bool shared, uint32_t head, uint64_t n, uint64_t i)
{
	return list[(shared ? 0 : head) * n + i];
}

/* Positions of slots: any, but the same for all who ask. */
static int32_t position_of(uint32_t head, uint32_t slot)
{
	return (int32_t)((slot * 37 + head * 11) % 400);
}

static struct aw_keys *keys_of(struct jw *w, kvc_seq *seq, const struct aw_call *call,
			       const struct update *u, uint64_t n_slots)
{
	struct aw_keys *keys = aw_keys_new();

	for (uint32_t h = 0; h < HEADS; h++)
		for (uint32_t s = 0; s < n_slots; s++) {
			int64_t current = -1, from = s;

			for (uint64_t i = 0; i < u->n_moves; i++)
				if (at(u->to, u->shared, h, u->n_moves, i) == s)
					from = at(u->from, u->shared, h, u->n_moves, i);
			for (uint64_t i = 0; i < u->n_tokens; i++)
				if (at(u->slots, u->shared, h, u->n_tokens, i) == s)
					current = (int64_t)i;
			if (current >= 0) {
				aw_key_current(w, call, keys, h, (uint64_t)current,
					       position_of(h, s), s);
				continue;
			}
			aw_key_cached(w, seq, keys, h, (uint64_t)from, position_of(h, s));
			keys->keys[h][keys->n[h] - 1].slot = s;
		}
	for (uint32_t h = 0; h < HEADS; h++)
		for (uint64_t i = 0; i < u->n_tokens; i++)
			if (at(u->slots, u->shared, h, u->n_tokens, i) == KVC_POLICY_NONE)
				aw_key_current(w, call, keys, h, i, 390 + (int64_t)i, UINT32_MAX);
	return keys;
}

static void begin(struct jw *w, kvc_seq *seq, const struct update *u, uint64_t open_tokens)
{
	jw_reserve(w, seq, open_tokens + 1, 256);
	jw_ok(kvc_update_begin(seq, open_tokens, KVC_UPDATE_SCATTER));
	if (u->n_moves)
		jw_ok(kvc_move(seq, 0, u->n_moves, u->from, u->to, u->shared));
}

/* Attends in the open update, with a window over positions if it is not 0. */
static void check_open(struct jw *w, kvc_seq *seq, const struct update *u, uint64_t open_tokens,
		       uint64_t window)
{
	uint64_t n_slots = kvc_length(seq) + open_tokens;
	int32_t positions[HEADS * BOUND];
	struct aw_keys *keys;
	struct aw_call call;

	if (n_slots > BOUND)
		n_slots = BOUND;
	for (uint32_t h = 0; h < HEADS; h++)
		for (uint32_t s = 0; s < n_slots; s++)
			positions[h * n_slots + s] = position_of(h, s);
	aw_call_init(&call, w, 4, 3000, u->n_tokens, true);
	aw_call_weights(&call, w, n_slots);
	call.args.slots = u->slots;
	call.args.shared_slots = u->shared;
	call.args.window_tokens = window;
	call.args.positions = window ? positions : NULL;
	call.args.first_position = 390;
	keys = keys_of(w, seq, &call, u, n_slots);
	jw_ok(kvc_attend(seq, 0, &call.args));
	aw_check(w, &call, keys, 390, window);
	aw_keys_free(keys);
	aw_call_free(&call);
}

static const uint32_t some_slots[HEADS * 3] = {7, 149, 64, 63, 0, 100};
static const uint32_t some_from[HEADS * 4] = {7, 8, 9, 64, 0, 1, 100, 2};
static const uint32_t some_to[HEADS * 4] = {20, 21, 63, 22, 140, 141, 142, 7};

#define NONE KVC_POLICY_NONE
static const uint32_t not_all[HEADS * 3] = {NONE, 149, NONE, NONE, 0, NONE};

static const struct update updates[] = {
	{1, 0, (const uint32_t[]){NONE}, NULL, NULL, true},
	{3, 0, not_all, NULL, NULL, false},
	{3, 4, not_all, some_from, some_to, false},
	{1, 0, (const uint32_t[]){5, 90}, NULL, NULL, false},
	{1, 0, (const uint32_t[]){149}, NULL, NULL, true},
	{3, 0, some_slots, NULL, NULL, false},
	{3, 4, some_slots, some_from, some_to, false},
	{3, 4, some_slots, some_from, some_to, true},
};

static void test_full(void **state)
{
	(void)state;
	for (size_t f = 0; f < N_FORMATS; f++)
		for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
			struct jw *w = world(formats[f]);
			kvc_seq *seq = filled(w, mode, BOUND + 30);

			for (size_t i = 0; i < sizeof(updates) / sizeof(updates[0]); i++) {
				begin(w, seq, &updates[i], updates[i].n_tokens);
				check_open(w, seq, &updates[i], updates[i].n_tokens, 0);
				check_open(w, seq, &updates[i], updates[i].n_tokens, 130);
				jw_ok(kvc_abort(seq));
			}
			jw_free(w);
		}
}

/* Many queries: all slots of a full layer are overwritten but some. */
static void test_many(void **state)
{
	uint32_t slots[HEADS * 40], from[HEADS * 3], to[HEADS * 3];
	struct update u = {40, 3, slots, from, to, false};

	(void)state;
	for (uint32_t h = 0; h < HEADS; h++) {
		for (uint32_t i = 0; i < 40; i++)
			slots[h * 40 + i] = (i * 7 + h * 13) % BOUND;
		for (uint32_t i = 0; i < 3; i++) {
			from[h * 3 + i] = slots[h * 40 + i];
			to[h * 3 + i] = (i * 7 + h * 13 + 3) % BOUND;
		}
	}
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		struct jw *w = world(KV_FORMAT_INT8);
		kvc_seq *seq = filled(w, mode, BOUND);

		begin(w, seq, &u, 40);
		check_open(w, seq, &u, 40, 0);
		check_open(w, seq, &u, 40, 200);
		jw_ok(kvc_abort(seq));
		jw_free(w);
	}
}

/* More tokens than a tile has keys, most of them in no slot: a window passes some. */
static void test_nowhere(void **state)
{
	uint32_t slots[200];
	struct update u = {200, 0, slots, NULL, NULL, true};

	(void)state;
	for (uint32_t i = 0; i < 200; i++)
		slots[i] = i % 3 ? NONE : i / 3;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		struct jw *w = world(KV_FORMAT_INT8);
		kvc_seq *seq = filled(w, mode, BOUND);

		begin(w, seq, &u, 200);
		check_open(w, seq, &u, 200, 0);
		check_open(w, seq, &u, 200, 60);
		jw_ok(kvc_abort(seq));
		jw_free(w);
	}
}

/* A layer that is not full: new slots hold current tokens, or what was moved there. */
static void test_growing(void **state)
{
	static const uint32_t slots[] = {3, 91}, from[] = {3}, to[] = {90};
	const struct update u = {2, 1, slots, from, to, true};
	const struct update over = {2, 1, slots, from, (const uint32_t[]){4}, true};

	(void)state;
	for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
		struct jw *w = world(KV_FORMAT_RAW);
		kvc_seq *seq = filled(w, mode, 90);

		begin(w, seq, &u, 2);
		check_open(w, seq, &u, 2, 0);
		jw_ok(kvc_abort(seq));
		/* An update without new tokens, over slots that are there. */
		aw_append(w, seq, 90, 5, 1);
		begin(w, seq, &over, 0);
		check_open(w, seq, &over, 0, 0);
		jw_ok(kvc_abort(seq));
		jw_free(w);
	}
}

/* ---- bits ------------------------------------------------------------------------------------ */

static void attend_slots(struct jw *w, kvc_seq *seq, struct aw_call *call, uint64_t n,
			 const uint32_t *slots, int shared)
{
	aw_call_init(call, w, 4, 3000, n, true);
	aw_call_weights(call, w, BOUND);
	call->args.slots = slots;
	call->args.shared_slots = shared;
	jw_ok(kvc_attend(seq, 0, &call->args));
}

static void assert_same(struct aw_call *a, struct aw_call *b)
{
	assert_memory_equal(a->out, b->out, a->n_out * sizeof(float));
	assert_memory_equal(a->weights, b->weights, a->n_weights * sizeof(float));
	aw_call_free(a);
	aw_call_free(b);
}

/* What is moved and not committed counts as when it is. */
static void test_moved_bits(void **state)
{
	const struct update moves = {0, 4, NULL, some_from, some_to, false};

	(void)state;
	for (size_t f = 0; f < N_FORMATS; f++)
		for (int mode = KVC_JOURNAL_UNDO; mode <= KVC_JOURNAL_REPLAY; mode++) {
			struct jw *w = world(formats[f]);
			kvc_seq *seq = filled(w, mode, BOUND + 10);
			struct aw_call before, after;

			begin(w, seq, &moves, 0);
			attend_slots(w, seq, &before, 3, some_slots, 0);
			jw_ok(kvc_commit(w->writer, &seq, 1));
			jw_reserve(w, seq, 1, 8);
			jw_ok(kvc_update_begin(seq, 0, 0));
			attend_slots(w, seq, &after, 3, some_slots, 0);
			jw_ok(kvc_abort(seq));
			assert_same(&before, &after);
			jw_free(w);
		}
}

static void test_shared_bits(void **state)
{
	static const uint32_t one[] = {9, 77}, each[] = {9, 77, 9, 77};
	struct jw *w = world(KV_FORMAT_INT8);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO, BOUND);
	struct aw_call shared, apart;

	(void)state;
	jw_reserve(w, seq, 2, 8);
	jw_ok(kvc_update_begin(seq, 2, KVC_UPDATE_SCATTER));
	attend_slots(w, seq, &shared, 2, one, 1);
	attend_slots(w, seq, &apart, 2, each, 0);
	assert_same(&shared, &apart);
	jw_ok(kvc_abort(seq));
	jw_free(w);
}

static void test_workers_bits(void **state)
{
	struct jw *w = world(KV_FORMAT_U4);
	kvc_seq *seq = filled(w, KVC_JOURNAL_REPLAY, BOUND + 20);

	(void)state;
	begin(w, seq, &updates[3], 3);
	for (uint32_t n = 1; n <= 3; n++) {
		kvc_workers *workers = kvc_workers_new(n);
		struct aw_call want, got;

		assert_non_null(workers);
		attend_slots(w, seq, &want, 3, some_slots, 0);
		aw_call_init(&got, w, 4, 3000, 3, true);
		aw_call_weights(&got, w, BOUND);
		got.args.slots = some_slots;
		got.args.workers = workers;
		jw_ok(kvc_attend(seq, 0, &got.args));
		assert_same(&want, &got);
		kvc_workers_free(workers);
	}
	jw_ok(kvc_abort(seq));
	jw_free(w);
}

/* ---- what must not be read ------------------------------------------------------------------ */

static void assert_finite(const struct aw_call *call, size_t first, size_t n)
{
	for (size_t i = first; i < first + n; i++)
		assert_true(isfinite(call->out[i]));
}

/* Everything behind the length, in the block that it ends in and in those that are free. */
static void poison(kvc_seq *seq, uint64_t length)
{
	const struct kv_layout *layout = seq->layout->fields;

	for (uint64_t slot = length; slot % layout->block_tokens; slot++)
		for (uint32_t part = 0; part < KV_PART_PLANE; part++) {
			size_t bytes;
			char *at_slot = slot_part(seq, 0, part, slot, &bytes);

			if (at_slot)
				memset(at_slot, 0xff, bytes * HEADS);
		}
}

static void test_garbage_behind(void **state)
{
	(void)state;
	for (size_t f = 0; f < N_FORMATS; f++)
		for (uint64_t n = 1; n < 20; n += 9) {
			struct jw *w = world(formats[f]);
			kvc_seq *seq = jw_seq(w);
			struct aw_call before, after;

			aw_append(w, seq, 0, 70, 50);
			for (int i = 0; i < 2; i++) {
				struct aw_call *call = i ? &after : &before;

				aw_call_init(call, w, 4, 70, n, true);
				aw_call_weights(call, w, 70 + n);
				jw_ok(kvc_attend(seq, 0, &call->args));
				poison(seq, 70);
			}
			assert_finite(&before, 0, before.n_out);
			assert_same(&before, &after);
			jw_free(w);
		}
}

/* Tokens that are no numbers, before the window, behind length_tokens, and behind the query. */
static void test_unseen_nan(void **state)
{
	struct jw_shape shape = {
		1, {{HEADS, 32, 64, 0}}, KV_FORMAT_RAW, KV_FORMAT_RAW, 16, false, 0, 0};
	struct jw *w = jw_new(&shape);
	kvc_seq *seq = jw_seq(w);
	float nans[HEADS * 64];
	struct aw_call call;

	(void)state;
	for (size_t i = 0; i < HEADS * 64; i++)
		nans[i] = NAN;
	for (int i = 0; i < 100; i++) {
		if (i != 10 && i != 60) {
			aw_append(w, seq, (uint64_t)i, 1, 1);
			continue;
		}
		jw_reserve(w, seq, 1, 0);
		jw_ok(kvc_append_begin(seq, 1));
		jw_ok(kvc_write(seq, 0, nans, nans));
		jw_ok(kvc_commit(w->writer, &seq, 1));
	}
	for (uint64_t n = 2; n < 30; n += 13) {
		size_t token = 4 * 64;

		aw_call_init(&call, w, 4, 60, n, true);
		aw_call_weights(&call, w, 100);
		call.args.length_tokens = 60;
		call.args.window_tokens = 40;
		aw_attend_checked(w, seq, &call);
		assert_finite(&call, 0, call.n_out);
		/* the last current token too, for the others */
		memcpy((char *)call.k + (n - 1) * HEADS * 32 * 4, nans, HEADS * 32 * 4);
		memcpy((char *)call.v + (n - 1) * HEADS * 64 * 4, nans, HEADS * 64 * 4);
		jw_ok(kvc_attend(seq, 0, &call.args));
		assert_finite(&call, 0, (n - 1) * token);
		assert_true(!isfinite(call.out[(n - 1) * token]));
		aw_call_free(&call);
	}
	aw_call_init(&call, w, 4, 100, 1, true);
	jw_ok(kvc_attend(seq, 0, &call.args));
	assert_true(!isfinite(call.out[0])); /* it would have been seen */
	aw_call_free(&call);
	jw_free(w);
}

/* Slots that this update overwrites, or that positions put out of the window. */
static void test_unseen_slots(void **state)
{
	struct jw *w = world(KV_FORMAT_RAW);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO, BOUND);
	const struct update u = {
		1, 1, (const uint32_t[]){4}, (const uint32_t[]){9}, (const uint32_t[]){5}, true};
	int32_t positions[HEADS * BOUND];
	float nans[HEADS * 64];
	struct aw_call call;

	(void)state;
	for (size_t i = 0; i < HEADS * 64; i++)
		nans[i] = NAN;
	jw_reserve(w, seq, 1, 64);
	jw_ok(kvc_update_begin(seq, 0, 0));
	jw_ok(kvc_scatter(seq, 0, 3, (const uint32_t[]){4, 5, 6}, 1,
			  (float[3 * HEADS * 32]){NAN, NAN}, (float[3 * HEADS * 64]){NAN}, NULL));
	jw_ok(kvc_scatter(seq, 0, 1, (const uint32_t[]){6}, 1, nans, nans, NULL));
	jw_ok(kvc_commit(w->writer, &seq, 1));
	for (uint32_t i = 0; i < HEADS * BOUND; i++)
		positions[i] = i % BOUND == 6 ? 10 : 1000;
	begin(w, seq, &u, 1);
	aw_call_init(&call, w, 4, 3000, 1, true);
	call.args.slots = u.slots;
	call.args.shared_slots = 1;
	call.args.positions = positions;
	call.args.first_position = 1000;
	call.args.window_tokens = 500;
	jw_ok(kvc_attend(seq, 0, &call.args));
	assert_finite(&call, 0, call.n_out);
	call.args.window_tokens = 0;
	jw_ok(kvc_attend(seq, 0, &call.args));
	assert_true(!isfinite(call.out[0]));
	/* Nothing is seen at all: zeros. */
	call.args.window_tokens = 1;
	call.args.first_position = 5000;
	aw_call_weights(&call, w, BOUND);
	jw_ok(kvc_attend(seq, 0, &call.args));
	for (size_t i = 0; i < call.n_out; i++)
		assert_true(call.out[i] == 0);
	for (size_t i = 0; i < call.n_weights; i++)
		assert_true(call.weights[i] == 0);
	aw_call_free(&call);
	jw_ok(kvc_abort(seq));
	jw_free(w);
}

/* ---- errors --------------------------------------------------------------------------------- */

static void refused(kvc_seq *seq, const struct kvc_attend_args *args, int status, const char *text)
{
	jw_fails(kvc_attend(seq, 0, args), status, text);
}

#define REFUSED(field, value, status, text) \
	do { \
		struct kvc_attend_args args = call.args; \
		args.field = value; \
		refused(seq, &args, status, text); \
	} while (0)

static void test_errors(void **state)
{
	static const uint32_t wide[] = {300, 20}, thin[] = {20, 0};
	struct jw *w = world(KV_FORMAT_INT8);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO, 40);
	struct aw_call call;

	(void)state;
	aw_call_init(&call, w, 4, 40, 2, true);
	jw_fails(kvc_attend(seq, 0, NULL), KVC_EINVAL, "args is NULL");
	jw_fails(kvc_attend(seq, 1, &call.args), KVC_ERANGE, "layer 1");
	REFUSED(size, 8, KVC_EINVAL, "size");
	REFUSED(n_query_heads, 0, KVC_EINVAL, "n_query_heads is 0");
	REFUSED(n_query_heads, 3, KVC_EINVAL, "multiple of the 2");
	REFUSED(n_tokens, 0, KVC_EINVAL, "n_tokens is 0");
	REFUSED(n_tokens, UINT64_MAX, KVC_EINVAL, "n_tokens is 18446744073709551615");
	REFUSED(q, NULL, KVC_EINVAL, "q is NULL");
	REFUSED(out, NULL, KVC_EINVAL, "out is NULL");
	REFUSED(k, NULL, KVC_EINVAL, "both k and v");
	REFUSED(v, NULL, KVC_EINVAL, "both k and v");
	REFUSED(length_tokens, 41, KVC_ERANGE, "length_tokens is 41, cached are 40");
	REFUSED(scale, INFINITY, KVC_EINVAL, "scale");
	REFUSED(softcap, -1.0f, KVC_EINVAL, "softcap is -1");
	REFUSED(softcap, NAN, KVC_EINVAL, "softcap");
	REFUSED(weights_how, 2, KVC_EINVAL, "weights_how is 2");
	REFUSED(positions, (const int32_t[1]){0}, KVC_EINVAL, "slots is NULL");
	REFUSED(slots, wide, KVC_EINVAL, "none is open");
	aw_call_free(&call);
	aw_call_init(&call, w, 4, 0, 41, false);
	REFUSED(n_tokens, 41, KVC_ERANGE, "n_tokens is 41, cached are 40");
	aw_call_free(&call);
	jw_free(w);
	for (int i = 0; i < 2; i++) {
		struct jw_shape shape = {1,  {{1, i ? thin[0] : wide[0], i ? thin[1] : wide[1], 0}},
					 1,  1,
					 16, false,
					 0,  0};

		w = jw_new(&shape);
		seq = jw_seq(w);
		aw_call_init(&call, w, 1, 0, 1, true);
		refused(seq, &call.args, i ? KVC_EINVAL : KVC_EUNSUPPORTED, i ? "v_width" : "256");
		aw_call_free(&call);
		jw_free(w);
	}
}

static void test_slot_errors(void **state)
{
	static const uint32_t good[] = {1, 2, 3, 4}, far[] = {1, 2, 3, BOUND},
			      twice[] = {1, 2, 3, 3}, some[] = {1, NONE, 3, 4};
	struct jw *w = world(KV_FORMAT_INT8);
	kvc_seq *seq = filled(w, KVC_JOURNAL_UNDO, BOUND + 5);
	int32_t positions[HEADS * BOUND] = {0};
	struct aw_call call;

	(void)state;
	jw_reserve(w, seq, 2, 8);
	jw_ok(kvc_update_begin(seq, 2, KVC_UPDATE_SCATTER));
	aw_call_init(&call, w, 4, 200, 2, true);
	call.args.slots = good;
	jw_ok(kvc_attend(seq, 0, &call.args));
	REFUSED(slots, far, KVC_ERANGE, "slot 150");
	REFUSED(slots, twice, KVC_EINVAL, "twice");
	REFUSED(slots, some, KVC_EINVAL, "token 1 has a slot of some heads only");
	REFUSED(length_tokens, 5, KVC_EINVAL, "length_tokens");
	REFUSED(window_tokens, 5, KVC_EINVAL, "needs positions");
	REFUSED(n_tokens, 1, KVC_EINVAL, "open update has 2");
	call.args.window_tokens = 5;
	call.args.positions = positions;
	REFUSED(first_position, INT64_MAX, KVC_ERANGE, "first_position");
	call.args.k = call.args.v = NULL;
	refused(seq, &call.args, KVC_EINVAL, "k is NULL");
	aw_call_free(&call);
	aw_call_init(&call, w, 4, 200, 3, true);
	refused(seq, &call.args, KVC_EINVAL, "the open update has 2");
	aw_call_free(&call);
	jw_ok(kvc_abort(seq));
	/* A ring has not what cached queries would see. */
	aw_call_init(&call, w, 4, 200, 2, false);
	refused(seq, &call.args, KVC_ERANGE, "oldest is 5");
	call.args.window_tokens = BOUND - 1;
	jw_ok(kvc_attend(seq, 0, &call.args));
	aw_call_free(&call);
	jw_free(w);
}

static void test_opaque(void **state)
{
	struct bare *bare = bare_new(bare_layout(0, NULL, 1));
	struct kvc_writer *writer = bare_writer(bare, 1);
	kvc_seq *seq = bare_seq(bare, writer, 100, NULL);
	struct kvc_attend_args args = {.size = sizeof(args)};

	(void)state;
	jw_fails(kvc_attend(seq, 0, &args), KVC_EUNSUPPORTED, "opaque");
	seq_end(seq, SEQ_END_DROPPED);
	writer_free(writer);
	bare_free(bare);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a full layer is seen with current tokens and moved vectors in their slots",
		test_full),
	KT_TEST("many queries see many overwritten slots, each up to its own", test_many),
	KT_TEST("tokens that a policy puts nowhere are seen, and weigh nowhere", test_nowhere),
	KT_TEST("new slots hold current tokens, or what was moved there", test_growing),
	KT_TEST("a moved vector counts as it does when it is committed", test_moved_bits),
	KT_TEST("slots that heads share are as slots of each", test_shared_bits),
	KT_TEST("workers change no bit of chosen slots", test_workers_bits),
	KT_TEST("garbage behind the length is not read", test_garbage_behind),
	KT_TEST("tokens that are not seen may be no numbers", test_unseen_nan),
	KT_TEST("slots that are not seen may be no numbers, and nothing seen gives zeros",
		test_unseen_slots),
	KT_TEST("calls that make no sense are refused, with the reason", test_errors),
	KT_TEST("slots that make no sense are refused, with the reason", test_slot_errors),
	KT_TEST("an opaque layout has no attention", test_opaque),
};

KT_MAIN(tests)
