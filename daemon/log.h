/*
 * Log lines on stderr: subsystem first, one line a call.
 *
 * Levels by audience: error (someone must act), warn (it goes on, but), info (start, stop), debug
 * (per object). Under the systemd journal each line begins with <N>, its priority. Never in a
 * line: tokens, prompts, tensor bytes, session tokens. A line is written with one write(2), so
 * lines of keeper, core and front do not mix. Line breaks and other control bytes in what is
 * logged become '?'. Any thread.
 */
#ifndef KV_DAEMON_LOG_H
#define KV_DAEMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Lines above `level` are dropped. Looks for JOURNAL_STREAM once. */
void log_init(enum log_level level);

void log_line(enum log_level level, const char *subsystem, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(subsystem, ...) log_line(LOG_LEVEL_ERROR, subsystem, __VA_ARGS__)
#define log_warn(subsystem, ...) log_line(LOG_LEVEL_WARN, subsystem, __VA_ARGS__)
#define log_info(subsystem, ...) log_line(LOG_LEVEL_INFO, subsystem, __VA_ARGS__)
#define log_debug(subsystem, ...) log_line(LOG_LEVEL_DEBUG, subsystem, __VA_ARGS__)

#endif
