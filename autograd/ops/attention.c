/* Attention on the tape: what the kernel of tensor/kernel/ computes, with its gradients. */
#include "autograd/ops/ops.h"

#include <math.h>

typedef struct {
    fv_mask mask;
    bool masked;
    size_t heads, kv_heads, qk, vd;
    double scale, dropout;
    fv_rng rng;
    int clip;
} attention_options;

/* The kernel's view of a recorded call. Self-attention has q, k and v side by side in one input. */
static fvi_attention call_of(const fv_var *y, bool together)
{
    const attention_options *o = y->options;
    const fv_var *q = y->in[0], *k = y->in[together ? 0 : 1], *v = y->in[together ? 0 : 2];
    const fv_var *relative = y->in[together ? 1 : 3];
    const size_t k_at = together ? o->heads * o->qk : 0;
    const size_t v_at = together ? k_at + o->kv_heads * o->qk : 0;
    return (fvi_attention){.mask = o->masked ? &o->mask : NULL,
                           .queries = fvi_rows(q),
                           .keys = fvi_rows(k),
                           .heads = o->heads,
                           .kv_heads = o->kv_heads,
                           .qk = o->qk,
                           .vd = o->vd,
                           .q = q->value.data,
                           .k = k->value.data + k_at,
                           .v = v->value.data + v_at,
                           .q_row = fvi_columns(q),
                           .k_row = fvi_columns(k),
                           .v_row = fvi_columns(v),
                           .y = y->value.data,
                           .lse = y->saved,
                           .scale = o->scale,
                           .relative = relative ? relative->value.data : NULL,
                           .clip = o->clip,
                           .dropout = o->dropout,
                           .rng = o->rng};
}

static bool forward(fv_tape *t, fv_var *y, bool together)
{
    y->saved = fvi_tape_take(t, fvi_rows(y->in[0]) * ((const attention_options *)y->options)->heads,
                             sizeof(fv_real));
    if (y->saved == NULL)
        return false;
    const fvi_attention a = call_of(y, together);
    fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch =
        fvi_tape_take(t, fvi_attention_scratch(&a, t->threads, false), sizeof *scratch);
    if (scratch != NULL)
        fvi_attention_forward(&a, t->threads, scratch);
    fvi_arena_release(&t->arena, mark);
    return scratch != NULL;
}

/* with P = softmax(s), s = scale q k' + relative: dv = P' dy, dP = dy v', ds = P * (dP - rowsum(P * dP)),
 * dq = scale ds k, dk = scale ds' q, drelative[distance] = ds summed over the pairs at that distance */
static void backward(fv_tape *t, fv_var *y, bool together)
{
    const fvi_attention a = call_of(y, together);
    fv_real *dq = fv_grad(t, y->in[0]);
    fv_real *dk = together ? dq : fv_grad(t, y->in[1]), *dv = together ? dq : fv_grad(t, y->in[2]);
    const fvi_attention_grad g = {.dy = y->grad,
                                  .dq = dq,
                                  .dk = together && dk ? dk + (a.k - a.q) : dk,
                                  .dv = together && dv ? dv + (a.v - a.q) : dv,
                                  .drelative = fv_grad(t, y->in[together ? 1 : 3])};
    fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch =
        fvi_tape_take(t, fvi_attention_scratch(&a, t->threads, true), sizeof *scratch);
    if (scratch != NULL && fv_tape_ok(t))
        fvi_attention_backward(&a, &g, t->threads, scratch);
    fvi_arena_release(&t->arena, mark);
}

static const size_t sample_at[] = {0, 4, 4, 5, 9}, sample_keys_at[] = {0, 3, 5, 5, 11};
static const fv_segments sample_queries = {4, sample_at}, sample_keys = {4, sample_keys_at};

static const size_t sample_edges_at[] = {0, 2, 3, 3, 6, 6, 9, 10, 16, 17};
static const int32_t sample_edges[] = {0, 2, 1, 0, 1, 2, 5, 7, 10, 6, 5, 6, 7, 8, 9, 10, 8};
static const fv_graph sample_graph = {9, sample_edges_at, sample_edges};

/* Rows of a sample with one of NaN behind the first of them, which a mask must hide. */
static fv_var *with_nan(fv_sampler *s, size_t rows, size_t d)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_real *row = fv_tape_alloc(t, d, sizeof *row);
    for (size_t i = 0; row != NULL && i < d; i++)
        row[i] = (fv_real)NAN;
    return fv_concat(t, 3,
                     (fv_var *[]){fv_sample(s, FV_SHAPE(1, d), -1, 1),
                                  fv_constant(t, FV_SHAPE(1, d), row),
                                  fv_sample(s, FV_SHAPE(rows - 2, d), -1, 1)},
                     0);
}

/* Query 1 sees nothing and no query sees key 1, which are NaN; others miss a key here and there. */
static fv_var *hidden_sample(fv_sampler *s)
{
    static const unsigned char visible[4][6] = {
        {1, 0, 1, 1, 0, 0}, {0}, {1, 0, 1, 0, 1, 1}, {0, 0, 1, 1, 0, 1}};
    const fv_mask mask = {.visible = *visible};
    const fv_attention_opts opts = {.heads = 2};
    fv_var *q = with_nan(s, 4, 6), *k = with_nan(s, 6, 6), *v = with_nan(s, 6, 4);
    return fv_attention(fv_sampler_tape(s), q, k, v, &mask, &opts);
}

static bool attention_forward(fv_tape *t, fv_var *y)
{
    return forward(t, y, false);
}

static void attention_backward(fv_tape *t, fv_var *y)
{
    backward(t, y, false);
}

/* Grouped heads, causal, window, all; dropout with a bias and without; the same by edges; what is hidden. */
static fv_var *attention_sample(fv_sampler *s, int which)
{
    if (which == 8)
        return hidden_sample(s);
    const bool edges = which == 5 || which == 6, grouped = which == 1 || which == 5;
    fv_var *q = fv_sample(s, FV_SHAPE(9, 12), -1, 1);
    fv_var *k = fv_sample(s, FV_SHAPE(11, grouped ? 6 : 12), -1, 1);
    fv_var *v = fv_sample(s, FV_SHAPE(11, which == 1 ? 10 : 8), -1, 1);
    fv_attention_opts opts = {.heads = which == 6 ? 1 : 4, .kv_heads = grouped ? 2 : 0};
    fv_mask mask = {.queries = &sample_queries,
                    .keys = &sample_keys,
                    .causal = which == 2,
                    .offset = 1,
                    .left = which == 3,
                    .right = which == 3 ? 2 : 0,
                    .edges = edges ? &sample_graph : NULL};
    if (which == 3 || which == 5 || which == 7)
        opts.dropout = 0.3;
    if (which == 3 || which == 5)
        opts.relative = fv_sample(s, FV_SHAPE(4, 5), -1, 1);
    return fv_attention(fv_sampler_tape(s), q, k, v, which == 4 ? NULL : &mask, &opts);
}
FVI_OP(attention, "y = softmax(scale q k' + relative | mask) v, for each head",
       "Vaswani et al., 2017, arXiv 1706.03762; tiled as Dao et al., 2022, arXiv 2205.14135", 9)

static bool self_attention_forward(fv_tape *t, fv_var *y)
{
    return forward(t, y, true);
}

/* as attention's, into the columns of one input */
static void self_attention_backward(fv_tape *t, fv_var *y)
{
    backward(t, y, true);
}

static fv_var *self_attention_sample(fv_sampler *s, int which)
{
    fv_var *qkv = fv_sample(s, FV_SHAPE(9, 24), -1, 1);
    const fv_mask mask = {.queries = &sample_queries, .causal = which == 2};
    const fv_attention_opts opts = {.heads = 2,
                                    .relative = which ? fv_sample(s, FV_SHAPE(2, 7), -1, 1) : NULL};
    return fv_self_attention(fv_sampler_tape(s), qkv, &mask, &opts);
}
FVI_OP(self_attention, "y = attention(q, k, v) of x = [q | k | v]", "as attention", 3)

#if FVI_ONCE
/* Fills what does not depend on the inputs; false after a refusal. */
static bool resolve(fv_tape *t, const char *op, const fv_attention_opts *opts, const fv_mask *mask,
                    size_t queries, size_t keys, size_t q_columns, attention_options *o)
{
    fv_error error = {FV_OK, ""};
    const fv_attention_opts none = {0};
    char text[FVI_NUMBER];
    if (opts == NULL)
        opts = &none;
    o->heads = opts->heads ? opts->heads : 1;
    o->kv_heads = opts->kv_heads ? opts->kv_heads : o->heads;
    if (q_columns % o->heads != 0 || o->heads % o->kv_heads != 0) {
        fv_refuse(t, op, "%zu columns, %zu heads, %zu key heads: they must divide each other",
                  q_columns, o->heads, o->kv_heads);
        return false;
    }
    o->qk = q_columns / o->heads;
    o->scale = opts->scale != 0 ? opts->scale : 1 / sqrt((double)o->qk);
    if (!(opts->dropout >= 0 && opts->dropout < 1)) {
        fv_refuse(t, op, "dropout %s, expected 0 <= p < 1", fvi_number(text, opts->dropout, 6));
        return false;
    }
    o->dropout = t->mode == FV_TRAIN ? opts->dropout : 0;
    o->rng = fv_tape_rng(t);
    if (!fv_mask_check(mask, queries, keys, &error)) {
        fv_refuse(t, op, "%s", error.text);
        return false;
    }
    o->masked = mask != NULL;
    if (mask != NULL)
        o->mask = *mask;
    if (opts->relative == NULL)
        return true;
    const fv_shape r = opts->relative->value.shape;
    if (r.rank != 2 || r.size[0] != o->heads || r.size[1] % 2 == 0 || r.size[1] > INT32_MAX) {
        fv_refuse(t, op, "relative bias %s, expected [%zu, 2 clip + 1]",
                  fv_describe(t, opts->relative), o->heads);
        return false;
    }
    o->clip = (int)(r.size[1] / 2);
    return true;
}

fv_var *fv_attention(fv_tape *t, fv_var *q, fv_var *k, fv_var *v, const fv_mask *mask,
                     const fv_attention_opts *opts)
{
    const char *op = "attention";
    attention_options o = {.masked = false};
    if (!given(t, op, q) || !given(t, op, k) || !given(t, op, v) ||
        !fvi_is_matrix(t, op, "query", q) || !fvi_is_matrix(t, op, "key", k) ||
        !fvi_is_matrix(t, op, "value", v))
        return NULL;
    if (fvi_rows(k) != fvi_rows(v))
        return fv_refuse(t, op, "keys %s with values %s: rows differ", fv_describe(t, k),
                         fv_describe(t, v));
    if (!resolve(t, op, opts, mask, fvi_rows(q), fvi_rows(k), fvi_columns(q), &o))
        return NULL;
    if (fvi_columns(k) != o.kv_heads * o.qk || fvi_columns(v) % o.kv_heads != 0)
        return fv_refuse(
            t, op, "queries %s of %zu heads, keys %s and values %s of %zu: widths do not fit",
            fv_describe(t, q), o.heads, fv_describe(t, k), fv_describe(t, v), o.kv_heads);
    o.vd = fvi_columns(v) / o.kv_heads;
    size_t width;
    if (!fvi_mul(o.heads, o.vd, &width))
        return fv_refuse(t, op, "%zu heads of width %zu: wider than can be", o.heads, o.vd);
    return fvi_record(t, FVI_OP_attention, FV_SHAPE(fvi_rows(q), width), &o, sizeof o, 4,
                      (fv_var *[]){q, k, v, opts ? opts->relative : NULL});
}

fv_var *fv_self_attention(fv_tape *t, fv_var *qkv, const fv_mask *mask,
                          const fv_attention_opts *opts)
{
    const char *op = "self_attention";
    attention_options o = {.masked = false};
    if (!given(t, op, qkv) || !fvi_is_matrix(t, op, "input", qkv))
        return NULL;
    if (fvi_columns(qkv) % 3 != 0 ||
        (opts && opts->kv_heads && opts->kv_heads != (opts->heads ? opts->heads : 1)))
        return fv_refuse(t, op, "%s is not query, key and value of equal width",
                         fv_describe(t, qkv));
    size_t rows = fvi_rows(qkv), d = fvi_columns(qkv) / 3;
    if (!resolve(t, op, opts, mask, rows, rows, d, &o))
        return NULL;
    o.vd = o.qk;
    return fvi_record(t, FVI_OP_self_attention, FV_SHAPE(rows, d), &o, sizeof o, 2,
                      (fv_var *[]){qkv, opts ? opts->relative : NULL});
}

/* The weight of one pair, from the scores' log-sum-exp. */
static fv_real weight_of(const fvi_attention *a, size_t head, size_t i, size_t j, long distance)
{
    const fv_real lse = a->lse[i * a->heads + head];
    const fv_real *q = a->q + i * a->q_row + head * a->qk;
    const fv_real *k = a->k + j * a->k_row + head / (a->heads / a->kv_heads) * a->qk;
    fvi_wide score = 0;
    for (size_t c = 0; c < a->qk; c++)
        score += (fvi_wide)q[c] * (fvi_wide)k[c];
    score *= a->scale;
    if (a->relative != NULL) {
        const long clip = a->clip;
        distance = distance < -clip ? -clip : distance > clip ? clip : distance;
        score += a->relative[head * (size_t)(2 * clip + 1) + (size_t)(distance + clip)];
    }
    return (fv_real)exp((double)fv_re(score - lse));
}

fv_tensor fv_attention_weights(fv_tape *t, const fv_var *y, size_t segment)
{
    const fv_tensor nothing = {FV_SCALAR, NULL};
    bool together = y != NULL && y->op == t->ops->op[FVI_OP_self_attention];
    if (y == NULL || (!together && y->op != t->ops->op[FVI_OP_attention])) {
        fv_refuse(t, "attention_weights", "the value is no attention");
        return nothing;
    }
    const fvi_attention a = call_of(y, together);
    if (segment >= fvi_mask_patches(a.mask)) {
        fv_refuse(t, "attention_weights", "segment %zu of %zu", segment, fvi_mask_patches(a.mask));
        return nothing;
    }
    const fvi_patch p = fvi_mask_patch(a.mask, a.queries, a.keys, segment, NULL);
    const size_t q = p.query, k = p.key, queries = p.queries, keys = p.width;
    const long shift = (long)p.offset;
    size_t count;
    if (!fvi_mul(queries, keys, &count) || !fvi_mul(count, a.heads, &count)) {
        fv_refuse(t, "attention_weights", "more weights than there can be");
        return nothing;
    }
    fv_real *w = fv_tape_alloc(t, count, sizeof *w);
    for (size_t h = 0; w != NULL && h < a.heads; h++)
        for (size_t i = 0; i < queries; i++)
            for (size_t j = 0; j < keys; j++)
                if (fv_mask_sees(a.mask, a.queries, a.keys, q + i, k + j))
                    w[(h * queries + i) * keys + j] =
                        weight_of(&a, h, q + i, k + j, (long)j - (long)i - shift);
    return (fv_tensor){FV_SHAPE(a.heads, queries, keys), w};
}
#endif
