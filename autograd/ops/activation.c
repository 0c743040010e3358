/* Activations, elementwise. */
#include "autograd/ops/ops.h"
#include "tensor/math.h"

static bool relu_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *restrict x = y->in[0]->value.data;
    fv_real *restrict out = y->value.data;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        out[i] = fv_re(x[i]) <= 0 ? 0 : x[i]; /* lets a NaN pass */
    return true;
}

/* dx = dy except where x <= 0 */
static void relu_backward(fv_tape *t, fv_var *y)
{
    const fv_real *restrict x = y->in[0]->value.data, *restrict dy = y->grad;
    fv_real *restrict dx = fv_grad(t, y->in[0]);
    for (size_t i = 0, n = dx ? fvi_count(y) : 0; i < n; i++)
        dx[i] += fv_re(x[i]) <= 0 ? 0 : dy[i];
}

static fv_var *relu_sample(fv_sampler *s, int which)
{
    return fv_relu(fv_sampler_tape(s), fv_sample(s, which ? FV_SHAPE(1) : FV_SHAPE(5, 9), -2, 2));
}
FVI_OP(relu, "y = max(x, 0)", "", 2)

/* x times the chance that a normal number is below x. */
static bool gelu_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *restrict x = y->in[0]->value.data;
    fv_real *restrict out = y->value.data, density;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        out[i] = x[i] * fvi_normal(x[i], &density);
    return true;
}

/* dx = dy * (cdf(x) + x * density(x)) */
static void gelu_backward(fv_tape *t, fv_var *y)
{
    const fv_real *restrict x = y->in[0]->value.data, *restrict dy = y->grad;
    fv_real *restrict dx = fv_grad(t, y->in[0]);
    for (size_t i = 0, n = dx ? fvi_count(y) : 0; i < n; i++) {
        fv_real density, below = fvi_normal(x[i], &density);
        dx[i] += dy[i] * (below + x[i] * density);
    }
}

static fv_var *gelu_sample(fv_sampler *s, int which)
{
    return fv_gelu(fv_sampler_tape(s),
                   fv_sample(s, FV_SHAPE(4, 9), which ? -6 : -2, which ? 6 : 2));
}
FVI_OP(gelu, "y = x * (1 + erf(x / sqrt(2))) / 2", "Hendrycks and Gimpel, 2016, arXiv 1606.08415",
       2)

static bool tanh_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *restrict x = y->in[0]->value.data;
    fv_real *restrict out = y->value.data;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        out[i] = fvi_tanh(x[i]);
    return true;
}

/* dx = dy * (1 - y^2) */
static void tanh_backward(fv_tape *t, fv_var *y)
{
    const fv_real *restrict out = y->value.data, *restrict dy = y->grad;
    fv_real *restrict dx = fv_grad(t, y->in[0]);
    for (size_t i = 0, n = dx ? fvi_count(y) : 0; i < n; i++)
        dx[i] += dy[i] * (1 - out[i] * out[i]);
}

static fv_var *tanh_sample(fv_sampler *s, int which)
{
    return fv_tanh(fv_sampler_tape(s),
                   fv_sample(s, FV_SHAPE(4, 9), which ? -6 : -1, which ? 6 : 1));
}
FVI_OP(tanh, "y = tanh(x)", "", 2)

#if FVI_ONCE
fv_var *fv_relu(fv_tape *t, fv_var *x)
{
    return given(t, "relu", x) ? fvi_record(t, FVI_OP_relu, x->value.shape, NULL, 0, 1, &x) : NULL;
}

fv_var *fv_gelu(fv_tape *t, fv_var *x)
{
    return given(t, "gelu", x) ? fvi_record(t, FVI_OP_gelu, x->value.shape, NULL, 0, 1, &x) : NULL;
}

fv_var *fv_tanh(fv_tape *t, fv_var *x)
{
    return given(t, "tanh", x) ? fvi_record(t, FVI_OP_tanh, x->value.shape, NULL, 0, 1, &x) : NULL;
}
#endif
