#include "tests/model/mc_sums.h"

#include <math.h>
#include <string.h>

#include "client/compute/convert.h"

#define TOLERANCE (1.0 / 32)

static double element(const struct mc_keys *keys, const char *vector, uint32_t i)
{
	uint32_t dtype = keys->w->layout->dtype;
	uint16_t half;
	float x;

	if (dtype == KV_DTYPE_F32) {
		memcpy(&x, vector + (size_t)i * 4, 4);
		return (double)x;
	}
	memcpy(&half, vector + (size_t)i * 2, 2);
	return (double)(dtype == KV_DTYPE_F16 ? kv_f16_to_f32(half) : kv_bf16_to_f32(half));
}

double mc_keys_largest(const struct mc_keys *keys)
{
	double largest = 1e-30;

	for (uint64_t key = 0; key < keys->n; key++)
		for (uint32_t d = 0; d < keys->k_width + keys->v_width; d++) {
			double x = fabs(element(keys, keys->vectors[key], d));

			if (!isfinite(x))
				return INFINITY;
			if (d < keys->k_width)
				largest = fmax(largest, x);
		}
	return largest;
}

void mc_draw_queries(struct mc_world *w, float *q, uint64_t n, uint32_t k_width, double largest)
{
	for (uint64_t i = 0; i < n; i++)
		q[i] = (float)(((double)mc_draw(w, 2001) / 1000 - 1) / largest / k_width);
}

static double weigh(const struct mc_keys *keys, uint64_t key, const float *q)
{
	double sum = 0;

	if (!keys->is_seen[key])
		return 0;
	for (uint32_t d = 0; d < keys->k_width; d++)
		sum += (double)q[d] * element(keys, keys->vectors[key], d);
	return exp(sum);
}

void mc_expect_out(const struct mc_keys *keys, uint64_t query, uint32_t query_head, const float *q,
		   const float *out, double *weights)
{
	double p[MC_KEYS], total = 0;

	for (uint64_t key = 0; key < keys->n; key++)
		total += p[key] = weigh(keys, key, q);
	for (uint64_t key = 0; key < keys->n; key++)
		weights[key] += p[key] /= total;
	for (uint32_t d = 0; d < keys->v_width; d++) {
		double sum = 0, size = 0;

		for (uint64_t key = 0; key < keys->n; key++) {
			double x = element(keys, keys->vectors[key], keys->k_width + d);

			sum += p[key] * x;
			size += p[key] * fabs(x);
		}
		if (!(fabs(sum - (double)out[d]) <= size * TOLERANCE + 1e-30))
			MC_FAIL("%s: attention of layer %u query %llu head %u element %u is %g, "
				"not %g",
				keys->what, keys->layer, (unsigned long long)query, query_head, d,
				(double)out[d], sum);
	}
}

void mc_expect_weight(const struct mc_keys *keys, uint64_t slot, double expected, float got)
{
	if (!(fabs(expected - (double)got) <= expected * TOLERANCE + 1e-6))
		MC_FAIL("%s: weight of layer %u head %u slot %llu is %g, not %g", keys->what,
			keys->layer, keys->head, (unsigned long long)slot, (double)got, expected);
}
