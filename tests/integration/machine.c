#include "tests/integration/machine.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/rpc.h"
#include "tests/integration/shadow.h"
#include "tests/support/client.h"
#include "tests/support/tmpdir.h"
#include "tests/support/wait.h"

#define DEADLINE_MS 20000
#define OUR_ARGUMENTS 8

/* ---- the daemon --------------------------------------------------------------------------- */

void machine_start(struct machine *m)
{
	struct kvc_session_options options = {.size = sizeof(options), .deadline_ms = DEADLINE_MS};
	const char *arguments[OUR_ARGUMENTS + MACHINE_ARGUMENTS_MAX + 1] = {
		"--disk-bytes", "64M", "--preallocate", "no",
		"--mlock",      "no",  "--log-level",   "warn"};
	size_t n = OUR_ARGUMENTS;
	char dir[300];

	snprintf(dir, sizeof(dir), "--disk-dir=%s/store", m->disk_dir);
	arguments[n++] = dir;
	for (size_t i = 0; m->arguments[i]; i++)
		arguments[n++] = m->arguments[i];
	m->daemon = kt_daemon_spawn(m->runtime_dir, arguments);
	assert_true(kt_daemon_wait_ready(m->daemon));
	options.runtime_dir = m->runtime_dir;
	there(m->session = kvc_open(&options));
	there(m->writer = kvc_writer_new(m->session));
}

void machine_begin(struct machine *m, const char *const *arguments)
{
	*m = (struct machine){.runtime_dir = kt_tmpdir_new(), .disk_dir = kt_tmpdir_new()};
	for (size_t i = 0; arguments && arguments[i]; i++) {
		assert_true(i + 1 < MACHINE_ARGUMENTS_MAX);
		m->arguments[i] = arguments[i];
	}
	machine_start(m);
}

void machine_end(struct machine *m)
{
	kvc_close(m->session);
	assert_int_equal(kt_daemon_stop(m->daemon), 0);
	kt_tmpdir_free(m->runtime_dir);
	kt_tmpdir_free(m->disk_dir);
}

void machine_power_cut(struct machine *m)
{
	kvc_close(m->session);
	kill(kt_daemon_keeper(m->daemon), SIGKILL);
	assert_true(kt_daemon_wait_end(m->daemon, DEADLINE_MS) != -1);
	kt_daemon_stop(m->daemon);
	machine_start(m);
	machine_wait_disk(m);
}

void machine_restart(struct machine *m)
{
	kvc_close(m->session);
	assert_int_equal(kt_daemon_stop(m->daemon), 0);
	machine_start(m);
	machine_wait_disk(m);
}

/* ---- its disk ----------------------------------------------------------------------------- */

static Kv__Wire__Reply *ask_status(const struct machine *m)
{
	Kv__Wire__Reply *reply;

	there(reply = kt_status(m->session));
	return reply;
}

static bool has_disk(void *arg)
{
	Kv__Wire__Reply *reply = ask_status(arg);
	bool has = reply->status_result->disk && !reply->status_result->disk->fault[0];

	rpc_reply_free(reply);
	return has;
}

void machine_wait_disk(const struct machine *m)
{
	assert_true(kt_wait_until(has_disk, (void *)(uintptr_t)m, DEADLINE_MS));
}

bool machine_is_quiet(void *arg)
{
	Kv__Wire__Reply *reply = ask_status(arg);
	bool is = reply->status_result->disk->n_in_flight == 0;

	rpc_reply_free(reply);
	return is;
}

uint64_t machine_disk_used(const struct machine *m)
{
	Kv__Wire__Reply *reply = ask_status(m);
	const Kv__Wire__DiskInfo *disk = reply->status_result->disk;
	uint64_t used = disk->used_bytes;

	assert_int_equal(used + disk->cached_bytes + disk->free_bytes, disk->file_bytes);
	assert_true(disk->file_bytes <= disk->max_bytes);
	rpc_reply_free(reply);
	return used;
}

struct kvc_saved_result machine_save(const struct machine *m, const char *name)
{
	struct kvc_saved_result result;

	ok(kvc_save(m->session, name, NULL, NULL, NULL, &result));
	return result;
}

struct kvc_saved_result machine_load(const struct machine *m, const char *name)
{
	struct kvc_saved_result result;

	ok(kvc_load(m->session, name, NULL, NULL, NULL, &result));
	return result;
}
