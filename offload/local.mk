# The disk tier: I/O engines and the store. It knows proto/ and nothing of the daemon.
noinst_LTLIBRARIES += libkvoffload.la
libkvoffload_la_CFLAGS = $(AM_CFLAGS) $(URING_CFLAGS)
libkvoffload_la_LIBADD = libkvproto.la $(URING_LIBS)
libkvoffload_la_SOURCES = \
	offload/images.c \
	offload/io.h \
	offload/saved.c \
	offload/saved_file.c offload/saved_file.h \
	offload/saved_load.c \
	offload/slots.c offload/slots.h \
	offload/slots_index.c \
	offload/store.c offload/store.h \
	offload/store_claims.c \
	offload/store_format.h \
	offload/store_impl.h \
	offload/store_open.c \
	offload/store_room.c \
	offload/whole_file.c offload/whole_file.h
