/* Gated activations: an axis is cut in halves a and b, and one lets the other pass. */
#include "autograd/ops/activation.h"

/* Of n numbers of the halves a and b: forward writes out; backward, which also gets dy, adds to the halves
 * out and out_b of the gradient. */
#define GATED_LOOP                                                                                 \
    size_t n, const fv_real *restrict in_a, const fv_real *restrict in_b,                          \
        const fv_real *restrict in_dy, fv_real *restrict out, fv_real *restrict out_b
typedef void gated_loop(GATED_LOOP);

/* Runs a loop over the halves of x around the axis that the op keeps: forward into y, or backward into dx,
 * which is zeroed first when blank. */
static void run_halves(const fv_tape *t, fv_var *y, gated_loop *run, fv_real *dx, bool blank)
{
    const axis_view v = view_axis(y->value.shape, *(const int *)y->options);
    const size_t n = v.n * v.inner, outer = n ? v.outer : 0; /* numbers of a half that adjoin */
    const size_t pieces = (n + FVI_BLOCK - 1) / FVI_BLOCK;
    const int parts = parts_of(t, outer * pieces, 5 * (n < FVI_BLOCK ? n : FVI_BLOCK));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part mine = part_at(outer * pieces, parts, k);
        for (size_t i = mine.from; i < mine.to; i++) {
            const size_t o = i / pieces, from = i % pieces * FVI_BLOCK;
            const size_t at = o * n + from, at_a = at + o * n;
            const size_t count = n - from < FVI_BLOCK ? n - from : FVI_BLOCK;
            const fv_real *a = y->in[0]->value.data + at_a;
            if (blank) {
                memset(dx + at_a, 0, count * sizeof *dx);
                memset(dx + at_a + n, 0, count * sizeof *dx);
            }
            if (dx != NULL)
                run(count, a, a + n, y->grad + at, dx + at_a, dx + at_a + n);
            else
                run(count, a, a + n, NULL, y->value.data + at, NULL);
        }
    }
}

static fv_var *record_gated(fv_tape *t, fvi_op_id id, const char *name, fv_var *x, int axis)
{
    if (!given(t, name, x) || !known_axis(t, name, x, &axis))
        return NULL;
    fv_shape shape = x->value.shape;
    if (shape.size[axis] % 2 != 0)
        return fv_refuse(t, name, "axis %d of %s is odd, expected two halves", axis,
                         fv_describe(t, x));
    shape.size[axis] /= 2;
    return fvi_record(t, id, shape, &axis, sizeof axis, 1, &x);
}

enum { GATED_SAMPLES = 5 };
static fv_var *gated_sample(fv_sampler *s, fvi_op_id id, int which)
{
    const fv_shape shape[GATED_SAMPLES] = {FV_SHAPE(5, 8), FV_SHAPE(2), FV_SHAPE(4, 3, 2),
                                           FV_SHAPE(2, 6, 3), FV_SHAPE(3, 0)};
    static const int axis[GATED_SAMPLES] = {-1, 0, 0, 1, 1};
    return record_gated(fv_sampler_tape(s), id, "sample", fv_sample(s, shape[which], -3, 3),
                        axis[which]);
}

/* The op y = value of halves a and b, where da and db are gradients for that dy, and the public function. */
#define FVI_GATED(name, formula, paper, value, da, db)                                             \
    static void name##_values(GATED_LOOP)                                                          \
    {                                                                                              \
        (void)in_dy, (void)out_b;                                                                  \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real a = in_a[i], b = in_b[i];                                                \
            out[i] = value;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_gradients(GATED_LOOP)                                                       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const fv_real a = in_a[i], b = in_b[i], dy = in_dy[i];                                 \
            out[i] += da;                                                                          \
            out_b[i] += db;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static bool name##_forward(fv_tape *t, fv_var *y)                                              \
    {                                                                                              \
        run_halves(t, y, name##_values, NULL, false);                                              \
        return true;                                                                               \
    }                                                                                              \
    static void name##_backward(fv_tape *t, fv_var *y)                                             \
    {                                                                                              \
        bool blank;                                                                                \
        fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);                                         \
        if (dx != NULL)                                                                            \
            run_halves(t, y, name##_gradients, dx, blank);                                         \
    }                                                                                              \
    static fv_var *name##_sample(fv_sampler *s, int which)                                         \
    {                                                                                              \
        return gated_sample(s, FVI_OP_##name, which);                                              \
    }                                                                                              \
    FVI_OP(name, formula, paper, GATED_SAMPLES)                                                    \
    FVI_PUBLIC(fv_var *fv_##name(fv_tape *t, fv_var *x, int axis) {                                \
        return record_gated(t, FVI_OP_##name, #name, x, axis);                                     \
    })

/* With s = sigmoid(b): s' = s (1 - s) */
static inline fv_real sigmoid_slope(fv_real b)
{
    const fv_real s = fvi_sigmoid(b);
    return s * (1 - s);
}
FVI_GATED(glu, "y = a * sigmoid(b), x = [a | b]", "Dauphin et al., 2017, arXiv 1612.08083",
          a *fvi_sigmoid(b), dy *fvi_sigmoid(b), dy *a *sigmoid_slope(b))

FVI_GATED(swiglu, "y = a * sigmoid(a) * b, x = [a | b]", "Shazeer, 2020, arXiv 2002.05202",
          a *fvi_sigmoid(a) * b, dy *b *silu_slope(a), dy *a *fvi_sigmoid(a))

FVI_GATED(geglu, "y = gelu(a) * b, x = [a | b]", "Shazeer, 2020, arXiv 2002.05202",
          gelu_value(a) * b, dy *b *gelu_slope(a), dy *gelu_value(a))
