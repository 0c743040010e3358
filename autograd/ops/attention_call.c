/* Calls of attention: options against shapes, and what is made of other ops. */
#include "autograd/ops/attention.h"

#include "tensor/math.h"

#include <math.h>

#if FVI_ONCE
/* Whether x is absent or has one of two shapes; refuses otherwise. */
static bool fits(fv_tape *t, const char *op, const char *what, const fv_var *x, fv_shape one,
                 fv_shape other)
{
    char a[160], b[160];
    if (x == NULL || fv_shape_equal(x->value.shape, one) || fv_shape_equal(x->value.shape, other))
        return true;
    if (fv_shape_equal(one, other))
        fv_refuse(t, op, "%s %s, expected %s", what, fv_describe(t, x), fv_shape_text(one, a));
    else
        fv_refuse(t, op, "%s %s, expected %s or %s", what, fv_describe(t, x), fv_shape_text(one, a),
                  fv_shape_text(other, b));
    return false;
}

/* What is added to scores and values; false after a refusal. */
static bool resolve_biases(fv_tape *t, const char *op, const fv_attention_opts *opts,
                           const fv_mask *mask, fvi_attention *a)
{
    const fv_var *relative = opts->relative, *bias = opts->bias;
    const bool edges = mask != NULL && mask->edges != NULL;
    const fv_var *by_distance = relative ? relative : opts->relative_values;
    if (by_distance != NULL) {
        const fv_shape r = by_distance->value.shape;
        const size_t columns = !relative ? r.size[0] : r.rank > 0 ? r.size[r.rank - 1] : 0;
        if (r.rank == 0 || columns % 2 == 0 || columns > INT32_MAX) {
            fv_refuse(t, op, "relative %s %s, expected an odd number of distances, 2 clip + 1",
                      relative ? "bias" : "values", fv_describe(t, by_distance));
            return false;
        }
        a->clip = (int)(columns / 2);
    }
    const size_t columns = 2 * (size_t)a->clip + 1;
    a->relative_rows = relative != NULL && relative->value.shape.rank == 3;
    if (!fits(t, op, "relative bias", relative, FV_SHAPE(a->heads, columns),
              FV_SHAPE(a->queries, a->heads, columns)) ||
        !fits(t, op, "relative values", opts->relative_values, FV_SHAPE(columns, a->vd),
              FV_SHAPE(columns, a->vd)) ||
        !fits(t, op, "slopes", opts->slopes, FV_SHAPE(a->heads), FV_SHAPE(a->heads)))
        return false;
    if (!edges && (opts->edge_keys != NULL || opts->edge_values != NULL)) {
        fv_refuse(t, op, "vectors of edges, but the mask has no edges");
        return false;
    }
    size_t pairs = edges ? mask->edges->offsets[mask->edges->rows] : 0;
    if (edges &&
        (!fits(t, op, "bias", bias, FV_SHAPE(pairs, a->heads), FV_SHAPE(pairs, 1)) ||
         !fits(t, op, "keys of edges", opts->edge_keys, FV_SHAPE(pairs, a->kv_heads * a->qk),
               FV_SHAPE(pairs, a->kv_heads * a->qk)) ||
         !fits(t, op, "values of edges", opts->edge_values, FV_SHAPE(pairs, a->kv_heads * a->vd),
               FV_SHAPE(pairs, a->kv_heads * a->vd))))
        return false;
    if (!edges && bias != NULL) {
        if (!fvi_mask_all_pairs(mask, a->queries, a->keys, &pairs)) {
            fv_refuse(t, op, "more pairs than there can be");
            return false;
        }
        if (!fits(t, op, "bias", bias, FV_SHAPE(a->heads, pairs), FV_SHAPE(1, pairs)))
            return false;
    }
    a->pairs = pairs;
    a->bias_heads = bias ? bias->value.shape.size[edges ? 1 : 0] : 0;
    return true;
}

/* How scores are made and become weights; false after a refusal. */
static bool resolve_score(fv_tape *t, const char *op, const fv_attention_opts *opts,
                          fvi_attention *a)
{
    char text[FVI_NUMBER];
    const fv_shape w = opts->weight ? opts->weight->value.shape : FV_SCALAR;
    if ((unsigned)opts->score > FV_SCORE_USER || (unsigned)opts->inner > FV_INNER_IDENTITY ||
        (unsigned)opts->normalizer > FV_NORMALIZE_NONE) {
        fv_refuse(t, op, "score %d with inner function %d, normalizer %d: no such choice",
                  (int)opts->score, (int)opts->inner, (int)opts->normalizer);
        return false;
    }
    a->score = opts->score;
    a->inner = opts->inner;
    a->inner_slope = opts->inner_slope != 0 ? opts->inner_slope : 0.2;
    a->normalizer = opts->normalizer;
    a->scale = opts->scale != 0                           ? opts->scale
               : opts->score == FV_SCORE_DOT && a->qk > 0 ? 1 / sqrt((double)a->qk)
                                                          : 1;
    if (!(opts->softcap >= 0 && isfinite(opts->softcap))) {
        fv_refuse(t, op, "softcap %s, expected a number of at least 0",
                  fvi_number(text, opts->softcap, 6));
        return false;
    }
    a->softcap = opts->softcap;
    if (!(opts->dropout >= 0 && opts->dropout < 1)) {
        fv_refuse(t, op, "dropout %s, expected 0 <= p < 1", fvi_number(text, opts->dropout, 6));
        return false;
    }
    a->dropout = t->mode == FV_TRAIN ? opts->dropout : 0;
    a->rng = fv_tape_rng(t);
    if (opts->score == FV_SCORE_ADDITIVE && opts->weight == NULL) {
        fv_refuse(t, op, "an additive score needs its weight, [%zu, %zu]", a->heads, a->qk);
        return false;
    }
    if (opts->score == FV_SCORE_USER &&
        (opts->user == NULL || opts->user->forward == NULL || opts->user->backward == NULL)) {
        fv_refuse(t, op, "a score of one's own needs its two functions");
        return false;
    }
    if (opts->score == FV_SCORE_USER && opts->weight != NULL &&
        (w.rank != 2 || w.size[0] != a->heads)) {
        fv_refuse(t, op, "weight %s, expected [%zu, any]", fv_describe(t, opts->weight), a->heads);
        return false;
    }
    if (opts->score == FV_SCORE_ADDITIVE &&
        !fits(t, op, "weight", opts->weight, FV_SHAPE(a->heads, a->qk), FV_SHAPE(a->heads, a->qk)))
        return false;
    if (opts->score != FV_SCORE_ADDITIVE && opts->score != FV_SCORE_USER && opts->weight != NULL) {
        fv_refuse(t, op, "a weight, but the score has none");
        return false;
    }
    a->user = opts->user;
    a->weights = w.rank == 2 ? w.size[1] : 0;
    return true;
}

/* Records a call whose shapes are in o->form. */
static fv_var *record(fv_tape *t, const char *op, const fv_mask *mask,
                      const fv_attention_opts *opts, attention_options *o, fv_var *q, fv_var *k,
                      fv_var *v)
{
    fv_error error = {FV_OK, ""};
    size_t width;
    fvi_attention *a = &o->form;
    if (!fv_mask_check(mask, a->queries, a->keys, &error))
        return fv_refuse(t, op, "%s", error.text);
    if (!fvi_mul(a->heads, a->vd, &width))
        return fv_refuse(t, op, "%zu heads of width %zu: wider than can be", a->heads, a->vd);
    if (!resolve_score(t, op, opts, a) || !resolve_biases(t, op, opts, mask, a))
        return NULL;
    o->masked = mask != NULL;
    if (mask != NULL)
        o->mask = *mask;
    fv_var *in[INPUTS] = {q,
                          k,
                          v,
                          opts->relative,
                          opts->slopes,
                          opts->bias,
                          opts->weight,
                          opts->edge_keys,
                          opts->edge_values,
                          opts->relative_values};
    const bool together = k == NULL;
    in[2] = together ? q : v;
    return fvi_record(t, together ? FVI_OP_self_attention : FVI_OP_attention,
                      FV_SHAPE(a->queries, width), o, sizeof *o, together ? INPUTS - 2 : INPUTS,
                      together ? in + 2 : in);
}

/* Each head of x divided by its length. */
static fv_var *unit_heads(fv_tape *t, fv_var *x, size_t heads)
{
    const fv_shape whole = x->value.shape;
    x = fv_reshape(t, x, FV_SHAPE(whole.size[0], heads, whole.size[1] / heads));
    x = fv_l2_normalize(t, x, 2, NULL);
    return fv_reshape(t, x, whole);
}

/* q W for each head. */
static fv_var *bilinear_queries(fv_tape *t, const char *op, fv_var *q, size_t heads, fv_var *w)
{
    const size_t rows = fvi_rows(q), width = fvi_columns(q) / heads;
    if (w == NULL)
        return fv_refuse(t, op, "a bilinear score needs its weight, [%zu, %zu, width of k]", heads,
                         width);
    const fv_shape s = w->value.shape;
    if (s.rank != 3 || s.size[0] != heads || s.size[1] != width)
        return fv_refuse(t, op, "weight %s, expected [%zu, %zu, width of k]", fv_describe(t, w),
                         heads, width);
    q = fv_einsum(t, "rhi,hij->rhj", fv_reshape(t, q, FV_SHAPE(rows, heads, width)), w);
    return fv_reshape(t, q, FV_SHAPE(rows, heads * s.size[2]));
}

/* The cosine of keys that are sums, k + pair_k, which only the kernel makes. A vector of length 0 has the
 * cosine 0. */
static void cosine(void *context, size_t width, const fv_real *q, size_t count,
                   const fv_real *const *keys, const fv_real *weight, fv_real *score)
{
    (void)context, (void)weight;
    for (size_t j = 0; j < count; j++) {
        fv_real qq = 0, kk = 0, qk = 0;
        for (size_t c = 0; c < width; c++) {
            qq += q[c] * q[c];
            kk += keys[j][c] * keys[j][c];
            qk += q[c] * keys[j][c];
        }
        const fv_real size = fvi_sqrt(qq) * fvi_sqrt(kk);
        score[j] = fv_re(size) == 0 ? 0 : qk / size;
    }
}

/* with s = q k' / (|q| |k|): dq = k / (|q| |k|) - s q / |q|^2, and the same for k */
static void cosine_backward(void *context, size_t width, const fv_real *q, size_t count,
                            const fv_real *const *keys, const fv_real *weight, const fv_real *slope,
                            fv_real *dq, fv_real *const *dkeys, fv_real *dweight)
{
    (void)context, (void)weight, (void)dweight;
    for (size_t j = 0; j < count; j++) {
        const fv_real *k = keys[j];
        fv_real qq = 0, kk = 0, qk = 0;
        for (size_t c = 0; c < width; c++) {
            qq += q[c] * q[c];
            kk += k[c] * k[c];
            qk += q[c] * k[c];
        }
        const fv_real size = fvi_sqrt(qq) * fvi_sqrt(kk);
        if (fv_re(size) == 0)
            continue;
        const fv_real step = slope[j] / size, by_q = step * qk / qq, by_k = step * qk / kk;
        for (size_t c = 0; dq != NULL && c < width; c++)
            dq[c] += step * k[c] - by_q * q[c];
        for (size_t c = 0; dkeys != NULL && c < width; c++)
            dkeys[j][c] += step * q[c] - by_k * k[c];
    }
}
static const fv_score_function cosine_score = {NULL, cosine, cosine_backward};

/* Cosine and bilinear scores are made of others. */
static void score_by_others(fv_attention_opts *how)
{
    how->scale = how->scale != 0 ? how->scale : 1;
    how->score = how->score == FV_SCORE_COSINE && how->edge_keys ? FV_SCORE_USER : FV_SCORE_DOT;
    how->user = &cosine_score;
}

fv_var *fv_attention(fv_tape *t, fv_var *q, fv_var *k, fv_var *v, const fv_mask *mask,
                     const fv_attention_opts *opts)
{
    const char *op = "attention";
    const fv_attention_opts none = {0};
    fv_attention_opts how = opts ? *opts : none;
    attention_options o = {.masked = false};
    fvi_attention *a = &o.form;
    if (!given(t, op, q) || !given(t, op, k) || !given(t, op, v) ||
        !fvi_is_matrix(t, op, "query", q) || !fvi_is_matrix(t, op, "key", k) ||
        !fvi_is_matrix(t, op, "value", v))
        return NULL;
    a->heads = how.heads ? how.heads : 1;
    a->kv_heads = how.kv_heads ? how.kv_heads : a->heads;
    if (fvi_rows(k) != fvi_rows(v))
        return fv_refuse(t, op, "keys %s with values %s: rows differ", fv_describe(t, k),
                         fv_describe(t, v));
    if (fvi_columns(q) % a->heads != 0 || a->heads % a->kv_heads != 0)
        return fv_refuse(t, op,
                         "%zu columns, %zu heads, %zu key heads: they must divide each other",
                         fvi_columns(q), a->heads, a->kv_heads);
    if (how.score == FV_SCORE_BILINEAR) {
        q = bilinear_queries(t, op, q, a->heads, how.weight);
        how.weight = NULL;
    }
    if (q == NULL)
        return NULL;
    a->qk = fvi_columns(q) / a->heads;
    if (fvi_columns(k) != a->kv_heads * a->qk || fvi_columns(v) % a->kv_heads != 0)
        return fv_refuse(
            t, op, "queries %s of %zu heads, keys %s and values %s of %zu: widths do not fit",
            fv_describe(t, q), a->heads, fv_describe(t, k), fv_describe(t, v), a->kv_heads);
    if (how.score == FV_SCORE_COSINE && how.weight != NULL)
        return fv_refuse(t, op, "a weight, but the score has none");
    if (how.score == FV_SCORE_COSINE && how.edge_keys == NULL) {
        q = unit_heads(t, q, a->heads);
        k = unit_heads(t, k, a->kv_heads);
    }
    if (how.score == FV_SCORE_COSINE || how.score == FV_SCORE_BILINEAR)
        score_by_others(&how);
    if (q == NULL || k == NULL)
        return NULL;
    a->queries = fvi_rows(q);
    a->keys = fvi_rows(k);
    a->vd = fvi_columns(v) / a->kv_heads;
    return record(t, op, mask, &how, &o, q, k, v);
}

fv_var *fv_self_attention(fv_tape *t, fv_var *qkv, const fv_mask *mask,
                          const fv_attention_opts *opts)
{
    const char *op = "self_attention";
    const fv_attention_opts none = {0};
    if (opts == NULL)
        opts = &none;
    attention_options o = {.masked = false};
    fvi_attention *a = &o.form;
    if (!given(t, op, qkv) || !fvi_is_matrix(t, op, "input", qkv))
        return NULL;
    a->heads = opts->heads ? opts->heads : 1;
    a->kv_heads = opts->kv_heads ? opts->kv_heads : a->heads;
    size_t parts;
    if (a->heads % a->kv_heads != 0 || !fvi_mul(a->kv_heads, 2, &parts) ||
        !fvi_add(parts, a->heads, &parts) || fvi_columns(qkv) % parts != 0)
        return fv_refuse(t, op, "%s is not query, key and value of %zu heads and %zu key heads",
                         fv_describe(t, qkv), a->heads, a->kv_heads);
    a->queries = a->keys = fvi_rows(qkv);
    a->qk = a->vd = fvi_columns(qkv) / parts;
    if (opts->score == FV_SCORE_COSINE || opts->score == FV_SCORE_BILINEAR) {
        fv_var *part[3];
        const size_t sizes[] = {a->heads * a->qk, a->kv_heads * a->qk, a->kv_heads * a->vd};
        return fv_split(t, qkv, 1, 3, sizes, part)
                   ? fv_attention(t, part[0], part[1], part[2], mask, opts)
                   : NULL;
    }
    return record(t, op, mask, opts, &o, qkv, NULL, NULL);
}
#endif
