/* Losses, gradients of a graph, and single steps of optimisers. */
#include <string.h>

#include "conformance/conformance.h"

/* ---- losses ---------------------------------------------------------------------------------------- */

/* [samples, classes, places ..] -> [samples * places, classes] */
static fv_var *classes_last(call *c, fv_var *x)
{
    const fv_shape shape = x->value.shape;
    int axes[FV_MAX_RANK] = {0};
    for (int i = 1; i < shape.rank; i++)
        axes[i] = i + 1 < shape.rank ? i + 1 : 1;
    const size_t classes = shape.size[1] > 0 ? shape.size[1] : 1;
    return fv_reshape(c->t, fv_permute(c->t, x, axes),
                      FV_SHAPE(fv_shape_count(shape) / classes, classes));
}

typedef fv_var *(*sum_loss)(fv_tape *t, fv_var *x, const int32_t *labels,
                            const fv_cross_entropy_opts *opts, double *count);

/* Sum and mean are the loss's own; one number for each label is composed: log-chances [rows, classes] at
 * the label, times the weight of its class. */
static fv_var *loss(call *c, fv_var *x, sum_loss sum,
                    fv_var *(*log_chances)(fv_tape *, fv_var *, int))
{
    const fv_var *weight = input(c, 2);
    const char *reduction = text(c, "reduction", "mean");
    const fv_shape shape = input(c, 1)->value.shape;
    const size_t rows = fv_shape_count(shape);
    const fv_cross_entropy_opts opts = {.class_weight = weight != NULL ? weight->value.data : NULL};
    int32_t *labels = fv_tape_alloc(c->t, rows + 1, sizeof *labels);
    const fv_real *given = input(c, 1)->value.data;
    for (size_t i = 0; labels != NULL && i < rows; i++)
        labels[i] = has(c, "ignore_index") && fv_re(given[i]) == whole(c, "ignore_index", 0)
                        ? -1
                        : (int32_t)fv_re(given[i]);
    x = classes_last(c, x);
    if (strcmp(reduction, "none") != 0) {
        double count;
        fv_var *y = sum(c->t, x, labels, &opts, &count);
        return strcmp(reduction, "mean") == 0 ? fv_scale(c->t, y, 1 / count) : y;
    }
    double *share = fv_tape_alloc(c->t, rows + 1, sizeof *share);
    for (size_t i = 0; labels != NULL && share != NULL && i < rows; i++) {
        share[i] = labels[i] < 0 ? 0 : weight == NULL ? -1 : -fv_re(weight->value.data[labels[i]]);
        labels[i] = labels[i] < 0 ? 0 : labels[i];
    }
    if (log_chances != NULL)
        x = log_chances(c->t, x, 1);
    fv_var *y = fv_take_along(c->t, x, 1, FV_SHAPE(rows, 1), labels);
    return fv_mul(c->t, fv_reshape(c->t, y, shape), from_numbers(c, shape, share));
}

static fv_var *cross_entropy(call *c)
{
    fv_var *x = input(c, 0);
    if (wants(c, 1))
        give(c, 1, fv_log_softmax(c->t, x, 1));
    return loss(c, x, fv_cross_entropy_sum, fv_log_softmax);
}

static fv_var *negative_log_likelihood(call *c)
{
    return loss(c, input(c, 0), fv_nll_sum, NULL);
}

/* ---- gradients ------------------------------------------------------------------------------------- */

static fv_var *known_value(const call *c, const char *name)
{
    for (int i = c->known_count - 1; i >= 0; i--)
        if (strcmp(c->known[i].name, name) == 0)
            return c->known[i].var;
    return NULL;
}

/* The gradients of y (its sum, when it is more than a number) with respect to xs. */
static fv_var *gradient(call *c)
{
    const json_t *xs = json_object_get(c->attributes, "xs");
    fv_var *y = known_value(c, text(c, "y", "")), *first = NULL;
    if (has(c, "zs"))
        return lacks(c, "gradients while other values (zs) are held");
    if (!fv_backward(c->t, fv_sum(c->t, y, NULL)))
        return NULL;
    for (int i = 0; i < (int)json_array_size(xs); i++) {
        const fv_var *x = known_value(c, json_string_value(json_array_get(xs, (size_t)i)));
        fv_var *dx = x == NULL         ? NULL
                     : x->grad != NULL ? fv_constant(c->t, x->value.shape, x->grad)
                                       : constant(c, x->value.shape, 0);
        give(c, i, dx);
        first = i == 0 ? dx : first;
    }
    return first;
}

/* ---- optimisers ------------------------------------------------------------------------------------ */

static void copy(fv_tensor to, const fv_var *from)
{
    memcpy(to.data, from->value.data, fv_shape_count(to.shape) * sizeof *to.data);
}

static fv_var *copied(call *c, fv_tensor from)
{
    double *numbers = fv_tape_alloc(c->t, fv_shape_count(from.shape) + 1, sizeof *numbers);
    for (size_t i = 0; numbers != NULL && i < fv_shape_count(from.shape); i++)
        numbers[i] = fv_re(from.data[i]);
    return from_numbers(c, from.shape, numbers);
}

/* One step of an optimiser on a parameter that starts as input 2, with the gradient of input 3 and the
 * state of inputs 4 and on; the loss is the product of gradient and parameter. */
static fv_var *optimizer_step(call *c, const fv_optimizer_opts *opts, uint64_t steps)
{
    fv_params *params = fv_params_new(1);
    fv_tape *t = fv_tape_new(NULL);
    fv_error error = {0};
    fv_var *y = NULL;
    const fv_var *x = input(c, 2), *gradient_of_x = input(c, 3);
    fv_param *p = fv_param_new(fv_root(params), "x", x->value.shape, (fv_init){FV_ZEROS, 0});
    fv_optimizer *optimizer = fv_optimizer_new(params, opts, &error);
    if (p != NULL && t != NULL && optimizer != NULL) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        copy(p->value, x);
        for (int i = 0; i < fv_optimizer_slots(optimizer); i++)
            copy(fv_optimizer_slot(optimizer, i, p), input(c, 4 + i));
        fv_optimizer_set_steps(optimizer, steps);
        fv_var *g = fv_constant(t, x->value.shape, gradient_of_x->value.data);
        fv_var *product = fv_sum(t, fv_mul(t, fv_use(t, p), g), NULL);
        if (fv_backward(t, product) &&
            fv_optimizer_step(optimizer, &t, 1, 1, input_number(c, 0, 0), 0, 1, NULL, &error)) {
            y = copied(c, p->value);
            for (int i = 0; i < fv_optimizer_slots(optimizer); i++)
                give(c, 1 + i, copied(c, fv_optimizer_slot(optimizer, i, p)));
        }
    }
    fv_optimizer_free(optimizer);
    fv_tape_free(t);
    fv_params_free(params);
    return y;
}

static double or_none(double x)
{
    return x == 0 ? FV_NONE : x;
}

/* At T = 0 there is no bias correction, as here after very many steps. */
static fv_var *adam(call *c)
{
    const uint64_t step = (uint64_t)input_number(c, 1, 0);
    if (c->inputs != 6)
        return lacks(c, "a step of several tensors in one call");
    if (number(c, "norm_coefficient_post", 0) != 0)
        return lacks(c, "a norm coefficient after the step");
    return optimizer_step(c,
                          &(fv_optimizer_opts){.kind = FV_ADAM,
                                               .beta1 = or_none(number(c, "alpha", 0.9)),
                                               .beta2 = or_none(number(c, "beta", 0.999)),
                                               .eps = number(c, "epsilon", 1e-6),
                                               .weight_decay = number(c, "norm_coefficient", 0)},
                          step > 0 ? step - 1 : (uint64_t)1 << 40);
}

static fv_var *momentum(call *c)
{
    const bool first = input_number(c, 1, 0) == 0;
    if (c->inputs != 5)
        return lacks(c, "a step of several tensors in one call");
    if (!first && number(c, "beta", 1) != 1)
        return lacks(c, "momentum with damping (beta)");
    return optimizer_step(
        c,
        &(fv_optimizer_opts){.kind = FV_SGD,
                             .momentum = number(c, "alpha", 0.9),
                             .nesterov = strcmp(text(c, "mode", ""), "nesterov") == 0,
                             .weight_decay = number(c, "norm_coefficient", 0)},
        1);
}

const operation loss_operations[] = {
    {"SoftmaxCrossEntropyLoss", .run = cross_entropy, .needs = 2},
    {"NegativeLogLikelihoodLoss", .run = negative_log_likelihood, .needs = 2},
    {"Gradient", .run = gradient},
    {"Adam", .run = adam, .needs = 6},
    {"Momentum", .run = momentum, .needs = 5},
    {0},
};
