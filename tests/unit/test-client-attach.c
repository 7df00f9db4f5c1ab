/*
 * What the library believes of an attach socket, an arena and a base: versions, descriptors, pins.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/link.h"
#include "proto/layout_wire.h"
#include "tests/support/runner.h"
#include "tests/unit/client-fake.h"

/* ---- versions ---------------------------------------------------------------------------- */

static bool old_attach(struct fake *fake, const Kv__Wire__AttachRequest *request,
		       Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)fake;
	(void)request;
	(void)fds;
	(void)n_fds;
	reply->version = 42;
	return true;
}

static void test_attach_version(void **state)
{
	struct fake *fake = fake_new();

	(void)state;
	fake_set_script(fake, NULL, old_attach, NULL);
	assert_null(session_open(fake_dir(fake), FAKE_DEADLINE_MS, 1000));
	assert_int_equal(kvc_error(), KVC_EVERSION);
	assert_non_null(strstr(kvc_error_text(), "protocol 42"));
	fake_free(fake);
}

static bool new_shm(struct fake *fake, const Kv__Wire__AttachRequest *request,
		    Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)fake;
	(void)request;
	(void)fds;
	(void)n_fds;
	reply->shm_version = 9;
	return true;
}

static void test_shm_version(void **state)
{
	struct fake *fake = fake_new();

	(void)state;
	fake_set_script(fake, NULL, new_shm, NULL);
	assert_null(session_open(fake_dir(fake), FAKE_DEADLINE_MS, 1000));
	assert_int_equal(kvc_error(), KVC_EVERSION);
	assert_non_null(strstr(kvc_error_text(), "shared memory 9"));
	fake_free(fake);
}

static void test_segment_version(void **state)
{
	struct fake *fake = fake_new();

	(void)state;
	segment_head(fake_segment(fake))->version = 3;
	assert_null(session_open(fake_dir(fake), FAKE_DEADLINE_MS, 1000));
	assert_int_equal(kvc_error(), KVC_EVERSION);
	segment_head(fake_segment(fake))->version = KV_SHM_VERSION;
	segment_head(fake_segment(fake))->places_off = KV_SHM_BYTES;
	assert_null(session_open(fake_dir(fake), FAKE_DEADLINE_MS, 1000));
	assert_int_equal(kvc_error(), KVC_EPROTO);
	fake_free(fake);
}

/* ---- nonsense -------------------------------------------------------------------------- */

enum attach_nonsense { NO_FD, SMALL_SEGMENT, SHORT_BOOT, SHORT_TOKEN, TWO_FDS, NO_WELCOME };

static bool attach_nonsense(struct fake *fake, const Kv__Wire__AttachRequest *request,
			    Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	(void)request;
	switch (*(enum attach_nonsense *)fake_arg(fake)) {
	case NO_FD: close(fds[--*n_fds]); break;
	case SMALL_SEGMENT: reply->welcome->segment_bytes /= 2; break;
	case SHORT_BOOT: reply->boot.len = 15; break;
	case SHORT_TOKEN: reply->welcome->token.len = 3; break;
	case TWO_FDS: fds[(*n_fds)++] = dup(0); break;
	case NO_WELCOME: reply->what_case = KV__WIRE__ATTACH_REPLY__WHAT__NOT_SET; break;
	}
	return true;
}

static unsigned n_open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static void test_attach_nonsense(void **state)
{
	struct fake *fake = fake_new();
	enum attach_nonsense what;
	unsigned n_fds;

	(void)state;
	kvc_close(fake_open(fake)); /* what is opened once stays open */
	n_fds = n_open_fds();
	for (what = NO_FD; what <= NO_WELCOME; what++) {
		fake_set_script(fake, NULL, attach_nonsense, &what);
		assert_null(session_open(fake_dir(fake), FAKE_DEADLINE_MS, 1000));
		assert_int_equal(kvc_error(), KVC_EPROTO);
	}
	fake_set_script(fake, NULL, NULL, NULL);
	kvc_close(fake_open(fake));
	assert_true(n_open_fds() <= n_fds + 1); /* the fake may still see the last hang-up */
	fake_free(fake);
}

/* ---- pins -------------------------------------------------------------------------------- */

static void test_pins(void **state)
{
	struct fake *fake = fake_new();
	struct kvc_session *session = fake_open(fake);

	(void)state;
	session_base_ref(session, 11);
	session_base_ref(session, 11);
	session_base_ref(session, 12);
	session_base_unref(session, 11);
	pins_flush(session);
	assert_int_equal(fake_n_heard(fake), 0);
	session_base_unref(session, 11);
	pins_hold(session);
	pins_flush(session); /* a fork is under way: it may name the same base */
	assert_int_equal(fake_n_heard(fake), 0);
	session_base_ref(session, 11);
	pins_unhold(session);
	pins_flush(session);
	assert_int_equal(fake_n_heard(fake), 0);
	session_base_unref(session, 11);
	pins_flush(session);
	assert_int_equal(fake_n_heard(fake), 1);
	assert_int_equal(fake_heard(fake, 0).command, KV__WIRE__REQUEST__COMMAND_UNPIN);
	pins_flush(session);
	assert_int_equal(fake_n_heard(fake), 1);
	kvc_close(session);
	fake_free(fake);
}

/* ---- arenas ------------------------------------------------------------------------------ */

struct arenas {
	struct kv_layout *fields;
	Kv__Wire__Layout *wire;
	uint64_t arena_id;
	uint64_t n_bytes;
	int seals;
	bool writable;
	unsigned n_asked;
};

static enum fake_answer layout_script(struct fake *fake, const Kv__Wire__Request *request,
				      struct fake_reply *answer)
{
	static Kv__Wire__LayoutResult result;
	struct arenas *arenas = fake_arg(fake);

	if (request->command_case != KV__WIRE__REQUEST__COMMAND_LAYOUT_GET)
		return FAKE_DEFAULT;
	kv__wire__layout_result__init(&result);
	answer->reply.result_case = KV__WIRE__REPLY__RESULT_LAYOUT;
	answer->reply.layout = &result;
	result.layout_id = 5;
	result.hash = (ProtobufCBinaryData){KV_HASH_BYTES, arenas->fields->hash};
	result.layout = arenas->wire;
	return FAKE_REPLY;
}

static bool arena_script(struct fake *fake, const Kv__Wire__AttachRequest *request,
			 Kv__Wire__AttachReply *reply, int fds[4], unsigned *n_fds)
{
	static Kv__Wire__ArenaInfo info;
	struct arenas *arenas = fake_arg(fake);

	if (request->what_case != KV__WIRE__ATTACH_REQUEST__WHAT_ARENA_GET)
		return true;
	arenas->n_asked++;
	kv__wire__arena_info__init(&info);
	reply->what_case = KV__WIRE__ATTACH_REPLY__WHAT_ARENA;
	reply->arena = &info;
	info.arena = request->arena_get->arena;
	info.arena_id = arenas->arena_id;
	info.layout_id = 5;
	info.n_blocks = 8;
	info.n_bytes = arenas->n_bytes;
	info.writable = arenas->writable;
	fds[0] = memfd_create("kvcached-test-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(fds[0], (off_t)arenas->n_bytes) < 0 ||
	    fcntl(fds[0], F_ADD_SEALS, arenas->seals) < 0)
		return false;
	*n_fds = 1;
	return true;
}

static struct arenas arenas_make(struct fake *fake)
{
	struct kv_layer layer = {2, 8, 8, 0};
	struct kv_layout fields = {.fingerprint = {1},
				   .n_layers = 1,
				   .layers = &layer,
				   .dtype = KV_DTYPE_F32,
				   .k_format = KV_FORMAT_RAW,
				   .v_format = KV_FORMAT_RAW,
				   .block_tokens = 16};
	struct arenas arenas = {.arena_id = 100, .seals = F_SEAL_SHRINK | F_SEAL_GROW};
	uint64_t region_off[2];

	arenas.fields = kv_layout_copy(&fields);
	assert_non_null(arenas.fields);
	arenas.wire = kv_layout_to_wire(arenas.fields);
	assert_non_null(arenas.wire);
	arenas.n_bytes = kv_layout_arena(arenas.fields, 0, 8, region_off);
	segment_set_arena(fake_segment(fake), 3, 100);
	return arenas;
}

static void arenas_free(struct arenas *arenas)
{
	kv_layout_wire_free(arenas->wire);
	kv_layout_free(arenas->fields);
}

static void test_arena(void **state)
{
	struct fake *fake = fake_new();
	struct arenas arenas = arenas_make(fake);
	struct kvc_session *session = fake_open(fake);
	struct arena_map *map;

	(void)state;
	fake_set_script(fake, layout_script, arena_script, &arenas);
	assert_null(session_arena_mapped(session, 3));
	map = session_arena(session, 3);
	if (!map)
		fail_msg("session_arena: %s", kvc_error_text());
	assert_int_equal(map->number, 3);
	assert_int_equal(map->id, 100);
	assert_int_equal(map->n_blocks, 8);
	assert_int_equal(map->region_off[1], KV_SHM_PAGE * 2);
	assert_null(map->owned);
	assert_int_equal(map->base[map->n_bytes - 1], 0);
	assert_int_equal(mprotect(map->base, KV_SHM_PAGE, PROT_READ), 0);
	assert_ptr_equal(session_arena(session, 3), map);
	assert_ptr_equal(session_arena_mapped(session, 3), map);
	assert_int_equal(arenas.n_asked, 1);
	/* the number goes to another arena, which this session writes */
	arenas.arena_id = 101;
	arenas.writable = true;
	segment_set_arena(fake_segment(fake), 3, 101);
	map = session_arena(session, 3);
	assert_non_null(map);
	assert_int_equal(map->id, 101);
	assert_non_null(map->owned);
	map->base[0] = 7;
	assert_int_equal(arenas.n_asked, 2);
	kvc_close(session);
	fake_free(fake);
	arenas_free(&arenas);
}

static void test_arena_refused(void **state)
{
	struct fake *fake = fake_new();
	struct arenas arenas = arenas_make(fake);
	struct kvc_session *session = fake_open(fake);

	(void)state;
	fake_set_script(fake, layout_script, arena_script, &arenas);
	assert_null(session_arena(session, 0));
	assert_null(session_arena(session, KV_ARENAS_MAX));
	assert_int_equal(arenas.n_asked, 0);
	arenas.seals = F_SEAL_GROW;
	assert_null(session_arena(session, 3));
	assert_int_equal(kvc_error(), KVC_EPROTO);
	assert_non_null(strstr(kvc_error_text(), "sealed"));
	arenas.seals = F_SEAL_SHRINK;
	arenas.n_bytes -= KV_SHM_PAGE;
	assert_null(session_arena(session, 3));
	assert_int_equal(kvc_error(), KVC_EPROTO);
	assert_non_null(strstr(kvc_error_text(), "layout"));
	kvc_close(session);
	fake_free(fake);
	arenas_free(&arenas);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a daemon of another protocol version is refused with both numbers",
		test_attach_version),
	KT_TEST("a daemon of another shared-memory version is refused", test_shm_version),
	KT_TEST("a control segment that makes no sense is refused", test_segment_version),
	KT_TEST("welcomes that make no sense are refused and nothing leaks", test_attach_nonsense),
	KT_TEST("a pin is given back once, by its last user, and never under a fork", test_pins),
	KT_TEST("an arena is asked for once, until its number is another's", test_arena),
	KT_TEST("an arena that makes no sense is not mapped", test_arena_refused),
};

KT_MAIN(tests)
