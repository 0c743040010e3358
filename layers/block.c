/* Encoder block: attention for the whole, a feed-forward part for the place, each added to its input.
 * Post-norm as in Vaswani et al., 2017; pre-norm as in Xiong et al., 2020, arXiv 2002.04745. */
#include "layers/layers.h"

fv_block fv_block_init(fv_scope scope, size_t d, size_t heads, const fv_block_opts *opts)
{
    const fv_block_opts none = {0}, *o = opts ? opts : &none;
    const size_t hidden = o->hidden ? o->hidden : 4 * d;
    fv_block layer = {
        .dropout = o->dropout, .post_norm = o->post_norm, .activation = o->activation};
    layer.self_attn = fv_multihead_init(fv_under(scope, "self_attn"), d, heads, &o->attention);
    layer.linear1 = fv_linear_init(fv_under(scope, "linear1"), d, hidden, NULL);
    layer.linear2 = fv_linear_init(fv_under(scope, "linear2"), hidden, d, NULL);
    layer.norm1 = fv_norm_init(fv_under(scope, "norm1"), d);
    layer.norm2 = fv_norm_init(fv_under(scope, "norm2"), d);
    return layer;
}

static fv_var *feed_forward(fv_tape *t, const fv_block *layer, fv_var *x)
{
    fv_var *hidden = layer->activation == FV_ACT_RELU
                         ? fv_linear_relu_forward(t, &layer->linear1, x)
                         : fv_gelu(t, fv_linear_forward(t, &layer->linear1, x));
    return fv_linear_forward(t, &layer->linear2, fv_dropout(t, hidden, layer->dropout));
}

fv_var *fv_block_forward(fv_tape *t, const fv_block *layer, fv_var *x, const fv_mask *mask)
{
    const fv_block *l = layer;
    fv_var *attended = l->post_norm ? x : fv_norm_forward(t, &l->norm1, x);
    attended = fv_multihead_forward(t, &l->self_attn, attended, mask);
    x = fv_add(t, x, fv_dropout(t, attended, l->dropout));
    if (l->post_norm)
        x = fv_norm_forward(t, &l->norm1, x);
    fv_var *fed = feed_forward(t, l, l->post_norm ? x : fv_norm_forward(t, &l->norm2, x));
    x = fv_add(t, x, fv_dropout(t, fed, l->dropout));
    return l->post_norm ? fv_norm_forward(t, &l->norm2, x) : x;
}
