/* One query row of attention: the keys it sees, their scores and their weights, in scratch.
 *
 * Several heads walk abreast. Numbers of a pair lie [keys seen, heads], so that heads, which are many
 * in graphs, fill the vectors where keys, which are few there, would not; what is done to each number
 * on its own runs over all of them as one list. Sums over keys run in ascending key order. */
#ifndef FVI_ATTENTION_ROW_H
#define FVI_ATTENTION_ROW_H

#include "tensor/kernel/attention_scores.h"
#include "tensor/kernel/sparsemax.h"

typedef struct {
    const fvi_attention *a;
    const fvi_patch *p;
    size_t first, heads, kv; /* the heads first .. first + heads - 1; the key head of the first */
    size_t group;            /* heads a key head */
    size_t i, row;           /* position in the patch, row of the batch */
    int64_t place;           /* position, the patch's shift counted */
    size_t count;            /* keys seen */
    size_t edge;             /* of the first key, when there are edges */
    uint32_t *at;            /* positions of the keys [count] */
    /* Scores; weights (which may take the place of the scores); tanh of the softcap; what dropout
     * multiplies weights by; gradients of weights, then of scores: [count, heads] each. */
    fv_real *s, *w, *cap, *keep, *slope;
    fv_real *most, *sum;              /* [heads] */
    fv_real *key, *value;             /* one pair's, when they are sums [kv_heads * width] */
    fv_real *inner, *outer;           /* f(q + k), and w f'(q + k) [heads * qk] */
    fv_real *user_keys, *user_slopes; /* [FVI_ROW_BLOCK, qk] */
    /* Rows of keys that edges lead to, anywhere in memory, are asked for some edges ahead. */
    struct {
        const fv_real *rows;
        size_t row, width;
    } ahead[4];
} fvi_row;

enum { FVI_ROW_BLOCK = 64 }; /* keys that a user's score is asked for at once */

/* ---- sums ------------------------------------------------------------------------------------- */

#if defined(FV_COMPLEX)
typedef fv_real fvi_four;
#else
typedef fvi_quad
    fvi_four; /* sixteen bytes, which every processor has: heads of graphs are narrow */
#endif

static inline fvi_four fvi_load_four(const fv_real *x)
{
    fvi_four q;
    memcpy(&q, x, sizeof q);
    return q;
}

/* Calls of a function whose last argument is a count of so few that loops over it should be unrolled. */
#define FVI_UNROLLED(n, function, ...)                                                             \
    ((n) == 1   ? function(__VA_ARGS__, 1)                                                         \
     : (n) == 4 ? function(__VA_ARGS__, 4)                                                         \
     : (n) == 8 ? function(__VA_ARGS__, 8)                                                         \
                : function(__VA_ARGS__, n))

FVI_INLINE fv_real fvi_dot_of(const fv_real *x, const fv_real *y, const size_t n)
{
    fvi_four part[4];
    fv_real lane[FVI_QUAD];
    size_t c = 0;
    for (size_t v = 0; v < 4; v++)
        part[v] = (fvi_four){0};
    for (; c + 4 * FVI_QUAD <= n; c += 4 * FVI_QUAD)
        for (size_t v = 0; v < 4; v++)
            part[v] += fvi_load_four(x + c + v * FVI_QUAD) * fvi_load_four(y + c + v * FVI_QUAD);
    for (; c + FVI_QUAD <= n; c += FVI_QUAD)
        part[0] += fvi_load_four(x + c) * fvi_load_four(y + c);
    part[0] = (part[0] + part[2]) + (part[1] + part[3]);
    memcpy(lane, &part[0], sizeof lane);
    for (size_t half = FVI_QUAD / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    for (; c < n; c++)
        lane[0] = fvi_fma(x[c], y[c], lane[0]);
    return lane[0];
}

/* Lanes of sixteen bytes, folded in halves, then one chain over what is left: the same on every
 * processor. */
static inline fv_real fvi_dot(size_t n, const fv_real *x, const fv_real *y)
{
    return FVI_UNROLLED(n, fvi_dot_of, x, y);
}

FVI_INLINE void fvi_add_scaled_of(fv_real alpha, const fv_real *x, fv_real *y, const size_t n)
{
    size_t c = 0;
    for (; c + FVI_WIDTH <= n; c += FVI_WIDTH)
        fvi_store(y + c, fvi_load(y + c) + alpha * fvi_load(x + c));
    for (; c + FVI_QUAD <= n; c += FVI_QUAD) {
        const fvi_four sum = fvi_load_four(y + c) + alpha * fvi_load_four(x + c);
        memcpy(y + c, &sum, sizeof sum);
    }
    for (; c < n; c++)
        y[c] = fvi_fma(alpha, x[c], y[c]);
}

/* y += alpha x */
static inline void fvi_add_scaled(size_t n, fv_real alpha, const fv_real *x, fv_real *y)
{
    FVI_UNROLLED(n, fvi_add_scaled_of, alpha, x, y);
}

/* ---- scratch ---------------------------------------------------------------------------------- */

/* The most keys that a row sees. */
static inline size_t fvi_row_most_keys(const fvi_attention *a)
{
    const fv_graph *edges = a->mask != NULL ? a->mask->edges : NULL;
    size_t most = edges != NULL ? 0 : a->keys;
    for (size_t i = 0; edges != NULL && i < edges->rows; i++)
        most = fvi_most(most, edges->offsets[i + 1] - edges->offsets[i]);
    return most;
}

/* Whole key heads that walk abreast: as many as keep the scores of a row in the cache. */
static inline size_t fvi_row_abreast(const fvi_attention *a, size_t most_keys)
{
    enum { SCORES = 8192 };
    const size_t group = a->heads / a->kv_heads;
    const size_t some = SCORES / fvi_most(1, most_keys * group);
    return group * fvi_most(1, fvi_least(some, a->kv_heads));
}

/* Lays out the scratch of a row for the heads first .. end - 1 at most, and gives its size; with no
 * scratch, only the size. */
static inline size_t fvi_row_layout(fvi_row *r, const fvi_attention *a, bool grad, fv_real *scratch)
{
    const size_t keys = fvi_row_most_keys(a), pairs = keys * fvi_row_abreast(a, keys);
    const bool user = a->score == FV_SCORE_USER;
    const bool inner = a->score == FV_SCORE_ADDITIVE || a->score == FV_SCORE_DISTANCE;
    const struct {
        fv_real **to;
        size_t count;
    } lists[] = {
        {&r->s, pairs},
        {&r->w, grad ? pairs : 0},
        {&r->cap, a->softcap > 0 ? pairs : 0},
        {&r->keep, a->dropout > 0 ? pairs : 0},
        {&r->slope, grad ? pairs : 0},
        {&r->most, a->heads},
        {&r->sum, a->heads},
        {&r->key, a->pair_k != NULL ? a->kv_heads * a->qk : 0},
        {&r->value, a->pair_v != NULL || a->relative_v != NULL ? a->kv_heads * a->vd : 0},
        {&r->inner, inner ? a->heads * a->qk : 0},
        {&r->outer, inner ? a->heads * a->qk : 0},
        {&r->user_keys, user ? FVI_ROW_BLOCK * a->qk : 0},
        {&r->user_slopes, user ? FVI_ROW_BLOCK * a->qk : 0},
    };
    size_t used = 0;
    for (size_t n = 0; n < sizeof lists / sizeof *lists; n++) {
        *lists[n].to = scratch != NULL ? scratch + used : NULL;
        used += fvi_lanes(lists[n].count);
    }
    if (!grad)
        r->w = r->s;
    memset(r->ahead, 0, sizeof r->ahead);
    r->at = scratch != NULL ? (uint32_t *)(void *)(scratch + used) : NULL;
    r->a = a;
    r->group = a->heads / a->kv_heads;
    return used + fvi_lanes(keys); /* a real is at least as long as a position */
}

/* ---- keys seen -------------------------------------------------------------------------------- */

/* The first edge in from .. end - 1 whose key is at least key. */
static inline size_t fvi_lower_edge(const int32_t *keys, size_t from, size_t end, size_t key)
{
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        if ((size_t)keys[middle] < key)
            from = middle + 1;
        else
            end = middle;
    }
    return from;
}

/* Asks the memory for the rows that the next count edges after some lead to. */
static inline void fvi_row_look_ahead(const fvi_row *r, const fv_graph *g, size_t count)
{
    enum { EDGES = 12, LINE = 64 / sizeof(fv_real) };
    const size_t last = g->offsets[g->rows], from = fvi_least(r->edge + EDGES, last);
    for (size_t e = from; e < fvi_least(from + count, last); e++)
        for (size_t n = 0; n < 4 && r->ahead[n].rows != NULL; n++)
            for (size_t c = 0; c < r->ahead[n].width; c += LINE)
                __builtin_prefetch(r->ahead[n].rows + (size_t)g->keys[e] * r->ahead[n].row + c);
}

/* Turns to query i of patch p and lists the keys it sees among positions low .. high - 1. */
static inline void fvi_row_turn(fvi_row *r, const fvi_patch *p, size_t i, size_t low, size_t high)
{
    const fv_mask *m = r->a->mask;
    size_t first, end;
    r->p = p;
    r->i = i;
    r->row = p->query + i;
    r->place = (int64_t)i + p->offset;
    r->count = 0;
    fvi_mask_range(m, p, i, &first, &end);
    first = fvi_most(first, low);
    end = fvi_least(end, high);
    if (first >= end)
        return;
    if (m != NULL && m->edges != NULL) {
        const fv_graph *g = m->edges;
        const size_t to = g->offsets[r->row + 1];
        r->edge = fvi_lower_edge(g->keys, g->offsets[r->row], to, p->key + first);
        r->count = fvi_lower_edge(g->keys, r->edge, to, p->key + end) - r->edge;
        for (size_t b = 0; b < r->count; b++)
            r->at[b] = (uint32_t)((size_t)g->keys[r->edge + b] - p->key);
        fvi_row_look_ahead(r, g, r->count);
        return;
    }
    const unsigned char *visible =
        m != NULL && m->visible != NULL ? m->visible + p->byte + i * p->width : NULL;
    for (size_t j = first; j < end; j++)
        if (visible == NULL || visible[j] != 0)
            r->at[r->count++] = (uint32_t)j;
}

/* Turns to the heads first .. first + heads - 1. */
static inline void fvi_row_heads(fvi_row *r, size_t first, size_t heads)
{
    r->first = first;
    r->heads = heads;
    r->kv = first / r->group;
}

/* The key head of the h-th head abreast. */
static inline size_t fvi_row_kv(const fvi_row *r, size_t h)
{
    return r->group == 1 ? r->first + h : (r->first + h) / r->group;
}

/* How many numbers are in a list of pairs. */
static inline size_t fvi_row_pairs(const fvi_row *r)
{
    return r->count * r->heads;
}

/* The query of the first head; key row b, all its key heads, what the pair adds included; likewise its
 * value. */
static inline const fv_real *fvi_row_query(const fvi_row *r)
{
    return r->a->q + r->row * r->a->q_row + r->first * r->a->qk;
}

static inline const fv_real *fvi_row_key(const fvi_row *r, size_t b)
{
    const fvi_attention *a = r->a;
    const fv_real *k = a->k + (r->p->key + r->at[b]) * a->k_row;
    if (a->pair_k == NULL)
        return k;
    const fv_real *more = a->pair_k + (r->edge + b) * a->kv_heads * a->qk;
    const size_t end = (fvi_row_kv(r, r->heads - 1) + 1) * a->qk;
    for (size_t c = r->kv * a->qk; c < end; c++)
        r->key[c] = k[c] + more[c];
    return r->key;
}

static inline size_t fvi_row_column(const fvi_row *r, size_t b)
{
    return fvi_relative_at(r->a, r->place, r->at[b]);
}

static inline const fv_real *fvi_row_value(const fvi_row *r, size_t b)
{
    const fvi_attention *a = r->a;
    const fv_real *v = a->v + (r->p->key + r->at[b]) * a->v_row;
    if (a->pair_v == NULL && a->relative_v == NULL)
        return v;
    const size_t from = r->kv * a->vd, end = (fvi_row_kv(r, r->heads - 1) + 1) * a->vd;
    const fv_real *more =
        a->pair_v != NULL ? a->pair_v + (r->edge + b) * a->kv_heads * a->vd : NULL;
    const fv_real *by = a->relative_v != NULL ? a->relative_v + fvi_row_column(r, b) * a->vd : NULL;
    for (size_t c = from; c < end; c++) {
        const fv_real sum = more != NULL ? v[c] + more[c] : v[c];
        r->value[c] = by != NULL ? sum + by[c % a->vd] : sum;
    }
    return r->value;
}

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
                wb[h] = fvi_hidden(sb[h]) ? sb[h] : sb[h] - by[h];
            break;
        default:
            for (size_t h = 0; h < heads; h++)
                wb[h] = sb[h];
        }
    }
    if (how == FV_NORMALIZE_SOFTMAX || how == FV_NORMALIZE_SOFTMAX_PLUS_ONE)
        for (size_t x = 0; x < whole; x++)
            w[x] = fvi_weight(w[x]);
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
