/* Gradient checks catch planted mistakes, pass what is right, and say where a gradient is wrong. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/internal.h"

/* ---- an op with mistakes to choose from -------------------------------------------------------------- */

typedef enum {
    RIGHT,
    FLIPPED_SIGN,     /* of dx */
    DROPPED_TERM,     /* of dx */
    SCALED_INPUT,     /* dx 1 % too large */
    SCALED_WEIGHT,    /* dw 1 % too large */
    SCALED_A_BIT,     /* dw a millionth too large */
    TRANSPOSED,       /* dx, which is square */
    WRONG_ROW,        /* dx one row down */
    ONE_ELEMENT,      /* of dw */
    FORGOTTEN,        /* dw stays zero */
    OVERWRITES,       /* dx assigned, not added to */
    ADDS_OTHERWISE,   /* dw 1 % too large, but only onto one that is there */
    NAN_GRADIENT,     /* one element of dx */
    REAL_COEFFICIENT, /* the first derivative is right, the second is not */
    MISTAKES
} mistake;

enum { SIDE = 4 };

/* y = x^2 w + x / 2 with x [4, 4] and w [4] for all rows */
static bool planted_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *x = y->in[0]->value.data, *w = y->in[1]->value.data;
    for (size_t i = 0; i < SIDE * SIDE; i++)
        y->value.data[i] = x[i] * x[i] * w[i % SIDE] + x[i] / 2;
    return true;
}

/* dx = dy (2 x w + 1 / 2), dw = dy x^2 summed over rows: so it should be */
static void planted_backward(fv_tape *t, fv_var *y)
{
    const mistake planted = *(const mistake *)y->options;
    const fv_real *x = y->in[0]->value.data, *w = y->in[1]->value.data, *dy = y->grad;
    fv_real *dx = fv_grad(t, y->in[0]), *dw = fv_grad(t, y->in[1]);
    const bool there = fv_re(dw[0]) != 0;
    for (size_t i = 0; i < SIDE * SIDE; i++) {
        const size_t r = i / SIDE, c = i % SIDE;
        fv_real slope = 2 * x[i] * w[c];
        size_t place = i;
        if (planted == REAL_COEFFICIENT)
            slope = 2 * fv_re(x[i]) * w[c];
        if (planted != DROPPED_TERM)
            slope += (fv_real)0.5;
        if (planted == FLIPPED_SIGN)
            slope = -slope;
        if (planted == SCALED_INPUT)
            slope *= (fv_real)1.01;
        if (planted == TRANSPOSED)
            place = c * SIDE + r;
        if (planted == WRONG_ROW)
            place = (i + SIDE) % (SIDE * SIDE);
        if (planted == NAN_GRADIENT && i == 9)
            slope = (fv_real)NAN;
        dx[place] = planted == OVERWRITES ? dy[i] * slope : dx[place] + dy[i] * slope;
        fv_real weight = dy[i] * x[i] * x[i];
        if (planted == SCALED_WEIGHT || (planted == ADDS_OTHERWISE && there))
            weight *= (fv_real)1.01;
        if (planted == SCALED_A_BIT)
            weight *= (fv_real)1.000001;
        if (planted != FORGOTTEN)
            dw[c] += weight;
    }
    if (planted == ONE_ELEMENT)
        dw[2] += (fv_real)0.001;
}

static const fv_op planted_op = {
    .name = "planted", .forward = planted_forward, .backward = planted_backward};

/* Uses x twice, so that gradients must be added up. */
static fv_var *planted(fv_sampler *s, void *context)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(SIDE, SIDE), -2, 2), *w = fv_sample(s, FV_SHAPE(SIDE), 1, 2);
    fv_var *in[] = {x, w};
    fv_var *y = fv_record(t, &planted_op, x->value.shape, context, sizeof(mistake), 2, in);
    return fv_add(t, y, fv_mul(t, x, x));
}

#if defined(FV_F64) || defined(FV_COMPLEX)

Test(gradcheck, planted_mistakes)
{
    static const fv_check_cause causes[MISTAKES] = {
        [FLIPPED_SIGN] = FV_CAUSE_SIGN,       [DROPPED_TERM] = FV_CAUSE_TERM,
        [SCALED_INPUT] = FV_CAUSE_FACTOR,     [SCALED_WEIGHT] = FV_CAUSE_FACTOR,
        [SCALED_A_BIT] = FV_CAUSE_FACTOR,     [TRANSPOSED] = FV_CAUSE_TRANSPOSED,
        [WRONG_ROW] = FV_CAUSE_ORDER,         [ONE_ELEMENT] = FV_CAUSE_ELEMENTS,
        [FORGOTTEN] = FV_CAUSE_FORGOTTEN,     [OVERWRITES] = FV_CAUSE_ASSIGNED,
        [ADDS_OTHERWISE] = FV_CAUSE_UNKNOWN,  [NAN_GRADIENT] = FV_CAUSE_NOT_FINITE,
        [REAL_COEFFICIENT] = FV_CAUSE_SECOND,
    };
    for (int i = 0; i < MISTAKES; i++) {
        mistake m = (mistake)i;
        fv_gradcheck_result result;
        const bool ok = fv_gradcheck(planted, &m, NULL, &result);
#if !defined(FV_COMPLEX)
        if (m == REAL_COEFFICIENT)
            continue; /* needs second derivatives */
#endif
        cr_expect_eq(ok, m == RIGHT, "mistake %d: first order %g, second order %g: %s", i,
                     result.first_order, result.second_order, result.error.text);
        cr_expect_eq(result.verdict, ok ? FV_CHECK_PASSED : FV_CHECK_FAILED);
        cr_expect_eq(result.error.status, ok ? FV_OK : FV_FAILED);
        cr_expect_eq(result.cause, causes[i], "mistake %d: %s", i, result.error.text);
        if (ok)
            continue;
        cr_expect_eq(strncmp(result.error.text, "op planted (value 2 on the tape): ", 34), 0, "%s",
                     result.error.text);
        cr_expect_str_eq(result.op, "planted");
        cr_expect_eq(result.place, 2);
        if (m == REAL_COEFFICIENT || m == OVERWRITES)
            continue;
        const double given = result.given, exact = result.exact;
        const bool in_w = m == SCALED_WEIGHT || m == SCALED_A_BIT || m == ADDS_OTHERWISE ||
                          m == ONE_ELEMENT || m == FORGOTTEN;
        cr_expect_eq(result.input, in_w, "mistake %d: %s", i, result.error.text);
        cr_expect_lt(result.index, in_w ? SIDE : SIDE * SIDE);
        cr_expect(!(fabs(given - exact) < 1e-9), "mistake %d: %s", i, result.error.text);
        if (m == ONE_ELEMENT)
            cr_expect(result.index == 2 && fabs(given - exact - 0.001) < 1e-8, "%s",
                      result.error.text);
        if (m == SCALED_WEIGHT)
            cr_expect_float_eq(given / exact, 1.01, 1e-7);
        if (m == FORGOTTEN)
            cr_expect_eq(given, 0);
        if (m == TRANSPOSED)
            cr_expect_neq(result.index / SIDE, result.index % SIDE, "the diagonal is right");
        if (m == NAN_GRADIENT)
            cr_expect(result.index == 9 && isnan(given), "%s", result.error.text);
    }
}

/* ---- a whole model -------------------------------------------------------------------------------------- */

static const int32_t ids[] = {3, 0, 3, 5, 1, 3, 2}, bag_ids[] = {1, 1, 0, 4, 2, 2, 2, 3},
                     labels[] = {2, 0, -1, 1, 1, 0, 2};
static const size_t segment_at[] = {0, 4, 4, 7}, bag_at[] = {0, 2, 2, 3, 4, 6, 8, 8};
static const fv_segments segments = {3, segment_at}, bags = {7, bag_at};

enum { D = 6, HIDDEN = 5, CLASSES = 3 };

/* A tagger of one pre-norm block, weights and all sampled. */
static fv_var *tagger(fv_sampler *s, void *context)
{
    enum { WEIGHTS = 19 };
    static const size_t sizes[WEIGHTS][2] = {
        {6, D},      {5, D},      {D, 3 * D},  {0, D}, {4, D},      {0, D}, {0, D},
        {2, 3},      {3 * D, D},  {0, 3 * D},  {D, D}, {0, D},      {0, D}, {0, D},
        {HIDDEN, D}, {0, HIDDEN}, {D, HIDDEN}, {0, D}, {CLASSES, D}};
    fv_tape *t = fv_sampler_tape(s);
    const bool gelu = *(const bool *)context;
    fv_var *w[WEIGHTS];
    for (int i = 0; i < WEIGHTS; i++) {
        const fv_shape shape =
            sizes[i][0] ? FV_SHAPE(sizes[i][0], sizes[i][1]) : FV_SHAPE(sizes[i][1]);
        const bool far =
            i == 15 && !gelu; /* a bias that keeps units far from relu's kink, on either side */
        w[i] = fv_sample(s, shape, far ? 9 : -1, far ? 10 : 1);
    }
    static const fv_real sides[HIDDEN] = {1, -1, 1, -1, 1};
    w[15] = fv_mul(t, w[15], fv_constant(t, FV_SHAPE(HIDDEN), sides));
    fv_var *x = fv_gather(t, w[0], ids, 7);
    x = fv_add(t, x, fv_gather_bags(t, w[1], bag_ids, &bags));
    x = fv_affine(t, fv_neighbours(t, x, &segments, 1), w[2], w[3]);
    x = fv_dropout(t, fv_add_positions(t, x, w[4], &segments), 0.2);
    fv_var *y = fv_layer_norm(t, x, w[5], w[6], NULL);
    const fv_mask mask = {.queries = &segments};
    const fv_attention_opts opts = {.heads = 2, .dropout = 0.2, .relative = w[7]};
    y = fv_self_attention(t, fv_affine(t, y, w[8], w[9]), &mask, &opts);
    x = fv_add(t, x, fv_affine(t, y, w[10], w[11]));
    y = fv_layer_norm(t, x, w[12], w[13], NULL);
    y = gelu ? fv_gelu(t, fv_affine(t, y, w[14], w[15])) : fv_affine_relu(t, y, w[14], w[15]);
    x = fv_add(t, x, fv_affine(t, y, w[16], w[17]));
    const fv_cross_entropy_opts smooth = {.smoothing = 0.1};
    return fv_cross_entropy_sum(t, fv_affine(t, x, w[18], NULL), labels, &smooth, NULL);
}

Test(gradcheck, whole_tagger)
{
    for (uint64_t seed = 0; seed < 3; seed++)
        for (int gelu = 0; gelu < 2; gelu++) {
            const fv_gradcheck_opts opts = {.seed = seed};
            fv_gradcheck_result result;
            bool context = gelu != 0;
            cr_expect(fv_gradcheck(tagger, &context, &opts, &result),
                      "seed %d, gelu %d: first order %g, second order %g: %s", (int)seed, gelu,
                      result.first_order, result.second_order, result.error.text);
        }
}

/* A wrong gradient deep inside a model is still found. */
static fv_var *wrong_inside(fv_sampler *s, void *context)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(SIDE, SIDE), -1, 1), *w = fv_sample(s, FV_SHAPE(SIDE), 1, 2);
    fv_var *q = fv_affine(t, x, fv_sample(s, FV_SHAPE(3 * SIDE, SIDE), -1, 1), NULL);
    fv_var *y = fv_self_attention(t, q, NULL, NULL), *in[] = {y, w};
    y = fv_record(t, &planted_op, y->value.shape, context, sizeof(mistake), 2, in);
    return fv_tanh(t, fv_affine(t, y, fv_sample(s, FV_SHAPE(2, SIDE), -1, 1), NULL));
}

Test(gradcheck, a_mistake_inside_a_model)
{
    mistake m = RIGHT;
    fv_gradcheck_result result;
    cr_expect(fv_gradcheck(wrong_inside, &m, NULL, &result), "%s", result.error.text);
    for (m = FLIPPED_SIGN; m <= FORGOTTEN; m++)
        cr_expect_not(fv_gradcheck(wrong_inside, &m, NULL, &result), "mistake %d", (int)m);
}

/* ---- functions that cannot be checked ------------------------------------------------------------------- */

static fv_var *nothing(fv_sampler *s, void *context)
{
    (void)s;
    (void)context;
    return NULL;
}

static fv_var *no_inputs(fv_sampler *s, void *context)
{
    static const fv_real one[] = {1};
    (void)context;
    return fv_constant(fv_sampler_tape(s), FV_SHAPE(1), one);
}

static fv_var *refused(fv_sampler *s, void *context)
{
    (void)context;
    fv_var *x = fv_sample(s, FV_SHAPE(2, 3), -1, 1);
    return fv_matmul(fv_sampler_tape(s), x, x, NULL);
}

static fv_var *many_inputs(fv_sampler *s, void *context)
{
    fv_var *sum = NULL;
    for (int i = 0; i < *(const int *)context; i++) {
        fv_var *x = fv_sample(s, FV_SHAPE(2), -1, 1);
        sum = sum ? fv_add(fv_sampler_tape(s), sum, fv_mul(fv_sampler_tape(s), x, x)) : x;
    }
    return sum;
}

Test(gradcheck, refusals)
{
    fv_gradcheck_result result;
    cr_expect_not(fv_gradcheck(nothing, NULL, NULL, &result));
    cr_expect_str_eq(result.error.text, "gradcheck: the function gives no value");
    cr_expect_not(fv_gradcheck(no_inputs, NULL, NULL, &result));
    cr_expect_str_eq(result.error.text,
                     "backward: the loss depends on nothing that has a gradient");
    cr_expect_not(fv_gradcheck(refused, NULL, NULL, &result));
    cr_expect_str_eq(result.error.text, "matmul: [2, 3] with [2, 3]: inner sizes differ");
    int count = 100;
    cr_expect(fv_gradcheck(many_inputs, &count, NULL, &result), "%s", result.error.text);
}

#else

Test(gradcheck, float_refuses)
{
    mistake m = RIGHT;
    fv_gradcheck_result result;
    cr_expect_not(fv_gradcheck(planted, &m, NULL, &result));
    cr_expect_eq(result.error.status, FV_USAGE);
    cr_expect_str_eq(result.error.text,
                     "gradcheck: float has too few digits; link libfoveac (exact) or libfovea64");
}

#endif

/* Samples are the same on every call and stay away from the kinks at zero. */
Test(gradcheck, samples)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_sampler s = {.tape = t, .seed = 3, .only = -1, .only_index = SIZE_MAX};
    fv_real first[2][200];
    for (int round = 0; round < 3; round++) {
        fv_tape_begin(t, FV_TRAIN, 1, (uint64_t)round);
        s.inputs = 0;
        for (int k = 0; k < 2; k++) {
            const fv_var *x = fv_sample(&s, FV_SHAPE(200), k ? 0 : -1, 1);
            if (round == 0)
                memcpy(first[k], x->value.data, sizeof first[k]);
            cr_expect_arr_eq(first[k], x->value.data, sizeof first[k]);
            for (size_t i = 0; i < 200; i++) {
                const double v = (double)fv_re(x->value.data[i]);
                cr_expect(fabs(v) > 0.0499 && v <= 1 && v >= (k ? 0 : -1), "%g", v);
            }
        }
    }
    cr_expect_arr_neq(first[0], first[1], sizeof first[0], "inputs differ");
    fv_tape_free(t);
}
