/* What views, moves, joins and triangles refuse, word for word. */
#include "tests/refuse.h"

/* ---- one axis ---------------------------------------------------------------------------------- */

static fv_var *transpose_a(fv_tape *t, fv_var *x, int axis)
{
    return fv_transpose(t, x, axis, 0);
}

static fv_var *transpose_b(fv_tape *t, fv_var *x, int axis)
{
    return fv_transpose(t, x, 0, axis);
}

static fv_var *slice(fv_tape *t, fv_var *x, int axis)
{
    return fv_slice(t, x, axis, (fv_range){0, 1, 1});
}

static fv_var *pad(fv_tape *t, fv_var *x, int axis)
{
    return fv_pad(t, x, axis, 1, 1, NULL);
}

static fv_var *roll(fv_tape *t, fv_var *x, int axis)
{
    return fv_roll(t, x, axis, 1);
}

static fv_var *flatten_first(fv_tape *t, fv_var *x, int axis)
{
    return fv_flatten(t, x, axis, 0);
}

static fv_var *flatten_last(fv_tape *t, fv_var *x, int axis)
{
    return fv_flatten(t, x, 0, axis);
}

static fv_var *concat(fv_tape *t, fv_var *x, int axis)
{
    return fv_concat(t, 1, &x, axis);
}

static fv_var *split(fv_tape *t, fv_var *x, int axis)
{
    fv_var *part;
    cr_expect_not(fv_split(t, x, axis, 1, NULL, &part));
    return NULL;
}

static const struct {
    const char *name;
    fv_var *(*call)(fv_tape *t, fv_var *x, int axis);
} along[] = {{"squeeze", fv_squeeze},
             {"transpose", transpose_a},
             {"transpose", transpose_b},
             {"slice", slice},
             {"pad", pad},
             {"flip", fv_flip},
             {"roll", roll},
             {"flatten", flatten_first},
             {"flatten", flatten_last},
             {"concat", concat},
             {"split", split}};

REFUSED(axis)
{
    static const fv_shape shape[] = {{2, {4, 6}}, {1, {6}}, {3, {0, 2, 3}}};
    static const int axes[] = {3, -4, INT32_MAX, INT32_MIN};
    static char message[100];
    char form[160];
    const int op = which / 13, k = which % 13 / 4;
    if (op == (int)(sizeof along / sizeof *along)) {
        NO_MORE
    }
    *text = message;
    if (which % 13 == 12) {
        snprintf(message, sizeof message, "%s: an input is NULL", along[op].name);
        return along[op].call(t, NULL, 0);
    }
    snprintf(message, sizeof message, "%s: %s has no axis %d", along[op].name,
             fv_shape_text(shape[k], form), axes[which % 4]);
    return along[op].call(t, fv_input(t, shape[k], refused_numbers), axes[which % 4]);
}

/* ---- views ------------------------------------------------------------------------------------- */

static const size_t huge = SIZE_MAX / 4 + 1;

REFUSED(views)
{
    int at = 0;
    WRONG("reshape: an input is NULL", fv_reshape(t, NULL, FV_SCALAR))
    WRONG("reshape: [4, 6] to [5, 5]: the counts differ", fv_reshape(t, IN(4, 6), FV_SHAPE(5, 5)))
    WRONG("reshape: [4, 6] to []: the counts differ", fv_reshape(t, IN(4, 6), FV_SCALAR))
    WRONG("reshape: [0, 6] to [1]: the counts differ", fv_reshape(t, IN(0, 6), FV_SHAPE(1)))
    WRONG("reshape: [] to [0]: the counts differ", fv_reshape(t, SCALAR, FV_SHAPE(0)))
    WRONG("reshape: rank 7, expected 0 to 6", fv_reshape(t, IN(0, 6), (fv_shape){.rank = 7}))
    WRONG("reshape: rank -1, expected 0 to 6", fv_reshape(t, IN(0, 6), (fv_shape){.rank = -1}))
    WRONG("reshape: [4611686018427387904, 4] holds more numbers than there can be",
          fv_reshape(t, IN(0, 6), FV_SHAPE(huge, 4)))
    WRONG("squeeze: axis 0 of [4, 1] is not of size 1", fv_squeeze(t, IN(4, 1), 0))
    WRONG("squeeze: axis 1 of [1, 0] is not of size 1", fv_squeeze(t, IN(1, 0), -1))
    WRONG("squeeze: [] has no axis 0", fv_squeeze(t, SCALAR, 0))
    WRONG("unsqueeze: an input is NULL", fv_unsqueeze(t, NULL, 0))
    WRONG("unsqueeze: [4, 6] with one more axis has no axis 3", fv_unsqueeze(t, IN(4, 6), 3))
    WRONG("unsqueeze: [4, 6] with one more axis has no axis -4", fv_unsqueeze(t, IN(4, 6), -4))
    WRONG("unsqueeze: [] with one more axis has no axis 1", fv_unsqueeze(t, SCALAR, 1))
    WRONG("unsqueeze: [4] with one more axis has no axis -2147483648",
          fv_unsqueeze(t, IN(4), INT32_MIN))
    WRONG("unsqueeze: [1, 2, 3, 4, 5, 6] has the most axes there can be",
          fv_unsqueeze(t, IN(1, 2, 3, 4, 5, 6), 0))
    WRONG("flatten: axes 2 to 1 of [1, 2, 3]: the first is behind the last",
          fv_flatten(t, IN(1, 2, 3), -1, 1))
    WRONG("flatten: [] has no axis 0", fv_flatten(t, SCALAR, 0, 1))
    WRONG("flatten: [0, 4611686018427387904, 4]: an axis longer than there can be",
          fv_flatten(t, IN(0, huge, 4), 1, 2))
    NO_MORE
}

/* ---- moves ------------------------------------------------------------------------------------- */

REFUSED(moves)
{
    int at = 0;
    static const int twice[] = {0, 0}, far[] = {0, 2}, below[] = {-3, 0}, same[] = {1, -1};
    static const size_t two[] = {2, 2}, many[] = {1, SIZE_MAX}, large[] = {SIZE_MAX / 2, 3};
    WRONG("permute: an input is NULL", fv_permute(t, NULL, twice))
    WRONG("permute: no axes", fv_permute(t, IN(4, 6), NULL))
    WRONG("permute: axis 0 of [4, 6] twice", fv_permute(t, IN(4, 6), twice))
    WRONG("permute: axis 1 of [4, 6] twice", fv_permute(t, IN(4, 6), same))
    WRONG("permute: [4, 6] has no axis 2", fv_permute(t, IN(4, 6), far))
    WRONG("permute: [4, 6] has no axis -3", fv_permute(t, IN(4, 6), below))
    WRONG("permute: [0] has no axis -3", fv_permute(t, IN(0), below))
    WRONG("transpose: [] has no axis 0", fv_transpose(t, SCALAR, 0, 0))
    WRONG("expand: an input is NULL", fv_expand(t, NULL, FV_SCALAR))
    WRONG("expand: [4, 6] to [4, 5]: does not broadcast", fv_expand(t, IN(4, 6), FV_SHAPE(4, 5)))
    WRONG("expand: [4, 6] to [6]: does not broadcast", fv_expand(t, IN(4, 6), FV_SHAPE(6)))
    WRONG("expand: [4, 6] to [4, 1]: does not broadcast", fv_expand(t, IN(4, 6), FV_SHAPE(4, 1)))
    WRONG("expand: [4, 6] to []: does not broadcast", fv_expand(t, IN(4, 6), FV_SCALAR))
    WRONG("expand: [0] to [3]: does not broadcast", fv_expand(t, IN(0), FV_SHAPE(3)))
    WRONG("expand: rank 7, expected 0 to 6", fv_expand(t, SCALAR, (fv_shape){.rank = 7}))
    WRONG("expand: rank -1, expected 0 to 6", fv_expand(t, SCALAR, (fv_shape){.rank = -1}))
    WRONG("expand: [4611686018427387904, 4] holds more numbers than there can be",
          fv_expand(t, IN(4), FV_SHAPE(huge, 4)))
    WRONG("tile: an input is NULL", fv_tile(t, NULL, two))
    WRONG("tile: no repeats", fv_tile(t, IN(4, 6), NULL))
    WRONG("tile: axis 1 of [4, 6] 18446744073709551615 times: longer than there can be",
          fv_tile(t, IN(4, 6), many))
    WRONG("tile: [9223372036854775807, 18] holds more numbers than there can be",
          fv_tile(t, IN(1, 6), large))
    WRONG("repeat_rows: an input is NULL", fv_repeat_rows(t, NULL, 2))
    WRONG("repeat_rows: [] has no rows", fv_repeat_rows(t, SCALAR, 2))
    WRONG("repeat_rows: [4, 6] 18446744073709551615 times: more rows than there can be",
          fv_repeat_rows(t, IN(4, 6), SIZE_MAX))
    NO_MORE
}

REFUSED(parts)
{
    int at = 0;
    static const size_t short_parts[] = {1, 2}, long_parts[] = {4, 3}, wrapping[] = {2, SIZE_MAX};
    static const fv_pad_opts edge = {.mode = FV_PAD_EDGE}, reflect = {.mode = FV_PAD_REFLECT},
                             wrap = {.mode = FV_PAD_WRAP}, strange = {.mode = (fv_pad_mode)9};
    fv_var *part[4] = {NULL};
#define NO(call) (call ? t->last : NULL)
    WRONG("split: 0 parts, expected at least 1", NO(fv_split(t, IN(6), 0, 0, NULL, part)))
    WRONG("split: -1 parts, expected at least 1", NO(fv_split(t, IN(6), 0, -1, NULL, part)))
    WRONG("split: no place for the parts", NO(fv_split(t, IN(6), 0, 2, NULL, NULL)))
    WRONG("split: axis 0 of [6] in 4 equal parts", NO(fv_split(t, IN(6), 0, 4, NULL, part)))
    WRONG("split: axis 1 of [2, 6]: the parts make 3",
          NO(fv_split(t, IN(2, 6), -1, 2, short_parts, part)))
    WRONG("split: axis 0 of [6]: the parts are longer",
          NO(fv_split(t, IN(6), 0, 2, long_parts, part)))
    WRONG("split: axis 0 of [6]: the parts are longer",
          NO(fv_split(t, IN(6), 0, 2, wrapping, part)))
    WRONG("split: [] has no axis 0", NO(fv_split(t, SCALAR, 0, 1, NULL, part)))
#undef NO
    WRONG("pad: axis 0 of [0] has no edge", fv_pad(t, IN(0), 0, 1, 0, &edge))
    WRONG("pad: axis 1 of [2, 0] has no edge", fv_pad(t, IN(2, 0), 1, 0, 3, &edge))
    WRONG("pad: axis 0 of [4] reflects at most its size - 1, not 4",
          fv_pad(t, IN(4), 0, 4, 0, &reflect))
    WRONG("pad: axis 0 of [1] reflects at most its size - 1, not 1",
          fv_pad(t, IN(1), 0, 0, 1, &reflect))
    WRONG("pad: axis 0 of [0] reflects at most its size - 1, not 1",
          fv_pad(t, IN(0), 0, 1, 1, &reflect))
    WRONG("pad: axis 0 of [4] wraps at most its size, not 5", fv_pad(t, IN(4), 0, 5, 1, &wrap))
    WRONG("pad: axis 0 of [4] and 18446744073709551615 and 0: longer than there can be",
          fv_pad(t, IN(4), 0, SIZE_MAX, 0, NULL))
    WRONG("pad: axis 0 of [4] and 0 and 18446744073709551612: longer than there can be",
          fv_pad(t, IN(4), 0, 0, SIZE_MAX - 3, NULL))
    WRONG("pad: [4, 9223372036854775810] holds more numbers than there can be",
          fv_pad(t, IN(4, 2), 1, 0, SIZE_MAX / 2 + 1, NULL))
    WRONG("pad: no mode 9", fv_pad(t, IN(4), 0, 1, 1, &strange))
    WRONG("pad: [] has no axis 0", fv_pad(t, SCALAR, 0, 1, 1, NULL))
    WRONG("slice: [] has no axis -1", fv_slice(t, SCALAR, -1, (fv_range){0, 1, 1}))
    WRONG("flip: [] has no axis 0", fv_flip(t, SCALAR, 0))
    WRONG("roll: [] has no axis 0", fv_roll(t, SCALAR, 0, 1))
    NO_MORE
}

/* ---- joins ------------------------------------------------------------------------------------- */

#define TWO(a, b)                                                                                  \
    2, (fv_var *[])                                                                                \
    {                                                                                              \
        a, b                                                                                       \
    }

REFUSED(joins)
{
    int at = 0;
    WRONG("concat: 0 inputs, expected at least 1", fv_concat(t, 0, (fv_var *[]){SCALAR}, 0))
    WRONG("concat: -2 inputs, expected at least 1", fv_concat(t, -2, NULL, 0))
    WRONG("concat: an input is NULL", fv_concat(t, 2, NULL, 0))
    WRONG("concat: an input is NULL", fv_concat(t, TWO(IN(4), NULL), 0))
    WRONG("concat: an input is NULL", fv_concat(t, TWO(NULL, IN(4)), 0))
    WRONG("concat: [] has no axis 0", fv_concat(t, TWO(SCALAR, SCALAR), 0))
    WRONG("concat: [4, 6] beside [5, 6]: other sizes differ",
          fv_concat(t, TWO(IN(4, 6), IN(5, 6)), -1))
    WRONG("concat: [4, 6] beside [4]: other sizes differ", fv_concat(t, TWO(IN(4, 6), IN(4)), 1))
    WRONG("concat: [4] beside [4, 6]: other sizes differ", fv_concat(t, TWO(IN(4), IN(4, 6)), 0))
    WRONG("concat: [0] beside [1, 0]: other sizes differ", fv_concat(t, TWO(IN(0), IN(1, 0)), 0))
    WRONG("concat: axis 1 would be longer than there can be",
          fv_concat(t, TWO(IN(0, SIZE_MAX), IN(0, 1)), 1))
    WRONG("stack: 0 inputs, expected at least 1", fv_stack(t, 0, NULL, 0))
    WRONG("stack: an input is NULL", fv_stack(t, 1, NULL, 0))
    WRONG("stack: an input is NULL", fv_stack(t, TWO(IN(4), NULL), 0))
    WRONG("stack: [4] beside [5]: shapes differ", fv_stack(t, TWO(IN(4), IN(5)), 0))
    WRONG("stack: [4] beside [4, 1]: shapes differ", fv_stack(t, TWO(IN(4), IN(4, 1)), 0))
    WRONG("stack: [4] with one more axis has no axis 2", fv_stack(t, TWO(IN(4), IN(4)), 2))
    WRONG("stack: [4] with one more axis has no axis -3", fv_stack(t, TWO(IN(4), IN(4)), -3))
    WRONG("stack: [] with one more axis has no axis 1", fv_stack(t, TWO(SCALAR, SCALAR), 1))
    WRONG("stack: [1, 2, 3, 4, 5, 6] has the most axes there can be",
          fv_stack(t, 1, (fv_var *[]){IN(1, 2, 3, 4, 5, 6)}, 0))
    NO_MORE
}

/* ---- triangles --------------------------------------------------------------------------------- */

REFUSED(triangles)
{
    int at = 0;
    static const int32_t ids[] = {0, 3, -1};
    WRONG("tril: an input is NULL", fv_tril(t, NULL, 0))
    WRONG("triu: an input is NULL", fv_triu(t, NULL, 0))
    WRONG("diagonal: an input is NULL", fv_diagonal(t, NULL, 0))
    WRONG("tril: [] has no two last axes", fv_tril(t, SCALAR, 0))
    WRONG("tril: [4] has no two last axes", fv_tril(t, IN(4), 0))
    WRONG("triu: [0] has no two last axes", fv_triu(t, IN(0), 0))
    WRONG("triu: [] has no two last axes", fv_triu(t, SCALAR, -1))
    WRONG("diagonal: [] has no two last axes", fv_diagonal(t, SCALAR, 0))
    WRONG("diagonal: [7] has no two last axes", fv_diagonal(t, IN(7), 0))
    WRONG("one_hot: no ids", fv_one_hot(t, NULL, 1, 3))
    WRONG("one_hot: id 3 at 1 is outside 3 classes", fv_one_hot(t, ids, 3, 3))
    WRONG("one_hot: id 0 at 0 is outside 0 classes", fv_one_hot(t, ids, 1, 0))
    WRONG("one_hot: 18446744073709551615 ids of 2 classes: more numbers than there can be",
          fv_one_hot(t, ids, SIZE_MAX, 2))
    WRONG("one_hot: 4 ids of 4611686018427387904 classes: more numbers than there can be",
          fv_one_hot(t, ids, 4, huge))
    NO_MORE
}

Test(refuse_shape, axis)
{
    refuse_each(axis);
}

Test(refuse_shape, views)
{
    refuse_each(views);
}

Test(refuse_shape, moves)
{
    refuse_each(moves);
}

Test(refuse_shape, parts)
{
    refuse_each(parts);
}

Test(refuse_shape, joins)
{
    refuse_each(joins);
}

Test(refuse_shape, triangles)
{
    refuse_each(triangles);
}
