/* Thread-local error of the library: what kvc_error() and kvc_error_text() give. */
#ifndef KV_CLIENT_ERROR_H
#define KV_CLIENT_ERROR_H

#include "proto/errbuf.h"

/* This thread's error, to be passed where a struct errbuf is wanted. */
struct errbuf *kvc_err(void);

/* Sets it; returns -1. */
int kvc_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
