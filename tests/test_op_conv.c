/* Convolutions, pools and unfoldings against numbers worked out by hand, and the same bits however cut. */
#include <math.h>

#include "tests/expect.h"

#define OPTS(...) (&(const fv_conv_opts){__VA_ARGS__})

static fv_var *input(fv_tape *t, fv_shape shape)
{
    return fv_input(t, shape, up);
}

Test(op_conv, conv1d)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 5)), *w = input(t, FV_SHAPE(1, 1, 2));
    fv_var *b = input(t, FV_SHAPE(1));
    fv_var *y = fv_conv1d(t, x, w, b, NULL); /* x[i] + 2 x[i + 1] + 1 */
    expect(t, y, FV_SHAPE(1, 1, 4), (const double[]){6, 9, 12, 15});
    expect_grad(t, y, x, (const double[]){1, 3, 3, 3, 2});
    expect_grad(t, y, w, (const double[]){10, 14});
    expect_grad(t, y, b, (const double[]){4});
    expect(t, fv_conv1d(t, x, w, NULL, OPTS(.padding = {1}, .stride = {2})), FV_SHAPE(1, 1, 3),
           (const double[]){2, 8, 14});
    expect(t, fv_conv1d(t, x, w, NULL, OPTS(.dilation = {3})), FV_SHAPE(1, 1, 2),
           (const double[]){9, 12});
    expect(t, fv_conv1d(t, x, w, NULL, OPTS(.padding = {1}, .different_padding = true)),
           FV_SHAPE(1, 1, 5), (const double[]){2, 5, 8, 11, 14}); /* causal */
    fv_tape_free(t);
}

/* Two groups of two channels: channel 2 g + i meets weight i of group g. */
Test(op_conv, groups)
{
    fv_tape *t = begin(2);
    fv_var *x = input(t, FV_SHAPE(1, 4, 2)), *w = input(t, FV_SHAPE(2, 2, 1));
    fv_var *y = fv_conv1d(t, x, w, NULL, OPTS(.groups = 2));
    expect(t, y, FV_SHAPE(1, 2, 2), (const double[]){1 + 6, 2 + 8, 15 + 28, 18 + 32});
    expect_grad(t, y, x, (const double[]){1, 1, 2, 2, 3, 3, 4, 4});
    expect_grad(t, y, w, (const double[]){3, 7, 11, 15});
    fv_var *depthwise = fv_conv1d(t, x, input(t, FV_SHAPE(4, 1, 2)), NULL, OPTS(.groups = 4));
    expect(t, depthwise, FV_SHAPE(1, 4, 1), (const double[]){5, 25, 61, 113});
    expect_grad(t, depthwise, x, (const double[]){1, 2, 3, 4, 5, 6, 7, 8});
    fv_tape_free(t);
}

Test(op_conv, conv2d_and_3d)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 3, 3)), *w = input(t, FV_SHAPE(1, 1, 2, 2));
    fv_var *y = fv_conv2d(t, x, w, NULL, NULL);
    expect(t, y, FV_SHAPE(1, 1, 2, 2), (const double[]){37, 47, 67, 77});
    expect_grad(t, y, x, (const double[]){1, 3, 2, 4, 10, 6, 3, 7, 4});
    expect_grad(t, y, w, (const double[]){12, 16, 24, 28});
    fv_var *same = fv_conv2d(t, x, w, NULL, OPTS(.padding = {1, 1}, .stride = {2, 2}));
    expect(t, same, FV_SHAPE(1, 1, 2, 2), (const double[]){4, 2 * 3 + 3 * 4, 4 * 2 + 7 * 4, 77});
    fv_var *cube = fv_conv(t, input(t, FV_SHAPE(1, 1, 2, 2, 2)), input(t, FV_SHAPE(1, 1, 2, 2, 2)),
                           NULL, NULL);
    expect(t, cube, FV_SHAPE(1, 1, 1, 1, 1), (const double[]){204});
    expect(t, fv_conv(t, input(t, FV_SHAPE(0, 1, 3)), input(t, FV_SHAPE(2, 1, 3)), NULL, NULL),
           FV_SHAPE(0, 2, 1), NULL);
    fv_tape_free(t);
}

/* Without channels only the bias is left. */
Test(op_conv, no_channels)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 0, 3)), *w = input(t, FV_SHAPE(2, 0, 2));
    fv_var *b = input(t, FV_SHAPE(2)), *y = fv_conv(t, x, w, b, NULL);
    expect(t, y, FV_SHAPE(1, 2, 2), (const double[]){1, 1, 2, 2});
    expect_grad(t, y, b, (const double[]){2, 2});
    fv_tape_free(t);
}

Test(op_conv, transpose)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 3)), *w = input(t, FV_SHAPE(1, 1, 2));
    fv_var *b = input(t, FV_SHAPE(1)), *y = fv_conv_transpose(t, x, w, b, NULL);
    expect(t, y, FV_SHAPE(1, 1, 4), (const double[]){2, 5, 8, 7});
    expect_grad(t, y, x, (const double[]){3, 3, 3});
    expect_grad(t, y, w, (const double[]){6, 6});
    expect_grad(t, y, b, (const double[]){4});
    const fv_conv_opts apart = {.stride = {3}, .output_padding = {1}};
    expect(t, fv_conv_transpose(t, x, w, NULL, &apart), FV_SHAPE(1, 1, 9),
           (const double[]){1, 2, 0, 2, 4, 0, 3, 6, 0});
    expect(t, fv_conv_transpose(t, x, w, NULL, OPTS(.padding = {1})), FV_SHAPE(1, 1, 2),
           (const double[]){4, 7});
    fv_tape_free(t);
}

Test(op_conv, max_pool)
{
    static const fv_real numbers[] = {3, 3, -1, -2, 5, 5, 5, -7};
    fv_tape *t = begin(1);
    fv_var *x = fv_input(t, FV_SHAPE(1, 1, 8), numbers);
    fv_var *y = fv_max_pool(t, x, OPTS(.kernel = {2}));
    expect(t, y, FV_SHAPE(1, 1, 4), (const double[]){3, -1, 5, 5});
    expect_grad(t, y, x, (const double[]){1, 0, 1, 0, 1, 0, 1, 0}); /* the first of equals */
    fv_var *padded = fv_max_pool(t, fv_input(t, FV_SHAPE(1, 1, 2), numbers + 2),
                                 OPTS(.kernel = {3}, .padding = {1}, .stride = {1}));
    expect(t, padded, FV_SHAPE(1, 1, 2), (const double[]){-1, -1}); /* not the padding's 0 */
    fv_var *square =
        fv_max_pool(t, input(t, FV_SHAPE(1, 1, 3, 3)), OPTS(.kernel = {2, 2}, .ceil = true));
    expect(t, square, FV_SHAPE(1, 1, 2, 2), (const double[]){5, 6, 8, 9});
    static const fv_real with_nan[] = {1, (fv_real)NAN, 3, 2};
    fv_var *nan = fv_max_pool(t, fv_input(t, FV_SHAPE(1, 1, 4), with_nan), OPTS(.kernel = {2}));
    cr_expect(isnan((double)fv_re(nan->value.data[0])) && fv_re(nan->value.data[1]) == 3);
    fv_tape_free(t);
}

/* The last window of ceil starts inside the input or the padding before it, or is none. */
Test(op_conv, ceil)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 5));
    expect(t, fv_max_pool(t, x, OPTS(.kernel = {2}, .ceil = true)), FV_SHAPE(1, 1, 3),
           (const double[]){2, 4, 5});
    expect(t, fv_max_pool(t, x, OPTS(.kernel = {3}, .stride = {2}, .padding = {1}, .ceil = true)),
           FV_SHAPE(1, 1, 3), (const double[]){2, 4, 5});
    expect(t, fv_max_pool(t, x, OPTS(.kernel = {1}, .stride = {3}, .ceil = true)),
           FV_SHAPE(1, 1, 2), (const double[]){1, 4}); /* the third would start at 6 */
    fv_tape_free(t);
}

Test(op_conv, avg_pool)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 4));
    const fv_conv_opts all = {.kernel = {2}, .stride = {2}, .padding = {1}},
                       inside = {
                           .kernel = {2}, .stride = {2}, .padding = {1}, .exclude_padding = true};
    fv_var *y = fv_avg_pool(t, x, &all);
    expect(t, y, FV_SHAPE(1, 1, 3), (const double[]){0.5, 2.5, 2});
    expect_grad(t, y, x, (const double[]){0.5, 0.5, 0.5, 0.5});
    y = fv_avg_pool(t, x, &inside);
    expect(t, y, FV_SHAPE(1, 1, 3), (const double[]){1, 2.5, 4});
    expect_grad(t, y, x, (const double[]){1, 0.5, 0.5, 1});
    /* what hangs over the end counts in no divisor: the window of 4 alone divides by 1 */
    expect(t, fv_avg_pool(t, x, OPTS(.kernel = {3}, .ceil = true)), FV_SHAPE(1, 1, 2),
           (const double[]){2, 4});
    fv_tape_free(t);
}

Test(op_conv, adaptive)
{
    fv_tape *t = begin(2);
    fv_var *x = input(t, FV_SHAPE(1, 1, 5));
    fv_var *y = fv_adaptive_avg_pool(t, x, (const size_t[]){2}); /* 0 .. 2 and 2 .. 4 */
    expect(t, y, FV_SHAPE(1, 1, 2), (const double[]){2, 4});
    y = fv_adaptive_max_pool(t, x, (const size_t[]){2});
    expect(t, y, FV_SHAPE(1, 1, 2), (const double[]){3, 5});
    expect_grad(t, y, x, (const double[]){0, 0, 1, 0, 1});
    expect(t, fv_adaptive_max_pool(t, x, (const size_t[]){0}), FV_SHAPE(1, 1, 0), NULL);
    fv_var *wide = fv_adaptive_avg_pool(t, input(t, FV_SHAPE(1, 1, 2, 2)), (const size_t[]){1, 4});
    expect(t, wide, FV_SHAPE(1, 1, 1, 4), (const double[]){2, 2, 3, 3});
    fv_tape_free(t);
}

Test(op_conv, unfold_and_fold)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(1, 1, 2, 3));
    const fv_conv_opts opts = {.kernel = {2, 2}};
    fv_var *y = fv_unfold(t, x, &opts);
    expect(t, y, FV_SHAPE(1, 4, 2), (const double[]){1, 2, 2, 3, 4, 5, 5, 6});
    expect_grad(t, y, x, (const double[]){1, 2, 1, 1, 2, 1});
    fv_var *back = fv_fold(t, y, (const size_t[]){2, 3}, &opts);
    expect(t, back, FV_SHAPE(1, 1, 2, 3), (const double[]){1, 4, 3, 4, 10, 6});
    expect_grad(t, back, x, (const double[]){1, 2, 1, 1, 2, 1});
    fv_var *line = fv_unfold(t, input(t, FV_SHAPE(1, 2, 2)), OPTS(.kernel = {2}, .padding = {1}));
    expect(t, line, FV_SHAPE(1, 4, 3), (const double[]){0, 1, 2, 1, 2, 0, 0, 3, 4, 3, 4, 0});
    fv_tape_free(t);
}

/* ---- on segments ------------------------------------------------------------------------------- */

static const size_t rows_at[] = {0, 3, 3, 4};
static const fv_segments segments = {3, rows_at};

static void expect_segments(const fv_segments *out, const size_t *offsets)
{
    cr_assert_eq(out->count, 3);
    cr_expect_arr_eq(out->offsets, offsets, 4 * sizeof *offsets);
}

Test(op_conv, segment_conv)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(4, 1)), *w = input(t, FV_SHAPE(1, 1, 2));
    fv_var *b = input(t, FV_SHAPE(1));
    const fv_segments *out;
    fv_var *y = fv_segment_conv(t, x, &segments, w, b, NULL, &out);
    expect(t, y, FV_SHAPE(2, 1), (const double[]){6, 9}); /* the last segment is too short */
    expect_segments(out, (const size_t[]){0, 2, 2, 2});
    expect_grad(t, y, x, (const double[]){1, 3, 2, 0});
    expect_grad(t, y, w, (const double[]){3, 5});
    expect_grad(t, y, b, (const double[]){2});
    const fv_conv_opts causal = {.padding = {1}, .different_padding = true};
    y = fv_segment_conv(t, x, &segments, w, NULL, &causal, &out);
    expect(t, y, FV_SHAPE(4, 1), (const double[]){2, 5, 8, 8});
    cr_expect_eq(out, &segments, "lengths stay, and so do the segments");
    expect_grad(t, y, x, (const double[]){3, 3, 2, 2});
    cr_expect_not_null(fv_segment_conv(t, x, &segments, w, NULL, &causal, NULL));
    fv_tape_free(t);
}

/* Two rows of two channels, each its own group; and two channels in one. */
Test(op_conv, segment_channels)
{
    static const size_t at[] = {0, 2};
    static const fv_segments one = {1, at};
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(2, 2)), *w = input(t, FV_SHAPE(2, 1, 2));
    const fv_segments *out;
    fv_var *y = fv_segment_conv(t, x, &one, w, NULL, OPTS(.groups = 2), &out);
    expect(t, y, FV_SHAPE(1, 2), (const double[]){1 + 6, 6 + 16});
    expect_grad(t, y, x, (const double[]){1, 3, 2, 4});
    expect_grad(t, y, w, (const double[]){1, 3, 2, 4});
    w = input(t, FV_SHAPE(1, 2, 2));
    y = fv_segment_conv(t, x, &one, w, NULL, NULL, &out);
    expect(t, y, FV_SHAPE(1, 1), (const double[]){1 + 2 * 3 + 3 * 2 + 4 * 4});
    expect_grad(t, y, w, (const double[]){1, 3, 2, 4});
    fv_tape_free(t);
}

Test(op_conv, segment_conv_transpose)
{
    fv_tape *t = begin(1);
    fv_var *x = input(t, FV_SHAPE(4, 1)), *w = input(t, FV_SHAPE(1, 1, 2));
    const fv_segments *out;
    fv_var *y = fv_segment_conv_transpose(t, x, &segments, w, NULL, NULL, &out);
    expect(t, y, FV_SHAPE(6, 1), (const double[]){1, 4, 7, 6, 4, 8});
    expect_segments(out, (const size_t[]){0, 4, 4, 6});
    expect_grad(t, y, x, (const double[]){3, 3, 3, 3});
    expect_grad(t, y, w, (const double[]){10, 10});
    fv_tape_free(t);
}

Test(op_conv, segment_pools)
{
    fv_tape *t = begin(2);
    fv_var *x = input(t, FV_SHAPE(4, 2));
    const fv_segments *out;
    fv_var *y = fv_segment_max_pool(t, x, &segments, OPTS(.kernel = {2}, .ceil = true), &out);
    expect(t, y, FV_SHAPE(3, 2), (const double[]){3, 4, 5, 6, 7, 8});
    expect_segments(out, (const size_t[]){0, 2, 2, 3});
    expect_grad(t, y, x, (const double[]){0, 0, 1, 1, 1, 1, 1, 1});
    const fv_conv_opts three = {.kernel = {3}, .stride = {1}, .padding = {1}};
    y = fv_segment_avg_pool(t, x, &segments, &three, NULL);
    expect(t, y, FV_SHAPE(4, 2),
           (const double[]){4.0 / 3, 2, 3, 4, 8.0 / 3, 10.0 / 3, 7.0 / 3, 8.0 / 3});
    fv_tape_free(t);
}

Test(op_conv, no_rows)
{
    static const size_t nowhere[] = {0, 0, 0};
    static const fv_segments empties = {2, nowhere}, none = {0, nowhere};
    const fv_segments *const cut[] = {&empties, &none};
    for (int i = 0; i < 2; i++) {
        fv_tape *t = begin(2);
        const fv_segments *out;
        fv_var *x = input(t, FV_SHAPE(0, 2)), *w = input(t, FV_SHAPE(2, 2, 3));
        fv_var *y = fv_segment_conv(t, x, cut[i], w, input(t, FV_SHAPE(2)), NULL, NULL);
        y = fv_segment_conv_transpose(t, y, cut[i], w, NULL, NULL, NULL);
        y = fv_segment_max_pool(t, y, cut[i], OPTS(.kernel = {2}), NULL);
        y = fv_segment_avg_pool(t, y, cut[i], OPTS(.kernel = {2}, .padding = {1}), &out);
        expect(t, y, FV_SHAPE(0, 2), NULL);
        cr_expect_eq(out, cut[i]);
        expect_grad(t, y, w, (const double[12]){0});
        fv_tape_free(t);
    }
}

/* ---- the same bits ----------------------------------------------------------------------------- */

enum { NUMBERS = 60000 };
static fv_real noise[NUMBERS];

static void make_noise(void)
{
    for (size_t i = 0; i < NUMBERS; i++)
        noise[i] = (fv_real)fv_rng_normal(fv_rng_make(3, 1, "noise"), i);
}

/* Value and gradients of a convolution of several panels, chunks and blocks. */
static uint64_t digest(int threads, size_t groups)
{
    fv_tape *t = begin(threads);
    fv_var *x = fv_input(t, FV_SHAPE(2, 32, 23, 31), noise);
    fv_var *w = fv_input(t, FV_SHAPE(32, 32 / groups, 3, 3), noise);
    fv_var *y = fv_conv2d(t, x, w, NULL, OPTS(.groups = groups, .padding = {1, 1}));
    y = fv_conv_transpose(t, y, w, NULL, OPTS(.groups = groups, .stride = {2, 2}));
    y = fv_avg_pool(t, y, OPTS(.kernel = {3, 2}));
    y = fv_max_pool(t, y, OPTS(.kernel = {2, 2}));
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)), "%s", fv_tape_error(t)->text);
    const uint64_t sum = fvi_hash(y->value.data, fvi_count(y) * sizeof *noise) +
                         fvi_hash(x->grad, fvi_count(x) * sizeof *noise) +
                         fvi_hash(w->grad, fvi_count(w) * sizeof *noise);
    fv_tape_free(t);
    return sum;
}

Test(op_conv, same_bits_for_any_threads)
{
    make_noise();
    static const size_t groups[] = {1, 4, 32};
    for (int g = 0; g < 3; g++)
        for (int threads = 2; threads <= 8; threads += threads < 3 ? 1 : 5)
            cr_expect_eq(digest(1, groups[g]), digest(threads, groups[g]), "%zu groups, %d threads",
                         groups[g], threads);
}

/* A segment has the same bits alone and in a batch, forward and to its own rows, with any threads. */
Test(op_conv, segments_alone_or_in_a_batch)
{
    enum { COUNT = 5, D = 24, ROWS = 811 };
    static const size_t at[COUNT + 1] = {0, 3, 403, 403, 410, ROWS};
    static const fv_segments all = {COUNT, at};
    make_noise();
    for (size_t groups = 1; groups <= D; groups += D - 1)
        for (int threads = 1; threads <= 3; threads++) {
            const fv_conv_opts opts = {.groups = groups, .padding = {2}};
            fv_tape *t = begin(threads), *u = begin(1);
            fv_var *x = fv_input(t, FV_SHAPE(ROWS, D), noise);
            fv_var *w = fv_input(t, FV_SHAPE(D, D / groups, 5), noise + ROWS * D);
            fv_var *y = fv_segment_conv(t, x, &all, w, NULL, &opts, NULL);
            cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)));
            for (size_t s = 0; s < COUNT; s++) {
                const size_t rows = at[s + 1] - at[s], alone_at[] = {0, rows};
                const fv_segments alone = {1, alone_at};
                fv_tape_begin(u, FV_GRAD, 1, 1);
                fv_var *z = fv_input(u, FV_SHAPE(rows, D), noise + at[s] * D);
                fv_var *v = fv_input(u, w->value.shape, noise + ROWS * D);
                fv_var *q = fv_segment_conv(u, z, &alone, v, NULL, &opts, NULL);
                cr_assert(fv_backward(u, fv_sum(u, fv_mul(u, q, q), NULL)));
                cr_expect_arr_eq(q->value.data, y->value.data + at[s] * D,
                                 rows * D * sizeof *noise);
                cr_expect_arr_eq(z->grad, x->grad + at[s] * D, rows * D * sizeof *noise);
            }
            fv_tape_free(t);
            fv_tape_free(u);
        }
}
