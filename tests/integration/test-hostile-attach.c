/*
 * Peers on the attach socket of a real daemon that do not keep to the order, or to any: whatever
 * they do, they get a status or the end of the connection, the core keeps no descriptor of theirs
 * and is the process that it was, and good clients are served.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/daemon.h"
#include "tests/support/raw_client.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define N_SILENT 1000
#define WAIT_MS 10000

static struct kt_daemon *daemon_;
static struct raw_client *good;
static pid_t core_pid;
static unsigned n_fds_before;

/* ---- how it stands ------------------------------------------------------------------------ */

static unsigned count_fds(void)
{
	char path[64];
	unsigned n = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", core_pid);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static bool fds_are_back(void *arg)
{
	(void)arg;
	return count_fds() <= n_fds_before;
}

static int start(void **state)
{
	(void)state;
	daemon_ = kt_daemon_start(NULL);
	return daemon_ ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	return kt_daemon_stop(daemon_);
}

static int before(void **state)
{
	(void)state;
	core_pid = kt_daemon_core(daemon_);
	good = raw_attach(kt_daemon_dir(daemon_));
	n_fds_before = count_fds();
	return 0;
}

/* Each test ends here. A new client is served, too. */
static int after(void **state)
{
	struct raw_client *other;

	(void)state;
	assert_int_equal(kt_daemon_core(daemon_), core_pid);
	assert_int_equal(raw_noop(good), KV_OK);
	other = raw_attach(kt_daemon_dir(daemon_));
	assert_int_equal(raw_noop(other), KV_OK);
	raw_bye(other);
	raw_free(other);
	assert_true(kt_wait_until(fds_are_back, NULL, WAIT_MS));
	raw_free(good);
	return 0;
}

/* ---- messages ----------------------------------------------------------------------------- */

static size_t put_arena_get(uint8_t *bytes, uint32_t arena)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__ArenaGet get = KV__WIRE__ARENA_GET__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET;
	request.arena_get = &get;
	get.arena = arena;
	return raw_pack_attach(&request, bytes);
}

static size_t put_watch(uint8_t *bytes, const char *name)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Watch watch = KV__WIRE__WATCH__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_WATCH;
	request.watch = &watch;
	watch.name = (char *)name;
	return raw_pack_attach(&request, bytes);
}

static size_t put_bye(uint8_t *bytes)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Bye bye = KV__WIRE__BYE__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_BYE;
	request.bye = &bye;
	return raw_pack_attach(&request, bytes);
}

static size_t put_hello(uint8_t *bytes)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello hello = KV__WIRE__HELLO__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &hello;
	return raw_pack_attach(&request, bytes);
}

/* Says it with descriptors and takes the status, or RAW_SILENT. */
static int say(int fd, const void *bytes, size_t n, const int *fds, size_t n_fds)
{
	if (raw_send(fd, bytes, n, fds, n_fds))
		return RAW_SILENT;
	return raw_receive_status(fd);
}

static int watch_with(int fd, const char *name, int watch_fd)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	return say(fd, bytes, put_watch(bytes, name), &watch_fd, 1);
}

static int arena_get(int fd, uint32_t arena)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	return say(fd, bytes, put_arena_get(bytes, arena), NULL, 0);
}

/* A watch with one end of a good pair, which is closed. */
static int watch(int fd, const char *name)
{
	int pair[2], status;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	status = watch_with(fd, name, pair[1]);
	close(pair[0]);
	close(pair[1]);
	return status;
}

/* ---- tests -------------------------------------------------------------------------------- */

static void test_no_hello(void **state)
{
	int fd = raw_connect(kt_daemon_dir(daemon_));
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	(void)state;
	assert_int_equal(arena_get(fd, 1), KV_ESESSION);
	assert_int_equal(watch(fd, "a"), KV_ESESSION);
	assert_int_equal(raw_hello(fd, 0, NULL), KV_OK);
	assert_int_equal(arena_get(fd, 1), KV_ENOTFOUND);
	close(fd);
	fd = raw_connect(kt_daemon_dir(daemon_));
	assert_true(say(fd, bytes, put_bye(bytes), NULL, 0) != KV_OK);
	close(fd);
}

static void test_hello_twice(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	(void)state;
	assert_int_equal(say(c->attach, bytes, put_hello(bytes), NULL, 0), KV_EPROTO);
	assert_int_equal(raw_hello(c->attach, c->session, c->token), KV_EPROTO);
	assert_int_equal(raw_hello(c->attach, good->session, good->token), KV_EPROTO);
	assert_int_equal(raw_noop(c), KV_OK);
	raw_free(c);
}

static void test_bye_then_more(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	int status;

	(void)state;
	assert_int_equal(raw_send(c->attach, bytes, put_bye(bytes), NULL, 0), 0);
	raw_send(c->attach, bytes, put_arena_get(bytes, 1), NULL, 0); /* may be too late */
	assert_int_equal(raw_receive_status(c->attach), KV_OK);
	status = raw_receive_status(c->attach);
	assert_true(status == RAW_SILENT || status == KV_ESESSION);
	assert_int_equal(raw_hello(c->attach, 0, NULL), RAW_SILENT);
	assert_int_equal(raw_noop(c), KV_ESESSION);
	raw_free(c);
}

static void test_taking_up(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	uint8_t token[16];
	int fd, status;
	pid_t child;

	(void)state;
	memcpy(token, c->token, sizeof(token));
	token[15] ^= 1;
	fd = raw_connect(kt_daemon_dir(daemon_));
	assert_int_equal(raw_hello(fd, c->session, token), KV_ESESSION);
	assert_int_equal(raw_hello(fd, c->session, NULL), KV_ESESSION);
	assert_int_equal(raw_hello(fd, c->session, good->token), KV_ESESSION);
	assert_int_equal(raw_hello(fd, UINT64_MAX, c->token), KV_ESESSION);
	child = fork();
	if (child == 0) /* knows the token, is not the process */
		_exit(raw_hello(raw_connect(kt_daemon_dir(daemon_)), c->session, c->token));
	assert_int_equal(kt_wait_child(child, WAIT_MS, &status), 0);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), KV_ESESSION);
	assert_int_equal(raw_noop(c), KV_OK);
	/* the process itself, whose old connection is still there */
	assert_int_equal(raw_hello(fd, c->session, c->token), KV_OK);
	assert_int_equal(raw_receive_status(c->attach), RAW_SILENT);
	assert_int_equal(raw_noop(c), KV_OK);
	close(fd);
	raw_free(c);
}

static void test_descriptors(void **state)
{
	int many[16];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	(void)state;
	for (size_t i = 0; i < 16; i++)
		many[i] = null;
	for (size_t n = 1; n <= 16; n++) {
		int fd = raw_connect(kt_daemon_dir(daemon_));

		assert_int_equal(say(fd, bytes, put_hello(bytes), many, n), KV_EPROTO);
		assert_int_equal(raw_receive_status(fd), RAW_SILENT);
		close(fd);
	}
	close(null);
}

static int odd_descriptor(int kind)
{
	int fds[2];

	switch (kind) {
	case 0: return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 1: return open("/", O_PATH | O_CLOEXEC);
	case 2: return eventfd(0, EFD_CLOEXEC);
	case 3: return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 4: return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	case 5: assert_int_equal(pipe2(fds, O_CLOEXEC), 0); break;
	case 6:
		assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
		break;
	case 7: assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, fds), 0); break;
	default: return raw_connect(kt_daemon_dir(daemon_));
	}
	close(fds[0]);
	return fds[1];
}

static void test_wrong_kind(void **state)
{
	(void)state;
	for (int kind = 0; kind <= 8; kind++) {
		struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
		int odd = odd_descriptor(kind);

		assert_true(odd >= 0);
		assert_int_equal(watch_with(c->attach, "a", odd), KV_EPROTO);
		assert_int_equal(raw_receive_status(c->attach), RAW_SILENT);
		close(odd);
		raw_free(c);
	}
}

static void test_watches(void **state)
{
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));
	char long_name[KV_NAME_BYTES_MAX + 2];

	(void)state;
	memset(long_name, 'n', sizeof(long_name));
	long_name[KV_NAME_BYTES_MAX + 1] = '\0';
	assert_int_equal(watch(c->attach, ""), KV_ENAME);
	assert_int_equal(watch(c->attach, "no spaces"), KV_ENAME);
	assert_int_equal(watch(c->attach, long_name), KV_ENAME);
	long_name[KV_NAME_BYTES_MAX] = '\0';
	for (unsigned i = 0; i < KV_WATCHES_MAX; i++)
		assert_int_equal(watch(c->attach, long_name), KV_OK);
	assert_int_equal(watch(c->attach, long_name), KV_ELIMIT);
	assert_int_equal(raw_noop(c), KV_OK);
	raw_free(c);
}

static void test_arena_numbers(void **state)
{
	static const uint32_t numbers[] = {0, 1, KV_ARENAS_MAX - 1, KV_ARENAS_MAX, UINT32_MAX};
	struct raw_client *c = raw_attach(kt_daemon_dir(daemon_));

	(void)state;
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		assert_int_equal(arena_get(c->attach, numbers[i]), KV_ENOTFOUND);
	assert_int_equal(raw_noop(c), KV_OK);
	raw_free(c);
}

/* Every beginning of a message, after Hello and before. */
static void test_half_a_message(void **state)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	size_t n = put_watch(bytes, "some/name");

	(void)state;
	for (size_t cut = 1; cut < n; cut++) {
		int fd = raw_connect(kt_daemon_dir(daemon_));
		int status;

		if (cut % 2)
			assert_int_equal(raw_hello(fd, 0, NULL), KV_OK);
		status = say(fd, bytes, cut, NULL, 0);
		assert_true(status == KV_EPROTO || status == KV_EVERSION);
		assert_int_equal(raw_receive_status(fd), RAW_SILENT);
		close(fd);
	}
}

static void test_size(void **state)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX + 1];
	size_t n = put_hello(bytes);
	size_t left = KV_ATTACH_BYTES_MAX - n - 4;
	int fd = raw_connect(kt_daemon_dir(daemon_));

	(void)state;
	/* field 99, of the bytes that are left */
	bytes[n++] = 0x9a;
	bytes[n++] = 0x06;
	bytes[n++] = (uint8_t)(left | 0x80);
	bytes[n++] = (uint8_t)(left >> 7);
	memset(bytes + n, 0, sizeof(bytes) - n);
	assert_int_equal(say(fd, bytes, KV_ATTACH_BYTES_MAX, NULL, 0), KV_OK);
	close(fd);
	fd = raw_connect(kt_daemon_dir(daemon_));
	assert_int_equal(say(fd, bytes, KV_ATTACH_BYTES_MAX + 1, NULL, 0), KV_EPROTO);
	close(fd);
	fd = raw_connect(kt_daemon_dir(daemon_));
	assert_int_equal(raw_send(fd, bytes, 0, NULL, 0), 0); /* empty: the end */
	assert_int_equal(raw_receive_status(fd), RAW_SILENT);
	close(fd);
}

static void test_silent(void **state)
{
	static int fds[N_SILENT];
	struct rlimit limit;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < 2 * N_SILENT)
		kt_skip("only %llu descriptors are allowed", (unsigned long long)limit.rlim_max);
	limit.rlim_cur = limit.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (int i = 0; i < N_SILENT; i++) {
		fds[i] = raw_connect(kt_daemon_dir(daemon_));
		if (i % 100 == 0)
			assert_int_equal(raw_noop(good), KV_OK);
	}
	assert_int_equal(raw_noop(good), KV_OK);
	for (int i = 0; i < N_SILENT; i++)
		close(fds[i]);
	/* who comes now waits behind a thousand that have gone, and is served */
	assert_true(kt_wait_until(fds_are_back, NULL, WAIT_MS));
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, before, after)

static const struct CMUnitTest tests[] = {
	TEST("without Hello nothing is given, and Hello still works", test_no_hello),
	TEST("Hello twice is refused and the session stays", test_hello_twice),
	TEST("after Bye nothing is heard any more", test_bye_then_more),
	TEST("a session is taken up by its own process with its token only", test_taking_up),
	TEST("descriptors that nobody asked for are closed", test_descriptors),
	TEST("a watch with a descriptor of a wrong kind is refused", test_wrong_kind),
	TEST("watches have good names, and are 64 at most", test_watches),
	TEST("arenas that are not the session's are not found", test_arena_numbers),
	TEST("an attach message cut short at any byte is refused", test_half_a_message),
	TEST("an attach message of 4096 bytes is taken, and one of a byte more is not", test_size),
	TEST("a thousand connections that say nothing hold up nobody", test_silent),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start, stop};

	return kt_run(argc, argv, &group, 1);
}
