/* Several values as one: along an axis that they have, or a new one. */
#include "autograd/ops/move.h"

/* What input k is of y, seen as [outer, places of the axis, inner]; at: where its places start. */
static move join_move(const fv_var *y, int k, size_t *at)
{
    const axis_view v = view_axis(y->value.shape, *(const int *)y->options);
    const size_t all = v.outer * v.inner, places = all > 0 ? fvi_count(y->in[k]) / all : 0;
    move m = {.y_first = (ptrdiff_t)(*at * v.inner)};
    move_axis(&m, v.outer, (ptrdiff_t)(places * v.inner), (ptrdiff_t)(v.n * v.inner));
    move_axis(&m, places * v.inner, 1, 1);
    *at += places;
    return m;
}

static bool join_forward(fv_tape *t, fv_var *y)
{
    size_t at = 0;
    for (int k = 0; k < y->inputs; k++) {
        const move m = join_move(y, k, &at);
        fvi_move(t, &m, y->in[k]->value.data, y->value.data);
    }
    return true;
}

/* each part gets its own places of dy */
static void join_backward(fv_tape *t, fv_var *y)
{
    size_t at = 0;
    for (int k = 0; k < y->inputs; k++) {
        const move m = join_move(y, k, &at);
        fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[k]));
    }
}

#define concat_forward  join_forward
#define concat_backward join_backward
static fv_var *concat_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x[3] = {fv_sample(s, FV_SHAPE(4, 3), -2, 2), fv_sample(s, FV_SHAPE(4, 1), -2, 2)};
    x[2] = x[0];
    if (which < 2)
        return fv_concat(t, which ? 3 : 2, x, -1);
    fv_var *deep[3] = {fv_sample(s, FV_SHAPE(2, 3, 2), -2, 2),
                       fv_sample(s, FV_SHAPE(2, 0, 2), -2, 2),
                       fv_sample(s, FV_SHAPE(2, 1, 2), -2, 2)};
    return fv_concat(t, which == 2 ? 3 : 1, deep, 1);
}
FVI_OP(concat, "y = [x0 | x1 | ..]", "", 4)

#define stack_forward  join_forward
#define stack_backward join_backward
static fv_var *stack_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x[3] = {fv_sample(s, FV_SHAPE(2, 3), -2, 2), fv_sample(s, FV_SHAPE(2, 3), -2, 2)};
    x[2] = x[0];
    if (which == 3)
        return fv_stack(t, 2, (fv_var *[]){fv_sample(s, FV_SCALAR, -2, 2), fv_sum(t, x[0], NULL)},
                        0);
    return fv_stack(t, 1 + which, x, which - 1);
}
FVI_OP(stack, "y = [x0, x1, ..]", "", 4)

#if FVI_ONCE
/* The common shape of the inputs, along whose axis (when not negative) sizes may differ and are added up. */
static bool common_shape(fv_tape *t, const char *op, int count, fv_var *const *x, int axis,
                         fv_shape *shape)
{
    *shape = x[0]->value.shape;
    for (int k = 1; k < count; k++) {
        if (!given(t, op, x[k]))
            return false;
        fv_shape other = x[k]->value.shape;
        if (axis >= 0 && other.rank == shape->rank)
            other.size[axis] = shape->size[axis];
        if (!fv_shape_equal(other, *shape)) {
            fv_refuse(t, op, "%s beside %s: %s differ", fv_describe(t, x[0]), fv_describe(t, x[k]),
                      axis < 0 ? "shapes" : "other sizes");
            return false;
        }
        if (axis >= 0 &&
            !fvi_add(shape->size[axis], x[k]->value.shape.size[axis], &shape->size[axis])) {
            fv_refuse(t, op, "axis %d would be longer than there can be", axis);
            return false;
        }
    }
    return true;
}

static bool some_inputs(fv_tape *t, const char *op, int count, fv_var *const *x)
{
    if (count < 1)
        fv_refuse(t, op, "%d inputs, expected at least 1", count);
    return given(t, op, count >= 1 && x != NULL ? x[0] : NULL);
}

fv_var *fv_concat(fv_tape *t, int count, fv_var *const *x, int axis)
{
    fv_shape shape;
    if (!some_inputs(t, "concat", count, x) || !known_axis(t, "concat", x[0], &axis) ||
        !common_shape(t, "concat", count, x, axis, &shape))
        return NULL;
    return fvi_record(t, FVI_OP_concat, shape, &axis, sizeof axis, count, x);
}

fv_var *fv_stack(fv_tape *t, int count, fv_var *const *x, int axis)
{
    fv_shape shape;
    if (!some_inputs(t, "stack", count, x) || !common_shape(t, "stack", count, x, -1, &shape))
        return NULL;
    const int rank = shape.rank + 1;
    if (rank > FV_MAX_RANK)
        return fv_refuse(t, "stack", "%s has the most axes there can be", fv_describe(t, x[0]));
    if (axis < -rank || axis >= rank)
        return fv_refuse(t, "stack", "%s with one more axis has no axis %d", fv_describe(t, x[0]),
                         axis);
    axis += axis < 0 ? rank : 0;
    for (int i = shape.rank++; i > axis; i--)
        shape.size[i] = shape.size[i - 1];
    shape.size[axis] = (size_t)count;
    return fvi_record(t, FVI_OP_stack, shape, &axis, sizeof axis, count, x);
}
#endif
