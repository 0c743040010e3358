/* Every function of tensor/math.h: against the C library in double over all kinds of numbers, where
 * formulas meet, at the ends, and its tangent against differences. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tensor/math.h"

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return x < 0 ? log1p(exp(x)) : x + log1p(exp(-x));
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

typedef struct {
    const char *name;
    fv_real (*ours)(fv_real x);
    double (*theirs)(double x);
    double ulp;         /* what is promised for float */
    double first, last; /* where doubles and tangents are compared */
} function;

static const function functions[] = {
    {"exp", fvi_exp, exp, 1.1, -8, 8},
    {"expm1", fvi_expm1, expm1, 1.8, -8, 8},
    {"exp2", fvi_exp2, exp2, 0.51, -8, 8},
    {"log", fvi_log, log, 0.9, 0.11, 30},
    {"log1p", fvi_log1p, log1p, 1.5, -0.9, 30},
    {"log2", fvi_log2, log2, 0.51, 0.11, 30},
    {"log10", fvi_log10, log10, 0.51, 0.11, 30},
    {"sqrt", fvi_sqrt, sqrt, 0.5001, 0.11, 30},
    {"rsqrt", fvi_rsqrt, rsqrt, 1.5, 0.11, 30},
    {"cbrt", fvi_cbrt, cbrt, 0.51, 0.11, 30},
    {"tanh", fvi_tanh, tanh, 1.4, -8, 8},
    {"sigmoid", fvi_sigmoid, sigmoid, 2.4, -30, 30},
    {"softplus", fvi_softplus, softplus, 1.8, -30, 30},
    {"erf", fvi_erf, erf, 1.4, -4, 4},
    {"erfc", fvi_erfc, erfc, 0.5001, -4, 4},
    {"sin", fvi_sin, sin, 0.51, -30, 30},
    {"cos", fvi_cos, cos, 0.51, -30, 30},
    {"tan", fvi_tan, tan, 0.5001, -1.5, 1.5},
    {"asin", fvi_asin, asin, 0.5001, -0.95, 0.95},
    {"acos", fvi_acos, acos, 0.5001, -0.95, 0.95},
    {"atan", fvi_atan, atan, 0.5001, -8, 8},
    {"sinh", fvi_sinh, sinh, 0.5001, -8, 8},
    {"cosh", fvi_cosh, cosh, 0.5001, -8, 8},
    {"asinh", fvi_asinh, asinh, 0.5001, -8, 8},
    {"acosh", fvi_acosh, acosh, 0.5001, 1.1, 30},
    {"atanh", fvi_atanh, atanh, 0.5001, -0.95, 0.95},
    {"abs", fvi_abs, fabs, 0, 0.1, 8},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

/* Whether x is y, zeros with the same sign, or both are no numbers. */
static bool equal(fv_real x, double y)
{
    return isnan(y) ? isnan(fv_re(x)) : (double)fv_re(x) == y && !signbit(fv_re(x)) == !signbit(y);
}

#if !defined(FV_F64) && !defined(FV_COMPLEX)

/* The error of y in units of the last place of the true value. */
static double error_of(float y, double truth)
{
    if (isnan(truth) || isnan(y))
        return isnan(truth) && isnan(y) ? 0 : INFINITY;
    if (isinf((float)truth) || isinf(y) || truth == 0)
        return equal(y, (float)truth) ? 0 : INFINITY;
    const double last = fabs(truth) < FLT_MIN ? 0x1p-149 : ldexp(1, ilogb(truth) - 23);
    return fabs((double)y - truth) / last;
}

/* Every 4,099th float, both signs, denormals, infinities and NaNs; every 67th with FOVEA_LONG=1. */
Test(math, float_errors)
{
    const uint64_t step = getenv("FOVEA_LONG") != NULL ? 67 : 4099;
    for (int f = 0; f < FUNCTIONS; f++) {
        double worst = 0;
        float where = 0;
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += step) {
            const float x = fvi_from_bits((uint32_t)bits);
            const double error = error_of(functions[f].ours(x), functions[f].theirs(x));
            if (!(error <= worst)) {
                worst = error;
                where = x;
            }
        }
        cr_expect(worst <= functions[f].ulp, "%s(%a): %g ulp", functions[f].name, where, worst);
    }
}

/* Around every place where a formula changes, and around multiples of pi / 2, whose sines are small. */
Test(math, float_joints)
{
    const float joints[] = {
        0,
        0x1p-149f,
        FLT_MIN,
        FLT_MAX,
        0x1.6a09e6p-1f,
        0x1.6a09e6p0f,
        0.5f,
        0.6f,
        0.84f,
        1,
        2,
        4,
        5.5f,
        9,
        10,
        18,
        20,
        87,
        88,
        88.72284f,
        89,
        103.97f,
        104,
        126,
        127,
        128,
        129,
        149,
        150,
        160,
        1e5f,
        0x1.62e42ep-2f,
        0x1.62e42ep6f,
        0x1p23f,
        0x1p24f,
        0x1p31f,
        0x1p60f,
        0x1.921fb6p0f,
        0x1.921fb6p1f,
        0x1.2d97c8p2f,
        0x1.921fb6p10f,
        0x1.921fb6p20f,
        1e10f,
        0x1.0088bcp52f,
        0x1.f9cbe2p7f,
        0x1.48a858p54f,
        87.33655f,
        0x1.a8279ap-2f,
        1e20f,
        0x1p126f,
        0x1.cp127f,
    };
    for (int f = 0; f < FUNCTIONS; f++)
        for (size_t j = 0; j < 2 * (sizeof joints / sizeof *joints); j++)
            for (int away = -1000; away <= 1000; away++) {
                const float joint = j % 2 ? -joints[j / 2] : joints[j / 2];
                const float x = fvi_from_bits(fvi_bits(joint) + (uint32_t)away);
                const double error = error_of(functions[f].ours(x), functions[f].theirs(x));
                cr_assert(error <= functions[f].ulp, "%s(%a): %g ulp", functions[f].name, x, error);
            }
}

/* All kinds of x against all kinds of exponents. */
Test(math, float_powers)
{
    const double powers[] = {0.5, -0.5, 1.0 / 3, -1.0 / 3, 2, 3, -1,   -2,    1.5, 2.5,
                             0.1, 10,   33,      -40,      1, 7, 1e-3, 12345, 1e7, -0.75};
    for (size_t p = 0; p < sizeof powers / sizeof *powers; p++)
        for (uint64_t bits = p; bits <= UINT32_MAX; bits += 20011) {
            const float x = fvi_from_bits((uint32_t)bits);
            const double error = error_of(fvi_pow(x, powers[p]), pow(x, powers[p]));
            cr_assert(error <= 0.53, "pow(%a, %g): %g ulp", x, powers[p], error);
        }
    for (uint32_t i = 0; i < 400000; i++) {
        const float x = fvi_from_bits(0x3f000000u + i * 41), y = (float)((int)i - 200000) * 1e-3f;
        const double error = error_of(fvi_pow2(x, y), pow(x, y));
        cr_assert(error <= 0.53, "pow(%a, %a): %g ulp", x, y, error);
    }
}
#endif

Test(math, exact_values)
{
    const fv_real inf = (fv_real)INFINITY;
    for (int f = 0; f < FUNCTIONS; f++)
        cr_expect(equal(functions[f].ours((fv_real)NAN), NAN), "%s(NaN)", functions[f].name);
    cr_expect(equal(fvi_exp(0), 1) && equal(fvi_exp(-inf), 0) && equal(fvi_exp(inf), INFINITY));
    cr_expect(equal(fvi_expm1(-inf), -1) && equal(fvi_expm1(inf), INFINITY));
    cr_expect(equal(fvi_exp2(-3), 0.125) && equal(fvi_exp2(-inf), 0) && equal(fvi_exp2(10), 1024));
    cr_expect(equal(fvi_log(1), 0) && equal(fvi_log(0), -INFINITY) && equal(fvi_log(-1), NAN) &&
              equal(fvi_log(inf), INFINITY) && equal(fvi_log(-inf), NAN));
    cr_expect(equal(fvi_log1p(-1), -INFINITY) && equal(fvi_log1p(-2), NAN) &&
              equal(fvi_log1p(inf), INFINITY));
    cr_expect(equal(fvi_log2(8), 3) && equal(fvi_log2(0), -INFINITY) && equal(fvi_log2(-1), NAN));
    cr_expect(equal(fvi_log10(1000), 3) && equal(fvi_log10(inf), INFINITY));
    cr_expect(equal(fvi_sqrt(0), 0) && equal(fvi_sqrt(9), 3) && equal(fvi_sqrt(-1), NAN));
    cr_expect(equal(fvi_rsqrt(0.25), 2) && equal(fvi_rsqrt(inf), 0) &&
              equal(fvi_rsqrt(0), INFINITY));
    cr_expect(equal(fvi_cbrt(0), 0) && equal(fvi_cbrt(-inf), -INFINITY));
    cr_expect(equal(fvi_tanh(0), 0) && equal(fvi_tanh(inf), 1) && equal(fvi_tanh(-inf), -1));
    cr_expect(equal(fvi_sigmoid(0), 0.5) && equal(fvi_sigmoid(inf), 1) &&
              equal(fvi_sigmoid(-inf), 0));
    cr_expect(equal(fvi_softplus(-inf), 0) && equal(fvi_softplus(inf), INFINITY) &&
              equal(fvi_softplus(1000), 1000));
    cr_expect(equal(fvi_erf(inf), 1) && equal(fvi_erf(-inf), -1) && equal(fvi_erfc(-inf), 2));
    cr_expect(equal(fvi_sin(inf), NAN) && equal(fvi_cos(-inf), NAN) && equal(fvi_cos(0), 1));
    cr_expect(equal(fvi_abs(-3), 3) && equal(fvi_abs(-inf), INFINITY));
}

#if !defined(FV_COMPLEX)
/* Unlike sums such as 0 + -0. */
Test(math, odd_functions_keep_the_sign_of_zero)
{
    fv_real (*const odd[])(fv_real) = {fvi_expm1, fvi_log1p, fvi_sqrt, fvi_cbrt, fvi_tanh, fvi_erf,
                                       fvi_sin,   fvi_tan,   fvi_asin, fvi_atan, fvi_sinh};
    for (size_t f = 0; f < sizeof odd / sizeof *odd; f++)
        cr_expect(equal(odd[f]((fv_real)-0.0), -0.0) && equal(odd[f](0), 0), "number %zu", f);
}
#endif

/* Every pair of special numbers, as C's pow has it. */
Test(math, special_powers)
{
    const double special[] = {0,     -0.0,     1,        -1,         2,         -2,
                              0.5,   -0.5,     1.5,      -1.5,       3,         -3,
                              7,     -8,       0x1p24,   0x1p24 + 1, 0x1p30,    -0x1p30 - 3,
                              1e-30, -0x1p100, INFINITY, -INFINITY,  0x1p-140f, NAN};
    enum { SPECIAL = sizeof special / sizeof *special };
    for (size_t i = 0; i < SPECIAL; i++)
        for (size_t j = 0; j < SPECIAL; j++) {
            const fv_real x = (fv_real)special[i];
            const double truth = pow(fv_re(x), special[j]);
            cr_expect(equal(fvi_pow(x, special[j]), fv_re((fv_real)truth)), "pow(%g, %g): %g",
                      special[i], special[j], (double)fv_re(fvi_pow(x, special[j])));
            const fv_real y = (fv_real)special[j];
            cr_expect(equal(fvi_pow2(x, y), fv_re((fv_real)pow(fv_re(x), fv_re(y)))),
                      "pow2(%g, %g): %g", special[i], special[j], (double)fv_re(fvi_pow2(x, y)));
        }
}

#if defined(FV_F64) || defined(FV_COMPLEX)
Test(math, double_values)
{
    for (int f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i <= 100; i++) {
            const double x =
                functions[f].first + (functions[f].last - functions[f].first) * i / 100;
            const double y = fv_re(functions[f].ours(x)), truth = functions[f].theirs(x);
            cr_expect(fabs(y - truth) <= 4 * DBL_EPSILON * fabs(truth), "%s(%g)", functions[f].name,
                      x);
        }
}
#endif

#if defined(FV_COMPLEX)
static const double tiny = 1e-30;

/* CMPLX, which not every compiler has. */
static fv_real dual(double value, double tangent)
{
    return __builtin_complex(value, tangent);
}

/* The tangent is the derivative: against central differences of the C library. */
Test(math, complex_tangents)
{
    for (int f = 0; f < FUNCTIONS; f++)
        for (int i = 0; i <= 40; i++) {
            const double x = functions[f].first + (functions[f].last - functions[f].first) * i / 40;
            const double h = 1e-5 * (1 - fabs(x) / 40), above = functions[f].theirs(x + h);
            const double slope = (above - functions[f].theirs(x - h)) / (2 * h);
            const double ours = cimag(functions[f].ours(dual(x, tiny))) / tiny;
            cr_expect(fabs(ours - slope) <= 1e-7 * (fabs(above) + fabs(slope)), "%s(%g): %g, %g",
                      functions[f].name, x, ours, slope);
        }
}

/* d x^y = y x^(y - 1) dx + x^y log(x) dy; only whole powers of numbers below 0. */
Test(math, complex_powers)
{
    for (int i = 1; i < 20; i++)
        for (int j = -9; j < 10; j++) {
            const double x = 0.2 * i, y = 0.5 * j;
            const double dx = y * pow(x, y - 1), dy = pow(x, y) * log(x);
            const fv_real moved = dual(x, 2 * tiny);
            const fv_real one = fvi_pow(moved, y);
            const fv_real both = fvi_pow2(moved, dual(y, 3 * tiny));
            cr_expect_float_eq(cimag(one) / tiny, 2 * dx, 1e-13 * (1 + fabs(dx)));
            cr_expect_float_eq(cimag(both) / tiny, 2 * dx + 3 * dy,
                               1e-13 * (1 + fabs(dx) + fabs(dy)));
        }
    cr_expect_float_eq(cimag(fvi_pow(dual(-2, tiny), 3)) / tiny, 12, 1e-13);
    cr_expect_float_eq(cimag(fvi_pow2(dual(-2, tiny), 3)) / tiny, 12, 1e-13);
    cr_expect_eq(cimag(fvi_pow(dual(0, tiny), 0)), 0);
    cr_expect_eq(cimag(fvi_pow2(0, dual(2, tiny))), 0);
    cr_expect_eq(cimag(fvi_pow(dual(0, tiny), 1)), tiny);
}

/* A number without a tangent gets none, not even where the slope is infinite. */
Test(math, complex_without_tangent)
{
    cr_expect(cimag(fvi_sqrt(0)) == 0 && cimag(fvi_log(0)) == 0 && cimag(fvi_pow(0, 0.5)) == 0);
}

Test(math, complex_abs_below_zero)
{
    const fv_real y = fvi_abs(dual(-3, tiny));
    cr_expect(creal(y) == 3 && cimag(y) == -tiny);
}
#endif

/* ---- the normal distribution --------------------------------------------------------------------- */

static double below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * acos(-1));
}

Test(math, normal)
{
    const double whole = sizeof(fv_real) == sizeof(float) ? 1.1e-7 : 2e-16;
    const double part = sizeof(fv_real) == sizeof(float) ? 1e-3 : 1e-13; /* in the tail */
    for (int i = -100000; i <= 100000; i++) {
        const fv_real x = (fv_real)(i * 1.1e-4);
        fv_real d;
        const double y = fv_re(fvi_normal(x, &d)), truth = below(fv_re(x)), at = density(fv_re(x));
        cr_assert(fabs(y - truth) <= whole, "below %g: %g off", fv_re(x), y - truth);
        cr_assert(truth < 1e-6 || fabs(y - truth) <= part * truth, "below %g", fv_re(x));
        cr_assert(fabs(fv_re(d) - at) <= whole / 2, "at %g: %g off", fv_re(x), fv_re(d) - at);
    }
}

Test(math, normal_at_the_ends)
{
    const fv_real inf = (fv_real)INFINITY;
    fv_real d;
    cr_expect(equal(fvi_normal(inf, &d), 1) && equal(d, 0));
    cr_expect(equal(fvi_normal(-inf, &d), 0) && equal(d, 0));
    cr_expect(equal(fvi_normal((fv_real)NAN, &d), NAN) && equal(d, NAN));
}

#if defined(FV_COMPLEX)
Test(math, normal_tangents)
{
    for (double x = -4; x < 4; x += 0.37) {
        fv_real d, y = fvi_normal(dual(x, tiny), &d);
        cr_expect_float_eq(cimag(y) / tiny, density(x), 1e-15);
        cr_expect_float_eq(cimag(d) / tiny, -x * density(x), 1e-15);
    }
}
#endif
