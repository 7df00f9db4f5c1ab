/*
 * The thread engine: preadv and pwritev on a few threads, where there is no io_uring. Buffered
 * files are put out of the page cache by the thread that read or synced them.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "offload/io_engine.h"
#include "offload/io_pool.h"

struct threads {
	struct io_backend backend;
	struct io_pool *pool;
	struct {
		int fd;
		bool is_buffered;
	} files[IO_FILES_MAX];
};

static int64_t transfer(int fd, const struct io_request *request)
{
	const off_t off = (off_t)io_request_off(request);
	uint32_t n;
	const struct iovec *iov = io_request_iov(request, &n);

	switch (request->op) {
	case IO_READ: return preadv(fd, iov, (int)n, off);
	case IO_WRITE: return pwritev(fd, iov, (int)n, off);
	case IO_SYNC: return fdatasync(fd);
	default: errno = EINVAL; return -1;
	}
}

static void drop_pages(int fd, const struct io_request *request, int64_t n_bytes)
{
	if (request->op == IO_READ)
		posix_fadvise(fd, (off_t)io_request_off(request), n_bytes, POSIX_FADV_DONTNEED);
	else if (request->op == IO_SYNC)
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int64_t work(void *arg, const struct io_request *request)
{
	const struct threads *threads = arg;
	const int fd = threads->files[request->file].fd;
	int64_t rc = transfer(fd, request);

	if (rc < 0)
		return -errno;
	if (threads->files[request->file].is_buffered)
		drop_pages(fd, request, rc);
	return rc;
}

static struct threads *threads_of(struct io_backend *backend)
{
	return (struct threads *)backend;
}

static void threads_close(struct io_backend *backend)
{
	io_pool_free(threads_of(backend)->pool);
	free(backend);
}

static const char *threads_text(const struct io_backend *backend)
{
	(void)backend;
	return "threads";
}

/* No thread works on a file that is just added or removed. */
static void threads_file_set(struct io_backend *backend, int file, int fd, bool is_buffered)
{
	threads_of(backend)->files[file].fd = fd;
	threads_of(backend)->files[file].is_buffered = is_buffered;
}

static void threads_memory_add(struct io_backend *backend, void *base, size_t n_bytes)
{
	(void)backend;
	(void)base;
	(void)n_bytes;
}

static void threads_memory_remove(struct io_backend *backend, void *base)
{
	(void)backend;
	(void)base;
}

static int threads_start(struct io_backend *backend, struct io_request *request)
{
	return io_pool_start(threads_of(backend)->pool, request);
}

static int threads_push(struct io_backend *backend)
{
	(void)backend;
	return 0;
}

static void threads_collect(struct io_backend *backend, uint64_t now_ns, const struct io_sink *sink)
{
	(void)now_ns;
	io_pool_collect(threads_of(backend)->pool, sink);
}

static void threads_cancel(struct io_backend *backend, struct io_request *request)
{
	io_pool_cancel(threads_of(backend)->pool, request);
}

static const struct io_backend_ops ops = {
	.close = threads_close,
	.text = threads_text,
	.file_set = threads_file_set,
	.memory_add = threads_memory_add,
	.memory_remove = threads_memory_remove,
	.start = threads_start,
	.push = threads_push,
	.collect = threads_collect,
	.cancel = threads_cancel,
};

struct io_backend *io_threads_backend(const struct io_options *options, int event_fd,
				      struct errbuf *err)
{
	struct threads *threads = calloc(1, sizeof(*threads));

	if (threads) {
		const struct io_pool_options pool = {.n_threads = options->n_threads,
						     .capacity = options->depth,
						     .event_fd = event_fd,
						     .fn = work,
						     .arg = threads};

		threads->backend.ops = &ops;
		threads->pool = io_pool_new(&pool);
	}
	if (threads && threads->pool)
		return &threads->backend;
	free(threads);
	errbuf_set(err, KV_ENOMEM, "no memory for the threads of the disk tier");
	return NULL;
}
