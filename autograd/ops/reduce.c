/* Reductions. */
#include "autograd/ops/ops.h"

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

#if FVI_ONCE
fv_var *fv_sum(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    if (!given(t, "sum", x))
        return NULL;
    if (axes != NULL)
        return fv_refuse(t, "sum", "only over all axes");
    return fvi_record(t, FVI_OP_sum, FV_SCALAR, NULL, 0, 1, &x);
}
#endif
