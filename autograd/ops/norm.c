/* Layer norm: each row to mean 0 and variance 1, then scaled and shifted. */
#include "autograd/ops/ops.h"
#include "tensor/math.h"

static const double EPS = 1e-5;

/* saved: mean and 1 / deviation of each row */
static bool layer_norm_forward(fv_tape *t, fv_var *y)
{
    size_t rows = fvi_rows(y), d = fvi_columns(y);
    const fv_real *restrict w = y->in[1]->value.data, *restrict b = y->in[2]->value.data;
    fv_real *saved = fvi_tape_take(t, 2 * rows, sizeof *saved);
    y->saved = saved;
    for (size_t r = 0; saved != NULL && r < rows; r++) {
        const fv_real *restrict x = y->in[0]->value.data + r * d;
        fv_real *restrict out = y->value.data + r * d;
        fv_real mean = lane_sum(d, x) / (fv_real)d;
        for (size_t i = 0; i < d; i++)
            out[i] = (x[i] - mean) * (x[i] - mean);
        fv_real scale = 1 / fvi_sqrt(lane_sum(d, out) / (fv_real)d + (fv_real)EPS);
        for (size_t i = 0; i < d; i++)
            out[i] = (x[i] - mean) * scale * w[i] + b[i];
        saved[2 * r] = mean;
        saved[2 * r + 1] = scale;
    }
    return saved != NULL;
}

/* with n = (x - mean) * scale and g = dy * w: dx = scale * (g - mean(g) - n * mean(g * n)),
 * dw = dy * n and db = dy, summed over rows */
static void layer_norm_backward(fv_tape *t, fv_var *y)
{
    size_t rows = fvi_rows(y), d = fvi_columns(y);
    const fv_real *restrict w = y->in[1]->value.data, *restrict saved = y->saved;
    fv_real *dx = fv_grad(t, y->in[0]), *dw = fv_grad(t, y->in[1]), *db = fv_grad(t, y->in[2]);
    fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *restrict n = fvi_tape_take(t, 3 * d, sizeof *n);
    for (size_t r = 0; n != NULL && r < rows; r++) {
        const fv_real *restrict x = y->in[0]->value.data + r * d, *restrict dy = y->grad + r * d;
        const fv_real mean = saved[2 * r], scale = saved[2 * r + 1];
        fv_real *restrict g = n + d, *restrict gn = n + 2 * d;
        for (size_t i = 0; i < d; i++)
            n[i] = (x[i] - mean) * scale;
        for (size_t i = 0; dw != NULL && i < d; i++)
            dw[i] += dy[i] * n[i];
        if (db != NULL)
            add_to(d, dy, db);
        if (dx == NULL)
            continue;
        for (size_t i = 0; i < d; i++) {
            g[i] = dy[i] * w[i];
            gn[i] = g[i] * n[i];
        }
        const fv_real mean_g = lane_sum(d, g) / (fv_real)d, mean_gn = lane_sum(d, gn) / (fv_real)d;
        fv_real *restrict out = dx + r * d;
        for (size_t i = 0; i < d; i++)
            out[i] += scale * (g[i] - mean_g - n[i] * mean_gn);
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *layer_norm_sample(fv_sampler *s, int which)
{
    size_t d = which ? 33 : 8;
    fv_var *x = fv_sample(s, FV_SHAPE(4, d), -2, 2), *w = fv_sample(s, FV_SHAPE(d), 0.5, 2);
    return fv_layer_norm(fv_sampler_tape(s), x, w, fv_sample(s, FV_SHAPE(d), -1, 1), NULL);
}
FVI_OP(layer_norm, "y = (x - mean) / sqrt(variance + 1e-5) * w + b",
       "Ba, Kiros, Hinton, 2016, arXiv 1607.06450", 2)

#if FVI_ONCE
fv_var *fv_layer_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_norm_opts *opts)
{
    if (opts != NULL)
        return fv_refuse(t, "layer_norm", "only without options");
    if (!given(t, "layer_norm", x) || !given(t, "layer_norm", weight) ||
        !given(t, "layer_norm", bias))
        return NULL;
    if (x->value.shape.rank < 1 || fvi_count(weight) != fvi_columns(x) ||
        fvi_count(bias) != fvi_columns(x))
        return fv_refuse(t, "layer_norm", "%s with %s and %s: widths differ", fv_describe(t, x),
                         fv_describe(t, weight), fv_describe(t, bias));
    return fvi_record(t, FVI_OP_layer_norm, x->value.shape, NULL, 0, 3,
                      (fv_var *[]){x, weight, bias});
}
#endif
