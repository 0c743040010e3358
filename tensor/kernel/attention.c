/* Attention: edges go row by row, everything else by tiles. */
#include "tensor/kernel/attention_scores.h"

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

static bool by_rows(const fvi_attention *a)
{
    return a->mask != NULL && a->mask->edges != NULL;
}

size_t fvi_attention_scratch(const fvi_attention *a, int threads, bool grad)
{
    return by_rows(a) ? fvi_attention_rows_scratch(a, threads, grad)
                      : fvi_attention_tiles_scratch(a, threads, grad);
}

void fvi_attention_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    (by_rows(a) ? fvi_attention_rows_forward : fvi_attention_tiles_forward)(a, threads, scratch);
}

void fvi_attention_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                            fv_real *scratch)
{
    (by_rows(a) ? fvi_attention_rows_backward : fvi_attention_tiles_backward)(a, g, threads,
                                                                              scratch);
}
