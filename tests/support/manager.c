#include "tests/support/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define STORE_MAX 4096 /* FileDescriptorStoreMax= of the unit */
#define NAME_BYTES 64
#define TEXT_BYTES 1024
#define LOG_BYTES (1u << 20)
#define END_MS 20000

struct stored {
	char name[NAME_BYTES];
	int fd;
};

struct kt_manager {
	char *root, *dir;
	struct sockaddr_un address;
	int sock;
	int end[2]; /* the thread ends when it is closed */
	pthread_t thread;
	pthread_mutex_t lock; /* of all below */
	struct stored stored[STORE_MAX];
	size_t n, max;
	pid_t main_pid;
	bool is_ready, is_stopping;
	size_t n_foreign; /* words of others */
	char status[256];
	/* what the service writes to its stderr; ours gets it too */
	int log_pipe[2];
	char *log; /* LOG_BYTES, terminated */
	size_t n_log;
};

/* ---- the store ---------------------------------------------------------------------------- */

static bool is_same(int a, int b)
{
	return syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, b) == 0;
}

static bool has_hung_up(int fd)
{
	struct pollfd p = {.fd = fd};

	return poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR);
}

/* Owns fd. */
static void store(struct kt_manager *m, const char *name, int fd, bool poll_it)
{
	bool known = false;

	for (size_t i = 0; i < m->n; i++)
		known |= is_same(m->stored[i].fd, fd);
	if (known || m->n >= m->max || (poll_it && has_hung_up(fd))) {
		close(fd);
		return;
	}
	snprintf(m->stored[m->n].name, NAME_BYTES, "%s", name);
	m->stored[m->n++].fd = fd;
}

static size_t lose(struct kt_manager *m, const char *prefix, size_t n_prefix, size_t most)
{
	size_t n_lost = 0;

	for (size_t i = 0; i < m->n && n_lost < most;) {
		if (strncmp(m->stored[i].name, prefix, n_prefix) != 0) {
			i++;
			continue;
		}
		close(m->stored[i].fd);
		m->stored[i] = m->stored[--m->n];
		n_lost++;
	}
	return n_lost;
}

/* ---- words of the service ----------------------------------------------------------------- */

/* The value of a line "KEY=value", copied out; "" if there is none. */
static const char *value_of(const char *text, const char *key, char out[TEXT_BYTES])
{
	const size_t n = strlen(key);

	*out = '\0';
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, key, n) == 0 && line[n] == '=') {
			snprintf(out, TEXT_BYTES, "%.*s", (int)strcspn(line + n + 1, "\n"),
				 line + n + 1);
			return out;
		}
	}
	return out;
}

/* Owns fd (-1: none). */
static void take(struct kt_manager *m, const char *text, int fd)
{
	char value[TEXT_BYTES], name[TEXT_BYTES];

	m->is_ready |= *value_of(text, "READY", value) == '1';
	m->is_stopping |= *value_of(text, "STOPPING", value) == '1';
	if (*value_of(text, "STATUS", value))
		snprintf(m->status, sizeof(m->status), "%.250s", value);
	value_of(text, "FDNAME", name);
	if (*value_of(text, "FDSTOREREMOVE", value) == '1')
		lose(m, name, strlen(name) + 1, SIZE_MAX);
	else if (*value_of(text, "FDSTORE", value) == '1' && fd >= 0) {
		store(m, name, fd, *value_of(text, "FDPOLL", value) != '0');
		return;
	}
	if (fd >= 0)
		close(fd);
}

/* One datagram. False: there is none. */
static bool receive(struct kt_manager *m)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	} control;
	char text[TEXT_BYTES];
	struct iovec part = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	const ssize_t n = recvmsg(m->sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct ucred peer = {0};
	int fd = -1;

	if (n < 0)
		return false;
	text[n] = '\0';
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			memcpy(&fd, CMSG_DATA(c), sizeof(fd));
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
			memcpy(&peer, CMSG_DATA(c), sizeof(peer));
	}
	if (peer.pid == m->main_pid) { /* NotifyAccess=main */
		take(m, text, fd);
		return true;
	}
	m->n_foreign++;
	if (fd >= 0)
		close(fd);
	return true;
}

/* As the journal does. */
static void take_lines(struct kt_manager *m)
{
	char *at = m->log + m->n_log;
	const ssize_t n = read(m->log_pipe[0], at, LOG_BYTES - 1 - m->n_log);

	if (n <= 0)
		return;
	m->n_log += (size_t)n;
	m->log[m->n_log] = '\0';
	fwrite(at, 1, (size_t)n, stderr);
	if (m->n_log > LOG_BYTES / 2) {
		memmove(m->log, m->log + LOG_BYTES / 4, m->n_log - LOG_BYTES / 4 + 1);
		m->n_log -= LOG_BYTES / 4;
	}
}

static void *listen_on(void *arg)
{
	struct kt_manager *m = arg;
	struct pollfd p[3] = {{.fd = m->sock, .events = POLLIN},
			      {.fd = m->end[0]},
			      {.fd = m->log_pipe[0], .events = POLLIN}};

	while (poll(p, 3, -1) >= 0 || errno == EINTR) {
		bool more = true;

		if (p[1].revents)
			return NULL;
		pthread_mutex_lock(&m->lock);
		if (p[2].revents)
			take_lines(m);
		pthread_mutex_unlock(&m->lock);
		while (more) {
			pthread_mutex_lock(&m->lock);
			more = receive(m);
			pthread_mutex_unlock(&m->lock);
		}
	}
	return NULL;
}

/* ---- birth and end ------------------------------------------------------------------------ */

struct kt_manager *kt_manager_new(void)
{
	struct kt_manager *m = calloc(1, sizeof(*m));
	const int one = 1;
	sigset_t all, old;

	assert_non_null(m);
	m->root = kt_tmpdir_new();
	m->dir = kt_tmpdir_new();
	m->max = STORE_MAX;
	m->address.sun_family = AF_UNIX;
	snprintf(m->address.sun_path, sizeof(m->address.sun_path), "%s/notify", m->root);
	m->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(m->sock, (struct sockaddr *)&m->address, sizeof(m->address)), 0);
	assert_int_equal(setsockopt(m->sock, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one)), 0);
	assert_int_equal(pipe2(m->end, O_CLOEXEC), 0);
	assert_int_equal(pipe2(m->log_pipe, O_CLOEXEC), 0);
	m->log = calloc(1, LOG_BYTES);
	assert_non_null(m->log);
	assert_int_equal(pthread_mutex_init(&m->lock, NULL), 0);
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	assert_int_equal(pthread_create(&m->thread, NULL, listen_on, m), 0);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return m;
}

void kt_manager_free(struct kt_manager *m)
{
	close(m->end[1]);
	pthread_join(m->thread, NULL);
	lose(m, "", 0, SIZE_MAX);
	close(m->end[0]);
	close(m->log_pipe[0]);
	close(m->log_pipe[1]);
	close(m->sock);
	free(m->log);
	pthread_mutex_destroy(&m->lock);
	kt_tmpdir_free(m->dir);
	kt_tmpdir_free(m->root);
	free(m);
}

const char *kt_manager_dir(const struct kt_manager *m)
{
	return m->dir;
}

/* ---- starting and ending the service ------------------------------------------------------ */

struct handing {
	struct kt_manager *manager;
	char *names;
	size_t n;
};

/* In the process that will be the service. */
static void set_environment(void *arg)
{
	const struct handing *handing = arg;
	char number[16];

	dup2(handing->manager->log_pipe[1], STDERR_FILENO);
	setenv("NOTIFY_SOCKET", handing->manager->address.sun_path, 1);
	if (handing->n == 0)
		return;
	snprintf(number, sizeof(number), "%zu", handing->n);
	setenv("LISTEN_FDS", number, 1);
	setenv("LISTEN_FDNAMES", handing->names, 1);
	snprintf(number, sizeof(number), "%d", getpid());
	setenv("LISTEN_PID", number, 1);
}

static bool is_ready(void *arg)
{
	struct kt_manager *m = arg;
	bool ready;

	pthread_mutex_lock(&m->lock);
	ready = m->is_ready;
	pthread_mutex_unlock(&m->lock);
	return ready;
}

struct kt_daemon *kt_manager_start(struct kt_manager *m, const char *const *arguments)
{
	struct handing handing = {.manager = m};
	struct kt_daemon_start start = {
		.dir = m->dir, .arguments = arguments, .prepare = set_environment, .arg = &handing};
	int *fds = calloc(STORE_MAX, sizeof(*fds));
	struct kt_daemon *daemon;

	handing.names = calloc(STORE_MAX, NAME_BYTES);
	assert_true(fds && handing.names);
	pthread_mutex_lock(&m->lock); /* nothing is read before we know who speaks */
	for (size_t i = 0, at = 0; i < m->n; i++) {
		fds[i] = m->stored[i].fd;
		at += (size_t)sprintf(handing.names + at, "%s%s", i ? ":" : "", m->stored[i].name);
	}
	handing.n = start.n_fds = m->n;
	start.fds = fds;
	m->is_ready = m->is_stopping = false;
	daemon = kt_daemon_spawn_as(&start);
	m->main_pid = kt_daemon_keeper(daemon);
	pthread_mutex_unlock(&m->lock);
	free(handing.names);
	free(fds);
	if (kt_daemon_wait_ready(daemon) && kt_wait_until(is_ready, m, END_MS))
		return daemon;
	kt_daemon_stop(daemon);
	return NULL;
}

static bool is_stopping(void *arg)
{
	struct kt_manager *m = arg;
	bool stopping;

	pthread_mutex_lock(&m->lock);
	stopping = m->is_stopping;
	pthread_mutex_unlock(&m->lock);
	return stopping;
}

static bool has_read_all(void *arg)
{
	const struct kt_manager *m = arg;
	struct pollfd p[2] = {{.fd = m->sock, .events = POLLIN},
			      {.fd = m->log_pipe[0], .events = POLLIN}};

	return poll(p, 2, 0) == 0;
}

/* What was sent by now is read, and taken when the lock is ours. */

static void settle(struct kt_manager *m)
{
	assert_true(kt_wait_until(has_read_all, m, END_MS));
	pthread_mutex_lock(&m->lock);
	assert_int_equal(m->n_foreign, 0);
	pthread_mutex_unlock(&m->lock);
}

int kt_manager_stop(struct kt_manager *m, struct kt_daemon *daemon)
{
	const pid_t pids[] = {kt_daemon_keeper(daemon), kt_daemon_core(daemon),
			      kt_daemon_front(daemon)};
	int status;

	for (size_t i = 0; i < sizeof(pids) / sizeof(pids[0]); i++)
		if (pids[i] > 0)
			kill(pids[i], SIGTERM);
	status = kt_daemon_wait_end(daemon, END_MS);
	assert_true(kt_wait_until(is_stopping, m, END_MS));
	settle(m);
	kt_daemon_stop(daemon);
	return status;
}

static bool has_none(void *arg)
{
	return kill(*(pid_t *)arg, 0) < 0;
}

void kt_manager_kill(struct kt_manager *m, struct kt_daemon *daemon)
{
	pid_t core = kt_daemon_core(daemon), front = kt_daemon_front(daemon);

	assert_int_equal(kill(kt_daemon_keeper(daemon), SIGKILL), 0);
	assert_int_not_equal(kt_daemon_wait_end(daemon, END_MS), -1);
	assert_true(core == 0 || kt_wait_until(has_none, &core, END_MS));
	assert_true(front == 0 || kt_wait_until(has_none, &front, END_MS));
	settle(m);
	kt_daemon_stop(daemon);
}

/* ---- looking and meddling ----------------------------------------------------------------- */

void kt_manager_set_max(struct kt_manager *m, size_t max)
{
	pthread_mutex_lock(&m->lock);
	m->max = max < STORE_MAX ? max : STORE_MAX;
	pthread_mutex_unlock(&m->lock);
}

size_t kt_manager_count(struct kt_manager *m, const char *prefix)
{
	size_t n = 0;

	settle(m);
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < m->n; i++)
		n += strncmp(m->stored[i].name, prefix, strlen(prefix)) == 0;
	pthread_mutex_unlock(&m->lock);
	return n;
}

size_t kt_manager_n_stored(struct kt_manager *m)
{
	return kt_manager_count(m, "");
}

size_t kt_manager_lose(struct kt_manager *m, const char *prefix, size_t most)
{
	size_t n;

	settle(m);
	pthread_mutex_lock(&m->lock);
	n = lose(m, prefix, strlen(prefix), most);
	pthread_mutex_unlock(&m->lock);
	return n;
}

void kt_manager_name(struct kt_manager *m, const char *prefix, char name[NAME_BYTES])
{
	size_t i = 0;

	settle(m);
	pthread_mutex_lock(&m->lock);
	while (i < m->n && strncmp(m->stored[i].name, prefix, strlen(prefix)) != 0)
		i++;
	assert_true(i < m->n);
	memcpy(name, m->stored[i].name, NAME_BYTES);
	pthread_mutex_unlock(&m->lock);
}

void kt_manager_plant(struct kt_manager *m, const char *name, int fd)
{
	const int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	assert_true(copy >= 0);
	pthread_mutex_lock(&m->lock);
	assert_true(m->n < STORE_MAX);
	snprintf(m->stored[m->n].name, NAME_BYTES, "%s", name);
	m->stored[m->n++].fd = copy;
	pthread_mutex_unlock(&m->lock);
}

int kt_manager_fd(struct kt_manager *m, const char *prefix)
{
	int fd = -1;

	settle(m);
	pthread_mutex_lock(&m->lock);
	for (size_t i = 0; i < m->n && fd < 0; i++)
		if (strncmp(m->stored[i].name, prefix, strlen(prefix)) == 0)
			fd = fcntl(m->stored[i].fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&m->lock);
	return fd;
}

bool kt_manager_has_said(struct kt_manager *m, const char *text)
{
	bool has;

	settle(m);
	pthread_mutex_lock(&m->lock);
	has = strstr(m->log, text) != NULL;
	pthread_mutex_unlock(&m->lock);
	return has;
}

void kt_manager_forget_said(struct kt_manager *m)
{
	settle(m);
	pthread_mutex_lock(&m->lock);
	m->n_log = 0;
	m->log[0] = '\0';
	pthread_mutex_unlock(&m->lock);
}

const char *kt_manager_status(struct kt_manager *m)
{
	settle(m);
	return m->status;
}
