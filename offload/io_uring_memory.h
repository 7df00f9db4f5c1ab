/*
 * Memory registered with a ring: its pages are pinned once, not for each transfer. In pieces of at
 * most 1 GiB (the kernel's limit), in a table that can be changed while requests are in flight.
 * What the kernel refuses is simply not registered; the text says why.
 */
#ifndef KV_OFFLOAD_IO_URING_MEMORY_H
#define KV_OFFLOAD_IO_URING_MEMORY_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define URING_PIECES_MAX 1024u
#define URING_PIECE_BYTES_MAX ((size_t)1 << 30)

struct uring_piece {
	char *base;
	size_t n_bytes;
	const void *area; /* what it is a piece of */
	unsigned slot;    /* in the kernel's table */
};

struct uring_memory {
	struct io_uring *ring;
	bool has_table;
	uint32_t n_pieces;
	struct uring_piece pieces[URING_PIECES_MAX]; /* by rising base */
	bool slots[URING_PIECES_MAX];                /* taken */
	const void *refused;                         /* an area; NULL: none */
	char text[160];                              /* for people */
};

void uring_memory_init(struct uring_memory *memory, struct io_uring *ring);
void uring_memory_add(struct uring_memory *memory, void *base, size_t n_bytes);
void uring_memory_remove(struct uring_memory *memory, const void *base);

/* Its slot in the kernel's table, or -1: it does not lie in one registered piece. */
int uring_memory_find(const struct uring_memory *memory, const struct iovec *iov);

#endif
