/*
 * kvcachectl rm, saved rm: removes what is named, one after the other; one that is refused does not
 * stop the rest.
 */
#include "client/ctl/ctl.h"

/* Asks to remove one. CTL_OK, CTL_FAILED with err, or CTL_USAGE, said already. */
typedef int remove_fn(struct ctl *ctl, const char *word, struct errbuf *err);

static int ask(struct ctl *ctl, const char *word, Kv__Wire__Request *request, struct errbuf *err)
{
	Kv__Wire__Reply *reply = NULL;

	if (ctl->call(ctl, request, &reply, err)) {
		errbuf_wrap(err, "%s", word);
		return CTL_FAILED;
	}
	ctl_free_reply(reply);
	return CTL_OK;
}

static int remove_object(struct ctl *ctl, const char *word, struct errbuf *err)
{
	Kv__Wire__Remove message = KV__WIRE__REMOVE__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target;

	if (ctl_target(ctl, word, &target))
		return CTL_USAGE;
	message.source = &target;
	request.command_case = KV__WIRE__REQUEST__COMMAND_REMOVE;
	request.remove = &message;
	return ask(ctl, word, &request, err);
}

static int remove_saved(struct ctl *ctl, const char *word, struct errbuf *err)
{
	Kv__Wire__SavedRemove message = KV__WIRE__SAVED_REMOVE__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Target target;

	if (ctl_new_name(ctl, word, &target))
		return CTL_USAGE;
	message.name = target.name;
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVED_REMOVE;
	request.saved_remove = &message;
	return ask(ctl, word, &request, err);
}

static int remove_all(struct ctl *ctl, const struct ctl_args *args, remove_fn *fn)
{
	json_t *removed = json_array(), *refused = json_array();
	int code = CTL_OK;

	for (int i = 0; i < args->n_words; i++) {
		struct errbuf err = {KV_OK, ""};
		int one = fn(ctl, args->words[i], &err);

		if (one == CTL_FAILED) {
			fprintf(ctl->out.errors, "kvcachectl: %s\n", units_clean(err.text).s);
			json_array_append_new(refused,
					      json_pack("{s:s, s:s, s:s}", "name", args->words[i],
							"status", kv_status_name(err.status),
							"text", units_clean(err.text).s));
		} else if (one == CTL_OK) {
			json_array_append_new(removed, json_string(args->words[i]));
			if (!ctl->json)
				fprintf(ctl->out.stream, "%s: removed\n", args->words[i]);
		}
		if (one != CTL_OK)
			code = err.status == KV_EDAEMON ? CTL_NO_DAEMON : one;
		if (one == CTL_USAGE || err.status == KV_EDAEMON)
			break;
	}
	if (ctl->json)
		ctl_print_json(ctl,
			       json_pack("{s:o, s:o}", "removed", removed, "refused", refused));
	else {
		json_decref(removed);
		json_decref(refused);
	}
	return code;
}

int cmd_rm(struct ctl *ctl, const struct ctl_args *args)
{
	return remove_all(ctl, args, remove_object);
}

int cmd_saved_rm(struct ctl *ctl, const struct ctl_args *args)
{
	return remove_all(ctl, args, remove_saved);
}
