#include "offload/io_faults.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RULES_MAX 16u
#define PIECE_BYTES 4096u

enum what { ERROR, SHORT, HELD };

struct rule {
	enum io_op op; /* 0: any */
	uint64_t first, every, n_seen;
	enum what what;
	int error;         /* ERROR: the result; 0: the file has ended */
	uint64_t n_pieces; /* SHORT: transfers of one piece; 0: one that lacks a piece */
	uint64_t late_ns;  /* HELD; UINT64_MAX: lost */
};

/* A request that a rule has hit. */
struct fault {
	struct io_request *request; /* NULL: free */
	enum {
		KEPT,     /* between two attempts */
		ANSWERED, /* the result is to be reported */
		WAITS,    /* is to be started when it is due */
		CUT       /* the back end has the shadow in its place */
	} state;
	const struct rule *rule;
	uint64_t due_ns;
	uint64_t n_cut; /* transfers that were cut */
	bool is_last;   /* cancelled: no attempt follows */
	struct io_request shadow;
};

struct faults {
	struct io_backend backend;
	struct io_backend *inner;
	int event_fd;
	uint32_t n_rules, n_faults;
	struct rule rules[RULES_MAX];
	struct fault *faults; /* [n_faults] */
	const struct io_sink *sink;
};

static struct faults *faults_of(struct io_backend *backend)
{
	return (struct faults *)backend;
}

/* ---- rules ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	enum io_op op;
} ops_by_name[] = {{"read", IO_READ}, {"write", IO_WRITE}, {"sync", IO_SYNC}, {"any", 0}};

static const struct {
	const char *name;
	struct rule rule;
} faults_by_name[] = {
	{"eio", {.what = ERROR, .error = -EIO}},
	{"enospc", {.what = ERROR, .error = -ENOSPC}},
	{"eagain", {.what = ERROR, .error = -EAGAIN}},
	{"eintr", {.what = ERROR, .error = -EINTR}},
	{"eof", {.what = ERROR, .error = 0}},
	{"short", {.what = SHORT}},
	{"short=", {.what = SHORT}},
	{"late=", {.what = HELD}},
	{"lost", {.what = HELD, .late_ns = UINT64_MAX}},
};

static bool read_what(struct rule *rule, const char *text)
{
	const struct rule before = *rule;
	const char *equals = strchr(text, '=');
	const size_t n = equals ? (size_t)(equals - text) + 1 : strlen(text);

	for (size_t i = 0; i < sizeof(faults_by_name) / sizeof(faults_by_name[0]); i++) {
		const char *name = faults_by_name[i].name;
		uint64_t number;

		if (strlen(name) != n || strncmp(name, text, n) != 0)
			continue;
		number = equals ? strtoull(equals + 1, NULL, 10) : 0;
		*rule = faults_by_name[i].rule;
		rule->op = before.op;
		rule->first = before.first;
		rule->every = before.every;
		if (equals && rule->what == SHORT)
			rule->n_pieces = number;
		else if (equals)
			rule->late_ns = number * 1000000;
		return !equals || number > 0;
	}
	return false;
}

static bool read_rule(struct rule *rule, char *text)
{
	char *op = strsep(&text, ":"), *when = strsep(&text, ":"), *rest;
	size_t i = 0;

	while (i < 4 && strcmp(ops_by_name[i].name, op) != 0)
		i++;
	if (i == 4 || !when || !text)
		return false;
	*rule = (struct rule){.op = ops_by_name[i].op, .first = strtoull(when, &rest, 10)};
	if (*rest == '+')
		rule->every = strtoull(rest + 1, &rest, 10);
	return rule->first > 0 && *rest == '\0' && read_what(rule, text);
}

static int read_rules(struct faults *faults, const char *text, struct errbuf *err)
{
	char *copy = strdup(text), *at = copy, *one;
	int rc = 0;

	while (copy && rc == 0 && (one = strsep(&at, ","))) {
		if (faults->n_rules == RULES_MAX ||
		    !read_rule(&faults->rules[faults->n_rules++], one))
			rc = errbuf_set(err, KV_EINVAL, "KV_IO_FAULTS=%s: OP:WHEN:WHAT,...", text);
	}
	free(copy);
	return rc;
}

/* The rule that hits a request which begins. */
static const struct rule *rule_for(struct faults *faults, const struct io_request *request)
{
	const struct rule *hit = NULL;

	for (uint32_t i = 0; i < faults->n_rules; i++) {
		struct rule *rule = &faults->rules[i];
		uint64_t n;

		if (rule->op && rule->op != request->op)
			continue;
		n = ++rule->n_seen;
		if (!hit && (n == rule->first || (rule->every && n > rule->first &&
						  (n - rule->first) % rule->every == 0)))
			hit = rule;
	}
	return hit;
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct fault *find(struct faults *faults, const struct io_request *request)
{
	for (uint32_t i = 0; i < faults->n_faults; i++)
		if (faults->faults[i].request == request)
			return &faults->faults[i];
	return NULL;
}

static void wake(const struct faults *faults)
{
	const uint64_t one = 1;
	ssize_t rc = write(faults->event_fd, &one, sizeof(one));

	(void)rc;
}

/* How many bytes this attempt may transfer; all of them if it is not cut. */
static uint64_t bytes_allowed(const struct fault *fault)
{
	const uint64_t n_left = fault->request->n_left, n_pieces = fault->rule->n_pieces;

	if (fault->n_cut >= (n_pieces ? n_pieces : 1) || n_left <= PIECE_BYTES)
		return n_left;
	return n_pieces ? PIECE_BYTES : n_left - PIECE_BYTES;
}

static bool cut(struct fault *fault, uint64_t n_bytes)
{
	struct io_request *shadow = &fault->shadow;
	uint32_t n;
	const struct iovec *iov = io_request_iov(fault->request, &n);

	*shadow = *fault->request;
	shadow->off = io_request_off(fault->request);
	shadow->n_bytes = shadow->n_left = n_bytes;
	shadow->first_iov = 0;
	shadow->iov = calloc(n, sizeof(*iov));
	if (!shadow->iov)
		return false;
	for (shadow->n_iov = 0; n_bytes > 0; shadow->n_iov++) {
		struct iovec *one = &shadow->iov[shadow->n_iov];

		*one = iov[shadow->n_iov];
		if (one->iov_len > n_bytes)
			one->iov_len = (size_t)n_bytes;
		n_bytes -= one->iov_len;
	}
	return true;
}

static int start_inner(struct faults *faults, struct io_request *request)
{
	return faults->inner->ops->start(faults->inner, request);
}

static int start_short(struct faults *faults, struct fault *fault)
{
	const uint64_t n_bytes = bytes_allowed(fault);
	int rc;

	if (n_bytes == fault->request->n_left || !cut(fault, n_bytes)) {
		struct io_request *request = fault->request;

		fault->request = NULL;
		return start_inner(faults, request);
	}
	rc = start_inner(faults, &fault->shadow);
	if (rc) {
		free(fault->shadow.iov);
		fault->state = KEPT;
	} else {
		fault->n_cut++;
		fault->state = CUT;
	}
	return rc;
}

static int begin(struct faults *faults, struct io_request *request, const struct rule *rule)
{
	struct fault *fault = find(faults, NULL);

	if (!fault)
		return start_inner(faults, request);
	*fault = (struct fault){.request = request, .rule = rule};
	switch (rule->what) {
	case ERROR:
		fault->state = ANSWERED;
		wake(faults);
		return 0;
	case HELD:
		fault->state = WAITS;
		fault->due_ns = rule->late_ns == UINT64_MAX ? UINT64_MAX :
							      io_clock_ns() + rule->late_ns;
		return 0;
	case SHORT: return start_short(faults, fault);
	}
	return -EINVAL;
}

static int faults_start(struct io_backend *backend, struct io_request *request)
{
	struct faults *faults = faults_of(backend);
	struct fault *fault = find(faults, request);
	const bool begins = request->n_left == request->n_bytes && request->n_stalls == 0;
	const struct rule *rule;

	/* One that was cancelled between two attempts is forgotten when it comes anew. */
	if (fault && begins && fault->n_cut > 0) {
		fault->request = NULL;
		fault = NULL;
	}
	if (fault)
		return start_short(faults, fault);
	rule = begins ? rule_for(faults, request) : NULL;
	return rule ? begin(faults, request, rule) : start_inner(faults, request);
}

static void faults_cancel(struct io_backend *backend, struct io_request *request)
{
	struct faults *faults = faults_of(backend);
	struct fault *fault = find(faults, request);

	if (fault)
		fault->is_last = true;
	else
		faults->inner->ops->cancel(faults->inner, request);
}

/* ---- reports -------------------------------------------------------------------------------- */

static void inner_ended(void *arg, struct io_request *request, int64_t result)
{
	struct faults *faults = arg;

	for (uint32_t i = 0; i < faults->n_faults; i++) {
		struct fault *fault = &faults->faults[i];

		if (request != &fault->shadow)
			continue;
		free(fault->shadow.iov);
		fault->state = KEPT;
		request = fault->request;
		if (result <= 0 || fault->is_last)
			fault->request = NULL;
	}
	faults->sink->ended(faults->sink->arg, request, result);
}

static void answer(struct faults *faults, struct fault *fault)
{
	struct io_request *request = fault->request;

	fault->request = NULL;
	faults->sink->ended(faults->sink->arg, request, fault->rule->error);
}

static void go_on(struct faults *faults, struct fault *fault)
{
	if (start_inner(faults, fault->request) == 0)
		fault->request = NULL;
}

static void faults_collect(struct io_backend *backend, uint64_t now_ns, const struct io_sink *sink)
{
	struct faults *faults = faults_of(backend);
	const struct io_sink own = {inner_ended, faults};

	faults->sink = sink;
	faults->inner->ops->collect(faults->inner, now_ns, &own);
	for (uint32_t i = 0; i < faults->n_faults; i++) {
		struct fault *fault = &faults->faults[i];

		if (fault->request && fault->state == ANSWERED)
			answer(faults, fault);
		else if (fault->request && fault->state == WAITS && fault->due_ns <= now_ns)
			go_on(faults, fault);
	}
}

static uint64_t faults_next_ns(const struct io_backend *backend)
{
	const struct faults *faults = (const struct faults *)backend;
	uint64_t due_ns = UINT64_MAX;

	for (uint32_t i = 0; i < faults->n_faults; i++) {
		const struct fault *fault = &faults->faults[i];

		if (fault->request && fault->state == WAITS && fault->due_ns < due_ns)
			due_ns = fault->due_ns;
	}
	return due_ns;
}

static void faults_let_go(struct io_backend *backend)
{
	struct faults *faults = faults_of(backend);

	for (uint32_t i = 0; i < faults->n_faults; i++)
		faults->faults[i].due_ns = 0;
	wake(faults);
}

/* ---- the rest is the back end's ------------------------------------------------------------- */

static int faults_push(struct io_backend *backend)
{
	struct io_backend *inner = faults_of(backend)->inner;

	return inner->ops->push(inner);
}

static const char *faults_text(const struct io_backend *backend)
{
	const struct io_backend *inner = ((const struct faults *)backend)->inner;

	return inner->ops->text(inner);
}

static void faults_file_set(struct io_backend *backend, int file, int fd, bool is_buffered)
{
	struct io_backend *inner = faults_of(backend)->inner;

	inner->ops->file_set(inner, file, fd, is_buffered);
}

static void faults_memory_add(struct io_backend *backend, void *base, size_t n_bytes)
{
	struct io_backend *inner = faults_of(backend)->inner;

	inner->ops->memory_add(inner, base, n_bytes);
}

static void faults_memory_remove(struct io_backend *backend, void *base)
{
	struct io_backend *inner = faults_of(backend)->inner;

	inner->ops->memory_remove(inner, base);
}

static void faults_close(struct io_backend *backend)
{
	struct faults *faults = faults_of(backend);

	faults->inner->ops->close(faults->inner);
	free(faults->faults);
	free(faults);
}

static const struct io_backend_ops ops = {
	.close = faults_close,
	.text = faults_text,
	.file_set = faults_file_set,
	.memory_add = faults_memory_add,
	.memory_remove = faults_memory_remove,
	.start = faults_start,
	.push = faults_push,
	.collect = faults_collect,
	.cancel = faults_cancel,
	.next_ns = faults_next_ns,
	.let_go = faults_let_go,
};

struct io_backend *io_faults_before(struct io_backend *backend, const struct io_options *options,
				    int event_fd, struct errbuf *err)
{
	const char *text = getenv("KV_IO_FAULTS");
	struct faults *faults;

	if (!text || !text[0])
		return backend;
	faults = calloc(1, sizeof(*faults));
	if (faults)
		faults->faults = calloc(options->depth, sizeof(faults->faults[0]));
	if (!faults || !faults->faults) {
		errbuf_set(err, KV_ENOMEM, "no memory for faults");
	} else if (read_rules(faults, text, err) == 0) {
		faults->backend.ops = &ops;
		faults->inner = backend;
		faults->event_fd = event_fd;
		faults->n_faults = options->depth;
		return &faults->backend;
	}
	backend->ops->close(backend);
	free(faults ? faults->faults : NULL);
	free(faults);
	return NULL;
}
