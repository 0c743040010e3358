/* Choosing by number or by yes and no: rows scattered, slices of an axis, places filled, rows kept. What
 * several places add into one place of a gradient is added in the order of their numbers. */
#include "autograd/ops/slices.h"

static const int32_t sample_ids[] = {3, 0, 3, 2, 3};

/* ---- scatter_add --------------------------------------------------------------------------------- */

static bool scatter_add_forward(fv_tape *t, fv_var *y)
{
    const int32_t *ids = *(const int32_t *const *)y->options;
    memset(y->value.data, 0, fvi_count(y) * sizeof(fv_real));
    add_slices(t, view_axis(y->value.shape, 0), ids, fvi_rows(y->in[0]), y->in[0]->value.data,
               y->value.data);
    return true;
}

/* dx[i] = dy[ids[i]] */
static void scatter_add_backward(fv_tape *t, fv_var *y)
{
    const int32_t *ids = *(const int32_t *const *)y->options;
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        take_slices(t, view_axis(y->value.shape, 0), ids, fvi_rows(y->in[0]), y->grad, dx, true);
}

static fv_var *scatter_add_sample(fv_sampler *s, int which)
{
    static const size_t rows[] = {5, 1, 0, 5}, width[] = {3, 4, 2, 1};
    fv_var *x = fv_sample(s, FV_SHAPE(rows[which], width[which]), -2, 2);
    return fv_scatter_add(fv_sampler_tape(s), x, sample_ids, 4);
}
FVI_OP(scatter_add, "y[ids[i]] += x[i], from zeros, i ascending", "", 4)

/* ---- index_select -------------------------------------------------------------------------------- */

typedef struct {
    int axis;
    const int32_t *ids;
} along_options;

static bool index_select_forward(fv_tape *t, fv_var *y)
{
    const along_options *o = y->options;
    take_slices(t, view_axis(y->in[0]->value.shape, o->axis), o->ids, y->value.shape.size[o->axis],
                y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx[.., ids[i], ..] += dy[.., i, ..] */
static void index_select_backward(fv_tape *t, fv_var *y)
{
    const along_options *o = y->options;
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        add_slices(t, view_axis(y->in[0]->value.shape, o->axis), o->ids,
                   y->value.shape.size[o->axis], y->grad, dx);
}

static fv_var *index_select_sample(fv_sampler *s, int which)
{
    const fv_shape shapes[] = {FV_SHAPE(4, 3), FV_SHAPE(2, 4, 3), FV_SHAPE(5, 4), FV_SHAPE(4),
                               FV_SHAPE(2, 1, 4, 1, 2, 1)};
    static const int axes[] = {0, 1, -1, 0, 2};
    return fv_index_select(fv_sampler_tape(s), fv_sample(s, shapes[which], -2, 2), axes[which],
                           sample_ids, which == 3 ? 1 : 5);
}
FVI_OP(index_select, "y[.., i, ..] = x[.., ids[i], ..]", "", 5)

/* ---- take_along ---------------------------------------------------------------------------------- */

static bool take_along_forward(fv_tape *t, fv_var *y)
{
    const along_options *o = y->options;
    const axis_view from = view_axis(y->in[0]->value.shape, o->axis);
    const size_t count = y->value.shape.size[o->axis], inner = from.inner;
    const size_t slices = inner ? from.outer * count : 0;
    const int parts = parts_of(t, slices, 3 * inner);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(slices, parts, k);
        for (size_t slice = p.from; slice < p.to; slice++) {
            const fv_real *x = y->in[0]->value.data + slice / count * from.n * inner;
            for (size_t c = 0, at = slice * inner; c < inner; c++, at++)
                y->value.data[at] = x[(size_t)o->ids[at] * inner + c];
        }
    }
    return true;
}

/* dx[.., index[.., i, ..], ..] += dy[.., i, ..], i ascending */
static void take_along_backward(fv_tape *t, fv_var *y)
{
    const along_options *o = y->options;
    const axis_view to = view_axis(y->in[0]->value.shape, o->axis);
    const size_t count = y->value.shape.size[o->axis], inner = to.inner;
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx == NULL || count == 0 || inner == 0)
        return;
    const int parts = parts_beside(t, to, 4 * count);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const beside p = beside_at(to, parts, k);
        for (size_t o_at = p.outer.from; o_at < p.outer.to; o_at++)
            for (size_t i = 0; i < count; i++)
                for (size_t c = p.inner.from; c < p.inner.to; c++) {
                    const size_t at = (o_at * count + i) * inner + c;
                    dx[(o_at * to.n + (size_t)o->ids[at]) * inner + c] += y->grad[at];
                }
    }
}

static fv_var *take_along_sample(fv_sampler *s, int which)
{
    static const int32_t index[] = {2, 0, 2, 1, 2, 2, 0, 1, 2, 0, 1, 1};
    const fv_shape from[] = {FV_SHAPE(4, 3), FV_SHAPE(3, 4), FV_SHAPE(2, 3, 2), FV_SHAPE(3)};
    const fv_shape to[] = {FV_SHAPE(4, 2), FV_SHAPE(2, 4), FV_SHAPE(2, 3, 2), FV_SHAPE(0)};
    static const int axes[] = {-1, 0, 1, 0};
    return fv_take_along(fv_sampler_tape(s), fv_sample(s, from[which], -2, 2), axes[which],
                         to[which], index);
}
FVI_OP(take_along, "y[.., i, ..] = x[.., index[.., i, ..], ..]", "", 4)

/* ---- masked_fill --------------------------------------------------------------------------------- */

typedef struct {
    fv_bools mask;
    double value;
} fill_options;

/* n numbers; the mask moves by step. As a choice, not a product: a filled x may be NaN. */
static inline void fill_run(size_t n, const unsigned char *mask, ptrdiff_t step, fv_real value,
                            const fv_real *restrict x, fv_real *restrict out)
{
    if (step == 0 && *mask)
        for (size_t i = 0; i < n; i++)
            out[i] = value;
    else if (step == 0)
        memcpy(out, x, n * sizeof *out);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = mask[i] ? value : x[i];
}

static inline void fill_run_back(size_t n, const unsigned char *mask, ptrdiff_t step,
                                 const fv_real *restrict dy, fv_real *restrict dx)
{
    if (step == 0 && !*mask)
        add_to(n, dy, dx);
    else if (step != 0)
        for (size_t i = 0; i < n; i++)
            dx[i] += mask[i] ? 0 : dy[i];
}

/* to = from, filled with value, or to += from where nothing is filled. */
static void fill(const fv_tape *t, const fv_var *y, double value, const fv_real *from, fv_real *to,
                 bool add)
{
    const fill_options *o = y->options;
    ptrdiff_t step[2][FV_MAX_RANK] = {{0}};
    steps_of(y->value.shape, step[0]);
    broadcast_steps(o->mask.shape, y->value.shape, step[1]);
    const walk w = walk_over(y->value.shape, 2, step);
    const size_t all = w.runs * w.n;
    const int parts = parts_of(t, all, 2);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(all, parts, k);
        for (stretch s = stretch_first(&w, p.from, p.to); s.n > 0; stretch_next(&w, &s)) {
            const unsigned char *mask = o->mask.data + s.at[1];
            if (add)
                fill_run_back(s.n, mask, w.run[1], from + s.at[0], to + s.at[0]);
            else
                fill_run(s.n, mask, w.run[1], (fv_real)value, from + s.at[0], to + s.at[0]);
        }
    }
}

static bool masked_fill_forward(fv_tape *t, fv_var *y)
{
    fill(t, y, ((const fill_options *)y->options)->value, y->in[0]->value.data, y->value.data,
         false);
    return true;
}

/* dx = dy where nothing was filled */
static void masked_fill_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        fill(t, y, 0, y->grad, dx, !blank);
}

static const unsigned char sample_yes[] = {1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 1, 0};

static fv_var *masked_fill_sample(fv_sampler *s, int which)
{
    const fv_shape mask[] = {FV_SHAPE(3, 4), FV_SHAPE(4), FV_SHAPE(3, 1), FV_SCALAR,
                             FV_SHAPE(2, 1, 4)};
    fv_var *x = fv_sample(s, which == 4 ? FV_SHAPE(2, 3, 4) : FV_SHAPE(3, 4), -2, 2);
    return fv_masked_fill(fv_sampler_tape(s), x, (fv_bools){mask[which], sample_yes}, 0.5 + which);
}
FVI_OP(masked_fill, "y = mask ? value : x", "", 5)

/* ---- masked_select ------------------------------------------------------------------------------- */

/* saved: the row of x that each row is */
static bool masked_select_forward(fv_tape *t, fv_var *y)
{
    const unsigned char *keep = *(const unsigned char *const *)y->options;
    size_t *from = fvi_tape_take(t, fvi_rows(y), sizeof *from);
    y->saved = from;
    for (size_t r = 0, rows = from ? fvi_rows(y->in[0]) : 0; r < rows; r++)
        if (keep[r])
            *from++ = r;
    return y->saved != NULL && move_rows(t, y);
}

/* dx = dy at the rows that were kept */
static void masked_select_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *masked_select_sample(fv_sampler *s, int which)
{
    static const size_t at[] = {0, 2, 2, 5, 12};
    static const fv_segments segments = {4, at};
    const fv_segments *kept;
    fv_var *x = fv_sample(s, FV_SHAPE(which == 2 ? 1 : 12, 3), -2, 2);
    return fv_masked_select(fv_sampler_tape(s), x, sample_yes, which ? NULL : &segments, &kept);
}
FVI_OP(masked_select, "y = the rows r of x with keep[r]", "", 3)

#if FVI_ONCE
fv_var *fv_scatter_add(fv_tape *t, fv_var *x, const int32_t *ids, size_t rows)
{
    const char *op = "scatter_add";
    if (!given(t, op, x) || !fvi_is_matrix(t, op, "input", x))
        return NULL;
    const size_t count = fvi_rows(x);
    if (ids == NULL && count > 0)
        return fv_refuse(t, op, "no ids");
    const size_t stray = stray_id(ids, count, rows);
    if (stray < count)
        return fv_refuse(t, op, "id %d at %zu is outside the %zu rows of the result",
                         (int)ids[stray], stray, rows);
    return fvi_record(t, FVI_OP_scatter_add, FV_SHAPE(rows, fvi_columns(x)), &ids, sizeof ids, 1,
                      &x);
}

fv_var *fv_index_select(fv_tape *t, fv_var *x, int axis, const int32_t *ids, size_t count)
{
    const char *op = "index_select";
    if (!given(t, op, x) || !known_axis(t, op, x, &axis))
        return NULL;
    if (ids == NULL && count > 0)
        return fv_refuse(t, op, "no ids");
    fv_shape shape = x->value.shape;
    const size_t stray = stray_id(ids, count, shape.size[axis]);
    if (stray < count)
        return fv_refuse(t, op, "id %d at %zu is outside axis %d of %s", (int)ids[stray], stray,
                         axis, fv_describe(t, x));
    shape.size[axis] = count;
    const along_options options = {axis, ids};
    return fvi_record(t, FVI_OP_index_select, shape, &options, sizeof options, 1, &x);
}

fv_var *fv_take_along(fv_tape *t, fv_var *x, int axis, fv_shape shape, const int32_t *index)
{
    const char *op = "take_along";
    char text[160];
    if (!given(t, op, x) || !known_axis(t, op, x, &axis))
        return NULL;
    fv_shape expected = x->value.shape;
    if (shape.rank == expected.rank)
        expected.size[axis] = shape.size[axis];
    if (!fv_shape_equal(shape, expected))
        return fv_refuse(t, op, "index %s for axis %d of %s: the other sizes must agree",
                         fv_shape_text(shape, text), axis, fv_describe(t, x));
    const size_t count = fv_shape_count(shape);
    if (index == NULL && count > 0)
        return fv_refuse(t, op, "no index");
    const size_t stray = stray_id(index, count, x->value.shape.size[axis]);
    if (stray < count)
        return fv_refuse(t, op, "index %d at %zu is outside axis %d of %s", (int)index[stray],
                         stray, axis, fv_describe(t, x));
    const along_options options = {axis, index};
    return fvi_record(t, FVI_OP_take_along, shape, &options, sizeof options, 1, &x);
}

fv_var *fv_masked_fill(fv_tape *t, fv_var *x, fv_bools mask, double value)
{
    const char *op = "masked_fill";
    char text[160];
    fv_shape both;
    if (!given(t, op, x))
        return NULL;
    if (mask.shape.rank < 0 || mask.shape.rank > FV_MAX_RANK)
        return fv_refuse(t, op, "mask of rank %d, expected 0 to %d", mask.shape.rank, FV_MAX_RANK);
    if (!broadcast_shapes(x->value.shape, mask.shape, &both) ||
        !fv_shape_equal(both, x->value.shape))
        return fv_refuse(t, op, "mask %s does not broadcast to %s", fv_shape_text(mask.shape, text),
                         fv_describe(t, x));
    if (mask.data == NULL && fv_shape_count(mask.shape) > 0)
        return fv_refuse(t, op, "no mask");
    const fill_options options = {mask, value};
    return fvi_record(t, FVI_OP_masked_fill, x->value.shape, &options, sizeof options, 1, &x);
}

/* The segments of the rows that are kept; NULL when memory is out. */
static const fv_segments *kept_segments(fv_tape *t, const fv_segments *segments,
                                        const unsigned char *keep)
{
    fv_segments *kept = fvi_tape_take(t, 1, sizeof *kept);
    size_t *offsets = fvi_tape_take(t, segments->count + 1, sizeof *offsets), rows = 0;
    if (kept == NULL || offsets == NULL)
        return NULL;
    for (size_t s = 0, r = 0; s <= segments->count; s++) {
        for (; r < segments->offsets[s]; r++)
            rows += keep[r] != 0;
        offsets[s] = rows;
    }
    *kept = (fv_segments){segments->count, offsets};
    return kept;
}

fv_var *fv_masked_select(fv_tape *t, fv_var *x, const unsigned char *keep,
                         const fv_segments *segments, const fv_segments **kept)
{
    const char *op = "masked_select";
    if (kept != NULL)
        *kept = NULL;
    if (!given(t, op, x) || !fvi_is_matrix(t, op, "input", x) ||
        (segments != NULL && !segmented(t, op, x, segments)))
        return NULL;
    const size_t whole_at[] = {0, fvi_rows(x)};
    const fv_segments whole = {1, whole_at};
    if (keep == NULL && fvi_rows(x) > 0)
        return fv_refuse(t, op, "keep is NULL");
    size_t rows = 0;
    for (size_t r = 0; r < fvi_rows(x); r++)
        rows += keep[r] != 0;
    fv_var *y = fvi_record(t, FVI_OP_masked_select, FV_SHAPE(rows, fvi_columns(x)), &keep,
                           sizeof keep, 1, &x);
    if (y != NULL && kept != NULL) {
        *kept = kept_segments(t, segments ? segments : &whole, keep);
        if (*kept == NULL)
            return NULL;
    }
    return y;
}
#endif
