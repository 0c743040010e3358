/* Keys and values kept from step to step: decoding without computing again what is there. */
#include "layers/multihead.h"

#include <string.h>

bool fv_kv_cache_init(fv_kv_cache *cache, const fv_multihead *layer, size_t samples,
                      size_t capacity, fv_error *error)
{
    *cache = (fv_kv_cache){.samples = samples};
    if (layer->heads == 0 || samples == 0 || capacity == 0)
        return fv_fail(error, FV_USAGE, "cache: %zu heads, %zu samples of %zu rows", layer->heads,
                       samples, capacity);
    cache->key_width = layer->how.kv_heads * layer->how.key_width;
    cache->value_width = layer->how.kv_heads * layer->how.value_width;
    cache->counts = fvi_calloc(samples, sizeof *cache->counts);
    if (cache->counts == NULL)
        return fv_fail(error, FV_FAILED, "cache: out of memory for %zu samples", samples);
    if (fv_kv_cache_reserve(cache, capacity, error))
        return true;
    fv_kv_cache_free(cache);
    return false;
}

/* The same rows with more room behind those of each sample; NULL when memory is out. */
static fv_real *widened(const fv_kv_cache *cache, const fv_real *old, size_t width, size_t capacity)
{
    size_t count;
    fv_real *rows = fvi_mul(cache->samples, capacity, &count) && fvi_mul(count, width, &count)
                        ? fvi_calloc(count, sizeof *rows)
                        : NULL;
    for (size_t s = 0; rows != NULL && old != NULL && s < cache->samples; s++)
        memcpy(rows + s * capacity * width, old + s * cache->capacity * width,
               cache->counts[s] * width * sizeof *rows);
    return rows;
}

bool fv_kv_cache_reserve(fv_kv_cache *cache, size_t capacity, fv_error *error)
{
    if (capacity <= cache->capacity)
        return true;
    fv_real *keys = widened(cache, cache->keys, cache->key_width, capacity);
    fv_real *values = widened(cache, cache->values, cache->value_width, capacity);
    if (keys == NULL || values == NULL) {
        fvi_free(keys);
        fvi_free(values);
        return fv_fail(error, FV_FAILED, "cache: out of memory for %zu samples of %zu rows",
                       cache->samples, capacity);
    }
    fvi_free(cache->keys);
    fvi_free(cache->values);
    cache->keys = keys;
    cache->values = values;
    cache->capacity = capacity;
    return true;
}

void fv_kv_cache_free(fv_kv_cache *cache)
{
    fvi_free(cache->keys);
    fvi_free(cache->values);
    fvi_free(cache->counts);
    *cache = (fv_kv_cache){.samples = 0};
}

/* Whether these rows may be added; refuses otherwise. */
static bool accepts(fv_tape *t, const fv_multihead *layer, const fv_var *x,
                    const fv_segments *segments, const fv_kv_cache *cache)
{
    const char *op = "multihead_step";
    fv_error error = {FV_OK, ""};
    if (x == NULL || !fvi_is_matrix(t, op, "input", x))
        return false;
    if (fv_tape_mode(t) != FV_EVAL)
        fv_refuse(t, op, "a cache has no gradients: in FV_EVAL only");
    else if (fvi_extra_keys(layer) > 0)
        fv_refuse(t, op, "a layer with keys of its own (bias_k, zeros) is not for steps");
    else if (cache->key_width != layer->how.kv_heads * layer->how.key_width ||
             cache->value_width != layer->how.kv_heads * layer->how.value_width)
        fv_refuse(t, op, "a cache of keys %zu and values %zu wide, made for another layer",
                  cache->key_width, cache->value_width);
    else if (segments == NULL || segments->count != cache->samples)
        fv_refuse(t, op, "%zu segments, the cache has %zu samples", segments ? segments->count : 0,
                  cache->samples);
    else if (!fv_segments_check(segments, fvi_rows(x), &error))
        fv_refuse(t, op, "%s", error.text);
    for (size_t s = 0; fv_tape_ok(t) && s < cache->samples; s++) {
        const size_t more = segments->offsets[s + 1] - segments->offsets[s];
        if (more > cache->capacity - cache->counts[s])
            fv_refuse(t, op, "sample %zu would have %zu rows, the cache has room for %zu", s,
                      cache->counts[s] + more, cache->capacity);
    }
    return fv_tape_ok(t);
}

/* Copies the rows of each segment behind those that the cache has. */
static void append(const fv_kv_cache *cache, const fv_segments *segments, fv_real *to,
                   const fv_var *rows, size_t width)
{
    for (size_t s = 0; s < cache->samples; s++)
        memcpy(to + (s * cache->capacity + cache->counts[s]) * width,
               rows->value.data + segments->offsets[s] * width,
               (segments->offsets[s + 1] - segments->offsets[s]) * width * sizeof *to);
}

/* Turns queries and keys by their positions, which go on where the cache ends; false on an error. */
static bool turned(fv_tape *t, const fv_multihead *layer, fvi_heads *h, const fv_segments *segments,
                   const size_t *counts)
{
    int32_t *positions = fv_tape_alloc(t, fv_segments_rows(segments), sizeof *positions);
    if (positions == NULL)
        return false;
    for (size_t s = 0; s < segments->count; s++)
        for (size_t r = segments->offsets[s]; r < segments->offsets[s + 1]; r++)
            positions[r] = (int32_t)(counts[s] + r - segments->offsets[s]);
    h->q = fvi_rotary_use(t, layer, h->q, layer->heads, positions);
    h->k = fvi_rotary_use(t, layer, h->k, layer->how.kv_heads, positions);
    return h->q != NULL && h->k != NULL;
}

fv_var *fv_multihead_step(fv_tape *t, const fv_multihead *layer, fv_var *x,
                          const fv_segments *segments, fv_kv_cache *cache)
{
    if (layer->heads == 0)
        return fv_use(t, NULL); /* half a layer must not run */
    if (!accepts(t, layer, x, segments, cache))
        return NULL;
    const size_t rows = cache->samples * cache->capacity;
    fvi_heads h = fvi_multihead_project(t, layer, x, x, x);
    size_t *counts = fv_tape_alloc(t, cache->samples, sizeof *counts);
    const fv_segments *of_keys = fvi_equal_segments(t, cache->samples, cache->capacity);
    if (h.q == NULL || counts == NULL || of_keys == NULL)
        return NULL;
    for (size_t s = 0; s < cache->samples; s++)
        counts[s] = cache->counts[s] + segments->offsets[s + 1] - segments->offsets[s];
    if (layer->how.rotary && !turned(t, layer, &h, segments, cache->counts))
        return NULL;
    append(cache, segments, cache->keys, h.k, cache->key_width);
    append(cache, segments, cache->values, h.v, cache->value_width);
    h.k = fv_constant(t, FV_SHAPE(rows, cache->key_width), cache->keys);
    h.v = fv_constant(t, FV_SHAPE(rows, cache->value_width), cache->values);
    const fv_mask mask = {.queries = segments,
                          .keys = of_keys,
                          .key_counts = counts,
                          .causal = true,
                          .align_end = true};
    fv_var *y = fvi_multihead_attend(t, layer, h, &mask, NULL);
    if (y != NULL)
        memcpy(cache->counts, counts, cache->samples * sizeof *counts);
    return y;
}
