/*
 * kvc_workers. The order of a call: what the function needs is written, then `round` is raised
 * (release); a thread that sees it (acquire) runs the function and takes itself off `n_busy`
 * (release); the caller sees 0 (acquire). The lock is for sleep alone: who is about to sleep looks
 * once more under it, who wakes takes it, so no call is missed.
 */
#include "client/workers.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "client/error.h"
#include "client/own_page.h"

/* Looks before a thread sleeps: some tens of microseconds, the time between two layers. */
#define SPINS 4000u

struct worker {
	struct kvc_workers *workers;
	pthread_t thread;
	uint32_t number;
};

struct kvc_workers {
	_Atomic uint32_t *own;
	uint32_t n; /* the caller's thread included */
	uint32_t n_started;
	void (*fn)(void *arg, uint32_t number);
	void *arg;
	_Atomic uint32_t round;
	_Atomic uint32_t n_busy;
	_Atomic uint32_t ends;
	_Atomic bool is_taken; /* by a call; who gives back (release) hands scratch on (acquire) */
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	void *scratch;
	size_t scratch_bytes;
	struct worker threads[]; /* [n - 1] */
};

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() ((void)0)
#endif

/* ---- a thread ------------------------------------------------------------------------------ */

/* Waits until *word is (`equal`), or is no more, `value`. */
static void wait_for(struct kvc_workers *w, pthread_cond_t *cond, const _Atomic uint32_t *word,
		     uint32_t value, bool equal)
{
	for (uint32_t i = 0; i < SPINS; i++) {
		if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal)
			return;
		PAUSE();
	}
	pthread_mutex_lock(&w->lock);
	while ((atomic_load_explicit(word, memory_order_acquire) == value) != equal)
		pthread_cond_wait(cond, &w->lock);
	pthread_mutex_unlock(&w->lock);
}

static void wake(struct kvc_workers *w, pthread_cond_t *cond)
{
	pthread_mutex_lock(&w->lock);
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(&w->lock);
}

static void *run_thread(void *arg)
{
	struct worker *self = arg;
	struct kvc_workers *w = self->workers;

	for (uint32_t round = 0;; round++) {
		wait_for(w, &w->work, &w->round, round, false);
		if (atomic_load_explicit(&w->ends, memory_order_relaxed))
			return NULL;
		w->fn(w->arg, self->number);
		if (atomic_fetch_sub_explicit(&w->n_busy, 1, memory_order_acq_rel) == 1)
			wake(w, &w->done);
	}
}

/* ---- a call -------------------------------------------------------------------------------- */

uint32_t workers_n(const kvc_workers *workers)
{
	return workers->n;
}

static int check_own(const struct kvc_workers *w)
{
	if (own_page_is_ours(w->own))
		return 0;
	return kvc_fail(KVC_EFORKED,
			"these workers were inherited by fork(), their threads were not");
}

int workers_enter(kvc_workers *workers)
{
	if (check_own(workers))
		return -1;
	if (atomic_exchange_explicit(&workers->is_taken, true, memory_order_acquire))
		return kvc_fail(KVC_EBUSY, "another thread has these workers in a call: give each "
					   "thread workers of its own");
	return 0;
}

void workers_leave(kvc_workers *workers)
{
	atomic_store_explicit(&workers->is_taken, false, memory_order_release);
}

void workers_run(kvc_workers *workers, void (*fn)(void *arg, uint32_t number), void *arg)
{
	if (workers->n > 1) {
		workers->fn = fn;
		workers->arg = arg;
		atomic_store_explicit(&workers->n_busy, workers->n - 1, memory_order_relaxed);
		atomic_fetch_add_explicit(&workers->round, 1, memory_order_release);
		wake(workers, &workers->work);
	}
	fn(arg, 0);
	if (workers->n > 1)
		wait_for(workers, &workers->done, &workers->n_busy, 0, true);
}

void *workers_scratch(kvc_workers *workers, size_t n_bytes)
{
	void *memory;

	if (n_bytes <= workers->scratch_bytes)
		return workers->scratch;
	if (posix_memalign(&memory, 64, n_bytes)) {
		kvc_fail(KVC_ENOMEM, "no memory for %zu bytes of scratch", n_bytes);
		return NULL;
	}
	free(workers->scratch);
	workers->scratch = memory;
	workers->scratch_bytes = n_bytes;
	return memory;
}

size_t workers_scratch_bytes(const kvc_workers *workers)
{
	return workers->scratch_bytes;
}

/* ---- new and free -------------------------------------------------------------------------- */

static int start_threads(struct kvc_workers *w)
{
	sigset_t all, before;
	int rc = 0;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	while (w->n_started < w->n - 1 && rc == 0) {
		struct worker *worker = &w->threads[w->n_started];

		worker->workers = w;
		worker->number = w->n_started + 1;
		rc = pthread_create(&worker->thread, NULL, run_thread, worker);
		w->n_started += rc == 0;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		return 0;
	return errbuf_errno(kvc_err(), KVC_ELIMIT, rc,
			    "thread %u of %u could not be started (limit: ulimit -u)",
			    w->n_started + 2, w->n);
}

static void workers_end(struct kvc_workers *w)
{
	atomic_store_explicit(&w->ends, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&w->round, 1, memory_order_release);
	wake(w, &w->work);
	for (uint32_t i = 0; i < w->n_started; i++)
		pthread_join(w->threads[i].thread, NULL);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->done);
	pthread_mutex_destroy(&w->lock);
	own_page_free(w->own);
	free(w->scratch);
	free(w);
}

kvc_workers *kvc_workers_new(uint32_t n_threads)
{
	struct kvc_workers *w;

	if (n_threads < 1 || n_threads > WORKERS_MAX) {
		kvc_fail(KVC_ERANGE, "n_threads is %u, it may be 1 to %u", n_threads, WORKERS_MAX);
		return NULL;
	}
	w = calloc(1, sizeof(*w) + (n_threads - 1) * sizeof(w->threads[0]));
	if (!w) {
		kvc_fail(KVC_ENOMEM, "no memory for %u workers", n_threads);
		return NULL;
	}
	w->n = n_threads;
	w->own = own_page_new();
	if (!w->own) {
		free(w);
		return NULL;
	}
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->done, NULL);
	if (start_threads(w)) {
		workers_end(w);
		return NULL;
	}
	return w;
}

void kvc_workers_free(kvc_workers *workers)
{
	if (workers && check_own(workers) == 0)
		workers_end(workers);
}
