/* Functions of fv_real in all three builds, to be inlined into loops.
 *
 * Float: what FVI_FAST names makes loops that vectorise, what FVI_RARE names is the C library's in double,
 * rounded once. Double: the C library. Complex: the imaginary part is a tangent so small that its square
 * vanishes, f(a + ib) = f(a) + i f'(a) b. */
#ifndef FVI_MATH_H
#define FVI_MATH_H

#include "tensor/math_normal.h"
#include "tensor/math_wide.h"

/* ---- sum + x * y, rounded once --------------------------------------------------------------------- */

/* Where the compiler may choose which product of an expression to fuse with an addition, its choice can
 * differ between instruction sets: there the expression says it. */
static inline fv_real fvi_fma(fv_real x, fv_real y, fv_real sum)
{
#if defined(FV_COMPLEX)
    return sum + x * y;
#elif defined(FV_F64)
    return fvi_fma_wide(x, y, sum);
#else
    return fvi_fmaf(x, y, sum);
#endif
}

/* ---- functions of one number --------------------------------------------------------------------- */

/* 1 / (1 + exp(-x)). */
static inline double fvi_sigmoid_double(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* log(1 + exp(x)). */
static inline double fvi_softplus_double(double x)
{
    return (x < 0 ? 0 : x) + log1p(exp(-fabs(x)));
}

static inline double fvi_rsqrt_double(double x)
{
    return 1 / sqrt(x);
}

/* The name, what computes it in float and in double, its derivative at a where it is y. */
#define FVI_FAST(X)                                                                                \
    X(fvi_exp, fvi_exp_float, exp, y)                                                              \
    X(fvi_expm1, fvi_expm1_float, expm1, exp(a))              /* exp(x) - 1 */                     \
    X(fvi_exp2, fvi_exp2_float, exp2, 0.6931471805599453 * y) /* ln 2 */                           \
    X(fvi_log, fvi_log_float, log, 1 / a)                                                          \
    X(fvi_log1p, fvi_log1p_float, log1p, 1 / (1 + a))            /* log(1 + x) */                  \
    X(fvi_log2, fvi_log2_float, log2, 1.4426950408889634 / a)    /* 1 / ln 2 */                    \
    X(fvi_log10, fvi_log10_float, log10, 0.4342944819032518 / a) /* 1 / ln 10 */                   \
    X(fvi_sqrt, sqrtf, sqrt, 0.5 / y)                                                              \
    X(fvi_rsqrt, fvi_rsqrt_float, fvi_rsqrt_double, -0.5 * y / a) /* 1 / sqrt(x) */                \
    X(fvi_cbrt, fvi_cbrt_float, cbrt, 1 / (3 * y * y))                                             \
    X(fvi_tanh, fvi_tanh_float, tanh, 1 - y * y)                                                   \
    X(fvi_sigmoid, fvi_sigmoid_float, fvi_sigmoid_double, fvi_sigmoid_double(-a) * y)              \
    X(fvi_softplus, fvi_softplus_float, fvi_softplus_double, fvi_sigmoid_double(a))                \
    X(fvi_erf, fvi_erf_float, erf, 1.1283791670955126 * exp(-a * a)) /* 2 / sqrt(pi) */            \
    X(fvi_sin, fvi_sin_float, sin, cos(a))                                                         \
    X(fvi_cos, fvi_cos_float, cos, -sin(a))                                                        \
    X(fvi_atan, fvi_atan_float, atan, 1 / (1 + a * a))                                             \
    X(fvi_abs, fabsf, fabs, (a > 0) - (a < 0))

/* The name, what computes it, its derivative. */
#define FVI_RARE(X)                                                                                \
    X(fvi_tan, tan, 1 + y * y)                                                                     \
    X(fvi_asin, asin, 1 / sqrt((1 - a) * (1 + a)))                                                 \
    X(fvi_acos, acos, -1 / sqrt((1 - a) * (1 + a)))                                                \
    X(fvi_sinh, sinh, cosh(a))                                                                     \
    X(fvi_cosh, cosh, sinh(a))                                                                     \
    X(fvi_asinh, asinh, 1 / hypot(1, a))                                                           \
    X(fvi_acosh, acosh, 1 / sqrt((a - 1) * (a + 1)))                                               \
    X(fvi_atanh, atanh, 1 / ((1 - a) * (1 + a)))                                                   \
    X(fvi_erfc, erfc, -1.1283791670955126 * exp(-a * a))

#if defined(FV_COMPLEX)

/* f(a + ib) from f(a) and f'(a). A zero tangent stays zero where the derivative is infinite.
 * (CMPLX by its other name: glibc keeps the macro from clang.) */
static inline fv_real fvi_lift(fv_real z, double value, double derivative)
{
    return __builtin_complex(value, cimag(z) == 0 ? 0 : derivative * cimag(z));
}

#define FVI_COMPLEX(name, function, derivative)                                                    \
    static inline fv_real name(fv_real x)                                                          \
    {                                                                                              \
        const double a = creal(x), y = function(a);                                                \
        (void)y;                                                                                   \
        return fvi_lift(x, y, derivative);                                                         \
    }
#define X(name, function_float, function, derivative) FVI_COMPLEX(name, function, derivative)
FVI_FAST(X)
#undef X
FVI_RARE(FVI_COMPLEX)
#undef FVI_COMPLEX

#else

#define FVI_REAL(name, function, argument)                                                         \
    static inline fv_real name(fv_real x)                                                          \
    {                                                                                              \
        return (fv_real)function((argument)x);                                                     \
    }
#define X(name, function, derivative) FVI_REAL(name, function, double)
FVI_RARE(X)
#undef X
#if defined(FV_F64)
#define X(name, function_float, function, derivative) FVI_REAL(name, function, double)
#else
#define X(name, function_float, function, derivative) FVI_REAL(name, function_float, float)
#endif
FVI_FAST(X)
#undef X
#undef FVI_REAL

#endif

/* ---- the normal distribution, powers ------------------------------------------------------------- */

#if defined(FV_COMPLEX)

/* The chance that a normal number is below x, and its density. */
static inline fv_real fvi_normal(fv_real x, fv_real *density)
{
    const double a = creal(x), d = 0.3989422804014327 * exp(-a * a / 2); /* 1 / sqrt(2 pi) */
    *density = fvi_lift(x, d, -a * d);
    return fvi_lift(x, erfc(-a * 0.7071067811865476) / 2, d);
}

/* x^p, like C's pow. */
static inline fv_real fvi_pow(fv_real x, double p)
{
    const double a = creal(x);
    return fvi_lift(x, pow(a, p), p == 0 ? 0 : p * pow(a, p - 1));
}

/* x^y, both with tangents. */
static inline fv_real fvi_pow2(fv_real x, fv_real y)
{
    const double a = creal(x), b = creal(y), z = pow(a, b);
    const double slope = z == 0 || (a == 0 && b == 0) ? 0 : z * log(a); /* of y */
    return __builtin_complex(z, cimag(fvi_pow(x, b)) + cimag(fvi_lift(y, z, slope)));
}

#elif defined(FV_F64)

static inline fv_real fvi_normal(fv_real x, fv_real *density)
{
    *density = 0.3989422804014327 * exp(-x * x / 2); /* 1 / sqrt(2 pi) */
    return erfc(-x * 0.7071067811865476) / 2;
}

static inline fv_real fvi_pow(fv_real x, double p)
{
    return pow(x, p);
}

static inline fv_real fvi_pow2(fv_real x, fv_real y)
{
    return pow(x, y);
}

#else

static inline fv_real fvi_normal(fv_real x, fv_real *density)
{
    return fvi_normal_float(x, density);
}

static inline fv_real fvi_pow(fv_real x, double p)
{
    return fvi_pow_float(x, p);
}

static inline fv_real fvi_pow2(fv_real x, fv_real y)
{
    return fvi_pow_float(x, (double)y);
}

#endif
#endif
