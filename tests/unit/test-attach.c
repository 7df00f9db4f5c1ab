/*
 * The attach socket: what the core hears of, and what is answered before it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/packet.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"
#include "tests/unit/echo-core.h"

#define WAIT_MS 20000

static struct echo_daemon daemon_;
static int fd; /* a connection of the running test */

static int connect_attach(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(sock >= 0);
	strcpy(address.sun_path, daemon_.paths.attach);
	assert_int_equal(connect(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

static int start(void **state)
{
	(void)state;
	echo_start(&daemon_);
	fd = connect_attach();
	return 0;
}

static int stop(void **state)
{
	int status;

	(void)state;
	close(fd);
	assert_int_equal(echo_ask_who(&daemon_).life, 1);
	status = echo_stop(&daemon_);
	echo_fini(&daemon_);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

static void say(const Kv__Wire__AttachRequest *request, const int *fds, size_t n_fds)
{
	uint8_t bytes[8192];
	size_t n = kv__wire__attach_request__pack(request, bytes);

	assert_int_equal(packet_send(fd, bytes, n, fds, n_fds), 0);
}

/* The next reply; NULL if the connection is closed instead. The caller frees it. */
static Kv__Wire__AttachReply *hear(int *got, size_t *n_got)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	Kv__Wire__AttachReply *reply;
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	size_t none = 0;
	ssize_t n;

	assert_int_equal(poll(&p, 1, (int)kt_scale_ms(WAIT_MS)), 1);
	n = packet_recv(fd, bytes, sizeof(bytes), got, n_got ? n_got : &none);
	if (n == 0 || n == -ECONNRESET)
		return NULL;
	assert_true(n > 0);
	reply = kv__wire__attach_reply__unpack(NULL, (size_t)n, bytes);
	assert_non_null(reply);
	assert_int_equal(reply->version, KV_PROTOCOL_VERSION);
	assert_int_equal(reply->shm_version, KV_SHM_VERSION);
	assert_int_equal(reply->boot.len, 16);
	return reply;
}

static void drop(Kv__Wire__AttachReply *reply)
{
	kv__wire__attach_reply__free_unpacked(reply, NULL);
}

/* A reply of this status, then the end of the connection. */
static void assert_refused(int status, const char *detail)
{
	Kv__Wire__AttachReply *reply = hear(NULL, NULL);

	assert_non_null(reply);
	assert_int_equal(reply->status, status);
	assert_non_null(strstr(reply->detail, detail));
	drop(reply);
	assert_null(hear(NULL, NULL));
	assert_string_equal(echo_ask(&daemon_, "gone"), "0"); /* the core never heard of it */
}

static Kv__Wire__AttachRequest request_of(int what)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	static Kv__Wire__Hello hello;
	static Kv__Wire__Watch watch;
	static Kv__Wire__Bye bye;

	kv__wire__hello__init(&hello);
	kv__wire__watch__init(&watch);
	kv__wire__bye__init(&bye);
	request.version = KV_PROTOCOL_VERSION;
	request.shm_version = KV_SHM_VERSION;
	request.what_case = (Kv__Wire__AttachRequest__WhatCase)what;
	if (what == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO)
		request.hello = &hello;
	else if (what == KV__WIRE__ATTACH_REQUEST__WHAT_WATCH)
		request.watch = &watch;
	else if (what == KV__WIRE__ATTACH_REQUEST__WHAT_BYE)
		request.bye = &bye;
	return request;
}

#define HELLO KV__WIRE__ATTACH_REQUEST__WHAT_HELLO
#define WATCH KV__WIRE__ATTACH_REQUEST__WHAT_WATCH
#define BYE KV__WIRE__ATTACH_REQUEST__WHAT_BYE

static bool one_gone(void *arg)
{
	(void)arg;
	return strcmp(echo_ask(&daemon_, "gone"), "1") == 0;
}

static void test_hello_is_answered_with_a_descriptor(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(HELLO);
	Kv__Wire__AttachReply *reply;
	size_t n_got = 1;
	int got = -1;
	char byte = 0;

	(void)state;
	say(&request, NULL, 0);
	reply = hear(&got, &n_got);
	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	assert_int_equal(reply->what_case, KV__WIRE__ATTACH_REPLY__WHAT_WELCOME);
	assert_int_equal(reply->welcome->session, getpid()); /* the pid of the credentials */
	assert_int_equal(n_got, 1);
	assert_int_equal(pread(got, &byte, 1, 0), 1);
	assert_int_equal(byte, 'h');
	close(got);
	drop(reply);
	assert_string_equal(echo_ask(&daemon_, "gone"), "0");
	close(fd);
	assert_true(kt_wait_until(one_gone, NULL, WAIT_MS));
	fd = connect_attach();
}

static void test_bye_ends_without_a_word(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(BYE);

	(void)state;
	say(&request, NULL, 0);
	assert_null(hear(NULL, NULL));
	assert_string_equal(echo_ask(&daemon_, "gone"), "0");
}

static void test_malformed_bytes_are_refused(void **state)
{
	(void)state;
	assert_int_equal(packet_send(fd, "\xff\xff\xff", 3, NULL, 0), 0);
	assert_refused(KV_EPROTO, "malformed");
}

static void test_another_version_is_refused_with_both_numbers(void **state)
{
	Kv__Wire__AttachRequest request = request_of(HELLO);

	(void)state;
	request.version = 99;
	request.shm_version = 98;
	say(&request, NULL, 0);
	assert_refused(KV_EVERSION,
		       "client speaks protocol 99 and shared memory 98, daemon 1 and 2");
}

static void test_another_shared_memory_alone_is_refused(void **state)
{
	Kv__Wire__AttachRequest request = request_of(HELLO);

	(void)state;
	request.shm_version = 1;
	say(&request, NULL, 0);
	assert_refused(KV_EVERSION, "protocol 1 and shared memory 1");
}

static void test_a_message_without_content_is_refused(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(0);

	(void)state;
	say(&request, NULL, 0);
	assert_refused(KV_EPROTO, "without a known content");
}

static void test_a_message_above_the_limit_is_refused(void **state)
{
	static char bytes[KV_ATTACH_BYTES_MAX + 1];

	(void)state;
	assert_int_equal(packet_send(fd, bytes, sizeof(bytes), NULL, 0), 0);
	assert_refused(KV_EPROTO, "at most 4096 bytes");
}

static void test_two_descriptors_are_refused(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(WATCH);
	const int fds[2] = {0, 1};

	(void)state;
	say(&request, fds, 2);
	assert_refused(KV_EPROTO, "one descriptor");
}

static void test_a_descriptor_that_nobody_wants_is_refused_and_closed(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(HELLO);
	unsigned n_open = echo_ask_who(&daemon_).n_open;
	int zero = 0;

	(void)state;
	say(&request, &zero, 1);
	assert_refused(KV_EPROTO, "without a descriptor");
	assert_int_equal(echo_ask_who(&daemon_).n_open, n_open - 2); /* connection and pidfd */
}

static void test_a_watch_with_a_socket_comes_true(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(WATCH);
	Kv__Wire__AttachReply *reply;
	char byte = 'x';
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	say(&request, &pair[1], 1);
	close(pair[1]);
	reply = hear(NULL, NULL);
	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	drop(reply);
	assert_int_equal(read(pair[0], &byte, 1), 1);
	assert_int_equal(byte, 0);
	close(pair[0]);
}

static void test_a_watch_with_an_eventfd_is_refused(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(WATCH);
	int event = eventfd(0, 0);

	(void)state;
	say(&request, &event, 1);
	close(event);
	assert_refused(KV_EPROTO, "stream sockets");
}

static void test_a_watch_without_a_socket_is_refused(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(WATCH);

	(void)state;
	say(&request, NULL, 0);
	assert_refused(KV_EPROTO, "stream sockets");
}

static void test_who_says_nothing_is_closed(void **state)
{
	int64_t begun_ms = kt_now_ms();

	(void)state;
	assert_null(hear(NULL, NULL));
	assert_true(kt_now_ms() - begun_ms >= ATTACH_WAITING_MS - 1000);
}

static bool is_closed(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLIN};

	return poll(&p, 1, (int)kt_scale_ms(WAIT_MS)) == 1 && (p.revents & POLLHUP) != 0;
}

static void test_a_user_has_so_many_waiting_connections_and_no_more(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(HELLO);
	int waiting[ATTACH_WAITING_PER_USER];
	Kv__Wire__AttachReply *reply;
	size_t n_got = 1;
	int got;

	(void)state;
	for (unsigned i = 0; i < ATTACH_WAITING_PER_USER - 1; i++)
		waiting[i] = connect_attach(); /* with fd: as many as allowed */
	waiting[ATTACH_WAITING_PER_USER - 1] = connect_attach();
	assert_true(is_closed(waiting[ATTACH_WAITING_PER_USER - 1]));
	close(waiting[ATTACH_WAITING_PER_USER - 1]);
	/* One that belongs to a session does not count any more. */
	say(&request, NULL, 0);
	reply = hear(&got, &n_got);
	assert_non_null(reply);
	assert_int_equal(reply->status, KV_OK);
	drop(reply);
	close(got);
	waiting[ATTACH_WAITING_PER_USER - 1] = fd;
	fd = connect_attach();
	n_got = 1;
	say(&request, NULL, 0);
	reply = hear(&got, &n_got);
	assert_non_null(reply);
	drop(reply);
	close(got);
	close(waiting[ATTACH_WAITING_PER_USER - 1]);
	for (unsigned i = 0; i < ATTACH_WAITING_PER_USER - 1; i++)
		close(waiting[i]);
}

/* Asks and asks and reads nothing: it is closed, others are served. */
static void test_who_does_not_read_replies_is_closed(void **state)
{
	const Kv__Wire__AttachRequest request = request_of(HELLO);
	uint8_t bytes[256];
	size_t n = kv__wire__attach_request__pack(&request, bytes);
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int rc = 0;

	(void)state;
	for (int i = 0; i < 100000 && (rc == 0 || rc == -EAGAIN); i++) {
		rc = packet_send(fd, bytes, n, NULL, 0);
		if (rc == -EAGAIN)
			poll(&p, 1, 100);
	}
	assert_true(rc == -EPIPE || rc == -ECONNRESET);
	assert_true(kt_wait_until(one_gone, NULL, WAIT_MS));
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, start, stop)

static const struct CMUnitTest tests[] = {
	TEST("hello is answered with a descriptor, and the hang-up told once",
	     test_hello_is_answered_with_a_descriptor),
	TEST("bye ends without a word", test_bye_ends_without_a_word),
	TEST("malformed bytes are refused", test_malformed_bytes_are_refused),
	TEST("another version is refused with both numbers",
	     test_another_version_is_refused_with_both_numbers),
	TEST("another shared memory alone is refused", test_another_shared_memory_alone_is_refused),
	TEST("a message without content is refused", test_a_message_without_content_is_refused),
	TEST("a message above the limit is refused", test_a_message_above_the_limit_is_refused),
	TEST("two descriptors are refused", test_two_descriptors_are_refused),
	TEST("a descriptor that nobody wants is refused and closed",
	     test_a_descriptor_that_nobody_wants_is_refused_and_closed),
	TEST("a watch with a socket comes true", test_a_watch_with_a_socket_comes_true),
	TEST("a watch with an eventfd is refused", test_a_watch_with_an_eventfd_is_refused),
	TEST("a watch without a socket is refused", test_a_watch_without_a_socket_is_refused),
	TEST("who says nothing is closed", test_who_says_nothing_is_closed),
	TEST("a user has so many waiting connections and no more",
	     test_a_user_has_so_many_waiting_connections_and_no_more),
	TEST("who does not read replies is closed", test_who_does_not_read_replies_is_closed),
};

KT_MAIN(tests)
