/* Products of matrices and vectors, broadcast over the axes before them: matmul, outer, dot. */
#include "autograd/ops/contract.h"

#define matmul_forward  fvi_contract_forward
#define matmul_backward fvi_contract_backward /* da = dy b', db = a' dy, summed where they repeat */

static fv_var *matmul_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const struct {
        fv_shape a, b;
        bool transpose_a, transpose_b;
    } cases[] = {
        {{2, {4, 6}}, {2, {6, 3}}, false, false},
        {{2, {6, 4}}, {2, {6, 3}}, true, false},
        {{2, {4, 6}}, {2, {3, 6}}, false, true},
        {{2, {6, 4}}, {2, {3, 6}}, true, true},
        {{2, {1, 1}}, {2, {1, 1}}, false, false},
        {{1, {5}}, {1, {5}}, false, false},
        {{1, {5}}, {3, {2, 5, 3}}, false, false},
        {{3, {2, 3, 5}}, {1, {5}}, false, false},
        {{3, {2, 5, 3}}, {2, {5, 4}}, true, false},        /* b repeats */
        {{3, {1, 3, 5}}, {4, {2, 2, 5, 4}}, false, false}, /* a repeats */
        {{4, {2, 1, 3, 2}}, {3, {3, 4, 2}}, false, true},  /* both do */
        {{6, {2, 1, 1, 2, 2, 3}}, {6, {1, 2, 1, 2, 3, 2}}, false, false},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    if (which >= CASES) { /* the same input twice */
        fv_var *a = fv_sample(s, FV_SHAPE(2, 3, 3), -1, 1);
        return fv_matmul(t, a, a, &(fv_matmul_opts){.transpose_b = which > CASES});
    }
    const fv_matmul_opts opts = {cases[which].transpose_a, cases[which].transpose_b};
    fv_var *a = fv_sample(s, cases[which].a, -1, 1);
    return fv_matmul(t, a, fv_sample(s, cases[which].b, -1, 1), &opts);
}
FVI_OP(matmul, "y = a b", "", 14)

#define outer_forward  fvi_contract_forward
#define outer_backward fvi_contract_backward /* da = dy b, db = dy' a */

static fv_var *outer_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *a = fv_sample(s, which == 1 ? FV_SHAPE(2, 1, 3) : FV_SHAPE(4), -1, 1);
    return fv_outer(t, a,
                    which == 2 ? a : fv_sample(s, which ? FV_SHAPE(3, 4) : FV_SHAPE(5), -1, 1));
}
FVI_OP(outer, "y[i, j] = a[i] b[j]", "", 3)

#define dot_forward  fvi_contract_forward
#define dot_backward fvi_contract_backward /* da = dy b, db = dy a */

static fv_var *dot_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    fv_var *a = fv_sample(s, which == 1 ? FV_SHAPE(2, 1, 20) : FV_SHAPE(20), -1, 1);
    return fv_dot(t, a,
                  which == 2 ? a : fv_sample(s, which ? FV_SHAPE(3, 20) : FV_SHAPE(20), -1, 1));
}
FVI_OP(dot, "y = sum of a * b over the last axis", "", 3)

#if FVI_ONCE
/* The axes but the last few. */
static fv_shape before(fv_shape shape, int last)
{
    shape.rank = shape.rank > last ? shape.rank - last : 0;
    return shape;
}

/* Gives z the axes before the last few of a and b, broadcast; refuses those that do not. */
static bool broadcast_before(fv_tape *t, const char *op, const fv_var *a, int last_a,
                             const fv_var *b, int last_b, fv_shape *z)
{
    if (broadcast_shapes(before(a->value.shape, last_a), before(b->value.shape, last_b), z))
        return true;
    fv_refuse(t, op, "%s with %s: the axes before do not broadcast", fv_describe(t, a),
              fv_describe(t, b));
    return false;
}

/* Letters for the first axes of z, which a and b have before their last few. */
static void letters_before(contraction *c, const fv_shape shape[3], int last_a, int last_b,
                           int axes)
{
    const int a = before(shape[0], last_a).rank, b = before(shape[1], last_b).rank;
    for (int i = 0; i < axes; i++) {
        const int at_a = i - (axes - a), at_b = i - (axes - b);
        add_letter(c, shape[2].size[i], shape,
                   (int[]){at_a < 0 ? -1 : at_a, at_b < 0 ? -1 : at_b, i});
    }
}

static fv_var *record(fv_tape *t, fvi_op_id id, const contraction *c, fv_shape shape, fv_var *a,
                      fv_var *b)
{
    return fvi_record(t, id, shape, c, sizeof *c, 2, (fv_var *[]){a, b});
}

fv_var *fv_matmul(fv_tape *t, fv_var *a, fv_var *b, const fv_matmul_opts *opts)
{
    const char *op = "matmul";
    if (!given(t, op, a) || !given(t, op, b))
        return NULL;
    fv_shape shape[3] = {a->value.shape, b->value.shape};
    const int rank_a = shape[0].rank, rank_b = shape[1].rank;
    const bool flip_a = opts != NULL && opts->transpose_a,
               flip_b = opts != NULL && opts->transpose_b;
    for (int i = 0; i < 2; i++)
        if (shape[i].rank == 0 || (shape[i].rank == 1 && (i == 0 ? flip_a : flip_b)))
            return fv_refuse(t, op, "%s is %s, expected %s", i == 0 ? "a" : "b",
                             fv_describe(t, i == 0 ? a : b),
                             shape[i].rank == 0 ? "a vector or a matrix" : "two axes to transpose");
    const int k_a = flip_a ? rank_a - 2 : rank_a - 1, m_a = rank_a == 1 ? -1 : 2 * rank_a - 3 - k_a;
    const int k_b = flip_b || rank_b == 1 ? rank_b - 1 : rank_b - 2;
    const int n_b = rank_b == 1 ? -1 : 2 * rank_b - 3 - k_b;
    if (shape[0].size[k_a] != shape[1].size[k_b])
        return fv_refuse(t, op, "%s%s with %s%s: inner sizes differ", fv_describe(t, a),
                         flip_a ? " transposed" : "", fv_describe(t, b),
                         flip_b ? " transposed" : "");
    if (!broadcast_before(t, op, a, 2, b, 2, &shape[2]))
        return NULL;
    const int axes = shape[2].rank;
    if (m_a >= 0)
        shape[2].size[shape[2].rank++] = shape[0].size[m_a];
    if (n_b >= 0)
        shape[2].size[shape[2].rank++] = shape[1].size[n_b];
    contraction c = {.lanes = rank_a == 1 && rank_b == 1};
    letters_before(&c, shape, 2, 2, axes);
    if (m_a >= 0)
        add_letter(&c, shape[0].size[m_a], shape, (int[]){m_a, -1, axes});
    if (n_b >= 0)
        add_letter(&c, shape[1].size[n_b], shape, (int[]){-1, n_b, axes + (m_a >= 0)});
    add_letter(&c, shape[0].size[k_a], shape, (int[]){k_a, k_b, -1});
    return record(t, FVI_OP_matmul, &c, shape[2], a, b);
}

fv_var *fv_outer(fv_tape *t, fv_var *a, fv_var *b)
{
    const char *op = "outer";
    if (!given(t, op, a) || !given(t, op, b))
        return NULL;
    fv_shape shape[3] = {a->value.shape, b->value.shape};
    const int m = shape[0].rank - 1, n = shape[1].rank - 1;
    if (m < 0 || n < 0)
        return fv_refuse(t, op, "%s with %s: expected [.., m] and [.., n]", fv_describe(t, a),
                         fv_describe(t, b));
    if (!broadcast_before(t, op, a, 1, b, 1, &shape[2]))
        return NULL;
    const int axes = shape[2].rank;
    if (axes + 2 > FV_MAX_RANK)
        return fv_refuse(t, op, "%s with %s: the result has more than %d axes", fv_describe(t, a),
                         fv_describe(t, b), FV_MAX_RANK);
    shape[2].size[shape[2].rank++] = shape[0].size[m];
    shape[2].size[shape[2].rank++] = shape[1].size[n];
    contraction c = {0};
    letters_before(&c, shape, 1, 1, axes);
    add_letter(&c, shape[0].size[m], shape, (int[]){m, -1, axes});
    add_letter(&c, shape[1].size[n], shape, (int[]){-1, n, axes + 1});
    return record(t, FVI_OP_outer, &c, shape[2], a, b);
}

fv_var *fv_dot(fv_tape *t, fv_var *a, fv_var *b)
{
    const char *op = "dot";
    if (!given(t, op, a) || !given(t, op, b))
        return NULL;
    fv_shape shape[3] = {a->value.shape, b->value.shape};
    const int k_a = shape[0].rank - 1, k_b = shape[1].rank - 1;
    if (k_a < 0 || k_b < 0 || shape[0].size[k_a] != shape[1].size[k_b])
        return fv_refuse(t, op, "%s with %s: expected [.., d] and [.., d]", fv_describe(t, a),
                         fv_describe(t, b));
    if (!broadcast_before(t, op, a, 1, b, 1, &shape[2]))
        return NULL;
    contraction c = {.lanes = true};
    letters_before(&c, shape, 1, 1, shape[2].rank);
    add_letter(&c, shape[0].size[k_a], shape, (int[]){k_a, k_b, -1});
    return record(t, FVI_OP_dot, &c, shape[2], a, b);
}
#endif
