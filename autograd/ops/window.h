/* Windows over one to three spatial axes: which places of the input each place of the result looks at.
 *
 * Place o of an axis looks through tap k at o * stride + k * dilation - before, if that is inside.
 * Missing axes stand first and have size 1, so that the last is the one whose numbers are adjacent. */
#ifndef FVI_WINDOW_H
#define FVI_WINDOW_H

#include "autograd/ops/walk.h"

enum { FVI_SPATIAL = 3 };

typedef struct {
    int axes; /* as in the call */
    size_t in[FVI_SPATIAL], out[FVI_SPATIAL];
    size_t kernel[FVI_SPATIAL], stride[FVI_SPATIAL], dilation[FVI_SPATIAL];
    size_t before[FVI_SPATIAL], after[FVI_SPATIAL]; /* padding */
} window;

static inline size_t product_of(const size_t size[FVI_SPATIAL])
{
    return size[0] * size[1] * size[2];
}

/* How a window comes by its sizes. */
typedef enum {
    FVI_CONV,      /* the kernel is given, stride is 1 unless given */
    FVI_TRANSPOSE, /* the same, and the sizes are those of the result */
    FVI_POOL,      /* the kernel is an option, stride is the kernel unless given */
    FVI_UNFOLD     /* the kernel is an option, stride is 1 unless given */
} window_kind;

/* Resolves options (NULL: defaults) for so many spatial axes of these sizes (NULL: they are not known yet);
 * the kernel of a pool or unfolding comes from the options. Refuses what does not fit. */
bool fvi_window_make(fv_tape *t, const char *op, window_kind kind, const fv_conv_opts *opts,
                     int axes, const size_t *size, const size_t *kernel, window *w);
/* The places along the last axis for another size of it: 0 where no window fits, and for size 0; SIZE_MAX
 * when there are more than can be. With FVI_TRANSPOSE the size of the result. */
size_t fvi_window_places(const window *w, window_kind kind, bool ceil, size_t output_padding,
                         size_t size);

/* ---- taps ---------------------------------------------------------------------------------------- */

/* One tap: the places that look inside through it, and where they would look from place 0. */
typedef struct {
    size_t first[FVI_SPATIAL], end[FVI_SPATIAL];
    ptrdiff_t start;
} window_tap;

static inline void tap_range(const window *w, int axis, size_t k, size_t *first, size_t *end)
{
    const size_t at = k * w->dilation[axis], stride = w->stride[axis], before = w->before[axis];
    const size_t last = w->in[axis] + before > at ? w->in[axis] + before - at : 0;
    *first = before > at ? (before - at + stride - 1) / stride : 0;
    *end = (last + stride - 1) / stride;
    *end = *end < w->out[axis] ? *end : w->out[axis];
    *first = *first < *end ? *first : *end;
}

static inline window_tap tap_at(const window *w, size_t number)
{
    window_tap p = {.start = 0};
    ptrdiff_t step = 1;
    for (int i = FVI_SPATIAL - 1; i >= 0; i--) {
        const size_t k = number % w->kernel[i];
        number /= w->kernel[i];
        tap_range(w, i, k, &p.first[i], &p.end[i]);
        p.start += ((ptrdiff_t)(k * w->dilation[i]) - (ptrdiff_t)w->before[i]) * step;
        step *= (ptrdiff_t)w->in[i];
    }
    return p;
}

static inline bool tap_is_everywhere(const window *w, const window_tap *p)
{
    for (int i = 0; i < FVI_SPATIAL; i++)
        if (p->first[i] > 0 || p->end[i] < w->out[i])
            return false;
    return true;
}

/* A place, and where it stands along each axis. */
typedef struct {
    size_t place, at[FVI_SPATIAL];
} cursor;

static inline cursor cursor_at(const window *w, size_t place)
{
    const size_t row = w->out[2] > 0 ? place / w->out[2] : 0;
    return (cursor){place,
                    {w->out[1] > 0 ? row / w->out[1] : 0, w->out[1] > 0 ? row % w->out[1] : 0,
                     w->out[2] > 0 ? place % w->out[2] : 0}};
}

/* Places place .. place + count - 1 that look at at, at + stride, .. */
typedef struct {
    size_t place, count;
    ptrdiff_t at;
} tap_run;

/* The next run that a tap has inside, from a cursor on and before place end; false when there is none. */
static inline bool next_run(const window *w, const window_tap *p, cursor *c, size_t end, tap_run *r)
{
    while (c->place < end) {
        const size_t x = c->at[2], y = c->at[1], z = c->at[0], row = c->place - x;
        const size_t first = x > p->first[2] ? x : p->first[2];
        const size_t last = end - row < p->end[2] ? end - row : p->end[2];
        c->place = row + w->out[2];
        c->at[2] = 0;
        if (++c->at[1] == w->out[1]) {
            c->at[1] = 0;
            c->at[0]++;
        }
        if (y < p->first[1] || y >= p->end[1] || z < p->first[0] || z >= p->end[0] || first >= last)
            continue;
        r->place = row + first;
        r->count = last - first;
        r->at =
            p->start + (ptrdiff_t)(((z * w->stride[0] * w->in[1] + y * w->stride[1]) * w->in[2]) +
                                   first * w->stride[2]);
        return true;
    }
    return false;
}

/* What places c .. end - 1 see of a plane through a tap, zeros outside. */
static inline void tap_copy(const window *w, const window_tap *p, cursor c, size_t end,
                            const fv_real *plane, fv_real *restrict seen)
{
    const size_t from = c.place, stride = w->stride[2];
    tap_run r;
    if (!tap_is_everywhere(w, p))
        for (size_t i = 0; i < end - from; i++)
            seen[i] = 0;
    while (next_run(w, p, &c, end, &r)) {
        const fv_real *restrict in = plane + r.at;
        fv_real *restrict to = seen + (r.place - from);
        if (stride == 1)
            for (size_t i = 0; i < r.count; i++)
                to[i] = in[i];
        else
            for (size_t i = 0; i < r.count; i++)
                to[i] = in[i * stride];
    }
}

/* The transpose: adds to the plane where the places look. */
static inline void tap_add(const window *w, const window_tap *p, cursor c, size_t end,
                           const fv_real *restrict seen, fv_real *plane)
{
    const size_t from = c.place, stride = w->stride[2];
    tap_run r;
    while (next_run(w, p, &c, end, &r)) {
        fv_real *restrict to = plane + r.at;
        const fv_real *restrict in = seen + (r.place - from);
        if (stride == 1)
            for (size_t i = 0; i < r.count; i++)
                to[i] += in[i];
        else
            for (size_t i = 0; i < r.count; i++)
                to[i * stride] += in[i];
    }
}

#endif
