/* Softmax, softmax with one more class, and the logarithm of softmax, over an axis.
 *
 * Along the last axis a row at a time, in lanes; along another, columns side by side. Both shift by the
 * largest number first, so that no exponential is larger than 1. */
#include "autograd/ops/rows.h"

static int axis_of(const fv_var *y)
{
    return *(const int *)y->options;
}

/* What is subtracted before exp: the largest number, but 0 where there is none above -Inf. */
static fv_real shift_by(fv_real most)
{
    return fv_re(most) == -(double)INFINITY ? 0 : most;
}

/* 1 / sum; nothing to share out gives zeros. */
static fv_real share_of(fv_real sum)
{
    return fv_re(sum) == 0 ? 0 : 1 / sum;
}

/* ---- softmax, and softmax_plus_one: a class of score 0 takes its share and is not written -------- */

static void softmax_strip(const fv_var *y, strip s, bool plus_one)
{
    const fv_real *restrict x = y->in[0]->value.data + s.at;
    fv_real *restrict out = y->value.data + s.at;
    fv_real shift[FVI_ABREAST], sum[FVI_ABREAST];
    if (s.step == 1)
        shift[0] = lane_max(s.n, x);
    else
        columns_max(s, x, shift);
    for (size_t j = 0; j < s.width; j++) {
        shift[j] = plus_one && fv_re(shift[j]) < 0 ? 0 : shift_by(shift[j]);
        sum[j] = plus_one ? exp_of_shifted(-shift[j]) : 0;
    }
    if (s.step == 1) {
        const fv_real share = share_of(sum[0] + lane_exp(s.n, x, shift[0], out));
        for (size_t i = 0; i < s.n; i++)
            out[i] *= share;
        return;
    }
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++) {
            const fv_real e = exp_of_shifted(x[i * s.step + j] - shift[j]);
            out[i * s.step + j] = e;
            sum[j] += e;
        }
    for (size_t j = 0; j < s.width; j++)
        sum[j] = share_of(sum[j]);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            out[i * s.step + j] *= sum[j];
}

/* dx = y * (dy - the sum of dy * y): the class that is not written changes nothing here */
static void softmax_strip_backward(const fv_var *y, strip s, fv_real *dx)
{
    const fv_real *restrict out = y->value.data + s.at, *restrict dy = y->grad + s.at;
    fv_real *restrict to = dx + s.at;
    if (s.step == 1) {
        const fv_real dot = lane_dot(s.n, out, dy);
        for (size_t i = 0; i < s.n; i++)
            to[i] += out[i] * (dy[i] - dot);
        return;
    }
    fv_real dot[FVI_ABREAST] = {0};
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            dot[j] = fvi_fma(out[i * s.step + j], dy[i * s.step + j], dot[j]);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            to[i * s.step + j] += out[i * s.step + j] * (dy[i * s.step + j] - dot[j]);
}

static void softmax_forward_strip(const fv_var *y, strip s, fv_real *dx)
{
    (void)dx;
    softmax_strip(y, s, false);
}

static bool softmax_forward(fv_tape *t, fv_var *y)
{
    each_strip(t, y, axis_of(y), softmax_forward_strip);
    return true;
}

static void softmax_backward(fv_tape *t, fv_var *y)
{
    each_strip_back(t, y, axis_of(y), softmax_strip_backward);
}

/* Each op of the family on a row, on columns, on one number, and on more columns than go abreast. */
enum { SAMPLES = 4 };
static fv_var *sample_of_family(fv_sampler *s, int which, int *axis)
{
    static const int axes[SAMPLES] = {-1, 1, 0, 0};
    const fv_shape shapes[SAMPLES] = {FV_SHAPE(3, 37), FV_SHAPE(2, 5, 3), FV_SHAPE(1),
                                      FV_SHAPE(3, 130)};
    *axis = axes[which];
    return fv_sample(s, shapes[which], -3, 3);
}

static fv_var *softmax_sample(fv_sampler *s, int which)
{
    int axis;
    fv_var *x = sample_of_family(s, which, &axis);
    return fv_softmax(fv_sampler_tape(s), x, axis);
}
FVI_OP(softmax, "y = e^x / sum e^x", "", 4)

static void softmax_plus_one_forward_strip(const fv_var *y, strip s, fv_real *dx)
{
    (void)dx;
    softmax_strip(y, s, true);
}

static bool softmax_plus_one_forward(fv_tape *t, fv_var *y)
{
    each_strip(t, y, axis_of(y), softmax_plus_one_forward_strip);
    return true;
}

/* as softmax */
static void softmax_plus_one_backward(fv_tape *t, fv_var *y)
{
    softmax_backward(t, y);
}

static fv_var *softmax_plus_one_sample(fv_sampler *s, int which)
{
    int axis;
    fv_var *x = sample_of_family(s, which, &axis);
    return fv_softmax_plus_one(fv_sampler_tape(s), x, axis);
}
FVI_OP(softmax_plus_one, "y = e^x / (1 + sum e^x)", "Miller, 2023, Attention Is Off By One", 4)

/* ---- log_softmax: a row of nothing but -Inf has no logarithm of a share, and gives NaN ------------ */

static void log_softmax_forward_strip(const fv_var *y, strip s, fv_real *dx)
{
    (void)dx;
    const fv_real *restrict x = y->in[0]->value.data + s.at;
    fv_real *restrict out = y->value.data + s.at;
    if (s.step == 1) {
        const fv_real most = lane_max(s.n, x), log_sum = fvi_log(lane_exp(s.n, x, most, out));
        for (size_t i = 0; i < s.n; i++)
            out[i] = (x[i] - most) - log_sum;
        return;
    }
    fv_real most[FVI_ABREAST], sum[FVI_ABREAST] = {0};
    columns_max(s, x, most);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            sum[j] += exp_of_shifted(x[i * s.step + j] - most[j]);
    for (size_t j = 0; j < s.width; j++)
        sum[j] = fvi_log(sum[j]);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            out[i * s.step + j] = (x[i * s.step + j] - most[j]) - sum[j];
}

/* dx = dy - e^y * the sum of dy */
static void log_softmax_strip_backward(const fv_var *y, strip s, fv_real *dx)
{
    const fv_real *restrict out = y->value.data + s.at, *restrict dy = y->grad + s.at;
    fv_real *restrict to = dx + s.at;
    if (s.step == 1) {
        const fv_real sum = lane_sum(s.n, dy);
        for (size_t i = 0; i < s.n; i++)
            to[i] += dy[i] - exp_of_shifted(out[i]) * sum;
        return;
    }
    fv_real sum[FVI_ABREAST] = {0};
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            sum[j] += dy[i * s.step + j];
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            to[i * s.step + j] += dy[i * s.step + j] - exp_of_shifted(out[i * s.step + j]) * sum[j];
}

static bool log_softmax_forward(fv_tape *t, fv_var *y)
{
    each_strip(t, y, axis_of(y), log_softmax_forward_strip);
    return true;
}

static void log_softmax_backward(fv_tape *t, fv_var *y)
{
    each_strip_back(t, y, axis_of(y), log_softmax_strip_backward);
}

static fv_var *log_softmax_sample(fv_sampler *s, int which)
{
    int axis;
    fv_var *x = sample_of_family(s, which, &axis);
    return fv_log_softmax(fv_sampler_tape(s), x, axis);
}
FVI_OP(log_softmax, "y = x - ln(sum e^x)", "", 4)

#if FVI_ONCE
static fv_var *over_axis(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, int axis)
{
    if (!given(t, op, x) || !known_axis(t, op, x, &axis))
        return NULL;
    return fvi_record(t, id, x->value.shape, &axis, sizeof axis, 1, &x);
}

fv_var *fv_softmax(fv_tape *t, fv_var *x, int axis)
{
    return over_axis(t, FVI_OP_softmax, "softmax", x, axis);
}

fv_var *fv_log_softmax(fv_tape *t, fv_var *x, int axis)
{
    return over_axis(t, FVI_OP_log_softmax, "log_softmax", x, axis);
}

fv_var *fv_softmax_plus_one(fv_tape *t, fv_var *x, int axis)
{
    return over_axis(t, FVI_OP_softmax_plus_one, "softmax_plus_one", x, axis);
}
#endif
