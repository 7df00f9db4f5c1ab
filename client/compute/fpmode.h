/*
 * The floating-point settings of a thread, put to IEEE's own for the time of a call: round to
 * nearest, denormals kept, nothing trapped. Some programs flush denormals (all that are linked
 * with -ffast-math do), and the bytes that are stored must not depend on it. Which exceptions there
 * were is not kept.
 */
#ifndef KV_CLIENT_COMPUTE_FPMODE_H
#define KV_CLIENT_COMPUTE_FPMODE_H

#if defined(__x86_64__)
#include <xmmintrin.h>

typedef unsigned kv_fpmode;
#define KV_FPMODE_IEEE 0x1f80u /* all exceptions masked */
#define KV_FPMODE_FLAGS 0x3fu  /* exceptions that there were: no setting */

static inline kv_fpmode kv_fpmode_enter(void)
{
	kv_fpmode mode = _mm_getcsr() & ~KV_FPMODE_FLAGS;

	if (mode != KV_FPMODE_IEEE)
		_mm_setcsr(KV_FPMODE_IEEE);
	return mode;
}

static inline void kv_fpmode_leave(kv_fpmode mode)
{
	if (mode != KV_FPMODE_IEEE)
		_mm_setcsr(mode);
}

#else
#include <fenv.h>

typedef fenv_t kv_fpmode;

static inline kv_fpmode kv_fpmode_enter(void)
{
	fenv_t mode;

	fegetenv(&mode);
	fesetenv(FE_DFL_ENV);
	return mode;
}

static inline void kv_fpmode_leave(kv_fpmode mode)
{
	fesetenv(&mode);
}
#endif

#endif
