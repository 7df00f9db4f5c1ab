/*
 * A folder becomes a store, and is let go.
 *
 * In this order, so that a process that dies in between is followed by one that does the same: the
 * folder is checked and locked, what an unfinished write left is removed, `store`, indexes and
 * saved snapshots are read, damage is set aside, indexes are made to say what is so, and only then
 * does `store` say that a new life has begun, and the indexes that they are of that life.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "offload/store_impl.h"
#include "offload/whole_file.h"
#include "proto/fault.h"

#define ABOUT_FILE "store"
#define LOCK_FILE "lock"
#define SAVED_DIR "saved"
#define NUMBERS_AHEAD 1024u

/* ---- the folder --------------------------------------------------------------------------- */

static int fail_open(const char *dir, int errno_value, struct errbuf *err)
{
	struct stat st;

	if (!lstat(dir, &st) && S_ISLNK(st.st_mode))
		return errbuf_set(err, KV_EPERM,
				  "the store %s is a symbolic link; name the folder that it points "
				  "to",
				  dir);
	return errbuf_errno(err, errno_value == EACCES ? KV_EPERM : KV_EIO, errno_value,
			    "cannot open the store %s", dir);
}

static int check_folder(int fd, const char *dir, struct errbuf *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return errbuf_errno(err, KV_EIO, errno, "cannot look at the store %s", dir);
	if (st.st_uid != geteuid())
		return errbuf_set(err, KV_EPERM,
				  "the store %s belongs to uid %u, not to us (%u); chown it, or "
				  "choose another folder",
				  dir, st.st_uid, geteuid());
	if (st.st_mode & 077)
		return errbuf_set(
			err, KV_EPERM,
			"the store %s can be entered by others (mode %04o); chmod 700 it, "
			"or choose another folder",
			dir, st.st_mode & 07777);
	return 0;
}

/* A folder of ours, made if it is not there; name is relative to at. */
static int open_folder(int at, const char *name, const char *path, struct errbuf *err)
{
	int fd;

	if (mkdirat(at, name, 0700) && errno != EEXIST)
		return errbuf_errno(err, errno == EACCES ? KV_EPERM : KV_EIO, errno,
				    "cannot make the store %s", path);
	KV_FAULT_POINT();
	fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return fail_open(path, errno, err);
	if (check_folder(fd, path, err)) {
		close(fd);
		return -1;
	}
	return fd;
}

static int fail_busy(const struct store *store, struct errbuf *err)
{
	char pid[32] = "";
	ssize_t n = pread(store->lock_fd, pid, sizeof(pid) - 1, 0);

	pid[n > 0 ? n : 0] = '\0';
	pid[strspn(pid, "0123456789")] = '\0';
	return errbuf_set(err, KV_EBUSY,
			  "another process (pid %s) has the store %s; stop it, or choose another "
			  "folder",
			  pid[0] ? pid : "unknown", store->dir);
}

static int lock_folder(struct store *store, struct errbuf *err)
{
	char pid[32];
	int n = snprintf(pid, sizeof(pid), "%d\n", getpid());

	store->lock_fd = openat(store->dir_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
				0600);
	if (store->lock_fd < 0)
		return errbuf_errno(err, KV_EIO, errno, "cannot open %s/" LOCK_FILE, store->dir);
	if (flock(store->lock_fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ? fail_busy(store, err) :
					      errbuf_errno(err, KV_EIO, errno,
							   "cannot lock %s/" LOCK_FILE, store->dir);
	/* for people only: a full disk is no reason to stop */
	if (ftruncate(store->lock_fd, 0) == 0)
		whole_file_pwrite(store->lock_fd, pid, (size_t)n, 0);
	return 0;
}

static int open_folders(struct store *store, struct errbuf *err)
{
	char path[4096];
	int rc;

	snprintf(path, sizeof(path), "%s/" SAVED_DIR, store->dir);
	store->dir_fd = open_folder(AT_FDCWD, store->dir, store->dir, err);
	if (store->dir_fd < 0 || lock_folder(store, err))
		return -1;
	store->saved_fd = open_folder(store->dir_fd, SAVED_DIR, path, err);
	if (store->saved_fd < 0)
		return -1;
	rc = whole_file_sweep(store->dir_fd);
	if (!rc)
		rc = whole_file_sweep(store->saved_fd);
	if (rc)
		return errbuf_errno(err, KV_EIO, -rc,
				    "cannot remove what an unfinished write left in %s",
				    store->dir);
	return 0;
}

/* ---- the file `store` --------------------------------------------------------------------- */

struct about_file {
	struct store_head head;
	struct store_about about;
};
static_assert(sizeof(struct about_file) == 96, "no gaps");

static void read_boot_id(uint8_t out[16])
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	size_t k = 0;

	memset(out, 0, 16);
	for (ssize_t i = 0; i < n && k < 32; i++) {
		const char *digits = "0123456789abcdef", *at = strchr(digits, text[i]);

		if (text[i] && at) {
			out[k / 2] = (uint8_t)(out[k / 2] << 4 | (at - digits));
			k++;
		}
	}
	if (fd >= 0)
		close(fd);
}

static void make_about(struct store_about *about)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	*about = (struct store_about){
		.created_unix_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec,
		.next_number = 1,
	};
	if (getrandom(about->id, sizeof(about->id), 0) != sizeof(about->id))
		memcpy(about->id, &now, sizeof(now)); /* it need only differ from other stores' */
}

static int read_about(struct store *store, struct errbuf *err)
{
	struct errbuf why = {0};
	struct about_file file;
	void *bytes;
	size_t n_bytes;
	int rc = whole_file_read(store->dir_fd, ABOUT_FILE, 1u << 20, &bytes, &n_bytes);

	if (!rc && !store_head_check(bytes, n_bytes, STORE_MAGIC, &why) &&
	    n_bytes >= sizeof(file)) {
		memcpy(&file, bytes, sizeof(file));
		store->about = file.about;
		free(bytes);
		return 0;
	}
	free(bytes);
	if (why.status == KV_EVERSION)
		return errbuf_set(err, KV_EVERSION, "%s/" ABOUT_FILE ": %s", store->dir, why.text);
	if (rc && rc != -ENOENT && !whole_file_is_damaged(rc))
		return errbuf_errno(err, rc == -ENOMEM ? KV_ENOMEM : KV_EIO, -rc,
				    "cannot read %s/" ABOUT_FILE, store->dir);
	make_about(&store->about);
	if (rc == -ENOENT)
		return 0;
	rc = whole_file_set_aside(store->dir_fd, ABOUT_FILE);
	if (rc)
		return errbuf_errno(err, KV_EIO, -rc, "cannot rename %s/" ABOUT_FILE, store->dir);
	store->n_set_aside++;
	store_say(store,
		  "%s/" ABOUT_FILE " is set aside as " ABOUT_FILE WHOLE_FILE_ASIDE
		  " and made anew: %s",
		  store->dir, why.text[0] ? why.text : "it cannot be read");
	return 0;
}

/* On a disk without room for a second one: 96 bytes are in one sector, and are written at once. */
static int overwrite_about(const struct store *store, const struct about_file *file)
{
	int fd = openat(store->dir_fd, ABOUT_FILE, O_WRONLY | O_NOFOLLOW | O_CLOEXEC), rc;

	if (fd < 0)
		return -errno;
	rc = whole_file_pwrite(fd, file, sizeof(*file), 0);
	if (!rc && fsync(fd))
		rc = -errno;
	close(fd);
	return rc;
}

int store_write_about(struct store *store)
{
	struct about_file file = {.about = store->about};
	bool is_there;
	int rc;

	file.about.next_number = store->next_number;
	if (!file.about.closed_in_order)
		file.about.next_number += NUMBERS_AHEAD;
	store_head_seal(&file.head, STORE_MAGIC, &file.about, sizeof(file.about));
	store->about.next_number = file.about.next_number;
	rc = whole_file_write(store->dir_fd, ABOUT_FILE, &file, sizeof(file), &is_there);
	if (rc == -ENOSPC || rc == -EDQUOT)
		rc = overwrite_about(store, &file);
	return rc;
}

/* ---- slot files --------------------------------------------------------------------------- */

/* Of blocks-N.data or blocks-N.index; 0: it is neither. */
static uint32_t slot_bytes_of(const char *name)
{
	char again[64];
	unsigned n = 0;

	if (sscanf(name, "blocks-%8u.", &n) != 1 || n == 0 || n % STORE_PAGE ||
	    n > STORE_IMAGE_BYTES_MAX)
		return 0;
	snprintf(again, sizeof(again), "blocks-%u.data", n);
	if (strcmp(name, again) == 0)
		return n;
	snprintf(again, sizeof(again), "blocks-%u.index", n);
	return strcmp(name, again) == 0 ? n : 0;
}

static int read_index(struct store *store, struct slots *slots, struct errbuf *err)
{
	struct errbuf why = {0};

	if (slots_read_index(slots, &store->about, &why) == 0) {
		slots->is_trusted &= store->is_closed_in_order;
		if (slots->is_stale && slots->n_in_file)
			store_say(store,
				  "%s/blocks-%u.index: records are damaged or missing; what saved "
				  "snapshots say of them counts",
				  store->dir, slots->slot_bytes);
		slots->is_stale |= !slots->is_trusted;
		return 0;
	}
	if (why.status != KV_ECORRUPT)
		return errbuf_set(err, why.status, "%s/blocks-%u.index: %s", store->dir,
				  slots->slot_bytes, why.text);
	store->n_set_aside++;
	store_say(store,
		  "%s/blocks-%u.index is set aside with the ending " WHOLE_FILE_ASIDE
		  " and made anew from the saved snapshots: %s",
		  store->dir, slots->slot_bytes, why.text);
	return slots_replace_index(slots, store->dir_fd, err);
}

static struct slots *next_class(struct store *store, uint32_t slot_bytes, struct errbuf *err)
{
	struct slots *slots = &store->classes[store->n_classes];

	if (store->n_classes == STORE_CLASSES_MAX) {
		errbuf_set(err, KV_ELIMIT,
			   "the store %s has images of %u sizes already; remove saved snapshots "
			   "and their slot files, or use another folder",
			   store->dir, STORE_CLASSES_MAX);
		return NULL;
	}
	return slots_open(slots, store->dir, slot_bytes, err) ? NULL : slots;
}

struct slots *store_class_open(struct store *store, uint32_t slot_bytes, struct errbuf *err)
{
	struct slots *slots = next_class(store, slot_bytes, err);
	int rc;

	if (!slots)
		return NULL;
	rc = slots_seal_index(slots, &store->about);
	if (rc) {
		slots_close(slots);
		store->is_full = rc == -ENOSPC || rc == -EDQUOT;
		errbuf_errno(err, KV_EIO, -rc, "cannot write to %s/blocks-%u.index", store->dir,
			     slot_bytes);
		return NULL;
	}
	slots->is_trusted = true;
	store->folder_is_dirty = true;
	store->n_classes++;
	return slots;
}

static int read_class(struct store *store, uint32_t slot_bytes, struct errbuf *err)
{
	struct slots *slots;

	if (store_class(store, slot_bytes))
		return 0;
	slots = next_class(store, slot_bytes, err);
	if (!slots)
		return -1;
	if (read_index(store, slots, err)) {
		slots_close(slots);
		return -1;
	}
	store->n_classes++;
	return 0;
}

static int read_classes(struct store *store, struct errbuf *err)
{
	DIR *dir = whole_file_list(store->dir_fd);
	int rc = 0;

	if (!dir)
		return errbuf_errno(err, KV_EIO, errno, "cannot list %s", store->dir);
	for (struct dirent *file; !rc && (file = readdir(dir));) {
		uint32_t slot_bytes = slot_bytes_of(file->d_name);

		if (slot_bytes)
			rc = read_class(store, slot_bytes, err);
	}
	closedir(dir);
	return rc;
}

/* ---- a life ------------------------------------------------------------------------------- */

static bool was_closed_in_order(const struct store *store)
{
	uint8_t boot_id[16];
	static const uint8_t unknown[16];

	read_boot_id(boot_id);
	return store->about.closed_in_order ||
	       (memcmp(boot_id, unknown, sizeof(boot_id)) != 0 &&
		memcmp(boot_id, store->about.boot_id, sizeof(boot_id)) == 0);
}

static int read_saved(struct store *store, struct errbuf *err)
{
	struct saved_entry **entries = NULL;
	size_t n = 0;
	int rc = saved_load_all(store, &entries, &n, err);

	if (!rc)
		rc = claims_settle(store, entries, n, err);
	for (size_t i = 0; i < n; i++)
		saved_entry_free(entries[i]);
	free(entries);
	return rc;
}

static int list_slots(struct store *store, struct errbuf *err)
{
	for (uint32_t c = 0; c < store->n_classes; c++)
		if (slots_list_all(&store->classes[c]))
			return errbuf_set(err, KV_ENOMEM, "no memory for the lists of slots");
	return 0;
}

static int begin_life(struct store *store, struct errbuf *err)
{
	int rc = 0;

	for (uint32_t c = 0; !rc && c < store->n_classes; c++)
		rc = slots_write_index(&store->classes[c]);
	store->about.life++;
	store->about.closed_in_order = 0;
	read_boot_id(store->about.boot_id);
	if (!rc)
		rc = store_write_about(store);
	for (uint32_t c = 0; !rc && c < store->n_classes; c++) {
		rc = slots_seal_index(&store->classes[c], &store->about);
		store->classes[c].is_trusted = true;
	}
	if (rc)
		return errbuf_errno(err, KV_EIO, -rc, "cannot write to the store %s", store->dir);
	store->last_image = store->flushed = store->next_image - 1;
	return 0;
}

static void store_free(struct store *store)
{
	saved_free_all(store);
	for (uint32_t c = 0; c < store->n_classes; c++)
		slots_close(&store->classes[c]);
	if (store->saved_fd >= 0)
		close(store->saved_fd);
	if (store->lock_fd >= 0)
		close(store->lock_fd); /* the lock goes last */
	if (store->dir_fd >= 0)
		close(store->dir_fd);
	pthread_mutex_destroy(&store->flush_lock);
	free(store->buckets);
	free(store->dir);
	free(store);
}

static struct store *store_new(const struct store_options *options,
			       void (*report)(void *arg, const char *text), void *arg)
{
	struct store *store = calloc(1, sizeof(*store));

	if (!store)
		return NULL;
	store->dir_fd = store->saved_fd = store->lock_fd = -1;
	store->max_bytes = options->max_bytes;
	store->preallocate = options->preallocate;
	store->report = report;
	store->report_arg = arg;
	store->next_image = 1;
	pthread_mutex_init(&store->flush_lock, NULL);
	store->dir = strdup(options->dir);
	/* a slash behind it would have a symbolic link followed */
	for (size_t n = store->dir ? strlen(store->dir) : 0; n > 1 && store->dir[n - 1] == '/'; n--)
		store->dir[n - 1] = '\0';
	if (store->dir && images_reserve(store, 1) == 0)
		return store;
	store_free(store);
	return NULL;
}

struct store *store_open(const struct store_options *options,
			 void (*report)(void *arg, const char *text), void *arg, struct errbuf *err)
{
	struct store *store = store_new(options, report, arg);

	if (!store) {
		errbuf_set(err, KV_ENOMEM, "no memory for a store");
		return NULL;
	}
	if (open_folders(store, err) || read_about(store, err))
		goto fail;
	store->next_number = store->about.next_number ? store->about.next_number : 1;
	store->is_closed_in_order = was_closed_in_order(store);
	if (read_classes(store, err) || read_saved(store, err) || list_slots(store, err) ||
	    begin_life(store, err))
		goto fail;
	room_fit(store);
	return store;
fail:
	store_free(store);
	return NULL;
}

void store_close(struct store *store)
{
	int rc;

	if (!store)
		return;
	store_account_failures(store);
	rc = store_flush(store);
	store->about.closed_in_order = !rc;
	if (rc) /* nobody knows what is there: the next start must not believe the indexes */
		memset(store->about.boot_id, 0, sizeof(store->about.boot_id));
	rc = store_write_about(store);
	if (rc)
		store_say(store, "cannot write to the store %s: %s", store->dir, strerror(-rc));
	store_free(store);
}
