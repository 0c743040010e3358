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
} shape;

typedef struct {
    fv_real *data;
    size_t count;
} list;

typedef struct {
    size_t query_at[SEGMENTS + 1], key_at[SEGMENTS + 1];
    fv_segments queries, keys;
    fv_mask mask;
    fv_graph graph;
    unsigned char *visible;
    size_t *edge_at;
    int32_t *edge_keys;
    fvi_attention a;
    fvi_attention_grad g;
    /* inputs q, k, v, dy, relative, then results y, lse, dq, dk, dv, drelative */
    list in[5], out[6];
} problem;

enum { Q, K, V, DY, RELATIVE };
enum { Y, LSE, DQ, DK, DV, DRELATIVE };
static const char *const out_names[] = {"y", "lse", "dq", "dk", "dv", "drelative"};

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
    for (size_t o = 0; o < 6; o++)
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
    const size_t queries = p->query_at[s->rows.count];
    size_t pairs = 0, at = 0;
    for (size_t i = 0; i < s->rows.count; i++)
        pairs += s->rows.queries[i] * s->rows.keys[i];
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
    }
    p->queries = (fv_segments){s->rows.count, p->query_at};
    p->keys = (fv_segments){s->rows.count, p->key_at};
    make_mask(p, s);
    const size_t queries = p->query_at[s->rows.count], keys = p->key_at[s->rows.count];
    cr_assert(fv_mask_check(&p->mask, queries, keys, NULL));
    const size_t q_width = s->heads * s->qk, k_width = s->kv_heads * s->qk,
                 v_width = s->kv_heads * s->vd, y_width = s->heads * s->vd;
    const size_t biases = s->clip > 0 ? s->heads * (2 * (size_t)s->clip + 1) : 0;
    const size_t width[] = {q_width, k_width, v_width, y_width, 1},
                 row[] = {q_width + 3, k_width + 5, v_width, y_width, 1},
                 rows[] = {queries, keys, keys, queries, biases};
    for (size_t i = 0; i < 5; i++) {
        p->in[i] = list_new(rows[i] * row[i]);
        fill(p->in[i], i, width[i], row[i]);
    }
    const size_t outs[] = {queries * y_width, queries * s->heads, p->in[Q].count,
                           p->in[K].count,    p->in[V].count,     biases};
    for (size_t o = 0; o < 6; o++)
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
                           .relative = s->clip > 0 ? p->in[RELATIVE].data : NULL,
                           .clip = s->clip,
                           .dropout = s->dropout,
                           .rng = {{1, 2}, {3, 4}}};
    p->g = (fvi_attention_grad){.dy = p->in[DY].data,
                                .dq = p->out[DQ].data,
                                .dk = p->out[DK].data,
                                .dv = p->out[DV].data,
                                .drelative = s->clip > 0 ? p->out[DRELATIVE].data : NULL};
    return p;
}

static inline void drop(problem *p)
{
    for (size_t i = 0; i < 5; i++)
        free(p->in[i].data);
    for (size_t o = 0; o < 6; o++)
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

/* Everything in double, pair by pair, from the definitions. */
static inline void reference(const problem *p, double *out[6])
{
    const fvi_attention *a = &p->a;
    const size_t columns = 2 * (size_t)a->clip + 1, group = a->heads / a->kv_heads;
    double *w = calloc(a->keys + 1, sizeof *w);
    double *keep = calloc(a->keys + 1, sizeof *keep);
    for (size_t o = DQ; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            out[o][i] = 1;
    for (size_t h = 0; h < a->heads; h++)
        for (size_t i = 0; i < a->queries; i++) {
            const size_t s = fv_segments_find(&p->queries, i);
            const size_t first = p->key_at[s], end = p->key_at[s + 1], row = i * a->heads + h;
            const fv_real *q = a->q + i * a->q_row + h * a->qk;
            double highest = -INFINITY, sum = 0, level = 0;
            for (size_t j = first; j < end; j++) {
                w[j] = -INFINITY;
                if (!fv_mask_sees(a->mask, a->queries, a->keys, i, j))
                    continue;
                w[j] = 0;
                for (size_t c = 0; c < a->qk; c++)
                    w[j] += real(q[c]) * real(a->k[j * a->k_row + h / group * a->qk + c]);
                w[j] *= a->scale;
                long from = (long)(j - first) - (long)(i - p->query_at[s]) - a->mask->offset;
                from = from < -a->clip ? -a->clip : from > a->clip ? a->clip : from;
                if (a->relative != NULL)
                    w[j] += real(a->relative[h * columns + (size_t)(from + a->clip)]);
                const uint64_t index = ((uint64_t)(h * a->queries + i) << 32) + (j - first);
                keep[j] =
                    fv_rng_bits(a->rng, index) >= a->dropout * 0x1p32 ? 1 / (1 - a->dropout) : 0;
                highest = fmax(highest, w[j]);
            }
            for (size_t j = first; j < end; j++)
                sum += w[j] == -INFINITY ? 0 : exp(w[j] - highest);
            out[LSE][row] = sum > 0 ? highest + log(sum) : -INFINITY;
            for (size_t c = 0; c < a->vd; c++)
                out[Y][row * a->vd + c] = 0;
            for (size_t j = first; j < end; j++) {
                const fv_real *v = a->v + j * a->v_row + h / group * a->vd;
                w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - out[LSE][row]);
                for (size_t c = 0; w[j] > 0 && c < a->vd; c++)
                    out[Y][row * a->vd + c] += w[j] * keep[j] * real(v[c]);
            }
            const fv_real *dy = p->g.dy + row * a->vd;
            for (size_t c = 0; sum > 0 && c < a->vd; c++)
                level += real(dy[c]) * out[Y][row * a->vd + c];
            for (size_t j = first; j < end; j++) {
                if (w[j] == 0)
                    continue;
                const size_t v_at = j * a->v_row + h / group * a->vd;
                const size_t k_at = j * a->k_row + h / group * a->qk;
                double slope = 0;
                for (size_t c = 0; c < a->vd; c++) {
                    slope += real(dy[c]) * real(a->v[v_at + c]);
                    out[DV][v_at + c] += w[j] * keep[j] * real(dy[c]);
                }
                slope = w[j] * (slope * keep[j] - level);
                long from = (long)(j - first) - (long)(i - p->query_at[s]) - a->mask->offset;
                from = from < -a->clip ? -a->clip : from > a->clip ? a->clip : from;
                if (a->relative != NULL)
                    out[DRELATIVE][h * columns + (size_t)(from + a->clip)] += slope;
                for (size_t c = 0; c < a->qk; c++) {
                    out[DQ][i * a->q_row + h * a->qk + c] +=
                        a->scale * slope * real(a->k[k_at + c]);
                    out[DK][k_at + c] += a->scale * slope * real(q[c]);
                }
            }
        }
    free(w);
    free(keep);
}

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double tolerance = 1e-12;
#else
static const double tolerance = 2e-5;
#endif

static inline void compare(const problem *p, double *const expected[6], const char *what)
{
    for (size_t o = 0; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++) {
            const double x = real(p->out[o].data[i]), e = expected[o][i];
            cr_assert(x == e || fabs(x - e) <= tolerance * (1 + fabs(e)),
                      "%s: %s[%zu] is %.17g, not %.17g", what, out_names[o], i, x, e);
        }
}

static inline void same_bits(const problem *p, fv_real *const kept[6], const char *what)
{
    for (size_t o = 0; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            cr_assert(memcmp(&p->out[o].data[i], &kept[o][i], sizeof(fv_real)) == 0,
                      "%s: %s[%zu] is %.17g, was %.17g", what, out_names[o], i,
                      real(p->out[o].data[i]), real(kept[o][i]));
}

static inline void keep_bits(const problem *p, fv_real *kept[6])
{
    for (size_t o = 0; o < 6; o++) {
        kept[o] = calloc(p->out[o].count + 1, sizeof(fv_real));
        memcpy(kept[o], p->out[o].data, p->out[o].count * sizeof(fv_real));
    }
}

static inline void drop_bits(fv_real *kept[6])
{
    for (size_t o = 0; o < 6; o++)
        free(kept[o]);
}

#endif
