/* Segments: values and gradients worked out by hand, empty segments, a segment alone or in any batch, and
 * NaN that stays where it is. */
#include <math.h>
#include <string.h>

#include "tests/numbers.h"

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* Two rows, none, one. */
static const size_t at[] = {0, 2, 2, 3};
static const fv_segments segments = {3, at};

static fv_var *three(fv_tape *t)
{
    return INPUT(t, FV_SHAPE(3, 2), 1, 2, 3, -4, 5, 6);
}

Test(op_segments, pooling)
{
    fv_tape *t = begin();
    fv_var *x = three(t), *y = fv_segment_mean(t, x, &segments);
    EXPECT(y, 2, -1, 0, 0, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0.5, 1, 0.5, 1, 5, 6);
    y = fv_segment_sum(t, x, &segments);
    EXPECT(y, 4, -2, 0, 0, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 2, 1, 2, 5, 6);
    y = fv_segment_max(t, x, &segments);
    EXPECT(y, 3, 2, 0, 0, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0, 2, 1, 0, 5, 6);
    y = fv_segment_expand(t, x, &segments);
    EXPECT(y, 1, 2, 1, 2, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1 + 3, 2 + 4, 0, 0, 5, 6);
    fv_tape_free(t);
}

/* The first of equals takes the gradient; NaN is the largest, the first NaN. */
Test(op_segments, largest_of_equals_and_of_nan)
{
    static const size_t ends[] = {0, 3};
    static const fv_segments whole = {1, ends};
    fv_tape *t = begin();
    fv_var *x =
        INPUT(t, FV_SHAPE(3, 4), 1, NAN, 1, -INFINITY, 2, 5, NAN, -INFINITY, 2, NAN, 7, -INFINITY);
    fv_var *y = fv_segment_max(t, x, &whole);
    EXPECT(y, 2, NAN, NAN, -INFINITY);
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
    EXPECT_GRAD(x, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0);
    fv_tape_free(t);
}

/* In a chain of floats 2^24 + 1 + 1 would stay 2^24. */
Test(op_segments, sums_keep_their_digits)
{
    static const size_t ends[] = {0, 3};
    static const fv_segments whole = {1, ends};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3, 1), 0x1p24, 1, 1), *one = INPUT(t, FV_SHAPE(1, 1), 1);
    EXPECT(fv_segment_sum(t, x, &whole), 0x1p24 + 2);
    cr_expect(fv_segment_sum(t, x, &whole)->value.data[0] == (fv_real)(0x1p24 + 2));
    backward_of(t, fv_segment_expand(t, one, &whole), x->value.data);
    cr_expect(one->grad[0] == (fv_real)(0x1p24 + 2));
    fv_tape_free(t);
}

Test(op_segments, softmax)
{
    const double a = 1 / (1 + exp(1.0)), b = 1 - a;
    static const size_t ends[] = {0, 2, 2, 3, 5, 8};
    static const fv_segments five = {5, ends};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(8, 2), 1, 1000, 2, 1001, -7, -INFINITY, -INFINITY, 3, -INFINITY,
                      -INFINITY, 0, INFINITY, 0, 0, 0, NAN);
    fv_var *y = fv_segment_softmax(t, x, &five);
    EXPECT(y, a, a, b, b, 1, 0, 0, 1, 0, 0, 1.0 / 3, NAN, 1.0 / 3, NAN, 1.0 / 3, NAN);
    backward_of(t, y, NULL);
    /* y (dy - sum y dy): with dy 1, 3 and 2, 4 the sum is 1 + 2 b and 2 + 2 b */
    EXPECT_GRAD(x, -2 * a * b, -2 * a * b, 2 * a * b, 2 * a * b, 0, 0, 0, 0, 0, 0, (11 - 13) / 3.0,
                NAN, 0, NAN, (15 - 13) / 3.0, NAN);
    fv_tape_free(t);
}

/* A row of weight 0 takes and gives no gradient, whatever comes to it. */
Test(op_segments, softmax_of_hidden_rows)
{
    static const size_t ends[] = {0, 3, 5};
    static const fv_segments two = {2, ends};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(5, 1), 0, -INFINITY, 0, -INFINITY, -INFINITY);
    fv_var *y = fv_segment_softmax(t, x, &two);
    EXPECT(y, 0.5, 0, 0.5, 0, 0);
    const fv_real dy[] = {1, (fv_real)NAN, 3, (fv_real)NAN, (fv_real)INFINITY};
    backward_of(t, y, dy);
    cr_expect(isnan((double)fv_re(fv_sum(t, y, NULL)->value.data[0])) == 0);
    EXPECT_GRAD(x, -0.5, 0, 0.5, 0, 0);
    fv_tape_free(t);
}

Test(op_segments, first_last_pick)
{
    static const int32_t position[] = {-2, 0, 0}, other[] = {1, -1, -1};
    fv_tape *t = begin();
    fv_var *x = three(t), *y = fv_segment_first(t, x, &segments);
    EXPECT(y, 1, 2, 0, 0, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 2, 0, 0, 5, 6);
    y = fv_segment_last(t, x, &segments);
    EXPECT(y, 3, -4, 0, 0, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0, 0, 1, 2, 5, 6);
    EXPECT(fv_segment_pick(t, x, &segments, position), 1, 2, 0, 0, 5, 6);
    EXPECT(fv_segment_pick(t, x, &segments, other), 3, -4, 0, 0, 5, 6);
    fv_tape_free(t);
}

Test(op_segments, reverse)
{
    fv_tape *t = begin();
    fv_var *x = three(t), *y = fv_segment_reverse(t, x, &segments);
    EXPECT(y, 3, -4, 1, 2, 5, 6);
    EXPECT(fv_segment_reverse(t, y, &segments), 1, 2, 3, -4, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 3, 4, 1, 2, 5, 6);
    fv_tape_free(t);
}

Test(op_segments, concat)
{
    static const size_t other_at[] = {0, 1, 3, 3}, expected[] = {0, 3, 5, 6};
    static const fv_segments other = {3, other_at};
    const fv_segments *joined;
    fv_tape *t = begin();
    fv_var *a = three(t), *b = INPUT(t, FV_SHAPE(3, 2), 10, 20, 30, 40, 50, 60);
    fv_var *y = fv_segment_concat(t, a, &segments, b, &other, &joined);
    EXPECT(y, 1, 2, 3, -4, 10, 20, 30, 40, 50, 60, 5, 6);
    cr_assert_eq(joined->count, 3);
    cr_expect_arr_eq(joined->offsets, expected, sizeof expected);
    backward_of(t, y, NULL);
    EXPECT_GRAD(a, 1, 2, 3, 4, 11, 12);
    EXPECT_GRAD(b, 5, 6, 7, 8, 9, 10);
    y = fv_segment_concat(t, a, &segments, a, &other, NULL);
    EXPECT(y, 1, 2, 3, -4, 1, 2, 3, -4, 5, 6, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(a, 1 + 5, 2 + 6, 3 + 7, 4 + 8, 11 + 9, 12 + 10);
    fv_tape_free(t);
}

Test(op_segments, positions)
{
    static const size_t none_at[] = {0};
    static const fv_segments none = {0, none_at};
    fv_tape *t = begin();
    const int32_t *p = fv_segment_positions(t, &segments), expected[] = {0, 1, 0};
    cr_assert_not_null(p);
    cr_expect_arr_eq(p, expected, sizeof expected);
    cr_expect_not_null(fv_segment_positions(t, &none));
    fv_tape_free(t);
}

Test(op_segments, pack_and_unpack)
{
    fv_tape *t = begin();
    fv_var *x = three(t), *y = fv_unpack(t, x, &segments, 2);
    cr_assert(fv_shape_equal(y->value.shape, FV_SHAPE(3, 2, 2)));
    EXPECT(y, 1, 2, 3, -4, 0, 0, 0, 0, 5, 6, 0, 0);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 2, 3, 4, 9, 10);
    EXPECT(fv_pack(t, y, &segments), 1, 2, 3, -4, 5, 6);
    fv_var *padded = INPUT(t, FV_SHAPE(3, 2, 1), 1, 2, NAN, NAN, 5, NAN);
    fv_var *rows = fv_pack(t, padded, &segments);
    EXPECT(rows, 1, 2, 5);
    backward_of(t, rows, NULL);
    EXPECT_GRAD(padded, 1, 2, 0, 0, 3, 0);
    fv_tape_free(t);
}

Test(op_segments, neighbours_and_positions)
{
    fv_tape *t = begin();
    fv_var *x = three(t), *y = fv_neighbours(t, x, &segments, 2);
    EXPECT(y, 0, 0, 0, 0, 1, 2, 3, -4, 0, 0, /**/ 0, 0, 1, 2, 3, -4, 0, 0, 0, 0, /**/ 0, 0, 0, 0, 5,
           6, 0, 0, 0, 0);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 5 + 13, 6 + 14, 7 + 15, 8 + 16, 25, 26);
    fv_var *table = INPUT(t, FV_SHAPE(3, 2), 100, 200, 300, 400, 500, 600);
    y = fv_add_positions(t, x, table, &segments);
    EXPECT(y, 101, 202, 303, 396, 105, 206);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 2, 3, 4, 5, 6);
    EXPECT_GRAD(table, 1 + 5, 2 + 6, 3, 4, 0, 0);
    fv_tape_free(t);
}

/* ---- any batch, no rows, NaN ------------------------------------------------------------------------- */

enum { WIDTH = 72, SAMPLES = 7, TIME = 70 }; /* more columns than one block has */
static const size_t lengths[SAMPLES] = {3, 0, 1, 70, 17, 0, 2};

typedef fv_var *(*build)(fv_tape *t, fv_var *x, const fv_segments *segments);

static fv_var *twice(fv_tape *t, fv_var *x, const fv_segments *s)
{
    const fv_segments *joined;
    fv_var *y = fv_segment_concat(t, x, s, x, s, &joined);
    return fv_segment_mean(t, y, joined);
}

static fv_var *there_and_back(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_pack(t, fv_unpack(t, x, s, TIME), s);
}

static fv_var *window(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_neighbours(t, x, s, 2);
}

static fv_var *weights_of_rows(fv_tape *t, fv_var *x, const fv_segments *s)
{
    fv_var *w = fv_segment_softmax(t, x, s), *mean = fv_segment_mean(t, x, s);
    return fv_mul(t, fv_mul(t, w, x), fv_segment_expand(t, mean, s));
}

static const build builds[] = {
    fv_segment_mean,  fv_segment_sum,  fv_segment_max,     fv_segment_softmax,
    fv_segment_first, fv_segment_last, fv_segment_reverse, twice,
    there_and_back,   window,          weights_of_rows};
enum { BUILDS = sizeof builds / sizeof *builds };

/* The batch of samples order[0 .. count - 1]; row i of sample s is the same wherever it stands. */
typedef struct {
    size_t at[SAMPLES + 1], count;
    fv_real x[100 * WIDTH];
} batch;

static fv_segments batch_of(batch *b, size_t count, const int *order)
{
    b->at[0] = 0;
    for (size_t k = 0; k < count; k++) {
        const size_t n = lengths[order[k]];
        char name[32];
        snprintf(name, sizeof name, "sample %d", order[k]);
        for (size_t i = 0; i < n * WIDTH; i++)
            b->x[b->at[k] * WIDTH + i] = (fv_real)fv_rng_normal(fv_rng_make(1, 1, name), i);
        b->at[k + 1] = b->at[k] + n;
    }
    return (fv_segments){count, b->at};
}

/* What sample k of a batch has of y, a row for each sample or for each row. */
static const fv_real *share(const fv_var *y, const fv_segments *s, size_t k, size_t *numbers)
{
    const bool pooled = fvi_rows(y) == s->count;
    const size_t d = fvi_columns(y);
    *numbers = (pooled ? 1 : s->offsets[k + 1] - s->offsets[k]) * d;
    return y->value.data + (pooled ? k : s->offsets[k]) * d;
}

/* Gradients of the sum of squares, which no sample shares with another. */
static fv_var *run(fv_tape *t, build f, const batch *b, const fv_segments *s, fv_var **x)
{
    fv_tape_begin(t, FV_GRAD, 1, 1);
    *x = fv_input(t, FV_SHAPE(fv_segments_rows(s), WIDTH), b->x);
    fv_var *y = f(t, *x, s);
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, y), NULL)), "%s", fv_tape_error(t)->text);
    return y;
}

Test(op_segments, a_segment_alone_or_in_any_batch)
{
    static const int orders[][SAMPLES] = {{0, 1, 2, 3, 4, 5, 6}, {3, 4, 6, 5, 2, 1, 0}};
    static batch all, one;
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = 2}), *u = fv_tape_new(NULL);
    for (int f = 0; f < BUILDS; f++)
        for (size_t o = 0; o < sizeof orders / sizeof *orders; o++) {
            const fv_segments s = batch_of(&all, SAMPLES, orders[o]);
            fv_var *x, *single_x;
            const fv_var *y = run(t, builds[f], &all, &s, &x);
            for (size_t k = 0; k < SAMPLES; k++) {
                const fv_segments alone = batch_of(&one, 1, orders[o] + k);
                if (lengths[orders[o][k]] < 2)
                    continue; /* a row and a sample look alike there */
                size_t numbers, single;
                const fv_var *z = run(u, builds[f], &one, &alone, &single_x);
                const fv_real *mine = share(y, &s, k, &numbers);
                const fv_real *its = share(z, &alone, 0, &single);
                cr_assert_eq(numbers, single);
                cr_expect_arr_eq(mine, its, numbers * sizeof *mine, "op %d, sample %zu", f, k);
                cr_expect_arr_eq(x->grad + s.offsets[k] * WIDTH, single_x->grad,
                                 fvi_count(single_x) * sizeof *mine,
                                 "gradient of op %d, sample %zu", f, k);
            }
        }
    fv_tape_free(t);
    fv_tape_free(u);
}

Test(op_segments, nan_stays_in_its_segment)
{
    static const int order[SAMPLES] = {0, 1, 2, 3, 4, 5, 6};
    static batch clean, spoiled;
    fv_tape *t = fv_tape_new(NULL), *u = fv_tape_new(NULL);
    const fv_segments s = batch_of(&clean, SAMPLES, order);
    for (int f = 0; f < BUILDS; f++)
        for (size_t hole = 0; hole < SAMPLES; hole++) {
            batch_of(&spoiled, SAMPLES, order);
            for (size_t i = s.offsets[hole] * WIDTH; i < s.offsets[hole + 1] * WIDTH; i++)
                spoiled.x[i] = (fv_real)NAN;
            fv_var *x, *other_x;
            const fv_var *y = run(t, builds[f], &clean, &s, &x),
                         *z = run(u, builds[f], &spoiled, &s, &other_x);
            for (size_t k = 0; k < SAMPLES; k++) {
                size_t numbers;
                if (k == hole)
                    continue;
                const fv_real *mine = share(y, &s, k, &numbers), *its = share(z, &s, k, &numbers);
                cr_expect_arr_eq(mine, its, numbers * sizeof *mine, "op %d, NaN in %zu", f, hole);
                cr_expect_arr_eq(
                    x->grad + s.offsets[k] * WIDTH, other_x->grad + s.offsets[k] * WIDTH,
                    lengths[k] * WIDTH * sizeof *mine, "gradients of op %d, NaN in %zu", f, hole);
            }
        }
    fv_tape_free(t);
    fv_tape_free(u);
}

/* No samples at all, or samples without rows. */
Test(op_segments, no_rows)
{
    static const size_t none_at[] = {0}, empty_at[] = {0, 0, 0};
    static const fv_segments cases[] = {{0, none_at}, {2, empty_at}};
    const fv_real nothing[1] = {0};
    fv_tape *t = fv_tape_new(NULL);
    for (int k = 0; k < 2; k++)
        for (int f = 0; f < BUILDS; f++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = fv_input(t, FV_SHAPE(0, 3), nothing);
            const fv_var *y = builds[f](t, x, &cases[k]);
            cr_assert_not_null(y, "op %d: %s", f, fv_tape_error(t)->text);
            for (size_t i = 0; i < fvi_count(y); i++)
                cr_expect(fv_re(y->value.data[i]) == 0);
        }
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(0, 3), nothing);
    fv_var *y = fv_unpack(t, x, &cases[1], 2);
    EXPECT(y, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    backward_of(t, fv_pack(t, y, &cases[1]), NULL);
    cr_expect_not_null(x->grad);
    fv_tape_free(t);
}

/* Gradients of no numbers go round the list of used-up memory without harm to their neighbours. */
Test(op_segments, gradients_of_no_numbers)
{
    static const size_t empty_at[] = {0, 0, 0};
    static const fv_segments empty = {2, empty_at};
    const fv_real nothing[1] = {0}, numbers[] = {1, 2, 3, 4, 5, 6};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(2, 3), numbers), *y = x;
    for (int i = 0; i < 20; i++) {
        fv_var *none = fv_scale(t, fv_scale(t, fv_input(t, FV_SHAPE(0, 3), nothing), 2), 3);
        none = fv_segment_reverse(t, fv_scale(t, none, 1), &empty);
        y = fv_scale(t, fv_add(t, y, fv_segment_sum(t, none, &empty)), i % 2 ? 2 : 0.5);
    }
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)), "%s", fv_tape_error(t)->text);
    EXPECT_GRAD(x, 1, 1, 1, 1, 1, 1);
    fv_tape_free(t);
}
