/*
 * The state's birth, its ticks, its commits and its end (daemon/state.h, daemon/core.h).
 */
#include "daemon/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/arena_store.h"
#include "daemon/command.h"
#include "daemon/disk.h"
#include "daemon/events.h"
#include "daemon/jobs.h"
#include "daemon/leave.h"
#include "daemon/objects.h"
#include "daemon/overdraft.h"
#include "daemon/session.h"
#include "daemon/state_log.h"

#define TICK_NS LOOP_NS_PER_S
#define SLICE_BYTES (UINT64_C(8) << 20)

uint64_t unix_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * LOOP_NS_PER_S + (uint64_t)now.tv_nsec;
}

void state_die(const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	log_error("core", "%s; ending, to be started again from the catalogue", text);
	abort();
}

void *state_alloc(size_t n, size_t size)
{
	void *memory = calloc(n ? n : 1, size);

	if (!memory)
		state_die("no memory for %zu x %zu bytes of books", n, size);
	return memory;
}

void *state_copy(const void *from, size_t n_bytes)
{
	void *copy = malloc(n_bytes ? n_bytes : 1);

	if (!copy)
		state_die("no memory for %zu bytes of books", n_bytes);
	if (n_bytes)
		memcpy(copy, from, n_bytes);
	return copy;
}

void state_drop_kept(struct core *core, enum kept_kind kind, uint64_t id)
{
	if (core->n_kept_drops == core->kept_drops_cap) {
		uint32_t cap = core->kept_drops_cap ? core->kept_drops_cap * 2 : 16;
		struct kept_drop *drops = realloc(core->kept_drops, cap * sizeof(drops[0]));

		if (!drops)
			state_die("no memory for what the keeper holds");
		core->kept_drops = drops;
		core->kept_drops_cap = cap;
	}
	core->kept_drops[core->n_kept_drops++] = (struct kept_drop){kind, id};
}

/* ---- commits ------------------------------------------------------------------------------ */

static void give_tables_back(struct core *core)
{
	while (core->tables_back) {
		struct table_return *back = core->tables_back;
		struct session *session = session_find(core, back->session_id);

		core->tables_back = back->next;
		if (session && session->segment.base)
			segment_table_free(&session->segment, &back->seg);
		free(back);
	}
}

/* The log as one record a thing, in a memfd of its own that replaces the old at the keeper. */
static void rewrite(struct core *core)
{
	struct catalogue old = core->catalogue;
	struct errbuf err;
	int rc = -1;

	if (catalogue_make(&core->catalogue, &err)) {
		core->catalogue = old;
		goto out;
	}
	state_dump(core, true);
	if (catalogue_commit(&core->catalogue) == 0)
		rc = keeper_keep(core->env->keeper, KEPT_CATALOGUE, 0, core->catalogue.fd);
	KV_FAULT_POINT();
	if (rc == 0) {
		catalogue_fini(&old);
	} else {
		catalogue_fini(&core->catalogue);
		core->catalogue = old;
	}
out:
	core->catalogue.rewritten_end_off = core->catalogue.end_off;
	if (rc)
		log_warn("catalogue", "cannot be written anew; it goes on growing");
}

static void commit(struct core *core)
{
	KV_FAULT_POINT();
	if (catalogue_commit(&core->catalogue))
		state_die("the catalogue cannot take a change");
	KV_FAULT_POINT();
	for (uint32_t i = 0; i < core->n_kept_drops; i++)
		keeper_drop(core->env->keeper, core->kept_drops[i].kind, core->kept_drops[i].id);
	core->n_kept_drops = 0;
}

void state_make_true(struct core *core)
{
	commit(core);
}

void state_settle(struct core *core)
{
	give_tables_back(core);
	events_flush(core);
	if (core->names_changed) {
		sessions_fire_watches(core);
		loop_task_add(core->env->loop, &core->work_task);
	}
	if (core->dirty && arenas_scrub(core, SCRUB_INLINE_BYTES))
		loop_task_add(core->env->loop, &core->work_task);
	if (core->sessions_emptied)
		loop_task_add(core->env->loop, &core->work_task);
	commit(core);
	if (catalogue_is_stale(&core->catalogue) && core->n_tentative == 0)
		rewrite(core);
}

void state_commit(struct core *core)
{
	state_make_true(core);
	state_settle(core);
}

/* ---- tasks -------------------------------------------------------------------------------- */

static bool work(void *arg)
{
	struct core *core = arg;
	bool more = commands_retry(core, false);

	more |= arenas_scrub(core, SLICE_BYTES);
	more |= jobs_step(core);
	more |= leave_step(core);
	more |= sessions_end_on(core, false);
	sessions_forget_emptied(core);
	commit(core);
	return more;
}

static void on_retry(void *arg)
{
	struct core *core = arg;

	if (commands_retry(core, true))
		loop_task_add(core->env->loop, &core->work_task);
}

static void on_tick(void *arg)
{
	struct core *core = arg;

	arenas_cool_idle(core);
	locker_tick(core);
	overdraft_check(core);
	disk_retry(core);
	/* an end has its limit, whether the disk answers or not */
	if (sessions_end_on(core, true) || core->leave)
		loop_task_add(core->env->loop, &core->work_task);
	if (loop_timer_in(core->env->loop, &core->tick_timer, TICK_NS))
		log_error("core", "no memory for a timer");
}

/* ---- birth and end ------------------------------------------------------------------------ */

static const struct kept *kept_catalogue(const struct core_env *env)
{
	for (size_t i = 0; i < env->n_kept; i++)
		if (env->kept[i].kind == KEPT_CATALOGUE)
			return &env->kept[i];
	return NULL;
}

static int begin_empty(struct core *core, struct errbuf *err)
{
	int rc;

	for (size_t i = 0; i < core->env->n_kept; i++) {
		const struct kept *kept = &core->env->kept[i];

		keeper_drop(core->env->keeper, kept->kind, kept->id);
		if (kept->fd >= 0)
			close(kept->fd);
	}
	/* Ids of a life whose books are lost are not given out again soon: they begin at the time. */
	core->next_id = unix_now_ns() / LOOP_NS_PER_S % (1 << 30) * 64 + 1;
	if (core->env->n_kept == 0)
		core->next_id = 1;
	if (catalogue_make(&core->catalogue, err))
		return -1;
	state_dump(core, false);
	commit(core);
	rc = keeper_keep(core->env->keeper, KEPT_CATALOGUE, 0, core->catalogue.fd);
	if (rc)
		return errbuf_errno(err, KV_EINTERNAL, -rc,
				    "the keeper did not take the catalogue");
	return 0;
}

static void init(struct core *core, struct core_env *env)
{
	const struct settings *settings = env->settings;

	core->env = env;
	core->catalogue.fd = -1;
	core->next_id = 1;
	core->memory.want_huge = settings->huge == SETTINGS_TRY;
	core->memory.want_mlock = settings->mlock == SETTINGS_TRY;
	snprintf(core->memory.huge_text, sizeof(core->memory.huge_text), "%s",
		 core->memory.want_huge ? "try: no arena yet" : "no");
	core->locker.fd = -1;
	pool_init(&core->pool, settings->pool_bytes, settings->user_bytes_max);
	core->work_task.fn = work;
	core->work_task.arg = core;
	core->retry_timer.fn = on_retry;
	core->retry_timer.arg = core;
	core->tick_timer.fn = on_tick;
	core->tick_timer.arg = core;
}

struct core *core_new(struct core_env *env, struct errbuf *err)
{
	struct core *core = calloc(1, sizeof(*core));
	struct errbuf fault = {0};
	const struct kept *kept = kept_catalogue(env);
	int rc;

	if (!core) {
		errbuf_set(err, KV_ENOMEM, "no memory for the core");
		return NULL;
	}
	init(core, env);
	rc = kept ? state_load(core, &fault) : -1;
	if (!kept && env->n_kept > 0)
		log_error("catalogue",
			  "%zu descriptors came back, but none of a catalogue; starting empty",
			  env->n_kept);
	if (rc && kept) {
		/* Never half a state: what the books do not show for sure is not there. */
		log_error("catalogue", "%s; starting empty", fault.text);
		core_free(core);
		core = state_alloc(1, sizeof(*core));
		init(core, env);
	}
	if (rc && begin_empty(core, err)) {
		core_free(core);
		return NULL;
	}
	core->disk = disk_new(core);
	on_tick(core);
	state_commit(core);
	if (rc == 0)
		settle_begin(core);
	return core;
}

static void free_lists(struct core *core)
{
	for (size_t i = 0; i < core->sessions.n; i++)
		session_free(core->sessions.items[i].thing);
	for (size_t i = 0; i < core->objects.n; i++)
		object_free(core->objects.items[i].thing);
	for (size_t i = 0; i < core->states.n; i++)
		state_free(core->states.items[i].thing);
	for (size_t i = 0; i < core->arenas.n; i++)
		arena_free(core->arenas.items[i].thing);
	for (size_t i = 0; i < core->layouts.n; i++) {
		struct layout_entry *entry = core->layouts.items[i].thing;

		kv_layout_free(entry->layout);
		free(entry->uids);
		free(entry);
	}
	idlist_fini(&core->sessions);
	idlist_fini(&core->objects);
	idlist_fini(&core->states);
	idlist_fini(&core->arenas);
	idlist_fini(&core->layouts);
}

void core_free(struct core *core)
{
	if (!core)
		return;
	loop_timer_cancel(core->env->loop, &core->retry_timer);
	loop_timer_cancel(core->env->loop, &core->tick_timer);
	settle_fini(core);
	locker_fini(core);
	commands_free_all(core);
	jobs_free_all(core);
	leave_free(core);
	disk_free(core->disk);
	loop_task_remove(core->env->loop, &core->work_task); /* which all these may ask for */
	while (core->tables_back) {
		struct table_return *next = core->tables_back->next;

		free(core->tables_back);
		core->tables_back = next;
	}
	free(core->kept_drops);
	free_lists(core);
	pool_fini(&core->pool);
	catalogue_fini(&core->catalogue);
	free(core);
}
