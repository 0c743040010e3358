/* Norms with a weight and a bias a channel: group and instance norm of each sample, and batch norm.
 *
 * x is [samples, channels, ..]; all that stands behind the channels is one axis, inner. */
#include "autograd/ops/norm.h"

typedef struct {
    size_t samples, channels, inner;
} channel_view;

static channel_view channels_of(const fv_var *x)
{
    const axis_view v = view_axis(x->value.shape, 1);
    return (channel_view){v.outer, v.n, v.inner};
}

/* The number of channel c, or what stands for it when there is none. */
static fv_real of_channel(const fv_var *x, size_t c, fv_real otherwise)
{
    return x == NULL ? otherwise : x->value.data[c];
}

/* ---- group and instance norm ----------------------------------------------------------------- */

typedef struct {
    double eps;
    size_t groups;
} group_options;

/* saved: mean and scale of each group, sample by sample */
static bool group_norm_forward(fv_tape *t, fv_var *y)
{
    const group_options *o = y->options;
    const channel_view v = channels_of(y);
    if (fvi_count(y) == 0)
        return true;
    const size_t groups = v.samples * o->groups, each = v.channels / o->groups, d = each * v.inner;
    fv_real *saved = fvi_tape_take(t, 2 * groups, sizeof *saved);
    y->saved = saved;
    if (saved == NULL)
        return false;
    const int parts = parts_of(t, groups, 4 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(groups, parts, k);
        for (size_t g = p.from; g < p.to; g++) {
            const fv_real *x = y->in[0]->value.data + g * d;
            const fv_real mean = lane_sum(d, x) / (fv_real)d;
            const fv_real variance = lane_squares(d, x, mean) / (fv_real)d;
            const fv_real scale = 1 / fvi_sqrt(variance + (fv_real)o->eps);
            for (size_t i = 0; i < each; i++) {
                const size_t c = g % o->groups * each + i;
                const fv_real w = of_channel(y->in[1], c, 1), b = of_channel(y->in[2], c, 0);
                const fv_real *restrict in = x + i * v.inner;
                fv_real *restrict out = y->value.data + g * d + i * v.inner;
                for (size_t j = 0; j < v.inner; j++)
                    out[j] = (in[j] - mean) * scale * w + b;
            }
            saved[2 * g] = mean;
            saved[2 * g + 1] = scale;
        }
    }
    return true;
}

/* One group: leaves the sums of dy and of dy * n of each of its channels in sums, and adds to dx. */
static void group_backward(const fv_var *y, channel_view v, size_t g, fv_real *sums, fv_real *dx)
{
    const group_options *o = y->options;
    const size_t each = v.channels / o->groups, d = each * v.inner;
    const fv_real mean = ((const fv_real *)y->saved)[2 * g],
                  scale = ((const fv_real *)y->saved)[2 * g + 1];
    fv_real mean_g = 0, slope = 0;
    for (size_t i = 0; i < each; i++) {
        const size_t at = g * d + i * v.inner;
        const fv_real w = of_channel(y->in[1], g % o->groups * each + i, 1);
        fv_real *sum = sums + 2 * (g * each + i);
        sum[0] = lane_sum(v.inner, y->grad + at);
        sum[1] = scale * lane_about(v.inner, y->grad + at, 0, y->in[0]->value.data + at, mean);
        mean_g = fvi_fma(sum[0], w, mean_g);
        slope = fvi_fma(sum[1], w, slope);
    }
    mean_g /= (fv_real)d;
    slope *= scale / (fv_real)d;
    for (size_t i = 0; dx != NULL && i < each; i++) {
        const size_t at = g * d + i * v.inner;
        const fv_real w = of_channel(y->in[1], g % o->groups * each + i, 1);
        const fv_real *restrict x = y->in[0]->value.data + at, *restrict dy = y->grad + at;
        fv_real *restrict to = dx + at;
        for (size_t j = 0; j < v.inner; j++)
            to[j] += scale * fvi_fma(mean - x[j], slope, fvi_fma(dy[j], w, -mean_g));
    }
}

/* with n = (x - mean) * scale and g = dy * w: dx = scale * (g - mean(g) - n * mean(g * n)), means over a
 * group; dw = dy * n and db = dy, summed over a channel */
static void group_norm_backward(fv_tape *t, fv_var *y)
{
    const group_options *o = y->options;
    const channel_view v = channels_of(y);
    fv_real *dx = fv_grad(t, y->in[0]), *dw = fv_grad(t, y->in[1]), *db = fv_grad(t, y->in[2]);
    if (fvi_count(y) == 0)
        return;
    const size_t groups = v.samples * o->groups, d = v.channels / o->groups * v.inner;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *sums = fvi_tape_take(t, 2 * v.samples * v.channels, sizeof *sums);
    const int parts = sums != NULL ? parts_of(t, groups, 6 * d) : 0;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(groups, parts, k);
        for (size_t g = p.from; g < p.to; g++)
            group_backward(y, v, g, sums, dx);
    }
    for (size_t i = 0; parts > 0 && i < v.samples * v.channels; i++) {
        if (dw != NULL)
            dw[i % v.channels] += sums[2 * i + 1];
        if (db != NULL)
            db[i % v.channels] += sums[2 * i];
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *group_norm_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    const fv_norm_opts opts = {.eps = 0.1};
    if (which == 1)
        return fv_group_norm(t, fv_sample(s, FV_SHAPE(3, 6), -2, 2), 2, NULL, NULL, &opts);
    fv_var *x = fv_sample(s, which == 0 ? FV_SHAPE(2, 4, 19) : FV_SHAPE(2, 4, 2, 3), -2, 2);
    fv_var *w = fv_sample(s, FV_SHAPE(4), 0.5, 2);
    return fv_group_norm(t, x, which == 3 ? 1 : 2, w,
                         which == 2 ? w : fv_sample(s, FV_SHAPE(4), -1, 1), NULL);
}
FVI_OP(group_norm, "y = (x - mean) / sqrt(variance + eps) * w + b, over a group of channels",
       "Wu and He, 2018, arXiv 1803.08494", 4)

/* instance_norm is group_norm with a group a channel. */
static bool instance_norm_forward(fv_tape *t, fv_var *y)
{
    return group_norm_forward(t, y);
}

/* as group_norm */
static void instance_norm_backward(fv_tape *t, fv_var *y)
{
    group_norm_backward(t, y);
}

static fv_var *instance_norm_sample(fv_sampler *s, int which)
{
    const fv_norm_opts opts = {.eps = 0.1};
    fv_var *x = fv_sample(s, which ? FV_SHAPE(3, 4, 5) : FV_SHAPE(2, 3, 4, 5), -2, 2);
    return fv_instance_norm(fv_sampler_tape(s), x, which ? NULL : fv_sample(s, FV_SHAPE(3), 0.5, 2),
                            which ? NULL : fv_sample(s, FV_SHAPE(3), -1, 1), which ? &opts : NULL);
}
FVI_OP(instance_norm, "y = (x - mean) / sqrt(variance + eps) * w + b, over a channel of a sample",
       "Ulyanov, Vedaldi, Lempitsky, 2016, arXiv 1607.08022", 2)

/* ---- batch norm ------------------------------------------------------------------------------ */

/* saved: [4, channels]: mean, scale, then ones and zeros that stand for a weight and a bias. */
typedef struct {
    channel_view v;
    const fv_real *mean, *scale, *weight, *bias, *zeros;
} batch;

static batch batch_of(const fv_var *y)
{
    const channel_view v = channels_of(y);
    const fv_real *saved = y->saved, *ones = saved + 2 * v.channels, *zeros = ones + v.channels;
    return (batch){v,
                   saved,
                   saved + v.channels,
                   y->in[1] ? y->in[1]->value.data : ones,
                   y->in[2] ? y->in[2]->value.data : zeros,
                   zeros};
}

/* sum + x * y, rounded once. */
static inline fvi_wide wide_fma(fvi_wide x, fvi_wide y, fvi_wide sum)
{
#if defined(FV_COMPLEX) || !defined(__FMA__)
    return sum + x * y;
#else
    return __builtin_fma(x, y, sum);
#endif
}

/* Adds a and (a - a_mean) * (x - mean), summed over some samples, to sum and product [channels]. */
static void add_sums(channel_view v, part samples, const fv_real *restrict a,
                     const fv_real *restrict a_mean, const fv_real *restrict x,
                     const fv_real *restrict mean, fvi_wide *restrict sum,
                     fvi_wide *restrict product)
{
    for (size_t s = samples.from; s < samples.to; s++) {
        const size_t at = s * v.channels * v.inner;
        for (size_t c = 0; v.inner == 1 && c < v.channels; c++) {
            sum[c] += (fvi_wide)a[at + c];
            product[c] = wide_fma(a[at + c] - a_mean[c], x[at + c] - mean[c], product[c]);
        }
        for (size_t c = 0; v.inner > 1 && c < v.channels; c++) {
            const fv_real *run = a + at + c * v.inner;
            sum[c] += (fvi_wide)lane_sum(v.inner, run);
            product[c] +=
                (fvi_wide)lane_about(v.inner, run, a_mean[c], x + at + c * v.inner, mean[c]);
        }
    }
}

/* The same over all samples, in blocks: sum, and behind it product, in memory of the tape; NULL when out. */
static fvi_wide *sums_of(fv_tape *t, channel_view v, const fv_real *a, const fv_real *a_mean,
                         const fv_real *x, const fv_real *mean)
{
    const size_t d = v.channels * v.inner, wide = 2 * v.channels;
    const blocks b = blocks_of(v.samples, 2 * d);
    fvi_wide *sums = fv_tape_alloc(t, (b.count + 1) * wide, sizeof *sums);
    if (sums == NULL)
        return NULL;
    const int parts = parts_of(t, b.count, 2 * d * b.each);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(b.count, parts, k);
        for (size_t i = p.from; i < p.to; i++) {
            fvi_wide *own = sums + (i + 1) * wide;
            add_sums(v, block_at(b, i), a, a_mean, x, mean, own, own + v.channels);
        }
    }
    for (size_t i = 0; i < b.count; i++)
        for (size_t c = 0; c < wide; c++)
            sums[c] += sums[(i + 1) * wide + c];
    return sums;
}

/* Mean and variance of each channel of the batch, the latter about the former. */
static bool batch_statistics(fv_tape *t, const fv_var *y, fv_real *mean, fv_real *scale,
                             const fv_real *zeros)
{
    const fv_batch_norm_opts *o = y->options;
    const channel_view v = channels_of(y);
    const fv_real *x = y->in[0]->value.data;
    const double n = (double)v.samples * (double)v.inner;
    fv_real *centre = fvi_tape_take(t, v.channels, sizeof *centre);
    const fvi_wide *sums = centre ? sums_of(t, v, x, zeros, x, zeros) : NULL;
    for (size_t c = 0; sums != NULL && c < v.channels; c++)
        centre[c] = (fv_real)(sums[c] / n);
    const fvi_wide *squares = sums ? sums_of(t, v, x, centre, x, centre) + v.channels : NULL;
    for (size_t c = 0; squares != NULL && c < v.channels; c++) {
        if (o->batch_mean != NULL)
            o->batch_mean[c] = centre[c];
        if (o->batch_variance != NULL)
            o->batch_variance[c] = (fv_real)(squares[c] / (n - 1));
        if (o->mean != NULL)
            continue;
        mean[c] = centre[c];
        scale[c] = 1 / fvi_sqrt((fv_real)(squares[c] / n) + (fv_real)o->eps);
    }
    return fv_tape_ok(t);
}

static bool batch_norm_forward(fv_tape *t, fv_var *y)
{
    const fv_batch_norm_opts *o = y->options;
    const channel_view v = channels_of(y);
    const size_t channels = v.channels, d = channels * v.inner;
    if (fvi_count(y) == 0) { /* of no numbers there is no mean */
        for (size_t c = 0; o->batch_mean != NULL && c < channels; c++)
            o->batch_mean[c] = (fv_real)NAN;
        for (size_t c = 0; o->batch_variance != NULL && c < channels; c++)
            o->batch_variance[c] = (fv_real)NAN;
        return true;
    }
    fv_real *saved = fv_tape_alloc(t, 4 * channels, sizeof *saved);
    y->saved = saved;
    for (size_t c = 0; saved != NULL && c < channels; c++) {
        saved[2 * channels + c] = 1;
        if (o->mean != NULL) {
            saved[c] = o->mean[c];
            saved[channels + c] = 1 / fvi_sqrt(o->variance[c] + (fv_real)o->eps);
        }
    }
    const bool asked = o->mean == NULL || o->batch_mean != NULL || o->batch_variance != NULL;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    if (saved == NULL ||
        (asked && !batch_statistics(t, y, saved, saved + channels, saved + 3 * channels)))
        return false;
    fvi_arena_release(&t->arena, mark);
    const batch b = batch_of(y);
    const int parts = parts_of(t, v.samples, 2 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(v.samples, parts, k);
        for (size_t s = p.from; s < p.to; s++) {
            const fv_real *restrict x = y->in[0]->value.data + s * d;
            fv_real *restrict out = y->value.data + s * d;
            for (size_t c = 0; v.inner == 1 && c < channels; c++)
                out[c] = (x[c] - b.mean[c]) * b.scale[c] * b.weight[c] + b.bias[c];
            for (size_t c = 0; v.inner > 1 && c < channels; c++)
                for (size_t j = c * v.inner; j < (c + 1) * v.inner; j++)
                    out[j] = (x[j] - b.mean[c]) * b.scale[c] * b.weight[c] + b.bias[c];
        }
    }
    return true;
}

/* dx += factor * (dy - mean_dy - (x - mean) * slope) for one sample, all but x and dy [channels] */
static void batch_backward(const batch *b, const fv_real *restrict x, const fv_real *restrict dy,
                           const fv_real *restrict factor, const fv_real *restrict mean_dy,
                           const fv_real *restrict slope, fv_real *restrict dx)
{
    const size_t inner = b->v.inner;
    const fv_real *restrict mean = b->mean;
    for (size_t c = 0; inner == 1 && c < b->v.channels; c++)
        dx[c] += factor[c] * (dy[c] - mean_dy[c] - (x[c] - mean[c]) * slope[c]);
    for (size_t c = 0; inner > 1 && c < b->v.channels; c++)
        for (size_t j = c * inner; j < (c + 1) * inner; j++)
            dx[j] += factor[c] * (dy[j] - mean_dy[c] - (x[j] - mean[c]) * slope[c]);
}

/* with n = (x - mean) * scale: dx = scale * w * (dy - mean(dy) - n * mean(dy * n)), means over a channel of
 * the batch, and without them where mean and variance were given; dw = dy * n and db = dy, summed */
static void batch_norm_backward(fv_tape *t, fv_var *y)
{
    const fv_batch_norm_opts *o = y->options;
    fv_real *dx = fv_grad(t, y->in[0]), *dw = fv_grad(t, y->in[1]), *db = fv_grad(t, y->in[2]);
    if (fvi_count(y) == 0)
        return;
    const batch b = batch_of(y);
    const size_t channels = b.v.channels, d = channels * b.v.inner;
    const double n = (double)b.v.samples * (double)b.v.inner;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *factor = fv_tape_alloc(t, 3 * channels, sizeof *factor);
    const fvi_wide *sum =
        factor ? sums_of(t, b.v, y->grad, b.zeros, y->in[0]->value.data, b.mean) : NULL;
    for (size_t c = 0; sum != NULL && c < channels; c++) {
        const fvi_wide product = sum[channels + c] * b.scale[c];
        factor[c] = b.scale[c] * b.weight[c];
        if (o->mean == NULL) {
            factor[channels + c] = (fv_real)(sum[c] / n);
            factor[2 * channels + c] = (fv_real)(product * b.scale[c] / n);
        }
        if (dw != NULL)
            dw[c] += (fv_real)product;
        if (db != NULL)
            db[c] += (fv_real)sum[c];
    }
    const int parts = sum != NULL && dx != NULL ? parts_of(t, b.v.samples, 4 * d) : 0;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(b.v.samples, parts, k);
        for (size_t s = p.from; s < p.to; s++)
            batch_backward(&b, y->in[0]->value.data + s * d, y->grad + s * d, factor,
                           factor + channels, factor + 2 * channels, dx + s * d);
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *batch_norm_sample(fv_sampler *s, int which)
{
    static const fv_real mean[] = {1, -2, 0.5f, 3}, variance[] = {1, 2, 0.5f, 4};
    const fv_batch_norm_opts given_both = {.mean = mean, .variance = variance}, wide = {.eps = 1};
    fv_tape *t = fv_sampler_tape(s);
    if (which == 1)
        return fv_batch_norm(t, fv_sample(s, FV_SHAPE(3, 4, 5), -2, 2), NULL, NULL, &wide);
    fv_var *x = fv_sample(s, which == 0 ? FV_SHAPE(7, 4) : FV_SHAPE(2, 4, 3, 2), -2, 2);
    fv_var *w = fv_sample(s, FV_SHAPE(4), 0.5, 2);
    return fv_batch_norm(t, x, w, which == 3 ? w : fv_sample(s, FV_SHAPE(4), -1, 1),
                         which == 2 ? &given_both : NULL);
}
FVI_OP(batch_norm, "y = (x - mean) / sqrt(variance + eps) * w + b, over a channel of the batch",
       "Ioffe and Szegedy, 2015, arXiv 1502.03167", 4)

#if FVI_ONCE
/* x [samples, channels, ..] with a weight and a bias [channels], each of which may be absent. */
static bool has_channels(fv_tape *t, const char *op, const fv_var *x, const fv_var *weight,
                         const fv_var *bias)
{
    if (!given(t, op, x))
        return false;
    if (x->value.shape.rank < 2) {
        fv_refuse(t, op, "input is %s, expected [samples, channels, ..]", fv_describe(t, x));
        return false;
    }
    const fv_shape shape = FV_SHAPE(x->value.shape.size[1]);
    return has_shape(t, op, "weight", weight, shape) && has_shape(t, op, "bias", bias, shape);
}

static fv_var *norm_groups(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, size_t groups,
                           fv_var *weight, fv_var *bias, const fv_norm_opts *opts)
{
    group_options o = {.groups = groups};
    if (!known_eps(t, op, opts ? opts->eps : 0, 1e-5, &o.eps))
        return NULL;
    return fvi_record(t, id, x->value.shape, &o, sizeof o, 3, (fv_var *[]){x, weight, bias});
}

fv_var *fv_group_norm(fv_tape *t, fv_var *x, size_t groups, fv_var *weight, fv_var *bias,
                      const fv_norm_opts *opts)
{
    if (!has_channels(t, "group_norm", x, weight, bias))
        return NULL;
    if (groups == 0 || x->value.shape.size[1] % groups != 0)
        return fv_refuse(t, "group_norm", "%zu groups do not divide the channels of %s", groups,
                         fv_describe(t, x));
    return norm_groups(t, FVI_OP_group_norm, "group_norm", x, groups, weight, bias, opts);
}

fv_var *fv_instance_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                         const fv_norm_opts *opts)
{
    return has_channels(t, "instance_norm", x, weight, bias)
               ? norm_groups(t, FVI_OP_instance_norm, "instance_norm", x, x->value.shape.size[1],
                             weight, bias, opts)
               : NULL;
}

fv_var *fv_batch_norm(fv_tape *t, fv_var *x, fv_var *weight, fv_var *bias,
                      const fv_batch_norm_opts *opts)
{
    const char *op = "batch_norm";
    fv_batch_norm_opts o = opts ? *opts : (fv_batch_norm_opts){0};
    if (!has_channels(t, op, x, weight, bias) || !known_eps(t, op, o.eps, 1e-5, &o.eps))
        return NULL;
    if ((o.mean == NULL) != (o.variance == NULL))
        return fv_refuse(t, op, "a %s without a %s", o.mean ? "mean" : "variance",
                         o.mean ? "variance" : "mean");
    const bool asked = o.mean == NULL || o.batch_mean != NULL || o.batch_variance != NULL;
    if (asked && t->shards > 1)
        return fv_refuse(t, op,
                         "its statistics are those of the whole batch, but the batch is cut into "
                         "%d shards: set shards to 1 in fv_fit_opts",
                         t->shards);
    if (asked && fvi_count(x) == x->value.shape.size[1] && fvi_count(x) > 0)
        return fv_refuse(t, op, "%s has one number a channel, expected more for a variance",
                         fv_describe(t, x));
    return fvi_record(t, FVI_OP_batch_norm, x->value.shape, &o, sizeof o, 3,
                      (fv_var *[]){x, weight, bias});
}
#endif
