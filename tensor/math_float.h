/* exp, log, tanh and the normal distribution of floats, to be inlined into loops that vectorise.
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

/* |size| with the sign of x. */
static inline float fvi_with_sign(float size, float x)
{
    return fvi_from_bits((fvi_bits(size) & 0x7fffffffu) | (fvi_bits(x) & 0x80000000u));
}

/* exp(x) = (1 + e) 2^n: returns e = exp(r) - 1 for r = x - n ln 2, |r| <= ln 2 / 2. Adding 1.5 * 2^23
 * rounds to a whole number and leaves it in the low bits. */
static inline float fvi_expm1_reduced(float x, int32_t *n)
{
    const float shift = 0x1.8p23f, z = x * 0x1.715476p0f + shift;
    const float whole = z - shift;
    const float r = (x - whole * 0x1.62e4p-1f) - whole * 0x1.7f7d1cp-20f;
    float e = 0x1.6bec04p-10f;
    e = e * r + 0x1.122776p-7f;
    e = e * r + 0x1.555674p-5f;
    e = e * r + 0x1.5554bp-3f;
    e = e * r + 0x1.fffffep-2f;
    *n = (int32_t)(fvi_bits(z) - 0x4b400000u);
    return e * r * r + r;
}

/* At most 1.1 ulp. Below the normal range it rounds to denormals, then to 0. */
static inline float fvi_exp_float(float x)
{
    int32_t n;
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    const float e = fvi_expm1_reduced(x, &n);
    const int32_t half = n >> 1; /* 2^n itself may lie outside the range of a float */
    const float low = fvi_from_bits((uint32_t)(half + 127) << 23);
    const float high = fvi_from_bits((uint32_t)(n - half + 127) << 23);
    return (1 + e) * low * high;
}

/* At most 0.9 ulp; -Inf at 0, NaN below. x = m 2^k with m in [sqrt(1/2), sqrt(2)), f = m - 1. */
static inline float fvi_log_float(float x)
{
    const bool tiny = x < 0x1p-126f;
    const uint32_t bits = fvi_bits(tiny ? x * 0x1p23f : x) - 0x3f3504f3u;
    const float k = (float)((int32_t)bits >> 23) - (tiny ? 23.0f : 0.0f);
    const float f = fvi_from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1;
    const float square = f * f;
    float p = -0x1.38b5ap-4f;
    p = p * f + 0x1.055b7p-3f;
    p = p * f - 0x1.0d853ep-3f;
    p = p * f + 0x1.22da1cp-3f;
    p = p * f - 0x1.547244p-3f;
    p = p * f + 0x1.99a008p-3f;
    p = p * f - 0x1.000226p-2f;
    p = p * f + 0x1.555554p-2f;
    p = p * (square * f) + k * 0x1.7f7d1cp-20f;
    p = p - 0.5f * square;
    float y = k * 0x1.62e4p-1f + (p + f);
    y = x < INFINITY ? y : x;
    return x > 0 ? y : x == 0 ? -INFINITY : NAN;
}

/* At most 1.4 ulp: x + x^3 p(x^2) up to 0.6, then 1 - 2 / (exp(2|x|) + 1). */
static inline float fvi_tanh_float(float x)
{
    const float size = fvi_from_bits(fvi_bits(x) & 0x7fffffffu), square = x * x;
    float p = -0x1.825858p-8f;
    p = p * square + 0x1.54b8ap-6f;
    p = p * square - 0x1.b898dep-5f;
    p = p * square + 0x1.1109aep-3f;
    p = p * square - 0x1.55553ep-2f;
    const float inner = p * (square * x) + x;
    const float outer = 1 - 2 / (fvi_exp_float(2 * size) + 1);
    return fvi_with_sign(size > 0.6f ? outer : inner, x);
}

/* The chance that a normal number is below x, within 1.1e-7, and its density: exp(-x^2 / 2) serves both.
 * The chance to be |x| or more away on one side is that times Mills' ratio, a polynomial up to 5.5. */
static inline float fvi_normal_float(float x, float *density)
{
    const float size = fvi_from_bits(fvi_bits(x) & 0x7fffffffu), e = fvi_exp_float(-0.5f * x * x);
    const float a = size > 5.5f ? 5.5f : size;
    float p = 0x1.187c82p-25f;
    p = p * a - 0x1.088ca2p-20f;
    p = p * a + 0x1.c51656p-17f;
    p = p * a - 0x1.d6bc52p-14f;
    p = p * a + 0x1.50125ap-11f;
    p = p * a - 0x1.6487a2p-9f;
    p = p * a + 0x1.2af272p-7f;
    p = p * a - 0x1.a1e7ecp-6f;
    p = p * a + 0x1.fb0194p-5f;
    p = p * a - 0x1.0feaacp-3f;
    p = p * a + 0x1.ffebf6p-3f;
    p = p * a - 0x1.988396p-2f;
    p = p * a + 0x1.fffffep-2f;
    *density = 0x1.988454p-2f * e; /* 1 / sqrt(2 pi) */
    return x > 0 ? 1 - e * p : e * p;
}

#endif
