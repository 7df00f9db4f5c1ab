/*
 * Layouts from the words of a command line and off the wire, for commands that make a layout
 * (convert) or only want to know its size (size). One thread.
 */
#ifndef KV_CTL_GEOMETRY_H
#define KV_CTL_GEOMETRY_H

#include "client/ctl/ctl.h"
#include "client/kvcache.h"

/* "int8" or "u8:u4", K and V. 0, or -1 with the usage error printed. */
int geometry_formats(struct ctl *ctl, const struct ctl_args *args, uint32_t *k_format,
		     uint32_t *v_format);

/* Fields of a layout with the arrays that they point to. */
struct geometry {
	struct kvc_layout_options options;
	struct kvc_layer *layers;
	struct kvc_plane *planes;
	struct kvc_tag *tags;
};

/* Copies; strings stay those of the message. Freed by geometry_fini(). */
void geometry_of_wire(struct geometry *geometry, const Kv__Wire__Layout *wire);

/* The layout that has a hash: 0 and the reply (whose layout->layout is there), or -1 with *code. */
int geometry_ask(struct ctl *ctl, const uint8_t *hash, size_t n_bytes, Kv__Wire__Reply **reply,
		 int *code);

void geometry_fini(struct geometry *geometry);

/* "f32, K int8, V u4, blocks of 64 tokens"; the formats that count. */
void geometry_print(const struct ctl *ctl, const struct kvc_layout_options *options);

#endif
