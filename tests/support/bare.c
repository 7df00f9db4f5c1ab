#include "tests/support/bare.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/reserve.h"

/*
 * Doubles of what client/session.c and client/arenas.c do with a daemon. They are found before
 * the ones in libkvclient.la, whose objects are then not linked.
 */
int session_forked(void)
{
	return kvc_fail(KVC_EFORKED, "handle belongs to another process");
}

struct arena_map *session_arena(struct kvc_session *session, uint32_t arena)
{
	return session_arena_mapped(session, arena);
}

void session_base_ref(struct kvc_session *session, uint64_t base_id)
{
	(void)session;
	(void)base_id;
}

void session_base_unref(struct kvc_session *session, uint64_t base_id)
{
	(void)session;
	(void)base_id;
}

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "bare: %s:%d: %s\n", __FILE__, __LINE__, #what); \
			abort(); \
		} \
	} while (0)

static void *shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	CHECK(memory != MAP_FAILED);
	return memory;
}

struct kv_layout *bare_layout(uint32_t n_layers, const struct kv_layer *layers,
			      uint32_t block_tokens)
{
	struct kv_layout *layout = calloc(1, sizeof(*layout)), *copy;
	struct errbuf err;

	layout->fingerprint[0] = 1;
	layout->n_layers = n_layers;
	layout->layers = calloc(n_layers + 1, sizeof(layout->layers[0]));
	if (n_layers)
		memcpy(layout->layers, layers, n_layers * sizeof(layers[0]));
	layout->dtype = n_layers ? KV_DTYPE_F32 : 0;
	layout->k_format = layout->v_format = n_layers ? KV_FORMAT_RAW : 0;
	layout->block_tokens = block_tokens;
	layout->opaque_bytes = n_layers ? 0 : 48;
	CHECK(kv_layout_check(layout, &err) == 0);
	copy = kv_layout_copy(layout);
	kv_layout_free(layout);
	CHECK(copy);
	return copy;
}

static void make_arena(struct bare *bare, uint32_t g)
{
	struct bare_arena *arena = &bare->arenas[g];
	const struct kv_layout *layout = bare->layout.fields;

	arena->map.number = g + 1;
	arena->map.id = 100 + g;
	arena->map.layout_id = bare->layout.id;
	arena->map.group = g;
	arena->map.n_blocks = BARE_ARENA_BLOCKS;
	arena->map.writable = 1;
	arena->map.layout = layout;
	arena->map.region_off = calloc(layout->groups[g].n_regions, sizeof(uint64_t));
	arena->map.n_bytes = kv_layout_arena(layout, g, BARE_ARENA_BLOCKS, arena->map.region_off);
	arena->map.base = shared(arena->map.n_bytes);
	arena->map.owned = shared(BARE_ARENA_BLOCKS * sizeof(uint32_t));
	arena->granted = shared(BARE_ARENA_BLOCKS);
	arena->pins = shared(BARE_ARENA_BLOCKS * sizeof(uint32_t));
	segment_set_arena(&bare->segment, g + 1, arena->map.id);
	atomic_store(&bare->session.arenas[g + 1], &arena->map);
}

struct bare *bare_new(struct kv_layout *fields)
{
	struct bare *bare = calloc(1, sizeof(*bare));
	struct errbuf err;

	CHECK(bare && segment_make(&bare->segment, 7, &err) == 0);
	bare->session.segment = bare->segment.base;
	bare->session.own = shared(4096);
	atomic_store(bare->session.own, 1);
	bare->layout.session = &bare->session;
	bare->layout.id = 5;
	bare->layout.fields = fields;
	CHECK(codecs_make(&bare->layout) == 0);
	for (uint32_t g = 0; g < fields->n_groups; g++)
		make_arena(bare, g);
	return bare;
}

void bare_free(struct bare *bare)
{
	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++) {
		struct bare_arena *arena = &bare->arenas[g];

		munmap(arena->map.base, arena->map.n_bytes);
		munmap((void *)arena->map.owned, BARE_ARENA_BLOCKS * sizeof(uint32_t));
		free(arena->map.region_off);
		munmap((void *)arena->granted, BARE_ARENA_BLOCKS);
		munmap((void *)arena->pins, BARE_ARENA_BLOCKS * sizeof(uint32_t));
	}
	munmap((void *)bare->session.own, 4096);
	segment_fini(&bare->segment);
	codecs_free(&bare->layout);
	kv_layout_free(bare->layout.fields);
	free(bare);
}

struct kvc_writer *bare_writer(struct bare *bare, uint32_t index)
{
	segment_writer_init(&bare->segment, index);
	return writer_new(&bare->session, index);
}

static struct seg_place *new_place(struct bare *bare, uint32_t writer, uint64_t max_tokens)
{
	struct seg_place *place;
	struct errbuf err;
	uint32_t index = 0;

	while (index < BARE_PLACES && bare->place_used[index])
		index++;
	CHECK(index < BARE_PLACES);
	bare->place_used[index] = true;
	if (index == bare->n_places)
		bare->n_places++;
	place = &bare->places[index];
	*place = (struct seg_place){
		.index = index,
		.writer = writer,
		.layout_id = bare->layout.id,
		.seq_id = ++bare->next_seq_id,
		.max_tokens = max_tokens,
	};
	CHECK(segment_table_alloc(&bare->segment, place, bare->layout.fields, &err) == 0);
	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++)
		if (bare->most_entries[g] && bare->most_entries[g] < place->n_entries[g])
			place->n_entries[g] = bare->most_entries[g];
	return place;
}

void bare_place_free(struct bare *bare, uint32_t index)
{
	struct seg_place *place = &bare->places[index];

	CHECK(bare->place_used[index]);
	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++)
		place->n_entries[g] = segment_n_entries(bare->layout.fields, g, place->max_tokens);
	segment_table_free(&bare->segment, place);
	bare->place_used[index] = false;
}

static struct kvc_seq *attach(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			      const struct seg_state *state, enum kv_head_state head_state)
{
	struct seg_place *place = new_place(bare, writer->index, max_tokens);
	struct kvc_seq *seq;

	segment_place_init(&bare->segment, place, state, head_state, 0);
	seq = seq_attach(writer, &bare->layout, place->index, place->seq_id, 0);
	if (!seq)
		bare_place_free(bare, place->index);
	return seq;
}

static struct kvc_seq *must_be(struct kvc_seq *seq)
{
	if (!seq)
		fprintf(stderr, "bare: %s\n", kvc_error_text());
	CHECK(seq);
	return seq;
}

struct kvc_seq *bare_seq(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			 const struct seg_state *state)
{
	return must_be(attach(bare, writer, max_tokens, state, KV_HEAD_LIVE));
}

struct kvc_seq *bare_seq_try(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			     const struct seg_state *state)
{
	return attach(bare, writer, max_tokens, state, KV_HEAD_LIVE);
}

struct kvc_seq *bare_open(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
			  const struct seg_state *state)
{
	return must_be(attach(bare, writer, max_tokens, state, KV_HEAD_SNAPSHOT));
}

void bare_spare_places(struct bare *bare, struct kvc_writer *writer, uint64_t max_tokens,
		       uint32_t n)
{
	while (n--) {
		struct seg_place *place = new_place(bare, writer->index, max_tokens);

		segment_place_spare(&bare->segment, place);
		CHECK(seq_attach_spare(writer, &bare->layout, place->index) == 0);
	}
}

/* ---- blocks ------------------------------------------------------------------------------- */

/* What nobody should see any more. */
static void scribble(struct bare *bare, uint32_t g, uint32_t block)
{
	const struct kv_layout *layout = bare->layout.fields;
	struct bare_arena *arena = &bare->arenas[g];

	for (uint32_t r = 0; r < layout->groups[g].n_regions; r++) {
		uint32_t bytes = layout->regions[layout->groups[g].first_region + r].piece_bytes;

		memset(arena->map.base + arena->map.region_off[r] + (uint64_t)block * bytes, 0xee,
		       bytes);
	}
}

struct give {
	struct bare *bare;
};

static void take_block(void *arg, uint64_t layout_id, uint32_t group, uint32_t arena,
		       uint32_t first_block, uint32_t n_blocks)
{
	struct bare *bare = ((struct give *)arg)->bare;
	struct bare_arena *a = &bare->arenas[group];

	CHECK(layout_id == bare->layout.id && arena == group + 1);
	for (uint32_t i = first_block; i < first_block + n_blocks; i++) {
		CHECK(a->granted[i]);
		a->granted[i] = 0;
		if (!a->pins[i])
			scribble(bare, group, i);
	}
}

void bare_take_back(struct bare *bare, struct kvc_writer *writer, bool all)
{
	struct give give = {bare};

	writer_release(writer, all, take_block, &give);
}

static uint32_t pool_blocks(const struct bare *bare, uint32_t g)
{
	return bare->most_blocks[g] ? bare->most_blocks[g] : BARE_ARENA_BLOCKS;
}

static bool is_free(const struct bare_arena *a, uint32_t block)
{
	return !a->granted[block] && !a->pins[block];
}

/* All or nothing, as the core does it. */
static int grant(struct bare *bare, struct kvc_seq *seq, const uint32_t need[KV_GROUPS_MAX])
{
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		uint32_t n = 0;

		for (uint32_t i = 0; i < pool_blocks(bare, g); i++)
			n += is_free(&bare->arenas[g], i);
		if (n < need[g])
			return kvc_fail(KVC_EPOOL, "%u blocks of group %u, %u are free", need[g], g,
					n);
	}
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		struct bare_arena *a = &bare->arenas[g];

		for (uint32_t i = 0, n = need[g]; n; i++) {
			if (!is_free(a, i))
				continue;
			a->granted[i] = 1;
			scribble(bare, g, i);
			CHECK(seq_grant(seq, g, g + 1, i, 1) == 0);
			n--;
		}
	}
	return 0;
}

int bare_reserve(struct bare *bare, struct kvc_seq *seq, uint64_t n_tokens)
{
	uint32_t need[KV_GROUPS_MAX];

	bare_take_back(bare, seq->writer, false);
	seq_need(seq, n_tokens, need);
	return grant(bare, seq, need);
}

/* The double of client/reserve.c: what the library asks the daemon for by itself. */
int reserve_blocks(struct kvc_seq *seq, const uint32_t n_blocks[KV_GROUPS_MAX])
{
	struct bare *bare = (struct bare *)(void *)seq->writer->session;
	uint32_t need[KV_GROUPS_MAX];

	bare_take_back(bare, seq->writer, false);
	for (uint32_t g = 0; g < seq->n_groups; g++)
		need[g] = seq_short_of(seq, g, n_blocks[g]);
	return grant(bare, seq, need);
}

int bare_reserve_scatter(struct bare *bare, struct kvc_seq *seq, uint64_t n_updates,
			 uint64_t n_rows, uint32_t n_blocks)
{
	const struct kv_layout *layout = bare->layout.fields;
	uint32_t n[KV_GROUPS_MAX] = {0};

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		n[g] = n_blocks < seq->groups[g].n_entries ? n_blocks : seq->groups[g].n_entries;
	n[layout->journal_group] = (uint32_t)seq_row_blocks(seq, n_rows + n_updates + 1);
	if (layout->states_group < layout->n_groups)
		n[layout->states_group] = (uint32_t)seq_blocks_wanted(seq, layout->states_group,
								      n_updates);
	return reserve_blocks(seq, n);
}

void bare_pin(struct bare *bare, const struct seg_state *state, int n)
{
	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++)
		for (uint64_t i = 0; i < state->n_blocks[g]; i++) {
			uint32_t block = kv_ref_block(state->refs[g][i]);
			struct bare_arena *a = &bare->arenas[g];

			CHECK(kv_ref_arena(state->refs[g][i]) == g + 1);
			CHECK(a->granted[block] || a->pins[block]);
			/* While it is pinned nobody else can take it. */
			if (n == -1 && a->pins[block] == 1 && !a->granted[block])
				scribble(bare, g, block);
			a->pins[block] += (uint32_t)n;
		}
}

void bare_revoke_all(struct bare *bare)
{
	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++)
		for (uint32_t b = 0; b < BARE_ARENA_BLOCKS; b++) {
			struct bare_arena *a = &bare->arenas[g];

			atomic_store(&a->map.owned[b], 0);
			if (a->granted[b] && !a->pins[b])
				scribble(bare, g, b);
			a->granted[b] = 0;
		}
}

uint64_t bare_n_used(const struct bare *bare)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < bare->layout.fields->n_groups; g++)
		for (uint32_t i = 0; i < BARE_ARENA_BLOCKS; i++)
			n += bare->arenas[g].granted[i] || bare->arenas[g].pins[i];
	return n;
}

/* ---- the core's acts ---------------------------------------------------------------------- */

static int hold(struct kv_shm_writer *writer)
{
	for (int i = 0; i < 1000000; i++)
		if (hold_try(writer) == 0)
			return 0;
	hold_cancel(writer);
	return -1;
}

void bare_snapshot_held(struct bare *bare, uint32_t index, struct seg_state *state)
{
	struct seg_place *place = &bare->places[index];
	struct kv_shm_writer *writer = segment_writer(&bare->segment, place->writer);
	struct errbuf err;
	bool bumped;

	if (segment_read(&bare->segment, place, bare->layout.fields, hold_update(writer), state,
			 &err)) {
		fprintf(stderr, "bare: %s\n", err.text);
		abort();
	}
	CHECK(hold_freeze(&bare->segment, place, bare->layout.fields, state, &bumped, &err) == 0);
	seg_state_share(state, bare->layout.fields);
	bare_pin(bare, state, 1);
}

int bare_snapshot(struct bare *bare, uint32_t index, struct seg_state *state)
{
	struct kv_shm_writer *writer = segment_writer(&bare->segment, bare->places[index].writer);

	if (hold(writer))
		return -1;
	bare_snapshot_held(bare, index, state);
	hold_release(writer, false);
	return 0;
}

int bare_operator_rollback(struct bare *bare, uint32_t index, uint64_t keep_tokens)
{
	struct seg_place *place = &bare->places[index];
	struct kv_shm_writer *writer = segment_writer(&bare->segment, place->writer);
	struct seg_state state;
	struct errbuf err;

	if (hold(writer))
		return -1;
	CHECK(segment_read(&bare->segment, place, bare->layout.fields, hold_update(writer), &state,
			   &err) == 0);
	if (keep_tokens < state.head.length_tokens) {
		hold_rollback(&bare->segment, place, &state, keep_tokens);
		hold_release(writer, true);
	} else {
		hold_release(writer, false);
	}
	seg_state_fini(&state);
	return 0;
}

const char *bare_row(struct bare *bare, const struct seg_state *state, uint32_t group,
		     uint32_t region, uint64_t token)
{
	const struct kv_layout *layout = bare->layout.fields;
	const struct kv_region *r = &layout->regions[region];
	struct bare_arena *arena = &bare->arenas[group];
	uint64_t ref = state->refs[group][token / layout->block_tokens];

	return arena->map.base +
	       arena->map.region_off[region - layout->groups[group].first_region] +
	       (uint64_t)kv_ref_block(ref) * r->piece_bytes +
	       token % layout->block_tokens * r->row_bytes;
}
