# kvcbench, built and run by make bench; BENCH_JSON=FILE also writes a JSON list.

bench: all tests/bench/kvcbench$(EXEEXT)
	$(AM_V_at)tests/bench/kvcbench$(EXEEXT) $(BENCH_FLAGS) $(if $(BENCH_JSON),--json $(BENCH_JSON))
.PHONY: bench
