/*
 * A core with something in it; see world.h.
 */
#include "tests/fuzz/world.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/log.h"
#include "tests/fuzz/target.h"
#include "tests/support/craft.h"

/* ---- clients ------------------------------------------------------------------------------ */

void world_leave(struct fake_client *c)
{
	if (!c)
		return;
	if (c->conn.user && !c->is_closed)
		fake_client_hang_up(c);
	fake_client_free(c); /* it has no process to be killed */
}

/* ---- what there is ------------------------------------------------------------------------ */

static Kv__Wire__Reply *ask(struct fake_client *c, Kv__Wire__Request *request)
{
	Kv__Wire__Reply *reply = fake_call(c, request);

	must(reply && reply->status == KV_OK);
	return reply;
}

static uint64_t register_layout(struct fake_client *c)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__LayoutRegister command = KV__WIRE__LAYOUT_REGISTER__INIT;
	Kv__Wire__Layout layout = KV__WIRE__LAYOUT__INIT;
	Kv__Wire__Layer layers[2] = {KV__WIRE__LAYER__INIT, KV__WIRE__LAYER__INIT};
	Kv__Wire__Layer *list[2] = {&layers[0], &layers[1]};
	Kv__Wire__Plane planes[2] = {KV__WIRE__PLANE__INIT, KV__WIRE__PLANE__INIT};
	Kv__Wire__Plane *plane_list[2] = {&planes[0], &planes[1]};
	uint8_t fingerprint[32] = {1};
	Kv__Wire__Reply *reply;
	uint64_t id;

	for (int i = 0; i < 2; i++) {
		layers[i].n_query_groups = 1;
		layers[i].k_width = layers[i].v_width = 16;
	}
	layers[1].bound_slots = 64;
	layout.fingerprint = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	layout.n_layers = 2;
	layout.layers = list;
	planes[0].name = (char *)"position";
	planes[0].scope = KV_PLANE_SLOT;
	planes[1].name = (char *)"counters";
	planes[1].scope = KV_PLANE_SEQUENCE;
	planes[0].bytes = planes[1].bytes = 8;
	layout.n_planes = 2;
	layout.planes = plane_list;
	layout.dtype = KV_DTYPE_F32;
	layout.k_format = layout.v_format = KV_FORMAT_RAW;
	layout.block_tokens = WORLD_BLOCK_TOKENS;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_REGISTER;
	request.layout_register = &command;
	command.layout = &layout;
	reply = ask(c, &request);
	id = reply->layout->layout_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	return id;
}

static void simple(struct fake_client *c, Kv__Wire__Request *request)
{
	kv__wire__reply__free_unpacked(ask(c, request), NULL);
}

static void new_sequence(struct world *w)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__WriterNew writer = KV__WIRE__WRITER_NEW__INIT;
	Kv__Wire__SeqNew seq = KV__WIRE__SEQ_NEW__INIT;
	Kv__Wire__PlacesReserve places = KV__WIRE__PLACES_RESERVE__INIT;

	request.command_case = KV__WIRE__REQUEST__COMMAND_WRITER_NEW;
	request.writer_new = &writer;
	simple(w->a, &request);
	request.id = 0;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_NEW;
	request.seq_new = &seq;
	seq.layout_id = w->layout_id;
	seq.name = (char *)"seq";
	seq.max_tokens = 256;
	simple(w->a, &request);
	request.id = 0;
	request.command_case = KV__WIRE__REQUEST__COMMAND_PLACES_RESERVE;
	request.places_reserve = &places;
	places.layout_id = w->layout_id;
	places.n_places = 1;
	places.max_tokens = 256;
	simple(w->a, &request);
}

/* Five blocks of each group; the first three hold 10 tokens. */
static void fill_sequence(struct world *w)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reserve reserve = KV__WIRE__RESERVE__INIT;
	Kv__Wire__Need needs[2] = {KV__WIRE__NEED__INIT, KV__WIRE__NEED__INIT};
	Kv__Wire__Need *list[2] = {&needs[0], &needs[1]};
	Kv__Wire__Reply *reply;

	request.command_case = KV__WIRE__REQUEST__COMMAND_RESERVE;
	request.reserve = &reserve;
	reserve.layout_id = w->layout_id;
	reserve.n_needs = 2;
	reserve.needs = list;
	needs[1].group = 1;
	needs[0].n_blocks = needs[1].n_blocks = 5;
	reply = ask(w->a, &request);
	must(reply->runs->n_runs == 2);
	for (uint32_t g = 0; g < 2; g++) {
		const Kv__Wire__Run *run = reply->runs->runs[g];
		char *segment = (char *)w->a->segment;
		struct kv_shm_place *shm = (void *)(segment + w->a->segment->places_off);

		for (uint32_t i = 0; i < 3; i++) {
			struct kv_shm_entry *entry = kv_shm_entry(segment, shm->table_off[g],
								  shm->n_entries[g], 0, i);

			atomic_store(&entry->ref, kv_ref(1, run->arena, run->first_block + i));
			atomic_store(&entry->stamp, 2);
		}
	}
	kv__wire__reply__free_unpacked(reply, NULL);
	fake_commit(w->a, 0, 10, 0, NULL, 0);
}

static void take_snapshot(struct world *w, const char *source, const char *name)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Snapshot snapshot = KV__WIRE__SNAPSHOT__INIT;
	Kv__Wire__SnapshotOne one = KV__WIRE__SNAPSHOT_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)(uintptr_t)source;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SNAPSHOT;
	request.snapshot = &snapshot;
	snapshot.n_ones = 1;
	snapshot.ones = ones;
	one.source = &target;
	one.name = (char *)(uintptr_t)name;
	simple(w->a, &request);
}

static void snapshot_and_fork(struct world *w)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Fork fork_ = KV__WIRE__FORK__INIT;
	Kv__Wire__ForkOne fork_one = KV__WIRE__FORK_ONE__INIT, *fork_ones[1] = {&fork_one};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	take_snapshot(w, "seq", "snap");
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)"snap";
	request.command_case = KV__WIRE__REQUEST__COMMAND_FORK;
	request.fork = &fork_;
	fork_.n_ones = 1;
	fork_.ones = fork_ones;
	fork_one.source = &target;
	fork_one.name = (char *)"fork";
	fork_one.parked = true;
	simple(w->a, &request);
}

/* All tokens are rows, in a block whose number is no index of the table. */
static void deep_sequence(struct world *w)
{
	struct craft craft = {.f = w->f, .c = w->a, .layout_id = w->layout_id};
	struct kv_head head = {.length_tokens = 6,
			       .position = 6,
			       .planes = kv_planes(1, 3),
			       .state = kv_head_word(KV_HEAD_LIVE, KV_JOURNAL_REPLAY)};
	const struct layout_entry *entry = idlist_find(&w->f->core->layouts, w->layout_id);
	struct kv_row row = {.kind = KV_ROW_VECTOR, .slot = 2};
	uint8_t payload[64] = {1, 2, 3};
	uint64_t refs[4], rows;
	uint32_t place, g;

	craft.layout = entry->layout;
	g = craft.layout->journal_group;
	rows = UINT64_C(1) << craft.layout->journal[KV_JOURNAL_REPLAY].rows_log2;
	head.journal_first = KV_JOURNAL_BLOCKS_MAX * rows + 1;
	head.journal_end = head.journal_first + 3;
	place = craft_seq(&craft, 0, "deep", 256);
	craft_open(&craft, 0);
	craft_reserve(&craft, g, 1, refs);
	craft_entry(&craft, place, g, KV_JOURNAL_BLOCKS_MAX, refs[0]);
	for (uint64_t i = 0; i < 3; i++)
		craft_row(&craft, refs[0], KV_JOURNAL_REPLAY, head.journal_first + i, &row, payload,
			  sizeof(payload));
	craft_reserve(&craft, g + 1, 3, refs);
	for (uint64_t i = 0; i < 3; i++)
		craft_entry(&craft, place, g + 1, i, refs[i]);
	craft_head_put(&craft, place, &head);
	craft_close(&craft, 0);
	take_snapshot(w, "deep", "deep-snap");
}

/* ---- birth, restart, end ------------------------------------------------------------------ */

struct world *world_new(void)
{
	struct world *w = calloc(1, sizeof(*w));
	struct settings settings;

	must(w != NULL);
	log_init(LOG_LEVEL_ERROR);
	settings_default(&settings);
	settings.pool_bytes = 1u << 20;
	settings.arena_bytes = 64u << 10;
	settings.huge = settings.mlock = SETTINGS_NO;
	w->f = fake_core_new(&settings);
	w->a = fake_client_self(w->f, 1000);
	w->b = fake_client_self(w->f, 1001);
	w->layout_id = register_layout(w->a);
	new_sequence(w);
	fill_sequence(w);
	snapshot_and_fork(w);
	deep_sequence(w);
	return w;
}

void world_free(struct world *w)
{
	if (w->f->core) {
		world_leave(w->a);
		world_leave(w->b);
		fake_settle(w->f);
	} else {
		fake_client_free(w->a);
		fake_client_free(w->b);
	}
	fake_core_free(w->f);
	free(w);
}

bool world_restart(struct world *w)
{
	if (fake_core_restart(w->f))
		return false;
	fake_client_again(w->a); /* refused if it has ended */
	fake_client_again(w->b);
	return true;
}
