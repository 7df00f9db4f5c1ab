/*
 * The core's wire to the front: request frames in, replies and events out.
 *
 * One SEQPACKET packet a frame: u32 n_route, route, body. The route is the front's business (who
 * asked, which life of the front); the core gives it back with the reply, any time later. A route
 * of a front that has died since leads nowhere: the client's REQ sends again by itself. Replies
 * and events that the front does not take yet wait here in order, up to FRONT_LINK_WAITING_BYTES;
 * beyond that they are dropped and counted (REQ sends again, subscribers see a gap). Core thread.
 */
#ifndef KV_DAEMON_FRONT_LINK_H
#define KV_DAEMON_FRONT_LINK_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/loop.h"
#include "proto/errbuf.h"
#include "proto/limits.h"

#define FRONT_ROUTE_BYTES_MAX 256u
#define FRONT_FRAME_BYTES_MAX (4u + FRONT_ROUTE_BYTES_MAX + KV_REQUEST_BYTES_MAX)
#define FRONT_LINK_WAITING_BYTES (16u * 1024 * 1024)

struct front_link;

/* Both buffers belong to the link and are valid during the call only. */
typedef void front_request_fn(void *arg, const void *route, size_t n_route, const void *body,
			      size_t n_body);

/* fd: the core's end of the pair, owned from here on. NULL with err. */
struct front_link *front_link_new(struct loop *loop, int fd, front_request_fn *fn, void *arg,
				  struct errbuf *err);
void front_link_free(struct front_link *link);

/* Copies what it needs. 0; -EMSGSIZE above KV_REQUEST_BYTES_MAX or FRONT_ROUTE_BYTES_MAX (nothing
 * was sent); -ENOBUFS if it was dropped. */
int front_link_reply(struct front_link *link, const void *route, size_t n_route, const void *body,
		     size_t n_body);
int front_link_event(struct front_link *link, const void *body, size_t n_body);

/* Replies and events dropped so far. */
uint64_t front_link_dropped(const struct front_link *link);

#endif
