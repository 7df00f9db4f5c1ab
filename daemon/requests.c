#include "daemon/requests.h"

#include <stdlib.h>
#include <string.h>

struct request *requests_find(struct session *session, uint64_t id)
{
	for (uint32_t i = 0; i < session->n_requests; i++)
		if (session->requests[i].id == id)
			return &session->requests[i];
	return NULL;
}

static void drop(struct session *session, uint32_t i)
{
	free(session->requests[i].reply);
	session->requests[i] = session->requests[--session->n_requests];
}

void requests_ack(struct session *session, uint64_t acked)
{
	if (acked <= session->acked)
		return;
	session->acked = acked;
	for (uint32_t i = 0; i < session->n_requests;) {
		/* a command that is still running goes on; its reply will find nobody */
		if (session->requests[i].id <= acked && !session->requests[i].command)
			drop(session, i);
		else
			i++;
	}
}

int requests_add(struct session *session, uint64_t id, struct command *command, struct errbuf *err)
{
	if (session->n_requests == KV_IN_FLIGHT_MAX)
		return errbuf_set(
			err, KV_ELIMIT,
			"%u requests of the session are in flight, the limit; acknowledge "
			"their replies",
			KV_IN_FLIGHT_MAX);
	session->requests[session->n_requests++] = (struct request){.id = id, .command = command};
	return 0;
}

void requests_answer(struct session *session, uint64_t id, uint8_t *reply, uint32_t n_reply)
{
	struct request *request = requests_find(session, id);

	if (!request) { /* cannot be: it was added before it ran */
		free(reply);
		return;
	}
	request->command = NULL;
	request->reply = reply;
	request->n_reply = n_reply;
	if (id <= session->acked)
		requests_remove(session, id);
}

void requests_remove(struct session *session, uint64_t id)
{
	struct request *request = requests_find(session, id);

	if (request)
		drop(session, (uint32_t)(request - session->requests));
}

void requests_load(struct session *session, uint64_t id, const void *reply, uint32_t n_reply)
{
	if (session->n_requests == KV_IN_FLIGHT_MAX) {
		uint32_t oldest = 0;

		for (uint32_t i = 1; i < session->n_requests; i++)
			if (session->requests[i].id < session->requests[oldest].id)
				oldest = i;
		drop(session, oldest);
	}
	requests_remove(session, id);
	session->requests[session->n_requests++] = (struct request){
		.id = id, .reply = state_copy(reply, n_reply), .n_reply = n_reply, .logged = true};
}

void requests_drop_all(struct session *session)
{
	while (session->n_requests)
		drop(session, 0);
}

void requests_fini(struct session *session)
{
	requests_drop_all(session);
}
