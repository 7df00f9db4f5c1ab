/* The codecs of a layout: of K and of V of each layer. Any thread once made. */
#ifndef KV_CLIENT_CODECS_H
#define KV_CLIENT_CODECS_H

#include "client/session.h"

/* 0; -1 with the error set. An opaque layout has none. Freed by codecs_free. */
int codecs_make(struct kvc_layout *layout);
void codecs_free(struct kvc_layout *layout);

#endif
