/*
 * Saved snapshots: kvc_save and kvc_load are jobs of the daemon's (client/jobs.h); removal is one
 * question. Any thread.
 */
#include "client/error.h"
#include "client/handles.h"
#include "client/jobs.h"
#include "client/options.h"

static int fill_result(Kv__Wire__Reply *reply, struct kvc_saved_result *result)
{
	struct kvc_saved_result unwanted;
	int rc;

	if (!reply)
		return -1;
	if (!result)
		result = &unwanted;
	*result = (struct kvc_saved_result){
		.n_bytes = reply->job->n_total_bytes,
		.n_blocks = reply->job->n_blocks,
		.n_known = reply->job->n_known,
	};
	rc = jobs_digest(reply->job, result->digest);
	rpc_reply_free(reply);
	return rc;
}

int kvc_save(kvc_session *session, const char *source, const struct kvc_save_options *given,
	     int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg,
	     struct kvc_saved_result *result)
{
	const struct jobs_watch watch = {progress, arg, "save",
					 "repeat the call, with replace if it had come to its end"};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Save command = KV__WIRE__SAVE__INIT;
	struct kvc_save_options options;
	Kv__Wire__Request request;

	if (session_check(session) ||
	    options_take(given, "kvc_save_options", sizeof(options), &options, sizeof(options)) ||
	    handles_target(&target, source) || handles_name(options.name, &command.name))
		return -1;
	command.source = &target;
	command.replace = options.replace != 0;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVE;
	request.save = &command;
	return fill_result(jobs_run(session, &request, &watch), result);
}

int kvc_load(kvc_session *session, const char *name, const struct kvc_load_options *given,
	     int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg,
	     struct kvc_saved_result *result)
{
	const struct jobs_watch watch = {progress, arg, "load",
					 "repeat the call, with replace if it had come to its end"};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Load command = KV__WIRE__LOAD__INIT;
	struct kvc_load_options options;
	Kv__Wire__Request request;

	if (session_check(session) ||
	    options_take(given, "kvc_load_options", sizeof(options), &options, sizeof(options)) ||
	    handles_target(&target, name) || handles_name(options.name, &command.as_name))
		return -1;
	command.name = target.name;
	command.replace = options.replace != 0;
	command.n_tokens = options.n_tokens;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_LOAD;
	request.load = &command;
	return fill_result(jobs_run(session, &request, &watch), result);
}

int kvc_saved_remove(kvc_session *session, const char *name)
{
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__SavedRemove command = KV__WIRE__SAVED_REMOVE__INIT;
	Kv__Wire__Request request;

	if (session_check(session) || handles_target(&target, name))
		return -1;
	command.name = target.name;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_SAVED_REMOVE;
	request.saved_remove = &command;
	return rpc_do(session, &request);
}
