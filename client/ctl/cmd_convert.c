/*
 * kvcachectl convert: a new sequence with the tokens of a snapshot or of a waiting sequence, in
 * other formats or blocks. An interrupt cancels and leaves nothing.
 */
#include "client/ctl/geometry.h"
#include "client/ctl/held.h"
#include "client/ctl/object.h"
#include "client/ctl/progress.h"
#include "proto/format.h"
#include "proto/limits.h"

struct wanted {
	uint32_t k_format, v_format, block_tokens;
	const char *name;
};

struct bar {
	const struct ctl *ctl;
	const char *label;
};

static int go_on(void *arg, uint64_t n_done, uint64_t n_tokens)
{
	const struct bar *bar = arg;

	progress_draw(bar->ctl, bar->label, n_done, n_tokens);
	return progress_interrupted();
}

/* The library would find out at the end, when all the work is done. */
static int check_free(struct ctl *ctl, const char *name)
{
	Kv__Wire__Show message = KV__WIRE__SHOW__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	struct errbuf err = {KV_OK, ""};
	Kv__Wire__Reply *reply = NULL;
	Kv__Wire__Target target;

	if (ctl_new_name(ctl, name, &target))
		return CTL_USAGE;
	message.source = &target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SHOW;
	request.show = &message;
	if (ctl->call(ctl, &request, &reply, &err) == 0) {
		ctl_free_reply(reply);
		errbuf_set(&err, KV_EEXIST, "the name %s is taken", name);
		return ctl_fail(ctl, &err);
	}
	return err.status == KV_ENOTFOUND ? CTL_OK : ctl_fail(ctl, &err);
}

static kvc_layout *layout_for(struct ctl *ctl, const struct held *held, const struct wanted *wanted,
			      int *code)
{
	struct geometry geometry;
	Kv__Wire__Reply *reply;
	kvc_layout *layout;

	if (geometry_ask(ctl, kvc_layout_hash(kvc_seq_layout(held->seq)), 32, &reply, code))
		return NULL;
	geometry_of_wire(&geometry, reply->layout->layout);
	if (wanted->k_format) {
		geometry.options.k_format = wanted->k_format;
		geometry.options.v_format = wanted->v_format;
	}
	if (wanted->block_tokens)
		geometry.options.block_tokens = wanted->block_tokens;
	layout = kvc_layout_register(ctl->session, &geometry.options);
	if (!layout)
		*code = held_fail(ctl, held->name);
	geometry_fini(&geometry);
	ctl_free_reply(reply);
	return layout;
}

static void print_done(struct ctl *ctl, const struct held *held, const char *name, kvc_seq *made)
{
	const kvc_layout *from = kvc_seq_layout(held->seq), *to = kvc_seq_layout(made);
	struct kvc_layer_view view;

	if (kvc_view_table(made, 0, &view))
		return;
	if (ctl->json) {
		ctl_print_json(ctl, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I}", "source",
					      held->name, "name", name, "k_format",
					      kv_format_name(view.k_format), "v_format",
					      kv_format_name(view.v_format), "block_tokens",
					      (json_int_t)view.block_tokens, "length_tokens",
					      (json_int_t)view.length_tokens, "token_bytes",
					      (json_int_t)kvc_layout_token_bytes(to),
					      "source_token_bytes",
					      (json_int_t)kvc_layout_token_bytes(from)));
		return;
	}
	fprintf(ctl->out.stream, "%s: %s from %s, K %s, V %s", name,
		units_of(view.length_tokens, "token").s, held->name, kv_format_name(view.k_format),
		kv_format_name(view.v_format));
	fprintf(ctl->out.stream, ", %s a token", units_bytes(kvc_layout_token_bytes(to)).s);
	fprintf(ctl->out.stream, " (%s before)\n", units_bytes(kvc_layout_token_bytes(from)).s);
}

static int convert(struct ctl *ctl, const struct held *held, const struct wanted *wanted)
{
	struct kvc_seq_options options = {.size = sizeof(options), .name = wanted->name};
	struct bar bar = {ctl, held->name};
	struct progress progress;
	kvc_layout *layout;
	kvc_seq *made;
	int code = CTL_OK;

	layout = layout_for(ctl, held, wanted, &code);
	if (!layout)
		return code;
	progress_begin(&progress);
	made = kvc_convert(held->seq, layout, &options, go_on, &bar);
	progress_clear(ctl);
	progress_end(&progress);
	if (!made)
		return held_fail(ctl, held->name);
	print_done(ctl, held, wanted->name, made);
	kvc_seq_free(made);
	return CTL_OK;
}

int cmd_convert(struct ctl *ctl, const struct ctl_args *args)
{
	struct wanted wanted = {.name = args->words[1]};
	uint64_t block_tokens;
	struct held held;
	int code;

	if (!ctl_option(args, "format") && !ctl_option(args, "block-tokens"))
		return ctl_usage(ctl, args->command, "convert needs --format or --block-tokens");
	if (geometry_formats(ctl, args, &wanted.k_format, &wanted.v_format) ||
	    ctl_option_number(ctl, args, "block-tokens", 1, KV_BLOCK_TOKENS_MAX, 0, &block_tokens))
		return CTL_USAGE;
	wanted.block_tokens = (uint32_t)block_tokens;
	code = check_free(ctl, wanted.name);
	if (code || held_open(ctl, args->words[0], HELD_READ, &held, &code))
		return code;
	code = convert(ctl, &held, &wanted);
	held_close(&held);
	return code;
}
