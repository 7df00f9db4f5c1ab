#include "tests/bench/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/support/tmpdir.h"

#define START_MS 5000
#define HEADER_BYTES 128
/* Of a connection: with what the system gives, each SET would be a dozen turns of two processes. */
#define BUFFER_BYTES (4 * 1024 * 1024)
#define NOT_THERE 127

/* ---- the server --------------------------------------------------------------------------- */

static void run(const struct redis_server *server, pid_t parent)
{
	const int null_fd = open("/dev/null", O_RDWR);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	dup2(null_fd, STDOUT_FILENO);
	dup2(null_fd, STDERR_FILENO);
	execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", server->socket,
	       "--dir", server->dir, "--save", "", "--appendonly", "no", "--daemonize", "no", NULL);
	_exit(NOT_THERE);
}

static int try_connect(const struct redis_server *server)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int bytes = BUFFER_BYTES;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	BENCH_CHECK(fd >= 0 && strlen(server->socket) < sizeof(address.sun_path));
	strcpy(address.sun_path, server->socket);
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)))
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void check_alive(const struct redis_server *server)
{
	int status;

	if (waitpid(server->pid, &status, WNOHANG) != server->pid)
		return;
	if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_THERE)
		bench_die("redis-server is not installed; scripts/deps --bench does that");
	bench_die("redis-server does not start");
}

void redis_start(struct redis_server *server)
{
	const struct timespec pause = {.tv_nsec = 5000000};
	const uint64_t end_ns = bench_now_ns() + START_MS * UINT64_C(1000000);
	const pid_t parent = getpid();
	int fd = -1;

	snprintf(server->dir, sizeof(server->dir), "%s/redis", bench_runtime_dir);
	snprintf(server->socket, sizeof(server->socket), "%s/socket", server->dir);
	BENCH_CHECK(mkdir(server->dir, 0700) == 0);
	server->pid = fork();
	BENCH_CHECK(server->pid >= 0);
	if (server->pid == 0)
		run(server, parent);
	while (fd < 0 && bench_now_ns() < end_ns) {
		check_alive(server);
		fd = try_connect(server);
		if (fd < 0)
			nanosleep(&pause, NULL);
	}
	if (fd < 0)
		bench_die("redis-server does not answer on %s", server->socket);
	close(fd);
}

void redis_stop(struct redis_server *server)
{
	kill(server->pid, SIGTERM);
	waitpid(server->pid, NULL, 0);
	kt_remove_tree(server->dir);
}

/* ---- a connection ------------------------------------------------------------------------- */

int redis_connect(const struct redis_server *server)
{
	int fd = try_connect(server);

	if (fd < 0)
		bench_die("redis-server does not take a connection: %s", strerror(errno));
	return fd;
}

static void send_all(int fd, struct iovec *parts, size_t n)
{
	while (n) {
		ssize_t sent = writev(fd, parts, (int)n);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			bench_die("redis-server hung up");
		while (n && (size_t)sent >= parts->iov_len) {
			sent -= (ssize_t)parts->iov_len;
			parts++;
			n--;
		}
		if (n) {
			parts->iov_base = (char *)parts->iov_base + sent;
			parts->iov_len -= (size_t)sent;
		}
	}
}

static void read_all(int fd, void *to, size_t n)
{
	for (char *at = to; n;) {
		ssize_t got = recv(fd, at, n, MSG_WAITALL);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			bench_die("redis-server hung up");
		at += got;
		n -= (size_t)got;
	}
}

static void expect(int fd, const char *what)
{
	char got[HEADER_BYTES];
	size_t n = strlen(what);

	read_all(fd, got, n);
	if (memcmp(got, what, n) != 0)
		bench_die("redis-server answered %.*s", (int)strcspn(got, "\r\n"), got);
}

void redis_set(int fd, const char *key, const void *bytes, size_t n_bytes)
{
	char header[HEADER_BYTES];
	int n = snprintf(header, sizeof(header), "*3\r\n$3\r\nSET\r\n$%zu\r\n%s\r\n$%zu\r\n",
			 strlen(key), key, n_bytes);
	struct iovec parts[3] = {{header, (size_t)n},
				 {(void *)(uintptr_t)bytes, n_bytes},
				 {(void *)(uintptr_t) "\r\n", 2}};

	send_all(fd, parts, 3);
	expect(fd, "+OK\r\n");
}

void redis_get(int fd, const char *key, void *to, size_t n_bytes)
{
	char header[HEADER_BYTES];
	int n = snprintf(header, sizeof(header), "*2\r\n$3\r\nGET\r\n$%zu\r\n%s\r\n", strlen(key),
			 key);
	struct iovec part = {header, (size_t)n};

	send_all(fd, &part, 1);
	snprintf(header, sizeof(header), "$%zu\r\n", n_bytes);
	expect(fd, header);
	read_all(fd, to, n_bytes);
	expect(fd, "\r\n");
}
