/*
 * The slots of one size: a slot file, its index, and in memory what each slot holds and how many
 * use it. A slot is in one list at most, which follows from its state and its uses; only
 * slots_change() changes these.
 *
 *	free      nothing          list free
 *	hole      nothing, and takes no room on the disk    list holes
 *	writing   invisible, one use
 *	ready     an image         list cached while nobody uses it
 *	dropped   an image that turned out to be damaged; list cached while nobody uses it
 *
 * On disk a slot that is free, a hole or being written has no record of an image: before a slot
 * gets other bytes its record is cleared.
 *
 * Thread: the store's; but slots_sync() any.
 */
#ifndef KV_OFFLOAD_SLOTS_H
#define KV_OFFLOAD_SLOTS_H

#include "offload/store_format.h"

#define SLOT_NONE UINT32_MAX

enum slot_state {
	SLOT_FREE = 0,
	SLOT_HOLE = 1,
	SLOT_WRITING = 2,
	SLOT_READY = 3,
	SLOT_DROPPED = 4
};

struct slot {
	struct store_check check;
	uint8_t layout[STORE_LAYOUT_BYTES];
	uint64_t number;        /* of the image */
	store_place next_found; /* of those with the same hash of the check (images.c) */
	uint32_t uid, group, n_bytes;
	uint32_t n_uses;
	uint32_t prev, next; /* of its list */
	uint8_t state;       /* enum slot_state */
	bool is_found;  /* store_find() gives it out; a second of the same image is not found */
	bool is_remade; /* while the store is opened: its record was made from a saved file */
};

struct slot_list {
	uint32_t first, last;
	uint32_t n;
};

struct slots {
	uint32_t slot_bytes;
	uint32_t align; /* of transfers */
	int data_fd, index_fd;
	struct slot *all; /* [n_slots] */
	uint64_t n_slots, n_room;
	uint64_t n_in_file; /* when it was opened: slots that the slot file has room for */
	uint64_t n_ready;
	struct slot_list free, cached, holes;
	bool is_trusted; /* the index is of the store's last life, and written in order */
	bool is_stale;   /* while the store is opened: records on disk differ from memory */
	_Atomic bool data_is_dirty, index_is_dirty;
};

/* Opens both files, or makes what is not there. Waits some seconds for input and output of a
 * process that has ended. 0, or -1 with err. */
int slots_open(struct slots *slots, const char *dir, uint32_t slot_bytes, struct errbuf *err);
void slots_close(struct slots *slots);

/* Memory for n slots; those that are new are free and in no list yet. 0 or -ENOMEM. */
int slots_reach(struct slots *slots, uint64_t n_slots);

/* Gives each slot another state, number of uses, and list: what is cached goes to the end of the
 * list (to its front if it is not found any more), what is free to the front. */
void slots_change(struct slots *slots, uint32_t i, enum slot_state state, uint32_t n_uses);

/* Builds the lists of all slots: cached by age, free by number. 0 or -ENOMEM. */
int slots_list_all(struct slots *slots);

/* Makes both files longer by n slots, ahead of use if `preallocate`; they are free then. 0 or
 * -errno, and nothing has changed. */
int slots_grow(struct slots *slots, uint64_t n, bool preallocate);

/* Takes back and gives room on the disk for a slot: from a hole, from a free one. 0 or -errno. */
int slots_fill(struct slots *slots, uint32_t i, bool preallocate);
int slots_punch(struct slots *slots, uint32_t i);

/* Writes the record of a slot as it is in memory. 0 or -errno. */
int slots_note(struct slots *slots, uint32_t i);

/* Makes data, then index, durable. 0 or -errno. */
int slots_sync(struct slots *slots);

/* ---- the index as a whole (slots_index.c) ------------------------------------------------- */

/*
 * Reads the index into memory; what is not a whole record of this size is free. Whether the
 * records can be trusted: is_trusted. An empty file is an index that says nothing. 0; -1 with err:
 * KV_ECORRUPT the file is not this store's index, KV_EVERSION, KV_EIO, KV_ENOMEM.
 */
int slots_read_index(struct slots *slots, const struct store_about *about, struct errbuf *err);

/* Another, empty index in place of the one that is there, which is kept under another name. */
int slots_replace_index(struct slots *slots, int dir_fd, struct errbuf *err);

/* Both files get the length that n_slots says; all records are written anew if they are stale. */
int slots_write_index(struct slots *slots);

/* Writes the head of the index: it belongs to this life of the store. 0 or -errno. */
int slots_seal_index(struct slots *slots, const struct store_about *about);

/* The record of a slot as it is in memory. */
void slots_make_record(const struct slots *slots, uint64_t i, struct store_record *record);

static inline uint64_t slots_record_off(uint64_t i)
{
	return STORE_INDEX_OFF + i * sizeof(struct store_record);
}

static inline uint32_t store_round_up(uint64_t n_bytes)
{
	return (uint32_t)((n_bytes + STORE_PAGE - 1) / STORE_PAGE * STORE_PAGE);
}

#endif
