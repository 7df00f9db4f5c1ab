/*
 * The plain read: the sum of a layer's stored bytes in one contiguous plane, by the threads that
 * attention has: what attention over them is measured against (kvcachectl bench attend, and the
 * project's own measurements).
 *
 * As fast as a processor reads: vector instructions, and eight places of a thread's part at once,
 * for the memory is fetched ahead along each of them, but of none beyond a page. (Measured against
 * one place with and without prefetch instructions, and two, four, twelve and sixteen.)
 *
 * Thread: that of the sequence and of the workers.
 */
#ifndef KV_CTL_PLAIN_READ_H
#define KV_CTL_PLAIN_READ_H

#include <stddef.h>
#include <stdint.h>

#include "client/kvcache.h"

/* What a sequence stores of a layer, copied: codes, scales and zero points of K and V, one part
 * behind the other. */
struct plain_plane {
	void *memory;
	size_t n_bytes;
	size_t n_mapped_bytes;
};

/* 0; -1 with the library's error: KVC_ENOMEM, or what kvc_view_table gives. */
int plain_plane_init(struct plain_plane *plane, kvc_seq *seq, uint32_t layer);
/* A plane that is all zero is allowed. */
void plain_plane_fini(struct plain_plane *plane);

/* The sum of its 64-bit words; workers NULL: by the calling thread alone. */
uint64_t plain_read(const struct plain_plane *plane, kvc_workers *workers);

#endif
