#include "tests/unit/ctl-answers.h"

#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/shm.h"

#define MIB (UINT64_C(1) << 20)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint8_t hash_bytes[32] = {0xa1, 0xb2, 0xc3, 0xd4, 5, 6, 7, 8};
static uint8_t fingerprint_bytes[32] = {0xfe, 0xed, 0xfa, 0xce};
static uint8_t digest_bytes[16] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};

struct row {
	uint64_t id;
	uint32_t kind, state, local, place;
	const char *name;
	uint64_t length, n_bytes, n_shared, session, parent, parent_update, age_s;
};

/* A prompt from a process that has gone, two forks, a local fork, an orphan, two of one parent
 * that is gone, and a name that no column holds. */
#define LOCAL(place) (UINT64_C(1) << 63 | 7 << 12 | (place))

static const struct row rows[] = {
	{2, 2, 3, 0, 0, "demo/prompt", 1600, 7 * MIB, 6 * MIB + 512 * 1024, 0, 1, 25, 300},
	{3, 1, 1, 0, 0, "chat/alice", 1812, 8 * MIB, 6 * MIB, 7, 2, 25, 290},
	{4, 1, 2, 0, 0, "chat/bob", 1600, 7 * MIB, 7 * MIB, 0, 2, 25, 7600},
	{5, 2, 3, 0, 0, "chat/alice.before-the-long-tool-call/with-a-name-that-no-column-holds",
	 1700, 7 * MIB, 7 * MIB, 0, 3, 100, 100},
	{9, 2, 3, 0, 0, "old/left", 64, 256 * 1024, 0, 0, 8, 3, 200000},
	{10, 2, 3, 0, 0, "old/right", 65, 512 * 1024, 256 * 1024, 0, 8, 4, 200000},
	{11, 1, 1, 0, 0, "", 0, 0, 0, 12, 0, 0, 1},
	{LOCAL(9), 1, 1, 1, 9, "", 1820, 8 * MIB, 7 * MIB + 768 * 1024, 7, 3, 212, 0},
	{LOCAL(10), 2, 3, 1, 10, "", 1820, 8 * MIB, 8 * MIB, 7, KV_PARENT_PLACE | 9, 2, 0},
};

static void object_fill(Kv__Wire__Object *o, const struct row *row)
{
	kv__wire__object__init(o);
	o->id = row->id;
	o->kind = row->kind;
	o->state = row->state;
	o->local = row->local;
	o->place = row->place;
	o->name = (char *)(uintptr_t)row->name;
	o->length_tokens = row->length;
	o->n_bytes = row->n_bytes;
	o->n_shared_bytes = row->n_shared;
	o->session = row->session;
	o->parent_id = row->parent;
	o->parent_update = row->parent_update;
	o->update = row->parent_update + 1;
	o->created_unix_ns = row->age_s ? ANSWERS_NOW_NS - row->age_s * 1000000000 : 0;
	o->n_users = row->kind == 2 ? 2 : 0;
	o->n_runs = row->length ? 2 : 0;
	o->base_tokens = o->position = row->length;
	if (row->id == 3) { /* a prompt, and what came after it in a journal */
		o->journal_mode = 2;
		o->n_journal_rows = 1785;
		o->n_journal_bytes = MIB;
		o->base_tokens = 1600;
		o->position = 2324;
	}
	o->n_marks = row->id == 3;
	o->freeze_count = 1;
	o->layout_hash.data = hash_bytes;
	o->layout_hash.len = sizeof(hash_bytes);
	if (row->id == 2) {
		o->digest.data = digest_bytes;
		o->digest.len = sizeof(digest_bytes);
	}
}

/* Gives the caller a reply that it may free, as if it had come off the wire. */
static int give(const Kv__Wire__Reply *filled, Kv__Wire__Reply **reply)
{
	size_t n = kv__wire__reply__get_packed_size(filled);
	uint8_t *bytes = malloc(n + 1);

	kv__wire__reply__pack(filled, bytes);
	*reply = kv__wire__reply__unpack(NULL, n, bytes);
	free(bytes);
	return *reply ? 0 : -1;
}

/* Rows of one page: the first five, then the rest, so that paging is seen. */
static int answer_list(const struct answers *answers, const Kv__Wire__List *list,
		       Kv__Wire__Reply *filled, Kv__Wire__Reply **reply)
{
	Kv__Wire__ObjectsResult result = KV__WIRE__OBJECTS_RESULT__INIT;
	Kv__Wire__Object objects[COUNT(rows)], *pointers[COUNT(rows)];
	size_t n_seen = 0;

	for (size_t i = 0; i < COUNT(rows) && !answers->empty; i++) {
		if (strncmp(rows[i].name, list->prefix, strlen(list->prefix)) != 0)
			continue;
		if ((n_seen++ < 5) != (list->after_id == 0))
			continue;
		object_fill(&objects[result.n_objects], &rows[i]);
		pointers[result.n_objects] = &objects[result.n_objects];
		result.n_objects++;
	}
	result.objects = pointers;
	result.more = !list->after_id && n_seen > 5;
	filled->result_case = KV__WIRE__REPLY__RESULT_OBJECTS;
	filled->objects = &result;
	return give(filled, reply);
}

static const struct row *row_find(const Kv__Wire__Target *target)
{
	for (size_t i = 0; i < COUNT(rows); i++)
		if (target->which_case == KV__WIRE__TARGET__WHICH_ID ?
			    rows[i].id == target->id :
			    rows[i].name[0] && !strcmp(rows[i].name, target->name))
			return &rows[i];
	return NULL;
}

static int answer_show(const Kv__Wire__Target *target, Kv__Wire__Reply *filled,
		       Kv__Wire__Reply **reply, struct errbuf *err)
{
	Kv__Wire__ObjectsResult result = KV__WIRE__OBJECTS_RESULT__INIT;
	const struct row *row = row_find(target);
	Kv__Wire__Object object, *pointer = &object;

	if (!row)
		return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
	object_fill(&object, row);
	result.n_objects = 1;
	result.objects = &pointer;
	filled->result_case = KV__WIRE__REPLY__RESULT_OBJECTS;
	filled->objects = &result;
	return give(filled, reply);
}

static int answer_layout(Kv__Wire__Reply *filled, Kv__Wire__Reply **reply)
{
	Kv__Wire__LayoutResult result = KV__WIRE__LAYOUT_RESULT__INIT;
	Kv__Wire__Layout layout = KV__WIRE__LAYOUT__INIT;
	Kv__Wire__Layer layers[4], *pointers[4];
	Kv__Wire__Tag tag = KV__WIRE__TAG__INIT, *tags = &tag;

	for (size_t i = 0; i < COUNT(layers); i++) {
		kv__wire__layer__init(&layers[i]);
		layers[i].n_query_groups = 2;
		layers[i].k_width = layers[i].v_width = 64;
		layers[i].bound_slots = i == 3 ? 4096 : 0;
		pointers[i] = &layers[i];
	}
	tag.key = (char *)(uintptr_t) "rope";
	tag.value = (char *)(uintptr_t) "half, theta \033[31m10000";
	layout.fingerprint.data = fingerprint_bytes;
	layout.fingerprint.len = sizeof(fingerprint_bytes);
	layout.n_layers = COUNT(layers);
	layout.layers = pointers;
	layout.dtype = 1;
	layout.k_format = layout.v_format = 1;
	layout.block_tokens = 64;
	layout.n_tags = 1;
	layout.tags = &tags;
	result.layout_id = 1;
	result.layout = &layout;
	filled->result_case = KV__WIRE__REPLY__RESULT_LAYOUT;
	filled->layout = &result;
	return give(filled, reply);
}

static int answer_snapshot(const Kv__Wire__Snapshot *snapshot, Kv__Wire__Reply *filled,
			   Kv__Wire__Reply **reply, struct errbuf *err)
{
	Kv__Wire__SnapshotResult result = KV__WIRE__SNAPSHOT_RESULT__INIT;
	Kv__Wire__SnapshotDone ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];

	for (size_t i = 0; i < snapshot->n_ones; i++) {
		const Kv__Wire__SnapshotOne *one = snapshot->ones[i];
		const struct row *row = row_find(one->source);

		if (!row)
			return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
		if (!strcmp(one->name, "taken") && !one->replace)
			return errbuf_set(err, KV_EEXIST,
					  "the name taken is taken; replace it or "
					  "choose another");
		kv__wire__snapshot_done__init(&ones[i]);
		ones[i].id = 100 + i;
		ones[i].length_tokens = row->length;
		ones[i].update = 42;
		pointers[i] = &ones[i];
	}
	result.n_ones = snapshot->n_ones;
	result.ones = pointers;
	filled->result_case = KV__WIRE__REPLY__RESULT_SNAPSHOT;
	filled->snapshot = &result;
	return give(filled, reply);
}

static int answer_fork(const Kv__Wire__Fork *fork, Kv__Wire__Reply *filled, Kv__Wire__Reply **reply,
		       struct errbuf *err)
{
	Kv__Wire__PlacesResult result = KV__WIRE__PLACES_RESULT__INIT;
	Kv__Wire__Place places[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];

	for (size_t i = 0; i < fork->n_ones; i++) {
		const struct row *row = row_find(fork->ones[i]->source);

		if (!row || !fork->ones[i]->parked)
			return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
		kv__wire__place__init(&places[i]);
		places[i].seq_id = 200 + i;
		places[i].length_tokens = row->length;
		pointers[i] = &places[i];
	}
	result.n_places = fork->n_ones;
	result.places = pointers;
	filled->result_case = KV__WIRE__REPLY__RESULT_PLACES;
	filled->places = &result;
	return give(filled, reply);
}

static int answer_rollback(const Kv__Wire__Rollback *rollback, Kv__Wire__Reply *filled,
			   Kv__Wire__Reply **reply, struct errbuf *err)
{
	Kv__Wire__RollbackResult result = KV__WIRE__ROLLBACK_RESULT__INIT;
	Kv__Wire__RollbackDone ones[KV_TARGETS_MAX], *pointers[KV_TARGETS_MAX];

	for (size_t i = 0; i < rollback->n_ones; i++) {
		const Kv__Wire__RollbackOne *one = rollback->ones[i];
		const struct row *row = row_find(one->source);

		if (!row)
			return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
		if (one->n_tokens > row->length)
			return errbuf_set(err, KV_ERANGE, "%s has only %u tokens", row->name,
					  (unsigned)row->length);
		kv__wire__rollback_done__init(&ones[i]);
		ones[i].length_tokens = one->mode == 1 ? one->n_tokens :
							 row->length - one->n_tokens;
		pointers[i] = &ones[i];
	}
	result.n_ones = rollback->n_ones;
	result.ones = pointers;
	filled->result_case = KV__WIRE__REPLY__RESULT_ROLLBACK;
	filled->rollback = &result;
	return give(filled, reply);
}

static int answer_remove(const Kv__Wire__Target *target, Kv__Wire__Reply *filled,
			 Kv__Wire__Reply **reply, struct errbuf *err)
{
	const struct row *row = row_find(target);

	if (!row)
		return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
	if (row->session)
		return errbuf_set(err, KV_EBUSY, "session %u writes it", (unsigned)row->session);
	return give(filled, reply);
}

/* Job 1: of what is intact. Job 2: of what is not. Job 3: fails for damage. Job 4: is done and found
 * damage. They run for two polls. */
static int answer_job(struct answers *answers, uint64_t job_id, bool begin, Kv__Wire__Reply *filled,
		      Kv__Wire__Reply **reply)
{
	Kv__Wire__JobResult job = KV__WIRE__JOB_RESULT__INIT;
	Kv__Wire__BadBlock bad = KV__WIRE__BAD_BLOCK__INIT, *pointer = &bad;

	answers->n_job_polls = begin ? 0 : answers->n_job_polls + 1;
	job.job_id = job_id;
	job.state = answers->n_job_polls < 2 ? 1 : 2;
	job.n_total_bytes = 7 * MIB;
	job.n_done_bytes = answers->n_job_polls * 3 * MIB;
	job.digest.data = digest_bytes;
	job.digest.len = sizeof(digest_bytes);
	job.n_blocks = 25;
	job.n_known = 25;
	if (job.state == 2 && job_id == 2) {
		bad.group = 0;
		bad.index = 23;
		bad.first_token = 1472;
		bad.n_tokens = 64;
		job.n_bad_blocks = 3;
		job.n_bad = 1;
		job.bad = &pointer;
		job.status = KV_ECORRUPT;
	}
	if (job.state == 2 && job_id == 3) {
		job.state = 3;
		job.status = KV_ECORRUPT;
		job.detail =
			(char *)(uintptr_t) "old/right: block 0 of group 0, from token 0 on, is "
					    "damaged on the disk; nothing was loaded";
	}
	if (job.state == 2 && job_id == 4) {
		job.status = KV_ECORRUPT;
		job.detail = (char *)(uintptr_t) "2 of 25 images are damaged";
	}
	filled->result_case = KV__WIRE__REPLY__RESULT_JOB;
	filled->job = &job;
	return give(filled, reply);
}

static int answer_verify(struct answers *answers, const Kv__Wire__Target *target,
			 Kv__Wire__Reply *filled, Kv__Wire__Reply **reply, struct errbuf *err)
{
	const struct row *row = row_find(target);

	if (!row)
		return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
	return answer_job(answers, row->id == 10 ? 2 : 1, true, filled, reply);
}

static int answer_save(struct answers *answers, const Kv__Wire__Save *save, Kv__Wire__Reply *filled,
		       Kv__Wire__Reply **reply, struct errbuf *err)
{
	if (!row_find(save->source))
		return errbuf_set(err, KV_ENOTFOUND, "no object of that name or number");
	if (!strcmp(save->name, "taken") && !save->replace)
		return errbuf_set(err, KV_EEXIST, "taken is saved already");
	return answer_job(answers, 1, true, filled, reply);
}

static int answer_load(struct answers *answers, const Kv__Wire__Load *load, Kv__Wire__Reply *filled,
		       Kv__Wire__Reply **reply, struct errbuf *err)
{
	if (!strcmp(load->name, "nobody"))
		return errbuf_set(err, KV_ENOTFOUND, "nothing is saved as nobody");
	if (load->n_tokens > 1600)
		return errbuf_set(err, KV_ERANGE, "%s has 1600 tokens", load->name);
	return answer_job(answers, strcmp(load->name, "old/right") ? 1 : 3, true, filled, reply);
}

/* A page for each: a snapshot, and a sequence whose name no column holds. */
static int answer_saved(const struct answers *answers, const Kv__Wire__SavedList *list,
			Kv__Wire__Reply *filled, Kv__Wire__Reply **reply)
{
	Kv__Wire__SavedResult result = KV__WIRE__SAVED_RESULT__INIT;
	Kv__Wire__SavedInfo info = KV__WIRE__SAVED_INFO__INIT, *pointer = &info;
	bool first = list->after_number == 0;

	info.number = first ? 3 : 8;
	info.name = (char *)(uintptr_t)(first ? "demo/prompt" : rows[3].name);
	info.kind = first ? 2 : 1;
	info.length_tokens = 1600 + info.number;
	info.update = 25;
	info.n_bytes = info.number * MIB;
	info.n_blocks = 25;
	info.saved_unix_ns = ANSWERS_NOW_NS - info.number * 3600 * UINT64_C(1000000000);
	info.digest = (ProtobufCBinaryData){sizeof(digest_bytes), digest_bytes};
	info.layout_hash = (ProtobufCBinaryData){sizeof(hash_bytes), hash_bytes};
	info.parent_name = (char *)(uintptr_t)(first ? "" : "demo/prompt");
	info.parent_update = first ? 0 : 25;
	result.n_saved = !answers->empty && list->after_number < 8;
	result.saved = &pointer;
	result.more = first && !answers->empty;
	filled->result_case = KV__WIRE__REPLY__RESULT_SAVED;
	filled->saved = &result;
	return give(filled, reply);
}

static int answer_saved_remove(const char *name, Kv__Wire__Reply *filled, Kv__Wire__Reply **reply,
			       struct errbuf *err)
{
	if (!strcmp(name, "nobody"))
		return errbuf_set(err, KV_ENOTFOUND, "nothing is saved as nobody");
	return give(filled, reply);
}

/* Of a store that is nearly full; of one that cannot be had. */
static void disk_fill(const struct answers *answers, Kv__Wire__DiskInfo *disk)
{
	kv__wire__disk_info__init(disk);
	disk->dir = (char *)(uintptr_t) "/var/lib/kvcached";
	if (answers->disk == ANSWERS_DISK_FAULT) {
		disk->fault = (char *)(uintptr_t) "/var/lib/kvcached belongs to user 0";
		return;
	}
	disk->io = (char *)(uintptr_t) "threads: io_uring is not permitted";
	disk->max_bytes = 64 * MIB;
	disk->file_bytes = 60 * MIB;
	disk->used_bytes = 41 * MIB;
	disk->cached_bytes = 12 * MIB;
	disk->free_bytes = 7 * MIB;
	disk->n_images = 212;
	disk->n_saved = 9;
	disk->n_read_bytes = 1234 * MIB;
	disk->n_written_bytes = 99 * MIB;
	disk->n_in_flight = 3;
	if (answers->disk == ANSWERS_DISK_TROUBLE) {
		disk->n_set_aside = 1;
		disk->is_full = true;
		disk->quarantined_bytes = 2 * MIB;
		disk->n_failed = 4;
		disk->n_late = 1;
		disk->n_full = 17;
	}
}

static int answer_sessions(const struct answers *answers, Kv__Wire__Reply *filled,
			   Kv__Wire__Reply **reply)
{
	Kv__Wire__SessionsResult result = KV__WIRE__SESSIONS_RESULT__INIT;
	Kv__Wire__SessionInfo infos[3], *pointers[3];

	for (size_t i = 0; i < COUNT(infos); i++) {
		kv__wire__session_info__init(&infos[i]);
		infos[i].id = 7 + 5 * i;
		infos[i].pid = (uint32_t)(4100 + 38000 * i);
		infos[i].comm = (char *)(uintptr_t)(i == 1 ? "bad\033[2Jname" : "kvc-generate");
		infos[i].n_sequences = (uint32_t)i;
		infos[i].n_local_forks = i;
		infos[i].n_bytes = 9 * MIB * i;
		infos[i].age_ms = 1000 * (i + 1) * (i + 1) * 3000;
		infos[i].state = (uint32_t)i + 1;
		infos[i].n_commits = 212;
		infos[i].n_appended_tokens = 1812 * (i + 1);
		pointers[i] = &infos[i];
	}
	result.n_sessions = answers->empty ? 0 : COUNT(infos);
	result.sessions = pointers;
	filled->result_case = KV__WIRE__REPLY__RESULT_SESSIONS;
	filled->sessions = &result;
	return give(filled, reply);
}

static int answer_status(const struct answers *answers, Kv__Wire__Reply *filled,
			 Kv__Wire__Reply **reply)
{
	Kv__Wire__StatusResult s = KV__WIRE__STATUS_RESULT__INIT;
	Kv__Wire__DiskInfo disk;
	Kv__Wire__StartInfo start = KV__WIRE__START_INFO__INIT;

	start.took_us = 27345;
	start.locked_bytes = start.to_lock_bytes = 128 * MIB;
	start.verified_bytes = 3 * MIB;
	start.to_verify_bytes = 8 * MIB;
	start.n_bad_blocks = 2;
	s.start = &start;
	if (answers->disk != ANSWERS_DISK_NONE) {
		disk_fill(answers, &disk);
		s.disk = &disk;
	}
	s.version = (char *)(uintptr_t) "0.1.0";
	s.runtime_dir = (char *)(uintptr_t) "/run/kvcached";
	s.uptime_ms = 273600000;
	s.core_pid = 812;
	s.n_core_restarts = 1;
	s.pool_total_bytes = 256 * MIB;
	s.pool_live_bytes = 120 * MIB;
	s.pool_reserved_bytes = 12 * MIB + 300 * 1024;
	s.pool_cached_bytes = 8 * MIB;
	s.pool_quarantined_bytes = 512 * 1024;
	s.pool_free_bytes = s.pool_total_bytes - s.pool_live_bytes - s.pool_reserved_bytes -
			    s.pool_cached_bytes - s.pool_quarantined_bytes;
	s.n_sessions = 3;
	s.n_sequences = 4;
	s.n_snapshots = 4;
	s.n_layouts = 1;
	s.n_arenas = 6;
	s.catalogue_bytes = 64 * 1024;
	s.n_requests = 1234567;
	s.huge = (char *)(uintptr_t) "try: transparent huge pages are not there";
	s.mlock = (char *)(uintptr_t) "no: RLIMIT_MEMLOCK is 8 MiB";
	s.quota_bytes = 1024 * MIB;
	s.used_bytes = 140 * MIB;
	s.n_copied_bytes = 1300 * 1024;
	s.control_bytes = 2 * MIB + 100 * 1024;
	filled->result_case = KV__WIRE__REPLY__RESULT_STATUS_RESULT;
	filled->status_result = &s;
	return give(filled, reply);
}

int answers_call(struct ctl *ctl, Kv__Wire__Request *request, Kv__Wire__Reply **reply,
		 struct errbuf *err)
{
	struct answers *answers = ctl->call_arg;
	Kv__Wire__Reply filled = KV__WIRE__REPLY__INIT;

	answers->n_calls++;
	if (answers->no_daemon)
		return errbuf_set(err, KV_EDAEMON,
				  "no daemon listens at /run/kvcached/attach.sock; "
				  "start kvcached or give --runtime-dir");
	switch (request->command_case) {
	case KV__WIRE__REQUEST__COMMAND_STATUS: return answer_status(answers, &filled, reply);
	case KV__WIRE__REQUEST__COMMAND_LIST:
		return answer_list(answers, request->list, &filled, reply);
	case KV__WIRE__REQUEST__COMMAND_SHOW:
		return answer_show(request->show->source, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_LAYOUT_GET: return answer_layout(&filled, reply);
	case KV__WIRE__REQUEST__COMMAND_SNAPSHOT:
		return answer_snapshot(request->snapshot, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_FORK:
		return answer_fork(request->fork, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_ROLLBACK:
		return answer_rollback(request->rollback, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_REMOVE:
		return answer_remove(request->remove->source, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_VERIFY:
		return answer_verify(answers, request->verify->source, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_JOB_GET:
		return answer_job(answers, request->job_get->job_id, false, &filled, reply);
	case KV__WIRE__REQUEST__COMMAND_SAVE:
		return answer_save(answers, request->save, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_LOAD:
		return answer_load(answers, request->load, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_SAVED_LIST:
		return answer_saved(answers, request->saved_list, &filled, reply);
	case KV__WIRE__REQUEST__COMMAND_SAVED_REMOVE:
		return answer_saved_remove(request->saved_remove->name, &filled, reply, err);
	case KV__WIRE__REQUEST__COMMAND_STORE_CHECK:
		return answer_job(answers, request->store_check->repair ? 4 : 1, true, &filled,
				  reply);
	case KV__WIRE__REQUEST__COMMAND_SESSION_LIST:
		return answer_sessions(answers, &filled, reply);
	case KV__WIRE__REQUEST__COMMAND_SESSION_END:
		if (request->session_end->session == 7)
			return give(&filled, reply);
		return errbuf_set(err, KV_ENOTFOUND, "no session of that number");
	default: return errbuf_set(err, KV_EUNSUPPORTED, "not answered here");
	}
}
