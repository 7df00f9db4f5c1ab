#include "tests/crash/core-load.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/rpc.h"
#include "tests/support/client.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"

#define LAYERS 2
#define HEADS 2
#define WIDTH 16
#define BLOCK_TOKENS 4
#define MOST_TOKENS 96u
#define ROOM_TOKENS 12u /* below that it goes back before it appends */
#define MOST_STATES 400u
#define DEADLINE_MS 30000
#define N_SEQS 6
#define N_SNAPSHOTS 3
#define AGAIN_MAX 20

enum kind { APPENDED, UNDO, REPLAY, N_KINDS };

/* What every slot holds, as the number of a token; 0 is none. */
struct shadow_state {
	uint32_t n;
	uint64_t counter; /* of the sequence plane */
	uint32_t tokens[LAYERS][HEADS][MOST_TOKENS];
};

/* A sequence and all states that it can go back to; the last one counts. Behind it those that
 * kvc_replay can go forward to. */
struct shadow {
	bool is_there;
	enum kind kind;
	char name[32];
	kvc_seq *seq; /* NULL: parked */
	uint32_t n_states, n_forward;
	struct shadow_state *states; /* [MOST_STATES] */
};

struct load {
	char dir[256];
	unsigned number;
	kvc_session *session;
	kvc_writer *writer;
	kvc_layout *layouts[N_KINDS];
	struct shadow seqs[N_SEQS];
	struct shadow snapshots[N_SNAPSHOTS]; /* one state each */
	uint64_t random;
	uint32_t next_token;
	struct core_load_report report;
	const char *doing;
};

static uint64_t draw(struct load *l, uint64_t n)
{
	return kt_draw(&l->random, n);
}

/* ---- calls -------------------------------------------------------------------------------- */

static void give_up(const struct load *l, const struct shadow *s, const char *what)
{
	fprintf(stderr, "client %u, operation %llu (%s) on %s: %s: %s: %s\n", l->number,
		(unsigned long long)l->report.n_ops, l->doing, s ? s->name : "-", what,
		kvc_status_name(kvc_error()), kvc_error_text());
	abort();
}

/* Says once in a while that the daemon was restarted, and is then made again. */
#define DO(l, s, call) \
	do { \
		int again_ = 0; \
		while (!(call)) { \
			if (kvc_error() != KVC_ERESTARTED || again_++ == AGAIN_MAX) \
				give_up(l, s, #call); \
			(l)->report.n_restarted++; \
		} \
	} while (0)

#define CHECK(l, s, condition) \
	do { \
		if (!(condition)) \
			give_up(l, s, #condition); \
	} while (0)

/* ---- numbers ------------------------------------------------------------------------------ */

/* Integers up to 127, which one of them is: int8 stores them with scale 1. */
static void fill(float *to, uint32_t token, uint32_t layer, uint32_t side, uint32_t head)
{
	for (uint32_t i = 0; i < WIDTH; i++)
		to[i] = (float)((token * 131 + layer * 17 + side * 7 + head * 3 + i * 29) % 253) -
			126;
	to[token % WIDTH] = 127;
}

static void fill_token(float *to, uint32_t token, uint32_t layer, uint32_t side)
{
	for (uint32_t h = 0; h < HEADS; h++)
		fill(to + h * WIDTH, token, layer, side, h);
}

static void register_layouts(struct load *l)
{
	static const struct kvc_layer layers[LAYERS] = {{HEADS, WIDTH, WIDTH, 0},
							{HEADS, WIDTH, WIDTH, 0}};
	static const struct kvc_plane plane = {"counter", KVC_PLANE_SEQUENCE, 8};

	for (int kind = 0; kind < N_KINDS; kind++) {
		struct kvc_layout_options options = {
			.size = sizeof(options),
			.fingerprint = {(uint8_t)(kind + 1)},
			.n_layers = LAYERS,
			.layers = layers,
			.dtype = KVC_F32,
			.k_format = kind == REPLAY ? KVC_INT8 : KVC_RAW,
			.v_format = kind == REPLAY ? KVC_INT8 : KVC_RAW,
			.block_tokens = BLOCK_TOKENS,
			.n_planes = 1,
			.planes = &plane,
		};

		DO(l, NULL, l->layouts[kind] = kvc_layout_register(l->session, &options));
	}
}

static void open_session(struct load *l)
{
	const struct kvc_session_options options = {
		.size = sizeof(options), .runtime_dir = l->dir, .deadline_ms = DEADLINE_MS};

	DO(l, NULL, l->session = kvc_open(&options));
	register_layouts(l);
	DO(l, NULL, l->writer = kvc_writer_new(l->session));
}

/* ---- shadows ------------------------------------------------------------------------------ */

static struct shadow_state *now_of(const struct shadow *s)
{
	return &s->states[s->n_states - 1];
}

/* A copy of what counts, to be changed into the next state. What was forward is gone. */
static struct shadow_state *next_state(struct shadow *s)
{
	if (s->n_states == MOST_STATES) { /* the oldest half: no journal of ours is that long */
		memmove(s->states, s->states + MOST_STATES / 2,
			MOST_STATES / 2 * sizeof(s->states[0]));
		s->n_states = MOST_STATES / 2;
	}
	s->states[s->n_states] = s->states[s->n_states - 1];
	s->n_forward = 0;
	return &s->states[s->n_states++];
}

static void begin_shadow(struct shadow *s, enum kind kind, const struct shadow_state *from)
{
	s->is_there = true;
	s->kind = kind;
	s->n_states = 1;
	s->n_forward = 0;
	s->states[0] = from ? *from : (struct shadow_state){0};
}

/* Every element of every slot. */
static void compare(const struct load *l, const struct shadow *s, kvc_seq *seq)
{
	static float got[2][MOST_TOKENS * HEADS * WIDTH];
	const struct shadow_state *now = now_of(s);
	const uint64_t *counter = kvc_plane_get(seq, "counter");
	float want[WIDTH];

	CHECK(l, s, kvc_length(seq) == now->n);
	CHECK(l, s, (counter ? *counter : 0) == now->counter);
	for (uint32_t layer = 0; now->n && layer < LAYERS; layer++) {
		CHECK(l, s, kvc_read(seq, layer, 0, now->n, got[0], got[1]) == 0);
		for (uint32_t at = 0; at < 2 * now->n * HEADS; at++) {
			uint32_t side = at & 1, head = at / 2 % HEADS, slot = at / 2 / HEADS;

			fill(want, now->tokens[layer][head][slot], layer, side, head);
			CHECK(l, s,
			      memcmp(got[side] + (slot * HEADS + head) * WIDTH, want,
				     sizeof(want)) == 0);
		}
	}
}

static struct shadow *pick(struct load *l, struct shadow *from, uint64_t n, bool is_there)
{
	struct shadow *s = &from[draw(l, n)];

	return s->is_there == is_there ? s : NULL;
}

/* One that this process writes now. */
static struct shadow *pick_live(struct load *l)
{
	struct shadow *s = pick(l, l->seqs, N_SEQS, true);

	return s && s->seq ? s : NULL;
}

/* ---- operations --------------------------------------------------------------------------- */

static void set_journal(struct load *l, struct shadow *s)
{
	const struct kvc_journal_options options = {.size = sizeof(options),
						    .mode = s->kind == UNDO ? KVC_JOURNAL_UNDO :
									      KVC_JOURNAL_REPLAY};

	if (s->kind != APPENDED)
		CHECK(l, s, kvc_journal_set(s->seq, &options) == 0);
}

static void op_new(struct load *l)
{
	struct shadow *s = pick(l, l->seqs, N_SEQS, false);
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = s ? s->name : NULL, .max_tokens = 256};

	if (!s)
		return;
	begin_shadow(s, (enum kind)draw(l, N_KINDS), NULL);
	DO(l, s, s->seq = kvc_seq_new(l->writer, l->layouts[s->kind], &options));
	set_journal(l, s);
}

/* As many steps as the journal reaches, and no more than are known here. */
static uint32_t n_steps_of(const struct load *l, const struct shadow *s)
{
	struct kvc_journal_info info;

	CHECK(l, s, kvc_journal_info(s->seq, &info) == 0);
	return info.n_steps < s->n_states - 1 ? (uint32_t)info.n_steps : s->n_states - 1;
}

static void go_back_steps(struct load *l, struct shadow *s, uint32_t n)
{
	while (kvc_rollback_steps(s->seq, n)) {
		CHECK(l, s, kvc_error() == KVC_ERESERVE);
		DO(l, s, kvc_reserve_scatter(s->seq, 1, HEADS, 24) == 0);
	}
	s->n_states -= n;
	s->n_forward += n;
}

static void go_back_tokens(struct load *l, struct shadow *s, uint32_t n)
{
	struct shadow_state *state;

	CHECK(l, s, kvc_rollback_remove(s->seq, n) == 0);
	state = next_state(s);
	state->n -= n;
	s->states[0] = *state;
	s->n_states = 1;
}

static void op_back(struct load *l)
{
	struct shadow *s = pick_live(l);

	if (!s)
		return;
	if (s->kind == APPENDED)
		go_back_tokens(l, s, (uint32_t)draw(l, now_of(s)->n + 1));
	else
		go_back_steps(l, s, (uint32_t)draw(l, n_steps_of(l, s) + 1));
}

static void op_forward(struct load *l)
{
	struct shadow *s = pick_live(l);
	uint32_t n;

	if (!s || s->kind != REPLAY || s->n_forward == 0)
		return;
	n = 1 + (uint32_t)draw(l, s->n_forward);
	CHECK(l, s, kvc_replay(s->seq, n) == (int64_t)n);
	s->n_states += n;
	s->n_forward -= n;
}

static void write_tokens(struct load *l, struct shadow *s, uint32_t n)
{
	float k[ROOM_TOKENS * HEADS * WIDTH], v[ROOM_TOKENS * HEADS * WIDTH];

	for (uint32_t layer = 0; layer < LAYERS; layer++) {
		for (uint32_t t = 0; t < n; t++) {
			fill_token(k + t * HEADS * WIDTH, l->next_token + t, layer, 0);
			fill_token(v + t * HEADS * WIDTH, l->next_token + t, layer, 1);
		}
		CHECK(l, s, kvc_write(s->seq, layer, k, v) == 0);
	}
}

/* Each token is a step by itself. */
static void note_tokens(struct load *l, struct shadow *s, uint32_t n)
{
	for (uint32_t t = 0; t < n; t++) {
		struct shadow_state *state = next_state(s);

		for (uint32_t layer = 0; layer < LAYERS; layer++)
			for (uint32_t h = 0; h < HEADS; h++)
				state->tokens[layer][h][state->n] = l->next_token;
		state->n++;
		l->next_token++;
	}
	if (s->kind == APPENDED) {
		s->states[0] = *now_of(s);
		s->n_states = 1;
	}
}

static void append(struct load *l, struct shadow *s, uint32_t n)
{
	DO(l, s, kvc_reserve(s->seq, n) == 0);
	CHECK(l, s, kvc_append_begin(s->seq, n) == 0);
	write_tokens(l, s, n);
	DO(l, s, kvc_commit(l->writer, &s->seq, 1) == 0);
	note_tokens(l, s, n);
}

static void drop(struct load *l, struct shadow *s)
{
	if (s->seq)
		DO(l, s, kvc_seq_drop(s->seq) == 0);
	else
		DO(l, s, kvc_remove(l->session, s->name) == 0);
	s->seq = NULL;
	s->is_there = false;
}

static void op_append(struct load *l)
{
	struct shadow *s = pick_live(l);

	if (!s)
		return;
	if (now_of(s)->n <= MOST_TOKENS - ROOM_TOKENS)
		append(l, s, 1 + (uint32_t)draw(l, ROOM_TOKENS));
	else if (s->kind == APPENDED)
		go_back_tokens(l, s, (uint32_t)draw(l, now_of(s)->n));
	else
		drop(l, s);
}

/* Other slots for each head, and the sequence plane: one step. */
static void op_scatter(struct load *l)
{
	struct shadow *s = pick_live(l);
	float k[HEADS * WIDTH], v[HEADS * WIDTH];
	struct shadow_state *state;
	uint32_t index[HEADS], layer;
	uint64_t counter;

	if (!s || s->kind == APPENDED || now_of(s)->n == 0)
		return;
	layer = (uint32_t)draw(l, LAYERS);
	counter = l->next_token;
	for (uint32_t h = 0; h < HEADS; h++)
		index[h] = (uint32_t)draw(l, now_of(s)->n);
	fill_token(k, l->next_token, layer, 0);
	fill_token(v, l->next_token, layer, 1);
	DO(l, s, kvc_reserve(s->seq, 1) == 0);
	DO(l, s, kvc_reserve_scatter(s->seq, 1, HEADS, HEADS + 1) == 0);
	CHECK(l, s, kvc_update_begin(s->seq, 0, 0) == 0);
	CHECK(l, s, kvc_scatter(s->seq, layer, 1, index, 0, k, v, NULL) == 0);
	CHECK(l, s, kvc_plane_set(s->seq, "counter", &counter, sizeof(counter)) == 0);
	DO(l, s, kvc_commit(l->writer, &s->seq, 1) == 0);
	state = next_state(s);
	for (uint32_t h = 0; h < HEADS; h++)
		state->tokens[layer][h][index[h]] = l->next_token;
	state->counter = counter;
	l->next_token++;
}

static void op_fold(struct load *l)
{
	struct shadow *s = pick_live(l);
	int64_t n_rows;

	if (!s || s->kind != REPLAY)
		return;
	DO(l, s, (n_rows = kvc_fold(s->seq, draw(l, 3) ? 0 : draw(l, 60))) >= 0);
	if (n_rows > 0)
		s->n_forward = 0;
}

/* The states that a new handle can go back to are what the journal says. */
static void take_snapshot(struct load *l, struct shadow *snapshot, struct shadow *s)
{
	const struct kvc_snapshot_options options = {
		.size = sizeof(options), .name = snapshot->name, .replace = 1};

	DO(l, snapshot, kvc_snapshot(s->seq, &options, NULL) == 0);
	begin_shadow(snapshot, s->kind, now_of(s));
}

static void op_snapshot(struct load *l)
{
	struct shadow *s = pick_live(l);

	if (s)
		take_snapshot(l, &l->snapshots[draw(l, N_SNAPSHOTS)], s);
}

static void op_open(struct load *l)
{
	struct shadow *s = pick(l, l->snapshots, N_SNAPSHOTS, true);
	kvc_seq *seq;

	if (!s)
		return;
	DO(l, s, seq = kvc_open_snapshot(l->writer, s->name));
	compare(l, s, seq);
	kvc_seq_free(seq);
}

/* A fork of a snapshot, or of a sequence, live or parked. */
static void op_fork(struct load *l)
{
	struct shadow *s = pick(l, l->seqs, N_SEQS, false);
	struct shadow *from = draw(l, 2) ? pick(l, l->snapshots, N_SNAPSHOTS, true) :
					   pick(l, l->seqs, N_SEQS, true);
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = s ? s->name : NULL, .max_tokens = 256};

	if (!s || !from)
		return;
	begin_shadow(s, from->kind, now_of(from));
	DO(l, s, s->seq = kvc_fork(l->writer, from->name, &options));
	compare(l, s, s->seq);
}

static void op_fork_local(struct load *l)
{
	struct shadow *s = pick_live(l);
	struct shadow fork;

	if (!s || s->kind != APPENDED || now_of(s)->n > MOST_TOKENS - ROOM_TOKENS)
		return;
	fork = (struct shadow){.states = calloc(2, sizeof(struct shadow_state))};
	snprintf(fork.name, sizeof(fork.name), "%.20s fork", s->name);
	begin_shadow(&fork, s->kind, now_of(s));
	DO(l, s, kvc_reserve_forks(s->seq, 1) == 0);
	DO(l, s, kvc_reserve(s->seq, 8) == 0);
	CHECK(l, s, fork.seq = kvc_fork_local(s->seq, 4));
	append(l, &fork, 1);
	compare(l, &fork, fork.seq);
	compare(l, s, s->seq);
	kvc_seq_free(fork.seq);
	free(fork.states);
}

static void op_mark(struct load *l)
{
	struct shadow *s = pick_live(l);
	kvc_mark mark;
	uint32_t n;

	if (!s || s->kind != APPENDED || now_of(s)->n > MOST_TOKENS - ROOM_TOKENS)
		return;
	n = now_of(s)->n;
	DO(l, s, kvc_mark_set(s->seq, &mark) == 0);
	append(l, s, 1 + (uint32_t)draw(l, ROOM_TOKENS));
	DO(l, s, kvc_rollback_mark(s->seq, &mark) == 0);
	DO(l, s, kvc_mark_release(s->seq, &mark) == 0);
	now_of(s)->n = n;
}

static void park(struct shadow *s)
{
	kvc_seq_free(s->seq);
	s->seq = NULL;
	s->n_forward = 0;
}

static void take_over(struct load *l, struct shadow *s)
{
	DO(l, s, s->seq = kvc_takeover(l->writer, s->name));
	compare(l, s, s->seq);
}

static void op_park(struct load *l)
{
	struct shadow *s = pick(l, l->seqs, N_SEQS, true);

	if (s && s->seq)
		park(s);
	else if (s)
		take_over(l, s);
}

static void op_drop(struct load *l)
{
	struct shadow *s = pick(l, l->seqs, N_SEQS, true);

	if (s && draw(l, 2))
		drop(l, s);
}

static void op_remove(struct load *l)
{
	struct shadow *s = pick(l, l->snapshots, N_SNAPSHOTS, true);

	if (!s)
		return;
	DO(l, s, kvc_remove(l->session, s->name) == 0);
	s->is_there = false;
}

static void op_verify(struct load *l)
{
	struct shadow *s = pick(l, l->snapshots, N_SNAPSHOTS, true);
	struct kvc_verify_result result;
	uint8_t digest[16];
	kvc_seq *seq;

	if (!s)
		return;
	DO(l, s, kvc_verify(l->session, s->name, NULL, NULL, &result) == 0);
	DO(l, s, seq = kvc_open_snapshot(l->writer, s->name));
	CHECK(l, s, kvc_digest(seq, digest) == 0);
	CHECK(l, s, memcmp(digest, result.digest, sizeof(digest)) == 0);
	kvc_seq_free(seq);
}

/* All that has a name waits for the next session. */
static void op_session(struct load *l)
{
	if (draw(l, 4))
		return;
	kvc_close(l->session);
	open_session(l);
	for (int i = 0; i < N_SEQS; i++) {
		l->seqs[i].seq = NULL;
		l->seqs[i].n_forward = 0;
		if (l->seqs[i].is_there)
			take_over(l, &l->seqs[i]);
	}
}

static const struct {
	const char *name;
	void (*fn)(struct load *l);
	unsigned weight;
} ops[] = {
	{"new", op_new, 6},           {"append", op_append, 16},
	{"back", op_back, 6},         {"forward", op_forward, 5},
	{"scatter", op_scatter, 10},  {"fold", op_fold, 3},
	{"snapshot", op_snapshot, 6}, {"open", op_open, 4},
	{"fork", op_fork, 5},         {"fork_local", op_fork_local, 3},
	{"mark", op_mark, 2},         {"park", op_park, 6},
	{"drop", op_drop, 3},         {"remove", op_remove, 2},
	{"verify", op_verify, 2},     {"session", op_session, 1},
};
#define N_OPS (sizeof(ops) / sizeof(ops[0]))

static void one_op(struct load *l)
{
	uint64_t all = 0, at;
	size_t i = 0;

	for (size_t k = 0; k < N_OPS; k++)
		all += ops[k].weight;
	at = draw(l, all);
	while (at >= ops[i].weight)
		at -= ops[i++].weight;
	l->doing = ops[i].name;
	ops[i].fn(l);
	l->report.n_ops++;
}

/* ---- checks ------------------------------------------------------------------------------- */

static const struct shadow *find(const struct load *l, const char *name, uint32_t kind)
{
	const struct shadow *from = kind == 2 ? l->snapshots : l->seqs;
	const int n = kind == 2 ? N_SNAPSHOTS : N_SEQS;

	for (int i = 0; i < n; i++)
		if (from[i].is_there && strcmp(from[i].name, name) == 0)
			return &from[i];
	return NULL;
}

/* What is listed under our prefix is what we have: no more, no less. */
static void check_list(struct load *l)
{
	char prefix[32];
	Kv__Wire__Request request;
	Kv__Wire__List command = KV__WIRE__LIST__INIT;
	Kv__Wire__Reply *reply;
	uint32_t n_there = 0;

	snprintf(prefix, sizeof(prefix), "core/%u/", l->number);
	command.prefix = prefix;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_LIST;
	request.list = &command;
	DO(l, NULL, reply = rpc_ask(l->session, &request, KV__WIRE__REPLY__RESULT_OBJECTS));
	for (size_t i = 0; i < reply->objects->n_objects; i++) {
		const Kv__Wire__Object *object = reply->objects->objects[i];
		const struct shadow *s = find(l, object->name, object->kind);

		if (!s)
			fprintf(stderr, "%s is there and should not be\n", object->name);
		CHECK(l, s, s && object->length_tokens == now_of(s)->n);
		CHECK(l, s, object->kind == 2 || object->state == (s->seq ? 1 : 2));
	}
	for (int i = 0; i < N_SEQS; i++)
		n_there += l->seqs[i].is_there;
	l->report.n_sequences = n_there;
	for (int i = 0; i < N_SNAPSHOTS; i++)
		n_there += l->snapshots[i].is_there;
	l->report.n_snapshots = n_there - l->report.n_sequences;
	CHECK(l, NULL, reply->objects->n_objects == n_there);
	rpc_reply_free(reply);
}

static void check_all(struct load *l)
{
	l->doing = "check";
	for (int i = 0; i < N_SEQS; i++) {
		struct shadow *s = &l->seqs[i];
		kvc_seq *seq = s->seq;

		if (!s->is_there)
			continue;
		if (!seq)
			DO(l, s, seq = kvc_fork(l->writer, s->name, NULL));
		compare(l, s, seq);
		if (!s->seq)
			DO(l, s, kvc_seq_drop(seq) == 0);
	}
	for (int i = 0; i < N_SNAPSHOTS; i++) {
		struct shadow *s = &l->snapshots[i];
		kvc_seq *seq;

		if (!s->is_there)
			continue;
		DO(l, s, seq = kvc_open_snapshot(l->writer, s->name));
		compare(l, s, seq);
		kvc_seq_free(seq);
	}
	check_list(l);
}

/* ---- life --------------------------------------------------------------------------------- */

static void begin(struct load *l, const char *dir, const char *arg)
{
	unsigned long long seed;

	if (sscanf(arg, "%u %llu", &l->number, &seed) != 2)
		abort();
	snprintf(l->dir, sizeof(l->dir), "%s", dir);
	l->random = seed * 1000 + l->number;
	l->next_token = 1;
	for (int i = 0; i < N_SEQS; i++) {
		snprintf(l->seqs[i].name, sizeof(l->seqs[i].name), "core/%u/s%d", l->number, i);
		l->seqs[i].states = calloc(MOST_STATES + 1, sizeof(struct shadow_state));
		CHECK(l, NULL, l->seqs[i].states);
	}
	for (int i = 0; i < N_SNAPSHOTS; i++) {
		snprintf(l->snapshots[i].name, sizeof(l->snapshots[i].name), "core/%u/n%d",
			 l->number, i);
		l->snapshots[i].states = calloc(1, sizeof(struct shadow_state));
		CHECK(l, NULL, l->snapshots[i].states);
	}
	open_session(l);
}

static void end(struct load *l)
{
	l->doing = "end";
	for (int i = 0; i < N_SEQS; i++) {
		if (l->seqs[i].is_there)
			drop(l, &l->seqs[i]);
		free(l->seqs[i].states);
	}
	for (int i = 0; i < N_SNAPSHOTS; i++) {
		if (l->snapshots[i].is_there)
			DO(l, &l->snapshots[i], kvc_remove(l->session, l->snapshots[i].name) == 0);
		free(l->snapshots[i].states);
	}
	kvc_close(l->session);
}

int core_load_role(const char *dir, const char *arg, int in, int out)
{
	struct pollfd p = {.fd = in, .events = POLLIN};
	struct load *l = calloc(1, sizeof(*l));
	char letter = 'g';

	if (!l)
		return 1;
	begin(l, dir, arg);
	while (letter != 'e') {
		one_op(l);
		if (poll(&p, 1, 0) == 0)
			continue;
		if (read(in, &letter, 1) != 1)
			return 1;
		if (letter != 'c')
			continue;
		check_all(l);
		if (write(out, &l->report, sizeof(l->report)) != sizeof(l->report) ||
		    read(in, &letter, 1) != 1)
			return 1;
		l->report = (struct core_load_report){0};
	}
	end(l);
	free(l);
	return 0;
}
