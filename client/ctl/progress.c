#include "client/ctl/progress.h"

#define BAR_COLUMNS 40

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

void progress_begin(struct progress *progress)
{
	struct sigaction act = {.sa_handler = on_signal};

	sigemptyset(&act.sa_mask);
	interrupted = 0;
	sigaction(SIGINT, &act, &progress->before);
}

void progress_end(const struct progress *progress)
{
	sigaction(SIGINT, &progress->before, NULL);
}

bool progress_interrupted(void)
{
	return interrupted != 0;
}

void progress_draw(const struct ctl *ctl, const char *label, uint64_t part, uint64_t whole)
{
	unsigned filled = whole ? (unsigned)((double)part / (double)whole * BAR_COLUMNS) : 0;

	if (!ctl->out.progress)
		return;
	if (filled > BAR_COLUMNS)
		filled = BAR_COLUMNS;
	fprintf(ctl->out.errors, "\r%-20.20s [", label);
	for (unsigned i = 0; i < BAR_COLUMNS; i++)
		fputc(i < filled ? '#' : ' ', ctl->out.errors);
	fprintf(ctl->out.errors, "] %7s", units_percent(part, whole).s);
	fflush(ctl->out.errors);
}

void progress_clear(const struct ctl *ctl)
{
	if (ctl->out.progress)
		fputs("\r\033[K", ctl->out.errors);
}
