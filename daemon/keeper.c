#include "daemon/keeper.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/child.h"
#include "daemon/hostmem.h"
#include "daemon/keeper_wire.h"
#include "daemon/kept.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/packet.h"
#include "daemon/runtime_dir.h"
#include "proto/shm.h"

#define PAIR_BYTES (4 * 1024 * 1024)
#define FRONT_DELAY_MS 50   /* before a front that follows one which died at once */
#define FRONT_QUIET_MS 1000 /* one that lived longer did not die at once */
#define FRONT_LOG_MS 10000
#define FRONT_TRIES_MAX 20           /* until the first one is ready */
#define CRASH_DELAY_MS UINT64_C(100) /* doubled for each crash in the window */

struct child {
	const char *name;
	pid_t pid;   /* 0: none runs */
	int pair_fd; /* our end of the pair with it; -1: none */
	struct loop_io io;
	struct loop_timer start; /* when the next one is forked */
	uint64_t life;
	uint64_t born_ns;
	bool ready;      /* this life */
	bool ready_once; /* an earlier or this life */
};

/* The keeper's states; the only moves: STARTING -> SERVING -> STOPPING, STARTING -> STOPPING. */
enum keeper_state { KEEPER_STARTING, KEEPER_SERVING, KEEPER_STOPPING };

struct keeper {
	const struct keeper_options *options;
	struct loop *loop;
	struct runtime_dir dir;
	int listen_fd;
	int core_front[2]; /* the pair: core's end, front's end */
	struct kept_table kept;
	uint64_t first_life; /* of the core */
	struct child core;
	struct child front;
	enum keeper_state state;
	int exit_status;
	int signal_fd;
	struct loop_io signal_io;
	struct loop_timer stop_limit;
	uint64_t crashes_ns[KEEPER_CRASHES_MAX]; /* the last deaths of the core, a ring */
	unsigned n_crashes;
	uint64_t front_logged_ns;
	unsigned n_front_deaths; /* since that line */
	int ready_fd;
	sigset_t old_mask;
};

static void start_core(void *arg);
static void start_front(void *arg);

/* ---- stopping ---------------------------------------------------------------------------- */

/* The core first, so that its last replies still find a front; then the front. */
static void stop_next(struct keeper *keeper)
{
	struct child *child = keeper->core.pid ? &keeper->core : &keeper->front;

	if (child->pid == 0) {
		loop_stop(keeper->loop, keeper->exit_status);
		return;
	}
	kill(child->pid, SIGTERM);
	loop_timer_in(keeper->loop, &keeper->stop_limit, KEEPER_STOP_MS * LOOP_NS_PER_MS);
}

static void on_stop_limit(void *arg)
{
	struct keeper *keeper = arg;
	struct child *child = keeper->core.pid ? &keeper->core : &keeper->front;

	log_warn("keeper", "%s (pid %d) does not end within %u ms: killed", child->name, child->pid,
		 KEEPER_STOP_MS);
	kill(child->pid, SIGKILL);
}

static void stop(struct keeper *keeper, int exit_status)
{
	if (keeper->state == KEEPER_STOPPING)
		return;
	keeper->state = KEEPER_STOPPING;
	keeper->exit_status = exit_status;
	notify_stopping();
	loop_timer_cancel(keeper->loop, &keeper->core.start);
	loop_timer_cancel(keeper->loop, &keeper->front.start);
	stop_next(keeper);
}

/* ---- what the children say --------------------------------------------------------------- */

static void serve(struct keeper *keeper)
{
	if (keeper->state != KEEPER_STARTING || !keeper->core.ready || !keeper->front.ready)
		return;
	keeper->state = KEEPER_SERVING;
	log_info("keeper", "serving in %s", keeper->dir.paths.dir);
	notify_ready();
	if (keeper->ready_fd >= 0) {
		if (write(keeper->ready_fd, "\n", 1) != 1)
			log_warn("keeper", "nobody reads the descriptor of --ready-fd");
		close(keeper->ready_fd);
		keeper->ready_fd = -1;
	}
}

static void answer(const struct child *child, int rc)
{
	const struct keeper_answer reply = {.rc = rc};

	packet_send(child->pair_fd, &reply, sizeof(reply), NULL, 0);
}

static int keep(struct keeper *keeper, const struct keeper_message *message, int fd)
{
	if (fd < 0)
		return -EINVAL;
	if (message->kind == 0 || message->kind >= KEPT_KINDS) {
		close(fd);
		return -EINVAL;
	}
	return kept_put(&keeper->kept, (enum kept_kind)message->kind, message->id, fd);
}

/* Owns fd. Only the core keeps and drops; the front may only say that it is ready. */
static void take_message(struct keeper *keeper, struct child *child, struct keeper_message *message,
			 int fd)
{
	message->text[sizeof(message->text) - 1] = '\0';
	if (message->verb == KEEPER_KEEP && child == &keeper->core) {
		answer(child, keep(keeper, message, fd));
		return;
	}
	if (fd >= 0)
		close(fd);
	if (message->verb == KEEPER_READY) {
		child->ready = true;
		child->ready_once = true;
		serve(keeper);
	} else if (message->verb == KEEPER_DROP && child == &keeper->core) {
		if (message->kind > 0 && message->kind < KEPT_KINDS)
			kept_drop(&keeper->kept, (enum kept_kind)message->kind, message->id);
		answer(child, 0);
	} else if (message->verb == KEEPER_STATUS && child == &keeper->core) {
		notify_status(message->text);
		if (message->extend_ms > 0)
			notify_extend(message->extend_ms);
		if (message->extend_ms > 0 && keeper->state == KEEPER_STOPPING)
			loop_timer_in(keeper->loop, &keeper->stop_limit,
				      message->extend_ms * LOOP_NS_PER_MS);
	}
}

static void read_child(struct keeper *keeper, struct child *child)
{
	struct keeper_message message;
	size_t n_fds;
	ssize_t n;
	int fd;

	for (;;) {
		n_fds = 1;
		fd = -1;
		n = packet_recv(child->pair_fd, &message, sizeof(message), &fd, &n_fds);
		if (n == -EMSGSIZE && child == &keeper->core)
			answer(child, -EMFILE); /* no room for the descriptor beside it */
		else if (n == sizeof(message))
			take_message(keeper, child, &message, n_fds > 0 ? fd : -1);
		else if (n > 0 && n_fds > 0)
			close(fd);
		if (n == 0) /* it has closed its end; waitpid() says more */
			loop_io_remove(keeper->loop, &child->io);
		if (n <= 0 && n != -EMSGSIZE)
			return;
	}
}

static void on_core_message(void *arg, uint32_t events)
{
	struct keeper *keeper = arg;

	(void)events;
	read_child(keeper, &keeper->core);
}

static void on_front_message(void *arg, uint32_t events)
{
	struct keeper *keeper = arg;

	(void)events;
	read_child(keeper, &keeper->front);
}

/* ---- starting ---------------------------------------------------------------------------- */

/*
 * Forks a child with a fresh pair. Returns 0 in the child (with *pair_fd its end), 1 in the
 * keeper, -errno if there is none.
 */
static int fork_child(struct keeper *keeper, struct child *child, const sigset_t *mask,
		      int *keep_fds, size_t n_keep_fds, int *pair_fd)
{
	int fds[2];
	pid_t pid;
	int rc;

	rc = packet_pair(fds, (int)sizeof(struct keeper_message) * 64);
	if (rc != 0)
		return rc;
	keep_fds[n_keep_fds++] = fds[1];
	child->life++;
	pid = child_fork(child->name, mask, keep_fds, n_keep_fds);
	if (pid == 0) {
		*pair_fd = fds[1];
		return 0;
	}
	close(fds[1]);
	if (pid > 0)
		rc = loop_io_add(keeper->loop, &child->io, fds[0], EPOLLIN);
	if (pid < 0) {
		close(fds[0]);
		return (int)pid;
	}
	child->pid = pid;
	child->pair_fd = fds[0];
	child->ready = false;
	child->born_ns = loop_now_ns(keeper->loop);
	if (rc != 0)
		kill(pid, SIGKILL); /* deaf: better a new one */
	return 1;
}

static void run_core(struct keeper *keeper, int pair_fd)
{
	const struct core_start start = {
		.settings = keeper->options->settings,
		.keeper_fd = pair_fd,
		.front_fd = keeper->core_front[0],
		.listen_fd = keeper->listen_fd,
		.kept = keeper->kept.items,
		.n_kept = keeper->kept.n_items,
		.life = keeper->core.life,
		.n_restarts = (uint32_t)(keeper->core.life - keeper->first_life),
	};

	_exit(keeper->options->core(&start));
}

static void run_front(struct keeper *keeper, int pair_fd)
{
	const struct front_start start = {
		.settings = keeper->options->settings,
		.paths = &keeper->dir.paths,
		.keeper_fd = pair_fd,
		.core_fd = keeper->core_front[1],
		.life = (uint32_t)keeper->front.life,
	};

	_exit(keeper->options->front(&start));
}

/* Not enough processes or memory now: again in a moment, or the end if it is the first time. */
static void fork_failed(struct keeper *keeper, struct child *child, int rc)
{
	log_error("keeper", "cannot start %s: %s", child->name, strerror(-rc));
	if (!child->ready_once)
		stop(keeper, 1);
	else
		loop_timer_in(keeper->loop, &child->start, LOOP_NS_PER_S);
}

static void start_core(void *arg)
{
	struct keeper *keeper = arg;
	size_t n = keeper->kept.n_items;
	int *fds = calloc(n + 3, sizeof(*fds));
	sigset_t mask;
	int pair_fd;
	int rc = -ENOMEM;

	if (fds) {
		for (size_t i = 0; i < n; i++)
			fds[i] = keeper->kept.items[i].fd;
		fds[n] = keeper->listen_fd;
		fds[n + 1] = keeper->core_front[0];
		sigemptyset(&mask);
		sigaddset(&mask, SIGTERM); /* it has a signalfd for it */
		rc = fork_child(keeper, &keeper->core, &mask, fds, n + 2, &pair_fd);
		free(fds);
	}
	if (rc == 0)
		run_core(keeper, pair_fd);
	if (rc < 0)
		fork_failed(keeper, &keeper->core, rc);
}

static void start_front(void *arg)
{
	struct keeper *keeper = arg;
	int fds[2] = {keeper->core_front[1]};
	sigset_t mask;
	int pair_fd;
	int rc;

	sigemptyset(&mask);
	rc = fork_child(keeper, &keeper->front, &mask, fds, 1, &pair_fd);
	if (rc == 0)
		run_front(keeper, pair_fd);
	if (rc < 0)
		fork_failed(keeper, &keeper->front, rc);
}

/* ---- deaths ------------------------------------------------------------------------------ */

/* Crashes of the core within the window, this one included. */
static unsigned count_crash(struct keeper *keeper)
{
	uint64_t now_ns = loop_now_ns(keeper->loop);
	unsigned n = 0;

	keeper->crashes_ns[keeper->n_crashes++ % KEEPER_CRASHES_MAX] = now_ns;
	for (unsigned i = 0; i < KEEPER_CRASHES_MAX && i < keeper->n_crashes; i++)
		if (now_ns - keeper->crashes_ns[i] < KEEPER_CRASHES_S * LOOP_NS_PER_S)
			n++;
	return n;
}

static void core_died(struct keeper *keeper, int status)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
	uint64_t delay_ms = 0;
	unsigned n_crashes;
	char fate[64];

	if (!keeper->core.ready_once && !WIFSIGNALED(status)) {
		log_error("keeper", "the core could not start");
		stop(keeper, 1);
		return;
	}
	if (!killed) {
		n_crashes = count_crash(keeper);
		if (n_crashes >= KEEPER_CRASHES_MAX) {
			log_error(
				"keeper",
				"the core %s, %u times within %u s: giving up; see the lines above "
				"for why",
				child_fate(status, fate), n_crashes, KEEPER_CRASHES_S);
			stop(keeper, 1);
			return;
		}
		delay_ms = n_crashes > 1 ? CRASH_DELAY_MS << (n_crashes - 2) : 0;
	}
	log_warn("keeper", "the core %s; %zu descriptors are kept, starting it again",
		 child_fate(status, fate), keeper->kept.n_items);
	if (delay_ms == 0)
		start_core(keeper);
	else
		loop_timer_in(keeper->loop, &keeper->core.start, delay_ms * LOOP_NS_PER_MS);
}

/* A peer can kill the front as often as it likes: the log must not grow as fast. */
static void log_front_death(struct keeper *keeper, int status)
{
	uint64_t now_ns = loop_now_ns(keeper->loop);
	char fate[64];

	keeper->n_front_deaths++;
	if (keeper->front_logged_ns != 0 &&
	    now_ns - keeper->front_logged_ns < FRONT_LOG_MS * LOOP_NS_PER_MS)
		return;
	log_warn("keeper", "the front %s (%u since the last such line); starting it again",
		 child_fate(status, fate), keeper->n_front_deaths);
	keeper->front_logged_ns = now_ns;
	keeper->n_front_deaths = 0;
}

static void front_died(struct keeper *keeper, int status)
{
	uint64_t age_ns = loop_now_ns(keeper->loop) - keeper->front.born_ns;

	if (!keeper->front.ready_once &&
	    (!WIFSIGNALED(status) || keeper->front.life >= FRONT_TRIES_MAX)) {
		log_error("keeper", "the front could not start");
		stop(keeper, 1);
		return;
	}
	log_front_death(keeper, status);
	if (age_ns > FRONT_QUIET_MS * LOOP_NS_PER_MS)
		start_front(keeper);
	else
		loop_timer_in(keeper->loop, &keeper->front.start, FRONT_DELAY_MS * LOOP_NS_PER_MS);
}

static void forget_child(struct keeper *keeper, struct child *child)
{
	loop_io_remove(keeper->loop, &child->io);
	close(child->pair_fd);
	child->pair_fd = -1;
	child->pid = 0;
	child->ready = false;
}

static void reap(struct keeper *keeper, struct child *child,
		 void (*died)(struct keeper *keeper, int status))
{
	int status;

	if (child->pid == 0 || waitpid(child->pid, &status, WNOHANG) != child->pid)
		return;
	forget_child(keeper, child);
	if (keeper->state == KEEPER_STOPPING) {
		loop_timer_cancel(keeper->loop, &keeper->stop_limit);
		stop_next(keeper);
	} else {
		died(keeper, status);
	}
}

/* ---- signals ----------------------------------------------------------------------------- */

/* What a core that died has left behind: we are who it comes to. */
static void reap_orphans(const struct keeper *keeper)
{
	siginfo_t info = {0};

	while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
	       info.si_pid != keeper->core.pid && info.si_pid != keeper->front.pid) {
		waitpid(info.si_pid, NULL, 0);
		info.si_pid = 0;
	}
}

static void take_signal(struct keeper *keeper, uint32_t signal_number)
{
	switch (signal_number) {
	case SIGCHLD:
		reap(keeper, &keeper->core, core_died);
		reap(keeper, &keeper->front, front_died);
		reap_orphans(keeper);
		break;
	case SIGHUP: log_info("keeper", "SIGHUP ignored: settings are read at start only"); break;
	default:
		log_info("keeper", "stopping");
		stop(keeper, 0);
		break;
	}
}

static void on_signal(void *arg, uint32_t events)
{
	struct keeper *keeper = arg;
	struct signalfd_siginfo info;

	(void)events;
	while (read(keeper->signal_fd, &info, sizeof(info)) == sizeof(info))
		take_signal(keeper, info.ssi_signo);
}

static int watch_signals(struct keeper *keeper, struct errbuf *err)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	sigprocmask(SIG_BLOCK, &mask, &keeper->old_mask);
	keeper->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (keeper->signal_fd < 0 ||
	    loop_io_add(keeper->loop, &keeper->signal_io, keeper->signal_fd, EPOLLIN) != 0)
		return errbuf_set(err, KV_EINTERNAL, "cannot watch for signals");
	return 0;
}

/* ---- the whole --------------------------------------------------------------------------- */

static rlim_t raise_limit(unsigned which)
{
	struct rlimit limit;

	if (getrlimit(which, &limit) != 0)
		return RLIM_INFINITY;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(which, &limit);
	return limit.rlim_max;
}

/*
 * Descriptors of arenas, segments and sessions: as many as we may have. Shared memory counts as
 * files: one above the limit would be the end of the core (SIGXFSZ).
 */
static int raise_limits(const struct settings *settings, struct errbuf *err)
{
	const uint64_t largest_bytes = 2 * (settings->pool_bytes > KV_SHM_BYTES ?
						    settings->pool_bytes :
						    KV_SHM_BYTES);
	rlim_t file_bytes = raise_limit(RLIMIT_FSIZE);

	raise_limit(RLIMIT_NOFILE);
	if (file_bytes >= largest_bytes)
		return 0;
	return errbuf_set(err, KV_EPOOL,
			  "RLIMIT_FSIZE allows files of %llu bytes, shared memory may need %llu: "
			  "raise it (LimitFSIZE in the unit, ulimit -f)",
			  (unsigned long long)file_bytes, (unsigned long long)largest_bytes);
}

/* A pool that comes back from the descriptor store is part of what is used already. */
static int check_memory(const struct keeper *keeper, struct errbuf *err)
{
	struct hostmem mem;

	if (keeper->kept.n_items > 0)
		return 0;
	if (hostmem_read(&mem, "/proc", "/sys/fs/cgroup", err) != 0)
		return -1;
	return hostmem_check(&mem, keeper->options->settings->pool_bytes, err);
}

static void adopt(void *arg, const struct kept *kept)
{
	struct keeper *keeper = arg;

	kept_adopt(&keeper->kept, kept);
}

/* Lives go on counting where a keeper before us, whose count is lost, cannot have been. */
static void take_stored(struct keeper *keeper)
{
	if (notify_take_stored(adopt, keeper) == 0)
		return;
	keeper->first_life = (uint64_t)time(NULL);
	keeper->core.life = keeper->first_life - 1;
	log_info("keeper", "%zu descriptors came back from the descriptor store",
		 keeper->kept.n_items);
}

static int set_up(struct keeper *keeper, struct errbuf *err)
{
	const struct settings *settings = keeper->options->settings;
	int rc;

	if (raise_limits(settings, err) != 0)
		return -1;
	if (runtime_dir_take(&keeper->dir, settings, err) != 0)
		return -1;
	take_stored(keeper);
	if (check_memory(keeper, err) != 0)
		return -1;
	keeper->loop = loop_new(NULL, err);
	if (!keeper->loop || watch_signals(keeper, err) != 0)
		return -1;
	rc = packet_pair(keeper->core_front, PAIR_BYTES);
	if (rc != 0)
		return errbuf_errno(err, KV_EINTERNAL, -rc, "pair of core and front");
	keeper->listen_fd = runtime_dir_listen(&keeper->dir, settings, err);
	return keeper->listen_fd >= 0 ? 0 : -1;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void tear_down(struct keeper *keeper)
{
	kept_fini(&keeper->kept);
	runtime_dir_release(&keeper->dir);
	close_fd(keeper->listen_fd);
	close_fd(keeper->core_front[0]);
	close_fd(keeper->core_front[1]);
	close_fd(keeper->ready_fd);
	if (keeper->signal_fd >= 0) {
		close(keeper->signal_fd);
		sigprocmask(SIG_SETMASK, &keeper->old_mask, NULL);
	}
	loop_free(keeper->loop);
}

static void child_init(struct keeper *keeper, struct child *child, const char *name,
		       void (*on_message)(void *, uint32_t), void (*start)(void *))
{
	child->name = name;
	child->pair_fd = -1;
	child->io = (struct loop_io){.fn = on_message, .arg = keeper, .fd = -1};
	child->start = (struct loop_timer){.fn = start, .arg = keeper};
}

int keeper_run(const struct keeper_options *options)
{
	struct keeper keeper = {
		.options = options,
		.dir = {.lock_fd = -1},
		.listen_fd = -1,
		.core_front = {-1, -1},
		.first_life = 1,
		.signal_fd = -1,
		.ready_fd = options->ready_fd,
	};
	struct errbuf err;
	int status = 1;

	child_init(&keeper, &keeper.core, "kvcached-core", on_core_message, start_core);
	child_init(&keeper, &keeper.front, "kvcached-front", on_front_message, start_front);
	keeper.signal_io = (struct loop_io){.fn = on_signal, .arg = &keeper, .fd = -1};
	keeper.stop_limit = (struct loop_timer){.fn = on_stop_limit, .arg = &keeper};
	if (set_up(&keeper, &err) != 0) {
		log_error("keeper", "%s", err.text);
	} else {
		notify_status("starting");
		start_core(&keeper);
		if (keeper.state == KEEPER_STARTING)
			start_front(&keeper);
		status = loop_run(keeper.loop);
	}
	tear_down(&keeper);
	return status == 0 ? 0 : 1;
}
