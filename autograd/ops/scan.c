/* Running sums and products along an axis, and where its largest number stands. */
#include "tensor/kernel/tile.h"

#include "autograd/ops/walk.h"

/* The options of a scan. */
typedef struct {
    int axis;
    bool exclusive, reverse;
} scan;

/* Neighbouring lines along the axis that go together, so that rows of memory are read whole. */
enum { TOGETHER = 1024 };

/* A bundle of such lines: place i (in the order of the scan) of line j is at first + i * step + j. */
typedef struct {
    size_t n, lines;
    ptrdiff_t first, step;
} bundle;

/* How many bundles there are around an axis. */
static size_t count_bundles(const axis_view *v)
{
    return v->outer * ((v->inner + TOGETHER - 1) / TOGETHER);
}

static bundle bundle_at(const axis_view *v, bool reverse, size_t number)
{
    const size_t across = (v->inner + TOGETHER - 1) / TOGETHER;
    const size_t j = number % across * TOGETHER, first = number / across * v->n * v->inner + j;
    const size_t last = v->n > 0 ? (v->n - 1) * v->inner : 0;
    return (bundle){v->n, v->inner - j < TOGETHER ? v->inner - j : TOGETHER,
                    (ptrdiff_t)(first + (reverse ? last : 0)),
                    reverse ? -(ptrdiff_t)v->inner : (ptrdiff_t)v->inner};
}

/* Calls run(y, bundle) for every bundle of the scan, from as many threads as that repays. */
static void each_bundle(const fv_tape *t, fv_var *y, bool reverse,
                        void (*run)(fv_var *y, const bundle *b))
{
    const scan *o = y->options;
    const axis_view v = view_axis(y->value.shape, o->axis);
    const size_t count = count_bundles(&v);
    const int parts =
        parts_of(t, count, 2 * v.n * (v.inner < TOGETHER ? v.inner : (size_t)TOGETHER));
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            const bundle b = bundle_at(&v, reverse, i);
            run(y, &b);
        }
    }
}

/* ---- cumsum ------------------------------------------------------------------------------------ */

/* out = running sums of in, or out += them. */
FVI_INLINE void running_sums(const bundle *b, size_t lines, bool exclusive, bool add,
                             const fv_real *restrict in, fv_real *restrict out)
{
    fvi_wide sum[TOGETHER];
    for (size_t j = 0; j < lines; j++)
        sum[j] = 0;
    for (size_t i = 0; i < b->n; i++) {
        const ptrdiff_t row = b->first + (ptrdiff_t)i * b->step;
        const fv_real *restrict x = in + row;
        fv_real *restrict y = out + row;
        for (size_t j = 0; j < lines; j++) {
            const fvi_wide before = sum[j], with = before + x[j];
            const fv_real now = (fv_real)(exclusive ? before : with);
            sum[j] = with;
            y[j] = add ? y[j] + now : now;
        }
    }
}

static void cumsum_bundle(fv_var *y, const bundle *b)
{
    const bool exclusive = ((const scan *)y->options)->exclusive;
    if (b->lines == 1)
        running_sums(b, 1, exclusive, false, y->in[0]->value.data, y->value.data);
    else
        running_sums(b, b->lines, exclusive, false, y->in[0]->value.data, y->value.data);
}

static bool cumsum_forward(fv_tape *t, fv_var *y)
{
    each_bundle(t, y, ((const scan *)y->options)->reverse, cumsum_bundle);
    return true;
}

static void cumsum_bundle_back(fv_var *y, const bundle *b)
{
    const bool exclusive = ((const scan *)y->options)->exclusive;
    if (b->lines == 1)
        running_sums(b, 1, exclusive, true, y->grad, y->in[0]->grad);
    else
        running_sums(b, b->lines, exclusive, true, y->grad, y->in[0]->grad);
}

static void cumsum_bundle_blank(fv_var *y, const bundle *b)
{
    const bool exclusive = ((const scan *)y->options)->exclusive;
    if (b->lines == 1)
        running_sums(b, 1, exclusive, false, y->grad, y->in[0]->grad);
    else
        running_sums(b, b->lines, exclusive, false, y->grad, y->in[0]->grad);
}

/* dx[i] = dy of the places that have x[i] in their sum: the running sums the other way */
static void cumsum_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    if (fvi_grad_blank(t, y->in[0], &blank) != NULL)
        each_bundle(t, y, !((const scan *)y->options)->reverse,
                    blank ? cumsum_bundle_blank : cumsum_bundle_back);
}

static fv_var *scan_sample(fv_sampler *s, int which,
                           fv_var *(*op)(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *opts))
{
    const fv_scan_opts opts = {.exclusive = which & 1, .reverse = which & 2};
    fv_tape *t = fv_sampler_tape(s);
    if (which < 4)
        return op(t, fv_sample(s, FV_SHAPE(2, 5, 3), -2, 2), 1, which ? &opts : NULL);
    if (which < 6)
        return op(t, fv_sample(s, FV_SHAPE(3, 6), -2, 2), -1, &opts);
    return op(t, fv_sample(s, FV_SHAPE(1, 4), -2, 2), 0, &opts);
}

static fv_var *cumsum_sample(fv_sampler *s, int which)
{
    return scan_sample(s, which, fv_cumsum);
}
FVI_OP(cumsum, "y[i] = x[0] + .. + x[i]", "", 7)

/* ---- cumprod ----------------------------------------------------------------------------------- */

static void cumprod_bundle(fv_var *y, const bundle *b)
{
    const scan *o = y->options;
    fvi_wide product[TOGETHER];
    for (size_t j = 0; j < b->lines; j++)
        product[j] = 1;
    for (size_t i = 0; i < b->n; i++) {
        const ptrdiff_t row = b->first + (ptrdiff_t)i * b->step;
        const fv_real *restrict x = y->in[0]->value.data + row;
        fv_real *restrict out = y->value.data + row;
        for (size_t j = 0; j < b->lines; j++) {
            const fvi_wide before = product[j], with = before * x[j];
            out[j] = (fv_real)(o->exclusive ? before : with);
            product[j] = with;
        }
    }
}

static bool cumprod_forward(fv_tape *t, fv_var *y)
{
    each_bundle(t, y, ((const scan *)y->options)->reverse, cumprod_bundle);
    return true;
}

/* From the last place to the first. later: the sum over the places behind this one, in the order of the
 * scan, of dy times the product of what stands between. */
static void cumprod_bundle_back(fv_var *y, const bundle *b)
{
    const scan *o = y->options;
    const fv_real *x = y->in[0]->value.data, *out = y->value.data, *dy = y->grad;
    fv_real *dx = y->in[0]->grad;
    fvi_wide later[TOGETHER];
    for (size_t j = 0; j < b->lines; j++)
        later[j] = 0;
    for (size_t i = b->n; i-- > 0;)
        for (size_t j = 0; j < b->lines; j++) {
            const ptrdiff_t at = b->first + (ptrdiff_t)i * b->step + (ptrdiff_t)j;
            const fvi_wide before = o->exclusive ? out[at] : i > 0 ? out[at - b->step] : 1;
            const fvi_wide here = o->exclusive ? later[j] : dy[at] + later[j];
            dx[at] += (fv_real)(before * here);
            later[j] = x[at] * here + (o->exclusive ? dy[at] : 0);
        }
}

/* dx[i] = (the product before i) * (dy[i] + x[i + 1] (dy[i + 1] + x[i + 2] (..))), without a division, so
 * that zeros do no harm; exclusive: without the first dy */
static void cumprod_backward(fv_tape *t, fv_var *y)
{
    if (fv_grad(t, y->in[0]) != NULL)
        each_bundle(t, y, ((const scan *)y->options)->reverse, cumprod_bundle_back);
}

static fv_var *cumprod_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const fv_real x[] = {1.5f, 0, -0.75f, 1.25f, 0, -2, 0.5f, 0};
    if (which < 7)
        return scan_sample(s, which, fv_cumprod);
    const fv_scan_opts opts = {.exclusive = which == 8};
    return fv_cumprod(t, fv_sample_from(s, FV_SHAPE(2, 4), x), 1, &opts);
}
FVI_OP(cumprod, "y[i] = x[0] .. x[i]", "", 9)

#if FVI_ONCE
static fv_var *record_scan(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, int axis,
                           const fv_scan_opts *opts)
{
    if (!given(t, op, x) || !known_axis(t, op, x, &axis))
        return NULL;
    const scan o = {axis, opts && opts->exclusive, opts && opts->reverse};
    return fvi_record(t, id, x->value.shape, &o, sizeof o, 1, &x);
}

fv_var *fv_cumsum(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *opts)
{
    return record_scan(t, FVI_OP_cumsum, "cumsum", x, axis, opts);
}

fv_var *fv_cumprod(fv_tape *t, fv_var *x, int axis, const fv_scan_opts *opts)
{
    return record_scan(t, FVI_OP_cumprod, "cumprod", x, axis, opts);
}

/* ---- argmax, argmin ---------------------------------------------------------------------------- */

/* Whether a goes before b: NaN before all, as in fv_max. */
static inline bool better(double a, double b, bool smallest)
{
    return b == b && (a != a || (smallest ? a < b : a > b));
}

/* The best places of neighbouring lines. */
FVI_INLINE void best_places(const bundle *b, size_t lines, bool smallest, const fv_real *x,
                            int32_t *best)
{
    double value[TOGETHER];
    for (size_t j = 0; j < lines; j++) {
        value[j] = fv_re(x[b->first + (ptrdiff_t)j]);
        best[j] = 0;
    }
    for (size_t i = 1; i < b->n; i++) {
        const fv_real *restrict row = x + b->first + (ptrdiff_t)i * b->step;
        for (size_t j = 0; j < lines; j++)
            if (better(fv_re(row[j]), value[j], smallest)) {
                value[j] = fv_re(row[j]);
                best[j] = (int32_t)i;
            }
    }
}

static const int32_t *arg_best(fv_tape *t, const char *op, const fv_var *x, int axis, bool smallest)
{
    if (!given(t, op, x) || !known_axis(t, op, x, &axis))
        return NULL;
    const axis_view v = view_axis(x->value.shape, axis);
    if (v.n == 0 || v.n > INT32_MAX) {
        fv_refuse(t, op, "axis %d of %s, expected a size of 1 to 2147483647", axis,
                  fv_describe(t, x));
        return NULL;
    }
    const size_t count = count_bundles(&v), across = count / (v.outer ? v.outer : 1);
    int32_t *best = fvi_tape_take(t, v.outer * v.inner, sizeof *best);
    const int parts = parts_of(t, count, v.n * (v.inner < TOGETHER ? v.inner : (size_t)TOGETHER));
    if (best == NULL)
        return NULL;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            const bundle b = bundle_at(&v, false, i);
            int32_t *to = best + i / across * v.inner + i % across * TOGETHER;
            if (b.lines == 1)
                best_places(&b, 1, smallest, x->value.data, to);
            else
                best_places(&b, b.lines, smallest, x->value.data, to);
        }
    }
    return best;
}

const int32_t *fv_argmax(fv_tape *t, const fv_var *x, int axis)
{
    return arg_best(t, "argmax", x, axis, false);
}

const int32_t *fv_argmin(fv_tape *t, const fv_var *x, int axis)
{
    return arg_best(t, "argmin", x, axis, true);
}
#endif
