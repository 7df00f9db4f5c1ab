/* A safetensors file: what the parser lets through can be read to the last byte. */
#include "client/examples/safetensors.h"
#include "tests/fuzz/target.h"

static volatile unsigned int sink;

static void read_tensor(const struct safetensors *st, const char *name)
{
	const struct safetensors_tensor *t = safetensors_find(st, name);
	unsigned int sum = 0;

	for (size_t i = 0; t && i < t->n_bytes; i++)
		sum += t->data[i];
	sink = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct safetensors *st;
	struct errbuf err;

	if (safetensors_parse(&st, "fuzz", data, size, &err) == 0) {
		read_tensor(st, "x");
		read_tensor(st, "y");
		read_tensor(st, "z");
		safetensors_metadata(st, "format");
	}
	safetensors_close(st);
	return 0;
}
