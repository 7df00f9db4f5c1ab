# The disk tier: I/O engines and the store. It knows proto/ and nothing of the daemon.
noinst_LTLIBRARIES += libkvoffload.la
libkvoffload_la_CFLAGS = $(AM_CFLAGS) $(URING_CFLAGS)
libkvoffload_la_LIBADD = libkvproto.la $(URING_LIBS)
libkvoffload_la_SOURCES =

# I/O engines
libkvoffload_la_SOURCES += \
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
	offload/io_uring_memory.c offload/io_uring_memory.h
if FAULT_INJECTION
libkvoffload_la_SOURCES += offload/io_faults.c
endif

# the store
libkvoffload_la_SOURCES += \
	offload/images.c \
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
