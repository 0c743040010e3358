/* Operators of the softmax family and norms, and dropout as it is outside training. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

/* Before opset 13 the axes before and from axis on are flattened to two, and the softmax is over the
 * second. */
static fv_var *softmax_by(call *c, fv_var *(*op)(fv_tape *t, fv_var *x, int axis))
{
    fv_var *x = input(c, 0);
    const fv_shape shape = x->value.shape;
    const int axis = axis_of(c, x, whole(c, "axis", c->opset < 13 ? 1 : -1));
    size_t rows = 1;
    if (c->opset >= 13)
        return op(c->t, x, axis);
    for (int i = 0; i < axis; i++)
        rows *= shape.size[i];
    const size_t columns = rows > 0 ? fv_shape_count(shape) / rows : 0;
    return fv_reshape(c->t, op(c->t, fv_reshape(c->t, x, FV_SHAPE(rows, columns)), 1), shape);
}

static fv_var *softmax(call *c)
{
    return softmax_by(c, fv_softmax);
}

static fv_var *log_softmax(call *c)
{
    return softmax_by(c, fv_log_softmax);
}

/* ---- norms ----------------------------------------------------------------------------------------- */

static fv_norm_opts norm_opts(const call *c, int axes)
{
    return (fv_norm_opts){number(c, "epsilon", 1e-5), axes};
}

/* The mean over axes and 1 / sqrt(variance + eps), with the axes kept, are outputs too. */
static fv_var *layer_norm(call *c)
{
    fv_var *x = input(c, 0);
    const int rank = x->value.shape.rank, axis = axis_of(c, x, whole(c, "axis", -1));
    const fv_norm_opts opts = norm_opts(c, rank - axis);
    fv_axes axes = {.count = rank - axis, .keep = true};
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = axis + i;
    if (wants(c, 1))
        give(c, 1, fv_mean(c->t, x, &axes));
    if (wants(c, 2))
        give(c, 2, fv_rsqrt(c->t, fv_shift(c->t, fv_variance(c->t, x, &axes, 0), opts.eps)));
    return fv_layer_norm(c->t, x, input(c, 1), input(c, 2), &opts);
}

static fv_var *rms_norm(call *c)
{
    fv_var *x = input(c, 0);
    const fv_norm_opts opts =
        norm_opts(c, x->value.shape.rank - axis_of(c, x, whole(c, "axis", -1)));
    return fv_rms_norm(c->t, x, input(c, 1), &opts);
}

static fv_var *group_norm(call *c)
{
    const fv_norm_opts opts = norm_opts(c, 0);
    if (c->opset < 21)
        return lacks(c, "a weight for each group (opset below 21)");
    return fv_group_norm(c->t, input(c, 0), (size_t)whole(c, "num_groups", 1), input(c, 1),
                         input(c, 2), &opts);
}

static fv_var *instance_norm(call *c)
{
    const fv_norm_opts opts = norm_opts(c, 0);
    return fv_instance_norm(c->t, input(c, 0), input(c, 1), input(c, 2), &opts);
}

/* In training the running statistics come out as well: momentum * old + (1 - momentum) * the batch's,
 * whose variance divides by the count. */
static fv_var *batch_norm(call *c)
{
    fv_var *x = input(c, 0), *mean = input(c, 3), *variance = input(c, 4);
    const fv_shape shape = x->value.shape;
    const size_t channels = shape.size[1] > 0 ? shape.size[1] : 1;
    const double momentum = number(c, "momentum", 0.9);
    const bool training =
        c->opset < 7 ? !whole(c, "is_test", 0) : whole(c, "training_mode", 0) == 1;
    fv_batch_norm_opts opts = {.eps = number(c, "epsilon", 1e-5)};
    if (!training) {
        opts.mean = mean->value.data;
        opts.variance = variance->value.data;
        return fv_batch_norm(c->t, x, input(c, 1), input(c, 2), &opts);
    }
    opts.batch_mean = fv_tape_alloc(c->t, channels, sizeof(fv_real));
    opts.batch_variance = fv_tape_alloc(c->t, channels, sizeof(fv_real));
    fv_var *y = fv_batch_norm(c->t, x, input(c, 1), input(c, 2), &opts);
    const double count = (double)(fv_shape_count(shape) / channels);
    fv_var *new_mean = fv_constant(c->t, FV_SHAPE(channels), opts.batch_mean),
           *new_variance =
               fv_scale(c->t, fv_constant(c->t, FV_SHAPE(channels), opts.batch_variance),
                        (count - 1) / count);
    fv_var *share = constant(c, FV_SCALAR, momentum);
    give(c, 1, fv_lerp(c->t, new_mean, mean, share));
    give(c, 2, fv_lerp(c->t, new_variance, variance, share));
    return y;
}

static fv_var *lp_normalization(call *c)
{
    fv_var *x = input(c, 0);
    const int axis = axis_of(c, x, whole(c, "axis", -1));
    if (whole(c, "p", 2) == 2)
        return fv_l2_normalize(c->t, x, axis, NULL);
    fv_var *length = fv_vector_norm(c->t, x, FV_KEEP(axis), whole(c, "p", 2));
    /* All zeros stay zeros. */
    fv_var *least = constant(c, FV_SCALAR, 1e-300);
    return fv_div(c->t, x, fv_maximum(c->t, length, least));
}

/* (x - mean) / sqrt(variance), over samples and space unless axes say otherwise. */
static fv_var *mean_variance_normalization(call *c)
{
    fv_var *x = input(c, 0);
    int64_t given[MOST] = {0, 2, 3};
    fv_axes axes = {.count = has(c, "axes") ? list(c, "axes", given) : 3, .keep = true};
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = (int)given[i];
    fv_var *centred = fv_sub(c->t, x, fv_mean(c->t, x, &axes));
    return fv_div(c->t, centred, fv_shift(c->t, fv_std(c->t, x, &axes, 0), 1e-9));
}

/* x / (bias + alpha * mean of x^2 over size neighbouring channels)^beta; the mean counts places outside
 * the channels as zeros: an average pool along them. */
static fv_var *local_response(call *c)
{
    fv_var *x = input(c, 0);
    const fv_shape shape = x->value.shape;
    const size_t n = shape.size[0], channels = shape.size[1], size = (size_t)whole(c, "size", 1);
    const size_t places_of_one = n * channels > 0 ? fv_shape_count(shape) / (n * channels) : 0;
    const fv_conv_opts opts = {.kernel = {size, 1},
                               .stride = {1, 1},
                               .padding = {(size - 1) / 2, 0},
                               .padding_after = {size - 1 - (size - 1) / 2, 0},
                               .different_padding = true};
    fv_var *square = fv_reshape(c->t, fv_square(c->t, x), FV_SHAPE(n, 1, channels, places_of_one));
    fv_var *mean = fv_reshape(c->t, fv_avg_pool(c->t, square, &opts), shape);
    fv_var *base =
        fv_shift(c->t, fv_scale(c->t, mean, number(c, "alpha", 1e-4)), number(c, "bias", 1));
    return fv_mul(c->t, x, fv_pow(c->t, base, -number(c, "beta", 0.75)));
}

/* The mask says what was kept: all of it. */
static fv_var *dropout(call *c)
{
    const double ratio = has(c, "ratio") ? number(c, "ratio", 0.5) : input_number(c, 1, 0.5);
    const bool training = input_number(c, 2, 0) != 0;
    if (training && ratio != 0)
        return lacks(c, "the random numbers of another generator");
    if (wants(c, 1))
        give(c, 1, constant(c, input(c, 0)->value.shape, 1));
    return fv_dropout(c->t, input(c, 0), ratio);
}

const operation norm_operations[] = {
    {"Softmax", .run = softmax},
    {"LogSoftmax", .run = log_softmax},
    {"LayerNormalization", .run = layer_norm},
    {"RMSNormalization", .run = rms_norm},
    {"GroupNormalization", .run = group_norm},
    {"InstanceNormalization", .run = instance_norm},
    {"BatchNormalization", .run = batch_norm, .needs = 5},
    {"LpNormalization", .run = lp_normalization},
    {"MeanVarianceNormalization", .run = mean_variance_normalization},
    {"LRN", .run = local_response},
    {"Dropout", .run = dropout},
    {0},
};
