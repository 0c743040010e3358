/* What the op files share: the op's constant, sums in fixed lanes, products with scratch from the tape. */
#ifndef FVI_OPS_H
#define FVI_OPS_H

#include "autograd/internal.h"

/* Defines the op called name from name_forward, name_backward and name_sample. */
#define FVI_OP(name, formula, paper, samples)                                                      \
    const fv_op FVI_NAME(fvi_op_##name) = {#name,           formula, paper,        name##_forward, \
                                           name##_backward, samples, name##_sample};

/* Refuses a missing input, unless an earlier error explains it. */
static inline bool given(fv_tape *t, const char *op, const fv_var *x)
{
    if (x == NULL && fv_tape_ok(t))
        fv_refuse(t, op, "an input is NULL");
    return x != NULL && fv_tape_ok(t);
}

/* Whether segments cut x's rows; refuses with the op's name otherwise. */
static inline bool segmented(fv_tape *t, const char *op, const fv_var *x,
                             const fv_segments *segments)
{
    fv_error error = {FV_OK, ""};
    if (segments == NULL)
        fv_refuse(t, op, "no segments");
    else if (fvi_is_matrix(t, op, "input", x) && !fv_segments_check(segments, fvi_rows(x), &error))
        fv_refuse(t, op, "%s", error.text);
    return fv_tape_ok(t);
}

static inline fv_real fold_lanes(fv_real lane[FVI_LANES])
{
    for (int half = FVI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

/* How far ahead a loop over one row asks for numbers: over the end of a page, which processors do not do
 * by themselves. */
enum { FVI_AHEAD = 1024 };

/* The sum of n numbers, in FVI_LANES running sums. */
static inline fv_real lane_sum(size_t n, const fv_real *restrict x)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES) {
        __builtin_prefetch(x + i + FVI_AHEAD);
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] += x[i + (size_t)l];
    }
    for (; i < n; i++)
        lane[i % FVI_LANES] += x[i];
    return fold_lanes(lane);
}

/* Adds x to y, elementwise. */
static inline void add_to(size_t n, const fv_real *restrict x, fv_real *restrict y)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Runs a product with scratch from the tape; nothing when that is out (the tape keeps the error). */
static inline void multiply(fv_tape *t, fvi_product p)
{
    fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, fvi_product_scratch(&p, t->threads), sizeof *scratch);
    if (scratch != NULL)
        fvi_product_run(&p, t->threads, scratch);
    fvi_arena_release(&t->arena, mark);
}

#endif
