# Tests in which something dies. For each program NAME three lines:
#	crash_tests += tests/crash/NAME
#	tests_crash_NAME_SOURCES = ...
#	tests_crash_NAME_LDADD = libkvtest.la ...

crash_tests =

rounds = tests/crash/rounds.c tests/crash/rounds.h

# kill-writer --rounds N --seed S: 200 rounds as a test, any number by hand.
crash_tests += tests/crash/kill-writer
tests_crash_kill_writer_SOURCES = tests/crash/kill-writer.c $(rounds) tests/support/bare.c tests/support/bare.h
tests_crash_kill_writer_LDADD = libkvclient.la libkvdaemon.la

# kill-client --rounds N --seed S: 20 rounds as a test, with a running daemon.
crash_tests += tests/crash/kill-client
tests_crash_kill_client_SOURCES = tests/crash/kill-client.c $(rounds)
tests_crash_kill_client_LDADD = libkvtestclient.la

# kill-journal --episodes N --seed S: every point of every operation of two short histories as a
# test, any number by hand.
crash_tests += tests/crash/kill-journal
tests_crash_kill_journal_SOURCES = tests/crash/kill-journal.c $(model_check_sources)
tests_crash_kill_journal_LDADD = libkvclient.la libkvdaemon.la $(XXHASH_LIBS) -lm

# kill-core --rounds N --seed S: 40 rounds as a test, with a running daemon.
crash_tests += tests/crash/kill-core
tests_crash_kill_core_SOURCES = tests/crash/kill-core.c $(rounds) tests/crash/core-load.c tests/crash/core-load.h
tests_crash_kill_core_LDADD = libkvtestclient.la

# kill-save --rounds N --seed S: 60 rounds as a test, with a daemon that has a disk pool.
crash_tests += tests/crash/kill-save
tests_crash_kill_save_SOURCES = tests/crash/kill-save.c $(rounds)
tests_crash_kill_save_LDADD = libkvtestclient.la

check_PROGRAMS += $(crash_tests)
TESTS += $(crash_tests)
