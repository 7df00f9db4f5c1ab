/*
 * libkvcache: KV caches of LLM inference that outlive their process, are shared without copying
 * and can be undone bit for bit. The library of the kvcached service.
 *
 * CONTENTS
 *   1  Conventions: objects, threads, errors, deadlines, fork()
 *   2  Sessions
 *   3  Layouts
 *   4  Writers and sequences
 *   5  Reserve, append, scatter, commit
 *   6  Marks, rollback, journals
 *   7  Snapshots, forks, takeover
 *   8  Looking at a sequence: table, runs, reading
 *   9  Batches
 *  10  Digests, differences, verification
 *  11  Attention
 *  12  Policies
 *  13  Saved snapshots: what outlives the machine
 *
 * ---------------------------------------------------------------------------------------------
 * 1  CONVENTIONS
 *
 * Words. A *token* has one key and one value vector per layer and query group (KV head). A
 * *sequence* is the cache of one token stream: per layer group a table of *blocks* of
 * `block_tokens` slots. An *update* is all the writes of one pass of the model; it is committed
 * whole or never happened. A *journal* has the *rows* (one head of one slot of one layer) with
 * which updates can be taken back and applied again, *step* by step: a step is one token, or a
 * whole update where tokens cannot be told apart. A *mark* is a point to go back to. A *snapshot*
 * is immutable. A *fork* is a new sequence that shares a snapshot's blocks until it writes.
 *
 * Objects are opaque and made and freed by this library. Strings and arrays that are passed in
 * are copied or used only during the call. Pointers that are given out belong to the object that
 * they came from and are valid as long as the function says.
 *
 * Option structs begin with their size: `struct kvc_seq_options o = { .size = sizeof(o) };`.
 * Zero in every other field is the default, and NULL for the struct takes all defaults. A struct
 * of a later header that has fields this library does not know is refused if they are not zero.
 *
 * Errors. Functions that return int give 0, or -1; functions that return a pointer give NULL.
 * kvc_error() then is the status and kvc_error_text() one line that says what was wrong, what the
 * limit is and what to do; both belong to the calling thread and hold until its next call into
 * the library. A call that failed has changed nothing, unless it says otherwise.
 *
 * Threads. The library starts none but those of kvc_workers_new (nanomsg has one worker; signals
 * are blocked in all of them). A writer and all handles of its sequences belong to one thread at a
 * time. A session may be used by several threads, each with its own writer. Each function says
 * "writer's thread" or "any thread".
 *
 * Hot path. Beginning, writing (kvc_write*, kvc_scatter, kvc_move, kvc_plane_set,
 * kvc_policy_choose, _write and _score) and committing an update, kvc_mark_*, kvc_rollback_*,
 * kvc_replay and the view calls make no system call, send no message, allocate nothing and take no
 * lock that another process could hold, within what kvc_reserve and kvc_reserve_scatter have set
 * aside; nor does kvc_attend without workers, once a call of that shape has been made.
 *
 * Deadlines. A call that asks the daemon waits at most the session's deadline (default 5 s), then
 * fails with KVC_ETIMEOUT. A daemon that has died is reported as KVC_EDAEMON within 100 ms when it
 * does not come back; when only its core was restarted, the library attaches again by itself and
 * the call succeeds, or fails once with KVC_ERESTARTED and may be repeated.
 *
 * fork(). After fork() every call in the child on an inherited object fails with KVC_EFORKED
 * before it touches anything, and so does kvc_open: nanomsg's worker does not survive fork(). The
 * child may open a session of its own after exec, or if the parent had opened none yet.
 */
#ifndef KVCACHE_H
#define KVCACHE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define KVC_PUBLIC __attribute__((visibility("default")))
#else
#define KVC_PUBLIC
#endif

/* Status of a failed call; numbers never change. The texts are in libkvcache(3). */
enum kvc_status {
	KVC_OK = 0,
	KVC_EINVAL = 1,
	KVC_ERANGE = 2,
	KVC_ENAME = 3,
	KVC_EEXIST = 4,
	KVC_ENOTFOUND = 5,
	KVC_EPERM = 6,
	KVC_ELAYOUT = 7,
	KVC_EUNSUPPORTED = 8,
	KVC_ETOOBIG = 9,
	KVC_ERESERVE = 20,
	KVC_EMOVED = 21,
	KVC_EBUSY = 22,
	KVC_ESPLIT = 23,
	KVC_EBOUND = 24,
	KVC_EFORKED = 25,
	KVC_EREADONLY = 26,
	KVC_ESTALE = 27,
	KVC_EVALUE = 28,
	KVC_EJOURNAL = 29,
	KVC_ENOMEM = 40,
	KVC_EPOOL = 41,
	KVC_EQUOTA = 42,
	KVC_ELIMIT = 43,
	KVC_EIO = 44,
	KVC_ETIMEOUT = 60,
	KVC_ECANCELLED = 61,
	KVC_EDAEMON = 62,
	KVC_ERESTARTED = 63,
	KVC_EVERSION = 64,
	KVC_EPROTO = 65,
	KVC_ESESSION = 66,
	KVC_ECORRUPT = 80,
	KVC_EINTERNAL = 90
};

typedef struct kvc_session kvc_session;
typedef struct kvc_layout kvc_layout;
typedef struct kvc_writer kvc_writer;
typedef struct kvc_seq kvc_seq;
typedef struct kvc_batch kvc_batch;

/* Status and text of this thread's last failed call. Any thread. */
KVC_PUBLIC int kvc_error(void);
KVC_PUBLIC const char *kvc_error_text(void);

/* "KVC_EMOVED" for a status; "KVC_UNKNOWN" for an unknown one. Any thread. */
KVC_PUBLIC const char *kvc_status_name(int status);

/* Version of the library, for example "0.1.0". Any thread. */
KVC_PUBLIC const char *kvc_version(void);

/* ---------------------------------------------------------------------------------------------
 * 2  SESSIONS
 *
 * A session is this process's standing with the daemon: what it holds is given back when the
 * session is closed or the process has gone, however it went. Named sequences and snapshots stay.
 */

struct kvc_session_options {
	size_t size;
	const char *runtime_dir; /* NULL: $KVCACHED_RUNTIME_DIR, else the user's own daemon in
				    $XDG_RUNTIME_DIR/kvcached if there, else /run/kvcached */
	uint32_t deadline_ms;    /* of every call that asks the daemon; 0: 5,000 */
};

/* Attaches to the daemon. KVC_EDAEMON (none there; the text names the socket), KVC_EVERSION,
 * KVC_ELIMIT, KVC_EQUOTA, KVC_ETIMEOUT. Any thread. */
KVC_PUBLIC kvc_session *kvc_open(const struct kvc_session_options *options);

/* Ends the session: its handles must have been freed before or are freed now; unnamed sequences
 * go, named ones wait for takeover. Never fails. NULL is allowed. One thread, no other in it. */
KVC_PUBLIC void kvc_close(kvc_session *session);

/* A round trip to the daemon that does nothing. Any thread. */
KVC_PUBLIC int kvc_ping(kvc_session *session);

/* ---------------------------------------------------------------------------------------------
 * 3  LAYOUTS
 *
 * Everything that shapes the bytes of one model's cache. Two processes share a cache only if all
 * fields are equal; registering the same fields again gives the same layout.
 */

enum kvc_dtype { KVC_F32 = 1, KVC_F16 = 2, KVC_BF16 = 3 };
enum kvc_format {
	KVC_RAW = 1,       /* stored as the compute dtype */
	KVC_INT8 = 2,      /* symmetric, one scale a vector; widths from 2 */
	KVC_U8 = 3,        /* affine, f32 scale and int32 zero point a vector; widths from 16 */
	KVC_U4 = 4,        /* the same with 4 bits; even widths from 16 */
	KVC_Q4 = 5,        /* symmetric, groups of 32; widths that are multiples of 32 */
	KVC_FP8 = 6,       /* e4m3, one power-of-two scale a vector */
	KVC_INT8_MODEL = 7 /* as int8, with arithmetic in the compute dtype, as torchao has it */
};
enum kvc_plane_scope { KVC_PLANE_SLOT = 1, KVC_PLANE_SEQUENCE = 2 };

struct kvc_layer {
	uint32_t n_query_groups; /* key/value heads; never the query heads */
	uint32_t k_width;        /* elements of a key vector */
	uint32_t v_width;        /* elements of a value vector; may differ, may be 0 */
	uint32_t bound_slots;    /* most slots (window, fixed length); 0: unbounded */
};

struct kvc_plane { /* side data that is stored, shared, rolled back with the vectors */
	const char *name;
	uint32_t scope; /* enum kvc_plane_scope: for what belongs to the token in a slot (position,
			   norm, error), or for what changes as a whole (scores, counters,
			   recurrent state) */
	uint32_t bytes; /* per slot and head (at most 1,024), or per sequence (64 MiB) */
};

struct kvc_tag {
	const char *key, *value;
};

struct kvc_layout_options {
	size_t size;
	uint8_t fingerprint[32]; /* of the weights; required (all zero is refused): a changed
				    weight file is another model */
	uint32_t n_layers;       /* 0 for an opaque layout */
	const struct kvc_layer *layers;
	uint32_t dtype;              /* enum kvc_dtype; required unless opaque */
	uint32_t k_format, v_format; /* enum kvc_format; 0: KVC_RAW */
	uint32_t block_tokens; /* slots of a block; 0: chosen so that a block has about 256 KiB,
				    a power of two from 16 to 256 */
	uint32_t opaque_bytes; /* an opaque layout: bytes a slot; no layers, block_tokens 1 */
	uint32_t n_planes;
	const struct kvc_plane *planes;
	uint32_t n_tags;
	const struct kvc_tag *tags; /* whatever changes the numbers: rope settings, adapter, ... */
	uint32_t n_salt_bytes;
	const uint8_t *salt; /* tenant salt: keeps equal models of two tenants apart */
};

/* Registers a layout or finds the equal one. KVC_EINVAL, KVC_ETOOBIG, KVC_EUNSUPPORTED; the text
 * names the field. Any thread. */
KVC_PUBLIC kvc_layout *kvc_layout_register(kvc_session *session,
					   const struct kvc_layout_options *options);

/* Finds a registered layout by its hash; KVC_ENOTFOUND. Any thread. */
KVC_PUBLIC kvc_layout *kvc_layout_find(kvc_session *session, const uint8_t hash[32]);

/* Frees the handle (the layout stays registered): the caller does not use it again. Handles of one
 * layout are one; its memory goes with the session. NULL is allowed. Any thread. */
KVC_PUBLIC void kvc_layout_free(kvc_layout *layout);

/* The 256-bit identity; valid as long as the handle. Any thread. */
KVC_PUBLIC const uint8_t *kvc_layout_hash(const kvc_layout *layout);

/* 0 if all fields are equal; else -1, KVC_ELAYOUT, and the text names the first that differs
 * with both values. Any thread. */
KVC_PUBLIC int kvc_layout_compare(const kvc_layout *a, const kvc_layout *b);

/* Slots of a block, and bytes of one token over all layers. Any thread. */
KVC_PUBLIC uint32_t kvc_layout_block_tokens(const kvc_layout *layout);
KVC_PUBLIC uint64_t kvc_layout_token_bytes(const kvc_layout *layout);

/* Registers, or finds, the layout that differs from this one in its formats only (enum kvc_format;
 * 0: as there). A handle as kvc_layout_register gives. KVC_EINVAL names a width that the format
 * cannot hold; else as kvc_layout_register. Any thread. */
KVC_PUBLIC kvc_layout *kvc_layout_variant(kvc_session *session, const kvc_layout *layout,
					  uint32_t k_format, uint32_t v_format);

/* Bytes of a sequence, by part; and what its journal would take. */
struct kvc_size {
	uint64_t k_bytes, v_bytes; /* codes, or raw elements */
	uint64_t scale_bytes;      /* scales and zero points */
	uint64_t plane_bytes;      /* slot planes */
	uint64_t state_bytes;      /* one version of the sequence planes */
	uint64_t padding_bytes;    /* slots of the last blocks that hold nothing */
	uint64_t table_bytes;      /* block tables, as far as they are used */
	uint64_t total_bytes;      /* of all these, without a journal */
	uint64_t undo_row_bytes;   /* of one row of an undo journal, header included */
	uint64_t replay_row_bytes; /* of one row of a replay journal */
	uint64_t rows_per_token;   /* rows of one token in all layers, its record included */
};

/* What a sequence of n_tokens takes, before anything is allocated or a daemon asked: fills *size
 * (the caller's). Errors as kvc_layout_register; KVC_ERANGE (n_tokens), KVC_ETOOBIG. Any thread. */
KVC_PUBLIC int kvc_layout_size(const struct kvc_layout_options *options, uint64_t n_tokens,
			       struct kvc_size *size);

/* ---------------------------------------------------------------------------------------------
 * 4  WRITERS AND SEQUENCES
 *
 * A writer is a thread's hand: one commit word and the sequences that belong to it. A commit or
 * rollback of several sequences of one writer is atomic. A sequence has one writer for life.
 */

/* A new writer; at most 64 a session (KVC_ELIMIT). The calling thread owns it until it is handed
 * to another by the program's own means. Any thread. */
KVC_PUBLIC kvc_writer *kvc_writer_new(kvc_session *session);

/* Frees a writer without sequences; KVC_EBUSY if it has some. Writer's thread. */
KVC_PUBLIC int kvc_writer_free(kvc_writer *writer);

struct kvc_seq_options {
	size_t size;
	const char *name;    /* [A-Za-z0-9._/-], up to 255 bytes; NULL: none */
	uint64_t max_tokens; /* the table's size; 0: 1,048,576 (untouched it costs nothing) */
};

/* A new empty sequence. KVC_EEXIST (name), KVC_ENAME, KVC_ELIMIT. Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_seq_new(kvc_writer *writer, const kvc_layout *layout,
				const struct kvc_seq_options *options);

/* Frees the handle. A sequence without a name is dropped and its blocks given back; one with a
 * name stays and waits for takeover. If the daemon cannot be told, that is done when the session
 * ends. NULL is allowed. Writer's thread. */
KVC_PUBLIC void kvc_seq_free(kvc_seq *seq);

/* Frees the handle and drops the sequence, named or not. Writer's thread. */
KVC_PUBLIC int kvc_seq_drop(kvc_seq *seq);

/* Gives a sequence a name, changes it, or takes it away (NULL). Writer's thread. */
KVC_PUBLIC int kvc_seq_name(kvc_seq *seq, const char *name);

/* Committed length in tokens; what belongs to an open update is not counted. Writer's thread. */
KVC_PUBLIC uint64_t kvc_length(const kvc_seq *seq);

/* The layout of a sequence, which whoever made its snapshot chose: compare it with that of your
 * model (kvc_layout_compare) before you use a fork, an opened snapshot or what you took over.
 * Borrowed: valid as long as the session, not to be freed. Any thread. */
KVC_PUBLIC const kvc_layout *kvc_seq_layout(const kvc_seq *seq);

/* The pair that a view is valid for: generation (bumped by every rollback, freeze and move) and
 * number of the last committed update. Writer's thread. */
KVC_PUBLIC int kvc_version_of(const kvc_seq *seq, uint64_t *generation, uint64_t *update);

/* ---------------------------------------------------------------------------------------------
 * 5  RESERVE, APPEND, SCATTER, COMMIT
 *
 *     kvc_reserve(seq, 512);                      asks the daemon for memory, ahead of need
 *     kvc_append_begin(seq, n);                   n new tokens
 *     for each layer: kvc_write(seq, layer, k, v);
 *     kvc_commit(writer, &seq, 1);                all layers and all sequences named, or none
 *
 * A *slot* is where the vectors of one token are in one layer; slots are counted from 0 in each
 * layer. In a layer without bound token t is in slot t. In a layer with bound_slots b token t is in
 * slot t % b (a ring: what was there is overwritten), unless a scatter update says otherwise. To
 * overwrite slots, a sequence needs a journal (section 6): the ring of a sequence without one ends
 * at the bound (KVC_EBOUND).
 */

/*
 * Afterwards the next n_tokens appended tokens need no call: blocks are set aside, with one more
 * a layer group to copy into, and with a journal the rows of as many one-token updates. Asking for
 * what is there already is free. KVC_EPOOL, KVC_EQUOTA, KVC_EBOUND, KVC_ERANGE (max_tokens),
 * KVC_EJOURNAL (more rows than a replay journal may have); nothing is kept on failure. Writer's
 * thread.
 */
KVC_PUBLIC int kvc_reserve(kvc_seq *seq, uint64_t n_tokens);

/*
 * Sets aside what n_updates scatter updates of n_rows rows in all need (a row is one head of one
 * slot of one layer): journal rows, and n_blocks blocks a layer group to copy frozen ones into (a
 * block that a snapshot or fork holds is copied at the first write to it). KVC_EUNSUPPORTED without
 * a journal, KVC_EJOURNAL (more rows than it may have), KVC_ELIMIT (more blocks than a sequence
 * keeps in reserve), else as kvc_reserve. Writer's thread.
 */
KVC_PUBLIC int kvc_reserve_scatter(kvc_seq *seq, uint64_t n_updates, uint64_t n_rows,
				   uint32_t n_blocks);

/*
 * Begins an update that appends n_tokens behind the committed length. KVC_ERESERVE (reserve and
 * repeat), KVC_EBOUND, KVC_ERANGE, KVC_EREADONLY, KVC_EBUSY (an update is open), KVC_EJOURNAL (the
 * journal is full). Writer's thread.
 */
KVC_PUBLIC int kvc_append_begin(kvc_seq *seq, uint64_t n_tokens);

enum kvc_update_flags {
	/* Layers that are full (bound_slots tokens are in them) get their slots from kvc_scatter and
	 * not from the ring; kvc_write is for the others. Tokens of such an update cannot be rolled
	 * back one by one. Without new tokens the flag makes no difference. */
	KVC_UPDATE_SCATTER = 1
};

/*
 * Begins an update in general: n_tokens new tokens (0: only slots that are there are overwritten)
 * and flags (enum kvc_update_flags). kvc_append_begin(seq, n) is kvc_update_begin(seq, n, 0).
 * KVC_EUNSUPPORTED without a journal if n_tokens is 0. A ring takes at most bound_slots tokens an
 * update (KVC_EBOUND: prefill in chunks). Other errors as kvc_append_begin. Writer's thread.
 */
KVC_PUBLIC int kvc_update_begin(kvc_seq *seq, uint64_t n_tokens, uint32_t flags);

/*
 * Writes n vectors a head of one layer into slots that hold tokens, those of the open update
 * included, other slots for each head if need be: index is [n_query_groups][n], or [n] with
 * `shared` (the same slots for all heads); k is [n][n_query_groups][k_width], v and dtype as in
 * kvc_write; planes as in kvc_write_planes with n for n_tokens, or NULL: slot planes stay as they
 * were. k and v both NULL: only planes are written. May be called several times in an update (a
 * fused second part: grace periods); later ones win. Exactly the named (layer, head, slot) change,
 * and only at the commit. KVC_EINVAL: a slot is twice in one call for one head; KVC_ERANGE: a slot
 * that holds nothing; KVC_ERESERVE (kvc_reserve_scatter); KVC_EJOURNAL: the journal is full;
 * KVC_EUNSUPPORTED without one; KVC_EVALUE: abort the update. Writer's thread.
 */
KVC_PUBLIC int kvc_scatter(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *index,
			   int shared, const void *k, const void *v, const void *const *planes);

/*
 * Copies vectors inside the open update, as they are stored, with their slot planes: for each head
 * (or all, with `shared`) slot from[i] to slot to[i], indices as in kvc_scatter; n of them. What is
 * copied is what was committed. Nothing is quantised again (in a replay journal a row has the
 * vector as kvc_read gives it). Errors as kvc_scatter; KVC_ERANGE: a slot to copy from that was not
 * committed. Writer's thread.
 */
KVC_PUBLIC int kvc_move(kvc_seq *seq, uint32_t layer, uint64_t n, const uint32_t *from,
			const uint32_t *to, int shared);

/*
 * Writes slot planes of tokens [first, first + n_tokens) of the open update: planes[i] is
 * [n_tokens][n_query_groups][bytes] of the i-th slot plane of the layout, NULL: zeros stay. Slot
 * planes that are not written are zero. KVC_ENOTFOUND (the layout has none), KVC_ERANGE, KVC_EINVAL
 * (no update is open; or a full layer of a scatter update, whose planes kvc_scatter writes).
 * Writer's thread.
 */
KVC_PUBLIC int kvc_write_planes(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
				const void *const *planes);

/*
 * Sets a sequence plane in the open update (n_bytes: all of it); the others keep what they are.
 * Takes a block of the reserve, the first time in an update (kvc_reserve has one for each token).
 * KVC_ENOTFOUND (no sequence plane of that name), KVC_ERANGE (n_bytes), KVC_ERESERVE, KVC_EJOURNAL:
 * the journal holds as many versions as there can be (1,024). Writer's thread.
 */
KVC_PUBLIC int kvc_plane_set(kvc_seq *seq, const char *name, const void *bytes, size_t n_bytes);

/* The committed bytes of a sequence plane; NULL and KVC_OK if none was ever set (all zero), NULL
 * and KVC_ENOTFOUND if there is none of that name. Borrowed from the cache: valid until the next
 * commit or rollback of the sequence. Writer's thread. */
KVC_PUBLIC const void *kvc_plane_get(kvc_seq *seq, const char *name);

/*
 * Writes one layer of the open update: k is [n_tokens][n_query_groups][k_width], v the same with
 * v_width, in the layout's dtype, dense, not overlapping the cache; v is NULL where v_width is 0
 * and for opaque layouts (layer 0, k is [n_tokens][opaque_bytes]). Where the layout's formats are
 * quantised, vectors are quantised here; KVC_EVALUE names the first that the format cannot hold
 * (NaN, infinity): abort the update. Writer's thread.
 */
KVC_PUBLIC int kvc_write(kvc_seq *seq, uint32_t layer, const void *k, const void *v);

/*
 * As kvc_write, but for tokens [first, first + n_tokens) of the open update, and rows that lie
 * k_stride_bytes and v_stride_bytes apart (a row is all heads of one token, dense). Writer's
 * thread.
 */
KVC_PUBLIC int kvc_write_rows(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
			      const void *k, size_t k_stride_bytes, const void *v,
			      size_t v_stride_bytes);

/*
 * Where token `first` of the open update of a layer goes, to be written in place: *k and *v point
 * to that token's row, rows follow one another, and the return value is how many tokens (at most
 * n_tokens) lie there in one piece; -1 on error. Valid until the update ends. KVC_EUNSUPPORTED for
 * quantised formats, rings past their bound and replay journals. Writer's thread.
 */
KVC_PUBLIC int64_t kvc_write_span(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_tokens,
				  void **k, void **v);

/*
 * Commits the open updates of `seqs` (all of this writer; NULL and 0: all that have one) at
 * once. Layers that were not written hold what the memory held: write them all. KVC_EMOVED: an
 * operator rolled one of the writer's sequences back meanwhile; nothing was committed, the open
 * updates are gone, the lengths are those of now: begin again. KVC_ETIMEOUT: the daemon held the
 * sequence longer than the deadline; the update is still open. KVC_ERESERVE: slots are overwritten
 * in blocks that a snapshot or fork holds, and the reserve has none to copy them into; the update
 * is still open: kvc_reserve_scatter, and commit again. Writer's thread.
 */
KVC_PUBLIC int kvc_commit(kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs);

/* Drops the open update of a sequence; nothing happened. Writer's thread. */
KVC_PUBLIC int kvc_abort(kvc_seq *seq);

/* ---------------------------------------------------------------------------------------------
 * 6  MARKS, ROLLBACK, JOURNALS
 *
 * Rollback is exact: afterwards every byte that can be read is what it was. It costs the same at
 * 1,000 and at 100,000 tokens; with an undo journal, as much as the rows that are taken back.
 *
 * What changes a sequence here is refused with KVC_EBUSY while it has an open update and with
 * KVC_EREADONLY on a snapshot, and can fail with KVC_EMOVED and KVC_ETIMEOUT as kvc_commit does.
 * Where slots are overwritten in place (undo journals), it fails with KVC_ERESERVE if a snapshot or
 * fork holds their blocks and the reserve has none to copy them into: nothing has changed, call
 * kvc_reserve_scatter and repeat.
 */

typedef struct kvc_mark {
	uint64_t id, update, length_tokens;
} kvc_mark;

/* Marks the committed state as a point to go back to; *mark, the caller's, names it. Nested, up to
 * 64 (KVC_ELIMIT). Gone when released or when a rollback passes it; survives takeover. With a
 * journal that has no rows yet it takes the first (KVC_ERESERVE). Writer's thread. */
KVC_PUBLIC int kvc_mark_set(kvc_seq *seq, kvc_mark *mark);

/* Releases a mark and those set after it. KVC_ENOTFOUND. Writer's thread. */
KVC_PUBLIC int kvc_mark_release(kvc_seq *seq, const kvc_mark *mark);

/* Goes back to a mark, which stays; later marks are gone. KVC_ENOTFOUND (released, or passed by a
 * rollback), KVC_EJOURNAL: steps behind it were folded or forgotten. Writer's thread. */
KVC_PUBLIC int kvc_rollback_mark(kvc_seq *seq, const kvc_mark *mark);

/* Keeps the first n tokens (0: none). More than the length is KVC_ERANGE. Writer's thread. */
KVC_PUBLIC int kvc_rollback_keep(kvc_seq *seq, uint64_t n_tokens);

/* Removes the last n tokens (0: nothing happens). More than the length is KVC_ERANGE. Writer's
 * thread. */
KVC_PUBLIC int kvc_rollback_remove(kvc_seq *seq, uint64_t n_tokens);

/* Each sequence (all of this writer) removes its own number of tokens, in one update:
 * batched speculative decoding. All or none. Writer's thread. */
KVC_PUBLIC int kvc_rollback_many(kvc_writer *writer, kvc_seq *const *seqs,
				 const uint64_t *remove_tokens, size_t n_seqs);

/*
 * Journals. Appending alone needs none to go back. A sequence that overwrites slots (rings,
 * eviction policies) has an *undo* journal: writes go in place, old and new stored bytes are kept
 * in rows. With a *replay* journal nothing is written to blocks at all: what comes after it was
 * begun is in rows, in the layout's dtype, laid over the blocks when they are read, so a quantised
 * base stays as it is until kvc_fold. A step is what can be gone back to: each token by itself, or
 * the whole of an update that overwrites slots (kvc_scatter, KVC_UPDATE_SCATTER) or sets a sequence
 * plane. Behind the rows of each step one more row, the record, says what the sequence is then, and
 * so does the first row of all.
 *
 * kvc_rollback_* with a journal: exact to any step that the journal reaches, else KVC_EJOURNAL and
 * nothing has changed. A length that no step ends at is KVC_ERANGE; the text names those around it.
 * Below the journal tokens are cut off as without one, if no slot there was overwritten.
 * Without a journal a sequence that has overwritten slots, or set sequence planes, goes back
 * nowhere (KVC_EJOURNAL).
 */
enum kvc_journal_mode { KVC_JOURNAL_NONE = 0, KVC_JOURNAL_UNDO = 1, KVC_JOURNAL_REPLAY = 2 };

enum kvc_journal_full {
	KVC_FULL_REFUSE = 0, /* the update is refused with KVC_EJOURNAL; fold, or release marks */
	KVC_FULL_FORGET = 1  /* undo: the oldest steps and marks are forgotten to make room */
};

struct kvc_journal_options {
	size_t size;
	uint32_t mode;       /* enum kvc_journal_mode */
	uint32_t when_full;  /* enum kvc_journal_full */
	uint64_t max_rows;   /* bound on memory; 0, or more than a table can name: as many as that;
				half of it where the oldest are forgotten */
	uint32_t keep_steps; /* undo: that can be rolled back even without a mark; 0: 64. Older
				ones are forgotten unless a mark needs them, a few at a time */
};

/*
 * Begins a journal, changes its options, or ends it (mode none). The mode can be changed only while
 * the journal has no rows and the sequence no mark (KVC_EBUSY): fold a replay journal first; rows
 * of an undo journal stay behind in a fork. A fork of a sequence with a replay journal has that
 * journal; one of a sequence with an undo journal has an empty one. Options other than the mode
 * belong to the handle: after a takeover, and in a fork through the daemon, they are the defaults.
 * KVC_EINVAL, KVC_EUNSUPPORTED (opaque layouts), KVC_ENOMEM. Writer's thread.
 */
KVC_PUBLIC int kvc_journal_set(kvc_seq *seq, const struct kvc_journal_options *options);

struct kvc_journal_info {
	uint32_t mode;         /* enum kvc_journal_mode */
	uint64_t n_rows;       /* in the journal, records included */
	uint64_t max_rows;     /* that it may have */
	uint64_t n_steps;      /* that can be rolled back */
	uint64_t n_forward;    /* rolled back and not overwritten: kvc_replay can apply them */
	uint64_t first_tokens; /* length that the journal reaches back to */
	uint64_t base_tokens;  /* tokens that are in blocks */
	uint64_t n_bytes;      /* of its blocks */
};

/* Fills *info (the caller's), of a snapshot too; n_forward is 0 while an update is open. Writer's
 * thread. */
KVC_PUBLIC int kvc_journal_info(kvc_seq *seq, struct kvc_journal_info *info);

/* Goes back n steps (0: nothing happens). KVC_EJOURNAL if the journal does not reach that far, or
 * there is none. Writer's thread. */
KVC_PUBLIC int kvc_rollback_steps(kvc_seq *seq, uint64_t n_steps);

/*
 * Applies steps again that a rollback took back and nothing has overwritten: n_steps of them, 0:
 * all. Returns how many; -1 on error: KVC_EJOURNAL (there are fewer), KVC_EUNSUPPORTED (no journal;
 * or an undo journal, and the steps took new slots, whose bytes are not in it). Only the handle
 * that went back knows them, and only until an update is begun, also one that is refused for lack
 * of a reserve or aborted. Writer's thread.
 */
KVC_PUBLIC int64_t kvc_replay(kvc_seq *seq, uint64_t n_steps);

/*
 * Applies all steps of another sequence's replay journal (same layout; a snapshot will do), which
 * begins at this one's length and position, onto this one, a fork of the same base: it has, or
 * gets, a replay journal, without rows. Returns how many steps, 0 if there are none; -1 on error
 * (it may have begun the journal): KVC_EINVAL (no replay journal, one that begins elsewhere, rows
 * here, or bases that differ), KVC_ELAYOUT, KVC_ERANGE (max_tokens), KVC_EBUSY (an undo journal
 * with rows here), KVC_ERESERVE (kvc_reserve_scatter), KVC_EJOURNAL. Writer's thread of both.
 */
KVC_PUBLIC int64_t kvc_replay_from(kvc_seq *seq, kvc_seq *source);

/*
 * Turns rows of a replay journal into blocks, the oldest steps first, as many as leave the newest
 * keep_rows rows (0: all): a full-precision window. No block that counts is written: those that
 * rows are laid over are copied, and whoever shares the old ones keeps them. Returns how many rows
 * were folded, records included; -1 on error: nothing has changed. What was folded cannot be rolled
 * back: a mark before it is refused (KVC_EJOURNAL). Asks the daemon for the blocks that the reserve
 * lacks. KVC_EUNSUPPORTED (no replay journal), KVC_EVALUE (a vector that the format cannot hold,
 * and that no later row displaces), KVC_EPOOL, KVC_EQUOTA. Writer's thread.
 */
KVC_PUBLIC int64_t kvc_fold(kvc_seq *seq, uint64_t keep_rows);

/*
 * A new sequence of the same writer in another layout that differs from this one's in formats and
 * block_tokens only, with the same tokens: each vector is read and stored block by block, straight
 * from block to block (as it is stored where the format stays). Rows of a replay journal are folded
 * into it; it has a journal of the same mode, without rows, and no marks. This one, also a
 * snapshot, was only read and goes on; drop it when you do not need it. The new one is made in one
 * update, and its name is given last, so nobody finds half of it. max_tokens 0: as here (of a
 * snapshot: the default, or its length). progress may be NULL; returning not 0 cancels
 * (KVC_ECANCELLED). The caller frees it (kvc_seq_free). KVC_ELAYOUT, KVC_ERANGE (max_tokens),
 * KVC_EVALUE, KVC_EEXIST, KVC_EPOOL, KVC_EQUOTA. Writer's thread.
 */
KVC_PUBLIC kvc_seq *kvc_convert(kvc_seq *seq, const kvc_layout *layout,
				const struct kvc_seq_options *options,
				int (*progress)(void *arg, uint64_t n_done, uint64_t n_tokens),
				void *arg);

/* ---------------------------------------------------------------------------------------------
 * 7  SNAPSHOTS, FORKS, TAKEOVER
 *
 * None of these copies data. A snapshot or fork may end inside a block: whoever appends first
 * copies that block's filled slots. A journal that comes with a sequence is looked through first:
 * KVC_ECORRUPT if its rows make no sense.
 */

struct kvc_snapshot_options {
	size_t size;
	const char *name; /* NULL: anonymous, goes with the session */
	int replace;      /* not 0: an object of that name is replaced, else KVC_EEXIST */
};

/* Takes a snapshot of the committed state through the daemon; *id (may be NULL) is its number.
 * Writer's thread. */
KVC_PUBLIC int kvc_snapshot(kvc_seq *seq, const struct kvc_snapshot_options *options, uint64_t *id);

/* One atomic snapshot of several sequences, also of several writers of this session: all of
 * them, or none. options[n_seqs] or NULL, ids[n_seqs] or NULL. At most 64 (KVC_ETOOBIG). Any
 * thread: the writers' threads may go on, but free none of the sequences meanwhile. */
KVC_PUBLIC int kvc_snapshot_many(kvc_seq *const *seqs, const struct kvc_snapshot_options *options,
				 uint64_t *ids, size_t n_seqs);

/* A new sequence of this writer from a snapshot or sequence that has a name. KVC_ENOTFOUND,
 * KVC_EBUSY (its writer did not let the daemon act within the deadline). Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_fork(kvc_writer *writer, const char *source,
			     const struct kvc_seq_options *options);

/* The same from a snapshot's number (anonymous snapshots). Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_fork_id(kvc_writer *writer, uint64_t source_id,
				const struct kvc_seq_options *options);

/* Sets places aside for n local forks or snapshots of sequences like this one. Writer's thread. */
KVC_PUBLIC int kvc_reserve_forks(kvc_seq *seq, uint32_t n_forks);

/*
 * A fork inside the session, without a message; it belongs to the same writer. Of the reserve of
 * `seq`, blocks for n_reserve_tokens (and the one to copy into) move to the fork. KVC_ERESERVE:
 * places or blocks are used up (kvc_reserve_forks, kvc_reserve). No open update. Writer's thread.
 */
KVC_PUBLIC kvc_seq *kvc_fork_local(kvc_seq *seq, uint64_t n_reserve_tokens);

/* A read-only state of now inside the session, without a message. Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_snapshot_local(kvc_seq *seq);

/* Opens a snapshot for reading; the handle is a read-only sequence. Free with kvc_seq_free. The
 * snapshot's bytes stay while a handle is open, even if its name is removed. Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_open_snapshot(kvc_writer *writer, const char *name);

/* Becomes the writer of a named sequence whose writer has gone; keeps name, marks, history.
 * KVC_EBUSY while the old one lives. Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_takeover(kvc_writer *writer, const char *name);

/* Removes a named snapshot, or a named sequence that has no writer (KVC_EBUSY if it has). Who
 * holds a fork or a handle keeps what it has. Any thread. */
KVC_PUBLIC int kvc_remove(kvc_session *session, const char *name);

/* Waits until an object of that name exists; KVC_ETIMEOUT at the deadline (0: the session's). Any
 * thread. */
KVC_PUBLIC int kvc_wait(kvc_session *session, const char *name, uint32_t deadline_ms);

/* A descriptor that becomes readable (poll it) when an object of that name exists, also when the
 * daemon's core was restarted meanwhile; its end without a byte: the daemon has gone. It is the
 * caller's to close; at most 64 a session are waiting (KVC_ELIMIT). Any thread. */
KVC_PUBLIC int kvc_watch(kvc_session *session, const char *name);

/* ---------------------------------------------------------------------------------------------
 * 8  LOOKING AT A SEQUENCE
 *
 * A view shows the committed state, and is valid until the next commit, rollback or free of this
 * sequence by this writer (compare kvc_version_of). Table and run views copy nothing.
 */

/* A block of a table: which of the arenas, and which block of it. */
struct kvc_block {
	uint32_t arena; /* for kvc_view_arena */
	uint32_t block;
};

/* One arena's paged tensor of one layer: (n_blocks, block_tokens, n_query_groups, width). Scales
 * and zero points are tensors of the same first three axes; NULL where a format has none. */
struct kvc_paged {
	const void *k, *v; /* element [0][0][0][0]; v is NULL where v_width is 0 */
	const void *k_scale, *k_zero, *v_scale, *v_zero;
	uint32_t n_blocks; /* 0: no block of this sequence lies there, k and v are NULL */
};

/* A layer as a table. Block b of the sequence is blocks[b]; slot s of the layer is slot
 * s % block_tokens of block s / block_tokens (token t is slot t where no bound or policy says
 * otherwise). Strides are those of a dense tensor of the shape above. */
struct kvc_layer_view {
	const struct kvc_block *blocks;
	uint64_t n_blocks;
	uint64_t length_tokens;
	uint64_t n_slots;      /* of this layer that hold something */
	uint64_t n_base_slots; /* of these, the slots that blocks hold: [0, n_base_slots) */
	uint64_t n_rows;       /* of a replay journal, all layers: if not 0, use kvc_read */
	uint32_t k_format, v_format;
	uint32_t block_tokens;
	uint32_t n_query_groups, k_width, v_width;
	size_t k_row_bytes, v_row_bytes; /* one slot: [head][codes of one vector] */
	uint64_t generation, update;
};

/* Fills the view of a layer. Writer's thread. */
KVC_PUBLIC int kvc_view_table(kvc_seq *seq, uint32_t layer, struct kvc_layer_view *view);

/* The paged tensor of arena `arena` (of kvc_block) for a layer. Writer's thread. */
KVC_PUBLIC int kvc_view_arena(kvc_seq *seq, uint32_t layer, uint32_t arena,
			      struct kvc_paged *paged);

/* A run: consecutive slots in memory, hence one strided tensor (n_query_groups, n_tokens, width)
 * with strides (width, row, 1) elements. Of a bounded layer, read slot for token; rows of a replay
 * journal are not in it. */
struct kvc_run {
	const void *k, *v; /* row of the first slot */
	const void *k_scale, *k_zero, *v_scale, *v_zero;
	uint64_t first_token, n_tokens;
	size_t k_row_bytes, v_row_bytes;
};

/* Fills up to max_runs runs of a layer in token order; returns how many there are in all (0 for
 * an empty sequence), -1 on error. Writer's thread. */
KVC_PUBLIC int64_t kvc_view_runs(kvc_seq *seq, uint32_t layer, struct kvc_run *runs,
				 size_t max_runs);

/* The whole layer as one run; KVC_ESPLIT with the number of runs and the reason when it is not
 * one (a fork of a shared prompt has at least two). Writer's thread. */
KVC_PUBLIC int kvc_view_run(kvc_seq *seq, uint32_t layer, struct kvc_run *run);

/*
 * Reads slots [first, first + n_slots) of a layer as they count: dequantised, with the rows of a
 * replay journal laid over, into k [n_slots][n_query_groups][k_width] and v the same with v_width,
 * in the layout's dtype (opaque: k [n_slots][opaque_bytes]). k or v may be NULL. KVC_ERANGE,
 * KVC_EINVAL (v of a layer that has none). What a slot of a bounded layer holds, its policy or ring
 * says. Writer's thread.
 */
KVC_PUBLIC int kvc_read(kvc_seq *seq, uint32_t layer, uint64_t first, uint64_t n_slots, void *k,
			void *v);

/* The same for one slot plane: [n_slots][n_query_groups][bytes]. KVC_ERANGE, KVC_ENOTFOUND.
 * Writer's thread. */
KVC_PUBLIC int kvc_read_plane(kvc_seq *seq, const char *name, uint32_t layer, uint64_t first,
			      uint64_t n_slots, void *bytes);

/*
 * How far n tokens of a layer are from what the layout's formats store of them: the L2 norm of the
 * difference of each vector, k_error and v_error [n][n_query_groups]; 0 for raw. k and v are as in
 * kvc_write; v and v_error, or k and k_error, may be NULL. What a policy that weighs quantisation
 * errors keeps in a slot plane. KVC_EVALUE, KVC_ERANGE, KVC_EINVAL (one of a pair is NULL),
 * KVC_EUNSUPPORTED (opaque). Any thread.
 */
KVC_PUBLIC int kvc_quantisation_error(const kvc_layout *layout, uint32_t layer, uint64_t n,
				      const void *k, const void *v, float *k_error, float *v_error);

/* Slots of a layer that hold something. Writer's thread. */
KVC_PUBLIC uint64_t kvc_slots(const kvc_seq *seq, uint32_t layer);

/* Absolute position of the next token: tokens seen, whatever was evicted. Writer's thread. */
KVC_PUBLIC uint64_t kvc_position(const kvc_seq *seq);

/* ---------------------------------------------------------------------------------------------
 * 9  BATCHES
 *
 * n_rows sequences of one writer that each have one run set aside, at equal distances in one
 * arena: per layer one strided tensor (n_rows, n_query_groups, max_tokens, width) whose address
 * never changes.
 */

struct kvc_batch_tensor {
	void *k, *v; /* row 0, token 0 */
	uint32_t n_rows, n_query_groups, k_width, v_width;
	uint64_t max_tokens;
	size_t k_seq_stride_bytes, v_seq_stride_bytes; /* from one sequence to the next */
	size_t k_row_bytes, v_row_bytes;               /* from one token to the next */
};

/* A batch of new sequences, each with room for max_tokens. KVC_EPOOL, KVC_EQUOTA. Writer's
 * thread. */
KVC_PUBLIC kvc_batch *kvc_batch_new(kvc_writer *writer, const kvc_layout *layout, uint32_t n_rows,
				    uint64_t max_tokens);

/* Sequence of a row; borrowed from the batch: not to be freed. Writer's thread. */
KVC_PUBLIC kvc_seq *kvc_batch_seq(kvc_batch *batch, uint32_t row);

/* The strided tensor of a layer. KVC_ESPLIT names the row and why its run has ended (it wrote
 * below a snapshot, or was taken over). Writer's thread. */
KVC_PUBLIC int kvc_batch_view(kvc_batch *batch, uint32_t layer, struct kvc_batch_tensor *tensor);

/* Drops all sequences of the batch. NULL is allowed. Writer's thread. */
KVC_PUBLIC void kvc_batch_free(kvc_batch *batch);

/* ---------------------------------------------------------------------------------------------
 * 10  DIGESTS, DIFFERENCES, VERIFICATION
 *
 * A digest is a 128-bit hash (XXH3) over layout, length, position, every stored byte in slot order
 * (codes, scales, zero points, planes) and the rows of a replay journal that are in force,
 * independent of where the bytes lie. Equal history gives equal digests. It guards against
 * accidents, not against attackers.
 */

/* Digest of the committed state, computed here. Writer's thread. */
KVC_PUBLIC int kvc_digest(kvc_seq *seq, uint8_t digest[16]);

/* Slots that differ in one part of one layer. part: "k", "k_scale", "k_zero", "v", ..., the name of
 * a plane, "length", "position"; head 0 and slot 0 for what has none. */
struct kvc_difference {
	uint32_t layer;
	uint32_t head;
	const char *part;
	uint64_t first_slot, n_slots;
};

/*
 * Compares two sequences of one layout as they count and calls report() for each difference (may be
 * NULL; returning not 0 ends it; what it is given is valid during the call). Where a replay journal
 * is in force in one of them, vectors are compared as kvc_read gives them. Slots that only one of
 * them has are not compared: the length says so. Returns the number of (layer, head, slot, part)
 * that differ, as far as it came, 0: none; -1 on error (KVC_ELAYOUT, KVC_ENOMEM). Writer's thread
 * of both.
 */
KVC_PUBLIC int64_t kvc_diff(kvc_seq *a, kvc_seq *b,
			    int (*report)(void *arg, const struct kvc_difference *difference),
			    void *arg);

struct kvc_verify_result {
	uint64_t n_bytes, n_blocks;
	uint64_t n_known; /* blocks whose digest was known before: only these can be found bad */
	uint64_t n_bad;
	uint64_t first_bad_token; /* valid if n_bad > 0 */
	uint8_t digest[16];
};

/*
 * The daemon reads every byte of a named snapshot or sequence without writer, compares with the
 * digests that it knows and remembers those that it did not. KVC_ECORRUPT if a block is not what
 * it was (result is filled then too). progress may be NULL; returning not 0 cancels. result may be
 * NULL. The deadline holds for each question to the daemon, not for the whole. Any thread.
 */
KVC_PUBLIC int kvc_verify(kvc_session *session, const char *name,
			  int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes),
			  void *arg, struct kvc_verify_result *result);

/* ---------------------------------------------------------------------------------------------
 * 11  ATTENTION
 *
 * Attention over the cache as it is stored: no full-precision copy of a quantised cache, no mask.
 * Results have one order of operations (kvcache-formats(7)): equal bytes give equal bits, whatever
 * the blocks they lie in, the number of workers, and, where tokens are stored exactly (raw, or in
 * a replay journal), the number of tokens that are computed together.
 */

typedef struct kvc_workers kvc_workers;

/* n threads that kvc_attend uses, the caller's own being one of them: n - 1 are started, with all
 * signals blocked, and wait asleep between calls. 1 to 256 (KVC_ERANGE). KVC_ENOMEM, KVC_ELIMIT (no
 * more threads), KVC_EUNSUPPORTED (Linux before 4.14). One call of kvc_attend at a time uses them,
 * another one gets KVC_EBUSY. Any thread. */
KVC_PUBLIC kvc_workers *kvc_workers_new(uint32_t n_threads);
/* Ends the threads. NULL is allowed. Any thread, no call using them. */
KVC_PUBLIC void kvc_workers_free(kvc_workers *workers);

enum kvc_weights { KVC_WEIGHTS_MEAN = 0, KVC_WEIGHTS_SUM = 1 };

/*
 * One layer of one model step. Queries are those of the n_tokens *current* tokens: in k and v, not
 * in the cache (whether kvc_write has been called for them makes no difference). Query i sees the
 * cached tokens, and of the current ones 0 .. i.
 */
struct kvc_attend_args {
	size_t size;
	uint32_t n_query_heads; /* a multiple of the layer's n_query_groups; head h is of query
				   group h / (n_query_heads / n_query_groups) */
	uint64_t n_tokens;      /* queries; at least 1 */
	const float *q;         /* [n_tokens][n_query_heads][k_width] */
	const void *k, *v; /* current tokens as in kvc_write, read in full precision; both NULL:
				   the queries are of the last n_tokens cached tokens, query i sees
				   those up to its own */
	float *out;        /* [n_tokens][n_query_heads][v_width] */
	uint64_t length_tokens; /* of the cached tokens the first so many count; 0: all. Not with
				   slots (KVC_EINVAL); KVC_ERANGE where a query would see what
				   the ring no longer has */
	float scale;            /* of the scores; 0: 1 / sqrt(k_width) */
	float softcap;          /* scores become softcap * tanh(score / softcap); 0: they do not */
	uint64_t window_tokens; /* a query sees so many tokens, its own included; 0: all. In a ring
				   never more than bound_slots, also of those that later tokens of
				   the same call overwrite */
	const float
		*sinks; /* [n_query_heads] scores that take weight, without values; NULL: none */
	/*
	 * Layers whose slots a policy has chosen, in an open update of n_tokens new tokens, or of
	 * none. slots: where the current tokens are (as index and shared of kvc_scatter:
	 * [n_query_groups][n_tokens], or [n_tokens]; KVC_POLICY_NONE: in none, for all heads, and its
	 * weight is in none); what is cached in those slots is not seen, and vectors that the open
	 * update has moved or scattered count. NULL: the current tokens follow the cached ones, in a
	 * ring over the oldest.
	 */
	const uint32_t *slots;
	int shared_slots;
	/* With slots: absolute positions of all slots as they are with this update,
	 * [n_query_groups][slots], and of query 0. Needed for window_tokens, else not looked at: a
	 * slot is seen by the queries that are less than so many positions behind it. */
	const int32_t *positions;
	int64_t first_position;
	/* Not NULL: the weights, summed over the queries, and over the query heads of a group their
	 * mean or sum (enum kvc_weights), f32 [n_query_groups][slots as they are with this update].
	 * What a token got whose slot a later one of this call takes is in none of them. */
	float *weights;
	uint32_t weights_how;
	kvc_workers *workers; /* NULL: the calling thread alone */
};

/*
 * Attends over a layer; out and weights are the caller's. Codes are dequantised in registers, a
 * tile at a time, without the rounding to the dtype that kvc_read does. A query that sees nothing
 * gets zeros. Scratch memory belongs to the workers, or the writer, and grows only when a call has
 * more queries, heads, workers or moved vectors than any before; it does not depend on the length.
 * KVC_EINVAL (v_width 0, a field that does not fit), KVC_ERANGE (layer, length_tokens, a slot),
 * KVC_EUNSUPPORTED (opaque; wider than 256), KVC_EBUSY (another thread has the workers in a call),
 * KVC_ENOMEM. Nothing has changed, out may be half written. Writer's thread.
 */
KVC_PUBLIC int kvc_attend(kvc_seq *seq, uint32_t layer, const struct kvc_attend_args *args);

/* ---------------------------------------------------------------------------------------------
 * 12  POLICIES
 *
 * A policy says which slots the tokens of an update take in a layer with bound_slots, and so who is
 * evicted. What it goes by lies in planes of the sequence: rollback, fork, snapshot and takeover
 * carry it. Rules and their origin: kvcache-policies(7).
 *
 *     dense          slot = position; full is full
 *     ring           the newest tokens, slot = position % slots
 *     lastrec        the first tokens are pinned, the others a ring
 *     smart-lastrec  a ring around a protected range, which the caller gives
 *     h2o            the lowest sum of attention weights goes (heavy hitters stay)
 *     h2o-orig       the same without options; the caller may sum the weights over a batch
 *     h2o-vlen       weights times the norms of the values
 *     qh2o           h2o, and tokens with large quantisation errors go sooner
 *     qh2o-vlen      qh2o over the sums of h2o-vlen, as its authors document it (and not as
 *                    they code it, which is qh2o)
 */

#define KVC_POLICY_NONE UINT32_MAX
#define KVC_POLICY_PLANES 4 /* that a policy needs at most */

struct kvc_policy_ops;

struct kvc_policy_options {
	size_t size;
	const char *name;                 /* of the list above */
	const struct kvc_policy_ops *ops; /* or one's own, borrowed; name is NULL then */
	void *user;                       /* for one's own */
	/* lastrec: tokens that stay; 0: slots / 8, from 1 to 16; KVC_POLICY_NONE: none */
	uint32_t pinned_tokens;
	/* The rest: policies with scores, but for h2o-orig. The newest so many tokens stay. */
	uint32_t grace_tokens;
	/* The score of a slot of the grace period when the next token comes into it: 0: it goes on
	 * as it is (the default, as in keys_values); 1: it begins at 0. */
	uint32_t reset_grace_scores;
	/* A prompt that fills the layer has no scores: the update behind it evicts from slot
	 * keep_fraction * slots on. 0: 0.05; below 0: from slot 0 on. */
	double keep_fraction;
	uint32_t normalise_scores; /* not 0: divided by the time that a token has had */
	uint32_t
		max_chunk_tokens; /* of an update of a full layer; 0, or above slots / 2: no limit */
	float combination; /* qh2o, qh2o-vlen: weight of the scores against the errors; 0: 0.5 */
};

/* Slots [start, end) that are not evicted; start > end: around the end of the layer. */
struct kvc_policy_range {
	uint32_t start, end;
};

/* One layer of one sequence as a policy sees it. Arrays are [n_heads][n_slots], and NULL where the
 * policy does not say that it needs them (enum kvc_policy_needs). All is valid during the call. */
struct kvc_policy_layer {
	const struct kvc_policy_options *options;
	uint32_t layer;
	uint32_t n_heads;  /* query groups */
	uint32_t n_slots;  /* the bound */
	uint32_t n_used;   /* slots that hold something, without the tokens of this update */
	uint64_t position; /* tokens seen before this update; 0: a prompt comes */
	const void *state; /* the policy's own, state_bytes; zero before the first update */
	const float *scores;
	/* of the tokens in the slots; in update() with those of this update */
	const int32_t *positions;
	const float *norms, *errors;
	const struct kvc_policy_range
		*range; /* that the caller gave with this update; NULL: none */
	float *scratch; /* [n_heads][n_slots] to work in */
};

/* Where the tokens of an update go. */
struct kvc_policy_plan {
	uint64_t n_tokens;
	/* [n_heads][n_tokens], or [n_tokens] with `shared`. KVC_POLICY_NONE: nowhere, for all heads
	 * (a later token of the update takes its place). No slot twice for one head. NULL: the
	 * layer is unbounded, tokens go behind one another. */
	uint32_t *slots;
	/* What is moved before, as kvc_move has it: [n_heads][n_moves], or [n_moves] with `shared`.
	 * There is room for min(n_tokens, n_slots) moves. */
	uint32_t n_moves;
	uint32_t *from, *to;
	int shared;
};

enum kvc_policy_needs {
	KVC_POLICY_SCORES = 1,               /* f32 a slot and head, which each update may change */
	KVC_POLICY_POSITIONS = 2,            /* absolute positions */
	KVC_POLICY_NORMS = 4,                /* L2 norms of value vectors as they came */
	KVC_POLICY_ERRORS = 8,               /* quantisation errors, key and value summed */
	KVC_POLICY_POSITIONS_NORMALISED = 16 /* positions, if options say normalise_scores */
};

/*
 * A policy. Functions see nothing but their arguments, keep nothing, allocate nothing and do not
 * fail; they run on the writer's thread.
 */
struct kvc_policy_ops {
	const char *name;     /* never NULL */
	uint32_t needs;       /* enum kvc_policy_needs */
	uint32_t state_bytes; /* a layer; up to 1,024 */
	/* What is wrong with the options for such a layer (state and arrays are NULL), or NULL. The
	 * function may be NULL: nothing ever is. */
	const char *(*check)(const struct kvc_policy_layer *layer);
	/* Most tokens of the next update; of a prompt as a rule as many as there are slots. More
	 * than that it never is, whatever is said here. */
	uint64_t (*limit)(const struct kvc_policy_layer *layer);
	/* Chooses for plan->n_tokens tokens, from 1 to the limit: fills the rest of *plan, and the
	 * arrays that it points to. Until the layer is full its slots are taken in order, and
	 * nothing is moved. */
	void (*choose)(const struct kvc_policy_layer *layer, struct kvc_policy_plan *plan);
	/*
	 * The tokens of a plan are in their slots: writes state and scores as they are then, all
	 * of them; layer->state and layer->scores are those of before, and other memory. weights:
	 * [n_heads][n_used then], summed over the queries, or NULL: there are none, as for a
	 * prompt. Not called, and may be NULL, where a policy has neither state nor scores.
	 */
	void (*update)(const struct kvc_policy_layer *layer, const struct kvc_policy_plan *plan,
		       const float *weights, void *state, float *scores);
};

/* A policy of the list by its name; KVC_ENOTFOUND. It may be a part of one's own. Any thread. */
KVC_PUBLIC const struct kvc_policy_ops *kvc_policy_find(const char *name);

/*
 * The planes that a layout needs so that its sequences can have this policy, into planes: how many;
 * -1 on error (KVC_ENOTFOUND, KVC_EINVAL: options, the text says what is wrong; KVC_ETOOBIG: the
 * state of all layers is 4 GiB or more, or a layer has more than 2^30 slots of all heads). They are
 * "position" (int32, absolute, of each slot), and as the policy needs them "policy.norm",
 * "policy.error" and the sequence plane "policy": counters and scores of all layers with
 * bound_slots. Names are static. Any thread.
 */
KVC_PUBLIC int kvc_policy_planes(const struct kvc_policy_options *options, uint32_t n_layers,
				 const struct kvc_layer *layers,
				 struct kvc_plane planes[KVC_POLICY_PLANES]);

typedef struct kvc_policy kvc_policy;

/*
 * A hand for the policy of a sequence. It keeps nothing that the planes do not have: after a
 * rollback it goes on, and so does a new one after a takeover, or on a fork. One update of a
 * sequence:
 *
 *     kvc_update_begin(seq, n, KVC_UPDATE_SCATTER);           n <= kvc_policy_limit(policy)
 *     for each layer:
 *             kvc_policy_choose(policy, layer, n, &plan);
 *             kvc_policy_write(policy, layer, k, v, NULL, NULL);
 *             kvc_attend(... .slots = plan.slots, .shared_slots = plan.shared, .weights = w);
 *             kvc_policy_score(policy, layer, w);
 *     kvc_commit(writer, &seq, 1);
 *
 * The first update is the prompt, up to all slots at once. Layers without bound_slots are dense.
 * KVC_ENOTFOUND (the policy, or a plane that the layout lacks), KVC_EINVAL (options),
 * KVC_EUNSUPPORTED (opaque), KVC_ETOOBIG (as kvc_policy_planes, or by the slots of one layer and the
 * heads of another), KVC_ENOMEM.
 * The policy is freed before its sequence. Writer's thread, as all that follows.
 */
KVC_PUBLIC kvc_policy *kvc_policy_new(kvc_seq *seq, const struct kvc_policy_options *options);
/* NULL is allowed. */
KVC_PUBLIC void kvc_policy_free(kvc_policy *policy);

/* Most tokens of the next update, of all layers the least: what the policy allows, and none that
 * goes past the last slot of a layer that is not full. 0: dense and full, or the planes are not
 * this policy's (kvc_error is KVC_EINVAL then, else KVC_OK). */
KVC_PUBLIC uint64_t kvc_policy_limit(kvc_policy *policy);

/* Journal rows that an update of n tokens takes in full layers at most, for kvc_reserve_scatter: for
 * each head one a token, and one for each that is moved, up to grace_tokens (which a policy of one's
 * own that moves others says there) or, where a log is followed, what its updates move. */
KVC_PUBLIC uint64_t kvc_policy_rows(const kvc_policy *policy, uint64_t n_tokens);

/* smart-lastrec: slots that are protected in all layers from the next update on; goes with the
 * update that is open or comes next. NULL: nothing new. KVC_ERANGE: slots that a layer does not
 * have, or all of a layer. */
KVC_PUBLIC int kvc_policy_protect(kvc_policy *policy, const struct kvc_policy_range *range);

/*
 * Chooses slots for the n tokens of the open update in a layer. *plan, and what it points to, is
 * valid until the next choice and not to be changed. Layers one by one: choose, write, score.
 * KVC_EBOUND (above the limit); KVC_ERANGE (layer, or a policy of one's own named a slot that is
 * not there); KVC_EINVAL: no update of n tokens is open, it is no scatter update, the planes are of
 * another policy, an update came that this one had no part in, or a policy of one's own named a
 * slot twice or changed pointers of the plan. KVC_EUNSUPPORTED: one's own took slots of a layer
 * that is not full out of order.
 */
KVC_PUBLIC int kvc_policy_choose(kvc_policy *policy, uint32_t layer, uint64_t n_tokens,
				 struct kvc_policy_plan *plan);

/*
 * Writes the tokens into the slots that were chosen, after what is moved, with their planes. k and
 * v as in kvc_write. norms and errors: those of the tokens, [n_tokens][n_query_groups], for who
 * knows them; NULL: they are measured here, where the policy needs them. KVC_EMOVED: the sequence
 * was rolled back since the choice; begin the update again. KVC_EINVAL: nothing was chosen. Else as
 * kvc_write, kvc_move and kvc_scatter; may be repeated then.
 */
KVC_PUBLIC int kvc_policy_write(kvc_policy *policy, uint32_t layer, const void *k, const void *v,
				const float *norms, const float *errors);

/*
 * Tells the policy the attention weights of the update: [n_query_groups][slots with the update],
 * summed over its queries (mean or sum over the query heads of a group), as kvc_attend gives them;
 * NULL: none. With h2o-orig and a batch, the caller adds those of all its sequences. Must come for
 * every layer before the commit where a policy has scores, but for the prompt (weights are not
 * looked at then); elsewhere it does nothing. Errors as kvc_plane_set; KVC_EMOVED, and KVC_EINVAL
 * (nothing was written), as kvc_policy_write.
 */
KVC_PUBLIC int kvc_policy_score(kvc_policy *policy, uint32_t layer, const float *weights);

/*
 * A log of tokens and of the slots that they took: what was decided, so that an empty cache can be
 * filled in the same way without deciding again. It is memory of the caller's process alone.
 */
typedef struct kvc_policy_log kvc_policy_log;

/* An empty log for sequences of this layout. KVC_EUNSUPPORTED (opaque), KVC_ENOMEM. Any thread, as
 * all of a log, one at a time. */
KVC_PUBLIC kvc_policy_log *kvc_policy_log_new(const kvc_layout *layout);
/* NULL is allowed. */
KVC_PUBLIC void kvc_policy_log_free(kvc_policy_log *log);

/* Adds what the policy has chosen last, for that layer, and the tokens: say them in one layer of each
 * update, in the others they may be NULL. After a rollback, what was logged from there on is dropped.
 * KVC_EINVAL (nothing chosen, a gap, or a log for other layers, heads or bound_slots than the
 * policy's), KVC_ENOMEM. */
KVC_PUBLIC int kvc_policy_log_add(kvc_policy_log *log, const kvc_policy *policy,
				  const uint32_t *tokens);

/* Tokens that are logged for all layers. */
KVC_PUBLIC uint64_t kvc_policy_log_length(const kvc_policy_log *log);

/* Tokens [position, position + n) into tokens, as they were said last for these positions; 0 where
 * they never were. KVC_ERANGE. */
KVC_PUBLIC int kvc_policy_log_tokens(const kvc_policy_log *log, uint64_t position, uint64_t n,
				     uint32_t *tokens);

/* The slots that were chosen for positions [position, position + n) of a layer,
 * [n_query_groups][n]: of an update with a grace period those that it chose, of which the first
 * took what was moved. KVC_POLICY_NONE where there is none. KVC_ERANGE. */
KVC_PUBLIC int kvc_policy_log_extract_index(const kvc_policy_log *log, uint32_t layer,
					    uint64_t position, uint64_t n, uint32_t *slots);

/* A policy that follows a log: options.ops is this, options.user the log, for layers with the same
 * heads and bound_slots. Updates must be those of the log; kvc_policy_limit says how many tokens the
 * next one has. */
KVC_PUBLIC const struct kvc_policy_ops *kvc_policy_log_ops(void);

/* ---------------------------------------------------------------------------------------------
 * 13  SAVED SNAPSHOTS
 *
 * What is saved lies in the daemon's disk pool and is there after the daemon and the machine were
 * started anew: layout, every stored byte of the blocks, journal with its rows of both modes, marks,
 * sequence planes, lineage and digest. It is whole or not there, whatever happens meanwhile. Saved
 * ones have names of their own, of each user; nobody else sees them. Blocks that several have in
 * common are on the disk once.
 */

struct kvc_saved_result {
	uint64_t n_bytes, n_blocks;
	uint64_t n_known;   /* kvc_save: blocks that were on the disk already */
	uint8_t digest[16]; /* as kvc_digest gives it */
};

struct kvc_save_options {
	size_t size;
	const char *name; /* of what is saved; NULL: that of the source */
	int replace;      /* not 0: what is saved by that name is replaced, else KVC_EEXIST */
};

/*
 * The daemon writes a named snapshot, or a named sequence as it is at this moment, to its disk pool.
 * What is being written by a writer, also the caller's own, is saved as a snapshot; a sequence
 * without writer as one that waits for takeover. Returns when it is durable; until then one that is
 * to be replaced is there as it was. progress may be NULL; returning not 0 cancels, and nothing is
 * saved (KVC_ECANCELLED), unless it was durable by then. result may be NULL. The deadline holds for
 * each question to the daemon, not for the whole.
 * KVC_ENOTFOUND, KVC_EEXIST, KVC_EUNSUPPORTED (the daemon has no disk pool, or blocks are too large
 * for it), KVC_EPOOL (the disk pool is full), KVC_EIO (the disk: full, broken, too slow),
 * KVC_ECORRUPT (a block is not what it was: the text names it), KVC_EBUSY (the name is being saved
 * by somebody else; or a writer does not let go), KVC_EQUOTA (jobs), KVC_ERESTARTED (the core went
 * meanwhile: what was saved under that name is there, whole, or what was there before). Nothing was
 * saved then. Any thread.
 */
KVC_PUBLIC int kvc_save(kvc_session *session, const char *source,
			const struct kvc_save_options *options,
			int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes),
			void *arg, struct kvc_saved_result *result);

struct kvc_load_options {
	size_t size;
	const char *name;  /* of what is made; NULL: that under which it was saved */
	int replace;       /* not 0: an object of that name is replaced, else KVC_EEXIST */
	uint64_t n_tokens; /* only the first so many; 0: all */
};

/*
 * The daemon reads what was saved back into memory: a snapshot, or a sequence that waits for
 * takeover, with its layout registered. It is there once every byte has been compared with its
 * checksum and the whole with its digest; before that, and if anything is wrong, nothing is. With
 * n_tokens only the blocks of these are read, and the digest is that of the part: KVC_ERANGE (there
 * are fewer), KVC_EUNSUPPORTED and KVC_EJOURNAL (a journal, a ring or sequence planes: what they
 * were at n_tokens the blocks do not say). progress, result and deadline as in kvc_save.
 * KVC_ENOTFOUND (nothing is saved by that name), KVC_EEXIST, KVC_ECORRUPT (the text names the
 * block; all that was saved with it is set aside and not found any more), KVC_EIO, KVC_EPOOL and KVC_EQUOTA (of memory, or of what there may be), KVC_EUNSUPPORTED
 * (no disk pool), KVC_ECANCELLED, KVC_ERESTARTED. Any thread.
 */
KVC_PUBLIC int kvc_load(kvc_session *session, const char *name,
			const struct kvc_load_options *options,
			int (*progress)(void *arg, uint64_t n_done_bytes, uint64_t n_bytes),
			void *arg, struct kvc_saved_result *result);

/* Removes what was saved by that name; what was loaded from it stays. KVC_ENOTFOUND (also when a
 * core removed it and died before it could say so), KVC_EUNSUPPORTED, KVC_EIO. Any thread. */
KVC_PUBLIC int kvc_saved_remove(kvc_session *session, const char *name);

#ifdef __cplusplus
}
#endif

#endif
