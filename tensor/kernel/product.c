/* Matrix products: C cut into rectangles for threads, column blocks for the cache, tiles for registers.
 *
 * k is cut into equal blocks of at most DEEP, whatever m, n and the threads, and nothing but k is summed
 * over: a number of C has the same bits in every product of that k. A column block of B is packed into
 * panels that stay in the second cache while all rows pass over them; the rows of one tile stay in the
 * first (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008). */
#include "tensor/kernel/turn.h"

enum {
    DEEP = 384,                 /* numbers of k in one multiply-add chain */
    BLOCK = 12 * DEEP * FVI_NR, /* numbers of B in a column block */
    FEW = 2 * FVI_MR,           /* rows that do not repay packing B */
    WIDE = 4 * FVI_NR,          /* columns that repay packing A, where it helps */
    CLASH = 4096,               /* bytes after which the first cache is full of rows in one place */
    WORTH = 1500000,            /* operations that repay waking the threads */
    LINE = FVI_ALIGN / sizeof(fv_real)
};

/* How a product is cut; all of it follows from the sizes. */
typedef struct {
    size_t deep;               /* of k at a time */
    size_t columns;            /* of a column block, a multiple of FVI_NR */
    size_t down, across;       /* rectangles of C, one a thread */
    size_t packed_b, packed_a; /* numbers of scratch for each, in every thread */
    bool pack_b, pack_a;
    bool turn; /* B, instead of packing it */
} plan;

static size_t divide_up(size_t x, size_t y)
{
    return x / y + (x % y != 0);
}

/* The grid of rectangles whose largest has the least tiles to compute and panels to pack; a panel costs
 * about as much as a tile. */
static void plan_threads(const fvi_product *p, int threads, plan *cut)
{
    const size_t tiles = fvi_tiles(p->m), panels = divide_up(p->n, FVI_NR);
    const double work = 2 * (double)p->m * (double)p->n * (double)p->k;
    size_t least = SIZE_MAX;
    cut->down = cut->across = 1;
    for (size_t down = 1; threads > 1 && work > WORTH && down <= (size_t)threads; down++) {
        const size_t across = (size_t)threads / down;
        const size_t cost = (divide_up(tiles, down) + 1) * divide_up(panels, across);
        if (down <= tiles && cost < least) {
            least = cost;
            cut->down = down;
            cut->across = across < panels ? across : panels;
        }
    }
}

static plan make_plan(const fvi_product *p, int threads)
{
    plan cut = {.deep = p->k > DEEP ? divide_up(p->k, divide_up(p->k, DEEP)) : p->k};
    const size_t panels = divide_up(p->n, FVI_NR);
    const size_t most = BLOCK / FVI_NR / (cut.deep > 0 ? cut.deep : 1);
    cut.columns = FVI_NR * (panels <= most ? panels : divide_up(panels, divide_up(panels, most)));
    const size_t stride = (p->a_col == 1 ? p->a_row : p->a_col) * sizeof(fv_real);
    cut.pack_a = cut.columns >= WIDE && stride % CLASH == 0;
    cut.turn = p->m <= FVI_FEW && p->b_row == 1 && p->b_col != 1 &&
               p->b_col * sizeof(fv_real) % CLASH != 0;
    cut.pack_b = !cut.turn && (p->b_col != 1 || p->m > FEW);
    /* no less than for fewer rows or columns: callers reserve scratch for their largest product */
    const size_t widest = FVI_NR * (panels < most ? panels : most);
    cut.packed_b = divide_up(widest * cut.deep, LINE) * LINE;
    cut.packed_a = stride % CLASH == 0 ? divide_up(FVI_MR * cut.deep, LINE) * LINE : 0;
    plan_threads(p, threads, &cut);
    return cut;
}

/* A column whose numbers are adjacent is computed as a row: C' = B' A'. */
static fvi_product as_row(const fvi_product *p)
{
    if (p->n != 1 || p->c_row != 1 || p->bias != NULL)
        return *p;
    fvi_product row = *p;
    row.m = 1;
    row.n = p->m;
    row.a = p->b;
    row.a_row = 1;
    row.a_col = p->b_row;
    row.b = p->a;
    row.b_row = p->a_col;
    row.b_col = p->a_row;
    row.c_row = p->m;
    return row;
}

size_t fvi_product_scratch(const fvi_product *p, int threads)
{
    const fvi_product row = as_row(p);
    const plan cut = make_plan(&row, threads);
    return cut.down * cut.across * (cut.packed_b + cut.packed_a) + 1;
}

/* A block of columns of C and of k. */
typedef struct {
    size_t column, width;
    size_t from, deep;
    size_t direct; /* columns of B read where they lie; the panels of the rest are packed */
    fv_real *packed_b, *packed_a;
    bool add, last;
} block;

/* Rows i to i + rows - 1 of a block. */
static void run_tiles(const fvi_product *p, const plan *cut, const block *at, size_t i, size_t rows)
{
    const fv_real *a = p->a + i * p->a_row + at->from * p->a_col;
    const fv_real *b = p->b + at->from * p->b_row + at->column * p->b_col;
    fv_real *c = p->c + i * p->c_row + at->column;
    fvi_tile_end end = {.add = at->add, .relu = at->last && p->activation == FVI_RELU};
    size_t a_row = p->a_row, a_col = p->a_col;
    if (cut->pack_a) {
        fvi_pack_rows(rows, at->deep, a, a_row, a_col, at->packed_a);
        a = at->packed_a;
        a_row = 1;
        a_col = rows;
    }
    for (size_t j = 0; j < at->width; j += FVI_NR) {
        const size_t n = at->width - j < FVI_NR ? at->width - j : FVI_NR;
        if (at->last && p->bias != NULL)
            end.bias = p->bias + at->column + j;
        if (j < at->direct && cut->turn)
            fvi_turned_tile(rows, at->deep, a, a_row, a_col, b + j * p->b_col, p->b_col, c + j,
                            p->c_row, &end);
        else if (j < at->direct)
            fvi_tile_any(rows, n, at->deep, a, a_row, a_col, b + j, p->b_row, c + j, p->c_row,
                         &end);
        else
            fvi_tile_any(rows, n, at->deep, a, a_row, a_col, at->packed_b + j * at->deep, FVI_NR,
                         c + j, p->c_row, &end);
    }
}

/* Rows i to i_end - 1 and columns j to j_end - 1 of C. */
static void run_rectangle(const fvi_product *p, const plan *cut, size_t i, size_t i_end, size_t j,
                          size_t j_end, fv_real *scratch)
{
    const size_t tiles = fvi_tiles(i_end - i);
    block at = {.packed_b = scratch, .packed_a = scratch + cut->packed_b};
    for (at.column = j; at.column < j_end; at.column += at.width) {
        at.width = j_end - at.column < cut->columns ? j_end - at.column : cut->columns;
        at.direct = cut->pack_b ? 0 : at.width / FVI_NR * FVI_NR;
        at.from = 0;
        do { /* once even for k = 0 */
            at.deep = p->k - at.from < cut->deep ? p->k - at.from : cut->deep;
            at.add = p->add || at.from > 0;
            at.last = at.from + at.deep == p->k;
            fvi_pack(at.width - at.direct, at.deep,
                     p->b + at.from * p->b_row + (at.column + at.direct) * p->b_col, p->b_row,
                     p->b_col, at.packed_b + at.direct * at.deep);
            for (size_t t = 0; t < tiles; t++) {
                const size_t row = fvi_tile_row(i_end - i, tiles, t);
                run_tiles(p, cut, &at, i + row, fvi_tile_row(i_end - i, tiles, t + 1) - row);
            }
            at.from += at.deep;
        } while (at.from < p->k);
    }
}

/* The part-th rectangle of C, of whole panels. */
static void run_part(const fvi_product *p, const plan *cut, size_t part, fv_real *scratch)
{
    const size_t down = part / cut->across, across = part % cut->across;
    const size_t panels = divide_up(p->n, FVI_NR);
    const size_t end = FVI_NR * fvi_tile_row(panels, cut->across, across + 1);
    run_rectangle(p, cut, fvi_tile_row(p->m, cut->down, down),
                  fvi_tile_row(p->m, cut->down, down + 1),
                  FVI_NR * fvi_tile_row(panels, cut->across, across), end < p->n ? end : p->n,
                  scratch + part * (cut->packed_b + cut->packed_a));
}

void fvi_product_run(const fvi_product *given, int threads, fv_real *scratch)
{
    if (given->m == 0 || given->n == 0)
        return;
    const fvi_product row = as_row(given), *p = &row;
    const plan cut = make_plan(p, threads);
    const size_t parts = cut.down * cut.across;
    if (parts == 1) {
        run_rectangle(p, &cut, 0, p->m, 0, p->n, scratch);
        return;
    }
#pragma omp parallel for schedule(static, 1) num_threads((int)parts)
    for (size_t part = 0; part < parts; part++)
        run_part(p, &cut, part, scratch);
}
