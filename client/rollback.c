/*
 * Going back: kvc_rollback_*, kvc_mark_*. A rollback is an update that says less: one header copy
 * a sequence and the swap, whatever the length. Blocks that leave the table become spares, in the
 * order in which they will be wanted again. Writer's thread, hot path.
 */
#include "client/error.h"
#include "client/seq.h"

static int check_seq(const struct kvc_seq *seq)
{
	if (session_check(seq->writer->session))
		return -1;
	if (seq->head.state != KV_HEAD_LIVE)
		return kvc_fail(KVC_EREADONLY, "a snapshot cannot be changed; fork it");
	if (seq->is_open)
		return kvc_fail(KVC_EBUSY, "an update is open; commit or abort it");
	return 0;
}

/* The header after keeping n_tokens; marks beyond them are gone. */
static struct kv_head shorter(const struct kvc_seq *seq, uint64_t n_tokens)
{
	struct kv_head head = seq->head;

	head.length_tokens = n_tokens;
	head.position = n_tokens;
	while (head.n_marks &&
	       atomic_load_explicit(&seq->shm->marks[head.n_marks - 1].length_tokens,
				    memory_order_relaxed) > n_tokens)
		head.n_marks--;
	return head;
}

static void settle(struct kvc_seq *seq, const struct kv_head *head)
{
	uint64_t before[KV_GROUPS_MAX];

	seq->head = *head;
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		before[g] = seq->groups[g].n_blocks;
		seq->groups[g].n_blocks = kv_layout_blocks(seq->layout->fields,
							   head->length_tokens);
	}
	update_drop_blocks(seq, before);
}

/* One sequence, one update, a new header. */
static int commit_head(struct kvc_seq *seq, const struct kv_head *head)
{
	if (update_open(seq->writer))
		return -1;
	update_head(seq, head);
	update_publish(seq->writer);
	settle(seq, head);
	return 0;
}

static void count_rollback(struct kvc_writer *writer)
{
	_Atomic uint64_t *counter = &writer->shm->n_rollbacks;

	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

int kvc_rollback_keep(kvc_seq *seq, uint64_t n_tokens)
{
	struct kv_head head;

	if (check_seq(seq))
		return -1;
	if (n_tokens > seq->head.length_tokens)
		return kvc_fail(KVC_ERANGE, "cannot keep %llu of %llu tokens",
				(unsigned long long)n_tokens,
				(unsigned long long)seq->head.length_tokens);
	if (n_tokens == seq->head.length_tokens)
		return 0;
	head = shorter(seq, n_tokens);
	if (commit_head(seq, &head))
		return -1;
	count_rollback(seq->writer);
	return 0;
}

static int check_remove(const struct kvc_seq *seq, uint64_t n_tokens)
{
	if (n_tokens <= seq->head.length_tokens)
		return 0;
	return kvc_fail(KVC_ERANGE, "cannot remove %llu of %llu tokens",
			(unsigned long long)n_tokens, (unsigned long long)seq->head.length_tokens);
}

int kvc_rollback_remove(kvc_seq *seq, uint64_t n_tokens)
{
	if (check_seq(seq) || check_remove(seq, n_tokens))
		return -1;
	return kvc_rollback_keep(seq, seq->head.length_tokens - n_tokens);
}

int kvc_rollback_many(kvc_writer *writer, kvc_seq *const *seqs, const uint64_t *remove_tokens,
		      size_t n_seqs)
{
	if (session_check(writer->session))
		return -1;
	for (size_t i = 0; i < n_seqs; i++) {
		if (seqs[i]->writer != writer)
			return kvc_fail(KVC_EINVAL, "sequence %zu belongs to another writer", i);
		if (check_seq(seqs[i]) || check_remove(seqs[i], remove_tokens[i])) {
			errbuf_wrap(kvc_err(), "sequence %zu", i);
			return -1;
		}
	}
	if (seqs_distinct(seqs, n_seqs))
		return -1;
	if (n_seqs == 0)
		return 0;
	if (update_open(writer))
		return -1;
	for (size_t i = 0; i < n_seqs; i++) {
		struct kv_head head = shorter(seqs[i],
					      seqs[i]->head.length_tokens - remove_tokens[i]);

		update_head(seqs[i], &head);
	}
	update_publish(writer);
	for (size_t i = 0; i < n_seqs; i++) {
		struct kv_head head = shorter(seqs[i],
					      seqs[i]->head.length_tokens - remove_tokens[i]);

		settle(seqs[i], &head);
	}
	count_rollback(writer);
	return 0;
}

/* ---- marks -------------------------------------------------------------------------------- */

int kvc_mark_set(kvc_seq *seq, kvc_mark *mark)
{
	struct kv_head head;
	struct kv_shm_mark *slot;
	uint64_t id = 1;

	if (check_seq(seq))
		return -1;
	head = seq->head;
	if (head.n_marks == KV_MARKS_MAX)
		return kvc_fail(KVC_ELIMIT, "a sequence has at most %u marks; release some",
				KV_MARKS_MAX);
	if (head.n_marks)
		id += atomic_load_explicit(&seq->shm->marks[head.n_marks - 1].id,
					   memory_order_relaxed);
	if (update_open(seq->writer))
		return -1;
	/* The slot is above the committed n_marks: nobody reads it yet. */
	slot = &seq->shm->marks[head.n_marks++];
	atomic_store_explicit(&slot->id, id, memory_order_relaxed);
	atomic_store_explicit(&slot->update, seq->writer->update + 1, memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&slot->length_tokens, head.length_tokens, memory_order_relaxed);
	atomic_store_explicit(&slot->journal_end, head.journal_end, memory_order_relaxed);
	KV_FAULT_POINT();
	update_head(seq, &head);
	update_publish(seq->writer);
	seq->head = head;
	*mark = (kvc_mark){id, seq->writer->update, head.length_tokens};
	return 0;
}

/* Index of a mark, or -1 with KVC_ENOTFOUND. */
static int find_mark(const struct kvc_seq *seq, const kvc_mark *mark)
{
	for (uint32_t i = 0; i < seq->head.n_marks; i++) {
		const struct kv_shm_mark *slot = &seq->shm->marks[i];

		if (atomic_load_explicit(&slot->id, memory_order_relaxed) == mark->id &&
		    atomic_load_explicit(&slot->update, memory_order_relaxed) == mark->update &&
		    atomic_load_explicit(&slot->length_tokens, memory_order_relaxed) ==
			    mark->length_tokens)
			return (int)i;
	}
	return kvc_fail(KVC_ENOTFOUND, "the mark was released, or a rollback went past it");
}

static int go_to_mark(kvc_seq *seq, const kvc_mark *mark, bool release)
{
	struct kv_head head;
	int i;

	if (check_seq(seq))
		return -1;
	i = find_mark(seq, mark);
	if (i < 0)
		return -1;
	head = seq->head;
	if (!release)
		head.length_tokens = head.position = mark->length_tokens;
	head.n_marks = (uint32_t)i + !release;
	return commit_head(seq, &head);
}

int kvc_mark_release(kvc_seq *seq, const kvc_mark *mark)
{
	return go_to_mark(seq, mark, true);
}

int kvc_rollback_mark(kvc_seq *seq, const kvc_mark *mark)
{
	if (go_to_mark(seq, mark, false))
		return -1;
	count_rollback(seq->writer);
	return 0;
}
