/* Noise: its distribution, where it is drawn from, and that it stays out of all but training. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/numbers.h"

enum { N = 100003 }; /* odd, so that the last block is cut */

static fv_var *gaussian(fv_tape *t, fv_var *x)
{
    return fv_gaussian_noise(t, x, 1);
}
static fv_var *gumbel(fv_tape *t, fv_var *x)
{
    return fv_gumbel_noise(t, x, 1);
}
static fv_var *rows(fv_tape *t, fv_var *x)
{
    return fv_dropout_rows(t, x, 0.3);
}
static fv_var *numbers(fv_tape *t, fv_var *x)
{
    return fv_dropout(t, x, 0.3);
}

typedef fv_var *(*build)(fv_tape *t, fv_var *x);
static const build builds[] = {gaussian, gumbel, rows, numbers};

/* The noise on zeros (on ones where it is a factor), [n, d]. */
static const fv_real *draw(fv_tape *t, build f, size_t n, size_t d, uint64_t seed, uint64_t step)
{
    fv_tape_begin(t, FV_TRAIN, seed, step);
    fv_real *data = fv_tape_alloc(t, n * d, sizeof *data);
    for (size_t i = 0; i < n * d; i++)
        data[i] = f == gaussian || f == gumbel ? 0 : 1;
    const fv_var *y = f(t, fv_input(t, FV_SHAPE(n, d), data));
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    return y->value.data;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double normal_below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static double gumbel_below(double x)
{
    return exp(-exp(-x));
}

/* Moments within five standard deviations, and the largest distance of the two distributions (Kolmogorov
 * and Smirnov): below 1.95 / sqrt(n) in 999 of 1000 draws. */
static void check_distribution(build f, double mean, double variance, double fourth,
                               double (*below)(double))
{
    static double z[N];
    fv_tape *t = fv_tape_new(NULL);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const fv_real *y = draw(t, f, N, 1, seed, 5);
        double sum = 0, squares = 0, apart = 0, together = 0;
        for (size_t i = 0; i < N; i++) {
            z[i] = (double)fv_re(y[i]);
            cr_assert(isfinite(z[i]), "number %zu is %g", i, z[i]);
            sum += z[i] / N;
            squares += (z[i] - mean) * (z[i] - mean) / N;
        }
        for (size_t lag = 1; lag <= 64;
             lag *= 2) { /* neighbours, and the pairs of Box and Muller */
            double product = 0;
            for (size_t i = 0; i + lag < N; i++)
                product += (z[i] - mean) * (z[i + lag] - mean) / N / variance;
            together = fmax(together, fabs(product));
        }
        qsort(z, N, sizeof *z, ascending);
        for (size_t i = 0; i < N; i++) {
            const double p = below(z[i]);
            apart = fmax(apart, fmax(fabs(p - (double)i / N), fabs((double)(i + 1) / N - p)));
        }
        cr_expect_float_eq(sum, mean, 5 * sqrt(variance / N), "mean %g", sum);
        cr_expect_float_eq(squares, variance, 5 * variance * sqrt((fourth - 1) / N), "variance %g",
                           squares);
        cr_expect_lt(together, 5 / sqrt(N), "correlation %g", together);
        cr_expect_lt(apart, 1.95 / sqrt(N), "distance %g", apart);
    }
    fv_tape_free(t);
}

Test(op_noise, gaussian_distribution)
{
    check_distribution(gaussian, 0, 1, 3, normal_below);
}

Test(op_noise, gumbel_distribution)
{
    const double pi = 3.141592653589793, euler = 0.5772156649015329;
    check_distribution(gumbel, euler, pi * pi / 6, 5.4, gumbel_below);
}

/* Number i of a stream by the definitions, from its words. */
Test(op_noise, numbers_by_definition)
{
    const double near = sizeof(fv_real) == 4 ? 3e-6 : 1e-12;
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 9, 2);
    fv_tape_alloc(t, N, sizeof(fv_real));
    static fv_real zeros[N];
    fv_var *x = fv_input(t, FV_SHAPE(N), zeros);
    fv_rng rng = fv_tape_rng(t);
    const fv_real *z = fv_gaussian_noise(t, x, 2)->value.data;
    for (size_t i = 0; i < N; i++) {
        const size_t u_at = i % 64 < 32 ? i : i - 32;
        const double u = ((double)(fv_rng_bits(rng, u_at) >> 1) + 1) * 0x1p-31;
        const double v = (double)fv_rng_bits(rng, u_at + 32) * 0x1p-32;
        const double angle = 2 * 3.141592653589793 * v;
        const double r = 2 * sqrt(-2 * log(u)),
                     expected = r * (i % 64 < 32 ? cos(angle) : sin(angle));
        /* near 1, the float nearest to u moves the radius by up to 4e-4 */
        const double room = sizeof(fv_real) == 4
                                ? 2 * fabs(sqrt(-2 * log(u)) - sqrt(-2 * log((double)(float)u)))
                                : 0;
        cr_assert_float_eq((double)fv_re(z[i]), expected, near + room, "number %zu: %.9g, %.9g", i,
                           (double)fv_re(z[i]), expected);
    }
    rng = fv_tape_rng(t);
    z = fv_gumbel_noise(t, x, 1)->value.data;
    for (size_t i = 0; i < N; i++) {
        const double k = (double)(fv_rng_bits(rng, i) >> 1);
        const double one_minus = (2147483647 - k + 0.5) * 0x1p-31;
        const double e = one_minus < 0.5 ? -log1p(-one_minus) : -log((k + 0.5) * 0x1p-31);
        cr_assert_float_eq((double)fv_re(z[i]), -log(e), near, "number %zu: %.9g, %.9g", i,
                           (double)fv_re(z[i]), -log(e));
    }
    fv_tape_free(t);
}

/* A function of seed, step, place on the tape and index: not of the size, nor of what else there is. */
Test(op_noise, what_it_depends_on)
{
    static fv_real kept[N];
    fv_tape *t = fv_tape_new(NULL);
    for (size_t k = 0; k < sizeof builds / sizeof *builds; k++) {
        memcpy(kept, draw(t, builds[k], N, 1, 7, 3), sizeof kept);
        cr_expect_arr_eq(draw(t, builds[k], N, 1, 7, 3), kept, sizeof kept);
        cr_expect_arr_eq(draw(t, builds[k], 101, 1, 7, 3), kept, 101 * sizeof *kept, "fewer");
        cr_expect_arr_neq(draw(t, builds[k], N, 1, 8, 3), kept, sizeof kept, "another seed");
        cr_expect_arr_neq(draw(t, builds[k], N, 1, 7, 4), kept, sizeof kept, "another step");
        draw(t, builds[k], N, 1, 7, 3);
        fv_var *again = builds[k](t, t->last->in[0]);
        cr_expect_arr_neq(again->value.data, kept, sizeof kept, "another place");
    }
    fv_tape_free(t);
}

Test(op_noise, rows_are_dropped_whole)
{
    enum { ROWS = 40001, D = 3 };
    static const double rates[] = {0.1, 0.5, 0.9};
    static fv_real data[ROWS * D];
    for (size_t i = 0; i < ROWS * D; i++)
        data[i] = (fv_real)(double)(i % 7 + 1);
    fv_tape *t = fv_tape_new(NULL);
    for (int k = 0; k < 3; k++) {
        const double p = rates[k];
        const fv_real scale = (fv_real)(1 / (1 - p));
        fv_tape_begin(t, FV_TRAIN, 3, 1);
        fv_var *x = fv_input(t, FV_SHAPE(ROWS, 1, D), data), *y = fv_dropout_rows(t, x, p);
        size_t dropped = 0;
        for (size_t r = 0; r < ROWS; r++) {
            const bool zero = fv_re(y->value.data[r * D]) == 0;
            dropped += zero;
            for (size_t c = r * D; c < (r + 1) * D; c++)
                cr_assert(y->value.data[c] == (zero ? 0 : scale * data[c]));
        }
        cr_expect_float_eq((double)dropped / ROWS, p, 5 * sqrt(p * (1 - p) / ROWS));
        cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
        for (size_t i = 0; i < ROWS * D; i++)
            cr_assert(x->grad[i] == (fv_re(y->value.data[i]) == 0 ? 0 : scale));
    }
    fv_tape_free(t);
}

/* NaN in what is dropped reaches neither the value nor the gradient. */
Test(op_noise, what_is_dropped_never_matters)
{
    enum { ROWS = 200 };
    static fv_real spoiled[ROWS];
    for (size_t i = 0; i < ROWS; i++)
        spoiled[i] = (fv_real)NAN;
    fv_tape *t = fv_tape_new(NULL);
    for (size_t k = 2; k < 4; k++) {
        static unsigned char kept[ROWS];
        const fv_real *y = draw(t, builds[k], ROWS, 1, 4, 4);
        for (size_t i = 0; i < ROWS; i++)
            kept[i] = fv_re(y[i]) != 0;
        fv_tape_begin(t, FV_TRAIN, 4, 4);
        fv_var *x = fv_input(t, FV_SHAPE(ROWS, 1), spoiled);
        fv_var *z = builds[k](t, x);
        backward_of(t, z, spoiled);
        for (size_t i = 0; i < ROWS; i++) {
            cr_assert_eq(isnan((double)fv_re(z->value.data[i])) != 0, kept[i], "%zu", i);
            cr_assert_eq(isnan((double)fv_re(x->grad[i])) != 0, kept[i], "%zu", i);
        }
    }
    fv_tape_free(t);
}

Test(op_noise, only_in_training)
{
    const fv_mode modes[] = {FV_EVAL, FV_GRAD, FV_TRAIN};
    const fv_real data[] = {1, 2};
    fv_tape *t = fv_tape_new(NULL);
    for (int m = 0; m < 3; m++) {
        fv_tape_begin(t, modes[m], 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(2, 1), data);
        for (size_t k = 0; k < sizeof builds / sizeof *builds; k++)
            cr_expect_eq(builds[k](t, x) == x, modes[m] != FV_TRAIN);
        cr_expect(fv_gaussian_noise(t, x, 0) == x);
        cr_expect(fv_gumbel_noise(t, x, 0) == x);
        cr_expect(fv_dropout_rows(t, x, 0) == x);
        cr_expect(fv_dropout(t, x, 0) == x);
    }
    fv_tape_free(t);
}

Test(op_noise, every_rank_and_no_numbers)
{
    const fv_shape shapes[] = {FV_SCALAR,
                               FV_SHAPE(3),
                               FV_SHAPE(2, 2),
                               FV_SHAPE(2, 1, 2),
                               FV_SHAPE(1, 2, 1, 2),
                               FV_SHAPE(2, 1, 1, 1, 2),
                               FV_SHAPE(1, 1, 2, 1, 2, 1),
                               FV_SHAPE(0),
                               FV_SHAPE(2, 0),
                               FV_SHAPE(0, 2)};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < sizeof builds / sizeof *builds; k++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = INPUT(t, shapes[i], 1, 2, 3, 4);
            if (builds[k] == rows && shapes[i].rank == 0)
                continue;
            fv_var *y = builds[k](t, x);
            cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
            cr_expect(fv_shape_equal(y->value.shape, shapes[i]));
            backward_of(t, y, NULL);
            for (size_t j = 0; k < 2 && j < fvi_count(x); j++)
                cr_expect(fv_re(x->grad[j]) == (double)(j + 1), "noise is a constant");
        }
    fv_tape_free(t);
}
