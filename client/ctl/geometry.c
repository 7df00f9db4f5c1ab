#include "client/ctl/geometry.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/object.h"
#include "proto/layout.h"

/* ---- formats -------------------------------------------------------------------------------- */

static uint32_t find_format(const char *name, size_t n)
{
	char *copy = ctl_format("%.*s", (int)n, name);
	uint32_t format = kv_format_find(copy);

	free(copy);
	return format;
}

int geometry_formats(struct ctl *ctl, const struct ctl_args *args, uint32_t *k_format,
		     uint32_t *v_format)
{
	const char *text = ctl_option(args, "format"), *colon;

	*k_format = *v_format = 0;
	if (!text)
		return 0;
	colon = strchr(text, ':');
	*k_format = find_format(text, colon ? (size_t)(colon - text) : strlen(text));
	*v_format = colon ? find_format(colon + 1, strlen(colon + 1)) : *k_format;
	if (*k_format && *v_format)
		return 0;
	ctl_usage(
		ctl, args->command,
		"--format is %s; formats are raw, int8, u8, u4, q4, fp8 and int8-model, or two of "
		"them, of K and V, as u8:u4",
		text);
	return -1;
}

/* ---- off the wire --------------------------------------------------------------------------- */

void geometry_of_wire(struct geometry *geometry, const Kv__Wire__Layout *wire)
{
	struct kvc_layout_options *o = &geometry->options;

	memset(geometry, 0, sizeof(*geometry));
	geometry->layers = ctl_alloc(wire->n_layers + 1, sizeof(geometry->layers[0]));
	geometry->planes = ctl_alloc(wire->n_planes + 1, sizeof(geometry->planes[0]));
	geometry->tags = ctl_alloc(wire->n_tags + 1, sizeof(geometry->tags[0]));
	for (size_t i = 0; i < wire->n_layers; i++)
		geometry->layers[i] = (struct kvc_layer){wire->layers[i]->n_query_groups,
							 wire->layers[i]->k_width,
							 wire->layers[i]->v_width,
							 wire->layers[i]->bound_slots};
	for (size_t i = 0; i < wire->n_planes; i++)
		geometry->planes[i] = (struct kvc_plane){
			wire->planes[i]->name, wire->planes[i]->scope, wire->planes[i]->bytes};
	for (size_t i = 0; i < wire->n_tags; i++)
		geometry->tags[i] = (struct kvc_tag){wire->tags[i]->key, wire->tags[i]->value};
	o->size = sizeof(*o);
	if (wire->fingerprint.len == sizeof(o->fingerprint))
		memcpy(o->fingerprint, wire->fingerprint.data, sizeof(o->fingerprint));
	o->n_layers = (uint32_t)wire->n_layers;
	o->layers = geometry->layers;
	o->dtype = wire->dtype;
	o->k_format = wire->k_format;
	o->v_format = wire->v_format;
	o->block_tokens = wire->block_tokens;
	o->opaque_bytes = wire->opaque_bytes;
	o->n_planes = (uint32_t)wire->n_planes;
	o->planes = geometry->planes;
	o->n_tags = (uint32_t)wire->n_tags;
	o->tags = geometry->tags;
	o->n_salt_bytes = (uint32_t)wire->salt.len;
	o->salt = wire->salt.data;
}

int geometry_ask(struct ctl *ctl, const uint8_t *hash, size_t n_bytes, Kv__Wire__Reply **reply,
		 int *code)
{
	Kv__Wire__LayoutGet message = KV__WIRE__LAYOUT_GET__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	message.hash.data = (uint8_t *)(uintptr_t)hash;
	message.hash.len = n_bytes;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_GET;
	request.layout_get = &message;
	if (ctl_ask_for(ctl, &request, KV__WIRE__REPLY__RESULT_LAYOUT, reply, code))
		return -1;
	if ((*reply)->layout->layout)
		return 0;
	ctl_free_reply(*reply);
	*reply = NULL;
	*code = ctl_unexpected(ctl);
	return -1;
}

void geometry_fini(struct geometry *geometry)
{
	free(geometry->layers);
	free(geometry->planes);
	free(geometry->tags);
	memset(geometry, 0, sizeof(*geometry));
}

/* ---- for people ----------------------------------------------------------------------------- */

void geometry_print(const struct ctl *ctl, const struct kvc_layout_options *o)
{
	FILE *stream = ctl->out.stream;
	uint32_t k_format = o->k_format ? o->k_format : KV_FORMAT_RAW;
	uint32_t v_format = o->v_format ? o->v_format : KV_FORMAT_RAW;

	if (o->n_layers == 0) {
		fprintf(stream, "opaque, %s a slot\n", units_bytes(o->opaque_bytes).s);
		return;
	}
	fprintf(stream, "%s, %s, K %s", units_of(o->n_layers, "layer").s, kv_dtype_name(o->dtype),
		kv_format_name(k_format));
	fprintf(stream, ", V %s", kv_format_name(v_format));
	if (o->block_tokens)
		fprintf(stream, ", blocks of %s", units_of(o->block_tokens, "token").s);
	fputc('\n', stream);
}
