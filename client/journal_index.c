/* Memory of a replay journal's index, and the bitmap that finds a slot named twice. */
#include <sys/mman.h>

#include "client/error.h"
#include "client/journal.h"

static void *reserve(size_t n_bytes)
{
	void *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static uint64_t lay_out(struct kvc_seq *seq, uint64_t *most_slots)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint64_t n = 0;

	*most_slots = 0;
	for (uint32_t g = 0; g < layout->n_layer_groups; g++) {
		uint64_t slots = kv_layout_slots(layout, g, seq->max_tokens);

		seq->journal.index_off[g] = n;
		seq->journal.index_slots[g] = slots;
		n += layout->groups[g].n_heads * slots;
		if (slots > *most_slots)
			*most_slots = slots;
	}
	return n;
}

/* No row is in force, or none was added: those that are will be. */
static void forget_low(struct kvc_seq *seq)
{
	for (uint32_t g = 0; g < seq->layout->fields->n_layer_groups; g++)
		seq->journal.index_low[g] = UINT64_MAX;
}

int journal_index_map(struct kvc_seq *seq, enum kv_journal_mode mode)
{
	struct seq_journal *j = &seq->journal;
	bool replay = mode == KV_JOURNAL_REPLAY;
	uint64_t most_slots, n = lay_out(seq, &most_slots);
	bool is_new = !j->index;

	if (!j->seen) {
		j->seen_bytes = (most_slots / 64 + 1) * sizeof(uint64_t);
		j->seen = reserve(j->seen_bytes);
	}
	if (j->seen && !j->index && replay) {
		j->index_bytes = (n + 1) * sizeof(j->index[0]);
		j->index = reserve(j->index_bytes);
	}
	if (is_new || seq->head.journal_first == seq->head.journal_end)
		forget_low(seq);
	if (!j->seen || (!j->index && replay))
		return kvc_fail(KVC_ENOMEM,
				"no address space for the index of a journal (%llu bytes); use a "
				"smaller max_tokens",
				(unsigned long long)n * sizeof(j->index[0]));
	return 0;
}

void journal_unmap(struct kvc_seq *seq)
{
	struct seq_journal *j = &seq->journal;

	if (j->index)
		munmap(j->index, j->index_bytes);
	if (j->seen)
		munmap(j->seen, j->seen_bytes);
	j->index = NULL;
	j->seen = NULL;
}
