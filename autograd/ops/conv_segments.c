/* Convolution over the rows of segments, and its transpose; conv_segments_map.c has the loops. */
#include "autograd/ops/conv.h"
#include "autograd/ops/conv_segments.h"
#include "autograd/ops/rows.h"

static const size_t sample_at[] = {0, 4, 4, 5, 8};
static const fv_segments sample_segments = {4, sample_at};

typedef struct {
    fv_shape weight;
    bool no_bias;
    fv_conv_opts opts;
} segment_case;

/* y[r] = W window of r + b; x is the wide side */
static bool segment_conv_forward(fv_tape *t, fv_var *y)
{
    const fv_var *b = y->in[2];
    fvi_segment_conv_to_narrow(t, y->options, y->in[0]->value.data, y->in[1]->value.data,
                               b == NULL ? NULL : b->value.data, false, y->value.data);
    return fv_tape_ok(t);
}

/* dx = W' dy at the rows of the windows, dW = dy windows', db = dy summed over rows */
static void segment_conv_backward(fv_tape *t, fv_var *y)
{
    fv_var *x = y->in[0], *w = y->in[1];
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, y->in[2]);
    if (dx != NULL)
        fvi_segment_conv_to_wide(t, y->options, y->grad, w->value.data, dx);
    if (dw != NULL)
        fvi_segment_conv_to_weight(t, y->options, x->value.data, y->grad, dw);
    if (db != NULL)
        add_each_row(t, y->value.shape.size[0], y->value.shape.size[1], y->grad, db);
}

static fv_var *segment_conv_sample(fv_sampler *s, int which)
{
    static const segment_case cases[] = {
        {{3, {2, 4, 3}}, false, {.padding = {1}}},
        {{3, {3, 4, 2}}, true, {.padding = {2}, .different_padding = true, .dilation = {2}}},
        {{3, {4, 2, 3}}, false, {.groups = 2, .stride = {2}, .padding = {1}}},
        {{3, {4, 1, 2}}, false, {.groups = 4, .padding = {1}, .different_padding = true}},
        {{3, {1, 4, 1}}, false, {.groups = 1}},
    };
    const fv_segments *out;
    fv_var *x = fv_sample(s, FV_SHAPE(8, 4), -1, 1), *w = fv_sample(s, cases[which].weight, -1, 1);
    fv_var *b = NULL;
    if (!cases[which].no_bias)
        b = fv_sample(s, FV_SHAPE(cases[which].weight.size[0]), -1, 1);
    return fv_segment_conv(fv_sampler_tape(s), x, &sample_segments, w, b, &cases[which].opts, &out);
}
FVI_OP(segment_conv, "y[r, o] = sum over channels and taps of W * x inside the segment + b[o]", "",
       5)

/* y = W' x at the rows of the windows of y, + b; x is the narrow side */
static bool segment_conv_transpose_forward(fv_tape *t, fv_var *y)
{
    const fv_var *b = y->in[2];
    const size_t d = y->value.shape.size[1];
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        y->value.data[i] = b == NULL ? 0 : b->value.data[i % d];
    fvi_segment_conv_to_wide(t, y->options, y->in[0]->value.data, y->in[1]->value.data,
                             y->value.data);
    return fv_tape_ok(t);
}

/* dx = W windows of dy, dW = x windows of dy', db = dy summed over rows */
static void segment_conv_transpose_backward(fv_tape *t, fv_var *y)
{
    fv_var *x = y->in[0], *w = y->in[1];
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, y->in[2]);
    if (dx != NULL)
        fvi_segment_conv_to_narrow(t, y->options, y->grad, w->value.data, NULL, true, dx);
    if (dw != NULL)
        fvi_segment_conv_to_weight(t, y->options, y->grad, x->value.data, dw);
    if (db != NULL)
        add_each_row(t, y->value.shape.size[0], y->value.shape.size[1], y->grad, db);
}

static fv_var *segment_conv_transpose_sample(fv_sampler *s, int which)
{
    static const segment_case cases[] = {
        {{3, {4, 2, 3}}, false, {.padding = {1}}},
        {{3, {4, 3, 2}}, true, {.stride = {2}, .output_padding = {1}}},
        {{3, {4, 2, 2}}, false, {.groups = 2, .dilation = {2}}},
        {{3, {4, 1, 3}}, false, {.groups = 4}},
    };
    const size_t groups = cases[which].opts.groups > 0 ? cases[which].opts.groups : 1;
    const fv_segments *out;
    fv_var *x = fv_sample(s, FV_SHAPE(8, 4), -1, 1), *w = fv_sample(s, cases[which].weight, -1, 1);
    fv_var *b = NULL;
    if (!cases[which].no_bias)
        b = fv_sample(s, FV_SHAPE(cases[which].weight.size[1] * groups), -1, 1);
    return fv_segment_conv_transpose(fv_sampler_tape(s), x, &sample_segments, w, b,
                                     &cases[which].opts, &out);
}
FVI_OP(segment_conv_transpose, "y = what segment_conv sends back: its dx with dy = x, + b", "", 4)

#if FVI_ONCE
static fv_var *convolve(fv_tape *t, const char *op, bool transpose, fv_var *x,
                        const fv_segments *segments, fv_var *weight, fv_var *bias,
                        const fv_conv_opts *opts, const fv_segments **out)
{
    if (!given(t, op, x) || !given(t, op, weight) || !segmented(t, op, x, segments))
        return NULL;
    const fv_shape w = weight->value.shape;
    segment_map c;
    size_t d;
    if (w.rank != 3)
        return fv_refuse(t, op, "weight is %s, expected %s", fv_describe(t, weight),
                         transpose ? "[in, out / groups, kernel]" : "[out, in / groups, kernel]");
    if (!fvi_conv_channels(t, op, transpose, x, weight, bias, opts, &c.groups, &d) ||
        !fvi_segment_window_make(t, op, transpose ? FVI_TRANSPOSE : FVI_CONV, x, segments,
                                 w.size + 2, opts, out, &c.w))
        return NULL;
    c.narrow = w.size[0] / c.groups;
    c.wide = w.size[1];
    return fvi_record(t, transpose ? FVI_OP_segment_conv_transpose : FVI_OP_segment_conv,
                      FV_SHAPE(fv_segments_rows(transpose ? c.w.from : c.w.to), d), &c, sizeof c, 3,
                      (fv_var *[]){x, weight, bias});
}

fv_var *fv_segment_conv(fv_tape *t, fv_var *x, const fv_segments *segments, fv_var *weight,
                        fv_var *bias, const fv_conv_opts *opts, const fv_segments **out)
{
    return convolve(t, "segment_conv", false, x, segments, weight, bias, opts, out);
}

fv_var *fv_segment_conv_transpose(fv_tape *t, fv_var *x, const fv_segments *segments,
                                  fv_var *weight, fv_var *bias, const fv_conv_opts *opts,
                                  const fv_segments **out)
{
    return convolve(t, "segment_conv_transpose", true, x, segments, weight, bias, opts, out);
}
#endif
