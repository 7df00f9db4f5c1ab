/* New vectors into the payloads of rows. Writer's thread, hot path. */
#include "client/compute/codec.h"
#include "client/journal.h"
#include "client/stream.h"

struct vectors {
	const char *from;
	size_t bytes;
};

/* K or V in the new half of undo rows; returns how many, less if one cannot be stored. */
static uint64_t store_stored(const struct kvc_seq *seq, uint32_t layer, bool is_value,
			     const struct journal_rows *rows, const char *from)
{
	const struct kv_codec *codec = &seq->layout->codecs[2 * layer + is_value];
	const struct kv_journal_shape *shape = journal_shape(seq);
	struct kv_codec_at to = journal_stored_at(seq, layer, is_value,
						  rows->payloads + shape->new_off);

	to.codes_stride = to.scale_stride = to.zero_stride = shape->payload_bytes;
	return kv_quantise(codec, rows->n, from, (size_t)codec->width * codec->element_bytes, &to);
}

/* Whole lines go past the cache: they are read much later, as a rule. */
static void store_full(const struct journal_rows *rows, size_t stride, struct vectors k,
		       struct vectors v)
{
	bool lines = ((uintptr_t)rows->payloads | stride | k.bytes | v.bytes) % CACHE_LINE_BYTES ==
		     0;
	char *to = rows->payloads;

	for (uint64_t i = 0; i < rows->n; i++, to += stride) {
		if (lines) {
			stream_lines(to, k.from + i * k.bytes, k.bytes);
			stream_lines(to + k.bytes, v.from + i * v.bytes, v.bytes);
		} else {
			memcpy(to, k.from + i * k.bytes, k.bytes);
			memcpy(to + k.bytes, v.from + i * v.bytes, v.bytes);
		}
	}
}

uint64_t journal_store(const struct kvc_seq *seq, uint32_t layer, uint64_t row, uint64_t n,
		       const char *k, const char *v, bool *is_value)
{
	struct kv_row_parts parts = kv_row_parts(seq->layout->fields, layer);
	bool undo = seq_mode(seq) == KV_JOURNAL_UNDO;
	struct journal_rows rows;

	for (uint64_t done = 0; done < n; done += rows.n) {
		struct vectors from_k = {k + done * parts.k_bytes, parts.k_bytes};
		struct vectors from_v = {v ? v + done * parts.v_bytes : k, v ? parts.v_bytes : 0};
		uint64_t stored;

		rows = journal_rows(seq, row + done, row + n);
		if (!undo) {
			store_full(&rows, journal_shape(seq)->payload_bytes, from_k, from_v);
			continue;
		}
		*is_value = false;
		stored = store_stored(seq, layer, false, &rows, from_k.from);
		if (stored == rows.n && v) {
			*is_value = true;
			stored = store_stored(seq, layer, true, &rows, from_v.from);
		}
		if (stored < rows.n)
			return done + stored;
	}
	return n;
}
