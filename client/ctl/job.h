/*
 * Work of the daemon's that takes a while: a command that starts a job, followed to its end with a
 * bar on standard error if that is a terminal. Between progress_begin() and progress_end() SIGINT
 * cancels the job, and its end is awaited. One thread.
 */
#ifndef KV_CTL_JOB_H
#define KV_CTL_JOB_H

#include "client/ctl/ctl.h"

/* Starts a job and follows it. The reply with the job that is done, for ctl_free_reply(); NULL
 * with err, which begins with the label, if it was refused, failed, was cancelled or went with a
 * core. Nothing is started after an interrupt. */
Kv__Wire__Reply *job_run(struct ctl *ctl, const char *label, Kv__Wire__Request *request,
			 struct errbuf *err);

#endif
