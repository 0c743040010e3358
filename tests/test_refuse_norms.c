/* What the softmax family and the norms refuse, word for word. */
#include <math.h>

#include "tests/refuse.h"

/* Ops of one input and an axis. */
static const struct {
    const char *name;
    fv_var *(*call)(fv_tape *t, fv_var *x, int axis);
} over_axis[] = {{"softmax", fv_softmax},
                 {"log_softmax", fv_log_softmax},
                 {"softmax_plus_one", fv_softmax_plus_one},
                 {"sparsemax", fv_sparsemax}};

static void expect_refused(fv_tape *t, const fv_var *y, const char *text)
{
    cr_expect_null(y, "%s", text);
    cr_expect_str_eq(fv_tape_error(t)->text, text);
    cr_expect_eq(fv_tape_error(t)->status, FV_USAGE);
    cr_expect(t->last == NULL || t->last->op == NULL, "%s: a value was recorded", text);
}

Test(refuse_norms, softmax)
{
    const struct {
        fv_shape shape;
        int axis;
        const char *text;
    } wrong[] = {{FV_SHAPE(4, 6), 2, "[4, 6] has no axis 2"},
                 {FV_SHAPE(4, 6), -3, "[4, 6] has no axis -3"},
                 {FV_SHAPE(4, 6), INT32_MAX, "[4, 6] has no axis 2147483647"},
                 {FV_SHAPE(4, 6), INT32_MIN, "[4, 6] has no axis -2147483648"},
                 {FV_SHAPE(6), 1, "[6] has no axis 1"},
                 {FV_SHAPE(0, 2, 3), 3, "[0, 2, 3] has no axis 3"},
                 {FV_SCALAR, 0, "[] has no axis 0"},
                 {FV_SCALAR, -1, "[] has no axis -1"}};
    fv_tape *t = fv_tape_new(NULL);
    char text[100];
    for (size_t op = 0; op < sizeof over_axis / sizeof *over_axis; op++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        snprintf(text, sizeof text, "%s: an input is NULL", over_axis[op].name);
        expect_refused(t, over_axis[op].call(t, NULL, 0), text);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *x = fv_input(t, wrong[i].shape, refused_numbers);
            snprintf(text, sizeof text, "%s: %s", over_axis[op].name, wrong[i].text);
            expect_refused(t, over_axis[op].call(t, x, wrong[i].axis), text);
            cr_expect_null(over_axis[op].call(t, x, 0), "%s goes on after an error", text);
        }
    }
    fv_tape_free(t);
}

static const fv_norm_opts two = {.axes = 2}, three = {.axes = 3}, minus = {.axes = -1},
                          nan_eps = {.eps = NAN}, infinite = {.eps = INFINITY},
                          below = {.eps = -1e-5};

REFUSED(layer_norm)
{
    int at = 0;
    WRONG("layer_norm: an input is NULL", fv_layer_norm(t, NULL, IN(6), IN(6), NULL))
    WRONG("layer_norm: weight [5], expected [6]", fv_layer_norm(t, IN(4, 6), IN(5), IN(6), NULL))
    WRONG("layer_norm: bias [5], expected [6]", fv_layer_norm(t, IN(4, 6), IN(6), IN(5), NULL))
    WRONG("layer_norm: bias [1, 6], expected [6]", fv_layer_norm(t, IN(4, 6), NULL, IN(1, 6), NULL))
    WRONG("layer_norm: weight [], expected [6]", fv_layer_norm(t, IN(4, 6), SCALAR, NULL, NULL))
    WRONG("layer_norm: weight [6], expected [4, 6]", fv_layer_norm(t, IN(4, 6), IN(6), NULL, &two))
    WRONG("layer_norm: the last 1 axes of []", fv_layer_norm(t, SCALAR, NULL, NULL, NULL))
    WRONG("layer_norm: the last 3 axes of [4, 6]", fv_layer_norm(t, IN(4, 6), NULL, NULL, &three))
    WRONG("layer_norm: the last -1 axes of [4, 6]", fv_layer_norm(t, IN(4, 6), NULL, NULL, &minus))
    WRONG("layer_norm: eps nan, expected 0 or more",
          fv_layer_norm(t, IN(4, 6), NULL, NULL, &nan_eps))
    WRONG("layer_norm: eps inf, expected 0 or more",
          fv_layer_norm(t, IN(4, 6), NULL, NULL, &infinite))
    WRONG("layer_norm: eps -1e-05, expected 0 or more",
          fv_layer_norm(t, IN(4, 6), NULL, NULL, &below))
    NO_MORE
}

REFUSED(rms_norm)
{
    int at = 0;
    WRONG("rms_norm: an input is NULL", fv_rms_norm(t, NULL, IN(6), NULL))
    WRONG("rms_norm: weight [5], expected [6]", fv_rms_norm(t, IN(4, 6), IN(5), NULL))
    WRONG("rms_norm: weight [1, 6], expected [6]", fv_rms_norm(t, IN(4, 6), IN(1, 6), NULL))
    WRONG("rms_norm: weight [4, 6], expected [2, 6]", fv_rms_norm(t, IN(4, 2, 6), IN(4, 6), &two))
    WRONG("rms_norm: the last 1 axes of []", fv_rms_norm(t, SCALAR, NULL, NULL))
    WRONG("rms_norm: the last 3 axes of [4, 6]", fv_rms_norm(t, IN(4, 6), NULL, &three))
    WRONG("rms_norm: the last -1 axes of [4, 6]", fv_rms_norm(t, IN(4, 6), NULL, &minus))
    WRONG("rms_norm: eps nan, expected 0 or more", fv_rms_norm(t, IN(4, 6), NULL, &nan_eps))
    WRONG("rms_norm: eps -1e-05, expected 0 or more", fv_rms_norm(t, IN(4, 6), NULL, &below))
    NO_MORE
}

REFUSED(group_norm)
{
    int at = 0;
    WRONG("group_norm: an input is NULL", fv_group_norm(t, NULL, 2, NULL, NULL, NULL))
    WRONG("group_norm: input is [6], expected [samples, channels, ..]",
          fv_group_norm(t, IN(6), 2, NULL, NULL, NULL))
    WRONG("group_norm: input is [], expected [samples, channels, ..]",
          fv_group_norm(t, SCALAR, 1, NULL, NULL, NULL))
    WRONG("group_norm: 4 groups do not divide the channels of [4, 6]",
          fv_group_norm(t, IN(4, 6), 4, NULL, NULL, NULL))
    WRONG("group_norm: 0 groups do not divide the channels of [4, 6]",
          fv_group_norm(t, IN(4, 6), 0, NULL, NULL, NULL))
    WRONG("group_norm: weight [3], expected [6]",
          fv_group_norm(t, IN(4, 6, 2), 2, IN(3), NULL, NULL))
    WRONG("group_norm: bias [6, 1], expected [6]",
          fv_group_norm(t, IN(4, 6, 2), 2, IN(6), IN(6, 1), NULL))
    WRONG("group_norm: eps nan, expected 0 or more",
          fv_group_norm(t, IN(4, 6), 2, NULL, NULL, &nan_eps))
    WRONG("group_norm: eps -1e-05, expected 0 or more",
          fv_group_norm(t, IN(4, 6), 2, NULL, NULL, &below))
    NO_MORE
}

REFUSED(instance_norm)
{
    int at = 0;
    WRONG("instance_norm: an input is NULL", fv_instance_norm(t, NULL, IN(6), NULL, NULL))
    WRONG("instance_norm: input is [6], expected [samples, channels, ..]",
          fv_instance_norm(t, IN(6), NULL, NULL, NULL))
    WRONG("instance_norm: input is [], expected [samples, channels, ..]",
          fv_instance_norm(t, SCALAR, NULL, NULL, NULL))
    WRONG("instance_norm: weight [5], expected [6]",
          fv_instance_norm(t, IN(4, 6, 5), IN(5), NULL, NULL))
    WRONG("instance_norm: weight [], expected [6]",
          fv_instance_norm(t, IN(4, 6, 5), SCALAR, NULL, NULL))
    WRONG("instance_norm: bias [5], expected [6]",
          fv_instance_norm(t, IN(4, 6, 5), IN(6), IN(5), NULL))
    WRONG("instance_norm: eps inf, expected 0 or more",
          fv_instance_norm(t, IN(4, 6, 5), NULL, NULL, &infinite))
    WRONG("instance_norm: eps -1e-05, expected 0 or more",
          fv_instance_norm(t, IN(4, 6, 5), NULL, NULL, &below))
    NO_MORE
}

REFUSED(l2_normalize)
{
    int at = 0;
    WRONG("l2_normalize: an input is NULL", fv_l2_normalize(t, NULL, 0, NULL))
    WRONG("l2_normalize: [4, 6] has no axis 2", fv_l2_normalize(t, IN(4, 6), 2, NULL))
    WRONG("l2_normalize: [4, 6] has no axis -3", fv_l2_normalize(t, IN(4, 6), -3, NULL))
    WRONG("l2_normalize: [] has no axis 0", fv_l2_normalize(t, SCALAR, 0, NULL))
    WRONG("l2_normalize: [] has no axis -1", fv_l2_normalize(t, SCALAR, -1, NULL))
    WRONG("l2_normalize: eps nan, expected 0 or more", fv_l2_normalize(t, IN(4, 6), 0, &nan_eps))
    WRONG("l2_normalize: eps inf, expected 0 or more", fv_l2_normalize(t, IN(4, 6), 0, &infinite))
    WRONG("l2_normalize: eps -1e-05, expected 0 or more", fv_l2_normalize(t, IN(4, 6), 0, &below))
    NO_MORE
}

REFUSED(batch_norm)
{
    int at = 0;
    static fv_real out[6];
    const fv_batch_norm_opts mean = {.mean = out}, variance = {.variance = out}, nan = {.eps = NAN},
                             negative = {.eps = -2},
                             asked = {.mean = out, .variance = out, .batch_mean = out};
    WRONG("batch_norm: an input is NULL", fv_batch_norm(t, NULL, NULL, NULL, NULL))
    WRONG("batch_norm: input is [6], expected [samples, channels, ..]",
          fv_batch_norm(t, IN(6), NULL, NULL, NULL))
    WRONG("batch_norm: input is [], expected [samples, channels, ..]",
          fv_batch_norm(t, SCALAR, NULL, NULL, NULL))
    WRONG("batch_norm: weight [4], expected [6]", fv_batch_norm(t, IN(4, 6), IN(4), NULL, NULL))
    WRONG("batch_norm: bias [1, 6], expected [6]",
          fv_batch_norm(t, IN(4, 6), IN(6), IN(1, 6), NULL))
    WRONG("batch_norm: a mean without a variance", fv_batch_norm(t, IN(4, 6), NULL, NULL, &mean))
    WRONG("batch_norm: a variance without a mean",
          fv_batch_norm(t, IN(4, 6), NULL, NULL, &variance))
    WRONG("batch_norm: eps nan, expected 0 or more", fv_batch_norm(t, IN(4, 6), NULL, NULL, &nan))
    WRONG("batch_norm: eps -2, expected 0 or more",
          fv_batch_norm(t, IN(4, 6), NULL, NULL, &negative))
    WRONG("batch_norm: [1, 6] has one number a channel, expected more for a variance",
          fv_batch_norm(t, IN(1, 6), NULL, NULL, NULL))
    WRONG("batch_norm: [1, 6, 1, 1] has one number a channel, expected more for a variance",
          fv_batch_norm(t, IN(1, 6, 1, 1), NULL, NULL, &asked))
    NO_MORE
}

Test(refuse_norms, rows)
{
    refuse_each(layer_norm);
    refuse_each(rms_norm);
    refuse_each(l2_normalize);
}

Test(refuse_norms, channels)
{
    refuse_each(group_norm);
    refuse_each(instance_norm);
    refuse_each(batch_norm);
}
