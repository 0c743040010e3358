/* Sparsemax: the nearest point of the simplex, over an axis.
 *
 * y = max(x - tau, 0) where tau makes the sum 1; how it is found stands in tensor/kernel/sparsemax.h. */
#include "autograd/ops/rows.h"
#include "tensor/kernel/sparsemax.h"

static int axis_of(const fv_var *y)
{
    return *(const int *)y->options;
}

/* One pass of the search over a row: count and sum of what is above tau. A NaN is above all. */
static size_t above(size_t n, const fv_real *restrict x, fv_real shift, fv_real tau, fv_real *sum)
{
    fv_real lane[FVI_LANES] = {0};
    size_t count = 0, i = 0;
    for (; i < n; i++)
        count += (size_t) !(fv_re(x[i] - shift) <= fv_re(tau));
    for (i = 0; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++) {
            const fv_real e = x[i + (size_t)l] - shift;
            lane[l] += fv_re(e) <= fv_re(tau) ? 0 : e;
        }
    for (; i < n; i++)
        lane[i % FVI_LANES] += fv_re(x[i] - shift) <= fv_re(tau) ? 0 : x[i] - shift;
    *sum = fold_lanes(lane);
    return count;
}

static void sparsemax_row(size_t n, const fv_real *restrict x, fv_real *restrict y)
{
    const fv_real most = lane_max(n, x), shift = fv_re(most) == -(double)INFINITY ? 0 : most;
    fv_real tau = -1, sum;
    for (size_t now, before = n + 1; (now = above(n, x, shift, tau, &sum)) > 0 && now < before;) {
        tau = (sum - 1) / (fv_real)now;
        before = now;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = fv_re(x[i] - shift) <= fv_re(tau) ? 0 : x[i] - shift - tau;
}

/* The same for columns side by side. */
static void sparsemax_columns(strip s, const fv_real *restrict x, fv_real *restrict y)
{
    fv_real shift[FVI_ABREAST], tau[FVI_ABREAST];
    columns_max(s, x, shift);
    for (size_t j = 0; j < s.width; j++)
        shift[j] = fv_re(shift[j]) == -(double)INFINITY ? 0 : shift[j];
    fvi_sparsemax(s.n, s.width, s.step, x, shift, tau);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++) {
            const fv_real e = x[i * s.step + j] - shift[j];
            y[i * s.step + j] = fv_re(e) <= fv_re(tau[j]) ? 0 : e - tau[j];
        }
}

static void sparsemax_strip(const fv_var *y, strip s, fv_real *dx)
{
    (void)dx;
    if (s.step == 1)
        sparsemax_row(s.n, y->in[0]->value.data + s.at, y->value.data + s.at);
    else
        sparsemax_columns(s, y->in[0]->value.data + s.at, y->value.data + s.at);
}

static void sparsemax_row_backward(size_t n, const fv_real *restrict y, const fv_real *restrict dy,
                                   fv_real *restrict dx)
{
    fv_real lane[FVI_LANES] = {0};
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += fv_re(y[i]) > 0;
    if (count == 0)
        return;
    for (size_t i = 0; i < n; i += FVI_LANES)
        for (size_t l = 0; l < FVI_LANES && i + l < n; l++)
            lane[l] += fv_re(y[i + l]) > 0 ? dy[i + l] : 0;
    const fv_real mean = fold_lanes(lane) / (fv_real)count;
    for (size_t i = 0; i < n; i++)
        dx[i] += fv_re(y[i]) > 0 ? dy[i] - mean : 0;
}

/* dx = dy - the mean of dy over the support, inside the support, where y > 0 */
static void sparsemax_strip_backward(const fv_var *y, strip s, fv_real *dx)
{
    const fv_real *restrict out = y->value.data + s.at, *restrict dy = y->grad + s.at;
    fv_real *restrict to = dx + s.at;
    fv_real mean[FVI_ABREAST] = {0};
    size_t count[FVI_ABREAST] = {0};
    if (s.step == 1) {
        sparsemax_row_backward(s.n, out, dy, to);
        return;
    }
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++) {
            mean[j] += fv_re(out[i * s.step + j]) > 0 ? dy[i * s.step + j] : 0;
            count[j] += fv_re(out[i * s.step + j]) > 0;
        }
    for (size_t j = 0; j < s.width; j++)
        mean[j] /= (fv_real)(count[j] > 0 ? count[j] : 1);
    for (size_t i = 0; i < s.n; i++)
        for (size_t j = 0; j < s.width; j++)
            to[i * s.step + j] += fv_re(out[i * s.step + j]) > 0 ? dy[i * s.step + j] - mean[j] : 0;
}

static bool sparsemax_forward(fv_tape *t, fv_var *y)
{
    each_strip(t, y, axis_of(y), sparsemax_strip);
    return true;
}

static void sparsemax_backward(fv_tape *t, fv_var *y)
{
    each_strip_back(t, y, axis_of(y), sparsemax_strip_backward);
}

static fv_var *sparsemax_sample(fv_sampler *s, int which)
{
    static const int axes[] = {-1, 1, 0, 0};
    const fv_shape shapes[] = {FV_SHAPE(3, 37), FV_SHAPE(2, 5, 3), FV_SHAPE(1), FV_SHAPE(3, 130)};
    return fv_sparsemax(fv_sampler_tape(s), fv_sample(s, shapes[which], -1, 1), axes[which]);
}
FVI_OP(sparsemax, "y = max(x - tau, 0) with sum y = 1",
       "Martins and Astudillo, 2016, arXiv 1602.02068", 4)

#if FVI_ONCE
fv_var *fv_sparsemax(fv_tape *t, fv_var *x, int axis)
{
    if (!given(t, "sparsemax", x) || !known_axis(t, "sparsemax", x, &axis))
        return NULL;
    return fvi_record(t, FVI_OP_sparsemax, x->value.shape, &axis, sizeof axis, 1, &x);
}
#endif
