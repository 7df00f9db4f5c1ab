/* The norm of a vector as keys_values takes it: squares summed in eight columns, then the columns,
 * then what does not fill eight. Quantisation errors have the same order (client/compute/error.c).
 */
#include <math.h>

#include "client/compute/convert.h"
#include "client/policy/policy.h"

#define COLUMNS 8u

float kv_policy_norm(uint32_t dtype, uint32_t width, const void *vector)
{
	uint32_t n_columned = width - width % COLUMNS;
	float columns[COLUMNS] = {0}, sum;

	for (uint32_t i = 0; i < n_columned; i++) {
		float x = kv_element(dtype, vector, i);

		columns[i % COLUMNS] += x * x;
	}
	sum = columns[0];
	for (uint32_t j = 1; j < COLUMNS; j++)
		sum += columns[j];
	for (uint32_t i = n_columned; i < width; i++) {
		float x = kv_element(dtype, vector, i);

		sum += x * x;
	}
	return sqrtf(sum);
}
