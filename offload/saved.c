/*
 * The saved snapshots that are there: by number in memory, a file each in saved/. Each of their
 * places has one use of its own, from the moment that it is packed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store_impl.h"
#include "offload/whole_file.h"

struct saved_file {
	struct store *store;
	struct saved_file *next; /* of the store's pending ones */
	struct saved_entry *entry;
	int dir_fd;
	void *bytes;
	size_t n_bytes;
	uint32_t n_failures; /* of flushes, when it was packed */
	bool is_there;       /* the file is in place */
};

static struct saved_entry *entry_of(const struct saved *saved)
{
	return (struct saved_entry *)saved;
}

/* ---- places ------------------------------------------------------------------------------- */

bool saved_each_place(const Kv__Saved__Saved *head, const uint8_t layout[STORE_LAYOUT_BYTES],
		      bool (*fn)(struct store *store, store_place place, const struct slot *image,
				 void *arg),
		      struct store *store, void *arg)
{
	for (uint32_t g = 0; g < head->n_groups; g++) {
		const Kv__Saved__Group *group = head->groups[g];
		const struct store_identity identity = {layout, head->uid, g, group->image_bytes};

		for (size_t i = 0; i < group->n_places; i++) {
			struct slot image = {0};
			struct store_check check;

			memcpy(check.bytes, group->checks.data + i * sizeof(check), sizeof(check));
			images_fill(&image, &identity, &check);
			if (!fn(store, group->places[i], &image, arg))
				return false;
		}
	}
	return true;
}

static uint64_t image_bytes_of(const Kv__Saved__Saved *head)
{
	uint64_t sum = 0;

	for (uint32_t g = 0; g < head->n_groups; g++)
		sum += (uint64_t)head->groups[g]->n_places * head->groups[g]->image_bytes;
	return sum;
}

static bool unuse_place(struct store *store, store_place place, const struct slot *image, void *arg)
{
	uint64_t *n_left = arg;

	(void)image;
	if (!*n_left)
		return false;
	--*n_left;
	store_unuse(store, place);
	return true;
}

/* The first n uses go. */
static void unuse_places(struct store *store, const struct saved_entry *entry, uint64_t n)
{
	saved_each_place(entry->saved.head, entry->saved.layout_hash, unuse_place, store, &n);
}

static bool use_place(struct store *store, store_place place, const struct slot *image, void *arg)
{
	uint64_t *n_used = arg;
	struct slots *slots;
	uint32_t i;
	struct slot *slot = store_slot(store, place, &slots, &i);

	if (!slot || slot->state != SLOT_READY || !slot->n_uses || !images_equal(slot, image) ||
	    !store_use(store, place))
		return false;
	++*n_used;
	return true;
}

static int use_places(struct store *store, const struct saved_entry *entry, struct errbuf *err)
{
	uint64_t n_used = 0;

	if (saved_each_place(entry->saved.head, entry->saved.layout_hash, use_place, store,
			     &n_used))
		return 0;
	unuse_places(store, entry, n_used);
	return errbuf_set(err, KV_EIO,
			  "image %llu of %s is not in the store (any more): the disk failed, or it "
			  "was damaged; save again",
			  (unsigned long long)n_used, entry->saved.head->name);
}

/* ---- entries ------------------------------------------------------------------------------ */

void saved_entry_free(struct saved_entry *entry)
{
	if (!entry)
		return;
	kv__saved__saved__free_unpacked(entry->saved.head, NULL);
	free(entry);
}

/* Position of the first with a higher number. */
static size_t position_behind(const struct store *store, uint64_t number)
{
	size_t from = 0, to = store->n_saved;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (store->saved[middle]->saved.head->number <= number)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

int saved_reserve(struct store *store, size_t n)
{
	size_t n_room = 2 * n;
	struct saved_entry **saved;

	if (n <= store->n_saved_room)
		return 0;
	saved = reallocarray(store->saved, n_room, sizeof(struct saved_entry *));
	if (!saved)
		return -ENOMEM;
	store->saved = saved;
	store->n_saved_room = n_room;
	return 0;
}

void saved_insert(struct store *store, struct saved_entry *entry)
{
	size_t at = position_behind(store, entry->saved.head->number);

	memmove(&store->saved[at + 1], &store->saved[at],
		(store->n_saved - at) * sizeof(struct saved_entry *));
	store->saved[at] = entry;
	store->n_saved++;
}

/* Nobody finds it any more; it goes, or its last reader makes it go. */
static void take_out(struct store *store, struct saved_entry *entry)
{
	size_t at = 0;

	while (store->saved[at] != entry)
		at++;
	store->n_saved--;
	memmove(&store->saved[at], &store->saved[at + 1],
		(store->n_saved - at) * sizeof(struct saved_entry *));
	entry->saved.is_replaced = true;
	saved_hold(&entry->saved);
	saved_release(store, &entry->saved);
}

void saved_hold(struct saved *saved)
{
	saved->n_readers++;
}

void saved_release(struct store *store, struct saved *saved)
{
	if (!saved->n_readers) {
		store_say(store, "internal error: a saved snapshot was let go once too often");
		return;
	}
	if (--saved->n_readers || !saved->is_replaced)
		return;
	unuse_places(store, entry_of(saved), UINT64_MAX);
	saved_entry_free(entry_of(saved));
}

void saved_free_all(struct store *store)
{
	for (size_t i = 0; i < store->n_saved; i++)
		saved_entry_free(store->saved[i]);
	free(store->saved);
	store->saved = NULL;
	store->n_saved = 0;
}

struct saved *store_saved_find(struct store *store, uint32_t uid, const char *name)
{
	for (size_t i = 0; i < store->n_saved; i++) {
		const Kv__Saved__Saved *head = store->saved[i]->saved.head;

		if (head->uid == uid && strcmp(head->name, name) == 0)
			return &store->saved[i]->saved;
	}
	return NULL;
}

struct saved *store_saved_next(struct store *store, uint32_t uid, uint64_t after)
{
	for (size_t i = position_behind(store, after); i < store->n_saved; i++)
		if (store->saved[i]->saved.head->uid == uid)
			return &store->saved[i]->saved;
	return NULL;
}

/* ---- saving ------------------------------------------------------------------------------- */

/* A copy of the head with the sizes of the images, which the slots know. */
struct sized_head {
	Kv__Saved__Saved head;
	Kv__Saved__Group groups[KV_GROUPS_MAX], *pointers[KV_GROUPS_MAX];
};

static int size_head(const struct store *store, const Kv__Saved__Saved *head,
		     struct sized_head *sized, struct errbuf *err)
{
	sized->head = *head;
	sized->head.groups = sized->pointers;
	if (head->n_groups > KV_GROUPS_MAX)
		return errbuf_set(err, KV_EINTERNAL, "a saved state of %zu groups", head->n_groups);
	for (size_t g = 0; g < head->n_groups; g++) {
		struct slot *slot = NULL;
		struct slots *slots;
		uint32_t i;

		sized->pointers[g] = &sized->groups[g];
		sized->groups[g] = *head->groups[g];
		if (head->groups[g]->n_places)
			slot = store_slot(store, head->groups[g]->places[0], &slots, &i);
		sized->groups[g].image_bytes = slot ? slot->n_bytes : 0;
	}
	return 0;
}

static size_t count_pending(const struct store *store)
{
	size_t n = 0;

	for (const struct saved_file *f = store->pending; f; f = f->next)
		n++;
	return n;
}

static bool is_pending(const struct store *store, const char *file_name)
{
	for (const struct saved_file *f = store->pending; f; f = f->next)
		if (strcmp(f->entry->file_name, file_name) == 0)
			return true;
	return false;
}

static int check_not_pending(const struct store *store, const struct saved_entry *entry,
			     struct errbuf *err)
{
	if (is_pending(store, entry->file_name))
		return errbuf_set(err, KV_EBUSY, "%s is being saved; try again when that is done",
				  entry->saved.head->name);
	return 0;
}

struct saved_entry *saved_entry_from(const void *bytes, size_t n_bytes, struct errbuf *err)
{
	struct saved_entry *entry = calloc(1, sizeof(*entry));

	if (!entry) {
		errbuf_set(err, KV_ENOMEM, "no memory for a saved snapshot");
		return NULL;
	}
	entry->saved.head = saved_parse(bytes, n_bytes, entry->saved.layout_hash, err);
	if (!entry->saved.head) {
		free(entry);
		return NULL;
	}
	entry->saved.n_bytes = image_bytes_of(entry->saved.head);
	saved_file_name(entry->saved.head->uid, entry->saved.head->name, entry->file_name);
	return entry;
}

struct saved_file *store_saved_pack(struct store *store, const Kv__Saved__Saved *head,
				    struct errbuf *err)
{
	struct saved_file *file = calloc(1, sizeof(*file));
	struct sized_head sized;

	store_account_failures(store);
	if (!file || saved_reserve(store, store->n_saved + count_pending(store) + 1)) {
		errbuf_set(err, KV_ENOMEM, "no memory for a saved snapshot");
		goto fail;
	}
	file->store = store;
	file->dir_fd = store->saved_fd;
	file->n_failures = store->n_failures;
	if (size_head(store, head, &sized, err) ||
	    saved_pack(&sized.head, &file->bytes, &file->n_bytes, err))
		goto fail;
	/* from the bytes: what is taken up is what will be read */
	file->entry = saved_entry_from(file->bytes, file->n_bytes, err);
	if (!file->entry || check_not_pending(store, file->entry, err) ||
	    use_places(store, file->entry, err))
		goto fail;
	file->next = store->pending;
	store->pending = file;
	return file;
fail:
	if (file) {
		saved_entry_free(file->entry);
		free(file->bytes);
	}
	free(file);
	return NULL;
}

int store_saved_write(struct saved_file *file)
{
	/* images that were not durable when it was packed may be lost, see store_flush() */
	if (file->n_failures != file->store->n_failures)
		return -EIO;
	return whole_file_write(file->dir_fd, file->entry->file_name, file->bytes, file->n_bytes,
				&file->is_there);
}

static void unlink_pending(struct saved_file *file)
{
	struct saved_file **at = &file->store->pending;

	while (*at != file)
		at = &(*at)->next;
	*at = file->next;
}

static void take_up(struct saved_file *file)
{
	struct store *store = file->store;
	const Kv__Saved__Saved *head = file->entry->saved.head;
	struct saved *old = store_saved_find(store, head->uid, head->name);

	unlink_pending(file);
	saved_insert(store, file->entry); /* has room since it was packed */
	file->entry = NULL;
	if (old)
		take_out(store, entry_of(old));
}

int store_saved_add(struct saved_file *file, struct errbuf *err)
{
	if (!file->is_there || !file->entry)
		return errbuf_set(err, KV_EINTERNAL, "a saved snapshot that was not written");
	take_up(file);
	return 0;
}

void saved_file_free(struct saved_file *file)
{
	if (!file)
		return;
	/* its file has replaced the old one, although the folder could not be synced or nobody
	 * wanted it any more: memory says what the disk says */
	if (file->entry && file->is_there)
		take_up(file);
	if (file->entry) {
		unlink_pending(file);
		unuse_places(file->store, file->entry, UINT64_MAX);
		saved_entry_free(file->entry);
	}
	free(file->bytes);
	free(file);
}

static bool names_place(const Kv__Saved__Saved *head, store_place place)
{
	for (size_t g = 0; g < head->n_groups; g++)
		for (size_t i = 0; i < head->groups[g]->n_places; i++)
			if (head->groups[g]->places[i] == place)
				return true;
	return false;
}

struct saved *store_saved_naming(struct store *store, store_place place)
{
	for (size_t i = 0; i < store->n_saved; i++)
		if (names_place(store->saved[i]->saved.head, place))
			return &store->saved[i]->saved;
	return NULL;
}

uint64_t store_saved_number(struct store *store)
{
	uint64_t number = store->next_number++;

	if (store->next_number > store->about.next_number)
		store_write_about(store); /* if it fails: the files that are there say enough */
	return number;
}

/* ---- removing ----------------------------------------------------------------------------- */

int store_saved_remove(struct store *store, struct saved *saved, struct errbuf *err)
{
	struct saved_entry *entry = entry_of(saved);
	bool is_gone;
	int rc;

	if (saved->is_replaced)
		return errbuf_set(err, KV_EINTERNAL, "a saved snapshot that has gone already");
	if (check_not_pending(store, entry, err))
		return -1;
	rc = whole_file_remove(store->saved_fd, entry->file_name, &is_gone);
	if (!is_gone)
		return errbuf_errno(err, KV_EIO, -rc, "cannot remove %s/saved/%s", store->dir,
				    entry->file_name);
	if (rc)
		store_say(store,
			  "%s/saved cannot be synced (%s): after a power cut %s may be there again",
			  store->dir, strerror(-rc), saved->head->name);
	take_out(store, entry);
	return 0;
}

void saved_set_file_aside(struct store *store, const char *file_name, const char *why)
{
	int rc = whole_file_set_aside(store->saved_fd, file_name);

	store->n_set_aside++;
	store_say(store, "%s/saved/%s is set aside as %s%s: %s%s%s", store->dir, file_name,
		  file_name, WHOLE_FILE_ASIDE, why, rc ? "; renaming it: " : "",
		  rc ? strerror(-rc) : "");
}

void store_saved_set_aside(struct store *store, struct saved *saved, const char *why)
{
	struct saved_entry *entry = entry_of(saved);

	if (saved->is_replaced)
		return;
	if (!is_pending(store, entry->file_name))
		saved_set_file_aside(store, entry->file_name, why);
	take_out(store, entry);
}
