/*
 * A client made by hand; see raw_client.h.
 */
#include "tests/support/raw_client.h"

#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/reqrep.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/runtime.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

#define ANSWER_MS 5000

/* ---- attach socket ------------------------------------------------------------------------ */

int raw_connect(const char *dir)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval limit = {.tv_sec = kt_scale_ms(ANSWER_MS) / 1000};
	struct kv_runtime paths;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(kv_runtime_paths(&paths, dir, NULL), 0);
	strcpy(address.sun_path, paths.attach);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

int raw_send(int fd, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(16 * sizeof(int))];
	} control = {0};
	struct iovec part = {.iov_base = (void *)bytes, .iov_len = n_bytes};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	assert_true(n_fds <= 16);
	if (n_fds) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, n_fds * sizeof(int));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)n_bytes ? 0 : -errno;
}

Kv__Wire__AttachReply *raw_receive(int fd)
{
	uint8_t bytes[KV_ATTACH_BYTES_MAX];
	Kv__Wire__AttachReply *reply;
	ssize_t n = recv(fd, bytes, sizeof(bytes), 0); /* descriptors beside it are dropped */

	if (n <= 0) {
		assert_true(n == 0 || errno == ECONNRESET);
		return NULL;
	}
	reply = kv__wire__attach_reply__unpack(NULL, (size_t)n, bytes);
	assert_non_null(reply);
	assert_int_equal(reply->version, KV_PROTOCOL_VERSION);
	assert_int_equal(reply->boot.len, 16);
	return reply;
}

int raw_receive_status(int fd)
{
	Kv__Wire__AttachReply *reply = raw_receive(fd);
	int status = RAW_SILENT;

	if (reply) {
		status = (int)reply->status;
		assert_true(status == KV_OK || reply->detail[0]);
		kv__wire__attach_reply__free_unpacked(reply, NULL);
	}
	return status;
}

size_t raw_pack_attach(Kv__Wire__AttachRequest *request, uint8_t bytes[KV_ATTACH_BYTES_MAX])
{
	if (!request->version)
		request->version = KV_PROTOCOL_VERSION;
	if (!request->shm_version)
		request->shm_version = KV_SHM_VERSION;
	assert_true(kv__wire__attach_request__get_packed_size(request) <= KV_ATTACH_BYTES_MAX);
	return kv__wire__attach_request__pack(request, bytes);
}

static Kv__Wire__AttachReply *say_hello(int fd, uint64_t session, const uint8_t *token)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello hello = KV__WIRE__HELLO__INIT;
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &hello;
	hello.session = session;
	if (token) {
		hello.token.data = (uint8_t *)token;
		hello.token.len = 16;
	}
	if (raw_send(fd, bytes, raw_pack_attach(&request, bytes), NULL, 0))
		return NULL;
	return raw_receive(fd);
}

int raw_hello(int fd, uint64_t session, const uint8_t *token)
{
	Kv__Wire__AttachReply *reply = say_hello(fd, session, token);
	int status = reply ? (int)reply->status : RAW_SILENT;

	if (reply)
		kv__wire__attach_reply__free_unpacked(reply, NULL);
	return status;
}

/* ---- a session ---------------------------------------------------------------------------- */

static int hello(struct raw_client *c)
{
	Kv__Wire__AttachReply *reply;
	int status;

	c->attach = raw_connect(c->dir);
	reply = say_hello(c->attach, c->session, c->session ? c->token : NULL);
	assert_non_null(reply);
	status = (int)reply->status;
	memcpy(c->boot, reply->boot.data, sizeof(c->boot));
	if (status == KV_OK) {
		assert_int_equal(reply->what_case, KV__WIRE__ATTACH_REPLY__WHAT_WELCOME);
		assert_int_equal(reply->welcome->token.len, sizeof(c->token));
		c->session = reply->welcome->session;
		memcpy(c->token, reply->welcome->token.data, sizeof(c->token));
	}
	kv__wire__attach_reply__free_unpacked(reply, NULL);
	return status;
}

struct raw_client *raw_attach(const char *dir)
{
	struct raw_client *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	snprintf(c->dir, sizeof(c->dir), "%s", dir);
	c->next_id = 1;
	assert_int_equal(hello(c), KV_OK);
	c->socket = raw_socket(dir, 0);
	return c;
}

int raw_attach_again(struct raw_client *c)
{
	if (c->attach >= 0)
		close(c->attach);
	return hello(c);
}

void raw_bye(struct raw_client *c)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Bye bye = KV__WIRE__BYE__INIT;
	uint8_t bytes[KV_ATTACH_BYTES_MAX];

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_BYE;
	request.bye = &bye;
	assert_int_equal(raw_send(c->attach, bytes, raw_pack_attach(&request, bytes), NULL, 0), 0);
	assert_int_equal(raw_receive_status(c->attach), KV_OK);
	close(c->attach);
	c->attach = -1;
}

void raw_free(struct raw_client *c)
{
	if (c->attach >= 0)
		close(c->attach);
	nn_close(c->socket);
	free(c);
}

/* ---- requests ----------------------------------------------------------------------------- */

size_t raw_pack(struct raw_client *c, Kv__Wire__Request *request,
		uint8_t bytes[KV_REQUEST_BYTES_MAX])
{
	if (!request->version)
		request->version = KV_PROTOCOL_VERSION;
	if (!request->session)
		request->session = c->session;
	if (!request->token.data)
		request->token = (ProtobufCBinaryData){sizeof(c->token), c->token};
	if (!request->boot.data)
		request->boot = (ProtobufCBinaryData){sizeof(c->boot), c->boot};
	if (!request->id) {
		request->acked = c->acked;
		request->id = c->next_id++;
	}
	assert_true(kv__wire__request__get_packed_size(request) <= KV_REQUEST_BYTES_MAX);
	return kv__wire__request__pack(request, bytes);
}

int raw_socket(const char *dir, int resend_ms)
{
	int ms = (int)kt_scale_ms(ANSWER_MS);
	char address[KV_SOCKET_PATH_MAX + sizeof("ipc://")];
	struct kv_runtime paths;
	int s = nn_socket(AF_SP, NN_REQ);

	assert_true(s >= 0);
	assert_int_equal(kv_runtime_paths(&paths, dir, NULL), 0);
	snprintf(address, sizeof(address), "ipc://%s", paths.command);
	assert_int_equal(nn_setsockopt(s, NN_SOL_SOCKET, NN_RCVTIMEO, &ms, sizeof(ms)), 0);
	assert_int_equal(nn_setsockopt(s, NN_SOL_SOCKET, NN_SNDTIMEO, &ms, sizeof(ms)), 0);
	if (resend_ms)
		assert_int_equal(nn_setsockopt(s, NN_REQ, NN_REQ_RESEND_IVL, &resend_ms,
					       sizeof(resend_ms)),
				 0);
	assert_true(nn_connect(s, address) >= 0);
	return s;
}

Kv__Wire__Reply *raw_exchange(int s, const void *bytes, size_t n_bytes)
{
	Kv__Wire__Reply *reply;
	uint8_t *body;
	int n;

	assert_int_equal(nn_send(s, bytes, n_bytes, 0), n_bytes);
	n = nn_recv(s, &body, NN_MSG, 0);
	if (n < 0)
		return NULL;
	reply = kv__wire__reply__unpack(NULL, (size_t)n, body);
	nn_freemsg(body);
	assert_non_null(reply);
	assert_int_equal(reply->version, KV_PROTOCOL_VERSION);
	assert_int_equal(reply->boot.len, 16);
	assert_true(reply->status == KV_OK || reply->detail[0]);
	return reply;
}

Kv__Wire__Reply *raw_call(struct raw_client *c, Kv__Wire__Request *request)
{
	static uint8_t bytes[KV_REQUEST_BYTES_MAX];
	Kv__Wire__Reply *reply = raw_exchange(c->socket, bytes, raw_pack(c, request, bytes));

	assert_non_null(reply);
	assert_int_equal(reply->id, request->id);
	assert_int_equal(reply->session, c->session);
	if (request->id + 1 == c->next_id)
		c->acked = request->id;
	return reply;
}

static int take_status(Kv__Wire__Reply *reply)
{
	int status = reply ? (int)reply->status : RAW_SILENT;

	if (reply)
		kv__wire__reply__free_unpacked(reply, NULL);
	return status;
}

int raw_call_status(struct raw_client *c, Kv__Wire__Request *request)
{
	return take_status(raw_call(c, request));
}

int raw_say(int s, const void *bytes, size_t n_bytes)
{
	return take_status(raw_exchange(s, bytes, n_bytes));
}

int raw_noop(struct raw_client *c)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;
	Kv__Wire__Noop noop = KV__WIRE__NOOP__INIT;

	request.command_case = KV__WIRE__REQUEST__COMMAND_NOOP;
	request.noop = &noop;
	return raw_call_status(c, &request);
}
