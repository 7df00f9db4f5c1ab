#include "daemon/leave.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/save.h"

#define LIMIT_NS (60 * LOOP_NS_PER_S) /* of all saves */
#define EXTEND_MS 10000u              /* the keeper waits so long for the next word */
#define TELL_NS LOOP_NS_PER_S

struct leave {
	struct job job; /* of the save that runs; in no list */
	bool is_saving;
	uint64_t object_id; /* that is being saved, or was last */
	uint64_t until_ns, tell_ns;
	unsigned n_saved;
	void (*done)(void *arg);
	void *arg;
};

bool leave_has_saved(const struct core *core, const struct object *object)
{
	const struct saved *saved;

	if (!core->disk || !core->disk->store || !object->name || !object->has_digest)
		return false;
	saved = store_saved_find(core->disk->store, object->uid, object->name);
	return saved && saved->head->digest.len == sizeof(object->digest) &&
	       memcmp(saved->head->digest.data, object->digest, sizeof(object->digest)) == 0;
}

static bool wants_saving(const struct core *core, const struct object *object)
{
	return object->listed && object->name && object->state &&
	       !store_saved_find(core->disk->store, object->uid, object->name);
}

/* The next object to save, or NULL. */
static struct object *next_object(const struct core *core)
{
	size_t i = idlist_after(&core->objects, core->leave->object_id);

	for (; i < core->objects.n; i++)
		if (wants_saving(core, core->objects.items[i].thing))
			return core->objects.items[i].thing;
	return NULL;
}

static void begin_save(struct core *core, const struct object *object)
{
	struct leave *leave = core->leave;
	const struct save_order order = {
		.state = object->state, .object = object, .uid = object->uid, .name = object->name};
	struct save *save;

	leave->object_id = object->id;
	leave->job = (struct job){.kind = &save_kind, .phase = JOB_RUNNING};
	if (image_check_layout(object->layout->layout, &leave->job.err) == 0 &&
	    (save = save_new(core, core->disk, &order, &leave->job.err)) != NULL) {
		leave->job.work = save;
		save->job = &leave->job;
		leave->is_saving = true;
		return;
	}
	log_warn("disk", "%s cannot be saved: %s", object->name, leave->job.err.text);
}

static void end_save(struct core *core, enum job_step step)
{
	struct leave *leave = core->leave;
	const struct object *object = idlist_find(&core->objects, leave->object_id);

	leave->job.kind->stop(core, &leave->job);
	leave->is_saving = false;
	leave->n_saved += step == JOB_END;
	if (step == JOB_FAIL)
		log_warn("disk", "%s cannot be saved: %s",
			 object && object->name ? object->name : "what was there",
			 leave->job.err.text);
}

static void end(struct core *core)
{
	struct leave *leave = core->leave;
	void (*done)(void *arg) = leave->done;
	void *arg = leave->arg;

	log_info("disk", "%u saved before the end", leave->n_saved);
	leave_free(core);
	done(arg);
}

static void tell(struct core *core)
{
	struct leave *leave = core->leave;
	char text[64];

	if (core_now_ns(core) < leave->tell_ns)
		return;
	leave->tell_ns = core_now_ns(core) + TELL_NS;
	snprintf(text, sizeof(text), "saving, %u done", leave->n_saved);
	keeper_status(core->env->keeper, EXTEND_MS, text);
}

bool leave_step(struct core *core)
{
	struct leave *leave = core->leave;
	struct object *object;
	enum job_step step;

	if (!leave)
		return false;
	tell(core);
	if (core_now_ns(core) > leave->until_ns) {
		log_warn("disk", "the rest cannot be saved within %llu s",
			 (unsigned long long)(LIMIT_NS / LOOP_NS_PER_S));
		end(core);
		return false;
	}
	if (leave->is_saving) {
		if (leave->job.is_waiting)
			return false;
		step = leave->job.kind->step(core, &leave->job);
		leave->job.is_waiting = step == JOB_WAIT;
		if (step == JOB_END || step == JOB_FAIL)
			end_save(core, step);
		return step != JOB_WAIT;
	}
	object = next_object(core);
	if (object)
		begin_save(core, object);
	else
		end(core);
	return object != NULL;
}

void leave_wake(struct core *core)
{
	if (core->leave)
		job_wake(core, &core->leave->job);
}

void leave_free(struct core *core)
{
	struct leave *leave = core->leave;

	core->leave = NULL;
	if (!leave)
		return;
	if (leave->is_saving)
		leave->job.kind->stop(core, &leave->job);
	free(leave);
}

void core_leave(struct core *core, void (*done)(void *arg), void *arg)
{
	if (core->leave || !core->disk || !core->disk->store) {
		leave_free(core);
		done(arg);
		return;
	}
	core->leave = state_alloc(1, sizeof(*core->leave));
	core->leave->until_ns = core_now_ns(core) + LIMIT_NS;
	core->leave->done = done;
	core->leave->arg = arg;
	loop_task_add(core->env->loop, &core->work_task);
}
