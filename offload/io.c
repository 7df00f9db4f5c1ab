/*
 * Requests on their way through an I/O engine: queue and back-pressure, short transfers, deadlines,
 * cancel and quarantine, callbacks; see io.h, and io_common.h for the states.
 *
 * Thread: the caller's. Threads of the back ends and of IO_CALL see no more of a request than what
 * the caller has put in.
 */
#include <assert.h>
#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "offload/io_common.h"

#define STALLS_MAX 100u /* attempts in a row that only said "again" */
#define RETRY_NS UINT64_C(1000000)

uint64_t io_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- results -------------------------------------------------------------------------------- */

/* The last word on what becomes of it. */
static void end(struct io_engine *engine, struct io_request *r, int result)
{
	r->result = result;
	if (result < 0 && result != -ECANCELED && result != -ETIMEDOUT)
		engine->counts.n_failed++;
	io_move(engine, r, IO_ENDED);
}

void io_end_early(struct io_engine *engine, struct io_request *r, int result)
{
	if (r->state == IO_WAITING) {
		end(engine, r, result);
		return;
	}
	r->result = result;
	io_move(engine, r, IO_LATE);
	if (r->op == IO_CALL)
		io_pool_cancel(engine->calls, r);
	else
		engine->backend->ops->cancel(engine->backend, r);
}

/* ---- starting ------------------------------------------------------------------------------- */

static int64_t run_call(void *arg, const struct io_request *r)
{
	(void)arg;
	return r->call(r->arg);
}

static int start_call(struct io_engine *engine, struct io_request *r)
{
	const struct io_pool_options options = {.n_threads = 1,
						.capacity = engine->options.depth,
						.event_fd = engine->event_fd,
						.fn = run_call};

	if (!engine->calls)
		engine->calls = io_pool_new(&options);
	return engine->calls ? io_pool_start(engine->calls, r) : -ENOMEM;
}

static int start(struct io_engine *engine, struct io_request *r)
{
	if (r->op == IO_CALL)
		return start_call(engine, r);
	return engine->backend->ops->start(engine->backend, r);
}

/* Who has no room will be asked again, also if nothing is in flight that could say when. */
static void retry_soon(struct io_engine *engine)
{
	engine->retry_ns = io_clock_ns() + RETRY_NS;
}

static void start_waiting(struct io_engine *engine)
{
	struct io_request *r;
	int rc;

	engine->retry_ns = UINT64_MAX;
	while (io_n_in_flight(engine) < engine->options.depth &&
	       (r = engine->lists[IO_WAITING].first)) {
		rc = start(engine, r);
		if (rc == -EAGAIN) {
			retry_soon(engine);
			break;
		}
		if (rc)
			end(engine, r, rc);
		else
			io_move(engine, r, IO_FLIGHT);
	}
	if (engine->backend->ops->push(engine->backend))
		retry_soon(engine);
}

static bool sum_iov(const struct io_request *r, uint64_t *n_bytes)
{
	*n_bytes = 0;
	if (r->n_iov > IO_IOVECS_MAX || (r->n_iov && !r->iov))
		return false;
	for (uint32_t i = 0; i < r->n_iov; i++) {
		if (r->iov[i].iov_len > INT64_MAX - *n_bytes)
			return false;
		*n_bytes += r->iov[i].iov_len;
	}
	return r->off <= INT64_MAX - *n_bytes;
}

static bool is_valid(const struct io_engine *engine, const struct io_request *r, uint64_t *n_bytes)
{
	*n_bytes = 0;
	if (!r->done || r->state != IO_IDLE)
		return false;
	if (r->op == IO_CALL)
		return r->call != NULL;
	if (r->op != IO_READ && r->op != IO_WRITE && r->op != IO_SYNC)
		return false;
	if (r->file < 0 || r->file >= (int)IO_FILES_MAX || engine->files[r->file].fd < 0)
		return false;
	return r->op == IO_SYNC || sum_iov(r, n_bytes);
}

static bool is_transfer(const struct io_request *r)
{
	return r->op == IO_READ || r->op == IO_WRITE;
}

int io_submit(struct io_engine *engine, struct io_request *r)
{
	uint64_t n_bytes;

	if (engine->is_closing)
		return -ECANCELED;
	if (!is_valid(engine, r, &n_bytes))
		return -EINVAL;
	if (engine->lists[IO_WAITING].n >= engine->options.queue) {
		engine->counts.n_full++;
		return -EAGAIN;
	}
	r->n_bytes = r->n_left = n_bytes;
	r->first_iov = r->n_stalls = 0;
	io_move(engine, r, IO_WAITING);
	if (r->deadline_ns)
		engine->deadline_ns = sooner(engine->deadline_ns, r->deadline_ns);
	if (is_transfer(r) && n_bytes == 0)
		end(engine, r, 0);
	else
		start_waiting(engine);
	return 0;
}

void io_cancel(struct io_engine *engine, struct io_request *r)
{
	if (r->state == IO_WAITING || r->state == IO_FLIGHT)
		io_end_early(engine, r, -ECANCELED);
	else if (r->state == IO_ENDED)
		r->result = -ECANCELED;
	if (engine->backend->ops->push(engine->backend))
		retry_soon(engine);
}

/* ---- what back ends report ------------------------------------------------------------------ */

static void advance(struct io_request *r, uint64_t n_bytes)
{
	r->n_left -= n_bytes;
	while (n_bytes > 0) {
		struct iovec *iov = &r->iov[r->first_iov];
		const size_t step = iov->iov_len < n_bytes ? iov->iov_len : (size_t)n_bytes;

		iov->iov_base = (char *)iov->iov_base + step;
		iov->iov_len -= step;
		n_bytes -= step;
		if (iov->iov_len == 0)
			r->first_iov++;
	}
	while (r->first_iov < r->n_iov && r->iov[r->first_iov].iov_len == 0)
		r->first_iov++;
}

/*
 * A transfer of fewer bytes than asked for. Direct I/O goes on where a whole piece ended; where
 * not one was transferred the file has ended (a write of nothing is a disk that fails).
 */
static bool goes_on_short(struct io_engine *engine, struct io_request *r, uint64_t n_bytes,
			  int *result)
{
	n_bytes -= n_bytes % engine->files[r->file].align;
	if (n_bytes == 0) {
		*result = r->op == IO_READ ? -ENODATA : -EIO;
		return false;
	}
	engine->counts.n_short++;
	r->n_stalls = 0;
	advance(r, n_bytes);
	return true;
}

/* Another attempt is to follow; else *result is that of the request. */
static bool goes_on(struct io_engine *engine, struct io_request *r, int64_t got, int *result)
{
	*result = (int)got;
	if ((got == -EAGAIN || got == -EINTR) && r->op != IO_CALL)
		return ++r->n_stalls < STALLS_MAX;
	if (got < 0 || !is_transfer(r))
		return false;
	if ((uint64_t)got < r->n_left)
		return goes_on_short(engine, r, (uint64_t)got, result);
	*result = 0;
	return false;
}

static void count_bytes(struct io_engine *engine, const struct io_request *r, int64_t got)
{
	if (got > 0 && r->op == IO_READ)
		engine->counts.n_read_bytes += (uint64_t)got;
	else if (got > 0 && r->op == IO_WRITE)
		engine->counts.n_written_bytes += (uint64_t)got;
}

static void attempt_ended(void *arg, struct io_request *r, int64_t got)
{
	struct io_engine *engine = arg;
	int result;

	count_bytes(engine, r, got);
	if (r->state == IO_LATE)
		io_move(engine, r, IO_ENDED);
	else if (r->state == IO_QUARANTINE)
		io_move(engine, r, IO_SETTLED);
	else if (goes_on(engine, r, got, &result))
		io_move(engine, r, IO_WAITING);
	else
		end(engine, r, result);
}

static void collect(struct io_engine *engine, uint64_t now_ns)
{
	const struct io_sink sink = {attempt_ended, engine};
	uint64_t n;
	ssize_t rc = read(engine->event_fd, &n, sizeof(n)); /* not readable any more */

	(void)rc;
	engine->backend->ops->collect(engine->backend, now_ns, &sink);
	if (engine->calls)
		io_pool_collect(engine->calls, &sink);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

static void expire_list(struct io_engine *engine, struct io_list *list, uint64_t now_ns)
{
	struct io_request *next;

	for (struct io_request *r = list->first; r; r = next) {
		next = r->next;
		if (!r->deadline_ns)
			continue;
		if (r->deadline_ns <= now_ns) {
			engine->counts.n_late++;
			io_end_early(engine, r, -ETIMEDOUT);
		} else {
			engine->deadline_ns = sooner(engine->deadline_ns, r->deadline_ns);
		}
	}
}

static void expire(struct io_engine *engine, uint64_t now_ns)
{
	if (now_ns < engine->deadline_ns)
		return;
	engine->deadline_ns = UINT64_MAX;
	expire_list(engine, &engine->lists[IO_WAITING], now_ns);
	expire_list(engine, &engine->lists[IO_FLIGHT], now_ns);
}

uint64_t io_next_ns(const struct io_engine *engine)
{
	const struct io_backend *backend = engine->backend;
	uint64_t due_ns = engine->retry_ns;

	if (io_has_calls_to_make(engine))
		return 0;
	if (engine->lists[IO_WAITING].n || engine->lists[IO_FLIGHT].n)
		due_ns = sooner(due_ns, engine->deadline_ns);
	if (backend->ops->next_ns)
		due_ns = sooner(due_ns, backend->ops->next_ns(backend));
	return due_ns;
}

/* ---- callbacks ------------------------------------------------------------------------------ */

static void call_settled(struct io_engine *engine)
{
	/* What callbacks add is for the next time. */
	for (uint32_t n = engine->lists[IO_SETTLED].n; n > 0; n--) {
		struct io_request *r = engine->lists[IO_SETTLED].first;

		engine->counts.quarantined_bytes -= r->n_bytes;
		io_move(engine, r, IO_IDLE);
		if (r->settled)
			r->settled(r);
	}
}

static void call_late(struct io_engine *engine)
{
	for (uint32_t n = engine->lists[IO_LATE].n; n > 0; n--) {
		struct io_request *r = engine->lists[IO_LATE].first;

		engine->counts.quarantined_bytes += r->n_bytes;
		io_move(engine, r, IO_QUARANTINE);
		r->done(r, r->result);
	}
}

static void call_ended(struct io_engine *engine)
{
	for (uint32_t n = engine->lists[IO_ENDED].n; n > 0; n--) {
		struct io_request *r = engine->lists[IO_ENDED].first;
		void (*settled)(struct io_request * request) = r->settled;

		io_move(engine, r, IO_IDLE);
		r->done(r, r->result);
		/* Who wants no settled() may have freed it. */
		if (settled)
			settled(r);
	}
}

void io_reap(struct io_engine *engine, uint64_t now_ns)
{
	assert(!engine->is_reaping);
	engine->is_reaping = true;
	collect(engine, now_ns);
	expire(engine, now_ns);
	start_waiting(engine);
	call_settled(engine);
	call_late(engine);
	call_ended(engine);
	engine->is_reaping = false;
}
