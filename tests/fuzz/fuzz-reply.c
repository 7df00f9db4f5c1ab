/*
 * What a daemon that has gone mad answers to the library: replies to commands and on the attach
 * socket.
 *
 * The input is a list of steps {call 1 byte, length 2 bytes little-endian, bytes}: a public call,
 * and the reply that it gets, to which version, session and number are added so that it is looked
 * at. Call 0xf0 gives the bytes to the next attach exchange instead. Before the steps a good
 * daemon has given session, layout, writer and one sequence; after them the daemon is silent.
 * Whatever it says: calls succeed or fail with a status and one line of text, and everything can
 * be freed. Stands in for wire.c and attach.c. Thread: one.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/attach.h"
#include "client/handles.h"
#include "client/open.h"
#include "client/wire.h"
#include "daemon/segment.h"
#include "proto/layout_wire.h"
#include "tests/fuzz/target.h"

#define SESSION 7u
#define ARENA_BLOCKS 64u
#define STEPS_MAX 16
#define DEADLINE_MS 50
#define CALL_ATTACH 0xf0

static struct {
	bool is_good;
	struct segment segment;
	struct kv_layout *layout;
	const uint8_t *reply, *attach; /* of the step; NULL: none */
	size_t n_reply, n_attach;
	uint8_t packed[KV_REQUEST_BYTES_MAX];
	size_t n_packed; /* 0: no reply waits */
} mad;

/* ---- commands ----------------------------------------------------------------------------- */

static void send_reply(Kv__Wire__Reply *reply, const Kv__Wire__Request *request)
{
	reply->version = KV_PROTOCOL_VERSION;
	reply->session = SESSION;
	reply->id = request->id;
	if (kv__wire__reply__get_packed_size(reply) <= sizeof(mad.packed))
		mad.n_packed = kv__wire__reply__pack(reply, mad.packed);
}

static void good_place(Kv__Wire__Place *out)
{
	static struct seg_place place;
	struct errbuf err;

	place = (struct seg_place){.layout_id = 1, .seq_id = 9, .max_tokens = 256};
	must(segment_table_alloc(&mad.segment, &place, mad.layout, &err) == 0);
	segment_place_init(&mad.segment, &place, NULL, KV_HEAD_LIVE, 0);
	kv__wire__place__init(out);
	out->seq_id = 9;
	out->layout_id = 1;
}

static void answer_well(const Kv__Wire__Request *request)
{
	Kv__Wire__Reply reply = KV__WIRE__REPLY__INIT;
	Kv__Wire__LayoutResult layout = KV__WIRE__LAYOUT_RESULT__INIT;
	Kv__Wire__WriterResult writer = KV__WIRE__WRITER_RESULT__INIT;
	Kv__Wire__PlacesResult places = KV__WIRE__PLACES_RESULT__INIT;
	Kv__Wire__Place place, *list[1] = {&place};

	switch (request->command_case) {
	case KV__WIRE__REQUEST__COMMAND_LAYOUT_REGISTER:
		mad.layout = kv_layout_from_wire(request->layout_register->layout, NULL);
		must(mad.layout != NULL);
		layout.layout_id = 1;
		layout.hash = (ProtobufCBinaryData){KV_HASH_BYTES, mad.layout->hash};
		reply.result_case = KV__WIRE__REPLY__RESULT_LAYOUT;
		reply.layout = &layout;
		break;
	case KV__WIRE__REQUEST__COMMAND_WRITER_NEW:
		segment_writer_init(&mad.segment, 0);
		reply.result_case = KV__WIRE__REPLY__RESULT_WRITER;
		reply.writer = &writer;
		break;
	case KV__WIRE__REQUEST__COMMAND_SEQ_NEW:
		good_place(&place);
		places.n_places = 1;
		places.places = list;
		reply.result_case = KV__WIRE__REPLY__RESULT_PLACES;
		reply.places = &places;
		break;
	default: break;
	}
	send_reply(&reply, request);
}

static void answer_madly(const Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply;

	if (!mad.reply)
		return;
	reply = kv__wire__reply__unpack(NULL, mad.n_reply, mad.reply);
	if (reply) {
		send_reply(reply, request);
		kv__wire__reply__free_unpacked(reply, NULL);
	} else if (mad.n_reply <= sizeof(mad.packed)) {
		memcpy(mad.packed, mad.reply, mad.n_reply);
		mad.n_packed = mad.n_reply;
	}
	mad.reply = NULL; /* one reply a step */
}

int wire_open(struct wire *wire, const char *address, uint32_t resend_ms, struct errbuf *err)
{
	(void)address;
	(void)resend_ms;
	(void)err;
	wire->socket = 0;
	return 0;
}

void wire_close(struct wire *wire)
{
	wire->socket = -1;
}

int wire_send(struct wire *wire, const Kv__Wire__Request *request, struct errbuf *err)
{
	(void)wire;
	(void)err;
	mad.n_packed = 0;
	if (mad.is_good)
		answer_well(request);
	else
		answer_madly(request);
	return 0;
}

int wire_receive(struct wire *wire, int timeout_ms, uint8_t **body)
{
	(void)wire;
	(void)timeout_ms;
	if (mad.n_packed == 0)
		return -ECONNRESET;
	*body = malloc(mad.n_packed);
	must(*body != NULL);
	memcpy(*body, mad.packed, mad.n_packed);
	return (int)mad.n_packed;
}

void wire_free(uint8_t *body)
{
	free(body);
}

/* ---- attach ------------------------------------------------------------------------------- */

int attach_open(struct attach *attach, const char *path, int64_t deadline_ns, struct errbuf *err)
{
	(void)path;
	(void)deadline_ns;
	(void)err;
	*attach = (struct attach){.fd = 0};
	return 0;
}

void attach_close(struct attach *attach)
{
	attach->fd = -1;
}

bool attach_hung_up(const struct attach *attach)
{
	return attach->fd < 0;
}

static Kv__Wire__AttachReply *unpack_again(Kv__Wire__AttachReply *reply)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	return kv__wire__attach_reply__unpack(NULL, kv__wire__attach_reply__pack(reply, bytes),
					      bytes);
}

static void welcome(struct attach_answer *answer)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__Welcome words = KV__WIRE__WELCOME__INIT;
	uint8_t token[16] = {1};

	words.session = SESSION;
	words.token = (ProtobufCBinaryData){sizeof(token), token};
	words.segment_bytes = KV_SHM_BYTES;
	reply.boot = (ProtobufCBinaryData){sizeof(token), token};
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_WELCOME;
	reply.welcome = &words;
	answer->reply = unpack_again(&reply);
	answer->fd = dup(mad.segment.fd);
}

/* Arena n is of group n - 1, as a good daemon would have it. */
static void give_arena(uint32_t arena, struct attach_answer *answer)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__ArenaInfo info = KV__WIRE__ARENA_INFO__INIT;
	uint64_t region_off[2 * KV_LAYERS_MAX];
	uint8_t boot[16] = {1};

	info.arena = arena;
	info.arena_id = arena;
	info.layout_id = 1;
	info.group = (arena - 1) % mad.layout->n_groups;
	info.n_blocks = ARENA_BLOCKS;
	info.n_bytes = kv_layout_arena(mad.layout, info.group, ARENA_BLOCKS, region_off);
	info.writable = true;
	reply.boot = (ProtobufCBinaryData){sizeof(boot), boot};
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_ARENA;
	reply.arena = &info;
	segment_set_arena(&mad.segment, arena, arena);
	answer->reply = unpack_again(&reply);
	answer->fd = memfd_create("kvcached-test-reply", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	must(ftruncate(answer->fd, (off_t)info.n_bytes) == 0);
	must(fcntl(answer->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
}

int attach_exchange(struct attach *attach, Kv__Wire__AttachRequest *request, int pass_fd,
		    int64_t deadline_ns, struct attach_answer *answer, struct errbuf *err)
{
	(void)attach;
	(void)pass_fd;
	(void)deadline_ns;
	*answer = (struct attach_answer){.fd = -1};
	if (mad.attach) {
		answer->reply = kv__wire__attach_reply__unpack(NULL, mad.n_attach, mad.attach);
		mad.attach = NULL;
		answer->fd = answer->reply ? dup(mad.segment.fd) : -1;
	} else if (request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO) {
		welcome(answer);
	} else if (request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET &&
		   request->arena_get->arena < 16) {
		give_arena(request->arena_get->arena, answer);
	}
	if (answer->reply)
		return 0;
	return errbuf_set(err, KV_EPROTO, "no answer");
}

void attach_answer_free(struct attach_answer *answer)
{
	if (answer->reply)
		kv__wire__attach_reply__free_unpacked(answer->reply, NULL);
	if (answer->fd >= 0)
		close(answer->fd);
	*answer = (struct attach_answer){.fd = -1};
}

/* ---- calls -------------------------------------------------------------------------------- */

struct client {
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	kvc_seq *seq;
};

static kvc_layout *register_layout(kvc_session *session)
{
	struct kvc_layer layers[2] = {{1, 8, 8, 0}, {1, 8, 8, 64}};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {1},
					     .n_layers = 2,
					     .layers = layers,
					     .dtype = KVC_F32,
					     .block_tokens = 4};

	return kvc_layout_register(session, &options);
}

/* Appends within what a mad daemon gave. */
static int reserve_and_append(struct client *c)
{
	float row[8] = {1};
	int rc = kvc_reserve(c->seq, 3);

	if (rc == 0 && kvc_append_begin(c->seq, 1) == 0) {
		kvc_write(c->seq, 0, row, row);
		kvc_write(c->seq, 1, row, row);
		kvc_commit(c->writer, &c->seq, 1);
	}
	return rc;
}

static int drop(kvc_seq *seq)
{
	if (seq)
		kvc_seq_free(seq);
	return seq ? 0 : -1;
}

static int call(struct client *c, uint8_t which)
{
	struct kvc_seq_options named = {.size = sizeof(named), .name = "n", .max_tokens = 256};
	struct kvc_snapshot_options snapshot = {.size = sizeof(snapshot), .name = "s"};
	struct kvc_verify_result verified;
	uint8_t hash[32] = {1};
	kvc_layout *layout;
	kvc_batch *batch;
	uint64_t id;

	switch (which) {
	case 0: return kvc_ping(c->session);
	case 1: layout = register_layout(c->session); break;
	case 2: layout = kvc_layout_find(c->session, hash); break;
	case 3: return kvc_writer_new(c->session) ? 0 : -1;
	case 4: return drop(kvc_seq_new(c->writer, c->layout, &named));
	case 5: return reserve_and_append(c);
	case 6: return kvc_snapshot(c->seq, &snapshot, &id);
	case 7: return drop(kvc_fork(c->writer, "s", &named));
	case 8: return drop(kvc_open_snapshot(c->writer, "s"));
	case 9: return drop(kvc_takeover(c->writer, "n"));
	case 10: return kvc_remove(c->session, "s");
	case 11: return kvc_wait(c->session, "s", DEADLINE_MS);
	case 12: return kvc_verify(c->session, "s", NULL, NULL, &verified);
	case 13:
		batch = kvc_batch_new(c->writer, c->layout, 2, 64);
		kvc_batch_free(batch);
		return batch ? 0 : -1;
	case 14: return kvc_reserve_forks(c->seq, 2);
	case 15: return drop(kvc_fork_local(c->seq, 4));
	case 16: return kvc_seq_name(c->seq, "n");
	default: return 0;
	}
	kvc_layout_free(layout);
	return layout ? 0 : -1;
}

static void begin(struct client *c)
{
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = 256};

	mad.is_good = true;
	mad.layout = NULL;
	mad.reply = mad.attach = NULL;
	must(segment_make(&mad.segment, SESSION, NULL) == 0);
	c->session = session_open("/nowhere", DEADLINE_MS, DEADLINE_MS);
	must(c->session != NULL);
	c->layout = register_layout(c->session);
	must(c->layout != NULL);
	c->writer = kvc_writer_new(c->session);
	must(c->writer != NULL);
	c->seq = kvc_seq_new(c->writer, c->layout, &options);
	must(c->seq != NULL);
	mad.is_good = false;
}

static void end(struct client *c)
{
	mad.reply = mad.attach = NULL;
	kvc_close(c->session);
	segment_fini(&mad.segment);
	kv_layout_free(mad.layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client c;

	begin(&c);
	for (int i = 0; i < STEPS_MAX && size >= 3; i++) {
		size_t n = data[1] | (size_t)data[2] << 8;
		uint8_t which = data[0];

		data += 3;
		size -= 3;
		n = n < size ? n : size;
		if (which == CALL_ATTACH) {
			mad.attach = data;
			mad.n_attach = n;
		} else {
			mad.reply = data;
			mad.n_reply = n;
			if (call(&c, which))
				must(kvc_error() != KVC_OK && kvc_error_text()[0] &&
				     !strchr(kvc_error_text(), '\n'));
			mad.attach = NULL;
		}
		data += n;
		size -= n;
	}
	end(&c);
	return 0;
}
