/* One query row of attention: the keys it sees, and scratch for their scores and weights.
 *
 * Several heads walk abreast. Numbers of a pair lie [keys seen, heads], so that heads, which are many
 * in graphs, fill the vectors where keys, which are few there, would not; what is done to each number
 * on its own runs over all of them as one list. Sums over keys run in ascending key order. */
#ifndef FVI_ATTENTION_ROW_H
#define FVI_ATTENTION_ROW_H

#include "tensor/kernel/attention_scores.h"

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

/* Turns to query i of patch p and lists the keys it sees. */
static inline void fvi_row_turn(fvi_row *r, const fvi_patch *p, size_t i)
{
    const fv_mask *m = r->a->mask;
    size_t first, end;
    r->p = p;
    r->i = i;
    r->row = p->query + i;
    r->place = (int64_t)i + p->offset;
    r->count = 0;
    fvi_mask_range(m, p, i, &first, &end);
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

/* The same, counted from that of the first head abreast. */
static inline size_t fvi_row_kv_at(const fvi_row *r, size_t h)
{
    return r->group == 1 ? h : (r->first + h) / r->group - r->kv;
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

#endif
