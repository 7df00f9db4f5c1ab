/*
 * All that is known as records (daemon/state_log.h). Order: who is named comes before who names.
 */
#include "daemon/state_log.h"

static void dump_counters(struct core *core)
{
	struct cat_counters *r = catalogue_add(&core->catalogue, CAT_COUNTERS, sizeof(*r));

	if (r)
		*r = (struct cat_counters){core->next_id, core->n_copied_bytes};
}

static void dump_layouts(struct core *core)
{
	for (size_t i = 0; i < core->layouts.n; i++) {
		const struct layout_entry *entry = core->layouts.items[i].thing;

		for (uint32_t u = 0; u < entry->n_uids; u++)
			log_layout(core, entry, entry->uids[u]);
	}
}

static void dump_sessions(struct core *core)
{
	for (size_t i = 0; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.items[i].thing;

		log_session(core, session);
		for (uint32_t w = 0; w < KV_WRITERS_MAX; w++)
			if (session->writers[w].in_use)
				log_writer(core, session, w);
	}
}

/* Ranges of blocks with the same bit. */
static void dump_bits(struct core *core, const struct arena *arena, const uint64_t *map,
		      uint32_t state)
{
	uint32_t first = 0;

	while (first < arena->n_blocks) {
		uint32_t end;

		if (!(map[first / 64] >> first % 64)) {
			first = (first / 64 + 1) * 64;
			continue;
		}
		first += (uint32_t)__builtin_ctzll(map[first / 64] >> first % 64);
		for (end = first; end < arena->n_blocks && map[end / 64] >> end % 64 & 1; end++)
			;
		log_blocks(core, arena, first, end - first, state);
		first = end;
	}
}

static void dump_arenas(struct core *core)
{
	for (size_t i = 0; i < core->arenas.n; i++) {
		const struct arena *arena = core->arenas.items[i].thing;

		log_arena(core, arena);
		dump_bits(core, arena, arena->granted, LOG_BLOCKS_GRANTED);
		dump_bits(core, arena, arena->dirty, LOG_BLOCKS_DIRTY);
		dump_bits(core, arena, arena->warm, LOG_BLOCKS_DIRTY);
	}
}

static void dump_arena_digests(struct core *core, const struct arena *arena)
{
	uint32_t blocks[256];
	uint64_t n = 0;

	for (uint32_t b = 0; arena->digest_known && b < arena->n_blocks; b++) {
		if (!arena_digest(arena, b))
			continue;
		blocks[n++] = b;
		if (n == sizeof(blocks) / sizeof(blocks[0])) {
			log_arena_digests(core, arena, blocks, n, true);
			n = 0;
		}
	}
	if (n)
		log_arena_digests(core, arena, blocks, n, true);
}

static void dump_digests(struct core *core)
{
	for (size_t i = 0; i < core->arenas.n; i++)
		dump_arena_digests(core, core->arenas.items[i].thing);
	for (size_t i = 0; i < core->states.n; i++)
		log_partial_digests(core, core->states.items[i].thing);
}

static void dump_objects(struct core *core)
{
	for (size_t i = 0; i < core->states.n; i++)
		log_state(core, core->states.items[i].thing);
	for (size_t i = 0; i < core->objects.n; i++)
		log_object(core, core->objects.items[i].thing);
}

static void dump_uses(struct core *core, const struct session *session)
{
	for (uint32_t n = 1; n < session->numbers_end; n++)
		if (session->numbers[n].arena)
			log_number(core, session, n);
	for (uint32_t i = 0; i < session->n_pins; i++)
		if (session->pins[i].by_client)
			log_pin(core, session, &session->pins[i]);
	for (uint32_t i = 0; i < KV_PLACES_MAX; i++)
		if (session->places[i])
			log_place(core, session, session->places[i]);
	for (uint32_t i = 0; i < session->n_watches; i++)
		log_watch(core, session, &session->watches[i]);
}

static void dump_requests(struct core *core, const struct session *session)
{
	log_ack(core, session);
	for (uint32_t i = 0; i < session->n_requests; i++)
		if (session->requests[i].logged)
			log_result(core, session, &session->requests[i]);
}

void state_dump(struct core *core, bool with_requests)
{
	dump_counters(core);
	dump_layouts(core);
	dump_sessions(core);
	dump_arenas(core);
	dump_objects(core);
	dump_digests(core);
	for (size_t i = 0; i < core->sessions.n; i++) {
		const struct session *session = core->sessions.items[i].thing;

		dump_uses(core, session);
		if (with_requests)
			dump_requests(core, session);
	}
	if (core->decided.n)
		log_decided(core);
}
