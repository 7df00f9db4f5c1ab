/*
 * Work that takes a while: a bar on standard error if that is a terminal, and an interrupt that
 * cancels instead of killing. One thread.
 */
#ifndef KV_CTL_PROGRESS_H
#define KV_CTL_PROGRESS_H

#include <signal.h>

#include "client/ctl/ctl.h"

/* Between these two SIGINT is noted; progress_interrupted() says whether it came. */
struct progress {
	struct sigaction before;
};
void progress_begin(struct progress *progress);
void progress_end(const struct progress *progress);
bool progress_interrupted(void);

/* The bar: part of whole; and no bar any more. */
void progress_draw(const struct ctl *ctl, const char *label, uint64_t part, uint64_t whole);
void progress_clear(const struct ctl *ctl);

#endif
