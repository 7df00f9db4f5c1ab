/*
 * kvcachectl size: bytes of a sequence by part, before anything is allocated: of a geometry that
 * options name, which needs no daemon, or of the layout of an object.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/geometry.h"
#include "client/ctl/object.h"
#include "proto/layout.h"

/* ---- the geometry of options ---------------------------------------------------------------- */

static int take_number(struct ctl *ctl, const struct ctl_args *args, const char *name, uint32_t min,
		       uint32_t max, uint32_t fallback, uint32_t *number)
{
	uint64_t n;

	if (ctl_option_number(ctl, args, name, min, max, fallback, &n))
		return -1;
	*number = (uint32_t)n;
	return 0;
}

static int take_dtype(struct ctl *ctl, const struct ctl_args *args, uint32_t *dtype)
{
	const char *text = ctl_option(args, "dtype");

	for (*dtype = KV_DTYPE_F32; text && *dtype <= KV_DTYPE_BF16; ++*dtype)
		if (strcmp(text, kv_dtype_name(*dtype)) == 0)
			return 0;
	*dtype = KV_DTYPE_BF16;
	if (!text)
		return 0;
	ctl_usage(ctl, args->command, "--dtype is %s; dtypes are f32, f16 and bf16", text);
	return -1;
}

/* "NAME:slot:BYTES" or "NAME:sequence:BYTES"; `text` is cut at its colons. */
static int take_plane(char *text, struct kvc_plane *plane)
{
	char *scope = strchr(text, ':'), *bytes = scope ? strchr(scope + 1, ':') : NULL, *end;

	if (!bytes)
		return -1;
	*scope++ = '\0';
	*bytes++ = '\0';
	plane->name = text;
	plane->scope = strcmp(scope, "slot") == 0     ? KVC_PLANE_SLOT :
		       strcmp(scope, "sequence") == 0 ? KVC_PLANE_SEQUENCE :
							0;
	plane->bytes = (uint32_t)strtoul(bytes, &end, 10);
	return plane->scope && *bytes >= '0' && *bytes <= '9' && *end == '\0' ? 0 : -1;
}

static int take_planes(struct ctl *ctl, const struct ctl_args *args, struct geometry *geometry,
		       char *text)
{
	struct kvc_layout_options *o = &geometry->options;
	char *rest = NULL;

	geometry->planes = ctl_alloc(KV_PLANES_MAX, sizeof(geometry->planes[0]));
	o->planes = geometry->planes;
	if (text[0] == '\0')
		return 0;
	for (char *one = strtok_r(text, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
		if (o->n_planes == KV_PLANES_MAX ||
		    take_plane(one, &geometry->planes[o->n_planes])) {
			ctl_usage(ctl, args->command,
				  "--planes is a list of at most %u NAME:slot:BYTES or "
				  "NAME:sequence:BYTES, with commas between them",
				  KV_PLANES_MAX);
			return -1;
		}
		o->n_planes++;
	}
	return 0;
}

static int take_layers(struct ctl *ctl, const struct ctl_args *args, struct geometry *geometry)
{
	struct kvc_layout_options *o = &geometry->options;
	struct kvc_layer layer;

	if (take_number(ctl, args, "layers", 1, KV_LAYERS_MAX, 0, &o->n_layers) ||
	    take_number(ctl, args, "heads", 1, KV_HEADS_MAX, 0, &layer.n_query_groups) ||
	    take_number(ctl, args, "width", 1, KV_WIDTH_MAX, 0, &layer.k_width) ||
	    take_number(ctl, args, "v-width", 0, KV_WIDTH_MAX, layer.k_width, &layer.v_width) ||
	    take_number(ctl, args, "bound", 1, KV_TOKENS_MAX, 0, &layer.bound_slots))
		return -1;
	if (!o->n_layers || !layer.n_query_groups || !layer.k_width) {
		ctl_usage(ctl, args->command,
			  "size needs an object, or --layers, --heads and --width");
		return -1;
	}
	geometry->layers = ctl_alloc(o->n_layers, sizeof(layer));
	for (uint32_t i = 0; i < o->n_layers; i++)
		geometry->layers[i] = layer;
	o->layers = geometry->layers;
	return 0;
}

static int take_geometry(struct ctl *ctl, const struct ctl_args *args, struct geometry *geometry,
			 char *planes)
{
	struct kvc_layout_options *o = &geometry->options;

	o->size = sizeof(*o);
	o->fingerprint[0] = 1; /* of no model */
	return take_layers(ctl, args, geometry) || take_dtype(ctl, args, &o->dtype) ||
			       geometry_formats(ctl, args, &o->k_format, &o->v_format) ||
			       take_number(ctl, args, "block-tokens", 1, KV_BLOCK_TOKENS_MAX, 0,
					   &o->block_tokens) ||
			       take_planes(ctl, args, geometry, planes) ?
		       -1 :
		       0;
}

/* ---- what comes out ------------------------------------------------------------------------- */

static void print_part(struct table *table, const char *what, uint64_t n_bytes)
{
	if (n_bytes == 0)
		return;
	table_cell(table, PLAIN, "%s", what);
	table_cell(table, PLAIN, "%s", units_count(n_bytes).s);
	table_cell(table, DIM, "%s", units_bytes(n_bytes).s);
}

static void print_text(struct ctl *ctl, const struct kvc_size *size, uint64_t n_tokens)
{
	struct table *table = table_new();

	table_column(table, "", TABLE_LEFT);
	table_column(table, "", TABLE_RIGHT);
	table_column(table, "", TABLE_RIGHT);
	print_part(table, "keys", size->k_bytes);
	print_part(table, "values", size->v_bytes);
	print_part(table, "scales and zero points", size->scale_bytes);
	print_part(table, "slot planes", size->plane_bytes);
	print_part(table, "sequence planes", size->state_bytes);
	print_part(table, "padding of last blocks", size->padding_bytes);
	print_part(table, "block tables", size->table_bytes);
	print_part(table, "total", size->total_bytes);
	table_print(table, &ctl->out, 2);
	if (n_tokens)
		fprintf(ctl->out.stream, "%s: %s bytes a token\n", units_of(n_tokens, "token").s,
			units_count(size->total_bytes / n_tokens).s);
	if (size->rows_per_token) {
		fprintf(ctl->out.stream, "journal: %s a token",
			units_of(size->rows_per_token, "row").s);
		fprintf(ctl->out.stream, ", undo %s", units_bytes(size->undo_row_bytes).s);
		fprintf(ctl->out.stream, " and replay %s a row\n",
			units_bytes(size->replay_row_bytes).s);
	}
}

static void print_json(struct ctl *ctl, const struct kvc_size *size, uint64_t n_tokens)
{
	ctl_print_json(
		ctl, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I}",
			       "n_tokens", (json_int_t)n_tokens, "k_bytes",
			       (json_int_t)size->k_bytes, "v_bytes", (json_int_t)size->v_bytes,
			       "scale_bytes", (json_int_t)size->scale_bytes, "plane_bytes",
			       (json_int_t)size->plane_bytes, "state_bytes",
			       (json_int_t)size->state_bytes, "padding_bytes",
			       (json_int_t)size->padding_bytes, "table_bytes",
			       (json_int_t)size->table_bytes, "total_bytes",
			       (json_int_t)size->total_bytes, "bytes_per_token",
			       n_tokens ? (double)size->total_bytes / (double)n_tokens : 0.0,
			       "undo_row_bytes", (json_int_t)size->undo_row_bytes,
			       "replay_row_bytes", (json_int_t)size->replay_row_bytes,
			       "rows_per_token", (json_int_t)size->rows_per_token));
}

static int print_size(struct ctl *ctl, const struct kvc_layout_options *options, uint64_t n_tokens)
{
	struct errbuf err = {KV_OK, ""};
	struct kvc_size size;

	if (kvc_layout_size(options, n_tokens, &size)) {
		errbuf_set(&err, kvc_error(), "%s", kvc_error_text());
		return ctl_fail(ctl, &err);
	}
	if (ctl->json) {
		print_json(ctl, &size, n_tokens);
		return CTL_OK;
	}
	geometry_print(ctl, options);
	print_text(ctl, &size, n_tokens);
	return CTL_OK;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int size_of_object(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Reply *reply, *layout;
	struct geometry geometry;
	const Kv__Wire__Object *o;
	Kv__Wire__Target target;
	uint64_t n_tokens;
	int code;

	if (ctl_target(ctl, args->words[0], &target))
		return CTL_USAGE;
	o = object_ask(ctl, &target, &reply, &code);
	if (!o)
		return code;
	if (ctl_option_number(ctl, args, "tokens", 0, KV_TOKENS_MAX, o->length_tokens, &n_tokens)) {
		code = CTL_USAGE;
	} else if (geometry_ask(ctl, o->layout_hash.data, o->layout_hash.len, &layout, &code) ==
		   0) {
		geometry_of_wire(&geometry, layout->layout->layout);
		code = print_size(ctl, &geometry.options, n_tokens);
		geometry_fini(&geometry);
		ctl_free_reply(layout);
	}
	ctl_free_reply(reply);
	return code;
}

int cmd_size(struct ctl *ctl, const struct ctl_args *args)
{
	const char *given = ctl_option(args, "planes");
	struct geometry geometry = {.options = {0}};
	uint64_t n_tokens;
	char *planes;
	int code = CTL_USAGE;

	if (args->n_words) {
		for (const struct ctl_option *o = args->command->options; o->name; o++)
			if (strcmp(o->name, "tokens") != 0 && ctl_option(args, o->name))
				return ctl_usage(ctl, args->command,
						 "--%s says nothing about an object that is there",
						 o->name);
		return size_of_object(ctl, args);
	}
	if (ctl_option_number(ctl, args, "tokens", 0, KV_TOKENS_MAX, 0, &n_tokens))
		return CTL_USAGE;
	if (!ctl_option(args, "tokens"))
		return ctl_usage(ctl, args->command, "size needs --tokens N");
	planes = ctl_format("%s", given ? given : "");
	if (take_geometry(ctl, args, &geometry, planes) == 0)
		code = print_size(ctl, &geometry.options, n_tokens);
	geometry_fini(&geometry);
	free(planes);
	return code;
}
