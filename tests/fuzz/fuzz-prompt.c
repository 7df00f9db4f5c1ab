/*
 * Files of the example: the first byte says which, the rest is the file. Whatever is in it: it is
 * refused with a reason, or a merge file encodes any bytes so that they come back, and a file of
 * ids gives as many numbers as it says. Thread: one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/examples/prompt.h"
#include "tests/fuzz/target.h"

static volatile uint32_t sink;

static void check_tokenizer(const struct tokenizer *tok, const uint8_t *bytes, size_t n)
{
	uint32_t *ids = malloc((n + 1) * sizeof(ids[0]));
	size_t n_ids, used = 0;

	must(ids != NULL);
	n_ids = tokenizer_encode(tok, bytes, n, ids);
	must(n_ids <= n);
	for (size_t i = 0; i < n_ids; i++) {
		const unsigned char *piece;
		size_t n_piece;

		must(ids[i] < tokenizer_n_ids(tok));
		piece = tokenizer_decode(tok, ids[i], &n_piece);
		must(piece && n_piece <= n - used && memcmp(piece, bytes + used, n_piece) == 0);
		used += n_piece;
	}
	must(used == n);
	free(ids);
}

static void open_tokenizer(const char *path, const uint8_t *data, size_t size)
{
	struct tokenizer *tok;
	struct errbuf err = {0};

	if (tokenizer_open(&tok, path, &err) == 0)
		check_tokenizer(tok, data, size);
	else
		must(!tok && err.status != KV_OK && err.text[0]);
	tokenizer_close(tok);
}

static void open_ids(const char *path)
{
	struct errbuf err = {0};
	struct prompt p;

	if (prompt_from_ids(&p, path, &err) == 0)
		for (size_t i = 0; i < p.n; i++)
			sink = p.ids[i];
	else
		must(err.status != KV_OK && err.text[0]);
	prompt_fini(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("kvcached-test-prompt", MFD_CLOEXEC);
	char path[48];

	must(fd >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (size > 0) {
		must(write(fd, data + 1, size - 1) == (ssize_t)(size - 1));
		if (data[0] % 2 == 0)
			open_tokenizer(path, data + 1, size - 1);
		else
			open_ids(path);
	}
	close(fd);
	return 0;
}
