#include "daemon/state_log.h"

#include <string.h>

/* A record to be filled; NULL while loading or when the batch is spoiled already. */
static void *add(struct core *core, enum cat_type type, size_t n_bytes)
{
	return core->is_loading ? NULL : catalogue_add(&core->catalogue, type, n_bytes);
}

static void log_gone(struct core *core, enum cat_type type, uint64_t id)
{
	struct cat_gone *r = add(core, type, sizeof(*r));

	if (r)
		r->id = id;
}

void log_layout(struct core *core, const struct layout_entry *entry, uint32_t uid)
{
	Kv__Wire__Layout *wire;
	struct cat_layout *r;
	size_t n;

	if (core->is_loading)
		return;
	wire = kv_layout_to_wire(entry->layout);
	if (!wire)
		state_die("no memory to log a layout");
	n = kv__wire__layout__get_packed_size(wire);
	r = add(core, CAT_LAYOUT, sizeof(*r) + n);
	if (r) {
		r->id = entry->id;
		r->uid = uid;
		r->n_bytes = (uint32_t)n;
		kv__wire__layout__pack(wire, (uint8_t *)(r + 1));
	}
	kv_layout_wire_free(wire);
}

void log_session(struct core *core, const struct session *session)
{
	struct cat_session *r = add(core, CAT_SESSION, sizeof(*r));

	if (!r)
		return;
	r->id = session->id;
	memcpy(r->token, session->token, sizeof(r->token));
	r->uid = session->uid;
	r->gid = session->gid;
	r->pid = session->pid;
	r->ended = session->phase == SESSION_ENDED;
	r->created_unix_ns = session->created_unix_ns;
	memcpy(r->comm, session->comm, sizeof(r->comm));
	memcpy(r->nonce, session->nonce, sizeof(r->nonce));
}

void log_session_gone(struct core *core, uint64_t id)
{
	log_gone(core, CAT_SESSION_GONE, id);
}

void log_writer(struct core *core, const struct session *session, uint32_t writer)
{
	struct cat_writer *r = add(core, CAT_WRITER, sizeof(*r));

	if (!r)
		return;
	r->session = session->id;
	r->writer = writer;
	r->in_use = session->writers[writer].in_use;
}

void log_arena(struct core *core, const struct arena *arena)
{
	struct cat_arena *r = add(core, CAT_ARENA, sizeof(*r));

	if (!r)
		return;
	r->id = arena->id;
	r->session = arena->session_id;
	r->layout_id = arena->layout_id;
	r->uid = arena->user->uid;
	r->group = arena->group;
	r->n_blocks = arena->n_blocks;
}

void log_arena_gone(struct core *core, uint64_t id)
{
	log_gone(core, CAT_ARENA_GONE, id);
}

void log_blocks(struct core *core, const struct arena *arena, uint32_t first, uint32_t n_blocks,
		uint32_t state)
{
	struct cat_blocks *r = add(core, CAT_BLOCKS, sizeof(*r));

	if (r)
		*r = (struct cat_blocks){arena->id, first, n_blocks, state, 0};
}

void log_number(struct core *core, const struct session *session, uint32_t number)
{
	const struct arena *arena = session->numbers[number].arena;
	struct cat_number *r = add(core, CAT_NUMBER, sizeof(*r));

	if (r)
		*r = (struct cat_number){session->id, arena ? arena->id : 0, number, 0};
}

void log_place(struct core *core, const struct session *session, const struct place *place)
{
	struct cat_place *r = add(core, CAT_PLACE, sizeof(*r));

	if (!r)
		return;
	r->session = session->id;
	r->index = place->seg.index;
	r->kind = place->kind;
	r->writer = place->seg.writer;
	r->n_groups = place->seg.n_groups;
	r->layout_id = place->layout->id;
	r->object_id = place->object ? place->object->id : 0;
	r->base_id = place->base ? place->base->id : 0;
	r->max_tokens = place->seg.max_tokens;
	memcpy(r->table_off, place->seg.table_off, sizeof(r->table_off));
	memcpy(r->n_entries, place->seg.n_entries, sizeof(r->n_entries));
}

void log_place_free(struct core *core, const struct session *session, uint32_t index)
{
	struct cat_place *r = add(core, CAT_PLACE, sizeof(*r));

	if (!r)
		return;
	r->session = session->id;
	r->index = index;
	r->kind = PLACE_FREE;
}

static void put_marks(struct cat_mark *out, const struct state *state)
{
	for (uint32_t i = 0; i < state->head.n_marks; i++)
		out[i] = (struct cat_mark){state->marks[i].id, state->marks[i].update,
					   state->marks[i].length_tokens,
					   state->marks[i].journal_end};
}

static uint64_t count_runs(const uint64_t *refs, uint64_t n)
{
	uint64_t n_runs = n != 0;

	for (uint64_t i = 1; i < n; i++)
		n_runs += refs[i] != refs[i - 1] + 1;
	return n_runs;
}

/* Returns where the next group's runs begin. */
static struct cat_run *put_runs(struct cat_run *run, const uint64_t *refs, uint64_t n)
{
	for (uint64_t i = 0; i < n;) {
		uint64_t end = i + 1;

		while (end < n && refs[end] == refs[end - 1] + 1)
			end++;
		*run++ = (struct cat_run){refs[i], end - i};
		i = end;
	}
	return run;
}

void log_state(struct core *core, const struct state *state)
{
	uint32_t n_groups = state->layout->layout->n_groups;
	struct cat_state head = {.id = state->id,
				 .layout_id = state->layout->id,
				 .update = state->update,
				 .length_tokens = state->head.length_tokens,
				 .position = state->head.position,
				 .journal_first = state->head.journal_first,
				 .journal_end = state->head.journal_end,
				 .planes = state->head.planes,
				 .base_tokens = state->head.base_tokens,
				 .head_state = state->head.state,
				 .n_marks = state->head.n_marks,
				 .n_groups = n_groups};
	size_t n = sizeof(head) + state->head.n_marks * sizeof(struct cat_mark);
	struct cat_state *r;
	struct cat_run *run;

	if (core->is_loading)
		return;
	for (uint32_t g = 0; g < n_groups; g++) {
		head.n_runs[g] = count_runs(state->refs[g], state->n_blocks[g]);
		n += head.n_runs[g] * sizeof(*run);
	}
	r = add(core, CAT_STATE, n);
	if (!r)
		return;
	*r = head;
	put_marks((struct cat_mark *)(r + 1), state);
	run = (struct cat_run *)((struct cat_mark *)(r + 1) + state->head.n_marks);
	for (uint32_t g = 0; g < n_groups; g++)
		run = put_runs(run, state->refs[g], state->n_blocks[g]);
}

void log_state_gone(struct core *core, uint64_t id)
{
	log_gone(core, CAT_STATE_GONE, id);
}

void log_object(struct core *core, const struct object *object)
{
	size_t n_name = object->name ? strlen(object->name) : 0;
	struct cat_object *r = add(core, CAT_OBJECT, sizeof(*r) + n_name);

	if (!r)
		return;
	r->id = object->id;
	r->kind = object->kind;
	r->listed = object->listed;
	r->uid = object->uid;
	r->place = object->place;
	r->session = object->session ? object->session->id : 0;
	r->state_id = object->state ? object->state->id : 0;
	r->layout_id = object->layout->id;
	r->parent_id = object->parent_id;
	r->parent_update = object->parent_update;
	r->created_unix_ns = object->created_unix_ns;
	r->has_digest = object->has_digest;
	memcpy(r->digest, object->digest, sizeof(r->digest));
	r->n_name = (uint32_t)n_name;
	if (n_name)
		memcpy(r + 1, object->name, n_name);
}

void log_object_gone(struct core *core, uint64_t id)
{
	log_gone(core, CAT_OBJECT_GONE, id);
}

void log_pin(struct core *core, const struct session *session, const struct session_pin *pin)
{
	struct cat_pin *r = add(core, CAT_PIN, sizeof(*r));

	if (r)
		*r = (struct cat_pin){session->id, pin->object->id, pin->by_client};
}

void log_decided(struct core *core)
{
	size_t n_ones = core->decided.n * sizeof(core->decided.ones[0]);
	struct cat_decided *r = add(core, CAT_DECIDED, sizeof(*r) + n_ones);

	if (!r)
		return;
	r->n = core->decided.n;
	memcpy(r + 1, core->decided.ones, n_ones);
}

void log_result(struct core *core, const struct session *session, const struct request *request)
{
	struct cat_result *r = add(core, CAT_RESULT, sizeof(*r) + request->n_reply);

	if (!r)
		return;
	r->session = session->id;
	r->request_id = request->id;
	r->acked = session->acked;
	r->n_bytes = request->n_reply;
	if (request->n_reply)
		memcpy(r + 1, request->reply, request->n_reply);
}

void log_ack(struct core *core, const struct session *session)
{
	struct cat_ack *r = add(core, CAT_ACK, sizeof(*r));

	if (r)
		*r = (struct cat_ack){session->id, session->acked};
}

void log_arena_digests(struct core *core, const struct arena *arena, const uint32_t *blocks,
		       uint64_t n, bool known)
{
	struct cat_digests *r = add(core, CAT_DIGESTS, sizeof(*r) + n * sizeof(struct cat_digest));
	struct cat_digest *one;

	if (!r)
		return;
	*r = (struct cat_digests){.arena = arena->id, .n = n};
	one = (struct cat_digest *)(r + 1);
	for (uint64_t i = 0; i < n; i++) {
		one[i].index = blocks[i];
		one[i].is_known = known;
		if (known)
			memcpy(one[i].digest, arena_digest(arena, blocks[i])->bytes,
			       KV_DIGEST_BYTES);
	}
}

void log_partial_digests(struct core *core, const struct state *state)
{
	uint64_t n = 0;
	struct cat_digests *r;
	struct cat_digest *one;

	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++)
		n += state->partial_known[g];
	if (n == 0)
		return;
	r = add(core, CAT_DIGESTS, sizeof(*r) + n * sizeof(struct cat_digest));
	if (!r)
		return;
	*r = (struct cat_digests){.state = state->id, .n = n};
	one = (struct cat_digest *)(r + 1);
	for (uint32_t g = 0; g < KV_GROUPS_MAX; g++) {
		if (!state->partial_known[g])
			continue;
		one->index = g;
		one->is_known = 1;
		memcpy(one->digest, state->partial[g].bytes, KV_DIGEST_BYTES);
		one++;
	}
}

void log_watch(struct core *core, const struct session *session, const struct watch *watch)
{
	size_t n = strlen(watch->name);
	struct cat_watch *r = add(core, CAT_WATCH, sizeof(*r) + n);

	if (!r)
		return;
	*r = (struct cat_watch){watch->id, session->id, (uint32_t)n, 0};
	memcpy(r + 1, watch->name, n);
}

void log_watch_over(struct core *core, uint64_t id)
{
	struct cat_watch *r = add(core, CAT_WATCH, sizeof(*r));

	if (r)
		r->id = id;
}
