/*
 * A daemon that is not there: answers of every kind that kvcachectl asks for, made by hand and
 * always the same. Refuses what concerns the name "taken" or "nobody", and finds "bad" corrupt.
 */
#ifndef KVCACHED_TESTS_UNIT_CTL_ANSWERS_H
#define KVCACHED_TESTS_UNIT_CTL_ANSWERS_H

#include "client/ctl/ctl.h"

/* When the answers are given; objects were made before. */
#define ANSWERS_NOW_NS UINT64_C(1760000000000000000)

enum answers_disk { ANSWERS_DISK, ANSWERS_DISK_NONE, ANSWERS_DISK_FAULT, ANSWERS_DISK_TROUBLE };

struct answers {
	bool no_daemon; /* every call fails as if nobody listened */
	bool empty;     /* no objects, no sessions */
	enum answers_disk disk;
	unsigned n_calls;
	unsigned n_job_polls;
};

/* struct ctl's call; call_arg is a struct answers. */
int answers_call(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		 struct errbuf *err);

#endif
