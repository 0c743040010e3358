/* Attention on the tape: what the kernel of tensor/kernel/ computes, with its gradients. */
#include "autograd/ops/attention.h"

#include <math.h>

static bool forward(fv_tape *t, fv_var *y, bool together)
{
    const fvi_attention *form = &((const attention_options *)y->options)->form;
    y->saved = fvi_tape_take(t, form->queries * form->heads, sizeof(fv_real));
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

/* with weights P of scores s: dv = P' dy, dP = dy v', and ds from dP as the normaliser says (softmax: P * (dP -
 * rowsum(P * dP))); ds goes to what is added to scores, summed over what shares it; past the softcap c,
 * scale ds (1 - tanh^2) goes to q, k and the weight through the score's own derivatives */
static void backward(fv_tape *t, fv_var *y, bool together)
{
    const fvi_attention a = call_of(y, together);
    fv_real *grad[INPUTS], *shared[INPUTS] = {NULL};
    for (int i = 0; i < INPUTS; i++)
        grad[i] = fv_grad(t, input(y, i, together));
    fvi_mark mark = fvi_arena_mark(&t->arena);
    if (!together) /* one value as several inputs: its shares meet only when each is complete */
        for (int i = 1; i < INPUTS; i++)
            for (int before = 0; before < i && shared[i] == NULL; before++)
                if (grad[i] != NULL && grad[i] == grad[before]) {
                    shared[i] = grad[i];
                    grad[i] = fv_tape_alloc(t, fv_shape_count(input(y, i, false)->value.shape),
                                            sizeof(fv_real));
                }
    fv_real *dq = grad[IN_Q], *dk = grad[IN_K], *dv = grad[IN_V];
    const fvi_attention_grad g = {.dy = y->grad,
                                  .dq = dq,
                                  .dk = together && dq ? dq + (a.k - a.q) : dk,
                                  .dv = together && dq ? dq + (a.v - a.q) : dv,
                                  .drelative = grad[IN_RELATIVE],
                                  .dslopes = grad[IN_SLOPES],
                                  .dbias = grad[IN_BIAS],
                                  .dweight = grad[IN_WEIGHT],
                                  .dpair_k = grad[IN_EDGE_K],
                                  .dpair_v = grad[IN_EDGE_V],
                                  .drelative_v = grad[IN_RELATIVE_V]};
    fv_real *scratch =
        fvi_tape_take(t, fvi_attention_scratch(&a, t->threads, true), sizeof *scratch);
    if (scratch != NULL && fv_tape_ok(t)) {
        fvi_attention_backward(&a, &g, t->threads, scratch);
        for (int i = 0; i < INPUTS; i++)
            if (shared[i] != NULL)
                add_to(fv_shape_count(input(y, i, false)->value.shape), grad[i], shared[i]);
    }
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

/* What the later samples choose; a sum of flags says which vectors there are. */
enum {
    RELATIVE = 1,
    RELATIVE_ROWS = 2,
    SLOPES = 4,
    BIAS = 8,
    ONE_BIAS = 16,
    EDGE_KEYS = 32,
    EDGE_VALUES = 64,
    RELATIVE_VALUES = 128,
    HIDING = 256 /* a bias of -inf here and there */
};
typedef enum { ALL, CAUSAL, BYTES, EDGES } sample_mask;
static const struct {
    fv_score score;
    fv_score_inner inner;
    fv_normalizer normalizer;
    sample_mask mask;
    size_t heads, kv_heads, width;
    int more;
    double softcap, dropout;
} cases[] = {
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX, BYTES, 2, 1, 2, BIAS | SLOPES | RELATIVE, 0.7, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX, EDGES, 2, 1, 2, BIAS | SLOPES | RELATIVE, 0.7, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX, CAUSAL, 2, 2, 2, ONE_BIAS | RELATIVE_ROWS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX_PLUS_ONE, ALL, 2, 1, 2, SLOPES, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX_PLUS_ONE, EDGES, 2, 2, 2, ONE_BIAS | EDGE_KEYS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SPARSEMAX, ALL, 2, 1, 2, BIAS, 0, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SPARSEMAX, EDGES, 2, 2, 3, BIAS | EDGE_VALUES, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_RELU, BYTES, 2, 1, 2, BIAS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_RELU, EDGES, 2, 2, 2, BIAS, 0.9, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SIGMOID, BYTES, 2, 1, 2, RELATIVE, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SIGMOID, EDGES, 2, 2, 2, RELATIVE_VALUES, 0.8, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_MEAN, BYTES, 2, 2, 2, BIAS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_MEAN, EDGES, 2, 1, 2, EDGE_KEYS | EDGE_VALUES, 0, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_NONE, CAUSAL, 2, 1, 2, RELATIVE_ROWS | RELATIVE_VALUES, 0, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_NONE, EDGES, 2, 2, 2, RELATIVE_ROWS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_NONE, ALL, 2, 2, 2, 0, 0.9, 0},
    {FV_SCORE_COSINE, 0, FV_NORMALIZE_SOFTMAX, ALL, 2, 1, 3, 0, 0, 0},
    {FV_SCORE_COSINE, 0, FV_NORMALIZE_SOFTMAX, EDGES, 2, 2, 2, EDGE_KEYS, 0, 0},
    {FV_SCORE_BILINEAR, 0, FV_NORMALIZE_SOFTMAX, CAUSAL, 2, 1, 2, 0, 0, 0},
    {FV_SCORE_DISTANCE, 0, FV_NORMALIZE_SOFTMAX, ALL, 2, 1, 3, RELATIVE_VALUES, 0, 0.2},
    {FV_SCORE_DISTANCE, 0, FV_NORMALIZE_SIGMOID, EDGES, 2, 2, 2, EDGE_KEYS, 1.5, 0},
    {FV_SCORE_ADDITIVE, FV_INNER_TANH, FV_NORMALIZE_SOFTMAX, BYTES, 2, 1, 3, 0, 0, 0},
    {FV_SCORE_ADDITIVE, FV_INNER_TANH, FV_NORMALIZE_MEAN, EDGES, 2, 2, 1, EDGE_KEYS, 0, 0},
    {FV_SCORE_ADDITIVE, FV_INNER_RELU, FV_NORMALIZE_SOFTMAX, CAUSAL, 2, 2, 5, SLOPES, 0, 0},
    {FV_SCORE_ADDITIVE, FV_INNER_LEAKY_RELU, FV_NORMALIZE_SOFTMAX, EDGES, 2, 2, 1, 0, 0, 0.2},
    {FV_SCORE_ADDITIVE, FV_INNER_LEAKY_RELU, FV_NORMALIZE_NONE, EDGES, 2, 1, 2, EDGE_KEYS, 0, 0},
    {FV_SCORE_ADDITIVE, FV_INNER_IDENTITY, FV_NORMALIZE_SOFTMAX, ALL, 2, 2, 2, RELATIVE, 0.6, 0},
    {FV_SCORE_USER, 0, FV_NORMALIZE_SOFTMAX, BYTES, 2, 1, 3, BIAS, 0, 0},
    {FV_SCORE_USER, 0, FV_NORMALIZE_NONE, EDGES, 2, 2, 2, EDGE_KEYS, 0, 0.2},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX, EDGES, 2, 2, 2, BIAS | HIDING, 0, 0},
    {FV_SCORE_DOT, 0, FV_NORMALIZE_SOFTMAX, BYTES, 2, 2, 2, BIAS | HIDING, 0, 0},
};
enum { FIRST_SAMPLES = 12, SAMPLES = FIRST_SAMPLES + sizeof cases / sizeof *cases };

/* A score with a weight for each number: sum over c of weight q k^2. */
static void sample_score(void *context, size_t width, const fv_real *q, size_t count,
                         const fv_real *const *keys, const fv_real *weight, fv_real *score)
{
    (void)context;
    for (size_t j = 0; j < count; j++) {
        score[j] = 0;
        for (size_t c = 0; c < width; c++)
            score[j] += weight[c] * q[c] * keys[j][c] * keys[j][c];
    }
}

static void sample_score_backward(void *context, size_t width, const fv_real *q, size_t count,
                                  const fv_real *const *keys, const fv_real *weight,
                                  const fv_real *slope, fv_real *dq, fv_real *const *dkeys,
                                  fv_real *dweight)
{
    (void)context;
    for (size_t j = 0; j < count; j++)
        for (size_t c = 0; c < width; c++) {
            const fv_real k = keys[j][c];
            if (dq != NULL)
                dq[c] += slope[j] * weight[c] * k * k;
            if (dkeys != NULL)
                dkeys[j][c] += slope[j] * weight[c] * q[c] * 2 * k;
            if (dweight != NULL)
                dweight[c] += slope[j] * q[c] * k * k;
        }
}
static const fv_score_function sample_user = {NULL, sample_score, sample_score_backward};

/* An input of numbers whose size is between low and low + 0.5, of either sign. */
static fv_var *away_from_zero(fv_sampler *s, fv_shape shape, double low)
{
    const size_t count = fv_shape_count(shape);
    fv_real *x = fv_tape_alloc(fv_sampler_tape(s), count, sizeof *x);
    for (size_t i = 0; x != NULL && i < count; i++) {
        const double u = fv_rng_uniform(fv_sampler_rng(s), i);
        x[i] = (fv_real)(u < 0.5 ? -low - u : low + u - 0.5);
    }
    return x ? fv_sample_from(s, shape, x) : NULL;
}

/* Small queries meet keys that are not, and biases that are larger than scores: so the sign of a sum, of a
 * score and of its distance from a threshold does not hang on a step. */
static fv_var *case_sample(fv_sampler *s, int which)
{
    static const size_t queries_at[] = {0, 3, 5}, keys_at[] = {0, 4, 5};
    static const fv_segments queries = {2, queries_at}, keys = {2, keys_at};
    static const unsigned char visible[] = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1};
    static const size_t edges_at[] = {0, 3, 3, 5, 6, 7};
    static const int32_t edge_keys[] = {0, 2, 3, 0, 3, 4, 4};
    static const fv_graph edges = {5, edges_at, edge_keys};
    enum { QUERIES = 5, KEYS = 5, PAIRS = 14, NARROW = 2, COLUMNS = 3 };
    const sample_mask how = cases[which].mask;
    const int more = cases[which].more;
    const size_t heads = cases[which].heads, kv_heads = cases[which].kv_heads,
                 width = cases[which].width, one = more & ONE_BIAS ? 1 : heads,
                 pairs = how == EDGES ? edges_at[QUERIES] : PAIRS;
    const fv_mask mask = {.queries = &queries,
                          .keys = &keys,
                          .causal = how == CAUSAL,
                          .offset = 1,
                          .visible = how == BYTES ? visible : NULL,
                          .edges = how == EDGES ? &edges : NULL};
    fv_attention_opts o = {.heads = heads,
                           .kv_heads = kv_heads,
                           .score = cases[which].score,
                           .inner = cases[which].inner,
                           .inner_slope = 0.3,
                           .normalizer = cases[which].normalizer,
                           .softcap = cases[which].softcap,
                           .dropout = cases[which].dropout,
                           .scale = which % 2 ? 0.8 : 0,
                           .user = &sample_user};
    fv_var *q = fv_sample(s, FV_SHAPE(QUERIES, heads * width), -0.3, 0.3);
    fv_var *k = away_from_zero(s, FV_SHAPE(KEYS, kv_heads * width), 0.5);
    fv_var *v = fv_sample(s, FV_SHAPE(KEYS, kv_heads * NARROW), -1, 1);
    if (o.score == FV_SCORE_BILINEAR)
        o.weight = fv_sample(s, FV_SHAPE(heads, width, width), -1, 1);
    if (o.score == FV_SCORE_ADDITIVE || o.score == FV_SCORE_USER)
        o.weight = fv_sample(s, FV_SHAPE(heads, width), -1, 1);
    if (more & RELATIVE)
        o.relative = fv_sample(s, FV_SHAPE(heads, COLUMNS), -1, 1);
    if (more & RELATIVE_ROWS)
        o.relative = fv_sample(s, FV_SHAPE(QUERIES, heads, COLUMNS), -1, 1);
    if (more & SLOPES)
        o.slopes = fv_sample(s, FV_SHAPE(heads), 0, 1);
    if (more & (BIAS | ONE_BIAS))
        o.bias = away_from_zero(s, how == EDGES ? FV_SHAPE(pairs, one) : FV_SHAPE(one, pairs), 1);
    if (more & HIDING) {
        unsigned char *hide = fv_tape_alloc(fv_sampler_tape(s), heads * pairs, 1);
        for (size_t i = 0; hide != NULL && i < heads * pairs; i += 3)
            hide[i] = 1;
        o.bias = hide ? fv_masked_fill(fv_sampler_tape(s), o.bias,
                                       (fv_bools){o.bias->value.shape, hide}, -INFINITY)
                      : NULL;
    }
    if (more & EDGE_KEYS)
        o.edge_keys = fv_sample(s, FV_SHAPE(pairs, kv_heads * width), -0.1, 0.1);
    if (more & EDGE_VALUES)
        o.edge_values = fv_sample(s, FV_SHAPE(pairs, kv_heads * NARROW), -1, 1);
    if (more & RELATIVE_VALUES)
        o.relative_values = fv_sample(s, FV_SHAPE(COLUMNS, NARROW), -1, 1);
    return fv_attention(fv_sampler_tape(s), q, k, v, &mask, &o);
}

/* Grouped heads, causal, window, all; dropout with a bias and without; the same by edges; what is hidden; one
 * value as query, key and value; more keys, and more queries of two heads, than a tile has. */
static fv_var *attention_sample(fv_sampler *s, int which)
{
    if (which >= FIRST_SAMPLES)
        return case_sample(s, which - FIRST_SAMPLES);
    if (which == 9) {
        fv_var *x = fv_sample(s, FV_SHAPE(5, 3), -1, 1);
        return fv_attention(fv_sampler_tape(s), x, x, x, NULL, NULL);
    }
    if (which == 10 || which == 11) {
        const size_t rows = which == 10 ? 2 : 98, keys = which == 10 ? 140 : 3,
                     d = which == 10 ? 1 : 2;
        const fv_attention_opts opts = {.heads = d};
        return fv_attention(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(rows, d), -1, 1),
                            fv_sample(s, FV_SHAPE(keys, d), -1, 1),
                            fv_sample(s, FV_SHAPE(keys, d), -1, 1), NULL, &opts);
    }
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
FVI_OP(attention, "y = normaliser(softcap(scale score(q, k)) + biases | mask) v, for each head",
       "Vaswani et al., 2017, arXiv 1706.03762; tiled as Dao et al., 2022, arXiv 2205.14135",
       SAMPLES)

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
