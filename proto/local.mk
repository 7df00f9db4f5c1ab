# The contract: libkvproto.la holds what daemon and client must agree on (messages, control
# segment, layouts, digests, statuses). The code that protoc-c makes is no business of our
# warnings, so it is a library of its own, linked in here.
noinst_LTLIBRARIES += libkvwire.la libkvproto.la

proto/kvcache.pb-c.h: proto/kvcache.pb-c.c
proto/kvcache.pb-c.c: proto/kvcache.proto
	$(AM_V_GEN)$(MKDIR_P) proto && \
		$(PROTOC_C) --proto_path=$(srcdir) --c_out=. proto/kvcache.proto

proto/saved.pb-c.h: proto/saved.pb-c.c
proto/saved.pb-c.c: proto/saved.proto proto/kvcache.proto
	$(AM_V_GEN)$(MKDIR_P) proto && \
		$(PROTOC_C) --proto_path=$(srcdir) --c_out=. proto/saved.proto

wire_sources = \
	proto/kvcache.pb-c.c proto/kvcache.pb-c.h \
	proto/saved.pb-c.c proto/saved.pb-c.h
BUILT_SOURCES += $(wire_sources)
CLEANFILES += $(wire_sources)
EXTRA_DIST += proto/kvcache.proto proto/saved.proto

libkvwire_la_CFLAGS = $(KV_CFLAGS) $(PROTOBUF_C_CFLAGS) -w
nodist_libkvwire_la_SOURCES = $(wire_sources)
libkvwire_la_LIBADD = $(PROTOBUF_C_LIBS)

libkvproto_la_SOURCES = \
	proto/commit.h \
	proto/digest.c proto/digest.h \
	proto/digest_wide.h \
	proto/errbuf.c proto/errbuf.h \
	proto/fault.c proto/fault.h \
	proto/format.c proto/format.h \
	proto/journal.c proto/journal.h \
	proto/layout.c proto/layout.h \
	proto/layout_derive.c \
	proto/layout_hash.c \
	proto/layout_wire.c proto/layout_wire.h \
	proto/limits.h \
	proto/runtime.c proto/runtime.h \
	proto/shm.h \
	proto/status.c proto/status.h
libkvproto_la_LIBADD = libkvwire.la $(PROTOBUF_C_LIBS) $(SODIUM_LIBS) $(XXHASH_LIBS)

# Digests with the instructions of the processor.
if HAVE_X86_64
noinst_LTLIBRARIES += libkvdigest_avx2.la
libkvdigest_avx2_la_CFLAGS = $(AM_CFLAGS) -mavx2
libkvdigest_avx2_la_SOURCES = proto/digest_avx2.c
libkvproto_la_SOURCES += proto/digest_x86.c
libkvproto_la_LIBADD += libkvdigest_avx2.la
else
libkvproto_la_SOURCES += proto/digest_portable.c
endif
