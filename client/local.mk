# libkvcache, the client library. libkvclient.la holds all of it, inner functions too: for tests
# and kvcachectl.
noinst_LTLIBRARIES += libkvclient.la

libkvclient_la_LIBADD = libkvproto.la $(NANOMSG_LIBS)
libkvclient_la_SOURCES = client/kvcache.h

# data plane
libkvclient_la_SOURCES += \
	client/append.c \
	client/batch.h \
	client/blocks.c \
	client/digest.c \
	client/error.c client/error.h \
	client/local.c \
	client/rollback.c \
	client/seq.c client/seq.h \
	client/session.h \
	client/update.c \
	client/view.c

# pkg-config
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = client/kvcache.pc
