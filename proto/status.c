#include "proto/status.h"

const char *kv_status_text(int status)
{
	switch (status) {
#define X(name, number, text) \
	case number: return text;
		KV_STATUS_TABLE(X)
#undef X
	}
	return "unknown status";
}

const char *kv_status_name(int status)
{
	switch (status) {
#define X(name, number, text) \
	case number: return "KVC_" #name;
		KV_STATUS_TABLE(X)
#undef X
	}
	return "KVC_UNKNOWN";
}
