/* Batches: every sample once, within the limits, alike in length, a function of (seed, epoch) alone. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "train/data/data.h"
#include "train/internal.h"

enum { SAMPLES = 5000 };

/* Lengths from 1 to 60, and now and then a long one. */
static size_t *lengths(size_t samples, uint64_t seed)
{
    size_t *rows = calloc(samples + 1, sizeof *rows);
    fv_rng rng = fv_rng_make(seed, 0, "lengths");
    for (size_t s = 0; s < samples; s++)
        rows[s] = 1 + fv_rng_below(rng, s, s % 97 == 0 ? 400 : 60);
    return rows;
}

static void expect_every_sample_once(const fv_batches *b, size_t samples)
{
    unsigned char *seen = calloc(samples + 1, 1);
    cr_assert_eq(b->offsets[0], 0);
    cr_assert_eq(b->offsets[b->count], samples);
    for (size_t i = 0; i < b->count; i++)
        cr_expect_lt(b->offsets[i], b->offsets[i + 1], "batch %zu is empty", i);
    for (size_t i = 0; i < samples; i++) {
        cr_assert_lt(b->order[i], samples);
        cr_expect_eq(seen[b->order[i]]++, 0, "sample %zu comes twice", b->order[i]);
    }
    free(seen);
}

static size_t rows_of(const fv_batches *b, const size_t *rows, size_t batch)
{
    size_t sum = 0;
    for (size_t i = b->offsets[batch]; i < b->offsets[batch + 1]; i++)
        sum += rows[b->order[i]];
    return sum;
}

static void expect_limits(const fv_batches *b, const size_t *rows, size_t most_rows,
                          size_t most_samples)
{
    for (size_t i = 0; i < b->count; i++) {
        size_t samples = b->offsets[i + 1] - b->offsets[i];
        if (most_samples > 0)
            cr_expect_leq(samples, most_samples);
        if (most_rows > 0 && samples > 1)
            cr_expect_leq(rows_of(b, rows, i), most_rows);
    }
}

static bool same(const fv_batches *a, const fv_batches *b, size_t samples)
{
    return a->count == b->count &&
           memcmp(a->offsets, b->offsets, (a->count + 1) * sizeof *a->offsets) == 0 &&
           memcmp(a->order, b->order, samples * sizeof *a->order) == 0;
}

Test(batches, every_sample_once_within_limits)
{
    static const fv_batch_opts opts[] = {
        {0, 0, false},
        {500, 0, false},
        {0, 50, false},
        {500, 20, false},
        {1, 0, false},
        {0, 1, false},
        {SIZE_MAX, SIZE_MAX, false},
        {500, 0, true},
        {0, 50, true},
        {300, 10, true},
        {0, 0, true},
    };
    const size_t counts[] = {1, 2, 31, 32, 33, 700, SAMPLES};
    size_t *rows = lengths(SAMPLES, 1);
    for (size_t o = 0; o < sizeof opts / sizeof *opts; o++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            fv_batches b;
            fv_error error = {0};
            cr_assert(fv_batches_make(&b, counts[c], rows, &opts[o], 3, 4, &error));
            cr_expect_eq(error.status, FV_OK);
            expect_every_sample_once(&b, counts[c]);
            bool usual = opts[o].batch_rows == 0 && opts[o].batch_samples == 0;
            expect_limits(&b, rows, opts[o].batch_rows, usual ? 32 : opts[o].batch_samples);
            fv_batches_free(&b);
        }
    free(rows);
}

Test(batches, a_function_of_seed_and_epoch)
{
    size_t *rows = lengths(SAMPLES, 1);
    const fv_batch_opts opts = {.batch_rows = 500};
    fv_batches first, again, next, other;
    cr_assert(fv_batches_make(&first, SAMPLES, rows, &opts, 7, 2, NULL));
    cr_assert(fv_batches_make(&next, SAMPLES, rows, &opts, 7, 3, NULL));
    cr_assert(fv_batches_make(&other, SAMPLES, rows, &opts, 8, 2, NULL));
    cr_assert(fv_batches_make(&again, SAMPLES, rows, &opts, 7, 2, NULL));
    cr_expect(same(&first, &again, SAMPLES));
    cr_expect_not(same(&first, &next, SAMPLES));
    cr_expect_not(same(&first, &other, SAMPLES));
    fv_batches_free(&first);
    fv_batches_free(&again);
    fv_batches_free(&next);
    fv_batches_free(&other);
    free(rows);
}

/* Batches are full, but for the last of all: a sample more would have been too much. */
Test(batches, are_full)
{
    size_t *rows = lengths(SAMPLES, 1);
    fv_batches b;
    cr_assert(fv_batches_make(&b, SAMPLES, rows, &(fv_batch_opts){0}, 7, 2, NULL));
    cr_expect_eq(b.count, (SAMPLES + 31) / 32);
    fv_batches_free(&b);
    cr_assert(fv_batches_make(&b, SAMPLES, rows,
                              &(fv_batch_opts){.batch_rows = 500, .keep_order = true}, 7, 2, NULL));
    for (size_t i = 0; i + 1 < b.count; i++)
        cr_expect_gt(rows_of(&b, rows, i) + rows[b.order[b.offsets[i + 1]]], 500);
    fv_batches_free(&b);
    free(rows);
}

Test(batches, keep_order)
{
    const size_t rows[] = {3, 4, 9, 1, 20, 1, 2, 0, 7};
    const size_t expected[] = {0, 2, 4, 5, 8, 9}; /* 3 4 | 9 1 | 20 | 1 2 0 | 7 */
    fv_batches b;
    cr_assert(fv_batches_make(&b, 9, rows, &(fv_batch_opts){10, 3, true}, 7, 2, NULL));
    cr_assert_eq(b.count, 5);
    cr_expect_arr_eq(b.offsets, expected, sizeof expected);
    for (size_t i = 0; i < 9; i++)
        cr_expect_eq(b.order[i], i);
    fv_batches_free(&b);
}

/* The longest of a batch against its mean: without grouping about twice it, here hardly more. */
Test(batches, group_like_lengths)
{
    size_t *rows = lengths(SAMPLES, 1);
    fv_batches b;
    cr_assert(
        fv_batches_make(&b, SAMPLES, rows, &(fv_batch_opts){.batch_samples = 20}, 7, 2, NULL));
    size_t padded = 0, all = 0;
    for (size_t i = 0; i < b.count; i++) {
        size_t longest = 0;
        for (size_t k = b.offsets[i]; k < b.offsets[i + 1]; k++)
            longest = rows[b.order[k]] > longest ? rows[b.order[k]] : longest;
        padded += longest * (b.offsets[i + 1] - b.offsets[i]);
        all += rows_of(&b, rows, i);
    }
    cr_expect_lt((double)padded, 1.15 * (double)all);
    fv_batches_free(&b);
    free(rows);
}

/* Batches do not come by length, and two epochs put different samples together. */
Test(batches, stay_random)
{
    size_t *rows = lengths(SAMPLES, 1);
    size_t *batch_of = calloc(SAMPLES, sizeof *batch_of);
    const fv_batch_opts opts = {.batch_samples = 20};
    fv_batches a, b;
    cr_assert(fv_batches_make(&a, SAMPLES, rows, &opts, 7, 0, NULL));
    cr_assert(fv_batches_make(&b, SAMPLES, rows, &opts, 7, 1, NULL));
    size_t rises = 0, together = 0;
    for (size_t i = 1; i < a.count; i++)
        rises += rows_of(&a, rows, i) > rows_of(&a, rows, i - 1);
    cr_expect(rises > a.count * 2 / 5 && rises < a.count * 3 / 5, "%zu rises in %zu", rises,
              a.count);
    for (size_t i = 0; i < a.count; i++)
        for (size_t k = a.offsets[i]; k < a.offsets[i + 1]; k++)
            batch_of[a.order[k]] = i;
    for (size_t i = 0; i < b.count; i++)
        for (size_t k = b.offsets[i] + 1; k < b.offsets[i + 1]; k++)
            together += batch_of[b.order[k]] == batch_of[b.order[k - 1]];
    cr_expect_lt(together, SAMPLES / 5, "%zu neighbours were in one batch before", together);
    fv_batches_free(&a);
    fv_batches_free(&b);
    free(batch_of);
    free(rows);
}

Test(batches, odd_lengths)
{
    const size_t rows[] = {SIZE_MAX, 0, 0, SIZE_MAX, 1, SIZE_MAX / 2};
    fv_batches b;
    for (int keep = 0; keep < 2; keep++) {
        cr_assert(fv_batches_make(&b, 6, rows, &(fv_batch_opts){10, 0, keep}, 1, 1, NULL));
        expect_every_sample_once(&b, 6);
        fv_batches_free(&b);
    }
    cr_assert(fv_batches_make(&b, 0, NULL, NULL, 1, 1, NULL));
    cr_expect_eq(b.count, 0);
    cr_expect_eq(b.offsets[0], 0);
    fv_batches_free(&b);
    fv_batches_free(&b);
    fv_batches_free(NULL);
}

Test(batches, refuses_the_impossible)
{
    fv_batches b;
    fv_error error = {0};
    const size_t one = 1;
    cr_expect_not(fv_batches_make(&b, 3, NULL, NULL, 1, 1, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, "batches: no lengths for 3 samples");
    error = (fv_error){0};
    cr_expect_not(fv_batches_make(&b, (size_t)UINT32_MAX, &one, NULL, 1, 1, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, "batches: 4294967295 samples, expected fewer than 2^32 - 1");
    cr_expect_null(b.order);
}

Test(batches, out_of_memory)
{
    const size_t rows[] = {1, 2, 3}, blocks = test_blocks();
    for (size_t n = 1; n <= 3; n++) {
        fv_batches b;
        fv_error error = {0};
        test_fail_after(n);
        cr_expect_not(fv_batches_make(&b, 3, rows, NULL, 1, 1, &error));
        test_fail_after(0);
        cr_expect_eq(error.status, FV_FAILED);
        cr_expect_str_eq(error.text, "batches: out of memory for 3 samples");
        cr_expect_eq(test_blocks(), blocks);
        fv_batches_free(&b);
    }
}

/* ---- sorting ---------------------------------------------------------------------------------------------- */

static bool fewer_thousands(const void *context, size_t a, size_t b)
{
    return context == NULL && a / 1000 < b / 1000;
}

/* Items are a key and, in their last digits, their place: sorted by key alone, all of it must rise. */
Test(sort, equal_items_keep_their_order)
{
    size_t items[200], scratch[200];
    for (size_t count = 0; count <= 200; count++) {
        for (size_t i = 0; i < count; i++)
            items[i] = i * 77 % 13 * 1000 + i;
        fvi_sort(count, items, scratch, fewer_thousands, NULL);
        for (size_t i = 1; i < count; i++)
            cr_expect_lt(items[i - 1], items[i], "place %zu of %zu", i, count);
    }
}

/* ---- numbers of chosen samples --------------------------------------------------------------------------- */

static const size_t offsets[] = {0, 2, 2, 5, 6};
static const int32_t values[] = {10, 11, 20, 21, 22, 30};
static const fv_ragged column = {4, offsets, values};

Test(pick, segments_and_numbers)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 0, 0);
    const size_t samples[] = {3, 1, 2, 3};
    const fv_segments *segments = fv_pick_segments(t, offsets, samples, 4);
    const size_t expected[] = {0, 1, 1, 4, 5};
    cr_assert_not_null(segments);
    cr_expect_eq(segments->count, 4);
    cr_expect_arr_eq(segments->offsets, expected, sizeof expected);
    const int32_t numbers[] = {30, 20, 21, 22, 30};
    cr_expect_arr_eq(fv_pick(t, &column, samples, 4), numbers, sizeof numbers);
    cr_expect(fv_tape_ok(t));
    fv_tape_free(t);
}

Test(pick, nothing)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 0, 0);
    const size_t empty = 1;
    const fv_segments *segments = fv_pick_segments(t, offsets, NULL, 0);
    cr_assert_not_null(segments);
    cr_expect_eq(fv_segments_rows(segments), 0);
    cr_expect_not_null(fv_pick(t, &column, NULL, 0));
    cr_expect_not_null(fv_pick(t, &column, &empty, 1));
    cr_expect(fv_tape_ok(t));
    fv_tape_free(t);
}

Test(pick, refuses_other_samples)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_EVAL, 0, 0);
    const size_t samples[] = {0, 4};
    cr_expect_null(fv_pick(t, &column, samples, 2));
    cr_expect_not(fv_tape_ok(t));
    cr_expect_str_eq(fv_tape_error(t)->text, "pick: sample 4 of 4");
    fv_tape_free(t);
}

Test(pick, out_of_memory)
{
    const size_t samples[] = {0, 2};
    for (size_t n = 1; n < 3; n++) {
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 0, 0);
        test_fail_after(1);
        if (n == 1)
            cr_expect_null(fv_pick_segments(t, offsets, samples, 2));
        else
            cr_expect_null(fv_pick(t, &column, samples, 2));
        test_fail_after(0);
        cr_expect_not(fv_tape_ok(t));
        fv_tape_free(t);
    }
}
