/* Counts of gold against predicted labels: values worked out by hand. */
#include <criterion/criterion.h>

#include "train/internal.h"

/* Gold 0: 3 right, 1 taken for 1. Gold 1: 1 right, 2 taken for 0, 1 for 2. Gold 2: 2 right. Class 3: never. */
static fv_confusion example(void)
{
    static const int32_t gold[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2};
    static const int32_t predicted[] = {0, 0, 0, 1, 1, 0, 0, 2, 2, 2};
    fv_confusion c;
    cr_assert(fv_confusion_init(&c, 4, NULL));
    for (size_t i = 0; i < sizeof gold / sizeof *gold; i++)
        fv_confusion_add(&c, gold[i], predicted[i]);
    return c;
}

static void expect_class(const fv_confusion *c, size_t label, double p, double r, double f)
{
    double precision = -1, recall = -1, f1 = -1;
    fv_confusion_class(c, label, &precision, &recall, &f1);
    cr_expect_float_eq(precision, p, 1e-15, "precision of %zu", label);
    cr_expect_float_eq(recall, r, 1e-15, "recall of %zu", label);
    cr_expect_float_eq(f1, f, 1e-15, "F1 of %zu", label);
}

Test(confusion, measures)
{
    fv_confusion c = example();
    cr_expect_float_eq(fv_confusion_accuracy(&c), 0.6, 1e-15);
    expect_class(&c, 0, 3.0 / 5, 3.0 / 4, 2.0 / 3);
    expect_class(&c, 1, 1.0 / 2, 1.0 / 4, 1.0 / 3);
    expect_class(&c, 2, 2.0 / 3, 1, 4.0 / 5);
    expect_class(&c, 3, 0, 0, 0);
    cr_expect_float_eq(fv_confusion_macro_f1(&c), (2.0 / 3 + 1.0 / 3 + 4.0 / 5) / 3, 1e-15,
                       "a class that never occurs does not count");
    fv_confusion_class(&c, 0, NULL, NULL, NULL);
    fv_confusion_free(&c);
}

Test(confusion, labels_outside_are_left_out)
{
    fv_confusion c = example();
    fv_confusion_add(&c, -1, 0);
    fv_confusion_add(&c, 0, -1);
    fv_confusion_add(&c, 4, 0);
    fv_confusion_add(&c, 0, INT32_MAX);
    cr_expect_float_eq(fv_confusion_accuracy(&c), 0.6, 1e-15);
    expect_class(&c, 4, 0, 0, 0);
    fv_confusion_free(&c);
}

Test(confusion, empty_and_impossible)
{
    fv_confusion c;
    fv_error error = {0};
    cr_assert(fv_confusion_init(&c, 2, NULL));
    cr_expect_eq(fv_confusion_accuracy(&c), 0);
    cr_expect_eq(fv_confusion_macro_f1(&c), 0);
    expect_class(&c, 0, 0, 0, 0);
    fv_confusion_free(&c);
    fv_confusion_free(&c);
    fv_confusion_free(NULL);

    cr_expect_not(fv_confusion_init(&c, 0, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_null(c.count);
    error = (fv_error){0};
    cr_expect_not(fv_confusion_init(&c, SIZE_MAX / 2, &error));
    cr_expect_eq(error.status, FV_FAILED);
    cr_expect_str_eq(error.text, "confusion: no memory for 9223372036854775807 classes");
    cr_expect_null(c.count);
}
