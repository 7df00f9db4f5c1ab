/*
 * What the demonstration asks the daemon, in a process of its own: the program that tells the
 * story has no session before the last of its processes was forked.
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "client/ctl/demo_role.h"
#include "client/ctl/object.h"
#include "client/examples/kv_sequence.h"

Kv__Wire__Reply *role_ask_status(struct role *r, struct errbuf *err)
{
	Kv__Wire__Status message = KV__WIRE__STATUS__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	struct ctl *ctl = r->settings->ctl;
	Kv__Wire__Reply *reply;

	request.command_case = KV__WIRE__REQUEST__COMMAND_STATUS;
	request.status = &message;
	ctl->session = r->session;
	return ctl->call(ctl, &request, &reply, err) ? NULL : reply;
}

static int ask_gauges(struct role *r, struct errbuf *err)
{
	Kv__Wire__Reply *reply = role_ask_status(r, err);

	if (!reply)
		return -1;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_STATUS_RESULT) {
		r->report.live_bytes = reply->status_result->pool_live_bytes;
		r->report.gauge_cached_bytes = reply->status_result->pool_cached_bytes;
		r->report.reserved_bytes = reply->status_result->pool_reserved_bytes;
		r->report.daemon_pss_bytes = demo_daemon_pss_bytes(
			(pid_t)reply->status_result->core_pid);
	}
	ctl_free_reply(reply);
	return 0;
}

static int ask_verify(struct role *r, struct errbuf *err)
{
	char *name = role_name(r, "prompt");
	struct kvc_verify_result found = {0};
	int rc = kvc_verify(r->session, name, NULL, NULL, &found);

	free(name);
	if (rc && kvc_error() != KVC_ECORRUPT)
		return kv_sequence_error(err);
	r->report.verify_bytes = found.n_bytes;
	r->report.verify_blocks = found.n_blocks;
	r->report.verify_known = found.n_known;
	r->report.verify_bad = found.n_bad;
	r->report.verify_bad_token = found.first_bad_token;
	return 0;
}

int play_look(struct role *r, struct errbuf *err)
{
	return role_attach(r, err) || ask_gauges(r, err) || ask_verify(r, err) ? -1 : 0;
}

static uint64_t now_unix_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* What is drawn is in the file when this process has gone. */
int play_tree(struct role *r, struct errbuf *err)
{
	struct ctl ctl = *r->settings->ctl;
	char *path = ctl_format("%s/tree", r->settings->dir);
	json_t *json = NULL;
	int code, rc = role_attach(r, err);

	ctl.out.stream = rc == 0 ? fopen(path, "we") : NULL;
	if (rc == 0 && !ctl.out.stream)
		rc = errbuf_errno(err, KV_EINTERNAL, errno, "%s", path);
	free(path);
	if (rc)
		return rc;
	ctl.session = r->session;
	ctl.now_unix_ns = now_unix_ns();
	if (tree_show(&ctl, NULL, ctl.json ? &json : NULL, &code))
		rc = errbuf_set(err, KV_EINTERNAL, "the tree cannot be drawn");
	if (json)
		json_dumpf(json, ctl.out.stream, JSON_COMPACT);
	json_decref(json);
	if (fclose(ctl.out.stream) && rc == 0)
		rc = errbuf_errno(err, KV_EINTERNAL, errno, "the file of the tree");
	return rc;
}
