#include "tests/unit/policy-cache.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/runner.h"

#define MAX_TOKENS 4096u
#define TOKENS_MAX 256u /* of an update */
#define HEADS_MAX 4u

static float k_rows[TOKENS_MAX * HEADS_MAX * PC_WIDTH], v_rows[TOKENS_MAX * HEADS_MAX * PC_WIDTH];

struct pc pc_new(const struct kvc_policy_options *options, uint32_t n_layers,
		 const uint32_t *bounds, uint32_t n_heads, uint32_t format,
		 enum kvc_journal_mode mode)
{
	struct jw_shape shape = {
		.n_layers = n_layers, .k_format = format, .v_format = format, .block_tokens = 8};
	struct pc c = {.n_layers = n_layers, .n_heads = n_heads, .options = *options};
	struct kvc_plane planes[KVC_POLICY_PLANES];
	struct kvc_layer layers[3];
	int n_planes;

	for (uint32_t l = 0; l < n_layers; l++) {
		layers[l] = (struct kvc_layer){n_heads, PC_WIDTH, PC_WIDTH, bounds[l]};
		shape.layers[l] = (struct kv_layer){n_heads, PC_WIDTH, PC_WIDTH, bounds[l]};
	}
	n_planes = kvc_policy_planes(options, n_layers, layers, planes);
	jw_ok(n_planes);
	c.w = jw_new_with(&shape, planes, n_planes);
	c.seq = pc_seq(&c, mode);
	c.policy = kvc_policy_new(c.seq, options);
	jw_ok(c.policy ? 0 : -1);
	return c;
}

void pc_free(struct pc *c)
{
	kvc_policy_free(c->policy);
	kvc_policy_log_free(c->log);
	jw_free(c->w);
}

kvc_seq *pc_seq(struct pc *c, enum kvc_journal_mode mode)
{
	kvc_seq *seq = bare_seq(c->w->bare, c->w->writer, MAX_TOKENS, NULL);

	jw_journal(c->w, seq, mode);
	return seq;
}

void pc_reserve(struct pc *c, uint64_t n_tokens)
{
	jw_reserve(c->w, c->seq, n_tokens,
		   kvc_policy_rows(c->policy, n_tokens) + n_tokens * c->n_layers * c->n_heads);
}

void pc_begin(struct pc *c, uint64_t n_tokens)
{
	pc_reserve(c, n_tokens);
	jw_ok(kvc_update_begin(c->seq, n_tokens, KVC_UPDATE_SCATTER));
}

int64_t pc_write(struct pc *c, uint32_t layer, uint64_t n_tokens)
{
	assert_true(n_tokens <= TOKENS_MAX && c->n_heads <= HEADS_MAX);
	for (uint64_t i = 0; i < n_tokens * c->n_heads; i++)
		for (uint32_t v = 0; v < 2; v++)
			jw_vector(c->w, layer, v, (uint32_t)(i % c->n_heads),
				  kvc_position(c->seq) + i / c->n_heads,
				  (v ? v_rows : k_rows) + i * PC_WIDTH);
	return kvc_policy_write(c->policy, layer, k_rows, v_rows, NULL, NULL);
}

/* Weights that differ from slot to slot, and from update to update. */
int64_t pc_score(struct pc *c, uint32_t layer, uint64_t n_tokens)
{
	static float weights[HEADS_MAX * MAX_TOKENS];
	uint64_t x = kvc_position(c->seq) * 7919 + layer + n_tokens;

	for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		weights[i] = (float)(x >> 48) / 65536.0f;
	}
	return kvc_policy_score(c->policy, layer, weights);
}

void pc_update(struct pc *c, uint64_t n_tokens)
{
	struct kvc_policy_plan plan;
	uint32_t tokens[TOKENS_MAX];

	pc_begin(c, n_tokens);
	for (uint64_t i = 0; i < n_tokens; i++)
		tokens[i] = (uint32_t)(1000 + kvc_position(c->seq) + i);
	for (uint32_t l = 0; l < c->n_layers; l++) {
		jw_ok(kvc_policy_choose(c->policy, l, n_tokens, &plan));
		if (c->log)
			jw_ok(kvc_policy_log_add(c->log, c->policy, tokens));
		jw_ok(pc_write(c, l, n_tokens));
		jw_ok(pc_score(c, l, n_tokens));
	}
	jw_ok(kvc_commit(c->w->writer, &c->seq, 1));
}

uint32_t pc_positions(struct pc *c, kvc_seq *seq, uint32_t layer, int32_t *to)
{
	uint32_t n = (uint32_t)kvc_slots(seq, layer);

	(void)c;
	jw_ok(kvc_read_plane(seq, "position", layer, 0, n, to));
	return n;
}

void pc_assert_vectors(struct pc *c, kvc_seq *seq)
{
	int32_t positions[HEADS_MAX * 512];

	for (uint32_t l = 0; l < c->n_layers; l++) {
		uint32_t n = pc_positions(c, seq, l, positions);

		for (uint32_t i = 0; i < n * c->n_heads; i++)
			jw_assert_vector(c->w, seq, l, i % c->n_heads, i / c->n_heads,
					 (uint64_t)positions[i]);
	}
}
