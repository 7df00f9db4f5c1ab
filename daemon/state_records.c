/*
 * What one record of the catalogue means: a reader for each type, which checks that the record fits
 * what was read before it, and does again in memory what the record tells of.
 *
 * Failure. -1 with the type that makes no sense; what was loaded by then is for nothing, and the
 * caller gives the whole up. No memory ends the core. Core thread, at the start.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/names.h"
#include "daemon/objects.h"
#include "daemon/pidfd.h"
#include "daemon/requests.h"
#include "daemon/session.h"
#include "daemon/state_log.h"
#include "daemon/state_records.h"
#include "proto/runtime.h"

int records_bad(struct errbuf *err, const char *what)
{
	return errbuf_set(err, KV_ECORRUPT, "catalogue: a record of %s makes no sense", what);
}

int records_kept_fd(const struct core *core, enum kept_kind kind, uint64_t id)
{
	for (size_t i = 0; i < core->env->n_kept; i++) {
		const struct kept *kept = &core->env->kept[i];

		if (kept->kind == kind && kept->id == id)
			return fcntl(kept->fd, F_DUPFD_CLOEXEC, 0);
	}
	return -1;
}

bool records_has_gone(const struct loader *loader, uint64_t id)
{
	return idlist_find(&loader->gone, id) != NULL;
}

static struct layout_entry *layout_of(const struct core *core, uint64_t id)
{
	return idlist_find(&core->layouts, id);
}

/* ---- layouts, sessions -------------------------------------------------------------------- */

static struct layout_entry *new_layout(struct core *core, const struct cat_layout *r,
				       struct errbuf *err)
{
	struct layout_entry *entry = state_alloc(1, sizeof(*entry));
	Kv__Wire__Layout *wire = kv__wire__layout__unpack(NULL, r->n_bytes,
							  (const uint8_t *)(r + 1));

	entry->id = r->id;
	if (wire) {
		entry->layout = kv_layout_from_wire(wire, err);
		kv__wire__layout__free_unpacked(wire, NULL);
	}
	if (!entry->layout) {
		free(entry);
		return NULL;
	}
	if (idlist_add(&core->layouts, entry->id, entry))
		state_die("no memory for layouts");
	return entry;
}

static int load_layout(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_layout *r = p;
	struct layout_entry *entry = layout_of(loader->core, r->id);
	uint32_t *uids;

	if (n != sizeof(*r) + r->n_bytes)
		return records_bad(err, "a layout");
	if (!entry)
		entry = new_layout(loader->core, r, err);
	if (!entry)
		return records_bad(err, "a layout");
	uids = realloc(entry->uids, (entry->n_uids + 1) * sizeof(uids[0]));
	if (!uids)
		state_die("no memory for layouts");
	entry->uids = uids;
	uids[entry->n_uids++] = r->uid;
	return 0;
}

/*
 * A session that has ended by now was logged once as it began: its grants end here. What was dirty
 * then was zeroed then; not again now, for a state that comes later in the catalogue may name a
 * block that only states which have gone named before.
 */
static void end_again(struct session *session)
{
	session->phase = SESSION_ENDED;
	for (struct arena *a = session->arenas; a; a = a->next_in_session) {
		a->writer = ARENA_WRITTEN;
		arena_forget_dirty(a);
		arena_end(a);
	}
}

static int load_session(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	struct core *core = loader->core;
	const struct cat_session *r = p;
	struct session *session = session_find(core, r->id);
	int fd;

	(void)n;
	if (records_has_gone(loader, r->id))
		return 0;
	if (!session) {
		fd = records_kept_fd(core, KEPT_PIDFD, r->id);
		if (fd < 0)
			return records_bad(err, "a session whose process the keeper does not have");
		if (!pidfd_is_one(fd)) {
			close(fd);
			return records_bad(err, "a session whose kept process is none");
		}
		session = session_load(core, r, fd);
	}
	if (r->ended)
		end_again(session);
	return 0;
}

static int load_writer(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_writer *r = p;
	struct session *session = session_find(loader->core, r->session);

	(void)n;
	if (records_has_gone(loader, r->session))
		return 0;
	if (!session || r->writer >= KV_WRITERS_MAX)
		return records_bad(err, "a writer");
	session->writers[r->writer].in_use = r->in_use != 0;
	return 0;
}

/* ---- arenas ------------------------------------------------------------------------------- */

static int load_arena(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_arena *r = p;
	const struct layout_entry *entry = layout_of(loader->core, r->layout_id);
	struct arena_spec spec = {.id = r->id,
				  .session_id = r->session,
				  .layout_id = r->layout_id,
				  .layout = entry ? entry->layout : NULL,
				  .group = r->group,
				  .n_blocks = r->n_blocks};
	int fd;

	(void)n;
	if (records_has_gone(loader, r->id))
		return 0;
	if (!entry || r->group >= entry->layout->n_groups || r->n_blocks == 0 ||
	    r->n_blocks > GREF_BLOCK_MAX || arenas_find(loader->core, r->id))
		return records_bad(err, "an arena");
	fd = records_kept_fd(loader->core, KEPT_ARENA, r->id);
	if (fd < 0)
		return records_bad(err, "an arena that the keeper does not have");
	return arenas_load(loader->core, &spec, r->uid, fd, err);
}

static int load_blocks(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_blocks *r = p;
	struct arena *arena = arenas_find(loader->core, r->arena);

	(void)n;
	if (records_has_gone(loader, r->arena))
		return 0;
	if (!arena || r->first_block > arena->n_blocks ||
	    r->n_blocks > arena->n_blocks - r->first_block || r->state > LOG_BLOCKS_DIRTY)
		return records_bad(err, "blocks");
	/* nobody has grants in an arena whose session has gone; what no state pins is zeroed */
	if (r->state == LOG_BLOCKS_DIRTY || arena->writer == ARENA_GONE) {
		arena_soil(arena, r->first_block, r->n_blocks);
		return 0;
	}
	for (uint32_t b = r->first_block; b < r->first_block + r->n_blocks; b++) {
		if (arena_has_granted(arena, b) == (r->state == LOG_BLOCKS_GRANTED))
			continue;
		if (r->state == LOG_BLOCKS_GRANTED)
			arena_grant(arena, b, 1);
		else
			arena_ungrant(arena, b, 1);
	}
	return 0;
}

static int load_number(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_number *r = p;
	struct session *session = session_find(loader->core, r->session);

	(void)n;
	if (records_has_gone(loader, r->session))
		return 0;
	if (!session || r->number == 0 || r->number >= KV_ARENAS_MAX)
		return records_bad(err, "an arena number");
	session->numbers[r->number].arena = r->arena ? arenas_find(loader->core, r->arena) : NULL;
	if (r->number >= session->numbers_end)
		session->numbers_end = r->number + 1;
	session->next_number = r->number + 1 < KV_ARENAS_MAX ? r->number + 1 : 1;
	return 0;
}

/* ---- states and objects ------------------------------------------------------------------- */

static struct kv_head head_of(const struct cat_state *r)
{
	return (struct kv_head){.length_tokens = r->length_tokens,
				.position = r->position,
				.journal_first = r->journal_first,
				.journal_end = r->journal_end,
				.planes = r->planes,
				.base_tokens = r->base_tokens,
				.n_marks = r->n_marks,
				.state = r->head_state};
}

/* The runs of one group are as many blocks as the header has. */
static bool runs_fit(const struct cat_run *run, uint64_t n_runs, uint64_t n_blocks)
{
	for (; n_runs; n_runs--, run++) {
		if (run->n_blocks > n_blocks)
			return false;
		n_blocks -= run->n_blocks;
	}
	return n_blocks == 0;
}

static bool state_fits(const struct cat_state *r, uint32_t n, const struct layout_entry *entry)
{
	uint64_t bytes = sizeof(*r) + (uint64_t)r->n_marks * sizeof(struct cat_mark);
	struct kv_head head = head_of(r);

	if (!entry || r->n_groups != entry->layout->n_groups ||
	    kv_head_wrong(entry->layout, &head, KV_TOKENS_MAX))
		return false;
	for (uint32_t g = 0; g < r->n_groups; g++) {
		const struct cat_run *runs = (const void *)((const char *)r + bytes);
		uint64_t n_blocks = kv_head_window(entry->layout, &head, g).n;

		if (bytes > n || r->n_runs[g] > (n - bytes) / sizeof(*runs) ||
		    !runs_fit(runs, r->n_runs[g], n_blocks))
			return false;
		bytes += r->n_runs[g] * sizeof(*runs);
	}
	return bytes == n;
}

static void load_tables(struct state *state, const struct cat_state *r)
{
	const struct cat_run *run = (const struct cat_run *)((const struct cat_mark *)(r + 1) +
							     r->n_marks);

	for (uint32_t g = 0; g < r->n_groups; g++) {
		uint64_t *ref = state->refs[g] = state_alloc(state->n_blocks[g], sizeof(uint64_t));

		for (uint64_t i = 0; i < r->n_runs[g]; i++, run++)
			for (uint64_t b = 0; b < run->n_blocks; b++)
				*ref++ = run->first + b;
	}
}

static void load_marks(struct state *state, const struct cat_mark *marks)
{
	state->marks = state_alloc(state->head.n_marks, sizeof(state->marks[0]));
	for (uint32_t i = 0; i < state->head.n_marks; i++)
		state->marks[i] = (struct seg_mark){marks[i].id, marks[i].update,
						    marks[i].length_tokens, marks[i].journal_end};
}

static bool blocks_fit(const struct core *core, const struct state *state)
{
	for (uint32_t g = 0; g < state->layout->layout->n_groups; g++) {
		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			const struct arena *a = arenas_find(core, gref_arena(state->refs[g][i]));

			if (!a || a->group != g || a->layout_id != state->layout->id ||
			    gref_block(state->refs[g][i]) >= a->n_blocks)
				return false;
		}
	}
	return true;
}

static int load_state(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	struct core *core = loader->core;
	const struct cat_state *r = p;
	const struct layout_entry *entry = layout_of(core, r->layout_id);
	struct state *state;

	if (records_has_gone(loader, r->id))
		return 0;
	if (idlist_find(&core->states, r->id) || !state_fits(r, n, entry))
		return records_bad(err, "a state");
	state = state_new(entry);
	state->head = head_of(r);
	state->update = r->update;
	state_set_counts(state);
	load_marks(state, (const struct cat_mark *)(r + 1));
	load_tables(state, r);
	if (!blocks_fit(core, state) || state_count_arenas(core, state, err)) {
		state_free(state);
		return records_bad(err, "a state whose blocks are not there");
	}
	state->id = r->id;
	state_enlist(core, state); /* the reference is the loader's, until the end */
	return 0;
}

static void take_object(struct core *core, struct object *object, const struct cat_object *r,
			const char *name)
{
	struct state *old = object->state;

	object->session = session_find(core, r->session);
	object->place = r->place;
	object->state = r->state_id ? idlist_find(&core->states, r->state_id) : NULL;
	if (object->state)
		state_ref(object->state);
	if (old)
		old->n_refs--; /* the loader's is left */
	object->parent_id = r->parent_id;
	object->parent_update = r->parent_update;
	object->created_unix_ns = r->created_unix_ns;
	object->has_digest = r->has_digest != 0;
	memcpy(object->digest, r->digest, sizeof(object->digest));
	names_remove(core, object);
	if (r->n_name)
		names_add(core, object, name);
	if (object->listed != (r->listed != 0))
		pool_user(&core->pool, object->uid)->n_objects += r->listed ? 1u : -1u;
	object->listed = r->listed != 0;
}

static int load_object(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	struct core *core = loader->core;
	const struct cat_object *r = p;
	const struct layout_entry *entry = layout_of(core, r->layout_id);
	struct object *object = idlist_find(&core->objects, r->id);
	const struct state *state = r->state_id ? idlist_find(&core->states, r->state_id) : NULL;
	char name[KV_NAME_BYTES_MAX + 1] = "";

	if (records_has_gone(loader, r->id))
		return 0;
	if (!entry || r->n_name > KV_NAME_BYTES_MAX || n != sizeof(*r) + r->n_name ||
	    (r->kind != OBJECT_SEQUENCE && r->kind != OBJECT_SNAPSHOT) ||
	    (object &&
	     (object->kind != r->kind || object->layout != entry || object->uid != r->uid)) ||
	    (state && state->layout != entry))
		return records_bad(err, "a sequence or snapshot");
	memcpy(name, r + 1, r->n_name);
	if (r->n_name && (strlen(name) != r->n_name || kv_name_check(name, err)))
		return records_bad(err, "a sequence or snapshot");
	if (!object) {
		object = state_alloc(1, sizeof(*object));
		object->id = r->id;
		object->kind = (enum object_kind)r->kind;
		object->uid = r->uid;
		object->layout = entry;
		if (idlist_add(&core->objects, object->id, object))
			state_die("no memory for the list of objects");
	}
	take_object(core, object, r, name);
	return 0;
}

/* ---- uses --------------------------------------------------------------------------------- */

struct session_pin *records_pin(struct session *session, struct object *object)
{
	struct session_pin *pin = session_pin_find(session, object);
	struct session_pin *pins;

	if (pin)
		return pin;
	pins = realloc(session->pins, (session->n_pins + 1) * sizeof(pins[0]));
	if (!pins)
		state_die("no memory for pins");
	session->pins = pins;
	session->pins_cap = session->n_pins + 1;
	pins[session->n_pins] = (struct session_pin){.object = object};
	return &pins[session->n_pins++];
}

static int load_pin(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_pin *r = p;
	struct session *session = session_find(loader->core, r->session);
	struct object *object = idlist_find(&loader->core->objects, r->object);

	(void)n;
	if (records_has_gone(loader, r->session) || records_has_gone(loader, r->object))
		return 0;
	if (!session || !object)
		return records_bad(err, "a pin");
	records_pin(session, object)->by_client = r->by_client != 0;
	return 0;
}

static void free_place(struct session *session, uint32_t index)
{
	struct place *place = session->places[index];

	if (!place)
		return;
	session->places[index] = NULL;
	session->n_places--;
	session->writers[place->seg.writer].n_places--;
	free(place);
}

/* The table of a place is as long as its layout and max_tokens make it. */
static bool place_fits(const struct cat_place *r, const struct layout_entry *entry)
{
	if (!entry || r->n_groups != entry->layout->n_groups || r->max_tokens > KV_TOKENS_MAX)
		return false;
	for (uint32_t g = 0; g < r->n_groups; g++)
		if (r->n_entries[g] != segment_n_entries(entry->layout, g, r->max_tokens))
			return false;
	return true;
}

static int load_place(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	struct core *core = loader->core;
	const struct cat_place *r = p;
	struct session *session = session_find(core, r->session);
	struct place *place;

	(void)n;
	if (records_has_gone(loader, r->session))
		return 0;
	if (!session || r->index >= KV_PLACES_MAX || r->writer >= KV_WRITERS_MAX ||
	    r->kind > PLACE_SPARE ||
	    (r->kind != PLACE_FREE && !place_fits(r, layout_of(core, r->layout_id))))
		return records_bad(err, "a place");
	free_place(session, r->index);
	if (r->kind == PLACE_FREE)
		return 0;
	place = state_alloc(1, sizeof(*place));
	place->kind = (enum place_kind)r->kind;
	place->layout = layout_of(core, r->layout_id);
	place->object = r->object_id ? idlist_find(&core->objects, r->object_id) : NULL;
	place->base = r->base_id ? idlist_find(&core->objects, r->base_id) : NULL;
	place->seg = (struct seg_place){.index = r->index,
					.writer = r->writer,
					.n_groups = r->n_groups,
					.layout_id = r->layout_id,
					.seq_id = r->kind == PLACE_SPARE ? 0 : r->object_id,
					.max_tokens = r->max_tokens};
	memcpy(place->seg.table_off, r->table_off, sizeof(r->table_off));
	memcpy(place->seg.n_entries, r->n_entries, sizeof(r->n_entries));
	session->places[r->index] = place;
	session->n_places++;
	session->writers[r->writer].n_places++;
	session->next_place = r->index + 1;
	return 0;
}

static int load_decided(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_decided *r = p;

	if (r->n > KV_TARGETS_MAX || n != sizeof(*r) + r->n * sizeof(struct cat_decided_one))
		return records_bad(err, "a rollback");
	loader->core->decided.n = (uint32_t)r->n;
	memcpy(loader->core->decided.ones, r + 1, r->n * sizeof(struct cat_decided_one));
	return 0;
}

static int load_result(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_result *r = p;
	struct session *session = session_find(loader->core, r->session);

	if (n != sizeof(*r) + r->n_bytes || r->n_bytes > KV_REQUEST_BYTES_MAX)
		return records_bad(err, "a result");
	if (!session || session->phase == SESSION_ENDED)
		return 0;
	requests_ack(session, r->acked);
	requests_load(session, r->request_id, r + 1, r->n_bytes);
	return 0;
}

static int load_ack(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_ack *r = p;
	struct session *session = session_find(loader->core, r->session);

	(void)n;
	(void)err;
	if (session)
		requests_ack(session, r->acked);
	return 0;
}

static int load_watch(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_watch *r = p;
	struct session *session = session_find(loader->core, r->session);
	char name[KV_NAME_BYTES_MAX + 1] = "";
	int fd;

	if (r->n_name > KV_NAME_BYTES_MAX || n != sizeof(*r) + r->n_name)
		return records_bad(err, "a watch");
	if (r->n_name == 0 || records_has_gone(loader, r->id) || !session)
		return 0;
	memcpy(name, r + 1, r->n_name);
	fd = records_kept_fd(loader->core, KEPT_WATCH, r->id);
	if (fd >= 0)
		session_watch_load(session, r->id, name, fd);
	return 0;
}

static int load_digests(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_digests *r = p;
	const struct cat_digest *one = (const struct cat_digest *)(r + 1);
	struct arena *arena = arenas_find(loader->core, r->arena);
	struct state *state = idlist_find(&loader->core->states, r->state);

	if (r->n > CAT_PAYLOAD_MAX / sizeof(*one) || n != sizeof(*r) + r->n * sizeof(*one))
		return records_bad(err, "digests");
	for (uint64_t i = 0; i < r->n; i++, one++) {
		struct kv_block_digest digest;

		memcpy(digest.bytes, one->digest, sizeof(digest.bytes));
		if (state && one->index < KV_GROUPS_MAX) {
			state->partial[one->index] = digest;
			state->partial_known[one->index] = true;
		} else if (arena && one->index < arena->n_blocks && arena->pins[one->index]) {
			if (!one->is_known)
				arena_digest_forget(arena, one->index);
			else if (arena_digest_set(arena, one->index, &digest))
				state_die("no memory for digests");
		}
	}
	return 0;
}

static int load_counters(struct loader *loader, const void *p, uint32_t n, struct errbuf *err)
{
	const struct cat_counters *r = p;

	(void)n;
	(void)err;
	if (r->next_id > loader->core->next_id)
		loader->core->next_id = r->next_id;
	loader->core->n_copied_bytes = r->n_copied_bytes;
	return 0;
}

/* ---- the table ---------------------------------------------------------------------------- */

typedef int load_fn(struct loader *loader, const void *payload, uint32_t n_bytes,
		    struct errbuf *err);

/* In which pass a type is read, by whom, and the least that a payload has. */
static const struct {
	load_fn *fn;
	uint32_t least;
	int pass;
} loads[CAT_TYPE_MAX + 1] = {
	[CAT_COUNTERS] = {load_counters, sizeof(struct cat_counters), 1},
	[CAT_LAYOUT] = {load_layout, sizeof(struct cat_layout), 1},
	[CAT_SESSION] = {load_session, sizeof(struct cat_session), 1},
	[CAT_WRITER] = {load_writer, sizeof(struct cat_writer), 1},
	[CAT_ARENA] = {load_arena, sizeof(struct cat_arena), 1},
	[CAT_BLOCKS] = {load_blocks, sizeof(struct cat_blocks), 1},
	[CAT_NUMBER] = {load_number, sizeof(struct cat_number), 1},
	[CAT_PLACE] = {load_place, sizeof(struct cat_place), 1},
	[CAT_STATE] = {load_state, sizeof(struct cat_state), 1},
	[CAT_OBJECT] = {load_object, sizeof(struct cat_object), 1},
	[CAT_PIN] = {load_pin, sizeof(struct cat_pin), 1},
	[CAT_DECIDED] = {load_decided, sizeof(struct cat_decided), 1},
	[CAT_RESULT] = {load_result, sizeof(struct cat_result), 1},
	[CAT_ACK] = {load_ack, sizeof(struct cat_ack), 1},
	[CAT_WATCH] = {load_watch, sizeof(struct cat_watch), 1},
	[CAT_DIGESTS] = {load_digests, sizeof(struct cat_digests), 2},
};

/* The first field of most records is an id; what comes behind the last one must still be one. */
static int check_id(struct loader *loader, enum cat_type type, uint64_t id, struct errbuf *err)
{
	if (type == CAT_DECIDED)
		return 0;
	if (id > CAT_ID_MAX || (id == 0 && type != CAT_DIGESTS))
		return records_bad(err, "an id that is none");
	if (type != CAT_COUNTERS && id >= loader->core->next_id)
		loader->core->next_id = id + 1;
	return 0;
}

int records_load(struct loader *loader, int pass, enum cat_type type, const void *payload,
		 uint32_t n_bytes, struct errbuf *err)
{
	uint64_t id;

	if (!loads[type].fn || loads[type].pass != pass)
		return 0;
	if (n_bytes < loads[type].least)
		return records_bad(err, "a known type, cut short,");
	memcpy(&id, payload, sizeof(id));
	if (check_id(loader, type, id, err))
		return -1;
	return loads[type].fn(loader, payload, n_bytes, err);
}
