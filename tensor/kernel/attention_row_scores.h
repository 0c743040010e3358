/* Scores of the keys that a row sees, and weights from them. */
#ifndef FVI_ATTENTION_ROW_SCORES_H
#define FVI_ATTENTION_ROW_SCORES_H

#include "tensor/kernel/attention_row.h"
#include "tensor/kernel/sparsemax.h"

/* ---- scores ----------------------------------------------------------------------------------- */

FVI_INLINE void fvi_row_inner_of(const fvi_attention *a, const fv_real *q, const fv_real *k,
                                 const fv_real *weight, fv_real *restrict f,
                                 fv_real *restrict slope, const size_t n)
{
    const fv_real leak = a->inner == FV_INNER_RELU       ? 0
                         : a->inner == FV_INNER_IDENTITY ? 1
                                                         : (fv_real)a->inner_slope;
    for (size_t c = 0; c < n; c++)
        f[c] = q[c] + k[c];
    if (a->inner == FV_INNER_TANH) {
        for (size_t c = 0; c < n; c++)
            f[c] = fvi_tanh(f[c]);
        for (size_t c = 0; slope != NULL && c < n; c++)
            slope[c] = weight[c] * (1 - f[c] * f[c]);
        return;
    }
    for (size_t c = 0; slope != NULL && c < n; c++)
        slope[c] = fv_re(f[c]) > 0 ? weight[c] : weight[c] * leak;
    for (size_t c = 0; c < n; c++)
        f[c] = fv_re(f[c]) > 0 ? f[c] : f[c] * leak;
}

/* f(q + k) and, when slope is given, weight f'(q + k). */
static inline void fvi_row_inner(const fvi_attention *a, size_t n, const fv_real *q,
                                 const fv_real *k, const fv_real *weight, fv_real *f,
                                 fv_real *slope)
{
    if (n == 64)
        fvi_row_inner_of(a, q, k, weight, f, slope, 64);
    else if (n == 32)
        fvi_row_inner_of(a, q, k, weight, f, slope, 32);
    else
        FVI_UNROLLED(n, fvi_row_inner_of, a, q, k, weight, f, slope);
}

static inline void fvi_row_additive(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    const fv_real *q = fvi_row_query(r), *weight = a->weight + r->first * a->qk;
    const bool shared = a->heads != a->kv_heads;
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *k = fvi_row_key(r, b);
        fv_real *s = r->s + b * r->heads, *f = r->inner;
        if (!shared)
            fvi_row_inner(a, r->heads * a->qk, q, k + r->kv * a->qk, NULL, f, NULL);
        for (size_t h = 0; shared && h < r->heads; h++)
            fvi_row_inner(a, a->qk, q + h * a->qk, k + fvi_row_kv(r, h) * a->qk, NULL,
                          f + h * a->qk, NULL);
        for (size_t h = 0; a->qk == 1 && h < r->heads; h++)
            s[h] = weight[h] * f[h];
        for (size_t h = 0; a->qk != 1 && h < r->heads; h++)
            s[h] = fvi_dot(a->qk, weight + h * a->qk, f + h * a->qk);
    }
}

static inline void fvi_row_distance(const fvi_row *r)
{
    const size_t n = r->a->qk;
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *k = fvi_row_key(r, b);
        for (size_t h = 0; h < r->heads; h++) {
            const fv_real *q = fvi_row_query(r) + h * n, *kh = k + fvi_row_kv(r, h) * n;
            for (size_t c = 0; c < n; c++)
                r->inner[c] = q[c] - kh[c];
            r->s[b * r->heads + h] = -fvi_dot(n, r->inner, r->inner);
        }
    }
}

/* The key of pair b for head h, which stays while others follow: it is the n-th of a block. */
static inline const fv_real *fvi_row_user_key(const fvi_row *r, size_t h, size_t b, size_t n)
{
    const size_t width = r->a->qk;
    const fv_real *key = fvi_row_key(r, b) + fvi_row_kv(r, h) * width;
    if (r->a->pair_k == NULL)
        return key;
    return memcpy(r->user_keys + n * width, key, width * sizeof *key);
}

static inline void fvi_row_user(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    const fv_real *keys[FVI_ROW_BLOCK];
    fv_real s[FVI_ROW_BLOCK];
    for (size_t h = 0; h < r->heads; h++)
        for (size_t b = 0; b < r->count; b += FVI_ROW_BLOCK) {
            const size_t count = fvi_least(r->count - b, FVI_ROW_BLOCK);
            const fv_real *weight =
                a->weight != NULL ? a->weight + (r->first + h) * a->weights : NULL;
            for (size_t x = 0; x < count; x++)
                keys[x] = fvi_row_user_key(r, h, b + x, x);
            a->user->forward(a->user->context, a->qk, fvi_row_query(r) + h * a->qk, count, keys,
                             weight, s);
            for (size_t x = 0; x < count; x++)
                r->s[(b + x) * r->heads + h] = s[x];
        }
}

static inline void fvi_row_dot(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    const fv_real *q = fvi_row_query(r);
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *k = fvi_row_key(r, b);
        for (size_t h = 0; h < r->heads; h++)
            r->s[b * r->heads + h] = fvi_dot(a->qk, q + h * a->qk, k + fvi_row_kv(r, h) * a->qk);
    }
}

/* Where the bias of pair b in head h stands. */
static inline size_t fvi_row_bias_at(const fvi_row *r, size_t b, size_t h)
{
    const fvi_attention *a = r->a;
    const size_t head = a->bias_heads == 1 ? 0 : r->first + h;
    if (a->mask != NULL && a->mask->edges != NULL)
        return (r->edge + b) * a->bias_heads + head;
    return head * a->pairs + r->p->byte + r->i * r->p->width + r->at[b];
}

/* Where the relative bias of head h at distance 0 columns starts. */
static inline size_t fvi_row_relative_at(const fvi_row *r, size_t h)
{
    const size_t row = r->a->relative_rows ? r->row * r->a->heads : 0;
    return (row + r->first + h) * (2 * (size_t)r->a->clip + 1);
}

/* |j - i| of pair b. */
static inline fv_real fvi_row_distance_of(const fvi_row *r, size_t b)
{
    const int64_t distance = (int64_t)r->at[b] - r->place;
    return (fv_real)(distance < 0 ? -distance : distance);
}

/* Adds relative, slopes and bias to the scores. Where they are -inf the pair is hidden, whatever its
 * score. */
static inline void fvi_row_biases(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    for (size_t b = 0; b < r->count; b++) {
        const size_t column = a->relative != NULL ? fvi_row_column(r, b) : 0;
        const fv_real distance = fvi_row_distance_of(r, b);
        for (size_t h = 0; h < r->heads; h++) {
            fv_real *s = r->s + b * r->heads + h, more = 0;
            if (a->relative != NULL)
                more = a->relative[fvi_row_relative_at(r, h) + column];
            if (a->slopes != NULL)
                more = fvi_fma(-a->slopes[r->first + h], distance, more);
            if (a->bias != NULL)
                more += a->bias[fvi_row_bias_at(r, b, h)];
            *s = fv_re(more) == (fvi_part)-INFINITY ? (fv_real)-INFINITY : *s + more;
        }
    }
}

/* Fills the scores; a hidden pair has -inf, and so has what fills the last vector. */
static inline void fvi_row_scores(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    const size_t pairs = fvi_row_pairs(r), whole = fvi_whole(fvi_lanes(pairs));
    switch (a->score) {
    case FV_SCORE_ADDITIVE:
        fvi_row_additive(r);
        break;
    case FV_SCORE_DISTANCE:
        fvi_row_distance(r);
        break;
    case FV_SCORE_USER:
        fvi_row_user(r);
        break;
    default:
        fvi_row_dot(r);
    }
    for (size_t x = pairs; x < whole; x++)
        r->s[x] = 0;
    if (a->scale != 1)
        for (size_t x = 0; x < whole; x++)
            r->s[x] *= (fv_real)a->scale;
    if (a->softcap > 0) {
        const fv_real most = (fv_real)a->softcap, inverse = (fv_real)(1 / a->softcap);
        for (size_t x = 0; x < whole; x++) {
            r->cap[x] = fvi_tanh(r->s[x] * inverse);
            r->s[x] = r->cap[x] * most;
        }
    }
    if (a->relative != NULL || a->slopes != NULL || a->bias != NULL)
        fvi_row_biases(r);
    for (size_t x = pairs; x < whole; x++)
        r->s[x] = (fv_real)-INFINITY;
}

/* ---- weights ---------------------------------------------------------------------------------- */

static inline bool fvi_hidden(fv_real score)
{
    return fv_re(score) == (fvi_part)-INFINITY;
}

FVI_INLINE void fvi_row_weights_of(const fvi_row *r, const fv_real *statistic, const size_t heads)
{
    const size_t whole = fvi_whole(fvi_lanes(fvi_row_pairs(r)));
    const fv_normalizer how = r->a->normalizer;
    const fv_real *s = r->s;
    fv_real *w = r->w, *by = r->sum;
    for (size_t h = 0; h < heads; h++)
        by[h] = how == FV_NORMALIZE_RELU || how == FV_NORMALIZE_MEAN
                    ? (fv_re(statistic[h]) != 0 ? 1 / statistic[h] : 0)
                : fvi_hidden(statistic[h]) ? 0
                                           : statistic[h];
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *sb = s + b * heads;
        fv_real *wb = w + b * heads;
        switch (how) {
        case FV_NORMALIZE_RELU:
            for (size_t h = 0; h < heads; h++)
                wb[h] = fv_re(sb[h]) <= 0 ? 0 : sb[h] * by[h];
            break;
        case FV_NORMALIZE_MEAN:
            for (size_t h = 0; h < heads; h++)
                wb[h] = fvi_hidden(sb[h]) ? 0 : sb[h] * by[h];
            break;
        case FV_NORMALIZE_SPARSEMAX:
            for (size_t h = 0; h < heads; h++)
                wb[h] = fv_re(sb[h]) <= fv_re(by[h]) ? 0 : sb[h] - by[h];
            break;
        case FV_NORMALIZE_SOFTMAX:
        case FV_NORMALIZE_SOFTMAX_PLUS_ONE:
            for (size_t h = 0; h < heads; h++)
                wb[h] = sb[h] - by[h];
            break;
        default: /* below, from the scores alone */
            break;
        }
    }
    if (how == FV_NORMALIZE_SOFTMAX || how == FV_NORMALIZE_SOFTMAX_PLUS_ONE)
        for (size_t x = 0; x < whole; x++)
            w[x] = fvi_hidden(s[x]) ? 0 : fvi_weight(w[x]);
    if (how == FV_NORMALIZE_SIGMOID)
        for (size_t x = 0; x < whole; x++)
            w[x] = fvi_hidden(s[x]) ? 0 : fvi_sigmoid(s[x]);
    if (how == FV_NORMALIZE_NONE)
        for (size_t x = 0; x < whole; x++)
            w[x] = fvi_hidden(s[x]) ? 0 : s[x];
}

/* Weights from the scores and each head's statistic (see fvi_attention.lse), before dropout. */
static inline void fvi_row_weights(const fvi_row *r, const fv_real *statistic)
{
    FVI_UNROLLED(r->heads, fvi_row_weights_of, r, statistic);
}

/* Each head's largest score. */
FVI_INLINE void fvi_row_most(const fvi_row *r, const size_t heads)
{
    const fv_real *restrict s = r->s;
    fv_real *restrict most = r->most;
    for (size_t h = 0; h < heads; h++)
        most[h] = (fv_real)-INFINITY;
    for (size_t b = 0; b < r->count; b++)
        for (size_t h = 0; h < heads; h++) {
            const fvi_part x = fv_re(s[b * heads + h]);
            most[h] = x > fv_re(most[h]) ? x : most[h];
        }
}

FVI_INLINE void fvi_row_softmax_of(const fvi_row *r, fv_real *statistic, const size_t heads)
{
    const size_t whole = fvi_whole(fvi_lanes(fvi_row_pairs(r)));
    const bool plus_one = r->a->normalizer == FV_NORMALIZE_SOFTMAX_PLUS_ONE;
    fv_real *restrict s = r->s, *restrict most = r->most, *restrict sum = r->sum;
    fvi_row_most(r, heads);
    for (size_t h = 0; h < heads; h++) {
        statistic[h] = most[h]; /* -inf: it saw nothing, unless the sum is NaN */
        if (fvi_hidden(most[h]) || (plus_one && fv_re(most[h]) < 0))
            most[h] = 0;
        sum[h] = 0;
    }
    for (size_t b = 0; b < r->count; b++)
        for (size_t h = 0; h < heads; h++)
            s[b * heads + h] -= most[h];
    for (size_t x = 0; x < whole; x++)
        s[x] = fvi_weight(s[x]);
    for (size_t b = 0; b < r->count; b++)
        for (size_t h = 0; h < heads; h++)
            sum[h] += s[b * heads + h];
    for (size_t h = 0; h < heads; h++) {
        const bool saw = !fvi_hidden(statistic[h]) || fv_re(sum[h]) != 0;
        const fv_real total = plus_one ? sum[h] + fvi_weight(-most[h]) : sum[h];
        statistic[h] = saw ? most[h] + fvi_log(total) : (fv_real)-INFINITY;
        sum[h] = saw ? 1 / total : 0;
    }
    for (size_t b = 0; b < r->count; b++)
        for (size_t h = 0; h < heads; h++)
            s[b * heads + h] *= sum[h];
}

/* e^(s - most) in the place of the scores, their sum, and with it weights. */
static inline void fvi_row_softmax(const fvi_row *r, fv_real *statistic)
{
    FVI_UNROLLED(r->heads, fvi_row_softmax_of, r, statistic);
}

/* The thresholds of sparsemax; 0 for a head that sees nothing. */
static inline void fvi_row_sparsemax(const fvi_row *r, fv_real *statistic)
{
    const size_t heads = r->heads;
    fvi_row_most(r, heads);
    for (size_t h = 0; h < heads; h++)
        r->sum[h] = fvi_hidden(r->most[h]) ? 0 : r->most[h];
    for (size_t h = 0; h < heads; h += FVI_SPARSEMAX_ABREAST)
        fvi_sparsemax(r->count, fvi_least(heads - h, FVI_SPARSEMAX_ABREAST), heads, r->s + h,
                      r->sum + h, statistic + h);
    for (size_t h = 0; h < heads; h++)
        statistic[h] =
            fvi_hidden(r->most[h]) && fv_re(statistic[h]) == -1 ? 0 : r->sum[h] + statistic[h];
}

/* Each head's statistic, and weights in the place of the scores. */
static inline void fvi_row_normalize(const fvi_row *r, fv_real *statistic)
{
    const fv_normalizer how = r->a->normalizer;
    const size_t heads = r->heads;
    if (how == FV_NORMALIZE_SOFTMAX || how == FV_NORMALIZE_SOFTMAX_PLUS_ONE) {
        fvi_row_softmax(r, statistic);
        return;
    }
    for (size_t h = 0; h < heads; h++)
        statistic[h] = 0;
    if (how == FV_NORMALIZE_SPARSEMAX)
        fvi_row_sparsemax(r, statistic);
    for (size_t b = 0; b < r->count; b++)
        for (size_t h = 0; h < heads; h++) {
            const fv_real s = r->s[b * heads + h];
            if (how == FV_NORMALIZE_MEAN)
                statistic[h] += fvi_hidden(s) ? 0 : 1;
            if (how == FV_NORMALIZE_RELU)
                statistic[h] += fv_re(s) <= 0 ? 0 : s;
        }
    fvi_row_weights(r, statistic);
}

/* Fills keep: 0 where dropout drops a weight. */
static inline void fvi_row_keep(const fvi_row *r)
{
    const fvi_attention *a = r->a;
    const uint64_t below = fvi_drop_below(a);
    const fv_real kept = (fv_real)(1 / (1 - a->dropout));
    for (size_t h = 0; h < r->heads; h++) {
        const uint64_t first = fvi_drop_index(a, r->first + h, r->row);
        uint64_t block = UINT64_MAX; /* is none: its words would be beyond the last index */
        uint32_t four[4];
        for (size_t b = 0; b < r->count; b++) {
            const uint64_t index = first + r->at[b];
            if (index / 4 != block) {
                block = index / 4;
                fvi_philox(a->rng, block, four);
            }
            r->keep[b * r->heads + h] = four[index % 4] >= below ? kept : 0;
        }
    }
}

#endif
