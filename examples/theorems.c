/* What texts on attention claim as equations, computed both ways: one line a claim with its error and bound. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fovea.h"

static const char usage[] =
    "examples:\n"
    "  theorems      computes both sides of each claim, prints how far they are apart\n"
    "\n"
    "Linked with libfovea64. Exit codes: 0 every claim holds within its bound, 1 one does not, 2 "
    "usage.\n";

enum { ROWS = 12, D = 8, HEADS = 2 };

/* Normal numbers, always the same for a name. */
static fv_var *numbers(fv_tape *t, const char *name, fv_shape shape)
{
    const size_t count = fv_shape_count(shape);
    fv_real *x = fv_tape_alloc(t, count, sizeof *x);
    const fv_rng rng = fv_rng_make(1, 0, name);
    for (size_t i = 0; x != NULL && i < count; i++)
        x[i] = fv_rng_normal(rng, i);
    return fv_input(t, shape, x);
}

static fv_var *filled(fv_tape *t, fv_shape shape, double with)
{
    const size_t count = fv_shape_count(shape);
    fv_real *x = fv_tape_alloc(t, count, sizeof *x);
    for (size_t i = 0; x != NULL && i < count; i++)
        x[i] = with;
    return fv_constant(t, shape, x);
}

/* Rows first .. end - 1. */
static fv_var *rows_of(fv_tape *t, fv_var *x, size_t first, size_t end)
{
    return fv_slice(t, x, 0, (fv_range){(int)first, (int)end, 1});
}

static fv_var *row_of(fv_tape *t, fv_var *x, size_t row)
{
    return rows_of(t, x, row, row + 1);
}

/* The larger of two errors; NaN is the largest. */
static double worse(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

/* The largest difference, relative to the largest number of b; infinite when a side could not be computed. */
static double distance(const fv_var *a, const fv_var *b)
{
    double most = 0, largest = 0;
    if (a == NULL || b == NULL || !fv_shape_equal(a->value.shape, b->value.shape))
        return INFINITY;
    for (size_t i = 0; i < fv_shape_count(b->value.shape); i++) {
        most = worse(most, fabs(a->value.data[i] - b->value.data[i]));
        largest = fmax(largest, fabs(b->value.data[i]));
    }
    return most / largest;
}

/* ---- scores ---------------------------------------------------------------------------------------------- */

enum { DRAWS = 20000 };

/* The variance of DRAWS dot products of independent normal vectors, times factor^2. */
static double variance_of_dots(fv_tape *t, size_t d, double factor)
{
    fv_var *q = numbers(t, "q", FV_SHAPE(DRAWS, d)), *k = numbers(t, "k", FV_SHAPE(DRAWS, d));
    fv_var *variance = fv_variance(t, fv_scale(t, fv_dot(t, q, k), factor), NULL, 1);
    return variance ? variance->value.data[0] : INFINITY;
}

/* q . k is a sum of d products of mean 0 and variance 1. */
static double dot_grows(fv_tape *t)
{
    return worse(fabs(variance_of_dots(t, 4, 1) / 4 - 1),
                 fabs(variance_of_dots(t, 64, 1) / 64 - 1));
}

/* So q . k / sqrt(d) has variance 1 at any width. */
static double scaled_dot_does_not(fv_tape *t)
{
    return worse(fabs(variance_of_dots(t, 4, 1 / sqrt(4)) - 1),
                 fabs(variance_of_dots(t, 64, 1 / sqrt(64)) - 1));
}
/* A sample variance is off by sqrt((kurtosis - 1) / DRAWS), and that of a dot has kurtosis 3 + 6 / d; the
 * bound is five times that of d = 4. */
#define STATISTICAL (5 * sqrt((2 + 6.0 / 4) / DRAWS))

/* Rotary positions turn pairs of columns of q and k by angles that grow with their rows i and j; turning both
 * by the same angle more, as a later start does, leaves the score alone. */
static fv_var *rotated_scores(fv_tape *t, size_t start)
{
    const fv_rotary_opts opts = {.offset = (int)start};
    fv_var *q = numbers(t, "q", FV_SHAPE(ROWS, D)), *k = numbers(t, "k", FV_SHAPE(ROWS, D));
    const size_t offsets[] = {0, ROWS};
    const fv_segments one = {1, offsets};
    const fv_matmul_opts transpose = {.transpose_b = true};
    return fv_matmul(t, fv_rotary(t, q, &one, &opts), fv_rotary(t, k, &one, &opts), &transpose);
}

static double rotary(fv_tape *t)
{
    return distance(rotated_scores(t, 1000), rotated_scores(t, 0));
}

/* ---- heads and parameters -------------------------------------------------------------------------------- */

/* Heads of matrices of their own, W^h (W x), are heads cut out of W' x where W' is all W^h W. */
static double two_kinds_of_heads(fv_tape *t)
{
    double error = INFINITY;
    fv_params *params = fv_params_new(1);
    const fv_headwise own = fv_headwise_init(fv_under(fv_root(params), "own"), D, HEADS, NULL);
    const fv_multihead cut = fv_multihead_init(fv_under(fv_root(params), "cut"), D, HEADS, NULL);
    fv_var *x = numbers(t, "x", FV_SHAPE(ROWS, D));
    if (fv_headwise_fold(&own, &cut, NULL))
        error =
            distance(fv_headwise_forward(t, &own, x, NULL), fv_multihead_forward(t, &cut, x, NULL));
    fv_params_free(params);
    return error;
}

/* Self-attention has three matrices, however many heads and rows. */
static double three_matrices(fv_tape *t)
{
    (void)t;
    const fv_multihead_opts opts = {.no_bias = true, .no_output = true};
    fv_params *params = fv_params_new(1);
    fv_multihead_init(fv_root(params), D, HEADS, &opts);
    const double count = (double)fv_params_numbers(params);
    fv_params_free(params);
    return fabs(count - 3 * D * D);
}

/* ---- attention among other layers ------------------------------------------------------------------------ */

/* q, k and v of the claims below, and what they give by default. */
typedef struct {
    fv_var *q, *k, *v;
} three;

static three sample(fv_tape *t)
{
    const fv_shape shape = FV_SHAPE(ROWS, D);
    return (three){numbers(t, "q", shape), numbers(t, "k", shape), numbers(t, "v", shape)};
}

/* Many queries at once are many filters over the same rows: each could have come alone. */
static double one_query_at_a_time(fv_tape *t)
{
    const three x = sample(t);
    fv_var *alone[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        alone[i] = fv_attention(t, row_of(t, x.q, i), x.k, x.v, NULL, NULL);
    return distance(fv_attention(t, x.q, x.k, x.v, NULL, NULL), fv_concat(t, ROWS, alone, 0));
}

/* A filter that says the same of each row, divided by how many there are, is average pooling. */
static double average_pooling(fv_tape *t)
{
    const size_t offsets[] = {0, 3, 4, ROWS}, places[] = {0, 1, 2, 3};
    const fv_segments segments = {3, offsets}, filters = {3, places};
    const fv_mask mask = {.queries = &filters, .keys = &segments};
    const fv_attention_opts mean = {.normalizer = FV_NORMALIZE_MEAN, .scale = 1};
    fv_var *v = numbers(t, "v", FV_SHAPE(ROWS, D));
    fv_var *filter = filled(t, FV_SHAPE(3, 1), 1), *match = filled(t, FV_SHAPE(ROWS, 1), 1);
    return distance(fv_attention(t, filter, match, v, &mask, &mean),
                    fv_segment_mean(t, v, &segments));
}

/* A head that always looks at the same distance hands over that neighbour; with a head for each tap, W_O mixes
 * neighbours as a convolution does. Beyond the ends both see nothing. */
static double convolution(fv_tape *t)
{
    enum { TAPS = 3, DISTANCES = TAPS + 2, OUT = 5 };
    fv_real *only = fv_tape_alloc(t, TAPS * DISTANCES, sizeof *only);
    for (size_t i = 0; only != NULL && i < TAPS * DISTANCES; i++)
        only[i] = i % DISTANCES == i / DISTANCES + 1 ? 0 : -INFINITY;
    const fv_attention_opts heads = {
        .heads = TAPS, .kv_heads = 1, .relative = fv_constant(t, FV_SHAPE(TAPS, DISTANCES), only)};
    const size_t offsets[] = {0, ROWS};
    const fv_segments one = {1, offsets};
    const fv_conv_opts conv = {.padding = {TAPS / 2}};
    fv_var *x = numbers(t, "x", FV_SHAPE(ROWS, D));
    fv_var *w = numbers(t, "w", FV_SHAPE(OUT, TAPS, D));
    fv_var *q = numbers(t, "q", FV_SHAPE(ROWS, TAPS)), *k = numbers(t, "k", FV_SHAPE(ROWS, 1));
    fv_var *neighbours = fv_attention(t, q, k, x, NULL, &heads);
    return distance(fv_affine(t, neighbours, fv_reshape(t, w, FV_SHAPE(OUT, TAPS * D)), NULL),
                    fv_segment_conv(t, x, &one, fv_transpose(t, w, 1, 2), NULL, &conv, NULL));
}

/* When each row sees itself alone its weight is 1, whatever the score: what is left are the values' maps. */
static double linear_layer(fv_tape *t)
{
    const fv_mask itself = {.left = FV_NONE, .right = FV_NONE};
    fv_params *params = fv_params_new(1);
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, NULL);
    fv_var *x = numbers(t, "x", FV_SHAPE(ROWS, D));
    fv_var *w_v = rows_of(t, fv_use(t, layer.in_proj_weight), 2 * D, 3 * D);
    fv_var *b_v = rows_of(t, fv_use(t, layer.in_proj_bias), 2 * D, 3 * D);
    fv_var *mapped = fv_linear_forward(t, &layer.out_proj, fv_affine(t, x, w_v, b_v));
    const double error = distance(fv_multihead_forward(t, &layer, x, &itself), mapped);
    fv_params_free(params);
    return error;
}

/* A graph in which all nodes are joined gives what attention without a graph gives. */
static double complete_graph(fv_tape *t)
{
    size_t offsets[ROWS + 1];
    int32_t keys[ROWS * ROWS];
    for (size_t i = 0; i <= ROWS; i++)
        offsets[i] = i * ROWS;
    for (size_t i = 0; i < ROWS * ROWS; i++)
        keys[i] = (int32_t)(i % ROWS);
    const fv_graph graph = {ROWS, offsets, keys};
    const fv_mask edges = {.edges = &graph};
    const three x = sample(t);
    return distance(fv_attention(t, x.q, x.k, x.v, &edges, NULL),
                    fv_attention(t, x.q, x.k, x.v, NULL, NULL));
}

/* ---- masks ----------------------------------------------------------------------------------------------- */

/* Leaving rows out of the sum is giving them the score -infinity, and is hiding them by a mask. */
static double exclusion(fv_tape *t)
{
    unsigned char keep[ROWS], visible[ROWS * ROWS];
    fv_real scores[ROWS * ROWS];
    for (size_t j = 0; j < ROWS; j++)
        keep[j] = j % 3 != 1;
    for (size_t i = 0; i < ROWS * ROWS; i++) {
        visible[i] = keep[i % ROWS];
        scores[i] = keep[i % ROWS] ? 0 : -INFINITY;
    }
    const three x = sample(t);
    const fv_mask mask = {.visible = visible};
    const fv_attention_opts added = {.bias = fv_constant(t, FV_SHAPE(1, ROWS * ROWS), scores)};
    fv_var *left_out = fv_attention(t, x.q, fv_masked_select(t, x.k, keep, NULL, NULL),
                                    fv_masked_select(t, x.v, keep, NULL, NULL), NULL, NULL);
    return worse(distance(fv_attention(t, x.q, x.k, x.v, NULL, &added), left_out),
                 distance(fv_attention(t, x.q, x.k, x.v, &mask, NULL), left_out));
}

/* Row i sums over the rows up to itself: a range that grows, or a mask. */
static double causal(fv_tape *t)
{
    const three x = sample(t);
    const fv_mask mask = {.causal = true};
    fv_var *ranges[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        ranges[i] = fv_attention(t, row_of(t, x.q, i), rows_of(t, x.k, 0, i + 1),
                                 rows_of(t, x.v, 0, i + 1), NULL, NULL);
    return distance(fv_attention(t, x.q, x.k, x.v, &mask, NULL), fv_concat(t, ROWS, ranges, 0));
}

/* ---- order and positions --------------------------------------------------------------------------------- */

/* How far the results of permuted rows are from the permuted results of the rows, or their means from each other.
 * Positions are added to the rows where they stand then. */
static double in_two_orders(fv_tape *t, bool positions, bool pooled)
{
    static const int32_t order[ROWS] = {5, 0, 11, 3, 8, 1, 10, 2, 7, 4, 9, 6};
    const size_t offsets[] = {0, ROWS};
    const fv_segments one = {1, offsets};
    fv_params *params = fv_params_new(1);
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, NULL);
    fv_var *x = numbers(t, "x", FV_SHAPE(ROWS, D)), *z = fv_index_select(t, x, 0, order, ROWS);
    if (positions) {
        fv_var *table = numbers(t, "positions", FV_SHAPE(ROWS, D));
        x = fv_add_positions(t, x, table, &one);
        z = fv_add_positions(t, z, table, &one);
    }
    fv_var *of_x = fv_multihead_forward(t, &layer, x, NULL);
    fv_var *of_z = fv_multihead_forward(t, &layer, z, NULL);
    const double apart = pooled
                             ? distance(fv_mean(t, of_z, FV_AXES(0)), fv_mean(t, of_x, FV_AXES(0)))
                             : distance(of_z, fv_index_select(t, of_x, 0, order, ROWS));
    fv_params_free(params);
    return apart;
}

/* Attention does not see order: permuted rows give the same results, permuted. */
static double permuted(fv_tape *t)
{
    return in_two_orders(t, false, false);
}

/* So what is pooled from all rows stays as it is. */
static double permuted_and_pooled(fv_tape *t)
{
    return in_two_orders(t, false, true);
}

/* Once each row carries its position, order counts: here the difference must be seen. */
static double permuted_with_positions(fv_tape *t)
{
    return in_two_orders(t, true, false);
}

/* Row i with a one-hot position p_i beside it, mapped by [W_I W_P], is W_I x_i + e_i with e_i = W_P p_i. */
static double position_added(fv_tape *t)
{
    int32_t place[ROWS];
    for (int32_t i = 0; i < ROWS; i++)
        place[i] = i;
    const size_t offsets[] = {0, ROWS};
    const fv_segments one = {1, offsets};
    fv_var *x = numbers(t, "x", FV_SHAPE(ROWS, D));
    fv_var *w_i = numbers(t, "w_i", FV_SHAPE(D, D)), *w_p = numbers(t, "w_p", FV_SHAPE(D, ROWS));
    fv_var *beside = fv_concat(t, 2, (fv_var *[]){x, fv_one_hot(t, place, ROWS, ROWS)}, 1);
    fv_var *w = fv_concat(t, 2, (fv_var *[]){w_i, w_p}, 1);
    fv_var *added =
        fv_add_positions(t, fv_affine(t, x, w_i, NULL), fv_transpose(t, w_p, 0, 1), &one);
    return distance(fv_affine(t, beside, w, NULL), added);
}

/* ---- reach ------------------------------------------------------------------------------------------------ */

enum { TIME = 64 };

/* A sequence whose notable row stands that far before the last one; the others keep their order. */
static fv_var *sequence(fv_tape *t, size_t far, fv_var *notable)
{
    fv_var *others = numbers(t, "others", FV_SHAPE(TIME - 1, D));
    const size_t at = TIME - 1 - far;
    fv_var *parts[] = {rows_of(t, others, 0, at), notable, rows_of(t, others, at, TIME - 1)};
    return at > 0 ? fv_concat(t, 3, parts, 0) : fv_concat(t, 2, parts + 1, 0);
}

static fv_var *last_by_attention(fv_tape *t, fv_var *x)
{
    return row_of(t, fv_attention(t, x, x, x, NULL, NULL), TIME - 1);
}

/* h = tanh(W h + x) with W of norm 0.9, which turns channels around; the last h. */
static fv_var *last_by_rnn(fv_tape *t, fv_var *x)
{
    fv_var *h = filled(t, FV_SHAPE(1, D), 0);
    for (size_t i = 0; i < TIME; i++)
        h = fv_tanh(t, fv_add(t, fv_scale(t, fv_roll(t, h, 1, 1), 0.9), row_of(t, x, i)));
    return h;
}

/* How much the last output moves with a row that far back: the length of the gradient. */
static double reach(fv_tape *t, size_t far, fv_var *(*last)(fv_tape *t, fv_var *x))
{
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *notable = numbers(t, "notable", FV_SHAPE(1, D));
    fv_var *y = last(t, sequence(t, far, notable));
    double square = 0;
    if (!fv_backward(t, fv_sum(t, y, NULL)))
        return NAN;
    for (size_t c = 0; c < D; c++)
        square += notable->grad[c] * notable->grad[c];
    return sqrt(square);
}

/* Attention reaches every row in one hop: how far back it stands makes no difference. */
static double attention_reaches(fv_tape *t)
{
    double error = 0;
    const double near = reach(t, 1, last_by_attention);
    for (size_t far = 2; far < TIME; far++)
        error = worse(error, fabs(reach(t, far, last_by_attention) / near - 1));
    return error;
}

/* In an RNN it must survive every step, each a product with W and with slopes of tanh, at most 1: what is left
 * at the far end, as a share of what there was one step back. */
static double rnn_forgets(fv_tape *t)
{
    return reach(t, TIME - 1, last_by_rnn) / reach(t, 1, last_by_rnn);
}

/* ---- all of them ------------------------------------------------------------------------------------------ */

typedef struct {
    const char *text;
    double (*error)(fv_tape *t);
    double bound;
    bool apart; /* the two sides must differ by more than the bound */
} claim;

int main(int argc, char **argv)
{
    const double exact = 1e-12;
    const claim claims[] = {
        {"the variance of a dot product is its width", dot_grows, STATISTICAL, false},
        {"divided by sqrt(width), it is 1", scaled_dot_does_not, STATISTICAL, false},
        {"heads of their own matrices = heads cut from channels", two_kinds_of_heads, exact, false},
        {"self-attention has three matrices: 3 d^2 numbers", three_matrices, 0, false},
        {"all queries at once = one at a time", one_query_at_a_time, exact, false},
        {"permuted rows give permuted results", permuted, exact, false},
        {"and the same result after pooling", permuted_and_pooled, exact, false},
        {"but with positions added they do not", permuted_with_positions, 0.01, true},
        {"adding a position = a one-hot beside it, mapped", position_added, exact, false},
        {"a rotary score knows only how far apart rows are", rotary, 1e-11, false},
        {"rows left out = score -infinity = hidden by a mask", exclusion, exact, false},
        {"causal as a range = causal as a mask", causal, exact, false},
        {"the mean of a constant filter = average pooling", average_pooling, exact, false},
        {"heads at fixed distances = a convolution", convolution, exact, false},
        {"each row sees itself = a linear layer", linear_layer, exact, false},
        {"a complete graph = attention without a graph", complete_graph, exact, false},
        {"attention's gradient is the same at any distance", attention_reaches, exact, false},
        {"an RNN's falls: at 63 steps, a share of that at 1", rnn_forgets, 1e-3, false},
    };
    bool all = true;
    if (argc > 1) {
        const bool help = strcmp(argv[1], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    printf("%-56s%9s    %s\n", "claim", "error", "bound");
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        const claim *c = &claims[i];
        fv_tape *t = fv_tape_new(NULL);
        if (t == NULL)
            return fputs("theorems: out of memory\n", stderr), 1;
        fv_tape_begin(t, FV_GRAD, 1, 1);
        const double error = c->error(t);
        const bool holds = fv_tape_ok(t) && (c->apart ? error > c->bound : error <= c->bound);
        printf("%-56s%9.1e %s %-8.1e %s\n", c->text, error, c->apart ? "> " : "<=", c->bound,
               holds ? "ok" : "FAILS");
        if (!fv_tape_ok(t))
            fprintf(stderr, "theorems: %s\n", fv_tape_error(t)->text);
        all = all && holds;
        fv_tape_free(t);
    }
    return all ? 0 : 1;
}
