/* Multi-head attention: maps to queries, keys and values, attention, and a map to the result. Vaswani et al.,
 * 2017, arXiv 1706.03762. Biases by distance are in relative.c, keys of the layer's own in extra_keys.c. */
#include "layers/multihead.h"

#include <math.h>

/* Columns of q, k, v, all of these, and of the heads' results; 0 when they are too many. */
typedef struct {
    size_t q, k, v, all, result;
} columns;

static columns columns_of(const fv_multihead *layer)
{
    const fv_multihead_opts *o = &layer->how;
    columns c = {0};
    const bool fit = fvi_mul(layer->heads, o->key_width, &c.q) &&
                     fvi_mul(o->kv_heads, o->key_width, &c.k) &&
                     fvi_mul(o->kv_heads, o->value_width, &c.v) && fvi_add(c.q, c.k, &c.all) &&
                     fvi_add(c.all, o->no_values ? 0 : c.v, &c.all) &&
                     fvi_mul(layer->heads, o->value_width, &c.result);
    return fit ? c : (columns){0};
}

/* Zero means the default; false after a refusal. */
static bool resolve(fv_scope scope, size_t d, size_t heads, fv_multihead_opts *o)
{
    const int by_distance = (o->relative_clip > 0) + (o->t5_buckets > 0) + (o->shaw_clip > 0);
    o->kv_heads = o->kv_heads ? o->kv_heads : heads;
    o->kdim = o->kdim ? o->kdim : d;
    o->vdim = o->vdim ? o->vdim : d;
    o->out = o->out ? o->out : d;
    if (heads == 0 || heads % o->kv_heads != 0) {
        fv_scope_refuse(scope, "%zu heads of queries for %zu of keys: they must divide", heads,
                        o->kv_heads);
        return false;
    }
    if ((o->key_width == 0 || (o->value_width == 0 && !o->no_values)) && d % heads != 0) {
        fv_scope_refuse(scope, "%zu heads do not divide the width %zu", heads, d);
        return false;
    }
    if (o->no_values && (o->vdim % o->kv_heads != 0 || o->value_width != 0)) {
        fv_scope_refuse(scope, "values as they are, %zu wide, are cut into %zu heads", o->vdim,
                        o->kv_heads);
        return false;
    }
    o->key_width = o->key_width ? o->key_width : d / heads;
    if (o->value_width == 0)
        o->value_width = o->no_values ? o->vdim / o->kv_heads : d / heads;
    if (by_distance > 1 || o->relative_clip < 0 || o->shaw_clip < 0) {
        fv_scope_refuse(scope, "relative_clip %d, t5_buckets %zu, shaw_clip %d: at most one",
                        o->relative_clip, o->t5_buckets, o->shaw_clip);
        return false;
    }
    if (o->rotary && (o->rotary_width % 2 != 0 || o->rotary_width > o->key_width ||
                      (o->rotary_width == 0 && o->key_width % 2 != 0))) {
        fv_scope_refuse(scope, "rotary positions turn pairs: %zu columns of heads %zu wide",
                        o->rotary_width ? o->rotary_width : o->key_width, o->key_width);
        return false;
    }
    if (!(o->dropout >= 0 && o->dropout < 1)) {
        fv_scope_refuse(scope, "dropout must be at least 0 and below 1");
        return false;
    }
    return true;
}

static fv_param *bias_new(fv_scope scope, const char *name, fv_shape shape, fv_init init)
{
    fv_param *p = fv_param_new(scope, name, shape, init);
    if (p != NULL)
        p->no_decay = true;
    return p;
}

static fv_init xavier(size_t rows, size_t d)
{
    const double sum = (double)rows + (double)d;
    return (fv_init){FV_UNIFORM, sum > 0 ? sqrt(6 / sum) : 0};
}

static void maps_init(fv_scope scope, size_t d, fv_multihead *layer)
{
    const fv_multihead_opts *o = &layer->how;
    const columns c = columns_of(layer);
    const fv_init zeros = {FV_ZEROS, 0};
    if (o->kdim == d && (o->no_values || o->vdim == d)) {
        layer->in_proj_weight =
            fv_param_new(scope, "in_proj_weight", FV_SHAPE(c.all, d), xavier(c.all, d));
    } else {
        layer->q_proj_weight =
            fv_param_new(scope, "q_proj_weight", FV_SHAPE(c.q, d), xavier(c.q, d));
        layer->k_proj_weight =
            fv_param_new(scope, "k_proj_weight", FV_SHAPE(c.k, o->kdim), xavier(c.k, o->kdim));
        if (!o->no_values)
            layer->v_proj_weight =
                fv_param_new(scope, "v_proj_weight", FV_SHAPE(c.v, o->vdim), xavier(c.v, o->vdim));
    }
    if (!o->no_bias)
        layer->in_proj_bias = bias_new(scope, "in_proj_bias", FV_SHAPE(c.all), zeros);
    if (!o->no_output) {
        const fv_linear_opts linear = {.no_bias = o->no_bias};
        layer->out_proj = fv_linear_init(fv_under(scope, "out_proj"), c.result, o->out, &linear);
        for (size_t i = 0; layer->out_proj.bias != NULL && i < o->out; i++)
            layer->out_proj.bias->value.data[i] = 0; /* as PyTorch's starts */
    }
    if (o->add_bias_kv) {
        const fv_init k = {FV_NORMAL, c.k ? 1 / sqrt((double)c.k) : 0};
        const fv_init v = {FV_NORMAL, c.v ? 1 / sqrt((double)c.v) : 0};
        layer->bias_k = bias_new(scope, "bias_k", FV_SHAPE(1, 1, c.k), k);
        layer->bias_v = bias_new(scope, "bias_v", FV_SHAPE(1, 1, c.v), v);
    }
}

static void score_init(fv_scope scope, fv_multihead *layer)
{
    const fv_multihead_opts *o = &layer->how;
    const size_t width = o->key_width, heads = layer->heads;
    const fv_init uniform = {FV_UNIFORM, 1 / sqrt((double)width)};
    const fv_shape shape = o->score == FV_SCORE_BILINEAR ? FV_SHAPE(heads, width, width)
                           : o->score == FV_SCORE_USER   ? FV_SHAPE(heads, o->user_weights)
                                                         : FV_SHAPE(heads, width);
    if (o->score == FV_SCORE_ADDITIVE || o->score == FV_SCORE_BILINEAR ||
        (o->score == FV_SCORE_USER && o->user_weights > 0))
        layer->score_weight = fv_param_new(scope, "score_weight", shape, uniform);
}

fv_multihead fv_multihead_init(fv_scope scope, size_t d, size_t heads,
                               const fv_multihead_opts *opts)
{
    const fv_multihead failed = {0};
    fv_multihead layer = {.heads = heads};
    if (opts != NULL)
        layer.how = *opts;
    if (scope.params == NULL || !resolve(scope, d, heads, &layer.how))
        return failed;
    maps_init(scope, d, &layer);
    score_init(scope, &layer);
    fvi_relative_init(scope, d, &layer);
    return fv_params_error(scope.params)->status == FV_OK ? layer : failed;
}

/* ---- forward ---------------------------------------------------------------------------------------- */

static fv_var *use_if(fv_tape *t, const fv_param *p)
{
    return p != NULL ? fv_use(t, p) : NULL;
}

/* Each part of a parameter's rows; those of an absent one are NULL. */
static bool cut(fv_tape *t, const fv_param *p, int count, const size_t *sizes, fv_var **parts)
{
    return p == NULL || fv_split(t, fv_use(t, p), 0, count, sizes, parts);
}

fvi_heads fvi_multihead_project(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k,
                                fv_var *v)
{
    const fvi_heads nothing = {NULL, NULL, NULL};
    const columns c = columns_of(layer);
    const size_t sizes[] = {c.q, c.k, c.v};
    const int count = layer->how.no_values ? 2 : 3;
    fv_var *part[3] = {NULL, NULL, v},
           *weight[3] = {use_if(t, layer->q_proj_weight), use_if(t, layer->k_proj_weight),
                         use_if(t, layer->v_proj_weight)};
    fv_var *bias[3] = {NULL, NULL, NULL}, *in[3] = {q, k, v};
    if (layer->in_proj_weight != NULL && q == k && (count == 2 || k == v)) {
        fv_var *all =
            fv_affine(t, q, fv_use(t, layer->in_proj_weight), use_if(t, layer->in_proj_bias));
        if (!fv_split(t, all, 1, count, sizes, part))
            return nothing;
    } else {
        if (!cut(t, layer->in_proj_weight, count, sizes, weight) ||
            !cut(t, layer->in_proj_bias, count, sizes, bias))
            return nothing;
        for (int i = 0; i < count; i++)
            part[i] = fv_affine(t, in[i], weight[i], bias[i]);
    }
    if (part[0] == NULL || part[1] == NULL || part[2] == NULL)
        return nothing;
    return (fvi_heads){part[0], part[1], part[2]};
}

static fv_attention_opts options_of(fv_tape *t, const fv_multihead *layer)
{
    const fv_multihead_opts *o = &layer->how;
    return (fv_attention_opts){.heads = layer->heads,
                               .kv_heads = o->kv_heads,
                               .score = o->score,
                               .normalizer = o->normalizer,
                               .scale = o->scale,
                               .softcap = o->softcap,
                               .dropout = o->dropout,
                               .weight = use_if(t, layer->score_weight),
                               .inner = o->inner,
                               .inner_slope = o->inner_slope,
                               .user = o->user};
}

/* The smaller of two radii, where 0 is no limit. */
static int nearer(int a, int b)
{
    return a == 0 ? b : b == 0 ? a : a < b ? a : b;
}

/* The mask within the layer's own window. */
static fv_mask narrowed(const fv_multihead *layer, const fv_mask *mask)
{
    fv_mask narrow = {.queries = NULL};
    if (mask != NULL)
        narrow = *mask;
    narrow.left = nearer(narrow.left, layer->how.left);
    narrow.right = nearer(narrow.right, layer->how.right);
    return narrow;
}

static fv_var *output(fv_tape *t, const fv_multihead *layer, fv_var *y)
{
    return layer->how.no_output ? y : fv_linear_forward(t, &layer->out_proj, y);
}

fv_var *fvi_multihead_attend(fv_tape *t, const fv_multihead *layer, fvi_heads h,
                             const fv_mask *mask, fv_var *bias)
{
    fv_mask seen = narrowed(layer, mask);
    fv_attention_opts opts = options_of(t, layer);
    if (h.q == NULL || !fvi_relative_use(t, layer, h.q, &opts))
        return NULL;
    if (fvi_extra_keys(layer) > 0 && !fvi_extra_keys_use(t, layer, &h, &seen, &bias))
        return NULL;
    opts.bias = bias;
    return output(t, layer, fv_attention(t, h.q, h.k, h.v, &seen, &opts));
}

/* Whether queries, keys and values may stand side by side in one matrix. */
static bool together(const fv_multihead *layer)
{
    const fv_multihead_opts *o = &layer->how;
    return layer->in_proj_weight != NULL && !o->no_values && o->key_width == o->value_width &&
           o->shaw_clip == 0 && !o->rotary && fvi_extra_keys(layer) == 0;
}

fv_var *fv_multihead_biased(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k, fv_var *v,
                            const fv_mask *mask, fv_var *bias)
{
    if (layer->heads == 0)
        return fv_use(t, NULL); /* half a layer must not run */
    if (q != k || k != v || !together(layer)) {
        fvi_heads h = fvi_multihead_project(t, layer, q, k, v);
        if (h.q == NULL || (layer->how.rotary && !fvi_rotary_by_mask(t, layer, &h, mask)))
            return NULL;
        return fvi_multihead_attend(t, layer, h, mask, bias);
    }
    fv_var *qkv = fv_affine(t, q, fv_use(t, layer->in_proj_weight), use_if(t, layer->in_proj_bias));
    const fv_mask seen = narrowed(layer, mask);
    fv_attention_opts opts = options_of(t, layer);
    if (!fvi_relative_use(t, layer, NULL, &opts))
        return NULL;
    opts.bias = bias;
    return output(t, layer, fv_self_attention(t, qkv, &seen, &opts));
}

fv_var *fv_multihead_cross(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k, fv_var *v,
                           const fv_mask *mask)
{
    return fv_multihead_biased(t, layer, q, k, v, mask, NULL);
}

fv_var *fv_multihead_forward(fv_tape *t, const fv_multihead *layer, fv_var *x, const fv_mask *mask)
{
    return fv_multihead_biased(t, layer, x, x, x, mask, NULL);
}

/* ---- what it looked at ------------------------------------------------------------------------------- */

/* Moves the first extra of n numbers behind the others. */
static void turn(fv_real *w, size_t n, size_t extra)
{
    fv_real first[2];
    for (size_t i = 0; i < extra; i++)
        first[i] = w[i];
    for (size_t i = extra; i < n; i++)
        w[i - extra] = w[i];
    for (size_t i = 0; i < extra; i++)
        w[n - extra + i] = first[i];
}

fv_tensor fv_multihead_weights(fv_tape *t, const fv_multihead *layer, const fv_var *y,
                               size_t segment, bool average)
{
    const fv_tensor nothing = {FV_SCALAR, NULL};
    if (y != NULL && !layer->how.no_output && y->inputs > 0)
        y = y->in[0]; /* what out_proj maps */
    fv_tensor w = fv_attention_weights(t, y, segment);
    if (w.data == NULL)
        return nothing;
    const size_t heads = w.shape.size[0], rows = w.shape.size[1], keys = w.shape.size[2];
    const size_t extra = fvi_extra_keys(layer);
    for (size_t r = 0; extra > 0 && r < heads * rows; r++)
        turn(w.data + r * keys, keys, extra);
    if (!average)
        return w;
    for (size_t i = 0; i < rows * keys; i++) {
        for (size_t h = 1; h < heads; h++)
            w.data[i] += w.data[h * rows * keys + i];
        w.data[i] /= (fv_real)heads;
    }
    return (fv_tensor){FV_SHAPE(rows, keys), w.data};
}
