/* Calls of products, convolutions and pools, for the PyTorch fixtures. */
#include <string.h>

#include "tests/torch_ops.h"

static fv_var *affine(fixture *f)
{
    return fv_affine(f->t, f->x[0], f->x[1], f->x[2]);
}

static fv_var *affine_relu(fixture *f)
{
    return fv_affine_relu(f->t, f->x[0], f->x[1], f->x[2]);
}

static fv_var *matmul(fixture *f)
{
    const fv_matmul_opts opts = {option_int(f, "transpose_a"), option_int(f, "transpose_b")};
    return fv_matmul(f->t, f->x[0], f->x[1], &opts);
}

static fv_var *bilinear(fixture *f)
{
    return fv_bilinear(f->t, f->x[0], f->x[1], f->x[2], f->x[3]);
}

static fv_var *einsum(fixture *f)
{
    const char *notation = json_string_value(json_object_get(f->json, "notation"));
    return fv_einsum(f->t, notation, f->x[0], f->x[1]);
}

/* ---- windows ------------------------------------------------------------------------------------------------ */

static void read_sizes(const fixture *f, const char *name, size_t out[3])
{
    if (option_is(f, name))
        memcpy(out, option_sizes(f, name), 3 * sizeof *out);
}

static fv_conv_opts *window(const fixture *f)
{
    fv_conv_opts *o = fv_tape_alloc(f->t, 1, sizeof *o);
    read_sizes(f, "stride", o->stride);
    read_sizes(f, "padding", o->padding);
    read_sizes(f, "padding_after", o->padding_after);
    read_sizes(f, "dilation", o->dilation);
    read_sizes(f, "output_padding", o->output_padding);
    read_sizes(f, "kernel", o->kernel);
    o->different_padding = option_is(f, "padding_after");
    o->groups = (size_t)option_int(f, "groups");
    o->ceil = option_int(f, "ceil");
    o->exclude_padding = option_int(f, "exclude_padding");
    return o;
}

static fv_var *conv1d(fixture *f)
{
    return fv_conv1d(f->t, f->x[0], f->x[1], f->x[2], window(f));
}

static fv_var *conv2d(fixture *f)
{
    return fv_conv2d(f->t, f->x[0], f->x[1], f->x[2], window(f));
}

static fv_var *conv(fixture *f)
{
    return fv_conv(f->t, f->x[0], f->x[1], f->x[2], window(f));
}

static fv_var *conv_transpose(fixture *f)
{
    return fv_conv_transpose(f->t, f->x[0], f->x[1], f->x[2], window(f));
}

static fv_var *max_pool(fixture *f)
{
    return fv_max_pool(f->t, f->x[0], window(f));
}

static fv_var *avg_pool(fixture *f)
{
    return fv_avg_pool(f->t, f->x[0], window(f));
}

static fv_var *adaptive_max_pool(fixture *f)
{
    return fv_adaptive_max_pool(f->t, f->x[0], option_sizes(f, "sizes"));
}

static fv_var *adaptive_avg_pool(fixture *f)
{
    return fv_adaptive_avg_pool(f->t, f->x[0], option_sizes(f, "sizes"));
}

static fv_var *unfold(fixture *f)
{
    return fv_unfold(f->t, f->x[0], window(f));
}

static fv_var *fold(fixture *f)
{
    return fv_fold(f->t, f->x[0], option_sizes(f, "sizes"), window(f));
}

/* ---- on segments --------------------------------------------------------------------------------------------- */

static const fv_segments *segments_of(const fixture *f)
{
    fv_segments *s = fv_tape_alloc(f->t, 1, sizeof *s);
    *s = option_segments(f, "segments");
    return s;
}

static fv_var *segment_conv(fixture *f)
{
    const fv_segments *out;
    return fv_segment_conv(f->t, f->x[0], segments_of(f), f->x[1], f->x[2], window(f), &out);
}

static fv_var *segment_conv_transpose(fixture *f)
{
    const fv_segments *out;
    return fv_segment_conv_transpose(f->t, f->x[0], segments_of(f), f->x[1], f->x[2], window(f),
                                     &out);
}

static fv_var *segment_max_pool(fixture *f)
{
    const fv_segments *out;
    return fv_segment_max_pool(f->t, f->x[0], segments_of(f), window(f), &out);
}

static fv_var *segment_avg_pool(fixture *f)
{
    const fv_segments *out;
    return fv_segment_avg_pool(f->t, f->x[0], segments_of(f), window(f), &out);
}

const torch_call torch_window_calls[] = {
    {"affine", .call = affine},
    {"affine_relu", .call = affine_relu},
    {"matmul", .call = matmul},
    {"bilinear", .call = bilinear},
    {"outer", .binary = fv_outer},
    {"dot", .binary = fv_dot},
    {"einsum", .call = einsum},
    {"conv1d", .call = conv1d},
    {"conv2d", .call = conv2d},
    {"conv", .call = conv},
    {"conv_transpose", .call = conv_transpose},
    {"max_pool", .call = max_pool},
    {"avg_pool", .call = avg_pool},
    {"adaptive_max_pool", .call = adaptive_max_pool},
    {"adaptive_avg_pool", .call = adaptive_avg_pool},
    {"unfold", .call = unfold},
    {"fold", .call = fold},
    {"segment_conv", .call = segment_conv},
    {"segment_conv_transpose", .call = segment_conv_transpose},
    {"segment_max_pool", .call = segment_max_pool},
    {"segment_avg_pool", .call = segment_avg_pool},
    {0},
};
