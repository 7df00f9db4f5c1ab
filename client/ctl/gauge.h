/* A pool as a bar and the lines of its parts. One thread. */
#ifndef KV_CTL_GAUGE_H
#define KV_CTL_GAUGE_H

#include "client/ctl/ctl.h"

struct gauge {
	const char *name;
	uint64_t n_bytes;
	enum colour colour;
	char mark; /* in the bar; ' ': not drawn */
	const char *what;
};

/* One character for each 1/40 of the pool; a gauge that is drawn and not empty has at least one.
 * Then a line for each gauge. */
void gauges_print(const struct ctl *ctl, const struct gauge *gauges, size_t n, uint64_t total);

#endif
