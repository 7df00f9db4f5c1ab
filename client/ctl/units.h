/*
 * Numbers as people read them, and text that is safe on a terminal. Each function gives a small
 * struct by value, so that `units_bytes(n).s` can stand in a call without a buffer of one's own.
 * Pure functions: any thread.
 */
#ifndef KV_CTL_UNITS_H
#define KV_CTL_UNITS_H

#include <stddef.h>
#include <stdint.h>

struct units_text {
	char s[48];
};

/* 0 B, 999 B, 1.0 KiB, 63.5 MiB, 128 MiB. */
struct units_text units_bytes(uint64_t n_bytes);

/* 1,048,576 */
struct units_text units_count(uint64_t n);

/* 1 arena, 6 arenas. */
struct units_text units_of(uint64_t n, const char *noun);

/* A measured time: 850 ns, 12.3 us, 4.56 ms, 1.23 s, 75.0 s. */
struct units_text units_time(double seconds);

/* How long something has been going on: 12 s, 5 min, 4 h 10 min, 3 d 4 h. */
struct units_text units_age(uint64_t ms);

/* part of whole: "46.9 %"; "-" when whole is 0. */
struct units_text units_percent(uint64_t part, uint64_t whole);

/* Lower-case hexadecimal digits of the first n bytes; out has 2 n + 1 bytes. */
void units_hex(char *out, const uint8_t *bytes, size_t n);

/*
 * A peer's text for a terminal or a log: every byte that is not printable ASCII becomes '?', and
 * what is longer than the struct is cut.
 */
struct units_line {
	char s[512];
};
struct units_line units_clean(const char *text);

#endif
