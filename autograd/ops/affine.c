/* Affine maps of the last axis, with relu folded in. */
#include "autograd/ops/rows.h"

typedef struct {
    bool relu;
} affine_options;

/* All places of the axes before the last; there may be some even where the last has size 0. */
static size_t rows_of(const fv_var *y)
{
    const fv_shape shape = y->value.shape;
    size_t rows = 1;
    for (int i = 0; i + 1 < shape.rank; i++)
        rows *= shape.size[i];
    return rows;
}

/* out = dz where the value is more than 0 (or NaN), else 0 */
static void pass(const fv_tape *t, size_t n, const fv_real *y, const fv_real *dz, fv_real *out)
{
    const int parts = parts_of(t, n, 3);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(n, parts, k);
        for (size_t i = p.from; i < p.to; i++)
            out[i] = fv_re(y[i]) <= 0 ? 0 : dz[i];
    }
}

/* y[rows, out] = act(x[rows, in] W[out, in]^T + b[out]) */
static bool affine_forward(fv_tape *t, fv_var *y)
{
    const affine_options *o = y->options;
    const fv_var *x = y->in[0], *w = y->in[1], *b = y->in[2];
    const size_t in = fvi_columns(x), out = fvi_columns(y);
    multiply(t, (fvi_product){.m = rows_of(y),
                              .n = out,
                              .k = in,
                              .a = x->value.data,
                              .a_row = in,
                              .a_col = 1,
                              .b = w->value.data,
                              .b_row = 1,
                              .b_col = in,
                              .c = y->value.data,
                              .c_row = out,
                              .bias = b ? b->value.data : NULL,
                              .activation = o->relu ? FVI_RELU : FVI_IDENTITY});
    return true;
}

/* with dz = dy where relu let it pass: dx = dz W, dW = dz^T x, db = dz summed over rows */
static void affine_backward(fv_tape *t, fv_var *y)
{
    const affine_options *o = y->options;
    fv_var *x = y->in[0], *w = y->in[1], *b = y->in[2];
    const size_t rows = rows_of(y), in = fvi_columns(x), out = fvi_columns(y);
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, b);
    fvi_mark mark = fvi_arena_mark(&t->arena);
    const fv_real *dz = y->grad;
    if (o->relu) {
        fv_real *passed = fvi_tape_take(t, rows * out, sizeof *passed);
        if (passed != NULL)
            pass(t, rows * out, y->value.data, y->grad, passed);
        dz = passed;
    }
    if (dz != NULL && dx != NULL)
        multiply(t, (fvi_product){.m = rows,
                                  .n = in,
                                  .k = out,
                                  .a = dz,
                                  .a_row = out,
                                  .a_col = 1,
                                  .b = w->value.data,
                                  .b_row = in,
                                  .b_col = 1,
                                  .c = dx,
                                  .c_row = in,
                                  .add = true});
    if (dz != NULL && dw != NULL)
        multiply(t, (fvi_product){.m = out,
                                  .n = in,
                                  .k = rows,
                                  .a = dz,
                                  .a_row = 1,
                                  .a_col = out,
                                  .b = x->value.data,
                                  .b_row = in,
                                  .b_col = 1,
                                  .c = dw,
                                  .c_row = in,
                                  .add = true});
    if (dz != NULL && db != NULL)
        add_each_row(t, rows, out, dz, db);
    fvi_arena_release(&t->arena, mark);
}

static fv_var *affine_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const struct {
        fv_shape x;
        size_t out;
        bool relu, no_bias;
    } cases[] = {
        {{2, {5, 7}}, 6, false, false},       {{2, {5, 7}}, 6, false, true},
        {{2, {5, 7}}, 6, true, false},        {{2, {1, 1}}, 1, false, false},
        {{4, {2, 1, 3, 4}}, 2, false, false}, {{1, {4}}, 3, false, false},
        {{3, {2, 2, 3}}, 4, true, true},
    };
    const fv_shape shape = cases[which].x;
    const size_t in = shape.size[shape.rank - 1], out = cases[which].out;
    fv_var *x = fv_sample(s, shape, -1, 1), *w = fv_sample(s, FV_SHAPE(out, in), -1, 1);
    fv_var *b = cases[which].no_bias ? NULL : fv_sample(s, FV_SHAPE(out), -1, 1);
    return cases[which].relu ? fv_affine_relu(t, x, w, b) : fv_affine(t, x, w, b);
}
FVI_OP(affine, "y = x W' + b, or max(x W' + b, 0)", "", 7)

#if FVI_ONCE
static fv_var *affine(fv_tape *t, const char *op, bool relu, fv_var *x, fv_var *weight,
                      fv_var *bias)
{
    if (!given(t, op, x) || !given(t, op, weight))
        return NULL;
    fv_shape shape = x->value.shape;
    const fv_shape w = weight->value.shape;
    if (shape.rank == 0)
        return fv_refuse(t, op, "input is %s, expected [.., in]", fv_describe(t, x));
    if (w.rank != 2 || w.size[1] != shape.size[shape.rank - 1])
        return fv_refuse(t, op, "%s with weight %s: inner sizes differ", fv_describe(t, x),
                         fv_describe(t, weight));
    if (bias != NULL && !fv_shape_equal(bias->value.shape, FV_SHAPE(w.size[0])))
        return fv_refuse(t, op, "weight %s with bias %s: outputs differ", fv_describe(t, weight),
                         fv_describe(t, bias));
    const affine_options options = {relu};
    shape.size[shape.rank - 1] = w.size[0];
    return fvi_record(t, FVI_OP_affine, shape, &options, sizeof options, 3,
                      (fv_var *[]){x, weight, bias});
}

fv_var *fv_affine(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias)
{
    return affine(t, "affine", false, x, weight, bias);
}

fv_var *fv_affine_relu(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias)
{
    return affine(t, "affine_relu", true, x, weight, bias);
}

#endif
