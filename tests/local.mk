# The test that looks for leftovers, after all others.

check_PROGRAMS += tests/leftovers
tests_leftovers_SOURCES = tests/leftovers.c
tests_leftovers_LDADD = libkvtest.la
TESTS += tests/leftovers
last_log = tests/leftovers.log
$(last_log): $(filter-out $(last_log),$(TEST_LOGS))

# The tests of programs (not of scripts) again, under valgrind. It cannot see
# through io_uring and is slow: deadlines are 20 times as long.
VALGRIND = valgrind
VALGRIND_FLAGS = --quiet --error-exitcode=99 --leak-check=full \
	--show-leak-kinds=definite --errors-for-leak-kinds=definite \
	--trace-children=yes --trace-children-skip='/bin/*,/usr/bin/*'
check-valgrind: all
	$(MAKE) $(AM_MAKEFLAGS) check KT_TIME_SCALE=20 KT_TEST_LIMIT_S=1800 \
		TESTS='$(unit_tests) $(integration_tests)' \
		LOG_COMPILER='$(LIBTOOL) --mode=execute $(VALGRIND) $(VALGRIND_FLAGS)'
.PHONY: check-valgrind
