/*
 * The status table: every answer that kvcached or libkvcache can give, once.
 *
 * A number is on the wire and in programs that were compiled long ago: it is never changed and
 * never given to something else. New ones are added at the end of their range.
 *
 * KV_STATUS_TABLE(X) calls X(NAME, number, "short text") for each. KVC_NAME in the public header
 * has the same numbers (a test compares them).
 */
#ifndef KV_PROTO_STATUS_H
#define KV_PROTO_STATUS_H

#define KV_STATUS_TABLE(X) \
	X(OK, 0, "done") \
	/* the caller's words are wrong */ \
	X(EINVAL, 1, "invalid argument") \
	X(ERANGE, 2, "number out of range") \
	X(ENAME, 3, "invalid name") \
	X(EEXIST, 4, "name is taken") \
	X(ENOTFOUND, 5, "not found") \
	X(EPERM, 6, "not permitted") \
	X(ELAYOUT, 7, "layout differs") \
	X(EUNSUPPORTED, 8, "not supported by this version") \
	X(ETOOBIG, 9, "larger than the limit") \
	/* the state does not allow it */ \
	X(ERESERVE, 20, "reserve is used up") \
	X(EMOVED, 21, "sequence was moved by someone else") \
	X(EBUSY, 22, "busy") \
	X(ESPLIT, 23, "not one run") \
	X(EBOUND, 24, "beyond the bound of a layer group") \
	X(EFORKED, 25, "handle belongs to another process") \
	X(EREADONLY, 26, "read-only") \
	X(ESTALE, 27, "stale request") \
	X(EVALUE, 28, "value cannot be stored") \
	X(EJOURNAL, 29, "journal does not reach that far") \
	/* resources */ \
	X(ENOMEM, 40, "out of memory") \
	X(EPOOL, 41, "pool is exhausted") \
	X(EQUOTA, 42, "quota is reached") \
	X(ELIMIT, 43, "limit is reached") \
	X(EIO, 44, "disk is full or fails") \
	/* the way there and back */ \
	X(ETIMEOUT, 60, "deadline passed") \
	X(ECANCELLED, 61, "cancelled") \
	X(EDAEMON, 62, "daemon does not answer") \
	X(ERESTARTED, 63, "daemon was restarted") \
	X(EVERSION, 64, "version differs") \
	X(EPROTO, 65, "malformed message") \
	X(ESESSION, 66, "session is unknown or has ended") \
	/* verification */ \
	X(ECORRUPT, 80, "bytes are not what was stored") \
	X(EINTERNAL, 90, "internal error")

enum kv_status {
#define X(name, number, text) KV_##name = number,
	KV_STATUS_TABLE(X)
#undef X
};

/* Short text of a status; "unknown status" for numbers of a later version. Never NULL. */
const char *kv_status_text(int status);

/* Name as programs spell it, for example "KVC_EMOVED". Never NULL. */
const char *kv_status_name(int status);

#endif
