/*
 * What the library does without a daemon: option structs, layout defaults, statuses, errors.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/error.h"
#include "client/kvcache.h"
#include "client/layout.h"
#include "client/options.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

/* ---- option structs ---------------------------------------------------------------------- */

struct first_release {
	size_t size;
	uint32_t a;
	uint32_t b;
};

struct next_release {
	size_t size;
	uint32_t a;
	uint32_t b;
	uint64_t c;
};

static void test_null_is_defaults(void **state)
{
	struct first_release known = {1, 2, 3};

	(void)state;
	assert_int_equal(options_take(NULL, "x", sizeof(known), &known, sizeof(known)), 0);
	assert_int_equal(known.a, 0);
	assert_int_equal(known.b, 0);
}

static void test_too_small(void **state)
{
	struct first_release given = {.size = sizeof(given) - 1}, known;

	(void)state;
	assert_int_equal(options_take(&given, "x", sizeof(given), &known, sizeof(known)), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
	assert_non_null(strstr(kvc_error_text(), "size is 15"));
	given.size = 0;
	assert_int_equal(options_take(&given, "x", sizeof(given), &known, sizeof(known)), -1);
}

static void test_size_not_set(void **state)
{
	struct first_release given = {.size = 123456789}, known;

	(void)state;
	assert_int_equal(options_take(&given, "x", sizeof(given), &known, sizeof(known)), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
}

static void test_later_zero(void **state)
{
	struct next_release given = {.size = sizeof(given), .a = 5, .b = 6};
	struct first_release known;

	(void)state;
	assert_int_equal(options_take(&given, "x", sizeof(known), &known, sizeof(known)), 0);
	assert_int_equal(known.a, 5);
	assert_int_equal(known.b, 6);
}

static void test_later_set(void **state)
{
	struct next_release given = {.size = sizeof(given), .c = UINT64_C(1) << 63};
	struct first_release known;

	(void)state;
	assert_int_equal(options_take(&given, "x", sizeof(known), &known, sizeof(known)), -1);
	assert_int_equal(kvc_error(), KVC_EINVAL);
	assert_non_null(strstr(kvc_error_text(), "behind byte 16"));
}

static void test_older(void **state)
{
	struct first_release given = {.size = sizeof(given), .a = 5, .b = 6};
	struct next_release known;

	(void)state;
	assert_int_equal(options_take(&given, "x", sizeof(given), &known, sizeof(known)), 0);
	assert_int_equal(known.b, 6);
	assert_int_equal(known.c, 0);
}

static void test_elements(void **state)
{
	const struct next_release array[2] = {{.size = sizeof(array[0])}, {.size = 1}};

	(void)state;
	assert_ptr_equal(options_element(array, 1), &array[1]);
	assert_null(options_element(NULL, 1));
}

/* ---- layouts ----------------------------------------------------------------------------- */

static struct kvc_layout_options options_of(const struct kvc_layer *layers, uint32_t n_layers)
{
	return (struct kvc_layout_options){.size = sizeof(struct kvc_layout_options),
					   .fingerprint = {1},
					   .n_layers = n_layers,
					   .layers = layers,
					   .dtype = KVC_BF16};
}

static void test_default_block_tokens(void **state)
{
	(void)state;
	assert_int_equal(layout_default_block_tokens(1), 256);
	assert_int_equal(layout_default_block_tokens(1024), 256);
	assert_int_equal(layout_default_block_tokens(1025), 128);
	assert_int_equal(layout_default_block_tokens(2048), 128);
	assert_int_equal(layout_default_block_tokens(4096), 64);
	assert_int_equal(layout_default_block_tokens(8192), 32);
	assert_int_equal(layout_default_block_tokens(8193), 16);
	assert_int_equal(layout_default_block_tokens(128 * 1024), 16);
}

static void test_layout_defaults(void **state)
{
	const struct kvc_layer layers[2] = {{4, 64, 64, 0}, {4, 64, 64, 0}};
	struct kvc_layout_options o = options_of(layers, 2);
	struct kv_layout *fields = layout_from_options(&o);

	(void)state;
	assert_non_null(fields);
	assert_int_equal(fields->k_format, KV_FORMAT_RAW);
	assert_int_equal(fields->v_format, KV_FORMAT_RAW);
	assert_int_equal(kv_layout_token_bytes(fields), 2 * 4 * 128 * 2);
	assert_int_equal(fields->block_tokens, 128);
	assert_int_equal(fields->n_layer_groups, 1);
	kv_layout_free(fields);
}

static void test_layout_widest_group(void **state)
{
	/* 2 KiB a token in the unbounded group, 64 bytes in the window's */
	const struct kvc_layer layers[2] = {{4, 128, 128, 0}, {1, 16, 16, 100}};
	struct kvc_layout_options o = options_of(layers, 2);
	struct kv_layout *fields = layout_from_options(&o);

	(void)state;
	assert_non_null(fields);
	assert_int_equal(fields->block_tokens, 128);
	assert_int_equal(fields->n_layer_groups, 2);
	assert_int_equal(fields->max_slots, 100);
	kv_layout_free(fields);
}

static void test_layout_opaque(void **state)
{
	struct kvc_layout_options o = {.size = sizeof(o), .fingerprint = {1}, .opaque_bytes = 4096};
	struct kv_layout *fields = layout_from_options(&o);

	(void)state;
	assert_non_null(fields);
	assert_int_equal(fields->block_tokens, 1);
	kv_layout_free(fields);
}

static void refused(const struct kvc_layout_options *o, int status, const char *field)
{
	assert_null(layout_from_options(o));
	assert_int_equal(kvc_error(), status);
	if (!strstr(kvc_error_text(), field))
		fail_msg("'%s' does not name %s", kvc_error_text(), field);
}

static void test_layout_refused(void **state)
{
	static const struct kvc_layer layer = {4, 64, 64, 0};
	static const struct kvc_layer narrow = {4, 16, 8, 0};
	static const struct kvc_plane plane = {"scores", KVC_PLANE_SLOT,
					       KV_SLOT_PLANE_BYTES_MAX + 1};
	static const struct kvc_tag tag = {NULL, "1"}, twice[2] = {{"a", "1"}, {"a", "2"}};
	struct kvc_layout_options o;

	(void)state;
	refused(NULL, KVC_EINVAL, "options");
	o = options_of(&layer, 1);
	memset(o.fingerprint, 0, sizeof(o.fingerprint));
	refused(&o, KVC_EINVAL, "fingerprint");
	o = options_of(NULL, 1);
	refused(&o, KVC_EINVAL, "layers");
	o = options_of(&layer, KV_LAYERS_MAX + 1);
	refused(&o, KVC_ETOOBIG, "layers");
	o = options_of(&layer, 1);
	o.dtype = 9;
	refused(&o, KVC_ETOOBIG, "dtype");
	o = options_of(&layer, 1);
	o.k_format = KVC_INT8_MODEL + 1;
	refused(&o, KVC_ETOOBIG, "k_format");
	o = options_of(&narrow, 1);
	o.v_format = KVC_U4;
	refused(&o, KVC_EINVAL, "v_format");
	o = options_of(&layer, 1);
	o.n_planes = 1;
	o.planes = &plane;
	refused(&o, KVC_ETOOBIG, "planes, plane \"scores\"");
	o = options_of(&layer, 1);
	o.n_tags = 1;
	o.tags = &tag;
	refused(&o, KVC_EINVAL, "tags");
	o.n_tags = 2;
	o.tags = twice;
	refused(&o, KVC_EINVAL, "twice");
	o = options_of(&layer, 1);
	o.n_salt_bytes = KV_SALT_BYTES_MAX + 1;
	o.salt = o.fingerprint;
	refused(&o, KVC_ETOOBIG, "salt");
	o = options_of(&layer, 1);
	o.size = 8;
	refused(&o, KVC_EINVAL, "kvc_layout_options");
}

/* ---- statuses and errors ----------------------------------------------------------------- */

static void test_status_numbers(void **state)
{
	(void)state;
#define X(name, number, text) \
	assert_int_equal(KVC_##name, number); \
	assert_string_equal(kvc_status_name(number), "KVC_" #name);
	KV_STATUS_TABLE(X)
#undef X
	assert_string_equal(kvc_status_name(12345), "KVC_UNKNOWN");
}

static void test_formats(void **state)
{
	(void)state;
	assert_int_equal(KVC_F32, KV_DTYPE_F32);
	assert_int_equal(KVC_F16, KV_DTYPE_F16);
	assert_int_equal(KVC_BF16, KV_DTYPE_BF16);
	assert_int_equal(KVC_RAW, KV_FORMAT_RAW);
	assert_int_equal(KVC_FP8, KV_FORMAT_FP8);
	assert_int_equal(KVC_PLANE_SEQUENCE, KV_PLANE_SEQUENCE);
}

static void *other_thread(void *arg)
{
	(void)arg;
	kvc_fail(KV_EPOOL, "of the other thread");
	return NULL;
}

static void test_error_is_thread_local(void **state)
{
	pthread_t thread;

	(void)state;
	kvc_fail(KV_ERANGE, "of %s thread", "this");
	assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(kvc_error(), KVC_ERANGE);
	assert_string_equal(kvc_error_text(), "of this thread");
}

static void test_version(void **state)
{
	(void)state;
	assert_string_equal(kvc_version(), VERSION);
}

/* ---- nobody there ------------------------------------------------------------------------ */

static void test_no_daemon(void **state)
{
	char *dir = kt_tmpdir_new();
	struct kvc_session_options o = {.size = sizeof(o), .runtime_dir = dir};

	(void)state;
	assert_null(kvc_open(&o));
	assert_int_equal(kvc_error(), KVC_EDAEMON);
	assert_non_null(strstr(kvc_error_text(), dir));
	assert_non_null(strstr(kvc_error_text(), "attach.sock"));
	kt_tmpdir_free(dir);
}

static void test_dir_too_long(void **state)
{
	char dir[200];
	struct kvc_session_options o = {.size = sizeof(o), .runtime_dir = dir};

	(void)state;
	memset(dir, 'd', sizeof(dir) - 1);
	dir[sizeof(dir) - 1] = '\0';
	assert_null(kvc_open(&o));
	assert_int_equal(kvc_error(), KVC_ETOOBIG);
	assert_non_null(strstr(kvc_error_text(), "107"));
}

static void test_deadline_too_long(void **state)
{
	struct kvc_session_options o = {.size = sizeof(o), .deadline_ms = KV_DEADLINE_MS_MAX + 1};

	(void)state;
	assert_null(kvc_open(&o));
	assert_int_equal(kvc_error(), KVC_ERANGE);
}

static void test_free_null(void **state)
{
	(void)state;
	kvc_close(NULL);
	kvc_layout_free(NULL);
	kvc_seq_free(NULL);
	kvc_batch_free(NULL);
	assert_int_equal(kvc_writer_free(NULL), 0);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("no options are the defaults", test_null_is_defaults),
	KT_TEST("an option struct that is too small is refused with its size", test_too_small),
	KT_TEST("an option struct without a size is refused", test_size_not_set),
	KT_TEST("a later release's struct is taken when its new fields are zero", test_later_zero),
	KT_TEST("a later release's struct is refused when a new field is set", test_later_set),
	KT_TEST("an earlier release's struct gets defaults for what it lacks", test_older),
	KT_TEST("arrays of option structs go by the caller's size", test_elements),
	KT_TEST("a block has about 256 KiB and 16 to 256 tokens by default",
		test_default_block_tokens),
	KT_TEST("a layout's formats and block size have defaults", test_layout_defaults),
	KT_TEST("the widest layer group decides the default block size", test_layout_widest_group),
	KT_TEST("an opaque layout has blocks of one slot", test_layout_opaque),
	KT_TEST("a layout that makes no sense is refused naming the field", test_layout_refused),
	KT_TEST("status numbers of header and table are equal", test_status_numbers),
	KT_TEST("numbers of formats in header and contract are equal", test_formats),
	KT_TEST("an error belongs to its thread", test_error_is_thread_local),
	KT_TEST("the library tells its version", test_version),
	KT_TEST("without a daemon the text names the socket", test_no_daemon),
	KT_TEST("a runtime directory that is too long is refused with the limit",
		test_dir_too_long),
	KT_TEST("a deadline above the limit is refused", test_deadline_too_long),
	KT_TEST("freeing nothing is allowed", test_free_null),
};

KT_MAIN(tests)
