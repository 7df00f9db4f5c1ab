/*
 * The catalogue: what was committed is found again, what is damaged is refused, at every byte.
 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/catalogue.h"
#include "tests/support/runner.h"

struct seen {
	unsigned n;
	uint64_t ids[64];
	uint32_t n_bytes[64];
};

static int note(void *arg, enum cat_type type, const void *payload, uint32_t n_bytes,
		struct errbuf *err)
{
	struct seen *seen = arg;

	(void)err;
	if (type == CAT_TYPE_MAX)
		return errbuf_set(err, KV_EINVAL, "stop here");
	memcpy(&seen->ids[seen->n], payload, sizeof(uint64_t));
	seen->n_bytes[seen->n++] = n_bytes;
	return 0;
}

static void add(struct catalogue *c, uint64_t id, size_t n_bytes)
{
	void *payload = catalogue_add(c, CAT_OBJECT_GONE, n_bytes);

	assert_non_null(payload);
	memcpy(payload, &id, sizeof(id));
}

/* A second descriptor of the same memory, as the keeper holds it. */
static int kept(const struct catalogue *c)
{
	int fd = dup(c->fd);

	assert_true(fd >= 0);
	return fd;
}

static struct seen read_all(const struct catalogue *c)
{
	struct seen seen = {0};

	assert_int_equal(catalogue_each(c, note, &seen, NULL), 0);
	return seen;
}

static void test_committed_batches_are_found_in_order(void **state)
{
	struct catalogue a, b;
	struct seen seen;
	int fd;

	(void)state;
	assert_int_equal(catalogue_make(&a, NULL), 0);
	add(&a, 1, 8);
	add(&a, 2, 13);
	assert_int_equal(catalogue_commit(&a), 0);
	add(&a, 3, 100000);
	assert_int_equal(catalogue_commit(&a), 0);
	add(&a, 4, 8); /* never committed */
	fd = kept(&a);
	catalogue_fini(&a);
	assert_int_equal(catalogue_adopt(&b, fd, NULL), 0);
	seen = read_all(&b);
	assert_int_equal(seen.n, 3);
	assert_int_equal(seen.ids[0], 1);
	assert_int_equal(seen.ids[1], 2);
	assert_int_equal(seen.n_bytes[1], 13);
	assert_int_equal(seen.ids[2], 3);
	assert_int_equal(seen.n_bytes[2], 100000);
	add(&b, 5, 8);
	assert_int_equal(catalogue_commit(&b), 0);
	seen = read_all(&b);
	assert_int_equal(seen.n, 4);
	assert_int_equal(seen.ids[3], 5);
	catalogue_fini(&b);
}

static void test_a_discarded_batch_never_happened(void **state)
{
	struct catalogue c;

	(void)state;
	assert_int_equal(catalogue_make(&c, NULL), 0);
	add(&c, 1, 8);
	catalogue_discard(&c);
	add(&c, 2, 8);
	assert_int_equal(catalogue_commit(&c), 0);
	assert_int_equal(read_all(&c).n, 1);
	assert_int_equal(read_all(&c).ids[0], 2);
	catalogue_fini(&c);
}

static void test_a_batch_without_room_is_refused_whole(void **state)
{
	struct catalogue c;
	struct errbuf err = {0};

	(void)state;
	assert_int_equal(catalogue_make(&c, NULL), 0);
	add(&c, 1, 8);
	assert_null(catalogue_add(&c, CAT_STATE, (size_t)CAT_PAYLOAD_MAX + 1));
	assert_null(catalogue_add(&c, CAT_STATE, 8));
	assert_int_equal(catalogue_commit(&c), -1);
	assert_int_equal(read_all(&c).n, 0);
	assert_int_equal(catalogue_room(&c, CATALOGUE_BYTES_MAX, &err), -1);
	assert_int_equal(err.status, KV_ENOMEM);
	add(&c, 3, 8);
	assert_int_equal(catalogue_commit(&c), 0);
	assert_int_equal(read_all(&c).n, 1);
	catalogue_fini(&c);
}

/* Three records, with every byte of them flipped in turn. */
static void test_each_flipped_byte_is_refused(void **state)
{
	struct catalogue c, again;
	uint64_t end;
	int fd;

	(void)state;
	assert_int_equal(catalogue_make(&c, NULL), 0);
	add(&c, 1, 8);
	add(&c, 2, 24);
	add(&c, 3, 16);
	assert_int_equal(catalogue_commit(&c), 0);
	end = catalogue_bytes(&c);
	fd = kept(&c);
	for (uint64_t off = 0; off < end; off++) {
		struct errbuf err = {0};

		if (off == sizeof(uint64_t) * 3)
			off = CAT_HEAD_BYTES; /* the rest of the head means nothing */
		c.base[off] = (char)(c.base[off] ^ 0x40);
		assert_int_equal(catalogue_adopt(&again, dup(fd), &err), -1);
		assert_true(err.status == KV_ECORRUPT || err.status == KV_EVERSION);
		c.base[off] = (char)(c.base[off] ^ 0x40);
	}
	assert_int_equal(catalogue_adopt(&again, fd, NULL), 0);
	assert_int_equal(read_all(&again).n, 3);
	catalogue_fini(&again);
	catalogue_fini(&c);
}

static void test_each_cut_is_refused_or_ends_between_records(void **state)
{
	struct catalogue c, again;
	uint64_t end, n_taken = 0;

	(void)state;
	assert_int_equal(catalogue_make(&c, NULL), 0);
	for (uint64_t id = 1; id <= 3; id++)
		add(&c, id, 16);
	assert_int_equal(catalogue_commit(&c), 0);
	end = catalogue_bytes(&c);
	for (uint64_t cut = 0; cut < end; cut++) {
		struct cat_head *head = (struct cat_head *)c.base;

		head->end_off = cut;
		if (catalogue_adopt(&again, kept(&c), NULL))
			continue;
		assert_int_equal((cut - CAT_HEAD_BYTES) % (sizeof(struct cat_record) + 16), 0);
		assert_int_equal(read_all(&again).n,
				 (cut - CAT_HEAD_BYTES) / (sizeof(struct cat_record) + 16));
		n_taken++;
		catalogue_fini(&again);
	}
	assert_int_equal(n_taken, 3);
	catalogue_fini(&c);
}

static void test_a_foreign_descriptor_is_refused(void **state)
{
	struct catalogue c;
	struct errbuf err = {0};

	(void)state;
	assert_int_equal(catalogue_adopt(&c, open("/dev/null", O_RDWR | O_CLOEXEC), &err), -1);
	assert_int_equal(err.status, KV_ECORRUPT);
	assert_int_equal(c.fd, -1);
}

static void test_it_is_stale_when_half_is_dead(void **state)
{
	struct catalogue c;

	(void)state;
	assert_int_equal(catalogue_make(&c, NULL), 0);
	assert_false(catalogue_is_stale(&c));
	while (catalogue_bytes(&c) <= 4u << 20) {
		assert_false(catalogue_is_stale(&c));
		add(&c, 1, 4096);
		assert_int_equal(catalogue_commit(&c), 0);
	}
	assert_true(catalogue_is_stale(&c));
	c.rewritten_end_off = catalogue_bytes(&c);
	assert_false(catalogue_is_stale(&c));
	catalogue_fini(&c);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("committed batches are found in order", test_committed_batches_are_found_in_order),
	KT_TEST("a discarded batch never happened", test_a_discarded_batch_never_happened),
	KT_TEST("a batch without room is refused whole",
		test_a_batch_without_room_is_refused_whole),
	KT_TEST("each flipped byte is refused", test_each_flipped_byte_is_refused),
	KT_TEST("each cut is refused or ends between records",
		test_each_cut_is_refused_or_ends_between_records),
	KT_TEST("a foreign descriptor is refused", test_a_foreign_descriptor_is_refused),
	KT_TEST("it is stale when half of it is dead", test_it_is_stale_when_half_is_dead),
};

KT_MAIN(tests)
