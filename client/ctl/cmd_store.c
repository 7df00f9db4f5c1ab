/* kvcachectl store check, repair, stats: the disk pool as a whole. */
#include "client/ctl/disk.h"
#include "client/ctl/job.h"
#include "client/ctl/progress.h"

/* ---- check, repair ------------------------------------------------------------------------ */

static void print_result(const struct ctl *ctl, const Kv__Wire__JobResult *job)
{
	bool damaged = job->status != KV_OK;
	enum colour colour = damaged ? RED : GREEN;

	fprintf(ctl->out.stream, "%s in %s read: %s%s%s\n", units_bytes(job->n_total_bytes).s,
		units_of(job->n_blocks, "block").s, out_colour(&ctl->out, colour),
		damaged ? "DAMAGED" : "intact", out_plain(&ctl->out, colour));
	if (damaged)
		fprintf(ctl->out.stream, "    %s\n", units_clean(job->detail).s);
}

/* Damage that was found is no failure of the job: its status says so. */
static int run_check(struct ctl *ctl, const char *label, bool repair)
{
	Kv__Wire__StoreCheck message = KV__WIRE__STORE_CHECK__INIT;
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	struct errbuf err = {KV_OK, ""};
	struct progress progress;
	Kv__Wire__Reply *reply;
	int code;

	message.repair = repair;
	request.command_case = KV__WIRE__REQUEST__COMMAND_STORE_CHECK;
	request.store_check = &message;
	progress_begin(&progress);
	reply = job_run(ctl, label, &request, &err);
	progress_end(&progress);
	if (!reply)
		return ctl_fail(ctl, &err);
	code = reply->job->status == KV_OK ? CTL_OK : CTL_CORRUPT;
	if (ctl->json)
		ctl_print_json(ctl, json_pack("{s:b, s:I, s:I, s:s}", "intact", code == CTL_OK,
					      "n_bytes", (json_int_t)reply->job->n_total_bytes,
					      "n_blocks", (json_int_t)reply->job->n_blocks, "text",
					      units_clean(reply->job->detail).s));
	else
		print_result(ctl, reply->job);
	ctl_free_reply(reply);
	return code;
}

int cmd_store_check(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return run_check(ctl, "store check", false);
}

int cmd_store_repair(struct ctl *ctl, const struct ctl_args *args)
{
	(void)args;
	return run_check(ctl, "store repair", true);
}

/* ---- stats -------------------------------------------------------------------------------- */

int cmd_store_stats(struct ctl *ctl, const struct ctl_args *args)
{
	Kv__Wire__Reply *reply;
	int code;

	(void)args;
	if (ctl_ask_status(ctl, &reply, &code))
		return code;
	if (ctl->json)
		ctl_print_json(ctl,
			       json_pack("{s:o}", "disk", disk_json(reply->status_result->disk)));
	else
		disk_print(ctl, reply->status_result->disk, true);
	ctl_free_reply(reply);
	return CTL_OK;
}
