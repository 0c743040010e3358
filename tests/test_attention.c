/* The attention kernels against a plain reference, in every instruction set, thread count and
 * batch; their tangents and second derivatives. */
#include "tests/attention.h"

/* ---- the grid -------------------------------------------------------------------------------- */

static const layout layouts[] = {
    {{5}, {5}, 1},
    {{0, 1, 2, 0, 17, 8, 31, 0}, {0, 1, 2, 0, 17, 8, 31, 0}, 8},
    {{63, 64, 65}, {63, 64, 65}, 3},
    {{255, 1}, {255, 1}, 2},
    {{256, 257}, {256, 257}, 2},
    {{1, 70, 0, 9, 130}, {300, 3, 5, 0, 257}, 5},
    {{0}, {0}, 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Every mask over every layout; heads, widths, bias and dropout take turns. Then, but for edges, every
 * normalizer with every mask over some layouts; the other choices are drawn. */
static const fv_normalizer normalizers[] = {FV_NORMALIZE_SOFTMAX, FV_NORMALIZE_SOFTMAX_PLUS_ONE,
                                            FV_NORMALIZE_RELU,    FV_NORMALIZE_SIGMOID,
                                            FV_NORMALIZE_MEAN,    FV_NORMALIZE_NONE};
static const layout few[] = {
    {{5}, {5}, 1},
    {{0, 1, 2, 0, 17, 8, 31, 0}, {0, 1, 4, 0, 19, 8, 31, 2}, 8},
    {{70, 1}, {67, 3}, 2},
    {{1, 9, 0, 66}, {259, 3, 5, 260}, 4},
};
enum {
    FEW = sizeof few / sizeof *few,
    NORMALIZERS = sizeof normalizers / sizeof *normalizers,
    PLAIN = MASKS * LAYOUTS * 2,
    GRID = PLAIN + EDGES * FEW * NORMALIZERS
};

/* A whole number below bound, for choice number what of a code. */
static size_t pick(size_t code, size_t what, uint32_t bound)
{
    return fv_rng_below(draws, (uint64_t)20 << 32 | (code * 16 + what), bound);
}

static void choose(size_t code, shape *s)
{
    s->mask = (mask_kind)(code % EDGES);
    s->rows = few[code / EDGES % FEW];
    s->normalizer = normalizers[code / EDGES / FEW];
    s->dropout = pick(code, 0, 3) == 0 ? 0.3 : 0;
    s->softcap = pick(code, 1, 2) ? 1.7 : 0;
    s->clip = pick(code, 2, 3) ? (int[]){3, 300}[pick(code, 3, 2)] : 0;
    s->relative_rows = pick(code, 4, 2);
    s->slopes = pick(code, 5, 2);
    s->bias_heads = pick(code, 6, 3) ? pick(code, 7, 2) ? s->heads : 1 : 0;
    s->hides = pick(code, 8, 2);
    s->counts = pick(code, 9, 3) == 0;
    s->align_end = pick(code, 10, 3) == 0;
}

static shape grid_at(size_t code)
{
    static const size_t heads[][2] = {{4, 4}, {4, 2}, {3, 1}, {1, 1}, {2, 2}};
    static const size_t widths[][2] = {{16, 16}, {8, 24},  {5, 7}, {32, 32},
                                       {24, 8},  {64, 64}, {1, 1}};
    static const int clips[] = {0, 4, 300};
    shape s = {.mask = (mask_kind)(code % MASKS), .rows = layouts[code / MASKS % LAYOUTS]};
    s.heads = heads[code % 5][0];
    s.kv_heads = heads[code % 5][1];
    s.qk = widths[code / 3 % 7][0];
    s.vd = widths[code / 3 % 7][1];
    s.clip = clips[(code + code / 7) % 3];
    s.dropout = (code + code / MASKS) % 3 == 0 ? 0.3 : 0;
    if (code >= PLAIN)
        choose(code - PLAIN, &s);
    return s;
}

static problem *problem_of(const shape *s)
{
    problem *p = make(s);
    if (s->normalizer == FV_NORMALIZE_RELU)
        avoid_kinks(p);
    return p;
}

static const char *shape_text(const shape *s, char text[400])
{
    snprintf(text, 400,
             "mask %d, first segment %zu x %zu of %zu, heads %zu/%zu, widths %zu %zu, clip %d%s, "
             "dropout %g, normalizer %d, softcap %g, slopes %d, bias heads %zu%s%s%s",
             (int)s->mask, s->rows.queries[0], s->rows.keys[0], s->rows.count, s->heads,
             s->kv_heads, s->qk, s->vd, s->clip, s->relative_rows ? " of rows" : "", s->dropout,
             (int)s->normalizer, s->softcap, s->slopes, s->bias_heads, s->hides ? " hiding" : "",
             s->counts ? ", counts" : "", s->align_end ? ", aligned to the end" : "");
    return text;
}

Test(attention, agrees_with_the_definition)
{
    for (size_t code = 0; code < GRID; code++) {
        const shape s = grid_at(code);
        char text[400];
        problem *p = problem_of(&s);
        double *expected[OUTPUTS];
        for (size_t o = 0; o < OUTPUTS; o++)
            expected[o] = calloc(p->out[o].count + 1, sizeof(double));
        reference(p, expected);
        run(p, fvi_isa_best(), 1);
        compare(p, expected, shape_text(&s, text));
        for (size_t o = 0; o < OUTPUTS; o++)
            free(expected[o]);
        drop(p);
    }
}

/* Threads never change a bit, nor does AVX2 against AVX-512; without them, base agrees closely. */
Test(attention, same_bits_on_threads_and_instruction_sets)
{
    for (size_t code = 0; code < GRID; code++) {
        const shape s = grid_at(code);
        char text[400];
        problem *p = problem_of(&s);
        fv_real *kept[OUTPUTS];
        shape_text(&s, text);
        run(p, fvi_isa_best(), 1);
        keep_bits(p, kept);
        const int most = code < PLAIN ? 3 : 2 + (int)(code % 2);
        for (int threads = code < PLAIN ? 2 : most; threads <= most; threads++) {
            run(p, fvi_isa_best(), threads);
            same_bits(p, kept, text);
        }
        for (int isa = 1; isa < FVI_ISA_COUNT && isa <= (int)fvi_isa_best(); isa++) {
            run(p, (fvi_isa)isa, 1);
            same_bits(p, kept, text);
        }
        if (fvi_isa_best() != FVI_ISA_base)
            run(p, FVI_ISA_base, 1);
        double *expected[OUTPUTS];
        for (size_t o = 0; o < OUTPUTS; o++) {
            expected[o] = calloc(p->out[o].count + 1, sizeof(double));
            for (size_t i = 0; i < p->out[o].count; i++)
                expected[o][i] = real(kept[o][i]);
        }
        compare(p, expected, text);
        for (size_t o = 0; o < OUTPUTS; o++)
            free(expected[o]);
        drop_bits(kept);
        drop(p);
    }
}

/* A gradient that is asked for alone has the bits it has among the others. */
Test(attention, same_bits_for_one_gradient)
{
    for (size_t code = 0; code < GRID; code += 5 + code % 2) {
        const shape s = grid_at(code);
        problem *p = problem_of(&s);
        fv_real *kept[OUTPUTS];
        run(p, fvi_isa_best(), 1);
        keep_bits(p, kept);
        const fvi_attention_grad all = p->g;
        for (int only = DQ; only < OUTPUTS; only++) {
            p->g = (fvi_attention_grad){.dy = all.dy,
                                        .dq = only == DQ ? all.dq : NULL,
                                        .dk = only == DK ? all.dk : NULL,
                                        .dv = only == DV ? all.dv : NULL,
                                        .drelative = only == DRELATIVE ? all.drelative : NULL,
                                        .dslopes = only == DSLOPES ? all.dslopes : NULL,
                                        .dbias = only == DBIAS ? all.dbias : NULL};
            for (int threads = 1; threads <= 3; threads += 2) {
                run(p, fvi_isa_best(), threads);
                cr_assert(memcmp(p->out[only].data, kept[only],
                                 p->out[only].count * sizeof(fv_real)) == 0);
                for (int other = DQ; other < OUTPUTS; other++)
                    for (size_t i = 0; other != only && i < p->out[other].count; i++)
                        cr_assert_eq(real(p->out[other].data[i]), 1);
            }
        }
        drop_bits(kept);
        drop(p);
    }
}

/* A segment by itself gives the bits it gives among others. */
Test(attention, same_bits_alone_or_in_a_batch)
{
    for (size_t code = 0; code < GRID; code += code < PLAIN ? 1 : 3) {
        shape s = grid_at(code);
        if (s.mask == EDGES || s.mask == EDGES_WINDOW)
            continue;
        s.dropout = 0; /* its bits are numbered by the row of the batch */
        char text[400];
        problem *p = problem_of(&s);
        run(p, fvi_isa_best(), 2);
        const fvi_attention *a = &p->a;
        for (size_t g = 0; g < s.rows.count; g++) {
            shape lone = s;
            lone.rows = (layout){{s.rows.queries[g]}, {s.rows.keys[g]}, 1};
            problem *one = make(&lone);
            const size_t row[] = {a->q_row, a->k_row, a->v_row, a->heads * a->vd, a->heads * a->vd,
                                  a->heads, a->q_row, a->k_row, a->v_row};
            const size_t at[] = {p->query_at[g], p->key_at[g],   p->key_at[g],
                                 p->query_at[g], p->query_at[g], p->query_at[g],
                                 p->query_at[g], p->key_at[g],   p->key_at[g]};
            for (size_t i = 0; i < 4; i++)
                memcpy(one->in[i].data, p->in[i].data + at[i] * row[i],
                       one->in[i].count * sizeof(fv_real));
            const size_t pairs = s.rows.queries[g] * s.rows.keys[g],
                         columns = 2 * (size_t)s.clip + 1;
            memcpy(one->visible, p->visible + p->pair_at[g], pairs);
            for (size_t h = 0; h < s.bias_heads; h++)
                memcpy(one->in[BIAS].data + h * pairs,
                       p->in[BIAS].data + h * a->pairs + p->pair_at[g], pairs * sizeof(fv_real));
            if (a->relative_rows)
                memcpy(one->in[RELATIVE].data,
                       p->in[RELATIVE].data + p->query_at[g] * a->heads * columns,
                       one->in[RELATIVE].count * sizeof(fv_real));
            one->filled[0] = p->filled[g];
            run(one, fvi_isa_best(), 1);
            for (size_t o = 0; o < 5; o++)
                cr_assert(memcmp(one->out[o].data, p->out[o].data + at[4 + o] * row[4 + o],
                                 one->out[o].count * sizeof(fv_real)) == 0,
                          "segment %zu, %s: %s", g, out_names[o], shape_text(&s, text));
            drop(one);
        }
        drop(p);
    }
}

/* ---- derivatives by a complex step ----------------------------------------------------------- */
#if defined(FV_COMPLEX)

static const double step = 1e-30;

/* A direction for every input, drawn apart from the inputs themselves. */
static double direction(uint64_t which, size_t input, size_t i)
{
    return fv_rng_normal(draws, (which * 8 + 16 + input) << 32 | i);
}

static void tilt(problem *p, uint64_t which, double by)
{
    for (size_t n = 0; n < INPUTS; n++)
        for (size_t i = 0; i < p->in[n].count; i++)
            p->in[n].data[i] =
                creal(p->in[n].data[i]) + by * direction(which, n, i) * (fv_real)_Complex_I;
}

/* Sum over the inputs of gradient times direction; part picks the value or its tangent. */
static double along(const problem *p, uint64_t which, bool tangent)
{
    static const int grads[INPUTS] = {DQ, DK, DV, -1, DRELATIVE, DSLOPES, DBIAS};
    double sum = 0;
    for (size_t n = 0; n < INPUTS; n++)
        for (size_t i = 0; n != DY && i < p->in[n].count; i++) {
            const fv_real d = p->out[grads[n]].data[i];
            if (!isnan(creal(p->in[n].data[i])))
                sum += (tangent ? cimag(d) / step : creal(d) - 1) * direction(which, n, i);
        }
    return sum;
}

/* A direction's tangent through the gradient of y in the direction dy is part of the tangent of
 * the product. */
static double product_rule(const problem *p, uint64_t which)
{
    double sum = 0;
    for (size_t i = 0; i < p->out[Y].count; i++)
        sum += real(p->in[DY].data[i]) * cimag(p->out[Y].data[i]) / step;
    (void)which;
    return sum;
}

Test(attention, tangent_is_the_gradient)
{
    for (size_t code = 0; code < GRID; code += 3) {
        shape s = grid_at(code);
        char text[400];
        problem *p = problem_of(&s);
        tilt(p, 1, step);
        run(p, FVI_ISA_base, 1);
        const double forward = product_rule(p, 1);
        tilt(p, 1, 0);
        run(p, FVI_ISA_base, 1);
        const double backward = along(p, 1, false);
        cr_assert(fabs(forward - backward) <= 1e-12 * (10 + fabs(backward)), "%.17g, not %.17g: %s",
                  backward, forward, shape_text(&s, text));
        drop(p);
    }
}

/* With dy fixed, the tangent of the gradient is a Hessian times a direction: u' H w = w' H u. */
Test(attention, hessian_is_symmetric)
{
    for (size_t code = 1; code < GRID; code += 3) {
        shape s = grid_at(code);
        char text[400];
        problem *p = problem_of(&s);
        double product[2];
        for (uint64_t which = 0; which < 2; which++) {
            tilt(p, which, step);
            for (size_t i = 0; i < p->in[DY].count; i++)
                p->in[DY].data[i] = creal(p->in[DY].data[i]);
            run(p, FVI_ISA_base, 1);
            product[which] = along(p, 1 - which, true);
        }
        cr_assert(fabs(product[0] - product[1]) <= 1e-11 * (10 + fabs(product[0])),
                  "%.17g, not %.17g: %s", product[0], product[1], shape_text(&s, text));
        drop(p);
    }
}
#endif
