/*
 * What the open update has put into slots that a policy has chosen: current tokens, and rows that
 * kvc_move and kvc_scatter have staged, as a list in order of slots for each head. Behind them are
 * the current tokens that are in no slot, as if there were slots for them. The headers of rows lie in
 * memory that others can write: each is read once, into the list's own memory.
 */
#include <string.h>

#include "client/attend.h"
#include "client/error.h"
#include "client/journal.h"

/* Rows of kvc_move and kvc_scatter. */
static uint64_t n_staged(const struct attend *a)
{
	const struct kvc_seq *seq = a->seq;

	return a->args.slots && seq_mode(seq) != KV_JOURNAL_NONE ?
		       seq->open_rows_end - seq->open_extra :
		       0;
}

static uint64_t n_put_max(const struct attend *a)
{
	return a->args.slots ? n_staged(a) + a->n_heads * a->n_current : 0;
}

/* The list, behind it the rows as they come. */
size_t puts_bytes(const struct attend *a)
{
	return (n_put_max(a) + n_staged(a)) * sizeof(struct attend_put) +
	       (a->n_heads + 1) * sizeof(uint64_t);
}

/* What comes later in the update counts, and a current token whatever was staged. */
#define ORDER_CURRENT (UINT64_C(1) << 31)

static uint64_t order_of(uint64_t slot, uint64_t later)
{
	return slot << 32 | later;
}

/* The staged rows of the layer that give K and V, into rows; token is the head. How many. */
static uint64_t read_rows(const struct attend *a, struct attend_put *rows)
{
	uint64_t first = a->seq->open_extra, end = first + n_staged(a), row = first, n = 0;

	for (struct journal_rows some; row < end; row += some.n) {
		some = journal_rows(a->seq, row, end);
		for (uint64_t i = 0; i < some.n; i++) {
			const struct kv_row header = some.headers[i];

			if (header.layer == a->layer && kv_row_names_head(a->layout, &header) &&
			    header.slot < a->n_slots && header.prev & 1)
				rows[n++] = (struct attend_put){
					.order = order_of(header.slot, row + i - first),
					.row = row + i,
					.token = header.head,
				};
		}
	}
	return n;
}

/* The current tokens of a head go behind its rows. */
static void take_current(struct attend *a, uint32_t head)
{
	const uint32_t *slots = a->args.slots + (a->args.shared_slots ? 0 : head * a->n_current);
	uint64_t nowhere = a->n_slots;

	for (uint64_t t = 0; t < a->n_current; t++) {
		uint64_t key = slots[t] == KVC_POLICY_NONE ? nowhere++ : slots[t];

		a->put[a->put_first[head]++] = (struct attend_put){
			.order = order_of(key, ORDER_CURRENT + t), .row = UINT64_MAX, .token = t};
	}
}

/* All heads, unsorted; of head h those up to put_first[h], from where those of the head before
 * end. */
static void take_all(struct attend *a)
{
	struct attend_put *rows = a->put + n_put_max(a);
	uint64_t n = read_rows(a, rows);

	for (uint64_t i = 0; i < n; i++)
		a->put_first[rows[i].token + 1]++;
	for (uint32_t h = 0; h < a->n_heads; h++)
		a->put_first[h + 1] += a->put_first[h] + a->n_current;
	for (uint64_t i = 0; i < n; i++)
		a->put[a->put_first[rows[i].token]++] = rows[i];
	for (uint32_t h = 0; h < a->n_heads; h++)
		take_current(a, h);
}

static void sift(struct attend_put *put, uint64_t i, uint64_t n)
{
	for (uint64_t child; (child = 2 * i + 1) < n; i = child) {
		struct attend_put swap = put[i];

		if (child + 1 < n && put[child + 1].order > put[child].order)
			child++;
		if (put[child].order <= put[i].order)
			return;
		put[i] = put[child];
		put[child] = swap;
	}
}

/* In place, and without memory of its own, which qsort() may take. */
static void sort(struct attend_put *put, uint64_t n)
{
	for (uint64_t i = n / 2; i-- > 0;)
		sift(put, i, n);
	for (uint64_t end = n; end-- > 1;) {
		struct attend_put swap = put[0];

		put[0] = put[end];
		put[end] = swap;
		sift(put, 0, end);
	}
}

/* Of several in one slot the last counts. -1: two are current tokens. */
static int64_t only_last(const struct attend *a, uint32_t head, struct attend_put *put, uint64_t n)
{
	uint64_t kept = 0;

	for (uint64_t i = 0; i < n; i++) {
		bool again = kept && put[kept - 1].order >> 32 == put[i].order >> 32;

		if (again && put[kept - 1].row == UINT64_MAX)
			return kvc_fail(KVC_EINVAL,
					"slots: slot %llu of head %u of layer %u is there twice",
					(unsigned long long)(put[i].order >> 32), head, a->layer);
		kept -= again;
		put[kept++] = put[i];
	}
	return (int64_t)kept;
}

int puts_init(struct attend *a, void *memory)
{
	uint64_t first = 0, end = 0;

	a->put_first = memory;
	a->put = (void *)(a->put_first + a->n_heads + 1);
	memset(a->put_first, 0, (a->n_heads + 1) * sizeof(a->put_first[0]));
	if (a->args.slots)
		take_all(a);
	for (uint32_t h = 0; a->args.slots && h < a->n_heads; h++) {
		uint64_t n = a->put_first[h] - first;
		int64_t kept;

		sort(a->put + first, n);
		kept = only_last(a, h, a->put + first, n);
		if (kept < 0)
			return -1;
		memmove(a->put + end, a->put + first, (uint64_t)kept * sizeof(a->put[0]));
		first = a->put_first[h];
		a->put_first[h] = end;
		end += (uint64_t)kept;
	}
	a->put_first[a->n_heads] = end;
	return 0;
}

uint64_t puts_from(const struct attend *a, uint32_t head, uint64_t slot)
{
	uint64_t low = a->put_first[head], high = a->put_first[head + 1];

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (a->put[middle].order >> 32 < slot)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}
