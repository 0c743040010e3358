/* Linear attention: phi(q) . phi(k) with phi = elu + 1 instead of e^(q . k), so that a state takes the place of all
 * earlier rows. A column of ones beside the values sums the weights, by which the result is divided.
 * Katharopoulos, Vyas, Pappas, Fleuret, 2020, arXiv 2006.16236. */
#include "autograd/internal.h"
#include "layers/layers.h"

#include <math.h>
#include <string.h>

fv_linear_heads fv_linear_heads_init(fv_scope scope, size_t d, size_t heads,
                                     const fv_linear_heads_opts *opts)
{
    const fv_linear_heads_opts none = {0}, *o = opts ? opts : &none;
    const fv_linear_opts linear = {.no_bias = o->no_bias};
    const fv_linear_heads failed = {0};
    fv_linear_heads layer = {.heads = heads, .kv_heads = o->kv_heads ? o->kv_heads : heads};
    if (heads == 0 || heads % layer.kv_heads != 0 || d % heads != 0) {
        fv_scope_refuse(scope, "%zu heads, %zu of keys, width %zu: they must divide each other",
                        heads, layer.kv_heads, d);
        return failed;
    }
    if (scope.params == NULL)
        return failed;
    layer.width = d / heads;
    const size_t rows = (heads + 2 * layer.kv_heads) * layer.width;
    const fv_init xavier = {FV_UNIFORM, d ? sqrt(6 / ((double)rows + (double)d)) : 0};
    layer.in_proj_weight = fv_param_new(scope, "in_proj_weight", FV_SHAPE(rows, d), xavier);
    if (!o->no_bias)
        layer.in_proj_bias =
            fv_param_new(scope, "in_proj_bias", FV_SHAPE(rows), (fv_init){FV_ZEROS, 0});
    if (layer.in_proj_bias != NULL)
        layer.in_proj_bias->no_decay = true;
    layer.out_proj = fv_linear_init(fv_under(scope, "out_proj"), d, d, &linear);
    return fv_params_error(scope.params)->status == FV_OK ? layer : failed;
}

/* elu(x) + 1 > 0. */
static fv_var *positive(fv_tape *t, fv_var *x)
{
    return fv_shift(t, fv_elu(t, x, 1), 1);
}

/* A one behind each head's value: [rows, heads * width] -> [rows, heads * (width + 1)]. */
static fv_var *with_ones(fv_tape *t, fv_var *v, size_t heads, size_t width)
{
    if (v == NULL)
        return NULL;
    const size_t rows = fvi_rows(v);
    fv_real *ones = fv_tape_alloc(t, rows * heads, sizeof *ones);
    if (ones == NULL)
        return NULL;
    for (size_t i = 0; i < rows * heads; i++)
        ones[i] = 1;
    fv_var *side = fv_constant(t, FV_SHAPE(rows, heads, 1), ones);
    v = fv_reshape(t, v, FV_SHAPE(rows, heads, width));
    v = fv_concat(t, 2, (fv_var *[]){v, side}, 2);
    return fv_reshape(t, v, FV_SHAPE(rows, heads * (width + 1)));
}

/* after: gets the states at the end; NULL: not wanted. */
static fv_var *run(fv_tape *t, const fv_linear_heads *l, fv_var *x, const fv_segments *segments,
                   fv_var *state, fv_tensor *after)
{
    if (l->heads == 0)
        return fv_use(t, NULL); /* half a layer must not run */
    const size_t q = l->heads * l->width, k = l->kv_heads * l->width, sizes[] = {q, k, k};
    const fv_linear_attention_opts opts = {
        .heads = l->heads, .kv_heads = l->kv_heads, .scale = 1, .state = state, .after = after};
    fv_var *part[3], *share[2];
    fv_var *bias = l->in_proj_bias ? fv_use(t, l->in_proj_bias) : NULL;
    fv_var *qkv = fv_affine(t, x, fv_use(t, l->in_proj_weight), bias);
    if (!fv_split(t, qkv, 1, 3, sizes, part))
        return NULL;
    fv_var *y = fv_linear_attention(t, positive(t, part[0]), positive(t, part[1]),
                                    with_ones(t, part[2], l->kv_heads, l->width), segments, &opts);
    if (y == NULL)
        return NULL;
    const size_t rows = fvi_rows(y), cut[] = {l->width, 1};
    y = fv_reshape(t, y, FV_SHAPE(rows, l->heads, l->width + 1));
    if (!fv_split(t, y, 2, 2, cut, share))
        return NULL;
    y = fv_reshape(t, fv_div(t, share[0], share[1]), FV_SHAPE(rows, q));
    return fv_linear_forward(t, &l->out_proj, y);
}

fv_var *fv_linear_heads_forward(fv_tape *t, const fv_linear_heads *layer, fv_var *x,
                                const fv_segments *segments)
{
    return run(t, layer, x, segments, NULL, NULL);
}

size_t fv_linear_heads_numbers(const fv_linear_heads *layer, size_t samples)
{
    size_t numbers;
    return fvi_mul(layer->kv_heads * layer->width, layer->width + 1, &numbers) &&
                   fvi_mul(numbers, samples, &numbers)
               ? numbers
               : 0;
}

fv_var *fv_linear_heads_step(fv_tape *t, const fv_linear_heads *layer, fv_var *x,
                             const fv_segments *segments, fv_real *state)
{
    const size_t samples = segments ? segments->count : 1;
    fv_tensor after = {FV_SCALAR, NULL};
    if (fv_tape_mode(t) != FV_EVAL)
        return fv_refuse(t, "linear_heads_step", "a state has no gradients: in FV_EVAL only");
    const fv_shape shape = FV_SHAPE(samples, layer->kv_heads, layer->width, layer->width + 1);
    fv_var *before = layer->heads > 0 ? fv_constant(t, shape, state) : NULL;
    fv_var *y = run(t, layer, x, segments, before, &after);
    if (y != NULL)
        memcpy(state, after.data, fv_shape_count(shape) * sizeof *state);
    return y;
}
