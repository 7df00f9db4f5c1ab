/*
 * kvcachectl bench: how long the common operations take on this machine, with the daemon that
 * runs. Medians of many; the layout is 4 KiB a token, as the demonstration's model has. What it
 * makes is gone afterwards. (The project's own measurements, against references,
 * are another program: make bench.)
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/demo.h"
#include "client/kvcache.h"

#define LAYERS 4
#define HEADS 2
#define WIDTH 64
#define PROMPT_TOKENS 1024

struct bench {
	struct ctl *ctl;
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	kvc_seq *seq;
	kvc_seq *fork; /* made by the last run of an operation that makes one */
	char name[32]; /* of the snapshot */
	float row[HEADS * WIDTH];
};

struct operation {
	const char *name, *what;
	int (*run)(struct bench *bench);   /* timed */
	int (*after)(struct bench *bench); /* not timed; NULL: nothing */
};

static int append(struct bench *b)
{
	if (kvc_append_begin(b->seq, 1))
		return -1;
	for (uint32_t layer = 0; layer < LAYERS; layer++)
		if (kvc_write(b->seq, layer, b->row, b->row))
			return -1;
	return kvc_commit(b->writer, &b->seq, 1);
}

static int append_again(struct bench *b)
{
	return kvc_reserve(b->seq, 1) || append(b) ? -1 : 0;
}

static int roll_back(struct bench *b)
{
	return kvc_rollback_remove(b->seq, 1);
}

static int ready_to_append(struct bench *b)
{
	return roll_back(b) || kvc_reserve(b->seq, 1) ? -1 : 0;
}

static int ping(struct bench *b)
{
	return kvc_ping(b->session);
}

static int mark(struct bench *b)
{
	struct kvc_mark mark;

	return kvc_mark_set(b->seq, &mark) || kvc_mark_release(b->seq, &mark) ? -1 : 0;
}

static int snapshot(struct bench *b)
{
	struct kvc_snapshot_options options = {.size = sizeof(options), .replace = 1};

	options.name = b->name;
	return kvc_snapshot(b->seq, &options, NULL);
}

static int fork_snapshot(struct bench *b)
{
	b->fork = kvc_fork(b->writer, b->name, NULL);
	return b->fork ? 0 : -1;
}

static int fork_local(struct bench *b)
{
	b->fork = kvc_fork_local(b->seq, 0);
	return b->fork ? 0 : -1;
}

static int drop_fork(struct bench *b)
{
	int rc = kvc_seq_drop(b->fork);

	b->fork = NULL;
	return rc;
}

static const struct operation operations[] = {
	{"round_trip", "a command that does nothing", ping, NULL},
	{"token_commit", "write 4 KiB in 4 layers, commit", append, ready_to_append},
	{"rollback", "take one token back", roll_back, append_again},
	{"mark", "set a mark and release it", mark, NULL},
	{"snapshot", "of 1,024 tokens, by the daemon", snapshot, NULL},
	{"fork", "of that snapshot, by the daemon", fork_snapshot, drop_fork},
	{"fork_local", "inside the session", fork_local, drop_fork},
};
#define N_OPERATIONS (sizeof(operations) / sizeof(operations[0]))

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Median and 99th percentile, in seconds. */
static int measure(struct bench *b, const struct operation *op, size_t n_rounds, double *median_s,
		   double *late_s)
{
	double *times = ctl_alloc(n_rounds, sizeof(*times));
	int rc = -1;

	for (size_t i = 0; i < n_rounds; i++) {
		double start_s = demo_now_s();

		if (op->run(b))
			goto out;
		times[i] = demo_now_s() - start_s;
		if (op->after && op->after(b))
			goto out;
	}
	qsort(times, n_rounds, sizeof(*times), compare);
	*median_s = times[n_rounds / 2];
	*late_s = times[n_rounds * 99 / 100];
	rc = 0;
out:
	free(times);
	return rc;
}

static int set_up(struct bench *b)
{
	struct kvc_session_options session = {.size = sizeof(session)};
	struct kvc_layout_options layout = {.size = sizeof(layout), .dtype = KVC_F32};
	struct kvc_seq_options seq = {.size = sizeof(seq), .max_tokens = 4 * PROMPT_TOKENS};
	struct kvc_layer layers[LAYERS];

	snprintf(b->name, sizeof(b->name), "bench-%d", (int)getpid());
	session.runtime_dir = b->ctl->runtime_dir;
	session.deadline_ms = b->ctl->deadline_ms;
	for (size_t i = 0; i < LAYERS; i++)
		layers[i] = (struct kvc_layer){HEADS, WIDTH, WIDTH, 0};
	memset(layout.fingerprint, 0xbe, sizeof(layout.fingerprint));
	layout.layers = layers;
	layout.n_layers = LAYERS;
	b->session = kvc_open(&session);
	b->layout = b->session ? kvc_layout_register(b->session, &layout) : NULL;
	b->writer = b->layout ? kvc_writer_new(b->session) : NULL;
	b->seq = b->writer ? kvc_seq_new(b->writer, b->layout, &seq) : NULL;
	if (!b->seq || kvc_reserve(b->seq, PROMPT_TOKENS + 1))
		return -1;
	for (size_t i = 0; i < PROMPT_TOKENS; i++)
		if (append(b))
			return -1;
	return kvc_reserve_forks(b->seq, 1) || kvc_reserve(b->seq, 2) ? -1 : 0;
}

static void tear_down(struct bench *b)
{
	if (b->seq)
		kvc_remove(b->session, b->name);
	kvc_seq_free(b->fork);
	kvc_seq_free(b->seq);
	kvc_layout_free(b->layout);
	kvc_close(b->session);
}

static int print_all(struct bench *b, size_t n_rounds)
{
	struct table *table = table_new();
	json_t *values = json_array();
	int rc = 0;

	table_column(table, "OPERATION", TABLE_LEFT);
	table_column(table, "MEDIAN", TABLE_RIGHT);
	table_column(table, "99 %", TABLE_RIGHT);
	table_column(table, "", TABLE_SHRINKS);
	for (size_t i = 0; i < N_OPERATIONS && !rc; i++) {
		double median_s, late_s;

		rc = measure(b, &operations[i], n_rounds, &median_s, &late_s);
		if (rc)
			break;
		table_cell(table, PLAIN, "%s", operations[i].name);
		table_cell(table, BOLD, "%s", units_time(median_s).s);
		table_cell(table, PLAIN, "%s", units_time(late_s).s);
		table_cell(table, DIM, "%s", operations[i].what);
		json_array_append_new(values,
				      json_pack("{s:s, s:f, s:f}", "name", operations[i].name,
						"median_s", median_s, "late_s", late_s));
	}
	if (rc || b->ctl->json)
		table_free(table);
	else
		table_print(table, &b->ctl->out, 0);
	if (!rc && b->ctl->json)
		ctl_print_json(b->ctl, json_pack("{s:I, s:O}", "n_rounds", (json_int_t)n_rounds,
						 "operations", values));
	json_decref(values);
	return rc;
}

int cmd_bench(struct ctl *ctl, const struct ctl_args *args)
{
	struct bench bench = {.ctl = ctl};
	struct errbuf err = {KV_OK, ""};
	uint64_t n_rounds;
	int code = CTL_OK;

	if (ctl_option_number(ctl, args, "rounds", 1, 1000000, 1000, &n_rounds))
		return CTL_USAGE;
	if (set_up(&bench) || print_all(&bench, (size_t)n_rounds)) {
		errbuf_set(&err, kvc_error(), "%s", kvc_error_text());
		code = ctl_fail(ctl, &err);
	}
	tear_down(&bench);
	return code;
}
