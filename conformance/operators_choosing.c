/* Operators that choose numbers by their places, or put numbers there: gather, scatter, sort. */
#include <string.h>

#include "conformance/conformance.h"

/* Memory for count numbers of places, on the tape. */
static int32_t *room_for(const call *c, size_t count)
{
    return fv_tape_alloc(c->t, count + 1, sizeof(int32_t));
}

static size_t count_of(const fv_var *x)
{
    return fv_shape_count(x->value.shape);
}

/* Sizes before and after an axis, multiplied. */
static void around(fv_shape shape, int axis, size_t *before, size_t *after)
{
    *before = *after = 1;
    for (int i = 0; i < shape.rank; i++)
        if (i != axis)
            *(i < axis ? before : after) *= shape.size[i];
}

/* The index has any shape; it takes the place of the axis. */
static fv_var *gather(call *c)
{
    fv_var *x = input(c, 0);
    const fv_shape index = input(c, 1)->value.shape, from = x->value.shape;
    const int axis = axis_of(c, x, whole(c, "axis", 0));
    fv_shape shape = {.rank = from.rank - 1 + index.rank};
    if (shape.rank > FV_MAX_RANK)
        return lacks(c, "more than six axes");
    for (int i = 0, k = 0; i < from.rank; i++)
        if (i != axis)
            shape.size[k++] = from.size[i];
        else
            for (int j = 0; j < index.rank; j++)
                shape.size[k++] = index.size[j];
    fv_var *y =
        fv_index_select(c->t, x, axis, places(c, 1, from.size[axis]), fv_shape_count(index));
    return fv_reshape(c->t, y, shape);
}

static fv_var *gather_elements(call *c)
{
    fv_var *x = input(c, 0);
    const int axis = axis_of(c, x, whole(c, "axis", 0));
    return fv_take_along(c->t, x, axis, input(c, 1)->value.shape,
                         places(c, 1, x->value.shape.size[axis]));
}

/* Of an index [.., k]: the number of the row that its k coordinates name in x seen as [rows, d],
 * where d is the product of the axes behind the first k. */
static int32_t *rows_named(call *c, const fv_var *x, int i, size_t *count, size_t *rows, size_t *d)
{
    const fv_var *index = input(c, i);
    const fv_shape shape = index->value.shape;
    const size_t k = shape.size[shape.rank - 1];
    *count = k > 0 ? fv_shape_count(shape) / k : 0;
    *rows = *d = 1;
    for (int axis = 0; axis < x->value.shape.rank; axis++)
        *((size_t)axis < k ? rows : d) *= x->value.shape.size[axis];
    int32_t *ids = room_for(c, *count);
    const fv_real *at = index->value.data;
    for (size_t r = 0; ids != NULL && r < *count; r++) {
        double row = 0;
        for (size_t axis = 0; axis < k; axis++, at++)
            row = row * (double)x->value.shape.size[axis] +
                  (*at < 0 ? *at + (double)x->value.shape.size[axis] : *at);
        ids[r] = (int32_t)row;
    }
    return ids;
}

static fv_var *gather_nd(call *c)
{
    fv_var *x = input(c, 0);
    const fv_shape from = x->value.shape, index = input(c, 1)->value.shape;
    size_t count, rows, d;
    if (whole(c, "batch_dims", 0) > 0)
        return lacks(c, "batch_dims: an index of its own for each sample");
    const int32_t *ids = rows_named(c, x, 1, &count, &rows, &d);
    const int k = (int)index.size[index.rank - 1];
    fv_shape shape = {.rank = index.rank - 1 + from.rank - k};
    for (int i = 0; i < shape.rank; i++)
        shape.size[i] = i < index.rank - 1 ? index.size[i] : from.size[i - index.rank + 1 + k];
    return fv_reshape(c->t, fv_gather(c->t, fv_reshape(c->t, x, FV_SHAPE(rows, d)), ids, count),
                      shape);
}

/* x [rows, d] with updates [count, d] put at rows ids, or added there. */
static fv_var *scatter_rows(call *c, fv_var *x, fv_var *updates, const int32_t *ids, size_t count,
                            size_t rows, size_t d)
{
    const char *how = text(c, "reduction", "none");
    const fv_shape shape = x->value.shape;
    if (strcmp(how, "none") != 0 && strcmp(how, "add") != 0)
        return lacks(c, "reduction other than none and add: scatter adds");
    fv_var *table = fv_reshape(c->t, x, FV_SHAPE(rows, d));
    fv_var *put = fv_scatter_add(c->t, fv_reshape(c->t, updates, FV_SHAPE(count, d)), ids, rows);
    if (strcmp(how, "none") == 0) {
        unsigned char *hit = fv_tape_alloc(c->t, rows + 1, 1);
        for (size_t i = 0; hit != NULL && i < count; i++)
            if (ids[i] >= 0 && (size_t)ids[i] < rows)
                hit[ids[i]] = 1;
        table = fv_masked_fill(c->t, table, (fv_bools){FV_SHAPE(rows, 1), hit}, 0);
    }
    return fv_reshape(c->t, fv_add(c->t, table, put), shape);
}

static fv_var *scatter_nd(call *c)
{
    size_t count, rows, d;
    const int32_t *ids = rows_named(c, input(c, 0), 1, &count, &rows, &d);
    return scatter_rows(c, input(c, 0), input(c, 2), ids, count, rows, d);
}

/* Number k of updates goes where it stands, but along the axis to index[k]. */
static fv_var *scatter_elements(call *c)
{
    fv_var *x = input(c, 0);
    const fv_shape shape = x->value.shape, index = input(c, 1)->value.shape;
    const int axis = axis_of(c, x, whole(c, "axis", 0));
    const size_t count = fv_shape_count(index);
    const int32_t *along = places(c, 1, shape.size[axis]);
    int32_t *ids = room_for(c, count);
    for (size_t k = 0; ids != NULL && k < count; k++) {
        size_t rest = k, at = 0, step = 1;
        for (int i = shape.rank - 1; i >= 0; i--) {
            at += step * (i == axis ? (size_t)along[k] : rest % index.size[i]);
            rest /= index.size[i];
            step *= shape.size[i];
        }
        ids[k] = (int32_t)at;
    }
    return scatter_rows(c, x, input(c, 2), ids, count, fv_shape_count(shape), 1);
}

/* Cache rows write_indices[b] .. of sample b become those of the update: [samples, .., time, d]. */
static fv_var *tensor_scatter(call *c)
{
    fv_var *x = input(c, 0), *update = input(c, 1);
    const fv_shape shape = x->value.shape, part = update->value.shape;
    const int axis = axis_of(c, x, whole(c, "axis", -2));
    const size_t time = shape.size[axis], more = part.size[axis], samples = shape.size[0];
    const int32_t *from = input(c, 2) != NULL ? places(c, 2, time) : room_for(c, samples);
    size_t before, d;
    around(shape, axis, &before, &d);
    if (axis == 0 || samples == 0 || (input(c, 2) != NULL && count_of(input(c, 2)) != samples))
        return fv_refuse(c->t, c->op, "no samples, or not a place for each");
    int32_t *ids = room_for(c, before * more);
    for (size_t row = 0; ids != NULL && from != NULL && row < before * more; row++) {
        const size_t b = row / more, at = (size_t)from[b / (before / samples)] + row % more;
        ids[row] = (int32_t)(b * time + at % time); /* around the end in mode circular */
    }
    return scatter_rows(c, x, update, ids, before * more, before * time, d);
}

static fv_var *compress(call *c)
{
    fv_var *x = input(c, 0);
    const fv_bools keep = truths(c, 1);
    if (!has(c, "axis"))
        x = fv_reshape(c->t, x, FV_SHAPE(fv_shape_count(x->value.shape), 1));
    const int axis = has(c, "axis") ? axis_of(c, x, whole(c, "axis", 0)) : 0;
    /* The axis becomes the rows; those behind the end of the condition are left out. */
    x = fv_transpose(c->t, x, 0, axis);
    if (x == NULL)
        return NULL;
    fv_shape shape = x->value.shape;
    unsigned char *rows = fv_tape_alloc(c->t, shape.size[0] + 1, 1);
    memcpy(rows, keep.data,
           keep.shape.size[0] < shape.size[0] ? keep.shape.size[0] : shape.size[0]);
    const size_t all = shape.size[0], d = all > 0 ? fv_shape_count(shape) / all : 0;
    fv_var *y = fv_masked_select(c->t, fv_reshape(c->t, x, FV_SHAPE(all, d)), rows, NULL, NULL);
    if (y == NULL)
        return NULL;
    shape.size[0] = y->value.shape.size[0];
    y = fv_transpose(c->t, fv_reshape(c->t, y, shape), 0, axis);
    return has(c, "axis") ? y : fv_reshape(c->t, y, FV_SHAPE(shape.size[0]));
}

/* The first lengths[b] steps of sample b backwards, the others as they are. */
static fv_var *reverse_sequence(call *c)
{
    fv_var *x = input(c, 0);
    const fv_shape shape = x->value.shape;
    const bool time_first = whole(c, "time_axis", 0) == 0;
    const size_t times = shape.size[time_first ? 0 : 1], samples = shape.size[time_first ? 1 : 0];
    const int32_t *length = places(c, 1, 0);
    if (times * samples == 0 || count_of(input(c, 1)) != samples)
        return fv_refuse(c->t, c->op, "no samples, or not a length for each");
    int32_t *ids = room_for(c, times * samples);
    for (size_t row = 0; ids != NULL && length != NULL && row < times * samples; row++) {
        const size_t b = time_first ? row % samples : row / times,
                     i = time_first ? row / samples : row % times;
        const size_t n = (size_t)length[b], from = i < n ? n - 1 - i : i;
        ids[row] = (int32_t)(time_first ? from * samples + b : b * times + from);
    }
    const size_t d = fv_shape_count(shape) / (times * samples);
    fv_var *rows = fv_reshape(c->t, x, FV_SHAPE(times * samples, d));
    return fv_reshape(c->t, fv_gather(c->t, rows, ids, times * samples), shape);
}

/* Pooled numbers go back to where they came from; flat places say where that is in the shape that was
 * pooled, as kernel, strides and pads tell it. A larger output_shape has zeros behind that. */
static fv_var *max_unpool(call *c)
{
    fv_var *x = input(c, 0);
    int64_t sizes[MOST] = {0}, kernel[MOST] = {0}, strides[MOST] = {0}, pads[MOST] = {0};
    const size_t count = fv_shape_count(x->value.shape);
    fv_shape shape = x->value.shape;
    const int spatial = list(c, "kernel_shape", kernel), given = input_list(c, 2, sizes),
              stepped = list(c, "strides", strides), padded = list(c, "pads", pads);
    for (int i = 0; i < spatial && i + 2 < shape.rank; i++) {
        const int64_t less = padded > 0 ? pads[i] + pads[i + spatial] : 0;
        const int64_t step = stepped > 0 ? strides[i] : 1;
        shape.size[i + 2] = (size_t)(((int64_t)shape.size[i + 2] - 1) * step + kernel[i] - less);
    }
    fv_var *y = fv_scatter_add(c->t, fv_reshape(c->t, x, FV_SHAPE(count, 1)), places(c, 1, 0),
                               fv_shape_count(shape));
    y = fv_reshape(c->t, y, shape);
    for (int i = 0; i < given; i++)
        if ((size_t)sizes[i] > shape.size[i])
            y = fv_pad(c->t, y, i, 0, (size_t)sizes[i] - shape.size[i], NULL);
    return y;
}

/* ---- largest numbers ------------------------------------------------------------------------------- */

static fv_var *extreme(call *c, const int32_t *(*find)(fv_tape *t, const fv_var *x, int axis))
{
    fv_var *x = input(c, 0);
    const int axis = axis_of(c, x, whole(c, "axis", 0));
    fv_shape shape = x->value.shape;
    const int32_t last = (int32_t)shape.size[axis] - 1;
    const bool from_end = whole(c, "select_last_index", 0);
    const int32_t *at = find(c->t, from_end ? fv_flip(c->t, x, axis) : x, axis);
    shape.size[axis] = 1;
    const size_t count = fv_shape_count(shape);
    int32_t *place = room_for(c, count);
    for (size_t i = 0; at != NULL && place != NULL && i < count; i++)
        place[i] = from_end ? last - at[i] : at[i];
    fv_var *y = from_places(c, shape, at != NULL ? place : NULL);
    return whole(c, "keepdims", 1) ? y : fv_squeeze(c->t, y, axis);
}

static fv_var *arg_max(call *c)
{
    return extreme(c, fv_argmax);
}

static fv_var *arg_min(call *c)
{
    return extreme(c, fv_argmin);
}

static fv_var *top_k(call *c)
{
    fv_var *x = input(c, 0);
    const int32_t *order = NULL;
    const fv_sort_opts opts = {.smallest = !whole(c, "largest", 1), .order = &order};
    const size_t k = (size_t)(has(c, "k") ? whole(c, "k", 1) : (int)input_number(c, 1, 1));
    fv_var *y = fv_topk(c->t, x, axis_of(c, x, whole(c, "axis", -1)), k, &opts);
    if (y != NULL && wants(c, 1))
        give(c, 1, from_places(c, y->value.shape, order));
    return y;
}

/* Classes as a new last axis, moved to another place. */
static fv_var *one_hot_at(call *c, const int32_t *ids, fv_shape shape, size_t classes, int axis)
{
    fv_var *y = fv_one_hot(c->t, ids, fv_shape_count(shape), classes);
    int axes[FV_MAX_RANK];
    shape.size[shape.rank] = classes;
    for (int i = 0; i <= shape.rank; i++)
        axes[i] = i < axis ? i : i == axis ? shape.rank : i - 1;
    shape.rank++;
    return fv_permute(c->t, fv_reshape(c->t, y, shape), axes);
}

static fv_var *one_hot(call *c)
{
    const fv_var *values = input(c, 2);
    const double off = fv_re(values->value.data[0]), on = fv_re(values->value.data[1]);
    const fv_shape shape = input(c, 0)->value.shape;
    const size_t classes = (size_t)input_number(c, 1, 0);
    int32_t *ids = places(c, 0, classes);
    for (size_t i = 0, n = fv_shape_count(shape); ids != NULL && i < n; i++)
        if (ids[i] < 0 || ids[i] >= (int32_t)classes)
            ids[i] = -1;
    int axis = whole(c, "axis", -1);
    axis += axis < 0 ? shape.rank + 1 : 0;
    fv_var *y = one_hot_at(c, ids, shape, classes, axis);
    return fv_shift(c->t, fv_scale(c->t, y, on - off), off);
}

/* 1 at the first of the largest numbers, else 0. */
static fv_var *hardmax(call *c)
{
    fv_var *x = input(c, 0);
    const int axis = axis_of(c, x, whole(c, "axis", -1));
    fv_shape rest = {.rank = x->value.shape.rank - 1};
    if (c->opset < 13)
        return lacks(c, "opset below 13: the axes flattened to two");
    for (int i = 0, k = 0; i < x->value.shape.rank; i++)
        if (i != axis)
            rest.size[k++] = x->value.shape.size[i];
    return one_hot_at(c, fv_argmax(c->t, x, axis), rest, x->value.shape.size[axis], axis);
}

const operation choosing_operations[] = {
    {"Gather", .run = gather, .needs = 2},
    {"GatherElements", .run = gather_elements, .needs = 2},
    {"GatherND", .run = gather_nd, .needs = 2},
    {"Scatter", .run = scatter_elements, .needs = 3},
    {"ScatterElements", .run = scatter_elements, .needs = 3},
    {"ScatterND", .run = scatter_nd, .needs = 3},
    {"TensorScatter", .run = tensor_scatter, .needs = 2},
    {"Compress", .run = compress, .needs = 2},
    {"ReverseSequence", .run = reverse_sequence, .needs = 2},
    {"MaxUnpool", .run = max_unpool, .needs = 2},
    {"ArgMax", .run = arg_max},
    {"ArgMin", .run = arg_min},
    {"TopK", .run = top_k},
    {"OneHot", .run = one_hot, .needs = 3},
    {"Hardmax", .run = hardmax},
    {0},
};
