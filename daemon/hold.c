#include "daemon/hold.h"

#include <errno.h>
#include <unistd.h>

/* A client that flips its word as fast as it can must not keep the core here. */
#define SWAP_TRIES 100

int hold_try(struct kv_shm_writer *writer)
{
	for (int i = 0; i < SWAP_TRIES; i++) {
		uint64_t word = kv_word_load(writer);
		uint64_t generation = kv_word_generation(word), update = kv_word_update(word);

		switch (kv_word_state(word)) {
		case KV_HELD:
			/* What is written under the hold is not seen before it. */
			atomic_thread_fence(memory_order_release);
			return 0;
		case KV_WANTED: return -EAGAIN;
		case KV_OPEN:
			if (kv_word_swap(writer, word, kv_word(KV_WANTED, generation, update)))
				return -EAGAIN;
			break;
		case KV_IDLE:
			/* Held: the next round says so. */
			kv_word_swap(writer, word, kv_word(KV_HELD, generation, update));
			break;
		}
	}
	return -EAGAIN;
}

/* Moves `from` to `to` with the numbers that are there (plus those given). */
static bool move(struct kv_shm_writer *writer, enum kv_word_state from, enum kv_word_state to,
		 uint64_t add_generation, uint64_t add_update)
{
	for (int i = 0; i < SWAP_TRIES; i++) {
		uint64_t word = kv_word_load(writer);
		uint64_t next = kv_word(to, kv_word_generation(word) + add_generation,
					kv_word_update(word) + add_update);

		if (kv_word_state(word) != from)
			return false;
		KV_FAULT_POINT();
		if (kv_word_swap(writer, word, next)) {
			KV_FAULT_POINT();
			return true;
		}
	}
	return false;
}

void hold_cancel(struct kv_shm_writer *writer)
{
	if (!move(writer, KV_WANTED, KV_OPEN, 0, 0))
		move(writer, KV_HELD, KV_IDLE, 0, 0);
}

uint64_t hold_update(struct kv_shm_writer *writer)
{
	return kv_word_update(kv_word_load(writer));
}

int hold_freeze(const struct segment *segment, struct seg_place *place,
		const struct kv_layout *layout, const struct seg_state *state, bool *bumped,
		struct errbuf *err)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);
	uint64_t count = atomic_load_explicit(&shm->freeze_count, memory_order_relaxed);

	*bumped = false;
	if (place->frozen_stamp == state->stamp)
		return 0; /* nothing was committed since: what is frozen is all there is */
	if (count >= KV_REF_FREEZE_MAX)
		return errbuf_set(
			err, KV_ELIMIT,
			"the sequence was frozen %llu times, the limit; fork it and go on "
			"with the fork",
			(unsigned long long)count);
	kv_place_freeze(shm, layout, &state->head);
	place->frozen_stamp = state->stamp;
	*bumped = true;
	return 0;
}

void hold_rollback(const struct segment *segment, const struct seg_place *place,
		   const struct seg_state *state, uint64_t length_tokens)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);
	struct kv_head head = state->head;

	hold_clear(segment, place);
	head.position -= head.length_tokens - length_tokens;
	head.length_tokens = head.base_tokens = length_tokens;
	while (head.n_marks && state->marks[head.n_marks - 1].length_tokens > length_tokens)
		head.n_marks--;
	kv_head_store(&shm->copy[kv_head_older(shm, state->update)], &head, state->update + 1);
}

void hold_release(struct kv_shm_writer *writer, bool advanced)
{
	move(writer, KV_HELD, KV_IDLE, 1, advanced);
}

static void clear_stamp(_Atomic uint64_t *stamp, uint64_t update)
{
	if (atomic_load_explicit(stamp, memory_order_relaxed) > update)
		atomic_store_explicit(stamp, 0, memory_order_relaxed);
}

/* Clears stamps of the entries in [off, end), which lie in pages that are really there. */
static void clear_entries(const struct segment *segment, uint64_t off, uint64_t end,
			  uint64_t update)
{
	struct kv_shm_entry *entry = (void *)((char *)segment->base + off);
	struct kv_shm_entry *last = (void *)((char *)segment->base + end);

	for (; entry < last; entry++)
		clear_stamp(&entry->stamp, update);
}

/* Walks the pages of a table that exist; reading a hole would make a page of it. */
static void clear_table(const struct segment *segment, uint64_t off, uint64_t end, uint64_t update)
{
	while (off < end) {
		off_t data = lseek(segment->fd, (off_t)off, SEEK_DATA);
		off_t hole;

		if (data < 0 || (uint64_t)data >= end)
			return;
		hole = lseek(segment->fd, data, SEEK_HOLE);
		if (hole < 0 || (uint64_t)hole > end)
			hole = (off_t)end;
		clear_entries(segment, (uint64_t)data, (uint64_t)hole, update);
		off = (uint64_t)hole;
	}
}

void hold_clear(const struct segment *segment, const struct seg_place *place)
{
	struct kv_shm_place *shm = segment_place(segment, place->index);
	uint64_t update = hold_update(segment_writer(segment, place->writer));

	clear_stamp(&shm->copy[0].stamp, update);
	clear_stamp(&shm->copy[1].stamp, update);
	for (uint32_t g = 0; g < place->n_groups; g++) {
		uint64_t off = place->table_off[g];

		clear_table(segment, off,
			    off + 2 * (uint64_t)place->n_entries[g] * sizeof(struct kv_shm_entry),
			    update);
	}
}

uint64_t hold_outcome(const struct kv_shm_writer *writer, bool *is_open)
{
	uint64_t word = atomic_load_explicit(&writer->word, memory_order_acquire);
	uint64_t update = kv_word_update(word);

	*is_open = kv_word_state(word) == KV_OPEN || kv_word_state(word) == KV_WANTED;
	if (*is_open && atomic_load_explicit(&writer->decided, memory_order_acquire) == update + 1)
		update++;
	return update;
}

uint64_t hold_bury(struct kv_shm_writer *writer)
{
	uint64_t generation = kv_word_generation(kv_word_load(writer));
	bool is_open;
	uint64_t update = hold_outcome(writer, &is_open);

	KV_FAULT_POINT();
	atomic_store_explicit(&writer->word, kv_word(KV_IDLE, generation + 1, update),
			      memory_order_release);
	KV_FAULT_POINT();
	return update;
}

void hold_recover(struct kv_shm_writer *writer, bool *was_held)
{
	move(writer, KV_WANTED, KV_OPEN, 0, 0);
	*was_held = kv_word_state(kv_word_load(writer)) == KV_HELD;
}
