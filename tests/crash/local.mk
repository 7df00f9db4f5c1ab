# Tests in which something dies. For each program NAME three lines:
#	crash_tests += tests/crash/NAME
#	tests_crash_NAME_SOURCES = ...
#	tests_crash_NAME_LDADD = libkvtest.la ...

crash_tests =

check_PROGRAMS += $(crash_tests)
TESTS += $(crash_tests)
