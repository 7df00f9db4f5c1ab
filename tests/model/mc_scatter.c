/* Scatter calls: slots per head, or shared by the heads; vectors, planes, or both. */
#include <string.h>

#include "tests/model/mc_plan.h"

static char k_bytes[MC_PLAN_BYTES], v_bytes[MC_PLAN_BYTES];

struct scatter {
	uint32_t layer;
	uint64_t n;
	bool shared, has_kv;
	bool planes[MC_PLANES];
	uint32_t index[MC_HEADS * MC_TOKENS];
};

static void draw_slots(struct mc_world *w, uint32_t *index, uint64_t n, uint64_t n_slots)
{
	uint32_t all[MC_TOKENS];

	for (uint32_t i = 0; i < n_slots; i++)
		all[i] = i;
	for (uint64_t i = 0; i < n; i++) {
		uint64_t j = i + mc_draw(w, n_slots - i);
		uint32_t slot = all[j];

		all[j] = all[i];
		all[i] = index[i] = slot;
	}
}

static bool draw_scatter(struct mc_world *w, const struct mc_plan *p, struct scatter *c)
{
	uint64_t n_slots;

	c->layer = (uint32_t)mc_draw(w, w->layout->n_layers);
	n_slots = mc_slots(w, c->layer, p->states[p->n_tokens]->length);
	if (n_slots == 0)
		return false;
	c->n = 1 + mc_draw(w, n_slots < 6 ? n_slots : 6);
	c->shared = mc_one_in(w, 2);
	c->has_kv = !mc_one_in(w, 4);
	for (uint32_t i = 0; i < MC_PLANES; i++)
		c->planes[i] = i < w->n_slot_planes && mc_one_in(w, 2);
	for (uint32_t h = 0; h < w->layout->layers[c->layer].n_query_groups; h++)
		if (h && c->shared)
			memcpy(c->index + h * c->n, c->index, c->n * sizeof(c->index[0]));
		else
			draw_slots(w, c->index + h * c->n, c->n, n_slots);
	return true;
}

/* One head of one slot in one state. */
static void scatter_cell(const struct mc_plan *p, const struct scatter *c, struct mc_cell *cell,
			 uint32_t row, uint32_t value, const uint32_t numbers[MC_PLANES])
{
	bool replay = p->s->shadow.mode == KVC_JOURNAL_REPLAY;

	if (replay && !cell->row) {
		cell->row_kv = 0;
		memcpy(cell->row_plane, cell->plane, sizeof(cell->plane));
	}
	if (replay)
		cell->row = row;
	if (c->has_kv)
		*(replay ? &cell->row_kv : &cell->kv) = value;
	for (uint32_t i = 0; i < MC_PLANES; i++)
		if (c->planes[i])
			mc_planes_of(cell)[i] = numbers[i];
}

static void plan_scatter(struct mc_world *w, struct mc_plan *p, const struct scatter *c, uint64_t i,
			 uint32_t head, uint32_t value, const uint32_t numbers[MC_PLANES])
{
	uint64_t slot = c->index[head * c->n + i];
	bool is_new = slot >= mc_slots(w, c->layer, mc_now(&p->s->shadow)->length);
	uint32_t row = ++w->n_rows;
	uint64_t first = p->n_tokens;

	/* A slot that comes with the update is written where it is (undo): no row. */
	if (is_new && p->s->shadow.mode == KVC_JOURNAL_UNDO)
		first = slot - mc_now(&p->s->shadow)->length;
	else
		p->extra_rows++;
	for (uint64_t s = first; s <= p->n_tokens; s++)
		scatter_cell(p, c, mc_cell(w, p->states[s], c->layer, head, slot), row, value,
			     numbers);
}

static void plan_scatter_all(struct mc_world *w, struct mc_plan *p, const struct scatter *c,
			     char (*planes)[MC_PLAN_BYTES / 4])
{
	const struct kv_layer *l = &w->layout->layers[c->layer];
	uint32_t k = mc_k_bytes(w, c->layer), v = mc_full_bytes(w, c->layer) - k;

	for (uint64_t i = 0; i < c->n; i++)
		for (uint32_t h = 0; h < l->n_query_groups; h++) {
			uint64_t at = i * l->n_query_groups + h;
			uint32_t value = c->has_kv ? mc_value_new(w, c->layer) : 0;
			uint32_t numbers[MC_PLANES] = {0};

			if (value && w->spoils && mc_one_in(w, 40))
				mc_value_spoil(w, value);
			p->is_bad |= w->values[value].is_bad &&
				     p->s->shadow.mode != KVC_JOURNAL_REPLAY;
			if (value) {
				memcpy(k_bytes + at * k, w->values[value].full, k);
				memcpy(v_bytes + at * v, w->values[value].full + k, v);
			}
			for (uint32_t s = 0; s < w->n_slot_planes; s++) {
				if (!c->planes[s])
					continue;
				numbers[s] = mc_number(w);
				mc_fill_plane(planes[s] + at * w->slot_plane_bytes[s],
					      w->slot_plane_bytes[s], numbers[s]);
			}
			plan_scatter(w, p, c, i, h, value, numbers);
		}
}

static bool call_scatter(struct mc_world *w, struct mc_plan *p, const struct scatter *c,
			 char (*bytes)[MC_PLAN_BYTES / 4])
{
	const void *planes[MC_PLANES];
	bool has_v = w->layout->layers[c->layer].v_width != 0;

	for (uint32_t s = 0; s < MC_PLANES; s++)
		planes[s] = c->planes[s] ? bytes[s] : NULL;
	return kvc_scatter(p->s->seq, c->layer, c->n, c->index, c->shared,
			   c->has_kv ? k_bytes : NULL, c->has_kv && has_v ? v_bytes : NULL,
			   w->n_slot_planes ? planes : NULL) == 0;
}

/* Calls that must be refused, and change nothing. */
static void scatter_wrongly(struct mc_world *w, struct mc_plan *p, struct scatter c,
			    char (*bytes)[MC_PLAN_BYTES / 4])
{
	uint64_t n_slots = mc_slots(w, c.layer, p->states[p->n_tokens]->length);
	uint32_t at = (uint32_t)mc_draw(w, c.n);

	if (!c.has_kv && !c.planes[0] && !c.planes[1])
		return;
	if (mc_one_in(w, 2)) {
		c.index[at] = (uint32_t)n_slots;
		MC_CHECK(!call_scatter(w, p, &c, bytes) && kvc_error() == KVC_ERANGE);
	} else if (c.n > 1) {
		c.index[at] = c.index[(at + 1) % c.n];
		MC_CHECK(!call_scatter(w, p, &c, bytes) && kvc_error() == KVC_EINVAL);
	}
}

bool mc_scatter(struct mc_world *w, struct mc_plan *p)
{
	static char bytes[MC_PLANES][MC_PLAN_BYTES / 4];
	struct scatter c;
	uint64_t n_rows;

	if (!draw_scatter(w, p, &c))
		return true;
	if (mc_one_in(w, 4))
		scatter_wrongly(w, p, c, bytes);
	if (!c.has_kv && !c.planes[0] && !c.planes[1]) {
		MC_CHECK(call_scatter(w, p, &c, bytes));
		return true;
	}
	plan_scatter_all(w, p, &c, bytes);
	mc_say(w, "  scatter: layer %u, %llu slots, %s%s%s%s, %u rows by now", c.layer,
	       (unsigned long long)c.n, c.shared ? "shared, " : "", c.has_kv ? "vectors" : "",
	       c.planes[0] ? " plane 0" : "", c.planes[1] ? " plane 1" : "", p->extra_rows);
	if (call_scatter(w, p, &c, bytes)) {
		MC_CHECK(!p->is_bad);
		return true;
	}
	n_rows = c.n * w->layout->layers[c.layer].n_query_groups;
	if (kvc_error() == KVC_ERESERVE && mc_reserve(w, p->s, 0, n_rows) &&
	    call_scatter(w, p, &c, bytes))
		return true;
	MC_CHECK((kvc_error() == KVC_EVALUE && p->is_bad) || kvc_error() == KVC_EJOURNAL ||
		 kvc_error() == KVC_ERESERVE || kvc_error() == KVC_EPOOL);
	return false;
}
