/*
 * Cases that people met in systems like this one, on a running daemon: identity of layouts
 * (KV-01, KV-02), names (KV-09), rollback at its limits and of several at once (KV-16, KV-17),
 * ownership of blocks (KV-20), forks inside a block (KV-21).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/client.h"
#include "tests/support/daemon.h"
#include "tests/support/random.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

static struct kt_daemon *daemon_;

static struct kt_client open_client(void)
{
	return kt_client_open(kt_daemon_dir(daemon_));
}

static int take_snapshot(kvc_seq *seq, const char *name)
{
	const struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};

	return kvc_snapshot(seq, &options, NULL);
}

/* ---- KV-01: cache of other weights -------------------------------------------------------- */

static void test_weights(void **state)
{
	struct kt_client client = open_client();
	kvc_seq *seq = kt_seq_new(&client, NULL), *fork;
	uint64_t shadow[512], n = 0;
	kvc_layout *other;

	(void)state;
	kt_append_numbers(client.writer, seq, 1000, 512, shadow, &n);
	kt_ok(take_snapshot(seq, "kv01/prompt"));
	kvc_close(client.session);
	for (int restarts = 0; restarts < 2; restarts++) {
		client = open_client();
		other = kt_layout(client.session, 2);
		assert_non_null(other);
		fork = kvc_fork(client.writer, "kv01/prompt", NULL);
		assert_non_null(fork);
		/* (a) another fingerprint */
		kt_fails(kvc_layout_compare(other, kvc_seq_layout(fork)), KVC_ELAYOUT);
		assert_non_null(strstr(kvc_error_text(), "fingerprint"));
		/* (b) none */
		kt_fails_null(kt_layout(client.session, 0), KVC_EINVAL);
		assert_non_null(strstr(kvc_error_text(), "fingerprint"));
		/* (c) the same */
		kt_ok(kvc_layout_compare(client.layout, kvc_seq_layout(fork)));
		assert_memory_equal(kvc_layout_hash(client.layout),
				    kvc_layout_hash(kvc_seq_layout(fork)), 32);
		kt_assert_tokens(fork, shadow, n);
		kvc_close(client.session);
		assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	}
	client = open_client();
	kt_ok(kvc_remove(client.session, "kv01/prompt"));
	kvc_close(client.session);
}

/* ---- KV-02: another layout with as many bytes ---------------------------------------------- */

static const struct kvc_tag rope = {"rope", "base 10000"}, other_rope = {"rope", "base 500000"};

struct variant {
	const char *field; /* that the refusal names */
	struct kvc_layer layer;
	uint32_t dtype, block_tokens, opaque_bytes;
	const struct kvc_tag *tag;
};

/* 256 bytes a token each. */
static const struct variant variants[] = {
	{NULL, {4, 16, 16, 0}, KVC_BF16, 8, 0, &rope},
	{"k_width", {4, 32, 0, 0}, KVC_BF16, 8, 0, &rope}, /* K and V packed in one */
	{"n_query_groups", {8, 8, 8, 0}, KVC_BF16, 8, 0, &rope},
	{"block_tokens", {4, 16, 16, 0}, KVC_BF16, 4, 0, &rope},
	{"dtype", {4, 16, 16, 0}, KVC_F16, 8, 0, &rope},
	{"k_width", {4, 24, 8, 0}, KVC_BF16, 8, 0, &rope},
	{"bound_slots", {4, 16, 16, 4096}, KVC_BF16, 8, 0, &rope},
	{"rope", {4, 16, 16, 0}, KVC_BF16, 8, 0, &other_rope},
	{"tags", {4, 16, 16, 0}, KVC_BF16, 8, 0, NULL},
	{"layers", {0, 0, 0, 0}, 0, 1, 256, &rope},
};
#define N_VARIANTS (sizeof(variants) / sizeof(variants[0]))

static struct kvc_layout_options options_of(const struct variant *v)
{
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {3},
					     .n_layers = v->opaque_bytes ? 0 : 1,
					     .layers = v->opaque_bytes ? NULL : &v->layer,
					     .dtype = v->dtype,
					     .block_tokens = v->block_tokens,
					     .opaque_bytes = v->opaque_bytes,
					     .n_tags = v->tag ? 1 : 0,
					     .tags = v->tag};

	return options;
}

static void check_variants(kvc_session *session, uint8_t hashes[N_VARIANTS][32], bool known)
{
	kvc_layout *layouts[N_VARIANTS];

	for (size_t i = 0; i < N_VARIANTS; i++) {
		const struct kvc_layout_options options = options_of(&variants[i]);

		layouts[i] = known ? kvc_layout_find(session, hashes[i]) :
				     kvc_layout_register(session, &options);
		kt_ok(layouts[i] ? 0 : -1);
		assert_int_equal(kvc_layout_token_bytes(layouts[i]), 256);
		memcpy(hashes[i], kvc_layout_hash(layouts[i]), 32);
		for (size_t k = 0; k < i; k++)
			assert_memory_not_equal(hashes[i], hashes[k], 32);
		if (i == 0)
			continue;
		kt_fails(kvc_layout_compare(layouts[0], layouts[i]), KVC_ELAYOUT);
		assert_non_null(strstr(kvc_error_text(), variants[i].field));
	}
}

static void test_layouts(void **state)
{
	struct kt_client client = open_client();
	struct kvc_layout_options quantised = options_of(&variants[0]);
	uint8_t hashes[N_VARIANTS][32];

	(void)state;
	check_variants(client.session, hashes, false);
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	kvc_close(client.session);
	client = open_client();
	check_variants(client.session, hashes, true);
	check_variants(client.session, hashes, false);
	quantised.k_format = KVC_INT8_MODEL + 1;
	kt_fails_null(kvc_layout_register(client.session, &quantised), KVC_ETOOBIG);
	assert_non_null(strstr(kvc_error_text(), "k_format"));
	quantised.k_format = KVC_INT8; /* the same numbers, stored otherwise */
	assert_memory_not_equal(kvc_layout_hash(kvc_layout_register(client.session, &quantised)),
				hashes[0], 32);
	kvc_close(client.session);
}

/* ---- KV-09: names -------------------------------------------------------------------------- */

#define PROMPT_TOKENS 256u

/* Writes a prompt in many updates, publishes it, says so, waits to be told to end. */
static int role_publish(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, NULL);
	char byte;

	if (write(out, "r", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	for (uint64_t i = 0; i < PROMPT_TOKENS; i += 2)
		kt_append_numbers(client.writer, seq, 7000 + i, 2, NULL, NULL);
	kt_ok(take_snapshot(seq, arg));
	if (write(out, "p", 1) != 1 || read(in, &byte, 1) != 1)
		return 1;
	kvc_close(client.session);
	return 0;
}

static void test_not_before_commit(void **state)
{
	struct kt_client client = open_client();
	uint64_t shadow[PROMPT_TOKENS];
	kvc_seq *seq = NULL;
	unsigned int n_misses = 0;
	struct kt_kid kid;
	char byte;

	(void)state;
	for (uint64_t i = 0; i < PROMPT_TOKENS; i++)
		shadow[i] = 7000 + i;
	kt_kid_start(&kid, "publish", kt_daemon_dir(daemon_), "kv09/prompt");
	kt_kid_read(&kid, &byte, 1);
	kt_fails_null(kvc_open_snapshot(client.writer, "kv09/prompt"), KVC_ENOTFOUND);
	kt_kid_write(&kid, "g", 1);
	for (const int64_t end = kt_now_ms() + kt_scale_ms(10000); !seq && kt_now_ms() < end;) {
		seq = kvc_open_snapshot(client.writer, "kv09/prompt");
		n_misses += !seq;
		if (!seq)
			assert_int_equal(kvc_error(), KVC_ENOTFOUND);
	}
	assert_non_null(seq);
	kt_assert_tokens(seq, shadow, PROMPT_TOKENS);
	assert_true(n_misses > 0);
	kt_kid_read(&kid, &byte, 1);
	kt_kid_write(&kid, "e", 1);
	assert_int_equal(kt_kid_wait(&kid), 0);
	kvc_seq_free(seq);
	kt_ok(kvc_remove(client.session, "kv09/prompt"));
	kvc_close(client.session);
}

/* For each byte that it reads it publishes its sequence under the one name; writes the status. */
static int role_race(const char *dir, const char *arg, int in, int out)
{
	struct kt_client client = kt_client_open(dir);
	kvc_seq *seq = kt_seq_new(&client, NULL);
	char byte = 0;

	kt_append_numbers(client.writer, seq, (uint64_t)atoi(arg), 5, NULL, NULL);
	while (write(out, &byte, 1) == 1 && read(in, &byte, 1) == 1)
		byte = (char)(take_snapshot(seq, "kv09/one") ? kvc_error() : 0);
	kvc_close(client.session);
	return 0;
}

#define N_RACES 1000

static void race_once(struct kt_kid kids[2], kvc_session *session, const struct kt_gauges *before)
{
	struct kt_gauges now;
	char results[2];

	for (int i = 0; i < 2; i++)
		kt_kid_write(&kids[i], "g", 1);
	for (int i = 0; i < 2; i++)
		kt_kid_read(&kids[i], &results[i], 1);
	assert_int_equal(results[0] == 0 ? results[1] : results[0], KVC_EEXIST);
	assert_true(results[0] == 0 || results[1] == 0);
	now = kt_gauges(session);
	assert_int_equal(now.n_snapshots, before->n_snapshots + 1);
	assert_int_equal(now.free, before->free);
	kt_ok(kvc_remove(session, "kv09/one"));
}

static void test_one_winner(void **state)
{
	struct kt_client client = open_client();
	struct kt_gauges empty = kt_gauges(client.session), before;
	struct kt_kid kids[2];
	char byte;

	(void)state;
	kt_kid_start(&kids[0], "race", kt_daemon_dir(daemon_), "100");
	kt_kid_start(&kids[1], "race", kt_daemon_dir(daemon_), "200");
	for (int i = 0; i < 2; i++)
		kt_kid_read(&kids[i], &byte, 1);
	before = kt_gauges(client.session);
	for (int i = 0; i < N_RACES; i++)
		race_once(kids, client.session, &before);
	for (int i = 0; i < 2; i++)
		assert_true(kt_kid_kill(&kids[i]) != -1);
	kt_wait_gauges(client.session, &empty);
	kvc_close(client.session);
}

/* ---- KV-16, KV-17: rollback ----------------------------------------------------------------- */

static const uint64_t amounts[] = {0, 1, 3, 4, 17, 18, UINT64_C(1) << 31, UINT64_MAX};
#define N_AMOUNTS (sizeof(amounts) / sizeof(amounts[0]))

/* Cuts a sequence of `length` tokens both ways, by its own thread or as an operator. */
static void check_limits(const struct kt_client *client, uint64_t length, bool by_name)
{
	static const char *const name = "kv17/seq";

	for (size_t i = 0; i < N_AMOUNTS * 2; i++) {
		uint64_t shadow[64], n = 0, amount = amounts[i / 2];
		bool keep = i % 2;
		kvc_seq *seq = kt_seq_new(client, name);
		int rc;

		if (length)
			kt_append_numbers(client->writer, seq, 1, length, shadow, &n);
		if (by_name)
			rc = kt_rollback_by_name(client->session, &name, &amount,
						 keep ? KT_KEEP : KT_REMOVE, 1, 0);
		else
			rc = keep ? kvc_rollback_keep(seq, amount) :
				    kvc_rollback_remove(seq, amount);
		if (amount > length)
			kt_fails(rc, KVC_ERANGE);
		else
			kt_ok(rc);
		if (rc == 0)
			n = keep ? amount : length - amount;
		if (by_name && rc == 0 && n != length) /* the next commit learns of it */
			kt_fails(kt_append_try(client->writer, seq, &shadow[0], 1), KVC_EMOVED);
		kt_assert_tokens(seq, shadow, n);
		kt_append_numbers(client->writer, seq, 500, 6, shadow, &n);
		kt_assert_tokens(seq, shadow, n);
		kt_ok(kvc_seq_drop(seq));
	}
}

static void test_rollback_limits(void **state)
{
	static const uint64_t lengths[] = {0, 3, 16, 17};
	struct kt_client client = open_client();

	(void)state;
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		check_limits(&client, lengths[i], false);
		check_limits(&client, lengths[i], true);
	}
	kvc_close(client.session);
}

static void test_rollback_many(void **state)
{
	struct kt_client client = open_client();
	kvc_seq *seqs[3];
	uint64_t shadow[3][32], n[3] = {0};
	const uint64_t too_much[3] = {1, 2, 18}, fits[3] = {1, 0, 17};

	(void)state;
	for (int i = 0; i < 3; i++) {
		seqs[i] = kt_seq_new(&client, NULL);
		kt_append_numbers(client.writer, seqs[i], 100 * (uint64_t)i, 17, shadow[i], &n[i]);
	}
	kt_fails(kvc_rollback_many(client.writer, seqs, too_much, 3), KVC_ERANGE);
	for (int i = 0; i < 3; i++)
		kt_assert_tokens(seqs[i], shadow[i], 17);
	kt_ok(kvc_rollback_many(client.writer, seqs, fits, 3));
	for (int i = 0; i < 3; i++)
		kt_assert_tokens(seqs[i], shadow[i], 17 - fits[i]);
	kvc_close(client.session);
}

static const char *const pair[2] = {"kv16/a", "kv16/b"};

static void check_refused(struct kt_client clients[2], kvc_seq *seqs[2], uint64_t shadow[2][32],
			  const char *second, uint64_t amount, int status)
{
	const char *sources[2] = {pair[0], second};
	const uint64_t keep[2] = {2, amount};

	kt_fails(kt_rollback_by_name(clients[0].session, sources, keep, KT_KEEP, 2, 300), status);
	for (int i = 0; i < 2; i++) {
		uint64_t length;

		kt_ok(kt_show(clients[i].session, pair[i], &length));
		assert_int_equal(length, 17);
		kt_assert_tokens(seqs[i], shadow[i], 17);
	}
}

static void test_operator_rollback_many(void **state)
{
	struct kt_client clients[2] = {open_client(), open_client()};
	kvc_seq *seqs[2];
	uint64_t shadow[2][32], n[2] = {0};
	const uint64_t keep[2] = {3, 5};
	uint64_t token = 9;

	(void)state;
	for (int i = 0; i < 2; i++) {
		seqs[i] = kt_seq_new(&clients[i], pair[i]);
		kt_append_numbers(clients[i].writer, seqs[i], 100 * (uint64_t)i, 17, shadow[i],
				  &n[i]);
	}
	kt_ok(take_snapshot(seqs[1], "kv16/snap"));
	check_refused(clients, seqs, shadow, pair[1], 18, KVC_ERANGE);
	check_refused(clients, seqs, shadow, "kv16/none", 1, KVC_ENOTFOUND);
	check_refused(clients, seqs, shadow, "kv16/snap", 1, KVC_EREADONLY);
	check_refused(clients, seqs, shadow, pair[0], 1, KVC_EINVAL);
	/* no writer was touched: nobody has moved */
	for (int i = 0; i < 2; i++) {
		kt_ok(kvc_append_begin(seqs[i], 1) && kvc_reserve(seqs[i], 1));
		kvc_abort(seqs[i]);
		kt_ok(kt_append_try(clients[i].writer, seqs[i], &token, 1));
		kt_ok(kvc_rollback_remove(seqs[i], 1));
	}
	kt_ok(kt_rollback_by_name(clients[0].session, pair, keep, KT_KEEP, 2, 0));
	for (int i = 0; i < 2; i++) {
		kt_fails(kt_append_try(clients[i].writer, seqs[i], &token, 1), KVC_EMOVED);
		kt_assert_tokens(seqs[i], shadow[i], keep[i]);
	}
	kt_ok(kvc_remove(clients[0].session, "kv16/snap"));
	for (int i = 0; i < 2; i++) {
		kt_ok(kvc_seq_drop(seqs[i]));
		kvc_close(clients[i].session);
	}
}

/* ---- KV-20: who owns a block ----------------------------------------------------------------- */

#define N_SEQS 10
#define N_STEPS 500
#define MOST_TOKENS 48u

struct owned {
	kvc_seq *seq; /* NULL: none */
	bool read_only;
	char snapshot[32]; /* empty: none */
	uint64_t shadow[MOST_TOKENS + 16], n;
};

struct herd {
	struct kt_client client;
	struct owned seqs[N_SEQS];
	uint64_t random, next_token;
	unsigned int n_snapshots;
};

static uint64_t draw(struct herd *herd, uint64_t n)
{
	return kt_draw(&herd->random, n);
}

static struct owned *pick(struct herd *herd, bool free_one)
{
	size_t from = (size_t)draw(herd, N_SEQS);

	for (size_t i = 0; i < N_SEQS; i++) {
		struct owned *o = &herd->seqs[(from + i) % N_SEQS];

		if (!o->seq == free_one)
			return o;
	}
	return NULL;
}

static void adopt(struct owned *o, kvc_seq *seq, const struct owned *like, bool read_only)
{
	kt_ok(seq ? 0 : -1);
	o->seq = seq;
	o->read_only = read_only;
	o->snapshot[0] = '\0';
	o->n = like ? like->n : 0;
	if (like)
		memcpy(o->shadow, like->shadow, sizeof(o->shadow));
}

static void give_up(struct herd *herd, struct owned *o)
{
	if (o->snapshot[0]) {
		kt_ok(kvc_remove(herd->client.session, o->snapshot));
		kt_fails(kvc_remove(herd->client.session, o->snapshot), KVC_ENOTFOUND);
	}
	o->snapshot[0] = '\0';
	kvc_seq_free(o->seq);
	o->seq = NULL;
}

static void grow(struct herd *herd, struct owned *o)
{
	uint64_t n = 1 + draw(herd, 9);

	if (o->read_only || o->n + n > MOST_TOKENS)
		return;
	kt_append_numbers(herd->client.writer, o->seq, herd->next_token, n, o->shadow, &o->n);
	herd->next_token += n;
}

static void publish(struct herd *herd, struct owned *o)
{
	if (o->read_only || o->snapshot[0])
		return;
	snprintf(o->snapshot, sizeof(o->snapshot), "kv20/%u", herd->n_snapshots++);
	kt_ok(take_snapshot(o->seq, o->snapshot));
}

static void split(struct owned *o, struct owned *to, uint64_t how)
{
	if (how == 0 && !o->read_only) {
		kt_ok(kvc_reserve_forks(o->seq, 1));
		kt_ok(kvc_reserve(o->seq, KT_BLOCK_TOKENS));
		adopt(to, kvc_fork_local(o->seq, 0), o, false);
	} else if (how == 1 && !o->read_only) {
		kt_ok(kvc_reserve_forks(o->seq, 1));
		adopt(to, kvc_snapshot_local(o->seq), o, true);
	}
}

/* A fork of what its snapshot holds is not a fork of now: the snapshot is taken afresh. */
static void split_named(struct herd *herd, struct owned *o, struct owned *to, bool open)
{
	if (o->read_only)
		return;
	if (o->snapshot[0]) {
		kt_ok(kvc_remove(herd->client.session, o->snapshot));
		o->snapshot[0] = '\0';
	}
	publish(herd, o);
	adopt(to,
	      open ? kvc_open_snapshot(herd->client.writer, o->snapshot) :
		     kvc_fork(herd->client.writer, o->snapshot, NULL),
	      o, open);
}

static void step(struct herd *herd)
{
	struct owned *o = pick(herd, false), *spare = pick(herd, true);
	uint64_t what = draw(herd, 12);

	if (!o) {
		adopt(spare, kt_seq_new(&herd->client, NULL), NULL, false);
		return;
	}
	if (what == 0 && spare)
		adopt(spare, kt_seq_new(&herd->client, NULL), NULL, false);
	else if (what <= 2 && spare)
		split(o, spare, what - 1);
	else if (what <= 4 && spare)
		split_named(herd, o, spare, what == 4);
	else if (what == 5)
		publish(herd, o);
	else if (what == 6 && !o->read_only) {
		o->n -= draw(herd, o->n + 1);
		kt_ok(kvc_rollback_keep(o->seq, o->n));
	} else if (what <= 8 && !spare)
		give_up(herd, o);
	else
		grow(herd, o);
}

static void test_owners(void **state)
{
	struct herd *herd = calloc(1, sizeof(*herd));
	struct kt_gauges before;

	(void)state;
	herd->client = open_client();
	herd->random = 20;
	before = kt_gauges(herd->client.session);
	for (int i = 0; i < N_STEPS; i++) {
		step(herd);
		kt_gauges(herd->client.session);
		/* a block with two writers, or given away too early, would show here */
		for (size_t s = 0; s < N_SEQS; s++)
			if (herd->seqs[s].seq)
				kt_assert_tokens(herd->seqs[s].seq, herd->seqs[s].shadow,
						 herd->seqs[s].n);
	}
	for (size_t s = 0; s < N_SEQS; s++)
		if (herd->seqs[s].seq)
			give_up(herd, &herd->seqs[s]);
	kt_wait_gauges(herd->client.session, &before);
	kvc_close(herd->client.session);
	free(herd);
}

/* ---- KV-21: fork inside a block -------------------------------------------------------------- */

#define PARENT_TOKENS 10u /* two of the third block's four slots */

static kvc_seq *fork_of(const struct kt_client *client, kvc_seq *seq, const char *name, bool local)
{
	kvc_seq *fork;

	if (local) {
		kt_ok(kvc_reserve_forks(seq, 1));
		kt_ok(kvc_reserve(seq, KT_BLOCK_TOKENS));
		fork = kvc_fork_local(seq, 0);
	} else {
		kt_ok(take_snapshot(seq, name));
		fork = kvc_fork(client->writer, name, NULL);
		kt_ok(kvc_remove(client->session, name));
	}
	kt_ok(fork ? 0 : -1);
	return fork;
}

static void fork_inside_a_block(bool local)
{
	struct kt_client client = open_client();
	struct kt_gauges before = kt_gauges(client.session);
	kvc_seq *seqs[5];
	uint64_t shadow[5][32], n[5] = {0};
	const uint64_t filled = PARENT_TOKENS % KT_BLOCK_TOKENS;

	/* a place and blocks that held other tokens */
	seqs[0] = kt_seq_new(&client, NULL);
	kt_append_numbers(client.writer, seqs[0], 90000, 200, NULL, NULL);
	kt_ok(kvc_seq_drop(seqs[0]));

	seqs[0] = kt_seq_new(&client, NULL);
	kt_append_numbers(client.writer, seqs[0], 1, PARENT_TOKENS, shadow[0], &n[0]);
	for (int i = 1; i < 4; i++)
		seqs[i] = fork_of(&client, seqs[0], "kv21/a", local);
	seqs[4] = fork_of(&client, seqs[3], "kv21/b", local); /* a fork of a fork */
	for (int i = 1; i < 5; i++) {
		memcpy(shadow[i], shadow[0], sizeof(shadow[0]));
		n[i] = PARENT_TOKENS;
	}
	assert_int_equal(kt_gauges(client.session).copied, before.copied); /* forks copy nothing */
	for (int i = 0; i < 5; i++)
		kt_append_numbers(client.writer, seqs[i], 1000 * (uint64_t)(i + 1), 1, shadow[i],
				  &n[i]);
	/* the filled slots of one block for each fork; the original goes on behind them */
	assert_int_equal(kt_gauges(client.session).copied,
			 before.copied + 4 * filled * KT_TOKEN_BYTES);
	for (int i = 0; i < 5; i++)
		kt_assert_tokens(seqs[i], shadow[i], n[i]);
	kt_ok(kvc_seq_drop(seqs[0])); /* parents first */
	kt_ok(kvc_seq_drop(seqs[3]));
	for (int i = 1; i < 5; i++) {
		if (i == 3)
			continue;
		kt_append_numbers(client.writer, seqs[i], 5000 * (uint64_t)i, 9, shadow[i], &n[i]);
		kt_assert_tokens(seqs[i], shadow[i], n[i]);
	}
	for (int i = 1; i < 5; i++)
		if (i != 3)
			kt_ok(kvc_seq_drop(seqs[i]));
	kt_ok(kvc_writer_free(client.writer)); /* keeps what local forks leave */
	kt_wait_gauges(client.session, &before);
	kvc_close(client.session);
}

static void test_fork_inside(void **state)
{
	(void)state;
	fork_inside_a_block(false);
}

static void test_local_fork_inside(void **state)
{
	(void)state;
	fork_inside_a_block(true);
}

/* ------------------------------------------------------------------------------------------------ */

static int setup(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("KV-01 a cache of other weights is told apart, of the same is there", test_weights),
	KT_TEST("KV-02 layouts with as many bytes differ, and the field is named", test_layouts),
	KT_TEST("KV-09 a name is there when all behind it is committed", test_not_before_commit),
	KT_TEST("KV-09 of two that publish one name at once one wins", test_one_winner),
	KT_TEST("KV-17 rollback by nothing, all and more than all", test_rollback_limits),
	KT_TEST("KV-16 several sequences of a writer roll back all or none", test_rollback_many),
	KT_TEST("KV-16 an operator's rollback of several moves all or none",
		test_operator_rollback_many),
	KT_TEST("KV-20 no block has two owners, none is lost", test_owners),
	KT_TEST("KV-21 forks inside a block have their own bytes", test_fork_inside),
	KT_TEST("KV-21 so have forks inside the session", test_local_fork_inside),
};

static const struct kt_role roles[] = {
	{"publish", role_publish}, {"race", role_race}, {NULL, NULL}};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), setup, teardown};

	kt_kid_main(argc, argv, roles);
	return kt_run(argc, argv, &group, 1);
}
