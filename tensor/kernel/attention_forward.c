/* Attention forward by tiles: a running maximum and sum a row (Milakov and Gimelshein, 2018, arXiv
 * 1805.02867), so that only one tile of scores exists at a time. */
#include "tensor/kernel/attention_scores.h"

typedef struct {
    fvi_part highest[TILE_QUERIES]; /* -inf while a row has seen nothing */
    fv_real sum[TILE_QUERIES];
    fv_real *yt; /* unnormalised Y^T [vd, lanes] */
    bool begun;
} running;

/* Turns scores into weights relative to the new maximum, and scales what was summed before to
 * it. */
static void weigh(const fvi_score_tile *t, running *r, size_t keys)
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

/* y and lse of a tile; a row that saw nothing is zero. */
static void finish(const fvi_score_tile *t, running *r)
{
    const fvi_attention *a = t->a;
    const size_t row = t->patch->query + t->i, width = a->heads * a->vd,
                 lanes = fvi_whole(t->lanes);
    const fv_real kept = (fv_real)(1 / (1 - a->dropout));
    fv_real factor[TILE_QUERIES], lse[TILE_QUERIES];
    for (size_t l = 0; l < lanes; l++) {
        const bool saw = fv_re(r->sum[l]) != 0;
        const fv_real sum = saw ? r->sum[l] : 1;
        factor[l] = saw ? kept / sum : 0;
        lse[l] = saw ? r->highest[l] + fvi_log(sum) : (fv_real)-INFINITY;
    }
    for (size_t c = 0; c < a->vd; c++) {
        fv_real *restrict y = r->yt + c * lanes;
        for (size_t l = 0; l < lanes; l++)
            y[l] = r->begun ? y[l] * factor[l] : 0;
    }
    for (size_t l = 0; l < t->rows; l++)
        a->lse[(row + l) * a->heads + t->head] = lse[l];
    fvi_transpose(a->vd, t->rows, r->yt, lanes, a->y + row * width + t->head * a->vd, width);
}

static void forward_tile(const fvi_attention *a, const fvi_patch *p, size_t head, size_t i,
                         fv_real *scratch)
{
    fvi_score_tile t;
    running r;
    fvi_score_tile_at(&t, a, p, head, i, &scratch);
    const size_t lanes = fvi_whole(t.lanes);
    r.yt = scratch;
    r.begun = false;
    for (size_t l = 0; l < lanes; l++) {
        r.highest[l] = -INFINITY;
        r.sum[l] = 0;
    }
    for (size_t start = t.low / TILE_KEYS * TILE_KEYS; start < t.high; start += TILE_KEYS) {
        const size_t from = fvi_most(start, t.low), to = fvi_least(start + TILE_KEYS, t.high);
        const fv_real *v = t.v + from * a->v_row;
        if (!fvi_scores(&t, from, to))
            continue;
        weigh(&t, &r, to - from);
        if (a->dropout > 0)
            drop(&t, from, to);
        if (fvi_partial(&t, from, to) && !fvi_finite(to - from, a->vd, v, a->v_row))
            fvi_hiding_product(false, a->vd, t.lanes, to - from, v, 1, a->v_row, t.scores, t.lanes,
                               r.yt, t.lanes, r.begun);
        else
            fvi_in_place(a->vd, t.lanes, to - from, v, 1, a->v_row, t.scores, t.lanes, r.yt,
                         t.lanes, r.begun);
        r.begun = true;
    }
    finish(&t, &r);
}

/* Runs the tasks whose numbers come up on the ticket; a task is a tile of one head. */
static void forward_share(const fvi_attention *a, size_t *ticket, fv_real *scratch)
{
    size_t task = 0, mine = fvi_draw(ticket);
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        for (size_t head = 0; head < a->heads; head++)
            for (size_t i = 0; i < p.queries; i += TILE_QUERIES, task++)
                if (task == mine) {
                    forward_tile(a, &p, head, i, scratch);
                    mine = fvi_draw(ticket);
                }
    }
}

void fvi_attention_tiles_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    const size_t each = fvi_attention_tiles_scratch(a, 1, false);
    size_t ticket = 0, worker = 0;
    if (threads <= 1) {
        forward_share(a, &ticket, scratch);
        return;
    }
#pragma omp parallel num_threads(threads)
    forward_share(a, &ticket, scratch + fvi_draw(&worker) * each);
}
