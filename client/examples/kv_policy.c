#include "client/examples/kv_policy.h"

#include <stdlib.h>
#include <string.h>

#include "client/examples/kv_sequence.h"

/* Tokens that memory is set aside for. */
#define RESERVE_TOKENS 64

struct kv_policy {
	struct kv_sequence sequence;
	kvc_policy *policy;
	struct kvc_policy_plan plan; /* of the layer that was written last */
	size_t n_slots, n_heads;
	size_t n_step;  /* tokens of the step that has begun */
	float *weights; /* [KV head][n_slots]; NULL: the policy has no scores */
};

struct kvc_policy_options kv_policy_options(const char *name, size_t n_slots)
{
	const struct kvc_policy_ops *ops = kvc_policy_find(name);
	struct kvc_policy_options o = {.size = sizeof(o), .name = name};

	if (ops && ops->needs & KVC_POLICY_SCORES && strcmp(name, "h2o-orig") != 0)
		o.grace_tokens = (uint32_t)(n_slots / 8);
	return o;
}

/* ---- steps ---- */

static size_t policy_limit(struct kv_cache *base)
{
	struct kv_policy *kv = (struct kv_policy *)base;
	size_t n = (size_t)kvc_policy_limit(kv->policy);
	size_t most = kv->n_slots > 8 ? kv->n_slots / 8 : 1;

	return base->n_tokens + n > kv->n_slots && n > most ? most : n;
}

/* Blocks, and rows of the journal, for this step and some like it: free where they are there. A
 * restart of the daemon is told once. */
static int reserve(struct kv_policy *kv, size_t n_tokens, struct errbuf *err)
{
	size_t room = kv->sequence.base.max_tokens - kv->sequence.base.n_tokens;
	size_t n_updates = n_tokens < RESERVE_TOKENS ? RESERVE_TOKENS / n_tokens : 1;
	size_t n = n_updates * n_tokens < room ? n_updates * n_tokens : room;
	/* As in full layers, which they may be soon: each token's, and one that is moved for it. */
	uint64_t rows = 2 * n_updates * n_tokens * kv->sequence.base.n_layers * kv->n_heads;

	for (int again = 0;; again++) {
		if (kvc_reserve(kv->sequence.seq, n) == 0 &&
		    kvc_reserve_scatter(kv->sequence.seq, n_updates, rows, 0) == 0)
			return 0;
		if (again || kvc_error() != KVC_ERESTARTED)
			return kv_sequence_error(err);
	}
}

static int policy_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_policy *kv = (struct kv_policy *)base;

	kv_sequence_abort(&kv->sequence);
	if (kv_check_room(base, n_tokens, err) < 0)
		return -1;
	if (n_tokens > policy_limit(base))
		return errbuf_set(err, KV_EBOUND,
				  "no room for %zu tokens behind %zu in %zu slots: the policy "
				  "takes %zu",
				  n_tokens, base->n_tokens, kv->n_slots, policy_limit(base));
	if (reserve(kv, n_tokens, err) < 0)
		return -1;
	if (kvc_update_begin(kv->sequence.seq, n_tokens, KVC_UPDATE_SCATTER) < 0)
		return kv_sequence_error(err);
	kv->n_step = n_tokens;
	kv->sequence.is_open = true;
	return 0;
}

static int policy_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			struct errbuf *err)
{
	struct kv_policy *kv = (struct kv_policy *)base;

	if (kvc_policy_choose(kv->policy, (uint32_t)layer, kv->n_step, &kv->plan) < 0 ||
	    kvc_policy_write(kv->policy, (uint32_t)layer, k, v, NULL, NULL) < 0)
		return kv_sequence_error(err);
	return 0;
}

static int policy_attend(struct kv_cache *base, size_t layer, const struct kv_queries *q,
			 struct errbuf *err)
{
	struct kv_policy *kv = (struct kv_policy *)base;
	struct kvc_attend_args args = kv_sequence_queries(q);

	args.slots = kv->plan.slots;
	args.shared_slots = kv->plan.shared;
	args.weights = kv->weights;
	if (kvc_attend(kv->sequence.seq, (uint32_t)layer, &args) < 0 ||
	    kvc_policy_score(kv->policy, (uint32_t)layer, kv->weights) < 0)
		return kv_sequence_error(err);
	return 0;
}

/* ---- back ---- */

static int policy_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_policy *kv = (struct kv_policy *)base;

	kv_sequence_abort(&kv->sequence);
	if (kvc_rollback_keep(kv->sequence.seq, keep_tokens) < 0)
		return kv_sequence_error(err);
	base->n_tokens = (size_t)kvc_length(kv->sequence.seq);
	return 0;
}

static int policy_truncate_many(struct kv_cache *const *kvs, const size_t *keep_tokens, size_t n,
				struct errbuf *err)
{
	if (n == 1)
		return policy_truncate(kvs[0], keep_tokens[0], err);
	return errbuf_set(err, KV_EUNSUPPORTED,
			  "caches with a policy go back one by one, by whole steps");
}

static int policy_replay(struct kv_cache *kv, struct errbuf *err)
{
	(void)kv;
	return errbuf_set(err, KV_EUNSUPPORTED,
			  "a cache with a policy has an undo journal: no replay");
}

/* ---- the whole ---- */

static void policy_free(struct kv_cache *base)
{
	struct kv_policy *kv = (struct kv_policy *)base;

	kv_sequence_abort(&kv->sequence);
	kvc_policy_free(kv->policy);
	free(kv->weights);
	free(kv);
}

static const struct kv_ops policy_ops = {
	.limit = policy_limit,
	.begin = policy_begin,
	.write = policy_write,
	.attend = policy_attend,
	.commit = kv_sequence_commit,
	.truncate = policy_truncate,
	.truncate_many = policy_truncate_many,
	.read = kv_sequence_read,
	.replay = policy_replay,
	.free = policy_free,
};

static int policy_init(struct kv_policy *kv, const char *name, bool keeps_steps, struct errbuf *err)
{
	struct kvc_policy_options options = kv_policy_options(name, kv->n_slots);
	const struct kvc_policy_ops *ops = kvc_policy_find(name);
	const struct kvc_journal_options undo = {
		.size = sizeof(undo),
		.mode = KVC_JOURNAL_UNDO,
		.when_full = keeps_steps ? KVC_FULL_REFUSE : KVC_FULL_FORGET,
		.keep_steps = keeps_steps ? UINT32_MAX : 1,
	};

	if (!ops || kvc_journal_set(kv->sequence.seq, &undo) < 0)
		return kv_sequence_error(err);
	kv->policy = kvc_policy_new(kv->sequence.seq, &options);
	if (!kv->policy)
		return kv_sequence_error(err);
	if (!(ops->needs & KVC_POLICY_SCORES))
		return 0;
	kv->weights = calloc(kv->n_heads * kv->n_slots, sizeof(*kv->weights));
	return kv->weights ? 0 : errbuf_set(err, KV_ENOMEM, "no memory for weights");
}

struct kv_cache *kv_policy_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       const char *name, size_t n_slots, size_t max_tokens,
			       bool keeps_steps, struct errbuf *err)
{
	const struct llama_geometry *g = llama_geometry(m);
	struct kv_policy *kv = calloc(1, sizeof(*kv));

	if (!kv) {
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
		return NULL;
	}
	kv->sequence.base = (struct kv_cache){&policy_ops, (size_t)kvc_length(seq), max_tokens,
					      g->n_layers, llama_row_floats(m)};
	kv->sequence.writer = writer;
	kv->sequence.seq = seq;
	kv->n_slots = n_slots;
	kv->n_heads = g->n_kv_heads;
	if (policy_init(kv, name, keeps_steps, err) == 0)
		return &kv->sequence.base;
	policy_free(&kv->sequence.base);
	return NULL;
}
