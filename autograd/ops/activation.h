/* Values and slopes of activations that also stand inside gated ones. */
#ifndef FVI_ACTIVATION_H
#define FVI_ACTIVATION_H

#include "autograd/ops/elementwise.h"

/* With s = sigmoid(x): (x s)' = s + x s (1 - s) */
static inline fv_real silu_slope(fv_real x)
{
    const fv_real s = fvi_sigmoid(x);
    return s + x * s * (1 - s);
}
static inline fv_real gelu_value(fv_real x)
{
    fv_real density;
    return x * fvi_normal(x, &density);
}

/* With the chance to be below x and its density: (x chance)' = chance + x density */
static inline fv_real gelu_slope(fv_real x)
{
    fv_real density, chance = fvi_normal(x, &density);
    return chance + x * density;
}
#endif
