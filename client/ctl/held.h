/*
 * Objects that a command works on through the library: a snapshot is opened, a sequence that waits
 * is taken over and waits again afterwards. One that has a writer is refused with the name of that
 * process. All of a command belong to one writer of the program's session. One thread.
 */
#ifndef KV_CTL_HELD_H
#define KV_CTL_HELD_H

#include "client/ctl/ctl.h"
#include "client/kvcache.h"

enum held_how { HELD_READ, HELD_WRITE };

struct held {
	char *name;
	kvc_seq *seq;
};

/*
 * `word` is a name or @N. 0 and *held, ended by held_close(); -1 with the error printed and *code
 * set: not there, no name, live, or a snapshot that is to be written.
 */
int held_open(struct ctl *ctl, const char *word, enum held_how how, struct held *held, int *code);

/* What has never been opened (all zero) is fine. */
void held_close(struct held *held);

/* The library's error of now, behind a name; prints it and returns the exit code. */
int held_fail(struct ctl *ctl, const char *name);

/* After KVC_ERESERVE: asks for more blocks to copy into, or rows, each time twice as many. *n is 0
 * at first. 0: try again. */
int held_reserve(struct held *held, uint32_t *n);

/* Whether it has a journal, which is what such a reserve is for. */
bool held_may_reserve(const struct held *held);

/* The mark of that number; -1 with KVC_ENOTFOUND set. */
int held_mark(const struct held *held, uint64_t id, kvc_mark *mark);

#endif
