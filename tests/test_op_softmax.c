/* The softmax family against numbers worked out by hand, along every axis, with rows of -Inf and NaN. */
#include "tests/values.h"

static const fv_real hidden = (fv_real)-INFINITY;
static const double LN2 = 0.6931471805599453, LN5 = 1.6094379124341003;

typedef fv_var *family(fv_tape *t, fv_var *x, int axis);
static family *const members[] = {fv_softmax, fv_softmax_plus_one, fv_sparsemax, fv_log_softmax};

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* Scores ln 1, ln 2, ln 5 have shares 1, 2 and 5 of 8, along any axis of any rank. */
Test(op_softmax, every_axis)
{
    const double score[] = {0, LN2, LN5}, share[] = {1, 2, 5};
    for (int rank = 1; rank <= FV_MAX_RANK; rank++)
        for (int axis = -rank; axis < rank; axis++) {
            fv_tape *t = begin();
            fv_shape shape = {.rank = rank};
            const int at = axis < 0 ? axis + rank : axis;
            size_t inner = 1;
            for (int i = 0; i < rank; i++)
                shape.size[i] = i == at ? 3 : 2;
            for (int i = at + 1; i < rank; i++)
                inner *= 2;
            fv_real x[96];
            double soft[96], one[96], logs[96];
            const size_t n = fv_shape_count(shape);
            for (size_t i = 0; i < n; i++) {
                const size_t k = i / inner % 3;
                x[i] = (fv_real)score[k];
                soft[i] = share[k] / 8;
                one[i] = share[k] / 9;
                logs[i] = score[k] - 3 * LN2;
            }
            fv_var *in = fv_input(t, shape, x);
            expect_value(t, fv_softmax(t, in, axis), soft);
            expect_value(t, fv_softmax_plus_one(t, in, axis), one);
            expect_value(t, fv_log_softmax(t, in, axis), logs);
            fv_tape_free(t);
        }
}

Test(op_softmax, gradients)
{
    const fv_real x[] = {0, (fv_real)LN2, (fv_real)LN5}, weights[] = {8, 0, 0};
    fv_tape *t = begin();
    fv_var *row = fv_input(t, FV_SHAPE(3), x), *column = fv_input(t, FV_SHAPE(3, 1), x);
    const double soft[] = {0.875, -0.25, -0.625}, logs[] = {7, -2, -5};
    const double one[] = {8.0 / 9 * 8 / 9, -8.0 / 9 * 2 / 9, -8.0 / 9 * 5 / 9};
    expect_gradient(t, fv_softmax(t, row, 0), weights, row, soft);
    expect_gradient(t, fv_softmax(t, column, 0), weights, column, soft);
    expect_gradient(t, fv_softmax_plus_one(t, row, 0), weights, row, one);
    expect_gradient(t, fv_log_softmax(t, row, 0), weights, row, logs);
    expect_gradient(t, fv_log_softmax(t, column, -2), weights, column, logs);
    fv_tape_free(t);
}

/* tau of 1/2, 1/4, -1 is -1/8: the third is out. Equals are in, or out, together. */
Test(op_softmax, sparsemax)
{
    const fv_real rows[] = {0.5f, 0.25f, -1, 7, 7, 7, 10, 9, 8, 0.5f, 0.5f, 0};
    const fv_real weights[] = {1, 0, 7, 3, 0, 0, 5, 1, 1, 2, 0, 9};
    const double y[] = {0.625, 0.375, 0, 1.0 / 3, 1.0 / 3, 1.0 / 3, 1, 0, 0, 0.5, 0.5, 0};
    const double dx[] = {0.5, -0.5, 0, 2, -1, -1, 0, 0, 0, 1, -1, 0};
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(4, 3), rows);
    expect_value(t, fv_sparsemax(t, x, 1), y);
    expect_gradient(t, fv_sparsemax(t, x, 1), weights, x, dx);
    fv_real turned[12], turned_weights[12];
    double turned_y[12], turned_dx[12];
    for (size_t i = 0; i < 12; i++) {
        const size_t to = i % 3 * 4 + i / 3;
        turned[to] = rows[i];
        turned_weights[to] = weights[i];
        turned_y[to] = y[i];
        turned_dx[to] = dx[i];
    }
    x = fv_input(t, FV_SHAPE(3, 4), turned);
    expect_value(t, fv_sparsemax(t, x, 0), turned_y);
    expect_gradient(t, fv_sparsemax(t, x, 0), turned_weights, x, turned_dx);
    fv_tape_free(t);
}

/* A wide row sums to 1, and what is out is below what is in by a gap that tau lies in. */
Test(op_softmax, sparsemax_of_many)
{
    fv_tape *t = begin();
    const double scales[] = {1e-3, 0.1, 1, 100};
    for (size_t k = 0; k < 4; k++) {
        fv_var *x = fv_scale(t, some(t, k, FV_SHAPE(1000)), scales[k]), *y = fv_sparsemax(t, x, 0);
        double sum = 0, least_in = INFINITY, most_out = -(double)INFINITY, tau = 0;
        for (size_t i = 0; i < 1000; i++) {
            const double in = (double)fv_re(x->value.data[i]),
                         out = (double)fv_re(y->value.data[i]);
            sum += out;
            if (out > 0) {
                least_in = in < least_in ? in : least_in;
                tau = in - out;
            } else
                most_out = in > most_out ? in : most_out;
        }
        cr_expect(fabs(sum - 1) < 1e-4, "sum %g", sum);
        cr_expect(most_out <= tau + 1e-4 && tau <= least_in, "%g, %g, %g", most_out, tau, least_in);
    }
    fv_tape_free(t);
}

/* A row of nothing but -Inf: zeros without a gradient; its logarithm is NaN. Rows beside it do not care. */
Test(op_softmax, a_row_that_sees_nothing)
{
    const fv_real rows[] = {hidden, hidden, 0, 0}, columns[] = {hidden, 0, hidden, 0};
    fv_tape *t = begin();
    for (size_t k = 0; k < 3; k++) {
        const double half = k == 1 ? 1.0 / 3 : 0.5;
        const double by_rows[] = {0, 0, half, half}, by_columns[] = {0, half, 0, half};
        const fv_real weights[] = {3, -1, 3, 3};
        fv_var *x = fv_input(t, FV_SHAPE(2, 2), rows), *z = fv_input(t, FV_SHAPE(2, 2), columns);
        expect_value(t, members[k](t, x, 1), by_rows);
        expect_value(t, members[k](t, z, 0), by_columns);
        cr_assert(fv_backward(
            t, fv_sum(t, fv_mul(t, members[k](t, x, 1), fv_constant(t, FV_SHAPE(2, 2), weights)),
                      NULL)));
        expect_numbers("gradient", 2, x->grad, (const double[]){0, 0});
        cr_assert(fv_backward(
            t, fv_sum(t, fv_mul(t, members[k](t, z, 0), fv_constant(t, FV_SHAPE(2, 2), weights)),
                      NULL)));
        cr_expect(fv_re(z->grad[0]) == 0 && fv_re(z->grad[2]) == 0);
    }
    const double nan[] = {NAN, NAN, -LN2, -LN2};
    expect_value(t, fv_log_softmax(t, fv_input(t, FV_SHAPE(2, 2), rows), 1), nan);
    fv_tape_free(t);
}

/* One -Inf has no share; a NaN spoils its own row alone; +Inf makes NaN. */
Test(op_softmax, odd_numbers)
{
    const fv_real x[] = {
        hidden, 0, 0, (fv_real)NAN, 0, 0, hidden, (fv_real)NAN, hidden, (fv_real)INFINITY, 0, 0};
    const double soft[] = {0, 0.5, 0.5, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(4, 3), x);
    for (size_t k = 0; k < 4; k++) {
        const fv_var *y = members[k](t, in, 1);
        const double half = k == 1 ? 1.0 / 3 : k == 3 ? -LN2 : 0.5;
        cr_expect_eq(fv_re(y->value.data[0]), k == 3 ? -(double)INFINITY : 0);
        cr_expect(near(y->value.data[1], half) && near(y->value.data[2], half));
        expect_numbers("NaN", 6, y->value.data + 3, soft + 3);
        cr_expect(isnan((double)fv_re(y->value.data[9])), "member %zu of +Inf", k);
    }
    fv_tape_free(t);
}

Test(op_softmax, plus_one_of_large_numbers)
{
    const fv_real x[] = {1000, 1000, -1000, -1000, 0, -1000};
    fv_tape *t = begin();
    fv_var *in = fv_input(t, FV_SHAPE(3, 2), x);
    expect_value(t, fv_softmax_plus_one(t, in, 1), (const double[]){0.5, 0.5, 0, 0, 0.5, 0});
    expect_gradient(t, fv_softmax_plus_one(t, in, 1), NULL, in,
                    (const double[]){0, 0, 0, 0, 0.25, 0});
    fv_tape_free(t);
}

Test(op_softmax, nothing_and_one)
{
    const fv_real x[] = {3};
    fv_tape *t = begin();
    for (size_t k = 0; k < 4; k++) {
        const double alone[] = {1, 0.9525741268224334, 1, 0}; /* 1 / (1 + e^-3) */
        const fv_shape none[] = {FV_SHAPE(0, 3), FV_SHAPE(3, 0), FV_SHAPE(2, 0, 3)};
        expect_value(t, members[k](t, fv_input(t, FV_SHAPE(1), x), -1), alone + k);
        expect_value(t, members[k](t, fv_input(t, FV_SHAPE(1, 1, 1), x), 1), alone + k);
        for (int axis = 0; axis < 2; axis++)
            for (size_t i = 0; i < 3; i++) {
                fv_var *in = fv_input(t, none[i], x), *y = members[k](t, in, axis);
                cr_assert_not_null(y);
                cr_expect(fv_shape_equal(y->value.shape, none[i]));
                cr_expect(fv_backward(t, fv_sum(t, y, NULL)), "%s", fv_tape_error(t)->text);
            }
    }
    fv_tape_free(t);
}

/* A row's bits do not depend on what stands beside it. */
Test(op_softmax, a_row_alone)
{
    fv_tape *t = begin();
    for (size_t k = 0; k < 4; k++) {
        fv_var *x = some(t, 3, FV_SHAPE(5, 70));
        const fv_var *all = members[k](t, x, 1);
        for (size_t r = 0; r < 5; r++) {
            const fv_var *one =
                members[k](t, fv_input(t, FV_SHAPE(1, 70), x->value.data + 70 * r), 1);
            cr_expect_arr_eq(one->value.data, all->value.data + 70 * r, 70 * sizeof(fv_real));
        }
    }
    fv_tape_free(t);
}

static fv_var *run(fv_tape *t, int which)
{
    return members[which % 4](t, some(t, 1, FV_SHAPE(300, 2, 333)), which / 4 - 1);
}

Test(op_softmax, threads)
{
    same_bits_at_any_threads(run, 12);
}
