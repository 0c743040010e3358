/* What the files of multi-head attention share. */
#ifndef FVI_MULTIHEAD_H
#define FVI_MULTIHEAD_H

#include "autograd/internal.h"
#include "layers/layers.h"

/* Queries, keys and values of one call, after their maps. */
typedef struct {
    fv_var *q, *k, *v;
} fvi_heads;

/* Segments of so many rows each, on the tape. */
fv_segments *fvi_equal_segments(fv_tape *t, size_t count, size_t rows);

/* Makes the parameters of what is added by distance. */
void fvi_relative_init(fv_scope scope, size_t d, fv_multihead *layer);
/* Puts what is added by distance to queries q [queries, heads * width] into the options of attention; false on
 * an error. */
bool fvi_relative_use(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_attention_opts *opts);

/* Turns each head of x by the positions of its rows. */
fv_var *fvi_rotary_use(fv_tape *t, const fv_multihead *layer, fv_var *x, size_t heads,
                       const int32_t *positions);
/* Turns queries and keys where they stand in the mask's segments; false on an error. */
bool fvi_rotary_by_mask(fv_tape *t, const fv_multihead *layer, fvi_heads *h, const fv_mask *mask);

/* How many keys and values of its own the layer has in each segment. */
static inline size_t fvi_extra_keys(const fv_multihead *layer)
{
    return (size_t)layer->how.add_bias_kv + (size_t)layer->how.add_zero_attn;
}
/* Puts them in front of each segment of keys and values, and widens mask and bias; false on an error. */
bool fvi_extra_keys_use(fv_tape *t, const fv_multihead *layer, fvi_heads *h, fv_mask *mask,
                        fv_var **bias);

/* The maps to queries, keys and values; without those on an error. */
fvi_heads fvi_multihead_project(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k,
                                fv_var *v);
/* Attention of what was projected, and the map to the result. */
fv_var *fvi_multihead_attend(fv_tape *t, const fv_multihead *layer, fvi_heads h,
                             const fv_mask *mask, fv_var *bias);

#endif
