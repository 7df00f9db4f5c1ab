# Tests with a running daemon. For each program NAME three lines:
#	integration_tests += tests/integration/NAME
#	tests_integration_NAME_SOURCES = ...
#	tests_integration_NAME_LDADD = libkvtest.la ...

integration_tests =

integration_tests += tests/integration/test-hot-path
tests_integration_test_hot_path_SOURCES = tests/integration/test-hot-path.c
tests_integration_test_hot_path_LDADD = libkvtest.la libkvcache.la
EXTRA_tests_integration_test_hot_path_DEPENDENCIES = kvcached$(EXEEXT)

script_tests += tests/integration/score-heldout

integration_tests += tests/integration/test-core
tests_integration_test_core_SOURCES = tests/integration/test-core.c
tests_integration_test_core_LDADD = libkvtest.la libkvcache.la

integration_tests += tests/integration/test-generate-shared
tests_integration_test_generate_shared_SOURCES = tests/integration/test-generate-shared.c
tests_integration_test_generate_shared_LDADD = libkvtest.la
EXTRA_tests_integration_test_generate_shared_DEPENDENCIES = kvc-generate$(EXEEXT) kvcached$(EXEEXT)

# the example model on quantised caches, and what is stored of vectors
integration_tests += tests/integration/test-model-formats
tests_integration_test_model_formats_SOURCES = tests/integration/test-model-formats.c
tests_integration_test_model_formats_LDADD = libkvexample.la libkvtestclient.la
EXTRA_tests_integration_test_model_formats_DEPENDENCIES = kvcached$(EXEEXT)
integration_tests += tests/integration/test-stored
tests_integration_test_stored_SOURCES = tests/integration/test-stored.c
tests_integration_test_stored_LDADD = libkvtestclient.la
EXTRA_tests_integration_test_stored_DEPENDENCIES = kvcached$(EXEEXT)

# a daemon with a disk pool, over the end of the machine
machine = tests/integration/machine.c tests/integration/machine.h
integration_tests += tests/integration/test-saved
tests_integration_test_saved_SOURCES = tests/integration/test-saved.c $(machine)
tests_integration_test_saved_LDADD = libkvtestclient.la
EXTRA_tests_integration_test_saved_DEPENDENCIES = kvcached$(EXEEXT)

integration_tests += tests/integration/test-end-to-end
tests_integration_test_end_to_end_SOURCES = \
	tests/integration/test-end-to-end.c tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_end_to_end_LDADD = libkvtest.la libkvclient.la

integration_tests += tests/integration/test-journals
tests_integration_test_journals_SOURCES = tests/integration/test-journals.c \
	tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_journals_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-policies
tests_integration_test_policies_SOURCES = tests/integration/test-policies.c \
	tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_policies_LDADD = libkvtestclient.la
EXTRA_tests_integration_test_policies_DEPENDENCIES = kvcached$(EXEEXT)

integration_tests += tests/integration/test-journal-limits
tests_integration_test_journal_limits_SOURCES = tests/integration/test-journal-limits.c
tests_integration_test_journal_limits_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-layouts
tests_integration_test_layouts_SOURCES = \
	tests/integration/test-layouts.c tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_layouts_LDADD = libkvtest.la libkvcache.la

integration_tests += tests/integration/test-convert
tests_integration_test_convert_SOURCES = \
	tests/integration/test-convert.c tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_convert_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-ctl-journals
tests_integration_test_ctl_journals_SOURCES = tests/integration/test-ctl-journals.c \
	tests/integration/shadow.c tests/integration/shadow.h
tests_integration_test_ctl_journals_LDADD = libkvtestclient.la
EXTRA_tests_integration_test_ctl_journals_DEPENDENCIES = kvcachectl$(EXEEXT) kvcached$(EXEEXT)

integration_tests += tests/integration/test-faults
tests_integration_test_faults_SOURCES = tests/integration/test-faults.c
tests_integration_test_faults_LDADD = libkvtest.la libkvcache.la

script_tests += tests/integration/test-ctl.sh

# peers that do not mean well
integration_tests += tests/integration/test-hostile
tests_integration_test_hostile_SOURCES = tests/integration/test-hostile.c $(raw_client)
tests_integration_test_hostile_LDADD = libkvtest.la $(raw_client_libs)
integration_tests += tests/integration/test-hostile-attach
tests_integration_test_hostile_attach_SOURCES = tests/integration/test-hostile-attach.c $(raw_client)
tests_integration_test_hostile_attach_LDADD = libkvtest.la $(raw_client_libs)
integration_tests += tests/integration/test-resend
tests_integration_test_resend_SOURCES = tests/integration/test-resend.c $(raw_client)
tests_integration_test_resend_LDADD = libkvtest.la libkvclient.la $(raw_client_libs)

integration_tests += tests/integration/test-faults-client
tests_integration_test_faults_client_SOURCES = tests/integration/test-faults-client.c
tests_integration_test_faults_client_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-faults-daemon
tests_integration_test_faults_daemon_SOURCES = tests/integration/test-faults-daemon.c
tests_integration_test_faults_daemon_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-faults-memory
tests_integration_test_faults_memory_SOURCES = tests/integration/test-faults-memory.c
tests_integration_test_faults_memory_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-access
tests_integration_test_access_SOURCES = tests/integration/test-access.c
tests_integration_test_access_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-stress-freeze
tests_integration_test_stress_freeze_SOURCES = tests/integration/test-stress-freeze.c
tests_integration_test_stress_freeze_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-threads
tests_integration_test_threads_SOURCES = tests/integration/test-threads.c
tests_integration_test_threads_LDADD = libkvtestclient.la

integration_tests += tests/integration/test-cases
tests_integration_test_cases_SOURCES = tests/integration/test-cases.c
tests_integration_test_cases_LDADD = libkvtestclient.la

# the daemon is started again
integration_tests += tests/integration/test-restart
tests_integration_test_restart_SOURCES = tests/integration/test-restart.c \
	tests/integration/lives.c tests/integration/lives.h $(raw_client)
tests_integration_test_restart_LDADD = libkvtestclient.la $(raw_client_libs)

integration_tests += tests/integration/test-stop
tests_integration_test_stop_SOURCES = tests/integration/test-stop.c
tests_integration_test_stop_LDADD = libkvtestclient.la

check_PROGRAMS += $(integration_tests)
TESTS += $(integration_tests)
