/*
 * The public interface on a real daemon: every kind of layout through append, fork of a fork,
 * rollback, digest and both views; and each limit, at it and one over.
 */
#include <string.h>

#include "proto/limits.h"
#include "tests/integration/shadow.h"

static void test_geometry(void **state)
{
	const struct geometry *g = *state;
	kvc_session *one = open_session(), *two = open_session();
	kvc_layout *layout = register_layout(one, g);
	kvc_writer *w1 = kvc_writer_new(one), *w2 = kvc_writer_new(two);
	uint32_t s0[128], s1[128], s2[128];
	uint8_t digests[3][16];
	kvc_seq *seq, *fork1, *fork2;

	there(w1);
	there(w2);
	assert_memory_equal(kvc_layout_hash(layout), kvc_layout_hash(register_layout(two, g)), 32);
	there(seq = kvc_seq_new(w1, layout, NULL));
	append(seq, g, 22, 1, w1, s0);
	snapshot(seq, "e2e/one");
	there(fork1 = kvc_fork(w2, "e2e/one", NULL));
	memcpy(s1, s0, sizeof(s1));
	append(fork1, g, 9, 2, w2, s1);
	append(seq, g, 5, 3, w1, s0);
	snapshot(fork1, "e2e/two");
	there(fork2 = kvc_fork(w1, "e2e/two", NULL));
	memcpy(s2, s1, sizeof(s2));
	append(fork2, g, 20, 4, w1, s2);
	ok(kvc_rollback_remove(fork2, 25)); /* below the second snapshot */
	append(fork2, g, 11, 5, w1, s2);
	assert_int_equal(kvc_length(fork2), 37);
	ok(kvc_seq_drop(fork1)); /* the parent goes first */
	ok(kvc_remove(one, "e2e/one"));
	ok(kvc_remove(one, "e2e/two"));
	check_all(seq, g, s0);
	check_all(fork2, g, s2);
	/* the same tokens appended from nothing have the same digest */
	ok(kvc_digest(fork2, digests[0]));
	there(fork1 = kvc_seq_new(w2, register_layout(two, g), NULL));
	append(fork1, g, 22, 1, w2, s1);
	append(fork1, g, 4, 2, w2, s1);
	append(fork1, g, 11, 5, w2, s1);
	ok(kvc_digest(fork1, digests[1]));
	assert_memory_equal(digests[0], digests[1], 16);
	append(fork1, g, 1, 6, w2, s1);
	ok(kvc_digest(fork1, digests[2]));
	assert_memory_not_equal(digests[0], digests[2], 16);
	kvc_close(one);
	kvc_close(two);
}

static void test_layouts(void **state)
{
	kvc_session *one = open_session(), *two = open_session();
	kvc_layout *a = register_layout(one, &geometries[PLAIN]);
	kvc_layout *b = register_layout(one, &geometries[K_WIDER]);
	uint8_t hash[32];

	(void)state;
	assert_ptr_equal(register_layout(one, &geometries[PLAIN]), a);
	memcpy(hash, kvc_layout_hash(a), sizeof(hash));
	ok(kvc_layout_compare(a, kvc_layout_find(two, hash)));
	refused(kvc_layout_compare(a, b), KVC_ELAYOUT);
	assert_non_null(strstr(kvc_error_text(), "layout field"));
	hash[5] ^= 1;
	refused_null(kvc_layout_find(two, hash), KVC_ENOTFOUND);
	assert_int_equal(kvc_layout_token_bytes(b), 3 * 27 * 4);
	kvc_close(one);
	kvc_close(two);
}

/* ---- limits ------------------------------------------------------------------------------ */

static void test_writer_limit(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writers[KV_WRITERS_MAX];
	kvc_seq *seq;

	(void)state;
	for (uint32_t i = 0; i < KV_WRITERS_MAX; i++)
		there(writers[i] = kvc_writer_new(session));
	refused_null(kvc_writer_new(session), KVC_ELIMIT);
	there(seq = kvc_seq_new(writers[3], register_layout(session, &geometries[PLAIN]), NULL));
	refused(kvc_writer_free(writers[3]), KVC_EBUSY);
	kvc_seq_free(seq);
	ok(kvc_writer_free(writers[3]));
	there(kvc_writer_new(session));
	kvc_close(session);
}

static void test_length_limits(void **state)
{
	const struct geometry *g = &geometries[BOUNDED];
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	struct kvc_seq_options options = {.size = sizeof(options), .max_tokens = 30};
	kvc_layout *layout = register_layout(session, g);
	kvc_seq *seq, *bounded;

	(void)state;
	there(seq = kvc_seq_new(writer, layout, &options));
	append(seq, g, 20, 1, writer, NULL);
	ok(kvc_reserve(seq, 10));
	refused(kvc_reserve(seq, 11), KVC_ERANGE);
	there(bounded = kvc_seq_new(writer, layout, NULL));
	ok(kvc_reserve(bounded, 200));
	refused(kvc_reserve(bounded, 201), KVC_EBOUND);
	options.max_tokens = (uint64_t)KV_TOKENS_MAX + 1;
	refused_null(kvc_seq_new(writer, layout, &options), KVC_ERANGE);
	kvc_close(session);
}

static void test_name_limits(void **state)
{
	kvc_session *session = open_session();
	kvc_writer *writer = kvc_writer_new(session);
	kvc_layout *layout = register_layout(session, &geometries[PLAIN]);
	char name[KV_NAME_BYTES_MAX + 2];
	struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	kvc_seq *seq;

	(void)state;
	memset(name, 'n', sizeof(name));
	name[KV_NAME_BYTES_MAX + 1] = '\0';
	refused_null(kvc_seq_new(writer, layout, &options), KVC_ENAME);
	name[KV_NAME_BYTES_MAX] = '\0';
	there(seq = kvc_seq_new(writer, layout, &options));
	refused(kvc_seq_name(seq, "a b"), KVC_ENAME);
	refused(kvc_seq_name(seq, ""), KVC_ENAME);
	kvc_seq_free(seq);
	there(seq = kvc_takeover(writer, name));
	ok(kvc_seq_drop(seq));
	refused_null(kvc_takeover(writer, name), KVC_ENOTFOUND);
	kvc_close(session);
}

static void test_many(void **state)
{
	const struct geometry *g = &geometries[PLAIN];
	kvc_session *session = open_session();
	kvc_layout *layout = register_layout(session, g);
	kvc_writer *writers[2] = {kvc_writer_new(session), kvc_writer_new(session)};
	kvc_seq *seqs[KV_TARGETS_MAX + 1], *fork;
	uint64_t ids[KV_TARGETS_MAX + 1];
	uint32_t streams[MOST_TOKENS];

	(void)state;
	for (uint32_t i = 0; i <= KV_TARGETS_MAX; i++) {
		there(seqs[i] = kvc_seq_new(writers[i % 2], layout, NULL));
		append(seqs[i], g, 1 + i % 20, i, writers[i % 2], NULL);
	}
	refused(kvc_snapshot_many(seqs, NULL, ids, KV_TARGETS_MAX + 1), KVC_ETOOBIG);
	ok(kvc_snapshot_many(seqs, NULL, ids, KV_TARGETS_MAX));
	append(seqs[7], g, 1, 99, writers[1], NULL);
	there(fork = kvc_fork_id(writers[0], ids[7], NULL));
	assert_int_equal(kvc_length(fork), 8);
	for (int t = 0; t < 8; t++)
		streams[t] = 7;
	check_all(fork, g, streams);
	kvc_close(session);
	session = open_session(); /* anonymous snapshots went with it */
	there(writers[0] = kvc_writer_new(session));
	refused_null(kvc_fork_id(writers[0], ids[8], NULL), KVC_ENOTFOUND);
	kvc_close(session);
}

#define GEOMETRY(i, name) \
	KT_TEST_PARAM("append, fork of a fork, rollback, digest, views: " name, test_geometry, \
		      (void *)(uintptr_t)&geometries[i])

static const struct CMUnitTest tests[] = {
	GEOMETRY(PLAIN, "equal layers of bf16"),
	GEOMETRY(K_WIDER, "K wider than V"),
	GEOMETRY(NO_V, "no V"),
	GEOMETRY(OTHER_HEADS, "another head count in each layer"),
	GEOMETRY(BOUNDED, "two groups, one bounded"),
	GEOMETRY(OPAQUE, "opaque"),
	KT_TEST("equal layouts are one, and others differ by a named field", test_layouts),
	KT_TEST("a session has 64 writers, and not 65", test_writer_limit),
	KT_TEST("no sequence is longer than its table or its bound", test_length_limits),
	KT_TEST("a name has 255 bytes, and not 256", test_name_limits),
	KT_TEST("64 sequences of two writers are one snapshot, and not 65", test_many),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), start_daemon,
				       stop_daemon};

	return kt_run(argc, argv, &group, 1);
}
