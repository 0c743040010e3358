/* Functions of floats that work in double inside, so that they are right but for the last rounding
 * (0.53 ulp), to be inlined into loops that vectorise: like tensor/math_float.h. */
#ifndef FVI_MATH_WIDE_H
#define FVI_MATH_WIDE_H

#include "tensor/math_float.h"

static inline uint64_t fvi_bits_wide(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double fvi_from_bits_wide(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- powers -------------------------------------------------------------------------------------- */

/* log2(x) of a float, within 2^-37 of itself; -Inf at 0, NaN below. x = m 2^k with m in
 * [sqrt(1/2), sqrt(2)), and log(m) = 2 atanh(s), s = (m - 1) / (m + 1). */
static inline double fvi_log2_wide(float x)
{
    const uint64_t bits = fvi_bits_wide((double)x) - 0x3fe6a09e667f3bcdu;
    const double k = (double)((int32_t)(bits >> 32) >> 20);
    const double m = fvi_from_bits_wide((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    const double s = (m - 1) / (m + 1), square = s * s;
    double p = 0x1.5ce9006b0a925p-2;
    p = fvi_fma_wide(p, square, 0x1.a58d80347649bp-2);
    p = fvi_fma_wide(p, square, 0x1.27777ff925c9p-1);
    p = fvi_fma_wide(p, square, 0x1.ec709d12bb741p-1);
    p = fvi_fma_wide(p, square, 0x1.71547652bee03p1);
    const double y = fvi_fma_wide(p, s, k);
    return x > 0 ? (x < INFINITY ? y : (double)x) : x == 0 ? -INFINITY : NAN;
}

/* 2^x as a float, infinite from 128, 0 below -150. */
static inline float fvi_exp2_wide(double x)
{
    x = x > 130 ? 130 : x;
    x = x < -160 ? -160 : x;
    const double shift = 0x1.8p52, z = x + shift, r = x - (z - shift);
    double p = 0x1.bffca7cf1631ap-17;
    p = fvi_fma_wide(p, r, 0x1.4442ed269e0fcp-13);
    p = fvi_fma_wide(p, r, 0x1.5dc041a664aefp-10);
    p = fvi_fma_wide(p, r, 0x1.3b2a1c0cd28e6p-7);
    p = fvi_fma_wide(p, r, 0x1.c6b0551bcb7c3p-5);
    p = fvi_fma_wide(p, r, 0x1.ebfbe04571d4ep-3);
    p = fvi_fma_wide(p, r, 0x1.62e4300b9e913p-1);
    p = fvi_fma_wide(p, r, 1);
    return (float)(p * fvi_from_bits_wide((fvi_bits_wide(z) + 1023) << 52));
}

static inline float fvi_log2_float(float x)
{
    return (float)fvi_log2_wide(x);
}

static inline float fvi_log10_float(float x)
{
    return (float)(fvi_log2_wide(x) * 0x1.34413509f79ffp-2); /* log10(2) */
}

static inline float fvi_exp2_float(float x)
{
    return fvi_exp2_wide((double)x);
}

static inline float fvi_cbrt_float(float x)
{
    return fvi_with_sign(fvi_exp2_wide(fvi_log2_wide(fvi_size(x)) / 3), x);
}

/* x^p, in every case as C's pow: 1 when p = 0 or x = 1, the sign of x when p is odd, NaN for a negative
 * number to a power that is not whole. */
static inline float fvi_pow_float(float x, double p)
{
    const bool whole = floor(p) == p, odd = whole && floor(p / 2) * 2 != p;
    const double power = fvi_log2_wide(fvi_size(x));
    const bool one = p == 0 || x == 1 || (x == -1 && whole);
    const float size = fvi_exp2_wide(one ? 0 : p * power);
    const float y = fvi_with_sign(size, odd ? x : 1);
    return x < 0 && x > -INFINITY && !whole ? NAN : y;
}

/* ---- angles -------------------------------------------------------------------------------------- */

/* The sine of x + shift turns, |shift| < 1, for every float. x / 2 pi is the sum of x times each part of
 * 1 / 2 pi. A part has 29 bits, so that the product is exact, and so is what remains of it without its whole
 * turns. Seven parts reach as far as the largest float needs. */
static inline float fvi_sin_wide(float x, double shift)
{
    static const double inverse[] = {0x1.45f306dp-3,  0x1.9391054p-32,  0x1.4fe13abp-61,
                                     0x1.d1f534dp-90, 0x1.b81b6c5p-119, 0x1.5993c4p-150,
                                     0x1.c820ff2p-177};
    enum { PARTS = sizeof inverse / sizeof *inverse };
    const double halves = 0x1.8p51; /* adding it rounds to half turns */
    double rest[PARTS], sum = shift;
    for (int i = 0; i < PARTS; i++) {
        const double turns = (double)x * inverse[i];
        rest[i] = turns - rint(turns);
        sum += rest[i];
    }
    const double z = sum + halves;
    double f = rest[0] - (z - halves - shift); /* in this order whatever cancels is exact */
    for (int i = 1; i < PARTS; i++)
        f += rest[i];
    const double square = f * f;
    double p = -0x1.cc34fe04082bfp3;
    p = fvi_fma_wide(p, square, 0x1.500ffdd9af6acp5);
    p = fvi_fma_wide(p, square, -0x1.32d1122721f54p6);
    p = fvi_fma_wide(p, square, 0x1.466bbfc308744p6);
    p = fvi_fma_wide(p, square, -0x1.4abbce4f1c49p5);
    p = fvi_fma_wide(p, square, 0x1.921fb5441e483p2);
    const double y = p * f;
    return (float)fvi_from_bits_wide(fvi_bits_wide(y) ^ fvi_bits_wide(z) << 63);
}

static inline float fvi_sin_float(float x)
{
    return x == 0 ? x : fvi_sin_wide(x, 0); /* -0 stays */
}

static inline float fvi_cos_float(float x)
{
    return fvi_sin_wide(x, 0.25);
}

/* The angle whose tangent is x. That of |x| is a multiple of pi / 4 and the angle of t, |t| < sqrt(2) - 1:
 * t = |x|, (|x| - 1) / (|x| + 1) or -1 / |x|. */
static inline float fvi_atan_float(float x)
{
    const double size = fvi_size(x);
    const bool some = size > 0x1.a827999fcef32p-2; /* sqrt(2) - 1 */
    const bool most = size > 0x1.3504f333f9de6p1;  /* sqrt(2) + 1 */
    const double over = some ? size - 1 : size, under = some ? size + 1 : 1;
    const double start = most ? 0x1.921fb54442d18p0 : some ? 0x1.921fb54442d18p-1 : 0;
    const double t = (most ? -1 : over) / (most ? size : under), square = t * t;
    double p = -0x1.3476b60263bf8p-5;
    p = fvi_fma_wide(p, square, 0x1.1da944b08361cp-4);
    p = fvi_fma_wide(p, square, -0x1.7055a4b9e6bcap-4);
    p = fvi_fma_wide(p, square, 0x1.c6cc2c34dd014p-4);
    p = fvi_fma_wide(p, square, -0x1.2490912fd0fbep-3);
    p = fvi_fma_wide(p, square, 0x1.99999046475dap-3);
    p = fvi_fma_wide(p, square, -0x1.5555554ba3b18p-2);
    p = fvi_fma_wide(p, square, 0x1.fffffffffe56bp-1);
    return fvi_with_sign((float)fvi_fma_wide(p, t, start), x);
}

#endif
