/* Resolves the options of convolutions and pools on segments, and the segments of their results. */
#include "autograd/ops/window_segments.h"

#if FVI_ONCE
/* Options of the second and third axis, which segments have not. */
static bool has_one_axis(const fv_conv_opts *o)
{
    for (int i = 1; o != NULL && i < FVI_SPATIAL; i++)
        if (o->stride[i] > 0 || o->padding[i] > 0 || o->padding_after[i] > 0 ||
            o->dilation[i] > 0 || o->output_padding[i] > 0 || o->kernel[i] > 0)
            return false;
    return true;
}

bool fvi_segment_window_make(fv_tape *t, const char *op, window_kind kind, const fv_var *x,
                             const fv_segments *segments, const size_t *kernel,
                             const fv_conv_opts *opts, const fv_segments **out, segment_window *w)
{
    window one;
    if (!has_one_axis(opts)) {
        fv_refuse(t, op, "options of axis 1 or 2, but segments have one axis");
        return false;
    }
    if (!segmented(t, op, x, segments) ||
        !fvi_window_make(t, op, kind, opts, 1, NULL, kernel, &one))
        return false;
    const bool ceil = opts != NULL && opts->ceil;
    const size_t extra = opts != NULL ? opts->output_padding[0] : 0;
    size_t *offsets = fvi_tape_take(t, segments->count + 1, sizeof *offsets);
    fv_segments *made = fvi_tape_take(t, 1, sizeof *made);
    if (offsets == NULL || made == NULL)
        return false;
    bool same = true;
    offsets[0] = 0;
    for (size_t s = 0; s < segments->count; s++) {
        const size_t length = segments->offsets[s + 1] - segments->offsets[s];
        const size_t places = fvi_window_places(&one, kind, ceil, extra, length);
        if (places == SIZE_MAX || !fvi_add(offsets[s], places, &offsets[s + 1])) {
            fv_refuse(t, op, "segment %zu of %zu rows: the result is larger than can be", s,
                      length);
            return false;
        }
        same = same && places == length;
    }
    if (!same && out == NULL) {
        fv_refuse(t, op, "lengths change, so the segments of the result are needed");
        return false;
    }
    *made = (fv_segments){segments->count, offsets};
    const fv_segments *result = same ? segments : made;
    *w = (segment_window){.kernel = one.kernel[2],
                          .stride = one.stride[2],
                          .dilation = one.dilation[2],
                          .before = one.before[2],
                          .after = one.after[2],
                          .from = kind == FVI_TRANSPOSE ? result : segments,
                          .to = kind == FVI_TRANSPOSE ? segments : result};
    if (out != NULL)
        *out = result;
    return true;
}
#endif
