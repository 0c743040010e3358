/* Losses: sums, with counts beside them, so that a mean over any cut of a batch is exact. */
#include "autograd/ops/ops.h"
#include "tensor/math.h"

typedef struct {
    const int32_t *labels;
    double smoothing;
} cross_entropy_options;

/* log of the sum of exp over a row, from its largest number */
static fv_real log_sum_exp(size_t n, const fv_real *restrict x, fv_real *restrict scratch)
{
    fv_real most = x[0];
    for (size_t i = 1; i < n; i++)
        most = fv_re(x[i]) > fv_re(most) ? x[i] : most;
    for (size_t i = 0; i < n; i++)
        scratch[i] = fvi_exp(x[i] - most);
    return most + fvi_log(lane_sum(n, scratch));
}

/* saved: the log-sum-exp of each row */
static bool cross_entropy_forward(fv_tape *t, fv_var *y)
{
    const cross_entropy_options *o = y->options;
    const size_t rows = fvi_rows(y->in[0]), classes = fvi_columns(y->in[0]);
    fv_real *saved = fvi_tape_take(t, rows, sizeof *saved);
    fvi_wide total = 0;
    fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, classes, sizeof *scratch);
    if (saved == NULL || scratch == NULL)
        return false;
    for (size_t r = 0; r < rows; r++) {
        const fv_real *x = y->in[0]->value.data + r * classes;
        if (o->labels[r] < 0)
            continue;
        saved[r] = log_sum_exp(classes, x, scratch);
        total += (1 - o->smoothing) * (fvi_wide)(saved[r] - x[o->labels[r]]);
        if (o->smoothing > 0)
            total += o->smoothing * (fvi_wide)(saved[r] - lane_sum(classes, x) / (fv_real)classes);
    }
    fvi_arena_release(&t->arena, mark);
    y->saved = saved;
    y->value.data[0] = (fv_real)total;
    return true;
}

/* dx = dy * (softmax(x) - (1 - s) * [label] - s / classes) */
static void cross_entropy_backward(fv_tape *t, fv_var *y)
{
    const cross_entropy_options *o = y->options;
    const size_t rows = fvi_rows(y->in[0]), classes = fvi_columns(y->in[0]);
    const fv_real *saved = y->saved, dy = y->grad[0];
    const fv_real spread = (fv_real)(o->smoothing / (double)classes),
                  on = (fv_real)(1 - o->smoothing);
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t r = 0; dx != NULL && r < rows; r++) {
        const fv_real *restrict x = y->in[0]->value.data + r * classes;
        fv_real *restrict out = dx + r * classes;
        if (o->labels[r] < 0)
            continue;
        for (size_t c = 0; c < classes; c++)
            out[c] += dy * (fvi_exp(x[c] - saved[r]) - spread);
        out[o->labels[r]] -= dy * on;
    }
}

static fv_var *cross_entropy_sample(fv_sampler *s, int which)
{
    static const int32_t labels[] = {3, 0, -100, 16, 3};
    const fv_cross_entropy_opts opts = {.smoothing = which ? 0.1 : 0};
    return fv_cross_entropy_sum(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(5, 17), -3, 3), labels,
                                &opts, NULL);
}
FVI_OP(cross_entropy, "y = sum over rows of -log softmax(x)[label]", "", 2)

#if FVI_ONCE
fv_var *fv_cross_entropy_sum(fv_tape *t, fv_var *x, const int32_t *labels,
                             const fv_cross_entropy_opts *opts, double *count)
{
    const char *op = "cross_entropy";
    const double smoothing = opts ? opts->smoothing : 0;
    char text[FVI_NUMBER];
    size_t counted = 0;
    if (!given(t, op, x) || !fvi_is_matrix(t, op, "input", x))
        return NULL;
    if (labels == NULL)
        return fv_refuse(t, op, "no labels");
    if (!(smoothing >= 0 && smoothing < 1))
        return fv_refuse(t, op, "smoothing %s, expected 0 <= s < 1",
                         fvi_number(text, smoothing, 6));
    for (size_t r = 0; r < fvi_rows(x); r++) {
        if (labels[r] >= 0 && (size_t)labels[r] >= fvi_columns(x))
            return fv_refuse(t, op, "label %d of row %zu is not below the %zu classes of %s",
                             (int)labels[r], r, fvi_columns(x), fv_describe(t, x));
        counted += labels[r] >= 0;
    }
    if (count != NULL)
        *count = (double)counted;
    const cross_entropy_options options = {labels, smoothing};
    return fvi_record(t, FVI_OP_cross_entropy, FV_SCALAR, &options, sizeof options, 1, &x);
}
#endif
