/* Attention: chooses between the row kernel and the tiled one. */
#include "tensor/kernel/attention.h"

size_t fvi_attention_scratch(const fvi_attention *a, int threads, bool grad)
{
    return fvi_attention_rows_scratch(a, threads, grad);
}

void fvi_attention_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    fvi_attention_rows_forward(a, threads, scratch);
}

void fvi_attention_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                            fv_real *scratch)
{
    fvi_attention_rows_backward(a, g, threads, scratch);
}
