/*
 * Points at which a test can make the process die: between every two stores of append, commit,
 * rollback, freeze and takeover. Compiled in by --enable-fault-injection only; otherwise nothing
 * is left of them.
 */
#ifndef KV_PROTO_FAULT_H
#define KV_PROTO_FAULT_H

#include <stdint.h>

/* Number of points passed so far, and at which the process kills itself (0: never). */
extern uint64_t kv_fault_passed, kv_fault_at;

void kv_fault_pass(void);

/* For a process that the test does not start itself: the environment variable says at which point
 * at most it dies; each process draws its own. */
void kv_fault_from_env(const char *variable);

#ifdef KV_FAULT_INJECTION
#define KV_FAULT_POINT() kv_fault_pass()
#define KV_FAULT_FROM_ENV(variable) kv_fault_from_env(variable)
#else
#define KV_FAULT_POINT() ((void)0)
#define KV_FAULT_FROM_ENV(variable) ((void)0)
#endif

#endif
