/* Parameter sets: names, scopes, initial values, refusals, and layers that are half made. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "layers/layers.h"
#include "tensor/internal.h"

static const fv_init normal = {FV_NORMAL, 1};

Test(params, scopes_make_names)
{
    fv_params *params = fv_params_new(3);
    const fv_scope root = fv_root(params), layers = fv_under(root, "layers.%d", 2);
    fv_param *a = fv_param_new(root, "a", FV_SHAPE(2), normal),
             *b = fv_param_new(fv_under(layers, "norm"), "weight", FV_SHAPE(2, 3), normal),
             *c = fv_param_new(layers, "c", FV_SCALAR, normal);
    cr_expect_str_eq(a->name, "a");
    cr_expect_str_eq(b->name, "layers.2.norm.weight");
    cr_expect_str_eq(c->name, "layers.2.c");
    cr_expect(a->index == 0 && b->index == 1 && c->index == 2);
    cr_expect_eq(fv_params_count(params), 3);
    cr_expect_eq(fv_params_numbers(params), 2 + 6 + 1);
    cr_expect(fv_params_at(params, 1) == b);
    cr_expect_null(fv_params_at(params, 3));
    cr_expect(fv_params_find(params, "layers.2.norm.weight") == b);
    cr_expect_null(fv_params_find(params, "layers.2.norm"));
    cr_expect_null(fv_params_find(params, ""));
    cr_expect_eq(fv_params_seed(params), 3);
    cr_expect_eq(fv_params_error(params)->status, FV_OK);
    fv_params_free(params);
}

Test(params, refusals)
{
    const struct {
        const char *prefix, *name;
        fv_shape shape;
        const char *message;
    } wrong[] = {
        {"head", "weight", FV_SHAPE(2), "parameter head.weight: the name is taken"},
        {"head", "bias", FV_SHAPE(3, 0), "parameter head.bias: shape [3, 0] holds no numbers"},
        {"head", "bias", FV_SHAPE(SIZE_MAX, 2),
         "parameter head.bias: shape [18446744073709551615, 2] holds no numbers"},
        {"head", "bias", {.rank = -1}, "parameter head.bias: shape [] holds no numbers"},
        {"head", "bias", FV_SHAPE(SIZE_MAX / 2),
         "parameter head.bias: out of memory for [9223372036854775807]"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_params *params = fv_params_new(1);
        fv_param_new(fv_under(fv_root(params), "head"), "weight", FV_SHAPE(2), normal);
        const fv_scope scope = fv_under(fv_root(params), "%s", wrong[i].prefix);
        cr_expect_null(fv_param_new(scope, wrong[i].name, wrong[i].shape, normal));
        cr_expect_str_eq(fv_params_error(params)->text, wrong[i].message);
        cr_expect_null(fv_param_new(scope, "fine", FV_SHAPE(2), normal), "the error stays");
        cr_expect_eq(fv_params_count(params), 1);
        fv_params_free(params);
    }
    cr_expect_null(fv_param_new(fv_root(NULL), "a", FV_SHAPE(2), normal));
    cr_expect_null(fv_param_new(fv_under(fv_root(NULL), "b"), "a", FV_SHAPE(2), normal));
    fv_params_free(NULL);
}

Test(params, a_name_is_not_cut)
{
    char name[300];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    fv_params *params = fv_params_new(1);
    fv_scope scope = fv_under(fv_root(params), "%s", name);
    cr_expect_null(fv_param_new(scope, "a", FV_SHAPE(2), normal));
    cr_expect_eq(fv_params_error(params)->status, FV_USAGE);
    name[199] = 0;
    const char *wanted = "a scope's name has 299 bytes, at most 199: ";
    cr_expect_eq(strncmp(fv_params_error(params)->text, wanted, strlen(wanted)), 0, "%s",
                 fv_params_error(params)->text);
    fv_params_free(params);
    params = fv_params_new(1);
    scope = fv_under(fv_under(fv_root(params), "%s", name), "%s", name);
    fv_param *p = fv_param_new(scope, name, FV_SHAPE(2), normal);
    cr_assert_not_null(p);
    cr_expect_eq(strlen(p->name), 3 * 199 + 2);
    fv_params_free(params);
}

/* Neither order, nor shape, nor other parameters matter. */
Test(params, values_are_a_function_of_seed_and_name)
{
    fv_params *a = fv_params_new(1), *b = fv_params_new(1), *c = fv_params_new(2);
    fv_param *one = fv_param_new(fv_under(fv_root(a), "w"), "x", FV_SHAPE(4, 5), normal);
    fv_param_new(fv_root(b), "other", FV_SHAPE(7), normal);
    fv_param *two = fv_param_new(fv_root(b), "w.x", FV_SHAPE(20), normal),
             *named = fv_param_new(fv_root(b), "w.y", FV_SHAPE(20), normal),
             *seeded = fv_param_new(fv_root(c), "w.x", FV_SHAPE(20), normal);
    cr_expect_arr_eq(one->value.data, two->value.data, 20 * sizeof(fv_real));
    cr_expect_arr_neq(one->value.data, named->value.data, 20 * sizeof(fv_real));
    cr_expect_arr_neq(one->value.data, seeded->value.data, 20 * sizeof(fv_real));
    fv_params_free(a);
    fv_params_free(b);
    fv_params_free(c);
}

/* Mean and variance of a parameter's values, and their range. */
typedef struct {
    double mean, variance, low, high;
} moments;

static moments moments_of(const fv_param *p)
{
    moments m = {0, 0, INFINITY, -INFINITY};
    const size_t count = fv_shape_count(p->value.shape);
    for (size_t i = 0; i < count; i++) {
        const double x = (double)fv_re(p->value.data[i]);
        m.mean += x / (double)count;
        m.low = fmin(m.low, x);
        m.high = fmax(m.high, x);
    }
    for (size_t i = 0; i < count; i++)
        m.variance += pow((double)fv_re(p->value.data[i]) - m.mean, 2) / (double)count;
    return m;
}

/* Within five standard deviations of what that many draws give. */
static void expect_uniform(const fv_param *p, double bound)
{
    const double count = (double)fv_shape_count(p->value.shape), variance = bound * bound / 3;
    const moments m = moments_of(p);
    cr_expect(m.low >= -bound && m.high <= bound, "%s: %g .. %g, bound %g", p->name, m.low, m.high,
              bound);
    cr_expect(m.low < -0.98 * bound && m.high > 0.98 * bound, "%s: %g .. %g, bound %g", p->name,
              m.low, m.high, bound);
    cr_expect_float_eq(m.mean, 0, 5 * sqrt(variance / count), "%s: mean %g", p->name, m.mean);
    cr_expect_float_eq(m.variance, variance, 5 * variance * sqrt(0.8 / count), "%s: variance %g",
                       p->name, m.variance);
}

static void expect_normal(const fv_param *p, double deviation)
{
    const double count = (double)fv_shape_count(p->value.shape), variance = deviation * deviation;
    const moments m = moments_of(p);
    cr_expect_float_eq(m.mean, 0, 5 * deviation / sqrt(count), "%s: mean %g", p->name, m.mean);
    cr_expect_float_eq(m.variance, variance, 5 * variance * sqrt(2 / count), "%s: variance %g",
                       p->name, m.variance);
    cr_expect(m.high > 3 * deviation && m.low < -3 * deviation, "%s has no tails", p->name);
}

static void expect_all(const fv_param *p, double value)
{
    const moments m = moments_of(p);
    cr_expect(m.low == value && m.high == value, "%s: %g .. %g, expected %g", p->name, m.low,
              m.high, value);
}

/* The rules of PyTorch's reset_parameters: nn.Linear, nn.Embedding, nn.LayerNorm, nn.MultiheadAttention. */
Test(params, layers_start_as_pytorch_starts)
{
    fv_params *params = fv_params_new(11);
    const fv_scope root = fv_root(params);
    const fv_linear linear = fv_linear_init(fv_under(root, "linear"), 50, 400, NULL);
    expect_uniform(linear.weight, 1 / sqrt(50));
    expect_uniform(linear.bias, 1 / sqrt(50));
    const fv_embedding table = fv_embedding_init(fv_under(root, "table"), 300, 40, NULL);
    expect_normal(table.weight, 1);
    const fv_embedding_opts narrow = {.deviation = 0.1, .touched_rows = true};
    const fv_embedding small = fv_embedding_init(fv_under(root, "small"), 300, 40, &narrow);
    expect_normal(small.weight, 0.1);
    cr_expect(small.weight->touched_rows && !table.weight->touched_rows);
    const fv_norm norm = fv_norm_init(fv_under(root, "norm"), 64);
    expect_all(norm.weight, 1);
    expect_all(norm.bias, 0);
    const fv_multihead_opts biased = {.relative_clip = 2};
    const fv_multihead heads = fv_multihead_init(fv_under(root, "heads"), 60, 4, &biased);
    expect_uniform(heads.in_proj_weight, sqrt(6 / (60 + 180.0)));
    expect_all(heads.in_proj_bias, 0);
    expect_uniform(heads.out_proj.weight, 1 / sqrt(60));
    expect_all(heads.out_proj.bias, 0);
    expect_all(heads.relative, 0);
    const fv_positions learned = fv_positions_init(fv_under(root, "learned"), 300, 40, NULL);
    expect_normal(learned.weight, 0.02);
    cr_expect_not(learned.weight->frozen);
    cr_expect(linear.bias->no_decay && table.weight->no_decay && norm.weight->no_decay &&
              norm.bias->no_decay && heads.in_proj_bias->no_decay && heads.relative->no_decay &&
              heads.out_proj.bias->no_decay && learned.weight->no_decay);
    cr_expect_not(linear.weight->no_decay || heads.in_proj_weight->no_decay);
    fv_params_free(params);
}

Test(params, heads_start_looking_at_their_neighbours)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts opts = {.relative_clip = 2, .relative_start = 3};
    const fv_multihead layer = fv_multihead_init(fv_root(params), 6, 6, &opts);
    /* distances -2 .. 2: one back, one ahead, two back, two ahead, and no place for the rest */
    static const double wanted[6][5] = {{0, 3, 0, 0, 0}, {0, 0, 0, 3, 0}, {3, 0, 0, 0, 0},
                                        {0, 0, 0, 0, 3}, {0, 0, 0, 0, 0}, {0, 0, 0, 0, 0}};
    for (size_t i = 0; i < 30; i++)
        cr_expect(fv_re(layer.relative->value.data[i]) == wanted[i / 5][i % 5], "at %zu", i);
    fv_params_free(params);
}

/* A layer whose second parameter failed must not run on the first. */
Test(params, half_a_layer_gives_null)
{
    const fv_real data[12] = {0};
    fv_tape *t = fv_tape_new(NULL);
    for (int which = 0; which < 5; which++) {
        fv_params *params = fv_params_new(1);
        const fv_scope root = fv_root(params);
        static const char *const taken[] = {"bias", "bias", "in_proj_bias", "out_proj.bias",
                                            "relative_bias"};
        const fv_multihead_opts biased = {.relative_clip = 1};
        fv_param_new(root, taken[which], FV_SHAPE(3), normal);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(2, 6), data), *y;
        if (which == 0) {
            const fv_linear linear = fv_linear_init(root, 6, 3, NULL);
            y = fv_linear_forward(t, &linear, x);
        } else if (which == 1) {
            const fv_norm norm = fv_norm_init(root, 6);
            y = fv_norm_forward(t, &norm, x);
        } else {
            const fv_multihead heads = fv_multihead_init(root, 6, 2, &biased);
            y = fv_multihead_forward(t, &heads, x, NULL);
        }
        cr_expect_null(y, "%s", taken[which]);
        cr_expect_str_eq(fv_tape_error(t)->text, "use: no parameter (the set's error says why)");
        cr_expect_not_null(strstr(fv_params_error(params)->text, "the name is taken"));
        fv_params_free(params);
    }
    fv_tape_free(t);
}

/* A set made on a file's word for its sizes stops where the file ends. */
Test(params, a_limit_is_kept)
{
    fv_params *params = fv_params_new(1);
    const fv_scope root = fv_root(params);
    fv_params_limit(params, 10);
    cr_expect_not_null(fv_param_new(root, "a", FV_SHAPE(2, 3), (fv_init){FV_ZEROS, 0}));
    cr_expect_not_null(fv_param_new(root, "b", FV_SHAPE(4), (fv_init){FV_ZEROS, 0}));
    cr_expect_null(fv_param_new(root, "c", FV_SHAPE(1), (fv_init){FV_ZEROS, 0}));
    cr_expect_str_eq(fv_params_error(params)->text,
                     "parameter c: [1] goes beyond the limit of 10 numbers");
    fv_params_free(params);
}
