/*
 * What the processes of the third act do. One forks both prompts and writes on greedily, first
 * plain and then with drafts of a small model: ids and logits must be the same, bit for bit.
 * Others read the prompt's text with all of its tokens in a sequence, or with a quarter of the
 * slots under a policy; the text's second half counts, where slots are short.
 *
 * Sequences of this act have no names, so they go with their processes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/demo_role.h"
#include "client/examples/decode.h"
#include "client/examples/draft.h"
#include "client/examples/kv_policy.h"
#include "client/examples/kv_sequence.h"
#include "client/examples/kv_shared.h"
#include "client/examples/score.h"
#include "client/seq.h"

/* Slots come in blocks of as many: a part of one would take a whole. */
#define SLOTS_STEP 64
#define SLOTS_MIN 16

const char *const demo_policies[DEMO_POLICIES] = {NULL, "lastrec", "h2o"};

/* ---- what a sequence holds ------------------------------------------------------------------ */

/* As the daemon counts it: blocks of slots, with their planes, and of sequence planes; blocks of
 * the journal. Adds to both. */
static int ask_bytes(struct role *r, const struct kvc_seq *seq, uint64_t *cache_bytes,
		     uint64_t *journal_bytes, struct errbuf *err)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Show message = KV__WIRE__SHOW__INIT;
	struct ctl *ctl = r->settings->ctl;
	const Kv__Wire__Object *object;
	Kv__Wire__Reply *reply;
	int rc = -1;

	target.which_case = KV__WIRE__TARGET__WHICH_ID;
	target.id = seq->seq_id;
	message.source = &target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &message;
	ctl->session = r->session;
	if (ctl->call(ctl, &request, &reply, err))
		return -1;
	if (reply->result_case != KV__WIRE__REPLY__RESULT_OBJECTS ||
	    reply->objects->n_objects != 1) {
		errbuf_set(err, KV_EINTERNAL, "the daemon does not show sequence %" PRIu64,
			   seq->seq_id);
		goto out;
	}
	object = reply->objects->objects[0];
	*cache_bytes += object->n_bytes - object->n_journal_bytes;
	*journal_bytes += object->n_journal_bytes;
	rc = 0;
out:
	ctl_free_reply(reply);
	return rc;
}

/* ---- speculative decoding ------------------------------------------------------------------- */

/* Of one prompt: what plain decoding gave, to be met again. */
struct rehearsal {
	struct role *r;
	struct demo_drafts *drafts; /* in the report */
	struct llama *small;
	struct kv_cache *small_kv;
	size_t n, n_met;
	uint32_t ids[DEMO_TOKENS_MAX];
	float *logits; /* [n][vocab] */
};

static size_t vocab_of(const struct rehearsal *h)
{
	return llama_geometry(h->r->model)->vocab;
}

static int keep_token(void *arg, uint32_t id, const float *logits, struct errbuf *err)
{
	struct rehearsal *h = arg;

	(void)err;
	h->ids[h->n_met] = id;
	memcpy(h->logits + h->n_met++ * vocab_of(h), logits, vocab_of(h) * sizeof(*logits));
	return 0;
}

static int meet_token(void *arg, size_t row, uint32_t id, const float *logits, struct errbuf *err)
{
	struct rehearsal *h = arg;
	const float *plain = h->logits + h->n_met * vocab_of(h);

	(void)row;
	(void)err;
	h->drafts->n_ids_differ += h->ids[h->n_met++] != id;
	h->drafts->n_rows++;
	h->drafts->n_rows_differ += memcmp(plain, logits, vocab_of(h) * sizeof(*logits)) != 0;
	return 0;
}

static int decode_plain(struct rehearsal *h, struct errbuf *err)
{
	struct role *r = h->r;
	struct decode decode = {.model = r->model, .kv = r->kv, .each = keep_token, .arg = h};
	double start_s = demo_now_s();
	uint32_t ids[DEMO_TOKENS_MAX];

	if (decode_run(&decode, r->prompt.ids[r->prompt.n - 1], h->n, ids, err))
		return -1;
	h->drafts->plain_s = demo_now_s() - start_s;
	return r->kv->ops->truncate(r->kv, r->prompt.n - 1, err);
}

static int decode_drafted(struct rehearsal *h, struct errbuf *err)
{
	struct role *r = h->r;
	struct draft_row row = {.main = r->kv,
				.small = h->small_kv,
				.last = r->prompt.ids[r->prompt.n - 1],
				.n_left = h->n};
	struct draft d = {.main = r->model,
			  .small = h->small,
			  .n_tokens = DEMO_DRAFT_STEP,
			  .rows = &row,
			  .n_rows = 1,
			  .each = meet_token,
			  .arg = h};
	double start_s = demo_now_s();
	int rc = draft_init(&d, err);

	h->n_met = 0;
	if (rc == 0)
		rc = draft_run(&d, err);
	draft_fini(&d);
	h->drafts->drafted_s = demo_now_s() - start_s;
	h->drafts->n_drafted = row.n_drafted;
	h->drafts->n_accepted = row.n_accepted;
	return rc;
}

/* Both ways behind r->kv; the small cache is what it was, then. */
static int rehearse(struct rehearsal *h, struct errbuf *err)
{
	struct demo_drafts *drafts = h->drafts;
	int rc = -1;

	h->n_met = 0;
	h->n = drafts->n_tokens = role_tokens(h->r);
	h->logits = ctl_alloc(h->n * vocab_of(h), sizeof(*h->logits));
	if (decode_plain(h, err) == 0 && decode_drafted(h, err) == 0)
		rc = h->small_kv->ops->truncate(h->small_kv, h->r->prompt.n - 1, err);
	free(h->logits);
	h->logits = NULL;
	return rc;
}

/* The prompt of act 1, or of act 2 with a replay journal over it. */
static int rehearse_fork(struct rehearsal *h, int act, struct errbuf *err)
{
	struct role *r = h->r;
	struct kvc_seq_options options = {.size = sizeof(options),
					  .max_tokens = role_max_tokens(r)};
	char *source = ctl_format("%s/%sprompt", r->settings->prefix, act == 2 ? "int8/" : "");
	int rc = -1;

	h->drafts = &r->report.drafts[act - 1];
	r->seq = kvc_fork(r->writer, source, &options);
	free(source);
	if (role_use_sequence(r, err) || (act == 2 && r->kv->ops->replay(r->kv, err)) ||
	    rehearse(h, err) ||
	    ask_bytes(r, r->seq, &h->drafts->cache_bytes, &h->drafts->journal_bytes, err))
		goto out;
	rc = 0;
out:
	kv_free(r->kv);
	kvc_seq_free(r->seq);
	r->kv = NULL;
	r->seq = NULL;
	return rc;
}

/* The draft model reads the prompt. */
static int fill_small(struct rehearsal *h, kvc_layout *layout, kvc_seq **seq, struct errbuf *err)
{
	struct role *r = h->r;
	struct kvc_seq_options options = {.size = sizeof(options),
					  .max_tokens = role_max_tokens(r)};
	size_t context = llama_geometry(h->small)->context, n = r->prompt.n - 1;

	if (n > context)
		return errbuf_set(err, KV_ERANGE,
				  "the prompt has %zu tokens; the draft model takes %zu", n + 1,
				  context + 1);
	*seq = kvc_seq_new(r->writer, layout, &options);
	if (!*seq)
		return kv_sequence_error(err);
	h->small_kv = kv_shared_new(r->writer, *seq, h->small, role_max_tokens(r), err);
	return h->small_kv ? llama_forward(h->small, h->small_kv, r->prompt.ids, n, NULL, 0, err) :
			     -1;
}

int play_drafts(struct role *r, struct errbuf *err)
{
	struct rehearsal h = {.r = r};
	kvc_layout *layout = NULL;
	kvc_seq *seq = NULL;
	uint64_t journal_bytes = 0;
	int rc = -1;

	if (llama_open(&h.small, r->settings->draft, err) || role_attach(r, err))
		goto out;
	layout = kv_shared_layout(r->session, h.small, KV_FORMATS_RAW, err);
	if (!layout || fill_small(&h, layout, &seq, err) || rehearse_fork(&h, 1, err) ||
	    rehearse_fork(&h, 2, err) ||
	    ask_bytes(r, seq, &r->report.cache_bytes, &journal_bytes, err))
		goto out;
	rc = 0;
out:
	kv_free(h.small_kv);
	kvc_seq_free(seq);
	kvc_layout_free(layout);
	llama_close(h.small);
	return rc;
}

/* ---- bounded caches ------------------------------------------------------------------------- */

/* A quarter of the tokens, in whole blocks. */
static size_t quarter_slots(size_t n)
{
	size_t slots = n / 4 >= SLOTS_STEP ? n / 4 / SLOTS_STEP * SLOTS_STEP : n / 4;

	return slots < SLOTS_MIN ? SLOTS_MIN : slots;
}

/* r->kv: an empty sequence, with the policy of this process, if it has one. */
static int open_cache(struct role *r, const char *policy, struct errbuf *err)
{
	struct kvc_seq_options options = {.size = sizeof(options),
					  .max_tokens = role_max_tokens(r)};
	size_t n_slots = r->report.n_slots;

	if (role_attach(r, err))
		return -1;
	if (policy) {
		kvc_layout_free(r->layout);
		r->layout = kv_policy_layout(r->session, r->model, KV_FORMATS_RAW, policy, n_slots,
					     err);
		if (!r->layout)
			return -1;
		r->report.token_bytes = kvc_layout_token_bytes(r->layout);
	}
	r->seq = kvc_seq_new(r->writer, r->layout, &options);
	if (!policy || !r->seq)
		return role_use_sequence(r, err);
	r->kv = kv_policy_new(r->writer, r->seq, r->model, policy, n_slots, role_max_tokens(r),
			      false, err);
	return r->kv ? 0 : -1;
}

/* The first half fills the cache; the loss of the second one counts. */
static int read_text(struct role *r, struct errbuf *err)
{
	size_t n = r->prompt.n - 1, n_first = n / 2;
	struct score first = {0}, second = {0};
	double start_s = demo_now_s();

	if (score_append(r->model, r->kv, r->tokenizer, r->prompt.ids, n_first, &first, err) ||
	    score_append(r->model, r->kv, r->tokenizer, r->prompt.ids + n_first, n - n_first,
			 &second, err))
		return -1;
	r->report.prefill_s = demo_now_s() - start_s;
	r->report.n_scored = second.n_tokens;
	r->report.bits_per_byte = score_bits_per_byte(&second);
	return 0;
}

/* Then it writes on, token by token. */
int play_evict(struct role *r, struct errbuf *err)
{
	const char *policy = demo_policies[r->process->index];
	struct decode decode = {.model = r->model};
	size_t n = role_tokens(r), n_all = r->prompt.n - 1 + n;
	double start_s;

	r->report.n_slots = policy ? quarter_slots(n_all) : n_all;
	if (open_cache(r, policy, err) || read_text(r, err))
		return -1;
	decode.kv = r->kv;
	start_s = demo_now_s();
	if (decode_run(&decode, r->prompt.ids[r->prompt.n - 1], n, r->report.ids, err))
		return -1;
	r->report.n_ids = (uint32_t)n;
	r->report.decode_s = demo_now_s() - start_s;
	return ask_bytes(r, r->seq, &r->report.cache_bytes, &r->report.journal_bytes, err);
}
