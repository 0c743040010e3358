/* Values and gradients of ops against numbers worked out by hand. */
#ifndef TEST_EXPECT_H
#define TEST_EXPECT_H

#include <criterion/criterion.h>

#include "autograd/internal.h"

/* 1, 2, 3, ..: the numbers of most inputs. */
static const fv_real up[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,
                             13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24};

static inline fv_tape *begin(int threads)
{
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

static inline void expect(const fv_tape *t, const fv_var *y, fv_shape shape, const double *numbers)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    char is[160], should[160];
    cr_assert(fv_shape_equal(y->value.shape, shape), "%s, expected %s",
              fv_shape_text(y->value.shape, is), fv_shape_text(shape, should));
    for (size_t i = 0, n = fv_shape_count(shape); i < n; i++)
        cr_expect_eq(fv_re(y->value.data[i]), (fv_real)numbers[i], "%s at %zu: %g, expected %g",
                     y->op->name, i, (double)fv_re(y->value.data[i]), numbers[i]);
}

/* The gradient of the sum of y. */
static inline void expect_grad(fv_tape *t, fv_var *y, const fv_var *x, const double *numbers)
{
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)), "%s", fv_tape_error(t)->text);
    for (size_t i = 0, n = fvi_count(x); i < n; i++)
        cr_expect_eq(fv_re(x->grad[i]), (fv_real)numbers[i], "%s at %zu: %g, expected %g",
                     y->op->name, i, (double)fv_re(x->grad[i]), numbers[i]);
}

#endif
