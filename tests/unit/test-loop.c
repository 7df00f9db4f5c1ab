/*
 * The event loop: order of a round, removal in callbacks, timers under a clock moved by hand.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/loop.h"
#include "tests/support/runner.h"

/* What was called, as a word of letters. */
static char said[64];

static void say(char letter)
{
	size_t n = strlen(said);

	said[n] = letter;
	said[n + 1] = '\0';
}

static uint64_t fake_now_ns;

static uint64_t read_fake_ns(void *arg)
{
	(void)arg;
	return fake_now_ns;
}

static struct loop *fake_loop(void)
{
	const struct loop_clock clock = {.now_ns = read_fake_ns};
	struct loop *loop = loop_new(&clock, NULL);

	assert_non_null(loop);
	said[0] = '\0';
	fake_now_ns = 1000;
	return loop;
}

struct letter_timer {
	struct loop_timer timer;
	char letter;
};

static void on_letter(void *arg)
{
	say(((struct letter_timer *)arg)->letter);
}

static void set_letter(struct loop *loop, struct letter_timer *timer, char letter, uint64_t due_ns)
{
	timer->letter = letter;
	timer->timer.fn = on_letter;
	timer->timer.arg = timer;
	assert_int_equal(loop_timer_at(loop, &timer->timer, due_ns), 0);
}

static void test_timers_fire_in_the_order_of_their_times(void **state)
{
	struct loop *loop = fake_loop();
	struct letter_timer t[4] = {0};

	(void)state;
	set_letter(loop, &t[0], 'c', 3000);
	set_letter(loop, &t[1], 'a', 1500);
	set_letter(loop, &t[2], 'd', 4000);
	set_letter(loop, &t[3], 'b', 2000);
	assert_int_equal(loop_once(loop, 0), 0);
	assert_string_equal(said, "");
	fake_now_ns = 3000;
	assert_int_equal(loop_once(loop, -1), 0); /* does not wait: one is due */
	assert_string_equal(said, "abc");
	fake_now_ns = 3999;
	assert_int_equal(loop_once(loop, 0), 0);
	assert_string_equal(said, "abc");
	fake_now_ns = 4000;
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "abcd");
	loop_free(loop);
}

static void test_a_timer_can_be_moved_and_cancelled(void **state)
{
	struct loop *loop = fake_loop();
	struct letter_timer t[3] = {0};

	(void)state;
	set_letter(loop, &t[0], 'a', 2000);
	set_letter(loop, &t[1], 'b', 2001);
	set_letter(loop, &t[2], 'c', 2002);
	assert_int_equal(loop_timer_at(loop, &t[0].timer, 2003), 0);
	loop_timer_cancel(loop, &t[1].timer);
	loop_timer_cancel(loop, &t[1].timer);
	fake_now_ns = 9999;
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "ca");
	loop_free(loop);
}

/* A thousand timers in random order against sorted times: the heap keeps its order. */
static uint64_t last_fired_ns;
static unsigned n_fired;

static void on_ordered(void *arg)
{
	const struct loop_timer *timer = arg;

	assert_true(timer->due_ns >= last_fired_ns);
	last_fired_ns = timer->due_ns;
	n_fired++;
}

static void test_a_thousand_timers_with_cancels_keep_their_order(void **state)
{
	static struct loop_timer timers[1000];
	struct loop *loop = fake_loop();
	unsigned n_cancelled = 0;

	(void)state;
	srandom(7);
	memset(timers, 0, sizeof(timers));
	last_fired_ns = 0;
	n_fired = 0;
	for (size_t i = 0; i < 1000; i++) {
		timers[i].fn = on_ordered;
		timers[i].arg = &timers[i];
		loop_timer_at(loop, &timers[i], 2000 + (uint64_t)(random() % 5000));
	}
	for (size_t i = 0; i < 1000; i += 3) {
		loop_timer_cancel(loop, &timers[i]);
		n_cancelled++;
	}
	for (fake_now_ns = 2000; fake_now_ns < 7100; fake_now_ns += 100)
		assert_int_equal(loop_once(loop, 0), 0);
	assert_int_equal(n_fired, 1000 - n_cancelled);
	loop_free(loop);
}

/* A timer that sets itself for now must not keep a round from ending. */
static struct loop *again_loop;

static void on_again(void *arg)
{
	say('x');
	loop_timer_at(again_loop, arg, fake_now_ns);
}

static void test_a_timer_set_again_for_now_waits_for_the_next_round(void **state)
{
	struct loop_timer timer = {.fn = on_again, .arg = &timer};

	(void)state;
	again_loop = fake_loop();
	loop_timer_at(again_loop, &timer, fake_now_ns);
	assert_int_equal(loop_once(again_loop, -1), 0);
	assert_string_equal(said, "x");
	assert_int_equal(loop_once(again_loop, -1), 0);
	assert_string_equal(said, "xx");
	loop_free(again_loop);
}

struct count_task {
	struct loop_task task;
	struct loop *loop;
	struct count_task *removes; /* removed by this one's call */
	char letter;
	int left;
};

static bool on_count(void *arg)
{
	struct count_task *task = arg;

	say(task->letter);
	if (task->removes)
		loop_task_remove(task->loop, &task->removes->task);
	return --task->left > 0;
}

static void add_count(struct loop *loop, struct count_task *task, char letter, int n)
{
	*task = (struct count_task){.loop = loop, .letter = letter, .left = n};
	task->task.fn = on_count;
	task->task.arg = task;
	loop_task_add(loop, &task->task);
}

static void test_a_task_runs_once_a_round_until_it_says_false(void **state)
{
	struct loop *loop = fake_loop();
	struct count_task a;
	struct count_task b;

	(void)state;
	add_count(loop, &a, 'a', 3);
	add_count(loop, &b, 'b', 1);
	loop_task_add(loop, &a.task); /* is active already */
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "ba");
	assert_int_equal(loop_once(loop, -1), 0);
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "baaa");
	assert_int_equal(loop_once(loop, 0), 0);
	assert_string_equal(said, "baaa");
	add_count(loop, &a, 'z', 1); /* and can be added again */
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "baaaz");
	loop_free(loop);
}

static void test_a_task_may_remove_the_one_behind_it(void **state)
{
	struct loop *loop = fake_loop();
	struct count_task a;
	struct count_task b;
	struct count_task c;

	(void)state;
	add_count(loop, &a, 'a', 9);
	add_count(loop, &b, 'b', 9);
	add_count(loop, &c, 'c', 9); /* runs first */
	c.removes = &b;
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "ca");
	loop_free(loop);
}

struct pipe_io {
	struct loop_io io;
	struct loop *loop;
	struct pipe_io *removes;
	int fds[2];
	char letter;
};

static void on_pipe(void *arg, uint32_t events)
{
	struct pipe_io *pipe_io = arg;
	char byte;

	assert_true((events & EPOLLIN) != 0);
	assert_int_equal(read(pipe_io->fds[0], &byte, 1), 1);
	say(pipe_io->letter);
	if (pipe_io->removes)
		loop_io_remove(pipe_io->loop, &pipe_io->removes->io);
}

static void open_pipe(struct loop *loop, struct pipe_io *pipe_io, char letter)
{
	*pipe_io = (struct pipe_io){.loop = loop, .letter = letter};
	assert_int_equal(pipe(pipe_io->fds), 0);
	pipe_io->io.fn = on_pipe;
	pipe_io->io.arg = pipe_io;
	assert_int_equal(loop_io_add(loop, &pipe_io->io, pipe_io->fds[0], EPOLLIN), 0);
}

static void close_pipe(struct pipe_io *pipe_io)
{
	loop_io_remove(pipe_io->loop, &pipe_io->io);
	close(pipe_io->fds[0]);
	close(pipe_io->fds[1]);
}

static void test_a_ready_descriptor_is_called_and_a_quiet_one_not(void **state)
{
	struct loop *loop = fake_loop();
	struct pipe_io a;
	struct pipe_io b;

	(void)state;
	open_pipe(loop, &a, 'a');
	open_pipe(loop, &b, 'b');
	assert_int_equal(write(b.fds[1], "x", 1), 1);
	assert_int_equal(loop_once(loop, -1), 0);
	assert_string_equal(said, "b");
	assert_int_equal(loop_once(loop, 0), 0);
	assert_string_equal(said, "b");
	assert_int_equal(loop_io_change(loop, &b.io, 0), 0);
	assert_int_equal(write(b.fds[1], "x", 1), 1);
	assert_int_equal(loop_once(loop, 0), 0);
	assert_string_equal(said, "b");
	close_pipe(&a);
	close_pipe(&b);
	loop_free(loop);
}

static void test_a_descriptor_removed_in_the_same_round_is_not_called(void **state)
{
	struct loop *loop = fake_loop();
	struct pipe_io a;
	struct pipe_io b;

	(void)state;
	open_pipe(loop, &a, 'a');
	open_pipe(loop, &b, 'b');
	a.removes = &b;
	b.removes = &a;
	assert_int_equal(write(a.fds[1], "x", 1), 1);
	assert_int_equal(write(b.fds[1], "x", 1), 1);
	assert_int_equal(loop_once(loop, -1), 0);
	assert_int_equal(strlen(said), 1);
	close_pipe(&a);
	close_pipe(&b);
	loop_free(loop);
}

static void on_stop(void *arg)
{
	loop_stop(arg, 42);
}

static void test_run_returns_what_stop_says(void **state)
{
	struct loop *loop = loop_new(NULL, NULL);
	struct loop_timer timer = {.fn = on_stop, .arg = loop};

	(void)state;
	assert_non_null(loop);
	assert_int_equal(loop_timer_in(loop, &timer, LOOP_NS_PER_MS), 0);
	assert_int_equal(loop_run(loop), 42);
	loop_free(loop);
}

static void test_a_bad_descriptor_is_refused(void **state)
{
	struct loop *loop = fake_loop();
	struct loop_io io = {.fn = on_pipe, .fd = -1};

	(void)state;
	assert_int_equal(loop_io_add(loop, &io, 1 << 20, EPOLLIN), -EBADF);
	loop_io_remove(loop, &io); /* was never added */
	loop_free(loop);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("timers fire in the order of their times",
		test_timers_fire_in_the_order_of_their_times),
	KT_TEST("a timer can be moved and cancelled", test_a_timer_can_be_moved_and_cancelled),
	KT_TEST("a thousand timers with cancels keep their order",
		test_a_thousand_timers_with_cancels_keep_their_order),
	KT_TEST("a timer set again for now waits for the next round",
		test_a_timer_set_again_for_now_waits_for_the_next_round),
	KT_TEST("a task runs once a round until it says false",
		test_a_task_runs_once_a_round_until_it_says_false),
	KT_TEST("a task may remove the one behind it", test_a_task_may_remove_the_one_behind_it),
	KT_TEST("a ready descriptor is called and a quiet one not",
		test_a_ready_descriptor_is_called_and_a_quiet_one_not),
	KT_TEST("a descriptor removed in the same round is not called",
		test_a_descriptor_removed_in_the_same_round_is_not_called),
	KT_TEST("run returns what stop says", test_run_returns_what_stop_says),
	KT_TEST("a bad descriptor is refused", test_a_bad_descriptor_is_refused),
};

KT_MAIN(tests)
