/*
 * tests/vectors/quant FOLDER: runs a set of expected values of the quantised storage formats
 * (tests/data/quant/ORIGIN says what a set is) with every set of kernels that this machine has.
 *
 * For each case: codes, scales, zero points and what is read back must be equal bit for bit, the
 * error within the bound that the codec promises and, as a norm, as the file has it. Widths that
 * the set says are refused must be refused. special.safetensors, where there is one, is run by
 * kvcached's own rules. Prints what is wrong; ends with "N passed, N failed"; status 1 if anything
 * failed or there was nothing to do, 2 for wrong use.
 */
#include "tests/vectors/quant.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/limits.h"

#define ROWS_MAX 1000000

static unsigned n_passed, n_failed;

void tally(bool passed, const char *what, const struct kv_codec *codec,
	   const struct kv_codec_kernels *kernels, const char *reason)
{
	if (passed) {
		n_passed++;
		return;
	}
	n_failed++;
	printf("FAILED: %s, format %s, kernels %s: %s\n", what,
	       codec ? kv_format_name(codec->format) : "-", kernels ? kernels->name : "-", reason);
}

/* ---- the file ------------------------------------------------------------------------------ */

enum safetensors_type tensor_type_of(uint32_t dtype)
{
	if (dtype == KV_DTYPE_F32)
		return ST_F32;
	return dtype == KV_DTYPE_F16 ? ST_F16 : ST_BF16;
}

const unsigned char *tensor(const struct safetensors *file, const char *name,
			    enum safetensors_type type, size_t n_bytes, char reason[160])
{
	const struct safetensors_tensor *found = safetensors_find(file, name);

	if (!found)
		snprintf(reason, 160, "there is no tensor %s", name);
	else if (found->type != type || found->n_bytes != n_bytes)
		snprintf(reason, 160, "tensor %s: %zu bytes of %s, not %zu bytes of %s", name,
			 found->n_bytes, safetensors_type_name(found->type), n_bytes,
			 safetensors_type_name(type));
	else
		return found->data;
	return NULL;
}

/* ---- room ---------------------------------------------------------------------------------- */

static void *filled(size_t n_bytes)
{
	void *room = malloc(n_bytes + 1);

	if (!room)
		abort();
	return memset(room, STORED_PATTERN, n_bytes + 1);
}

struct stored stored_new(const struct kv_codec *codec, size_t n)
{
	struct stored s = {.n = n, .back_stride = codec->width * codec->element_bytes};

	s.at.codes_stride = codec->bytes.codes;
	s.at.scale_stride = codec->bytes.scale;
	s.at.zero_stride = codec->bytes.zero;
	s.at.codes = filled(n * s.at.codes_stride);
	s.at.scale = filled(n * s.at.scale_stride);
	s.at.zero = filled(n * s.at.zero_stride);
	s.back = filled(n * s.back_stride);
	return s;
}

void stored_free(struct stored *s)
{
	free(s->at.codes);
	free(s->at.scale);
	free(s->at.zero);
	free(s->back);
}

/* ---- one case ------------------------------------------------------------------------------ */

struct line {
	char name[64], format[16], dtype[16], status[64];
	int width, n_rows;
};

/* A case with what its file expects; parts that the format does not have are NULL. */
struct expected {
	const struct line *line;
	const unsigned char *input, *codes, *scale, *zero, *dequant, *error;
};

static bool part_of(const struct safetensors *file, const char *name, const char *part,
		    enum safetensors_type type, size_t n_bytes, const unsigned char **out,
		    char reason[160])
{
	char full[160];

	snprintf(full, sizeof(full), "%s.%s", name, part);
	*out = tensor(file, full, type, n_bytes, reason);
	return *out != NULL;
}

static bool expected_of(const struct safetensors *file, const struct line *line,
			const struct kv_codec *codec, struct expected *e, char reason[160])
{
	size_t n = (size_t)line->n_rows, raw = n * codec->width * codec->element_bytes;
	enum safetensors_type dtype = tensor_type_of(codec->dtype);
	bool is_affine = codec->bytes.zero > 0;
	char vectors[64];

	*e = (struct expected){.line = line};
	snprintf(vectors, sizeof(vectors), "%s.w%d", line->dtype, line->width);
	return part_of(file, vectors, "input", dtype, raw, &e->input, reason) &&
	       part_of(file, line->name, "dequant", dtype, raw, &e->dequant, reason) &&
	       part_of(file, line->name, "codes", is_affine ? ST_U8 : ST_I8, n * codec->bytes.codes,
		       &e->codes, reason) &&
	       part_of(file, line->name, "scale", is_affine ? ST_F32 : dtype,
		       n * codec->bytes.scale, &e->scale, reason) &&
	       (!is_affine ||
		(part_of(file, line->name, "zero_point", ST_I32, n * codec->bytes.zero, &e->zero,
			 reason) &&
		 part_of(file, line->name, "error", ST_F32, n * sizeof(float), &e->error, reason)));
}

static bool same(const char *part, const void *got, const unsigned char *want, size_t n,
		 size_t vector_bytes, char reason[160])
{
	for (size_t i = 0; want && i < n * vector_bytes; i++)
		if (((const unsigned char *)got)[i] != want[i]) {
			snprintf(reason, 160, "%s: vector %zu, byte %zu is 0x%02x, not 0x%02x",
				 part, i / vector_bytes, i % vector_bytes,
				 ((const unsigned char *)got)[i], want[i]);
			return false;
		}
	return true;
}

/* Equal, or as near as a sum in another order may be. */
static bool error_agrees(float got, float want)
{
	if (memcmp(&got, &want, sizeof(got)) == 0)
		return true;
	return want >= 1e-15f && want <= 1e18f &&
	       fabs((double)got - (double)want) <= 1.5e-7 * (double)want;
}

static bool errors_agree(const struct kv_codec *codec, const struct expected *e,
			 const struct stored *s, char reason[160])
{
	size_t stride = s->back_stride;

	for (size_t i = 0; e->error && i < s->n; i++) {
		struct kv_codec_at at = kv_codec_at(&s->at, i);
		float got, want;

		memcpy(&want, e->error + i * sizeof(want), sizeof(want));
		kv_quantise_error(codec, 1, e->input + i * stride, stride, &at, &got, 0);
		if (!error_agrees(got, want)) {
			snprintf(reason, 160, "error of vector %zu is %.9g, not %.9g", i,
				 (double)got, (double)want);
			return false;
		}
	}
	return true;
}

static void run_case(const struct kv_codec *codec, const struct kv_codec_kernels *kernels,
		     const struct expected *e)
{
	size_t n = (size_t)e->line->n_rows, n_stored;
	struct stored s = stored_new(codec, n);
	char reason[160] = "";
	bool passed;

	n_stored = kv_quantise(codec, n, e->input, s.back_stride, &s.at);
	if (n_stored != n)
		snprintf(reason, sizeof(reason), "vector %zu was refused", n_stored);
	kv_dequantise(codec, n, &s.at, s.back, s.back_stride);
	passed = n_stored == n &&
		 same("scale", s.at.scale, e->scale, n, codec->bytes.scale, reason) &&
		 same("zero point", s.at.zero, e->zero, n, codec->bytes.zero, reason) &&
		 same("codes", s.at.codes, e->codes, n, codec->bytes.codes, reason) &&
		 same("read back", s.back, e->dequant, n, s.back_stride, reason) &&
		 errors_agree(codec, e, &s, reason);
	tally(passed, e->line->name, codec, kernels, reason);
	stored_free(&s);
}

/* ---- the list ------------------------------------------------------------------------------ */

/* The formats of ours that a name of the set belongs to; 0 ends. */
static void formats_of(const struct line *line, uint32_t dtype, uint32_t formats[3])
{
	uint32_t n = 0;

	if (strcmp(line->format, "int8") != 0) {
		formats[n++] = kv_format_find(line->format);
	} else {
		if (dtype != KV_DTYPE_BF16)
			formats[n++] = KV_FORMAT_INT8;
		formats[n++] = KV_FORMAT_INT8_MODEL;
	}
	formats[n] = 0;
}

static uint32_t dtype_of(const char *name)
{
	for (uint32_t d = KV_DTYPE_F32; d <= KV_DTYPE_MAX; d++)
		if (strcmp(name, kv_dtype_name(d)) == 0)
			return d;
	return 0;
}

static void run_format(const struct safetensors *file, const struct line *line, uint32_t format)
{
	bool is_refused = strncmp(line->status, "refused:", 8) == 0;
	struct kv_codec codec = {.format = format};
	struct errbuf err = {0};
	struct expected e;
	char reason[160];
	int rc = kv_codec_init(&codec, format, dtype_of(line->dtype), (uint32_t)line->width, &err);

	if (is_refused) {
		tally(rc && err.status == KV_EINVAL, line->name, &codec, NULL, "was not refused");
		return;
	}
	if (rc || !expected_of(file, line, &codec, &e, reason)) {
		tally(false, line->name, &codec, NULL, rc ? err.text : reason);
		return;
	}
	for (size_t i = 0; i < kv_codec_n_kernels; i++) {
		if (!kv_codec_kernels[i].is_supported())
			continue;
		kv_codec_use(&codec, &kv_codec_kernels[i]);
		run_case(&codec, &kv_codec_kernels[i], &e);
	}
}

static bool read_line(const char *text, struct line *line)
{
	int b, h, l;

	if (sscanf(text, "%63s %15s %15s %d %d %d %d %63s", line->name, line->format, line->dtype,
		   &line->width, &b, &h, &l, line->status) != 8)
		return false;
	if (line->width < 1 || line->width > (int)KV_WIDTH_MAX || b < 1 || b > ROWS_MAX || h < 1 ||
	    h > ROWS_MAX / b || l < 1 || l > ROWS_MAX / b / h)
		return false;
	line->n_rows = b * h * l;
	return strcmp(line->status, "ok") == 0 || strncmp(line->status, "refused:", 8) == 0;
}

static void run_line(const struct safetensors *file, const char *text)
{
	struct line line;
	uint32_t formats[3];

	if (!read_line(text, &line)) {
		tally(false, text, NULL, NULL, "not a line of cases");
		return;
	}
	formats_of(&line, dtype_of(line.dtype), formats);
	if (formats[0] == 0 || dtype_of(line.dtype) == 0)
		tally(false, line.name, NULL, NULL, "unknown format or dtype");
	for (size_t i = 0; formats[0] && dtype_of(line.dtype) && formats[i]; i++)
		run_format(file, &line, formats[i]);
}

static void run_list(const struct safetensors *file, FILE *list)
{
	char text[512];
	bool is_head = true;

	for (; fgets(text, sizeof(text), list); is_head = false) {
		text[strcspn(text, "\r\n")] = '\0';
		if (!is_head && text[0])
			run_line(file, text);
	}
}

/* ---- the folder ---------------------------------------------------------------------------- */

static struct safetensors *open_tensors(const char *folder, const char *name)
{
	struct safetensors *file;
	struct errbuf err = {0};
	char path[4096];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	if (safetensors_open(&file, path, &err))
		tally(false, name, NULL, NULL, err.text);
	return file;
}

static void run_quant(const char *folder)
{
	struct safetensors *file = open_tensors(folder, "quant.safetensors");
	char path[4096];
	FILE *list;

	snprintf(path, sizeof(path), "%s/cases.tsv", folder);
	list = fopen(path, "re");
	if (!list)
		tally(false, path, NULL, NULL, strerror(errno));
	else if (file)
		run_list(file, list);
	if (list)
		fclose(list);
	safetensors_close(file);
}

static void run_special_of(const char *folder)
{
	struct safetensors *file;
	char path[4096];

	snprintf(path, sizeof(path), "%s/special.safetensors", folder);
	if (access(path, F_OK) != 0)
		return;
	file = open_tensors(folder, "special.safetensors");
	if (file)
		run_special(file);
	safetensors_close(file);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: quant FOLDER\nRuns a set of quantised vectors: cases.tsv, "
				"quant.safetensors, special.safetensors (if there).\n");
		return 2;
	}
	run_quant(argv[1]);
	run_special_of(argv[1]);
	printf("%u passed, %u failed\n", n_passed, n_failed);
	return n_failed > 0 || n_passed == 0;
}
