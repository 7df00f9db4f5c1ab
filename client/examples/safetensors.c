#include "client/examples/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

struct safetensors {
	char *path;
	unsigned char *owned; /* the file's bytes when we read them ourselves */
	const unsigned char *bytes;
	size_t n_bytes;
	json_t *header;
	struct safetensors_tensor *tensors;
	size_t n_tensors;
};

static const struct {
	const char *name;
	size_t n_bytes;
} types[] = {
	[ST_U8] = {"U8", 1},     [ST_I8] = {"I8", 1},   [ST_I16] = {"I16", 2},
	[ST_I32] = {"I32", 4},   [ST_I64] = {"I64", 8}, [ST_F16] = {"F16", 2},
	[ST_BF16] = {"BF16", 2}, [ST_F32] = {"F32", 4}, [ST_F64] = {"F64", 8},
};

const char *safetensors_type_name(enum safetensors_type type)
{
	return types[type].name;
}

/* A number of the header as size_t; -1 when it is none or negative. */
static int json_size(const json_t *value, size_t *out)
{
	if (!json_is_integer(value) || json_integer_value(value) < 0)
		return -1;
	*out = (size_t)json_integer_value(value);
	return 0;
}

static int tensor_type(struct safetensors *st, struct safetensors_tensor *t, const json_t *value,
		       struct errbuf *err)
{
	const char *name = json_string_value(value);

	for (size_t i = 0; name && i < sizeof(types) / sizeof(types[0]); i++) {
		if (strcmp(types[i].name, name) == 0) {
			t->type = (enum safetensors_type)i;
			return 0;
		}
	}
	return errbuf_set(err, KV_EUNSUPPORTED, "%s: tensor %s: unknown type %s", st->path, t->name,
			  name ? name : "(not a string)");
}

static int tensor_shape(struct safetensors *st, struct safetensors_tensor *t, const json_t *value,
			struct errbuf *err)
{
	size_t n = 1;

	if (!json_is_array(value))
		return errbuf_set(err, KV_EPROTO, "%s: tensor %s: shape is not a list", st->path,
				  t->name);
	t->n_dims = json_array_size(value);
	if (t->n_dims > SAFETENSORS_MAX_DIMS)
		return errbuf_set(err, KV_ETOOBIG, "%s: tensor %s: %zu dimensions, the limit is %d",
				  st->path, t->name, t->n_dims, SAFETENSORS_MAX_DIMS);
	for (size_t i = 0; i < t->n_dims; i++) {
		if (json_size(json_array_get(value, i), &t->dims[i]) < 0)
			return errbuf_set(err, KV_EPROTO,
					  "%s: tensor %s: dimension %zu is not a whole number",
					  st->path, t->name, i);
		if (__builtin_mul_overflow(n, t->dims[i], &n))
			return errbuf_set(err, KV_ETOOBIG, "%s: tensor %s: shape is too large",
					  st->path, t->name);
	}
	t->n_elements = n;
	return 0;
}

static int tensor_data(struct safetensors *st, struct safetensors_tensor *t, const json_t *value,
		       size_t data_off, struct errbuf *err)
{
	size_t begin, end, want, n_data = st->n_bytes - data_off;

	if (json_array_size(value) != 2 || json_size(json_array_get(value, 0), &begin) < 0 ||
	    json_size(json_array_get(value, 1), &end) < 0)
		return errbuf_set(err, KV_EPROTO,
				  "%s: tensor %s: data_offsets are not two whole numbers", st->path,
				  t->name);
	if (begin > end || end > n_data)
		return errbuf_set(
			err, KV_ECORRUPT,
			"%s: tensor %s: bytes %zu to %zu are outside the %zu bytes of data; "
			"is the file cut short?",
			st->path, t->name, begin, end, n_data);
	if (__builtin_mul_overflow(t->n_elements, types[t->type].n_bytes, &want) ||
	    want != end - begin)
		return errbuf_set(err, KV_ECORRUPT,
				  "%s: tensor %s: %zu bytes of data for %zu elements of type %s",
				  st->path, t->name, end - begin, t->n_elements,
				  types[t->type].name);
	t->data = st->bytes + data_off + begin;
	t->n_bytes = want;
	return 0;
}

static int by_data(const void *a, const void *b)
{
	const struct safetensors_tensor *x = a, *y = b;

	if (x->data != y->data)
		return x->data < y->data ? -1 : 1;
	return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes);
}

static int check_overlap(struct safetensors *st, struct errbuf *err)
{
	if (st->n_tensors)
		qsort(st->tensors, st->n_tensors, sizeof(*st->tensors), by_data);
	for (size_t i = 1; i < st->n_tensors; i++) {
		const struct safetensors_tensor *a = &st->tensors[i - 1], *b = &st->tensors[i];

		if (a->data + a->n_bytes > b->data)
			return errbuf_set(err, KV_ECORRUPT, "%s: tensors %s and %s overlap",
					  st->path, a->name, b->name);
	}
	return 0;
}

static int check_metadata(struct safetensors *st, struct errbuf *err)
{
	json_t *meta = json_object_get(st->header, "__metadata__"), *value;
	const char *key;

	if (!meta)
		return 0;
	if (!json_is_object(meta))
		return errbuf_set(err, KV_EPROTO, "%s: __metadata__ is not an object", st->path);
	json_object_foreach(meta, key, value) if (!json_is_string(value)) return errbuf_set(
		err, KV_EPROTO, "%s: metadata %s is not a string", st->path, key);
	return 0;
}

static int read_tensors(struct safetensors *st, size_t data_off, struct errbuf *err)
{
	json_t *value;
	const char *key;

	st->tensors = calloc(json_object_size(st->header) + 1, sizeof(*st->tensors));
	if (!st->tensors)
		return errbuf_set(err, KV_ENOMEM, "%s: out of memory", st->path);
	json_object_foreach(st->header, key, value)
	{
		struct safetensors_tensor *t = &st->tensors[st->n_tensors];

		if (strcmp(key, "__metadata__") == 0)
			continue;
		t->name = key;
		if (tensor_type(st, t, json_object_get(value, "dtype"), err) < 0 ||
		    tensor_shape(st, t, json_object_get(value, "shape"), err) < 0 ||
		    tensor_data(st, t, json_object_get(value, "data_offsets"), data_off, err) < 0)
			return -1;
		st->n_tensors++;
	}
	return check_overlap(st, err);
}

static int read_header(struct safetensors *st, size_t *data_off, struct errbuf *err)
{
	json_error_t fault;
	uint64_t n = 0;

	if (st->n_bytes < 8)
		return errbuf_set(err, KV_ECORRUPT,
				  "%s: %zu bytes are too few for a safetensors file", st->path,
				  st->n_bytes);
	for (size_t i = 0; i < 8; i++)
		n |= (uint64_t)st->bytes[i] << (8 * i);
	if (n > st->n_bytes - 8 || n > SAFETENSORS_MAX_HEADER_BYTES)
		return errbuf_set(err, KV_ECORRUPT,
				  "%s: header of %" PRIu64 " bytes in a file of %zu (limit %d)",
				  st->path, n, st->n_bytes, SAFETENSORS_MAX_HEADER_BYTES);
	st->header = json_loadb((const char *)st->bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES,
				&fault);
	if (!st->header)
		return errbuf_set(err, KV_EPROTO, "%s: header is not JSON: %s (byte %d)", st->path,
				  fault.text, fault.position);
	if (!json_is_object(st->header))
		return errbuf_set(err, KV_EPROTO, "%s: header is not a JSON object", st->path);
	*data_off = 8 + (size_t)n;
	return 0;
}

static int parse(struct safetensors *st, struct errbuf *err)
{
	size_t data_off;

	if (read_header(st, &data_off, err) < 0 || check_metadata(st, err) < 0)
		return -1;
	return read_tensors(st, data_off, err);
}

static struct safetensors *st_new(const char *path, struct errbuf *err)
{
	struct safetensors *st = calloc(1, sizeof(*st));

	if (st)
		st->path = strdup(path);
	if (!st || !st->path) {
		errbuf_set(err, KV_ENOMEM, "%s: out of memory", path);
		free(st);
		return NULL;
	}
	return st;
}

int safetensors_parse(struct safetensors **out, const char *name, const unsigned char *bytes,
		      size_t n_bytes, struct errbuf *err)
{
	struct safetensors *st = st_new(name, err);

	*out = NULL;
	if (!st)
		return -1;
	st->bytes = bytes;
	st->n_bytes = n_bytes;
	if (parse(st, err) < 0) {
		safetensors_close(st);
		return -1;
	}
	*out = st;
	return 0;
}

/* Reads at most the size that fstat gave: a file that grows meanwhile is read as it was. */
static int read_file(struct safetensors *st, int fd, struct errbuf *err)
{
	struct stat info;

	if (fstat(fd, &info) < 0)
		return errbuf_errno(err, KV_EINVAL, errno, "%s: fstat", st->path);
	if (!S_ISREG(info.st_mode))
		return errbuf_set(err, KV_EINVAL, "%s: not a regular file", st->path);
	st->owned = malloc((size_t)info.st_size + 1);
	if (!st->owned)
		return errbuf_set(err, KV_ENOMEM, "%s: no memory for %lld bytes", st->path,
				  (long long)info.st_size);
	while (st->n_bytes < (size_t)info.st_size) {
		ssize_t n = read(fd, st->owned + st->n_bytes, (size_t)info.st_size - st->n_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errbuf_errno(err, KV_EINVAL, errno, "%s: read", st->path);
		if (n == 0)
			break;
		st->n_bytes += (size_t)n;
	}
	st->bytes = st->owned;
	return 0;
}

int safetensors_open(struct safetensors **out, const char *path, struct errbuf *err)
{
	struct safetensors *st = st_new(path, err);
	int fd = -1, rc = -1;

	*out = NULL;
	if (!st)
		goto out;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		errbuf_errno(err, KV_ENOTFOUND, errno, "%s: cannot open", path);
		goto out;
	}
	if (read_file(st, fd, err) < 0 || parse(st, err) < 0)
		goto out;
	*out = st;
	st = NULL;
	rc = 0;
out:
	if (fd >= 0)
		close(fd);
	safetensors_close(st);
	return rc;
}

void safetensors_close(struct safetensors *st)
{
	if (!st)
		return;
	json_decref(st->header);
	free(st->tensors);
	free(st->owned);
	free(st->path);
	free(st);
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name)
{
	for (size_t i = 0; i < st->n_tensors; i++)
		if (strcmp(st->tensors[i].name, name) == 0)
			return &st->tensors[i];
	return NULL;
}

const char *safetensors_metadata(const struct safetensors *st, const char *key)
{
	return json_string_value(json_object_get(json_object_get(st->header, "__metadata__"), key));
}

const unsigned char *safetensors_bytes(const struct safetensors *st, size_t *n_bytes)
{
	*n_bytes = st->n_bytes;
	return st->bytes;
}
