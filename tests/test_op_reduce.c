/* Reductions against numbers worked out by hand: every set of axes, every way to walk, zeros, equals, NaN,
 * infinities, nothing at all. */
#include <math.h>

#include "tests/numbers.h"

static const double inf = (double)INFINITY, nan_ = (double)NAN;

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* ---- every set of axes ------------------------------------------------------------------------- */

/* The place in a tensor, where some axes have shrunk to 1, of number i of a shape. */
static size_t place_of(fv_shape shape, unsigned gone, size_t i)
{
    size_t place = 0, next = 1;
    for (int k = shape.rank - 1; k >= 0; k--) {
        if (!(gone >> k & 1)) {
            place += i % shape.size[k] * next;
            next *= shape.size[k];
        }
        i /= shape.size[k];
    }
    return place;
}

static fv_axes axes_of(unsigned gone, int rank, bool keep, bool from_behind)
{
    fv_axes axes = {.keep = keep};
    for (int k = 0; k < rank; k++)
        if (gone >> k & 1)
            axes.axis[axes.count++] = from_behind ? k - rank : k;
    return axes;
}

/* Whole numbers, so that every order of additions gives the same: sum, max and min over these axes, and
 * that the gradient of a sum is what its result's is. */
static void reduce_by(fv_tape *t, fv_shape shape, unsigned gone, bool keep)
{
    const size_t n = fv_shape_count(shape);
    const fv_axes axes = axes_of(gone, shape.rank, keep, gone & 1);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_real *data = fv_tape_alloc(t, n, sizeof *data);
    double *sum = fv_tape_alloc(t, n, sizeof *sum), *most = fv_tape_alloc(t, n, sizeof *most),
           *least = fv_tape_alloc(t, n, sizeof *least), *slope = fv_tape_alloc(t, n, sizeof *slope);
    for (size_t i = 0; i < n; i++) {
        most[i] = -inf;
        least[i] = inf;
    }
    for (size_t i = 0; i < n; i++) {
        const double x = (double)(i * 7919 % 401) - 200;
        const size_t at = place_of(shape, gone, i);
        data[i] = (fv_real)x;
        slope[i] = (double)(at + 1);
        sum[at] += x;
        most[at] = x > most[at] ? x : most[at];
        least[at] = x < least[at] ? x : least[at];
    }
    fv_var *x = fv_input(t, shape, data), *y = fv_sum(t, x, &axes);
    const size_t results = fvi_count(y);
    cr_assert_eq(y->value.shape.rank, keep ? shape.rank : shape.rank - axes.count);
    expect_numbers("sum", y->value.data, sum, results);
    expect_numbers("max", fv_max(t, x, &axes)->value.data, most, results);
    expect_numbers("min", fv_min(t, x, &axes)->value.data, least, results);
    backward_of(t, y, NULL);
    expect_numbers("gradient of a sum", x->grad, slope, n);
}

Test(op_reduce, every_set_of_axes)
{
    fv_tape *t = fv_tape_new(NULL);
    for (int rank = 1; rank <= FV_MAX_RANK; rank++)
        for (unsigned gone = 1; gone < 1U << rank; gone++)
            reduce_by(t, (fv_shape){rank, {2, 3, 1, 2, 3, 2}}, gone, gone % 3 == 0);
    fv_tape_free(t);
}

/* Short and long runs, rows of many widths, several blocks. */
Test(op_reduce, every_way_to_walk)
{
    const fv_shape shape[] = {FV_SHAPE(3, 40, 5, 33), FV_SHAPE(2000, 3),    FV_SHAPE(3, 2000),
                              FV_SHAPE(90, 7, 130),   FV_SHAPE(50, 1500),   FV_SHAPE(1500, 50),
                              FV_SHAPE(40000),        FV_SHAPE(2, 3, 9000), FV_SHAPE(300, 17, 16),
                              FV_SHAPE(2, 20000, 2)};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
        for (unsigned gone = 1; gone < 1U << shape[k].rank; gone++)
            reduce_by(t, shape[k], gone, false);
    fv_tape_free(t);
}

Test(op_reduce, names_of_axes)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 1, 2, 3, 4, 5, 6), *one = INPUT(t, FV_SCALAR, 7);
    EXPECT(fv_sum(t, x, NULL), 21);
    EXPECT(fv_sum(t, x, FV_AXES(0)), 5, 7, 9);
    EXPECT(fv_sum(t, x, FV_AXES(-1)), 6, 15);
    EXPECT(fv_mean(t, x, FV_AXES(1)), 2, 5);
    EXPECT(fv_prod(t, x, FV_AXES(0)), 4, 10, 18);
    const fv_axes none = {.count = 0}, all_kept = {.keep = true};
    EXPECT(fv_sum(t, x, &none), 21);
    cr_expect(fv_shape_equal(fv_sum(t, x, &all_kept)->value.shape, FV_SHAPE(1, 1)));
    cr_expect(fv_shape_equal(fv_sum(t, x, FV_KEEP(0))->value.shape, FV_SHAPE(1, 3)));
    EXPECT(fv_sum(t, one, NULL), 7);
    EXPECT(fv_max(t, one, NULL), 7);
    EXPECT(fv_vector_norm(t, one, NULL, 2), 7);
    EXPECT(fv_logsumexp(t, one, &all_kept), 7);
    fv_tape_free(t);
}

/* ---- of no numbers ----------------------------------------------------------------------------- */

Test(op_reduce, nothing)
{
    fv_tape *t = begin();
    fv_var *rows = INPUT(t, FV_SHAPE(0, 2), 0), *columns = INPUT(t, FV_SHAPE(2, 0), 0);
    EXPECT(fv_sum(t, rows, FV_AXES(0)), 0, 0);
    EXPECT(fv_mean(t, rows, FV_AXES(0)), nan_, nan_);
    EXPECT(fv_prod(t, columns, FV_AXES(1)), 1, 1);
    EXPECT(fv_variance(t, columns, FV_AXES(1), 0), nan_, nan_);
    EXPECT(fv_logsumexp(t, columns, NULL), -inf);
    EXPECT(fv_vector_norm(t, rows, NULL, 2), 0);
    EXPECT(fv_vector_norm(t, rows, NULL, 0), 0);
    cr_expect_eq(fvi_count(fv_max(t, rows, FV_AXES(1))), 0, "a result for each of no rows");
    cr_expect_eq(fvi_count(fv_sum(t, columns, FV_AXES(0))), 0);
    fv_var *loss = fv_sum(t, rows, NULL);
    cr_assert(fv_backward(t, loss), "%s", fv_tape_error(t)->text);
    fv_tape_free(t);
}

/* ---- products ---------------------------------------------------------------------------------- */

Test(op_reduce, prod_with_zeros)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3, 3), 2, 3, 4, 2, 0, 4, 0, 5, 0);
    fv_var *y = fv_prod(t, x, FV_AXES(1));
    EXPECT(y, 24, 0, 0);
    backward_of(t, y, (const fv_real[]){1, 1, 1});
    EXPECT_GRAD(x, 12, 8, 6, 0, 8, 0, 0, 0, 0);
    fv_var *z = INPUT(t, FV_SHAPE(3, 2), 2, 0, 3, 5, 0, 7);
    y = fv_prod(t, z, FV_AXES(0));
    EXPECT(y, 0, 0);
    backward_of(t, y, (const fv_real[]){1, 10});
    EXPECT_GRAD(z, 0, 350, 0, 0, 6, 0);
    fv_tape_free(t);
}

/* ---- max, min ---------------------------------------------------------------------------------- */

Test(op_reduce, equals_share)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 4), 3, 1, 3, 3, -2, -2, 5, 0);
    fv_var *most = fv_max(t, x, FV_AXES(1));
    EXPECT(most, 3, 5);
    backward_of(t, most, (const fv_real[]){3, 7});
    EXPECT_GRAD(x, 1, 0, 1, 1, 0, 0, 7, 0);
    fv_var *least = fv_min(t, x, FV_KEEP(1));
    EXPECT(least, 1, -2);
    backward_of(t, least, (const fv_real[]){3, 7});
    EXPECT_GRAD(x, 0, 3, 0, 0, 3.5, 3.5, 0, 0);
    fv_tape_free(t);
}

Test(op_reduce, nan_is_not_lost)
{
    fv_tape *t = begin();
    for (size_t n = 2; n < 60; n += 19)
        for (size_t at = 0; at < n; at++) {
            double numbers[60];
            for (size_t i = 0; i < n; i++)
                numbers[i] = i == at ? nan_ : (double)i;
            fv_var *row = input_of(t, FV_SHAPE(n), numbers),
                   *column = fv_reshape(t, row, FV_SHAPE(n, 1));
            EXPECT(fv_max(t, row, NULL), nan_);
            EXPECT(fv_min(t, column, FV_AXES(0)), nan_);
            EXPECT(fv_sum(t, row, NULL), nan_);
        }
    EXPECT(fv_max(t, INPUT(t, FV_SHAPE(2), -inf, -inf), NULL), -inf);
    EXPECT(fv_min(t, INPUT(t, FV_SHAPE(2), inf, inf), NULL), inf);
    fv_tape_free(t);
}

/* ---- variance, std ----------------------------------------------------------------------------- */

Test(op_reduce, variance)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2), 1, 3), *same = INPUT(t, FV_SHAPE(2), 4, 4);
    EXPECT(fv_variance(t, x, NULL, 0), 1);
    EXPECT(fv_variance(t, x, NULL, 1), 2);
    EXPECT(fv_variance(t, x, NULL, 0.5), 2 / 1.5);
    EXPECT(fv_variance(t, x, NULL, 2), inf);
    EXPECT(fv_variance(t, x, NULL, 3), inf);
    EXPECT(fv_variance(t, same, NULL, 2), nan_);
    EXPECT(fv_variance(t, INPUT(t, FV_SCALAR, 5), NULL, 1), nan_);
    EXPECT(fv_std(t, x, NULL, 1), sqrt(2));
    backward_of(t, fv_variance(t, x, NULL, 1), NULL);
    EXPECT_GRAD(x, -2, 2);
    backward_of(t, fv_std(t, x, NULL, 0), NULL);
    EXPECT_GRAD(x, -0.5, 0.5);
    backward_of(t, fv_std(t, same, NULL, 1), NULL);
    EXPECT_GRAD(same, 0, 0);
    /* In one pass the squares, 1e14, would drown a variance of 2/3. */
    EXPECT(fv_variance(t, INPUT(t, FV_SHAPE(3), 9999998, 9999999, 10000000), NULL, 0), 2.0 / 3);
    fv_tape_free(t);
}

/* ---- logsumexp --------------------------------------------------------------------------------- */

Test(op_reduce, logsumexp)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3, 2), 0.5, 0.5, -inf, 5, -inf, -inf);
    fv_var *y = fv_logsumexp(t, x, FV_AXES(1));
    EXPECT(y, 0.5 + log(2), 5, -inf);
    backward_of(t, y, (const fv_real[]){2, 2, 2});
    EXPECT_GRAD(x, 1, 1, 0, 2, 0, 0);
    EXPECT(fv_logsumexp(t, INPUT(t, FV_SHAPE(2), 1000, 1000), NULL), 1000 + log(2));
    EXPECT(fv_logsumexp(t, INPUT(t, FV_SHAPE(2), -1000, -1000), NULL), -1000 + log(2));
    EXPECT(fv_logsumexp(t, INPUT(t, FV_SHAPE(2), inf, 1), NULL), inf);
    EXPECT(fv_logsumexp(t, INPUT(t, FV_SHAPE(2), nan_, 1), NULL), nan_);
    fv_tape_free(t);
}

/* ---- vector_norm ------------------------------------------------------------------------------- */

Test(op_reduce, norms)
{
    const struct {
        double p, norm, slope[3];
    } of[] = {{2, 3, {2.0 / 3, -1.0 / 3, 2.0 / 3}},
              {1, 5, {1, -1, 1}},
              {0, 3, {0, 0, 0}},
              {inf, 2, {0.5, 0, 0.5}},
              {-inf, 1, {0, -1, 0}},
              {-1, 0.5, {0.0625, -0.25, 0.0625}}};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3), 2, -1, 2);
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        fv_var *y = fv_vector_norm(t, x, NULL, of[k].p);
        EXPECT(y, of[k].norm);
        backward_of(t, fv_add(t, y, fv_scale(t, fv_sum(t, x, NULL), 0)), NULL);
        expect_numbers("slope", x->grad, of[k].slope, 3);
    }
    EXPECT(fv_vector_norm(t, x, NULL, 3), cbrt(17));
    fv_var *zero = INPUT(t, FV_SHAPE(2), 0, 0);
    const double p[] = {2, 1, 3, 0.5, 1.5, -1, inf};
    for (size_t k = 0; k < sizeof p / sizeof *p; k++) {
        fv_var *y = fv_vector_norm(t, zero, NULL, p[k]);
        EXPECT(y, 0);
        backward_of(t, y, NULL);
        EXPECT_GRAD(zero, 0, 0);
    }
    /* Squares that a float cannot hold. */
    EXPECT(fv_vector_norm(t, INPUT(t, FV_SHAPE(2), 3e30, 4e30), NULL, 2), 5e30);
    fv_tape_free(t);
}

/* ---- accuracy ---------------------------------------------------------------------------------- */

/* A million times the same, where one running sum would lose digits: to 1e-13, or the last of a float. */
Test(op_reduce, long_sums)
{
    enum { N = 1000000 };
    const double near = sizeof(fv_real) == 4 ? 6e-8 : 1e-13;
    fv_tape *t = begin();
    fv_real *x = fv_tape_alloc(t, N, sizeof *x);
    for (size_t i = 0; i < N; i++)
        x[i] = (fv_real)0.1;
    const double each = (double)fv_re(x[0]);
    const fv_var *y[] = {fv_mean(t, fv_input(t, FV_SHAPE(N), x), NULL),
                         fv_mean(t, fv_input(t, FV_SHAPE(N / 2, 2), x), FV_AXES(0)),
                         fv_mean(t, fv_input(t, FV_SHAPE(2, N / 2), x), FV_AXES(1)),
                         fv_mean(t, fv_input(t, FV_SHAPE(N / 200, 200), x), FV_AXES(0))};
    for (size_t k = 0; k < sizeof y / sizeof *y; k++)
        for (size_t i = 0; i < fvi_count(y[k]); i++)
            cr_expect_lt(fabs((double)fv_re(y[k]->value.data[i]) / each - 1), near);
    fv_tape_free(t);
}

/* The same value twice, and through a view. */
Test(op_reduce, aliased)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 2), 1, 2, 3, 4);
    fv_var *y = fv_add(t, fv_sum(t, x, FV_AXES(0)),
                       fv_max(t, fv_reshape(t, x, FV_SHAPE(2, 2)), FV_AXES(1)));
    EXPECT(y, 6, 10);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 3, 1, 4);
    fv_tape_free(t);
}
