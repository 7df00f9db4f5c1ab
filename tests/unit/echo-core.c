#include "tests/unit/echo-core.h"

#include <dirent.h>
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/log.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define WAIT_MS 20000

/* ---- the core ---------------------------------------------------------------------------- */

struct core {
	struct core_env *env;
	struct kept arenas[64]; /* of this life: kept before it and since */
	size_t n_arenas;
	unsigned n_gone;
};

struct core *core_new(struct core_env *env, struct errbuf *err)
{
	static struct core core;
	char gate[300];

	(void)err;
	snprintf(gate, sizeof(gate), "%s/gate", env->settings->runtime_dir);
	while (access(gate, F_OK) == 0)
		poll(NULL, 0, 1);
	core.env = env;
	for (size_t i = 0; i < env->n_kept; i++)
		core.arenas[core.n_arenas++] = env->kept[i];
	return &core;
}

void core_free(struct core *core)
{
	(void)core;
}

static int one_byte(char byte)
{
	int fd = memfd_create(kt_name_prefix(), MFD_CLOEXEC);

	if (fd >= 0 && pwrite(fd, &byte, 1, 0) != 1)
		abort();
	return fd;
}

static struct kept *find_arena(struct core *core, uint64_t id)
{
	for (size_t i = 0; i < core->n_arenas; i++)
		if (core->arenas[i].id == id)
			return &core->arenas[i];
	return NULL;
}

static int keep_arena(struct core *core, uint64_t id, char byte)
{
	struct kept *arena = find_arena(core, id);
	int fd = one_byte(byte);

	if (arena)
		close(arena->fd);
	else
		arena = &core->arenas[core->n_arenas++];
	*arena = (struct kept){.kind = KEPT_ARENA, .id = id, .fd = fd};
	return keeper_keep(core->env->keeper, KEPT_ARENA, id, fd);
}

static int drop_arena(struct core *core, uint64_t id)
{
	struct kept *arena = find_arena(core, id);

	if (arena) {
		close(arena->fd);
		*arena = core->arenas[--core->n_arenas];
	}
	return keeper_drop(core->env->keeper, KEPT_ARENA, id);
}

static void act(struct core *core, const char *request, char *answer, size_t n_max)
{
	struct kept *arena;
	unsigned long id;
	char byte;

	if (strncmp(request, "echo ", 5) == 0)
		snprintf(answer, n_max, "%s", request + 5);
	else if (strcmp(request, "who") == 0)
		snprintf(answer, n_max, "%d %lu %zu %d", getpid(), (unsigned long)core->env->life,
			 core->env->n_kept, echo_n_open(getpid()));
	else if (sscanf(request, "keep %lu %c", &id, &byte) == 2)
		snprintf(answer, n_max, "%d", keep_arena(core, id, byte));
	else if (sscanf(request, "drop %lu", &id) == 1)
		snprintf(answer, n_max, "%d", drop_arena(core, id));
	else if (sscanf(request, "kept %lu", &id) == 1) {
		arena = find_arena(core, id);
		if (arena && pread(arena->fd, &byte, 1, 0) == 1)
			snprintf(answer, n_max, "%c", byte);
		else
			snprintf(answer, n_max, "none");
	} else if (strncmp(request, "event ", 6) == 0)
		snprintf(answer, n_max, "%d",
			 front_link_event(core->env->front, request + 6, strlen(request + 6)));
	else if (strcmp(request, "gone") == 0)
		snprintf(answer, n_max, "%u", core->n_gone);
	else if (strcmp(request, "deaf") == 0)
		snprintf(answer, n_max, "%d", getpid());
	else if (strcmp(request, "abort") == 0)
		abort();
	else if (strcmp(request, "exit") == 0)
		_exit(3);
	else
		snprintf(answer, n_max, "what?");
}

void core_leave(struct core *core, void (*done)(void *arg), void *arg)
{
	(void)core;
	done(arg);
}

void core_farewell(const struct core *core, bool has_manager)
{
	(void)core;
	(void)has_manager;
}

void core_request(struct core *core, const void *route, size_t n_route, const void *body,
		  size_t n_body)
{
	static char big[KV_REQUEST_BYTES_MAX];
	char request[512] = "";
	char answer[512] = "";
	unsigned long n;

	memcpy(request, body, n_body < sizeof(request) ? n_body : sizeof(request) - 1);
	if (sscanf(request, "big %lu", &n) == 1) {
		memset(big, 'b', sizeof(big));
		front_link_reply(core->env->front, route, n_route, big, n);
		return;
	}
	act(core, request, answer, sizeof(answer));
	front_link_reply(core->env->front, route, n_route, answer, strlen(answer) + 1);
	while (strcmp(request, "deaf") == 0)
		pause();
}

void core_attach_message(struct core *core, struct attach_conn *conn,
			 const Kv__Wire__AttachRequest *req, int fd)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__Welcome welcome = KV__WIRE__WELCOME__INIT;
	int sent;

	(void)core;
	switch (req->what_case) {
	case KV__WIRE__ATTACH_REQUEST__WHAT_HELLO:
		welcome.session = (uint64_t)conn->pid;
		reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_WELCOME;
		reply.welcome = &welcome;
		sent = one_byte('h');
		attach_promote(conn);
		attach_reply(conn, &reply, &sent, 1);
		close(sent);
		break;
	case KV__WIRE__ATTACH_REQUEST__WHAT_WATCH:
		attach_watch_fire(fd);
		close(fd);
		attach_reply(conn, &reply, NULL, 0);
		break;
	default: attach_close(conn); break;
	}
}

void core_attach_gone(struct core *core, struct attach_conn *conn)
{
	(void)conn;
	core->n_gone++;
}

/* ---- the daemon -------------------------------------------------------------------------- */

void echo_init(struct echo_daemon *daemon)
{
	*daemon = (struct echo_daemon){.core = core_main, .client = -1, .ready_fd = -1};
	daemon->root = kt_tmpdir_new();
	settings_default(&daemon->settings);
	daemon->settings.pool_bytes = 1 << 20;
	snprintf(daemon->settings.runtime_dir, sizeof(daemon->settings.runtime_dir), "%s/run",
		 daemon->root);
	assert_int_equal(kv_runtime_paths(&daemon->paths, daemon->settings.runtime_dir, NULL), 0);
}

static void run_keeper(const struct echo_daemon *daemon, int ready_fd, int go_fd)
{
	const struct keeper_options options = {
		.settings = &daemon->settings,
		.core = daemon->core,
		.front = front_main,
		.ready_fd = ready_fd,
	};
	char byte;

	if (read(go_fd, &byte, 1) != 1)
		_exit(0); /* not wanted after all */
	close(go_fd);
	log_init(LOG_LEVEL_ERROR);
	_exit(keeper_run(&options));
}

void echo_prepare(struct echo_daemon *daemon)
{
	int ready[2];
	int go[2];

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	daemon->keeper = fork();
	assert_true(daemon->keeper >= 0);
	if (daemon->keeper == 0) {
		close(ready[0]);
		close(go[1]);
		run_keeper(daemon, ready[1], go[0]);
	}
	close(ready[1]);
	close(go[0]);
	daemon->ready_fd = ready[0];
	daemon->go_fd = go[1];
}

void echo_go(struct echo_daemon *daemon)
{
	assert_int_equal(write(daemon->go_fd, "g", 1), 1);
	close(daemon->go_fd);
}

void echo_fork(struct echo_daemon *daemon)
{
	echo_prepare(daemon);
	echo_go(daemon);
}

void echo_wait_ready(struct echo_daemon *daemon)
{
	struct pollfd p = {.fd = daemon->ready_fd, .events = POLLIN};
	char byte = 0;

	assert_int_equal(poll(&p, 1, (int)kt_scale_ms(WAIT_MS)), 1);
	assert_int_equal(read(daemon->ready_fd, &byte, 1), 1);
	assert_int_equal(byte, '\n');
	daemon->client = echo_connect(daemon);
}

void echo_start(struct echo_daemon *daemon)
{
	echo_init(daemon);
	echo_fork(daemon);
	echo_wait_ready(daemon);
}

int echo_stop(struct echo_daemon *daemon)
{
	int status = -1;

	assert_int_equal(kill(daemon->keeper, SIGTERM), 0);
	assert_int_equal(kt_wait_child(daemon->keeper, WAIT_MS, &status), 0);
	return status;
}

void echo_fini(struct echo_daemon *daemon)
{
	if (daemon->client >= 0)
		nn_close(daemon->client);
	if (daemon->ready_fd >= 0)
		close(daemon->ready_fd);
	kt_tmpdir_free(daemon->root);
}

int echo_connect(const struct echo_daemon *daemon)
{
	int limit_ms = (int)kt_scale_ms(WAIT_MS);
	int interval_ms = 10;
	int client = nn_socket(AF_SP, NN_REQ);
	char address[KV_SOCKET_PATH_MAX + 8];

	assert_true(client >= 0);
	snprintf(address, sizeof(address), "ipc://%s", daemon->paths.command);
	nn_setsockopt(client, NN_SOL_SOCKET, NN_RCVTIMEO, &limit_ms, sizeof(limit_ms));
	nn_setsockopt(client, NN_SOL_SOCKET, NN_SNDTIMEO, &limit_ms, sizeof(limit_ms));
	nn_setsockopt(client, NN_SOL_SOCKET, NN_RECONNECT_IVL, &interval_ms, sizeof(interval_ms));
	interval_ms = (int)kt_scale_ms(WAIT_MS / 100); /* a request that died with a core */
	nn_setsockopt(client, NN_REQ, NN_REQ_RESEND_IVL, &interval_ms, sizeof(interval_ms));
	assert_true(nn_connect(client, address) >= 0);
	return client;
}

const char *echo_ask_on(int client, const char *request)
{
	static char answer[KV_REQUEST_BYTES_MAX + 1];
	int n;

	assert_int_equal(nn_send(client, request, strlen(request), 0), strlen(request));
	n = nn_recv(client, answer, sizeof(answer) - 1, 0);
	if (n < 0)
		fail_msg("no answer to \"%s\": %s", request, nn_strerror(nn_errno()));
	answer[n] = '\0';
	return answer;
}

const char *echo_ask(struct echo_daemon *daemon, const char *request)
{
	return echo_ask_on(daemon->client, request);
}

struct echo_who echo_ask_who(struct echo_daemon *daemon)
{
	struct echo_who who = {0};

	assert_int_equal(sscanf(echo_ask(daemon, "who"), "%d %lu %u %u", &who.pid, &who.life,
				&who.n_kept, &who.n_open),
			 4);
	return who;
}

pid_t echo_child(const struct echo_daemon *daemon, const char *name)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	pid_t found = 0;

	assert_non_null(proc);
	while (!found && (entry = readdir(proc))) {
		char path[300];
		char comm[32] = "";
		char state = 0;
		int pid = 0;
		int parent = 0;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/%.20s/stat", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (fscanf(file, "%d (%31[^)]) %c %d", &pid, comm, &state, &parent) == 4 &&
		    parent == daemon->keeper && state != 'Z' && strcmp(comm, name) == 0)
			found = pid;
		fclose(file);
	}
	closedir(proc);
	return found;
}

int echo_n_open(pid_t pid)
{
	char path[64];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 2;
}
