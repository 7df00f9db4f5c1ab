/*
 * kvcachectl on sequences with journals: journal, mark, rollback, replay, fold, convert, diff on a
 * real daemon. What a command did is looked at through the library afterwards: the sequence waits
 * again, and holds what it should.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/shadow.h"
#include "tests/support/client.h"

#define HEADS 2u
#define WIDTH 32u
#define ROW (HEADS * WIDTH)

static kvc_session *session;
static kvc_writer *writer;
static char out[32768];

static int set_up(void **state)
{
	return start_daemon(state);
}

static int begin(void **state)
{
	(void)state;
	session = open_session();
	there(writer = kvc_writer_new(session));
	return 0;
}

static int end(void **state)
{
	(void)state;
	kvc_close(session);
	return 0;
}

/* Runs the program with these words; its exit code, its output in `out`. */
static int ctl(const char *words)
{
	const char *top = getenv("top_builddir");
	char command[1024];
	FILE *pipe;
	size_t n;
	int status;

	snprintf(command, sizeof(command), "'%s/kvcachectl' --runtime-dir '%s' %s 2>&1",
		 top ? top : ".", kt_daemon_dir(daemon_), words);
	pipe = popen(command, "re");
	assert_non_null(pipe);
	n = fread(out, 1, sizeof(out) - 1, pipe);
	out[n] = '\0';
	status = pclose(pipe);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define expect(code, words, text) \
	do { \
		int got = ctl(words); \
\
		if (got != (code) || !strstr(out, text)) \
			fail_msg("kvcachectl %s: exit code %d, not %d:\n%s\nwanted: %s", words, \
				 got, code, out, text); \
	} while (0)

static kvc_layout *layout_of(uint32_t bound, uint32_t format)
{
	const struct kvc_layer layers[2] = {{HEADS, WIDTH, WIDTH, 0}, {HEADS, WIDTH, WIDTH, bound}};
	struct kvc_layout_options options = {.size = sizeof(options),
					     .fingerprint = {5},
					     .n_layers = 2,
					     .layers = layers,
					     .dtype = KVC_F32,
					     .k_format = format,
					     .v_format = format,
					     .block_tokens = 8};
	kvc_layout *layout = kvc_layout_register(session, &options);

	there(layout);
	return layout;
}

static void append_tokens(kvc_seq *seq, uint64_t n, uint32_t seed)
{
	float rows[ROW];

	ok(kvc_reserve(seq, n));
	for (uint64_t t = 0; t < n; t++) {
		for (uint32_t i = 0; i < ROW; i++)
			rows[i] = (float)((seed + t) * 7 % 1000) + (float)i / 16;
		ok(kvc_append_begin(seq, 1));
		ok(kvc_write(seq, 0, rows, rows));
		ok(kvc_write(seq, 1, rows, rows));
		ok(kvc_commit(writer, &seq, 1));
	}
}

static kvc_seq *make(const char *name, kvc_layout *layout, uint32_t mode, uint64_t n)
{
	struct kvc_seq_options options = {.size = sizeof(options), .name = name};
	struct kvc_journal_options journal = {.size = sizeof(journal), .mode = mode};
	kvc_seq *seq = kvc_seq_new(writer, layout, &options);

	there(seq);
	if (mode == KVC_JOURNAL_REPLAY)
		append_tokens(seq, 10, 1); /* the base */
	if (mode)
		ok(kvc_journal_set(seq, &journal));
	append_tokens(seq, n, 50);
	return seq;
}

/* Who waits, with this length: taken over, digested, let go. */
static void digest_of(const char *name, uint64_t length, uint8_t digest[16])
{
	kvc_seq *seq = kvc_takeover(writer, name);

	there(seq);
	assert_int_equal(kvc_length(seq), length);
	ok(kvc_digest(seq, digest));
	kvc_seq_free(seq);
}

static void test_undo(void **state)
{
	kvc_seq *seq = make("j/undo", layout_of(12, KVC_INT8), KVC_JOURNAL_UNDO, 20);
	uint8_t digests[2][16];

	(void)state;
	ok(kvc_digest(seq, digests[0]));
	append_tokens(seq, 5, 99);
	expect(1, "mark j/undo", "its writer is test-ctl-journa");
	expect(1, "rollback j/undo --remove 5", "its writer is");
	expect(0, "journal j/undo", "undo");
	assert_int_equal(kvc_length(seq), 25);
	kvc_seq_free(seq);
	/* the daemon cannot put old bytes back: the library does */
	expect(0, "rollback j/undo --keep 20", "j/undo: 20 tokens now");
	digest_of("j/undo", 20, digests[1]);
	assert_memory_equal(digests[0], digests[1], 16);
	expect(1, "rollback j/undo --keep 21", "21");
	expect(0, "rollback j/undo --steps 2", "j/undo: 18 tokens now");
	expect(1, "rollback j/undo --steps 1000", "the journal has");
	expect(1, "fold j/undo", "only a replay journal");
	expect(0, "rm j/undo", "removed");
}

static void test_marks(void **state)
{
	kvc_seq *seq = make("j/marks", layout_of(12, KVC_RAW), KVC_JOURNAL_UNDO, 14);
	uint8_t digests[2][16];

	(void)state;
	ok(kvc_digest(seq, digests[0]));
	kvc_seq_free(seq);
	expect(0, "mark j/marks --list", "no marks");
	expect(0, "mark j/marks", "j/marks: mark 1 at 14 tokens");
	there(seq = kvc_takeover(writer, "j/marks"));
	append_tokens(seq, 9, 7);
	kvc_seq_free(seq);
	expect(0, "mark j/marks --json", "\"length_tokens\": 23");
	expect(0, "mark j/marks --list", "14");
	expect(0, "rollback j/marks --mark 1", "j/marks: 14 tokens now");
	digest_of("j/marks", 14, digests[1]);
	assert_memory_equal(digests[0], digests[1], 16);
	expect(1, "rollback j/marks --mark 2", "none of them is number 2");
	expect(1, "journal j/marks --mode none", "the sequence 1 marks");
	expect(0, "mark j/marks --release 1", "released mark 1, 0 marks left");
	expect(1, "mark j/marks --release 1", "none of them is number 1");
	expect(0, "rm j/marks", "removed");
}

static void test_replay_and_fold(void **state)
{
	kvc_layout *layout = layout_of(0, KVC_INT8);
	kvc_seq *seq = make("j/base", layout, KVC_JOURNAL_NONE, 0), *source;
	struct kvc_journal_options replay = {.size = sizeof(replay), .mode = KVC_JOURNAL_REPLAY};
	uint8_t digests[3][16];

	(void)state;
	append_tokens(seq, 11, 1);
	kvc_seq_free(seq);
	expect(0, "fork j/base j/a j/base j/b", "j/b: sequence");
	there(source = kvc_takeover(writer, "j/a"));
	ok(kvc_journal_set(source, &replay));
	append_tokens(source, 6, 30);
	ok(kvc_digest(source, digests[0]));
	kvc_seq_free(source);
	expect(0, "snapshot j/a j/a.1", "j/a.1");
	expect(0, "journal j/a.1", "6, back to 11 tokens");
	expect(0, "diff j/a j/a.1", "are equal: 17 tokens");
	expect(5, "diff j/a j/b", "length");
	expect(0, "journal j/b --mode replay", "j/b: journal mode replay");
	expect(1, "replay j/a.1 --onto j/b --steps 7", "its journal has 6 steps, not 7");
	expect(0, "replay j/a.1 --onto j/b --steps 4", "j/b: 4 steps of j/a.1, 15 tokens now");
	expect(1, "replay j/a.1 --onto j/b", "rows of its own");
	expect(0, "rollback j/b --keep 11", "j/b: 11 tokens now");
	expect(0, "replay j/a.1 --onto j/b", "j/b: 6 steps of j/a.1, 17 tokens now");
	digest_of("j/b", 17, digests[1]);
	assert_memory_equal(digests[0], digests[1], 16);
	expect(1, "replay j/a.1 --onto j/a.1", "is a snapshot");
	expect(1, "replay j/base --onto j/a", "no replay journal");
	/* fold the one, not the other: they read differently now, int8 has rounded */
	expect(0, "fold j/b --keep-rows 10", "of 17 tokens in blocks");
	expect(0, "journal j/b --json", "\"mode\": \"replay\"");
	expect(0, "fold j/b", "17 of 17 tokens in blocks");
	expect(0, "journal j/b", "0 in 0 B");
	expect(5, "diff j/a.1 j/b --lines 2", "more places");
	digest_of("j/a", 17, digests[2]);
	assert_memory_equal(digests[0], digests[2], 16);
	expect(1, "fold j/a.1", "is a snapshot");
	expect(0, "rm j/a j/a.1 j/b j/base", "removed");
}

static void test_convert(void **state)
{
	kvc_seq *seq = make("j/raw", layout_of(0, KVC_RAW), KVC_JOURNAL_REPLAY, 6), *made;
	uint8_t digests[2][16];

	(void)state;
	ok(kvc_digest(seq, digests[0]));
	expect(1, "convert j/raw j/q --format int8", "its writer is");
	kvc_seq_free(seq);
	expect(0, "convert j/raw j/q --format int8:fp8",
	       "j/q: 16 tokens from j/raw, K int8, V fp8");
	expect(1, "convert j/raw j/q --format int8", "the name j/q is taken");
	expect(0, "convert j/raw j/raw2 --block-tokens 16 --json", "\"block_tokens\": 16");
	expect(1, "convert nobody j/nobody --format u8", "nobody");
	expect(1, "diff j/raw j/raw2", "block_tokens differs: 8 and 16");
	expect(0, "convert j/raw2 j/raw3 --block-tokens 8 --format raw", "K raw, V raw");
	expect(0, "diff j/raw j/raw3", "equal");
	expect(0, "diff j/raw j/raw3 --json", "\"equal\": true");
	digest_of("j/raw", 16, digests[1]);
	assert_memory_equal(digests[0], digests[1], 16);
	there(made = kvc_takeover(writer, "j/q"));
	assert_int_equal(kvc_length(made), 16);
	ok(kvc_seq_drop(made));
	expect(0, "size j/raw --tokens 64 --json", "\"n_tokens\": 64");
	expect(0, "size j/raw2", "16 tokens:");
	expect(0, "show j/raw2", "blocks of 16 tokens");
	expect(0, "rm j/raw j/raw2 j/raw3", "removed");
}

static void test_diff(void **state)
{
	kvc_seq *seq = make("j/one", layout_of(0, KVC_RAW), KVC_JOURNAL_UNDO, 10);
	const uint32_t index[2] = {3, 4};
	float rows[2 * ROW] = {0};

	(void)state;
	kvc_seq_free(seq);
	expect(0, "snapshot j/one j/two", "j/two");
	there(seq = kvc_takeover(writer, "j/one"));
	ok(kvc_reserve_scatter(seq, 1, 4, 4));
	ok(kvc_update_begin(seq, 0, 0));
	ok(kvc_scatter(seq, 1, 2, index, 1, rows, rows, NULL));
	ok(kvc_commit(writer, &seq, 1));
	kvc_seq_free(seq);
	expect(5, "diff j/one j/two", "    1     0  k     3-4\n");
	assert_non_null(strstr(out, "    1     1  v     3-4\n"));
	assert_non_null(strstr(out, "j/one and j/two: 8 differences\n"));
	expect(5, "diff j/one j/two --json", "\"n_differences\": 8");
	expect(0, "rollback j/one --steps 1", "10 tokens now");
	expect(0, "diff j/one j/two", "equal");
	expect(1, "diff j/one nobody", "nobody");
	expect(0, "rm j/one j/two", "removed");
}

static void test_nothing_left(void **state)
{
	(void)state;
	expect(0, "ls", "nothing there");
}

static const struct CMUnitTest tests[] = {
	KT_TEST_FIXTURE("a sequence with an undo journal is rolled back bit for bit", test_undo,
			begin, end),
	KT_TEST_FIXTURE("marks are set, listed, gone back to and released", test_marks, begin, end),
	KT_TEST_FIXTURE("a replay journal is applied to another fork, and folded",
			test_replay_and_fold, begin, end),
	KT_TEST_FIXTURE("sequences are converted, and convert back to equal ones", test_convert,
			begin, end),
	KT_TEST_FIXTURE("diff names what a scatter update changed, and nothing else", test_diff,
			begin, end),
	KT_TEST_FIXTURE("the commands leave nothing behind", test_nothing_left, begin, end),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), set_up,
				       stop_daemon};

	return kt_run(argc, argv, &group, 1);
}
