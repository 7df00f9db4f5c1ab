#include "daemon/names.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "proto/runtime.h"

static uint32_t bucket_of(uint32_t uid, const char *name)
{
	return (uint32_t)(XXH3_64bits_withSeed(name, strlen(name), uid) % NAME_BUCKETS);
}

struct object *names_find(const struct core *core, uint32_t uid, const char *name)
{
	struct object *object = core->names[bucket_of(uid, name)];

	while (object && (object->uid != uid || strcmp(object->name, name) != 0))
		object = object->next_name;
	return object;
}

void names_add(struct core *core, struct object *object, const char *name)
{
	uint32_t bucket = bucket_of(object->uid, name);

	object->name = state_copy(name, strlen(name) + 1);
	object->next_name = core->names[bucket];
	core->names[bucket] = object;
	core->names_changed = true;
}

void names_remove(struct core *core, struct object *object)
{
	struct object **at;

	if (!object->name)
		return;
	at = &core->names[bucket_of(object->uid, object->name)];
	while (*at != object)
		at = &(*at)->next_name;
	*at = object->next_name;
	free(object->name);
	object->name = NULL;
}

int names_check(const struct core *core, uint32_t uid, const char *name, bool replace,
		struct object **old, struct errbuf *err)
{
	struct object *object;

	*old = NULL;
	if (!name[0])
		return 0;
	if (kv_name_check(name, err))
		return -1;
	object = names_find(core, uid, name);
	if (!object)
		return 0;
	if (!replace)
		return errbuf_set(
			err, KV_EEXIST,
			"name %s is taken by %s %llu; choose another or ask to replace it", name,
			object->kind == OBJECT_SNAPSHOT ? "snapshot" : "sequence",
			(unsigned long long)object->id);
	if (!object->state)
		return errbuf_set(err, KV_EBUSY,
				  "name %s is a sequence that session %llu writes; it cannot be "
				  "replaced",
				  name, (unsigned long long)object->session->id);
	*old = object;
	return 0;
}
