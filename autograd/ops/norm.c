/* Norms of rows: layer norm and root mean square norm over the last axes, and vectors made of length 1. */
#include "autograd/ops/norm.h"

typedef struct {
    double eps;
    size_t width; /* numbers of a row: the last axes as one */
} row_norm;

/* Row r of x is normed to n = (x - mean) * scale, and y = n * weight + bias. */
typedef struct {
    size_t rows, d;
    const fv_real *x, *weight, *bias; /* [d]: ones and zeros when there is none */
    fv_real *saved;                   /* mean and scale of each row */
} normed;

/* y->saved: 2 * rows numbers, then ones and zeros that stand for a weight and a bias. */
static normed normed_of(const fv_var *y)
{
    const row_norm *o = y->options;
    const size_t d = o->width, rows = d ? fvi_count(y) / d : 0;
    const fv_var *w = y->in[1], *b = y->inputs > 2 ? y->in[2] : NULL;
    fv_real *saved = y->saved, *ones = saved + 2 * rows;
    return (normed){
        rows, d, y->in[0]->value.data, w ? w->value.data : ones, b ? b->value.data : ones + d,
        saved};
}

/* centred: the mean is taken away, as layer norm does. */
static bool norm_forward(fv_tape *t, fv_var *y, bool centred)
{
    const row_norm *o = y->options;
    const size_t d = o->width, rows = d ? fvi_count(y) / d : 0;
    if (rows == 0)
        return true;
    fv_real *ones = fvi_tape_take(t, 2 * rows + 2 * d, sizeof *ones);
    y->saved = ones;
    if (ones == NULL)
        return false;
    for (size_t i = 0; i < 2 * d; i++)
        ones[2 * rows + i] = i < d ? 1 : 0;
    const normed v = normed_of(y);
    const int parts = parts_of(t, rows, 4 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++) {
            const fv_real *restrict x = v.x + r * d, *restrict w = v.weight, *restrict b = v.bias;
            fv_real *restrict out = y->value.data + r * d;
            const fv_real mean = centred ? lane_sum(d, x) / (fv_real)d : 0;
            const fv_real variance = lane_squares(d, x, mean) / (fv_real)d;
            const fv_real scale = 1 / fvi_sqrt(variance + (fv_real)o->eps);
            for (size_t i = 0; i < d; i++)
                out[i] = (x[i] - mean) * scale * w[i] + b[i];
            v.saved[2 * r] = mean;
            v.saved[2 * r + 1] = scale;
        }
    }
    return true;
}

/* One row, with g = dy * w: adds dy * n to dw and dy to db unless they are NULL, and
 * scale * (g - mean(g) - n * mean(g * n)) to dx unless that is NULL. */
static inline void row_backward(const normed *v, size_t r, bool centred, const fv_real *restrict dy,
                                fv_real *restrict dx, fv_real *restrict dw, fv_real *restrict db)
{
    const size_t d = v->d;
    const fv_real *restrict x = v->x + r * d, *restrict w = v->weight;
    const fv_real mean = v->saved[2 * r], scale = v->saved[2 * r + 1];
    for (size_t i = 0; dw != NULL && i < d; i++) {
        dw[i] = fvi_fma(dy[i], (x[i] - mean) * scale, dw[i]);
        db[i] += dy[i];
    }
    if (dx == NULL)
        return;
    const fv_real mean_g = centred ? lane_dot(d, dy, w) / (fv_real)d : 0;
    const fv_real slope = lane_product(d, dy, w, x, mean) / (fv_real)d * scale * scale;
    for (size_t i = 0; i < d; i++)
        dx[i] += scale * fvi_fma(mean - x[i], slope, fvi_fma(dy[i], w[i], -mean_g));
}

/* The gradients of weight and bias are summed in a fixed number of blocks of rows. */
static void norm_backward(fv_tape *t, fv_var *y, bool centred)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank), *dw = fv_grad(t, y->in[1]);
    fv_real *db = y->inputs > 2 ? fv_grad(t, y->in[2]) : NULL;
    if (fvi_count(y) == 0)
        return;
    const normed v = normed_of(y);
    const size_t d = v.d;
    const blocks b = blocks_of(v.rows, 6 * d);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *sums = NULL; /* [blocks, 2, d] */
    if (dw != NULL || db != NULL)
        sums = fv_tape_alloc(t, 2 * b.count * d, sizeof *sums);
    const int parts = fv_tape_ok(t) ? parts_of(t, b.count, 6 * d * b.each) : 0;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(b.count, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            const part rows = block_at(b, i);
            fv_real *own = sums ? sums + 2 * i * d : NULL;
            for (size_t r = rows.from; r < rows.to; r++) {
                if (blank)
                    memset(dx + r * d, 0, d * sizeof *dx);
                row_backward(&v, r, centred, y->grad + r * d, dx ? dx + r * d : NULL, own,
                             own ? own + d : NULL);
            }
        }
    }
    for (size_t i = 0; sums != NULL && i < b.count; i++) {
        if (dw != NULL)
            add_to(d, sums + 2 * i * d, dw);
        if (db != NULL)
            add_to(d, sums + (2 * i + 1) * d, db);
    }
    fvi_arena_release(&t->arena, mark);
}

/* ---- layer_norm ------------------------------------------------------------------------------ */

static bool layer_norm_forward(fv_tape *t, fv_var *y)
{
    return norm_forward(t, y, true);
}

/* with n = (x - mean) * scale and g = dy * w: dx = scale * (g - mean(g) - n * mean(g * n)),
 * dw = dy * n and db = dy, summed over rows */
static void layer_norm_backward(fv_tape *t, fv_var *y)
{
    norm_backward(t, y, true);
}

static fv_var *layer_norm_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const fv_norm_opts opts = {.eps = which == 3 ? FV_NONE : 0.1, .axes = which == 2 ? 2 : 1};
    const size_t d = which == 0 ? 8 : which == 5 ? 1 : 33;
    if (which == 2) {
        fv_var *x = fv_sample(s, FV_SHAPE(3, 4, 5), -2, 2);
        return fv_layer_norm(t, x, fv_sample(s, FV_SHAPE(4, 5), 0.5, 2), NULL, &opts);
    }
    if (which == 4) { /* a row by itself: the weight and the input are one */
        fv_var *x = fv_sample(s, FV_SHAPE(6), -2, 2);
        return fv_layer_norm(t, x, x, x, NULL);
    }
    fv_var *x = fv_sample(s, FV_SHAPE(which == 6 ? 0 : 4, d), -2, 2);
    fv_var *w = which == 3 ? NULL : fv_sample(s, FV_SHAPE(d), 0.5, 2);
    return fv_layer_norm(t, x, w, fv_sample(s, FV_SHAPE(d), -1, 1), which == 0 ? NULL : &opts);
}
FVI_OP(layer_norm, "y = (x - mean) / sqrt(variance + eps) * w + b",
       "Ba, Kiros, Hinton, 2016, arXiv 1607.06450", 7)

/* ---- rms_norm -------------------------------------------------------------------------------- */

static bool rms_norm_forward(fv_tape *t, fv_var *y)
{
    return norm_forward(t, y, false);
}

/* with n = x * scale and g = dy * w: dx = scale * (g - n * mean(g * n)), dw = dy * n summed over rows */
static void rms_norm_backward(fv_tape *t, fv_var *y)
{
    norm_backward(t, y, false);
}

static fv_var *rms_norm_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const fv_norm_opts opts = {.eps = 0.1, .axes = 2}, none = {.eps = FV_NONE};
    if (which == 1)
        return fv_rms_norm(t, fv_sample(s, FV_SHAPE(3, 4, 5), -2, 2),
                           fv_sample(s, FV_SHAPE(4, 5), -2, 2), &opts);
    fv_var *x = fv_sample(s, which == 2 ? FV_SHAPE(7) : FV_SHAPE(4, 33), -2, 2);
    return fv_rms_norm(t, x,
                       which == 0   ? fv_sample(s, FV_SHAPE(33), -2, 2)
                       : which == 2 ? x
                                    : NULL,
                       which == 3 ? &none : NULL);
}
FVI_OP(rms_norm, "y = x / sqrt(mean(x^2) + eps) * w", "Zhang and Sennrich, 2019, arXiv 1910.07467",
       4)

/* ---- l2_normalize ---------------------------------------------------------------------------- */

typedef struct {
    double eps;
    int axis;
    size_t inner;
} length_options;

/* Where the length of the vector through column j of a strip is kept. */
static size_t place_of_length(const length_options *o, strip s, size_t j)
{
    const size_t slab = s.n * o->inner;
    return s.at / slab * o->inner + s.at % slab + j;
}

static void l2_normalize_strip(const fv_var *y, strip s, fv_real *dx)
{
    (void)dx;
    const length_options *o = y->options;
    const fv_real *restrict x = y->in[0]->value.data + s.at;
    fv_real *restrict out = y->value.data + s.at;
    fv_real *length = (fv_real *)y->saved + place_of_length(o, s, 0);
    fv_real sum[FVI_ABREAST] = {0};
    if (s.step == 1)
        sum[0] = lane_squares(s.n, x, 0);
    for (size_t i = 0; s.step > 1 && i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            sum[j] = fvi_fma(x[i * s.step + j], x[i * s.step + j], sum[j]);
    for (size_t j = 0; j < s.width; j++) {
        length[j] = fvi_sqrt(sum[j]);
        sum[j] = fv_re(length[j]) < o->eps ? (fv_real)o->eps : length[j];
    }
    if (s.step == 1)
        for (size_t i = 0; i < s.n; i++)
            out[i] = x[i] / sum[0];
    for (size_t i = 0; s.step > 1 && i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            out[i * s.step + j] = x[i * s.step + j] / sum[j];
}

/* dx = (dy - y * the sum of dy * y) / length; dy / eps where the length is below eps */
static void l2_normalize_strip_backward(const fv_var *y, strip s, fv_real *dx)
{
    const length_options *o = y->options;
    const fv_real *restrict out = y->value.data + s.at, *restrict dy = y->grad + s.at;
    const fv_real *length = (const fv_real *)y->saved + place_of_length(o, s, 0);
    fv_real *restrict to = dx + s.at;
    fv_real dot[FVI_ABREAST] = {0}, by[FVI_ABREAST];
    size_t zeros = 0; /* a vector that nothing depends on may be NaN: attention hides some */
    while (s.step == 1 && zeros < s.n && fv_re(dy[zeros]) == 0 && fv_im(dy[zeros]) == 0)
        zeros++;
    if (zeros == s.n)
        return;
    if (s.step == 1)
        dot[0] = lane_dot(s.n, out, dy);
    for (size_t i = 0; s.step > 1 && i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            dot[j] = fvi_fma(out[i * s.step + j], dy[i * s.step + j], dot[j]);
    for (size_t j = 0; j < s.width; j++) {
        const bool below = fv_re(length[j]) < o->eps;
        dot[j] = below ? 0 : dot[j];
        by[j] = below ? (fv_real)o->eps : length[j];
    }
    if (s.step == 1)
        for (size_t i = 0; i < s.n; i++)
            to[i] += (dy[i] - out[i] * dot[0]) / by[0];
    for (size_t i = 0; s.step > 1 && i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            to[i * s.step + j] += (dy[i * s.step + j] - out[i * s.step + j] * dot[j]) / by[j];
}

/* saved: the length of each vector */
static bool l2_normalize_forward(fv_tape *t, fv_var *y)
{
    const length_options *o = y->options;
    const axis_view v = view_axis(y->value.shape, o->axis);
    y->saved = fvi_tape_take(t, v.outer * v.inner, sizeof(fv_real));
    if (y->saved == NULL)
        return false;
    each_strip(t, y, o->axis, l2_normalize_strip);
    return true;
}

static void l2_normalize_backward(fv_tape *t, fv_var *y)
{
    const length_options *o = y->options;
    each_strip_back(t, y, o->axis, l2_normalize_strip_backward);
}

static fv_var *l2_normalize_sample(fv_sampler *s, int which)
{
    static const int axes[] = {-1, 1, 0, 0, -1};
    const fv_shape shapes[] = {FV_SHAPE(3, 37), FV_SHAPE(2, 5, 3), FV_SHAPE(1), FV_SHAPE(3, 130),
                               FV_SHAPE(4, 5)};
    const fv_norm_opts far = {.eps = 100}; /* longer than any */
    return fv_l2_normalize(fv_sampler_tape(s), fv_sample(s, shapes[which], -3, 3), axes[which],
                           which == 4 ? &far : NULL);
}
FVI_OP(l2_normalize, "y = x / max(length of x, eps)", "", 5)

#if FVI_ONCE
/* A row of the last axes of x, and a weight or bias that has their shape or is absent. */
static bool row_of(fv_tape *t, const char *op, const fv_var *x, const fv_norm_opts *opts,
                   row_norm *o, fv_shape *shape)
{
    const int axes = opts && opts->axes ? opts->axes : 1, rank = x->value.shape.rank;
    if (axes < 1 || axes > rank) {
        fv_refuse(t, op, "the last %d axes of %s", axes, fv_describe(t, x));
        return false;
    }
    *shape = (fv_shape){.rank = axes};
    o->width = 1;
    for (int i = 0; i < axes; i++) {
        shape->size[i] = x->value.shape.size[rank - axes + i];
        o->width *= shape->size[i];
    }
    return known_eps(t, op, opts ? opts->eps : 0, 1e-5, &o->eps);
}

fv_var *fv_layer_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_norm_opts *opts)
{
    const char *op = "layer_norm";
    row_norm o;
    fv_shape shape;
    if (!given(t, op, x) || !row_of(t, op, x, opts, &o, &shape) ||
        !has_shape(t, op, "weight", weight, shape) || !has_shape(t, op, "bias", bias, shape))
        return NULL;
    return fvi_record(t, FVI_OP_layer_norm, x->value.shape, &o, sizeof o, 3,
                      (fv_var *[]){x, weight, bias});
}

fv_var *fv_rms_norm(fv_tape *t, fv_var *x, fv_var *weight, const fv_norm_opts *opts)
{
    const char *op = "rms_norm";
    row_norm o;
    fv_shape shape;
    if (!given(t, op, x) || !row_of(t, op, x, opts, &o, &shape) ||
        !has_shape(t, op, "weight", weight, shape))
        return NULL;
    return fvi_record(t, FVI_OP_rms_norm, x->value.shape, &o, sizeof o, 2, (fv_var *[]){x, weight});
}

fv_var *fv_l2_normalize(fv_tape *t, fv_var *x, int axis, const fv_norm_opts *opts)
{
    const char *op = "l2_normalize";
    length_options o;
    if (!given(t, op, x) || !known_axis(t, op, x, &axis) ||
        !known_eps(t, op, opts ? opts->eps : 0, 1e-12, &o.eps))
        return NULL;
    o.axis = axis;
    o.inner = view_axis(x->value.shape, axis).inner;
    return fvi_record(t, FVI_OP_l2_normalize, x->value.shape, &o, sizeof o, 1, &x);
}
#endif
