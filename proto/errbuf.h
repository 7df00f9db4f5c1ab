/*
 * struct errbuf: what a person needs to know about a failure, filled where the fault is detected
 * (path, offset, limit, call) and wrapped at most once on the way up. Carries a status of the
 * table and one line of text. A NULL errbuf is allowed everywhere and swallows the text.
 */
#ifndef KV_PROTO_ERRBUF_H
#define KV_PROTO_ERRBUF_H

#include <stdarg.h>

#include "proto/status.h"

#define KV_ERRBUF_BYTES 512

struct errbuf {
	int status;                 /* enum kv_status */
	char text[KV_ERRBUF_BYTES]; /* one line, no newline, always terminated */
};

/*
 * Fills err; returns -1, so that a caller can write `return errbuf_set(...)`. Control bytes (of a
 * name that a peer sent, say) become spaces.
 */
int errbuf_set(struct errbuf *err, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int errbuf_setv(struct errbuf *err, int status, const char *format, va_list args)
	__attribute__((format(printf, 3, 0)));

/* As errbuf_set, and appends ": " and the text of the errno value. */
int errbuf_errno(struct errbuf *err, int status, int errno_value, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* Puts "prefix: " before the text that is there. */
void errbuf_wrap(struct errbuf *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
