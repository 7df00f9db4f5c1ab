/*
 * The front under peers that do not speak nanomsg as it should be spoken: whatever they send, the
 * core does not notice, and others are served.
 */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pubsub.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/wait.h"
#include "tests/unit/echo-core.h"

#define PROTOCOL_REQ 0x30
#define PROTOCOL_SUB 0x21
#define N_IDLE 300

static struct echo_daemon daemon_;
static pid_t core;

static int start(void **state)
{
	(void)state;
	echo_start(&daemon_);
	core = echo_ask_who(&daemon_).pid;
	return 0;
}

/* Each test ends here: the core is the one that was there at first, and answers. */
static int stop(void **state)
{
	struct echo_who who = echo_ask_who(&daemon_);
	int status;

	(void)state;
	assert_int_equal(who.pid, core);
	assert_int_equal(who.life, 1);
	status = echo_stop(&daemon_);
	echo_fini(&daemon_);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -1;
}

/* A connected stream socket; the front may be away for a moment. */
static int raw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int64_t until_ms = kt_now_ms() + kt_scale_ms(10000);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(address.sun_path, path);
	while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		assert_true(kt_now_ms() < until_ms);
		poll(NULL, 0, 1);
	}
	return fd;
}

static void raw_send(int fd, const void *bytes, size_t n_bytes)
{
	/* A peer that hangs up in the middle makes a short count first. */
	if (send(fd, bytes, n_bytes, MSG_NOSIGNAL) < 0)
		assert_true(errno == EPIPE || errno == ECONNRESET);
}

/* Connected, and through nanomsg's handshake, with this or the next front. */
static int raw_open(const char *path, uint8_t protocol)
{
	const uint8_t hello[8] = {0, 'S', 'P', 0, 0, protocol, 0, 0};
	int64_t until_ms = kt_now_ms() + kt_scale_ms(10000);
	uint8_t answer[8];
	int fd;

	for (;;) {
		fd = raw_connect(path);
		raw_send(fd, hello, sizeof(hello));
		if (recv(fd, answer, sizeof(answer), MSG_WAITALL) == 8)
			return fd;
		close(fd);
		assert_true(kt_now_ms() < until_ms);
	}
}

/* Says it to the command socket, and lets another client be served meanwhile and afterwards. */
static void say_to_command(const void *bytes, size_t n_bytes)
{
	int fd = raw_open(daemon_.paths.command, PROTOCOL_REQ);

	raw_send(fd, bytes, n_bytes);
	assert_string_equal(echo_ask(&daemon_, "echo meanwhile"), "meanwhile");
	close(fd);
	assert_string_equal(echo_ask(&daemon_, "echo after"), "after");
}

static void test_a_wrong_frame_type(void **state)
{
	const uint8_t bytes[] = {0x77, 0, 0, 0, 0, 0, 0, 0, 4};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_two_to_the_62_bytes_declared(void **state)
{
	const uint8_t bytes[] = {1, 0x40, 0, 0, 0, 0, 0, 0, 0};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_a_body_that_never_comes(void **state)
{
	const uint8_t bytes[] = {1, 0, 0, 0, 0, 0, 1, 0, 0};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_a_body_shorter_than_a_request_id(void **state)
{
	const uint8_t bytes[] = {1, 0, 0, 0, 0, 0, 0, 0, 2, 1, 1};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_an_empty_body(void **state)
{
	const uint8_t bytes[] = {1, 0, 0, 0, 0, 0, 0, 0, 0};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_a_stack_without_an_end(void **state)
{
	uint8_t bytes[9 + 400] = {1, 0, 0, 0, 0, 0, 0, 400 >> 8, 400 & 255};

	(void)state;
	say_to_command(bytes, sizeof(bytes));
}

static void test_a_stack_of_a_hundred_hops(void **state)
{
	uint8_t bytes[9 + 404] = {1, 0, 0, 0, 0, 0, 0, 404 >> 8, 404 & 255};

	(void)state;
	bytes[9 + 396] = 0x80; /* the end, and four bytes of request behind it */
	say_to_command(bytes, sizeof(bytes));
}

static void test_half_a_handshake(void **state)
{
	int fd = raw_connect(daemon_.paths.command);

	(void)state;
	raw_send(fd, "\0SP", 3);
	assert_string_equal(echo_ask(&daemon_, "echo meanwhile"), "meanwhile");
	close(fd);
	fd = raw_connect(daemon_.paths.command);
	raw_send(fd, "GET / HT", 8);
	assert_string_equal(echo_ask(&daemon_, "echo again"), "again");
	close(fd);
}

static void test_a_message_into_the_pub_socket(void **state)
{
	const uint8_t bytes[] = {1, 0, 0, 0, 0, 0, 0, 0, 4, 'e', 'v', 'i', 'l'};
	const uint8_t empty[] = {1, 0, 0, 0, 0, 0, 0, 0, 0};
	int fd = raw_open(daemon_.paths.event, PROTOCOL_SUB);

	(void)state;
	raw_send(fd, bytes, sizeof(bytes));
	assert_string_equal(echo_ask(&daemon_, "echo after"), "after");
	close(fd);
	fd = raw_open(daemon_.paths.event, PROTOCOL_SUB);
	raw_send(fd, empty, sizeof(empty));
	assert_string_equal(echo_ask(&daemon_, "echo after"), "after");
	close(fd);
}

static void test_three_hundred_idle_connections(void **state)
{
	int fds[N_IDLE];

	(void)state;
	for (int i = 0; i < N_IDLE; i++)
		fds[i] = i % 2 ? raw_open(daemon_.paths.command, PROTOCOL_REQ) :
				 raw_connect(daemon_.paths.command);
	assert_string_equal(echo_ask(&daemon_, "echo still"), "still");
	for (int i = 0; i < N_IDLE; i++)
		close(fds[i]);
	assert_string_equal(echo_ask(&daemon_, "echo after"), "after");
}

static void test_random_bytes(void **state)
{
	uint8_t bytes[64];

	(void)state;
	srandom(11);
	for (int i = 0; i < 200; i++) {
		int fd = raw_open(i % 4 ? daemon_.paths.command : daemon_.paths.event,
				  i % 4 ? PROTOCOL_REQ : PROTOCOL_SUB);

		for (size_t b = 0; b < sizeof(bytes); b++)
			bytes[b] = (uint8_t)random();
		bytes[0] = 1;
		memset(bytes + 1, 0, 7); /* a size that fits, mostly */
		raw_send(fd, bytes, sizeof(bytes));
		close(fd);
	}
	assert_string_equal(echo_ask(&daemon_, "echo after"), "after");
}

static void test_a_request_at_the_limit_is_served_and_one_above_is_not(void **state)
{
	static uint8_t bytes[9 + 4 + KV_REQUEST_BYTES_MAX + 1];
	uint32_t n_bytes = 4 + KV_REQUEST_BYTES_MAX;
	uint8_t answer[9 + 4 + 3];
	int fd = raw_open(daemon_.paths.command, PROTOCOL_REQ);
	struct timeval limit = {.tv_sec = 20};

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	for (int over = 0; over < 2; over++) {
		memset(bytes, 0, sizeof(bytes));
		bytes[0] = 1;
		for (int i = 0; i < 4; i++)
			bytes[5 + i] = (uint8_t)((n_bytes + (uint32_t)over) >> (24 - 8 * i));
		bytes[9] = 0x80;
		memcpy(bytes + 13, "echo ok", 7);
		raw_send(fd, bytes, 9 + n_bytes + (size_t)over);
		if (over) {
			/* The connection is closed instead. */
			assert_true(recv(fd, answer, 1, 0) <= 0);
			break;
		}
		assert_int_equal(recv(fd, answer, sizeof(answer), MSG_WAITALL), sizeof(answer));
		assert_memory_equal(answer + 13, "ok", 3);
	}
	close(fd);
}

static void test_a_reply_at_the_limit_arrives(void **state)
{
	char request[32];

	(void)state;
	snprintf(request, sizeof(request), "big %u", KV_REQUEST_BYTES_MAX);
	assert_int_equal(strlen(echo_ask(&daemon_, request)), KV_REQUEST_BYTES_MAX);
}

static void test_events_reach_subscribers(void **state)
{
	char address[KV_SOCKET_PATH_MAX + 8];
	int interval_ms = 50;
	char event[16] = "";
	int subscriber = nn_socket(AF_SP, NN_SUB);
	int n = -1;

	(void)state;
	snprintf(address, sizeof(address), "ipc://%s", daemon_.paths.event);
	nn_setsockopt(subscriber, NN_SUB, NN_SUB_SUBSCRIBE, "", 0);
	nn_setsockopt(subscriber, NN_SOL_SOCKET, NN_RCVTIMEO, &interval_ms, sizeof(interval_ms));
	assert_true(nn_connect(subscriber, address) >= 0);
	for (int i = 0; i < 200 && n < 0; i++) { /* until it is connected */
		assert_string_equal(echo_ask(&daemon_, "event news"), "0");
		n = nn_recv(subscriber, event, sizeof(event), 0);
	}
	assert_int_equal(n, 4);
	assert_memory_equal(event, "news", 4);
	nn_close(subscriber);
}

/* The core stands still while 100 clients ask with 100 KiB each: all are answered afterwards. */
#define N_CLIENTS 100
static void test_a_core_that_stands_still_loses_nothing(void **state)
{
	static char big[100 * 1024] = "echo patience";
	int clients[N_CLIENTS];
	char answer[64];

	(void)state;
	assert_int_equal(kill(core, SIGSTOP), 0);
	for (int i = 0; i < N_CLIENTS; i++) {
		clients[i] = echo_connect(&daemon_);
		assert_int_equal(nn_send(clients[i], big, sizeof(big), 0), sizeof(big));
	}
	assert_int_equal(kill(core, SIGCONT), 0);
	for (int i = 0; i < N_CLIENTS; i++) {
		assert_int_equal(nn_recv(clients[i], answer, sizeof(answer), 0), 9);
		assert_string_equal(answer, "patience");
	}
	for (int i = 0; i < N_CLIENTS; i++)
		nn_close(clients[i]);
}

/* A client that asks for big replies and reads none holds up nobody. */
static void test_a_client_that_does_not_read_harms_nobody(void **state)
{
	uint8_t bytes[9 + 4 + 10] = {1, 0, 0, 0, 0, 0, 0, 0, 14, 0x80, 0, 0, 1};
	int fd = raw_open(daemon_.paths.command, PROTOCOL_REQ);

	(void)state;
	memcpy(bytes + 13, "big 131000", 10);
	for (int i = 0; i < 200; i++)
		raw_send(fd, bytes, sizeof(bytes));
	assert_string_equal(echo_ask(&daemon_, "echo quick"), "quick");
	close(fd);
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, start, stop)

static const struct CMUnitTest tests[] = {
	TEST("the core lives on after a wrong frame type", test_a_wrong_frame_type),
	TEST("the core lives on after 2^62 bytes declared", test_two_to_the_62_bytes_declared),
	TEST("the core lives on after a body that never comes", test_a_body_that_never_comes),
	TEST("the core lives on after a body shorter than a request id",
	     test_a_body_shorter_than_a_request_id),
	TEST("the core lives on after an empty body", test_an_empty_body),
	TEST("the core lives on after a stack without an end", test_a_stack_without_an_end),
	TEST("the core lives on after a stack of a hundred hops", test_a_stack_of_a_hundred_hops),
	TEST("the core lives on after half a handshake", test_half_a_handshake),
	TEST("the core lives on after a message into the PUB socket",
	     test_a_message_into_the_pub_socket),
	TEST("three hundred idle connections hold up nobody", test_three_hundred_idle_connections),
	TEST("the core lives on after random bytes", test_random_bytes),
	TEST("a request at the limit is served and one above is not",
	     test_a_request_at_the_limit_is_served_and_one_above_is_not),
	TEST("a reply at the limit arrives", test_a_reply_at_the_limit_arrives),
	TEST("events reach subscribers", test_events_reach_subscribers),
	TEST("a core that stands still loses nothing", test_a_core_that_stands_still_loses_nothing),
	TEST("a client that does not read harms nobody",
	     test_a_client_that_does_not_read_harms_nobody),
};

KT_MAIN(tests)
