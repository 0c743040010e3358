/* exp, log and what is made of them, for floats, to be inlined into loops that vectorise.
 *
 * No branch and no table, the same steps for every number, so that a loop has the same bits with
 * AVX2 and with AVX-512. The polynomials are minimax fits of our own (Remez). The error that a comment
 * states was measured on every 13th float, and on every one where the error peaks. */
#ifndef FVI_MATH_FLOAT_H
#define FVI_MATH_FLOAT_H

#include <math.h>
#include <string.h>

#include "tensor/internal.h"

static inline uint32_t fvi_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float fvi_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* sum + x * y, rounded once where the instruction set can. */
static inline float fvi_fmaf(float x, float y, float sum)
{
#if defined(__FMA__)
    return __builtin_fmaf(x, y, sum);
#else
    return sum + x * y;
#endif
}

static inline double fvi_fma_wide(double x, double y, double sum)
{
#if defined(__FMA__)
    return __builtin_fma(x, y, sum);
#else
    return sum + x * y;
#endif
}

/* |x|. */
static inline float fvi_size(float x)
{
    return fvi_from_bits(fvi_bits(x) & 0x7fffffffu);
}

/* |size| with the sign of x. */
static inline float fvi_with_sign(float size, float x)
{
    return fvi_from_bits((fvi_bits(size) & 0x7fffffffu) | (fvi_bits(x) & 0x80000000u));
}

/* exp(x) = (1 + e) 2^n: returns e = exp(r) - 1 for r = x - n ln 2, |r| <= ln 2 / 2. Adding 1.5 * 2^23
 * rounds to a whole number and leaves it in the low bits. */
static inline float fvi_expm1_reduced(float x, int32_t *n)
{
    const float shift = 0x1.8p23f, z = fvi_fmaf(x, 0x1.715476p0f, shift);
    const float whole = z - shift;
    const float r = fvi_fmaf(-whole, 0x1.7f7d1cp-20f, fvi_fmaf(-whole, 0x1.62e4p-1f, x));
    float e = 0x1.6bec04p-10f;
    e = fvi_fmaf(e, r, 0x1.122776p-7f);
    e = fvi_fmaf(e, r, 0x1.555674p-5f);
    e = fvi_fmaf(e, r, 0x1.5554bp-3f);
    e = fvi_fmaf(e, r, 0x1.fffffep-2f);
    *n = (int32_t)(fvi_bits(z) - 0x4b400000u);
    return fvi_fmaf(e * r, r, r);
}

/* 2^n for -126 <= n <= 127. */
static inline float fvi_power_of_two(int32_t n)
{
    return fvi_from_bits(((uint32_t)n + 127) << 23);
}

/* At most 1.1 ulp. Below the normal range it rounds to denormals, then to 0. */
static inline float fvi_exp_float(float x)
{
    int32_t n;
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float e = fvi_expm1_reduced(x, &n);
    const int32_t half = n >> 1; /* 2^n itself may lie outside the range of a float */
    const float low = fvi_power_of_two(half);
    return fvi_fmaf(e, low, low) * fvi_power_of_two(n - half);
}

/* The same for x <= 88, with 0 instead of denormals: faster. */
static inline float fvi_exp_normal(float x)
{
    int32_t n;
    const float e = fvi_expm1_reduced(x, &n), scale = fvi_power_of_two(n);
    return x < -87.0f ? 0.0f : fvi_fmaf(e, scale, scale);
}

/* At most 1.8 ulp. */
static inline float fvi_expm1_float(float x)
{
    int32_t n;
    const float high = x > 89.0f ? 89.0f : x;
    const float e = fvi_expm1_reduced(high < -18.0f ? -18.0f : high, &n);
    const float half = fvi_power_of_two(n - 1); /* 2^128 would not be a float */
    return fvi_with_sign(2 * fvi_fmaf(e, half, half - 0.5f), x);
}

/* x = (1 + f) 2^k with 1 + f in [sqrt(1/2), sqrt(2)): returns f. */
static inline float fvi_log_reduced(float x, float *k)
{
    const uint32_t bits = fvi_bits(x) - 0x3f3504f3u;
    *k = (float)((int32_t)bits >> 23);
    return fvi_from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1;
}

/* log(1 + f) + k ln 2. */
static inline float fvi_log_sum(float f, float k)
{
    const float square = f * f;
    float p = -0x1.38b5ap-4f;
    p = fvi_fmaf(p, f, 0x1.055b7p-3f);
    p = fvi_fmaf(p, f, -0x1.0d853ep-3f);
    p = fvi_fmaf(p, f, 0x1.22da1cp-3f);
    p = fvi_fmaf(p, f, -0x1.547244p-3f);
    p = fvi_fmaf(p, f, 0x1.99a008p-3f);
    p = fvi_fmaf(p, f, -0x1.000226p-2f);
    p = fvi_fmaf(p, f, 0x1.555554p-2f);
    p = fvi_fmaf(p, square * f, k * 0x1.7f7d1cp-20f);
    p = fvi_fmaf(-0.5f, square, p);
    return fvi_fmaf(k, 0x1.62e4p-1f, p + f);
}

/* At most 0.9 ulp; -Inf at 0, NaN below. */
static inline float fvi_log_float(float x)
{
    const bool tiny = x < 0x1p-126f;
    float k;
    const float f = fvi_log_reduced(tiny ? x * 0x1p23f : x, &k);
    const float y = fvi_log_sum(f, tiny ? k - 23 : k);
    return x > 0 ? (x < INFINITY ? y : x) : x == 0 ? -INFINITY : NAN;
}

/* At most 1.5 ulp; -Inf at -1, NaN below. What 1 + x lost in rounding (Knuth's exact sum) is added to
 * f. */
static inline float fvi_log1p_float(float x)
{
    const float sum = 1 + x, back = sum - 1, lost = (1 - (sum - back)) + (x - back);
    float k;
    const float f = fvi_log_reduced(sum, &k);
    const int32_t down = k < 126 ? -(int32_t)k : -126; /* what is lost there is nothing */
    const float y = fvi_log_sum(fvi_fmaf(lost, fvi_power_of_two(down), f), k);
    return x > -1 ? fvi_with_sign(x < INFINITY ? y : x, x) : x == -1 ? -INFINITY : NAN;
}

/* At most 1.4 ulp: x + x^3 p(x^2) up to 0.6, then 1 - 2 / (exp(2|x|) + 1). */
static inline float fvi_tanh_float(float x)
{
    const float size = fvi_size(x), square = x * x;
    float p = -0x1.825858p-8f;
    p = fvi_fmaf(p, square, 0x1.54b8ap-6f);
    p = fvi_fmaf(p, square, -0x1.b898dep-5f);
    p = fvi_fmaf(p, square, 0x1.1109aep-3f);
    p = fvi_fmaf(p, square, -0x1.55553ep-2f);
    const float inner = fvi_fmaf(p, square * x, x);
    const float outer = 1 - 2 / (fvi_exp_normal(size > 20.0f ? 40.0f : 2 * size) + 1);
    return fvi_with_sign(size > 0.6f ? outer : inner, x);
}

/* At most 2.4 ulp, in both tails. */
static inline float fvi_sigmoid_float(float x)
{
    const float e = fvi_exp_float(-fvi_size(x));
    return (x < 0 ? e : 1) / (1 + e);
}

/* At most 1.8 ulp. log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|); 1 + e <= 2 is 1 + f, or
 * twice that. */
static inline float fvi_softplus_float(float x)
{
    const float e = fvi_exp_float(-fvi_size(x));
    const bool two = e > 0x1.a8279ap-2f; /* sqrt(2) - 1 */
    return (x < 0 ? 0 : x) + fvi_log_sum(two ? 0.5f * e - 0.5f : e, two ? 1.0f : 0.0f);
}

/* At most 1.5 ulp. */
static inline float fvi_rsqrt_float(float x)
{
    return 1 / sqrtf(x);
}

#endif
