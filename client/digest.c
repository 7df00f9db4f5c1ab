/* kvc_digest: over the mappings of this process. Reads every byte; not a hot-path call. */
#include "proto/digest.h"

#include <stdlib.h>

#include "client/error.h"
#include "client/journal.h"
#include "client/slots.h"

static void hash_block(struct kvc_seq *seq, XXH3_state_t *state, uint32_t group, uint64_t index,
		       const void **pieces, struct kv_block_digest *out)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct kv_group *g = &layout->groups[group];
	uint64_t n_slots = slots_of_block(layout, index,
					  kv_layout_slots(layout, group, seq->head.base_tokens));

	for (uint32_t r = 0; r < g->n_regions; r++)
		pieces[r] = seq_piece(seq, g->first_region + r, seq->groups[group].mirror[index]);
	kv_block_digest(state, layout, group, pieces, (uint32_t)n_slots, out);
}

static void hash_group(struct kvc_seq *seq, XXH3_state_t *state, uint32_t group,
		       const void **pieces, struct kv_digest *all)
{
	kv_digest_group(all, group,
			kv_layout_slots(seq->layout->fields, group, seq->head.base_tokens));
	for (uint64_t i = 0; i < seq->groups[group].end_block; i++) {
		struct kv_block_digest block;

		hash_block(seq, state, group, i, pieces, &block);
		kv_digest_block(all, &block);
	}
}

static void hash_states(const struct kvc_seq *seq, struct kv_digest *all)
{
	const struct kv_layout *layout = seq->layout->fields;
	uint32_t now = kv_planes_now(seq->head.planes);
	const struct seq_group *g;

	if (now == 0)
		return;
	g = &seq->groups[layout->states_group];
	kv_digest_states(all, layout,
			 seq_piece(seq, layout->groups[layout->states_group].first_region,
				   g->mirror[group_index(g, now - 1)]));
}

/* ---- rows in force ------------------------------------------------------------------------ */

struct row_key {
	uint64_t key; /* layer, head, slot: as they are sorted */
	uint64_t row;
};

static int compare_keys(const void *a, const void *b)
{
	const struct row_key *x = a, *y = b;

	return x->key < y->key ? -1 : x->key > y->key;
}

/* Rows that no later one displaces. */
static size_t collect(const struct kvc_seq *seq, struct row_key *keys)
{
	size_t n = 0;

	for (uint64_t row = seq->head.journal_first; row < seq->head.journal_end; row++) {
		struct kv_row r;

		if (!journal_vector(seq, row, &r) || !journal_is_newest(seq, &r, row))
			continue;
		keys[n++] = (struct row_key){
			(uint64_t)r.layer << 48 | (uint64_t)r.head << 32 | r.slot, row};
	}
	return n;
}

static int hash_rows(const struct kvc_seq *seq, struct kv_digest *all)
{
	struct row_key *keys;
	size_t n = seq->head.journal_end - seq->head.journal_first;

	if (seq_mode(seq) != KV_JOURNAL_REPLAY || n == 0)
		return 0;
	keys = malloc(n * sizeof(keys[0]));
	if (!keys)
		return kvc_fail(KVC_ENOMEM, "no memory for a digest of %zu rows", n);
	n = collect(seq, keys);
	qsort(keys, n, sizeof(keys[0]), compare_keys);
	if (n)
		kv_digest_rows(all, n);
	for (size_t i = 0; i < n; i++) {
		struct kv_row row;

		if (!journal_vector(seq, keys[i].row, &row)) {
			free(keys);
			return kvc_fail(KVC_ECORRUPT, "row %llu of the journal has changed",
					(unsigned long long)keys[i].row);
		}
		kv_digest_row(all, seq->layout->fields, &row, journal_payload(seq, keys[i].row));
	}
	free(keys);
	return 0;
}

/* ---- all ---------------------------------------------------------------------------------- */

static int hash_all(struct kvc_seq *seq, XXH3_state_t *state, const void **pieces,
		    uint8_t digest[16])
{
	const struct kv_layout *layout = seq->layout->fields;
	struct kv_digest all;

	if (kv_digest_begin(&all, layout, seq->head.length_tokens, seq->head.position))
		return kvc_fail(KVC_ENOMEM, "no memory for a digest");
	for (uint32_t g = 0; g < layout->n_layer_groups; g++)
		hash_group(seq, state, g, pieces, &all);
	hash_states(seq, &all);
	if (hash_rows(seq, &all)) {
		kv_digest_drop(&all);
		return -1;
	}
	kv_digest_final(&all, digest);
	return 0;
}

int kvc_digest(kvc_seq *seq, uint8_t digest[16])
{
	XXH3_state_t *state;
	const void **pieces;
	int rc;

	if (session_check(seq->writer->session))
		return -1;
	state = XXH3_createState();
	pieces = malloc(seq->layout->fields->n_regions * sizeof(pieces[0]));
	if (state && pieces)
		rc = hash_all(seq, state, pieces, digest);
	else
		rc = kvc_fail(KVC_ENOMEM, "no memory for a digest");
	free(pieces);
	XXH3_freeState(state);
	return rc;
}
