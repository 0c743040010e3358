/* Convolution over the rows of segments and its transpose, as maps between a wide side, which windows look at,
 * and a narrow side, which has a row for each window; as conv.h, but channels are adjacent. */
#ifndef FVI_CONV_SEGMENTS_H
#define FVI_CONV_SEGMENTS_H

#include "autograd/ops/window_segments.h"

typedef struct {
    segment_window w; /* from: the wide side, to: the narrow one */
    size_t groups;
    size_t wide,
        narrow; /* channels of a group on either side; weight [groups * narrow, wide, kernel] */
} segment_map;

/* narrow = (or, with add, +=) weight x the windows of wide, plus a bias of the narrow channels or NULL. */
void FVI_NAME(fvi_segment_conv_to_narrow)(fv_tape *t, const segment_map *c, const fv_real *wide,
                                          const fv_real *weight, const fv_real *bias, bool add,
                                          fv_real *narrow);
/* The transpose: adds weight' x narrow to the rows of wide that the windows look at. */
void FVI_NAME(fvi_segment_conv_to_wide)(fv_tape *t, const segment_map *c, const fv_real *narrow,
                                        const fv_real *weight, fv_real *wide);
/* Adds to the gradient of the weight: narrow x the windows of wide, summed over rows. */
void FVI_NAME(fvi_segment_conv_to_weight)(fv_tape *t, const segment_map *c, const fv_real *wide,
                                          const fv_real *narrow, fv_real *weight);
#define fvi_segment_conv_to_narrow FVI_NAME(fvi_segment_conv_to_narrow)
#define fvi_segment_conv_to_wide   FVI_NAME(fvi_segment_conv_to_wide)
#define fvi_segment_conv_to_weight FVI_NAME(fvi_segment_conv_to_weight)

#endif
