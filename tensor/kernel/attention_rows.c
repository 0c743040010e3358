/* Attention row by row, forward: a query row walks the keys it sees, so that any mask costs its
 * visible pairs, and only the scores of one row exist at a time. */
#include "tensor/kernel/attention_row_scores.h"

FVI_INLINE void sum_values_of(const fvi_row *r, fv_real *y, const size_t n)
{
    for (size_t b = 0; b < r->count; b++) {
        const fv_real *v = fvi_row_value(r, b) + r->kv * n, *w = r->w + b * r->heads;
        for (size_t h = 0; h < r->heads; h++)
            if (fv_re(w[h]) != 0)
                fvi_add_scaled_of(w[h], v + fvi_row_kv_at(r, h) * n, y + h * n, n);
    }
}

/* y += weight value, over the keys seen. */
static void sum_values(const fvi_row *r, fv_real *y)
{
    FVI_UNROLLED(r->a->vd, sum_values_of, r, y);
}

static void forward_row(fvi_row *r, const fvi_patch *p, size_t i, size_t abreast)
{
    const fvi_attention *a = r->a;
    fvi_row_turn(r, p, i);
    for (size_t first = 0; first < a->heads; first += abreast) {
        fvi_row_heads(r, first, fvi_least(a->heads - first, abreast));
        fv_real *y = a->y + (r->row * a->heads + first) * a->vd;
        for (size_t c = 0; c < r->heads * a->vd; c++)
            y[c] = 0;
        fvi_row_scores(r);
        fvi_row_normalize(r, a->lse + r->row * a->heads + first);
        if (a->dropout > 0) {
            fvi_row_keep(r);
            for (size_t x = 0; x < fvi_row_pairs(r); x++)
                r->w[x] *= r->keep[x];
        }
        sum_values(r, y);
    }
}

/* Runs the tasks drawn: a task is some rows, all heads. */
static void forward_share(const fvi_attention *a, size_t *ticket, fv_real *scratch)
{
    enum { ROWS = 16 };
    const size_t abreast = fvi_row_abreast(a, fvi_row_most_keys(a));
    size_t task = 0, mine = fvi_draw(ticket);
    fvi_row r;
    fvi_patch p;
    fvi_row_layout(&r, a, false, scratch);
    r.ahead[0].rows = a->v, r.ahead[0].row = a->v_row, r.ahead[0].width = a->kv_heads * a->vd;
    r.ahead[1].rows = a->k, r.ahead[1].row = a->k_row, r.ahead[1].width = a->kv_heads * a->qk;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        for (size_t from = 0; from < p.queries; from += ROWS, task++) {
            if (task != mine)
                continue;
            for (size_t i = from; i < p.queries && i < from + ROWS; i++)
                forward_row(&r, &p, i, abreast);
            mine = fvi_draw(ticket);
        }
    }
}

void fvi_attention_rows_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    const size_t each = fvi_attention_rows_scratch(a, 1, false);
    size_t ticket = 0, worker = 0;
    if (threads <= 1) {
        forward_share(a, &ticket, scratch);
        return;
    }
#pragma omp parallel num_threads(threads)
    forward_share(a, &ticket, scratch + fvi_draw(&worker) * each);
}

size_t fvi_attention_row_weights(const fvi_attention *a, const fvi_patch *p, size_t i, size_t head,
                                 fv_real *scratch, const uint32_t **at, const fv_real **weights)
{
    fvi_row r;
    fvi_row_layout(&r, a, false, scratch);
    fvi_row_turn(&r, p, i);
    fvi_row_heads(&r, head, 1);
    fvi_row_scores(&r);
    const size_t all = r.count;
    r.count = 0;
    for (size_t b = 0; b < all; b++)
        if (!fvi_hidden(r.s[b])) {
            r.s[r.count] = r.s[b];
            r.at[r.count++] = r.at[b];
        }
    fvi_row_weights(&r, a->lse + r.row * a->heads + head);
    *at = r.at;
    *weights = r.w;
    return r.count;
}
