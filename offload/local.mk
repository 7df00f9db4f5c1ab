# The disk tier: I/O engines and the store. It knows proto/ and nothing of the daemon.
noinst_LTLIBRARIES += libkvoffload.la
libkvoffload_la_CFLAGS = $(AM_CFLAGS) $(URING_CFLAGS)
libkvoffload_la_LIBADD = libkvproto.la $(URING_LIBS)
libkvoffload_la_SOURCES = \
	offload/io.c offload/io.h \
	offload/io_common.h \
	offload/io_engine.h \
	offload/io_faults.h \
	offload/io_file.c \
	offload/io_open.c \
	offload/io_pool.c offload/io_pool.h \
	offload/io_states.c \
	offload/io_threads.c \
	offload/io_uring.c \
	offload/io_uring_memory.c offload/io_uring_memory.h \
	offload/store.h
if FAULT_INJECTION
libkvoffload_la_SOURCES += offload/io_faults.c
endif
