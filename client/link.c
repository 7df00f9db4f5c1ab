/*
 * The attachment of a session: made once, made again after each restart of the core.
 *
 * The listening socket belongs to the daemon's keeper: while a core is being started a connect
 * waits in its backlog, and where nobody listens there is no daemon. So a broken connection is
 * answered by connecting again at once: either the daemon is gone (KV_EDAEMON, immediately), or
 * the reply to Hello comes as soon as the core is up. A session that the daemon does not know any
 * more has ended for good (KV_ESESSION). Thread: any.
 */
#include "client/link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/clock.h"

/* One try to attach again holds the connection no longer than this. */
#define TRY_MS 1000u
/* Between two tries when the core died while we waited for its Hello. */
#define PAUSE_MS 2
/* For the daemon to hear a Bye. */
#define BYE_MS 1000u

static int init_locks(struct session_link *link)
{
	pthread_condattr_t attributes;

	if (pthread_condattr_init(&attributes))
		return -1;
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&link->window, &attributes);
	pthread_cond_init(&link->attach_free, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_init(&link->lock, NULL);
	pthread_rwlock_init(&link->pins_lock, NULL);
	return 0;
}

struct session_link *link_new(const char *runtime_dir, uint32_t deadline_ms, uint32_t resend_ms,
			      struct errbuf *err)
{
	struct session_link *link = calloc(1, sizeof(*link));

	if (!link || init_locks(link)) {
		free(link);
		errbuf_set(err, KV_ENOMEM, "no memory for a session");
		return NULL;
	}
	if (getrandom(link->nonce, sizeof(link->nonce), 0) != sizeof(link->nonce))
		memset(link->nonce, 0, sizeof(link->nonce)); /* none */
	link->attach.fd = -1;
	link->next_id = 1;
	link->deadline_ms = deadline_ms;
	link->resend_ms = resend_ms;
	if (kv_runtime_paths(&link->runtime, runtime_dir, err)) {
		link_free(link);
		return NULL;
	}
	snprintf(link->address, sizeof(link->address), "ipc://%s", link->runtime.command);
	return link;
}

void link_free(struct session_link *link)
{
	if (!link)
		return;
	while (link->n_idle)
		wire_close(&link->idle[--link->n_idle]);
	attach_close(&link->attach);
	pins_fini(link);
	pthread_rwlock_destroy(&link->pins_lock);
	pthread_mutex_destroy(&link->lock);
	pthread_cond_destroy(&link->attach_free);
	pthread_cond_destroy(&link->window);
	free(link);
}

/* Waits for other users of the attach connection no longer than the caller's deadline. */
static int take_attach(struct session_link *link, int64_t deadline_ns, struct errbuf *err)
{
	struct timespec until = {.tv_sec = deadline_ns / 1000000000,
				 .tv_nsec = deadline_ns % 1000000000};
	int rc = 0;

	pthread_mutex_lock(&link->lock);
	while (link->attach_taken && rc == 0)
		if (pthread_cond_timedwait(&link->attach_free, &link->lock, &until) == ETIMEDOUT)
			rc = errbuf_set(err, KV_ETIMEOUT,
					"another thread of this session waits for the "
					"attach socket");
	if (rc == 0)
		link->attach_taken = true;
	pthread_mutex_unlock(&link->lock);
	return rc;
}

static void give_attach(struct session_link *link)
{
	pthread_mutex_lock(&link->lock);
	link->attach_taken = false;
	pthread_cond_signal(&link->attach_free);
	pthread_mutex_unlock(&link->lock);
}

/* Takes over what a Welcome says. */
static int accept_welcome(struct session_link *link, const struct attach_answer *answer,
			  struct errbuf *err)
{
	const Kv__Wire__AttachReply *reply = answer->reply;
	const Kv__Wire__Welcome *welcome = reply->welcome;

	if (reply->what_case != KV__WIRE__ATTACH_REPLY__WHAT_WELCOME || welcome->session == 0 ||
	    welcome->token.len != LINK_TOKEN_BYTES)
		return errbuf_set(err, KV_EPROTO, "the daemon's welcome makes no sense");
	if (link->session_id && welcome->session != link->session_id)
		return errbuf_set(err, KV_EPROTO,
				  "the daemon gave session %llu when asked for session %llu",
				  (unsigned long long)welcome->session,
				  (unsigned long long)link->session_id);
	pthread_mutex_lock(&link->lock);
	link->session_id = welcome->session;
	memcpy(link->token, welcome->token.data, LINK_TOKEN_BYTES);
	memcpy(link->boot, reply->boot.data, LINK_BOOT_BYTES);
	atomic_fetch_add_explicit(&link->n_attached, 1, memory_order_release);
	atomic_store_explicit(&link->is_attached, true, memory_order_release);
	pthread_mutex_unlock(&link->lock);
	return 0;
}

/* Connects and says Hello; the connection is taken. 0, -1, or 1: the connection was taken and then
 * broke, which is worth another try. */
static int say_hello(struct session_link *link, int64_t deadline_ns, struct attach_answer *answer,
		     struct errbuf *err)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Hello hello = KV__WIRE__HELLO__INIT;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_HELLO;
	request.hello = &hello;
	hello.session = link->session_id;
	if (link->session_id) {
		hello.token.data = link->token;
		hello.token.len = LINK_TOKEN_BYTES;
	} else {
		hello.nonce.data = link->nonce;
		hello.nonce.len = LINK_TOKEN_BYTES;
	}
	attach_close(&link->attach);
	if (attach_open(&link->attach, link->runtime.attach, deadline_ns, err))
		return -1;
	if (attach_exchange(&link->attach, &request, -1, deadline_ns, answer, err)) {
		attach_close(&link->attach);
		errbuf_wrap(err, "%s", link->runtime.attach);
		return err->status == KV_EDAEMON ? 1 : -1;
	}
	if (accept_welcome(link, answer, err)) {
		attach_answer_free(answer);
		attach_close(&link->attach);
		return -1;
	}
	return 0;
}

int link_open_wire(struct session_link *link, struct errbuf *err)
{
	if (wire_open(&link->idle[0], link->address, link->resend_ms, err))
		return -1;
	link->n_idle = 1;
	return 0;
}

/* Connects and says Hello until it is answered, there is no daemon, or time is up (cores may die
 * meanwhile); the connection is taken. */
static int say_hello_until(struct session_link *link, int64_t deadline_ns,
			   struct attach_answer *answer, struct errbuf *err)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_MS * NS_PER_MS};
	int rc;

	while ((rc = say_hello(link, deadline_ns, answer, err)) > 0) {
		if (clock_left_ms(deadline_ns) == 0)
			return -1;
		nanosleep(&pause, NULL);
	}
	return rc;
}

int link_attach(struct session_link *link, int *segment_fd, uint64_t *segment_bytes,
		struct errbuf *err)
{
	int64_t deadline_ns = clock_deadline_ns(link->deadline_ms);
	struct attach_answer answer;
	int rc;

	if (take_attach(link, deadline_ns, err))
		return -1;
	rc = say_hello_until(link, deadline_ns, &answer, err);
	give_attach(link);
	if (rc)
		return -1;
	*segment_fd = answer.fd;
	*segment_bytes = answer.reply->welcome->segment_bytes;
	answer.fd = -1;
	attach_answer_free(&answer);
	return 0;
}

static int attach_again(struct session_link *link, int64_t deadline_ns, struct errbuf *err)
{
	struct attach_answer answer;

	if (atomic_load(&link->has_ended))
		return errbuf_set(err, KV_ESESSION, "the session has ended; open a new one");
	if (say_hello_until(link, deadline_ns, &answer, err) == 0) {
		attach_answer_free(&answer);
		return 0;
	}
	atomic_store(&link->is_attached, false);
	if (err->status == KV_ESESSION)
		atomic_store(&link->has_ended, true);
	return -1;
}

int link_reattach(struct session_link *link, int64_t deadline_ns, struct errbuf *err)
{
	int64_t try_ns = clock_deadline_ns(TRY_MS);
	int rc = 0;

	if (take_attach(link, deadline_ns, err))
		return -1;
	if (attach_hung_up(&link->attach))
		rc = attach_again(link, try_ns < deadline_ns ? try_ns : deadline_ns, err);
	give_attach(link);
	return rc;
}

int link_exchange(struct session_link *link, Kv__Wire__AttachRequest *request, int pass_fd,
		  struct attach_answer *answer, struct errbuf *err)
{
	int64_t deadline_ns = clock_deadline_ns(link->deadline_ms);
	int rc;

	if (take_attach(link, deadline_ns, err))
		return -1;
	do {
		rc = 0;
		if (attach_hung_up(&link->attach))
			rc = attach_again(link, deadline_ns, err);
		if (rc)
			break;
		rc = attach_exchange(&link->attach, request, pass_fd, deadline_ns, answer, err);
	} while (rc && err->status == KV_EDAEMON && clock_left_ms(deadline_ns) > 0);
	give_attach(link);
	return rc;
}

/* The daemon keeps a session for as long as its process lives: a goodbye that goes to a core that
 * has died is said to the next. */
void link_bye(struct session_link *link)
{
	Kv__Wire__AttachRequest request = KV__WIRE__ATTACH_REQUEST__INIT;
	Kv__Wire__Bye bye = KV__WIRE__BYE__INIT;
	uint32_t ms = link->deadline_ms < BYE_MS ? link->deadline_ms : BYE_MS;
	int64_t deadline_ns = clock_deadline_ns(ms);
	struct attach_answer answer;
	struct errbuf err = {0};
	int rc;

	request.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_BYE;
	request.bye = &bye;
	do {
		if (attach_hung_up(&link->attach) && attach_again(link, deadline_ns, &err))
			return;
		rc = attach_exchange(&link->attach, &request, -1, deadline_ns, &answer, &err);
		if (rc == 0)
			attach_answer_free(&answer);
	} while (rc && err.status == KV_EDAEMON && clock_left_ms(deadline_ns) > 0);
}
