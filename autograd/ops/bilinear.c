/* Bilinear maps: a product with the pairs a[i] b[j] of a row side by side, a panel of rows at a time.
 *
 * Neither all pairs [rows, in_a in_b] nor all halves [rows, out, in_b] are ever in memory: a panel
 * holds ROWS rows of as many whole i as make about PAIRS pairs, which the second cache keeps. */
#include "autograd/ops/rows.h"

enum { ROWS = 128, PAIRS = 1024 };

typedef struct {
    size_t rows, out, in_a, in_b;
    size_t step; /* of i at a time */
} sizes;

static sizes sizes_of(const fv_var *y)
{
    const fv_shape w = y->in[2]->value.shape;
    sizes s = {.rows = 1, .out = w.size[0], .in_a = w.size[1], .in_b = w.size[2]};
    for (int i = 0; i + 1 < y->value.shape.rank; i++)
        s.rows *= y->value.shape.size[i];
    s.step = s.in_b < PAIRS && s.in_b > 0 ? PAIRS / s.in_b : 1;
    s.step = s.step < s.in_a ? s.step : s.in_a;
    return s;
}

/* Rows first .. first + rows - 1, and i .. i + count - 1. */
typedef struct {
    size_t first, rows, i, count;
} panel;

/* The panel after p, rows outermost; the first one after a panel of nothing. */
static bool next_panel(const sizes *s, panel *p)
{
    p->i += p->count;
    if (p->rows == 0 || p->i >= s->in_a) {
        p->first += p->rows;
        p->i = 0;
    }
    p->rows = s->rows - p->first < ROWS ? s->rows - p->first : ROWS;
    p->count = s->in_a - p->i < s->step ? s->in_a - p->i : s->step;
    return p->rows > 0 && p->count > 0;
}

/* pairs[r, i, j] = a[r, i] b[r, j] */
static void make_pairs(const fv_tape *t, const sizes *s, const panel *p, const fv_real *a,
                       const fv_real *b, fv_real *pairs)
{
    const size_t width = p->count * s->in_b;
    const int parts = parts_of(t, p->rows, width);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part of = part_at(p->rows, parts, k);
        for (size_t r = of.from; r < of.to; r++)
            for (size_t i = 0; i < p->count; i++) {
                const fv_real factor = a[(p->first + r) * s->in_a + p->i + i];
                const fv_real *restrict from = b + (p->first + r) * s->in_b;
                fv_real *restrict to = pairs + r * width + i * s->in_b;
                for (size_t j = 0; j < s->in_b; j++)
                    to[j] = factor * from[j];
            }
    }
}

/* y[r, o] = pairs[r, (i, j)] W[o, (i, j)]' + bias[o] */
static bool bilinear_forward(fv_tape *t, fv_var *y)
{
    const sizes s = sizes_of(y);
    const fv_real *bias = y->in[3] == NULL ? NULL : y->in[3]->value.data;
    if (s.in_a == 0) { /* no panels, only the bias */
        multiply(t, (fvi_product){
                        .m = s.rows, .n = s.out, .c = y->value.data, .c_row = s.out, .bias = bias});
        return fv_tape_ok(t);
    }
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *pairs = fvi_tape_take(t, ROWS * s.step * s.in_b, sizeof *pairs);
    panel p = {0};
    while (pairs != NULL && next_panel(&s, &p)) {
        make_pairs(t, &s, &p, y->in[0]->value.data, y->in[1]->value.data, pairs);
        multiply(t, (fvi_product){.m = p.rows,
                                  .n = s.out,
                                  .k = p.count * s.in_b,
                                  .a = pairs,
                                  .a_row = p.count * s.in_b,
                                  .a_col = 1,
                                  .b = y->in[2]->value.data + p.i * s.in_b,
                                  .b_row = 1,
                                  .b_col = s.in_a * s.in_b,
                                  .c = y->value.data + p.first * s.out,
                                  .c_row = s.out,
                                  .bias = p.i == 0 ? bias : NULL,
                                  .add = p.i > 0});
    }
    fvi_arena_release(&t->arena, mark);
    return fv_tape_ok(t);
}

/* From the gradient of the pairs: da[r, i] = sum over j of dpairs b[r, j], db[r, j] = sum over i of dpairs
 * a[r, i]. */
static void spread_pairs(const fv_tape *t, const sizes *s, const panel *p, const fv_real *dpairs,
                         const fv_real *a, fv_real *da, const fv_real *b, fv_real *db)
{
    const size_t width = p->count * s->in_b;
    const int parts = parts_of(t, p->rows, 2 * width);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part of = part_at(p->rows, parts, k);
        for (size_t r = of.from; r < of.to; r++)
            for (size_t i = 0; i < p->count; i++) {
                const size_t at_a = (p->first + r) * s->in_a + p->i + i;
                const size_t at_b = (p->first + r) * s->in_b;
                const fv_real *restrict from = dpairs + r * width + i * s->in_b;
                if (da != NULL)
                    da[at_a] += lane_dot(s->in_b, from, b + at_b);
                for (size_t j = 0; db != NULL && j < s->in_b; j++)
                    db[at_b + j] = fvi_fma(a[at_a], from[j], db[at_b + j]);
            }
    }
}

/* dW = dy' pairs, dpairs = dy W, da = dpairs b, db = dpairs' a, dbias = dy summed over rows */
static void bilinear_backward(fv_tape *t, fv_var *y)
{
    const sizes s = sizes_of(y);
    const fv_real *a = y->in[0]->value.data, *b = y->in[1]->value.data, *w = y->in[2]->value.data;
    fv_real *da = fv_grad(t, y->in[0]), *db = fv_grad(t, y->in[1]), *dw = fv_grad(t, y->in[2]);
    fv_real *dbias = fv_grad(t, y->in[3]);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *pairs = fvi_tape_take(t, ROWS * s.step * s.in_b, sizeof *pairs);
    panel p = {0};
    while (pairs != NULL && next_panel(&s, &p)) {
        const size_t width = p.count * s.in_b;
        const fv_real *dy = y->grad + p.first * s.out;
        if (dw != NULL) {
            make_pairs(t, &s, &p, a, b, pairs);
            multiply(t, (fvi_product){.m = s.out,
                                      .n = width,
                                      .k = p.rows,
                                      .a = dy,
                                      .a_row = 1,
                                      .a_col = s.out,
                                      .b = pairs,
                                      .b_row = width,
                                      .b_col = 1,
                                      .c = dw + p.i * s.in_b,
                                      .c_row = s.in_a * s.in_b,
                                      .add = true});
        }
        if (da == NULL && db == NULL)
            continue;
        multiply(t, (fvi_product){.m = p.rows,
                                  .n = width,
                                  .k = s.out,
                                  .a = dy,
                                  .a_row = s.out,
                                  .a_col = 1,
                                  .b = w + p.i * s.in_b,
                                  .b_row = s.in_a * s.in_b,
                                  .b_col = 1,
                                  .c = pairs,
                                  .c_row = width});
        spread_pairs(t, &s, &p, pairs, a, da, b, db);
    }
    if (dbias != NULL)
        add_each_row(t, s.rows, s.out, y->grad, dbias);
    fvi_arena_release(&t->arena, mark);
}

static fv_var *bilinear_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const size_t in_a = which == 3 ? 1 : 3, in_b = which == 2 ? in_a : which == 3 ? 1 : 4;
    const size_t out = which == 3 ? 1 : 2;
    fv_var *a = fv_sample(s, which == 1 ? FV_SHAPE(2, 1, in_a) : FV_SHAPE(4, in_a), -1, 1), *b = a;
    if (which != 2) /* else the same input twice */
        b = fv_sample(s, which == 1 ? FV_SHAPE(2, 1, in_b) : FV_SHAPE(4, in_b), -1, 1);
    fv_var *w = fv_sample(s, FV_SHAPE(out, in_a, in_b), -1, 1);
    return fv_bilinear(t, a, b, w, which == 1 ? NULL : fv_sample(s, FV_SHAPE(out), -1, 1));
}
FVI_OP(bilinear, "y[o] = a W[o] b' + bias[o]", "", 4)

#if FVI_ONCE
fv_var *fv_bilinear(fv_tape *t, fv_var *a, fv_var *b, fv_var *weight, fv_var *bias)
{
    const char *op = "bilinear";
    if (!given(t, op, a) || !given(t, op, b) || !given(t, op, weight))
        return NULL;
    fv_shape shape = a->value.shape;
    const fv_shape other = b->value.shape, w = weight->value.shape;
    const int last = shape.rank - 1;
    bool same = last >= 0 && other.rank == shape.rank;
    for (int i = 0; same && i < last; i++)
        same = shape.size[i] == other.size[i];
    if (!same)
        return fv_refuse(t, op, "%s with %s: expected [.., in_a] and [.., in_b]", fv_describe(t, a),
                         fv_describe(t, b));
    if (w.rank != 3 || w.size[1] != shape.size[last] || w.size[2] != other.size[last])
        return fv_refuse(t, op, "%s and %s with weight %s, expected [out, %zu, %zu]",
                         fv_describe(t, a), fv_describe(t, b), fv_describe(t, weight),
                         shape.size[last], other.size[last]);
    if (bias != NULL && !fv_shape_equal(bias->value.shape, FV_SHAPE(w.size[0])))
        return fv_refuse(t, op, "weight %s with bias %s: outputs differ", fv_describe(t, weight),
                         fv_describe(t, bias));
    shape.size[last] = w.size[0];
    return fvi_record(t, FVI_OP_bilinear, shape, NULL, 0, 4, (fv_var *[]){a, b, weight, bias});
}
#endif
