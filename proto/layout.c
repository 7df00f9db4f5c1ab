#include "proto/layout.h"

#include <stdlib.h>
#include <string.h>

#include "proto/shm.h"

#define HUGE_BYTES (UINT64_C(2) << 20)

static int check_range(const char *field, uint32_t value, uint32_t least, uint32_t most,
		       struct errbuf *err)
{
	if (value >= least && value <= most)
		return 0;
	return errbuf_set(err, value > most ? KV_ETOOBIG : KV_EINVAL,
			  "layout field %s is %u; it must be %u to %u", field, value, least, most);
}

static int check_format(const char *field, uint32_t format, struct errbuf *err)
{
	if (check_range(field, format, KV_FORMAT_RAW, KV_FORMAT_MAX, err))
		return -1;
	if (format == KV_FORMAT_RAW)
		return 0;
	return errbuf_set(err, KV_EUNSUPPORTED,
			  "layout field %s: format %s is not stored by this version; use raw",
			  field, kv_format_name(format));
}

static int check_layer(const struct kv_layout *layout, uint32_t i, struct errbuf *err)
{
	const struct kv_layer *layer = &layout->layers[i];
	uint64_t widest = layer->k_width > layer->v_width ? layer->k_width : layer->v_width;
	uint64_t piece = widest * layer->n_query_groups * kv_dtype_bytes(layout->dtype) *
			 layout->block_tokens;

	if (check_range("n_query_groups", layer->n_query_groups, 1, KV_HEADS_MAX, err) ||
	    check_range("k_width", layer->k_width, 1, KV_WIDTH_MAX, err) ||
	    check_range("v_width", layer->v_width, 0, KV_WIDTH_MAX, err)) {
		errbuf_wrap(err, "layer %u", i);
		return -1;
	}
	if (piece > KV_PIECE_BYTES_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "layer %u: a piece of %u tokens has %llu bytes, the limit is %u; "
				  "use a smaller block_tokens",
				  i, layout->block_tokens, (unsigned long long)piece,
				  KV_PIECE_BYTES_MAX);
	return 0;
}

static int check_opaque(const struct kv_layout *layout, struct errbuf *err)
{
	if (check_range("opaque_bytes", layout->opaque_bytes, 1, KV_OPAQUE_BYTES_MAX, err))
		return -1;
	if (layout->n_layers != 0)
		return errbuf_set(err, KV_EINVAL,
				  "layout field layers: an opaque layout has none, not %u",
				  layout->n_layers);
	if (layout->block_tokens != 1)
		return errbuf_set(err, KV_EINVAL,
				  "layout field block_tokens is %u; an opaque layout has 1",
				  layout->block_tokens);
	return 0;
}

static int compare_tags(const void *a, const void *b)
{
	return strcmp(((const struct kv_tag *)a)->key, ((const struct kv_tag *)b)->key);
}

static int check_tags(struct kv_layout *layout, struct errbuf *err)
{
	if (check_range("tags (count)", layout->n_tags, 0, KV_TAGS_MAX, err))
		return -1;
	if (layout->n_tags)
		qsort(layout->tags, layout->n_tags, sizeof(layout->tags[0]), compare_tags);
	for (uint32_t i = 0; i < layout->n_tags; i++) {
		if (!layout->tags[i].key[0])
			return errbuf_set(err, KV_EINVAL, "layout field tags: a key is empty");
		if (i && strcmp(layout->tags[i - 1].key, layout->tags[i].key) == 0)
			return errbuf_set(err, KV_EINVAL,
					  "layout field tags: key %s is there twice",
					  layout->tags[i].key);
	}
	return 0;
}

static int check_planes(const struct kv_layout *layout, struct errbuf *err)
{
	if (check_range("planes (count)", layout->n_planes, 0, KV_PLANES_MAX, err))
		return -1;
	if (layout->n_planes)
		return errbuf_set(err, KV_EUNSUPPORTED,
				  "layout field planes: plane \"%s\" is not stored by this version",
				  layout->planes[0].name);
	return 0;
}

static int check_fingerprint(const struct kv_layout *layout, struct errbuf *err)
{
	static const uint8_t none[KV_FINGERPRINT_BYTES];

	if (memcmp(layout->fingerprint, none, sizeof(none)) == 0)
		return errbuf_set(
			err, KV_EINVAL,
			"layout field fingerprint is missing (all zero); give the hash of the "
			"weights");
	return 0;
}

int kv_layout_check(struct kv_layout *layout, struct errbuf *err)
{
	if (check_fingerprint(layout, err) ||
	    check_range("block_tokens", layout->block_tokens, 1, KV_BLOCK_TOKENS_MAX, err) ||
	    check_range("salt (bytes)", layout->n_salt_bytes, 0, KV_SALT_BYTES_MAX, err))
		return -1;
	if (layout->opaque_bytes || layout->n_layers == 0) {
		if (check_opaque(layout, err))
			return -1;
	} else {
		if (check_range("layers (count)", layout->n_layers, 1, KV_LAYERS_MAX, err) ||
		    check_range("dtype", layout->dtype, KV_DTYPE_F32, KV_DTYPE_BF16, err))
			return -1;
		for (uint32_t i = 0; i < layout->n_layers; i++)
			if (check_layer(layout, i, err))
				return -1;
		if (check_format("k_format", layout->k_format, err) ||
		    check_format("v_format", layout->v_format, err))
			return -1;
	}
	return check_tags(layout, err) || check_planes(layout, err) ? -1 : 0;
}

/* Group of a bound, made if it is new; -1 when there are too many. */
static int group_of(struct kv_layout *layout, uint32_t bound)
{
	for (uint32_t g = 0; g < layout->n_groups; g++)
		if (layout->groups[g].bound_slots == bound)
			return (int)g;
	if (layout->n_groups == KV_GROUPS_MAX)
		return -1;
	layout->groups[layout->n_groups] = (struct kv_group){.bound_slots = bound};
	return (int)layout->n_groups++;
}

static void add_region(struct kv_layout *layout, struct kv_group *group, uint32_t layer,
		       uint32_t is_value, uint32_t row_bytes)
{
	struct kv_region *region = &layout->regions[layout->n_regions++];

	*region = (struct kv_region){
		.layer = layer,
		.is_value = is_value,
		.row_bytes = row_bytes,
		.piece_bytes = row_bytes * layout->block_tokens,
	};
	group->n_regions++;
	group->block_bytes += region->piece_bytes;
}

static void add_group_regions(struct kv_layout *layout, uint32_t g)
{
	struct kv_group *group = &layout->groups[g];
	uint32_t element = kv_dtype_bytes(layout->dtype);

	group->first_region = layout->n_regions;
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		const struct kv_layer *layer = &layout->layers[i];

		if (layout->layer_group[i] != g)
			continue;
		group->n_layers++;
		layout->layer_region[i] = layout->n_regions;
		add_region(layout, group, i, 0, layer->n_query_groups * layer->k_width * element);
		if (layer->v_width)
			add_region(layout, group, i, 1,
				   layer->n_query_groups * layer->v_width * element);
	}
}

/* An opaque layout is one group of one layer that has K only. */
static void derive_opaque(struct kv_layout *layout)
{
	layout->groups[0] = (struct kv_group){.n_layers = 1};
	layout->n_groups = 1;
	layout->layer_group[0] = 0;
	layout->layer_region[0] = 0;
	add_region(layout, &layout->groups[0], 0, 0, layout->opaque_bytes);
}

int kv_layout_derive(struct kv_layout *layout, struct errbuf *err)
{
	uint32_t n = layout->n_layers ? layout->n_layers : 1;

	layout->n_groups = 0;
	layout->n_regions = 0;
	layout->max_slots = UINT64_MAX;
	layout->layer_group = calloc(n, sizeof(layout->layer_group[0]));
	layout->layer_region = calloc(n, sizeof(layout->layer_region[0]));
	layout->regions = calloc((size_t)n * 2, sizeof(layout->regions[0]));
	if (!layout->layer_group || !layout->layer_region || !layout->regions)
		return errbuf_set(err, KV_ENOMEM, "no memory for a layout of %u layers", n);
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		uint32_t bound = layout->layers[i].bound_slots;
		int g = group_of(layout, bound);

		if (g < 0)
			return errbuf_set(
				err, KV_ETOOBIG,
				"layout field bound_slots has more than %u different values",
				KV_GROUPS_MAX);
		layout->layer_group[i] = (uint32_t)g;
		if (bound && bound < layout->max_slots)
			layout->max_slots = bound;
	}
	for (uint32_t g = 0; g < layout->n_groups; g++)
		add_group_regions(layout, g);
	if (layout->opaque_bytes)
		derive_opaque(layout);
	kv_layout_hash(layout, layout->hash);
	return 0;
}

static void *copy_array(const void *from, size_t n, size_t size)
{
	void *to = calloc(n ? n : 1, size);

	if (to && n)
		memcpy(to, from, n * size);
	return to;
}

struct kv_layout *kv_layout_copy(const struct kv_layout *layout)
{
	struct kv_layout *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	*copy = *layout;
	copy->regions = NULL;
	copy->layer_group = NULL;
	copy->layer_region = NULL;
	copy->layers = copy_array(layout->layers, layout->n_layers, sizeof(copy->layers[0]));
	copy->planes = copy_array(layout->planes, layout->n_planes, sizeof(copy->planes[0]));
	copy->tags = copy_array(layout->tags, layout->n_tags, sizeof(copy->tags[0]));
	if (!copy->layers || !copy->planes || !copy->tags || kv_layout_derive(copy, NULL)) {
		kv_layout_free(copy);
		return NULL;
	}
	return copy;
}

void kv_layout_free(struct kv_layout *layout)
{
	if (!layout)
		return;
	free(layout->layers);
	free(layout->planes);
	free(layout->tags);
	free(layout->regions);
	free(layout->layer_group);
	free(layout->layer_region);
	free(layout);
}

uint64_t kv_layout_arena(const struct kv_layout *layout, uint32_t group, uint32_t n_blocks,
			 uint64_t *region_off)
{
	const struct kv_group *g = &layout->groups[group];
	uint64_t total = 0;

	for (uint32_t r = 0; r < g->n_regions; r++) {
		uint64_t bytes = (uint64_t)layout->regions[g->first_region + r].piece_bytes *
				 n_blocks;
		uint64_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : KV_SHM_PAGE;

		total = (total + align - 1) & ~(align - 1);
		region_off[r] = total;
		if (bytes > (UINT64_C(1) << 46) || (total += bytes) > (UINT64_C(1) << 46))
			return 0;
	}
	return (total + KV_SHM_PAGE - 1) & ~(uint64_t)(KV_SHM_PAGE - 1);
}

uint64_t kv_layout_token_bytes(const struct kv_layout *layout)
{
	uint64_t bytes = 0;

	for (uint32_t r = 0; r < layout->n_regions; r++)
		bytes += layout->regions[r].row_bytes;
	return bytes;
}
