# libkvcompute.la: arithmetic on vectors of K and V; today the codecs of the storage formats. It
# uses libkvproto, which whoever links it has too. Stored bytes are the same everywhere, so
# products and sums are never fused.

noinst_LTLIBRARIES += libkvcompute.la
compute_cflags = $(AM_CFLAGS) -ffp-contract=off -fno-math-errno

libkvcompute_la_CFLAGS = $(compute_cflags)
libkvcompute_la_LIBADD = -lm
libkvcompute_la_SOURCES = \
	client/compute/arithmetic.h \
	client/compute/codec.c client/compute/codec.h \
	client/compute/convert.h \
	client/compute/error.c \
	client/compute/fpmode.h \
	client/compute/kernels.h \
	client/compute/kernels_portable.c \
	client/compute/scalar.c
