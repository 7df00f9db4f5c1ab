/*
 * The last words of a core that ends in order (core_farewell of daemon/core.h): each sequence and
 * snapshot that has a name, up to LINES_MAX of them; then, in one line, all that was held. Core
 * thread, behind the last round of its loop.
 */
#include "daemon/leave.h"
#include "daemon/live.h"
#include "daemon/objects.h"
#include "daemon/session.h"

#define LINES_MAX 100u

struct gone {
	unsigned n_sequences, n_snapshots, n_lines, n_more;
};

/* Its tokens, and the bytes of all its blocks, those that it shares included. */
static void measure(const struct object *object, uint64_t *n_tokens, uint64_t *n_bytes)
{
	struct state *state = object->state;
	struct kv_head head;
	uint64_t update;

	*n_bytes = 0;
	if (state) {
		*n_tokens = state->head.length_tokens;
		*n_bytes = state_bytes(state);
	} else if (live_peek(object->session, object->session->places[object->place], &state,
			     NULL) == 0) {
		*n_tokens = state->head.length_tokens;
		*n_bytes = state_bytes(state);
		state_unref(object->session->core, state);
	} else {
		live_head(object->session, object->session->places[object->place], &head, &update);
		*n_tokens = head.length_tokens;
	}
}

static void say_one(const struct core *core, const struct object *object, struct gone *gone)
{
	const bool is_sequence = object->kind == OBJECT_SEQUENCE;
	uint64_t n_tokens, n_bytes;

	gone->n_sequences += is_sequence;
	gone->n_snapshots += !is_sequence;
	if (!object->name)
		return;
	if (gone->n_lines == LINES_MAX) {
		gone->n_more += !leave_has_saved(core, object);
		return;
	}
	gone->n_lines++;
	measure(object, &n_tokens, &n_bytes);
	log_info("core", "%s: %s %s of user %u, %llu tokens, %llu bytes",
		 leave_has_saved(core, object) ? "saved" : "in memory only",
		 is_sequence ? "sequence" : "snapshot", object->name, object->uid,
		 (unsigned long long)n_tokens, (unsigned long long)n_bytes);
}

void core_farewell(const struct core *core, bool has_manager)
{
	const struct pool *pool = &core->pool;
	struct gone gone = {0};

	for (size_t i = 0; i < core->objects.n; i++) {
		const struct object *object = core->objects.items[i].thing;

		if (object->listed)
			say_one(core, object, &gone);
	}
	if (gone.n_more)
		log_info("core", "in memory only: and %u more that have names", gone.n_more);
	if (gone.n_sequences + gone.n_snapshots == 0)
		return;
	log_info("core", "%u sequences and %u snapshots, %llu bytes of the pool in use: %s",
		 gone.n_sequences, gone.n_snapshots,
		 (unsigned long long)(pool->total_bytes - pool->class_bytes[BLOCK_FREE]),
		 has_manager ? "left to the service manager, which keeps them for a restart and "
			       "drops them at a stop" :
			       "dropped");
}
