#include "tests/unit/client-fake.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define CONNS 16

struct fake {
	pthread_mutex_t lock;
	pthread_t thread;
	char *dir;
	int wake_fd;
	bool stopping, restarting, dying;
	int listen_fd;
	int conns[CONNS];
	int conn_now; /* that an attach script answers */
	int rep;
	int rep_fd;
	uint8_t boot[16];
	uint8_t token[16];
	struct segment segment;
	fake_script *script;
	fake_attach_script *attach_script;
	void *arg;
	struct fake_heard heard[FAKE_HEARD];
	size_t n_heard;
	unsigned n_hellos;
};

const char *fake_dir(const struct fake *fake)
{
	return fake->dir;
}

void *fake_arg(const struct fake *fake)
{
	return fake->arg;
}

const uint8_t *fake_boot(const struct fake *fake)
{
	return fake->boot;
}

struct segment *fake_segment(struct fake *fake)
{
	return &fake->segment;
}

/* ---- attach socket ----------------------------------------------------------------------- */

static void send_attach(int conn, const Kv__Wire__AttachReply *reply, const int *fds,
			unsigned n_fds)
{
	uint8_t bytes[4096];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int) * 4)];
	} control = {0};
	struct iovec part = {bytes, kv__wire__attach_reply__pack(reply, bytes)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (n_fds) {
		message.msg_control = control.space;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
	}
	sendmsg(conn, &message, MSG_NOSIGNAL);
}

static void answer_attach(struct fake *fake, int conn, const Kv__Wire__AttachRequest *request)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;
	Kv__Wire__Welcome welcome = KV__WIRE__WELCOME__INIT;
	int fds[4];
	unsigned n_fds = 0;
	bool answer = true;

	reply.version = KV_PROTOCOL_VERSION;
	reply.shm_version = KV_SHM_VERSION;
	reply.boot = (ProtobufCBinaryData){16, fake->boot};
	if (request->what_case == KV__WIRE__ATTACH_REQUEST__WHAT_HELLO) {
		fake->n_hellos++;
		reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_WELCOME;
		reply.welcome = &welcome;
		welcome.session = FAKE_SESSION;
		welcome.token = (ProtobufCBinaryData){16, fake->token};
		welcome.segment_bytes = KV_SHM_BYTES;
		if (request->hello->session == 0)
			fds[n_fds++] = dup(fake->segment.fd);
	}
	fake->conn_now = conn;
	if (fake->attach_script)
		answer = fake->attach_script(fake, request, &reply, fds, &n_fds);
	if (answer)
		send_attach(conn, &reply, fds, n_fds);
	for (unsigned i = 0; i < n_fds; i++)
		close(fds[i]);
}

void fake_attach_send(struct fake *fake, const Kv__Wire__AttachReply *reply)
{
	send_attach(fake->conn_now, reply, NULL, 0);
}

static void on_conn(struct fake *fake, int *conn)
{
	uint8_t bytes[4096];
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {bytes, sizeof(bytes)};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	ssize_t n = recvmsg(*conn, &message, MSG_CMSG_CLOEXEC);
	Kv__Wire__AttachRequest *request;
	int passed;

	if (n <= 0) {
		close(*conn);
		*conn = -1;
		return;
	}
	if (CMSG_FIRSTHDR(&message)) {
		memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(passed));
		close(passed);
	}
	request = kv__wire__attach_request__unpack(NULL, (size_t)n, bytes);
	if (request) {
		answer_attach(fake, *conn, request);
		kv__wire__attach_request__free_unpacked(request, NULL);
	}
}

static void on_listen(struct fake *fake)
{
	int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	for (int i = 0; fd >= 0 && i < CONNS; i++) {
		if (fake->conns[i] >= 0)
			continue;
		fake->conns[i] = fd;
		return;
	}
	if (fd >= 0)
		close(fd);
}

/* ---- commands ---------------------------------------------------------------------------- */

static void remember(struct fake *fake, const Kv__Wire__Request *request)
{
	struct fake_heard *heard = &fake->heard[fake->n_heard % FAKE_HEARD];

	*heard = (struct fake_heard){
		.command = request->command_case,
		.session = request->session,
		.id = request->id,
		.acked = request->acked,
		.deadline_ms = request->deadline_ms,
	};
	if (request->token.len == 16)
		memcpy(heard->token, request->token.data, 16);
	if (request->boot.len == 16)
		memcpy(heard->boot, request->boot.data, 16);
	fake->n_heard++;
}

static void answer_default(struct fake *fake, const Kv__Wire__Request *request,
			   Kv__Wire__Reply *reply, Kv__Wire__WriterResult *writer)
{
	switch ((int)request->command_case) {
	case KV__WIRE__REQUEST__COMMAND_NOOP:
	case KV__WIRE__REQUEST__COMMAND_UNPIN:
	case KV__WIRE__REQUEST__COMMAND_RELEASE:
	case KV__WIRE__REQUEST__COMMAND_SEQ_DROP:
	case KV__WIRE__REQUEST__COMMAND_WRITER_FREE: break;
	case KV__WIRE__REQUEST__COMMAND_WRITER_NEW:
		segment_writer_init(&fake->segment, 0);
		reply->result_case = KV__WIRE__REPLY__RESULT_WRITER;
		reply->writer = writer;
		break;
	default: reply->status = KV_EUNSUPPORTED;
	}
}

static void answer_request(struct fake *fake, const Kv__Wire__Request *request)
{
	static struct fake_reply answer;
	static uint8_t packed[512 * 1024];
	Kv__Wire__WriterResult writer = KV__WIRE__WRITER_RESULT__INIT;
	enum fake_answer how = FAKE_DEFAULT;

	kv__wire__reply__init(&answer.reply);
	answer.reply.version = KV_PROTOCOL_VERSION;
	answer.reply.session = request->session;
	answer.reply.id = request->id;
	answer.reply.boot = (ProtobufCBinaryData){16, fake->boot};
	if (fake->script)
		how = fake->script(fake, request, &answer);
	if (how == FAKE_DEFAULT)
		answer_default(fake, request, &answer.reply, &writer);
	if (how == FAKE_SILENT)
		return;
	if (how == FAKE_BYTES)
		nn_send(fake->rep, answer.bytes, answer.n_bytes, NN_DONTWAIT);
	else
		nn_send(fake->rep, packed, kv__wire__reply__pack(&answer.reply, packed),
			NN_DONTWAIT);
}

static void on_request(struct fake *fake)
{
	uint8_t *body;
	int n;

	while ((n = nn_recv(fake->rep, &body, NN_MSG, NN_DONTWAIT)) >= 0) {
		Kv__Wire__Request *request = kv__wire__request__unpack(NULL, (size_t)n, body);

		nn_freemsg(body);
		if (!request)
			continue;
		remember(fake, request);
		answer_request(fake, request);
		kv__wire__request__free_unpacked(request, NULL);
	}
}

/* ---- the thread -------------------------------------------------------------------------- */

static void close_conns(struct fake *fake)
{
	for (int i = 0; i < CONNS; i++) {
		if (fake->conns[i] >= 0)
			close(fake->conns[i]);
		fake->conns[i] = -1;
	}
}

static void on_wake(struct fake *fake)
{
	eventfd_t count;

	eventfd_read(fake->wake_fd, &count);
	if (fake->restarting || fake->dying)
		close_conns(fake);
	if (fake->restarting)
		fake->boot[0]++;
	if (fake->dying && fake->listen_fd >= 0) {
		close(fake->listen_fd);
		fake->listen_fd = -1;
	}
	fake->restarting = fake->dying = false;
}

static void *fake_main(void *arg)
{
	struct fake *fake = arg;

	for (;;) {
		struct pollfd p[CONNS + 3] = {{fake->wake_fd, POLLIN, 0},
					      {fake->listen_fd, POLLIN, 0},
					      {fake->rep_fd, POLLIN, 0}};

		for (int i = 0; i < CONNS; i++)
			p[3 + i] = (struct pollfd){fake->conns[i], POLLIN, 0};
		poll(p, CONNS + 3, -1);
		pthread_mutex_lock(&fake->lock);
		if (p[0].revents)
			on_wake(fake);
		if (fake->stopping) {
			pthread_mutex_unlock(&fake->lock);
			return NULL;
		}
		if (p[1].revents && fake->listen_fd >= 0)
			on_listen(fake);
		for (int i = 0; i < CONNS; i++)
			if (p[3 + i].revents && fake->conns[i] == p[3 + i].fd &&
			    fake->conns[i] >= 0)
				on_conn(fake, &fake->conns[i]);
		if (p[2].revents)
			on_request(fake);
		pthread_mutex_unlock(&fake->lock);
	}
}

static int listen_at(const char *dir)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s/attach.sock", dir);
	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 16), 0);
	return fd;
}

struct fake *fake_new(void)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	size_t size = sizeof(fake->rep_fd);
	char address[256];

	assert_non_null(fake);
	pthread_mutex_init(&fake->lock, NULL);
	memset(fake->conns, -1, sizeof(fake->conns));
	memset(fake->boot, 0xb0, sizeof(fake->boot));
	memset(fake->token, 0x70, sizeof(fake->token));
	fake->dir = kt_tmpdir_new();
	fake->wake_fd = eventfd(0, EFD_CLOEXEC);
	fake->listen_fd = listen_at(fake->dir);
	assert_int_equal(segment_make(&fake->segment, FAKE_SESSION, NULL), 0);
	snprintf(address, sizeof(address), "ipc://%s/command.sock", fake->dir);
	fake->rep = nn_socket(AF_SP, NN_REP);
	assert_true(fake->rep >= 0 && nn_bind(fake->rep, address) >= 0);
	assert_int_equal(nn_getsockopt(fake->rep, NN_SOL_SOCKET, NN_RCVFD, &fake->rep_fd, &size),
			 0);
	assert_int_equal(pthread_create(&fake->thread, NULL, fake_main, fake), 0);
	return fake;
}

static void wake(struct fake *fake, bool *flag)
{
	pthread_mutex_lock(&fake->lock);
	*flag = true;
	pthread_mutex_unlock(&fake->lock);
	eventfd_write(fake->wake_fd, 1);
}

void fake_free(struct fake *fake)
{
	wake(fake, &fake->stopping);
	pthread_join(fake->thread, NULL);
	close_conns(fake);
	if (fake->listen_fd >= 0)
		close(fake->listen_fd);
	nn_close(fake->rep);
	close(fake->wake_fd);
	segment_fini(&fake->segment);
	kt_tmpdir_free(fake->dir);
	pthread_mutex_destroy(&fake->lock);
	free(fake);
}

void fake_set_script(struct fake *fake, fake_script *script, fake_attach_script *attach, void *arg)
{
	pthread_mutex_lock(&fake->lock);
	fake->script = script;
	fake->attach_script = attach;
	fake->arg = arg;
	pthread_mutex_unlock(&fake->lock);
}

struct flag {
	struct fake *fake;
	bool *value;
};

static bool flag_is_down(void *arg)
{
	struct flag *flag = arg;
	bool down;

	pthread_mutex_lock(&flag->fake->lock);
	down = !*flag->value;
	pthread_mutex_unlock(&flag->fake->lock);
	return down;
}

static void wake_and_wait(struct fake *fake, bool *value)
{
	struct flag flag = {fake, value};

	wake(fake, value);
	assert_true(kt_wait_until(flag_is_down, &flag, 5000));
}

void fake_restart(struct fake *fake)
{
	wake_and_wait(fake, &fake->restarting);
}

void fake_die(struct fake *fake)
{
	wake_and_wait(fake, &fake->dying);
}

/* ---- what was heard ---------------------------------------------------------------------- */

size_t fake_n_heard(struct fake *fake)
{
	size_t n;

	pthread_mutex_lock(&fake->lock);
	n = fake->n_heard;
	pthread_mutex_unlock(&fake->lock);
	return n;
}

struct fake_heard fake_heard(struct fake *fake, size_t i)
{
	struct fake_heard heard;

	pthread_mutex_lock(&fake->lock);
	assert_true(i < fake->n_heard && i + FAKE_HEARD > fake->n_heard);
	heard = fake->heard[i % FAKE_HEARD];
	pthread_mutex_unlock(&fake->lock);
	return heard;
}

unsigned fake_n_hellos(struct fake *fake)
{
	unsigned n;

	pthread_mutex_lock(&fake->lock);
	n = fake->n_hellos;
	pthread_mutex_unlock(&fake->lock);
	return n;
}

struct wanted {
	struct fake *fake;
	size_t n;
};

static bool has_heard(void *arg)
{
	struct wanted *wanted = arg;

	return fake_n_heard(wanted->fake) >= wanted->n;
}

void fake_wait_heard(struct fake *fake, size_t n)
{
	struct wanted wanted = {fake, n};

	assert_true(kt_wait_until(has_heard, &wanted, 5000));
}

/* ---- shorthands -------------------------------------------------------------------------- */

struct kvc_session *fake_open_with(struct fake *fake, uint32_t deadline_ms, uint32_t resend_ms)
{
	struct kvc_session *session = session_open(fake_dir(fake), deadline_ms, resend_ms);

	if (!session)
		fail_msg("session_open: %s", kvc_error_text());
	return session;
}

struct kvc_session *fake_open(struct fake *fake)
{
	return fake_open_with(fake, FAKE_DEADLINE_MS, 1000);
}

void assert_ping(struct kvc_session *session)
{
	if (kvc_ping(session) != 0)
		fail_msg("ping: %s: %s", kvc_status_name(kvc_error()), kvc_error_text());
}

void assert_status(int rc, int status)
{
	assert_int_equal(rc, -1);
	if (kvc_error() != status)
		fail_msg("%s (%s), not %s", kvc_status_name(kvc_error()), kvc_error_text(),
			 kvc_status_name(status));
}
