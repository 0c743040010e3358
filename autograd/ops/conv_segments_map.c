/* The three maps of a convolution over the rows of segments.
 *
 * A chunk of rows is laid out with their windows side by side [rows, kernel * channels], where channels are
 * adjacent, and multiplied with the weight laid out the same way [kernel * wide, narrow]. With one channel a
 * group (depthwise) rows are added tap by tap. What a row gets depends on its segment alone, not on chunks. */
#include "autograd/ops/conv_segments.h"
#include "tensor/math.h"

#include <string.h>

enum {
    CHUNK = 1 << 17, /* numbers in the windows of a chunk */
    LEAST = 64,      /* rows of a chunk, at least */
    MOST = 384,      /* and at most: what a product sums in one chain */
    WORTH = 1500000  /* operations that repay waking the threads */
};

static size_t terms_of(const segment_map *c)
{
    return c->w.kernel * c->wide;
}

static size_t chunk_of(const segment_map *c)
{
    const size_t terms = terms_of(c), rows = CHUNK / (terms > 0 ? terms : 1);
    return rows < LEAST ? LEAST : rows > MOST ? MOST : rows;
}

static bool is_depthwise(const segment_map *c)
{
    return c->wide == 1 && c->narrow == 1 && c->groups > 1;
}

/* weight [groups * narrow, wide, kernel] as [groups, kernel, wide, narrow], or [kernel, groups] when
 * depthwise; back adds it the other way. */
static void lay_out_weight(const segment_map *c, const fv_real *from, fv_real *to, bool back)
{
    const size_t all = c->groups * c->narrow;
    for (size_t o = 0; o < all; o++)
        for (size_t i = 0; i < c->wide; i++)
            for (size_t k = 0; k < c->w.kernel; k++) {
                const size_t given = (o * c->wide + i) * c->w.kernel + k;
                const size_t group = o / c->narrow, term = k * c->wide + i;
                const size_t laid = is_depthwise(c)
                                        ? k * c->groups + o
                                        : (group * terms_of(c) + term) * c->narrow + o % c->narrow;
                if (back)
                    to[given] += from[laid];
                else
                    to[laid] = from[given];
            }
}

/* The weight laid out; NULL when memory is out. */
static const fv_real *laid_weight(fv_tape *t, const segment_map *c, const fv_real *weight)
{
    fv_real *laid = fvi_tape_take(t, c->groups * c->narrow * terms_of(c), sizeof *laid);
    if (laid != NULL)
        lay_out_weight(c, weight, laid, false);
    return laid;
}

/* Rows of the narrow side, and the segment that the first one is in. */
typedef struct {
    size_t from, to, segment;
} rows_span;

/* The windows of rows, of the channels of one group, side by side, zeros outside; or, back, adds these to
 * where the windows look, rows ascending. */
static void each_window(const segment_map *c, rows_span rows, size_t group, const fv_real *in,
                        fv_real *out, bool back)
{
    const segment_window *w = &c->w;
    const size_t d = c->groups * c->wide, terms = terms_of(c);
    size_t segment = rows.segment;
    for (size_t r = rows.from; r < rows.to; r++) {
        while (r >= w->to->offsets[segment + 1])
            segment++;
        const segment_span s = segment_at(w, segment);
        size_t first, end, row;
        taps_inside(w, &s, r - s.to_first, &first, &end, &row);
        const size_t at = (r - rows.from) * terms, look = row * d + group * c->wide;
        if (back) {
            for (size_t k = first; k < end; k++)
                add_to(c->wide, in + at + k * c->wide, out + look + (k - first) * w->dilation * d);
            continue;
        }
        memset(out + at, 0, first * c->wide * sizeof *out);
        memset(out + at + end * c->wide, 0, (w->kernel - end) * c->wide * sizeof *out);
        if (c->groups == 1 && w->dilation == 1)
            memcpy(out + at + first * c->wide, in + look, (end - first) * c->wide * sizeof *out);
        else
            for (size_t k = first; k < end; k++)
                memcpy(out + at + k * c->wide, in + look + (k - first) * w->dilation * d,
                       c->wide * sizeof *out);
    }
}

static size_t narrow_rows(const segment_map *c)
{
    return fv_segments_rows(c->w.to);
}

/* The number-th chunk of the narrow side. */
static rows_span chunk_at(const segment_map *c, size_t number)
{
    const size_t chunk = chunk_of(c), from = number * chunk, rows = narrow_rows(c);
    return (rows_span){from, rows - from < chunk ? rows : from + chunk,
                       fv_segments_find(c->w.to, from)};
}

static size_t chunks_of(const segment_map *c)
{
    const size_t chunk = chunk_of(c), rows = narrow_rows(c);
    return rows / chunk + (rows % chunk != 0);
}

/* ---- chunks, each done by one thread --------------------------------------------------------------- */

/* What a map reads and writes; the weight is laid out. */
typedef struct {
    const fv_real *wide, *narrow, *weight, *bias;
    fv_real *out;
    bool add;
    const rows_span *units; /* of whole segments, for the map to the wide side */
} job;

typedef void unit(const segment_map *c, const job *j, size_t number, int threads, fv_real *scratch);

/* Runs all units, in parallel or each with all threads. Scratch: the windows of a chunk, then the product's. */
static void run_units(fv_tape *t, const segment_map *c, unit *rule, const job *j, size_t units,
                      fvi_product p)
{
    const double work =
        2 * (double)narrow_rows(c) * (double)c->groups * (double)c->narrow * (double)terms_of(c);
    const int threads = work > WORTH ? t->threads : 1;
    const int parts = units < (size_t)threads ? 1 : threads, inside = parts == 1 ? threads : 1;
    const size_t windows = is_depthwise(c) ? 0 : chunk_of(c) * terms_of(c);
    /* whatever the rows: they do not change what a thread packs */
    const size_t product = is_depthwise(c) ? 0 : fvi_product_scratch(&p, 1) * (size_t)inside;
    const size_t size = (windows + product + FVI_ALIGN) / FVI_ALIGN * FVI_ALIGN;
    fv_real *memory = fvi_tape_take(t, size * (size_t)parts, sizeof *memory);
    if (memory == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part of = part_at(units, parts, k);
        for (size_t number = of.from; number < of.to; number++)
            rule(c, j, number, inside, memory + (size_t)k * size);
    }
}

/* ---- to the narrow side ---------------------------------------------------------------------------- */

static fvi_product narrow_product(const segment_map *c, size_t rows)
{
    return (fvi_product){.m = rows,
                         .n = c->narrow,
                         .k = terms_of(c),
                         .a_row = terms_of(c),
                         .a_col = 1,
                         .b_row = c->narrow,
                         .b_col = 1,
                         .c_row = c->groups * c->narrow};
}

static void narrow_unit(const segment_map *c, const job *j, size_t number, int threads,
                        fv_real *scratch)
{
    const rows_span rows = chunk_at(c, number);
    for (size_t group = 0; group < c->groups; group++) {
        fvi_product p = narrow_product(c, rows.to - rows.from);
        each_window(c, rows, group, j->wide, scratch, false);
        p.a = scratch;
        p.b = j->weight + group * terms_of(c) * c->narrow;
        p.c = j->out + rows.from * p.c_row + group * c->narrow;
        p.bias = j->bias == NULL ? NULL : j->bias + group * c->narrow;
        p.add = j->add;
        fvi_product_run(&p, threads, scratch + chunk_of(c) * terms_of(c));
    }
}

/* The same with one channel a group: y[r] = sum over taps of weight[tap] x[r, tap], channel by channel. */
static void narrow_by_taps(const segment_map *c, const job *j, size_t number, int threads,
                           fv_real *scratch)
{
    (void)threads, (void)scratch;
    const rows_span rows = chunk_at(c, number);
    const size_t d = c->groups;
    size_t segment = rows.segment, first, end, row;
    for (size_t r = rows.from; r < rows.to; r++) {
        while (r >= c->w.to->offsets[segment + 1])
            segment++;
        const segment_span s = segment_at(&c->w, segment);
        fv_real *restrict y = j->out + r * d;
        for (size_t i = 0; !j->add && i < d; i++)
            y[i] = j->bias == NULL ? 0 : j->bias[i];
        taps_inside(&c->w, &s, r - s.to_first, &first, &end, &row);
        for (size_t k = first; k < end; k++, row += c->w.dilation) {
            const fv_real *restrict x = j->wide + row * d, *restrict weight = j->weight + k * d;
            for (size_t i = 0; i < d; i++)
                y[i] = fvi_fma(weight[i], x[i], y[i]);
        }
    }
}

void fvi_segment_conv_to_narrow(fv_tape *t, const segment_map *c, const fv_real *wide,
                                const fv_real *weight, const fv_real *bias, bool add,
                                fv_real *narrow)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    job j = {.wide = wide, .bias = bias, .out = narrow, .add = add};
    j.weight = laid_weight(t, c, weight);
    if (j.weight != NULL)
        run_units(t, c, is_depthwise(c) ? narrow_by_taps : narrow_unit, &j, chunks_of(c),
                  narrow_product(c, chunk_of(c)));
    fvi_arena_release(&t->arena, mark);
}

/* ---- to the wide side ------------------------------------------------------------------------------ */

static fvi_product wide_product(const segment_map *c, size_t rows)
{
    return (fvi_product){.m = rows,
                         .n = terms_of(c),
                         .k = c->narrow,
                         .a_row = c->groups * c->narrow,
                         .a_col = 1,
                         .b_row = 1,
                         .b_col = c->narrow,
                         .c_row = terms_of(c)};
}

/* Cuts the segments into units of at least a chunk of rows each; NULL when memory is out. */
static const rows_span *units_of_segments(fv_tape *t, const segment_map *c, size_t *units)
{
    const fv_segments *to = c->w.to;
    rows_span *all = fvi_tape_take(t, chunks_of(c) + 1, sizeof *all);
    *units = 0;
    for (size_t s = 0, first = 0; all != NULL && s < to->count; s++) {
        const size_t from = to->offsets[first], end = to->offsets[s + 1];
        if (end == from || (end - from < chunk_of(c) && s + 1 < to->count))
            continue;
        all[(*units)++] = (rows_span){from, end, first};
        first = s + 1;
    }
    return all;
}

static void wide_unit(const segment_map *c, const job *j, size_t number, int threads,
                      fv_real *scratch)
{
    const rows_span all = j->units[number];
    for (size_t from = all.from; from < all.to; from += chunk_of(c)) {
        const size_t to = all.to - from < chunk_of(c) ? all.to : from + chunk_of(c);
        const rows_span rows = {from, to, fv_segments_find(c->w.to, from)};
        for (size_t group = 0; group < c->groups; group++) {
            fvi_product p = wide_product(c, to - from);
            p.a = j->narrow + from * p.a_row + group * c->narrow;
            p.b = j->weight + group * terms_of(c) * c->narrow;
            p.c = scratch;
            fvi_product_run(&p, threads, scratch + chunk_of(c) * terms_of(c));
            each_window(c, rows, group, scratch, j->out, true);
        }
    }
}

static void wide_by_taps(const segment_map *c, const job *j, size_t number, int threads,
                         fv_real *scratch)
{
    (void)threads, (void)scratch;
    const rows_span rows = j->units[number];
    const size_t d = c->groups;
    size_t segment = rows.segment, first, end, row;
    for (size_t r = rows.from; r < rows.to; r++) {
        while (r >= c->w.to->offsets[segment + 1])
            segment++;
        const segment_span s = segment_at(&c->w, segment);
        const fv_real *restrict y = j->narrow + r * d;
        taps_inside(&c->w, &s, r - s.to_first, &first, &end, &row);
        for (size_t k = first; k < end; k++, row += c->w.dilation) {
            fv_real *restrict x = j->out + row * d;
            const fv_real *restrict weight = j->weight + k * d;
            for (size_t i = 0; i < d; i++)
                x[i] = fvi_fma(weight[i], y[i], x[i]);
        }
    }
}

void fvi_segment_conv_to_wide(fv_tape *t, const segment_map *c, const fv_real *narrow,
                              const fv_real *weight, fv_real *wide)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    job j = {.narrow = narrow, .out = wide};
    size_t units;
    j.weight = laid_weight(t, c, weight);
    j.units = units_of_segments(t, c, &units);
    if (j.weight != NULL && j.units != NULL)
        run_units(t, c, is_depthwise(c) ? wide_by_taps : wide_unit, &j, units,
                  wide_product(c, chunk_of(c)));
    fvi_arena_release(&t->arena, mark);
}

/* ---- to the weight --------------------------------------------------------------------------------- */

static fvi_product weight_product(const segment_map *c, size_t rows)
{
    return (fvi_product){.m = terms_of(c),
                         .n = c->narrow,
                         .k = rows,
                         .a_row = 1,
                         .a_col = terms_of(c),
                         .b_row = c->groups * c->narrow,
                         .b_col = 1,
                         .c_row = c->narrow,
                         .add = true};
}

/* A chunk's windows, a part of the rows a thread. */
static void windows_of(const fv_tape *t, const segment_map *c, rows_span rows, size_t group,
                       const fv_real *wide, fv_real *windows)
{
    const size_t count = rows.to - rows.from;
    const int parts = parts_of(t, count, 2 * terms_of(c));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        if (p.from < p.to)
            each_window(c,
                        (rows_span){rows.from + p.from, rows.from + p.to,
                                    fv_segments_find(c->w.to, rows.from + p.from)},
                        group, wide, windows + p.from * terms_of(c), false);
    }
}

/* With one channel a group: laid [kernel, channels], a part of the channels a thread. */
static void weight_by_taps(const fv_tape *t, const segment_map *c, const fv_real *wide,
                           const fv_real *narrow, fv_real *laid)
{
    const size_t d = c->groups;
    const int parts = parts_of(t, d, narrow_rows(c) * c->w.kernel);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(d, parts, k);
        for (size_t segment = 0; segment < c->w.to->count; segment++) {
            const segment_span s = segment_at(&c->w, segment);
            for (size_t r = s.to_first; r < s.to_end; r++) {
                size_t first, end, row;
                taps_inside(&c->w, &s, r - s.to_first, &first, &end, &row);
                for (size_t n = first; n < end; n++, row += c->w.dilation) {
                    const fv_real *restrict x = wide + row * d, *restrict y = narrow + r * d;
                    fv_real *restrict sum = laid + n * d;
                    for (size_t i = p.from; i < p.to; i++)
                        sum[i] = fvi_fma(x[i], y[i], sum[i]);
                }
            }
        }
    }
}

/* The sum over chunks, laid out. */
static void weight_by_products(fv_tape *t, const segment_map *c, const fv_real *wide,
                               const fv_real *narrow, fv_real *laid)
{
    const size_t terms = terms_of(c);
    fv_real *windows = fvi_tape_take(t, chunk_of(c) * terms, sizeof *windows);
    for (size_t number = 0; windows != NULL && number < chunks_of(c); number++)
        for (size_t group = 0; group < c->groups; group++) {
            const rows_span rows = chunk_at(c, number);
            windows_of(t, c, rows, group, wide, windows);
            fvi_product p = weight_product(c, rows.to - rows.from);
            p.a = windows;
            p.b = narrow + rows.from * p.b_row + group * c->narrow;
            p.c = laid + group * terms * c->narrow;
            multiply(t, p);
        }
}

void fvi_segment_conv_to_weight(fv_tape *t, const segment_map *c, const fv_real *wide,
                                const fv_real *narrow, fv_real *weight)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *laid = fv_tape_alloc(t, c->groups * terms_of(c) * c->narrow, sizeof *laid);
    if (laid != NULL && is_depthwise(c))
        weight_by_taps(t, c, wide, narrow, laid);
    else if (laid != NULL)
        weight_by_products(t, c, wide, narrow, laid);
    if (laid != NULL)
        lay_out_weight(c, laid, weight, true);
    fvi_arena_release(&t->arena, mark);
}
