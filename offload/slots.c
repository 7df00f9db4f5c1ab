#include "offload/slots.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "offload/io.h"
#include "offload/whole_file.h"
#include "proto/fault.h"

#define LOCK_TRIES 1000
#define LOCK_PAUSE_NS 10000000

/* ---- opening ------------------------------------------------------------------------------ */

/*
 * The lock of the slot file lives as long as its file does in the kernel, and so as long as a
 * transfer of a process that was killed: such a late write must not hit what we put there.
 */
static int lock_data(int fd, const char *path, struct errbuf *err)
{
	const struct timespec pause = {0, LOCK_PAUSE_NS};

	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return errbuf_errno(err, KV_EIO, errno, "cannot lock %s", path);
		nanosleep(&pause, NULL);
	}
	return errbuf_set(err, KV_EBUSY,
			  "input or output of another process on %s has not ended; try again later",
			  path);
}

static int check_is_file(int fd, const char *path, uint64_t *n_bytes, struct errbuf *err)
{
	struct stat st;

	if (fstat(fd, &st))
		return errbuf_errno(err, KV_EIO, errno, "cannot look at %s", path);
	if (!S_ISREG(st.st_mode))
		return errbuf_set(err, KV_EPERM, "%s is no ordinary file; move it away", path);
	*n_bytes = (uint64_t)st.st_size;
	return 0;
}

static int path_of(char *path, size_t n, const char *dir, uint32_t slot_bytes, const char *end,
		   struct errbuf *err)
{
	if ((size_t)snprintf(path, n, "%s/blocks-%u.%s", dir, slot_bytes, end) >= n)
		return errbuf_set(err, KV_EINVAL, "the path %s is too long", dir);
	return 0;
}

int slots_open(struct slots *slots, const char *dir, uint32_t slot_bytes, struct errbuf *err)
{
	const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
	char data[4096], index[4096];
	uint64_t n_bytes;

	*slots = (struct slots){
		.slot_bytes = slot_bytes,
		.data_fd = -1,
		.index_fd = -1,
		.free = {SLOT_NONE, SLOT_NONE, 0},
		.cached = {SLOT_NONE, SLOT_NONE, 0},
		.holes = {SLOT_NONE, SLOT_NONE, 0},
	};
	if (path_of(data, sizeof(data), dir, slot_bytes, "data", err) ||
	    path_of(index, sizeof(index), dir, slot_bytes, "index", err))
		return -1;
	slots->data_fd = io_open_file(data, flags, 0600, &slots->align, err);
	if (slots->data_fd < 0 || check_is_file(slots->data_fd, data, &n_bytes, err) ||
	    lock_data(slots->data_fd, data, err))
		goto fail;
	slots->n_in_file = n_bytes / slot_bytes;
	if (slots->n_in_file > STORE_SLOTS_MAX)
		slots->n_in_file = STORE_SLOTS_MAX;
	KV_FAULT_POINT();
	slots->index_fd = open(index, flags, 0600);
	if (slots->index_fd < 0) {
		errbuf_errno(err, KV_EIO, errno, "cannot open %s", index);
		goto fail;
	}
	if (check_is_file(slots->index_fd, index, &n_bytes, err))
		goto fail;
	KV_FAULT_POINT();
	return 0;
fail:
	slots_close(slots);
	return -1;
}

void slots_close(struct slots *slots)
{
	if (slots->data_fd >= 0)
		close(slots->data_fd);
	if (slots->index_fd >= 0)
		close(slots->index_fd);
	free(slots->all);
	*slots = (struct slots){.data_fd = -1, .index_fd = -1};
}

int slots_reach(struct slots *slots, uint64_t n_slots)
{
	uint64_t n_room = slots->n_room + slots->n_room / 2;
	struct slot *all;

	if (n_slots > slots->n_room) {
		if (n_room < n_slots)
			n_room = n_slots;
		all = reallocarray(slots->all, n_room, sizeof(*all));
		if (!all)
			return -ENOMEM;
		slots->all = all;
		slots->n_room = n_room;
	}
	if (n_slots > slots->n_slots) {
		memset(&slots->all[slots->n_slots], 0,
		       (n_slots - slots->n_slots) * sizeof(slots->all[0]));
		slots->n_slots = n_slots;
	}
	return 0;
}

/* ---- lists -------------------------------------------------------------------------------- */

static struct slot_list *list_of(struct slots *slots, const struct slot *slot)
{
	switch ((enum slot_state)slot->state) {
	case SLOT_FREE: return &slots->free;
	case SLOT_HOLE: return &slots->holes;
	case SLOT_WRITING: return NULL;
	case SLOT_READY:
	case SLOT_DROPPED: return slot->n_uses ? NULL : &slots->cached;
	}
	return NULL;
}

static void list_remove(struct slots *slots, struct slot_list *list, struct slot *slot)
{
	if (slot->prev == SLOT_NONE)
		list->first = slot->next;
	else
		slots->all[slot->prev].next = slot->next;
	if (slot->next == SLOT_NONE)
		list->last = slot->prev;
	else
		slots->all[slot->next].prev = slot->prev;
	list->n--;
}

static void list_add(struct slots *slots, struct slot_list *list, uint32_t i, bool at_front)
{
	struct slot *slot = &slots->all[i];

	slot->prev = at_front ? SLOT_NONE : list->last;
	slot->next = at_front ? list->first : SLOT_NONE;
	if (slot->prev == SLOT_NONE)
		list->first = i;
	else
		slots->all[slot->prev].next = i;
	if (slot->next == SLOT_NONE)
		list->last = i;
	else
		slots->all[slot->next].prev = i;
	list->n++;
}

static void list_slot(struct slots *slots, uint32_t i)
{
	const struct slot *slot = &slots->all[i];
	struct slot_list *list = list_of(slots, slot);

	slots->n_ready += slot->state == SLOT_READY;
	if (list)
		list_add(slots, list, i,
			 list == &slots->cached ? !slot->is_found : list == &slots->free);
}

void slots_change(struct slots *slots, uint32_t i, enum slot_state state, uint32_t n_uses)
{
	struct slot *slot = &slots->all[i];
	struct slot_list *list = list_of(slots, slot);

	if (list)
		list_remove(slots, list, slot);
	slots->n_ready -= slot->state == SLOT_READY;
	slot->state = (uint8_t)state;
	slot->n_uses = n_uses;
	list_slot(slots, i);
}

struct aged {
	uint64_t number;
	uint32_t i;
};

static int older_first(const void *a, const void *b)
{
	const struct aged *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

int slots_list_all(struct slots *slots)
{
	struct aged *aged = malloc((slots->n_slots + 1) * sizeof(*aged));
	size_t n = 0;

	if (!aged)
		return -ENOMEM;
	for (uint64_t i = slots->n_slots; i-- > 0;) { /* the first slots are given out first */
		if (list_of(slots, &slots->all[i]) == &slots->cached)
			aged[n++] = (struct aged){slots->all[i].number, (uint32_t)i};
		else
			list_slot(slots, (uint32_t)i);
	}
	qsort(aged, n, sizeof(*aged), older_first);
	for (size_t k = 0; k < n; k++)
		list_slot(slots, aged[k].i);
	free(aged);
	return 0;
}

/* ---- room on the disk --------------------------------------------------------------------- */

static int lengthen(int fd, uint64_t from, uint64_t to, bool preallocate)
{
	int rc = -EOPNOTSUPP;

	KV_FAULT_POINT();
	if (preallocate)
		rc = fallocate(fd, 0, (off_t)from, (off_t)(to - from)) ? -errno : 0;
	if (rc == -EOPNOTSUPP || rc == -ENOSYS)
		rc = ftruncate(fd, (off_t)to) ? -errno : 0;
	KV_FAULT_POINT();
	return rc;
}

/* Gives the files the length that they have in memory. */
static void shorten(const struct slots *slots)
{
	if (ftruncate(slots->data_fd, (off_t)(slots->n_slots * slots->slot_bytes)) ||
	    ftruncate(slots->index_fd, (off_t)slots_record_off(slots->n_slots)))
		return; /* what is too much is cut off when the store is opened */
}

int slots_grow(struct slots *slots, uint64_t n, bool preallocate)
{
	uint64_t from = slots->n_slots, to = from + n;
	int rc;

	if (to > STORE_SLOTS_MAX)
		return -EFBIG;
	rc = lengthen(slots->data_fd, from * slots->slot_bytes, to * slots->slot_bytes,
		      preallocate);
	if (!rc)
		rc = lengthen(slots->index_fd, slots_record_off(from), slots_record_off(to),
			      preallocate);
	if (!rc)
		rc = slots_reach(slots, to);
	if (rc) {
		shorten(slots);
		return rc;
	}
	for (uint64_t i = to; i-- > from;)
		list_slot(slots, (uint32_t)i);
	slots->data_is_dirty = slots->index_is_dirty = true;
	return 0;
}

static int allocate(const struct slots *slots, uint32_t i, int mode)
{
	int rc;

	KV_FAULT_POINT();
	rc = fallocate(slots->data_fd, mode, (off_t)i * slots->slot_bytes, slots->slot_bytes);
	KV_FAULT_POINT();
	return rc ? -errno : 0;
}

int slots_fill(struct slots *slots, uint32_t i, bool preallocate)
{
	int rc = preallocate ? allocate(slots, i, 0) : 0;

	if (rc && rc != -EOPNOTSUPP && rc != -ENOSYS)
		return rc;
	slots_change(slots, i, SLOT_FREE, 0);
	rc = slots_note(slots, i);
	if (rc)
		slots_change(slots, i, SLOT_HOLE, 0);
	return rc;
}

int slots_punch(struct slots *slots, uint32_t i)
{
	int rc = allocate(slots, i, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE);

	if (rc)
		return rc;
	slots_change(slots, i, SLOT_HOLE, 0);
	slots->data_is_dirty = true;
	slots_note(slots, i); /* if this is lost it counts as room that is there, at worst */
	return 0;
}

int slots_note(struct slots *slots, uint32_t i)
{
	struct store_record record;
	int rc;

	slots_make_record(slots, i, &record);
	KV_FAULT_POINT();
	rc = whole_file_pwrite(slots->index_fd, &record, sizeof(record), slots_record_off(i));
	KV_FAULT_POINT();
	slots->index_is_dirty = true;
	return rc;
}

static int sync_file(int fd, _Atomic bool *is_dirty)
{
	int rc = 0;

	if (!*is_dirty)
		return 0;
	*is_dirty = false;
	KV_FAULT_POINT();
	if (fdatasync(fd)) {
		rc = -errno;
		*is_dirty = true;
	}
	KV_FAULT_POINT();
	return rc;
}

int slots_sync(struct slots *slots)
{
	int rc = sync_file(slots->data_fd, &slots->data_is_dirty);

	return rc ? rc : sync_file(slots->index_fd, &slots->index_is_dirty);
}
