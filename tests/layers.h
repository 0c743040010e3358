/* What the tests of layers share: numbers that PyTorch's side has too (tools/make_layer_fixtures.py). */
#ifndef TEST_LAYERS_H
#define TEST_LAYERS_H

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"
#include "layers/layers.h"

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double TOLERANCE = 1e-10;
#else
static const double TOLERANCE = 1e-4;
#endif

/* A parameter of a PyTorch layer and its gradient; the list ends at a NULL name. */
typedef struct {
    const char *name;
    fv_shape shape;
    const double *grad;
} layer_param;

/* The i-th of a fixed list of multiples of 1/256, as in the script. */
static inline fv_real number(size_t i, size_t seed)
{
    return (fv_real)(((double)((i * 37 + seed * 101) % 199) - 99) / 256);
}

/* An input of such numbers, on the tape. */
static inline fv_var *input_numbers(fv_tape *t, fv_shape shape, size_t seed)
{
    const size_t count = fv_shape_count(shape);
    fv_real *x = fv_tape_alloc(t, count, sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = number(i, seed);
    return fv_input(t, shape, x);
}

/* Gives every parameter the numbers that its name stands for, times a factor. */
static inline void fill_times(fv_params *params, double factor)
{
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const fv_param *p = fv_params_at(params, i);
        size_t seed = 0;
        for (const char *c = p->name; *c != 0; c++)
            seed += (unsigned char)*c;
        for (size_t k = 0; k < fv_shape_count(p->value.shape); k++)
            p->value.data[k] = (fv_real)factor * number(k, seed);
    }
}

static inline void fill(fv_params *params)
{
    fill_times(params, 1);
}

/* Largest difference, relative to the largest number there is. */
static inline void expect_close(const char *what, size_t count, const fv_real *got,
                                const double *wanted)
{
    double largest = 0;
    cr_assert_not_null(got, "%s is missing", what);
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(wanted[i]));
    for (size_t i = 0; i < count; i++) {
        const double difference = fabs((double)fv_re(got[i]) - wanted[i]);
        cr_expect(difference <= TOLERANCE * largest, "%s at %zu: %.17g, PyTorch has %.17g", what, i,
                  (double)fv_re(got[i]), wanted[i]);
        cr_expect(fv_im(got[i]) == 0, "%s at %zu has an imaginary part", what, i);
    }
}

/* The sum of y times the numbers of a seed, and its gradients. */
static inline void project(fv_tape *t, fv_var *y, size_t seed)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    fv_var *weights = input_numbers(t, y->value.shape, seed);
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, weights), NULL)), "%s", fv_tape_error(t)->text);
}

#endif
