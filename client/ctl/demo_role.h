/*
 * The inside of the demonstration's processes: what roles share (demo_role.c), what they do in the
 * second act (demo_journal.c), in the third (demo_evict.c) and in the fourth (demo_disk.c), what they
 * ask the daemon (demo_look.c).
 *
 * Functions return 0, or -1 with err filled.
 */
#ifndef KV_CTL_DEMO_ROLE_H
#define KV_CTL_DEMO_ROLE_H

#include "client/ctl/demo.h"
#include "client/examples/kv_formats.h"
#include "client/examples/llama.h"
#include "client/examples/prompt.h"
#include "client/kvcache.h"

struct role {
	const struct demo_process *process;
	const struct demo_settings *settings;
	struct llama *model;
	struct tokenizer *tokenizer;
	struct prompt prompt;
	struct kv_cache *kv;
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	kvc_seq *seq;
	FILE *logits;  /* written by a private run, read by a sampler */
	bool guessing; /* tokens that will be rolled back: not counted, not compared */
	double start_s;
	struct demo_report report;
};

typedef int role_fn(struct role *r, struct errbuf *err);

/* The second act is quantised. */
static inline struct kv_formats role_formats(const struct role *r)
{
	return r->process->act == 2 ?
		       (struct kv_formats){DEMO_JOURNAL_FORMAT, DEMO_JOURNAL_FORMAT} :
		       KV_FORMATS_RAW;
}

/* The run alone that a process is compared with: the fourth act has what the first one had. */
static inline int role_run(const struct role *r)
{
	return r->process->act == 4 ? 1 : r->process->act;
}

/* The name of an object of this act; the caller frees. */
char *role_name(const struct role *r, const char *what);

/* The file of logits of this act's run with seed index + 1. */
int role_open_logits(struct role *r, unsigned int index, const char *mode, struct errbuf *err);
int role_close_logits(struct role *r, struct errbuf *err);

/* Tokens that a run samples, and that a cache can have. */
size_t role_tokens(const struct role *r);
size_t role_max_tokens(const struct role *r);

/* The prompt but its last token. */
role_fn role_prefill;

/* Opens a session, and the layout of this act. */
role_fn role_attach;

/* r->seq becomes the cache. */
role_fn role_use_sequence;

/* Samples n tokens behind `last`, which is moved on. */
int role_sample(struct role *r, uint64_t seed, uint32_t *last, size_t n, struct errbuf *err);

/* ---- demo_journal.c ------------------------------------------------------------------------- */

/* Four samples, one after the other, on private memory. */
role_fn play_private_journal;

/* After a guess of n tokens that will be rolled back: takes them back, replays them, compares. */
int journal_rehearse(struct role *r, size_t n_tokens, struct errbuf *err);

/* Size and loss with one format. */
role_fn play_score;

/* ---- demo_evict.c --------------------------------------------------------------------------- */

/* Speculative decoding behind the prompts of both acts. */
role_fn play_drafts;

/* The text in a sequence with all of its tokens, or under a policy with a quarter of the slots. */
role_fn play_evict;

/* ---- demo_look.c ---------------------------------------------------------------------------- */

/* The daemon's gauges, and its own look at the prompt of this act. */
role_fn play_look;

/* The daemon's status, asked for by the role's session; the caller frees. NULL with err. */
Kv__Wire__Reply *role_ask_status(struct role *r, struct errbuf *err);

/* The tree, as people or programs read it, into the file "tree" of the folder. */
role_fn play_tree;

/* ---- demo_disk.c ---------------------------------------------------------------------------- */

/* The prompt of the first act to the disk and back; and what a load says to a flipped bit. */
role_fn play_save, play_load, play_damage;

#endif
