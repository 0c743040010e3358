/* Second derivatives: in the complex build the imaginary parts of fv_backward's gradients are the Hessian
 * times the direction that the inputs moved along. */
#include "autograd/check/check.h"

#if defined(FV_COMPLEX)

#include <math.h>

static const double IMAGINARY = 1e-30;

/* The gradient's share along u where the inputs stand a step along v; adds the sizes of its terms. */
static fv_real share(fvi_check *c, uint64_t u, uint64_t v, fv_real step, fv_real *gradient,
                     double *real_scale, double *tangent_scale)
{
    fv_real sum = 0;
    fvi_check_along(c, -1, v);
    c->sampler.step = step;
    const bool ok = fvi_check_gradient(c, c->weights, gradient);
    fvi_check_along(c, -1, u);
    for (int k = 0; ok && k < c->parts; k++) {
        const fv_rng direction = fvi_direction(&c->sampler, k);
        for (size_t i = 0; i < c->part[k].count; i++) {
            fv_real term = gradient[c->part[k].at + i] * fvi_share(&c->sampler, direction, k, i);
            sum += term;
            *real_scale += fabs(fv_re(term));
            *tangent_scale += fabs(fv_im(term)) / IMAGINARY;
        }
    }
    return ok ? sum : (fv_real)NAN;
}

/* u'Hv: the Hessian times v is the tangent of the gradients. */
static double by_tangents(fvi_check *c, uint64_t u, uint64_t v, fv_real *gradient, double *scale)
{
    double unused = 0;
    return fv_im(share(c, u, v, IMAGINARY * (fv_real)I, gradient, &unused, scale)) / IMAGINARY;
}

/* The same from four gradients along v. */
static double by_differences(fvi_check *c, uint64_t u, uint64_t v, double h, fv_real *gradient,
                             double *scale)
{
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    double sum = 0, unused = 0;
    for (int i = 0; i < 4; i++)
        sum += weight[i] * fv_re(share(c, u, v, at[i] * h, gradient, scale, &unused));
    return sum / (12 * h);
}

static bool look(fvi_check *c, fv_real *gradient)
{
    char a[FVI_NUMBER], b[FVI_NUMBER], opening[120];
    fvi_check_opening(c, opening);
    if (c->result->second_order < 0)
        c->result->second_order = 0;
    for (uint64_t trial = 0; trial < (uint64_t)c->o.directions; trial++) {
        const uint64_t u = c->o.seed + 100 + 2 * trial, v = u + 1;
        double scale = 0;
        const double uhv = by_tangents(c, u, v, gradient, &scale),
                     vhu = by_tangents(c, v, u, gradient, &scale);
        const double error = fabs(uhv - vhu) / (scale > 1e-12 ? scale : 1);
        if (c->result->error.status != FV_OK)
            return false;
        if (!(error <= c->result->second_order))
            c->result->second_order = error;
        if (!(error <= c->o.second_order))
            return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_SECOND,
                                 "%ssecond derivative is not symmetric: u'Hv %s, v'Hu %s", opening,
                                 fvi_number(a, uhv, 17), fvi_number(b, vhu, 17));
        /* Smaller steps where a kink is near; differences that do not agree with each other tell nothing. */
        double given = 0, last = 0;
        bool agree = false;
        for (double h = 2e-4; !agree && h > 1e-6; h /= 8) {
            double size = scale;
            last = given;
            given = by_differences(c, u, v, h, gradient, &size);
            agree = fabs(uhv - given) <= 1e-7 * (size > 1 ? size : 1);
        }
        agree = agree || fabs(uhv - given) <= 10 * fabs(given - last);
        if (!agree)
            return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_SECOND,
                                 "%ssecond derivative: backward's tangent gives u'Hv %s, its "
                                 "gradients change by %s",
                                 opening, fvi_number(a, uhv, 17), fvi_number(b, given, 17));
    }
    return true;
}

bool fvi_check_second(fvi_check *c)
{
    fv_gradcheck_result mine = *c->result;
    fv_real *gradient = fvi_check_take(c, c->total, sizeof *gradient);
    if (gradient == NULL)
        return false;
    if (look(c, gradient))
        return true;
    if (c->of_rule || c->result->cause != FV_CAUSE_SECOND)
        return false;
    /* The op whose second derivative is wrong by itself says it better. */
    const fv_gradcheck_result found = *c->result;
    mine.second_order = found.second_order;
    *c->result = mine;
    if (fvi_check_rules(c, fvi_check_second, NULL))
        *c->result = found;
    return false;
}

#elif defined(FV_F64)

bool fvi_check_second(fvi_check *c)
{
    (void)c;
    return true;
}

#endif
