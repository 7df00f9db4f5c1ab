/* kvc_journal_set, kvc_journal_info. Writer's thread. */
#include "client/error.h"
#include "client/handles.h"
#include "client/journal.h"
#include "client/options.h"
#include "client/rollback.h"

static int check_options(const struct kvc_seq *seq, const struct kvc_journal_options *o)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (o->mode > KVC_JOURNAL_REPLAY)
		return kvc_fail(KVC_EINVAL, "journal mode %u; modes are 0 to 2", o->mode);
	if (o->when_full > KVC_FULL_FORGET)
		return kvc_fail(KVC_EINVAL, "when_full is %u; it is 0 or 1", o->when_full);
	if (o->when_full == KVC_FULL_FORGET && o->mode != KVC_JOURNAL_UNDO)
		return kvc_fail(KVC_EINVAL,
				"only an undo journal can forget: the rows of a replay journal are "
				"the sequence; fold it");
	if (layout->journal_group == layout->n_groups && o->mode != KVC_JOURNAL_NONE)
		return kvc_fail(KVC_EUNSUPPORTED, "an opaque layout has no journal");
	return 0;
}

/* The handle's part of the options. */
static void take_options(struct kvc_seq *seq, const struct kvc_journal_options *o)
{
	struct seq_journal *j = &seq->journal;

	seq_journal_defaults(seq);
	if (o->when_full == KVC_FULL_FORGET && j->max_rows > journal_half(seq))
		j->max_rows = journal_half(seq);
	if (o->max_rows && o->max_rows < j->max_rows)
		j->max_rows = o->max_rows;
	if (o->keep_steps)
		j->keep_steps = o->keep_steps;
	j->when_full = o->when_full;
}

/* Row numbers go on, in a block that holds no row of another shape. */
static uint64_t fresh_row(const struct kvc_seq *seq)
{
	const struct kv_journal_shape *shapes = seq->layout->fields->journal;
	uint32_t undo = shapes[KV_JOURNAL_UNDO].rows_log2,
		 replay = shapes[KV_JOURNAL_REPLAY].rows_log2;
	uint64_t rows = UINT64_C(1) << (undo > replay ? undo : replay);

	return (seq->head.journal_end + rows - 1) & ~(rows - 1);
}

/* The mode is in the header: another process that takes over or forks finds it there. */
static int change_mode(struct kvc_seq *seq, enum kv_journal_mode mode)
{
	struct rollback r = {seq, seq->head};

	if (seq->head.journal_first != seq->head.journal_end || seq->head.n_marks)
		return kvc_fail(
			KVC_EBUSY, "the journal has %llu rows, the sequence %u marks; %s",
			(unsigned long long)(seq->head.journal_end - seq->head.journal_first),
			seq->head.n_marks,
			seq_mode(seq) == KV_JOURNAL_REPLAY ?
				"fold the journal, release the marks" :
				"leave the journal behind by a fork, release the marks");
	if (mode == KV_JOURNAL_NONE && kv_planes_now(r.head.planes))
		r.head.planes = kv_planes(kv_planes_now(r.head.planes),
					  kv_planes_now(r.head.planes));
	r.head.state = kv_head_with_mode(r.head.state, mode);
	r.head.journal_first = r.head.journal_end = fresh_row(seq);
	return rollback_commit(seq->writer, &r, 1);
}

int kvc_journal_set(kvc_seq *seq, const struct kvc_journal_options *given)
{
	struct kvc_journal_options o;

	if (rollback_check(seq) ||
	    options_take(given, "kvc_journal_options", sizeof(o), &o, sizeof(o)) ||
	    check_options(seq, &o) ||
	    (o.mode != KVC_JOURNAL_NONE && journal_index_map(seq, (enum kv_journal_mode)o.mode)))
		return -1;
	if (o.mode != (uint32_t)seq_mode(seq) && change_mode(seq, (enum kv_journal_mode)o.mode))
		return -1;
	take_options(seq, &o);
	return 0;
}

/* Steps behind a record, below `end`, that can be stopped at. */
static uint64_t count_steps(const struct kvc_seq *seq, uint64_t record, uint64_t end)
{
	uint64_t n = 0;

	for (uint64_t row = journal_next(seq, record + 1, end); row < end;
	     row = journal_next(seq, row + 1, end))
		n += !(journal_row(seq, row)->flags & KV_ROW_INNER);
	return n;
}

int kvc_journal_info(kvc_seq *seq, struct kvc_journal_info *info)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct seq_group *g;
	uint64_t first = seq->head.journal_first, end = seq->head.journal_end;

	if (session_check(seq->writer->session))
		return -1;
	*info = (struct kvc_journal_info){
		.mode = seq_mode(seq),
		.n_rows = end - first,
		.max_rows = seq->journal.max_rows,
		.first_tokens = seq->head.length_tokens,
		.base_tokens = seq->head.base_tokens,
	};
	if (first == end)
		return 0;
	g = &seq->groups[layout->journal_group];
	info->first_tokens = journal_record(seq, first)->length_tokens;
	info->n_steps = count_steps(seq, first, end);
	info->n_bytes = (g->end_block - g->first_block) *
			layout->groups[layout->journal_group].block_bytes;
	if (!seq->is_open)
		info->n_forward = count_steps(seq, end - 1, seq->journal.future_end);
	return 0;
}
