/* Convolution over one to three spatial axes, and its transpose; conv_map.c has the loops. */
#include "autograd/ops/conv.h"
#include "autograd/ops/rows.h"

/* db[channel] += dy summed over samples and places */
static void add_bias_grad(const fv_tape *t, const fv_var *y, fv_real *db)
{
    const fv_shape shape = y->value.shape;
    const size_t samples = shape.size[0], channels = shape.size[1];
    const axis_view v = view_axis(shape, 1);
    const int parts = parts_of(t, channels, samples * v.inner);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(channels, parts, k);
        for (size_t o = p.from; o < p.to; o++)
            for (size_t n = 0; n < samples; n++)
                db[o] += lane_sum(v.inner, y->grad + (n * channels + o) * v.inner);
    }
}

/* y = W windows(x) + b; x is the wide side */
static bool conv_forward(fv_tape *t, fv_var *y)
{
    const fv_var *b = y->in[2];
    fvi_conv_to_narrow(t, y->options, y->in[0]->value.data, y->in[1]->value.data,
                       b != NULL ? b->value.data : NULL, false, y->value.data);
    return fv_tape_ok(t);
}

/* dx = W' dy at the places of the windows, dW = dy windows(x)', db = dy summed over samples and places */
static void conv_backward(fv_tape *t, fv_var *y)
{
    fv_var *x = y->in[0], *w = y->in[1];
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, y->in[2]);
    if (dx != NULL)
        fvi_conv_to_wide(t, y->options, y->grad, w->value.data, dx);
    if (dw != NULL)
        fvi_conv_to_weight(t, y->options, x->value.data, y->grad, dw);
    if (db != NULL)
        add_bias_grad(t, y, db);
}

static fv_var *conv_sample(fv_sampler *s, int which)
{
    static const struct {
        fv_shape x, weight;
        bool no_bias;
        fv_conv_opts opts;
    } cases[] = {
        {{3, {2, 3, 6}}, {3, {2, 3, 3}}, false, {.padding = {1}}},
        {{4, {2, 2, 4, 5}}, {4, {3, 2, 2, 3}}, true, {.stride = {2, 1}, .padding = {0, 2}}},
        {{5, {1, 2, 3, 2, 3}}, {5, {2, 2, 2, 1, 2}}, false, {.padding = {1, 0, 1}}},
        {{3, {2, 4, 7}}, {3, {4, 2, 2}}, false, {.groups = 2, .dilation = {3}}},
        {{4, {1, 3, 4, 4}}, {4, {6, 1, 3, 3}}, false, {.groups = 3, .padding = {1, 1}}},
        {{3, {1, 2, 5}},
         {3, {2, 1, 3}},
         false,
         {.groups = 2, .padding = {2}, .different_padding = true, .stride = {2}}},
        {{3, {1, 1, 1}}, {3, {1, 1, 1}}, false, {.groups = 1}},
        {{4, {2, 3, 2, 2}}, {4, {4, 3, 1, 1}}, false, {.groups = 1}},
        {{3, {2, 2, 37}}, {3, {2, 1, 3}}, false, {.groups = 2}}, /* lanes, and a rest */
    };
    fv_var *x = fv_sample(s, cases[which].x, -1, 1), *w = fv_sample(s, cases[which].weight, -1, 1);
    fv_var *b = NULL;
    if (!cases[which].no_bias)
        b = fv_sample(s, FV_SHAPE(cases[which].weight.size[0]), -1, 1);
    return fv_conv(fv_sampler_tape(s), x, w, b, &cases[which].opts);
}
FVI_OP(conv, "y[o, place] = sum over channels and taps of W * x + b[o]", "", 9)

/* y = W' x at the places of the windows of y, + b; x is the narrow side */
static bool conv_transpose_forward(fv_tape *t, fv_var *y)
{
    const fv_var *b = y->in[2];
    const axis_view v = view_axis(y->value.shape, 1);
    for (size_t i = 0; i < v.outer * v.n; i++) {
        const fv_real first = b != NULL ? b->value.data[i % v.n] : 0;
        fv_real *plane = y->value.data + i * v.inner;
        for (size_t p = 0; p < v.inner; p++)
            plane[p] = first;
    }
    fvi_conv_to_wide(t, y->options, y->in[0]->value.data, y->in[1]->value.data, y->value.data);
    return fv_tape_ok(t);
}

/* dx = W windows(dy), dW = x windows(dy)', db = dy summed over samples and places */
static void conv_transpose_backward(fv_tape *t, fv_var *y)
{
    fv_var *x = y->in[0], *w = y->in[1];
    fv_real *dx = fv_grad(t, x), *dw = fv_grad(t, w), *db = fv_grad(t, y->in[2]);
    if (dx != NULL)
        fvi_conv_to_narrow(t, y->options, y->grad, w->value.data, NULL, true, dx);
    if (dw != NULL)
        fvi_conv_to_weight(t, y->options, y->grad, x->value.data, dw);
    if (db != NULL)
        add_bias_grad(t, y, db);
}

static fv_var *conv_transpose_sample(fv_sampler *s, int which)
{
    static const struct {
        fv_shape x, weight;
        bool no_bias;
        fv_conv_opts opts;
    } cases[] = {
        {{3, {2, 3, 4}}, {3, {3, 2, 3}}, false, {.padding = {1}}},
        {{4, {1, 2, 2, 3}},
         {4, {2, 3, 2, 3}},
         true,
         {.stride = {2, 3}, .padding = {0, 1}, .output_padding = {1, 2}}},
        {{5, {1, 2, 2, 1, 2}}, {5, {2, 2, 2, 2, 2}}, false, {.dilation = {2, 1, 1}}},
        {{3, {2, 4, 3}}, {3, {4, 2, 2}}, false, {.groups = 2, .stride = {2}}},
        {{3, {1, 2, 4}}, {3, {2, 1, 3}}, false, {.groups = 2, .padding = {1}}},
        {{3, {1, 1, 1}}, {3, {1, 1, 1}}, false, {.groups = 1}},
    };
    const fv_conv_opts *opts = &cases[which].opts;
    const size_t groups = opts->groups > 0 ? opts->groups : 1;
    fv_var *x = fv_sample(s, cases[which].x, -1, 1), *w = fv_sample(s, cases[which].weight, -1, 1);
    fv_var *b = NULL;
    if (!cases[which].no_bias)
        b = fv_sample(s, FV_SHAPE(cases[which].weight.size[1] * groups), -1, 1);
    return fv_conv_transpose(fv_sampler_tape(s), x, w, b, opts);
}
FVI_OP(conv_transpose, "y = what conv sends back: dx of conv with dy = x, + b", "", 6)

#if FVI_ONCE
bool fvi_conv_channels(fv_tape *t, const char *op, bool transpose, const fv_var *x,
                       const fv_var *weight, const fv_var *bias, const fv_conv_opts *opts,
                       size_t *groups, size_t *out)
{
    const size_t in = x->value.shape.size[1], *w = weight->value.shape.size;
    *groups = opts != NULL && opts->groups > 0 ? opts->groups : 1;
    bool fits = w[0] % *groups == 0;
    if (transpose)
        fits = fits && w[0] == in && fvi_mul(w[1], *groups, out);
    else
        fits = fits && in % *groups == 0 && w[1] == in / *groups;
    if (!fits) {
        fv_refuse(t, op, "%s with weight %s in %zu group%s: channels do not fit, expected %s",
                  fv_describe(t, x), fv_describe(t, weight), *groups, *groups > 1 ? "s" : "",
                  transpose ? "[in, out / groups, ..]" : "[out, in / groups, ..]");
        return false;
    }
    if (!transpose)
        *out = w[0];
    if (bias == NULL || fv_shape_equal(bias->value.shape, FV_SHAPE(*out)))
        return true;
    fv_refuse(t, op, "weight %s with bias %s, expected [%zu]", fv_describe(t, weight),
              fv_describe(t, bias), *out);
    return false;
}

/* axes: how many spatial ones there must be, 0 for any. */
static fv_var *convolve(fv_tape *t, const char *op, int axes, bool transpose, fv_var *x,
                        fv_var *weight, fv_var *bias, const fv_conv_opts *opts)
{
    if (!given(t, op, x) || !given(t, op, weight))
        return NULL;
    static const char *const expected[] = {"[samples, channels, ..] with 1 to 3 spatial axes",
                                           "[samples, channels, length]",
                                           "[samples, channels, height, width]"};
    fv_shape shape = x->value.shape;
    if (axes == 0 ? shape.rank < 3 || shape.rank > 5 : shape.rank != axes + 2)
        return fv_refuse(t, op, "input is %s, expected %s", fv_describe(t, x), expected[axes]);
    if (weight->value.shape.rank != shape.rank)
        return fv_refuse(t, op, "%s with weight %s: ranks differ", fv_describe(t, x),
                         fv_describe(t, weight));
    conv_map c = {.samples = shape.size[0]};
    size_t out;
    if (!fvi_conv_channels(t, op, transpose, x, weight, bias, opts, &c.groups, &out) ||
        !fvi_window_make(t, op, transpose ? FVI_TRANSPOSE : FVI_CONV, opts, shape.rank - 2,
                         shape.size + 2, weight->value.shape.size + 2, &c.w))
        return NULL;
    c.narrow = weight->value.shape.size[0] / c.groups;
    c.wide = weight->value.shape.size[1];
    shape.size[1] = out;
    for (int i = 2; i < shape.rank; i++)
        shape.size[i] = (transpose ? c.w.in : c.w.out)[i + FVI_SPATIAL - shape.rank];
    return fvi_record(t, transpose ? FVI_OP_conv_transpose : FVI_OP_conv, shape, &c, sizeof c, 3,
                      (fv_var *[]){x, weight, bias});
}

fv_var *fv_conv1d(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts)
{
    return convolve(t, "conv1d", 1, false, x, weight, bias, opts);
}

fv_var *fv_conv2d(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts)
{
    return convolve(t, "conv2d", 2, false, x, weight, bias, opts);
}

fv_var *fv_conv(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias, const fv_conv_opts *opts)
{
    return convolve(t, "conv", 0, false, x, weight, bias, opts);
}

fv_var *fv_conv_transpose(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                          const fv_conv_opts *opts)
{
    return convolve(t, "conv_transpose", 0, true, x, weight, bias, opts);
}
#endif
