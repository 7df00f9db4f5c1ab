# Programs that run sets of expected values: tests/vectors/NAME FOLDER prints what is wrong and ends
# with the line "N passed, N failed".

check_PROGRAMS += tests/vectors/quant
tests_vectors_quant_SOURCES = \
	tests/vectors/quant.c \
	tests/vectors/quant.h \
	tests/vectors/quant_special.c
tests_vectors_quant_LDADD = libkvcompute.la libkvexample.la -lm
EXTRA_DIST += \
	tests/data/quant/ORIGIN \
	tests/data/quant/cases.tsv \
	tests/data/quant/quant.safetensors \
	tests/data/quant/special.safetensors

check_PROGRAMS += tests/vectors/journal
tests_vectors_journal_SOURCES = \
	tests/support/bare.c \
	tests/support/bare.h \
	tests/vectors/journal.c \
	tests/vectors/journal.h \
	tests/vectors/journal_overlay.c \
	tests/vectors/journal_undo.c \
	tests/vectors/trace.c \
	tests/vectors/trace.h
tests_vectors_journal_LDADD = libkvclient.la libkvdaemon.la $(XXHASH_LIBS)
EXTRA_DIST += tests/data/journal

check_PROGRAMS += tests/vectors/policy
tests_vectors_policy_SOURCES = \
	tests/vectors/policy.c \
	tests/vectors/policy_trace.c \
	tests/vectors/policy_trace.h \
	tests/vectors/trace.c \
	tests/vectors/trace.h
tests_vectors_policy_LDADD = libkvpolicy.la $(XXHASH_LIBS) -lm
EXTRA_DIST += tests/data/policy
