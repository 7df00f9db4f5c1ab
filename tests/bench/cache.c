/* Sessions, layouts and filled sequences for the groups; see bench.h. */
#include <stdlib.h>
#include <string.h>

#include "client/rpc.h"
#include "tests/bench/bench.h"

const char *bench_runtime_dir;

static kvc_layout *register_layout(kvc_session *session, uint32_t n_layers, uint32_t format)
{
	struct kvc_layer layers[BENCH_LAYERS];
	struct kvc_layout_options options = {
		.size = sizeof(options),
		.fingerprint = "kvcbench",
		.n_layers = n_layers,
		.layers = layers,
		.dtype = KVC_BF16,
		.k_format = format,
		.v_format = format,
	};

	for (uint32_t i = 0; i < n_layers; i++)
		layers[i] = (struct kvc_layer){.n_query_groups = BENCH_HEADS,
					       .k_width = BENCH_WIDTH,
					       .v_width = BENCH_WIDTH};
	return kvc_layout_register(session, &options);
}

/* Finite numbers between 0.5 and 2, of both signs: any format holds them. */
static void fill_source(char *source, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i += 2) {
		uint16_t bf16 = (uint16_t)((i * 2654435761u >> 13 & 0x80ff) | 0x3f00);

		memcpy(source + i, &bf16, sizeof(bf16));
	}
}

void bench_cache_source(struct bench_cache *cache, size_t source_bytes)
{
	cache->block_tokens = kvc_layout_block_tokens(cache->layout);
	cache->n_source_tokens = source_bytes / ((size_t)cache->n_layers * 2 * BENCH_ROW_BYTES);
	BENCH_CHECK(cache->source = malloc(source_bytes));
	fill_source(cache->source, source_bytes);
}

void bench_cache_open(struct bench_cache *cache, uint32_t n_layers, uint32_t format,
		      size_t source_bytes)
{
	struct kvc_session_options options = {.size = sizeof(options),
					      .runtime_dir = bench_runtime_dir};
	size_t token_bytes = (size_t)n_layers * 2 * BENCH_ROW_BYTES;

	*cache = (struct bench_cache){.n_layers = n_layers};
	BENCH_CHECK(cache->session = kvc_open(&options));
	BENCH_CHECK(cache->layout = register_layout(cache->session, n_layers, format));
	BENCH_CHECK(format != KVC_RAW || kvc_layout_token_bytes(cache->layout) == token_bytes);
	BENCH_CHECK(cache->writer = kvc_writer_new(cache->session));
	bench_cache_source(cache, source_bytes);
}

void bench_cache_close(struct bench_cache *cache)
{
	kvc_layout_free(cache->layout);
	kvc_close(cache->session);
	free(cache->source);
}

void bench_append(struct bench_cache *cache, kvc_seq *seq, uint64_t n_tokens)
{
	while (n_tokens) {
		uint64_t n = n_tokens < cache->n_source_tokens ? n_tokens : cache->n_source_tokens;
		const size_t stride = (size_t)cache->n_layers * 2 * BENCH_ROW_BYTES;

		BENCH_CHECK(kvc_append_begin(seq, n) == 0);
		for (uint32_t layer = 0; layer < cache->n_layers; layer++) {
			const char *k = cache->source + (size_t)layer * 2 * BENCH_ROW_BYTES;

			BENCH_CHECK(kvc_write_rows(seq, layer, 0, n, k, stride, k + BENCH_ROW_BYTES,
						   stride) == 0);
		}
		BENCH_CHECK(kvc_commit(cache->writer, &seq, 1) == 0);
		n_tokens -= n;
	}
}

kvc_seq *bench_seq(struct bench_cache *cache, uint64_t n_tokens, uint64_t n_reserve_tokens,
		   const char *name)
{
	struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	kvc_seq *seq;

	BENCH_CHECK(seq = kvc_seq_new(cache->writer, cache->layout, &options));
	BENCH_CHECK(kvc_reserve(seq, n_tokens + n_reserve_tokens) == 0);
	bench_append(cache, seq, n_tokens);
	return seq;
}

Kv__Wire__Reply *bench_status(kvc_session *session)
{
	Kv__Wire__Request request;
	Kv__Wire__Status command = KV__WIRE__STATUS__INIT;
	Kv__Wire__Reply *reply;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &command;
	BENCH_CHECK(reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_STATUS_RESULT));
	return reply;
}

struct bench_gauges bench_gauges(struct bench_cache *cache)
{
	Kv__Wire__Reply *reply = bench_status(cache->session);
	struct bench_gauges gauges;

	gauges = (struct bench_gauges){
		.live_bytes = reply->status_result->pool_live_bytes,
		.reserved_bytes = reply->status_result->pool_reserved_bytes,
		.cached_bytes = reply->status_result->pool_cached_bytes,
		.used_bytes = reply->status_result->used_bytes,
		.control_bytes = reply->status_result->control_bytes,
		.catalogue_bytes = reply->status_result->catalogue_bytes,
		.core_pid = reply->status_result->core_pid,
	};
	rpc_reply_free(reply);
	return gauges;
}
