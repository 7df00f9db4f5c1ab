/*
 * An I/O engine, a file, and requests that note what was called, for the tests of the engines. All
 * of it lives in one struct io_world that a test opens and closes; what goes wrong in here fails
 * the test. Thread: the test's.
 */
#ifndef KVCACHED_TESTS_UNIT_IO_WORLD_H
#define KVCACHED_TESTS_UNIT_IO_WORLD_H

#include "offload/io.h"
#include "tests/support/runner.h"

#define PAGE 4096u
#define FILE_BYTES (8u << 20)
#define NOTE_IOVECS 64u

/* How to: one parameter of a test. */
struct io_way {
	enum io_kind kind;
	bool in_memory; /* the file is on a tmpfs */
};
extern const struct io_way io_way_uring, io_way_threads;
extern const struct io_way io_way_uring_in_memory, io_way_threads_in_memory;

/* One test for each engine. */
#define IO_TEST(sentence, fn) \
	KT_TEST_PARAM(sentence " (ring)", fn, (void *)&io_way_uring), \
		KT_TEST_PARAM(sentence " (threads)", fn, (void *)&io_way_threads)

/* And for each kind of file. */
#define IO_TEST_FILES(sentence, fn) \
	IO_TEST(sentence, fn), \
		KT_TEST_PARAM(sentence " (ring, tmpfs)", fn, (void *)&io_way_uring_in_memory), \
		KT_TEST_PARAM(sentence " (threads, tmpfs)", fn, (void *)&io_way_threads_in_memory)

struct io_world {
	struct io_engine *engine;
	char *dir;
	char path[128];
	int fd, file;
	uint32_t align;
	char *memory; /* FILE_BYTES, on a page */
};

/* Skips the test where the kernel has no such engine. The file is empty. */
void io_world_open(struct io_world *world, const struct io_way *way,
		   const struct io_options *options);
/* The same with faults (io_faults.h); skips where they are not compiled in. */
void io_world_open_faults(struct io_world *world, const struct io_way *way,
			  const struct io_options *options, const char *faults);
void io_world_close(struct io_world *world);

/* The file has n bytes, each what io_byte() says. */
void io_world_fill(struct io_world *world, uint64_t n_bytes);
uint8_t io_byte(uint64_t off);
void io_assert_bytes(const void *bytes, uint64_t off, size_t n_bytes);
void io_assert_all(const void *bytes, uint8_t value, size_t n_bytes);

/* A request of one iovec, and what was called. */
struct io_note {
	struct io_request request;
	struct iovec iov[NOTE_IOVECS];
	unsigned n_done, n_settled;
	int result;
};
void io_note_init(struct io_note *note, struct io_world *world, enum io_op op, uint64_t off,
		  void *memory, size_t n_bytes);

/* Submits, asserting that it is taken. */
void io_note_submit(struct io_note *note, struct io_world *world);

/* Waits and reaps as a loop does, by the clock, until is_true(arg). */
void io_world_wait(struct io_world *world, bool (*is_true)(void *arg), void *arg);
void io_world_wait_settled(struct io_world *world, struct io_note *notes, size_t n);

/* Submits and waits; the result. */
int io_world_run(struct io_world *world, struct io_note *note);
int io_world_transfer(struct io_world *world, enum io_op op, uint64_t off, void *memory,
		      size_t n_bytes);

uint64_t io_now_ns(void);
struct io_gauges io_world_gauges(const struct io_world *world);

/* Random numbers, the same in each run. */
uint64_t io_random(uint64_t *seed, uint64_t below);

/* The kernel has io_uring, and it can be watched. */
bool io_has_uring(const char **why);

#endif
