/*
 * Where slots come from, in this order: one that is free; room on the disk, up to the limit; the
 * oldest image that nobody uses: one of the same size gives its slot, those of other sizes give
 * room back to the disk, of which slots are then made.
 */
#include <errno.h>
#include <string.h>

#include "offload/store_impl.h"

#define STEP_BYTES (UINT64_C(64) << 20) /* that a slot file grows by */
#define STEP_SLOTS 8u                   /* at least */

static uint64_t file_bytes(const struct store *store)
{
	uint64_t sum = 0;

	for (uint32_t c = 0; c < store->n_classes; c++)
		sum += (store->classes[c].n_slots - store->classes[c].holes.n) *
		       store->classes[c].slot_bytes;
	return sum;
}

static uint64_t bytes_left(const struct store *store)
{
	uint64_t taken = file_bytes(store);

	return taken < store->max_bytes ? store->max_bytes - taken : 0;
}

/* The file grows by a step, or by as much of one as there is room for. */
static int grow(struct store *store, struct slots *slots)
{
	uint64_t n = STEP_BYTES / slots->slot_bytes, most = bytes_left(store) / slots->slot_bytes;
	int rc;

	if (n < STEP_SLOTS)
		n = STEP_SLOTS;
	if (n > most)
		n = most;
	do {
		rc = slots_grow(slots, n, store->preallocate);
		n /= 2;
	} while ((rc == -ENOSPC || rc == -EDQUOT) && n);
	return rc;
}

/* At least one slot becomes free by taking room on the disk. 0, -E2BIG it would be more than the
 * limit, or -errno of the disk. */
static int take_from_disk(struct store *store, struct slots *slots)
{
	int rc;

	if (bytes_left(store) < slots->slot_bytes)
		return -E2BIG;
	rc = slots->holes.n ? slots_fill(slots, slots->holes.first, store->preallocate) :
			      grow(store, slots);
	store->is_full = rc != 0;
	return rc;
}

int room_forget(struct store *store, struct slots *slots, uint32_t i)
{
	enum slot_state state = (enum slot_state)slots->all[i].state;
	int rc;

	slots_change(slots, i, SLOT_FREE, 0);
	rc = slots_note(slots, i);
	if (rc)
		slots_change(slots, i, state, 0);
	else
		images_remove(store, place_make(slots, i));
	return rc;
}

/* ---- room of other sizes ------------------------------------------------------------------ */

static uint64_t age_of(const struct slots *slots)
{
	return slots->all[slots->cached.first].number;
}

/* The size of which something can go with the least harm; NULL: none. */
static struct slots *victim(struct store *store, const struct slots *not_this)
{
	struct slots *best = NULL;

	for (uint32_t c = 0; c < store->n_classes; c++) {
		struct slots *slots = &store->classes[c];

		if (slots == not_this)
			continue;
		if (slots->free.n)
			return slots;
		if (slots->cached.n && (!best || age_of(slots) < age_of(best)))
			best = slots;
	}
	return best;
}

static int give_back_one(struct store *store, struct slots *slots)
{
	int rc = 0;

	if (!slots->free.n)
		rc = room_forget(store, slots, slots->cached.first);
	return rc ? rc : slots_punch(slots, slots->free.first);
}

void room_fit(struct store *store)
{
	while (file_bytes(store) > store->max_bytes) {
		struct slots *slots = victim(store, NULL);

		if (!slots || give_back_one(store, slots))
			break;
	}
	if (file_bytes(store) > store->max_bytes)
		store_say(store,
			  "%s: the slot files take %llu MiB, more than the limit of %llu MiB; what "
			  "is above it is used by saved snapshots",
			  store->dir, (unsigned long long)file_bytes(store) >> 20,
			  (unsigned long long)store->max_bytes >> 20);
}

/* ---- taking ------------------------------------------------------------------------------- */

static uint64_t used_bytes(const struct store *store)
{
	struct store_stats stats;

	store_stats(store, &stats);
	return stats.used_bytes;
}

static int fail_full(struct store *store, const struct slots *slots, int rc, struct errbuf *err)
{
	if (rc == -E2BIG)
		return errbuf_set(err, KV_EPOOL,
				  "the store %s is full: %llu of at most %llu MiB are used, and an "
				  "image takes %u KiB more; remove saved snapshots or raise the "
				  "limit",
				  store->dir, (unsigned long long)used_bytes(store) >> 20,
				  (unsigned long long)store->max_bytes >> 20,
				  slots->slot_bytes >> 10);
	return errbuf_errno(err, rc == -ENOMEM ? KV_ENOMEM : KV_EIO, -rc,
			    "the store %s cannot take %u KiB more of the disk (its slot files "
			    "have %llu MiB); free room on it or remove saved snapshots",
			    store->dir, slots->slot_bytes >> 10,
			    (unsigned long long)file_bytes(store) >> 20);
}

/* Has another size something that would be missed less than our oldest image? */
static bool others_first(struct store *store, const struct slots *slots)
{
	const struct slots *other = victim(store, slots);

	return other && (!slots->cached.n || other->free.n || age_of(other) < age_of(slots));
}

static int make_one_free(struct store *store, struct slots *slots)
{
	int rc;

	if (slots->free.n)
		return 0;
	rc = take_from_disk(store, slots);
	while (rc && others_first(store, slots) && !give_back_one(store, victim(store, slots)))
		rc = take_from_disk(store, slots);
	if (rc && slots->cached.n)
		rc = room_forget(store, slots, slots->cached.first);
	return rc;
}

uint32_t room_take(struct store *store, struct slots *slots, struct errbuf *err)
{
	int rc = make_one_free(store, slots);
	uint32_t i = slots->free.first;

	if (rc) {
		fail_full(store, slots, rc, err);
		return SLOT_NONE;
	}
	slots_change(slots, i, SLOT_WRITING, 1);
	return i;
}
