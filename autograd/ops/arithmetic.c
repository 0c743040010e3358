/* Elementwise arithmetic. */
#include "autograd/ops/ops.h"

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
#endif
