/* The learning rate over time: exact values at the corners of every kind, PyTorch's curves between. */
#include <criterion/criterion.h>
#include <math.h>

#include "train/internal.h"

#include "data/schedules.h"

static double at(fv_schedule_kind kind, double warmup, double final, uint64_t step, uint64_t total)
{
    return fv_schedule_at(&(fv_schedule){kind, warmup, final}, step, total);
}

Test(schedule, constant)
{
    cr_expect_eq(fv_schedule_at(NULL, 3, 10), 1);
    for (uint64_t step = 0; step < 12; step++)
        cr_expect_eq(at(FV_CONSTANT, 0, 0, step, 10), 1);
}

Test(schedule, warmup_comes_first_and_reaches_one)
{
    for (int kind = FV_CONSTANT; kind <= FV_INVERSE_SQRT; kind++) {
        cr_expect_eq(at((fv_schedule_kind)kind, 4, 0.1, 0, 20), 0.25);
        cr_expect_eq(at((fv_schedule_kind)kind, 4, 0.1, 1, 20), 0.5);
        cr_expect_eq(at((fv_schedule_kind)kind, 4, 0.1, 3, 20), 1);
        cr_expect_eq(at((fv_schedule_kind)kind, 1, 0.1, 0, 20), 1);
    }
}

Test(schedule, linear)
{
    cr_expect_eq(at(FV_LINEAR, 0, 0, 0, 10), 1);
    cr_expect_eq(at(FV_LINEAR, 0, 0, 5, 10), 0.5);
    cr_expect_float_eq(at(FV_LINEAR, 0, 0, 9, 10), 0.1, 1e-15);
    cr_expect_eq(at(FV_LINEAR, 4, 0, 4, 20), 1);
    cr_expect_eq(at(FV_LINEAR, 4, 0, 12, 20), 0.5);
    cr_expect_eq(at(FV_LINEAR, 4, 0.5, 12, 20), 0.75);
    cr_expect_eq(at(FV_LINEAR, 4, 0.5, 20, 20), 0.5, "the end");
    cr_expect_eq(at(FV_LINEAR, 4, 0.5, 1000, 20), 0.5, "beyond it");
    cr_expect_eq(at(FV_LINEAR, 0, 0, UINT64_MAX, 20), 0);
}

Test(schedule, cosine)
{
    cr_expect_eq(at(FV_COSINE, 0, 0, 0, 12), 1);
    cr_expect_float_eq(at(FV_COSINE, 0, 0, 4, 12), 0.75, 1e-15);
    cr_expect_float_eq(at(FV_COSINE, 0, 0, 6, 12), 0.5, 1e-15);
    cr_expect_float_eq(at(FV_COSINE, 0, 0.2, 6, 12), 0.6, 1e-15);
    cr_expect_float_eq(at(FV_COSINE, 0, 0, 8, 12), 0.25, 1e-15);
    cr_expect_eq(at(FV_COSINE, 3, 0, 3, 12), 1);
    cr_expect_eq(at(FV_COSINE, 3, 0.2, 12, 12), 0.2);
    cr_expect_eq(at(FV_COSINE, 3, 0.2, 99, 12), 0.2);
}

Test(schedule, inverse_sqrt)
{
    cr_expect_eq(at(FV_INVERSE_SQRT, 4, 0, 15, 0), 0.5);
    cr_expect_eq(at(FV_INVERSE_SQRT, 4, 0, 99, 100), 0.2);
    cr_expect_eq(at(FV_INVERSE_SQRT, 0, 0, 0, 100), 1);
    cr_expect_eq(at(FV_INVERSE_SQRT, 0, 0, 3, 100), 0.5);
}

Test(schedule, warmup_as_a_share_of_all_steps)
{
    cr_expect_eq(at(FV_LINEAR, 0.25, 0, 0, 16), 0.25);
    cr_expect_eq(at(FV_LINEAR, 0.25, 0, 3, 16), 1);
    cr_expect_eq(at(FV_LINEAR, 0.25, 0, 10, 16), 0.5);
    cr_expect_eq(at(FV_CONSTANT, 0.07, 0, 0, 100), 1.0 / 7, "0.07 * 100 is above 7 in binary");
    cr_expect_eq(at(FV_CONSTANT, 0.01, 0, 0, 10), 1, "a tenth of a step is none");
}

Test(schedule, odd_lengths)
{
    for (int kind = FV_CONSTANT; kind <= FV_INVERSE_SQRT; kind++) {
        cr_expect_eq(at((fv_schedule_kind)kind, 8, 0.5, 3, 4), 0.5,
                     "warm-up longer than all steps");
        cr_expect_eq(at((fv_schedule_kind)kind, 4, 0.5, 3, 4), 1, "warm-up as long as all steps");
    }
    cr_expect_eq(at(FV_LINEAR, 8, 0.5, 8, 4), 0.5);
    cr_expect_eq(at(FV_COSINE, 4, 0.5, 4, 4), 0.5);
    cr_expect_eq(at(FV_LINEAR, 0, 0.5, 0, 0), 0.5, "no steps at all");
    cr_expect_eq(at(FV_COSINE, 0.5, 0.5, 0, 0), 0.5);
    cr_expect_eq(at(FV_CONSTANT, 0.5, 0, 0, 0), 1);
    cr_expect_eq(at(FV_CONSTANT, -3, 0, 0, 10), 1, "what makes no sense is no warm-up");
    cr_expect_eq(at(FV_CONSTANT, (double)NAN, 0, 0, 10), 1);
}

Test(schedule, agrees_with_pytorch)
{
    for (size_t s = 0; s <= SCHEDULE_TOTAL; s++) {
        cr_expect_float_eq(at(FV_COSINE, 0, 0.1, s, SCHEDULE_TOTAL), pytorch_cosine[s], 1e-13);
        cr_expect_float_eq(at(FV_LINEAR, 0, 0.1, s, SCHEDULE_TOTAL), pytorch_linear[s], 1e-13);
    }
}

Test(schedule, check_says_what_is_wrong)
{
    const fv_schedule bad[] = {{(fv_schedule_kind)7, 0, 0},
                               {FV_LINEAR, -1, 0},
                               {FV_LINEAR, (double)INFINITY, 0},
                               {FV_COSINE, 0, (double)NAN}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fv_error error = {0};
        cr_expect_not(fvi_schedule_check(&bad[i], &error));
        cr_expect_eq(error.status, FV_USAGE);
        cr_expect_eq(strncmp(error.text, "schedule: ", 10), 0, "%s", error.text);
    }
    cr_expect(fvi_schedule_check(NULL, NULL));
    cr_expect(fvi_schedule_check(&(fv_schedule){FV_COSINE, 0.1, 0.01}, NULL));
}
