/* Sums, means, products, largest and smallest numbers over axes. */
#include <math.h>

#include "autograd/ops/reduce.h"

static bool fold_to_y(fv_tape *t, fv_var *y, fold_kind kind, double over)
{
    fold f = fold_of(y, kind);
    f.y = y->value.data;
    f.over = over;
    fvi_fold(t, &f, y->in[0]->value.data);
    return fv_tape_ok(t);
}

/* dx = scale * dy of its result */
static void spread_dy(fv_tape *t, fv_var *y, double scale)
{
    spread s = spread_of(y, SLOPE_ONE);
    fv_real *dx = fvi_grad_blank(t, y->in[0], &s.blank);
    s.scale = scale;
    s.factor = y->grad;
    if (dx != NULL)
        fvi_spread(t, &s, y->in[0]->value.data, dx);
}

/* Every way to name axes: all, kept, first, last, some, of one number, none. */
enum { AXES = 10 };
static fv_var *axes_sample(fv_sampler *s, int which, bool apart,
                           fv_var *(*op)(fv_tape *t, fv_var *x, const fv_axes *axes))
{
    static const fv_shape shape[AXES] = {
        {1, {1}},       {2, {4, 6}}, {2, {4, 6}},       {2, {4, 6}},  {3, {3, 4, 2}},
        {3, {3, 4, 2}}, {0, {0}},    {4, {2, 3, 2, 3}}, {2, {3, 20}}, {2, {5, 1}}};
    static const fv_axes axes[AXES] = {
        {.keep = true},     {.count = 0}, {1, {0}, false},   {1, {-1}, true}, {1, {1}, false},
        {2, {2, 0}, false}, {.count = 0}, {2, {1, 3}, true}, {1, {1}, false}, {1, {1}, false}};
    fv_var *x = apart ? sample_apart(s, shape[which]) : fv_sample(s, shape[which], -2, 2);
    return op(fv_sampler_tape(s), x, which == 1 ? NULL : &axes[which]);
}

/* ---- sum, mean --------------------------------------------------------------------------------- */

static bool sum_forward(fv_tape *t, fv_var *y)
{
    return fold_to_y(t, y, FOLD_SUM, 1);
}

/* dx = dy */
static void sum_backward(fv_tape *t, fv_var *y)
{
    spread_dy(t, y, 1);
}

static fv_var *sum_sample(fv_sampler *s, int which)
{
    return axes_sample(s, which, false, fv_sum);
}
FVI_OP(sum, "y = sum(x)", "", 10)

static bool mean_forward(fv_tape *t, fv_var *y)
{
    return fold_to_y(t, y, FOLD_SUM, (double)((const reduction *)y->options)->count);
}

/* dx = dy / count */
static void mean_backward(fv_tape *t, fv_var *y)
{
    spread_dy(t, y, 1 / (double)((const reduction *)y->options)->count);
}

static fv_var *mean_sample(fv_sampler *s, int which)
{
    return axes_sample(s, which, false, fv_mean);
}
FVI_OP(mean, "y = sum(x) / count", "", 10)

/* ---- prod -------------------------------------------------------------------------------------- */

static bool prod_forward(fv_tape *t, fv_var *y)
{
    return fold_to_y(t, y, FOLD_PRODUCT, 1);
}

/* One result's numbers in order, cut into FVI_LANES parts of n that stand side by side, ones at the end. */
typedef struct {
    size_t n;
    fv_real *x;     /* number i of part l is at i * FVI_LANES + l */
    fvi_wide *left; /* the product of those before it in its part, then of all others, times dy */
} parted;

static void products_of_others(const parted *p, fv_real dy)
{
    fvi_wide product[FVI_LANES], others[FVI_LANES], before = dy,
                                                    after = 1; /* others: of other parts */
    for (size_t l = 0; l < FVI_LANES; l++)
        product[l] = 1;
    for (size_t i = 0; i < p->n * FVI_LANES; i += FVI_LANES)
        for (size_t l = 0; l < FVI_LANES; l++) {
            p->left[i + l] = product[l];
            product[l] *= p->x[i + l];
        }
    for (size_t l = 0; l < FVI_LANES; l++) {
        others[l] = before;
        before *= product[l];
    }
    for (size_t l = FVI_LANES; l-- > 0;) {
        others[l] *= after;
        after *= product[l];
    }
    for (size_t i = p->n * FVI_LANES; i > 0;) {
        i -= FVI_LANES;
        for (size_t l = 0; l < FVI_LANES; l++) {
            p->left[i + l] *= others[l];
            others[l] *= p->x[i + l];
        }
    }
}

/* Gathers a result's numbers into parts, or adds the products of the others to dx. */
static void pass_parts(const walk *w, const parted *p, const fv_real *x, fv_real *dx)
{
    size_t i = 0, l = 0;
    walker at = walk_to(w, 0);
    for (size_t k = 0; dx == NULL && k < p->n * FVI_LANES; k++)
        p->x[k] = 1;
    for (size_t r = 0; r < w->runs; r++, walk_on(w, &at))
        for (size_t k = 0; k < w->n; k++) {
            const ptrdiff_t place = at.at[0] + (ptrdiff_t)k * w->run[0];
            if (dx != NULL)
                dx[place] += (fv_real)p->left[i * FVI_LANES + l];
            else
                p->x[i * FVI_LANES + l] = x[place];
            l += ++i == p->n;
            i = i == p->n ? 0 : i;
        }
}

/* For every result without a quotient: those whose factor is 0. */
static void products_without_quotient(fv_tape *t, const fv_var *y, const fv_real *factor,
                                      fv_real *dx)
{
    const fold f = fold_of(y, FOLD_PRODUCT);
    const walk *w = &f.kept;
    const size_t count = w->runs * w->n, each = f.gone.runs * f.gone.n;
    const size_t n = (each + FVI_LANES - 1) / FVI_LANES, own = n * FVI_LANES;
    const int parts = parts_of(t, count, 4 * each);
    fv_real *x = fvi_tape_take(t, own * (size_t)parts, sizeof *x);
    fvi_wide *left = fvi_tape_take(t, own * (size_t)parts, sizeof *left);
    if (!fv_tape_ok(t))
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part some = part_at(count, parts, k);
        const parted p = {n, x + (size_t)k * own, left + (size_t)k * own};
        for (stretch s = stretch_first(w, some.from, some.to); s.n > 0; stretch_next(w, &s))
            for (size_t i = 0; i < s.n; i++) {
                const ptrdiff_t at = s.at[0] + (ptrdiff_t)i * w->run[0];
                const ptrdiff_t result = s.at[1] + (ptrdiff_t)i * w->run[1];
                if (fv_re(factor[result]) != 0 || fv_re(y->grad[result]) == 0)
                    continue;
                pass_parts(&f.gone, &p, y->in[0]->value.data + at, NULL);
                products_of_others(&p, y->grad[result]);
                pass_parts(&f.gone, &p, NULL, dx + at);
            }
    }
}

/* dx = dy times the product of the others: y / x, but where y is 0, not finite, or has lost digits */
static void prod_backward(fv_tape *t, fv_var *y)
{
    spread s = spread_of(y, SLOPE_QUOTIENT);
    const size_t count = fvi_count(y);
    fv_real *dx = fvi_grad_blank(t, y->in[0], &s.blank);
    if (dx == NULL)
        return;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *factor = fvi_tape_take(t, count, sizeof *factor);
    fvi_wide *c = fvi_tape_take(t, count, sizeof *c);
    if (!fv_tape_ok(t))
        return;
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        const bool good = isnormal(fv_re(y->value.data[i]));
        all = all && good;
        factor[i] = good ? y->grad[i] : 0;
        c[i] = good ? y->value.data[i] : 0;
    }
    s.factor = factor;
    s.c = c;
    fvi_spread(t, &s, y->in[0]->value.data, dx);
    if (!all)
        products_without_quotient(t, y, factor, dx);
    fvi_arena_release(&t->arena, mark);
}

static fv_var *prod_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    if (which < AXES)
        return axes_sample(s, which, false, fv_prod);
    /* One zero in a row, and two; one among numbers that fill more than one place of each part. */
    enum { LONG = 2 * FVI_LANES + 3 };
    static const fv_real x[] = {1.5f, 0, -0.75f, 1.25f, 0, -2, 0.5f, 0};
    fv_real *more = fv_tape_alloc(t, LONG, sizeof *more);
    for (size_t i = 1; more != NULL && i < LONG; i++)
        more[i] = (fv_real)(i % 3 == 0 ? -0.75 : 1.25);
    return which == AXES ? fv_prod(t, fv_sample_from(s, FV_SHAPE(2, 4), x), FV_AXES(1))
                         : fv_prod(t, fv_sample_from(s, FV_SHAPE(LONG), more), NULL);
}
FVI_OP(prod, "y = product(x)", "", 12)

/* ---- max, min ---------------------------------------------------------------------------------- */

/* saved, when there is a way back: the largest of each, and behind these how many equal it */
static bool extreme_forward(fv_tape *t, fv_var *y, fold_kind kind)
{
    const size_t count = fvi_count(y);
    if (!y->needs_grad)
        return fold_to_y(t, y, kind, 1);
    fold most = fold_of(y, kind), equal = fold_of(y, FOLD_EQUAL);
    y->saved = most.wide = fvi_tape_take(t, 2 * count, sizeof *most.wide);
    if (most.wide == NULL)
        return false;
    most.y = y->value.data;
    most.then = &equal;
    equal.c = most.wide;
    equal.wide = most.wide + count;
    fvi_fold(t, &most, y->in[0]->value.data);
    return fv_tape_ok(t);
}

static bool max_forward(fv_tape *t, fv_var *y)
{
    return extreme_forward(t, y, FOLD_MAX);
}

static bool min_forward(fv_tape *t, fv_var *y)
{
    return extreme_forward(t, y, FOLD_MIN);
}

/* dx = dy / (how many equal y) where x equals y */
static void extreme_backward(fv_tape *t, fv_var *y)
{
    spread s = spread_of(y, SLOPE_EQUAL);
    const size_t count = fvi_count(y);
    const fvi_wide *most = y->saved, *ties = most + count;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &s.blank);
    if (dx == NULL)
        return;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *factor = fvi_tape_take(t, count, sizeof *factor);
    if (factor == NULL)
        return;
    for (size_t i = 0; i < count; i++)
        factor[i] = (fv_real)(y->grad[i] / ties[i]);
    s.c = most;
    s.factor = factor;
    fvi_spread(t, &s, y->in[0]->value.data, dx);
    fvi_arena_release(&t->arena, mark);
}

#define max_backward extreme_backward
#define min_backward extreme_backward

static fv_var *max_sample(fv_sampler *s, int which)
{
    return axes_sample(s, which, true, fv_max);
}
FVI_OP(max, "y = largest of x", "", 10)

static fv_var *min_sample(fv_sampler *s, int which)
{
    return axes_sample(s, which, true, fv_min);
}
FVI_OP(min, "y = smallest of x", "", 10)

#if FVI_ONCE
static fv_var *record(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, const fv_axes *axes)
{
    reduction r = {.count = 0};
    fv_shape shape;
    if (!reduced(t, op, x, axes, &r, &shape))
        return NULL;
    if ((id == FVI_OP_max || id == FVI_OP_min) && r.count == 0)
        return fv_refuse(t, op, "%s: of no numbers", fv_describe(t, x));
    return fvi_record(t, id, shape, &r, sizeof r, 1, &x);
}

fv_var *fv_sum(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return record(t, FVI_OP_sum, "sum", x, axes);
}

fv_var *fv_mean(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return record(t, FVI_OP_mean, "mean", x, axes);
}

fv_var *fv_prod(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return record(t, FVI_OP_prod, "prod", x, axes);
}

fv_var *fv_max(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return record(t, FVI_OP_max, "max", x, axes);
}

fv_var *fv_min(fv_tape *t, fv_var *x, const fv_axes *axes)
{
    return record(t, FVI_OP_min, "min", x, axes);
}
#endif
