/*
 * kill-writer [--rounds N] [--seed S]: writers die, at every point between two stores and at
 * random times, while a core takes snapshots and dies too.
 *
 * A round: a child works on shared bare memory and acknowledges each commit through a pipe; the
 * parent is the core. The history follows from the seed, one update a step, so that the state
 * after k updates is known. After the child's death the core recovers: each sequence must be
 * that of the last acknowledged update or of the one in flight, the same for all sequences, every
 * byte. Every snapshot must be the state of its update number, also afterwards. Then another
 * child takes over and goes on. Prints TAP, one line a scenario.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/crash/rounds.h"
#include "tests/support/bare.h"

#define MAX_TOKENS 300u
#define N_PLACES 8 /* two sequences from the start, the others spare */
#define N_NAMED 2
#define N_STEPS 4000 /* more than a child gets done */
#define N_SNAPSHOTS 24
#define BLOCK_TOKENS 8

#define DIE(...) \
	do { \
		fprintf(stderr, __VA_ARGS__); \
		fputc('\n', stderr); \
		abort(); \
	} while (0)

/* ---- the history, known to both sides ------------------------------------------------------ */

struct shadow {
	uint64_t tokens[MAX_TOKENS];
	uint64_t length;
	bool live;
};

struct history {
	struct shadow places[N_PLACES];
	int spare[N_PLACES]; /* as writer->spare: a stack */
	int n_spare;
	uint64_t random, next_token;
};

enum op { OP_APPEND, OP_ROLLBACK, OP_MARK, OP_FORK, OP_DROP };

struct step {
	enum op op;
	int a, b; /* places; b -1: none */
	uint64_t n, m;
	uint64_t first_token; /* number of the first appended token of a; b's follow */
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x7fb5d329728ea185);
	x ^= x >> 27;
	x *= UINT64_C(0x81dadef4bc2dd44d);
	return x ^ x >> 33;
}

static uint64_t draw(uint64_t *random, uint64_t n)
{
	*random = mix(*random + UINT64_C(0x9e3779b97f4a7c15));
	return *random % n;
}

static int pick(struct history *h)
{
	int p = (int)draw(&h->random, N_PLACES);

	while (!h->places[p].live)
		p = (p + 1) % N_PLACES;
	return p;
}

/* Decides the next step from the state alone. */
static struct step next_step(struct history *h)
{
	struct step s = {.op = OP_APPEND, .b = -1};
	uint64_t which = draw(&h->random, 16), length;

	s.a = pick(h);
	length = h->places[s.a].length;
	s.n = 1 + draw(&h->random, 20);
	s.first_token = h->next_token + 1;
	if (which >= 14 && h->n_spare)
		s.op = OP_FORK;
	else if (which == 13 && s.a >= N_NAMED)
		s.op = OP_DROP;
	else if (which == 12)
		s.op = OP_MARK;
	else if ((which >= 8 && length) || length + 20 > MAX_TOKENS)
		s.op = OP_ROLLBACK;
	if (s.op == OP_ROLLBACK)
		s.n = 1 + draw(&h->random, length < 30 ? length : 30);
	if (s.op == OP_APPEND && which < 3) {
		s.b = pick(h);
		s.m = 1 + draw(&h->random, 3);
		if (s.b == s.a || h->places[s.b].length + s.m > MAX_TOKENS)
			s.b = -1;
	}
	if (s.op == OP_ROLLBACK && which == 8) {
		s.b = pick(h);
		if (s.b == s.a)
			s.b = -1;
		else
			s.m = draw(&h->random, h->places[s.b].length + 1);
	}
	return s;
}

static void shadow_append(struct history *h, int place, uint64_t n)
{
	struct shadow *p = &h->places[place];

	while (n--)
		p->tokens[p->length++] = ++h->next_token;
}

static void apply(struct history *h, const struct step *s)
{
	int f;

	switch (s->op) {
	case OP_APPEND:
		shadow_append(h, s->a, s->n);
		if (s->b >= 0)
			shadow_append(h, s->b, s->m);
		break;
	case OP_ROLLBACK:
		h->places[s->a].length -= s->n;
		if (s->b >= 0)
			h->places[s->b].length -= s->m;
		break;
	case OP_MARK: break;
	case OP_FORK:
		f = h->spare[--h->n_spare];
		h->places[f] = h->places[s->a];
		break;
	case OP_DROP:
		h->places[s->a].live = false;
		h->spare[h->n_spare++] = s->a;
		break;
	}
}

/* ---- the writer: a child ------------------------------------------------------------------- */

struct worker {
	struct bare *bare;
	struct kvc_writer *writer;
	struct kvc_seq *seqs[N_PLACES];
	uint32_t first_place;
};

static void fill_row(char *row, uint32_t bytes, uint64_t token, uint32_t region)
{
	uint64_t value = mix(token * 1000 + region);

	for (uint32_t i = 0; i < bytes; i++)
		row[i] = (char)(value >> (i % 8 * 8) ^ i);
}

static void reserve(struct worker *w, struct kvc_seq *seq, uint64_t n)
{
	if (bare_reserve(w->bare, seq, n))
		DIE("pool of the test is used up");
}

static void write_update(struct worker *w, int place, uint64_t n, uint64_t first_token)
{
	const struct kv_layout *layout = w->bare->layout.fields;
	struct kvc_seq *seq = w->seqs[place];
	char rows[2][64 * 64];

	if (kvc_append_begin(seq, n)) {
		reserve(w, seq, n);
		if (kvc_append_begin(seq, n))
			DIE("append_begin: %s", kvc_error_text());
	}
	for (uint32_t l = 0; l < layout->n_layers; l++) {
		uint32_t region = layout->layer_maps[l].first_region;

		for (uint32_t side = 0; side < 2; side++)
			for (uint64_t t = 0; t < n; t++)
				fill_row(rows[side] + t * layout->regions[region + side].row_bytes,
					 layout->regions[region + side].row_bytes, first_token + t,
					 region + side);
		if (kvc_write(seq, l, rows[0], rows[1]))
			DIE("write: %s", kvc_error_text());
	}
}

static void do_fork(struct worker *w, const struct step *s)
{
	struct kvc_seq *fork = kvc_fork_local(w->seqs[s->a], 0);

	if (!fork) {
		reserve(w, w->seqs[s->a], 0);
		fork = kvc_fork_local(w->seqs[s->a], 0);
	}
	if (!fork)
		DIE("fork: %s", kvc_error_text());
	w->seqs[fork->place - w->first_place] = fork;
}

static void do_step(struct worker *w, const struct step *s)
{
	struct kvc_seq *both[2] = {w->seqs[s->a], s->b >= 0 ? w->seqs[s->b] : NULL};
	uint64_t remove[2] = {s->n, s->m};
	size_t n = s->b >= 0 ? 2 : 1;
	kvc_mark mark;
	int r = 0;

	switch (s->op) {
	case OP_APPEND:
		write_update(w, s->a, s->n, s->first_token);
		if (s->b >= 0)
			write_update(w, s->b, s->m, s->first_token + s->n);
		r = kvc_commit(w->writer, both, n);
		break;
	case OP_ROLLBACK: r = kvc_rollback_many(w->writer, both, remove, n); break;
	case OP_MARK:
		r = kvc_mark_set(both[0], &mark);
		if (r && kvc_error() == KVC_ELIMIT) {
			struct kv_shm_mark *first = &both[0]->shm->marks[0];

			mark = (kvc_mark){first->id, first->update, first->length_tokens};
			r = kvc_mark_release(both[0], &mark);
		}
		break;
	case OP_FORK: do_fork(w, s); break;
	case OP_DROP:
		seq_end(both[0], SEQ_END_LOCAL);
		w->seqs[s->a] = NULL;
		break;
	}
	if (r)
		DIE("step %d: %s", s->op, kvc_error_text());
}

static _Noreturn void child(struct worker *w, struct history h, int ack, uint64_t fault_at)
{
	kv_fault_passed = 0;
	kv_fault_at = fault_at;
	for (int i = 0; i < N_STEPS; i++) {
		struct step s = next_step(&h);

		do_step(w, &s);
		if (write(ack, "k", 1) != 1)
			_exit(3);
		apply(&h, &s);
	}
	_exit(0);
}

/* ---- the core: the parent ------------------------------------------------------------------ */

struct world {
	struct worker worker;
	struct history before; /* state at the beginning of the child's life */
	uint64_t first_update;
	uint64_t random;
	struct seg_state snapshots[N_SNAPSHOTS];
	int snapshot_place[N_SNAPSHOTS];
	int n_snapshots;
	uint64_t total_updates, total_snapshots;
};

static const struct kv_layer layers[] = {{2, 4, 4, 0}, {1, 6, 2, 0}, {2, 4, 4, 5000}};

static void check_state(struct world *w, const struct seg_state *state, const struct shadow *s,
			const char *what)
{
	const struct kv_layout *layout = w->worker.bare->layout.fields;
	char expected[64];

	if (state->head.length_tokens != s->length)
		DIE("%s: length %llu, not %llu", what,
		    (unsigned long long)state->head.length_tokens, (unsigned long long)s->length);
	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		for (uint32_t r = 0; r < layout->groups[g].n_regions; r++) {
			uint32_t region = layout->groups[g].first_region + r;
			uint32_t bytes = layout->regions[region].row_bytes;

			for (uint64_t t = 0; t < s->length; t++) {
				fill_row(expected, bytes, s->tokens[t], region);
				if (memcmp(bare_row(w->worker.bare, state, g, region, t), expected,
					   bytes) != 0)
					DIE("%s: region %u token %llu is wrong", what, region,
					    (unsigned long long)t);
			}
		}
}

static struct history after(const struct world *w, uint64_t n_updates)
{
	struct history h = w->before;

	while (n_updates--) {
		struct step s = next_step(&h);

		apply(&h, &s);
	}
	return h;
}

/* pin false: by a core that is about to die, whose pins would be lost with it. */
static void take_snapshot(struct world *w, bool pin)
{
	int place = (int)draw(&w->random, N_NAMED);
	struct seg_state *state = &w->snapshots[w->n_snapshots];
	struct bare *bare = w->worker.bare;
	struct seg_place *at = &bare->places[w->worker.first_place + (uint32_t)place];
	struct kv_shm_writer *writer = segment_writer(&bare->segment, at->writer);
	struct errbuf err;
	bool bumped;
	int tries = 0;

	if (w->n_snapshots == N_SNAPSHOTS)
		return;
	while (hold_try(writer)) {
		if (++tries > 100000) { /* it died with the word open */
			hold_cancel(writer);
			return;
		}
	}
	if (segment_read(&bare->segment, at, bare->layout.fields, hold_update(writer), state, &err))
		DIE("snapshot: %s", err.text);
	if (hold_freeze(&bare->segment, at, bare->layout.fields, state, &bumped, &err))
		DIE("freeze: %s", err.text);
	if (pin)
		bare_pin(bare, state, 1);
	hold_release(writer, false);
	w->snapshot_place[w->n_snapshots++] = place;
}

/* A core in a process of its own that dies while it acts; the next one sets things right. */
static void core_dies(struct world *w, uint64_t fault_at)
{
	struct bare *bare = w->worker.bare;
	struct kv_shm_writer *writer = w->worker.writer->shm;
	pid_t pid = fork();
	bool held;

	if (pid == 0) {
		kv_fault_passed = 0;
		kv_fault_at = fault_at;
		take_snapshot(w, false);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	for (uint32_t p = 0; p < N_PLACES; p++)
		bare->places[w->worker.first_place + p].frozen_stamp = 0;
	hold_recover(writer, &held);
	if (!held)
		return;
	for (uint32_t p = 0; p < N_PLACES; p++)
		hold_clear(&bare->segment, &bare->places[w->worker.first_place + p]);
	hold_release(writer, false);
}

static void check_snapshots(struct world *w)
{
	for (int i = 0; i < w->n_snapshots; i++) {
		struct seg_state *state = &w->snapshots[i];
		struct history h = after(w, state->update - w->first_update);

		check_state(w, state, &h.places[w->snapshot_place[i]], "snapshot");
		w->total_snapshots++;
	}
}

/* Everything that the dead writer left; the number of updates it had done. */
static uint64_t recover(struct world *w, uint64_t n_acked, struct seg_state states[N_PLACES])
{
	struct bare *bare = w->worker.bare;
	uint64_t update = hold_bury(w->worker.writer->shm);
	uint64_t n_done = update - w->first_update;
	struct history h;
	struct errbuf err;

	if (n_done != n_acked && n_done != n_acked + 1)
		DIE("recovered update %llu after %llu acknowledged", (unsigned long long)n_done,
		    (unsigned long long)n_acked);
	h = after(w, n_done);
	for (uint32_t p = 0; p < N_PLACES; p++) {
		struct seg_place *place = &bare->places[w->worker.first_place + p];

		hold_clear(&bare->segment, place);
		memset(&states[p], 0, sizeof(states[p]));
		if (!h.places[p].live) {
			struct kv_head head;
			uint64_t at;

			if (segment_peek(&bare->segment, place->index, place->writer, &head, &at) ||
			    head.state != KV_HEAD_NONE)
				DIE("a dropped fork is there");
			continue;
		}
		if (segment_read(&bare->segment, place, bare->layout.fields, update, &states[p],
				 &err))
			DIE("recovered place %u: %s", p, err.text);
		check_state(w, &states[p], &h.places[p], "recovered sequence");
	}
	w->before = h;
	w->total_updates += n_done;
	return n_done;
}

static void make_handles(struct world *w, const struct seg_state *states)
{
	struct worker *k = &w->worker;
	struct history *h = &w->before;

	k->first_place = k->bare->n_places;
	h->n_spare = 0;
	for (int p = 0; p < N_PLACES; p++)
		k->seqs[p] = NULL;
	for (int p = 0; p < N_NAMED; p++)
		k->seqs[p] = bare_seq(k->bare, k->writer, MAX_TOKENS, states ? &states[p] : NULL);
	for (int p = N_NAMED; p < N_PLACES; p++) {
		/* Local forks end with their session: only the named ones are taken over. */
		bare_spare_places(k->bare, k->writer, MAX_TOKENS, 1);
		h->places[p].live = false;
		h->spare[h->n_spare++] = p;
	}
	w->first_update = kv_word_update(kv_word_load(k->writer->shm));
}

static struct world *world_new(uint64_t seed)
{
	struct world *w = calloc(1, sizeof(*w));

	w->worker.bare = bare_new(bare_layout(3, layers, BLOCK_TOKENS));
	w->worker.writer = bare_writer(w->worker.bare, 0);
	w->random = seed;
	w->before.random = mix(seed);
	w->before.places[0].live = w->before.places[1].live = true;
	make_handles(w, NULL);
	return w;
}

static uint64_t read_acks(int fd)
{
	char buffer[4096];
	uint64_t n = 0;
	ssize_t got;

	while ((got = read(fd, buffer, sizeof(buffer))) > 0)
		n += (uint64_t)got;
	return n;
}

static void nap_us(long us)
{
	struct timespec t = {0, us * 1000};

	nanosleep(&t, NULL);
}

/* One life of a writer. fault_at 0: it is killed at a random time, under snapshots. */
static void life(struct world *w, uint64_t fault_at, struct seg_state states[N_PLACES])
{
	int acks[2], status;
	pid_t pid;

	w->n_snapshots = 0;
	if (pipe(acks))
		DIE("pipe: %s", strerror(errno));
	fflush(stderr);
	pid = fork();
	if (pid == 0) {
		close(acks[0]);
		child(&w->worker, w->before, acks[1], fault_at);
	}
	close(acks[1]);
	for (uint64_t n = draw(&w->random, 12); fault_at == 0 && n; n--) {
		nap_us((long)draw(&w->random, 200));
		if (draw(&w->random, 6) == 0)
			core_dies(w, 1 + draw(&w->random, 8));
		else
			take_snapshot(w, true);
	}
	if (fault_at == 0) {
		nap_us((long)draw(&w->random, 400));
		kill(pid, SIGKILL);
	}
	waitpid(pid, &status, 0);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			DIE("the writer failed by itself, status %d", status);
	}
	check_snapshots(w);
	recover(w, read_acks(acks[0]), states);
	close(acks[0]);
}

static void free_states(struct seg_state *states, int n)
{
	for (int i = 0; i < n; i++)
		seg_state_fini(&states[i]);
}

/*
 * A new writer takes the named sequences over. A fresh word, as a session of its own would have;
 * the old blocks stay pinned by the states, as a parked sequence's are.
 */
static void take_over(struct world *w, const struct seg_state states[N_PLACES], uint32_t index)
{
	struct bare *bare = w->worker.bare;

	for (int p = 0; p < N_NAMED; p++)
		bare_pin(bare, &states[p], 1);
	bare_revoke_all(bare);
	w->worker.writer = bare_writer(bare, index);
	make_handles(w, states);
}

static void run_round(uint64_t seed, uint64_t *n_updates, uint64_t *n_snapshots)
{
	struct world *w = world_new(seed);
	struct seg_state states[3][N_PLACES];

	for (uint32_t i = 0; i < 3; i++) {
		life(w, 0, states[i]);
		for (int n = 0; n < w->n_snapshots; n++)
			bare_pin(w->worker.bare, &w->snapshots[n], -1);
		free_states(w->snapshots, w->n_snapshots);
		if (i < 2)
			take_over(w, states[i], i + 1);
	}
	for (int i = 0; i < 3; i++)
		free_states(states[i], N_PLACES);
	*n_updates += w->total_updates;
	*n_snapshots += w->total_snapshots;
	bare_free(w->worker.bare);
	free(w);
}

#ifdef KV_FAULT_INJECTION
/* Dies at every point of the first steps, one after the other. */
static uint64_t run_points(uint64_t seed, uint64_t n_points)
{
	uint64_t at;

	for (at = 1; at <= n_points; at++) {
		struct world *w = world_new(seed);
		struct seg_state states[N_PLACES];

		life(w, at, states);
		free_states(states, N_PLACES);
		bare_free(w->worker.bare);
		free(w);
	}
	return at - 1;
}

static void test_points(uint64_t seed, uint64_t n_points)
{
	printf("# %llu points\n", (unsigned long long)run_points(seed, n_points));
	printf("ok 2 - a writer that dies between any two stores leaves the state before or after\n");
}
#else
static void test_points(uint64_t seed, uint64_t n_points)
{
	(void)seed;
	(void)n_points;
	printf("ok 2 - a writer that dies between any two stores # SKIP needs "
	       "--enable-fault-injection\n");
}
#endif

int main(int argc, char **argv)
{
	uint64_t rounds = 200, seed = 1, n_updates = 0, n_snapshots = 0;

	if (!rounds_parse(argc, argv, &rounds, &seed))
		return 2;
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("TAP version 13\n1..2\n");
	for (uint64_t i = 0; i < rounds; i++)
		run_round(seed + i, &n_updates, &n_snapshots);
	printf("# %llu rounds, %llu updates, %llu snapshots\n", (unsigned long long)rounds,
	       (unsigned long long)n_updates, (unsigned long long)n_snapshots);
	printf("ok 1 - writers killed at random times leave the last update or the one in flight\n");
	test_points(seed, rounds * 8);
	return 0;
}
