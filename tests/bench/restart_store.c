/*
 * How long a store of one TiB takes to open: 500,000 images of 2 MiB in a sparse slot file, all of
 * them named by saved snapshots, with nothing of index and saved files in the page cache. The
 * images themselves are never written or read: opening does neither.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "offload/store.h"
#include "proto/layout.h"
#include "proto/layout_wire.h"
#include "tests/bench/bench.h"
#include "tests/support/tmpdir.h"

#define IMAGE_BYTES (2u << 20)
#define N_SAVED 100u
#define N_EACH 5000u
#define N_OPENS 5u
#define UID 1000u

struct made {
	char *root;
	char dir[256];
	struct kv_layout *layout;
	struct store_options options;
};

/* ---- making it ---------------------------------------------------------------------------- */

static struct kv_layout *make_layout(void)
{
	static const struct kv_layer layer = {BENCH_HEADS, BENCH_WIDTH, BENCH_WIDTH, 0};
	struct kv_layout *layout = calloc(1, sizeof(*layout));

	BENCH_CHECK(layout);
	layout->fingerprint[0] = 1;
	layout->dtype = KV_DTYPE_BF16;
	layout->k_format = layout->v_format = KV_FORMAT_RAW;
	layout->block_tokens = 512;
	layout->n_layers = 1;
	layout->layers = malloc(sizeof(layer));
	BENCH_CHECK(layout->layers);
	layout->layers[0] = layer;
	BENCH_CHECK(kv_layout_check(layout, NULL) == 0 && kv_layout_derive(layout, NULL) == 0);
	return layout;
}

static struct store_check check_of(uint64_t number)
{
	struct store_check check;

	store_image_check(1, &number, sizeof(number), &check);
	return check;
}

static void save(struct store *store, const struct made *made, uint32_t number)
{
	static store_place places[N_EACH];
	static struct store_check checks[N_EACH];
	const struct store_identity identity = {made->layout->hash, UID, 0, IMAGE_BYTES};
	Kv__Saved__Saved head = KV__SAVED__SAVED__INIT;
	Kv__Saved__Group group = KV__SAVED__GROUP__INIT, *groups[1] = {&group};
	struct saved_file *file;
	char name[32];

	for (uint32_t i = 0; i < N_EACH; i++) {
		checks[i] = check_of((uint64_t)number * N_EACH + i);
		places[i] = store_alloc(store, &identity, &checks[i], NULL);
		BENCH_CHECK(places[i] && store_commit(store, places[i], NULL) == 0);
	}
	snprintf(name, sizeof(name), "saved-%u", number);
	head.name = name;
	head.uid = UID;
	head.number = store_saved_number(store);
	head.layout = kv_layout_to_wire(made->layout);
	head.n_groups = 1;
	head.groups = groups;
	group.checks.data = (uint8_t *)checks;
	group.checks.len = sizeof(checks);
	group.n_places = N_EACH;
	group.places = places;
	file = store_saved_pack(store, &head, NULL);
	BENCH_CHECK(file && store_saved_write(file) == 0 && store_saved_add(file, NULL) == 0);
	saved_file_free(file);
	kv_layout_wire_free(head.layout);
	for (uint32_t i = 0; i < N_EACH; i++)
		store_unuse(store, places[i]);
}

static void make(struct made *made)
{
	struct store *store;

	made->root = kt_tmpdir_new();
	snprintf(made->dir, sizeof(made->dir), "%s/store", made->root);
	made->layout = make_layout();
	made->options = (struct store_options){
		.dir = made->dir, .max_bytes = (uint64_t)N_SAVED * N_EACH * IMAGE_BYTES};
	store = store_open(&made->options, NULL, NULL, NULL);
	BENCH_CHECK(store);
	for (uint32_t i = 0; i < N_SAVED; i++)
		save(store, made, i);
	store_close(store);
}

/* ---- opening it --------------------------------------------------------------------------- */

/* Takes the pages of a folder's files out of the cache; they are synced already. */
static void forget_pages(const char *folder)
{
	DIR *dir = opendir(folder);
	char path[600];

	BENCH_CHECK(dir);
	for (struct dirent *entry; (entry = readdir(dir));) {
		int fd;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		BENCH_CHECK(fd >= 0);
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		close(fd);
	}
	closedir(dir);
}

static double open_call(void *arg)
{
	struct made *made = arg;
	struct store_stats stats;
	struct store *store;
	char saved[300];
	uint64_t begin;
	double ns;

	snprintf(saved, sizeof(saved), "%s/saved", made->dir);
	forget_pages(made->dir);
	forget_pages(saved);
	begin = bench_now_ns();
	store = store_open(&made->options, NULL, NULL, NULL);
	ns = bench_since_ns(begin);
	BENCH_CHECK(store);
	store_stats(store, &stats);
	BENCH_CHECK(stats.n_saved == N_SAVED && stats.n_images == N_SAVED * N_EACH);
	BENCH_CHECK(stats.used_bytes == (uint64_t)N_SAVED * N_EACH * IMAGE_BYTES);
	store_close(store);
	return ns;
}

void bench_group_restart_store(void)
{
	struct made made;

	make(&made);
	bench_alone(bench_result("restart_store"), (struct bench_side){open_call, &made}, N_OPENS,
		    1e9);
	kv_layout_free(made.layout);
	kt_tmpdir_free(made.root);
}
