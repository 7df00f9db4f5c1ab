/*
 * When a store is opened: what the saved snapshots say about slots, against what the index says.
 *
 * A saved snapshot claims slots. Its file was written behind its images and their records, and
 * synced behind them, so it is believed where the index says nothing. Where two contradict:
 *
 *	an index that was written in order    the index is right: what it names was written there
 *	                                      later; the snapshot is set aside
 *	another index                         the snapshot is right, and the record is made again
 *	two snapshots, one slot               that with the higher number is right
 *
 * Whatever is decided, readers ask the bytes. Then what nobody claims: images of an index that was
 * not written in order (the power was cut; an older file lies there) are forgotten, for a save that
 * finds one would believe it without reading it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store_impl.h"

/* ---- one claim ---------------------------------------------------------------------------- */

struct claim {
	uint64_t n_made; /* uses so far */
	char why[160];   /* not */
	bool is_out_of_memory;
};

static bool fail(struct claim *claim, store_place place, const char *why)
{
	snprintf(claim->why, sizeof(claim->why), "image %llu, in slot %llu of %llu bytes: %s",
		 (unsigned long long)claim->n_made, (unsigned long long)place_slot(place),
		 (unsigned long long)place_slot_bytes(place), why);
	return false;
}

/* The slot of a claim, be it that the index did not reach that far. */
static struct slot *claimed_slot(struct store *store, store_place place, const struct slot *image,
				 struct slots **slots, bool *is_out_of_memory)
{
	uint64_t number = place_slot(place);

	*slots = store_class(store, place_slot_bytes(place));
	if (!*slots || (*slots)->slot_bytes != store_round_up(image->n_bytes) ||
	    number >= (*slots)->n_in_file)
		return NULL;
	*is_out_of_memory = slots_reach(*slots, number + 1) != 0;
	return *is_out_of_memory ? NULL : &(*slots)->all[number];
}

static bool claim_place(struct store *store, store_place place, const struct slot *image, void *arg)
{
	struct claim *claim = arg;
	struct slots *slots;
	struct slot *slot = claimed_slot(store, place, image, &slots, &claim->is_out_of_memory);

	if (!slot)
		return fail(claim, place, "there is no such slot");
	if (slot->state != SLOT_READY || !images_equal(slot, image)) {
		if (slot->n_uses)
			return fail(claim, place, "a later saved snapshot has it");
		if (slot->state == SLOT_READY && slots->is_trusted)
			return fail(claim, place, "it holds a later image");
		*slot = *image;
		slot->state = SLOT_READY;
		slot->number = store->next_image++;
		slot->is_remade = true;
		slots->is_stale = true;
	}
	slot->n_uses++;
	claim->n_made++;
	return true;
}

static bool unclaim_place(struct store *store, store_place place, const struct slot *image,
			  void *arg)
{
	struct claim *claim = arg;
	struct slots *slots;
	struct slot *slot;

	if (!claim->n_made)
		return false;
	claim->n_made--;
	slot = claimed_slot(store, place, image, &slots, &claim->is_out_of_memory);
	if (!--slot->n_uses && slot->is_remade)
		*slot = (struct slot){.state = SLOT_FREE};
	return true;
}

static int claim(struct store *store, struct saved_entry *entry, struct errbuf *err)
{
	const Kv__Saved__Saved *head = entry->saved.head;
	struct claim claim = {0};

	if (saved_each_place(head, entry->saved.layout_hash, claim_place, store, &claim)) {
		saved_insert(store, entry);
		return 0;
	}
	if (claim.is_out_of_memory)
		return errbuf_set(err, KV_ENOMEM, "no memory for the slots of %s",
				  entry->saved.head->name);
	saved_each_place(head, entry->saved.layout_hash, unclaim_place, store, &claim);
	saved_set_file_aside(store, entry->file_name, claim.why);
	saved_entry_free(entry);
	return 0;
}

/* ---- all of them -------------------------------------------------------------------------- */

static int higher_first(const void *a, const void *b)
{
	uint64_t x = (*(struct saved_entry *const *)a)->saved.head->number;
	uint64_t y = (*(struct saved_entry *const *)b)->saved.head->number;

	return x > y ? -1 : x < y;
}

static void note_images(struct store *store)
{
	for (uint32_t c = 0; c < store->n_classes; c++)
		for (uint64_t i = 0; i < store->classes[c].n_slots; i++)
			if (store->classes[c].all[i].number >= store->next_image)
				store->next_image = store->classes[c].all[i].number + 1;
	if (store->next_image > STORE_IMAGE_NUMBER_MAX)
		store->next_image = STORE_IMAGE_NUMBER_MAX;
}

/* Those in use first: of two slots with one image, one that is free to go is forgotten. */
static uint64_t index_images(struct store *store, struct slots *slots, bool in_use)
{
	uint64_t n_forgotten = 0;

	for (uint64_t i = 0; i < slots->n_slots; i++) {
		struct slot *slot = &slots->all[i];

		if (slot->state != SLOT_READY || (slot->n_uses > 0) != in_use)
			continue;
		if (in_use || slots->is_trusted)
			images_add(store, place_make(slots, (uint32_t)i));
		if (in_use || slot->is_found)
			continue;
		*slot = (struct slot){.state = SLOT_FREE};
		slots->is_stale = true;
		n_forgotten++;
	}
	return n_forgotten;
}

static uint64_t index_all(struct store *store, bool in_use)
{
	uint64_t n_forgotten = 0;

	for (uint32_t c = 0; c < store->n_classes; c++)
		n_forgotten += index_images(store, &store->classes[c], in_use);
	return n_forgotten;
}

int claims_settle(struct store *store, struct saved_entry **entries, size_t n, struct errbuf *err)
{
	uint64_t n_images = 0, n_forgotten;

	if (saved_reserve(store, n))
		return errbuf_set(err, KV_ENOMEM, "no memory for %zu saved snapshots", n);
	note_images(store);
	if (n)
		qsort(entries, n, sizeof(struct saved_entry *), higher_first);
	for (size_t i = 0; i < n; i++) {
		if (entries[i]->saved.head->number >= store->next_number)
			store->next_number = entries[i]->saved.head->number + 1;
		if (claim(store, entries[i], err))
			return -1;
		entries[i] = NULL;
	}
	for (uint32_t c = 0; c < store->n_classes; c++)
		n_images += store->classes[c].n_slots;
	if (images_reserve(store, n_images))
		return errbuf_set(err, KV_ENOMEM, "no memory for %llu images",
				  (unsigned long long)n_images);
	index_all(store, true);
	n_forgotten = index_all(store, false);
	if (n_forgotten)
		store_say(store,
			  "%s: %llu images that no saved snapshot uses are forgotten: their index "
			  "was not closed in order, or they are there twice",
			  store->dir, (unsigned long long)n_forgotten);
	return 0;
}
