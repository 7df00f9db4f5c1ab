# kvcbench, built and run by make bench.
