/* Norms against numbers worked out by hand; batch norm refuses a batch that fv_fit cut. */
#include "tests/values.h"
#include "train/train.h"

static const fv_norm_opts no_eps = {.eps = FV_NONE}, eps_3 = {.eps = 3},
                          two_axes = {.eps = FV_NONE, .axes = 2};

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* 1, 3 have mean 2 and variance 1: with eps 3 they are divided by 2. */
Test(op_norms, layer_norm)
{
    const fv_real x[] = {1, 3, -7, -3}, w[] = {2, 3}, b[] = {10, 20};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x), *weight = fv_input(t, FV_SHAPE(2), w),
           *bias = fv_input(t, FV_SHAPE(2), b);
    expect_value(t, fv_layer_norm(t, in, NULL, NULL, &no_eps), (const double[]){-1, 1, -1, 1});
    expect_value(t, fv_layer_norm(t, in, weight, NULL, &no_eps), (const double[]){-2, 3, -2, 3});
    expect_value(t, fv_layer_norm(t, in, NULL, bias, &no_eps), (const double[]){9, 21, 9, 21});
    expect_value(t, fv_layer_norm(t, in, weight, bias, &no_eps), (const double[]){8, 23, 8, 23});
    expect_value(t, fv_layer_norm(t, fv_input(t, FV_SHAPE(1, 2), x), NULL, NULL, &eps_3),
                 (const double[]){-0.5, 0.5});
    const double usual = 1 / sqrt(1 + 1e-5);
    expect_value(t, fv_layer_norm(t, fv_input(t, FV_SHAPE(2), x), NULL, NULL, NULL),
                 (const double[]){-usual, usual});
    const fv_real weights[] = {1, 0, 5, 7};
    fv_var *y = fv_layer_norm(t, in, weight, bias, &eps_3);
    /* g = 2, 0 and n = -1/2, 1/2: dx = (2 - 1 - 1/4, 0 - 1 + 1/4) / 2; below g = 10, 21, scale
     * 1/sqrt(7), n = -+2/sqrt(7): mean(g n) n = +-22/7 */
    const double s = 1 / sqrt(7);
    expect_gradient(t, y, weights, in,
                    (const double[]){0.375, -0.375, s * (-5.5 + 22.0 / 7), s * (5.5 - 22.0 / 7)});
    expect_gradient(t, y, weights, weight, (const double[]){-0.5 - 10 * s, 14 * s});
    expect_gradient(t, y, weights, bias, (const double[]){6, 7});
    fv_tape_free(t);
}

Test(op_norms, several_axes_as_one)
{
    const fv_real x[] = {1, 1, 3, 3, 5, 5, 9, 9}, w[] = {1, 2, 3, 4};
    fv_tape *t = begin();
    fv_var *weight = fv_input(t, FV_SHAPE(2, 2), w);
    fv_var *in = fv_input(t, FV_SHAPE(2, 1, 2, 2), x);
    expect_value(t, fv_layer_norm(t, in, weight, weight, &two_axes),
                 (const double[]){0, 0, 6, 8, 0, 0, 6, 8});
    const fv_norm_opts all = {.eps = FV_NONE, .axes = 2};
    fv_var *flat = fv_input(t, FV_SHAPE(2, 2), x);
    expect_value(t, fv_layer_norm(t, flat, NULL, NULL, &all), (const double[]){-1, -1, 1, 1});
    const fv_real sevens[] = {1, 7, 7, 1, -7, 1, 1, -7}; /* mean square 25 */
    expect_value(t, fv_rms_norm(t, fv_input(t, FV_SHAPE(2, 2, 2), sevens), weight, &two_axes),
                 (const double[]){0.2, 2.8, 4.2, 0.8, -1.4, 0.4, 0.6, -5.6});
    fv_tape_free(t);
}

Test(op_norms, rms_norm)
{
    const fv_real x[] = {1, 7}, w[] = {5, 10}, weights[] = {1, 0};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2), x), *weight = fv_input(t, FV_SHAPE(2), w);
    fv_var *y = fv_rms_norm(t, in, weight, &no_eps);
    expect_value(t, y, (const double[]){1, 14});
    /* g = 5, 0 and n = 0.2, 1.4: dx = (5 - 0.2 / 2, -1.4 / 2) / 5 */
    expect_gradient(t, y, weights, in, (const double[]){0.98, -0.14});
    expect_gradient(t, y, weights, weight, (const double[]){0.2, 0});
    const fv_norm_opts eps = {.eps = 11};
    expect_value(t, fv_rms_norm(t, in, NULL, &eps), (const double[]){1.0 / 6, 7.0 / 6});
    fv_tape_free(t);
}

/* Rows of equals, of one number, of zeros: what is left is the bias, and gradients stay finite. */
Test(op_norms, rows_without_variance)
{
    const fv_real x[] = {7, 7, 7, 7}, w[] = {2, 2}, b[] = {1, -1};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x), *weight = fv_input(t, FV_SHAPE(2), w),
           *bias = fv_input(t, FV_SHAPE(2), b);
    fv_var *y = fv_layer_norm(t, in, weight, bias, NULL);
    expect_value(t, y, (const double[]){1, -1, 1, -1});
    expect_gradient(t, y, NULL, in, (const double[]){0, 0, 0, 0});
    fv_var *column = fv_input(t, FV_SHAPE(4, 1), x);
    expect_value(t, fv_layer_norm(t, column, NULL, NULL, NULL), (const double[]){0, 0, 0, 0});
    expect_value(t, fv_group_norm(t, in, 2, weight, bias, NULL), (const double[]){1, -1, 1, -1});
    const fv_real zeros[] = {0, 0};
    fv_var *none = fv_input(t, FV_SHAPE(2), zeros);
    expect_value(t, fv_rms_norm(t, none, NULL, NULL), (const double[]){0, 0});
    fv_tape_free(t);
}

Test(op_norms, group_norm)
{
    /* sample 0: channels 1 3 | 1 3 are a group, 5 9 | 9 5 the other; sample 1 the same ten times */
    const fv_real x[] = {1, 3, 1, 3, 5, 9, 9, 5, 10, 30, 10, 30, 50, 90, 90, 50};
    const fv_real w[] = {1, 2, 3, 4}, b[] = {0, 10, 0, 0};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 4, 2), x), *weight = fv_input(t, FV_SHAPE(4), w),
           *bias = fv_input(t, FV_SHAPE(4), b);
    fv_var *y = fv_group_norm(t, in, 2, weight, bias, &no_eps);
    expect_value(t, y, (const double[]){-1, 1, 8, 12, -3, 3, 4, -4, -1, 1, 8, 12, -3, 3, 4, -4});
    expect_gradient(t, y, NULL, bias, (const double[]){4, 4, 4, 4});
    expect_gradient(t, y, NULL, weight, (const double[]){0, 0, 0, 0});
    /* one group: mean 4.5; square distances 12.25, 2.25, 12.25, 2.25, 0.25, 20.25, 20.25, 0.25 */
    const double s = 1 / sqrt(8.75);
    fv_var *one = fv_group_norm(t, fv_input(t, FV_SHAPE(1, 4, 2), x), 1, NULL, NULL, &no_eps);
    expect_value(t, one,
                 (const double[]){-3.5 * s, -1.5 * s, -3.5 * s, -1.5 * s, 0.5 * s, 4.5 * s, 4.5 * s,
                                  0.5 * s});
    expect_value(t, fv_instance_norm(t, in, weight, bias, &no_eps),
                 (const double[]){-1, 1, 8, 12, -3, 3, 4, -4, -1, 1, 8, 12, -3, 3, 4, -4});
    fv_tape_free(t);
}

Test(op_norms, l2_normalize)
{
    const fv_real x[] = {3, 4, 0, 0, 0, 2}, weights[] = {1, 0, 1, 0, 1, 1};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(3, 2), x);
    fv_var *y = fv_l2_normalize(t, in, 1, NULL);
    expect_value(t, y, (const double[]){0.6, 0.8, 0, 0, 0, 1});
    /* (dy - y (y . dy)) / length: (1 - 0.36) / 5, -0.48 / 5; a zero vector gets dy / eps */
    expect_gradient(t, y, weights, in, (const double[]){0.128, -0.096, 1e12, 0, 0.5, 0});
    expect_value(t, fv_l2_normalize(t, in, 0, &no_eps),
                 (const double[]){1, 2 / sqrt(5), 0, 0, 0, 1 / sqrt(5)});
    const fv_norm_opts ten = {.eps = 10}, five = {.eps = 5};
    fv_var *below = fv_l2_normalize(t, in, 1, &ten);
    expect_value(t, below, (const double[]){0.3, 0.4, 0, 0, 0, 0.2});
    expect_gradient(t, below, weights, in, (const double[]){0.1, 0, 0.1, 0, 0.1, 0.1});
    /* as long as eps: the length counts */
    expect_gradient(t, fv_l2_normalize(t, in, 1, &five), weights, in,
                    (const double[]){0.128, -0.096, 0.2, 0, 0.2, 0.2});
    fv_tape_free(t);
}

Test(op_norms, batch_norm)
{
    const fv_real x[] = {1, 10, 3, 30}, w[] = {2, 3}, b[] = {1, -1}, weights[] = {1, 2, 0, 0};
    fv_real mean[2], variance[2];
    const fv_batch_norm_opts ask = {.eps = FV_NONE, .batch_mean = mean, .batch_variance = variance};
    fv_tape *t = begin();
    fv_var *weight = fv_input(t, FV_SHAPE(2), w), *bias = fv_input(t, FV_SHAPE(2), b);
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x);
    fv_var *y = fv_batch_norm(t, in, weight, bias, &ask);
    expect_value(t, y, (const double[]){-1, -4, 3, 2});
    expect_numbers("mean", 2, mean, (const double[]){2, 20});
    expect_numbers("variance", 2, variance, (const double[]){2, 200});
    expect_gradient(t, y, weights, weight, (const double[]){-1, -2});
    expect_gradient(t, y, weights, bias, (const double[]){1, 2});
    expect_gradient(t, y, weights, in, (const double[]){0, 0, 0, 0}); /* two numbers: +-1 */
    /* two places behind each channel: 1 3 | 5 5 and 1 3 | 5 9 */
    const fv_real deep[] = {1, 3, 5, 5, 1, 3, 5, 9};
    expect_value(
        t, fv_batch_norm(t, fv_input(t, FV_SHAPE(2, 2, 2), deep), NULL, NULL, &ask),
        (const double[]){-1, 1, -1 / sqrt(3), -1 / sqrt(3), -1, 1, -1 / sqrt(3), 3 / sqrt(3)});
    expect_numbers("mean", 2, mean, (const double[]){2, 6});
    expect_numbers("variance", 2, variance, (const double[]){4.0 / 3, 4});
    fv_tape_free(t);
}

Test(op_norms, batch_norm_with_given_statistics)
{
    const fv_real x[] = {1, 10}, mean[] = {3, 4}, variance[] = {4, 9}, w[] = {10, 1};
    fv_real batch_mean[2] = {-5, -5}, batch_variance[2] = {-5, -5};
    fv_batch_norm_opts opts = {.eps = FV_NONE, .mean = mean, .variance = variance};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(1, 2), x), *weight = fv_input(t, FV_SHAPE(2), w);
    fv_var *y = fv_batch_norm(t, in, weight, NULL, &opts);
    expect_value(t, y, (const double[]){-10, 2});
    expect_gradient(t, y, NULL, in, (const double[]){5, 1.0 / 3});
    expect_gradient(t, y, NULL, weight, (const double[]){-1, 2});
    t->shards = 4; /* a part of a batch will do */
    expect_value(t, fv_batch_norm(t, in, weight, NULL, &opts), (const double[]){-10, 2});
    t->shards = 1;
    opts.batch_mean = batch_mean;
    opts.batch_variance = batch_variance;
    const fv_real two[] = {1, 10, 3, 30};
    expect_value(t, fv_batch_norm(t, fv_input(t, FV_SHAPE(2, 2), two), NULL, NULL, &opts),
                 (const double[]){-1, 2, 0, 26.0 / 3});
    expect_numbers("mean", 2, batch_mean, (const double[]){2, 20});
    expect_numbers("variance", 2, batch_variance, (const double[]){2, 200});
    fv_tape_free(t);
}

/* Of no numbers: nothing to norm, gradients of zero, and no mean. */
Test(op_norms, nothing)
{
    const fv_real w[] = {1, 2, 3};
    const size_t huge = (size_t)1 << 40;
    fv_real mean[3], variance[3];
    fv_tape *t = begin();
    fv_var *rows = fv_input(t, FV_SHAPE(0, 3), w), *flat = fv_input(t, FV_SHAPE(2, 3, 0), w);
    fv_var *weight = fv_input(t, FV_SHAPE(3), w), *none = fv_input(t, FV_SHAPE(0), w);
    const fv_batch_norm_opts ask = {.batch_mean = mean, .batch_variance = variance};
    fv_var *all[] = {fv_layer_norm(t, rows, weight, weight, NULL),
                     fv_layer_norm(t, flat, none, NULL, NULL),
                     fv_rms_norm(t, rows, weight, NULL),
                     fv_group_norm(t, rows, 3, weight, weight, NULL),
                     fv_group_norm(t, flat, 1, weight, weight, NULL),
                     fv_instance_norm(t, flat, weight, weight, NULL),
                     fv_instance_norm(t, fv_input(t, FV_SHAPE(4, 0, 2), w), none, none, NULL),
                     fv_l2_normalize(t, rows, 1, NULL),
                     fv_l2_normalize(t, rows, 0, NULL),
                     fv_l2_normalize(t, flat, 2, NULL),
                     fv_batch_norm(t, rows, weight, weight, &ask),
                     fv_batch_norm(t, flat, weight, weight, NULL),
                     fv_layer_norm(t, fv_input(t, FV_SHAPE(0, huge), w), NULL, NULL, NULL),
                     fv_batch_norm(t, fv_input(t, FV_SHAPE(huge, huge, 0), w), NULL, NULL, NULL),
                     fv_group_norm(t, fv_input(t, FV_SHAPE(0, huge), w), 2, NULL, NULL, NULL)};
    expect_numbers("mean", 3, mean, (const double[]){NAN, NAN, NAN});
    expect_numbers("variance", 3, variance, (const double[]){NAN, NAN, NAN});
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cr_assert_not_null(all[i], "%zu: %s", i, fv_tape_error(t)->text);
        cr_expect(fv_backward(t, fv_sum(t, all[i], NULL)), "%zu: %s", i, fv_tape_error(t)->text);
        expect_numbers("gradient", weight->grad ? 3 : 0, weight->grad, (const double[]){0, 0, 0});
    }
    fv_tape_free(t);
}

/* Far from zero no digits are lost: the variance is taken about the mean, not from squares. */
Test(op_norms, far_from_zero)
{
    fv_real x[64], deep[64];
    for (size_t i = 0; i < 64; i++) {
        x[i] = (fv_real)(1e6 + (double)(i % 2));
        deep[i] = (fv_real)(1e6 + (double)(i / 2 % 2)); /* [32, 2]: by rows */
    }
    fv_tape *t = begin();
    double expected[64];
    for (size_t i = 0; i < 64; i++)
        expected[i] = i % 2 ? 1 : -1;
    expect_value(t, fv_layer_norm(t, fv_input(t, FV_SHAPE(2, 32), x), NULL, NULL, &no_eps),
                 expected);
    expect_value(t, fv_group_norm(t, fv_input(t, FV_SHAPE(1, 2, 32), x), 1, NULL, NULL, &no_eps),
                 expected);
    for (size_t i = 0; i < 64; i++)
        expected[i] = i / 2 % 2 ? 1 : -1;
    const fv_batch_norm_opts exact = {.eps = FV_NONE};
    expect_value(t, fv_batch_norm(t, fv_input(t, FV_SHAPE(32, 2), deep), NULL, NULL, &exact),
                 expected);
    fv_tape_free(t);
}

/* ---- batch norm under fv_fit ----------------------------------------------------------------- */

typedef struct {
    fv_params *params;
    bool given;
} normed;

static fv_var *loss_of_normed(const void *model, fv_tape *t, const size_t *samples, size_t count,
                              double *weight)
{
    static const fv_real numbers[16] = {1, 2, 5, 3}, ones[] = {1, 1};
    const normed *m = model;
    const fv_batch_norm_opts opts = {.mean = ones, .variance = ones};
    (void)samples;
    *weight = (double)count;
    fv_var *x = fv_mul(t, fv_constant(t, FV_SHAPE(count, 2), numbers),
                       fv_use(t, fv_params_find(m->params, "w")));
    return fv_sum(t, fv_batch_norm(t, x, NULL, NULL, m->given ? &opts : NULL), NULL);
}

Test(op_norms, a_batch_in_shards)
{
    static const size_t offsets[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
    normed m = {fv_params_new(1), false};
    fv_param_new(fv_root(m.params), "w", FV_SHAPE(2), (fv_init){FV_ONES, 0});
    const fv_task task = {&m, 8, offsets, loss_of_normed, NULL, false, NULL};
    for (int shards = 0; shards <= 4; shards = shards ? 2 * shards : 1) {
        fv_error error = {FV_OK, ""};
        const fv_fit_opts opts = {.epochs = 1, .shards = shards, .threads = 2};
        const bool whole = shards == 1;
        char text[300];
        snprintf(
            text, sizeof text,
            "step 0: batch_norm: its statistics are those of the whole batch, but the batch is "
            "cut into %d shards: set shards to 1 in fv_fit_opts",
            shards ? shards : 4);
        m.given = false;
        cr_expect_eq(fv_fit(m.params, &task, &opts, NULL, &error), whole, "%s", error.text);
        cr_expect_str_eq(error.text, whole ? "" : text);
        m.given = true;
        error = (fv_error){FV_OK, ""};
        cr_expect(fv_fit(m.params, &task, &opts, NULL, &error), "%s", error.text);
    }
    fv_params_free(m.params);
}

/* ---- threads --------------------------------------------------------------------------------- */

static fv_var *run(fv_tape *t, int which)
{
    fv_var *rows = some(t, 1, FV_SHAPE(3000, 133)), *w = some(t, 2, FV_SHAPE(133)),
           *b = some(t, 3, FV_SHAPE(133)), *deep = some(t, 4, FV_SHAPE(40, 6, 1003)),
           *six = some(t, 5, FV_SHAPE(6));
    switch (which) {
    case 0:
        return fv_layer_norm(t, rows, w, b, NULL);
    case 1:
        return fv_rms_norm(t, rows, w, NULL);
    case 2:
        return fv_l2_normalize(t, rows, 0, NULL);
    case 3:
        return fv_group_norm(t, deep, 3, six, six, NULL);
    case 4:
        return fv_instance_norm(t, deep, six, NULL, NULL);
    case 5:
        return fv_batch_norm(t, rows, w, b, NULL);
    default:
        return fv_batch_norm(t, deep, six, NULL, NULL);
    }
}

Test(op_norms, threads)
{
    same_bits_at_any_threads(run, 7);
}
