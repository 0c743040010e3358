/* A tile of attention: up to 96 query rows of one head against a run of keys, scores transposed.
 *
 * Queries lie along the vector lanes: the scores are S^T [keys, lanes] = K Q^T, with K read in
 * place and Q^T packed once a tile. Softmax then needs no sum across lanes, every lane goes its own
 * way in key order, and S^T is at once the right operand of Y^T = V^T P^T and dQ^T = K^T dS^T and
 * the left one of dV = P^T dY and dK = dS^T Q. Lanes beyond the last row hold zero queries and are
 * never written out. Tiles lie at fixed positions of a segment, and a hidden pair in a tile adds an
 * exact zero, so that a row's sums do not depend on its neighbours. */
#ifndef FVI_ATTENTION_SCORES_H
#define FVI_ATTENTION_SCORES_H

#include "tensor/kernel/attention_keys.h"
#include "tensor/kernel/tile.h"
#include "tensor/math.h"
#include "tensor/philox.h"

typedef struct {
    const fvi_attention *a;
    const fvi_patch *patch;
    size_t head, i; /* the head and the first query's position */
    size_t rows, lanes;
    size_t low, high;             /* keys that the rules let some row see */
    size_t every_low, every_high; /* keys that they let every row see */
    const fv_real *q;             /* row 0 of the tile */
    const fvi_keys *keys;         /* of its key head */
    fv_real *qt;                  /* Q^T times scale [qk, lanes] */
    fv_real *scores;              /* S^T, then P^T [TILE_KEYS, lanes] */
    fv_real *bias;                /* what i - j adds to a score [lanes + TILE_KEYS] */
    fv_real *pairs;               /* biases of pairs, then their gradient [TILE_KEYS, lanes] */
    fv_real *steepness;           /* slope of a softcap [TILE_KEYS, lanes]; NULL: not wanted */
    size_t first[TILE_QUERIES], end[TILE_QUERIES];
} fvi_score_tile;

static inline size_t fvi_least(size_t a, size_t b)
{
    return a < b ? a : b;
}
static inline size_t fvi_most(size_t a, size_t b)
{
    return a > b ? a : b;
}
static inline size_t fvi_lanes(size_t rows)
{
    return (rows + FVI_LANES - 1) / FVI_LANES * FVI_LANES;
}

/* to[c, l] = x[l, c] for the rows there are, 0 beyond. */
static inline void fvi_across(size_t rows, size_t lanes, size_t width, const fv_real *x, size_t row,
                              fv_real *to)
{
    fvi_transpose(rows, width, x, row, to, lanes);
    for (size_t c = 0; rows < lanes && c < width; c++)
        for (size_t l = rows; l < lanes; l++)
            to[c * lanes + l] = 0;
}

/* C[m, n] = A[m, k] B[k, n], or C += A B, all in place: A through strides, B and C by rows. An
 * element is one multiply-add chain from zero over ascending k. Rows of B must be readable up
 * to a multiple of FVI_WIDTH columns. */
static inline void fvi_in_place(size_t m, size_t n, size_t k, const fv_real *a, size_t a_row,
                                size_t a_col, const fv_real *b, size_t b_row, fv_real *c,
                                size_t c_row, bool add)
{
    const fvi_tile_end end = {.add = add};
    const size_t tiles = fvi_tiles(m);
    for (size_t t = 0; t < tiles; t++) {
        const size_t i = fvi_tile_row(m, tiles, t), rows = fvi_tile_row(m, tiles, t + 1) - i;
        for (size_t j = 0; j < n; j += FVI_NR)
            fvi_tile_any(rows, fvi_least(n - j, FVI_NR), k, a + i * a_row, a_row, a_col, b + j,
                         b_row, c + i * c_row + j, c_row, &end);
    }
}

/* The weight exp(x) of a score that is x above the highest, or above the log-sum-exp: at most
 * about 1. */
static inline fv_real fvi_weight(fv_real x)
{
#if defined(FV_COMPLEX) || defined(FV_F64)
    return fvi_exp(x);
#else
    int32_t n; /* a power of two that a float holds, so that one product does */
    const float e = fvi_expm1_reduced(x, &n);
    return x < -87.0f ? 0.0f : (1 + e) * fvi_from_bits((uint32_t)(n + 127) << 23);
#endif
}

/* A number of lanes, said so that the compiler knows loops over them to be whole vectors. */
static inline size_t fvi_whole(size_t lanes)
{
    return lanes / FVI_LANES * FVI_LANES;
}

/* Takes count numbers off the scratch, rounded up so that the next ones are aligned as well. */
static inline fv_real *fvi_slice(fv_real **scratch, size_t count)
{
    fv_real *mine = *scratch;
    *scratch += fvi_lanes(count);
    return mine;
}

/* Whether something is added to scores: all of it may be -inf, and so hide. */
static inline bool fvi_has_bias(const fvi_attention *a)
{
    return a->relative != NULL || a->slopes != NULL || a->bias != NULL;
}

/* What fvi_score_tile_at takes off the scratch. */
static inline size_t fvi_score_tile_size(const fvi_attention *a, bool grad)
{
    const size_t lanes = fvi_least(fvi_lanes(a->queries), TILE_QUERIES);
    const size_t keys = fvi_least(a->keys, TILE_KEYS);
    const size_t tiles = 1u + (a->bias != NULL) + (grad && a->softcap > 0);
    return a->qk * lanes + tiles * keys * lanes + fvi_lanes(lanes + keys);
}

/* Numbers of scratch that a thread needs for a tile. */
static inline size_t fvi_tile_scratch(const fvi_attention *a, bool grad)
{
    const size_t lanes = fvi_least(fvi_lanes(a->queries), TILE_QUERIES);
    const size_t keys = fvi_least(a->keys, TILE_KEYS), wide = fvi_most(a->qk, a->vd);
    const size_t forward = fvi_score_tile_size(a, grad) + a->vd * lanes;
    return !grad ? forward
                 : forward + fvi_lanes(lanes + keys) +
                       (a->qk + fvi_most(keys, wide) + fvi_lanes(a->qk) + fvi_lanes(a->vd)) * lanes;
}

/* Numbers of scratch that a thread needs: for keys, then for a tile. */
static inline size_t fvi_tiles_scratch(const fvi_attention *a, bool grad)
{
    return fvi_lanes(fvi_keys_room(a, grad)) + fvi_tile_scratch(a, grad);
}

static inline void fvi_score_tile_at(fvi_score_tile *t, const fvi_attention *a,
                                     const fvi_keys *side, size_t head, size_t i, bool grad,
                                     fv_real **scratch)
{
    const size_t keys = fvi_least(a->keys, TILE_KEYS);
    const fvi_patch *p = side->patch;
    t->a = a;
    t->patch = p;
    t->keys = side;
    t->head = head;
    t->i = i;
    t->rows = fvi_least(p->queries - i, TILE_QUERIES);
    t->lanes = fvi_lanes(t->rows);
    t->q = a->q + (p->query + i) * a->q_row + head * a->qk;
    t->qt = fvi_slice(scratch, a->qk * t->lanes);
    t->scores = fvi_slice(scratch, keys * t->lanes);
    t->bias = fvi_slice(scratch, t->lanes + keys);
    t->pairs = a->bias != NULL ? fvi_slice(scratch, keys * t->lanes) : NULL;
    t->steepness = grad && a->softcap > 0 ? fvi_slice(scratch, keys * t->lanes) : NULL;
    t->low = t->every_low = 0;
    t->high = t->every_high = p->keys;
    const fv_mask *m = a->mask;
    if (m != NULL && (m->causal || m->left != 0 || m->right != 0)) {
        t->low = p->keys;
        t->high = 0;
        for (size_t l = 0; l < t->lanes; l++) {
            t->first[l] = t->end[l] = 0;
            if (l >= t->rows)
                continue;
            fvi_mask_range(m, p, i + l, &t->first[l], &t->end[l]);
            t->every_low = fvi_most(t->every_low, t->first[l]);
            t->every_high = fvi_least(t->every_high, t->end[l]);
            if (t->first[l] < t->end[l]) {
                t->low = fvi_least(t->low, t->first[l]);
                t->high = fvi_most(t->high, t->end[l]);
            }
        }
        t->low = t->low / 4 * 4; /* dropout draws four keys at once */
    }
    fvi_across(t->rows, t->lanes, a->qk, t->q, a->q_row, t->qt);
    for (size_t x = 0; x < a->qk * t->lanes; x++)
        t->qt[x] *= (fv_real)(a->softcap > 0 ? a->scale / a->softcap : a->scale);
}

/* Whether some pair of the keys from .. to - 1 may be hidden. */
static inline bool fvi_partial(const fvi_score_tile *t, size_t from, size_t to)
{
    return from < t->every_low || to > t->every_high ||
           (t->a->mask != NULL && t->a->mask->visible != NULL) || fvi_has_bias(t->a);
}

/* Makes c tanh(s) of the scores s, which are divided by c already; its slope is 1 - tanh^2. */
static inline void fvi_cap(const fvi_score_tile *t, size_t keys)
{
    const size_t count = keys * fvi_whole(t->lanes);
    const fv_real cap = (fv_real)t->a->softcap;
    for (size_t x = 0; x < count; x++) {
        const fv_real tanh_x = fvi_tanh(t->scores[x]);
        if (t->steepness != NULL)
            t->steepness[x] = 1 - tanh_x * tanh_x;
        t->scores[x] = cap * tanh_x;
    }
}

/* A bias of -inf hides whatever the score is. */
static inline fv_real fvi_biased(fv_real score, fv_real bias)
{
    return fv_re(bias) == (fvi_part)-INFINITY ? (fv_real)-INFINITY : score + bias;
}

/* How far the query of lane 0 stands behind key 0. */
static inline int64_t fvi_behind(const fvi_score_tile *t)
{
    return (int64_t)t->i + t->patch->offset;
}

/* bias[l + to - 1 - j] is what their distance adds to the score of row l and key j. */
static inline void fvi_spread_bias(const fvi_score_tile *t, size_t from, size_t to)
{
    const fvi_attention *a = t->a;
    const fv_real *relative = a->relative == NULL || a->relative_rows
                                  ? NULL
                                  : a->relative + t->head * (2 * (size_t)a->clip + 1);
    const fv_real slope = a->slopes != NULL ? a->slopes[t->head] : 0;
    for (size_t x = 0; x < t->lanes + to - from - 1; x++) {
        const int64_t row = fvi_behind(t) + (int64_t)x, distance = row - (int64_t)(to - 1);
        t->bias[x] = relative != NULL ? relative[fvi_relative_at(a, row, to - 1)] : 0;
        if (a->slopes != NULL)
            t->bias[x] -= slope * (fv_real)(distance < 0 ? -distance : distance);
    }
}

/* Where the relative biases of row l start, when rows have their own. */
static inline size_t fvi_relative_row(const fvi_score_tile *t, size_t l)
{
    const size_t row = t->patch->query + t->i + l;
    return (row * t->a->heads + t->head) * (2 * (size_t)t->a->clip + 1);
}

/* Where the biases of the pairs of row l start. */
static inline size_t fvi_bias_row(const fvi_score_tile *t, size_t l)
{
    const size_t head = t->a->bias_heads == 1 ? 0 : t->head;
    return head * t->a->pairs + t->patch->byte + (t->i + l) * t->patch->width;
}

static inline void fvi_add_biases(const fvi_score_tile *t, size_t from, size_t to)
{
    const size_t lanes = fvi_whole(t->lanes);
    const fvi_attention *a = t->a;
    if (a->slopes != NULL || (a->relative != NULL && !a->relative_rows)) {
        fvi_spread_bias(t, from, to);
        for (size_t j = from; j < to; j++) {
            fv_real *s = t->scores + (j - from) * lanes, *bias = t->bias + (to - 1 - j);
            for (size_t l = 0; l < lanes; l++)
                s[l] = fvi_biased(s[l], bias[l]);
        }
    }
    for (size_t l = 0; a->relative_rows && l < t->rows; l++) {
        const fv_real *relative = a->relative + fvi_relative_row(t, l);
        for (size_t j = from; j < to; j++) {
            fv_real *s = t->scores + (j - from) * lanes + l;
            *s = fvi_biased(*s, relative[fvi_relative_at(a, fvi_behind(t) + (int64_t)l, j)]);
        }
    }
    if (a->bias != NULL) {
        fvi_across(t->rows, lanes, to - from, a->bias + fvi_bias_row(t, 0) + from, t->patch->width,
                   t->pairs);
        for (size_t x = 0; x < (to - from) * lanes; x++)
            t->scores[x] = fvi_biased(t->scores[x], t->pairs[x]);
    }
}

static inline void fvi_hide_by_rules(const fvi_score_tile *t, size_t from, size_t to)
{
    const size_t lanes = fvi_whole(t->lanes);
    int32_t first[TILE_QUERIES], end[TILE_QUERIES];
    for (size_t l = 0; l < lanes; l++) {
        first[l] = (int32_t)(fvi_most(fvi_least(t->first[l], to), from) - from);
        end[l] = (int32_t)(fvi_most(fvi_least(t->end[l], to), from) - from);
    }
    for (size_t j = 0; j < to - from; j++) {
        fv_real *s = t->scores + j * lanes;
        for (size_t l = 0; l < lanes; l++)
            s[l] = (int32_t)j >= first[l] && (int32_t)j < end[l] ? s[l] : (fv_real)-INFINITY;
    }
}

/* The dense bytes of row l. */
static inline const unsigned char *fvi_listed(const fvi_score_tile *t, size_t l)
{
    return t->a->mask->visible + t->patch->byte + (t->i + l) * t->patch->width;
}

/* Whether the dense bytes list any pair of the keys from .. to - 1. */
static inline bool fvi_lists_some(const fvi_score_tile *t, size_t from, size_t to)
{
    unsigned char any = 0;
    for (size_t l = 0; l < t->rows && any == 0; l++)
        for (size_t j = from; j < to; j++)
            any |= fvi_listed(t, l)[j];
    return any != 0;
}

static inline void fvi_hide_by_bytes(const fvi_score_tile *t, size_t from, size_t to)
{
    for (size_t l = 0; l < t->rows; l++) {
        const unsigned char *listed = fvi_listed(t, l);
        for (size_t j = from; j < to; j++)
            if (listed[j] == 0)
                t->scores[(j - from) * t->lanes + l] = (fv_real)-INFINITY;
    }
}

/* Fills scores with S^T of the keys from .. to - 1, -inf where a pair is hidden; false when all
 * are. */
static inline bool fvi_scores(const fvi_score_tile *t, size_t from, size_t to)
{
    const fvi_attention *a = t->a;
    const bool bytes = a->mask != NULL && a->mask->visible != NULL;
    if (bytes && !fvi_lists_some(t, from, to))
        return false;
    fvi_in_place(to - from, t->lanes, a->qk, t->keys->k + from * t->keys->k_row, t->keys->k_row, 1,
                 t->qt, t->lanes, t->scores, t->lanes, false);
    if (a->softcap > 0)
        fvi_cap(t, to - from);
    if (fvi_has_bias(a))
        fvi_add_biases(t, from, to);
    if (from < t->every_low || to > t->every_high)
        fvi_hide_by_rules(t, from, to);
    if (bytes)
        fvi_hide_by_bytes(t, from, to);
    return true;
}

/* Writes what dropout multiplies the weights of four keys by, 1 or 0: key j, j + 1 .. by lanes. */
static inline void fvi_keep(const fvi_score_tile *t, size_t j, fv_real keep[4][TILE_QUERIES])
{
    const size_t lanes = fvi_whole(t->lanes);
    const uint64_t below = fvi_drop_below(t->a);
    const uint64_t block = (fvi_drop_index(t->a, t->head, t->patch->query + t->i) + j) / 4;
    const fv_rng rng = t->a->rng;
    for (size_t l = 0; l < lanes; l++) {
        uint32_t four[4];
        fvi_philox(rng, block + ((uint64_t)l << 30), four);
        for (int f = 0; f < 4; f++)
            keep[f][l] = four[f] >= below;
    }
}

/* Whether all numbers of rows x width are finite. */
static inline bool fvi_finite(size_t rows, size_t width, const fv_real *x, size_t row)
{
    fvi_vec lanes = {0}; /* stay 0 unless x is NaN or infinite */
    fv_real rest = 0, lane[FVI_WIDTH];
    for (size_t i = 0; i < rows; i++, x += row) {
        size_t c = 0;
        for (; c + FVI_WIDTH <= width; c += FVI_WIDTH) {
            const fvi_vec some = fvi_load(x + c);
            lanes += some - some;
        }
        for (; c < width; c++)
            rest += x[c] - x[c];
    }
    fvi_store(lane, lanes);
    for (size_t l = 0; l < FVI_WIDTH; l++)
        rest += lane[l];
    return rest == 0;
}

/* A product in which a weight of zero hides what it multiplies, be that NaN: same chain, same bits.
 * The weights are the left operand or the right one. */
static inline void fvi_hiding_product(bool left, size_t m, size_t n, size_t k, const fv_real *a,
                                      size_t a_row, size_t a_col, const fv_real *b, size_t b_row,
                                      fv_real *c, size_t c_row, bool add)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += FVI_LANES) {
            const size_t columns = fvi_least(n - j, FVI_LANES);
            fv_real sum[FVI_LANES] = {0};
            for (size_t p = 0; p < k; p++) {
                const fv_real x = a[i * a_row + p * a_col], *y = b + p * b_row + j;
                for (size_t l = 0; l < columns; l++) {
                    const bool hidden = (left ? x : y[l]) == 0;
                    sum[l] = fvi_fma(hidden ? 0 : x, hidden ? 0 : y[l], sum[l]);
                }
            }
            for (size_t l = 0; l < columns; l++)
                c[i * c_row + j + l] = add ? c[i * c_row + j + l] + sum[l] : sum[l];
        }
}

#endif
