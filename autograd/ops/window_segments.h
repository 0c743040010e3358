/* Windows over the rows of segments: a segment at a time, so that none crosses a border. */
#ifndef FVI_WINDOW_SEGMENTS_H
#define FVI_WINDOW_SEGMENTS_H

#include "autograd/ops/window.h"

/* A window along one axis (the last of w), and the rows that look (to) and are looked at (from). */
typedef struct {
    size_t kernel, stride, dilation, before;
    size_t after; /* for pools that count their padding */
    const fv_segments *from, *to;
} segment_window;

/* Rows to_first .. to_end - 1 and from_first .. from_end - 1 are segment s. */
typedef struct {
    size_t to_first, to_end, from_first, from_end;
} segment_span;

static inline segment_span segment_at(const segment_window *w, size_t s)
{
    return (segment_span){w->to->offsets[s], w->to->offsets[s + 1], w->from->offsets[s],
                          w->from->offsets[s + 1]};
}

/* The taps first .. end - 1 through which row to_first + i sees inside, and in *row what tap first sees. */
static inline void taps_inside(const segment_window *w, const segment_span *s, size_t i,
                               size_t *first, size_t *end, size_t *row)
{
    const size_t at = i * w->stride, length = s->from_end - s->from_first;
    const size_t hidden = w->before > at ? (w->before - at + w->dilation - 1) / w->dilation : 0;
    const size_t last = length + w->before > at ? length + w->before - at : 0;
    const size_t seen = (last + w->dilation - 1) / w->dilation;
    *end = seen < w->kernel ? seen : w->kernel;
    *first = hidden < *end ? hidden : *end;
    *row = s->from_first + (*first < *end ? at + *first * w->dilation - w->before : 0);
}

/* Resolves options for x [rows, d] in segments, and makes the segments of the result: kept on the tape, or
 * those of x where no length changes. Refuses what does not fit, and NULL for out where lengths change. */
bool fvi_segment_window_make(fv_tape *t, const char *op, window_kind kind, const fv_var *x,
                             const fv_segments *segments, const size_t *kernel,
                             const fv_conv_opts *opts, const fv_segments **out, segment_window *w);

#endif
