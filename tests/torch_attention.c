/* Calls of attention on [samples, heads, time, d], for the PyTorch fixtures. */
#include <math.h>

#include "tests/torch_ops.h"

/* [samples, heads, time, d] -> rows [samples * time, heads * d] */
static fv_var *as_rows(const fixture *f, fv_var *x)
{
    const size_t *size = x->value.shape.size;
    return fv_reshape(f->t, fv_permute(f->t, x, (int[]){0, 2, 1, 3}),
                      FV_SHAPE(size[0] * size[2], size[1] * size[3]));
}

static const fv_segments *even(const fixture *f, size_t samples, size_t length)
{
    fv_segments *s = fv_tape_alloc(f->t, 1, sizeof *s);
    size_t *at = fv_tape_alloc(f->t, samples + 1, sizeof *at);
    for (size_t i = 0; i <= samples; i++)
        at[i] = i * length;
    *s = (fv_segments){samples, at};
    return s;
}

/* What broadcasts to [samples, heads, queries, keys] as attention's bias, [heads or 1, pairs]. */
static fv_var *as_bias(const fixture *f, fv_var *x, size_t samples)
{
    fv_shape own = x->value.shape, four = {.rank = 4, .size = {1, 1, 1, 1}};
    for (int i = 0; i < own.rank; i++)
        four.size[4 - own.rank + i] = own.size[i];
    const size_t heads = four.size[1], pairs = samples * four.size[2] * four.size[3];
    x = fv_reshape(f->t, x, four);
    four.size[0] = samples;
    x = fv_permute(f->t, fv_expand(f->t, x, four), (int[]){1, 0, 2, 3});
    return fv_reshape(f->t, x, FV_SHAPE(heads, pairs));
}

/* A boolean mask as a bias of 0 and -inf, */
static fv_var *as_infinities(const fixture *f, fv_shape shape, const int32_t *visible)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(f->t, count, sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = visible[i] ? 0 : (fv_real)-INFINITY;
    return fv_constant(f->t, shape, data);
}

/* or, where it is the same for all heads, as the bytes of all samples. */
static const unsigned char *as_bytes(const fixture *f, fv_shape shape, const int32_t *visible,
                                     size_t samples)
{
    const size_t each = shape.size[shape.rank - 1] * shape.size[shape.rank - 2];
    unsigned char *bytes = fv_tape_alloc(f->t, samples * each, 1);
    for (size_t i = 0; i < samples * each; i++)
        bytes[i] = (unsigned char)visible[i % fv_shape_count(shape)];
    return bytes;
}

static fv_var *sdpa(fixture *f)
{
    const size_t *q = f->x[0]->value.shape.size, *k = f->x[1]->value.shape.size;
    const size_t samples = q[0], vd = f->x[2]->value.shape.size[3];
    fv_mask *mask = fv_tape_alloc(f->t, 1, sizeof *mask);
    fv_attention_opts opts = {.heads = q[1], .kv_heads = k[1], .scale = option_number(f, "scale")};
    *mask = fv_mask_segments(even(f, samples, q[2]), even(f, samples, k[2]));
    mask->causal = option_int(f, "causal");
    if (option_is(f, "visible")) {
        const fv_shape shape = option_shape(f, "visible_shape");
        const int32_t *visible = option_ids(f, "visible");
        if (shape.rank == 3 && shape.size[0] > 1)
            opts.bias = as_bias(f, as_infinities(f, shape, visible), samples);
        else
            mask->visible = as_bytes(f, shape, visible, samples);
    }
    if (f->inputs > 3)
        opts.bias = as_bias(f, f->x[3], samples);
    fv_var *y = fv_attention(f->t, as_rows(f, f->x[0]), as_rows(f, f->x[1]), as_rows(f, f->x[2]),
                             mask, &opts);
    y = fv_reshape(f->t, y, FV_SHAPE(samples, q[2], q[1], vd));
    return fv_permute(f->t, y, (int[]){0, 2, 1, 3});
}

const torch_call torch_attention_calls[] = {
    {"sdpa", .call = sdpa},
    {0},
};
