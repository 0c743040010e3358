/* Sums in a fixed order: FVI_LANES running sums, folded in halves at the end, whatever the processor. */
#include "tensor/internal.h"

/* The lanes are folded 16 -> 8 -> 4 -> 2 -> 1. */
#define FOLD(lane)                                                                                 \
    for (int half = FVI_LANES / 2; half > 0; half /= 2)                                            \
        for (int l = 0; l < half; l++)                                                             \
            lane[l] += lane[l + half];

fv_real fvi_dot(size_t n, const fv_real *x, const fv_real *y)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] += x[i + (size_t)l] * y[i + (size_t)l];
    for (; i < n; i++)
        lane[i % FVI_LANES] += x[i] * y[i];
    FOLD(lane)
    return lane[0];
}

void fvi_axpy(size_t n, double alpha, const fv_real *x, fv_real *y)
{
    const fv_real a = (fv_real)alpha;
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

double fvi_sum(size_t n, const fv_real *x)
{
    double lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] += (double)fv_re(x[i + (size_t)l]);
    for (; i < n; i++)
        lane[i % FVI_LANES] += (double)fv_re(x[i]);
    FOLD(lane)
    return lane[0];
}

double fvi_sum_squares(size_t n, const fv_real *x)
{
    double lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++) {
            double v = (double)fv_re(x[i + (size_t)l]);
            lane[l] += v * v;
        }
    for (; i < n; i++) {
        double v = (double)fv_re(x[i]);
        lane[i % FVI_LANES] += v * v;
    }
    FOLD(lane)
    return lane[0];
}
