#include "tests/unit/codec-rows.h"

#include <math.h>

#include "client/compute/convert.h"

static const char *const names[ROW_N_KINDS] = {
	[ROW_NORMAL] = "normal",
	[ROW_SHIFTED] = "shifted",
	[ROW_TINY] = "tiny",
	[ROW_HUGE] = "huge",
	[ROW_FULL] = "full range",
	[ROW_CONSTANT] = "constant",
	[ROW_FAR_CONSTANT] = "constant of 256 and more",
	[ROW_NEIGHBOURS] = "two neighbours",
	[ROW_FEW_ULP] = "few ulp",
	[ROW_ZERO] = "zeros",
	[ROW_OUTLIER] = "outlier",
	[ROW_DENORMAL] = "denormal",
	[ROW_TIES] = "ties",
	[ROW_LOG] = "log-uniform",
	[ROW_BITS] = "any bits",
};

const char *row_kind_name(enum row_kind kind)
{
	return names[kind];
}

/* splitmix64 (Steele, Lea, Flood 2014) */
uint64_t row_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* 0 to 1 */
static double uniform(uint64_t *state)
{
	return (double)(row_random(state) >> 11) * 0x1p-53;
}

/* Near enough to N(0,1). */
static double normal(uint64_t *state)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += uniform(state);
	return sum;
}

static double sign(uint64_t *state)
{
	return row_random(state) & 1 ? 1 : -1;
}

/* What the elements of one vector have in common. */
struct common {
	double centre, spread;
	float base;
	uint64_t mask;
};

static float finite_bits(uint32_t dtype, uint64_t bits)
{
	uint32_t word = (uint32_t)bits;
	float x;

	if (dtype == KV_DTYPE_F16)
		x = kv_f16_to_f32((uint16_t)word);
	else
		x = kv_f32_of_bits(dtype == KV_DTYPE_BF16 ? word << 16 : word);
	return isfinite(x) ? x : 1.0f;
}

static float step_from(float x, int n)
{
	for (; n > 0; n--)
		x = nextafterf(x, INFINITY);
	return x;
}

/* Between 2^low and 2^high. By hand, for exp2() may differ between machines in the last bit. */
static double log_uniform(uint64_t *state, int low, int high)
{
	int exponent = low + (int)(row_random(state) % (uint64_t)(high - low));

	return ldexp(1 + uniform(state), exponent);
}

/* 2^low and up to the largest of the dtype: often a power of two, where steps change size, or what
 * is next to one. */
static float far_base(uint32_t dtype, int low, uint64_t *state)
{
	double x = log_uniform(state, low, dtype == KV_DTYPE_F16 ? 16 : 128);
	uint64_t choice = row_random(state);
	int exponent;
	float base;

	frexp(x, &exponent);
	base = (float)(choice & 1 ? ldexp(1, exponent - 1) : x);
	base = step_from(base, (int)(choice >> 1 & 1));
	if (choice & 4)
		base = nextafterf(base, 0);
	return choice & 8 ? -base : base;
}

static struct common common_of(uint32_t dtype, enum row_kind kind, uint64_t *state)
{
	struct common c = {.spread = 1, .mask = row_random(state)};

	switch (kind) {
	case ROW_SHIFTED: c.centre = 1000 * (2 * uniform(state) - 1); break;
	case ROW_TINY: c.spread = log_uniform(state, -35, -10); break;
	case ROW_HUGE: c.spread = (double)kv_dtype_largest(dtype) * uniform(state); break;
	case ROW_FULL: c.spread = (double)kv_dtype_largest(dtype); break;
	case ROW_CONSTANT: c.base = finite_bits(dtype, row_random(state)); break;
	case ROW_FAR_CONSTANT: c.base = far_base(dtype, 8, state); break;
	case ROW_NEIGHBOURS:
	case ROW_FEW_ULP: c.base = far_base(dtype, 7, state); break;
	case ROW_TIES: c.spread = ldexp(1, (int)(row_random(state) % 12) - 8); break;
	default: break;
	}
	return c;
}

static double element(uint32_t dtype, enum row_kind kind, const struct common *c, size_t i,
		      uint64_t *state)
{
	switch (kind) {
	case ROW_HUGE: return c->spread * (2 * uniform(state) - 1);
	case ROW_FULL: return i < 2 ? (i ? 1 : -1) * c->spread : c->spread * normal(state) / 6;
	case ROW_CONSTANT:
	case ROW_FAR_CONSTANT: return (double)c->base;
	case ROW_NEIGHBOURS: return (double)step_from(c->base, i == 0 || row_random(state) & 1);
	case ROW_FEW_ULP: return (double)step_from(c->base, (int)(row_random(state) % 4));
	case ROW_ZERO: return sign(state) * 0.0;
	case ROW_OUTLIER: return normal(state) * (i == c->mask % 16 ? 10000 : 1);
	case ROW_DENORMAL:
		return sign(state) * uniform(state) * (dtype == KV_DTYPE_F16 ? 0x1p-14 : 0x1p-126);
	case ROW_TIES: return ((double)(row_random(state) % 511) - 255) * 0.5 * c->spread;
	case ROW_LOG: return sign(state) * log_uniform(state, -20, 4);
	case ROW_BITS: return (double)finite_bits(dtype, row_random(state));
	default: return c->centre + c->spread * normal(state);
	}
}

void row_make(const struct kv_codec *codec, enum row_kind kind, uint64_t number, char *vector)
{
	uint64_t state = number * ROW_N_KINDS + (uint64_t)kind;
	float largest = kv_dtype_largest(codec->dtype);
	struct common c = common_of(codec->dtype, kind, &state);

	for (size_t i = 0; i < codec->width; i++) {
		double x = element(codec->dtype, kind, &c, i, &state);

		x = fmax(fmin(x, (double)largest), -(double)largest);
		kv_element_set(codec->dtype, vector, i, (float)x);
	}
}
