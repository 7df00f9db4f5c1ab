# kvcbench, built and run by make bench; BENCH_JSON=FILE also writes a JSON list.

EXTRA_PROGRAMS += tests/bench/kvcbench
tests_bench_kvcbench_SOURCES = \
	client/ctl/plain_read.c client/ctl/plain_read.h \
	tests/bench/attend.c tests/bench/attend.h \
	tests/bench/attend_cases.c \
	tests/bench/attend_formats.c \
	tests/bench/attend_peak.c \
	tests/bench/attend_prefill.c \
	tests/bench/bench.h \
	tests/bench/cache.c \
	tests/bench/calls.c \
	tests/bench/commands.c \
	tests/bench/copy.c \
	tests/bench/data.c \
	tests/bench/disk.c \
	tests/bench/echo.c \
	tests/bench/fio.c tests/bench/fio.h \
	tests/bench/flat.c \
	tests/bench/fold.c \
	tests/bench/group.h \
	tests/bench/h2o.c \
	tests/bench/io.c \
	tests/bench/kvcbench.c \
	tests/bench/local.c \
	tests/bench/matrix.c tests/bench/matrix.h \
	tests/bench/measure.c \
	tests/bench/memory.c \
	tests/bench/meter.c \
	tests/bench/open.c \
	tests/bench/process.c \
	tests/bench/quantise.c \
	tests/bench/redis.c tests/bench/redis.h \
	tests/bench/redis_rows.c \
	tests/bench/replay.c \
	tests/bench/report.c \
	tests/bench/restart_store.c \
	tests/bench/restart.c \
	tests/bench/rollback.c \
	tests/bench/samples.c \
	tests/bench/scatter.c \
	tests/bench/size.c \
	tests/bench/token_rate.c \
	tests/bench/undo.c
tests_bench_kvcbench_LDADD = libkvtest.la libkvexample.la libkvclient.la libkvoffload.la \
	$(NANOMSG_LIBS) $(JANSSON_LIBS)
tests_bench_kvcbench_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=nn_send -Wl,--wrap=nn_recv

bench: all tests/bench/kvcbench$(EXEEXT)
	$(AM_V_at)KVC_MODEL_DIR=$(abs_top_srcdir)/client/examples/model \
		tests/bench/kvcbench$(EXEEXT) $(BENCH_FLAGS) $(if $(BENCH_JSON),--json $(BENCH_JSON))
.PHONY: bench
