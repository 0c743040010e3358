/* What elementwise ops refuse, word for word. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

static const fv_real numbers[96];
static const unsigned char bytes[96];

/* Begins a step, runs a call that must fail, and looks at what it left behind. */
#define REFUSED(t, message, call)                                                                  \
    do {                                                                                           \
        const size_t recorded = (t)->recorded;                                                     \
        cr_assert(fv_tape_ok(t), "%s", message);                                                   \
        cr_expect_null(call, "%s", message);                                                       \
        cr_expect_str_eq(fv_tape_error(t)->text, message);                                         \
        cr_expect_eq(fv_tape_error(t)->status, FV_USAGE);                                          \
        cr_expect_eq((t)->recorded, recorded, "%s: something was recorded", message);              \
        cr_expect_null(fv_scale(t, NULL, 1), "a second mistake");                                  \
        cr_expect_str_eq(fv_tape_error(t)->text, message);                                         \
    } while (0)

static fv_var *leaky_relu(fv_tape *t, fv_var *x)
{
    return fv_leaky_relu(t, x, 1);
}
static fv_var *elu(fv_tape *t, fv_var *x)
{
    return fv_elu(t, x, 1);
}
static fv_var *scale(fv_tape *t, fv_var *x)
{
    return fv_scale(t, x, 1);
}
static fv_var *shift(fv_tape *t, fv_var *x)
{
    return fv_shift(t, x, 1);
}
static fv_var *power_of(fv_tape *t, fv_var *x)
{
    return fv_pow(t, x, 1);
}
static fv_var *clamp(fv_tape *t, fv_var *x)
{
    return fv_clamp(t, x, 0, 1);
}

static const struct {
    const char *name;
    fv_var *(*call)(fv_tape *t, fv_var *x);
} unary[] = {
#define X(name) {#name, fv_##name},
    X(neg) X(abs) X(square) X(reciprocal) X(sqrt) X(rsqrt) X(exp) X(expm1) X(log) X(log1p) X(sin)
        X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) X(atanh) X(erf)
            X(relu) X(selu) X(gelu) X(gelu_tanh) X(silu) X(mish) X(softplus) X(sigmoid)
                X(log_sigmoid) X(tanh) X(hardtanh) X(hardsigmoid) X(hardswish) X(softsign)
#undef X
                    {"leaky_relu", leaky_relu},
    {"elu", elu},
    {"scale", scale},
    {"shift", shift},
    {"pow", power_of},
    {"clamp", clamp},
};

Test(refuse_elementwise, one_operand)
{
    fv_tape *t = fv_tape_new(NULL);
    char message[100];
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        snprintf(message, sizeof message, "%s: an input is NULL", unary[i].name);
        REFUSED(t, message, unary[i].call(t, NULL));
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(2), numbers);
        fv_refuse(t, "earlier", "no");
        cr_expect_null(unary[i].call(t, x), "%s goes on after an error", unary[i].name);
        cr_expect_str_eq(fv_tape_error(t)->text, "earlier: no");
    }
    fv_tape_free(t);
}

/* Pairs of shapes that do not broadcast, and how the message calls them. */
static const struct {
    fv_shape a, b;
    const char *text;
} strangers[] = {
    {{1, {6}}, {1, {5}}, "[6] with [5]"},
    {{2, {4, 6}}, {2, {5, 6}}, "[4, 6] with [5, 6]"},
    {{2, {4, 6}}, {1, {4}}, "[4, 6] with [4]"},
    {{1, {4}}, {2, {4, 6}}, "[4] with [4, 6]"},
    {{3, {2, 3, 4}}, {2, {2, 4}}, "[2, 3, 4] with [2, 4]"},
    {{2, {0, 3}}, {2, {2, 3}}, "[0, 3] with [2, 3]"},
    {{1, {0}}, {1, {3}}, "[0] with [3]"},
    {{6, {1, 1, 1, 1, 2, 2}}, {2, {3, 2}}, "[1, 1, 1, 1, 2, 2] with [3, 2]"},
};

static const struct {
    const char *name;
    fv_var *(*call)(fv_tape *t, fv_var *a, fv_var *b);
} binary[] = {
#define X(name) {#name, fv_##name},
    X(add) X(sub) X(mul) X(div) X(power) X(minimum) X(maximum)
#undef X
};

Test(refuse_elementwise, two_operands)
{
    fv_tape *t = fv_tape_new(NULL);
    char message[200];
    const size_t many = (size_t)1 << 40;
    for (size_t i = 0; i < sizeof binary / sizeof *binary; i++) {
        for (size_t k = 0; k < sizeof strangers / sizeof *strangers; k++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *a = fv_input(t, strangers[k].a, numbers),
                   *b = fv_input(t, strangers[k].b, numbers);
            snprintf(message, sizeof message, "%s: %s: shapes do not broadcast", binary[i].name,
                     strangers[k].text);
            REFUSED(t, message, binary[i].call(t, a, b));
        }
        snprintf(message, sizeof message, "%s: an input is NULL", binary[i].name);
        for (int k = 0; k < 3; k++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = fv_input(t, FV_SHAPE(2), numbers);
            REFUSED(t, message, binary[i].call(t, k == 0 ? x : NULL, k == 1 ? x : NULL));
        }
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *tall = fv_input(t, FV_SHAPE(many, 1), numbers), *wide;
        wide = fv_input(t, FV_SHAPE(many), numbers);
        snprintf(message, sizeof message,
                 "%s: [1099511627776, 1099511627776] holds more numbers than there can be",
                 binary[i].name);
        REFUSED(t, message, binary[i].call(t, tall, wide));
    }
    fv_tape_free(t);
}

/* Shapes of no numbers may name sizes whose product cannot be. */
Test(refuse_elementwise, empty_and_huge)
{
    fv_tape *t = fv_tape_new(NULL);
    const size_t many = SIZE_MAX / 2;
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *none = fv_input(t, FV_SHAPE(0, many, 4), numbers);
    fv_var *row = fv_input(t, FV_SHAPE(4), numbers), *y = fv_mul(t, none, row);
    const unsigned char *yes = fv_compare(t, none, FV_LESS, row).data;
    y = fv_where(t, (fv_bools){FV_SCALAR, bytes}, fv_exp(t, y), y);
    cr_expect(yes != NULL && y != NULL, "%s", fv_tape_error(t)->text);
    cr_expect(fv_backward(t, fv_sum(t, y, NULL)));
    cr_expect_eq(fv_re(row->grad[0]), 0);
    fv_tape_free(t);
}

Test(refuse_elementwise, the_others)
{
    fv_tape *t = fv_tape_new(NULL);
    const size_t many = (size_t)1 << 40;
    for (int which = 0;; which++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *v5 = fv_input(t, FV_SHAPE(5), numbers), *v6 = fv_input(t, FV_SHAPE(6), numbers),
               *m4x6 = fv_input(t, FV_SHAPE(4, 6), numbers),
               *m6x4 = fv_input(t, FV_SHAPE(6, 4), numbers), *one = fv_input(t, FV_SCALAR, numbers),
               *tall = fv_input(t, FV_SHAPE(many, 1), numbers),
               *wide = fv_input(t, FV_SHAPE(many), numbers);
        const fv_bools yes = {FV_SHAPE(6), bytes};
        int at = 0;
#define WRONG(message, ...)                                                                        \
    if (which == at++) {                                                                           \
        REFUSED(t, message, __VA_ARGS__);                                                          \
        continue;                                                                                  \
    }
        WRONG("clamp: low 2, high 1, expected low <= high", fv_clamp(t, v5, 2, 1))
        WRONG("clamp: low nan, high 1, expected low <= high", fv_clamp(t, v5, fabs((double)NAN), 1))
        WRONG("clamp: low 0, high nan, expected low <= high", fv_clamp(t, v5, 0, fabs((double)NAN)))
        WRONG("clamp: an input is NULL", fv_clamp(t, NULL, 2, 1))
        WRONG("lerp: an input is NULL", fv_lerp(t, NULL, v5, v5))
        WRONG("lerp: an input is NULL", fv_lerp(t, v5, NULL, v5))
        WRONG("lerp: an input is NULL", fv_lerp(t, v5, v5, NULL))
        WRONG("lerp: [5] with [6] and []: shapes do not broadcast", fv_lerp(t, v5, v6, one))
        WRONG("lerp: [5] with [] and [6]: shapes do not broadcast", fv_lerp(t, v5, one, v6))
        WRONG("lerp: [] with [5] and [6]: shapes do not broadcast", fv_lerp(t, one, v5, v6))
        WRONG("lerp: [4, 6] with [6] and [6, 4]: shapes do not broadcast",
              fv_lerp(t, m4x6, v6, m6x4))
        WRONG("lerp: [1099511627776, 1099511627776] holds more numbers than there can be",
              fv_lerp(t, one, tall, wide))
        WRONG("where: an input is NULL", fv_where(t, yes, NULL, v6))
        WRONG("where: an input is NULL", fv_where(t, yes, v6, NULL))
        WRONG("where: no bytes of yes and no", fv_where(t, (fv_bools){FV_SHAPE(6), NULL}, v6, v6))
        WRONG("where: rank 7, expected 0 to 6", fv_where(t, (fv_bools){{.rank = 7}, bytes}, v6, v6))
        WRONG("where: rank -1, expected 0 to 6",
              fv_where(t, (fv_bools){{.rank = -1}, bytes}, v6, v6))
        WRONG("where: [6] chooses from [5] and []: shapes do not broadcast",
              fv_where(t, yes, v5, one))
        WRONG("where: [6] chooses from [] and [5]: shapes do not broadcast",
              fv_where(t, yes, one, v5))
        WRONG("where: [6] chooses from [6] and [5]: shapes do not broadcast",
              fv_where(t, yes, v6, v5))
        WRONG("where: [6] chooses from [4, 6] and [6, 4]: shapes do not broadcast",
              fv_where(t, yes, m4x6, m6x4))
        WRONG("where: [1099511627776, 1099511627776] holds more numbers than there can be",
              fv_where(t, (fv_bools){FV_SCALAR, bytes}, tall, wide))
        WRONG("add_many: 0 inputs, expected at least 1", fv_add_many(t, 0, &v5))
        WRONG("add_many: -2 inputs, expected at least 1", fv_add_many(t, -2, &v5))
        WRONG("add_many: an input is NULL", fv_add_many(t, 1, NULL))
        WRONG("add_many: an input is NULL", fv_add_many(t, 2, (fv_var *[]){v5, NULL}))
        WRONG("add_many: an input is NULL", fv_add_many(t, 2, (fv_var *[]){NULL, v5}))
        WRONG("add_many: [5] with [6]: shapes differ", fv_add_many(t, 2, (fv_var *[]){v5, v6}))
        WRONG("add_many: [4, 6] with [6]: shapes differ",
              fv_add_many(t, 3, (fv_var *[]){m4x6, m4x6, v6}))
        WRONG("add_many: [4, 6] with [6, 4]: shapes differ",
              fv_add_many(t, 2, (fv_var *[]){m4x6, m6x4}))
        WRONG("compare: an input is NULL", fv_compare(t, NULL, FV_LESS, v5).data)
        WRONG("compare: an input is NULL", fv_compare(t, v5, FV_LESS, NULL).data)
        WRONG("compare: relation 6, expected 0 to 5", fv_compare(t, v5, (fv_relation)6, v5).data)
        WRONG("compare: relation 99, expected 0 to 5", fv_compare(t, v5, (fv_relation)99, v5).data)
        WRONG("compare: [5] with [6]: shapes do not broadcast",
              fv_compare(t, v5, FV_EQUAL, v6).data)
        WRONG("compare: [4, 6] with [6, 4]: shapes do not broadcast",
              fv_compare(t, m4x6, FV_EQUAL, m6x4).data)
        WRONG("compare: [1099511627776, 1] with [1099511627776]: more numbers than there can be",
              fv_compare(t, tall, FV_EQUAL, wide).data)
        break;
    }
    fv_tape_free(t);
}

Test(refuse_elementwise, gated)
{
    static const struct {
        const char *name;
        fv_var *(*call)(fv_tape *t, fv_var *x, int axis);
    } gated[] = {{"glu", fv_glu}, {"swiglu", fv_swiglu}, {"geglu", fv_geglu}};
    static const struct {
        const char *text;
        fv_shape shape;
        int axis;
    } wrong[] = {{"axis 0 of [3, 4] is odd, expected two halves", {2, {3, 4}}, 0},
                 {"axis 0 of [3, 4] is odd, expected two halves", {2, {3, 4}}, -2},
                 {"axis 1 of [4, 1] is odd, expected two halves", {2, {4, 1}}, -1},
                 {"[3, 4] has no axis 2", {2, {3, 4}}, 2},
                 {"[3, 4] has no axis -3", {2, {3, 4}}, -3},
                 {"[3, 4] has no axis 2147483647", {2, {3, 4}}, INT32_MAX},
                 {"[3, 4] has no axis -2147483648", {2, {3, 4}}, INT32_MIN},
                 {"[] has no axis 0", {0, {0}}, 0},
                 {"[] has no axis -1", {0, {0}}, -1}};
    fv_tape *t = fv_tape_new(NULL);
    char message[100];
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = fv_input(t, wrong[k].shape, numbers);
            snprintf(message, sizeof message, "%s: %s", gated[i].name, wrong[k].text);
            REFUSED(t, message, gated[i].call(t, x, wrong[k].axis));
        }
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        snprintf(message, sizeof message, "%s: an input is NULL", gated[i].name);
        REFUSED(t, message, gated[i].call(t, NULL, 0));
    }
    fv_tape_free(t);
}
