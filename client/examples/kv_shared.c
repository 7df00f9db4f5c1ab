#include "client/examples/kv_shared.h"

#include <stdbool.h>
#include <stdlib.h>

#include "client/examples/kv_sequence.h"

#define RESERVE_TOKENS 256

struct kv_shared {
	struct kv_sequence sequence;
	/* Tokens below its replay journal; SIZE_MAX: it has none. */
	size_t n_base;
};

/* Sets memory aside for the step and for some after it. A restart of the daemon is told once. */
static int reserve(struct kv_shared *kv, size_t n_tokens, struct errbuf *err)
{
	size_t room = kv->sequence.base.max_tokens - kv->sequence.base.n_tokens;
	size_t n = n_tokens < RESERVE_TOKENS ? RESERVE_TOKENS : n_tokens;

	if (n > room)
		n = room;
	if (kvc_reserve(kv->sequence.seq, n) == 0)
		return 0;
	if (kvc_error() == KVC_ERESTARTED && kvc_reserve(kv->sequence.seq, n) == 0)
		return 0;
	return kv_sequence_error(err);
}

static int shared_begin(struct kv_cache *base, size_t n_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	kv_sequence_abort(&kv->sequence);
	if (kv_check_room(base, n_tokens, err) < 0)
		return -1;
	if (kvc_append_begin(kv->sequence.seq, n_tokens) < 0) {
		if (kvc_error() != KVC_ERESERVE)
			return kv_sequence_error(err);
		if (reserve(kv, n_tokens, err) < 0)
			return -1;
		if (kvc_append_begin(kv->sequence.seq, n_tokens) < 0)
			return kv_sequence_error(err);
	}
	kv->sequence.is_open = true;
	return 0;
}

static int shared_write(struct kv_cache *base, size_t layer, const float *k, const float *v,
			struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	return kvc_write(kv->sequence.seq, (uint32_t)layer, k, v) < 0 ? kv_sequence_error(err) : 0;
}

/* A journal over tokens that are gone has nothing to protect. */
static int end_journal(struct kv_shared *kv, struct errbuf *err)
{
	const struct kvc_journal_options none = {.size = sizeof(none)};

	if (kvc_journal_set(kv->sequence.seq, &none) < 0)
		return kv_sequence_error(err);
	kv->n_base = SIZE_MAX;
	return 0;
}

/* After a rollback of the sequence. */
static int shared_cut(struct kv_shared *kv, struct errbuf *err)
{
	kv->sequence.base.n_tokens = (size_t)kvc_length(kv->sequence.seq);
	return kv->n_base != SIZE_MAX && kv->sequence.base.n_tokens < kv->n_base ?
		       end_journal(kv, err) :
		       0;
}

static int shared_truncate(struct kv_cache *base, size_t keep_tokens, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	kv_sequence_abort(&kv->sequence);
	if (kvc_rollback_keep(kv->sequence.seq, keep_tokens) < 0)
		return kv_sequence_error(err);
	return shared_cut(kv, err);
}

/* The sequences go back in one update. */
static int shared_truncate_many(struct kv_cache *const *kvs, const size_t *keep_tokens, size_t n,
				struct errbuf *err)
{
	kvc_seq *seqs[KV_TRUNCATE_MANY_MAX];
	uint64_t remove[KV_TRUNCATE_MANY_MAX];

	if (n > KV_TRUNCATE_MANY_MAX)
		return errbuf_set(err, KV_ETOOBIG, "%zu caches at once; at most %d", n,
				  KV_TRUNCATE_MANY_MAX);
	for (size_t i = 0; i < n; i++) {
		struct kv_shared *kv = (struct kv_shared *)kvs[i];
		size_t length = (size_t)kvc_length(kv->sequence.seq);

		if (kv_check_keep(keep_tokens[i], length, err) < 0)
			return -1;
		seqs[i] = kv->sequence.seq;
		remove[i] = length - keep_tokens[i];
		kv_sequence_abort(&kv->sequence);
	}
	if (n &&
	    kvc_rollback_many(((struct kv_shared *)kvs[0])->sequence.writer, seqs, remove, n) < 0)
		return kv_sequence_error(err);
	for (size_t i = 0; i < n; i++)
		if (shared_cut((struct kv_shared *)kvs[i], err) < 0)
			return -1;
	return 0;
}

static int shared_replay(struct kv_cache *base, struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	const struct kvc_journal_options replay = {.size = sizeof(replay),
						   .mode = KVC_JOURNAL_REPLAY};

	if (kv->n_base != SIZE_MAX)
		return 0;
	if (kvc_journal_set(kv->sequence.seq, &replay) < 0)
		return kv_sequence_error(err);
	kv->n_base = (size_t)kvc_length(kv->sequence.seq);
	return 0;
}

/* ---- reading ---- */

static int shared_attend(struct kv_cache *base, size_t layer, const struct kv_queries *q,
			 struct errbuf *err)
{
	struct kv_shared *kv = (struct kv_shared *)base;
	struct kvc_attend_args args = kv_sequence_queries(q);

	return kvc_attend(kv->sequence.seq, (uint32_t)layer, &args) < 0 ? kv_sequence_error(err) :
									  0;
}

static void shared_free(struct kv_cache *base)
{
	struct kv_shared *kv = (struct kv_shared *)base;

	kv_sequence_abort(&kv->sequence);
	free(kv);
}

static const struct kv_ops shared_ops = {
	.begin = shared_begin,
	.write = shared_write,
	.attend = shared_attend,
	.commit = kv_sequence_commit,
	.truncate = shared_truncate,
	.truncate_many = shared_truncate_many,
	.read = kv_sequence_read,
	.replay = shared_replay,
	.free = shared_free,
};

static int shared_init(struct kv_shared *kv, kvc_writer *writer, kvc_seq *seq,
		       const struct llama *m, size_t max_tokens, struct errbuf *err)
{
	struct kvc_journal_info journal;

	kv->sequence.base = (struct kv_cache){&shared_ops, (size_t)kvc_length(seq), max_tokens,
					      llama_geometry(m)->n_layers, llama_row_floats(m)};
	kv->sequence.writer = writer;
	kv->sequence.seq = seq;
	if (kvc_journal_info(seq, &journal) < 0)
		return kv_sequence_error(err);
	kv->n_base = journal.mode == KVC_JOURNAL_REPLAY ? (size_t)journal.base_tokens : SIZE_MAX;
	return 0;
}

struct kv_cache *kv_shared_new(kvc_writer *writer, kvc_seq *seq, const struct llama *m,
			       size_t max_tokens, struct errbuf *err)
{
	struct kv_shared *kv = calloc(1, sizeof(*kv));

	if (kv && shared_init(kv, writer, seq, m, max_tokens, err) == 0)
		return &kv->sequence.base;
	if (kv)
		shared_free(&kv->sequence.base);
	else
		errbuf_set(err, KV_ENOMEM, "no memory for a cache");
	return NULL;
}
