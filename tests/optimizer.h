/* Losses with known gradients, for the tests of optimisers. */
#ifndef TEST_OPTIMIZER_H
#define TEST_OPTIMIZER_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"
#include "train/train.h"

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double tolerance = 1e-10;
#else
static const double tolerance = 2e-5;
#endif

/* In [-0.5, 0.5), the same as in tools/make_optimizer_fixtures.py. */
static inline double noise(uint64_t step, uint64_t index)
{
    uint32_t h = (uint32_t)(step * 2654435761u + index * 40503u + 12345u);
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return h / 4294967296.0 - 0.5;
}

static inline double rate(uint64_t step)
{
    return 0.01 * (double)(1 + step % 3);
}

/* ---- losses with known gradients ------------------------------------------------------------- */

/* loss + sum of x times the constant g, so that x's gradient is g. */
static inline fv_var *pull(fv_tape *t, fv_var *loss, fv_var *x, const fv_real *g)
{
    fv_var *term = fv_sum(t, fv_mul(t, x, fv_constant(t, x->value.shape, g)), NULL);
    return loss ? fv_add(t, loss, term) : term;
}

/* noise(step, first ..) that lives as long as the tape's step. */
static inline fv_real *noise_on(fv_tape *t, uint64_t step, uint64_t first, size_t count)
{
    fv_real *g = fv_tape_alloc(t, count, sizeof *g);
    for (size_t i = 0; i < count; i++)
        g[i] = (fv_real)noise(step, first + i);
    return g;
}

static inline fv_var *pull_noise(fv_tape *t, fv_var *loss, const fv_param *p, uint64_t step,
                                 uint64_t first)
{
    return pull(t, loss, fv_use(t, p), noise_on(t, step, first, fv_shape_count(p->value.shape)));
}

static inline fv_param *noisy_param(fv_params *params, const char *name, fv_shape shape,
                                    uint64_t first)
{
    fv_param *p = fv_param_new(fv_root(params), name, shape, (fv_init){FV_ZEROS, 0});
    cr_assert_not_null(p);
    for (size_t i = 0; i < fv_shape_count(shape); i++)
        p->value.data[i] = (fv_real)noise(0, first + i);
    return p;
}

/* A tape on which exactly these rows of a table have the gradient g[count, d]. */
static inline void touch(fv_tape *t, const fv_param *table, uint64_t step, const int32_t *rows,
                         size_t count, const fv_real *g)
{
    fv_tape_begin(t, FV_TRAIN, 1, step);
    cr_assert(fv_backward(t, pull(t, NULL, fv_gather(t, fv_use(t, table), rows, count), g)));
}

static const fv_optimizer_opts kinds[] = {
    {.kind = FV_ADAMW},
    {.kind = FV_ADAM, .weight_decay = 0.1},
    {.kind = FV_SGD},
    {.kind = FV_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

#endif
