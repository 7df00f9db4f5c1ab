/*
 * Sequence planes: kvc_plane_set, kvc_plane_get. A version is a block of its own that holds all of
 * them: written in the open update, never changed once it is committed. Writer's thread, hot path.
 */
#include "client/planes.h"

#include <string.h>

#include "client/error.h"
#include "client/journal.h"

/* Where version v lies. */
static char *version_at(const struct kvc_seq *seq, uint32_t version)
{
	const struct kv_layout *layout = seq->layout->fields;
	const struct seq_group *g = &seq->groups[layout->states_group];

	return seq_piece(seq, layout->groups[layout->states_group].first_region,
			 g->mirror[group_index(g, version - 1)]);
}

/* Number of the sequence plane of that name, or -1. */
static int find_plane(const struct kvc_seq *seq, const char *name)
{
	int i = kv_layout_find_plane(seq->layout->fields, KV_PLANE_SEQUENCE, name);

	if (i >= 0)
		return i;
	return kvc_fail(KVC_ENOTFOUND, "the layout has no sequence plane \"%s\"", name ? name : "");
}

/* The version that the open update makes; nothing is in it yet. */
static int make_version(struct kvc_seq *seq)
{
	const struct kv_layout *layout = seq->layout->fields;
	const uint32_t group = layout->states_group, now = kv_planes_now(seq->head.planes);
	uint32_t first = kv_planes_first(seq->head.planes);
	struct seq_group *g = &seq->groups[group];

	if (seq_mode(seq) != KV_JOURNAL_NONE && now - first + 2 > g->n_entries)
		return kvc_fail(KVC_EJOURNAL,
				"%u versions of the sequence planes are kept, the limit; fold the "
				"journal, or keep fewer steps",
				now - first + 1);
	if (begin_check_spares(seq, group, 1))
		return -1;
	update_drop_future(seq, group);
	if (now == 0)
		group_restart(g, 0);
	begin_take(seq, group, g->pending_end + 1);
	seq->open_states = now + 1;
	seq->open_states_filled = 0;
	return 0;
}

/* Bytes [filled, end) of the version that the update makes are those that count. */
static void fill_up(struct kvc_seq *seq, size_t end)
{
	size_t filled = seq->open_states_filled;
	uint32_t now = kv_planes_now(seq->head.planes);

	if (end <= filled)
		return;
	if (now)
		memcpy(version_at(seq, seq->open_states) + filled, version_at(seq, now) + filled,
		       end - filled);
	else
		memset(version_at(seq, seq->open_states) + filled, 0, end - filled);
	seq->open_states_filled = end;
}

void planes_complete(struct kvc_seq *seq)
{
	const struct kv_layout *layout = seq->layout->fields;

	if (seq->open_states)
		fill_up(seq, (size_t)layout->groups[layout->states_group].block_bytes);
}

const char *planes_now(const struct kvc_seq *seq, uint32_t plane, size_t off)
{
	uint32_t now = kv_planes_now(seq->head.planes);

	return now ? version_at(seq, now) + seq->layout->fields->plane_off[plane] + off : NULL;
}

char *planes_write(struct kvc_seq *seq, uint32_t plane, size_t off, size_t n_bytes)
{
	off += seq->layout->fields->plane_off[plane];
	if (!seq->open_states && make_version(seq))
		return NULL;
	fill_up(seq, off);
	if (off + n_bytes > seq->open_states_filled)
		seq->open_states_filled = off + n_bytes;
	return version_at(seq, seq->open_states) + off;
}

int kvc_plane_set(kvc_seq *seq, const char *name, const void *bytes, size_t n_bytes)
{
	const struct kv_layout *layout = seq->layout->fields;
	char *to;
	int i;

	if (session_check(seq->writer->session))
		return -1;
	if (!seq->is_open)
		return kvc_fail(KVC_EINVAL, "no update is open: kvc_update_begin comes first");
	i = find_plane(seq, name);
	if (i < 0)
		return -1;
	if (n_bytes != layout->planes[i].bytes)
		return kvc_fail(KVC_ERANGE, "plane \"%s\" has %u bytes, not %zu", name,
				layout->planes[i].bytes, n_bytes);
	if (!bytes)
		return kvc_fail(KVC_EINVAL, "bytes is NULL");
	to = planes_write(seq, (uint32_t)i, 0, n_bytes);
	if (!to)
		return -1;
	memcpy(to, bytes, n_bytes);
	return 0;
}

const void *kvc_plane_get(kvc_seq *seq, const char *name)
{
	int i;

	if (session_check(seq->writer->session))
		return NULL;
	i = find_plane(seq, name);
	if (i < 0)
		return NULL;
	*kvc_err() = (struct errbuf){0};
	return planes_now(seq, (uint32_t)i, 0);
}
