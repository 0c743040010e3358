/* Layers on the nodes of a graph: attention over the sources that edges give each target. The papers are named
 * in layers.h. What GAT's score takes of a row is one number a head, a . (W x) = (W' a) . x, so that neither
 * targets nor edges are mapped to all channels. */
#include "autograd/internal.h"
#include "layers/layers.h"

#include <math.h>

/* ---- parameters ------------------------------------------------------------------------------------- */

/* Which layer it is, and so which options it has. */
typedef enum { GAT, GATV2, TRANSFORMER } kind;
static const char *const names[] = {"gat", "gatv2", "transformer_conv"};

/* Defaults, and the columns of all heads in *all; false after a refusal. */
static bool resolve(fv_scope scope, kind layer, size_t in, size_t out, const fv_graph_opts *opts,
                    fv_graph_opts *o, size_t *all)
{
    const char *name = names[layer];
    if (opts != NULL)
        *o = *opts;
    o->heads = o->heads ? o->heads : 1;
    if (!fvi_mul(o->heads, out, all) || *all > SIZE_MAX / 3 || *all == 0 || in == 0)
        fv_scope_refuse(scope, "%s: from width %zu to %zu heads of width %zu", name, in, o->heads,
                        out);
    else if (!(o->dropout >= 0 && o->dropout < 1))
        fv_scope_refuse(scope, "%s: dropout must be at least 0 and below 1", name);
    else if (layer != TRANSFORMER && (o->no_root || o->beta))
        fv_scope_refuse(scope, "%s: no_root and beta are a transformer's", name);
    else if (layer == TRANSFORMER && (o->negative_slope != 0 || o->residual))
        fv_scope_refuse(scope, "%s: negative_slope and residual are GAT's and GATv2's", name);
    else if (layer != GATV2 && o->shared)
        fv_scope_refuse(scope, "%s: shared maps are GATv2's", name);
    else if (o->shared && o->target_width != 0 && o->target_width != in)
        fv_scope_refuse(scope, "%s: a shared map of sources %zu wide and targets %zu", name, in,
                        o->target_width);
    else if (o->no_root && o->beta)
        fv_scope_refuse(scope, "%s: a gate to the target's map, but no_root", name);
    else if (scope.params != NULL)
        return true;
    return false;
}

/* Uniform in +-sqrt(6 / (rows + columns)). Glorot, Bengio, 2010. */
static fv_init glorot(size_t rows, size_t columns)
{
    return (fv_init){FV_UNIFORM, sqrt(6 / ((double)rows + (double)columns))};
}

/* A linear map whose matrix starts so. */
static fv_linear map(fv_scope scope, const char *name, size_t in, size_t out, bool bias)
{
    const fv_scope under = fv_under(scope, "%s", name);
    fv_linear layer = {.weight = fv_param_new(under, "weight", FV_SHAPE(out, in), glorot(out, in))};
    if (bias)
        layer.bias =
            fv_param_new(under, "bias", FV_SHAPE(out), (fv_init){FV_UNIFORM, 1 / sqrt((double)in)});
    if (layer.bias != NULL)
        layer.bias->no_decay = true;
    return layer;
}

/* [1, heads, out] */
static fv_param *vectors(fv_scope scope, const char *name, const fv_graph_opts *o, size_t out)
{
    return fv_param_new(scope, name, FV_SHAPE(1, o->heads, out), glorot(o->heads, out));
}

static size_t target_width(const fv_graph_opts *o, size_t in)
{
    return o->target_width ? o->target_width : in;
}

/* What GAT and GATv2 add to the result. */
static void ends(fv_scope scope, const fv_graph_opts *o, size_t in, size_t columns, fv_linear *res,
                 fv_param **bias)
{
    if (o->residual)
        *res = map(scope, "res", target_width(o, in), columns, false);
    if (!o->no_bias)
        *bias = fv_param_new(scope, "bias", FV_SHAPE(columns), (fv_init){FV_ZEROS, 0});
    if (*bias != NULL)
        (*bias)->no_decay = true;
}

static bool made(fv_scope scope)
{
    return fv_params_error(scope.params)->status == FV_OK;
}

fv_gat fv_gat_init(fv_scope scope, size_t in, size_t out, const fv_graph_opts *opts)
{
    const fv_gat failed = {0};
    fv_gat layer = {.width = out};
    fv_graph_opts *o = &layer.how;
    size_t all;
    if (!resolve(scope, GAT, in, out, opts, o, &all))
        return failed;
    if (o->target_width == 0) {
        layer.lin = map(scope, "lin", in, all, false);
    } else {
        layer.lin_src = map(scope, "lin_src", in, all, false);
        layer.lin_dst = map(scope, "lin_dst", o->target_width, all, false);
    }
    layer.att_src = vectors(scope, "att_src", o, out);
    layer.att_dst = vectors(scope, "att_dst", o, out);
    if (o->edge_width > 0) {
        layer.lin_edge = map(scope, "lin_edge", o->edge_width, all, false);
        layer.att_edge = vectors(scope, "att_edge", o, out);
    }
    ends(scope, o, in, o->mean ? out : all, &layer.res, &layer.bias);
    return made(scope) ? layer : failed;
}

fv_gatv2 fv_gatv2_init(fv_scope scope, size_t in, size_t out, const fv_graph_opts *opts)
{
    const fv_gatv2 failed = {0};
    fv_gatv2 layer = {.width = out};
    fv_graph_opts *o = &layer.how;
    size_t all;
    if (!resolve(scope, GATV2, in, out, opts, o, &all))
        return failed;
    layer.lin_l = map(scope, "lin_l", in, all, !o->no_bias);
    layer.lin_r =
        o->shared ? layer.lin_l : map(scope, "lin_r", target_width(o, in), all, !o->no_bias);
    layer.att = vectors(scope, "att", o, out);
    if (o->edge_width > 0)
        layer.lin_edge = map(scope, "lin_edge", o->edge_width, all, false);
    ends(scope, o, in, o->mean ? out : all, &layer.res, &layer.bias);
    return made(scope) ? layer : failed;
}

fv_transformer_conv fv_transformer_conv_init(fv_scope scope, size_t in, size_t out,
                                             const fv_graph_opts *opts)
{
    const fv_transformer_conv failed = {0};
    const fv_linear_opts no_bias = {.no_bias = true};
    fv_transformer_conv layer = {.width = out};
    fv_graph_opts *o = &layer.how;
    size_t all;
    if (!resolve(scope, TRANSFORMER, in, out, opts, o, &all))
        return failed;
    const size_t target = target_width(o, in), columns = o->mean ? out : all;
    layer.lin_key = fv_linear_init(fv_under(scope, "lin_key"), in, all, NULL);
    layer.lin_query = fv_linear_init(fv_under(scope, "lin_query"), target, all, NULL);
    layer.lin_value = fv_linear_init(fv_under(scope, "lin_value"), in, all, NULL);
    if (o->edge_width > 0)
        layer.lin_edge = fv_linear_init(fv_under(scope, "lin_edge"), o->edge_width, all, &no_bias);
    layer.lin_skip =
        fv_linear_init(fv_under(scope, "lin_skip"), target, columns, o->no_bias ? &no_bias : NULL);
    if (o->beta)
        layer.lin_beta = fv_linear_init(fv_under(scope, "lin_beta"), 3 * columns, 1, &no_bias);
    if (!made(scope))
        return failed;
    layer.lin_skip.weight->frozen = o->no_root;
    if (layer.lin_skip.bias != NULL)
        layer.lin_skip.bias->frozen = o->no_root;
    return layer;
}

/* ---- forward ---------------------------------------------------------------------------------------- */

static bool is_wide(const fv_var *x, size_t width)
{
    return x->value.shape.rank == 2 && x->value.shape.size[1] == width;
}

/* Whether rows and edges have the widths that the layer was made for; refuses otherwise. */
static bool fits(fv_tape *t, kind layer, const fv_graph_opts *o, const fv_linear *of_sources,
                 const fv_var *sources, const fv_var *targets, const fv_var *edges,
                 const fv_mask *mask)
{
    const char *name = names[layer];
    if (of_sources->weight == NULL)
        fv_use(t, NULL); /* half a layer must not run */
    if (of_sources->weight == NULL || sources == NULL || targets == NULL)
        return false;
    const size_t in = of_sources->weight->value.shape.size[1], target = target_width(o, in);
    if (!is_wide(sources, in))
        fv_refuse(t, name, "sources %s, expected [any, %zu]", fv_describe(t, sources), in);
    else if (!is_wide(targets, target))
        fv_refuse(t, name, "targets %s, expected [any, %zu]", fv_describe(t, targets), target);
    else if ((edges != NULL) != (o->edge_width > 0))
        fv_refuse(t, name,
                  edges ? "vectors of edges for a layer that has none"
                        : "a layer of vectors of edges, but there are none");
    else if (edges != NULL && !is_wide(edges, o->edge_width))
        fv_refuse(t, name, "edges %s, expected [any, %zu]", fv_describe(t, edges), o->edge_width);
    else if (edges != NULL && (mask == NULL || mask->edges == NULL))
        fv_refuse(t, name, "vectors of edges, but the mask has no edges");
    else
        return true;
    return false;
}

/* [rows, d] -> [rows, heads]: a_h . (W_h x) for W [heads * width, d] and a [1, heads, width]. */
static fv_var *answers(fv_tape *t, const fv_linear *map_of, const fv_param *a, fv_var *x)
{
    const size_t heads = a->value.shape.size[1], width = a->value.shape.size[2],
                 d = map_of->weight->value.shape.size[1];
    fv_var *w = fv_reshape(t, fv_use(t, map_of->weight), FV_SHAPE(heads, width, d));
    fv_var *own = fv_reshape(t, fv_use(t, a), FV_SHAPE(heads, width));
    return fv_affine(t, x, fv_einsum(t, "hod,ho->hd", w, own), NULL);
}

/* The mean over the heads, where asked for. */
static fv_var *joined(fv_tape *t, const fv_graph_opts *o, size_t width, fv_var *y)
{
    if (y == NULL || !o->mean)
        return y;
    return fv_mean(t, fv_reshape(t, y, FV_SHAPE(fvi_rows(y), o->heads, width)), FV_AXES(1));
}

/* How attention is called where the score is additive; weight [heads, any]. */
static fv_attention_opts additive(const fv_graph_opts *o, fv_var *weight, fv_var *edge_keys)
{
    const bool relu = o->negative_slope == FV_NONE;
    return (fv_attention_opts){.heads = o->heads,
                               .score = FV_SCORE_ADDITIVE,
                               .weight = weight,
                               .inner = relu ? FV_INNER_RELU : FV_INNER_LEAKY_RELU,
                               .inner_slope = o->negative_slope,
                               .dropout = o->dropout,
                               .edge_keys = edge_keys};
}

/* The result of GAT and GATv2 with what they add to it. */
static fv_var *ended(fv_tape *t, const fv_graph_opts *o, size_t width, fv_var *y, fv_var *targets,
                     const fv_linear *res, const fv_param *bias)
{
    y = joined(t, o, width, y);
    if (res->weight != NULL)
        y = fv_add(t, y, fv_linear_forward(t, res, targets));
    return bias ? fv_add(t, y, fv_use(t, bias)) : y;
}

fv_var *fv_gat_forward(fv_tape *t, const fv_gat *layer, fv_var *sources, fv_var *targets,
                       fv_var *edges, const fv_mask *mask)
{
    const fv_graph_opts *o = &layer->how;
    const bool two = o->target_width > 0;
    const fv_linear *of_sources = two ? &layer->lin_src : &layer->lin,
                    *of_targets = two ? &layer->lin_dst : &layer->lin;
    if (!fits(t, GAT, o, of_sources, sources, targets, edges, mask))
        return NULL;
    fv_real *ones = fv_tape_alloc(t, o->heads, sizeof *ones);
    for (size_t h = 0; ones != NULL && h < o->heads; h++)
        ones[h] = 1;
    fv_var *values = fv_linear_forward(t, of_sources, sources);
    fv_var *k = answers(t, of_sources, layer->att_src, sources);
    fv_var *q = answers(t, of_targets, layer->att_dst, targets);
    fv_var *e = edges ? answers(t, &layer->lin_edge, layer->att_edge, edges) : NULL;
    if (edges != NULL && e == NULL)
        return NULL;
    const fv_attention_opts opts = additive(o, fv_constant(t, FV_SHAPE(o->heads, 1), ones), e);
    fv_var *y = fv_attention(t, q, k, values, mask, &opts);
    return ended(t, o, layer->width, y, targets, &layer->res, layer->bias);
}

fv_var *fv_gatv2_forward(fv_tape *t, const fv_gatv2 *layer, fv_var *sources, fv_var *targets,
                         fv_var *edges, const fv_mask *mask)
{
    const fv_graph_opts *o = &layer->how;
    if (!fits(t, GATV2, o, &layer->lin_l, sources, targets, edges, mask))
        return NULL;
    fv_var *k = fv_linear_forward(t, &layer->lin_l, sources);
    fv_var *q = o->shared && targets == sources ? k : fv_linear_forward(t, &layer->lin_r, targets);
    fv_var *e = edges ? fv_linear_forward(t, &layer->lin_edge, edges) : NULL;
    if (edges != NULL && e == NULL)
        return NULL;
    fv_var *a = fv_reshape(t, fv_use(t, layer->att), FV_SHAPE(o->heads, layer->width));
    const fv_attention_opts opts = additive(o, a, e);
    fv_var *y = fv_attention(t, q, k, k, mask, &opts);
    return ended(t, o, layer->width, y, targets, &layer->res, layer->bias);
}

fv_var *fv_transformer_conv_forward(fv_tape *t, const fv_transformer_conv *layer, fv_var *sources,
                                    fv_var *targets, fv_var *edges, const fv_mask *mask)
{
    const fv_graph_opts *o = &layer->how;
    if (!fits(t, TRANSFORMER, o, &layer->lin_key, sources, targets, edges, mask))
        return NULL;
    fv_var *q = fv_linear_forward(t, &layer->lin_query, targets);
    fv_var *k = fv_linear_forward(t, &layer->lin_key, sources);
    fv_var *v = fv_linear_forward(t, &layer->lin_value, sources);
    fv_var *e = edges ? fv_linear_forward(t, &layer->lin_edge, edges) : NULL;
    if (edges != NULL && e == NULL)
        return NULL;
    const fv_attention_opts opts = {
        .heads = o->heads, .dropout = o->dropout, .edge_keys = e, .edge_values = e};
    fv_var *y = joined(t, o, layer->width, fv_attention(t, q, k, v, mask, &opts));
    if (y == NULL || o->no_root)
        return y;
    fv_var *root = fv_linear_forward(t, &layer->lin_skip, targets);
    if (!o->beta)
        return fv_add(t, y, root);
    fv_var *all = fv_concat(t, 3, (fv_var *[]){y, root, fv_sub(t, y, root)}, 1);
    return fv_lerp(t, y, root, fv_sigmoid(t, fv_linear_forward(t, &layer->lin_beta, all)));
}
