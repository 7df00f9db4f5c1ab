/*
 * What the groups of kvcbench share: results, the clock, alternation.
 *
 * A group measures some rows of the table. It runs in a process of its own, so that one that fails
 * costs only its own rows, and says bench_die() when it cannot go on: the rows that it did not
 * finish then carry the reason in place of a number. Results lie in memory that the processes of
 * the program share.
 *
 * A row is measured with a product and, where the table names one, a reference, in turns: each
 * call does what must not be timed by itself and gives the nanoseconds of the part that counts.
 * Value and reference value are medians, the ratio is the median of the ratios of the pairs.
 */
#ifndef KVCACHED_TESTS_BENCH_BENCH_H
#define KVCACHED_TESTS_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/kvcache.h"
#include "proto/kvcache.pb-c.h"

/* ---- rows (report.c) ---------------------------------------------------------------------- */

enum bench_field { BENCH_VALUE, BENCH_RATIO };

/* A row of the table and what it is to reach. */
struct bench_row {
	const char *name;
	const char *unit;
	enum bench_field field;
	bool at_least; /* the limit is the smallest, not the largest */
	double limit;
	const char *what;
	const char *reference; /* NULL: none */
};

extern const struct bench_row bench_rows[];
extern const size_t bench_n_rows;

struct bench_result {
	bool measured;
	bool has_reference;
	double value, reference_value, ratio;
	char note[160]; /* why it was not measured, or something about it */
};

/* Results of all rows, shared by all processes. */
void bench_results_make(void);
struct bench_result *bench_result(const char *name);

/* The table for people: all rows, or those whose name contains `only`. */
void bench_print(const char *only);

/* Has each of these rows a number? */
bool bench_complete(const char *only);

/* 0, or -1 with the reason on stderr. */
int bench_write_json(const char *path);

/* ---- measuring (measure.c) ---------------------------------------------------------------- */

uint64_t bench_now_ns(void);

/* What it costs to ask the clock twice: taken off what is shorter than a microsecond. */
double bench_clock_ns(void);

/* Nanoseconds since `begin`, without the clock's own. */
double bench_since_ns(uint64_t begin);

/* Sorts the values. */
double bench_median(double *values, size_t n);

/* Nanoseconds of the part that counts. */
typedef double bench_call(void *arg);

struct bench_side {
	bench_call *call;
	void *arg;
};

/*
 * Calls both in turns, each first in every second pair, after two pairs that do not count.
 * scale: nanoseconds (or whatever the calls give) of one unit of the row.
 */
void bench_compare(struct bench_result *result, struct bench_side product,
		   struct bench_side reference, size_t n_pairs, double scale);

/* The row of pairs that were measured in another way. Sorts both. */
void bench_pairs(struct bench_result *result, double *values, double *references, size_t n_pairs,
		 double scale);

/* bench_compare() without a reference. */
void bench_alone(struct bench_result *result, struct bench_side product, size_t n_calls,
		 double scale);

/* Of two measurements of one row the worse counts: larger ratio, or value if it has none. */
void bench_keep_worse(struct bench_result *result, const struct bench_result *other);

/* ---- processes (process.c) ---------------------------------------------------------------- */

/* Ends the group; rows that it has not measured get the reason. With kvc_error_text() if the
 * library has an error for this thread. */
void bench_die(const char *what, ...) __attribute__((noreturn, format(printf, 1, 2)));

#define BENCH_CHECK(condition) \
	do { \
		if (!(condition)) \
			bench_die("%s:%d: %s", __FILE__, __LINE__, #condition); \
	} while (0)

/* A process that works for a group; fd is its end of a pair of sockets. It ends when the group
 * does. */
struct bench_helper {
	pid_t pid;
	int fd;
};

/* Forks. The helper must not come from a process that has a session already. */
struct bench_helper bench_helper_start(void (*fn)(int fd, void *arg), void *arg);
/* Closes the pair and waits for its end. */
void bench_helper_stop(struct bench_helper *helper);

/* One word through the pair: who waits for it goes on. */
void bench_tell(int fd, uint64_t word);
uint64_t bench_hear(int fd);

/* ---- the echo (echo.c) -------------------------------------------------------------------- */

/* Two processes, blocking nn_recv and nn_send over ipc, as many bytes each way as a command. */
struct bench_echo {
	struct bench_helper server;
	char address[128];
	int socket; /* of this process; -1: not connected */
	size_t n_request_bytes, n_reply_bytes;
};

/* Forks the server: before the first session of the group. */
void bench_echo_start(struct bench_echo *echo);
void bench_echo_connect(struct bench_echo *echo);
void bench_echo_stop(struct bench_echo *echo);

/* One round trip; a bench_call. */
double bench_echo_call(void *echo);

/* ---- what the library sent (meter.c) ------------------------------------------------------ */

/* Of the last command of this process, and how many there were. Requests and replies with what
 * nanomsg adds to neither. */
struct bench_meter {
	size_t n_request_bytes, n_reply_bytes;
	uint64_t n_requests;
};
extern struct bench_meter bench_meter;

/* Makes the echo as long as the last command. */
void bench_echo_like_last_call(struct bench_echo *echo);

/* ---- caches (cache.c) --------------------------------------------------------------------- */

extern const char *bench_runtime_dir;

/* Layouts of the table: 32 layers x 8 heads x 128 bf16, and one layer of that (4 KiB a token). */
#define BENCH_LAYERS 32u
#define BENCH_HEADS 8u
#define BENCH_WIDTH 128u
#define BENCH_ROW_BYTES 2048u /* K or V of one layer of one token */
#define BENCH_SOURCE_BYTES (1u << 20)

struct bench_cache {
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
	uint32_t n_layers;
	uint32_t block_tokens;
	char *source; /* rows of K and V: [n_source_tokens][n_layers][2][BENCH_ROW_BYTES] */
	size_t n_source_tokens;
};

void bench_cache_open(struct bench_cache *cache, uint32_t n_layers, uint32_t format,
		      size_t source_bytes);
/* Of a cache that the group has opened itself. */
void bench_cache_source(struct bench_cache *cache, size_t source_bytes);
void bench_cache_close(struct bench_cache *cache);

/* Appends and commits n tokens, as many in one update as there is source for. */
void bench_append(struct bench_cache *cache, kvc_seq *seq, uint64_t n_tokens);

/* A new sequence of n tokens, with a reserve for more. */
kvc_seq *bench_seq(struct bench_cache *cache, uint64_t n_tokens, uint64_t n_reserve_tokens,
		   const char *name);

/* The daemon's status, for rpc_reply_free(). */
Kv__Wire__Reply *bench_status(kvc_session *session);

/* The daemon's gauges. */
struct bench_gauges {
	uint64_t live_bytes, reserved_bytes, cached_bytes, used_bytes;
	uint64_t control_bytes, catalogue_bytes;
	uint64_t core_pid; /* as wide as the others: compared as bytes */
};
struct bench_gauges bench_gauges(struct bench_cache *cache);

/* Private memory of a process; what is shared (control segments, arenas) is not in it. */
uint64_t bench_private_bytes(uint64_t pid);

/* Everything that is no block memory: private memory of the core and of this process, control
 * segments, catalogue (memory.c). */
double bench_bookkeeping_bytes(const struct bench_gauges *gauges);

/* ---- scatter updates (scatter.c) ---------------------------------------------------------- */

/* Updates of one token: each head of each layer has a random slot of its own. Two of these with
 * the same beginnings draw the same slots and rows. */
struct bench_scatter {
	struct bench_cache *cache;
	kvc_seq *seq;
	uint32_t n_slots; /* to draw from */
	uint32_t slots[BENCH_LAYERS][BENCH_HEADS];
	const char *source; /* rows of the token, as in the cache's source */
	uint64_t n_drawn;
};

/* The next token's slots and rows. */
void bench_scatter_draw(struct bench_scatter *scatter);

/* Begins, scatters layer by layer, commits. 0 or not 0. */
int bench_scatter_update(const struct bench_scatter *scatter);

/* Bench calls for a struct bench_scatter, of the next token: its update, and the rollback of it. */
double bench_scatter_call(void *scatter);
double bench_scatter_back_call(void *scatter);

/* A journal with room for n_updates of n_rows rows in all, and one block a group to copy into. */
void bench_journal(kvc_seq *seq, uint32_t mode, uint64_t n_updates, uint64_t n_rows);

/* ---- copies of tokens (copy.c) ------------------------------------------------------------ */

/* The memcpy reference of tokens: the same bytes to the strides of an open update of n_tokens,
 * which is never committed. */
struct bench_copy {
	struct bench_cache *cache;
	kvc_seq *seq;
	char **rows; /* [block][layer][2], row 0 of each piece */
	uint64_t at; /* the next token */
	size_t source;
};

void bench_copy_make(struct bench_copy *copy, struct bench_cache *cache, uint64_t n_tokens);
void bench_copy_free(struct bench_copy *copy);
/* One token; a bench_call. */
double bench_copy_call(void *copy);

/* ---- the example model (samples.c) -------------------------------------------------------- */

struct llama;
struct prompt;
/* The caller frees both (llama_close, prompt_fini). */
void bench_model_load(struct llama **model, struct prompt *prompt);

/* ---- groups ------------------------------------------------------------------------------- */

void bench_group_data(void);     /* token_commit, commit_only, commit_batch, fork_first_write */
void bench_group_rollback(void); /* rollback_* */
void bench_group_local(void);    /* fork_local_* */
void bench_group_calls(void);    /* rpc, snapshot_*, fork_* */
void bench_group_open(void);     /* open_* */
void bench_group_commands(void);
void bench_group_memory(void);
void bench_group_quantise(void);   /* quantise_* */
void bench_group_dequantise(void); /* dequantise_* */
void bench_group_undo(void);       /* undo_update, undo_rollback */
void bench_group_flat(void);       /* *_flat */
void bench_group_replay(void);     /* replay_update, replay_rollback_* */
void bench_group_fold(void);
void bench_group_size(void); /* bytes_per_token_* */
void bench_group_samples(void);
void bench_group_attend_int8(void); /* attend_int8_*, and so on */
void bench_group_attend_bf16(void);
void bench_group_attend_u8(void);
void bench_group_attend_fp8(void);
void bench_group_attend_u4(void);
void bench_group_attend_q4(void);
void bench_group_attend_versus(void); /* attend_int8_vs_bf16_* */
void bench_group_attend_overlay(void);
void bench_group_attend_fork(void);
void bench_group_attend_linear(void);
void bench_group_attend_prefill(void);
void bench_group_attend_peak(void);
void bench_group_h2o(void);
void bench_group_token_rate(void); /* token_rate_* */
void bench_group_disk(void);       /* offload, fetch, io_cpu */
void bench_group_restart_store(void);
void bench_group_io(void); /* io_* */
void bench_group_restart(void);
void bench_group_redis(void); /* redis_* */

#endif
