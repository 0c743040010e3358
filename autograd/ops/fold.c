/* The loops behind every reduction.
 *
 * Results that are neighbours make a tile; a tile's sums stand side by side in double while the numbers
 * pass in the order of memory. Where neighbouring numbers belong to one result, each run of them is
 * summed in FVI_LANES lanes; where they belong to neighbouring results, whole rows are added. What a tile
 * folds is cut into blocks, and the blocks' sums are added in order: so threads may share the tiles, or,
 * when these are few, the blocks, and the bits are the same. */
#include "tensor/kernel/tile.h"
#include "tensor/math.h"

#include "autograd/ops/fold.h"

enum {
    WIDTH = 1024,  /* results of a tile, at most */
    GROUP = 64,    /* rows shorter than half of this are added several at a time */
    BLOCK = 16384, /* numbers of a block, at least */
    BLOCKS = 64    /* of a tile, at most */
};

/* ---- the kinds --------------------------------------------------------------------------------- */

/* A fold of no numbers. */
static fvi_wide nothing(fold_kind kind)
{
    switch (kind) {
    case FOLD_PRODUCT:
        return 1;
    case FOLD_MAX:
        return -(double)INFINITY;
    case FOLD_MIN:
    case FOLD_MIN_ABS:
        return (double)INFINITY;
    default:
        return 0;
    }
}

/* NaN passes by: it is neither less than nor equal to itself. */
FVI_INLINE fvi_wide larger(fvi_wide a, fvi_wide b)
{
    return ((fv_re(b) > fv_re(a)) | (fv_re(b) != fv_re(b))) ? b : a;
}

FVI_INLINE fvi_wide smaller(fvi_wide a, fvi_wide b)
{
    return ((fv_re(b) < fv_re(a)) | (fv_re(b) != fv_re(b))) ? b : a;
}

FVI_INLINE fvi_wide join(fold_kind kind, fvi_wide a, fvi_wide b)
{
    switch (kind) {
    case FOLD_PRODUCT:
        return a * b;
    case FOLD_MAX:
    case FOLD_MAX_ABS:
        return larger(a, b);
    case FOLD_MIN:
    case FOLD_MIN_ABS:
        return smaller(a, b);
    default:
        return a + b;
    }
}

/* What one number counts. */
FVI_INLINE fvi_wide counts(fold_kind kind, double p, fv_real x, fvi_wide c)
{
    switch (kind) {
    case FOLD_SQUARES:
        return (x - c) * (x - c);
    case FOLD_EXPS:
        return fvi_exp((fv_real)(x - c));
    case FOLD_ABS:
    case FOLD_MAX_ABS:
    case FOLD_MIN_ABS:
        return fvi_abs(x);
    case FOLD_POWERS:
        return fvi_pow(fvi_abs(x), p);
    case FOLD_NOT_ZERO:
        return fv_re(x) != 0;
    case FOLD_EQUAL:
        return fv_re(x) == fv_re(c);
    case FOLD_EQUAL_ABS:
        return fv_re(fvi_abs(x)) == fv_re(c);
    default:
        return x;
    }
}

/* ---- the loops --------------------------------------------------------------------------------- */

/* n adjacent numbers of one result. */
FVI_INLINE fvi_wide fold_run(fold_kind kind, double p, size_t n, const fv_real *restrict x,
                             fvi_wide c)
{
    fvi_wide lane[FVI_LANES];
    if (n < FVI_LANES) {
        fvi_wide sum = nothing(kind);
        for (size_t i = 0; i < n; i++)
            sum = join(kind, sum, counts(kind, p, x[i], c));
        return sum;
    }
    for (int l = 0; l < FVI_LANES; l++)
        lane[l] = nothing(kind);
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] = join(kind, lane[l], counts(kind, p, x[i + (size_t)l], c));
    for (int l = 0; i < n; i++, l++)
        lane[l] = join(kind, lane[l], counts(kind, p, x[i], c));
    for (int half = FVI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = join(kind, lane[l], lane[l + half]);
    return lane[0];
}

/* n rows of m adjacent numbers, each of its own result. */
FVI_INLINE void fold_rows(fold_kind kind, double p, size_t n, size_t m, const fv_real *x,
                          ptrdiff_t step, const fvi_wide *c, fvi_wide *restrict sum)
{
    for (size_t i = 0; i < n; i++) {
        const fv_real *restrict row = x + (ptrdiff_t)i * step;
        for (size_t j = 0; j < m; j++)
            sum[j] = join(kind, sum[j], counts(kind, p, row[j], c ? c[j] : 0));
    }
}

/* The same for short rows that lie end to end: several at a time, as one longer row. */
FVI_INLINE void fold_short_rows(fold_kind kind, double p, size_t n, size_t m, const fv_real *x,
                                const fvi_wide *c, fvi_wide *restrict sum)
{
    const size_t rows = GROUP / m, wide = rows * m, times = n / rows;
    fvi_wide sums[GROUP], cs[GROUP];
    for (size_t j = 0; j < wide; j++) {
        sums[j] = nothing(kind);
        cs[j] = c ? c[j % m] : 0;
    }
    fold_rows(kind, p, times, wide, x, (ptrdiff_t)wide, cs, sums);
    for (size_t j = 0; j < wide; j++)
        sum[j % m] = join(kind, sum[j % m], sums[j]);
    fold_rows(kind, p, n - times * rows, m, x + times * wide, (ptrdiff_t)m, c, sum);
}

/* A block of a tile: these runs, and in each of them these numbers. */
typedef struct {
    const fv_real *x;
    const fvi_wide *c;
    size_t width;
    part runs, numbers;
} block;

FVI_INLINE void fold_block(fold_kind kind, const fold *f, const block *b, fvi_wide *sum)
{
    const ptrdiff_t next = f->kept.run[0], step = f->gone.run[0];
    const size_t n = b->numbers.to - b->numbers.from;
    for (size_t j = 0; j < b->width; j++)
        sum[j] = nothing(kind);
    walker at = walk_to(&f->gone, b->runs.from);
    for (size_t r = b->runs.from; r < b->runs.to; r++) {
        const fv_real *x = b->x + at.at[0] + (ptrdiff_t)b->numbers.from * step;
        if (f->kept.n == 1 || next != 1)
            for (size_t j = 0; j < b->width; j++)
                sum[j] = join(kind, sum[j],
                              fold_run(kind, f->p, n, x + (ptrdiff_t)j * next, b->c ? b->c[j] : 0));
        else if (2 * b->width <= GROUP && step == (ptrdiff_t)b->width && n * b->width > GROUP)
            fold_short_rows(kind, f->p, n, b->width, x, b->c, sum);
        else
            fold_rows(kind, f->p, n, b->width, x, step, b->c, sum);
        walk_on(&f->gone, &at);
    }
}

/* One loop for each kind. */
static void run_block(const fold *f, const block *b, fvi_wide *sum)
{
#define KIND(kind)                                                                                 \
    case kind:                                                                                     \
        fold_block(kind, f, b, sum);                                                               \
        return;
    switch (f->kind) {
        KIND(FOLD_SUM)
        KIND(FOLD_SQUARES)
        KIND(FOLD_EXPS)
        KIND(FOLD_ABS)
        KIND(FOLD_POWERS)
        KIND(FOLD_NOT_ZERO)
        KIND(FOLD_EQUAL)
        KIND(FOLD_EQUAL_ABS)
        KIND(FOLD_PRODUCT)
        KIND(FOLD_MAX)
        KIND(FOLD_MIN)
        KIND(FOLD_MAX_ABS)
        KIND(FOLD_MIN_ABS)
    }
#undef KIND
}

/* ---- tiles and blocks -------------------------------------------------------------------------- */

/* How a fold is cut; by its sizes alone. */
typedef struct {
    size_t width, tiles; /* results of a tile, tiles of a run of kept */
    size_t items;        /* tiles in all */
    size_t blocks;       /* of each */
    bool cut_runs;       /* blocks are of whole runs; otherwise of a part of each run */
} cut;

static cut cut_fold(const fold *f)
{
    const size_t n = f->gone.n, runs = f->gone.runs;
    cut k = {.width = WIDTH, .cut_runs = runs > n};
    if ((f->kept.n == 1 || f->kept.run[0] != 1) && n > 1)
        k.width = n < WIDTH ? WIDTH / n : 1;
    k.width = k.width < f->kept.n ? k.width : f->kept.n > 0 ? f->kept.n : 1;
    k.tiles = (f->kept.n + k.width - 1) / k.width;
    k.items = k.tiles * f->kept.runs;
    const size_t numbers = k.width * n * runs, most = k.cut_runs ? runs : n;
    k.blocks = numbers / BLOCK < BLOCKS ? numbers / BLOCK : BLOCKS;
    k.blocks = k.blocks < most ? k.blocks : most;
    k.blocks = k.blocks > 0 ? k.blocks : 1;
    return k;
}

/* A tile: where its results start, and its numbers. */
typedef struct {
    const fv_real *x;
    ptrdiff_t y;
    size_t width;
} tile;

static tile tile_at(const fold *f, const cut *k, const walker *run, size_t number, const fv_real *x)
{
    const size_t first = number * k->width, rest = f->kept.n - first;
    const ptrdiff_t i = (ptrdiff_t)first;
    return (tile){x + run->at[0] + i * f->kept.run[0], run->at[1] + i * f->kept.run[1],
                  rest < k->width ? rest : k->width};
}

/* Folds block number i of a tile. */
static void fold_part(const fold *f, const cut *k, const tile *at, size_t i, fvi_wide *sum)
{
    const part all = {0, k->cut_runs ? f->gone.n : f->gone.runs},
               some = part_at(k->cut_runs ? f->gone.runs : f->gone.n, (int)k->blocks, (int)i);
    const block b = {at->x, f->c ? f->c + at->y : NULL, at->width, k->cut_runs ? some : all,
                     k->cut_runs ? all : some};
    run_block(f, &b, sum);
}

static void join_sums(const fold *f, size_t width, fvi_wide *restrict sum,
                      const fvi_wide *restrict more)
{
    for (size_t j = 0; j < width; j++)
        sum[j] = join(f->kind, sum[j], more[j]);
}

static void put(const fold *f, const tile *at, const fvi_wide *restrict sum)
{
    const ptrdiff_t next = f->kept.run[1];
    const double over = f->over;
    if (f->wide != NULL)
        memcpy(f->wide + at->y, sum, at->width * sizeof *sum);
    else if (f->y != NULL)
        for (size_t j = 0; j < at->width; j++)
            f->y[at->y + (ptrdiff_t)j] = (fv_real)(sum[j] / over);
    else
        for (size_t j = 0; j < at->width; j++)
            f->dx[at->y + (ptrdiff_t)j * next] += (fv_real)sum[j];
}

/* The tiles of one thread. */
static void fold_tiles(const fold *f, const cut *k, part p, const fv_real *x)
{
    fvi_wide sum[WIDTH], more[WIDTH];
    walker run = walk_to(&f->kept, p.from / k->tiles);
    for (size_t i = p.from, number = p.from % k->tiles; i < p.to; i++) {
        const tile at = tile_at(f, k, &run, number, x);
        fold_part(f, k, &at, 0, sum);
        for (size_t b = 1; b < k->blocks; b++) {
            fold_part(f, k, &at, b, more);
            join_sums(f, at.width, sum, more);
        }
        put(f, &at, sum);
        if (++number == k->tiles) {
            number = 0;
            walk_on(&f->kept, &run);
        }
    }
}

/* Few tiles: threads share the blocks. */
static void fold_blocks(fv_tape *t, const fold *f, const cut *k, const fv_real *x)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const size_t tasks = k->items * k->blocks;
    fvi_wide *sums = fvi_tape_take(t, tasks * k->width, sizeof *sums);
    if (sums == NULL)
        return;
#pragma omp parallel for num_threads(t->threads) schedule(dynamic)
    for (size_t i = 0; i < tasks; i++) {
        const size_t item = i / k->blocks;
        const walker run = walk_to(&f->kept, item / k->tiles);
        const tile at = tile_at(f, k, &run, item % k->tiles, x);
        fold_part(f, k, &at, i % k->blocks, sums + i * k->width);
    }
    for (size_t item = 0; item < k->items; item++) {
        const walker run = walk_to(&f->kept, item / k->tiles);
        const tile at = tile_at(f, k, &run, item % k->tiles, x);
        fvi_wide *sum = sums + item * k->blocks * k->width;
        for (size_t b = 1; b < k->blocks; b++)
            join_sums(f, at.width, sum, sum + b * k->width);
        put(f, &at, sum);
    }
    fvi_arena_release(&t->arena, mark);
}

void fvi_fold(fv_tape *t, const fold *f, const fv_real *x)
{
    const cut k = cut_fold(f);
    const size_t threads = (size_t)t->threads, cost = k.width * f->gone.n * f->gone.runs;
    if (k.items == 0) /* nothing is kept */
        return;
    if (threads > 1 && k.blocks > 1 && k.items < 4 * threads) {
        fold_blocks(t, f, &k, x);
        return;
    }
    const int parts = parts_of(t, k.items, cost);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int i = 0; i < parts; i++)
        fold_tiles(f, &k, part_at(k.items, parts, i), x);
}
