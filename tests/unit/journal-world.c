#include "tests/unit/journal-world.h"

#include <stdlib.h>
#include <string.h>

#include "client/journal.h"
#include "tests/support/runner.h"

#define ROWS_BYTES (1u << 20)

/* ---- world -------------------------------------------------------------------------------- */

static void add_plane(struct kv_layout *layout, const char *name, uint32_t scope, uint32_t bytes)
{
	struct kv_plane *plane = &layout->planes[layout->n_planes++];

	strcpy(plane->name, name);
	plane->scope = scope;
	plane->bytes = bytes;
}

struct jw *jw_new_with(const struct jw_shape *shape, const struct kvc_plane *planes, int n_planes)
{
	struct kv_layout *layout = calloc(1, sizeof(*layout));
	struct jw *w = calloc(1, sizeof(*w));
	struct errbuf err = {0};

	w->shape = *shape;
	layout->fingerprint[0] = 1;
	layout->n_layers = shape->n_layers;
	layout->layers = calloc(shape->n_layers, sizeof(layout->layers[0]));
	memcpy(layout->layers, shape->layers, shape->n_layers * sizeof(layout->layers[0]));
	layout->dtype = shape->dtype ? shape->dtype : KV_DTYPE_F32;
	layout->k_format = shape->k_format;
	layout->v_format = shape->v_format;
	layout->block_tokens = shape->block_tokens;
	layout->planes = calloc(KV_PLANES_MAX, sizeof(layout->planes[0]));
	if (shape->has_positions)
		add_plane(layout, "position", KV_PLANE_SLOT, 4);
	if (shape->state_bytes)
		add_plane(layout, "state", KV_PLANE_SEQUENCE, shape->state_bytes);
	for (int i = 0; i < n_planes; i++)
		add_plane(layout, planes[i].name, planes[i].scope, planes[i].bytes);
	if (kv_layout_check(layout, &err))
		fail_msg("layout: %s", err.text);
	w->bare = bare_new(kv_layout_copy(layout));
	kv_layout_free(layout);
	w->layout = w->bare->layout.fields;
	w->writer = bare_writer(w->bare, 1);
	return w;
}

struct jw *jw_new(const struct jw_shape *shape)
{
	return jw_new_with(shape, NULL, 0);
}

void jw_free(struct jw *w)
{
	while (w->writer->seqs)
		jw_drop(w, w->writer->seqs);
	bare_take_back(w->bare, w->writer, true);
	assert_int_equal(bare_n_used(w->bare), 0);
	writer_free(w->writer);
	bare_free(w->bare);
	free(w);
}

kvc_seq *jw_seq(struct jw *w)
{
	return bare_seq(w->bare, w->writer, JW_TOKENS, NULL);
}

kvc_seq *jw_fork(struct jw *w, kvc_seq *seq)
{
	kvc_seq *fork;

	bare_spare_places(w->bare, w->writer, JW_TOKENS, 1);
	assert_int_equal(bare_reserve(w->bare, seq, 0), 0);
	fork = kvc_fork_local(seq, 0);
	jw_ok(fork ? 0 : -1);
	return fork;
}

kvc_seq *jw_snapshot(struct jw *w, kvc_seq *seq)
{
	kvc_seq *snapshot;

	bare_spare_places(w->bare, w->writer, JW_TOKENS, 1);
	snapshot = kvc_snapshot_local(seq);
	jw_ok(snapshot ? 0 : -1);
	return snapshot;
}

void jw_drop(struct jw *w, kvc_seq *seq)
{
	bool local = seq->seq_id == 0;

	if (!local)
		segment_place(&w->bare->segment, seq->place)->seq_id = 0;
	seq_end(seq, local ? SEQ_END_LOCAL : SEQ_END_DROPPED);
}

/* ---- calls -------------------------------------------------------------------------------- */

void jw_ok(int64_t rc)
{
	if (rc < 0)
		fail_msg("%s: %s", kvc_status_name(kvc_error()), kvc_error_text());
}

void jw_fails(int64_t rc, int status, const char *text)
{
	if (rc >= 0)
		fail_msg("went well, expected was %s", kvc_status_name(status));
	if (kvc_error() != status || !strstr(kvc_error_text(), text))
		fail_msg("%s: \"%s\"; expected was %s and \"%s\"", kvc_status_name(kvc_error()),
			 kvc_error_text(), kvc_status_name(status), text);
}

void jw_reserve(struct jw *w, kvc_seq *seq, uint64_t n_tokens, uint64_t n_rows)
{
	assert_int_equal(bare_reserve(w->bare, seq, n_tokens), 0);
	if (kv_head_mode(seq->head.state) != KV_JOURNAL_NONE)
		assert_int_equal(bare_reserve_scatter(w->bare, seq, 1, n_rows, 16), 0);
}

void jw_journal(struct jw *w, kvc_seq *seq, enum kvc_journal_mode mode)
{
	const struct kvc_journal_options options = {.size = sizeof(options), .mode = mode};

	(void)w;
	jw_ok(kvc_journal_set(seq, &options));
}

void jw_mark(struct jw *w, kvc_seq *seq, kvc_mark *mark)
{
	jw_reserve(w, seq, 1, 1);
	jw_ok(kvc_mark_set(seq, mark));
}

/* ---- tokens ------------------------------------------------------------------------------- */

void jw_vector(const struct jw *w, uint32_t layer, bool is_value, uint32_t head, uint64_t token,
	       float *to)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	uint64_t x = token * 1000003 + layer * 10007 + head * 101 + is_value + 1;

	for (uint32_t i = 0; i < (is_value ? l->v_width : l->k_width); i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		to[i] = 3.0f + (float)(int32_t)(x >> 40 & 0xffff) / 4096.0f; /* far from zero */
	}
}

/* Vectors of n tokens, [n][head][width]. */
static void fill(const struct jw *w, uint32_t layer, bool is_value, uint64_t first, uint64_t n,
		 float *to)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	uint32_t width = is_value ? l->v_width : l->k_width;

	assert_true(n * l->n_query_groups * width * sizeof(float) <= ROWS_BYTES);
	for (uint64_t i = 0; i < n; i++)
		for (uint32_t h = 0; h < l->n_query_groups; h++)
			jw_vector(w, layer, is_value, h, first + i,
				  to + (i * l->n_query_groups + h) * width);
}

static float k_rows[ROWS_BYTES / sizeof(float)], v_rows[ROWS_BYTES / sizeof(float)];
static uint32_t positions[1 << 14];

static void fill_positions(const struct jw *w, uint32_t layer, uint64_t first, uint64_t n)
{
	uint32_t n_heads = w->layout->layers[layer].n_query_groups;

	assert_true(n * n_heads <= sizeof(positions) / sizeof(positions[0]));
	for (uint64_t i = 0; i < n * n_heads; i++)
		positions[i] = (uint32_t)(first + i / n_heads);
}

void jw_append(struct jw *w, kvc_seq *seq, uint64_t first, uint64_t n)
{
	jw_reserve(w, seq, n, n);
	jw_ok(kvc_append_begin(seq, n));
	for (uint32_t l = 0; l < w->layout->n_layers; l++) {
		fill(w, l, false, first, n, k_rows);
		fill(w, l, true, first, n, v_rows);
		jw_ok(kvc_write(seq, l, k_rows, w->layout->layers[l].v_width ? v_rows : NULL));
		fill_positions(w, l, first, n);
		if (w->shape.has_positions)
			jw_ok(kvc_write_planes(seq, l, 0, n, (const void *[]){positions}));
	}
	jw_ok(kvc_commit(w->writer, &seq, 1));
}

static void call_scatter(struct jw *w, kvc_seq *seq, uint32_t layer, uint64_t n,
			 const uint32_t *index, uint64_t first)
{
	fill(w, layer, false, first, n, k_rows);
	fill(w, layer, true, first, n, v_rows);
	fill_positions(w, layer, first, n);
	jw_ok(kvc_scatter(seq, layer, n, index, 0, k_rows, v_rows,
			  w->shape.has_positions ? (const void *[]){positions} : NULL));
	jw_ok(kvc_commit(w->writer, &seq, 1));
}

void jw_scatter(struct jw *w, kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index,
		uint64_t first)
{
	jw_reserve(w, seq, 1, n * w->layout->layers[layer].n_query_groups);
	jw_ok(kvc_update_begin(seq, 0, 0));
	call_scatter(w, seq, layer, n, index, first);
}

void jw_append_scattered(struct jw *w, kvc_seq *seq, uint64_t token, const uint32_t *index)
{
	jw_reserve(w, seq, 1, w->layout->n_heads);
	jw_ok(kvc_update_begin(seq, 1, KVC_UPDATE_SCATTER));
	call_scatter(w, seq, 0, 1, index, token);
}

/* ---- what is there -------------------------------------------------------------------------- */

static void as_read(const struct kv_codec *codec, float *vector)
{
	unsigned char codes[1024], scale[256], zero[8];
	struct kv_codec_at at = {.codes = codes, .scale = scale, .zero = zero};

	assert_int_equal(kv_quantise(codec, 1, vector, codec->width * sizeof(float), &at), 1);
	kv_dequantise(codec, 1, &at, vector, codec->width * sizeof(float));
}

void jw_assert_vector(struct jw *w, kvc_seq *seq, uint32_t layer, uint32_t head, uint64_t slot,
		      uint64_t token)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	bool is_row = seq->head.journal_first != seq->head.journal_end &&
		      kv_head_mode(seq->head.state) == KV_JOURNAL_REPLAY &&
		      journal_find(seq, layer, head, slot, seq->head.journal_end) != UINT64_MAX;
	float want[256];

	jw_ok(kvc_read(seq, layer, slot, 1, k_rows, v_rows));
	for (uint32_t v = 0; v < 2; v++) {
		uint32_t width = v ? l->v_width : l->k_width;

		jw_vector(w, layer, v, head, token, want);
		if (!is_row)
			as_read(&w->bare->layout.codecs[2 * layer + v], want);
		assert_memory_equal((v ? v_rows : k_rows) + head * width, want,
				    width * sizeof(float));
	}
}

static size_t shown_bytes(const struct jw *w, kvc_seq *seq)
{
	size_t n = 0;

	for (uint32_t l = 0; l < w->layout->n_layers; l++)
		n += kvc_slots(seq, l) * w->layout->layers[l].n_query_groups *
		     ((w->layout->layers[l].k_width + w->layout->layers[l].v_width) *
			      sizeof(float) +
		      4);
	return n;
}

static void take_shown(struct jw *w, kvc_seq *seq, unsigned char *to)
{
	for (uint32_t l = 0; l < w->layout->n_layers; l++) {
		const struct kv_layer *layer = &w->layout->layers[l];
		size_t n = kvc_slots(seq, l) * layer->n_query_groups;
		unsigned char *v = to + n * layer->k_width * sizeof(float);
		unsigned char *planes = v + n * layer->v_width * sizeof(float);

		jw_ok(kvc_read(seq, l, 0, kvc_slots(seq, l), to, layer->v_width ? v : NULL));
		if (w->shape.has_positions)
			jw_ok(kvc_read_plane(seq, "position", l, 0, kvc_slots(seq, l), planes));
		to = planes + n * 4;
	}
}

static size_t stored_bytes(const struct jw *w, const kvc_seq *seq)
{
	size_t n = 0;

	for (uint32_t g = 0; g < w->layout->n_layer_groups; g++)
		n += seq->groups[g].end_block * w->layout->groups[g].block_bytes;
	return n;
}

static void take_stored(const struct jw *w, const kvc_seq *seq, unsigned char *to)
{
	for (uint32_t r = 0; r < w->layout->groups[w->layout->journal_group].first_region; r++) {
		const struct kv_region *region = &w->layout->regions[r];
		const struct seq_group *g =
			&seq->groups[w->layout->layer_maps[region->layer].group];

		for (uint64_t b = 0; b < g->end_block; b++, to += region->piece_bytes)
			memcpy(to, seq_piece(seq, r, g->mirror[b]), region->piece_bytes);
	}
}

struct jw_picture jw_picture(struct jw *w, kvc_seq *seq)
{
	struct jw_picture p = {.length = kvc_length(seq), .position = kvc_position(seq)};

	jw_ok(kvc_digest(seq, p.digest));
	p.shown_bytes = shown_bytes(w, seq);
	p.shown = calloc(1, p.shown_bytes + 1);
	take_shown(w, seq, p.shown);
	p.stored_bytes = stored_bytes(w, seq);
	p.stored = calloc(1, p.stored_bytes + 1);
	take_stored(w, seq, p.stored);
	return p;
}

void jw_picture_free(struct jw_picture *picture)
{
	free(picture->shown);
	free(picture->stored);
}

void jw_assert_picture(struct jw *w, kvc_seq *seq, const struct jw_picture *picture)
{
	struct jw_picture now = jw_picture(w, seq);

	assert_int_equal(now.length, picture->length);
	assert_int_equal(now.position, picture->position);
	assert_int_equal(now.shown_bytes, picture->shown_bytes);
	assert_memory_equal(now.shown, picture->shown, now.shown_bytes);
	assert_memory_equal(now.digest, picture->digest, sizeof(now.digest));
	jw_picture_free(&now);
}

static bool is_named(const struct jw *w, uint32_t layer, uint32_t head, uint64_t slot, uint64_t n,
		     const uint32_t *index)
{
	(void)w;
	(void)layer;
	for (uint64_t i = 0; index && i < n; i++)
		if (index[head * n + i] == slot)
			return true;
	return false;
}

void jw_assert_untouched(struct jw *w, kvc_seq *seq, const struct jw_picture *before,
			 uint32_t layer, uint64_t n, const uint32_t *index)
{
	struct jw_picture now = jw_picture(w, seq);
	const unsigned char *a = before->stored, *b = now.stored;

	assert_int_equal(now.stored_bytes, before->stored_bytes);
	for (uint32_t r = 0; r < w->layout->groups[w->layout->journal_group].first_region; r++) {
		const struct kv_region *region = &w->layout->regions[r];
		uint32_t n_heads = w->layout->layers[region->layer].n_query_groups;
		uint64_t n_slots =
			seq->groups[w->layout->layer_maps[region->layer].group].end_block *
			w->layout->block_tokens;

		for (uint64_t s = 0; s < n_slots; s++)
			for (uint32_t h = 0; h < n_heads; h++) {
				if (region->layer != layer || !is_named(w, layer, h, s, n, index))
					assert_memory_equal(a, b, region->vector_bytes);
				a += region->vector_bytes;
				b += region->vector_bytes;
			}
	}
	jw_picture_free(&now);
}
