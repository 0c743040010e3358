/* Elementwise arithmetic, sums, and views. */
#include "autograd/ops/ops.h"

#include <string.h>

/* ---- add: y = a + b, where b may be one row [d] for all rows of a -------------------------------- */

static bool add_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *restrict a = y->in[0]->value.data, *restrict b = y->in[1]->value.data;
    fv_real *restrict out = y->value.data;
    size_t n = fvi_count(y->in[1]), rows = n ? fvi_count(y) / n : 0;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < n; i++)
            out[r * n + i] = a[r * n + i] + b[i];
    return true;
}

/* da = dy, db = dy summed over the rows that shared b */
static void add_backward(fv_tape *t, fv_var *y)
{
    size_t n = fvi_count(y->in[1]), rows = n ? fvi_count(y) / n : 0;
    fv_real *da = fv_grad(t, y->in[0]), *db = fv_grad(t, y->in[1]);
    if (da != NULL)
        add_to(n * rows, y->grad, da);
    for (size_t r = 0; db != NULL && r < rows; r++)
        add_to(n, y->grad + r * n, db);
}

static fv_var *add_sample(fv_sampler *s, int which)
{
    fv_var *a = fv_sample(s, FV_SHAPE(5, 7), -2, 2);
    if (which == 2)
        return fv_add(fv_sampler_tape(s), a, a);
    return fv_add(fv_sampler_tape(s), a,
                  fv_sample(s, which == 0 ? FV_SHAPE(5, 7) : FV_SHAPE(7), -2, 2));
}
FVI_OP(add, "y = a + b", "", 3)

/* ---- mul: y = a * b ------------------------------------------------------------------------------ */

static bool mul_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *restrict a = y->in[0]->value.data, *restrict b = y->in[1]->value.data;
    fv_real *restrict out = y->value.data;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        out[i] = a[i] * b[i];
    return true;
}

/* da = dy * b, db = dy * a */
static void mul_backward(fv_tape *t, fv_var *y)
{
    for (int side = 0; side < 2; side++) {
        const fv_real *other = y->in[1 - side]->value.data, *dy = y->grad;
        fv_real *d = fv_grad(t, y->in[side]);
        for (size_t i = 0, n = d ? fvi_count(y) : 0; i < n; i++)
            d[i] += dy[i] * other[i];
    }
}

static fv_var *mul_sample(fv_sampler *s, int which)
{
    fv_var *a = fv_sample(s, FV_SHAPE(4, 9), -2, 2);
    return fv_mul(fv_sampler_tape(s), a, which ? a : fv_sample(s, FV_SHAPE(4, 9), -2, 2));
}
FVI_OP(mul, "y = a * b", "", 2)

/* ---- scale: y = factor * x ----------------------------------------------------------------------- */

static bool scale_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real factor = (fv_real) * (const double *)y->options;
    const fv_real *restrict x = y->in[0]->value.data;
    fv_real *restrict out = y->value.data;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        out[i] = factor * x[i];
    return true;
}

/* dx = factor * dy */
static void scale_backward(fv_tape *t, fv_var *y)
{
    const fv_real factor = (fv_real) * (const double *)y->options;
    const fv_real *restrict dy = y->grad;
    fv_real *restrict dx = fv_grad(t, y->in[0]);
    for (size_t i = 0, n = dx ? fvi_count(y) : 0; i < n; i++)
        dx[i] += factor * dy[i];
}

static fv_var *scale_sample(fv_sampler *s, int which)
{
    return fv_scale(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(3, 5), -2, 2), which ? -0.75 : 3);
}
FVI_OP(scale, "y = factor * x", "", 2)

/* ---- sum: y = sum of all of x -------------------------------------------------------------------- */

static bool sum_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    fvi_wide total = 0;
    for (size_t i = 0, n = fvi_count(y->in[0]); i < n; i++)
        total += y->in[0]->value.data[i];
    y->value.data[0] = (fv_real)total;
    return true;
}

/* dx = dy everywhere */
static void sum_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]), dy = y->grad[0];
    for (size_t i = 0, n = dx ? fvi_count(y->in[0]) : 0; i < n; i++)
        dx[i] += dy;
}

static fv_var *sum_sample(fv_sampler *s, int which)
{
    return fv_sum(fv_sampler_tape(s), fv_sample(s, which ? FV_SHAPE(1) : FV_SHAPE(4, 6), -2, 2),
                  NULL);
}
FVI_OP(sum, "y = sum(x)", "", 2)

/* ---- reshape: a view ----------------------------------------------------------------------------- */

static bool reshape_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    y->value.data = y->in[0]->value.data;
    return true;
}

/* The gradient is a view of the input's (see fv_grad): nothing is left to add. */
static void reshape_backward(fv_tape *t, fv_var *y)
{
    (void)t;
    (void)y;
}

static fv_var *reshape_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(4, 6), -2, 2), *y = fv_reshape(t, x, FV_SHAPE(2, 3, 4));
    return which ? fv_add(t, y, fv_reshape(t, x, FV_SHAPE(2, 3, 4))) : y;
}
FVI_OP(reshape, "y = x under another shape", "", 2)

/* ---- concat: columns side by side ------------------------------------------------------------------ */

static bool concat_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    size_t rows = fvi_rows(y), d = fvi_columns(y), at = 0;
    for (int k = 0; k < y->inputs; k++) {
        size_t part = fvi_columns(y->in[k]);
        for (size_t r = 0; r < rows; r++)
            memcpy(y->value.data + r * d + at, y->in[k]->value.data + r * part,
                   part * sizeof(fv_real));
        at += part;
    }
    return true;
}

/* each part gets its own columns of dy */
static void concat_backward(fv_tape *t, fv_var *y)
{
    size_t rows = fvi_rows(y), d = fvi_columns(y), at = 0;
    for (int k = 0; k < y->inputs; k++) {
        size_t part = fvi_columns(y->in[k]);
        fv_real *dx = fv_grad(t, y->in[k]);
        for (size_t r = 0; dx != NULL && r < rows; r++)
            add_to(part, y->grad + r * d + at, dx + r * part);
        at += part;
    }
}

static fv_var *concat_sample(fv_sampler *s, int which)
{
    fv_var *x[3] = {fv_sample(s, FV_SHAPE(4, 3), -2, 2), fv_sample(s, FV_SHAPE(4, 1), -2, 2)};
    x[2] = x[0];
    return fv_concat(fv_sampler_tape(s), which ? 3 : 2, x, -1);
}
FVI_OP(concat, "y = [x0 | x1 | ..]", "", 2)

#if FVI_ONCE
fv_var *fv_add(fv_tape *t, fv_var *a, fv_var *b)
{
    if (!given(t, "add", a) || !given(t, "add", b))
        return NULL;
    bool row = b->value.shape.rank == 1 && fvi_columns(a) == fvi_count(b);
    if (!row && !fv_shape_equal(a->value.shape, b->value.shape))
        return fv_refuse(t, "add", "%s with %s: shapes differ", fv_describe(t, a),
                         fv_describe(t, b));
    return fvi_record(t, FVI_OP_add, a->value.shape, NULL, 0, 2, (fv_var *[]){a, b});
}

fv_var *fv_mul(fv_tape *t, fv_var *a, fv_var *b)
{
    if (!given(t, "mul", a) || !given(t, "mul", b))
        return NULL;
    if (!fv_shape_equal(a->value.shape, b->value.shape))
        return fv_refuse(t, "mul", "%s with %s: shapes differ", fv_describe(t, a),
                         fv_describe(t, b));
    return fvi_record(t, FVI_OP_mul, a->value.shape, NULL, 0, 2, (fv_var *[]){a, b});
}

fv_var *fv_scale(fv_tape *t, fv_var *x, double factor)
{
    if (!given(t, "scale", x))
        return NULL;
    return fvi_record(t, FVI_OP_scale, x->value.shape, &factor, sizeof factor, 1, &x);
}

fv_var *fv_sum(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    if (!given(t, "sum", x))
        return NULL;
    if (axes != NULL)
        return fv_refuse(t, "sum", "only over all axes");
    return fvi_record(t, FVI_OP_sum, FV_SCALAR, NULL, 0, 1, &x);
}

fv_var *fv_reshape(fv_tape *t, fv_var *x, fv_shape shape)
{
    char text[160];
    if (!given(t, "reshape", x))
        return NULL;
    if (fv_shape_count(shape) != fvi_count(x))
        return fv_refuse(t, "reshape", "%s to %s: the counts differ", fv_describe(t, x),
                         fv_shape_text(shape, text));
    return fvi_record(t, FVI_OP_reshape, shape, NULL, 0, 1, &x);
}

fv_var *fv_concat(fv_tape *t, int count, fv_var *const *x, int axis)
{
    size_t columns = 0;
    if (count < 1)
        return fv_refuse(t, "concat", "%d inputs, expected at least 1", count);
    if (axis != -1)
        return fv_refuse(t, "concat", "only along the last axis");
    for (int k = 0; k < count; k++) {
        if (!given(t, "concat", x ? x[k] : NULL) || !fvi_is_matrix(t, "concat", "an input", x[k]))
            return NULL;
        if (fvi_rows(x[k]) != fvi_rows(x[0]))
            return fv_refuse(t, "concat", "%s beside %s: rows differ", fv_describe(t, x[0]),
                             fv_describe(t, x[k]));
        if (!fvi_add(columns, fvi_columns(x[k]), &columns))
            return fv_refuse(t, "concat", "more columns than there can be");
    }
    return fvi_record(t, FVI_OP_concat, FV_SHAPE(fvi_rows(x[0]), columns), NULL, 0, count, x);
}
#endif
