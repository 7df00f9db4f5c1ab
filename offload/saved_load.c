/*
 * The saved snapshots of a folder, when a store is opened: read one by one; what is damaged is set
 * aside, what is of a later version, or cannot be read for want of something, keeps the store shut.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "offload/store_impl.h"
#include "offload/whole_file.h"

/* A file of saved/: NULL without err: set aside, or nothing of ours. */
static struct saved_entry *load(struct store *store, const char *file_name, struct errbuf *err)
{
	struct errbuf why = {0};
	struct saved_entry *entry = NULL;
	void *bytes;
	size_t n_bytes;
	int rc = whole_file_read(store->saved_fd, file_name, STORE_SAVED_BYTES_MAX, &bytes,
				 &n_bytes);

	if (rc && !whole_file_is_damaged(rc)) {
		errbuf_errno(err, rc == -ENOMEM ? KV_ENOMEM : KV_EIO, -rc,
			     "cannot read %s/saved/%s", store->dir, file_name);
		return NULL;
	}
	if (rc)
		errbuf_errno(&why, KV_ECORRUPT, -rc, "it cannot be read");
	else
		entry = saved_entry_from(bytes, n_bytes, &why);
	free(bytes);
	if (entry && strcmp(entry->file_name, file_name) != 0) {
		errbuf_set(&why, KV_ECORRUPT, "it is %s of user %u, under another name",
			   entry->saved.head->name, entry->saved.head->uid);
		saved_entry_free(entry);
		entry = NULL;
	}
	if (entry)
		return entry;
	if (why.status == KV_EVERSION || why.status == KV_ENOMEM)
		errbuf_set(err, why.status, "%s/saved/%s: %s", store->dir, file_name, why.text);
	else
		saved_set_file_aside(store, file_name, why.text);
	return NULL;
}

static int add_loaded(struct saved_entry ***entries, size_t *n, size_t *n_room,
		      struct saved_entry *entry, struct errbuf *err)
{
	struct saved_entry **grown;

	if (*n == *n_room) {
		*n_room = *n_room ? 2 * *n_room : 64;
		grown = reallocarray(*entries, *n_room, sizeof(struct saved_entry *));
		if (!grown)
			return errbuf_set(err, KV_ENOMEM, "no memory for %zu saved snapshots", *n);
		*entries = grown;
	}
	(*entries)[(*n)++] = entry;
	return 0;
}

int saved_load_all(struct store *store, struct saved_entry ***entries, size_t *n,
		   struct errbuf *err)
{
	DIR *dir = whole_file_list(store->saved_fd);
	int rc = 0;
	size_t n_room = 0;

	if (!dir)
		return errbuf_errno(err, KV_EIO, errno, "cannot list %s/saved", store->dir);
	for (struct dirent *file; !rc && (file = readdir(dir));) {
		struct saved_entry *entry = NULL;
		struct errbuf one = {0};

		if (saved_file_name_fits(file->d_name))
			entry = load(store, file->d_name, &one);
		if (one.status) {
			errbuf_set(err, one.status, "%s", one.text);
			rc = -1;
		}
		if (entry && add_loaded(entries, n, &n_room, entry, err)) {
			saved_entry_free(entry);
			rc = -1;
		}
	}
	closedir(dir);
	return rc;
}
