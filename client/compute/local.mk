# libkvcompute.la: arithmetic on vectors of K and V; the codecs of the storage formats, and
# attention over what they store. It uses libkvproto, which whoever links it has too. Stored bytes
# and results are the same everywhere, so products and sums are fused only where the code says so.
#
# Each set of kernels is a library of its own with the flags of its instructions; one of
# kernels_x86.c and kernels_portable.c lists those that there are.

noinst_LTLIBRARIES += libkvcompute.la
compute_cflags = $(AM_CFLAGS) -ffp-contract=off -fno-math-errno

libkvcompute_la_CFLAGS = $(compute_cflags)
libkvcompute_la_LIBADD = -lm
libkvcompute_la_SOURCES = \
	client/compute/arithmetic.h \
	client/compute/attend.c client/compute/attend.h \
	client/compute/attend_exp.h \
	client/compute/attend_scalar.c \
	client/compute/attend_sums.c client/compute/attend_sums.h \
	client/compute/carve.h \
	client/compute/codec.c client/compute/codec.h \
	client/compute/convert.h \
	client/compute/error.c \
	client/compute/fpmode.h \
	client/compute/kernels.h \
	client/compute/scalar.c \
	client/compute/vector.h \
	client/compute/x86.h

if HAVE_X86_64
noinst_LTLIBRARIES += libkvcompute_avx2.la libkvcompute_avx512.la libkvcompute_fma.la
libkvcompute_avx2_la_CFLAGS = $(compute_cflags) -mavx2 -mf16c
libkvcompute_avx2_la_SOURCES = client/compute/avx2.c
libkvcompute_avx512_la_CFLAGS = $(compute_cflags) -mavx2 -mf16c -mavx512f
libkvcompute_avx512_la_SOURCES = client/compute/avx512.c
libkvcompute_fma_la_CFLAGS = $(compute_cflags) -mavx2 -mf16c -mfma
libkvcompute_fma_la_SOURCES = \
	client/compute/attend_avx2.c client/compute/attend_avx2.h \
	client/compute/attend_many_avx2.h client/compute/attend_mix_avx2.h \
	client/compute/attend_scores_avx2.h \
	client/compute/attend_softmax_avx2.c
libkvcompute_la_SOURCES += client/compute/kernels_x86.c
libkvcompute_la_LIBADD += libkvcompute_avx2.la libkvcompute_avx512.la libkvcompute_fma.la
else
libkvcompute_la_SOURCES += client/compute/kernels_portable.c
endif
