/* What noise refuses, word for word, in every mode. */
#include <math.h>

#include "tests/refuse.h"

Test(refuse_noise, amounts)
{
    static const struct {
        fv_var *(*call)(fv_tape *t, fv_var *x, double amount);
        const char *what, *expected;
        bool below_one;
    } ops[] = {
        {fv_dropout, "dropout: probability", "expected 0 <= p < 1", true},
        {fv_dropout_rows, "dropout_rows: probability", "expected 0 <= p < 1", true},
        {fv_gaussian_noise, "gaussian_noise: deviation", "expected a finite number of at least 0",
         false},
        {fv_gumbel_noise, "gumbel_noise: scale", "expected a finite number of at least 0", false}};
    static const struct {
        double amount;
        const char *text;
    } wrong[] = {{-0.1, "-0.1"},      {-1, "-1"}, {-1e-300, "-1e-300"}, {INFINITY, "inf"},
                 {-INFINITY, "-inf"}, {1, "1"},   {1.5, "1.5"},         {1e300, "1e+300"}};
    const fv_mode modes[] = {FV_TRAIN, FV_GRAD, FV_EVAL};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++)
            for (int m = 0; m < 3; m++) {
                char text[200];
                if (!ops[i].below_one && wrong[k].amount >= 1 && wrong[k].amount < INFINITY)
                    continue;
                snprintf(text, sizeof text, "%s %s, %s", ops[i].what, wrong[k].text,
                         ops[i].expected);
                fv_tape_begin(t, modes[m], 1, 1);
                cr_expect_null(ops[i].call(t, IN(4, 6), wrong[k].amount));
                cr_expect_str_eq(fv_tape_error(t)->text, text);
                cr_expect_null(t->last->op, "%s: a value was recorded", text);
                cr_expect_null(ops[i].call(t, IN(4, 6), 0), "after an error");
            }
    fv_tape_free(t);
}

REFUSED(others)
{
    int at = 0;
    WRONG("dropout: an input is NULL", fv_dropout(t, NULL, 0.5))
    WRONG("dropout: probability nan, expected 0 <= p < 1", fv_dropout(t, IN(2), fabs((double)NAN)))
    WRONG("dropout_rows: an input is NULL", fv_dropout_rows(t, NULL, 0.5))
    WRONG("dropout_rows: [] has no rows", fv_dropout_rows(t, SCALAR, 0.5))
    WRONG("dropout_rows: [] has no rows", fv_dropout_rows(t, SCALAR, 0))
    WRONG("dropout_rows: probability nan, expected 0 <= p < 1",
          fv_dropout_rows(t, IN(2), fabs((double)NAN)))
    WRONG("gaussian_noise: an input is NULL", fv_gaussian_noise(t, NULL, 0.5))
    WRONG("gaussian_noise: deviation nan, expected a finite number of at least 0",
          fv_gaussian_noise(t, IN(2), fabs((double)NAN)))
    WRONG("gumbel_noise: an input is NULL", fv_gumbel_noise(t, NULL, 0.5))
    WRONG("gumbel_noise: scale nan, expected a finite number of at least 0",
          fv_gumbel_noise(t, IN(2), fabs((double)NAN)))
    NO_MORE
}

Test(refuse_noise, others)
{
    refuse_each(others);
}
