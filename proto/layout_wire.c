#include "proto/layout_wire.h"

#include <stdlib.h>
#include <string.h>

static int check_counts(const Kv__Wire__Layout *wire, struct errbuf *err)
{
	if (wire->fingerprint.len != KV_FINGERPRINT_BYTES)
		return errbuf_set(err, KV_EINVAL, "layout field fingerprint has %zu bytes, not %d",
				  wire->fingerprint.len, KV_FINGERPRINT_BYTES);
	if (wire->n_layers > KV_LAYERS_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "layout field layers (count) is %zu, the limit is %u",
				  wire->n_layers, KV_LAYERS_MAX);
	if (wire->n_planes > KV_PLANES_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "layout field planes (count) is %zu, the limit is %u",
				  wire->n_planes, KV_PLANES_MAX);
	if (wire->n_tags > KV_TAGS_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "layout field tags (count) is %zu, the limit is %u", wire->n_tags,
				  KV_TAGS_MAX);
	if (wire->salt.len > KV_SALT_BYTES_MAX)
		return errbuf_set(err, KV_ETOOBIG,
				  "layout field salt has %zu bytes, the limit is %u",
				  wire->salt.len, KV_SALT_BYTES_MAX);
	return 0;
}

static int copy_string(char out[KV_TAG_BYTES_MAX + 1], const char *from, const char *field,
		       struct errbuf *err)
{
	size_t n = strlen(from);

	if (n > KV_TAG_BYTES_MAX)
		return errbuf_set(err, KV_ETOOBIG, "layout field %s has %zu bytes, the limit is %u",
				  field, n, KV_TAG_BYTES_MAX);
	memcpy(out, from, n + 1);
	return 0;
}

static int fill_arrays(struct kv_layout *layout, const Kv__Wire__Layout *wire, struct errbuf *err)
{
	for (size_t i = 0; i < wire->n_layers; i++)
		layout->layers[i] = (struct kv_layer){
			.n_query_groups = wire->layers[i]->n_query_groups,
			.k_width = wire->layers[i]->k_width,
			.v_width = wire->layers[i]->v_width,
			.bound_slots = wire->layers[i]->bound_slots,
		};
	for (size_t i = 0; i < wire->n_planes; i++) {
		layout->planes[i].scope = wire->planes[i]->scope;
		layout->planes[i].bytes = wire->planes[i]->bytes;
		if (copy_string(layout->planes[i].name, wire->planes[i]->name, "plane name", err))
			return -1;
	}
	for (size_t i = 0; i < wire->n_tags; i++)
		if (copy_string(layout->tags[i].key, wire->tags[i]->key, "tag key", err) ||
		    copy_string(layout->tags[i].value, wire->tags[i]->value, "tag value", err))
			return -1;
	return 0;
}

static int fill(struct kv_layout *layout, const Kv__Wire__Layout *wire, struct errbuf *err)
{
	layout->n_layers = (uint32_t)wire->n_layers;
	layout->n_planes = (uint32_t)wire->n_planes;
	layout->n_tags = (uint32_t)wire->n_tags;
	layout->layers = calloc(wire->n_layers + 1, sizeof(layout->layers[0]));
	layout->planes = calloc(wire->n_planes + 1, sizeof(layout->planes[0]));
	layout->tags = calloc(wire->n_tags + 1, sizeof(layout->tags[0]));
	if (!layout->layers || !layout->planes || !layout->tags)
		return errbuf_set(err, KV_ENOMEM, "no memory for a layout");
	memcpy(layout->fingerprint, wire->fingerprint.data, sizeof(layout->fingerprint));
	layout->dtype = wire->dtype;
	layout->k_format = wire->k_format;
	layout->v_format = wire->v_format;
	layout->block_tokens = wire->block_tokens;
	layout->opaque_bytes = wire->opaque_bytes;
	layout->n_salt_bytes = (uint32_t)wire->salt.len;
	if (wire->salt.len)
		memcpy(layout->salt, wire->salt.data, wire->salt.len);
	return fill_arrays(layout, wire, err);
}

struct kv_layout *kv_layout_from_wire(const Kv__Wire__Layout *wire, struct errbuf *err)
{
	struct kv_layout *layout;

	if (check_counts(wire, err))
		return NULL;
	layout = calloc(1, sizeof(*layout));
	if (!layout) {
		errbuf_set(err, KV_ENOMEM, "no memory for a layout");
		return NULL;
	}
	if (fill(layout, wire, err) || kv_layout_check(layout, err) ||
	    kv_layout_derive(layout, err)) {
		kv_layout_free(layout);
		return NULL;
	}
	return layout;
}

/* One allocation: the message, its pointer arrays and its parts. */
struct wire_layout {
	Kv__Wire__Layout message;
	Kv__Wire__Layer *layer_at[KV_LAYERS_MAX];
	Kv__Wire__Plane *plane_at[KV_PLANES_MAX];
	Kv__Wire__Tag *tag_at[KV_TAGS_MAX];
	Kv__Wire__Layer layers[KV_LAYERS_MAX];
	Kv__Wire__Plane planes[KV_PLANES_MAX];
	Kv__Wire__Tag tags[KV_TAGS_MAX];
};

static void point_at_parts(struct wire_layout *w, const struct kv_layout *layout)
{
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		kv__wire__layer__init(&w->layers[i]);
		w->layers[i].n_query_groups = layout->layers[i].n_query_groups;
		w->layers[i].k_width = layout->layers[i].k_width;
		w->layers[i].v_width = layout->layers[i].v_width;
		w->layers[i].bound_slots = layout->layers[i].bound_slots;
		w->layer_at[i] = &w->layers[i];
	}
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		kv__wire__plane__init(&w->planes[i]);
		w->planes[i].name = layout->planes[i].name;
		w->planes[i].scope = layout->planes[i].scope;
		w->planes[i].bytes = layout->planes[i].bytes;
		w->plane_at[i] = &w->planes[i];
	}
	for (uint32_t i = 0; i < layout->n_tags; i++) {
		kv__wire__tag__init(&w->tags[i]);
		w->tags[i].key = layout->tags[i].key;
		w->tags[i].value = layout->tags[i].value;
		w->tag_at[i] = &w->tags[i];
	}
}

Kv__Wire__Layout *kv_layout_to_wire(const struct kv_layout *layout)
{
	struct wire_layout *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	kv__wire__layout__init(&w->message);
	point_at_parts(w, layout);
	w->message.fingerprint.len = sizeof(layout->fingerprint);
	w->message.fingerprint.data = (uint8_t *)layout->fingerprint;
	w->message.n_layers = layout->n_layers;
	w->message.layers = w->layer_at;
	w->message.dtype = layout->dtype;
	w->message.k_format = layout->k_format;
	w->message.v_format = layout->v_format;
	w->message.block_tokens = layout->block_tokens;
	w->message.opaque_bytes = layout->opaque_bytes;
	w->message.n_planes = layout->n_planes;
	w->message.planes = w->plane_at;
	w->message.n_tags = layout->n_tags;
	w->message.tags = w->tag_at;
	w->message.salt.len = layout->n_salt_bytes;
	w->message.salt.data = (uint8_t *)layout->salt;
	return &w->message;
}

void kv_layout_wire_free(Kv__Wire__Layout *wire)
{
	free(wire);
}
