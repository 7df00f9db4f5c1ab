/* What vectors and planes hold. A value is made once, and never changes. */
#include <stdlib.h>
#include <string.h>

#include "tests/model/mc.h"

static uint64_t mix(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0x7fb5d329728ea185);
	x ^= x >> 27;
	x *= UINT64_C(0x81dadef4bc2dd44d);
	return x ^ x >> 33;
}

uint32_t mc_number(struct mc_world *w)
{
	return ++w->n_numbers;
}

/* ---- vectors ------------------------------------------------------------------------------ */

/* Shape of a dtype: bits of the mantissa, the exponent of 1.0. */
struct float_bits {
	uint32_t mantissa, one, most;
};

static struct float_bits bits_of(uint32_t dtype)
{
	switch (dtype) {
	case KV_DTYPE_F16: return (struct float_bits){10, 15, 30};
	case KV_DTYPE_BF16: return (struct float_bits){7, 127, 254};
	default: return (struct float_bits){23, 127, 254};
	}
}

/* Finite, and of all kinds that a cache sees: ordinary, far from zero, constant, zero, tiny,
 * huge. */
static uint32_t element(struct float_bits b, uint64_t vector, uint64_t random)
{
	uint32_t exponent = b.one - 4 + (uint32_t)(random >> 40) % 6;
	uint32_t sign = (uint32_t)(random >> 60) & 1;
	uint32_t mantissa = (uint32_t)random & ((UINT32_C(1) << b.mantissa) - 1);

	switch (vector % 24) {
	case 0: return 0;
	case 1: /* constant */
		exponent = b.one + 2;
		mantissa = (uint32_t)(vector >> 8) & ((UINT32_C(1) << b.mantissa) - 1);
		sign = (uint32_t)(vector >> 40) & 1;
		break;
	case 2: exponent = 0; break; /* denormal */
	case 3: exponent = b.one + (b.most - b.one) / 2 + (uint32_t)(random >> 40) % 4; break;
	case 4: /* far from zero */
	case 5:
		exponent = b.one + 5;
		sign = 0;
		mantissa &= 15;
		break;
	default: break;
	}
	if (b.mantissa == 23)
		return sign << 31 | exponent << 23 | mantissa;
	return sign << 15 | exponent << b.mantissa | mantissa;
}

static void fill_vector(const struct mc_world *w, char *to, uint32_t width, uint64_t seed)
{
	struct float_bits b = bits_of(w->layout->dtype);
	uint32_t bytes = kv_dtype_bytes(w->layout->dtype);
	uint64_t random = mix(seed * 2 + 1), vector = mix(seed);

	for (uint32_t i = 0; i < width; i++) {
		uint32_t bits = element(b, vector, random);

		memcpy(to + i * bytes, &bits, bytes); /* little-endian */
		random = mix(random + i + 1);
	}
}

uint32_t mc_k_bytes(const struct mc_world *w, uint32_t layer)
{
	return w->layout->layers[layer].k_width * kv_dtype_bytes(w->layout->dtype);
}

uint32_t mc_full_bytes(const struct mc_world *w, uint32_t layer)
{
	const struct kv_layer *l = &w->layout->layers[layer];

	return (l->k_width + l->v_width) * kv_dtype_bytes(w->layout->dtype);
}

static bool store(const struct kv_codec *codec, const char *full, char *stored, char *read)
{
	struct kv_codec_at at = {
		.codes = stored,
		.scale = stored + codec->bytes.codes,
		.zero = stored + codec->bytes.codes + codec->bytes.scale,
	};
	size_t bytes = (size_t)codec->width * codec->element_bytes;

	if (codec->width == 0)
		return true;
	if (kv_quantise(codec, 1, full, bytes, &at) != 1)
		return false;
	kv_dequantise(codec, 1, &at, read, bytes);
	return true;
}

void mc_values_init(struct mc_world *w)
{
	w->values = calloc(1024, sizeof(w->values[0]));
	w->values_cap = 1024;
	w->n_values = 1; /* 0 is none */
	w->values[0].full = calloc(1, 4096);
	w->values[0].stored = w->values[0].read = w->values[0].full;
}

/* One more, without content. */
static struct mc_value *value_add(struct mc_world *w, uint32_t layer)
{
	uint32_t full = mc_full_bytes(w, layer);
	struct mc_value *value;

	if (w->n_values >= w->values_cap) {
		w->values_cap *= 2;
		w->values = realloc(w->values, w->values_cap * sizeof(w->values[0]));
		MC_CHECK(w->values);
	}
	value = &w->values[w->n_values++];
	value->layer = layer;
	value->is_bad = false;
	value->full = calloc(3, full + 64); /* stored is never more than that */
	value->stored = value->full + full + 64;
	value->read = value->stored + full + 64;
	return value;
}

/* Makes of what is given what is stored, and what is read; false: the formats cannot hold it. */
static bool store_both(const struct mc_world *w, struct mc_value *value)
{
	const struct kv_codec *k = &w->bare->layout.codecs[2 * value->layer], *v = k + 1;
	uint32_t k_bytes = mc_k_bytes(w, value->layer);
	uint32_t k_stored = k->bytes.codes + k->bytes.scale + k->bytes.zero;

	return store(k, value->full, value->stored, value->read) &&
	       store(v, value->full + k_bytes, value->stored + k_stored, value->read + k_bytes);
}

uint32_t mc_value_as_read(struct mc_world *w, uint32_t of)
{
	uint32_t layer = w->values[of].layer;
	struct mc_value *value = value_add(w, layer);

	memcpy(value->full, w->values[of].read, mc_full_bytes(w, layer));
	value->is_bad = !store_both(w, value);
	return w->n_values - 1;
}

uint32_t mc_value_new(struct mc_world *w, uint32_t layer)
{
	const struct kv_layer *l = &w->layout->layers[layer];
	uint32_t k_bytes = mc_k_bytes(w, layer), number = w->n_values;
	struct mc_value *value = value_add(w, layer);
	uint64_t seed;

	seed = mix(number + 1000003 * (uint64_t)layer);
	do {
		seed = mix(seed + 1);
		fill_vector(w, value->full, l->k_width, seed);
		fill_vector(w, value->full + k_bytes, l->v_width, seed + 77);
	} while (!store_both(w, value));
	return number;
}

void mc_value_spoil(struct mc_world *w, uint32_t number)
{
	struct mc_value *value = &w->values[number];
	const struct kv_codec *k = &w->bare->layout.codecs[2 * value->layer], *v = k + 1;
	struct float_bits b = bits_of(w->layout->dtype);
	uint32_t bytes = kv_dtype_bytes(w->layout->dtype), full = mc_full_bytes(w, value->layer);
	uint32_t bits = ((b.most + 1) << b.mantissa) | (uint32_t)mc_draw(w, 2);
	char stored[1024], read[1024];

	memcpy(value->full + mc_draw(w, full / bytes) * bytes, &bits, bytes);
	value->is_bad = !store(k, value->full, stored, read) ||
			!store(v, value->full + mc_k_bytes(w, value->layer), stored, read);
	if (!value->is_bad) /* raw */
		MC_CHECK(store(k, value->full, value->stored, value->read) &&
			 store(v, value->full + mc_k_bytes(w, value->layer),
			       value->stored + k->bytes.codes + k->bytes.scale + k->bytes.zero,
			       value->read + mc_k_bytes(w, value->layer)));
}

void mc_values_free(struct mc_world *w)
{
	for (uint32_t i = 0; i < w->n_values; i++)
		free(w->values[i].full);
	free(w->values);
}

/* ---- planes ------------------------------------------------------------------------------- */

void mc_fill_plane(char *bytes, uint32_t n_bytes, uint32_t number)
{
	uint64_t random = mix(number);

	if (number == 0) {
		memset(bytes, 0, n_bytes);
		return;
	}
	for (uint32_t i = 0; i < n_bytes; i++) {
		bytes[i] = (char)(random >> (i % 8 * 8));
		if (i % 8 == 7)
			random = mix(random);
	}
}
