/*
 * Forks and snapshots inside a session: no message, no daemon. An update of the writer: the
 * parent's freeze marks are raised and the new header appears with one swap. Blocks are counted
 * in the writer's books; those of others are covered by the pin on their base.
 *
 * Failure. KVC_ERESERVE before anything has changed: places and blocks are set aside by
 * kvc_reserve_forks and kvc_reserve. Writer's thread.
 */
#include <string.h>

#include "client/error.h"
#include "client/journal.h"

/* A spare place for sequences of this layout that has room for as many more tokens. */
static struct kvc_seq *take_spare_place(struct kvc_seq *parent, uint64_t n_tokens)
{
	for (struct kvc_seq **at = &parent->writer->spare; *at; at = &(*at)->next) {
		struct kvc_seq *spare = *at;

		if (spare->layout != parent->layout ||
		    spare->max_tokens < parent->head.length_tokens + n_tokens)
			continue;
		*at = spare->next;
		return spare;
	}
	kvc_fail(KVC_ERESERVE, "no place is set aside for a local fork; call kvc_reserve_forks");
	return NULL;
}

static void give_spare_place(struct kvc_seq *spare)
{
	spare->next = spare->writer->spare;
	spare->writer->spare = spare;
}

/* How many blocks move to a fork: known before it freezes what the parent would have to copy. */
static int check_reserve(struct kvc_seq *parent, uint64_t n_tokens, uint64_t wants[KV_GROUPS_MAX])
{
	for (uint32_t g = 0; g < parent->n_groups; g++) {
		const struct block_pool *pool = writer_pool(parent->writer, parent->layout, g);
		uint64_t want = seq_blocks_wanted(parent, g, n_tokens);
		uint64_t have = parent->groups[g].spares.n + (pool ? pool->blocks.n : 0);

		wants[g] = want;
		if (have < want)
			return kvc_fail(
				KVC_ERESERVE,
				"a fork with %llu tokens of reserve needs %llu blocks and %llu "
				"are reserved; call kvc_reserve and repeat",
				(unsigned long long)n_tokens, (unsigned long long)want,
				(unsigned long long)have);
	}
	return 0;
}

static void move_block(struct block_stack *to, struct block_stack *from)
{
	to->refs[to->n++] = from->refs[--from->n];
}

static void move_reserve(struct kvc_seq *fork, struct kvc_seq *parent,
			 const uint64_t wants[KV_GROUPS_MAX])
{
	for (uint32_t g = 0; g < parent->n_groups; g++) {
		struct block_pool *pool = writer_pool(parent->writer, parent->layout, g);
		struct block_stack *spares = &fork->groups[g].spares;

		while (spares->n < wants[g])
			move_block(spares, pool && pool->blocks.n ? &pool->blocks :
								    &parent->groups[g].spares);
	}
}

/* Needs no second freeze if nothing was committed in the parent since the last one. */
static uint64_t header_stamp(const struct kvc_seq *seq)
{
	int c = kv_head_current(seq->shm, seq->writer->update);

	return c < 0 ? 0 : atomic_load_explicit(&seq->shm->copy[c].stamp, memory_order_relaxed);
}

/* Nothing of the place counted before: any of the two copies will do. */
static inline void fill_entry(struct kv_shm_entry *entry, struct kvc_block block, uint64_t stamp)
{
	atomic_store_explicit(&entry->ref, kv_ref(0, block.arena, block.block),
			      memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&entry->stamp, stamp, memory_order_release);
	KV_FAULT_POINT();
}

/* A group's part of the window that the fork keeps. */
static void share_group(struct kvc_seq *fork, const struct kvc_seq *parent, uint32_t group,
			struct kv_window window)
{
	const struct seq_group *from = &parent->groups[group];
	struct seq_group *to = &fork->groups[group];
	uint64_t stamp = fork->writer->update + 1;

	to->first_block = window.first;
	to->end_block = to->pending_end = window.first + window.n;
	to->n_copied = 0;
	for (uint64_t n = window.first; n < to->end_block; n++) {
		uint64_t i = group_index(to, n);

		to->mirror[i] = from->mirror[group_index(from, n)];
		to->meta[i] = 0;
		fill_entry(&to->copies[0][i], to->mirror[i], stamp);
	}
	seq_ref_blocks(fork, group);
}

static void share_table(struct kvc_seq *fork, const struct kvc_seq *parent,
			const struct kv_head *head)
{
	for (uint32_t g = 0; g < parent->n_groups; g++)
		share_group(fork, parent, g, kv_head_window(parent->layout->fields, head, g));
}

static void reset(struct kvc_seq *fork, struct kvc_seq *parent)
{
	fork->base_id = parent->base_id;
	fork->frozen_stamp = 0;
	fork->split_reason = NULL;
	fork->head = (struct kv_head){.state = KV_HEAD_NONE};
	if (fork->base_id)
		session_base_ref(fork->writer->session, fork->base_id);
	atomic_store_explicit(&fork->shm->base_id, fork->base_id, memory_order_relaxed);
	atomic_store_explicit(&fork->shm->parent_id,
			      parent->seq_id ? parent->seq_id : KV_PARENT_PLACE | parent->place,
			      memory_order_relaxed);
}

/* A fork has its parent's journal: the settings, and an index of its own. */
static int share_index(struct kvc_seq *fork, const struct kvc_seq *parent,
		       const struct kv_head *head)
{
	fork->journal.max_rows = parent->journal.max_rows;
	fork->journal.keep_steps = parent->journal.keep_steps;
	fork->journal.when_full = parent->journal.when_full;
	if (kv_head_mode(head->state) == KV_JOURNAL_NONE)
		return 0;
	return journal_index_map(fork, kv_head_mode(head->state));
}

static struct kvc_seq *fork_into(struct kvc_seq *fork, struct kvc_seq *parent,
				 enum kv_head_state state)
{
	struct kvc_writer *writer = parent->writer;
	struct kv_head head = parent->head;
	uint64_t stamp;

	kv_head_share(&head);
	head.state = kv_head_with_state(head.state, state);
	if (share_index(fork, parent, &head)) {
		give_spare_place(fork);
		return NULL;
	}

	if (update_open(writer)) {
		give_spare_place(fork);
		return NULL;
	}
	stamp = header_stamp(parent);
	if (seq_is_live(parent) && parent->frozen_stamp != stamp)
		kv_place_freeze(parent->shm, parent->layout->fields, &parent->head);
	parent->frozen_stamp = stamp;
	reset(fork, parent);
	share_table(fork, parent, &head);
	atomic_store_explicit(&fork->shm->rows_end, head.journal_end, memory_order_relaxed);
	update_head(fork, &head);
	update_publish(writer);
	fork->head = head;
	fork->journal.future_end = head.journal_end;
	journal_index_build(fork);
	fork->next = writer->seqs;
	writer->seqs = fork;
	writer_count(&writer->shm->n_local_forks, 1);
	return fork;
}

static int check_parent(const struct kvc_seq *seq)
{
	if (session_check(seq->writer->session))
		return -1;
	if (seq->is_open)
		return kvc_fail(KVC_EBUSY, "an update is open; commit or abort it");
	if (atomic_load_explicit(&seq->shm->freeze_count, memory_order_relaxed) >=
	    KV_REF_FREEZE_MAX)
		return kvc_fail(KVC_ELIMIT,
				"the sequence was frozen %llu times, the limit; go on "
				"with a fork of it",
				(unsigned long long)KV_REF_FREEZE_MAX);
	return 0;
}

kvc_seq *kvc_fork_local(kvc_seq *seq, uint64_t n_reserve_tokens)
{
	uint64_t wants[KV_GROUPS_MAX];
	struct kvc_seq *fork;

	if (check_parent(seq))
		return NULL;
	if (n_reserve_tokens > seq->max_tokens - seq->head.length_tokens) {
		kvc_fail(KVC_ERANGE, "a reserve of %llu tokens is above max_tokens",
			 (unsigned long long)n_reserve_tokens);
		return NULL;
	}
	if (check_reserve(seq, n_reserve_tokens, wants))
		return NULL;
	fork = take_spare_place(seq, n_reserve_tokens);
	if (!fork || !fork_into(fork, seq, KV_HEAD_LIVE))
		return NULL;
	move_reserve(fork, seq, wants);
	return fork;
}

kvc_seq *kvc_snapshot_local(kvc_seq *seq)
{
	struct kvc_seq *snapshot;

	if (check_parent(seq))
		return NULL;
	snapshot = take_spare_place(seq, 0);
	return snapshot ? fork_into(snapshot, seq, KV_HEAD_SNAPSHOT) : NULL;
}
