/* What the losses refuse, word for word. */
#include <math.h>

#include "tests/refuse.h"

static const int32_t labels[] = {0, 5, 6, -100}, signs[] = {1, -1, 1, 1, 0, -1}, two[] = {1, 2};

/* Losses of classes share their checks. */
typedef fv_var *of_classes(fv_tape *t, fv_var *x, const fv_cross_entropy_opts *opts);

static fv_var *cross_entropy(fv_tape *t, fv_var *x, const fv_cross_entropy_opts *opts)
{
    return fv_cross_entropy_sum(t, x, labels, opts, NULL);
}
static fv_var *nll(fv_tape *t, fv_var *x, const fv_cross_entropy_opts *opts)
{
    return fv_nll_sum(t, x, labels, opts, NULL);
}
static fv_var *soft_cross_entropy(fv_tape *t, fv_var *x, const fv_cross_entropy_opts *opts)
{
    return fv_soft_cross_entropy_sum(t, x, x, opts, NULL);
}

/* Losses between numbers and targets of the same shape. */
typedef fv_var *of_pairs(fv_tape *t, fv_var *x, fv_var *target, double *count);

static fv_var *huber(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_huber_sum(t, x, target, 1, count);
}
static fv_var *bce(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_bce_with_logits_sum(t, x, target, NULL, count);
}
static fv_var *soft(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_soft_cross_entropy_sum(t, x, target, NULL, count);
}
static fv_var *cosine(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return fv_cosine_embedding_sum(t, x, target, signs, 0, count);
}

static void expect_refused(fv_tape *t, const fv_var *y, const char *op, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%s: %s", op, what);
    cr_expect_null(y, "%s", text);
    cr_expect_str_eq(fv_tape_error(t)->text, text);
    cr_expect_eq(fv_tape_error(t)->status, FV_USAGE);
    cr_expect(t->last == NULL || t->last->op == NULL, "%s: a value was recorded", text);
}

Test(refuse_losses, classes)
{
    static const fv_real negative[] = {1, 1, 1, 1, 1, -2}, nan[] = {1, (fv_real)NAN, 1, 1, 1, 1},
                         infinite[] = {(fv_real)INFINITY, 1, 1, 1, 1, 1};
    const struct {
        const char *name;
        of_classes *call;
    } ops[] = {
        {"cross_entropy", cross_entropy}, {"nll", nll}, {"soft_cross_entropy", soft_cross_entropy}};
    const struct {
        fv_cross_entropy_opts opts;
        const char *text;
    } wrong[] = {{{.smoothing = -0.1}, "smoothing -0.1, expected 0 <= s < 1"},
                 {{.smoothing = 1}, "smoothing 1, expected 0 <= s < 1"},
                 {{.smoothing = NAN}, "smoothing nan, expected 0 <= s < 1"},
                 {{.smoothing = INFINITY}, "smoothing inf, expected 0 <= s < 1"},
                 {{.class_weight = negative}, "weight -2 of class 5, expected 0 or more"},
                 {{.class_weight = nan}, "weight nan of class 1, expected 0 or more"},
                 {{.class_weight = infinite}, "weight inf of class 0, expected 0 or more"}};
    const struct {
        fv_shape shape;
        const char *text;
    } shapes[] = {{FV_SCALAR, "input is [], expected [rows, d]"},
                  {FV_SHAPE(6), "input is [6], expected [rows, d]"},
                  {FV_SHAPE(4, 0), "input is [4, 0], expected [rows, d]"},
                  {FV_SHAPE(2, 2, 3), "input is [2, 2, 3], expected [rows, d]"}};
    fv_tape *t = fv_tape_new(NULL);
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        expect_refused(t, ops[op].call(t, NULL, NULL), ops[op].name, "an input is NULL");
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            expect_refused(t, ops[op].call(t, IN(2, 6), &wrong[i].opts), ops[op].name,
                           wrong[i].text);
        }
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = fv_input(t, shapes[i].shape, refused_numbers);
            expect_refused(t, ops[op].call(t, x, NULL), ops[op].name, shapes[i].text);
        }
    }
    fv_tape_free(t);
}

Test(refuse_losses, pairs)
{
    const struct {
        const char *name;
        of_pairs *call;
        const char *between; /* what stands between the shapes of a message */
    } ops[] = {{"mse", fv_mse_sum, "with target"},      {"l1", fv_l1_sum, "with target"},
               {"huber", huber, "with target"},         {"kl_div", fv_kl_div_sum, "with target"},
               {"bce_with_logits", bce, "with target"}, {"soft_cross_entropy", soft, "with target"},
               {"cosine_embedding", cosine, "with"}};
    const struct {
        fv_shape shape;
        const char *text;
    } others[] = {{FV_SCALAR, "[]"},          {FV_SHAPE(1), "[1]"},
                  {FV_SHAPE(3), "[3]"},       {FV_SHAPE(1, 3), "[1, 3]"},
                  {FV_SHAPE(2, 1), "[2, 1]"}, {FV_SHAPE(3, 2), "[3, 2]"},
                  {FV_SHAPE(0, 3), "[0, 3]"}, {FV_SHAPE(2, 3, 1), "[2, 3, 1]"}};
    fv_tape *t = fv_tape_new(NULL);
    char text[100];
    for (size_t op = 0; op < sizeof ops / sizeof *ops; op++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        expect_refused(t, ops[op].call(t, NULL, IN(2, 3), NULL), ops[op].name, "an input is NULL");
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        expect_refused(t, ops[op].call(t, IN(2, 3), NULL, NULL), ops[op].name, "an input is NULL");
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *target = fv_input(t, others[i].shape, refused_numbers);
            snprintf(text, sizeof text, "[2, 3] %s %s: shapes differ", ops[op].between,
                     others[i].text);
            expect_refused(t, ops[op].call(t, IN(2, 3), target, NULL), ops[op].name, text);
        }
    }
    fv_tape_free(t);
}

REFUSED(labels_and_options)
{
    int at = 0;
    static const fv_real nan[] = {1, 1, (fv_real)NAN}, negative[] = {-1, 1, 1};
    const fv_bce_opts nan_weight = {nan}, negative_weight = {negative};
    WRONG("cross_entropy: no labels", fv_cross_entropy_sum(t, IN(4, 6), NULL, NULL, NULL))
    WRONG("cross_entropy: label 6 of row 2 is not below the 6 classes of [4, 6]",
          fv_cross_entropy_sum(t, IN(4, 6), labels, NULL, NULL))
    WRONG("nll: no labels", fv_nll_sum(t, IN(4, 6), NULL, NULL, NULL))
    WRONG("nll: label 5 of row 1 is not below the 5 classes of [4, 5]",
          fv_nll_sum(t, IN(4, 5), labels, NULL, NULL))
    WRONG("huber: delta 0, expected more than 0", fv_huber_sum(t, IN(2), IN(2), 0, NULL))
    WRONG("huber: delta -1, expected more than 0", fv_huber_sum(t, IN(2), IN(2), -1, NULL))
    WRONG("huber: delta nan, expected more than 0",
          fv_huber_sum(t, IN(2), IN(2), fabs((double)NAN), NULL))
    WRONG("bce_with_logits: weight nan of column 2, expected 0 or more",
          fv_bce_with_logits_sum(t, IN(2, 3), IN(2, 3), &nan_weight, NULL))
    WRONG("bce_with_logits: weight -1 of column 0, expected 0 or more",
          fv_bce_with_logits_sum(t, IN(2, 3), IN(2, 3), &negative_weight, NULL))
    WRONG("cosine_embedding: no labels",
          fv_cosine_embedding_sum(t, IN(2, 3), IN(2, 3), NULL, 0, NULL))
    WRONG("cosine_embedding: label 0 of row 4, expected 1 or -1",
          fv_cosine_embedding_sum(t, IN(6, 3), IN(6, 3), signs, 0, NULL))
    WRONG("cosine_embedding: margin inf, expected a number",
          fv_cosine_embedding_sum(t, IN(2, 3), IN(2, 3), signs, INFINITY, NULL))
    WRONG("cosine_embedding: a is [6], expected [rows, d]",
          fv_cosine_embedding_sum(t, IN(6), IN(6), signs, 0, NULL))
    WRONG("cosine_embedding: a is [2, 3, 4], expected [rows, d]",
          fv_cosine_embedding_sum(t, IN(2, 3, 4), IN(2, 3, 4), signs, 0, NULL))
    WRONG("hinge: an input is NULL", fv_hinge_sum(t, NULL, signs, 1, NULL))
    WRONG("hinge: no labels", fv_hinge_sum(t, IN(2), NULL, 1, NULL))
    WRONG("hinge: label 0 at 4, expected 1 or -1", fv_hinge_sum(t, IN(2, 3), signs, 1, NULL))
    WRONG("hinge: label 2 at 1, expected 1 or -1", fv_hinge_sum(t, IN(2), two, 1, NULL))
    WRONG("hinge: margin -inf, expected a number",
          fv_hinge_sum(t, IN(2), signs, -(double)INFINITY, NULL))
    WRONG("hinge: margin nan, expected a number",
          fv_hinge_sum(t, IN(2), signs, fabs((double)NAN), NULL))
    NO_MORE
}

REFUSED(ctc)
{
    int at = 0;
    static const size_t four[] = {0, 1, 4}, three[] = {0, 2, 3}, late[] = {1, 4},
                        falling[] = {0, 3, 2}, one[] = {0, 2};
    static const fv_segments rows = {2, four}, targets = {2, three}, late_start = {1, late},
                             fall = {2, falling}, single = {1, one}, no_offsets = {2, NULL};
    static const int32_t good[] = {1, 2, 2}, outside[] = {1, 2, 6}, below[] = {1, -1, 2},
                         blank[] = {1, 2, 0};
    const fv_ctc_opts six = {.blank = 6}, minus = {.blank = -1}, last = {.blank = 2};
    WRONG("ctc: an input is NULL", fv_ctc_sum(t, NULL, &rows, good, &targets, NULL, NULL))
    WRONG("ctc: input is [6], expected [rows, d]",
          fv_ctc_sum(t, IN(6), &rows, good, &targets, NULL, NULL))
    WRONG("ctc: no segments", fv_ctc_sum(t, IN(4, 6), NULL, good, &targets, NULL, NULL))
    WRONG("ctc: segments: they hold 4 rows, the input has 5",
          fv_ctc_sum(t, IN(5, 6), &rows, good, &targets, NULL, NULL))
    WRONG("ctc: segments: the first offset is 1, not 0",
          fv_ctc_sum(t, IN(4, 6), &late_start, good, &single, NULL, NULL))
    WRONG("ctc: no targets", fv_ctc_sum(t, IN(4, 6), &rows, good, NULL, NULL, NULL))
    WRONG("ctc: no targets", fv_ctc_sum(t, IN(4, 6), &rows, good, &no_offsets, NULL, NULL))
    WRONG("ctc: targets: segments: the first offset is 1, not 0",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &late_start, NULL, NULL))
    WRONG("ctc: targets: segments: offset 2 falls from 3 to 2",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &fall, NULL, NULL))
    WRONG("ctc: 2 samples with the labels of 1",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &single, NULL, NULL))
    WRONG("ctc: no labels", fv_ctc_sum(t, IN(4, 6), &rows, NULL, &targets, NULL, NULL))
    WRONG("ctc: label 6 at 2 is not one of the 6 classes of [4, 6]",
          fv_ctc_sum(t, IN(4, 6), &rows, outside, &targets, NULL, NULL))
    WRONG("ctc: label -1 at 1 is not one of the 6 classes of [4, 6]",
          fv_ctc_sum(t, IN(4, 6), &rows, below, &targets, NULL, NULL))
    WRONG("ctc: label 0 at 2 is the blank",
          fv_ctc_sum(t, IN(4, 6), &rows, blank, &targets, NULL, NULL))
    WRONG("ctc: label 2 at 1 is the blank",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &targets, &last, NULL))
    WRONG("ctc: blank 6 is not one of the 6 classes of [4, 6]",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &targets, &six, NULL))
    WRONG("ctc: blank -1 is not one of the 6 classes of [4, 6]",
          fv_ctc_sum(t, IN(4, 6), &rows, good, &targets, &minus, NULL))
    NO_MORE
}

Test(refuse_losses, labels)
{
    refuse_each(labels_and_options);
}

Test(refuse_losses, ctc)
{
    refuse_each(ctc);
}
