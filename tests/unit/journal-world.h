/*
 * Sequences with journals over bare memory, for unit tests: tokens whose vectors follow from a
 * number, reserves that are there when they are needed, and pictures of everything that a sequence
 * shows and stores. What goes wrong is an assertion.
 */
#ifndef KVCACHED_TESTS_UNIT_JOURNAL_WORLD_H
#define KVCACHED_TESTS_UNIT_JOURNAL_WORLD_H

#include "client/compute/codec.h"
#include "tests/support/bare.h"

#define JW_TOKENS 512u /* max_tokens */

struct jw_shape {
	uint32_t n_layers;
	struct kv_layer layers[3];
	uint32_t k_format, v_format;
	uint32_t block_tokens;
	bool has_positions;   /* a slot plane "position", u32, written with the tokens */
	uint32_t state_bytes; /* a sequence plane "state"; 0: none */
	uint32_t dtype;       /* 0: f32, as jw_append and the like need it */
};

struct jw {
	struct bare *bare;
	struct kvc_writer *writer;
	const struct kv_layout *layout;
	struct jw_shape shape;
};

struct jw *jw_new(const struct jw_shape *shape);
/* With more planes. */
struct jw *jw_new_with(const struct jw_shape *shape, const struct kvc_plane *planes, int n_planes);

/* Drops all sequences, and asserts that no block is left with anybody. */
void jw_free(struct jw *w);

kvc_seq *jw_seq(struct jw *w);
kvc_seq *jw_fork(struct jw *w, kvc_seq *seq);
kvc_seq *jw_snapshot(struct jw *w, kvc_seq *seq);
void jw_drop(struct jw *w, kvc_seq *seq);

void jw_ok(int64_t rc);
/* Failed with this status, and the text has this in it. */
void jw_fails(int64_t rc, int status, const char *text);

void jw_reserve(struct jw *w, kvc_seq *seq, uint64_t n_tokens, uint64_t n_rows);
void jw_journal(struct jw *w, kvc_seq *seq, enum kvc_journal_mode mode);
void jw_mark(struct jw *w, kvc_seq *seq, kvc_mark *mark);

/* Appends tokens first, first + 1, ... and commits. */
void jw_append(struct jw *w, kvc_seq *seq, uint64_t first, uint64_t n);

/* One update that writes tokens first, first + 1, ... into slots index[head][n] of a layer. */
void jw_scatter(struct jw *w, kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index,
		uint64_t first);

/* One new token of a full one-layer cache, into slot index[head]. */
void jw_append_scattered(struct jw *w, kvc_seq *seq, uint64_t token, const uint32_t *index);

/* The vector of a token: K or V. */
void jw_vector(const struct jw *w, uint32_t layer, bool is_value, uint32_t head, uint64_t token,
	       float *to);

/* (layer, head, slot) shows the vectors of a token: as they are, if a row has them, else as the
 * codec gives them back. */
void jw_assert_vector(struct jw *w, kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		      uint64_t token);

/* All that can be seen of a sequence. */
struct jw_picture {
	uint64_t length, position;
	uint8_t digest[16];
	unsigned char *shown; /* vectors and slot planes of all layers */
	size_t shown_bytes;
	unsigned char *stored; /* whole blocks of all layers, region by region */
	size_t stored_bytes;
};

struct jw_picture jw_picture(struct jw *w, kvc_seq *seq);
void jw_picture_free(struct jw_picture *picture);

/* What is shown is equal. (What is stored behind the last slot may differ.) */
void jw_assert_picture(struct jw *w, kvc_seq *seq, const struct jw_picture *picture);

/* No byte of the blocks has changed but those of slots index[head][n] of the layer (NULL: none). */
void jw_assert_untouched(struct jw *w, kvc_seq *seq, const struct jw_picture *before,
			 uint32_t layer, uint64_t n, const uint32_t *index);

#endif
