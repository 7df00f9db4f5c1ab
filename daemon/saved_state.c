#include "daemon/saved_state.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/objects.h"
#include "offload/store.h"
#include "proto/layout_wire.h"

/* ---- out ---------------------------------------------------------------------------------- */

static void fill_marks(const struct state *state, Kv__Saved__Saved *head)
{
	head->n_marks = state->head.n_marks;
	head->marks = state_alloc(head->n_marks, sizeof(head->marks[0]));
	for (uint32_t i = 0; i < state->head.n_marks; i++) {
		Kv__Saved__Mark *mark = head->marks[i] = state_alloc(1, sizeof(*mark));

		kv__saved__mark__init(mark);
		mark->id = state->marks[i].id;
		mark->update = state->marks[i].update;
		mark->length_tokens = state->marks[i].length_tokens;
		mark->journal_end = state->marks[i].journal_end;
	}
}

static void fill_groups(const struct state *state, Kv__Saved__Saved *head)
{
	head->n_groups = state->layout->layout->n_groups;
	head->groups = state_alloc(head->n_groups, sizeof(head->groups[0]));
	for (uint32_t g = 0; g < head->n_groups; g++) {
		Kv__Saved__Group *group = head->groups[g] = state_alloc(1, sizeof(*group));

		kv__saved__group__init(group);
		group->n_slots = state->n_slots[g];
		group->first_block = state->first_block[g];
	}
}

void saved_state_fill(const struct state *state, Kv__Saved__Saved *head)
{
	kv__saved__saved__init(head);
	head->layout = kv_layout_to_wire(state->layout->layout);
	if (!head->layout)
		state_die("no memory for a layout");
	head->update = state->update;
	head->length_tokens = state->head.length_tokens;
	head->position = state->head.position;
	head->journal_first = state->head.journal_first;
	head->journal_end = state->head.journal_end;
	head->planes = state->head.planes;
	head->base_tokens = state->head.base_tokens;
	head->head_state = state->head.state;
	fill_marks(state, head);
	fill_groups(state, head);
}

void saved_state_drop(Kv__Saved__Saved *head)
{
	for (size_t i = 0; i < head->n_marks; i++)
		free(head->marks[i]);
	for (size_t g = 0; g < head->n_groups; g++)
		free(head->groups[g]);
	free(head->marks);
	free(head->groups);
	if (head->layout)
		kv_layout_wire_free(head->layout);
}

/* ---- in ----------------------------------------------------------------------------------- */

static int wrong(struct errbuf *err, const Kv__Saved__Saved *head, const char *what)
{
	return errbuf_set(err, KV_ECORRUPT, "what was saved as %.255s makes no sense: %s",
			  head->name, what);
}

static struct kv_head head_of(const Kv__Saved__Saved *head)
{
	return (struct kv_head){.length_tokens = head->length_tokens,
				.position = head->position,
				.journal_first = head->journal_first,
				.journal_end = head->journal_end,
				.planes = head->planes,
				.base_tokens = head->base_tokens,
				.n_marks = (uint32_t)head->n_marks,
				.state = head->head_state};
}

/* As marks are checked when a writer's are read. */
static bool marks_fit(const Kv__Saved__Saved *head)
{
	uint64_t before = 0;

	for (size_t i = 0; i < head->n_marks; i++) {
		const Kv__Saved__Mark *mark = head->marks[i];

		if (mark->length_tokens > KV_TOKENS_MAX || mark->journal_end < before ||
		    mark->journal_end > head->journal_end)
			return false;
		before = mark->journal_end;
	}
	return true;
}

static void take_marks(struct state *state, const Kv__Saved__Saved *head)
{
	state->marks = state_alloc(head->n_marks, sizeof(state->marks[0]));
	for (size_t i = 0; i < head->n_marks; i++)
		state->marks[i] = (struct seg_mark){head->marks[i]->id, head->marks[i]->update,
						    head->marks[i]->length_tokens,
						    head->marks[i]->journal_end};
}

/* Have the lists of a group the length that the header gives them, and its images the size that
 * buffers for them have? */
static bool group_fits(const struct state *state, uint32_t g, const Kv__Saved__Group *group)
{
	uint64_t n = state->n_blocks[g];

	return group->n_slots == state->n_slots[g] && group->first_block == state->first_block[g] &&
	       group->checks.len == n * STORE_CHECK_BYTES && group->n_places == n &&
	       (n == 0 || group->image_bytes == state->layout->layout->groups[g].block_bytes);
}

int saved_state_read(const struct layout_entry *layout, const Kv__Saved__Saved *head,
		     struct state **out, struct errbuf *err)
{
	struct kv_head fields = head_of(head);
	const char *fault = head->n_marks > KV_MARKS_MAX ?
				    "number of marks" :
				    kv_head_wrong(layout->layout, &fields, KV_TOKENS_MAX);
	struct state *state;

	if (fault)
		return wrong(err, head, fault);
	if (head->digest.len != KV_DIGEST_BYTES ||
	    (head->kind != OBJECT_SEQUENCE && head->kind != OBJECT_SNAPSHOT))
		return wrong(err, head, "digest or kind");
	if (!marks_fit(head))
		return wrong(err, head, "marks");
	if (head->n_groups != layout->layout->n_groups)
		return wrong(err, head, "number of groups");
	state = state_new(layout);
	state->head = fields;
	state->update = head->update;
	state_set_counts(state);
	for (uint32_t g = 0; g < layout->layout->n_groups; g++) {
		if (!group_fits(state, g, head->groups[g])) {
			state_free(state);
			return wrong(err, head, "a list of blocks");
		}
		state->refs[g] = state_alloc(state->n_blocks[g], sizeof(uint64_t));
	}
	take_marks(state, head);
	*out = state;
	return 0;
}
