/* Matrix products: affine maps (with relu folded in) and matmul. */
#include "autograd/ops/ops.h"

#include <string.h>

typedef struct {
    bool relu;
} affine_options;

/* y[rows, out] = act(x[rows, in] W[out, in]^T + b[out]) */
static bool affine_forward(fv_tape *t, fv_var *y)
{
    const affine_options *o = y->options;
    const fv_var *x = y->in[0], *w = y->in[1], *b = y->in[2];
    size_t in = fvi_columns(x), out = fvi_columns(y);
    multiply(t, (fvi_product){.m = fvi_rows(x),
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
    size_t rows = fvi_rows(x), in = fvi_columns(x), out = fvi_columns(y);
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, b);
    fvi_mark mark = fvi_arena_mark(&t->arena);
    const fv_real *restrict dz = y->grad;
    if (o->relu) {
        const fv_real *restrict kept = y->value.data;
        fv_real *restrict passed = fvi_tape_take(t, rows * out, sizeof *passed);
        for (size_t i = 0, n = passed ? rows * out : 0; i < n; i++)
            passed[i] = fv_re(kept[i]) <= 0 ? 0 : dz[i];
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
    for (size_t r = 0; dz != NULL && db != NULL && r < rows; r++)
        add_to(out, dz + r * out, db);
    fvi_arena_release(&t->arena, mark);
}

static fv_var *affine_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    size_t rows = which == 3 ? 1 : 5, in = which == 3 ? 1 : 7, out = which == 3 ? 1 : 6;
    fv_var *x = fv_sample(s, FV_SHAPE(rows, in), -1, 1),
           *w = fv_sample(s, FV_SHAPE(out, in), -1, 1);
    fv_var *b = which == 1 ? NULL : fv_sample(s, FV_SHAPE(out), -1, 1);
    return which == 2 ? fv_affine_relu(t, x, w, b) : fv_affine(t, x, w, b);
}
FVI_OP(affine, "y = x W' + b, or max(x W' + b, 0)", "", 4)

/* y[m, n] = a[m, k] b[k, n] */
static bool matmul_forward(fv_tape *t, fv_var *y)
{
    const fv_var *a = y->in[0], *b = y->in[1];
    size_t k = fvi_columns(a), n = fvi_columns(b);
    multiply(t, (fvi_product){.m = fvi_rows(a),
                              .n = n,
                              .k = k,
                              .a = a->value.data,
                              .a_row = k,
                              .a_col = 1,
                              .b = b->value.data,
                              .b_row = n,
                              .b_col = 1,
                              .c = y->value.data,
                              .c_row = n});
    return true;
}

/* da = dy b', db = a' dy */
static void matmul_backward(fv_tape *t, fv_var *y)
{
    fv_var *a = y->in[0], *b = y->in[1];
    size_t m = fvi_rows(a), k = fvi_columns(a), n = fvi_columns(b);
    fv_real *da = fv_grad(t, a), *db = fv_grad(t, b);
    if (da != NULL)
        multiply(t, (fvi_product){.m = m,
                                  .n = k,
                                  .k = n,
                                  .a = y->grad,
                                  .a_row = n,
                                  .a_col = 1,
                                  .b = b->value.data,
                                  .b_row = 1,
                                  .b_col = n,
                                  .c = da,
                                  .c_row = k,
                                  .add = true});
    if (db != NULL)
        multiply(t, (fvi_product){.m = k,
                                  .n = n,
                                  .k = m,
                                  .a = a->value.data,
                                  .a_row = 1,
                                  .a_col = k,
                                  .b = y->grad,
                                  .b_row = n,
                                  .b_col = 1,
                                  .c = db,
                                  .c_row = n,
                                  .add = true});
}

static fv_var *matmul_sample(fv_sampler *s, int which)
{
    fv_var *a = fv_sample(s, which ? FV_SHAPE(6, 6) : FV_SHAPE(4, 6), -1, 1);
    return fv_matmul(fv_sampler_tape(s), a, which ? a : fv_sample(s, FV_SHAPE(6, 3), -1, 1), NULL);
}
FVI_OP(matmul, "y = a b", "", 2)

#if FVI_ONCE
static fv_var *affine(fv_tape *t, const char *op, bool relu, fv_var *x, fv_var *weight,
                      fv_var *bias)
{
    if (!given(t, op, x) || !given(t, op, weight) || !fvi_is_matrix(t, op, "input", x))
        return NULL;
    const fv_shape w = weight->value.shape;
    if (w.rank != 2 || w.size[1] != fvi_columns(x))
        return fv_refuse(t, op, "%s with weight %s: inner sizes differ", fv_describe(t, x),
                         fv_describe(t, weight));
    if (bias != NULL && fvi_count(bias) != w.size[0])
        return fv_refuse(t, op, "weight %s with bias %s: outputs differ", fv_describe(t, weight),
                         fv_describe(t, bias));
    const affine_options options = {relu};
    return fvi_record(t, FVI_OP_affine, FV_SHAPE(fvi_rows(x), w.size[0]), &options, sizeof options,
                      3, (fv_var *[]){x, weight, bias});
}

fv_var *fv_affine(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias)
{
    return affine(t, "affine", false, x, weight, bias);
}

fv_var *fv_affine_relu(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias)
{
    return affine(t, "affine_relu", true, x, weight, bias);
}

fv_var *fv_matmul(fv_tape *t, fv_var *a, fv_var *b, const fv_matmul_opts *opts)
{
    if (opts != NULL)
        return fv_refuse(t, "matmul", "only without options");
    if (!given(t, "matmul", a) || !given(t, "matmul", b) || !fvi_is_matrix(t, "matmul", "a", a) ||
        !fvi_is_matrix(t, "matmul", "b", b))
        return NULL;
    if (fvi_columns(a) != fvi_rows(b))
        return fv_refuse(t, "matmul", "%s with %s: inner sizes differ", fv_describe(t, a),
                         fv_describe(t, b));
    return fvi_record(t, FVI_OP_matmul, FV_SHAPE(fvi_rows(a), fvi_columns(b)), NULL, 0, 2,
                      (fv_var *[]){a, b});
}
#endif
