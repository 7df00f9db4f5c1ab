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

static int check_format(const struct kv_layout *layout, const char *field, uint32_t format,
			uint32_t width, struct kv_format_bytes *bytes, struct errbuf *err)
{
	if (check_range(field, format, KV_FORMAT_RAW, KV_FORMAT_MAX, err))
		return -1;
	if (kv_format_bytes(format, layout->dtype, width, bytes, err) == 0)
		return 0;
	errbuf_wrap(err, "layout field %s", field);
	return -1;
}

static int check_layer(const struct kv_layout *layout, uint32_t i, struct errbuf *err)
{
	const struct kv_layer *layer = &layout->layers[i];
	uint64_t widest = layer->k_width > layer->v_width ? layer->k_width : layer->v_width;
	uint64_t piece = widest * layer->n_query_groups * kv_dtype_bytes(layout->dtype) *
			 layout->block_tokens;
	struct kv_format_bytes bytes;

	if (check_range("n_query_groups", layer->n_query_groups, 1, KV_HEADS_MAX, err) ||
	    check_range("k_width", layer->k_width, 1, KV_WIDTH_MAX, err) ||
	    check_range("v_width", layer->v_width, 0, KV_WIDTH_MAX, err) ||
	    check_format(layout, "k_format", layout->k_format, layer->k_width, &bytes, err) ||
	    check_format(layout, "v_format", layout->v_format, layer->v_width, &bytes, err)) {
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

static int check_plane(const struct kv_layout *layout, uint32_t i, struct errbuf *err)
{
	const struct kv_plane *plane = &layout->planes[i];
	bool is_slot = plane->scope == KV_PLANE_SLOT;

	if (!plane->name[0])
		return errbuf_set(err, KV_EINVAL, "its name is empty");
	for (uint32_t k = 0; k < i; k++)
		if (strcmp(layout->planes[k].name, plane->name) == 0)
			return errbuf_set(err, KV_EINVAL, "the name is there twice");
	if (check_range("scope", plane->scope, KV_PLANE_SLOT, KV_PLANE_SEQUENCE, err))
		return -1;
	if (check_range("bytes", plane->bytes, 1,
			is_slot ? KV_SLOT_PLANE_BYTES_MAX : KV_SEQUENCE_PLANE_BYTES_MAX, err))
		return -1;
	for (uint32_t l = 0; is_slot && l < layout->n_layers; l++) {
		uint64_t piece = (uint64_t)plane->bytes * layout->layers[l].n_query_groups *
				 layout->block_tokens;

		if (piece > KV_PIECE_BYTES_MAX)
			return errbuf_set(err, KV_ETOOBIG,
					  "a piece of %u tokens of layer %u has %llu bytes, the "
					  "limit is %u; use a smaller block_tokens",
					  layout->block_tokens, l, (unsigned long long)piece,
					  KV_PIECE_BYTES_MAX);
	}
	return 0;
}

static int check_planes(const struct kv_layout *layout, struct errbuf *err)
{
	if (check_range("planes (count)", layout->n_planes, 0, KV_PLANES_MAX, err))
		return -1;
	if (layout->n_planes && layout->opaque_bytes)
		return errbuf_set(err, KV_EINVAL,
				  "layout field planes: an opaque layout has none, not %u",
				  layout->n_planes);
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		if (check_plane(layout, i, err)) {
			errbuf_wrap(err, "layout field planes, plane \"%s\"",
				    layout->planes[i].name);
			return -1;
		}
	}
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
	}
	return check_tags(layout, err) || check_planes(layout, err) ? -1 : 0;
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
	copy->layer_maps = NULL;
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
	free(layout->layer_maps);
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

int kv_layout_find_plane(const struct kv_layout *layout, enum kv_plane_scope scope,
			 const char *name)
{
	for (uint32_t i = 0; name && i < layout->n_planes; i++)
		if (layout->planes[i].scope == scope && strcmp(layout->planes[i].name, name) == 0)
			return (int)i;
	return -1;
}

uint64_t kv_layout_token_bytes(const struct kv_layout *layout)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		for (uint32_t r = 0; r < layout->groups[g].n_regions; r++)
			bytes += layout->regions[layout->groups[g].first_region + r].row_bytes;
	return bytes;
}
