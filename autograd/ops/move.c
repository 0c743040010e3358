/* The loops behind every op that only moves numbers.
 *
 * Runs that are adjacent on both sides are copied whole. Where what is adjacent in x is not adjacent in y,
 * two axes change places, and they are walked in squares that fit the cache. A gradient goes the same
 * way back; where x repeats, the copies' gradients are folded. */
#include "tensor/kernel/tile.h"

#include "autograd/ops/fold.h"
#include "autograd/ops/move.h"

enum { X, Y }; /* tensors of a walk */

static walk walk_of(const move *m)
{
    walk w = {.tensors = 2};
    for (int i = 0; i < m->axes; i++)
        walk_add(&w, m->size[i], (ptrdiff_t[]){[X] = m->x[i], [Y] = m->y[i]});
    walk_close(&w);
    return w;
}

/* ---- runs -------------------------------------------------------------------------------------- */

static void copy_run(size_t n, const fv_real *restrict x, ptrdiff_t x_step, fv_real *restrict y,
                     ptrdiff_t y_step)
{
    if (x_step == 1 && y_step == 1 && n >= FVI_LANES)
        memcpy(y, x, n * sizeof *y);
    else if (x_step == 1 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] = x[i];
    else if (x_step == 0 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] = x[0];
    else if (x_step == -1 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            y[i] = *(x - i);
    else
        for (size_t i = 0; i < n; i++)
            y[(ptrdiff_t)i * y_step] = x[(ptrdiff_t)i * x_step];
}

static void add_run(size_t n, const fv_real *restrict dy, ptrdiff_t y_step, fv_real *restrict dx,
                    ptrdiff_t x_step)
{
    if (x_step == 1 && y_step == 1)
        add_to(n, dy, dx);
    else if (x_step == -1 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            *(dx - i) += dy[i];
    else
        for (size_t i = 0; i < n; i++)
            dx[(ptrdiff_t)i * x_step] += dy[(ptrdiff_t)i * y_step];
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

/* A square of at most SIDE rows and columns, by way of memory that is near. */
enum { SIDE = 32, AREA = 256 };
static void turn_square(const turn *m, size_t rows, size_t columns, const fv_real *from,
                        fv_real *to)
{
    fv_real near[SIDE * SIDE];
    fvi_transpose(rows, columns, from, m->from_step, near, SIDE);
    for (size_t j = 0; j < columns; j++) {
        fv_real *restrict column = to + j * m->to_step;
        const fv_real *restrict x = near + j * SIDE;
        if (m->add)
            for (size_t i = 0; i < rows; i++)
                column[i] += x[i];
        else
            for (size_t i = 0; i < rows; i++)
                column[i] = x[i];
    }
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
    for (size_t i = i_from; i < i_to; i += SIDE)
        for (size_t j = j_from; j < j_to; j += SIDE)
            turn_square(m, at_most(SIDE, i_to - i), at_most(SIDE, j_to - j),
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
    const walk w = walk_of(m);
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
    const int parts = parts_of(t, count, 2);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (stretch s = stretch_first(&w, p.from, p.to); s.n > 0; stretch_next(&w, &s))
            copy_run(s.n, x + m->x_first + s.at[X], w.run[X], y + m->y_first + s.at[Y], w.run[Y]);
    }
}

/* dx of what is repeated: the sum over the axes along which x does not step. */
static void add_repeats(fv_tape *t, const move *m, const fv_real *dy, fv_real *dx)
{
    fold f = {.kept = {.tensors = 2}, .gone = {.tensors = 1}, .kind = FOLD_SUM, .dx = dx};
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
    const walk w = walk_of(m);
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
        const size_t rows = square.rows; /* those of y are the columns of x */
        square.rows = square.columns;
        square.columns = rows;
        square.from_step = (size_t)y_row;
        square.to_step = (size_t)x_row;
        square.from = dy;
        square.to = dx;
        turn_all(t, &square);
        return;
    }
    const int parts = parts_of(t, count, 3);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (stretch s = stretch_first(&w, p.from, p.to); s.n > 0; stretch_next(&w, &s))
            add_run(s.n, dy + s.at[Y], w.run[Y], dx + s.at[X], w.run[X]);
    }
}
