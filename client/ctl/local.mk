# kvcachectl, the operators' tool. libkvctl.la is all of it but main.c and the library's
# answers, so that tests run whole commands on hand-made answers.

noinst_LTLIBRARIES += libkvctl.la
libkvctl_la_SOURCES = \
	client/ctl/ask.c \
	client/ctl/bench_value.h \
	client/ctl/cmd_bench.c \
	client/ctl/cmd_bench_attend.c \
	client/ctl/cmd_convert.c \
	client/ctl/cmd_demo.c \
	client/ctl/cmd_diff.c \
	client/ctl/cmd_fold.c \
	client/ctl/cmd_fork.c \
	client/ctl/cmd_journal.c \
	client/ctl/cmd_ls.c \
	client/ctl/cmd_mark.c \
	client/ctl/cmd_replay.c \
	client/ctl/cmd_rm.c \
	client/ctl/cmd_rollback.c \
	client/ctl/cmd_save.c \
	client/ctl/cmd_saved.c \
	client/ctl/cmd_session.c \
	client/ctl/cmd_show.c \
	client/ctl/cmd_size.c \
	client/ctl/cmd_snapshot.c \
	client/ctl/cmd_status.c \
	client/ctl/cmd_store.c \
	client/ctl/cmd_tree.c \
	client/ctl/cmd_verify.c \
	client/ctl/commands.c \
	client/ctl/ctl.h \
	client/ctl/demo.h \
	client/ctl/demo_daemon.c \
	client/ctl/demo_disk.c \
	client/ctl/demo_evict.c \
	client/ctl/demo_journal.c \
	client/ctl/demo_json.c \
	client/ctl/demo_look.c \
	client/ctl/demo_print.c \
	client/ctl/demo_print_disk.c \
	client/ctl/demo_print_evict.c \
	client/ctl/demo_print_journal.c \
	client/ctl/demo_process.c \
	client/ctl/demo_role.c client/ctl/demo_role.h \
	client/ctl/disk.c client/ctl/disk.h \
	client/ctl/gauge.c client/ctl/gauge.h \
	client/ctl/geometry.c client/ctl/geometry.h \
	client/ctl/held.c client/ctl/held.h \
	client/ctl/help.c \
	client/ctl/job.c client/ctl/job.h \
	client/ctl/object.c client/ctl/object.h \
	client/ctl/options.c \
	client/ctl/plain_read.c client/ctl/plain_read.h \
	client/ctl/progress.c client/ctl/progress.h \
	client/ctl/table.c client/ctl/table.h \
	client/ctl/units.c client/ctl/units.h
libkvctl_la_CPPFLAGS = $(AM_CPPFLAGS) \
	-DCTL_SBINDIR='"$(sbindir)"' -DCTL_PKGDATADIR='"$(pkgdatadir)"'
libkvctl_la_LIBADD = libkvexample.la libkvclient.la libkvproto.la $(JANSSON_LIBS)

# What kvcachectl demo runs on, once it is installed.
modeldir = $(pkgdatadir)/model
model_DATA = \
	client/examples/model/kjv-draft.safetensors \
	client/examples/model/kjv-3m.safetensors \
	client/examples/model/prompt.txt \
	client/examples/model/tokenizer.txt

bin_PROGRAMS += kvcachectl
kvcachectl_SOURCES = client/ctl/main.c client/ctl/library.c
kvcachectl_LDADD = libkvctl.la

bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = client/ctl/completion/kvcachectl
