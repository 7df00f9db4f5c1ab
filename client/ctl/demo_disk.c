/*
 * What the processes of the fourth act do. One saves the prompt's snapshot before everything is
 * stopped; one loads it from the daemon that was started again on the same folder; then samplers
 * do what those of the first act did (demo_role.c). The last one flips a bit of a slot file, is
 * refused, and saves the prompt once more.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/demo_role.h"
#include "client/examples/kv_sequence.h"

#define PAGE_BYTES 4096 /* slots are multiples of that: kvcache-store(5) */

/* ---- what the disk holds ------------------------------------------------------------------ */

static int ask_disk(struct role *r, struct errbuf *err)
{
	Kv__Wire__Reply *reply = role_ask_status(r, err);

	if (!reply)
		return -1;
	if (reply->result_case == KV__WIRE__REPLY__RESULT_STATUS_RESULT &&
	    reply->status_result->disk) {
		r->report.disk.used_bytes = reply->status_result->disk->used_bytes;
		snprintf(r->report.disk.io, sizeof(r->report.disk.io), "%s",
			 reply->status_result->disk->io);
	}
	ctl_free_reply(reply);
	return 0;
}

/* ---- save, load --------------------------------------------------------------------------- */

static void take(struct role *r, const struct kvc_saved_result *result, double start_s)
{
	struct demo_disk *disk = &r->report.disk;

	disk->seconds = demo_now_s() - start_s;
	disk->n_bytes = result->n_bytes;
	disk->n_blocks = result->n_blocks;
	memcpy(disk->digest, result->digest, sizeof(disk->digest));
}

/* Damage is what this demonstration may have to show; anything else is a fault. */
static int take_refusal(struct role *r, struct errbuf *err)
{
	kv_sequence_error(err);
	if (kvc_error() != KVC_ECORRUPT)
		return -1;
	r->report.disk.is_refused = true;
	snprintf(r->report.disk.refusal, sizeof(r->report.disk.refusal), "%s", err->text);
	return 0;
}

int play_save(struct role *r, struct errbuf *err)
{
	struct kvc_saved_result result;
	char *name = role_name(r, "prompt");
	double start_s;
	int rc = role_attach(r, err);

	start_s = demo_now_s();
	if (rc == 0 && kvc_save(r->session, name, NULL, NULL, NULL, &result))
		rc = take_refusal(r, err);
	else if (rc == 0)
		take(r, &result, start_s);
	free(name);
	return rc ? rc : ask_disk(r, err);
}

int play_load(struct role *r, struct errbuf *err)
{
	struct kvc_saved_result result;
	char *name = role_name(r, "prompt");
	double start_s;
	int rc = role_attach(r, err);

	start_s = demo_now_s();
	if (rc == 0 && kvc_load(r->session, name, NULL, NULL, NULL, &result))
		rc = kv_sequence_error(err);
	else if (rc == 0)
		take(r, &result, start_s);
	free(name);
	return rc;
}

/* ---- damage ------------------------------------------------------------------------------- */

/* Flips a bit in a block in the middle of the prompt, which was the first to be saved. */
static int flip_on_disk(const struct role *r, struct errbuf *err)
{
	const struct demo_disk *saved = &r->settings->saved;
	uint64_t slot_bytes = (saved->n_bytes / saved->n_blocks + PAGE_BYTES - 1) / PAGE_BYTES *
			      PAGE_BYTES;
	off_t at = (off_t)(saved->n_blocks / 2 * slot_bytes + slot_bytes / 3);
	char *path = ctl_format("%s/store/blocks-%" PRIu64 ".data", r->settings->dir, slot_bytes);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint8_t byte;
	bool done;

	done = fd >= 0 && pread(fd, &byte, 1, at) == 1;
	byte = done ? byte ^ 0x10 : 0;
	done = done && pwrite(fd, &byte, 1, at) == 1 && fdatasync(fd) == 0;
	if (fd >= 0)
		close(fd);
	if (!done)
		errbuf_errno(err, KV_EIO, errno, "%s", path);
	free(path);
	return done ? 0 : -1;
}

/* Without the damaged block, for it is in memory. */
static int save_again(struct role *r, const char *name, struct errbuf *err)
{
	const struct kvc_save_options options = {.size = sizeof(options), .replace = 1};

	return kvc_save(r->session, name, &options, NULL, NULL, NULL) ? kv_sequence_error(err) : 0;
}

int play_damage(struct role *r, struct errbuf *err)
{
	char *name = role_name(r, "prompt"), *other = role_name(r, "damaged");
	struct kvc_load_options options = {.size = sizeof(options), .name = other};
	int rc = role_attach(r, err);

	if (rc == 0)
		rc = flip_on_disk(r, err);
	if (rc == 0 && kvc_load(r->session, name, &options, NULL, NULL, NULL))
		rc = take_refusal(r, err);
	if (rc == 0)
		rc = save_again(r, name, err);
	free(other);
	free(name);
	return rc;
}
