/* What the ops on segments refuse, word for word. */
#include <string.h>

#include "tests/refuse.h"

static const size_t two_at[] = {0, 1, 4}, falling_at[] = {0, 3, 2}, late_at[] = {1, 4},
                    empty_at[] = {0, 0, 4}, many_at[] = {0, (size_t)1 << 31};
static const fv_segments two = {2, two_at}, falling = {2, falling_at}, late = {1, late_at},
                         no_offsets = {2, NULL}, one_empty = {2, empty_at}, many = {1, many_at};
static const int32_t positions[] = {0, 0, 3, 0, -4, -2, 1, INT32_MIN, INT32_MAX};
static const fv_segments *joined;

/* ---- what all of them check in x [4, 6] and its segments ---------------------------------------------- */

typedef fv_var *(*op_on_segments)(fv_tape *t, fv_var *x, const fv_segments *segments);

static fv_var *neighbours(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_neighbours(t, x, s, 1);
}
static fv_var *add_positions(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_add_positions(t, x, IN(9, 6), s);
}
static fv_var *pick(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_segment_pick(t, x, s, positions);
}
static fv_var *concat(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_segment_concat(t, x, s, IN(4, 6), &two, &joined);
}
static fv_var *concat_after(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_segment_concat(t, IN(4, 6), &two, x, s, &joined);
}
static fv_var *unpack(fv_tape *t, fv_var *x, const fv_segments *s)
{
    return fv_unpack(t, x, s, 9);
}

Test(refuse_segments, what_all_check)
{
    static const struct {
        const char *name;
        op_on_segments call;
    } ops[] = {{"neighbours", neighbours},
               {"add_positions", add_positions},
               {"segment_mean", fv_segment_mean},
               {"segment_sum", fv_segment_sum},
               {"segment_max", fv_segment_max},
               {"segment_softmax", fv_segment_softmax},
               {"segment_first", fv_segment_first},
               {"segment_last", fv_segment_last},
               {"segment_pick", pick},
               {"segment_reverse", fv_segment_reverse},
               {"segment_concat", concat},
               {"segment_concat", concat_after},
               {"unpack", unpack}};
    static const struct {
        const char *message;
        fv_shape shape; /* rank -1: NULL */
        const fv_segments *segments;
    } wrong[] = {{"an input is NULL", {-1, {0}}, &two},
                 {"no segments", {2, {4, 6}}, NULL},
                 {"segments: no offsets", {2, {4, 6}}, &no_offsets},
                 {"segments: offset 2 falls from 3 to 2", {2, {4, 6}}, &falling},
                 {"segments: the first offset is 1, not 0", {2, {4, 6}}, &late},
                 {"segments: they hold 4 rows, the input has 5", {2, {5, 6}}, &two},
                 {"segments: they hold 4 rows, the input has 0", {2, {0, 6}}, &two},
                 {"input is [6], expected [rows, d]", {1, {6}}, &two},
                 {"input is [], expected [rows, d]", {0, {0}}, &two},
                 {"input is [4, 0], expected [rows, d]", {2, {4, 0}}, &two},
                 {"input is [4, 2, 3], expected [rows, d]", {3, {4, 2, 3}}, &two}};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            for (int earlier = 0; earlier < 2; earlier++) {
                char text[200];
                snprintf(text, sizeof text, "%s: %s", ops[i].name, wrong[k].message);
                fv_tape_begin(t, FV_TRAIN, 1, 1);
                fv_var *x =
                    wrong[k].shape.rank < 0 ? NULL : fv_input(t, wrong[k].shape, refused_numbers);
                if (earlier)
                    fv_refuse(t, "test", "an earlier error");
                joined = &two;
                cr_expect_null(ops[i].call(t, x, wrong[k].segments), "%s", text);
                cr_expect_str_eq(fv_tape_error(t)->text, earlier ? "test: an earlier error" : text);
                cr_expect(t->last == NULL || t->last->op == NULL, "%s: a value was recorded", text);
                cr_expect(joined == NULL || strcmp(ops[i].name, "segment_concat") != 0);
            }
    fv_tape_free(t);
}

/* ---- what each of them checks besides ------------------------------------------------------------------ */

REFUSED(moves)
{
    int at = 0;
    WRONG("neighbours: radius -1 for [4, 6]", fv_neighbours(t, IN(4, 6), &two, -1))
    WRONG("neighbours: radius -2147483648 for [4, 6]", fv_neighbours(t, IN(4, 6), &two, INT32_MIN))
    WRONG("neighbours: radius 2147483647 for [0, 9223372036854775808]",
          fv_neighbours(t, IN(0, SIZE_MAX / 2 + 1), &(fv_segments){1, (size_t[]){0, 0}}, INT32_MAX))
    WRONG("add_positions: an input is NULL", fv_add_positions(t, IN(4, 6), NULL, &two))
    WRONG("add_positions: table is [6], expected [rows, d]",
          fv_add_positions(t, IN(4, 6), IN(6), &two))
    WRONG("add_positions: [4, 6] with [9, 5]: widths differ",
          fv_add_positions(t, IN(4, 6), IN(9, 5), &two))
    WRONG("add_positions: segment 1 has 3 rows, more than the positions of [2, 6]",
          fv_add_positions(t, IN(4, 6), IN(2, 6), &two))
    WRONG("segment_concat: an input is NULL",
          fv_segment_concat(t, IN(4, 6), &two, NULL, &two, &joined))
    WRONG("segment_concat: [4, 6] with [4, 5]: widths differ",
          fv_segment_concat(t, IN(4, 6), &two, IN(4, 5), &two, &joined))
    WRONG("segment_concat: 2 segments with 1: the samples differ",
          fv_segment_concat(t, IN(4, 6), &two, IN(0, 6), &(fv_segments){1, (size_t[]){0, 0}}, NULL))
    NO_MORE
}

REFUSED(picks)
{
    int at = 0;
    WRONG("segment_pick: no positions", fv_segment_pick(t, IN(4, 6), &two, NULL))
    WRONG("segment_pick: position 3 of sample 1 is outside its 3 rows",
          fv_segment_pick(t, IN(4, 6), &two, positions + 1))
    WRONG("segment_pick: position -4 of sample 1 is outside its 3 rows",
          fv_segment_pick(t, IN(4, 6), &two, positions + 3))
    WRONG("segment_pick: position -2 of sample 0 is outside its 1 rows",
          fv_segment_pick(t, IN(4, 6), &two, positions + 5))
    WRONG("segment_pick: position 1 of sample 0 is outside its 1 rows",
          fv_segment_pick(t, IN(4, 6), &two, positions + 6))
    WRONG("segment_pick: position -2147483648 of sample 0 is outside its 1 rows",
          fv_segment_pick(t, IN(4, 6), &two, positions + 7))
    WRONG("segment_pick: position 1 of sample 0 is outside its 0 rows",
          fv_segment_pick(t, IN(4, 6), &one_empty, positions + 6))
    WRONG("segment_pick: position -2 of sample 0 is outside its 0 rows",
          fv_segment_pick(t, IN(4, 6), &one_empty, positions + 5))
    WRONG("segment_pick: position 2147483647 of sample 0 is outside its 4 rows",
          fv_segment_pick(t, IN(4, 6), &(fv_segments){1, (size_t[]){0, 4}}, positions + 8))
    NO_MORE
}

REFUSED(expand)
{
    int at = 0;
    WRONG("segment_expand: an input is NULL", fv_segment_expand(t, NULL, &two))
    WRONG("segment_expand: no segments", fv_segment_expand(t, IN(2, 6), NULL))
    WRONG("segment_expand: segments: no offsets", fv_segment_expand(t, IN(2, 6), &no_offsets))
    WRONG("segment_expand: segments: offset 2 falls from 3 to 2",
          fv_segment_expand(t, IN(2, 6), &falling))
    WRONG("segment_expand: segments: the first offset is 1, not 0",
          fv_segment_expand(t, IN(1, 6), &late))
    WRONG("segment_expand: [4, 6] for 2 segments: one row each is expected",
          fv_segment_expand(t, IN(4, 6), &two))
    WRONG("segment_expand: input is [2], expected [rows, d]", fv_segment_expand(t, IN(2), &two))
    WRONG("segment_expand: input is [2, 1, 1], expected [rows, d]",
          fv_segment_expand(t, IN(2, 1, 1), &two))
    WRONG("segment_expand: [2147483648, 17179869184] holds more numbers than there can be",
          fv_segment_expand(t, IN(1, (size_t)1 << 34), &many))
    NO_MORE
}

REFUSED(packs)
{
    int at = 0;
    WRONG("pack: an input is NULL", fv_pack(t, NULL, &two))
    WRONG("pack: no segments", fv_pack(t, IN(2, 3, 6), NULL))
    WRONG("pack: segments: no offsets", fv_pack(t, IN(2, 3, 6), &no_offsets))
    WRONG("pack: segments: offset 2 falls from 3 to 2", fv_pack(t, IN(2, 3, 6), &falling))
    WRONG("pack: segments: the first offset is 1, not 0", fv_pack(t, IN(1, 4, 6), &late))
    WRONG("pack: input is [4, 6], expected [samples, time, d]", fv_pack(t, IN(4, 6), &two))
    WRONG("pack: input is [], expected [samples, time, d]", fv_pack(t, SCALAR, &two))
    WRONG("pack: input is [2, 3, 0], expected [samples, time, d]", fv_pack(t, IN(2, 3, 0), &two))
    WRONG("pack: [3, 3, 6] with 2 segments: the samples differ", fv_pack(t, IN(3, 3, 6), &two))
    WRONG("pack: segment 1 has 3 rows, more than the time of [2, 2, 6]",
          fv_pack(t, IN(2, 2, 6), &two))
    WRONG("unpack: segment 1 has 3 rows, more than time 2", fv_unpack(t, IN(4, 6), &two, 2))
    WRONG("unpack: segment 0 has 1 rows, more than time 0", fv_unpack(t, IN(4, 6), &two, 0))
    WRONG("unpack: [2, 18446744073709551615, 6] holds more numbers than there can be",
          fv_unpack(t, IN(4, 6), &two, SIZE_MAX))
    NO_MORE
}

Test(refuse_segments, each)
{
    refused *const calls[] = {moves, picks, expand, packs};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        refuse_each(calls[i]);
}

Test(refuse_segments, positions)
{
    const struct {
        const char *message;
        const fv_segments *segments;
    } wrong[] = {
        {"segment_positions: no segments", NULL},
        {"segment_positions: segments: no offsets", &no_offsets},
        {"segment_positions: segments: offset 2 falls from 3 to 2", &falling},
        {"segment_positions: segments: the first offset is 1, not 0", &late},
        {"segment_positions: segment 0 has 2147483648 rows, more than can be numbered", &many}};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_tape_begin(t, FV_EVAL, 1, 1);
        cr_expect_null(fv_segment_positions(t, wrong[i].segments));
        cr_expect_str_eq(fv_tape_error(t)->text, wrong[i].message);
        cr_expect_null(fv_segment_positions(t, &two), "after an error");
    }
    fv_tape_free(t);
}
