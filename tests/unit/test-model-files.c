/*
 * Files for the example decoder: damaged and hostile ones are refused with a message that names
 * the fault, and a model of another geometry gives what plain f64 arithmetic gives.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/examples/kv_private.h"
#include "client/examples/llama_model.h"
#include "client/examples/prompt.h"
#include "client/examples/safetensors.h"
#include "client/examples/tokenizer.h"
#include "tests/support/runner.h"
#include "tests/support/tmpdir.h"

static struct errbuf err;

#define OK(call) assert_true((call) == 0 || (fprintf(stderr, "%s\n", err.text), false))

static void assert_refused(int rc, const char *text)
{
	assert_int_equal(rc, -1);
	if (!strstr(err.text, text))
		fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

/* ---- safetensors ---- */

/* A file with the header and n_data bytes 0, 1, 2 ...; freed by the caller. */
static unsigned char *build(const char *header, size_t n_data, size_t *n_bytes)
{
	size_t n_header = strlen(header);
	unsigned char *bytes = calloc(1, 8 + n_header + n_data + 1);

	assert_non_null(bytes);
	for (size_t i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(n_header >> (8 * i));
	memcpy(bytes + 8, header, n_header);
	for (size_t i = 0; i < n_data; i++)
		bytes[8 + n_header + i] = (unsigned char)i;
	*n_bytes = 8 + n_header + n_data;
	return bytes;
}

static int parse(const unsigned char *bytes, size_t n_bytes)
{
	struct safetensors *st;
	int rc = safetensors_parse(&st, "file", bytes, n_bytes, &err);

	safetensors_close(st);
	return rc;
}

#define T(type, shape, from, to) \
	"{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" from "," to "]}"

static void test_good_file(void **state)
{
	const char *header = "{\"__metadata__\":{\"a\":\"b\"},\"x\":" T(
		"F32", "[2,3]", "0", "24") ","
					   "\"gap\":" T("U8", "[3]", "32", "35") ",\"empty\":" T(
						   "I32", "[0]", "35",
						   "35") ",\"scalar\":" T("F64", "[]", "35",
									  "43") "}  ";
	struct safetensors *st;
	const struct safetensors_tensor *t;
	size_t n;
	unsigned char *bytes = build(header, 43, &n);

	(void)state;
	OK(safetensors_parse(&st, "file", bytes, n, &err));
	assert_string_equal(safetensors_metadata(st, "a"), "b");
	assert_null(safetensors_metadata(st, "c"));
	assert_null(safetensors_find(st, "y"));
	assert_null(safetensors_find(st, "__metadata__"));
	t = safetensors_find(st, "x");
	assert_non_null(t);
	assert_int_equal(t->type, ST_F32);
	assert_int_equal(t->n_dims, 2);
	assert_int_equal(t->dims[1], 3);
	assert_int_equal(t->n_elements, 6);
	assert_int_equal(t->data[23], 23);
	assert_int_equal(safetensors_find(st, "gap")->data[0], 32);
	assert_int_equal(safetensors_find(st, "empty")->n_bytes, 0);
	assert_int_equal(safetensors_find(st, "scalar")->n_elements, 1);
	safetensors_close(st);
	free(bytes);
}

static const struct bad_header {
	const char *header;
	size_t n_data;
	const char *text;
} bad_headers[] = {
	{"", 0, "header is not JSON"},
	{"{\"x\":", 0, "header is not JSON"},
	{"[1,2]", 0, "not a JSON object"},
	{"{\"x\":1}", 0, "unknown type"},
	{"{\"x\":{\"dtype\":7}}", 0, "unknown type (not a string)"},
	{"{\"x\":" T("F31", "[1]", "0", "4") "}", 4, "unknown type F31"},
	{"{\"x\":" T("F32", "7", "0", "4") "}", 4, "shape is not a list"},
	{"{\"x\":" T("F32", "[-1]", "0", "4") "}", 4, "dimension 0 is not a whole number"},
	{"{\"x\":" T("F32", "[1.5]", "0", "4") "}", 4, "dimension 0 is not a whole number"},
	{"{\"x\":" T("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4, "9 dimensions"},
	{"{\"x\":" T("F32", "[4294967296,4294967296,0]", "0", "0") "}", 4, "shape is too large"},
	/* 2^62 elements of 4 bytes are 0 modulo 2^64 */
	{"{\"x\":" T("F32", "[4611686018427387904]", "0", "0") "}", 4, "0 bytes of data for"},
	{"{\"x\":" T("F32", "[2]", "0", "4") "}", 8, "4 bytes of data for 2 elements"},
	{"{\"x\":" T("F32", "[1]", "0", "8") "}", 8, "8 bytes of data for 1 elements"},
	{"{\"x\":" T("BF16", "[2]", "0", "8") "}", 8,
	 "8 bytes of data for 2 elements of type BF16"},
	{"{\"x\":" T("F32", "[2]", "0", "8") "}", 7, "outside the 7 bytes of data"},
	{"{\"x\":" T("F32", "[2]", "8", "0") "}", 8, "outside the 8 bytes"},
	{"{\"x\":" T("F32", "[2]", "-8", "0") "}", 8, "not two whole numbers"},
	{"{\"x\":" T("F32", "[1]", "9223372036854775800", "9223372036854775804") "}", 8, "outside"},
	{"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 8, "not two whole"},
	{"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 8, "not two whole"},
	{"{\"x\":" T("U8", "[4]", "0", "4") ",\"y\":" T("U8", "[4]", "3", "7") "}", 8, "overlap"},
	{"{\"x\":" T("U8", "[4]", "0", "4") ",\"y\":" T("U8", "[2]", "1", "3") "}", 8, "overlap"},
	{"{\"x\":" T("U8", "[4]", "0", "4") ",\"y\":" T("U8", "[4]", "0", "4") "}", 8, "overlap"},
	{"{\"x\":" T("U8", "[1]", "0", "1") ",\"x\":" T("U8", "[1]", "1", "2") "}", 8, "duplicate"},
	{"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
	{"{\"__metadata__\":{\"a\":1}}", 0, "metadata a is not a string"},
};

static void test_bad_headers(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad_headers) / sizeof(bad_headers[0]); i++) {
		size_t n;
		unsigned char *bytes = build(bad_headers[i].header, bad_headers[i].n_data, &n);

		assert_refused(parse(bytes, n), bad_headers[i].text);
		free(bytes);
	}
}

static void test_header_length(void **state)
{
	size_t n;
	unsigned char *bytes = build("{\"x\":" T("U8", "[4]", "0", "4") "}", 4, &n);

	(void)state;
	assert_int_equal(parse(bytes, n), 0);
	for (size_t cut = 0; cut < n; cut++) {
		/* In memory of exactly that size, so that a read beyond it is seen. */
		unsigned char *part = malloc(cut ? cut : 1);

		assert_non_null(part);
		memcpy(part, bytes, cut);
		assert_int_equal(parse(part, cut), -1);
		free(part);
	}
	assert_refused(parse(bytes, 7), "too few");
	memset(bytes, 0xff, 8);
	assert_refused(parse(bytes, n), "header of 18446744073709551615 bytes");
	free(bytes);
}

static void test_deep_header(void **state)
{
	size_t n, depth = 100000;
	char *header = malloc(depth + 1);
	unsigned char *bytes;

	(void)state;
	assert_non_null(header);
	memset(header, '[', depth);
	header[depth] = '\0';
	bytes = build(header, 0, &n);
	assert_refused(parse(bytes, n), "header is not JSON");
	free(header);
	free(bytes);
}

static void test_no_file(void **state)
{
	struct safetensors *st;
	struct llama *m;

	(void)state;
	assert_refused(safetensors_open(&st, "/nonexistent/x", &err),
		       "/nonexistent/x: cannot open");
	assert_null(st);
	assert_refused(safetensors_open(&st, "/", &err), "not a regular file");
	assert_refused(llama_open(&m, "/dev/null", &err), "not a regular file");
	assert_null(m);
}

/* ---- a small model of another shape ---- */

/* Nothing here is a multiple of 8, and three query heads share a KV head. */
static const struct llama_geometry tiny = {
	.n_layers = 2,
	.d_model = 20,
	.n_heads = 6,
	.n_kv_heads = 2,
	.head_dim = 10,
	.d_ffn = 27,
	.vocab = 37,
	.context = 70,
	.rope_theta = 500,
	.norm_eps = 1e-3f,
};

struct weight {
	char name[24];
	size_t n_dims, dims[2], n;
	float *values;
};

struct weights {
	struct weight list[32];
	size_t n;
};

static void add_weight(struct weights *w, const char *name, size_t layer, size_t d0, size_t d1)
{
	struct weight *t = &w->list[w->n];
	static uint32_t random = 1;

	*t = (struct weight){.n_dims = d1 ? 2 : 1, .dims = {d0, d1}, .n = d0 * (d1 ? d1 : 1)};
	if (layer < tiny.n_layers)
		snprintf(t->name, sizeof(t->name), "l%zu.%s", layer, name);
	else
		snprintf(t->name, sizeof(t->name), "%s", name);
	t->values = malloc(t->n * sizeof(*t->values));
	assert_non_null(t->values);
	for (size_t i = 0; i < t->n; i++) {
		random = random * 1664525 + 1013904223;
		t->values[i] = (float)(random >> 8) / 8388608.0f - 1.0f;
	}
	w->n++;
}

static void make_weights(struct weights *w)
{
	size_t d = tiny.d_model, q = tiny.n_heads * tiny.head_dim;
	size_t kv = tiny.n_kv_heads * tiny.head_dim;

	w->n = 0;
	add_weight(w, "embed", SIZE_MAX, tiny.vocab, d);
	add_weight(w, "norm", SIZE_MAX, d, 0);
	for (size_t l = 0; l < tiny.n_layers; l++) {
		add_weight(w, "attn_norm", l, d, 0);
		add_weight(w, "wq", l, q, d);
		add_weight(w, "wk", l, kv, d);
		add_weight(w, "wv", l, kv, d);
		add_weight(w, "wo", l, d, q);
		add_weight(w, "ffn_norm", l, d, 0);
		add_weight(w, "w1", l, tiny.d_ffn, d);
		add_weight(w, "w2", l, d, tiny.d_ffn);
		add_weight(w, "w3", l, tiny.d_ffn, d);
	}
}

static void free_weights(struct weights *w)
{
	for (size_t i = 0; i < w->n; i++)
		free(w->list[i].values);
}

/* Writes a model file; the metadata is tiny's, with the entry `key` replaced (or left out when
 * value is NULL). skip leaves out a tensor. */
static void write_model(const char *path, const struct weights *w, const char *key,
			const char *value, const char *skip)
{
	static const char *const meta[][2] = {
		{"n_layers", "2"},    {"d_model", "20"},        {"n_heads", "6"},
		{"n_kv_heads", "2"},  {"head_dim", "10"},       {"d_ffn", "27"},
		{"vocab", "37"},      {"context", "70"},        {"rope_theta", "500.0"},
		{"norm_eps", "1e-3"}, {"rope_pairing", "half"}, {"tied_embedding", "1"},
	};
	char header[8192], *to = header;
	FILE *file = fopen(path, "we");
	unsigned char length[8] = {0};
	size_t off = 0, n;

	assert_non_null(file);
	to += sprintf(to, "{\"__metadata__\":{\"format\":\"test\"");
	for (size_t i = 0; i < sizeof(meta) / sizeof(meta[0]); i++) {
		int same = key && strcmp(key, meta[i][0]) == 0;

		if (!same || value)
			to += sprintf(to, ",\"%s\":\"%s\"", meta[i][0], same ? value : meta[i][1]);
	}
	to += sprintf(to, "}");
	for (size_t i = 0; i < w->n; i++) {
		const struct weight *t = &w->list[i];

		if (skip && strcmp(skip, t->name) == 0)
			continue;
		to += sprintf(to, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%zu", t->name, t->dims[0]);
		if (t->n_dims == 2)
			to += sprintf(to, ",%zu", t->dims[1]);
		to += sprintf(to, "],\"data_offsets\":[%zu,%zu]}", off, off + t->n * 4);
		off += t->n * 4;
	}
	to += sprintf(to, "}");
	n = (size_t)(to - header);
	for (size_t i = 0; i < 8; i++)
		length[i] = (unsigned char)(n >> (8 * i));
	fwrite(length, 1, 8, file);
	fwrite(header, 1, n, file);
	for (size_t i = 0; i < w->n; i++)
		if (!skip || strcmp(skip, w->list[i].name) != 0)
			fwrite(w->list[i].values, 4, w->list[i].n, file);
	assert_int_equal(fclose(file), 0);
}

/* ---- the same arithmetic, as it is written down, in f64 ---- */

static const float *weight_of(const struct weights *w, size_t layer, const char *name)
{
	char full[32];

	if (layer < tiny.n_layers)
		snprintf(full, sizeof(full), "l%zu.%s", layer, name);
	else
		snprintf(full, sizeof(full), "%s", name);
	for (size_t i = 0; i < w->n; i++)
		if (strcmp(w->list[i].name, full) == 0)
			return w->list[i].values;
	fail_msg("no weight %s", full);
	return NULL;
}

#define MAX_N 64

static void plain_matrix(const float *m, const double *x, double *y, size_t n_out, size_t n_in)
{
	for (size_t o = 0; o < n_out; o++) {
		y[o] = 0;
		for (size_t i = 0; i < n_in; i++)
			y[o] += (double)m[o * n_in + i] * x[i];
	}
}

static void plain_norm(const double *x, const float *gain, double *y)
{
	double sum = 0;

	for (size_t i = 0; i < tiny.d_model; i++)
		sum += x[i] * x[i];
	for (size_t i = 0; i < tiny.d_model; i++)
		y[i] = x[i] / sqrt(sum / (double)tiny.d_model + (double)tiny.norm_eps) *
		       (double)gain[i];
}

static void plain_rope(double *head, size_t position)
{
	size_t half = tiny.head_dim / 2;

	for (size_t i = 0; i < half; i++) {
		double a = (double)position * pow(tiny.rope_theta, -(double)i / (double)half);
		double x = head[i], y = head[i + half];

		head[i] = x * cos(a) - y * sin(a);
		head[i + half] = y * cos(a) + x * sin(a);
	}
}

static double plain_k[2][70][20], plain_v[2][70][20];

static void plain_attention(size_t layer, const double *q, size_t position, double *o)
{
	size_t dim = tiny.head_dim;

	for (size_t h = 0; h < tiny.n_heads; h++) {
		size_t g = h / (tiny.n_heads / tiny.n_kv_heads) * dim;
		double sum = 0, out[10] = {0};

		for (size_t i = 0; i <= position; i++) {
			double s = 0, e;

			for (size_t d = 0; d < dim; d++)
				s += q[h * dim + d] * plain_k[layer][i][g + d];
			e = exp(s / sqrt((double)dim));
			sum += e;
			for (size_t d = 0; d < dim; d++)
				out[d] += e * plain_v[layer][i][g + d];
		}
		for (size_t d = 0; d < dim; d++)
			o[h * dim + d] = out[d] / sum;
	}
}

static void plain_layer(const struct weights *w, size_t l, size_t position, double *x)
{
	double h[MAX_N], q[MAX_N], o[MAX_N], a[MAX_N], b[MAX_N], y[MAX_N];
	size_t dim = tiny.head_dim, d = tiny.d_model;

	plain_norm(x, weight_of(w, l, "attn_norm"), h);
	plain_matrix(weight_of(w, l, "wq"), h, q, 60, d);
	plain_matrix(weight_of(w, l, "wk"), h, plain_k[l][position], 20, d);
	plain_matrix(weight_of(w, l, "wv"), h, plain_v[l][position], 20, d);
	for (size_t i = 0; i < tiny.n_heads; i++)
		plain_rope(q + i * dim, position);
	for (size_t i = 0; i < tiny.n_kv_heads; i++)
		plain_rope(plain_k[l][position] + i * dim, position);
	plain_attention(l, q, position, o);
	plain_matrix(weight_of(w, l, "wo"), o, y, d, 60);
	for (size_t i = 0; i < d; i++)
		x[i] += y[i];
	plain_norm(x, weight_of(w, l, "ffn_norm"), h);
	plain_matrix(weight_of(w, l, "w1"), h, a, tiny.d_ffn, d);
	plain_matrix(weight_of(w, l, "w3"), h, b, tiny.d_ffn, d);
	for (size_t i = 0; i < tiny.d_ffn; i++)
		a[i] = a[i] / (1 + exp(-a[i])) * b[i];
	plain_matrix(weight_of(w, l, "w2"), a, y, d, tiny.d_ffn);
	for (size_t i = 0; i < d; i++)
		x[i] += y[i];
}

static void plain_forward(const struct weights *w, uint32_t id, size_t position, double *logits)
{
	double x[MAX_N], h[MAX_N];

	for (size_t i = 0; i < tiny.d_model; i++)
		x[i] = (double)weight_of(w, SIZE_MAX, "embed")[id * tiny.d_model + i];
	for (size_t l = 0; l < tiny.n_layers; l++)
		plain_layer(w, l, position, x);
	plain_norm(x, weight_of(w, SIZE_MAX, "norm"), h);
	plain_matrix(weight_of(w, SIZE_MAX, "embed"), h, logits, tiny.vocab, tiny.d_model);
}

/* ---- tests with that model ---- */

struct fixture {
	char *folder;
	char path[512];
	struct weights w;
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	f->folder = kt_tmpdir_new();
	snprintf(f->path, sizeof(f->path), "%s/model", f->folder);
	make_weights(&f->w);
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	free_weights(&f->w);
	kt_tmpdir_free(f->folder);
	free(f);
	return 0;
}

static void test_other_geometry(void **state)
{
	struct fixture *f = *state;
	enum { N = 70 };
	struct llama *m;
	struct kv_cache *kv;
	uint32_t ids[N];
	float logits[N * 37];
	double want[37];

	write_model(f->path, &f->w, NULL, NULL, NULL);
	OK(llama_open(&m, f->path, &err));
	assert_int_equal(llama_geometry(m)->d_ffn, 27);
	kv = kv_private_new(m, KV_FORMATS_RAW, N, &err);
	assert_non_null(kv);
	for (uint32_t i = 0; i < N; i++)
		ids[i] = i * i % 37;
	OK(llama_forward(m, kv, ids, N, logits, N, &err));
	for (size_t t = 0; t < N; t++) {
		plain_forward(&f->w, ids[t], t, want);
		for (size_t i = 0; i < 37; i++)
			if (!(fabs((double)logits[t * 37 + i] - want[i]) < 1e-3))
				fail_msg("token %zu logit %zu: %g, not %g", t, i,
					 (double)logits[t * 37 + i], want[i]);
	}
	for (size_t i = 0; kernels_at(i); i++) {
		float again[N * 37];

		m->kernels = kernels_at(i);
		llama_set_chunk(m, 1 + 4 * i);
		OK(kv->ops->truncate(kv, 0, &err));
		OK(llama_forward(m, kv, ids, N, again, N, &err));
		assert_memory_equal(again, logits, sizeof(logits));
	}
	kv_free(kv);
	llama_close(m);
}

static const struct bad_model {
	const char *key, *value, *skip, *text;
} bad_models[] = {
	{"n_layers", NULL, NULL, "metadata has no n_layers"},
	{"n_layers", "0", NULL, "n_layers is \"0\""},
	{"n_layers", "3", NULL, "tensor l2.wq is missing"},
	{"n_layers", "99999999999999999999", NULL, "n_layers is"},
	{"d_model", "-20", NULL, "d_model is \"-20\""},
	{"d_model", "24", NULL, "tensor embed has 2 dimensions and 740 elements"},
	{"d_model", "20x", NULL, "d_model is \"20x\""},
	{"n_heads", "5", NULL, "5 query heads cannot be shared out among 2 KV heads"},
	{"n_heads", "4", NULL, "tensor l0.wq has"},
	{"head_dim", "9", NULL, "head_dim 9 is odd"},
	{"d_ffn", "28", NULL, "tensor l0.w1 has"},
	{"vocab", "38", NULL, "tensor embed has"},
	{"context", "1e3", NULL, "context is"},
	{"rope_theta", "nan", NULL, "rope_theta is \"nan\""},
	{"rope_theta", "", NULL, "rope_theta is \"\""},
	{"norm_eps", "-1", NULL, "norm_eps is \"-1\""},
	{"rope_pairing", "neighbours", NULL, "knows only \"half\""},
	{"tied_embedding", "0", NULL, "tied_embedding is \"0\""},
	{NULL, NULL, "norm", "tensor norm is missing"},
	{NULL, NULL, "l1.w2", "tensor l1.w2 is missing"},
};

static void test_bad_models(void **state)
{
	struct fixture *f = *state;
	struct llama *m;

	for (size_t i = 0; i < sizeof(bad_models) / sizeof(bad_models[0]); i++) {
		const struct bad_model *b = &bad_models[i];

		write_model(f->path, &f->w, b->key, b->value, b->skip);
		assert_refused(llama_open(&m, f->path, &err), b->text);
		assert_null(m);
	}
}

static void test_cut_model(void **state)
{
	struct fixture *f = *state;
	struct stat info;
	struct llama *m;

	write_model(f->path, &f->w, NULL, NULL, NULL);
	assert_int_equal(stat(f->path, &info), 0);
	assert_int_equal(truncate(f->path, info.st_size - 1), 0);
	assert_refused(llama_open(&m, f->path, &err), "is the file cut short?");
}

/* ---- tokenizer and id files ---- */

static void write_text(const char *path, const char *text)
{
	FILE *file = fopen(path, "we");

	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static void test_bad_tokenizers(void **state)
{
	static const char *const bad[][2] = {
		{"97 98\n256\n", ":2: not two ids"},
		{"97 98\n\n", ":2: not two ids"},
		{"97 98 99\n", ":1: not two ids"},
		{"a b\n", ":1: not two ids"},
		{"97 256\n", ":1: ids 97 256 must be below 256"},
		{"97 4294967295\n", ":1: not two ids"},
		{"97 98\n98 97\n97 98\n", ":3: pair 97 98 is already in line 1"},
		/* each token twice as long as the one before */
		{"1 1\n256 256\n257 257\n258 258\n259 259\n260 260\n261 261\n262 262\n263 263\n"
		 "264 264\n265 265\n266 266\n267 267\n",
		 ":13: token is longer than 4096 bytes"},
	};
	struct fixture *f = *state;
	struct tokenizer *tok;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_text(f->path, bad[i][0]);
		assert_refused(tokenizer_open(&tok, f->path, &err), bad[i][1]);
		assert_null(tok);
	}
	assert_refused(tokenizer_open(&tok, "/nonexistent", &err), "cannot open");
	write_text(f->path, "");
	OK(tokenizer_open(&tok, f->path, &err));
	assert_int_equal(tokenizer_n_ids(tok), 256);
	tokenizer_close(tok);
}

static void test_merge_order(void **state)
{
	/* (aa) first, leftmost first; then the pair that contains it */
	struct fixture *f = *state;
	struct tokenizer *tok;
	uint32_t ids[8];

	write_text(f->path, "97 97\n256 97\n98 97\n");
	OK(tokenizer_open(&tok, f->path, &err));
	assert_int_equal(tokenizer_encode(tok, (const unsigned char *)"aaaaa", 5, ids), 2);
	assert_int_equal(ids[0], 256);
	assert_int_equal(ids[1], 257);
	assert_int_equal(tokenizer_encode(tok, (const unsigned char *)"baa", 3, ids), 2);
	assert_int_equal(ids[0], 98);
	assert_int_equal(ids[1], 256);
	tokenizer_close(tok);
}

static void test_id_files(void **state)
{
	static const char *const bad[][2] = {
		{"1\n2 3\n", ":2: not a token id"},
		{"-1\n", ":1: not a token id"},
		{"4294967296\n", ":1: not a token id"},
		{"1\n\nx\n", ":3: not a token id"},
	};
	struct fixture *f = *state;
	struct prompt p;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_text(f->path, bad[i][0]);
		assert_refused(prompt_from_ids(&p, f->path, &err), bad[i][1]);
		prompt_fini(&p);
	}
	write_text(f->path, "7\r\n\n  1023 \n4294967295");
	OK(prompt_from_ids(&p, f->path, &err));
	assert_int_equal(p.n, 3);
	assert_int_equal(p.ids[0], 7);
	assert_int_equal(p.ids[1], 1023);
	assert_int_equal(p.ids[2], UINT32_MAX);
	prompt_fini(&p);
}

static const struct CMUnitTest tests[] = {
	KT_TEST("a well-formed safetensors file is read", test_good_file),
	KT_TEST("wrong safetensors headers are refused, each with its fault", test_bad_headers),
	KT_TEST("a file cut anywhere, or with a huge header length, is refused",
		test_header_length),
	KT_TEST("a deeply nested header is refused", test_deep_header),
	KT_TEST("missing and special files are refused", test_no_file),
	KT_TEST("a model of odd sizes gives what f64 arithmetic gives", test_other_geometry),
	KT_TEST("wrong metadata, shapes and missing tensors are refused", test_bad_models),
	KT_TEST("a model file cut by a byte is refused", test_cut_model),
	KT_TEST("wrong merge files are refused with their line", test_bad_tokenizers),
	KT_TEST("merges go lowest first, then leftmost", test_merge_order),
	KT_TEST("files of ids are read, wrong ones refused with their line", test_id_files),
};

int main(int argc, char **argv)
{
	const struct kt_group group = {tests, sizeof(tests) / sizeof(tests[0]), set_up, tear_down};

	return kt_run(argc, argv, &group, 1);
}
