/* What the norms check alike: eps, and the shapes of weight and bias. */
#ifndef FVI_NORM_H
#define FVI_NORM_H

#include "autograd/ops/rows.h"

/* eps as given, the usual one for 0, 0 for FV_NONE. */
static inline bool known_eps(fv_tape *t, const char *op, double given_eps, double usual,
                             double *eps)
{
    char text[FVI_NUMBER];
    *eps = given_eps == FV_NONE ? 0 : given_eps == 0 ? usual : given_eps;
    if (*eps >= 0 && isfinite(*eps))
        return true;
    fv_refuse(t, op, "eps %s, expected 0 or more", fvi_number(text, given_eps, 6));
    return false;
}

/* Whether x, when there is one, has that shape. */
static inline bool has_shape(fv_tape *t, const char *op, const char *what, const fv_var *x,
                             fv_shape shape)
{
    char text[160];
    if (x == NULL || fv_shape_equal(x->value.shape, shape))
        return true;
    fv_refuse(t, op, "%s %s, expected %s", what, fv_describe(t, x), fv_shape_text(shape, text));
    return false;
}

#endif
