#include "daemon/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/notify.h"

/* From the end: what was kept last is dropped or replaced first. */
static struct kept *find(const struct kept_table *table, enum kept_kind kind, uint64_t id)
{
	for (size_t i = table->n_items; i > 0; i--)
		if (table->items[i - 1].id == id && table->items[i - 1].kind == kind)
			return &table->items[i - 1];
	return NULL;
}

static int grow(struct kept_table *table)
{
	size_t n = table->n_items_max ? 2 * table->n_items_max : 64;
	struct kept *items = realloc(table->items, n * sizeof(*items));

	if (!items)
		return -ENOMEM;
	table->items = items;
	table->n_items_max = n;
	return 0;
}

/* A new item at the end, or NULL. */
static struct kept *append(struct kept_table *table, const struct kept *kept)
{
	if (table->n_items == table->n_items_max && grow(table) != 0)
		return NULL;
	table->items[table->n_items] = *kept;
	return &table->items[table->n_items++];
}

/* The store has the new one before it loses the old one. */
static void replace(struct kept *item, int fd)
{
	struct kept old = *item;

	item->fd = fd;
	notify_store(item);
	notify_unstore(&old);
	close(old.fd);
}

int kept_put(struct kept_table *table, enum kept_kind kind, uint64_t id, int fd)
{
	struct kept *item = find(table, kind, id);

	if (item) {
		replace(item, fd);
		return 0;
	}
	item = append(table, &(struct kept){.kind = kind, .id = id, .fd = fd});
	if (!item) {
		close(fd);
		return -ENOMEM;
	}
	notify_store(item);
	return 0;
}

void kept_adopt(struct kept_table *table, const struct kept *kept)
{
	struct kept *item = find(table, kept->kind, kept->id);
	struct kept lost = *kept;

	if (item && item->number < kept->number) {
		lost = *item;
		*item = *kept;
	} else if (!item && append(table, kept)) {
		return;
	}
	notify_unstore(&lost);
	close(lost.fd);
}

void kept_drop(struct kept_table *table, enum kept_kind kind, uint64_t id)
{
	struct kept *item = find(table, kind, id);

	if (!item)
		return;
	notify_unstore(item);
	close(item->fd);
	*item = table->items[--table->n_items];
}

void kept_fini(struct kept_table *table)
{
	while (table->n_items > 0)
		close(table->items[--table->n_items].fd);
	free(table->items);
	*table = (struct kept_table){0};
}
