/*
 * Writers: made and freed by the daemon's leave, because it reads their commit words.
 *
 * A writer that is freed gives everything back: places set aside for local forks, blocks in its
 * pools, and at last its commit word. Nothing is lost if a message on the way there fails: the
 * handle stays, and the session's end frees it. Writer's thread.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "client/batch.h"
#include "client/error.h"
#include "client/handles.h"
#include "client/link.h"
#include "client/rpc.h"

static int tell_free(struct kvc_session *session, uint32_t index)
{
	Kv__Wire__Request request;
	Kv__Wire__WriterFree command = KV__WIRE__WRITER_FREE__INIT;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_WRITER_FREE;
	request.writer_free = &command;
	command.writer = index;
	return rpc_do(session, &request);
}

static int ask_new(struct kvc_session *session, uint32_t *index)
{
	Kv__Wire__Request request;
	Kv__Wire__WriterNew command = KV__WIRE__WRITER_NEW__INIT;
	Kv__Wire__Reply *reply;

	rpc_request_init(&request);
	request.command_case = KV__WIRE__REQUEST__COMMAND_WRITER_NEW;
	request.writer_new = &command;
	reply = rpc_ask(session, &request, KV__WIRE__REPLY__RESULT_WRITER);
	if (!reply)
		return -1;
	*index = reply->writer->writer;
	rpc_reply_free(reply);
	return 0;
}

/* Enters it in the session's list; refuses an index that makes no sense. */
static int enlist(struct kvc_session *session, struct kvc_writer *writer)
{
	struct session_link *link = session->link;
	int rc = 0;

	pthread_mutex_lock(&link->lock);
	if (link->writers[writer->index])
		rc = kvc_fail(KV_EPROTO, "the daemon gave out writer %u twice", writer->index);
	else
		link->writers[writer->index] = writer;
	pthread_mutex_unlock(&link->lock);
	return rc;
}

kvc_writer *kvc_writer_new(kvc_session *session)
{
	struct kvc_writer *writer;
	uint32_t index;

	if (session_check(session) || ask_new(session, &index))
		return NULL;
	if (index >= session->segment->n_writers) {
		kvc_fail(KV_EPROTO, "the daemon gave writer %u of %u", index,
			 session->segment->n_writers);
		return NULL;
	}
	writer = writer_new(session, index);
	if (!writer) {
		tell_free(session, index);
		return NULL;
	}
	writer->deadline_ms = session->link->deadline_ms;
	if (enlist(session, writer)) {
		writer_free(writer);
		return NULL;
	}
	return writer;
}

static void free_spare(struct kvc_seq *spare)
{
	munmap(spare->memory, spare->memory_bytes);
	free(spare);
}

/* Spare places for local forks go back, as many a message as it takes. */
static int give_spare_places_back(struct kvc_writer *writer)
{
	while (writer->spare) {
		Kv__Wire__Request request;
		Kv__Wire__SeqDrop command = KV__WIRE__SEQ_DROP__INIT;
		struct kvc_seq *spares[KV_TARGETS_MAX];
		uint32_t places[KV_TARGETS_MAX];

		for (struct kvc_seq *seq = writer->spare; seq && command.n_places < KV_TARGETS_MAX;
		     seq = seq->next) {
			spares[command.n_places] = seq;
			places[command.n_places++] = seq->place;
		}
		rpc_request_init(&request);
		request.command_case = KV__WIRE__REQUEST__COMMAND_SEQ_DROP;
		request.seq_drop = &command;
		command.places = places;
		if (rpc_do(writer->session, &request))
			return -1;
		writer->spare = spares[command.n_places - 1]->next;
		for (size_t i = 0; i < command.n_places; i++)
			free_spare(spares[i]);
	}
	return 0;
}

int kvc_writer_free(kvc_writer *writer)
{
	struct kvc_session *session;

	if (!writer)
		return 0;
	session = writer->session;
	if (session_check(session))
		return -1;
	if (writer->seqs)
		return kvc_fail(KV_EBUSY, "the writer has sequences; free them first");
	if (give_spare_places_back(writer))
		return -1;
	handles_release(writer, true);
	if (tell_free(session, writer->index))
		return -1;
	pthread_mutex_lock(&session->link->lock);
	session->link->writers[writer->index] = NULL;
	pthread_mutex_unlock(&session->link->lock);
	writer_free(writer);
	return 0;
}

void handles_free_all(struct kvc_session *session)
{
	struct session_link *link = session->link;
	bool heard = true;

	while (link->batches) {
		struct kvc_batch *batch = link->batches;

		link->batches = batch->next;
		free(batch);
	}
	for (uint32_t i = 0; i < KV_WRITERS_MAX; i++) {
		struct kvc_writer *writer = link->writers[i];

		link->writers[i] = NULL;
		if (!writer)
			continue;
		heard = heard && handles_leave(writer);
		while (writer->seqs)
			seq_end(writer->seqs, SEQ_END_PARKED);
		writer_free(writer);
	}
}
