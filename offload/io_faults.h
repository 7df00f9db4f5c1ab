/*
 * An engine that goes wrong as it is told, for tests: it stands before any other and is compiled
 * in by --enable-fault-injection only. The environment variable KV_IO_FAULTS has rules with commas
 * between them, each OP:WHEN:WHAT:
 *
 *	OP	read, write, sync, or any
 *	WHEN	N: the Nth such request of the engine, from 1; N+K: and every Kth behind it
 *	WHAT	eio, enospc, eagain, eintr: that error, and nothing is transferred
 *		eof: a transfer of 0 bytes
 *		short: one transfer that lacks its last 4096 bytes
 *		short=T: T transfers of 4096 bytes each before the others
 *		late=MS: the transfer begins MS milliseconds later, whoever cancels it
 *		lost: it never begins, until io_let_go() or io_close()
 *
 *	KV_IO_FAULTS=write:3:eio,read:2+5:short
 *
 * The first rule that fits counts. Errors are the result of one attempt: what follows eagain
 * and eintr is not disturbed.
 */
#ifndef KV_OFFLOAD_IO_FAULTS_H
#define KV_OFFLOAD_IO_FAULTS_H

#include "offload/io_engine.h"

/* The back end itself if no fault is asked for. Takes it over; NULL with err: a rule is wrong. */
struct io_backend *io_faults_before(struct io_backend *backend, const struct io_options *options,
				    int event_fd, struct errbuf *err);

#ifdef KV_FAULT_INJECTION
#define IO_FAULTS_BEFORE(backend, options, event_fd, err) \
	io_faults_before(backend, options, event_fd, err)
#else
#define IO_FAULTS_BEFORE(backend, options, event_fd, err) (backend)
#endif

#endif
