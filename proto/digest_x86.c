#include "proto/digest_wide.h"

kv_block_digest_fn *kv_block_digest_wide(void)
{
	__builtin_cpu_init();
	return __builtin_cpu_supports("avx2") ? kv_block_digest_avx2 : NULL;
}
