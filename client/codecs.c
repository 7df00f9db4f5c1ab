#include "client/codecs.h"

#include <stdlib.h>

#include "client/compute/codec.h"
#include "client/error.h"

int codecs_make(struct kvc_layout *layout)
{
	const struct kv_layout *fields = layout->fields;

	layout->codecs = NULL;
	if (fields->n_layers == 0)
		return 0;
	layout->codecs = calloc(fields->n_layers, 2 * sizeof(layout->codecs[0]));
	if (!layout->codecs)
		return kvc_fail(KVC_ENOMEM, "no memory for the codecs of %u layers",
				fields->n_layers);
	for (uint32_t i = 0; i < fields->n_layers; i++) {
		const struct kv_layer *layer = &fields->layers[i];

		if (kv_codec_init(&layout->codecs[2 * i], fields->k_format, fields->dtype,
				  layer->k_width, kvc_err()) ||
		    kv_codec_init(&layout->codecs[2 * i + 1], fields->v_format, fields->dtype,
				  layer->v_width, kvc_err())) {
			codecs_free(layout);
			return -1;
		}
	}
	return 0;
}

void codecs_free(struct kvc_layout *layout)
{
	free(layout->codecs);
	layout->codecs = NULL;
}

int codecs_refuse(bool is_value, uint32_t layer, const char *what, uint64_t n, uint64_t head,
		  const char *remedy)
{
	return kvc_fail(KVC_EVALUE,
			"%s of layer %u, %s %llu, head %llu has a NaN or an infinity, which the "
			"storage format cannot hold; %s",
			is_value ? "V" : "K", layer, what, (unsigned long long)n,
			(unsigned long long)head, remedy);
}
