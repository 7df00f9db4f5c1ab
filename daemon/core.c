#include "daemon/core.h"

#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/notify.h"
#include "proto/fault.h"

#define TAKE_UP_MS 60000 /* what a service manager may wait longer for a core with a past */

struct running {
	struct core_env env;
	struct core *core;
	struct attach *attach;
	struct loop_io signal_io;
	int signal_fd;
};

static void on_request(void *arg, const void *route, size_t n_route, const void *body,
		       size_t n_body)
{
	struct running *running = arg;

	core_request(running->core, route, n_route, body, n_body);
}

static void end_loop(void *arg)
{
	struct running *running = arg;

	loop_stop(running->env.loop, 0);
}

static void on_signal(void *arg, uint32_t events)
{
	struct running *running = arg;
	struct signalfd_siginfo info;

	(void)events;
	if (read(running->signal_fd, &info, sizeof(info)) == sizeof(info))
		core_leave(running->core, end_loop, running);
}

static int watch_signals(struct running *running, struct errbuf *err)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	running->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	running->signal_io = (struct loop_io){.fn = on_signal, .arg = running, .fd = -1};
	if (running->signal_fd < 0 ||
	    loop_io_add(running->env.loop, &running->signal_io, running->signal_fd, EPOLLIN) != 0)
		return errbuf_set(err, KV_EINTERNAL, "cannot watch for signals");
	return 0;
}

static int start_core(struct running *running, const struct core_start *start, struct errbuf *err)
{
	struct core_env *env = &running->env;

	env->settings = start->settings;
	env->kept = start->kept;
	env->n_kept = start->n_kept;
	env->life = start->life;
	env->n_restarts = start->n_restarts;
	if (getrandom(env->boot, sizeof(env->boot), 0) != sizeof(env->boot))
		return errbuf_set(err, KV_EINTERNAL, "getrandom gives no bytes");
	env->loop = loop_new(NULL, err);
	if (!env->loop || watch_signals(running, err) != 0)
		return -1;
	env->started_ns = loop_now_ns(env->loop);
	env->keeper = keeper_link_new(start->keeper_fd);
	if (!env->keeper)
		return errbuf_set(err, KV_ENOMEM, "no memory for the link to the keeper");
	env->front = front_link_new(env->loop, start->front_fd, on_request, running, err);
	if (!env->front)
		return -1;
	if (env->n_kept > 0)
		keeper_status(env->keeper, TAKE_UP_MS, "taking up what an earlier core kept");
	running->core = core_new(env, err);
	if (!running->core)
		return -1;
	running->attach = attach_new(env->loop, start->listen_fd, running->core, env->boot, err);
	if (!running->attach)
		return -1;
	env->ready_ns = loop_now_ns(env->loop);
	if (keeper_ready(env->keeper) != 0)
		return errbuf_set(err, KV_EINTERNAL, "the keeper does not listen");
	return 0;
}

int core_main(const struct core_start *start)
{
	struct running running = {.signal_fd = -1, .signal_io = {.fd = -1}};
	struct errbuf err;
	int status = 1;

	KV_FAULT_FROM_ENV("KVC_CORE_FAULT_MAX");
	if (start_core(&running, start, &err) == 0) {
		status = loop_run(running.env.loop) == 0 ? 0 : 1;
		core_farewell(running.core, notify_is_there());
	} else {
		log_error("core", "%s", err.text);
	}
	attach_free(running.attach);
	core_free(running.core);
	front_link_free(running.env.front);
	keeper_link_free(running.env.keeper);
	if (running.signal_fd >= 0)
		close(running.signal_fd);
	loop_free(running.env.loop);
	return status;
}
