/* kv_shared_layout: a model's geometry, formats and policy as a layout of kvcached. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/examples/kv_policy.h"
#include "client/examples/kv_sequence.h"
#include "client/examples/kv_shared.h"

struct description {
	struct kvc_layout_options options;
	struct kvc_layer *layers;
	char theta[32];
	struct kvc_tag tags[2];
	struct kvc_plane planes[KVC_POLICY_PLANES];
};

static int describe(struct description *d, const struct llama *m, struct kv_formats formats,
		    struct errbuf *err)
{
	const struct llama_geometry *g = llama_geometry(m);

	*d = (struct description){.layers = calloc(g->n_layers, sizeof(*d->layers))};
	if (!d->layers)
		return errbuf_set(err, KV_ENOMEM, "no memory for %zu layers", g->n_layers);
	for (size_t i = 0; i < g->n_layers; i++)
		d->layers[i] = (struct kvc_layer){.n_query_groups = (uint32_t)g->n_kv_heads,
						  .k_width = (uint32_t)g->head_dim,
						  .v_width = (uint32_t)g->head_dim};
	snprintf(d->theta, sizeof(d->theta), "%.17g", g->rope_theta);
	d->tags[0] = (struct kvc_tag){"rope_pairing", "half"};
	d->tags[1] = (struct kvc_tag){"rope_theta", d->theta};
	d->options = (struct kvc_layout_options){.size = sizeof(d->options),
						 .n_layers = (uint32_t)g->n_layers,
						 .layers = d->layers,
						 .dtype = KVC_F32,
						 .k_format = formats.k,
						 .v_format = formats.v,
						 .n_tags = 2,
						 .tags = d->tags};
	memcpy(d->options.fingerprint, llama_fingerprint(m), sizeof(d->options.fingerprint));
	return 0;
}

kvc_layout *kv_shared_layout(kvc_session *session, const struct llama *m, struct kv_formats formats,
			     struct errbuf *err)
{
	struct description d;
	kvc_layout *layout;

	if (describe(&d, m, formats, err) < 0)
		return NULL;
	layout = kvc_layout_register(session, &d.options);
	if (!layout)
		kv_sequence_error(err);
	free(d.layers);
	return layout;
}

kvc_layout *kv_policy_layout(kvc_session *session, const struct llama *m, struct kv_formats formats,
			     const char *name, size_t n_slots, struct errbuf *err)
{
	struct kvc_policy_options policy = kv_policy_options(name, n_slots);
	struct description d;
	kvc_layout *layout = NULL;
	int n_planes;

	if (describe(&d, m, formats, err) < 0)
		return NULL;
	for (uint32_t i = 0; i < d.options.n_layers; i++)
		d.layers[i].bound_slots = (uint32_t)n_slots;
	n_planes = kvc_policy_planes(&policy, d.options.n_layers, d.layers, d.planes);
	if (n_planes >= 0) {
		d.options.n_planes = (uint32_t)n_planes;
		d.options.planes = d.planes;
		layout = kvc_layout_register(session, &d.options);
	}
	if (!layout)
		kv_sequence_error(err);
	free(d.layers);
	return layout;
}

int kv_shared_size(const struct llama *m, struct kv_formats formats, size_t n_tokens,
		   struct kvc_size *size, struct errbuf *err)
{
	struct description d;
	int rc;

	if (describe(&d, m, formats, err) < 0)
		return -1;
	rc = kvc_layout_size(&d.options, n_tokens, size);
	if (rc < 0)
		kv_sequence_error(err);
	free(d.layers);
	return rc;
}
