/* Multi-head attention whose heads have matrices of their own behind the shared maps to q, k and v, and its
 * conversion from and into split channels: W^h (W x + b) = (W^h W) x + W^h b. */
#include "layers/multihead.h"

#include <math.h>

/* [heads, head_width, d]; each head starts like a matrix of its own. */
static fv_param *matrices(fv_scope scope, const char *name, const fv_headwise *layer, size_t d)
{
    const fv_init xavier = {FV_UNIFORM, sqrt(6 / ((double)layer->head_width + (double)d))};
    return fv_param_new(scope, name, FV_SHAPE(layer->heads, layer->head_width, d), xavier);
}

fv_headwise fv_headwise_init(fv_scope scope, size_t d, size_t heads, const fv_headwise_opts *opts)
{
    const fv_headwise_opts none = {0}, *o = opts ? opts : &none;
    const fv_linear_opts linear = {.no_bias = o->no_bias};
    const fv_headwise failed = {0};
    fv_headwise layer = {.heads = heads, .head_width = o->head_width, .dropout = o->dropout};
    size_t all;
    if (heads == 0 || (o->head_width == 0 && d % heads != 0)) {
        fv_scope_refuse(scope, "%zu heads do not divide the width %zu", heads, d);
        return failed;
    }
    if (layer.head_width == 0)
        layer.head_width = d / heads;
    if (!fvi_mul(heads, layer.head_width, &all) || scope.params == NULL)
        return failed;
    layer.query = fv_linear_init(fv_under(scope, "q_proj"), d, d, &linear);
    layer.key = fv_linear_init(fv_under(scope, "k_proj"), d, d, &linear);
    layer.value = fv_linear_init(fv_under(scope, "v_proj"), d, d, &linear);
    layer.query_heads = matrices(scope, "q_heads", &layer, d);
    layer.key_heads = matrices(scope, "k_heads", &layer, d);
    layer.value_heads = matrices(scope, "v_heads", &layer, d);
    layer.out_proj = fv_linear_init(fv_under(scope, "out_proj"), all, d, &linear);
    return fv_params_error(scope.params)->status == FV_OK ? layer : failed;
}

/* [rows, d] -> [rows, heads * head_width]: all heads' matrices in one product. */
static fv_var *mapped(fv_tape *t, const fv_linear *shared, const fv_param *heads, fv_var *x)
{
    const size_t *size = heads->value.shape.size;
    fv_var *matrix = fv_reshape(t, fv_use(t, heads), FV_SHAPE(size[0] * size[1], size[2]));
    return fv_affine(t, fv_linear_forward(t, shared, x), matrix, NULL);
}

fv_var *fv_headwise_forward(fv_tape *t, const fv_headwise *layer, fv_var *x, const fv_mask *mask)
{
    if (layer->heads == 0)
        return fv_use(t, NULL); /* half a layer must not run */
    const fv_attention_opts opts = {.heads = layer->heads, .dropout = layer->dropout};
    fv_var *q = mapped(t, &layer->query, layer->query_heads, x);
    fv_var *k = mapped(t, &layer->key, layer->key_heads, x);
    fv_var *v = mapped(t, &layer->value, layer->value_heads, x);
    return fv_linear_forward(t, &layer->out_proj, fv_attention(t, q, k, v, mask, &opts));
}

/* ---- conversion ------------------------------------------------------------------------------------------ */

/* Whether both layers have the same heads and biases; says what differs otherwise. */
static bool alike(const fv_headwise *a, const fv_multihead *b, fv_error *error)
{
    const fv_multihead_opts *o = &b->how;
    if (a->heads == 0 || a->heads != b->heads || a->heads != o->kv_heads ||
        a->head_width != o->key_width || a->head_width != o->value_width)
        return fv_fail(error, FV_USAGE,
                       "heads: %zu of width %zu, the other has %zu and %zu of widths %zu and %zu",
                       a->heads, a->head_width, b->heads, o->kv_heads, o->key_width,
                       o->value_width);
    if (b->in_proj_weight == NULL || o->no_values || b->out_proj.weight == NULL ||
        !fv_shape_equal(a->out_proj.weight->value.shape, b->out_proj.weight->value.shape) ||
        a->query.weight->value.shape.size[1] != b->in_proj_weight->value.shape.size[1])
        return fv_fail(error, FV_USAGE, "heads: the two layers map rows of other widths");
    if ((a->query.bias == NULL) != (b->in_proj_bias == NULL))
        return fv_fail(error, FV_USAGE, "heads: only one of the two layers has biases");
    if (fvi_extra_keys(b) > 0 || o->score != FV_SCORE_DOT ||
        o->normalizer != FV_NORMALIZE_SOFTMAX || o->scale != 0 || o->softcap != 0 || o->left != 0 ||
        o->right != 0 || b->relative || b->buckets || b->relative_keys || b->slopes || o->rotary)
        return fv_fail(error, FV_USAGE, "heads: a layer of more than scaled dots and softmax");
    return true;
}

static void copy(const fv_param *from, const fv_param *into)
{
    for (size_t i = 0; from != NULL && i < fv_shape_count(from->value.shape); i++)
        into->value.data[i] = from->value.data[i];
}

bool fv_headwise_fold(const fv_headwise *from, const fv_multihead *into, fv_error *error)
{
    if (!alike(from, into, error))
        return false;
    const fv_linear *shared[3] = {&from->query, &from->key, &from->value};
    const fv_param *heads[3] = {from->query_heads, from->key_heads, from->value_heads};
    const size_t rows = from->heads * from->head_width, d = shared[0]->weight->value.shape.size[0],
                 in = shared[0]->weight->value.shape.size[1];
    for (size_t r = 0; r < 3 * rows; r++) {
        const fv_linear *w = shared[r / rows];
        const fv_real *own = heads[r / rows]->value.data + r % rows * d;
        for (size_t c = 0; c < in; c++) {
            fvi_wide sum = 0;
            for (size_t i = 0; i < d; i++)
                sum += (fvi_wide)own[i] * (fvi_wide)w->weight->value.data[i * in + c];
            into->in_proj_weight->value.data[r * in + c] = (fv_real)sum;
        }
        fvi_wide bias = 0;
        for (size_t i = 0; w->bias != NULL && i < d; i++)
            bias += (fvi_wide)own[i] * (fvi_wide)w->bias->value.data[i];
        if (w->bias != NULL)
            into->in_proj_bias->value.data[r] = (fv_real)bias;
    }
    copy(from->out_proj.weight, into->out_proj.weight);
    copy(from->out_proj.bias, into->out_proj.bias);
    return true;
}

bool fv_headwise_unfold(const fv_multihead *from, const fv_headwise *into, fv_error *error)
{
    if (!alike(into, from, error))
        return false;
    const fv_linear *shared[3] = {&into->query, &into->key, &into->value};
    const fv_param *heads[3] = {into->query_heads, into->key_heads, into->value_heads};
    const size_t rows = into->heads * into->head_width, d = shared[0]->weight->value.shape.size[0],
                 in = shared[0]->weight->value.shape.size[1];
    if (rows > d)
        return fv_fail(error, FV_USAGE, "heads: %zu channels of heads are more than %zu", rows, d);
    for (size_t part = 0; part < 3; part++)
        for (size_t r = 0; r < d; r++) {
            const bool used = r < rows;
            const size_t row = part * rows + r;
            for (size_t c = 0; c < in; c++)
                shared[part]->weight->value.data[r * in + c] =
                    used ? from->in_proj_weight->value.data[row * in + c] : 0;
            if (shared[part]->bias != NULL)
                shared[part]->bias->value.data[r] = used ? from->in_proj_bias->value.data[row] : 0;
            for (size_t i = 0; i < rows; i++)
                heads[part]->value.data[i * d + r] = i == r;
        }
    copy(from->out_proj.weight, into->out_proj.weight);
    copy(from->out_proj.bias, into->out_proj.bias);
    return true;
}
