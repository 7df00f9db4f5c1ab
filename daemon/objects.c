#include "daemon/objects.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/arena_store.h"
#include "daemon/events.h"
#include "daemon/names.h"
#include "daemon/state_log.h"

/* ---- states ------------------------------------------------------------------------------- */

struct state *state_new(const struct layout_entry *layout)
{
	struct state *state = state_alloc(1, sizeof(*state));

	state->layout = layout;
	state->n_refs = 1;
	return state;
}

void state_free(struct state *state)
{
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
		free(state->refs[g]);
	free(state->marks);
	free(state->arenas);
	free(state);
}

/* Counts n blocks of an arena. */
static void count_arena(struct state *state, struct arena *arena, uint64_t n)
{
	struct state_arena *arenas;

	for (uint32_t i = 0; i < state->n_arenas; i++) {
		if (state->arenas[i].arena != arena)
			continue;
		state->arenas[i].n_blocks += n;
		return;
	}
	arenas = realloc(state->arenas, (state->n_arenas + 1) * sizeof(arenas[0]));
	if (!arenas)
		state_die("no memory for the arenas of a state");
	state->arenas = arenas;
	arenas[state->n_arenas++] = (struct state_arena){arena, n};
}

/* End of the range of references from i on that are in one arena. */
static uint64_t same_arena(const uint64_t *refs, uint64_t i, uint64_t n)
{
	uint64_t arena = gref_arena(refs[i]);

	while (i < n && gref_arena(refs[i]) == arena)
		i++;
	return i;
}

int state_count_arenas(struct core *core, struct state *state, struct errbuf *err)
{
	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		for (uint64_t i = 0, end; i < state->n_blocks[g]; i = end) {
			uint64_t id = gref_arena(state->refs[g][i]);
			struct arena *arena = arenas_find(core, id);

			end = same_arena(state->refs[g], i, state->n_blocks[g]);
			if (!arena)
				return errbuf_set(err, KV_ECORRUPT, "arena %llu is not known",
						  (unsigned long long)id);
			count_arena(state, arena, end - i);
		}
	}
	return 0;
}

/* Calls pin() for each run of the tables. */
static void pin_blocks(struct core *core, struct state *state,
		       void (*pin)(struct arena *, uint32_t first, uint32_t n_blocks))
{
	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		const uint64_t *refs = state->refs[g];
		struct arena *arena = NULL;

		for (uint64_t i = 0, end; i < state->n_blocks[g]; i = end) {
			for (end = i + 1; end < state->n_blocks[g]; end++)
				if (refs[end] != refs[end - 1] + 1)
					break;
			if (!arena || arena->id != gref_arena(refs[i]))
				arena = arenas_find(core, gref_arena(refs[i]));
			pin(arena, gref_block(refs[i]), (uint32_t)(end - i));
		}
	}
}

void state_enlist(struct core *core, struct state *state)
{
	if (idlist_add(&core->states, state->id, state))
		state_die("no memory for the list of states");
	pin_blocks(core, state, arena_pin);
}

void state_publish(struct core *core, struct state *state)
{
	state->id = core_new_id(core);
	state_enlist(core, state);
	log_state(core, state);
}

/* Digests of blocks whose last pin this is are forgotten, also by the log. */
static void forget_digests(struct core *core, const struct state *state, const struct arena *arena)
{
	uint32_t blocks[256];
	uint64_t n = 0;

	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			uint32_t block = gref_block(state->refs[g][i]);

			if (gref_arena(state->refs[g][i]) != arena->id || arena->pins[block] != 1 ||
			    !arena_digest(arena, block))
				continue;
			blocks[n++] = block;
			if (n < sizeof(blocks) / sizeof(blocks[0]))
				continue;
			log_arena_digests(core, arena, blocks, n, false);
			n = 0;
		}
	}
	if (n)
		log_arena_digests(core, arena, blocks, n, false);
}

void state_unref(struct core *core, struct state *state)
{
	if (!state || --state->n_refs)
		return;
	if (state->id) {
		for (uint32_t i = 0; i < state->n_arenas; i++)
			if (state->arenas[i].arena->digest_known)
				forget_digests(core, state, state->arenas[i].arena);
		pin_blocks(core, state, arena_unpin);
		idlist_remove(&core->states, state->id);
		log_state_gone(core, state->id);
		for (uint32_t i = 0; i < state->n_arenas; i++)
			arenas_touch(core, state->arenas[i].arena);
	}
	state_free(state);
}

void state_set_counts(struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;

	for (uint32_t g = 0; g < layout->n_groups; g++) {
		struct kv_window window = kv_head_window(layout, &state->head, g);

		state->n_slots[g] = g < layout->n_layer_groups ?
					    kv_layout_slots(layout, g, state->head.base_tokens) :
					    0;
		state->first_block[g] = window.first;
		state->n_blocks[g] = window.n;
	}
}

const uint64_t *state_block(const struct state *state, uint32_t group, uint64_t number)
{
	if (number < state->first_block[group] ||
	    number - state->first_block[group] >= state->n_blocks[group])
		return NULL;
	return &state->refs[group][number - state->first_block[group]];
}

/* A state with a header that says less: its tables are parts of the other's. */
static struct state *reduce(const struct state *state, const struct kv_head *head)
{
	struct state *part = state_new(state->layout);

	part->update = state->update;
	part->head = *head;
	state_set_counts(part);
	if (head->n_marks)
		part->marks = state_copy(state->marks, head->n_marks * sizeof(part->marks[0]));
	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++)
		part->refs[g] = state_copy(
			part->n_blocks[g] ? state_block(state, g, part->first_block[g]) : NULL,
			part->n_blocks[g] * sizeof(uint64_t));
	return part;
}

bool state_has_private(const struct state *state)
{
	struct kv_head head = state->head;

	kv_head_share(&head);
	return head.n_marks != state->head.n_marks ||
	       head.journal_first != state->head.journal_first || head.planes != state->head.planes;
}

struct state *state_share(const struct state *state)
{
	struct kv_head head = state->head;

	kv_head_share(&head);
	return reduce(state, &head);
}

int state_may_cut(const struct kv_layout *layout, const struct kv_head *head, uint64_t n_tokens,
		  const char *what, struct errbuf *err)
{
	bool is_simple = kv_head_mode(head->state) == KV_JOURNAL_NONE &&
			 !(head->state & KV_HEAD_SCATTERED);

	if (n_tokens == head->length_tokens)
		return 0;
	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		is_simple &= kv_layout_slots(layout, g, head->length_tokens) == head->length_tokens;
	if (!is_simple)
		return errbuf_set(err, KV_EUNSUPPORTED,
				  "%s has a journal: only its writer can roll it back; kvcachectl "
				  "rollback does so for a sequence without a writer",
				  what);
	if (kv_planes_now(head->planes))
		return errbuf_set(err, KV_EJOURNAL,
				  "%s has sequence planes and no journal: what they were at %llu "
				  "tokens is not known",
				  what, (unsigned long long)n_tokens);
	return 0;
}

struct state *state_cut(const struct state *state, uint64_t n_tokens)
{
	struct kv_head head = state->head;
	struct state *cut;

	head.position -= head.length_tokens - n_tokens;
	head.length_tokens = head.base_tokens = n_tokens;
	while (head.n_marks && state->marks[head.n_marks - 1].length_tokens > n_tokens)
		head.n_marks--;
	cut = reduce(state, &head);
	cut->update++; /* a rollback is an update that says less */
	return cut;
}

uint64_t state_bytes(const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < layout->n_groups; g++)
		bytes += state->n_blocks[g] * layout->groups[g].block_bytes;
	return bytes;
}

uint64_t state_journal_bytes(const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	uint32_t g = layout->journal_group;

	return g < layout->n_groups ? state->n_blocks[g] * layout->groups[g].block_bytes : 0;
}

uint64_t state_shared_bytes(const struct core *core, const struct state *state)
{
	const struct kv_layout *layout = state->layout->layout;
	uint32_t own_pins = state->id != 0;
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < layout->n_groups; g++) {
		const struct arena *arena = NULL;

		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			uint64_t ref = state->refs[g][i];
			uint32_t block = gref_block(ref);

			if (!arena || arena->id != gref_arena(ref))
				arena = arenas_find(core, gref_arena(ref));
			if (arena->pins[block] > own_pins ||
			    (own_pins && arena_has_granted(arena, block)))
				bytes += layout->groups[g].block_bytes;
		}
	}
	return bytes;
}

uint32_t state_runs(const struct state *state)
{
	uint32_t most = 0;

	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		uint32_t n = state->n_blocks[g] != 0;

		for (uint64_t i = 1; i < state->n_blocks[g]; i++)
			n += state->refs[g][i] != state->refs[g][i - 1] + 1;
		if (n > most)
			most = n;
	}
	return most;
}

/* ---- objects ------------------------------------------------------------------------------ */

int objects_check_quota(const struct core *core, const struct pool_user *user, uint32_t n,
			struct errbuf *err)
{
	uint32_t most = core->env->settings->n_sequences_max;

	if (most == 0 || (user->n_objects <= most && n <= most - user->n_objects))
		return 0;
	return errbuf_set(err, KV_EQUOTA,
			  "user %u has %u sequences and snapshots, the limit is %u; remove some or "
			  "raise sequences in kvcached.conf",
			  user->uid, user->n_objects, most);
}

struct object *object_new(struct core *core, enum object_kind kind, uint32_t uid,
			  const struct layout_entry *layout, bool listed)
{
	struct object *object = state_alloc(1, sizeof(*object));

	object->id = core_new_id(core);
	object->kind = kind;
	object->listed = listed;
	object->uid = uid;
	object->layout = layout;
	object->created_unix_ns = unix_now_ns();
	if (idlist_add(&core->objects, object->id, object))
		state_die("no memory for the list of objects");
	if (listed)
		pool_user(&core->pool, uid)->n_objects++;
	return object;
}

struct object *object_find(const struct core *core, uint32_t uid, uint64_t id)
{
	struct object *object = idlist_find(&core->objects, id);

	return object && object->listed && object->uid == uid ? object : NULL;
}

struct object *object_internal(struct core *core, uint32_t uid, struct state *state,
			       uint64_t parent_id)
{
	struct object *object = object_new(core, OBJECT_SNAPSHOT, uid, state->layout, false);

	object->state = state_ref(state);
	object->parent_id = parent_id;
	object->parent_update = state->update;
	log_object(core, object);
	return object;
}

void object_free(struct object *object)
{
	free(object->name);
	free(object);
}

void object_collect(struct core *core, struct object *object)
{
	if (object->listed || object->n_pins)
		return;
	log_object_gone(core, object->id);
	idlist_remove(&core->objects, object->id);
	state_unref(core, object->state);
	object_free(object);
}

void object_unlist(struct core *core, struct object *object)
{
	names_remove(core, object);
	object->listed = false;
	object->session = NULL;
	pool_user(&core->pool, object->uid)->n_objects--;
	if (object->kind == OBJECT_SNAPSHOT)
		event_note(core, EVENT_SNAPSHOT_REMOVED, object->id, 0, object->uid,
			   object->state->head.length_tokens);
	if (object->n_pins)
		log_object(core, object);
	else
		object_collect(core, object);
}

void object_set_state(struct core *core, struct object *object, struct state *state)
{
	struct state *old = object->state;

	object->state = state;
	object->has_digest = false;
	log_object(core, object);
	state_unref(core, old);
}

void objects_drop_of_session(struct session *session)
{
	struct core *core = session->core;

	for (size_t i = 0; i < core->objects.n;) {
		struct object *object = core->objects.items[i].thing;

		if (object->listed && object->session == session) {
			uint64_t id = object->id;

			object_unlist(core, object);
			i = idlist_after(&core->objects, id);
		} else {
			i++;
		}
	}
}
