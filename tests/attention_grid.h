/* Attention as a grid: every score x normaliser x mask x option, and what each cell should give. */
#ifndef TEST_ATTENTION_GRID_H
#define TEST_ATTENTION_GRID_H

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/ops/attention.h"
#include "tests/user_score.h"

/* ---- the grid ------------------------------------------------------------------------------------ */

static const struct {
    fv_score score;
    fv_score_inner inner;
    const char *name;
} scores[] = {{FV_SCORE_DOT, FV_INNER_TANH, "dot"},
              {FV_SCORE_COSINE, FV_INNER_TANH, "cosine"},
              {FV_SCORE_DISTANCE, FV_INNER_TANH, "distance"},
              {FV_SCORE_ADDITIVE, FV_INNER_TANH, "additive tanh"},
              {FV_SCORE_ADDITIVE, FV_INNER_RELU, "additive relu"},
              {FV_SCORE_ADDITIVE, FV_INNER_LEAKY_RELU, "additive leaky relu"},
              {FV_SCORE_ADDITIVE, FV_INNER_IDENTITY, "additive identity"},
              {FV_SCORE_BILINEAR, FV_INNER_TANH, "bilinear"},
              {FV_SCORE_USER, FV_INNER_TANH, "user"}};
enum { SCORES = sizeof scores / sizeof *scores, NORMALIZERS = FV_NORMALIZE_NONE + 1 };

typedef enum { ALL, CAUSAL, WINDOW, BYTES, EDGES, FILLED, MASKS } mask_kind;
static const char *const mask_names[] = {"all", "causal", "window", "bytes", "edges", "filled"};

typedef enum {
    PLAIN,
    GROUPED,
    SOFTCAP,
    RELATIVE,
    RELATIVE_ROWS,
    SLOPES,
    BIAS,
    ONE_BIAS,
    HIDING_BIAS, /* -inf here and there */
    DROPOUT,
    RELATIVE_VALUES,
    EDGE_KEYS, /* this and the next with edges only */
    EDGE_VALUES,
    OPTIONS
} option_kind;
static const char *const option_names[] = {
    "plain",       "grouped",       "softcap",        "relative",    "relative a row",
    "slopes",      "bias",          "bias of one",    "hiding bias", "dropout",
    "by distance", "keys of edges", "values of edges"};
enum { CELLS = SCORES * NORMALIZERS * (MASKS * EDGE_KEYS + 2) };

typedef struct {
    size_t score;
    fv_normalizer normalizer;
    mask_kind mask;
    option_kind option;
} cell;

/* Cell n of the CELLS / SCORES of a score. */
static inline cell cell_at(size_t score, size_t n)
{
    const size_t masked = MASKS * EDGE_KEYS, each = masked + 2, at = n % each;
    cell c = {score, (fv_normalizer)(n / each), EDGES, (option_kind)(EDGE_KEYS + at - masked)};
    if (at < masked) {
        c.mask = (mask_kind)(at / EDGE_KEYS);
        c.option = (option_kind)(at % EDGE_KEYS);
    }
    return c;
}

static inline const char *cell_text(const cell *c, char text[200])
{
    snprintf(text, 200, "%s, normaliser %d, %s, %s", scores[c->score].name, (int)c->normalizer,
             mask_names[c->mask], option_names[c->option]);
    return text;
}

/* ---- a cell as a call ---------------------------------------------------------------------------- */

enum { QUERIES = 7, KEYS = 6, HEADS = 2, WIDTH = 2, VALUE = 2, COLUMNS = 5, PAIRS = 22 };

/* Queries 1 (bytes, edges) and 2 (window) see nothing; key 1 is seen by none in bytes and edges, and the
 * edge from query 3 to key 5 leaves its segment. */
static const size_t queries_at[] = {0, 4, 7}, keys_at[] = {0, 4, 6}, filled[] = {3, 1};
static const fv_segments query_segments = {2, queries_at}, key_segments = {2, keys_at};
static const unsigned char visible[PAIRS] = {1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0,
                                             1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1};
static const size_t edges_at[] = {0, 3, 3, 4, 7, 9, 10, 11};
static const int32_t edges_to[] = {0, 2, 3, 3, 0, 2, 5, 4, 5, 4, 5};
static const fv_graph edges = {QUERIES, edges_at, edges_to};
enum { EDGE_COUNT = sizeof edges_to / sizeof *edges_to };

static inline fv_mask mask_of(mask_kind kind)
{
    fv_mask m = {.queries = &query_segments, .keys = &key_segments};
    m.causal = kind == CAUSAL || kind == FILLED;
    m.offset = kind == CAUSAL ? 1 : kind == WINDOW ? -2 : 0;
    m.left = kind == WINDOW ? 1 : 0;
    m.right = kind == WINDOW ? FV_NONE : 0;
    m.align_end = kind == FILLED;
    m.key_counts = kind == FILLED ? filled : NULL;
    m.visible = kind == BYTES ? visible : NULL;
    m.edges = kind == EDGES ? &edges : NULL;
    return m;
}

/* Where a call's inputs come from: a gradient check, or, without one, numbers of the test, rows that matter
 * to nobody painted NaN. */
typedef struct {
    fv_tape *t;
    fv_sampler *s;
    bool paint;
    uint64_t drawn;
} source;

/* Numbers of either sign, of a size between low and high. */
static inline fv_var *draw(source *from, fv_shape shape, double low, double high,
                           const bool *painted)
{
    const fv_rng rng = {{3, 1}, {4, 1}};
    const size_t count = fv_shape_count(shape), row = shape.size[shape.rank - 1];
    fv_real *x = fv_tape_alloc(from->t, count, sizeof *x);
    for (size_t i = 0; i < count; i++) {
        const double u = 2 * fv_rng_uniform(rng, from->drawn++) - 1;
        x[i] = (fv_real)(u < 0 ? -low + u * (high - low) : low + u * (high - low));
        if (painted != NULL && painted[i / row])
            x[i] = (fv_real)NAN;
    }
    return from->s ? fv_sample_from(from->s, shape, x) : fv_input(from->t, shape, x);
}

typedef struct {
    fv_mask mask;
    fv_attention_opts o;
    fv_var *q, *k, *v, *y;
    bool lonely_query[QUERIES], lonely_key[KEYS]; /* what sees nothing, what nobody sees */
} call;

/* Kinks are avoided by construction: queries are small where keys are not; a bias decides the sign of what
 * relu sees; for sparsemax scores are close together, but for a bias that drives some far away. */
static inline fv_var *attend(source *from, const cell *c, call *made)
{
    static const fv_attention_opts none = {0};
    const bool sparse = c->normalizer == FV_NORMALIZE_SPARSEMAX,
               relu = c->normalizer == FV_NORMALIZE_RELU;
    const double small = sparse ? 0.05 : 0.5;
    const size_t kv_heads = c->option == GROUPED ? 1 : HEADS;
    const fv_score score = scores[c->score].score;
    made->mask = mask_of(c->mask);
    for (size_t j = 0; j < KEYS; j++)
        made->lonely_key[j] = true;
    for (size_t i = 0; i < QUERIES; i++) {
        made->lonely_query[i] = true;
        for (size_t j = 0; j < KEYS; j++)
            if (fv_mask_sees(&made->mask, QUERIES, KEYS, i, j))
                made->lonely_query[i] = made->lonely_key[j] = false;
    }
    const bool *no_query = from->paint ? made->lonely_query : NULL,
               *no_key = from->paint ? made->lonely_key : NULL;
    fv_attention_opts *o = &made->o;
    *o = none;
    o->heads = HEADS;
    o->kv_heads = kv_heads;
    o->score = score;
    o->inner = scores[c->score].inner;
    o->normalizer = c->normalizer;
    o->scale = sparse ? 0.05 : c->option == SOFTCAP ? 1.5 : 0;
    o->softcap = c->option == SOFTCAP ? 0.8 : 0;
    o->dropout = c->option == DROPOUT ? 0.3 : 0;
    o->user = &user_score;
    made->q = draw(from, FV_SHAPE(QUERIES, HEADS * WIDTH), 0.05, 0.3, no_query);
    made->k = draw(from, FV_SHAPE(KEYS, kv_heads * WIDTH), 0.5, 1, no_key);
    made->v = draw(from, FV_SHAPE(KEYS, kv_heads * VALUE), 0.1, 1, no_key);
    if (score == FV_SCORE_ADDITIVE || score == FV_SCORE_USER)
        o->weight = draw(from, FV_SHAPE(HEADS, WIDTH), 0.1, 1, NULL);
    if (score == FV_SCORE_BILINEAR)
        o->weight = draw(from, FV_SHAPE(HEADS, WIDTH, WIDTH), 0.1, 1, NULL);
    if (c->option == RELATIVE)
        o->relative = draw(from, FV_SHAPE(HEADS, COLUMNS), small / 5, small, NULL);
    if (c->option == RELATIVE_ROWS)
        o->relative = draw(from, FV_SHAPE(QUERIES, HEADS, COLUMNS), small / 5, small, NULL);
    if (c->option == SLOPES)
        o->slopes = draw(from, FV_SHAPE(HEADS), 0.01, 0.02, NULL);
    const bool bias = c->option == BIAS || c->option == ONE_BIAS || c->option == HIDING_BIAS;
    if (bias || relu) {
        const size_t pairs = c->mask == EDGES ? EDGE_COUNT : PAIRS,
                     heads = c->option == ONE_BIAS ? 1 : HEADS;
        const fv_shape shape = c->mask == EDGES ? FV_SHAPE(pairs, heads) : FV_SHAPE(heads, pairs);
        fv_real x[HEADS * PAIRS];
        for (size_t i = 0; i < heads * pairs; i++) {
            const double u = fv_rng_uniform((fv_rng){{5, 9}, {2, 6}}, i);
            x[i] = (fv_real)(sparse ? (i % 3 == 1 ? -3 - u : u * small)
                             : relu ? (i % 3 == 1 ? -5 - u : 4.5 + u)
                                    : 2 * u - 1);
            if (c->option == HIDING_BIAS && i % 4 == 2)
                x[i] = (fv_real)-INFINITY;
        }
        o->bias = from->s ? fv_sample_from(from->s, shape, x)
                          : fv_input(from->t, shape,
                                     memcpy(fv_tape_alloc(from->t, heads * pairs, sizeof *x), x,
                                            heads * pairs * sizeof *x));
    }
    if (c->option == RELATIVE_VALUES)
        o->relative_values = draw(from, FV_SHAPE(COLUMNS, VALUE), 0.1, 1, NULL);
    if (c->option == EDGE_KEYS)
        o->edge_keys = draw(from, FV_SHAPE(EDGE_COUNT, kv_heads * WIDTH), 0.01, 0.1, NULL);
    if (c->option == EDGE_VALUES)
        o->edge_values = draw(from, FV_SHAPE(EDGE_COUNT, kv_heads * VALUE), 0.1, 1, NULL);
    made->y = fv_attention(from->t, made->q, made->k, made->v, &made->mask, o);
    return made->y;
}

/* ---- the definition ------------------------------------------------------------------------------ */

static inline double real(fv_real x)
{
    return (double)fv_re(x);
}

static inline double number(const fv_var *x, size_t i)
{
    return real(x->value.data[i]);
}

static inline double inner(fv_score_inner f, double x)
{
    return f == FV_INNER_TANH       ? tanh(x)
           : f == FV_INNER_IDENTITY ? x
           : x > 0                  ? x
           : f == FV_INNER_RELU     ? 0
                                    : 0.2 * x;
}

/* The score of vectors q and k in head h, before scale. */
static inline double score_of(const fv_attention_opts *o, size_t h, const double *q,
                              const double *k)
{
    double sum = 0, qq = 0, kk = 0;
    for (size_t c = 0; c < WIDTH; c++) {
        qq += q[c] * q[c];
        kk += k[c] * k[c];
        switch (o->score) {
        case FV_SCORE_DISTANCE:
            sum -= (q[c] - k[c]) * (q[c] - k[c]);
            break;
        case FV_SCORE_ADDITIVE:
            sum += number(o->weight, h * WIDTH + c) * inner(o->inner, q[c] + k[c]);
            break;
        case FV_SCORE_USER:
            sum += number(o->weight, h * WIDTH + c) * q[c] * k[c] * k[c];
            break;
        case FV_SCORE_BILINEAR:
            for (size_t d = 0; d < WIDTH; d++)
                sum += q[c] * number(o->weight, (h * WIDTH + c) * WIDTH + d) * k[d];
            break;
        default:
            sum += q[c] * k[c];
        }
    }
    return o->score == FV_SCORE_COSINE ? sum / sqrt(qq * kk) : sum;
}

static inline int descending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Weights of n scores; -inf is hidden. */
static inline void normalize(fv_normalizer how, size_t n, double *s)
{
    double sum = how == FV_NORMALIZE_SOFTMAX_PLUS_ONE, count = 0, sorted[KEYS], tau = 0, head = 0;
    for (size_t j = 0; j < n; j++) {
        sum += how == FV_NORMALIZE_RELU ? fmax(s[j], 0) : exp(s[j]);
        count += s[j] > -INFINITY;
    }
    memcpy(sorted, s, n * sizeof *s);
    qsort(sorted, n, sizeof *sorted, descending);
    for (size_t j = 0; j < n && sorted[j] > -INFINITY; j++) {
        head += sorted[j];
        if (1 + (double)(j + 1) * sorted[j] > head)
            tau = (head - 1) / (double)(j + 1);
    }
    for (size_t j = 0; j < n; j++) {
        const double x = s[j];
        if (x == -INFINITY) {
            s[j] = 0;
            continue;
        }
        switch (how) {
        case FV_NORMALIZE_SPARSEMAX:
            s[j] = fmax(x - tau, 0);
            break;
        case FV_NORMALIZE_RELU:
            s[j] = x > 0 ? x / sum : 0;
            break;
        case FV_NORMALIZE_SIGMOID:
            s[j] = 1 / (1 + exp(-x));
            break;
        case FV_NORMALIZE_MEAN:
            s[j] = x / count;
            break;
        case FV_NORMALIZE_NONE:
            break;
        default:
            s[j] = exp(x) / sum;
        }
    }
}

/* The row of query i in head h: weights of all keys before dropout, 0 where hidden. */
static inline void define_weights(const call *c, size_t h, size_t i, double *w)
{
    const fv_attention_opts *o = &c->o;
    const size_t seg = fv_segments_find(&query_segments, i), group = HEADS / o->kv_heads;
    const size_t first = keys_at[seg], count = keys_at[seg + 1] - first;
    const size_t clip = COLUMNS / 2;
    double s[KEYS], scale = o->scale;
    if (scale == 0)
        scale = o->score == FV_SCORE_DOT ? 1 / sqrt(WIDTH) : 1;
    size_t pair = seg == 0 ? i * 4 : 16 + (i - 4) * 2;
    const long keys = c->mask.key_counts ? (long)filled[seg] : (long)count;
    const long queries = (long)(queries_at[seg + 1] - queries_at[seg]);
    const long place =
        (long)(i - queries_at[seg]) + c->mask.offset + (c->mask.align_end ? keys - queries : 0);
    for (size_t j = 0; j < KEYS; j++)
        w[j] = 0;
    for (size_t j = 0; j < count; j++, pair++) {
        s[j] = -INFINITY;
        if (!fv_mask_sees(&c->mask, QUERIES, KEYS, i, first + j))
            continue;
        size_t e = edges_at[i];
        while (c->mask.edges && edges_to[e] != (int32_t)(first + j))
            e++;
        double q[WIDTH], k[WIDTH];
        for (size_t x = 0; x < WIDTH; x++) {
            const size_t column = h / group * WIDTH + x;
            q[x] = number(c->q, i * HEADS * WIDTH + h * WIDTH + x);
            k[x] = number(c->k, (first + j) * o->kv_heads * WIDTH + column);
            if (o->edge_keys)
                k[x] += number(o->edge_keys, e * o->kv_heads * WIDTH + column);
        }
        s[j] = scale * score_of(o, h, q, k);
        if (o->softcap > 0)
            s[j] = o->softcap * tanh(s[j] / o->softcap);
        const long apart = (long)j - place, near = apart < -(long)clip  ? -(long)clip
                                                   : apart > (long)clip ? (long)clip
                                                                        : apart;
        const size_t column = (size_t)(near + (long)clip);
        if (o->relative)
            s[j] += number(o->relative,
                           ((o->relative->value.shape.rank == 3 ? i * HEADS : 0) + h) * COLUMNS +
                               column);
        if (o->slopes)
            s[j] -= number(o->slopes, h) * (double)labs(apart);
        if (o->bias && c->mask.edges)
            s[j] += number(o->bias, o->bias->value.shape.size[1] == 1 ? e : e * HEADS + h);
        else if (o->bias)
            s[j] += number(o->bias, (o->bias->value.shape.size[0] == 1 ? 0 : h * PAIRS) + pair);
    }
    normalize(o->normalizer, count, s);
    memcpy(w + first, s, count * sizeof *s);
}

/* y of query i in head h. */
static inline void define_row(const call *c, size_t h, size_t i, double y[VALUE])
{
    const fv_attention_opts *o = &c->o;
    const fvi_attention a = call_of(c->y, false);
    const size_t seg = fv_segments_find(&query_segments, i), group = HEADS / o->kv_heads;
    double w[KEYS];
    define_weights(c, h, i, w);
    for (size_t x = 0; x < VALUE; x++)
        y[x] = 0;
    for (size_t j = 0; j < KEYS; j++) {
        if (w[j] == 0)
            continue;
        const uint64_t bits = ((uint64_t)(h * QUERIES + i) << 32) + j - keys_at[seg];
        if (a.dropout > 0)
            w[j] *= fv_rng_bits(a.rng, bits) >= a.dropout * 0x1p32 ? 1 / (1 - a.dropout) : 0;
        size_t e = edges_at[i];
        while (c->mask.edges && edges_to[e] != (int32_t)j)
            e++;
        const long keys = c->mask.key_counts ? (long)filled[seg] : 0,
                   shift =
                       c->mask.align_end ? keys - (long)(queries_at[seg + 1] - queries_at[seg]) : 0;
        const long apart =
            (long)(j - keys_at[seg]) - (long)(i - queries_at[seg]) - c->mask.offset - shift;
        const long clip = COLUMNS / 2, near = apart < -clip ? -clip : apart > clip ? clip : apart;
        for (size_t x = 0; x < VALUE; x++) {
            const size_t column = h / group * VALUE + x;
            double v = number(c->v, j * o->kv_heads * VALUE + column);
            if (o->edge_values)
                v += number(o->edge_values, e * o->kv_heads * VALUE + column);
            if (o->relative_values)
                v += number(o->relative_values, (size_t)(near + clip) * VALUE + x);
            y[x] += w[j] * v;
        }
    }
}

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double tolerance = 1e-12;
#else
static const double tolerance = 1e-5;
#endif

/* ---- for the tests ------------------------------------------------------------------------------ */

static inline struct criterion_test_params each_score(void)
{
    static size_t ids[SCORES];
    for (size_t i = 0; i < SCORES; i++)
        ids[i] = i;
    return cr_make_param_array(size_t, ids, SCORES);
}

#endif
