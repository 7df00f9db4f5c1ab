/* fio as the reference of what reads and writes a disk. */
#ifndef KVCACHED_TESTS_BENCH_FIO_H
#define KVCACHED_TESTS_BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

#define BENCH_FIO_DEPTH 8u

struct bench_fio {
	char dir[256], path[300];
	uint64_t n_bytes;
	uint32_t block_bytes;
	bool write;
	int memory_fd; /* its buffers: the caller's, or -1 */
};

/* A file of n_bytes in `dir`, all of it written once. */
void bench_fio_open(struct bench_fio *fio, const char *dir, uint64_t n_bytes, uint32_t block_bytes);
void bench_fio_close(struct bench_fio *fio);

/* Reads or writes the file from front to end, direct, registered memory and file, with io_uring.
 * Bytes a nanosecond; *cpu_us: CPU time of a MiB. Ends the group if there is no fio. */
double bench_fio_run(const struct bench_fio *fio, double *cpu_us);

#endif
