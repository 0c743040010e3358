/* Operators over axes: sums, means, norms, running sums. */
#include <math.h>

#include "conformance/conformance.h"

typedef fv_var *(*reduction)(fv_tape *t, fv_var *x, const fv_axes *axes);

/* Axes are an attribute or, later, an input; none means all, or with noop_with_empty_axes none at all. */
static fv_var *reduce_of(call *c, fv_var *x, reduction op)
{
    if (x == NULL)
        return NULL;
    int64_t given[MOST] = {0};
    fv_axes axes = {.count = list_or_input(c, "axes", 1, given), .keep = whole(c, "keepdims", 1)};
    if (axes.count > FV_MAX_RANK)
        return lacks(c, "more than six axes");
    if (axes.count == 0 && whole(c, "noop_with_empty_axes", 0))
        return x;
    if (axes.count == 0) {
        axes.count = x->value.shape.rank;
        for (int i = 0; i < axes.count; i++)
            given[i] = i;
    }
    for (int i = 0; i < axes.count; i++)
        axes.axis[i] = (int)given[i];
    return op(c->t, x, &axes);
}

static fv_var *reduce(call *c, reduction op)
{
    return reduce_of(c, input(c, 0), op);
}

static fv_var *reduce_sum(call *c)
{
    return reduce(c, fv_sum);
}

static fv_var *reduce_mean(call *c)
{
    return reduce(c, fv_mean);
}

static fv_var *reduce_prod(call *c)
{
    return reduce(c, fv_prod);
}

static fv_var *reduce_extreme(call *c, reduction op)
{
    if (fv_shape_count(input(c, 0)->value.shape) == 0)
        return lacks(c, "the largest or smallest of no numbers (an error here)");
    return reduce(c, op);
}

static fv_var *reduce_max(call *c)
{
    return reduce_extreme(c, fv_max);
}

static fv_var *reduce_min(call *c)
{
    return reduce_extreme(c, fv_min);
}

static fv_var *log_sum_exp(call *c)
{
    return reduce(c, fv_logsumexp);
}

static fv_var *log_sum(call *c)
{
    return fv_log(c->t, reduce(c, fv_sum));
}

static fv_var *sum_square(call *c)
{
    return reduce_of(c, fv_square(c->t, input(c, 0)), fv_sum);
}

static fv_var *norm_1(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return fv_vector_norm(t, x, axes, 1);
}

static fv_var *norm_2(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return fv_vector_norm(t, x, axes, 2);
}

static fv_var *reduce_l1(call *c)
{
    return reduce(c, norm_1);
}

static fv_var *reduce_l2(call *c)
{
    return reduce(c, norm_2);
}

static fv_var *scan(call *c, fv_var *(*op)(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *o))
{
    const fv_scan_opts opts = {whole(c, "exclusive", 0), whole(c, "reverse", 0)};
    return op(c->t, input(c, 0), axis_of(c, input(c, 0), (int64_t)input_number(c, 1, 0)), &opts);
}

static fv_var *cumsum(call *c)
{
    return scan(c, fv_cumsum);
}

static fv_var *cumprod(call *c)
{
    return scan(c, fv_cumprod);
}

const operation reduction_operations[] = {
    {"ReduceSum", .run = reduce_sum},
    {"ReduceMean", .run = reduce_mean},
    {"ReduceProd", .run = reduce_prod},
    {"ReduceMax", .run = reduce_max},
    {"ReduceMin", .run = reduce_min},
    {"ReduceLogSumExp", .run = log_sum_exp},
    {"ReduceLogSum", .run = log_sum},
    {"ReduceSumSquare", .run = sum_square},
    {"ReduceL1", .run = reduce_l1},
    {"ReduceL2", .run = reduce_l2},
    {"CumSum", .run = cumsum},
    {"CumProd", .run = cumprod},
    {0},
};
