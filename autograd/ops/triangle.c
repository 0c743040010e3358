/* What stands on one side of a diagonal, and the diagonal itself, of the last two axes; rows of an identity. */
#include "autograd/ops/move.h"

/* ---- tril, triu: zeros above or below a diagonal ----------------------------------------------- */

typedef struct {
    int diagonal;
    bool upper;
} triangle;

/* The columns of row i that stay, of n. */
static part kept_columns(const triangle *o, size_t i, size_t n)
{
    const int64_t on = (int64_t)i + o->diagonal, edge = on + !o->upper, all = (int64_t)n;
    const size_t cut = (size_t)(edge < 0 ? 0 : edge > all ? all : edge);
    return o->upper ? (part){cut, n} : (part){0, cut};
}

/* to = from, or to += from, where the triangle is. */
static void copy_triangle(const fv_tape *t, const fv_var *y, const fv_real *from, fv_real *to,
                          bool add)
{
    const triangle *o = y->options;
    const fv_shape shape = y->value.shape;
    const size_t n = shape.size[shape.rank - 1], height = shape.size[shape.rank - 2];
    const size_t rows = n > 0 ? fvi_count(y) / n : 0;
    const int parts = parts_of(t, rows, 2 * n);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++) {
            const part kept = kept_columns(o, r % height, n);
            const fv_real *restrict x = from + r * n;
            fv_real *restrict row = to + r * n;
            if (add)
                add_to(kept.to - kept.from, x + kept.from, row + kept.from);
            else
                for (size_t j = 0; j < n; j++)
                    row[j] = j >= kept.from && j < kept.to ? x[j] : 0;
        }
    }
}

static bool triangle_forward(fv_tape *t, fv_var *y)
{
    copy_triangle(t, y, y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx = dy where the triangle is */
static void triangle_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        copy_triangle(t, y, y->grad, dx, true);
}

static fv_var *triangle_sample(fv_sampler *s, int which,
                               fv_var *(*op)(fv_tape *t, fv_var *x, int diagonal))
{
    static const int diagonal[] = {0, 1, -2, 9};
    return op(fv_sampler_tape(s),
              fv_sample(s, which % 2 ? FV_SHAPE(2, 3, 5) : FV_SHAPE(4, 3), -2, 2), diagonal[which]);
}

#define tril_forward  triangle_forward
#define tril_backward triangle_backward
static fv_var *tril_sample(fv_sampler *s, int which)
{
    return triangle_sample(s, which, fv_tril);
}
FVI_OP(tril, "y[i, j] = x[i, j] where j <= i + diagonal, else 0", "", 4)

#define triu_forward  triangle_forward
#define triu_backward triangle_backward
static fv_var *triu_sample(fv_sampler *s, int which)
{
    return triangle_sample(s, which, fv_triu);
}
FVI_OP(triu, "y[i, j] = x[i, j] where j >= i + diagonal, else 0", "", 4)

/* ---- diagonal: y[.., i] = x[.., i, i + diagonal] ----------------------------------------------- */

static move diagonal_move(const fv_var *y)
{
    const int64_t diagonal = *(const int *)y->options;
    const fv_shape x = y->in[0]->value.shape;
    const size_t m = x.size[x.rank - 2], n = x.size[x.rank - 1];
    const size_t length = y->value.shape.size[x.rank - 2];
    move d = {.x_first = diagonal < 0 ? (ptrdiff_t)((size_t)-diagonal * n) : (ptrdiff_t)diagonal};
    move_axis(&d, length > 0 ? fvi_count(y) / length : 0, (ptrdiff_t)(m * n), (ptrdiff_t)length);
    move_axis(&d, length, (ptrdiff_t)n + 1, 1);
    return d;
}

static bool diagonal_forward(fv_tape *t, fv_var *y)
{
    const move m = diagonal_move(y);
    fvi_move(t, &m, y->in[0]->value.data, y->value.data);
    return true;
}

/* dx = dy on the diagonal */
static void diagonal_backward(fv_tape *t, fv_var *y)
{
    const move m = diagonal_move(y);
    fvi_move_back(t, &m, y->grad, fv_grad(t, y->in[0]));
}

static fv_var *diagonal_sample(fv_sampler *s, int which)
{
    return triangle_sample(s, which, fv_diagonal);
}
FVI_OP(diagonal, "y[i] = x[i, i + diagonal]", "", 4)

#if FVI_ONCE
static bool has_matrices(fv_tape *t, const char *op, const fv_var *x)
{
    if (!given(t, op, x))
        return false;
    if (x->value.shape.rank < 2)
        fv_refuse(t, op, "%s has no two last axes", fv_describe(t, x));
    return fv_tape_ok(t);
}

fv_var *fv_tril(fv_tape *t, fv_var *x, int diagonal)
{
    const triangle o = {diagonal, false};
    return has_matrices(t, "tril", x)
               ? fvi_record(t, FVI_OP_tril, x->value.shape, &o, sizeof o, 1, &x)
               : NULL;
}

fv_var *fv_triu(fv_tape *t, fv_var *x, int diagonal)
{
    const triangle o = {diagonal, true};
    return has_matrices(t, "triu", x)
               ? fvi_record(t, FVI_OP_triu, x->value.shape, &o, sizeof o, 1, &x)
               : NULL;
}

fv_var *fv_diagonal(fv_tape *t, fv_var *x, int diagonal)
{
    if (!has_matrices(t, "diagonal", x))
        return NULL;
    fv_shape shape = x->value.shape;
    const int64_t m = (int64_t)shape.size[shape.rank - 2], n = (int64_t)shape.size[shape.rank - 1];
    const int64_t down = m + (diagonal < 0 ? diagonal : 0),
                  across = n - (diagonal > 0 ? diagonal : 0),
                  length = down < across ? down : across;
    shape.rank--;
    shape.size[shape.rank - 1] = length > 0 ? (size_t)length : 0;
    return fvi_record(t, FVI_OP_diagonal, shape, &diagonal, sizeof diagonal, 1, &x);
}

fv_var *fv_one_hot(fv_tape *t, const int32_t *ids, size_t count, size_t classes)
{
    size_t numbers;
    if (!fv_tape_ok(t))
        return NULL;
    if (ids == NULL && count > 0)
        return fv_refuse(t, "one_hot", "no ids");
    if (!fvi_mul(count, classes, &numbers))
        return fv_refuse(t, "one_hot", "%zu ids of %zu classes: more numbers than there can be",
                         count, classes);
    for (size_t i = 0; i < count; i++)
        if (ids[i] >= 0 && (size_t)ids[i] >= classes)
            return fv_refuse(t, "one_hot", "id %d at %zu is outside %zu classes", (int)ids[i], i,
                             classes);
    fv_real *y = fv_tape_alloc(t, numbers, sizeof *y);
    for (size_t i = 0; y != NULL && i < count; i++)
        if (ids[i] >= 0)
            y[i * classes + (size_t)ids[i]] = 1;
    return y ? fv_constant(t, FV_SHAPE(count, classes), y) : NULL;
}
#endif
