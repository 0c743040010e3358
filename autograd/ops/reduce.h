/* What reductions over axes share: which axes go, and the walks over what is left. */
#ifndef FVI_REDUCE_H
#define FVI_REDUCE_H

#include "autograd/ops/fold.h"

/* The options of every reduction. */
typedef struct {
    bool gone[FV_MAX_RANK]; /* by axis of x */
    size_t count;           /* numbers that make one result */
    double number;          /* correction of a variance, p of a norm */
} reduction;

/* Which axes of x go, and the shape that is left; refuses axes that x has not or that come twice. */
static inline bool reduced(fv_tape *t, const char *op, const fv_var *x, const fv_axes *axes,
                           reduction *r, fv_shape *shape)
{
    const bool all = axes == NULL || axes->count == 0, keep = axes != NULL && axes->keep;
    if (!given(t, op, x))
        return false;
    const fv_shape from = x->value.shape;
    *shape = FV_SCALAR;
    r->count = 1;
    if (!all && (axes->count < 0 || axes->count > FV_MAX_RANK)) {
        fv_refuse(t, op, "%d axes, expected 0 to %d", axes->count, FV_MAX_RANK);
        return false;
    }
    for (int i = 0; i < (all ? from.rank : axes->count); i++) {
        int axis = all ? i : axes->axis[i];
        if (!known_axis(t, op, x, &axis))
            return false;
        if (r->gone[axis]) {
            fv_refuse(t, op, "axis %d of %s twice", axis, fv_describe(t, x));
            return false;
        }
        r->gone[axis] = true;
        if (!fvi_mul(r->count, from.size[axis], &r->count))
            r->count = SIZE_MAX; /* of results that are none */
    }
    for (int i = 0; i < from.rank; i++)
        if (!r->gone[i] || keep)
            shape->size[shape->rank++] = r->gone[i] ? 1 : from.size[i];
    return true;
}

/* How far a result is from the next along each axis of x. */
static inline void result_steps(const fv_var *y, ptrdiff_t step[FV_MAX_RANK])
{
    const reduction *r = y->options;
    fv_shape left = y->in[0]->value.shape;
    for (int i = 0; i < left.rank; i++)
        left.size[i] = r->gone[i] ? 1 : left.size[i];
    broadcast_steps(left, y->in[0]->value.shape, step);
}

/* The fold of x into y's numbers; where the results go is left to say. */
static inline fold fold_of(const fv_var *y, fold_kind kind)
{
    const reduction *r = y->options;
    const fv_shape shape = y->in[0]->value.shape;
    ptrdiff_t x[FV_MAX_RANK], result[FV_MAX_RANK];
    fold f = {.kept = {.tensors = 2}, .gone = {.tensors = 1}, .kind = kind, .over = 1};
    steps_of(shape, x);
    result_steps(y, result);
    for (int i = 0; i < shape.rank; i++)
        if (r->gone[i])
            walk_add(&f.gone, shape.size[i], &x[i]);
        else
            walk_add(&f.kept, shape.size[i], (ptrdiff_t[]){x[i], result[i]});
    walk_close(&f.kept);
    walk_close(&f.gone);
    return f;
}

/* The way back; what the factors are is left to say. */
static inline spread spread_of(const fv_var *y, slope_kind kind)
{
    const fv_shape shape = y->in[0]->value.shape;
    ptrdiff_t step[2][FV_MAX_RANK];
    steps_of(shape, step[0]);
    result_steps(y, step[1]);
    return (spread){.numbers = walk_over(shape, 2, step), .kind = kind, .scale = 1};
}

/* Numbers that are never equal, nor near zero: for gradient checks of what has kinks there. */
static inline fv_var *sample_apart(fv_sampler *s, fv_shape shape)
{
    fv_tape *t = fv_sampler_tape(s);
    const size_t count = fv_shape_count(shape);
    fv_var *x = fv_sample(s, shape, -0.4, 0.4);
    fv_real *steps = fv_tape_alloc(t, count, sizeof *steps);
    for (size_t i = 0; steps != NULL && i < count; i++)
        steps[i] = (fv_real)((i * 7 + 3) % (count % 7 ? count : count + 1)) - (fv_real)(count / 2) +
                   (fv_real)0.5;
    return fv_add(t, x, fv_constant(t, shape, steps));
}

#endif
