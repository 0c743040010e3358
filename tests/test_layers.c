/* Layers against PyTorch in double: values, all gradients, names and shapes (tools/make_layer_fixtures.py). */
#include "tests/layers.h"

/* What a layer gave: y, and the gradient of its input (NULL: it has none). */
typedef struct {
    size_t count;
    const double *y, *dx;
    const layer_param *params;
} layer_case;
#include "tests/data/layers.h"

static const fv_segments segments = {3, layer_offsets}, bags = {4, layer_bag_offsets};

/* A parameter's gradient as a whole table, whether it was kept by rows or not. */
static void expect_gradient(const fv_tape *t, const fv_param *p, const double *wanted)
{
    fv_real whole[256] = {0};
    const size_t count = fv_shape_count(p->value.shape);
    const int32_t *rows;
    const fv_real *grad = NULL;
    const size_t touched = fv_touched(t, p, &rows, &grad);
    cr_assert_leq(count, 256);
    if (touched == 0) {
        cr_assert_not_null(fv_param_grad(t, p), "%s has no gradient", p->name);
        memcpy(whole, fv_param_grad(t, p), count * sizeof *whole);
    }
    for (size_t i = 0; i < touched; i++)
        memcpy(whole + (size_t)rows[i] * LAYER_D, grad + i * LAYER_D, LAYER_D * sizeof *whole);
    expect_close(p->name, count, whole, wanted);
}

/* Makes a layer at the root, and runs it after fill. */
typedef fv_var *(*layer_run)(fv_tape *t, fv_params *params, fv_var *x);

static void check(const layer_case *c, size_t columns, layer_run run)
{
    fv_params *params = fv_params_new(1);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_real *x = fv_tape_alloc(t, LAYER_ROWS * columns, sizeof *x),
            *weights = fv_tape_alloc(t, c->count, sizeof *weights);
    for (size_t i = 0; i < LAYER_ROWS * columns; i++)
        x[i] = number(i, 3);
    for (size_t i = 0; i < c->count; i++)
        weights[i] = number(i, 7);
    fv_var *input = fv_input(t, FV_SHAPE(LAYER_ROWS, columns), x), *y = run(t, params, input);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    cr_assert_eq(fv_shape_count(y->value.shape), c->count);
    expect_close("y", c->count, y->value.data, c->y);
    fv_var *projected = fv_mul(t, y, fv_constant(t, y->value.shape, weights));
    cr_assert(fv_backward(t, fv_sum(t, projected, NULL)), "%s", fv_tape_error(t)->text);
    if (c->dx != NULL)
        expect_close("dx", LAYER_ROWS * columns, input->grad, c->dx);
    size_t named = 0, trained = 0;
    for (const layer_param *p = c->params; p->name != NULL; p++, named++) {
        const fv_param *mine = fv_params_find(params, p->name);
        cr_assert_not_null(mine, "no parameter %s", p->name);
        cr_expect(fv_shape_equal(mine->value.shape, p->shape), "%s has another shape", p->name);
        expect_gradient(t, mine, p->grad);
    }
    for (size_t i = 0; i < fv_params_count(params); i++)
        trained += !fv_params_at(params, i)->frozen;
    cr_expect_eq(named, trained, "%zu parameters, PyTorch has %zu", trained, named);
    fv_tape_free(t);
    fv_params_free(params);
}

static fv_var *run_linear(fv_tape *t, fv_params *params, fv_var *x)
{
    const fv_linear layer = fv_linear_init(fv_root(params), LAYER_D, 5, NULL);
    fill(params);
    return fv_linear_forward(t, &layer, x);
}

static fv_var *run_linear_no_bias(fv_tape *t, fv_params *params, fv_var *x)
{
    const fv_linear_opts opts = {.no_bias = true};
    const fv_linear layer = fv_linear_init(fv_root(params), LAYER_D, 5, &opts);
    fill(params);
    return fv_linear_forward(t, &layer, x);
}

Test(layers, linear)
{
    check(&linear_case, LAYER_D, run_linear);
    check(&linear_no_bias_case, LAYER_D, run_linear_no_bias);
}

static fv_var *run_embedding(fv_tape *t, fv_params *params, fv_var *x)
{
    (void)x;
    const fv_embedding layer = fv_embedding_init(fv_root(params), 10, LAYER_D, NULL);
    fill(params);
    return fv_embedding_forward(t, &layer, layer_ids, LAYER_ROWS);
}

static fv_var *run_bags(fv_tape *t, fv_params *params, fv_var *x)
{
    (void)x;
    const fv_embedding layer = fv_embedding_init(fv_root(params), 10, LAYER_D, NULL);
    fill(params);
    return fv_embedding_bags(t, &layer, layer_ids, &bags);
}

Test(layers, embedding)
{
    check(&embedding_case, LAYER_D, run_embedding);
    check(&bags_case, LAYER_D, run_bags);
}

static fv_var *run_norm(fv_tape *t, fv_params *params, fv_var *x)
{
    const fv_norm layer = fv_norm_init(fv_root(params), LAYER_D);
    fill(params);
    return fv_norm_forward(t, &layer, x);
}

Test(layers, norm)
{
    check(&norm_case, LAYER_D, run_norm);
}

static fv_var *run_positions(fv_tape *t, fv_params *params, fv_var *x)
{
    const fv_positions layer = fv_positions_init(fv_root(params), 6, LAYER_D, NULL);
    fill(params);
    return fv_positions_forward(t, &layer, x, &segments);
}

static fv_var *run_sinusoidal(fv_tape *t, fv_params *params, fv_var *x)
{
    const fv_positions_opts opts = {.sinusoidal = true};
    const fv_positions layer = fv_positions_init(fv_root(params), 6, LAYER_D, &opts);
    cr_expect(layer.weight->frozen);
    return fv_positions_forward(t, &layer, x, &segments);
}

Test(layers, positions)
{
    check(&positions_case, LAYER_D, run_positions);
    check(&sinusoidal_case, LAYER_D, run_sinusoidal);
}

static fv_var *run_heads(fv_tape *t, fv_params *params, fv_var *x, bool no_bias, bool causal)
{
    const fv_multihead_opts opts = {.no_bias = no_bias};
    const fv_multihead layer = fv_multihead_init(fv_root(params), LAYER_D, LAYER_HEADS, &opts);
    const fv_mask mask = {.queries = &segments, .causal = causal};
    fill(params);
    return fv_multihead_forward(t, &layer, x, &mask);
}

static fv_var *run_multihead(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_heads(t, params, x, false, false);
}

static fv_var *run_multihead_no_bias(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_heads(t, params, x, true, false);
}

static fv_var *run_multihead_causal(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_heads(t, params, x, false, true);
}

Test(layers, multihead)
{
    check(&multihead_case, LAYER_D, run_multihead);
    check(&multihead_no_bias_case, LAYER_D, run_multihead_no_bias);
    check(&multihead_causal_case, LAYER_D, run_multihead_causal);
}

static fv_var *run_block(fv_tape *t, fv_params *params, fv_var *x, bool post_norm,
                         fv_activation activation)
{
    const fv_block_opts opts = {
        .hidden = LAYER_HIDDEN, .post_norm = post_norm, .activation = activation};
    const fv_block layer = fv_block_init(fv_root(params), LAYER_D, LAYER_HEADS, &opts);
    const fv_mask mask = {.queries = &segments};
    fill(params);
    return fv_block_forward(t, &layer, x, &mask);
}

static fv_var *run_block_pre_relu(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_block(t, params, x, false, FV_ACT_RELU);
}

static fv_var *run_block_pre_gelu(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_block(t, params, x, false, FV_ACT_GELU);
}

static fv_var *run_block_post_relu(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_block(t, params, x, true, FV_ACT_RELU);
}

static fv_var *run_block_post_gelu(fv_tape *t, fv_params *params, fv_var *x)
{
    return run_block(t, params, x, true, FV_ACT_GELU);
}

Test(layers, encoder_block)
{
    check(&block_pre_relu_case, LAYER_D, run_block_pre_relu);
    check(&block_pre_gelu_case, LAYER_D, run_block_pre_gelu);
    check(&block_post_relu_case, LAYER_D, run_block_post_relu);
    check(&block_post_gelu_case, LAYER_D, run_block_post_gelu);
}

static fv_var *run_cross_entropy(fv_tape *t, fv_params *params, fv_var *x)
{
    (void)params;
    double count = 0;
    fv_var *y = fv_cross_entropy_sum(t, fv_scale(t, x, 8), layer_labels, NULL, &count);
    cr_expect_eq(count, 7, "two of nine rows are left out");
    return y;
}

static fv_var *run_cross_entropy_smooth(fv_tape *t, fv_params *params, fv_var *x)
{
    (void)params;
    const fv_cross_entropy_opts opts = {.smoothing = 0.1};
    return fv_cross_entropy_sum(t, fv_scale(t, x, 8), layer_labels, &opts, NULL);
}

Test(layers, cross_entropy)
{
    check(&cross_entropy_case, 5, run_cross_entropy);
    check(&cross_entropy_smooth_case, 5, run_cross_entropy_smooth);
}

/* The weights that attention used, seen from outside: rows sum to 1, hidden pairs are 0, y is their sum. */
Test(layers, attention_weights)
{
    fv_params *params = fv_params_new(1);
    fv_tape *t = fv_tape_new(NULL);
    fv_real x[LAYER_ROWS * 3 * LAYER_D];
    for (size_t i = 0; i < LAYER_ROWS * 3 * LAYER_D; i++)
        x[i] = number(i, 3);
    const fv_mask mask = {.queries = &segments, .causal = true};
    const fv_attention_opts opts = {.heads = 2};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *qkv = fv_input(t, FV_SHAPE(LAYER_ROWS, 3 * LAYER_D), x);
    fv_var *y = fv_self_attention(t, qkv, &mask, &opts);
    for (size_t s = 0; s < 3; s++) {
        const size_t at = layer_offsets[s], n = layer_offsets[s + 1] - at, vd = LAYER_D / 2;
        const fv_tensor w = fv_attention_weights(t, y, s);
        cr_assert(fv_shape_equal(w.shape, FV_SHAPE(2, n, n)));
        for (size_t h = 0; h < 2; h++)
            for (size_t i = 0; i < n; i++) {
                double sum = 0, mixed[LAYER_D / 2] = {0};
                for (size_t j = 0; j < n; j++) {
                    const double weight = (double)fv_re(w.data[(h * n + i) * n + j]);
                    cr_expect(j <= i ? weight > 0 : weight == 0);
                    sum += weight;
                    for (size_t c = 0; c < vd; c++)
                        mixed[c] +=
                            weight *
                            (double)fv_re(x[(at + j) * 3 * LAYER_D + 2 * LAYER_D + h * vd + c]);
                }
                cr_expect_float_eq(sum, 1, 1e-6);
                for (size_t c = 0; c < vd; c++)
                    cr_expect_float_eq(
                        mixed[c], (double)fv_re(y->value.data[(at + i) * LAYER_D + h * vd + c]),
                        1e-6);
            }
    }
    fv_tape_free(t);
    fv_params_free(params);
}
