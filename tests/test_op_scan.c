/* Scans, places of the largest, sorting, the k largest: against numbers worked out by hand. */
#include <math.h>

#include "tests/numbers.h"

static const double inf = (double)INFINITY, nan_ = (double)NAN;

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

static void expect_places(const fv_tape *t, const int32_t *given, const int32_t *expected, size_t n)
{
    cr_assert_not_null(given, "%s", fv_tape_error(t)->text);
    for (size_t i = 0; i < n; i++)
        cr_expect_eq(given[i], expected[i], "place %zu: %d, expected %d", i, (int)given[i],
                     (int)expected[i]);
}
#define EXPECT_PLACES(given, ...)                                                                  \
    expect_places(t, given, (const int32_t[]){__VA_ARGS__},                                        \
                  sizeof(int32_t[]){__VA_ARGS__} / sizeof(int32_t))

/* ---- scans ------------------------------------------------------------------------------------- */

Test(op_scan, cumsum)
{
    const fv_scan_opts before = {.exclusive = true}, back = {.reverse = true},
                       behind = {.exclusive = true, .reverse = true};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3), 1, 2, 4), *m = INPUT(t, FV_SHAPE(2, 2), 1, 2, 3, 4);
    EXPECT(fv_cumsum(t, x, 0, NULL), 1, 3, 7);
    EXPECT(fv_cumsum(t, x, -1, &before), 0, 1, 3);
    EXPECT(fv_cumsum(t, x, 0, &back), 7, 6, 4);
    EXPECT(fv_cumsum(t, x, 0, &behind), 6, 4, 0);
    EXPECT(fv_cumsum(t, m, 0, NULL), 1, 2, 4, 6);
    EXPECT(fv_cumsum(t, m, 1, &back), 3, 2, 7, 4);
    backward_of(t, fv_cumsum(t, x, 0, NULL), NULL);
    EXPECT_GRAD(x, 6, 5, 3);
    backward_of(t, fv_cumsum(t, x, 0, &behind), NULL);
    EXPECT_GRAD(x, 0, 1, 3);
    cr_expect_eq(fvi_count(fv_cumsum(t, INPUT(t, FV_SHAPE(0, 2), 0), 0, &back)), 0);
    cr_expect_eq(fvi_count(fv_cumprod(t, INPUT(t, FV_SHAPE(2, 0), 0), 0, NULL)), 0);
    fv_tape_free(t);
}

Test(op_scan, cumprod_with_zeros)
{
    const fv_scan_opts before = {.exclusive = true}, back = {.reverse = true};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(4), 2, 0, 3, 5);
    EXPECT(fv_cumprod(t, x, 0, NULL), 2, 0, 0, 0);
    EXPECT(fv_cumprod(t, x, 0, &before), 1, 2, 0, 0);
    EXPECT(fv_cumprod(t, x, 0, &back), 0, 0, 15, 5);
    const fv_real ones[] = {1, 1, 1, 1};
    backward_of(t, fv_cumprod(t, x, 0, NULL), ones); /* 2 (1 + 3 + 15) */
    EXPECT_GRAD(x, 1, 38, 0, 0);
    backward_of(t, fv_cumprod(t, x, 0, &before), ones);
    EXPECT_GRAD(x, 1, 8, 0, 0);
    backward_of(t, fv_cumprod(t, x, 0, &back), ones);
    EXPECT_GRAD(x, 0, 45, 5, 4);
    fv_var *two = INPUT(t, FV_SHAPE(3, 1), 0, 0, 7);
    backward_of(t, fv_cumprod(t, two, 0, NULL), ones);
    EXPECT_GRAD(two, 1, 0, 0);
    fv_tape_free(t);
}

/* ---- argmax, argmin ---------------------------------------------------------------------------- */

Test(op_scan, places)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 3, 7, 7, -1, -5, -5);
    EXPECT_PLACES(fv_argmax(t, x, 1), 1, 0);
    EXPECT_PLACES(fv_argmin(t, x, -1), 0, 1);
    EXPECT_PLACES(fv_argmax(t, x, 0), 0, 0, 0);
    EXPECT_PLACES(fv_argmin(t, x, -2), 1, 1, 1);
    fv_var *odd = INPUT(t, FV_SHAPE(4), 1, nan_, 9, nan_);
    EXPECT_PLACES(fv_argmax(t, odd, 0), 1);
    EXPECT_PLACES(fv_argmin(t, odd, 0), 1);
    EXPECT_PLACES(fv_argmax(t, INPUT(t, FV_SHAPE(2, 1), -inf, -inf), 0), 0);
    cr_expect_not_null(fv_argmax(t, INPUT(t, FV_SHAPE(0, 2), 0), 1), "places of no rows");
    fv_tape_free(t);
}

/* ---- sort, topk -------------------------------------------------------------------------------- */

Test(op_scan, sort)
{
    const int32_t *order;
    const fv_sort_opts up = {.order = &order}, down = {.descending = true, .order = &order};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(6), 2, nan_, 1, 2, inf, -inf);
    EXPECT(fv_sort(t, x, 0, &up), -inf, 1, 2, 2, inf, nan_);
    EXPECT_PLACES(order, 5, 2, 0, 3, 4, 1);
    EXPECT(fv_sort(t, x, 0, &down), inf, 2, 2, 1, -inf, nan_);
    EXPECT_PLACES(order, 4, 0, 3, 2, 5, 1);
    fv_var *m = INPUT(t, FV_SHAPE(2, 3), 3, 1, 2, 1, 5, 0), *y = fv_sort(t, m, 0, &up);
    EXPECT(y, 1, 1, 0, 3, 5, 2);
    EXPECT_PLACES(order, 1, 0, 1, 0, 1, 0);
    backward_of(t, y, NULL);
    EXPECT_GRAD(m, 4, 2, 6, 1, 5, 3);
    cr_expect_eq(fvi_count(fv_sort(t, INPUT(t, FV_SHAPE(0), 0), 0, &up)), 0);
    fv_tape_free(t);
}

/* Any length up to a few runs of the merge: ascending, and equals keep their order. */
Test(op_scan, sort_is_stable)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 1; n < 150; n++)
        for (int down = 0; down < 2; down++) {
            const int32_t *order;
            const fv_sort_opts opts = {.descending = down, .order = &order};
            fv_tape_begin(t, FV_EVAL, 1, 1);
            double numbers[150];
            for (size_t i = 0; i < n; i++)
                numbers[i] = (double)(i * 37 % 11);
            const fv_var *y = fv_sort(t, input_of(t, FV_SHAPE(n), numbers), 0, &opts);
            for (size_t i = 0; i < n; i++)
                cr_expect_eq(fv_re(y->value.data[i]), numbers[order[i]]);
            for (size_t i = 1; i < n; i++) {
                const double a = numbers[order[i - 1]], b = numbers[order[i]];
                cr_expect(down ? a >= b : a <= b);
                cr_expect(a != b || order[i - 1] < order[i], "equals changed places");
            }
        }
    fv_tape_free(t);
}

Test(op_scan, topk)
{
    const int32_t *order;
    const fv_sort_opts most = {.order = &order}, least = {.smallest = true, .order = &order};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(6), 4, 9, 4, 9, 1, 4);
    EXPECT(fv_topk(t, x, 0, 3, &most), 9, 9, 4);
    EXPECT_PLACES(order, 1, 3, 0);
    fv_var *y = fv_topk(t, x, 0, 3, &least);
    EXPECT(y, 1, 4, 4);
    EXPECT_PLACES(order, 4, 0, 2);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 2, 0, 3, 0, 1, 0);
    fv_var *odd = INPUT(t, FV_SHAPE(4, 1), 1, nan_, 3, nan_);
    EXPECT(fv_topk(t, odd, 0, 3, &most), nan_, nan_, 3);
    EXPECT_PLACES(order, 1, 3, 2);
    EXPECT(fv_topk(t, odd, 0, 3, &least), 1, 3, nan_);
    EXPECT_PLACES(order, 0, 2, 1);
    EXPECT(fv_topk(t, x, 0, 6, NULL), 9, 9, 4, 4, 4, 1);
    cr_expect_eq(fvi_count(fv_topk(t, x, 0, 0, &most)), 0);
    fv_tape_free(t);
}

/* The k largest are the first k of all in order. */
Test(op_scan, topk_is_the_start_of_sort)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t k = 0; k <= 40; k++)
        for (int small = 0; small < 2; small++) {
            const int32_t *first, *all;
            fv_tape_begin(t, FV_EVAL, 1, 1);
            double numbers[40];
            for (size_t i = 0; i < 40; i++)
                numbers[i] = (double)(i * 23 % 13);
            fv_var *x = input_of(t, FV_SHAPE(40), numbers);
            cr_assert_not_null(
                fv_sort(t, x, 0, &(fv_sort_opts){.descending = !small, .order = &all}));
            cr_assert_not_null(
                fv_topk(t, x, 0, k, &(fv_sort_opts){.smallest = small, .order = &first}));
            expect_places(t, first, all, k);
        }
    fv_tape_free(t);
}
