/* Choosing: values and gradients worked out by hand, every rank, no numbers, and the same input twice. */
#include <math.h>
#include <string.h>

#include "tests/numbers.h"

static fv_tape *begin(void)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    return t;
}

Test(op_choose, gather_of_a_value)
{
    static const int32_t ids[] = {2, 0, 2};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    fv_var *y = fv_gather(t, x, ids, 3);
    EXPECT(y, 5, 6, 1, 2, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 3, 4, 0, 0, 1 + 5, 2 + 6);
    fv_tape_free(t);
}

Test(op_choose, scatter_add)
{
    static const int32_t ids[] = {2, 0, 2};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(3, 2), 1, 2, 3, 4, 5, 6);
    fv_var *y = fv_scatter_add(t, x, ids, 4);
    EXPECT(y, 3, 4, 0, 0, 6, 8, 0, 0);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 5, 6, 1, 2, 5, 6);
    fv_tape_free(t);
}

/* In float 2^24 + 1 + 1 is 2^24, but 1 + 1 + 2^24 is not: the order is that of the rows. */
Test(op_choose, what_meets_is_added_in_order)
{
    static const int32_t ids[] = {0, 0, 0};
    const fv_real big = sizeof(fv_real) == 4 ? (fv_real)0x1p24 : (fv_real)0x1p53;
    const fv_real first[] = {big, 1, 1}, last[] = {1, 1, big};
    fv_tape *t = begin();
    fv_var *a = fv_scatter_add(t, fv_input(t, FV_SHAPE(3, 1), first), ids, 1);
    fv_var *b = fv_scatter_add(t, fv_input(t, FV_SHAPE(3, 1), last), ids, 1);
    cr_expect(a->value.data[0] == big);
    cr_expect(b->value.data[0] == big + 2);
    const fv_real one[] = {0};
    fv_var *x = fv_input(t, FV_SHAPE(1), one), *y = fv_index_select(t, x, 0, ids, 3);
    backward_of(t, y, first);
    cr_expect(x->grad[0] == big);
    backward_of(t, y, last);
    cr_expect(x->grad[0] == big + 2);
    fv_var *z = fv_take_along(t, x, 0, FV_SHAPE(3), ids);
    backward_of(t, z, first);
    cr_expect(x->grad[0] == big);
    backward_of(t, z, last);
    cr_expect(x->grad[0] == big + 2);
    fv_tape_free(t);
}

Test(op_choose, index_select_along_each_axis)
{
    static const int32_t ids[] = {1, 1, 0};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8);
    fv_var *y = fv_index_select(t, x, 0, ids, 3);
    cr_expect(fv_shape_equal(y->value.shape, FV_SHAPE(3, 2, 2)));
    EXPECT(y, 5, 6, 7, 8, 5, 6, 7, 8, 1, 2, 3, 4);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 9, 10, 11, 12, 6, 8, 10, 12);
    y = fv_index_select(t, x, -2, ids, 3);
    EXPECT(y, 3, 4, 3, 4, 1, 2, 7, 8, 7, 8, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 5, 6, 4, 6, 11, 12, 16, 18);
    y = fv_index_select(t, x, -1, ids, 3);
    EXPECT(y, 2, 2, 1, 4, 4, 3, 6, 6, 5, 8, 8, 7);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 3, 3, 6, 9, 9, 15, 12, 21);
    fv_tape_free(t);
}

Test(op_choose, take_along)
{
    static const int32_t wide[] = {2, 0, 0, 2, 1, 1, 1, 2}, tall[] = {1, 0, 1};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    fv_var *y = fv_take_along(t, x, 1, FV_SHAPE(2, 4), wide);
    EXPECT(y, 3, 1, 1, 3, 5, 5, 5, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 2 + 3, 0, 1 + 4, 0, 5 + 6 + 7, 8);
    y = fv_take_along(t, x, 0, FV_SHAPE(1, 3), tall);
    EXPECT(y, 4, 2, 6);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0, 2, 0, 1, 0, 3);
    fv_tape_free(t);
}

Test(op_choose, masked_fill)
{
    static const unsigned char full[] = {1, 0, 0, 0, 0, 1}, column[] = {0, 1}, row[] = {0, 0, 1},
                               yes[] = {1}, no[] = {0};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    fv_var *y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(2, 3), full}, -INFINITY);
    EXPECT(y, -INFINITY, 2, 3, 4, 5, -INFINITY);
    y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(2, 3), full}, 9);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0, 2, 3, 4, 5, 0);
    y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(2, 1), column}, 9);
    EXPECT(y, 1, 2, 3, 9, 9, 9);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 1, 2, 3, 0, 0, 0);
    y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(3), row}, NAN);
    EXPECT(y, 1, 2, NAN, 4, 5, NAN);
    y = fv_masked_fill(t, x, (fv_bools){FV_SCALAR, yes}, 7);
    EXPECT(y, 7, 7, 7, 7, 7, 7);
    y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(1, 1), no}, 7);
    EXPECT(y, 1, 2, 3, 4, 5, 6);
    fv_tape_free(t);
}

/* What stands where something is filled reaches neither the value nor a gradient. */
Test(op_choose, a_filled_place_never_matters)
{
    static const unsigned char mask[] = {0, 1, 0, 1};
    fv_tape *t = begin();
    fv_var *x = INPUT(t, FV_SHAPE(2, 4), 1, NAN, 3, INFINITY, 5, NAN, 7, NAN);
    fv_var *y = fv_masked_fill(t, x, (fv_bools){FV_SHAPE(4), mask}, 0);
    EXPECT(y, 1, 0, 3, 0, 5, 0, 7, 0);
    const fv_real spoiled[] = {1, (fv_real)NAN, 1, (fv_real)NAN, 2, (fv_real)NAN, 2, (fv_real)NAN};
    backward_of(t, y, spoiled);
    EXPECT_GRAD(x, 1, 0, 1, 0, 2, 0, 2, 0);
    fv_tape_free(t);
}

Test(op_choose, masked_select)
{
    static const size_t at[] = {0, 2, 2, 5};
    static const fv_segments segments = {3, at};
    static const unsigned char keep[] = {0, 1, 1, 0, 1}, none[] = {0, 0, 0, 0, 0};
    fv_tape *t = begin();
    const fv_segments *kept;
    fv_var *x = INPUT(t, FV_SHAPE(5, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    fv_var *y = fv_masked_select(t, x, keep, &segments, &kept);
    EXPECT(y, 3, 4, 5, 6, 9, 10);
    cr_assert_eq(kept->count, 3);
    const size_t expected[] = {0, 1, 1, 3};
    cr_expect_arr_eq(kept->offsets, expected, sizeof expected);
    backward_of(t, y, NULL);
    EXPECT_GRAD(x, 0, 0, 1, 2, 3, 4, 0, 0, 5, 6);
    y = fv_masked_select(t, x, keep, NULL, &kept);
    cr_expect(kept->count == 1 && kept->offsets[0] == 0 && kept->offsets[1] == 3);
    y = fv_masked_select(t, x, none, &segments, &kept);
    cr_expect(fv_shape_equal(y->value.shape, FV_SHAPE(0, 2)));
    cr_expect(kept->count == 3 && kept->offsets[3] == 0);
    cr_expect_not_null(fv_masked_select(t, x, keep, &segments, NULL));
    fv_tape_free(t);
}

/* Every rank, sizes of 0 and 1 among the axes, and the result as it is by the definition. */
Test(op_choose, every_rank)
{
    static const size_t sizes[][FV_MAX_RANK] = {
        {3, 2, 4, 2, 3, 2}, {1, 1, 1, 1, 1, 1}, {2, 0, 2, 3, 1, 2}, {3, 1, 2, 1, 2, 1}};
    for (int rank = 0; rank <= FV_MAX_RANK; rank++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            fv_tape *t = begin();
            fv_shape shape = {.rank = rank};
            memcpy(shape.size, sizes[k], (size_t)rank * sizeof *shape.size);
            const size_t count = fv_shape_count(shape);
            fv_real *data = fv_tape_alloc(t, count + 1, sizeof *data);
            unsigned char *mask = fv_tape_alloc(t, count + 1, 1);
            for (size_t i = 0; i < count; i++) {
                data[i] = (fv_real)(double)(i + 1);
                mask[i] = i % 3 == 1;
            }
            fv_var *x = fv_input(t, shape, data);
            fv_var *f = fv_masked_fill(t, x, (fv_bools){shape, mask}, -1);
            cr_assert_not_null(f, "%s", fv_tape_error(t)->text);
            for (size_t i = 0; i < count; i++)
                cr_assert(fv_re(f->value.data[i]) == (mask[i] ? -1 : (double)(i + 1)));
            for (int axis = 0; axis < rank; axis++) {
                const size_t n = shape.size[axis];
                size_t inner = 1;
                for (int i = axis + 1; i < rank; i++)
                    inner *= shape.size[i];
                /* n - 1, n - 2, .. 0, and 0 again: one more than there are */
                fv_shape more = shape;
                more.size[axis] = n ? n + 1 : 0;
                const size_t m = fv_shape_count(more);
                int32_t *ids = fv_tape_alloc(t, n + 1, sizeof *ids),
                        *index = fv_tape_alloc(t, m + 1, sizeof *index);
                for (size_t i = 0; i < n; i++)
                    ids[i] = (int32_t)(n - 1 - i);
                for (size_t i = 0; i < m; i++)
                    index[i] = ids[i / inner % (n + 1)];
                fv_var *y = fv_index_select(t, x, axis - rank, ids, more.size[axis]);
                fv_var *z = fv_take_along(t, x, axis, more, index);
                cr_assert(fv_tape_ok(t), "%s", fv_tape_error(t)->text);
                cr_assert(fv_shape_equal(y->value.shape, more));
                for (size_t i = 0; i < m; i++) {
                    const size_t o = i / inner / (n + 1), at = i / inner % (n + 1);
                    const double from = (double)((o * n + (size_t)ids[at]) * inner + i % inner + 1);
                    cr_assert(fv_re(y->value.data[i]) == from);
                    cr_assert(fv_re(z->value.data[i]) == from);
                }
                backward_of(t, fv_add(t, y, z), NULL);
                for (size_t i = 0; i < count; i++) {
                    const size_t o = i / inner / n, at = i / inner % n, c = i % inner;
                    double g = (double)((o * (n + 1) + n - 1 - at) * inner + c + 1);
                    g += at == 0 ? (double)((o * (n + 1) + n) * inner + c + 1) : 0;
                    cr_assert(fv_re(x->grad[i]) == 2 * g);
                }
            }
            fv_tape_free(t);
        }
}

Test(op_choose, nothing_chosen)
{
    fv_tape *t = begin();
    const fv_real none[1] = {0};
    fv_var *x = INPUT(t, FV_SHAPE(2, 3), 1, 2, 3, 4, 5, 6),
           *empty = fv_input(t, FV_SHAPE(0, 3), none);
    const fv_var *y[] = {fv_gather(t, x, NULL, 0),
                         fv_gather(t, empty, NULL, 0),
                         fv_index_select(t, x, 0, NULL, 0),
                         fv_take_along(t, x, 0, FV_SHAPE(0, 3), NULL),
                         fv_masked_fill(t, empty, (fv_bools){FV_SHAPE(0, 3), NULL}, 1),
                         fv_masked_select(t, empty, NULL, NULL, NULL),
                         fv_scatter_add(t, empty, NULL, 0)};
    for (size_t i = 0; i < sizeof y / sizeof *y; i++) {
        cr_assert_not_null(y[i], "%zu: %s", i, fv_tape_error(t)->text);
        cr_expect(fv_shape_equal(y[i]->value.shape, FV_SHAPE(0, 3)), "%zu", i);
    }
    fv_var *z = fv_scatter_add(t, empty, NULL, 2);
    EXPECT(z, 0, 0, 0, 0, 0, 0);
    backward_of(t, z, NULL);
    cr_expect_null(x->grad);
    fv_tape_free(t);
}
