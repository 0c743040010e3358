/* Losses against classes: sums over rows, with counts beside them, so that a mean over any cut of a batch is
 * exact. Cross entropy of scores and negative log likelihood of log-chances with labels, and cross entropy
 * with chances.
 *
 * All three are -sum t[c] * log p[c] over the classes of a row, where t is what the row aims at. With labels
 * t[c] = (1 - s) * weight[label] * (c is label) + s / classes * weight[c]; with chances
 * t[c] = weight[c] * ((1 - s) * target[c] + s / classes). s is the smoothing (Szegedy et al., 2016). */
#include "autograd/ops/rows.h"

typedef struct {
    const int32_t *labels; /* negative: the row is left out; NULL: the second input has chances */
    const fv_real *weight; /* [classes], ones when none were given */
    double smoothing;
    double
        spread; /* with labels, what all classes get by smoothing: s / classes * sum of weights */
} class_options;

/* ---- what the three share -------------------------------------------------------------------- */

/* The loss of row r; scratch holds a row. It writes what backward needs of that row into saved. */
typedef fvi_wide (*row_loss)(const fv_var *y, size_t r, fv_real *scratch, fv_real *saved);

/* Losses of rows on the tape's threads, then their sum in the order of the rows. */
static bool sum_rows(fv_tape *t, fv_var *y, row_loss loss, bool save)
{
    const size_t rows = fvi_rows(y->in[0]), classes = fvi_columns(y->in[0]);
    const int parts = parts_of(t, rows, 2 * classes);
    fv_real *saved = save ? fvi_tape_take(t, rows, sizeof *saved) : NULL;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * classes, sizeof *scratch);
    fvi_wide *each = fvi_tape_take(t, rows, sizeof *each), total = 0;
    if (!fv_tape_ok(t))
        return false;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++)
            each[r] = loss(y, r, scratch + (size_t)k * classes, saved ? saved + r : NULL);
    }
    for (size_t r = 0; r < rows; r++)
        total += each[r];
    fvi_arena_release(&t->arena, mark);
    y->saved = saved;
    y->value.data[0] = (fv_real)total;
    return true;
}

/* Adds a row's gradient; dx or dtarget may be NULL. */
typedef void (*row_gradient)(const fv_var *y, size_t r, fv_real *dx, fv_real *dtarget);

static void add_rows(fv_tape *t, fv_var *y, row_gradient add)
{
    const size_t rows = fvi_rows(y->in[0]), classes = fvi_columns(y->in[0]);
    fv_real *dx = fv_grad(t, y->in[0]), *dtarget = y->inputs > 1 ? fv_grad(t, y->in[1]) : NULL;
    const int parts = parts_of(t, rows, 3 * classes);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++)
            add(y, r, dx ? dx + r * classes : NULL, dtarget ? dtarget + r * classes : NULL);
    }
}

/* log of the sum of exp over a row, from its largest number */
static fv_real log_sum_exp(size_t n, const fv_real *restrict x, fv_real *restrict scratch)
{
    const fv_real most = lane_max(n, x);
    return most + fvi_log(lane_exp(n, x, most, scratch));
}

/* -sum t[c] * (x[c] - shift), for labels. */
static fvi_wide towards_label(const class_options *o, size_t classes, const fv_real *x,
                              int32_t label, fv_real shift, fv_real *restrict scratch)
{
    const double on = 1 - o->smoothing;
    fvi_wide loss = on * (fvi_wide)(o->weight[label] * (shift - x[label]));
    if (o->smoothing > 0) {
        for (size_t c = 0; c < classes; c++)
            scratch[c] = o->weight[c] * (shift - x[c]);
        loss += o->smoothing / (double)classes * (fvi_wide)lane_sum(classes, scratch);
    }
    return loss;
}

/* ---- cross_entropy --------------------------------------------------------------------------- */

/* saved: the log-sum-exp of each row */
static fvi_wide cross_entropy_row(const fv_var *y, size_t r, fv_real *scratch, fv_real *saved)
{
    const class_options *o = y->options;
    const size_t classes = fvi_columns(y->in[0]);
    const fv_real *x = y->in[0]->value.data + r * classes;
    if (o->labels[r] < 0)
        return 0;
    *saved = log_sum_exp(classes, x, scratch);
    return towards_label(o, classes, x, o->labels[r], *saved, scratch);
}

static bool cross_entropy_forward(fv_tape *t, fv_var *y)
{
    return sum_rows(t, y, cross_entropy_row, true);
}

static void cross_entropy_row_backward(const fv_var *y, size_t r, fv_real *dx, fv_real *dtarget)
{
    (void)dtarget;
    const class_options *o = y->options;
    const size_t classes = fvi_columns(y->in[0]);
    const int32_t label = o->labels[r];
    if (label < 0)
        return;
    const fv_real *restrict x = y->in[0]->value.data + r * classes, *restrict w = o->weight;
    fv_real *restrict to = dx;
    const fv_real log_sum = ((const fv_real *)y->saved)[r], dy = y->grad[0];
    const fv_real on = (fv_real)(1 - o->smoothing) * o->weight[label];
    const fv_real all = dy * (on + (fv_real)o->spread);
    const fv_real each = dy * (fv_real)(o->smoothing / (double)classes);
    for (size_t c = 0; c < classes; c++)
        to[c] += fvi_fma(all, exp_of_shifted(x[c] - log_sum), -each * w[c]);
    to[label] -= dy * on;
}

/* dx[c] = dy * (softmax(x)[c] * sum t - t[c]) */
static void cross_entropy_backward(fv_tape *t, fv_var *y)
{
    if (fv_grad(t, y->in[0]) != NULL)
        add_rows(t, y, cross_entropy_row_backward);
}

static const fv_real sample_weights[] = {1, 2, 0.5f, 3, 1.5f, 0.25f, 1};

static fv_var *cross_entropy_sample(fv_sampler *s, int which)
{
    static const int32_t labels[] = {3, 0, -100, 6, 3};
    const fv_cross_entropy_opts opts = {.smoothing = which & 1 ? 0.1 : 0,
                                        .class_weight = which & 2 ? sample_weights : NULL};
    const fv_shape shape = which == 4 ? FV_SHAPE(2, 4) : FV_SHAPE(5, 7);
    return fv_cross_entropy_sum(fv_sampler_tape(s), fv_sample(s, shape, -3, 3), labels,
                                which == 4 ? NULL : &opts, NULL);
}
FVI_OP(cross_entropy, "y = sum over rows of -log softmax(x)[label]", "", 5)

/* ---- nll ------------------------------------------------------------------------------------- */

static fvi_wide nll_row(const fv_var *y, size_t r, fv_real *scratch, fv_real *saved)
{
    (void)saved;
    const class_options *o = y->options;
    const size_t classes = fvi_columns(y->in[0]);
    if (o->labels[r] < 0)
        return 0;
    return towards_label(o, classes, y->in[0]->value.data + r * classes, o->labels[r], 0, scratch);
}

static bool nll_forward(fv_tape *t, fv_var *y)
{
    return sum_rows(t, y, nll_row, false);
}

/* dx[c] = -dy * t[c] */
static void nll_backward(fv_tape *t, fv_var *y)
{
    const class_options *o = y->options;
    const size_t rows = fvi_rows(y->in[0]), classes = fvi_columns(y->in[0]);
    const fv_real dy = y->grad[0], each = (fv_real)(o->smoothing / (double)classes);
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t r = 0; dx != NULL && r < rows; r++) {
        fv_real *restrict to = dx + r * classes;
        if (o->labels[r] < 0)
            continue;
        to[o->labels[r]] -= dy * (fv_real)(1 - o->smoothing) * o->weight[o->labels[r]];
        for (size_t c = 0; o->smoothing > 0 && c < classes; c++)
            to[c] -= dy * each * o->weight[c];
    }
}

static fv_var *nll_sample(fv_sampler *s, int which)
{
    static const int32_t labels[] = {3, 0, -1, 6, 3};
    const fv_cross_entropy_opts opts = {.smoothing = which & 1 ? 0.1 : 0,
                                        .class_weight = which & 2 ? sample_weights : NULL};
    return fv_nll_sum(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(5, 7), -3, -1), labels, &opts,
                      NULL);
}
FVI_OP(nll, "y = sum over rows of -x[label]", "", 4)

/* ---- soft_cross_entropy: a class of chance 0 and log-chance -Inf is left out ------------------- */

/* Whether a class has no part in the row's loss. */
static inline bool left_out(fv_real aim, fv_real log_chance)
{
    return fv_re(aim) == 0 && fv_re(log_chance) == -(double)INFINITY;
}

/* saved: the log-sum-exp of each row */
static fvi_wide soft_cross_entropy_row(const fv_var *y, size_t r, fv_real *scratch, fv_real *saved)
{
    const class_options *o = y->options;
    const size_t classes = fvi_columns(y->in[0]);
    const fv_real *restrict x = y->in[0]->value.data + r * classes, *restrict w = o->weight;
    const fv_real *restrict target = y->in[1]->value.data + r * classes;
    const fv_real on = (fv_real)(1 - o->smoothing),
                  each = (fv_real)(o->smoothing / (double)classes);
    const fv_real log_sum = log_sum_exp(classes, x, scratch);
    for (size_t c = 0; c < classes; c++) {
        const fv_real aim = w[c] * (on * target[c] + each), log_chance = x[c] - log_sum;
        scratch[c] = left_out(aim, log_chance) ? 0 : -aim * log_chance;
    }
    *saved = log_sum;
    return (fvi_wide)lane_sum(classes, scratch);
}

static bool soft_cross_entropy_forward(fv_tape *t, fv_var *y)
{
    return sum_rows(t, y, soft_cross_entropy_row, true);
}

static void soft_cross_entropy_row_backward(const fv_var *y, size_t r, fv_real *dx,
                                            fv_real *dtarget)
{
    const class_options *o = y->options;
    const size_t classes = fvi_columns(y->in[0]);
    const fv_real *restrict x = y->in[0]->value.data + r * classes;
    const fv_real *restrict target = y->in[1]->value.data + r * classes;
    const fv_real *restrict w = o->weight;
    const fv_real log_sum = ((const fv_real *)y->saved)[r], dy = y->grad[0];
    const fv_real on = (fv_real)(1 - o->smoothing),
                  each = (fv_real)(o->smoothing / (double)classes);
    const fv_real all = on * lane_dot(classes, w, target) + (fv_real)o->spread;
    for (size_t c = 0; dx != NULL && c < classes; c++)
        dx[c] += dy * fvi_fma(all, exp_of_shifted(x[c] - log_sum), -w[c] * (on * target[c] + each));
    for (size_t c = 0; dtarget != NULL && c < classes; c++) {
        const fv_real log_chance = x[c] - log_sum;
        const fv_real slope = left_out(w[c] * (on * target[c] + each), log_chance) ? 0 : log_chance;
        dtarget[c] = fvi_fma(-dy * on * w[c], slope, dtarget[c]);
    }
}

/* dx[c] = dy * (softmax(x)[c] * sum t - t[c]), dtarget[c] = -dy * (1 - s) * weight[c] * log p[c] */
static void soft_cross_entropy_backward(fv_tape *t, fv_var *y)
{
    add_rows(t, y, soft_cross_entropy_row_backward);
}

static fv_var *soft_cross_entropy_sample(fv_sampler *s, int which)
{
    const fv_cross_entropy_opts opts = {.smoothing = which & 1 ? 0.1 : 0,
                                        .class_weight = which & 2 ? sample_weights : NULL};
    fv_var *x = fv_sample(s, FV_SHAPE(3, 7), -3, 3);
    return fv_soft_cross_entropy_sum(fv_sampler_tape(s), x,
                                     which == 4 ? x : fv_sample(s, FV_SHAPE(3, 7), 0.1, 1),
                                     which == 4 ? NULL : &opts, NULL);
}
FVI_OP(soft_cross_entropy, "y = -sum target * log softmax(x)", "", 5)

#if FVI_ONCE
/* Checks x [rows, classes] and the options, and writes the latter as they are used. */
static bool of_classes(fv_tape *t, const char *op, const fv_var *x,
                       const fv_cross_entropy_opts *opts, class_options *o)
{
    char text[FVI_NUMBER];
    if (!given(t, op, x) || !fvi_is_matrix(t, op, "input", x))
        return false;
    const size_t classes = fvi_columns(x);
    *o = (class_options){.smoothing = opts ? opts->smoothing : 0,
                         .weight = opts ? opts->class_weight : NULL};
    if (!(o->smoothing >= 0 && o->smoothing < 1))
        fv_refuse(t, op, "smoothing %s, expected 0 <= s < 1", fvi_number(text, o->smoothing, 6));
    fv_real *ones = o->weight == NULL ? fvi_tape_take(t, classes, sizeof *ones) : NULL;
    for (size_t c = 0; ones != NULL && c < classes; c++)
        ones[c] = 1;
    o->weight = ones != NULL ? ones : o->weight;
    for (size_t c = 0; c < classes && fv_tape_ok(t); c++) {
        const double w = (double)fv_re(o->weight[c]);
        if (!(w >= 0 && isfinite(w)))
            fv_refuse(t, op, "weight %s of class %zu, expected 0 or more", fvi_number(text, w, 6),
                      c);
        o->spread += o->smoothing / (double)classes * w;
    }
    return fv_tape_ok(t);
}

/* A loss of labels: checks them, and counts the rows that have one, each by its weight. */
static fv_var *of_labels(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, const int32_t *labels,
                         const fv_cross_entropy_opts *opts, double *count)
{
    class_options o;
    double counted = 0;
    if (!of_classes(t, op, x, opts, &o))
        return NULL;
    if (labels == NULL)
        return fv_refuse(t, op, "no labels");
    o.labels = labels;
    for (size_t r = 0; r < fvi_rows(x); r++) {
        if (labels[r] >= 0 && (size_t)labels[r] >= fvi_columns(x))
            return fv_refuse(t, op, "label %d of row %zu is not below the %zu classes of %s",
                             (int)labels[r], r, fvi_columns(x), fv_describe(t, x));
        counted += labels[r] >= 0 ? (double)fv_re(o.weight[labels[r]]) : 0;
    }
    if (count != NULL)
        *count = counted;
    return fvi_record(t, id, FV_SCALAR, &o, sizeof o, 1, &x);
}

fv_var *fv_cross_entropy_sum(fv_tape *t, fv_var *x, const int32_t *labels,
                             const fv_cross_entropy_opts *opts, double *count)
{
    return of_labels(t, FVI_OP_cross_entropy, "cross_entropy", x, labels, opts, count);
}

fv_var *fv_nll_sum(fv_tape *t, fv_var *x, const int32_t *labels, const fv_cross_entropy_opts *opts,
                   double *count)
{
    return of_labels(t, FVI_OP_nll, "nll", x, labels, opts, count);
}

fv_var *fv_soft_cross_entropy_sum(fv_tape *t, fv_var *x, fv_var *target,
                                  const fv_cross_entropy_opts *opts, double *count)
{
    const char *op = "soft_cross_entropy";
    class_options o;
    if (!of_classes(t, op, x, opts, &o) || !given(t, op, target))
        return NULL;
    if (!fv_shape_equal(x->value.shape, target->value.shape))
        return fv_refuse(t, op, "%s with target %s: shapes differ", fv_describe(t, x),
                         fv_describe(t, target));
    if (count != NULL)
        *count = (double)fvi_rows(x);
    return fvi_record(t, FVI_OP_soft_cross_entropy, FV_SCALAR, &o, sizeof o, 2,
                      (fv_var *[]){x, target});
}
#endif
