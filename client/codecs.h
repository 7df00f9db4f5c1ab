/* The codecs of a layout: of K and of V of each layer; and what is said of a vector that one cannot
 * store. Any thread once made. */
#ifndef KV_CLIENT_CODECS_H
#define KV_CLIENT_CODECS_H

#include <stdbool.h>

#include "client/session.h"

/* 0; -1 with the error set. An opaque layout has none. Freed by codecs_free. */
int codecs_make(struct kvc_layout *layout);
void codecs_free(struct kvc_layout *layout);

/* -1 with KVC_EVALUE: the format cannot hold K or V of a layer, of `what` number n ("slot"), head
 * h; and what to do about it. */
int codecs_refuse(bool is_value, uint32_t layer, const char *what, uint64_t n, uint64_t head,
		  const char *remedy);

#endif
