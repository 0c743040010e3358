/* Operators that work number by number: arithmetic, comparisons, truths, activations. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

/* ---- arithmetic ------------------------------------------------------------------------------------ */

static fv_var *quotient(call *c)
{
    if (!is_float(c->in[0].type))
        return lacks(c, "division of whole numbers (numbers here are real)");
    return fv_div(c->t, input(c, 0), input(c, 1));
}

/* All inputs, by an op of two. */
static fv_var *fold(call *c, fv_var *(*op)(fv_tape *t, fv_var *a, fv_var *b))
{
    fv_var *y = input(c, 0);
    for (int i = 1; i < c->inputs; i++)
        y = op(c->t, y, input(c, i));
    return y;
}

static fv_var *largest(call *c)
{
    return fold(c, fv_maximum);
}

static fv_var *smallest(call *c)
{
    return fold(c, fv_minimum);
}

static fv_var *total(call *c)
{
    fv_var *x[MOST];
    bool alike = true;
    for (int i = 0; i < c->inputs; i++) {
        x[i] = input(c, i);
        alike = alike && x[i] != NULL && fv_shape_equal(x[0]->value.shape, x[i]->value.shape);
    }
    return alike ? fv_add_many(c->t, c->inputs, x) : fold(c, fv_add);
}

static fv_var *average(call *c)
{
    return fv_scale(c->t, total(c), 1.0 / c->inputs);
}

static fv_var *clip(call *c)
{
    const double low = number(c, "min", input_number(c, 1, -(double)INFINITY)),
                 high = number(c, "max", input_number(c, 2, (double)INFINITY));
    return fv_clamp(c->t, input(c, 0), low < high ? low : high, high);
}

static fv_var *identity(call *c)
{
    return input(c, 0);
}

/* ---- comparisons and truths ------------------------------------------------------------------------ */

static fv_var *compared(call *c, fv_var *a, fv_relation relation, fv_var *b)
{
    return from_truths(c, fv_compare(c->t, a, relation, b));
}

static fv_var *equal(call *c)
{
    return compared(c, input(c, 0), FV_EQUAL, input(c, 1));
}

static fv_var *greater(call *c)
{
    return compared(c, input(c, 0), FV_GREATER, input(c, 1));
}

static fv_var *greater_equal(call *c)
{
    return compared(c, input(c, 0), FV_GREATER_EQUAL, input(c, 1));
}

static fv_var *less(call *c)
{
    return compared(c, input(c, 0), FV_LESS, input(c, 1));
}

static fv_var *less_equal(call *c)
{
    return compared(c, input(c, 0), FV_LESS_EQUAL, input(c, 1));
}

/* Truths are 0 and 1: "and" is their smaller, "or" their larger, "xor" whether they differ. */
static fv_var *exclusive_or(call *c)
{
    return compared(c, input(c, 0), FV_NOT_EQUAL, input(c, 1));
}

static fv_var *negation(call *c)
{
    return compared(c, input(c, 0), FV_EQUAL, constant(c, FV_SCALAR, 0));
}

static fv_var *is_nan(call *c)
{
    return compared(c, input(c, 0), FV_NOT_EQUAL, input(c, 0));
}

static fv_var *is_infinite(call *c)
{
    const bool up = whole(c, "detect_positive", 1), down = whole(c, "detect_negative", 1);
    fv_var *x = input(c, 0);
    if (up && down)
        x = fv_abs(c->t, x);
    return compared(c, x, FV_EQUAL,
                    constant(c, FV_SCALAR, up ? (double)INFINITY : -(double)INFINITY));
}

static fv_var *choice(call *c)
{
    return fv_where(c->t, truths(c, 0), input(c, 1), input(c, 2));
}

/* ---- activations ----------------------------------------------------------------------------------- */

/* x where x stands so to the limit, else otherwise. */
static fv_var *keep_where(call *c, fv_var *x, fv_relation relation, double limit, fv_var *otherwise)
{
    return fv_where(c->t, fv_compare(c->t, input(c, 0), relation, constant(c, FV_SCALAR, limit)), x,
                    otherwise);
}

static fv_var *leaky_relu(call *c)
{
    return fv_leaky_relu(c->t, input(c, 0), number(c, "alpha", 0.01));
}

static fv_var *elu(call *c)
{
    return fv_elu(c->t, input(c, 0), number(c, "alpha", 1));
}

static fv_var *selu(call *c)
{
    if (!has(c, "alpha") && !has(c, "gamma"))
        return fv_selu(c->t, input(c, 0));
    return fv_scale(c->t, fv_elu(c->t, input(c, 0), number(c, "alpha", 1.67326319217681884765625)),
                    number(c, "gamma", 1.05070102214813232421875));
}

/* max(x, 0) + min(0, alpha (e^(x / alpha) - 1)) */
static fv_var *celu(call *c)
{
    const double alpha = number(c, "alpha", 1);
    return fv_scale(c->t, fv_elu(c->t, fv_scale(c->t, input(c, 0), 1 / alpha), 1), alpha);
}

static fv_var *gelu(call *c)
{
    return strcmp(text(c, "approximate", "none"), "tanh") == 0 ? fv_gelu_tanh(c->t, input(c, 0))
                                                               : fv_gelu(c->t, input(c, 0));
}

static fv_var *hard_sigmoid(call *c)
{
    fv_var *x = fv_scale(c->t, input(c, 0), number(c, "alpha", 0.2));
    return fv_clamp(c->t, fv_shift(c->t, x, number(c, "beta", 0.5)), 0, 1);
}

/* Before opset 7 a slope [channels] stands for the second axis. */
static fv_var *prelu(call *c)
{
    fv_var *x = input(c, 0), *slope = input(c, 1);
    if (c->opset < 7 && fv_shape_count(slope->value.shape) > 1 && x->value.shape.rank > 1) {
        fv_shape shape = {.rank = x->value.shape.rank - 1};
        for (int i = 0; i < shape.rank; i++)
            shape.size[i] = i == 0 ? x->value.shape.size[1] : 1;
        slope = fv_reshape(c->t, slope, shape);
    }
    return keep_where(c, x, FV_GREATER_EQUAL, 0, fv_mul(c->t, slope, x));
}

/* x + bias below -lambd, x - bias above it, 0 between. */
static fv_var *shrink(call *c)
{
    const double limit = number(c, "lambd", 0.5), bias = number(c, "bias", 0);
    fv_var *x = input(c, 0), *zero = constant(c, FV_SCALAR, 0);
    fv_var *above = keep_where(c, fv_shift(c->t, x, -bias), FV_GREATER, limit, zero);
    return keep_where(c, fv_shift(c->t, x, bias), FV_LESS, -limit, above);
}

static fv_var *thresholded_relu(call *c)
{
    return keep_where(c, input(c, 0), FV_GREATER, number(c, "alpha", 1), constant(c, FV_SCALAR, 0));
}

/* x sigmoid(alpha x) */
static fv_var *swish_of(call *c, fv_var *x)
{
    const double alpha = number(c, "alpha", 1);
    return fv_scale(c->t, fv_silu(c->t, fv_scale(c->t, x, alpha)), 1 / alpha);
}

static fv_var *swish(call *c)
{
    return swish_of(c, input(c, 0));
}

static fv_var *swiglu(call *c)
{
    if (number(c, "alpha", 1) == 1)
        return fv_swiglu(c->t, fv_concat(c->t, 2, (fv_var *[]){input(c, 0), input(c, 1)}, -1), -1);
    return fv_mul(c->t, swish_of(c, input(c, 0)), input(c, 1));
}

const operation elementwise_operations[] = {
    {"Add", .binary = fv_add},
    {"Sub", .binary = fv_sub},
    {"Mul", .binary = fv_mul},
    {"Div", .run = quotient},
    {"Pow", .binary = fv_power},
    {"Max", .run = largest},
    {"Min", .run = smallest},
    {"Sum", .run = total},
    {"Mean", .run = average},
    {"Clip", .run = clip},
    {"Identity", .run = identity},
    {"Neg", .unary = fv_neg},
    {"Abs", .unary = fv_abs},
    {"Reciprocal", .unary = fv_reciprocal},
    {"Sqrt", .unary = fv_sqrt},
    {"Exp", .unary = fv_exp},
    {"Log", .unary = fv_log},
    {"Sin", .unary = fv_sin},
    {"Cos", .unary = fv_cos},
    {"Tan", .unary = fv_tan},
    {"Asin", .unary = fv_asin},
    {"Acos", .unary = fv_acos},
    {"Atan", .unary = fv_atan},
    {"Sinh", .unary = fv_sinh},
    {"Cosh", .unary = fv_cosh},
    {"Asinh", .unary = fv_asinh},
    {"Acosh", .unary = fv_acosh},
    {"Atanh", .unary = fv_atanh},
    {"Erf", .unary = fv_erf},
    {"Equal", .run = equal},
    {"Greater", .run = greater},
    {"GreaterOrEqual", .run = greater_equal},
    {"Less", .run = less},
    {"LessOrEqual", .run = less_equal},
    {"And", .binary = fv_minimum},
    {"Or", .binary = fv_maximum},
    {"Xor", .run = exclusive_or},
    {"Not", .run = negation},
    {"IsNaN", .run = is_nan},
    {"IsInf", .run = is_infinite},
    {"Where", .run = choice},
    {"Relu", .unary = fv_relu},
    {"LeakyRelu", .run = leaky_relu},
    {"Elu", .run = elu},
    {"Selu", .run = selu},
    {"Celu", .run = celu},
    {"Gelu", .run = gelu},
    {"Sigmoid", .unary = fv_sigmoid},
    {"Tanh", .unary = fv_tanh},
    {"Softplus", .unary = fv_softplus},
    {"Softsign", .unary = fv_softsign},
    {"Mish", .unary = fv_mish},
    {"HardSwish", .unary = fv_hardswish},
    {"HardSigmoid", .run = hard_sigmoid},
    {"PRelu", .run = prelu, .needs = 2},
    {"Shrink", .run = shrink},
    {"ThresholdedRelu", .run = thresholded_relu},
    {"Swish", .run = swish},
    {"SwiGLU", .run = swiglu},
    {0},
};
