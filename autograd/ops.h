/* Every op: one prototype a line where it fits, its formula or shapes beside it. docs/ops.md
 * lists formulas and sources. Included by autograd/autograd.h.
 *
 * Shapes are input -> output; ".." stands for any axes. "Broadcast" is numpy's rule: shapes are
 * aligned at the last axis, and an axis of size 1, or one that is missing, repeats. An axis counts
 * from 0, or from -1 (the last) backwards. A shape or number that does not fit is an error of the
 * tape, and the result NULL. Numbers, ids, labels, segments and masks that an op takes are read
 * again by fv_backward: keep them as they are until then. What an op gives besides its value
 * (orders, counts, segments) lives on the tape. */
#ifndef FV_OPS_H
#define FV_OPS_H

#include "autograd/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Some axes of a tensor, for reductions; keep leaves them behind with size 1. A NULL fv_axes
 * means all, and so does a count of 0. */
typedef struct {
    int count;
    int axis[FV_MAX_RANK];
    bool keep;
} fv_axes;
/* FV_AXES(-1), FV_AXES(0, 2): a pointer to such axes; FV_KEEP the same with keep set. */
#define FV_AXES(...)                                                                               \
    (&(const fv_axes){(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}, false})
#define FV_KEEP(...)                                                                               \
    (&(const fv_axes){(int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), {__VA_ARGS__}, true})

/* Yes or no for each place of a shape: bytes, 1 = yes. */
typedef struct {
    fv_shape shape;
    const unsigned char *data;
} fv_bools;

/* ---- arithmetic: a and b broadcast ----------------------------------------------------------- */

fv_var *fv_add(fv_tape *t, fv_var *a, fv_var *b);   /* a + b */
fv_var *fv_sub(fv_tape *t, fv_var *a, fv_var *b);   /* a - b */
fv_var *fv_mul(fv_tape *t, fv_var *a, fv_var *b);   /* a * b */
fv_var *fv_div(fv_tape *t, fv_var *a, fv_var *b);   /* a / b */
fv_var *fv_power(fv_tape *t, fv_var *a, fv_var *b); /* a^b; for the gradient of b, a > 0 */
fv_var *fv_minimum(fv_tape *t, fv_var *a,
                   fv_var *b); /* gradient to the smaller, halves to equals */
fv_var *fv_maximum(fv_tape *t, fv_var *a, fv_var *b); /* gradient to the larger, halves to equals */
fv_var *fv_lerp(fv_tape *t, fv_var *a, fv_var *b, fv_var *w); /* a + w (b - a) */
fv_var *fv_where(fv_tape *t, fv_bools yes, fv_var *a,
                 fv_var *b); /* yes ? a : b; all three broadcast */
/* The sum of count values of one shape, in one pass. */
fv_var *fv_add_many(fv_tape *t, int count, fv_var *const *x);

fv_var *fv_scale(fv_tape *t, fv_var *x, double factor); /* factor * x */
fv_var *fv_shift(fv_tape *t, fv_var *x, double offset); /* x + offset */
fv_var *fv_pow(fv_tape *t, fv_var *x, double exponent); /* x^exponent */
fv_var *fv_clamp(fv_tape *t, fv_var *x, double low,
                 double high);                /* low <= high; gradient 1 inside and on the ends */
fv_var *fv_neg(fv_tape *t, fv_var *x);        /* -x */
fv_var *fv_abs(fv_tape *t, fv_var *x);        /* |x|, gradient 0 at 0 */
fv_var *fv_square(fv_tape *t, fv_var *x);     /* x^2 */
fv_var *fv_reciprocal(fv_tape *t, fv_var *x); /* 1 / x */
fv_var *fv_sqrt(fv_tape *t, fv_var *x);       /* sqrt(x) */
fv_var *fv_rsqrt(fv_tape *t, fv_var *x);      /* 1 / sqrt(x) */
fv_var *fv_exp(fv_tape *t, fv_var *x);        /* e^x */
fv_var *fv_expm1(fv_tape *t, fv_var *x);      /* e^x - 1, exact near 0 */
fv_var *fv_log(fv_tape *t, fv_var *x);        /* ln(x) */
fv_var *fv_log1p(fv_tape *t, fv_var *x);      /* ln(1 + x), exact near 0 */
fv_var *fv_sin(fv_tape *t, fv_var *x);        /* sin(x), x in radians */
fv_var *fv_cos(fv_tape *t, fv_var *x);        /* cos(x) */
fv_var *fv_tan(fv_tape *t, fv_var *x);        /* tan(x) */
fv_var *fv_asin(fv_tape *t, fv_var *x);       /* arc sine, in radians */
fv_var *fv_acos(fv_tape *t, fv_var *x);       /* arc cosine */
fv_var *fv_atan(fv_tape *t, fv_var *x);       /* arc tangent */
fv_var *fv_sinh(fv_tape *t, fv_var *x);       /* (e^x - e^-x) / 2 */
fv_var *fv_cosh(fv_tape *t, fv_var *x);       /* (e^x + e^-x) / 2 */
fv_var *fv_asinh(fv_tape *t, fv_var *x);      /* inverse of sinh */
fv_var *fv_acosh(fv_tape *t, fv_var *x);      /* inverse of cosh, x >= 1 */
fv_var *fv_atanh(fv_tape *t, fv_var *x);      /* inverse of tanh, |x| < 1 */
fv_var *fv_erf(fv_tape *t, fv_var *x);        /* the error function */

/* How two numbers may stand to each other, for fv_compare. */
typedef enum {
    FV_LESS,
    FV_LESS_EQUAL,
    FV_EQUAL,
    FV_NOT_EQUAL,
    FV_GREATER_EQUAL,
    FV_GREATER
} fv_relation;
/* Whether a stands so to b, place by place, broadcast; no gradient. Without data on an error. */
fv_bools fv_compare(fv_tape *t, const fv_var *a, fv_relation relation, const fv_var *b);

/* ---- activations, elementwise ---------------------------------------------------------------- */

fv_var *fv_relu(fv_tape *t, fv_var *x);                     /* max(x, 0) */
fv_var *fv_leaky_relu(fv_tape *t, fv_var *x, double slope); /* x > 0 ? x : slope x */
fv_var *fv_elu(fv_tape *t, fv_var *x, double alpha);        /* x > 0 ? x : alpha (e^x - 1) */
fv_var *fv_selu(fv_tape *t, fv_var *x); /* 1.0507 elu with alpha 1.6733, digits as published */
fv_var *fv_gelu(fv_tape *t, fv_var *x); /* x times the chance that a normal number is below x */
fv_var *fv_gelu_tanh(fv_tape *t, fv_var *x); /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
fv_var *fv_silu(fv_tape *t, fv_var *x);      /* x sigmoid(x), also called swish */
fv_var *fv_mish(fv_tape *t, fv_var *x);      /* x tanh(softplus(x)) */
fv_var *fv_softplus(fv_tape *t, fv_var *x);  /* ln(1 + e^x) */
fv_var *fv_sigmoid(fv_tape *t, fv_var *x);   /* 1 / (1 + e^-x) */
fv_var *fv_log_sigmoid(fv_tape *t, fv_var *x); /* -softplus(-x) */
fv_var *fv_tanh(fv_tape *t, fv_var *x);        /* tanh(x) */
fv_var *fv_hardtanh(fv_tape *t, fv_var *x);    /* x between -1 and 1 */
fv_var *fv_hardsigmoid(fv_tape *t, fv_var *x); /* x / 6 + 1/2 between 0 and 1 */
fv_var *fv_hardswish(fv_tape *t, fv_var *x);   /* x hardsigmoid(x) */
fv_var *fv_softsign(fv_tape *t, fv_var *x);    /* x / (1 + |x|) */
/* Gated: the axis is cut in halves a and b, the result is half as wide. */
fv_var *fv_glu(fv_tape *t, fv_var *x, int axis);    /* a sigmoid(b); Dauphin et al., 2017 */
fv_var *fv_swiglu(fv_tape *t, fv_var *x, int axis); /* silu(a) b; Shazeer, 2020 */
fv_var *fv_geglu(fv_tape *t, fv_var *x, int axis);  /* gelu(a) b; Shazeer, 2020 */

/* ---- products -------------------------------------------------------------------------------- */

/* x W^T + b: [.., in] with weight [out, in], bias [out] or NULL -> [.., out]. */
fv_var *fv_affine(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias);
/* The same with relu folded in. */
fv_var *fv_affine_relu(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias);
typedef struct {
    bool transpose_a, transpose_b; /* of the last two axes, before the product */
} fv_matmul_opts;
/* a b: [.., m, k] x [.., k, n] -> [.., m, n]; the axes before broadcast. A vector [k] stands for
 * one row of a or one column of b, and its axis leaves the result. */
fv_var *fv_matmul(fv_tape *t, fv_var *a, fv_var *b, const fv_matmul_opts *opts);
/* y[.., o] = sum over i, j of a[.., i] weight[o, i, j] b[.., j] + bias[o]; weight [out, in_a,
 * in_b], bias [out] or NULL. */
fv_var *fv_bilinear(fv_tape *t, fv_var *a, fv_var *b, fv_var *weight, fv_var *bias);
/* [.., m], [.., n] -> [.., m, n]: a[i] b[j]. */
fv_var *fv_outer(fv_tape *t, fv_var *a, fv_var *b);
/* [.., d], [.., d] -> [..]: the sum of a * b over the last axis; broadcast before it. */
fv_var *fv_dot(fv_tape *t, fv_var *a, fv_var *b);
/* Einstein's summation for one or two operands (b may be NULL): "bij,bjk->bik", "ij->ji",
 * "ii->i", "..ij,..jk->..ik" with three dots; without "->" the result has the letters that occur
 * once, in alphabetical order. An axis of size 1 repeats; dots that the result lacks are summed. */
fv_var *fv_einsum(fv_tape *t, const char *notation, fv_var *a, fv_var *b);

/* ---- reductions: over axes, NULL = all ------------------------------------------------------- */

/* Their sum, mean (of none: NaN) and product (of none: 1). */
fv_var *fv_sum(fv_tape *t, fv_var *x, const fv_axes *axes);
fv_var *fv_mean(fv_tape *t, fv_var *x, const fv_axes *axes);
fv_var *fv_prod(fv_tape *t, fv_var *x, const fv_axes *axes);
fv_var *fv_max(fv_tape *t, fv_var *x,
               const fv_axes *axes); /* equals share the gradient; no numbers: an error */
fv_var *fv_min(fv_tape *t, fv_var *x, const fv_axes *axes);
/* The mean square distance from the mean, with count - correction in place of the count. */
fv_var *fv_variance(fv_tape *t, fv_var *x, const fv_axes *axes, double correction);
fv_var *fv_std(fv_tape *t, fv_var *x, const fv_axes *axes, double correction); /* its square root */
fv_var *fv_logsumexp(fv_tape *t, fv_var *x, const fv_axes *axes);
/* (sum of |x|^p)^(1/p); p = INFINITY: the largest, -INFINITY: the smallest, 0: how many are not
 * 0. */
fv_var *fv_vector_norm(fv_tape *t, fv_var *x, const fv_axes *axes, double p);
typedef struct {
    bool exclusive; /* place i gets what is before it, without itself */
    bool reverse;   /* from the end */
} fv_scan_opts;
fv_var *fv_cumsum(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *opts);
fv_var *fv_cumprod(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *opts);
/* Where the largest (smallest) number stands along an axis, the first of equals; the axis leaves
 * the shape. NULL on an error. */
const int32_t *fv_argmax(fv_tape *t, const fv_var *x, int axis);
const int32_t *fv_argmin(fv_tape *t, const fv_var *x, int axis);
typedef struct {
    bool descending; /* of fv_sort */
    bool smallest;   /* of fv_topk */
    const int32_t *
        *order; /* when not NULL, gets where each number of the result stood along the axis */
} fv_sort_opts;
/* Sorted along an axis, equals in their order, NaN last; the gradient goes back where each
 * number stood. */
fv_var *fv_sort(fv_tape *t, fv_var *x, int axis, const fv_sort_opts *opts);
/* The k largest along an axis, largest first, the first of equals; NaN counts as the largest. */
fv_var *fv_topk(fv_tape *t, fv_var *x, int axis, size_t k, const fv_sort_opts *opts);

/* ---- shapes ---------------------------------------------------------------------------------- */

fv_var *fv_reshape(fv_tape *t, fv_var *x, fv_shape shape); /* a view; the counts must agree */
fv_var *fv_squeeze(fv_tape *t, fv_var *x, int axis);       /* a view without that axis of size 1 */
fv_var *fv_unsqueeze(fv_tape *t, fv_var *x, int axis); /* a view with an axis of size 1 put there */
fv_var *fv_flatten(fv_tape *t, fv_var *x, int first,
                   int last); /* a view with axes first .. last as one */
fv_var *fv_permute(fv_tape *t, fv_var *x,
                   const int *axes); /* axis i of the result is axis axes[i] of x */
fv_var *fv_transpose(fv_tape *t, fv_var *x, int a, int b); /* exchanges two axes */
fv_var *fv_expand(fv_tape *t, fv_var *x, fv_shape shape);  /* broadcast to a shape */
/* One after the other along an axis; the other sizes agree. */
fv_var *fv_concat(fv_tape *t, int count, fv_var *const *x, int axis);
/* Equal shapes, along a new axis. */
fv_var *fv_stack(fv_tape *t, int count, fv_var *const *x, int axis);
/* Cuts an axis into parts[0 .. count - 1] of these sizes (NULL: equal ones); false on an error. */
bool fv_split(fv_tape *t, fv_var *x, int axis, int count, const size_t *sizes, fv_var **parts);
enum { FV_END = INT32_MAX }; /* of a range: up to and with the last */
/* first, first + step, .. before end; negative first and end count from the end, both are cut to
 * the axis, step 0 means 1. A negative step goes down, and FV_END then means down to and with 0. */
typedef struct {
    int first, end, step;
} fv_range;
fv_var *fv_slice(fv_tape *t, fv_var *x, int axis, fv_range range);
typedef enum { FV_PAD_CONSTANT, FV_PAD_EDGE, FV_PAD_REFLECT, FV_PAD_WRAP } fv_pad_mode;
typedef struct {
    fv_pad_mode mode; /* default: constant */
    double value;     /* of the constant */
} fv_pad_opts;
/* That many more places before and after an axis. */
fv_var *fv_pad(fv_tape *t, fv_var *x, int axis, size_t before, size_t after,
               const fv_pad_opts *opts);
fv_var *fv_flip(fv_tape *t, fv_var *x, int axis); /* reversed */
fv_var *fv_roll(fv_tape *t, fv_var *x, int axis,
                int shift); /* place i moves to i + shift, around the end */
fv_var *fv_tile(fv_tape *t, fv_var *x,
                const size_t *repeats); /* axis i repeated repeats[i] times */
fv_var *fv_repeat_rows(fv_tape *t, fv_var *x,
                       size_t count); /* [rows, ..] -> [rows * count, ..], each row count times */
fv_var *fv_tril(fv_tape *t, fv_var *x,
                int diagonal); /* zeros above that diagonal of the last two axes */
fv_var *fv_triu(fv_tape *t, fv_var *x, int diagonal); /* zeros below it */
fv_var *fv_diagonal(fv_tape *t, fv_var *x,
                    int diagonal); /* of the last two axes: [.., m, n] -> [.., length] */
/* [count, classes]: 1 at ids[i], else 0; an id below 0 gives zeros. No gradient. */
fv_var *fv_one_hot(fv_tape *t, const int32_t *ids, size_t count, size_t classes);

/* ---- choosing -------------------------------------------------------------------------------- */

/* Rows ids[0 .. count - 1] of table [n, d] -> [count, d]; an id outside 0 .. n - 1 is an error. */
fv_var *fv_gather(fv_tape *t, fv_var *table, const int32_t *ids, size_t count);
/* For each bag (segment) of ids, the sum of its rows of the table, divided by sqrt(its size):
 * [bags, d]. */
fv_var *fv_gather_bags(fv_tape *t, fv_var *table, const int32_t *ids, const fv_segments *bags);
/* Adds row i of x [count, d] to row ids[i] of zeros [rows, d], i ascending; ids[count], below
 * rows. */
fv_var *fv_scatter_add(fv_tape *t, fv_var *x, const int32_t *ids, size_t rows);
/* Slices ids[0 .. count - 1] along an axis; an id below 0 is an error. For a table of parameters
 * fv_gather is cheaper: its gradient is by rows. */
fv_var *fv_index_select(fv_tape *t, fv_var *x, int axis, const int32_t *ids, size_t count);
/* y[.., i, ..] = x[.., index[.., i, ..], ..]; index has the result's shape, which agrees with
 * x's but along the axis; an index below 0 is an error. */
fv_var *fv_take_along(fv_tape *t, fv_var *x, int axis, fv_shape shape, const int32_t *index);
/* value where mask (broadcast to x) says yes, else x; what a filled place holds never matters. */
fv_var *fv_masked_fill(fv_tape *t, fv_var *x, fv_bools mask, double value);
/* The rows of x [rows, d] with keep[row] = 1, and in *kept the segments they form (kept may be
 * NULL; segments too: all rows are one). */
fv_var *fv_masked_select(fv_tape *t, fv_var *x, const unsigned char *keep,
                         const fv_segments *segments, const fv_segments **kept);

/* ---- segments: x [rows, d], and which rows are one sample ------------------------------------ */

/* Rows of the neighbours at -radius .. +radius inside each segment, side by side, zeros outside:
 * [rows, d] -> [rows, (2 radius + 1) d]. */
fv_var *fv_neighbours(fv_tape *t, fv_var *x, const fv_segments *segments, int radius);
/* Adds row p of table [positions, d] to the row at position p of its segment; positions past the
 * table are an error. */
fv_var *fv_add_positions(fv_tape *t, fv_var *x, fv_var *table, const fv_segments *segments);
/* The mean, sum or largest of each segment's rows: [rows, d] -> [samples, d]; an empty segment
 * gives zeros. NaN is the largest; the first of equals takes the gradient. */
fv_var *fv_segment_mean(fv_tape *t, fv_var *x, const fv_segments *segments);
fv_var *fv_segment_sum(fv_tape *t, fv_var *x, const fv_segments *segments);
fv_var *fv_segment_max(fv_tape *t, fv_var *x, const fv_segments *segments);
/* Softmax over the rows of each segment, column by column: [rows, d] -> [rows, d]. -INFINITY has
 * weight 0; where all are, the weights are zeros and have no gradient. */
fv_var *fv_segment_softmax(fv_tape *t, fv_var *x, const fv_segments *segments);
/* The first or last row of each segment, or the one at position[sample] (negative: from the end)
 * -> [samples, d]; a position outside the segment is an error, but an empty one has zeros at 0 and
 * -1. */
fv_var *fv_segment_first(fv_tape *t, fv_var *x, const fv_segments *segments);
fv_var *fv_segment_last(fv_tape *t, fv_var *x, const fv_segments *segments);
fv_var *fv_segment_pick(fv_tape *t, fv_var *x, const fv_segments *segments,
                        const int32_t *position);
/* Back again: row s of x [samples, d] for every row of segment s -> [rows, d]. */
fv_var *fv_segment_expand(fv_tape *t, fv_var *x, const fv_segments *segments);
/* The rows of each segment in reverse order. */
fv_var *fv_segment_reverse(fv_tape *t, fv_var *x, const fv_segments *segments);
/* Sample by sample, the rows of a, then those of b; *joined (unless joined is NULL) gets the
 * segments of the result. */
fv_var *fv_segment_concat(fv_tape *t, fv_var *a, const fv_segments *of_a, fv_var *b,
                          const fv_segments *of_b, const fv_segments **joined);
/* The position of each row inside its segment: [rows], on the tape. NULL on an error. */
const int32_t *fv_segment_positions(fv_tape *t, const fv_segments *segments);
/* From padded to rows: [samples, time, d] -> [rows, d]; a segment longer than time is an error. */
fv_var *fv_pack(fv_tape *t, fv_var *x, const fv_segments *segments);
/* From rows to padded: [rows, d] -> [samples, time, d], zeros behind the last row of a segment; a
 * segment longer than time is an error. */
fv_var *fv_unpack(fv_tape *t, fv_var *x, const fv_segments *segments, size_t time);

/* ---- softmax and its family, over an axis ------------------------------------------------------
 * A row of nothing but -INFINITY gives zeros without a gradient (log_softmax: NaN). */

fv_var *fv_softmax(fv_tape *t, fv_var *x, int axis);          /* e^x / sum e^x */
fv_var *fv_log_softmax(fv_tape *t, fv_var *x, int axis);      /* x - ln(sum e^x) */
fv_var *fv_softmax_plus_one(fv_tape *t, fv_var *x, int axis); /* e^x / (1 + sum e^x) */
fv_var *fv_sparsemax(fv_tape *t, fv_var *x,
                     int axis); /* nearest point of the simplex; Martins, Astudillo, 2016 */

/* ---- norms: (x - mean) / sqrt(variance + eps) * weight + bias -------------------------------- */

typedef struct {
    double eps; /* default 1e-5 */
    int axes;   /* layer and rms norm: how many last axes are one; default 1 */
} fv_norm_opts;
/* Over the last axes; weight and bias have their shape, or are NULL. Ba, Kiros, Hinton, 2016. */
fv_var *fv_layer_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                      const fv_norm_opts *opts);
/* x / sqrt(mean of x^2 + eps) * weight, over the last axes. Zhang, Sennrich, 2019. */
fv_var *fv_rms_norm(fv_tape *t, fv_var *x, fv_var *weight, const fv_norm_opts *opts);
/* x [samples, channels, ..]: over a group of channels of one sample; weight, bias [channels] or
 * NULL. Wu, He, 2018. */
fv_var *fv_group_norm(fv_tape *t, fv_var *x, size_t groups, fv_var *weight, fv_var *bias,
                      const fv_norm_opts *opts);
/* The same with each channel its own group. Ulyanov, Vedaldi, Lempitsky, 2016. */
fv_var *fv_instance_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                         const fv_norm_opts *opts);
/* x / max(its length along an axis, eps); eps default 1e-12. */
fv_var *fv_l2_normalize(fv_tape *t, fv_var *x, int axis, const fv_norm_opts *opts);
typedef struct {
    double eps;                     /* default 1e-5 */
    const fv_real *mean, *variance; /* [channels]: use these instead of the batch's (evaluation) */
    /* [channels] each, when not NULL get what the batch had, for running averages: */
    fv_real *batch_mean, *batch_variance; /* the variance with count - 1 */
} fv_batch_norm_opts;
/* x [samples, channels, ..] or [rows, channels], over all but the channels. Its statistics are
 * those of the whole batch: a batch cut into shards would have others, so fv_fit must run it
 * with one shard, and it refuses more. Ioffe, Szegedy, 2015. */
fv_var *fv_batch_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                      const fv_batch_norm_opts *opts);

/* ---- losses: a sum, and in *count what it is a sum over -----------------------------------------
 * The mean is sum / count, over any cut of a batch: add both up, divide once. count may be NULL. */

typedef struct {
    double smoothing; /* label smoothing: this share is spread over all classes; default 0 */
    const fv_real *class_weight; /* [classes]: what a row of that label counts; default 1 */
} fv_cross_entropy_opts;
/* The sum over rows of -log softmax(x)[label]: [rows, classes] and labels[rows] -> scalar. Rows
 * with a negative label are left out; count gets how many (with weights, how much) were not. */
fv_var *fv_cross_entropy_sum(fv_tape *t, fv_var *x, const int32_t *labels,
                             const fv_cross_entropy_opts *opts, double *count);
/* The same towards chances target [rows, classes], with gradient: -sum target * log softmax(x). */
fv_var *fv_soft_cross_entropy_sum(fv_tape *t, fv_var *x, fv_var *target,
                                  const fv_cross_entropy_opts *opts, double *count);
/* -x[label] for log-chances x; class weights as above. */
fv_var *fv_nll_sum(fv_tape *t, fv_var *x, const int32_t *labels, const fv_cross_entropy_opts *opts,
                   double *count);
typedef struct {
    const fv_real *pos_weight; /* [columns]: what a positive counts; default 1 */
} fv_bce_opts;
/* -(pos_weight target log sigmoid(x) + (1 - target) log sigmoid(-x)), elementwise; count: the
 * numbers. */
fv_var *fv_bce_with_logits_sum(fv_tape *t, fv_var *x, fv_var *target, const fv_bce_opts *opts,
                               double *count);
fv_var *fv_mse_sum(fv_tape *t, fv_var *x, fv_var *target,
                   double *count); /* (x - target)^2; count: the numbers */
fv_var *fv_l1_sum(fv_tape *t, fv_var *x, fv_var *target, double *count); /* |x - target| */
/* With e = |x - target|: e^2 / 2 up to delta, delta (e - delta / 2) beyond. Huber, 1964. */
fv_var *fv_huber_sum(fv_tape *t, fv_var *x, fv_var *target, double delta, double *count);
/* target (ln target - x) for log-chances x, 0 without a gradient where target is 0; count: the
 * rows. */
fv_var *fv_kl_div_sum(fv_tape *t, fv_var *x, fv_var *target, double *count);
/* Rows of a and b [rows, d]: 1 - cos where label is 1, max(0, cos - margin) where it is -1;
 * count: the rows. */
fv_var *fv_cosine_embedding_sum(fv_tape *t, fv_var *a, fv_var *b, const int32_t *labels,
                                double margin, double *count);
/* max(0, margin - label x) with a label of 1 or -1 for each number of x; count: the numbers. */
fv_var *fv_hinge_sum(fv_tape *t, fv_var *x, const int32_t *labels, double margin, double *count);
/* Connectionist temporal classification: x [rows, classes] are log-chances, a segment of rows a
 * sample; its labels are those of the same segment of targets. A sample too short for its labels
 * gives INFINITY (zero with zero_infinity). count: the samples. Graves, Fernandez, Gomez,
 * Schmidhuber, 2006. */
typedef struct {
    int32_t blank;      /* default 0 */
    bool zero_infinity; /* such a sample gives 0 and no gradient */
} fv_ctc_opts;
fv_var *fv_ctc_sum(fv_tape *t, fv_var *x, const fv_segments *segments, const int32_t *labels,
                   const fv_segments *targets, const fv_ctc_opts *opts, double *count);

/* ---- convolution and pooling ----------------------------------------------------------------- */

/* Of each spatial axis; zero means the default. */
typedef struct {
    size_t stride[3]; /* default 1 (pooling: the kernel) */
    size_t
        padding[3]; /* zeros before each axis, and after it unless padding_after says otherwise */
    size_t padding_after[3]; /* used when different_padding is set */
    bool different_padding;
    size_t dilation[3];       /* default 1 */
    size_t groups;            /* default 1 */
    size_t output_padding[3]; /* transposed only: more places after each axis */
    size_t kernel[3];         /* pooling and unfolding: the window */
    bool ceil;                /* pooling: a last window may hang over the end */
    bool exclude_padding;     /* average pooling: divide by what lies inside */
} fv_conv_opts;
/* x [samples, in, length] (conv2d: [samples, in, height, width]; fv_conv: 1 to 3 such axes),
 * weight [out, in / groups, kernel ..], bias [out] or NULL -> [samples, out, ..]. */
fv_var *fv_conv1d(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts);
fv_var *fv_conv2d(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts);
fv_var *fv_conv(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts);
/* The transposed map: weight [in, out / groups, kernel ..]; 1 to 3 spatial axes. */
fv_var *fv_conv_transpose(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                          const fv_conv_opts *opts);
/* [samples, channels, ..] with 1 to 3 spatial axes; the window is opts->kernel. */
fv_var *fv_max_pool(fv_tape *t, fv_var *x, const fv_conv_opts *opts);
fv_var *fv_avg_pool(fv_tape *t, fv_var *x, const fv_conv_opts *opts);
/* To these sizes of the spatial axes: place i covers floor(i in / out) .. ceil((i + 1) in / out)
 * - 1. */
fv_var *fv_adaptive_max_pool(fv_tape *t, fv_var *x, const size_t *sizes);
fv_var *fv_adaptive_avg_pool(fv_tape *t, fv_var *x, const size_t *sizes);
/* Windows as columns: [samples, channels, height, width] -> [samples, channels * window,
 * places]; also one spatial axis. */
fv_var *fv_unfold(fv_tape *t, fv_var *x, const fv_conv_opts *opts);
/* Its transpose: columns added up into [samples, channels, sizes ..]; two spatial axes when
 * opts->kernel[1] is set, else one. */
fv_var *fv_fold(fv_tape *t, fv_var *x, const size_t *sizes, const fv_conv_opts *opts);
/* On segments: x [rows, in] -> [rows', out], a segment at a time, so that no window crosses a
 * border; *out gets the segments of the result (NULL allowed when the lengths stay), with no rows
 * for a segment that is empty or shorter than the window. weight [out, in / groups, kernel]. */
fv_var *fv_segment_conv(fv_tape *t, fv_var *x, const fv_segments *segments, fv_var *weight,
                        fv_var *bias, const fv_conv_opts *opts, const fv_segments **out);
fv_var *fv_segment_conv_transpose(fv_tape *t, fv_var *x, const fv_segments *segments,
                                  fv_var *weight, fv_var *bias, const fv_conv_opts *opts,
                                  const fv_segments **out);
fv_var *fv_segment_max_pool(fv_tape *t, fv_var *x, const fv_segments *segments,
                            const fv_conv_opts *opts, const fv_segments **out);
fv_var *fv_segment_avg_pool(fv_tape *t, fv_var *x, const fv_segments *segments,
                            const fv_conv_opts *opts, const fv_segments **out);

/* ---- noise, in FV_TRAIN only; drawn again in backward instead of stored ---------------------- */

/* Zeroes each number with probability p and scales the rest by 1 / (1 - p). Srivastava et al.,
 * 2014. */
fv_var *fv_dropout(fv_tape *t, fv_var *x, double p);
/* The same for whole rows [rows, ..], one draw a row. Tompson et al., 2015. */
fv_var *fv_dropout_rows(fv_tape *t, fv_var *x, double p);
fv_var *fv_gaussian_noise(fv_tape *t, fv_var *x,
                          double deviation); /* x + normal numbers of that deviation, >= 0 */
/* x + scale * Gumbel noise, scale >= 0: softmax of it at a temperature is a soft sample. Jang, Gu,
 * Poole, 2017. */
fv_var *fv_gumbel_noise(fv_tape *t, fv_var *x, double scale);

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct {
    size_t heads;             /* default 1 */
    size_t kv_heads;          /* grouped heads; default: heads */
    fv_score score;           /* default: the dot product */
    fv_normalizer normalizer; /* default: softmax */
    double scale;             /* default 1 / sqrt(width of a head) for the dot product, else 1 */
    double softcap;           /* c > 0: c tanh(score / c), before biases and mask */
    double dropout;           /* of the weights, in FV_TRAIN */
    /* Of an additive score: [heads, width] and its f; bilinear: [heads, width of q, width of k];
     * a user's: [heads, any]. */
    fv_var *weight;
    fv_score_inner inner;
    double inner_slope; /* of FV_INNER_LEAKY_RELU; default 0.2 */
    const fv_score_function *user;
    /* Added to the score by distance j - i clamped to +-clip (i counts the mask's offset):
     * [heads, 2 clip + 1], or one for each row, [queries, heads, 2 clip + 1]. */
    fv_var *relative;
    /* [heads]: minus slope * |j - i| is added to the score. Press, Smith, Lewis, 2022 (ALiBi). */
    fv_var *slopes;
    /* Added to the score of each pair, -INFINITY hides it: [heads, pairs] or [1, pairs], segment
     * after segment [queries, keys] each, as the mask's bytes lie; with edges [edges, heads] or
     * [edges, 1]. */
    fv_var *bias;
    /* With edges: added to the key, and to the value, of that pair: [edges, kv_heads * width]. */
    fv_var *edge_keys, *edge_values;
    /* Added to the value by distance, [2 clip + 1, width of a value], for all heads. Shaw,
     * Uszkoreit, Vaswani, 2018. */
    fv_var *relative_values;
} fv_attention_opts;
/* Weighted sums of values: for each head, the visible keys' scores become weights:
 * [queries, heads * qk], [keys, kv_heads * qk], [keys, kv_heads * vd] -> [queries, heads * vd]. A row
 * that sees nothing gives zeros. Memory is linear in the rows: scores are never stored; edges, scores
 * other than dot, cosine and bilinear, sparsemax and relative_values hold those of one row a
 * thread. Vaswani et al., 2017. */
fv_var *fv_attention(fv_tape *t, fv_var *q, fv_var *k, fv_var *v, const fv_mask *mask,
                     const fv_attention_opts *opts);
/* The same when q, k and v stand side by side: [rows, (heads + 2 kv_heads) * width] -> [rows, heads *
 * width]. */
fv_var *fv_self_attention(fv_tape *t, fv_var *qkv, const fv_mask *mask,
                          const fv_attention_opts *opts);
/* Looks at an attention value y: what its weights were, before dropout, computed again when asked, in
 * memory of the tape, without history. All but the first are linear in the rows. Without data (an error)
 * when y is no attention.
 * All weights of one segment: [heads, queries, keys]; an error when there is no such segment. */
fv_tensor fv_attention_weights(fv_tape *t, const fv_var *y, size_t segment);
/* What turned a row's scores into weights: [queries, heads]. Softmax and plus one: the log of the sum
 * of e^score (and 1), -inf for a row that sees nothing; relu: the sum; sparsemax: the threshold;
 * mean: how many keys; else 0. */
fv_tensor fv_attention_lse(fv_tape *t, const fv_var *y);
/* How spread a row's weights are: minus the sum of w ln w, nats, [queries, heads]; NaN where weights
 * are negative. */
fv_tensor fv_attention_entropy(fv_tape *t, const fv_var *y);
/* The weight that each key received from all queries: [keys, heads]. */
fv_tensor fv_attention_received(fv_tape *t, const fv_var *y);
/* The k largest weights of each row, largest first (of equals the lower key first): [queries, heads, k],
 * their row numbers among the keys in *keys, likewise; where a row sees fewer, weight 0 and key -1. An
 * error when k is 0. */
fv_tensor fv_attention_top(fv_tape *t, const fv_var *y, size_t k, const int32_t **keys);

typedef struct {
    size_t heads;     /* default 1 */
    bool interleaved; /* pairs are columns 2i and 2i + 1 of a head; default: i and i + width / 2 */
    size_t width;     /* the first columns of each head turn, an even number; default: all */
    double base;      /* pair i turns by position * base^(-2i / width); default 10000 */
    double scaling;   /* positions are divided by it; default 1 */
    int offset;       /* position of the first row of each segment */
    const int32_t *positions; /* [rows], instead of counting in the segment */
    /* [positions_given, width / 2]: of each position, instead of base and scaling. */
    const fv_real *cosines, *sines;
    size_t positions_given;
} fv_rotary_opts;
/* Rotary positions: pairs of columns of each head turn by an angle that grows with the position in
 * the segment (NULL: one of all rows), [rows, heads * d] -> the same. A dot product of a turned query
 * and key depends on the distance of their positions. Su et al., 2021, arXiv 2104.09864. */
fv_var *fv_rotary(fv_tape *t, fv_var *x, const fv_segments *segments, const fv_rotary_opts *opts);

typedef struct {
    size_t heads; /* default 1 */
    size_t
        kv_heads; /* query head h reads the state of head h / (heads / kv_heads); default: heads */
    double scale; /* default 1 / sqrt(wk) */
    /* Gates: the state is multiplied by e^decay before a row changes it, each of its rows by its own
     * number [rows, kv_heads * wk], or all by one [rows, kv_heads]. */
    fv_var *decay;
    /* The delta rule: S += beta k (v - k S) instead of k v; [rows, kv_heads], or [rows, 1]. */
    fv_var *beta;
    fv_var *state;    /* at the start, [segments, kv_heads, wk, wv]; default: zeros */
    fv_tensor *after; /* gets the states at the end, without history, in memory of the tape */
} fv_linear_attention_opts;
/* Attention without a normaliser, by a state S [wk, wv] a head that each row of a segment (NULL: one of
 * all rows) changes and then reads: S += k v, y = scale q S. [rows, heads * wk], [rows, kv_heads * wk],
 * [rows, kv_heads * wv] -> [rows, heads * wv]. Memory: a state for every 64 rows; time: rows * wk * wv.
 * Katharopoulos et al., 2020, arXiv 2006.16236; gates and delta rule: Yang et al., 2024, arXiv 2412.06464. */
fv_var *fv_linear_attention(fv_tape *t, fv_var *q, fv_var *k, fv_var *v,
                            const fv_segments *segments, const fv_linear_attention_opts *opts);

/* ---- predictions, without history ------------------------------------------------------------ */

/* softmax of each row over the last axis, in memory of the tape. Without data when x is NULL, or
 * the tape has an error. */
fv_tensor fv_softmax_rows(fv_tape *t, const fv_var *x);
/* The column of the largest number of each row, the first of equals: labels[rows]. NULL has no
 * rows. */
void fv_argmax_rows(const fv_var *x, int32_t *labels);

#ifdef __cplusplus
}
#endif
#endif
