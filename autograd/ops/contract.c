/* Sums of products over letters, as one product of matrices for each number of a few loops.
 *
 * Letters are sorted by who has them. In x alone (or y alone): x is summed over them first. In all
 * three: a loop. In x and z: rows, in y and z: columns, in x and y: what a product sums over. Letters
 * that lie one behind the other wherever they stand are joined; the rest become loops as well, so that
 * transposes and broadcasts copy nothing. Without letters to sum over it is a plain walk. */
#include "autograd/ops/contract.h"
#include "autograd/ops/rows.h"

#include <string.h>

enum { X = 1, Y = 2, Z = 4 }; /* who has a letter; 1 << place in step */
enum { AT_X, AT_Y, AT_Z };
enum { SHORT = 32 };      /* a sum that does not repay a product for each step of further loops */
enum { WORTH = 1500000 }; /* operations that repay waking the threads */

static int owners(const contraction *c, int letter)
{
    return (c->step[AT_X][letter] != 0 ? X : 0) | (c->step[AT_Y][letter] != 0 ? Y : 0) |
           (c->step[AT_Z][letter] != 0 ? Z : 0);
}

/* Letters, the one with the largest step first. */
typedef struct {
    int count, letter[FVI_LETTERS];
} group;

static void insert(const contraction *c, int by, int letter, group *g)
{
    int at = g->count++;
    for (; at > 0 && c->step[by][g->letter[at - 1]] < c->step[by][letter]; at--)
        g->letter[at] = g->letter[at - 1];
    g->letter[at] = letter;
}

/* The letters whose owners, looked at through a mask, are these; ordered by the steps of one of them. */
static group pick(const contraction *c, int mask, int of, int by)
{
    group g = {0};
    for (int l = 0; l < c->letters; l++)
        if ((owners(c, l) & mask) == of)
            insert(c, by, l, &g);
    return g;
}

/* A walk over a group's letters by z, x and y. */
static walk walk_group(const contraction *c, const group *g)
{
    walk w = {.tensors = 3};
    for (int i = 0; i < g->count; i++) {
        const int l = g->letter[i];
        walk_add(&w, c->size[l],
                 (ptrdiff_t[]){c->step[AT_Z][l], c->step[AT_X][l], c->step[AT_Y][l]});
    }
    walk_close(&w);
    return w;
}

/* ---- without sums -------------------------------------------------------------------------------- */

/* Sums keep the sign of a zero that is copied: 0 + -0 would lose it. */
static inline fv_real sum_or(bool add, fv_real z, fv_real x, fv_real y)
{
    return add ? fvi_fma(x, y, z) : x * y;
}

static void multiply_run(size_t n, const fv_real *x, ptrdiff_t x_step, const fv_real *y,
                         ptrdiff_t y_step, fv_real *z, ptrdiff_t z_step, bool add)
{
    if (z_step == 1 && x_step == 1 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            z[i] = sum_or(add, z[i], x[i], y[i]);
    else if (z_step == 1 && x_step == 1 && y_step == 0)
        for (size_t i = 0; i < n; i++)
            z[i] = sum_or(add, z[i], x[i], *y);
    else if (z_step == 1 && x_step == 0 && y_step == 1)
        for (size_t i = 0; i < n; i++)
            z[i] = sum_or(add, z[i], *x, y[i]);
    else
        for (size_t i = 0; i < n; i++, x += x_step, y += y_step, z += z_step)
            *z = sum_or(add, *z, *x, *y);
}

/* z (+)= x y at each place of z. */
static void multiply_places(fv_tape *t, const contraction *c, const fv_real *x, const fv_real *y,
                            bool add, fv_real *z)
{
    const group all = pick(c, Z, Z, AT_Z);
    const walk w = walk_group(c, &all);
    const int parts = parts_of(t, w.runs * w.n, 3);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(w.runs * w.n, parts, k);
        for (stretch s = stretch_first(&w, p.from, p.to); s.n > 0; stretch_next(&w, &s))
            multiply_run(s.n, x + s.at[1], w.run[1], y + s.at[2], w.run[2], z + s.at[0], w.run[0],
                         add);
    }
}

static const fv_real one = 1;

/* Copies x, or a tensor in its place, to the places of z. */
static void copy_places(fv_tape *t, const contraction *c, const fv_real *x, bool add, fv_real *z)
{
    contraction copy = *c;
    memset(copy.step[AT_Y], 0, sizeof copy.step[AT_Y]);
    multiply_places(t, &copy, x, &one, add, z);
}

/* Gives one of the three new steps: contiguous over its letters in that order. Returns how many numbers. */
static size_t make_contiguous(contraction *c, int who, const group *order)
{
    ptrdiff_t next = 1;
    for (int i = order->count - 1; i >= 0; i--) {
        c->step[who][order->letter[i]] = next;
        next *= (ptrdiff_t)c->size[order->letter[i]];
    }
    return (size_t)next;
}

/* ---- sums in lanes ---------------------------------------------------------------------------------------- */

static fv_real dot(size_t n, const fv_real *x, ptrdiff_t x_step, const fv_real *y, ptrdiff_t y_step)
{
    if (x_step == 1 && y_step == 1)
        return lane_dot(n, x, y);
    fv_real lane[FVI_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % FVI_LANES] =
            fvi_fma(x[(ptrdiff_t)i * x_step], y[(ptrdiff_t)i * y_step], lane[i % FVI_LANES]);
    return fold_lanes(lane);
}

/* Sums a tensor over the letters that it alone has; it is contiguous then. NULL when memory is out. */
static const fv_real *sum_alone(fv_tape *t, contraction *c, int who, const fv_real *x)
{
    const group own = pick(c, 1 << who, 1 << who, who), alone = pick(c, X | Y | Z, 1 << who, who);
    if (alone.count == 0)
        return x;
    contraction sum = {.letters = c->letters};
    group kept = {0};
    for (int i = 0; i < own.count; i++)
        if (owners(c, own.letter[i]) != 1 << who)
            kept.letter[kept.count++] = own.letter[i];
    memcpy(sum.size, c->size, sizeof sum.size);
    memcpy(sum.step[AT_X], c->step[who], sizeof sum.step[AT_X]);
    const size_t count = make_contiguous(&sum, AT_Z, &kept);
    fv_real *total = fv_tape_alloc(t, count, sizeof *total);
    if (total == NULL)
        return NULL;
    memcpy(c->step[who], sum.step[AT_Z], sizeof sum.step[AT_Z]);
    const walk w = walk_group(&sum, &own);
    const bool cut = w.axes > 0 && w.step[0][0] != 0; /* each number of the sum in one part */
    const size_t outer = cut ? w.size[0] : 1, inner = w.runs / outer;
    const int parts = parts_of(t, outer, inner * w.n);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(outer, parts, k);
        walker at = walk_to(&w, p.from * inner);
        for (size_t r = p.from * inner; r < p.to * inner; r++, walk_on(&w, &at)) {
            const fv_real *from = x + at.at[1];
            fv_real *to = total + at.at[0];
            if (w.run[0] == 0)
                *to += w.run[1] == 1 ? lane_sum(w.n, from) : dot(w.n, from, w.run[1], &one, 0);
            else
                multiply_run(w.n, from, w.run[1], &one, 0, to, w.run[0], true);
        }
    }
    return total;
}

/* Each number of z is a sum in lanes. */
static void sum_in_lanes(fv_tape *t, const contraction *c, const fv_real *x, const fv_real *y,
                         bool add, fv_real *z)
{
    const group all = pick(c, Z, Z, AT_Z), sums = pick(c, X | Y | Z, X | Y, AT_X);
    const walk places = walk_group(c, &all), inner = walk_group(c, &sums);
    const size_t count = places.runs * places.n;
    const int parts = parts_of(t, count, 2 * inner.runs * inner.n);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (stretch s = stretch_first(&places, p.from, p.to); s.n > 0; stretch_next(&places, &s))
            for (size_t i = 0; i < s.n; i++) {
                const ptrdiff_t along = (ptrdiff_t)i;
                const fv_real *from_x = x + s.at[1] + along * places.run[1];
                const fv_real *from_y = y + s.at[2] + along * places.run[2];
                fv_real *to = z + s.at[0] + along * places.run[0], sum = 0;
                walker in = walk_to(&inner, 0);
                for (size_t r = 0; r < inner.runs; r++, walk_on(&inner, &in))
                    sum += dot(inner.n, from_x + in.at[1], inner.run[1], from_y + in.at[2],
                               inner.run[2]);
                *to = add ? *to + sum : sum;
            }
    }
}

/* ---- products ------------------------------------------------------------------------------------ */

/* Letters that are one axis wherever they stand: their size, and the step of the innermost. */
typedef struct {
    size_t size;
    size_t step[3];
} joined;

static bool joins(const contraction *c, int who, int outer, int inner)
{
    return c->step[who][outer] == c->step[who][inner] * (ptrdiff_t)c->size[inner];
}

/* Takes out of a group the letters that join in p and q: those at its end, or the most there are. */
static joined join(const contraction *c, int p, int q, bool at_end, group *g)
{
    joined best = {.size = 1, .step = {1, 1, 1}};
    int from = 0, to = 0;
    for (int end = g->count; end > 0; end = at_end ? 0 : end - 1) {
        int start = end - 1;
        size_t size = c->size[g->letter[start]];
        while (start > 0 && joins(c, p, g->letter[start - 1], g->letter[start]) &&
               joins(c, q, g->letter[start - 1], g->letter[start]))
            size *= c->size[g->letter[--start]];
        if (size > best.size) {
            best.size = size;
            from = start;
            to = end;
        }
    }
    if (to > from)
        for (int who = 0; who < 3; who++)
            best.step[who] = (size_t)c->step[who][g->letter[to - 1]];
    memmove(g->letter + from, g->letter + to, (size_t)(g->count - to) * sizeof *g->letter);
    g->count -= to - from;
    return best;
}

/* One product for each place of a walk, and for each step of another they are added up. */
typedef struct {
    fvi_product p;
    walk places, sums;
} products;

static void run_place(const products *all, size_t i, int threads, fv_real *scratch)
{
    const stretch at = stretch_first(&all->places, i, i + 1);
    fvi_product first = all->p;
    first.c += at.at[0];
    first.a += at.at[1];
    first.b += at.at[2];
    walker in = walk_to(&all->sums, 0);
    for (size_t r = 0; r < all->sums.runs; r++, walk_on(&all->sums, &in))
        for (size_t s = 0; s < all->sums.n; s++) {
            fvi_product p = first;
            p.a += in.at[1] + (ptrdiff_t)s * all->sums.run[1];
            p.b += in.at[2] + (ptrdiff_t)s * all->sums.run[2];
            p.add = first.add || r > 0 || s > 0;
            fvi_product_run(&p, threads, scratch);
        }
}

/* In parallel over products, or inside each where they are fewer than the threads. */
static void run_products(fv_tape *t, const products *all)
{
    const size_t count = all->places.runs * all->places.n;
    const double work = 2.0 * (double)count * (double)(all->sums.runs * all->sums.n) *
                        (double)all->p.m * (double)all->p.n * (double)all->p.k;
    const int threads = work > WORTH ? t->threads : 1;
    const int parts = count < (size_t)threads ? 1 : threads;
    const int inside = parts == 1 ? threads : 1;
    const size_t size = fvi_product_scratch(&all->p, inside);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * size, sizeof *scratch);
    if (scratch == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (size_t i = p.from; i < p.to; i++)
            run_place(all, i, inside, scratch + (size_t)k * size);
    }
}

static group appended(group a, const group *b)
{
    for (int i = 0; i < b->count; i++)
        a.letter[a.count++] = b->letter[i];
    return a;
}

/* A copy of x or y that is contiguous over its loops, then two groups. NULL when memory is out. */
static const fv_real *tidied(fv_tape *t, contraction *c, int who, const fv_real *x,
                             const group *rows, const group *columns)
{
    const group order = appended(appended(pick(c, X | Y | Z, X | Y | Z, AT_Z), rows), columns);
    contraction copy = {.letters = c->letters};
    memcpy(copy.size, c->size, sizeof copy.size);
    memcpy(copy.step[AT_X], c->step[who], sizeof copy.step[AT_X]);
    const size_t count = make_contiguous(&copy, AT_Z, &order);
    fv_real *tidy = fvi_tape_take(t, count, sizeof *tidy);
    if (tidy == NULL)
        return NULL;
    copy_places(t, &copy, x, false, tidy);
    memcpy(c->step[who], copy.step[AT_Z], sizeof copy.step[AT_Z]);
    return tidy;
}

static void exchange(contraction *c, const fv_real **x, const fv_real **y)
{
    ptrdiff_t step[FVI_LETTERS];
    const fv_real *other = *x;
    memcpy(step, c->step[AT_X], sizeof step);
    memcpy(c->step[AT_X], c->step[AT_Y], sizeof step);
    memcpy(c->step[AT_Y], step, sizeof step);
    *x = *y;
    *y = other;
}

/* Whether a group's last letter moves by single numbers of z. */
static bool adjacent(const contraction *c, const group *g)
{
    return g->count > 0 && c->step[AT_Z][g->letter[g->count - 1]] == 1;
}

static void multiply_matrices(fv_tape *t, contraction c, const fv_real *x, const fv_real *y,
                              bool add, fv_real *z)
{
    group rows = pick(&c, X | Y | Z, X | Z, AT_Z), columns = pick(&c, X | Y | Z, Y | Z, AT_Z);
    if (columns.count == 0 || adjacent(&c, &rows)) { /* z' = y' x' */
        const group other = rows;
        exchange(&c, &x, &y);
        rows = columns;
        columns = other;
    }
    const contraction target = c;
    const bool indirect = columns.count > 0 && !adjacent(&c, &columns);
    fv_real *direct = z;
    if (indirect) { /* a product wants its columns side by side */
        const group loops = pick(&c, X | Y | Z, X | Y | Z, AT_Z);
        const group order = appended(appended(loops, &rows), &columns);
        direct = fvi_tape_take(t, make_contiguous(&c, AT_Z, &order), sizeof *direct);
    }
    group sums = pick(&c, X | Y | Z, X | Y, AT_X);
    const group all_sums = sums;
    joined k = join(&c, AT_X, AT_Y, false, &sums);
    if (sums.count > 0 && k.size < SHORT) {
        x = tidied(t, &c, AT_X, x, &rows, &all_sums);
        y = tidied(t, &c, AT_Y, y, &all_sums, &columns);
        sums = all_sums;
        k = join(&c, AT_X, AT_Y, false, &sums);
    }
    if (x == NULL || y == NULL || direct == NULL)
        return;
    const joined n = join(&c, AT_Y, AT_Z, true, &columns), m = join(&c, AT_X, AT_Z, false, &rows);
    group places = pick(&c, X | Y | Z, X | Y | Z, AT_Z);
    for (int i = 0; i < rows.count; i++)
        insert(&c, AT_Z, rows.letter[i], &places);
    for (int i = 0; i < columns.count; i++)
        insert(&c, AT_Z, columns.letter[i], &places);
    const products all = {.p = {.m = m.size,
                                .n = n.size,
                                .k = k.size,
                                .a = x,
                                .a_row = m.step[AT_X],
                                .a_col = k.step[AT_X],
                                .b = y,
                                .b_row = k.step[AT_Y],
                                .b_col = n.step[AT_Y],
                                .c = direct,
                                .c_row = m.step[AT_Z],
                                .add = add && !indirect},
                          .places = walk_group(&c, &places),
                          .sums = walk_group(&c, &sums)};
    run_products(t, &all);
    if (indirect) {
        contraction back = target;
        memcpy(back.step[AT_X], c.step[AT_Z], sizeof back.step[AT_X]);
        copy_places(t, &back, direct, add, z);
    }
}

/* ---- all ----------------------------------------------------------------------------------------- */

/* Without the letters of size 1, which change nothing. */
static contraction without_ones(const contraction *c)
{
    contraction less = {.lanes = c->lanes};
    for (int l = 0; l < c->letters; l++)
        if (c->size[l] != 1) {
            less.size[less.letters] = c->size[l];
            for (int who = 0; who < 3; who++)
                less.step[who][less.letters] = c->step[who][l];
            less.letters++;
        }
    return less;
}

static void contract(fv_tape *t, contraction c, const fv_real *x, const fv_real *y, bool add,
                     fv_real *z)
{
    x = sum_alone(t, &c, AT_X, x);
    y = sum_alone(t, &c, AT_Y, y);
    if (x == NULL || y == NULL)
        return;
    if (pick(&c, X | Y | Z, X | Y, AT_X).count == 0) {
        multiply_places(t, &c, x, y, add, z);
    } else if (c.lanes) {
        sum_in_lanes(t, &c, x, y, add, z);
    } else if (pick(&c, X | Y | Z, Z, AT_Z).count == 0) {
        multiply_matrices(t, c, x, y, add, z);
    } else { /* z repeats the product along letters of its own */
        contraction once = c;
        group order = {0};
        for (int l = 0; l < c.letters; l++) {
            once.step[AT_Z][l] = 0;
            if ((owners(&c, l) & Z) != 0 && owners(&c, l) != Z)
                insert(&c, AT_Z, l, &order);
        }
        fv_real *product = fvi_tape_take(t, make_contiguous(&once, AT_Z, &order), sizeof *product);
        if (product == NULL)
            return;
        multiply_matrices(t, once, x, y, false, product);
        memcpy(c.step[AT_X], once.step[AT_Z], sizeof c.step[AT_X]);
        copy_places(t, &c, product, add, z);
    }
}

void fvi_contract(fv_tape *t, const contraction *c, const fv_real *x, const fv_real *y, bool add,
                  fv_real *z)
{
    size_t numbers = 1;
    bool nothing = false;
    for (int l = 0; l < c->letters; l++) {
        numbers *= c->step[AT_Z][l] != 0 ? c->size[l] : 1;
        nothing |= c->size[l] == 0;
    }
    if (nothing) {
        if (!add)
            memset(z, 0, numbers * sizeof *z);
        return;
    }
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    contract(t, without_ones(c), x, y, add, z);
    fvi_arena_release(&t->arena, mark);
}

static const fv_real *data_of(const fv_var *x)
{
    return x == NULL ? &one : x->value.data;
}

bool fvi_contract_forward(fv_tape *t, fv_var *y)
{
    fvi_contract(t, y->options, data_of(y->in[0]), data_of(y->in[1]), false, y->value.data);
    return fv_tape_ok(t);
}

/* The same letters with z and x (or z and y) exchanged: dx = dz y, dy = dz x, summed over what they lack. */
void fvi_contract_backward(fv_tape *t, fv_var *y)
{
    const contraction *c = y->options;
    for (int who = 0; who < 2; who++) {
        fv_real *dx = fv_grad(t, y->in[who]);
        if (dx == NULL)
            continue;
        contraction back = {.letters = c->letters};
        memcpy(back.size, c->size, sizeof back.size);
        memcpy(back.step[AT_X], c->step[AT_Z], sizeof *back.step);
        memcpy(back.step[AT_Y], c->step[1 - who], sizeof *back.step);
        memcpy(back.step[AT_Z], c->step[who], sizeof *back.step);
        fvi_contract(t, &back, y->grad, data_of(y->in[1 - who]), true, dx);
    }
}
