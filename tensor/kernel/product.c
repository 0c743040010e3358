/* Matrix products, the plain way. */
#include "tensor/internal.h"

size_t fvi_product_scratch(const fvi_product *p, int threads)
{
    (void)p;
    (void)threads;
    return 1;
}

void fvi_product_run(const fvi_product *p, int threads, fv_real *scratch)
{
    (void)threads;
    (void)scratch;
    for (size_t i = 0; i < p->m; i++) {
        fv_real *c = p->c + i * p->c_row;
        if (!p->add)
            for (size_t j = 0; j < p->n; j++)
                c[j] = 0;
        for (size_t x = 0; x < p->k; x++) {
            fv_real a = p->a[i * p->a_row + x * p->a_col];
            for (size_t j = 0; j < p->n; j++)
                c[j] += a * p->b[x * p->b_row + j * p->b_col];
        }
        for (size_t j = 0; j < p->n; j++) {
            if (p->bias != NULL)
                c[j] += p->bias[j];
            if (p->activation == FVI_RELU && !(fv_re(c[j]) > 0))
                c[j] = 0;
        }
    }
}
