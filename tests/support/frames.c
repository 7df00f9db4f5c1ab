/*
 * One message of each kind; see frames.h.
 */
#include "tests/support/frames.h"

#include <stdbool.h>
#include <string.h>

const uint8_t frame_layout_hash[32] = {
	0xc0, 0xd9, 0x59, 0x12, 0xa6, 0x1c, 0xcb, 0xa3, 0x45, 0x5d, 0x67,
	0xd5, 0x08, 0x40, 0x45, 0xe4, 0x35, 0x80, 0xf0, 0x8c, 0x30, 0x35,
	0x7c, 0xdf, 0x51, 0x68, 0x6e, 0xd5, 0x03, 0xce, 0x2a, 0x55,
};

static uint8_t token[16], boot[16], fingerprint[32], digest[16], salt[3] = {1, 2, 3};

/* ---- requests ----------------------------------------------------------------------------- */

static Kv__Wire__Request request_of(Kv__Wire__Request__CommandCase which)
{
	Kv__Wire__Request request = KV__WIRE__REQUEST__INIT;

	memset(token, FRAME_TOKEN, sizeof(token));
	memset(boot, FRAME_BOOT, sizeof(boot));
	request.version = KV_PROTOCOL_VERSION;
	request.session = FRAME_SESSION;
	request.token = (ProtobufCBinaryData){sizeof(token), token};
	request.boot = (ProtobufCBinaryData){sizeof(boot), boot};
	/* the commands count from 10 and come in that order */
	request.id = (uint64_t)which - 9;
	request.acked = request.id - 1;
	request.deadline_ms = 1000;
	request.command_case = which;
	return request;
}

/* Defines pack_FIELD(): a request with that command; what is between the lines fills it. */
#define REQUEST(field, FIELD, Type) \
	static void fill_##field(Kv__Wire__##Type *m); \
	static size_t pack_##field(uint8_t *out) \
	{ \
		Kv__Wire__Request r = request_of(KV__WIRE__REQUEST__COMMAND_##FIELD); \
		Kv__Wire__##Type m; \
\
		kv__wire__##field##__init(&m); \
		fill_##field(&m); \
		r.field = &m; \
		return kv__wire__request__pack(&r, out); \
	} \
	static void fill_##field(Kv__Wire__##Type *m)

static Kv__Wire__Target *by_name(char *name)
{
	static Kv__Wire__Target target;

	kv__wire__target__init(&target);
	target.which_case = KV__WIRE__TARGET__WHICH_NAME;
	target.name = name;
	return &target;
}

static Kv__Wire__Target *by_place(uint32_t place)
{
	static Kv__Wire__Target target;

	kv__wire__target__init(&target);
	target.which_case = KV__WIRE__TARGET__WHICH_PLACE;
	target.place = place;
	return &target;
}

static Kv__Wire__Target *by_id(uint64_t id)
{
	static Kv__Wire__Target target;

	kv__wire__target__init(&target);
	target.which_case = KV__WIRE__TARGET__WHICH_ID;
	target.id = id;
	return &target;
}

static char saved_name[] = "golden/saved";
static char seq_name[] = "golden/seq", named[] = "golden/named",
	    snapshot_name[] = "golden/snapshot", fork_name[] = "golden/fork", prefix[] = "golden/";

/* Every field of a layout; one that the service stores has no planes and raw formats. */
static Kv__Wire__Layout *golden_layout(void)
{
	static Kv__Wire__Layer layers[2], *layer_list[2] = {&layers[0], &layers[1]};
	static Kv__Wire__Tag tag, *tag_list[1] = {&tag};
	static Kv__Wire__Layout layout;

	kv__wire__layout__init(&layout);
	kv__wire__layer__init(&layers[0]);
	kv__wire__layer__init(&layers[1]);
	kv__wire__tag__init(&tag);
	memset(fingerprint, 0xf1, sizeof(fingerprint));
	layout.fingerprint = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	layers[0].n_query_groups = 2;
	layers[0].k_width = 16;
	layers[0].v_width = 8;
	layers[1] = layers[0];
	layers[1].bound_slots = 64;
	layout.n_layers = 2;
	layout.layers = layer_list;
	layout.dtype = 3;
	layout.k_format = layout.v_format = 1;
	layout.block_tokens = 16;
	tag.key = (char *)"rope";
	tag.value = (char *)"10000";
	layout.n_tags = 1;
	layout.tags = tag_list;
	layout.salt = (ProtobufCBinaryData){sizeof(salt), salt};
	return &layout;
}

REQUEST(noop, NOOP, Noop)
{
	(void)m;
}

REQUEST(layout_register, LAYOUT_REGISTER, LayoutRegister)
{
	m->layout = golden_layout();
}

REQUEST(layout_get, LAYOUT_GET, LayoutGet)
{
	m->hash = (ProtobufCBinaryData){sizeof(frame_layout_hash), (uint8_t *)frame_layout_hash};
}

REQUEST(writer_new, WRITER_NEW, WriterNew)
{
	(void)m;
}

/* Comes before there is such a writer: the conversation goes on with the first one. */
REQUEST(writer_free, WRITER_FREE, WriterFree)
{
	m->writer = 63;
}

REQUEST(seq_new, SEQ_NEW, SeqNew)
{
	m->writer = 0;
	m->layout_id = FRAME_ID_LAYOUT;
	m->name = seq_name;
	m->max_tokens = 4096;
}

REQUEST(seq_drop, SEQ_DROP, SeqDrop)
{
	static uint32_t places[2] = {77, 4000};

	m->n_places = 2;
	m->places = places;
	m->park = true;
}

REQUEST(seq_name, SEQ_NAME, SeqName)
{
	m->place = 0;
	m->name = named;
}

REQUEST(reserve, RESERVE, Reserve)
{
	static Kv__Wire__Need needs[2], *list[2] = {&needs[0], &needs[1]};

	kv__wire__need__init(&needs[0]);
	needs[0].n_blocks = 2;
	needs[1] = needs[0];
	needs[1].group = 1;
	needs[1].after_arena = 1;
	needs[1].after_block = 2;
	needs[1].contiguous = true;
	m->layout_id = FRAME_ID_LAYOUT;
	m->n_needs = 2;
	m->needs = list;
}

REQUEST(release, RELEASE, Release)
{
	static Kv__Wire__Run run, *list[1] = {&run};

	kv__wire__run__init(&run);
	run.arena = 1;
	run.first_block = 1;
	run.n_blocks = 1;
	m->n_runs = 1;
	m->runs = list;
	m->layout_id = FRAME_ID_LAYOUT;
}

REQUEST(places_reserve, PLACES_RESERVE, PlacesReserve)
{
	m->writer = 0;
	m->layout_id = FRAME_ID_LAYOUT;
	m->n_places = 2;
	m->max_tokens = 4096;
}

REQUEST(snapshot, SNAPSHOT, Snapshot)
{
	static Kv__Wire__SnapshotOne one, *list[1] = {&one};

	kv__wire__snapshot_one__init(&one);
	one.source = by_name(named);
	one.name = snapshot_name;
	one.replace = true;
	m->n_ones = 1;
	m->ones = list;
}

REQUEST(fork, FORK, Fork)
{
	static Kv__Wire__ForkOne one, *list[1] = {&one};

	kv__wire__fork_one__init(&one);
	one.source = by_name(snapshot_name);
	one.name = fork_name;
	one.max_tokens = 4096;
	one.parked = true;
	one.writer = 63;
	m->n_ones = 1;
	m->ones = list;
}

REQUEST(open, OPEN, Open)
{
	m->source = by_name(snapshot_name);
	m->writer = 0;
}

REQUEST(unpin, UNPIN, Unpin)
{
	static uint64_t ids[2] = {FRAME_ID_SNAPSHOT, UINT64_C(1) << 40};

	m->n_base_ids = 2;
	m->base_ids = ids;
}

REQUEST(rollback, ROLLBACK, Rollback)
{
	static Kv__Wire__RollbackOne one, *list[1] = {&one};

	kv__wire__rollback_one__init(&one);
	one.source = by_place(0);
	one.mode = 2;
	one.n_tokens = 3; /* of none */
	m->n_ones = 1;
	m->ones = list;
}

REQUEST(takeover, TAKEOVER, Takeover)
{
	m->name = fork_name;
	m->writer = 0;
	m->max_tokens = 8192;
}

REQUEST(remove, REMOVE, Remove)
{
	m->source = by_name(seq_name); /* is called otherwise by now */
}

REQUEST(list, LIST, List)
{
	m->after_id = 1;
	m->prefix = prefix;
	m->local = true;
}

REQUEST(show, SHOW, Show)
{
	m->source = by_id(FRAME_ID_SEQ);
}

REQUEST(verify, VERIFY, Verify)
{
	m->source = by_name(snapshot_name);
}

REQUEST(job_get, JOB_GET, JobGet)
{
	m->job_id = FRAME_ID_JOB;
}

REQUEST(job_cancel, JOB_CANCEL, JobCancel)
{
	m->job_id = FRAME_ID_JOB;
}

REQUEST(session_list, SESSION_LIST, SessionList)
{
	m->after_id = 0;
}

REQUEST(session_end, SESSION_END, SessionEnd)
{
	m->session = 12345;
}

REQUEST(status, STATUS, Status)
{
	(void)m;
}

REQUEST(wait, WAIT, Wait)
{
	m->name = snapshot_name;
}

REQUEST(save, SAVE, Save)
{
	m->source = by_name(snapshot_name);
	m->name = saved_name;
	m->replace = true;
}

REQUEST(load, LOAD, Load)
{
	m->name = snapshot_name; /* is saved under another name */
	m->as_name = saved_name;
	m->replace = true;
	m->n_tokens = 7;
}

REQUEST(saved_list, SAVED_LIST, SavedList)
{
	m->after_number = 1;
	m->prefix = prefix;
}

REQUEST(saved_remove, SAVED_REMOVE, SavedRemove)
{
	m->name = snapshot_name;
}

REQUEST(store_check, STORE_CHECK, StoreCheck)
{
	m->repair = true;
}

/* ---- attach messages ---------------------------------------------------------------------- */

#define ATTACH(field, FIELD, Type) \
	static void fill_attach_##field(Kv__Wire__##Type *m); \
	static size_t pack_attach_##field(uint8_t *out) \
	{ \
		Kv__Wire__AttachRequest r = KV__WIRE__ATTACH_REQUEST__INIT; \
		Kv__Wire__##Type m; \
\
		kv__wire__##field##__init(&m); \
		memset(token, FRAME_TOKEN, sizeof(token)); \
		fill_attach_##field(&m); \
		r.version = r.shm_version = 1; \
		r.what_case = KV__WIRE__ATTACH_REQUEST__WHAT_##FIELD; \
		r.field = &m; \
		return kv__wire__attach_request__pack(&r, out); \
	} \
	static void fill_attach_##field(Kv__Wire__##Type *m)

ATTACH(hello, HELLO, Hello)
{
	m->session = FRAME_SESSION;
	m->token = (ProtobufCBinaryData){sizeof(token), token};
}

ATTACH(arena_get, ARENA_GET, ArenaGet)
{
	m->arena = 1;
}

ATTACH(watch, WATCH, Watch)
{
	m->name = snapshot_name;
}

ATTACH(bye, BYE, Bye)
{
	(void)m;
}

static Kv__Wire__AttachReply attach_reply_of(void)
{
	Kv__Wire__AttachReply reply = KV__WIRE__ATTACH_REPLY__INIT;

	memset(boot, FRAME_BOOT, sizeof(boot));
	memset(token, FRAME_TOKEN, sizeof(token));
	reply.version = reply.shm_version = 1;
	reply.boot = (ProtobufCBinaryData){sizeof(boot), boot};
	return reply;
}

static size_t pack_welcome(uint8_t *out)
{
	Kv__Wire__AttachReply reply = attach_reply_of();
	Kv__Wire__Welcome welcome = KV__WIRE__WELCOME__INIT;

	welcome.session = FRAME_SESSION;
	welcome.token = (ProtobufCBinaryData){sizeof(token), token};
	welcome.segment_bytes = UINT64_C(4) << 30;
	welcome.life = 2;
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_WELCOME;
	reply.welcome = &welcome;
	return kv__wire__attach_reply__pack(&reply, out);
}

static size_t pack_arena_info(uint8_t *out)
{
	Kv__Wire__AttachReply reply = attach_reply_of();
	Kv__Wire__ArenaInfo arena = KV__WIRE__ARENA_INFO__INIT;

	arena.arena = 1;
	arena.arena_id = 2;
	arena.layout_id = 3;
	arena.group = 4;
	arena.n_blocks = 5;
	arena.n_bytes = 6;
	arena.writable = true;
	reply.what_case = KV__WIRE__ATTACH_REPLY__WHAT_ARENA;
	reply.arena = &arena;
	return kv__wire__attach_reply__pack(&reply, out);
}

static size_t pack_attach_refusal(uint8_t *out)
{
	Kv__Wire__AttachReply reply = attach_reply_of();

	reply.status = KV_ESESSION;
	reply.detail = (char *)"say Hello first";
	return kv__wire__attach_reply__pack(&reply, out);
}

/* ---- replies ------------------------------------------------------------------------------ */

#define REPLY_AS(name, field, FIELD, Type, init) \
	static void fill_reply_##name(Kv__Wire__##Type *m); \
	static size_t pack_reply_##name(uint8_t *out) \
	{ \
		Kv__Wire__Reply r = KV__WIRE__REPLY__INIT; \
		Kv__Wire__##Type m; \
\
		init(&m); \
		memset(boot, FRAME_BOOT, sizeof(boot)); \
		memset(digest, 0xd1, sizeof(digest)); \
		fill_reply_##name(&m); \
		r.version = 1; \
		r.session = FRAME_SESSION; \
		r.id = 7; \
		r.boot = (ProtobufCBinaryData){sizeof(boot), boot}; \
		r.status = KV_EBUSY; \
		r.detail = (char *)"detail"; \
		r.result_case = KV__WIRE__REPLY__RESULT_##FIELD; \
		r.field = &m; \
		return kv__wire__reply__pack(&r, out); \
	} \
	static void fill_reply_##name(Kv__Wire__##Type *m)
#define REPLY(field, FIELD, Type, init) REPLY_AS(field, field, FIELD, Type, init)

REPLY(layout, LAYOUT, LayoutResult, kv__wire__layout_result__init)
{
	m->layout_id = 100;
	m->hash = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	m->layout = golden_layout();
}

REPLY(writer, WRITER, WriterResult, kv__wire__writer_result__init)
{
	m->writer = 5;
}

REPLY(places, PLACES, PlacesResult, kv__wire__places_result__init)
{
	static Kv__Wire__Place place, *list[1] = {&place};

	kv__wire__place__init(&place);
	place.place = 1;
	place.seq_id = 2;
	place.layout_id = 3;
	place.length_tokens = 4;
	place.base_id = 5;
	place.base_update = 6;
	m->n_places = 1;
	m->places = list;
}

REPLY(runs, RUNS, RunsResult, kv__wire__runs_result__init)
{
	static Kv__Wire__Run run, *list[1] = {&run};

	kv__wire__run__init(&run);
	run.group = 1;
	run.arena = 2;
	run.first_block = 3;
	run.n_blocks = 4;
	m->n_runs = 1;
	m->runs = list;
}

REPLY(snapshot, SNAPSHOT, SnapshotResult, kv__wire__snapshot_result__init)
{
	static Kv__Wire__SnapshotDone one, *list[1] = {&one};

	kv__wire__snapshot_done__init(&one);
	one.id = 1;
	one.length_tokens = 2;
	one.update = 3;
	m->n_ones = 1;
	m->ones = list;
}

REPLY(rollback, ROLLBACK, RollbackResult, kv__wire__rollback_result__init)
{
	static Kv__Wire__RollbackDone one, *list[1] = {&one};

	kv__wire__rollback_done__init(&one);
	one.length_tokens = 1;
	m->n_ones = 1;
	m->ones = list;
}

REPLY(objects, OBJECTS, ObjectsResult, kv__wire__objects_result__init)
{
	static Kv__Wire__Object one, *list[1] = {&one};

	kv__wire__object__init(&one);
	one.id = 1;
	one.kind = 2;
	one.state = 3;
	one.name = snapshot_name;
	one.layout_hash = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	one.length_tokens = 6;
	one.update = 7;
	one.n_bytes = 8;
	one.n_shared_bytes = 9;
	one.uid = 10;
	one.session = 11;
	one.parent_id = UINT64_C(1) << 63 | 12;
	one.parent_update = 13;
	one.created_unix_ns = 14;
	one.digest = (ProtobufCBinaryData){sizeof(digest), digest};
	one.n_users = 16;
	one.local = 1;
	one.place = 18;
	one.n_marks = 19;
	one.freeze_count = 20;
	one.n_runs = 21;
	m->n_objects = 1;
	m->objects = list;
	m->more = true;
}

/* What a program of the first release does not know. */
REPLY_AS(objects_journal, objects, OBJECTS, ObjectsResult, kv__wire__objects_result__init)
{
	static Kv__Wire__Object one, *list[1] = {&one};

	kv__wire__object__init(&one);
	one.id = 1;
	one.journal_mode = 22;
	one.n_journal_rows = 23;
	one.base_tokens = 24;
	one.position = 25;
	one.n_journal_bytes = 26;
	m->n_objects = 1;
	m->objects = list;
}

REPLY(job, JOB, JobResult, kv__wire__job_result__init)
{
	static Kv__Wire__BadBlock bad, *list[1] = {&bad};

	kv__wire__bad_block__init(&bad);
	bad.group = 1;
	bad.index = 2;
	bad.first_token = 3;
	bad.n_tokens = 4;
	m->job_id = 1;
	m->state = 2;
	m->n_done_bytes = 3;
	m->n_total_bytes = 4;
	m->digest = (ProtobufCBinaryData){sizeof(digest), digest};
	m->n_blocks = 6;
	m->n_known = 7;
	m->n_bad_blocks = 8;
	m->n_bad = 1;
	m->bad = list;
	m->status = 10;
	m->detail = (char *)"eleven";
}

REPLY(sessions, SESSIONS, SessionsResult, kv__wire__sessions_result__init)
{
	static Kv__Wire__SessionInfo one, *list[1] = {&one};

	kv__wire__session_info__init(&one);
	one.id = 1;
	one.uid = 2;
	one.pid = 3;
	one.comm = (char *)"four";
	one.n_sequences = 5;
	one.n_bytes = 6;
	one.age_ms = 7;
	one.state = 8;
	one.n_commits = 9;
	one.n_appended_tokens = 10;
	one.n_copied_bytes = 11;
	one.n_rollbacks = 12;
	one.n_local_forks = 13;
	m->n_sessions = 1;
	m->sessions = list;
	m->more = true;
}

REPLY(status_result, STATUS_RESULT, StatusResult, kv__wire__status_result__init)
{
	m->version = (char *)"one";
	m->uptime_ms = 2;
	m->core_pid = 3;
	m->n_core_restarts = 4;
	m->pool_total_bytes = 5;
	m->pool_live_bytes = 6;
	m->pool_reserved_bytes = 7;
	m->pool_cached_bytes = 8;
	m->pool_quarantined_bytes = 9;
	m->pool_free_bytes = 10;
	m->n_sessions = 11;
	m->n_sequences = 12;
	m->n_snapshots = 13;
	m->n_layouts = 14;
	m->n_arenas = 15;
	m->catalogue_bytes = 16;
	m->n_requests = 17;
	m->huge = (char *)"eighteen";
	m->mlock = (char *)"nineteen";
	m->quota_bytes = 20;
	m->used_bytes = 21;
	m->n_copied_bytes = 22;
	m->control_bytes = 23;
	m->runtime_dir = (char *)"/twenty/four";
}

/* What a program of the first release does not know. */
REPLY_AS(status_disk, status_result, STATUS_RESULT, StatusResult, kv__wire__status_result__init)
{
	static Kv__Wire__DiskInfo disk;
	static Kv__Wire__StartInfo start;

	kv__wire__disk_info__init(&disk);
	disk.dir = (char *)"/one";
	disk.io = (char *)"two";
	disk.max_bytes = 3;
	disk.file_bytes = 4;
	disk.used_bytes = 5;
	disk.cached_bytes = 6;
	disk.free_bytes = 7;
	disk.n_images = 8;
	disk.n_saved = 9;
	disk.n_set_aside = 10;
	disk.is_full = true;
	disk.n_in_flight = 12;
	disk.quarantined_bytes = 13;
	disk.n_read_bytes = 14;
	disk.n_written_bytes = 15;
	disk.n_failed = 16;
	disk.n_late = 17;
	disk.n_full = 18;
	disk.fault = (char *)"nineteen";
	m->disk = &disk;
	kv__wire__start_info__init(&start);
	start.took_us = 1;
	start.locked_bytes = 2;
	start.to_lock_bytes = 3;
	start.verified_bytes = 4;
	start.to_verify_bytes = 5;
	start.n_bad_blocks = 6;
	m->start = &start;
}

REPLY(saved, SAVED, SavedResult, kv__wire__saved_result__init)
{
	static Kv__Wire__SavedInfo one, *list[1] = {&one};

	kv__wire__saved_info__init(&one);
	one.number = 1;
	one.name = saved_name;
	one.kind = 2;
	one.length_tokens = 4;
	one.update = 5;
	one.n_bytes = 6;
	one.n_blocks = 7;
	one.saved_unix_ns = 8;
	one.digest = (ProtobufCBinaryData){sizeof(digest), digest};
	one.layout_hash = (ProtobufCBinaryData){sizeof(fingerprint), fingerprint};
	one.parent_name = seq_name;
	one.parent_update = 12;
	m->n_saved = 1;
	m->saved = list;
	m->more = true;
}

static size_t pack_event(uint8_t *out)
{
	Kv__Wire__Event event = KV__WIRE__EVENT__INIT;

	memset(boot, FRAME_BOOT, sizeof(boot));
	event.number = 1;
	event.boot = (ProtobufCBinaryData){sizeof(boot), boot};
	event.kind = 3;
	event.id = 4;
	event.session = 5;
	event.uid = 6;
	event.length_tokens = 7;
	return kv__wire__event__pack(&event, out);
}

/* ---- the table ---------------------------------------------------------------------------- */

#define R(field, FIELD, status, result, id) \
	{ \
		"request-" #field, FRAME_REQUEST, KV__WIRE__REQUEST__COMMAND_##FIELD, KV_##status, \
			KV__WIRE__REPLY__RESULT_##result, id, pack_##field \
	}
#define A(field, FIELD) \
	{ \
		"attach-" #field, FRAME_ATTACH, KV__WIRE__ATTACH_REQUEST__WHAT_##FIELD, 0, 0, 0, \
			pack_attach_##field \
	}
#define P(field, FIELD) \
	{ \
		"reply-" #field, FRAME_REPLY, KV__WIRE__REPLY__RESULT_##FIELD, 0, 0, 0, \
			pack_reply_##field \
	}

const struct frame frames[] = {
	R(noop, NOOP, OK, _NOT_SET, 0),
	R(layout_register, LAYOUT_REGISTER, OK, LAYOUT, FRAME_ID_LAYOUT),
	R(layout_get, LAYOUT_GET, OK, LAYOUT, 0),
	R(writer_new, WRITER_NEW, OK, WRITER, 0),
	R(writer_free, WRITER_FREE, EINVAL, _NOT_SET, 0),
	R(seq_new, SEQ_NEW, OK, PLACES, FRAME_ID_SEQ),
	R(seq_drop, SEQ_DROP, ENOTFOUND, _NOT_SET, 0),
	R(seq_name, SEQ_NAME, OK, _NOT_SET, 0),
	R(reserve, RESERVE, OK, RUNS, 0),
	R(release, RELEASE, OK, _NOT_SET, 0),
	R(places_reserve, PLACES_RESERVE, OK, PLACES, 0),
	R(snapshot, SNAPSHOT, OK, SNAPSHOT, FRAME_ID_SNAPSHOT),
	R(fork, FORK, OK, PLACES, FRAME_ID_FORK),
	R(open, OPEN, OK, PLACES, 0),
	R(unpin, UNPIN, ENOTFOUND, _NOT_SET, 0),
	R(rollback, ROLLBACK, ERANGE, _NOT_SET, 0),
	R(takeover, TAKEOVER, OK, PLACES, 0),
	R(remove, REMOVE, ENOTFOUND, _NOT_SET, 0),
	R(list, LIST, OK, OBJECTS, 0),
	R(show, SHOW, OK, OBJECTS, 0),
	R(verify, VERIFY, OK, JOB, FRAME_ID_JOB),
	R(job_get, JOB_GET, OK, JOB, 0),
	R(job_cancel, JOB_CANCEL, OK, JOB, 0),
	R(session_list, SESSION_LIST, OK, SESSIONS, 0),
	R(session_end, SESSION_END, ENOTFOUND, _NOT_SET, 0),
	R(status, STATUS, OK, STATUS_RESULT, 0),
	R(wait, WAIT, OK, _NOT_SET, 0),
	R(save, SAVE, OK, JOB, 0),
	R(load, LOAD, ENOTFOUND, _NOT_SET, 0),
	R(saved_list, SAVED_LIST, OK, SAVED, 0),
	R(saved_remove, SAVED_REMOVE, ENOTFOUND, _NOT_SET, 0),
	R(store_check, STORE_CHECK, EPERM, _NOT_SET, 0),
	A(hello, HELLO),
	A(arena_get, ARENA_GET),
	A(watch, WATCH),
	A(bye, BYE),
	{"attach-reply-welcome", FRAME_ATTACH_REPLY, KV__WIRE__ATTACH_REPLY__WHAT_WELCOME, 0, 0, 0,
	 pack_welcome},
	{"attach-reply-arena", FRAME_ATTACH_REPLY, KV__WIRE__ATTACH_REPLY__WHAT_ARENA, 0, 0, 0,
	 pack_arena_info},
	{"attach-reply-refusal", FRAME_ATTACH_REPLY, KV__WIRE__ATTACH_REPLY__WHAT__NOT_SET, 0, 0, 0,
	 pack_attach_refusal},
	P(layout, LAYOUT),
	P(writer, WRITER),
	P(places, PLACES),
	P(runs, RUNS),
	P(snapshot, SNAPSHOT),
	P(rollback, ROLLBACK),
	P(objects, OBJECTS),
	P(objects_journal, OBJECTS),
	P(job, JOB),
	P(sessions, SESSIONS),
	P(status_result, STATUS_RESULT),
	P(status_disk, STATUS_RESULT),
	P(saved, SAVED),
	{"event", FRAME_EVENT, 3, 0, 0, 0, pack_event},
};

const size_t n_frames = sizeof(frames) / sizeof(frames[0]);
