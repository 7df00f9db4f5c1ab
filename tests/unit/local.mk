# Tests of one module, without a daemon. For each program NAME three lines:
#	unit_tests += tests/unit/NAME
#	tests_unit_NAME_SOURCES = ...
#	tests_unit_NAME_LDADD = libkvtest.la ...

unit_tests =
# the core's state without its links
fake_links = tests/support/fake_links.c tests/support/fake_links.h

unit_tests += tests/unit/test-runner
tests_unit_test_runner_SOURCES = tests/unit/test-runner.c
tests_unit_test_runner_LDADD = libkvtest.la
EXTRA_tests_unit_test_runner_DEPENDENCIES = tests/support/runner-sample$(EXEEXT)

unit_tests += tests/unit/test-data-plane
tests_unit_test_data_plane_SOURCES = tests/unit/test-data-plane.c tests/support/bare.c tests/support/bare.h
tests_unit_test_data_plane_LDADD = libkvtest.la libkvclient.la libkvdaemon.la

unit_tests += tests/unit/test-freeze-stress
tests_unit_test_freeze_stress_SOURCES = tests/unit/test-freeze-stress.c tests/support/bare.c tests/support/bare.h
tests_unit_test_freeze_stress_LDADD = libkvtest.la libkvclient.la libkvdaemon.la $(XXHASH_LIBS)

unit_tests += tests/unit/test-model
tests_unit_test_model_SOURCES = tests/unit/test-model.c
tests_unit_test_model_LDADD = libkvtest.la libkvexample.la -lm

unit_tests += tests/unit/test-model-files
tests_unit_test_model_files_SOURCES = tests/unit/test-model-files.c
tests_unit_test_model_files_LDADD = libkvtest.la libkvexample.la -lm

unit_tests += tests/unit/test-model-shared
tests_unit_test_model_shared_SOURCES = \
	tests/unit/test-model-shared.c tests/support/bare.c tests/support/bare.h
tests_unit_test_model_shared_LDADD = \
	libkvtest.la libkvexample.la libkvclient.la libkvdaemon.la

unit_tests += tests/unit/test-generate
tests_unit_test_generate_SOURCES = tests/unit/test-generate.c
tests_unit_test_generate_LDADD = libkvtest.la libkvexample.la $(JANSSON_LIBS) $(XXHASH_LIBS)
EXTRA_tests_unit_test_generate_DEPENDENCIES = kvc-generate$(EXEEXT)

unit_tests += tests/unit/test-draft
tests_unit_test_draft_SOURCES = tests/unit/test-draft.c
tests_unit_test_draft_LDADD = libkvtest.la libkvexample.la

script_tests += tests/unit/test-units.sh

unit_tests += tests/unit/test-catalogue
tests_unit_test_catalogue_SOURCES = tests/unit/test-catalogue.c
tests_unit_test_catalogue_LDADD = libkvtest.la libkvdaemon.la

unit_tests += tests/unit/test-core-commands
tests_unit_test_core_commands_SOURCES = tests/unit/test-core-commands.c $(fake_links)
tests_unit_test_core_commands_LDADD = libkvtest.la libkvdaemon.la

unit_tests += tests/unit/test-core-state
tests_unit_test_core_state_SOURCES = tests/unit/test-core-state.c $(fake_links)
tests_unit_test_core_state_LDADD = libkvtest.la libkvdaemon.la

unit_tests += tests/unit/test-segment
tests_unit_test_segment_SOURCES = tests/unit/test-segment.c
tests_unit_test_segment_LDADD = libkvtest.la libkvdaemon.la

craft = tests/support/craft.c tests/support/craft.h $(fake_links)
unit_tests += tests/unit/test-core-journals tests/unit/test-recover-rows
tests_unit_test_core_journals_SOURCES = tests/unit/test-core-journals.c $(craft)
tests_unit_test_core_journals_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)

saved_world = tests/unit/saved-world.c tests/unit/saved-world.h $(craft)
unit_tests += \
	tests/unit/test-core-saved \
	tests/unit/test-core-saved-busy \
	tests/unit/test-core-saved-hostile \
	tests/unit/test-core-saved-model
tests_unit_test_core_saved_SOURCES = tests/unit/test-core-saved.c $(saved_world)
tests_unit_test_core_saved_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
tests_unit_test_core_saved_busy_SOURCES = tests/unit/test-core-saved-busy.c $(saved_world)
tests_unit_test_core_saved_busy_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
tests_unit_test_core_saved_hostile_SOURCES = tests/unit/test-core-saved-hostile.c $(saved_world)
tests_unit_test_core_saved_hostile_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
tests_unit_test_core_saved_model_SOURCES = tests/unit/test-core-saved-model.c $(saved_world)
tests_unit_test_core_saved_model_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
tests_unit_test_recover_rows_SOURCES = tests/unit/test-recover-rows.c $(craft)
tests_unit_test_recover_rows_LDADD = libkvtest.la libkvdaemon.la

# what has a number or a byte order outside of one process, as it was in version 1
frames = tests/support/frames.c tests/support/frames.h
unit_tests += tests/unit/test-frames
tests_unit_test_frames_SOURCES = tests/unit/test-frames.c $(frames) $(fake_links)
tests_unit_test_frames_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
EXTRA_DIST += tests/data/frames

unit_tests += tests/unit/test-arena
tests_unit_test_arena_SOURCES = tests/unit/test-arena.c
tests_unit_test_arena_LDADD = libkvtest.la libkvdaemon.la

unit_tests += tests/unit/test-ctl
tests_unit_test_ctl_SOURCES = tests/unit/test-ctl.c tests/unit/ctl-answers.c tests/unit/ctl-answers.h
tests_unit_test_ctl_LDADD = libkvtest.la libkvctl.la
EXTRA_DIST += tests/data/ctl

unit_tests += tests/unit/test-plain-read
tests_unit_test_plain_read_SOURCES = tests/unit/test-plain-read.c
tests_unit_test_plain_read_LDADD = libkvtest.la libkvctl.la

unit_tests += tests/unit/test-docs
tests_unit_test_docs_SOURCES = tests/unit/test-docs.c
tests_unit_test_docs_LDADD = libkvtest.la libkvctl.la
script_tests += tests/unit/test-docs.sh

# the daemon's plumbing
unit_tests += \
	tests/unit/test-attach \
	tests/unit/test-front \
	tests/unit/test-digest \
	tests/unit/test-hostmem \
	tests/unit/test-keeper \
	tests/unit/test-loop \
	tests/unit/test-packet \
	tests/unit/test-runtime-dir \
	tests/unit/test-settings
echo_core = tests/unit/echo-core.c tests/unit/echo-core.h
tests_unit_test_attach_SOURCES = tests/unit/test-attach.c $(echo_core)
tests_unit_test_attach_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_front_SOURCES = tests/unit/test-front.c $(echo_core)
tests_unit_test_front_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_keeper_SOURCES = tests/unit/test-keeper.c $(echo_core)
tests_unit_test_keeper_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_digest_SOURCES = tests/unit/test-digest.c
tests_unit_test_digest_LDADD = libkvtest.la libkvproto.la $(XXHASH_LIBS)
tests_unit_test_hostmem_SOURCES = tests/unit/test-hostmem.c
tests_unit_test_hostmem_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_loop_SOURCES = tests/unit/test-loop.c
tests_unit_test_loop_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_packet_SOURCES = tests/unit/test-packet.c
tests_unit_test_packet_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_runtime_dir_SOURCES = tests/unit/test-runtime-dir.c
tests_unit_test_runtime_dir_LDADD = libkvtest.la libkvdaemon.la
tests_unit_test_settings_SOURCES = tests/unit/test-settings.c
tests_unit_test_settings_LDADD = libkvtest.la libkvdaemon.la

# the disk tier
io_world = tests/unit/io-world.c tests/unit/io-world.h
unit_tests += tests/unit/test-io tests/unit/test-io-faults tests/unit/test-io-refused
tests_unit_test_io_SOURCES = tests/unit/test-io.c $(io_world)
tests_unit_test_io_LDADD = libkvtest.la libkvoffload.la
tests_unit_test_io_faults_SOURCES = tests/unit/test-io-faults.c $(io_world)
tests_unit_test_io_faults_LDADD = libkvtest.la libkvoffload.la
tests_unit_test_io_refused_SOURCES = tests/unit/test-io-refused.c $(io_world)
tests_unit_test_io_refused_CFLAGS = $(AM_CFLAGS) $(URING_CFLAGS)
tests_unit_test_io_refused_LDADD = libkvtest.la libkvoffload.la
tests_unit_test_io_refused_LDFLAGS = $(AM_LDFLAGS) \
	-Wl,--wrap=io_uring_submit -Wl,--wrap=io_uring_register_buffers_sparse \
	-Wl,--wrap=io_uring_register_files -Wl,--wrap=io_uring_register_files_update

# the library's control part
client_fake = tests/unit/client-fake.c tests/unit/client-fake.h
unit_tests += \
	tests/unit/test-client-attach \
	tests/unit/test-client-calls \
	tests/unit/test-client-jobs \
	tests/unit/test-client-life \
	tests/unit/test-client-options
tests_unit_test_client_attach_SOURCES = tests/unit/test-client-attach.c $(client_fake)
tests_unit_test_client_attach_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
tests_unit_test_client_calls_SOURCES = tests/unit/test-client-calls.c $(client_fake)
tests_unit_test_client_calls_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
tests_unit_test_client_jobs_SOURCES = tests/unit/test-client-jobs.c $(client_fake)
tests_unit_test_client_jobs_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
tests_unit_test_client_life_SOURCES = tests/unit/test-client-life.c $(client_fake)
tests_unit_test_client_life_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
tests_unit_test_client_options_SOURCES = tests/unit/test-client-options.c
tests_unit_test_client_options_LDADD = libkvtest.la libkvclient.la

# the storage formats
codec_room = \
	tests/unit/codec-room.c tests/unit/codec-room.h tests/unit/codec-rows.c tests/unit/codec-rows.h
unit_tests += tests/unit/test-codec tests/unit/test-codec-rules
tests_unit_test_codec_SOURCES = tests/unit/test-codec.c $(codec_room)
tests_unit_test_codec_LDADD = libkvtest.la libkvcompute.la libkvproto.la -lm
tests_unit_test_codec_rules_SOURCES = tests/unit/test-codec-rules.c $(codec_room)
tests_unit_test_codec_rules_LDADD = libkvtest.la libkvcompute.la libkvproto.la -lm

attend_rows = tests/unit/attend-rows.c tests/unit/attend-rows.h $(codec_room)
unit_tests += tests/unit/test-attend-kernels tests/unit/test-attend-softmax
tests_unit_test_attend_kernels_SOURCES = tests/unit/test-attend-kernels.c $(attend_rows)
tests_unit_test_attend_kernels_LDADD = libkvtest.la libkvcompute.la libkvproto.la -lm
tests_unit_test_attend_softmax_SOURCES = tests/unit/test-attend-softmax.c $(attend_rows)
tests_unit_test_attend_softmax_LDADD = libkvtest.la libkvcompute.la libkvproto.la -lm

# the programs that run sets of expected values
unit_tests += tests/unit/test-vectors
tests_unit_test_vectors_SOURCES = tests/unit/test-vectors.c
tests_unit_test_vectors_LDADD = libkvtest.la libkvcompute.la libkvproto.la
EXTRA_tests_unit_test_vectors_DEPENDENCIES = \
	tests/vectors/quant$(EXEEXT) tests/vectors/journal$(EXEEXT) tests/vectors/policy$(EXEEXT)

unit_tests += tests/unit/test-journal-wrong
tests_unit_test_journal_wrong_SOURCES = \
	tests/unit/test-journal-wrong.c tests/support/bare.c tests/support/bare.h
tests_unit_test_journal_wrong_LDADD = libkvtest.la libkvclient.la libkvdaemon.la

unit_tests += tests/unit/test-calls-absurd
tests_unit_test_calls_absurd_SOURCES = \
	tests/unit/test-calls-absurd.c tests/support/bare.c tests/support/bare.h
tests_unit_test_calls_absurd_LDADD = libkvtest.la libkvclient.la libkvdaemon.la

# journals and quantised storage, over bare memory
journal_world = \
	tests/unit/journal-world.c tests/unit/journal-world.h \
	tests/support/bare.c tests/support/bare.h
unit_tests += tests/unit/test-journal-cases
tests_unit_test_journal_cases_SOURCES = tests/unit/test-journal-cases.c $(journal_world)
tests_unit_test_journal_cases_LDADD = libkvtest.la libkvclient.la libkvdaemon.la -lm
unit_tests += tests/unit/test-journal-errors
tests_unit_test_journal_errors_SOURCES = tests/unit/test-journal-errors.c $(journal_world)
tests_unit_test_journal_errors_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
unit_tests += tests/unit/test-move
tests_unit_test_move_SOURCES = tests/unit/test-move.c $(journal_world)
tests_unit_test_move_LDADD = libkvtest.la libkvclient.la libkvdaemon.la

attend_world = tests/unit/attend-world.c tests/unit/attend-world.h $(journal_world)
unit_tests += tests/unit/test-attend
tests_unit_test_attend_SOURCES = tests/unit/test-attend.c $(attend_world)
tests_unit_test_attend_LDADD = libkvtest.la libkvclient.la libkvdaemon.la -lm

unit_tests += tests/unit/test-attend-slots
tests_unit_test_attend_slots_SOURCES = tests/unit/test-attend-slots.c $(attend_world)
tests_unit_test_attend_slots_LDADD = libkvtest.la libkvclient.la libkvdaemon.la -lm

unit_tests += tests/unit/test-workers
tests_unit_test_workers_SOURCES = tests/unit/test-workers.c
tests_unit_test_workers_LDADD = libkvtest.la libkvclient.la

# eviction policies over sequences
policy_cache = tests/unit/policy-cache.c tests/unit/policy-cache.h $(journal_world)
unit_tests += tests/unit/test-policy tests/unit/test-policy-attend
tests_unit_test_policy_attend_SOURCES = tests/unit/test-policy-attend.c $(policy_cache)
tests_unit_test_policy_attend_LDADD = libkvtest.la libkvclient.la libkvdaemon.la -lm
unit_tests += tests/unit/test-policy-misuse
tests_unit_test_policy_misuse_SOURCES = tests/unit/test-policy-misuse.c $(policy_cache)
tests_unit_test_policy_misuse_LDADD = libkvtest.la libkvclient.la libkvdaemon.la -lm
tests_unit_test_policy_SOURCES = tests/unit/test-policy.c $(policy_cache)
tests_unit_test_policy_LDADD = \
	libkvtest.la libkvexample.la libkvclient.la libkvdaemon.la -lm
policy_trace = \
	tests/vectors/policy_trace.c tests/vectors/policy_trace.h \
	tests/vectors/trace.c tests/vectors/trace.h
unit_tests += tests/unit/test-policy-traces
tests_unit_test_policy_traces_SOURCES = \
	tests/unit/test-policy-traces.c $(policy_trace) $(journal_world)
tests_unit_test_policy_traces_LDADD = \
	libkvtest.la libkvclient.la libkvdaemon.la $(XXHASH_LIBS) -lm

# the disk store
store_world = tests/unit/store-world.c tests/unit/store-world.h
store_wrapped = \
	-Wl,--wrap=calloc \
	-Wl,--wrap=fallocate \
	-Wl,--wrap=fdatasync \
	-Wl,--wrap=flock \
	-Wl,--wrap=fstat \
	-Wl,--wrap=fsync \
	-Wl,--wrap=ftruncate \
	-Wl,--wrap=malloc \
	-Wl,--wrap=mkdirat \
	-Wl,--wrap=openat \
	-Wl,--wrap=pread \
	-Wl,--wrap=pwrite \
	-Wl,--wrap=reallocarray \
	-Wl,--wrap=renameat \
	-Wl,--wrap=unlinkat
store_libs = libkvtest.la libkvoffload.la libkvproto.la
unit_tests += \
	tests/unit/test-store \
	tests/unit/test-store-damage \
	tests/unit/test-store-faults \
	tests/unit/test-store-full \
	tests/unit/test-store-golden \
	tests/unit/test-store-kill \
	tests/unit/test-store-model \
	tests/unit/test-store-open \
	tests/unit/test-store-saved
tests_unit_test_store_SOURCES = tests/unit/test-store.c $(store_world)
tests_unit_test_store_LDADD = $(store_libs)
tests_unit_test_store_damage_SOURCES = tests/unit/test-store-damage.c $(store_world)
tests_unit_test_store_damage_LDADD = $(store_libs)
tests_unit_test_store_faults_SOURCES = tests/unit/test-store-faults.c $(store_world)
tests_unit_test_store_faults_LDADD = $(store_libs)
tests_unit_test_store_faults_LDFLAGS = $(AM_LDFLAGS) $(store_wrapped)
tests_unit_test_store_full_SOURCES = tests/unit/test-store-full.c $(store_world)
tests_unit_test_store_full_LDADD = $(store_libs)
tests_unit_test_store_golden_SOURCES = tests/unit/test-store-golden.c $(store_world)
tests_unit_test_store_golden_LDADD = $(store_libs)
EXTRA_DIST += tests/data/store
tests_unit_test_store_kill_SOURCES = tests/unit/test-store-kill.c $(store_world)
tests_unit_test_store_kill_LDADD = $(store_libs)
tests_unit_test_store_model_SOURCES = tests/unit/test-store-model.c $(store_world)
tests_unit_test_store_model_LDADD = $(store_libs)
tests_unit_test_store_open_SOURCES = tests/unit/test-store-open.c $(store_world)
tests_unit_test_store_open_LDADD = $(store_libs)
tests_unit_test_store_saved_SOURCES = tests/unit/test-store-saved.c $(store_world)
tests_unit_test_store_saved_LDADD = $(store_libs)

check_PROGRAMS += $(unit_tests)
TESTS += $(unit_tests)
