#include "tests/integration/shadow.h"

#include <string.h>

struct kt_daemon *daemon_;

int start_daemon(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

int stop_daemon(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

kvc_session *open_session(void)
{
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = kt_daemon_dir(daemon_)};
	kvc_session *session = kvc_open(&options);

	there(session);
	return session;
}

const struct geometry geometries[N_GEOMETRIES] = {
	[PLAIN] = {2, KVC_BF16, 16, 0, {{2, 32, 32, 0}, {2, 32, 32, 0}}},
	[K_WIDER] = {1, KVC_F32, 4, 0, {{3, 20, 7, 0}}},
	[NO_V] = {2, KVC_F16, 8, 0, {{1, 33, 0, 0}, {1, 5, 0, 0}}},
	[OTHER_HEADS] = {3, KVC_F32, 4, 0, {{1, 8, 8, 0}, {4, 8, 8, 0}, {3, 6, 2, 0}}},
	[BOUNDED] = {3, KVC_BF16, 4, 0, {{2, 8, 8, 0}, {2, 8, 8, 200}, {1, 4, 4, 0}}},
	[OPAQUE] = {0, 0, 0, 24, {{0, 0, 0, 0}}},
};

kvc_layout *register_layout(kvc_session *session, const struct geometry *g)
{
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {7},
					     .n_layers = g->n_layers,
					     .layers = g->layers,
					     .dtype = g->dtype,
					     .block_tokens = g->block_tokens,
					     .opaque_bytes = g->opaque_bytes};
	kvc_layout *layout = kvc_layout_register(session, &options);

	there(layout);
	return layout;
}

static uint32_t n_layers_of(const struct geometry *g)
{
	return g->n_layers ? g->n_layers : 1;
}

static size_t row_bytes(const struct geometry *g, uint32_t layer, int is_value)
{
	const struct kvc_layer *l = &g->layers[layer];

	if (g->n_layers == 0)
		return is_value ? 0 : g->opaque_bytes;
	return (size_t)l->n_query_groups * (is_value ? l->v_width : l->k_width) *
	       (g->dtype == KVC_F32 ? 4 : 2);
}

/* Byte i of a token's row; `stream` says who wrote it. */
static uint8_t byte_of(uint32_t layer, int is_value, uint64_t token, uint32_t stream, size_t i)
{
	return (uint8_t)(layer * 31 + (uint32_t)is_value * 97 + token * 7 + stream * 53 + i * 3 +
			 1);
}

void fill(uint8_t *to, const struct geometry *g, uint32_t layer, int is_value, uint64_t first,
	  uint64_t n, uint32_t stream)
{
	size_t row = row_bytes(g, layer, is_value);

	for (uint64_t t = 0; t < n; t++)
		for (size_t i = 0; i < row; i++)
			to[t * row + i] = byte_of(layer, is_value, first + t, stream, i);
}

void append(kvc_seq *seq, const struct geometry *g, uint64_t n, uint32_t stream, kvc_writer *writer,
	    uint32_t *streams)
{
	static _Thread_local uint8_t k[MOST_TOKENS * 512], v[MOST_TOKENS * 512];
	uint64_t first = kvc_length(seq);

	assert_true(n <= MOST_TOKENS);
	ok(kvc_reserve(seq, n));
	ok(kvc_append_begin(seq, n));
	for (uint32_t layer = 0; layer < n_layers_of(g); layer++) {
		fill(k, g, layer, 0, first, n, stream);
		fill(v, g, layer, 1, first, n, stream);
		ok(kvc_write(seq, layer, k, row_bytes(g, layer, 1) ? v : NULL));
	}
	ok(kvc_commit(writer, &seq, 1));
	for (uint64_t t = 0; streams && t < n; t++)
		streams[first + t] = stream;
}

void check_row(const uint8_t *row, size_t n_bytes, uint32_t layer, int is_value, uint64_t token,
	       uint32_t stream)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (row[i] != byte_of(layer, is_value, token, stream, i))
			fail_msg("layer %u %s token %llu byte %zu", layer, is_value ? "V" : "K",
				 (unsigned long long)token, i);
}

/* Every element of a layer through its block table. */
static void check_table(kvc_seq *seq, const struct geometry *g, uint32_t layer,
			const uint32_t *streams)
{
	struct kvc_layer_view view;
	struct kvc_paged paged;

	ok(kvc_view_table(seq, layer, &view));
	assert_int_equal(view.length_tokens, kvc_length(seq));
	assert_int_equal(view.k_row_bytes, row_bytes(g, layer, 0));
	assert_int_equal(view.v_row_bytes, row_bytes(g, layer, 1));
	for (uint64_t t = 0; t < view.length_tokens; t++) {
		struct kvc_block b = view.blocks[t / view.block_tokens];
		uint64_t slot = (uint64_t)b.block * view.block_tokens + t % view.block_tokens;

		ok(kvc_view_arena(seq, layer, b.arena, &paged));
		assert_true(b.block < paged.n_blocks);
		check_row((const uint8_t *)paged.k + slot * view.k_row_bytes, view.k_row_bytes,
			  layer, 0, t, streams[t]);
		if (view.v_row_bytes)
			check_row((const uint8_t *)paged.v + slot * view.v_row_bytes,
				  view.v_row_bytes, layer, 1, t, streams[t]);
	}
}

/* The same through its runs. */
static void check_runs(kvc_seq *seq, uint32_t layer, const uint32_t *streams)
{
	struct kvc_run runs[256];
	int64_t n = kvc_view_runs(seq, layer, runs, 256);
	uint64_t token = 0;

	assert_in_range(n, kvc_length(seq) > 0, 256);
	for (int64_t r = 0; r < n; r++) {
		assert_int_equal(runs[r].first_token, token);
		for (uint64_t i = 0; i < runs[r].n_tokens; i++, token++) {
			check_row((const uint8_t *)runs[r].k + i * runs[r].k_row_bytes,
				  runs[r].k_row_bytes, layer, 0, token, streams[token]);
			if (runs[r].v)
				check_row((const uint8_t *)runs[r].v + i * runs[r].v_row_bytes,
					  runs[r].v_row_bytes, layer, 1, token, streams[token]);
		}
	}
	assert_int_equal(token, kvc_length(seq));
}

void check_all(kvc_seq *seq, const struct geometry *g, const uint32_t *streams)
{
	for (uint32_t layer = 0; layer < n_layers_of(g); layer++) {
		check_table(seq, g, layer, streams);
		check_runs(seq, layer, streams);
	}
}

uint64_t snapshot(kvc_seq *seq, const char *name)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .name = name};
	uint64_t id = 0;

	ok(kvc_snapshot(seq, &options, &id));
	assert_true(id != 0);
	return id;
}
