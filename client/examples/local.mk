# Programs that show the library at work: kvc-generate, a Llama-shaped decoder.
#
# libkvexample.la is the decoder without main(): kvc-generate, kvcachectl and the tests link it.
# Its arithmetic is defined operation by operation (kernels.h), so products and sums are never
# contracted into fused operations, and nothing else that reorders sums is switched on.
noinst_LTLIBRARIES += libkvexample.la

libkvexample_la_CFLAGS = $(AM_CFLAGS) -O3 -fno-math-errno -ffp-contract=off
libkvexample_la_SOURCES = \
	client/examples/decode.c client/examples/decode.h \
	client/examples/draft.c client/examples/draft.h \
	client/examples/kernels.c client/examples/kernels.h \
	client/examples/kv.h \
	client/examples/kv_attention.c client/examples/kv_attention.h \
	client/examples/kv_formats.c client/examples/kv_formats.h \
	client/examples/kv_policy.c client/examples/kv_policy.h \
	client/examples/kv_private.c client/examples/kv_private.h \
	client/examples/kv_sequence.c client/examples/kv_sequence.h \
	client/examples/kv_shared.c client/examples/kv_shared.h \
	client/examples/kv_shared_layout.c \
	client/examples/llama.c client/examples/llama.h \
	client/examples/llama_load.c client/examples/llama_model.h \
	client/examples/policy_random.c client/examples/policy_random.h \
	client/examples/prompt.c client/examples/prompt.h \
	client/examples/safetensors.c client/examples/safetensors.h \
	client/examples/sample.c client/examples/sample.h \
	client/examples/score.c client/examples/score.h \
	client/examples/tokenizer.c client/examples/tokenizer.h
libkvexample_la_LIBADD = libkvcompute.la libkvproto.la $(JANSSON_LIBS) $(SODIUM_LIBS) -lm

noinst_PROGRAMS += kvc-generate
kvc_generate_SOURCES = \
	client/examples/generate.c client/examples/generate_job.h \
	client/examples/generate_caches.c client/examples/generate_caches.h \
	client/examples/generate_options.c client/examples/generate_options.h \
	client/examples/generate_report.c
kvc_generate_LDADD = libkvexample.la libkvcache.la $(XXHASH_LIBS) $(JANSSON_LIBS) -lm

EXTRA_DIST += \
	client/examples/model/README.md \
	client/examples/model/golden.safetensors \
	client/examples/model/kjv-3m.safetensors \
	client/examples/model/kjv-draft.safetensors \
	client/examples/model/prompt.txt \
	client/examples/model/reference.py \
	client/examples/model/tokenizer.txt \
	client/examples/model/train.py
