/* The policies of the library by their names. */
#include <stdio.h>
#include <string.h>

#include "client/policy/policy.h"

static const struct kvc_policy_ops *const policies[] = {
	&kv_policy_dense,         &kv_policy_ring, &kv_policy_lastrec,
	&kv_policy_smart_lastrec, &kv_policy_h2o,  &kv_policy_h2o_orig,
	&kv_policy_h2o_vlen,      &kv_policy_qh2o, &kv_policy_qh2o_vlen,
};

const struct kvc_policy_ops *kv_policy_named(const char *name)
{
	for (size_t i = 0; name && i < sizeof(policies) / sizeof(policies[0]); i++)
		if (strcmp(policies[i]->name, name) == 0)
			return policies[i];
	return NULL;
}

void kv_policy_names(char *text, size_t n_bytes)
{
	size_t used = 0;

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]) && used < n_bytes; i++)
		used += (size_t)snprintf(text + used, n_bytes - used, "%s%s", i ? ", " : "",
					 policies[i]->name);
}
