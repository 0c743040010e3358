/* Gradient checks. In the complex build an input x + i h v gives L(x) + i h v'grad(L) with no difference
 * taken (Squire and Trapp, 1998): the imaginary part is the derivative along v to the last digits, and the
 * imaginary parts of fv_backward's gradients are the Hessian times v. In the double build the derivative
 * comes from four points, (8 (L(h) - L(-h)) - (L(2h) - L(-2h))) / 12h, good to h^4. */
#include "autograd/internal.h"

#include <math.h>
#include <string.h>

/* The number that direction `seed` has at an element of an input: normal, the same in each call. */
static double along(uint64_t seed, int input, size_t index)
{
    char name[32];
    snprintf(name, sizeof name, "direction %d", input);
    return fv_rng_normal(fv_rng_make(seed, 0, name), index);
}

fv_tape *fv_sampler_tape(fv_sampler *s)
{
    return s->tape;
}

fv_rng fv_sampler_rng(const fv_sampler *s)
{
    return fv_rng_make(s->seed, 1, "sampler");
}

fv_var *fv_sample(fv_sampler *s, fv_shape shape, double low, double high)
{
    const int max = (int)(sizeof s->input / sizeof *s->input);
    if (s->inputs == max)
        return fv_refuse(s->tape, "sample", "more than %d inputs", max);
    const int input = s->inputs;
    char name[32];
    snprintf(name, sizeof name, "input %d", input);
    fv_rng rng = fv_rng_make(s->seed, 0, name);
    size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(s->tape, count, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++) {
        double x = low + (high - low) * fv_rng_uniform(rng, i);
        if (fabs(x) < 0.05) /* away from the kinks at zero */
            x = high >= 0.05 ? 0.05 + fabs(x) : -0.05 - fabs(x);
        data[i] = (fv_real)x;
        if (s->only >= 0 && s->only != input)
            continue;
        if (s->only_index == SIZE_MAX)
            data[i] += s->step * (fv_real)along(s->direction, input, i);
        else if (s->only_index == i)
            data[i] += s->step;
    }
    s->input[s->inputs++] = data ? fv_input(s->tape, shape, data) : NULL;
    return s->input[input];
}

#if defined(FV_F64) || defined(FV_COMPLEX)

/* One evaluation: the output projected on fixed random weights. NULL: the tape says why. */
static fv_var *evaluate(fv_sampler *s, fv_check_fn fn, void *context)
{
    fv_tape_begin(s->tape, FV_TRAIN, s->seed, 0);
    s->inputs = 0;
    fv_var *y = fn(s, context);
    if (y == NULL)
        return NULL;
    size_t count = fvi_count(y);
    fv_rng rng = fv_rng_make(s->seed, 2, "projection");
    fv_real *weights = fv_tape_alloc(s->tape, count, sizeof *weights);
    for (size_t i = 0; weights != NULL && i < count; i++)
        weights[i] = (fv_real)fv_rng_normal(rng, i);
    return fv_sum(s->tape, fv_mul(s->tape, y, fv_constant(s->tape, y->value.shape, weights)), NULL);
}

#if defined(FV_COMPLEX)
static const double H = 1e-30;
#else
static const double H = 1e-3;
#endif

/* The derivative along what the sampler is set to move; NAN after a failure that the tape explains. */
static double derivative(fv_sampler *s, fv_check_fn fn, void *context)
{
#if defined(FV_COMPLEX)
    s->step = H * (fv_real)I;
    fv_var *y = evaluate(s, fn, context);
    s->step = 0;
    return y ? fv_im(y->value.data[0]) / H : (double)NAN;
#else
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        s->step = at[i] * H;
        fv_var *y = evaluate(s, fn, context);
        sum += y ? weight[i] * y->value.data[0] : (double)NAN;
    }
    s->step = 0;
    return sum / (12 * H);
#endif
}

/* A copy of the gradients of all inputs, end to end; NULL when memory is out. */
static fv_real *copy_gradients(const fv_sampler *s, size_t *total)
{
    *total = 0;
    for (int k = 0; k < s->inputs; k++)
        *total += fvi_count(s->input[k]);
    fv_real *copy = fvi_calloc(*total, sizeof *copy);
    for (size_t k = 0, at = 0; copy != NULL && k < (size_t)s->inputs; k++) {
        size_t count = fvi_count(s->input[k]);
        if (s->input[k]->grad != NULL)
            memcpy(copy + at, s->input[k]->grad, count * sizeof *copy);
        at += count;
    }
    return copy;
}

/* The gradient's share along a direction, and the scale that its error is measured against. */
static double projected(const fv_sampler *s, const fv_real *gradient, uint64_t direction, int only,
                        double *scale)
{
    double sum = 0;
    *scale = 0;
    for (int k = 0; k < s->inputs; k++) {
        size_t count = fvi_count(s->input[k]);
        for (size_t i = 0; (only < 0 || only == k) && i < count; i++) {
            double term = (double)fv_re(gradient[i]) * along(direction, k, i);
            sum += term;
            *scale += fabs(term);
        }
        gradient += count;
    }
    return sum;
}

/* After a failed direction: the element of the input whose derivative differs most. */
static void name_culprit(fv_sampler *s, fv_check_fn fn, void *context, const fv_real *gradient,
                         fv_gradcheck_result *result)
{
    size_t before = 0, worst_index = 0;
    int worst_input = 0;
    double worst = -1, worst_exact = 0, worst_given = 0;
    char a[FVI_NUMBER], b[FVI_NUMBER];
    const int inputs = s->inputs;
    for (int k = 0; k < inputs; k++) {
        size_t count = fvi_count(s->input[k]);
        for (size_t i = 0; i < count; i++) {
            s->only = k;
            s->only_index = i;
            double exact = derivative(s, fn, context), given = (double)fv_re(gradient[before + i]);
            double apart = isnan(exact - given) ? (double)INFINITY : fabs(exact - given);
            if (apart > worst) {
                worst = apart;
                worst_input = k;
                worst_index = i;
                worst_exact = exact;
                worst_given = given;
            }
        }
        before += count;
    }
    fv_fail(&result->error, FV_FAILED,
            "gradient of input %d at element %zu: backward gives %s, the function changes by %s",
            worst_input, worst_index, fvi_number(a, worst_given, 17),
            fvi_number(b, worst_exact, 17));
}

/* The gradient against the derivative along each input alone (directions 1 ..) and all together. */
static bool check_first(fv_sampler *s, fv_check_fn fn, void *context, const fv_gradcheck_opts *o,
                        fv_gradcheck_result *result)
{
    size_t total;
    s->only = -1;
    s->only_index = SIZE_MAX;
    s->step = 0;
    fv_var *y = evaluate(s, fn, context);
    if (!fv_backward(s->tape, y))
        return fv_fail(&result->error, fv_tape_error(s->tape)->status, "%s",
                       fv_tape_error(s->tape)->text);
    fv_real *gradient = copy_gradients(s, &total);
    if (gradient == NULL)
        return fv_fail(&result->error, FV_FAILED, "gradcheck: no inputs, or out of memory");
    const int inputs = s->inputs;
    bool ok = true;
    for (int trial = 0; ok && trial < inputs + o->directions; trial++) {
        double scale;
        s->only = trial < inputs ? trial : -1;
        s->only_index = SIZE_MAX;
        s->direction = o->seed + 1 + (uint64_t)trial;
        double exact = derivative(s, fn, context);
        double given = projected(s, gradient, s->direction, s->only, &scale);
        double error = fabs(exact - given) / (scale > 1e-12 ? scale : 1);
        if (!(error <= result->first_order))
            result->first_order = error;
        if (!(error <= o->first_order)) {
            name_culprit(s, fn, context, gradient, result);
            ok = false;
        }
    }
    fvi_free(gradient);
    return ok;
}

#if defined(FV_COMPLEX)
/* The gradient's share along u where the inputs stand a step along v; adds the sizes of its terms. */
static fv_real share(fv_sampler *s, fv_check_fn fn, void *context, uint64_t u, uint64_t v,
                     fv_real step, double *real_scale, double *tangent_scale)
{
    fv_real sum = 0;
    s->only = -1;
    s->only_index = SIZE_MAX;
    s->direction = v;
    s->step = step;
    fv_var *y = evaluate(s, fn, context);
    s->step = 0;
    if (!fv_backward(s->tape, y))
        return (double)NAN;
    for (int k = 0; k < s->inputs; k++)
        for (size_t i = 0; s->input[k]->grad != NULL && i < fvi_count(s->input[k]); i++) {
            fv_real term = s->input[k]->grad[i] * along(u, k, i);
            sum += term;
            *real_scale += fabs(fv_re(term));
            *tangent_scale += fabs(fv_im(term)) / H;
        }
    return sum;
}

/* u'Hv: the Hessian times v is the tangent of the gradients. */
static double by_tangents(fv_sampler *s, fv_check_fn fn, void *context, uint64_t u, uint64_t v,
                          double *scale)
{
    double unused = 0;
    return fv_im(share(s, fn, context, u, v, H * (fv_real)I, &unused, scale)) / H;
}

/* The same from four gradients along v. */
static double by_differences(fv_sampler *s, fv_check_fn fn, void *context, uint64_t u, uint64_t v,
                             double *scale)
{
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1}, h = 2e-4;
    double sum = 0, unused = 0;
    for (int i = 0; i < 4; i++)
        sum += weight[i] * fv_re(share(s, fn, context, u, v, at[i] * h, scale, &unused));
    return sum / (12 * h);
}

static bool check_second(fv_sampler *s, fv_check_fn fn, void *context, const fv_gradcheck_opts *o,
                         fv_gradcheck_result *result)
{
    char a[FVI_NUMBER], b[FVI_NUMBER];
    result->second_order = 0;
    for (uint64_t trial = 0; trial < (uint64_t)o->directions; trial++) {
        const uint64_t u = o->seed + 100 + 2 * trial, v = u + 1;
        double scale = 0;
        double uhv = by_tangents(s, fn, context, u, v, &scale),
               vhu = by_tangents(s, fn, context, v, u, &scale);
        double error = fabs(uhv - vhu) / (scale > 1e-12 ? scale : 1);
        if (!(error <= result->second_order))
            result->second_order = error;
        if (!(error <= o->second_order))
            return fv_fail(&result->error, FV_FAILED,
                           "second derivative is not symmetric: u'Hv %s, v'Hu %s",
                           fvi_number(a, uhv, 17), fvi_number(b, vhu, 17));
        double given = by_differences(s, fn, context, u, v, &scale);
        if (!(fabs(uhv - given) <= 1e-7 * (scale > 1 ? scale : 1)))
            return fv_fail(&result->error, FV_FAILED,
                           "second derivative: backward's tangent gives u'Hv %s, its gradients "
                           "change by %s",
                           fvi_number(a, uhv, 17), fvi_number(b, given, 17));
    }
    return true;
}
#endif

bool fv_gradcheck(fv_check_fn fn, void *context, const fv_gradcheck_opts *opts,
                  fv_gradcheck_result *result)
{
    fv_gradcheck_opts o = opts ? *opts : (fv_gradcheck_opts){0};
#if defined(FV_COMPLEX)
    o.first_order = o.first_order > 0 ? o.first_order : 1e-12;
#else
    o.first_order = o.first_order > 0 ? o.first_order : 1e-7;
#endif
    o.second_order = o.second_order > 0 ? o.second_order : 1e-10;
    o.directions = o.directions > 0 ? o.directions : 3;
    *result = (fv_gradcheck_result){.second_order = -1};
    fv_sampler s = {.tape = fv_tape_new(NULL), .seed = o.seed};
    if (s.tape == NULL)
        return fv_fail(&result->error, FV_FAILED, "gradcheck: out of memory");
    bool ok = check_first(&s, fn, context, &o, result);
#if defined(FV_COMPLEX)
    ok = ok && check_second(&s, fn, context, &o, result);
#endif
    fv_tape_free(s.tape);
    return ok;
}

#else

bool fv_gradcheck(fv_check_fn fn, void *context, const fv_gradcheck_opts *opts,
                  fv_gradcheck_result *result)
{
    (void)fn;
    (void)context;
    (void)opts;
    *result = (fv_gradcheck_result){.second_order = -1};
    return fv_fail(&result->error, FV_USAGE,
                   "gradcheck: float has too few digits; link libfoveac (exact) or libfovea64");
}

#endif
