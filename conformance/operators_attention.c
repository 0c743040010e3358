/* Attention, rotary positions, linear attention: [samples, heads, time, d] or [samples, time, heads * d] as rows
 * and segments. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

/* ---- layouts --------------------------------------------------------------------------------- */

/* Samples of equal lengths, one segment each. */
static const fv_segments *even_segments(const call *c, size_t samples, size_t length)
{
    fv_segments *s = fv_tape_alloc(c->t, 1, sizeof *s);
    size_t *at = fv_tape_alloc(c->t, samples + 1, sizeof *at);
    for (size_t i = 0; s != NULL && at != NULL && i <= samples; i++)
        at[i] = i * length;
    if (s != NULL)
        *s = (fv_segments){samples, at};
    return s;
}

/* The last axis of x, and all others as one. */
static size_t columns(const fv_var *x)
{
    return x->value.shape.rank > 0 ? x->value.shape.size[x->value.shape.rank - 1] : 1;
}

static fv_var *flat(const call *c, fv_var *x)
{
    const size_t count = x ? fv_shape_count(x->value.shape) : 0;
    return count > 0 ? fv_reshape(c->t, x, FV_SHAPE(count / columns(x), columns(x))) : NULL;
}

/* What x is as rows: samples * time of them, each of heads * d numbers. */
typedef struct {
    fv_var *rows;
    size_t samples, time, heads, d;
} batch;

/* x of four axes, or of three with the heads from an attribute. */
static batch rows_of(const call *c, fv_var *x, int heads)
{
    if (x == NULL || (x->value.shape.rank != 3 && x->value.shape.rank != 4)) {
        fv_refuse(c->t, c->op, "%s, expected three or four axes", fv_describe(c->t, x));
        return (batch){0};
    }
    const size_t *size = x->value.shape.size;
    if (x->value.shape.rank == 3) {
        const size_t count = heads > 0 ? (size_t)heads : 1;
        return (batch){fv_reshape(c->t, x, FV_SHAPE(size[0] * size[1], size[2])), size[0], size[1],
                       count, size[2] / count};
    }
    const batch b = {NULL, size[0], size[2], size[1], size[3]};
    fv_var *turned = fv_permute(c->t, x, (int[]){0, 2, 1, 3});
    return (batch){fv_reshape(c->t, turned, FV_SHAPE(b.samples * b.time, b.heads * b.d)), b.samples,
                   b.time, b.heads, b.d};
}

/* Rows as x has its axes: four, or three. */
static fv_var *like(const call *c, const fv_var *x, batch b, fv_var *rows)
{
    if (x->value.shape.rank == 3)
        return fv_reshape(c->t, rows, FV_SHAPE(b.samples, b.time, b.heads * b.d));
    rows = fv_reshape(c->t, rows, FV_SHAPE(b.samples, b.time, b.heads, b.d));
    return fv_permute(c->t, rows, (int[]){0, 2, 1, 3});
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* Cosines and sines are given: by position, or (without positions) by sample and time. */
static fv_var *rotary_embedding(call *c)
{
    fv_var *x = input(c, 0), *cosines = input(c, 1), *sines = input(c, 2);
    const batch b = rows_of(c, x, whole(c, "num_heads", 0));
    const size_t half = columns(cosines);
    fv_rotary_opts opts = {.heads = b.heads,
                           .interleaved = whole(c, "interleaved", 0) != 0,
                           .width = (size_t)whole(c, "rotary_embedding_dim", 0),
                           .cosines = cosines->value.data,
                           .sines = sines->value.data,
                           .positions_given =
                               half ? fv_shape_count(cosines->value.shape) / half : 0};
    if (b.rows == NULL)
        return NULL;
    if (half != (opts.width ? opts.width : b.d) / 2)
        return fv_refuse(c->t, c->op, "cosines %s for heads of %zu", fv_describe(c->t, cosines),
                         b.d);
    opts.positions = places(c, 3, 0); /* without them a row is its own position */
    if (input(c, 3) == NULL)
        opts.positions = NULL;
    return like(c, x, b, fv_rotary(c->t, b.rows, NULL, &opts));
}

/* ---- linear attention ------------------------------------------------------------------------ */

/* The rule says which inputs count: linear, gated (decay), delta (beta), gated_delta (both). */
static fv_var *linear_attention(call *c)
{
    const char *rule = text(c, "update_rule", "gated_delta");
    const bool gated = strstr(rule, "gated") != NULL, delta = strstr(rule, "delta") != NULL;
    fv_tensor after;
    const batch q = rows_of(c, input(c, 0), whole(c, "q_num_heads", 1)),
                k = rows_of(c, input(c, 1), whole(c, "kv_num_heads", 1)),
                v = rows_of(c, input(c, 2), whole(c, "kv_num_heads", 1));
    const fv_linear_attention_opts opts = {.heads = q.heads,
                                           .kv_heads = k.heads,
                                           .scale = number(c, "scale", 0),
                                           .state = input(c, 3),
                                           .decay = gated ? flat(c, input(c, 4)) : NULL,
                                           .beta = delta ? flat(c, input(c, 5)) : NULL,
                                           .after = &after};
    fv_var *y = fv_linear_attention(c->t, q.rows, k.rows, v.rows,
                                    even_segments(c, q.samples, q.time), &opts);
    if (y == NULL)
        return NULL;
    if (wants(c, 1))
        give(c, 1, fv_constant(c->t, after.shape, after.data));
    return fv_reshape(c->t, y, FV_SHAPE(q.samples, q.time, q.heads * v.d));
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A call of Attention, keys and values with those of the past in front. */
typedef struct {
    batch q, k, v;
    fv_var *keys, *values; /* [samples, kv_heads, time, d] */
    fv_mask mask;
    fv_attention_opts opts;
} attention_call;

/* x as [samples, heads, time, d] behind what a past of the same form gives. */
static fv_var *with_past(const call *c, fv_var *x, batch b, fv_var *past)
{
    if (x->value.shape.rank == 3) {
        x = fv_reshape(c->t, b.rows, FV_SHAPE(b.samples, b.time, b.heads, b.d));
        x = fv_permute(c->t, x, (int[]){0, 2, 1, 3});
    }
    return past ? fv_concat(c->t, 2, (fv_var *[]){past, x}, 2) : x;
}

/* A mask input as a bias [1 or heads, samples * queries * keys]: true is 0 and false -inf, numbers are
 * themselves, and keys that it is too short for are hidden. */
static fv_var *bias_of(const call *c, int i, const attention_call *a)
{
    fv_var *x = input(c, i);
    fv_shape four = {.rank = 4, .size = {1, 1, 1, 1}};
    if (x == NULL)
        return NULL;
    const fv_shape own = x->value.shape;
    if (own.rank < 1 || own.rank > 4)
        return fv_refuse(c->t, c->op, "mask %s", fv_describe(c->t, x));
    for (int axis = 0; axis < own.rank; axis++)
        four.size[4 - own.rank + axis] = own.size[axis];
    if (strcmp(c->in[i].type, "bool") == 0) {
        const fv_bools visible = truths(c, i);
        x = fv_where(c->t, visible, constant(c, own, 0), constant(c, own, -INFINITY));
    }
    x = fv_reshape(c->t, x, four);
    four.size[0] = a->q.samples;
    four.size[2] = a->q.time;
    if (four.size[3] == 1)
        four.size[3] = a->k.time;
    x = fv_expand(c->t, x, four);
    if (four.size[3] < a->k.time)
        x = fv_pad(c->t, x, 3, 0, a->k.time - four.size[3],
                   &(fv_pad_opts){FV_PAD_CONSTANT, -INFINITY});
    x = fv_permute(c->t, x, (int[]){1, 0, 2, 3});
    return fv_reshape(c->t, x, FV_SHAPE(four.size[1], a->q.samples * a->q.time * a->k.time));
}

/* Counts of filled keys. */
static const size_t *counts_of(const call *c, int i)
{
    const fv_var *x = input(c, i);
    const size_t count = x ? fv_shape_count(x->value.shape) : 0;
    size_t *counts = fv_tape_alloc(c->t, count + 1, sizeof *counts);
    for (size_t k = 0; counts != NULL && k < count; k++)
        counts[k] = (size_t)fv_re(x->value.data[k]);
    return counts;
}

static bool read_call(call *c, attention_call *a)
{
    fv_var *past_k = input(c, 4), *past_v = input(c, 5);
    *a = (attention_call){.q = rows_of(c, input(c, 0), whole(c, "q_num_heads", 0)),
                          .k = rows_of(c, input(c, 1), whole(c, "kv_num_heads", 0)),
                          .v = rows_of(c, input(c, 2), whole(c, "kv_num_heads", 0))};
    if (!fv_tape_ok(c->t))
        return false;
    a->keys = with_past(c, input(c, 1), a->k, past_k);
    a->values = with_past(c, input(c, 2), a->v, past_v);
    if (past_k != NULL || past_v != NULL) {
        a->k = rows_of(c, a->keys, 0);
        a->v = rows_of(c, a->values, 0);
    }
    a->mask = fv_mask_segments(even_segments(c, a->q.samples, a->q.time),
                               even_segments(c, a->k.samples, a->k.time));
    a->mask.causal = whole(c, "is_causal", 0) != 0;
    a->mask.offset = past_k ? (int)past_k->value.shape.size[2] : 0;
    if (input(c, 6) != NULL) {
        a->mask.key_counts = counts_of(c, 6);
        a->mask.align_end = true;
    }
    a->opts = (fv_attention_opts){.heads = a->q.heads,
                                  .kv_heads = a->k.heads,
                                  .scale = number(c, "scale", 0),
                                  .softcap = number(c, "softcap", 0),
                                  .bias = bias_of(c, 3, a)};
    return fv_tape_ok(c->t);
}

static fv_var *attend(const call *c, const attention_call *a, const fv_mask *mask,
                      const fv_attention_opts *opts)
{
    return fv_attention(c->t, a->q.rows, a->k.rows, a->v.rows, mask, opts);
}

/* The weights of y, [samples, heads, queries, keys]. */
static fv_var *weights_of(const call *c, const attention_call *a, const fv_var *y)
{
    const size_t each = a->q.heads * a->q.time * a->k.time;
    fv_real *all = fv_tape_alloc(c->t, a->q.samples * each + 1, sizeof *all);
    for (size_t s = 0; all != NULL && y != NULL && s < a->q.samples; s++) {
        const fv_tensor w = fv_attention_weights(c->t, y, s);
        if (w.data == NULL)
            return NULL;
        memcpy(all + s * each, w.data, each * sizeof *all);
    }
    return fv_constant(c->t, FV_SHAPE(a->q.samples, a->q.heads, a->q.time, a->k.time), all);
}

/* What a query and a key give at a stage: 0 the score, 1 behind the cap, 2 with bias and mask, 3 the weight.
 * Without a normaliser weights are scores. */
static fv_var *scores_at(const call *c, const attention_call *a, int stage, const fv_var *y)
{
    fv_attention_opts opts = a->opts;
    if (stage == 3)
        return weights_of(c, a, y);
    opts.normalizer = FV_NORMALIZE_NONE;
    opts.bias = NULL;
    opts.softcap = stage > 0 ? opts.softcap : 0;
    const fv_mask all = fv_mask_segments(a->mask.queries, a->mask.keys);
    fv_var *x = weights_of(c, a, attend(c, a, &all, &opts));
    if (stage < 2 || x == NULL)
        return x;
    const size_t queries = a->q.time, keys = a->k.time, heads = a->q.heads;
    for (size_t i = 0, n = fv_shape_count(x->value.shape); i < n; i++) {
        const size_t pair = i % (queries * keys), sample = i / (heads * queries * keys);
        const size_t query = sample * queries + pair / keys, key = sample * keys + pair % keys;
        if (!fv_mask_sees(&a->mask, a->q.samples * queries, a->k.samples * keys, query, key))
            x->value.data[i] = -INFINITY;
    }
    if (a->opts.bias == NULL)
        return x;
    const fv_shape by_head =
        FV_SHAPE(fv_shape_count(a->opts.bias->value.shape) / (a->q.samples * queries * keys),
                 a->q.samples, queries, keys);
    return fv_add(c->t, x,
                  fv_permute(c->t, fv_reshape(c->t, a->opts.bias, by_head), (int[]){1, 0, 2, 3}));
}

static fv_var *attention(call *c)
{
    attention_call a;
    if (!read_call(c, &a))
        return NULL;
    fv_var *y = attend(c, &a, &a.mask, &a.opts);
    if (y == NULL)
        return NULL;
    give(c, 1, a.keys);
    give(c, 2, a.values);
    if (wants(c, 3))
        give(c, 3, scores_at(c, &a, whole(c, "qk_matmul_output_mode", 0), y));
    const batch out = {y, a.q.samples, a.q.time, a.q.heads, a.v.d};
    return like(c, input(c, 0), out, y);
}

/* Without functions of the score, which the cases leave out. */
static fv_var *flex_attention(call *c)
{
    if (has(c, "score_mod") || has(c, "prob_mod"))
        return lacks(c, "functions of the score as graphs");
    return attention(c);
}

const operation attention_operations[] = {
    {"RotaryEmbedding", .run = rotary_embedding, .needs = 3},
    {"Attention", .run = attention, .needs = 3},
    {"FlexAttention", .run = flex_attention, .needs = 3},
    {"LinearAttention", .run = linear_attention, .needs = 3},
    {0},
};
