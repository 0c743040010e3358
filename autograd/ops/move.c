/* The loops behind every op that only moves numbers.
 *
 * Runs that are adjacent on both sides are copied whole. Where what is adjacent in x is not adjacent in y,
 * two axes change places, and they are walked in pieces that fit the cache. A gradient goes the same
 * way back; where x repeats, the copies' gradients are folded. */
#include "tensor/kernel/tile.h"

#include <stdlib.h>

#include "autograd/ops/fold.h"
#include "autograd/ops/move.h"

enum { X, Y }; /* tensors of a walk */

/* Puts the axis along which x moves least innermost, when that is the shorter one: then few streams are
 * written while x is read in order, instead of many read while y is written. */
static void fewer_streams(walk *w)
{
    const int last = w->axes - 1;
    int near = last;
    for (int i = 0; i < last; i++)
        if (labs(w->step[X][i]) < labs(w->step[X][near]))
            near = i;
    if (near == last || w->size[near] >= w->size[last])
        return;
    const size_t size = w->size[near];
    const ptrdiff_t x = w->step[X][near], y = w->step[Y][near];
    for (int i = near; i < last; i++) {
        w->size[i] = w->size[i + 1];
        w->step[X][i] = w->step[X][i + 1];
        w->step[Y][i] = w->step[Y][i + 1];
    }
    w->size[last] = size;
    w->step[X][last] = x;
    w->step[Y][last] = y;
}

static walk walk_of(const move *m)
{
    walk w = {.tensors = 2};
    for (int i = 0; i < m->axes; i++)
        walk_add(&w, m->size[i], (ptrdiff_t[]){[X] = m->x[i], [Y] = m->y[i]});
    walk_close(&w);
    return w;
}

/* ---- runs -------------------------------------------------------------------------------------- */

/* Some runs of n numbers, and how far those and their numbers are apart. */
typedef struct {
    size_t count, n;
    ptrdiff_t x_row, x, y_row, y;
} rows;

static void copy_rows(const rows *r, const fv_real *x, fv_real *y)
{
    const size_t n = r->n;
    for (size_t k = 0; k < r->count; k++, x += r->x_row, y += r->y_row) {
        const fv_real *restrict from = x;
        fv_real *restrict to = y;
        if (r->x == 1 && r->y == 1 && n >= 2 * FVI_LANES)
            memcpy(to, from, n * sizeof *to);
        else if (r->x == 1 && r->y == 1)
            for (size_t i = 0; i < n; i++)
                to[i] = from[i];
        else if (r->x == 0 && r->y == 1)
            for (size_t i = 0; i < n; i++)
                to[i] = from[0];
        else if (r->x == -1 && r->y == 1)
            for (size_t i = 0; i < n; i++)
                to[i] = *(from - i);
        else
            for (size_t i = 0; i < n; i++)
                to[(ptrdiff_t)i * r->y] = from[(ptrdiff_t)i * r->x];
    }
}

static void add_rows(const rows *r, const fv_real *dy, fv_real *dx)
{
    const size_t n = r->n;
    for (size_t k = 0; k < r->count; k++, dx += r->x_row, dy += r->y_row) {
        const fv_real *restrict from = dy;
        fv_real *restrict to = dx;
        if (r->x == 1 && r->y == 1)
            add_to(n, from, to);
        else if (r->x == -1 && r->y == 1)
            for (size_t i = 0; i < n; i++)
                *(to - i) += from[i];
        else
            for (size_t i = 0; i < n; i++)
                to[(ptrdiff_t)i * r->x] += from[(ptrdiff_t)i * r->y];
    }
}

enum {
    LONG = 4096
}; /* numbers of a run that is cut for threads; shorter ones go whole, many at a time */

/* All runs of a walk: y = x, or dx += dy. */
static void move_rows(const fv_tape *t, walk *all, const fv_real *x, fv_real *y, fv_real *dx,
                      const fv_real *dy)
{
    if (all->axes > 1 && all->run[X] == 1 && all->run[Y] == 1)
        fewer_streams(all);
    const walk runs = walk_runs(all);
    const bool whole = all->n < LONG;
    const walk *w = whole ? &runs : all;
    const size_t count = w->runs * w->n;
    const int parts = parts_of(t, count, whole ? 3 * all->n : 3);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (stretch s = stretch_first(w, p.from, p.to); s.n > 0; stretch_next(w, &s)) {
            const rows some = {whole ? s.n : 1, whole ? all->n : s.n, w->run[X], all->run[X],
                               w->run[Y],       all->run[Y]};
            if (dx != NULL)
                add_rows(&some, dy + s.at[Y], dx + s.at[X]);
            else
                copy_rows(&some, x + s.at[X], y + s.at[Y]);
        }
    }
}

/* ---- two axes that change places --------------------------------------------------------------- */

/* From matrices whose rows are adjacent to ones whose columns are: to[j * to_step + i] =
 * from[i * from_step + j] for i < rows, j < columns; the walk is over the matrices. */
typedef struct {
    walk matrices;
    size_t rows, columns;
    size_t from_step, to_step;
    const fv_real *from;
    fv_real *to;
    int from_tensor;
    bool add;
} turn;

/* Whether a walk, whose runs are adjacent in y, has another axis that is adjacent in x; takes that out of
 * it, and the runs, so that the walk is over matrices. */
static bool find_turn(const walk *w, turn *out, ptrdiff_t *x_row, ptrdiff_t *y_row)
{
    int found = -1;
    for (int i = 0; i < w->axes; i++)
        if (w->step[X][i] == 1 && w->step[Y][i] > 0)
            found = i;
    if (found < 0 || w->run[Y] != 1 || w->run[X] <= 1)
        return false;
    *x_row = w->run[X];
    *y_row = w->step[Y][found];
    out->rows = w->n;
    out->columns = w->size[found];
    out->matrices = (walk){.tensors = 2, .runs = 1, .n = 1};
    for (int i = 0; i < w->axes; i++) {
        if (i == found)
            continue;
        const int axis = out->matrices.axes++;
        out->matrices.size[axis] = w->size[i];
        out->matrices.runs *= w->size[i];
        for (int k = 0; k < 2; k++)
            out->matrices.step[k][axis] = w->step[k][i];
    }
    return true;
}

/* A piece of at most ROWS by COLUMNS, whose lines of memory fit the nearest cache. */
enum { ROWS = 64, COLUMNS = 16, AREA = 256 };
static void turn_piece(const turn *m, size_t height, size_t width, const fv_real *from, fv_real *to)
{
    if (!m->add) {
        fvi_transpose(height, width, from, m->from_step, to, m->to_step);
        return;
    }
    fv_real near[ROWS * COLUMNS];
    fvi_transpose(height, width, from, m->from_step, near, ROWS);
    for (size_t j = 0; j < width; j++)
        add_to(height, near + j * ROWS, to + j * m->to_step);
}

static size_t at_most(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One area of AREA by AREA: few enough rows and columns for the processor's table of pages. */
static void turn_area(const turn *m, size_t number)
{
    const size_t down = (m->rows + AREA - 1) / AREA, across = (m->columns + AREA - 1) / AREA;
    const walker at = walk_to(&m->matrices, number / (down * across));
    const size_t i_from = number / across % down * AREA, j_from = number % across * AREA;
    const size_t i_to = at_most(i_from + AREA, m->rows), j_to = at_most(j_from + AREA, m->columns);
    const fv_real *from = m->from + at.at[m->from_tensor];
    fv_real *to = m->to + at.at[1 - m->from_tensor];
    for (size_t i = i_from; i < i_to; i += ROWS)
        for (size_t j = j_from; j < j_to; j += COLUMNS)
            turn_piece(m, at_most(ROWS, i_to - i), at_most(COLUMNS, j_to - j),
                       from + i * m->from_step + j, to + j * m->to_step + i);
}

static void turn_all(const fv_tape *t, const turn *m)
{
    const size_t areas =
        m->matrices.runs * ((m->rows + AREA - 1) / AREA) * ((m->columns + AREA - 1) / AREA);
    const int parts = parts_of(t, areas, 2 * at_most(m->rows, AREA) * at_most(m->columns, AREA));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(areas, parts, k);
        for (size_t i = p.from; i < p.to; i++)
            turn_area(m, i);
    }
}

/* ---- forth and back ---------------------------------------------------------------------------- */

void fvi_move(fv_tape *t, const move *m, const fv_real *x, fv_real *y)
{
    walk w = walk_of(m);
    const size_t count = w.runs * w.n;
    turn square = {.from = x + m->x_first, .to = y + m->y_first, .from_tensor = X};
    ptrdiff_t x_row, y_row;
    if (count == 0)
        return;
    if (find_turn(&w, &square, &x_row, &y_row)) {
        square.from_step = (size_t)x_row;
        square.to_step = (size_t)y_row;
        turn_all(t, &square);
        return;
    }
    move_rows(t, &w, x + m->x_first, y + m->y_first, NULL, NULL);
}

/* dx of what is repeated: the sum over the axes along which x does not step. */
static void add_repeats(fv_tape *t, const move *m, const fv_real *dy, fv_real *dx)
{
    fold f = {
        .kept = {.tensors = 2}, .gone = {.tensors = 1}, .kind = FOLD_SUM, .dx = dx, .over = 1};
    for (int i = 0; i < m->axes; i++)
        if (m->x[i] == 0)
            walk_add(&f.gone, m->size[i], &m->y[i]);
        else
            walk_add(&f.kept, m->size[i], (ptrdiff_t[]){m->y[i], m->x[i]});
    walk_close(&f.gone);
    walk_close(&f.kept);
    fvi_fold(t, &f, dy);
}

void fvi_move_back(fv_tape *t, const move *m, const fv_real *dy, fv_real *dx)
{
    walk w = walk_of(m);
    const size_t count = w.runs * w.n;
    turn square = {.from_tensor = Y, .add = true};
    ptrdiff_t x_row, y_row;
    bool repeats = false;
    for (int i = 0; i < m->axes; i++)
        repeats |= m->x[i] == 0 && m->size[i] > 1;
    if (count == 0 || dx == NULL)
        return;
    dy += m->y_first;
    dx += m->x_first;
    if (repeats) {
        add_repeats(t, m, dy, dx);
        return;
    }
    if (find_turn(&w, &square, &x_row, &y_row)) {
        const size_t height = square.rows; /* those of y are the columns of x */
        square.rows = square.columns;
        square.columns = height;
        square.from_step = (size_t)y_row;
        square.to_step = (size_t)x_row;
        square.from = dy;
        square.to = dx;
        turn_all(t, &square);
        return;
    }
    move_rows(t, &w, NULL, NULL, dx, dy);
}
