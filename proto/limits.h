/*
 * Every number that bounds what a peer can ask for or send. Each is in kvcache-protocol(7) or
 * kvcache-shm(7); each has a test at it and one over it.
 */
#ifndef KV_PROTO_LIMITS_H
#define KV_PROTO_LIMITS_H

#define KV_PROTOCOL_VERSION 1u /* requests, replies, events, attach messages */
#define KV_SHM_VERSION 2u      /* control segment */

/* messages */
#define KV_REQUEST_BYTES_MAX (128u * 1024) /* nanomsg body of a request or a reply */
#define KV_ATTACH_BYTES_MAX 4096u          /* one attach message */
#define KV_TARGETS_MAX 64u                 /* sequences, snapshots, names in one command */
#define KV_RUNS_MAX 1024u                  /* block runs in one command or reply */
#define KV_PAGE_OBJECTS_MAX 64u            /* objects in one page of a listing */
#define KV_IN_FLIGHT_MAX 64u               /* calls of a session between sent and acknowledged */
#define KV_NAME_BYTES_MAX 255u
#define KV_WATCHES_MAX 64u /* of a session */
#define KV_DEADLINE_MS_MAX (24u * 3600 * 1000)
#define KV_DEADLINE_MS_DEFAULT 5000u

/* layouts */
#define KV_LAYERS_MAX 1024u
#define KV_LAYER_GROUPS_MAX 8u /* different bounds on slots in one layout */
#define KV_GROUPS_MAX 10u      /* tables of a sequence: layer groups, journal, states */
#define KV_HEADS_MAX 1024u     /* query groups (KV heads) of a layer */
#define KV_WIDTH_MAX 8192u     /* elements of one K or V vector */
#define KV_BLOCK_TOKENS_MAX 4096u
#define KV_OPAQUE_BYTES_MAX (16u * 1024 * 1024)
#define KV_PLANES_MAX 16u             /* side and sequence planes */
#define KV_SLOT_PLANE_BYTES_MAX 1024u /* of one slot and head */
#define KV_SEQUENCE_PLANE_BYTES_MAX (64u * 1024 * 1024)
#define KV_TAGS_MAX 32u
#define KV_TAG_BYTES_MAX 255u /* key, value, plane name: each */
#define KV_SALT_BYTES_MAX 64u
#define KV_PIECE_BYTES_MAX (256u * 1024 * 1024)

/* sessions and sequences */
#define KV_WRITERS_MAX 64u  /* of a session */
#define KV_PLACES_MAX 4096u /* sequences and open snapshots of a session, local forks included */
#define KV_ARENAS_MAX 4096u /* arenas that one session can see at a time */
#define KV_MARKS_MAX 64u    /* nested marks of a sequence */
#define KV_JOURNAL_BLOCKS_MAX 16384u /* entries of a journal table */
#define KV_STATES_MAX 1024u          /* versions of the sequence planes that are kept */
#define KV_TOKENS_DEFAULT (1024u * 1024)
#define KV_TOKENS_MAX (1024u * 1024 * 1024)

#endif
