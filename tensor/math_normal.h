/* The normal distribution and erf of floats, to be inlined into loops: like tensor/math_float.h. */
#ifndef FVI_MATH_NORMAL_H
#define FVI_MATH_NORMAL_H

#include "tensor/math_float.h"

/* The chance that a normal number is below x, within 1.1e-7, and its density: exp(-x^2 / 2) serves both.
 * The chance to be |x| or more away on one side is that times Mills' ratio, a polynomial up to 5.5. */
static inline float fvi_normal_float(float x, float *density)
{
    const float e = fvi_exp_normal(-0.5f * x * x), size = fvi_size(x);
    const float a = size > 5.5f ? 5.5f : size;
    float p = 0x1.187c82p-25f;
    p = fvi_fmaf(p, a, -0x1.088ca2p-20f);
    p = fvi_fmaf(p, a, 0x1.c51656p-17f);
    p = fvi_fmaf(p, a, -0x1.d6bc52p-14f);
    p = fvi_fmaf(p, a, 0x1.50125ap-11f);
    p = fvi_fmaf(p, a, -0x1.6487a2p-9f);
    p = fvi_fmaf(p, a, 0x1.2af272p-7f);
    p = fvi_fmaf(p, a, -0x1.a1e7ecp-6f);
    p = fvi_fmaf(p, a, 0x1.fb0194p-5f);
    p = fvi_fmaf(p, a, -0x1.0feaacp-3f);
    p = fvi_fmaf(p, a, 0x1.ffebf6p-3f);
    p = fvi_fmaf(p, a, -0x1.988396p-2f);
    p = fvi_fmaf(p, a, 0x1.fffffep-2f);
    *density = 0x1.988454p-2f * e; /* 1 / sqrt(2 pi) */
    return x > 0 ? fvi_fmaf(-e, p, 1) : e * p;
}

/* At most 1.4 ulp: x + x p(x^2) up to 0.84, then 1 - exp(q(|x|)), q = log(1 - erf). */
static inline float fvi_erf_float(float x)
{
    const float size = fvi_size(x), square = x * x, a = size > 4 ? 4 : size;
    float p = -0x1.4ea4eep-11f;
    p = fvi_fmaf(p, square, 0x1.4bced8p-8f);
    p = fvi_fmaf(p, square, -0x1.b74166p-6f);
    p = fvi_fmaf(p, square, 0x1.ce25fap-4f);
    p = fvi_fmaf(p, square, -0x1.812728p-2f);
    p = fvi_fmaf(p, square, 0x1.06eba8p-3f);
    float q = 0x1.ad554ap-13f;
    q = fvi_fmaf(q, a, -0x1.99f5ccp-9f);
    q = fvi_fmaf(q, a, 0x1.719284p-6f);
    q = fvi_fmaf(q, a, -0x1.ac721ep-4f);
    q = fvi_fmaf(q, a, -0x1.45db1ep-1f);
    q = fvi_fmaf(q, a, -0x1.20cbap0f);
    q = fvi_fmaf(q, a, -0x1.8a107p-14f);
    return fvi_with_sign(size > 0.84f ? 1 - fvi_exp_normal(q) : fvi_fmaf(p, x, x), x);
}

#endif
