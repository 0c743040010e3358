/* An op of your own, outside the library: swish with a learned slope, its gradient and its check. */
#include <stdio.h>
#include <string.h>
#include <tgmath.h> /* exp of whatever fv_real is */

#include "autograd/op.h"
#include "fovea.h"

static const char usage[] =
    "examples:\n"
    "  my_op           checks the op's gradient, prints one line\n"
    "\n"
    "Linked with libfoveac, where derivatives are exact. Exit codes: 0 the\n"
    "gradient is right, 1 it is not, 2 usage.\n";

static fv_real sigmoid(fv_real x)
{
    return 1 / (1 + exp(-x));
}

/* y[rows, d] = x sigmoid(slope x), one slope a column (Ramachandran, Zoph and Le, 2017, arXiv 1710.05941) */
static bool swish_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_var *x = y->in[0], *slope = y->in[1];
    const size_t d = fv_shape_count(slope->value.shape);
    for (size_t i = 0, n = fv_shape_count(x->value.shape); i < n; i++)
        y->value.data[i] = x->value.data[i] * sigmoid(slope->value.data[i % d] * x->value.data[i]);
    return true;
}

/* With s = sigmoid(slope x), whose derivative is s (1 - s):
 * dx = dy (s + slope x s (1 - s)), dslope = dy x^2 s (1 - s) summed over rows. Both are added to what is there. */
static void swish_backward(fv_tape *t, fv_var *y)
{
    const fv_var *x = y->in[0], *slope = y->in[1];
    const size_t d = fv_shape_count(slope->value.shape);
    fv_real *dx = fv_grad(t, y->in[0]),
            *dslope = fv_grad(t, y->in[1]); /* NULL when not asked for */
    for (size_t i = 0, n = fv_shape_count(x->value.shape); i < n; i++) {
        const fv_real xi = x->value.data[i], a = slope->value.data[i % d], s = sigmoid(a * xi);
        if (dx != NULL)
            dx[i] += y->grad[i] * (s + a * xi * s * (1 - s));
        if (dslope != NULL)
            dslope[i % d] += y->grad[i] * xi * xi * s * (1 - s);
    }
}

static const fv_op swish = {.name = "swish",
                            .formula = "y = x / (1 + exp(-slope x))",
                            .paper = "arXiv 1710.05941",
                            .forward = swish_forward,
                            .backward = swish_backward};

/* What a program calls: checks shapes, then records. */
static fv_var *my_swish(fv_tape *t, fv_var *x, fv_var *slope)
{
    if (x == NULL || slope == NULL)
        return NULL;
    const fv_shape s = x->value.shape;
    if (s.rank == 0 || fv_shape_count(slope->value.shape) != s.size[s.rank - 1])
        return fv_refuse(t, "swish", "%s with slope %s: one slope a column", fv_describe(t, x),
                         fv_describe(t, slope));
    fv_var *in[] = {x, slope};
    return fv_record(t, &swish, s, NULL, 0, 2, in);
}

/* For the check: the op on sampled inputs. The context says which sample. */
static fv_var *sample(fv_sampler *s, void *context)
{
    const bool one_column = *(const int *)context == 1;
    fv_var *x = fv_sample(s, one_column ? FV_SHAPE(1, 1) : FV_SHAPE(4, 3), -2, 2);
    return my_swish(fv_sampler_tape(s), x, fv_sample(s, FV_SHAPE(one_column ? 1 : 3), 0.5, 2));
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        const bool help = strcmp(argv[1], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    for (int which = 0; which < 2; which++) {
        fv_gradcheck_result result;
        if (!fv_gradcheck(sample, &which, NULL, &result))
            return fprintf(stderr, "my_op: sample %d: %s\n", which, result.error.text), 1;
        printf("swish, sample %d: passed (first order error %.1e, second %.1e, tangent %.1e)\n",
               which, result.first_order, result.second_order, result.tangent);
    }
    return 0;
}
