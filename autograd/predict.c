/* What predictions need of a value, without history. */
#include "autograd/internal.h"
#include "tensor/math.h"

fv_tensor fv_softmax_rows(fv_tape *t, const fv_var *x)
{
    const fv_tensor nothing = {FV_SCALAR, NULL};
    if (x == NULL || !fv_tape_ok(t))
        return nothing;
    size_t rows = fvi_rows(x), n = fvi_columns(x);
    fv_real *p = fvi_tape_take(t, rows * n, sizeof *p);
    if (p == NULL)
        return nothing;
    for (size_t r = 0; r < rows; r++) {
        const fv_real *in = x->value.data + r * n;
        fv_real most = in[0], sum = 0;
        for (size_t i = 1; i < n; i++)
            most = fv_re(in[i]) > fv_re(most) ? in[i] : most;
        for (size_t i = 0; i < n; i++)
            sum += p[r * n + i] = fvi_exp(in[i] - most);
        for (size_t i = 0; i < n; i++)
            p[r * n + i] /= sum;
    }
    return (fv_tensor){x->value.shape, p};
}

void fv_argmax_rows(const fv_var *x, int32_t *labels)
{
    size_t n = x ? fvi_columns(x) : 0;
    for (size_t r = 0, rows = x ? fvi_rows(x) : 0; r < rows; r++) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (fv_re(x->value.data[r * n + i]) > fv_re(x->value.data[r * n + best]))
                best = i;
        labels[r] = (int32_t)best;
    }
}
