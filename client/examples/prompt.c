#include "client/examples/prompt.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All bytes of a file; *bytes is malloced, also when the file is empty. */
static int read_all(const char *path, unsigned char **bytes, size_t *n_bytes, struct errbuf *err)
{
	FILE *file = fopen(path, "re");
	size_t room = 0, n = 0;
	unsigned char *buffer = NULL, *more;
	int rc = -1;

	if (!file) {
		errbuf_errno(err, KV_ENOTFOUND, errno, "%s: cannot open", path);
		goto out;
	}
	do {
		room = room ? room * 2 : 65536;
		more = realloc(buffer, room);
		if (!more) {
			errbuf_set(err, KV_ENOMEM, "%s: no memory for %zu bytes", path, room);
			goto out;
		}
		buffer = more;
		n += fread(buffer + n, 1, room - n, file);
	} while (n == room);
	if (ferror(file)) {
		errbuf_errno(err, KV_EINVAL, errno, "%s: read", path);
		goto out;
	}
	*bytes = buffer;
	*n_bytes = n;
	buffer = NULL;
	rc = 0;
out:
	if (file)
		fclose(file);
	free(buffer);
	return rc;
}

int prompt_from_text(struct prompt *p, const struct tokenizer *tok, const char *path,
		     struct errbuf *err)
{
	unsigned char *bytes;
	size_t n_bytes;

	*p = (struct prompt){0};
	if (read_all(path, &bytes, &n_bytes, err) < 0)
		return -1;
	p->ids = malloc((n_bytes + 1) * sizeof(*p->ids));
	if (p->ids)
		p->n = tokenizer_encode(tok, bytes, n_bytes, p->ids);
	free(bytes);
	if (!p->ids)
		return errbuf_set(err, KV_ENOMEM, "%s: no memory for %zu ids", path, n_bytes);
	return 0;
}

/* One line as an id; false when it is none. */
static bool parse_id(const char *line, uint32_t *id)
{
	unsigned long long value;
	char *end;

	line += strspn(line, " \t");
	if (*line < '0' || *line > '9')
		return false;
	errno = 0;
	value = strtoull(line, &end, 10);
	*id = (uint32_t)value;
	return !errno && value <= UINT32_MAX && end[strspn(end, " \t\r\n")] == '\0';
}

static int add_id(struct prompt *p, size_t *room, uint32_t id)
{
	uint32_t *more;

	if (p->n == *room) {
		*room = *room ? *room * 2 : 1024;
		more = realloc(p->ids, *room * sizeof(*p->ids));
		if (!more)
			return -1;
		p->ids = more;
	}
	p->ids[p->n++] = id;
	return 0;
}

int prompt_from_ids(struct prompt *p, const char *path, struct errbuf *err)
{
	FILE *file = fopen(path, "re");
	size_t room = 0, number = 0;
	char line[128];
	uint32_t id;
	int rc = -1;

	*p = (struct prompt){0};
	if (!file)
		return errbuf_errno(err, KV_ENOTFOUND, errno, "%s: cannot open", path);
	while (fgets(line, sizeof(line), file)) {
		number++;
		if (line[strspn(line, " \t\r\n")] == '\0')
			continue;
		if (!parse_id(line, &id)) {
			errbuf_set(err, KV_EINVAL, "%s:%zu: not a token id", path, number);
			goto out;
		}
		if (add_id(p, &room, id) < 0) {
			errbuf_set(err, KV_ENOMEM, "%s: no memory for %zu ids", path, p->n);
			goto out;
		}
	}
	if (ferror(file)) {
		errbuf_errno(err, KV_EINVAL, errno, "%s: read", path);
		goto out;
	}
	rc = 0;
out:
	fclose(file);
	return rc;
}

void prompt_fini(struct prompt *p)
{
	free(p->ids);
	*p = (struct prompt){0};
}
