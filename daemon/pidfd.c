#include "daemon/pidfd.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

static bool hung_up(int socket_fd)
{
	struct pollfd p = {.fd = socket_fd, .events = 0};

	return poll(&p, 1, 0) != 0;
}

int pidfd_of_peer(int socket_fd, pid_t pid)
{
	int pidfd = -1;
	socklen_t size = sizeof(pidfd);

	if (pid <= 0)
		return -ESRCH; /* of a pid namespace that we do not see into */
	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0)
		return pidfd;
	if (errno != ENOPROTOOPT)
		return -errno;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (pidfd < 0)
		return -errno;
	if (hung_up(socket_fd)) {
		close(pidfd);
		return -ESRCH;
	}
	return pidfd;
}

pid_t pidfd_pid(int pidfd)
{
	char path[48];
	char line[128];
	int pid = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
	file = fopen(path, "re");
	if (!file)
		return -1;
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "Pid: %d", &pid) == 1)
			break;
	fclose(file);
	return pid > 0 ? pid : -1;
}

bool pidfd_has_exited(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

bool pidfd_is_one(int fd)
{
	return syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno != EBADF;
}
