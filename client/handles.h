/*
 * Writers' and sequences' handles, the control part: what writers.c, sequences.c, reserve.c,
 * snapshots.c and batch.c share, and what kvc_close frees.
 */
#ifndef KV_CLIENT_HANDLES_H
#define KV_CLIENT_HANDLES_H

#include "client/seq.h"

/* Tells the daemon that these runs come back. A lost message is made good when the session ends;
 * the thread's error stays what it was. Writer's thread. */
void handles_tell_release(struct kvc_session *session, uint64_t layout_id, Kv__Wire__Run **runs,
			  size_t n_runs);

/* Gives blocks back to the daemon: those on release lists; with `all` those in pools too. Writer's
 * thread. */
void handles_release(struct kvc_writer *writer, bool all);

/* The same for blocks that are kept for later, and unused pins; false if there are no blocks. */
bool handles_release_pooled(struct kvc_writer *writer);

/*
 * The sequence of a place that the daemon has just given out to this writer. On failure the place
 * is given back. NULL with the error set. Writer's thread.
 */
struct kvc_seq *handles_attach(struct kvc_writer *writer, const Kv__Wire__Place *place);

/* The only place of a reply; NULL with KVC_EPROTO if there is another number of them. */
const Kv__Wire__Place *handles_only_place(const Kv__Wire__Reply *reply);

/* name (NULL or empty: none) of an option struct: KVC_ENAME, or what the wire wants in *out. */
int handles_name(const char *name, char **out);

/* An object that is named: KVC_EINVAL (NULL), KVC_ENAME. */
int handles_target(Kv__Wire__Target *target, const char *name);

/* Checks kvc_seq_options; NULL is the default. */
int handles_seq_options(const struct kvc_seq_options *given, struct kvc_seq_options *options);

/* Drops sequences of one writer that the daemon knows, and frees them; what it could not be told
 * of stays until the session's end. Writer's thread. */
void handles_end_many(struct kvc_writer *writer, struct kvc_seq *const *seqs, size_t n_seqs);

/* Parks the writer's sequences that have a name, drops the others, and gives its blocks back. All
 * its handles are freed; what the daemon cannot be told of it finds when the session ends: false. */
bool handles_leave(struct kvc_writer *writer);

/* Frees a session's handles: it ends. The daemon is told, up to the first call that fails. */
void handles_free_all(struct kvc_session *session);

#endif
