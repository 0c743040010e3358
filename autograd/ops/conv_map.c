/* The three maps of a convolution, as products with the windows of a panel of places side by side.
 *
 * Column j of such a panel [channels * taps, places] is the window of place j. A panel holds about PANEL
 * numbers, so that it is still in the second cache when the product reads it: the windows of a whole image
 * are never in memory at once. Sums run over panels, chunks of channels and samples in an order that
 * follows from the sizes; threads share outputs only. A channel that meets few others (depthwise) needs no
 * windows: it is added tap by tap. */
#include "autograd/ops/conv.h"
#include "tensor/math.h"

enum {
    PANEL = 1 << 16, /* numbers in the windows of a panel */
    CHUNK = 256,     /* windows' rows in a chunk of channels */
    BLOCK = 128,     /* rows of the weight's gradient that share their windows */
    LONGEST = 1024,  /* places in a panel, at most */
    SHORTEST = 64,   /* and at least */
    FEW = 4,         /* narrow channels of one wide channel that make no product */
    WORTH = 1500000, /* operations that repay waking the threads */
    LINE = FVI_ALIGN / sizeof(fv_real)
};

static size_t divide_up(size_t x, size_t y)
{
    return x / y + (x % y != 0);
}

static size_t least(size_t x, size_t y)
{
    return x < y ? x : y;
}

/* How a map is cut: panels of places, chunks of wide channels. */
typedef struct {
    const conv_map *c;
    size_t taps, plane, places;
    size_t panel, panels;
    size_t chunk, chunks; /* channels */
    const window_tap *tap;
    bool direct; /* the wide side is its own window */
} cut;

/* A kernel of one tap that looks at each place once. */
static bool looks_straight(const window *w)
{
    for (int i = 0; i < FVI_SPATIAL; i++)
        if (w->kernel[i] != 1 || w->stride[i] != 1 || w->before[i] + w->after[i] > 0 ||
            w->in[i] != w->out[i])
            return false;
    return true;
}

/* chunked: few channels at a time. False when memory is out. */
static bool make_cut(fv_tape *t, const conv_map *c, bool chunked, cut *k)
{
    *k = (cut){.c = c,
               .taps = product_of(c->w.kernel),
               .plane = product_of(c->w.in),
               .places = product_of(c->w.out),
               .direct = looks_straight(&c->w)};
    k->chunk = chunked ? least(k->taps < CHUNK ? CHUNK / k->taps : 1, c->wide) : c->wide;
    k->chunks = k->chunk > 0 ? divide_up(c->wide, k->chunk) : 0;
    const size_t rows = k->chunk * k->taps;
    k->panel = PANEL / (rows > 0 ? rows : 1);
    k->panel = k->panel < SHORTEST ? SHORTEST : least(k->panel, LONGEST);
    k->panel = k->panel < k->places ? k->panel : k->places;
    k->panel = k->direct && chunked ? k->places : k->panel;
    k->panels = divide_up(k->places, k->panel);
    window_tap *all = fvi_tape_take(t, k->taps, sizeof *all);
    for (size_t i = 0; all != NULL && i < k->taps; i++)
        all[i] = tap_at(&c->w, i);
    k->tap = all;
    return all != NULL;
}

/* The windows of places from .. end - 1 through some channels, one row a channel and tap. */
static void windows_of(const cut *k, const fv_real *wide, size_t channels, size_t from, size_t end,
                       fv_real *windows)
{
    const cursor first = cursor_at(&k->c->w, from);
    for (size_t i = 0; i < channels; i++, wide += k->plane)
        for (size_t j = 0; j < k->taps; j++, windows += end - from)
            tap_copy(&k->c->w, &k->tap[j], first, end, wide, windows);
}

/* ---- units of work, each done by one thread ------------------------------------------------------- */

/* What a map reads and writes. */
typedef struct {
    const fv_real *wide, *narrow, *weight, *bias;
    fv_real *out;
    bool add;
} job;

typedef void unit(const cut *k, const job *j, size_t number, int threads, fv_real *scratch);

/* The product of a unit of so many rows, columns and terms, and scratch for it. */
static size_t more_scratch(size_t most, size_t m, size_t n, size_t k, fvi_product p, int threads)
{
    p.m = m;
    p.n = n;
    p.k = k;
    const size_t size = fvi_product_scratch(&p, threads);
    return size > most ? size : most;
}

/* Runs all units, in parallel or each with all threads. The products of a unit are like p, some as large and
 * some with the sizes of rest; beside them it needs so many numbers of scratch. */
static void run_units(fv_tape *t, const cut *k, unit *run, const job *j, size_t units,
                      size_t scratch, fvi_product p, fvi_product rest)
{
    const double work = 2 * (double)units * (double)p.m * (double)p.n * (double)p.k;
    const int threads = work > WORTH ? t->threads : 1;
    const int parts = units < (size_t)threads ? 1 : threads, inside = parts == 1 ? threads : 1;
    size_t most = 0;
    for (int which = 0; which < 8; which++)
        most = more_scratch(most, which & 1 ? rest.m : p.m, which & 2 ? rest.n : p.n,
                            which & 4 ? rest.k : p.k, p, inside);
    const size_t before = divide_up(scratch, LINE) * LINE,
                 size = before + divide_up(most, LINE) * LINE;
    fv_real *memory = fvi_tape_take(t, size * (size_t)parts, sizeof *memory);
    if (memory == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int i = 0; i < parts; i++) {
        const part of = part_at(units, parts, i);
        for (size_t number = of.from; number < of.to; number++)
            run(k, j, number, inside, memory + (size_t)i * size);
    }
}

/* One of equal parts but the last. */
typedef struct {
    size_t from, count;
} span;

static span span_at(size_t all, size_t each, size_t number)
{
    const size_t from = number * each;
    return (span){from, least(each, all - from)};
}

/* How much is left for the last part. */
static size_t remainder_of(size_t all, size_t each)
{
    return all % each > 0 ? all % each : each;
}

/* ---- to the narrow side ---------------------------------------------------------------------------- */

/* windows [wide * taps, places], unless the wide side is its own */
static fvi_product narrow_product(const cut *k, span places, const fv_real *windows)
{
    const size_t rows = k->c->wide * k->taps;
    return (fvi_product){.m = k->c->narrow,
                         .n = places.count,
                         .k = rows,
                         .a_row = rows,
                         .a_col = 1,
                         .b = windows,
                         .b_row = k->direct ? k->plane : places.count,
                         .b_col = 1,
                         .c_row = k->places};
}

static void narrow_unit(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    const conv_map *c = k->c;
    const span at = span_at(k->places, k->panel, number % k->panels);
    const size_t image = number / k->panels,
                 group = image % c->groups; /* image: sample and group */
    const size_t rows = c->wide * k->taps;
    const fv_real *wide = j->wide + image * c->wide * k->plane;
    fv_real *narrow = j->out + image * c->narrow * k->places + at.from;
    for (size_t o = 0; j->bias != NULL && o < c->narrow; o++)
        for (size_t i = 0; i < at.count; i++)
            narrow[o * k->places + i] = j->bias[group * c->narrow + o];
    if (!k->direct)
        windows_of(k, wide, c->wide, at.from, at.from + at.count, scratch);
    fvi_product p = narrow_product(k, at, k->direct ? wide + at.from : scratch);
    p.a = j->weight + group * c->narrow * rows;
    p.c = narrow;
    p.add = j->add || j->bias != NULL;
    fvi_product_run(&p, threads,
                    scratch + (k->direct ? 0 : divide_up(rows * k->panel, LINE) * LINE));
}

/* One narrow channel of one sample, tap by tap. */
static void narrow_by_taps(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    (void)threads, (void)scratch;
    const conv_map *c = k->c;
    const size_t o = number % (c->groups * c->narrow), stride = c->w.stride[2];
    const fv_real *wide = j->wide + number / c->narrow * k->plane,
                  *weight = j->weight + o * k->taps;
    fv_real *narrow = j->out + number * k->places;
    for (size_t i = 0; !j->add && i < k->places; i++)
        narrow[i] = j->bias != NULL ? j->bias[o] : 0;
    for (size_t tap = 0; tap < k->taps; tap++) {
        cursor at = cursor_at(&c->w, 0);
        const fv_real factor = weight[tap];
        for (tap_run r; next_run(&c->w, &k->tap[tap], &at, k->places, &r);) {
            const fv_real *restrict from = wide + r.at;
            fv_real *restrict to = narrow + r.place;
            if (stride == 1)
                for (size_t i = 0; i < r.count; i++)
                    to[i] = fvi_fma(factor, from[i], to[i]);
            else
                for (size_t i = 0; i < r.count; i++)
                    to[i] = fvi_fma(factor, from[i * stride], to[i]);
        }
    }
}

static bool by_taps(const conv_map *c)
{
    return c->wide == 1 && c->narrow <= FEW && c->groups > 1;
}

/* A stand-in for the cost of work without products. */
static fvi_product no_product(size_t m, size_t n, size_t k)
{
    return (fvi_product){.m = m, .n = n, .k = k, .a_row = 1, .a_col = 1, .b_row = 1, .b_col = 1};
}

void fvi_conv_to_narrow(fv_tape *t, const conv_map *c, const fv_real *wide, const fv_real *weight,
                        const fv_real *bias, bool add, fv_real *narrow)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const job j = {.wide = wide, .weight = weight, .bias = bias, .out = narrow, .add = add};
    const size_t images = c->samples * c->groups;
    cut k;
    if (images == 0 || c->narrow == 0 || !make_cut(t, c, false, &k))
        return;
    if (by_taps(c)) {
        const fvi_product p = no_product(1, k.places, k.taps);
        run_units(t, &k, narrow_by_taps, &j, images * c->narrow, 0, p, p);
    } else {
        const span whole = {0, k.panel}, last = {0, remainder_of(k.places, k.panel)};
        const size_t windows = k.direct ? 0 : c->wide * k.taps * k.panel;
        run_units(t, &k, narrow_unit, &j, images * k.panels, windows,
                  narrow_product(&k, whole, NULL), narrow_product(&k, last, NULL));
    }
    fvi_arena_release(&t->arena, mark);
}

/* ---- to the wide side ------------------------------------------------------------------------------ */

/* windows [channels * taps, places] = weight' narrow */
static fvi_product wide_product(const cut *k, size_t channels, span places)
{
    return (fvi_product){.m = channels * k->taps,
                         .n = places.count,
                         .k = k->c->narrow,
                         .a_row = 1,
                         .a_col = k->c->wide * k->taps,
                         .b_row = k->places,
                         .b_col = 1,
                         .c_row = k->direct ? k->plane : places.count,
                         .add = k->direct};
}

static void wide_unit(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    const conv_map *c = k->c;
    const span channels = span_at(c->wide, k->chunk, number % k->chunks);
    const size_t image = number / k->chunks, group = image % c->groups;
    const size_t rows = c->wide * k->taps;
    fv_real *wide = j->out + (image * c->wide + channels.from) * k->plane;
    const size_t windows = k->direct ? 0 : divide_up(k->chunk * k->taps * k->panel, LINE) * LINE;
    for (size_t panel = 0; panel < k->panels; panel++) {
        const span at = span_at(k->places, k->panel, panel);
        fvi_product p = wide_product(k, channels.count, at);
        p.a = j->weight + group * c->narrow * rows + channels.from * k->taps;
        p.b = j->narrow + image * c->narrow * k->places + at.from;
        p.c = k->direct ? wide + at.from : scratch;
        fvi_product_run(&p, threads, scratch + windows);
        const cursor first = cursor_at(&c->w, at.from);
        for (size_t i = 0; !k->direct && i < channels.count; i++)
            for (size_t tap = 0; tap < k->taps; tap++)
                tap_add(&c->w, &k->tap[tap], first, at.from + at.count,
                        scratch + (i * k->taps + tap) * at.count, wide + i * k->plane);
    }
}

/* One wide channel of one sample, tap by tap. */
static void wide_by_taps(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    (void)threads, (void)scratch;
    const conv_map *c = k->c;
    const size_t group = number % c->groups, stride = c->w.stride[2];
    fv_real *wide = j->out + number * k->plane;
    for (size_t o = 0; o < c->narrow; o++) {
        const fv_real *narrow = j->narrow + (number * c->narrow + o) * k->places;
        const fv_real *weight = j->weight + (group * c->narrow + o) * k->taps;
        for (size_t tap = 0; tap < k->taps; tap++) {
            cursor at = cursor_at(&c->w, 0);
            const fv_real factor = weight[tap];
            for (tap_run r; next_run(&c->w, &k->tap[tap], &at, k->places, &r);) {
                const fv_real *restrict from = narrow + r.place;
                fv_real *restrict to = wide + r.at;
                if (stride == 1)
                    for (size_t i = 0; i < r.count; i++)
                        to[i] = fvi_fma(factor, from[i], to[i]);
                else
                    for (size_t i = 0; i < r.count; i++)
                        to[i * stride] = fvi_fma(factor, from[i], to[i * stride]);
            }
        }
    }
}

void fvi_conv_to_wide(fv_tape *t, const conv_map *c, const fv_real *narrow, const fv_real *weight,
                      fv_real *wide)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const job j = {.narrow = narrow, .weight = weight, .out = wide};
    const size_t images = c->samples * c->groups;
    cut k;
    if (images == 0 || c->wide == 0 || !make_cut(t, c, true, &k))
        return;
    if (by_taps(c)) {
        const fvi_product p = no_product(c->narrow, k.places, k.taps);
        run_units(t, &k, wide_by_taps, &j, images, 0, p, p);
    } else {
        const span whole = {0, k.panel}, last = {0, remainder_of(k.places, k.panel)};
        const size_t windows = k.direct ? 0 : k.chunk * k.taps * k.panel;
        run_units(t, &k, wide_unit, &j, images * k.chunks, windows,
                  wide_product(&k, k.chunk, whole),
                  wide_product(&k, remainder_of(c->wide, k.chunk), last));
    }
    fvi_arena_release(&t->arena, mark);
}

/* ---- to the weight --------------------------------------------------------------------------------- */

/* weight [rows, channels * taps] += narrow [rows, places] windows' */
static fvi_product weight_product(const cut *k, size_t rows, size_t channels, span places)
{
    return (fvi_product){.m = rows,
                         .n = channels * k->taps,
                         .k = places.count,
                         .a_row = k->places,
                         .a_col = 1,
                         .b_row = 1,
                         .b_col = k->direct ? k->plane : places.count,
                         .c_row = k->c->wide * k->taps,
                         .add = true};
}

static void weight_unit(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    const conv_map *c = k->c;
    const size_t cuts = divide_up(c->narrow, BLOCK), rows = c->wide * k->taps;
    const span channels = span_at(c->wide, k->chunk, number / cuts % k->chunks);
    const span of = span_at(c->narrow, BLOCK, number % cuts);
    const size_t group = number / cuts / k->chunks;
    const size_t windows = k->direct ? 0 : divide_up(k->chunk * k->taps * k->panel, LINE) * LINE;
    for (size_t sample = 0; sample < c->samples; sample++)
        for (size_t panel = 0; panel < k->panels; panel++) {
            const span at = span_at(k->places, k->panel, panel);
            const size_t image = sample * c->groups + group;
            const fv_real *wide = j->wide + (image * c->wide + channels.from) * k->plane;
            if (!k->direct)
                windows_of(k, wide, channels.count, at.from, at.from + at.count, scratch);
            fvi_product p = weight_product(k, of.count, channels.count, at);
            p.a = j->narrow + (image * c->narrow + of.from) * k->places + at.from;
            p.b = k->direct ? wide + at.from : scratch;
            p.c = j->out + (group * c->narrow + of.from) * rows + channels.from * k->taps;
            fvi_product_run(&p, threads, scratch + windows);
        }
}

/* Adds n products to running sums, of which fold_lanes makes one. */
static void add_products(size_t n, const fv_real *restrict x, size_t step,
                         const fv_real *restrict y, fv_real *restrict lane)
{
    size_t i = 0;
    for (; step == 1 && i + FVI_LANES <= n; i += FVI_LANES)
        for (size_t l = 0; l < FVI_LANES; l++)
            lane[l] = fvi_fma(x[i + l], y[i + l], lane[l]);
    for (size_t l = 0; i < n; i++, l = (l + 1) % FVI_LANES)
        lane[l] = fvi_fma(x[i * step], y[i], lane[l]);
}

/* One narrow channel over all samples, tap by tap. */
static void weight_by_taps(const cut *k, const job *j, size_t number, int threads, fv_real *scratch)
{
    (void)threads, (void)scratch;
    const conv_map *c = k->c;
    const size_t channels = c->groups * c->narrow, stride = c->w.stride[2];
    for (size_t sample = 0; sample < c->samples; sample++) {
        const fv_real *narrow = j->narrow + (sample * channels + number) * k->places;
        const fv_real *wide = j->wide + (sample * c->groups + number / c->narrow) * k->plane;
        for (size_t tap = 0; tap < k->taps; tap++) {
            cursor at = cursor_at(&c->w, 0);
            fv_real lane[FVI_LANES] = {0};
            for (tap_run r; next_run(&c->w, &k->tap[tap], &at, k->places, &r);)
                add_products(r.count, wide + r.at, stride, narrow + r.place, lane);
            j->out[number * k->taps + tap] += fold_lanes(lane);
        }
    }
}

void fvi_conv_to_weight(fv_tape *t, const conv_map *c, const fv_real *wide, const fv_real *narrow,
                        fv_real *weight)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const job j = {.wide = wide, .narrow = narrow, .out = weight};
    cut k;
    if (c->samples == 0 || c->wide == 0 || c->narrow == 0 || !make_cut(t, c, true, &k))
        return;
    if (by_taps(c)) {
        const fvi_product p = no_product(c->samples, k.places, k.taps);
        run_units(t, &k, weight_by_taps, &j, c->groups * c->narrow, 0, p, p);
    } else {
        const span whole = {0, k.panel}, last = {0, remainder_of(k.places, k.panel)};
        const size_t windows = k.direct ? 0 : k.chunk * k.taps * k.panel;
        const size_t block = least(BLOCK, c->narrow);
        run_units(t, &k, weight_unit, &j, c->groups * k.chunks * divide_up(c->narrow, BLOCK),
                  windows, weight_product(&k, block, k.chunk, whole),
                  weight_product(&k, remainder_of(c->narrow, block), remainder_of(c->wide, k.chunk),
                                 last));
    }
    fvi_arena_release(&t->arena, mark);
}
