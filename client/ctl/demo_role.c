/*
 * What the processes of the demonstration do. All use the same decoder with the same code for the
 * prompt; only the cache differs: private buffers, or a sequence of kvcached.
 *
 * As in kvc-generate, the prompt but its last token is in the cache, and decoding begins with the
 * last one. A private run writes its rows of logits to a file, the first also K and V of the
 * prompt; a sampler compares with them bit for bit.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/demo_role.h"
#include "client/examples/decode.h"
#include "client/examples/kv_private.h"
#include "client/examples/kv_sequence.h"
#include "client/examples/kv_shared.h"
#include "client/session.h"

char *role_name(const struct role *r, const char *what)
{
	return ctl_format("%s/%s%s", r->settings->prefix, r->process->act == 2 ? "int8/" : "",
			  what);
}

static FILE *data_open(const struct role *r, const char *what, unsigned index, const char *mode,
		       struct errbuf *err)
{
	char *path = ctl_format("%s/%s-%d-%u", r->settings->dir, what, role_run(r), index);
	FILE *file = fopen(path, mode);

	if (!file)
		errbuf_errno(err, KV_EINTERNAL, errno, "%s", path);
	free(path);
	return file;
}

int role_open_logits(struct role *r, unsigned int index, const char *mode, struct errbuf *err)
{
	r->logits = data_open(r, "logits", index, mode, err);
	return r->logits ? 0 : -1;
}

int role_close_logits(struct role *r, struct errbuf *err)
{
	FILE *file = r->logits;

	r->logits = NULL;
	if (file && fclose(file))
		return errbuf_errno(err, KV_EINTERNAL, errno, "logits file");
	return 0;
}

static int load(struct role *r, struct errbuf *err)
{
	const struct demo_settings *s = r->settings;
	const struct llama_geometry *g;
	double start_s = demo_now_s();

	if (llama_open(&r->model, s->model, err) ||
	    tokenizer_open(&r->tokenizer, s->tokenizer, err) ||
	    prompt_from_text(&r->prompt, r->tokenizer, s->prompt, err))
		return -1;
	g = llama_geometry(r->model);
	if (r->prompt.n < 2 || r->prompt.n + s->n_tokens > g->context)
		return errbuf_set(
			err, KV_ERANGE,
			"the prompt has %zu tokens; the model takes 2 to %zu with %zu more",
			r->prompt.n, g->context - s->n_tokens, s->n_tokens);
	r->report.load_s = demo_now_s() - start_s;
	r->report.n_prompt_tokens = r->prompt.n;
	r->report.n_layers = g->n_layers;
	r->report.n_kv_heads = g->n_kv_heads;
	r->report.head_dim = g->head_dim;
	r->report.vocab = g->vocab;
	return 0;
}

size_t role_tokens(const struct role *r)
{
	size_t half = r->settings->n_tokens / 2;

	if (r->process->act != 2)
		return r->settings->n_tokens;
	return half < DEMO_TOKENS_MIN ? DEMO_TOKENS_MIN : half;
}

size_t role_max_tokens(const struct role *r)
{
	return r->prompt.n + role_tokens(r);
}

int role_prefill(struct role *r, struct errbuf *err)
{
	double start_s = demo_now_s();

	if (llama_forward(r->model, r->kv, r->prompt.ids, r->prompt.n - 1, NULL, 0, err))
		return -1;
	r->report.prefill_s = demo_now_s() - start_s;
	return 0;
}

/* ---- K and V of the prompt ---------------------------------------------------------------- */

#define READ_TOKENS 64

/* Rows of some tokens of a layer. */
static int each_of(struct role *r, const float *k, const float *v, size_t first, size_t n,
		   int (*each)(struct role *r, size_t token, const float *row), struct errbuf *err)
{
	size_t row = r->kv->row_floats;

	for (size_t t = 0; t < n; t++)
		if (each(r, first + t, k + t * row) || each(r, first + t, v + t * row))
			return errbuf_errno(err, KV_EINTERNAL, errno, "K and V file");
	return 0;
}

/* Calls each() with every row of K and of V of the prompt, layer by layer. */
static int each_row(struct role *r, int (*each)(struct role *r, size_t token, const float *row),
		    struct errbuf *err)
{
	size_t n_prompt = r->prompt.n - 1, room = READ_TOKENS * r->kv->row_floats, n;
	float *rows = calloc(2 * room, sizeof(*rows));
	int rc = rows ? 0 : errbuf_set(err, KV_ENOMEM, "no memory for rows");

	for (size_t layer = 0; layer < r->kv->n_layers; layer++)
		for (size_t at = 0; rc == 0 && at < n_prompt; at += n) {
			n = n_prompt - at < READ_TOKENS ? n_prompt - at : READ_TOKENS;
			rc = r->kv->ops->read(r->kv, layer, at, n, rows, rows + room, err);
			if (rc == 0)
				rc = each_of(r, rows, rows + room, at, n, each, err);
		}
	free(rows);
	return rc;
}

static int write_row(struct role *r, size_t token, const float *row)
{
	(void)token;
	return fwrite(row, sizeof(*row), r->kv->row_floats, r->logits) == r->kv->row_floats ? 0 :
											      -1;
}

static int compare_row(struct role *r, size_t token, const float *row)
{
	float expected[4096];
	size_t n = r->kv->row_floats;

	if (n > sizeof(expected) / sizeof(expected[0]) ||
	    fread(expected, sizeof(*row), n, r->logits) != n)
		return -1;
	r->report.n_kv_bytes += n * sizeof(*row);
	if (memcmp(row, expected, n * sizeof(*row)) == 0)
		return 0;
	if (r->report.n_kv_rows_differ++ == 0 || token < r->report.first_kv_differs)
		r->report.first_kv_differs = token;
	return 0;
}

/* Through r->logits, which is not in use any more. */
static int kv_file(struct role *r, const char *mode,
		   int (*each)(struct role *r, size_t token, const float *row), struct errbuf *err)
{
	if (role_close_logits(r, err))
		return -1;
	r->logits = data_open(r, "prompt", 0, mode, err);
	if (!r->logits)
		return -1;
	return each_row(r, each, err);
}

/* ---- sampling ----------------------------------------------------------------------------- */

static int each_token(void *arg, uint32_t id, const float *logits, struct errbuf *err)
{
	struct role *r = arg;
	size_t n = r->report.vocab;
	float *expected;

	if (r->report.first_s == 0)
		r->report.first_s = demo_now_s() - r->start_s;
	if (r->guessing)
		return 0;
	r->report.ids[r->report.n_ids++] = id;
	if (r->process->role == DEMO_PRIVATE)
		return fwrite(logits, sizeof(*logits), n, r->logits) == n ?
			       0 :
			       errbuf_errno(err, KV_EINTERNAL, errno, "logits file");
	expected = ctl_alloc(n, sizeof(*expected));
	if (fread(expected, sizeof(*expected), n, r->logits) != n) {
		free(expected);
		return errbuf_set(err, KV_EINTERNAL, "the file of logits ends too early");
	}
	r->report.n_rows++;
	r->report.n_rows_differ += memcmp(logits, expected, n * sizeof(*logits)) != 0;
	free(expected);
	return 0;
}

int role_sample(struct role *r, uint64_t seed, uint32_t *last, size_t n, struct errbuf *err)
{
	struct decode decode = {.model = r->model,
				.kv = r->kv,
				.temperature = DEMO_TEMPERATURE,
				.seed = seed,
				.each = each_token,
				.arg = r};
	uint32_t ids[DEMO_TOKENS_MAX];

	if (n == 0)
		return 0;
	if (decode_run(&decode, *last, n, ids, err))
		return -1;
	*last = ids[n - 1];
	return 0;
}

/* Drafts 8 tokens, of which the last 5 come from another seed, and takes those back. */
static int draft(struct role *r, uint64_t seed, uint32_t *last, struct errbuf *err)
{
	uint32_t kept;

	if (role_sample(r, seed, last, DEMO_DRAFT - DEMO_DRAFT_WRONG, err))
		return -1;
	kept = *last;
	r->guessing = true;
	if (role_sample(r, seed + 1000, last, DEMO_DRAFT_WRONG, err))
		return -1;
	r->guessing = false;
	*last = kept;
	if (r->process->act == 2 && journal_rehearse(r, DEMO_DRAFT_WRONG, err))
		return -1;
	r->report.n_drafted = DEMO_DRAFT;
	r->report.n_rolled_back = DEMO_DRAFT_WRONG;
	return r->kv->ops->truncate(r->kv, r->kv->n_tokens - DEMO_DRAFT_WRONG, err);
}

static int sample_all(struct role *r, struct errbuf *err)
{
	uint64_t seed = r->process->index + 1;
	uint32_t last = r->prompt.ids[r->prompt.n - 1];

	if (r->process->drafts &&
	    (role_sample(r, seed, &last, DEMO_DRAFT_AFTER, err) || draft(r, seed, &last, err)))
		return -1;
	if (role_sample(r, seed, &last, role_tokens(r) - r->report.n_ids, err))
		return -1;
	r->report.decode_s = demo_now_s() - r->start_s - r->report.first_s;
	return 0;
}

/* ---- roles -------------------------------------------------------------------------------- */

static int play_private(struct role *r, struct errbuf *err)
{
	r->kv = kv_private_new(r->model, KV_FORMATS_RAW, role_max_tokens(r), err);
	if (!r->kv || role_open_logits(r, r->process->index, "we", err) || role_prefill(r, err) ||
	    sample_all(r, err))
		return -1;
	r->report.cache_bytes = role_max_tokens(r) * r->kv->n_layers * r->kv->row_floats * 2 *
				sizeof(float);
	if (r->process->index == 0 && kv_file(r, "we", write_row, err))
		return -1;
	return role_close_logits(r, err);
}

int role_attach(struct role *r, struct errbuf *err)
{
	struct kvc_session_options options = {.size = sizeof(options)};

	options.runtime_dir = r->settings->runtime_dir;
	options.deadline_ms = r->settings->deadline_ms;
	r->session = kvc_open(&options);
	if (!r->session)
		return kv_sequence_error(err);
	r->writer = kvc_writer_new(r->session);
	r->layout = r->writer ? kv_shared_layout(r->session, r->model, role_formats(r), err) : NULL;
	if (!r->writer)
		return kv_sequence_error(err);
	if (!r->layout)
		return -1;
	r->report.token_bytes = kvc_layout_token_bytes(r->layout);
	r->report.block_tokens = kvc_layout_block_tokens(r->layout);
	return 0;
}

int role_use_sequence(struct role *r, struct errbuf *err)
{
	if (!r->seq)
		return kv_sequence_error(err);
	r->kv = kv_shared_new(r->writer, r->seq, r->model, role_max_tokens(r), err);
	return r->kv ? 0 : -1;
}

#define FLIP_RUNS 64 /* that are looked at */

/* Flips the highest exponent bit of the first K element of a token, in the shared memory. */
static int flip(struct role *r, uint64_t token, struct errbuf *err)
{
	struct kvc_run runs[FLIP_RUNS];
	int64_t n;

	if (token + 1 >= r->prompt.n)
		return errbuf_set(err, KV_ERANGE,
				  "--flip-bit: the published prompt has tokens 0 to %zu",
				  r->prompt.n - 2);
	n = kvc_view_runs(r->seq, 0, runs, FLIP_RUNS);
	if (n < 0)
		return kv_sequence_error(err);
	for (int64_t i = 0; i < n && i < FLIP_RUNS; i++) {
		uint64_t at = token - runs[i].first_token;

		/* The mapping of one's own arena is writable; the run only says const. */
		if (token >= runs[i].first_token && at < runs[i].n_tokens) {
			((uint8_t *)(uintptr_t)runs[i].k)[at * runs[i].k_row_bytes + 3] ^= 0x40;
			return 0;
		}
	}
	return errbuf_set(err, KV_EUNSUPPORTED,
			  "--flip-bit: token %" PRIu64 " is behind the first %d runs", token,
			  FLIP_RUNS);
}

/* Process A, or B. The daemon learns the digests of the blocks before anybody uses them. */
static int play_prefill(struct role *r, struct errbuf *err)
{
	char *name = role_name(r, "prompt");
	struct kvc_seq_options seq = {.size = sizeof(seq)};
	struct kvc_snapshot_options snapshot = {.size = sizeof(snapshot)};
	struct kvc_verify_result learnt;
	int rc = -1;

	snapshot.name = name;
	seq.max_tokens = role_max_tokens(r);
	if (role_attach(r, err))
		goto out;
	r->seq = kvc_seq_new(r->writer, r->layout, &seq);
	if (role_use_sequence(r, err) || role_prefill(r, err))
		goto out;
	if (kvc_snapshot(r->seq, &snapshot, NULL)) {
		kv_sequence_error(err);
		goto out;
	}
	r->report.first_s = demo_now_s() - r->start_s;
	if (kvc_verify(r->session, name, NULL, NULL, &learnt)) {
		kv_sequence_error(err);
		goto out;
	}
	r->report.cache_bytes = learnt.n_bytes;
	rc = r->settings->flips && r->process->act == 1 ? flip(r, r->settings->flip_token, err) : 0;
out:
	free(name);
	return rc;
}

/* Bytes that this session copied because a block was shared. */
static uint64_t copied_bytes(const struct role *r)
{
	const struct kv_shm_head *head = r->session->segment;
	const struct kv_shm_writer *writers = (const void *)((const char *)head +
							     head->writers_off);
	uint64_t n = 0;

	for (uint32_t i = 0; i < head->n_writers; i++)
		n += atomic_load_explicit(&writers[i].n_copied_bytes, memory_order_relaxed);
	return n;
}

/* A fork with a name of its own. */
static int fork_prompt(struct role *r, struct errbuf *err)
{
	char what[32];
	char *source = role_name(r, "prompt"), *name;
	struct kvc_seq_options seq = {.size = sizeof(seq)};
	int rc = 0;

	snprintf(what, sizeof(what), "sample-%u", r->process->index + 1);
	name = role_name(r, what);
	seq.name = name;
	seq.max_tokens = role_max_tokens(r);
	r->seq = kvc_fork(r->writer, source, &seq);
	if (!r->seq || kvc_layout_compare(r->layout, kvc_seq_layout(r->seq)))
		rc = kv_sequence_error(err);
	free(name);
	free(source);
	return rc;
}

static int play_sample(struct role *r, struct errbuf *err)
{
	struct kvc_journal_info journal;

	if (role_open_logits(r, r->process->index, "re", err) || role_attach(r, err) ||
	    fork_prompt(r, err) || role_use_sequence(r, err))
		return -1;
	if (r->process->act == 2 && r->kv->ops->replay(r->kv, err))
		return -1;
	if (sample_all(r, err) || (role_run(r) == 1 && kv_file(r, "re", compare_row, err)))
		return -1;
	if (kvc_journal_info(r->seq, &journal))
		return kv_sequence_error(err);
	r->report.journal_bytes = journal.n_bytes;
	r->report.n_copied_bytes = copied_bytes(r);
	return 0;
}

static void role_fini(struct role *r)
{
	if (r->logits)
		fclose(r->logits);
	kv_free(r->kv);
	kvc_seq_free(r->seq);
	kvc_layout_free(r->layout);
	kvc_close(r->session);
	prompt_fini(&r->prompt);
	tokenizer_close(r->tokenizer);
	llama_close(r->model);
}

static role_fn *play_of(const struct demo_process *process)
{
	switch (process->role) {
	case DEMO_PREFILL: return play_prefill;
	case DEMO_SAMPLE: return play_sample;
	case DEMO_LOOK: return play_look;
	case DEMO_SCORE: return play_score;
	case DEMO_DRAFTS: return play_drafts;
	case DEMO_EVICT: return play_evict;
	case DEMO_TREE: return play_tree;
	case DEMO_SAVE: return play_save;
	case DEMO_LOAD: return play_load;
	case DEMO_DAMAGE: return play_damage;
	default: return process->act == 1 ? play_private : play_private_journal;
	}
}

/* Of four, all have loaded the model before the clock of the first starts, and all are there until
 * the last has told. */
static bool is_one_of_four(const struct demo_process *process)
{
	return process->role == DEMO_SAMPLE || (process->role == DEMO_PRIVATE && process->act == 1);
}

int demo_play(const struct demo_process *process, const struct demo_settings *settings)
{
	struct role r = {.process = process, .settings = settings};
	int rc = load(&r, &r.report.err);

	if (rc == 0 && is_one_of_four(process)) {
		demo_tell(process->fd, &r.report);
		if (demo_pause(process->fd))
			return 1;
	}
	r.start_s = demo_now_s();
	if (rc == 0)
		rc = play_of(process)(&r, &r.report.err);
	r.report.failed = rc != 0;
	demo_tell(process->fd, &r.report);
	if (rc == 0 && is_one_of_four(process))
		demo_pause(process->fd);
	role_fini(&r);
	return rc == 0 ? 0 : 1;
}
