/* Arithmetic on one operand. Each op: name, formula, source; its value; dx; the ranges of its samples. */
#include "autograd/ops/elementwise.h"

/* A constant that stays what the build computes in: 0.5 alone would make float loops double. */
#define R(constant) ((fv_real)(constant))

FVI_UNARY(neg, "y = -x", "", -x, -dy, {-2, 2})
FVI_UNARY(abs, "y = |x|", "", fvi_abs(x), fv_re(x) > 0 ? dy : fv_re(x) < 0 ? -dy : 0, {-2, 2})
FVI_UNARY(square, "y = x^2", "", x *x, 2 * x * dy, {-2, 2})
FVI_UNARY(reciprocal, "y = 1 / x", "", 1 / x, -dy *y *y, {0.5, 3}, {-3, -0.5})
FVI_UNARY(sqrt, "y = sqrt(x)", "", fvi_sqrt(x), dy / (2 * y), {0.3, 4})
FVI_UNARY(rsqrt, "y = 1 / sqrt(x)", "", fvi_rsqrt(x), -dy *y *y *y / 2, {0.3, 4})

FVI_UNARY(exp, "y = e^x", "", fvi_exp(x), dy *y, {-2, 2}, {-9, -5})
FVI_UNARY(expm1, "y = e^x - 1", "", fvi_expm1(x), dy *(y + 1), {-2, 2})
FVI_UNARY(log, "y = ln(x)", "", fvi_log(x), dy / x, {0.3, 4})
FVI_UNARY(log1p, "y = ln(1 + x)", "", fvi_log1p(x), dy / (1 + x), {-0.7, 3})
FVI_UNARY(erf, "y = 2 / sqrt(pi) * integral of e^(-u^2) from 0 to x", "", fvi_erf(x),
          dy *R(1.1283791670955126) * fvi_exp(-x * x), {-2, 2})

FVI_UNARY(sin, "y = sin(x)", "", fvi_sin(x), dy *fvi_cos(x), {-4, 4})
FVI_UNARY(cos, "y = cos(x)", "", fvi_cos(x), -dy *fvi_sin(x), {-4, 4})
FVI_UNARY(tan, "y = tan(x)", "", fvi_tan(x), dy *(1 + y * y), {-1.2, 1.2})
FVI_UNARY(asin, "y = arcsin(x)", "", fvi_asin(x), dy *fvi_rsqrt((1 - x) * (1 + x)), {-0.8, 0.8})
FVI_UNARY(acos, "y = arccos(x)", "", fvi_acos(x), -dy *fvi_rsqrt((1 - x) * (1 + x)), {-0.8, 0.8})
FVI_UNARY(atan, "y = arctan(x)", "", fvi_atan(x), dy / (1 + x * x), {-3, 3})
FVI_UNARY(sinh, "y = (e^x - e^-x) / 2", "", fvi_sinh(x), dy *fvi_cosh(x), {-2, 2})
FVI_UNARY(cosh, "y = (e^x + e^-x) / 2", "", fvi_cosh(x), dy *fvi_sinh(x), {-2, 2})
FVI_UNARY(asinh, "y = ln(x + sqrt(x^2 + 1))", "", fvi_asinh(x), dy *fvi_rsqrt(1 + x * x), {-3, 3})
FVI_UNARY(acosh, "y = ln(x + sqrt(x^2 - 1))", "", fvi_acosh(x), dy *fvi_rsqrt((x - 1) * (x + 1)),
          {1.3, 4})
FVI_UNARY(atanh, "y = ln((1 + x) / (1 - x)) / 2", "", fvi_atanh(x), dy / ((1 - x) * (1 + x)),
          {-0.8, 0.8})

/* ---- with options a, b ----------------------------------------------------------------------- */

FVI_UNARY_AB(scale, "y = factor * x", "", a *x, a *dy, {-2, 2, 3}, {-2, 2, -0.75}, {-2, 2, 0})
FVI_UNARY_AB(shift, "y = x + offset", "", x + a, dy, {-2, 2, 3}, {-2, 2, -0.75})
/* A NaN passes; on the ends dx = dy. */
FVI_UNARY_AB(clamp, "y = min(max(x, low), high)", "",
             fv_re(x) < fv_re(a)   ? a
             : fv_re(x) > fv_re(b) ? b
                                   : x,
             fv_re(x) >= fv_re(a) && fv_re(x) <= fv_re(b) ? dy : 0, {-2, 2, -1, 0.7},
             {-2, 2, -9, 1}, {-2, 2, -9, 9}, {-2, 2, 0, 0})

/* ---- pow: y = x^exponent --------------------------------------------------------------------- */

FVI_UNARY_LOOPS(pow, fvi_pow(x, fv_re(a)), dy *a *fvi_pow(x, fv_re(a) - 1))
/* x^0 is 1 everywhere, and has no slope even at 0. */
FVI_UNARY_LOOPS(one, 1, 0)
FVI_UNARY_LOOPS(cube, x *x *x, 3 * x * x * dy)

/* The loops of an exponent: values, or terms of the gradient. Common ones need no logarithm. */
static loop *pow_loop(double exponent, bool gradients)
{
    static const struct {
        double exponent;
        loop *run[2];
    } quick[] = {
        {0, {one_values, one_gradients}},        {2, {square_values, square_gradients}},
        {3, {cube_values, cube_gradients}},      {0.5, {sqrt_values, sqrt_gradients}},
        {-0.5, {rsqrt_values, rsqrt_gradients}}, {-1, {reciprocal_values, reciprocal_gradients}}};
    for (size_t i = 0; i < sizeof quick / sizeof *quick; i++)
        if (exponent == quick[i].exponent)
            return quick[i].run[gradients];
    return gradients ? pow_gradients : pow_values;
}

static bool pow_forward(fv_tape *t, fv_var *y)
{
    return run_forward(t, y, pass_of(y, pow_loop(*(const double *)y->options, false)));
}

/* dx = dy * exponent * x^(exponent - 1) */
static void pow_backward(fv_tape *t, fv_var *y)
{
    run_backward(t, y, pass_of(y, pow_loop(*(const double *)y->options, true)), 0);
}

static fv_var *pow_sample(fv_sampler *s, int which)
{
    static const double range[][4] = {{0.5, 2, 1.7}, {0.5, 2, -2}, {-2, 2, 4},    {-2, 2, 2},
                                      {-2, 2, 3},    {-2, 2, 0},   {0.5, 2, 0.5}, {0.5, 2, -0.5},
                                      {0.5, 2, -1},  {-2, 2, 1}};
    return unary_sample(s, FVI_OP_pow, range, which);
}
FVI_OP(pow, "y = x^exponent", "", UNARY_SAMPLES * 10)

#if FVI_ONCE
fv_var *fv_scale(fv_tape *t, fv_var *x, double factor)
{
    return record_unary(t, FVI_OP_scale, "scale", x, (const double[]){factor, 0});
}

fv_var *fv_shift(fv_tape *t, fv_var *x, double offset)
{
    return record_unary(t, FVI_OP_shift, "shift", x, (const double[]){offset, 0});
}

fv_var *fv_pow(fv_tape *t, fv_var *x, double exponent)
{
    return record_unary(t, FVI_OP_pow, "pow", x, (const double[]){exponent, 0});
}

fv_var *fv_clamp(fv_tape *t, fv_var *x, double low, double high)
{
    if (given(t, "clamp", x) && !(low <= high))
        return fv_refuse(t, "clamp", "low %g, high %g, expected low <= high", low, high);
    return record_unary(t, FVI_OP_clamp, "clamp", x, (const double[]){low, high});
}
#endif
