#include "offload/io_uring_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

void uring_memory_init(struct uring_memory *memory, struct io_uring *ring)
{
	memory->ring = ring;
	snprintf(memory->text, sizeof(memory->text), "io_uring");
}

static void say(struct uring_memory *memory, int error)
{
	const char *some = memory->n_pieces ? "not all memory is" : "memory is not";
	struct rlimit limit;

	if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY)
		snprintf(memory->text, sizeof(memory->text),
			 "io_uring, %s registered: the limit for locked memory is too small "
			 "(RLIMIT_MEMLOCK, %llu KiB)",
			 some, (unsigned long long)limit.rlim_cur >> 10);
	else if (error)
		snprintf(memory->text, sizeof(memory->text), "io_uring, %s registered: %s", some,
			 strerror(error));
	else
		snprintf(memory->text, sizeof(memory->text), "io_uring%s",
			 memory->n_pieces ? ", registered memory" : "");
}

/* ---- the kernel's table --------------------------------------------------------------------- */

static int make_table(struct uring_memory *memory)
{
	int rc;

	if (memory->has_table)
		return 0;
	rc = io_uring_register_buffers_sparse(memory->ring, URING_PIECES_MAX);
	memory->has_table = rc == 0;
	return rc;
}

/* base NULL: the slot is empty from now on. What is in flight keeps its pages. */
static int set_slot(struct uring_memory *memory, unsigned slot, void *base, size_t n_bytes)
{
	const struct iovec iov = {base, n_bytes};
	int rc = io_uring_register_buffers_update_tag(memory->ring, slot, &iov, NULL, 1);

	memory->slots[slot] = base && rc == 1;
	return rc < 0 ? rc : rc == 1 ? 0 : -EIO;
}

static int free_slot(const struct uring_memory *memory)
{
	for (unsigned i = 0; i < URING_PIECES_MAX; i++)
		if (!memory->slots[i])
			return (int)i;
	return -ENOSPC;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* The number of pieces that begin at or below an address. */
static uint32_t n_up_to(const struct uring_memory *memory, const char *at)
{
	uint32_t low = 0, high = memory->n_pieces;

	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (memory->pieces[middle].base <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int add_piece(struct uring_memory *memory, const void *area, char *base, size_t n_bytes)
{
	uint32_t at = n_up_to(memory, base);
	int slot = free_slot(memory);
	int rc = slot < 0 ? slot : set_slot(memory, (unsigned)slot, base, n_bytes);

	if (rc < 0)
		return rc;
	memmove(&memory->pieces[at + 1], &memory->pieces[at],
		sizeof(memory->pieces[0]) * (memory->n_pieces - at));
	memory->pieces[at] = (struct uring_piece){base, n_bytes, area, (unsigned)slot};
	memory->n_pieces++;
	return 0;
}

void uring_memory_add(struct uring_memory *memory, void *base, size_t n_bytes)
{
	int rc = make_table(memory);

	for (size_t at = 0; rc == 0 && at < n_bytes; at += URING_PIECE_BYTES_MAX) {
		size_t left = n_bytes - at;

		rc = add_piece(memory, base, (char *)base + at,
			       left < URING_PIECE_BYTES_MAX ? left : URING_PIECE_BYTES_MAX);
	}
	if (rc)
		memory->refused = base;
	if (rc || !memory->refused)
		say(memory, -rc);
}

void uring_memory_remove(struct uring_memory *memory, const void *base)
{
	uint32_t n_kept = 0;

	for (uint32_t i = 0; i < memory->n_pieces; i++) {
		const struct uring_piece piece = memory->pieces[i];

		if (piece.area == base)
			set_slot(memory, piece.slot, NULL, 0);
		else
			memory->pieces[n_kept++] = piece;
	}
	memory->n_pieces = n_kept;
	if (memory->refused == base)
		memory->refused = NULL;
	if (!memory->refused)
		say(memory, 0);
}

int uring_memory_find(const struct uring_memory *memory, const struct iovec *iov)
{
	const uint32_t n = n_up_to(memory, iov->iov_base);
	const struct uring_piece *piece;
	size_t off;

	if (n == 0)
		return -1;
	piece = &memory->pieces[n - 1];
	off = (size_t)((const char *)iov->iov_base - piece->base);
	if (off >= piece->n_bytes || iov->iov_len > piece->n_bytes - off)
		return -1;
	return (int)piece->slot;
}
