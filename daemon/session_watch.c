/* What a session says and waits for: counters of its writers, watches for names. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/names.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

/* ---- counts ------------------------------------------------------------------------------- */

uint64_t session_granted_bytes(const struct session *session)
{
	uint64_t bytes = 0;

	for (const struct arena *a = session->arenas; a; a = a->next_in_session)
		bytes += a->n_granted * a->block_bytes;
	return bytes;
}

static uint64_t load(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void session_counts(const struct session *session, struct session_counts *counts)
{
	uint64_t granted = session_granted_bytes(session);

	memset(counts, 0, sizeof(*counts));
	if (!session->segment.base)
		return;
	for (uint32_t w = 0; w < KV_WRITERS_MAX; w++) {
		const struct kv_shm_writer *shm = segment_writer(&session->segment, w);
		uint64_t reserved;

		counts->n_commits += load(&shm->n_commits);
		counts->n_appended_tokens += load(&shm->n_appended_tokens);
		counts->n_copied_bytes += load(&shm->n_copied_bytes);
		counts->n_rollbacks += load(&shm->n_rollbacks);
		counts->n_local_forks += load(&shm->n_local_forks);
		if (!session->writers[w].in_use)
			continue;
		reserved = load(&shm->n_reserved_bytes);
		counts->n_reserved_bytes += reserved < granted ? reserved : granted;
	}
	if (counts->n_reserved_bytes > granted)
		counts->n_reserved_bytes = granted;
}

/* ---- watches ------------------------------------------------------------------------------ */

void session_watch_load(struct session *session, uint64_t id, const char *name, int fd)
{
	struct watch *watches = realloc(session->watches,
					(session->n_watches + 1) * sizeof(watches[0]));

	if (!watches)
		state_die("no memory for a watch");
	session->watches = watches;
	watches[session->n_watches++] = (struct watch){id, fd, state_copy(name, strlen(name) + 1)};
}

int session_watch(struct session *session, const char *name, int fd, struct errbuf *err)
{
	struct core *core = session->core;
	uint64_t id;
	int rc;

	if (session->n_watches >= KV_WATCHES_MAX) {
		close(fd);
		return errbuf_set(err, KV_ELIMIT, "the session has %u watches, the limit",
				  KV_WATCHES_MAX);
	}
	id = core_new_id(core);
	rc = keeper_keep(core->env->keeper, KEPT_WATCH, id, fd);
	if (rc) {
		close(fd);
		return errbuf_errno(err, KV_ELIMIT, -rc, "the keeper cannot hold another watch");
	}
	session_watch_load(session, id, name, fd);
	log_watch(core, session, &session->watches[session->n_watches - 1]);
	return 0;
}

static void fire_watches(struct session *session)
{
	struct core *core = session->core;

	for (uint32_t i = 0; i < session->n_watches;) {
		struct watch *watch = &session->watches[i];

		if (!names_find(core, session->uid, watch->name)) {
			i++;
			continue;
		}
		attach_watch_fire(watch->fd);
		log_watch_over(core, watch->id);
		KV_FAULT_POINT();
		state_drop_kept(core, KEPT_WATCH, watch->id);
		close(watch->fd);
		free(watch->name);
		*watch = session->watches[--session->n_watches];
	}
}

void sessions_fire_watches(struct core *core)
{
	for (size_t i = 0; i < core->sessions.n; i++)
		fire_watches(core->sessions.items[i].thing);
}
