/*
 * The io_uring engine: one ring without flags (no polling thread: it would burn a core), a table of
 * registered files, registered memory.
 *
 * Nothing is lost when a queue is full: a request that finds no entry stays where it waits, and
 * no more is in the kernel than the completion queue holds: at most `depth` requests and as many
 * orders that go beside them (cancel one, put pages out of the page cache). Those have no request;
 * what they report is only counted.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/io_engine.h"
#include "offload/io_uring_memory.h"

#define TRANSFER_BYTES_MAX ((size_t)1 << 30) /* of one attempt; the rest follows */

struct uring {
	struct io_backend backend;
	struct io_uring ring;
	uint32_t depth;
	uint32_t n_requests, n_orders; /* in the kernel */
	bool has_files;                /* their numbers are those of the ring's table */
	struct {
		int fd;
		bool is_buffered;
	} files[IO_FILES_MAX];
	struct uring_memory memory;
};

static struct uring *uring_of(struct io_backend *backend)
{
	return (struct uring *)backend;
}

static const char *uring_text(const struct io_backend *backend)
{
	return ((const struct uring *)backend)->memory.text;
}

/* ---- into the ring -------------------------------------------------------------------------- */

static int uring_push(struct io_backend *backend)
{
	struct uring *u = uring_of(backend);

	/* One that is refused at once holds up those behind it: again, until none is left. */
	while (io_uring_sq_ready(&u->ring) > 0) {
		int rc = io_uring_submit(&u->ring);

		if (rc < 0 && rc != -EINTR)
			return rc;
		if (rc == 0)
			return -EAGAIN;
	}
	return 0;
}

/* NULL: the queue is full, also after a push. */
static struct io_uring_sqe *entry(struct uring *u)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);

	if (sqe || uring_push(&u->backend))
		return sqe;
	return io_uring_get_sqe(&u->ring);
}

static void set_file(struct uring *u, struct io_uring_sqe *sqe, int file)
{
	if (u->has_files) {
		sqe->fd = file;
		sqe->flags |= IOSQE_FIXED_FILE;
	} else {
		sqe->fd = u->files[file].fd;
	}
}

static void prepare_one(struct uring *u, struct io_uring_sqe *sqe, const struct io_request *request)
{
	uint32_t n;
	const struct iovec *iov = io_request_iov(request, &n);
	const uint64_t off = io_request_off(request);
	const unsigned len = (unsigned)(iov->iov_len < TRANSFER_BYTES_MAX ? iov->iov_len :
									    TRANSFER_BYTES_MAX);
	const int slot = uring_memory_find(&u->memory, iov);

	if (slot < 0 && request->op == IO_READ)
		io_uring_prep_read(sqe, -1, iov->iov_base, len, off);
	else if (slot < 0)
		io_uring_prep_write(sqe, -1, iov->iov_base, len, off);
	else if (request->op == IO_READ)
		io_uring_prep_read_fixed(sqe, -1, iov->iov_base, len, off, slot);
	else
		io_uring_prep_write_fixed(sqe, -1, iov->iov_base, len, off, slot);
}

static void prepare(struct uring *u, struct io_uring_sqe *sqe, const struct io_request *request)
{
	uint32_t n;
	const struct iovec *iov = io_request_iov(request, &n);

	if (request->op == IO_SYNC)
		io_uring_prep_fsync(sqe, -1, IORING_FSYNC_DATASYNC);
	else if (n == 1)
		prepare_one(u, sqe, request);
	else if (request->op == IO_READ)
		io_uring_prep_readv(sqe, -1, iov, n, io_request_off(request));
	else
		io_uring_prep_writev(sqe, -1, iov, n, io_request_off(request));
}

static int uring_start(struct io_backend *backend, struct io_request *request)
{
	struct uring *u = uring_of(backend);
	struct io_uring_sqe *sqe = u->n_requests < u->depth ? entry(u) : NULL;

	if (!sqe)
		return -EAGAIN;
	prepare(u, sqe, request);
	set_file(u, sqe, request->file);
	io_uring_sqe_set_data(sqe, request);
	u->n_requests++;
	return 0;
}

/* ---- orders beside the requests ------------------------------------------------------------- */

/* NULL: no room; none of them is needed. */
static struct io_uring_sqe *order(struct uring *u)
{
	struct io_uring_sqe *sqe = u->n_orders < u->depth ? entry(u) : NULL;

	if (sqe)
		u->n_orders++;
	return sqe;
}

static void uring_cancel(struct io_backend *backend, struct io_request *request)
{
	struct io_uring_sqe *sqe = order(uring_of(backend));

	if (!sqe)
		return;
	io_uring_prep_cancel64(sqe, (uintptr_t)request, 0);
	io_uring_sqe_set_data(sqe, NULL);
}

static void drop_pages(struct uring *u, const struct io_request *request, int64_t n_bytes)
{
	const bool all = request->op == IO_SYNC;
	struct io_uring_sqe *sqe = all || request->op == IO_READ ? order(u) : NULL;

	if (!sqe)
		return;
	io_uring_prep_fadvise(sqe, -1, all ? 0 : io_request_off(request), all ? 0 : (off_t)n_bytes,
			      POSIX_FADV_DONTNEED);
	set_file(u, sqe, request->file);
	io_uring_sqe_set_data(sqe, NULL);
}

/* ---- out of the ring ------------------------------------------------------------------------ */

static void take(struct uring *u, struct io_request *request, int64_t result,
		 const struct io_sink *sink)
{
	if (!request) {
		u->n_orders--;
		return;
	}
	u->n_requests--;
	if (result >= 0 && u->files[request->file].is_buffered)
		drop_pages(u, request, result);
	sink->ended(sink->arg, request, result);
}

static void uring_collect(struct io_backend *backend, uint64_t now_ns, const struct io_sink *sink)
{
	struct uring *u = uring_of(backend);
	struct io_uring_cqe *cqe;

	(void)now_ns;
	while (io_uring_peek_cqe(&u->ring, &cqe) == 0) {
		struct io_request *request = io_uring_cqe_get_data(cqe);
		const int64_t result = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		take(u, request, result, sink);
	}
}

/* ---- files, memory -------------------------------------------------------------------------- */

static void uring_file_set(struct io_backend *backend, int file, int fd, bool is_buffered)
{
	struct uring *u = uring_of(backend);

	u->files[file].fd = fd;
	u->files[file].is_buffered = is_buffered;
	/* An order may still name the file by its number: it fails then, or drops pages for
	 * nothing. A table that cannot be changed is not used any more. */
	if (u->has_files && io_uring_register_files_update(&u->ring, (unsigned)file, &fd, 1) < 0)
		u->has_files = false;
}

static void uring_memory_add_(struct io_backend *backend, void *base, size_t n_bytes)
{
	uring_memory_add(&uring_of(backend)->memory, base, n_bytes);
}

static void uring_memory_remove_(struct io_backend *backend, void *base)
{
	uring_memory_remove(&uring_of(backend)->memory, base);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void uring_close(struct io_backend *backend)
{
	io_uring_queue_exit(&uring_of(backend)->ring);
	free(backend);
}

static const struct io_backend_ops ops = {
	.close = uring_close,
	.text = uring_text,
	.file_set = uring_file_set,
	.memory_add = uring_memory_add_,
	.memory_remove = uring_memory_remove_,
	.start = uring_start,
	.push = uring_push,
	.collect = uring_collect,
	.cancel = uring_cancel,
};

static int refuse(struct errbuf *err, int error)
{
	switch (error) {
	case EPERM:
	case EACCES:
		return errbuf_set(err, KV_EUNSUPPORTED,
				  "io_uring is not permitted here (a container's seccomp profile, "
				  "or the sysctl kernel.io_uring_disabled)");
	case ENOSYS: return errbuf_set(err, KV_EUNSUPPORTED, "this kernel has no io_uring");
	case ENOMEM:
		return errbuf_set(err, KV_ENOMEM,
				  "no memory for io_uring (or RLIMIT_MEMLOCK is too small)");
	default: return errbuf_errno(err, KV_EUNSUPPORTED, error, "io_uring cannot be set up");
	}
}

static void make_files(struct uring *u)
{
	int none[IO_FILES_MAX];

	for (size_t i = 0; i < IO_FILES_MAX; i++)
		none[i] = u->files[i].fd = -1;
	u->has_files = io_uring_register_files(&u->ring, none, IO_FILES_MAX) == 0;
}

struct io_backend *io_uring_backend(const struct io_options *options, int event_fd,
				    struct errbuf *err)
{
	struct uring *u = calloc(1, sizeof(*u));
	int rc;

	if (!u) {
		errbuf_set(err, KV_ENOMEM, "no memory for io_uring");
		return NULL;
	}
	u->backend.ops = &ops;
	u->depth = options->depth;
	rc = io_uring_queue_init(options->depth, &u->ring, 0);
	if (rc == 0) {
		assert(*u->ring.cq.kring_entries >= 2 * u->depth);
		rc = io_uring_register_eventfd(&u->ring, event_fd);
		if (rc)
			io_uring_queue_exit(&u->ring);
	}
	if (rc) {
		refuse(err, -rc);
		free(u);
		return NULL;
	}
	make_files(u);
	uring_memory_init(&u->memory, &u->ring);
	return &u->backend;
}
