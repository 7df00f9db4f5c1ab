/* Sequences and snapshots as commands print them. One thread. */
#ifndef KV_CTL_OBJECT_H
#define KV_CTL_OBJECT_H

#include "client/ctl/ctl.h"

/* A growing list of the pages of a listing; keeps the replies alive that own the objects. */
struct object_list {
	Kv__Wire__Object **objects;
	size_t n_objects;
	Kv__Wire__Reply **replies;
	size_t n_replies;
};

/* All pages. 0, or -1 with the error printed and *code set; freed by object_list_fini(). */
int object_list_get(struct ctl *ctl, const char *prefix, struct object_list *list, int *code);
void object_list_fini(struct object_list *list);

/* Everything about one object. It belongs to *reply, which ctl_free_reply() frees; NULL, with the
 * error printed and *code set, then there is no reply. */
const Kv__Wire__Object *object_ask(struct ctl *ctl, Kv__Wire__Target *target,
				   Kv__Wire__Reply **reply, int *code);
bool object_is_snapshot(const Kv__Wire__Object *object);

/* "live", "parked", "snapshot", "local fork", "local snapshot". */
const char *object_state(const Kv__Wire__Object *object);
const char *object_journal_mode(const Kv__Wire__Object *object);
enum colour object_colour(const Kv__Wire__Object *object);

/* "@12", or "12:7" for place 7 of session 12 (a local fork has no number). */
struct units_text object_number(const Kv__Wire__Object *object);

/* The name, else the number. */
struct units_line object_label(const Kv__Wire__Object *object);

/* Time since it was made; "-" if that is not known. */
struct units_text object_age(const struct ctl *ctl, const Kv__Wire__Object *object);

/* cmd_tree.c: draws the tree, or gives its roots as JSON where json is not NULL. With target, only
 * what comes from it. 0, or -1 with the error printed and *code set. */
int tree_show(struct ctl *ctl, const Kv__Wire__Target *target, json_t **json, int *code);

json_t *object_json(const Kv__Wire__Object *object);

/* Bytes of a message as a JSON string of hex digits; null if there are none. */
json_t *object_hex(const ProtobufCBinaryData *bytes);

#endif
