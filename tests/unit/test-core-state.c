/*
 * The core's state under random commands of several sessions: after each step all books are
 * counted again from what is named, after each restart everything is what it was, and no byte of
 * a snapshot ever changes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/command.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "tests/support/fake_links.h"
#include "tests/support/runner.h"

#define N_CLIENTS 3
#define N_SEQS 24
#define BLOCK_TOKENS 4
#define BLOCKS_MAX 40
#define N_NAMES 6

struct seq {
	bool is_live;
	unsigned client;
	uint32_t place;
	uint64_t base;
	uint64_t length;
	uint64_t refs[BLOCKS_MAX]; /* numbers of the session */
	uint64_t own_from;         /* blocks below are shared: not written */
};

struct world {
	struct fake_core *f;
	struct fake_client *clients[N_CLIENTS];
	uint64_t layout[N_CLIENTS];
	struct seq seqs[N_SEQS];
	unsigned seed;
	uint64_t n_refused;
};

static unsigned dice(struct world *w, unsigned n)
{
	return (unsigned)rand_r(&w->seed) % n;
}

static struct settings small_settings(void)
{
	struct settings settings;

	settings_default(&settings);
	settings.pool_bytes = 1u << 20;
	settings.arena_bytes = 64u << 10;
	settings.huge = settings.mlock = SETTINGS_NO;
	return settings;
}

/* ---- books -------------------------------------------------------------------------------- */

static void count_pins(const struct core *core, const struct arena *arena, uint32_t *pins)
{
	memset(pins, 0, arena->n_blocks * sizeof(pins[0]));
	for (size_t i = 0; i < core->states.n; i++) {
		const struct state *s = core->states.items[i].thing;

		for (uint32_t g = 0; g < s->layout->layout->n_groups; g++)
			for (uint64_t b = 0; b < s->n_blocks[g]; b++)
				if (gref_arena(s->refs[g][b]) == arena->id)
					pins[gref_block(s->refs[g][b])]++;
	}
}

static void check_arena(const struct core *core, const struct arena *arena, uint64_t *class_bytes)
{
	uint32_t *pins = calloc(arena->n_blocks, sizeof(pins[0]));
	uint32_t n_granted = 0, n_pinned = 0;

	count_pins(core, arena, pins);
	for (uint32_t b = 0; b < arena->n_blocks; b++) {
		bool granted = arena_has_granted(arena, b);
		bool dirty = arena->dirty[b / 64] >> b % 64 & 1;

		assert_int_equal(arena->pins[b], pins[b]);
		n_granted += granted;
		n_pinned += pins[b] != 0;
		assert_false(dirty && (granted || pins[b]));
		class_bytes[granted ? BLOCK_GRANTED :
			    pins[b] ? BLOCK_CACHED :
			    dirty   ? BLOCK_QUARANTINED :
				      BLOCK_FREE] += arena->block_bytes;
	}
	assert_int_equal(n_granted, arena->n_granted);
	assert_int_equal(n_pinned, arena->n_pinned);
	assert_true(n_granted == 0 || arena->writer == ARENA_WRITTEN);
	free(pins);
}

static void check_session(const struct core *core, const struct session *session)
{
	for (uint32_t n = 1; n < KV_ARENAS_MAX; n++) {
		const struct arena *arena = session->numbers[n].arena;
		uint32_t uses = 0;

		if (!arena)
			continue;
		uses += arena->session_id == session->id;
		for (uint32_t i = 0; i < session->n_pins; i++) {
			const struct state *s = session->pins[i].object->state;

			for (uint32_t a = 0; a < s->n_arenas; a++)
				uses += s->arenas[a].arena == arena;
		}
		assert_int_equal(session->numbers[n].n_uses, uses);
		assert_ptr_equal(arenas_find(core, arena->id), arena);
	}
}

static void check_books(const struct core *core)
{
	uint64_t class_bytes[BLOCK_CLASSES] = {0};
	uint64_t sum = 0;

	for (size_t i = 0; i < core->arenas.n; i++)
		check_arena(core, core->arenas.items[i].thing, class_bytes);
	for (int c = 1; c < BLOCK_CLASSES; c++) {
		assert_int_equal(core->pool.class_bytes[c], class_bytes[c]);
		sum += class_bytes[c];
	}
	assert_int_equal(sum + core->pool.class_bytes[BLOCK_FREE], core->pool.total_bytes);
	assert_true(core->pool.warm_bytes <= core->pool.class_bytes[BLOCK_FREE]);
	for (size_t i = 0; i < core->sessions.n; i++)
		check_session(core, core->sessions.items[i].thing);
	for (size_t i = 0; i < core->objects.n; i++) {
		const struct object *object = core->objects.items[i].thing;
		uint32_t pins = 0;

		for (size_t s = 0; s < core->sessions.n; s++)
			pins += session_pin_find(core->sessions.items[s].thing, object) != NULL;
		assert_int_equal(object->n_pins, pins);
		assert_true(object->listed || pins);
		if (object->name)
			assert_ptr_equal(names_find(core, object->uid, object->name), object);
	}
}

/* ---- all that is known, as a sorted list of records ---------------------------------------- */

struct record {
	uint32_t type, n;
	uint8_t bytes[2048];
};

struct picture {
	struct record *records;
	size_t n;
	uint64_t class_bytes[BLOCK_CLASSES];
};

static int take_record(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
		       struct errbuf *err)
{
	struct picture *p = arg;
	const struct cat_blocks *blocks = payload;
	struct record *r;

	(void)err;
	/* numbers given out and memory kept warm are not part of what must be the same */
	if (type == CAT_COUNTERS || (type == CAT_BLOCKS && blocks->state == LOG_BLOCKS_DIRTY))
		return 0;
	assert_true(n_bytes <= sizeof(r->bytes));
	p->records = realloc(p->records, (p->n + 1) * sizeof(*r));
	r = &p->records[p->n++];
	memset(r, 0, sizeof(*r));
	r->type = type;
	r->n = n_bytes;
	memcpy(r->bytes, payload, n_bytes);
	return 0;
}

static int compare_records(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct record));
}

static struct picture take_picture(struct core *core)
{
	struct catalogue saved = core->catalogue;
	struct picture p = {0};

	assert_int_equal(catalogue_make(&core->catalogue, NULL), 0);
	state_dump(core, false);
	assert_int_equal(catalogue_commit(&core->catalogue), 0);
	assert_int_equal(catalogue_each(&core->catalogue, take_record, &p, NULL), 0);
	catalogue_fini(&core->catalogue);
	core->catalogue = saved;
	qsort(p.records, p.n, sizeof(p.records[0]), compare_records);
	memcpy(p.class_bytes, core->pool.class_bytes, sizeof(p.class_bytes));
	return p;
}

static void assert_same(const struct picture *a, const struct picture *b)
{
	for (size_t i = 0; i < a->n && i < b->n; i++) {
		if (memcmp(&a->records[i], &b->records[i], sizeof(a->records[i])) != 0)
			printf("# record %zu of %zu: type %u and %u differ\n", i, a->n,
			       a->records[i].type, b->records[i].type);
		assert_memory_equal(&a->records[i], &b->records[i], sizeof(a->records[i]));
	}
	assert_int_equal(a->n, b->n);
	assert_memory_equal(a->class_bytes, b->class_bytes, sizeof(a->class_bytes));
}

/* ---- commands ----------------------------------------------------------------------------- */

/* The status; *reply (may be NULL) is the reply when it is 0. */
static uint32_t call(struct world *w, unsigned client, Kv__Wire__Request *request,
		     Kv__Wire__Reply **reply)
{
	Kv__Wire__Reply *answer = fake_call(w->clients[client], request);
	uint32_t status;

	assert_non_null(answer);
	status = answer->status;
	if (status && status != KV_EEXIST && status != KV_EBUSY && status != KV_EPOOL &&
	    status != KV_ENOTFOUND && status != KV_EREADONLY && status != KV_ERANGE)
		printf("# command %d: %s: %s\n", (int)request->command_case,
		       kv_status_name((int)status), answer->detail);
	if (reply && status == 0) {
		*reply = answer;
		return 0;
	}
	kv__wire__reply__free_unpacked(answer, NULL);
	w->n_refused += status != 0;
	return status;
}

#define COMMAND(which, field, type) \
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT; \
	Kv__Wire__##type command; \
	request.command_case = KV__WIRE__REQUEST__COMMAND_##which; \
	request.field = &command

static uint64_t register_layout(struct world *w, unsigned client)
{
	COMMAND(LAYOUT_REGISTER, layout_register, LayoutRegister);
	Kv__Wire__Layout layout = KV__WIRE__LAYOUT__INIT;
	Kv__Wire__Layer layer = KV__WIRE__LAYER__INIT, *layers[1] = {&layer};
	uint8_t fingerprint[32] = {7};
	Kv__Wire__Reply *reply;
	uint64_t id;

	kv__wire__layout_register__init(&command);
	command.layout = &layout;
	layout.fingerprint.data = fingerprint;
	layout.fingerprint.len = sizeof(fingerprint);
	layout.n_layers = 1;
	layout.layers = layers;
	layer.n_query_groups = 1;
	layer.k_width = 32;
	layer.v_width = 16;
	layout.dtype = KV_DTYPE_F32;
	layout.k_format = layout.v_format = KV_FORMAT_RAW;
	layout.block_tokens = BLOCK_TOKENS;
	assert_int_equal(call(w, client, &request, &reply), 0);
	id = reply->layout->layout_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

static void new_writer(struct world *w, unsigned client)
{
	COMMAND(WRITER_NEW, writer_new, WriterNew);

	kv__wire__writer_new__init(&command);
	assert_int_equal(call(w, client, &request, NULL), 0);
}

static void new_client(struct world *w, unsigned i)
{
	w->clients[i] = fake_client_new(w->f, 1000, NULL);
	assert_non_null(w->clients[i]);
	w->layout[i] = register_layout(w, i);
	new_writer(w, i);
}

static char *random_name(struct world *w, char *out, size_t n)
{
	snprintf(out, n, "name-%u", dice(w, N_NAMES));
	return out;
}

static struct seq *free_seq(struct world *w)
{
	for (unsigned i = 0; i < N_SEQS; i++)
		if (!w->seqs[i].is_live)
			return &w->seqs[i];
	return NULL;
}

static struct seq *some_seq(struct world *w)
{
	for (unsigned i = 0; i < 8; i++) {
		struct seq *s = &w->seqs[dice(w, N_SEQS)];

		if (s->is_live)
			return s;
	}
	return NULL;
}

/* The table that the core put into a place. */
static void adopt(struct world *w, struct seq *s, unsigned client, const Kv__Wire__Place *place)
{
	struct fake_client *c = w->clients[client];
	char *segment = (char *)c->segment;
	struct kv_shm_place *shm = (struct kv_shm_place *)(segment + c->segment->places_off) +
				   place->place;

	*s = (struct seq){.is_live = true,
			  .client = client,
			  .place = place->place,
			  .base = place->base_id,
			  .length = place->length_tokens};
	s->own_from = (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
	for (uint64_t i = 0; i < s->own_from; i++)
		s->refs[i] = kv_shm_entry(segment, shm->table_off[0], shm->n_entries[0], 0, i)->ref;
}

static void take_place(struct world *w, unsigned client, Kv__Wire__Request *request)
{
	struct seq *s = free_seq(w);
	Kv__Wire__Reply *reply;

	if (!s || call(w, client, request, &reply))
		return;
	adopt(w, s, client, reply->places->places[0]);
	kv__wire__reply__free_unpacked(reply, NULL);
}

static void op_new(struct world *w)
{
	unsigned client = dice(w, N_CLIENTS);
	char name[32];
	COMMAND(SEQ_NEW, seq_new, SeqNew);

	kv__wire__seq_new__init(&command);
	command.layout_id = w->layout[client];
	command.max_tokens = BLOCKS_MAX * BLOCK_TOKENS;
	if (dice(w, 2))
		command.name = random_name(w, name, sizeof(name));
	take_place(w, client, &request);
}

/* Bytes of a block: from its number in the arena and a salt. */
static void fill_block(struct world *w, unsigned client, uint64_t ref, int salt)
{
	struct session *session = session_find(w->f->core, w->clients[client]->session);
	struct arena *arena = session_arena(session, kv_ref_arena(ref));
	char bytes[BLOCK_TOKENS * 128];

	assert_true(arena->session_id == session->id);
	memset(bytes, salt, sizeof(bytes));
	for (uint32_t r = 0; r < 2; r++) {
		uint32_t piece = arena->layout->regions[r].piece_bytes;

		assert_int_equal(
			pwrite(arena->fd, bytes, piece,
			       (off_t)(arena->region_off[r] + (uint64_t)kv_ref_block(ref) * piece)),
			piece);
	}
}

static void release(struct world *w, unsigned client, uint64_t ref)
{
	Kv__Wire__Run run = KV__WIRE__RUN__INIT, *runs[1] = {&run};
	COMMAND(RELEASE, release, Release);

	kv__wire__release__init(&command);
	command.layout_id = w->layout[client];
	command.n_runs = 1;
	command.runs = runs;
	run.arena = kv_ref_arena(ref);
	run.first_block = kv_ref_block(ref);
	run.n_blocks = 1;
	assert_int_equal(call(w, client, &request, NULL), 0);
}

/* Appends whole blocks that are reserved for it. */
static void op_append(struct world *w)
{
	struct seq *s = some_seq(w);
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	uint64_t at = s ? (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS : 0;
	uint64_t refs[4], n = 0;
	Kv__Wire__Reply *reply;
	COMMAND(RESERVE, reserve, Reserve);

	if (!s || at + 4 > BLOCKS_MAX)
		return;
	kv__wire__reserve__init(&command);
	command.layout_id = w->layout[s->client];
	command.n_needs = 1;
	command.needs = needs;
	need.n_blocks = dice(w, 4) + 1;
	if (call(w, s->client, &request, &reply))
		return;
	for (size_t i = 0; i < reply->runs->n_runs; i++)
		for (uint32_t b = 0; b < reply->runs->runs[i]->n_blocks; b++)
			refs[n++] = kv_ref(0, reply->runs->runs[i]->arena,
					   reply->runs->runs[i]->first_block + b);
	kv__wire__reply__free_unpacked(reply, NULL);
	assert_int_equal(n, need.n_blocks);
	for (uint64_t i = 0; i < n; i++)
		fill_block(w, s->client, refs[i], (int)dice(w, 256));
	memcpy(&s->refs[at], refs, n * sizeof(refs[0]));
	s->length = (at + n) * BLOCK_TOKENS - dice(w, BLOCK_TOKENS);
	fake_commit(w->clients[s->client], s->place, s->length, at, refs, n);
}

/* The writer says less. What it does not need goes back. */
static void op_rollback_own(struct world *w)
{
	struct seq *s = some_seq(w);
	uint64_t n, keep;

	if (!s || s->length == 0)
		return;
	n = (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
	s->length = dice(w, (unsigned)s->length);
	keep = (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
	fake_commit(w->clients[s->client], s->place, s->length, 0, NULL, 0);
	for (uint64_t i = keep > s->own_from ? keep : s->own_from; i < n; i++)
		release(w, s->client, s->refs[i]);
	if (keep < s->own_from)
		s->own_from = keep;
}

static void op_snapshot(struct world *w)
{
	struct seq *s = some_seq(w);
	Kv__Wire__SnapshotOne one = KV__WIRE__SNAPSHOT_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	char name[32];
	COMMAND(SNAPSHOT, snapshot, Snapshot);

	if (!s)
		return;
	kv__wire__snapshot__init(&command);
	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	target.which_case = KV__WIRE__TARGET__WHICH_PLACE;
	target.place = s->place;
	if (dice(w, 3))
		one.name = random_name(w, name, sizeof(name));
	one.replace = (int)dice(w, 2);
	if (call(w, s->client, &request, NULL) == 0)
		s->own_from = (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
}

static void op_fork(struct world *w)
{
	unsigned client = dice(w, N_CLIENTS);
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	char name[32], own[32];
	COMMAND(FORK, fork, Fork);

	kv__wire__fork__init(&command);
	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.max_tokens = BLOCKS_MAX * BLOCK_TOKENS;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = random_name(w, name, sizeof(name));
	if (dice(w, 2))
		one.name = random_name(w, own, sizeof(own));
	one.parked = one.name[0] && dice(w, 2);
	if (one.parked)
		call(w, client, &request, NULL);
	else
		take_place(w, client, &request);
}

static void op_takeover(struct world *w)
{
	unsigned client = dice(w, N_CLIENTS);
	char name[32];
	COMMAND(TAKEOVER, takeover, Takeover);

	kv__wire__takeover__init(&command);
	command.name = random_name(w, name, sizeof(name));
	command.max_tokens = BLOCKS_MAX * BLOCK_TOKENS;
	take_place(w, client, &request);
}

static void op_remove(struct world *w)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	char name[32];
	COMMAND(REMOVE, remove, Remove);

	kv__wire__remove__init(&command);
	command.source = &target;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = random_name(w, name, sizeof(name));
	call(w, dice(w, N_CLIENTS), &request, NULL);
}

static void unpin(struct world *w, const struct seq *s)
{
	uint64_t ids[1] = {s->base};
	COMMAND(UNPIN, unpin, Unpin);

	for (unsigned i = 0; i < N_SEQS; i++)
		if (w->seqs[i].is_live && w->seqs[i].client == s->client &&
		    w->seqs[i].base == s->base)
			return;
	kv__wire__unpin__init(&command);
	command.n_base_ids = 1;
	command.base_ids = ids;
	assert_int_equal(call(w, s->client, &request, NULL), 0);
}

static void op_drop(struct world *w)
{
	struct seq *s = some_seq(w);
	COMMAND(SEQ_DROP, seq_drop, SeqDrop);

	if (!s)
		return;
	kv__wire__seq_drop__init(&command);
	command.n_places = 1;
	command.places = &s->place;
	command.park = (int)dice(w, 2);
	assert_int_equal(call(w, s->client, &request, NULL), 0);
	s->is_live = false;
	for (uint64_t i = s->own_from; i * BLOCK_TOKENS < s->length; i++)
		release(w, s->client, s->refs[i]);
	if (s->base)
		unpin(w, s);
}

/* An operator takes a sequence by name back to some of its tokens. */
static void op_rollback(struct world *w)
{
	Kv__Wire__RollbackOne one = KV__WIRE__ROLLBACK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	struct object *object;
	char name[32];
	COMMAND(ROLLBACK, rollback, Rollback);

	kv__wire__rollback__init(&command);
	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.mode = 1;
	one.n_tokens = dice(w, 20);
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = random_name(w, name, sizeof(name));
	if (call(w, dice(w, N_CLIENTS), &request, NULL))
		return;
	object = names_find(w->f->core, 1000, name);
	for (unsigned i = 0; i < N_SEQS; i++) {
		struct seq *s = &w->seqs[i];

		if (!s->is_live || !object->session || s->place != object->place ||
		    w->clients[s->client]->session != object->session->id)
			continue;
		for (uint64_t b = (one.n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
		     b * BLOCK_TOKENS < s->length; b++)
			if (b >= s->own_from)
				release(w, s->client, s->refs[b]);
		s->length = one.n_tokens < s->length ? one.n_tokens : s->length;
		if (s->own_from * BLOCK_TOKENS > s->length)
			s->own_from = (s->length + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
	}
}

/* Reads all bytes of a named thing; a digest that is known stays true. */
static void op_verify(struct world *w)
{
	unsigned client = dice(w, N_CLIENTS);
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Request again = KV__WIRE__REQUEST__INIT;
	Kv__Wire__JobGet get = KV__WIRE__JOB_GET__INIT;
	Kv__Wire__Reply *reply;
	char name[32];
	COMMAND(VERIFY, verify, Verify);

	kv__wire__verify__init(&command);
	command.source = &target;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = random_name(w, name, sizeof(name));
	if (call(w, client, &request, &reply))
		return;
	get.job_id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	fake_settle(w->f);
	again.command_case = KV__WIRE__REQUEST__COMMAND_JOB_GET;
	again.job_get = &get;
	assert_int_equal(call(w, client, &again, &reply), 0);
	assert_int_equal(reply->job->state, 2);
	assert_int_equal(reply->job->n_bad_blocks, 0);
	kv__wire__reply__free_unpacked(reply, NULL);
}

static void forget_seqs(struct world *w, unsigned client)
{
	for (unsigned i = 0; i < N_SEQS; i++)
		if (w->seqs[i].client == client)
			w->seqs[i].is_live = false;
}

static void op_end(struct world *w)
{
	unsigned client = dice(w, N_CLIENTS);

	if (dice(w, 4))
		return;
	forget_seqs(w, client);
	if (dice(w, 2)) {
		fake_client_hang_up(w->clients[client]);
		check_books(w->f->core);
	}
	fake_client_free(w->clients[client]);
	new_client(w, client);
}

static void op_restart(struct world *w)
{
	struct picture before, after;

	if (dice(w, 4))
		return;
	fake_settle(w->f);
	before = take_picture(w->f->core);
	assert_int_equal(fake_core_restart(w->f), 0);
	fake_settle(w->f);
	after = take_picture(w->f->core);
	assert_same(&before, &after);
	free(before.records);
	free(after.records);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		assert_int_equal(fake_client_again(w->clients[i]), 0);
}

static void (*const ops[])(struct world *) = {op_new,      op_append,   op_append, op_append,
					      op_snapshot, op_snapshot, op_fork,   op_fork,
					      op_takeover, op_remove,   op_drop,   op_rollback_own,
					      op_rollback, op_verify,   op_end,    op_restart};

static void finish(struct world *w)
{
	for (unsigned i = 0; i < N_CLIENTS; i++)
		fake_client_free(w->clients[i]);
	new_client(w, 0);
	for (unsigned n = 0; n < N_NAMES; n++) {
		Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
		char name[32];
		COMMAND(REMOVE, remove, Remove);

		kv__wire__remove__init(&command);
		command.source = &target;
		target.which_case = KV__WIRE__TARGET__WHICH_NAME;
		snprintf(name, sizeof(name), "name-%u", n);
		target.name = name;
		call(w, 0, &request, NULL);
	}
	fake_settle(w->f);
	assert_int_equal(w->f->core->arenas.n, 0);
	assert_int_equal(w->f->core->states.n, 0);
	assert_int_equal(w->f->core->objects.n, 0);
	assert_int_equal(w->f->core->pool.class_bytes[BLOCK_FREE], w->f->core->pool.total_bytes);
	assert_int_equal(w->f->core->pool.warm_bytes, 0);
	fake_client_free(w->clients[0]);
	fake_core_free(w->f);
}

static void random_walk(unsigned seed, unsigned n_steps)
{
	struct settings settings = small_settings();
	struct world *w = calloc(1, sizeof(*w));

	w->seed = seed;
	w->f = fake_core_new(&settings);
	for (unsigned i = 0; i < N_CLIENTS; i++)
		new_client(w, i);
	for (unsigned step = 0; step < n_steps; step++) {
		ops[dice(w, sizeof(ops) / sizeof(ops[0]))](w);
		check_books(w->f->core);
	}
	/* or the walk stands still */
	assert_true(w->n_refused < n_steps / 2);
	finish(w);
	free(w);
}

static void test_random(void **state)
{
	(void)state;
	log_init(LOG_LEVEL_ERROR);
	for (unsigned seed = 1; seed <= 8; seed++)
		random_walk(seed, 4000);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("books add up after each of 32,000 random commands, and restarts change nothing",
		test_random),
};

KT_MAIN(tests)
