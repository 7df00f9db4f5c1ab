# The disk tier: I/O engines and the store. It knows proto/ and nothing of the daemon.
noinst_LTLIBRARIES += libkvoffload.la
libkvoffload_la_CFLAGS = $(AM_CFLAGS) $(URING_CFLAGS)
libkvoffload_la_LIBADD = libkvproto.la $(URING_LIBS)
libkvoffload_la_SOURCES = \
	offload/io.h \
	offload/store.h
