/* Pooling over windows of the rows of segments, all channels of a row at once: the largest and the mean. */
#include "autograd/ops/window_segments.h"

#include <math.h>

typedef struct {
    segment_window w;
    bool exclude_padding;
} segment_pool_options;

/* A row of the result: its number, and what it sees. */
typedef struct {
    size_t r, first, end, row; /* taps first .. end - 1, the first of which sees that row */
    size_t counted;            /* what the mean divides by */
} seen_rows;

typedef void row_rule(const segment_window *w, const seen_rows *seen, size_t d, fv_var *y,
                      fv_real *dx);

/* How many taps of place i count: those inside, or inside the padding as well. */
static size_t taps_counted(const segment_pool_options *o, const segment_span *s, size_t i,
                           size_t inside)
{
    const segment_window *w = &o->w;
    const size_t end = w->before + (s->from_end - s->from_first) + w->after, at = i * w->stride;
    const size_t all = end > at ? (end - at + w->dilation - 1) / w->dilation : 0;
    const size_t counted = o->exclude_padding ? inside : all < w->kernel ? all : w->kernel;
    return counted > 0 ? counted : 1;
}

/* The rows of segments first .. end - 1. */
static void each_row(fv_var *y, size_t first, size_t end, row_rule *rule, fv_real *dx)
{
    const segment_pool_options *o = y->options;
    const size_t d = fvi_columns(y);
    for (size_t n = first; n < end; n++) {
        const segment_span s = segment_at(&o->w, n);
        for (size_t r = s.to_first; r < s.to_end; r++) {
            seen_rows seen = {.r = r};
            taps_inside(&o->w, &s, r - s.to_first, &seen.first, &seen.end, &seen.row);
            seen.counted = taps_counted(o, &s, r - s.to_first, seen.end - seen.first);
            rule(&o->w, &seen, d, y, dx);
        }
    }
}

/* All rows, a part of the segments a thread: a row that is looked at belongs to one segment. */
static void each_segment(const fv_tape *t, fv_var *y, row_rule *rule, fv_real *dx)
{
    const segment_pool_options *o = y->options;
    const size_t count = o->w.to->count;
    const int parts =
        count > 0 ? parts_of(t, count, fvi_count(y) / count * o->w.kernel + o->w.kernel) : 1;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        each_row(y, p.from, p.to, rule, dx);
    }
}

static const size_t sample_at[] = {0, 5, 5, 6, 9};
static const fv_segments sample_segments = {4, sample_at};

/* ---- the largest ------------------------------------------------------------------------------- */

static void find_largest(const segment_window *w, const seen_rows *seen, size_t d, fv_var *y,
                         fv_real *dx)
{
    (void)dx;
    const fv_real *restrict x = y->in[0]->value.data + seen->row * d;
    fv_real *restrict best = y->value.data + seen->r * d;
    int32_t *restrict won = (int32_t *)y->saved + seen->r * d;
    for (size_t c = 0; c < d; c++) {
        best[c] = (fv_real)-INFINITY;
        won[c] = -1;
    }
    for (size_t k = seen->first; k < seen->end; k++, x += w->dilation * d) {
        const int32_t tap = (int32_t)(k - seen->first);
        for (size_t c = 0; c < d; c++) {
            const bool takes =
                won[c] < 0 || fv_re(x[c]) > fv_re(best[c]) || fv_re(x[c]) != fv_re(x[c]);
            best[c] = takes ? x[c] : best[c];
            won[c] = takes ? tap : won[c];
        }
    }
}

/* saved: how many taps after the first inside the winner stands, -1 where none is inside */
static bool segment_max_pool_forward(fv_tape *t, fv_var *y)
{
    y->saved = fvi_tape_take(t, fvi_count(y), sizeof(int32_t));
    if (y->saved == NULL)
        return false;
    each_segment(t, y, find_largest, NULL);
    return true;
}

static void send_to_largest(const segment_window *w, const seen_rows *seen, size_t d, fv_var *y,
                            fv_real *dx)
{
    const int32_t *won = (const int32_t *)y->saved + seen->r * d;
    for (size_t c = 0; c < d; c++)
        if (won[c] >= 0)
            dx[(seen->row + (size_t)won[c] * w->dilation) * d + c] += y->grad[seen->r * d + c];
}

/* dx = dy at the number that won */
static void segment_max_pool_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_segment(t, y, send_to_largest, dx);
}

static fv_var *segment_max_pool_sample(fv_sampler *s, int which)
{
    static const fv_conv_opts opts[] = {
        {.kernel = {2}},
        {.kernel = {3}, .stride = {1}, .padding = {1}},
        {.kernel = {2}, .stride = {2}, .dilation = {2}, .ceil = true},
    };
    const fv_segments *out;
    /* far apart, so that no difference step changes the winner */
    return fv_segment_max_pool(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 3), -200, 200),
                               &sample_segments, &opts[which], &out);
}
FVI_OP(segment_max_pool, "y[r] = largest of x in the window, inside the segment", "", 3)

/* ---- the mean ---------------------------------------------------------------------------------- */

static void find_mean(const segment_window *w, const seen_rows *seen, size_t d, fv_var *y,
                      fv_real *dx)
{
    (void)dx;
    const fv_real *x = y->in[0]->value.data + seen->row * d;
    fv_real *restrict out = y->value.data + seen->r * d;
    for (size_t c = 0; c < d; c++)
        out[c] = 0;
    for (size_t k = seen->first; k < seen->end; k++, x += w->dilation * d)
        add_to(d, x, out);
    for (size_t c = 0; c < d; c++)
        out[c] /= (fv_real)seen->counted;
}

static bool segment_avg_pool_forward(fv_tape *t, fv_var *y)
{
    each_segment(t, y, find_mean, NULL);
    return true;
}

static void share_mean(const segment_window *w, const seen_rows *seen, size_t d, fv_var *y,
                       fv_real *dx)
{
    const fv_real *restrict dy = y->grad + seen->r * d;
    for (size_t k = seen->first; k < seen->end; k++) {
        fv_real *restrict to = dx + (seen->row + (k - seen->first) * w->dilation) * d;
        for (size_t c = 0; c < d; c++)
            to[c] += dy[c] / (fv_real)seen->counted;
    }
}

/* dx = dy / count at each row of the window */
static void segment_avg_pool_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_segment(t, y, share_mean, dx);
}

static fv_var *segment_avg_pool_sample(fv_sampler *s, int which)
{
    static const fv_conv_opts opts[] = {
        {.kernel = {2}},
        {.kernel = {3}, .stride = {1}, .padding = {1}},
        {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true, .exclude_padding = true},
    };
    const fv_segments *out;
    return fv_segment_avg_pool(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 3), -2, 2),
                               &sample_segments, &opts[which], &out);
}
FVI_OP(segment_avg_pool, "y[r] = mean of x in the window, inside the segment", "", 3)

#if FVI_ONCE
static fv_var *pool(fv_tape *t, const char *op, fvi_op_id id, fv_var *x,
                    const fv_segments *segments, const fv_conv_opts *opts, const fv_segments **out)
{
    segment_pool_options o = {.exclude_padding = opts != NULL && opts->exclude_padding};
    if (!given(t, op, x) ||
        !fvi_segment_window_make(t, op, FVI_POOL, x, segments, NULL, opts, out, &o.w))
        return NULL;
    return fvi_record(t, id, FV_SHAPE(fv_segments_rows(o.w.to), fvi_columns(x)), &o, sizeof o, 1,
                      &x);
}

fv_var *fv_segment_max_pool(fv_tape *t, fv_var *x, const fv_segments *segments,
                            const fv_conv_opts *opts, const fv_segments **out)
{
    return pool(t, "segment_max_pool", FVI_OP_segment_max_pool, x, segments, opts, out);
}

fv_var *fv_segment_avg_pool(fv_tape *t, fv_var *x, const fv_segments *segments,
                            const fv_conv_opts *opts, const fv_segments **out)
{
    return pool(t, "segment_avg_pool", FVI_OP_segment_avg_pool, x, segments, opts, out);
}
#endif
