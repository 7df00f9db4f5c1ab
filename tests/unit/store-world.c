#include "tests/unit/store-world.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/saved_file.h"
#include "offload/whole_file.h"
#include "proto/layout.h"
#include "proto/layout_wire.h"
#include "tests/support/tmpdir.h"

int world_own_calls;

/* ---- folder ------------------------------------------------------------------------------- */

static void note(void *arg, const char *text)
{
	struct world *w = arg;
	size_t n = strlen(w->reports);

	w->n_reports++;
	snprintf(w->reports + n, sizeof(w->reports) - n, "%s\n", text);
}

static void begin_in(struct world *w, char *root, uint64_t max_bytes)
{
	*w = (struct world){.root = root};
	snprintf(w->dir, sizeof(w->dir), "%s/store", w->root);
	w->options = (struct store_options){.dir = w->dir, .max_bytes = max_bytes};
}

void world_begin(struct world *w, uint64_t max_bytes)
{
	begin_in(w, kt_tmpdir_new(), max_bytes);
}

void world_begin_in_memory(struct world *w, uint64_t max_bytes)
{
	char root[128];

	snprintf(root, sizeof(root), "/dev/shm/%sstore-%d", kt_name_prefix(), (int)getpid());
	kt_remove_tree(root);
	if (mkdir(root, 0700))
		world_begin(w, max_bytes);
	else
		begin_in(w, strdup(root), max_bytes);
}

void world_end(struct world *w)
{
	world_close(w);
	kt_tmpdir_free(w->root);
}

bool world_try_open(struct world *w)
{
	world_must(!w->store);
	w->n_reports = 0;
	w->reports[0] = '\0';
	w->err = (struct errbuf){0};
	w->options.dir = w->dir;
	w->store = store_open(&w->options, note, w, &w->err);
	world_must(w->store || w->err.text[0]);
	return w->store != NULL;
}

void world_open(struct world *w)
{
	if (!world_try_open(w))
		fprintf(stderr, "# %s\n", w->err.text);
	world_must(w->store);
	world_stats(w);
}

void world_close(struct world *w)
{
	store_close(w->store);
	w->store = NULL;
}

void world_reopen(struct world *w)
{
	world_close(w);
	world_open(w);
}

const char *world_path(const struct world *w, const char *name)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/%s", w->dir, name);
	return path;
}

const char *world_saved_path(const struct world *w, const char *name)
{
	static char path[512];
	char file_name[SAVED_FILE_NAME_BYTES];

	saved_file_name(WORLD_UID, name, file_name);
	snprintf(path, sizeof(path), "%s/saved/%s", w->dir, file_name);
	return path;
}

bool world_has_file(const struct world *w, const char *name)
{
	return access(world_path(w, name), F_OK) == 0;
}

unsigned world_count(const struct world *w, const char *folder, const char *end)
{
	DIR *dir = opendir(world_path(w, folder));
	unsigned n = 0;

	world_must(dir);
	for (struct dirent *entry; (entry = readdir(dir));)
		n += whole_file_ends(entry->d_name, end);
	closedir(dir);
	return n;
}

/* The holes of sparse files stay holes. */
static void copy_file(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC);
	int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	static const char zeros[4096];
	char bytes[4096];
	off_t off = 0;
	ssize_t n;

	world_must(in >= 0 && out >= 0);
	while ((n = pread(in, bytes, sizeof(bytes), off)) > 0) {
		if (memcmp(bytes, zeros, (size_t)n) != 0)
			world_must(pwrite(out, bytes, (size_t)n, off) == n);
		off += n;
	}
	world_must(n == 0 && ftruncate(out, off) == 0);
	close(in);
	close(out);
}

void world_copy_tree(const char *from, const char *to)
{
	DIR *dir = opendir(from);

	world_must(dir);
	kt_remove_tree(to);
	world_must(mkdir(to, 0700) == 0);
	for (struct dirent *entry; (entry = readdir(dir));) {
		char a[512], b[512];
		struct stat st;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(a, sizeof(a), "%s/%s", from, entry->d_name);
		snprintf(b, sizeof(b), "%s/%s", to, entry->d_name);
		world_must(stat(a, &st) == 0);
		if (S_ISDIR(st.st_mode))
			world_copy_tree(a, b);
		else
			copy_file(a, b);
	}
	closedir(dir);
}

/* ---- layout ------------------------------------------------------------------------------- */

static struct kv_layout *layout(void)
{
	static const struct kv_layer layers[2] = {{1, 16, 16, 0}, {1, 16, 16, 24}};
	static struct kv_layout *made;

	if (made)
		return made;
	made = calloc(1, sizeof(*made));
	world_must(made);
	made->fingerprint[0] = 1;
	made->dtype = KV_DTYPE_F32;
	made->k_format = made->v_format = KV_FORMAT_INT8;
	made->block_tokens = 8;
	made->n_layers = 2;
	made->layers = malloc(sizeof(layers));
	world_must(made->layers);
	memcpy(made->layers, layers, sizeof(layers));
	world_must(kv_layout_check(made, NULL) == 0 && kv_layout_derive(made, NULL) == 0);
	return made;
}

struct store_identity world_identity(uint32_t group)
{
	return (struct store_identity){layout()->hash, WORLD_UID, group, WORLD_IMAGE_BYTES(group)};
}

/* ---- images ------------------------------------------------------------------------------- */

void world_image(uint32_t group, uint32_t key, void *bytes)
{
	uint64_t x = (uint64_t)key * 2654435761u + group + 1;
	uint8_t *at = bytes;

	for (uint32_t i = 0; i < WORLD_IMAGE_BYTES(group); i++) {
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
		at[i] = (uint8_t)(x >> 56);
	}
}

struct store_check world_check(uint32_t group, uint32_t key)
{
	const struct store_identity identity = world_identity(group);
	uint8_t bytes[WORLD_IMAGE_BYTES(0)];
	struct store_check check;

	world_image(group, key, bytes);
	store_image_check(store_seed(&identity), bytes, identity.n_bytes, &check);
	return check;
}

void world_write_bytes(struct world *w, store_place place, const void *bytes, size_t n_bytes)
{
	uint64_t room = store_room_bytes(place);
	char *aligned = aligned_alloc(STORE_PAGE, room);

	world_must(aligned && n_bytes <= room);
	world_must(store_align(w->store, place) <= STORE_PAGE);
	memset(aligned, 0, room);
	memcpy(aligned, bytes, n_bytes);
	world_own_calls++;
	world_must(pwrite(store_fd(w->store, place), aligned, room, (off_t)store_off(place)) ==
		   (ssize_t)room);
	world_own_calls--;
	free(aligned);
}

store_place world_write(struct world *w, uint32_t group, uint32_t key)
{
	const struct store_identity identity = world_identity(group);
	const struct store_check check = world_check(group, key);
	store_place place = store_alloc(w->store, &identity, &check, &w->err);
	uint8_t bytes[WORLD_IMAGE_BYTES(0)];

	if (!place)
		return 0;
	world_image(group, key, bytes);
	world_write_bytes(w, place, bytes, identity.n_bytes);
	return store_commit(w->store, place, &w->err) == 0 ? place : 0;
}

store_place world_put(struct world *w, uint32_t group, uint32_t key)
{
	const struct store_identity identity = world_identity(group);
	const struct store_check check = world_check(group, key);
	store_place place = store_find(w->store, &identity, &check);

	return place ? place : world_write(w, group, key);
}

bool world_verify(const struct world *w, store_place place, const struct store_identity *identity,
		  const struct store_check *check)
{
	uint64_t room = store_room_bytes(place);
	char *aligned = aligned_alloc(STORE_PAGE, room);
	struct store_check got;
	ssize_t n;

	world_must(aligned);
	memset(aligned, 0xa5, room);
	world_own_calls++;
	n = pread(store_fd(w->store, place), aligned, room, (off_t)store_off(place));
	world_own_calls--;
	store_image_check(store_seed(identity), aligned, identity->n_bytes, &got);
	free(aligned);
	return n == (ssize_t)room && memcmp(&got, check, sizeof(got)) == 0;
}

/* ---- saved snapshots ---------------------------------------------------------------------- */

struct content world_content(uint32_t first, uint32_t n0, uint32_t n1)
{
	struct content content = {.n = {n0, n1}};

	for (uint32_t g = 0; g < WORLD_GROUPS; g++)
		for (uint32_t i = 0; i < content.n[g]; i++)
			content.keys[g][i] = first + i;
	return content;
}

/* Memory of a head that is to be packed. */
struct draft {
	Kv__Saved__Saved head;
	Kv__Saved__Group groups[WORLD_GROUPS], *pointers[WORLD_GROUPS];
	store_place places[WORLD_GROUPS][WORLD_IMAGES_MAX];
	struct store_check checks[WORLD_GROUPS][WORLD_IMAGES_MAX];
};

static void draft_release(struct world *w, struct draft *draft)
{
	for (uint32_t g = 0; g < WORLD_GROUPS; g++)
		for (size_t i = 0; i < draft->groups[g].n_places; i++)
			store_unuse(w->store, draft->places[g][i]);
	kv_layout_wire_free(draft->head.layout);
}

static bool draft_fill(struct world *w, struct draft *draft, const char *name,
		       const struct content *content)
{
	memset(draft, 0, sizeof(*draft));
	kv__saved__saved__init(&draft->head);
	draft->head.name = (char *)name;
	draft->head.uid = WORLD_UID;
	draft->head.number = store_saved_number(w->store);
	world_own_calls++;
	draft->head.layout = kv_layout_to_wire(layout());
	world_own_calls--;
	draft->head.length_tokens = 11;
	draft->head.n_groups = WORLD_GROUPS;
	draft->head.groups = draft->pointers;
	for (uint32_t g = 0; g < WORLD_GROUPS; g++) {
		Kv__Saved__Group *group = draft->pointers[g] = &draft->groups[g];

		kv__saved__group__init(group);
		group->places = draft->places[g];
		group->checks.data = (uint8_t *)draft->checks[g];
		for (uint32_t i = 0; i < content->n[g]; i++) {
			draft->checks[g][i] = world_check(g, content->keys[g][i]);
			draft->places[g][i] = world_put(w, g, content->keys[g][i]);
			if (!draft->places[g][i])
				return false;
			group->n_places++;
			group->checks.len += sizeof(struct store_check);
		}
	}
	return true;
}

struct saved_file *world_pack(struct world *w, const char *name, const struct content *content)
{
	struct draft draft;
	struct saved_file *file = NULL;

	if (draft_fill(w, &draft, name, content))
		file = store_saved_pack(w->store, &draft.head, &w->err);
	draft_release(w, &draft);
	return file;
}

bool world_save(struct world *w, const char *name, const struct content *content)
{
	struct saved_file *file = world_pack(w, name, content);
	int rc = file ? 0 : -1;

	if (!rc)
		rc = store_flush(w->store);
	if (!rc)
		rc = store_saved_write(file);
	if (!rc)
		rc = store_saved_add(file, &w->err);
	else if (file)
		errbuf_errno(&w->err, KV_EIO, -rc, "cannot save %s", name);
	saved_file_free(file);
	return rc == 0;
}

static bool group_verifies(const struct world *w, const Kv__Saved__Saved *head, uint32_t g)
{
	const Kv__Saved__Group *group = head->groups[g];
	struct store_identity identity = world_identity(g);

	identity.uid = head->uid;
	identity.n_bytes = group->image_bytes;
	for (size_t i = 0; i < group->n_places; i++) {
		struct store_check check;

		memcpy(&check, group->checks.data + i * sizeof(check), sizeof(check));
		if (!world_verify(w, group->places[i], &identity, &check))
			return false;
	}
	return true;
}

bool world_saved_verifies(const struct world *w, const struct saved *saved)
{
	for (uint32_t g = 0; g < saved->head->n_groups; g++)
		if (!group_verifies(w, saved->head, g))
			return false;
	return true;
}

bool world_saved_is(const struct world *w, const char *name, const struct content *content)
{
	const struct saved *saved = store_saved_find(w->store, WORLD_UID, name);

	if (!saved || saved->head->n_groups != WORLD_GROUPS || saved->head->length_tokens != 11)
		return false;
	for (uint32_t g = 0; g < WORLD_GROUPS; g++) {
		const Kv__Saved__Group *group = saved->head->groups[g];

		if (group->n_places != content->n[g])
			return false;
		for (uint32_t i = 0; i < content->n[g]; i++) {
			const struct store_check check = world_check(g, content->keys[g][i]);

			if (memcmp(group->checks.data + i * sizeof(check), &check, sizeof(check)))
				return false;
		}
	}
	return world_saved_verifies(w, saved);
}

struct store_stats world_stats(const struct world *w)
{
	struct store_stats stats;

	store_stats(w->store, &stats);
	world_must(stats.used_bytes + stats.cached_bytes + stats.free_bytes == stats.file_bytes);
	world_must(stats.max_bytes == w->options.max_bytes);
	return stats;
}
