/*
 * Requests of a client that is not a friend, and what it scribbles over its control segment
 * between them.
 *
 * The input is a row of frames: kind (1 byte), length (2, little-endian), bytes. Kind 0 is a
 * request as it came; 1 a request to which session, token, boot and number are added, so that it
 * is looked at; 2 two bytes of an offset (in units of 8) into writers and places, and what is
 * written there; 3 time passes. Whatever they are: each request has one reply at most, the
 * accounts of the pool add up, and another user's session is served. Thread: one.
 */
#include <string.h>

#include "daemon/command.h"
#include "tests/fuzz/target.h"
#include "tests/support/fake_links.h"

#define FRAMES_MAX 64

static void send_looked_at(struct fake_client *c, const uint8_t *bytes, size_t n)
{
	Kv__Wire__Request *request = kv__wire__request__unpack(NULL, n, bytes);
	ProtobufCBinaryData token, boot;

	if (!request)
		return;
	token = request->token;
	boot = request->boot;
	request->token.data = request->boot.data = NULL;
	request->session = request->id = request->acked = 0;
	if (kv__wire__request__get_packed_size(request) < KV_REQUEST_BYTES_MAX - 128) {
		fake_send(c, request);
		c->acked = request->id - 1;
	}
	request->token = token;
	request->boot = boot;
	kv__wire__request__free_unpacked(request, NULL);
}

static void scribble(struct fake_client *c, const uint8_t *bytes, size_t n)
{
	size_t off;

	if (n < 3)
		return;
	off = c->segment->writers_off + (size_t)(bytes[0] | bytes[1] << 8) * 8;
	memcpy((char *)c->segment + off, bytes + 2, n - 2);
}

static void check_pool(const struct core *core)
{
	uint64_t sum = 0;

	for (int i = 0; i < BLOCK_CLASSES; i++)
		sum += core->pool.class_bytes[i];
	must(sum == core->pool.total_bytes);
}

static void one_frame(struct fake_client *c, uint8_t kind, const uint8_t *bytes, size_t n)
{
	struct fake_core *f = c->f;
	uint64_t before = f->n_replies, n_waiting = 0;

	for (const struct command *cmd = f->core->pending; cmd; cmd = cmd->next)
		n_waiting++; /* answered when their session ends */
	if (c->is_closed)    /* it ended its own session */
		return;
	if (kind == 0)
		core_request(f->core, "r", 1, bytes, n);
	else if (kind == 1)
		send_looked_at(c, bytes, n);
	else if (kind == 2)
		scribble(c, bytes, n);
	else
		f->offset_ns += n * 100 * LOOP_NS_PER_MS;
	if (kind <= 1)
		must(f->n_replies <= before + 1 + n_waiting);
	fake_settle(f);
	check_pool(f->core);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Kv__Wire__Request ping = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Noop noop = KV__WIRE__NOOP__INIT;
	struct settings settings;
	struct fake_core *f;
	struct fake_client *c, *other;
	uint64_t before;

	log_init(LOG_LEVEL_ERROR);
	settings_default(&settings);
	settings.pool_bytes = 1u << 20;
	settings.huge = settings.mlock = SETTINGS_NO;
	f = fake_core_new(&settings);
	c = fake_client_self(f, 1000);
	other = fake_client_self(f, 2000);
	for (int i = 0; i < FRAMES_MAX && size >= 3; i++) {
		size_t n = (size_t)(data[1] | data[2] << 8);

		n = n < size - 3 ? n : size - 3;
		one_frame(c, data[0] % 4, data + 3, n);
		data += 3 + n;
		size -= 3 + n;
	}
	ping.command_case = KV__WIRE__REQUEST__COMMAND_NOOP;
	ping.noop = &noop;
	before = f->n_replies;
	fake_send(other, &ping);
	must(f->n_replies == before + 1);
	fake_core_restart(f);
	must(f->core != NULL);
	check_pool(f->core);
	fake_client_free(c);
	fake_client_free(other);
	fake_core_free(f);
	return 0;
}
