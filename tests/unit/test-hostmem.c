/*
 * How much memory a pool can have, read below roots that the test made.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/hostmem.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

#define MIB (UINT64_C(1) << 20)

static char *root;

static int make_root(void **state)
{
	(void)state;
	root = kt_tmpdir_new();
	return 0;
}

static int remove_root(void **state)
{
	(void)state;
	kt_tmpdir_free(root);
	return 0;
}

static const char *at(const char *name)
{
	static char path[2][400];
	static int turn;

	turn = !turn;
	snprintf(path[turn], sizeof(path[turn]), "%s/%s", root, name);
	return path[turn];
}

static void put(const char *name, const char *text)
{
	FILE *file = fopen(at(name), "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void folder(const char *name)
{
	assert_int_equal(mkdir(at(name), 0700), 0);
}

/* A machine with 1000 MiB available and no control groups. */
static void machine(void)
{
	folder("proc");
	folder("proc/self");
	folder("sys");
	put("proc/meminfo", "MemTotal: 4096000 kB\nMemFree: 1 kB\nMemAvailable:    1024000 kB\n");
}

static int read_mem(struct hostmem *mem, struct errbuf *err)
{
	return hostmem_read(mem, at("proc"), at("sys"), err);
}

static void test_without_groups_the_machine_decides(void **state)
{
	struct errbuf err = {0};
	struct hostmem mem;

	(void)state;
	machine();
	assert_int_equal(read_mem(&mem, &err), 0);
	assert_int_equal(mem.available_bytes, 1000 * MIB);
	assert_int_equal(hostmem_check(&mem, 1000 * MIB, &err), 0);
	assert_int_equal(hostmem_check(&mem, 1000 * MIB + 1, &err), -1);
	assert_int_equal(err.status, KV_EPOOL);
	assert_int_equal(hostmem_check(&mem, 2000 * MIB, &err), -1);
	assert_string_equal(err.text,
			    "the host pool asks for 2.0 GiB, 1000 MiB available (of the machine); "
			    "lower bytes in [pool host] or --pool-bytes");
}

static void test_the_tightest_group_above_us_decides(void **state)
{
	struct errbuf err = {0};
	struct hostmem mem;

	(void)state;
	machine();
	put("proc/self/cgroup", "1:name=systemd:/x\n0::/outer/inner\n");
	folder("sys/outer");
	folder("sys/outer/inner");
	put("sys/outer/inner/memory.max", "max\n");
	put("sys/outer/inner/memory.current", "1000\n");
	put("sys/outer/memory.max", "314572800\n");                        /* 300 MiB */
	put("sys/outer/memory.current", "209715200\n");                    /* 200 MiB */
	put("sys/outer/memory.stat", "anon 1\ninactive_file 104857600\n"); /* 100 MiB */
	assert_int_equal(read_mem(&mem, &err), 0);
	assert_int_equal(mem.group_bytes, 200 * MIB);
	assert_int_equal(mem.available_bytes, 200 * MIB);
	assert_string_equal(mem.group, "/outer");
	assert_int_equal(hostmem_check(&mem, 512 * MIB, &err), -1);
	assert_string_equal(err.text,
			    "the host pool asks for 512 MiB, 200 MiB available (limit of control "
			    "group /outer); lower bytes in [pool host] or --pool-bytes");
}

static void test_the_root_of_a_container_counts(void **state)
{
	struct hostmem mem;

	(void)state;
	machine();
	put("proc/self/cgroup", "0::/\n");
	put("sys/memory.max", "1048576\n");
	put("sys/memory.current", "2097152\n"); /* above its limit: nothing is left */
	assert_int_equal(read_mem(&mem, NULL), 0);
	assert_int_equal(mem.available_bytes, 0);
	assert_string_equal(mem.group, "/");
}

static void test_a_larger_group_changes_nothing(void **state)
{
	struct hostmem mem;

	(void)state;
	machine();
	put("proc/self/cgroup", "0::/a\n");
	folder("sys/a");
	put("sys/a/memory.max", "99999999999\n");
	assert_int_equal(read_mem(&mem, NULL), 0);
	assert_int_equal(mem.available_bytes, 1000 * MIB);
}

static void test_no_proc_is_an_error(void **state)
{
	struct errbuf err;
	struct hostmem mem;

	(void)state;
	assert_int_equal(hostmem_read(&mem, "/nonexistent", "/nonexistent", &err), -1);
	assert_string_equal(err.text, "no MemAvailable in /nonexistent/meminfo: is /proc mounted?");
}

#define TEST(sentence, fn) KT_TEST_FIXTURE(sentence, fn, make_root, remove_root)

static const struct CMUnitTest tests[] = {
	TEST("without groups the machine decides", test_without_groups_the_machine_decides),
	TEST("the tightest group above us decides", test_the_tightest_group_above_us_decides),
	TEST("the root of a container counts", test_the_root_of_a_container_counts),
	TEST("a larger group changes nothing", test_a_larger_group_changes_nothing),
	TEST("no /proc is an error", test_no_proc_is_an_error),
};

KT_MAIN(tests)
