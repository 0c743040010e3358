/* For the tests of the attention kernels: problems of every kind, a plain reference in double,
 * and the comparisons of results. */
#ifndef TEST_ATTENTION_H
#define TEST_ATTENTION_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"

/* ---- the kernels under test ------------------------------------------------------------------ */

typedef struct {
    size_t (*scratch)(const fvi_attention *, int, bool);
    void (*forward)(const fvi_attention *, int, fv_real *);
    void (*backward)(const fvi_attention *, const fvi_attention_grad *, int, fv_real *);
} kernel;

static const kernel kernels[] = {
#define X(isa)                                                                                     \
    {FVI_JOIN2(fvi_attention_scratch, isa), FVI_JOIN2(fvi_attention_forward, isa),                 \
     FVI_JOIN2(fvi_attention_backward, isa)},
    FVI_EACH_ISA(X)
#undef X
};

/* ---- a problem ------------------------------------------------------------------------------- */

enum { SEGMENTS = 12 };

typedef enum {
    FULL,
    CAUSAL,
    CAUSAL_AHEAD,
    CAUSAL_BEHIND,
    WINDOW,
    CAUSAL_WINDOW,
    DIAGONAL,
    DENSE,
    DENSE_CAUSAL,
    EDGES,
    EDGES_WINDOW,
    MASKS
} mask_kind;

typedef struct {
    size_t queries[SEGMENTS], keys[SEGMENTS], count; /* rows of each segment */
} layout;

typedef struct {
    mask_kind mask;
    layout rows;
    size_t heads, kv_heads, qk, vd;
    int clip; /* 0: no relative bias */
    double dropout;
    fv_normalizer normalizer;
    double softcap;
    bool relative_rows, slopes;
    size_t bias_heads; /* of a bias of pairs; 0: none */
    bool hides;        /* the bias of some pairs is -inf */
    bool counts;       /* not all keys of a segment are filled */
    bool align_end;
} shape;

typedef struct {
    fv_real *data;
    size_t count;
} list;

enum { Q, K, V, DY, RELATIVE, SLOPES, BIAS, INPUTS };
enum { Y, LSE, DQ, DK, DV, DRELATIVE, DSLOPES, DBIAS, OUTPUTS };
static const char *const out_names[] = {"y",  "lse",       "dq",      "dk",
                                        "dv", "drelative", "dslopes", "dbias"};

typedef struct {
    size_t query_at[SEGMENTS + 1], key_at[SEGMENTS + 1], pair_at[SEGMENTS + 1];
    size_t filled[SEGMENTS];
    fv_segments queries, keys;
    fv_mask mask;
    fv_graph graph;
    unsigned char *visible;
    size_t *edge_at;
    int32_t *edge_keys;
    fvi_attention a;
    fvi_attention_grad g;
    list in[INPUTS], out[OUTPUTS];
} problem;

static const fv_rng draws = {{11, 22}, {33, 44}};

static inline list list_new(size_t count)
{
    return (list){calloc(count ? count : 1, sizeof(fv_real)), count};
}

/* Normal numbers; what lies between the rows of a strided input is NaN. */
static inline void fill(list x, uint64_t which, size_t width, size_t row)
{
    for (size_t i = 0; i < x.count; i++)
        x.data[i] = i % row < width ? (fv_real)fv_rng_normal(draws, which << 32 | i) : (fv_real)NAN;
}

static inline void clear(problem *p)
{
    for (size_t o = 0; o < OUTPUTS; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            p->out[o].data[i] = o < DQ ? (fv_real)NAN : 1; /* gradients are added to */
}

static inline void make_mask(problem *p, const shape *s)
{
    fv_mask *m = &p->mask;
    *m = (fv_mask){.queries = &p->queries, .keys = &p->keys};
    m->causal = s->mask == CAUSAL || s->mask == CAUSAL_AHEAD || s->mask == CAUSAL_BEHIND ||
                s->mask == CAUSAL_WINDOW || s->mask == DENSE_CAUSAL;
    m->offset = s->mask == CAUSAL_AHEAD ? 3 : s->mask == CAUSAL_BEHIND ? -5 : s->mask == WINDOW;
    if (s->mask == WINDOW || s->mask == EDGES_WINDOW || s->mask == CAUSAL_WINDOW)
        m->left = 20;
    if (s->mask == WINDOW || s->mask == EDGES_WINDOW)
        m->right = 3;
    if (s->mask == DIAGONAL)
        m->left = m->right = FV_NONE;
    m->align_end = s->align_end;
    m->key_counts = s->counts ? p->filled : NULL;
    const size_t queries = p->query_at[s->rows.count], pairs = p->pair_at[s->rows.count];
    size_t at = 0;
    p->visible = calloc(pairs + 1, 1);
    p->edge_at = calloc(queries + 1, sizeof(size_t));
    p->edge_keys = calloc(pairs + 1, sizeof(int32_t));
    for (size_t i = 0; i < pairs; i++)
        p->visible[i] = fv_rng_bits(draws, (uint64_t)9 << 32 | i) % 8 < 3;
    size_t edges = 0;
    for (size_t g = 0; g < s->rows.count; g++)
        for (size_t i = p->query_at[g]; i < p->query_at[g + 1]; i++) {
            for (size_t j = p->key_at[g]; j < p->key_at[g + 1]; j++)
                if (p->visible[at++])
                    p->edge_keys[edges++] = (int32_t)j;
            p->edge_at[i + 1] = edges;
        }
    p->graph = (fv_graph){queries, p->edge_at, p->edge_keys};
    if (s->mask == DENSE || s->mask == DENSE_CAUSAL)
        m->visible = p->visible;
    if (s->mask == EDGES || s->mask == EDGES_WINDOW)
        m->edges = &p->graph;
}

static inline problem *make(const shape *s)
{
    problem *p = calloc(1, sizeof *p);
    for (size_t i = 0; i < s->rows.count; i++) {
        p->query_at[i + 1] = p->query_at[i] + s->rows.queries[i];
        p->key_at[i + 1] = p->key_at[i] + s->rows.keys[i];
        p->pair_at[i + 1] = p->pair_at[i] + s->rows.queries[i] * s->rows.keys[i];
        p->filled[i] = s->counts ? s->rows.keys[i] * (i + 3) / (i + 5) : s->rows.keys[i];
    }
    p->queries = (fv_segments){s->rows.count, p->query_at};
    p->keys = (fv_segments){s->rows.count, p->key_at};
    make_mask(p, s);
    const size_t queries = p->query_at[s->rows.count], keys = p->key_at[s->rows.count];
    cr_assert(fv_mask_check(&p->mask, queries, keys, NULL));
    const size_t q_width = s->heads * s->qk, k_width = s->kv_heads * s->qk,
                 v_width = s->kv_heads * s->vd, y_width = s->heads * s->vd;
    const size_t pairs = p->pair_at[s->rows.count];
    const size_t biases =
        s->clip > 0 ? s->heads * (2 * (size_t)s->clip + 1) * (s->relative_rows ? queries : 1) : 0;
    const size_t width[INPUTS] = {q_width, k_width, v_width, y_width, 1, 1, 1},
                 row[INPUTS] = {q_width + 3, k_width + 5, v_width, y_width, 1, 1, 1},
                 rows[INPUTS] = {queries,
                                 keys,
                                 keys,
                                 queries,
                                 biases,
                                 s->slopes ? s->heads : 0,
                                 s->bias_heads * pairs};
    for (size_t i = 0; i < INPUTS; i++) {
        p->in[i] = list_new(rows[i] * row[i]);
        fill(p->in[i], i, width[i], row[i]);
    }
    for (size_t i = 0; i < p->in[SLOPES].count; i++)
        p->in[SLOPES].data[i] *= (fv_real)0.01; /* distances are long */
    for (size_t i = 0; s->hides && i < p->in[BIAS].count; i++)
        if (fv_rng_bits(draws, (uint64_t)10 << 32 | i % pairs) % 3 == 0)
            p->in[BIAS].data[i] = (fv_real)-INFINITY;
    const size_t outs[OUTPUTS] = {queries * y_width,   queries * s->heads, p->in[Q].count,
                                  p->in[K].count,      p->in[V].count,     p->in[RELATIVE].count,
                                  p->in[SLOPES].count, p->in[BIAS].count};
    for (size_t o = 0; o < OUTPUTS; o++)
        p->out[o] = list_new(outs[o]);
    clear(p);
    p->a = (fvi_attention){.mask = &p->mask,
                           .queries = queries,
                           .keys = keys,
                           .heads = s->heads,
                           .kv_heads = s->kv_heads,
                           .qk = s->qk,
                           .vd = s->vd,
                           .q = p->in[Q].data,
                           .k = p->in[K].data,
                           .v = p->in[V].data,
                           .q_row = row[Q],
                           .k_row = row[K],
                           .v_row = row[V],
                           .y = p->out[Y].data,
                           .lse = p->out[LSE].data,
                           .scale = 0.7 / sqrt((double)s->qk),
                           .normalizer = s->normalizer,
                           .softcap = s->softcap,
                           .relative = s->clip > 0 ? p->in[RELATIVE].data : NULL,
                           .relative_rows = s->clip > 0 && s->relative_rows,
                           .clip = s->clip,
                           .slopes = s->slopes ? p->in[SLOPES].data : NULL,
                           .bias = s->bias_heads > 0 ? p->in[BIAS].data : NULL,
                           .bias_heads = s->bias_heads,
                           .pairs = pairs,
                           .dropout = s->dropout,
                           .rng = {{1, 2}, {3, 4}}};
    p->g = (fvi_attention_grad){.dy = p->in[DY].data,
                                .dq = p->out[DQ].data,
                                .dk = p->out[DK].data,
                                .dv = p->out[DV].data,
                                .drelative = s->clip > 0 ? p->out[DRELATIVE].data : NULL,
                                .dslopes = s->slopes ? p->out[DSLOPES].data : NULL,
                                .dbias = s->bias_heads > 0 ? p->out[DBIAS].data : NULL};
    return p;
}

static inline void drop(problem *p)
{
    for (size_t i = 0; i < INPUTS; i++)
        free(p->in[i].data);
    for (size_t o = 0; o < OUTPUTS; o++)
        free(p->out[o].data);
    free(p->visible);
    free(p->edge_at);
    free(p->edge_keys);
    free(p);
}

/* Runs forward and backward; the scratch is exactly as long as was asked for, and starts as NaN. */
static inline void run(problem *p, fvi_isa isa, int threads)
{
    clear(p);
    for (int grad = 0; grad < 2; grad++) {
        const size_t count = kernels[isa].scratch(&p->a, threads, grad);
        fv_real *scratch = aligned_alloc(64, (count * sizeof(fv_real) + 63) / 64 * 64 + 64);
        for (size_t i = 0; i < count; i++)
            scratch[i] = (fv_real)NAN;
        if (grad)
            kernels[isa].backward(&p->a, &p->g, threads, scratch);
        else
            kernels[isa].forward(&p->a, threads, scratch);
        free(scratch);
    }
}

/* ---- the reference --------------------------------------------------------------------------- */

static inline double real(fv_real x)
{
    return (double)fv_re(x);
}

/* One row of one head, and what it makes of its keys. */
typedef struct {
    const problem *p;
    size_t head, kv, i, first, end;           /* the key rows of its segment */
    long shift;                               /* position of the row less that of key row first */
    size_t pair;                              /* number of the pair with key row first */
    double *s, *steepness, *w, *keep, *slope; /* by key row */
} walk;

/* Where relative holds the number of the pair with key row j. */
static inline size_t relative_of(const walk *r, size_t j)
{
    const fvi_attention *a = &r->p->a;
    long distance = (long)(j - r->first) - r->shift;
    distance = distance < -a->clip ? -a->clip : distance > a->clip ? a->clip : distance;
    const size_t row = a->relative_rows ? r->i * a->heads + r->head : r->head;
    return row * (2 * (size_t)a->clip + 1) + (size_t)(distance + a->clip);
}

static inline size_t bias_of(const walk *r, size_t j)
{
    const size_t head = r->p->a.bias_heads == 1 ? 0 : r->head;
    return head * r->p->a.pairs + r->pair + (j - r->first);
}

static inline double distance_of(const walk *r, size_t j)
{
    return fabs((double)(j - r->first) - (double)r->shift);
}

/* s, -inf for what is hidden, and the slope of the softcap. */
static inline void reference_scores(const walk *r)
{
    const fvi_attention *a = &r->p->a;
    const fv_real *q = a->q + r->i * a->q_row + r->head * a->qk;
    for (size_t j = r->first; j < r->end; j++) {
        double s = 0;
        r->s[j] = -INFINITY;
        r->steepness[j] = 1;
        if (!fv_mask_sees(a->mask, a->queries, a->keys, r->i, j))
            continue;
        for (size_t c = 0; c < a->qk; c++)
            s += real(q[c]) * real(a->k[j * a->k_row + r->kv * a->qk + c]);
        s *= a->scale;
        if (a->softcap > 0) {
            r->steepness[j] = 1 - pow(tanh(s / a->softcap), 2);
            s = a->softcap * tanh(s / a->softcap);
        }
        if (a->relative != NULL)
            s += real(a->relative[relative_of(r, j)]);
        if (a->slopes != NULL)
            s -= real(a->slopes[r->head]) * distance_of(r, j);
        if (a->bias != NULL)
            s += real(a->bias[bias_of(r, j)]);
        r->s[j] = s;
    }
}

/* The weights before dropout; returns what the kernel keeps of the row in lse. */
static inline double reference_weights(const walk *r)
{
    const fv_normalizer n = r->p->a.normalizer;
    const bool one = n == FV_NORMALIZE_SOFTMAX_PLUS_ONE, softmax = one || n == FV_NORMALIZE_SOFTMAX;
    double highest = one ? 0 : -INFINITY, sum = 0, count = 0;
    for (size_t j = r->first; j < r->end; j++) {
        count += r->s[j] != -INFINITY;
        highest = fmax(highest, r->s[j]);
    }
    for (size_t j = r->first; j < r->end; j++)
        if (r->s[j] != -INFINITY)
            sum += softmax ? exp(r->s[j] - highest) : fmax(r->s[j], 0);
    const double lse = count == 0 ? -INFINITY : highest + log(sum + (one ? exp(-highest) : 0));
    for (size_t j = r->first; j < r->end; j++) {
        const double s = r->s[j];
        r->w[j] = s == -INFINITY              ? 0
                  : softmax                   ? exp(s - lse)
                  : n == FV_NORMALIZE_RELU    ? (s > 0 ? s / sum : 0)
                  : n == FV_NORMALIZE_SIGMOID ? 1 / (1 + exp(-s))
                  : n == FV_NORMALIZE_MEAN    ? s / count
                                              : s;
    }
    return softmax ? lse : n == FV_NORMALIZE_RELU ? sum : n == FV_NORMALIZE_MEAN ? count : 0;
}

/* The slope of each score from that of each weight (in slope, dropout included) and their level. */
static inline void reference_slopes(const walk *r, double kept, double level)
{
    const fv_normalizer n = r->p->a.normalizer;
    for (size_t j = r->first; j < r->end; j++) {
        const double s = r->s[j], w = r->w[j], dw = r->slope[j];
        r->slope[j] = s == -INFINITY              ? 0
                      : n == FV_NORMALIZE_RELU    ? (s > 0 ? (dw - level) / kept : 0)
                      : n == FV_NORMALIZE_SIGMOID ? dw * w * (1 - w)
                      : n == FV_NORMALIZE_MEAN    ? dw / kept
                      : n == FV_NORMALIZE_NONE    ? dw
                                                  : w * (dw - level);
    }
}

static inline void reference_row(const walk *r, double *out[OUTPUTS])
{
    const fvi_attention *a = &r->p->a;
    const size_t row = r->i * a->heads + r->head;
    const fv_real *q = a->q + r->i * a->q_row + r->head * a->qk, *dy = r->p->g.dy + row * a->vd;
    double level = 0;
    reference_scores(r);
    out[LSE][row] = reference_weights(r);
    for (size_t c = 0; c < a->vd; c++)
        out[Y][row * a->vd + c] = 0;
    for (size_t j = r->first; j < r->end; j++) {
        const uint64_t index = ((uint64_t)(r->head * a->queries + r->i) << 32) + (j - r->first);
        r->keep[j] = fv_rng_bits(a->rng, index) >= a->dropout * 0x1p32 ? 1 / (1 - a->dropout) : 0;
        r->slope[j] = 0;
        for (size_t c = 0; r->s[j] != -INFINITY && c < a->vd; c++) {
            const size_t v = j * a->v_row + r->kv * a->vd + c;
            const double z = r->keep[j];
            out[Y][row * a->vd + c] += r->w[j] * z * real(a->v[v]);
            out[DV][v] += r->w[j] * z * real(dy[c]);
            r->slope[j] += z * real(dy[c]) * real(a->v[v]);
            level += real(dy[c]) * r->w[j] * z * real(a->v[v]);
        }
    }
    reference_slopes(r, out[LSE][row], level);
    for (size_t j = r->first; j < r->end; j++) {
        if (r->s[j] == -INFINITY)
            continue;
        if (a->relative != NULL)
            out[DRELATIVE][relative_of(r, j)] += r->slope[j];
        if (a->slopes != NULL)
            out[DSLOPES][r->head] -= r->slope[j] * distance_of(r, j);
        if (a->bias != NULL)
            out[DBIAS][bias_of(r, j)] += r->slope[j];
        for (size_t c = 0; c < a->qk; c++) {
            const size_t k = j * a->k_row + r->kv * a->qk + c;
            const double slope = a->scale * r->steepness[j] * r->slope[j];
            out[DQ][r->i * a->q_row + r->head * a->qk + c] += slope * real(a->k[k]);
            out[DK][k] += slope * real(q[c]);
        }
    }
}

static inline walk walk_new(const problem *p)
{
    walk r = {.p = p};
    double **const lists[] = {&r.s, &r.steepness, &r.w, &r.keep, &r.slope};
    for (size_t x = 0; x < 5; x++)
        *lists[x] = calloc(p->a.keys + 1, sizeof(double));
    return r;
}

static inline void walk_drop(const walk *r)
{
    double *const lists[] = {r->s, r->steepness, r->w, r->keep, r->slope};
    for (size_t x = 0; x < 5; x++)
        free(lists[x]);
}

static inline void walk_to(walk *r, size_t head, size_t i)
{
    const problem *p = r->p;
    const fvi_attention *a = &p->a;
    const size_t s = fv_segments_find(&p->queries, i), at = i - p->query_at[s];
    const size_t queries = p->query_at[s + 1] - p->query_at[s];
    r->head = head;
    r->i = i;
    r->kv = head / (a->heads / a->kv_heads);
    r->first = p->key_at[s];
    r->end = p->key_at[s + 1];
    r->shift =
        (long)at + a->mask->offset + (a->mask->align_end ? (long)p->filled[s] - (long)queries : 0);
    r->pair = p->pair_at[s] + at * (r->end - r->first);
}

/* Relu bends at 0 and divides by a sum that may be next to 0: draws queries that are away from both. */
static inline void avoid_kinks(problem *p)
{
    walk r = walk_new(p);
    for (size_t head = 0; head < p->a.heads; head++)
        for (size_t i = 0; i < p->a.queries; i++) {
            walk_to(&r, head, i);
            for (uint64_t draw = 0; draw < 100; draw++) {
                double sum = 0, lowest = INFINITY;
                reference_scores(&r);
                for (size_t j = r.first; j < r.end; j++) {
                    sum += fmax(r.s[j], 0);
                    lowest = fmin(lowest, fabs(r.s[j]));
                }
                if (lowest > 1e-4 && (sum == 0 || sum > 0.2))
                    break;
                for (size_t c = 0; c < p->a.qk; c++)
                    p->in[Q].data[i * p->a.q_row + head * p->a.qk + c] = (fv_real)fv_rng_normal(
                        draws, (30 + draw) << 32 | ((i * p->a.heads + head) * p->a.qk + c));
            }
        }
    walk_drop(&r);
}

/* Everything in double, pair by pair, from the definitions. */
static inline void reference(const problem *p, double *out[OUTPUTS])
{
    const fvi_attention *a = &p->a;
    walk r = walk_new(p);
    for (size_t o = DQ; o < OUTPUTS; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            out[o][i] = 1;
    for (size_t head = 0; head < a->heads; head++)
        for (size_t i = 0; i < a->queries; i++) {
            walk_to(&r, head, i);
            reference_row(&r, out);
        }
    walk_drop(&r);
}

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double tolerance = 1e-12;
#else
static const double tolerance = 2e-5;
#endif

/* What a slope's gradient sums is multiplied by distances. */
static inline double longest(const problem *p)
{
    double most = 1;
    for (size_t s = 0; s < p->queries.count; s++)
        most = fmax(
            most, (double)(p->query_at[s + 1] - p->query_at[s] + p->key_at[s + 1] - p->key_at[s]));
    return most;
}

static inline void compare(const problem *p, double *const expected[OUTPUTS], const char *what)
{
    for (size_t o = 0; o < OUTPUTS; o++)
        for (size_t i = 0; i < p->out[o].count; i++) {
            const double x = real(p->out[o].data[i]), e = expected[o][i];
            cr_assert(x == e ||
                          fabs(x - e) <= tolerance * (fabs(e) + (o == DSLOPES ? longest(p) : 1)),
                      "%s: %s[%zu] is %.17g, not %.17g", what, out_names[o], i, x, e);
        }
}

static inline void same_bits(const problem *p, fv_real *const kept[OUTPUTS], const char *what)
{
    for (size_t o = 0; o < OUTPUTS; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            cr_assert(memcmp(&p->out[o].data[i], &kept[o][i], sizeof(fv_real)) == 0,
                      "%s: %s[%zu] is %.17g, was %.17g", what, out_names[o], i,
                      real(p->out[o].data[i]), real(kept[o][i]));
}

static inline void keep_bits(const problem *p, fv_real *kept[OUTPUTS])
{
    for (size_t o = 0; o < OUTPUTS; o++) {
        kept[o] = calloc(p->out[o].count + 1, sizeof(fv_real));
        memcpy(kept[o], p->out[o].data, p->out[o].count * sizeof(fv_real));
    }
}

static inline void drop_bits(fv_real *kept[OUTPUTS])
{
    for (size_t o = 0; o < OUTPUTS; o++)
        free(kept[o]);
}

#endif
