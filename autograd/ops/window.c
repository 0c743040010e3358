/* Resolves the options of convolutions, pools and unfoldings into windows. */
#include "autograd/ops/window.h"

#if FVI_ONCE
/* How far a window reaches along an axis; false when that overflows. */
static bool reach_of(const window *w, int i, size_t *reach)
{
    return fvi_mul(w->dilation[i], w->kernel[i] - 1, reach) && fvi_add(*reach, 1, reach);
}

/* Options that have no meaning for this kind of op. */
static const char *misplaced(const fv_conv_opts *o, window_kind kind)
{
    const bool pooled = kind == FVI_POOL, has_kernel = pooled || kind == FVI_UNFOLD;
    for (int i = 0; i < FVI_SPATIAL; i++) {
        if (o->output_padding[i] > 0 && kind != FVI_TRANSPOSE)
            return "output_padding is for transposed convolutions";
        if (o->kernel[i] > 0 && !has_kernel)
            return "the kernel's size is that of the weight";
    }
    if (o->groups > 1 && has_kernel)
        return "groups are for convolutions";
    if ((o->ceil || o->exclude_padding) && !pooled)
        return "ceil and exclude_padding are for pooling";
    return NULL;
}

/* The places of an axis: at most as many as windows fit into the padded input. */
static bool count_places(const window *w, int i, bool ceil, size_t *places)
{
    size_t padded, reach;
    if (!reach_of(w, i, &reach) || !fvi_add(w->in[i], w->before[i], &padded) ||
        !fvi_add(padded, w->after[i], &padded) || padded > PTRDIFF_MAX)
        return false;
    *places = 0;
    if (padded < reach && !(ceil && padded + w->stride[i] > reach))
        return true;
    const size_t more = ceil ? w->stride[i] - 1 : 0;
    *places = (padded + more - reach) / w->stride[i] + 1;
    if (ceil && (*places - 1) * w->stride[i] >= w->in[i] + w->before[i])
        --*places; /* the last window must start inside, or before */
    return true;
}

/* What a transposed convolution makes of count places. */
static bool spread_places(const window *w, int i, size_t output_padding, size_t count, size_t *size)
{
    size_t reach, padding;
    if (!reach_of(w, i, &reach) || !fvi_mul(count - 1, w->stride[i], size) ||
        !fvi_add(*size, reach, size) || !fvi_add(*size, output_padding, size) ||
        !fvi_add(w->before[i], w->after[i], &padding) || *size > PTRDIFF_MAX)
        return false;
    *size = *size > padding ? *size - padding : 0;
    return true;
}

size_t fvi_window_places(const window *w, window_kind kind, bool ceil, size_t output_padding,
                         size_t size)
{
    window one = *w;
    size_t count = 0;
    one.in[2] = size;
    const bool fits =
        size == 0 || (kind == FVI_TRANSPOSE ? spread_places(w, 2, output_padding, size, &count)
                                            : count_places(&one, 2, ceil, &count));
    return fits ? count : SIZE_MAX;
}

/* The options of an axis, defaults filled in. */
static bool resolve_axis(fv_tape *t, const char *op, window_kind kind, const fv_conv_opts *o,
                         int axis, size_t kernel, int i, window *w)
{
    if (kernel == 0) {
        fv_refuse(t, op, "the kernel of axis %d is 0", axis);
        return false;
    }
    w->kernel[i] = kernel;
    w->stride[i] = o->stride[axis] > 0 ? o->stride[axis] : kind == FVI_POOL ? kernel : 1;
    w->dilation[i] = o->dilation[axis] > 0 ? o->dilation[axis] : 1;
    w->before[i] = o->padding[axis];
    w->after[i] = o->different_padding ? o->padding_after[axis] : o->padding[axis];
    const size_t extra = o->output_padding[axis];
    size_t reach;
    if (!reach_of(w, i, &reach) || reach > PTRDIFF_MAX || w->stride[i] > PTRDIFF_MAX)
        fv_refuse(t, op,
                  "a window of %zu, dilation %zu and stride %zu along axis %d: larger than "
                  "can be",
                  kernel, w->dilation[i], w->stride[i], axis);
    else if (kind == FVI_POOL && (w->before[i] > kernel / 2 || w->after[i] > kernel / 2))
        fv_refuse(t, op,
                  "padding %zu and %zu of axis %d, expected at most half of the kernel's %zu",
                  w->before[i], w->after[i], axis, kernel);
    else if (extra > 0 && extra >= w->stride[i] && extra >= w->dilation[i])
        fv_refuse(t, op,
                  "output_padding %zu of axis %d, expected less than stride %zu or "
                  "dilation %zu",
                  extra, axis, w->stride[i], w->dilation[i]);
    return fv_tape_ok(t);
}

/* The places of an axis of that size. */
static bool place_axis(fv_tape *t, const char *op, window_kind kind, const fv_conv_opts *o,
                       int axis, size_t size, int i, window *w)
{
    const bool spread = kind == FVI_TRANSPOSE;
    size_t *of = spread ? w->out : w->in, *to = spread ? w->in : w->out;
    of[i] = size;
    to[i] = 0;
    const bool fits = spread
                          ? size == 0 || spread_places(w, i, o->output_padding[axis], size, to + i)
                          : count_places(w, i, o->ceil, to + i);
    if (fits && to[i] > 0)
        return true;
    fv_refuse(t, op, "axis %d of size %zu with padding %zu and %zu under a kernel of %zu: %s", axis,
              size, w->before[i], w->after[i], w->kernel[i],
              fits ? "no place is left" : "larger than can be");
    return false;
}

bool fvi_window_make(fv_tape *t, const char *op, window_kind kind, const fv_conv_opts *opts,
                     int axes, const size_t *size, const size_t *kernel, window *w)
{
    static const fv_conv_opts defaults = {.groups = 1};
    const fv_conv_opts *o = opts != NULL ? opts : &defaults;
    const char *why = misplaced(o, kind);
    if (why != NULL) {
        fv_refuse(t, op, "%s", why);
        return false;
    }
    *w = (window){.axes = axes};
    for (int i = 0; i < FVI_SPATIAL; i++) {
        const int axis = i - (FVI_SPATIAL - axes);
        if (axis < 0)
            w->in[i] = w->out[i] = w->kernel[i] = w->stride[i] = w->dilation[i] = 1;
        else if (!resolve_axis(t, op, kind, o, axis,
                               kernel != NULL ? kernel[axis] : o->kernel[axis], i, w) ||
                 (size != NULL && !place_axis(t, op, kind, o, axis, size[axis], i, w)))
            return false;
    }
    size_t taps;
    if (!fvi_mul(w->kernel[0], w->kernel[1], &taps) || !fvi_mul(taps, w->kernel[2], &taps) ||
        taps > INT32_MAX) { /* so that a number of a tap fits 32 bits */
        fv_refuse(t, op, "the kernel is larger than can be");
        return false;
    }
    return true;
}
#endif
