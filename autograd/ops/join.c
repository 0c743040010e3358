/* Several values as one. */
#include "autograd/ops/ops.h"

#include <string.h>

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
