/* Activations, elementwise. Each op: name, formula, source; its value; dx; the ranges of its samples. */
#include "autograd/ops/activation.h"

/* A constant that stays what the build computes in: 0.5 alone would make float loops double. */
#define R(constant) ((fv_real)(constant))

/* ---- pieces of lines ------------------------------------------------------------------------- */

FVI_UNARY(relu, "y = max(x, 0)", "Nair and Hinton, 2010", fv_re(x) <= 0 ? 0 : x,
          fv_re(x) <= 0 ? 0 : dy, {-2, 2})
FVI_UNARY_AB(leaky_relu, "y = x > 0 ? x : slope * x", "Maas, Hannun and Ng, 2013",
             fv_re(x) > 0 ? x : a * x, fv_re(x) > 0 ? dy : a * dy, {-2, 2, 0.01}, {-2, 2, -0.5},
             {-2, 2, 0})
FVI_UNARY(hardtanh, "y = min(max(x, -1), 1)", "Collobert, 2004",
          fv_re(x) < -1  ? -1
          : fv_re(x) > 1 ? 1
                         : x,
          fv_re(x) > -1 && fv_re(x) < 1 ? dy : 0, {-2, 2})
FVI_UNARY(hardsigmoid, "y = min(max(x + 3, 0), 6) / 6",
          "Courbariaux, Bengio and David, 2015, arXiv 1511.00363",
          fv_re(x) < -3  ? 0
          : fv_re(x) > 3 ? 1
                         : (x + 3) / 6,
          fv_re(x) > -3 && fv_re(x) < 3 ? dy / 6 : 0, {-5, 5})
FVI_UNARY(hardswish, "y = x * min(max(x + 3, 0), 6) / 6", "Howard et al., 2019, arXiv 1905.02244",
          fv_re(x) <= -3  ? 0
          : fv_re(x) >= 3 ? x
                          : x * (x + 3) / 6,
          fv_re(x) <= -3  ? 0
          : fv_re(x) >= 3 ? dy
                          : dy * (2 * x + 3) / 6,
          {-5, 5})

/* ---- exponentials ---------------------------------------------------------------------------- */

/* The exponential is taken of every x, so that the loop is one of vectors. */
static inline fv_real elu_slope(fv_real x, fv_real alpha)
{
    const fv_real e = alpha * fvi_exp(fv_re(x) > 0 ? 0 : x);
    return fv_re(x) > 0 ? 1 : e;
}
FVI_UNARY_AB(elu, "y = x > 0 ? x : alpha * (e^x - 1)",
             "Clevert, Unterthiner and Hochreiter, 2015, arXiv 1511.07289",
             fv_re(x) > 0 ? x : a * fvi_expm1(x), dy *elu_slope(x, a), {-3, 2, 1}, {-3, 2, 0.3})
#define SELU_SCALE R(1.0507009873554804934)
#define SELU_ALPHA R(1.0507009873554804934 * 1.6732632423543772848)
FVI_UNARY(selu, "y = 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * (e^x - 1))",
          "Klambauer et al., 2017, arXiv 1706.02515",
          fv_re(x) > 0 ? SELU_SCALE * x : SELU_ALPHA * fvi_expm1(x),
          fv_re(x) > 0 ? SELU_SCALE * dy : dy * SELU_ALPHA * fvi_exp(x), {-3, 2})
FVI_UNARY(tanh, "y = tanh(x)", "", fvi_tanh(x), dy *(1 - y * y), {-1, 1}, {-6, 6})
FVI_UNARY(sigmoid, "y = 1 / (1 + e^-x)", "", fvi_sigmoid(x), dy *y *(1 - y), {-2, 2}, {-9, 9})
FVI_UNARY(log_sigmoid, "y = -ln(1 + e^-x)", "", -fvi_softplus(-x), dy *fvi_sigmoid(-x), {-2, 2},
          {-9, 9})
FVI_UNARY(softplus, "y = ln(1 + e^x)", "Dugas et al., 2001", fvi_softplus(x), dy *fvi_sigmoid(x),
          {-2, 2}, {-9, 9})
FVI_UNARY(softsign, "y = x / (1 + |x|)", "Bergstra et al., 2009", x / (1 + fvi_abs(x)),
          dy / ((1 + fvi_abs(x)) * (1 + fvi_abs(x))), {-3, 3})

/* ---- x times a chance ------------------------------------------------------------------------ */

FVI_UNARY(silu, "y = x * sigmoid(x)", "Elfwing, Uchibe and Doya, 2017, arXiv 1702.03118",
          x *fvi_sigmoid(x), dy *silu_slope(x), {-2, 2}, {-9, 9})

FVI_UNARY(gelu, "y = x * (1 + erf(x / sqrt(2))) / 2",
          "Hendrycks and Gimpel, 2016, arXiv 1606.08415", gelu_value(x), dy *gelu_slope(x), {-2, 2},
          {-6, 6})

/* The argument of gelu_tanh's tanh, and the slope of it: sqrt(2 / pi) (x + 0.044715 x^3). */
static inline fv_real gelu_inner(fv_real x, fv_real *slope)
{
    const fv_real c = R(0.7978845608028654), square = R(0.044715) * x * x;
    *slope = c * (1 + 3 * square);
    return c * x * (1 + square);
}

static inline fv_real gelu_tanh_value(fv_real x)
{
    fv_real slope;
    return x * (1 + fvi_tanh(gelu_inner(x, &slope))) / 2;
}

/* With h = tanh(u): (x (1 + h) / 2)' = (1 + h + x (1 - h^2) u') / 2 */
static inline fv_real gelu_tanh_slope(fv_real x)
{
    fv_real slope, h = fvi_tanh(gelu_inner(x, &slope));
    return (1 + h + x * (1 - h * h) * slope) / 2;
}
FVI_UNARY(gelu_tanh, "y = x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2",
          "Hendrycks and Gimpel, 2016, arXiv 1606.08415", gelu_tanh_value(x),
          dy *gelu_tanh_slope(x), {-2, 2}, {-6, 6})

/* With e = e^x and n = e (e + 2): tanh(ln(1 + e)) = n / (n + 2), which is 1 from 20 on. */
static inline fv_real mish_value(fv_real x)
{
    const fv_real e = fvi_exp(fv_re(x) > 20 ? 20 : x), n = e * (e + 2);
    return x * (n / (n + 2));
}

/* (x n / (n + 2))' = n / (n + 2) + 4 x e (e + 1) / (n + 2)^2 */
static inline fv_real mish_slope(fv_real x)
{
    const fv_real e = fvi_exp(fv_re(x) > 20 ? 20 : x), n = e * (e + 2);
    return n / (n + 2) + 4 * x * (e / (n + 2)) * ((e + 1) / (n + 2));
}
FVI_UNARY(mish, "y = x * tanh(ln(1 + e^x))", "Misra, 2019, arXiv 1908.08681", mish_value(x),
          dy *mish_slope(x), {-2, 2}, {-9, 9})

#if FVI_ONCE
fv_var *fv_leaky_relu(fv_tape *t, fv_var *x, double slope)
{
    return record_unary(t, FVI_OP_leaky_relu, "leaky_relu", x, (const double[]){slope, 0});
}

fv_var *fv_elu(fv_tape *t, fv_var *x, double alpha)
{
    return record_unary(t, FVI_OP_elu, "elu", x, (const double[]){alpha, 0});
}
#endif
