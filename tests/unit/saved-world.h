/*
 * A core in this process (fake_links.h) with a disk pool in a folder of its own and one client,
 * what that client saves, and the commands about it. world_follow() and what is made of it run the
 * loop until the job of the command has ended. Thread: one.
 */
#ifndef KVCACHED_TESTS_UNIT_SAVED_WORLD_H
#define KVCACHED_TESTS_UNIT_SAVED_WORLD_H

#include "offload/store.h"
#include "tests/support/craft.h"

#define WORLD_UID 1000u
#define WORLD_BLOCK_TOKENS 4u
#define WORLD_BOUND 8u
#define WORLD_LENGTH 18u
#define WORLD_PLANE_BYTES 100u

struct world {
	char *dir;
	struct settings settings;
	struct fake_core *f;
	struct craft a;
	struct kv_layout *layout;
	uint32_t uid;
	bool is_self; /* the client is this process: no child has the core's descriptors */
};

/* Two layer groups, the second bounded; journals, a slot plane and a sequence plane. */
extern const struct kv_layout world_fields;

/* ---- lives -------------------------------------------------------------------------------- */

void world_begin(struct world *w, const struct kv_layout *layout);
void world_begin_as(struct world *w, const struct kv_layout *layout, uint32_t uid, bool is_self);
void world_end(struct world *w);
/* Another life of the machine: no memory is left. Its two halves, for what is done in between. */
void world_reboot(struct world *w, const struct kv_layout *layout);
void world_die(struct world *w);
void world_live(struct world *w, const struct kv_layout *layout);

/* A snapshot "snap" of "live" in a core whose engine goes wrong by these rules (io_faults.h). */
void world_begin_faulty(struct world *w, const char *rules);

/* ---- what is saved ------------------------------------------------------------------------ */

struct kv_head world_head(const struct world *w, enum kv_journal_mode mode, uint32_t n_marks);
/* A sequence of that name and header over random bytes. */
void world_make(struct world *w, const char *name, const struct kv_head *head);
/* The same as "live", and a snapshot "snap" of it. */
void world_snap(struct world *w, enum kv_journal_mode mode);
struct object *world_find(const struct world *w, const char *name);

/* ---- commands ----------------------------------------------------------------------------- */

#define COMMAND(which, field, type) \
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT; \
	Kv__Wire__##type command; \
	request.command_case = KV__WIRE__REQUEST__COMMAND_##which; \
	request.field = &command

struct world_result {
	uint32_t status;
	uint64_t n_blocks, n_known;
	uint8_t digest[KV_DIGEST_BYTES];
	char detail[512];
};

/* The number of the job that a command has begun; world_result of one that has ended. */
uint64_t world_start_save(struct world *w, const char *source, const char *name, bool replace);
uint64_t world_start_load(struct world *w, const char *name, const char *as);
uint64_t world_start_check(struct world *w, bool repair);
struct world_result world_finish(struct world *w, uint64_t id);
/* Its state afterwards. */
uint32_t world_cancel(struct world *w, uint64_t id);

Kv__Wire__Reply *world_job(struct world *w, uint64_t id);
bool world_runs(struct world *w, uint64_t id);
void world_wait(struct world *w, uint64_t id);

/* The reply to a command that may begin a job, to the end of that. */
struct world_result world_follow(struct world *w, Kv__Wire__Request *request);
struct world_result world_save(struct world *w, const char *source, const char *name, bool replace);
struct world_result world_load(struct world *w, const char *name, const char *as,
			       uint64_t n_tokens);
struct world_result world_verify(struct world *w, const char *name);
struct world_result world_check(struct world *w, bool repair);
void world_assert_ok(const struct world_result *result);

/* ---- accounts ----------------------------------------------------------------------------- */

/* Everything in the pool is accounted for, and so many bytes are in use. */
uint64_t world_used_bytes(const struct world *w);
struct store_stats world_stats(const struct world *w);

/* ---- the disk ----------------------------------------------------------------------------- */

/* Changes what a saved file says, between two lives of the machine; its checksums are right. */
void world_forge(struct world *w, const struct kv_layout *layout, const char *name,
		 void (*lie)(Kv__Saved__Saved *head, void *arg), void *arg);
/* Flips a bit of the first image of group 0. */
void world_damage(const struct world *w);
/* What a failed job had in flight ends by itself. */
void world_wait_transfers(struct world *w);
uint64_t world_quarantined(const struct world *w);

#endif
