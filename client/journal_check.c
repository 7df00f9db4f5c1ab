/*
 * Looks at a journal that came from another process, once, before anything of it is used: rows and
 * records lead nowhere but into this sequence, steps are as long as they say, and the last one says
 * what the header says. What a row's bytes are is its writer's business: wrong ones are wrong data
 * of that sequence. Rows are looked at in the order of their blocks; a taken-over or forked journal
 * is small beside what it tells of. Writer's thread.
 */
#include <string.h>

#include "client/error.h"
#include "client/journal.h"

struct check {
	const struct kvc_seq *seq;
	uint64_t end_slot[KV_LAYER_GROUPS_MAX]; /* behind the slots that the step's rows name */
	uint64_t n_rows;                        /* of the step so far */
	uint64_t n_records;
	struct kv_record last;
	bool is_inner; /* the last row is a record to stop at, unless this is set */
};

static int fail(const struct check *c, uint64_t row, const char *what)
{
	return kvc_fail(KVC_ECORRUPT, "row %llu of the journal in place %u makes no sense: %s",
			(unsigned long long)row, c->seq->place, what);
}

static const char *vector_wrong(struct check *c, const struct kv_row *row)
{
	const struct kv_layout *layout = c->seq->layout->fields;
	uint64_t *end;

	if (row->flags & ~KV_ROW_BASE)
		return "flags";
	if (row->layer >= layout->n_layers ||
	    row->head >= layout->layers[row->layer].n_query_groups)
		return "layer or head";
	end = &c->end_slot[layout->layer_maps[row->layer].group];
	if (row->slot >= *end)
		*end = (uint64_t)row->slot + 1;
	return NULL;
}

/* The slots that a step writes are there after it. */
static bool names_slots(const struct check *c, uint64_t n_tokens)
{
	const struct kv_layout *layout = c->seq->layout->fields;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		if (c->end_slot[g] > kv_layout_slots(layout, g, n_tokens))
			return false;
	return true;
}

static bool has_planes(const struct kvc_seq *seq, uint32_t version)
{
	return version == 0 || (version >= kv_planes_first(seq->head.planes) &&
				version <= kv_planes_now(seq->head.planes));
}

static const char *record_wrong(struct check *c, const struct kv_row *row,
				const struct kv_record *record)
{
	const struct kvc_seq *seq = c->seq;
	bool is_first = c->n_records == 0;

	if (row->flags & ~KV_ROW_INNER || (is_first && c->n_rows))
		return "no record begins the journal";
	if (record->length_tokens > seq->head.length_tokens ||
	    (!is_first && record->length_tokens < c->last.length_tokens) ||
	    (seq_mode(seq) == KV_JOURNAL_REPLAY && record->length_tokens < seq->head.base_tokens))
		return "length";
	if (!is_first && record->n_rows != c->n_rows)
		return "number of rows of a step";
	if (!names_slots(c, record->length_tokens))
		return "slot";
	if (!has_planes(seq, record->planes))
		return "version of the sequence planes";
	memset(c->end_slot, 0, sizeof(c->end_slot));
	c->n_rows = 0;
	c->n_records++;
	c->last = *record;
	c->is_inner = row->flags & KV_ROW_INNER;
	return NULL;
}

static int check_rows(struct check *c, uint64_t first, const struct journal_rows *rows)
{
	size_t payload_bytes = journal_shape(c->seq)->payload_bytes;

	for (uint64_t i = 0; i < rows->n; i++) {
		struct kv_row row = rows->headers[i];
		const char *wrong = NULL;
		struct kv_record record;

		switch (row.kind) {
		case KV_ROW_RECORD:
			memcpy(&record, rows->payloads + i * payload_bytes, sizeof(record));
			wrong = record_wrong(c, &row, &record);
			break;
		case KV_ROW_VECTOR: wrong = vector_wrong(c, &row); /* fallthrough */
		case KV_ROW_VOID: c->n_rows++; break;
		default: wrong = "kind"; break;
		}
		if (wrong)
			return fail(c, first + i, wrong);
	}
	return 0;
}

int journal_check(const struct kvc_seq *seq)
{
	uint64_t end = seq->head.journal_end, row = seq->head.journal_first;
	struct check c = {.seq = seq};

	if (row == end)
		return 0;
	for (struct journal_rows rows; row < end; row += rows.n) {
		rows = journal_rows(seq, row, end);
		if (check_rows(&c, row, &rows))
			return -1;
	}
	if (c.n_records == 0 || c.n_rows || c.is_inner)
		return fail(&c, end - 1, "no record ends the journal");
	if (c.last.length_tokens != seq->head.length_tokens ||
	    c.last.position != seq->head.position ||
	    c.last.planes != kv_planes_now(seq->head.planes))
		return fail(&c, end - 1, "it is not what the header says");
	return 0;
}
