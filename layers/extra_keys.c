/* Keys and values that a layer has of its own in each segment, bias_k's and zeros. They stand in front: so the
 * rules of a mask that reaches back to the first key reach them too, with the offset moved by as many rows,
 * and dense bytes get columns. What else a mask may be (edges, a window to the left, queries that see none of
 * the front) becomes the list of edges that it sees. */
#include "layers/multihead.h"

#include <string.h>

/* The mask before and after, and which number of the bias each pair after has. */
typedef struct {
    fv_tape *t;
    const fv_mask *old;
    size_t queries, keys; /* rows before */
    size_t samples, extra;
    fv_mask now;
    bool with_bias;
    size_t old_pairs, pairs; /* numbers of a bias before and after */
    int32_t *from;           /* [pairs]: where each stood; old_pairs: a pair with an extra key */
} widening;

fv_segments *fvi_equal_segments(fv_tape *t, size_t count, size_t rows)
{
    fv_segments *s = fv_tape_alloc(t, 1, sizeof *s);
    size_t *offsets = fv_tape_alloc(t, count + 1, sizeof *offsets);
    if (s == NULL || offsets == NULL)
        return NULL;
    for (size_t i = 0; i <= count; i++)
        offsets[i] = i * rows;
    *s = (fv_segments){count, offsets};
    return s;
}

/* learned [1, 1, width] or zeros, or both one after the other, for each sample: [samples * extra, width]. */
static fv_var *extra_rows(fv_tape *t, const fv_multihead *layer, size_t samples, size_t width,
                          const fv_param *learned)
{
    fv_var *rows[2] = {NULL, NULL};
    int count = 0;
    if (layer->how.add_bias_kv)
        rows[count++] = fv_use(t, learned);
    if (layer->how.add_zero_attn) {
        const fv_real *zeros = fv_tape_alloc(t, width, sizeof *zeros);
        rows[count++] = zeros ? fv_constant(t, FV_SHAPE(1, 1, width), zeros) : NULL;
    }
    fv_var *one = count == 1 ? rows[0] : fv_concat(t, 2, rows, 1);
    const size_t n = (size_t)count;
    return fv_reshape(t, fv_expand(t, one, FV_SHAPE(samples, n, width)),
                      FV_SHAPE(samples * n, width));
}

static fvi_patch next_patch(const widening *w, size_t s, const fvi_patch *before)
{
    return fvi_mask_patch(w->old, w->queries, w->keys, s, s ? before : NULL);
}

/* Whether the rules of the new mask alone show each query the extra keys. */
static bool rules_reach(const widening *w)
{
    size_t first, end;
    if (w->old->edges != NULL || w->old->left != 0)
        return false;
    for (size_t s = 0; s < w->samples; s++) {
        const fvi_patch p =
            fvi_mask_patch(&w->now, w->queries, w->keys + w->samples * w->extra, s, NULL);
        fvi_mask_range(&w->now, &p, 0, &first, &end); /* no later query sees less of the front */
        if (p.queries > 0 && (first > 0 || end < w->extra))
            return false;
    }
    return true;
}

/* Room for that many numbers of the bias; false when memory is out or they cannot be numbered. */
static bool take_numbers(widening *w, const char *op)
{
    if (!w->with_bias)
        return true;
    if (w->pairs > INT32_MAX || w->old_pairs >= INT32_MAX) {
        fv_refuse(w->t, op, "%zu pairs, more than can be numbered", w->pairs);
        return false;
    }
    w->from = fv_tape_alloc(w->t, w->pairs, sizeof *w->from);
    return w->from != NULL;
}

/* Dense: extra columns in front of each row of bytes and of the bias. */
static bool widen_rows(widening *w)
{
    fvi_patch p;
    unsigned char *visible = NULL;
    for (size_t s = 0; s < w->samples; s++) {
        p = next_patch(w, s, &p);
        w->pairs += p.queries * (p.width + w->extra);
        w->old_pairs = p.byte + p.queries * p.width;
    }
    if (w->old->visible != NULL) {
        visible = fv_tape_alloc(w->t, w->pairs, 1);
        if (visible == NULL)
            return false;
        w->now.visible = visible;
    }
    if (!take_numbers(w, "multihead"))
        return false;
    size_t at = 0;
    for (size_t s = 0; s < w->samples; s++) {
        p = next_patch(w, s, &p);
        for (size_t i = 0; i < p.queries; i++, at += w->extra + p.width) {
            const size_t old = p.byte + i * p.width;
            if (visible != NULL) {
                memset(visible + at, 1, w->extra);
                memcpy(visible + at + w->extra, w->old->visible + old, p.width);
            }
            for (size_t j = 0; w->with_bias && j < w->extra + p.width; j++)
                w->from[at + j] = (int32_t)(j < w->extra ? w->old_pairs : old + j - w->extra);
        }
    }
    return true;
}

/* The keys of edges that query i of a patch sees after widening, into keys and from where those are not NULL;
 * how many there are. */
static size_t edges_of(const widening *w, const fvi_patch *p, size_t s, size_t i, int32_t *keys,
                       int32_t *from)
{
    const size_t front = p->key + s * w->extra;
    size_t first, end, count = 0;
    fvi_mask_range(w->old, p, i, &first, &end);
    for (; count < w->extra; count++) {
        if (keys != NULL)
            keys[count] = (int32_t)(front + count);
        if (from != NULL)
            from[count] = (int32_t)w->old_pairs;
    }
    const fv_graph *g = w->old->edges;
    const size_t row = p->query + i;
    const size_t low = g ? g->offsets[row] : first, high = g ? g->offsets[row + 1] : end;
    for (size_t e = low; e < high; e++) {
        const size_t j = g ? (size_t)g->keys[e] - p->key : e; /* wraps for a key before the patch */
        const size_t number = g ? e : p->byte + i * p->width + e;
        if (j < first || j >= end || (!g && w->old->visible && !w->old->visible[number]))
            continue;
        if (keys != NULL)
            keys[count] = (int32_t)(front + w->extra + j);
        if (from != NULL)
            from[count] = (int32_t)number;
        count++;
    }
    return count;
}

/* Anything as edges. */
static bool list_edges(widening *w)
{
    fvi_patch p;
    fv_graph *g = fv_tape_alloc(w->t, 1, sizeof *g);
    size_t *offsets = fv_tape_alloc(w->t, w->queries + 1, sizeof *offsets);
    if (g == NULL || offsets == NULL)
        return false;
    if (w->keys > INT32_MAX - w->extra * w->samples) {
        fv_refuse(w->t, "multihead", "%zu keys, more than can be numbered", w->keys);
        return false;
    }
    for (size_t s = 0; s < w->samples; s++) {
        p = next_patch(w, s, &p);
        for (size_t i = 0; i < p.queries; i++)
            offsets[p.query + i + 1] = offsets[p.query + i] + edges_of(w, &p, s, i, NULL, NULL);
        w->old_pairs = p.byte + p.queries * p.width;
    }
    if (w->old->edges != NULL)
        w->old_pairs = w->old->edges->offsets[w->queries];
    w->pairs = offsets[w->queries];
    int32_t *keys = fv_tape_alloc(w->t, w->pairs, sizeof *keys);
    if (keys == NULL || !take_numbers(w, "multihead"))
        return false;
    for (size_t s = 0; s < w->samples; s++) {
        p = next_patch(w, s, &p);
        for (size_t i = 0; i < p.queries; i++) {
            const size_t at = offsets[p.query + i];
            edges_of(w, &p, s, i, keys + at, w->from ? w->from + at : NULL);
        }
    }
    *g = (fv_graph){w->queries, offsets, keys};
    w->now = (fv_mask){.queries = w->now.queries, .keys = w->now.keys, .edges = g};
    return true;
}

/* The numbers of a bias at their new places, 0 for the extra keys. */
static fv_var *widen_bias(const widening *w, fv_var *bias)
{
    const int axis = w->old->edges != NULL ? 0 : 1;
    const fv_shape shape = bias->value.shape;
    if (shape.rank != 2 || shape.size[axis] != w->old_pairs)
        return fv_refuse(w->t, "multihead", "bias %s, but the mask has %zu pairs",
                         fv_describe(w->t, bias), w->old_pairs);
    const size_t heads = shape.size[1 - axis];
    const fv_real *zeros = fv_tape_alloc(w->t, heads, sizeof *zeros);
    if (zeros == NULL)
        return NULL;
    fv_var *none = fv_constant(w->t, axis ? FV_SHAPE(heads, 1) : FV_SHAPE(1, heads), zeros);
    bias = fv_concat(w->t, 2, (fv_var *[]){bias, none}, axis);
    bias = fv_index_select(w->t, bias, axis, w->from, w->pairs);
    return axis == 1 && w->now.edges != NULL ? fv_transpose(w->t, bias, 0, 1) : bias;
}

/* The key counts with the extra keys, on the tape. */
static bool widen_counts(widening *w)
{
    if (w->old->key_counts == NULL)
        return true;
    size_t *counts = fv_tape_alloc(w->t, w->samples, sizeof *counts);
    for (size_t s = 0; counts != NULL && s < w->samples; s++)
        counts[s] = w->old->key_counts[s] + w->extra;
    w->now.key_counts = counts;
    return counts != NULL;
}

bool fvi_extra_keys_use(fv_tape *t, const fv_multihead *layer, fvi_heads *h, fv_mask *mask,
                        fv_var **bias)
{
    const size_t queries = fvi_rows(h->q), keys = fvi_rows(h->k), extra = fvi_extra_keys(layer);
    const fv_segments *joined;
    fv_error error = {FV_OK, ""};
    if (!fv_mask_check(mask, queries, keys, &error)) {
        fv_refuse(t, "multihead", "%s", error.text);
        return false;
    }
    const fv_mask old = *mask;
    const size_t samples = fvi_mask_patches(&old);
    const fv_segments *of_k = old.keys      ? old.keys
                              : old.queries ? old.queries
                                            : fvi_equal_segments(t, 1, keys);
    const fv_segments *of_extra = fvi_equal_segments(t, samples, extra),
                      *of_q = old.queries ? old.queries : fvi_equal_segments(t, 1, queries);
    if (of_k == NULL || of_q == NULL || of_extra == NULL)
        return false;
    fv_var *extra_k = extra_rows(t, layer, samples, fvi_columns(h->k), layer->bias_k);
    fv_var *extra_v = extra_rows(t, layer, samples, fvi_columns(h->v), layer->bias_v);
    h->k = fv_segment_concat(t, extra_k, of_extra, h->k, of_k, &joined);
    h->v = fv_segment_concat(t, extra_v, of_extra, h->v, of_k, NULL);
    if (h->k == NULL || h->v == NULL)
        return false;
    widening w = {.t = t,
                  .old = &old,
                  .queries = queries,
                  .keys = keys,
                  .samples = samples,
                  .extra = extra,
                  .now = old,
                  .with_bias = *bias != NULL};
    w.now.queries = of_q;
    w.now.keys = joined;
    if (!old.align_end)
        w.now.offset += (int)extra;
    if (!widen_counts(&w) || !(rules_reach(&w) ? widen_rows(&w) : list_edges(&w)))
        return false;
    *mask = w.now;
    *bias = w.with_bias ? widen_bias(&w, *bias) : NULL;
    return fv_tape_ok(t);
}
