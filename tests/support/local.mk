# libkvtest.la: the runner, temporary folders, waiting with a deadline.
# A test program links it: foo_LDADD = libkvtest.la ...

check_LTLIBRARIES += libkvtest.la
libkvtest_la_SOURCES = \
	tests/support/daemon.c \
	tests/support/daemon.h \
	tests/support/manager.c \
	tests/support/manager.h \
	tests/support/random.h \
	tests/support/runner.c \
	tests/support/runner.h \
	tests/support/supervise.c \
	tests/support/supervise.h \
	tests/support/tmpdir.c \
	tests/support/tmpdir.h \
	tests/support/wait.c \
	tests/support/wait.h
libkvtest_la_LIBADD = $(CMOCKA_LIBS)

# Misbehaves on request, for the tests of the runner.
check_PROGRAMS += tests/support/runner-sample
tests_support_runner_sample_SOURCES = tests/support/runner-sample.c
tests_support_runner_sample_LDADD = libkvtest.la

# A client without libkvcache: for each program $(raw_client) among the sources, and
# $(raw_client_libs) in its LDADD.
raw_client = tests/support/raw_client.c tests/support/raw_client.h
raw_client_libs = libkvproto.la $(NANOMSG_LIBS)

# libkvtestclient.la: clients of a private daemon, with the inner functions of the library.
check_LTLIBRARIES += libkvtestclient.la
libkvtestclient_la_SOURCES = \
	tests/support/client.c \
	tests/support/client.h \
	tests/support/kid.c
libkvtestclient_la_LIBADD = libkvtest.la libkvclient.la
