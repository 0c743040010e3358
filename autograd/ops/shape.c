/* Other shapes for the same numbers: views, axes in another order, repeats. */
#include "autograd/ops/move.h"

/* ---- reshape: a view --------------------------------------------------------------------------- */

static bool reshape_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    y->value.data = y->in[0]->value.data;
    return true;
}

/* The gradient is a view of the input's (see fv_grad): nothing is left to add. */
static void reshape_backward(fv_tape *t, fv_var *y)
{
    (void)t;
    (void)y;
}

static fv_var *reshape_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(4, 6), -2, 2), *y = fv_reshape(t, x, FV_SHAPE(2, 3, 4));
    switch (which) {
    case 0:
        return y;
    case 1:
        return fv_add(t, y, fv_reshape(t, x, FV_SHAPE(2, 3, 4)));
    case 2:
        return fv_mul(t, x, fv_squeeze(t, fv_unsqueeze(t, x, 1), 1));
    case 3:
        return fv_flatten(t, y, 1, -1);
    default:
        return fv_reshape(t, fv_sample(s, FV_SHAPE(1, 1, 1), -2, 2), FV_SCALAR);
    }
}
FVI_OP(reshape, "y = x under another shape", "", 5)

/* ---- permute: axis i of y is axis axes[i] of x ------------------------------------------------- */

static move permute_move(const fv_var *y)
{
    const int *axes = y->options;
    const fv_shape from = y->in[0]->value.shape, to = y->value.shape;
    ptrdiff_t x[FV_MAX_RANK], own[FV_MAX_RANK];
    move m = {0};
    steps_of(from, x);
    steps_of(to, own);
    for (int i = 0; i < to.rank; i++)
        move_axis(&m, to.size[i], x[axes[i]], own[i]);
    return m;
}

static bool permute_forward(fv_tape *t, fv_var *y)
{
    const move m = permute_move(y);
    fvi_move(t, &m, y->in[0]->value.data, y->value.data);
    return true;
}

/* dx = dy with the axes back in their order */
static void permute_backward(fv_tape *t, fv_var *y)
{
    const move m = permute_move(y);
    fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[0]));
}

static fv_var *permute_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    switch (which) {
    case 0:
        return fv_transpose(t, fv_sample(s, FV_SHAPE(5, 7), -2, 2), 0, 1);
    case 1:
        return fv_permute(t, fv_sample(s, FV_SHAPE(2, 3, 4, 2), -2, 2), (int[]){0, 2, 1, 3});
    case 2:
        return fv_permute(t, fv_sample(s, FV_SHAPE(2, 3, 4, 2), -2, 2), (int[]){3, -2, 0, 1});
    case 3:
        return fv_permute(t, fv_sample(s, FV_SHAPE(1, 2, 1, 3, 2, 2), -2, 2),
                          (int[]){5, 4, 3, 2, 1, 0});
    case 4:
        return fv_permute(t, fv_sample(s, FV_SCALAR, -2, 2), NULL);
    default: {
        fv_var *x = fv_sample(s, FV_SHAPE(4, 4), -2, 2);
        return fv_mul(t, x, fv_transpose(t, x, -1, -2));
    }
    }
}
FVI_OP(permute, "y = x with its axes in another order", "", 6)

/* ---- expand: x repeats along axes of size 1 and new ones --------------------------------------- */

static move expand_move(const fv_var *y)
{
    const fv_shape to = y->value.shape;
    ptrdiff_t x[FV_MAX_RANK], own[FV_MAX_RANK];
    move m = {0};
    broadcast_steps(y->in[0]->value.shape, to, x);
    steps_of(to, own);
    for (int i = 0; i < to.rank; i++)
        move_axis(&m, to.size[i], x[i], own[i]);
    return m;
}

static bool expand_forward(fv_tape *t, fv_var *y)
{
    const move m = expand_move(y);
    fvi_move(t, &m, y->in[0]->value.data, y->value.data);
    return true;
}

/* dx = dy summed over the repeats */
static void expand_backward(fv_tape *t, fv_var *y)
{
    const move m = expand_move(y);
    fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[0]));
}

static fv_var *expand_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    switch (which) {
    case 0:
        return fv_expand(t, fv_sample(s, FV_SHAPE(3), -2, 2), FV_SHAPE(4, 3));
    case 1:
        return fv_expand(t, fv_sample(s, FV_SHAPE(3, 1), -2, 2), FV_SHAPE(3, 5));
    case 2:
        return fv_expand(t, fv_sample(s, FV_SHAPE(2, 1, 3, 1), -2, 2), FV_SHAPE(2, 2, 3, 4));
    case 3:
        return fv_expand(t, fv_sample(s, FV_SCALAR, -2, 2), FV_SHAPE(2, 3));
    case 4:
        return fv_repeat_rows(t, fv_sample(s, FV_SHAPE(3, 2), -2, 2), 3);
    default:
        return fv_expand(t, fv_sample(s, FV_SHAPE(2, 3), -2, 2), FV_SHAPE(2, 3));
    }
}
FVI_OP(expand, "y = x, broadcast", "", 6)

/* ---- tile: x end to end, along every axis ------------------------------------------------------ */

static move tile_move(const fv_var *y)
{
    const size_t *repeats = y->options;
    const fv_shape from = y->in[0]->value.shape;
    ptrdiff_t x[FV_MAX_RANK], own[FV_MAX_RANK];
    move m = {0};
    steps_of(from, x);
    steps_of(y->value.shape, own);
    for (int i = 0; i < from.rank; i++) {
        move_axis(&m, repeats[i], 0, (ptrdiff_t)(from.size[i] * (size_t)own[i]));
        move_axis(&m, from.size[i], x[i], own[i]);
    }
    return m;
}

static bool tile_forward(fv_tape *t, fv_var *y)
{
    const move m = tile_move(y);
    fvi_move(t, &m, y->in[0]->value.data, y->value.data);
    return true;
}

/* dx = dy summed over the repeats */
static void tile_backward(fv_tape *t, fv_var *y)
{
    const move m = tile_move(y);
    fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[0]));
}

static fv_var *tile_sample(fv_sampler *s, int which)
{
    static const size_t repeats[][6] = {{3}, {2, 3}, {1, 2, 1}, {2, 1, 2, 1, 2, 2}, {1, 1}};
    static const fv_shape shape[] = {
        {1, {4}}, {2, {3, 2}}, {3, {2, 1, 3}}, {6, {1, 2, 2, 1, 3, 2}}, {2, {3, 4}}};
    return fv_tile(fv_sampler_tape(s), fv_sample(s, shape[which], -2, 2), repeats[which]);
}
FVI_OP(tile, "y = x repeated along its axes", "", 5)

#if FVI_ONCE
fv_var *fv_reshape(fv_tape *t, fv_var *x, fv_shape shape)
{
    char text[160];
    if (!given(t, "reshape", x))
        return NULL;
    if (fv_shape_count(shape) != fvi_count(x))
        return fv_refuse(t, "reshape", "%s to %s: the counts differ", fv_describe(t, x),
                         fv_shape_text(shape, text));
    return fvi_record(t, FVI_OP_reshape, shape, NULL, 0, 1, &x);
}

fv_var *fv_squeeze(fv_tape *t, fv_var *x, int axis)
{
    if (!given(t, "squeeze", x) || !known_axis(t, "squeeze", x, &axis))
        return NULL;
    fv_shape shape = x->value.shape;
    if (shape.size[axis] != 1)
        return fv_refuse(t, "squeeze", "axis %d of %s is not of size 1", axis, fv_describe(t, x));
    shape.rank--;
    for (int i = axis; i < shape.rank; i++)
        shape.size[i] = shape.size[i + 1];
    return fv_reshape(t, x, shape);
}

fv_var *fv_unsqueeze(fv_tape *t, fv_var *x, int axis)
{
    if (!given(t, "unsqueeze", x))
        return NULL;
    fv_shape shape = x->value.shape;
    const int rank = shape.rank + 1;
    if (rank > FV_MAX_RANK)
        return fv_refuse(t, "unsqueeze", "%s has the most axes there can be", fv_describe(t, x));
    if (axis < -rank || axis >= rank)
        return fv_refuse(t, "unsqueeze", "%s with one more axis has no axis %d", fv_describe(t, x),
                         axis);
    axis += axis < 0 ? rank : 0;
    for (int i = shape.rank++; i > axis; i--)
        shape.size[i] = shape.size[i - 1];
    shape.size[axis] = 1;
    return fv_reshape(t, x, shape);
}

fv_var *fv_flatten(fv_tape *t, fv_var *x, int first, int last)
{
    if (!given(t, "flatten", x))
        return NULL;
    const fv_shape from = x->value.shape;
    if (from.rank == 0 && (first == 0 || first == -1) && (last == 0 || last == -1))
        return fv_reshape(t, x, FV_SHAPE(1));
    if (!known_axis(t, "flatten", x, &first) || !known_axis(t, "flatten", x, &last))
        return NULL;
    if (first > last)
        return fv_refuse(t, "flatten", "axes %d to %d of %s: the first is behind the last", first,
                         last, fv_describe(t, x));
    fv_shape shape = {.rank = first + 1 + from.rank - 1 - last};
    for (int i = 0; i < shape.rank; i++)
        shape.size[i] = from.size[i <= first ? i : i + last - first];
    for (int i = first + 1; i <= last; i++)
        if (!fvi_mul(shape.size[first], from.size[i], &shape.size[first]))
            return fv_refuse(t, "flatten", "%s: an axis longer than there can be",
                             fv_describe(t, x));
    return fv_reshape(t, x, shape);
}

fv_var *fv_permute(fv_tape *t, fv_var *x, const int *axes)
{
    if (!given(t, "permute", x))
        return NULL;
    const fv_shape from = x->value.shape;
    fv_shape shape = {.rank = from.rank};
    int order[FV_MAX_RANK] = {0};
    bool seen[FV_MAX_RANK] = {false};
    if (axes == NULL && from.rank > 0)
        return fv_refuse(t, "permute", "no axes");
    for (int i = 0; i < from.rank; i++) {
        order[i] = axes[i];
        if (!known_axis(t, "permute", x, &order[i]))
            return NULL;
        if (seen[order[i]])
            return fv_refuse(t, "permute", "axis %d of %s twice", order[i], fv_describe(t, x));
        seen[order[i]] = true;
        shape.size[i] = from.size[order[i]];
    }
    return fvi_record(t, FVI_OP_permute, shape, order, sizeof order, 1, &x);
}

fv_var *fv_transpose(fv_tape *t, fv_var *x, int a, int b)
{
    int order[FV_MAX_RANK] = {0, 1, 2, 3, 4, 5};
    if (!given(t, "transpose", x) || !known_axis(t, "transpose", x, &a) ||
        !known_axis(t, "transpose", x, &b))
        return NULL;
    order[a] = b;
    order[b] = a;
    return fv_permute(t, x, order);
}

fv_var *fv_expand(fv_tape *t, fv_var *x, fv_shape shape)
{
    char text[160];
    fv_shape both = {0};
    if (!given(t, "expand", x))
        return NULL;
    if (shape.rank < 0 || shape.rank > FV_MAX_RANK)
        return fv_refuse(t, "expand", "rank %d, expected 0 to %d", shape.rank, FV_MAX_RANK);
    if (!broadcast_shapes(x->value.shape, shape, &both) || !fv_shape_equal(both, shape))
        return fv_refuse(t, "expand", "%s to %s: does not broadcast", fv_describe(t, x),
                         fv_shape_text(shape, text));
    return fvi_record(t, FVI_OP_expand, shape, NULL, 0, 1, &x);
}

fv_var *fv_tile(fv_tape *t, fv_var *x, const size_t *repeats)
{
    if (!given(t, "tile", x))
        return NULL;
    fv_shape shape = x->value.shape;
    size_t kept[FV_MAX_RANK] = {0};
    if (repeats == NULL && shape.rank > 0)
        return fv_refuse(t, "tile", "no repeats");
    for (int i = 0; i < shape.rank; i++) {
        kept[i] = repeats[i];
        if (!fvi_mul(shape.size[i], kept[i], &shape.size[i]))
            return fv_refuse(t, "tile", "axis %d of %s %zu times: longer than there can be", i,
                             fv_describe(t, x), kept[i]);
    }
    return fvi_record(t, FVI_OP_tile, shape, kept, sizeof kept, 1, &x);
}

/* Rows as [rows, 1, numbers of one], which repeat along the middle. */
fv_var *fv_repeat_rows(fv_tape *t, fv_var *x, size_t count)
{
    if (!given(t, "repeat_rows", x))
        return NULL;
    fv_shape shape = x->value.shape;
    if (shape.rank == 0)
        return fv_refuse(t, "repeat_rows", "%s has no rows", fv_describe(t, x));
    const axis_view v = view_axis(shape, 0);
    if (!fvi_mul(v.n, count, &shape.size[0]))
        return fv_refuse(t, "repeat_rows", "%s %zu times: more rows than there can be",
                         fv_describe(t, x), count);
    fv_var *rows = fv_reshape(t, x, FV_SHAPE(v.n, 1, v.inner));
    return fv_reshape(t, fv_expand(t, rows, FV_SHAPE(v.n, count, v.inner)), shape);
}
#endif
