/* Shared by the attention kernels: the tickets that deal work to threads,
 * and dropout. */
#ifndef FVI_ATTENTION_H
#define FVI_ATTENTION_H

#include "tensor/internal.h"

#include <math.h>

/* The type of a score's real part: what comparisons and maxima work with. */
#if defined(FV_COMPLEX) || defined(FV_F64)
typedef double fvi_part;
#else
typedef float fvi_part;
#endif

/* Threads walk the same list of tasks; each runs the task whose number it drew. */
static inline size_t fvi_draw(size_t *ticket)
{
    size_t mine;
#pragma omp atomic capture
    mine = (*ticket)++;
    return mine;
}

/* Dropout as integers: a weight is kept when its bits are at least this. */
static inline uint64_t fvi_drop_below(const fvi_attention *a)
{
    return a->dropout > 0 ? (uint64_t)ceil(a->dropout * 0x1p32) : 0;
}

/* Index of the bits of the weight of query row i in head h at key position 0. */
static inline uint64_t fvi_drop_index(const fvi_attention *a, size_t h, size_t i)
{
    return ((uint64_t)h * a->queries + i) << 32;
}

/* The column of relative that the query at position i reads for the key at position j; i counts the
 * patch's shift. */
static inline size_t fvi_relative_at(const fvi_attention *a, int64_t i, size_t j)
{
    const int64_t clip = a->clip, distance = (int64_t)j - i;
    return (size_t)((distance < -clip ? -clip : distance > clip ? clip : distance) + clip);
}

/* Row by row: any mask, at a cost of the pairs that are visible. */
#define fvi_attention_rows_scratch  FVI_NAME(fvi_attention_rows_scratch)
#define fvi_attention_rows_forward  FVI_NAME(fvi_attention_rows_forward)
#define fvi_attention_rows_backward FVI_NAME(fvi_attention_rows_backward)
size_t fvi_attention_rows_scratch(const fvi_attention *a, int threads, bool grad);
void fvi_attention_rows_forward(const fvi_attention *a, int threads, fv_real *scratch);
void fvi_attention_rows_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                 fv_real *scratch);
/* The weights of one head in the row of query i of a patch, from its kept statistic, before dropout:
 * gives how many keys it sees, those with a score of -inf left out, their positions and weights, in
 * the scratch of fvi_attention_rows_scratch(a, 1, false). */
#define fvi_attention_row_weights FVI_NAME(fvi_attention_row_weights)
size_t fvi_attention_row_weights(const fvi_attention *a, const fvi_patch *p, size_t i, size_t head,
                                 fv_real *scratch, const uint32_t **at, const fv_real **weights);

/* By tiles: rules and dense bytes. */
#define fvi_attention_tiles_scratch  FVI_NAME(fvi_attention_tiles_scratch)
#define fvi_attention_tiles_forward  FVI_NAME(fvi_attention_tiles_forward)
#define fvi_attention_tiles_backward FVI_NAME(fvi_attention_tiles_backward)
size_t fvi_attention_tiles_scratch(const fvi_attention *a, int threads, bool grad);
void fvi_attention_tiles_forward(const fvi_attention *a, int threads, fv_real *scratch);
void fvi_attention_tiles_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                  fv_real *scratch);

#endif
