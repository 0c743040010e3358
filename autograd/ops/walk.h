/* Which numbers of several tensors meet: broadcasting, axes, and walks with a step for each tensor.
 *
 * A walk passes over a shape in row-major order. Tensor k moves by step[k][axis] along an axis: 0 where it
 * repeats, more than 1 where it is permuted or reduced, less than 0 where it runs backwards. Neighbouring
 * axes along which all tensors move as one are joined, so most walks are a loop over runs, and in each
 * run a plain loop over n numbers. */
#ifndef FVI_WALK_H
#define FVI_WALK_H

#include "autograd/ops/ops.h"

enum { FVI_WALKED = 4, FVI_AXES = 2 * FV_MAX_RANK }; /* tensors and axes of a walk, at most */

typedef struct {
    int tensors, axes;     /* axes outside the run */
    size_t size[FVI_AXES]; /* of these */
    ptrdiff_t step[FVI_WALKED][FVI_AXES];
    size_t runs, n;            /* numbers of the shape = runs * n */
    ptrdiff_t run[FVI_WALKED]; /* how far each tensor moves inside a run */
} walk;

/* Where a walk stands: the place of each tensor at the start of a run. */
typedef struct {
    size_t index[FVI_AXES];
    ptrdiff_t at[FVI_WALKED];
} walker;

/* The steps of a contiguous tensor. */
static inline void steps_of(fv_shape shape, ptrdiff_t step[FV_MAX_RANK])
{
    size_t next = 1; /* of a shape without numbers it may pass what there can be */
    for (int i = shape.rank - 1; i >= 0; i--) {
        step[i] = (ptrdiff_t)next;
        next *= shape.size[i];
    }
}

/* The steps of a tensor that is broadcast to a shape. */
static inline void broadcast_steps(fv_shape from, fv_shape to, ptrdiff_t step[FV_MAX_RANK])
{
    ptrdiff_t own[FV_MAX_RANK] = {0};
    steps_of(from, own);
    for (int i = 0; i < to.rank; i++) {
        const int k = i - (to.rank - from.rank);
        step[i] = k < 0 || from.size[k] == 1 ? 0 : own[k];
    }
}

/* The shape that a and b broadcast to; false when they do not. */
static inline bool broadcast_shapes(fv_shape a, fv_shape b, fv_shape *out)
{
    *out = (fv_shape){.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 0; i < out->rank; i++) {
        const int at_a = i - (out->rank - a.rank), at_b = i - (out->rank - b.rank);
        const size_t x = at_a < 0 ? 1 : a.size[at_a], y = at_b < 0 ? 1 : b.size[at_b];
        if (x != y && x != 1 && y != 1)
            return false;
        out->size[i] = x == 1 ? y : x;
    }
    return true;
}

/* Adds the next inner axis to a walk that has its tensors and, so far, no runs. */
static inline void walk_add(walk *w, size_t size, const ptrdiff_t step[])
{
    if (size == 1)
        return;
    const int last = w->axes - 1;
    bool joins = last >= 0;
    for (int k = 0; joins && k < w->tensors; k++)
        joins = w->step[k][last] == (ptrdiff_t)((size_t)step[k] * size);
    w->axes += !joins;
    w->size[w->axes - 1] = joins ? w->size[last] * size : size;
    for (int k = 0; k < w->tensors; k++)
        w->step[k][w->axes - 1] = step[k];
}

/* After the last axis: the innermost one becomes the run. */
static inline void walk_close(walk *w)
{
    w->runs = w->n = 1;
    if (w->axes > 0) {
        w->n = w->size[--w->axes];
        for (int k = 0; k < w->tensors; k++)
            w->run[k] = w->step[k][w->axes];
    }
    for (int i = 0; i < w->axes; i++)
        w->runs *= w->size[i];
}

/* A walk of so many tensors over a shape, each with its steps. */
static inline walk walk_over(fv_shape shape, int tensors, ptrdiff_t step[][FV_MAX_RANK])
{
    walk w = {.tensors = tensors};
    for (int i = 0; i < shape.rank; i++) {
        ptrdiff_t here[FVI_WALKED];
        for (int k = 0; k < tensors; k++)
            here[k] = step[k][i];
        walk_add(&w, shape.size[i], here);
    }
    walk_close(&w);
    return w;
}

/* A walker at the start of run number r. */
static inline walker walk_to(const walk *w, size_t r)
{
    walker at = {{0}, {0}};
    for (int i = w->axes - 1; r > 0 && i >= 0 && w->size[i] > 0; i--) {
        at.index[i] = r % w->size[i];
        r /= w->size[i];
        for (int k = 0; k < w->tensors; k++)
            at.at[k] += (ptrdiff_t)at.index[i] * w->step[k][i];
    }
    return at;
}

/* On to the next run. */
static inline void walk_on(const walk *w, walker *at)
{
    for (int i = w->axes - 1; i >= 0; i--) {
        const bool more = ++at->index[i] < w->size[i];
        const ptrdiff_t steps = more ? 1 : 1 - (ptrdiff_t)w->size[i];
        for (int k = 0; k < w->tensors; k++)
            at->at[k] += steps * w->step[k][i];
        if (more)
            return;
        at->index[i] = 0;
    }
}

/* A walk over the runs of another, as its numbers: for loops over many short runs. */
static inline walk walk_runs(const walk *w)
{
    walk outer = *w;
    outer.n = 1;
    outer.axes -= outer.axes > 0;
    if (w->axes > 0)
        outer.n = w->size[outer.axes];
    for (int k = 0; k < w->tensors; k++)
        outer.run[k] = w->axes > 0 ? w->step[k][outer.axes] : 0;
    outer.runs = outer.n > 0 ? w->runs / outer.n : 0;
    return outer;
}

/* Some numbers of a run: n of them, and where each tensor has the first. */
typedef struct {
    walker run;
    ptrdiff_t at[FVI_WALKED];
    size_t n, left; /* left: numbers of the part that come after these */
} stretch;

static inline void stretch_cut(const walk *w, stretch *s, size_t from)
{
    s->n = w->n - from < s->left ? w->n - from : s->left;
    s->left -= s->n;
    for (int k = 0; k < w->tensors; k++)
        s->at[k] = s->run.at[k] + (ptrdiff_t)from * w->run[k];
}

/* The numbers from .. to - 1 of a walk, stretch by stretch:
 *
 *     for (stretch s = stretch_first(&w, from, to); s.n > 0; stretch_next(&w, &s))
 */
static inline stretch stretch_first(const walk *w, size_t from, size_t to)
{
    stretch s = {.left = to > from ? to - from : 0};
    if (s.left > 0) {
        s.run = walk_to(w, from / w->n);
        stretch_cut(w, &s, from % w->n);
    }
    return s;
}

static inline void stretch_next(const walk *w, stretch *s)
{
    s->n = 0;
    if (s->left > 0) {
        walk_on(w, &s->run);
        stretch_cut(w, s, 0);
    }
}

/* ---- one axis -------------------------------------------------------------------------------- */

/* A shape as [outer, n, inner] around an axis. */
typedef struct {
    size_t outer, n, inner;
} axis_view;

static inline axis_view view_axis(fv_shape shape, int axis)
{
    axis_view v = {1, shape.size[axis], 1};
    for (int i = 0; i < axis; i++)
        v.outer *= shape.size[i];
    for (int i = axis + 1; i < shape.rank; i++)
        v.inner *= shape.size[i];
    return v;
}

/* Turns a negative axis into its number from the front; refuses one that x has not. */
static inline bool known_axis(fv_tape *t, const char *op, const fv_var *x, int *axis)
{
    const int rank = x->value.shape.rank;
    if (*axis >= -rank && *axis < rank) {
        *axis += *axis < 0 ? rank : 0;
        return true;
    }
    fv_refuse(t, op, "%s has no axis %d", fv_describe(t, x), *axis);
    return false;
}

/* ---- threads --------------------------------------------------------------------------------- */

/* A part of a loop, for one thread. */
typedef struct {
    size_t from, to;
} part;

/* How many parts a loop over count things is cut into, when each costs about so many numbers read or
 * written: one a thread, or a single one when that does not repay waking the threads. */
static inline int parts_of(const fv_tape *t, size_t count, size_t cost)
{
    enum { WORTH = 1 << 17 };
    return cost > 0 && count > WORTH / cost && count > 1 ? t->threads : 1;
}

/* The k-th part, cut at a multiple of FVI_LANES when there are many. Only outputs may be cut, never a sum.
 *
 *     const int parts = parts_of(t, n, 3);
 * #pragma omp parallel for num_threads(parts) if (parts > 1)
 *     for (int k = 0; k < parts; k++) {
 *         const part p = part_at(n, parts, k);
 *         .. for (size_t i = p.from; i < p.to; i++)
 */
static inline part part_at(size_t count, int parts, int k)
{
    const size_t grain = count / (size_t)parts >= 4 * FVI_LANES ? FVI_LANES : 1;
    const size_t grains = count / grain, all = (size_t)parts, i = (size_t)k;
    const size_t from = grains / all * i + (i < grains % all ? i : grains % all);
    const size_t to = from + grains / all + (i < grains % all);
    return (part){from * grain, i + 1 == all ? count : to * grain};
}

#endif
