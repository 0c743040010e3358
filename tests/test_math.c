/* exp, log, tanh, sqrt and the normal distribution: against the C library in double over all kinds of numbers. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tensor/math.h"

typedef struct {
    const char *name;
    fv_real (*ours)(fv_real x);
    double (*theirs)(double x);
    double ulp; /* what is promised for float */
} function;

static const function functions[] = {
    {"exp", fvi_exp, exp, 1.1},
    {"log", fvi_log, log, 0.9},
    {"tanh", fvi_tanh, tanh, 1.4},
    {"sqrt", fvi_sqrt, sqrt, 0.5001},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

#if !defined(FV_F64) && !defined(FV_COMPLEX)

/* The error of y in units of the last place of the true value. */
static double error_of(float y, double truth)
{
    if (isnan(truth) || isnan(y))
        return isnan(truth) && isnan(y) ? 0 : INFINITY;
    if (isinf((float)truth) || isinf(y))
        return (float)truth == y ? 0 : INFINITY;
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

/* Around every place where a formula changes. */
Test(math, float_joints)
{
    const float joints[] = {0,  FLT_MIN, 0x1.6a09e6p-1f, 0x1.6a09e6p0f, 0.6f,
                            1,  4,       0x1.62e42ep-2f, 0x1.62e42ep6f, 88.72284f,
                            89, -104,    -103.97f,       -87.33655f,    0x1p-149f,
                            -1, -0.6f};
    for (int f = 0; f < FUNCTIONS; f++)
        for (size_t j = 0; j < sizeof joints / sizeof *joints; j++)
            for (int away = -2000; away <= 2000; away++) {
                const float x = fvi_from_bits(fvi_bits(joints[j]) + (uint32_t)away);
                const double error = error_of(functions[f].ours(x), functions[f].theirs(x));
                cr_assert(error <= functions[f].ulp, "%s(%a): %g ulp", functions[f].name, x, error);
            }
}
#endif

static bool equal(fv_real x, double y)
{
    return isnan(y) ? isnan(fv_re(x)) : (double)fv_re(x) == y && !signbit(fv_re(x)) == !signbit(y);
}

Test(math, exact_values)
{
    const double inf = INFINITY;
    for (int f = 0; f < FUNCTIONS; f++)
        cr_expect(equal(functions[f].ours((fv_real)NAN), NAN), "%s(NaN)", functions[f].name);
    cr_expect(equal(fvi_exp(0), 1) && equal(fvi_exp(-(fv_real)inf), 0) &&
              equal(fvi_exp((fv_real)inf), inf));
    cr_expect(equal(fvi_log(1), 0) && equal(fvi_log(0), -inf) && equal(fvi_log(-1), NAN) &&
              equal(fvi_log((fv_real)inf), inf));
    cr_expect(equal(fvi_tanh(0), 0) && equal(fvi_tanh((fv_real)inf), 1) &&
              equal(fvi_tanh(-(fv_real)inf), -1));
    cr_expect(equal(fvi_sqrt(0), 0) && equal(fvi_sqrt(9), 3) && equal(fvi_sqrt(-1), NAN));
}

#if !defined(FV_COMPLEX)
Test(math, odd_functions_keep_the_sign_of_zero)
{
    cr_expect(equal(fvi_tanh((fv_real)-0.0), -0.0));
}
#endif

#if defined(FV_F64) || defined(FV_COMPLEX)
Test(math, double_values)
{
    for (int f = 0; f < FUNCTIONS; f++)
        for (double x = 0.001; x < 30; x += 0.37) {
            const double y = fv_re(functions[f].ours(x)), truth = functions[f].theirs(x);
            cr_expect(fabs(y - truth) <= 4 * DBL_EPSILON * fabs(truth), "%s(%g)", functions[f].name,
                      x);
        }
}
#endif

#if defined(FV_COMPLEX)
/* The tangent is the derivative: against central differences of the C library. */
Test(math, complex_tangents)
{
    for (int f = 0; f < FUNCTIONS; f++)
        for (double x = 0.11; x < 4; x += 0.37) {
            const double h = 1e-5, tiny = 1e-30;
            const double slope =
                (functions[f].theirs(x + h) - functions[f].theirs(x - h)) / (2 * h);
            const double ours = cimag(functions[f].ours(CMPLX(x, tiny))) / tiny;
            cr_expect(fabs(ours - slope) <= 1e-8 * (1 + fabs(slope)), "%s(%g): %g, %g",
                      functions[f].name, x, ours, slope);
        }
}

/* A number without a tangent gets none, not even where the slope is infinite. */
Test(math, complex_without_tangent)
{
    cr_expect(cimag(fvi_sqrt(0)) == 0 && cimag(fvi_log(0)) == 0);
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
        const double tiny = 1e-30;
        fv_real d, y = fvi_normal(CMPLX(x, tiny), &d);
        cr_expect_float_eq(cimag(y) / tiny, density(x), 1e-15);
        cr_expect_float_eq(cimag(d) / tiny, -x * density(x), 1e-15);
    }
}
#endif
