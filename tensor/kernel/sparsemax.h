/* Thresholds of sparsemax, for the op and for attention.
 *
 * max(x - tau, 0) sums to 1. Only numbers within 1 of the largest can be in the support; from these,
 * tau = (sum - 1) / count, and what is not above tau leaves, until none does. The support only shrinks,
 * so this ends, at the exact tau (Michelot, 1986), without sorting. */
#ifndef FVI_SPARSEMAX_H
#define FVI_SPARSEMAX_H

#include <math.h>

#include "tensor/internal.h"

enum { FVI_SPARSEMAX_ABREAST = 128 };

/* Each of width columns (at most FVI_SPARSEMAX_ABREAST) of n numbers, step apart: tau above shift, where
 * shift is the column's largest number, 0 where that is -inf. A NaN is above all. Columns that are done
 * wait for the rest. */
static inline void fvi_sparsemax(size_t n, size_t width, size_t step, const fv_real *restrict x,
                                 const fv_real *restrict shift, fv_real *restrict tau)
{
    fv_real sum[FVI_SPARSEMAX_ABREAST];
    size_t before[FVI_SPARSEMAX_ABREAST], now[FVI_SPARSEMAX_ABREAST];
    for (size_t j = 0; j < width; j++) {
        tau[j] = -1;
        before[j] = n + 1;
    }
    for (bool more = true; more;) {
        for (size_t j = 0; j < width; j++)
            sum[j] = 0, now[j] = 0;
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < width; j++) {
                const fv_real e = x[i * step + j] - shift[j];
                sum[j] += fv_re(e) <= fv_re(tau[j]) ? 0 : e;
                now[j] += (size_t) !(fv_re(e) <= fv_re(tau[j]));
            }
        more = false;
        for (size_t j = 0; j < width; j++)
            if (now[j] > 0 && now[j] < before[j]) {
                tau[j] = (sum[j] - 1) / (fv_real)now[j];
                before[j] = now[j];
                more = true;
            }
    }
}

#endif
