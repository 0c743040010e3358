/* Attention row by row, backward: scores and weights of a row come back from what it sees and its
 * kept statistic, then its gradients go out.
 *
 * A row writes what is its own: dq, and the gradients of its pairs. What rows share (dk, dv, the gradients of
 * the score's weight, of the biases by distance and of the values by distance) is summed over either half of
 * each patch's rows, in order, and then the second half's sums are added to the first's: so two threads share
 * a single head, and sums do not depend on how many there are. */
#include "tensor/kernel/attention_row_scores.h"

enum { HALVES = 2 };

/* A share of the work: one half of every patch, and whole key heads. */
typedef struct {
    size_t half;
    size_t first, end, abreast; /* heads */
    fv_real *dk, *dv;           /* this half's, or NULL: rows of so many numbers */
    size_t dk_row, dv_row;
    /* Sums of what rows share, or NULL: like the gradients. */
    fv_real *dweight, *drelative, *dslopes, *drelative_v;
} part;

/* How many numbers the gradients have that rows share, as far as the call has what they are of. */
typedef struct {
    size_t dk, dv, dweight, drelative, dslopes, drelative_v;
} shared;

static shared shared_of(const fvi_attention *a)
{
    const size_t columns = 2 * (size_t)a->clip + 1;
    return (shared){.dk = a->keys * a->kv_heads * a->qk,
                    .dv = a->keys * a->kv_heads * a->vd,
                    .dweight = a->heads * a->weights,
                    .drelative = a->relative != NULL && !a->relative_rows ? a->heads * columns : 0,
                    .dslopes = a->slopes != NULL ? a->heads : 0,
                    .drelative_v = a->relative_v != NULL ? columns * a->vd : 0};
}

/* ---- from gradients of weights to gradients of scores -------------------------------------------- */

FVI_INLINE void levels_by_y(const fvi_row *r, const fv_real *dy, const fv_real *y, fv_real *level,
                            const size_t n)
{
    for (size_t h = 0; h < r->heads; h++)
        level[h] = fvi_dot_of(dy + h * n, y + h * n, n);
}

/* What the gradient of a row's weights is measured from: dy . y, which is the sum of z w dP, for softmax
 * and relu; for sparsemax the mean of z dP over the support. */
static void levels_of(const fvi_row *r, const fv_real *dy, const fv_real *y, fv_real *level)
{
    if (r->a->normalizer != FV_NORMALIZE_SPARSEMAX) {
        FVI_UNROLLED(r->a->vd, levels_by_y, r, dy, y, level);
        return;
    }
    for (size_t h = 0; h < r->heads; h++) {
        fv_real sum = 0;
        size_t count = 0;
        for (size_t x = h; x < fvi_row_pairs(r); x += r->heads)
            if (fv_re(r->w[x]) != 0) {
                sum += r->slope[x];
                count++;
            }
        level[h] = count > 0 ? sum / (fv_real)count : 0;
    }
}

FVI_INLINE void weight_slopes_of(const fvi_row *r, const fv_real *dy, const size_t n)
{
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *v = fvi_row_value(r, b) + r->kv * n;
        for (size_t h = 0; h < r->heads; h++)
            r->slope[b * r->heads + h] = fvi_dot_of(dy + h * n, v + fvi_row_kv_at(r, h) * n, n);
    }
}

/* The gradient of the weights: dP = dy . value, times the dropout factor z. */
static void weight_slopes(const fvi_row *r, const fv_real *dy)
{
    FVI_UNROLLED(r->a->vd, weight_slopes_of, r, dy);
    if (r->a->dropout > 0)
        for (size_t x = 0; x < fvi_row_pairs(r); x++)
            r->slope[x] = fv_re(r->keep[x]) != 0 ? r->slope[x] * r->keep[x] : 0;
}

FVI_INLINE void score_slopes_of(const fvi_row *r, const fv_real *statistic, const fv_real *level,
                                const size_t heads)
{
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *w = r->w + b * heads, *s = r->s + b * heads;
        fv_real *slope = r->slope + b * heads;
        switch (r->a->normalizer) {
        case FV_NORMALIZE_SOFTMAX:
        case FV_NORMALIZE_SOFTMAX_PLUS_ONE:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fv_re(w[h]) == 0 ? 0 : w[h] * (slope[h] - level[h]);
            break;
        case FV_NORMALIZE_SPARSEMAX:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fv_re(w[h]) == 0 ? 0 : slope[h] - level[h];
            break;
        case FV_NORMALIZE_RELU:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fv_re(w[h]) == 0 ? 0 : (slope[h] - level[h]) / statistic[h];
            break;
        case FV_NORMALIZE_SIGMOID:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fv_re(w[h]) == 0 ? 0 : slope[h] * (w[h] * (1 - w[h]));
            break;
        case FV_NORMALIZE_MEAN:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fvi_hidden(s[h]) ? 0 : slope[h] / statistic[h];
            break;
        default:
            for (size_t h = 0; h < heads; h++)
                slope[h] = fvi_hidden(s[h]) ? 0 : slope[h];
        }
    }
}

/* The gradient of the scores from that of the weights. Softmax: w (z dP - level); relu: (z dP - level) /
 * sum; sparsemax: z dP - level on the support; sigmoid: z dP w (1 - w); mean: z dP / count; none: z dP. */
static void score_slopes(const fvi_row *r, const fv_real *statistic, const fv_real *level)
{
    FVI_UNROLLED(r->heads, score_slopes_of, r, statistic, level);
}

/* The gradients of what is added to the scores. */
static void add_to_biases(const fvi_row *r, const fvi_attention_grad *g, const part *to)
{
    const fvi_attention *a = r->a;
    const bool own = a->relative != NULL && a->relative_rows && g->drelative != NULL;
    fv_real *drelative = own ? g->drelative : to->drelative;
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *slope = r->slope + b * r->heads;
        const size_t column = drelative != NULL ? fvi_row_column(r, b) : 0;
        for (size_t h = 0; h < r->heads; h++) {
            if (drelative != NULL)
                drelative[fvi_row_relative_at(r, h) + column] += slope[h];
            if (to->dslopes != NULL)
                to->dslopes[r->first + h] =
                    fvi_fma(-fvi_row_distance_of(r, b), slope[h], to->dslopes[r->first + h]);
            if (a->bias != NULL && g->dbias != NULL)
                g->dbias[fvi_row_bias_at(r, b, h)] += slope[h];
        }
    }
}

/* ---- from gradients of scores to those of q, k and the weight ------------------------------------- */

/* Where the gradients of the first head abreast go, each may be NULL: a row's query, one pair's key and
 * vector, the score's weight. */
typedef struct {
    fv_real *dq, *dk, *dpair, *dweight;
} targets;

static targets targets_of(const fvi_row *r, const fvi_attention_grad *g, const part *to)
{
    const fvi_attention *a = r->a;
    return (targets){
        .dq = g->dq != NULL ? g->dq + r->row * a->q_row + r->first * a->qk : NULL,
        .dweight = to->dweight != NULL ? to->dweight + r->first * a->weights : NULL,
    };
}

/* Turns to pair b. */
static void target_pair(targets *t, const fvi_row *r, const fvi_attention_grad *g, const part *to,
                        size_t b)
{
    const fvi_attention *a = r->a;
    const size_t at = r->kv * a->qk;
    t->dk = to->dk != NULL ? to->dk + (r->p->key + r->at[b]) * to->dk_row + at : NULL;
    t->dpair = a->pair_k != NULL && g->dpair_k != NULL
                   ? g->dpair_k + (r->edge + b) * a->kv_heads * a->qk + at
                   : NULL;
}

/* Head h of pair b: q += slope q_side, k += slope k_side. */
static void add_to_pair(const targets *t, const fvi_row *r, size_t h, fv_real q_slope,
                        const fv_real *q_side, fv_real k_slope, const fv_real *k_side)
{
    const size_t n = r->a->qk, q_at = h * n, k_at = (fvi_row_kv(r, h) - r->kv) * n;
    if (t->dq != NULL)
        fvi_add_scaled(n, q_slope, q_side, t->dq + q_at);
    if (t->dk != NULL)
        fvi_add_scaled(n, k_slope, k_side, t->dk + k_at);
    if (t->dpair != NULL)
        fvi_add_scaled(n, k_slope, k_side, t->dpair + k_at);
}

/* An additive score with as many key heads as heads: all channels of all heads abreast, width of a head. */
FVI_INLINE void add_abreast(const targets *t, const fvi_row *r, const fv_real *slope,
                            const size_t width)
{
    const size_t n = r->heads * width;
    fv_real *restrict step = r->outer, *restrict f = r->inner;
    for (size_t h = 0; h < r->heads; h++)
        for (size_t c = h * width; c < (h + 1) * width; c++) {
            const bool hidden = fv_re(slope[h]) == 0;
            step[c] = hidden ? 0 : slope[h] * step[c];
            f[c] = hidden ? 0 : slope[h] * f[c];
        }
    fv_real *const to[] = {t->dq, t->dk, t->dpair};
    for (int i = 0; i < 3; i++)
        for (size_t c = 0; to[i] != NULL && c < n; c++)
            to[i][c] += step[c];
    for (size_t c = 0; t->dweight != NULL && c < n; c++)
        t->dweight[c] += f[c];
}

/* dot: dq = slope k, dk = slope q; -|q - k|^2: dq = -2 slope (q - k) = -dk; w . f(q + k): dq = dk =
 * slope w f', dw = slope f */
static void add_to_queries_and_keys(const fvi_row *r, const fvi_attention_grad *g, const part *to)
{
    const fvi_attention *a = r->a;
    const size_t n = a->qk;
    const fv_real *q = fvi_row_query(r);
    const bool additive = a->score == FV_SCORE_ADDITIVE,
               abreast = additive && a->heads == a->kv_heads;
    targets t = targets_of(r, g, to);
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *k = fvi_row_key(r, b), *slope = r->slope + b * r->heads;
        target_pair(&t, r, g, to, b);
        if (abreast) {
            fvi_row_inner(a, r->heads * n, q, k + r->kv * n, a->weight + r->first * n, r->inner,
                          r->outer);
            FVI_UNROLLED(n, add_abreast, &t, r, slope);
            continue;
        }
        for (size_t h = 0; h < r->heads; h++) {
            const fv_real *qh = q + h * n, *kh = k + fvi_row_kv(r, h) * n;
            if (fv_re(slope[h]) == 0)
                continue;
            if (additive) {
                fvi_row_inner(a, n, qh, kh, a->weight + (r->first + h) * n, r->inner, r->outer);
                add_to_pair(&t, r, h, slope[h], r->outer, slope[h], r->outer);
                if (t.dweight != NULL)
                    fvi_add_scaled(n, slope[h], r->inner, t.dweight + h * n);
            } else if (a->score == FV_SCORE_DISTANCE) {
                for (size_t c = 0; c < n; c++)
                    r->inner[c] = qh[c] - kh[c];
                add_to_pair(&t, r, h, -2 * slope[h], r->inner, 2 * slope[h], r->inner);
            } else {
                add_to_pair(&t, r, h, slope[h], kh, slope[h], qh);
            }
        }
    }
}

/* The same through a user's function, some keys at a time. */
static void add_to_users(const fvi_row *r, const fvi_attention_grad *g, const part *to)
{
    const fvi_attention *a = r->a;
    const size_t n = a->qk;
    const fv_real *keys[FVI_ROW_BLOCK];
    fv_real *dkeys[FVI_ROW_BLOCK], slope[FVI_ROW_BLOCK];
    targets t = targets_of(r, g, to);
    target_pair(&t, r, g, to, 0);
    const bool of_keys = r->count > 0 && (t.dk != NULL || t.dpair != NULL);
    for (size_t h = 0; h < r->heads; h++)
        for (size_t b = 0, next; b < r->count; b = next) {
            const fv_real *weight =
                a->weight != NULL ? a->weight + (r->first + h) * a->weights : NULL;
            size_t pair[FVI_ROW_BLOCK], count = 0;
            for (next = b; next < r->count && count < FVI_ROW_BLOCK; next++)
                if (fv_re(r->slope[next * r->heads + h]) != 0)
                    pair[count++] = next;
            for (size_t x = 0; x < count; x++) {
                keys[x] = fvi_row_user_key(r, h, pair[x], x);
                slope[x] = r->slope[pair[x] * r->heads + h];
                dkeys[x] = r->user_slopes + x * n;
                for (size_t c = 0; c < n; c++)
                    dkeys[x][c] = 0;
            }
            if (count == 0)
                continue;
            a->user->backward(a->user->context, n, fvi_row_query(r) + h * n, count, keys, weight,
                              slope, t.dq != NULL ? t.dq + h * n : NULL, of_keys ? dkeys : NULL,
                              t.dweight != NULL ? t.dweight + h * a->weights : NULL);
            for (size_t x = 0; of_keys && x < count; x++) {
                target_pair(&t, r, g, to, pair[x]);
                const size_t at = (fvi_row_kv(r, h) - r->kv) * n;
                if (t.dk != NULL)
                    fvi_add_scaled(n, 1, dkeys[x], t.dk + at);
                if (t.dpair != NULL)
                    fvi_add_scaled(n, 1, dkeys[x], t.dpair + at);
            }
        }
}

FVI_INLINE void add_to_values_of(const fvi_row *r, const fvi_attention_grad *g, const part *to,
                                 const fv_real *dy, const size_t n)
{
    const fvi_attention *a = r->a;
    const size_t at = r->kv * n;
    for (size_t b = 0; b < r->count; b++) {
        fv_real *dv = to->dv != NULL ? to->dv + (r->p->key + r->at[b]) * to->dv_row + at : NULL;
        fv_real *dpair = a->pair_v != NULL && g->dpair_v != NULL
                             ? g->dpair_v + (r->edge + b) * a->kv_heads * n + at
                             : NULL;
        fv_real *by = to->drelative_v != NULL ? to->drelative_v + fvi_row_column(r, b) * n : NULL;
        for (size_t h = 0; h < r->heads; h++) {
            const fv_real w = r->w[b * r->heads + h], *dyh = dy + h * n;
            const size_t kv = fvi_row_kv_at(r, h) * n;
            if (fv_re(w) == 0)
                continue;
            if (dv != NULL)
                fvi_add_scaled_of(w, dyh, dv + kv, n);
            if (dpair != NULL)
                fvi_add_scaled_of(w, dyh, dpair + kv, n);
            if (by != NULL)
                fvi_add_scaled_of(w, dyh, by, n);
        }
    }
}

/* dv = z w dy, and the same for what was added to v. */
static void add_to_values(const fvi_row *r, const fvi_attention_grad *g, const part *to,
                          const fv_real *dy)
{
    FVI_UNROLLED(r->a->vd, add_to_values_of, r, g, to, dy);
}

/* ---- the walk ------------------------------------------------------------------------------------ */

/* The gradients between the row and the keys it has turned to, for the heads it has turned to. */
static void backward_row(const fvi_row *r, const fvi_attention_grad *g, const part *to)
{
    const fvi_attention *a = r->a;
    const size_t at = r->row * a->heads + r->first, pairs = fvi_row_pairs(r);
    const fv_real *statistic = a->lse + at, *dy = g->dy + at * a->vd;
    fv_real *level = r->most; /* free behind the forward pass */
    fvi_row_scores(r);
    fvi_row_weights(r, statistic);
    if (a->dropout > 0)
        fvi_row_keep(r);
    weight_slopes(r, dy);
    levels_of(r, dy, a->y + at * a->vd, level);
    score_slopes(r, statistic, level);
    add_to_biases(r, g, to);
    /* raw = scale score, s = softcap tanh(raw / softcap) */
    for (size_t x = 0; a->softcap > 0 && x < pairs; x++)
        r->slope[x] *= 1 - r->cap[x] * r->cap[x];
    for (size_t x = 0; a->scale != 1 && x < pairs; x++)
        r->slope[x] *= (fv_real)a->scale;
    if (a->score == FV_SCORE_USER)
        add_to_users(r, g, to);
    else
        add_to_queries_and_keys(r, g, to);
    for (size_t x = 0; a->dropout > 0 && x < pairs; x++)
        r->w[x] *= r->keep[x];
    add_to_values(r, g, to, dy);
}

/* What the edges of a part lead to: keys and values, and their gradients. */
static void look_ahead(fvi_row *r, const part *to)
{
    const fvi_attention *a = r->a;
    const size_t kv = to->first / r->group, kvs = (to->end - to->first) / r->group;
    const struct {
        const fv_real *rows;
        size_t row, width;
    } lists[] = {{a->v, a->v_row, a->vd},
                 {a->k, a->k_row, a->qk},
                 {to->dv, to->dv_row, a->vd},
                 {to->dk, to->dk_row, a->qk}};
    for (size_t n = 0, at = 0; n < 4; n++)
        if (lists[n].rows != NULL) {
            r->ahead[at].rows = lists[n].rows + kv * lists[n].width;
            r->ahead[at].row = lists[n].row;
            r->ahead[at++].width = kvs * lists[n].width;
        }
}

/* The row of a patch at which its second half begins: of edges about as many lie before it as behind. */
static size_t middle_of(const fvi_attention *a, const fvi_patch *p)
{
    if (a->mask == NULL || a->mask->edges == NULL)
        return p->query + (p->queries + 1) / 2;
    const size_t *at = a->mask->edges->offsets;
    const size_t begin = at[p->query], all = at[p->query + p->queries] - begin;
    size_t low = p->query, high = p->query + p->queries;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (at[middle] - begin < all - all / 2)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* One half of every patch for some heads. */
static void backward_half(const fvi_attention *a, const fvi_attention_grad *g, const part *to,
                          fv_real *scratch)
{
    fvi_row r;
    fvi_patch p;
    fvi_row_layout(&r, a, true, scratch);
    look_ahead(&r, to);
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        const size_t middle = middle_of(a, &p);
        const size_t end = to->half == 0 ? middle : p.query + p.queries;
        for (size_t row = to->half == 0 ? p.query : middle; row < end; row++) {
            fvi_row_turn(&r, &p, row - p.query);
            for (size_t h = to->first; r.count > 0 && h < to->end; h += to->abreast) {
                fvi_row_heads(&r, h, fvi_least(to->end - h, to->abreast));
                backward_row(&r, g, to);
            }
        }
    }
}

/* Room for the second half's sums of a gradient, zeroed; NULL where there is no gradient. */
static fv_real *second_of(const fv_real *gradient, size_t count, fv_real **scratch)
{
    if (gradient == NULL || count == 0)
        return NULL;
    fv_real *sums = fvi_slice(scratch, count);
    for (size_t x = 0; x < count; x++)
        sums[x] = 0;
    return sums;
}

/* Adds the second half's sums, rows of width numbers. */
static void add_second(const fv_real *sums, size_t count, size_t width, fv_real *to, size_t row)
{
    for (size_t x = 0; sums != NULL && x < count; x += width, to += row)
        for (size_t c = 0; c < width; c++)
            to[c] += sums[x + c];
}

size_t fvi_attention_rows_scratch(const fvi_attention *a, int threads, bool grad)
{
    const shared s = shared_of(a);
    fvi_row r;
    const size_t each = fvi_row_layout(&r, a, grad, NULL);
    const size_t second = fvi_lanes(s.dk) + fvi_lanes(s.dv) + fvi_lanes(s.dweight) +
                          fvi_lanes(s.drelative) + fvi_lanes(s.dslopes) + fvi_lanes(s.drelative_v);
    return each * (threads > 1 ? (size_t)threads : 1) + 1 + (grad ? second : 0);
}

/* Threads take halves, and of those as many key heads as there are threads for; what is summed over heads
 * keeps them together. */
void fvi_attention_rows_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                 fv_real *scratch)
{
    const size_t workers = threads > 1 ? (size_t)threads : 1, group = a->heads / a->kv_heads;
    const size_t k_width = a->kv_heads * a->qk, v_width = a->kv_heads * a->vd;
    const shared n = shared_of(a);
    const part one = {.abreast = fvi_row_abreast(a, fvi_row_most_keys(a)),
                      .dk = g->dk,
                      .dk_row = a->k_row,
                      .dv = g->dv,
                      .dv_row = a->v_row,
                      .dweight = g->dweight,
                      .drelative = n.drelative > 0 ? g->drelative : NULL,
                      .dslopes = g->dslopes,
                      .drelative_v = g->drelative_v};
    const part two = {.half = 1,
                      .abreast = one.abreast,
                      .dk = second_of(one.dk, n.dk, &scratch),
                      .dk_row = k_width,
                      .dv = second_of(one.dv, n.dv, &scratch),
                      .dv_row = v_width,
                      .dweight = second_of(one.dweight, n.dweight, &scratch),
                      .drelative = second_of(one.drelative, n.drelative, &scratch),
                      .dslopes = second_of(one.dslopes, n.dslopes, &scratch),
                      .drelative_v = second_of(one.drelative_v, n.drelative_v, &scratch)};
    const bool over_heads =
        (g->dbias != NULL && a->bias_heads < a->heads) || g->drelative_v != NULL;
    const size_t cuts = over_heads ? 1 : fvi_most(1, fvi_least(a->kv_heads, workers / HALVES));
    fvi_row unused;
    const size_t row_size = fvi_row_layout(&unused, a, true, NULL);
    size_t worker = 0, next = 0;
#pragma omp parallel num_threads((int)workers) if (workers > 1)
    {
        fv_real *mine = scratch + fvi_draw(&worker) * row_size;
        for (size_t task; (task = fvi_draw(&next)) < HALVES * cuts;) {
            part to = task < cuts ? one : two;
            to.first = a->kv_heads * (task % cuts) / cuts * group;
            to.end = a->kv_heads * (task % cuts + 1) / cuts * group;
            backward_half(a, g, &to, mine);
        }
    }
    add_second(two.dk, n.dk, k_width, one.dk, a->k_row);
    add_second(two.dv, n.dv, v_width, one.dv, a->v_row);
    add_second(two.dweight, n.dweight, n.dweight, one.dweight, 0);
    add_second(two.drelative, n.drelative, n.drelative, one.drelative, 0);
    add_second(two.dslopes, n.dslopes, n.dslopes, one.dslopes, 0);
    add_second(two.drelative_v, n.drelative_v, n.drelative_v, one.drelative_v, 0);
}
