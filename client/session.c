/*
 * Sessions: opened, checked, closed.
 *
 * kvc_open attaches, maps the control segment and checks its head, for what is built on it reads
 * without looking twice. A child of the process that opened it finds a zero where the session says
 * that it is its own (the kernel wipes that page at fork), and every call stops there. kvc_close
 * frees all handles, says goodbye, and lets the daemon clean up: it needs no answer.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/arenas.h"
#include "client/error.h"
#include "client/handles.h"
#include "client/layout.h"
#include "client/link.h"
#include "client/open.h"
#include "client/options.h"
#include "client/own_page.h"
#include "client/rpc.h"
#include "proto/commit.h"

/* nanomsg sends again when the front comes back, and we do when the core has died or all is silent
 * for too long: its own timer is the last resort. It is long, because nanomsg 1.1.5 forgets the
 * memory of all replies to one request but the last. */
#define RESEND_MS 10000u

/* ---- whose session it is -------------------------------------------------------------------- */

int session_forked(void)
{
	return kvc_fail(KV_EFORKED,
			"this handle was inherited by fork() and belongs to the parent process");
}

/* ---- the control segment -------------------------------------------------------------------- */

/* [off, off + n * size) lies in the segment. */
static bool fits(const struct kv_shm_head *head, uint64_t off, uint64_t n, uint64_t size)
{
	return off % 64 == 0 && off >= head->head_bytes && off <= head->segment_bytes &&
	       n * size <= head->segment_bytes - off;
}

static int check_head(const struct kv_shm_head *head, uint64_t n_bytes, uint64_t session_id)
{
	if (head->magic != KV_SHM_MAGIC)
		return kvc_fail(KV_EPROTO, "the daemon's control segment is none");
	if (head->version != KV_SHM_VERSION || head->head_bytes != sizeof(*head) ||
	    head->place_bytes != sizeof(struct kv_shm_place))
		return kvc_fail(
			KV_EVERSION,
			"the daemon's control segment has version %u, this library knows %u",
			head->version, KV_SHM_VERSION);
	if (head->segment_bytes != n_bytes || head->session_id != session_id ||
	    head->n_writers > KV_WRITERS_MAX || head->n_places > KV_PLACES_MAX ||
	    head->n_arenas < KV_ARENAS_MAX ||
	    !fits(head, head->writers_off, head->n_writers, sizeof(struct kv_shm_writer)) ||
	    !fits(head, head->arenas_off, head->n_arenas, sizeof(uint64_t)) ||
	    !fits(head, head->places_off, head->n_places, sizeof(struct kv_shm_place)) ||
	    !fits(head, head->tables_off, 1, sizeof(struct kv_shm_entry)))
		return kvc_fail(KV_EPROTO,
				"the head of the daemon's control segment makes no sense");
	return 0;
}

static int map_segment(struct kvc_session *session, int fd, uint64_t n_bytes)
{
	struct stat st;
	void *base;

	if (fd < 0 || n_bytes < sizeof(struct kv_shm_head) || n_bytes > SIZE_MAX / 2 ||
	    fstat(fd, &st) < 0 || (uint64_t)st.st_size != n_bytes)
		return kvc_fail(KV_EPROTO, "the daemon's control segment does not have %llu bytes",
				(unsigned long long)n_bytes);
	base = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (base == MAP_FAILED)
		return errbuf_errno(
			kvc_err(), KV_ENOMEM, errno,
			"cannot map the control segment of %llu bytes (limit: ulimit -v)",
			(unsigned long long)n_bytes);
	session->segment = base;
	session->segment_bytes = n_bytes;
	madvise(base, n_bytes, MADV_DONTFORK);
	madvise(base, n_bytes, MADV_DONTDUMP);
	return check_head(base, n_bytes, session->link->session_id);
}

/* ---- open and close ------------------------------------------------------------------------- */

static void session_free(struct kvc_session *session)
{
	if (session->link) {
		session_layouts_fini(session);
		link_free(session->link);
	}
	session_arenas_fini(session);
	if (session->segment)
		munmap(session->segment, session->segment_bytes);
	own_page_free(session->own);
	free(session);
}

static int attach_and_map(struct kvc_session *session)
{
	uint64_t segment_bytes;
	int fd;
	int rc;

	if (link_attach(session->link, &fd, &segment_bytes, kvc_err()))
		return -1;
	rc = map_segment(session, fd, segment_bytes);
	if (fd >= 0)
		close(fd);
	return rc;
}

struct kvc_session *session_open(const char *runtime_dir, uint32_t deadline_ms, uint32_t resend_ms)
{
	struct kvc_session *session = calloc(1, sizeof(*session));

	if (!session) {
		kvc_fail(KV_ENOMEM, "no memory for a session");
		return NULL;
	}
	session->own = own_page_new();
	if (!session->own)
		goto fail;
	session->link = link_new(runtime_dir, deadline_ms, resend_ms, kvc_err());
	if (!session->link || link_open_wire(session->link, kvc_err()) || attach_and_map(session))
		goto fail;
	return session;
fail:
	session_free(session);
	return NULL;
}

kvc_session *kvc_open(const struct kvc_session_options *given)
{
	struct kvc_session_options options;

	if (options_take(given, "kvc_session_options", sizeof(options), &options, sizeof(options)))
		return NULL;
	if (options.deadline_ms > KV_DEADLINE_MS_MAX) {
		kvc_fail(KV_ERANGE, "deadline_ms is %u, the limit is %u (a day)",
			 options.deadline_ms, KV_DEADLINE_MS_MAX);
		return NULL;
	}
	if (options.deadline_ms == 0)
		options.deadline_ms = KV_DEADLINE_MS_DEFAULT;
	return session_open(options.runtime_dir, options.deadline_ms, RESEND_MS);
}

void kvc_close(kvc_session *session)
{
	if (!session || session_check(session))
		return;
	handles_free_all(session);
	link_bye(session->link);
	session_free(session);
}

int kvc_ping(kvc_session *session)
{
	Kv__Wire__Request request;
	Kv__Wire__Noop command = KV__WIRE__NOOP__INIT;

	if (session_check(session))
		return -1;
	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_NOOP;
	request.noop = &command;
	return rpc_do(session, &request);
}
