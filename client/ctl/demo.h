/*
 * The parts of kvcachectl demo: processes with roles (demo_process.c), what they do
 * (demo_role.c and, for the second act, the third, the fourth and what is asked of the daemon,
 * demo_journal.c, demo_evict.c, demo_disk.c and demo_look.c), a private daemon (demo_daemon.c), the
 * report (demo_print.c, demo_print_journal.c, demo_print_evict.c, demo_print_disk.c, demo_json.c).
 * The flow is in cmd_demo.c.
 *
 * The program that tells the story opens no session before the last of its processes has been
 * forked, so no child inherits a messaging library that has been used.
 */
#ifndef KV_CTL_DEMO_H
#define KV_CTL_DEMO_H

#include <limits.h>
#include <sys/types.h>

#include "client/ctl/ctl.h"
#include "proto/format.h"

#define DEMO_SAMPLERS 4
#define DEMO_TOKENS_MIN 20
#define DEMO_TOKENS_MAX 400
#define DEMO_DRAFT_AFTER 8 /* tokens before the draft */
#define DEMO_DRAFT 8
#define DEMO_DRAFT_WRONG 5 /* of those, rolled back */
#define DEMO_TEMPERATURE 0.8
#define DEMO_JOURNAL_FORMAT KV_FORMAT_INT8 /* of the second act's prompt */
#define DEMO_FORMATS KV_FORMAT_MAX
#define DEMO_SCORE_TOKENS 640 /* of the prompt's text, for the table of formats */

/* Of the third act. */
#define DEMO_PROMPTS 2    /* raw; quantised, below a replay journal */
#define DEMO_DRAFT_STEP 2 /* tokens drafted in a step */
#define DEMO_POLICIES 3

/* In the order of the tables. NULL: no policy, all tokens are kept. */
extern const uint32_t demo_formats[DEMO_FORMATS];
extern const char *const demo_policies[DEMO_POLICIES];

/* Of the fourth act: a save, or a load. */
struct demo_disk {
	double seconds;
	uint64_t n_bytes, n_blocks;
	uint64_t used_bytes; /* of the disk pool, behind the save */
	uint8_t digest[16];
	char io[64];     /* how the daemon transfers */
	bool is_refused; /* for damage */
	char refusal[256];
};

struct demo_settings {
	char model[PATH_MAX], draft[PATH_MAX], tokenizer[PATH_MAX], prompt[PATH_MAX];
	struct ctl *ctl;
	size_t n_tokens;
	bool keep, flips;
	uint64_t flip_token;
	char dir[64]; /* temporary; logits and bytes of the private runs */
	char runtime_dir[PATH_MAX];
	char prefix[32]; /* of object names, without the slash */
	uint32_t deadline_ms;
	struct demo_disk saved; /* once the prompt has been */
};

/* Greedy decoding behind a prompt, plain and with drafts. */
struct demo_drafts {
	double plain_s, drafted_s;
	uint64_t n_tokens, n_drafted, n_accepted;
	uint64_t n_rows, n_rows_differ, n_ids_differ; /* with drafts, compared with plain */
	uint64_t cache_bytes, journal_bytes;          /* of the main model */
};

/* What a process says about itself; one packet. */
struct demo_report {
	bool failed;
	struct errbuf err;
	double load_s, prefill_s, first_s,
		decode_s; /* first_s: from the start to the first token */
	uint64_t n_prompt_tokens, n_layers, n_kv_heads, head_dim, vocab;
	uint64_t cache_bytes, token_bytes, block_tokens;
	uint64_t n_copied_bytes;
	uint64_t n_rows, n_rows_differ;        /* logits compared */
	uint64_t n_kv_bytes, n_kv_rows_differ; /* K and V of the prompt compared */
	uint64_t first_kv_differs;             /* token */
	uint64_t n_drafted, n_rolled_back;
	/* the second act's samplers */
	uint64_t n_replayed, journal_bytes;
	bool replay_differs;
	/* the daemon: gauges, PSS, its look at the prompt */
	uint64_t live_bytes, gauge_cached_bytes, reserved_bytes, daemon_pss_bytes;
	uint64_t verify_bytes, verify_blocks, verify_known, verify_bad, verify_bad_token;
	/* a format */
	uint64_t n_scored, journal_token_bytes;
	double bits_per_byte, bits_per_byte_replay;
	/* the third act; cache_bytes is that of the draft model beside drafts */
	struct demo_drafts drafts[DEMO_PROMPTS];
	uint64_t n_slots;
	struct demo_disk disk; /* the fourth act */
	uint32_t n_ids;
	uint32_t ids[DEMO_TOKENS_MAX];
};

enum demo_role {
	DEMO_PRIVATE,
	DEMO_PREFILL,
	DEMO_SAMPLE,
	DEMO_LOOK,
	DEMO_SCORE,
	DEMO_DRAFTS,
	DEMO_EVICT,
	DEMO_TREE,
	DEMO_SAVE,
	DEMO_LOAD,
	DEMO_DAMAGE
};

struct demo_process {
	pid_t pid; /* 0: none */
	int fd;
	enum demo_role role;
	int act; /* 1: raw; 2: a quantised prompt, replay journals; 3: drafts, eviction; 4: disk */
	unsigned index; /* of the four; its seed is index + 1. Of demo_formats, demo_policies */
	bool drafts;
	struct demo_report report; /* the last one */
};

/* ---- demo_process.c ----------------------------------------------------------------------- */

/* Set by SIGINT and SIGTERM while demo_signals(true) is in force: everything ends with an error. */
extern volatile int demo_interrupted;
void demo_signals(bool on);

/* Starts a process that plays its role. 0, or -1 with err. */
int demo_spawn(struct demo_process *process, const struct demo_settings *settings,
	       struct errbuf *err);

/* Waits for its next report. -1 with err if it failed, died, or took two minutes. */
int demo_hear(struct demo_process *process, struct errbuf *err);

/* Lets it go on: to work, or to its end. */
void demo_go_on(struct demo_process *process);

/* Waits for its end. -1 with err if it did not end well. */
int demo_wait(struct demo_process *process, struct errbuf *err);

/* Ends it at once, if it is there. */
void demo_kill(struct demo_process *process);

/* Proportional set size of a process, 0 if it cannot be read. */
uint64_t demo_pss_bytes(pid_t pid);

/* The child's side: sends a report / waits to be let go on (-1: the parent has gone). */
void demo_tell(int fd, const struct demo_report *report);
int demo_pause(int fd);

double demo_now_s(void);

/* ---- demo_role.c -------------------------------------------------------------------------- */

/* Plays the role of a process to its end; returns the exit status of the process. */
int demo_play(const struct demo_process *process, const struct demo_settings *settings);

/* ---- demo_daemon.c ------------------------------------------------------------------------ */

struct demo_daemon {
	pid_t pid; /* of the keeper; 0: none of ours */
	char program[PATH_MAX];
};

/* Starts a private kvcached on settings->runtime_dir, with a disk pool in settings->dir, and waits
 * until it serves. */
int demo_daemon_start(struct demo_daemon *daemon, const struct ctl *ctl,
		      const struct demo_settings *settings, struct errbuf *err);
void demo_daemon_stop(struct demo_daemon *daemon);

/* PSS of all processes of a daemon, by the pid of its core. */
uint64_t demo_daemon_pss_bytes(pid_t core_pid);

/* Removes a folder of files (and one level of folders). */
void demo_remove_dir(const char *path);

/* A readable default for a file of the model; -1 with err if it is nowhere. */
int demo_find_file(char path[PATH_MAX], const char *name, struct errbuf *err);

/* ---- demo_print.c ------------------------------------------------------------------------- */

struct demo_result {
	struct demo_process alone[DEMO_SAMPLERS], first, together[DEMO_SAMPLERS], look;
	double alone_s, first_s, together_s; /* wall time */
	uint64_t alone_pss_bytes, together_pss_bytes;
	struct demo_process tree; /* while the forks are there */
	/* the second act */
	struct {
		struct demo_process alone, first, together[DEMO_SAMPLERS], look;
		double alone_s, first_s, together_s;
	} journal;
	struct demo_process formats[DEMO_FORMATS];
	double formats_s;
	/* the third act */
	struct {
		struct demo_process drafts, policies[DEMO_POLICIES];
		double drafts_s, policies_s;
	} evict;
	/* the fourth act */
	struct {
		bool is_skipped; /* the daemon is not ours to stop */
		struct demo_process save, load, again[DEMO_SAMPLERS], damage;
		double stop_s, start_s, again_s;
	} disk;
};

/* Everything is as it should be. */
bool demo_is_good(const struct demo_result *result);
bool demo_journal_is_good(const struct demo_result *result);
bool demo_evict_is_good(const struct demo_result *result);
bool demo_disk_is_good(const struct demo_result *result);

/* The table, before the tree; the samples, after it. */
void demo_print_table(const struct ctl *ctl, const struct demo_settings *settings,
		      const struct demo_result *result);
void demo_print_samples(const struct ctl *ctl, const struct demo_settings *settings,
			const struct demo_result *result);

/* The second act, demo_print_journal.c. */
void demo_print_journal(const struct ctl *ctl, const struct demo_settings *settings,
			const struct demo_result *result);
void demo_print_formats(const struct ctl *ctl, const struct demo_settings *settings,
			const struct demo_result *result);
json_t *demo_journal_json(const struct demo_result *result);
json_t *demo_formats_json(const struct demo_result *result);

/* The third act, demo_print_evict.c. */
void demo_print_evict(const struct ctl *ctl, const struct demo_result *result);
json_t *demo_drafts_json(const struct demo_result *result);
json_t *demo_evict_json(const struct demo_result *result);

/* The fourth act, demo_print_disk.c. */
void demo_print_disk(const struct ctl *ctl, const struct demo_settings *settings,
		     const struct demo_result *result);
json_t *demo_disk_json(const struct demo_result *result);

/* demo_json.c. The value is the file that demo_look.c has written. */
void demo_print_json(struct ctl *ctl, const struct demo_settings *settings,
		     const struct demo_result *result);

/* Shared by the reports. Sums over four processes, of a field at an offset in their reports. */
uint64_t demo_sum(const struct demo_process *four, size_t off);
#define DEMO_SUM(four, field) demo_sum(four, offsetof(struct demo_report, field))
double demo_mean(const struct demo_process *four, size_t off);
#define DEMO_MEAN(four, field) demo_mean(four, offsetof(struct demo_report, field))
uint64_t demo_copy_limit(const struct demo_result *result);
void demo_heading(const struct ctl *ctl, const char *text);
/* A line of the story, which is freed, and how long it took. */
void demo_line(const struct ctl *ctl, double seconds, char *text);
/* A line of the proof. */
void demo_check(const struct ctl *ctl, bool good, const char *what, const char *found);
/* Wrapped at blanks, at most three lines. */
void demo_print_wrapped(const struct ctl *ctl, const char *text);
/* The text of a sample; what is not printable ASCII is a space. The caller frees. */
struct tokenizer;
char *demo_sample_text(const struct tokenizer *tokenizer, const struct demo_report *report);

#endif
