/*
 * Pins of base snapshots. The daemon keeps the blocks of a snapshot that a fork or an open handle
 * of this session uses until it hears Unpin; here is counted how many handles use each.
 *
 * A pin is the session's, not the handle's: a fork that arrives while a pin is being given back
 * would lose it. So calls that may pin hold pins_lock shared until their handle is counted, and a
 * pin is given back under the exclusive lock, if it can be had at once. Thread: any.
 */
#include <stdlib.h>

#include "client/error.h"
#include "client/link.h"
#include "client/rpc.h"
#include "proto/limits.h"

static struct link_pin **pin_slot(struct session_link *link, uint64_t base_id)
{
	struct link_pin **slot = &link->pins[base_id % LINK_PIN_BUCKETS];

	while (*slot && (*slot)->base_id != base_id)
		slot = &(*slot)->next;
	return slot;
}

/* Under lock: the pin of a base, made if it is new; NULL without memory. */
static struct link_pin *pin_get(struct session_link *link, uint64_t base_id)
{
	struct link_pin **slot = pin_slot(link, base_id);

	if (*slot) {
		link->n_unused_pins -= (*slot)->n_users == 0;
		return *slot;
	}
	*slot = calloc(1, sizeof(**slot));
	if (*slot)
		(*slot)->base_id = base_id;
	return *slot;
}

void session_base_ref(struct kvc_session *session, uint64_t base_id)
{
	struct session_link *link = session->link;
	struct link_pin *pin;

	if (base_id == 0)
		return;
	pthread_mutex_lock(&link->lock);
	pin = pin_get(link, base_id);
	if (pin)
		pin->n_users++;
	else
		link->pins_incomplete = true;
	pthread_mutex_unlock(&link->lock);
}

void session_base_unref(struct kvc_session *session, uint64_t base_id)
{
	struct session_link *link = session->link;
	struct link_pin *pin;

	if (base_id == 0)
		return;
	pthread_mutex_lock(&link->lock);
	pin = *pin_slot(link, base_id);
	if (pin && pin->n_users && --pin->n_users == 0)
		link->n_unused_pins++;
	pthread_mutex_unlock(&link->lock);
}

void pins_hold(struct kvc_session *session)
{
	pthread_rwlock_rdlock(&session->link->pins_lock);
}

void pins_unhold(struct kvc_session *session)
{
	pthread_rwlock_unlock(&session->link->pins_lock);
}

/* Under lock: ids of pins without users, at most max. */
static size_t collect_unused(const struct session_link *link, uint64_t *ids, size_t max)
{
	size_t n = 0;

	if (link->n_unused_pins == 0 || link->pins_incomplete)
		return 0;
	for (unsigned b = 0; b < LINK_PIN_BUCKETS; b++)
		for (const struct link_pin *pin = link->pins[b]; pin && n < max; pin = pin->next)
			if (pin->n_users == 0)
				ids[n++] = pin->base_id;
	return n;
}

/* Under lock: the daemon has heard it. */
static void forget_unused(struct session_link *link, const uint64_t *ids, size_t n_ids)
{
	for (size_t i = 0; i < n_ids; i++) {
		struct link_pin **slot = pin_slot(link, ids[i]);
		struct link_pin *pin = *slot;

		if (!pin || pin->n_users)
			continue;
		*slot = pin->next;
		free(pin);
		link->n_unused_pins--;
	}
}

static int tell_unpin(struct kvc_session *session, uint64_t *ids, size_t n_ids)
{
	Kv__Wire__Request request;
	Kv__Wire__Unpin command = KV__WIRE__UNPIN__INIT;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_UNPIN;
	request.unpin = &command;
	command.base_ids = ids;
	command.n_base_ids = n_ids;
	return rpc_do(session, &request);
}

/* Under pins_lock, exclusive. */
static void give_back_unused(struct kvc_session *session)
{
	struct session_link *link = session->link;
	struct errbuf saved = *kvc_err();
	uint64_t ids[KV_TARGETS_MAX];
	size_t n_ids;

	pthread_mutex_lock(&link->lock);
	n_ids = collect_unused(link, ids, KV_TARGETS_MAX);
	pthread_mutex_unlock(&link->lock);
	if (n_ids && tell_unpin(session, ids, n_ids) == 0) {
		pthread_mutex_lock(&link->lock);
		forget_unused(link, ids, n_ids);
		pthread_mutex_unlock(&link->lock);
	}
	*kvc_err() = saved; /* nobody asked for this call */
}

void pins_flush(struct kvc_session *session)
{
	struct session_link *link = session->link;
	bool any;

	pthread_mutex_lock(&link->lock);
	any = link->n_unused_pins != 0;
	pthread_mutex_unlock(&link->lock);
	if (!any || pthread_rwlock_trywrlock(&link->pins_lock))
		return;
	give_back_unused(session);
	pthread_rwlock_unlock(&link->pins_lock);
}

void pins_fini(struct session_link *link)
{
	for (unsigned b = 0; b < LINK_PIN_BUCKETS; b++) {
		while (link->pins[b]) {
			struct link_pin *pin = link->pins[b];

			link->pins[b] = pin->next;
			free(pin);
		}
	}
}
