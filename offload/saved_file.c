#include "offload/saved_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "offload/whole_file.h"
#include "proto/digest.h"
#include "proto/layout.h"
#include "proto/layout_wire.h"
#include "proto/runtime.h"

/* ---- names -------------------------------------------------------------------------------- */

void saved_file_name(uint32_t uid, const char *name, char out[SAVED_FILE_NAME_BYTES])
{
	uint8_t hash[SAVED_HASH_BYTES];
	size_t n = (size_t)snprintf(out, SAVED_FILE_NAME_BYTES, "%u-", uid);

	crypto_generichash(hash, sizeof(hash), (const uint8_t *)name, strlen(name), NULL, 0);
	sodium_bin2hex(out + n, SAVED_FILE_NAME_BYTES - n, hash, sizeof(hash));
}

bool saved_file_name_fits(const char *file_name)
{
	size_t n_digits = strspn(file_name, "0123456789");
	const char *hash = file_name + n_digits + 1;

	return n_digits && n_digits <= 10 && file_name[n_digits] == '-' &&
	       strlen(hash) == (size_t)2 * SAVED_HASH_BYTES &&
	       strspn(hash, "0123456789abcdef") == (size_t)2 * SAVED_HASH_BYTES;
}

/* ---- sense -------------------------------------------------------------------------------- */

static int check_group(const Kv__Saved__Group *group, uint32_t number, struct errbuf *err)
{
	if (group->checks.len % STORE_CHECK_BYTES ||
	    group->checks.len / STORE_CHECK_BYTES != group->n_places)
		return errbuf_set(err, KV_ECORRUPT,
				  "group %u has %zu bytes of checksums for %zu places", number,
				  group->checks.len, group->n_places);
	if (group->n_places && (!group->image_bytes || group->image_bytes > STORE_IMAGE_BYTES_MAX))
		return errbuf_set(err, KV_ECORRUPT, "group %u has images of %u bytes", number,
				  group->image_bytes);
	return 0;
}

static int check_layout(const Kv__Saved__Saved *head, uint8_t out[KV_HASH_BYTES],
			struct errbuf *err)
{
	struct kv_layout *layout;
	uint32_t n_groups;

	if (!head->layout)
		return errbuf_set(err, KV_ECORRUPT, "it has no layout");
	layout = kv_layout_from_wire(head->layout, err);
	if (!layout)
		return -1;
	memcpy(out, layout->hash, KV_HASH_BYTES);
	n_groups = layout->n_groups;
	kv_layout_free(layout);
	if (head->n_groups > n_groups)
		return errbuf_set(err, KV_ECORRUPT, "it has %zu groups, its layout has %u",
				  head->n_groups, n_groups);
	return 0;
}

static bool is_digest(const ProtobufCBinaryData *bytes)
{
	return bytes->len == 0 || bytes->len == KV_DIGEST_BYTES;
}

/* What lists of saved snapshots repeat, for people and in messages of limited length. */
static int check_words(const Kv__Saved__Saved *head, struct errbuf *err)
{
	struct errbuf why;

	if (kv_name_check(head->name, &why))
		return errbuf_set(err, KV_ECORRUPT, "it has no name: %s", why.text);
	if (head->parent_name[0] && kv_name_check(head->parent_name, &why))
		return errbuf_set(err, KV_ECORRUPT, "its parent's name: %s", why.text);
	if (!is_digest(&head->digest) || !is_digest(&head->parent_digest))
		return errbuf_set(err, KV_ECORRUPT,
				  "its digest has %zu bytes, its parent's %zu, instead of %d",
				  head->digest.len, head->parent_digest.len, KV_DIGEST_BYTES);
	return 0;
}

static int check(const Kv__Saved__Saved *head, uint8_t layout_hash[KV_HASH_BYTES],
		 struct errbuf *err)
{
	if (check_words(head, err))
		return -1;
	if (!head->number || head->number >= SAVED_NUMBER_MAX)
		return errbuf_set(err, KV_ECORRUPT, "its number is %llu",
				  (unsigned long long)head->number);
	if (head->n_groups > KV_GROUPS_MAX || head->n_marks > KV_MARKS_MAX)
		return errbuf_set(err, KV_ECORRUPT, "it has %zu groups and %zu marks",
				  head->n_groups, head->n_marks);
	for (uint32_t g = 0; g < head->n_groups; g++)
		if (check_group(head->groups[g], g, err))
			return -1;
	return check_layout(head, layout_hash, err);
}

/* ---- bytes -------------------------------------------------------------------------------- */

int saved_pack(const Kv__Saved__Saved *head, void **bytes, size_t *n_bytes, struct errbuf *err)
{
	size_t n = kv__saved__saved__get_packed_size(head);
	char *file;

	if (n > STORE_SAVED_BYTES_MAX - sizeof(struct store_head))
		return errbuf_set(err, KV_ELIMIT,
				  "the list of blocks of %s takes %zu MiB, at most %u are allowed; "
				  "use larger blocks",
				  head->name, n >> 20, STORE_SAVED_BYTES_MAX >> 20);
	file = malloc(sizeof(struct store_head) + n);
	if (!file)
		return errbuf_set(err, KV_ENOMEM, "no memory for %zu bytes", n);
	kv__saved__saved__pack(head, (uint8_t *)file + sizeof(struct store_head));
	store_head_seal((struct store_head *)file, STORE_SAVED_MAGIC,
			file + sizeof(struct store_head), n);
	*bytes = file;
	*n_bytes = sizeof(struct store_head) + n;
	return 0;
}

/* A short message can ask for many objects: memory is bounded by what bytes of sense take. */
struct budget {
	size_t n_left;
	bool is_out_of_memory; /* there was none, although it would have been allowed */
};

static void *budget_alloc(void *arg, size_t n)
{
	struct budget *budget = arg;
	void *pointer;

	if (n > budget->n_left)
		return NULL;
	budget->n_left -= n;
	pointer = malloc(n);
	budget->is_out_of_memory |= !pointer;
	return pointer;
}

static void budget_free(void *arg, void *pointer)
{
	(void)arg;
	free(pointer);
}

static Kv__Saved__Saved *unpack(const uint8_t *body, size_t n_bytes, struct errbuf *err)
{
	struct budget budget = {(size_t)4 * n_bytes + (1u << 20), false};
	ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
	Kv__Saved__Saved *saved = kv__saved__saved__unpack(&allocator, n_bytes, body);

	if (!saved && budget.is_out_of_memory)
		errbuf_set(err, KV_ENOMEM, "no memory for the list of its blocks");
	else if (!saved)
		errbuf_set(err, KV_ECORRUPT, "it holds no message that can be read");
	return saved;
}

Kv__Saved__Saved *saved_parse(const void *bytes, size_t n_bytes, uint8_t layout_hash[KV_HASH_BYTES],
			      struct errbuf *err)
{
	struct store_head head;
	Kv__Saved__Saved *saved;

	if (store_head_check(bytes, n_bytes, STORE_SAVED_MAGIC, err))
		return NULL;
	memcpy(&head, bytes, sizeof(head));
	saved = unpack((const uint8_t *)bytes + sizeof(head), head.n_bytes, err);
	if (saved && check(saved, layout_hash, err)) {
		kv__saved__saved__free_unpacked(saved, NULL);
		saved = NULL;
	}
	return saved;
}
