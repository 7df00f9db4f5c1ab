#include "client/ctl/units.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct units_text units_bytes(uint64_t n_bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	struct units_text text;
	double value = (double)n_bytes;
	size_t u = 0;

	if (n_bytes < 1024) {
		snprintf(text.s, sizeof(text.s), "%" PRIu64 " B", n_bytes);
		return text;
	}
	/* 1023.96 KiB would be printed as 1024 KiB: the next unit begins a little earlier */
	for (value /= 1024; value >= 1023.5 && u + 1 < sizeof(units) / sizeof(units[0]); u++)
		value /= 1024;
	snprintf(text.s, sizeof(text.s), value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[u]);
	return text;
}

struct units_text units_count(uint64_t n)
{
	struct units_text text;
	char digits[24];
	size_t n_digits = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n);
	size_t out = 0;

	for (size_t i = 0; i < n_digits; i++) {
		if (i > 0 && (n_digits - i) % 3 == 0)
			text.s[out++] = ',';
		text.s[out++] = digits[i];
	}
	text.s[out] = '\0';
	return text;
}

struct units_text units_of(uint64_t n, const char *noun)
{
	struct units_text text;

	snprintf(text.s, sizeof(text.s), "%.26s %.18s%s", units_count(n).s, noun,
		 n == 1 ? "" : "s");
	return text;
}

struct units_text units_time(double seconds)
{
	static const struct {
		double below, scale;
		const char *unit;
	} rows[] = {{1e-6, 1e9, "ns"}, {1e-3, 1e6, "us"}, {1, 1e3, "ms"}};
	struct units_text text;
	const char *unit = "s";
	double value = seconds;

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (seconds < rows[i].below) {
			value = seconds * rows[i].scale;
			unit = rows[i].unit;
			break;
		}
	snprintf(text.s, sizeof(text.s),
		 value < 9.995 ? "%.2f %s" :
		 value < 99.95 ? "%.1f %s" :
				 "%.0f %s",
		 value, unit);
	return text;
}

struct units_text units_age(uint64_t ms)
{
	struct units_text text;
	uint64_t s = ms / 1000;

	if (s < 60)
		snprintf(text.s, sizeof(text.s), "%" PRIu64 " s", s);
	else if (s < 3600)
		snprintf(text.s, sizeof(text.s), "%" PRIu64 " min", s / 60);
	else if (s < 86400)
		snprintf(text.s, sizeof(text.s), "%" PRIu64 " h %" PRIu64 " min", s / 3600,
			 s % 3600 / 60);
	else
		snprintf(text.s, sizeof(text.s), "%" PRIu64 " d %" PRIu64 " h", s / 86400,
			 s % 86400 / 3600);
	return text;
}

struct units_text units_percent(uint64_t part, uint64_t whole)
{
	struct units_text text = {"-"};

	if (whole > 0)
		snprintf(text.s, sizeof(text.s), "%.1f %%", 100.0 * (double)part / (double)whole);
	return text;
}

void units_hex(char *out, const uint8_t *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * n] = '\0';
}

struct units_line units_clean(const char *text)
{
	struct units_line line;
	size_t i = 0;

	for (; text && text[i] && i + 1 < sizeof(line.s); i++)
		line.s[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	line.s[i] = '\0';
	return line;
}
