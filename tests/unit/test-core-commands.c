/*
 * The core's commands one by one, at their limits and under hostile clients: the reply store,
 * held writers, operators' rollbacks and their completion, tables that lie, other users.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/command.h"
#include "daemon/hold.h"
#include "daemon/names.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "tests/support/fake_links.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define BLOCK_TOKENS 4

struct fixture {
	struct fake_core *f;
	struct fake_client *a, *b;
	uint64_t layout;
};

/* ---- requests ----------------------------------------------------------------------------- */

#define COMMAND(which, field, type) \
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT; \
	Kv__Wire__##type command; \
	request.command_case = KV__WIRE__REQUEST__COMMAND_##which; \
	request.field = &command

/* The status of a command; *reply (may be NULL) is freed by the caller. */
static uint32_t call(struct fake_client *c, Kv__Wire__Request *request, Kv__Wire__Reply **reply)
{
	Kv__Wire__Reply *answer = fake_call(c, request);
	uint32_t status;

	assert_non_null(answer);
	status = answer->status;
	if (reply)
		*reply = answer;
	else
		kv__wire__reply__free_unpacked(answer, NULL);
	return status;
}

static uint32_t last_status(const struct fake_core *f)
{
	Kv__Wire__Reply *reply = fake_reply(f);
	uint32_t status;

	assert_non_null(reply);
	status = reply->status;
	kv__wire__reply__free_unpacked(reply, NULL);
	return status;
}

static uint32_t noop(struct fake_client *c)
{
	COMMAND(NOOP, noop, Noop);

	kv__wire__noop__init(&command);
	return call(c, &request, NULL);
}

static uint64_t register_layout(struct fake_client *c)
{
	Kv__Wire__Layout layout = KV__WIRE__LAYOUT__INIT;
	Kv__Wire__Layer layer = KV__WIRE__LAYER__INIT, *layers[1] = {&layer};
	uint8_t fingerprint[32] = {7};
	Kv__Wire__Reply *reply;
	uint64_t id;
	COMMAND(LAYOUT_REGISTER, layout_register, LayoutRegister);

	kv__wire__layout_register__init(&command);
	command.layout = &layout;
	layout.fingerprint.data = fingerprint;
	layout.fingerprint.len = sizeof(fingerprint);
	layout.n_layers = 1;
	layout.layers = layers;
	layer.n_query_groups = 1;
	layer.k_width = layer.v_width = 128;
	layout.dtype = KV_DTYPE_F32;
	layout.k_format = layout.v_format = KV_FORMAT_RAW;
	layout.block_tokens = BLOCK_TOKENS;
	assert_int_equal(call(c, &request, &reply), 0);
	id = reply->layout->layout_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

static uint32_t new_writer(struct fake_client *c)
{
	Kv__Wire__Reply *reply;
	uint32_t writer;
	COMMAND(WRITER_NEW, writer_new, WriterNew);

	kv__wire__writer_new__init(&command);
	assert_int_equal(call(c, &request, &reply), 0);
	writer = reply->writer->writer;
	kv__wire__reply__free_unpacked(reply, NULL);
	return writer;
}

/* The place, and its sequence's number in *id (may be NULL). */
static uint32_t new_seq(struct fixture *x, struct fake_client *c, uint32_t writer, const char *name,
			uint64_t *id)
{
	Kv__Wire__Reply *reply;
	uint32_t place;
	COMMAND(SEQ_NEW, seq_new, SeqNew);

	kv__wire__seq_new__init(&command);
	command.writer = writer;
	command.layout_id = x->layout;
	command.name = (char *)name;
	command.max_tokens = 1024;
	assert_int_equal(call(c, &request, &reply), 0);
	place = reply->places->places[0]->place;
	if (id)
		*id = reply->places->places[0]->seq_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return place;
}

static uint32_t reserve(struct fixture *x, struct fake_client *c, uint32_t n_blocks,
			uint64_t *first_ref)
{
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	Kv__Wire__Reply *reply;
	uint32_t status;
	COMMAND(RESERVE, reserve, Reserve);

	kv__wire__reserve__init(&command);
	command.layout_id = x->layout;
	command.n_needs = 1;
	command.needs = needs;
	need.n_blocks = n_blocks;
	need.contiguous = 1;
	status = call(c, &request, &reply);
	if (status == 0 && first_ref)
		*first_ref = kv_ref(0, reply->runs->runs[0]->arena,
				    reply->runs->runs[0]->first_block);
	kv__wire__reply__free_unpacked(reply, NULL);
	return status;
}

/* n tokens in blocks of its own. */
static void fill(struct fixture *x, struct fake_client *c, uint32_t place, uint64_t n)
{
	uint64_t refs[64], n_blocks = (n + BLOCK_TOKENS - 1) / BLOCK_TOKENS;

	assert_int_equal(reserve(x, c, (uint32_t)n_blocks, &refs[0]), 0);
	for (uint64_t i = 1; i < n_blocks; i++)
		refs[i] = refs[i - 1] + 1;
	fake_commit(c, place, n, 0, refs, n_blocks);
}

static void snapshot_request(Kv__Wire__Snapshot *command, Kv__Wire__SnapshotOne *ones,
			     Kv__Wire__SnapshotOne **one_at, Kv__Wire__Target *targets, size_t n,
			     const uint32_t *places, const char *const *names)
{
	kv__wire__snapshot__init(command);
	command->n_ones = n;
	command->ones = one_at;
	for (size_t i = 0; i < n; i++) {
		kv__wire__snapshot_one__init(&ones[i]);
		kv__wire__target__init(&targets[i]);
		targets[i].which_case = KV__WIRE__TARGET__WHICH_PLACE;
		targets[i].place = places[i];
		ones[i].source = &targets[i];
		ones[i].name = (char *)names[i];
		one_at[i] = &ones[i];
	}
}

/* Sends only: the reply may come later. */
static uint64_t send_snapshot(struct fake_client *c, size_t n, const uint32_t *places,
			      const char *const *names, uint32_t deadline_ms)
{
	Kv__Wire__SnapshotOne ones[4], *one_at[4];
	Kv__Wire__Target targets[4];
	COMMAND(SNAPSHOT, snapshot, Snapshot);

	snapshot_request(&command, ones, one_at, targets, n, places, names);
	request.deadline_ms = deadline_ms;
	fake_send(c, &request);
	return request.id;
}

static uint32_t snapshot(struct fake_client *c, uint32_t place, const char *name)
{
	uint64_t before = c->f->n_replies;

	send_snapshot(c, 1, &place, &name, 0);
	assert_int_equal(c->f->n_replies, before + 1);
	return last_status(c->f);
}

static uint32_t by_name(struct fake_client *c, int which, const char *name, Kv__Wire__Reply **reply)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Show show = KV__WIRE__SHOW__INIT;
	Kv__Wire__Remove rm = KV__WIRE__REMOVE__INIT;
	Kv__Wire__Open opened = KV__WIRE__OPEN__INIT;
	Kv__Wire__Verify verify = KV__WIRE__VERIFY__INIT;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)name;
	show.source = rm.source = opened.source = verify.source = &target;
	request.command_case = (Kv__Wire__Request__CommandCase)which;
	if (which == KV__WIRE__REQUEST__COMMAND_SHOW)
		request.show = &show;
	else if (which == KV__WIRE__REQUEST__COMMAND_REMOVE)
		request.remove = &rm;
	else if (which == KV__WIRE__REQUEST__COMMAND_OPEN)
		request.open = &opened;
	else
		request.verify = &verify;
	return call(c, &request, reply);
}

static uint64_t length_of(struct fake_client *c, const char *name)
{
	Kv__Wire__Reply *reply;
	uint64_t length;

	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_SHOW, name, &reply), 0);
	length = reply->objects->objects[0]->length_tokens;
	kv__wire__reply__free_unpacked(reply, NULL);
	return length;
}

static struct kv_shm_writer *word_of(struct fake_client *c, uint32_t writer)
{
	return (struct kv_shm_writer *)((char *)c->segment + c->segment->writers_off) + writer;
}

/* The writer begins to publish / ends without having written anything. */
static void word_open(struct fake_client *c, uint32_t writer)
{
	uint64_t word = kv_word_load(word_of(c, writer));

	assert_int_equal(kv_word_state(word), KV_IDLE);
	assert_true(kv_word_swap(word_of(c, writer), word,
				 kv_word(KV_OPEN, kv_word_generation(word), kv_word_update(word))));
}

static void word_close(struct fake_client *c, uint32_t writer)
{
	uint64_t word = kv_word_load(word_of(c, writer));
	enum kv_word_state next = kv_word_state(word) == KV_WANTED ? KV_HELD : KV_IDLE;

	assert_true(
		kv_word_swap(word_of(c, writer), word,
			     kv_word(next, kv_word_generation(word), kv_word_update(word) + 1)));
}

static void pass_time(struct fake_core *f, uint64_t ms)
{
	f->offset_ns += ms * LOOP_NS_PER_MS;
	fake_settle(f);
}

/* ---- fixture ------------------------------------------------------------------------------ */

static void begin(struct fixture *x, uint64_t pool_bytes)
{
	struct settings settings;

	log_init(LOG_LEVEL_ERROR);
	settings_default(&settings);
	settings.pool_bytes = pool_bytes;
	settings.huge = settings.mlock = SETTINGS_NO;
	settings.n_sequences_max = 200;
	settings.n_sessions_max = 8;
	x->f = fake_core_new(&settings);
	x->a = fake_client_new(x->f, 1000, NULL);
	x->b = fake_client_new(x->f, 1000, NULL);
	x->layout = register_layout(x->a);
	assert_int_equal(register_layout(x->b), x->layout);
	assert_int_equal(new_writer(x->a), 0);
	assert_int_equal(new_writer(x->b), 0);
}

static void end(struct fixture *x)
{
	if (x->a)
		fake_client_free(x->a);
	if (x->b)
		fake_client_free(x->b);
	fake_core_free(x->f);
}

/* ---- the reply store ---------------------------------------------------------------------- */

static void send_seq_new(struct fixture *x, struct fake_client *c, uint64_t id, uint64_t acked,
			 const uint8_t *boot, const uint8_t *token)
{
	COMMAND(SEQ_NEW, seq_new, SeqNew);

	kv__wire__seq_new__init(&command);
	command.layout_id = x->layout;
	command.max_tokens = 64;
	request.id = id;
	request.acked = acked;
	if (boot) {
		request.boot.data = (uint8_t *)boot;
		request.boot.len = 16;
	}
	if (token) {
		request.token.data = (uint8_t *)token;
		request.token.len = 16;
	}
	fake_send(c, &request);
}

static void test_sent_twice(void **state)
{
	struct fixture x;
	uint8_t first[sizeof(x.f->reply)];
	size_t n_first;

	(void)state;
	begin(&x, 1u << 20);
	send_seq_new(&x, x.a, 50, 40, NULL, NULL);
	assert_int_equal(last_status(x.f), 0);
	n_first = x.f->n_reply;
	memcpy(first, x.f->reply, n_first);
	send_seq_new(&x, x.a, 50, 40, NULL, NULL);
	assert_int_equal(x.f->n_reply, n_first);
	assert_memory_equal(x.f->reply, first, n_first);
	assert_int_equal(x.f->core->objects.n, 1);
	send_seq_new(&x, x.a, 51, 50, NULL, NULL);
	assert_int_equal(last_status(x.f), 0);
	assert_int_equal(x.f->core->objects.n, 2);
	/* acknowledged: never run again */
	send_seq_new(&x, x.a, 50, 40, NULL, NULL);
	assert_int_equal(last_status(x.f), KV_ESTALE);
	assert_int_equal(x.f->core->objects.n, 2);
	end(&x);
}

static void test_after_restart(void **state)
{
	struct fixture x;
	uint8_t old_boot[16];

	(void)state;
	begin(&x, 1u << 20);
	memcpy(old_boot, x.f->env.boot, 16);
	send_seq_new(&x, x.a, 50, 40, NULL, NULL);
	assert_int_equal(last_status(x.f), 0);
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(x.f->core->objects.n, 1);
	/* the result is in the catalogue */
	send_seq_new(&x, x.a, 50, 40, old_boot, NULL);
	assert_int_equal(last_status(x.f), 0);
	/* this one was never run, and is not, whether its session is back or not */
	send_seq_new(&x, x.a, 51, 40, old_boot, NULL);
	assert_int_equal(last_status(x.f), KV_ERESTARTED);
	assert_int_equal(fake_client_again(x.a), 0);
	send_seq_new(&x, x.a, 51, 40, old_boot, NULL);
	assert_int_equal(last_status(x.f), KV_ERESTARTED);
	assert_int_equal(x.f->core->objects.n, 1);
	send_seq_new(&x, x.a, 51, 40, NULL, NULL);
	assert_int_equal(last_status(x.f), 0);
	assert_int_equal(x.f->core->objects.n, 2);
	end(&x);
}

static void test_refused(void **state)
{
	static const uint8_t junk[] = {0xff, 0xff, 0xff, 0xff, 0xff};
	Kv__Wire__Request none = KV__WIRE__REQUEST__INIT;
	uint8_t token[16] = {0};
	struct fixture x;

	(void)state;
	begin(&x, 1u << 20);
	core_request(x.f->core, "r", 1, junk, sizeof(junk));
	assert_int_equal(last_status(x.f), KV_EPROTO);
	core_request(x.f->core, "r", 1, "", 0);
	assert_int_equal(last_status(x.f), KV_EVERSION); /* an empty message is version 0 */
	send_seq_new(&x, x.a, 60, 10, NULL, token);
	assert_int_equal(last_status(x.f), KV_ESESSION);
	send_seq_new(&x, x.a, 60, 60, NULL, NULL);
	assert_int_equal(last_status(x.f), KV_EPROTO);
	none.id = 61;
	fake_send(x.a, &none);
	assert_int_equal(last_status(x.f), KV_EUNSUPPORTED);
	none.session = 12345;
	fake_send(x.a, &none);
	assert_int_equal(last_status(x.f), KV_ESESSION);
	assert_int_equal(x.f->core->objects.n, 0);
	assert_int_equal(noop(x.b), 0);
	end(&x);
}

static uint64_t send_wait(struct fake_client *c, const char *name, uint64_t id)
{
	COMMAND(WAIT, wait, Wait);

	kv__wire__wait__init(&command);
	command.name = (char *)name;
	request.deadline_ms = 5000;
	request.id = id;
	request.acked = c->acked;
	fake_send(c, &request);
	return request.id;
}

static void test_in_flight(void **state)
{
	struct fixture x;
	uint64_t before, first = 100;

	(void)state;
	begin(&x, 1u << 20);
	before = x.f->n_replies;
	for (uint64_t i = 0; i < KV_IN_FLIGHT_MAX; i++)
		send_wait(x.a, "later", first + i);
	assert_int_equal(x.f->n_replies, before);
	send_wait(x.a, "later", first + KV_IN_FLIGHT_MAX);
	assert_int_equal(last_status(x.f), KV_ELIMIT);
	send_wait(x.a, "later", first); /* a re-send is none more */
	assert_int_equal(x.f->n_replies, before + 1);
	assert_int_equal(noop(x.b), 0);
	new_seq(&x, x.b, 0, "later", NULL);
	before = x.f->n_replies;
	fake_settle(x.f);
	assert_int_equal(x.f->n_replies, before + KV_IN_FLIGHT_MAX);
	assert_int_equal(last_status(x.f), 0);
	end(&x);
}

static void test_wait_deadline(void **state)
{
	struct fixture x;

	(void)state;
	begin(&x, 1u << 20);
	send_wait(x.a, "never", 100);
	pass_time(x.f, 4000);
	assert_non_null(x.f->core->pending);
	pass_time(x.f, 2000);
	assert_null(x.f->core->pending);
	assert_int_equal(last_status(x.f), KV_ETIMEOUT);
	end(&x);
}

/* ---- held writers ------------------------------------------------------------------------- */

static void test_waits_for_writer(void **state)
{
	static const char *const name[] = {"snap"};
	struct fixture x;
	uint32_t place;
	uint64_t before, word;

	(void)state;
	begin(&x, 1u << 20);
	place = new_seq(&x, x.a, 0, "", NULL);
	fill(&x, x.a, place, 10);
	word_open(x.a, 0);
	before = x.f->n_replies;
	send_snapshot(x.a, 1, &place, name, 0);
	assert_int_equal(x.f->n_replies, before);
	assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 0))), KV_WANTED);
	assert_int_equal(noop(x.b), 0); /* others go on */
	word_close(x.a, 0);
	pass_time(x.f, 2);
	assert_int_equal(last_status(x.f), 0);
	word = kv_word_load(word_of(x.a, 0));
	assert_int_equal(kv_word_state(word), KV_IDLE);
	assert_int_equal(kv_word_generation(word), 1);
	assert_int_equal(length_of(x.b, "snap"), 10);
	end(&x);
}

static void test_busy(void **state)
{
	static const char *const names[] = {"one", "two"};
	struct fixture x;
	uint32_t places[2];

	(void)state;
	begin(&x, 1u << 20);
	assert_int_equal(new_writer(x.a), 1);
	places[0] = new_seq(&x, x.a, 0, "", NULL);
	places[1] = new_seq(&x, x.a, 1, "", NULL);
	fill(&x, x.a, places[0], 5);
	word_open(x.a, 1);
	send_snapshot(x.a, 2, places, names, 1000);
	pass_time(x.f, 500);
	/* the writer that could be held is not stopped meanwhile */
	assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 0))), KV_IDLE);
	pass_time(x.f, 600);
	assert_int_equal(last_status(x.f), KV_EBUSY);
	assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 0))), KV_IDLE);
	assert_int_equal(kv_word_generation(kv_word_load(word_of(x.a, 0))), 0);
	assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 1))), KV_OPEN);
	assert_null(names_find(x.f->core, 1000, "one"));
	assert_null(names_find(x.f->core, 1000, "two"));
	word_close(x.a, 1);
	send_snapshot(x.a, 2, places, names, 1000);
	assert_int_equal(last_status(x.f), 0);
	end(&x);
}

static void test_killed_while_wanted(void **state)
{
	Kv__Wire__SnapshotOne one = KV__WIRE__SNAPSHOT_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	struct fixture x;
	uint32_t place;
	COMMAND(SNAPSHOT, snapshot, Snapshot);

	(void)state;
	begin(&x, 1u << 20);
	place = new_seq(&x, x.a, 0, "seq", NULL);
	fill(&x, x.a, place, 6);
	word_open(x.a, 0);
	kv__wire__snapshot__init(&command);
	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.name = (char *)"snap";
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)"seq";
	fake_send(x.b, &request);
	assert_non_null(x.f->core->pending);
	fake_client_kill(x.a);
	pass_time(x.f, 2);
	assert_null(x.f->core->pending);
	assert_int_equal(last_status(x.f), 0); /* of the parked sequence */
	assert_int_equal(length_of(x.b, "snap"), 6);
	end(&x);
}

/* ---- operators' rollbacks ------------------------------------------------------------------ */

static uint32_t rollback(struct fake_client *c, size_t n, const char *const *names,
			 const uint64_t *keep)
{
	Kv__Wire__RollbackOne ones[4], *one_at[4];
	Kv__Wire__Target targets[4];
	COMMAND(ROLLBACK, rollback, Rollback);

	kv__wire__rollback__init(&command);
	command.n_ones = n;
	command.ones = one_at;
	for (size_t i = 0; i < n; i++) {
		kv__wire__rollback_one__init(&ones[i]);
		kv__wire__target__init(&targets[i]);
		targets[i].which_case = KV__WIRE__TARGET__WHICH_NAME;
		targets[i].name = (char *)names[i];
		ones[i].source = &targets[i];
		ones[i].mode = 1;
		ones[i].n_tokens = keep[i];
		one_at[i] = &ones[i];
	}
	return call(c, &request, NULL);
}

static void test_rollback(void **state)
{
	static const char *const names[] = {"live", "parked"};
	struct fixture x;
	uint32_t live, parked;
	uint64_t update;
	COMMAND(SEQ_DROP, seq_drop, SeqDrop);

	(void)state;
	begin(&x, 1u << 20);
	live = new_seq(&x, x.a, 0, "live", NULL);
	parked = new_seq(&x, x.a, 0, "parked", NULL);
	fill(&x, x.a, live, 10);
	fill(&x, x.a, parked, 7);
	kv__wire__seq_drop__init(&command);
	command.n_places = 1;
	command.places = &parked;
	command.park = 1;
	assert_int_equal(call(x.a, &request, NULL), 0);
	update = kv_word_update(kv_word_load(word_of(x.a, 0)));
	assert_int_equal(rollback(x.b, 2, names, (uint64_t[]){4, 8}), KV_ERANGE);
	assert_int_equal(length_of(x.b, "live"), 10);
	assert_int_equal(kv_word_update(kv_word_load(word_of(x.a, 0))), update);
	assert_int_equal(rollback(x.b, 2, names, (uint64_t[]){4, 0}), 0);
	assert_int_equal(length_of(x.b, "live"), 4);
	assert_int_equal(length_of(x.b, "parked"), 0);
	assert_int_equal(kv_word_update(kv_word_load(word_of(x.a, 0))), update + 1);
	assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 0))), KV_IDLE);
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(fake_client_again(x.b), 0);
	assert_int_equal(length_of(x.b, "live"), 4);
	assert_int_equal(x.f->core->decided.n, 0);
	end(&x);
}

/* The core dies with the word held: before the decision, and behind it. */
static void test_rollback_is_completed(void **state)
{
	struct fixture x;
	struct kv_shm_writer *w;
	uint32_t place;
	uint64_t update;

	(void)state;
	begin(&x, 1u << 20);
	place = new_seq(&x, x.a, 0, "live", NULL);
	fill(&x, x.a, place, 10);
	w = word_of(x.a, 0);
	update = kv_word_update(kv_word_load(w));
	assert_int_equal(hold_try(w), 0);
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(kv_word_state(kv_word_load(w)), KV_IDLE);
	assert_int_equal(kv_word_update(kv_word_load(w)), update);
	assert_int_equal(hold_try(w), 0);
	x.f->core->decided.n = 1;
	x.f->core->decided.ones[0] = (struct cat_decided_one){
		.session = x.a->session, .place = place, .update = update, .length_tokens = 3};
	log_decided(x.f->core);
	assert_int_equal(catalogue_commit(&x.f->core->catalogue), 0);
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(kv_word_state(kv_word_load(w)), KV_IDLE);
	assert_int_equal(kv_word_update(kv_word_load(w)), update + 1);
	assert_int_equal(fake_client_again(x.a), 0);
	assert_int_equal(length_of(x.a, "live"), 3);
	/* once is enough */
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(fake_client_again(x.a), 0);
	assert_int_equal(kv_word_update(kv_word_load(w)), update + 1);
	end(&x);
}

/* ---- tables that lie ---------------------------------------------------------------------- */

static void test_lying_table(void **state)
{
	struct fixture x;
	uint32_t good, bad, other;
	uint64_t ref, lie;

	(void)state;
	begin(&x, 1u << 20);
	good = new_seq(&x, x.a, 0, "good", NULL);
	bad = new_seq(&x, x.a, 0, "bad", NULL);
	other = new_seq(&x, x.b, 0, "other", NULL);
	fill(&x, x.a, good, 8);
	fill(&x, x.b, other, 8);
	assert_int_equal(reserve(&x, x.a, 1, &ref), 0);
	/* not granted; no such arena; out of the arena; a number of another session */
	for (int i = 0; i < 4; i++) {
		lie = i == 0 ? ref + 1 :
		      i == 1 ? kv_ref(0, 9, 0) :
		      i == 2 ? kv_ref(0, kv_ref_arena(ref), KV_REF_BLOCK_MAX) :
			       kv_ref(0, 4095, 1);
		fake_commit(x.a, bad, 4, 0, &lie, 1);
		assert_int_equal(snapshot(x.a, bad, "snap"), KV_ECORRUPT);
		assert_null(names_find(x.f->core, 1000, "snap"));
		assert_int_equal(kv_word_state(kv_word_load(word_of(x.a, 0))), KV_IDLE);
	}
	fake_commit(x.a, bad, 4, 0, &ref, 1);
	assert_int_equal(snapshot(x.a, bad, "snap"), 0);
	fake_commit(x.a, bad, 4, 0, &lie, 1);
	/* parked: the good one stays, the bad one goes */
	fake_client_kill(x.a);
	assert_int_equal(length_of(x.b, "good"), 8);
	assert_null(names_find(x.f->core, 1000, "bad"));
	assert_int_equal(noop(x.b), 0);
	end(&x);
}

static void test_scribbled_segment(void **state)
{
	struct fixture x;
	uint32_t place;
	unsigned seed = 5;

	(void)state;
	begin(&x, 1u << 20);
	place = new_seq(&x, x.a, 0, "seq", NULL);
	fill(&x, x.a, place, 8);
	for (int round = 0; round < 300; round++) {
		char *segment = (char *)x.a->segment;
		struct kv_shm_place *shm = (struct kv_shm_place *)(segment +
								   x.a->segment->places_off) +
					   place;

		for (int i = 0; i < 8; i++) {
			size_t off = offsetof(struct kv_shm_place, base_id) +
				     (size_t)rand_r(&seed) % 2500;

			((char *)shm)[off] = (char)rand_r(&seed);
		}
		atomic_store(&word_of(x.a, 0)->word,
			     kv_word((enum kv_word_state)(rand_r(&seed) % 4), 1,
				     (uint64_t)rand_r(&seed) % 4));
		send_snapshot(x.a, 1, &place, (const char *const[]){""}, 1);
		pass_time(x.f, 2);
		assert_null(x.f->core->pending);
		assert_int_equal(noop(x.b), 0);
	}
	fake_client_kill(x.a);
	assert_int_equal(noop(x.b), 0);
	end(&x);
}

static void test_overdraft(void **state)
{
	struct fixture x;
	char *segment;

	(void)state;
	begin(&x, 1u << 20);
	segment = (char *)x.a->segment;
	for (uint64_t off = KV_SHM_BYTES - (80u << 20); off < KV_SHM_BYTES; off += KV_SHM_PAGE)
		segment[off] = 1;
	pass_time(x.f, 1001);
	assert_true(x.a->is_closed);
	assert_null(session_find(x.f->core, x.a->session));
	assert_non_null(session_find(x.f->core, x.b->session));
	end(&x);
}

/* ---- other users -------------------------------------------------------------------------- */

static uint32_t end_session(struct fake_client *c, uint64_t session)
{
	COMMAND(SESSION_END, session_end, SessionEnd);

	kv__wire__session_end__init(&command);
	command.session = session;
	return call(c, &request, NULL);
}

static uint32_t get_layout(struct fake_client *c, uint64_t id)
{
	COMMAND(LAYOUT_GET, layout_get, LayoutGet);

	kv__wire__layout_get__init(&command);
	command.layout_id = id;
	return call(c, &request, NULL);
}

static void test_other_user(void **state)
{
	struct fixture x;
	struct fake_client *c;
	uint32_t place;
	Kv__Wire__Reply *reply;
	COMMAND(LIST, list, List);

	(void)state;
	begin(&x, 1u << 20);
	place = new_seq(&x, x.a, 0, "seq", NULL);
	assert_int_equal(snapshot(x.a, place, "snap"), 0);
	c = fake_client_new(x.f, 2000, NULL);
	new_writer(c);
	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_SHOW, "snap", NULL), KV_ENOTFOUND);
	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_OPEN, "snap", NULL), KV_ENOTFOUND);
	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_VERIFY, "seq", NULL), KV_ENOTFOUND);
	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_REMOVE, "snap", NULL), KV_ENOTFOUND);
	kv__wire__list__init(&command);
	assert_int_equal(call(c, &request, &reply), 0);
	assert_int_equal(reply->objects->n_objects, 0);
	kv__wire__reply__free_unpacked(reply, NULL);
	assert_int_equal(end_session(c, x.a->session), KV_ENOTFOUND);
	assert_int_equal(get_layout(c, x.layout), KV_ENOTFOUND);
	/* the same name is free in the space of this user */
	assert_int_equal(register_layout(c), x.layout);
	new_seq(&x, c, 0, "seq", NULL);
	fake_client_free(c);
	/* root may end sessions, also its own */
	c = fake_client_new(x.f, 0, NULL);
	assert_int_equal(by_name(c, KV__WIRE__REQUEST__COMMAND_SHOW, "snap", NULL), KV_ENOTFOUND);
	assert_int_equal(end_session(c, x.a->session), 0);
	assert_true(x.a->is_closed);
	assert_int_equal(end_session(c, c->session), 0);
	assert_true(c->is_closed);
	fake_client_free(c);
	end(&x);
}

/* ---- limits ------------------------------------------------------------------------------- */

static void test_sessions_limit(void **state)
{
	struct fixture x;
	struct fake_client *more[6];
	uint32_t status;

	(void)state;
	begin(&x, 1u << 20);
	for (int i = 0; i < 6; i++)
		assert_non_null(more[i] = fake_client_new(x.f, 1000, NULL));
	assert_null(fake_client_new(x.f, 1000, &status));
	assert_int_equal(status, KV_EQUOTA);
	fake_client_free(more[5]);
	assert_non_null(more[5] = fake_client_new(x.f, 1000, NULL));
	x.f->keeper_is_full = true;
	assert_null(fake_client_new(x.f, 2000, &status));
	assert_int_equal(status, KV_ELIMIT);
	assert_int_equal(reserve(&x, x.a, 1, NULL), KV_ELIMIT);
	x.f->keeper_is_full = false;
	assert_int_equal(reserve(&x, x.a, 1, NULL), 0);
	for (int i = 0; i < 6; i++)
		fake_client_free(more[i]);
	end(&x);
}

static void test_pages(void **state)
{
	struct fixture x;
	Kv__Wire__Reply *reply;
	uint64_t last = 0;
	size_t n = 0;
	bool more = true;

	(void)state;
	begin(&x, 1u << 20);
	for (int i = 0; i < 100; i++)
		new_seq(&x, x.a, 0, "", NULL);
	while (more) {
		COMMAND(LIST, list, List);

		kv__wire__list__init(&command);
		command.after_id = last;
		assert_int_equal(call(x.b, &request, &reply), 0);
		for (size_t i = 0; i < reply->objects->n_objects; i++) {
			assert_true(reply->objects->objects[i]->id > last);
			last = reply->objects->objects[i]->id;
		}
		n += reply->objects->n_objects;
		more = reply->objects->more;
		kv__wire__reply__free_unpacked(reply, NULL);
	}
	assert_int_equal(n, 100);
	end(&x);
}

static void test_big_reserve(void **state)
{
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	struct fixture x;
	uint64_t before, total;
	COMMAND(RESERVE, reserve, Reserve);

	(void)state;
	begin(&x, 64u << 20);
	total = x.f->core->pool.total_bytes;
	kv__wire__reserve__init(&command);
	command.layout_id = x.layout;
	command.n_needs = 1;
	command.needs = needs;
	need.n_blocks = (40u << 20) / 4096;
	fake_send(x.a, &request);
	before = x.f->n_replies;
	assert_non_null(x.f->core->pending);
	/* what is promised is not given twice, and others are served meanwhile */
	assert_int_equal(reserve(&x, x.b, need.n_blocks, NULL), KV_EPOOL);
	assert_int_equal(x.f->n_replies, before + 1);
	/* its session ends in the middle */
	fake_client_kill(x.a);
	assert_null(x.f->core->pending);
	assert_int_equal(x.f->core->pool.class_bytes[BLOCK_FREE], total);
	assert_int_equal(reserve(&x, x.b, need.n_blocks, NULL), 0);
	assert_int_equal(x.f->core->n_tentative, 0);
	end(&x);
}

static void test_watches(void **state)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Watch watch = KV__WIRE__WATCH__INIT;
	struct fixture x;
	int pipe_fd[2];
	char c;

	(void)state;
	begin(&x, 1u << 20);
	assert_int_equal(pipe(pipe_fd), 0);
	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_WATCH;
	request.watch = &watch;
	watch.name = (char *)"later";
	for (unsigned i = 0; i < KV_WATCHES_MAX; i++)
		assert_int_equal(fake_attach(x.a, &request, dup(pipe_fd[1])), 0);
	assert_int_equal(fake_attach(x.a, &request, dup(pipe_fd[1])), KV_ELIMIT);
	/* they survive the core */
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(fake_client_again(x.b), 0);
	new_seq(&x, x.b, 0, "later", NULL);
	close(pipe_fd[1]);
	for (unsigned i = 0; i < KV_WATCHES_MAX; i++)
		assert_int_equal(read(pipe_fd[0], &c, 1), 1);
	assert_int_equal(read(pipe_fd[0], &c, 1), 0);
	close(pipe_fd[0]);
	end(&x);
}

static void test_again_by_another(void **state)
{
	struct fixture x;
	pid_t real;

	(void)state;
	begin(&x, 1u << 20);
	assert_int_equal(fake_core_restart(x.f), 0);
	real = x.a->pid;
	x.a->pid = x.b->pid; /* another process that knows the token */
	assert_int_equal(fake_client_again(x.a), KV_ESESSION);
	x.a->pid = real;
	assert_int_equal(fake_client_again(x.a), 0);
	assert_int_equal(noop(x.a), 0);
	end(&x);
}

static size_t count_kept(const struct fixture *x, enum kept_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < x->f->n_kept; i++)
		n += x->f->kept[i].kind == kind;
	return n;
}

/* A core dies when it has noted that a session ended, and before the keeper let its segment go: the
 * next one tells the keeper, also while the session waits for its process. */
static void test_segment_of_an_ended_session(void **state)
{
	struct fixture x;
	uint64_t session;
	int fd;

	(void)state;
	begin(&x, 1u << 20);
	fill(&x, x.a, new_seq(&x, x.a, 0, "seq", NULL), 8);
	session = x.a->session;
	fd = dup(session_find(x.f->core, session)->segment.fd);
	assert_int_equal(count_kept(&x, KEPT_SEGMENT), 2);
	fake_client_hang_up(x.a);
	fake_settle(x.f);
	assert_int_equal(session_find(x.f->core, session)->phase, SESSION_ENDED);
	assert_int_equal(count_kept(&x, KEPT_SEGMENT), 1);
	x.f->kept[x.f->n_kept++] = (struct kept){.kind = KEPT_SEGMENT, .id = session, .fd = fd};
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(session_find(x.f->core, session)->phase, SESSION_ENDED);
	assert_int_equal(count_kept(&x, KEPT_SEGMENT), 1);
	assert_int_equal(count_kept(&x, KEPT_PIDFD), 2);
	end(&x);
}

static void test_damaged_catalogue(void **state)
{
	struct fixture x;

	(void)state;
	begin(&x, 1u << 20);
	new_seq(&x, x.a, 0, "seq", NULL);
	x.f->core->catalogue.base[CAT_HEAD_BYTES + 40] ^= 1;
	log_init(LOG_LEVEL_ERROR);
	assert_int_equal(fake_core_restart(x.f), 0); /* says so, and starts empty */
	assert_int_equal(x.f->core->objects.n, 0);
	assert_int_equal(x.f->core->sessions.n, 0);
	assert_int_equal(x.f->n_kept, 1);
	assert_int_equal(fake_client_again(x.a), KV_ESESSION);
	end(&x);
}

/* A catalogue that is whole, but names a descriptor that the keeper does not have. */
static void lose_kept(enum kept_kind kind)
{
	struct fixture x;

	begin(&x, 1u << 20);
	fill(&x, x.a, new_seq(&x, x.a, 0, "seq", NULL), 8);
	for (size_t i = 0; i < x.f->n_kept; i++)
		if (x.f->kept[i].kind == kind) {
			close(x.f->kept[i].fd);
			x.f->kept[i] = x.f->kept[--x.f->n_kept];
			break;
		}
	assert_int_equal(fake_core_restart(x.f), 0);
	assert_int_equal(x.f->core->objects.n, 0);
	assert_int_equal(x.f->core->arenas.n, 0);
	assert_int_equal(x.f->core->pool.class_bytes[BLOCK_FREE], x.f->core->pool.total_bytes);
	end(&x);
}

static void test_lost_descriptors(void **state)
{
	(void)state;
	lose_kept(KEPT_ARENA);
	lose_kept(KEPT_SEGMENT);
	lose_kept(KEPT_PIDFD);
}

/* Memory of a grant that came to nothing must not pass for memory that is there. */
static void test_undone_grants_are_cold(void **state)
{
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	struct fixture x;
	struct arena *arena;
	COMMAND(RESERVE, reserve, Reserve);

	(void)state;
	begin(&x, 64u << 20);
	kv__wire__reserve__init(&command);
	command.layout_id = x.layout;
	command.n_needs = 1;
	command.needs = needs;
	need.n_blocks = (40u << 20) / 4096;
	request.deadline_ms = 1;
	fake_send(x.a, &request);
	x.f->offset_ns += 10 * LOOP_NS_PER_MS;
	fake_settle(x.f);
	assert_int_equal(last_status(x.f), KV_ETIMEOUT);
	arena = session_find(x.f->core, x.a->session)->arenas;
	assert_int_equal(arena->n_warm, 0);
	assert_int_equal(arena_resident_bytes(arena), 0);
	end(&x);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a request is run once however often it comes", test_sent_twice),
	KT_TEST("results of another life are given again, nothing else of it is run",
		test_after_restart),
	KT_TEST("malformed and foreign requests are refused by status", test_refused),
	KT_TEST("64 requests are in flight, the next is refused", test_in_flight),
	KT_TEST("waiting ends at its deadline", test_wait_deadline),
	KT_TEST("a snapshot waits for a writer that publishes, others go on",
		test_waits_for_writer),
	KT_TEST("at the deadline nothing was taken and all writers are let go", test_busy),
	KT_TEST("a writer that dies while the core waits is read from its parked sequence",
		test_killed_while_wanted),
	KT_TEST("an operator rolls back live and parked sequences, all or none", test_rollback),
	KT_TEST("a held writer is let go after the core's death, a decided rollback completed",
		test_rollback_is_completed),
	KT_TEST("a table that names foreign blocks is refused, and dropped at the end",
		test_lying_table),
	KT_TEST("a scribbled control segment costs only its own sequences", test_scribbled_segment),
	KT_TEST("a session that makes memory for itself is ended", test_overdraft),
	KT_TEST("what another user has is not found", test_other_user),
	KT_TEST("sessions are limited, also by the keeper, and nothing is left of a refused one",
		test_sessions_limit),
	KT_TEST("a listing comes in pages", test_pages),
	KT_TEST("a big reserve goes on a slice at a time, and back when its session ends",
		test_big_reserve),
	KT_TEST("watches are limited, survive the core and fire once", test_watches),
	KT_TEST("the segment of a session that has ended is let go by the next core too",
		test_segment_of_an_ended_session),
	KT_TEST("only its own process takes a session up again", test_again_by_another),
	KT_TEST("a damaged catalogue is refused whole", test_damaged_catalogue),
	KT_TEST("a catalogue whose descriptors are lost is refused whole", test_lost_descriptors),
	KT_TEST("a reserve that ran out of time leaves no memory behind",
		test_undone_grants_are_cold),
};

KT_MAIN(tests)
