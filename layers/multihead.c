/* Multi-head self-attention. Vaswani et al., 2017, arXiv 1706.03762; the learned bias by distance as in
 * Shaw, Uszkoreit, Vaswani, 2018, arXiv 1803.02155, reduced to one number a head and distance. */
#include "layers/layers.h"

#include <math.h>

/* Head 0 starts by looking one row back, head 1 one ahead, head 2 two back, head 3 two ahead, and so on. */
static void start_relative(fv_param *relative, size_t heads, int clip, double start)
{
    for (size_t h = 0; h < heads && h / 2 < (size_t)clip; h++) {
        const size_t distance = h / 2 + 1;
        const size_t at = (size_t)clip + (h % 2 ? distance : 0) - (h % 2 ? 0 : distance);
        relative->value.data[h * (2 * (size_t)clip + 1) + at] = (fv_real)start;
    }
}

fv_multihead fv_multihead_init(fv_scope scope, size_t d, size_t heads,
                               const fv_multihead_opts *opts)
{
    const fv_multihead_opts none = {0}, *o = opts ? opts : &none;
    const fv_linear_opts linear = {.no_bias = o->no_bias};
    const fv_init xavier = {FV_UNIFORM, d ? sqrt(6 / (4 * (double)d)) : 0}, zeros = {FV_ZEROS, 0};
    fv_multihead layer = {.heads = heads, .dropout = o->dropout};
    layer.in_proj_weight = fv_param_new(scope, "in_proj_weight", FV_SHAPE(3 * d, d), xavier);
    if (!o->no_bias) {
        layer.in_proj_bias = fv_param_new(scope, "in_proj_bias", FV_SHAPE(3 * d), zeros);
        if (layer.in_proj_bias != NULL)
            layer.in_proj_bias->no_decay = true;
    }
    layer.out_proj = fv_linear_init(fv_under(scope, "out_proj"), d, d, &linear);
    if (layer.out_proj.bias != NULL)
        for (size_t i = 0; i < d; i++) /* as PyTorch's starts */
            layer.out_proj.bias->value.data[i] = 0;
    if (o->relative_clip > 0) {
        const fv_shape shape = FV_SHAPE(heads, 2 * (size_t)o->relative_clip + 1);
        layer.relative = fv_param_new(scope, "relative_bias", shape, zeros);
        if (layer.relative == NULL) {
            layer.in_proj_weight = NULL; /* half a layer must not run */
            return layer;
        }
        layer.relative->no_decay = true;
        start_relative(layer.relative, heads, o->relative_clip, o->relative_start);
    }
    return layer;
}

fv_var *fv_multihead_forward(fv_tape *t, const fv_multihead *layer, fv_var *x, const fv_mask *mask)
{
    fv_var *bias = layer->in_proj_bias ? fv_use(t, layer->in_proj_bias) : NULL;
    fv_var *qkv = fv_affine(t, x, fv_use(t, layer->in_proj_weight), bias);
    const fv_attention_opts opts = {.heads = layer->heads,
                                    .dropout = layer->dropout,
                                    .relative =
                                        layer->relative ? fv_use(t, layer->relative) : NULL};
    return fv_linear_forward(t, &layer->out_proj, fv_self_attention(t, qkv, mask, &opts));
}
