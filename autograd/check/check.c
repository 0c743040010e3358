/* One gradient check: running the function where its inputs stand or a step away, and what comes of it.
 * In the complex build an input x + i h v gives y(x) + i h J v with no difference taken (Squire and Trapp,
 * 1998): the imaginary part is the derivative along v to the last digits. In the double build it comes from
 * four points, (8 (y(h) - y(-h)) - (y(2h) - y(-2h))) / 12h, good to h^4, or from two. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <math.h>
#include <stdarg.h>
#include <string.h>

#if defined(FV_COMPLEX)
static const double IMAGINARY = 1e-30; /* the step; its square vanishes */
#endif

bool fvi_check_say(fvi_check *c, fv_check_verdict verdict, fv_check_cause cause, const char *format,
                   ...)
{
    fv_gradcheck_result *r = c->result;
    if (r->error.status != FV_OK)
        return false;
    char text[sizeof r->error.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->verdict = verdict;
    r->cause = cause;
    return fv_fail(&r->error, FV_FAILED, "%s", text);
}

bool fvi_check_stop(fvi_check *c)
{
    const fv_error *e = fv_tape_error(c->sampler.tape);
    c->result->verdict = FV_CHECK_FAILED;
    if (e->status != FV_OK)
        return fv_fail(&c->result->error, e->status, "%s", e->text);
    return fv_fail(&c->result->error, FV_FAILED, "gradcheck: the function gives no value");
}

void *fvi_check_take(fvi_check *c, size_t count, size_t size)
{
    void *block = fvi_arena_take(&c->memory, count, size);
    if (block != NULL)
        return memset(block, 0, count * size);
    fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_NONE, "gradcheck: out of memory");
    return NULL;
}

/* ---- moves ----------------------------------------------------------------------------------------- */

void fvi_check_stay(fvi_check *c)
{
    c->sampler.step = 0;
    c->sampler.only = -1;
    c->sampler.only_index = SIZE_MAX;
    c->sampler.end = 0;
}

void fvi_check_along(fvi_check *c, int only, uint64_t direction)
{
    fvi_check_stay(c);
    c->sampler.only = only;
    c->sampler.direction = direction;
}

void fvi_check_element(fvi_check *c, int part, size_t index)
{
    fvi_check_stay(c);
    c->sampler.only = part;
    c->sampler.only_index = index;
}

fv_var *fvi_check_run(fvi_check *c)
{
    fv_sampler *s = &c->sampler;
    fv_tape_begin(s->tape, FV_TRAIN, s->seed, 0);
    s->inputs = 0;
    for (int k = 0; c->model != NULL && k < c->parts; k++) {
        const fvi_part *p = &c->part[k];
        memcpy(p->param->value.data, c->start + p->at, p->count * sizeof(fv_real));
        fvi_move(s, k, p->count, p->param->value.data);
    }
    fv_var *y = c->model ? c->model(s->tape, c->context) : c->fn(s, c->context);
    if (y == NULL || !fv_tape_ok(s->tape) || c->value == NULL)
        return fv_tape_ok(s->tape) ? y : NULL;
    bool same = fvi_count(y) == c->outputs && (c->model != NULL || s->inputs == c->parts);
    for (int k = 0; same && c->model == NULL && k < c->parts; k++)
        same = fvi_count(s->input[k]) == c->part[k].count;
    return same ? y : fv_refuse(s->tape, "gradcheck", "the function builds other shapes each call");
}

/* ---- reverse ----------------------------------------------------------------------------------------- */

/* The gradient of a parameter, a table's touched rows at their places. */
static void copy_param_gradient(const fv_tape *t, const fvi_part *p, fv_real *into)
{
    const fv_real *dense = fv_param_grad(t, p->param), *grad = NULL;
    const int32_t *rows = NULL;
    const size_t touched = fv_touched(t, p->param, &rows, &grad);
    const size_t d = p->shape.rank > 0 ? p->count / p->shape.size[0] : 1;
    if (dense != NULL)
        memcpy(into, dense, p->count * sizeof *into);
    for (size_t i = 0; i < touched; i++)
        for (size_t j = 0; j < d; j++)
            into[(size_t)rows[i] * d + j] += grad[i * d + j];
}

/* y = sum of weight x, an op of the check's own: one of the library could hide its mistake by making it twice. */
static bool project_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const double *weights = *(const double *const *)y->options;
    fvi_wide sum = 0;
    for (size_t i = 0; i < fvi_count(y->in[0]); i++)
        sum += weights[i] * y->in[0]->value.data[i];
    y->value.data[0] = (fv_real)sum;
    return true;
}

/* dx = weight dy */
static void project_backward(fv_tape *t, fv_var *y)
{
    const double *weights = *(const double *const *)y->options;
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t i = 0; dx != NULL && i < fvi_count(y->in[0]); i++)
        dx[i] += (fv_real)weights[i] * y->grad[0];
}

static const fv_op project = {
    .name = "projection", .forward = project_forward, .backward = project_backward};

bool fvi_check_gradient(fvi_check *c, const double *weights, fv_real *into)
{
    fv_tape *t = c->sampler.tape;
    fv_var *y = fvi_check_run(c);
    if (y == NULL)
        return fvi_check_stop(c);
    fv_var *loss = fv_record(t, &project, FV_SCALAR, &weights, sizeof weights, 1, &y);
    if (!fv_backward(t, loss))
        return fvi_check_stop(c);
    memset(into, 0, c->total * sizeof *into);
    for (int k = 0; k < c->parts; k++) {
        const fvi_part *p = &c->part[k];
        if (p->param != NULL)
            copy_param_gradient(t, p, into + p->at);
        else if (c->sampler.input[k]->grad != NULL)
            memcpy(into + p->at, c->sampler.input[k]->grad, p->count * sizeof *into);
    }
    return true;
}

double fvi_check_given(const fvi_check *c, const fv_real *gradient, double *scale)
{
    double sum = 0, squares = 0;
    for (int k = 0; k < c->parts; k++) {
        const fv_rng direction = fvi_direction(&c->sampler, k);
        if (c->sampler.only >= 0 && c->sampler.only != k)
            continue;
        for (size_t i = 0; i < c->part[k].count; i++) {
            const double share = fvi_share(&c->sampler, direction, k, i);
            const double term = share != 0 ? share * fv_re(gradient[c->part[k].at + i]) : 0;
            sum += term;
            squares += term * term;
        }
    }
    /* Below this the gradient is rounding of a larger sum. */
    const double least = 0.01 * (c->size > 1 ? c->size : 1);
    *scale = squares > least * least ? sqrt(squares) : least;
    return sum;
}

/* ---- forward ------------------------------------------------------------------------------------------ */

bool fvi_check_tangent(fvi_check *c, double step)
{
    static const double at[] = {1, -1, 2, -2}, four[] = {8, -8, -1, 1}, two[] = {1, -1};
    const int points = c->exact ? 1 : c->o.points;
    memset(c->tangent, 0, c->outputs * sizeof *c->tangent);
    for (int i = 0; i < points; i++) {
#if defined(FV_COMPLEX)
        c->sampler.step = c->exact ? IMAGINARY * (fv_real)I : (fv_real)(at[i] * step);
#else
        c->sampler.step = at[i] * step;
#endif
        const fv_var *y = fvi_check_run(c);
        c->sampler.step = 0;
        if (y == NULL)
            return fvi_check_stop(c);
        for (size_t j = 0; j < c->outputs; j++) {
#if defined(FV_COMPLEX)
            if (c->exact) {
                c->tangent[j] = fv_im(y->value.data[j]) / IMAGINARY;
                continue;
            }
#endif
            c->tangent[j] += (points == 2 ? two : four)[i] * fv_re(y->value.data[j]);
        }
    }
    for (size_t j = 0; !c->exact && j < c->outputs; j++)
        c->tangent[j] /= (points == 2 ? 2 : 12) * step;
    return true;
}

double fvi_check_slope(fvi_check *c, double step)
{
    double sum = 0;
    if (!fvi_check_tangent(c, step))
        return (double)NAN;
    for (size_t i = 0; i < c->outputs; i++)
        sum += c->weights[i] * c->tangent[i];
    return sum;
}

double fvi_check_change(fvi_check *c, double step)
{
    double sum = 0;
    c->sampler.step = (fv_real)step;
    const fv_var *y = fvi_check_run(c);
    c->sampler.step = 0;
    if (y == NULL) {
        fvi_check_stop(c);
        return (double)NAN;
    }
    for (size_t i = 0; i < c->outputs; i++)
        sum += c->weights[i] * (fv_re(y->value.data[i]) - c->value[i]);
    return sum;
}

/* ---- begin and end --------------------------------------------------------------------------------------- */

static void fill_defaults(fvi_check *c)
{
    fv_gradcheck_opts *o = &c->o;
#if defined(FV_COMPLEX)
    c->exact = o->points == 0;
#endif
    o->points = o->points == 2 ? 2 : 4;
    o->step = o->step > 0 ? o->step : o->points == 2 ? 1e-5 : 1e-3;
    o->first_order = o->first_order > 0 ? o->first_order : c->exact ? 1e-12 : 1e-7;
    o->second_order = o->second_order > 0 ? o->second_order : 1e-10;
    o->directions = o->directions > 0 ? o->directions : 3;
}

static bool take_params(fvi_check *c)
{
    c->part = fvi_check_take(c, fv_params_count(c->params), sizeof *c->part);
    for (size_t i = 0; c->part != NULL && i < fv_params_count(c->params); i++) {
        fv_param *p = fv_params_at(c->params, i);
        if (p->frozen)
            continue;
        c->part[c->parts++] =
            (fvi_part){p, p->value.shape, fv_shape_count(p->value.shape), c->total};
        c->total += fv_shape_count(p->value.shape);
    }
    c->start = c->part ? fvi_check_take(c, c->total, sizeof *c->start) : NULL;
    for (int k = 0; c->start != NULL && k < c->parts; k++)
        memcpy(c->start + c->part[k].at, c->part[k].param->value.data,
               c->part[k].count * sizeof *c->start);
    return c->start != NULL;
}

static bool take_inputs(fvi_check *c)
{
    const fv_sampler *s = &c->sampler;
    c->parts = s->inputs;
    c->part = fvi_check_take(c, (size_t)c->parts, sizeof *c->part);
    for (int k = 0; c->part != NULL && k < c->parts; k++) {
        c->part[k] = (fvi_part){NULL, s->input[k]->value.shape, fvi_count(s->input[k]), c->total};
        c->total += c->part[k].count;
    }
    c->start = c->part ? fvi_check_take(c, c->total, sizeof *c->start) : NULL;
    for (int k = 0; c->start != NULL && k < c->parts; k++)
        memcpy(c->start + c->part[k].at, s->input[k]->value.data,
               c->part[k].count * sizeof *c->start);
    return c->start != NULL;
}

bool fvi_check_open(fvi_check *c)
{
    fill_defaults(c);
    c->sampler.seed = c->o.seed;
    c->sampler.tape = fv_tape_new(&(fv_tape_opts){.isa = c->o.isa});
    if (c->sampler.tape == NULL)
        return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_NONE, "gradcheck: out of memory");
    fvi_check_stay(c);
    if (c->model != NULL && !take_params(c))
        return false;
    const fv_var *y = fvi_check_run(c);
    if (y == NULL)
        return fvi_check_stop(c);
    c->values = c->sampler.tape->recorded;
    if (c->model == NULL && !take_inputs(c))
        return false;
    c->outputs = fvi_count(y);
    double *value = fvi_check_take(c, c->outputs, sizeof *value);
    c->weights = fvi_check_take(c, c->outputs, sizeof *c->weights);
    c->tangent = fvi_check_take(c, c->outputs, sizeof *c->tangent);
    c->gradient = fvi_check_take(c, c->total, sizeof *c->gradient);
    if (c->gradient == NULL || c->tangent == NULL || c->weights == NULL || value == NULL)
        return false;
    const fv_rng rng = fv_rng_make(c->o.seed, 2, "projection");
    for (size_t i = 0; i < c->outputs; i++) {
        value[i] = (double)fv_re(y->value.data[i]);
        c->weights[i] = fv_rng_normal(rng, i);
        c->size += c->weights[i] * value[i] * c->weights[i] * value[i];
    }
    c->size = sqrt(c->size);
    c->value = value;
    return fvi_check_gradient(c, c->weights, c->gradient);
}

void fvi_check_close(fvi_check *c)
{
    for (int k = 0; c->model != NULL && c->start != NULL && k < c->parts; k++)
        memcpy(c->part[k].param->value.data, c->start + c->part[k].at,
               c->part[k].count * sizeof *c->start);
    fv_tape_free(c->sampler.tape);
    fvi_arena_free(&c->memory);
}

#endif
