/* The loops of an optimiser's step: gradients summed over tapes with their squares, Adam, SGD.
 *
 * Each number's result depends on its own inputs alone, and every multiply-add is spelled out, so it
 * has the same bits in the vector loop, in its tail, and with AVX2 as with AVX-512. */
#include "tensor/update.h"

#include <float.h>
#include <math.h>

#if defined(FV_COMPLEX)
#define REAL_SQRT csqrt
#elif defined(FV_F64)
#define REAL_SQRT sqrt
#define REAL_FMA  fma
#define REAL_ABS  fabs
#define REAL_MIN  DBL_MIN
#else
#define REAL_SQRT sqrtf
#define REAL_FMA  fmaf
#define REAL_ABS  fabsf
#define REAL_MIN  FLT_MIN
#endif

/* a * b + c, rounded once where the processor can. */
static inline fv_real multiply_add(fv_real a, fv_real b, fv_real c)
{
#if defined(__FMA__) && !defined(FV_COMPLEX)
    return REAL_FMA(a, b, c);
#else
    return a * b + c;
#endif
}

/* Moments of rows that are no longer used decay into subnormal numbers, which do not reach zero by
 * rounding and are slow for ever after. They are too small to move any parameter: zero at once. */
static inline fv_real without_subnormal(fv_real x)
{
#if defined(FV_COMPLEX)
    return x; /* the real part may be zero under a tangent */
#else
    return REAL_ABS(x) < REAL_MIN ? 0 : x;
#endif
}

/* ---- sums over tapes ------------------------------------------------------------------------- */

enum { BLOCK = 512 }; /* numbers summed at a time: a block of each tape stays in the first cache */

/* y = x[0] + x[1] + .. as a binary tree, ((x0 + x1) + (x2 + x3)) + .., of n <= BLOCK numbers from at.
 * NULL adds nothing. False: all were NULL. */
static bool tree(size_t n, size_t at, int count, const fv_real *const *x, fv_real *restrict y)
{
    if (count == 1) {
        if (x[0] == NULL)
            return false;
        for (size_t i = 0; i < n; i++)
            y[i] = x[0][at + i];
        return true;
    }
    if (count == 2 && x[0] != NULL && x[1] != NULL) {
        const fv_real *a = x[0] + at, *b = x[1] + at;
        for (size_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
        return true;
    }
    if (count == 4 && x[0] != NULL && x[1] != NULL && x[2] != NULL && x[3] != NULL) {
        const fv_real *a = x[0] + at, *b = x[1] + at, *c = x[2] + at, *d = x[3] + at;
        for (size_t i = 0; i < n; i++)
            y[i] = (a[i] + b[i]) + (c[i] + d[i]);
        return true;
    }
    int left = 1;
    while (2 * left < count)
        left *= 2;
    if (!tree(n, at, left, x, y))
        return tree(n, at, count - left, x + left, y);
    fv_real right[BLOCK];
    if (tree(n, at, count - left, x + left, right))
        for (size_t i = 0; i < n; i++)
            y[i] += right[i];
    return true;
}

static fvi_wide sum(size_t n, size_t at, int count, const fv_real *const *x, fv_real *y)
{
    fvi_wide lane[FVI_LANES] = {0};
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t length = n - first < BLOCK ? n - first : BLOCK, i = 0;
        const fv_real *block = y == NULL ? x[0] + at + first : y + first;
        if (y != NULL)
            tree(length, at + first, count, x, y + first);
        for (; i + FVI_LANES <= length; i += FVI_LANES)
            for (size_t l = 0; l < FVI_LANES; l++)
                lane[l] += (fvi_wide)block[i + l] * (fvi_wide)block[i + l];
        for (; i < length; i++)
            lane[i % FVI_LANES] += (fvi_wide)block[i] * (fvi_wide)block[i];
    }
    for (int half = FVI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* ---- updates --------------------------------------------------------------------------------- */

/* Kingma and Ba, 2014, arXiv 1412.6980; with keep instead of l2, Loshchilov and Hutter, 2017, arXiv
 * 1711.05101. */
static inline void adam_number(fvi_adam_step s, fv_real gradient, fv_real *p, fv_real *m,
                               fv_real *v)
{
    fv_real g = multiply_add(s.l2, *p, s.scale * gradient);
    *m = without_subnormal(multiply_add(s.rest1, g, s.beta1 * *m));
    *v = without_subnormal(multiply_add(s.rest2 * g, g, s.beta2 * *v));
    fv_real spread = multiply_add(REAL_SQRT(*v), s.root, s.eps);
    *p = multiply_add(-s.rate, *m / spread, s.keep * *p);
}

static void adam(size_t n, const fvi_adam_step *step, const fv_real *g, fv_real *restrict p,
                 fv_real *restrict m, fv_real *restrict v)
{
    const fvi_adam_step s = *step;
    if (g == NULL) {
        for (size_t i = 0; i < n; i++)
            adam_number(s, 0, p + i, m + i, v + i);
    } else {
        for (size_t i = 0; i < n; i++)
            adam_number(s, g[i], p + i, m + i, v + i);
    }
}

static void sgd(size_t n, const fvi_sgd_step *step, const fv_real *g, fv_real *restrict p,
                fv_real *restrict b)
{
    const fvi_sgd_step s = *step;
    for (size_t i = 0; i < n; i++) {
        fv_real d = multiply_add(s.l2, p[i], g == NULL ? 0 : s.scale * g[i]);
        if (b != NULL) {
            b[i] = without_subnormal(multiply_add(s.momentum, b[i], d));
            d = s.nesterov ? multiply_add(s.momentum, b[i], d) : b[i];
        }
        p[i] = multiply_add(-s.rate, d, p[i]);
    }
}

const fvi_update FVI_NAME(fvi_update) = {sum, adam, sgd};

#if FVI_ONCE
const fvi_update *fvi_update_for(fvi_isa isa)
{
    static const fvi_update *const all[] = {
#define X(name) &FVI_JOIN(fvi_update, name),
        FVI_EACH_ISA(X)
#undef X
    };
    return all[isa];
}
#endif
