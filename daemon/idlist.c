#include "daemon/idlist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t idlist_after(const struct idlist *list, uint64_t id)
{
	size_t low = 0, high = list->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (list->items[middle].id <= id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static int make_room(struct idlist *list)
{
	size_t cap = list->cap ? list->cap * 2 : 32;
	struct idlist_item *items;

	if (list->n < list->cap)
		return 0;
	items = realloc(list->items, cap * sizeof(items[0]));
	if (!items)
		return -ENOMEM;
	list->items = items;
	list->cap = cap;
	return 0;
}

int idlist_push(struct idlist *list, uint64_t id, void *thing)
{
	if (make_room(list))
		return -ENOMEM;
	list->items[list->n++] = (struct idlist_item){id, thing};
	return 0;
}

static int compare_ids(const void *a, const void *b)
{
	const struct idlist_item *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

void idlist_sort(struct idlist *list)
{
	if (list->n)
		qsort(list->items, list->n, sizeof(list->items[0]), compare_ids);
}

int idlist_add(struct idlist *list, uint64_t id, void *thing)
{
	size_t at;

	if (make_room(list))
		return -ENOMEM;
	at = idlist_after(list, id);
	memmove(&list->items[at + 1], &list->items[at], (list->n - at) * sizeof(list->items[0]));
	list->items[at] = (struct idlist_item){id, thing};
	list->n++;
	return 0;
}

void *idlist_find(const struct idlist *list, uint64_t id)
{
	size_t at = idlist_after(list, id);

	return at > 0 && list->items[at - 1].id == id ? list->items[at - 1].thing : NULL;
}

void idlist_remove(struct idlist *list, uint64_t id)
{
	size_t at = idlist_after(list, id);

	if (at == 0 || list->items[at - 1].id != id)
		return;
	memmove(&list->items[at - 1], &list->items[at], (list->n - at) * sizeof(list->items[0]));
	list->n--;
}

void idlist_fini(struct idlist *list)
{
	free(list->items);
	*list = (struct idlist){0};
}
