/*
 * Things by their number, in the order of their numbers. Numbers are given out counting up, so
 * adding is appending; removing moves what is behind. Holds pointers, owns nothing. Core thread.
 */
#ifndef KV_DAEMON_IDLIST_H
#define KV_DAEMON_IDLIST_H

#include <stddef.h>
#include <stdint.h>

struct idlist_item {
	uint64_t id;
	void *thing;
};

struct idlist {
	struct idlist_item *items;
	size_t n, cap;
};

/* 0 or -ENOMEM. The id must be new. */
int idlist_add(struct idlist *list, uint64_t id, void *thing);
void idlist_remove(struct idlist *list, uint64_t id);
void *idlist_find(const struct idlist *list, uint64_t id); /* NULL: none */

/* Index of the first thing with an id above `id`; list->n if there is none. */
size_t idlist_after(const struct idlist *list, uint64_t id);
/* Adds at the end, in whatever order; to be sorted before anything else is asked. 0 or -ENOMEM. */
int idlist_push(struct idlist *list, uint64_t id, void *thing);
void idlist_sort(struct idlist *list);
void idlist_fini(struct idlist *list);

#endif
