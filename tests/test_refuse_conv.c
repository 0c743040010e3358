/* What convolutions, pools and unfoldings refuse, word for word. */
#include "tests/refuse.h"

static const size_t rows_at[] = {0, 1, 4}, falling_at[] = {0, 3, 2, 4}, short_at[] = {0, 1, 3};
static const fv_segments segments = {2, rows_at}, falling = {3, falling_at}, fewer = {2, short_at},
                         no_offsets = {2, NULL};

#define OPTS(...) (&(const fv_conv_opts){__VA_ARGS__})

REFUSED(conv)
{
    int at = 0;
    WRONG("conv: an input is NULL", fv_conv(t, NULL, IN(4, 3, 2), NULL, NULL))
    WRONG("conv: an input is NULL", fv_conv(t, IN(2, 3, 5), NULL, IN(4), NULL))
    WRONG("conv: input is [3, 5], expected [samples, channels, ..] with 1 to 3 spatial axes",
          fv_conv(t, IN(3, 5), IN(4, 3), NULL, NULL))
    WRONG("conv: input is [1, 1, 1, 1, 1, 1], expected [samples, channels, ..] with 1 to 3 "
          "spatial axes",
          fv_conv(t, IN(1, 1, 1, 1, 1, 1), IN(1, 1, 1, 1, 1, 1), NULL, NULL))
    WRONG("conv1d: input is [2, 3, 5, 5], expected [samples, channels, length]",
          fv_conv1d(t, IN(2, 3, 5, 5), IN(4, 3, 2, 2), NULL, NULL))
    WRONG("conv2d: input is [2, 3, 5], expected [samples, channels, height, width]",
          fv_conv2d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, NULL))
    WRONG("conv2d: [2, 3, 5, 5] with weight [4, 3, 2]: ranks differ",
          fv_conv2d(t, IN(2, 3, 5, 5), IN(4, 3, 2), NULL, NULL))
    WRONG("conv1d: [2, 3, 5] with weight [4, 2, 2] in 1 group: channels do not fit, expected "
          "[out, in / groups, ..]",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 2, 2), NULL, NULL))
    WRONG("conv1d: [2, 3, 5] with weight [4, 1, 2] in 3 groups: channels do not fit, expected "
          "[out, in / groups, ..]",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 1, 2), NULL, OPTS(.groups = 3)))
    WRONG("conv1d: [2, 3, 5] with weight [4, 1, 2] in 2 groups: channels do not fit, expected "
          "[out, in / groups, ..]",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 1, 2), NULL, OPTS(.groups = 2)))
    WRONG("conv1d: weight [4, 3, 2] with bias [3], expected [4]",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), IN(3), NULL))
    WRONG("conv1d: weight [4, 3, 2] with bias [4, 1], expected [4]",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), IN(4, 1), NULL))
    WRONG("conv1d: the kernel of axis 0 is 0", fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 0), NULL, NULL))
    WRONG("conv1d: axis 0 of size 5 with padding 0 and 0 under a kernel of 6: no place is left",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 6), NULL, NULL))
    WRONG("conv2d: axis 1 of size 5 with padding 1 and 0 under a kernel of 3: no place is left",
          fv_conv2d(t, IN(2, 3, 5, 5), IN(4, 3, 3, 3), NULL,
                    OPTS(.padding = {1, 1}, .different_padding = true, .dilation = {1, 3})))
    WRONG("conv1d: axis 0 of size 5 with padding 18446744073709551615 and 18446744073709551615 "
          "under a kernel of 2: larger than can be",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, OPTS(.padding = {SIZE_MAX})))
    WRONG("conv1d: a window of 3, dilation 9223372036854775808 and stride 1 along axis 0: larger "
          "than can be",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 3), NULL, OPTS(.dilation = {SIZE_MAX / 2 + 1})))
    WRONG("conv1d: a window of 2, dilation 1 and stride 18446744073709551615 along axis 0: larger "
          "than can be",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, OPTS(.stride = {SIZE_MAX})))
    WRONG("conv1d: output_padding is for transposed convolutions",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, OPTS(.output_padding = {1})))
    WRONG("conv1d: the kernel's size is that of the weight",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, OPTS(.kernel = {3})))
    WRONG("conv1d: ceil and exclude_padding are for pooling",
          fv_conv1d(t, IN(2, 3, 5), IN(4, 3, 2), NULL, OPTS(.ceil = true)))
    WRONG("conv: [1048576, 1, 35184372088832] holds more numbers than there can be",
          fv_conv(t, IN(1 << 20, 0, (size_t)1 << 45), IN(1, 0, 1), NULL, NULL))
    NO_MORE
}

REFUSED(conv_transpose)
{
    int at = 0;
    WRONG("conv_transpose: an input is NULL", fv_conv_transpose(t, NULL, IN(3, 4, 2), NULL, NULL))
    WRONG("conv_transpose: an input is NULL", fv_conv_transpose(t, IN(2, 3, 5), NULL, NULL, NULL))
    WRONG("conv_transpose: input is [3, 5], expected [samples, channels, ..] with 1 to 3 spatial "
          "axes",
          fv_conv_transpose(t, IN(3, 5), IN(3, 4), NULL, NULL))
    WRONG("conv_transpose: [2, 3, 5] with weight [3, 4]: ranks differ",
          fv_conv_transpose(t, IN(2, 3, 5), IN(3, 4), NULL, NULL))
    WRONG("conv_transpose: [2, 3, 5] with weight [4, 3, 2] in 1 group: channels do not fit, "
          "expected [in, out / groups, ..]",
          fv_conv_transpose(t, IN(2, 3, 5), IN(4, 3, 2), NULL, NULL))
    WRONG("conv_transpose: [2, 3, 5] with weight [3, 4, 2] in 2 groups: channels do not fit, "
          "expected [in, out / groups, ..]",
          fv_conv_transpose(t, IN(2, 3, 5), IN(3, 4, 2), NULL, OPTS(.groups = 2)))
    WRONG("conv_transpose: weight [4, 3, 2] with bias [3], expected [6]",
          fv_conv_transpose(t, IN(2, 4, 5), IN(4, 3, 2), IN(3), OPTS(.groups = 2)))
    WRONG("conv_transpose: output_padding 2 of axis 0, expected less than stride 2 or dilation 1",
          fv_conv_transpose(t, IN(2, 3, 5), IN(3, 4, 2), NULL,
                            OPTS(.stride = {2}, .output_padding = {2})))
    WRONG("conv_transpose: axis 0 of size 1 with padding 1 and 1 under a kernel of 2: no place is "
          "left",
          fv_conv_transpose(t, IN(2, 3, 1), IN(3, 4, 2), NULL, OPTS(.padding = {1})))
    WRONG("conv_transpose: axis 0 of size 0 with padding 0 and 0 under a kernel of 2: no place is "
          "left",
          fv_conv_transpose(t, IN(2, 3, 0), IN(3, 4, 2), NULL, NULL))
    WRONG("conv_transpose: axis 0 of size 5 with padding 0 and 0 under a kernel of 2: larger than "
          "can be",
          fv_conv_transpose(t, IN(2, 3, 5), IN(3, 4, 2), NULL, OPTS(.stride = {SIZE_MAX / 4})))
    NO_MORE
}

/* Both pools refuse the same. */
#define WRONG_POOL(name, pool)                                                                     \
    WRONG(#name ": an input is NULL", pool(t, NULL, OPTS(.kernel = {2})))                          \
    WRONG(#name ": input is [3, 5], expected [samples, channels, ..] with 1 to 3 spatial axes",    \
          pool(t, IN(3, 5), OPTS(.kernel = {2})))                                                  \
    WRONG(#name ": the kernel of axis 0 is 0", pool(t, IN(2, 3, 5), NULL))                         \
    WRONG(#name ": the kernel of axis 1 is 0", pool(t, IN(2, 3, 5, 5), OPTS(.kernel = {2})))       \
    WRONG(#name ": padding 2 and 2 of axis 0, expected at most half of the kernel's 3",            \
          pool(t, IN(2, 3, 5), OPTS(.kernel = {3}, .padding = {2})))                               \
    WRONG(#name ": padding 0 and 2 of axis 0, expected at most half of the kernel's 3",            \
          pool(t, IN(2, 3, 5),                                                                     \
               OPTS(.kernel = {3}, .padding_after = {2}, .different_padding = true)))              \
    WRONG(#name ": axis 0 of size 2 with padding 0 and 0 under a kernel of 3: no place is left",   \
          pool(t, IN(2, 3, 2), OPTS(.kernel = {3})))                                               \
    WRONG(#name ": axis 0 of size 0 with padding 1 and 1 under a kernel of 3: no place is left",   \
          pool(t, IN(2, 3, 0), OPTS(.kernel = {3}, .padding = {1})))                               \
    WRONG(#name ": groups are for convolutions",                                                   \
          pool(t, IN(2, 3, 5), OPTS(.kernel = {3}, .groups = 3)))                                  \
    WRONG(#name ": output_padding is for transposed convolutions",                                 \
          pool(t, IN(2, 3, 5), OPTS(.kernel = {3}, .output_padding = {1})))                        \
    WRONG(#name ": the kernel is larger than can be",                                              \
          pool(t, IN(1, 1, 1 << 16, 1 << 16), OPTS(.kernel = {1 << 16, 1 << 16})))

REFUSED(pools)
{
    int at = 0;
    WRONG_POOL(max_pool, fv_max_pool)
    WRONG_POOL(avg_pool, fv_avg_pool)
    NO_MORE
}

#define WRONG_ADAPTIVE(name, pool)                                                                 \
    WRONG(#name ": an input is NULL", pool(t, NULL, sizes))                                        \
    WRONG(#name ": input is [3, 5], expected [samples, channels, ..] with 1 to 3 spatial axes",    \
          pool(t, IN(3, 5), sizes))                                                                \
    WRONG(#name ": input is [1, 1, 1, 1, 1, 1], expected [samples, channels, ..] with 1 to 3 "     \
                "spatial axes",                                                                    \
          pool(t, IN(1, 1, 1, 1, 1, 1), sizes))                                                    \
    WRONG(#name ": no sizes", pool(t, IN(2, 3, 5), NULL))                                          \
    WRONG(#name ": axis 3 of [2, 3, 5, 0] is empty", pool(t, IN(2, 3, 5, 0), sizes))               \
    WRONG(#name ": size 18446744073709551615 of axis 2 is larger than can be",                     \
          pool(t, IN(2, 3, 5), huge))

REFUSED(adaptive_pools)
{
    int at = 0;
    static const size_t sizes[] = {2, 2, 2}, huge[] = {SIZE_MAX};
    WRONG_ADAPTIVE(adaptive_max_pool, fv_adaptive_max_pool)
    WRONG_ADAPTIVE(adaptive_avg_pool, fv_adaptive_avg_pool)
    NO_MORE
}

REFUSED(unfold_and_fold)
{
    int at = 0;
    static const size_t sizes[] = {5, 5};
    WRONG("unfold: an input is NULL", fv_unfold(t, NULL, OPTS(.kernel = {2})))
    WRONG("unfold: input is [3, 5], expected [samples, channels, ..] with 1 or 2 spatial axes",
          fv_unfold(t, IN(3, 5), OPTS(.kernel = {2})))
    WRONG("unfold: input is [1, 1, 2, 2, 2], expected [samples, channels, ..] with 1 or 2 spatial "
          "axes",
          fv_unfold(t, IN(1, 1, 2, 2, 2), OPTS(.kernel = {2, 2, 2})))
    WRONG("unfold: the kernel of axis 0 is 0", fv_unfold(t, IN(2, 3, 5), NULL))
    WRONG("unfold: axis 0 of size 5 with padding 0 and 0 under a kernel of 3: no place is left",
          fv_unfold(t, IN(2, 3, 5), OPTS(.kernel = {3}, .dilation = {3})))
    WRONG("unfold: ceil and exclude_padding are for pooling",
          fv_unfold(t, IN(2, 3, 5), OPTS(.kernel = {3}, .exclude_padding = true)))
    WRONG("unfold: groups are for convolutions",
          fv_unfold(t, IN(2, 3, 5), OPTS(.kernel = {3}, .groups = 3)))
    WRONG("unfold: [0, 9223372036854775808, 4] in windows of 2: larger than can be",
          fv_unfold(t, IN(0, SIZE_MAX / 2 + 1, 4), OPTS(.kernel = {2})))
    WRONG("fold: an input is NULL", fv_fold(t, NULL, sizes, OPTS(.kernel = {2})))
    WRONG("fold: input is [6, 4], expected [samples, channels * window, places]",
          fv_fold(t, IN(6, 4), sizes, OPTS(.kernel = {2})))
    WRONG("fold: no sizes", fv_fold(t, IN(1, 6, 4), NULL, OPTS(.kernel = {2})))
    WRONG("fold: the kernel of axis 0 is 0", fv_fold(t, IN(1, 6, 4), sizes, NULL))
    WRONG("fold: [1, 5, 4], expected [samples, channels * 2, 4]",
          fv_fold(t, IN(1, 5, 4), sizes, OPTS(.kernel = {2})))
    WRONG("fold: [1, 6, 5], expected [samples, channels * 2, 4]",
          fv_fold(t, IN(1, 6, 5), sizes, OPTS(.kernel = {2})))
    WRONG("fold: [1, 8, 4], expected [samples, channels * 4, 16]",
          fv_fold(t, IN(1, 8, 4), sizes, OPTS(.kernel = {2, 2})))
    WRONG("fold: axis 1 of size 5 with padding 0 and 0 under a kernel of 6: no place is left",
          fv_fold(t, IN(1, 6, 5), sizes, OPTS(.kernel = {1, 6})))
    NO_MORE
}

REFUSED(segment_conv)
{
    int at = 0;
    const fv_segments *out;
    WRONG("segment_conv: an input is NULL",
          fv_segment_conv(t, NULL, &segments, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: an input is NULL",
          fv_segment_conv(t, IN(4, 3), &segments, NULL, NULL, NULL, &out))
    WRONG("segment_conv: no segments",
          fv_segment_conv(t, IN(4, 3), NULL, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: segments: no offsets",
          fv_segment_conv(t, IN(4, 3), &no_offsets, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: segments: offset 2 falls from 3 to 2",
          fv_segment_conv(t, IN(4, 3), &falling, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: segments: they hold 3 rows, the input has 4",
          fv_segment_conv(t, IN(4, 3), &fewer, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: input is [1, 4, 3], expected [rows, d]",
          fv_segment_conv(t, IN(1, 4, 3), &segments, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv: weight is [2, 3], expected [out, in / groups, kernel]",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3), NULL, NULL, &out))
    WRONG("segment_conv: [4, 3] with weight [2, 4, 1] in 1 group: channels do not fit, expected "
          "[out, in / groups, ..]",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 4, 1), NULL, NULL, &out))
    WRONG("segment_conv: weight [2, 3, 1] with bias [3], expected [2]",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3, 1), IN(3), NULL, &out))
    WRONG("segment_conv: the kernel of axis 0 is 0",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3, 0), NULL, NULL, &out))
    WRONG("segment_conv: options of axis 1 or 2, but segments have one axis",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3, 1), NULL, OPTS(.padding = {0, 1}), &out))
    WRONG("segment_conv: lengths change, so the segments of the result are needed",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3, 3), NULL, NULL, NULL))
    WRONG("segment_conv: segment 0 of 1 rows: the result is larger than can be",
          fv_segment_conv(t, IN(4, 3), &segments, IN(2, 3, 3), NULL, OPTS(.padding = {SIZE_MAX}),
                          &out))
    WRONG("segment_conv_transpose: an input is NULL",
          fv_segment_conv_transpose(t, IN(4, 3), &segments, NULL, NULL, NULL, &out))
    WRONG("segment_conv_transpose: no segments",
          fv_segment_conv_transpose(t, IN(4, 3), NULL, IN(3, 2, 1), NULL, NULL, &out))
    WRONG("segment_conv_transpose: weight is [3, 2], expected [in, out / groups, kernel]",
          fv_segment_conv_transpose(t, IN(4, 3), &segments, IN(3, 2), NULL, NULL, &out))
    WRONG("segment_conv_transpose: [4, 3] with weight [2, 3, 1] in 1 group: channels do not fit, "
          "expected [in, out / groups, ..]",
          fv_segment_conv_transpose(t, IN(4, 3), &segments, IN(2, 3, 1), NULL, NULL, &out))
    WRONG("segment_conv_transpose: lengths change, so the segments of the result are needed",
          fv_segment_conv_transpose(t, IN(4, 3), &segments, IN(3, 2, 2), NULL, NULL, NULL))
    WRONG("segment_conv_transpose: segment 1 of 3 rows: the result is larger than can be",
          fv_segment_conv_transpose(t, IN(4, 3), &segments, IN(3, 2, 2), NULL,
                                    OPTS(.stride = {PTRDIFF_MAX}), &out))
    NO_MORE
}

#define WRONG_SEGMENT_POOL(name, pool)                                                             \
    WRONG(#name ": an input is NULL", pool(t, NULL, &segments, OPTS(.kernel = {2}), &out))         \
    WRONG(#name ": no segments", pool(t, IN(4, 3), NULL, OPTS(.kernel = {2}), &out))               \
    WRONG(#name ": segments: they hold 3 rows, the input has 4",                                   \
          pool(t, IN(4, 3), &fewer, OPTS(.kernel = {2}), &out))                                    \
    WRONG(#name ": input is [4], expected [rows, d]",                                              \
          pool(t, IN(4), &segments, OPTS(.kernel = {2}), &out))                                    \
    WRONG(#name ": the kernel of axis 0 is 0", pool(t, IN(4, 3), &segments, NULL, &out))           \
    WRONG(#name ": padding 2 and 2 of axis 0, expected at most half of the kernel's 2",            \
          pool(t, IN(4, 3), &segments, OPTS(.kernel = {2}, .padding = {2}), &out))                 \
    WRONG(#name ": options of axis 1 or 2, but segments have one axis",                            \
          pool(t, IN(4, 3), &segments, OPTS(.kernel = {2, 2}), &out))                              \
    WRONG(#name ": groups are for convolutions",                                                   \
          pool(t, IN(4, 3), &segments, OPTS(.kernel = {2}, .groups = 3), &out))                    \
    WRONG(#name ": lengths change, so the segments of the result are needed",                      \
          pool(t, IN(4, 3), &segments, OPTS(.kernel = {2}), NULL))

REFUSED(segment_pools)
{
    int at = 0;
    const fv_segments *out;
    WRONG_SEGMENT_POOL(segment_max_pool, fv_segment_max_pool)
    WRONG_SEGMENT_POOL(segment_avg_pool, fv_segment_avg_pool)
    NO_MORE
}

Test(refuse_conv, conv)
{
    refuse_each(conv);
}

Test(refuse_conv, conv_transpose)
{
    refuse_each(conv_transpose);
}

Test(refuse_conv, pools)
{
    refuse_each(pools);
}

Test(refuse_conv, adaptive_pools)
{
    refuse_each(adaptive_pools);
}

Test(refuse_conv, unfold_and_fold)
{
    refuse_each(unfold_and_fold);
}

Test(refuse_conv, segment_conv)
{
    refuse_each(segment_conv);
}

Test(refuse_conv, segment_pools)
{
    refuse_each(segment_pools);
}
