/* The cosine embedding loss: rows of two matrices drawn to each other, or apart. */
#include "autograd/ops/rows.h"

typedef struct {
    const int32_t *labels; /* [rows]: 1 or -1 */
    double margin;
} cosine_options;

/* What backward needs of a row: cos = a.b / root, root = sqrt((a.a + eps) (b.b + eps)). */
typedef struct {
    fv_real cosine, root, aa, bb;
} cosine_row;

static cosine_row cosine_of(size_t d, const fv_real *a, const fv_real *b)
{
    const fv_real eps = (fv_real)1e-12; /* as PyTorch has it */
    cosine_row r = {.aa = lane_dot(d, a, a) + eps, .bb = lane_dot(d, b, b) + eps};
    r.root = fvi_sqrt(r.aa * r.bb);
    r.cosine = lane_dot(d, a, b) / r.root;
    return r;
}

/* saved: a cosine_row for each row */
static bool cosine_embedding_forward(fv_tape *t, fv_var *y)
{
    const cosine_options *o = y->options;
    const size_t rows = fvi_rows(y->in[0]), d = fvi_columns(y->in[0]);
    cosine_row *saved = fvi_tape_take(t, rows, sizeof *saved);
    fvi_wide total = 0;
    if (saved == NULL)
        return false;
    y->saved = saved;
    const int parts = parts_of(t, rows, 2 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++)
            saved[r] = cosine_of(d, y->in[0]->value.data + r * d, y->in[1]->value.data + r * d);
    }
    for (size_t r = 0; r < rows; r++) {
        const fv_real beyond = saved[r].cosine - (fv_real)o->margin;
        if (o->labels[r] > 0)
            total += 1 - (fvi_wide)saved[r].cosine;
        else if (!(fv_re(beyond) < 0))
            total += (fvi_wide)beyond;
    }
    y->value.data[0] = (fv_real)total;
    return true;
}

/* with dcos = -dy where label is 1, dy where it is -1 and cos >= margin: da = dcos * (b / root - cos * a
 * / (a.a + eps)), and db likewise */
static void cosine_embedding_backward(fv_tape *t, fv_var *y)
{
    const cosine_options *o = y->options;
    const cosine_row *saved = y->saved;
    const size_t rows = fvi_rows(y->in[0]), d = fvi_columns(y->in[0]);
    fv_real *da = fv_grad(t, y->in[0]), *db = fv_grad(t, y->in[1]);
    const int parts = parts_of(t, rows, 6 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from; r < p.to; r++) {
            const cosine_row s = saved[r];
            const fv_real *a = y->in[0]->value.data + r * d, *b = y->in[1]->value.data + r * d;
            if (o->labels[r] < 0 && fv_re(s.cosine) < o->margin)
                continue;
            const fv_real dcos = o->labels[r] > 0 ? -y->grad[0] : y->grad[0];
            const fv_real across = dcos / s.root;
            const fv_real along_a = dcos * s.cosine / s.aa, along_b = dcos * s.cosine / s.bb;
            for (size_t i = 0; da != NULL && i < d; i++)
                da[r * d + i] += fvi_fma(across, b[i], -along_a * a[i]);
            for (size_t i = 0; db != NULL && i < d; i++)
                db[r * d + i] += fvi_fma(across, a[i], -along_b * b[i]);
        }
    }
}

static fv_var *cosine_embedding_sample(fv_sampler *s, int which)
{
    static const int32_t labels[] = {1, -1, -1, 1};
    const fv_shape shape = which == 1 ? FV_SHAPE(4, 2) : FV_SHAPE(4, 19);
    fv_var *a = fv_sample(s, shape, 0.1, 2);
    fv_var *b = which == 2 ? a : fv_sample(s, shape, -1, 2);
    return fv_cosine_embedding_sum(fv_sampler_tape(s), a, b, labels, which == 0 ? 0.1 : 0.5, NULL);
}
FVI_OP(cosine_embedding, "y = sum (label 1: 1 - cos; label -1: max(0, cos - margin))", "", 3)

#if FVI_ONCE
fv_var *fv_cosine_embedding_sum(fv_tape *t, fv_var *a, fv_var *b, const int32_t *labels,
                                double margin, double *count)
{
    const char *op = "cosine_embedding";
    const cosine_options o = {labels, margin};
    char text[FVI_NUMBER];
    if (!given(t, op, a) || !given(t, op, b) || !fvi_is_matrix(t, op, "a", a))
        return NULL;
    if (!fv_shape_equal(a->value.shape, b->value.shape))
        return fv_refuse(t, op, "%s with %s: shapes differ", fv_describe(t, a), fv_describe(t, b));
    if (labels == NULL)
        return fv_refuse(t, op, "no labels");
    if (!isfinite(margin))
        return fv_refuse(t, op, "margin %s, expected a number", fvi_number(text, margin, 6));
    for (size_t r = 0; r < fvi_rows(a); r++)
        if (labels[r] != 1 && labels[r] != -1)
            return fv_refuse(t, op, "label %d of row %zu, expected 1 or -1", (int)labels[r], r);
    if (count != NULL)
        *count = (double)fvi_rows(a);
    return fvi_record(t, FVI_OP_cosine_embedding, FV_SCALAR, &o, sizeof o, 2, (fv_var *[]){a, b});
}
#endif
