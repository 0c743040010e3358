/* What is taken over a row of numbers, in FVI_LANES lanes so that its bits do not depend on the processor. */
#ifndef FVI_ROWS_H
#define FVI_ROWS_H

#include <math.h>
#include <string.h>

#include "autograd/ops/walk.h"
#include "tensor/math.h"

/* exp of what is shifted by a largest number, or a log-sum-exp: at most about 1. In float it gives 0
 * instead of denormals, below 1e-38. */
static inline fv_real exp_of_shifted(fv_real x)
{
#if defined(FV_COMPLEX) || defined(FV_F64)
    return fvi_exp(x);
#else
    return fvi_exp_normal(x);
#endif
}

/* The largest number, without its tangent; NaN is passed over, and of none it is -Inf. No order of
 * looking changes it, so there may be many lanes. */
static inline fv_real lane_max(size_t n, const fv_real *restrict x)
{
    enum { MANY = 4 * FVI_LANES };
    fv_real lane[MANY];
    size_t i = 0;
    for (int l = 0; l < MANY; l++)
        lane[l] = (fv_real)-INFINITY;
    for (; i + MANY <= n; i += MANY) {
        for (int l = 0; l < MANY; l += FVI_LANES)
            __builtin_prefetch(x + i + l + FVI_AHEAD);
        for (int l = 0; l < MANY; l++)
            lane[l] = fv_re(x[i + (size_t)l]) > fv_re(lane[l]) ? fv_re(x[i + (size_t)l]) : lane[l];
    }
    for (int l = 0; i < n; i++, l++)
        lane[l] = fv_re(x[i]) > fv_re(lane[l]) ? fv_re(x[i]) : lane[l];
    for (int half = MANY / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = fv_re(lane[l + half]) > fv_re(lane[l]) ? lane[l + half] : lane[l];
    return lane[0];
}

/* The sum of a * b. */
static inline fv_real lane_dot(size_t n, const fv_real *restrict a, const fv_real *restrict b)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] = fvi_fma(a[i + (size_t)l], b[i + (size_t)l], lane[l]);
    for (; i < n; i++)
        lane[i % FVI_LANES] = fvi_fma(a[i], b[i], lane[i % FVI_LANES]);
    return fold_lanes(lane);
}

/* The sum of (a - a_mean) * (x - mean). */
static inline fv_real lane_about(size_t n, const fv_real *restrict a, fv_real a_mean,
                                 const fv_real *restrict x, fv_real mean)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] = fvi_fma(a[i + (size_t)l] - a_mean, x[i + (size_t)l] - mean, lane[l]);
    for (; i < n; i++)
        lane[i % FVI_LANES] = fvi_fma(a[i] - a_mean, x[i] - mean, lane[i % FVI_LANES]);
    return fold_lanes(lane);
}

/* The sum of a * b * (x - mean). */
static inline fv_real lane_product(size_t n, const fv_real *restrict a, const fv_real *restrict b,
                                   const fv_real *restrict x, fv_real mean)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] =
                fvi_fma(a[i + (size_t)l] * b[i + (size_t)l], x[i + (size_t)l] - mean, lane[l]);
    for (; i < n; i++)
        lane[i % FVI_LANES] = fvi_fma(a[i] * b[i], x[i] - mean, lane[i % FVI_LANES]);
    return fold_lanes(lane);
}

/* The sum of (x - mean)^2. */
static inline fv_real lane_squares(size_t n, const fv_real *restrict x, fv_real mean)
{
    return lane_about(n, x, mean, x, mean);
}

/* Writes e = exp(x - shift), and gives their sum. */
static inline fv_real lane_exp(size_t n, const fv_real *restrict x, fv_real shift,
                               fv_real *restrict e)
{
    fv_real lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++) {
            e[i + (size_t)l] = exp_of_shifted(x[i + (size_t)l] - shift);
            lane[l] += e[i + (size_t)l];
        }
    for (; i < n; i++) {
        e[i] = exp_of_shifted(x[i] - shift);
        lane[i % FVI_LANES] += e[i];
    }
    return fold_lanes(lane);
}

/* ---- blocks: sums over many rows ------------------------------------------------------------- */

/* Rows in blocks of a size that the shape alone decides. Each block sums on its own, and the sums are added
 * in the order of the blocks: the same bits for any number of threads. */
typedef struct {
    size_t rows, each, count;
} blocks;

/* Blocks of rows that cost about so many numbers each: at most 32, and none too small for a thread. */
static inline blocks blocks_of(size_t rows, size_t cost)
{
    enum { MOST = 32, WORTH = 1 << 15 };
    const size_t least = WORTH / (cost > 0 ? cost : 1) + 1, even = rows / MOST + 1;
    const size_t each = even > least ? even : least;
    return (blocks){rows, each, rows / each + (rows % each > 0)};
}

static inline part block_at(blocks b, size_t k)
{
    const size_t from = k * b.each, left = b.rows - from;
    return (part){from, from + (left < b.each ? left : b.each)};
}

/* Adds the rows of x [rows, columns] to sum, ascending, a part of the columns a thread. */
static inline void add_each_row(const fv_tape *t, size_t rows, size_t columns, const fv_real *x,
                                fv_real *sum)
{
    const int parts = parts_of(t, columns, rows);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(columns, parts, k);
        for (size_t r = 0; r < rows; r++)
            add_to(p.to - p.from, x + r * columns + p.from, sum + p.from);
    }
}

/* ---- strips: an axis of a tensor, a row or some columns at a time ------------------------------ */

enum {
    FVI_ABREAST = 128
}; /* columns that a pass along another axis than the last takes side by side */

/* width columns of an [outer, n, inner] view, each of n numbers that are step apart. Along the last axis
 * (inner = 1) a strip is one row, its numbers adjacent: step = width = 1. */
typedef struct {
    size_t at, n, step, width;
} strip;

static inline size_t strips_across(axis_view v)
{
    return v.inner / FVI_ABREAST + (v.inner % FVI_ABREAST > 0);
}

static inline strip strip_at(axis_view v, size_t k)
{
    const size_t across = strips_across(v), first = k % across * FVI_ABREAST;
    const size_t left = v.inner - first;
    return (strip){k / across * v.n * v.inner + first, v.n, v.inner,
                   left < FVI_ABREAST ? left : FVI_ABREAST};
}

/* The largest number of each column, as lane_max. */
static inline void columns_max(strip s, const fv_real *restrict x, fv_real *restrict most)
{
    for (size_t j = 0; j < s.width; j++)
        most[j] = (fv_real)-INFINITY;
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++) {
            const fv_real a = fv_re(x[i * s.step + j]);
            most[j] = fv_re(a) > fv_re(most[j]) ? a : most[j];
        }
}

/* What an op does to one strip of y; dx is NULL going forward. */
typedef void (*strip_fn)(const fv_var *y, strip s, fv_real *dx);

static inline void zero_strip(strip s, fv_real *x)
{
    if (s.step == 1)
        memset(x + s.at, 0, s.n * sizeof *x);
    for (size_t i = 0; s.step > 1 && i < s.n; i++)
        memset(x + s.at + i * s.step, 0, s.width * sizeof *x);
}

/* Runs a function for every strip of y along an axis, on the tape's threads; zeroes a blank dx just before. */
static inline void run_strips(fv_tape *t, const fv_var *y, int axis, strip_fn run, fv_real *dx,
                              bool blank)
{
    const axis_view v = view_axis(y->value.shape, axis);
    const size_t strips = v.outer * strips_across(v);
    if (fvi_count(y) == 0)
        return;
    const int parts = parts_of(t, strips, 4 * (fvi_count(y) / strips));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(strips, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            const strip s = strip_at(v, i);
            if (blank)
                zero_strip(s, dx);
            run(y, s, dx);
        }
    }
}

static inline void each_strip(fv_tape *t, const fv_var *y, int axis, strip_fn run)
{
    run_strips(t, y, axis, run, NULL, false);
}

/* The way back to the input of y, when that needs it. */
static inline void each_strip_back(fv_tape *t, const fv_var *y, int axis, strip_fn run)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        run_strips(t, y, axis, run, dx, blank);
}

#endif
