/* What ops on rows and slices share: checks of segments, slices chosen by number, rows that move. */
#ifndef FVI_SLICES_H
#define FVI_SLICES_H

#include <string.h>

#include "autograd/ops/walk.h"

/* ---- segments -------------------------------------------------------------------------------- */

/* Whether these are segments, of whatever rows; refuses with the op's name otherwise. */
static inline bool are_segments(fv_tape *t, const char *op, const fv_segments *segments)
{
    fv_error error = {FV_OK, ""};
    if (!fv_tape_ok(t))
        return false;
    const size_t rows = segments && segments->offsets ? fv_segments_rows(segments) : 0;
    if (segments == NULL)
        fv_refuse(t, op, "no segments");
    else if (!fv_segments_check(segments, rows, &error))
        fv_refuse(t, op, "%s", error.text);
    return fv_tape_ok(t);
}

static inline size_t segment_length(const fv_segments *segments, size_t s)
{
    return segments->offsets[s + 1] - segments->offsets[s];
}

/* On from segment s to the one that holds row r. */
static inline size_t segment_at(const fv_segments *segments, size_t s, size_t r)
{
    while (r >= segments->offsets[s + 1])
        s++;
    return s;
}

/* ---- slices by number: x [outer, n, inner] and y [outer, count, inner], slice i of y is ids[i] of x -- */

/* A part of a loop over [outer, n, inner] that leaves the axis whole, because sums run along it. */
typedef struct {
    part outer, inner;
} beside;

/* How many such parts there are when each place beside the axis costs so much. Where only columns can be
 * cut, a part has at least FVI_LANES of them: narrower ones would share cache lines. */
static inline int parts_beside(const fv_tape *t, axis_view v, size_t cost)
{
    const int parts = parts_of(t, v.outer * v.inner, cost);
    const size_t most = v.outer >= (size_t)parts ? v.outer : v.inner / FVI_LANES;
    return (size_t)parts <= most ? parts : most > 0 ? (int)most : 1;
}

static inline beside beside_at(axis_view v, int parts, int k)
{
    if (v.outer >= (size_t)parts)
        return (beside){part_at(v.outer, parts, k), {0, v.inner}};
    return (beside){{0, v.outer}, part_at(v.inner, parts, k)};
}

/* y[o, i] = x[o, ids[i]], or += when add is set. */
static inline void take_slices(const fv_tape *t, axis_view x_view, const int32_t *ids, size_t count,
                               const fv_real *x, fv_real *y, bool add)
{
    const size_t n = x_view.n, inner = x_view.inner, slices = inner ? x_view.outer * count : 0;
    const int parts = parts_of(t, slices, 2 * inner);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(slices, parts, k);
        size_t i = count ? p.from % count : 0, o = count ? p.from / count : 0;
        for (size_t slice = p.from; slice < p.to; slice++) {
            const fv_real *from = x + (o * n + (size_t)ids[i]) * inner;
            if (inner == 1) /* the last axis: no call for a single number */
                y[slice] = add ? y[slice] + *from : *from;
            else if (add)
                add_to(inner, from, y + slice * inner);
            else
                memcpy(y + slice * inner, from, inner * sizeof *y);
            if (++i == count) {
                i = 0;
                o++;
            }
        }
    }
}

/* x[o, ids[i]] += y[o, i], i ascending. */
static inline void add_slices(const fv_tape *t, axis_view x_view, const int32_t *ids, size_t count,
                              const fv_real *y, fv_real *x)
{
    const size_t n = x_view.n, inner = x_view.inner;
    if (count == 0 || inner == 0)
        return;
    const int parts = parts_beside(t, x_view, 3 * count);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const beside p = beside_at(x_view, parts, k);
        for (size_t o = p.outer.from; o < p.outer.to; o++)
            for (size_t i = 0; i < count; i++)
                add_to(p.inner.to - p.inner.from, y + (o * count + i) * inner + p.inner.from,
                       x + (o * n + (size_t)ids[i]) * inner + p.inner.from);
    }
}

/* The place of the first id that is not below n; count when all are. */
static inline size_t stray_id(const int32_t *ids, size_t count, size_t n)
{
    size_t i = 0;
    while (i < count && ids[i] >= 0 && (size_t)ids[i] < n)
        i++;
    return i;
}

/* ---- rows that move ---------------------------------------------------------------------------
 * Row r of y is row from[r] of its one or two inputs, counted through both, or zeros; no row goes to two
 * places. saved: from. */

#define NO_ROW SIZE_MAX

/* Where from begins to mean the second input. */
static inline size_t second_input(const fv_var *y)
{
    return y->inputs == 2 ? fvi_rows(y->in[0]) : NO_ROW;
}

static inline bool move_rows(const fv_tape *t, fv_var *y)
{
    const size_t *from = y->saved, d = fvi_columns(y), rows = fvi_rows(y), second = second_input(y);
    const int parts = parts_of(t, rows, 2 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from, n; r < p.to; r += n) { /* n rows that stay together */
            fv_real *out = y->value.data + r * d;
            n = 1;
            if (from[r] == NO_ROW) {
                memset(out, 0, d * sizeof *out);
                continue;
            }
            while (r + n < p.to && from[r + n] == from[r] + n && from[r + n] != second)
                n++;
            const bool in_second = from[r] >= second;
            memcpy(out, y->in[in_second]->value.data + (from[r] - (in_second ? second : 0)) * d,
                   n * d * sizeof *out);
        }
    }
    return true;
}

static inline void move_rows_back(fv_tape *t, fv_var *y)
{
    const size_t *from = y->saved, d = fvi_columns(y), rows = fvi_rows(y);
    for (int k = 0; k < y->inputs; k++) { /* one after the other: they may be the same value */
        fv_real *dx = fv_grad(t, y->in[k]);
        const size_t first = k ? second_input(y) : 0, end = first + fvi_rows(y->in[k]);
        const int parts = parts_of(t, rows, 3 * d);
        if (dx == NULL)
            continue;
#pragma omp parallel for num_threads(parts) if (parts > 1)
        for (int i = 0; i < parts; i++) {
            const part p = part_at(rows, parts, i);
            for (size_t r = p.from; r < p.to; r++)
                if (from[r] >= first && from[r] < end)
                    add_to(d, y->grad + r * d, dx + (from[r] - first) * d);
        }
    }
}

#endif
