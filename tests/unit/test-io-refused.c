/*
 * What the kernel refuses: io_uring as a whole, registered memory and files, a submission now and
 * then. The engine goes on with what it has, says why, and gives the same results.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/wait.h"
#include "tests/unit/io-world.h"

#define BLOCK (256u << 10)
#define NOBODY 65534

/* ---- what the linker puts before liburing --------------------------------------------------- */

static struct {
	int submit[3]; /* results of the next submissions, 0: as it is */
	unsigned n_submits, n_refused, every;
	int files, files_update, table; /* results of registrations, 0: as it is */
} refuse;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring)
{
	const unsigned n = refuse.n_submits++;

	if (!refuse.every || n % refuse.every > 2 || !refuse.submit[n % refuse.every])
		return __real_io_uring_submit(ring);
	refuse.n_refused++;
	return refuse.submit[n % refuse.every];
}

int __real_io_uring_register_files(struct io_uring *ring, const int *files, unsigned n);
int __wrap_io_uring_register_files(struct io_uring *ring, const int *files, unsigned n);
int __wrap_io_uring_register_files(struct io_uring *ring, const int *files, unsigned n)
{
	return refuse.files ? refuse.files : __real_io_uring_register_files(ring, files, n);
}

int __real_io_uring_register_files_update(struct io_uring *ring, unsigned off, const int *files,
					  unsigned n);
int __wrap_io_uring_register_files_update(struct io_uring *ring, unsigned off, const int *files,
					  unsigned n);
int __wrap_io_uring_register_files_update(struct io_uring *ring, unsigned off, const int *files,
					  unsigned n)
{
	return refuse.files_update ? refuse.files_update :
				     __real_io_uring_register_files_update(ring, off, files, n);
}

int __real_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned n);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned n);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned n)
{
	return refuse.table ? refuse.table : __real_io_uring_register_buffers_sparse(ring, n);
}

/* ---- transfers ------------------------------------------------------------------------------ */

static void read_blocks(struct io_world *w)
{
	struct io_note notes[16];

	memset(w->memory, 0xA5, 16 * BLOCK);
	for (size_t i = 0; i < 16; i++) {
		io_note_init(&notes[i], w, IO_READ, i * BLOCK, w->memory + i * BLOCK, BLOCK);
		io_note_submit(&notes[i], w);
	}
	io_world_wait_settled(w, notes, 16);
	for (size_t i = 0; i < 16; i++)
		assert_int_equal(notes[i].result, 0);
	io_assert_bytes(w->memory, 0, 16 * BLOCK);
}

static void test_a_busy_ring_loses_nothing(void **state)
{
	static const int errors[][3] = {{-EAGAIN}, {-EBUSY}, {-EINTR}, {-EAGAIN, -EINTR, -EBUSY}};
	const struct io_options small = {.depth = 4, .queue = 64};
	struct io_world w;

	(void)state;
	io_world_open(&w, &io_way_uring, &small);
	io_world_fill(&w, 16 * BLOCK);
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		refuse.every = errors[i][1] ? 4 : 2;
		refuse.n_submits = refuse.n_refused = 0;
		memcpy(refuse.submit, errors[i], sizeof(refuse.submit));
		read_blocks(&w);
		assert_true(refuse.n_refused > 2);
	}
	refuse.every = 0;
	io_world_close(&w);
}

static void test_a_first_submission_that_is_refused_comes_again(void **state)
{
	struct io_note note;
	struct io_world w;

	(void)state;
	io_world_open(&w, &io_way_uring, NULL);
	io_world_fill(&w, BLOCK);
	refuse.every = 1000;
	refuse.n_submits = 0;
	refuse.submit[0] = refuse.submit[1] = refuse.submit[2] = -EAGAIN;
	io_note_init(&note, &w, IO_READ, 0, w.memory, BLOCK);
	io_note_submit(&note, &w);
	/* Nothing is in the kernel that could call: the engine asks for time. */
	assert_true(io_next_ns(w.engine) != UINT64_MAX);
	io_world_wait_settled(&w, &note, 1);
	assert_int_equal(note.result, 0);
	assert_int_equal(refuse.n_submits, 4);
	refuse.every = 0;
	io_world_close(&w);
}

static void test_without_a_table_of_files(void **state)
{
	struct io_world w;

	(void)state;
	refuse.files = -EMFILE;
	io_world_open(&w, &io_way_uring, NULL);
	refuse.files = 0;
	io_world_fill(&w, 16 * BLOCK);
	read_blocks(&w);
	io_world_close(&w);
}

static void test_a_table_of_files_that_cannot_be_changed(void **state)
{
	struct io_world w;

	(void)state;
	refuse.files_update = -ENOMEM;
	io_world_open(&w, &io_way_uring, NULL);
	refuse.files_update = 0;
	io_world_fill(&w, 16 * BLOCK);
	read_blocks(&w);
	io_world_close(&w);
}

static void test_a_kernel_without_a_table_of_memory(void **state)
{
	struct io_world w;

	(void)state;
	io_world_open(&w, &io_way_uring, NULL);
	assert_string_equal(io_text(w.engine), "io_uring");
	io_world_fill(&w, 16 * BLOCK);
	refuse.table = -EINVAL;
	io_memory_add(w.engine, w.memory, FILE_BYTES);
	assert_string_equal(io_text(w.engine),
			    "io_uring, memory is not registered: Invalid argument");
	read_blocks(&w);
	io_memory_remove(w.engine, w.memory);
	assert_string_equal(io_text(w.engine), "io_uring");
	refuse.table = 0;
	io_memory_add(w.engine, w.memory, FILE_BYTES);
	assert_string_equal(io_text(w.engine), "io_uring, registered memory");
	read_blocks(&w);
	io_world_close(&w);
}

static void test_memory_that_cannot_be_registered(void **state)
{
	struct io_world w;

	(void)state;
	io_world_open(&w, &io_way_uring, NULL);
	io_world_fill(&w, 16 * BLOCK);
	io_memory_add(w.engine, w.memory, FILE_BYTES);
	io_memory_add(w.engine, (void *)PAGE, FILE_BYTES); /* nothing is there */
	assert_string_equal(io_text(w.engine),
			    "io_uring, not all memory is registered: Bad address");
	read_blocks(&w);
	io_memory_remove(w.engine, (void *)PAGE);
	assert_string_equal(io_text(w.engine), "io_uring, registered memory");
	io_memory_remove(w.engine, w.memory);
	read_blocks(&w);
	io_world_close(&w);
}

/* ---- in a process of its own ---------------------------------------------------------------- */

/* What a child found out: its engine's text, and whether what it read was right. */
struct report {
	char text[400];
	int result;
	bool is_right;
};

static void report_reads(const struct io_options *options, const char *path, bool registers,
			 struct report *report)
{
	struct io_world w = {.memory = aligned_alloc(PAGE, FILE_BYTES)};
	struct errbuf err = {0};
	struct io_note note;

	w.engine = io_open(options, &err);
	snprintf(report->text, sizeof(report->text), "%s", err.text);
	if (!w.engine || !w.memory)
		return;
	w.fd = io_open_file(path, O_RDONLY, 0, &w.align, &err);
	w.file = io_file_add(w.engine, w.fd);
	memset(w.memory, 0xA5, FILE_BYTES);
	if (registers)
		io_memory_add(w.engine, w.memory, FILE_BYTES);
	io_note_init(&note, &w, IO_READ, 0, w.memory, 16 * BLOCK);
	report->result = io_world_run(&w, &note);
	report->is_right = true;
	for (size_t i = 0; i < 16 * BLOCK; i++)
		report->is_right &= (uint8_t)w.memory[i] == io_byte(i);
	snprintf(report->text, sizeof(report->text), "%s", io_text(w.engine));
	io_close(w.engine);
	close(w.fd);
	free(w.memory);
}

/* restrict_it: 0 or not, in the child. */
static struct report in_a_child(const struct io_options *options, bool registers,
				int (*restrict_it)(void))
{
	struct report report = {.result = -1};
	struct io_world w;
	int pair[2], status;
	pid_t pid;

	io_world_open(&w, &io_way_threads, NULL);
	io_world_fill(&w, 16 * BLOCK);
	assert_int_equal(chmod(w.dir, 0755) | chmod(w.path, 0644), 0);
	assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(w.path, O_RDONLY | O_CLOEXEC);
		char path[64];

		/* Who becomes nobody may not come to the file by its name. */
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (restrict_it())
			_exit(1);
		report_reads(options, path, registers, &report);
		_exit(write(pair[1], &report, sizeof(report)) != sizeof(report));
	}
	assert_int_equal(kt_wait_child(pid, 60000, &status), 0);
	assert_int_equal(status, 0);
	assert_int_equal(read(pair[0], &report, sizeof(report)), sizeof(report));
	close(pair[0]);
	close(pair[1]);
	io_world_close(&w);
	return report;
}

static int forbid_io_uring(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]),
					   .filter = filter};

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void test_threads_where_io_uring_is_forbidden(void **state)
{
	const struct io_options options = {.kind = IO_AUTO};
	struct report report;

	(void)state;
	report = in_a_child(&options, true, forbid_io_uring);
	assert_string_equal(report.text,
			    "threads: io_uring is not permitted here (a container's seccomp "
			    "profile, or the sysctl kernel.io_uring_disabled)");
	assert_int_equal(report.result, 0);
	assert_true(report.is_right);
}

static void test_no_fallback_where_none_is_wanted(void **state)
{
	const struct io_options options = {.kind = IO_URING};
	struct report report;

	(void)state;
	report = in_a_child(&options, true, forbid_io_uring);
	assert_string_equal(report.text,
			    "io_uring is not permitted here (a container's seccomp profile, or "
			    "the sysctl kernel.io_uring_disabled): choose auto or threads");
}

static int lock_little(void)
{
	const struct rlimit limit = {64 << 10, 64 << 10};

	return setrlimit(RLIMIT_MEMLOCK, &limit) || setresgid(NOBODY, NOBODY, NOBODY) ||
	       setresuid(NOBODY, NOBODY, NOBODY);
}

static void test_unregistered_where_little_may_be_locked(void **state)
{
	const struct io_options options = {.kind = IO_URING};
	struct report report;
	const char *why;

	(void)state;
	if (!io_has_uring(&why))
		kt_skip("%s", why);
	if (geteuid() != 0)
		kt_skip("root is needed to become nobody");
	report = in_a_child(&options, true, lock_little);
	assert_string_equal(report.text,
			    "io_uring, memory is not registered: the limit for locked memory is "
			    "too small (RLIMIT_MEMLOCK, 64 KiB)");
	assert_int_equal(report.result, 0);
	assert_true(report.is_right);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a ring that refuses submissions loses nothing", test_a_busy_ring_loses_nothing),
	KT_TEST("a first submission that is refused comes again by itself",
		test_a_first_submission_that_is_refused_comes_again),
	KT_TEST("files that cannot be registered are used as they are",
		test_without_a_table_of_files),
	KT_TEST("a table of files that cannot be changed is not used",
		test_a_table_of_files_that_cannot_be_changed),
	KT_TEST("memory is not registered where the kernel is too old",
		test_a_kernel_without_a_table_of_memory),
	KT_TEST("memory that the kernel refuses is not registered",
		test_memory_that_cannot_be_registered),
	KT_TEST("threads take over where io uring is forbidden, and the text says why",
		test_threads_where_io_uring_is_forbidden),
	KT_TEST("io uring that was asked for is refused with the reason",
		test_no_fallback_where_none_is_wanted),
	KT_TEST("memory is not registered where little may be locked",
		test_unregistered_where_little_may_be_locked),
};

KT_MAIN(tests)
