/*
 * Marks: points to go back to, in the control segment. Writer's thread, hot path.
 */
#include "client/error.h"
#include "client/inplace.h"
#include "client/journal.h"
#include "client/rollback.h"

/* A mark names the record that is last in force: a journal that has none yet gets its first. */
static int record_now(struct kvc_seq *seq, struct kv_head *head)
{
	if (seq_mode(seq) == KV_JOURNAL_NONE || head->journal_first != head->journal_end)
		return 0;
	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	head->journal_end = journal_begin(seq);
	if (journal_extend(seq, head->journal_end))
		return -1;
	journal_put_floor(seq);
	return 0;
}

/* The header, and the block of a first record. */
static void publish(struct kvc_seq *seq, const struct kv_head *head)
{
	uint32_t journal = seq->layout->fields->journal_group;

	if (head->journal_end != seq->head.journal_end) {
		commit_fill_group(seq, journal);
		if (seq_mode(seq) == KV_JOURNAL_UNDO)
			inplace_count_rows(seq, head->journal_end);
	}
	update_head(seq, head);
	update_publish(seq->writer);
	if (head->journal_end != seq->head.journal_end) {
		commit_settle_blocks(seq, journal);
		seq->journal.future_end = head->journal_end;
	}
	update_settle(seq, head);
}

int kvc_mark_set(kvc_seq *seq, kvc_mark *mark)
{
	struct kv_head head;
	struct kv_shm_mark *slot;
	uint64_t id = 1;

	if (rollback_check(seq))
		return -1;
	head = seq->head;
	if (head.n_marks == KV_MARKS_MAX)
		return kvc_fail(KVC_ELIMIT, "a sequence has at most %u marks; release some",
				KV_MARKS_MAX);
	if (head.n_marks)
		id += atomic_load_explicit(&seq->shm->marks[head.n_marks - 1].id,
					   memory_order_relaxed);
	if (record_now(seq, &head))
		return -1;
	if (update_open(seq->writer)) {
		begin_abort(seq);
		return -1;
	}
	/* The slot is above the committed n_marks: nobody reads it yet. */
	slot = &seq->shm->marks[head.n_marks++];
	atomic_store_explicit(&slot->id, id, memory_order_relaxed);
	atomic_store_explicit(&slot->update, seq->writer->update + 1, memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&slot->length_tokens, head.length_tokens, memory_order_relaxed);
	atomic_store_explicit(&slot->journal_end, head.journal_end, memory_order_relaxed);
	KV_FAULT_POINT();
	publish(seq, &head);
	*mark = (kvc_mark){id, seq->writer->update, head.length_tokens};
	return 0;
}

static kvc_mark mark_at(const struct kvc_seq *seq, uint32_t i)
{
	const struct kv_shm_mark *slot = &seq->shm->marks[i];

	return (kvc_mark){
		.id = atomic_load_explicit(&slot->id, memory_order_relaxed),
		.update = atomic_load_explicit(&slot->update, memory_order_relaxed),
		.length_tokens = atomic_load_explicit(&slot->length_tokens, memory_order_relaxed),
	};
}

uint32_t seq_marks(const struct kvc_seq *seq, kvc_mark *marks)
{
	for (uint32_t i = 0; i < seq->head.n_marks; i++)
		marks[i] = mark_at(seq, i);
	return seq->head.n_marks;
}

/* Index of a mark, or -1 with KVC_ENOTFOUND. */
static int find_mark(const struct kvc_seq *seq, const kvc_mark *mark)
{
	for (uint32_t i = 0; i < seq->head.n_marks; i++) {
		kvc_mark there = mark_at(seq, i);

		if (there.id == mark->id && there.update == mark->update &&
		    there.length_tokens == mark->length_tokens)
			return (int)i;
	}
	return kvc_fail(KVC_ENOTFOUND, "the mark was released, or a rollback went past it");
}

int kvc_mark_release(kvc_seq *seq, const kvc_mark *mark)
{
	struct rollback r = {seq, seq->head};
	int i;

	if (rollback_check(seq))
		return -1;
	i = find_mark(seq, mark);
	if (i < 0)
		return -1;
	r.head.n_marks = (uint32_t)i;
	return rollback_commit(seq->writer, &r, 1);
}

/* The header that a mark stands for. */
static int marked_head(const struct kvc_seq *seq, uint32_t i, struct kv_head *head)
{
	const struct kv_shm_mark *mark = &seq->shm->marks[i];
	uint64_t end = atomic_load_explicit(&mark->journal_end, memory_order_relaxed);
	uint64_t length = atomic_load_explicit(&mark->length_tokens, memory_order_relaxed);

	*head = seq->head;
	if (seq_mode(seq) == KV_JOURNAL_NONE) {
		if (length > head->length_tokens)
			return kvc_fail(KVC_ENOTFOUND, "the mark is beyond the sequence");
		return length < head->length_tokens ? rollback_cut(seq, length, head) : 0;
	}
	if (end <= head->journal_first || end > head->journal_end)
		return kvc_fail(KVC_EJOURNAL,
				"the journal does not reach back to the mark: its steps were "
				"folded, or forgotten when it was full");
	return rollback_head(seq, end - 1, head);
}

int kvc_rollback_mark(kvc_seq *seq, const kvc_mark *mark)
{
	struct rollback r = {seq, {0}};
	int i;

	if (rollback_check(seq))
		return -1;
	i = find_mark(seq, mark);
	if (i < 0 || marked_head(seq, (uint32_t)i, &r.head))
		return -1;
	r.head.n_marks = (uint32_t)i + 1;
	if (rollback_commit(seq->writer, &r, 1))
		return -1;
	writer_count(&seq->writer->shm->n_rollbacks, 1);
	return 0;
}
