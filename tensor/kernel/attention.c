/* Attention: what tiles know goes by tiles, everything else row by row. */
#include "tensor/kernel/attention.h"

static bool by_rows(const fvi_attention *a)
{
    return (a->mask != NULL && a->mask->edges != NULL) || a->score != FV_SCORE_DOT ||
           a->normalizer == FV_NORMALIZE_SPARSEMAX || a->relative_v != NULL;
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
