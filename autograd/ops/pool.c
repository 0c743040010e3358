/* Pooling over windows of the spatial axes, plane by plane, tap by tap: the largest and the mean. */
#include "autograd/ops/window.h"

#include <math.h>

typedef struct {
    window w;
    bool exclude_padding;
} pool_options;

static const window *window_of(const fv_var *y)
{
    return &((const pool_options *)y->options)->w;
}

static size_t planes_of(const fv_var *y)
{
    return y->value.shape.size[0] * y->value.shape.size[1];
}

static window_tap *all_taps(fv_tape *t, const window *w)
{
    const size_t taps = product_of(w->kernel);
    window_tap *tap = fvi_tape_take(t, taps, sizeof *tap);
    for (size_t i = 0; tap != NULL && i < taps; i++)
        tap[i] = tap_at(w, i);
    return tap;
}

/* ---- the largest ------------------------------------------------------------------------------- */

/* One tap of one plane: takes its number where it is the first, larger than the largest, or NaN. */
static void take_larger(const window *w, const window_tap *tap, int32_t number, size_t places,
                        const fv_real *x, fv_real *y, int32_t *won)
{
    cursor at = cursor_at(w, 0);
    const size_t stride = w->stride[2];
    for (tap_run r; next_run(w, tap, &at, places, &r);) {
        const fv_real *restrict in = x + r.at;
        fv_real *restrict best = y + r.place;
        int32_t *restrict by = won + r.place;
        for (size_t i = 0; i < r.count; i++) {
            const fv_real v = in[i * stride];
            const bool takes = by[i] < 0 || fv_re(v) > fv_re(best[i]) || fv_re(v) != fv_re(v);
            best[i] = takes ? v : best[i];
            by[i] = takes ? number : by[i];
        }
    }
}

/* saved: the tap that won each number, -1 where no tap is inside */
static bool max_pool_forward(fv_tape *t, fv_var *y)
{
    const window *w = window_of(y);
    const size_t planes = planes_of(y), places = product_of(w->out), taps = product_of(w->kernel);
    const size_t plane = product_of(w->in);
    int32_t *won = fvi_tape_take(t, fvi_count(y), sizeof *won);
    y->saved = won;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const window_tap *tap = all_taps(t, w);
    if (won == NULL || tap == NULL)
        return false;
    const int parts = parts_of(t, planes, places * taps);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            for (size_t place = i * places; place < (i + 1) * places; place++) {
                y->value.data[place] = (fv_real)-INFINITY;
                won[place] = -1;
            }
            for (size_t n = 0; n < taps; n++)
                take_larger(w, &tap[n], (int32_t)n, places, y->in[0]->value.data + i * plane,
                            y->value.data + i * places, won + i * places);
        }
    }
    fvi_arena_release(&t->arena, mark);
    return true;
}

/* dx = dy at the number that won */
static void max_pool_backward(fv_tape *t, fv_var *y)
{
    const window *w = window_of(y);
    const size_t planes = planes_of(y), places = product_of(w->out), plane = product_of(w->in);
    const int32_t *won = y->saved;
    fv_real *dx = fv_grad(t, y->in[0]);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const window_tap *tap = dx == NULL ? NULL : all_taps(t, w);
    const int parts = tap == NULL ? 0 : parts_of(t, planes, places);
#pragma omp parallel for num_threads(parts > 1 ? parts : 1) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        for (size_t i = p.from * places; i < p.to * places; i++) {
            const cursor c = cursor_at(w, i % places);
            const size_t at =
                (c.at[0] * w->stride[0] * w->in[1] + c.at[1] * w->stride[1]) * w->in[2] +
                c.at[2] * w->stride[2];
            if (won[i] >= 0)
                dx[(ptrdiff_t)(i / places * plane + at) + tap[won[i]].start] += y->grad[i];
        }
    }
    fvi_arena_release(&t->arena, mark);
}

/* far apart, so that no difference step changes the winner */
static fv_var *sample_input(fv_sampler *s, fv_shape shape)
{
    return fv_sample(s, shape, -200, 200);
}

static fv_var *max_pool_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const fv_conv_opts opts[] = {
        {.kernel = {2, 2}},
        {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true},
        {.kernel = {2, 1, 2}, .stride = {1, 1, 1}, .padding = {1, 0, 1}, .dilation = {2, 1, 1}},
        {.kernel = {1}},
    };
    static const fv_shape shapes[] = {
        {4, {2, 2, 4, 5}}, {3, {1, 2, 6}}, {5, {1, 2, 3, 2, 3}}, {3, {1, 1, 1}}};
    return fv_max_pool(t, sample_input(s, shapes[which]), &opts[which]);
}
FVI_OP(max_pool, "y[place] = largest of x in the window", "", 4)

/* ---- the mean ---------------------------------------------------------------------------------- */

/* How many taps of a place count along an axis: those inside, or inside the padding as well. */
static size_t taps_counted(const window *w, int axis, size_t place, bool exclude_padding)
{
    const size_t first = place * w->stride[axis], before = w->before[axis];
    const size_t end = before + w->in[axis] + (exclude_padding ? 0 : w->after[axis]);
    size_t count = 0;
    for (size_t k = 0; k < w->kernel[axis]; k++) {
        const size_t at = first + k * w->dilation[axis]; /* from the start of the padding */
        count += at < end && (!exclude_padding || at >= before);
    }
    return count;
}

/* What each place divides by; NULL when memory is out. */
static fv_real *divisors(fv_tape *t, const pool_options *o)
{
    const window *w = &o->w;
    const size_t places = product_of(w->out);
    fv_real *by = fvi_tape_take(t, places, sizeof *by);
    for (size_t i = 0; by != NULL && i < places; i++) {
        const cursor c = cursor_at(w, i);
        size_t count = 1;
        for (int axis = 0; axis < FVI_SPATIAL; axis++)
            count *= taps_counted(w, axis, c.at[axis], o->exclude_padding);
        by[i] = (fv_real)(count > 0 ? count : 1);
    }
    return by;
}

static void add_seen(const window *w, const window_tap *tap, size_t places, const fv_real *x,
                     fv_real *y)
{
    cursor at = cursor_at(w, 0);
    const size_t stride = w->stride[2];
    for (tap_run r; next_run(w, tap, &at, places, &r);) {
        const fv_real *restrict in = x + r.at;
        fv_real *restrict sum = y + r.place;
        for (size_t i = 0; i < r.count; i++)
            sum[i] += in[i * stride];
    }
}

static bool avg_pool_forward(fv_tape *t, fv_var *y)
{
    const window *w = window_of(y);
    const size_t planes = planes_of(y), places = product_of(w->out), taps = product_of(w->kernel);
    const size_t plane = product_of(w->in);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const window_tap *tap = all_taps(t, w);
    const fv_real *by = divisors(t, y->options);
    if (tap == NULL || by == NULL)
        return false;
    const int parts = parts_of(t, planes, places * taps);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            fv_real *restrict out = y->value.data + i * places;
            for (size_t place = 0; place < places; place++)
                out[place] = 0;
            for (size_t n = 0; n < taps; n++)
                add_seen(w, &tap[n], places, y->in[0]->value.data + i * plane, out);
            for (size_t place = 0; place < places; place++)
                out[place] /= by[place];
        }
    }
    fvi_arena_release(&t->arena, mark);
    return true;
}

/* dx = dy / count at each number of the window */
static void avg_pool_backward(fv_tape *t, fv_var *y)
{
    const window *w = window_of(y);
    const size_t planes = planes_of(y), places = product_of(w->out), taps = product_of(w->kernel);
    const size_t plane = product_of(w->in);
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx == NULL)
        return;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const int parts = parts_of(t, planes, places * taps);
    const window_tap *tap = all_taps(t, w);
    const fv_real *by = divisors(t, y->options);
    fv_real *scratch = fvi_tape_take(t, places * (size_t)parts, sizeof *scratch);
    if (tap == NULL || by == NULL || scratch == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        fv_real *share = scratch + (size_t)k * places;
        for (size_t i = p.from; i < p.to; i++) {
            for (size_t place = 0; place < places; place++)
                share[place] = y->grad[i * places + place] / by[place];
            for (size_t n = 0; n < taps; n++)
                tap_add(w, &tap[n], cursor_at(w, 0), places, share, dx + i * plane);
        }
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *avg_pool_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const fv_conv_opts opts[] = {
        {.kernel = {2, 2}},
        {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true},
        {.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true, .exclude_padding = true},
        {.kernel = {2, 1, 2}, .stride = {1, 1, 1}, .padding = {1, 0, 1}, .different_padding = true},
        {.kernel = {1}},
    };
    static const fv_shape shapes[] = {
        {4, {2, 2, 4, 5}}, {3, {1, 2, 6}}, {3, {1, 2, 6}}, {5, {1, 2, 3, 2, 3}}, {3, {1, 1, 1}}};
    return fv_avg_pool(t, fv_sample(s, shapes[which], -2, 2), &opts[which]);
}
FVI_OP(avg_pool, "y[place] = mean of x in the window", "", 5)

#if FVI_ONCE
static fv_var *pool(fv_tape *t, const char *op, fvi_op_id id, fv_var *x, const fv_conv_opts *opts)
{
    if (!given(t, op, x))
        return NULL;
    fv_shape shape = x->value.shape;
    if (shape.rank < 3 || shape.rank > 5)
        return fv_refuse(t, op,
                         "input is %s, expected [samples, channels, ..] with 1 to 3 spatial axes",
                         fv_describe(t, x));
    pool_options o = {.exclude_padding = opts != NULL && opts->exclude_padding};
    if (!fvi_window_make(t, op, FVI_POOL, opts, shape.rank - 2, shape.size + 2, NULL, &o.w))
        return NULL;
    for (int i = 2; i < shape.rank; i++)
        shape.size[i] = o.w.out[i + FVI_SPATIAL - shape.rank];
    return fvi_record(t, id, shape, &o, sizeof o, 1, &x);
}

fv_var *fv_max_pool(fv_tape *t, fv_var *x, const fv_conv_opts *opts)
{
    return pool(t, "max_pool", FVI_OP_max_pool, x, opts);
}

fv_var *fv_avg_pool(fv_tape *t, fv_var *x, const fv_conv_opts *opts)
{
    return pool(t, "avg_pool", FVI_OP_avg_pool, x, opts);
}
#endif
