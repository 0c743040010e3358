/* What reductions, scans and sorting refuse, word for word. */
#include <math.h>

#include "tests/refuse.h"

/* ---- reductions over axes ---------------------------------------------------------------------- */

typedef fv_var *over_axes(fv_tape *t, fv_var *x, const fv_axes *axes);

static fv_var *variance_1(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return fv_variance(t, x, axes, 1);
}

static fv_var *std_1(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return fv_std(t, x, axes, 1);
}

static fv_var *norm_2(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return fv_vector_norm(t, x, axes, 2);
}

static const struct {
    const char *name;
    over_axes *call;
} reductions[] = {{"sum", fv_sum},        {"mean", fv_mean},
                  {"prod", fv_prod},      {"max", fv_max},
                  {"min", fv_min},        {"variance", variance_1},
                  {"std", std_1},         {"logsumexp", fv_logsumexp},
                  {"vector_norm", norm_2}};

static const struct {
    fv_shape shape;
    fv_axes axes;
    const char *text;
} wrong_axes[] = {{{2, {4, 6}}, {1, {2}, false}, "[4, 6] has no axis 2"},
                  {{2, {4, 6}}, {1, {-3}, true}, "[4, 6] has no axis -3"},
                  {{2, {4, 6}}, {2, {0, INT32_MAX}, false}, "[4, 6] has no axis 2147483647"},
                  {{2, {4, 6}}, {2, {1, INT32_MIN}, false}, "[4, 6] has no axis -2147483648"},
                  {{2, {4, 6}}, {2, {1, 1}, false}, "axis 1 of [4, 6] twice"},
                  {{3, {4, 6, 2}}, {3, {0, 2, -1}, true}, "axis 2 of [4, 6, 2] twice"},
                  {{0, {0}}, {1, {0}, false}, "[] has no axis 0"},
                  {{0, {0}}, {1, {-1}, true}, "[] has no axis -1"},
                  {{2, {0, 6}}, {1, {2}, false}, "[0, 6] has no axis 2"},
                  {{2, {4, 6}}, {7, {0, 1}, false}, "7 axes, expected 0 to 6"},
                  {{2, {4, 6}}, {-1, {0}, false}, "-1 axes, expected 0 to 6"},
                  {{2, {4, 6}}, {3, {0, 1, 0}, false}, "axis 0 of [4, 6] twice"}};

enum { WAYS = sizeof wrong_axes / sizeof *wrong_axes };

REFUSED(axes)
{
    static char message[100];
    const int op = which / (WAYS + 1), way = which % (WAYS + 1);
    if (op == (int)(sizeof reductions / sizeof *reductions)) {
        NO_MORE
    }
    snprintf(message, sizeof message, "%s: %s", reductions[op].name,
             way == WAYS ? "an input is NULL" : wrong_axes[way].text);
    *text = message;
    if (way == WAYS)
        return reductions[op].call(t, NULL, NULL);
    return reductions[op].call(t, fv_input(t, wrong_axes[way].shape, refused_numbers),
                               &wrong_axes[way].axes);
}

static const double inf = (double)INFINITY;

REFUSED(numbers)
{
    int at = 0;
    WRONG("max: [0]: of no numbers", fv_max(t, IN(0), NULL))
    WRONG("max: [0, 3]: of no numbers", fv_max(t, IN(0, 3), FV_AXES(0)))
    WRONG("max: [3, 0]: of no numbers", fv_max(t, IN(3, 0), FV_KEEP(1)))
    WRONG("min: [3, 0]: of no numbers", fv_min(t, IN(3, 0), NULL))
    WRONG("min: [0, 0]: of no numbers", fv_min(t, IN(0, 0), FV_AXES(-1)))
    WRONG("variance: correction nan of [3], expected a number",
          fv_variance(t, IN(3), NULL, fabs((double)NAN)))
    WRONG("variance: correction inf of [3], expected a number", fv_variance(t, IN(3), NULL, inf))
    WRONG("std: correction nan of [3], expected a number",
          fv_std(t, IN(3), NULL, fabs((double)NAN)))
    WRONG("std: correction -inf of [3], expected a number", fv_std(t, IN(3), NULL, -inf))
    WRONG("vector_norm: p is not a number", fv_vector_norm(t, IN(3), NULL, (double)NAN))
    WRONG("vector_norm: [0]: of no numbers", fv_vector_norm(t, IN(0), NULL, inf))
    WRONG("vector_norm: [0]: of no numbers", fv_vector_norm(t, IN(0), NULL, -inf))
    WRONG("vector_norm: [2, 0]: of no numbers", fv_vector_norm(t, IN(2, 0), FV_AXES(1), -1))
    NO_MORE
}

/* ---- along one axis ---------------------------------------------------------------------------- */

static fv_var *cumsum(fv_tape *t, fv_var *x, int axis)
{
    return fv_cumsum(t, x, axis, NULL);
}

static fv_var *cumprod(fv_tape *t, fv_var *x, int axis)
{
    return fv_cumprod(t, x, axis, NULL);
}

static fv_var *sort(fv_tape *t, fv_var *x, int axis)
{
    return fv_sort(t, x, axis, NULL);
}

static fv_var *topk(fv_tape *t, fv_var *x, int axis)
{
    return fv_topk(t, x, axis, 0, NULL);
}

static fv_var *argmax(fv_tape *t, fv_var *x, int axis)
{
    cr_expect_null(fv_argmax(t, x, axis));
    return NULL;
}

static fv_var *argmin(fv_tape *t, fv_var *x, int axis)
{
    cr_expect_null(fv_argmin(t, x, axis));
    return NULL;
}

static const struct {
    const char *name;
    fv_var *(*call)(fv_tape *t, fv_var *x, int axis);
} along[] = {{"cumsum", cumsum}, {"cumprod", cumprod}, {"sort", sort},
             {"topk", topk},     {"argmax", argmax},   {"argmin", argmin}};

REFUSED(axis)
{
    static const fv_shape shape[] = {{2, {4, 6}}, {1, {6}}, {0, {0}}, {3, {0, 2, 3}}};
    static const int axes[] = {3, -4, INT32_MAX, INT32_MIN};
    static char message[100];
    char form[160];
    const int op = which / 17, k = which % 17 / 4;
    if (op == (int)(sizeof along / sizeof *along)) {
        NO_MORE
    }
    *text = message;
    if (which % 17 == 16) {
        snprintf(message, sizeof message, "%s: an input is NULL", along[op].name);
        return along[op].call(t, NULL, 0);
    }
    snprintf(message, sizeof message, "%s: %s has no axis %d", along[op].name,
             fv_shape_text(shape[k], form), axes[which % 4]);
    return along[op].call(t, fv_input(t, shape[k], refused_numbers), axes[which % 4]);
}

/* A shape without numbers may have an axis that no int32_t counts. */
static fv_var *long_axis(fv_tape *t)
{
    return fv_input(t, FV_SHAPE(0, (size_t)INT32_MAX + 1), refused_numbers);
}

REFUSED(places)
{
    int at = 0;
    WRONG("sort: axis 1 of [0, 2147483648], expected a size of at most 2147483647",
          fv_sort(t, long_axis(t), 1, NULL))
    WRONG("topk: axis 1 of [0, 2147483648], expected a size of at most 2147483647",
          fv_topk(t, long_axis(t), -1, 3, NULL))
    WRONG("argmax: axis 1 of [0, 2147483648], expected a size of 1 to 2147483647",
          argmax(t, long_axis(t), 1))
    WRONG("argmin: axis 1 of [0, 2147483648], expected a size of 1 to 2147483647",
          argmin(t, long_axis(t), -1))
    WRONG("argmax: axis 0 of [0], expected a size of 1 to 2147483647", argmax(t, IN(0), 0))
    WRONG("argmin: axis 1 of [3, 0], expected a size of 1 to 2147483647", argmin(t, IN(3, 0), 1))
    WRONG("topk: 5 largest along axis 0 of [4, 6]", fv_topk(t, IN(4, 6), 0, 5, NULL))
    WRONG("topk: 7 largest along axis 1 of [4, 6]", fv_topk(t, IN(4, 6), -1, 7, NULL))
    WRONG("topk: 1 largest along axis 0 of [0]", fv_topk(t, IN(0), 0, 1, NULL))
    WRONG("topk: 18446744073709551615 largest along axis 0 of [3]",
          fv_topk(t, IN(3), 0, SIZE_MAX, NULL))
    NO_MORE
}

Test(refuse_reduce, axes)
{
    refuse_each(axes);
}

Test(refuse_reduce, numbers)
{
    refuse_each(numbers);
}

Test(refuse_reduce, axis)
{
    refuse_each(axis);
}

Test(refuse_reduce, places)
{
    refuse_each(places);
}
