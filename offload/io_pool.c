#include "offload/io_pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct ended {
	struct io_request *request;
	int64_t result;
};

struct io_pool {
	struct io_pool_options options;
	pthread_t threads[IO_THREADS_MAX];
	uint32_t n_threads;     /* that run */
	uint32_t n_taken;       /* and not collected; the caller's thread only */
	struct ended *reported; /* [capacity], what the caller is just collecting */

	pthread_mutex_t lock; /* of all below */
	pthread_cond_t work;
	bool is_ending;
	struct io_request **todo; /* [capacity], a ring: the oldest at `first` */
	uint32_t first, n_todo;
	struct ended *ended; /* [capacity] */
	uint32_t n_ended;
};

static void tell(const struct io_pool *pool)
{
	const uint64_t one = 1;
	/* It fails only when the counter is full, and then it is readable. */
	ssize_t rc = write(pool->options.event_fd, &one, sizeof(one));

	(void)rc;
}

/* With the lock. */
static void add_ended(struct io_pool *pool, struct io_request *request, int64_t result)
{
	pool->ended[pool->n_ended++] = (struct ended){request, result};
	if (pool->n_ended == 1)
		tell(pool);
}

static void *work(void *arg)
{
	struct io_pool *pool = arg;

	pthread_mutex_lock(&pool->lock);
	while (!pool->is_ending) {
		struct io_request *request;
		int64_t result;

		if (pool->n_todo == 0) {
			pthread_cond_wait(&pool->work, &pool->lock);
			continue;
		}
		request = pool->todo[pool->first];
		pool->first = (pool->first + 1) % pool->options.capacity;
		pool->n_todo--;
		pthread_mutex_unlock(&pool->lock);
		result = pool->options.fn(pool->options.arg, request);
		pthread_mutex_lock(&pool->lock);
		add_ended(pool, request, result);
	}
	pthread_mutex_unlock(&pool->lock);
	return NULL;
}

struct io_pool *io_pool_new(const struct io_pool_options *options)
{
	struct io_pool *pool = calloc(1, sizeof(*pool));

	if (!pool)
		return NULL;
	pool->options = *options;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->work, NULL);
	pool->todo = calloc(options->capacity, sizeof(pool->todo[0]));
	pool->ended = calloc(options->capacity, sizeof(pool->ended[0]));
	pool->reported = calloc(options->capacity, sizeof(pool->reported[0]));
	if (!pool->todo || !pool->ended || !pool->reported) {
		io_pool_free(pool);
		return NULL;
	}
	return pool;
}

void io_pool_free(struct io_pool *pool)
{
	if (!pool)
		return;
	pthread_mutex_lock(&pool->lock);
	pool->is_ending = true;
	pthread_cond_broadcast(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_threads; i++)
		pthread_join(pool->threads[i], NULL);
	pthread_cond_destroy(&pool->work);
	pthread_mutex_destroy(&pool->lock);
	free(pool->todo);
	free(pool->ended);
	free(pool->reported);
	free(pool);
}

/* Fewer threads than asked for will do, none will not. */
static int start_threads(struct io_pool *pool)
{
	sigset_t all, before;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	while (pool->n_threads < pool->options.n_threads &&
	       pthread_create(&pool->threads[pool->n_threads], NULL, work, pool) == 0)
		pool->n_threads++;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pool->n_threads ? 0 : -ENOMEM;
}

int io_pool_start(struct io_pool *pool, struct io_request *request)
{
	if (pool->n_threads == 0 && start_threads(pool))
		return -ENOMEM;
	if (pool->n_taken == pool->options.capacity)
		return -EAGAIN;
	pool->n_taken++;
	pthread_mutex_lock(&pool->lock);
	pool->todo[(pool->first + pool->n_todo++) % pool->options.capacity] = request;
	pthread_cond_signal(&pool->work);
	pthread_mutex_unlock(&pool->lock);
	return 0;
}

void io_pool_cancel(struct io_pool *pool, struct io_request *request)
{
	const uint32_t capacity = pool->options.capacity;
	uint32_t n_kept = 0;

	pthread_mutex_lock(&pool->lock);
	for (uint32_t i = 0; i < pool->n_todo; i++) {
		struct io_request *one = pool->todo[(pool->first + i) % capacity];

		if (one == request)
			add_ended(pool, request, -ECANCELED);
		else
			pool->todo[(pool->first + n_kept++) % capacity] = one;
	}
	pool->n_todo = n_kept;
	pthread_mutex_unlock(&pool->lock);
}

void io_pool_collect(struct io_pool *pool, const struct io_sink *sink)
{
	struct ended *reported;
	uint32_t n;

	pthread_mutex_lock(&pool->lock);
	n = pool->n_ended;
	reported = pool->ended;
	pool->ended = pool->reported;
	pool->reported = reported;
	pool->n_ended = 0;
	pthread_mutex_unlock(&pool->lock);
	pool->n_taken -= n;
	for (uint32_t i = 0; i < n; i++)
		sink->ended(sink->arg, reported[i].request, reported[i].result);
}
