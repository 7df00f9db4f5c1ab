/* Opening and closing an I/O engine, its files and memory; see io.h. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "offload/io_common.h"
#include "offload/io_faults.h"

#define DEPTH 16u
#define QUEUE 64u
#define THREADS 4u

/* ---- files, memory, gauges ------------------------------------------------------------------ */

int io_file_add(struct io_engine *engine, int fd)
{
	for (int i = 0; i < (int)IO_FILES_MAX; i++) {
		struct io_file *file = &engine->files[i];

		if (file->fd >= 0)
			continue;
		*file = (struct io_file){fd, io_file_align(fd)};
		engine->backend->ops->file_set(engine->backend, i, fd, file->align == 1);
		return i;
	}
	return -EMFILE;
}

void io_file_remove(struct io_engine *engine, int file)
{
	engine->files[file].fd = -1;
	engine->backend->ops->file_set(engine->backend, file, -1, false);
}

void io_memory_add(struct io_engine *engine, void *base, size_t n_bytes)
{
	engine->backend->ops->memory_add(engine->backend, base, n_bytes);
}

void io_memory_remove(struct io_engine *engine, void *base)
{
	engine->backend->ops->memory_remove(engine->backend, base);
}

void io_gauges(const struct io_engine *engine, struct io_gauges *gauges)
{
	*gauges = engine->counts;
	gauges->n_waiting = engine->lists[IO_WAITING].n;
	gauges->n_in_flight = io_n_in_flight(engine);
}

int io_fd(const struct io_engine *engine)
{
	return engine->event_fd;
}

const char *io_text(const struct io_engine *engine)
{
	return engine->text[0] ? engine->text : engine->backend->ops->text(engine->backend);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int check(struct io_options *options, struct errbuf *err)
{
	options->depth = options->depth ? options->depth : DEPTH;
	options->queue = options->queue ? options->queue : QUEUE;
	options->n_threads = options->n_threads ? options->n_threads : THREADS;
	if (options->depth > IO_DEPTH_MAX)
		return errbuf_set(err, KV_ERANGE, "%u I/O requests at a time, the limit is %u",
				  options->depth, IO_DEPTH_MAX);
	if (options->n_threads > IO_THREADS_MAX)
		return errbuf_set(err, KV_ERANGE, "%u I/O threads, the limit is %u",
				  options->n_threads, IO_THREADS_MAX);
	return 0;
}

static struct io_backend *open_backend(struct io_engine *engine, struct errbuf *err)
{
	const struct io_options *options = &engine->options;
	struct io_backend *backend = NULL;
	struct errbuf why = {0};

	if (options->kind != IO_THREADS)
		backend = io_uring_backend(options, engine->event_fd, &why);
	if (!backend && options->kind == IO_URING) {
		errbuf_set(err, why.status, "%s: choose auto or threads", why.text);
		return NULL;
	}
	if (!backend) {
		if (options->kind != IO_THREADS)
			snprintf(engine->text, sizeof(engine->text), "threads: %s", why.text);
		backend = io_threads_backend(options, engine->event_fd, err);
	}
	return backend ? IO_FAULTS_BEFORE(backend, options, engine->event_fd, err) : NULL;
}

struct io_engine *io_open(const struct io_options *options, struct errbuf *err)
{
	struct io_engine *engine = calloc(1, sizeof(*engine));

	if (!engine) {
		errbuf_set(err, KV_ENOMEM, "no memory for an I/O engine");
		return NULL;
	}
	engine->options = *options;
	engine->deadline_ns = engine->retry_ns = UINT64_MAX;
	for (size_t i = 0; i < IO_FILES_MAX; i++)
		engine->files[i].fd = -1;
	engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (engine->event_fd < 0)
		errbuf_errno(err, KV_ELIMIT, errno, "no eventfd for an I/O engine");
	else if (check(&engine->options, err) == 0)
		engine->backend = open_backend(engine, err);
	if (engine->backend)
		return engine;
	if (engine->event_fd >= 0)
		close(engine->event_fd);
	free(engine);
	return NULL;
}

void io_let_go(struct io_engine *engine)
{
	if (engine->backend->ops->let_go)
		engine->backend->ops->let_go(engine->backend);
}

static void wait_for_event(const struct io_engine *engine)
{
	const uint64_t due_ns = io_next_ns(engine), now_ns = io_clock_ns();
	struct pollfd event = {.fd = engine->event_fd, .events = POLLIN};
	const uint64_t wait_ms = due_ns <= now_ns ? 0 : (due_ns - now_ns) / 1000000 + 1;

	poll(&event, 1, due_ns == UINT64_MAX ? -1 : wait_ms > 1000 ? 1000 : (int)wait_ms);
}

void io_close(struct io_engine *engine)
{
	if (!engine)
		return;
	engine->is_closing = true;
	while (engine->lists[IO_WAITING].n)
		io_end_early(engine, engine->lists[IO_WAITING].first, -ECANCELED);
	io_let_go(engine);
	while (io_n_in_flight(engine) || engine->lists[IO_WAITING].n ||
	       io_has_calls_to_make(engine)) {
		wait_for_event(engine);
		io_reap(engine, io_clock_ns());
	}
	io_pool_free(engine->calls);
	engine->backend->ops->close(engine->backend);
	close(engine->event_fd);
	free(engine);
}
