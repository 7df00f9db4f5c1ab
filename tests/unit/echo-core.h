/*
 * A core without state for tests of the plumbing, and a daemon that runs it.
 *
 * echo-core.c provides core_new() and the rest of daemon/core.h, so that keeper, core.c, front,
 * links and attach socket run as they ship. Requests are words:
 *	echo TEXT     "TEXT"
 *	who           "PID LIFE N_KEPT N_OPEN": of the core
 *	keep ID BYTE  keeps a memfd of one byte as arena ID
 *	drop ID
 *	kept ID       the byte in it, or "none"
 *	event TEXT    publishes TEXT
 *	big N         N bytes
 *	gone          number of core_attach_gone() so far
 *	abort, exit, deaf (ignores SIGTERM from now on)
 * While a file `gate` is in the runtime directory core_new() waits.
 * Attach: Hello is answered with a descriptor of one byte 'h'; Watch is fired at once; Bye closes.
 */
#ifndef KVCACHED_TESTS_UNIT_ECHO_CORE_H
#define KVCACHED_TESTS_UNIT_ECHO_CORE_H

#include <sys/types.h>

#include "daemon/keeper.h"
#include "proto/runtime.h"

struct echo_daemon {
	char *root; /* folder around the runtime directory */
	struct settings settings;
	struct kv_runtime paths;
	int (*core)(const struct core_start *start); /* set before starting; default core_main */
	pid_t keeper;
	int ready_fd; /* readable when it serves */
	int client;   /* a connected REQ socket; -1: none */
	int go_fd;    /* of a keeper that waits for echo_go() */
};

/* Settings and folder; nothing runs yet. */
void echo_init(struct echo_daemon *daemon);

/*
 * Forks a keeper that waits for echo_go(). Both at once: echo_fork(). Fork all that a test needs
 * before its first nanomsg socket: nanomsg's state does not work in a forked process.
 * echo_wait_ready() waits until it serves and connects `client`.
 */
void echo_prepare(struct echo_daemon *daemon);
void echo_go(struct echo_daemon *daemon);
void echo_fork(struct echo_daemon *daemon);
void echo_wait_ready(struct echo_daemon *daemon);
void echo_start(struct echo_daemon *daemon); /* all three */

/* SIGTERM; waits; returns what waitpid() says. */
int echo_stop(struct echo_daemon *daemon);
void echo_fini(struct echo_daemon *daemon); /* closes, removes; the keeper has ended */

/* Sends a request and returns the answer, in a buffer that the next call uses again. Fails the
 * test after 20 s. */
const char *echo_ask(struct echo_daemon *daemon, const char *request);
const char *echo_ask_on(int client, const char *request);
int echo_connect(const struct echo_daemon *daemon); /* a REQ socket */

struct echo_who {
	int pid;
	unsigned long life;
	unsigned n_kept;
	unsigned n_open;
};
struct echo_who echo_ask_who(struct echo_daemon *daemon);

/* The living child of the keeper with that name, or 0. */
pid_t echo_child(const struct echo_daemon *daemon, const char *name);

/* Open descriptors of a process; -1 if it has gone. */
int echo_n_open(pid_t pid);

#endif
