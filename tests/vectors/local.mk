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
