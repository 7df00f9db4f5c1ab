/*
 * kvcachectl demo: the main job, told and proved. One process computes a prompt and goes, four
 * others decode from its memory at the same time, and everything is compared bit for bit with
 * processes that worked alone.
 *
 * First act: four processes alone; process A; four samplers together; then the daemon is asked.
 * Second act: the same with a prompt in 8 bits and replay journals over it (one process computes
 * all four samples alone), and each storage format scores the text. Third act: decoding with
 * drafts, and caches with a quarter of the slots. Fourth act: the prompt is saved, all processes and
 * the daemon are stopped, and four samplers do what they did on what a new daemon has loaded.
 * Nothing is left behind, whatever happens: processes end with this one, the private daemon is stopped, the folder is
 * removed. Exit code 4 if a bit differs.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/demo.h"
#include "client/kvcache.h"

struct demo {
	struct ctl *ctl;
	struct demo_settings settings;
	struct demo_result result;
	struct demo_daemon daemon;
	bool has_objects;
};

static void say(const struct demo *demo, const char *text)
{
	if (demo->ctl->out.progress && !demo->ctl->json)
		fprintf(demo->ctl->out.errors, "\r\033[K%s", text);
}

const uint32_t demo_formats[DEMO_FORMATS] = {KV_FORMAT_RAW, KV_FORMAT_INT8, KV_FORMAT_INT8_MODEL,
					     KV_FORMAT_U8,  KV_FORMAT_FP8,  KV_FORMAT_U4,
					     KV_FORMAT_Q4};

/* ---- the acts ----------------------------------------------------------------------------- */

/* Starts four of one role; they work at the same time; when all have told, they wait. */
static int act_four(struct demo *demo, struct demo_process kind, struct demo_process *four,
		    double *seconds, uint64_t *pss_bytes, struct errbuf *err)
{
	double start_s;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++) {
		four[i] = kind;
		four[i].index = i;
		four[i].drafts = kind.role == DEMO_SAMPLE && (i == 0 || kind.act == 2);
		if (demo_spawn(&four[i], &demo->settings, err))
			return -1;
	}
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		if (demo_hear(&four[i], err))
			return -1;
	start_s = demo_now_s();
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		demo_go_on(&four[i]);
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		if (demo_hear(&four[i], err))
			return -1;
	*seconds = demo_now_s() - start_s;
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		*pss_bytes += demo_pss_bytes(four[i].pid);
	return 0;
}

static int act_end(struct demo_process *four, struct errbuf *err)
{
	int rc = 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		demo_go_on(&four[i]);
	for (unsigned i = 0; i < DEMO_SAMPLERS; i++)
		if (demo_wait(&four[i], err))
			rc = -1;
	return rc;
}

/* One process: told, gone and waited for. */
static int act_one(struct demo *demo, struct demo_process kind, struct demo_process *one,
		   double *seconds, struct errbuf *err)
{
	double start_s = demo_now_s();

	*one = kind;
	demo->has_objects |= kind.role == DEMO_PREFILL;
	if (demo_spawn(one, &demo->settings, err) || demo_hear(one, err) || demo_wait(one, err))
		return -1;
	*seconds = demo_now_s() - start_s;
	return 0;
}

/* All formats at the same time. */
static int act_formats(struct demo *demo, struct errbuf *err)
{
	struct demo_process *formats = demo->result.formats;
	double start_s = demo_now_s();

	for (unsigned i = 0; i < DEMO_FORMATS; i++) {
		formats[i] = (struct demo_process){.role = DEMO_SCORE, .act = 2, .index = i};
		if (demo_spawn(&formats[i], &demo->settings, err))
			return -1;
	}
	for (unsigned i = 0; i < DEMO_FORMATS; i++)
		if (demo_hear(&formats[i], err) || demo_wait(&formats[i], err))
			return -1;
	demo->result.formats_s = demo_now_s() - start_s;
	return 0;
}

/* One after the other: they are timed. */
static int act_policies(struct demo *demo, struct errbuf *err)
{
	double start_s = demo_now_s(), seconds;

	for (unsigned i = 0; i < DEMO_POLICIES; i++)
		if (act_one(demo, (struct demo_process){.role = DEMO_EVICT, .act = 3, .index = i},
			    &demo->result.evict.policies[i], &seconds, err))
			return -1;
	demo->result.evict.policies_s = demo_now_s() - start_s;
	return 0;
}

/* ---- the whole ---------------------------------------------------------------------------- */

static int set_up(struct demo *demo, struct errbuf *err)
{
	struct demo_settings *s = &demo->settings;
	const char *parent = getenv("TMPDIR");

	/* Sockets lie below it, so a long TMPDIR is of no use. */
	if (!parent || strlen(parent) > sizeof(s->dir) - sizeof("/kvcache-demo-XXXXXX"))
		parent = "/tmp";
	snprintf(s->dir, sizeof(s->dir), "%s/kvcache-demo-XXXXXX", parent);
	if (!mkdtemp(s->dir)) {
		s->dir[0] = '\0';
		return errbuf_errno(err, KV_EINTERNAL, errno, "mkdtemp in %s", parent);
	}
	if (demo->ctl->runtime_dir) {
		snprintf(s->runtime_dir, sizeof(s->runtime_dir), "%s", demo->ctl->runtime_dir);
		snprintf(s->prefix, sizeof(s->prefix), "demo-%d", (int)getpid());
		return 0;
	}
	snprintf(s->runtime_dir, sizeof(s->runtime_dir), "%s/run", s->dir);
	snprintf(s->prefix, sizeof(s->prefix), "demo");
	demo->ctl->runtime_dir = s->runtime_dir;
	return 0;
}

#define ACT(number, who) ((struct demo_process){.role = (who), .act = (number)})

static int first_act(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;
	bool own_daemon = demo->settings.prefix[4] == '\0';
	double look_s;

	say(demo, "four processes compute the prompt and sample, each alone ...");
	if (act_four(demo, ACT(1, DEMO_PRIVATE), r->alone, &r->alone_s, &r->alone_pss_bytes, err) ||
	    act_end(r->alone, err))
		return -1;
	if (own_daemon && demo_daemon_start(&demo->daemon, demo->ctl, &demo->settings, err))
		return -1;
	say(demo, "process A computes the prompt, publishes it and goes ...");
	if (act_one(demo, ACT(1, DEMO_PREFILL), &r->first, &r->first_s, err))
		return -1;
	say(demo, "four processes fork the prompt and sample ...");
	if (act_four(demo, ACT(1, DEMO_SAMPLE), r->together, &r->together_s, &r->together_pss_bytes,
		     err))
		return -1;
	return act_one(demo, ACT(1, DEMO_LOOK), &r->look, &look_s, err);
}

static int second_act(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;
	uint64_t pss_bytes = 0;
	double look_s;

	say(demo, "one process samples four times over a prompt in 8 bits, alone ...");
	if (act_one(demo, ACT(2, DEMO_PRIVATE), &r->journal.alone, &r->journal.alone_s, err))
		return -1;
	say(demo, "process B computes the prompt in 8 bits, publishes it and goes ...");
	if (act_one(demo, ACT(2, DEMO_PREFILL), &r->journal.first, &r->journal.first_s, err))
		return -1;
	say(demo, "four processes fork it, each with a replay journal ...");
	if (act_four(demo, ACT(2, DEMO_SAMPLE), r->journal.together, &r->journal.together_s,
		     &pss_bytes, err) ||
	    act_one(demo, ACT(2, DEMO_LOOK), &r->journal.look, &look_s, err))
		return -1;
	say(demo, "each storage format scores the text ...");
	return act_formats(demo, err);
}

static int third_act(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;

	say(demo, "one process decodes, plain and with drafts of a small model ...");
	if (act_one(demo, ACT(3, DEMO_DRAFTS), &r->evict.drafts, &r->evict.drafts_s, err))
		return -1;
	say(demo, "a quarter of the slots, under a policy ...");
	return act_policies(demo, err);
}

/* The tree is drawn while the forks are there. */
static int end_samplers(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;
	double seconds;

	if (act_one(demo, ACT(1, DEMO_TREE), &r->tree, &seconds, err))
		return -1;
	return act_end(r->together, err) || act_end(r->journal.together, err) ? -1 : 0;
}

static int restart_daemon(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;
	double start_s = demo_now_s();

	demo_daemon_stop(&demo->daemon);
	r->disk.stop_s = demo_now_s() - start_s;
	start_s = demo_now_s();
	if (demo_daemon_start(&demo->daemon, demo->ctl, &demo->settings, err))
		return -1;
	r->disk.start_s = demo_now_s() - start_s;
	return 0;
}

/* What cannot be saved, because it was damaged, is not loaded either: the report says so. */
static int fourth_act(struct demo *demo, struct errbuf *err)
{
	struct demo_result *r = &demo->result;
	uint64_t pss_bytes = 0;
	double seconds;

	r->disk.is_skipped = demo->daemon.pid <= 0;
	if (r->disk.is_skipped)
		return 0;
	say(demo, "the prompt is saved, everything stopped, started again, and loaded ...");
	if (act_one(demo, ACT(4, DEMO_SAVE), &r->disk.save, &seconds, err))
		return -1;
	demo->settings.saved = r->disk.save.report.disk;
	if (r->disk.save.report.disk.is_refused)
		return 0;
	if (restart_daemon(demo, err) ||
	    act_one(demo, ACT(4, DEMO_LOAD), &r->disk.load, &seconds, err))
		return -1;
	say(demo, "four processes fork what was loaded and sample ...");
	if (act_four(demo, ACT(4, DEMO_SAMPLE), r->disk.again, &r->disk.again_s, &pss_bytes, err) ||
	    act_end(r->disk.again, err))
		return -1;
	return act_one(demo, ACT(4, DEMO_DAMAGE), &r->disk.damage, &seconds, err);
}

static int acts(struct demo *demo, struct errbuf *err)
{
	if (first_act(demo, err) || second_act(demo, err) || third_act(demo, err) ||
	    end_samplers(demo, err) || fourth_act(demo, err))
		return -1;
	say(demo, "");
	return 0;
}

/* Removes the names; on a private daemon they go with it. Errors are of no use to anybody here.
 * No process is forked any more: this one may open a session. */
static void remove_objects(struct demo *demo)
{
	struct kvc_session_options options = {.size = sizeof(options)};

	if (!demo->has_objects || demo->settings.keep || demo->daemon.pid > 0)
		return;
	options.runtime_dir = demo->settings.runtime_dir;
	options.deadline_ms = demo->settings.deadline_ms;
	demo->ctl->session = kvc_open(&options);
	if (!demo->ctl->session)
		return;
	for (unsigned i = 0; i <= 2 * DEMO_SAMPLERS + 1; i++) {
		const char *act = i > DEMO_SAMPLERS ? "int8/" : "";
		unsigned number = i % (DEMO_SAMPLERS + 1);
		char *name = number == 0 ? ctl_format("%s/%sprompt", demo->settings.prefix, act) :
					   ctl_format("%s/%ssample-%u", demo->settings.prefix, act,
						      number);

		kvc_remove(demo->ctl->session, name);
		free(name);
	}
}

static void tear_down(struct demo *demo)
{
	struct demo_result *r = &demo->result;
	bool keep = demo->settings.keep && demo->daemon.pid > 0;

	for (unsigned i = 0; i < DEMO_SAMPLERS; i++) {
		demo_kill(&r->alone[i]);
		demo_kill(&r->together[i]);
		demo_kill(&r->journal.together[i]);
		demo_kill(&r->disk.again[i]);
	}
	for (unsigned i = 0; i < DEMO_FORMATS; i++)
		demo_kill(&r->formats[i]);
	demo_kill(&r->first);
	demo_kill(&r->look);
	demo_kill(&r->journal.alone);
	demo_kill(&r->journal.first);
	demo_kill(&r->journal.look);
	demo_kill(&r->evict.drafts);
	demo_kill(&r->tree);
	demo_kill(&r->disk.save);
	demo_kill(&r->disk.load);
	demo_kill(&r->disk.damage);
	for (unsigned i = 0; i < DEMO_POLICIES; i++)
		demo_kill(&r->evict.policies[i]);
	remove_objects(demo);
	kvc_close(demo->ctl->session);
	demo->ctl->session = NULL;
	demo->ctl->runtime_dir = NULL;
	if (keep)
		return;
	demo_daemon_stop(&demo->daemon);
	if (demo->settings.dir[0])
		demo_remove_dir(demo->settings.dir);
}

static void print_kept(const struct demo *demo)
{
	const struct demo_settings *s = &demo->settings;

	if (!s->keep || demo->ctl->json)
		return;
	fprintf(demo->ctl->out.stream, "\nKept: kvcachectl --runtime-dir %s ls\n", s->runtime_dir);
	if (demo->daemon.pid > 0)
		fprintf(demo->ctl->out.stream, "To end it: kill %d && rm -r %s\n",
			(int)demo->daemon.pid, s->dir);
}

static void print_tree(const struct demo *demo)
{
	char *path = ctl_format("%s/tree", demo->settings.dir), line[512];
	FILE *file = fopen(path, "re");

	demo_heading(demo->ctl, "The forks");
	while (file && fgets(line, sizeof(line), file))
		fputs(line, demo->ctl->out.stream);
	if (file)
		fclose(file);
	free(path);
}

static void report(const struct demo *demo)
{
	struct ctl *ctl = demo->ctl;

	if (ctl->json) {
		demo_print_json(ctl, &demo->settings, &demo->result);
		return;
	}
	demo_print_table(ctl, &demo->settings, &demo->result);
	print_tree(demo);
	demo_print_samples(ctl, &demo->settings, &demo->result);
	demo_print_journal(ctl, &demo->settings, &demo->result);
	demo_print_formats(ctl, &demo->settings, &demo->result);
	demo_print_evict(ctl, &demo->result);
	demo_print_disk(ctl, &demo->settings, &demo->result);
}

static bool is_good(const struct demo_result *r)
{
	return demo_is_good(r) && demo_journal_is_good(r) && demo_evict_is_good(r) &&
	       demo_disk_is_good(r);
}

static int find_files(struct demo *demo, const struct ctl_args *args, struct errbuf *err)
{
	struct demo_settings *s = &demo->settings;
	const struct {
		const char *option, *file;
		char *path;
	} files[] = {{"model", "kjv-3m.safetensors", s->model},
		     {"draft", "kjv-draft.safetensors", s->draft},
		     {"tokenizer", "tokenizer.txt", s->tokenizer},
		     {"prompt", "prompt.txt", s->prompt}};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		const char *given = ctl_option(args, files[i].option);

		if (given)
			snprintf(files[i].path, PATH_MAX, "%s", given);
		else if (demo_find_file(files[i].path, files[i].file, err))
			return -1;
	}
	return 0;
}

int cmd_demo(struct ctl *ctl, const struct ctl_args *args)
{
	struct demo *demo = ctl_alloc(1, sizeof(*demo));
	struct demo_settings *s = &demo->settings;
	struct errbuf err = {KV_OK, ""};
	uint64_t n_tokens;
	int code = CTL_USAGE;

	demo->ctl = s->ctl = ctl;
	s->deadline_ms = ctl->deadline_ms;
	s->keep = ctl_option(args, "keep") != NULL;
	s->flips = ctl_option(args, "flip-bit") != NULL;
	if (ctl_option_number(ctl, args, "tokens", DEMO_TOKENS_MIN, DEMO_TOKENS_MAX, 200,
			      &n_tokens) ||
	    ctl_option_number(ctl, args, "flip-bit", 0, UINT32_MAX, 0, &s->flip_token))
		goto out;
	s->n_tokens = (size_t)n_tokens;
	demo_signals(true);
	if (find_files(demo, args, &err) || set_up(demo, &err) || acts(demo, &err)) {
		say(demo, "");
		code = ctl_fail(ctl, &err);
	} else {
		report(demo);
		code = is_good(&demo->result) ? CTL_OK : CTL_CORRUPT;
		print_kept(demo);
	}
	tear_down(demo);
	demo_signals(false);
out:
	free(demo);
	return code;
}
