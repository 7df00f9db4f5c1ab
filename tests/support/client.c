/* Clients for tests: sessions, tokens with known bytes, an operator's commands, gauges. */
#include "tests/support/client.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/rpc.h"
#include "client/seq.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define GAUGES_MS 10000

static void say_error(const char *what)
{
	fprintf(stderr, "%s: %s: %s\n", what, kvc_status_name(kvc_error()), kvc_error_text());
}

void kt_ok(int rc)
{
	if (rc)
		say_error("failed");
	assert_int_equal(rc, 0);
}

void kt_fails(int rc, int status)
{
	if (rc == -1 && kvc_error() != status)
		say_error("failed otherwise");
	assert_int_equal(rc, -1);
	assert_int_equal(kvc_error(), status);
}

void kt_fails_null(const void *pointer, int status)
{
	kt_fails(pointer ? 0 : -1, status);
}

/* ---- sessions ----------------------------------------------------------------------------- */

kvc_layout *kt_layout(kvc_session *session, uint8_t fingerprint)
{
	const struct kvc_layer layers[2] = {{2, 16, 8, 0}, {2, 16, 8, 0}};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {fingerprint},
					     .n_layers = 2,
					     .layers = layers,
					     .dtype = KVC_F32,
					     .block_tokens = KT_BLOCK_TOKENS};

	return kvc_layout_register(session, &options);
}

int kt_client_try(struct kt_client *client, const char *dir, uint32_t deadline_ms)
{
	struct kvc_session_options options = {
		.size = sizeof(options), .runtime_dir = dir, .deadline_ms = deadline_ms};

	client->session = kvc_open(&options);
	if (!client->session)
		return -1;
	client->layout = kt_layout(client->session, 1);
	client->writer = client->layout ? kvc_writer_new(client->session) : NULL;
	if (client->writer)
		return 0;
	kvc_close(client->session);
	client->session = NULL;
	return -1;
}

struct kt_client kt_client_open_ms(const char *dir, uint32_t deadline_ms)
{
	struct kt_client client;

	kt_ok(kt_client_try(&client, dir, deadline_ms));
	return client;
}

struct kt_client kt_client_open(const char *dir)
{
	return kt_client_open_ms(dir, 0);
}

/* ---- tokens ------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x7fb5d329728ea185);
	x ^= x >> 27;
	x *= UINT64_C(0x81dadef4bc2dd44d);
	return x ^ x >> 33;
}

static void fill_row(char *row, size_t bytes, uint64_t token, uint32_t layer, uint32_t side)
{
	uint64_t value = mix(token * 64 + layer * 2 + side + 1);

	for (size_t i = 0; i < bytes; i++)
		row[i] = (char)(value >> i % 8 * 8 ^ i);
}

static size_t side_bytes(const kvc_seq *seq, uint32_t layer, uint32_t side)
{
	const struct kv_layout *fields = seq->layout->fields;

	return fields->regions[fields->layer_maps[layer].first_region + side].row_bytes;
}

kvc_seq *kt_seq_new(const struct kt_client *client, const char *name)
{
	const struct kvc_seq_options options = {
		.size = sizeof(options), .name = name, .max_tokens = 1u << 20};
	kvc_seq *seq = kvc_seq_new(client->writer, client->layout, &options);

	kt_ok(seq ? 0 : -1);
	return seq;
}

static int write_tokens(kvc_seq *seq, const uint64_t *tokens, uint64_t n)
{
	char rows[2][KT_APPEND_MAX * 128];
	int rc = 0;

	for (uint32_t layer = 0; rc == 0 && layer < 2; layer++) {
		for (uint32_t side = 0; side < 2; side++) {
			size_t bytes = side_bytes(seq, layer, side);

			for (uint64_t t = 0; t < n; t++)
				fill_row(rows[side] + t * bytes, bytes, tokens[t], layer, side);
		}
		rc = kvc_write(seq, layer, rows[0], rows[1]);
	}
	return rc;
}

void kt_write_numbers(kvc_seq *seq, uint64_t first, uint64_t n)
{
	uint64_t tokens[KT_APPEND_MAX];

	assert_true(n <= KT_APPEND_MAX);
	for (uint64_t i = 0; i < n; i++)
		tokens[i] = first + i;
	kt_ok(write_tokens(seq, tokens, n));
}

int kt_append_try(kvc_writer *writer, kvc_seq *seq, const uint64_t *tokens, uint64_t n)
{
	assert_true(n > 0 && n <= KT_APPEND_MAX);
	if (kvc_append_begin(seq, n)) {
		if (kvc_error() != KVC_ERESERVE || kvc_reserve(seq, n) || kvc_append_begin(seq, n))
			return -1;
	}
	if (write_tokens(seq, tokens, n))
		return -1;
	return kvc_commit(writer, &seq, 1);
}

void kt_append(kvc_writer *writer, kvc_seq *seq, const uint64_t *tokens, uint64_t n)
{
	kt_ok(kt_append_try(writer, seq, tokens, n));
}

void kt_append_numbers(kvc_writer *writer, kvc_seq *seq, uint64_t first, uint64_t n,
		       uint64_t *shadow, uint64_t *length)
{
	uint64_t tokens[KT_APPEND_MAX];

	while (n) {
		uint64_t now = n < KT_APPEND_MAX ? n : KT_APPEND_MAX;

		for (uint64_t i = 0; i < now; i++)
			tokens[i] = first + i;
		kt_append(writer, seq, tokens, now);
		if (shadow) {
			memcpy(shadow + *length, tokens, now * sizeof(tokens[0]));
			*length += now;
		}
		first += now;
		n -= now;
	}
}

static const char *run_differs(const struct kvc_run *run, uint32_t layer, const uint64_t *tokens)
{
	static _Thread_local char text[128];
	const char *rows[2] = {run->k, run->v};
	const size_t strides[2] = {run->k_row_bytes, run->v_row_bytes};
	char expected[256];

	for (uint64_t t = 0; t < run->n_tokens; t++)
		for (uint32_t side = 0; side < 2; side++) {
			assert_true(strides[side] <= sizeof(expected));
			fill_row(expected, strides[side], tokens[run->first_token + t], layer,
				 side);
			if (memcmp(rows[side] + t * strides[side], expected, strides[side]) == 0)
				continue;
			snprintf(text, sizeof(text), "%c of token %llu in layer %u is wrong",
				 side ? 'V' : 'K', (unsigned long long)(run->first_token + t),
				 layer);
			return text;
		}
	return NULL;
}

const char *kt_seq_differs(kvc_seq *seq, const uint64_t *tokens, uint64_t n)
{
	static _Thread_local char text[128];
	const char *why = NULL;

	if (kvc_length(seq) != n) {
		snprintf(text, sizeof(text), "%llu tokens, not %llu",
			 (unsigned long long)kvc_length(seq), (unsigned long long)n);
		return text;
	}
	for (uint32_t layer = 0; !why && layer < 2; layer++) {
		int64_t n_runs = kvc_view_runs(seq, layer, NULL, 0);
		struct kvc_run *runs;

		if (n_runs < 0)
			return kvc_error_text();
		runs = calloc((size_t)n_runs + 1, sizeof(*runs));
		assert_non_null(runs);
		kvc_view_runs(seq, layer, runs, (size_t)n_runs);
		for (int64_t i = 0; !why && i < n_runs; i++)
			why = run_differs(&runs[i], layer, tokens);
		free(runs);
	}
	return why;
}

void kt_assert_tokens(kvc_seq *seq, const uint64_t *tokens, uint64_t n)
{
	const char *why = kt_seq_differs(seq, tokens, n);

	if (why)
		fprintf(stderr, "%s\n", why);
	assert_null(why);
}

static bool guess(const char *row, size_t bytes, uint64_t first, uint64_t stride,
		  uint64_t n_choices, uint64_t *token)
{
	char expected[256];

	for (uint64_t k = 0; k < n_choices; k++) {
		*token = first + k * stride;
		fill_row(expected, bytes, *token, 0, 0);
		if (memcmp(row, expected, bytes) == 0)
			return true;
	}
	return false;
}

bool kt_seq_guess(kvc_seq *seq, uint64_t stride, uint64_t n_choices, uint64_t *tokens)
{
	int64_t n_runs = kvc_view_runs(seq, 0, NULL, 0);
	struct kvc_run *runs = calloc((size_t)n_runs + 1, sizeof(*runs));
	bool all = n_runs >= 0 && runs;

	if (all)
		kvc_view_runs(seq, 0, runs, (size_t)n_runs);
	for (int64_t i = 0; all && i < n_runs; i++)
		for (uint64_t t = 0; all && t < runs[i].n_tokens; t++)
			all = guess((const char *)runs[i].k + t * runs[i].k_row_bytes,
				    runs[i].k_row_bytes, runs[i].first_token + t, stride, n_choices,
				    &tokens[runs[i].first_token + t]);
	free(runs);
	return all;
}

/* ---- an operator's commands --------------------------------------------------------------- */

#define TARGETS_MAX 64

static void set_target(Kv__Wire__Target *target, const char *name)
{
	kv__wire__target__init(target);
	target->which_case = KV__WIRE__TARGET__WHICH_NAME;
	target->name = (char *)(uintptr_t)name;
}

static int do_request(kvc_session *session, Kv__Wire__Request *request, uint32_t deadline_ms)
{
	Kv__Wire__Reply *reply;

	if (session_call(session, request, &reply, deadline_ms))
		return -1;
	rpc_reply_free(reply);
	return 0;
}

int kt_snapshot_by_name(kvc_session *session, const char *const *sources, const char *const *names,
			size_t n, uint32_t deadline_ms)
{
	Kv__Wire__Request request;
	Kv__Wire__Snapshot command = KV__WIRE__SNAPSHOT__INIT;
	Kv__Wire__SnapshotOne ones[TARGETS_MAX];
	Kv__Wire__SnapshotOne *at[TARGETS_MAX];
	Kv__Wire__Target targets[TARGETS_MAX];

	assert_true(n <= TARGETS_MAX);
	for (size_t i = 0; i < n; i++) {
		kv__wire__snapshot_one__init(&ones[i]);
		set_target(&targets[i], sources[i]);
		ones[i].source = &targets[i];
		ones[i].name = (char *)(uintptr_t)names[i];
		at[i] = &ones[i];
	}
	command.ones = at;
	command.n_ones = n;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = &command;
	return do_request(session, &request, deadline_ms);
}

int kt_rollback_by_name(kvc_session *session, const char *const *sources, const uint64_t *n_tokens,
			int mode, size_t n, uint32_t deadline_ms)
{
	Kv__Wire__Request request;
	Kv__Wire__Rollback command = KV__WIRE__ROLLBACK__INIT;
	Kv__Wire__RollbackOne ones[TARGETS_MAX];
	Kv__Wire__RollbackOne *at[TARGETS_MAX];
	Kv__Wire__Target targets[TARGETS_MAX];

	assert_true(n <= TARGETS_MAX);
	for (size_t i = 0; i < n; i++) {
		kv__wire__rollback_one__init(&ones[i]);
		set_target(&targets[i], sources[i]);
		ones[i].source = &targets[i];
		ones[i].mode = (uint32_t)mode;
		ones[i].n_tokens = n_tokens[i];
		at[i] = &ones[i];
	}
	command.ones = at;
	command.n_ones = n;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_ROLLBACK;
	request.rollback = &command;
	return do_request(session, &request, deadline_ms);
}

int kt_show(kvc_session *session, const char *name, uint64_t *length_tokens)
{
	Kv__Wire__Request request;
	Kv__Wire__Show command = KV__WIRE__SHOW__INIT;
	Kv__Wire__Target target;
	Kv__Wire__Reply *reply;

	set_target(&target, name);
	command.source = &target;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &command;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_OBJECTS);
	if (!reply)
		return -1;
	assert_int_equal(reply->objects->n_objects, 1);
	if (length_tokens)
		*length_tokens = reply->objects->objects[0]->length_tokens;
	rpc_reply_free(reply);
	return 0;
}

int kt_session_end(kvc_session *session, uint64_t id)
{
	Kv__Wire__Request request;
	Kv__Wire__SessionEnd command = KV__WIRE__SESSION_END__INIT;

	command.session = id;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SESSION_END;
	request.session_end = &command;
	return do_request(session, &request, 0);
}

size_t kt_sessions(kvc_session *session, uint64_t *ids, size_t max)
{
	Kv__Wire__Request request;
	Kv__Wire__SessionList command = KV__WIRE__SESSION_LIST__INIT;
	Kv__Wire__Reply *reply;
	size_t n = 0;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SESSION_LIST;
	request.session_list = &command;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_SESSIONS);
	kt_ok(reply ? 0 : -1);
	for (size_t i = 0; i < reply->sessions->n_sessions; i++)
		if (reply->sessions->sessions[i]->state < 3 && n < max)
			ids[n++] = reply->sessions->sessions[i]->id;
	rpc_reply_free(reply);
	return n;
}

/* ---- gauges ------------------------------------------------------------------------------- */

Kv__Wire__Reply *kt_status(kvc_session *session)
{
	Kv__Wire__Request request;
	Kv__Wire__Status command = KV__WIRE__STATUS__INIT;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &command;
	return rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_STATUS_RESULT);
}

int kt_gauges_try(kvc_session *session, struct kt_gauges *gauges)
{
	Kv__Wire__Reply *reply = kt_status(session);
	const Kv__Wire__StatusResult *s;

	if (!reply)
		return -1;
	s = reply->status_result;
	*gauges = (struct kt_gauges){
		.total = s->pool_total_bytes,
		.live = s->pool_live_bytes,
		.reserved = s->pool_reserved_bytes,
		.cached = s->pool_cached_bytes,
		.quarantined = s->pool_quarantined_bytes,
		.free = s->pool_free_bytes,
		.used = s->used_bytes,
		.control = s->control_bytes,
		.copied = s->n_copied_bytes,
		.n_sessions = s->n_sessions,
		.n_sequences = s->n_sequences,
		.n_snapshots = s->n_snapshots,
		.n_arenas = s->n_arenas,
		.n_core_restarts = s->n_core_restarts,
		.core_pid = (pid_t)s->core_pid,
	};
	gauges->has_start = s->start != NULL;
	if (s->start) {
		gauges->locked = s->start->locked_bytes;
		gauges->to_lock = s->start->to_lock_bytes;
		gauges->verified = s->start->verified_bytes;
		gauges->to_verify = s->start->to_verify_bytes;
		gauges->n_bad = s->start->n_bad_blocks;
	}
	rpc_reply_free(reply);
	return 0;
}

struct kt_gauges kt_gauges(kvc_session *session)
{
	struct kt_gauges g;

	kt_ok(kt_gauges_try(session, &g));
	assert_int_equal(g.live + g.reserved + g.cached + g.quarantined + g.free, g.total);
	return g;
}

struct back {
	kvc_session *session;
	const struct kt_gauges *before;
	struct kt_gauges now;
};

static bool are_back(void *arg)
{
	struct back *back = arg;
	const struct kt_gauges *now = &back->now, *before = back->before;

	back->now = kt_gauges(back->session);
	return now->free == before->free && now->cached == before->cached &&
	       now->quarantined == before->quarantined && now->n_sessions == before->n_sessions &&
	       now->n_sequences == before->n_sequences && now->n_snapshots == before->n_snapshots;
}

void kt_wait_gauges(kvc_session *session, const struct kt_gauges *before)
{
	struct back back = {.session = session, .before = before};

	if (kt_wait_until(are_back, &back, GAUGES_MS))
		return;
	fprintf(stderr,
		"free %llu of %llu, cached %llu of %llu, quarantined %llu, sessions %u of %u\n",
		(unsigned long long)back.now.free, (unsigned long long)before->free,
		(unsigned long long)back.now.cached, (unsigned long long)before->cached,
		(unsigned long long)back.now.quarantined, back.now.n_sessions, before->n_sessions);
	assert_int_equal(back.now.free, before->free);
	assert_int_equal(back.now.cached, before->cached);
	assert_int_equal(back.now.quarantined, before->quarantined);
	assert_int_equal(back.now.n_sessions, before->n_sessions);
	assert_int_equal(back.now.n_sequences, before->n_sequences);
	assert_int_equal(back.now.n_snapshots, before->n_snapshots);
}

size_t kt_count_fds(pid_t pid)
{
	char path[64];
	size_t n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}
