/* Variances, standard deviations, log-sum-exp, norms: reductions in two passes, or with a root. */
#include "autograd/ops/reduce.h"

#include <math.h>

#include "tensor/math.h"

#if defined(FV_COMPLEX)
#define wide_sqrt fvi_sqrt
#define wide_log  fvi_log
#define wide_pow  fvi_pow
#else /* of a sum in double, which may be larger than a float */
#define wide_sqrt sqrt
#define wide_log  log
#define wide_pow  pow
#endif

/* Folds x, with a number c for each result, into numbers of the tape. NULL when memory is out. */
static fvi_wide *fold_to_wide(fv_tape *t, const fv_var *y, fold_kind kind, const fvi_wide *c)
{
    fold f = fold_of(y, kind);
    f.c = c;
    f.p = ((const reduction *)y->options)->number;
    f.wide = fvi_tape_take(t, fvi_count(y), sizeof *f.wide);
    if (f.wide != NULL)
        fvi_fold(t, &f, y->in[0]->value.data);
    return fv_tape_ok(t) ? f.wide : NULL;
}

/* Folds x into wide numbers of the tape, and with these as c once more. */
static bool fold_twice(fv_tape *t, const fv_var *y, fold *first, fold *then)
{
    first->wide = fvi_tape_take(t, fvi_count(y), sizeof *first->wide);
    then->c = first->wide;
    first->then = then;
    if (first->wide != NULL)
        fvi_fold(t, first, y->in[0]->value.data);
    return fv_tape_ok(t);
}

/* What a backward rule needs of each result: a factor of its numbers' slopes, and c. */
typedef struct {
    fv_real *dx, *factor;
    bool blank; /* dx is not yet zeroed */
    fvi_wide *c;
    fvi_mark mark;
} shares;

/* False when x needs no gradient, or memory is out. */
static bool begin_shares(fv_tape *t, const fv_var *y, shares *s)
{
    s->dx = fvi_grad_blank(t, y->in[0], &s->blank);
    if (s->dx == NULL)
        return false;
    s->mark = fvi_arena_mark(&t->arena);
    s->factor = fvi_tape_take(t, fvi_count(y), sizeof *s->factor);
    s->c = fvi_tape_take(t, fvi_count(y), sizeof *s->c);
    return fv_tape_ok(t);
}

static void end_shares(fv_tape *t, const fv_var *y, const shares *s, slope_kind kind)
{
    spread all = spread_of(y, kind);
    all.p = ((const reduction *)y->options)->number;
    all.factor = s->factor;
    all.c = s->c;
    all.blank = s->blank;
    fvi_spread(t, &all, y->in[0]->value.data, s->dx);
    fvi_arena_release(&t->arena, s->mark);
}

/* ---- variance, std ----------------------------------------------------------------------------- */

/* The number of numbers less the correction, which may not be more than that. */
static double freedom(const fv_var *y)
{
    const reduction *r = y->options;
    return (double)r->count - r->number;
}

/* First the means, which backward needs too, then the squares. */
static bool variance_forward(fv_tape *t, fv_var *y)
{
    const reduction *r = y->options;
    fold mean = fold_of(y, FOLD_SUM), squares = fold_of(y, FOLD_CENTRED);
    mean.over = (double)r->count;
    squares.y = y->value.data;
    squares.over = freedom(y) > 0 ? freedom(y) : 0;
    const bool good = fold_twice(t, y, &mean, &squares);
    y->saved = mean.wide;
    return good;
}

/* dx = 2 dy (x - mean) / (count - correction) */
static void variance_backward(fv_tape *t, fv_var *y)
{
    shares s;
    const fvi_wide *mean = y->saved;
    if (!begin_shares(t, y, &s))
        return;
    for (size_t i = 0, n = fvi_count(y); i < n; i++) {
        s.factor[i] = (fv_real)(2 / freedom(y)) * y->grad[i];
        s.c[i] = mean[i];
    }
    end_shares(t, y, &s, SLOPE_CENTRED);
}

static bool std_forward(fv_tape *t, fv_var *y)
{
    if (!variance_forward(t, y))
        return false;
    for (size_t i = 0, n = fvi_count(y); i < n; i++)
        y->value.data[i] = fvi_sqrt(y->value.data[i]);
    return true;
}

/* dx = dy (x - mean) / ((count - correction) y), 0 where y is 0 */
static void std_backward(fv_tape *t, fv_var *y)
{
    shares s;
    const fvi_wide *mean = y->saved;
    if (!begin_shares(t, y, &s))
        return;
    for (size_t i = 0, n = fvi_count(y); i < n; i++) {
        const fv_real std = y->value.data[i];
        s.factor[i] = fv_re(std) == 0 ? 0 : y->grad[i] / ((fv_real)freedom(y) * std);
        s.c[i] = mean[i];
    }
    end_shares(t, y, &s, SLOPE_CENTRED);
}

static fv_var *variance_of(fv_sampler *s, int which,
                           fv_var *(*op)(fv_tape *t, fv_var *x, const fv_axes *axes,
                                         double correction))
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, which < 4 ? FV_SHAPE(4, 6) : FV_SHAPE(2, 3, 2, 2), -2, 2);
    switch (which) {
    case 0:
        return op(t, x, NULL, 1);
    case 1:
        return op(t, x, FV_AXES(-1), 0);
    case 2:
        return op(t, x, FV_KEEP(0), 1);
    case 3:
        return op(t, fv_mul(t, x, x), FV_AXES(1), 0.5);
    default:
        return op(t, x, FV_AXES(3, 1), 1);
    }
}

static fv_var *variance_sample(fv_sampler *s, int which)
{
    return variance_of(s, which, fv_variance);
}
FVI_OP(variance, "y = sum((x - mean)^2) / (count - correction)", "", 5)

static fv_var *std_sample(fv_sampler *s, int which)
{
    return variance_of(s, which, fv_std);
}
FVI_OP(std, "y = sqrt(variance(x))", "", 5)

/* ---- logsumexp --------------------------------------------------------------------------------- */

/* The largest first, so that no power overflows. */
static bool logsumexp_forward(fv_tape *t, fv_var *y)
{
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fold most = fold_of(y, FOLD_MAX), sum = fold_of(y, FOLD_EXPS);
    sum.wide = fvi_tape_take(t, fvi_count(y), sizeof *sum.wide);
    const bool good = sum.wide != NULL && fold_twice(t, y, &most, &sum);
    for (size_t i = 0, n = good ? fvi_count(y) : 0; i < n; i++)
        y->value.data[i] = (fv_real)(most.wide[i] + wide_log(sum.wide[i]));
    fvi_arena_release(&t->arena, mark);
    return fv_tape_ok(t);
}

/* dx = dy e^(x - y), 0 where y is -inf */
static void logsumexp_backward(fv_tape *t, fv_var *y)
{
    shares s;
    if (!begin_shares(t, y, &s))
        return;
    for (size_t i = 0, n = fvi_count(y); i < n; i++) {
        const bool none = fv_re(y->value.data[i]) == -(double)INFINITY;
        s.factor[i] = none ? 0 : y->grad[i];
        s.c[i] = none ? 0 : y->value.data[i];
    }
    end_shares(t, y, &s, SLOPE_EXP);
}

static fv_var *logsumexp_sample(fv_sampler *s, int which)
{
    static const fv_axes axes[] = {
        {2, {0, 1}, true}, {1, {0}, false}, {1, {-1}, false}, {1, {1}, true}};
    fv_tape *t = fv_sampler_tape(s);
    if (which == 4)
        return fv_logsumexp(t, fv_sample(s, FV_SCALAR, -2, 2), NULL);
    return fv_logsumexp(t, fv_sample(s, which == 3 ? FV_SHAPE(2, 3, 2) : FV_SHAPE(3, 20), -4, 4),
                        &axes[which]);
}
FVI_OP(logsumexp, "y = ln(sum(e^x))", "", 5)

/* ---- vector_norm ------------------------------------------------------------------------------- */

static fold_kind norm_fold(double p)
{
    return p == 2     ? FOLD_SQUARES
           : p == 1   ? FOLD_ABS
           : p == 0   ? FOLD_NOT_ZERO
           : isinf(p) ? (p > 0 ? FOLD_MAX_ABS : FOLD_MIN_ABS)
                      : FOLD_POWERS;
}

static bool vector_norm_forward(fv_tape *t, fv_var *y)
{
    const double p = ((const reduction *)y->options)->number;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    const fvi_wide *sum = fold_to_wide(t, y, norm_fold(p), NULL);
    for (size_t i = 0, n = sum ? fvi_count(y) : 0; i < n; i++)
        y->value.data[i] = (fv_real)(p == 2                         ? wide_sqrt(sum[i])
                                     : p == 1 || p == 0 || isinf(p) ? sum[i]
                                                                    : wide_pow(sum[i], 1 / p));
    fvi_arena_release(&t->arena, mark);
    return fv_tape_ok(t);
}

/* dx = dy sign(x) (|x| / y)^(p - 1), 0 where y is 0; p = 0: 0; p infinite: dy sign(x) / (how many |x|
 * equal y) where |x| equals y */
static void vector_norm_backward(fv_tape *t, fv_var *y)
{
    const double p = ((const reduction *)y->options)->number;
    const size_t count = fvi_count(y);
    const fvi_wide *ties = NULL;
    shares s;
    if (p == 0 || !begin_shares(t, y, &s))
        return;
    for (size_t i = 0; i < count; i++)
        s.c[i] = y->value.data[i];
    if (isinf(p) && (ties = fold_to_wide(t, y, FOLD_EQUAL_ABS, s.c)) == NULL)
        return;
    for (size_t i = 0; i < count; i++) {
        const fv_real norm = y->value.data[i], dy = y->grad[i];
        if (ties != NULL)
            s.factor[i] = (fv_real)(dy / ties[i]);
        else if (p == 1)
            s.factor[i] = dy;
        else if (fv_re(norm) == 0)
            s.factor[i] = 0;
        else
            s.factor[i] = p == 2 ? dy / norm : dy * fvi_pow(norm, 1 - p);
    }
    end_shares(t, y, &s,
               isinf(p) ? SLOPE_EQUAL_SIGN
               : p == 2 ? SLOPE_X
               : p == 1 ? SLOPE_SIGN
                        : SLOPE_POWER);
}

static fv_var *vector_norm_sample(fv_sampler *s, int which)
{
    static const double p[] = {2, 1, 3, 1.5, 0.5, -1, (double)INFINITY, -(double)INFINITY, 2, 2};
    fv_tape *t = fv_sampler_tape(s);
    if (which == 8)
        return fv_vector_norm(t, fv_sample(s, FV_SCALAR, -2, 2), NULL, 2);
    if (which == 9)
        return fv_vector_norm(t, fv_sample(s, FV_SHAPE(2, 3, 2), -2, 2), FV_KEEP(0, 2), 2);
    if (which == 10) { /* the number of numbers that are not 0, and a value that moves */
        fv_var *x = fv_sample(s, FV_SHAPE(3, 4), -2, 2);
        return fv_mul(t, fv_vector_norm(t, x, FV_KEEP(1), 0), fv_vector_norm(t, x, FV_KEEP(1), 2));
    }
    return fv_vector_norm(t, sample_apart(s, FV_SHAPE(3, 5)), FV_AXES(which % 2), p[which]);
}
FVI_OP(vector_norm, "y = (sum |x|^p)^(1 / p)", "", 11)

#if FVI_ONCE
fv_var *fv_variance(fv_tape *t, fv_var *x, const fv_axes *axes, double correction)
{
    reduction r = {.number = correction};
    fv_shape shape;
    if (!reduced(t, "variance", x, axes, &r, &shape))
        return NULL;
    if (!isfinite(correction))
        return fv_refuse(t, "variance", "correction %g of %s, expected a number", correction,
                         fv_describe(t, x));
    return fvi_record(t, FVI_OP_variance, shape, &r, sizeof r, 1, &x);
}

fv_var *fv_std(fv_tape *t, fv_var *x, const fv_axes *axes, double correction)
{
    reduction r = {.number = correction};
    fv_shape shape;
    if (!reduced(t, "std", x, axes, &r, &shape))
        return NULL;
    if (!isfinite(correction))
        return fv_refuse(t, "std", "correction %g of %s, expected a number", correction,
                         fv_describe(t, x));
    return fvi_record(t, FVI_OP_std, shape, &r, sizeof r, 1, &x);
}

fv_var *fv_logsumexp(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    reduction r = {.count = 0};
    fv_shape shape;
    return reduced(t, "logsumexp", x, axes, &r, &shape)
               ? fvi_record(t, FVI_OP_logsumexp, shape, &r, sizeof r, 1, &x)
               : NULL;
}

fv_var *fv_vector_norm(fv_tape *t, fv_var *x, const fv_axes *axes, double p)
{
    reduction r = {.number = p};
    fv_shape shape;
    if (!reduced(t, "vector_norm", x, axes, &r, &shape))
        return NULL;
    if (isnan(p))
        return fv_refuse(t, "vector_norm", "p is not a number");
    if (r.count == 0 && (p < 0 || isinf(p)))
        return fv_refuse(t, "vector_norm", "%s: of no numbers", fv_describe(t, x));
    return fvi_record(t, FVI_OP_vector_norm, shape, &r, sizeof r, 1, &x);
}
#endif
