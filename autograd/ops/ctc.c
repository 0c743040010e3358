/* Connectionist temporal classification: the chance of a sequence of labels, over all ways to spread it
 * over the rows of a sample with blanks between (Graves, Fernandez, Gomez, Schmidhuber, 2006).
 *
 * The labels l become states blank, l1, blank, l2, .., blank. A row stays in its state, goes on to the
 * next, or skips a blank between two labels that differ. alpha[row][state] is the logarithm of the chance
 * of all ways that lead there, with the row's own log-chance; beta of all ways that lead on from there,
 * without it; so alpha + beta - the whole chance's is the logarithm of the share of ways through a state.
 * Each row of alpha and beta is shifted so that its largest number is 0, and the shifts are summed in
 * double: long samples lose no digits. The loss is minus the logarithm of the whole chance; its
 * derivative by x[row][class] is minus the share of the ways that are in that class at that row. */
#include "autograd/ops/rows.h"

typedef struct {
    const fv_segments *segments, *targets;
    const int32_t *labels;
    int32_t blank;
    bool zero_infinity;
    size_t longest; /* states of the longest labels */
} ctc_options;

/* What forward leaves for backward: per sample, where its alpha starts, and the loss. */
typedef struct {
    fv_real *alpha; /* [rows, states] of each sample, one sample behind the other */
    double *shift;  /* [rows]: what was taken off alpha up to and with that row */
    size_t *start;  /* [samples + 1] into alpha */
    fvi_wide *loss; /* [samples] */
} ctc_saved;

/* One sample. The arrays of states have two states in front and behind that no way leads through. */
typedef struct {
    size_t rows, states, classes;
    const fv_real *x;
    size_t *class_of; /* [states] */
    fv_real *skip;    /* [states]: 0 where a way may come from two states before, else -Inf */
} sample;

enum { AROUND = 2 };

static fv_real never(void)
{
    return (fv_real)-INFINITY;
}

/* Numbers of scratch that a sample with so many states needs. */
static size_t scratch_of(size_t states)
{
    return 5 * (states + 2 * AROUND);
}

static sample sample_of(const fv_var *y, size_t s, fv_real *skip, size_t *class_of)
{
    const ctc_options *o = y->options;
    const size_t from = o->segments->offsets[s], labels = o->targets->offsets[s];
    const int32_t *label = o->labels == NULL ? NULL : o->labels + labels;
    const sample a = {.rows = o->segments->offsets[s + 1] - from,
                      .states = 2 * (o->targets->offsets[s + 1] - labels) + 1,
                      .classes = fvi_columns(y->in[0]),
                      .x = y->in[0]->value.data + from * fvi_columns(y->in[0]),
                      .class_of = class_of,
                      .skip = skip};
    for (size_t i = 0; i < a.states; i++) {
        class_of[i] = (size_t)(i % 2 ? label[i / 2] : o->blank);
        skip[i] = i % 2 && i > 1 && label[i / 2] != label[i / 2 - 1] ? 0 : never();
    }
    return a;
}

/* ln(e^a + e^b + e^c); of three times -Inf it is -Inf */
static inline fv_real add_logs(fv_real a, fv_real b, fv_real c)
{
    fv_real most = fv_re(a) > fv_re(b) ? a : b;
    most = fv_re(c) > fv_re(most) ? c : most;
    most = fv_re(most) == -(double)INFINITY ? 0 : fv_re(most);
    return most +
           fvi_log(exp_of_shifted(a - most) + exp_of_shifted(b - most) + exp_of_shifted(c - most));
}

/* Takes the largest number off all, unless it is -Inf; gives what was taken. */
static double take_off(size_t n, fv_real *restrict x)
{
    const fv_real most = lane_max(n, x);
    if (fv_re(most) == -(double)INFINITY)
        return 0;
    for (size_t i = 0; i < n; i++)
        x[i] -= most;
    return (double)fv_re(most);
}

/* What stands around a row of states. */
static fv_real *with_borders(fv_real *scratch, size_t states)
{
    for (size_t i = 0; i < AROUND; i++)
        scratch[i] = scratch[AROUND + states + i] = never();
    return scratch + AROUND;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Fills alpha [rows, states] and shift [rows], and gives the loss. */
static fvi_wide forward_sample(const sample *a, fv_real *alpha, double *shift, fv_real *scratch)
{
    fv_real *before = with_borders(scratch, a->states);
    double taken = 0;
    if (a->rows == 0)
        return a->states == 1 ? 0 : (fvi_wide)(double)INFINITY;
    for (size_t r = 0; r < a->rows; r++) {
        const fv_real *restrict x = a->x + r * a->classes, *restrict skip = a->skip;
        fv_real *restrict now = alpha + r * a->states;
        for (size_t i = 0; r == 0 && i < a->states; i++)
            now[i] = i < 2 ? 0 : never(); /* the first row is in one of the first two */
        for (size_t i = 0; r > 0 && i < a->states; i++)
            now[i] = add_logs(before[i], before[i - 1], before[i - 2] + skip[i]);
        for (size_t i = 0; i < a->states; i++)
            now[i] += x[a->class_of[i]];
        taken += take_off(a->states, now);
        shift[r] = taken;
        for (size_t i = 0; i < a->states; i++)
            before[i] = now[i];
    }
    /* the last row is in one of the last two */
    return -((fvi_wide)add_logs(before[a->states - 1],
                                a->states > 1 ? before[a->states - 2] : never(), never()) +
             taken);
}

/* Room for all samples; false when memory is out. */
static bool make_room(fv_tape *t, const fv_var *y, ctc_saved *saved)
{
    const ctc_options *o = y->options;
    size_t need = 0;
    saved->start = fvi_tape_take(t, o->segments->count + 1, sizeof *saved->start);
    for (size_t s = 0; saved->start != NULL && s < o->segments->count; s++) {
        const size_t rows = o->segments->offsets[s + 1] - o->segments->offsets[s];
        const size_t states = 2 * (o->targets->offsets[s + 1] - o->targets->offsets[s]) + 1;
        size_t numbers;
        saved->start[s] = need;
        if (!fvi_mul(rows, states, &numbers) || !fvi_add(need, numbers, &need)) {
            fv_refuse(t, "ctc", "sample %zu has %zu rows and %zu labels: more than there can be", s,
                      rows, states / 2);
            return false;
        }
    }
    saved->alpha = fvi_tape_take(t, need, sizeof *saved->alpha);
    saved->shift = fvi_tape_take(t, fvi_rows(y->in[0]), sizeof *saved->shift);
    saved->loss = fvi_tape_take(t, o->segments->count, sizeof *saved->loss);
    return fv_tape_ok(t);
}

/* Parts that the samples are cut into. */
static int parts_of_samples(const fv_tape *t, const fv_var *y)
{
    const ctc_options *o = y->options;
    const size_t samples = o->segments->count, rows = fvi_rows(y->in[0]);
    return samples > 0 ? parts_of(t, samples, 20 * (rows / samples + 1) * o->longest) : 0;
}

static bool ctc_forward(fv_tape *t, fv_var *y)
{
    const ctc_options *o = y->options;
    const size_t samples = o->segments->count;
    ctc_saved *saved = fvi_tape_take(t, 1, sizeof *saved);
    if (saved == NULL || !make_room(t, y, saved))
        return false;
    const int parts = parts_of_samples(t, y);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * scratch_of(o->longest), sizeof *scratch);
    size_t *classes = fvi_tape_take(t, (size_t)parts * o->longest, sizeof *classes);
    if (scratch == NULL || classes == NULL)
        return false;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(samples, parts, k);
        fv_real *own = scratch + (size_t)k * scratch_of(o->longest);
        for (size_t s = p.from; s < p.to; s++) {
            const sample a = sample_of(y, s, own, classes + (size_t)k * o->longest);
            saved->loss[s] =
                forward_sample(&a, saved->alpha + saved->start[s],
                               saved->shift + o->segments->offsets[s], own + o->longest);
        }
    }
    fvi_arena_release(&t->arena, mark);
    fvi_wide total = 0;
    for (size_t s = 0; s < samples; s++)
        if (!o->zero_infinity || fv_re(saved->loss[s]) != (double)INFINITY)
            total += saved->loss[s];
    y->saved = saved;
    y->value.data[0] = (fv_real)total;
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* dx -= dy * the share of ways; from the last row to the first */
static void backward_sample(const sample *a, const fv_real *alpha, const double *shift,
                            fvi_wide loss, fv_real dy, fv_real *scratch, fv_real *dx)
{
    const size_t width = a->states + 2 * AROUND;
    fv_real *beta =
        with_borders(scratch, a->states); /* with the row's log-chances, of the row behind */
    fv_real *restrict now = scratch + width, *restrict share = scratch + 2 * width;
    fv_real *skip = with_borders(scratch + 3 * width, a->states);
    double taken = 0;
    for (size_t i = 0; i < a->states; i++)
        skip[i] = a->skip[i];
    for (size_t r = a->rows; r-- > 0;) {
        const fv_real *restrict x = a->x + r * a->classes;
        const fv_real *restrict reached = alpha + r * a->states;
        for (size_t i = 0; i < a->states; i++)
            now[i] = r + 1 < a->rows ? add_logs(beta[i], beta[i + 1], beta[i + 2] + skip[i + 2])
                     : i + 2 >= a->states ? 0
                                          : never();
        taken += take_off(a->states, now);
        const fv_real rest = (fv_real)(loss + (shift[r] + taken));
        for (size_t i = 0; i < a->states; i++)
            share[i] = exp_of_shifted(reached[i] + now[i] + rest);
        for (size_t i = 0; i < a->states; i++) {
            dx[r * a->classes + a->class_of[i]] -= dy * share[i];
            beta[i] = now[i] + x[a->class_of[i]];
        }
    }
}

/* dx[row][class] = -dy * the share of the ways that are in that class at that row */
static void ctc_backward(fv_tape *t, fv_var *y)
{
    const ctc_options *o = y->options;
    const ctc_saved *saved = y->saved;
    const size_t samples = o->segments->count, d = fvi_columns(y->in[0]);
    fv_real *dx = fv_grad(t, y->in[0]);
    const int parts = dx != NULL ? parts_of_samples(t, y) : 0;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * scratch_of(o->longest), sizeof *scratch);
    size_t *classes = fvi_tape_take(t, (size_t)parts * o->longest, sizeof *classes);
    const int ready = fv_tape_ok(t) ? parts : 0;
#pragma omp parallel for num_threads(ready) if (ready > 1)
    for (int k = 0; k < ready; k++) {
        const part p = part_at(samples, ready, k);
        fv_real *own = scratch + (size_t)k * scratch_of(o->longest);
        for (size_t s = p.from; s < p.to; s++) {
            const size_t first = o->segments->offsets[s];
            if (o->zero_infinity && fv_re(saved->loss[s]) == (double)INFINITY)
                continue;
            const sample a = sample_of(y, s, own, classes + (size_t)k * o->longest);
            backward_sample(&a, saved->alpha + saved->start[s], saved->shift + first,
                            saved->loss[s], y->grad[0], own + o->longest, dx + first * d);
        }
    }
    fvi_arena_release(&t->arena, mark);
}

static fv_var *ctc_sample(fv_sampler *s, int which)
{
    /* a repeat that needs a blank between, one label, none, and one that its rows just hold */
    static const size_t rows[] = {0, 6, 9, 11, 14}, ends[] = {0, 3, 4, 4, 6};
    static const size_t short_rows[] = {0, 6, 7, 11, 14};
    static const int32_t labels[] = {2, 2, 1, 3, 1, 1}, high[] = {2, 2, 1, 0, 1, 1};
    static const fv_segments segments = {4, rows}, targets = {4, ends}, tight = {4, short_rows};
    static const size_t two_rows[] = {0, 6, 7}, two_ends[] = {0, 3, 5};
    static const fv_segments two = {2, two_rows}, two_targets = {2, two_ends};
    fv_tape *t = fv_sampler_tape(s);
    const fv_ctc_opts opts = {.blank = 3}, zero = {.zero_infinity = true};
    if (which == 2) /* the second has more labels than rows */
        return fv_ctc_sum(t, fv_sample(s, FV_SHAPE(7, 4), -3, -0.1), &two, labels, &two_targets,
                          &zero, NULL);
    fv_var *x = fv_sample(s, FV_SHAPE(14, 4), -3, -0.1);
    return which == 0
               ? fv_ctc_sum(t, x, &segments, labels, &targets, NULL, NULL)
               : fv_ctc_sum(t, fv_log_softmax(t, x, -1), &tight, high, &targets, &opts, NULL);
}
FVI_OP(ctc, "y = -sum over samples of ln(chance of the labels)",
       "Graves, Fernandez, Gomez, Schmidhuber, 2006", 3)

#if FVI_ONCE
fv_var *fv_ctc_sum(fv_tape *t, fv_var *x, const fv_segments *segments, const int32_t *labels,
                   const fv_segments *targets, const fv_ctc_opts *opts, double *count)
{
    const char *op = "ctc";
    ctc_options o = {segments, targets, labels, opts ? opts->blank : 0, opts && opts->zero_infinity,
                     1};
    fv_error error = {FV_OK, ""};
    if (!given(t, op, x) || !segmented(t, op, x, segments))
        return NULL;
    if (targets == NULL || targets->offsets == NULL)
        return fv_refuse(t, op, "no targets");
    const size_t classes = fvi_columns(x), all = fv_segments_rows(targets);
    if (!fv_segments_check(targets, all, &error))
        return fv_refuse(t, op, "targets: %s", error.text);
    if (targets->count != segments->count)
        return fv_refuse(t, op, "%zu samples with the labels of %zu", segments->count,
                         targets->count);
    if (labels == NULL && all > 0)
        return fv_refuse(t, op, "no labels");
    if (o.blank < 0 || (size_t)o.blank >= classes)
        return fv_refuse(t, op, "blank %d is not one of the %zu classes of %s", (int)o.blank,
                         classes, fv_describe(t, x));
    for (size_t i = 0; i < all; i++) {
        if (labels[i] < 0 || (size_t)labels[i] >= classes)
            return fv_refuse(t, op, "label %d at %zu is not one of the %zu classes of %s",
                             (int)labels[i], i, classes, fv_describe(t, x));
        if (labels[i] == o.blank)
            return fv_refuse(t, op, "label %d at %zu is the blank", (int)labels[i], i);
    }
    for (size_t s = 0; s < targets->count; s++) {
        const size_t states = 2 * (targets->offsets[s + 1] - targets->offsets[s]) + 1;
        o.longest = states > o.longest ? states : o.longest;
    }
    if (count != NULL)
        *count = (double)segments->count;
    return fvi_record(t, FVI_OP_ctc, FV_SCALAR, &o, sizeof o, 1, &x);
}
#endif
