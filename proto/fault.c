#include "proto/fault.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

uint64_t kv_fault_passed, kv_fault_at;

void kv_fault_pass(void)
{
	/* threads pass points too: engines of input and output */
	if (__atomic_add_fetch(&kv_fault_passed, 1, __ATOMIC_RELAXED) == kv_fault_at)
		kill(getpid(), SIGKILL);
}

void kv_fault_from_env(const char *variable)
{
	const char *text = getenv(variable);
	unsigned long most = text ? strtoul(text, NULL, 10) : 0;
	unsigned int drawn;

	if (most && getrandom(&drawn, sizeof(drawn), 0) == sizeof(drawn))
		kv_fault_at = kv_fault_passed + 1 + drawn % most;
}
