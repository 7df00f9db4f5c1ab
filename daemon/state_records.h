/*
 * Reading the catalogue, inside daemon/state_load.c and daemon/state_records.c. Core thread, at the
 * start.
 */
#ifndef KV_DAEMON_STATE_RECORDS_H
#define KV_DAEMON_STATE_RECORDS_H

#include "daemon/state.h"

struct loader {
	struct core *core;
	struct idlist gone; /* ids whose records are passed over */
};

bool records_has_gone(const struct loader *loader, uint64_t id);

/* Reads one record into the core if its type belongs to this pass (1 or 2). -1 if it does not fit. */
int records_load(struct loader *loader, int pass, enum cat_type type, const void *payload,
		 uint32_t n_bytes, struct errbuf *err);

/* Fills err for a record (of what) that does not fit; -1. */
int records_bad(struct errbuf *err, const char *what);

/* A descriptor of the keeper's, duplicated for the caller; -1: it has none. */
int records_kept_fd(const struct core *core, enum kept_kind kind, uint64_t id);

/* A session's pin of an object, made if it is new. */
struct session_pin *records_pin(struct session *session, struct object *object);

#endif
