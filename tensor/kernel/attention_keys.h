/* K and V of one key head of a patch, and what backward adds up to dK and dV.
 *
 * Where other heads lie between the rows of a head, a cache holds few of its rows: they meet in a
 * part of its sets, and many are the first of a page. A patch of several tiles of queries, which
 * read every row again, therefore has a head's rows side by side in scratch. They are copied as far
 * as tiles have asked, so that a window finds them near. */
#ifndef FVI_ATTENTION_KEYS_H
#define FVI_ATTENTION_KEYS_H

#include "tensor/kernel/attention.h"

enum { TILE_QUERIES = 96, TILE_KEYS = 128 };

/* Rows by the key's position in the patch, in place or copied. */
typedef struct {
    const fv_real *k, *v;
    fv_real *dk, *dv; /* NULL: not wanted */
    size_t k_row, v_row;
    const fvi_patch *patch;
    size_t kv;        /* the key head */
    fv_real *room;    /* of the copies; NULL: in place */
    size_t from, end; /* what was copied */
} fvi_keys;

/* Whether to copy: of the shape alone, since it orders the sums of dK and dV. */
static inline bool fvi_copies_keys(const fvi_attention *a, const fvi_patch *p)
{
    return p->queries > TILE_QUERIES && (a->k_row > a->qk || a->v_row > a->vd);
}

/* Numbers of scratch that a thread needs for copies; with gradients, as many again for those. */
static inline size_t fvi_keys_room(const fvi_attention *a, bool grad)
{
    size_t most = 0;
    for (size_t s = 0; a->queries > TILE_QUERIES && s < fvi_mask_patches(a->mask); s++) {
        const fvi_patch p = fvi_mask_patch(a->mask, a->queries, a->keys, s, NULL);
        if (fvi_copies_keys(a, &p) && p.keys > most)
            most = p.keys;
    }
    return most * (a->qk + a->vd) * (grad ? 2 : 1);
}

/* The keys from .. of a key head; g: NULL when dK and dV are not wanted. */
static inline void fvi_keys_at(fvi_keys *x, const fvi_attention *a, const fvi_attention_grad *g,
                               const fvi_patch *p, size_t kv, size_t from, fv_real *room)
{
    const bool dk = g != NULL && g->dk != NULL, dv = g != NULL && g->dv != NULL;
    x->patch = p;
    x->kv = kv;
    x->from = x->end = from;
    x->room = fvi_copies_keys(a, p) ? room : NULL;
    if (x->room != NULL) {
        fv_real *gradient = room + p->keys * (a->qk + a->vd);
        x->k = room;
        x->v = room + p->keys * a->qk;
        x->dk = dk ? gradient : NULL;
        x->dv = dv ? gradient + p->keys * a->qk : NULL;
        x->k_row = a->qk;
        x->v_row = a->vd;
    } else {
        const size_t k = p->key * a->k_row + kv * a->qk, v = p->key * a->v_row + kv * a->vd;
        x->k = a->k + k;
        x->v = a->v + v;
        x->dk = dk ? g->dk + k : NULL;
        x->dv = dv ? g->dv + v : NULL;
        x->k_row = a->k_row;
        x->v_row = a->v_row;
    }
}

static inline void fvi_copy_rows(size_t rows, size_t width, const fv_real *x, size_t row,
                                 fv_real *restrict to)
{
    for (size_t j = 0; j < rows; j++, x += row, to += width)
        for (size_t c = 0; c < width; c++)
            to[c] = x[c];
}

/* Makes sure of the keys below end; their gradients start at zero. */
static inline void fvi_keys_until(fvi_keys *x, const fvi_attention *a, size_t end)
{
    if (x->room == NULL || end <= x->end)
        return;
    const size_t key = x->patch->key + x->end, count = end - x->end;
    fv_real *k = x->room + x->end * a->qk, *v = x->room + x->patch->keys * a->qk + x->end * a->vd;
    fvi_copy_rows(count, a->qk, a->k + key * a->k_row + x->kv * a->qk, a->k_row, k);
    fvi_copy_rows(count, a->vd, a->v + key * a->v_row + x->kv * a->vd, a->v_row, v);
    for (size_t c = x->end * a->qk; x->dk != NULL && c < end * a->qk; c++)
        x->dk[c] = 0;
    for (size_t c = x->end * a->vd; x->dv != NULL && c < end * a->vd; c++)
        x->dv[c] = 0;
    x->end = end;
}

static inline void fvi_add_rows(size_t rows, size_t width, const fv_real *x, fv_real *restrict to,
                                size_t row)
{
    for (size_t j = 0; j < rows; j++, x += width, to += row)
        for (size_t c = 0; c < width; c++)
            to[c] += x[c];
}

/* Adds the sums of copied keys to the gradients. */
static inline void fvi_keys_add(const fvi_keys *x, const fvi_attention *a,
                                const fvi_attention_grad *g)
{
    const size_t key = x->patch->key + x->from, count = x->end - x->from;
    if (x->room != NULL && x->dk != NULL)
        fvi_add_rows(count, a->qk, x->dk + x->from * a->qk, g->dk + key * a->k_row + x->kv * a->qk,
                     a->k_row);
    if (x->room != NULL && x->dv != NULL)
        fvi_add_rows(count, a->vd, x->dv + x->from * a->vd, g->dv + key * a->v_row + x->kv * a->vd,
                     a->v_row);
}

#endif
