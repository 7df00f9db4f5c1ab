/*
 * Whose object is it? A word in a page that the kernel wipes at fork: 1 in the process that made
 * it, 0 in a child. (getpid() is a system call, which the hot path must not make.) Any thread.
 */
#ifndef KV_CLIENT_OWN_PAGE_H
#define KV_CLIENT_OWN_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* NULL with KVC_ENOMEM, or KVC_EUNSUPPORTED where the kernel cannot do that; freed by
 * own_page_free (NULL is allowed). */
_Atomic uint32_t *own_page_new(void);
void own_page_free(_Atomic uint32_t *own);

static inline bool own_page_is_ours(const _Atomic uint32_t *own)
{
	return __builtin_expect(atomic_load_explicit(own, memory_order_relaxed) != 0, 1);
}

#endif
