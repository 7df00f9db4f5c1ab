/*
 * Packets with descriptors: whole or not at all, and nothing leaks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/packet.h"
#include "tests/support/runner.h"

static unsigned n_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void open_pair(int fds[2])
{
	assert_int_equal(packet_pair(fds, 1 << 20), 0);
}

static void close_pair(const int fds[2])
{
	close(fds[0]);
	close(fds[1]);
}

static void test_bytes_and_descriptors_arrive(void **state)
{
	int pair[2];
	int sent[2];
	int got[PACKET_FDS_MAX];
	size_t n_fds = PACKET_FDS_MAX;
	char bytes[16];

	(void)state;
	open_pair(pair);
	assert_int_equal(pipe(sent), 0);
	assert_int_equal(packet_send(pair[0], "hello", 5, sent, 2), 0);
	assert_int_equal(packet_recv(pair[1], bytes, sizeof(bytes), got, &n_fds), 5);
	assert_memory_equal(bytes, "hello", 5);
	assert_int_equal(n_fds, 2);
	assert_int_equal(fcntl(got[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(write(got[1], "z", 1), 1); /* it is the pipe */
	assert_int_equal(read(sent[0], bytes, 1), 1);
	assert_int_equal(bytes[0], 'z');
	close_pair(got);
	close_pair(sent);
	close_pair(pair);
}

static void test_more_descriptors_than_wanted_are_closed(void **state)
{
	int pair[2];
	int sent[3] = {0, 1, 2};
	int got[1] = {-1};
	size_t n_fds = 1;
	char bytes[4];
	unsigned n;

	(void)state;
	open_pair(pair);
	n = n_open();
	assert_int_equal(packet_send(pair[0], "x", 1, sent, 3), 0);
	assert_int_equal(packet_recv(pair[1], bytes, sizeof(bytes), got, &n_fds), -EMSGSIZE);
	assert_int_equal(n_fds, 0);
	assert_int_equal(packet_send(pair[0], "x", 1, sent, 1), 0);
	assert_int_equal(packet_recv(pair[1], bytes, sizeof(bytes), NULL, NULL), -EMSGSIZE);
	assert_int_equal(packet_recv(pair[1], bytes, sizeof(bytes), NULL, NULL), -EAGAIN);
	assert_int_equal(n_open(), n);
	close_pair(pair);
}

static void test_sixteen_descriptors_are_refused_without_a_leak(void **state)
{
	char control[CMSG_SPACE(16 * sizeof(int))] = {0};
	char letter = 'x';
	struct iovec part = {.iov_base = &letter, .iov_len = 1};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int got[PACKET_FDS_MAX];
	size_t n_fds = PACKET_FDS_MAX;
	int pair[2];
	char byte;
	unsigned n;

	(void)state;
	open_pair(pair);
	n = n_open();
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(16 * sizeof(int));
	memset(CMSG_DATA(header), 0, 16 * sizeof(int)); /* sixteen times descriptor 0 */
	assert_int_equal(sendmsg(pair[0], &message, 0), 1);
	assert_int_equal(packet_recv(pair[1], &byte, 1, got, &n_fds), -EMSGSIZE);
	assert_int_equal(n_open(), n);
	close_pair(pair);
}

static void test_a_packet_that_is_too_long_is_refused_with_its_descriptor(void **state)
{
	int pair[2];
	int got[1];
	int zero = 0;
	size_t n_fds = 1;
	char bytes[4];
	unsigned n;

	(void)state;
	open_pair(pair);
	n = n_open();
	assert_int_equal(packet_send(pair[0], "12345", 5, &zero, 1), 0);
	assert_int_equal(packet_recv(pair[1], bytes, 4, got, &n_fds), -EMSGSIZE);
	assert_int_equal(packet_send(pair[0], "1234", 4, NULL, 0), 0);
	assert_int_equal(packet_recv(pair[1], bytes, 4, NULL, NULL), 4);
	assert_int_equal(n_open(), n);
	close_pair(pair);
}

static void test_a_full_pair_says_again_and_loses_nothing(void **state)
{
	static char big[128 * 1024];
	int pair[2];
	unsigned n_sent = 0;
	unsigned n_got = 0;
	int rc;

	(void)state;
	open_pair(pair);
	while ((rc = packet_send(pair[0], big, sizeof(big), NULL, 0)) == 0)
		n_sent++;
	assert_int_equal(rc, -EAGAIN);
	assert_true(n_sent >= 1);
	while (packet_recv(pair[1], big, sizeof(big), NULL, NULL) == sizeof(big))
		n_got++;
	assert_int_equal(n_got, n_sent);
	assert_int_equal(packet_send(pair[0], big, sizeof(big), NULL, 0), 0);
	close_pair(pair);
}

static void test_the_end_is_told(void **state)
{
	int pair[2];
	char byte;

	(void)state;
	open_pair(pair);
	assert_int_equal(packet_recv_wait(pair[1], &byte, 1, 1), -ETIMEDOUT);
	close(pair[0]);
	assert_int_equal(packet_recv(pair[1], &byte, 1, NULL, NULL), 0);
	assert_int_equal(packet_recv_wait(pair[1], &byte, 1, 1000), 0);
	assert_int_equal(packet_send(pair[1], "x", 1, NULL, 0), -EPIPE);
	close(pair[1]);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("bytes and descriptors arrive", test_bytes_and_descriptors_arrive),
	KT_TEST("more descriptors than wanted are closed",
		test_more_descriptors_than_wanted_are_closed),
	KT_TEST("sixteen descriptors are refused without a leak",
		test_sixteen_descriptors_are_refused_without_a_leak),
	KT_TEST("a packet that is too long is refused with its descriptor",
		test_a_packet_that_is_too_long_is_refused_with_its_descriptor),
	KT_TEST("a full pair says again and loses nothing",
		test_a_full_pair_says_again_and_loses_nothing),
	KT_TEST("the end is told", test_the_end_is_told),
};

KT_MAIN(tests)
