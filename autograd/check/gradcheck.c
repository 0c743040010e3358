/* Gradient checks: fv_backward against how a function changes, and what else must hold of a gradient. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>

/* After a mismatch: an op whose own rule is wrong, or else the element where it shows most. */
static bool explain(fvi_check *c, int part, fv_check_verdict verdict)
{
    char name[300];
    const char *seen = part >= 0 ? fvi_check_name(c, part, name) : NULL;
    if (c->of_rule || verdict != FV_CHECK_FAILED || fvi_check_rules(c, fvi_check_first, seen))
        fvi_check_find(c, part, verdict);
    return fvi_check_say(c, verdict, FV_CAUSE_UNKNOWN, "gradcheck: gradient and function disagree");
}

/* Real steps against the exact tangent, and whether the slope jumps right here: where the imaginary part
 * follows one side of a kink, nothing else would show. */
static bool check_here(fvi_check *c)
{
    double scale, real;
    fvi_check_along(c, -1, c->o.seed + 1 + (uint64_t)c->parts);
    const double given = fvi_check_given(c, c->gradient, &scale);
    const bool jumps = fvi_check_jump(c, scale, &real);
    if (c->result->error.status != FV_OK)
        return false;
    if (jumps)
        return explain(c, -1, FV_CHECK_KINK);
    if (!c->exact || fabs(real - given) <= 1e-6 * scale)
        return true;
    c->exact = false;
    const fvi_look look = fvi_check_look(c, given, scale, 1e-6 * scale);
    if (look.verdict ==
        FV_CHECK_FAILED) { /* the tangent agrees with backward, but not with real steps */
        c->o.first_order = 1e-7;
        explain(c, -1, FV_CHECK_FAILED);
    }
    c->exact = true;
    return look.verdict != FV_CHECK_FAILED;
}

bool fvi_check_first(fvi_check *c)
{
    fv_gradcheck_result *r = c->result;
    int noisy = -2;
    for (int trial = 0; trial < c->parts + c->o.directions; trial++) {
        double scale;
        const int part = trial < c->parts ? trial : -1;
        fvi_check_along(c, part, c->o.seed + 1 + (uint64_t)trial);
        const double given = fvi_check_given(c, c->gradient, &scale);
        double error = fabs(fvi_check_slope(c, c->o.step) - given) / scale;
        const double rounding = 2.2e-16 * (c->exact ? 4 : c->size / c->o.step / scale);
        if (r->error.status != FV_OK)
            return false;
        if (rounding > r->rounding)
            r->rounding = rounding;
        fv_check_verdict verdict = FV_CHECK_PASSED;
        if (!(error <= c->o.first_order)) {
            const fvi_look look = fvi_check_look(c, given, scale, c->o.first_order * scale);
            verdict = look.verdict;
            if (verdict == FV_CHECK_PASSED)
                error = fabs(look.slope - given) / scale;
        }
        if (!(error <= r->first_order))
            r->first_order = error;
        if (verdict == FV_CHECK_NOISY)
            noisy = part;
        else if (verdict != FV_CHECK_PASSED)
            return explain(c, part, verdict);
    }
    if (!check_here(c))
        return false;
    return noisy == -2 || explain(c, noisy, FV_CHECK_NOISY);
}

/* <w, J v> by forward mode against <J' w, v> by reverse mode, w another than the weights. */
static bool check_tangent(fvi_check *c)
{
    char a[FVI_NUMBER], b[FVI_NUMBER];
    double *w = fvi_check_take(c, c->outputs, sizeof *w), forward = 0, scale;
    fv_real *gradient = fvi_check_take(c, c->total, sizeof *gradient);
    if (w == NULL || gradient == NULL)
        return false;
    const fv_rng rng = fv_rng_make(c->o.seed, 3, "projection");
    for (size_t i = 0; i < c->outputs; i++)
        w[i] = fv_rng_normal(rng, i);
    fvi_check_stay(c);
    if (!fvi_check_gradient(c, w, gradient))
        return false;
    fvi_check_along(c, -1, c->o.seed + 50);
    if (!fvi_check_tangent(c, c->o.step))
        return false;
    for (size_t i = 0; i < c->outputs; i++)
        forward += w[i] * c->tangent[i];
    const double reverse = fvi_check_given(c, gradient, &scale);
    c->result->tangent = fabs(forward - reverse) / scale;
    if (c->result->tangent <= c->o.first_order || c->result->verdict != FV_CHECK_PASSED)
        return true;
    c->weights = w;
    c->gradient = gradient;
    const fvi_look look = fvi_check_look(c, reverse, scale, c->o.first_order * scale);
    if (look.verdict == FV_CHECK_PASSED)
        return true;
    if (look.verdict != FV_CHECK_FAILED)
        return explain(c, -1, look.verdict);
    return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_UNKNOWN,
                         "forward mode gives w'(Jv) = %s, reverse mode (J'w)'v = %s",
                         fvi_number(a, forward, 17), fvi_number(b, reverse, 17));
}

static bool check(fvi_check *c)
{
    bool ok =
        fvi_check_open(c) && fvi_check_same(c) && fvi_check_first(c) && fvi_check_rules_add(c);
    ok = ok && check_tangent(c) && (!c->o.full || fvi_check_elements(c)) &&
         (!c->o.jacobian || fvi_check_jacobian(c));
#if defined(FV_COMPLEX)
    ok = ok && (c->o.first_only || fvi_check_second(c));
#endif
    ok = ok && c->result->error.status == FV_OK;
    if (!ok && c->result->verdict == FV_CHECK_PASSED)
        c->result->verdict = FV_CHECK_FAILED;
    fvi_check_close(c);
    return ok;
}

bool fv_gradcheck(fv_check_fn fn, void *context, const fv_gradcheck_opts *opts,
                  fv_gradcheck_result *result)
{
    *result = (fv_gradcheck_result){.second_order = -1, .tangent = -1};
    fvi_check c = {
        .fn = fn, .context = context, .o = opts ? *opts : (fv_gradcheck_opts){0}, .result = result};
    return check(&c);
}

bool fv_gradcheck_params(fv_model_fn fn, fv_params *params, void *context,
                         const fv_gradcheck_opts *opts, fv_gradcheck_result *result)
{
    *result = (fv_gradcheck_result){.second_order = -1, .tangent = -1};
    if (params == NULL || fv_params_error(params)->status != FV_OK) {
        const fv_error *e = params ? fv_params_error(params) : NULL;
        result->verdict = FV_CHECK_FAILED;
        return fv_fail(&result->error, e ? e->status : FV_USAGE, "%s",
                       e ? e->text : "gradcheck: no parameters");
    }
    fvi_check c = {.model = fn,
                   .params = params,
                   .context = context,
                   .o = opts ? *opts : (fv_gradcheck_opts){0},
                   .result = result};
    return check(&c);
}

#else

static bool refuse(fv_gradcheck_result *result)
{
    *result = (fv_gradcheck_result){.verdict = FV_CHECK_FAILED, .second_order = -1, .tangent = -1};
    return fv_fail(&result->error, FV_USAGE,
                   "gradcheck: float has too few digits; link libfoveac (exact) or libfovea64");
}

bool fv_gradcheck(fv_check_fn fn, void *context, const fv_gradcheck_opts *opts,
                  fv_gradcheck_result *result)
{
    (void)fn;
    (void)context;
    (void)opts;
    return refuse(result);
}

bool fv_gradcheck_params(fv_model_fn fn, fv_params *params, void *context,
                         const fv_gradcheck_opts *opts, fv_gradcheck_result *result)
{
    (void)fn;
    (void)params;
    (void)context;
    (void)opts;
    return refuse(result);
}

#endif
