/* kvc_quantisation_error. Any thread: uses nothing but its arguments. */
#include "client/compute/codec.h"
#include "client/error.h"
#include "client/session.h"

#define VECTOR_BYTES_MAX (KV_WIDTH_MAX * 4)

/* Stores one vector after the other in a scratch and asks how far it is off. */
static int errors_of(const struct kv_codec *codec, uint64_t n, const char *from, float *error)
{
	size_t bytes = (size_t)codec->width * codec->element_bytes;
	char codes[VECTOR_BYTES_MAX], scale[KV_WIDTH_MAX / KV_Q4_GROUP * 4], zero[8];
	const struct kv_codec_at at = {.codes = codes, .scale = scale, .zero = zero};

	for (uint64_t i = 0; i < n; i++, from += bytes) {
		if (kv_quantise(codec, 1, from, bytes, &at) != 1)
			return kvc_fail(KVC_EVALUE,
					"vector %llu has a NaN or an infinity, which format %s "
					"cannot hold",
					(unsigned long long)i, kv_format_name(codec->format));
		kv_quantise_error(codec, 1, from, bytes, &at, &error[i], 0);
	}
	return 0;
}

int kvc_quantisation_error(const kvc_layout *layout, uint32_t layer, uint64_t n, const void *k,
			   const void *v, float *k_error, float *v_error)
{
	const struct kv_layout *fields = layout->fields;
	uint64_t n_vectors;

	if (!layout->codecs)
		return kvc_fail(KVC_EUNSUPPORTED, "an opaque layout has no vectors");
	if (layer >= fields->n_layers)
		return kvc_fail(KVC_ERANGE, "layer %u of %u", layer, fields->n_layers);
	if ((k == NULL) != (k_error == NULL) || (v == NULL) != (v_error == NULL))
		return kvc_fail(KVC_EINVAL, "vectors and their errors come together: both or none");
	n_vectors = n * fields->layers[layer].n_query_groups;
	if (k && errors_of(&layout->codecs[2 * layer], n_vectors, k, k_error))
		return -1;
	return v ? errors_of(&layout->codecs[2 * layer + 1], n_vectors, v, v_error) : 0;
}
