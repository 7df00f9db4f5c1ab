/*
 * The I/O engines as they should be: bytes, results and calls are the same whoever moves them, on
 * files with and without direct I/O.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/io-world.h"

static const struct io_options small = {.depth = 8, .queue = 8};

/* ---- values --------------------------------------------------------------------------------- */

static void test_written_bytes_are_read(void **state)
{
	struct io_world w;

	io_world_open(&w, *state, NULL);
	for (size_t i = 0; i < 65536; i++)
		w.memory[i] = (char)io_byte(i);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, 0, w.memory, 65536), 0);
	assert_int_equal(io_world_transfer(&w, IO_SYNC, 0, NULL, 0), 0);
	assert_int_equal(io_world_transfer(&w, IO_READ, PAGE, w.memory + (1 << 20), 65536 - PAGE),
			 0);
	io_assert_bytes(w.memory + (1 << 20), PAGE, 65536 - PAGE);
	io_assert_all(w.memory + (1 << 20) + 65536 - PAGE, 0xA5, PAGE);
	assert_int_equal(io_world_gauges(&w).n_written_bytes, 65536);
	assert_int_equal(io_world_gauges(&w).n_read_bytes, 65536 - PAGE);
	io_world_close(&w);
}

static void test_iovecs_are_one_run_of_the_file(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, 1 << 20);
	io_note_init(&note, &w, IO_READ, 3 * PAGE, NULL, 0);
	/* Pages backwards, each second one, with an empty piece among them. */
	note.request.n_iov = 33;
	for (size_t i = 0; i < 33; i++)
		note.iov[i] = (struct iovec){w.memory + (64 - 2 * i) * PAGE, i == 7 ? 0 : PAGE};
	assert_int_equal(io_world_run(&w, &note), 0);
	for (size_t i = 0, at = 3 * PAGE; i < 33; i++) {
		if (i == 7)
			continue;
		io_assert_bytes(w.memory + (64 - 2 * i) * PAGE, at, PAGE);
		io_assert_all(w.memory + (65 - 2 * i) * PAGE, 0xA5, PAGE);
		at += PAGE;
	}
	io_world_close(&w);
}

static void test_nothing_to_transfer_is_done(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open(&w, *state, NULL);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, 0), 0);
	io_note_init(&note, &w, IO_WRITE, 0, NULL, 0);
	note.request.n_iov = 0;
	io_note_submit(&note, &w);
	assert_int_equal(note.n_done, 0);
	assert_int_equal(io_next_ns(w.engine), 0);
	io_reap(w.engine, io_now_ns());
	assert_int_equal(note.n_settled, 1);
	assert_int_equal(note.result, 0);
	io_world_close(&w);
}

/* ---- the end of the file -------------------------------------------------------------------- */

static void test_the_end_of_the_file_is_no_data(void **state)
{
	static const uint64_t lacks[] = {1, 4095, 4096, 4097, 65536};
	struct io_world w;

	io_world_open(&w, *state, NULL);
	for (size_t i = 0; i < sizeof(lacks) / sizeof(lacks[0]); i++) {
		io_world_fill(&w, 65536);
		assert_int_equal(ftruncate(w.fd, (off_t)(65536 - lacks[i])), 0);
		memset(w.memory, 0xA5, 65536);
		assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, 65536), -ENODATA);
		/* Nothing is invented behind the end. */
		for (size_t at = 65536 - lacks[i]; at < 65536; at++)
			assert_true(w.memory[at] == (char)0xA5 || w.memory[at] == 0);
	}
	assert_int_equal(io_world_transfer(&w, IO_READ, 1 << 20, w.memory, PAGE), -ENODATA);
	assert_int_equal(io_world_gauges(&w).n_failed, 6);
	io_world_close(&w);
}

static void test_a_file_to_its_last_byte_is_data(void **state)
{
	struct io_world w;

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, 65536);
	assert_int_equal(io_world_transfer(&w, IO_READ, 65536 - PAGE, w.memory, PAGE), 0);
	io_assert_bytes(w.memory, 65536 - PAGE, PAGE);
	io_world_close(&w);
}

static void test_any_size_where_the_file_is_buffered(void **state)
{
	static const size_t sizes[] = {1, 2, 511, 4095, 4097, 65537};
	struct io_world w;

	io_world_open(&w, *state, NULL);
	if (w.align > 1)
		assert_int_equal(fcntl(w.fd, F_SETFL, 0), 0);
	io_file_remove(w.engine, w.file);
	w.file = io_file_add(w.engine, w.fd);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const uint64_t off = 1000 * i + 7;
		char *to = w.memory + (1 << 20) + 3;

		for (size_t at = 0; at < sizes[i]; at++)
			w.memory[at + 1] = (char)io_byte(off + at);
		assert_int_equal(io_world_transfer(&w, IO_WRITE, off, w.memory + 1, sizes[i]), 0);
		assert_int_equal(io_world_transfer(&w, IO_READ, off, to, sizes[i]), 0);
		io_assert_bytes(to, off, sizes[i]);
	}
	io_world_close(&w);
}

static void test_unaligned_direct_transfers_never_lie(void **state)
{
	struct io_world w;
	int rc;

	io_world_open(&w, *state, NULL);
	if (w.align == 1) {
		io_world_close(&w);
		kt_skip("no direct I/O in the folder for temporary files");
	}
	io_world_fill(&w, 65536);
	rc = io_world_transfer(&w, IO_READ, 1, w.memory + 1, 4095);
	assert_true(rc == 0 || rc == -EINVAL || rc == -ENODATA);
	if (rc == 0)
		io_assert_bytes(w.memory + 1, 1, 4095);
	io_world_close(&w);
}

/* ---- against a model ------------------------------------------------------------------------ */

#define SLOTS 64u
#define SLOT_BYTES (16u * PAGE)
#define OPERATIONS 4000u

struct model {
	struct io_world w;
	uint64_t seed;
	struct io_note notes[SLOTS];
	bool is_busy[SLOTS];
	uint8_t on_disk[SLOTS][SLOT_BYTES];  /* what is in the file */
	uint8_t expected[SLOTS][SLOT_BYTES]; /* what a read must give, 0xA5 where it reads not */
};

static void cut_up(struct model *m, struct io_note *note, char *memory, size_t n_pages)
{
	uint32_t n = 0;

	while (n_pages > 0) {
		size_t step = 1 + io_random(&m->seed, n_pages < 4 ? n_pages : 4);

		note->iov[n++] = (struct iovec){memory, step * PAGE};
		memory += step * PAGE;
		n_pages -= step;
	}
	note->request.n_iov = n;
}

static void begin(struct model *m, uint32_t slot)
{
	char *memory = m->w.memory + slot * SLOT_BYTES;
	size_t first = io_random(&m->seed, 16), n = 1 + io_random(&m->seed, 16 - first);
	enum io_op op = io_random(&m->seed, 2) ? IO_READ : IO_WRITE;
	uint8_t *on_disk = m->on_disk[slot] + first * PAGE;

	if (op == IO_WRITE) {
		for (size_t i = 0; i < SLOT_BYTES; i += 8)
			memcpy(memory + i, &(uint64_t){io_random(&m->seed, UINT64_MAX)}, 8);
		memcpy(on_disk, memory, n * PAGE);
		memcpy(m->expected[slot], memory, SLOT_BYTES);
	} else {
		memset(memory, 0xA5, SLOT_BYTES);
		memset(m->expected[slot], 0xA5, SLOT_BYTES);
		memcpy(m->expected[slot], on_disk, n * PAGE);
	}
	io_note_init(&m->notes[slot], &m->w, op, slot * SLOT_BYTES + first * PAGE, memory,
		     n * PAGE);
	if (io_random(&m->seed, 2))
		cut_up(m, &m->notes[slot], memory, n);
	io_note_submit(&m->notes[slot], &m->w);
	m->is_busy[slot] = true;
}

static bool some_is_free(void *arg)
{
	struct model *m = arg;
	uint32_t n_free = 0;

	for (uint32_t i = 0; i < SLOTS; i++) {
		if (m->is_busy[i] && m->notes[i].n_settled) {
			assert_int_equal(m->notes[i].result, 0);
			assert_memory_equal(m->w.memory + i * SLOT_BYTES, m->expected[i],
					    SLOT_BYTES);
			m->is_busy[i] = false;
		}
		n_free += !m->is_busy[i];
	}
	return n_free > 0;
}

static void run_model(const struct io_way *way, const char *faults, bool is_registered)
{
	const struct io_options options = {.depth = 8, .queue = SLOTS};
	static struct model model;
	struct model *m = &model;

	memset(m, 0, sizeof(*m));
	m->seed = 20240607;
	if (faults)
		io_world_open_faults(&m->w, way, &options, faults);
	else
		io_world_open(&m->w, way, &options);
	if (is_registered)
		io_memory_add(m->w.engine, m->w.memory, FILE_BYTES / 2);
	io_world_fill(&m->w, SLOTS * SLOT_BYTES);
	for (size_t i = 0; i < SLOTS * SLOT_BYTES; i++)
		m->on_disk[i / SLOT_BYTES][i % SLOT_BYTES] = io_byte(i);
	for (uint32_t i = 0; i < OPERATIONS; i++) {
		uint32_t slot = (uint32_t)io_random(&m->seed, SLOTS);

		io_world_wait(&m->w, some_is_free, m);
		while (m->is_busy[slot])
			slot = (slot + 1) % SLOTS;
		begin(m, slot);
	}
	assert_int_equal(io_world_gauges(&m->w).n_short > 100, faults != NULL);
	for (uint32_t i = 0; i < SLOTS; i++)
		if (m->is_busy[i])
			io_world_wait_settled(&m->w, &m->notes[i], 1);
	assert_true(some_is_free(m));
	assert_int_equal(io_world_transfer(&m->w, IO_READ, 0, m->w.memory, SLOTS * SLOT_BYTES), 0);
	assert_memory_equal(m->w.memory, m->on_disk, SLOTS * SLOT_BYTES);
	io_world_close(&m->w);
}

static void test_random_transfers(void **state)
{
	run_model(*state, NULL, false);
}

static void test_random_transfers_registered(void **state)
{
	run_model(*state, NULL, true);
}

static void test_random_transfers_with_faults(void **state)
{
	run_model(*state,
		  "any:1+3:short,read:2+5:eintr,write:3+5:eagain,any:5+17:late=1,any:7+4:short=3",
		  true);
}

/* ---- back-pressure -------------------------------------------------------------------------- */

static void test_a_full_queue_says_again(void **state)
{
	struct io_note notes[17];
	struct io_world w;

	io_world_open(&w, *state, &small);
	io_world_fill(&w, 65536);
	for (size_t i = 0; i < 17; i++)
		io_note_init(&notes[i], &w, IO_READ, 0, w.memory + i * 65536, 65536);
	/* Nothing is collected meanwhile: 8 in flight, 8 waiting. */
	for (size_t i = 0; i < 16; i++)
		io_note_submit(&notes[i], &w);
	assert_int_equal(io_world_gauges(&w).n_in_flight, 8);
	assert_int_equal(io_world_gauges(&w).n_waiting, 8);
	assert_int_equal(io_submit(w.engine, &notes[16].request), -EAGAIN);
	assert_int_equal(io_submit(w.engine, &notes[16].request), -EAGAIN);
	assert_int_equal(io_world_gauges(&w).n_full, 2);
	io_world_wait_settled(&w, notes, 16);
	assert_int_equal(notes[16].n_done, 0);
	assert_int_equal(io_world_run(&w, &notes[16]), 0);
	for (size_t i = 0; i < 17; i++)
		io_assert_bytes(w.memory + i * 65536, 0, 65536);
	io_world_close(&w);
}

#define MANY 10000u

struct many {
	struct io_world w;
	struct io_note notes[16];
	uint32_t n_begun, n_ended, n_in_flight_max;
	bool of_note[16];
};

static bool many_go_on(void *arg)
{
	struct many *m = arg;

	for (uint32_t i = 0; i < 16; i++) {
		char *memory = m->w.memory + i * PAGE;
		uint32_t n = io_world_gauges(&m->w).n_in_flight;

		m->n_in_flight_max = n > m->n_in_flight_max ? n : m->n_in_flight_max;
		if (m->of_note[i] && m->notes[i].n_settled == 0)
			continue;
		if (m->of_note[i]) {
			assert_int_equal(m->notes[i].result, 0);
			io_assert_bytes(memory, m->notes[i].request.off, PAGE);
			m->of_note[i] = false;
			m->n_ended++;
		}
		if (m->n_begun == MANY)
			continue;
		memset(memory, 0xA5, PAGE);
		io_note_init(&m->notes[i], &m->w, IO_READ, m->n_begun++ % 256 * PAGE, memory, PAGE);
		io_note_submit(&m->notes[i], &m->w);
		m->of_note[i] = true;
	}
	return m->n_ended == MANY;
}

static void test_many_requests_through_a_small_depth(void **state)
{
	static struct many m;

	memset(&m, 0, sizeof(m));
	io_world_open(&m.w, *state, &small);
	io_world_fill(&m.w, 256 * PAGE);
	io_world_wait(&m.w, many_go_on, &m);
	assert_int_equal(m.n_in_flight_max, 8);
	assert_int_equal(io_world_gauges(&m.w).n_read_bytes, MANY * PAGE);
	assert_int_equal(io_world_gauges(&m.w).n_full, 0);
	io_world_close(&m.w);
}

/* ---- cancel, close -------------------------------------------------------------------------- */

static void test_what_waits_is_cancelled_at_once(void **state)
{
	const struct io_options one = {.depth = 1, .queue = 8};
	struct io_note notes[3];
	struct io_world w;

	io_world_open(&w, *state, &one);
	io_world_fill(&w, 1 << 20);
	for (size_t i = 0; i < 3; i++) {
		io_note_init(&notes[i], &w, IO_READ, 0, w.memory + (i << 20), 1 << 20);
		io_note_submit(&notes[i], &w);
	}
	io_cancel(w.engine, &notes[1].request);
	assert_int_equal(notes[1].n_done, 0); /* not before io_reap() */
	assert_int_equal(io_next_ns(w.engine), 0);
	io_reap(w.engine, io_now_ns());
	assert_int_equal(notes[1].n_settled, 1);
	assert_int_equal(notes[1].result, -ECANCELED);
	io_assert_all(w.memory + (1 << 20), 0xA5, 1 << 20);
	io_world_wait_settled(&w, notes, 3);
	assert_int_equal(notes[2].result, 0);
	io_assert_bytes(w.memory + (2 << 20), 0, 1 << 20);
	io_cancel(w.engine, &notes[2].request); /* too late: nothing */
	io_reap(w.engine, io_now_ns());
	assert_int_equal(notes[2].n_done, 1);
	io_world_close(&w);
}

static void test_a_cancelled_request_ends_whatever_the_kernel_says(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, 4 << 20);
	io_note_init(&note, &w, IO_READ, 0, w.memory, 4 << 20);
	io_note_submit(&note, &w);
	io_cancel(w.engine, &note.request);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, -ECANCELED);
	assert_int_equal(io_world_gauges(&w).quarantined_bytes, 0);
	io_world_close(&w);
}

static void test_closing_ends_everything(void **state)
{
	struct io_note notes[16];
	struct io_world w;

	io_world_open(&w, *state, &small);
	io_world_fill(&w, 1 << 20);
	for (size_t i = 0; i < 16; i++) {
		io_note_init(&notes[i], &w, IO_READ, i * 65536, w.memory + i * 65536, 65536);
		io_note_submit(&notes[i], &w);
	}
	io_close(w.engine);
	w.engine = NULL;
	for (size_t i = 0; i < 16; i++) {
		assert_int_equal(notes[i].n_settled, 1);
		assert_int_equal(notes[i].result, i < 8 ? 0 : -ECANCELED);
		if (i < 8)
			io_assert_bytes(w.memory + i * 65536, i * 65536, 65536);
		else
			io_assert_all(w.memory + i * 65536, 0xA5, 65536);
	}
	io_world_close(&w);
}

/* ---- callbacks ------------------------------------------------------------------------------ */

struct chain {
	struct io_world *w;
	struct io_request request;
	struct iovec iov;
	uint32_t n_pages, n_errors;
	int closing_result;
};

static void next_page(struct io_request *request)
{
	struct chain *c = request->arg;

	c->iov = (struct iovec){c->w->memory + c->n_pages * PAGE, PAGE};
	c->request.off = c->n_pages * PAGE;
	if (c->n_pages < 100)
		assert_int_equal(io_submit(c->w->engine, &c->request), 0);
}

static void page_done(struct io_request *request, int result)
{
	struct chain *c = request->arg;

	c->n_errors += result != 0;
	c->n_pages++;
}

static bool chain_ended(void *arg)
{
	return ((struct chain *)arg)->n_pages == 100;
}

static void test_callbacks_submit_again(void **state)
{
	struct io_world w;
	struct chain c = {.w = &w};

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, 100 * PAGE);
	c.request = (struct io_request){.op = IO_READ,
					.file = w.file,
					.iov = &c.iov,
					.n_iov = 1,
					.done = page_done,
					.settled = next_page,
					.arg = &c};
	next_page(&c.request);
	io_world_wait(&w, chain_ended, &c);
	assert_int_equal(c.n_errors, 0);
	io_assert_bytes(w.memory, 0, 100 * PAGE);
	io_world_close(&w);
}

static void submit_while_closing(struct io_request *request)
{
	struct chain *c = request->arg;

	c->closing_result = io_submit(c->w->engine, &c->request);
}

static void test_nothing_begins_while_closing(void **state)
{
	struct io_world w;
	struct chain c = {.w = &w};

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, PAGE);
	c.iov = (struct iovec){w.memory, PAGE};
	c.request = (struct io_request){.op = IO_READ,
					.file = w.file,
					.iov = &c.iov,
					.n_iov = 1,
					.done = page_done,
					.settled = submit_while_closing,
					.arg = &c};
	assert_int_equal(io_submit(w.engine, &c.request), 0);
	io_close(w.engine);
	w.engine = NULL;
	assert_int_equal(c.n_pages, 1);
	assert_int_equal(c.closing_result, -ECANCELED);
	io_world_close(&w);
}

/* ---- calls ---------------------------------------------------------------------------------- */

static int call_rename(void *arg)
{
	const struct io_note *note = arg;
	const char *const *names = note->iov[0].iov_base;

	return rename(names[0], names[1]) ? -errno : 0;
}

static void test_calls_run_on_a_thread(void **state)
{
	char to[160];
	const char *names[2];
	struct io_note note;
	struct io_world w;

	io_world_open(&w, *state, NULL);
	snprintf(to, sizeof(to), "%s/other", w.dir);
	names[0] = w.path;
	names[1] = to;
	io_note_init(&note, &w, IO_CALL, 0, names, 0);
	note.request.call = call_rename;
	note.request.file = -1;
	assert_int_equal(io_world_run(&w, &note), 0);
	assert_int_equal(access(to, F_OK), 0);
	io_note_init(&note, &w, IO_CALL, 0, names, 0);
	note.request.call = call_rename;
	assert_int_equal(io_world_run(&w, &note), -ENOENT);
	assert_int_equal(io_world_gauges(&w).n_failed, 1);
	io_world_close(&w);
}

static int call_wait(void *arg)
{
	const struct io_note *note = arg;
	char byte;

	return read((int)(intptr_t)note->iov[0].iov_base, &byte, 1) == 1 ? 0 : -EIO;
}

static void test_transfers_go_on_while_a_call_waits(void **state)
{
	struct io_note call, note;
	struct io_world w;
	int pipe_fds[2];

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, PAGE);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	io_note_init(&call, &w, IO_CALL, 0, (void *)(intptr_t)pipe_fds[0], 0);
	call.request.call = call_wait;
	io_note_submit(&call, &w);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, PAGE), 0);
	assert_int_equal(call.n_done, 0);
	/* One that waits behind it is cancelled without ever having run. */
	io_note_init(&note, &w, IO_CALL, 0, (void *)(intptr_t)pipe_fds[0], 0);
	note.request.call = call_wait;
	io_note_submit(&note, &w);
	io_cancel(w.engine, &note.request);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, -ECANCELED);
	assert_int_equal(write(pipe_fds[1], "x", 1), 1);
	io_world_wait_settled(&w, &call, 1);
	assert_int_equal(call.result, 0);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	io_world_close(&w);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void test_wrong_requests_are_refused(void **state)
{
	struct io_note note;
	struct io_world w;

	io_world_open(&w, *state, NULL);
	for (int i = 0; i < 8; i++) {
		io_note_init(&note, &w, IO_READ, 0, w.memory, PAGE);
		switch (i) {
		case 0: note.request.op = 0; break;
		case 1: note.request.file = -1; break;
		case 2: note.request.file = w.file + 1; break;
		case 3: note.request.file = IO_FILES_MAX; break;
		case 4: note.request.n_iov = IO_IOVECS_MAX + 1; break;
		case 5: note.request.iov = NULL; break;
		case 6: note.request.off = UINT64_MAX - 4095; break;
		case 7: note.request.done = NULL; break;
		default: break;
		}
		assert_int_equal(io_submit(w.engine, &note.request), -EINVAL);
	}
	io_note_init(&note, &w, IO_CALL, 0, NULL, 0);
	assert_int_equal(io_submit(w.engine, &note.request), -EINVAL);
	io_note_init(&note, &w, IO_READ, 0, w.memory, PAGE);
	io_note_submit(&note, &w);
	assert_int_equal(io_submit(w.engine, &note.request), -EINVAL); /* twice */
	io_world_wait_settled(&w, &note, 1);
	io_world_close(&w);
}

static void test_files_come_and_go(void **state)
{
	struct io_world w;
	int fd, files[IO_FILES_MAX];

	io_world_open(&w, *state, NULL);
	io_world_fill(&w, PAGE);
	for (unsigned i = 1; i < IO_FILES_MAX; i++)
		files[i] = io_file_add(w.engine, w.fd);
	assert_true(files[IO_FILES_MAX - 1] >= 0);
	assert_int_equal(io_file_add(w.engine, w.fd), -EMFILE);
	io_file_remove(w.engine, files[5]);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	w.file = io_file_add(w.engine, fd);
	assert_int_equal(w.file, files[5]);
	/* The number stands for the other file now. */
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, PAGE), -ENODATA);
	w.file = files[6];
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, PAGE), 0);
	io_assert_bytes(w.memory, 0, PAGE);
	close(fd);
	io_world_close(&w);
}

static void test_errors_of_the_file_are_told(void **state)
{
	struct io_world w;
	int fd;

	io_world_open(&w, *state, NULL);
	fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	io_file_remove(w.engine, w.file);
	w.file = io_file_add(w.engine, fd);
	assert_int_equal(io_world_transfer(&w, IO_WRITE, 0, w.memory, PAGE), -ENOSPC);
	assert_int_equal(io_world_transfer(&w, IO_READ, 0, w.memory, PAGE), -EBADF);
	assert_int_equal(io_world_gauges(&w).n_failed, 2);
	close(fd);
	io_world_close(&w);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void test_limits_of_the_options(void **state)
{
	struct io_options options = {
		.kind = IO_THREADS, .depth = IO_DEPTH_MAX, .n_threads = IO_THREADS_MAX};
	struct io_engine *engine;
	struct errbuf err = {0};

	(void)state;
	engine = io_open(&options, &err);
	assert_non_null(engine);
	assert_string_equal(io_text(engine), "threads");
	io_close(engine);
	options.depth++;
	assert_null(io_open(&options, &err));
	assert_int_equal(err.status, KV_ERANGE);
	assert_string_equal(err.text, "1025 I/O requests at a time, the limit is 1024");
	options.depth = 0;
	options.n_threads++;
	assert_null(io_open(&options, &err));
	assert_string_equal(err.text, "65 I/O threads, the limit is 64");
	io_close(NULL);
}

static void test_files_that_cannot_be_opened(void **state)
{
	struct errbuf err = {0};
	uint32_t align;

	(void)state;
	assert_int_equal(io_open_file("/nowhere/file", O_RDONLY, 0, &align, &err), -1);
	assert_int_equal(err.status, KV_ENOTFOUND);
	assert_string_equal(err.text, "/nowhere/file cannot be opened: No such file or directory");
}

static void test_direct_files_say_what_they_want(void **state)
{
	struct io_world w;

	io_world_open(&w, *state, NULL);
	if (((const struct io_way *)*state)->in_memory) {
		assert_int_equal(w.align, 1);
		assert_int_equal(fcntl(w.fd, F_GETFL) & O_DIRECT, 0);
	} else if (w.align > 1) {
		assert_true(w.align <= 4096 && (w.align & (w.align - 1)) == 0);
		assert_int_not_equal(fcntl(w.fd, F_GETFL) & O_DIRECT, 0);
	}
	io_world_close(&w);
}

static const struct CMUnitTest tests[] = {
	IO_TEST_FILES("what was written is read", test_written_bytes_are_read),
	IO_TEST_FILES("iovecs are one run of the file", test_iovecs_are_one_run_of_the_file),
	IO_TEST("a request without bytes is done at the next reap",
		test_nothing_to_transfer_is_done),
	IO_TEST_FILES("the end of the file is no data", test_the_end_of_the_file_is_no_data),
	IO_TEST_FILES("a file is data up to its last byte", test_a_file_to_its_last_byte_is_data),
	IO_TEST_FILES("a buffered file takes any size", test_any_size_where_the_file_is_buffered),
	IO_TEST("an unaligned direct transfer is refused or right",
		test_unaligned_direct_transfers_never_lie),
	IO_TEST_FILES("random transfers equal a model", test_random_transfers),
	IO_TEST_FILES("random transfers of registered memory equal a model",
		      test_random_transfers_registered),
	IO_TEST_FILES("random transfers with faults among them equal a model",
		      test_random_transfers_with_faults),
	IO_TEST("a full queue says so, and counts it", test_a_full_queue_says_again),
	IO_TEST("10,000 requests go through a depth of 8",
		test_many_requests_through_a_small_depth),
	IO_TEST("what waits is cancelled without a byte", test_what_waits_is_cancelled_at_once),
	IO_TEST("a cancelled request ends as cancelled",
		test_a_cancelled_request_ends_whatever_the_kernel_says),
	IO_TEST("closing ends what is in flight and cancels what waits",
		test_closing_ends_everything),
	IO_TEST("callbacks submit requests", test_callbacks_submit_again),
	IO_TEST("nothing begins while the engine is closed", test_nothing_begins_while_closing),
	IO_TEST("a call runs and gives its result", test_calls_run_on_a_thread),
	IO_TEST("a call that waits holds nothing up", test_transfers_go_on_while_a_call_waits),
	IO_TEST("a wrong request is refused", test_wrong_requests_are_refused),
	IO_TEST("numbers of files are used again", test_files_come_and_go),
	IO_TEST("an error of the file is the result", test_errors_of_the_file_are_told),
	IO_TEST_FILES("a file is direct where the file system can",
		      test_direct_files_say_what_they_want),
	KT_TEST("an engine refuses more than the limits", test_limits_of_the_options),
	KT_TEST("a file that cannot be opened is named", test_files_that_cannot_be_opened),
};

KT_MAIN(tests)
