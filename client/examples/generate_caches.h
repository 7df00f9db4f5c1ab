/*
 * generate_caches: the caches of a run of kvc-generate: private buffers, or sequences of kvcached
 * that belong to one writer.
 *
 * Happy path: caches_open, caches_new for each model, caches_fork for more rows of one prompt,
 * caches_fini (in any case, also of a struct of zeros).
 *
 * Thread: one.
 */
#ifndef KV_EXAMPLES_GENERATE_CACHES_H
#define KV_EXAMPLES_GENERATE_CACHES_H

#include "client/examples/draft.h"
#include "client/examples/generate_options.h"
#include "client/kvcache.h"

#define CACHES_MAX (2 * DRAFT_ROWS_MAX)

struct caches {
	const struct generate_options *o; /* must outlive it */
	kvc_session *session;
	kvc_writer *writer;
	struct cache {
		kvc_layout *layout; /* that caches_new registered */
		kvc_seq *seq;
		struct kv_cache *kv;
	} all[CACHES_MAX];
	size_t n;
};

/* Opens a session, unless caches are private. 0, or -1 with err filled. */
int caches_open(struct caches *c, const struct generate_options *o, struct errbuf *err);
void caches_fini(struct caches *c);

/* An empty cache for a model, in the format of the options. Owned by c. NULL with err filled. */
struct kv_cache *caches_new(struct caches *c, const struct llama *m, size_t max_tokens,
			    struct errbuf *err);

/* One that shares the tokens of a sequence of c. Private buffers share nothing: for them it is an
 * empty cache. */
struct kv_cache *caches_fork(struct caches *c, const struct kv_cache *kv, const struct llama *m,
			     struct errbuf *err);

#endif
