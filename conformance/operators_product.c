/* Operators with windows and products: matrices, convolutions, pools. */
#include <math.h>
#include <string.h>

#include "conformance/conformance.h"

static fv_var *matmul(call *c)
{
    return fv_matmul(c->t, input(c, 0), input(c, 1), NULL);
}

/* alpha a b + beta bias */
static fv_var *gemm(call *c)
{
    const fv_matmul_opts opts = {whole(c, "transA", 0), whole(c, "transB", 0)};
    fv_var *y = fv_matmul(c->t, input(c, 0), input(c, 1), &opts);
    y = fv_scale(c->t, y, number(c, "alpha", 1));
    if (input(c, 2) == NULL)
        return y;
    return fv_add(c->t, y, fv_scale(c->t, input(c, 2), number(c, "beta", 1)));
}

static fv_var *einsum(call *c)
{
    char notation[200];
    size_t length = 0;
    if (c->inputs > 2)
        return lacks(c, "einsum of more than two operands");
    for (const char *at = text(c, "equation", ""); *at != 0 && length + 1 < sizeof notation; at++)
        if (*at != ' ')
            notation[length++] = *at;
    notation[length] = 0;
    return fv_einsum(c->t, notation, input(c, 0), input(c, 1));
}

/* ---- windows --------------------------------------------------------------------------------------- */

static void sizes_of(call *c, const char *name, size_t *out)
{
    int64_t given[MOST] = {0};
    const int count = list(c, name, given);
    for (int i = 0; i < count && i < 3; i++)
        out[i] = (size_t)given[i];
}

/* Padding so that ceil(size / stride) windows fit: the odd place behind (upper) or in front (lower). */
static void pad_to_same(fv_conv_opts *o, const fv_var *x, int spatial, bool upper)
{
    o->different_padding = true;
    for (int i = 0; i < spatial; i++) {
        const size_t size = x->value.shape.size[2 + i], stride = o->stride[i] ? o->stride[i] : 1;
        const size_t reach = (o->kernel[i] - 1) * (o->dilation[i] ? o->dilation[i] : 1) + 1;
        const size_t covered = ((size + stride - 1) / stride - 1) * stride + reach;
        const size_t pads = covered > size ? covered - size : 0;
        o->padding[i] = upper ? pads / 2 : pads - pads / 2;
        o->padding_after[i] = pads - o->padding[i];
    }
}

/* What convolutions and pools share; false: they have more axes than there are ops for. */
static bool read_window(call *c, fv_conv_opts *o, const fv_var *weight)
{
    int64_t pads[MOST] = {0};
    const fv_var *x = input(c, 0);
    const int spatial = x->value.shape.rank - 2, count = list(c, "pads", pads) / 2;
    *o = (fv_conv_opts){.groups = (size_t)whole(c, "group", 1), .ceil = whole(c, "ceil_mode", 0)};
    if (spatial < 1 || spatial > 3)
        return lacks(c, "windows over more than three axes"), false;
    sizes_of(c, "strides", o->stride);
    sizes_of(c, "dilations", o->dilation);
    sizes_of(c, "kernel_shape", o->kernel);
    for (int i = 0; i < spatial && weight != NULL; i++)
        o->kernel[i] = weight->value.shape.size[2 + i];
    for (int i = 0; i < spatial && weight == NULL; i++) /* here a pool's stride is its kernel */
        o->stride[i] = o->stride[i] > 0 ? o->stride[i] : 1;
    o->different_padding = count > 0;
    for (int i = 0; i < count && i < 3; i++) {
        o->padding[i] = (size_t)pads[i];
        o->padding_after[i] = (size_t)pads[i + count];
    }
    const char *same = text(c, "auto_pad", "NOTSET");
    if (strncmp(same, "SAME", 4) == 0)
        pad_to_same(o, x, spatial, strcmp(same, "SAME_UPPER") == 0);
    return true;
}

/* A convolution takes its kernel from the weight alone. */
static fv_var *conv(call *c)
{
    fv_conv_opts opts;
    if (!read_window(c, &opts, input(c, 1)))
        return NULL;
    memset(opts.kernel, 0, sizeof opts.kernel);
    return fv_conv(c->t, input(c, 0), input(c, 1), input(c, 2), &opts);
}

/* output_shape and auto_pad fix the padding: what the full result has too many, or, when it has too few,
 * what stands behind it. */
static fv_var *conv_transpose(call *c)
{
    fv_conv_opts opts;
    int64_t wanted[MOST] = {0};
    fv_var *x = input(c, 0);
    if (!read_window(c, &opts, input(c, 1)))
        return NULL;
    const int spatial = x->value.shape.rank - 2, given = list(c, "output_shape", wanted);
    const char *same = text(c, "auto_pad", "NOTSET");
    sizes_of(c, "output_padding", opts.output_padding);
    for (int i = 0; i < spatial && (given > 0 || strncmp(same, "SAME", 4) == 0); i++) {
        const size_t size = x->value.shape.size[2 + i],
                     stride = opts.stride[i] ? opts.stride[i] : 1;
        const size_t reach = (opts.kernel[i] - 1) * (opts.dilation[i] ? opts.dilation[i] : 1) + 1;
        const size_t full = (size - 1) * stride + reach + opts.output_padding[i];
        const size_t want = given > 0 ? (size_t)wanted[given - spatial + i] : size * stride;
        const size_t pads = full > want ? full - want : 0;
        opts.different_padding = true;
        opts.padding[i] = strcmp(same, "SAME_UPPER") == 0 ? pads / 2 : pads - pads / 2;
        opts.padding_after[i] = pads - opts.padding[i];
        opts.output_padding[i] += full < want ? want - full : 0;
    }
    memset(opts.kernel, 0, sizeof opts.kernel);
    return fv_conv_transpose(c->t, x, input(c, 1), input(c, 2), &opts);
}

/* The state is what the window saw last: in front of the input it makes the convolution causal. */
static fv_var *causal_conv(call *c)
{
    fv_var *x = input(c, 0), *weight = input(c, 1), *past = input(c, 3);
    const fv_shape shape = x->value.shape;
    const size_t channels = shape.size[1], seen = weight->value.shape.size[2] - 1;
    const char *activation = text(c, "activation", "none");
    if (past == NULL)
        past = constant(c, FV_SHAPE(shape.size[0], channels, seen), 0);
    fv_var *rows = fv_concat(c->t, 2, (fv_var *[]){past, x}, 2);
    const fv_range last = {(int)shape.size[2], FV_END, 1};
    give(c, 1, fv_slice(c->t, rows, 2, last));
    fv_var *y = fv_conv1d(c->t, rows, weight, input(c, 2), &(fv_conv_opts){.groups = channels});
    return strcmp(activation, "none") == 0 ? y : fv_silu(c->t, y);
}

static fv_var *col2im(call *c)
{
    fv_conv_opts opts = {0};
    int64_t image[MOST] = {0}, block[MOST] = {0}, pads[MOST] = {0};
    size_t sizes[3];
    const int count = input_list(c, 1, image), padded = list(c, "pads", pads) / 2;
    if (count > 2)
        return lacks(c, "fold over more than two axes");
    sizes_of(c, "strides", opts.stride);
    sizes_of(c, "dilations", opts.dilation);
    input_list(c, 2, block);
    for (int i = 0; i < count; i++) {
        sizes[i] = (size_t)image[i];
        opts.kernel[i] = (size_t)block[i];
        opts.padding[i] = padded > 0 ? (size_t)pads[i] : 0;
        opts.padding_after[i] = padded > 0 ? (size_t)pads[i + padded] : 0;
    }
    opts.different_padding = padded > 0;
    return fv_fold(c->t, input(c, 0), sizes, &opts);
}

/* ---- pools ---- */

/* Whether the library's pools take the window as it is: they pad at most half of it. */
static bool half_padded(const fv_conv_opts *o)
{
    for (int i = 0; i < 3; i++)
        if (2 * o->padding[i] > o->kernel[i] || 2 * o->padding_after[i] > o->kernel[i])
            return false;
    return true;
}

static bool dilated(const fv_conv_opts *o)
{
    return o->dilation[0] > 1 || o->dilation[1] > 1 || o->dilation[2] > 1;
}

/* x with its padding as numbers of its own. */
static fv_var *padded(const call *c, fv_var *x, const fv_conv_opts *o, double number_there)
{
    const fv_pad_opts opts = {.value = number_there};
    for (int i = 0; x != NULL && i < x->value.shape.rank - 2; i++)
        x = fv_pad(c->t, x, i + 2, o->padding[i], o->padding_after[i], &opts);
    return x;
}

/* For a padded x of so many places: how far a last window hangs over its end. It must start before the
 * padding behind. */
static size_t overhang(const fv_conv_opts *o, int i, size_t size)
{
    const size_t reach = (o->kernel[i] - 1) * (o->dilation[i] ? o->dilation[i] : 1) + 1;
    const size_t stride = o->stride[i];
    if (!o->ceil || size < reach)
        return 0;
    size_t steps = (size - reach + stride - 1) / stride;
    if (steps * stride >= size - o->padding_after[i])
        steps--;
    return steps * stride + reach > size ? steps * stride + reach - size : 0;
}

/* The sum over each window of x, which is padded already: a convolution with ones, each channel by
 * itself. */
static fv_var *window_sum(call *c, fv_var *x, const fv_conv_opts *o)
{
    if (x == NULL)
        return NULL;
    const size_t channels = x->value.shape.size[1];
    fv_conv_opts opts = {.groups = channels, .different_padding = true};
    fv_shape shape = {x->value.shape.rank, {channels, 1}};
    for (int i = 0; i < shape.rank - 2; i++) {
        shape.size[i + 2] = o->kernel[i];
        opts.stride[i] = o->stride[i];
        opts.dilation[i] = o->dilation[i];
        opts.padding_after[i] = overhang(o, i, x->value.shape.size[i + 2]);
    }
    return fv_conv(c->t, x, constant(c, shape, 1), NULL, &opts);
}

/* Wide padding is put there as numbers that are never the largest. */
static fv_var *max_pool(call *c)
{
    fv_conv_opts opts;
    fv_var *x = input(c, 0);
    if (wants(c, 1))
        return lacks(c, "the places of the largest numbers as an output");
    if (!read_window(c, &opts, NULL))
        return NULL;
    if (half_padded(&opts))
        return fv_max_pool(c->t, x, &opts);
    if (opts.ceil)
        return lacks(c, "padding of more than half a window with ceil_mode");
    x = padded(c, x, &opts, -(double)INFINITY);
    memset(opts.padding, 0, sizeof opts.padding);
    memset(opts.padding_after, 0, sizeof opts.padding_after);
    return fv_max_pool(c->t, x, &opts);
}

/* Dilated windows and wide padding have no pool: the sum of each window, over how many numbers it is of. */
static fv_var *average_pool(call *c)
{
    fv_conv_opts opts;
    fv_var *x = input(c, 0);
    if (!read_window(c, &opts, NULL))
        return NULL;
    const bool with_padding = whole(c, "count_include_pad", 0);
    opts.exclude_padding = !with_padding;
    if (!dilated(&opts) && half_padded(&opts))
        return fv_avg_pool(c->t, x, &opts);
    fv_var *counted = padded(c, constant(c, x->value.shape, 1), &opts, with_padding ? 1 : 0);
    return fv_div(c->t, window_sum(c, padded(c, x, &opts, 0), &opts),
                  window_sum(c, counted, &opts));
}

/* (sum of |x|^p over the window)^(1 / p) */
static fv_var *lp_pool(call *c)
{
    fv_conv_opts opts;
    const double p = number(c, "p", 2);
    if (!read_window(c, &opts, NULL))
        return NULL;
    fv_var *power = fv_pow(c->t, fv_abs(c->t, input(c, 0)), p);
    return fv_pow(c->t, window_sum(c, padded(c, power, &opts, 0), &opts), 1 / p);
}

static fv_var *over_space(call *c, fv_var *(*op)(fv_tape *t, fv_var *x, const fv_axes *axes))
{
    fv_axes axes = {.count = input(c, 0)->value.shape.rank - 2, .keep = true};
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = i + 2;
    return op(c->t, input(c, 0), &axes);
}

static fv_var *global_average(call *c)
{
    return over_space(c, fv_mean);
}

static fv_var *global_max(call *c)
{
    return over_space(c, fv_max);
}

const operation product_operations[] = {
    {"MatMul", .run = matmul},
    {"Gemm", .run = gemm},
    {"Einsum", .run = einsum},
    {"Conv", .run = conv, .needs = 2},
    {"ConvTranspose", .run = conv_transpose, .needs = 2},
    {"CausalConvWithState", .run = causal_conv, .needs = 2},
    {"Col2Im", .run = col2im},
    {"MaxPool", .run = max_pool},
    {"AveragePool", .run = average_pool},
    {"LpPool", .run = lp_pool},
    {"GlobalAveragePool", .run = global_average},
    {"GlobalMaxPool", .run = global_max},
    {0},
};
