/*
 * From checksum to slot: a hash table of the images that can be found, chained through their slots.
 * The checksum is a hash already, so a piece of it is the bucket.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "offload/store_impl.h"
#include "proto/digest.h"
#include "proto/layout.h"

#define BUCKETS_MIN 1024u

static_assert(STORE_LAYOUT_BYTES <= KV_HASH_BYTES, "a piece of the hash");

uint64_t store_seed(const struct store_identity *identity)
{
	struct {
		char what[16];
		uint8_t layout[STORE_LAYOUT_BYTES];
		uint32_t uid, group, n_bytes, unused;
	} about = {"kvc-image-1", {0}, identity->uid, identity->group, identity->n_bytes, 0};

	static_assert(sizeof(about) == 48, "no gaps");
	memcpy(about.layout, identity->layout_hash, sizeof(about.layout));
	return XXH3_64bits(&about, sizeof(about));
}

void store_image_check(uint64_t seed, const void *image, size_t n_bytes, struct store_check *out)
{
	static_assert(KV_DIGEST_BYTES == sizeof(out->bytes), "128 bits");
	kv_hash_store(XXH3_128bits_withSeed(image, n_bytes, seed), out->bytes);
}

void images_fill(struct slot *slot, const struct store_identity *identity,
		 const struct store_check *check)
{
	slot->check = *check;
	memcpy(slot->layout, identity->layout_hash, sizeof(slot->layout));
	slot->uid = identity->uid;
	slot->group = identity->group;
	slot->n_bytes = identity->n_bytes;
}

bool images_equal(const struct slot *a, const struct slot *b)
{
	return memcmp(&a->check, &b->check, sizeof(a->check)) == 0 &&
	       memcmp(a->layout, b->layout, sizeof(a->layout)) == 0 && a->uid == b->uid &&
	       a->group == b->group && a->n_bytes == b->n_bytes;
}

static store_place *bucket_of(const struct store *store, const struct slot *slot)
{
	uint64_t hash;

	memcpy(&hash, slot->check.bytes, sizeof(hash));
	return &store->buckets[hash & (store->n_buckets - 1)];
}

static struct slot *slot_at(const struct store *store, store_place place)
{
	struct slots *slots;
	uint32_t i;

	return store_slot(store, place, &slots, &i);
}

static void put(struct store *store, store_place place, struct slot *slot)
{
	store_place *bucket = bucket_of(store, slot);

	slot->next_found = *bucket;
	*bucket = place;
}

int images_reserve(struct store *store, uint64_t n)
{
	uint64_t n_old = store->n_buckets, n_new = n_old ? n_old : BUCKETS_MIN;
	store_place *old = store->buckets, *buckets;

	while (n_new < n)
		n_new *= 2;
	if (n_new == n_old)
		return 0;
	buckets = calloc(n_new, sizeof(*buckets));
	if (!buckets)
		return -ENOMEM;
	store->buckets = buckets;
	store->n_buckets = n_new;
	for (uint64_t b = 0; b < n_old; b++) {
		for (store_place place = old[b], next; place; place = next) {
			struct slot *slot = slot_at(store, place);

			next = slot->next_found;
			put(store, place, slot);
		}
	}
	free(old);
	return 0;
}

store_place images_find(const struct store *store, const struct slot *like)
{
	store_place place = *bucket_of(store, like);

	while (place) {
		const struct slot *slot = slot_at(store, place);

		if (images_equal(slot, like))
			return place;
		place = slot->next_found;
	}
	return 0;
}

void images_add(struct store *store, store_place place)
{
	struct slot *slot = slot_at(store, place);

	if (images_find(store, slot))
		return;
	/* without memory for more buckets the chains become longer */
	if (store->n_found >= store->n_buckets)
		images_reserve(store, store->n_found + 1);
	put(store, place, slot);
	slot->is_found = true;
	store->n_found++;
}

void images_remove(struct store *store, store_place place)
{
	struct slot *slot = slot_at(store, place);
	store_place *at = bucket_of(store, slot);

	if (!slot->is_found)
		return;
	while (*at != place)
		at = &slot_at(store, *at)->next_found;
	*at = slot->next_found;
	slot->is_found = false;
	store->n_found--;
}
