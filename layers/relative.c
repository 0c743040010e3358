/* What multi-head attention adds to scores and values by the distance of key and query: one learned number a
 * head, buckets of distances, vectors that queries answer to, slopes. The papers are named in layers.h. */
#include "layers/multihead.h"

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

/* Slope h of a power of two of heads n: 2^-(8 (h + 1) / n). Other counts take those of the power below, and
 * then every other one of the power above. */
static double slope_of(size_t h, size_t heads)
{
    size_t n = 1;
    while (n <= heads / 2)
        n *= 2;
    return h < n ? pow(2, -8 * (double)(h + 1) / (double)n)
                 : pow(2, -4 * (double)(2 * (h - n) + 1) / (double)n);
}

/* How many distances of one direction have a bucket of their own. */
static size_t exact_buckets(const fv_multihead_opts *o)
{
    return o->t5_buckets / (o->t5_causal ? 2 : 4);
}

/* The bucket of distance j - i. */
static size_t bucket_of(const fv_multihead_opts *o, long distance)
{
    const size_t side = o->t5_causal ? o->t5_buckets : o->t5_buckets / 2, exact = exact_buckets(o);
    const size_t first = distance > 0 && !o->t5_causal ? side : 0;
    const size_t far = distance < 0 ? (size_t)-distance : o->t5_causal ? 0 : (size_t)distance;
    if (far < exact)
        return first + far;
    const double octaves =
        log((double)far / (double)exact) / log((double)o->t5_distance / (double)exact);
    /* a whole number must not fall below itself by rounding */
    const size_t at = exact + (size_t)(octaves * (double)(side - exact) + 1e-9);
    return first + (at < side ? at : side - 1);
}

static bool t5_fits(fv_scope scope, fv_multihead_opts *o)
{
    o->t5_distance = o->t5_distance ? o->t5_distance : 128;
    if (o->t5_buckets < (o->t5_causal ? 2 : 4) || o->t5_buckets % 2 != 0 ||
        o->t5_distance <= exact_buckets(o) || o->t5_distance > 1 << 20) {
        fv_scope_refuse(scope, "%zu buckets of distances up to %zu: %s", o->t5_buckets,
                        o->t5_distance, "an even number, at least 4 (causal: 2), fewer than those");
        return false;
    }
    return true;
}

void fvi_relative_init(fv_scope scope, size_t d, fv_multihead *layer)
{
    fv_multihead_opts *o = &layer->how;
    const size_t heads = layer->heads, shaw = 2 * (size_t)o->shaw_clip + 1;
    if (o->relative_clip > 0) {
        const fv_shape shape = FV_SHAPE(heads, 2 * (size_t)o->relative_clip + 1);
        layer->relative = fv_param_new(scope, "relative_bias", shape, (fv_init){FV_ZEROS, 0});
        if (layer->relative != NULL)
            start_relative(layer->relative, heads, o->relative_clip, o->relative_start);
    }
    if (o->t5_buckets > 0 && t5_fits(scope, o))
        layer->buckets = fv_param_new(fv_under(scope, "relative_attention_bias"), "weight",
                                      FV_SHAPE(o->t5_buckets, heads),
                                      (fv_init){FV_NORMAL, d ? 1 / sqrt((double)d) : 0});
    if (o->shaw_clip > 0) {
        const fv_init keys = {FV_UNIFORM, sqrt(6 / (double)(shaw + o->key_width))},
                      values = {FV_UNIFORM, sqrt(6 / (double)(shaw + o->value_width))};
        layer->relative_keys =
            fv_param_new(scope, "relative_keys", FV_SHAPE(shaw, o->key_width), keys);
        if (!o->no_shaw_values)
            layer->relative_values =
                fv_param_new(scope, "relative_values", FV_SHAPE(shaw, o->value_width), values);
    }
    if (o->alibi || o->alibi_learned)
        layer->slopes =
            fv_param_new(scope, "alibi_slopes", FV_SHAPE(heads), (fv_init){FV_ZEROS, 0});
    for (size_t h = 0; layer->slopes != NULL && h < heads; h++)
        layer->slopes->value.data[h] = (fv_real)slope_of(h, heads);
    fv_param *const made[] = {layer->relative, layer->buckets, layer->relative_keys,
                              layer->relative_values, layer->slopes};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (made[i] != NULL)
            made[i]->no_decay = true;
    if (layer->slopes != NULL)
        layer->slopes->frozen = !o->alibi_learned;
}

/* [heads, 2 distance + 1]: the bucket's number for each distance. */
static fv_var *bucketed(fv_tape *t, const fv_multihead *layer)
{
    const long clip = (long)layer->how.t5_distance;
    const size_t count = 2 * (size_t)clip + 1;
    int32_t *ids = fv_tape_alloc(t, count, sizeof *ids);
    for (size_t i = 0; ids != NULL && i < count; i++)
        ids[i] = (int32_t)bucket_of(&layer->how, (long)i - clip);
    if (ids == NULL)
        return NULL;
    return fv_transpose(t, fv_index_select(t, fv_use(t, layer->buckets), 0, ids, count), 0, 1);
}

/* scale q . a[distance], [queries, heads, 2 clip + 1]. */
static fv_var *answered(fv_tape *t, const fv_multihead *layer, fv_var *q)
{
    const size_t width = layer->how.key_width;
    const double scale = layer->how.scale != 0              ? layer->how.scale
                         : layer->how.score == FV_SCORE_DOT ? 1 / sqrt((double)width)
                                                            : 1;
    fv_var *rows = fv_reshape(t, q, FV_SHAPE(fvi_rows(q), layer->heads, width));
    return fv_scale(t, fv_affine(t, rows, fv_use(t, layer->relative_keys), NULL), scale);
}

bool fvi_relative_use(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_attention_opts *opts)
{
    if (layer->relative != NULL)
        opts->relative = fv_use(t, layer->relative);
    if (layer->buckets != NULL)
        opts->relative = bucketed(t, layer);
    if (layer->relative_keys != NULL)
        opts->relative = answered(t, layer, q);
    if (layer->relative_values != NULL)
        opts->relative_values = fv_use(t, layer->relative_values);
    if (layer->slopes != NULL)
        opts->slopes = fv_use(t, layer->slopes);
    return fv_tape_ok(t);
}
