/*
 * kvcachectl tree: who was forked or snapshot from whom.
 *
 * A parent that is gone is drawn only where it still holds children together. Objects that would
 * form a circle (an answer that makes no sense) are drawn as roots, so that each is drawn once.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/object.h"
#include "proto/shm.h"

#define DEPTH_MAX 64

struct node {
	const Kv__Wire__Object *object; /* NULL: gone, only its number is known */
	uint64_t id;
	struct node *parent;
	bool drawn;
};

struct tree {
	struct ctl *ctl;
	struct table *table;
	struct node *nodes;
	size_t n_nodes;
};

/* The local fork or snapshot in a place of the child's session. */
static bool is_local_parent(const struct node *node, uint64_t id, const Kv__Wire__Object *child)
{
	return id & KV_PARENT_PLACE && node->object && node->object->local &&
	       node->object->session == child->session &&
	       node->object->place == (id & ~KV_PARENT_PLACE);
}

static struct node *node_find(const struct tree *tree, uint64_t id, const Kv__Wire__Object *child)
{
	for (size_t i = 0; id && i < tree->n_nodes; i++) {
		struct node *node = &tree->nodes[i];

		if (node->object != child && (node->id == id || is_local_parent(node, id, child)))
			return node;
	}
	return NULL;
}

static size_t children_of_gone(const struct object_list *list, uint64_t id)
{
	size_t n = 0;

	for (size_t i = 0; i < list->n_objects; i++)
		n += list->objects[i]->parent_id == id;
	return n;
}

static void tree_build(struct tree *tree, const struct object_list *list)
{
	tree->nodes = ctl_alloc(2 * list->n_objects, sizeof(*tree->nodes));
	for (size_t i = 0; i < list->n_objects; i++) {
		tree->nodes[i].object = list->objects[i];
		tree->nodes[i].id = list->objects[i]->id;
	}
	tree->n_nodes = list->n_objects;
	for (size_t i = 0; i < list->n_objects; i++) {
		uint64_t parent = list->objects[i]->parent_id;

		if (parent && !(parent & KV_PARENT_PLACE) &&
		    !node_find(tree, parent, list->objects[i]) &&
		    children_of_gone(list, parent) > 1)
			tree->nodes[tree->n_nodes++].id = parent;
		tree->nodes[i].parent = node_find(tree, parent, list->objects[i]);
	}
}

static void draw_row(struct tree *tree, const struct node *node, const char *prefix)
{
	const Kv__Wire__Object *o = node->object;

	if (!o) {
		table_cell(tree->table, DIM, "%s@%" PRIu64, prefix, node->id);
		table_cell(tree->table, DIM, "gone");
		for (int i = 0; i < 4; i++)
			table_cell(tree->table, DIM, "-");
		return;
	}
	table_cell(tree->table, PLAIN, "%s%s", prefix, object_label(o).s);
	table_cell(tree->table, object_colour(o), "%s", object_state(o));
	table_cell(tree->table, PLAIN, "%s", units_count(o->length_tokens).s);
	table_cell(tree->table, PLAIN, "%s", units_bytes(o->n_bytes).s);
	table_cell(
		tree->table, PLAIN, "%s",
		units_bytes(o->n_bytes > o->n_shared_bytes ? o->n_bytes - o->n_shared_bytes : 0).s);
	table_cell(tree->table, PLAIN, "%s", object_age(tree->ctl, o).s);
}

static bool is_last_child(const struct tree *tree, const struct node *node)
{
	for (const struct node *n = node + 1; n < tree->nodes + tree->n_nodes; n++)
		if (n->parent == node->parent)
			return false;
	return true;
}

/* `stem` is what stands before the children of a node at this depth. */
static void draw(struct tree *tree, struct node *node, const char *stem, const char *branch,
		 unsigned depth)
{
	bool utf8 = tree->ctl->out.utf8;
	char *prefix = ctl_format("%s%s", stem, branch);
	char *below = NULL;

	node->drawn = true;
	draw_row(tree, node, prefix);
	if (branch[0] == '\0')
		below = ctl_format("%s", stem);
	else if (is_last_child(tree, node))
		below = ctl_format("%s   ", stem);
	else
		below = ctl_format("%s%s", stem, utf8 ? "\u2502  " : "|  ");
	for (size_t i = 0; i < tree->n_nodes && depth < DEPTH_MAX; i++) {
		struct node *child = &tree->nodes[i];
		bool last = is_last_child(tree, child);

		if (child->parent != node || child->drawn)
			continue;
		draw(tree, child, below,
		     utf8 ? (last ? "\u2514\u2500 " : "\u251c\u2500 ") : (last ? "`- " : "|- "),
		     depth + 1);
	}
	free(below);
	free(prefix);
}

static json_t *node_json(struct tree *tree, struct node *node, unsigned depth)
{
	json_t *children = json_array();
	json_t *value = node->object ? object_json(node->object) :
				       json_pack("{s:I, s:s}", "id", (json_int_t)node->id, "state",
						 "gone");

	node->drawn = true;
	for (size_t i = 0; i < tree->n_nodes && depth < DEPTH_MAX; i++)
		if (tree->nodes[i].parent == node && !tree->nodes[i].drawn)
			json_array_append_new(children,
					      node_json(tree, &tree->nodes[i], depth + 1));
	json_object_set_new(value, "children", children);
	return value;
}

static void columns(struct table *table)
{
	table_column(table, "NAME", TABLE_SHRINKS);
	table_column(table, "WHAT", TABLE_LEFT);
	table_column(table, "TOKENS", TABLE_RIGHT);
	table_column(table, "SIZE", TABLE_RIGHT);
	table_column(table, "OWN", TABLE_RIGHT);
	table_column(table, "AGE", TABLE_RIGHT);
}

/* Roots first, then whatever is left (a circle). With `only`, that node alone. */
static void each_root(struct tree *tree, const struct node *only, json_t *roots)
{
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < tree->n_nodes; i++) {
			struct node *node = &tree->nodes[i];

			if (node->drawn || (only ? node != only : pass == 0 && node->parent))
				continue;
			if (roots)
				json_array_append_new(roots, node_json(tree, node, 0));
			else
				draw(tree, node, "", "", 0);
		}
}

static const struct node *node_named(const struct tree *tree, const Kv__Wire__Target *target)
{
	for (size_t i = 0; i < tree->n_nodes; i++) {
		const struct node *n = &tree->nodes[i];

		if (target->which_case == KV__WIRE__TARGET__WHICH_ID ?
			    n->id == target->id :
			    n->object && n->object->name && !strcmp(n->object->name, target->name))
			return n;
	}
	return NULL;
}

int tree_show(struct ctl *ctl, const Kv__Wire__Target *target, json_t **json, int *code)
{
	struct tree tree = {.ctl = ctl};
	const struct node *only = NULL;
	struct object_list list;

	if (object_list_get(ctl, "", &list, code))
		return -1;
	tree_build(&tree, &list);
	*code = CTL_OK;
	if (target && !(only = node_named(&tree, target))) {
		struct errbuf err;

		errbuf_set(&err, KV_ENOTFOUND,
			   "the object that the tree should begin with is not "
			   "there");
		*code = ctl_fail(ctl, &err);
	} else if (json) {
		*json = json_array();
		each_root(&tree, only, *json);
	} else if (tree.n_nodes == 0) {
		fputs("nothing there\n", ctl->out.stream);
	} else {
		tree.table = table_new();
		columns(tree.table);
		each_root(&tree, only, NULL);
		table_print(tree.table, &ctl->out, 0);
	}
	free(tree.nodes);
	object_list_fini(&list);
	return *code == CTL_OK ? 0 : -1;
}

int cmd_tree(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Target target;
	json_t *roots = NULL;
	int code = CTL_OK;

	if (args->n_words && ctl_target(ctl, args->words[0], &target))
		return CTL_USAGE;
	if (tree_show(ctl, args->n_words ? &target : NULL, ctl->json ? &roots : NULL, &code))
		return code;
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:o}", "tree", roots));
	return code;
}
