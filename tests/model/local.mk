# The commit protocol as a model, run by random interleavings (head of protocol_sim.py).

script_tests += tests/model/protocol_sim.py
EXTRA_DIST += \
	tests/model/client.py \
	tests/model/core.py \
	tests/model/memory.py \
	tests/model/parts.py \
	tests/model/reader.py \
	tests/model/replay.py \
	tests/model/rules.py \
	tests/model/scenarios.py \
	tests/model/serve.py \
	tests/model/shared.py \
	tests/model/steps.py \
	tests/model/truth.py \
	tests/model/undo.py \
	tests/model/world.py

# The data plane against a shadow (head of mc.h): thousands of steps as a test, any number by hand.
model_check_sources = \
	tests/model/mc.h \
	tests/model/mc_attend.c \
	tests/model/mc_back.c \
	tests/model/mc_compare.c \
	tests/model/mc_core.c \
	tests/model/mc_options.c tests/model/mc_options.h \
	tests/model/mc_plan.h \
	tests/model/mc_recover.c \
	tests/model/mc_replay.c \
	tests/model/mc_scatter.c \
	tests/model/mc_shadow.c \
	tests/model/mc_sums.c tests/model/mc_sums.h \
	tests/model/mc_update.c \
	tests/model/mc_values.c \
	tests/model/mc_world.c \
	tests/support/bare.c \
	tests/support/bare.h
check_PROGRAMS += tests/model/model-check
tests_model_model_check_SOURCES = tests/model/model-check.c $(model_check_sources)
tests_model_model_check_LDADD = libkvclient.la libkvdaemon.la $(XXHASH_LIBS) -lm
TESTS += tests/model/model-check

# Policies and attention against the policies on plain arrays (head of pw.h).
check_PROGRAMS += tests/model/policy-check
tests_model_policy_check_SOURCES = \
	tests/model/policy-check.c \
	tests/model/pw.h \
	tests/model/pw_attend.c \
	tests/model/pw_back.c \
	tests/model/pw_compare.c \
	tests/model/pw_own.c \
	tests/model/pw_shadow.c \
	tests/model/pw_share.c \
	tests/model/pw_update.c \
	tests/model/pw_world.c \
	$(model_check_sources)
tests_model_policy_check_LDADD = libkvclient.la libkvdaemon.la $(XXHASH_LIBS) -lm
TESTS += tests/model/policy-check
