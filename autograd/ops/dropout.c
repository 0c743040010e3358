/* Dropout: the same numbers are dropped in backward, drawn again instead of stored. */
#include "autograd/ops/ops.h"
#include "tensor/philox.h"

typedef struct {
    fv_rng rng;
    double p;
} dropout_options;

/* A run of at most FVI_PHILOX_BLOCK numbers: out (+)= bits >= threshold ? scale * x : 0 */
static inline void drop_run(size_t n, const uint32_t *restrict bits, uint32_t threshold,
                            fv_real scale, const fv_real *restrict x, fv_real *restrict out,
                            bool add)
{
    if (add)
        for (size_t i = 0; i < n; i++)
            out[i] += bits[i] >= threshold ? scale * x[i] : 0;
    else
        for (size_t i = 0; i < n; i++)
            out[i] = bits[i] >= threshold ? scale * x[i] : 0;
}

static void drop(const dropout_options *o, size_t n, const fv_real *x, fv_real *out, bool add)
{
    const uint32_t threshold = (uint32_t)(o->p * 0x1p32);
    const fv_real scale = (fv_real)(1 / (1 - o->p));
    uint32_t bits[FVI_PHILOX_BLOCK];
    size_t at = 0;
    for (; at + FVI_PHILOX_BLOCK <= n; at += FVI_PHILOX_BLOCK) {
        fvi_philox_block(o->rng, at / 4, bits);
        drop_run(FVI_PHILOX_BLOCK, bits, threshold, scale, x + at, out + at, add);
    }
    if (at < n) {
        fvi_philox_block(o->rng, at / 4, bits);
        drop_run(n - at, bits, threshold, scale, x + at, out + at, add);
    }
}

static bool dropout_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    drop(y->options, fvi_count(y), y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx = dy / (1 - p) where x was kept */
static void dropout_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        drop(y->options, fvi_count(y), y->grad, dx, true);
}

static fv_var *dropout_sample(fv_sampler *s, int which)
{
    return fv_dropout(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 17), -2, 2), which ? 0.1 : 0.5);
}
FVI_OP(dropout, "y = x / (1 - p) with probability 1 - p, else 0",
       "Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, 2014", 2)

#if FVI_ONCE
fv_var *fv_dropout(fv_tape *t, fv_var *x, double p)
{
    char text[FVI_NUMBER];
    if (!given(t, "dropout", x))
        return NULL;
    if (!(p >= 0 && p < 1))
        return fv_refuse(t, "dropout", "probability %s, expected 0 <= p < 1",
                         fvi_number(text, p, 6));
    if (t->mode != FV_TRAIN || p == 0)
        return x;
    const dropout_options options = {fv_tape_rng(t), p};
    return fvi_record(t, FVI_OP_dropout, x->value.shape, &options, sizeof options, 1, &x);
}
#endif
