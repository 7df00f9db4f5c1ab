/*
 * Going back: kvc_rollback_*. A rollback is an update that says less: one header copy
 * a sequence and the swap. Without a journal and with a replay journal that is all, whatever the
 * length; with an undo journal the old bytes of the rows that are taken back are put into their
 * slots, newest first, and the update is *decided* before the first is: if the writer dies then,
 * whoever comes next finishes it. Blocks that leave the table become spares, in the order in which
 * they will be wanted again. Writer's thread, hot path.
 */
#include "client/rollback.h"

#include <string.h>

#include "client/error.h"
#include "client/inplace.h"
#include "client/journal.h"

int rollback_check(const struct kvc_seq *seq)
{
	if (session_check(seq->writer->session))
		return -1;
	if (!seq_is_live(seq))
		return kvc_fail(KVC_EREADONLY, "a snapshot cannot be changed; fork it");
	if (seq->is_open)
		return kvc_fail(KVC_EBUSY, "an update is open; commit or abort it");
	return 0;
}

/* ---- where to ----------------------------------------------------------------------------- */

/* Marks that the header goes past are gone. */
static void drop_marks(const struct kvc_seq *seq, struct kv_head *head)
{
	while (head->n_marks) {
		const struct kv_shm_mark *mark = &seq->shm->marks[head->n_marks - 1];

		if (atomic_load_explicit(&mark->length_tokens, memory_order_relaxed) <=
			    head->length_tokens &&
		    atomic_load_explicit(&mark->journal_end, memory_order_relaxed) <=
			    head->journal_end)
			return;
		head->n_marks--;
	}
}

int rollback_cut(const struct kvc_seq *seq, uint64_t n_tokens, struct kv_head *head)
{
	if (head->state & KV_HEAD_SCATTERED)
		return kvc_fail(KVC_EJOURNAL,
				"the journal does not reach back to %llu tokens, and slots below "
				"it were overwritten",
				(unsigned long long)n_tokens);
	if (kv_planes_now(head->planes))
		return kvc_fail(KVC_EJOURNAL,
				"the sequence planes at %llu tokens are not kept; use a journal",
				(unsigned long long)n_tokens);
	head->position -= head->length_tokens - n_tokens;
	head->length_tokens = n_tokens;
	head->base_tokens = n_tokens;
	head->journal_first = head->journal_end; /* rows, if any, lie above */
	drop_marks(seq, head);
	return 0;
}

/* Blocks and versions that a header names are there. */
static bool can_be(const struct kvc_seq *seq, const struct kv_head *head)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (kv_head_wrong(layout, head, seq->max_tokens))
		return false;
	for (uint32_t g = 0; g < seq->n_groups; g++) {
		struct kv_window window = kv_head_window(layout, head, g);

		if (window.n && (window.first < seq->groups[g].first_block ||
				 window.first + window.n > seq->groups[g].end_block))
			return false;
	}
	return true;
}

int rollback_head(const struct kvc_seq *seq, uint64_t record, struct kv_head *head)
{
	struct kv_head now = seq->head;
	uint32_t first = kv_planes_first(now.planes);
	struct kv_record r;

	memcpy(&r, journal_record(seq, record), sizeof(r));
	now.length_tokens = r.length_tokens;
	now.position = r.position;
	now.journal_end = record + 1;
	now.planes = r.planes ? kv_planes(first ? first : 1, r.planes) : 0;
	if (seq_mode(seq) == KV_JOURNAL_UNDO)
		now.base_tokens = r.length_tokens;
	if (journal_row(seq, record)->kind != KV_ROW_RECORD || !can_be(seq, &now))
		return kvc_fail(KVC_ECORRUPT,
				"row %llu of the journal is no record of this sequence",
				(unsigned long long)record);
	drop_marks(seq, &now);
	*head = now;
	return 0;
}

static int fail_between(const struct kvc_seq *seq, uint64_t n_tokens, uint64_t above,
			uint64_t record)
{
	return kvc_fail(KVC_ERANGE,
			"no step ends at %llu tokens: %llu and %llu are the nearest that can be "
			"kept",
			(unsigned long long)n_tokens,
			(unsigned long long)journal_record(seq, record)->length_tokens,
			(unsigned long long)above);
}

static bool is_inner(const struct kvc_seq *seq, uint64_t record)
{
	return journal_row(seq, record)->flags & KV_ROW_INNER;
}

/* The header after keeping n_tokens, fewer than there are. */
static int head_at_length(const struct kvc_seq *seq, uint64_t n_tokens, struct kv_head *head)
{
	uint64_t above = seq->head.length_tokens, record;

	*head = seq->head;
	if (seq_mode(seq) == KV_JOURNAL_NONE || head->journal_first == head->journal_end)
		return rollback_cut(seq, n_tokens, head);
	for (record = journal_last(seq); record != UINT64_MAX;
	     record = journal_previous(seq, record)) {
		uint64_t length = journal_record(seq, record)->length_tokens;

		if (is_inner(seq, record) || length > n_tokens) {
			if (!is_inner(seq, record))
				above = length;
			continue;
		}
		if (length < n_tokens)
			return fail_between(seq, n_tokens, above, record);
		return rollback_head(seq, record, head);
	}
	if (rollback_head(seq, seq->head.journal_first, head))
		return -1;
	return rollback_cut(seq, n_tokens, head);
}

/* ---- the update --------------------------------------------------------------------------- */

/* Does it put old bytes back into slots? */
static bool is_in_place(const struct kvc_seq *seq, const struct kv_head *head)
{
	return seq_mode(seq) == KV_JOURNAL_UNDO && head->journal_end < seq->head.journal_end;
}

/* Copies the frozen blocks that rows will be put back into. */
static int prepare(struct kvc_seq *seq, const struct kv_head *head)
{
	seq->open_freeze = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	if (!is_in_place(seq, head))
		return 0;
	return inplace_copy_frozen(seq, head->journal_end, seq->head.journal_end,
				   head->base_tokens);
}

static void fill(struct kvc_seq *seq, const struct kv_head *head)
{
	for (uint32_t g = 0; g < seq->n_groups; g++)
		commit_fill_group(seq, g);
	update_head(seq, head);
}

static void settle(struct kvc_seq *seq, const struct kv_head *head)
{
	uint64_t end = seq->head.journal_end;

	for (uint32_t g = 0; g < seq->n_groups; g++)
		commit_settle_blocks(seq, g);
	if (seq_mode(seq) == KV_JOURNAL_REPLAY)
		journal_index_remove(seq, head->journal_end, end);
	if (seq_mode(seq) == KV_JOURNAL_UNDO)
		inplace_count_rows(seq, head->journal_end);
	if (head->journal_first == head->journal_end)
		seq->journal.future_end = head->journal_end;
	else if (seq->journal.future_end < end)
		seq->journal.future_end = end;
	update_settle(seq, head);
}

static bool frozen_since(struct rollback *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (is_in_place(r[i].seq, &r[i].head) && inplace_is_frozen_since(r[i].seq))
			return true;
	return false;
}

/* Copies what is frozen and opens the word; -1: nothing has changed. */
static int open_prepared(struct kvc_writer *writer, struct rollback *r, size_t n)
{
	size_t i;

	for (;;) {
		for (i = 0; i < n; i++)
			if (prepare(r[i].seq, &r[i].head))
				goto fail;
		if (update_open(writer))
			goto fail;
		if (!frozen_since(r, n))
			return 0;
		update_close(writer);
	}
fail:
	for (i = 0; i < n; i++)
		begin_abort(r[i].seq);
	return -1;
}

static void decide(const struct kvc_writer *writer)
{
	KV_FAULT_POINT();
	atomic_store_explicit(&writer->shm->decided, writer->update + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
	KV_FAULT_POINT();
}

int rollback_commit(struct kvc_writer *writer, struct rollback *r, size_t n)
{
	bool any_in_place = false;

	if (open_prepared(writer, r, n))
		return -1;
	for (size_t i = 0; i < n; i++) {
		fill(r[i].seq, &r[i].head);
		any_in_place |= is_in_place(r[i].seq, &r[i].head);
	}
	if (any_in_place)
		decide(writer);
	for (size_t i = 0; i < n; i++)
		if (is_in_place(r[i].seq, &r[i].head))
			inplace_put_back(r[i].seq, r[i].head.journal_end,
					 r[i].seq->head.journal_end, r[i].head.base_tokens);
	update_publish(writer);
	for (size_t i = 0; i < n; i++)
		settle(r[i].seq, &r[i].head);
	return 0;
}

static int go_to(kvc_seq *seq, const struct kv_head *head)
{
	struct rollback one = {seq, *head};

	if (rollback_commit(seq->writer, &one, 1))
		return -1;
	writer_count(&seq->writer->shm->n_rollbacks, 1);
	return 0;
}

/* ---- by length and by steps ---------------------------------------------------------------- */

int kvc_rollback_keep(kvc_seq *seq, uint64_t n_tokens)
{
	struct kv_head head;

	if (rollback_check(seq))
		return -1;
	if (n_tokens > seq->head.length_tokens)
		return kvc_fail(KVC_ERANGE, "cannot keep %llu of %llu tokens",
				(unsigned long long)n_tokens,
				(unsigned long long)seq->head.length_tokens);
	if (n_tokens == seq->head.length_tokens)
		return 0;
	return head_at_length(seq, n_tokens, &head) ? -1 : go_to(seq, &head);
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
	if (rollback_check(seq) || check_remove(seq, n_tokens))
		return -1;
	return kvc_rollback_keep(seq, seq->head.length_tokens - n_tokens);
}

int kvc_rollback_steps(kvc_seq *seq, uint64_t n_steps)
{
	uint64_t record, left = n_steps;
	struct kv_head head;

	if (rollback_check(seq))
		return -1;
	if (n_steps == 0)
		return 0;
	record = seq->head.journal_first == seq->head.journal_end ? UINT64_MAX : journal_last(seq);
	while (record != UINT64_MAX && left) {
		record = journal_previous(seq, record);
		if (record != UINT64_MAX && !is_inner(seq, record))
			left--;
	}
	if (record == UINT64_MAX)
		return kvc_fail(KVC_EJOURNAL, "the journal has %llu steps, not %llu",
				(unsigned long long)(n_steps - left), (unsigned long long)n_steps);
	return rollback_head(seq, record, &head) ? -1 : go_to(seq, &head);
}

static int many_heads(kvc_writer *writer, kvc_seq *const *seqs, const uint64_t *remove_tokens,
		      size_t n_seqs, struct rollback *r)
{
	for (size_t i = 0; i < n_seqs; i++) {
		int rc = 0;

		if (seqs[i]->writer != writer)
			return kvc_fail(KVC_EINVAL, "sequence %zu belongs to another writer", i);
		r[i] = (struct rollback){seqs[i], seqs[i]->head};
		if (rollback_check(seqs[i]) || check_remove(seqs[i], remove_tokens[i]) ||
		    (remove_tokens[i] &&
		     head_at_length(seqs[i], seqs[i]->head.length_tokens - remove_tokens[i],
				    &r[i].head)))
			rc = -1;
		if (rc) {
			errbuf_wrap(kvc_err(), "sequence %zu", i);
			return -1;
		}
	}
	return 0;
}

int kvc_rollback_many(kvc_writer *writer, kvc_seq *const *seqs, const uint64_t *remove_tokens,
		      size_t n_seqs)
{
	struct rollback r[KV_PLACES_MAX];

	if (session_check(writer->session))
		return -1;
	if (n_seqs > KV_PLACES_MAX)
		return kvc_fail(KVC_ETOOBIG, "%zu sequences are more than a session has, %u",
				n_seqs, KV_PLACES_MAX);
	if (many_heads(writer, seqs, remove_tokens, n_seqs, r) ||
	    seqs_distinct(writer, seqs, n_seqs))
		return -1;
	if (n_seqs == 0)
		return 0;
	if (rollback_commit(writer, r, n_seqs))
		return -1;
	writer_count(&writer->shm->n_rollbacks, 1);
	return 0;
}
