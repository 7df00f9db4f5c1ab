/*
 * Stand-ins for the core's links; see fake_links.h.
 */
#include "tests/support/fake_links.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/commit.h"
#include "tests/support/runner.h"
#include "tests/support/wait.h"

/* The links are opaque to the core: here they are the fake core itself. */
static struct fake_core *of_keeper(struct keeper_link *link)
{
	return (struct fake_core *)(void *)link;
}

static struct fake_core *of_front(struct front_link *link)
{
	return (struct fake_core *)(void *)link;
}

static struct fake_client *of_conn(struct attach_conn *conn)
{
	return (struct fake_client *)((char *)conn - offsetof(struct fake_client, conn));
}

/* ---- keeper ------------------------------------------------------------------------------- */

static struct kept *find_kept(struct fake_core *f, enum kept_kind kind, uint64_t id)
{
	for (size_t i = 0; i < f->n_kept; i++)
		if (f->kept[i].kind == kind && f->kept[i].id == id)
			return &f->kept[i];
	return NULL;
}

int keeper_keep(struct keeper_link *link, enum kept_kind kind, uint64_t id, int fd)
{
	struct fake_core *f = of_keeper(link);
	struct kept *kept = find_kept(f, kind, id);
	int copy;

	if (f->keeper_is_full || f->n_kept == sizeof(f->kept) / sizeof(f->kept[0]))
		return -EMFILE;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	assert_true(copy >= 0);
	if (kept)
		close(kept->fd);
	else
		kept = &f->kept[f->n_kept++];
	*kept = (struct kept){.kind = kind, .id = id, .fd = copy};
	return 0;
}

int keeper_drop(struct keeper_link *link, enum kept_kind kind, uint64_t id)
{
	struct fake_core *f = of_keeper(link);
	struct kept *kept = find_kept(f, kind, id);

	if (!kept)
		return 0;
	close(kept->fd);
	*kept = f->kept[--f->n_kept];
	return 0;
}

int keeper_status(struct keeper_link *link, uint32_t extend_ms, const char *text)
{
	(void)link;
	(void)extend_ms;
	(void)text;
	return 0;
}

/* ---- front -------------------------------------------------------------------------------- */

int front_link_reply(struct front_link *link, const void *route, size_t n_route, const void *body,
		     size_t n_body)
{
	struct fake_core *f = of_front(link);

	assert_true(n_body <= sizeof(f->reply) && n_route <= sizeof(f->route));
	memcpy(f->reply, body, n_body);
	f->n_reply = n_body;
	memcpy(f->route, route, n_route);
	f->n_route = n_route;
	f->n_replies++;
	return 0;
}

int front_link_event(struct front_link *link, const void *body, size_t n_body)
{
	Kv__Wire__Event *event = kv__wire__event__unpack(NULL, n_body, body);

	assert_non_null(event);
	kv__wire__event__free_unpacked(event, NULL);
	of_front(link)->n_events++;
	return 0;
}

/* ---- attach ------------------------------------------------------------------------------- */

void attach_promote(struct attach_conn *conn)
{
	(void)conn;
}

int attach_reply(struct attach_conn *conn, const Kv__Wire__AttachReply *reply, const int *fds,
		 size_t n_fds)
{
	struct fake_client *c = of_conn(conn);

	c->attach_status = reply->status;
	c->fd = n_fds ? fds[0] : -1;
	if (reply->what_case == KV__WIRE__ATTACH_REPLY__WHAT_WELCOME) {
		c->session = reply->welcome->session;
		memcpy(c->token, reply->welcome->token.data, sizeof(c->token));
	}
	return 0;
}

void attach_close(struct attach_conn *conn)
{
	of_conn(conn)->is_closed = true;
}

int attach_watch_fire(int fd)
{
	return write(fd, "!", 1) == 1 ? 0 : -errno;
}

/* ---- the core ----------------------------------------------------------------------------- */

static uint64_t now_ns(void *arg)
{
	struct fake_core *f = arg;
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * LOOP_NS_PER_S + (uint64_t)now.tv_nsec + f->offset_ns;
}

static void begin_life(struct fake_core *f)
{
	struct errbuf err = {0};

	f->env.life++;
	memset(f->env.boot, (int)f->env.life, sizeof(f->env.boot));
	f->env.n_restarts = (uint32_t)f->env.life - 1;
	for (size_t i = 0; i < f->n_kept; i++) {
		f->given[i] = f->kept[i];
		f->given[i].fd = fcntl(f->kept[i].fd, F_DUPFD_CLOEXEC, 0);
		assert_true(f->given[i].fd >= 0);
	}
	f->env.kept = f->given;
	f->env.n_kept = f->n_kept;
	f->env.started_ns = loop_now_ns(f->env.loop);
	f->core = core_new(&f->env, &err);
	if (!f->core)
		printf("# %s\n", err.text);
}

struct fake_core *fake_core_new(const struct settings *settings)
{
	struct fake_core *f = calloc(1, sizeof(*f));
	struct loop_clock clock = {now_ns, f};

	assert_non_null(f);
	f->settings = *settings;
	f->env.settings = &f->settings;
	f->env.loop = loop_new(&clock, NULL);
	assert_non_null(f->env.loop);
	f->env.keeper = (struct keeper_link *)(void *)f;
	f->env.front = (struct front_link *)(void *)f;
	begin_life(f);
	assert_non_null(f->core);
	return f;
}

int fake_core_restart(struct fake_core *f)
{
	core_free(f->core);
	begin_life(f);
	return f->core ? 0 : -1;
}

int fake_core_restart_child(struct fake_core *f)
{
	struct loop_clock clock = {now_ns, f};

	core_free(f->core);
	f->env.loop = loop_new(&clock, NULL);
	assert_non_null(f->env.loop);
	begin_life(f);
	return f->core ? 0 : -1;
}

void fake_core_free(struct fake_core *f)
{
	core_free(f->core);
	for (size_t i = 0; i < f->n_kept; i++)
		close(f->kept[i].fd);
	loop_free(f->env.loop);
	free(f);
}

void fake_settle(struct fake_core *f)
{
	for (int i = 0; i < 3; i++)
		loop_once(f->env.loop, 0);
	while (f->core->work_task.link)
		loop_once(f->env.loop, 0);
}

/* ---- clients ------------------------------------------------------------------------------ */

uint32_t fake_attach(struct fake_client *c, Kv__Wire__AttachRequest *request, int fd)
{
	c->attach_status = UINT32_MAX;
	core_attach_message(c->f->core, &c->conn, request, fd);
	return c->attach_status;
}

static uint32_t hello(struct fake_client *c)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello words = KV__WIRE__HELLO__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &words;
	words.session = c->session;
	words.token.data = c->token;
	words.token.len = c->session ? sizeof(c->token) : 0;
	return fake_attach(c, &request, -1);
}

static void new_conn(struct fake_client *c, uid_t uid)
{
	c->is_closed = false;
	c->conn = (struct attach_conn){.uid = uid, .gid = uid, .pid = c->pid ? c->pid : getpid()};
	c->conn.pidfd = (int)syscall(SYS_pidfd_open, c->conn.pid, 0);
	assert_true(c->conn.pidfd >= 0);
}

static struct fake_client *begin_client(struct fake_core *f, pid_t pid, uid_t uid, uint32_t *status)
{
	struct fake_client *c = calloc(1, sizeof(*c));
	uint32_t answer;

	assert_non_null(c);
	c->f = f;
	c->fd = -1;
	c->next_request = 1;
	c->pid = pid;
	new_conn(c, uid);
	answer = hello(c);
	if (status)
		*status = answer;
	if (answer) {
		fake_client_free(c);
		return NULL;
	}
	c->segment = mmap(NULL, KV_SHM_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
	assert_ptr_not_equal(c->segment, MAP_FAILED);
	return c;
}

struct fake_client *fake_client_new(struct fake_core *f, uid_t uid, uint32_t *status)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	return begin_client(f, pid, uid, status);
}

struct fake_client *fake_client_self(struct fake_core *f, uid_t uid)
{
	return begin_client(f, 0, uid, NULL);
}

uint32_t fake_client_again(struct fake_client *c)
{
	if (c->conn.pidfd >= 0)
		close(c->conn.pidfd);
	new_conn(c, c->conn.uid);
	return hello(c);
}

void fake_client_hang_up(struct fake_client *c)
{
	core_attach_gone(c->f->core, &c->conn);
	c->is_closed = true;
}

void fake_client_kill(struct fake_client *c)
{
	int status;

	if (!c->pid)
		return;
	kill(c->pid, SIGKILL);
	kt_wait_child(c->pid, 5000, &status);
	c->pid = 0;
	fake_settle(c->f);
}

void fake_client_free(struct fake_client *c)
{
	fake_client_kill(c);
	if (c->conn.pidfd >= 0)
		close(c->conn.pidfd);
	if (c->segment)
		munmap(c->segment, KV_SHM_BYTES);
	free(c);
}

/* ---- requests ----------------------------------------------------------------------------- */

void fake_send(struct fake_client *c, Kv__Wire__Request *request)
{
	uint8_t bytes[KV_REQUEST_BYTES_MAX];
	size_t n;

	request->version = KV_PROTOCOL_VERSION;
	if (!request->session)
		request->session = c->session;
	if (!request->token.data) {
		request->token.data = c->token;
		request->token.len = sizeof(c->token);
	}
	if (!request->boot.data) {
		request->boot.data = c->f->env.boot;
		request->boot.len = sizeof(c->f->env.boot);
	}
	if (!request->id) {
		request->id = c->next_request++;
		request->acked = c->acked;
	}
	n = kv__wire__request__get_packed_size(request);
	assert_true(n <= sizeof(bytes));
	kv__wire__request__pack(request, bytes);
	core_request(c->f->core, &request->id, sizeof(request->id), bytes, n);
}

Kv__Wire__Reply *fake_reply(const struct fake_core *f)
{
	return kv__wire__reply__unpack(NULL, f->n_reply, f->reply);
}

Kv__Wire__Reply *fake_call(struct fake_client *c, Kv__Wire__Request *request)
{
	uint64_t before = c->f->n_replies;
	int64_t until = kt_now_ms() + kt_scale_ms(1000);

	fake_send(c, request);
	while (c->f->n_replies == before && kt_now_ms() < until)
		loop_once(c->f->env.loop, 1);
	if (c->f->n_replies == before)
		return NULL;
	c->acked = request->id;
	return fake_reply(c->f);
}

/* ---- a writer ----------------------------------------------------------------------------- */

void fake_commit(struct fake_client *c, uint32_t place, uint64_t length, uint64_t first_block,
		 const uint64_t *refs, uint64_t n)
{
	char *segment = (char *)c->segment;
	struct kv_shm_place *shm = (struct kv_shm_place *)(segment + c->segment->places_off) +
				   place;
	struct kv_shm_writer *w = (struct kv_shm_writer *)(segment + c->segment->writers_off) +
				  shm->writer;
	uint64_t word = kv_word_load(w), update = kv_word_update(word);
	uint64_t freeze = atomic_load(&shm->freeze_count);
	struct kv_head head;
	int current = kv_head_current(shm, update);

	assert_true(current >= 0);
	kv_head_load(&shm->copy[current], &head);
	head.length_tokens = head.base_tokens = head.position = length;
	assert_true(kv_word_swap(w, word, kv_word(KV_OPEN, kv_word_generation(word), update)));
	for (uint64_t i = 0; i < n; i++) {
		struct kv_shm_entry *e0 = kv_shm_entry(segment, shm->table_off[0],
						       shm->n_entries[0], 0, first_block + i);
		struct kv_shm_entry *e1 = kv_shm_entry(segment, shm->table_off[0],
						       shm->n_entries[0], 1, first_block + i);
		struct kv_shm_entry *older = kv_stamps_current(&e0->stamp, &e1->stamp, update) ==
							     0 ?
						     e1 :
						     e0;

		atomic_store(&older->ref,
			     kv_ref(freeze, kv_ref_arena(refs[i]), kv_ref_block(refs[i])));
		atomic_store(&older->stamp, update + 1);
	}
	kv_head_store(&shm->copy[kv_head_older(shm, update)], &head, update + 1);
	assert_true(kv_word_swap(w, kv_word(KV_OPEN, kv_word_generation(word), update),
				 kv_word(KV_IDLE, kv_word_generation(word), update + 1)));
}
