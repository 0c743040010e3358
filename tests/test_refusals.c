/* What every op refuses, word for word: NULL inputs, wrong shapes, wrong numbers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

/* Values that calls are made with; names say their shapes. */
typedef struct {
    fv_tape *t;
    fv_var *scalar, *v6, *v5, *m4x6, *m4x3, *m5x6, *m0x6, *m4x0, *m4x12, *b2x2x3;
    fv_var *weight; /* head.weight [3, 32] */
    fv_var *table;  /* words.weight [10, 6] */
} values;

static const fv_real numbers[96];

static values make_values(fv_tape *t, fv_params *params)
{
    fv_param *weight = fv_params_find(params, "head.weight"),
             *table = fv_params_find(params, "words.weight");
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    return (values){.t = t,
                    .scalar = fv_input(t, FV_SCALAR, numbers),
                    .v6 = fv_input(t, FV_SHAPE(6), numbers),
                    .v5 = fv_input(t, FV_SHAPE(5), numbers),
                    .m4x6 = fv_input(t, FV_SHAPE(4, 6), numbers),
                    .m4x3 = fv_input(t, FV_SHAPE(4, 3), numbers),
                    .m5x6 = fv_input(t, FV_SHAPE(5, 6), numbers),
                    .m0x6 = fv_input(t, FV_SHAPE(0, 6), numbers),
                    .m4x0 = fv_input(t, FV_SHAPE(4, 0), numbers),
                    .m4x12 = fv_input(t, FV_SHAPE(4, 12), numbers),
                    .b2x2x3 = fv_input(t, FV_SHAPE(2, 2, 3), numbers),
                    .weight = fv_use(t, weight),
                    .table = fv_use(t, table)};
}

static const size_t three_rows[] = {0, 1, 3}, falling[] = {0, 3, 2, 4}, late[] = {1, 4},
                    four_rows[] = {0, 1, 4};
static const fv_segments short_segments = {2, three_rows}, falling_segments = {3, falling},
                         late_segments = {1, late}, segments = {2, four_rows},
                         no_offsets = {2, NULL};
static const int32_t ids[] = {0, 9, 10, -1};

/* Call number which, and in *text the message it must leave; *text is NULL behind the last. */
static fv_var *shapes_that_differ(int which, const values *v, const char **text)
{
    fv_tape *t = v->t;
    int at = 0;
#define WRONG(message, ...)                                                                        \
    if (which == at++) {                                                                           \
        *text = message;                                                                           \
        return __VA_ARGS__;                                                                        \
    }
    WRONG("add: [4, 6] with [5, 6]: shapes do not broadcast", fv_add(t, v->m4x6, v->m5x6))
    WRONG("add: [4, 6] with [5]: shapes do not broadcast", fv_add(t, v->m4x6, v->v5))
    WRONG("mul: [4, 6] with [4, 3]: shapes do not broadcast", fv_mul(t, v->m4x6, v->m4x3))
    WRONG("mul: [4, 3] with [2, 2, 3]: shapes do not broadcast", fv_mul(t, v->m4x3, v->b2x2x3))
    WRONG("constant: rank 9, expected 0 to 6", fv_constant(t, (fv_shape){.rank = 9}, numbers))
    WRONG("constant: [18446744073709551615, 2] holds more numbers than there can be",
          fv_constant(t, FV_SHAPE(SIZE_MAX, 2), numbers))
    WRONG("constant: no data", fv_constant(t, FV_SHAPE(2), NULL))
    WRONG("input: no data", fv_input(t, FV_SHAPE(2), NULL))
    WRONG("input: rank -2, expected 0 to 6", fv_input(t, (fv_shape){.rank = -2}, numbers))
    WRONG("affine: [4, 6] with weight head.weight [3, 32]: inner sizes differ",
          fv_affine(t, v->m4x6, v->weight, NULL))
    WRONG("affine_relu: [4, 6] with weight head.weight [3, 32]: inner sizes differ",
          fv_affine_relu(t, v->m4x6, v->weight, v->v5))
    WRONG("affine: weight words.weight [10, 6] with bias [5]: outputs differ",
          fv_affine(t, v->m4x6, v->table, v->v5))
    WRONG("affine_relu: weight [4, 6] with bias []: outputs differ",
          fv_affine_relu(t, v->m5x6, v->m4x6, v->scalar))
    WRONG("affine: [4, 6] with weight [6]: inner sizes differ", fv_affine(t, v->m4x6, v->v6, NULL))
    WRONG("matmul: [4, 6] with [4, 6]: inner sizes differ", fv_matmul(t, v->m4x6, v->m4x6, NULL))
    *text = NULL;
    return NULL;
}

static fv_var *numbers_out_of_range(int which, const values *v, const char **text)
{
    fv_tape *t = v->t;
    int at = 0;
    static const fv_segments one = {1, late};
    static const int32_t labels[] = {0, 5, 6, -100};
    const fv_cross_entropy_opts negative = {.smoothing = -0.1}, whole = {.smoothing = 1},
                                nan_smoothing = {.smoothing = NAN};
    WRONG("dropout: probability 1, expected 0 <= p < 1", fv_dropout(t, v->m4x6, 1))
    WRONG("dropout: probability -0.1, expected 0 <= p < 1", fv_dropout(t, v->m4x6, -0.1))
    WRONG("dropout: probability inf, expected 0 <= p < 1", fv_dropout(t, v->m4x6, INFINITY))
    WRONG("dropout: probability nan, expected 0 <= p < 1",
          fv_dropout(t, v->m4x6, fabs((double)NAN)))
    WRONG("gather: id 10 at 2 is outside table words.weight [10, 6]",
          fv_gather(t, v->table, ids, 3))
    WRONG("gather: id -1 at 0 is outside table words.weight [10, 6]",
          fv_gather(t, v->table, ids + 3, 1))
    WRONG("gather: id 0 at 0 is outside table [0, 6]", fv_gather(t, v->m0x6, ids, 1))
    WRONG("gather: no ids", fv_gather(t, v->table, NULL, 1))
    WRONG("gather: table is [6], expected [rows, d]", fv_gather(t, v->v6, ids, 1))
    WRONG("gather_bags: id 10 at 2 is outside table words.weight [10, 6]",
          fv_gather_bags(t, v->table, ids, &short_segments))
    WRONG("gather_bags: no bags", fv_gather_bags(t, v->table, ids, NULL))
    WRONG("gather_bags: no bags", fv_gather_bags(t, v->table, ids, &no_offsets))
    WRONG("gather_bags: no ids", fv_gather_bags(t, v->table, NULL, &segments))
    WRONG("gather_bags: segments: offset 2 falls from 3 to 2",
          fv_gather_bags(t, v->table, ids, &falling_segments))
    WRONG("gather_bags: segments: the first offset is 1, not 0",
          fv_gather_bags(t, v->table, ids, &one))
    WRONG("neighbours: no segments", fv_neighbours(t, v->m4x6, NULL, 1))
    WRONG("neighbours: segments: no offsets", fv_neighbours(t, v->m4x6, &no_offsets, 1))
    WRONG("neighbours: segments: they hold 3 rows, the input has 4",
          fv_neighbours(t, v->m4x6, &short_segments, 1))
    WRONG("neighbours: radius -1 for [4, 6]", fv_neighbours(t, v->m4x6, &segments, -1))
    WRONG("neighbours: input is [6], expected [rows, d]", fv_neighbours(t, v->v6, &segments, 1))
    WRONG("add_positions: segments: offset 2 falls from 3 to 2",
          fv_add_positions(t, v->m4x6, v->table, &falling_segments))
    WRONG("add_positions: [4, 3] with words.weight [10, 6]: widths differ",
          fv_add_positions(t, v->m4x3, v->table, &segments))
    WRONG("add_positions: segment 0 has 1 rows, more than the positions of [0, 6]",
          fv_add_positions(t, v->m4x6, v->m0x6, &segments))
    WRONG("add_positions: table is [6], expected [rows, d]",
          fv_add_positions(t, v->m4x6, v->v6, &segments))
    WRONG("add_positions: no segments", fv_add_positions(t, v->m4x6, v->table, NULL))
    WRONG("segment_mean: segments: they hold 4 rows, the input has 5",
          fv_segment_mean(t, v->m5x6, &segments))
    WRONG("segment_mean: no segments", fv_segment_mean(t, v->m5x6, NULL))
    WRONG("segment_sum: input is [2, 2, 3], expected [rows, d]",
          fv_segment_sum(t, v->b2x2x3, &segments))
    WRONG("segment_sum: segments: the first offset is 1, not 0",
          fv_segment_sum(t, v->m4x6, &late_segments))
    WRONG("segment_max: segments: offset 2 falls from 3 to 2",
          fv_segment_max(t, v->m4x6, &falling_segments))
    WRONG("segment_max: input is [4, 0], expected [rows, d]", fv_segment_max(t, v->m4x0, &segments))
    WRONG("cross_entropy: no labels", fv_cross_entropy_sum(t, v->m4x6, NULL, NULL, NULL))
    WRONG("cross_entropy: label 6 of row 2 is not below the 6 classes of [4, 6]",
          fv_cross_entropy_sum(t, v->m4x6, labels, NULL, NULL))
    WRONG("cross_entropy: smoothing -0.1, expected 0 <= s < 1",
          fv_cross_entropy_sum(t, v->m4x6, labels, &negative, NULL))
    WRONG("cross_entropy: smoothing 1, expected 0 <= s < 1",
          fv_cross_entropy_sum(t, v->m4x6, labels, &whole, NULL))
    WRONG("cross_entropy: smoothing nan, expected 0 <= s < 1",
          fv_cross_entropy_sum(t, v->m4x6, labels, &nan_smoothing, NULL))
    WRONG("cross_entropy: input is [6], expected [rows, d]",
          fv_cross_entropy_sum(t, v->v6, labels, NULL, NULL))
    WRONG("use: no parameter (the set's error says why)", fv_use(t, NULL))
    *text = NULL;
    return NULL;
}

static fv_var *attention_that_does_not_fit(int which, const values *v, const char **text)
{
    fv_tape *t = v->t;
    int at = 0;
    const fv_mask short_mask = {.queries = &short_segments}, window = {.left = -2},
                  one_key_segment = {.keys = &segments};
    const unsigned char dense[16] = {0};
    const size_t edge_offsets[] = {0, 1, 1, 1, 1};
    const int32_t edge_keys[] = {7};
    const fv_graph graph = {4, edge_offsets, edge_keys}, narrow = {3, edge_offsets, edge_keys};
    const fv_mask both = {.edges = &graph, .visible = dense}, far = {.edges = &graph},
                  rows = {.edges = &narrow};
    const fv_attention_opts four = {.heads = 4}, grouped = {.heads = 3, .kv_heads = 2},
                            fewer = {.heads = 3, .kv_heads = 1}, one = {.dropout = 1},
                            biased = {.heads = 2, .relative = v->m4x3},
                            even = {.heads = 4, .relative = v->m4x6},
                            flat = {.heads = 2, .relative = v->v5};
    WRONG("attention: keys [5, 6] with values [4, 6]: rows differ",
          fv_attention(t, v->m4x6, v->m5x6, v->m4x6, NULL, NULL))
    WRONG("attention: query is [6], expected [rows, d]",
          fv_attention(t, v->v6, v->m5x6, v->m5x6, NULL, NULL))
    WRONG("attention: key is [2, 2, 3], expected [rows, d]",
          fv_attention(t, v->m4x6, v->b2x2x3, v->m5x6, NULL, NULL))
    WRONG("attention: value is [4, 0], expected [rows, d]",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x0, NULL, NULL))
    WRONG("attention: 6 columns, 4 heads, 4 key heads: they must divide each other",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, NULL, &four))
    WRONG("attention: 6 columns, 3 heads, 2 key heads: they must divide each other",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, NULL, &grouped))
    WRONG("attention: queries [4, 6] of 3 heads, keys [4, 6] and values [4, 6] of 1: widths do not "
          "fit",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, NULL, &fewer))
    WRONG("attention: queries [4, 6] of 1 heads, keys [4, 3] and values [4, 6] of 1: widths do not "
          "fit",
          fv_attention(t, v->m4x6, v->m4x3, v->m4x6, NULL, NULL))
    WRONG("attention: dropout 1, expected 0 <= p < 1",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, NULL, &one))
    WRONG("attention: mask: query segments: they hold 3 rows, the input has 4",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, &short_mask, NULL))
    WRONG("attention: mask: 1 query segments meet 2 key segments",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, &one_key_segment, NULL))
    WRONG("attention: mask: window radii -2 and 0: at least 0, or FV_NONE",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, &window, NULL))
    WRONG("attention: mask: edges and dense bytes at once",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, &both, NULL))
    WRONG("attention: mask: edge 0 of row 0 leads to key 7 of 5",
          fv_attention(t, v->m4x6, v->m5x6, v->m5x6, &far, NULL))
    WRONG("attention: mask: edges for 3 rows, queries have 4",
          fv_attention(t, v->m4x6, v->m5x6, v->m5x6, &rows, NULL))
    WRONG("attention: relative bias [4, 3], expected [2, 3] or [4, 2, 3]",
          fv_attention(t, v->m4x6, v->m4x6, v->m4x6, NULL, &biased))
    WRONG("self_attention: relative bias [4, 6], expected an odd number of distances, 2 clip + 1",
          fv_self_attention(t, v->m4x12, NULL, &even))
    WRONG("self_attention: relative bias [5], expected [2, 5] or [4, 2, 5]",
          fv_self_attention(t, v->m4x12, NULL, &flat))
    WRONG("self_attention: head.weight [3, 32] is not query, key and value of 1 heads and 1 key "
          "heads",
          fv_self_attention(t, v->weight, NULL, NULL))
    WRONG("self_attention: [4, 12] is not query, key and value of 3 heads and 1 key heads",
          fv_self_attention(t, v->m4x12, NULL, &fewer))
    WRONG("self_attention: [4, 6] is not query, key and value of 4 heads and 4 key heads",
          fv_self_attention(t, v->m4x6, NULL, &four))
    WRONG("self_attention: input is [6], expected [rows, d]",
          fv_self_attention(t, v->v6, NULL, NULL))
    WRONG("self_attention: dropout 1, expected 0 <= p < 1",
          fv_self_attention(t, v->m4x12, NULL, &one))
    WRONG("self_attention: mask: query segments: they hold 3 rows, the input has 4",
          fv_self_attention(t, v->m4x12, &short_mask, NULL))
    *text = NULL;
    return NULL;
}

/* Every builder with each of its values NULL. */
static fv_var *null_inputs(int which, const values *v, const char **text)
{
    fv_tape *t = v->t;
    int at = 0;
    WRONG("add: an input is NULL", fv_add(t, NULL, v->v6))
    WRONG("add: an input is NULL", fv_add(t, v->v6, NULL))
    WRONG("mul: an input is NULL", fv_mul(t, NULL, v->v6))
    WRONG("mul: an input is NULL", fv_mul(t, v->v6, NULL))
    WRONG("scale: an input is NULL", fv_scale(t, NULL, 2))
    WRONG("relu: an input is NULL", fv_relu(t, NULL))
    WRONG("gelu: an input is NULL", fv_gelu(t, NULL))
    WRONG("tanh: an input is NULL", fv_tanh(t, NULL))
    WRONG("sum: an input is NULL", fv_sum(t, NULL, NULL))
    WRONG("reshape: an input is NULL", fv_reshape(t, NULL, FV_SCALAR))
    WRONG("affine: an input is NULL", fv_affine(t, NULL, v->table, NULL))
    WRONG("affine: an input is NULL", fv_affine(t, v->m4x6, NULL, NULL))
    WRONG("affine_relu: an input is NULL", fv_affine_relu(t, NULL, v->table, NULL))
    WRONG("affine_relu: an input is NULL", fv_affine_relu(t, v->m4x6, NULL, NULL))
    WRONG("matmul: an input is NULL", fv_matmul(t, NULL, v->m4x6, NULL))
    WRONG("matmul: an input is NULL", fv_matmul(t, v->m4x6, NULL, NULL))
    WRONG("dropout: an input is NULL", fv_dropout(t, NULL, 0.5))
    WRONG("gather: an input is NULL", fv_gather(t, NULL, ids, 1))
    WRONG("gather_bags: an input is NULL", fv_gather_bags(t, NULL, ids, &segments))
    WRONG("neighbours: an input is NULL", fv_neighbours(t, NULL, &segments, 1))
    WRONG("add_positions: an input is NULL", fv_add_positions(t, NULL, v->table, &segments))
    WRONG("add_positions: an input is NULL", fv_add_positions(t, v->m4x6, NULL, &segments))
    WRONG("segment_mean: an input is NULL", fv_segment_mean(t, NULL, &segments))
    WRONG("segment_sum: an input is NULL", fv_segment_sum(t, NULL, &segments))
    WRONG("segment_max: an input is NULL", fv_segment_max(t, NULL, &segments))
    WRONG("cross_entropy: an input is NULL", fv_cross_entropy_sum(t, NULL, ids, NULL, NULL))
    WRONG("attention: an input is NULL", fv_attention(t, NULL, v->m4x6, v->m4x6, NULL, NULL))
    WRONG("attention: an input is NULL", fv_attention(t, v->m4x6, NULL, v->m4x6, NULL, NULL))
    WRONG("attention: an input is NULL", fv_attention(t, v->m4x6, v->m4x6, NULL, NULL, NULL))
    WRONG("self_attention: an input is NULL", fv_self_attention(t, NULL, NULL, NULL))
    *text = NULL;
    return NULL;
}

typedef fv_var *(*calls)(int which, const values *v, const char **text);

static fv_params *make_params(void)
{
    fv_params *params = fv_params_new(1);
    fv_param_new(fv_under(fv_root(params), "head"), "weight", FV_SHAPE(3, 32), (fv_init){0});
    fv_param_new(fv_under(fv_root(params), "words"), "weight", FV_SHAPE(10, 6), (fv_init){0});
    return params;
}

/* Each call gives NULL, leaves its message, records nothing; a second mistake does not replace the first. */
static void refuse_all(calls call)
{
    fv_params *params = make_params();
    fv_tape *t = fv_tape_new(NULL);
    const char *text = "";
    for (int which = 0; text != NULL; which++) {
        const values v = make_values(t, params);
        const fv_var *last = t->last;
        const size_t recorded = t->recorded;
        cr_assert(fv_tape_ok(t));
        const fv_var *y = call(which, &v, &text);
        if (text == NULL)
            break;
        cr_expect_null(y, "%s", text);
        cr_expect_str_eq(fv_tape_error(t)->text, text);
        cr_expect_eq(fv_tape_error(t)->status, FV_USAGE, "%s", text);
        cr_expect(t->last == last && t->recorded == recorded, "%s: something was recorded", text);
        cr_expect_null(fv_mul(t, v.m4x6, v.m4x3));
        cr_expect_null(fv_scale(t, v.m4x6, 2), "%s: calls go on after an error", text);
        cr_expect_not(fv_backward(t, v.scalar));
        cr_expect_str_eq(fv_tape_error(t)->text, text);
    }
    fv_tape_free(t);
    fv_params_free(params);
}

Test(refusals, shapes)
{
    refuse_all(shapes_that_differ);
}

Test(refusals, ranges)
{
    refuse_all(numbers_out_of_range);
}

Test(refusals, attention)
{
    refuse_all(attention_that_does_not_fit);
}

/* Heads by width of a value overflow; without rows such shapes cost nothing. */
Test(refusals, attention_too_wide)
{
    const size_t many = (size_t)1 << 32;
    const fv_attention_opts opts = {.heads = many, .kv_heads = 1};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *wide = fv_constant(t, FV_SHAPE(0, many), numbers);
    fv_var *narrow = fv_constant(t, FV_SHAPE(0, 1), numbers);
    cr_expect_null(fv_attention(t, wide, narrow, wide, NULL, &opts));
    cr_expect_str_eq(fv_tape_error(t)->text,
                     "attention: 4294967296 heads of width 4294967296: wider than can be");
    fv_tape_free(t);
}

Test(refusals, null_inputs)
{
    refuse_all(null_inputs);
}

/* After the first error every builder gives NULL, whatever it is given. */
Test(refusals, null_after_an_error)
{
    fv_params *params = make_params();
    fv_tape *t = fv_tape_new(NULL);
    fv_param *table = fv_params_find(params, "words.weight");
    const values v = make_values(t, params);
    cr_assert_null(fv_mul(t, v.m4x6, v.m4x3));
    cr_expect_null(fv_constant(t, FV_SHAPE(2), numbers));
    cr_expect_null(fv_input(t, FV_SHAPE(2), numbers));
    cr_expect_null(fv_use(t, table));
    cr_expect_null(fv_concat(t, 1, &v.m4x6, -1));
    cr_expect_null(fv_reshape(t, v.m4x6, FV_SHAPE(24)));
    cr_expect_null(fv_dropout(t, v.m4x6, 0), "dropout hands its input through");
    cr_expect_null(fv_attention(t, v.m4x6, v.m4x6, v.m4x6, NULL, NULL));
    cr_expect_null(fv_cross_entropy_sum(t, v.m4x6, ids, NULL, NULL));
    cr_expect_null(fv_softmax_rows(t, v.m4x6).data);
    cr_expect_null(fv_softmax_rows(t, NULL).data);
    const char *text = "";
    for (int which = 0; text != NULL; which++)
        cr_expect_null(null_inputs(which, &v, &text));
    cr_expect_str_eq(fv_tape_error(t)->text, "mul: [4, 6] with [4, 3]: shapes do not broadcast");
    fv_tape_free(t);
    fv_params_free(params);
}

Test(refusals, backward)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[2] = {1, 2};
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect_not(fv_backward(t, NULL));
    cr_expect_str_eq(fv_tape_error(t)->text, "backward: no loss");
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect_not(fv_backward(t, fv_input(t, FV_SHAPE(2), data)));
    cr_expect_str_eq(fv_tape_error(t)->text, "backward: the loss is [2], expected one number");
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect_not(fv_backward(t, fv_sum(t, fv_constant(t, FV_SHAPE(2), data), NULL)));
    cr_expect_str_eq(fv_tape_error(t)->text,
                     "backward: the loss depends on nothing that has a gradient");
    fv_tape_begin(t, FV_EVAL, 1, 1);
    cr_expect_not(fv_backward(t, fv_sum(t, fv_input(t, FV_SHAPE(2), data), NULL)));
    cr_expect_str_eq(
        fv_tape_error(t)->text,
        "backward: the loss depends on nothing that has a gradient (the tape is in FV_EVAL)");
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(0, 2), data);
    cr_expect_not(fv_backward(t, x));
    cr_expect_str_eq(fv_tape_error(t)->text, "backward: the loss is [0, 2], expected one number");
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect(fv_tape_ok(t), "begin forgets the error");
    cr_expect(fv_backward(t, fv_sum(t, fv_input(t, FV_SHAPE(2), data), NULL)));
    fv_tape_free(t);
}

Test(refusals, attention_weights)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_real data[24] = {0};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(4, 6), data);
    cr_expect_null(fv_attention_weights(t, x, 0).data);
    cr_expect_str_eq(fv_tape_error(t)->text, "attention_weights: the value is no attention");
    for (size_t cut = 0; cut < 2; cut++) {
        const fv_mask mask = {.queries = cut ? &segments : NULL};
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_var *y = fv_self_attention(t, fv_input(t, FV_SHAPE(4, 6), data), &mask,
                                      &(fv_attention_opts){.kv_heads = 1}); /* as the default */
        cr_expect_not_null(fv_attention_weights(t, y, cut).data);
        cr_expect_null(fv_attention_weights(t, y, 1 + cut).data);
        cr_expect_str_eq(fv_tape_error(t)->text, cut ? "attention_weights: segment 2 of 2"
                                                     : "attention_weights: segment 1 of 1");
    }
    fv_tape_free(t);
}
