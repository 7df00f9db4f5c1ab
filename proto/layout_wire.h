/*
 * Layouts on the wire: Kv__Wire__Layout <-> struct kv_layout. Input is a peer's: counts and
 * lengths are checked against proto/limits.h before anything is allocated.
 */
#ifndef KV_PROTO_LAYOUT_WIRE_H
#define KV_PROTO_LAYOUT_WIRE_H

#include "proto/kvcache.pb-c.h"
#include "proto/layout.h"

/* A checked and derived layout (heap, kv_layout_free), or NULL with err naming the field. */
struct kv_layout *kv_layout_from_wire(const Kv__Wire__Layout *wire, struct errbuf *err);

/*
 * The message of a layout; borrows strings from it, so the layout must outlive the message.
 * Freed by kv_layout_wire_free. NULL when memory is out.
 */
Kv__Wire__Layout *kv_layout_to_wire(const struct kv_layout *layout);
void kv_layout_wire_free(Kv__Wire__Layout *wire);

#endif
