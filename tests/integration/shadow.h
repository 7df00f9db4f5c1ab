/*
 * What tests on a real daemon share: sessions, layouts of every kind, tokens whose bytes say where
 * and whose they are, and reading every element through both views. Everything here fails the test
 * that calls it.
 */
#ifndef KVCACHED_TESTS_INTEGRATION_SHADOW_H
#define KVCACHED_TESTS_INTEGRATION_SHADOW_H

#include <stddef.h>
#include <stdint.h>

#include "client/kvcache.h"
#include "tests/support/daemon.h"
#include "tests/support/runner.h"

#define ok(call) \
	do { \
		if ((call) != 0) \
			fail_msg("%s: %s: %s", #call, kvc_status_name(kvc_error()), \
				 kvc_error_text()); \
	} while (0)

#define there(pointer) \
	do { \
		if (!(pointer)) \
			fail_msg("%s: %s: %s", #pointer, kvc_status_name(kvc_error()), \
				 kvc_error_text()); \
	} while (0)

#define refused(call, status) \
	do { \
		assert_int_equal(call, -1); \
		assert_string_equal(kvc_status_name(kvc_error()), #status); \
	} while (0)

#define refused_null(call, status) \
	do { \
		assert_null(call); \
		assert_string_equal(kvc_status_name(kvc_error()), #status); \
	} while (0)

#define MOST_TOKENS 64 /* of one append */

struct geometry {
	uint32_t n_layers, dtype, block_tokens, opaque_bytes;
	struct kvc_layer layers[4];
};

enum geometry_name {
	PLAIN, /* two equal layers of bf16, blocks of 16 */
	K_WIDER,
	NO_V,
	OTHER_HEADS, /* in each layer */
	BOUNDED,     /* two groups, one of 200 slots */
	OPAQUE,
	N_GEOMETRIES
};
extern const struct geometry geometries[N_GEOMETRIES];

/* The daemon of the tests; start and stop are set-up and tear-down of a group. */
extern struct kt_daemon *daemon_;
int start_daemon(void **state);
int stop_daemon(void **state);

kvc_session *open_session(void);
kvc_layout *register_layout(kvc_session *session, const struct geometry *g);

/* n rows of a layer, from token `first` on; `stream` says who wrote them. */
void fill(uint8_t *to, const struct geometry *g, uint32_t layer, int is_value, uint64_t first,
	  uint64_t n, uint32_t stream);

/* Appends n tokens of a stream; what is at token t afterwards is streams[t] (may be NULL). */
void append(kvc_seq *seq, const struct geometry *g, uint64_t n, uint32_t stream, kvc_writer *writer,
	    uint32_t *streams);

/* One row, and every element of all layers through table and runs, against the streams. */
void check_row(const uint8_t *row, size_t n_bytes, uint32_t layer, int is_value, uint64_t token,
	       uint32_t stream);
void check_all(kvc_seq *seq, const struct geometry *g, const uint32_t *streams);

/* Its number. */
uint64_t snapshot(kvc_seq *seq, const char *name);

#endif
