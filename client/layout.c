/*
 * Layouts: from a caller's options to the daemon and back.
 *
 * Fields are checked here first, so that most mistakes are named without a message; the daemon
 * checks them again. What the daemon says about a layout is believed only if the hash over its
 * fields is the one we know. Handles are shared and live as long as the session: arenas and
 * sequences borrow them. Thread: any.
 */
#include "client/layout.h"

#include <stdlib.h>
#include <string.h>

#include "client/codecs.h"
#include "client/error.h"
#include "client/link.h"
#include "client/options.h"
#include "client/rpc.h"
#include "proto/layout_wire.h"

#define BLOCK_BYTES_AIM (256u * 1024)
#define BLOCK_TOKENS_LEAST 16u
#define BLOCK_TOKENS_MOST 256u

/* ---- options -------------------------------------------------------------------------------- */

uint32_t layout_default_block_tokens(uint64_t token_bytes)
{
	uint32_t n = BLOCK_TOKENS_LEAST;

	while (n < BLOCK_TOKENS_MOST && token_bytes * n * 2 <= BLOCK_BYTES_AIM)
		n *= 2;
	return n;
}

static int copy_text(char out[KV_TAG_BYTES_MAX + 1], const char *text, const char *field)
{
	size_t n;

	if (!text)
		return kvc_fail(KV_EINVAL, "layout field %s: a text is missing (NULL)", field);
	n = strlen(text);
	if (n > KV_TAG_BYTES_MAX)
		return kvc_fail(KV_ETOOBIG, "layout field %s has %zu bytes, the limit is %u", field,
				n, KV_TAG_BYTES_MAX);
	memcpy(out, text, n + 1);
	return 0;
}

static int check_count(const char *field, uint32_t n, const void *array, uint32_t most)
{
	if (n > most)
		return kvc_fail(KV_ETOOBIG, "layout field %s (count) is %u, the limit is %u", field,
				n, most);
	if (n && !array)
		return kvc_fail(KV_EINVAL, "layout field %s: there are %u, but the array is NULL",
				field, n);
	return 0;
}

static int copy_arrays(struct kv_layout *fields, const struct kvc_layout_options *o)
{
	for (uint32_t i = 0; i < o->n_layers; i++)
		fields->layers[i] = (struct kv_layer){
			.n_query_groups = o->layers[i].n_query_groups,
			.k_width = o->layers[i].k_width,
			.v_width = o->layers[i].v_width,
			.bound_slots = o->layers[i].bound_slots,
		};
	for (uint32_t i = 0; i < o->n_planes; i++) {
		fields->planes[i].scope = o->planes[i].scope;
		fields->planes[i].bytes = o->planes[i].bytes;
		if (copy_text(fields->planes[i].name, o->planes[i].name, "planes"))
			return -1;
	}
	for (uint32_t i = 0; i < o->n_tags; i++)
		if (copy_text(fields->tags[i].key, o->tags[i].key, "tags (key)") ||
		    copy_text(fields->tags[i].value, o->tags[i].value, "tags (value)"))
			return -1;
	return 0;
}

static int copy_fields(struct kv_layout *fields, const struct kvc_layout_options *o)
{
	bool is_opaque = o->n_layers == 0;

	if (check_count("layers", o->n_layers, o->layers, KV_LAYERS_MAX) ||
	    check_count("planes", o->n_planes, o->planes, KV_PLANES_MAX) ||
	    check_count("tags", o->n_tags, o->tags, KV_TAGS_MAX) ||
	    check_count("salt", o->n_salt_bytes, o->salt, KV_SALT_BYTES_MAX))
		return -1;
	memcpy(fields->fingerprint, o->fingerprint, sizeof(fields->fingerprint));
	fields->n_layers = o->n_layers;
	fields->dtype = o->dtype;
	fields->k_format = o->k_format || is_opaque ? o->k_format : KV_FORMAT_RAW;
	fields->v_format = o->v_format || is_opaque ? o->v_format : KV_FORMAT_RAW;
	fields->block_tokens = o->block_tokens;
	fields->opaque_bytes = o->opaque_bytes;
	fields->n_planes = o->n_planes;
	fields->n_tags = o->n_tags;
	fields->n_salt_bytes = o->n_salt_bytes;
	if (o->n_salt_bytes)
		memcpy(fields->salt, o->salt, o->n_salt_bytes);
	fields->layers = calloc((size_t)o->n_layers + 1, sizeof(fields->layers[0]));
	fields->planes = calloc((size_t)o->n_planes + 1, sizeof(fields->planes[0]));
	fields->tags = calloc((size_t)o->n_tags + 1, sizeof(fields->tags[0]));
	if (!fields->layers || !fields->planes || !fields->tags)
		return kvc_fail(KV_ENOMEM, "no memory for a layout");
	return copy_arrays(fields, o);
}

/* Widest bytes of a token in one layer group; 0 when the fields make no sense (checked later). */
static uint64_t widest_token_bytes(const struct kv_layout *fields)
{
	uint64_t widest = 0;

	for (uint32_t i = 0; i < fields->n_layers; i++) {
		uint64_t bytes = 0;

		for (uint32_t j = 0; j < fields->n_layers; j++) {
			const struct kv_layer *layer = &fields->layers[j];

			if (layer->bound_slots == fields->layers[i].bound_slots)
				bytes += ((uint64_t)layer->k_width + layer->v_width) *
					 layer->n_query_groups * kv_dtype_bytes(fields->dtype);
		}
		if (bytes > widest)
			widest = bytes;
	}
	return widest;
}

static void choose_block_tokens(struct kv_layout *fields)
{
	if (fields->n_layers == 0)
		fields->block_tokens = 1;
	else
		fields->block_tokens = layout_default_block_tokens(widest_token_bytes(fields));
}

struct kv_layout *layout_from_options(const struct kvc_layout_options *options)
{
	struct kvc_layout_options o;
	struct kv_layout *fields;

	if (!options) {
		kvc_fail(KV_EINVAL, "a layout has no defaults; options is NULL");
		return NULL;
	}
	if (options_take(options, "kvc_layout_options", sizeof(o), &o, sizeof(o)))
		return NULL;
	fields = calloc(1, sizeof(*fields));
	if (!fields) {
		kvc_fail(KV_ENOMEM, "no memory for a layout");
		return NULL;
	}
	if (copy_fields(fields, &o))
		goto fail;
	if (fields->block_tokens == 0)
		choose_block_tokens(fields);
	if (kv_layout_check(fields, kvc_err()) || kv_layout_derive(fields, kvc_err()))
		goto fail;
	return fields;
fail:
	kv_layout_free(fields);
	return NULL;
}

/* ---- the session's layouts ------------------------------------------------------------------ */

/* Under lock. */
static struct kvc_layout *find_by_id(const struct session_link *link, uint64_t id)
{
	for (size_t i = 0; i < link->n_layouts; i++)
		if (link->layouts[i]->id == id)
			return link->layouts[i];
	return NULL;
}

/* Under lock. */
static struct kvc_layout *append(struct kvc_session *session, uint64_t id, struct kv_layout *fields)
{
	struct session_link *link = session->link;
	struct kvc_layout **grown;
	struct kvc_layout *layout;

	grown = realloc(link->layouts, (link->n_layouts + 1) * sizeof(grown[0]));
	if (!grown)
		return NULL;
	link->layouts = grown;
	layout = calloc(1, sizeof(*layout));
	if (!layout)
		return NULL;
	*layout = (struct kvc_layout){.session = session, .id = id, .fields = fields};
	if (codecs_make(layout)) {
		free(layout);
		return NULL;
	}
	link->layouts[link->n_layouts++] = layout;
	return layout;
}

/* The handle of an id; takes `fields` over (frees them when the id is known). */
static struct kvc_layout *intern(struct kvc_session *session, uint64_t id, struct kv_layout *fields)
{
	struct kvc_layout *layout;

	pthread_mutex_lock(&session->link->lock);
	layout = find_by_id(session->link, id);
	if (layout) {
		if (memcmp(layout->fields->hash, fields->hash, KV_HASH_BYTES) != 0) {
			kvc_fail(KV_EPROTO, "the daemon gave layout id %llu to two layouts",
				 (unsigned long long)id);
			layout = NULL;
		}
		kv_layout_free(fields);
	} else {
		layout = append(session, id, fields);
		if (!layout) {
			kvc_fail(KV_ENOMEM, "no memory for a layout");
			kv_layout_free(fields);
		}
	}
	pthread_mutex_unlock(&session->link->lock);
	return layout;
}

/* The fields in a result, if they are what their hash says. */
static struct kv_layout *fields_of_result(const Kv__Wire__LayoutResult *result)
{
	struct kv_layout *fields;

	if (!result->layout) {
		kvc_fail(KV_EPROTO, "the daemon's reply has no layout");
		return NULL;
	}
	fields = kv_layout_from_wire(result->layout, kvc_err());
	if (!fields) {
		errbuf_wrap(kvc_err(), "the daemon's layout");
		return NULL;
	}
	if (result->hash.len == KV_HASH_BYTES &&
	    memcmp(result->hash.data, fields->hash, KV_HASH_BYTES) == 0)
		return fields;
	kvc_fail(KV_EPROTO, "the daemon's layout does not have the hash that it says");
	kv_layout_free(fields);
	return NULL;
}

static struct kvc_layout *get(struct kvc_session *session, Kv__Wire__LayoutGet *which)
{
	Kv__Wire__Request request;
	Kv__Wire__Reply *reply;
	struct kvc_layout *layout = NULL;
	struct kv_layout *fields;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_GET;
	request.layout_get = which;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_LAYOUT);
	if (!reply)
		return NULL;
	fields = fields_of_result(reply->layout);
	if (fields &&
	    ((which->layout_id && reply->layout->layout_id != which->layout_id) ||
	     (which->hash.len && memcmp(which->hash.data, fields->hash, KV_HASH_BYTES)))) {
		kvc_fail(KV_EPROTO,
			 "the daemon answered with another layout than it was asked for");
		kv_layout_free(fields);
		fields = NULL;
	}
	if (fields)
		layout = intern(session, reply->layout->layout_id, fields);
	rpc_reply_free(reply);
	return layout;
}

struct kvc_layout *session_layout(struct kvc_session *session, uint64_t layout_id)
{
	Kv__Wire__LayoutGet which = KV__WIRE__LAYOUT_GET__INIT;
	struct kvc_layout *layout;

	pthread_mutex_lock(&session->link->lock);
	layout = find_by_id(session->link, layout_id);
	pthread_mutex_unlock(&session->link->lock);
	if (layout)
		return layout;
	which.layout_id = layout_id;
	return get(session, &which);
}

void session_layouts_fini(struct kvc_session *session)
{
	struct session_link *link = session->link;

	for (size_t i = 0; i < link->n_layouts; i++) {
		codecs_free(link->layouts[i]);
		kv_layout_free(link->layouts[i]->fields);
		free(link->layouts[i]);
	}
	free(link->layouts);
	link->layouts = NULL;
	link->n_layouts = 0;
}

/* ---- public --------------------------------------------------------------------------------- */

static struct kvc_layout *register_fields(struct kvc_session *session, struct kv_layout *fields,
					  Kv__Wire__Layout *wire)
{
	Kv__Wire__Request request;
	Kv__Wire__LayoutRegister command = KV__WIRE__LAYOUT_REGISTER__INIT;
	Kv__Wire__Reply *reply;
	struct kvc_layout *layout = NULL;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_REGISTER;
	request.layout_register = &command;
	command.layout = wire;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_LAYOUT);
	if (!reply) {
		kv_layout_free(fields);
		return NULL;
	}
	if (reply->layout->hash.len == KV_HASH_BYTES && reply->layout->layout_id != 0 &&
	    memcmp(reply->layout->hash.data, fields->hash, KV_HASH_BYTES) == 0) {
		layout = intern(session, reply->layout->layout_id, fields);
	} else {
		kvc_fail(KV_EPROTO, "the daemon's hash of the layout is not ours");
		kv_layout_free(fields);
	}
	rpc_reply_free(reply);
	return layout;
}

kvc_layout *kvc_layout_register(kvc_session *session, const struct kvc_layout_options *options)
{
	struct kvc_layout *layout = NULL;
	struct kv_layout *fields;
	Kv__Wire__Layout *wire;

	if (session_check(session))
		return NULL;
	fields = layout_from_options(options);
	if (!fields)
		return NULL;
	wire = kv_layout_to_wire(fields);
	if (wire) {
		layout = register_fields(session, fields, wire);
		kv_layout_wire_free(wire);
	} else {
		kvc_fail(KV_ENOMEM, "no memory for a layout");
		kv_layout_free(fields);
	}
	return layout;
}

kvc_layout *kvc_layout_variant(kvc_session *session, const kvc_layout *layout, uint32_t k_format,
			       uint32_t v_format)
{
	struct kvc_layout *variant = NULL;
	struct kv_layout fields = *layout->fields, *checked = NULL;
	Kv__Wire__Layout *wire;

	if (session_check(session))
		return NULL;
	if (k_format)
		fields.k_format = k_format;
	if (v_format)
		fields.v_format = v_format;
	wire = kv_layout_to_wire(&fields);
	if (wire)
		checked = kv_layout_from_wire(wire, kvc_err());
	else
		kvc_fail(KV_ENOMEM, "no memory for a layout");
	if (checked)
		variant = register_fields(session, checked, wire);
	kv_layout_wire_free(wire);
	return variant;
}

kvc_layout *kvc_layout_find(kvc_session *session, const uint8_t hash[32])
{
	Kv__Wire__LayoutGet which = KV__WIRE__LAYOUT_GET__INIT;
	uint8_t copy[KV_HASH_BYTES];

	if (session_check(session))
		return NULL;
	memcpy(copy, hash, sizeof(copy));
	which.hash.data = copy;
	which.hash.len = sizeof(copy);
	return get(session, &which);
}

/* The handle is shared with arenas and sequences: the session frees it. */
void kvc_layout_free(kvc_layout *layout)
{
	(void)layout;
}

const uint8_t *kvc_layout_hash(const kvc_layout *layout)
{
	return layout->fields->hash;
}

int kvc_layout_compare(const kvc_layout *a, const kvc_layout *b)
{
	return kv_layout_differs(a->fields, b->fields, kvc_err());
}

uint32_t kvc_layout_block_tokens(const kvc_layout *layout)
{
	return layout->fields->block_tokens;
}

uint64_t kvc_layout_token_bytes(const kvc_layout *layout)
{
	return kv_layout_token_bytes(layout->fields);
}
