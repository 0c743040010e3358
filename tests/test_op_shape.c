/* Shapes: every move against places worked out one by one, views, joins, triangles; no numbers, one number,
 * the same input twice. */
#include <math.h>

#include "tests/numbers.h"

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

/* An input of 0, 1, 2, .. */
static fv_var *places(fv_tape *t, fv_shape shape)
{
    const size_t n = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(t, n + 1, sizeof *data);
    for (size_t i = 0; i < n; i++)
        data[i] = (fv_real)(double)i;
    return fv_input(t, shape, data);
}

/* When y's numbers are places of x: the gradient by x of y weighted with 1, 2, .. is what each place was
 * given. */
static void expect_way_back(fv_tape *t, fv_var *y, const fv_var *x)
{
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    double *slope = fv_tape_alloc(t, fvi_count(x) + 1, sizeof *slope);
    for (size_t i = 0; i < fvi_count(y); i++)
        slope[(size_t)fv_re(y->value.data[i])] += (double)(i + 1);
    backward_of(t, y, NULL);
    if (fvi_count(x) > 0 && fvi_count(y) > 0)
        expect_numbers(y->op->name, x->grad, slope, fvi_count(x));
}

/* ---- permute ----------------------------------------------------------------------------------- */

/* y[i0, i1, ..] is the place in x that has those indices at axes[0], axes[1], .. */
static void permute_by(fv_tape *t, fv_shape shape, const int *axes)
{
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = places(t, shape), *y = fv_permute(t, x, axes);
    cr_assert_not_null(y);
    size_t step[FV_MAX_RANK], next = 1;
    for (int k = shape.rank - 1; k >= 0; k--) {
        step[k] = next;
        next *= shape.size[k];
    }
    for (size_t i = 0; i < fvi_count(y); i++) {
        size_t place = 0, rest = i;
        for (int k = shape.rank - 1; k >= 0; k--) {
            place += rest % y->value.shape.size[k] * step[axes[k]];
            rest /= y->value.shape.size[k];
        }
        cr_assert_eq(fv_re(y->value.data[i]), (double)place);
    }
    expect_way_back(t, y, x);
}

/* Every order of the axes, of a rank up to four. */
static void every_order(fv_tape *t, fv_shape shape)
{
    for (int code = 0; code < 256; code++) {
        const int axes[] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
        int seen = 0;
        for (int k = 0; k < shape.rank; k++)
            seen |= 1 << axes[k];
        if (seen == (1 << shape.rank) - 1)
            permute_by(t, shape, axes);
    }
}

Test(op_shape, permute)
{
    fv_tape *t = fv_tape_new(NULL);
    every_order(t, FV_SHAPE(3, 4, 2, 5));
    every_order(t, FV_SHAPE(1, 4, 1, 3));
    every_order(t, FV_SHAPE(33, 40, 17));
    every_order(t, FV_SHAPE(300, 70));
    every_order(t, FV_SHAPE(2, 3, 5, 64));
    every_order(t, FV_SHAPE(3, 0, 2));
    permute_by(t, FV_SHAPE(2, 3, 1, 2, 3, 2), (const int[]){5, 3, 0, 4, 2, 1});
    permute_by(t, FV_SCALAR, (const int[]){0});
    fv_tape_free(t);
}

Test(op_shape, transpose)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 3));
    EXPECT(fv_transpose(t, x, 0, 1), 0, 3, 1, 4, 2, 5);
    EXPECT(fv_transpose(t, x, -1, -1), 0, 1, 2, 3, 4, 5);
    fv_tape_free(t);
}

/* ---- views ------------------------------------------------------------------------------------- */

Test(op_shape, views)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 1, 3)), *scalar = places(t, FV_SCALAR);
    const struct {
        const fv_var *y;
        fv_shape shape;
    } view[] = {{fv_reshape(t, x, FV_SHAPE(3, 2)), FV_SHAPE(3, 2)},
                {fv_squeeze(t, x, -2), FV_SHAPE(2, 3)},
                {fv_unsqueeze(t, x, 0), FV_SHAPE(1, 2, 1, 3)},
                {fv_unsqueeze(t, x, -1), FV_SHAPE(2, 1, 3, 1)},
                {fv_unsqueeze(t, x, 2), FV_SHAPE(2, 1, 1, 3)},
                {fv_flatten(t, x, 0, -1), FV_SHAPE(6)},
                {fv_flatten(t, x, 1, 2), FV_SHAPE(2, 3)},
                {fv_flatten(t, x, 1, 1), FV_SHAPE(2, 1, 3)}};
    for (size_t k = 0; k < sizeof view / sizeof *view; k++) {
        cr_assert_not_null(view[k].y, "%s", fv_tape_error(t)->text);
        cr_expect(fv_shape_equal(view[k].y->value.shape, view[k].shape), "view %zu", k);
        cr_expect_eq(view[k].y->value.data, x->value.data, "view %zu is a copy", k);
    }
    cr_expect(fv_shape_equal(fv_flatten(t, scalar, 0, -1)->value.shape, FV_SHAPE(1)));
    cr_expect(fv_shape_equal(fv_unsqueeze(t, scalar, -1)->value.shape, FV_SHAPE(1)));
    expect_way_back(t, fv_flip(t, fv_flatten(t, x, 0, -1), 0), x);
    fv_tape_free(t);
}

/* ---- repeats ----------------------------------------------------------------------------------- */

Test(op_shape, expand)
{
    fv_tape *t = begin();
    fv_var *row = places(t, FV_SHAPE(3)), *column = places(t, FV_SHAPE(2, 1));
    EXPECT(fv_expand(t, row, FV_SHAPE(2, 3)), 0, 1, 2, 0, 1, 2);
    EXPECT(fv_expand(t, column, FV_SHAPE(2, 3)), 0, 0, 0, 1, 1, 1);
    EXPECT(fv_expand(t, INPUT(t, FV_SCALAR, 7), FV_SHAPE(1, 2)), 7, 7);
    cr_expect_eq(fvi_count(fv_expand(t, column, FV_SHAPE(2, 0))), 0);
    expect_way_back(t, fv_expand(t, row, FV_SHAPE(2, 3)), row);
    expect_way_back(t, fv_expand(t, column, FV_SHAPE(4, 2, 3)), column);
    expect_way_back(t, fv_expand(t, column, FV_SHAPE(0, 2, 3)), column);
    fv_var *middle = places(t, FV_SHAPE(2, 1, 50, 1));
    expect_way_back(t, fv_expand(t, middle, FV_SHAPE(3, 2, 30, 50, 20)), middle);
    fv_tape_free(t);
}

Test(op_shape, tile)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 2));
    EXPECT(fv_tile(t, x, (const size_t[]){1, 2}), 0, 1, 0, 1, 2, 3, 2, 3);
    EXPECT(fv_tile(t, x, (const size_t[]){2, 1}), 0, 1, 2, 3, 0, 1, 2, 3);
    cr_expect_eq(fvi_count(fv_tile(t, x, (const size_t[]){0, 3})), 0);
    expect_way_back(t, fv_tile(t, x, (const size_t[]){3, 2}), x);
    expect_way_back(t, fv_tile(t, x, (const size_t[]){0, 2}), x);
    fv_var *six = places(t, FV_SHAPE(2, 1, 3, 2, 1, 2));
    fv_var *y = fv_tile(t, six, (const size_t[]){2, 3, 2, 1, 2, 3});
    for (size_t i = 0; i < fvi_count(y); i++) {
        size_t place = 0, next = 1, rest = i;
        for (int k = 5; k >= 0; k--) {
            place += rest % y->value.shape.size[k] % six->value.shape.size[k] * next;
            rest /= y->value.shape.size[k];
            next *= six->value.shape.size[k];
        }
        cr_assert_eq(fv_re(y->value.data[i]), (double)place);
    }
    expect_way_back(t, y, six);
    cr_expect_eq(fv_re(fv_tile(t, places(t, FV_SCALAR), NULL)->value.data[0]), 0);
    fv_tape_free(t);
}

Test(op_shape, repeat_rows)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 2)), *y = fv_repeat_rows(t, x, 2);
    EXPECT(y, 0, 1, 0, 1, 2, 3, 2, 3);
    cr_expect(fv_shape_equal(y->value.shape, FV_SHAPE(4, 2)));
    cr_expect_eq(fvi_count(fv_repeat_rows(t, x, 0)), 0);
    EXPECT(fv_repeat_rows(t, places(t, FV_SHAPE(2)), 3), 0, 0, 0, 1, 1, 1);
    fv_tape_free(t);
}

/* ---- along an axis ----------------------------------------------------------------------------- */

/* What first, end and step make of an axis of five. */
Test(op_shape, slice)
{
    const struct {
        fv_range range;
        const char *places;
    } of[] = {{{0, 5, 1}, "01234"},
              {{0, FV_END, 0}, "01234"},
              {{1, 4, 0}, "123"},
              {{1, -1, 2}, "13"},
              {{-2, FV_END, 1}, "34"},
              {{-9, 9, 3}, "03"},
              {{4, 1, 1}, ""},
              {{5, FV_END, 1}, ""},
              {{-1, FV_END, -1}, "43210"},
              {{FV_END, FV_END, -2}, "420"},
              {{3, 0, -1}, "321"},
              {{3, -9, -1}, "3210"},
              {{-2, -4, -1}, "32"},
              {{0, FV_END, -1}, "0"},
              {{1, 3, -1}, ""},
              {{-9, FV_END, -1}, ""},
              {{0, 5, INT32_MAX}, "0"},
              {{4, FV_END, INT32_MIN}, "4"},
              {{INT32_MIN, FV_END, 4}, "04"},
              {{2, INT32_MIN, -2}, "20"}};
    for (size_t k = 0; k < sizeof of / sizeof *of; k++) {
        fv_tape *t = begin();
        fv_var *x = places(t, FV_SHAPE(5)), *y = fv_slice(t, x, 0, of[k].range);
        char text[6] = "";
        for (size_t i = 0; i < fvi_count(y); i++)
            text[i] = (char)('0' + (int)fv_re(y->value.data[i]));
        cr_expect_str_eq(text, of[k].places, "slice %zu: %s, expected %s", k, text, of[k].places);
        expect_way_back(t, y, x);
        fv_var *deep = places(t, FV_SHAPE(2, 5, 3));
        expect_way_back(t, fv_slice(t, deep, 1, of[k].range), deep);
        fv_tape_free(t);
    }
}

Test(op_shape, split)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 4)), *part[4];
    cr_assert(fv_split(t, x, 1, 2, NULL, part));
    EXPECT(part[0], 0, 1, 4, 5);
    EXPECT(part[1], 2, 3, 6, 7);
    cr_assert(fv_split(t, x, -1, 3, (const size_t[]){3, 0, 1}, part));
    EXPECT(part[0], 0, 1, 2, 4, 5, 6);
    cr_expect_eq(fvi_count(part[1]), 0);
    EXPECT(part[2], 3, 7);
    expect_way_back(t, fv_concat(t, 3, part, 1), x);
    cr_assert(fv_split(t, places(t, FV_SHAPE(0, 2)), 0, 3, NULL, part));
    cr_expect_eq(fvi_count(part[2]), 0);
    fv_tape_free(t);
}

Test(op_shape, pad)
{
    const fv_pad_opts constant = {.value = 9}, edge = {.mode = FV_PAD_EDGE},
                      reflect = {.mode = FV_PAD_REFLECT}, wrap = {.mode = FV_PAD_WRAP};
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(3)), *one = places(t, FV_SHAPE(1)),
           *deep = places(t, FV_SHAPE(2, 3, 2)), *none = places(t, FV_SHAPE(0));
    EXPECT(fv_pad(t, x, 0, 2, 1, NULL), 0, 0, 0, 1, 2, 0);
    EXPECT(fv_pad(t, x, 0, 0, 2, &constant), 0, 1, 2, 9, 9);
    EXPECT(fv_pad(t, x, -1, 2, 1, &edge), 0, 0, 0, 1, 2, 2);
    EXPECT(fv_pad(t, x, 0, 2, 2, &reflect), 2, 1, 0, 1, 2, 1, 0);
    EXPECT(fv_pad(t, x, 0, 3, 2, &wrap), 0, 1, 2, 0, 1, 2, 0, 1);
    EXPECT(fv_pad(t, one, 0, 2, 2, &edge), 0, 0, 0, 0, 0);
    EXPECT(fv_pad(t, one, 0, 1, 1, &wrap), 0, 0, 0);
    EXPECT(fv_pad(t, none, 0, 1, 1, &constant), 9, 9);
    EXPECT(fv_pad(t, deep, 1, 0, 1, &reflect), 0, 1, 2, 3, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11, 8, 9);
    cr_expect_eq(fvi_count(fv_pad(t, none, 0, 0, 0, &edge)), 0);
    cr_expect_eq(fvi_count(fv_pad(t, none, 0, 0, 0, &reflect)), 0);
    expect_way_back(t, fv_pad(t, x, 0, 4, 3, &edge), x);
    expect_way_back(t, fv_pad(t, x, 0, 2, 2, &reflect), x);
    expect_way_back(t, fv_pad(t, deep, 1, 3, 3, &wrap), deep);
    expect_way_back(t, fv_pad(t, deep, 1, 5, 1, &edge), deep);
    backward_of(t, fv_pad(t, x, 0, 2, 1, NULL), NULL);
    EXPECT_GRAD(x, 3, 4, 5);
    fv_tape_free(t);
}

Test(op_shape, flip_and_roll)
{
    fv_tape *t = begin();
    fv_var *x = places(t, FV_SHAPE(2, 3)), *none = places(t, FV_SHAPE(2, 0));
    EXPECT(fv_flip(t, x, 1), 2, 1, 0, 5, 4, 3);
    EXPECT(fv_flip(t, x, 0), 3, 4, 5, 0, 1, 2);
    EXPECT(fv_roll(t, x, 1, 1), 2, 0, 1, 5, 3, 4);
    EXPECT(fv_roll(t, x, -1, -4), 1, 2, 0, 4, 5, 3);
    EXPECT(fv_roll(t, x, 0, INT32_MIN), 0, 1, 2, 3, 4, 5);
    cr_expect_eq(fvi_count(fv_flip(t, none, 1)), 0);
    cr_expect_eq(fvi_count(fv_roll(t, none, 1, 5)), 0);
    expect_way_back(t, fv_flip(t, x, 1), x);
    expect_way_back(t, fv_roll(t, x, 1, 2), x);
    fv_tape_free(t);
}

/* ---- joins ------------------------------------------------------------------------------------- */

Test(op_shape, concat)
{
    fv_tape *t = begin();
    fv_var *a = places(t, FV_SHAPE(2, 2)), *b = INPUT(t, FV_SHAPE(2, 1), 8, 9),
           *none = places(t, FV_SHAPE(2, 0));
    EXPECT(fv_concat(t, 3, (fv_var *[]){a, none, b}, 1), 0, 1, 8, 2, 3, 9);
    EXPECT(fv_concat(t, 2, (fv_var *[]){a, a}, 0), 0, 1, 2, 3, 0, 1, 2, 3);
    EXPECT(fv_concat(t, 1, &a, -2), 0, 1, 2, 3);
    cr_expect_eq(fvi_count(fv_concat(t, 2, (fv_var *[]){none, none}, 0)), 0);
    expect_way_back(t, fv_concat(t, 2, (fv_var *[]){a, a}, 1), a);
    fv_var *all[] = {a, none, b, fv_reshape(t, a, FV_SHAPE(2, 2))};
    backward_of(t, fv_concat(t, 4, all, 1), NULL); /* [a b a] with weights 1 .. 10 */
    EXPECT_GRAD(a, 1 + 4, 2 + 5, 6 + 9, 7 + 10);
    EXPECT_GRAD(b, 3, 8);
    fv_tape_free(t);
}

Test(op_shape, stack)
{
    fv_tape *t = begin();
    fv_var *a = places(t, FV_SHAPE(2)), *b = INPUT(t, FV_SHAPE(2), 8, 9),
           *one = INPUT(t, FV_SCALAR, 5);
    EXPECT(fv_stack(t, 2, (fv_var *[]){a, b}, 0), 0, 1, 8, 9);
    EXPECT(fv_stack(t, 2, (fv_var *[]){a, b}, -1), 0, 8, 1, 9);
    fv_var *y = fv_stack(t, 2, (fv_var *[]){one, one}, 0);
    EXPECT(y, 5, 5);
    cr_expect(fv_shape_equal(y->value.shape, FV_SHAPE(2)));
    backward_of(t, y, NULL);
    EXPECT_GRAD(one, 3);
    expect_way_back(t, fv_stack(t, 3, (fv_var *[]){a, a, a}, 1), a);
    fv_tape_free(t);
}

/* ---- triangles --------------------------------------------------------------------------------- */

Test(op_shape, triangles)
{
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    EXPECT(fv_tril(t, x, 0), 1, 0, 0, 4, 5, 0);
    EXPECT(fv_tril(t, x, 1), 1, 2, 0, 4, 5, 6);
    EXPECT(fv_tril(t, x, -2), 0, 0, 0, 0, 0, 0);
    EXPECT(fv_triu(t, x, 0), 1, 2, 3, 0, 5, 6);
    EXPECT(fv_triu(t, x, INT32_MIN), 1, 2, 3, 4, 5, 6);
    EXPECT(fv_triu(t, x, INT32_MAX), 0, 0, 0, 0, 0, 0);
    EXPECT(fv_diagonal(t, x, 0), 1, 5);
    EXPECT(fv_diagonal(t, x, 1), 2, 6);
    EXPECT(fv_diagonal(t, x, 2), 3);
    EXPECT(fv_diagonal(t, x, -1), 4);
    cr_expect_eq(fvi_count(fv_diagonal(t, x, 3)), 0);
    cr_expect_eq(fvi_count(fv_diagonal(t, x, INT32_MIN)), 0);
    backward_of(t, fv_tril(t, x, 0), NULL);
    EXPECT_GRAD(x, 1, 0, 0, 4, 5, 0);
    backward_of(t, fv_diagonal(t, x, 1), NULL);
    EXPECT_GRAD(x, 0, 1, 0, 0, 0, 2);
    /* What is left out may be anything. */
    fv_var *odd = INPUT(t, FV_SHAPE(2, 2), 1, (double)NAN, 3, 4);
    EXPECT(fv_tril(t, odd, 0), 1, 0, 3, 4);
    cr_expect_eq(fvi_count(fv_tril(t, places(t, FV_SHAPE(3, 0)), 0)), 0);
    cr_expect_eq(fvi_count(fv_diagonal(t, places(t, FV_SHAPE(0, 2, 2)), 0)), 0);
    fv_tape_free(t);
}

Test(op_shape, one_hot)
{
    fv_tape *t = begin();
    const int32_t ids[] = {1, -1, 0};
    fv_var *y = fv_one_hot(t, ids, 3, 2);
    EXPECT(y, 0, 1, 0, 0, 1, 0);
    cr_expect_not(y->needs_grad);
    cr_expect_eq(fvi_count(fv_one_hot(t, NULL, 0, 2)), 0);
    cr_expect_eq(fvi_count(fv_one_hot(t, ids + 1, 1, 0)), 0);
    fv_tape_free(t);
}
