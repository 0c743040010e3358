/* Rotary positions and linear attention: against their definitions step by step, a segment alone or in any
 * batch, states that go on, the same bits at any number of threads, and what they refuse. */
#include <math.h>

#include "tests/refuse.h"
#include "tests/values.h"

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

static const size_t cut_at[] = {0, 3, 3, 4, 9};
static const fv_segments cut = {4, cut_at};

/* ---- rotary ------------------------------------------------------------------------------------ */

/* One number of a turned row, from the definition. */
static double turned(const fv_real *x, size_t width, bool interleaved, size_t c, double position,
                     double base)
{
    if (c >= width)
        return (double)fv_re(x[c]);
    const size_t half = width / 2, pair = interleaved ? c / 2 : c % half;
    const size_t a = interleaved ? 2 * pair : pair, b = interleaved ? 2 * pair + 1 : pair + half;
    const double angle = position / pow(base, 2.0 * (double)pair / (double)width);
    const double u = (double)fv_re(x[a]), v = (double)fv_re(x[b]);
    return c == a ? u * cos(angle) - v * sin(angle) : u * sin(angle) + v * cos(angle);
}

Test(op_positions, rotary_is_its_definition)
{
    enum { D = 6, HEADS = 2, N = 9 };
    static const int32_t positions[N] = {4, 0, -2, 1000, 7, 7, 3, 1, 2};
    fv_tape *t = fv_tape_new(NULL);
    for (int bits = 0; bits < 32; bits++) {
        const bool interleaved = bits & 1, given = bits & 2;
        const size_t width = bits & 4 ? 4 : D;
        const double base = bits & 8 ? 50 : 10000, scaling = bits & 16 ? 2.5 : 1;
        const fv_rotary_opts opts = {.heads = HEADS,
                                     .interleaved = interleaved,
                                     .width = width == D ? 0 : width,
                                     .base = base == 10000 ? 0 : base,
                                     .scaling = scaling == 1 ? 0 : scaling,
                                     .offset = 5,
                                     .positions = given ? positions : NULL};
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = some(t, 1, FV_SHAPE(N, HEADS * D)), *y = fv_rotary(t, x, &cut, &opts);
        cr_assert_not_null(y);
        for (size_t r = 0; r < N; r++) {
            const size_t place = r - cut_at[fv_segments_find(&cut, r)];
            const double at = given ? positions[r] : (double)place + 5;
            for (size_t c = 0; c < HEADS * D; c++)
                cr_expect(near(y->value.data[r * HEADS * D + c],
                               turned(x->value.data + r * HEADS * D + c / D * D, width, interleaved,
                                      c % D, at / scaling, base)),
                          "bits %d, row %zu, column %zu", bits, r, c);
        }
    }
    fv_tape_free(t);
}

/* A score of turned rows depends on how far apart they are, and a turn keeps lengths. */
Test(op_positions, rotary_scores_see_distances)
{
    enum { D = 8 };
    fv_tape *t = begin();
    fv_var *x = some(t, 2, FV_SHAPE(1, D)), *z = some(t, 3, FV_SHAPE(1, D));
    double score[2][3];
    for (int shift = 0; shift < 2; shift++)
        for (int apart = 0; apart < 3; apart++) {
            const fv_rotary_opts q = {.offset = 40 * shift}, k = {.offset = 40 * shift + apart};
            const fv_var *a = fv_rotary(t, x, NULL, &q), *b = fv_rotary(t, z, NULL, &k);
            score[shift][apart] = 0;
            for (size_t c = 0; c < D; c++)
                score[shift][apart] += (double)fv_re(a->value.data[c] * b->value.data[c]);
        }
    for (int apart = 0; apart < 3; apart++)
        cr_expect_float_eq(score[0][apart], score[1][apart],
                           sizeof(fv_real) == sizeof(float) ? 1e-5 : 1e-12);
    cr_expect(fabs(score[0][0] - score[0][1]) > 0.01);
    fv_tape_free(t);
}

/* Given cosines and sines are used as they are, by position. */
Test(op_positions, rotary_of_a_table)
{
    static const fv_real cosines[] = {1, 0, 2}, sines[] = {0, 1, 3}, row[] = {5, 7, 5, 7, 5, 7};
    static const int32_t positions[] = {2, 0, 1};
    const fv_rotary_opts opts = {
        .cosines = cosines, .sines = sines, .positions_given = 3, .positions = positions};
    fv_tape *t = begin();
    fv_var *x = fv_input(t, FV_SHAPE(3, 2), row), *y = fv_rotary(t, x, NULL, &opts);
    expect_value(t, y, (const double[]){10 - 21, 15 + 14, 5, 7, -7, 5});
    static const fv_real dy[] = {1, 0, 0, 1, 1, 1};
    expect_gradient(t, y, dy, x, (const double[]){2, -3, 0, 1, 1, -1});
    fv_tape_free(t);
}

/* ---- linear attention -------------------------------------------------------------------------- */

/* The state rule, in double, a head and a segment at a time. */
typedef struct {
    size_t heads, kv_heads, wk, wv, decays, betas; /* decays and betas: columns, 0 without */
    double scale;
} sizes;

static double at(const fv_var *x, size_t row, size_t column)
{
    return (double)fv_re(x->value.data[row * fvi_columns(x) + column]);
}

static void step(const sizes *z, size_t row, size_t g, const fv_var *const in[5], double *state)
{
    const fv_var *k = in[1], *v = in[2], *decay = in[3], *beta = in[4];
    for (size_t i = 0; decay && i < z->wk; i++)
        for (size_t j = 0; j < z->wv; j++)
            state[i * z->wv + j] *=
                exp(at(decay, row, z->decays == z->kv_heads ? g : g * z->wk + i));
    for (size_t j = 0; j < z->wv; j++) {
        double u = at(v, row, g * z->wv + j);
        for (size_t i = 0; beta && i < z->wk; i++)
            u -= at(k, row, g * z->wk + i) * state[i * z->wv + j];
        for (size_t i = 0; i < z->wk; i++)
            state[i * z->wv + j] +=
                at(k, row, g * z->wk + i) * u * (beta ? at(beta, row, z->betas == 1 ? 0 : g) : 1);
    }
}

static void expect_steps(const fv_var *y, const sizes *z, const fv_var *const in[5],
                         const fv_var *start, const fv_tensor *after)
{
    double state[64];
    const size_t size = z->wk * z->wv;
    for (size_t s = 0; s < cut.count; s++)
        for (size_t g = 0; g < z->kv_heads; g++) {
            const size_t place = (s * z->kv_heads + g) * size;
            for (size_t n = 0; n < size; n++)
                state[n] = start ? (double)fv_re(start->value.data[place + n]) : 0;
            for (size_t r = cut_at[s]; r < cut_at[s + 1]; r++) {
                step(z, r, g, in, state);
                for (size_t h = g * (z->heads / z->kv_heads);
                     h < (g + 1) * (z->heads / z->kv_heads); h++)
                    for (size_t j = 0; j < z->wv; j++) {
                        double sum = 0;
                        for (size_t i = 0; i < z->wk; i++)
                            sum += z->scale * at(in[0], r, h * z->wk + i) * state[i * z->wv + j];
                        cr_expect(near(y->value.data[(r * z->heads + h) * z->wv + j], sum),
                                  "row %zu, head %zu, column %zu", r, h, j);
                    }
            }
            for (size_t n = 0; n < size; n++)
                cr_expect(near(after->data[place + n], state[n]), "state %zu of segment %zu", n, s);
        }
}

Test(op_positions, linear_attention_is_its_definition)
{
    fv_tape *t = fv_tape_new(NULL);
    for (int bits = 0; bits < 72; bits++) {
        const size_t decays = (const size_t[]){0, 2, 6}[bits % 3], betas = (size_t)(bits / 3 % 3);
        const bool grouped = bits / 9 % 2, started = bits / 18 % 2, scaled = bits / 36;
        const sizes z = {grouped ? 4 : 2, 2, 3, 4, decays, betas, scaled ? 0.7 : 1 / sqrt(3)};
        fv_tensor after;
        fv_tape_begin(t, bits % 2 ? FV_GRAD : FV_EVAL, 1, 1);
        fv_var *in[5] = {some(t, 1, FV_SHAPE(9, z.heads * 3)), some(t, 2, FV_SHAPE(9, 6)),
                         some(t, 3, FV_SHAPE(9, 8)),
                         decays ? fv_scale(t, some(t, 4, FV_SHAPE(9, decays)), 0.2) : NULL,
                         betas ? fv_scale(t, some(t, 5, FV_SHAPE(9, betas)), 0.1) : NULL};
        fv_linear_attention_opts opts = {.heads = z.heads,
                                         .kv_heads = 2,
                                         .scale = scaled ? 0.7 : 0,
                                         .decay = in[3],
                                         .beta = in[4],
                                         .state = started ? some(t, 6, FV_SHAPE(4, 2, 3, 4)) : NULL,
                                         .after = &after};
        fv_var *y = fv_linear_attention(t, in[0], in[1], in[2], &cut, &opts);
        cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
        cr_assert(fv_shape_equal(after.shape, FV_SHAPE(4, 2, 3, 4)));
        expect_steps(y, &z, (const fv_var *const *)in, opts.state, &after);
    }
    fv_tape_free(t);
}

/* Rows 0 .. 99 at once, and as 37 and then the others from the state that those left: the same bits. */
Test(op_positions, linear_attention_goes_on)
{
    enum { N = 100, FIRST = 37, W = 5 };
    fv_tape *t = begin();
    fv_var *x[4], *part[2][4];
    fv_tensor after, last;
    for (int i = 0; i < 4; i++) {
        x[i] = some(t, (uint64_t)i + 1, FV_SHAPE(N, i == 3 ? 1 : W));
        for (int half = 0; half < 2; half++)
            part[half][i] =
                fv_slice(t, x[i], 0, half ? (fv_range){FIRST, N, 1} : (fv_range){0, FIRST, 1});
    }
    fv_linear_attention_opts opts = {.decay = x[3], .after = &last};
    const fv_var *whole = fv_linear_attention(t, x[0], x[1], x[2], NULL, &opts);
    opts = (fv_linear_attention_opts){.decay = part[0][3], .after = &after};
    const fv_var *first = fv_linear_attention(t, part[0][0], part[0][1], part[0][2], NULL, &opts);
    cr_assert(whole && first, "%s", fv_tape_error(t)->text);
    fv_tensor end;
    opts = (fv_linear_attention_opts){
        .decay = part[1][3], .state = fv_constant(t, after.shape, after.data), .after = &end};
    const fv_var *rest = fv_linear_attention(t, part[1][0], part[1][1], part[1][2], NULL, &opts);
    cr_assert_not_null(rest);
    cr_expect_arr_eq(whole->value.data, first->value.data, FIRST * W * sizeof(fv_real));
    cr_expect_arr_eq(whole->value.data + FIRST * W, rest->value.data,
                     (N - FIRST) * W * sizeof(fv_real));
    cr_expect_arr_eq(last.data, end.data, W * W * sizeof(fv_real));
    fv_tape_free(t);
}

/* Memory grows with the rows, not with rows times states. */
Test(op_positions, linear_attention_keeps_few_states)
{
    enum { N = 4096, W = 64 };
    fv_tape *t = begin();
    fv_var *x = some(t, 1, FV_SHAPE(N, W));
    const size_t before = fv_tape_bytes(t, NULL);
    cr_assert_not_null(fv_linear_attention(t, x, x, x, NULL, NULL));
    const size_t after = fv_tape_bytes(t, NULL);
    cr_expect_leq(after - before, 3 * N * W * sizeof(fv_real), "%zu bytes", after - before);
    fv_tape_free(t);
}

/* ---- any number of threads --------------------------------------------------------------------- */

static fv_var *large_run(fv_tape *t, int which)
{
    static size_t at_300[301];
    for (size_t s = 0; s <= 300; s++)
        at_300[s] = 7 * s + (s * 5) % 7 * (s < 300);
    static const fv_segments many = {300, at_300};
    const size_t rows = at_300[300];
    fv_var *x = some(t, 1, FV_SHAPE(rows, 96));
    if (which < 2) {
        const fv_rotary_opts opts = {.heads = 3, .interleaved = which == 1};
        return fv_rotary(t, x, which ? NULL : &many, &opts);
    }
    const fv_linear_attention_opts opts = {
        .heads = 6,
        .kv_heads = 3,
        .decay = fv_scale(t, some(t, 4, FV_SHAPE(rows, 48)), 0.02),
        .beta = fv_scale(t, some(t, 5, FV_SHAPE(rows, 1)), 0.001)};
    return fv_linear_attention(t, x, some(t, 2, FV_SHAPE(rows, 48)), some(t, 3, FV_SHAPE(rows, 60)),
                               which == 2 ? &many : NULL, &opts);
}

Test(op_positions, same_bits)
{
    same_bits_at_any_threads(large_run, 4);
}

/* ---- refusals ---------------------------------------------------------------------------------- */

static const size_t two_at[] = {0, 1, 4};
static const fv_segments two = {2, two_at};
static const int32_t positions[] = {0, 1, 2, -1};

REFUSED(rotary)
{
    int at = 0;
    const double nan = NAN;
    WRONG("rotary: an input is NULL", fv_rotary(t, NULL, &two, NULL))
    WRONG("rotary: input is [6], expected [rows, d]", fv_rotary(t, IN(6), NULL, NULL))
    WRONG("rotary: segments: they hold 4 rows, the input has 5", fv_rotary(t, IN(5, 6), &two, NULL))
    WRONG("rotary: [4, 6] of 4 heads: they must divide its columns",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.heads = 4}))
    WRONG("rotary: 3 columns of a head of 3 turn: expected an even number of them",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.heads = 2}))
    WRONG("rotary: 8 columns of a head of 6 turn: expected an even number of them",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.width = 8}))
    WRONG("rotary: base -1, expected a positive number",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.base = -1}))
    WRONG("rotary: base inf, expected a positive number",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.base = INFINITY}))
    WRONG("rotary: scaling nan, expected a positive number",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.scaling = nan}))
    WRONG("rotary: cosines, sines and positions_given: all of them, or none",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.cosines = refused_numbers}))
    WRONG("rotary: cosines, sines and positions_given: all of them, or none",
          fv_rotary(t, IN(4, 6), NULL, &(fv_rotary_opts){.positions_given = 3}))
    const fv_rotary_opts table = {
        .cosines = refused_numbers, .sines = refused_numbers, .positions_given = 2};
    fv_rotary_opts placed = table, later = table;
    placed.positions = positions + 2;
    later.offset = 1;
    WRONG("rotary: position 2, cosines and sines are given for 2",
          fv_rotary(t, IN(4, 6), &two, &table))
    WRONG("rotary: position 2, cosines and sines are given for 2",
          fv_rotary(t, IN(2, 6), NULL, &later))
    WRONG("rotary: position 2, cosines and sines are given for 2",
          fv_rotary(t, IN(2, 6), NULL, &placed))
    placed.positions = positions + 3;
    WRONG("rotary: position -1, cosines and sines are given for 2",
          fv_rotary(t, IN(1, 6), NULL, &placed))
    NO_MORE
}

/* Queries, keys and values [4, 6] and options. */
#define LINEAR(...)                                                                                \
    fv_linear_attention(t, IN(4, 6), IN(4, 6), IN(4, 6), &two,                                     \
                        &(fv_linear_attention_opts){__VA_ARGS__})

REFUSED(linear)
{
    int at = 0;
    const size_t huge = (size_t)1 << 33;
    WRONG("linear_attention: an input is NULL",
          fv_linear_attention(t, IN(4, 6), NULL, IN(4, 6), NULL, NULL))
    WRONG("linear_attention: value is [6], expected [rows, d]",
          fv_linear_attention(t, IN(4, 6), IN(4, 6), IN(6), NULL, NULL))
    WRONG("linear_attention: segments: they hold 4 rows, the input has 5",
          fv_linear_attention(t, IN(5, 6), IN(5, 6), IN(5, 6), &two, NULL))
    WRONG("linear_attention: queries [4, 6], keys [4, 6], values [3, 6]: rows differ",
          fv_linear_attention(t, IN(4, 6), IN(4, 6), IN(3, 6), NULL, NULL))
    WRONG("linear_attention: queries [4, 6] of 1 heads, keys [4, 3] and values [4, 6] of 1: widths "
          "do not fit",
          fv_linear_attention(t, IN(4, 6), IN(4, 3), IN(4, 6), NULL, NULL))
    WRONG("linear_attention: queries [4, 6] of 4 heads, keys [4, 6] and values [4, 6] of 4: widths "
          "do not fit",
          LINEAR(.heads = 4))
    WRONG("linear_attention: queries [4, 6] of 3 heads, keys [4, 6] and values [4, 6] of 2: widths "
          "do not fit",
          LINEAR(.heads = 3, .kv_heads = 2))
    WRONG("linear_attention: decay [4, 5], expected [4, 2] or [4, 6]",
          LINEAR(.heads = 2, .decay = IN(4, 5)))
    WRONG("linear_attention: decay [3, 2], expected [4, 2] or [4, 6]",
          LINEAR(.heads = 2, .decay = IN(3, 2)))
    WRONG("linear_attention: beta [4, 3], expected [4, 1] or [4, 2]",
          LINEAR(.heads = 2, .beta = IN(4, 3)))
    WRONG("linear_attention: beta [4], expected [4, 1] or [4, 2]",
          LINEAR(.heads = 2, .beta = IN(4)))
    WRONG("linear_attention: state [2, 2, 3, 2], expected [2, 2, 3, 3]",
          LINEAR(.heads = 2, .state = IN(2, 2, 3, 2)))
    WRONG("linear_attention: [1, 1, 8589934592, 8589934592] holds more numbers than there can be",
          fv_linear_attention(t, IN(0, huge), IN(0, huge), IN(0, huge), NULL, NULL))
    NO_MORE
}

Test(op_positions, refusals)
{
    refuse_each(rotary);
    refuse_each(linear);
}
