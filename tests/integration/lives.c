#include "tests/integration/lives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/rpc.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define HEADS 2
#define WIDTH 32
#define RING 24
#define DEADLINE_MS 20000

static const char *const kinds[LIVES_KIDS] = {"undo", "replay", "append", "fork"};

/* ---- layouts and tokens ------------------------------------------------------------------- */

static bool has_journal(const char *kind)
{
	return strcmp(kind, "undo") == 0 || strcmp(kind, "replay") == 0;
}

/* A global layer and one that is a ring where there is a journal, and planes of both kinds;
 * quantised where the journal is laid over. */
static kvc_layout *layout_of(kvc_session *session, const char *kind)
{
	const struct kvc_layer layers[2] = {{HEADS, WIDTH, WIDTH, 0},
					    {HEADS, WIDTH, WIDTH, has_journal(kind) ? RING : 0}};
	static const struct kvc_plane planes[2] = {{"position", KVC_PLANE_SLOT, 4},
						   {"counter", KVC_PLANE_SEQUENCE, 8}};
	const bool quantised = strcmp(kind, "replay") == 0;
	struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = {7, 7},
		.n_layers = 2,
		.layers = layers,
		.dtype = KVC_F32,
		.k_format = quantised ? KVC_U8 : KVC_RAW,
		.v_format = quantised ? KVC_INT8 : KVC_RAW,
		.block_tokens = 8,
		.n_planes = 2,
		.planes = planes,
	};
	kvc_layout *layout = kvc_layout_register(session, &options);

	kt_ok(layout ? 0 : -1);
	return layout;
}

static void fill(float *to, uint64_t token, uint32_t layer, uint32_t side)
{
	for (uint32_t i = 0; i < HEADS * WIDTH; i++)
		to[i] = (float)((token * 131 + layer * 17 + side * 7 + i * 29) % 251) - 100.0f;
}

struct life {
	kvc_session *session;
	kvc_writer *writer;
	kvc_seq *seq;
	kvc_mark mark;
	uint64_t next; /* token */
	bool has_journal;
	uint32_t n_restarted;
};

/* KVC_ERESTARTED says that nothing has happened: the caller does it again. */
#define AGAIN(life, call) \
	while ((call) && kvc_error() == KVC_ERESTARTED) \
	(life)->n_restarted++

static void append(struct life *l)
{
	float k[HEADS * WIDTH], v[HEADS * WIDTH];
	uint32_t position[HEADS] = {(uint32_t)l->next, (uint32_t)l->next + 1000};
	const void *planes[1] = {position};
	int rc;

	AGAIN(l, rc = kvc_reserve(l->seq, 1));
	kt_ok(rc);
	kt_ok(kvc_append_begin(l->seq, 1));
	for (uint32_t layer = 0; layer < 2; layer++) {
		fill(k, l->next, layer, 0);
		fill(v, l->next, layer, 1);
		kt_ok(kvc_write(l->seq, layer, k, v));
		kt_ok(kvc_write_planes(l->seq, layer, 0, 1, planes));
	}
	if (l->has_journal) /* without one a sequence that sets such planes goes back nowhere */
		kt_ok(kvc_plane_set(l->seq, "counter", &l->next, sizeof(l->next)));
	AGAIN(l, rc = kvc_commit(l->writer, &l->seq, 1));
	kt_ok(rc);
	l->next++;
}

static void append_many(struct life *l, unsigned n)
{
	while (n--)
		append(l);
}

/* Other slots for each head, of the layer without bound. */
static void scatter(struct life *l)
{
	const uint32_t index[HEADS] = {(uint32_t)(l->next % 11), (uint32_t)(l->next % 7)};
	float k[HEADS * WIDTH], v[HEADS * WIDTH];
	int rc;

	AGAIN(l, rc = kvc_reserve_scatter(l->seq, 1, HEADS, 4));
	kt_ok(rc);
	kt_ok(kvc_update_begin(l->seq, 0, 0));
	fill(k, l->next + 500, 0, 0);
	fill(v, l->next + 500, 0, 1);
	kt_ok(kvc_scatter(l->seq, 0, 1, index, 0, k, v, NULL));
	AGAIN(l, rc = kvc_commit(l->writer, &l->seq, 1));
	kt_ok(rc);
	l->next++;
}

static void set_journal(struct life *l, uint32_t mode)
{
	const struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	kt_ok(kvc_journal_set(l->seq, &options));
}

/* ---- a client ----------------------------------------------------------------------------- */

static void open_session(struct life *l, const char *dir)
{
	const struct kvc_session_options options = {
		.size = sizeof(options), .runtime_dir = dir, .deadline_ms = DEADLINE_MS};

	*l = (struct life){.session = kvc_open(&options), .next = 1};
	kt_ok(l->session ? 0 : -1);
	l->writer = kvc_writer_new(l->session);
	kt_ok(l->writer ? 0 : -1);
}

static void new_seq(struct life *l, const char *kind, const char *name)
{
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = name, .max_tokens = 4096};

	l->seq = kvc_seq_new(l->writer, layout_of(l->session, kind), &options);
	kt_ok(l->seq ? 0 : -1);
}

/* A fork of a fork of the snapshot: the first through the daemon, the second too, of a snapshot
 * that has no name. */
static void fork_twice(struct life *l, const char *name)
{
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = name, .max_tokens = 4096};
	kvc_seq *first = kvc_fork(l->writer, LIVES_SNAPSHOT, NULL);
	uint64_t id;

	kt_ok(first ? 0 : -1);
	l->seq = first;
	l->next = 300;
	append_many(l, 5);
	kt_ok(kvc_snapshot(first, NULL, &id));
	l->seq = kvc_fork_id(l->writer, id, &options);
	kt_ok(l->seq ? 0 : -1);
	append_many(l, 3);
}

static void begin(struct life *l, const char *kind)
{
	char name[32];

	l->has_journal = has_journal(kind);
	snprintf(name, sizeof(name), "lives/%s", kind);
	if (strcmp(kind, "fork") == 0) {
		fork_twice(l, name);
	} else {
		new_seq(l, kind, name);
		if (strcmp(kind, "undo") == 0)
			set_journal(l, KVC_JOURNAL_UNDO);
		append_many(l, 13);
		if (strcmp(kind, "replay") == 0)
			set_journal(l, KVC_JOURNAL_REPLAY);
	}
	kt_ok(kvc_reserve(l->seq, 1)); /* a mark may take the first row of a journal */
	kt_ok(kvc_mark_set(l->seq, &l->mark));
}

static void more(struct life *l)
{
	append_many(l, 4);
	if (l->has_journal) {
		scatter(l);
		append_many(l, 9);
		scatter(l);
	}
}

static void view(struct life *l, struct life_view *v)
{
	const uint64_t *counter = kvc_plane_get(l->seq, "counter");
	struct kvc_journal_info journal;

	memset(v, 0, sizeof(*v));
	kt_ok(kvc_digest(l->seq, v->digest));
	kt_ok(kvc_journal_info(l->seq, &journal));
	v->length = kvc_length(l->seq);
	v->position = kvc_position(l->seq);
	v->slots[0] = kvc_slots(l->seq, 0);
	v->slots[1] = kvc_slots(l->seq, 1);
	v->counter = counter ? *counter : 0;
	v->mode = journal.mode;
	v->n_rows = journal.n_rows;
	v->n_steps = journal.n_steps;
	v->first_tokens = journal.first_tokens;
	v->base_tokens = journal.base_tokens;
	v->journal_bytes = journal.n_bytes;
}

static void say(int out, const void *bytes, size_t n)
{
	if (write(out, bytes, n) != (ssize_t)n)
		_exit(1);
}

/* One letter at a time: v(iew), c(ommit), b(ack to the mark), q(uit). */
static int role_life(const char *dir, const char *kind, int in, int out)
{
	struct life l;
	struct life_view v;
	char letter;

	open_session(&l, dir);
	begin(&l, kind);
	view(&l, &v);
	say(out, &v, sizeof(v));
	more(&l);
	say(out, "", 1);
	while (read(in, &letter, 1) == 1 && letter != 'q') {
		if (letter == 'v') {
			view(&l, &v);
			say(out, &v, sizeof(v));
		} else if (letter == 'c') {
			more(&l);
			say(out, &l.n_restarted, sizeof(l.n_restarted));
			l.n_restarted = 0;
		} else {
			kt_ok(kvc_rollback_mark(l.seq, &l.mark));
			view(&l, &v);
			say(out, &v, sizeof(v));
		}
	}
	kvc_close(l.session);
	return 0;
}

/* Leaves a parked sequence and a snapshot behind. */
static int role_leave(const char *dir, const char *arg, int in, int out)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options),
						     .name = LIVES_SNAPSHOT};
	struct life l;

	(void)arg;
	(void)in;
	open_session(&l, dir);
	new_seq(&l, "append", LIVES_PARKED);
	l.next = 100;
	append_many(&l, 18);
	kt_ok(kvc_snapshot(l.seq, &options, NULL));
	append_many(&l, 5);
	kvc_close(l.session);
	say(out, "", 1);
	return 0;
}

const struct kt_role lives_roles[] = {{"life", role_life}, {"leave", role_leave}, {NULL, NULL}};

/* ---- all of them -------------------------------------------------------------------------- */

void lives_start(struct lives *lives, const char *dir)
{
	const struct kvc_session_options options = {
		.size = sizeof(options), .runtime_dir = dir, .deadline_ms = DEADLINE_MS};
	struct kt_kid leaver;
	char byte;

	*lives = (struct lives){.dir = dir};
	kt_kid_start(&leaver, "leave", dir, NULL);
	kt_kid_read(&leaver, &byte, 1);
	assert_int_equal(kt_kid_wait(&leaver), 0);
	for (int i = 0; i < LIVES_KIDS; i++)
		kt_kid_start(&lives->kids[i], "life", dir, kinds[i]);
	for (int i = 0; i < LIVES_KIDS; i++) {
		kt_kid_read(&lives->kids[i], &lives->marked[i], sizeof(lives->marked[i]));
		kt_kid_read(&lives->kids[i], &byte, 1);
	}
	lives->session = kvc_open(&options);
	kt_ok(lives->session ? 0 : -1);
}

static uint8_t *list_objects(kvc_session *session, size_t *n_bytes)
{
	Kv__Wire__Request request;
	Kv__Wire__List command = KV__WIRE__LIST__INIT;
	Kv__Wire__Reply *reply;
	uint8_t *bytes;

	command.local = true;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_LIST;
	request.list = &command;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_OBJECTS);
	kt_ok(reply ? 0 : -1);
	assert_false(reply->objects->more);
	*n_bytes = kv__wire__objects_result__get_packed_size(reply->objects);
	bytes = malloc(*n_bytes);
	assert_non_null(bytes);
	kv__wire__objects_result__pack(reply->objects, bytes);
	rpc_reply_free(reply);
	return bytes;
}

/* As a process finds it that comes now: by taking over, and by opening. */
static void look_anew(const struct lives *lives, struct lives_look *look)
{
	struct life l;
	kvc_seq *snapshot;

	open_session(&l, lives->dir);
	l.seq = kvc_fork(l.writer, LIVES_PARKED, NULL);
	kt_ok(l.seq ? 0 : -1);
	kt_ok(kvc_digest(l.seq, look->parked));
	snapshot = kvc_open_snapshot(l.writer, LIVES_SNAPSHOT);
	kt_ok(snapshot ? 0 : -1);
	kt_ok(kvc_digest(snapshot, look->snapshot));
	kvc_close(l.session);
}

static bool has_quiet_gauges(void *arg)
{
	struct lives_look *look = ((void **)arg)[0];
	const struct lives *lives = ((void **)arg)[1];

	look->gauges = kt_gauges(lives->session);
	return look->gauges.quarantined == 0 && look->gauges.n_sessions == LIVES_KIDS + 1;
}

void lives_look(struct lives *lives, struct lives_look *look)
{
	static const char *const names[2] = {LIVES_PARKED, LIVES_SNAPSHOT};
	struct kvc_verify_result verified;
	void *quiet[2] = {look, lives};

	memset(look, 0, sizeof(*look));
	for (int i = 0; i < LIVES_KIDS; i++) {
		if (lives->kids[i].pid == 0)
			continue;
		kt_kid_write(&lives->kids[i], "v", 1);
		kt_kid_read(&lives->kids[i], &look->kids[i], sizeof(look->kids[i]));
	}
	for (int i = 0; i < 2; i++) {
		kt_ok(kvc_verify(lives->session, names[i], NULL, NULL, &verified));
		memcpy(look->verified[i], verified.digest, 16);
	}
	look_anew(lives, look);
	assert_true(kt_wait_until(has_quiet_gauges, quiet, 10000));
	look->objects = list_objects(lives->session, &look->n_objects_bytes);
}

void lives_assert_same(struct lives_look *before, struct lives_look *after)
{
	const struct kt_gauges *b = &before->gauges, *a = &after->gauges;

	for (int i = 0; i < LIVES_KIDS; i++)
		assert_memory_equal(&after->kids[i], &before->kids[i], sizeof(after->kids[i]));
	assert_memory_equal(after->parked, before->parked, 16);
	assert_memory_equal(after->snapshot, before->snapshot, 16);
	assert_memory_equal(after->verified, before->verified, sizeof(after->verified));
	assert_memory_equal(after->verified[0], after->parked, 16);
	assert_memory_equal(after->verified[1], after->snapshot, 16);
	assert_int_equal(after->n_objects_bytes, before->n_objects_bytes);
	assert_memory_equal(after->objects, before->objects, after->n_objects_bytes);
	assert_int_equal(a->live + a->reserved, b->live + b->reserved);
	assert_int_equal(a->cached, b->cached);
	assert_int_equal(a->free, b->free);
	assert_int_equal(a->used, b->used);
	assert_int_equal(a->n_arenas, b->n_arenas);
	assert_int_equal(a->n_sequences, b->n_sequences);
	assert_int_equal(a->n_snapshots, b->n_snapshots);
	free(before->objects);
	free(after->objects);
	before->objects = after->objects = NULL;
}

unsigned lives_go_on(struct lives *lives)
{
	unsigned n_restarted = 0;

	for (int i = 0; i < LIVES_KIDS; i++) {
		struct life_view back;
		uint32_t n;

		if (lives->kids[i].pid == 0)
			continue;
		kt_kid_write(&lives->kids[i], "c", 1);
		kt_kid_read(&lives->kids[i], &n, sizeof(n));
		assert_true(n <= 1);
		n_restarted += n;
		kt_kid_write(&lives->kids[i], "b", 1);
		kt_kid_read(&lives->kids[i], &back, sizeof(back));
		/* the rows behind a mark may be in other blocks than before */
		back.journal_bytes = lives->marked[i].journal_bytes;
		assert_memory_equal(&back, &lives->marked[i], sizeof(back));
		kt_kid_write(&lives->kids[i], "c", 1);
		kt_kid_read(&lives->kids[i], &n, sizeof(n));
		assert_int_equal(n, 0);
	}
	return n_restarted;
}

void lives_kill(struct lives *lives, int kid)
{
	assert_int_not_equal(kt_kid_kill(&lives->kids[kid]), 0);
}

void lives_end(struct lives *lives)
{
	struct kt_gauges empty = kt_gauges(lives->session);
	char name[32];

	for (int i = 0; i < LIVES_KIDS; i++) {
		if (lives->kids[i].pid) {
			kt_kid_write(&lives->kids[i], "q", 1);
			assert_int_equal(kt_kid_wait(&lives->kids[i]), 0);
		}
		snprintf(name, sizeof(name), "lives/%s", kinds[i]);
		kt_ok(kvc_remove(lives->session, name));
	}
	kt_ok(kvc_remove(lives->session, LIVES_PARKED));
	kt_ok(kvc_remove(lives->session, LIVES_SNAPSHOT));
	empty.free = empty.total;
	empty.cached = empty.quarantined = 0;
	empty.n_sessions = 1;
	empty.n_sequences = empty.n_snapshots = 0;
	kt_wait_gauges(lives->session, &empty);
	kvc_close(lives->session);
}
