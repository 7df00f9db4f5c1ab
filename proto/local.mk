# The contract: libkvproto.la holds what daemon and client must agree on
# (messages, shared-memory layout, layout hash, status table), and the code
# that protoc-c makes from kvcache.proto. Generated code is no business of our
# warnings, so it is a library of its own, linked in here.
#
# When proto/kvcache.proto lands:
#
# noinst_LTLIBRARIES += libkvpb.la libkvproto.la
#
# proto/kvcache.pb-c.h: proto/kvcache.pb-c.c
# proto/kvcache.pb-c.c: proto/kvcache.proto
#	$(AM_V_GEN)$(MKDIR_P) proto && \
#		$(PROTOC_C) --proto_path=$(srcdir) --c_out=. $(srcdir)/proto/kvcache.proto
#
# BUILT_SOURCES += proto/kvcache.pb-c.c proto/kvcache.pb-c.h
# CLEANFILES += proto/kvcache.pb-c.c proto/kvcache.pb-c.h
# EXTRA_DIST += proto/kvcache.proto
#
# libkvpb_la_CFLAGS = $(KV_CFLAGS) $(PROTOBUF_C_CFLAGS) -w
# nodist_libkvpb_la_SOURCES = proto/kvcache.pb-c.c proto/kvcache.pb-c.h
# libkvpb_la_LIBADD = $(PROTOBUF_C_LIBS)
#
# libkvproto_la_SOURCES = proto/... (every .c and .h of this folder)
# libkvproto_la_LIBADD = libkvpb.la $(PROTOBUF_C_LIBS) $(SODIUM_LIBS) $(XXHASH_LIBS)
