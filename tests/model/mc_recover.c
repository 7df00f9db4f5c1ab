/*
 * The core's recovery of rows (daemon/recover_rows.c), for bare memory. It is compiled here anew,
 * with doubles of what it needs of the core: core and library have functions of the same names and
 * cannot be linked into one program.
 */
#define session_arena mc_session_arena
#define session_owns mc_session_owns
#define live_owns_arena mc_live_owns_arena
#define arena_read mc_arena_read
#define arena_write mc_arena_write
#define state_block mc_state_block
#define state_alloc mc_state_alloc
#define log_line mc_log_line
#define recover_rows mc_recover_rows
#define recover_rows_open mc_recover_rows_open
#define recover_rows_open_in mc_recover_rows_open_in
#include "daemon/recover_rows.c"
#undef session_arena

#include <string.h>

#include "tests/model/mc.h"

static struct bare *world;
static struct arena arenas[KV_GROUPS_MAX];

struct arena *mc_session_arena(const struct session *session, uint32_t number)
{
	(void)session;
	return number >= 1 && number <= world->layout.fields->n_groups ? &arenas[number - 1] : NULL;
}

bool mc_session_owns(const struct session *session, const struct arena *arena, uint32_t block)
{
	(void)session;
	return block < BARE_ARENA_BLOCKS && world->arenas[arena->group].granted[block];
}

bool mc_live_owns_arena(const struct session *session, const struct place *place, uint32_t group,
			const struct arena *arena)
{
	(void)session;
	(void)place;
	return arena && arena->group == group;
}

static char *piece_at(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
		      size_t n_bytes)
{
	const struct kv_layout *layout = world->layout.fields;
	const struct kv_group *g = &layout->groups[arena->group];
	const struct arena_map *map = &world->arenas[arena->group].map;
	uint32_t piece = layout->regions[g->first_region + region].piece_bytes;

	MC_CHECK(block < BARE_ARENA_BLOCKS && region < g->n_regions && off <= piece &&
		 n_bytes <= piece - off);
	return map->base + map->region_off[region] + (uint64_t)block * piece + off;
}

int mc_arena_read(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
		  size_t n_bytes, void *out, struct errbuf *err)
{
	(void)err;
	memcpy(out, piece_at(arena, block, region, off, n_bytes), n_bytes);
	return 0;
}

int mc_arena_write(const struct arena *arena, uint32_t block, uint32_t region, uint64_t off,
		   size_t n_bytes, const void *bytes, struct errbuf *err)
{
	(void)err;
	memcpy(piece_at(arena, block, region, off, n_bytes), bytes, n_bytes);
	return 0;
}

const uint64_t *mc_state_block(const struct state *state, uint32_t group, uint64_t number)
{
	uint64_t i = number - state->first_block[group];

	if (number < state->first_block[group] || i >= state->n_blocks[group])
		return NULL;
	return &state->refs[group][i];
}

void *mc_state_alloc(size_t n, size_t size)
{
	return calloc(n, size);
}

/* A row that makes no sense would be one that the library wrote. */
void mc_log_line(enum log_level level, const char *subsystem, const char *format, ...)
{
	(void)level;
	MC_FAIL("%s: the core says: %s", subsystem, format);
}

/* ---- burial ------------------------------------------------------------------------------- */

/* One place of a writer that is gone, as the core has it. */
struct grave {
	struct place place;
	struct object object, base;
	struct state base_state;
	struct layout_entry layout;
	char name[2];
};

static void dig(struct grave *grave, const struct mc_seq *s)
{
	memset(grave, 0, sizeof(*grave));
	grave->layout = (struct layout_entry){.layout = world->layout.fields};
	grave->name[0] = 's';
	grave->object.name = grave->name;
	grave->place = (struct place){
		.kind = PLACE_SEQUENCE,
		.seg = world->places[s->seq->place],
		.layout = &grave->layout,
		.object = &grave->object,
	};
	if (!s->base)
		return;
	grave->place.base = &grave->base;
	grave->base.state = &grave->base_state;
	grave->base_state.layout = &grave->layout;
	for (uint32_t g = 0; g < world->layout.fields->n_groups; g++) {
		uint64_t n = s->base->state.n_blocks[g];

		grave->base_state.first_block[g] = s->base->state.first_block[g];
		grave->base_state.n_blocks[g] = n;
		grave->base_state.refs[g] = calloc(n + 1, sizeof(uint64_t));
		for (uint64_t i = 0; i < n; i++)
			grave->base_state.refs[g][i] = gref_make(
				arenas[g].id, kv_ref_block(s->base->state.refs[g][i]));
	}
}

uint64_t mc_bury(struct mc_world *w)
{
	static struct grave graves[MC_SEQS];
	static struct place *places[KV_PLACES_MAX];
	static struct session session;
	uint64_t update;

	world = w->bare;
	memset(places, 0, sizeof(places));
	memset(&session, 0, sizeof(session));
	session.segment = world->segment;
	session.places = places;
	for (uint32_t g = 0; g < world->layout.fields->n_groups; g++)
		arenas[g] = (struct arena){.id = 100 + g, .group = g};
	for (int i = 0; i < MC_SEQS; i++)
		if (w->seqs[i].seq) {
			dig(&graves[i], &w->seqs[i]);
			places[graves[i].place.seg.index] = &graves[i].place;
		}
	while (!mc_recover_rows(&session, 3))
		continue;
	update = hold_bury(w->writer->shm);
	for (int i = 0; i < MC_SEQS; i++) {
		if (!w->seqs[i].seq)
			continue;
		hold_clear(&world->segment, &world->places[w->seqs[i].seq->place]);
		for (uint32_t g = 0; w->seqs[i].base && g < world->layout.fields->n_groups; g++)
			free(graves[i].base_state.refs[g]);
	}
	return update;
}
