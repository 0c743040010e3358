/* Elementwise ops: values and gradients worked out by hand, what NaN, ties and kinks do. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

static const double eps = sizeof(fv_real) == sizeof(float) ? 4e-7 : 1e-14;
static const double nan_ = (double)NAN, inf = (double)INFINITY;

/* Whether both are NaN, or differ by a few units in the last place. */
static bool close_to(fv_real x, double expected)
{
    const double a = fv_re(x);
    if (isnan(expected) || isinf(expected))
        return isnan(expected) ? isnan(a) : a == expected;
    return fabs(a - expected) <= eps * (1 + fabs(expected));
}

/* ---- one operand ----------------------------------------------------------------------------- */

typedef fv_var *unary(fv_tape *t, fv_var *x);

static fv_var *leaky(fv_tape *t, fv_var *x)
{
    return fv_leaky_relu(t, x, 0.25);
}
static fv_var *elu(fv_tape *t, fv_var *x)
{
    return fv_elu(t, x, 0.5);
}
static fv_var *clamp(fv_tape *t, fv_var *x)
{
    return fv_clamp(t, x, -1, 2);
}
static fv_var *scale(fv_tape *t, fv_var *x)
{
    return fv_scale(t, x, -3);
}
static fv_var *shift(fv_tape *t, fv_var *x)
{
    return fv_shift(t, x, -3);
}
#define POW(name, exponent)                                                                        \
    static fv_var *name(fv_tape *t, fv_var *x)                                                     \
    {                                                                                              \
        return fv_pow(t, x, exponent);                                                             \
    }
POW(pow0, 0)
POW(pow1, 1)
POW(pow_half, 0.5)
POW(pow2, 2)
POW(pow3, 3)
POW(pow4, 4)
POW(pow_one_and_half, 1.5)
POW(pow_minus_half, -0.5)
POW(pow_minus_1, -1)
POW(pow_minus_2, -2)

/* The op, its input, its value, its slope there. */
typedef struct {
    const char *name;
    unary *op;
    double x, y, dx;
} point;
#define AT(op, x, y, dx)                                                                           \
    {                                                                                              \
#op, op, x, y, dx                                                                          \
    }

static const double e1 = 2.718281828459045, ln2 = 0.6931471805599453, pi = 3.141592653589793;

/* Slopes by hand, and what happens at kinks, infinities and NaN. */
static size_t points(point *out, size_t most)
{
    const double sig1 = e1 / (1 + e1), th1 = (e1 * e1 - 1) / (e1 * e1 + 1);
    const double selu_scale = 1.0507009873554805, selu_alpha = 1.6732632423543772;
    const double below1 = 0.8413447460685429, density1 = 0.24197072451914337;
    const double n1 = e1 * (e1 + 2);
    const point all[] = {
        AT(fv_neg, 2, -2, -1),
        AT(fv_neg, nan_, nan_, -1),
        AT(fv_abs, -2, 2, -1),
        AT(fv_abs, 3, 3, 1),
        AT(fv_abs, 0, 0, 0),
        AT(fv_abs, nan_, nan_, 0),
        AT(fv_square, -3, 9, -6),
        AT(fv_reciprocal, -4, -0.25, -0.0625),
        AT(fv_sqrt, 9, 3, 1.0 / 6),
        AT(fv_sqrt, 0, 0, inf),
        AT(fv_sqrt, -1, nan_, nan_),
        AT(fv_rsqrt, 4, 0.5, -1.0 / 16),
        AT(fv_exp, 0, 1, 1),
        AT(fv_exp, 1, e1, e1),
        AT(fv_exp, -inf, 0, 0),
        AT(fv_exp, nan_, nan_, nan_),
        AT(fv_expm1, 0, 0, 1),
        AT(fv_expm1, 1e-6, 1.0000005000001666e-6, 1.0000010000005),
        AT(fv_expm1, 1, e1 - 1, e1),
        AT(fv_log, 2, ln2, 0.5),
        AT(fv_log, 0, -inf, inf),
        AT(fv_log, -1, nan_, -1),
        AT(fv_log1p, 1, ln2, 0.5),
        AT(fv_log1p, 0, 0, 1),
        AT(fv_log1p, -1, -inf, inf),
        AT(fv_sin, pi / 6, 0.5, 0.8660254037844387),
        AT(fv_cos, pi / 3, 0.5, -0.8660254037844386),
        AT(fv_tan, pi / 4, 1, 2),
        AT(fv_asin, 0.5, pi / 6, 1.1547005383792517),
        AT(fv_acos, 0.5, pi / 3, -1.1547005383792517),
        AT(fv_atan, 1, pi / 4, 0.5),
        AT(fv_sinh, ln2, 0.75, 1.25),
        AT(fv_cosh, ln2, 1.25, 0.75),
        AT(fv_asinh, 0.75, ln2, 0.8),
        AT(fv_acosh, 1.25, ln2, 1 / 0.75),
        AT(fv_atanh, 0.6, ln2, 1 / 0.64),
        AT(fv_erf, 0, 0, 1.1283791670955126),
        AT(fv_erf, 1, 0.8427007929497149, 0.4151074974205947),
        AT(scale, 2, -6, -3),
        AT(shift, 2, -1, 1),
        AT(clamp, -1, -1, 1),
        AT(clamp, 2, 2, 1),
        AT(clamp, 0.5, 0.5, 1),
        AT(clamp, -2, -1, 0),
        AT(clamp, inf, 2, 0),
        AT(clamp, nan_, nan_, 0),
        AT(pow0, 0, 1, 0),
        AT(pow0, -2, 1, 0),
        AT(pow0, nan_, 1, 0),
        AT(pow1, 0, 0, 1),
        AT(pow1, -2, -2, 1),
        AT(pow_half, 4, 2, 0.25),
        AT(pow2, 0, 0, 0),
        AT(pow2, -3, 9, -6),
        AT(pow3, 0, 0, 0),
        AT(pow3, -2, -8, 12),
        AT(pow4, -2, 16, -32),
        AT(pow4, 0, 0, 0),
        AT(pow_one_and_half, 4, 8, 3),
        AT(pow_one_and_half, 0, 0, 0),
        AT(pow_one_and_half, -1, nan_, nan_),
        AT(pow_minus_half, 4, 0.5, -1.0 / 16),
        AT(pow_minus_1, -4, -0.25, -0.0625),
        AT(pow_minus_2, 2, 0.25, -0.25),
        AT(fv_relu, 3, 3, 1),
        AT(fv_relu, -3, 0, 0),
        AT(fv_relu, 0, 0, 0),
        AT(fv_relu, nan_, nan_, 1),
        AT(fv_relu, inf, inf, 1),
        AT(fv_relu, -inf, 0, 0),
        AT(leaky, 2, 2, 1),
        AT(leaky, -2, -0.5, 0.25),
        AT(leaky, 0, 0, 0.25),
        AT(leaky, nan_, nan_, 0.25),
        AT(elu, 2, 2, 1),
        AT(elu, 0, 0, 0.5),
        AT(elu, -1, 0.5 / e1 - 0.5, 0.5 / e1),
        AT(elu, -inf, -0.5, 0),
        AT(elu, nan_, nan_, nan_),
        AT(fv_selu, 2, 2 * selu_scale, selu_scale),
        AT(fv_selu, 0, 0, selu_scale * selu_alpha),
        AT(fv_selu, -1, selu_scale * selu_alpha * (1 / e1 - 1), selu_scale * selu_alpha / e1),
        AT(fv_gelu, 0, 0, 0.5),
        AT(fv_gelu, 1, below1, below1 + density1),
        AT(fv_gelu, -1, below1 - 1, 1 - below1 - density1),
        AT(fv_gelu, 20, 20, 1),
        AT(fv_gelu, -20, 0, 0),
        AT(fv_gelu_tanh, 0, 0, 0.5),
        AT(fv_gelu_tanh, 20, 20, 1),
        AT(fv_gelu_tanh, -20, 0, 0),
        AT(fv_gelu_tanh, 1, 0.8411919906082768, 1.0829640838457826),
        AT(fv_silu, 0, 0, 0.5),
        AT(fv_silu, 1, sig1, sig1 + sig1 * (1 - sig1)),
        AT(fv_silu, -1, sig1 - 1, 1 - sig1 - sig1 * (1 - sig1)),
        AT(fv_silu, 100, 100, 1),
        AT(fv_silu, -100, 0, 0),
        AT(fv_mish, 0, 0, 0.6),
        AT(fv_mish, 50, 50, 1),
        AT(fv_mish, -200, 0, 0),
        AT(fv_mish, 1, n1 / (n1 + 2), n1 / (n1 + 2) + 4 * e1 * (e1 + 1) / ((n1 + 2) * (n1 + 2))),
        AT(fv_softplus, 0, ln2, 0.5),
        AT(fv_softplus, 100, 100, 1),
        AT(fv_softplus, -100, 0, 0),
        AT(fv_softplus, inf, inf, 1),
        AT(fv_softplus, 1, 1 - log(sig1), sig1),
        AT(fv_sigmoid, 0, 0.5, 0.25),
        AT(fv_sigmoid, 1, sig1, sig1 * (1 - sig1)),
        AT(fv_sigmoid, inf, 1, 0),
        AT(fv_sigmoid, -inf, 0, 0),
        AT(fv_sigmoid, nan_, nan_, nan_),
        AT(fv_log_sigmoid, 0, -ln2, 0.5),
        AT(fv_log_sigmoid, 1, log(sig1), 1 - sig1),
        AT(fv_log_sigmoid, -100, -100, 1),
        AT(fv_log_sigmoid, 100, 0, 0),
        AT(fv_tanh, 0, 0, 1),
        AT(fv_tanh, 1, th1, 1 - th1 * th1),
        AT(fv_tanh, -inf, -1, 0),
        AT(fv_hardtanh, 0.5, 0.5, 1),
        AT(fv_hardtanh, 1, 1, 0),
        AT(fv_hardtanh, -1, -1, 0),
        AT(fv_hardtanh, -3, -1, 0),
        AT(fv_hardtanh, nan_, nan_, 0),
        AT(fv_hardsigmoid, 0, 0.5, 1.0 / 6),
        AT(fv_hardsigmoid, 3, 1, 0),
        AT(fv_hardsigmoid, -3, 0, 0),
        AT(fv_hardsigmoid, 1.5, 0.75, 1.0 / 6),
        AT(fv_hardsigmoid, nan_, nan_, 0),
        AT(fv_hardswish, 0, 0, 0.5),
        AT(fv_hardswish, 1.5, 1.125, 1),
        AT(fv_hardswish, 3, 3, 1),
        AT(fv_hardswish, -3, 0, 0),
        AT(fv_hardswish, -5, 0, 0),
        AT(fv_hardswish, 5, 5, 1),
        AT(fv_hardswish, nan_, nan_, nan_),
        AT(fv_softsign, 0, 0, 1),
        AT(fv_softsign, 3, 0.75, 0.0625),
        AT(fv_softsign, -1, -0.5, 0.25),
    };
    const size_t count = sizeof all / sizeof *all;
    memcpy(out, all, (count < most ? count : most) * sizeof *all);
    return count;
}

/* Each op at its point, as a single number and, with twice the gradient, amid a tensor of rank 6. */
Test(elementwise, points)
{
    static point at[200];
    const size_t count = points(at, 200);
    fv_tape *t = fv_tape_new(NULL);
    cr_assert_leq(count, 200);
    for (size_t i = 0; i < count; i++) {
        fv_real x[24];
        for (size_t k = 0; k < 24; k++)
            x[k] = (fv_real)at[i].x;
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *one = fv_input(t, FV_SCALAR, x), *y = at[i].op(t, one);
        fv_var *many = fv_input(t, FV_SHAPE(1, 2, 1, 3, 4, 1), x), *z = at[i].op(t, many);
        cr_assert(z != NULL && fv_shape_equal(z->value.shape, many->value.shape));
        cr_assert(fv_shape_equal(y->value.shape, FV_SCALAR));
        cr_expect(close_to(y->value.data[0], at[i].y), "%s(%g) = %.17g, not %.17g", at[i].name,
                  at[i].x, (double)fv_re(y->value.data[0]), at[i].y);
        for (size_t k = 0; k < 24; k++)
            cr_expect(memcmp(z->value.data + k, y->value.data, sizeof *x) == 0, "%s at %zu",
                      at[i].name, k);
        cr_assert(fv_backward(t, y));
        cr_expect(close_to(one->grad[0], at[i].dx), "%s'(%g) = %.17g, not %.17g", at[i].name,
                  at[i].x, (double)fv_re(one->grad[0]), at[i].dx);
        cr_assert(fv_backward(t, fv_sum(t, fv_scale(t, z, 2), NULL)));
        for (size_t k = 0; k < 24; k++)
            cr_expect(close_to(many->grad[k], 2 * at[i].dx), "%s' at %zu", at[i].name, k);
    }
    fv_tape_free(t);
}

/* ---- two operands ---------------------------------------------------------------------------- */

typedef fv_var *binary(fv_tape *t, fv_var *a, fv_var *b);
static const struct {
    const char *name;
    binary *op;
    double a, b, y, da, db;
} pairs[] = {
#define AT2(op, ...)                                                                               \
    {                                                                                              \
#op, op, __VA_ARGS__                                                                       \
    }
    AT2(fv_add, 2, -3, -1, 1, 1),
    AT2(fv_sub, 2, -3, 5, 1, -1),
    AT2(fv_mul, 2, -3, -6, -3, 2),
    AT2(fv_div, 6, -3, -2, -1.0 / 3, -2.0 / 3),
    AT2(fv_power, 2, 3, 8, 12, 5.545177444479562),
    AT2(fv_power, 0, 2, 0, 0, 0),
    AT2(fv_power, 0, 0, 1, 0, 0),
    AT2(fv_power, -2, 0, 1, 0, (double)NAN),
    AT2(fv_power, 3, 0, 1, 0, 1.0986122886681098),
    AT2(fv_minimum, 1, 2, 1, 1, 0),
    AT2(fv_minimum, 2, 1, 1, 0, 1),
    AT2(fv_minimum, 2, 2, 2, 0.5, 0.5),
    AT2(fv_minimum, (double)NAN, 2, (double)NAN, 1, 1),
    AT2(fv_minimum, 2, (double)NAN, (double)NAN, 1, 1),
    AT2(fv_maximum, 1, 2, 2, 0, 1),
    AT2(fv_maximum, 2, 1, 2, 1, 0),
    AT2(fv_maximum, -2, -2, -2, 0.5, 0.5),
    AT2(fv_maximum, (double)NAN, 2, (double)NAN, 1, 1),
    AT2(fv_maximum, 2, (double)NAN, (double)NAN, 1, 1),
};

Test(elementwise, pairs)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const fv_real number[2] = {(fv_real)pairs[i].a, (fv_real)pairs[i].b};
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *a = fv_input(t, FV_SCALAR, number), *b = fv_input(t, FV_SCALAR, number + 1);
        fv_var *y = pairs[i].op(t, a, b);
        cr_assert(fv_backward(t, y));
        cr_expect(close_to(y->value.data[0], pairs[i].y), "%zu: %s(%g, %g)", i, pairs[i].name,
                  pairs[i].a, pairs[i].b);
        cr_expect(close_to(a->grad[0], pairs[i].da), "%zu: da of %s is %.17g", i, pairs[i].name,
                  (double)fv_re(a->grad[0]));
        cr_expect(close_to(b->grad[0], pairs[i].db), "%zu: db of %s is %.17g", i, pairs[i].name,
                  (double)fv_re(b->grad[0]));
    }
    fv_tape_free(t);
}

/* ---- the same operand more than once --------------------------------------------------------- */

Test(elementwise, the_same_operand_twice)
{
    const fv_real number[3] = {2, -3, 5};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(3), number);
    fv_var *same[] = {fv_add(t, x, x), fv_sub(t, x, x), fv_mul(t, x, x), fv_div(t, x, x),
                      fv_maximum(t, x, x), fv_lerp(t, x, x, x),
                      fv_mul(t, x, fv_reshape(t, x, FV_SHAPE(1, 3))),
                      fv_add_many(t, 3, (fv_var *[]){x, x, x}),
                      /* each number meets each: the row and the column are one value */
                      fv_mul(t, x, fv_reshape(t, x, FV_SHAPE(3, 1)))};
    const double slope[][3] = {{2, 2, 2}, {0, 0, 0},   {4, -6, 10}, {0, 0, 0}, {1, 1, 1},
                               {1, 1, 1}, {4, -6, 10}, {3, 3, 3},   {8, 8, 8}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        cr_assert(fv_backward(t, fv_sum(t, same[i], NULL)), "%s", fv_tape_error(t)->text);
        for (int k = 0; k < 3; k++)
            cr_expect(close_to(x->grad[k], slope[i][k]), "%zu: %g", i, (double)fv_re(x->grad[k]));
    }
    fv_tape_free(t);
}

/* ---- lerp, where, add_many, compare ---------------------------------------------------------- */

Test(elementwise, lerp)
{
    const fv_real a[2] = {1, 2}, b[2] = {5, -2}, w[1] = {(fv_real)0.25};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(2, 1), a), *z = fv_input(t, FV_SHAPE(2), b);
    fv_var *weight = fv_input(t, FV_SCALAR, w), *y = fv_lerp(t, x, z, weight);
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
    const double value[4] = {2, 0.25, 2.75, 1};
    for (int i = 0; i < 4; i++)
        cr_expect(close_to(y->value.data[i], value[i]));
    for (int i = 0; i < 2; i++)
        cr_expect(close_to(x->grad[i], 1.5) && close_to(z->grad[i], 0.5));
    cr_expect(close_to(weight->grad[0], 0), "4 - 3 + 3 - 4");
    fv_tape_free(t);
}

/* The branch that is not taken holds NaN, and no one knows. */
Test(elementwise, where)
{
    const fv_real a[4] = {1, (fv_real)NAN, 3, (fv_real)NAN},
                  b[4] = {(fv_real)NAN, 20, (fv_real)INFINITY, 40};
    const unsigned char yes[4] = {1, 0, 255, 0};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(2, 2), a), *z = fv_input(t, FV_SHAPE(2, 2), b);
    fv_var *y = fv_where(t, (fv_bools){FV_SHAPE(2, 2), yes}, x, z);
    cr_assert(fv_backward(t, fv_sum(t, fv_square(t, y), NULL)));
    const double value[4] = {1, 20, 3, 40}, da[4] = {2, 0, 6, 0}, db[4] = {0, 40, 0, 80};
    for (int i = 0; i < 4; i++)
        cr_expect(close_to(y->value.data[i], value[i]) && close_to(x->grad[i], da[i]) &&
                  close_to(z->grad[i], db[i]));
    fv_tape_free(t);
}

Test(elementwise, where_broadcasts)
{
    const fv_real row[3] = {1, 2, 3}, one[1] = {7};
    const unsigned char yes[2] = {1, 0};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *a = fv_input(t, FV_SHAPE(3), row), *b = fv_input(t, FV_SCALAR, one);
    fv_var *y = fv_where(t, (fv_bools){FV_SHAPE(2, 1), yes}, a, b);
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
    const double value[6] = {1, 2, 3, 7, 7, 7};
    cr_assert(fv_shape_equal(y->value.shape, FV_SHAPE(2, 3)));
    for (int i = 0; i < 6; i++)
        cr_expect(close_to(y->value.data[i], value[i]));
    for (int i = 0; i < 3; i++)
        cr_expect(close_to(a->grad[i], 1));
    cr_expect(close_to(b->grad[0], 3));
    fv_tape_free(t);
}

Test(elementwise, add_many)
{
    static fv_real number[3][3000];
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x[3];
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 3000; i++)
            number[k][i] = (fv_real)(i * (k + 1));
        x[k] = fv_input(t, FV_SHAPE(3000), number[k]);
    }
    fv_var *y = fv_add_many(t, 3, x), *one = fv_add_many(t, 1, x);
    for (int i = 0; i < 3000; i++)
        cr_assert(close_to(y->value.data[i], 6 * i) && close_to(one->value.data[i], i));
    cr_assert(fv_backward(t, fv_sum(t, fv_add(t, y, one), NULL)));
    cr_expect(close_to(x[0]->grad[2999], 2) && close_to(x[2]->grad[0], 1));
    fv_tape_free(t);
}

Test(elementwise, compare)
{
    const fv_real a[3] = {1, 2, (fv_real)NAN}, b[2] = {2, 1};
    /* rows of b against columns of a */
    static const unsigned char expected[6][6] = {
        [FV_LESS] = {1, 0, 0, 0, 0, 0},    [FV_LESS_EQUAL] = {1, 1, 0, 1, 0, 0},
        [FV_EQUAL] = {0, 1, 0, 1, 0, 0},   [FV_NOT_EQUAL] = {1, 0, 1, 0, 1, 1},
        [FV_GREATER] = {0, 0, 0, 0, 1, 0}, [FV_GREATER_EQUAL] = {0, 1, 0, 1, 1, 0},
    };
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(3), a), *z = fv_input(t, FV_SHAPE(2, 1), b);
    for (int r = 0; r < 6; r++) {
        const fv_bools y = fv_compare(t, x, (fv_relation)r, z);
        cr_assert(fv_shape_equal(y.shape, FV_SHAPE(2, 3)));
        cr_expect_arr_eq(y.data, expected[r], 6, "relation %d", r);
    }
    const fv_bools none = fv_compare(t, x, FV_LESS, fv_input(t, FV_SHAPE(0, 1), b));
    cr_expect(none.data != NULL && fv_shape_equal(none.shape, FV_SHAPE(0, 3)));
    cr_expect(fv_tape_ok(t));
    fv_tape_free(t);
}

/* ---- gated ----------------------------------------------------------------------------------- */

Test(elementwise, gated)
{
    const fv_real x[4] = {1, 2, 0, -1}; /* along axis 0: a = 1, 2; b = 0, -1 */
    const double sig1 = e1 / (1 + e1), below1 = 0.8413447460685429;
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *v = fv_input(t, FV_SHAPE(2, 2), x);
    fv_var *glu = fv_glu(t, v, 0), *swiglu = fv_swiglu(t, v, -1), *geglu = fv_geglu(t, v, 1);
    cr_assert(fv_shape_equal(glu->value.shape, FV_SHAPE(1, 2)));
    cr_assert(fv_shape_equal(geglu->value.shape, FV_SHAPE(2, 1)));
    cr_expect(close_to(glu->value.data[0], 0.5) && close_to(glu->value.data[1], 2 * (1 - sig1)));
    cr_expect(close_to(swiglu->value.data[0], 2 * sig1) && close_to(swiglu->value.data[1], 0));
    cr_expect(close_to(geglu->value.data[0], 2 * below1) && close_to(geglu->value.data[1], 0));
    cr_assert(fv_backward(t, fv_sum(t, glu, NULL)));
    const double dx[4] = {0.5, 1 - sig1, 0.25, 2 * sig1 * (1 - sig1)};
    for (int i = 0; i < 4; i++)
        cr_expect(close_to(v->grad[i], dx[i]));
    fv_tape_free(t);
}
