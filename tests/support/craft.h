/*
 * A client by hand: asks the core in this process (fake_links.h) for what a library would, and
 * makes each store of a writer one by one, so that a test can stop between any two, or store what
 * no library would.
 *
 *	craft_begin(&craft, f, 1000, &layout);     a session, writer 0, the layout registered
 *	place = craft_seq(&craft, "name", 64);
 *	craft_reserve(&craft, group, n, refs);
 *	craft_open(&craft, 0); craft_entry(...); craft_head_put(...); craft_close(&craft, 0);
 *
 * Every step that the core refuses fails the test. Bytes of blocks go through the core's own
 * descriptors. Thread: one.
 */
#ifndef KVCACHED_TESTS_SUPPORT_CRAFT_H
#define KVCACHED_TESTS_SUPPORT_CRAFT_H

#include "tests/support/fake_links.h"

struct craft {
	struct fake_core *f;
	struct fake_client *c;
	uint64_t layout_id;
	struct kv_layout *layout; /* derived copy; owned */
};

/*
 * A layout whose rows of an undo journal have all there is: two layer groups, of them the second
 * bounded, with other formats for K and V and a slot plane. Points to what the next call changes.
 */
struct kv_layout craft_undo_fields(uint32_t block_tokens, uint32_t bound_slots);

/* fields: of a layout that is not derived; copied. The client is a child, or this process. */
void craft_begin(struct craft *craft, struct fake_core *f, uint32_t uid,
		 const struct kv_layout *fields);
void craft_begin_self(struct craft *craft, struct fake_core *f, uint32_t uid,
		      const struct kv_layout *fields);
void craft_end(struct craft *craft); /* kills a child */

/* Sends a request with that command; the reply, which must say `status`. */
Kv__Wire__Reply *craft_call(struct craft *craft, Kv__Wire__Request *request, uint32_t status);

uint32_t craft_writer(struct craft *craft);
uint32_t craft_seq(struct craft *craft, uint32_t writer, const char *name, uint64_t max_tokens);

/* refs[n]: kv_ref() with freeze count 0. */
void craft_reserve(struct craft *craft, uint32_t group, uint32_t n, uint64_t *refs);

struct kv_shm_place *craft_place(const struct craft *craft, uint32_t place);
struct kv_shm_writer *craft_word(const struct craft *craft, uint32_t writer);
uint64_t craft_update(const struct craft *craft, uint32_t writer);

/* The moves of the word: to open; to idle with the update behind. */
void craft_open(struct craft *craft, uint32_t writer);
void craft_close(struct craft *craft, uint32_t writer);

/* The header that counts. */
struct kv_head craft_head(const struct craft *craft, uint32_t place);
/* The older copy, with the stamp of the update behind the committed one. */
void craft_head_put(struct craft *craft, uint32_t place, const struct kv_head *head);
/* The same for the entry of a block number; the freeze count is the place's. */
void craft_entry(struct craft *craft, uint32_t place, uint32_t group, uint64_t number,
		 uint64_t ref);
/*
 * A sequence with blocks for all that a header has, in the table and committed with it, and the
 * header's marks. `fill` writes each block before (NULL: all bytes are zeros). The place.
 */
uint32_t craft_make(struct craft *craft, const char *name, uint64_t max_tokens,
		    const struct kv_head *head,
		    void (*fill)(const struct craft *craft, uint32_t group, uint64_t ref));
/* What counts; 0: nothing. */
uint64_t craft_entry_get(const struct craft *craft, uint32_t place, uint32_t group,
			 uint64_t number);

/* Bytes of a block, from off on in the piece of a region of its group. */
void craft_write(const struct craft *craft, uint64_t ref, uint32_t region, uint64_t off,
		 const void *bytes, size_t n);
void craft_read(const struct craft *craft, uint64_t ref, uint32_t region, uint64_t off, void *bytes,
		size_t n);

/* The stored bytes of one head of one slot of a layer, region by region. */
void craft_slot_write(const struct craft *craft, uint64_t ref, uint32_t layer, uint32_t head,
		      uint32_t slot, const void *bytes);
void craft_slot_read(const struct craft *craft, uint64_t ref, uint32_t layer, uint32_t head,
		     uint32_t slot, void *bytes);

/* A row of a journal, in the block that holds it. */
void craft_row(const struct craft *craft, uint64_t ref, enum kv_journal_mode mode, uint64_t number,
	       const struct kv_row *row, const void *payload, size_t n);

/* The arena of a reference in the core's books. */
struct arena *craft_arena(const struct craft *craft, uint64_t ref);

Kv__Wire__Target craft_named(const char *name);

/* Commands on a named thing. */
void craft_snapshot(struct craft *craft, const char *source, const char *name);
uint32_t craft_takeover(struct craft *craft, uint32_t writer, const char *name,
			uint64_t max_tokens);
uint32_t craft_fork(struct craft *craft, uint32_t writer, const char *source, uint64_t max_tokens);
uint32_t craft_rollback(struct craft *craft, const char *name, uint64_t keep_tokens);
/* Verifies it to the end; the job's reply. */
Kv__Wire__Reply *craft_verify(struct craft *craft, const char *name);
/* The object as Show has it. */
Kv__Wire__Reply *craft_show(struct craft *craft, const char *name);

#endif
