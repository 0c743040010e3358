/* Losses against numbers worked out by hand: labels, weights, smoothing, chances, pairs, and their counts. */
#include "tests/values.h"

static const double LN2 = 0.6931471805599453, LN5 = 1.6094379124341003, LN8 = 2.0794415416798357;
static const fv_real hidden = (fv_real)-INFINITY;

/* Scores with the shares 1/8, 2/8, 5/8. */
static const fv_real scores[] = {0, (fv_real)0.6931471805599453, (fv_real)1.6094379124341003};

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

static double value(const fv_tape *t, const fv_var *y)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    return (double)fv_re(y->value.data[0]);
}

Test(op_losses, cross_entropy)
{
    static const int32_t two[] = {2};
    static const fv_real weights[] = {1, 2, 3};
    fv_cross_entropy_opts opts = {.class_weight = weights};
    double count;
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(1, 3), scores);
    fv_var *y = fv_cross_entropy_sum(t, x, two, NULL, &count);
    expect_value(t, y, (const double[]){LN8 - LN5});
    cr_expect_eq(count, 1);
    expect_gradient(t, y, NULL, x, (const double[]){0.125, 0.25, -0.375});
    y = fv_cross_entropy_sum(t, x, two, &opts, &count);
    expect_value(t, y, (const double[]){3 * (LN8 - LN5)});
    cr_expect_eq(count, 3);
    expect_gradient(t, y, NULL, x, (const double[]){0.375, 0.75, -1.125});
    /* 0.3 smoothed: 0.1 to each class, by its weight */
    opts.smoothing = 0.3;
    y = fv_cross_entropy_sum(t, x, two, &opts, &count);
    const double on = 2.1, all = 2.1 + 0.1 * 6;
    expect_value(
        t, y,
        (const double[]){on * (LN8 - LN5) + 0.1 * LN8 + 0.2 * (LN8 - LN2) + 0.3 * (LN8 - LN5)});
    cr_expect_eq(count, 3);
    expect_gradient(t, y, NULL, x,
                    (const double[]){all / 8 - 0.1, all / 4 - 0.2, all * 5 / 8 - 0.3 - on});
    opts.class_weight = NULL;
    y = fv_cross_entropy_sum(t, x, two, &opts, &count);
    expect_value(t, y, (const double[]){0.7 * (LN8 - LN5) + 0.1 * (3 * LN8 - LN2 - LN5)});
    expect_gradient(t, y, NULL, x, (const double[]){0.025, 0.15, 0.625 - 0.8});
    cr_expect_eq(count, 1);
    fv_tape_free(t);
}

/* Rows with negative labels hold NaN: nobody sees it. */
Test(op_losses, rows_left_out)
{
    static const int32_t labels[] = {-1, 2, INT32_MIN, 1}, none[] = {-1, -2, -3, -100};
    static const fv_real weights[] = {1, 2, 3};
    const fv_cross_entropy_opts opts = {.smoothing = 0.3, .class_weight = weights};
    const fv_real nan = (fv_real)NAN;
    const fv_real rows[] = {nan, nan, nan, 0, scores[1], scores[2], nan, nan, nan, 0, 0, 0};
    double count;
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(4, 3), rows);
    fv_var *y = fv_cross_entropy_sum(t, x, labels, NULL, &count);
    expect_value(t, y, (const double[]){LN8 - LN5 + log(3)});
    cr_expect_eq(count, 2);
    expect_gradient(
        t, y, NULL, x,
        (const double[]){0, 0, 0, 0.125, 0.25, -0.375, 0, 0, 0, 1.0 / 3, -2.0 / 3, 1.0 / 3});
    fv_cross_entropy_sum(t, x, labels, &opts, &count);
    cr_expect_eq(count, 5);
    y = fv_nll_sum(t, x, labels, &opts, &count);
    cr_expect_eq(count, 5);
    cr_expect(isfinite(value(t, y)));
    y = fv_cross_entropy_sum(t, x, none, &opts, &count);
    expect_value(t, y, (const double[]){0});
    cr_expect_eq(count, 0);
    y = fv_cross_entropy_sum(t, fv_input(t, FV_SHAPE(0, 3), rows), none, NULL, &count);
    expect_value(t, y, (const double[]){0});
    cr_expect_eq(count, 0);
    fv_tape_free(t);
}

/* Sums and counts of the parts of a batch are those of the whole: so are means. */
Test(op_losses, any_cut_of_a_batch)
{
    enum { ROWS = 50, CLASSES = 7 };
    int32_t labels[ROWS];
    fv_real weights[CLASSES];
    for (int i = 0; i < ROWS; i++)
        labels[i] = i % 9 - 1;
    for (int i = 0; i < ROWS; i++)
        labels[i] = labels[i] == CLASSES ? -1 : labels[i];
    for (int c = 0; c < CLASSES; c++)
        weights[c] = (fv_real)(1 + c) / 4;
    const fv_cross_entropy_opts opts = {.smoothing = 0.1, .class_weight = weights};
    fv_tape *t = begin();
    fv_var *x = some(t, 1, FV_SHAPE(ROWS, CLASSES));
    double all, whole = value(t, fv_cross_entropy_sum(t, x, labels, &opts, &all));
    for (size_t cut = 0; cut <= ROWS; cut += 7) {
        double count[2], sum = 0;
        for (size_t k = 0; k < 2; k++) {
            const size_t from = k ? cut : 0, rows = k ? ROWS - cut : cut;
            fv_var *half = fv_input(t, FV_SHAPE(rows, CLASSES), x->value.data + from * CLASSES);
            sum += value(t, fv_cross_entropy_sum(t, half, labels + from, &opts, &count[k]));
        }
        cr_expect(near((fv_real)sum, whole), "%.9g, expected %.9g", sum, whole);
        cr_expect_float_eq(count[0] + count[1], all, 1e-9);
    }
    fv_tape_free(t);
}

/* Cross entropy is nll of log_softmax, and soft cross entropy of one-hot chances, under every option. */
Test(op_losses, one_loss_three_ways)
{
    static const int32_t labels[] = {3, 0, 6, 6, 2};
    static const fv_real weights[] = {1, 2, 0.5f, 3, 1.5f, 0.25f, 1};
    fv_tape *t = begin();
    fv_var *x = some(t, 1, FV_SHAPE(5, 7)), *hot = fv_one_hot(t, labels, 5, 7);
    for (int which = 0; which < 4; which++) {
        const fv_cross_entropy_opts opts = {.smoothing = which & 1 ? 0.1 : 0,
                                            .class_weight = which & 2 ? weights : NULL};
        const double expected = value(t, fv_cross_entropy_sum(t, x, labels, &opts, NULL));
        fv_var *nll = fv_nll_sum(t, fv_log_softmax(t, x, 1), labels, &opts, NULL);
        expect_value(t, nll, &expected);
        fv_var *soft = fv_soft_cross_entropy_sum(t, x, hot, &opts, NULL);
        expect_value(t, soft, &expected);
    }
    fv_tape_free(t);
}

Test(op_losses, soft_cross_entropy)
{
    const fv_real chances[] = {0.5f, 0, 0.5f}, weights[] = {1, 2, 4};
    const fv_cross_entropy_opts opts = {.smoothing = 0.3, .class_weight = weights};
    double count;
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(1, 3), scores), *p = fv_input(t, FV_SHAPE(1, 3), chances);
    fv_var *y = fv_soft_cross_entropy_sum(t, x, p, NULL, &count);
    expect_value(t, y, (const double[]){LN8 - LN5 / 2});
    cr_expect_eq(count, 1);
    expect_gradient(t, y, NULL, x, (const double[]){0.125 - 0.5, 0.25, 0.625 - 0.5});
    expect_gradient(t, y, NULL, p, (const double[]){LN8, LN8 - LN2, LN8 - LN5});
    /* aims at 0.45, 2 * 0.1, 4 * 0.45: 2.45 in all */
    y = fv_soft_cross_entropy_sum(t, x, p, &opts, &count);
    expect_value(t, y, (const double[]){0.45 * LN8 + 0.2 * (LN8 - LN2) + 1.8 * (LN8 - LN5)});
    cr_expect_eq(count, 1, "rows, whatever their weights");
    expect_gradient(t, y, NULL, x,
                    (const double[]){2.45 / 8 - 0.45, 2.45 / 4 - 0.2, 2.45 * 5 / 8 - 1.8});
    expect_gradient(t, y, NULL, p,
                    (const double[]){0.7 * LN8, 1.4 * (LN8 - LN2), 2.8 * (LN8 - LN5)});
    /* a class that cannot be and should not be */
    const fv_real masked[] = {0, hidden, 0};
    x = fv_input(t, FV_SHAPE(1, 3), masked);
    y = fv_soft_cross_entropy_sum(t, x, p, NULL, NULL);
    expect_value(t, y, &LN2);
    expect_gradient(t, y, NULL, x, (const double[]){0, 0, 0});
    expect_gradient(t, y, NULL, p, (const double[]){LN2, 0, LN2});
    fv_tape_free(t);
}

/* A class that cannot be costs Inf where it is the label; a row of nothing but -Inf is NaN. */
Test(op_losses, impossible_classes)
{
    static const int32_t labels[] = {1}, other[] = {0};
    const fv_real masked[] = {0, hidden, 0}, nothing[] = {hidden, hidden, hidden};
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(1, 3), masked), *z = fv_input(t, FV_SHAPE(1, 3), nothing);
    expect_value(t, fv_cross_entropy_sum(t, x, labels, NULL, NULL), (const double[]){INFINITY});
    fv_var *y = fv_cross_entropy_sum(t, x, other, NULL, NULL);
    expect_value(t, y, &LN2);
    expect_gradient(t, y, NULL, x, (const double[]){-0.5, 0, 0.5});
    expect_value(t, fv_cross_entropy_sum(t, z, labels, NULL, NULL), (const double[]){NAN});
    fv_tape_free(t);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

Test(op_losses, squares_and_distances)
{
    const fv_real a[] = {1, 2, 3}, b[] = {0, 4, 3};
    double count;
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(3), a), *target = fv_input(t, FV_SHAPE(3), b);
    fv_var *y = fv_mse_sum(t, x, target, &count);
    expect_value(t, y, (const double[]){5});
    cr_expect_eq(count, 3);
    expect_gradient(t, y, NULL, x, (const double[]){2, -4, 0});
    expect_gradient(t, y, NULL, target, (const double[]){-2, 4, 0});
    y = fv_l1_sum(t, x, target, &count);
    expect_value(t, y, (const double[]){3});
    cr_expect_eq(count, 3);
    expect_gradient(t, y, NULL, x, (const double[]){1, -1, 0});
    expect_gradient(t, y, NULL, target, (const double[]){-1, 1, 0});
    y = fv_huber_sum(t, x, target, 1, &count); /* 1 is delta itself, 2 is beyond */
    expect_value(t, y, (const double[]){0.5 + 1.5});
    cr_expect_eq(count, 3);
    expect_gradient(t, y, NULL, x, (const double[]){1, -1, 0});
    y = fv_huber_sum(t, x, target, 1.5, NULL);
    expect_value(t, y, (const double[]){0.5 + 1.5 * 1.25});
    expect_gradient(t, y, NULL, target, (const double[]){-1, 1.5, 0});
    expect_value(t, fv_huber_sum(t, x, target, INFINITY, NULL), (const double[]){2.5});
    /* a number and itself */
    expect_gradient(t, fv_mse_sum(t, x, x, NULL), NULL, x, (const double[]){0, 0, 0});
    fv_tape_free(t);
}

/* ln 3 has the chance 3/4. */
Test(op_losses, bce_with_logits)
{
    const double ln3 = log(3), ln4 = 2 * LN2;
    const fv_real x[] = {(fv_real)ln3, (fv_real)ln3, 0, (fv_real)-ln3}, p[] = {1, 0, 0.5f, 1};
    const fv_real weights[] = {2, 10};
    double count;
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x), *target = fv_input(t, FV_SHAPE(2, 2), p);
    fv_var *y = fv_bce_with_logits_sum(t, in, target, NULL, &count);
    expect_value(t, y, (const double[]){ln4 - ln3 + ln4 + LN2 + ln4});
    cr_expect_eq(count, 4);
    expect_gradient(t, y, NULL, in, (const double[]){-0.25, 0.75, 0, -0.75});
    expect_gradient(t, y, NULL, target, (const double[]){-ln3, -ln3, 0, ln3});
    const fv_bce_opts opts = {weights};
    y = fv_bce_with_logits_sum(t, in, target, &opts, &count);
    expect_value(t, y, (const double[]){2 * (ln4 - ln3) + ln4 + 1.5 * LN2 + 10 * ln4});
    cr_expect_eq(count, 4);
    expect_gradient(t, y, NULL, in, (const double[]){-0.5, 0.75, -0.25, -7.5});
    expect_gradient(t, y, NULL, target,
                    (const double[]){2 * (ln4 - ln3) - ln4, 10 * (ln4 - ln3) - ln4, LN2,
                                     10 * ln4 - (ln4 - ln3)});
    fv_tape_free(t);
}

Test(op_losses, bce_of_large_logits)
{
    const fv_real x[] = {1000, -1000, 1000, -1000, 30}, p[] = {0, 1, 1, 0, 1};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(5), x), *target = fv_input(t, FV_SHAPE(5), p);
    fv_var *y = fv_bce_with_logits_sum(t, in, target, NULL, NULL);
    expect_value(t, y, (const double[]){2000});
    expect_gradient(t, y, NULL, in, (const double[]){1, -1, 0, 0, -9.357622968839e-14});
    fv_var *last = fv_input(t, FV_SCALAR, x + 4);
    y = fv_bce_with_logits_sum(t, last, fv_input(t, FV_SCALAR, p + 4), NULL, NULL);
    cr_expect(fabs(value(t, y) / 9.357622968839299e-14 - 1) < 1e-5, "%g", value(t, y));
    fv_tape_free(t);
}

Test(op_losses, kl_div)
{
    const double ln3 = log(3);
    const fv_real x[] = {(fv_real)(-2 * LN2), (fv_real)(ln3 - 2 * LN2), 7, hidden};
    const fv_real p[] = {0.5f, 0.5f, 0, 0};
    double count;
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x), *target = fv_input(t, FV_SHAPE(2, 2), p);
    fv_var *y = fv_kl_div_sum(t, in, target, &count);
    expect_value(t, y, (const double[]){0.5 * LN2 + 0.5 * (LN2 - ln3)});
    cr_expect_eq(count, 2);
    expect_gradient(t, y, NULL, in, (const double[]){-0.5, -0.5, 0, 0});
    expect_gradient(t, y, NULL, target, (const double[]){LN2 + 1, LN2 + 1 - ln3, 0, 0});
    fv_kl_div_sum(t, fv_input(t, FV_SCALAR, x), fv_input(t, FV_SCALAR, p), &count);
    cr_expect_eq(count, 1);
    fv_tape_free(t);
}

Test(op_losses, cosine_embedding)
{
    static const int32_t near_far[] = {1, -1}, far[] = {-1, -1}, near_far_far[] = {1, -1, -1};
    const fv_real a[] = {3, 4, 3, 4, 0, 0}, b[] = {4, 3, 4, 3, 1, 2};
    double count;
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(2, 2), a), *z = fv_input(t, FV_SHAPE(2, 2), b);
    fv_var *y = fv_cosine_embedding_sum(t, x, z, near_far, 0.5, &count);
    expect_value(t, y, (const double[]){0.04 + 0.46}); /* the cosine is 0.96 */
    cr_expect_eq(count, 2);
    /* dcos/da = b / 25 - 0.96 a / 25 = 0.0448, -0.0336 */
    expect_gradient(t, y, NULL, x, (const double[]){-0.0448, 0.0336, 0.0448, -0.0336});
    expect_gradient(t, y, NULL, z, (const double[]){0.0336, -0.0448, -0.0336, 0.0448});
    y = fv_cosine_embedding_sum(t, x, z, far, 0.97, NULL);
    expect_value(t, y, (const double[]){0});
    expect_gradient(t, y, NULL, x, (const double[]){0, 0, 0, 0});
    fv_var *twice = fv_cosine_embedding_sum(t, x, x, near_far, 0, NULL);
    expect_value(t, twice, (const double[]){1});
    expect_gradient(t, twice, NULL, x, (const double[]){0, 0, 0, 0});
    fv_var *zero = fv_input(t, FV_SHAPE(3, 2), a);
    y = fv_cosine_embedding_sum(t, zero, fv_input(t, FV_SHAPE(3, 2), b), near_far_far, 0.5, NULL);
    expect_value(t, y, (const double[]){0.04 + 0.46});
    y = fv_cosine_embedding_sum(t, fv_input(t, FV_SHAPE(0, 2), a), fv_input(t, FV_SHAPE(0, 2), b),
                                far, 0, &count);
    expect_value(t, y, (const double[]){0});
    cr_expect_eq(count, 0);
    fv_tape_free(t);
}

Test(op_losses, hinge)
{
    static const int32_t labels[] = {1, -1, 1, -1};
    const fv_real x[] = {0.5f, 0.5f, 1, -3};
    double count;
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(2, 2), x);
    fv_var *y = fv_hinge_sum(t, in, labels, 1, &count);
    expect_value(t, y, (const double[]){0.5 + 1.5});
    cr_expect_eq(count, 4);
    expect_gradient(t, y, NULL, in, (const double[]){-1, 1, 0, 0}); /* the third is on the margin */
    expect_value(t, fv_hinge_sum(t, in, labels, 5, NULL), (const double[]){4.5 + 5.5 + 4 + 2});
    fv_tape_free(t);
}

/* ---- all of them ----------------------------------------------------------------------------- */

typedef fv_var *of_pairs(fv_tape *t, fv_var *x, fv_var *target, double *count);

static fv_var *huber(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_huber_sum(t, x, target, 1, count);
}
static fv_var *bce(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_bce_with_logits_sum(t, x, target, NULL, count);
}
static of_pairs *const pairs[] = {fv_mse_sum, fv_l1_sum, huber, fv_kl_div_sum, bce};

/* At every rank the same sum; of nothing it is 0. */
Test(op_losses, pairs_of_every_shape)
{
    const fv_real x[64] = {1, 2, 3}, p[64] = {2, 3, 1};
    double count;
    fv_tape *t = begin();
    for (size_t k = 0; k < 5; k++) {
        const double expected =
            value(t, pairs[k](t, fv_input(t, FV_SHAPE(64), x), fv_input(t, FV_SHAPE(64), p), NULL));
        const fv_shape shapes[] = {FV_SHAPE(8, 8), FV_SHAPE(2, 4, 8), FV_SHAPE(2, 2, 4, 4),
                                   FV_SHAPE(1, 2, 2, 4, 4), FV_SHAPE(2, 2, 2, 2, 2, 2)};
        for (size_t i = 0; i < 5; i++)
            expect_value(t, pairs[k](t, fv_input(t, shapes[i], x), fv_input(t, shapes[i], p), NULL),
                         &expected);
        const fv_shape none[] = {FV_SHAPE(0), FV_SHAPE(0, 3), FV_SHAPE(3, 0)};
        for (size_t i = 0; i < 3; i++) {
            fv_var *in = fv_input(t, none[i], x);
            fv_var *y = pairs[k](t, in, fv_input(t, none[i], p), &count);
            expect_value(t, y, (const double[]){0});
            cr_expect_eq(count, 0);
            cr_expect(fv_backward(t, y));
        }
    }
    fv_tape_free(t);
}

/* 100,000 tenths: a float that summed them would be off in the fourth digit. */
Test(op_losses, sums_are_in_double)
{
    enum { N = 100000 };
    static fv_real tenths[N], zeros[N];
    for (size_t i = 0; i < N; i++)
        tenths[i] = (fv_real)0.1;
    fv_tape *t = begin();
    fv_var *y =
        fv_l1_sum(t, fv_input(t, FV_SHAPE(N), tenths), fv_input(t, FV_SHAPE(N), zeros), NULL);
    const double exact = N * (double)fv_re(tenths[0]);
    cr_expect(fabs(value(t, y) - exact) <= exact * (sizeof(fv_real) == 4 ? 6e-8 : 1e-14));
    fv_tape_free(t);
}

static fv_var *run(fv_tape *t, int which)
{
    enum { N = 200000 };
    static int32_t labels[N], signs[N];
    static fv_real weights[50];
    const fv_cross_entropy_opts opts = {.smoothing = 0.1, .class_weight = weights};
    const fv_bce_opts columns = {weights};
    for (int i = 0; i < N; i++) {
        labels[i] = i % 51 - 1;
        signs[i] = i % 3 ? 1 : -1;
    }
    for (int i = 0; i < 50; i++)
        weights[i] = (fv_real)(1 + i % 4);
    fv_var *x = some(t, 1, FV_SHAPE(N / 50, 50)), *p = some(t, 2, FV_SHAPE(N / 50, 50));
    switch (which) {
    case 0:
        return fv_cross_entropy_sum(t, x, labels, &opts, NULL);
    case 1:
        return fv_nll_sum(t, x, labels, &opts, NULL);
    case 2:
        return fv_soft_cross_entropy_sum(t, x, fv_softmax(t, p, 1), &opts, NULL);
    case 3:
        return fv_cosine_embedding_sum(t, x, p, signs, 0.1, NULL);
    case 4:
        return fv_hinge_sum(t, x, signs, 0.5, NULL);
    case 5:
        return fv_bce_with_logits_sum(t, x, p, &columns, NULL);
    default:
        return pairs[which - 6](t, x, which == 9 ? fv_softmax(t, p, 1) : p, NULL);
    }
}

Test(op_losses, threads)
{
    same_bits_at_any_threads(run, 11);
}
