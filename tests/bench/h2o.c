/*
 * h2o_step: what the policy h2o costs a token, in one full layer of 8 query groups and 8k slots of
 * int8: begin, choose, write, score, commit, with an undo journal; against reading once what the
 * plane of scores holds.
 *
 * Between choosing and scoring there is attention over the layer, as in a model, which is not
 * timed; and so there is before the reference: both find the caches as attention leaves them. Each
 * has a sequence of its own.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/attend.h"

#define SLOTS 8192u
#define KEPT_STEPS 8u
#define PAIRS 301u

struct h2o {
	struct bench_cache *cache;
	kvc_seq *seq;
	kvc_policy *policy;
	float *q, *out, *weights;
	uint64_t sum; /* of the last read: nothing is left out as unused */
};

static const struct kvc_policy_options policy_options = {.size = sizeof(policy_options),
							 .name = "h2o"};

/* ---- a full layer --------------------------------------------------------------------------- */

static void open_cache(struct bench_cache *cache)
{
	const struct kvc_session_options session = {.size = sizeof(session),
						    .runtime_dir = bench_runtime_dir};
	const struct kvc_layer layer = {BENCH_HEADS, BENCH_WIDTH, BENCH_WIDTH, SLOTS};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	int n_planes = kvc_policy_planes(&policy_options, 1, &layer, planes);
	const struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = "kvcbench",
		.n_layers = 1,
		.layers = &layer,
		.dtype = KVC_BF16,
		.k_format = KVC_INT8,
		.v_format = KVC_INT8,
		.n_planes = (uint32_t)n_planes,
		.planes = planes,
	};

	*cache = (struct bench_cache){.n_layers = 1};
	BENCH_CHECK(n_planes > 0);
	BENCH_CHECK(cache->session = kvc_open(&session));
	BENCH_CHECK(cache->layout = kvc_layout_register(cache->session, &options));
	BENCH_CHECK(cache->writer = kvc_writer_new(cache->session));
	bench_cache_source(cache, SLOTS * BENCH_ROW_BYTES);
}

/* What a policy does with n tokens, but for the attention between; K and V are the source. */
static void choose(struct h2o *h, uint64_t n, struct kvc_policy_plan *plan)
{
	int rc = kvc_update_begin(h->seq, n, KVC_UPDATE_SCATTER);

	rc |= kvc_policy_choose(h->policy, 0, n, plan);
	rc |= kvc_policy_write(h->policy, 0, h->cache->source, h->cache->source, NULL, NULL);
	BENCH_CHECK(rc == 0);
}

static void score(struct h2o *h, const float *weights)
{
	int rc = kvc_policy_score(h->policy, 0, weights);

	BENCH_CHECK((rc | kvc_commit(h->cache->writer, &h->seq, 1)) == 0);
}

/* Not timed: what the daemon is asked for. */
static void reserve(struct h2o *h)
{
	BENCH_CHECK(kvc_reserve(h->seq, 1) == 0);
	BENCH_CHECK(kvc_reserve_scatter(h->seq, 1, kvc_policy_rows(h->policy, 1), 1) == 0);
}

static void make(struct h2o *h, struct bench_cache *cache)
{
	const struct kvc_journal_options journal = {
		.size = sizeof(journal),
		.mode = KVC_JOURNAL_UNDO,
		.when_full = KVC_FULL_FORGET,
		.keep_steps = KEPT_STEPS,
	};
	size_t n = BENCH_HEADS * BENCH_WIDTH;
	struct kvc_policy_plan plan;

	*h = (struct h2o){
		.cache = cache,
		.q = calloc(n, sizeof(float)),
		.out = calloc(n, sizeof(float)),
		.weights = calloc(BENCH_HEADS * SLOTS, sizeof(float)),
	};
	BENCH_CHECK(h->q && h->out && h->weights);
	bench_attend_fill(h->q, n, 1);
	BENCH_CHECK(h->seq = kvc_seq_new(cache->writer, cache->layout, NULL));
	BENCH_CHECK(kvc_journal_set(h->seq, &journal) == 0);
	BENCH_CHECK(h->policy = kvc_policy_new(h->seq, &policy_options));
	BENCH_CHECK(kvc_reserve(h->seq, SLOTS) == 0);
	choose(h, SLOTS, &plan);
	score(h, NULL);
}

static void fini(struct h2o *h)
{
	kvc_policy_free(h->policy);
	BENCH_CHECK(kvc_seq_drop(h->seq) == 0);
	free(h->q);
	free(h->out);
	free(h->weights);
}

/* ---- the two sides -------------------------------------------------------------------------- */

static void attend(struct h2o *h, const struct kvc_policy_plan *plan)
{
	const struct kvc_attend_args args = {
		.size = sizeof(args),
		.n_query_heads = BENCH_HEADS,
		.n_tokens = 1,
		.q = h->q,
		.k = h->cache->source,
		.v = h->cache->source,
		.out = h->out,
		.slots = plan->slots,
		.shared_slots = plan->shared,
		.weights = h->weights,
	};

	BENCH_CHECK(kvc_attend(h->seq, 0, &args) == 0);
}

static double step(void *arg)
{
	struct h2o *h = arg;
	struct kvc_policy_plan plan;
	uint64_t begin;
	double ns;

	reserve(h);
	begin = bench_now_ns();
	choose(h, 1, &plan);
	ns = bench_since_ns(begin);
	attend(h, &plan);
	begin = bench_now_ns();
	score(h, h->weights);
	return ns + bench_since_ns(begin);
}

/* The reference's own step is not timed either: its plane is as new as that of the product. */
static double read_scores(void *arg)
{
	struct h2o *h = arg;
	struct plain_plane plane = {.n_bytes = BENCH_HEADS * SLOTS * sizeof(float)};
	uint64_t begin;
	double ns;

	step(h);
	attend(h, &(struct kvc_policy_plan){.shared = 0});
	plane.n_mapped_bytes = plane.n_bytes;
	BENCH_CHECK(plane.memory = (void *)(uintptr_t)kvc_plane_get(h->seq, "policy"));
	begin = bench_now_ns();
	h->sum = plain_read(&plane, NULL);
	ns = bench_since_ns(begin);
	return ns;
}

void bench_group_h2o(void)
{
	static struct h2o product, reference;
	struct bench_cache cache;

	open_cache(&cache);
	make(&product, &cache);
	make(&reference, &cache);
	bench_compare(bench_result("h2o_step"), (struct bench_side){step, &product},
		      (struct bench_side){read_scores, &reference}, PAIRS, 1000);
	fini(&product);
	fini(&reference);
	bench_cache_close(&cache);
}
