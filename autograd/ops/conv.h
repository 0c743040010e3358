/* Convolution and its transpose, as maps between a wide side, which windows look at, and a narrow side,
 * which has a place for each window. */
#ifndef FVI_CONV_H
#define FVI_CONV_H

#include "autograd/ops/window.h"

typedef struct {
    window w;
    size_t samples, groups;
    size_t wide,
        narrow; /* channels of a group on either side; weight [groups * narrow, wide, kernel] */
} conv_map;

/* narrow [samples, groups * narrow, out] = (or, with add, +=) weight x the windows of wide [samples, groups *
 * wide, in], plus a bias of the narrow channels or NULL. */
void FVI_NAME(fvi_conv_to_narrow)(fv_tape *t, const conv_map *c, const fv_real *wide,
                                  const fv_real *weight, const fv_real *bias, bool add,
                                  fv_real *narrow);
/* The transpose: adds weight' x narrow to the places of wide that the windows look at. */
void FVI_NAME(fvi_conv_to_wide)(fv_tape *t, const conv_map *c, const fv_real *narrow,
                                const fv_real *weight, fv_real *wide);
/* Adds to the gradient of the weight: narrow x the windows of wide, summed over samples and places. */
void FVI_NAME(fvi_conv_to_weight)(fv_tape *t, const conv_map *c, const fv_real *wide,
                                  const fv_real *narrow, fv_real *weight);
#define fvi_conv_to_narrow FVI_NAME(fvi_conv_to_narrow)
#define fvi_conv_to_wide   FVI_NAME(fvi_conv_to_wide)
#define fvi_conv_to_weight FVI_NAME(fvi_conv_to_weight)

/* The groups of x [.., channels, ..] and weight, and the channels of the result; refuses what does not fit. */
bool fvi_conv_channels(fv_tape *t, const char *op, bool transpose, const fv_var *x,
                       const fv_var *weight, const fv_var *bias, const fv_conv_opts *opts,
                       size_t *groups, size_t *out);

#endif
