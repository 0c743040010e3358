/* The two constructions of heads and their conversion, pooling, what a layer refuses, and gradient checks. */
#include "tests/layers.h"
#include "tests/user_score.h"

static const size_t offsets[] = {0, 4, 5, 9};
static const fv_segments segments = {3, offsets};
enum { ROWS = 9, D = 6, HEADS = 2 };

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double EXACT = 1e-12;
#else
static const double EXACT = 1e-4;
#endif

static void expect_same(const char *what, size_t count, const fv_real *a, const fv_real *b)
{
    double largest = 0;
    cr_assert(a != NULL && b != NULL, "%s is missing", what);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)fv_re(b[i])));
    cr_expect_gt(largest, 0, "%s: nothing to compare", what);
    for (size_t i = 0; i < count; i++)
        cr_expect(fabs((double)fv_re(a[i] - b[i])) <= EXACT * largest, "%s at %zu: %.17g and %.17g",
                  what, i, (double)fv_re(a[i]), (double)fv_re(b[i]));
}

/* c = a b, or a' b with turned: matrices whose rows stand one behind the other. */
static void multiply(size_t m, size_t k, size_t n, bool turned, const fv_real *a, const fv_real *b,
                     fv_real *c)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            c[i * n + j] = 0;
            for (size_t p = 0; p < k; p++)
                c[i * n + j] += (turned ? a[p * m + i] : a[i * k + p]) * b[p * n + j];
        }
}

/* A matrix W^h W of split channels has dW = W^h' d(W^h W) and dW^h = d(W^h W) W' + d(W^h b) b'. */
static void expect_products(const fv_tape *t, const fv_headwise *each, const fv_multihead *split)
{
    enum { WIDTH = 2 * 2 };
    const fv_linear *shared[3] = {&each->query, &each->key, &each->value};
    const fv_param *heads[3] = {each->query_heads, each->key_heads, each->value_heads};
    fv_real wanted[D * D], transposed[D * D];
    for (size_t p = 0; p < 3; p++) {
        const fv_real *folded = fv_param_grad(t, split->in_proj_weight) + p * WIDTH * D;
        const fv_real *bias = fv_param_grad(t, split->in_proj_bias) + p * WIDTH;
        const fv_real *w = shared[p]->weight->value.data, *b = shared[p]->bias->value.data;
        multiply(D, WIDTH, D, true, heads[p]->value.data, folded, wanted);
        expect_same("dW", D * D, fv_param_grad(t, shared[p]->weight), wanted);
        for (size_t i = 0; i < D; i++)
            for (size_t j = 0; j < D; j++)
                transposed[i * D + j] = w[j * D + i];
        multiply(WIDTH, D, D, false, folded, transposed, wanted);
        for (size_t i = 0; i < WIDTH * D; i++)
            wanted[i] += bias[i / D] * b[i % D];
        expect_same("dW^h", WIDTH * D, fv_param_grad(t, heads[p]), wanted);
    }
}

/* Both constructions on one tape after filling one from the other: outputs, and gradients of the input, of what
 * both have, and through the folded products. */
static void compare(bool unfold)
{
    fv_error error = {FV_OK, ""};
    fv_params *params = fv_params_new(1);
    const fv_headwise_opts narrow = {.head_width = 2};
    const fv_multihead_opts same = {.key_width = 2, .value_width = 2};
    const fv_headwise each = fv_headwise_init(fv_under(fv_root(params), "each"), D, HEADS, &narrow);
    const fv_multihead split =
        fv_multihead_init(fv_under(fv_root(params), "split"), D, HEADS, &same);
    fill_times(params, 3);
    cr_assert(unfold ? fv_headwise_unfold(&split, &each, &error)
                     : fv_headwise_fold(&each, &split, &error),
              "%s", error.text);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    const fv_mask mask = {.queries = &segments, .causal = true};
    fv_var *x1 = input_numbers(t, FV_SHAPE(ROWS, D), 3),
           *x2 = input_numbers(t, FV_SHAPE(ROWS, D), 3);
    fv_var *y1 = fv_headwise_forward(t, &each, x1, &mask),
           *y2 = fv_multihead_forward(t, &split, x2, &mask);
    cr_assert(y1 != NULL && y2 != NULL, "%s", fv_tape_error(t)->text);
    expect_same("y", ROWS * D, y1->value.data, y2->value.data);
    /* the same weights for both halves, so that both have the gradients of the same sum */
    fv_var *weights = input_numbers(t, FV_SHAPE(ROWS, D), 7);
    fv_var *sum = fv_sum(t, fv_mul(t, fv_add(t, y1, y2), weights), NULL);
    cr_assert(fv_backward(t, sum), "%s", fv_tape_error(t)->text);
    expect_same("dx", ROWS * D, x1->grad, x2->grad);
    expect_same("dW_O", D * 4, fv_param_grad(t, each.out_proj.weight),
                fv_param_grad(t, split.out_proj.weight));
    expect_products(t, &each, &split);
    fv_tape_free(t);
    fv_params_free(params);
}

Test(layers_heads, a_matrix_a_head_folds_into_split_channels)
{
    compare(false);
}

Test(layers_heads, split_channels_unfold_into_a_matrix_a_head)
{
    compare(true);
}

Test(layers_heads, conversion_refuses_what_differs)
{
    fv_params *params = fv_params_new(1);
    const fv_scope root = fv_root(params);
    const fv_headwise each = fv_headwise_init(fv_under(root, "each"), D, HEADS, NULL);
    const fv_headwise_opts three = {.head_width = 4};
    const fv_headwise wide = fv_headwise_init(fv_under(root, "wide"), D, HEADS, &three);
    const struct {
        size_t d, heads;
        const fv_headwise *each;
        fv_multihead_opts opts;
        const char *text;
    } wrong[] = {
        {D, 3, &each, {0}, "heads: 2 of width 3, the other has 3 and 3 of widths 2 and 2"},
        {D,
         2,
         &each,
         {.kv_heads = 1},
         "heads: 2 of width 3, the other has 2 and 1 of widths 3 and 3"},
        {D, 2, &each, {.out = 5}, "heads: the two layers map rows of other widths"},
        {D, 2, &each, {.kdim = 5}, "heads: the two layers map rows of other widths"},
        {8,
         2,
         &each,
         {.key_width = 3, .value_width = 3},
         "heads: the two layers map rows of other widths"},
        {D, 2, &each, {.no_output = true}, "heads: the two layers map rows of other widths"},
        {D, 2, &each, {.no_bias = true}, "heads: only one of the two layers has biases"},
        {D, 2, &each, {.alibi = true}, "heads: a layer of more than scaled dots and softmax"},
        {D, 2, &each, {.softcap = 5}, "heads: a layer of more than scaled dots and softmax"},
        {D,
         2,
         &wide,
         {.key_width = 4, .value_width = 4},
         "heads: 8 channels of heads are more than 6"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_error error = {FV_OK, ""};
        const fv_multihead split = fv_multihead_init(fv_under(root, "split%zu", i), wrong[i].d,
                                                     wrong[i].heads, &wrong[i].opts);
        cr_assert_neq(split.heads, 0, "%s", fv_params_error(params)->text);
        cr_expect_not(fv_headwise_unfold(&split, wrong[i].each, &error), "%s", wrong[i].text);
        cr_expect_str_eq(error.text, wrong[i].text);
        if (wrong[i].each == &each)
            cr_expect_not(fv_headwise_fold(&each, &split, NULL));
    }
    fv_params_free(params);
}

/* ---- pooling --------------------------------------------------------------------------------------------- */

/* A query that is zero weighs all rows alike: the mean of their values; several queries stand side by side. */
Test(layers_heads, pooling_by_nothing_is_the_mean)
{
    static const size_t with_empty[] = {0, 4, 4, 9};
    const fv_segments three = {3, with_empty};
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts bare = {
        .no_bias = true, .no_output = true, .no_values = true, .value_width = 0};
    const fv_attention_pool pool = fv_attention_pool_init(fv_root(params), D, 2, HEADS, &bare);
    for (size_t i = 0; i < D; i++)
        pool.query->value.data[i] = 0;
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
    fv_var *y = fv_attention_pool_forward(t, &pool, x, &three),
           *mean = fv_segment_mean(t, x, &three);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    cr_assert(fv_shape_equal(y->value.shape, FV_SHAPE(3 * 2, D)));
    for (size_t s = 0; s < 3; s++)
        for (size_t c = 0; c < D; c++) {
            const fv_real got = y->value.data[2 * s * D + c],
                          other = y->value.data[(2 * s + 1) * D + c];
            const fv_real difference = got - mean->value.data[s * D + c];
            cr_expect(fabs((double)fv_re(difference)) < 1e-6);
            cr_expect(s == 1 ? fv_re(other) == 0 : fv_re(other - got) != 0);
        }
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect_null(fv_attention_pool_forward(t, &pool, x, NULL));
    cr_expect_str_eq(fv_tape_error(t)->text, "attention_pool: no segments");
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- what an init refuses ---------------------------------------------------------------------------------- */

Test(layers_heads, an_init_says_what_cannot_be)
{
    const struct {
        size_t d, heads;
        fv_multihead_opts opts;
        const char *text;
    } wrong[] = {
        {6, 4, {0}, "here: 4 heads do not divide the width 6"},
        {6, 0, {0}, "here: 0 heads of queries for 0 of keys: they must divide"},
        {6, 3, {.kv_heads = 2}, "here: 3 heads of queries for 2 of keys: they must divide"},
        {6,
         2,
         {.no_values = true, .vdim = 5},
         "here: values as they are, 5 wide, are cut into 2 heads"},
        {6,
         2,
         {.no_values = true, .value_width = 4},
         "here: values as they are, 6 wide, are cut into 2 heads"},
        {6,
         2,
         {.relative_clip = 2, .shaw_clip = 2},
         "here: relative_clip 2, t5_buckets 0, shaw_clip 2: at most one"},
        {6,
         2,
         {.relative_clip = -1},
         "here: relative_clip -1, t5_buckets 0, shaw_clip 0: at most one"},
        {6, 2, {.rotary = true}, "here: rotary positions turn pairs: 3 columns of heads 3 wide"},
        {6,
         2,
         {.rotary = true, .rotary_width = 4},
         "here: rotary positions turn pairs: 4 columns of heads 3 wide"},
        {6, 2, {.dropout = 1}, "here: dropout must be at least 0 and below 1"},
        {6,
         2,
         {.t5_buckets = 5},
         "here: 5 buckets of distances up to 128: an even number, at least 4 "
         "(causal: 2), fewer than those"},
        {6,
         2,
         {.t5_buckets = 32, .t5_distance = 8},
         "here: 32 buckets of distances up to 8: an even number, at least 4 (causal: 2), fewer "
         "than those"},
        {SIZE_MAX / 2,
         1,
         {0},
         "parameter here.in_proj_weight: shape [0, 9223372036854775807] holds no numbers"},
        {6,
         2,
         {.key_width = SIZE_MAX / 2, .value_width = 2},
         "parameter here.in_proj_weight: shape [0, 6] holds no numbers"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_params *params = fv_params_new(1);
        const fv_multihead layer = fv_multihead_init(fv_under(fv_root(params), "here"), wrong[i].d,
                                                     wrong[i].heads, &wrong[i].opts);
        cr_expect_eq(layer.heads, 0);
        cr_expect_eq(fv_params_error(params)->status, FV_USAGE);
        cr_expect_str_eq(fv_params_error(params)->text, wrong[i].text);
        fv_params_free(params);
    }
    fv_params *params = fv_params_new(1);
    cr_expect_eq(fv_headwise_init(fv_under(fv_root(params), "here"), 6, 4, NULL).heads, 0);
    cr_expect_str_eq(fv_params_error(params)->text, "here: 4 heads do not divide the width 6");
    fv_params_free(params);
    cr_expect_eq(fv_multihead_init(fv_root(NULL), 6, 2, NULL).heads, 0);
    cr_expect_eq(fv_headwise_init(fv_root(NULL), 6, 2, NULL).heads, 0);
    cr_expect_null(fv_attention_pool_init(fv_root(NULL), 6, 1, 2, NULL).query);
}

Test(layers_heads, a_call_says_what_does_not_fit)
{
    static const size_t short_offsets[] = {0, 5};
    const fv_segments shorter = {1, short_offsets};
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts extra = {.add_zero_attn = true};
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &extra), none = {0};
    fv_tape *t = fv_tape_new(NULL);
    for (int which = 0; which < 5; which++) {
        static const char *const text[] = {
            "multihead: mask: query segments: they hold 5 rows, the input has 9",
            "multihead: bias [2, 7], but the mask has 33 pairs", NULL,
            "use: no parameter (the set's error says why)",
            "attention_weights: the value is no attention"};
        const fv_mask mask = {.queries = which == 0 ? &shorter : &segments};
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(ROWS, which == 2 ? D + 1 : D), 3), *y;
        if (which == 1)
            y = fv_multihead_biased(t, &layer, x, x, x, &mask, input_numbers(t, FV_SHAPE(2, 7), 1));
        else if (which == 4)
            y = fv_multihead_weights(t, &layer, x, 0, true).data == NULL ? NULL : x;
        else
            y = fv_multihead_forward(t, which == 3 ? &none : &layer, x, &mask);
        cr_expect_null(y);
        cr_expect_not(fv_tape_ok(t));
        if (text[which] != NULL)
            cr_expect_str_eq(fv_tape_error(t)->text, text[which]);
    }
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- what is passed on --------------------------------------------------------------------------------------- */

/* The options of a layer without W_O reach attention: the bits of a call by hand. */
Test(layers_heads, options_reach_attention)
{
    const fv_multihead_opts opts[] = {
        {.softcap = 0.5},
        {.scale = 3},
        {.normalizer = FV_NORMALIZE_RELU},
        {.normalizer = FV_NORMALIZE_MEAN, .kv_heads = 1},
        {.score = FV_SCORE_DISTANCE},
        {.score = FV_SCORE_ADDITIVE, .inner = FV_INNER_LEAKY_RELU, .inner_slope = 0.7},
    };
    const size_t count = sizeof opts / sizeof *opts;
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 0; n < count; n++) {
        fv_params *params = fv_params_new(1);
        fv_multihead_opts how = opts[n];
        how.no_output = true;
        const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &how);
        fill_times(params, 4);
        fv_tape_begin(t, FV_GRAD, 1, 1);
        const fv_mask mask = {.queries = &segments, .causal = true};
        fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3), *part[3];
        fv_var *y = fv_multihead_forward(t, &layer, x, &mask);
        const size_t kv = D / HEADS * layer.how.kv_heads, sizes[] = {D, kv, kv};
        fv_var *qkv =
            fv_affine(t, x, fv_use(t, layer.in_proj_weight), fv_use(t, layer.in_proj_bias));
        cr_assert(fv_split(t, qkv, 1, 3, sizes, part));
        const fv_attention_opts same = {.heads = HEADS,
                                        .kv_heads = opts[n].kv_heads,
                                        .score = opts[n].score,
                                        .normalizer = opts[n].normalizer,
                                        .scale = opts[n].scale,
                                        .softcap = opts[n].softcap,
                                        .weight = layer.score_weight ? fv_use(t, layer.score_weight)
                                                                     : NULL,
                                        .inner = opts[n].inner,
                                        .inner_slope = opts[n].inner_slope},
                                plain = {.heads = HEADS, .kv_heads = opts[n].kv_heads};
        fv_var *wanted = fv_attention(t, part[0], part[1], part[2], &mask, &same);
        fv_var *other = fv_attention(t, part[0], part[1], part[2], &mask, &plain);
        cr_assert(y != NULL && other != NULL, "%s", fv_tape_error(t)->text);
        expect_same("y", ROWS * D, y->value.data, wanted->value.data);
        cr_expect(memcmp(y->value.data, other->value.data, ROWS * D * sizeof(fv_real)) != 0,
                  "options %zu make no difference", n);
        fv_params_free(params);
    }
    fv_tape_free(t);
}

/* Dropout is there in FV_TRAIN, and each step draws its own. */
Test(layers_heads, dropout_of_weights)
{
    fv_params *params = fv_params_new(1);
    const fv_multihead_opts half = {.dropout = 0.5};
    const fv_multihead layer = fv_multihead_init(fv_root(params), D, HEADS, &half);
    fv_tape *t = fv_tape_new(NULL);
    fv_real y[3][ROWS * D];
    for (uint64_t step = 0; step < 3; step++) {
        fv_tape_begin(t, step < 2 ? FV_TRAIN : FV_EVAL, 1, step);
        fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
        fv_var *out = fv_multihead_forward(t, &layer, x, NULL);
        cr_assert_not_null(out, "%s", fv_tape_error(t)->text);
        memcpy(y[step], out->value.data, sizeof y[step]);
    }
    for (int a = 0; a < 3; a++)
        cr_expect(memcmp(y[a], y[(a + 1) % 3], sizeof y[a]) != 0);
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- gradient checks --------------------------------------------------------------------------------------- */

#if defined(FV_F64) || defined(FV_COMPLEX)
typedef struct {
    fv_multihead heads;
    fv_headwise each;
    fv_attention_pool pool;
    fv_mask mask;
    fv_real x[ROWS * D], memory[ROWS * D];
} model;

static const unsigned char visible[] = {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0,
                                        1, 1, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1, 0, 1, 1, 1};

static fv_var *run_heads(fv_tape *t, void *context)
{
    model *m = context;
    fv_var *x = fv_constant(t, FV_SHAPE(ROWS, D), m->x),
           *k = fv_constant(t, FV_SHAPE(ROWS, D), m->memory);
    fv_var *y = fv_multihead_forward(t, &m->heads, x, &m->mask);
    return fv_concat(t, 2, (fv_var *[]){y, fv_multihead_cross(t, &m->heads, x, k, k, &m->mask)}, 1);
}

static fv_var *run_each(fv_tape *t, void *context)
{
    model *m = context;
    return fv_headwise_forward(t, &m->each, fv_constant(t, FV_SHAPE(ROWS, D), m->x), &m->mask);
}

static fv_var *run_pool(fv_tape *t, void *context)
{
    model *m = context;
    return fv_attention_pool_forward(t, &m->pool, fv_constant(t, FV_SHAPE(ROWS, D), m->x),
                                     &segments);
}

static void check_gradients(fv_model_fn run, fv_params *params, model *m, const char *what)
{
    fv_gradcheck_result result;
    for (size_t i = 0; i < ROWS * D; i++) {
        m->x[i] = number(i, 3);
        m->memory[i] = number(i, 4);
    }
    cr_assert_eq(fv_params_error(params)->status, FV_OK, "%s", fv_params_error(params)->text);
    fill_times(params, 3);
    cr_expect(fv_gradcheck_params(run, params, m, NULL, &result), "%s: %s", what,
              result.error.text);
    fv_params_free(params);
}

/* Each option once, with masks by rules and by bytes. */
Test(layers_heads, gradients_of_multihead)
{
    const fv_multihead_opts opts[] = {
        {.dropout = 0.3},
        {.kv_heads = 1, .no_bias = true},
        {.key_width = 2, .value_width = 5, .out = 4},
        {.no_values = true, .no_output = true},
        {.add_bias_kv = true, .add_zero_attn = true},
        {.relative_clip = 2, .relative_start = 1, .left = 2, .right = 1},
        {.add_bias_kv = true, .left = 1},
        {.score = FV_SCORE_BILINEAR},
        {.score = FV_SCORE_COSINE, .scale = 3},
        {.score = FV_SCORE_ADDITIVE, .inner = FV_INNER_TANH, .kv_heads = 1, .softcap = 2},
        {.score = FV_SCORE_DISTANCE, .add_bias_kv = true},
        {.score = FV_SCORE_USER, .user = &user_score, .user_weights = 3},
        {.normalizer = FV_NORMALIZE_SIGMOID, .softcap = 1, .add_zero_attn = true},
        {.normalizer = FV_NORMALIZE_SOFTMAX_PLUS_ONE, .scale = 2},
        {.normalizer = FV_NORMALIZE_MEAN, .left = 2},
    };
    for (size_t i = 0; i < sizeof opts / sizeof *opts; i++)
        for (int bytes = 0; bytes < 2; bytes++) {
            char what[40];
            snprintf(what, sizeof what, "options %zu, bytes %d", i, bytes);
            fv_params *params = fv_params_new(1);
            model m = {.heads = fv_multihead_init(fv_root(params), D, HEADS, &opts[i]),
                       .mask = {.queries = &segments,
                                .causal = i % 2 && !bytes,
                                .visible = bytes ? visible : NULL}};
            check_gradients(run_heads, params, &m, what);
        }
}

Test(layers_heads, gradients_of_a_matrix_a_head_and_of_pooling)
{
    fv_params *params = fv_params_new(1);
    const fv_headwise_opts narrow = {.head_width = 2};
    model m = {.each = fv_headwise_init(fv_root(params), D, HEADS, &narrow),
               .mask = {.queries = &segments}};
    check_gradients(run_each, params, &m, "a matrix a head");
    params = fv_params_new(1);
    m.pool = fv_attention_pool_init(fv_root(params), D, 2, HEADS, NULL);
    check_gradients(run_pool, params, &m, "pooling");
}
#endif
