/* Views. */
#include "autograd/ops/ops.h"

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

#if FVI_ONCE
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
#endif
