/*
 * A frame from the front, which hostile bytes may have taken over.
 *
 * Whatever it is: it is dropped, or the core gets a route and a body that lie in it, follow one
 * another to its end and are within their limits. Thread: one.
 */
#include <string.h>
#include <unistd.h>

#include "daemon/front_link.h"
#include "daemon/packet.h"
#include "tests/fuzz/target.h"

struct sent {
	const uint8_t *data;
	size_t size;
};

static void on_request(void *arg, const void *route, size_t n_route, const void *body,
		       size_t n_body)
{
	const struct sent *sent = arg;

	must(n_route >= 1 && n_route <= FRONT_ROUTE_BYTES_MAX);
	must(n_body <= KV_REQUEST_BYTES_MAX);
	must(4 + n_route + n_body == sent->size);
	must(memcmp(route, sent->data + 4, n_route) == 0);
	must(memcmp(body, sent->data + 4 + n_route, n_body) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct sent sent = {data, size};
	struct front_link *link;
	struct loop *loop = loop_new(NULL, NULL);
	int fds[2];

	must(loop != NULL);
	must(packet_pair(fds, 1 << 20) == 0);
	link = front_link_new(loop, fds[0], on_request, &sent, NULL);
	must(link != NULL);
	if (packet_send(fds[1], data, size, NULL, 0) == 0)
		must(loop_once(loop, 0) == 0);
	front_link_free(link);
	loop_free(loop);
	close(fds[1]);
	return 0;
}
