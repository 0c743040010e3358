/* Parts of an axis: slices, padding, flips, rolls. */
#include "autograd/ops/move.h"

/* A run of places along the axis: y[y + i] = x[x + i * step] for i < n; step 0 repeats one place. */
typedef struct {
    size_t y, x, n;
    int step;
} piece;

/* y is made of at most three such pieces, and of places before and after them that get one number. */
typedef struct {
    int axis, count;
    piece piece[3];
    size_t before, after;
    double fill;
} pieces;

static move piece_move(const fv_var *y, const pieces *all, const piece *p)
{
    const axis_view from = view_axis(y->in[0]->value.shape, all->axis),
                    to = view_axis(y->value.shape, all->axis);
    const ptrdiff_t inner = (ptrdiff_t)to.inner;
    move m = {.x_first = (ptrdiff_t)(p->x * to.inner), .y_first = (ptrdiff_t)(p->y * to.inner)};
    move_axis(&m, to.outer, (ptrdiff_t)(from.n * to.inner), (ptrdiff_t)(to.n * to.inner));
    move_axis(&m, p->n, p->step * inner, inner);
    move_axis(&m, to.inner, 1, 1);
    return m;
}

/* n places of y from this one on, all x. */
static void fill(fv_tape *t, fv_var *y, int axis, size_t first, size_t n, double x)
{
    const axis_view v = view_axis(y->value.shape, axis);
    const fv_real number = (fv_real)x;
    move m = {.y_first = (ptrdiff_t)(first * v.inner)};
    move_axis(&m, v.outer, 0, (ptrdiff_t)(v.n * v.inner));
    move_axis(&m, n * v.inner, 0, 1);
    fvi_move(t, &m, &number, y->value.data);
}

static bool pieces_forward(fv_tape *t, fv_var *y)
{
    const pieces *p = y->options;
    if (p->before > 0)
        fill(t, y, p->axis, 0, p->before, p->fill);
    if (p->after > 0)
        fill(t, y, p->axis, y->value.shape.size[p->axis] - p->after, p->after, p->fill);
    for (int i = 0; i < p->count; i++) {
        const move m = piece_move(y, p, &p->piece[i]);
        fvi_move(t, &m, y->in[0]->value.data, y->value.data);
    }
    return true;
}

/* each place of x gets dy of the places that it went to, piece after piece */
static void pieces_backward(fv_tape *t, fv_var *y)
{
    const pieces *p = y->options;
    for (int i = 0; i < p->count; i++) {
        const move m = piece_move(y, p, &p->piece[i]);
        fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[0]));
    }
}

/* ---- slice: first, first + step, .. before end ------------------------------------------------- */

#define slice_forward  pieces_forward
#define slice_backward pieces_backward
static fv_var *slice_sample(fv_sampler *s, int which)
{
    static const fv_range range[] = {
        {1, 4, 1}, {0, FV_END, 2}, {-1, FV_END, -1}, {-2, -5, -2}, {2, 2, 1}};
    fv_tape *t = fv_sampler_tape(s);
    if (which < 5)
        return fv_slice(t, fv_sample(s, FV_SHAPE(3, 5, 2), -2, 2), 1, range[which]);
    fv_var *x = fv_sample(s, FV_SHAPE(6, 4), -2, 2), *third[3];
    if (which == 5) /* the parts overlap in x */
        return fv_mul(t, fv_slice(t, x, 0, (fv_range){0, 4, 1}),
                      fv_slice(t, x, 0, (fv_range){2, 6, 1}));
    return fv_split(t, x, -1, 3, (size_t[]){1, 0, 3}, third)
               ? fv_concat(t, 3, (fv_var *[]){third[2], third[1], third[0]}, -1)
               : NULL;
}
FVI_OP(slice, "y = x[first : end : step]", "", 7)

/* ---- pad: more places before and after --------------------------------------------------------- */

#define pad_forward  pieces_forward
#define pad_backward pieces_backward
static fv_var *pad_sample(fv_sampler *s, int which)
{
    const fv_pad_opts opts = {.mode = (fv_pad_mode)(which / 2), .value = 1.5};
    fv_tape *t = fv_sampler_tape(s);
    if (which == 8) /* one place, on all sides */
        return fv_pad(t, fv_sample(s, FV_SHAPE(2, 1), -2, 2), -1, 2, 3,
                      &(fv_pad_opts){.mode = FV_PAD_EDGE});
    if (which == 9)
        return fv_pad(t, fv_sample(s, FV_SHAPE(2, 0), -2, 2), -1, 2, 1, NULL);
    if (which % 2 == 0)
        return fv_pad(t, fv_sample(s, FV_SHAPE(2, 4), -2, 2), -1, 3, 2, &opts);
    return fv_pad(t, fv_sample(s, FV_SHAPE(2, 4, 3), -2, 2), 1, 0, 3, &opts);
}
FVI_OP(pad, "y = [before | x | after]", "", 10)

/* ---- flip: from the end ------------------------------------------------------------------------ */

#define flip_forward  pieces_forward
#define flip_backward pieces_backward
static fv_var *flip_sample(fv_sampler *s, int which)
{
    return fv_flip(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(3, 4, which == 2 ? 1 : 2), -2, 2),
                   which ? -which : 1);
}
FVI_OP(flip, "y[i] = x[n - 1 - i]", "", 3)

/* ---- roll: around the end ---------------------------------------------------------------------- */

#define roll_forward  pieces_forward
#define roll_backward pieces_backward
static fv_var *roll_sample(fv_sampler *s, int which)
{
    static const int shift[] = {2, -1, 0, 11};
    return fv_roll(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(5, 3, 2), -2, 2), which % 3,
                   shift[which]);
}
FVI_OP(roll, "y[i] = x[(i - shift) mod n]", "", 4)

#if FVI_ONCE
static void add_piece(pieces *p, size_t y, size_t x, size_t n, int step)
{
    if (n > 0)
        p->piece[p->count++] = (piece){y, x, n, step};
}

/* Records y, whose axis has n places, where x is what the pieces are cut from. */
static fv_var *record_pieces(fv_tape *t, fvi_op_id id, fv_var *x, size_t n, const pieces *p)
{
    fv_shape shape = x->value.shape;
    shape.size[p->axis] = n;
    return fvi_record(t, id, shape, p, sizeof *p, 1, &x);
}

/* A number of a range as a place: from the end when negative, cut to low .. high. */
static int64_t place(int64_t i, int64_t n, int64_t low, int64_t high)
{
    i += i < 0 ? n : 0;
    return i < low ? low : i > high ? high : i;
}

fv_var *fv_slice(fv_tape *t, fv_var *x, int axis, fv_range range)
{
    if (!given(t, "slice", x) || !known_axis(t, "slice", x, &axis))
        return NULL;
    const int64_t n = (int64_t)x->value.shape.size[axis], step = range.step ? range.step : 1;
    pieces p = {.axis = axis};
    size_t count = 0;
    if (step > 0) {
        const int64_t first = place(range.first, n, 0, n),
                      end = range.end == FV_END ? n : place(range.end, n, 0, n);
        count = end > first ? (size_t)((end - first - 1) / step + 1) : 0;
        add_piece(&p, 0, (size_t)first, count, (int)step);
    } else {
        const int64_t first = place(range.first, n, -1, n - 1),
                      end = range.end == FV_END ? -1 : place(range.end, n, -1, n - 1);
        count = first > end ? (size_t)((first - end - 1) / -step + 1) : 0;
        add_piece(&p, 0, (size_t)first, count, (int)step);
    }
    return record_pieces(t, FVI_OP_slice, x, count, &p);
}

bool fv_split(fv_tape *t, fv_var *x, int axis, int count, const size_t *sizes, fv_var **parts)
{
    if (!given(t, "split", x) || !known_axis(t, "split", x, &axis))
        return false;
    const size_t n = x->value.shape.size[axis], all = count > 0 ? (size_t)count : 0;
    size_t sum = 0;
    if (all == 0)
        return fv_refuse(t, "split", "%d parts, expected at least 1", count) != NULL;
    if (parts == NULL)
        return fv_refuse(t, "split", "no place for the parts") != NULL;
    if (sizes == NULL && n % all != 0)
        return fv_refuse(t, "split", "axis %d of %s in %d equal parts", axis, fv_describe(t, x),
                         count) != NULL;
    for (size_t k = 0; sizes != NULL && k < all; k++)
        if (!fvi_add(sum, sizes[k], &sum) || sum > n)
            return fv_refuse(t, "split", "axis %d of %s: the parts are longer", axis,
                             fv_describe(t, x)) != NULL;
    if (sizes != NULL && sum != n)
        return fv_refuse(t, "split", "axis %d of %s: the parts make %zu", axis, fv_describe(t, x),
                         sum) != NULL;
    for (size_t k = 0, at = 0; k < all; k++) {
        const size_t size = sizes ? sizes[k] : n / all;
        pieces p = {.axis = axis};
        add_piece(&p, 0, at, size, 1);
        parts[k] = record_pieces(t, FVI_OP_slice, x, size, &p);
        at += size;
    }
    return fv_tape_ok(t);
}

fv_var *fv_pad(fv_tape *t, fv_var *x, int axis, size_t before, size_t after,
               const fv_pad_opts *opts)
{
    static const fv_pad_opts none = {FV_PAD_CONSTANT, 0};
    const fv_pad_opts o = opts ? *opts : none;
    if (!given(t, "pad", x) || !known_axis(t, "pad", x, &axis))
        return NULL;
    const size_t n = x->value.shape.size[axis], most = before > after ? before : after;
    size_t size = n;
    if (!fvi_add(size, before, &size) || !fvi_add(size, after, &size))
        return fv_refuse(t, "pad", "axis %d of %s and %zu and %zu: longer than there can be", axis,
                         fv_describe(t, x), before, after);
    pieces p = {.axis = axis};
    add_piece(&p, before, 0, n, 1);
    switch (o.mode) {
    case FV_PAD_CONSTANT:
        p.before = before;
        p.after = after;
        p.fill = o.value;
        break;
    case FV_PAD_EDGE:
        if (n == 0 && most > 0)
            return fv_refuse(t, "pad", "axis %d of %s has no edge", axis, fv_describe(t, x));
        add_piece(&p, 0, 0, before, 0);
        add_piece(&p, before + n, n - 1, after, 0);
        break;
    case FV_PAD_REFLECT:
        if (most > 0 && most >= n)
            return fv_refuse(t, "pad", "axis %d of %s reflects at most its size - 1, not %zu", axis,
                             fv_describe(t, x), most);
        add_piece(&p, 0, before, before, -1);
        add_piece(&p, before + n, n - 2, after, -1);
        break;
    case FV_PAD_WRAP:
        if (most > n)
            return fv_refuse(t, "pad", "axis %d of %s wraps at most its size, not %zu", axis,
                             fv_describe(t, x), most);
        add_piece(&p, 0, n - before, before, 1);
        add_piece(&p, before + n, 0, after, 1);
        break;
    default:
        return fv_refuse(t, "pad", "no mode %d", (int)o.mode);
    }
    return record_pieces(t, FVI_OP_pad, x, size, &p);
}

fv_var *fv_flip(fv_tape *t, fv_var *x, int axis)
{
    if (!given(t, "flip", x) || !known_axis(t, "flip", x, &axis))
        return NULL;
    const size_t n = x->value.shape.size[axis];
    pieces p = {.axis = axis};
    add_piece(&p, 0, n - 1, n, -1);
    return record_pieces(t, FVI_OP_flip, x, n, &p);
}

fv_var *fv_roll(fv_tape *t, fv_var *x, int axis, int shift)
{
    if (!given(t, "roll", x) || !known_axis(t, "roll", x, &axis))
        return NULL;
    const size_t n = x->value.shape.size[axis];
    const int64_t by = n > 0 ? shift % (int64_t)n : 0;
    const size_t first = (size_t)(by < 0 ? by + (int64_t)n : by);
    pieces p = {.axis = axis};
    add_piece(&p, first, 0, n - first, 1);
    add_piece(&p, 0, n - first, first, 1);
    return record_pieces(t, FVI_OP_roll, x, n, &p);
}
#endif
