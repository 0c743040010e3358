/* Windows as columns, and columns added up again: each is the transpose of the other. */
#include "autograd/ops/window.h"

/* One row of columns for each sample, channel and tap: from the planes, or back to them. */
static void each_row(fv_tape *t, const window *w, size_t planes, const fv_real *plane,
                     fv_real *columns, const fv_real *back, fv_real *to)
{
    const size_t taps = product_of(w->kernel), places = product_of(w->out);
    const size_t numbers = product_of(w->in);
    const int parts = parts_of(t, planes, 2 * taps * places);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        for (size_t i = p.from; i < p.to; i++)
            for (size_t n = 0; n < taps; n++) {
                const window_tap tap = tap_at(w, n);
                const size_t row = (i * taps + n) * places;
                if (back == NULL)
                    tap_copy(w, &tap, cursor_at(w, 0), places, plane + i * numbers, columns + row);
                else
                    tap_add(w, &tap, cursor_at(w, 0), places, back + row, to + i * numbers);
            }
    }
}

static size_t planes_of(const fv_var *x)
{
    return x->value.shape.size[0] * x->value.shape.size[1];
}

static bool unfold_forward(fv_tape *t, fv_var *y)
{
    const fv_var *x = y->in[0];
    each_row(t, y->options, planes_of(x), x->value.data, y->value.data, NULL, NULL);
    return true;
}

/* dx = the columns of dy added up: fold */
static void unfold_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_row(t, y->options, planes_of(y->in[0]), NULL, NULL, y->grad, dx);
}

static fv_var *unfold_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const fv_conv_opts opts[] = {
        {.kernel = {2, 3}, .padding = {1, 0}, .stride = {2, 1}},
        {.kernel = {2}, .dilation = {2}, .padding = {1}, .different_padding = true},
        {.kernel = {1, 1}},
    };
    static const fv_shape shapes[] = {{4, {2, 2, 3, 4}}, {3, {1, 3, 5}}, {4, {1, 1, 1, 1}}};
    return fv_unfold(t, fv_sample(s, shapes[which], -2, 2), &opts[which]);
}
FVI_OP(unfold, "y[(channel, tap), place] = x[channel, place * stride + tap * dilation - padding]",
       "", 3)

static bool fold_forward(fv_tape *t, fv_var *y)
{
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        y->value.data[i] = 0;
    each_row(t, y->options, planes_of(y), NULL, NULL, y->in[0]->value.data, y->value.data);
    return true;
}

/* dx = the windows of dy: unfold */
static void fold_backward(fv_tape *t, fv_var *y)
{
    fv_var *x = y->in[0];
    fv_real *dx = fv_grad(t, x);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *seen = dx == NULL ? NULL : fvi_tape_take(t, fvi_count(x), sizeof *seen);
    if (seen != NULL) {
        each_row(t, y->options, planes_of(y), y->grad, seen, NULL, NULL);
        add_to(fvi_count(x), seen, dx);
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *fold_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const fv_conv_opts opts[] = {
        {.kernel = {2, 3}, .padding = {1, 0}, .stride = {2, 1}},
        {.kernel = {2}, .dilation = {2}, .padding = {1}, .different_padding = true},
        {.kernel = {1, 1}},
    };
    static const fv_shape shapes[] = {{3, {2, 12, 4}}, {3, {1, 6, 4}}, {3, {1, 1, 1}}};
    static const size_t sizes[][2] = {{3, 4}, {5}, {1, 1}};
    return fv_fold(t, fv_sample(s, shapes[which], -2, 2), sizes[which], &opts[which]);
}
FVI_OP(fold, "y[channel, i] = sum of x[(channel, tap), place] that unfold would read there", "", 3)

#if FVI_ONCE
fv_var *fv_unfold(fv_tape *t, fv_var *x, const fv_conv_opts *opts)
{
    const char *op = "unfold";
    if (!given(t, op, x))
        return NULL;
    const fv_shape shape = x->value.shape;
    if (shape.rank < 3 || shape.rank > 4)
        return fv_refuse(t, op,
                         "input is %s, expected [samples, channels, ..] with 1 or 2 spatial axes",
                         fv_describe(t, x));
    window w;
    size_t rows;
    if (!fvi_window_make(t, op, FVI_UNFOLD, opts, shape.rank - 2, shape.size + 2, NULL, &w))
        return NULL;
    if (!fvi_mul(shape.size[1], product_of(w.kernel), &rows))
        return fv_refuse(t, op, "%s in windows of %zu: larger than can be", fv_describe(t, x),
                         product_of(w.kernel));
    return fvi_record(t, FVI_OP_unfold, FV_SHAPE(shape.size[0], rows, product_of(w.out)), &w,
                      sizeof w, 1, &x);
}

fv_var *fv_fold(fv_tape *t, fv_var *x, const size_t *sizes, const fv_conv_opts *opts)
{
    const char *op = "fold";
    if (!given(t, op, x))
        return NULL;
    const fv_shape shape = x->value.shape;
    if (shape.rank != 3)
        return fv_refuse(t, op, "input is %s, expected [samples, channels * window, places]",
                         fv_describe(t, x));
    if (sizes == NULL)
        return fv_refuse(t, op, "no sizes");
    const int axes = opts != NULL && opts->kernel[1] > 0 ? 2 : 1;
    window w;
    if (!fvi_window_make(t, op, FVI_UNFOLD, opts, axes, sizes, NULL, &w))
        return NULL;
    const size_t taps = product_of(w.kernel), places = product_of(w.out);
    if (shape.size[1] % taps != 0 || shape.size[2] != places)
        return fv_refuse(t, op, "%s, expected [samples, channels * %zu, %zu]", fv_describe(t, x),
                         taps, places);
    fv_shape out = {axes + 2,
                    {shape.size[0], shape.size[1] / taps, sizes[0], axes > 1 ? sizes[1] : 0}};
    return fvi_record(t, FVI_OP_fold, out, &w, sizeof w, 1, &x);
}
#endif
