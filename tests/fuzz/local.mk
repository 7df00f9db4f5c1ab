# Fuzz targets. A target is one file, fuzz-NAME.c, with LLVMFuzzerTestOneInput;
# its seeds are the files of seeds/NAME/. It is built twice: with seeds-main.c as
# an ordinary test that runs each seed, whole, cut and damaged, and, with
# --enable-fuzzer (clang), by libFuzzer. For each NAME:
#	fuzz_seed_tests += tests/fuzz/seeds-NAME
#	tests_fuzz_seeds_NAME_SOURCES = tests/fuzz/fuzz-NAME.c $(fuzz_seeds_main)
#	tests_fuzz_seeds_NAME_LDADD = libkvtest.la ...
#	fuzz_targets += tests/fuzz/fuzz-NAME
#	tests_fuzz_fuzz_NAME_SOURCES = tests/fuzz/fuzz-NAME.c
#	tests_fuzz_fuzz_NAME_LDADD = ...
#	tests_fuzz_fuzz_NAME_LDFLAGS = $(fuzz_ldflags)
#	EXTRA_DIST += tests/fuzz/seeds/NAME

fuzz_seeds_main = tests/fuzz/seeds-main.c tests/fuzz/target.h
fuzz_quiet_log = tests/fuzz/quiet_log.c
fuzz_ldflags = $(AM_LDFLAGS) $(KV_FUZZ_LDFLAGS)
fuzz_seed_tests =
fuzz_targets =

fuzz_seed_tests += tests/fuzz/seeds-safetensors
tests_fuzz_seeds_safetensors_SOURCES = tests/fuzz/fuzz-safetensors.c $(fuzz_seeds_main)
tests_fuzz_seeds_safetensors_LDADD = libkvtest.la libkvexample.la
fuzz_targets += tests/fuzz/fuzz-safetensors
tests_fuzz_fuzz_safetensors_SOURCES = tests/fuzz/fuzz-safetensors.c
tests_fuzz_fuzz_safetensors_LDADD = libkvexample.la
tests_fuzz_fuzz_safetensors_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/safetensors

check_PROGRAMS += $(fuzz_seed_tests)
TESTS += $(fuzz_seed_tests)
EXTRA_PROGRAMS += $(fuzz_targets)


# All targets together take FUZZ_SECONDS.
FUZZ_SECONDS = 60
if ENABLE_FUZZER
fuzz: $(BUILT_SOURCES)
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(fuzz_targets)
	$(AM_V_at)$(srcdir)/scripts/fuzz $(FUZZ_SECONDS) $(srcdir)/tests/fuzz/seeds $(fuzz_targets)
else
fuzz:
	@echo 'make fuzz needs configure CC=clang --enable-fuzzer' >&2; exit 1
endif
.PHONY: fuzz
dist_noinst_SCRIPTS += scripts/fuzz

fuzz_seed_tests += tests/fuzz/seeds-layout
tests_fuzz_seeds_layout_SOURCES = tests/fuzz/fuzz-layout.c $(fuzz_seeds_main)
tests_fuzz_seeds_layout_LDADD = libkvtest.la libkvproto.la
fuzz_targets += tests/fuzz/fuzz-layout
tests_fuzz_fuzz_layout_SOURCES = tests/fuzz/fuzz-layout.c
tests_fuzz_fuzz_layout_LDADD = libkvproto.la
tests_fuzz_fuzz_layout_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/layout

# the daemon's plumbing
fuzz_seed_tests += tests/fuzz/seeds-attach tests/fuzz/seeds-front-frame tests/fuzz/seeds-settings
tests_fuzz_seeds_attach_SOURCES = tests/fuzz/fuzz-attach.c $(fuzz_seeds_main)
tests_fuzz_seeds_attach_LDADD = libkvtest.la libkvdaemon.la
tests_fuzz_seeds_front_frame_SOURCES = tests/fuzz/fuzz-front-frame.c $(fuzz_seeds_main)
tests_fuzz_seeds_front_frame_LDADD = libkvtest.la libkvdaemon.la
tests_fuzz_seeds_settings_SOURCES = tests/fuzz/fuzz-settings.c $(fuzz_seeds_main)
tests_fuzz_seeds_settings_LDADD = libkvtest.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-attach tests/fuzz/fuzz-front-frame tests/fuzz/fuzz-settings
tests_fuzz_fuzz_attach_SOURCES = tests/fuzz/fuzz-attach.c
tests_fuzz_fuzz_attach_LDADD = libkvdaemon.la
tests_fuzz_fuzz_attach_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_front_frame_SOURCES = tests/fuzz/fuzz-front-frame.c
tests_fuzz_fuzz_front_frame_LDADD = libkvdaemon.la
tests_fuzz_fuzz_front_frame_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_settings_SOURCES = tests/fuzz/fuzz-settings.c
tests_fuzz_fuzz_settings_LDADD = libkvdaemon.la
tests_fuzz_fuzz_settings_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/attach tests/fuzz/seeds/front-frame tests/fuzz/seeds/settings

# the core behind the plumbing
fuzz_seed_tests += tests/fuzz/seeds-request
tests_fuzz_seeds_request_SOURCES = tests/fuzz/fuzz-request.c $(fuzz_seeds_main) $(fake_links)
tests_fuzz_seeds_request_LDADD = libkvtest.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-request
tests_fuzz_fuzz_request_SOURCES = tests/fuzz/fuzz-request.c $(fake_links)
tests_fuzz_fuzz_request_LDADD = libkvtest.la libkvdaemon.la
tests_fuzz_fuzz_request_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/request

# the core with something in it: several sessions, restarts
fuzz_world = tests/fuzz/world.c tests/fuzz/world.h tests/support/craft.c tests/support/craft.h $(fake_links)
fuzz_seed_tests += tests/fuzz/seeds-sessions
tests_fuzz_seeds_sessions_SOURCES = tests/fuzz/fuzz-sessions.c $(fuzz_world) $(fuzz_seeds_main)
tests_fuzz_seeds_sessions_LDADD = libkvtest.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-sessions
tests_fuzz_fuzz_sessions_SOURCES = tests/fuzz/fuzz-sessions.c $(fuzz_world)
tests_fuzz_fuzz_sessions_LDADD = libkvtest.la libkvdaemon.la
tests_fuzz_fuzz_sessions_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/sessions

# the core: what it finds in control segments
fuzz_seed_tests += tests/fuzz/seeds-segment
fuzz_bare = tests/support/bare.c tests/support/bare.h
tests_fuzz_seeds_segment_SOURCES = tests/fuzz/fuzz-segment.c $(fuzz_bare) $(fuzz_seeds_main)
tests_fuzz_seeds_segment_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-segment
tests_fuzz_fuzz_segment_SOURCES = tests/fuzz/fuzz-segment.c $(fuzz_bare)
tests_fuzz_fuzz_segment_LDADD = libkvclient.la libkvdaemon.la
tests_fuzz_fuzz_segment_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/segment

# the core: what it finds in its catalogue
fuzz_seed_tests += tests/fuzz/seeds-catalogue
tests_fuzz_seeds_catalogue_SOURCES = tests/fuzz/fuzz-catalogue.c $(fuzz_quiet_log) \
	$(fuzz_world) $(fuzz_seeds_main)
tests_fuzz_seeds_catalogue_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
fuzz_targets += tests/fuzz/fuzz-catalogue
tests_fuzz_fuzz_catalogue_SOURCES = tests/fuzz/fuzz-catalogue.c $(fuzz_quiet_log) $(fuzz_world)
tests_fuzz_fuzz_catalogue_LDADD = libkvtest.la libkvdaemon.la $(XXHASH_LIBS)
tests_fuzz_fuzz_catalogue_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/catalogue

# the library: what it is answered
fuzz_seed_tests += tests/fuzz/seeds-reply
tests_fuzz_seeds_reply_SOURCES = tests/fuzz/fuzz-reply.c $(fuzz_seeds_main)
tests_fuzz_seeds_reply_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-reply
tests_fuzz_fuzz_reply_SOURCES = tests/fuzz/fuzz-reply.c
tests_fuzz_fuzz_reply_LDADD = libkvclient.la libkvdaemon.la
tests_fuzz_fuzz_reply_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/reply
fuzz_seed_tests += tests/fuzz/seeds-attach-reply
tests_fuzz_seeds_attach_reply_SOURCES = tests/fuzz/fuzz-attach-reply.c $(fuzz_seeds_main)
tests_fuzz_seeds_attach_reply_LDADD = libkvtest.la libkvclient.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-attach-reply
tests_fuzz_fuzz_attach_reply_SOURCES = tests/fuzz/fuzz-attach-reply.c
tests_fuzz_fuzz_attach_reply_LDADD = libkvclient.la libkvdaemon.la
tests_fuzz_fuzz_attach_reply_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/attach-reply

# the example's other files
fuzz_seed_tests += tests/fuzz/seeds-prompt
tests_fuzz_seeds_prompt_SOURCES = tests/fuzz/fuzz-prompt.c $(fuzz_seeds_main)
tests_fuzz_seeds_prompt_LDADD = libkvtest.la libkvexample.la
fuzz_targets += tests/fuzz/fuzz-prompt
tests_fuzz_fuzz_prompt_SOURCES = tests/fuzz/fuzz-prompt.c
tests_fuzz_fuzz_prompt_LDADD = libkvexample.la
tests_fuzz_fuzz_prompt_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/prompt

# the core: undo rows of the dead
fuzz_seed_tests += tests/fuzz/seeds-undo-rows
fuzz_craft = tests/support/craft.c tests/support/craft.h $(fake_links)
tests_fuzz_seeds_undo_rows_SOURCES = tests/fuzz/fuzz-undo-rows.c $(fuzz_quiet_log) \
	$(fuzz_craft) $(fuzz_seeds_main)
tests_fuzz_seeds_undo_rows_LDADD = libkvtest.la libkvdaemon.la
fuzz_targets += tests/fuzz/fuzz-undo-rows
tests_fuzz_fuzz_undo_rows_SOURCES = tests/fuzz/fuzz-undo-rows.c $(fuzz_quiet_log) $(fuzz_craft)
tests_fuzz_fuzz_undo_rows_LDADD = libkvtest.la libkvdaemon.la
tests_fuzz_fuzz_undo_rows_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/undo-rows

# the disk store: what it finds in its folder
fuzz_store = tests/fuzz/store_folder.c tests/fuzz/store_folder.h
fuzz_store_libs = libkvtest.la libkvoffload.la libkvproto.la
fuzz_seed_tests += tests/fuzz/seeds-store-index tests/fuzz/seeds-saved
tests_fuzz_seeds_store_index_SOURCES = tests/fuzz/fuzz-store-index.c $(fuzz_store) \
	$(fuzz_seeds_main)
tests_fuzz_seeds_store_index_LDADD = $(fuzz_store_libs)
tests_fuzz_seeds_saved_SOURCES = tests/fuzz/fuzz-saved.c $(fuzz_store) $(fuzz_seeds_main)
tests_fuzz_seeds_saved_LDADD = $(fuzz_store_libs)
fuzz_targets += tests/fuzz/fuzz-store-index tests/fuzz/fuzz-saved
tests_fuzz_fuzz_store_index_SOURCES = tests/fuzz/fuzz-store-index.c $(fuzz_store)
tests_fuzz_fuzz_store_index_LDADD = $(fuzz_store_libs)
tests_fuzz_fuzz_store_index_LDFLAGS = $(fuzz_ldflags)
tests_fuzz_fuzz_saved_SOURCES = tests/fuzz/fuzz-saved.c $(fuzz_store)
tests_fuzz_fuzz_saved_LDADD = $(fuzz_store_libs)
tests_fuzz_fuzz_saved_LDFLAGS = $(fuzz_ldflags)
EXTRA_DIST += tests/fuzz/seeds/store-index tests/fuzz/seeds/saved
