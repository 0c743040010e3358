/* Multi-head attention in full against PyTorch's nn.MultiheadAttention in double: outputs, weights, gradients. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/layers.h"
#include "train/train.h"

/* What a layer gave: y, the gradients of query, key and value (NULL: the one before is that, too), of the bias,
 * and for each segment the weights averaged and by head. */
typedef struct {
    size_t count;
    const double *y, *dx[3], *dbias, *weights;
    const layer_param *params;
} heads_case;
#include "tests/data/multihead.h"

static const fv_segments of_queries = {3, query_offsets}, of_keys = {3, key_offsets};

/* How a case calls its layer. */
typedef struct {
    const heads_case *wanted;
    fv_multihead_opts opts;
    bool self, causal, scattered, padded, bias;
} heads_run;

static const heads_run runs[] = {
    {.wanted = &cross_case},
    {.wanted = &memory_case},
    {.wanted = &dims_case, .opts = {.kdim = KDIM, .vdim = VDIM}},
    {.wanted = &dims_no_bias_case,
     .opts = {.kdim = KDIM, .vdim = VDIM, .no_bias = true},
     .scattered = true},
    {.wanted = &bias_kv_case, .opts = {.add_bias_kv = true}, .self = true},
    {.wanted = &zero_attn_case, .opts = {.add_zero_attn = true}, .self = true, .causal = true},
    {.wanted = &both_case,
     .opts = {.no_bias = true, .add_bias_kv = true, .add_zero_attn = true},
     .self = true,
     .scattered = true,
     .causal = true},
    {.wanted = &both_dims_case,
     .opts = {.kdim = KDIM, .vdim = VDIM, .add_bias_kv = true, .add_zero_attn = true},
     .padded = true},
    {.wanted = &both_hidden_case,
     .opts = {.add_bias_kv = true, .add_zero_attn = true},
     .scattered = true,
     .padded = true},
    {.wanted = &both_bias_case, .opts = {.add_bias_kv = true, .add_zero_attn = true}, .bias = true},
    {.wanted = &bias_case, .self = true, .bias = true},
};
enum { RUNS = sizeof runs / sizeof *runs };

/* Whether the script hides a pair. */
static bool hidden(size_t s, size_t i, size_t j)
{
    return (5 * s + 3 * i + 2 * j) % 4 == 0;
}

/* Dense bytes, 1 = visible, of the pairs that the script hides by true. */
static const unsigned char *visible_bytes(fv_tape *t, const fv_segments *keys)
{
    unsigned char *bytes = fv_tape_alloc(t, QUERIES * KEYS, 1), *next = bytes;
    for (size_t s = 0; s < of_queries.count; s++)
        for (size_t i = 0; i < of_queries.offsets[s + 1] - of_queries.offsets[s]; i++)
            for (size_t j = 0; j < keys->offsets[s + 1] - keys->offsets[s]; j++)
                *next++ = !hidden(s, i, j);
    return bytes;
}

static size_t pairs_of(const fv_segments *keys)
{
    size_t pairs = 0;
    for (size_t s = 0; s < of_queries.count; s++)
        pairs += (of_queries.offsets[s + 1] - of_queries.offsets[s]) *
                 (keys->offsets[s + 1] - keys->offsets[s]);
    return pairs;
}

/* Numbers of each head and pair, -INFINITY where the script hides it. */
static fv_var *bias_of(fv_tape *t, const fv_segments *keys)
{
    const size_t pairs = pairs_of(keys);
    fv_real *bias = fv_tape_alloc(t, HEADS * pairs, sizeof *bias);
    for (size_t k = 0; k < HEADS * pairs; k++)
        bias[k] = number(k, 11);
    for (size_t s = 0, at = 0; s < of_queries.count; s++)
        for (size_t i = 0; i < of_queries.offsets[s + 1] - of_queries.offsets[s]; i++)
            for (size_t j = 0; j < keys->offsets[s + 1] - keys->offsets[s]; j++, at++)
                for (size_t h = 0; h < HEADS; h++)
                    if (hidden(s, i, j + h))
                        bias[h * pairs + at] = (fv_real)-INFINITY;
    return fv_input(t, FV_SHAPE(HEADS, pairs), bias);
}

/* The mask as rules and bytes, or as the edges that these show. */
static fv_mask mask_of(fv_tape *t, const heads_run *run, bool edges)
{
    const fv_segments *keys = run->self ? &of_queries : &of_keys;
    const fv_mask mask = {.queries = &of_queries,
                          .keys = keys,
                          .causal = run->causal,
                          .key_counts = run->padded ? key_counts : NULL,
                          .visible = run->scattered ? visible_bytes(t, keys) : NULL};
    if (!edges)
        return mask;
    const size_t rows = fv_segments_rows(keys);
    fv_graph *g = fv_tape_alloc(t, 1, sizeof *g);
    size_t *offsets = fv_tape_alloc(t, QUERIES + 1, sizeof *offsets);
    int32_t *list = fv_tape_alloc(t, QUERIES * rows, sizeof *list);
    for (size_t i = 0; i < QUERIES; i++) {
        offsets[i + 1] = offsets[i];
        for (size_t j = 0; j < rows; j++)
            if (fv_mask_sees(&mask, QUERIES, rows, i, j))
                list[offsets[i + 1]++] = (int32_t)j;
    }
    *g = (fv_graph){QUERIES, offsets, list};
    return (fv_mask){.queries = &of_queries, .keys = keys, .edges = g};
}

static void expect_weights(fv_tape *t, const fv_multihead *layer, const fv_var *y,
                           const double *wanted)
{
    for (size_t s = 0; s < of_queries.count; s++)
        for (int average = 1; average >= 0; average--) {
            const fv_tensor w = fv_multihead_weights(t, layer, y, s, average);
            cr_assert_not_null(w.data, "%s", fv_tape_error(t)->text);
            cr_assert_eq(w.shape.rank, average ? 2 : 3);
            expect_close("weights", fv_shape_count(w.shape), w.data, wanted);
            wanted += fv_shape_count(w.shape);
        }
}

static void check(const heads_run *run, bool edges)
{
    const heads_case *wanted = run->wanted;
    fv_params *params = fv_params_new(1);
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &run->opts);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fill_times(params, 4);
    const size_t keys = run->self ? QUERIES : KEYS;
    const size_t kdim = run->opts.kdim ? KDIM : D, vdim = run->opts.vdim ? VDIM : D;
    fv_var *in[3];
    in[0] = input_numbers(t, FV_SHAPE(QUERIES, D), 3);
    in[1] = wanted->dx[1] ? input_numbers(t, FV_SHAPE(keys, kdim), 4) : in[0];
    in[2] = wanted->dx[2] ? input_numbers(t, FV_SHAPE(keys, vdim), 5) : in[1];
    const fv_mask mask = mask_of(t, run, edges);
    fv_var *bias = run->bias ? bias_of(t, mask.keys) : NULL;
    fv_var *y = run->bias   ? fv_multihead_biased(t, &layer, in[0], in[1], in[2], &mask, bias)
                : run->self ? fv_multihead_forward(t, &layer, in[0], &mask)
                            : fv_multihead_cross(t, &layer, in[0], in[1], in[2], &mask);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    cr_assert_eq(fv_shape_count(y->value.shape), wanted->count);
    expect_close("y", wanted->count, y->value.data, wanted->y);
    if (wanted->weights != NULL)
        expect_weights(t, &layer, y, wanted->weights);
    project(t, y, 7);
    for (int i = 0; i < 3; i++)
        if (wanted->dx[i] != NULL)
            expect_close("dx", fvi_count(in[i]), in[i]->grad, wanted->dx[i]);
    if (bias != NULL)
        expect_close("dbias", fvi_count(bias), bias->grad, wanted->dbias);
    size_t named = 0;
    for (const layer_param *p = wanted->params; p->name != NULL; p++, named++) {
        const fv_param *mine = fv_params_find(params, p->name);
        cr_assert_not_null(mine, "no parameter %s", p->name);
        cr_expect(fv_shape_equal(mine->value.shape, p->shape), "%s has another shape", p->name);
        expect_close(p->name, fv_shape_count(p->shape), fv_param_grad(t, mine), p->grad);
    }
    cr_expect_eq(named, fv_params_count(params));
    fv_tape_free(t);
    fv_params_free(params);
}

ParameterizedTestParameters(layers_multihead, as_pytorch)
{
    static int ids[RUNS];
    for (int i = 0; i < RUNS; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, RUNS);
}

ParameterizedTest(int *id, layers_multihead, as_pytorch)
{
    check(&runs[*id], false);
    if (!runs[*id].bias)
        check(&runs[*id], true);
}

/* A mask that a number stands for: rules of all kinds, alone and together. */
static fv_mask some_mask(size_t n, const unsigned char *bytes, const fv_graph *edges)
{
    const int left[] = {0, 0, 2, FV_NONE}, right[] = {0, 1, 0, FV_NONE};
    return (fv_mask){.queries = &of_queries,
                     .keys = &of_keys,
                     .causal = n % 2,
                     .align_end = n / 2 % 2,
                     .offset = (int)(n / 4 % 3) - 1,
                     .left = left[n / 12 % 4],
                     .right = right[n / 12 % 4],
                     .key_counts = n / 48 % 2 ? key_counts : NULL,
                     .visible = n / 96 == 1 ? bytes : NULL,
                     .edges = n / 96 == 2 ? edges : NULL};
}

/* Keys of the layer's own are seen whatever the mask is: the same result as with bytes that say what it shows,
 * with a bias and without. */
Test(layers_multihead, own_keys_are_seen_whatever_the_mask)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts both = {.add_bias_kv = true, .add_zero_attn = true};
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &both);
    fill_times(params, 4);
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 0; n < 3 * 96; n++) {
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *q = input_numbers(t, FV_SHAPE(QUERIES, D), 3),
               *k = input_numbers(t, FV_SHAPE(KEYS, D), 4);
        const heads_run scattered = {.scattered = true};
        const unsigned char *bytes = visible_bytes(t, &of_keys);
        const fv_mask listed = mask_of(t, &scattered, true),
                      mask = some_mask(n, bytes, listed.edges);
        unsigned char *shown = fv_tape_alloc(t, pairs_of(&of_keys), 1), *next = shown;
        for (size_t s = 0; s < 3; s++)
            for (size_t i = query_offsets[s]; i < query_offsets[s + 1]; i++)
                for (size_t j = key_offsets[s]; j < key_offsets[s + 1]; j++)
                    *next++ = fv_mask_sees(&mask, QUERIES, KEYS, i, j);
        const fv_mask dense = {.queries = &of_queries, .keys = &of_keys, .visible = shown};
        fv_var *bias = mask.edges ? NULL : bias_of(t, &of_keys);
        for (int with = 0; with < (bias ? 2 : 1); with++) {
            fv_var *a = fv_multihead_biased(t, &layer, q, k, k, &mask, with ? bias : NULL);
            fv_var *b = fv_multihead_biased(t, &layer, q, k, k, &dense, with ? bias : NULL);
            cr_assert(fv_tape_ok(t), "%zu: %s", n, fv_tape_error(t)->text);
            for (size_t i = 0; i < QUERIES * D; i++)
                cr_expect(fabs((double)fv_re(a->value.data[i] - b->value.data[i])) < TOLERANCE,
                          "mask %zu, bias %d, at %zu: %g and %g", n, with, i,
                          (double)fv_re(a->value.data[i]), (double)fv_re(b->value.data[i]));
        }
    }
    fv_tape_free(t);
    fv_params_free(params);
}

static double mean_square(const fv_param *p, double *largest)
{
    double sum = 0;
    const size_t count = fv_shape_count(p->value.shape);
    *largest = 0;
    for (size_t i = 0; i < count; i++) {
        const double x = (double)fv_re(p->value.data[i]);
        sum += x * x;
        *largest = fmax(*largest, fabs(x));
    }
    return sum / (double)count;
}

/* The rules of nn.MultiheadAttention's reset_parameters: Xavier's, uniform for matrices, normal for bias_k. */
Test(layers_multihead, starts_as_pytorch_starts)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts opts = {.kdim = 100, .vdim = 300, .add_bias_kv = true};
    const fv_multihead layer = fv_multihead_init(fv_root(params), 400, 4, &opts);
    const fv_param *uniform[] = {layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight};
    const double in[] = {400, 100, 300};
    double largest;
    for (size_t i = 0; i < 3; i++) {
        const double bound = sqrt(6 / (400 + in[i]));
        cr_expect_float_eq(mean_square(uniform[i], &largest) / (bound * bound / 3), 1, 0.02);
        cr_expect(largest <= bound && largest > 0.99 * bound);
    }
    cr_expect_float_eq(mean_square(layer.bias_k, &largest) * 400, 1, 0.2);
    cr_expect_float_eq(mean_square(layer.bias_v, &largest) * 400, 1, 0.2);
    cr_expect_eq(mean_square(layer.in_proj_bias, &largest), 0);
    cr_expect(layer.bias_k->no_decay && layer.bias_v->no_decay);
    fv_params_free(params);
}

/* A window of the layer and one of the mask: the narrower holds on each side. */
Test(layers_multihead, a_window_of_its_own)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts narrow = {.left = 1, .right = FV_NONE};
    fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &narrow), plain = layer;
    plain.how.left = plain.how.right = 0;
    fill_times(params, 4);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(QUERIES, D), 3);
    const int left[] = {0, 2, FV_NONE}, right[] = {0, 3, FV_NONE}, both[] = {1, 1, FV_NONE};
    for (int i = 0; i < 3; i++) {
        const fv_mask given = {.queries = &of_queries, .left = left[i], .right = right[i]},
                      same = {.queries = &of_queries, .left = both[i], .right = FV_NONE};
        fv_var *a = fv_multihead_forward(t, &layer, x, &given),
               *b = fv_multihead_forward(t, &plain, x, &same),
               *c = fv_multihead_forward(t, &plain, x, &given);
        cr_assert(fv_tape_ok(t), "%s", fv_tape_error(t)->text);
        cr_expect_arr_eq(a->value.data, b->value.data, QUERIES * D * sizeof(fv_real));
        cr_expect_eq(i == 2,
                     memcmp(a->value.data, c->value.data, QUERIES * D * sizeof(fv_real)) == 0);
    }
    fv_tape_free(t);
    fv_params_free(params);
}

/* A state dict that PyTorch saved by numpy.savez loads by its names, and gives PyTorch's numbers. */
Test(layers_multihead, a_state_dict_loads_by_name)
{
    fv_error error = {FV_OK, ""};
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts opts = {.kdim = KDIM, .vdim = VDIM, .add_bias_kv = true};
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &opts);
    fv_checkpoint *file = fv_checkpoint_open("tests/data/multihead.npz", &error);
    cr_assert_not_null(file, "%s", error.text);
    cr_assert(fv_checkpoint_restore(file, params, NULL, &error), "%s", error.text);
    fv_checkpoint_close(file);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 1, 1);
    const fv_mask mask = {.queries = &of_queries, .keys = &of_keys};
    fv_var *y = fv_multihead_cross(t, &layer, input_numbers(t, FV_SHAPE(QUERIES, D), 3),
                                   input_numbers(t, FV_SHAPE(KEYS, KDIM), 4),
                                   input_numbers(t, FV_SHAPE(KEYS, VDIM), 5), &mask);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    expect_close("y", QUERIES * D, y->value.data, loaded_y);
    fv_tape_free(t);
    fv_params_free(params);
}
