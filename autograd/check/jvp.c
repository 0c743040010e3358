/* Forward mode: how an output changes when inputs move along given directions. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <string.h>

typedef struct {
    fv_tape *like; /* mode, seed, step and place of the random numbers are its */
    fv_tape_fn fn;
    void *context;
    int count;
    const fv_tensor *x;
} moved_function;

/* A check's function that runs another on given inputs. */
static fv_var *run_moved(fv_sampler *s, void *context)
{
    const moved_function *f = context;
    fv_tape *t = s->tape;
    fv_tape_begin(t, f->like->mode, f->like->seed, f->like->step);
    fv_var **x = fv_tape_alloc(t, (size_t)f->count, sizeof *x);
    for (int i = 0; x != NULL && i < f->count; i++)
        if ((x[i] = fv_sample_from(s, f->x[i].shape, f->x[i].data)) == NULL)
            return NULL;
    if (x == NULL)
        return NULL;
    t->recorded = f->like->recorded;
    return f->fn(t, x, f->context);
}

static bool copy(fv_tape *t, fv_shape shape, const double *from, fv_tensor *to)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(t, count, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++)
        data[i] = (fv_real)from[i];
    *to = (fv_tensor){shape, data};
    return data != NULL;
}

/* y, and its tangent: what a check keeps of an output, for one that has no gradients. */
static bool forward(fvi_check *c, fv_shape *shape)
{
    const fv_var *y = fvi_check_run(c);
    if (y == NULL)
        return fvi_check_stop(c);
    *shape = y->value.shape;
    c->outputs = fvi_count(y);
    c->parts = c->sampler.inputs;
    c->part = fvi_check_take(c, (size_t)c->parts, sizeof *c->part);
    for (int k = 0; c->part != NULL && k < c->parts; k++)
        c->part[k].count = fvi_count(c->sampler.input[k]);
    double *value = fvi_check_take(c, c->outputs, sizeof *value);
    c->tangent = fvi_check_take(c, c->outputs, sizeof *c->tangent);
    if (c->part == NULL || value == NULL || c->tangent == NULL)
        return false;
    for (size_t i = 0; i < c->outputs; i++)
        value[i] = (double)fv_re(y->value.data[i]);
    c->value = value;
    return fvi_check_tangent(c, c->o.step);
}

bool fv_jvp(fv_tape *t, fv_tape_fn fn, void *context, int count, const fv_tensor *x,
            const fv_tensor *v, fv_tensor *value, fv_tensor *tangent)
{
    char a[160], b[160];
    *tangent = (fv_tensor){FV_SCALAR, NULL};
    if (!fv_tape_ok(t))
        return false;
    for (int i = 0; i < count; i++)
        if (v[i].data != NULL && !fv_shape_equal(v[i].shape, x[i].shape))
            return fv_refuse(t, "jvp", "input %d is %s, its direction %s", i,
                             fv_shape_text(x[i].shape, a), fv_shape_text(v[i].shape, b)) != NULL;
    moved_function f = {t, fn, context, count > 0 ? count : 0, x};
    fv_gradcheck_result result = {.second_order = -1};
    fvi_check c = {.fn = run_moved, .context = &f, .result = &result};
    c.o.points = 4;
    c.o.step = 1e-3;
#if defined(FV_COMPLEX)
    c.exact = true;
#endif
    c.sampler.tape = fv_tape_new(&(fv_tape_opts){.threads = t->threads});
    bool ok = c.sampler.tape != NULL;
    if (!ok)
        fv_fail(&t->error, FV_FAILED, "jvp: out of memory");
    if (ok) {
        fv_shape shape;
        c.sampler.tape->ops = t->ops;
        fvi_check_stay(&c);
        c.sampler.along = v;
        ok = forward(&c, &shape);
        if (!ok)
            fv_fail(&t->error, result.error.status, "%s", result.error.text);
        ok = ok && copy(t, shape, c.tangent, tangent) &&
             (value == NULL || copy(t, shape, c.value, value));
    }
    fvi_check_close(&c);
    return ok;
}

#else

bool fv_jvp(fv_tape *t, fv_tape_fn fn, void *context, int count, const fv_tensor *x,
            const fv_tensor *v, fv_tensor *value, fv_tensor *tangent)
{
    (void)fn;
    (void)context;
    (void)count;
    (void)x;
    (void)v;
    (void)value;
    *tangent = (fv_tensor){FV_SCALAR, NULL};
    return fv_refuse(t, "jvp", "float has too few digits; link libfoveac (exact) or libfovea64") !=
           NULL;
}

#endif
