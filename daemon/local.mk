# The daemon: libkvdaemon.la holds all of it but main.c, so that tests link what ships.
noinst_LTLIBRARIES += libkvdaemon.la

libkvdaemon_la_LIBADD = libkvproto.la $(NANOMSG_LIBS) $(INIH_LIBS) $(SYSTEMD_LIBS)
libkvdaemon_la_SOURCES =

# commit protocol, core's side
libkvdaemon_la_SOURCES += \
	daemon/hold.c daemon/hold.h \
	daemon/segment.c daemon/segment.h

# plumbing: processes, loop, links, sockets, settings
libkvdaemon_la_SOURCES += \
	daemon/attach.h \
	daemon/core.h \
	daemon/front_link.h \
	daemon/keeper_link.h \
	daemon/log.h \
	daemon/loop.h \
	daemon/pidfd.h \
	daemon/settings.h
