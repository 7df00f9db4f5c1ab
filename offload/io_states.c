/* The states of a request: what may follow what, and its lists; see io_common.h. */
#include <assert.h>

#include "offload/io_common.h"

static const uint8_t moves[IO_N_STATES] = {
	[IO_IDLE] = 1 << IO_WAITING,
	[IO_WAITING] = 1 << IO_FLIGHT | 1 << IO_ENDED,
	[IO_FLIGHT] = 1 << IO_WAITING | 1 << IO_LATE | 1 << IO_ENDED,
	[IO_LATE] = 1 << IO_QUARANTINE | 1 << IO_ENDED,
	[IO_QUARANTINE] = 1 << IO_SETTLED,
	[IO_ENDED] = 1 << IO_IDLE,
	[IO_SETTLED] = 1 << IO_IDLE,
};

static void list_remove(struct io_list *list, struct io_request *r)
{
	*(r->prev ? &r->prev->next : &list->first) = r->next;
	*(r->next ? &r->next->prev : &list->last) = r->prev;
	r->next = r->prev = NULL;
	list->n--;
}

static void list_insert(struct io_list *list, struct io_request *r, bool at_head)
{
	r->prev = at_head ? NULL : list->last;
	r->next = at_head ? list->first : NULL;
	*(r->prev ? &r->prev->next : &list->first) = r;
	*(r->next ? &r->next->prev : &list->last) = r;
	list->n++;
}

void io_move(struct io_engine *engine, struct io_request *r, enum io_state to)
{
	const enum io_state from = (enum io_state)r->state;

	assert(moves[from] & 1 << to);
	if (from != IO_IDLE)
		list_remove(&engine->lists[from], r);
	r->state = to;
	if (to != IO_IDLE)
		list_insert(&engine->lists[to], r, from == IO_FLIGHT && to == IO_WAITING);
}

uint32_t io_n_in_flight(const struct io_engine *engine)
{
	return engine->lists[IO_FLIGHT].n + engine->lists[IO_LATE].n +
	       engine->lists[IO_QUARANTINE].n;
}

bool io_has_calls_to_make(const struct io_engine *engine)
{
	return engine->lists[IO_LATE].n || engine->lists[IO_ENDED].n || engine->lists[IO_SETTLED].n;
}
