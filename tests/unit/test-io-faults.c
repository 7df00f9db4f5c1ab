/*
 * What the I/O engines make of a disk that errs, answers late, or not at all. Time is what the test
 * says to io_reap(): hours pass in no time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/io_engine.h"
#include "tests/unit/io-world.h"

#define HOUR_NS (UINT64_C(3600) * 1000000000u)
#define BLOCK (256u << 10)

/* ---- short ---------------------------------------------------------------------------------- */

static void read_whole(struct io_world *w, uint64_t n_short)
{
	const uint64_t before = io_world_gauges(w).n_short;

	memset(w->memory, 0xA5, BLOCK + PAGE);
	assert_int_equal(io_world_transfer(w, IO_READ, BLOCK, w->memory, BLOCK), 0);
	io_assert_bytes(w->memory, BLOCK, BLOCK);
	io_assert_all(w->memory + BLOCK, 0xA5, PAGE);
	assert_int_equal(io_world_gauges(w).n_short - before, n_short);
}

static void test_short_reads_are_carried_on(void **state)
{
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:short,read:2:short=5,read:3:short=63");
	io_world_fill(&w, 4 * BLOCK);
	read_whole(&w, 1);
	read_whole(&w, 5);
	read_whole(&w, 63);
	read_whole(&w, 0);
	assert_int_equal(io_world_gauges(&w).n_read_bytes, 4 * BLOCK);
	io_world_close(&w);
}

static void test_short_reads_into_many_iovecs(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:short=40");
	io_world_fill(&w, 4 * BLOCK);
	io_note_init(&note, &w, IO_READ, 0, NULL, 0);
	note.request.n_iov = 20;
	/* Pieces of one page and of three, backwards. */
	for (size_t i = 0; i < 20; i++)
		note.iov[i] = (struct iovec){w.memory + (20 - i) * 4 * PAGE,
					     (i % 2 ? 3 : 1) * PAGE};
	assert_int_equal(io_world_run(&w, &note), 0);
	assert_int_equal(io_world_gauges(&w).n_short, 39); /* the 40th is the last page */
	for (size_t i = 0, at = 0; i < 20; i++) {
		const size_t n = (i % 2 ? 3 : 1) * PAGE;

		io_assert_bytes(w.memory + (20 - i) * 4 * PAGE, at, n);
		io_assert_all(w.memory + (20 - i) * 4 * PAGE + n, 0xA5, 4 * PAGE - n);
		at += n;
	}
	io_world_close(&w);
}

static void test_short_writes_are_carried_on(void **state)
{
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "write:1:short,write:2:short=5");
	for (size_t i = 0; i < 2 * BLOCK; i++)
		w.memory[i] = (char)io_byte(i);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, 0, w.memory, BLOCK), 0);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, BLOCK, w.memory + BLOCK, BLOCK), 0);
	assert_int_equal(io_world_gauges(&w).n_short, 6);
	memset(w.memory, 0xA5, 2 * BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, 2 * BLOCK), 0);
	io_assert_bytes(w.memory, 0, 2 * BLOCK);
	io_world_close(&w);
}

static void test_short_read_up_to_the_end(void **state)
{
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1+1:short=2");
	io_world_fill(&w, BLOCK);
	assert_int_equal(ftruncate(w.fd, BLOCK - 4095), 0);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), -ENODATA);
	assert_int_equal(ftruncate(w.fd, 2 * PAGE), 0);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), -ENODATA);
	io_world_close(&w);
}

/* ---- errors --------------------------------------------------------------------------------- */

static void test_errors_are_the_result(void **state)
{
	struct io_world w;

	io_world_open_faults(&w, *state, NULL,
			     "read:1:eio,write:1:enospc,sync:1:eio,read:2:eof,write:2:eof");
	io_world_fill(&w, BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), -EIO);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), -ENODATA);
	io_assert_all(w.memory, 0xA5, BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, 0, w.memory, BLOCK), -ENOSPC);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, 0, w.memory, BLOCK), -EIO);
	assert_int_equal(io_world_transfer(&w, IO_SYNC, 0, NULL, 0), -EIO);
	assert_int_equal(io_world_gauges(&w).n_failed, 5);
	/* And then all is well again. */
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), 0);
	io_assert_bytes(w.memory, 0, BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_SYNC, 0, NULL, 0), 0);
	io_world_close(&w);
}

static void test_an_error_behind_a_short_transfer(void **state)
{
	struct io_note notes[4];
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1+2:short,read:2+2:eio");
	io_world_fill(&w, 4 * BLOCK);
	for (size_t i = 0; i < 4; i++) {
		io_note_init(&notes[i], &w, IO_READ, i * BLOCK, w.memory + i * BLOCK, BLOCK);
		io_note_submit(&notes[i], &w);
	}
	io_world_wait_settled(&w, notes, 4);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(notes[i].result, i % 2 ? -EIO : 0);
		if (i % 2)
			io_assert_all(w.memory + i * BLOCK, 0xA5, BLOCK);
		else
			io_assert_bytes(w.memory + i * BLOCK, i * BLOCK, BLOCK);
	}
	io_world_close(&w);
}

static void test_interruptions_are_not_seen(void **state)
{
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:eintr,read:2:eagain,sync:1:eintr");
	io_world_fill(&w, 2 * BLOCK);
	read_whole(&w, 0);
	read_whole(&w, 0);
	assert_int_equal(io_world_transfer(&w, IO_SYNC, 0, NULL, 0), 0);
	assert_int_equal(io_world_gauges(&w).n_failed, 0);
	io_world_close(&w);
}

/* ---- late ----------------------------------------------------------------------------------- */

static void submit_with_deadline(struct io_world *w, struct io_note *note, uint64_t now_ns)
{
	note->request.deadline_ns = now_ns + HOUR_NS;
	io_note_submit(note, w);
	assert_int_equal(io_next_ns(w->engine), now_ns + HOUR_NS);
	io_reap(w->engine, now_ns + HOUR_NS - 1);
	assert_int_equal(note->n_done, 0);
	assert_int_equal(io_next_ns(w->engine), now_ns + HOUR_NS);
}

/* The case of a timeout that gives a buffer back while the transfer still runs. */
static void test_a_late_read_keeps_its_buffer(void **state)
{
	const uint64_t now_ns = io_now_ns();
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:lost");
	io_world_fill(&w, 2 * BLOCK);
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	submit_with_deadline(&w, &note, now_ns);
	assert_int_equal(io_world_gauges(&w).n_in_flight, 1);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);

	io_reap(w.engine, now_ns + HOUR_NS);
	assert_int_equal(note.n_done, 1);
	assert_int_equal(note.result, -ETIMEDOUT);
	assert_int_equal(note.n_settled, 0);
	assert_int_equal(io_world_gauges(&w).n_late, 1);
	assert_int_equal(io_world_gauges(&w).n_failed, 0);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, BLOCK);
	assert_int_equal(io_next_ns(w.engine), UINT64_MAX);

	/* The next owner gets another buffer; nobody touches this one. */
	memset(w.memory + BLOCK, 0x5A, BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_READ, BLOCK, w.memory + 2 * BLOCK, BLOCK), 0);
	io_assert_bytes(w.memory + 2 * BLOCK, BLOCK, BLOCK);
	io_reap(w.engine, now_ns + 5 * HOUR_NS);
	assert_int_equal(note.n_settled, 0);
	io_assert_all(w.memory, 0xA5, BLOCK);

	/* Now the device comes back: the transfer goes where it was told to, and nowhere else. */
	io_let_go(w.engine);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, -ETIMEDOUT);
	io_assert_bytes(w.memory, 0, BLOCK);
	io_assert_all(w.memory + BLOCK, 0x5A, BLOCK);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);
	assert_int_equal(io_world_gauges(&w).n_in_flight, 0);
	io_world_close(&w);
}

static void test_a_late_write_keeps_its_buffer(void **state)
{
	const uint64_t now_ns = io_now_ns();
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "write:1:lost");
	io_world_fill(&w, BLOCK);
	memset(w.memory, 0x11, BLOCK);
	io_note_init(&note, &w, IO_WRITE, 0, w.memory, BLOCK);
	submit_with_deadline(&w, &note, now_ns);
	io_reap(w.engine, now_ns + 2 * HOUR_NS);
	assert_int_equal(note.result, -ETIMEDOUT);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, BLOCK);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory + BLOCK, BLOCK), 0);
	io_assert_bytes(w.memory + BLOCK, 0, BLOCK);
	io_let_go(w.engine);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory + BLOCK, BLOCK), 0);
	io_assert_all(w.memory + BLOCK, 0x11, BLOCK);
	io_world_close(&w);
}

static void test_a_lost_request_is_cancelled_but_not_settled(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:lost");
	io_world_fill(&w, BLOCK);
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	io_note_submit(&note, &w);
	io_cancel(w.engine, &note.request);
	io_cancel(w.engine, &note.request);
	assert_int_equal(note.n_done, 0);
	io_reap(w.engine, io_now_ns());
	assert_int_equal(note.result, -ECANCELED);
	assert_int_equal(note.n_settled, 0);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, BLOCK);
	assert_int_equal(io_world_gauges(&w).n_late, 0);
	io_cancel(w.engine, &note.request);
	io_reap(w.engine, io_now_ns());
	assert_int_equal(note.n_settled, 0);
	io_close(w.engine); /* waits until it is settled */
	w.engine = NULL;
	assert_int_equal(note.n_settled, 1);
	io_world_close(&w);
}

static void test_a_late_request_comes_by_itself(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:late=20");
	io_world_fill(&w, BLOCK);
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	note.request.deadline_ns = io_now_ns() + 1000000;
	io_note_submit(&note, &w);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, -ETIMEDOUT);
	assert_int_equal(io_world_gauges(&w).n_late, 1);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);
	io_assert_bytes(w.memory, 0, BLOCK);
	io_world_close(&w);
}

static void test_a_deadline_in_the_queue(void **state)
{
	const struct io_options one = {.depth = 1, .queue = 8};
	const uint64_t now_ns = io_now_ns();
	struct io_note notes[2];
	struct io_world w;

	io_world_open_faults(&w, *state, &one, "read:1:lost");
	io_world_fill(&w, 2 * BLOCK);
	for (size_t i = 0; i < 2; i++)
		io_note_init(&notes[i], &w, IO_READ, 0, w.memory + i * BLOCK, BLOCK);
	io_note_submit(&notes[0], &w);
	submit_with_deadline(&w, &notes[1], now_ns);
	io_reap(w.engine, now_ns + HOUR_NS);
	assert_int_equal(notes[1].result, -ETIMEDOUT);
	assert_int_equal(notes[1].n_settled, 1); /* nobody has its buffer */
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);
	assert_int_equal(notes[0].n_done, 0);
	io_let_go(w.engine);
	io_world_wait_settled(&w, notes, 1);
	assert_int_equal(notes[0].result, 0);
	io_assert_all(w.memory + BLOCK, 0xA5, BLOCK);
	io_world_close(&w);
}

/* A disk that hangs takes `depth` requests and no more; the others wait, and what is too much is
 * told. */
static void test_lost_requests_hold_up_the_queue(void **state)
{
	const struct io_options four = {.depth = 4, .queue = 4};
	struct io_note notes[9];
	struct io_world w;

	io_world_open_faults(&w, *state, &four, "read:1:lost,read:2:lost,read:3:lost,read:4:lost");
	io_world_fill(&w, BLOCK);
	for (size_t i = 0; i < 9; i++)
		io_note_init(&notes[i], &w, IO_READ, 0, w.memory + i * BLOCK, BLOCK);
	for (size_t i = 0; i < 8; i++)
		io_note_submit(&notes[i], &w);
	for (size_t i = 0; i < 4; i++)
		io_cancel(w.engine, &notes[i].request);
	io_reap(w.engine, io_now_ns());
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 4 * BLOCK);
	assert_int_equal(io_world_gauges(&w).n_in_flight, 4);
	assert_int_equal(io_world_gauges(&w).n_waiting, 4);
	assert_int_equal(io_submit(w.engine, &notes[8].request), -EAGAIN);
	io_let_go(w.engine);
	io_world_wait_settled(&w, notes, 8);
	for (size_t i = 0; i < 8; i++) {
		assert_int_equal(notes[i].result, i < 4 ? -ECANCELED : 0);
		io_assert_bytes(w.memory + i * BLOCK, 0, BLOCK);
	}
	io_world_close(&w);
}

static void test_a_short_request_that_is_late_is_not_carried_on(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:short,read:2:eio");
	io_world_fill(&w, BLOCK);
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	io_note_submit(&note, &w);
	io_cancel(w.engine, &note.request);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, -ECANCELED);
	io_assert_all(w.memory + BLOCK - PAGE, 0xA5, PAGE);
	/* The same request anew is a new one. */
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, BLOCK), -EIO);
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	assert_int_equal(io_world_run(&w, &note), 0);
	io_assert_bytes(w.memory, 0, BLOCK);
	io_world_close(&w);
}

/* Loads and stores in flight when a cache is reset: each is cancelled, and settled once. */
static void test_a_reset_cancels_what_is_in_flight(void **state)
{
	const struct io_options options = {.depth = 64, .queue = 64};
	static struct io_note notes[64];
	struct io_world w;

	io_world_open_faults(&w, *state, &options, "any:1+1:lost");
	io_world_fill(&w, 64 * PAGE);
	for (size_t i = 0; i < 64; i++) {
		io_note_init(&notes[i], &w, i % 2 ? IO_WRITE : IO_READ, i * PAGE,
			     w.memory + i * PAGE, PAGE);
		io_note_submit(&notes[i], &w);
	}
	for (size_t i = 0; i < 64; i++)
		io_cancel(w.engine, &notes[i].request);
	io_reap(w.engine, io_now_ns());
	for (size_t i = 0; i < 64; i++) {
		assert_int_equal(notes[i].result, -ECANCELED);
		assert_int_equal(notes[i].n_settled, 0);
	}
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 64 * PAGE);
	io_let_go(w.engine);
	io_world_wait_settled(&w, notes, 64);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);
	io_world_close(&w);
}

/* ---- the rules themselves ------------------------------------------------------------------- */

static void test_wrong_rules_are_refused(void **state)
{
	static const char *const wrong[] = {
		"read",         "read:1",      "read:1:",        "read:0:eio",
		"read:x:eio",   "fly:1:eio",   "read:1:short=0", "read:1:late",
		"read:1:eio=3", "read:1:eio,", "read:1+:what"};
	const struct io_options options = {.kind = IO_THREADS};
	struct errbuf err = {0};
	struct io_world w;

	io_world_open_faults(&w, *state, NULL, "read:1:eio");
	io_world_close(&w);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(setenv("KV_IO_FAULTS", wrong[i], 1), 0);
		assert_null(io_open(&options, &err));
		assert_int_equal(err.status, KV_EINVAL);
	}
	unsetenv("KV_IO_FAULTS");
}

static const struct CMUnitTest tests[] = {
	IO_TEST_FILES("a short read is carried on with", test_short_reads_are_carried_on),
	IO_TEST("a short read goes on in the right iovec", test_short_reads_into_many_iovecs),
	IO_TEST_FILES("a short write is carried on with", test_short_writes_are_carried_on),
	IO_TEST_FILES("a short read that comes to the end of the file is no data",
		      test_short_read_up_to_the_end),
	IO_TEST("an error is the result, and the next request is not disturbed",
		test_errors_are_the_result),
	IO_TEST("an error concerns its request only", test_an_error_behind_a_short_transfer),
	IO_TEST("interruptions are not seen", test_interruptions_are_not_seen),
	IO_TEST("a late read is done at once and keeps its buffer until it is settled",
		test_a_late_read_keeps_its_buffer),
	IO_TEST("a late write is done at once and keeps its buffer until it is settled",
		test_a_late_write_keeps_its_buffer),
	IO_TEST("a lost request is cancelled at once and settled by closing",
		test_a_lost_request_is_cancelled_but_not_settled),
	IO_TEST("a late request settles by itself", test_a_late_request_comes_by_itself),
	IO_TEST("a deadline that passes in the queue settles at once",
		test_a_deadline_in_the_queue),
	IO_TEST("a disk that hangs holds up the queue, which says so",
		test_lost_requests_hold_up_the_queue),
	IO_TEST("a cancelled short transfer is not carried on with",
		test_a_short_request_that_is_late_is_not_carried_on),
	IO_TEST("64 requests in flight are cancelled, and settled when they end",
		test_a_reset_cancels_what_is_in_flight),
	KT_TEST_PARAM("a wrong rule for faults is refused", test_wrong_rules_are_refused,
		      (void *)&io_way_threads),
};

KT_MAIN(tests)
