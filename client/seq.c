/* Handles of writers and sequences: made from what lies in the control segment, and ended. */
#include "client/seq.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/compute/carve.h"
#include "client/error.h"
#include "client/journal.h"

#define STACK_MORE 64 /* room beyond what a table can hold */

static struct kv_shm_place *place_at(const struct kvc_session *session, uint32_t place)
{
	return (struct kv_shm_place *)((char *)session->segment + session->segment->places_off) +
	       place;
}

struct kvc_writer *writer_new(struct kvc_session *session, uint32_t index)
{
	struct kvc_writer *writer = calloc(1, sizeof(*writer));

	if (!writer) {
		kvc_fail(KVC_ENOMEM, "no memory for a writer");
		return NULL;
	}
	writer->session = session;
	writer->index = index;
	writer->shm = (struct kv_shm_writer *)((char *)session->segment +
					       session->segment->writers_off) +
		      index;
	writer->update = kv_word_update(kv_word_load(writer->shm));
	writer->deadline_ms = KV_DEADLINE_MS_DEFAULT;
	return writer;
}

/* Memory of the last handles is kept: making its pages anew is what costs most of a fork. */
static void seq_free_memory(struct kvc_seq *seq)
{
	struct writer_idle *idle = seq->writer->idle, oldest = idle[WRITER_IDLE - 1];

	journal_unmap(seq);
	if (seq->memory) {
		memmove(idle + 1, idle, (WRITER_IDLE - 1) * sizeof(idle[0]));
		idle[0] = (struct writer_idle){seq->memory, seq->memory_bytes};
		if (oldest.memory)
			munmap(oldest.memory, oldest.n_bytes);
	}
	free(seq);
}

static void *take_idle(struct kvc_writer *writer, size_t n_bytes)
{
	for (unsigned i = 0; i < WRITER_IDLE; i++) {
		void *memory = writer->idle[i].memory;

		if (!memory || writer->idle[i].n_bytes != n_bytes)
			continue;
		writer->idle[i].memory = NULL;
		return memory;
	}
	return NULL;
}

void writer_free(struct kvc_writer *writer)
{
	if (!writer)
		return;
	while (writer->spare) {
		struct kvc_seq *next = writer->spare->next;

		seq_free_memory(writer->spare);
		writer->spare = next;
	}
	while (writer->pools) {
		struct block_pool *next = writer->pools->next;

		munmap(writer->pools->memory, writer->pools->memory_bytes);
		free(writer->pools);
		writer->pools = next;
	}
	for (unsigned i = 0; i < WRITER_IDLE; i++)
		if (writer->idle[i].memory)
			munmap(writer->idle[i].memory, writer->idle[i].n_bytes);
	kvc_workers_free(writer->alone);
	free(writer);
}

/* ---- making ------------------------------------------------------------------------------- */

static void carve_group(struct kv_carve *from, struct seq_group *g)
{
	uint32_t spares = 2 * g->n_entries + STACK_MORE, release = 4 * g->n_entries + STACK_MORE;

	g->mirror = kv_carve(from, g->n_entries, sizeof(g->mirror[0]));
	g->meta = kv_carve(from, g->n_entries, sizeof(g->meta[0]));
	g->spares = (struct block_stack){kv_carve(from, spares, sizeof(uint64_t)), 0, spares};
	g->release = (struct block_stack){kv_carve(from, release, sizeof(uint64_t)), 0, release};
	g->copied = kv_carve(from, g->n_entries, sizeof(g->copied[0]));
}

static int map_memory(struct kvc_seq *seq)
{
	struct kv_carve from = {NULL, 0};

	for (uint32_t g = 0; g < seq->n_groups; g++)
		carve_group(&from, &seq->groups[g]);
	seq->memory_bytes = from.used;
	seq->memory = take_idle(seq->writer, from.used);
	if (!seq->memory)
		seq->memory = mmap(NULL, from.used, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (seq->memory == MAP_FAILED) {
		seq->memory = NULL;
		return kvc_fail(KVC_ENOMEM,
				"no address space for the mirror of a block table (%zu "
				"bytes)",
				from.used);
	}
	from = (struct kv_carve){seq->memory, 0};
	for (uint32_t g = 0; g < seq->n_groups; g++)
		carve_group(&from, &seq->groups[g]);
	return 0;
}

/* The place is written by the core and not by this process, but a wrong one must not crash us. */
static int check_place(const struct kvc_session *session, const struct kv_shm_place *shm,
		       const struct kvc_layout *layout)
{
	if (shm->n_groups != layout->fields->n_groups || shm->layout_id != layout->id)
		return kvc_fail(KVC_EPROTO, "a place has %u groups of layout %llu, not %u of %llu",
				shm->n_groups, (unsigned long long)shm->layout_id,
				layout->fields->n_groups, (unsigned long long)layout->id);
	for (uint32_t g = 0; g < shm->n_groups; g++) {
		uint64_t bytes = 2 * (uint64_t)shm->n_entries[g] * sizeof(struct kv_shm_entry);

		if (shm->table_off[g] < session->segment->tables_off ||
		    shm->table_off[g] % sizeof(uint64_t) ||
		    shm->table_off[g] > session->segment->segment_bytes ||
		    bytes > session->segment->segment_bytes - shm->table_off[g])
			return kvc_fail(
				KVC_EPROTO,
				"a block table lies outside of the segment, or askew in it");
	}
	return 0;
}

static struct kvc_seq *handle_new(struct kvc_writer *writer, struct kvc_layout *layout,
				  uint32_t place)
{
	struct kvc_session *session = writer->session;
	struct kv_shm_place *shm = place_at(session, place);
	struct kvc_seq *seq;

	if (place >= session->segment->n_places || check_place(session, shm, layout))
		return NULL;
	seq = calloc(1, sizeof(*seq));
	if (!seq) {
		kvc_fail(KVC_ENOMEM, "no memory for a sequence");
		return NULL;
	}
	seq->writer = writer;
	seq->layout = layout;
	seq->shm = shm;
	seq->place = place;
	seq->max_tokens = shm->max_tokens;
	seq->n_groups = shm->n_groups;
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		seq->groups[g].n_entries = shm->n_entries[g];
		for (unsigned c = 0; c < 2; c++)
			seq->groups[g].copies[c] = kv_shm_entry(session->segment, shm->table_off[g],
								shm->n_entries[g], c, 0);
	}
	if (map_memory(seq)) {
		seq_free_memory(seq);
		return NULL;
	}
	return seq;
}

/* The arena that the entries from i on name, mapped; NULL with the error set. */
static struct arena_map *arena_of_entry(struct kvc_seq *seq, uint32_t group, uint64_t i)
{
	uint32_t number = seq->groups[group].mirror[i].arena;
	struct arena_map *map = session_arena(seq->writer->session, number);

	if (!map || (map->group == group && map->layout_id == seq->layout->id))
		return map;
	kvc_fail(KVC_EPROTO, "block %llu of group %u is in arena %u, which is another group's",
		 (unsigned long long)i, group, number);
	return NULL;
}

/*
 * Mirrors the table of a group and maps the arenas it names. The core has filled the first copies
 * of the entries; the second ones are a hole in the segment, which a look would fill with pages.
 */
static int mirror_group(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];
	const uint64_t update = seq->writer->update;
	struct arena_map *map = NULL;

	for (uint64_t n = g->first_block; n < g->end_block; n++) {
		uint64_t i = group_index(g, n);
		struct kv_shm_entry *entry = &g->copies[0][i];
		uint64_t stamp = atomic_load_explicit(&entry->stamp, memory_order_relaxed);
		uint64_t ref = atomic_load_explicit(&entry->ref, memory_order_relaxed);

		if (stamp == 0 || stamp > update)
			return kvc_fail(KVC_EPROTO, "block %llu of group %u was never committed",
					(unsigned long long)n, group);
		g->mirror[i] = (struct kvc_block){kv_ref_arena(ref), kv_ref_block(ref)};
		g->meta[i] = (uint32_t)kv_ref_freeze(ref);
		if (!map || map->number != g->mirror[i].arena)
			map = arena_of_entry(seq, group, i);
		if (!map)
			return -1;
		if (g->mirror[i].block >= map->n_blocks)
			return kvc_fail(KVC_EPROTO, "block %llu of group %u is not in its arena",
					(unsigned long long)n, group);
	}
	return 0;
}

/* One more table names the blocks of the header's window of a group. */
void seq_ref_blocks(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];

	for (uint64_t n = g->first_block; n < g->end_block;) {
		uint64_t i = group_index(g, n), count = g->n_entries - i;

		if (count > g->end_block - n)
			count = g->end_block - n;
		blocks_ref(seq->writer, g->mirror + i, count);
		n += count;
	}
}

/* The journal's other settings are the handle's; their defaults. */
void seq_journal_defaults(struct kvc_seq *seq)
{
	const struct kv_layout *layout = seq->layout->fields;

	seq->journal.keep_steps = SEQ_KEEP_STEPS;
	seq->journal.when_full = KVC_FULL_REFUSE;
	seq->journal.max_rows = 0;
	if (layout->journal_group < layout->n_groups)
		seq->journal.max_rows = (uint64_t)(seq->groups[layout->journal_group].n_entries - 2)
					<< layout->journal[seq_mode(seq)].rows_log2;
}

static int mirror_all(struct kvc_seq *seq)
{
	int c = kv_head_current(seq->shm, seq->writer->update);
	const char *wrong;

	if (c < 0)
		return kvc_fail(KVC_EPROTO, "place %u holds no committed sequence", seq->place);
	seq->head_copy = (uint8_t)c;
	kv_head_load(&seq->shm->copy[c], &seq->head);
	wrong = kv_head_wrong(seq->layout->fields, &seq->head, seq->max_tokens);
	if (wrong)
		return kvc_fail(KVC_EPROTO, "header of place %u makes no sense: %s", seq->place,
				wrong);
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		struct seq_group *group = &seq->groups[g];
		struct kv_window window = kv_head_window(seq->layout->fields, &seq->head, g);

		group->first_block = window.first;
		group->end_block = group->pending_end = window.first + window.n;
		if (window.n > group->n_entries)
			return kvc_fail(KVC_EPROTO, "place %u is longer than its table",
					seq->place);
		if (!writer_pool(seq->writer, seq->layout, g))
			return kvc_fail(KVC_ENOMEM, "no memory for a block pool");
		if (mirror_group(seq, g))
			return -1;
	}
	seq->journal.future_end = seq->head.journal_end;
	seq_journal_defaults(seq);
	if (seq_mode(seq) != KV_JOURNAL_NONE &&
	    (journal_check(seq) || journal_index_map(seq, seq_mode(seq))))
		return -1;
	journal_index_build(seq);
	for (uint32_t g = 0; g < seq->n_groups; g++)
		seq_ref_blocks(seq, g);
	return 0;
}

struct kvc_seq *seq_attach(struct kvc_writer *writer, struct kvc_layout *layout, uint32_t place,
			   uint64_t seq_id, uint64_t base_id)
{
	struct kvc_seq *seq = handle_new(writer, layout, place);

	if (!seq)
		return NULL;
	seq->seq_id = seq_id;
	if (mirror_all(seq)) {
		seq_free_memory(seq);
		return NULL;
	}
	seq->base_id = base_id;
	if (base_id)
		session_base_ref(writer->session, base_id);
	seq->next = writer->seqs;
	writer->seqs = seq;
	return seq;
}

int seq_attach_spare(struct kvc_writer *writer, struct kvc_layout *layout, uint32_t place)
{
	struct kvc_seq *seq = handle_new(writer, layout, place);

	if (!seq)
		return -1;
	seq->next = writer->spare;
	writer->spare = seq;
	return 0;
}

void seq_set_batch(struct kvc_seq *seq, uint32_t group, uint32_t arena, uint32_t first_block)
{
	seq->groups[group].batch_first = (struct kvc_block){arena, first_block};
}

/* ---- ending ------------------------------------------------------------------------------- */

static void unlink_seq(struct kvc_seq *seq)
{
	struct kvc_seq **at = &seq->writer->seqs;

	while (*at != seq)
		at = &(*at)->next;
	*at = seq->next;
}

static void merge_stack(struct block_stack *into, struct block_stack *from)
{
	while (from->n && into->n < into->cap)
		into->refs[into->n++] = from->refs[--from->n];
	from->n = 0;
}

/* All blocks of the handle go to the writer's pools. */
static void give_blocks(struct kvc_seq *seq, enum seq_end_how how)
{
	uint64_t freeze_now = how == SEQ_END_PARKED ? 0 :
						      atomic_load_explicit(&seq->shm->freeze_count,
									   memory_order_acquire);

	for (uint32_t i = 0; i < seq->n_groups; i++) {
		struct seq_group *g = &seq->groups[i];
		struct block_pool *pool = writer_pool(seq->writer, seq->layout, i);
		int64_t spares = group_leave(seq, i, g->first_block, g->end_block, freeze_now,
					     &pool->blocks, &pool->release);

		writer_count_reserved(seq->writer, spares * (int64_t)pool->block_bytes);
		merge_stack(&pool->blocks, &g->spares);
		merge_stack(&pool->release, &g->release);
		g->end_block = g->pending_end = g->first_block;
	}
}

/* The drop of a local handle is an update: listings and a core that copies see it or do not. */
static int commit_drop(struct kvc_seq *seq)
{
	struct kv_head head = {.state = KV_HEAD_NONE};

	if (update_open(seq->writer) && (kvc_error() != KVC_EMOVED || update_open(seq->writer)))
		return -1;
	update_head(seq, &head);
	update_publish(seq->writer);
	seq->head = head;
	return 0;
}

void seq_end(struct kvc_seq *seq, enum seq_end_how how)
{
	if (seq->is_open)
		begin_abort(seq);
	if (how != SEQ_END_LOCAL || commit_drop(seq) == 0)
		give_blocks(seq, how);
	unlink_seq(seq);
	if (seq->base_id)
		session_base_unref(seq->writer->session, seq->base_id);
	seq->base_id = 0;
	if (how == SEQ_END_LOCAL && kv_head_state(seq->head.state) == KV_HEAD_NONE) {
		seq->next = seq->writer->spare;
		seq->writer->spare = seq;
		return;
	}
	seq_free_memory(seq);
}
