# libkvcache, the client library. libkvclient.la holds all of it, inner functions too: for tests
# and kvcachectl.
noinst_LTLIBRARIES += libkvclient.la

libkvclient_la_LIBADD = libkvproto.la $(NANOMSG_LIBS)
libkvclient_la_SOURCES = client/kvcache.h

# data plane
libkvclient_la_SOURCES += \
	client/error.c client/error.h \
	client/batch.h client/seq.h client/session.h

# pkg-config
pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = client/kvcache.pc
