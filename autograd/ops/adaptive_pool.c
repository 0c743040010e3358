/* Pooling to given sizes: place i of an axis covers floor(i in / out) .. ceil((i + 1) in / out) - 1. */
#include "autograd/ops/window.h"

#include <math.h>

typedef struct {
    size_t in[FVI_SPATIAL], out[FVI_SPATIAL];
} adaptive_options;

/* What a place covers. */
typedef struct {
    size_t first[FVI_SPATIAL], end[FVI_SPATIAL];
} cover;

/* floor(i in / out), without i in growing large */
static size_t share_of(size_t i, size_t in, size_t out)
{
    return in / out * i + in % out * i / out;
}

static cover cover_of(const adaptive_options *o, size_t place)
{
    cover c;
    for (int axis = FVI_SPATIAL - 1; axis >= 0; axis--) {
        const size_t in = o->in[axis], out = o->out[axis], i = place % out;
        place /= out;
        c.first[axis] = share_of(i, in, out);
        c.end[axis] = in - share_of(out - 1 - i, in, out); /* ceil((i + 1) in / out) */
    }
    return c;
}

static size_t numbers_of(const cover *c)
{
    size_t count = 1;
    for (int axis = 0; axis < FVI_SPATIAL; axis++)
        count *= c->end[axis] - c->first[axis];
    return count;
}

/* Each place of each plane, in parallel over planes: what is covered is passed row by row. */
typedef void place_rule(const adaptive_options *o, const cover *c, const fv_var *y, size_t place,
                        const fv_real *x, fv_real *dx);

static void each_place(const fv_tape *t, const fv_var *y, place_rule *rule, fv_real *dx)
{
    const adaptive_options *o = y->options;
    const size_t places = product_of(o->out), plane = product_of(o->in);
    const size_t planes = places > 0 ? fvi_count(y) / places : 0;
    const int parts = parts_of(t, planes, plane);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(planes, parts, k);
        for (size_t i = p.from; i < p.to; i++)
            for (size_t place = 0; place < places; place++) {
                const cover c = cover_of(o, place);
                rule(o, &c, y, i * places + place, y->in[0]->value.data + i * plane,
                     dx == NULL ? NULL : dx + i * plane);
            }
    }
}

/* The rows of a cover: where their first number stands in the plane. */
#define EACH_ROW(at)                                                                               \
    for (size_t z = c->first[0]; z < c->end[0]; z++)                                               \
        for (size_t row = c->first[1], at = (z * o->in[1] + c->first[1]) * o->in[2] + c->first[2]; \
             row < c->end[1]; row++, at += o->in[2])

/* ---- the largest ------------------------------------------------------------------------------- */

static void find_largest(const adaptive_options *o, const cover *c, const fv_var *y, size_t place,
                         const fv_real *x, fv_real *dx)
{
    (void)dx;
    const size_t width = c->end[2] - c->first[2];
    size_t *won = (size_t *)y->saved + place, best = SIZE_MAX;
    EACH_ROW(at)
    for (size_t i = at; i < at + width; i++)
        if (best == SIZE_MAX || fv_re(x[i]) > fv_re(x[best]) || fv_re(x[i]) != fv_re(x[i]))
            best = i;
    *won = best;
    y->value.data[place] = x[best];
}

/* saved: the number that won, by its place in the plane */
static bool adaptive_max_pool_forward(fv_tape *t, fv_var *y)
{
    y->saved = fvi_tape_take(t, fvi_count(y), sizeof(size_t));
    if (y->saved == NULL)
        return false;
    each_place(t, y, find_largest, NULL);
    return true;
}

static void send_to_largest(const adaptive_options *o, const cover *c, const fv_var *y,
                            size_t place, const fv_real *x, fv_real *dx)
{
    (void)o, (void)c, (void)x;
    dx[((const size_t *)y->saved)[place]] += y->grad[place];
}

/* dx = dy at the number that won */
static void adaptive_max_pool_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_place(t, y, send_to_largest, dx);
}

static const fv_shape sample_shapes[] = {
    {3, {2, 2, 7}}, {4, {1, 2, 3, 5}}, {5, {1, 1, 2, 3, 4}}, {3, {1, 1, 1}}};
static const size_t sample_sizes[][FVI_SPATIAL] = {{3}, {2, 4}, {1, 2, 3}, {1}};

static fv_var *adaptive_max_pool_sample(fv_sampler *s, int which)
{
    /* far apart, so that no difference step changes the winner */
    return fv_adaptive_max_pool(fv_sampler_tape(s), fv_sample(s, sample_shapes[which], -200, 200),
                                sample_sizes[which]);
}
FVI_OP(adaptive_max_pool, "y[i] = largest of x[floor(i in / out) .. ceil((i + 1) in / out) - 1]",
       "", 4)

/* ---- the mean ---------------------------------------------------------------------------------- */

static void find_mean(const adaptive_options *o, const cover *c, const fv_var *y, size_t place,
                      const fv_real *x, fv_real *dx)
{
    (void)dx;
    const size_t width = c->end[2] - c->first[2];
    fv_real sum = 0;
    EACH_ROW(at)
    sum += lane_sum(width, x + at);
    y->value.data[place] = sum / (fv_real)numbers_of(c);
}

static bool adaptive_avg_pool_forward(fv_tape *t, fv_var *y)
{
    each_place(t, y, find_mean, NULL);
    return true;
}

static void share_mean(const adaptive_options *o, const cover *c, const fv_var *y, size_t place,
                       const fv_real *x, fv_real *dx)
{
    (void)x;
    const size_t width = c->end[2] - c->first[2];
    const fv_real share = y->grad[place] / (fv_real)numbers_of(c);
    EACH_ROW(at)
    for (size_t i = at; i < at + width; i++)
        dx[i] += share;
}

/* dx = dy / count at each number that is covered */
static void adaptive_avg_pool_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_place(t, y, share_mean, dx);
}

static fv_var *adaptive_avg_pool_sample(fv_sampler *s, int which)
{
    return fv_adaptive_avg_pool(fv_sampler_tape(s), fv_sample(s, sample_shapes[which], -2, 2),
                                sample_sizes[which]);
}
FVI_OP(adaptive_avg_pool, "y[i] = mean of x[floor(i in / out) .. ceil((i + 1) in / out) - 1]", "",
       4)

#if FVI_ONCE
static fv_var *adaptive(fv_tape *t, const char *op, fvi_op_id id, fv_var *x, const size_t *sizes)
{
    if (!given(t, op, x))
        return NULL;
    fv_shape shape = x->value.shape;
    if (shape.rank < 3 || shape.rank > 5)
        return fv_refuse(t, op,
                         "input is %s, expected [samples, channels, ..] with 1 to 3 spatial axes",
                         fv_describe(t, x));
    if (sizes == NULL)
        return fv_refuse(t, op, "no sizes");
    adaptive_options o = {.in = {1, 1, 1}, .out = {1, 1, 1}};
    for (int i = 2; i < shape.rank; i++) {
        const int axis = i + FVI_SPATIAL - shape.rank;
        o.in[axis] = shape.size[i];
        o.out[axis] = sizes[i - 2];
        if (o.in[axis] == 0 && o.out[axis] > 0)
            return fv_refuse(t, op, "axis %d of %s is empty", i, fv_describe(t, x));
        if (o.out[axis] > UINT32_MAX)
            return fv_refuse(t, op, "size %zu of axis %d is larger than can be", o.out[axis], i);
        shape.size[i] = o.out[axis];
    }
    return fvi_record(t, id, shape, &o, sizeof o, 1, &x);
}

fv_var *fv_adaptive_max_pool(fv_tape *t, fv_var *x, const size_t *sizes)
{
    return adaptive(t, "adaptive_max_pool", FVI_OP_adaptive_max_pool, x, sizes);
}

fv_var *fv_adaptive_avg_pool(fv_tape *t, fv_var *x, const size_t *sizes)
{
    return adaptive(t, "adaptive_avg_pool", FVI_OP_adaptive_avg_pool, x, sizes);
}
#endif
