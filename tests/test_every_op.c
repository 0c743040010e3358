/* Every op of ops.def at every rank, with axes of 1 and of 0, and with one value as all of its inputs: it gives a
 * value of finite numbers with exact gradients, or says in its own name what does not fit. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

/* ---- the shapes ------------------------------------------------------------------------------ */

typedef enum { FULL, ONES, ZERO_FIRST, ZERO_LAST, KINDS } kind;

static fv_shape shape_of(kind k, int rank)
{
    static const size_t full[FV_MAX_RANK] = {2, 4, 2, 3, 1, 2};
    fv_shape shape = {.rank = rank};
    for (int axis = 0; axis < rank; axis++)
        shape.size[axis] =
            k == ONES || (k == ZERO_FIRST && axis == 0) || (k == ZERO_LAST && axis == rank - 1)
                ? k == ONES
                : full[axis];
    return shape;
}

/* ---- a call of each op ----------------------------------------------------------------------- */

/* One call on x, and on b of the same shape (or x itself) where the op has more than one input. */
typedef fv_var *call_of(fv_tape *t, fv_var *x, fv_var *b);

static size_t axis_of(const fv_var *x, int axis)
{
    const fv_shape s = x->value.shape;
    return axis < 0        ? (s.rank + axis >= 0 ? s.size[s.rank + axis] : 1)
           : axis < s.rank ? s.size[axis]
                           : 1;
}

static size_t count_of(const fv_var *x)
{
    return fv_shape_count(x->value.shape);
}

/* Numbers without a gradient. */
static fv_var *some(fv_tape *t, fv_shape shape)
{
    const size_t count = fv_shape_count(shape);
    fv_real *data = fv_tape_alloc(t, count + 1, sizeof *data);
    for (size_t i = 0; data != NULL && i < count; i++)
        data[i] = (fv_real)(0.3 + 0.1 * (double)(i % 5));
    return fv_constant(t, shape, data);
}

static int32_t *labels(fv_tape *t, size_t count, int32_t value)
{
    int32_t *all = fv_tape_alloc(t, count + 1, sizeof *all);
    for (size_t i = 0; all != NULL && i < count; i++)
        all[i] = value;
    return all;
}

/* That many segments of so many rows each. */
static const fv_segments *segments(fv_tape *t, size_t count, size_t rows)
{
    fv_segments *s = fv_tape_alloc(t, 1, sizeof *s);
    size_t *offsets = fv_tape_alloc(t, count + 1, sizeof *offsets);
    if (s == NULL || offsets == NULL)
        return NULL;
    for (size_t i = 0; i <= count; i++)
        offsets[i] = i * rows;
    *s = (fv_segments){count, offsets};
    return s;
}

static const fv_segments *rows_of(fv_tape *t, const fv_var *x)
{
    return segments(t, 1, axis_of(x, 0));
}

static fv_bools every_other(fv_tape *t, fv_shape shape)
{
    unsigned char *yes = fv_tape_alloc(t, fv_shape_count(shape) + 1, 1);
    for (size_t i = 0; yes != NULL && i < fv_shape_count(shape); i += 2)
        yes[i] = 1;
    return (fv_bools){shape, yes};
}

static const fv_axes last = {.count = 1, .axis = {-1}};
static const fv_conv_opts window = {.kernel = {1, 1, 1}}, line = {.kernel = {1}};

/* Ranks at which a call is right, for each kind of shape. */
typedef const char *const ranks[KINDS];
static ranks any = {"0123456", "0123456", "123456", "123456"};
static ranks axis = {"123456", "123456", "123456", "123456"};
static ranks along = {"123456", "123456", "23456", ""}; /* along the last axis */
static ranks halves = {"123456", "", "123456", "123456"};
static ranks planes = {"23456", "23456", "23456", "23456"};
static ranks batch = {"23456", "", "23456", "23456"}; /* of more than one number */
static ranks matrix = {"2", "2", "2", ""};
static ranks pairs = {"2", "", "2", ""}; /* of columns */
static ranks table = {"2", "2", "", ""};
static ranks samples = {"3", "3", "3", ""};
static ranks spatial = {"345", "345", "345", ""};
static ranks lines = {"34", "34", "34", ""};
static ranks wider = {"12345", "12345", "12345", "12345"};
static ranks stacked = {"012345", "012345", "12345", "12345"};

#define TRY(op, kinds, ...)                                                                        \
    static ranks *ranks_##op(void)                                                                 \
    {                                                                                              \
        return &kinds;                                                                             \
    }                                                                                              \
    static fv_var *try_##op(fv_tape *t, fv_var *x, fv_var *b)                                      \
    {                                                                                              \
        (void)b;                                                                                   \
        return __VA_ARGS__;                                                                        \
    }

TRY(add, any, fv_add(t, x, b))
TRY(sub, any, fv_sub(t, x, b))
TRY(mul, any, fv_mul(t, x, b))
TRY(div, any, fv_div(t, x, b))
TRY(power, any, fv_power(t, x, b))
TRY(minimum, any, fv_minimum(t, x, fv_scale(t, b, 2)))
TRY(maximum, any, fv_maximum(t, x, fv_scale(t, b, 2)))
TRY(lerp, any, fv_lerp(t, x, b, b))
TRY(where, any, fv_where(t, every_other(t, x->value.shape), x, b))
TRY(add_many, any, fv_add_many(t, 3, (fv_var *[]){x, b, x}))
TRY(scale, any, fv_scale(t, x, 2))
TRY(shift, any, fv_shift(t, x, 2))
TRY(pow, any, fv_pow(t, x, 3))
TRY(clamp, any, fv_clamp(t, x, -2, 2))
TRY(neg, any, fv_neg(t, x))
TRY(abs, any, fv_abs(t, x))
TRY(square, any, fv_square(t, x))
TRY(reciprocal, any, fv_reciprocal(t, x))
TRY(sqrt, any, fv_sqrt(t, x))
TRY(rsqrt, any, fv_rsqrt(t, x))
TRY(exp, any, fv_exp(t, x))
TRY(expm1, any, fv_expm1(t, x))
TRY(log, any, fv_log(t, x))
TRY(log1p, any, fv_log1p(t, x))
TRY(sin, any, fv_sin(t, x))
TRY(cos, any, fv_cos(t, x))
TRY(tan, any, fv_tan(t, x))
TRY(asin, any, fv_asin(t, x))
TRY(acos, any, fv_acos(t, x))
TRY(atan, any, fv_atan(t, x))
TRY(sinh, any, fv_sinh(t, x))
TRY(cosh, any, fv_cosh(t, x))
TRY(asinh, any, fv_asinh(t, x))
TRY(acosh, any, fv_acosh(t, fv_shift(t, x, 1)))
TRY(atanh, any, fv_atanh(t, x))
TRY(erf, any, fv_erf(t, x))
TRY(relu, any, fv_relu(t, x))
TRY(leaky_relu, any, fv_leaky_relu(t, x, 0.1))
TRY(elu, any, fv_elu(t, x, 2))
TRY(selu, any, fv_selu(t, x))
TRY(gelu, any, fv_gelu(t, x))
TRY(gelu_tanh, any, fv_gelu_tanh(t, x))
TRY(silu, any, fv_silu(t, x))
TRY(mish, any, fv_mish(t, x))
TRY(softplus, any, fv_softplus(t, x))
TRY(sigmoid, any, fv_sigmoid(t, x))
TRY(log_sigmoid, any, fv_log_sigmoid(t, x))
TRY(tanh, any, fv_tanh(t, x))
TRY(hardtanh, any, fv_hardtanh(t, x))
TRY(hardsigmoid, any, fv_hardsigmoid(t, x))
TRY(hardswish, any, fv_hardswish(t, x))
TRY(softsign, any, fv_softsign(t, x))
TRY(glu, halves, fv_glu(t, x, 0))
TRY(swiglu, halves, fv_swiglu(t, x, 0))
TRY(geglu, halves, fv_geglu(t, x, 0))
TRY(affine, axis,
    fv_affine(t, x, x->value.shape.rank == 2 ? b : some(t, FV_SHAPE(2, axis_of(x, -1))), NULL))
static fv_var *call_matmul(fv_tape *t, fv_var *x, fv_var *b)
{
    const fv_matmul_opts opts = {.transpose_b = true};
    return fv_matmul(t, x, b, &opts);
}
TRY(matmul, planes, call_matmul(t, x, b))
TRY(bilinear, axis,
    fv_bilinear(t, x, b, some(t, FV_SHAPE(2, axis_of(x, -1), axis_of(x, -1))), NULL))
TRY(outer, wider, fv_outer(t, x, b))
TRY(dot, axis, fv_dot(t, x, b))
TRY(einsum, axis, fv_einsum(t, "...i,...i->...", x, b))
TRY(sum, axis, fv_sum(t, x, &last))
TRY(mean, axis, fv_mean(t, x, &last))
TRY(prod, axis, fv_prod(t, x, &last))
TRY(max, along, fv_max(t, x, &last))
TRY(min, along, fv_min(t, x, &last))
TRY(variance, axis, fv_variance(t, x, &last, 0))
TRY(std, axis, fv_std(t, x, &last, -1))
TRY(logsumexp, axis, fv_logsumexp(t, x, &last))
TRY(vector_norm, axis, fv_vector_norm(t, x, &last, 2))
TRY(cumsum, axis, fv_cumsum(t, x, -1, NULL))
TRY(cumprod, axis, fv_cumprod(t, x, -1, NULL))
TRY(sort, axis, fv_sort(t, x, -1, NULL))
TRY(topk, axis, fv_topk(t, x, -1, axis_of(x, -1), NULL))
TRY(reshape, any, fv_reshape(t, x, FV_SHAPE(count_of(x))))
static fv_var *call_permute(fv_tape *t, fv_var *x)
{
    static const int turned[][FV_MAX_RANK] = {
        {0}, {0}, {1, 0}, {2, 1, 0}, {3, 2, 1, 0}, {4, 3, 2, 1, 0}, {5, 4, 3, 2, 1, 0}};
    return fv_permute(t, x, turned[x->value.shape.rank]);
}
TRY(permute, any, call_permute(t, x))
TRY(expand, any, fv_expand(t, x, x->value.shape))
TRY(concat, axis, fv_concat(t, 2, (fv_var *[]){x, b}, -1))
TRY(stack, stacked, fv_stack(t, 2, (fv_var *[]){x, b}, -1))
TRY(slice, axis, fv_slice(t, x, -1, (fv_range){0, FV_END, 1}))
TRY(pad, axis, fv_pad(t, x, -1, 1, 2, NULL))
TRY(flip, axis, fv_flip(t, x, -1))
TRY(roll, axis, fv_roll(t, x, -1, 1))
TRY(tile, any, fv_tile(t, x, (size_t[]){2, 1, 2, 1, 1, 2}))
TRY(tril, planes, fv_tril(t, x, 0))
TRY(triu, planes, fv_triu(t, x, 0))
TRY(diagonal, planes, fv_diagonal(t, x, 0))
TRY(gather, table, fv_gather(t, x, labels(t, 3, 0), 3))
TRY(gather_bags, matrix, fv_gather_bags(t, x, labels(t, axis_of(x, 0), 0), rows_of(t, x)))
TRY(scatter_add, matrix, fv_scatter_add(t, x, labels(t, axis_of(x, 0), 1), 2))
TRY(index_select, along, fv_index_select(t, x, -1, labels(t, 2, 0), 2))
TRY(take_along, axis, fv_take_along(t, x, -1, x->value.shape, labels(t, count_of(x), 0)))
TRY(masked_fill, any, fv_masked_fill(t, x, every_other(t, x->value.shape), 2))
TRY(masked_select, matrix,
    fv_masked_select(t, x, every_other(t, FV_SHAPE(axis_of(x, 0))).data, NULL, NULL))
TRY(neighbours, matrix, fv_neighbours(t, x, rows_of(t, x), 1))
TRY(add_positions, matrix, fv_add_positions(t, x, b, rows_of(t, x)))
TRY(segment_mean, matrix, fv_segment_mean(t, x, rows_of(t, x)))
TRY(segment_sum, matrix, fv_segment_sum(t, x, rows_of(t, x)))
TRY(segment_max, matrix, fv_segment_max(t, x, rows_of(t, x)))
TRY(segment_softmax, matrix, fv_segment_softmax(t, x, rows_of(t, x)))
TRY(segment_pick, matrix, fv_segment_pick(t, x, rows_of(t, x), labels(t, 1, 0)))
TRY(segment_expand, matrix, fv_segment_expand(t, x, segments(t, axis_of(x, 0), 2)))
TRY(segment_reverse, matrix, fv_segment_reverse(t, x, rows_of(t, x)))
TRY(segment_concat, matrix, fv_segment_concat(t, x, rows_of(t, x), b, rows_of(t, b), NULL))
TRY(pack, samples, fv_pack(t, x, segments(t, axis_of(x, 0), axis_of(x, 1))))
TRY(unpack, matrix, fv_unpack(t, x, rows_of(t, x), axis_of(x, 0) + 1))
TRY(softmax, axis, fv_softmax(t, x, -1))
TRY(log_softmax, axis, fv_log_softmax(t, x, -1))
TRY(softmax_plus_one, axis, fv_softmax_plus_one(t, x, -1))
TRY(sparsemax, axis, fv_sparsemax(t, x, -1))
static fv_var *call_layer_norm(fv_tape *t, fv_var *x)
{
    const fv_shape d = FV_SHAPE(axis_of(x, -1));
    return fv_layer_norm(t, x, some(t, d), some(t, d), NULL);
}
TRY(layer_norm, axis, call_layer_norm(t, x))
TRY(rms_norm, axis, fv_rms_norm(t, x, some(t, FV_SHAPE(axis_of(x, -1))), NULL))
TRY(group_norm, planes, fv_group_norm(t, x, axis_of(x, 1) == 4 ? 2 : 1, NULL, NULL, NULL))
TRY(instance_norm, planes, fv_instance_norm(t, x, NULL, NULL, NULL))
TRY(l2_normalize, axis, fv_l2_normalize(t, x, -1, NULL))
TRY(batch_norm, batch, fv_batch_norm(t, x, NULL, NULL, NULL))
TRY(cross_entropy, matrix, fv_cross_entropy_sum(t, x, labels(t, axis_of(x, 0), 0), NULL, NULL))
TRY(soft_cross_entropy, matrix, fv_soft_cross_entropy_sum(t, x, b, NULL, NULL))
TRY(nll, matrix, fv_nll_sum(t, x, labels(t, axis_of(x, 0), 0), NULL, NULL))
TRY(bce_with_logits, any, fv_bce_with_logits_sum(t, x, b, NULL, NULL))
TRY(mse, any, fv_mse_sum(t, x, b, NULL))
TRY(l1, any, fv_l1_sum(t, x, fv_scale(t, b, 3), NULL))
TRY(huber, any, fv_huber_sum(t, x, fv_scale(t, b, 3), 10, NULL))
TRY(kl_div, any, fv_kl_div_sum(t, x, b, NULL))
TRY(cosine_embedding, matrix,
    fv_cosine_embedding_sum(t, x, b, labels(t, axis_of(x, 0), 1), 0, NULL))
TRY(hinge, any, fv_hinge_sum(t, x, labels(t, count_of(x), 1), 2, NULL))
TRY(ctc, matrix, fv_ctc_sum(t, x, rows_of(t, x), labels(t, 0, 0), segments(t, 1, 0), NULL, NULL))
static fv_var *call_conv(fv_tape *t, fv_var *x)
{
    const int rank = x->value.shape.rank;
    fv_shape w = {.rank = rank > 1 ? rank : 2, .size = {2, axis_of(x, 1), 1, 1, 1, 1}};
    return fv_conv(t, x, some(t, w), NULL, NULL);
}
TRY(conv, spatial, call_conv(t, x))
static fv_var *call_conv_transpose(fv_tape *t, fv_var *x)
{
    const int rank = x->value.shape.rank;
    fv_shape w = {.rank = rank > 1 ? rank : 2, .size = {axis_of(x, 1), 2, 1, 1, 1, 1}};
    return fv_conv_transpose(t, x, some(t, w), NULL, NULL);
}
TRY(conv_transpose, spatial, call_conv_transpose(t, x))
TRY(max_pool, spatial, fv_max_pool(t, x, &window))
TRY(avg_pool, spatial, fv_avg_pool(t, x, &window))
TRY(adaptive_max_pool, spatial, fv_adaptive_max_pool(t, x, (size_t[]){1, 1, 1}))
TRY(adaptive_avg_pool, spatial, fv_adaptive_avg_pool(t, x, (size_t[]){1, 1, 1}))
TRY(unfold, lines, fv_unfold(t, x, &window))
TRY(fold, samples, fv_fold(t, x, (size_t[]){axis_of(x, 2)}, &line))
TRY(segment_conv, matrix,
    fv_segment_conv(t, x, rows_of(t, x), some(t, FV_SHAPE(2, axis_of(x, 1), 1)), NULL, NULL, NULL))
TRY(segment_conv_transpose, matrix,
    fv_segment_conv_transpose(t, x, rows_of(t, x), some(t, FV_SHAPE(axis_of(x, 1), 2, 1)), NULL,
                              NULL, NULL))
static fv_var *call_segment_max_pool(fv_tape *t, fv_var *x)
{
    const fv_segments *to;
    return fv_segment_max_pool(t, x, rows_of(t, x), &line, &to);
}
TRY(segment_max_pool, matrix, call_segment_max_pool(t, x))
static fv_var *call_segment_avg_pool(fv_tape *t, fv_var *x)
{
    const fv_segments *to;
    return fv_segment_avg_pool(t, x, rows_of(t, x), &line, &to);
}
TRY(segment_avg_pool, matrix, call_segment_avg_pool(t, x))
TRY(dropout, any, fv_dropout(t, x, 0.5))
TRY(dropout_rows, axis, fv_dropout_rows(t, x, 0.5))
TRY(gaussian_noise, any, fv_gaussian_noise(t, x, 0.5))
TRY(gumbel_noise, any, fv_gumbel_noise(t, x, 0.5))
TRY(attention, matrix, fv_attention(t, x, b, b, NULL, NULL))
TRY(self_attention, matrix,
    fv_self_attention(t, x->value.shape.rank == 2 ? fv_concat(t, 3, (fv_var *[]){x, b, x}, 1) : x,
                      NULL, NULL))
TRY(rotary, pairs, fv_rotary(t, x, NULL, NULL))
TRY(linear_attention, matrix, fv_linear_attention(t, x, b, x, NULL, NULL))

/* ---- the test -------------------------------------------------------------------------------- */

static const struct {
    const char *op;
    call_of *call;
    ranks *(*at)(void);
} rows[] = {
#define X(op) {#op, try_##op, ranks_##op},
#include "autograd/ops.def"
#undef X
};

enum { NUMBERS_AT_HAND = 200 * 96 };

/* The same numbers each time, between 0.1 and 0.9 and no two equal. */
static const fv_real *numbers(void)
{
    static fv_real all[NUMBERS_AT_HAND];
    for (size_t i = 0; i < NUMBERS_AT_HAND; i++)
        all[i] = (fv_real)(0.1 + 0.8 * (double)(i * 37 % 101) / 101);
    return all;
}

/* Runs row i on a shape, weighs its result and goes back; x and b are the same value when same. NULL after
 * a refusal. */
static fv_var *run(fv_tape *t, size_t i, fv_shape shape, bool same, fv_var **x, fv_var **b)
{
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    *x = fv_input(t, shape, numbers());
    *b = fv_input(t, shape,
                  numbers()); /* noise depends on the place on the tape: always two inputs */
    *b = same ? *x : *b;
    fv_var *y = rows[i].call(t, *x, *b);
    if (y != NULL)
        cr_expect(fv_backward(t, fv_sum(t, fv_mul(t, y, some(t, y->value.shape)), NULL)), "%s: %s",
                  rows[i].op, fv_tape_error(t)->text);
    return y;
}

static void refuses(const fv_tape *t, size_t i, fv_shape shape)
{
    char text[160];
    const size_t length = strlen(rows[i].op);
    const fv_error *error = fv_tape_error(t);
    cr_expect(strncmp(error->text, rows[i].op, length) == 0 && error->text[length] == ':',
              "%s of %s says: %s", rows[i].op, fv_shape_text(shape, text), error->text);
    cr_expect_eq(error->status, FV_USAGE);
}

#if defined(FV_F64) || defined(FV_COMPLEX)
typedef struct {
    size_t row;
    fv_shape shape;
    bool same;
} checked;

static fv_var *call_checked(fv_sampler *s, void *context)
{
    const checked *c = context;
    fv_var *x = fv_sample_from(s, c->shape, numbers());
    fv_var *b = c->same ? x : fv_sample_from(s, c->shape, numbers());
    return rows[c->row].call(fv_sampler_tape(s), x, b);
}

static void check_gradients(size_t i, fv_shape shape, bool same)
{
    static const int threads[] = {1, 2, 0};
    const fv_gradcheck_opts opts = {.first_only = true, .directions = 1, .threads = threads};
    char text[160];
    checked c = {i, shape, same};
    fv_gradcheck_result result;
    cr_expect(fv_gradcheck(call_checked, &c, &opts, &result), "%s of %s%s: %s", rows[i].op,
              fv_shape_text(shape, text), same ? " with itself" : "", result.error.text);
}
#endif

ParameterizedTestParameters(every_op, every_rank)
{
    static size_t ids[FVI_OP_COUNT];
    for (size_t i = 0; i < FVI_OP_COUNT; i++)
        ids[i] = i;
    return cr_make_param_array(size_t, ids, FVI_OP_COUNT);
}

ParameterizedTest(size_t *id, every_op, every_rank)
{
    const size_t i = *id;
    fv_tape *t = fv_tape_new(NULL), *other = fv_tape_new(NULL);
    for (kind k = FULL; k < KINDS; k++)
        for (int rank = k >= ZERO_FIRST; rank <= FV_MAX_RANK; rank++) {
            const fv_shape shape = shape_of(k, rank);
            const size_t count = fv_shape_count(shape);
            char text[160];
            fv_var *x, *b, *both, *unused;
            fv_var *y = run(t, i, shape, false, &x, &b);
            fv_var *aliased = run(other, i, shape, true, &both, &unused);
            const bool right = strchr((*rows[i].at())[k], '0' + rank) != NULL;
            cr_expect_eq(y != NULL, right, "%s of %s: %s", rows[i].op, fv_shape_text(shape, text),
                         fv_tape_error(t)->text);
            cr_expect_eq(aliased != NULL, right);
            if (y == NULL || aliased == NULL) {
                refuses(t, i, shape);
                continue;
            }
            for (size_t n = 0; count > 0 && n < count_of(y); n++)
                cr_expect(isfinite((double)fv_re(y->value.data[n])) &&
                              memcmp(&y->value.data[n], &aliased->value.data[n], sizeof(fv_real)) ==
                                  0,
                          "%s of %s: number %zu", rows[i].op, fv_shape_text(shape, text), n);
            for (size_t n = 0; n < count; n++) {
                const double apart =
                    (double)fv_re((x->grad ? x->grad[n] : 0) + (b->grad ? b->grad[n] : 0));
                const double together = (double)fv_re(both->grad ? both->grad[n] : 0);
                cr_expect(fabs(apart - together) <= 1e-5 * (1 + fabs(apart)),
                          "%s of %s with itself: gradient %zu is %g, not %g", rows[i].op,
                          fv_shape_text(shape, text), n, together, apart);
            }
#if defined(FV_F64) || defined(FV_COMPLEX)
            if (count > 0) {
                check_gradients(i, shape, false);
                check_gradients(i, shape, true);
            }
#endif
        }
    fv_tape_free(t);
    fv_tape_free(other);
}

/* Large enough for threads: the same bits from 1 and 3, when one value is all inputs, too. */
ParameterizedTestParameters(every_op, threads)
{
    static size_t ids[FVI_OP_COUNT];
    for (size_t i = 0; i < FVI_OP_COUNT; i++)
        ids[i] = i;
    return cr_make_param_array(size_t, ids, FVI_OP_COUNT);
}

ParameterizedTest(size_t *id, every_op, threads)
{
    const fv_shape shapes[] = {FV_SHAPE(1200), FV_SHAPE(200, 96), FV_SHAPE(96, 200),
                               FV_SHAPE(8, 20, 120), FV_SHAPE(4, 8, 20, 30)};
    fv_tape *one = fv_tape_new(&(fv_tape_opts){.threads = 1});
    fv_tape *three = fv_tape_new(&(fv_tape_opts){.threads = 3});
    for (size_t k = 0; k < 2 * sizeof shapes / sizeof *shapes; k++) {
        fv_var *x, *b, *x3, *b3;
        fv_var *y = run(one, *id, shapes[k / 2], k % 2, &x, &b);
        fv_var *y3 = run(three, *id, shapes[k / 2], k % 2, &x3, &b3);
        cr_expect_eq(y == NULL, y3 == NULL);
        if (y == NULL || y3 == NULL)
            continue;
        const fv_real *of_one[] = {y->value.data, x->grad, b->grad};
        const fv_real *of_three[] = {y3->value.data, x3->grad, b3->grad};
        for (int i = 0; i < 3; i++)
            cr_expect(of_one[i] == NULL || memcmp(of_one[i], of_three[i],
                                                  count_of(i ? x : y) * sizeof(fv_real)) == 0,
                      "%s of %zu axes%s: %s differs", rows[*id].op, (size_t)shapes[k / 2].rank,
                      k % 2 ? " with itself" : "", i == 0 ? "the value" : "a gradient");
    }
    fv_tape_free(one);
    fv_tape_free(three);
}
