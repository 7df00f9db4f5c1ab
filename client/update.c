/*
 * Updates: the writer's moves of its commit word, and what is filled between them. The other side
 * is daemon/hold.c; the rules are in proto/commit.h. Writer's thread only.
 */
#include <time.h>

#include "client/error.h"
#include "client/seq.h"

#define SPINS 2000 /* the core holds a word for tens of microseconds at most, as a rule */

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Waits a little for the core to let go; -1 when the deadline has passed. */
static int wait_held(const struct kvc_writer *writer, unsigned *n_waits, uint64_t *begin_ns)
{
	const struct timespec nap = {0, 50000};

	if (++*n_waits < SPINS) {
		pause_cpu();
		return 0;
	}
	if (*n_waits == SPINS)
		*begin_ns = now_ns();
	if (now_ns() - *begin_ns > (uint64_t)writer->deadline_ms * 1000000u)
		return kvc_fail(KVC_ETIMEOUT,
				"the daemon held the sequence for more than %u ms; try again",
				writer->deadline_ms);
	nanosleep(&nap, NULL);
	return 0;
}

/* The committed header as the segment says, for a look; what makes no sense is not taken. */
static void look_anew(struct kvc_seq *seq, uint64_t update)
{
	int c = kv_head_current(seq->shm, update);

	seq->fresh = seq->head;
	if (c < 0)
		return;
	seq->head_copy = (uint8_t)c;
	kv_head_load(&seq->shm->copy[c], &seq->fresh);
	if (seq->fresh.length_tokens > seq->head.length_tokens ||
	    seq->fresh.n_marks > seq->head.n_marks ||
	    kv_head_wrong(seq->layout->fields, &seq->fresh, seq->max_tokens) ||
	    seq_mode(seq) != kv_head_mode(seq->fresh.state))
		seq->fresh = seq->head;
}

/* Takes the header over; blocks that an operator's rollback took out leave the table. */
static void take_anew(struct kvc_seq *seq)
{
	if (seq->is_open)
		begin_abort(seq);
	update_settle(seq, &seq->fresh);
}

/*
 * Somebody else's update. All headers are looked at before one is taken over, and the word once
 * more after that: with another rollback in between, a header could be half of one and half of
 * the other, and its length lie below what is frozen.
 */
static int moved(struct kvc_writer *writer)
{
	uint64_t update;

	do {
		update = kv_word_update(kv_word_load(writer->shm));
		for (struct kvc_seq *seq = writer->seqs; seq; seq = seq->next)
			look_anew(seq, update);
		atomic_thread_fence(memory_order_acquire);
	} while (kv_word_update(kv_word_load(writer->shm)) != update);
	writer->update = update;
	for (struct kvc_seq *seq = writer->seqs; seq; seq = seq->next)
		take_anew(seq);
	return kvc_fail(KVC_EMOVED, "a sequence of this writer was rolled back by an operator; its "
				    "length has changed: begin again");
}

int update_open(struct kvc_writer *writer)
{
	unsigned n_waits = 0;
	uint64_t begin_ns = 0;

	for (;;) {
		uint64_t word = kv_word_load(writer->shm);
		uint64_t generation = kv_word_generation(word);

		switch (kv_word_state(word)) {
		case KV_IDLE:
			if (kv_word_update(word) != writer->update)
				return moved(writer);
			KV_FAULT_POINT();
			if (kv_word_swap(writer->shm, word,
					 kv_word(KV_OPEN, generation, writer->update))) {
				/* What is filled from here on is not seen before the swap. */
				atomic_thread_fence(memory_order_release);
				KV_FAULT_POINT();
				return 0;
			}
			break;
		case KV_HELD:
			if (wait_held(writer, &n_waits, &begin_ns))
				return -1;
			break;
		default: return kvc_fail(KVC_EBUSY, "another thread uses this writer");
		}
	}
}

/* Leaves the open word: to the core, if it waits for it. */
static void let_go(struct kvc_writer *writer, uint64_t update)
{
	uint64_t word, next;

	do {
		word = kv_word_load(writer->shm);
		next = kv_word(kv_word_state(word) == KV_WANTED ? KV_HELD : KV_IDLE,
			       kv_word_generation(word), update);
		KV_FAULT_POINT();
	} while (!kv_word_swap(writer->shm, word, next));
}

void update_publish(struct kvc_writer *writer)
{
	let_go(writer, writer->update + 1);
	KV_FAULT_POINT();
	writer->update++;
	writer_count(&writer->shm->n_commits, 1);
}

void update_close(struct kvc_writer *writer)
{
	let_go(writer, writer->update);
}

void update_entry(struct kvc_seq *seq, uint32_t group, uint64_t index, uint64_t freeze,
		  struct kvc_block block)
{
	struct seq_group *g = &seq->groups[group];
	unsigned older = g->meta[index] & SEQ_META_COPY ? 0 : 1;
	struct kv_shm_entry *entry = &g->copies[older][index];

	/* An abandoned stamp can only be the core's to clear; ours is above what counts. */
	atomic_store_explicit(&entry->ref, kv_ref(freeze, block.arena, block.block),
			      memory_order_relaxed);
	KV_FAULT_POINT();
	atomic_store_explicit(&entry->stamp, seq->writer->update + 1, memory_order_release);
	KV_FAULT_POINT();
	g->meta[index] = (uint32_t)freeze | (older ? SEQ_META_COPY : 0);
}

void update_head(struct kvc_seq *seq, const struct kv_head *head)
{
	seq->head_copy ^= 1;
	kv_head_store(&seq->shm->copy[seq->head_copy], head, seq->writer->update + 1);
}

/* ---- blocks that leave -------------------------------------------------------------------- */

/* Block numbers [first, end) of a group leave the handle. */
static void leave(struct kvc_seq *seq, uint32_t group, uint64_t first, uint64_t end)
{
	uint64_t freeze_now = atomic_load_explicit(&seq->shm->freeze_count, memory_order_acquire);
	struct seq_group *g = &seq->groups[group];
	int64_t spares = group_leave(seq, group, first, end, freeze_now, &g->spares, &g->release);

	if (spares)
		writer_count_reserved(
			seq->writer,
			spares * (int64_t)seq->layout->fields->groups[group].block_bytes);
}

static void settle_group(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];
	struct kv_window window = kv_head_window(seq->layout->fields, &seq->head, group);
	uint64_t end = window.first + window.n;

	if (seq->layout->fields->groups[group].kind == KV_GROUP_LAYERS ||
	    (seq->layout->fields->groups[group].kind == KV_GROUP_JOURNAL && window.n == 0)) {
		if (g->end_block > end) {
			leave(seq, group, g->first_block > end ? g->first_block : end,
			      g->end_block);
			g->end_block = end;
		}
		if (window.n == 0)
			g->first_block = g->end_block = end;
	} else if (window.n && window.first > g->first_block) {
		leave(seq, group, g->first_block, window.first);
		g->first_block = window.first;
	}
	g->pending_end = g->end_block;
}

void update_settle(struct kvc_seq *seq, const struct kv_head *head)
{
	seq->head = *head;
	for (uint32_t g = 0; g < seq->n_groups; g++)
		settle_group(seq, g);
}

void update_drop_future(struct kvc_seq *seq, uint32_t group)
{
	struct seq_group *g = &seq->groups[group];
	struct kv_window window = kv_head_window(seq->layout->fields, &seq->head, group);
	uint64_t end = window.n ? window.first + window.n : g->first_block;

	if (g->end_block <= end)
		return;
	leave(seq, group, end, g->end_block);
	g->end_block = g->pending_end = end;
}

int seqs_distinct(struct kvc_writer *writer, kvc_seq *const *seqs, size_t n_seqs)
{
	uint64_t list = ++writer->n_lists;

	for (size_t i = 0; i < n_seqs; i++) {
		if (seqs[i]->listed == list)
			return kvc_fail(KVC_EINVAL, "sequence %zu is in the list twice", i);
		seqs[i]->listed = list;
	}
	return 0;
}
