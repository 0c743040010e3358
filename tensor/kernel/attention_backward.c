/* Attention backward by tiles: the weights come back from the scores and the kept log-sum-exp.
 *
 * With Z the dropout factors and D = dy . y a row: dV = (P Z)^T dY, dS = P (Z (dY V^T) - D),
 * dQ = scale dS K, dK = scale dS^T Q. Sums run over keys in tiles ascending (dQ) and over the
 * heads of a group, then tiles of queries ascending (dK, dV), however the work is dealt. */
#include "tensor/kernel/attention_scores.h"

typedef struct {
    fv_real *dyt, *slopes, *dqt, *dbias, *right; /* dY^T, dS^T, dQ^T, by i - j, a padded operand */
    fv_real *drelative;                          /* this tile's share [2 clip + 1] */
    fv_real level[TILE_QUERIES];
    fv_real lse[TILE_QUERIES];
} state;

/* What one call of backward_tile may touch. */
typedef struct {
    bool rows, keys;  /* dq and drelative; dk and dv */
    size_t low, high; /* keys */
} task_part;

/* A hidden pair weighs nothing, even in a row whose log-sum-exp is NaN. */
static inline fv_real weight_of(fv_real score, fv_real lse)
{
    const fv_real weight = fvi_weight(score - lse);
    return fv_re(score) == (fvi_part)-INFINITY ? 0 : weight;
}

/* P Z in the place of the scores, dS in the place of dP. */
static void slopes_of(const fvi_score_tile *t, state *b, size_t from, size_t to, bool bias)
{
    const fvi_attention *a = t->a;
    const size_t lanes = fvi_whole(t->lanes);
    const fv_real kept = (fv_real)(1 / (1 - a->dropout));
    const fv_real scale = bias ? 1 : (fv_real)a->scale; /* a bias wants the slope unscaled */
    fv_real keep[4][TILE_QUERIES];
    for (size_t x = 0; bias && x < lanes + to - from - 1; x++)
        b->dbias[x] = 0;
    for (size_t j = from; j < to; j++) {
        fv_real *restrict s = t->scores + (j - from) * lanes;
        fv_real *restrict d = b->slopes + (j - from) * lanes;
        const fv_real *restrict level = b->level, *restrict lse = b->lse;
        if (a->dropout > 0) {
            if (j % 4 == 0)
                fvi_keep(t, j, keep);
            const fv_real *z = keep[j % 4];
            for (size_t l = 0; l < lanes; l++) {
                const fv_real weight = weight_of(s[l], lse[l]), factor = z[l] * kept;
                const fv_real slope = weight * (factor * d[l] - level[l]) * scale;
                d[l] = weight == 0 ? 0 : slope;
                s[l] = weight * factor;
            }
        } else {
            for (size_t l = 0; l < lanes; l++) {
                const fv_real weight = weight_of(s[l], lse[l]);
                const fv_real slope = weight * (d[l] - level[l]) * scale;
                d[l] = weight == 0 ? 0 : slope;
                s[l] = weight;
            }
        }
        if (bias) {
            fv_real *sum = b->dbias + (to - 1 - j);
            for (size_t l = 0; l < t->rows; l++)
                sum[l] += d[l];
            for (size_t l = 0; l < lanes; l++)
                d[l] *= (fv_real)a->scale;
        }
    }
    for (size_t x = 0; bias && x < lanes + to - from - 1; x++)
        b->drelative[fvi_relative_at(a, (int64_t)(t->i + x) + t->patch->offset, to - 1)] +=
            b->dbias[x];
}

/* C[keys, width] += W X with the weights W [keys, lanes] and rows X that a zero weight hides. */
static void add_to_keys(const fvi_score_tile *t, state *b, size_t keys, const fv_real *weights,
                        size_t width, const fv_real *x, size_t row, fv_real *c, size_t c_row,
                        bool careful)
{
    if (careful) {
        fvi_hiding_product(true, keys, width, t->rows, weights, t->lanes, 1, x, row, c, c_row,
                           true);
        return;
    }
    if (width % FVI_WIDTH != 0) { /* fvi_in_place reads whole vectors */
        for (size_t l = 0; l < t->rows; l++)
            for (size_t i = 0; i < fvi_lanes(width); i++)
                b->right[l * fvi_lanes(width) + i] = i < width ? x[l * row + i] : 0;
        x = b->right;
        row = fvi_lanes(width);
    }
    fvi_in_place(keys, width, t->rows, weights, t->lanes, 1, x, row, c, c_row, true);
}

static void backward_tile(const fvi_attention *a, const fvi_attention_grad *g, const fvi_patch *p,
                          size_t head, size_t i, const task_part *part, fv_real *scratch)
{
    fvi_score_tile t;
    fvi_score_tile_at(&t, a, p, head, i, &scratch);
    const size_t kv = head / (a->heads / a->kv_heads), row = p->query + i,
                 lanes = fvi_whole(t.lanes);
    const size_t y_row = a->heads * a->vd, columns = 2 * (size_t)a->clip + 1;
    const size_t tile_keys = fvi_least(a->keys, TILE_KEYS);
    const fv_real *dy = g->dy + row * y_row + head * a->vd, *y = a->y + row * y_row + head * a->vd;
    const bool bias = part->rows && a->relative != NULL && g->drelative != NULL;
    const bool rows = part->rows && g->dq != NULL;
    bool begun = false, finite = true, checked = false;
    state b;
    b.dyt = fvi_slice(&scratch, a->vd * lanes);
    b.dqt = fvi_slice(&scratch, a->qk * lanes);
    b.slopes = fvi_slice(&scratch, fvi_most(tile_keys, a->vd) * lanes);
    b.dbias = fvi_slice(&scratch, lanes + tile_keys);
    b.right = fvi_slice(&scratch, fvi_lanes(fvi_most(a->qk, a->vd)) * lanes);
    b.drelative = scratch;
    fvi_across(t.rows, lanes, a->vd, dy, y_row, b.dyt);
    fvi_across(t.rows, lanes, a->vd, y, y_row, b.slopes);
    for (size_t l = 0; l < lanes; l++)
        b.level[l] = b.lse[l] = 0;
    for (size_t c = 0; c < a->vd; c++) {
        const fv_real *dy_c = b.dyt + c * lanes, *y_c = b.slopes + c * lanes;
        for (size_t l = 0; l < lanes; l++)
            b.level[l] = fvi_fma(dy_c[l], y_c[l], b.level[l]);
    }
    for (size_t l = 0; l < t.rows; l++)
        if (fv_re(a->lse[(row + l) * a->heads + head]) != (fvi_part)-INFINITY)
            b.lse[l] = a->lse[(row + l) * a->heads + head];
    for (size_t c = 0; bias && c < columns; c++)
        b.drelative[c] = 0;
    const size_t low = fvi_most(t.low, part->low), high = fvi_least(t.high, part->high);
    for (size_t start = low / TILE_KEYS * TILE_KEYS; start < high; start += TILE_KEYS) {
        const size_t from = fvi_most(start, low), to = fvi_least(start + TILE_KEYS, high);
        const size_t keys = to - from;
        const fv_real *k = t.k + from * a->k_row, *v = t.v + from * a->v_row;
        if (!fvi_scores(&t, from, to))
            continue;
        fvi_in_place(keys, lanes, a->vd, v, a->v_row, 1, b.dyt, lanes, b.slopes, lanes, false);
        slopes_of(&t, &b, from, to, bias);
        const bool partial = fvi_partial(&t, from, to);
        if (partial && !checked) {
            finite =
                fvi_finite(t.rows, a->qk, t.q, a->q_row) && fvi_finite(t.rows, a->vd, dy, y_row);
            checked = true;
        }
        if (part->keys && g->dv != NULL)
            add_to_keys(&t, &b, keys, t.scores, a->vd, dy, y_row,
                        g->dv + (p->key + from) * a->v_row + kv * a->vd, a->v_row,
                        partial && !finite);
        if (part->keys && g->dk != NULL)
            add_to_keys(&t, &b, keys, b.slopes, a->qk, t.q, a->q_row,
                        g->dk + (p->key + from) * a->k_row + kv * a->qk, a->k_row,
                        partial && !finite);
        if (rows && partial && !fvi_finite(keys, a->qk, k, a->k_row))
            fvi_hiding_product(false, a->qk, lanes, keys, k, 1, a->k_row, b.slopes, lanes, b.dqt,
                               lanes, begun);
        else if (rows)
            fvi_in_place(a->qk, lanes, keys, k, 1, a->k_row, b.slopes, lanes, b.dqt, lanes, begun);
        begun = true;
    }
    if (rows && begun) {
        fvi_transpose(a->qk, t.rows, b.dqt, lanes, b.right, a->qk);
        for (size_t l = 0; l < t.rows; l++)
            for (size_t c = 0; c < a->qk; c++)
                g->dq[(row + l) * a->q_row + head * a->qk + c] += b.right[l * a->qk + c];
    }
    for (size_t c = 0; bias && c < columns; c++)
        g->drelative[head * columns + c] += b.drelative[c];
}

/* How the work is dealt: what one task is, and what the tasks compute. Tasks write nothing in
 * common, and each goes through its tiles in the order of the loops, so that sums do not depend
 * on the deal. */
typedef struct {
    enum { KEY_HEAD, PATCH, RUN, TILE } each; /* of one key head: everything, a patch, .. */
    size_t run;                               /* keys at a time */
    bool rows, keys;                          /* dq and drelative; dk and dv */
} dealing;

static void backward_share(const fvi_attention *a, const fvi_attention_grad *g, const dealing *deal,
                           size_t *ticket, fv_real *scratch)
{
    const size_t group = a->heads / a->kv_heads;
    size_t task = 0, mine = fvi_draw(ticket);
    for (size_t kv = 0; kv < a->kv_heads; kv++) {
        fvi_patch p;
        for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
            p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
            for (size_t low = 0; low < p.keys; low += fvi_least(deal->run, p.keys - low)) {
                const task_part part = {deal->rows, deal->keys, low,
                                        low + fvi_least(deal->run, p.keys - low)};
                for (size_t head = kv * group; head < (kv + 1) * group; head++)
                    for (size_t i = 0; i < p.queries; i += TILE_QUERIES) {
                        while (task > mine)
                            mine = fvi_draw(ticket);
                        if (task == mine)
                            backward_tile(a, g, &p, head, i, &part, scratch);
                        task += deal->each == TILE;
                    }
                task += deal->each == RUN;
            }
            task += deal->each == PATCH;
        }
        task += deal->each == KEY_HEAD;
    }
}

static void backward_all(const fvi_attention *a, const fvi_attention_grad *g, dealing deal,
                         int threads, fv_real *scratch)
{
    const size_t each = fvi_attention_tiles_scratch(a, 1, true);
    size_t ticket = 0, worker = 0;
    if (threads <= 1) {
        backward_share(a, g, &deal, &ticket, scratch);
        return;
    }
#pragma omp parallel num_threads(threads)
    backward_share(a, g, &deal, &ticket, scratch + fvi_draw(&worker) * each);
}

size_t fvi_attention_tiles_scratch(const fvi_attention *a, int threads, bool grad)
{
    const size_t lanes = fvi_least(fvi_lanes(a->queries), TILE_QUERIES);
    const size_t keys = fvi_least(a->keys, TILE_KEYS), wide = fvi_most(a->qk, a->vd);
    const size_t columns = a->relative != NULL ? 2 * (size_t)a->clip + 1 : 0;
    size_t count = fvi_score_tile_size(a) + a->vd * lanes;
    if (grad)
        count += (a->qk + fvi_most(keys, a->vd) + fvi_lanes(wide)) * lanes +
                 fvi_lanes(lanes + keys) + fvi_lanes(columns);
    return count * (threads > 1 ? (size_t)threads : 1) + 1;
}

void fvi_attention_tiles_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                  fv_real *scratch)
{
    /* A bias is shared by all patchs, so one thread sums what a key head gives to it. */
    const bool bias = a->relative != NULL && g->drelative != NULL;
    const size_t tasks = a->kv_heads * (bias ? 1 : fvi_mask_patches(a->mask));
    if (tasks >= (size_t)threads) {
        backward_all(a, g, (dealing){bias ? KEY_HEAD : PATCH, SIZE_MAX, true, true}, threads,
                     scratch);
    } else { /* too few: tiles of queries, then of keys, at the price of computing weights twice */
        backward_all(a, g, (dealing){bias ? KEY_HEAD : TILE, SIZE_MAX, true, false}, threads,
                     scratch);
        backward_all(a, g, (dealing){RUN, TILE_KEYS, false, true}, threads, scratch);
    }
}
