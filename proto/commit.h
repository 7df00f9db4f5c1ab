/*
 * The commit protocol: moves of a commit word, and which of two stamped copies counts.
 *
 * One 64-bit word a writer is both the lock and the truth: {state 2 bits, generation 16 bits,
 * update 46 bits}. The update number never goes down. A rollback is an update that says less.
 *
 *   idle --writer--> open --writer--> idle, update + 1       an update
 *   idle --core----> held --core----> idle, generation + 1   a freeze (update + 1 for a rollback)
 *   open --core----> wanted --writer--> held, update + 1     the core waited for the writer
 *   wanted --core--> open                                    the core gave up (deadline, restart)
 *   open --writer--> idle (wanted -> held), same update      nothing was filled: a freeze came first
 *
 * All moves are compare-and-swaps with acquire-release order: what a writer stored before its
 * swap to idle or held is visible to whoever loads the word afterwards (acquire). Both sides of
 * the protocol are here and in daemon/hold.c, so that they are read together. Update numbers
 * begin at 1; stamp 0 is "no update".
 */
#ifndef KV_PROTO_COMMIT_H
#define KV_PROTO_COMMIT_H

#include <stdbool.h>

#include "proto/fault.h"
#include "proto/shm.h"

enum kv_word_state { KV_IDLE = 0, KV_OPEN = 1, KV_WANTED = 2, KV_HELD = 3 };

#define KV_UPDATE_BITS 46
#define KV_GENERATION_BITS 16
#define KV_UPDATE_MAX ((UINT64_C(1) << KV_UPDATE_BITS) - 1)

static inline uint64_t kv_word(enum kv_word_state state, uint64_t generation, uint64_t update)
{
	return (uint64_t)state << (KV_UPDATE_BITS + KV_GENERATION_BITS) |
	       (generation & 0xffff) << KV_UPDATE_BITS | update;
}

static inline enum kv_word_state kv_word_state(uint64_t word)
{
	return (enum kv_word_state)(word >> (KV_UPDATE_BITS + KV_GENERATION_BITS));
}

static inline uint64_t kv_word_generation(uint64_t word)
{
	return word >> KV_UPDATE_BITS & 0xffff;
}

static inline uint64_t kv_word_update(uint64_t word)
{
	return word & KV_UPDATE_MAX;
}

static inline uint64_t kv_word_load(struct kv_shm_writer *writer)
{
	return atomic_load_explicit(&writer->word, memory_order_acquire);
}

static inline bool kv_word_swap(struct kv_shm_writer *writer, uint64_t expected, uint64_t next)
{
	return atomic_compare_exchange_strong_explicit(&writer->word, &expected, next,
						       memory_order_acq_rel, memory_order_acquire);
}

/*
 * Which of two stamped copies counts at `update`: 0 or 1, or -1 if neither was written by then.
 * Loads are relaxed: ordered by the load of the word.
 */
static inline int kv_stamps_current(const _Atomic uint64_t *stamp0, const _Atomic uint64_t *stamp1,
				    uint64_t update)
{
	uint64_t s0 = atomic_load_explicit(stamp0, memory_order_relaxed);
	uint64_t s1 = atomic_load_explicit(stamp1, memory_order_relaxed);
	bool ok0 = s0 != 0 && s0 <= update;
	bool ok1 = s1 != 0 && s1 <= update;

	if (ok0 && ok1)
		return s1 > s0;
	if (ok0)
		return 0;
	return ok1 ? 1 : -1;
}

static inline int kv_head_current(const struct kv_shm_place *place, uint64_t update)
{
	return kv_stamps_current(&place->copy[0].stamp, &place->copy[1].stamp, update);
}

/* The copy that an update may fill while the committed number is `update`. */
static inline unsigned kv_head_older(const struct kv_shm_place *place, uint64_t update)
{
	return kv_head_current(place, update) == 0 ? 1 : 0;
}

/* Plain values of a header copy, outside shared memory. */
struct kv_head {
	uint64_t length_tokens;
	uint64_t position;
	uint64_t journal_first, journal_end;
	uint64_t planes;
	uint64_t base_tokens;
	uint32_t n_marks;
	uint32_t state; /* kv_head_word, KV_HEAD_SCATTERED */
};

static inline void kv_head_load(const struct kv_head_copy *copy, struct kv_head *head)
{
	head->length_tokens = atomic_load_explicit(&copy->length_tokens, memory_order_relaxed);
	head->position = atomic_load_explicit(&copy->position, memory_order_relaxed);
	head->journal_first = atomic_load_explicit(&copy->journal_first, memory_order_relaxed);
	head->journal_end = atomic_load_explicit(&copy->journal_end, memory_order_relaxed);
	head->planes = atomic_load_explicit(&copy->planes, memory_order_relaxed);
	head->base_tokens = atomic_load_explicit(&copy->base_tokens, memory_order_relaxed);
	head->n_marks = atomic_load_explicit(&copy->n_marks, memory_order_relaxed);
	head->state = atomic_load_explicit(&copy->state, memory_order_relaxed);
}

/*
 * Fills a header copy and stamps it. Only the copy that does not count may be filled. The stamp
 * is above the committed update until the swap, so a death in between leaves no trace that
 * counts. The stamp is stored after the fields (release): if the writer dies between them, a copy
 * is never stamped new over old fields.
 */
static inline void kv_head_store(struct kv_head_copy *copy, const struct kv_head *head,
				 uint64_t stamp)
{
	atomic_store_explicit(&copy->length_tokens, head->length_tokens, memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&copy->position, head->position, memory_order_relaxed);
	atomic_store_explicit(&copy->journal_first, head->journal_first, memory_order_relaxed);
	atomic_store_explicit(&copy->journal_end, head->journal_end, memory_order_relaxed);
	atomic_store_explicit(&copy->planes, head->planes, memory_order_relaxed);
	atomic_store_explicit(&copy->base_tokens, head->base_tokens, memory_order_relaxed);
	atomic_store_explicit(&copy->n_marks, head->n_marks, memory_order_relaxed);
	atomic_store_explicit(&copy->state, head->state, memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&copy->stamp, stamp, memory_order_release);
	KV_FAULT_POINT();
}

#endif
