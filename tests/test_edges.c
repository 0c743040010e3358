/* Ops at their edges: no rows, one number, rank 0, segments that are empty. */
#include <criterion/criterion.h>
#include <math.h>

#include "autograd/internal.h"

static const fv_real three[] = {3, 4, 5, 6, 7, 8};

static double at(const fv_var *x, size_t i)
{
    cr_assert_not_null(x);
    return (double)fv_re(x->value.data[i]);
}

/* ---- one number ------------------------------------------------------------------------------------ */

Test(edges, rank_zero)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *x = fv_input(t, FV_SCALAR, three), *one = fv_reshape(t, x, FV_SHAPE(1, 1, 1, 1, 1, 1));
    cr_expect_eq(at(fv_add(t, x, x), 0), 6);
    cr_expect_eq(at(fv_mul(t, x, x), 0), 9);
    cr_expect_eq(at(fv_scale(t, x, -2), 0), -6);
    cr_expect_eq(at(fv_sum(t, x, NULL), 0), 3);
    cr_expect_eq(at(fv_relu(t, x), 0), 3);
    cr_expect_eq(at(fv_relu(t, fv_scale(t, x, -1)), 0), 0);
    cr_expect_float_eq(at(fv_tanh(t, x), 0), tanh(3), 1e-6);
    cr_expect_float_eq(at(fv_gelu(t, x), 0), 3 * 0.5 * (1 + erf(3 / sqrt(2))), 1e-6);
    cr_expect_eq(one->value.shape.rank, 6);
    const double dropped = at(fv_dropout(t, x, 0.5), 0);
    cr_expect(dropped == 0 || dropped == 6);
    const fv_tensor p = fv_softmax_rows(t, x);
    cr_assert_not_null(p.data);
    cr_expect_eq(fv_re(p.data[0]), 1);
    int32_t label = -1;
    fv_argmax_rows(x, &label);
    cr_expect_eq(label, 0);
    cr_assert(fv_backward(t, fv_add(t, fv_mul(t, x, x), fv_sum(t, one, NULL))));
    cr_expect_eq(fv_re(x->grad[0]), 2 * 3 + 1);
    fv_tape_free(t);
}

Test(edges, one_by_one)
{
    static const size_t end[] = {0, 1};
    static const fv_segments whole = {1, end};
    static const int32_t zero[] = {0};
    const fv_mask mask = {.queries = &whole, .causal = true};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(1, 1), three), *w = fv_input(t, FV_SHAPE(1), three + 1);
    cr_expect_eq(at(fv_affine(t, x, x, w), 0), 13);
    cr_expect_eq(at(fv_matmul(t, x, x, NULL), 0), 9);
    cr_expect_eq(at(fv_concat(t, 1, &x, -1), 0), 3);
    cr_expect_eq(at(fv_gather(t, x, zero, 1), 0), 3);
    cr_expect_eq(at(fv_gather_bags(t, x, zero, &whole), 0), 3);
    cr_expect_eq(at(fv_add_positions(t, x, x, &whole), 0), 6);
    cr_expect_eq(at(fv_segment_mean(t, x, &whole), 0), 3);
    cr_expect_eq(at(fv_segment_sum(t, x, &whole), 0), 3);
    cr_expect_eq(at(fv_segment_max(t, x, &whole), 0), 3);
    cr_expect_eq(at(fv_attention(t, x, x, x, &mask, NULL), 0), 3);
    cr_expect_eq(at(fv_cross_entropy_sum(t, x, zero, NULL, NULL), 0), 0, "one class is certain");
    const fv_var *wide = fv_neighbours(t, x, &whole, 2);
    cr_assert(fv_shape_equal(wide->value.shape, FV_SHAPE(1, 5)));
    for (size_t i = 0; i < 5; i++)
        cr_expect_eq(at(wide, i), i == 2 ? 3 : 0);
    cr_expect_eq(at(fv_neighbours(t, x, &whole, 0), 0), 3);
    fv_var *norm = fv_layer_norm(t, x, w, w, NULL);
    cr_expect_eq(at(norm, 0), 4, "a single number is its own mean");
    cr_assert(fv_backward(t, fv_sum(t, norm, NULL)));
    cr_expect_eq(fv_re(x->grad[0]), 0);
    cr_expect_eq(fv_re(w->grad[0]), 1);
    fv_tape_free(t);
}

/* ---- no rows ----------------------------------------------------------------------------------------- */

static const size_t nowhere[] = {0, 0, 0, 0};
static const fv_segments empties = {3, nowhere}, none = {0, nowhere};

/* Every op on a batch of no rows, cut into no segments or into empty ones, with gradients. */
Test(edges, no_rows)
{
    static const int32_t unused[1] = {7};
    for (int cut = 0; cut < 2; cut++)
        for (int threads = 1; threads <= 2; threads++) {
            const fv_segments *segments = cut ? &empties : &none;
            const fv_mask mask = {.queries = segments};
            fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
            fv_tape_begin(t, FV_TRAIN, 1, 1);
            fv_var *table = fv_input(t, FV_SHAPE(3, 2), three),
                   *w = fv_input(t, FV_SHAPE(2, 2), three), *b = fv_input(t, FV_SHAPE(2), three),
                   *wide = fv_input(t, FV_SHAPE(2, 6), three);
            fv_var *x = fv_gather(t, table, NULL, 0);
            x = fv_add(t, x, fv_gather_bags(t, table, NULL, &none));
            x = fv_affine(t, fv_neighbours(t, x, segments, 1), wide, b);
            x = fv_add_positions(t, fv_add(t, x, b), table, segments);
            x = fv_layer_norm(t, fv_dropout(t, x, 0.5), b, b, NULL);
            x = fv_mul(t, fv_gelu(t, fv_affine_relu(t, x, w, b)), fv_tanh(t, fv_relu(t, x)));
            x = fv_matmul(t, fv_scale(t, x, 3), w, NULL);
            fv_var *qkv = fv_concat(t, 3, (fv_var *[]){x, x, x}, -1);
            const fv_attention_opts two = {.heads = 2,
                                           .relative = fv_input(t, FV_SHAPE(2, 3), three)};
            x = fv_add(t, fv_self_attention(t, qkv, &mask, &two),
                       fv_attention(t, x, x, x, cut ? &mask : NULL, &two));
            cr_assert_not_null(x, "%s", fv_tape_error(t)->text);
            cr_assert(fv_shape_equal(x->value.shape, FV_SHAPE(0, 2)));
            fv_var *pooled =
                fv_add(t, fv_segment_mean(t, x, segments),
                       fv_add(t, fv_segment_sum(t, x, segments), fv_segment_max(t, x, segments)));
            cr_assert_not_null(pooled, "%s", fv_tape_error(t)->text);
            for (size_t i = 0; i < fvi_count(pooled); i++)
                cr_expect_eq(at(pooled, i), 0, "an empty segment gives zeros");
            double counted = 9;
            fv_var *loss = fv_cross_entropy_sum(t, x, unused, NULL, &counted);
            cr_expect_eq(at(loss, 0), 0);
            cr_expect_eq(counted, 0);
            loss = fv_add(t, loss, fv_add(t, fv_sum(t, x, NULL), fv_sum(t, pooled, NULL)));
            cr_assert(fv_backward(t, loss), "%s", fv_tape_error(t)->text);
            for (size_t i = 0; i < 4; i++)
                cr_expect(fv_re(w->grad[i]) == 0 && fv_re(table->grad[i]) == 0 &&
                          fv_re(wide->grad[i]) == 0 && fv_re(b->grad[i % 2]) == 0);
            cr_expect_eq(
                fv_shape_count(fv_attention_weights(t, fv_tape_find(t, "attention", 0), 0).shape),
                0);
            fv_tape_free(t);
        }
}

/* A table parameter that only empty bags used has no touched rows, and is no error. */
Test(edges, empty_bags_touch_nothing)
{
    fv_params *params = fv_params_new(1);
    fv_param *table = fv_param_new(fv_root(params), "table", FV_SHAPE(3, 2), (fv_init){FV_ONES, 1});
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *y = fv_gather_bags(t, fv_use(t, table), NULL, &empties);
    const int32_t *rows;
    const fv_real *grad;
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)), "%s", fv_tape_error(t)->text);
    cr_expect_eq(fv_touched(t, table, &rows, &grad), 0);
    for (size_t i = 0; i < 6; i++)
        cr_expect_eq(at(y, i), 0);
    fv_tape_free(t);
    fv_params_free(params);
}

/* Queries that see no key: zero output, zero weights, zero gradient. */
Test(edges, queries_without_keys)
{
    static const size_t query_at[] = {0, 2, 3}, key_at[] = {0, 0, 2};
    static const fv_segments queries = {2, query_at}, keys = {2, key_at};
    const fv_mask mask = {.queries = &queries, .keys = &keys};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *q = fv_input(t, FV_SHAPE(3, 2), three), *k = fv_input(t, FV_SHAPE(2, 2), three),
           *v = fv_input(t, FV_SHAPE(2, 1), three);
    fv_var *y = fv_attention(t, q, k, v, &mask, NULL);
    cr_expect(at(y, 0) == 0 && at(y, 1) == 0 && at(y, 2) > 3);
    cr_expect_eq(fv_shape_count(fv_attention_weights(t, y, 0).shape), 0);
    const fv_tensor w = fv_attention_weights(t, y, 1);
    cr_assert(fv_shape_equal(w.shape, FV_SHAPE(1, 1, 2)));
    cr_expect_float_eq((double)fv_re(w.data[0] + w.data[1]), 1, 1e-5);
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
    for (size_t i = 0; i < 4; i++)
        cr_expect_eq(fv_re(q->grad[i]), 0);
    cr_expect_neq(fv_re(q->grad[4]), 0);
    fv_tape_free(t);
}

/* Empty segments among full ones change nothing. */
Test(edges, empty_segments_between)
{
    static const size_t with_at[] = {0, 0, 2, 2, 2, 3, 3}, without_at[] = {0, 2, 3};
    static const fv_segments with = {6, with_at}, without = {2, without_at};
    static const size_t kept[] = {1, 4};
    fv_tape *t = fv_tape_new(NULL);
    for (int which = 0; which < 3; which++) {
        fv_var *(*const pools[])(fv_tape *, fv_var *, const fv_segments *) = {
            fv_segment_mean, fv_segment_sum, fv_segment_max};
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(3, 2), three);
        const fv_var *a = pools[which](t, x, &with), *b = pools[which](t, x, &without);
        for (size_t s = 0, seen = 0; s < 6; s++)
            for (size_t c = 0; c < 2; c++) {
                const bool full = seen < 2 && s == kept[seen];
                cr_expect_eq(at(a, 2 * s + c), full ? at(b, 2 * seen + c) : 0);
                seen += full && c == 1;
            }
    }
    const fv_mask a = {.queries = &with, .causal = true}, b = {.queries = &without, .causal = true};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(3, 2), three);
    const fv_var *y = fv_attention(t, x, x, x, &a, NULL), *z = fv_attention(t, x, x, x, &b, NULL);
    const fv_var *n = fv_neighbours(t, x, &with, 1), *m = fv_neighbours(t, x, &without, 1);
    cr_expect_arr_eq(y->value.data, z->value.data, 6 * sizeof(fv_real));
    cr_expect_arr_eq(n->value.data, m->value.data, 18 * sizeof(fv_real));
    fv_tape_free(t);
}

/* The first of equals wins, forward and backward, and for labels. */
Test(edges, ties)
{
    static const fv_real equal[] = {2, 2, 2, 2, 1, 2};
    static const size_t end[] = {0, 3};
    static const fv_segments whole = {1, end};
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(3, 2), equal);
    cr_assert(fv_backward(t, fv_sum(t, fv_segment_max(t, x, &whole), NULL)));
    for (size_t i = 0; i < 6; i++)
        cr_expect_eq(fv_re(x->grad[i]), i < 2, "at %zu", i);
    int32_t labels[3];
    fv_argmax_rows(x, labels);
    cr_expect(labels[0] == 0 && labels[1] == 0 && labels[2] == 1);
    fv_tape_free(t);
}
