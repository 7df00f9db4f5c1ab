/*
 * Clients of a private kvcached, for tests: sessions, tokens whose bytes are known, gauges,
 * commands as an operator gives them, and other processes.
 *
 * A token is a number; each of its rows follows from that number and the row's region, so that a
 * whole sequence is described by an array of numbers (its shadow) and every byte can be checked.
 * What goes wrong is an assertion; in a process of kt_kid_start() that ends it with a message.
 * Links libkvclient.la: inner functions of the library are at hand. Thread: that of the handles.
 */
#ifndef KVCACHED_TESTS_SUPPORT_CLIENT_H
#define KVCACHED_TESTS_SUPPORT_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/kvcache.h"
#include "proto/kvcache.pb-c.h"

/* ---- sessions ----------------------------------------------------------------------------- */

struct kt_client {
	kvc_session *session;
	kvc_layout *layout;
	kvc_writer *writer;
};

/* 0, or -1 with the library's error; deadline_ms 0: the default. */
int kt_client_try(struct kt_client *client, const char *dir, uint32_t deadline_ms);

/* The same, asserted. Ended by kvc_close(client->session). */
struct kt_client kt_client_open(const char *dir);
struct kt_client kt_client_open_ms(const char *dir, uint32_t deadline_ms);

/* The layout of kt_client_open: 2 layers of 2 heads, K 16 and V 8 of f32, 4 tokens a block, so
 * that a token has 384 bytes. Registered once more, or with another fingerprint. */
kvc_layout *kt_layout(kvc_session *session, uint8_t fingerprint);
#define KT_TOKEN_BYTES 384u
#define KT_BLOCK_TOKENS 4u

/* Asserts that a call of the library succeeded, or failed with this status. */
void kt_ok(int rc);
void kt_fails(int rc, int status);
void kt_fails_null(const void *pointer, int status);

/* ---- tokens ------------------------------------------------------------------------------- */

/* Most tokens of one kt_append. */
#define KT_APPEND_MAX 64u

kvc_seq *kt_seq_new(const struct kt_client *client, const char *name);

/* Appends and commits; 0 or -1 with the library's error. Asks for what is not reserved. */
int kt_append_try(kvc_writer *writer, kvc_seq *seq, const uint64_t *tokens, uint64_t n);
void kt_append(kvc_writer *writer, kvc_seq *seq, const uint64_t *tokens, uint64_t n);

/* Writes tokens first, first + 1, ... of an update that was begun. Asserted. */
void kt_write_numbers(kvc_seq *seq, uint64_t first, uint64_t n);

/* Appends n tokens first, first + 1, ... and notes them in shadow behind *length, if given. */
void kt_append_numbers(kvc_writer *writer, kvc_seq *seq, uint64_t first, uint64_t n,
		       uint64_t *shadow, uint64_t *length);

/* NULL if every byte of the sequence is that of these tokens; else one line that says which is
 * not. The text is the function's own. */
const char *kt_seq_differs(kvc_seq *seq, const uint64_t *tokens, uint64_t n);
void kt_assert_tokens(kvc_seq *seq, const uint64_t *tokens, uint64_t n);

/* Finds out which tokens a sequence has, when token i is one of i, i + stride, ... (n_choices): by
 * the first of its rows. False if there is one that is none of them. tokens[kvc_length()]. */
bool kt_seq_guess(kvc_seq *seq, uint64_t stride, uint64_t n_choices, uint64_t *tokens);

/* ---- what an operator does ---------------------------------------------------------------- */

/* All return 0, or -1 with the library's error. n sources in one command. */
int kt_snapshot_by_name(kvc_session *session, const char *const *sources, const char *const *names,
			size_t n, uint32_t deadline_ms);
enum { KT_KEEP = 1, KT_REMOVE = 2 };
int kt_rollback_by_name(kvc_session *session, const char *const *sources, const uint64_t *n_tokens,
			int mode, size_t n, uint32_t deadline_ms);
int kt_show(kvc_session *session, const char *name, uint64_t *length_tokens);
int kt_session_end(kvc_session *session, uint64_t id);
/* Numbers of sessions that are attached or away, not those that wait in quarantine. */
size_t kt_sessions(kvc_session *session, uint64_t *ids, size_t max);

/* The daemon's status, for rpc_reply_free(); NULL with the library's error. */
Kv__Wire__Reply *kt_status(kvc_session *session);

struct kt_gauges {
	uint64_t total, live, reserved, cached, quarantined, free;
	uint64_t used, control, copied;
	uint32_t n_sessions, n_sequences, n_snapshots, n_arenas, n_core_restarts;
	pid_t core_pid;
	/* of the last start, if it found an earlier core's memory */
	bool has_start;
	uint64_t locked, to_lock, verified, to_verify, n_bad;
};

/* Reads them and asserts that they add up. */
struct kt_gauges kt_gauges(kvc_session *session);
int kt_gauges_try(kvc_session *session, struct kt_gauges *gauges);

/* Waits until memory, sessions and objects are again what they were: the same bytes free, cached
 * and in quarantine, as many sessions, sequences and snapshots. Asserted. */
void kt_wait_gauges(kvc_session *session, const struct kt_gauges *before);

/* Open descriptors of a process. */
size_t kt_count_fds(pid_t pid);

/* ---- other processes ---------------------------------------------------------------------- */

/* nanomsg does not survive fork(): another client is this program, run again as a role. */
struct kt_kid {
	pid_t pid; /* 0: was waited for */
	int in;    /* what it reads */
	int out;   /* what it writes */
};

struct kt_role {
	const char *name;
	/* in, out: the other ends. Returns the exit status. */
	int (*fn)(const char *dir, const char *arg, int in, int out);
};

/* Begins main(): in a process of kt_kid_start it runs the role and does not return. roles ends
 * with a NULL name. */
void kt_kid_main(int argc, char **argv, const struct kt_role *roles);

/* It dies with the process that started it. arg may be NULL. */
void kt_kid_start(struct kt_kid *kid, const char *role, const char *dir, const char *arg);

/* Reads n bytes that it writes, within 10 s; asserted. */
void kt_kid_read(const struct kt_kid *kid, void *bytes, size_t n);
void kt_kid_write(const struct kt_kid *kid, const void *bytes, size_t n);

/* Waits for its end and closes the pipes: the status of waitpid(). */
int kt_kid_wait(struct kt_kid *kid);
int kt_kid_kill(struct kt_kid *kid);

#endif
