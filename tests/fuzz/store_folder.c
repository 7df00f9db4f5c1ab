#include "tests/fuzz/store_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offload/whole_file.h"
#include "tests/fuzz/target.h"
#include "tests/support/tmpdir.h"

static char path[256];

void folder_about(struct store_about *about)
{
	*about = (struct store_about){
		.id = "fuzz", .life = 3, .next_number = 1, .closed_in_order = 1};
}

const char *folder_make(void)
{
	static const char name[] = "blocks-4096.data";
	struct store_about about;
	struct store_head head;
	char data[300];

	snprintf(path, sizeof(path), "%s/%sfuzz-store-%d",
		 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", kt_name_prefix(),
		 (int)getpid());
	kt_remove_tree(path);
	must(mkdir(path, 0700) == 0);
	snprintf(data, sizeof(data), "%s/saved", path);
	must(mkdir(data, 0700) == 0);
	folder_about(&about);
	store_head_seal(&head, STORE_MAGIC, &about, sizeof(about));
	folder_write("store", &head, &about, sizeof(about));
	folder_write(name, NULL, "", 0);
	snprintf(data, sizeof(data), "%s/%s", path, name);
	must(truncate(data, FOLDER_SLOTS * FOLDER_SLOT_BYTES) == 0);
	return path;
}

void folder_remove(void)
{
	kt_remove_tree(path);
}

void folder_write(const char *name, const struct store_head *head, const void *bytes, size_t n)
{
	char file[400];
	int fd;

	snprintf(file, sizeof(file), "%s/%s", path, name);
	fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	must(fd >= 0);
	if (head)
		must(whole_file_pwrite(fd, head, sizeof(*head), 0) == 0);
	must(whole_file_pwrite(fd, bytes, n, head ? sizeof(*head) : 0) == 0);
	close(fd);
}

static void note(void *arg, const char *text)
{
	(void)text;
	++*(unsigned *)arg;
}

static void look(struct store *store)
{
	struct store_check check;
	struct store_stats stats;
	uint64_t seed, last = 0, n = 0;
	uint32_t n_bytes;
	store_place first = 0;

	for (store_place at = 0; (at = store_next(store, at, &seed, &check, &n_bytes)); n++) {
		first = first ? first : at;
		must(store_off(at) + store_room_bytes(at) <= FOLDER_SLOTS * FOLDER_SLOT_BYTES);
		must(n_bytes <= store_room_bytes(at) && store_fd(store, at) >= 0);
	}
	store_stats(store, &stats);
	must(stats.n_images == n && n <= FOLDER_SLOTS);
	must(stats.used_bytes + stats.cached_bytes + stats.free_bytes == stats.file_bytes);
	for (struct saved *s; (s = store_saved_next(store, 1000, last));)
		last = s->head->number;
	must(!first || (store_use(store, first) && (store_unuse(store, first), true)));
}

/* All slots that nobody uses are given out once. */
static void fill(struct store *store)
{
	static const uint8_t hash[32];
	const struct store_identity identity = {hash, 1, 0, FOLDER_SLOT_BYTES};
	struct store_check check = {{0}};
	struct store_stats before, after;
	store_place place;

	store_stats(store, &before);
	for (uint64_t n = 0; (place = store_alloc(store, &identity, &check, NULL));) {
		must(n++ < FOLDER_SLOTS);
		must(store_commit(store, place, NULL) == 0);
		memcpy(check.bytes, &n, sizeof(n));
	}
	store_stats(store, &after);
	must(after.used_bytes == after.file_bytes && after.n_saved == before.n_saved);
}

void folder_use(void)
{
	const struct store_options options = {path, FOLDER_SLOTS * FOLDER_SLOT_BYTES, false};

	for (int i = 0; i < 2; i++) {
		struct errbuf err = {0};
		unsigned n_notes = 0;
		struct store *store = store_open(&options, note, &n_notes, &err);

		if (!store) {
			must(i == 0 && err.status == KV_EVERSION);
			return;
		}
		must(i == 0 || n_notes == 0);
		look(store);
		fill(store);
		store_close(store);
	}
}
