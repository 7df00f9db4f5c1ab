/*
 * Identity of a layout: the canonical hash, and which field differs.
 *
 * The hash is BLAKE2b-256 over "kvc-layout-1", a zero byte, and then every field as {tag 1 byte,
 * length 4 bytes little-endian, bytes}: no field can run into the next one, an empty field is not
 * a missing one. Numbers are 4 bytes little-endian. Repeated fields are preceded by their count.
 */
#include <endian.h>
#include <sodium.h>
#include <string.h>

#include "proto/layout.h"

enum field {
	FIELD_FINGERPRINT = 1,
	FIELD_LAYERS = 2,
	FIELD_LAYER = 3,
	FIELD_DTYPE = 4,
	FIELD_K_FORMAT = 5,
	FIELD_V_FORMAT = 6,
	FIELD_BLOCK_TOKENS = 7,
	FIELD_OPAQUE_BYTES = 8,
	FIELD_PLANES = 9,
	FIELD_PLANE_NAME = 10,
	FIELD_PLANE = 11,
	FIELD_TAGS = 12,
	FIELD_TAG_KEY = 13,
	FIELD_TAG_VALUE = 14,
	FIELD_SALT = 15
};

static void put(crypto_generichash_state *state, enum field field, const void *bytes, size_t n)
{
	uint8_t tag = (uint8_t)field;
	uint32_t length = htole32((uint32_t)n);

	crypto_generichash_update(state, &tag, 1);
	crypto_generichash_update(state, (const uint8_t *)&length, sizeof(length));
	crypto_generichash_update(state, bytes, n);
}

static void put_u32(crypto_generichash_state *state, enum field field, uint32_t value)
{
	uint32_t le = htole32(value);

	put(state, field, &le, sizeof(le));
}

static void put_layers(crypto_generichash_state *state, const struct kv_layout *layout)
{
	put_u32(state, FIELD_LAYERS, layout->n_layers);
	for (uint32_t i = 0; i < layout->n_layers; i++) {
		const struct kv_layer *l = &layout->layers[i];
		uint32_t le[4] = {htole32(l->n_query_groups), htole32(l->k_width),
				  htole32(l->v_width), htole32(l->bound_slots)};

		put(state, FIELD_LAYER, le, sizeof(le));
	}
}

static void put_planes(crypto_generichash_state *state, const struct kv_layout *layout)
{
	put_u32(state, FIELD_PLANES, layout->n_planes);
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		const struct kv_plane *p = &layout->planes[i];
		uint32_t le[2] = {htole32(p->scope), htole32(p->bytes)};

		put(state, FIELD_PLANE_NAME, p->name, strlen(p->name));
		put(state, FIELD_PLANE, le, sizeof(le));
	}
}

static void put_tags(crypto_generichash_state *state, const struct kv_layout *layout)
{
	put_u32(state, FIELD_TAGS, layout->n_tags);
	for (uint32_t i = 0; i < layout->n_tags; i++) {
		put(state, FIELD_TAG_KEY, layout->tags[i].key, strlen(layout->tags[i].key));
		put(state, FIELD_TAG_VALUE, layout->tags[i].value, strlen(layout->tags[i].value));
	}
}

void kv_layout_hash(const struct kv_layout *layout, uint8_t hash[KV_HASH_BYTES])
{
	crypto_generichash_state state;

	crypto_generichash_init(&state, NULL, 0, KV_HASH_BYTES);
	crypto_generichash_update(&state, (const uint8_t *)"kvc-layout-1", sizeof("kvc-layout-1"));
	put(&state, FIELD_FINGERPRINT, layout->fingerprint, sizeof(layout->fingerprint));
	put_layers(&state, layout);
	put_u32(&state, FIELD_DTYPE, layout->dtype);
	put_u32(&state, FIELD_K_FORMAT, layout->k_format);
	put_u32(&state, FIELD_V_FORMAT, layout->v_format);
	put_u32(&state, FIELD_BLOCK_TOKENS, layout->block_tokens);
	put_u32(&state, FIELD_OPAQUE_BYTES, layout->opaque_bytes);
	put_planes(&state, layout);
	put_tags(&state, layout);
	put(&state, FIELD_SALT, layout->salt, layout->n_salt_bytes);
	crypto_generichash_final(&state, hash, KV_HASH_BYTES);
}

static int differ_u32(const char *field, uint32_t a, uint32_t b, struct errbuf *err)
{
	if (a == b)
		return 0;
	return errbuf_set(err, KV_ELAYOUT, "layout field %s differs: %u and %u", field, a, b);
}

static int differ_name(const char *field, const char *a, const char *b, struct errbuf *err)
{
	if (strcmp(a, b) == 0)
		return 0;
	return errbuf_set(err, KV_ELAYOUT, "layout field %s differs: %s and %s", field, a, b);
}

static int differ_layers(const struct kv_layout *a, const struct kv_layout *b, struct errbuf *err)
{
	if (differ_u32("layers (count)", a->n_layers, b->n_layers, err))
		return -1;
	for (uint32_t i = 0; i < a->n_layers; i++) {
		const struct kv_layer *x = &a->layers[i], *y = &b->layers[i];

		if (differ_u32("n_query_groups", x->n_query_groups, y->n_query_groups, err) ||
		    differ_u32("k_width", x->k_width, y->k_width, err) ||
		    differ_u32("v_width", x->v_width, y->v_width, err) ||
		    differ_u32("bound_slots", x->bound_slots, y->bound_slots, err)) {
			errbuf_wrap(err, "layer %u", i);
			return -1;
		}
	}
	return 0;
}

static int differ_planes(const struct kv_layout *a, const struct kv_layout *b, struct errbuf *err)
{
	if (differ_u32("planes (count)", a->n_planes, b->n_planes, err))
		return -1;
	for (uint32_t i = 0; i < a->n_planes; i++)
		if (differ_name("plane name", a->planes[i].name, b->planes[i].name, err) ||
		    differ_u32("plane scope", a->planes[i].scope, b->planes[i].scope, err) ||
		    differ_u32("plane bytes", a->planes[i].bytes, b->planes[i].bytes, err))
			return -1;
	return 0;
}

static int differ_tags(const struct kv_layout *a, const struct kv_layout *b, struct errbuf *err)
{
	if (differ_u32("tags (count)", a->n_tags, b->n_tags, err))
		return -1;
	for (uint32_t i = 0; i < a->n_tags; i++) {
		if (differ_name("tag key", a->tags[i].key, b->tags[i].key, err))
			return -1;
		if (strcmp(a->tags[i].value, b->tags[i].value) != 0)
			return errbuf_set(err, KV_ELAYOUT, "layout tag %s differs: %s and %s",
					  a->tags[i].key, a->tags[i].value, b->tags[i].value);
	}
	return 0;
}

int kv_layout_differs(const struct kv_layout *a, const struct kv_layout *b, struct errbuf *err)
{
	if (memcmp(a->fingerprint, b->fingerprint, sizeof(a->fingerprint)) != 0)
		return errbuf_set(err, KV_ELAYOUT,
				  "layout field fingerprint differs: %02x%02x%02x%02x... and "
				  "%02x%02x%02x%02x... (weights of another model)",
				  a->fingerprint[0], a->fingerprint[1], a->fingerprint[2],
				  a->fingerprint[3], b->fingerprint[0], b->fingerprint[1],
				  b->fingerprint[2], b->fingerprint[3]);
	if (differ_layers(a, b, err) ||
	    differ_name("dtype", kv_dtype_name(a->dtype), kv_dtype_name(b->dtype), err) ||
	    differ_name("k_format", kv_format_name(a->k_format), kv_format_name(b->k_format),
			err) ||
	    differ_name("v_format", kv_format_name(a->v_format), kv_format_name(b->v_format),
			err) ||
	    differ_u32("block_tokens", a->block_tokens, b->block_tokens, err) ||
	    differ_u32("opaque_bytes", a->opaque_bytes, b->opaque_bytes, err) ||
	    differ_planes(a, b, err) || differ_tags(a, b, err))
		return -1;
	if (a->n_salt_bytes != b->n_salt_bytes || memcmp(a->salt, b->salt, a->n_salt_bytes) != 0)
		return errbuf_set(err, KV_ELAYOUT, "layout field salt differs (not shown)");
	return 0;
}
