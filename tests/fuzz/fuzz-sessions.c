/*
 * Two users' sessions with a core that has something in it (world.h): requests, attach messages,
 * scribbled control segments, restarts, one after another.
 *
 * The input is a list of steps {kind 1 byte, length 2 bytes little-endian, bytes}:
 *	0   a request as it is
 *	1   a request of session A with a good head (number, token, boot); 2: of session B
 *	3   an attach message of A; 4: of B
 *	5   the core dies, and the next takes over
 *	6   {offset 4 bytes, bytes} into A's control segment
 *	7   time goes by: as many seconds as the first byte says
 *	8   A hangs up and comes back as a new session
 * Whatever it is: the core lives on, its books add up, and a life of it takes up what the one
 * before it has logged. Thread: one.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/fuzz/target.h"
#include "tests/fuzz/world.h"

#define STEPS_MAX 64
#define DEADLINE_MS 20

/* ---- steps -------------------------------------------------------------------------------- */

static void send_raw(struct world *w, const uint8_t *bytes, size_t n)
{
	core_request(w->f->core, "route", 5, bytes, n);
}

static void send_request(struct world *w, struct fake_client *c, const uint8_t *bytes, size_t n)
{
	Kv__Wire__Request *request = kv__wire__request__unpack(NULL, n, bytes);
	static uint8_t packed[KV_REQUEST_BYTES_MAX];

	if (!request) {
		send_raw(w, bytes, n);
		return;
	}
	free(request->token.data);
	free(request->boot.data);
	request->version = KV_PROTOCOL_VERSION;
	request->session = c->session;
	request->token = (ProtobufCBinaryData){sizeof(c->token), c->token};
	request->boot = (ProtobufCBinaryData){sizeof(w->f->env.boot), w->f->env.boot};
	request->id = c->next_request++;
	request->acked = request->id - 1;
	request->deadline_ms = DEADLINE_MS;
	if (kv__wire__request__get_packed_size(request) <= sizeof(packed))
		send_raw(w, packed, kv__wire__request__pack(request, packed));
	request->token.data = request->boot.data = NULL;
	request->token.len = request->boot.len = 0;
	kv__wire__request__free_unpacked(request, NULL);
	fake_settle(w->f);
}

/* As daemon/attach.c hands it over: of our version, a watch with a socket. */
static void send_attach(struct fake_client *c, const uint8_t *bytes, size_t n)
{
	Kv__Wire__AttachRequest *request = kv__wire__attach_request__unpack(NULL, n, bytes);
	int pair[2] = {-1, -1};

	if (request && !c->is_closed &&
	    request->what_case != KV__WIRE__ATTACH_REQUEST__WHAT__NOT_SET) {
		if (request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_WATCH)
			must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
		fake_attach(c, request, pair[1]);
	}
	if (pair[0] >= 0)
		close(pair[0]);
	if (request)
		kv__wire__attach_request__free_unpacked(request, NULL);
}

/* The head, writers, arena numbers, the first places and tables: what the core reads. */
static void scribble(struct fake_client *c, const uint8_t *bytes, size_t n)
{
	const uint64_t n_places = 4, n_tables = 16;
	uint64_t places_off = KV_SHM_PAGE + KV_WRITERS_MAX * sizeof(struct kv_shm_writer) +
			      KV_ARENAS_MAX * sizeof(uint64_t);
	uint64_t tables_off, off;
	uint32_t at;

	places_off = (places_off + KV_SHM_PAGE - 1) / KV_SHM_PAGE * KV_SHM_PAGE;
	tables_off = places_off + KV_PLACES_MAX * sizeof(struct kv_shm_place);
	if (n < sizeof(at))
		return;
	memcpy(&at, bytes, sizeof(at));
	bytes += sizeof(at);
	n -= sizeof(at);
	at %= (uint32_t)(places_off + (n_places + n_tables) * KV_SHM_PAGE - 65536);
	off = at < places_off + n_places * KV_SHM_PAGE ?
		      at :
		      tables_off + (at - places_off - n_places * KV_SHM_PAGE);
	memcpy((char *)c->segment + off, bytes, n);
}

static void come_back(struct world *w)
{
	world_leave(w->a);
	fake_settle(w->f);
	w->a = fake_client_self(w->f, 1000);
}

static bool step(struct world *w, uint8_t kind, const uint8_t *bytes, size_t n)
{
	switch (kind) {
	case 0: send_raw(w, bytes, n); break;
	case 1: send_request(w, w->a, bytes, n); break;
	case 2: send_request(w, w->b, bytes, n); break;
	case 3: send_attach(w->a, bytes, n); break;
	case 4: send_attach(w->b, bytes, n); break;
	case 5: return world_restart(w);
	case 6: scribble(w->a, bytes, n); break;
	case 7:
		w->f->offset_ns += (n ? bytes[0] : 1) * LOOP_NS_PER_S;
		fake_settle(w->f);
		break;
	case 8: come_back(w); break;
	default: break;
	}
	return true;
}

/* ---- books -------------------------------------------------------------------------------- */

static void check_books(const struct core *core)
{
	uint64_t bytes = 0;

	for (int i = 0; i < BLOCK_CLASSES; i++)
		bytes += core->pool.class_bytes[i];
	must(bytes == core->pool.total_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct world *w = world_new();
	bool is_up = true;

	for (int i = 0; i < STEPS_MAX && size >= 3 && is_up; i++) {
		size_t n = data[1] | (size_t)data[2] << 8;
		uint8_t kind = data[0];

		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		is_up = step(w, kind, data, n);
		data += n;
		size -= n;
	}
	must(is_up); /* a catalogue that the core itself wrote is taken up */
	check_books(w->f->core);
	world_free(w);
	return 0;
}
