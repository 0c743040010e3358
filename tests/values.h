/* Values of ops against numbers worked out by hand, and the same bits at any number of threads. */
#ifndef TEST_VALUES_H
#define TEST_VALUES_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

/* Whether a number is the expected one, to the digits of the build. */
static inline bool near(fv_real x, double expected)
{
    const double a = (double)fv_re(x), tolerance = sizeof(fv_real) == sizeof(float) ? 4e-6 : 1e-12;
    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(a) : a == expected;
    return fabs(a - expected) <= tolerance * (1 + fabs(expected));
}

static inline void expect_numbers(const char *what, size_t n, const fv_real *x,
                                  const double *expected)
{
    for (size_t i = 0; i < n; i++)
        cr_expect(near(x[i], expected[i]), "%s at %zu: %.9g, expected %.9g", what, i,
                  (double)fv_re(x[i]), expected[i]);
}

/* y holds these numbers. */
static inline void expect_value(const fv_tape *t, const fv_var *y, const double *expected)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    expect_numbers(y->op->name, fvi_count(y), y->value.data, expected);
}

/* The sum of y * weights (NULL: ones) has this gradient by x. */
static inline void expect_gradient(fv_tape *t, fv_var *y, const fv_real *weights, const fv_var *x,
                                   const double *expected)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    fv_var *weighed = weights ? fv_mul(t, y, fv_constant(t, y->value.shape, weights)) : y;
    cr_assert(fv_backward(t, fv_sum(t, weighed, NULL)), "%s", fv_tape_error(t)->text);
    expect_numbers("gradient", fvi_count(x), x->grad, expected);
}

/* Numbers between -2 and 2 that are the same on every call. */
static inline fv_var *some(fv_tape *t, uint64_t seed, fv_shape shape)
{
    const size_t n = fv_shape_count(shape);
    const fv_rng rng = fv_rng_make(seed, 0, "some");
    fv_real *data = fv_tape_alloc(t, n, sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = (fv_real)(4 * fv_rng_uniform(rng, i) - 2);
    return fv_input(t, shape, data);
}

/* A run of an op large enough to be cut into parts. */
typedef fv_var *large(fv_tape *t, int which);

/* One digest of all values and gradients of a run. */
static inline uint64_t digest_run(large *run, int which, const fv_tape_opts *opts)
{
    uint64_t sum = 0;
    fv_tape *t = fv_tape_new(opts);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *y = run(t, which);
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)), "%s", fv_tape_error(t)->text);
    for (const fv_var *v = t->last; v != NULL; v = v->previous) {
        sum = 31 * sum + fvi_hash(v->value.data, fvi_count(v) * sizeof(fv_real));
        if (v->grad != NULL)
            sum = 31 * sum + fvi_hash(v->grad, fvi_count(v) * sizeof(fv_real));
    }
    fv_tape_free(t);
    return sum;
}

/* Each of count runs has the same bits at 1, 2, 3 and 8 threads, and with AVX2 where AVX-512 is used. */
static inline void same_bits_at_any_threads(large *run, int count)
{
    const char *const best = fvi_isa_name(fvi_isa_best());
    for (int which = 0; which < count; which++) {
        const uint64_t first = digest_run(run, which, NULL);
        for (int threads = 2; threads <= 8; threads += threads < 3 ? 1 : 5)
            cr_expect_eq(digest_run(run, which, &(fv_tape_opts){.threads = threads}), first,
                         "run %d: other bits at %d threads", which, threads);
        if (strcmp(best, "avx512") == 0)
            cr_expect_eq(digest_run(run, which, &(fv_tape_opts){.isa = "avx2"}), first,
                         "run %d: other bits with AVX2", which);
    }
}

#endif
