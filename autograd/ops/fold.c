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
#include "autograd/ops/rows.h"

enum {
    WIDTH = 1024,   /* results of a tile, at most */
    NUMBERS = 8192, /* of a tile of rows, about: the cache holds them */
    SHORT = 48,     /* runs below this are turned, */
    NEAR = 2048,    /* so many numbers at a time */
    GROUP = 64,     /* rows shorter than half of this are added several at a time */
    BLOCK = 16384,  /* numbers of a block, at least */
    BLOCKS = 64     /* of a tile, at most */
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
    const fvi_wide most = fv_re(b) > fv_re(a) ? b : a;
    return fv_re(b) != fv_re(b) ? b : most;
}

FVI_INLINE fvi_wide smaller(fvi_wide a, fvi_wide b)
{
    const fvi_wide least = fv_re(b) < fv_re(a) ? b : a;
    return fv_re(b) != fv_re(b) ? b : least;
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
        return (fvi_wide)x * x;
    case FOLD_CENTRED:
        return (x - c) * (x - c);
    case FOLD_EXPS:
        return exp_of_shifted(isinf(fv_re(c)) && fv_re(x) == fv_re(c) ? 0 : x - (fv_real)c);
    case FOLD_ABS:
    case FOLD_MAX_ABS:
    case FOLD_MIN_ABS:
        return fvi_abs(x);
    case FOLD_POWERS:
        return fvi_pow(fvi_abs(x), p);
    case FOLD_NOT_ZERO:
        return fv_re(x) != 0;
    case FOLD_EQUAL:
        return fv_re(x) == fv_re((fv_real)c);
    case FOLD_EQUAL_ABS: /* NaN too: its sign, and so its share, is 0 */
        return (fv_re(fvi_abs(x)) == fv_re(c)) | (fv_re(x) != fv_re(x));
    default:
        return x;
    }
}

FVI_INLINE bool has_c(fold_kind kind)
{
    return kind == FOLD_CENTRED || kind == FOLD_EXPS || kind == FOLD_EQUAL ||
           kind == FOLD_EQUAL_ABS;
}

/* ---- the two loops of each kind ---------------------------------------------------------------- */

/* n adjacent numbers of one result. */
FVI_INLINE fvi_wide any_run(fold_kind kind, double p, size_t n, const fv_real *restrict x,
                            fvi_wide c)
{
    fvi_wide lane[FVI_LANES];
    for (int l = 0; l < FVI_LANES; l++)
        lane[l] = nothing(kind);
    size_t i = 0; /* the lanes stay a loop, which compilers turn into vectors for every kind */
    for (; i + FVI_LANES <= n; i += FVI_LANES) {
        __builtin_prefetch(x + i + FVI_AHEAD);
#pragma GCC unroll 1
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] = join(kind, lane[l], counts(kind, p, x[i + (size_t)l], c));
    }
    for (int l = 0; i < n; i++, l++)
        lane[l] = join(kind, lane[l], counts(kind, p, x[i], c));
    for (int half = FVI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = join(kind, lane[l], lane[l + half]);
    return lane[0];
}

/* n rows of m adjacent numbers, each of its own result. Long rows pass ROWS at a time, in the same order:
 * the sums are fetched and stored less often, and memory is read in several places at once. */
FVI_INLINE void any_rows(fold_kind kind, double p, size_t n, size_t m, const fv_real *x,
                         ptrdiff_t step, const fvi_wide *c, fvi_wide *restrict sum)
{
    enum { ROWS = 8 };
    size_t i = 0;
    for (; m > 2 * GROUP && i + ROWS <= n; i += ROWS, x += ROWS * step)
        for (size_t j = 0; j < m; j++) {
            fvi_wide now = sum[j];
            for (int r = 0; r < ROWS; r++)
                now = join(kind, now,
                           counts(kind, p, x[r * step + (ptrdiff_t)j], has_c(kind) ? c[j] : 0));
            sum[j] = now;
        }
    for (; i < n; i++, x += step)
        for (size_t j = 0; j < m; j++)
            sum[j] = join(kind, sum[j], counts(kind, p, x[j], has_c(kind) ? c[j] : 0));
}

typedef struct {
    fvi_wide (*run)(double p, size_t n, const fv_real *x, fvi_wide c);
    void (*rows)(double p, size_t n, size_t m, const fv_real *x, ptrdiff_t step, const fvi_wide *c,
                 fvi_wide *sum);
} loops;

#define EACH_KIND(X)                                                                               \
    X(FOLD_SUM)                                                                                    \
    X(FOLD_SQUARES)                                                                                \
    X(FOLD_CENTRED)                                                                                \
    X(FOLD_EXPS)                                                                                   \
    X(FOLD_ABS)                                                                                    \
    X(FOLD_POWERS)                                                                                 \
    X(FOLD_NOT_ZERO)                                                                               \
    X(FOLD_EQUAL)                                                                                  \
    X(FOLD_EQUAL_ABS)                                                                              \
    X(FOLD_PRODUCT)                                                                                \
    X(FOLD_MAX)                                                                                    \
    X(FOLD_MIN)                                                                                    \
    X(FOLD_MAX_ABS)                                                                                \
    X(FOLD_MIN_ABS)

#define X(kind)                                                                                    \
    static fvi_wide run_##kind(double p, size_t n, const fv_real *x, fvi_wide c)                   \
    {                                                                                              \
        return any_run(kind, p, n, x, c);                                                          \
    }                                                                                              \
    static void rows_##kind(double p, size_t n, size_t m, const fv_real *x, ptrdiff_t step,        \
                            const fvi_wide *c, fvi_wide *sum)                                      \
    {                                                                                              \
        any_rows(kind, p, n, m, x, step, c, sum);                                                  \
    }
EACH_KIND(X)
#undef X

static const loops loops_of[] = {
#define X(kind) [kind] = {run_##kind, rows_##kind},
    EACH_KIND(X)
#undef X
};

/* ---- one block --------------------------------------------------------------------------------- */

/* A block of a tile: these runs, and in each of them these numbers. */
typedef struct {
    const fv_real *x;
    const fvi_wide *c;
    size_t width;
    part runs, numbers;
} block;

/* Few numbers of each result: they are turned into rows, as many as NEAR holds at a time. Only
 * whole squares are turned in vectors: where more numbers follow, some are read over the end of a run. */
static void short_runs(const fold *f, const block *b, size_t n, const fv_real *x, fvi_wide *sum)
{
    fv_real row[NEAR];
    const size_t next = (size_t)f->kept.run[0];
    const size_t whole = (n + FVI_QUAD - 1) / FVI_QUAD * FVI_QUAD, most = NEAR / whole;
    /* Runs with too little behind them. */
    const size_t last = whole > n ? (whole - n - 1) / next + 1 : 0;
    for (size_t j = 0, m; j < b->width; j += m) {
        const size_t rest = b->width - j;
        m = rest > last ? rest - last : rest;
        m = m < most ? m : most;
        fvi_transpose(m, rest > last ? whole : n, x + j * next, next, row, m);
        loops_of[f->kind].rows(f->p, n, m, row, (ptrdiff_t)m, b->c ? b->c + j : NULL, sum + j);
    }
}

/* Rows much shorter than GROUP that lie end to end: several at a time, as one longer row. */
static void short_rows(const fold *f, const block *b, size_t n, const fv_real *x, fvi_wide *sum)
{
    const size_t m = b->width, count = GROUP / m, wide = count * m, times = n / count;
    const loops *run = &loops_of[f->kind];
    fvi_wide sums[GROUP], cs[GROUP] = {0};
    for (size_t j = 0; j < wide; j++) {
        sums[j] = nothing(f->kind);
        cs[j] = b->c ? b->c[j % m] : 0;
    }
    run->rows(f->p, times, wide, x, (ptrdiff_t)wide, cs, sums);
    for (size_t j = 0; j < wide; j++)
        sum[j % m] = join(f->kind, sum[j % m], sums[j]);
    run->rows(f->p, n - times * count, m, x + times * wide, (ptrdiff_t)m, b->c, sum);
}

static void run_block(const fold *f, const block *b, fvi_wide *sum)
{
    const loops *run = &loops_of[f->kind];
    const ptrdiff_t next = f->kept.run[0], step = f->gone.run[0];
    const size_t n = b->numbers.to - b->numbers.from, width = b->width;
    const fvi_wide none = nothing(f->kind);
    const bool across = f->kept.n > 1 && next == 1;
    for (size_t j = 0; j < width; j++)
        sum[j] = none;
    walker at = walk_to(&f->gone, b->runs.from);
    for (size_t r = b->runs.from; r < b->runs.to; r++) {
        const fv_real *x = b->x + at.at[0] + (ptrdiff_t)b->numbers.from * step;
        if (across && 2 * width <= GROUP && step == (ptrdiff_t)width && n * width > GROUP)
            short_rows(f, b, n, x, sum);
        else if (across)
            run->rows(f->p, n, width, x, step, b->c, sum);
        else if (width > 1 && n < SHORT && next > 0)
            short_runs(f, b, n, x, sum);
        else
            for (size_t j = 0; j < width; j++)
                sum[j] = join(f->kind, sum[j],
                              run->run(f->p, n, x + (ptrdiff_t)j * next, b->c ? b->c[j] : 0));
        walk_on(&f->gone, &at);
    }
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
    cut k = {.width = WIDTH, .cut_runs = runs > n || (runs > 1 && n < BLOCK)};
    if ((f->kept.n == 1 || f->kept.run[0] != 1) && n > 1 && runs == 1)
        k.width = n < NUMBERS ? NUMBERS / n : 1;
    k.width = k.width < WIDTH ? k.width : WIDTH;
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
    const size_t cut_size = k->cut_runs ? f->gone.runs : f->gone.n;
    const part all = {0, k->cut_runs ? f->gone.n : f->gone.runs},
               some =
                   k->blocks > 1 ? part_at(cut_size, (int)k->blocks, (int)i) : (part){0, cut_size};
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

static void put(const fold *f, const tile *at, fvi_wide *restrict sum)
{
    const ptrdiff_t next = f->kept.run[1];
    for (size_t j = 0; f->over != 1 && j < at->width; j++)
        sum[j] /= f->over;
    if (f->wide != NULL)
        memcpy(f->wide + at->y, sum, at->width * sizeof *sum);
    for (size_t j = 0; f->y != NULL && j < at->width; j++)
        f->y[at->y + (ptrdiff_t)j] = (fv_real)sum[j];
    for (size_t j = 0; f->dx != NULL && j < at->width; j++)
        f->dx[at->y + (ptrdiff_t)j * next] += (fv_real)sum[j];
}

/* The tiles of one thread. */
static void fold_tiles(const fold *f, const cut *k, part p, const fv_real *x)
{
    fvi_wide sum[WIDTH], more[WIDTH];
    walker run = walk_to(&f->kept, p.from / k->tiles);
    for (size_t i = p.from, number = p.from % k->tiles; i < p.to; i++) {
        const tile at = tile_at(f, k, &run, number, x);
        for (const fold *now = f; now != NULL; now = now->then) {
            fold_part(now, k, &at, 0, sum);
            for (size_t b = 1; b < k->blocks; b++) {
                fold_part(now, k, &at, b, more);
                join_sums(now, at.width, sum, more);
            }
            put(now, &at, sum);
        }
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
        for (; f != NULL; f = f->then)
            fold_blocks(t, f, &k, x);
        return;
    }
    const int parts = parts_of(t, k.items, cost);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int i = 0; i < parts; i++)
        fold_tiles(f, &k, part_at(k.items, parts, i), x);
}
