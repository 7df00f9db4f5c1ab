/* The policies of the library by their names; the error text of kvc_policy_find has them too. */
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
