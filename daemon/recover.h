/*
 * After a core's death: writers that it held or wanted are let go, operators' rollbacks that it
 * had decided are done, processes are watched again. Core thread, at the start.
 */
#ifndef KV_DAEMON_RECOVER_H
#define KV_DAEMON_RECOVER_H

#include "daemon/state.h"

void recover_sessions(struct core *core);

#endif
