/* What the tests of ops share: values and gradients against numbers written down. */
#ifndef TEST_NUMBERS_H
#define TEST_NUMBERS_H

#include <criterion/criterion.h>

#include "autograd/internal.h"

/* Whether count numbers are those expected, to a few digits of the build; NaN matches NaN. */
static inline void expect_numbers(const char *what, const fv_real *given, const double *expected,
                                  size_t count)
{
    const double near = sizeof(fv_real) == 4 ? 1e-6 : 1e-14;
    cr_assert_not_null(given, "%s: nothing", what);
    for (size_t i = 0; i < count; i++) {
        const double a = (double)fv_re(given[i]), b = expected[i];
        const double most = (a < 0 ? -a : a) + 1;
        cr_expect(a == b || (a != a && b != b) || (a - b <= near * most && b - a <= near * most),
                  "%s, number %zu: %.17g, expected %.17g", what, i, a, b);
    }
}

/* EXPECT(y, 1, 2, 3): value y holds these numbers. EXPECT_GRAD(x, ..): its gradient does. */
#define EXPECT(y, ...)                                                                             \
    expect_value(#y, y, (const double[]){__VA_ARGS__},                                             \
                 sizeof(double[]){__VA_ARGS__} / sizeof(double))
#define EXPECT_GRAD(x, ...)                                                                        \
    expect_numbers("gradient of " #x, (x)->grad, (const double[]){__VA_ARGS__},                    \
                   sizeof(double[]){__VA_ARGS__} / sizeof(double))

static inline void expect_value(const char *what, const fv_var *y, const double *expected,
                                size_t count)
{
    cr_assert_not_null(y, "%s is NULL", what);
    cr_assert_eq(fvi_count(y), count, "%s has %zu numbers, expected %zu", what, fvi_count(y),
                 count);
    expect_numbers(what, y->value.data, expected, count);
}

/* Gradients of the sum of y * weights[i], where there are as many as y has numbers; NULL: of 1, 2, 3, .. */
static inline void backward_of(fv_tape *t, fv_var *y, const fv_real *weights)
{
    const size_t count = fvi_count(y);
    fv_real *ramp = fv_tape_alloc(t, count + 1, sizeof *ramp);
    for (size_t i = 0; i < count; i++)
        ramp[i] = (fv_real)(double)(i + 1);
    fv_var *w = fv_constant(t, y->value.shape, weights ? weights : ramp);
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, w), NULL)), "%s", fv_tape_error(t)->text);
}

/* An input that keeps its own copy of the numbers, on the tape. */
static inline fv_var *input_of(fv_tape *t, fv_shape shape, const double *numbers)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(t, count + 1, sizeof *data);
    for (size_t i = 0; i < count; i++)
        data[i] = (fv_real)numbers[i];
    return fv_input(t, shape, data);
}

#define INPUT(t, shape, ...) input_of(t, shape, (const double[]){__VA_ARGS__})

#endif
