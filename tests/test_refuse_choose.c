/* What the ops that choose refuse, word for word. */
#include "tests/refuse.h"

static const int32_t ids[] = {0, 9, 10, -1, INT32_MIN, INT32_MAX};
static const unsigned char yes[8];

REFUSED(gathered)
{
    static const size_t ends[] = {0, 1, 3}, falling[] = {0, 3, 2}, late[] = {1, 4};
    static const fv_segments bags = {2, ends}, falls = {2, falling}, starts_late = {1, late},
                             no_offsets = {2, NULL};
    int at = 0;
    WRONG("gather: an input is NULL", fv_gather(t, NULL, ids, 1))
    WRONG("gather: no ids", fv_gather(t, IN(10, 6), NULL, 1))
    WRONG("gather: table is [6], expected [rows, d]", fv_gather(t, IN(6), ids, 1))
    WRONG("gather: table is [], expected [rows, d]", fv_gather(t, SCALAR, ids, 1))
    WRONG("gather: table is [2, 3, 4], expected [rows, d]", fv_gather(t, IN(2, 3, 4), ids, 1))
    WRONG("gather: table is [2, 0], expected [rows, d]", fv_gather(t, IN(2, 0), ids, 1))
    WRONG("gather: id 10 at 2 is outside table [10, 6]", fv_gather(t, IN(10, 6), ids, 3))
    WRONG("gather: id -1 at 0 is outside table [10, 6]", fv_gather(t, IN(10, 6), ids + 3, 1))
    WRONG("gather: id -2147483648 at 0 is outside table [10, 6]",
          fv_gather(t, IN(10, 6), ids + 4, 1))
    WRONG("gather: id 0 at 0 is outside table [0, 6]", fv_gather(t, IN(0, 6), ids, 1))
    WRONG("gather_bags: an input is NULL", fv_gather_bags(t, NULL, ids, &bags))
    WRONG("gather_bags: no ids", fv_gather_bags(t, IN(10, 6), NULL, &bags))
    WRONG("gather_bags: no bags", fv_gather_bags(t, IN(10, 6), ids, NULL))
    WRONG("gather_bags: no bags", fv_gather_bags(t, IN(10, 6), ids, &no_offsets))
    WRONG("gather_bags: table is [6], expected [rows, d]", fv_gather_bags(t, IN(6), ids, &bags))
    WRONG("gather_bags: segments: offset 2 falls from 3 to 2",
          fv_gather_bags(t, IN(10, 6), ids, &falls))
    WRONG("gather_bags: segments: the first offset is 1, not 0",
          fv_gather_bags(t, IN(10, 6), ids, &starts_late))
    WRONG("gather_bags: id 10 at 2 is outside table [10, 6]",
          fv_gather_bags(t, IN(10, 6), ids, &bags))
    NO_MORE
}

REFUSED(scatter_add)
{
    int at = 0;
    WRONG("scatter_add: an input is NULL", fv_scatter_add(t, NULL, ids, 3))
    WRONG("scatter_add: no ids", fv_scatter_add(t, IN(2, 3), NULL, 3))
    WRONG("scatter_add: input is [6], expected [rows, d]", fv_scatter_add(t, IN(6), ids, 3))
    WRONG("scatter_add: input is [], expected [rows, d]", fv_scatter_add(t, SCALAR, ids, 3))
    WRONG("scatter_add: input is [1, 2, 3], expected [rows, d]",
          fv_scatter_add(t, IN(1, 2, 3), ids, 3))
    WRONG("scatter_add: input is [1, 0], expected [rows, d]", fv_scatter_add(t, IN(1, 0), ids, 3))
    WRONG("scatter_add: id 10 at 2 is outside the 10 rows of the result",
          fv_scatter_add(t, IN(3, 2), ids, 10))
    WRONG("scatter_add: id -1 at 0 is outside the 3 rows of the result",
          fv_scatter_add(t, IN(1, 2), ids + 3, 3))
    WRONG("scatter_add: id 0 at 0 is outside the 0 rows of the result",
          fv_scatter_add(t, IN(1, 2), ids, 0))
    WRONG("scatter_add: [18446744073709551615, 2] holds more numbers than there can be",
          fv_scatter_add(t, IN(1, 2), ids, SIZE_MAX))
    NO_MORE
}

REFUSED(index_select)
{
    int at = 0;
    WRONG("index_select: an input is NULL", fv_index_select(t, NULL, 0, ids, 1))
    WRONG("index_select: no ids", fv_index_select(t, IN(2, 3), 0, NULL, 1))
    WRONG("index_select: [] has no axis 0", fv_index_select(t, SCALAR, 0, ids, 1))
    WRONG("index_select: [] has no axis -1", fv_index_select(t, SCALAR, -1, ids, 1))
    WRONG("index_select: [2, 3] has no axis 2", fv_index_select(t, IN(2, 3), 2, ids, 1))
    WRONG("index_select: [2, 3] has no axis -3", fv_index_select(t, IN(2, 3), -3, ids, 1))
    WRONG("index_select: [2, 3] has no axis -2147483648",
          fv_index_select(t, IN(2, 3), INT32_MIN, ids, 1))
    WRONG("index_select: id 9 at 1 is outside axis 0 of [9, 3]",
          fv_index_select(t, IN(9, 3), 0, ids, 2))
    WRONG("index_select: id -1 at 0 is outside axis 1 of [9, 3]",
          fv_index_select(t, IN(9, 3), -1, ids + 3, 1))
    WRONG("index_select: id 0 at 0 is outside axis 1 of [9, 0]",
          fv_index_select(t, IN(9, 0), 1, ids, 1))
    NO_MORE
}

REFUSED(take_along)
{
    const fv_shape flat = FV_SHAPE(2), wide = FV_SHAPE(2, 4), tall = FV_SHAPE(3, 3);
    int at = 0;
    WRONG("take_along: an input is NULL", fv_take_along(t, NULL, 0, flat, ids))
    WRONG("take_along: no index", fv_take_along(t, IN(2, 3), 1, wide, NULL))
    WRONG("take_along: [] has no axis 0", fv_take_along(t, SCALAR, 0, FV_SCALAR, ids))
    WRONG("take_along: [2, 3] has no axis 2", fv_take_along(t, IN(2, 3), 2, wide, ids))
    WRONG("take_along: [2, 3] has no axis -3", fv_take_along(t, IN(2, 3), -3, wide, ids))
    WRONG("take_along: index [2] for axis 0 of [2, 3]: the other sizes must agree",
          fv_take_along(t, IN(2, 3), 0, flat, ids))
    WRONG("take_along: index [2, 4] for axis 0 of [2, 3]: the other sizes must agree",
          fv_take_along(t, IN(2, 3), 0, wide, ids))
    WRONG("take_along: index [3, 3] for axis 1 of [2, 3]: the other sizes must agree",
          fv_take_along(t, IN(2, 3), -1, tall, ids))
    WRONG("take_along: index 9 at 1 is outside axis 0 of [9]",
          fv_take_along(t, IN(9), 0, flat, ids))
    WRONG("take_along: index -1 at 0 is outside axis 0 of [9]",
          fv_take_along(t, IN(9), 0, FV_SHAPE(1), ids + 3))
    WRONG("take_along: index 0 at 0 is outside axis 0 of [0]",
          fv_take_along(t, IN(0), 0, FV_SHAPE(1), ids))
    WRONG("take_along: [2, 9223372036854775808] holds more numbers than there can be",
          fv_take_along(t, IN(2, 3), 1, FV_SHAPE(2, SIZE_MAX / 2 + 1), ids))
    NO_MORE
}

REFUSED(masked_fill)
{
    const fv_bools four = {FV_SHAPE(4), yes}, tall = {FV_SHAPE(2, 1), yes},
                   deep = {FV_SHAPE(1, 2, 3), yes}, nothing = {FV_SHAPE(3), NULL},
                   none = {FV_SHAPE(0), yes}, high = {{.rank = FV_MAX_RANK + 1}, yes},
                   low = {{.rank = -1}, yes};
    int at = 0;
    WRONG("masked_fill: an input is NULL", fv_masked_fill(t, NULL, four, 0))
    WRONG("masked_fill: no mask", fv_masked_fill(t, IN(2, 3), nothing, 0))
    WRONG("masked_fill: mask [4] does not broadcast to [2, 3]",
          fv_masked_fill(t, IN(2, 3), four, 0))
    WRONG("masked_fill: mask [2, 1] does not broadcast to [3]", fv_masked_fill(t, IN(3), tall, 0))
    WRONG("masked_fill: mask [2, 1] does not broadcast to [1, 3]",
          fv_masked_fill(t, IN(1, 3), tall, 0))
    WRONG("masked_fill: mask [1, 2, 3] does not broadcast to [2, 3]",
          fv_masked_fill(t, IN(2, 3), deep, 0))
    WRONG("masked_fill: mask [4] does not broadcast to []", fv_masked_fill(t, SCALAR, four, 0))
    WRONG("masked_fill: mask [0] does not broadcast to [2, 3]",
          fv_masked_fill(t, IN(2, 3), none, 0))
    WRONG("masked_fill: mask [4] does not broadcast to [2, 0]",
          fv_masked_fill(t, IN(2, 0), four, 0))
    WRONG("masked_fill: mask of rank 7, expected 0 to 6", fv_masked_fill(t, IN(2, 3), high, 0))
    WRONG("masked_fill: mask of rank -1, expected 0 to 6", fv_masked_fill(t, IN(2, 3), low, 0))
    NO_MORE
}

REFUSED(masked_select)
{
    static const size_t ends[] = {0, 1, 3}, falling[] = {0, 3, 2}, late[] = {1, 3};
    static const fv_segments short_ones = {2, ends}, falls = {2, falling}, starts_late = {1, late},
                             no_offsets = {2, NULL};
    const fv_segments *kept = &falls;
    int at = 0;
    WRONG("masked_select: an input is NULL", fv_masked_select(t, NULL, yes, NULL, &kept))
    WRONG("masked_select: keep is NULL", fv_masked_select(t, IN(2, 3), NULL, NULL, NULL))
    WRONG("masked_select: input is [6], expected [rows, d]",
          fv_masked_select(t, IN(6), yes, NULL, &kept))
    WRONG("masked_select: input is [], expected [rows, d]",
          fv_masked_select(t, SCALAR, yes, NULL, NULL))
    WRONG("masked_select: input is [2, 0], expected [rows, d]",
          fv_masked_select(t, IN(2, 0), yes, NULL, NULL))
    WRONG("masked_select: segments: they hold 3 rows, the input has 2",
          fv_masked_select(t, IN(2, 3), yes, &short_ones, NULL))
    WRONG("masked_select: segments: offset 2 falls from 3 to 2",
          fv_masked_select(t, IN(2, 3), yes, &falls, NULL))
    WRONG("masked_select: segments: the first offset is 1, not 0",
          fv_masked_select(t, IN(2, 3), yes, &starts_late, NULL))
    WRONG("masked_select: segments: no offsets",
          fv_masked_select(t, IN(2, 3), yes, &no_offsets, NULL))
    NO_MORE
}

Test(refuse_choose, each)
{
    refused *const calls[] = {gathered,   scatter_add, index_select,
                              take_along, masked_fill, masked_select};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        refuse_each(calls[i]);
}

/* What an op gives besides its value is NULL after an error. */
Test(refuse_choose, kept_is_null)
{
    static const size_t ends[] = {0, 2};
    static const fv_segments one = {1, ends};
    const fv_segments *kept = &one;
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    cr_expect_null(fv_masked_select(t, IN(2, 3), NULL, &one, &kept));
    cr_expect_null(kept);
    fv_tape_free(t);
}
