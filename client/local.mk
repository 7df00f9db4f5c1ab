# libkvcache, the client library. libkvclient.la holds all of it, inner functions too: for tests
# and kvcachectl.
noinst_LTLIBRARIES += libkvclient.la

libkvclient_la_LIBADD = libkvpolicy.la libkvcompute.la libkvproto.la $(NANOMSG_LIBS)
libkvclient_la_SOURCES = client/kvcache.h

# data plane
libkvclient_la_SOURCES += \
	client/attend.c client/attend.h \
	client/attend_keys.c \
	client/attend_puts.c \
	client/attend_run.c \
	client/attend_walk.c \
	client/batch.h \
	client/begin.c \
	client/blocks.c \
	client/codecs.c client/codecs.h \
	client/commit.c \
	client/diff.c \
	client/digest.c \
	client/error.c client/error.h \
	client/fold.c \
	client/inplace.c client/inplace.h \
	client/journal.c client/journal.h \
	client/journal_check.c \
	client/journal_index.c \
	client/journal_store.c \
	client/journals.c \
	client/local.c \
	client/marks.c \
	client/own_page.c client/own_page.h \
	client/planes.c client/planes.h \
	client/policy.c client/policy.h \
	client/policy_log.c \
	client/policy_planes.c client/policy_planes.h \
	client/policy_step.c \
	client/quantisation_error.c \
	client/read.c client/read.h \
	client/replay.c \
	client/rollback.c client/rollback.h \
	client/scatter.c client/scatter.h \
	client/seq.c client/seq.h \
	client/session.h \
	client/slots.h \
	client/stream.c client/stream.h \
	client/update.c \
	client/view.c \
	client/workers.c client/workers.h \
	client/write.c

# pkg-config
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = client/kvcache.pc

# control part
libkvclient_la_SOURCES += \
	client/arenas.c client/arenas.h \
	client/attach.c client/attach.h \
	client/batch.c \
	client/clock.h \
	client/convert.c \
	client/handles.h \
	client/jobs.c client/jobs.h \
	client/layout.c client/layout.h \
	client/link.c client/link.h \
	client/open.h \
	client/options.c client/options.h \
	client/pins.c \
	client/reserve.c client/reserve.h \
	client/rpc.c client/rpc.h \
	client/saved.c \
	client/sequences.c \
	client/session.c \
	client/size.c \
	client/snapshots.c \
	client/verify.c \
	client/wait.c \
	client/wire.c client/wire.h \
	client/writers.c

# What is installed. The map names what it exports.
lib_LTLIBRARIES += libkvcache.la
libkvcache_la_SOURCES =
libkvcache_la_LIBADD = libkvclient.la
libkvcache_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 -no-undefined \
	-Wl,--version-script=$(srcdir)/client/libkvcache.map
libkvcache_la_DEPENDENCIES = libkvclient.la client/libkvcache.map
include_HEADERS += client/kvcache.h
EXTRA_DIST += client/libkvcache.map
