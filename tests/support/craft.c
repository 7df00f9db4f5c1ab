/*
 * A client by hand; see craft.h.
 */
#include "tests/support/craft.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/session.h"
#include "tests/support/runner.h"

/* ---- requests ----------------------------------------------------------------------------- */

#define COMMAND(which, field, type, init) \
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT; \
	Kv__Wire__##type command; \
	init(&command); \
	request.command_case = KV__WIRE__REQUEST__COMMAND_##which; \
	request.field = &command

Kv__Wire__Reply *craft_call(struct craft *craft, Kv__Wire__Request *request, uint32_t status)
{
	Kv__Wire__Reply *reply = fake_call(craft->c, request);

	assert_non_null(reply);
	if (reply->status != status)
		fail_msg("command %d: %s: %s", (int)request->command_case,
			 kv_status_name((int)reply->status), reply->detail);
	return reply;
}

static void simple(struct craft *craft, Kv__Wire__Request *request)
{
	kv__wire__reply__free_unpacked(craft_call(craft, request, 0), NULL);
}

static void register_layout(struct craft *craft)
{
	Kv__Wire__Reply *reply;
	COMMAND(LAYOUT_REGISTER, layout_register, LayoutRegister, kv__wire__layout_register__init);

	command.layout = kv_layout_to_wire(craft->layout);
	assert_non_null(command.layout);
	reply = craft_call(craft, &request, 0);
	craft->layout_id = reply->layout->layout_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	kv_layout_wire_free(command.layout);
}

uint32_t craft_writer(struct craft *craft)
{
	Kv__Wire__Reply *reply;
	uint32_t writer;
	COMMAND(WRITER_NEW, writer_new, WriterNew, kv__wire__writer_new__init);

	reply = craft_call(craft, &request, 0);
	writer = reply->writer->writer;
	kv__wire__reply__free_unpacked(reply, NULL);
	return writer;
}

static void begin(struct craft *craft, struct fake_core *f, struct fake_client *c,
		  const struct kv_layout *fields)
{
	*craft = (struct craft){.f = f, .c = c, .layout = kv_layout_copy(fields)};
	assert_non_null(craft->layout);
	assert_non_null(craft->c);
	register_layout(craft);
	assert_int_equal(craft_writer(craft), 0);
}

struct kv_layout craft_undo_fields(uint32_t block_tokens, uint32_t bound_slots)
{
	static struct kv_layer layers[2] = {{2, 16, 16, 0}, {1, 32, 16, 0}};
	static struct kv_plane planes[1] = {{"position", KV_PLANE_SLOT, 4}};

	layers[1].bound_slots = bound_slots;
	return (struct kv_layout){.fingerprint = {1},
				  .n_layers = 2,
				  .layers = layers,
				  .dtype = KV_DTYPE_F32,
				  .k_format = KV_FORMAT_INT8,
				  .v_format = KV_FORMAT_U8,
				  .block_tokens = block_tokens,
				  .n_planes = 1,
				  .planes = planes};
}

void craft_begin(struct craft *craft, struct fake_core *f, uint32_t uid,
		 const struct kv_layout *fields)
{
	begin(craft, f, fake_client_new(f, uid, NULL), fields);
}

void craft_begin_self(struct craft *craft, struct fake_core *f, uint32_t uid,
		      const struct kv_layout *fields)
{
	begin(craft, f, fake_client_self(f, uid), fields);
}

void craft_end(struct craft *craft)
{
	fake_client_free(craft->c);
	kv_layout_free(craft->layout);
}

static uint32_t place_of(Kv__Wire__Reply *reply)
{
	uint32_t place = reply->places->places[0]->place;

	kv__wire__reply__free_unpacked(reply, NULL);
	return place;
}

uint32_t craft_seq(struct craft *craft, uint32_t writer, const char *name, uint64_t max_tokens)
{
	COMMAND(SEQ_NEW, seq_new, SeqNew, kv__wire__seq_new__init);

	command.writer = writer;
	command.layout_id = craft->layout_id;
	command.name = (char *)(uintptr_t)name;
	command.max_tokens = max_tokens;
	return place_of(craft_call(craft, &request, 0));
}

void craft_reserve(struct craft *craft, uint32_t group, uint32_t n, uint64_t *refs)
{
	Kv__Wire__Need need = KV__WIRE__NEED__INIT, *needs[1] = {&need};
	Kv__Wire__Reply *reply;
	uint32_t got = 0;
	COMMAND(RESERVE, reserve, Reserve, kv__wire__reserve__init);

	command.layout_id = craft->layout_id;
	command.n_needs = 1;
	command.needs = needs;
	need.group = group;
	need.n_blocks = n;
	reply = craft_call(craft, &request, 0);
	for (size_t i = 0; i < reply->runs->n_runs; i++)
		for (uint32_t b = 0; b < reply->runs->runs[i]->n_blocks; b++)
			refs[got++] = kv_ref(0, reply->runs->runs[i]->arena,
					     reply->runs->runs[i]->first_block + b);
	assert_int_equal(got, n);
	kv__wire__reply__free_unpacked(reply, NULL);
}

Kv__Wire__Target craft_named(const char *name)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;

	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = (char *)(uintptr_t)name;
	return target;
}

void craft_snapshot(struct craft *craft, const char *source, const char *name)
{
	Kv__Wire__SnapshotOne one = KV__WIRE__SNAPSHOT_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = craft_named(source);
	COMMAND(SNAPSHOT, snapshot, Snapshot, kv__wire__snapshot__init);

	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.name = (char *)(uintptr_t)name;
	simple(craft, &request);
}

uint32_t craft_takeover(struct craft *craft, uint32_t writer, const char *name, uint64_t max_tokens)
{
	COMMAND(TAKEOVER, takeover, Takeover, kv__wire__takeover__init);

	command.writer = writer;
	command.name = (char *)(uintptr_t)name;
	command.max_tokens = max_tokens;
	return place_of(craft_call(craft, &request, 0));
}

uint32_t craft_fork(struct craft *craft, uint32_t writer, const char *source, uint64_t max_tokens)
{
	Kv__Wire__ForkOne one = KV__WIRE__FORK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = craft_named(source);
	COMMAND(FORK, fork, Fork, kv__wire__fork__init);

	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.writer = writer;
	one.max_tokens = max_tokens;
	return place_of(craft_call(craft, &request, 0));
}

uint32_t craft_rollback(struct craft *craft, const char *name, uint64_t keep_tokens)
{
	Kv__Wire__RollbackOne one = KV__WIRE__ROLLBACK_ONE__INIT, *ones[1] = {&one};
	Kv__Wire__Target target = craft_named(name);
	Kv__Wire__Reply *reply;
	uint32_t status;
	COMMAND(ROLLBACK, rollback, Rollback, kv__wire__rollback__init);

	command.n_ones = 1;
	command.ones = ones;
	one.source = &target;
	one.mode = 1;
	one.n_tokens = keep_tokens;
	reply = fake_call(craft->c, &request);
	assert_non_null(reply);
	status = reply->status;
	kv__wire__reply__free_unpacked(reply, NULL);
	return status;
}

Kv__Wire__Reply *craft_verify(struct craft *craft, const char *name)
{
	Kv__Wire__Target target = craft_named(name);
	Kv__Wire__Request again = KV__WIRE__REQUEST__INIT;
	Kv__Wire__JobGet get = KV__WIRE__JOB_GET__INIT;
	Kv__Wire__Reply *reply;
	COMMAND(VERIFY, verify, Verify, kv__wire__verify__init);

	command.source = &target;
	reply = craft_call(craft, &request, 0);
	get.job_id = reply->job->job_id;
	kv__wire__reply__free_unpacked(reply, NULL);
	fake_settle(craft->f);
	again.command_case = KV__WIRE__REQUEST__COMMAND_JOB_GET;
	again.job_get = &get;
	return craft_call(craft, &again, 0);
}

Kv__Wire__Reply *craft_show(struct craft *craft, const char *name)
{
	Kv__Wire__Target target = craft_named(name);
	COMMAND(SHOW, show, Show, kv__wire__show__init);

	command.source = &target;
	return craft_call(craft, &request, 0);
}

/* ---- the control segment ------------------------------------------------------------------ */

struct kv_shm_place *craft_place(const struct craft *craft, uint32_t place)
{
	const struct kv_shm_head *head = craft->c->segment;

	return (struct kv_shm_place *)((char *)(uintptr_t)head + head->places_off) + place;
}

struct kv_shm_writer *craft_word(const struct craft *craft, uint32_t writer)
{
	const struct kv_shm_head *head = craft->c->segment;

	return (struct kv_shm_writer *)((char *)(uintptr_t)head + head->writers_off) + writer;
}

uint64_t craft_update(const struct craft *craft, uint32_t writer)
{
	return kv_word_update(kv_word_load(craft_word(craft, writer)));
}

static void move(struct craft *craft, uint32_t writer, enum kv_word_state from,
		 enum kv_word_state to, uint64_t add_update)
{
	struct kv_shm_writer *w = craft_word(craft, writer);
	uint64_t word = kv_word_load(w);

	assert_int_equal(kv_word_state(word), from);
	assert_true(kv_word_swap(
		w, word, kv_word(to, kv_word_generation(word), kv_word_update(word) + add_update)));
}

void craft_open(struct craft *craft, uint32_t writer)
{
	move(craft, writer, KV_IDLE, KV_OPEN, 0);
}

void craft_close(struct craft *craft, uint32_t writer)
{
	move(craft, writer, KV_OPEN, KV_IDLE, 1);
}

struct kv_head craft_head(const struct craft *craft, uint32_t place)
{
	const struct kv_shm_place *shm = craft_place(craft, place);
	int c = kv_head_current(shm, craft_update(craft, shm->writer));
	struct kv_head head;

	assert_true(c >= 0);
	kv_head_load(&shm->copy[c], &head);
	return head;
}

void craft_head_put(struct craft *craft, uint32_t place, const struct kv_head *head)
{
	struct kv_shm_place *shm = craft_place(craft, place);
	uint64_t update = craft_update(craft, shm->writer);

	kv_head_store(&shm->copy[kv_head_older(shm, update)], head, update + 1);
}

static struct kv_shm_entry *entry_at(const struct craft *craft, uint32_t place, uint32_t group,
				     uint64_t number, unsigned copy)
{
	const struct kv_shm_place *shm = craft_place(craft, place);

	return kv_shm_entry(craft->c->segment, shm->table_off[group], shm->n_entries[group], copy,
			    number % shm->n_entries[group]);
}

static int entry_current(const struct craft *craft, uint32_t place, uint32_t group, uint64_t number)
{
	uint64_t update = craft_update(craft, craft_place(craft, place)->writer);

	return kv_stamps_current(&entry_at(craft, place, group, number, 0)->stamp,
				 &entry_at(craft, place, group, number, 1)->stamp, update);
}

void craft_entry(struct craft *craft, uint32_t place, uint32_t group, uint64_t number, uint64_t ref)
{
	const struct kv_shm_place *shm = craft_place(craft, place);
	unsigned older = entry_current(craft, place, group, number) == 0;
	struct kv_shm_entry *entry = entry_at(craft, place, group, number, older);

	atomic_store(&entry->ref,
		     kv_ref(atomic_load(&shm->freeze_count), kv_ref_arena(ref), kv_ref_block(ref)));
	atomic_store(&entry->stamp, craft_update(craft, shm->writer) + 1);
}

#define MAKE_BLOCKS_MAX 128u /* of a group */

uint32_t craft_make(struct craft *craft, const char *name, uint64_t max_tokens,
		    const struct kv_head *head,
		    void (*fill)(const struct craft *craft, uint32_t group, uint64_t ref))
{
	uint32_t place = craft_seq(craft, 0, name, max_tokens);
	uint64_t refs[MAKE_BLOCKS_MAX];

	craft_open(craft, 0);
	for (uint32_t g = 0; g < craft->layout->n_groups; g++) {
		struct kv_window window = kv_head_window(craft->layout, head, g);

		if (window.n == 0)
			continue;
		assert_true(window.n <= MAKE_BLOCKS_MAX);
		craft_reserve(craft, g, (uint32_t)window.n, refs);
		for (uint64_t i = 0; i < window.n; i++) {
			if (fill)
				fill(craft, g, refs[i]);
			craft_entry(craft, place, g, window.first + i, refs[i]);
		}
	}
	for (uint32_t i = 0; i < head->n_marks; i++) {
		struct kv_shm_mark *mark = &craft_place(craft, place)->marks[i];

		atomic_store(&mark->id, i + 1);
		atomic_store(&mark->length_tokens, head->length_tokens);
		atomic_store(&mark->journal_end, head->journal_end);
	}
	craft_head_put(craft, place, head);
	craft_close(craft, 0);
	return place;
}

uint64_t craft_entry_get(const struct craft *craft, uint32_t place, uint32_t group, uint64_t number)
{
	int c = entry_current(craft, place, group, number);

	return c < 0 ? 0 : atomic_load(&entry_at(craft, place, group, number, (unsigned)c)->ref);
}

/* ---- blocks ------------------------------------------------------------------------------- */

struct arena *craft_arena(const struct craft *craft, uint64_t ref)
{
	const struct session *session = session_find(craft->f->core, craft->c->session);
	struct arena *arena = session ? session_arena(session, kv_ref_arena(ref)) : NULL;

	assert_non_null(arena);
	return arena;
}

void craft_write(const struct craft *craft, uint64_t ref, uint32_t region, uint64_t off,
		 const void *bytes, size_t n)
{
	assert_int_equal(arena_write(craft_arena(craft, ref), kv_ref_block(ref), region, off, n,
				     bytes, NULL),
			 0);
}

void craft_read(const struct craft *craft, uint64_t ref, uint32_t region, uint64_t off, void *bytes,
		size_t n)
{
	assert_int_equal(arena_read(craft_arena(craft, ref), kv_ref_block(ref), region, off, n,
				    bytes, NULL),
			 0);
}

static void slot(const struct craft *craft, uint64_t ref, uint32_t layer, uint32_t head,
		 uint32_t slot_number, char *bytes, bool write)
{
	const struct kv_layout *layout = craft->layout;
	const struct kv_layer_map *map = &layout->layer_maps[layer];
	uint32_t first = map->first_region - layout->groups[map->group].first_region;

	for (uint32_t i = 0; i < map->n_regions; i++) {
		const struct kv_region *r = &layout->regions[map->first_region + i];
		uint64_t off = (uint64_t)(slot_number % layout->block_tokens) * r->row_bytes +
			       (uint64_t)head * r->vector_bytes;

		if (write)
			craft_write(craft, ref, first + i, off, bytes, r->vector_bytes);
		else
			craft_read(craft, ref, first + i, off, bytes, r->vector_bytes);
		bytes += r->vector_bytes;
	}
}

void craft_slot_write(const struct craft *craft, uint64_t ref, uint32_t layer, uint32_t head,
		      uint32_t slot_number, const void *bytes)
{
	slot(craft, ref, layer, head, slot_number, (char *)(uintptr_t)bytes, true);
}

void craft_slot_read(const struct craft *craft, uint64_t ref, uint32_t layer, uint32_t head,
		     uint32_t slot_number, void *bytes)
{
	slot(craft, ref, layer, head, slot_number, bytes, false);
}

void craft_row(const struct craft *craft, uint64_t ref, enum kv_journal_mode mode, uint64_t number,
	       const struct kv_row *row, const void *payload, size_t n)
{
	const struct kv_journal_shape *shape = &craft->layout->journal[mode];

	craft_write(craft, ref, 0, kv_row_off(shape, number), row, sizeof(*row));
	if (n)
		craft_write(craft, ref, 0, kv_row_payload_off(shape, number), payload, n);
}
