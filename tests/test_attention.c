/* The attention kernel against a plain reference, in every instruction set, thread count and batch. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"

/* ---- the kernels under test -------------------------------------------------------------------- */

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

/* ---- a problem --------------------------------------------------------------------------------- */

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

static list list_new(size_t count)
{
    return (list){calloc(count ? count : 1, sizeof(fv_real)), count};
}

/* Normal numbers; what lies between the rows of a strided input is NaN. */
static void fill(list x, uint64_t which, size_t width, size_t row)
{
    for (size_t i = 0; i < x.count; i++)
        x.data[i] = i % row < width ? (fv_real)fv_rng_normal(draws, which << 32 | i) : (fv_real)NAN;
}

static void clear(problem *p)
{
    for (size_t o = 0; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            p->out[o].data[i] = o < DQ ? (fv_real)NAN : 1; /* gradients are added to */
}

static void make_mask(problem *p, const shape *s)
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

static problem *make(const shape *s)
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
    p->g = (fvi_attention_grad){p->in[DY].data, p->out[DQ].data, p->out[DK].data, p->out[DV].data,
                                s->clip > 0 ? p->out[DRELATIVE].data : NULL};
    return p;
}

static void drop(problem *p)
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
static void run(problem *p, fvi_isa isa, int threads)
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

/* ---- the reference ------------------------------------------------------------------------------- */

static double real(fv_real x)
{
    return (double)fv_re(x);
}

/* Everything in double, pair by pair, from the definitions; *seen is the matrix of who sees whom. */
static void reference(const problem *p, double *out[6])
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
                long from = (long)(j - first) - (long)(i - p->query_at[s]);
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
                long from = (long)(j - first) - (long)(i - p->query_at[s]);
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

static void compare(const problem *p, double *const expected[6], const char *what)
{
    for (size_t o = 0; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++) {
            const double x = real(p->out[o].data[i]), e = expected[o][i];
            cr_assert(x == e || fabs(x - e) <= tolerance * (1 + fabs(e)),
                      "%s: %s[%zu] is %.17g, not %.17g", what, out_names[o], i, x, e);
        }
}

static void same_bits(const problem *p, fv_real *const kept[6], const char *what)
{
    for (size_t o = 0; o < 6; o++)
        for (size_t i = 0; i < p->out[o].count; i++)
            cr_assert(memcmp(&p->out[o].data[i], &kept[o][i], sizeof(fv_real)) == 0,
                      "%s: %s[%zu] is %.17g, was %.17g", what, out_names[o], i,
                      real(p->out[o].data[i]), real(kept[o][i]));
}

static void keep_bits(const problem *p, fv_real *kept[6])
{
    for (size_t o = 0; o < 6; o++) {
        kept[o] = calloc(p->out[o].count + 1, sizeof(fv_real));
        memcpy(kept[o], p->out[o].data, p->out[o].count * sizeof(fv_real));
    }
}

static void drop_bits(fv_real *kept[6])
{
    for (size_t o = 0; o < 6; o++)
        free(kept[o]);
}

/* ---- the grid ------------------------------------------------------------------------------------ */

static const layout layouts[] = {
    {{5}, {5}, 1},
    {{0, 1, 2, 0, 17, 8, 31, 0}, {0, 1, 2, 0, 17, 8, 31, 0}, 8},
    {{63, 64, 65}, {63, 64, 65}, 3},
    {{255, 1}, {255, 1}, 2},
    {{256, 257}, {256, 257}, 2},
    {{1, 70, 0, 9, 130}, {300, 3, 5, 0, 257}, 5},
    {{0}, {0}, 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Every mask over every layout; heads, widths, bias and dropout take turns. */
enum { GRID = MASKS * LAYOUTS * 2 };

static shape grid_at(size_t code)
{
    static const size_t heads[][2] = {{4, 4}, {4, 2}, {3, 1}, {1, 1}, {2, 2}};
    static const size_t widths[][2] = {{16, 16}, {8, 24},  {5, 7}, {32, 32},
                                       {24, 8},  {64, 64}, {1, 1}};
    static const int clips[] = {0, 4, 300};
    shape s = {.mask = (mask_kind)(code % MASKS), .rows = layouts[code / MASKS % LAYOUTS]};
    s.heads = heads[code % 5][0];
    s.kv_heads = heads[code % 5][1];
    s.qk = widths[code / 3 % 7][0];
    s.vd = widths[code / 3 % 7][1];
    s.clip = clips[(code + code / 7) % 3];
    s.dropout = (code + code / MASKS) % 3 == 0 ? 0.3 : 0;
    return s;
}

static const char *shape_text(const shape *s, char text[200])
{
    snprintf(text, 200,
             "mask %d, first segment %zu x %zu of %zu, heads %zu/%zu, widths %zu %zu, clip %d, "
             "dropout %g",
             (int)s->mask, s->rows.queries[0], s->rows.keys[0], s->rows.count, s->heads,
             s->kv_heads, s->qk, s->vd, s->clip, s->dropout);
    return text;
}

Test(attention, agrees_with_the_definition)
{
    for (size_t code = 0; code < GRID; code++) {
        const shape s = grid_at(code);
        char text[200];
        problem *p = make(&s);
        double *expected[6];
        for (size_t o = 0; o < 6; o++)
            expected[o] = calloc(p->out[o].count + 1, sizeof(double));
        reference(p, expected);
        run(p, fvi_isa_best(), 1);
        compare(p, expected, shape_text(&s, text));
        for (size_t o = 0; o < 6; o++)
            free(expected[o]);
        drop(p);
    }
}

/* Threads never change a bit, nor does AVX2 against AVX-512; without them, base agrees closely. */
Test(attention, same_bits_on_threads_and_instruction_sets)
{
    for (size_t code = 0; code < GRID; code++) {
        const shape s = grid_at(code);
        char text[200];
        problem *p = make(&s);
        fv_real *kept[6];
        shape_text(&s, text);
        run(p, fvi_isa_best(), 1);
        keep_bits(p, kept);
        for (int threads = 2; threads <= 3; threads++) {
            run(p, fvi_isa_best(), threads);
            same_bits(p, kept, text);
        }
        for (fvi_isa isa = fvi_isa_best(); isa > FVI_ISA_base; isa--) {
            run(p, isa, 1);
            same_bits(p, kept, text);
        }
        run(p, FVI_ISA_base, 1);
        double *expected[6];
        for (size_t o = 0; o < 6; o++) {
            expected[o] = calloc(p->out[o].count + 1, sizeof(double));
            for (size_t i = 0; i < p->out[o].count; i++)
                expected[o][i] = real(kept[o][i]);
        }
        for (size_t o = DQ; o <= DK; o++) /* the NaN between rows was checked already */
            for (size_t i = 0; i < p->out[o].count; i++)
                if (isnan(expected[o][i]))
                    expected[o][i] = real(p->out[o].data[i]);
        compare(p, expected, text);
        for (size_t o = 0; o < 6; o++)
            free(expected[o]);
        drop_bits(kept);
        drop(p);
    }
}

/* A segment by itself gives the bits it gives among others. */
Test(attention, same_bits_alone_or_in_a_batch)
{
    for (size_t code = 0; code < GRID; code++) {
        shape s = grid_at(code);
        if (s.mask == EDGES || s.mask == EDGES_WINDOW)
            continue;
        s.dropout = 0; /* its bits are numbered by the row of the batch */
        char text[200];
        problem *p = make(&s);
        run(p, fvi_isa_best(), 2);
        const fvi_attention *a = &p->a;
        size_t byte = 0;
        for (size_t g = 0; g < s.rows.count; g++) {
            shape lone = s;
            lone.rows = (layout){{s.rows.queries[g]}, {s.rows.keys[g]}, 1};
            problem *one = make(&lone);
            const size_t row[] = {a->q_row, a->k_row, a->v_row, a->heads * a->vd, a->heads * a->vd,
                                  a->heads, a->q_row, a->k_row, a->v_row};
            const size_t at[] = {p->query_at[g], p->key_at[g],   p->key_at[g],
                                 p->query_at[g], p->query_at[g], p->query_at[g],
                                 p->query_at[g], p->key_at[g],   p->key_at[g]};
            for (size_t i = 0; i < 4; i++)
                memcpy(one->in[i].data, p->in[i].data + at[i] * row[i],
                       one->in[i].count * sizeof(fv_real));
            memcpy(one->visible, p->visible + byte, s.rows.queries[g] * s.rows.keys[g]);
            byte += s.rows.queries[g] * s.rows.keys[g];
            run(one, fvi_isa_best(), 1);
            for (size_t o = 0; o < 5; o++)
                cr_assert(memcmp(one->out[o].data, p->out[o].data + at[4 + o] * row[4 + o],
                                 one->out[o].count * sizeof(fv_real)) == 0,
                          "segment %zu, %s: %s", g, out_names[o], shape_text(&s, text));
            drop(one);
        }
        drop(p);
    }
}

/* ---- hidden rows --------------------------------------------------------------------------------- */

/* Fills row j of queries (or keys) with x, gradients included. */
static void paint_query(problem *p, size_t i, fv_real x)
{
    for (size_t c = 0; c < p->a.heads * p->a.qk; c++)
        p->in[Q].data[i * p->a.q_row + c] = x;
    for (size_t c = 0; c < p->a.heads * p->a.vd; c++)
        p->in[DY].data[i * p->a.heads * p->a.vd + c] = x;
}
static void paint_key(problem *p, size_t j, fv_real x)
{
    for (size_t c = 0; c < p->a.kv_heads * p->a.qk; c++)
        p->in[K].data[j * p->a.k_row + c] = x;
    for (size_t c = 0; c < p->a.kv_heads * p->a.vd; c++)
        p->in[V].data[j * p->a.v_row + c] = x;
}

/* Paints one row after the other NaN: only what sees it, and what shares a query with it, may change. */
static void hidden_rows_do_not_matter(problem *p, int threads)
{
    const size_t n = p->a.queries, m = p->a.keys;
    bool *sees = calloc(n * m + 1, sizeof *sees);
    fv_real *kept[6];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            sees[i * m + j] = fv_mask_sees(p->a.mask, n, m, i, j);
    run(p, fvi_isa_best(), threads);
    keep_bits(p, kept);
    for (size_t row = 0; row < n + m; row++) {
        list saved[4];
        for (size_t i = 0; i < 4; i++) {
            saved[i] = list_new(p->in[i].count);
            memcpy(saved[i].data, p->in[i].data, saved[i].count * sizeof(fv_real));
        }
        if (row < n)
            paint_query(p, row, row % 2 ? (fv_real)NAN : (fv_real)INFINITY);
        else
            paint_key(p, row - n, row % 2 ? (fv_real)NAN : (fv_real)INFINITY);
        run(p, fvi_isa_best(), threads);
        const fvi_attention *a = &p->a;
        for (size_t i = 0; i < n; i++) {
            if (row < n ? row == i : sees[i * m + row - n])
                continue; /* touched */
            const size_t y = i * a->heads * a->vd;
            cr_assert(memcmp(a->y + y, kept[Y] + y, a->heads * a->vd * sizeof(fv_real)) == 0,
                      "y of %zu is %.17g, was %.17g, painted %zu", i, real(a->y[y]),
                      real(kept[Y][y]), row);
            cr_assert(memcmp(p->out[DQ].data + i * a->q_row, kept[DQ] + i * a->q_row,
                             a->heads * a->qk * sizeof(fv_real)) == 0,
                      "dq of %zu, painted %zu", i, row);
        }
        for (size_t j = 0; j < m; j++) {
            bool touched = false;
            for (size_t i = 0; i < n; i++)
                touched |= sees[i * m + j] && (row < n ? row == i : sees[i * m + row - n]);
            if (touched)
                continue;
            cr_assert(memcmp(p->out[DK].data + j * a->k_row, kept[DK] + j * a->k_row,
                             a->kv_heads * a->qk * sizeof(fv_real)) == 0,
                      "dk of %zu, painted %zu", j, row);
            cr_assert(memcmp(p->out[DV].data + j * a->v_row, kept[DV] + j * a->v_row,
                             a->kv_heads * a->vd * sizeof(fv_real)) == 0,
                      "dv of %zu, painted %zu", j, row);
        }
        bool lonely = true; /* a row that takes part in nothing leaves the bias alone as well */
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < m; j++)
                lonely &= !(sees[i * m + j] && (row < n ? i == row : j == row - n));
        if (lonely)
            cr_assert(memcmp(p->out[DRELATIVE].data, kept[DRELATIVE],
                             p->out[DRELATIVE].count * sizeof(fv_real)) == 0,
                      "drelative, painted %zu", row);
        for (size_t i = 0; i < 4; i++) {
            memcpy(p->in[i].data, saved[i].data, saved[i].count * sizeof(fv_real));
            free(saved[i].data);
        }
    }
    drop_bits(kept);
    free(sees);
}

/* Sets the dense bytes and the edges of a problem with one segment from bits. */
static void set_pairs(problem *p, uint64_t bits)
{
    size_t edges = 0;
    for (size_t i = 0; i < p->a.queries; i++) {
        for (size_t j = 0; j < p->a.keys; j++) {
            const size_t at = i * p->a.keys + j;
            p->visible[at] = bits >> at & 1;
            if (p->visible[at])
                p->edge_keys[edges++] = (int32_t)j;
        }
        p->edge_at[i + 1] = edges;
    }
}

/* Every relation on up to four rows (of four, every 13th), as bytes and as edges. */
Test(attention, hidden_rows_exhaustive)
{
    for (size_t n = 1; n <= 5; n++)
        for (int edges = 0; edges < 2; edges++) {
            shape s = {edges ? EDGES : DENSE, {{n}, {n}, 1}, 1, 1, 2, 3, 2, 0};
            problem *p = make(&s);
            const uint64_t all = (uint64_t)1 << (n * n), step = n < 4 ? 1 : n == 4 ? 13 : 16411;
            for (uint64_t bits = 0; bits < all; bits += step) {
                set_pairs(p, bits);
                hidden_rows_do_not_matter(p, 1);
            }
            drop(p);
        }
}

/* Every relation on up to four rows agrees with the definition; rows that see nothing are zero. */
Test(attention, every_small_relation)
{
    for (size_t n = 1; n <= 4; n++)
        for (int edges = 0; edges < 2; edges++) {
            shape s = {edges ? EDGES : DENSE, {{n}, {n}, 1}, 2, 1, 3, 2, 1, 0.25};
            problem *p = make(&s);
            double *expected[6];
            for (size_t o = 0; o < 6; o++)
                expected[o] = calloc(p->out[o].count + 1, sizeof(double));
            for (uint64_t bits = 0; bits < (uint64_t)1 << (n * n); bits++) {
                set_pairs(p, bits);
                run(p, fvi_isa_best(), 1);
                reference(p, expected);
                compare(p, expected, "small relation");
                size_t empty[4];
                const size_t count = fv_mask_empty_rows(&p->mask, n, n, empty);
                for (size_t e = 0; e < count; e++)
                    for (size_t h = 0; h < 2; h++) {
                        cr_assert_eq(real(p->a.lse[empty[e] * 2 + h]), -INFINITY);
                        for (size_t c = 0; c < 2; c++)
                            cr_assert_eq(real(p->a.y[empty[e] * 4 + h * 2 + c]), 0);
                        for (size_t c = 0; c < 6; c++) /* nothing was added */
                            cr_assert_eq(real(p->out[DQ].data[empty[e] * p->a.q_row + c]), 1);
                    }
            }
            for (size_t o = 0; o < 6; o++)
                free(expected[o]);
            drop(p);
        }
}

/* Causality and windows over whole tiles, forward and backward, whatever is painted. */
Test(attention, hidden_rows_in_tiles)
{
    for (mask_kind mask = CAUSAL; mask < MASKS; mask++)
        for (int threads = 1; threads <= 2; threads++) {
            shape s = {mask, {{3, 70}, {3, 70}, 2}, 2, 1, 8, 8, 0, 0};
            problem *p = make(&s);
            hidden_rows_do_not_matter(p, threads);
            drop(p);
        }
}

/* ---- derivatives by a complex step ----------------------------------------------------------------- */
#if defined(FV_COMPLEX)

static const double step = 1e-30;

/* A direction for every input, drawn apart from the inputs themselves. */
static double direction(uint64_t which, size_t input, size_t i)
{
    return fv_rng_normal(draws, (which * 8 + 16 + input) << 32 | i);
}

static void tilt(problem *p, uint64_t which, double by)
{
    for (size_t n = 0; n < 5; n++)
        for (size_t i = 0; i < p->in[n].count; i++)
            p->in[n].data[i] =
                creal(p->in[n].data[i]) + by * direction(which, n, i) * (fv_real)_Complex_I;
}

/* Sum over the inputs of gradient times direction; part picks the value or its tangent. */
static double along(const problem *p, uint64_t which, bool tangent)
{
    static const int grads[] = {DQ, DK, DV, -1, DRELATIVE};
    double sum = 0;
    for (size_t n = 0; n < 5; n++)
        for (size_t i = 0; n != DY && i < p->in[n].count; i++) {
            const fv_real d = p->out[grads[n]].data[i];
            if (!isnan(creal(p->in[n].data[i])))
                sum += (tangent ? cimag(d) / step : creal(d) - 1) * direction(which, n, i);
        }
    return sum;
}

/* A direction's tangent through the gradient of y in the direction dy is part of the tangent of the product. */
static double product_rule(const problem *p, uint64_t which)
{
    double sum = 0;
    for (size_t i = 0; i < p->out[Y].count; i++)
        sum += real(p->in[DY].data[i]) * cimag(p->out[Y].data[i]) / step;
    (void)which;
    return sum;
}

Test(attention, tangent_is_the_gradient)
{
    for (size_t code = 0; code < GRID; code += 3) {
        shape s = grid_at(code);
        char text[200];
        problem *p = make(&s);
        tilt(p, 1, step);
        run(p, FVI_ISA_base, 1);
        const double forward = product_rule(p, 1);
        tilt(p, 1, 0);
        run(p, FVI_ISA_base, 1);
        const double backward = along(p, 1, false);
        cr_assert(fabs(forward - backward) <= 1e-12 * (10 + fabs(backward)), "%.17g, not %.17g: %s",
                  backward, forward, shape_text(&s, text));
        drop(p);
    }
}

/* With dy fixed, the tangent of the gradient is a Hessian times a direction: u' H w = w' H u. */
Test(attention, hessian_is_symmetric)
{
    for (size_t code = 1; code < GRID; code += 3) {
        shape s = grid_at(code);
        char text[200];
        problem *p = make(&s);
        double product[2];
        for (uint64_t which = 0; which < 2; which++) {
            tilt(p, which, step);
            for (size_t i = 0; i < p->in[DY].count; i++)
                p->in[DY].data[i] = creal(p->in[DY].data[i]);
            run(p, FVI_ISA_base, 1);
            product[which] = along(p, 1 - which, true);
        }
        cr_assert(fabs(product[0] - product[1]) <= 1e-11 * (10 + fabs(product[0])),
                  "%.17g, not %.17g: %s", product[0], product[1], shape_text(&s, text));
        drop(p);
    }
}
#endif
