/* Sorting along an axis, and the k largest: both remember where each number stood.
 *
 * Sorting merges runs that double in length (von Neumann), so equals keep their order. Of the k largest a
 * heap is kept, whose root is the next to leave it (Williams, 1964). NaN takes part in neither: it has
 * its places before or behind. */
#include "autograd/ops/walk.h"

#include <string.h>

typedef struct {
    int axis;
    bool down; /* larger numbers first */
} sorting;

/* A number, negated where larger ones go first, and its place along the axis. */
typedef struct {
    double x;
    int32_t at;
} key;

static bool is_nan(fv_real x)
{
    return fv_re(x) != fv_re(x);
}

/* ---- merging ----------------------------------------------------------------------------------- */

enum { RUN = 16 }; /* keys that are sorted by insertion */

static void insertion_sort(key *k, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const key now = k[i];
        size_t j = i;
        for (; j > 0 && now.x < k[j - 1].x; j--)
            k[j] = k[j - 1];
        k[j] = now;
    }
}

static void merge(const key *restrict a, size_t count_a, const key *restrict b, size_t count_b,
                  key *restrict to)
{
    size_t i = 0, j = 0;
    while (i < count_a && j < count_b) {
        const bool second = b[j].x < a[i].x; /* of equals, a goes first */
        *to++ = second ? b[j] : a[i];
        j += second;
        i += !second;
    }
    memcpy(to, a + i, (count_a - i) * sizeof *to);
    memcpy(to + (count_a - i), b + j, (count_b - j) * sizeof *to);
}

/* Sorts n keys, with room for as many; returns which of the two has them then. */
static key *merge_sort(key *k, key *room, size_t n)
{
    for (size_t i = 0; i < n; i += RUN)
        insertion_sort(k + i, n - i < RUN ? n - i : RUN);
    for (size_t run = RUN; run < n; run *= 2) {
        for (size_t i = 0; i < n; i += 2 * run) {
            const size_t a = n - i < run ? n - i : run;
            const size_t b = n - i - a < run ? n - i - a : run;
            merge(k + i, a, k + i + a, b, room + i);
        }
        key *sorted = room;
        room = k;
        k = sorted;
    }
    return k;
}

/* ---- the heap ---------------------------------------------------------------------------------- */

static bool goes_before(key a, key b)
{
    return a.x < b.x || (a.x == b.x && a.at < b.at);
}

/* Puts a key in place i of a heap, or below it, so that none goes before one that hangs on it. */
static void sink(key *heap, size_t i, size_t n, key now)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && goes_before(heap[child], heap[child + 1]);
        if (!goes_before(now, heap[child]))
            break;
        heap[i] = heap[child];
    }
    heap[i] = now;
}

/* The first most of n numbers, in order; returns how many there are. */
static size_t select_first(bool down, size_t n, size_t step, const fv_real *line, size_t most,
                           key *heap)
{
    size_t count = 0, last;
    for (size_t i = 0; i < n; i++) {
        const fv_real x = line[i * step];
        const key now = {down ? -fv_re(x) : fv_re(x), (int32_t)i};
        if (is_nan(x) || most == 0)
            continue;
        if (count < most) {
            heap[count++] = now;
            if (count == most)
                for (size_t k = most / 2; k-- > 0;)
                    sink(heap, k, most, heap[k]);
        } else if (now.x < heap[0].x)
            sink(heap, 0, most, now);
    }
    if (count < most)
        for (size_t k = count / 2; k-- > 0;)
            sink(heap, k, count, heap[k]);
    for (last = count; last > 1; last--) { /* the root is the last of those that are left */
        const key moved = heap[last - 1];
        heap[last - 1] = heap[0];
        sink(heap, 0, last - 1, moved);
    }
    return count;
}

/* ---- lines ------------------------------------------------------------------------------------- */

/* One line along the axis: n numbers, step apart. */
typedef struct {
    size_t n, step;
    const fv_real *x;
    fv_real *y;
    int32_t *order;
} line;

static size_t put(const line *l, size_t place, int32_t at)
{
    l->order[place * l->step] = at;
    l->y[place * l->step] = l->x[(size_t)at * l->step];
    return place + 1;
}

static size_t put_keys(const line *l, size_t place, const key *k, size_t count)
{
    for (size_t i = 0; i < count; i++)
        place = put(l, place, k[i].at);
    return place;
}

/* The NaN of a line, from that place on and before the end. */
static size_t put_nan(const line *l, size_t place, size_t end)
{
    for (size_t i = 0; i < l->n && place < end; i++)
        if (is_nan(l->x[i * l->step]))
            place = put(l, place, (int32_t)i);
    return place;
}

static void sort_line(const line *l, bool down, size_t k, key *room)
{
    size_t count = 0;
    (void)k;
    for (size_t i = 0; i < l->n; i++) {
        const fv_real x = l->x[i * l->step];
        if (!is_nan(x))
            room[count++] = (key){down ? -fv_re(x) : fv_re(x), (int32_t)i};
    }
    put_nan(l, put_keys(l, 0, merge_sort(room, room + l->n, count), count), l->n);
}

/* NaN counts as the largest number. */
static void topk_line(const line *l, bool down, size_t k, key *room)
{
    const size_t first = down ? put_nan(l, 0, k) : 0;
    const size_t count = select_first(down, l->n, l->step, l->x, k - first, room);
    put_nan(l, put_keys(l, first, room, count), k);
}

/* Each line of x by one of these, with that much room; y->saved gets where the numbers stood. */
static bool each_line(fv_tape *t, fv_var *y, size_t room,
                      void (*run)(const line *l, bool down, size_t k, key *room))
{
    const sorting *o = y->options;
    const axis_view from = view_axis(y->in[0]->value.shape, o->axis),
                    to = view_axis(y->value.shape, o->axis);
    const size_t lines = to.outer * to.inner;
    int32_t *order = fvi_tape_take(t, fvi_count(y), sizeof *order);
    const int parts = parts_of(t, lines, 16 * from.n);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    key *rooms = lines > 0 ? fvi_tape_take(t, room, (size_t)parts * sizeof *rooms) : NULL;
    y->saved = order;
    if (lines == 0 || order == NULL || rooms == NULL)
        return fv_tape_ok(t);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(lines, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            const size_t outer = i / to.inner, inner = i % to.inner,
                         at = outer * to.n * to.inner + inner;
            const line l = {from.n, from.inner,
                            y->in[0]->value.data + outer * from.n * from.inner + inner,
                            y->value.data + at, order + at};
            run(&l, o->down, to.n, rooms + (size_t)k * room);
        }
    }
    fvi_arena_release(&t->arena, mark);
    return true;
}

/* dx[order[i]] = dy[i] */
static void back_where_it_stood(fv_tape *t, fv_var *y)
{
    const sorting *o = y->options;
    const int32_t *order = y->saved;
    const axis_view from = view_axis(y->in[0]->value.shape, o->axis),
                    to = view_axis(y->value.shape, o->axis);
    fv_real *dx = fv_grad(t, y->in[0]);
    const int parts = parts_of(t, to.outer, 3 * to.n * to.inner);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(to.outer, parts, k);
        for (size_t i = p.from * to.n; dx != NULL && i < p.to * to.n; i++) {
            fv_real *lines = dx + i / to.n * from.n * from.inner;
            for (size_t j = 0; j < to.inner; j++) {
                const size_t at = i * to.inner + j;
                lines[(size_t)order[at] * from.inner + j] += y->grad[at];
            }
        }
    }
}

/* Numbers far enough from each other that no step of a check changes their order. */
static fv_var *sample_lines(fv_sampler *s, fv_shape shape)
{
    fv_tape *t = fv_sampler_tape(s);
    const size_t count = fv_shape_count(shape);
    fv_real *steps = fv_tape_alloc(t, count, sizeof *steps);
    for (size_t i = 0; steps != NULL && i < count; i++)
        steps[i] = (fv_real)(i * 11 % 31);
    return fv_add(t, fv_sample(s, shape, -0.4, 0.4), fv_constant(t, shape, steps));
}

#define sort_backward back_where_it_stood
static bool sort_forward(fv_tape *t, fv_var *y)
{
    const size_t n = y->value.shape.size[((const sorting *)y->options)->axis];
    return each_line(t, y, 2 * n, sort_line);
}

static fv_var *sort_sample(fv_sampler *s, int which)
{
    const fv_sort_opts opts = {.descending = which % 2};
    static const fv_shape shape[] = {{1, {20}}, {2, {3, 5}}, {3, {2, 5, 3}}, {2, {4, 1}}};
    static const int axis[] = {0, 0, 1, -1};
    return fv_sort(fv_sampler_tape(s), sample_lines(s, shape[which]), axis[which],
                   which ? &opts : NULL);
}
FVI_OP(sort, "y = x in order", "", 4)

#define topk_backward back_where_it_stood
static bool topk_forward(fv_tape *t, fv_var *y)
{
    return each_line(t, y, y->value.shape.size[((const sorting *)y->options)->axis], topk_line);
}

static fv_var *topk_sample(fv_sampler *s, int which)
{
    const fv_sort_opts opts = {.smallest = which % 2};
    static const fv_shape shape[] = {{1, {20}}, {2, {5, 3}}, {3, {2, 5, 3}}, {2, {4, 1}}};
    static const int axis[] = {0, 0, 1, -1};
    static const size_t k[] = {3, 5, 2, 1};
    return fv_topk(fv_sampler_tape(s), sample_lines(s, shape[which]), axis[which], k[which],
                   which ? &opts : NULL);
}
FVI_OP(topk, "y = the k largest of x", "", 4)

#if FVI_ONCE
/* The value, and in *order of the options where its numbers stood. */
static fv_var *record(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, fv_shape shape,
                      sorting o, const fv_sort_opts *opts)
{
    if (x->value.shape.size[o.axis] > INT32_MAX)
        return fv_refuse(t, op, "axis %d of %s, expected a size of at most 2147483647", o.axis,
                         fv_describe(t, x));
    fv_var *y = fvi_record(t, id, shape, &o, sizeof o, 1, &x);
    if (y != NULL && opts != NULL && opts->order != NULL)
        *opts->order = y->saved;
    return y;
}

fv_var *fv_sort(fv_tape *t, fv_var *x, int axis, const fv_sort_opts *opts)
{
    if (!given(t, "sort", x) || !known_axis(t, "sort", x, &axis))
        return NULL;
    return record(t, FVI_OP_sort, "sort", x, x->value.shape,
                  (sorting){axis, opts && opts->descending}, opts);
}

fv_var *fv_topk(fv_tape *t, fv_var *x, int axis, size_t k, const fv_sort_opts *opts)
{
    if (!given(t, "topk", x) || !known_axis(t, "topk", x, &axis))
        return NULL;
    fv_shape shape = x->value.shape;
    if (k > shape.size[axis])
        return fv_refuse(t, "topk", "%zu largest along axis %d of %s", k, axis, fv_describe(t, x));
    shape.size[axis] = k;
    return record(t, FVI_OP_topk, "topk", x, shape, (sorting){axis, !(opts && opts->smallest)},
                  opts);
}
#endif
