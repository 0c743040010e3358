/* Attention forward by tiles: for softmax a running maximum and sum a row (Milakov and Gimelshein, 2018, arXiv
 * 1805.02867), so that only one tile of scores exists at a time. */
#include "tensor/kernel/attention_scores.h"

typedef struct {
    fvi_part highest[TILE_QUERIES]; /* -inf while a row has seen nothing */
    fv_real sum[TILE_QUERIES];      /* what the normaliser divides by, so far */
    fv_real *yt;                    /* unnormalised Y^T [vd, lanes] */
    bool begun;
} running;

/* Softmax: turns scores into weights relative to the new maximum, and scales what was summed
 * before to it. */
static void weigh_by_exp(const fvi_score_tile *t, running *r, size_t keys)
{
    const size_t lanes = fvi_whole(t->lanes);
    fvi_part *restrict highest = r->highest, base[TILE_QUERIES];
    fv_real *restrict sum = r->sum, shrink[TILE_QUERIES];
    for (size_t l = 0; l < lanes; l++)
        base[l] = highest[l];
    for (size_t j = 0; j < keys; j++) {
        const fv_real *s = t->scores + j * lanes;
        for (size_t l = 0; l < lanes; l++)
            highest[l] = fv_re(s[l]) > highest[l] ? fv_re(s[l]) : highest[l];
    }
    for (size_t l = 0; l < lanes; l++) {
        const fvi_part old = base[l]; /* -inf - -inf would be NaN */
        base[l] = highest[l] == (fvi_part)-INFINITY ? 0 : highest[l];
        shrink[l] = fvi_weight((fv_real)(old - base[l]));
    }
    if (r->begun) {
        for (size_t l = 0; l < lanes; l++)
            sum[l] *= shrink[l];
        for (size_t c = 0; c < t->a->vd; c++) {
            fv_real *restrict y = r->yt + c * lanes;
            for (size_t l = 0; l < lanes; l++)
                y[l] *= shrink[l];
        }
    }
    for (size_t j = 0; j < keys; j++) {
        fv_real *restrict s = t->scores + j * lanes;
        for (size_t l = 0; l < lanes; l++) {
            s[l] = fvi_weight(s[l] - base[l]);
            sum[l] += s[l];
        }
    }
}

/* The others: weights that need no maximum. */
FVI_INLINE void weigh_plainly(const fvi_score_tile *t, running *r, size_t keys,
                              fv_normalizer normalizer)
{
    const size_t lanes = fvi_whole(t->lanes);
    fv_real *restrict sum = r->sum;
    for (size_t j = 0; j < keys; j++) {
        fv_real *restrict s = t->scores + j * lanes;
        for (size_t l = 0; l < lanes; l++) {
            const bool hidden = fv_re(s[l]) == (fvi_part)-INFINITY;
            if (normalizer == FV_NORMALIZE_RELU) {
                s[l] = fv_re(s[l]) <= 0 ? 0 : s[l];
                sum[l] += s[l];
            } else {
                const fv_real weight =
                    normalizer == FV_NORMALIZE_SIGMOID ? fvi_sigmoid(s[l]) : s[l];
                s[l] = hidden ? 0 : weight;
                if (normalizer == FV_NORMALIZE_MEAN)
                    sum[l] += hidden ? 0 : 1;
            }
        }
    }
}

static void weigh(const fvi_score_tile *t, running *r, size_t keys)
{
    switch (t->a->normalizer) {
    case FV_NORMALIZE_RELU:
        weigh_plainly(t, r, keys, FV_NORMALIZE_RELU);
        break;
    case FV_NORMALIZE_SIGMOID:
        weigh_plainly(t, r, keys, FV_NORMALIZE_SIGMOID);
        break;
    case FV_NORMALIZE_MEAN:
        weigh_plainly(t, r, keys, FV_NORMALIZE_MEAN);
        break;
    case FV_NORMALIZE_NONE:
        weigh_plainly(t, r, keys, FV_NORMALIZE_NONE);
        break;
    default:
        weigh_by_exp(t, r, keys);
    }
}

static void drop(const fvi_score_tile *t, size_t from, size_t to)
{
    const size_t lanes = fvi_whole(t->lanes);
    fv_real keep[4][TILE_QUERIES];
    for (size_t j = from; j < to; j++) {
        fv_real *restrict s = t->scores + (j - from) * t->lanes;
        if (j % 4 == 0)
            fvi_keep(t, j, keep);
        for (size_t l = 0; l < lanes; l++)
            s[l] *= keep[j % 4][l];
    }
}

/* What the sums make of y, and the numbers that stand for them in backward. */
FVI_INLINE void normalize_by(fv_normalizer normalizer, const running *r, size_t lanes,
                             fv_real *restrict factor, fv_real *restrict lse)
{
    for (size_t l = 0; l < lanes; l++) {
        const bool saw = fv_re(r->sum[l]) != 0;
        const fv_real sum = saw ? r->sum[l] : 1;
        const fvi_part highest = r->highest[l];
        if (normalizer == FV_NORMALIZE_SOFTMAX) {
            factor[l] = saw ? 1 / sum : 0;
            lse[l] = saw ? highest + fvi_log(sum) : (fv_real)-INFINITY;
        } else if (normalizer == FV_NORMALIZE_SOFTMAX_PLUS_ONE) { /* the one is a score of 0 */
            const fvi_part top = highest > 0 ? highest : 0;
            const fv_real shrink = fvi_weight((fv_real)(saw ? highest - top : 0));
            const fv_real all = sum * shrink + fvi_weight((fv_real)-top);
            factor[l] = saw ? shrink / all : 0;
            lse[l] = saw ? top + fvi_log(all) : (fv_real)-INFINITY;
        } else if (normalizer == FV_NORMALIZE_SIGMOID) { /* and none */
            factor[l] = 1;
            lse[l] = 0;
        } else { /* relu, mean */
            factor[l] = saw ? 1 / sum : 0;
            lse[l] = r->sum[l];
        }
    }
}

static void normalize(const fvi_score_tile *t, const running *r, fv_real *factor, fv_real *lse)
{
    const size_t lanes = fvi_whole(t->lanes);
    switch (t->a->normalizer) {
    case FV_NORMALIZE_SOFTMAX_PLUS_ONE:
        normalize_by(FV_NORMALIZE_SOFTMAX_PLUS_ONE, r, lanes, factor, lse);
        break;
    case FV_NORMALIZE_SIGMOID:
    case FV_NORMALIZE_NONE:
        normalize_by(FV_NORMALIZE_SIGMOID, r, lanes, factor, lse);
        break;
    case FV_NORMALIZE_RELU:
    case FV_NORMALIZE_MEAN:
        normalize_by(FV_NORMALIZE_RELU, r, lanes, factor, lse);
        break;
    default:
        normalize_by(FV_NORMALIZE_SOFTMAX, r, lanes, factor, lse);
    }
}

/* y and lse of a tile; a row that saw nothing is zero. */
static void finish(const fvi_score_tile *t, running *r)
{
    const fvi_attention *a = t->a;
    const size_t row = t->patch->query + t->i, width = a->heads * a->vd,
                 lanes = fvi_whole(t->lanes);
    const fv_real kept = (fv_real)(1 / (1 - a->dropout));
    fv_real factor[TILE_QUERIES], lse[TILE_QUERIES];
    normalize(t, r, factor, lse);
    for (size_t l = 0; l < lanes; l++)
        factor[l] *= kept;
    for (size_t c = 0; c < a->vd; c++) {
        fv_real *restrict y = r->yt + c * lanes;
        for (size_t l = 0; l < lanes; l++)
            y[l] = r->begun ? y[l] * factor[l] : 0;
    }
    for (size_t l = 0; l < t->rows; l++)
        a->lse[(row + l) * a->heads + t->head] = lse[l];
    fvi_transpose(a->vd, t->rows, r->yt, lanes, a->y + row * width + t->head * a->vd, width);
}

static void forward_tile(const fvi_attention *a, fvi_keys *side, size_t head, size_t i,
                         fv_real *scratch)
{
    fvi_score_tile t;
    running r;
    fvi_score_tile_at(&t, a, side, head, i, false, &scratch);
    const size_t lanes = fvi_whole(t.lanes);
    r.yt = scratch;
    r.begun = false;
    for (size_t l = 0; l < lanes; l++) {
        r.highest[l] = -INFINITY;
        r.sum[l] = 0;
    }
    for (size_t start = t.low / TILE_KEYS * TILE_KEYS; start < t.high; start += TILE_KEYS) {
        const size_t from = fvi_most(start, t.low), to = fvi_least(start + TILE_KEYS, t.high);
        const fv_real *v = side->v + from * side->v_row;
        fvi_keys_until(side, a, to);
        if (!fvi_scores(&t, from, to))
            continue;
        weigh(&t, &r, to - from);
        if (a->dropout > 0)
            drop(&t, from, to);
        if (fvi_partial(&t, from, to) && !fvi_finite(to - from, a->vd, v, side->v_row))
            fvi_hiding_product(false, a->vd, t.lanes, to - from, v, 1, side->v_row, t.scores,
                               t.lanes, r.yt, t.lanes, r.begun);
        else
            fvi_in_place(a->vd, t.lanes, to - from, v, 1, side->v_row, t.scores, t.lanes, r.yt,
                         t.lanes, r.begun);
        r.begun = true;
    }
    finish(&t, &r);
}

/* Runs the tasks whose numbers come up on the ticket; a task is a tile of one head. */
static void forward_share(const fvi_attention *a, size_t *ticket, fv_real *scratch)
{
    size_t task = 0, mine = fvi_draw(ticket);
    fv_real *room = fvi_slice(&scratch, fvi_keys_room(a, false));
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        fvi_keys keys = {.patch = NULL};
        for (size_t head = 0; head < a->heads; head++)
            for (size_t i = 0; i < p.queries; i += TILE_QUERIES, task++)
                if (task == mine) {
                    const size_t kv = head / (a->heads / a->kv_heads);
                    if (keys.patch == NULL || keys.kv != kv)
                        fvi_keys_at(&keys, a, NULL, &p, kv, 0, room);
                    forward_tile(a, &keys, head, i, scratch);
                    mine = fvi_draw(ticket);
                }
    }
}

void fvi_attention_tiles_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    const size_t each = fvi_tiles_scratch(a, false);
    size_t ticket = 0, worker = 0;
    if (threads <= 1) {
        forward_share(a, &ticket, scratch);
        return;
    }
#pragma omp parallel num_threads(threads)
    forward_share(a, &ticket, scratch + fvi_draw(&worker) * each);
}
