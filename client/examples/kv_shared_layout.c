/* kv_shared_layout: a model's geometry, and formats, as a layout of kvcached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/kv_shared.h"

kvc_layout *kv_shared_layout(kvc_session *session, const struct llama *m, struct kv_formats formats,
			     struct errbuf *err)
{
	const struct llama_geometry *g = llama_geometry(m);
	struct kvc_layer *layers = calloc(g->n_layers, sizeof(*layers));
	char theta[32];
	const struct kvc_tag tags[] = {{"rope_pairing", "half"}, {"rope_theta", theta}};
	struct kvc_layout_options o = {.size = sizeof(o),
				       .n_layers = (uint32_t)g->n_layers,
				       .layers = layers,
				       .dtype = KVC_F32,
				       .k_format = formats.k,
				       .v_format = formats.v,
				       .n_tags = 2,
				       .tags = tags};
	kvc_layout *layout = NULL;

	if (!layers) {
		errbuf_set(err, KV_ENOMEM, "no memory for %zu layers", g->n_layers);
		goto out;
	}
	for (size_t i = 0; i < g->n_layers; i++)
		layers[i] = (struct kvc_layer){.n_query_groups = (uint32_t)g->n_kv_heads,
					       .k_width = (uint32_t)g->head_dim,
					       .v_width = (uint32_t)g->head_dim};
	snprintf(theta, sizeof(theta), "%.17g", g->rope_theta);
	memcpy(o.fingerprint, llama_fingerprint(m), sizeof(o.fingerprint));
	layout = kvc_layout_register(session, &o);
	if (!layout)
		kv_shared_error(err);
out:
	free(layers);
	return layout;
}
