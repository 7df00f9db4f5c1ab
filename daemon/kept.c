#include "daemon/kept.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

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

int kept_put(struct kept_table *table, enum kept_kind kind, uint64_t id, int fd)
{
	struct kept *item = find(table, kind, id);

	if (item) {
		close(item->fd);
		item->fd = fd;
		return 0;
	}
	if (table->n_items == table->n_items_max && grow(table) != 0) {
		close(fd);
		return -ENOMEM;
	}
	table->items[table->n_items++] = (struct kept){.kind = kind, .id = id, .fd = fd};
	return 0;
}

void kept_drop(struct kept_table *table, enum kept_kind kind, uint64_t id)
{
	struct kept *item = find(table, kind, id);

	if (!item)
		return;
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
