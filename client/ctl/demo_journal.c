/*
 * What the processes of the second act do: the prompt is stored in 8 bits and stays as it is, what
 * is sampled goes to replay journals over it. And the table of formats: each scores the prompt's
 * text on private caches (a sequence of kvcached in that format gives the same bits: the tests
 * and the act itself say so).
 */
#include <errno.h>
#include <string.h>

#include "client/ctl/demo_role.h"
#include "client/examples/kv_private.h"
#include "client/examples/kv_sequence.h"
#include "client/examples/kv_shared.h"
#include "client/examples/score.h"

/* ---- private runs ---------------------------------------------------------------------------- */

static int sample_alone(struct role *r, unsigned int index, struct errbuf *err)
{
	uint32_t last = r->prompt.ids[r->prompt.n - 1];

	r->report.n_ids = 0;
	if (role_open_logits(r, index, "we", err) ||
	    role_sample(r, index + 1, &last, role_tokens(r), err) || role_close_logits(r, err))
		return -1;
	return r->kv->ops->truncate(r->kv, r->prompt.n - 1, err);
}

int play_private_journal(struct role *r, struct errbuf *err)
{
	r->kv = kv_private_new(r->model, role_formats(r), role_max_tokens(r), err);
	if (!r->kv || role_prefill(r, err) || r->kv->ops->replay(r->kv, err))
		return -1;
	for (unsigned int i = 0; i < DEMO_SAMPLERS; i++)
		if (sample_alone(r, i, err))
			return -1;
	return 0;
}

/* ---- samplers -------------------------------------------------------------------------------- */

/* Rolled back and replayed, the sequence is what it was. */
int journal_rehearse(struct role *r, size_t n_tokens, struct errbuf *err)
{
	uint8_t before[16], after[16];
	struct kvc_journal_info journal;
	int64_t n;

	if (kvc_digest(r->seq, before))
		return kv_sequence_error(err);
	if (r->kv->ops->truncate(r->kv, r->kv->n_tokens - n_tokens, err))
		return -1;
	n = kvc_replay(r->seq, 0);
	if (n < 0 || kvc_digest(r->seq, after) || kvc_journal_info(r->seq, &journal))
		return kv_sequence_error(err);
	r->report.n_replayed = (uint64_t)n;
	r->report.replay_differs = (uint64_t)n != n_tokens ||
				   memcmp(before, after, sizeof(after)) != 0;
	r->kv->n_tokens = (size_t)kvc_length(r->seq);
	return 0;
}

/* ---- formats --------------------------------------------------------------------------------- */

/* The text is scored in two halves: the second one plain, then once more as a journal. */
int play_score(struct role *r, struct errbuf *err)
{
	uint32_t format = demo_formats[r->process->index];
	struct kv_formats formats = {format, format};
	size_t n = r->prompt.n - 1, n_base;
	struct score first = {0}, plain, replay;
	struct kvc_size size;

	if (n > DEMO_SCORE_TOKENS)
		n = DEMO_SCORE_TOKENS;
	n_base = n / 2;
	if (kv_shared_size(r->model, formats, n, &size, err))
		return -1;
	r->report.n_scored = n;
	r->report.token_bytes = (size.k_bytes + size.v_bytes + size.scale_bytes) / n;
	r->report.journal_token_bytes = size.rows_per_token * size.replay_row_bytes;
	r->kv = kv_private_new(r->model, formats, n, err);
	if (!r->kv ||
	    score_append(r->model, r->kv, r->tokenizer, r->prompt.ids, n_base, &first, err))
		return -1;
	plain = replay = first;
	if (score_append(r->model, r->kv, r->tokenizer, r->prompt.ids + n_base, n - n_base, &plain,
			 err) ||
	    r->kv->ops->truncate(r->kv, n_base, err) || r->kv->ops->replay(r->kv, err) ||
	    score_append(r->model, r->kv, r->tokenizer, r->prompt.ids + n_base, n - n_base, &replay,
			 err))
		return -1;
	r->report.bits_per_byte = score_bits_per_byte(&plain);
	r->report.bits_per_byte_replay = score_bits_per_byte(&replay);
	return 0;
}
