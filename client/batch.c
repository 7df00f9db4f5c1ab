/*
 * Batches: rows made one by one, their blocks reserved as one run a layer group.
 *
 * A batch is there whole or not at all: what was made before a failure is dropped again. Its
 * rows are in the writer's books like other sequences. Writer's thread.
 */
#include "client/batch.h"

#include <stdlib.h>

#include "client/error.h"
#include "client/handles.h"
#include "client/link.h"
#include "client/reserve.h"
#include "client/rpc.h"

#define ROWS_MAX 1024u

static void enlist(struct kvc_batch *batch)
{
	struct session_link *link = batch->writer->session->link;

	pthread_mutex_lock(&link->lock);
	batch->next = link->batches;
	link->batches = batch;
	pthread_mutex_unlock(&link->lock);
}

static void delist(struct kvc_batch *batch)
{
	struct session_link *link = batch->writer->session->link;
	struct kvc_batch **at = &link->batches;

	pthread_mutex_lock(&link->lock);
	while (*at && *at != batch)
		at = &(*at)->next;
	if (*at)
		*at = batch->next;
	pthread_mutex_unlock(&link->lock);
}

/* Row r takes its part of the run of a group. */
static int grant_rows(struct kvc_batch *batch, const Kv__Wire__Run *run)
{
	uint32_t n = (uint32_t)batch->n_row_blocks[run->group];

	for (uint32_t r = 0; r < batch->n_rows; r++) {
		uint32_t first = run->first_block + r * n;

		if (seq_grant(batch->seqs[r], run->group, run->arena, first, n))
			return -1;
		seq_set_batch(batch->seqs[r], run->group, run->arena, first);
	}
	return 0;
}

static int reserve_rows(struct kvc_batch *batch)
{
	struct kvc_session *session = batch->writer->session;
	const struct kv_layout *fields = batch->layout->fields;
	struct reserve_need needs = {.contiguous = true};
	Kv__Wire__Reply *reply;
	int rc = 0;

	for (uint32_t g = 0; g < fields->n_layer_groups; g++) {
		batch->n_row_blocks[g] = (size_t)kv_layout_blocks(
			fields, kv_layout_slots(fields, g, batch->max_tokens));
		needs.n_blocks[g] = (uint32_t)batch->n_row_blocks[g] * batch->n_rows;
	}
	reply = reserve_ask(session, batch->layout, &needs);
	if (!reply)
		return -1;
	if (reply->runs->n_runs != fields->n_layer_groups)
		rc = kvc_fail(KV_EPROTO, "the daemon granted %zu runs for a batch of %u groups",
			      reply->runs->n_runs, fields->n_layer_groups);
	for (size_t i = 0; rc == 0 && i < reply->runs->n_runs; i++)
		rc = grant_rows(batch, reply->runs->runs[i]);
	rpc_reply_free(reply);
	return rc;
}

static int make_rows(struct kvc_batch *batch, uint32_t n_rows)
{
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = batch->max_tokens};

	for (; batch->n_rows < n_rows; batch->n_rows++) {
		batch->seqs[batch->n_rows] = kvc_seq_new(batch->writer, batch->layout, &options);
		if (!batch->seqs[batch->n_rows])
			return -1;
	}
	return 0;
}

static int check_size(const struct kvc_layout *layout, uint32_t n_rows, uint64_t max_tokens)
{
	uint64_t n_blocks;

	if (n_rows == 0 || n_rows > ROWS_MAX)
		return kvc_fail(KV_ERANGE, "a batch has 1 to %u rows, not %u", ROWS_MAX, n_rows);
	if (max_tokens == 0 || max_tokens > KV_TOKENS_MAX)
		return kvc_fail(KV_ERANGE, "max_tokens of a batch is 1 to %u, not %llu",
				KV_TOKENS_MAX, (unsigned long long)max_tokens);
	n_blocks = kv_layout_blocks(layout->fields, max_tokens) * n_rows;
	if (n_blocks > KV_REF_BLOCK_MAX)
		return kvc_fail(KV_ETOOBIG, "a batch of %llu blocks is larger than an arena, %llu",
				(unsigned long long)n_blocks, (unsigned long long)KV_REF_BLOCK_MAX);
	return 0;
}

kvc_batch *kvc_batch_new(kvc_writer *writer, const kvc_layout *layout, uint32_t n_rows,
			 uint64_t max_tokens)
{
	struct kvc_batch *batch;
	struct errbuf why;

	if (session_check(writer->session) || check_size(layout, n_rows, max_tokens))
		return NULL;
	batch = calloc(1, sizeof(*batch) + n_rows * sizeof(batch->seqs[0]));
	if (!batch) {
		kvc_fail(KV_ENOMEM, "no memory for a batch of %u rows", n_rows);
		return NULL;
	}
	batch->writer = writer;
	batch->layout = (struct kvc_layout *)layout;
	batch->max_tokens = max_tokens;
	enlist(batch);
	if (make_rows(batch, n_rows) == 0 && reserve_rows(batch) == 0)
		return batch;
	why = *kvc_err();
	kvc_batch_free(batch);
	*kvc_err() = why;
	return NULL;
}

kvc_seq *kvc_batch_seq(kvc_batch *batch, uint32_t row)
{
	if (session_check(batch->writer->session))
		return NULL;
	if (row < batch->n_rows)
		return batch->seqs[row];
	kvc_fail(KV_ERANGE, "row %u of a batch of %u", row, batch->n_rows);
	return NULL;
}

void kvc_batch_free(kvc_batch *batch)
{
	if (!batch || session_check(batch->writer->session))
		return;
	handles_end_many(batch->writer, batch->seqs, batch->n_rows);
	delist(batch);
	free(batch);
}
