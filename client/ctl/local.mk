# kvcachectl, the operators' tool. libkvctl.la is all of it but main.c and the library's
# answers, so that tests run whole commands on hand-made answers.

noinst_LTLIBRARIES += libkvctl.la
libkvctl_la_SOURCES = \
	client/ctl/ask.c \
	client/ctl/cmd_fork.c \
	client/ctl/cmd_ls.c \
	client/ctl/cmd_rm.c \
	client/ctl/cmd_rollback.c \
	client/ctl/cmd_session.c \
	client/ctl/cmd_show.c \
	client/ctl/cmd_snapshot.c \
	client/ctl/cmd_status.c \
	client/ctl/cmd_tree.c \
	client/ctl/cmd_verify.c \
	client/ctl/commands.c \
	client/ctl/ctl.h \
	client/ctl/help.c \
	client/ctl/object.c client/ctl/object.h \
	client/ctl/options.c \
	client/ctl/table.c client/ctl/table.h \
	client/ctl/units.c client/ctl/units.h
libkvctl_la_LIBADD = libkvproto.la $(JANSSON_LIBS)

bin_PROGRAMS += kvcachectl
kvcachectl_SOURCES = client/ctl/main.c client/ctl/library.c
kvcachectl_LDADD = libkvctl.la libkvclient.la

bashcompletiondir = $(datadir)/bash-completion/completions
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(bashcompletiondir)'
	$(INSTALL_DATA) $(srcdir)/client/ctl/kvcachectl.bash \
		'$(DESTDIR)$(bashcompletiondir)/kvcachectl'
uninstall-local:
	rm -f '$(DESTDIR)$(bashcompletiondir)/kvcachectl'
EXTRA_DIST += client/ctl/kvcachectl.bash
