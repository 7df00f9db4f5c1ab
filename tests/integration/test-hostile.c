/*
 * Bytes that no library would send, on the command socket of a real daemon, in each state that a
 * session can be in: never attached, attached, ended, away after a restart of the core. Whatever
 * comes, it is answered with a status or dropped, nothing changes, the core is the process that
 * it was, its memory stays bounded, and a good client's next request works.
 */
#include <nanomsg/nn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/raw_client.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#ifdef __SANITIZE_ADDRESS__
#define GROWTH_KIB_MAX (384 * 1024) /* freed memory is held back */
#else
#define GROWTH_KIB_MAX (32 * 1024)
#endif
#define NESTED 10000
#define N_UNKNOWN 10000
#define PACKED_IDS 100000

static struct kt_daemon *daemon_;
static struct raw_client *good;
static pid_t core_pid;
static uint64_t n_objects;
static long peak_kib;
static uint8_t body[2 * KV_REQUEST_BYTES_MAX];

/* ---- bytes -------------------------------------------------------------------------------- */

static size_t put_varint(size_t at, uint64_t value)
{
	while (value >= 0x80) {
		body[at++] = (uint8_t)(value | 0x80);
		value >>= 7;
	}
	body[at++] = (uint8_t)value;
	return at;
}

static size_t put_tag(size_t at, uint32_t field, uint32_t wire_type)
{
	return put_varint(at, (uint64_t)field << 3 | wire_type);
}

/* A field of bytes that declares n of them. */
static size_t put_length(size_t at, uint32_t field, uint64_t n)
{
	return put_varint(put_tag(at, field, 2), n);
}

static size_t varint_bytes(uint64_t value)
{
	size_t n = 1;

	for (; value >= 0x80; value >>= 7)
		n++;
	return n;
}

/* depth fields 99, each in the one before; lengths are right. */
static size_t put_nested(size_t at, uint32_t field, unsigned depth)
{
	static uint32_t inner[NESTED + 1];

	inner[0] = 0;
	for (unsigned i = 1; i <= depth; i++)
		inner[i] = (uint32_t)(varint_bytes((uint64_t)field << 3) +
				      varint_bytes(inner[i - 1]) + inner[i - 1]);
	for (unsigned i = depth; i > 0; i--)
		at = put_length(at, field, inner[i - 1]);
	return at;
}

/* The head of a request; what follows is the case's own. */
static size_t put_head(struct raw_client *c)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	return raw_pack(c, &request, body);
}

static size_t put_noop(size_t at)
{
	return put_length(at, 10, 0);
}

/* A valid request with `show` of one target. */
static size_t put_show(struct raw_client *c, Kv__Wire__Target *target)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Show show = KV__WIRE__SHOW__INIT;

	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &show;
	show.source = target;
	return raw_pack(c, &request, body);
}

/* ---- cases -------------------------------------------------------------------------------- */

static size_t build_empty(struct raw_client *c)
{
	(void)c;
	return 0;
}

static size_t build_text(struct raw_client *c)
{
	(void)c;
	return (size_t)snprintf((char *)body, sizeof(body), "GET / HTTP/1.1\r\n\r\n");
}

static size_t build_version(struct raw_client *c, uint32_t version)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	request.version = version;
	return put_noop(raw_pack(c, &request, body));
}

static size_t build_version_2(struct raw_client *c)
{
	return build_version(c, KV_PROTOCOL_VERSION + 1);
}

static size_t build_version_max(struct raw_client *c)
{
	return build_version(c, UINT32_MAX);
}

static size_t build_no_command(struct raw_client *c)
{
	return put_head(c);
}

static size_t build_unknown_command(struct raw_client *c)
{
	return put_length(put_head(c), 99, 0);
}

static size_t build_token(struct raw_client *c, size_t n)
{
	static uint8_t token[64];
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	memcpy(token, c->token, sizeof(c->token));
	if (n == sizeof(c->token))
		token[n - 1] ^= 1;
	request.token = (ProtobufCBinaryData){n, token};
	return put_noop(raw_pack(c, &request, body));
}

static size_t build_wrong_token(struct raw_client *c)
{
	return build_token(c, sizeof(c->token));
}

static size_t build_short_token(struct raw_client *c)
{
	return build_token(c, sizeof(c->token) - 1);
}

static size_t build_long_token(struct raw_client *c)
{
	return build_token(c, sizeof(c->token) + 1);
}

static size_t build_wrong_session(struct raw_client *c)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	request.session = c->session + 1000;
	return put_noop(raw_pack(c, &request, body));
}

static size_t build_wrong_boot(struct raw_client *c)
{
	static uint8_t boot[16];
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	memcpy(boot, c->boot, sizeof(boot));
	boot[0] ^= 0x80;
	request.boot = (ProtobufCBinaryData){sizeof(boot), boot};
	return put_noop(raw_pack(c, &request, body));
}

static size_t build_short_boot(struct raw_client *c)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	request.boot = (ProtobufCBinaryData){1, c->boot};
	return put_noop(raw_pack(c, &request, body));
}

static size_t build_id_0(struct raw_client *c)
{
	/* a later field of the same number wins */
	return put_noop(put_varint(put_tag(put_head(c), 5, 0), 0));
}

static size_t build_acked_itself(struct raw_client *c)
{
	size_t at = put_head(c);

	return put_noop(put_varint(put_tag(at, 6, 0), c->next_id - 1));
}

static size_t build_acked_future(struct raw_client *c)
{
	return put_noop(put_varint(put_tag(put_head(c), 6, 0), UINT64_MAX));
}

static size_t build_length_32(struct raw_client *c)
{
	return put_length(put_noop(put_head(c)), 99, 0xffffffff);
}

static size_t build_length_31(struct raw_client *c)
{
	return put_length(put_noop(put_head(c)), 99, 0x7fffffff);
}

static size_t build_length_63(struct raw_client *c)
{
	return put_length(put_noop(put_head(c)), 99, UINT64_C(1) << 63);
}

static size_t build_token_length_32(struct raw_client *c)
{
	return put_length(put_head(c), 3, 0xffffffff);
}

static size_t build_one_byte_short(struct raw_client *c)
{
	return put_length(put_noop(put_head(c)), 99, 1);
}

static size_t build_field_0(struct raw_client *c)
{
	return put_varint(put_tag(put_noop(put_head(c)), 0, 0), 1);
}

static size_t build_long_varint(struct raw_client *c)
{
	size_t at = put_tag(put_head(c), 5, 0);

	memset(body + at, 0xff, 11);
	return at + 11;
}

static size_t build_wrong_wire_type(struct raw_client *c)
{
	return put_length(put_noop(put_head(c)), 1, 0); /* version, as bytes */
}

static size_t build_many_unknown(struct raw_client *c)
{
	size_t at = put_head(c);

	for (uint32_t i = 0; i < N_UNKNOWN; i++)
		at = put_varint(put_tag(at, 1000 + i, 0), i);
	return put_noop(at);
}

static size_t build_nested(struct raw_client *c)
{
	return put_noop(put_nested(put_head(c), 99, NESTED));
}

/* The unknown field of a target that is known. */
static size_t build_nested_target(struct raw_client *c)
{
	size_t head = put_head(c);
	size_t end = put_nested(head, 99, NESTED);
	size_t n = end - head;
	size_t n_target = varint_bytes(n) + 1 + n;
	uint8_t *inner = malloc(n);

	assert_non_null(inner);
	memcpy(inner, body + head, n);
	head = put_length(put_length(head, 29, n_target), 1, n);
	memcpy(body + head, inner, n);
	free(inner);
	return head + n;
}

static size_t build_nested_groups(struct raw_client *c)
{
	size_t at = put_head(c);

	for (unsigned i = 0; i < NESTED; i++)
		at = put_tag(at, 99, 3);
	for (unsigned i = 0; i < NESTED; i++)
		at = put_tag(at, 99, 4);
	return put_noop(at);
}

static size_t build_packed(struct raw_client *c, uint64_t declared, size_t there)
{
	size_t at = put_head(c);

	at = put_length(at, 24, varint_bytes(declared) + 1 + there);
	at = put_length(at, 1, declared);
	memset(body + at, 1, there);
	return at + there;
}

static size_t build_packed_28(struct raw_client *c)
{
	return build_packed(c, UINT64_C(1) << 28, 16);
}

static size_t build_packed_62(struct raw_client *c)
{
	return build_packed(c, UINT64_C(1) << 62, 16);
}

static size_t build_packed_many(struct raw_client *c)
{
	return build_packed(c, PACKED_IDS, PACKED_IDS);
}

/* As many parts as fit: each takes far more memory than bytes. */
static size_t build_parts(struct raw_client *c, uint32_t command, uint32_t field)
{
	const size_t n = 60000;
	size_t at = put_length(put_head(c), command, 2 * n);

	for (size_t i = 0; i < n; i++)
		at = put_length(at, field, 0);
	return at;
}

static size_t build_many_needs(struct raw_client *c)
{
	return build_parts(c, 18, 2);
}

static size_t build_many_snapshots(struct raw_client *c)
{
	return build_parts(c, 21, 1);
}

static size_t build_many_runs(struct raw_client *c)
{
	return build_parts(c, 19, 1);
}

static size_t build_no_parts(struct raw_client *c)
{
	return put_length(put_head(c), 21, 0);
}

static size_t build_snapshot_of_nothing(struct raw_client *c)
{
	return put_length(put_length(put_head(c), 21, 2), 1, 0);
}

static size_t build_layout_empty(struct raw_client *c)
{
	return put_length(put_head(c), 11, 0);
}

static size_t build_many_layers(struct raw_client *c)
{
	const size_t n = 60000;
	size_t at = put_head(c);

	at = put_length(at, 11, 1 + varint_bytes(2 * n) + 2 * n);
	at = put_length(at, 1, 2 * n);
	for (size_t i = 0; i < n; i++)
		at = put_length(at, 2, 0);
	return at;
}

static size_t build_junk(struct raw_client *c)
{
	size_t at = put_noop(put_head(c));

	memset(body + at, 0xff, 100 * 1024);
	return at + 100 * 1024;
}

/* The same command twice is one message: the parts of both. */
static size_t build_twice(struct raw_client *c)
{
	return put_noop(put_noop(put_head(c)));
}

/* Of two commands the later counts. */
static size_t build_two_commands(struct raw_client *c)
{
	return put_noop(build_snapshot_of_nothing(c));
}

static size_t build_name(struct raw_client *c, const char *name)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)name;
	return put_show(c, &target);
}

static size_t build_name_empty(struct raw_client *c)
{
	return build_name(c, "");
}

static size_t build_name_odd(struct raw_client *c)
{
	return build_name(c, "\x1b[2J\xff\xfe%n%s%n../../");
}

static size_t build_name_huge(struct raw_client *c)
{
	static char name[100 * 1024];

	memset(name, 'a', sizeof(name) - 1);
	return build_name(c, name);
}

/* A string that ends before its end. */
static size_t build_name_zero(struct raw_client *c)
{
	size_t at = build_name(c, "abcd");

	body[at - 3] = 0;
	return at;
}

static size_t build_no_target(struct raw_client *c)
{
	return put_show(c, NULL);
}

static size_t build_empty_target(struct raw_client *c)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	return put_show(c, &target);
}

static size_t build_target(struct raw_client *c, uint64_t id, uint32_t place)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	target.which_case = id ? KV__WIRE__TARGET__WHICH_ID : KV__WIRE__TARGET__WHICH_PLACE;
	if (id)
		target.id = id;
	else
		target.place = place;
	return put_show(c, &target);
}

static size_t build_target_id_max(struct raw_client *c)
{
	return build_target(c, UINT64_MAX, 0);
}

static size_t build_target_place_4096(struct raw_client *c)
{
	return build_target(c, 0, KV_PLACES_MAX);
}

static size_t build_target_place_max(struct raw_client *c)
{
	return build_target(c, 0, UINT32_MAX);
}

/* What comes back while the session is attached, and when there is none. */
static const struct hostile {
	const char *what;
	size_t (*build)(struct raw_client *c);
	int attached, without;
} cases[] = {
	{"empty", build_empty, KV_EVERSION, KV_EVERSION},
	{"text", build_text, KV_EPROTO, KV_EPROTO},
	{"version 2", build_version_2, KV_EVERSION, KV_EVERSION},
	{"version 2^32 - 1", build_version_max, KV_EVERSION, KV_EVERSION},
	{"no command", build_no_command, KV_EUNSUPPORTED, KV_ESESSION},
	{"unknown command", build_unknown_command, KV_EUNSUPPORTED, KV_ESESSION},
	{"wrong token", build_wrong_token, KV_ESESSION, KV_ESESSION},
	{"short token", build_short_token, KV_ESESSION, KV_ESESSION},
	{"long token", build_long_token, KV_ESESSION, KV_ESESSION},
	{"wrong session", build_wrong_session, KV_ESESSION, KV_ESESSION},
	{"wrong boot id", build_wrong_boot, KV_ERESTARTED, KV_ESESSION},
	{"short boot id", build_short_boot, KV_ERESTARTED, KV_ESESSION},
	{"request 0", build_id_0, KV_EPROTO, KV_ESESSION},
	{"acknowledges itself", build_acked_itself, KV_EPROTO, KV_ESESSION},
	{"acknowledges the future", build_acked_future, KV_EPROTO, KV_ESESSION},
	{"length 2^32 - 1", build_length_32, KV_EPROTO, KV_EPROTO},
	{"length 2^31 - 1", build_length_31, KV_EPROTO, KV_EPROTO},
	{"length 2^63", build_length_63, KV_EPROTO, KV_EPROTO},
	{"token of 2^32 - 1", build_token_length_32, KV_EPROTO, KV_EPROTO},
	{"one byte short", build_one_byte_short, KV_EPROTO, KV_EPROTO},
	{"field 0", build_field_0, KV_EPROTO, KV_EPROTO},
	{"number without end", build_long_varint, KV_EPROTO, KV_EPROTO},
	{"wrong wire type", build_wrong_wire_type, KV_EPROTO, KV_EPROTO},
	{"10,000 unknown fields", build_many_unknown, KV_OK, KV_ESESSION},
	{"nested 10,000 deep", build_nested, KV_OK, KV_ESESSION},
	{"target nested 10,000 deep", build_nested_target, KV_EINVAL, KV_ESESSION},
	{"groups nested 10,000 deep", build_nested_groups, KV_EPROTO, KV_EPROTO},
	{"2^28 numbers declared", build_packed_28, KV_EPROTO, KV_EPROTO},
	{"2^62 numbers declared", build_packed_62, KV_EPROTO, KV_EPROTO},
	{"100,000 numbers", build_packed_many, KV_ELIMIT, KV_ESESSION},
	{"60,000 needs", build_many_needs, KV_ENOTFOUND, KV_ESESSION},
	{"60,000 snapshots", build_many_snapshots, KV_ELIMIT, KV_ESESSION},
	{"60,000 runs", build_many_runs, KV_ELIMIT, KV_ESESSION},
	{"no snapshots", build_no_parts, KV_ELIMIT, KV_ESESSION},
	{"snapshot of nothing", build_snapshot_of_nothing, KV_EINVAL, KV_ESESSION},
	{"no layout", build_layout_empty, KV_EINVAL, KV_ESESSION},
	{"60,000 layers", build_many_layers, KV_EINVAL, KV_ESESSION},
	{"100 KiB of junk behind it", build_junk, KV_EPROTO, KV_EPROTO},
	{"the command twice", build_twice, KV_OK, KV_ESESSION},
	{"two commands", build_two_commands, KV_OK, KV_ESESSION},
	{"empty name", build_name_empty, KV_ENOTFOUND, KV_ESESSION},
	{"odd name", build_name_odd, KV_ENOTFOUND, KV_ESESSION},
	{"huge name", build_name_huge, KV_ENOTFOUND, KV_ESESSION},
	{"zero in a name", build_name_zero, KV_ENOTFOUND, KV_ESESSION},
	{"no target", build_no_target, KV_EINVAL, KV_ESESSION},
	{"empty target", build_empty_target, KV_EINVAL, KV_ESESSION},
	{"number 2^64 - 1", build_target_id_max, KV_ENOTFOUND, KV_ESESSION},
	{"place 4096", build_target_place_4096, KV_ENOTFOUND, KV_ESESSION},
	{"place 2^32 - 1", build_target_place_max, KV_ENOTFOUND, KV_ESESSION},
};

#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* ---- how it stands ------------------------------------------------------------------------ */

static long peak_of_core(void)
{
	char path[64], line[256];
	long kib = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", core_pid);
	file = fopen(path, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

static Kv__Wire__Reply *ask_status(void)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Status status = KV__WIRE__STATUS__INIT;
	Kv__Wire__Reply *reply;

	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &status;
	reply = raw_call(good, &request);
	assert_int_equal(reply->status, KV_OK);
	assert_int_equal(reply->result_case, KV__WIRE__REPLY__RESULT_STATUS_RESULT);
	return reply;
}

static uint64_t count_objects(void)
{
	Kv__Wire__Reply *reply = ask_status();
	const Kv__Wire__StatusResult *r = reply->status_result;
	uint64_t n = (uint64_t)r->n_sequences + r->n_snapshots + r->n_layouts + r->n_arenas;

	assert_int_equal(r->pool_live_bytes + r->pool_reserved_bytes + r->pool_cached_bytes +
				 r->pool_quarantined_bytes + r->pool_free_bytes,
			 r->pool_total_bytes);
	kv__wire__reply__free_unpacked(reply, NULL);
	return n;
}

static int start(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

static int before(void **state)
{
	(void)state;
	core_pid = kt_daemon_core(daemon_);
	good = raw_attach(kt_daemon_dir(daemon_));
	n_objects = count_objects();
	peak_kib = peak_of_core();
	return 0;
}

/* Each test ends here. */
static int after(void **state)
{
	(void)state;
	assert_int_equal(kt_daemon_core(daemon_), core_pid);
	assert_int_equal(count_objects(), n_objects);
	assert_in_range(peak_of_core() - peak_kib, 0, GROWTH_KIB_MAX);
	raw_free(good);
	return 0;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void run_cases(struct raw_client *c, bool attached)
{
	int s = raw_socket(kt_daemon_dir(daemon_), 0);
	unsigned n_wrong = 0;

	for (size_t i = 0; i < N_CASES; i++) {
		size_t n = cases[i].build(c);
		int wanted = attached ? cases[i].attached : cases[i].without;
		int got = raw_say(s, body, n);

		if (got != wanted) {
			printf("# %s: status %d, not %d\n", cases[i].what, got, wanted);
			n_wrong++;
		}
		assert_int_equal(raw_noop(good), KV_OK);
		if (attached) {
			c->acked = c->next_id - 1;
			assert_int_equal(raw_noop(c), KV_OK);
		}
	}
	nn_close(s);
	assert_int_equal(n_wrong, 0);
}

static void test_never_attached(void **state)
{
	struct raw_client nobody = {.session = 1000, .next_id = 1};

	(void)state;
	run_cases(&nobody, false);
}

static void test_attached(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));

	(void)state;
	run_cases(c, true);
	raw_free(c);
}

static void test_ended(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));

	(void)state;
	raw_bye(c);
	run_cases(c, false);
	assert_int_equal(raw_attach_again(c), KV_ESESSION);
	raw_free(c);
}

/* The core knows the session, but its client has not come back: nothing is run. */
static void test_away(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	int s = raw_socket(kt_daemon_dir(daemon_), 0);

	(void)state;
	assert_int_equal(kt_daemon_kill_core(daemon_), 0);
	core_pid = kt_daemon_core(daemon_);
	assert_int_equal(raw_attach_again(good), KV_OK);
	peak_kib = peak_of_core();
	for (size_t i = 0; i < N_CASES; i++) {
		int wanted = cases[i].attached;
		size_t n;

		/* the boot id of this life: only that the client is away refuses it */
		memcpy(c->boot, good->boot, sizeof(c->boot));
		n = cases[i].build(c);
		if (wanted == KV_OK || wanted == KV_EINVAL || wanted == KV_ENOTFOUND ||
		    wanted == KV_ELIMIT)
			wanted = KV_ERESTARTED;
		assert_int_equal(raw_say(s, body, n), wanted);
		assert_int_equal(raw_noop(good), KV_OK);
	}
	nn_close(s);
	assert_int_equal(raw_attach_again(c), KV_OK);
	c->acked = c->next_id - 1;
	assert_int_equal(raw_noop(c), KV_OK);
	raw_free(c);
}

/* A whole request with every kind of field; each beginning of it is refused. */
static void test_cut(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	int s = raw_socket(kt_daemon_dir(daemon_), 0);
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__WriterNew writer_new = KV__WIRE__WRITER_NEW__INIT;
	Kv__Wire__Fork fork_ = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	size_t n;

	(void)state;
	request.command_case = KV__WIRE__REQUEST__COMMAND_WRITER_NEW;
	request.writer_new = &writer_new;
	assert_int_equal(raw_call_status(c, &request), KV_OK);
	kv__wire__request__init(&request);
	request.deadline_ms = 5000;
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &fork_;
	fork_.n_ones = 1;
	fork_.ones = ones;
	one.source = &target;
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)"nobody/has/this";
	one.name = (char *)"a-fork";
	one.max_tokens = 1 << 20;
	one.writer = 0;
	n = raw_pack(c, &request, body);
	for (size_t cut = 0; cut < n; cut++) {
		int status = raw_say(s, body, cut);

		assert_true(status == KV_EPROTO || status == KV_EVERSION || status == KV_ESESSION ||
			    status == KV_EUNSUPPORTED || status == KV_ERESTARTED);
	}
	assert_int_equal(raw_say(s, body, n), KV_ENOTFOUND);
	nn_close(s);
	raw_free(c);
}

static size_t padded_noop(struct raw_client *c, size_t n)
{
	size_t at = put_noop(put_head(c));
	size_t left = n - at - 3; /* two bytes of tag, the length */

	left -= varint_bytes(left) - 1;
	at = put_length(at, 99, left);
	memset(body + at, 0, n - at);
	return n;
}

static void test_size(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	int s = raw_socket(kt_daemon_dir(daemon_), 0);
	int ms = 200;
	uint8_t *reply;

	(void)state;
	assert_int_equal(raw_say(s, body, padded_noop(c, KV_REQUEST_BYTES_MAX)), KV_OK);
	assert_int_equal(nn_setsockopt(s, NN_SOL_SOCKET, NN_RCVTIMEO, &ms, sizeof(ms)), 0);
	assert_int_equal(nn_send(s, body, padded_noop(c, KV_REQUEST_BYTES_MAX + 1), 0),
			 KV_REQUEST_BYTES_MAX + 1);
	assert_true(nn_recv(s, &reply, NN_MSG, 0) < 0);
	assert_int_equal(raw_noop(good), KV_OK);
	nn_close(s); /* it would send it again for ever */
	c->acked = c->next_id - 1;
	assert_int_equal(raw_noop(c), KV_OK);
	raw_free(c);
}

static int noop_with(struct raw_client *c, uint64_t id, uint64_t acked)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Noop noop = KV__WIRE__NOOP__INIT;

	request.command_case = KV__WIRE__REQUEST__COMMAND_NOOP;
	request.noop = &noop;
	request.id = id;
	request.acked = acked;
	return raw_call_status(c, &request);
}

static void test_ids(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));

	(void)state;
	assert_int_equal(noop_with(c, 10, 0), KV_OK);
	assert_int_equal(noop_with(c, 3, 0), KV_OK); /* threads overtake one another */
	assert_int_equal(noop_with(c, 3, 0), KV_OK); /* from the store */
	assert_int_equal(noop_with(c, 11, 10), KV_OK);
	assert_int_equal(noop_with(c, 3, 0), KV_ESTALE);
	assert_int_equal(noop_with(c, 7, 0), KV_ESTALE); /* never run, and never will be */
	assert_int_equal(noop_with(c, 10, 0), KV_ESTALE);
	assert_int_equal(noop_with(c, 11, 0), KV_OK); /* what was acknowledged stays so */
	assert_int_equal(noop_with(c, 12, 11), KV_OK);
	for (uint64_t i = 1; i < KV_IN_FLIGHT_MAX; i++)
		assert_int_equal(noop_with(c, 12 + i, 11), KV_OK);
	assert_int_equal(noop_with(c, 12 + KV_IN_FLIGHT_MAX, 11), KV_ELIMIT);
	assert_int_equal(noop_with(c, 12, 11), KV_OK); /* still answered from the store */
	assert_int_equal(noop_with(c, 12 + KV_IN_FLIGHT_MAX, 12), KV_OK);
	assert_int_equal(noop_with(c, UINT64_MAX, UINT64_MAX - 1), KV_OK);
	assert_int_equal(noop_with(c, UINT64_MAX, UINT64_MAX - 1), KV_OK);
	assert_int_equal(noop_with(c, 500, 0), KV_ESTALE);
	raw_free(c);
}

/* One session's numbers mean nothing in another's name. */
static void test_other_session(void **state)
{
	struct raw_client *a = raw_attach(kt_daemon_dir(daemon_));
	struct raw_client *b = raw_attach(kt_daemon_dir(daemon_));
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Noop noop = KV__WIRE__NOOP__INIT;

	(void)state;
	assert_int_equal(noop_with(a, 5, 4), KV_OK);
	request.command_case = KV__WIRE__REQUEST__COMMAND_NOOP;
	request.noop = &noop;
	request.session = a->session;
	request.id = 5;
	assert_int_equal(raw_say(b->socket, body, raw_pack(b, &request, body)), KV_ESESSION);
	assert_int_equal(noop_with(b, 1, 0), KV_OK);
	raw_free(a);
	raw_free(b);
}

/* 1024 layers with pieces of 256 MiB: a block has 2^39 bytes. */
static uint64_t register_huge_layout(struct raw_client *c)
{
	static uint8_t fingerprint[32] = {1};
	static Kv__Wire__Layer layers[KV_LAYERS_MAX];
	static Kv__Wire__Layer *layer_list[KV_LAYERS_MAX];
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__LayoutRegister register_ = KV__WIRE__LAYOUT_REGISTER__INIT;
	Kv__Wire__Layout layout = KV__WIRE__LAYOUT__INIT;
	Kv__Wire__Reply *reply;
	uint64_t id;

	for (size_t i = 0; i < KV_LAYERS_MAX; i++) {
		kv__wire__layer__init(&layers[i]);
		layers[i].n_query_groups = 64;
		layers[i].k_width = layers[i].v_width = KV_WIDTH_MAX;
		layer_list[i] = &layers[i];
	}
	layout.fingerprint = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	layout.n_layers = KV_LAYERS_MAX;
	layout.layers = layer_list;
	layout.dtype = layout.k_format = layout.v_format = 1;
	layout.block_tokens = 128;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_REGISTER;
	request.layout_register = &register_;
	register_.layout = &layout;
	reply = raw_call(c, &request);
	assert_int_equal(reply->status, KV_OK);
	id = reply->layout->layout_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

/* Numbers of blocks whose bytes, counted in 64 bits, are none. */
static void test_huge_needs(void **state)
{
	static const uint32_t n_blocks[] = {1, 1u << 25, (1u << 25) + 1, (1u << 26) - 1};
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	uint64_t layout_id = register_huge_layout(c);

	(void)state;
	n_objects++; /* the layout stays */
	for (size_t i = 0; i < sizeof(n_blocks) / sizeof(n_blocks[0]); i++) {
		Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
		Kv__Wire__Reserve reserve = KV__WIRE__RESERVE__INIT;
		Kv__Wire__Need need = KV__WIRE__NEED__INIT;
		Kv__Wire__Need *needs[4] = {&need, &need, &need, &need};

		request.command_case = KV__WIRE__REQUEST__COMMAND_RESERVE;
		request.reserve = &reserve;
		reserve.layout_id = layout_id;
		reserve.n_needs = 1 + i;
		reserve.needs = needs;
		need.n_blocks = n_blocks[i];
		assert_int_equal(raw_call_status(c, &request), KV_EPOOL);
	}
	raw_free(c);
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, before, after)

static const struct CMUnitTest tests[] = {
	TEST("hostile requests of nobody's session are refused", test_never_attached),
	TEST("hostile requests of an attached session are refused", test_attached),
	TEST("hostile requests of an ended session are refused", test_ended),
	TEST("hostile requests of a session that has not come back are refused", test_away),
	TEST("a request cut short at any byte is refused", test_cut),
	TEST("a request of 128 KiB is served, and one of a byte more is not", test_size),
	TEST("numbers of requests: out of order, below the window, too many", test_ids),
	TEST("a token opens its own session only", test_other_session),
	TEST("blocks whose bytes do not fit in 64 bits are refused", test_huge_needs),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
