/* Attention backward by tiles: the weights come back from the scores and the kept statistic of a row.
 *
 * With Z the dropout factors, dP = dY V^T and D = dy . y a row: dV = (P Z)^T dY, dS by the normaliser
 * (pair_of), which a bias takes as it is; then dQ = scale dS K, dK = scale dS^T Q. Sums run over keys
 * in tiles ascending (dQ) and over the heads of a group, then tiles of queries ascending (dK, dV),
 * however the work is dealt. */
#include "tensor/kernel/attention_scores.h"

typedef struct {
    fv_real *dyt, *slopes, *dqt; /* dY^T, dS^T, dQ^T */
    const fv_real *q, *dy;       /* rows of Q and dY, of whole vectors */
    size_t q_row, dy_row;
    fv_real *distances; /* sums of dS by i - j */
    fv_real *slot;      /* this tile's share of drelative, then of dslopes */
    fv_real level[TILE_QUERIES];
    fv_real kept[TILE_QUERIES]; /* log-sum-exp, or one over what the weights were divided by */
} state;

/* What one call of backward_tile may touch. */
typedef struct {
    bool rows, keys;  /* dq and biases; dk and dv */
    size_t low, high; /* keys */
} task_part;

/* Weight w before dropout and slope dL/ds of a score, given what the row kept, D, and z dL/d(z w).
 * Hidden pairs have neither, even in a row whose statistic is NaN. */
FVI_INLINE fv_real pair_of(fv_normalizer normalizer, fv_real score, fv_real kept, fv_real level,
                           fv_real dp, fv_real *slope)
{
    const bool hidden = fv_re(score) == (fvi_part)-INFINITY;
    fv_real weight, s;
    switch (normalizer) {
    case FV_NORMALIZE_RELU:
        weight = fv_re(score) <= 0 ? 0 : score * kept;
        s = (dp - level) * kept;
        *slope = fv_re(score) <= 0 ? 0 : s;
        return weight;
    case FV_NORMALIZE_SIGMOID:
        weight = fvi_sigmoid(score);
        s = dp * (weight * (1 - weight));
        break;
    case FV_NORMALIZE_MEAN:
        weight = score * kept;
        s = dp * kept;
        break;
    case FV_NORMALIZE_NONE:
        weight = score;
        s = dp;
        break;
    default: /* softmax, with one or without */
        weight = fvi_weight(score - kept);
        weight = hidden ? 0 : weight;
        s = weight * (dp - level);
        *slope = weight == 0 ? 0 : s;
        return weight;
    }
    *slope = hidden ? 0 : s;
    return hidden ? 0 : weight;
}

/* P Z in the place of the scores, scale dS in the place of dP. */
FVI_INLINE void slopes_by(fv_normalizer normalizer, const fvi_score_tile *t, state *b, size_t from,
                          size_t to, fv_real scale)
{
    const size_t lanes = fvi_whole(t->lanes);
    const fv_real kept = (fv_real)(1 / (1 - t->a->dropout));
    fv_real keep[4][TILE_QUERIES];
    for (size_t j = from; j < to; j++) {
        fv_real *restrict s = t->scores + (j - from) * lanes;
        fv_real *restrict d = b->slopes + (j - from) * lanes;
        fv_real slope;
        if (t->a->dropout > 0) {
            if (j % 4 == 0)
                fvi_keep(t, j, keep);
            const fv_real *z = keep[j % 4];
            for (size_t l = 0; l < lanes; l++) {
                const fv_real factor = z[l] * kept;
                s[l] = factor *
                       pair_of(normalizer, s[l], b->kept[l], b->level[l], factor * d[l], &slope);
                d[l] = slope * scale;
            }
        } else {
            for (size_t l = 0; l < lanes; l++) {
                s[l] = pair_of(normalizer, s[l], b->kept[l], b->level[l], d[l], &slope);
                d[l] = slope * scale;
            }
        }
    }
}

static void slopes_of(const fvi_score_tile *t, state *b, size_t from, size_t to, fv_real scale)
{
    switch (t->a->normalizer) {
    case FV_NORMALIZE_RELU:
        slopes_by(FV_NORMALIZE_RELU, t, b, from, to, scale);
        break;
    case FV_NORMALIZE_SIGMOID:
        slopes_by(FV_NORMALIZE_SIGMOID, t, b, from, to, scale);
        break;
    case FV_NORMALIZE_MEAN:
        slopes_by(FV_NORMALIZE_MEAN, t, b, from, to, scale);
        break;
    case FV_NORMALIZE_NONE:
        slopes_by(FV_NORMALIZE_NONE, t, b, from, to, scale);
        break;
    default:
        slopes_by(FV_NORMALIZE_SOFTMAX, t, b, from, to, scale);
    }
}

/* How many numbers of a head all rows share that have gradients by distance. */
static size_t shared_columns(const fvi_attention *a)
{
    return (a->relative != NULL && !a->relative_rows ? 2 * (size_t)a->clip + 1 : 0) +
           (a->slopes != NULL);
}

/* Adds dS to what it is the gradient of among the biases. */
static void add_to_biases(const fvi_score_tile *t, const fvi_attention_grad *g, state *b,
                          size_t from, size_t to)
{
    const fvi_attention *a = t->a;
    const size_t lanes = t->lanes, keys = to - from;
    if (b->slot != NULL) {
        for (size_t x = 0; x < lanes + keys - 1; x++)
            b->distances[x] = 0;
        for (size_t j = 0; j < keys; j++) {
            fv_real *restrict sum = b->distances + (keys - 1 - j);
            for (size_t l = 0; l < t->rows; l++)
                sum[l] += b->slopes[j * lanes + l];
        }
        fv_real *of_slope = b->slot + shared_columns(a) - 1;
        for (size_t x = 0; x < lanes + keys - 1; x++) {
            const int64_t row = fvi_behind(t) + (int64_t)x, distance = row - (int64_t)(to - 1);
            if (a->relative != NULL && !a->relative_rows)
                b->slot[fvi_relative_at(a, row, to - 1)] += b->distances[x];
            if (a->slopes != NULL)
                *of_slope = fvi_fma((fv_real)(distance < 0 ? distance : -distance), b->distances[x],
                                    *of_slope);
        }
    }
    for (size_t l = 0; a->relative_rows && g->drelative != NULL && l < t->rows; l++) {
        fv_real *drelative = g->drelative + fvi_relative_row(t, l);
        for (size_t j = from; j < to; j++)
            drelative[fvi_relative_at(a, fvi_behind(t) + (int64_t)l, j)] +=
                b->slopes[(j - from) * lanes + l];
    }
    if (a->bias != NULL && g->dbias != NULL) {
        fvi_transpose(keys, t->rows, b->slopes, lanes, t->pairs, keys);
        for (size_t l = 0; l < t->rows; l++) {
            fv_real *dbias = g->dbias + fvi_bias_row(t, l) + from;
            for (size_t j = 0; j < keys; j++)
                dbias[j] += t->pairs[l * keys + j];
        }
    }
}

/* dS in the place of dP, its biases served, times what stands between it and q . k. */
static void back_to_products(const fvi_score_tile *t, const fvi_attention_grad *g, state *b,
                             size_t from, size_t to, bool biases)
{
    const size_t count = (to - from) * fvi_whole(t->lanes);
    const fv_real scale = (fv_real)t->a->scale;
    if (!biases && t->steepness == NULL) {
        slopes_of(t, b, from, to, scale);
        return;
    }
    slopes_of(t, b, from, to, 1);
    if (biases)
        add_to_biases(t, g, b, from, to);
    for (size_t x = 0; t->steepness != NULL && x < count;
         x++) /* which a hidden NaN may have made */
        b->slopes[x] = b->slopes[x] == 0 ? 0 : b->slopes[x] * t->steepness[x];
    for (size_t x = 0; x < count; x++)
        b->slopes[x] *= scale;
}

/* The rows of x as a right operand: of whole vectors and, when many keys meet them, side by side,
 * since in place they may lie so that a cache holds few of them. */
static const fv_real *right_operand(const fvi_score_tile *t, size_t keys, size_t width,
                                    const fv_real *x, size_t *row, fv_real *room)
{
    const size_t packed_row = fvi_lanes(width);
    if (width % FVI_WIDTH == 0 && keys <= TILE_QUERIES)
        return x;
    for (size_t l = 0; l < t->rows; l++)
        for (size_t c = 0; c < packed_row; c++)
            room[l * packed_row + c] = c < width ? x[l * *row + c] : 0;
    *row = packed_row;
    return room;
}

/* C[keys, width] += W X with the weights W [keys, lanes] and rows X; careful: a zero weight
 * hides them. */
static void add_to_keys(const fvi_score_tile *t, size_t keys, const fv_real *weights, size_t width,
                        const fv_real *x, size_t row, fv_real *c, size_t c_row, bool careful)
{
    if (careful)
        fvi_hiding_product(true, keys, width, t->rows, weights, t->lanes, 1, x, row, c, c_row,
                           true);
    else
        fvi_in_place(keys, width, t->rows, weights, t->lanes, 1, x, row, c, c_row, true);
}

/* Where a tile's share of a head's gradients by distance is kept. */
static fv_real *slot_of(const fvi_attention *a, fv_real *slots, size_t tile, size_t head)
{
    return slots != NULL ? slots + (tile * a->heads + head) * shared_columns(a) : NULL;
}

/* What turns the scores of row l into weights again. */
static fv_real kept_of(const fvi_attention *a, fv_real lse)
{
    if (a->normalizer == FV_NORMALIZE_RELU || a->normalizer == FV_NORMALIZE_MEAN)
        return fv_re(lse) == 0 ? 0 : 1 / lse;
    return fv_re(lse) == (fvi_part)-INFINITY ? 0 : lse;
}

/* slot: this tile's share of the gradients by distance, or NULL. */
static void backward_tile(const fvi_attention *a, const fvi_attention_grad *g, fvi_keys *side,
                          size_t head, size_t i, const task_part *part, fv_real *slot,
                          fv_real *scratch)
{
    fvi_score_tile t;
    fvi_score_tile_at(&t, a, side, head, i, true, &scratch);
    const size_t row = side->patch->query + i, lanes = fvi_whole(t.lanes);
    const size_t y_row = a->heads * a->vd;
    const size_t tile_keys = fvi_least(a->keys, TILE_KEYS);
    const fv_real *dy = g->dy + row * y_row + head * a->vd, *y = a->y + row * y_row + head * a->vd;
    const bool biases = part->rows && (slot != NULL || (a->relative_rows && g->drelative != NULL) ||
                                       g->dbias != NULL);
    const bool rows = part->rows && g->dq != NULL;
    bool begun = false, finite = true, checked = false;
    state b;
    b.dyt = fvi_slice(&scratch, a->vd * lanes);
    b.dqt = fvi_slice(&scratch, a->qk * lanes);
    b.slopes = fvi_slice(&scratch, fvi_most(tile_keys, fvi_most(a->qk, a->vd)) * lanes);
    b.distances = fvi_slice(&scratch, lanes + tile_keys);
    fv_real *q_room = fvi_slice(&scratch, fvi_lanes(a->qk) * lanes);
    fv_real *dy_room = fvi_slice(&scratch, fvi_lanes(a->vd) * lanes);
    b.slot = slot;
    fvi_across(t.rows, lanes, a->vd, dy, y_row, b.dyt);
    fvi_across(t.rows, lanes, a->vd, y, y_row, b.slopes);
    for (size_t l = 0; l < lanes; l++)
        b.level[l] = b.kept[l] = 0;
    for (size_t c = 0; c < a->vd; c++) {
        const fv_real *dy_c = b.dyt + c * lanes, *y_c = b.slopes + c * lanes;
        for (size_t l = 0; l < lanes; l++)
            b.level[l] = fvi_fma(dy_c[l], y_c[l], b.level[l]);
    }
    for (size_t l = 0; l < t.rows; l++)
        b.kept[l] = kept_of(a, a->lse[(row + l) * a->heads + head]);
    const size_t low = fvi_most(t.low, part->low), high = fvi_least(t.high, part->high);
    b.q_row = a->q_row;
    b.dy_row = y_row;
    if (part->keys && low < high) {
        b.q = right_operand(&t, high - low, a->qk, t.q, &b.q_row, q_room);
        b.dy = right_operand(&t, high - low, a->vd, dy, &b.dy_row, dy_room);
    }
    for (size_t start = low / TILE_KEYS * TILE_KEYS; start < high; start += TILE_KEYS) {
        const size_t from = fvi_most(start, low), to = fvi_least(start + TILE_KEYS, high);
        const size_t keys = to - from;
        const fv_real *k = side->k + from * side->k_row, *v = side->v + from * side->v_row;
        fvi_keys_until(side, a, to);
        if (!fvi_scores(&t, from, to))
            continue;
        fvi_in_place(keys, lanes, a->vd, v, side->v_row, 1, b.dyt, lanes, b.slopes, lanes, false);
        back_to_products(&t, g, &b, from, to, biases);
        const bool partial = fvi_partial(&t, from, to);
        if (partial && !checked) {
            finite =
                fvi_finite(t.rows, a->qk, t.q, a->q_row) && fvi_finite(t.rows, a->vd, dy, y_row);
            checked = true;
        }
        if (part->keys && side->dv != NULL)
            add_to_keys(&t, keys, t.scores, a->vd, b.dy, b.dy_row, side->dv + from * side->v_row,
                        side->v_row, partial && !finite);
        if (part->keys && side->dk != NULL)
            add_to_keys(&t, keys, b.slopes, a->qk, b.q, b.q_row, side->dk + from * side->k_row,
                        side->k_row, partial && !finite);
        if (rows && partial && !fvi_finite(keys, a->qk, k, side->k_row))
            fvi_hiding_product(false, a->qk, lanes, keys, k, 1, side->k_row, b.slopes, lanes, b.dqt,
                               lanes, begun);
        else if (rows)
            fvi_in_place(a->qk, lanes, keys, k, 1, side->k_row, b.slopes, lanes, b.dqt, lanes,
                         begun);
        begun = true;
    }
    if (rows && begun) {
        fvi_transpose(a->qk, t.rows, b.dqt, lanes, b.slopes, a->qk);
        for (size_t l = 0; l < t.rows; l++)
            for (size_t c = 0; c < a->qk; c++)
                g->dq[(row + l) * a->q_row + head * a->qk + c] += b.slopes[l * a->qk + c];
    }
}

/* How the work is dealt: what one task is, and what the tasks compute. Tasks write nothing in
 * common, and each goes through its tiles in the order of the loops, so that sums do not depend
 * on the deal. */
typedef struct {
    /* All of a patch; of that, a key head; of that, some keys; or a tile of rows, of one head. */
    enum { PATCH, KEY_HEAD, RUN, ROWS, ROWS_OF_HEAD } each;
    size_t run;      /* keys at a time */
    bool rows, keys; /* dq and biases; dk and dv */
    fv_real *slots;  /* [tiles of all patches, heads, shared_columns], or NULL */
} dealing;

typedef struct {
    size_t *ticket, task, mine;
} turn;

static bool my_turn(turn *w)
{
    while (w->task > w->mine)
        w->mine = fvi_draw(w->ticket);
    return w->task == w->mine;
}

static size_t tiles_of(const fvi_patch *p)
{
    return (p->queries + TILE_QUERIES - 1) / TILE_QUERIES;
}

/* One patch whose first tile is number tile. */
static void backward_patch(const fvi_attention *a, const fvi_attention_grad *g, const dealing *deal,
                           const fvi_patch *p, size_t tile, turn *w, fv_real *room,
                           fv_real *scratch)
{
    const size_t group = a->heads / a->kv_heads, tiles = tiles_of(p);
    fvi_keys keys = {.patch = NULL};
    if (deal->each == ROWS || deal->each == ROWS_OF_HEAD) {
        const task_part part = {deal->rows, deal->keys, 0, p->keys};
        for (size_t x = 0; x < tiles * a->heads; x++) {
            const size_t i = deal->each == ROWS ? x / a->heads : x % tiles;
            const size_t head = deal->each == ROWS ? x % a->heads : x / tiles;
            if (my_turn(w)) {
                if (keys.patch == NULL || keys.kv != head / group)
                    fvi_keys_at(&keys, a, NULL, p, head / group, 0, room);
                backward_tile(a, g, &keys, head, i * TILE_QUERIES, &part,
                              slot_of(a, deal->slots, tile + i, head), scratch);
            }
            w->task += deal->each == ROWS_OF_HEAD || head + 1 == a->heads;
        }
        return;
    }
    for (size_t kv = 0; kv < a->kv_heads; kv++) {
        for (size_t low = 0; low < p->keys; low += fvi_least(deal->run, p->keys - low)) {
            const task_part part = {deal->rows, deal->keys, low,
                                    low + fvi_least(deal->run, p->keys - low)};
            if (my_turn(w)) {
                fvi_keys_at(&keys, a, g, p, kv, low, room);
                for (size_t head = kv * group; head < (kv + 1) * group; head++)
                    for (size_t i = 0; i < tiles; i++)
                        backward_tile(a, g, &keys, head, i * TILE_QUERIES, &part,
                                      slot_of(a, deal->slots, tile + i, head), scratch);
                fvi_keys_add(&keys, a, g);
            }
            w->task += deal->each == RUN;
        }
        w->task += deal->each == KEY_HEAD;
    }
    w->task += deal->each == PATCH;
}

static void backward_share(const fvi_attention *a, const fvi_attention_grad *g, const dealing *deal,
                           size_t *ticket, fv_real *scratch)
{
    turn w = {ticket, 0, fvi_draw(ticket)};
    size_t tile = 0;
    fv_real *room = fvi_slice(&scratch, fvi_keys_room(a, true));
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        backward_patch(a, g, deal, &p, tile, &w, room, scratch);
        tile += tiles_of(&p);
    }
}

static void backward_all(const fvi_attention *a, const fvi_attention_grad *g, dealing deal,
                         int threads, fv_real *scratch)
{
    const size_t each = fvi_tiles_scratch(a, true);
    size_t ticket = 0, worker = 0;
    if (threads <= 1) {
        backward_share(a, g, &deal, &ticket, scratch);
        return;
    }
#pragma omp parallel num_threads(threads)
    backward_share(a, g, &deal, &ticket, scratch + fvi_draw(&worker) * each);
}

static size_t tiles_of_all(const fvi_attention *a)
{
    size_t tiles = 0;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        const fvi_patch p = fvi_mask_patch(a->mask, a->queries, a->keys, s, NULL);
        tiles += tiles_of(&p);
    }
    return tiles;
}

size_t fvi_attention_tiles_scratch(const fvi_attention *a, int threads, bool grad)
{
    const size_t slots = grad ? tiles_of_all(a) * a->heads * shared_columns(a) : 0;
    return fvi_tiles_scratch(a, grad) * (threads > 1 ? (size_t)threads : 1) + slots + 1;
}

/* Adds up the tiles' shares, tile after tile. */
static void gather(const fvi_attention *a, const fvi_attention_grad *g, const fv_real *slots)
{
    const size_t columns = shared_columns(a), distances = columns - (a->slopes != NULL);
    const size_t tiles = tiles_of_all(a);
    for (size_t tile = 0; tile < tiles; tile++)
        for (size_t head = 0; head < a->heads; head++, slots += columns) {
            for (size_t c = 0; g->drelative != NULL && c < distances; c++)
                g->drelative[head * distances + c] += slots[c];
            if (a->slopes != NULL && g->dslopes != NULL)
                g->dslopes[head] += slots[distances];
        }
}

void fvi_attention_tiles_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                  fv_real *scratch)
{
    const size_t all = threads > 1 ? (size_t)threads : 1;
    const bool distances = (a->relative != NULL && !a->relative_rows && g->drelative != NULL) ||
                           (a->slopes != NULL && g->dslopes != NULL);
    fv_real *slots = distances ? scratch + fvi_tiles_scratch(a, true) * all : NULL;
    for (size_t x = 0; distances && x < tiles_of_all(a) * a->heads * shared_columns(a); x++)
        slots[x] = 0;
    /* A bias of pairs that heads share: one task sums over them. */
    const bool shared = a->bias != NULL && g->dbias != NULL && a->bias_heads < a->heads;
    const size_t tasks = fvi_mask_patches(a->mask) * (shared ? 1 : a->kv_heads);
    if (tasks >= all) {
        backward_all(a, g, (dealing){shared ? PATCH : KEY_HEAD, SIZE_MAX, true, true, slots},
                     threads, scratch);
    } else { /* too few: tiles of queries, then of keys, at the price of computing weights twice */
        backward_all(a, g, (dealing){shared ? ROWS : ROWS_OF_HEAD, SIZE_MAX, true, false, slots},
                     threads, scratch);
        backward_all(a, g, (dealing){RUN, TILE_KEYS, false, true, NULL}, threads, scratch);
    }
    if (distances)
        gather(a, g, slots);
}
