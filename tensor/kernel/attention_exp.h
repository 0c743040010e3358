/* exp and log for scores. */
#ifndef FVI_ATTENTION_EXP_H
#define FVI_ATTENTION_EXP_H
#include "tensor/internal.h"
#include <math.h>
#include <string.h>
#if defined(FV_COMPLEX)
static inline fv_real fvi_exp_fast(fv_real x)
{
    return creal(x) == -INFINITY ? 0 : cexp(x);
}
static inline fv_real fvi_log_of(fv_real x)
{
    return clog(x);
}
#elif defined(FV_F64)
static inline double fvi_exp_fast(double x)
{
    return exp(x);
}
static inline double fvi_log_of(double x)
{
    return log(x);
}
#else
static inline float fvi_exp_fast(float x)
{
    const float magic = 12582912.0f, t = x * 1.44269504f + magic, n = t - magic;
    float r = x - n * 0.693359375f;
    uint32_t bits;
    float power;
    r = r - n * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * (r * r) + r;
    y = y + 1.0f;
    memcpy(&bits, &t, 4);
    bits = (bits << 23) + (127u << 23);
    memcpy(&power, &bits, 4);
    y = y * power;
    return x < -87.0f ? 0.0f : y;
}
static inline float fvi_log_of(float x)
{
    return logf(x);
}
#endif
#endif
