#include "offload/store.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/store_impl.h"
#include "proto/fault.h"

void store_say(struct store *store, const char *format, ...)
{
	struct errbuf text = {0};
	va_list args;

	va_start(args, format);
	errbuf_setv(&text, 0, format, args);
	va_end(args);
	if (store->report)
		store->report(store->report_arg, text.text);
}

/* ---- places ------------------------------------------------------------------------------- */

struct slots *store_class(const struct store *store, uint64_t slot_bytes)
{
	for (uint32_t c = 0; c < store->n_classes; c++)
		if (store->classes[c].slot_bytes == slot_bytes)
			return (struct slots *)&store->classes[c];
	return NULL;
}

struct slot *store_slot(const struct store *store, store_place place, struct slots **slots,
			uint32_t *i)
{
	uint64_t number = place_slot(place);

	*slots = store_class(store, place_slot_bytes(place));
	if (!*slots || number >= (*slots)->n_slots)
		return NULL;
	*i = (uint32_t)number;
	return &(*slots)->all[*i];
}

int store_fd(const struct store *store, store_place place)
{
	struct slots *slots = store_class(store, place_slot_bytes(place));

	return slots ? slots->data_fd : -1;
}

uint64_t store_off(store_place place)
{
	return place_slot(place) * place_slot_bytes(place);
}

uint64_t store_room_bytes(store_place place)
{
	return place_slot_bytes(place);
}

uint32_t store_align(const struct store *store, store_place place)
{
	struct slots *slots = store_class(store, place_slot_bytes(place));

	return slots ? slots->align : STORE_PAGE;
}

/* ---- finding ------------------------------------------------------------------------------ */

store_place store_find(struct store *store, const struct store_identity *identity,
		       const struct store_check *check)
{
	struct slot like = {0};
	store_place place;

	store_account_failures(store);
	images_fill(&like, identity, check);
	place = images_find(store, &like);
	return place && store_use(store, place) ? place : 0;
}

store_place store_next(const struct store *store, store_place after, uint64_t *seed,
		       struct store_check *check, uint32_t *n_bytes)
{
	struct slots *at = NULL;
	uint32_t last = 0, c = 0;
	uint64_t i = 0;

	if (after && store_slot(store, after, &at, &last)) {
		c = (uint32_t)(at - store->classes);
		i = (uint64_t)last + 1;
	}
	for (; c < store->n_classes; c++, i = 0) {
		const struct slots *slots = &store->classes[c];

		for (; i < slots->n_slots; i++) {
			const struct slot *slot = &slots->all[i];

			if (slot->state != SLOT_READY)
				continue;
			*seed = store_seed(&(struct store_identity){slot->layout, slot->uid,
								    slot->group, slot->n_bytes});
			*check = slot->check;
			*n_bytes = slot->n_bytes;
			return place_make(slots, (uint32_t)i);
		}
	}
	return 0;
}

/* ---- writing ------------------------------------------------------------------------------ */

static struct slots *class_for(struct store *store, uint32_t n_bytes, struct errbuf *err)
{
	struct slots *slots;

	if (n_bytes == 0 || n_bytes > STORE_IMAGE_BYTES_MAX) {
		errbuf_set(err, n_bytes ? KV_ETOOBIG : KV_EINVAL,
			   "an image of %u bytes: a store takes 1 to %llu", n_bytes,
			   (unsigned long long)STORE_IMAGE_BYTES_MAX);
		return NULL;
	}
	slots = store_class(store, store_round_up(n_bytes));
	return slots ? slots : store_class_open(store, store_round_up(n_bytes), err);
}

store_place store_alloc(struct store *store, const struct store_identity *identity,
			const struct store_check *check, struct errbuf *err)
{
	struct slots *slots = class_for(store, identity->n_bytes, err);
	uint32_t i = slots ? room_take(store, slots, err) : SLOT_NONE;

	if (i == SLOT_NONE)
		return 0;
	images_fill(&slots->all[i], identity, check);
	return place_make(slots, i);
}

/* A mistake of ours: said, and nothing is done. */
static void refuse(struct store *store, const char *what, store_place place)
{
	store_say(store, "internal error: %s of place %#llx, which is not in that state", what,
		  (unsigned long long)place);
}

static struct slot *being_written(struct store *store, const char *what, store_place place,
				  struct slots **slots, uint32_t *i)
{
	struct slot *slot = store_slot(store, place, slots, i);

	if (slot && slot->state == SLOT_WRITING)
		return slot;
	refuse(store, what, place);
	return NULL;
}

int store_commit(struct store *store, store_place place, struct errbuf *err)
{
	struct slots *slots;
	uint32_t i;
	struct slot *slot = being_written(store, "commit", place, &slots, &i);
	int rc;

	if (!slot)
		return errbuf_set(err, KV_EINTERNAL, "commit of a place that is not being written");
	slot->number = store->next_image;
	slots_change(slots, i, SLOT_READY, 1);
	rc = slots_note(slots, i);
	if (rc) {
		slots_change(slots, i, SLOT_FREE, 0);
		return errbuf_errno(err, KV_EIO, -rc, "cannot write to %s/blocks-%u.index",
				    store->dir, slots->slot_bytes);
	}
	slots->data_is_dirty = true;
	images_add(store, place);
	store->last_image = store->next_image;
	if (store->next_image <
	    STORE_IMAGE_NUMBER_MAX) /* nobody gets there but by a forged index */
		store->next_image++;
	return 0;
}

void store_abort(struct store *store, store_place place)
{
	struct slots *slots;
	uint32_t i;

	if (being_written(store, "abort", place, &slots, &i))
		slots_change(slots, i, SLOT_FREE, 0);
}

/* ---- using -------------------------------------------------------------------------------- */

bool store_use(struct store *store, store_place place)
{
	struct slots *slots;
	uint32_t i;
	struct slot *slot = store_slot(store, place, &slots, &i);

	/* one that is damaged gets no new users, unless it has some */
	if (!slot || slot->n_uses == UINT32_MAX ||
	    !(slot->state == SLOT_READY || (slot->state == SLOT_DROPPED && slot->n_uses)))
		return false;
	slots_change(slots, i, (enum slot_state)slot->state, slot->n_uses + 1);
	return true;
}

void store_unuse(struct store *store, store_place place)
{
	struct slots *slots;
	uint32_t i;
	struct slot *slot = store_slot(store, place, &slots, &i);

	if (!slot || !slot->n_uses || slot->state == SLOT_WRITING) {
		refuse(store, "unuse", place);
		return;
	}
	slots_change(slots, i, (enum slot_state)slot->state, slot->n_uses - 1);
	/* what is not found is of no use to anybody; if its record cannot be cleared, it is
	 * cached, and tried again when its slot is wanted */
	if (!slot->n_uses && !slot->is_found)
		room_forget(store, slots, i);
}

void store_drop(struct store *store, store_place place)
{
	struct slots *slots;
	uint32_t i;
	struct slot *slot = store_slot(store, place, &slots, &i);

	if (slot && slot->state == SLOT_DROPPED)
		return; /* another reader of it was faster */
	if (!slot || slot->state != SLOT_READY) {
		refuse(store, "drop", place);
		return;
	}
	images_remove(store, place);
	slots_change(slots, i, SLOT_DROPPED, slot->n_uses);
	slots_note(slots, i);
	if (!slot->n_uses)
		room_forget(store, slots, i);
}

/* ---- durability --------------------------------------------------------------------------- */

int store_flush(struct store *store)
{
	uint64_t last;
	int rc = 0;

	pthread_mutex_lock(&store->flush_lock);
	last = store->last_image;
	for (uint32_t c = 0; c < store->n_classes; c++) {
		int one = slots_sync(&store->classes[c]);

		rc = rc ? rc : one;
	}
	if (store->folder_is_dirty) {
		store->folder_is_dirty = false;
		KV_FAULT_POINT();
		if (fsync(store->dir_fd)) {
			rc = rc ? rc : -errno;
			store->folder_is_dirty = true;
		}
		KV_FAULT_POINT();
	}
	if (rc)
		store->n_failures++;
	else if (store->n_failures == store->n_accounted)
		store->flushed = last;
	pthread_mutex_unlock(&store->flush_lock);
	return rc;
}

void store_account_failures(struct store *store)
{
	uint64_t flushed = store->flushed, n_dropped = 0, n_seen = store->n_failures;

	if (n_seen == store->n_accounted)
		return;
	for (uint32_t c = 0; c < store->n_classes; c++) {
		struct slots *slots = &store->classes[c];

		for (uint64_t i = 0; i < slots->n_slots; i++) {
			if (slots->all[i].state != SLOT_READY || slots->all[i].number <= flushed)
				continue;
			store_drop(store, place_make(slots, (uint32_t)i));
			n_dropped++;
		}
	}
	store->n_accounted = (uint32_t)n_seen;
	store_say(store,
		  "%s: the disk failed when images were to be made durable; %llu of them do not "
		  "count",
		  store->dir, (unsigned long long)n_dropped);
}

/* ---- figures ------------------------------------------------------------------------------ */

void store_stats(const struct store *store, struct store_stats *stats)
{
	*stats = (struct store_stats){
		.max_bytes = store->max_bytes,
		.n_saved = store->n_saved,
		.n_set_aside = store->n_set_aside,
		.is_full = store->is_full,
	};
	for (uint32_t c = 0; c < store->n_classes; c++) {
		const struct slots *slots = &store->classes[c];
		uint64_t n_there = slots->n_slots - slots->holes.n;

		stats->file_bytes += n_there * slots->slot_bytes;
		stats->free_bytes += (uint64_t)slots->free.n * slots->slot_bytes;
		stats->cached_bytes += (uint64_t)slots->cached.n * slots->slot_bytes;
		stats->used_bytes += (n_there - slots->free.n - slots->cached.n) *
				     slots->slot_bytes;
		stats->n_images += slots->n_ready;
	}
}
