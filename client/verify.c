/* kvc_verify: the daemon reads what it stores and compares digests (client/jobs.h). Any thread. */
#include "client/error.h"
#include "client/handles.h"
#include "client/jobs.h"

static int fill_result(const Kv__Wire__JobResult *job, struct kvc_verify_result *result)
{
	*result = (struct kvc_verify_result){
		.n_bytes = job->n_total_bytes,
		.n_blocks = job->n_blocks,
		.n_known = job->n_known,
		.n_bad = job->n_bad_blocks,
		.first_bad_token = UINT64_MAX,
	};
	if (jobs_digest(job, result->digest))
		return -1;
	for (size_t i = 0; i < job->n_bad; i++)
		if (job->bad[i]->first_token < result->first_bad_token)
			result->first_bad_token = job->bad[i]->first_token;
	if (result->n_bad == 0)
		return 0;
	return kvc_fail(KV_ECORRUPT,
			"%llu of %llu blocks are not what was stored; the first holds token %llu",
			(unsigned long long)result->n_bad, (unsigned long long)result->n_blocks,
			(unsigned long long)result->first_bad_token);
}

int kvc_verify(kvc_session *session, const char *name,
	       int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes), void *arg,
	       struct kvc_verify_result *result)
{
	const struct jobs_watch watch = {progress, arg, "verification", NULL};
	Kv__Wire__Target target = KV__WIRE__TARGET__INIT;
	Kv__Wire__Verify command = KV__WIRE__VERIFY__INIT;
	struct kvc_verify_result unwanted;
	Kv__Wire__Request request;
	Kv__Wire__Reply *reply;
	int rc;

	if (session_check(session) || handles_target(&target, name))
		return -1;
	command.source = &target;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_VERIFY;
	request.verify = &command;
	reply = jobs_run(session, &request, &watch);
	if (!reply)
		return -1;
	rc = fill_result(reply->job, result ? result : &unwanted);
	rpc_reply_free(reply);
	return rc;
}
