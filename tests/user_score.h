/* A score of a program's own, for tests. */
#ifndef TEST_USER_SCORE_H
#define TEST_USER_SCORE_H

#include "tensor/tensor.h"

/* The sum over the columns of w q k^2. */
static inline void user_forward(void *context, size_t width, const fv_real *q, size_t count,
                                const fv_real *const *keys, const fv_real *weight, fv_real *score)
{
    (void)context;
    for (size_t j = 0; j < count; j++) {
        score[j] = 0;
        for (size_t c = 0; c < width; c++)
            score[j] += weight[c] * q[c] * keys[j][c] * keys[j][c];
    }
}
static inline void user_backward(void *context, size_t width, const fv_real *q, size_t count,
                                 const fv_real *const *keys, const fv_real *weight,
                                 const fv_real *slope, fv_real *dq, fv_real *const *dkeys,
                                 fv_real *dweight)
{
    (void)context;
    for (size_t j = 0; j < count; j++)
        for (size_t c = 0; c < width; c++) {
            const fv_real k = keys[j][c];
            if (dq != NULL)
                dq[c] += slope[j] * weight[c] * k * k;
            if (dkeys != NULL && dkeys[j] != NULL)
                dkeys[j][c] += slope[j] * weight[c] * q[c] * 2 * k;
            if (dweight != NULL)
                dweight[c] += slope[j] * q[c] * k * k;
        }
}
static const fv_score_function user_score = {NULL, user_forward, user_backward};

#endif
