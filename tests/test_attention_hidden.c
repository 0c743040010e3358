/* What a hidden row of attention holds never matters, and a row that sees nothing is zero. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/attention.h"

/* Fills row j of queries (or keys) with x, gradients included. */
static void paint_query(problem *p, size_t i, fv_real x)
{
    for (size_t c = 0; c < p->a.heads * p->a.qk; c++)
        p->in[Q].data[i * p->a.q_row + c] = x;
    for (size_t c = 0; c < p->a.heads * p->a.vd; c++)
        p->in[DY].data[i * p->a.heads * p->a.vd + c] = x;
}
static void paint_key(problem *p, size_t j, fv_real x)
{
    for (size_t c = 0; c < p->a.kv_heads * p->a.qk; c++)
        p->in[K].data[j * p->a.k_row + c] = x;
    for (size_t c = 0; c < p->a.kv_heads * p->a.vd; c++)
        p->in[V].data[j * p->a.v_row + c] = x;
}

/* Whether a query row sees a key row: a bias for all heads may hide as well. */
static bool meets(const problem *p, size_t i, size_t j)
{
    const size_t g = fv_segments_find(&p->queries, i);
    if (!fv_mask_sees(p->a.mask, p->a.queries, p->a.keys, i, j))
        return false;
    const size_t pair = p->pair_at[g] + (i - p->query_at[g]) * (p->key_at[g + 1] - p->key_at[g]) +
                        (j - p->key_at[g]);
    return p->a.bias == NULL || real(p->a.bias[pair]) != -INFINITY;
}

/* Paints one row after the other NaN: only what sees it, and what shares a query with it, may
 * change. */
static void hidden_rows_do_not_matter(problem *p, int threads)
{
    const size_t n = p->a.queries, m = p->a.keys;
    bool *sees = calloc(n * m + 1, sizeof *sees);
    fv_real *kept[OUTPUTS];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            sees[i * m + j] = meets(p, i, j);
    run(p, fvi_isa_best(), threads);
    keep_bits(p, kept);
    for (size_t row = 0; row < n + m; row++) {
        list saved[4];
        for (size_t i = 0; i < 4; i++) {
            saved[i] = list_new(p->in[i].count);
            memcpy(saved[i].data, p->in[i].data, saved[i].count * sizeof(fv_real));
        }
        if (row < n)
            paint_query(p, row, row % 2 ? (fv_real)NAN : (fv_real)INFINITY);
        else
            paint_key(p, row - n, row % 2 ? (fv_real)NAN : (fv_real)INFINITY);
        run(p, fvi_isa_best(), threads);
        const fvi_attention *a = &p->a;
        for (size_t i = 0; i < n; i++) {
            if (row < n ? row == i : sees[i * m + row - n])
                continue; /* touched */
            const size_t y = i * a->heads * a->vd;
            cr_assert(memcmp(a->y + y, kept[Y] + y, a->heads * a->vd * sizeof(fv_real)) == 0,
                      "y of %zu is %.17g, was %.17g, painted %zu", i, real(a->y[y]),
                      real(kept[Y][y]), row);
            cr_assert(memcmp(p->out[DQ].data + i * a->q_row, kept[DQ] + i * a->q_row,
                             a->heads * a->qk * sizeof(fv_real)) == 0,
                      "dq of %zu, painted %zu", i, row);
        }
        for (size_t j = 0; j < m; j++) {
            bool touched = false;
            for (size_t i = 0; i < n; i++)
                touched |= sees[i * m + j] && (row < n ? row == i : sees[i * m + row - n]);
            if (touched)
                continue;
            cr_assert(memcmp(p->out[DK].data + j * a->k_row, kept[DK] + j * a->k_row,
                             a->kv_heads * a->qk * sizeof(fv_real)) == 0,
                      "dk of %zu, painted %zu", j, row);
            cr_assert(memcmp(p->out[DV].data + j * a->v_row, kept[DV] + j * a->v_row,
                             a->kv_heads * a->vd * sizeof(fv_real)) == 0,
                      "dv of %zu, painted %zu", j, row);
        }
        bool lonely = true; /* a row that takes part in nothing leaves the bias alone as well */
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < m; j++)
                lonely &= !(sees[i * m + j] && (row < n ? i == row : j == row - n));
        if (lonely)
            cr_assert(memcmp(p->out[DRELATIVE].data, kept[DRELATIVE],
                             p->out[DRELATIVE].count * sizeof(fv_real)) == 0,
                      "drelative, painted %zu", row);
        for (size_t g = 0; g < p->queries.count && p->a.bias != NULL; g++)
            for (size_t i = p->query_at[g]; i < p->query_at[g + 1]; i++) {
                const size_t keys = p->key_at[g + 1] - p->key_at[g];
                const size_t at = p->pair_at[g] + (i - p->query_at[g]) * keys;
                if (!(row < n ? row == i : sees[i * m + row - n]))
                    cr_assert(memcmp(p->out[DBIAS].data + at, kept[DBIAS] + at,
                                     keys * sizeof(fv_real)) == 0,
                              "dbias of %zu, painted %zu", i, row);
            }
        for (size_t i = 0; i < 4; i++) {
            memcpy(p->in[i].data, saved[i].data, saved[i].count * sizeof(fv_real));
            free(saved[i].data);
        }
    }
    drop_bits(kept);
    free(sees);
}

/* Sets the dense bytes and the edges of a problem with one segment from bits. */
static void set_pairs(problem *p, uint64_t bits)
{
    size_t edges = 0;
    for (size_t i = 0; i < p->a.queries; i++) {
        for (size_t j = 0; j < p->a.keys; j++) {
            const size_t at = i * p->a.keys + j;
            p->visible[at] = bits >> at & 1;
            if (p->visible[at])
                p->edge_keys[edges++] = (int32_t)j;
        }
        p->edge_at[i + 1] = edges;
    }
}

static const fv_normalizer normalizers[] = {FV_NORMALIZE_SOFTMAX, FV_NORMALIZE_SOFTMAX_PLUS_ONE,
                                            FV_NORMALIZE_RELU,    FV_NORMALIZE_SIGMOID,
                                            FV_NORMALIZE_MEAN,    FV_NORMALIZE_NONE};
enum { NORMALIZERS = sizeof normalizers / sizeof *normalizers };

static shape small(mask_kind mask, size_t n, size_t heads, fv_normalizer normalizer)
{
    return (shape){.mask = mask,
                   .rows = {{n}, {n}, 1},
                   .heads = heads,
                   .kv_heads = 1,
                   .qk = heads + 1,
                   .vd = 4 - heads,
                   .clip = 2,
                   .normalizer = normalizer};
}

/* Every relation on n rows whose last row sees what slice says, as bytes and as edges. */
static void hidden_rows_of(size_t n, uint64_t slice, uint64_t step)
{
    const uint64_t each = (uint64_t)1 << (n * n - n);
    for (int edges = 0; edges < 2; edges++) {
        const shape s = small(edges ? EDGES : DENSE, n, 1, FV_NORMALIZE_SOFTMAX);
        problem *p = make(&s);
        for (uint64_t bits = 0; bits < each; bits += step) {
            set_pairs(p, slice * each + bits);
            hidden_rows_do_not_matter(p, 1);
        }
        drop(p);
    }
}

/* Every relation on up to four rows. */
Test(attention, hidden_rows_exhaustive)
{
    for (size_t n = 1; n <= 4; n++)
        for (uint64_t slice = 0; slice < (uint64_t)1 << n; slice++)
            hidden_rows_of(n, slice, 1);
}

ParameterizedTestParameters(attention, hidden_rows_of_five)
{
    static uint64_t slices[32];
    for (uint64_t i = 0; i < 32; i++)
        slices[i] = i;
    return cr_make_param_array(uint64_t, slices, 32);
}

/* Of the 2^25 on five rows a sample, all with FOVEA_LONG=1 (about 20 minutes of two cores). */
ParameterizedTest(uint64_t *slice, attention, hidden_rows_of_five)
{
    hidden_rows_of(5, *slice, getenv("FOVEA_LONG") != NULL ? 1 : 16411);
}

/* The same for the other normalizers: every relation on three rows, and some on four. */
Test(attention, hidden_rows_of_every_normalizer)
{
    for (size_t x = 1; x < NORMALIZERS; x++)
        for (size_t n = 3; n <= 4; n++) {
            const shape s = small(DENSE, n, 1, normalizers[x]);
            problem *p = make(&s);
            for (uint64_t bits = 0; bits < (uint64_t)1 << (n * n); bits += n < 4 ? 1 : 13) {
                set_pairs(p, bits);
                hidden_rows_do_not_matter(p, 1);
            }
            drop(p);
        }
}

/* Every relation on up to four rows agrees with the definition; rows that see nothing are zero. */
static void every_relation(mask_kind mask, fv_normalizer normalizer)
{
    const bool softmax =
        normalizer == FV_NORMALIZE_SOFTMAX || normalizer == FV_NORMALIZE_SOFTMAX_PLUS_ONE;
    for (size_t n = 1; n <= 4; n++) {
        shape s = small(mask, n, 2, normalizer);
        s.clip = 1;
        s.dropout = 0.25;
        problem *p = make(&s);
        double *expected[OUTPUTS];
        for (size_t o = 0; o < OUTPUTS; o++)
            expected[o] = calloc(p->out[o].count + 1, sizeof(double));
        for (uint64_t bits = 0; bits < (uint64_t)1 << (n * n); bits += n < 4 || softmax ? 1 : 5) {
            set_pairs(p, bits);
            run(p, fvi_isa_best(), 1);
            reference(p, expected);
            compare(p, expected, "small relation");
            size_t empty[4];
            const size_t count = fv_mask_empty_rows(&p->mask, n, n, empty);
            for (size_t e = 0; e < count; e++)
                for (size_t h = 0; h < 2; h++) {
                    cr_assert_eq(real(p->a.lse[empty[e] * 2 + h]), softmax ? -INFINITY : 0);
                    for (size_t c = 0; c < 2; c++)
                        cr_assert_eq(real(p->a.y[empty[e] * 4 + h * 2 + c]), 0);
                    for (size_t c = 0; c < 6; c++) /* nothing was added */
                        cr_assert_eq(real(p->out[DQ].data[empty[e] * p->a.q_row + c]), 1);
                }
        }
        for (size_t o = 0; o < OUTPUTS; o++)
            free(expected[o]);
        drop(p);
    }
}

Test(attention, every_small_relation)
{
    every_relation(EDGES, FV_NORMALIZE_SOFTMAX);
    for (size_t x = 0; x < NORMALIZERS; x++)
        every_relation(DENSE, normalizers[x]);
}

/* Causality and windows over whole tiles, forward and backward, whatever is painted. */
Test(attention, hidden_rows_in_tiles)
{
    for (mask_kind mask = CAUSAL; mask < MASKS; mask++)
        for (int threads = 1; threads <= (mask == CAUSAL || mask == EDGES ? 2 : 1); threads++) {
            const shape s = {.mask = mask,
                             .rows = {{3, 70}, {3, 70}, 2},
                             .heads = 2,
                             .kv_heads = 1,
                             .qk = 8,
                             .vd = 8};
            problem *p = make(&s);
            hidden_rows_do_not_matter(p, threads);
            drop(p);
        }
}

/* The same where a bias hides, and with biases of each kind. */
Test(attention, hidden_rows_by_bias)
{
    for (size_t x = 0; x < NORMALIZERS; x++) {
        const shape s = {.mask = x % 2 ? CAUSAL : FULL,
                         .rows = {{3, 20}, {3, 22}, 2},
                         .heads = 2,
                         .kv_heads = 1,
                         .qk = 5,
                         .vd = 8,
                         .clip = 4,
                         .relative_rows = x % 3 == 0,
                         .slopes = x % 2 == 0,
                         .softcap = x % 2 ? 2 : 0,
                         .normalizer = normalizers[x],
                         .bias_heads = 1,
                         .hides = true};
        problem *p = make(&s);
        hidden_rows_do_not_matter(p, 1 + (int)(x % 2));
        drop(p);
    }
}

/* A bias of -inf hides as the mask does, to the bit. */
Test(attention, infinite_bias_is_a_mask)
{
    static const layout layouts[] = {{{7}, {5}, 1}, {{3, 0, 65, 1}, {4, 2, 258, 3}, 4}};
    for (size_t x = 0; x < NORMALIZERS; x++)
        for (size_t l = 0; l < 2; l++)
            for (int dropout = 0; dropout < 2; dropout++) {
                shape s = {.mask = DENSE,
                           .rows = layouts[l],
                           .heads = 4,
                           .kv_heads = 2,
                           .qk = 6,
                           .vd = 8,
                           .dropout = dropout ? 0.3 : 0,
                           .normalizer = normalizers[x],
                           .bias_heads = 1};
                problem *masked = make(&s);
                s.mask = FULL;
                problem *biased = make(&s);
                for (size_t i = 0; i < masked->in[BIAS].count; i++) {
                    masked->in[BIAS].data[i] = 0;
                    biased->in[BIAS].data[i] = masked->visible[i] ? 0 : (fv_real)-INFINITY;
                }
                fv_real *kept[OUTPUTS];
                run(masked, fvi_isa_best(), 1);
                keep_bits(masked, kept);
                run(biased, fvi_isa_best(), 2);
                same_bits(biased, kept, "bias instead of mask");
                drop_bits(kept);
                drop(masked);
                drop(biased);
            }
}
