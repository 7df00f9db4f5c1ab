#include "tests/unit/io-world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define WAIT_MS 60000

const struct io_way io_way_uring = {.kind = IO_URING};
const struct io_way io_way_threads = {.kind = IO_THREADS};
const struct io_way io_way_uring_in_memory = {.kind = IO_URING, .in_memory = true};
const struct io_way io_way_threads_in_memory = {.kind = IO_THREADS, .in_memory = true};

#ifdef KV_FAULT_INJECTION
static const bool has_faults = true;
#else
static const bool has_faults = false;
#endif

bool io_has_uring(const char **why)
{
	static struct errbuf err;
	const struct io_options options = {.kind = IO_URING};
	const char *preload = getenv("LD_PRELOAD");
	struct io_engine *engine;

	*why = "valgrind does not see what io_uring writes";
	if (preload && strstr(preload, "vgpreload"))
		return false;
	engine = io_open(&options, &err);
	*why = err.text;
	io_close(engine);
	return engine != NULL;
}

static int make_file(struct io_world *world, const struct io_way *way)
{
	struct errbuf err = {0};
	int fd;

	world->dir = kt_tmpdir_new();
	if (way->in_memory)
		snprintf(world->path, sizeof(world->path), "/dev/shm/%sio-%d", kt_name_prefix(),
			 getpid());
	else
		snprintf(world->path, sizeof(world->path), "%s/file", world->dir);
	fd = io_open_file(world->path, O_RDWR | O_CREAT | O_TRUNC, 0600, &world->align, &err);
	if (fd < 0)
		fail_msg("%s", err.text);
	if (way->in_memory)
		unlink(world->path);
	return fd;
}

void io_world_open(struct io_world *world, const struct io_way *way,
		   const struct io_options *options)
{
	struct io_options all = options ? *options : (struct io_options){0};
	struct errbuf err = {0};
	const char *why;

	memset(world, 0, sizeof(*world));
	all.kind = way->kind;
	if (way->kind == IO_URING && !io_has_uring(&why))
		kt_skip("%s", why);
	if (way->in_memory && access("/dev/shm", W_OK) != 0)
		kt_skip("/dev/shm cannot be written");
	world->engine = io_open(&all, &err);
	if (!world->engine)
		fail_msg("%s", err.text);
	world->fd = make_file(world, way);
	world->file = io_file_add(world->engine, world->fd);
	assert_true(world->file >= 0);
	world->memory = aligned_alloc(PAGE, FILE_BYTES);
	assert_non_null(world->memory);
	memset(world->memory, 0xA5, FILE_BYTES);
}

void io_world_open_faults(struct io_world *world, const struct io_way *way,
			  const struct io_options *options, const char *faults)
{
	if (!has_faults)
		kt_skip("built without --enable-fault-injection");
	assert_int_equal(setenv("KV_IO_FAULTS", faults, 1), 0);
	io_world_open(world, way, options);
	assert_int_equal(unsetenv("KV_IO_FAULTS"), 0);
}

void io_world_close(struct io_world *world)
{
	io_close(world->engine);
	close(world->fd);
	free(world->memory);
	kt_tmpdir_free(world->dir);
}

/* ---- values --------------------------------------------------------------------------------- */

uint8_t io_byte(uint64_t off)
{
	const uint64_t mixed = (off + 1) * UINT64_C(0x9E3779B97F4A7C15);

	return (uint8_t)(mixed >> 56);
}

void io_world_fill(struct io_world *world, uint64_t n_bytes)
{
	uint8_t *bytes = malloc(n_bytes);
	int fd = open(world->path, O_WRONLY | O_CLOEXEC);

	/* One in memory has no name any more. */
	if (fd < 0)
		fd = dup(world->fd);
	assert_non_null(bytes);
	for (uint64_t i = 0; i < n_bytes; i++)
		bytes[i] = io_byte(i);
	assert_int_equal(pwrite(fd, bytes, n_bytes, 0), n_bytes);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	free(bytes);
}

void io_assert_bytes(const void *bytes, uint64_t off, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (((const uint8_t *)bytes)[i] != io_byte(off + i))
			fail_msg("byte %zu of %zu from %llu on is %#x, not %#x", i, n_bytes,
				 (unsigned long long)off, ((const uint8_t *)bytes)[i],
				 io_byte(off + i));
}

void io_assert_all(const void *bytes, uint8_t value, size_t n_bytes)
{
	for (size_t i = 0; i < n_bytes; i++)
		if (((const uint8_t *)bytes)[i] != value)
			fail_msg("byte %zu of %zu is %#x, not %#x", i, n_bytes,
				 ((const uint8_t *)bytes)[i], value);
}

uint64_t io_random(uint64_t *seed, uint64_t below)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return *seed % below;
}

/* ---- requests ------------------------------------------------------------------------------- */

static void note_done(struct io_request *request, int result)
{
	struct io_note *note = request->arg;

	assert_int_equal(note->n_done, 0);
	assert_int_equal(note->n_settled, 0);
	note->n_done++;
	note->result = result;
}

static void note_settled(struct io_request *request)
{
	struct io_note *note = request->arg;

	assert_int_equal(note->n_done, 1);
	assert_int_equal(note->n_settled, 0);
	note->n_settled++;
}

void io_note_init(struct io_note *note, struct io_world *world, enum io_op op, uint64_t off,
		  void *memory, size_t n_bytes)
{
	memset(note, 0, sizeof(*note));
	note->iov[0] = (struct iovec){memory, n_bytes};
	note->request = (struct io_request){
		.op = op,
		.file = world->file,
		.off = off,
		.iov = note->iov,
		.n_iov = op == IO_READ || op == IO_WRITE,
		.done = note_done,
		.settled = note_settled,
		.arg = note,
	};
}

void io_note_submit(struct io_note *note, struct io_world *world)
{
	assert_int_equal(io_submit(world->engine, &note->request), 0);
}

uint64_t io_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void io_world_wait(struct io_world *world, bool (*is_true)(void *arg), void *arg)
{
	const int64_t end_ms = kt_now_ms() + kt_scale_ms(WAIT_MS);

	while (!is_true(arg)) {
		const uint64_t due_ns = io_next_ns(world->engine), now_ns = io_now_ns();
		struct pollfd event = {.fd = io_fd(world->engine), .events = POLLIN};
		uint64_t wait_ms = due_ns <= now_ns ? 0 : (due_ns - now_ns) / 1000000 + 1;
		int rc = poll(&event, 1, wait_ms > 1000 ? 1000 : (int)wait_ms);

		assert_true(rc >= 0 || errno == EINTR);
		if (kt_now_ms() > end_ms)
			fail_msg("what the test waits for does not come");
		/* What is not announced must not be needed. */
		if (rc > 0 || io_next_ns(world->engine) <= io_now_ns())
			io_reap(world->engine, io_now_ns());
	}
}

struct notes {
	const struct io_note *notes;
	size_t n;
};

static bool all_settled(void *arg)
{
	const struct notes *notes = arg;

	for (size_t i = 0; i < notes->n; i++)
		if (notes->notes[i].n_settled == 0)
			return false;
	return true;
}

void io_world_wait_settled(struct io_world *world, struct io_note *notes, size_t n)
{
	struct notes all = {notes, n};

	io_world_wait(world, all_settled, &all);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(notes[i].n_done, 1);
}

int io_world_run(struct io_world *world, struct io_note *note)
{
	io_note_submit(note, world);
	io_world_wait_settled(world, note, 1);
	return note->result;
}

int io_world_transfer(struct io_world *world, enum io_op op, uint64_t off, void *memory,
		      size_t n_bytes)
{
	struct io_note note;

	io_note_init(&note, world, op, off, memory, n_bytes);
	return io_world_run(world, &note);
}

struct io_gauges io_world_gauges(const struct io_world *world)
{
	struct io_gauges gauges;

	io_gauges(world->engine, &gauges);
	return gauges;
}
