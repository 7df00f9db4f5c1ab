/* kvcachectl show: everything about an object, its parent's name and its layout. */
#include <inttypes.h>
#include <pwd.h>
#include <string.h>
#include <time.h>

#include "client/ctl/object.h"
#include "proto/layout.h"

#define LABEL "  %-10s"

/* A layout by its hash; NULL (silently) if it is not to be had. */
static Kv__Wire__Reply *ask_layout(struct ctl *ctl, const ProtobufCBinaryData *hash)
{
	Kv__Wire__LayoutGet message = KV__WIRE__LAYOUT_GET__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Reply *reply = NULL;

	message.hash = *hash;
	request.command_case = KV__WIRE__REQUEST__COMMAND_LAYOUT_GET;
	request.layout_get = &message;
	if (hash->len == 0 || ctl->call(ctl, &request, &reply, NULL))
		return NULL;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_LAYOUT && reply->layout->layout)
		return reply;
	ctl_free_reply(reply);
	return NULL;
}

/* The parent's name if it can still be seen. */
static struct units_line parent_label(struct ctl *ctl, uint64_t id)
{
	Kv__Wire__Show message = KV__WIRE__SHOW__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Reply *reply = NULL;
	struct units_line label;

	snprintf(label.s, sizeof(label.s), "@%" PRIu64 " (gone)", id);
	target.which_case = KV__WIRE__TARGET__WHICH_ID;
	target.id = id;
	message.source = &target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &message;
	if (ctl->call(ctl, &request, &reply, NULL))
		return label;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_OBJECTS && reply->objects->n_objects > 0)
		label = object_label(reply->objects->objects[0]);
	ctl_free_reply(reply);
	return label;
}

static void print_owner(const struct ctl *ctl, const Kv__Wire__Object *o)
{
	const struct passwd *user = getpwuid(o->uid);

	fprintf(ctl->out.stream, LABEL "%s (uid %" PRIu32 ")\n", "owner",
		user ? units_clean(user->pw_name).s : "-", o->uid);
}

static void print_made(const struct ctl *ctl, const Kv__Wire__Object *o)
{
	time_t seconds = (time_t)(o->created_unix_ns / 1000000000);
	struct tm tm;
	char text[32];

	if (o->created_unix_ns == 0 || !localtime_r(&seconds, &tm))
		return;
	strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
	fprintf(ctl->out.stream, LABEL "%s, %s ago\n", "made", text, object_age(ctl, o).s);
}

static void print_layers(const struct ctl *ctl, const Kv__Wire__Layout *l)
{
	FILE *stream = ctl->out.stream;

	for (size_t first = 0, next; first < l->n_layers; first = next) {
		const Kv__Wire__Layer *a = l->layers[first];

		for (next = first + 1; next < l->n_layers; next++) {
			const Kv__Wire__Layer *b = l->layers[next];

			if (a->n_query_groups != b->n_query_groups || a->k_width != b->k_width ||
			    a->v_width != b->v_width || a->bound_slots != b->bound_slots)
				break;
		}
		fprintf(stream, LABEL, first == 0 ? "layers" : "");
		if (next - first == 1)
			fprintf(stream, "%zu", first);
		else
			fprintf(stream, "%zu-%zu", first, next - 1);
		fprintf(stream, ": %" PRIu32 " heads, K %" PRIu32 ", V %" PRIu32, a->n_query_groups,
			a->k_width, a->v_width);
		if (a->bound_slots)
			fprintf(stream, ", at most %s slots", units_count(a->bound_slots).s);
		fputc('\n', stream);
	}
}

static void print_layout(const struct ctl *ctl, const Kv__Wire__Layout *l)
{
	FILE *stream = ctl->out.stream;
	char hex[2 * KV_FINGERPRINT_BYTES + 1];

	if (l->fingerprint.len == KV_FINGERPRINT_BYTES) {
		units_hex(hex, l->fingerprint.data, KV_FINGERPRINT_BYTES);
		fprintf(stream, LABEL "%s\n", "model", hex);
	}
	if (l->opaque_bytes) {
		fprintf(stream, LABEL "opaque, %s a slot\n", "layers",
			units_bytes(l->opaque_bytes).s);
		return;
	}
	print_layers(ctl, l);
	fprintf(stream, LABEL "%s, K %s, V %s, blocks of %" PRIu32 " tokens\n", "stored",
		kv_dtype_name(l->dtype), kv_format_name(l->k_format), kv_format_name(l->v_format),
		l->block_tokens);
	for (size_t i = 0; i < l->n_planes; i++) {
		fprintf(stream, LABEL "%s, ", i == 0 ? "planes" : "",
			units_clean(l->planes[i]->name).s);
		fprintf(stream, "%s %s\n", units_bytes(l->planes[i]->bytes).s,
			l->planes[i]->scope == KV_PLANE_SLOT ? "a slot and head" : "a sequence");
	}
	for (size_t i = 0; i < l->n_tags; i++)
		fprintf(stream, LABEL "%s = %s\n", i == 0 ? "tags" : "",
			units_clean(l->tags[i]->key).s, units_clean(l->tags[i]->value).s);
}

static void print_state(const struct ctl *ctl, const Kv__Wire__Object *o)
{
	FILE *stream = ctl->out.stream;

	fprintf(stream, LABEL "%s%s%s", "what", out_colour(&ctl->out, object_colour(o)),
		object_state(o), out_plain(&ctl->out, object_colour(o)));
	if (o->session)
		fprintf(stream, ", session %" PRIu64, o->session);
	fprintf(stream, ", number %s\n", object_number(o).s);
}

/* Nothing for a sequence that was only appended to. */
static void print_journal(const struct ctl *ctl, const Kv__Wire__Object *o)
{
	FILE *stream = ctl->out.stream;

	if (o->position != o->length_tokens)
		fprintf(stream, LABEL "%s (of the next token)\n", "position",
			units_count(o->position).s);
	if (o->journal_mode)
		fprintf(stream, LABEL "%s, %s in %s, %s in blocks\n", "journal",
			object_journal_mode(o), units_of(o->n_journal_rows, "row").s,
			units_bytes(o->n_journal_bytes).s, units_of(o->base_tokens, "token").s);
}

static void print_text(struct ctl *ctl, const Kv__Wire__Object *o, const Kv__Wire__Layout *layout)
{
	FILE *stream = ctl->out.stream;
	char hex[2 * 64 + 1];

	fprintf(stream, "%s%s%s\n", out_colour(&ctl->out, BOLD), object_label(o).s,
		out_plain(&ctl->out, BOLD));
	print_state(ctl, o);
	print_owner(ctl, o);
	fprintf(stream, LABEL "%s, update %s, %s\n", "tokens", units_count(o->length_tokens).s,
		units_count(o->update).s, units_of(o->n_marks, "mark").s);
	fprintf(stream, LABEL "%s in %s, %s shared with others\n", "size",
		units_bytes(o->n_bytes).s, units_of(o->n_runs, "run").s,
		units_bytes(o->n_shared_bytes).s);
	print_journal(ctl, o);
	fprintf(stream, LABEL "%s (forks and open handles)\n", "users", units_count(o->n_users).s);
	if (o->parent_id)
		fprintf(stream, LABEL "%s at update %s\n", "parent",
			parent_label(ctl, o->parent_id).s, units_count(o->parent_update).s);
	print_made(ctl, o);
	if (o->digest.len > 0 && o->digest.len <= 64) {
		units_hex(hex, o->digest.data, o->digest.len);
		fprintf(stream, LABEL "%s\n", "digest", hex);
	} else {
		fprintf(stream, LABEL "not known yet (kvcachectl verify)\n", "digest");
	}
	if (o->layout_hash.len > 0 && o->layout_hash.len <= 64) {
		units_hex(hex, o->layout_hash.data, o->layout_hash.len);
		fprintf(stream, LABEL "%s\n", "layout", hex);
	}
	if (layout)
		print_layout(ctl, layout);
}

static json_t *layout_json(const Kv__Wire__Layout *l)
{
	json_t *layers = json_array(), *planes = json_array(), *tags = json_object();

	for (size_t i = 0; i < l->n_layers; i++)
		json_array_append_new(layers,
				      json_pack("{s:I, s:I, s:I, s:I}", "n_query_groups",
						(json_int_t)l->layers[i]->n_query_groups, "k_width",
						(json_int_t)l->layers[i]->k_width, "v_width",
						(json_int_t)l->layers[i]->v_width, "bound_slots",
						(json_int_t)l->layers[i]->bound_slots));
	for (size_t i = 0; i < l->n_planes; i++)
		json_array_append_new(planes,
				      json_pack("{s:s, s:s, s:I}", "name",
						units_clean(l->planes[i]->name).s, "scope",
						l->planes[i]->scope == KV_PLANE_SLOT ? "slot" :
										       "sequence",
						"bytes", (json_int_t)l->planes[i]->bytes));
	for (size_t i = 0; i < l->n_tags; i++)
		json_object_set_new(tags, units_clean(l->tags[i]->key).s,
				    json_string(units_clean(l->tags[i]->value).s));
	return json_pack("{s:o, s:o, s:s, s:s, s:s, s:I, s:I, s:o, s:o}", "fingerprint",
			 object_hex(&l->fingerprint), "layers", layers, "dtype",
			 kv_dtype_name(l->dtype), "k_format", kv_format_name(l->k_format),
			 "v_format", kv_format_name(l->v_format), "block_tokens",
			 (json_int_t)l->block_tokens, "opaque_bytes", (json_int_t)l->opaque_bytes,
			 "planes", planes, "tags", tags);
}

/* One object; its JSON goes to the end of `shown`. */
static int show_one(struct ctl *ctl, const char *word, json_t *shown)
{
	Kv__Wire__Target target;
	Kv__Wire__Reply *reply = NULL, *layout = NULL;
	const Kv__Wire__Object *object;
	int code = CTL_OK;

	if (ctl_target(ctl, word, &target))
		return CTL_USAGE;
	object = object_ask(ctl, &target, &reply, &code);
	if (!object)
		goto out;
	layout = ask_layout(ctl, &object->layout_hash);
	if (ctl->json) {
		json_t *value = object_json(object);

		json_object_set_new(value, "layout",
				    layout ? layout_json(layout->layout->layout) : json_null());
		json_array_append_new(shown, value);
	} else {
		print_text(ctl, object, layout ? layout->layout->layout : NULL);
	}
out:
	ctl_free_reply(layout);
	ctl_free_reply(reply);
	return code;
}

int cmd_show(struct ctl *ctl, const struct ctl_args *args)
{
	json_t *shown = json_array();
	int code = CTL_OK;

	for (int i = 0; i < args->n_words && !code; i++) {
		if (i > 0 && !ctl->json)
			fputc('\n', ctl->out.stream);
		code = show_one(ctl, args->words[i], shown);
	}
	if (ctl->json && !code)
		ctl_print_json(ctl, json_pack("{s:o}", "objects", shown));
	else
		json_decref(shown);
	return code;
}
