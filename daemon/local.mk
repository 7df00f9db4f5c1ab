# The daemon: libkvdaemon.la holds all of it but main.c, so that tests link what ships.
noinst_LTLIBRARIES += libkvdaemon.la

libkvdaemon_la_LIBADD = libkvoffload.la libkvproto.la $(NANOMSG_LIBS) $(INIH_LIBS) $(SYSTEMD_LIBS)
libkvdaemon_la_SOURCES =

sbin_PROGRAMS += kvcached
kvcached_SOURCES = daemon/main.c
kvcached_LDADD = libkvdaemon.la

# commit protocol, core's side
libkvdaemon_la_SOURCES += \
	daemon/hold.c daemon/hold.h \
	daemon/segment.c daemon/segment.h \
	daemon/segment_place.c

# plumbing: processes, loop, links, sockets, settings
libkvdaemon_la_SOURCES += \
	daemon/attach.c daemon/attach.h \
	daemon/child.c daemon/child.h \
	daemon/core.c daemon/core.h \
	daemon/front.c daemon/front.h \
	daemon/front_link.c daemon/front_link.h \
	daemon/hostmem.c daemon/hostmem.h \
	daemon/keeper.c daemon/keeper.h \
	daemon/keeper_link.c daemon/keeper_link.h \
	daemon/keeper_wire.h \
	daemon/kept.c daemon/kept.h \
	daemon/log.c daemon/log.h \
	daemon/loop.c daemon/loop.h \
	daemon/notify.h \
	daemon/options.c daemon/options.h \
	daemon/packet.c daemon/packet.h \
	daemon/pidfd.c daemon/pidfd.h \
	daemon/runtime_dir.c daemon/runtime_dir.h \
	daemon/sealed.c daemon/sealed.h \
	daemon/settings.c daemon/settings.h
if HAVE_SYSTEMD
libkvdaemon_la_SOURCES += daemon/notify-systemd.c
else
libkvdaemon_la_SOURCES += daemon/notify-none.c
endif

# For systemd: the unit, its user, its runtime folder.
daemon/kvcached.service: daemon/kvcached.service.in Makefile
	$(AM_V_GEN)$(MKDIR_P) daemon && \
		$(SED) -e 's|[@]sbindir@|$(sbindir)|g' -e 's|[@]sysconfdir@|$(sysconfdir)|g' \
			$(srcdir)/daemon/kvcached.service.in >$@
noinst_DATA += daemon/kvcached.service
CLEANFILES += daemon/kvcached.service
EXTRA_DIST += \
	daemon/kvcached.conf \
	daemon/kvcached.service.in \
	daemon/sysusers.d/kvcached.conf \
	daemon/tmpfiles.d/kvcached.conf

# The settings of the system service: one that is there already is the operator's.
install-data-hook:
	$(MKDIR_P) '$(DESTDIR)$(sysconfdir)'
	test -e '$(DESTDIR)$(sysconfdir)/kvcached.conf' || \
		$(INSTALL_DATA) $(srcdir)/daemon/kvcached.conf '$(DESTDIR)$(sysconfdir)'
uninstall-hook:
	! cmp -s $(srcdir)/daemon/kvcached.conf '$(DESTDIR)$(sysconfdir)/kvcached.conf' || \
		rm -f '$(DESTDIR)$(sysconfdir)/kvcached.conf'

if INSTALL_UNITS
systemdsystemunit_DATA = daemon/kvcached.service
sysusersdir = $(prefix)/lib/sysusers.d
sysusers_DATA = daemon/sysusers.d/kvcached.conf
tmpfilesdir = $(prefix)/lib/tmpfiles.d
tmpfiles_DATA = daemon/tmpfiles.d/kvcached.conf
endif

# state of the core
libkvdaemon_la_SOURCES += \
	daemon/arena.c daemon/arena.h \
	daemon/arena_memory.c \
	daemon/arena_store.c daemon/arena_store.h \
	daemon/catalogue.c daemon/catalogue.h \
	daemon/catalogue_format.h \
	daemon/command.h \
	daemon/command_help.c \
	daemon/commands_basic.c \
	daemon/commands_blocks.c \
	daemon/commands_listing.c \
	daemon/commands_rollback.c \
	daemon/commands_sequences.c \
	daemon/commands_snapshots.c \
	daemon/digest_rest.c daemon/digest_rest.h \
	daemon/dispatch.c \
	daemon/events.c daemon/events.h \
	daemon/farewell.c \
	daemon/holds.c \
	daemon/idlist.c daemon/idlist.h \
	daemon/block_digest.c daemon/block_digest.h \
	daemon/disk.c daemon/disk.h \
	daemon/image.c daemon/image.h \
	daemon/job_check.c \
	daemon/job_load.c \
	daemon/job_save.c \
	daemon/job_verify.c \
	daemon/save.h daemon/save_images.c \
	daemon/saved_state.c daemon/saved_state.h \
	daemon/commands_saved.c \
	daemon/jobs.c daemon/jobs.h \
	daemon/leave.c daemon/leave.h \
	daemon/live.c daemon/live.h \
	daemon/locker.c daemon/locker.h \
	daemon/locker_run.c daemon/locker_wire.h \
	daemon/names.c daemon/names.h \
	daemon/objects.c daemon/objects.h \
	daemon/overdraft.c daemon/overdraft.h \
	daemon/place_reply.c daemon/place_reply.h \
	daemon/places.c \
	daemon/pool.c daemon/pool.h \
	daemon/recover.c daemon/recover.h \
	daemon/recover_rows.c daemon/recover_rows.h \
	daemon/requests.c daemon/requests.h \
	daemon/session.c daemon/session.h \
	daemon/session_attach.c \
	daemon/session_pins.c \
	daemon/session_watch.c \
	daemon/settle.c daemon/settle.h \
	daemon/source.c daemon/source.h \
	daemon/state.c daemon/state.h \
	daemon/state_dump.c \
	daemon/state_load.c \
	daemon/state_log.c daemon/state_log.h \
	daemon/state_records.c daemon/state_records.h
