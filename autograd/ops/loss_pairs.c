/* Losses between each number and its target: squared and absolute errors, Huber's, the divergence of
 * chances, binary cross entropy, and the hinge.
 *
 * A loss is a sum over numbers, taken in blocks of a fixed size and in lanes, in double; the sums of the
 * blocks are added in order. An op states its term and the slopes of that; PAIR_LOSS makes the loops. */
#include "autograd/ops/rows.h"

enum { BLOCK = 1024 };

typedef struct {
    double constant;       /* Huber's delta, or the hinge's margin */
    const fv_real *weight; /* [columns] of positives, or NULL */
    const int32_t *labels; /* of the hinge */
} pair_options;

/* One block: n numbers, their targets or labels, and the weight of each. */
typedef struct {
    size_t n;
    fv_real constant;
    const fv_real *x, *target, *weight;
    const int32_t *labels;
} block;

/* Block k of the inputs; cycle has room for the weights of its numbers, columns repeated. */
static block block_of(const fv_var *y, size_t k, fv_real cycle[BLOCK])
{
    const pair_options *o = y->options;
    const size_t all = fvi_count(y->in[0]), from = k * BLOCK, left = all - from;
    const size_t columns = fvi_columns(y->in[0]);
    const fv_var *target = y->inputs > 1 ? y->in[1] : NULL;
    block b = {.n = left < BLOCK ? left : BLOCK, .constant = (fv_real)o->constant, .weight = cycle};
    b.x = y->in[0]->value.data + from;
    b.target = target ? target->value.data + from : NULL;
    b.labels = o->labels ? o->labels + from : NULL;
    for (size_t i = 0, c = from % columns; i < b.n && o->weight != NULL; i++) {
        cycle[i] = o->weight[c];
        c = c + 1 < columns ? c + 1 : 0;
    }
    return b;
}

static size_t blocks_in(const fv_var *x)
{
    return fvi_count(x) / BLOCK + (fvi_count(x) % BLOCK > 0);
}

/* Fills what stands for the weights of a block when there are none. */
static void fill_ones(fv_real cycle[BLOCK])
{
    for (size_t i = 0; i < BLOCK; i++)
        cycle[i] = 1;
}

static bool sum_blocks(fv_tape *t, fv_var *y, fvi_wide (*sum)(const block *b))
{
    const size_t count = blocks_in(y->in[0]);
    const int parts = parts_of(t, count, 2 * BLOCK);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fvi_wide *each = fvi_tape_take(t, count, sizeof *each), total = 0;
    if (each == NULL)
        return false;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        fv_real cycle[BLOCK];
        fill_ones(cycle);
        for (size_t i = p.from; i < p.to; i++) {
            const block b = block_of(y, i, cycle);
            each[i] = sum(&b);
        }
    }
    for (size_t i = 0; i < count; i++)
        total += each[i];
    fvi_arena_release(&t->arena, mark);
    y->value.data[0] = (fv_real)total;
    return true;
}

/* to += dy * the slopes of the terms, for one input. */
static void add_slopes(fv_tape *t, fv_var *y, fv_real *to,
                       void (*add)(const block *b, fv_real dy, fv_real *to))
{
    const size_t count = blocks_in(y->in[0]);
    const int parts = to != NULL ? parts_of(t, count, 4 * BLOCK) : 0;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        fv_real cycle[BLOCK];
        fill_ones(cycle);
        for (size_t i = p.from; i < p.to; i++) {
            const block b = block_of(y, i, cycle);
            add(&b, y->grad[0], to + i * BLOCK);
        }
    }
}

/* In lanes. The terms stand in memory, so that no product among them is fused with the sum. */
static fvi_wide sum_of_terms(size_t n, const fvi_wide *restrict term)
{
    fvi_wide lane[FVI_LANES] = {0};
    size_t i = 0;
    for (; i + FVI_LANES <= n; i += FVI_LANES)
        for (int l = 0; l < FVI_LANES; l++)
            lane[l] += term[i + (size_t)l];
    for (; i < n; i++)
        lane[i % FVI_LANES] += term[i];
    for (int half = FVI_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

#define ADD_SLOPES(function, slope)                                                                \
    static void function(const block *b, fv_real dy, fv_real *to)                                  \
    {                                                                                              \
        fv_real *restrict out = to;                                                                \
        for (size_t i = 0; i < b->n; i++)                                                          \
            out[i] = fvi_fma(dy, slope(b, i), out[i]);                                             \
    }

/* name_forward and name_backward from name_term(block, i) and its slopes, for x and for the target. */
#define PAIR_LOSS(name)                                                                            \
    static fvi_wide name##_sum(const block *b)                                                     \
    {                                                                                              \
        fvi_wide term[BLOCK];                                                                      \
        for (size_t i = 0; i < b->n; i++)                                                          \
            term[i] = (fvi_wide)name##_term(b, i);                                                 \
        return sum_of_terms(b->n, term);                                                           \
    }                                                                                              \
    ADD_SLOPES(name##_to_x, name##_slope)                                                          \
    ADD_SLOPES(name##_to_target, name##_target_slope)                                              \
    static bool name##_forward(fv_tape *t, fv_var *y)                                              \
    {                                                                                              \
        return sum_blocks(t, y, name##_sum);                                                       \
    }                                                                                              \
    static void name##_backward(fv_tape *t, fv_var *y)                                             \
    {                                                                                              \
        add_slopes(t, y, fv_grad(t, y->in[0]), name##_to_x);                                       \
        if (y->inputs > 1)                                                                         \
            add_slopes(t, y, fv_grad(t, y->in[1]), name##_to_target);                              \
    }

/* Inputs of a sample: a matrix, one number, several blocks with targets that are far away (there are kinks
 * where they meet), and the same twice. */
static fv_var *pair_sample(fv_sampler *s, int which, double low, double high, fv_var **target)
{
    const fv_shape shapes[] = {FV_SHAPE(5, 7), FV_SCALAR, FV_SHAPE(2, 3, 179), FV_SHAPE(4)};
    const double apart = which == 2 ? 1 + high - low : 0;
    fv_var *x = fv_sample(s, shapes[which], low + apart, high + apart);
    *target = which == 3 ? x : fv_sample(s, shapes[which], low, high);
    return x;
}

/* ---- mse ------------------------------------------------------------------------------------- */

static inline fvi_wide mse_term(const block *b, size_t i)
{
    const fvi_wide e = (fvi_wide)b->x[i] - b->target[i];
    return e * e;
}

/* dx = 2 (x - target) dy, dtarget = -dx */
static inline fv_real mse_slope(const block *b, size_t i)
{
    return 2 * (b->x[i] - b->target[i]);
}

static inline fv_real mse_target_slope(const block *b, size_t i)
{
    return 2 * (b->target[i] - b->x[i]);
}
PAIR_LOSS(mse)

static fv_var *mse_sample(fv_sampler *s, int which)
{
    fv_var *target, *x = pair_sample(s, which, -2, 2, &target);
    return fv_mse_sum(fv_sampler_tape(s), x, target, NULL);
}
FVI_OP(mse, "y = sum (x - target)^2", "", 4)

/* ---- l1 -------------------------------------------------------------------------------------- */

static inline fv_real l1_term(const block *b, size_t i)
{
    return fvi_abs(b->x[i] - b->target[i]);
}

/* dx = sign(x - target) dy, 0 where they are equal; dtarget = -dx */
static inline fv_real l1_slope(const block *b, size_t i)
{
    const fv_real e = b->x[i] - b->target[i];
    return fv_re(e) > 0 ? 1 : fv_re(e) < 0 ? -1 : 0;
}

static inline fv_real l1_target_slope(const block *b, size_t i)
{
    return -l1_slope(b, i);
}
PAIR_LOSS(l1)

static fv_var *l1_sample(fv_sampler *s, int which)
{
    fv_var *target, *x = pair_sample(s, which, -2, 2, &target);
    return fv_l1_sum(fv_sampler_tape(s), x, target, NULL);
}
FVI_OP(l1, "y = sum |x - target|", "", 4)

/* ---- huber ----------------------------------------------------------------------------------- */

static inline fv_real huber_term(const block *b, size_t i)
{
    const fv_real e = fvi_abs(b->x[i] - b->target[i]);
    const fv_real most = fv_re(e) > fv_re(b->constant) ? b->constant : e;
    return most * (e - most / 2);
}

/* dx = (x - target) between -delta and delta, dy; dtarget = -dx */
static inline fv_real huber_slope(const block *b, size_t i)
{
    const fv_real e = b->x[i] - b->target[i], delta = b->constant;
    return fv_re(e) > fv_re(delta) ? delta : fv_re(e) < -fv_re(delta) ? -delta : e;
}

static inline fv_real huber_target_slope(const block *b, size_t i)
{
    return -huber_slope(b, i);
}
PAIR_LOSS(huber)

static fv_var *huber_sample(fv_sampler *s, int which)
{
    fv_var *target, *x = pair_sample(s, which, -2, 2, &target);
    return fv_huber_sum(fv_sampler_tape(s), x, target, which == 2 ? 0.7 : 1.1, NULL);
}
FVI_OP(huber, "y = sum (e <= delta ? e^2 / 2 : delta (e - delta / 2)), e = |x - target|",
       "Huber, 1964", 4)

/* ---- kl_div: where target is 0, neither the value nor a gradient ------------------------------- */

static inline fv_real kl_div_term(const block *b, size_t i)
{
    const fv_real p = b->target[i], gap = fvi_log(p) - b->x[i];
    return p * (fv_re(p) == 0 ? 0 : gap);
}

/* dx = -target dy, dtarget = (ln target + 1 - x) dy */
static inline fv_real kl_div_slope(const block *b, size_t i)
{
    return -b->target[i];
}

static inline fv_real kl_div_target_slope(const block *b, size_t i)
{
    const fv_real slope = fvi_log(b->target[i]) + 1 - b->x[i];
    return fv_re(b->target[i]) == 0 ? 0 : slope;
}
PAIR_LOSS(kl_div)

static fv_var *kl_div_sample(fv_sampler *s, int which)
{
    fv_var *target, *x = pair_sample(s, which, 0.1, 2, &target);
    return fv_kl_div_sum(fv_sampler_tape(s), x, target, NULL);
}
FVI_OP(kl_div, "y = sum target (ln target - x)", "Kullback and Leibler, 1951", 4)

/* ---- bce_with_logits: with e = exp(-|x|) <= 1, so that nothing overflows ------------------------- */

/* exp(-|x|) */
static inline fv_real bce_exp(fv_real x)
{
    return exp_of_shifted(fv_re(x) < 0 ? x : -x);
}

/* ln(1 + exp(-|x|)), which -log sigmoid(x) and -log sigmoid(-x) have both */
static inline fv_real bce_both(fv_real x)
{
    return fvi_softplus(fv_re(x) < 0 ? x : -x);
}

static inline fv_real bce_with_logits_term(const block *b, size_t i)
{
    const fv_real x = b->x[i], p = b->target[i], both = bce_both(x);
    const fv_real miss = (fv_re(x) < 0 ? -x : 0) + both; /* -log sigmoid(x) */
    const fv_real false_alarm = (fv_re(x) < 0 ? 0 : x) + both;
    return fvi_fma(b->weight[i] * p, miss, (1 - p) * false_alarm);
}

/* dx = ((1 - target) sigmoid(x) - weight target sigmoid(-x)) dy,
 * dtarget = (log sigmoid(-x) - weight log sigmoid(x)) dy */
static inline fv_real bce_with_logits_slope(const block *b, size_t i)
{
    const fv_real x = b->x[i], p = b->target[i], e = bce_exp(x), share = 1 / (1 + e);
    const fv_real yes = fv_re(x) < 0 ? e * share : share, no = fv_re(x) < 0 ? share : e * share;
    return fvi_fma(1 - p, yes, -b->weight[i] * p * no);
}

static inline fv_real bce_with_logits_target_slope(const block *b, size_t i)
{
    const fv_real x = b->x[i], both = bce_both(x);
    const fv_real miss = (fv_re(x) < 0 ? -x : 0) + both;
    return b->weight[i] * miss - ((fv_re(x) < 0 ? 0 : x) + both);
}
PAIR_LOSS(bce_with_logits)

static fv_var *bce_with_logits_sample(fv_sampler *s, int which)
{
    static const fv_real weight[] = {1, 2, 0.5f, 3, 1.5f, 0.25f, 1};
    const fv_bce_opts opts = {.pos_weight = weight};
    fv_var *target, *x = pair_sample(s, which, -3, 3, &target);
    return fv_bce_with_logits_sum(fv_sampler_tape(s), x, target, which == 0 ? &opts : NULL, NULL);
}
FVI_OP(bce_with_logits,
       "y = -sum (pos_weight target log sigmoid(x) + (1 - target) log sigmoid(-x))", "", 4)

/* ---- hinge ----------------------------------------------------------------------------------- */

static inline fv_real hinge_term(const block *b, size_t i)
{
    const fv_real short_of = b->constant - (fv_real)b->labels[i] * b->x[i];
    return fv_re(short_of) <= 0 ? 0 : short_of;
}

/* dx = -label dy where margin - label x > 0 */
static inline fv_real hinge_slope(const block *b, size_t i)
{
    const fv_real short_of = b->constant - (fv_real)b->labels[i] * b->x[i];
    return fv_re(short_of) > 0 ? -(fv_real)b->labels[i] : 0;
}

/* labels have no gradient */
static inline fv_real hinge_target_slope(const block *b, size_t i)
{
    (void)b;
    (void)i;
    return 0;
}
PAIR_LOSS(hinge)

static fv_var *hinge_sample(fv_sampler *s, int which)
{
    static const int32_t labels[] = {1, -1, -1, 1, -1, 1};
    return fv_hinge_sum(fv_sampler_tape(s), fv_sample(s, which ? FV_SCALAR : FV_SHAPE(2, 3), -2, 2),
                        labels, which ? 0.3 : 1, NULL);
}
FVI_OP(hinge, "y = sum max(0, margin - label x)", "Cortes and Vapnik, 1995", 2)

#if FVI_ONCE
static fv_var *of_pairs(fv_tape *t, fvi_op_id id, const char *op, fv_var *x, fv_var *target,
                        const pair_options *o, double *count)
{
    if (!given(t, op, x) || !given(t, op, target))
        return NULL;
    if (!fv_shape_equal(x->value.shape, target->value.shape))
        return fv_refuse(t, op, "%s with target %s: shapes differ", fv_describe(t, x),
                         fv_describe(t, target));
    if (count != NULL)
        *count = (double)fvi_count(x);
    return fvi_record(t, id, FV_SCALAR, o, sizeof *o, 2, (fv_var *[]){x, target});
}

fv_var *fv_mse_sum(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return of_pairs(t, FVI_OP_mse, "mse", x, target, &(pair_options){0}, count);
}

fv_var *fv_l1_sum(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    return of_pairs(t, FVI_OP_l1, "l1", x, target, &(pair_options){0}, count);
}

fv_var *fv_huber_sum(fv_tape *t, fv_var *x, fv_var *target, double delta, double *count)
{
    char text[FVI_NUMBER];
    if (!(delta > 0))
        return fv_refuse(t, "huber", "delta %s, expected more than 0", fvi_number(text, delta, 6));
    return of_pairs(t, FVI_OP_huber, "huber", x, target, &(pair_options){.constant = delta}, count);
}

fv_var *fv_kl_div_sum(fv_tape *t, fv_var *x, fv_var *target, double *count)
{
    fv_var *y = of_pairs(t, FVI_OP_kl_div, "kl_div", x, target, &(pair_options){0}, count);
    if (y != NULL && count != NULL)
        *count = (double)fvi_rows(x);
    return y;
}

fv_var *fv_bce_with_logits_sum(fv_tape *t, fv_var *x, fv_var *target, const fv_bce_opts *opts,
                               double *count)
{
    const char *op = "bce_with_logits";
    const pair_options o = {.weight = opts ? opts->pos_weight : NULL};
    char text[FVI_NUMBER];
    if (!given(t, op, x))
        return NULL;
    for (size_t c = 0; o.weight != NULL && c < fvi_columns(x); c++)
        if (!(fv_re(o.weight[c]) >= 0 && isfinite((double)fv_re(o.weight[c]))))
            return fv_refuse(t, op, "weight %s of column %zu, expected 0 or more",
                             fvi_number(text, (double)fv_re(o.weight[c]), 6), c);
    return of_pairs(t, FVI_OP_bce_with_logits, op, x, target, &o, count);
}

fv_var *fv_hinge_sum(fv_tape *t, fv_var *x, const int32_t *labels, double margin, double *count)
{
    const char *op = "hinge";
    const pair_options o = {.constant = margin, .labels = labels};
    char text[FVI_NUMBER];
    if (!given(t, op, x))
        return NULL;
    if (labels == NULL)
        return fv_refuse(t, op, "no labels");
    if (!isfinite(margin))
        return fv_refuse(t, op, "margin %s, expected a number", fvi_number(text, margin, 6));
    for (size_t i = 0; i < fvi_count(x); i++)
        if (labels[i] != 1 && labels[i] != -1)
            return fv_refuse(t, op, "label %d at %zu, expected 1 or -1", (int)labels[i], i);
    if (count != NULL)
        *count = (double)fvi_count(x);
    return fvi_record(t, FVI_OP_hinge, FV_SCALAR, &o, sizeof o, 1, &x);
}
#endif
