/*
 * Version 1 of everything that has a number or a byte order outside of one process: messages,
 * statuses, layout hashes, digests. The bytes in tests/data/frames were made when it was fixed;
 * a change that does not give and take them any more breaks programs that are in use.
 *
 * `test-frames --write FOLDER` makes the files (for a new kind of message; an old one is never
 * written again).
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/kvcache.h"
#include "daemon/session.h"
#include "proto/digest.h"
#include "proto/layout.h"
#include "proto/layout_wire.h"
#include "tests/support/fake_links.h"
#include "tests/support/frames.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

/* ---- files -------------------------------------------------------------------------------- */

static void path_of(const char *folder, const struct frame *frame, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%s/%s.bin", folder, frame->name);
}

static size_t read_frame(const struct frame *frame, uint8_t bytes[KV_ATTACH_BYTES_MAX])
{
	const char *srcdir = getenv("top_srcdir");
	char folder[PATH_MAX - 64], path[PATH_MAX];
	FILE *file;
	size_t n;

	snprintf(folder, sizeof(folder), "%s/tests/data/frames", srcdir ? srcdir : ".");
	path_of(folder, frame, path);
	file = fopen(path, "re");
	if (!file)
		fail_msg("cannot open %s: %s", path, strerror(errno));
	n = fread(bytes, 1, KV_ATTACH_BYTES_MAX, file);
	fclose(file);
	return n;
}

static int write_frames(const char *folder)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	char path[PATH_MAX];

	for (size_t i = 0; i < n_frames; i++) {
		size_t n = frames[i].pack(bytes);
		FILE *file;

		path_of(folder, &frames[i], path);
		file = fopen(path, "wxe");
		if (!file && errno == EEXIST)
			continue;
		if (!file || fwrite(bytes, 1, n, file) != n || fclose(file)) {
			perror(path);
			return 1;
		}
		printf("%s\n", path);
	}
	return 0;
}

/* ---- messages ----------------------------------------------------------------------------- */

static const ProtobufCMessageDescriptor *descriptor_of(enum frame_kind kind)
{
	switch (kind) {
	case FRAME_REQUEST: return &kv__wire__request__descriptor;
	case FRAME_ATTACH: return &kv__wire__attach_request__descriptor;
	case FRAME_REPLY: return &kv__wire__reply__descriptor;
	case FRAME_ATTACH_REPLY: return &kv__wire__attach_reply__descriptor;
	case FRAME_EVENT: return &kv__wire__event__descriptor;
	}
	return NULL;
}

static int which_of(enum frame_kind kind, const ProtobufCMessage *message)
{
	switch (kind) {
	case FRAME_REQUEST: return (int)((const Kv__Wire__Request *)message)->command_case;
	case FRAME_ATTACH: return (int)((const Kv__Wire__AttachRequest *)message)->what_case;
	case FRAME_REPLY: return (int)((const Kv__Wire__Reply *)message)->result_case;
	case FRAME_ATTACH_REPLY: return (int)((const Kv__Wire__AttachReply *)message)->what_case;
	case FRAME_EVENT: return (int)((const Kv__Wire__Event *)message)->kind;
	}
	return -1;
}

static void test_bytes(void **state)
{
	uint8_t golden[KV_ATTACH_BYTES_MAX], bytes[KV_ATTACH_BYTES_MAX];

	(void)state;
	for (size_t i = 0; i < n_frames; i++) {
		size_t n = read_frame(&frames[i], golden);

		if (frames[i].pack(bytes) != n || memcmp(bytes, golden, n) != 0)
			fail_msg("%s is packed otherwise than in version 1", frames[i].name);
	}
}

static void test_decode(void **state)
{
	uint8_t golden[KV_ATTACH_BYTES_MAX], bytes[KV_ATTACH_BYTES_MAX];

	(void)state;
	for (size_t i = 0; i < n_frames; i++) {
		size_t n = read_frame(&frames[i], golden);
		ProtobufCMessage *message = protobuf_c_message_unpack(descriptor_of(frames[i].kind),
								      NULL, n, golden);

		if (!message)
			fail_msg("%s cannot be read", frames[i].name);
		assert_int_equal(which_of(frames[i].kind, message), frames[i].which);
		/* no field of it is one that this version does not know */
		assert_int_equal(message->n_unknown_fields, 0);
		assert_int_equal(protobuf_c_message_pack(message, bytes), n);
		assert_memory_equal(bytes, golden, n);
		protobuf_c_message_free_unpacked(message, NULL);
	}
}

/* ---- the conversation --------------------------------------------------------------------- */

/* A user that this process never is: what is for root and the daemon's own user is refused. */
#define UID 65533u

static struct fake_core *new_core(struct fake_client **client, const char *dir)
{
	struct settings settings;
	struct fake_core *f;

	settings_default(&settings);
	settings.pool_bytes = 4u << 20;
	settings.arena_bytes = 1u << 20;
	settings.huge = settings.mlock = SETTINGS_NO;
	snprintf(settings.disk_dir, sizeof(settings.disk_dir), "%s/store", dir);
	settings.disk_bytes = 4u << 20;
	f = fake_core_new(&settings);
	*client = fake_client_new(f, UID, NULL);
	assert_non_null(*client);
	assert_int_equal((*client)->session, FRAME_SESSION);
	memset(session_find(f->core, FRAME_SESSION)->token, FRAME_TOKEN, 16);
	return f;
}

static Kv__Wire__Reply *say(struct fake_core *f, const void *bytes, size_t n)
{
	uint64_t before = f->n_replies;
	int64_t until = kt_now_ms() + kt_scale_ms(5000);

	core_request(f->core, "route", 5, bytes, n);
	while (f->n_replies == before && kt_now_ms() < until)
		loop_once(f->env.loop, 1);
	assert_int_equal(f->n_replies, before + 1);
	return fake_reply(f);
}

static void test_conversation(void **state)
{
	uint8_t golden[KV_ATTACH_BYTES_MAX];
	struct fake_client *c;
	char *dir = kt_tmpdir_new();
	struct fake_core *f = new_core(&c, dir);
	unsigned n_wrong = 0;

	(void)state;
	for (size_t i = 0; i < n_frames; i++) {
		const struct frame *frame = &frames[i];
		size_t n = read_frame(frame, golden);
		Kv__Wire__Reply *reply;

		if (frame->kind != FRAME_REQUEST)
			continue;
		if (frame->next_id)
			f->core->next_id = frame->next_id;
		reply = say(f, golden, n);
		if (reply->status != (uint32_t)frame->status ||
		    (int)reply->result_case != frame->result)
			n_wrong += printf("# %s is answered with status %u (%s), result %d\n",
					  frame->name, reply->status, reply->detail,
					  (int)reply->result_case) > 0;
		kv__wire__reply__free_unpacked(reply, NULL);
	}
	fake_client_free(c);
	fake_core_free(f);
	kt_tmpdir_free(dir);
	assert_int_equal(n_wrong, 0);
}

/* ---- on a small stack --------------------------------------------------------------------- */

static void *decode_all(void *arg)
{
	static uint8_t bytes[KV_ATTACH_BYTES_MAX];

	(void)arg;
	for (size_t i = 0; i < n_frames; i++) {
		size_t n = frames[i].pack(bytes);

		for (size_t cut = 0; cut <= n; cut++) {
			ProtobufCMessage *message = protobuf_c_message_unpack(
				descriptor_of(frames[i].kind), NULL, cut, bytes);

			if (message)
				protobuf_c_message_free_unpacked(message, NULL);
		}
	}
	return NULL;
}

/* Every part of the largest request nested as deep as the messages go, again and again. */
static void *decode_huge(void *arg)
{
	/* snapshot { ones { source { } } } */
	static const uint8_t part[] = {0xaa, 0x01, 0x04, 0x0a, 0x02, 0x0a, 0x00};
	static uint8_t bytes[KV_REQUEST_BYTES_MAX];
	Kv__Wire__Request *request;
	size_t n = 0;

	for (; n + sizeof(part) <= sizeof(bytes); n += sizeof(part))
		memcpy(bytes + n, part, sizeof(part));
	request = kv__wire__request__unpack(NULL, n, bytes);
	if (request)
		kv__wire__request__free_unpacked(request, NULL);
	return request ? arg : NULL;
}

static void *on_small_stack(void *(*fn)(void *arg), void *arg)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *result;

	assert_int_equal(pthread_attr_init(&attributes), 0);
	assert_int_equal(pthread_attr_setstacksize(&attributes, 64 * 1024), 0);
	assert_int_equal(pthread_create(&thread, &attributes, fn, arg), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	pthread_attr_destroy(&attributes);
	return result;
}

static void test_small_stack(void **state)
{
	(void)state;
	on_small_stack(decode_all, NULL);
	assert_ptr_equal(on_small_stack(decode_huge, state), state);
}

/* ---- statuses ----------------------------------------------------------------------------- */

/* As they were in version 1; new ones are added, none is changed. */
static const struct {
	const char *name;
	int number;
} statuses[] = {
	{"KVC_OK", 0},         {"KVC_EINVAL", 1},      {"KVC_ERANGE", 2},
	{"KVC_ENAME", 3},      {"KVC_EEXIST", 4},      {"KVC_ENOTFOUND", 5},
	{"KVC_EPERM", 6},      {"KVC_ELAYOUT", 7},     {"KVC_EUNSUPPORTED", 8},
	{"KVC_ETOOBIG", 9},    {"KVC_ERESERVE", 20},   {"KVC_EMOVED", 21},
	{"KVC_EBUSY", 22},     {"KVC_ESPLIT", 23},     {"KVC_EBOUND", 24},
	{"KVC_EFORKED", 25},   {"KVC_EREADONLY", 26},  {"KVC_ESTALE", 27},
	{"KVC_ENOMEM", 40},    {"KVC_EPOOL", 41},      {"KVC_EQUOTA", 42},
	{"KVC_ELIMIT", 43},    {"KVC_ETIMEOUT", 60},   {"KVC_ECANCELLED", 61},
	{"KVC_EDAEMON", 62},   {"KVC_ERESTARTED", 63}, {"KVC_EVERSION", 64},
	{"KVC_EPROTO", 65},    {"KVC_ESESSION", 66},   {"KVC_ECORRUPT", 80},
	{"KVC_EINTERNAL", 90},
};

static void test_statuses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		assert_string_equal(kv_status_name(statuses[i].number), statuses[i].name);
#define X(name, number, text) assert_int_equal(KVC_##name, number);
	KV_STATUS_TABLE(X)
#undef X
}

/* ---- hashes, digests ---------------------------------------------------------------------- */

static void assert_hex(const uint8_t *bytes, size_t n, const char *hex)
{
	char text[2 * KV_HASH_BYTES + 1] = "";

	for (size_t i = 0; i < n; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(text, hex);
}

static struct kv_layout *layout_of(const char *name)
{
	uint8_t golden[KV_ATTACH_BYTES_MAX];
	struct kv_layout *layout = NULL;

	for (size_t i = 0; i < n_frames; i++) {
		Kv__Wire__Request *request;

		if (strcmp(frames[i].name, name) != 0)
			continue;
		request = kv__wire__request__unpack(NULL, read_frame(&frames[i], golden), golden);
		assert_non_null(request);
		layout = kv_layout_from_wire(request->layout_register->layout, NULL);
		kv__wire__request__free_unpacked(request, NULL);
	}
	assert_non_null(layout);
	return layout;
}

static struct kv_layout *opaque_layout(void)
{
	Kv__Wire__Layout wire = KV__WIRE__LAYOUT__INIT;
	uint8_t fingerprint[32] = {9};
	struct kv_layout *layout;

	wire.fingerprint = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	wire.block_tokens = 1;
	wire.opaque_bytes = 4096;
	layout = kv_layout_from_wire(&wire, NULL);
	assert_non_null(layout);
	return layout;
}

static void test_hashes(void **state)
{
	struct kv_layout *layout = layout_of("request-layout_register");
	struct kv_layout *opaque = opaque_layout();

	(void)state;
	assert_hex(layout->hash, KV_HASH_BYTES,
		   "c0d95912a61ccba3455d67d5084045e43580f08c30357cdf51686ed503ce2a55");
	assert_memory_equal(layout->hash, frame_layout_hash, KV_HASH_BYTES);
	assert_hex(opaque->hash, KV_HASH_BYTES,
		   "a85677e78f46f138fe1914f61fab8e446f4533853200ef57b3b6a5a7dc6ea503");
	kv_layout_free(opaque);
	kv_layout_free(layout);
}

/* 21 tokens: a full block and five slots of the next, in each of two groups. */
static void test_digests(void **state)
{
	struct kv_layout *layout = layout_of("request-layout_register");
	XXH3_state_t *hash = XXH3_createState();
	uint8_t piece[2][16 * 2 * 16 * 2], digest[KV_DIGEST_BYTES];
	const void *pieces[2] = {piece[0], piece[1]};
	struct kv_block_digest full, part;
	struct kv_digest all;

	(void)state;
	assert_non_null(hash);
	for (size_t i = 0; i < sizeof(piece[0]); i++) {
		piece[0][i] = (uint8_t)(i * 7 + 3);
		piece[1][i] = (uint8_t)(i * 13 + 5);
	}
	kv_block_digest(hash, layout, 0, pieces, 16, &full);
	kv_block_digest(hash, layout, 1, pieces, 5, &part);
	assert_hex(full.bytes, sizeof(full.bytes), "bd838d2a441baf0d5cbb9ae754ccf1c3");
	assert_hex(part.bytes, sizeof(part.bytes), "5eb9018f4ce405dda83f69dad29ef352");
	assert_int_equal(kv_digest_begin(&all, layout, 21, 21), 0);
	for (uint32_t g = 0; g < 2; g++) {
		kv_digest_group(&all, g, 21);
		kv_digest_block(&all, &full);
		kv_digest_block(&all, &part);
	}
	kv_digest_final(&all, digest);
	assert_hex(digest, sizeof(digest), "808703b2315bdc6117bc810582ca1d15");
	XXH3_freeState(hash);
	kv_layout_free(layout);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("messages of version 1 are packed to the same bytes", test_bytes),
	KT_TEST("messages of version 1 are read, and have no field that is not known", test_decode),
	KT_TEST("requests of version 1 are answered as they were", test_conversation),
	KT_TEST("messages are read on a stack of 64 KiB", test_small_stack),
	KT_TEST("statuses have the numbers that they had", test_statuses),
	KT_TEST("layouts have the hashes that they had", test_hashes),
	KT_TEST("blocks and sequences have the digests that they had", test_digests),
};

int main(int argc, char **argv)
{
	const struct kt_group group = KT_GROUP(tests);

	if (argc == 3 && strcmp(argv[1], "--write") == 0)
		return write_frames(argv[2]);
	return kt_run(argc, argv, &group, 1);
}
