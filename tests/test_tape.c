/* The tape: modes, gradients that accumulate, tables by touched rows, dropout, empty and single inputs. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

static void expect_real(const fv_real *got, size_t count, const double *wanted, const char *what)
{
    cr_assert_not_null(got, "%s", what);
    for (size_t i = 0; i < count; i++)
        cr_expect((double)fv_re(got[i]) == wanted[i], "%s: %.17g at %zu, expected %.17g", what,
                  (double)fv_re(got[i]), i, wanted[i]);
}

static fv_param *counting_param(fv_params *params, const char *name, fv_shape shape)
{
    fv_param *p = fv_param_new(fv_root(params), name, shape, (fv_init){FV_ZEROS, 0});
    for (size_t i = 0; i < fv_shape_count(shape); i++)
        p->value.data[i] = (fv_real)(double)(i + 1);
    return p;
}

/* ---- gradients ----------------------------------------------------------------------------------- */

Test(tape, backward_twice)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *w = counting_param(params, "w", FV_SHAPE(2, 3)),
             *table = counting_param(params, "table", FV_SHAPE(4, 3));
    const int32_t ids[] = {2, 0, 2};
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *x = fv_gather(t, fv_use(t, table), ids, 3);
    fv_var *y = fv_affine_relu(t, fv_dropout(t, x, 0.5), fv_use(t, w), NULL);
    fv_var *loss = fv_sum(t, fv_mul(t, y, fv_tanh(t, y)), NULL);
    fv_real kept[2][6 + 6];
    for (int round = 0; round < 2; round++) {
        const int32_t *rows;
        const fv_real *grad;
        cr_assert(fv_backward(t, loss));
        cr_assert_eq(fv_touched(t, table, &rows, &grad), 2);
        cr_expect(rows[0] == 2 && rows[1] == 0);
        memcpy(kept[round], fv_param_grad(t, w), 6 * sizeof(fv_real));
        memcpy(kept[round] + 6, grad, 6 * sizeof(fv_real));
    }
    cr_expect_arr_eq(kept[0], kept[1], sizeof kept[0]);
    fv_tape_free(t);
    fv_params_free(params);
}

Test(tape, a_second_loss_starts_from_zero)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {3, 5};
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(2), data), *z = fv_input(t, FV_SHAPE(2), data);
    fv_var *first = fv_sum(t, fv_mul(t, x, z), NULL), *second = fv_sum(t, fv_scale(t, x, 2), NULL);
    cr_assert(fv_backward(t, first));
    expect_real(z->grad, 2, (double[]){3, 5}, "z under the first loss");
    cr_assert(fv_backward(t, second));
    expect_real(x->grad, 2, (double[]){2, 2}, "x under the second loss");
    cr_expect_null(z->grad, "z has no part in the second loss");
    fv_tape_free(t);
}

Test(tape, gradients_accumulate)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {1, -2, 4};
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(3), data), *sum = x;
    for (int i = 0; i < 1000; i++)
        sum = fv_add(t, sum, x);
    fv_var *square = fv_mul(t, x, x), *view = fv_reshape(t, x, FV_SHAPE(3, 1));
    fv_var *parts = fv_concat(t, 3, (fv_var *[]){view, view, view}, -1);
    fv_var *loss = fv_add(t, fv_sum(t, fv_add(t, sum, square), NULL), fv_sum(t, parts, NULL));
    cr_assert(fv_backward(t, loss));
    expect_real(x->grad, 3, (double[]){1001 + 2 + 3, 1001 - 4 + 3, 1001 + 8 + 3}, "x");
    cr_expect(view->grad == x->grad, "the gradient of a view is a view");
    fv_tape_free(t);
}

Test(tape, values_after_the_loss_have_no_gradient)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {1};
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(1), data), *loss = fv_scale(t, x, 3);
    fv_var *later = fv_scale(t, loss, 5);
    cr_assert(fv_backward(t, loss), "[1] is one number");
    cr_expect_null(later->grad);
    expect_real(x->grad, 1, (double[]){3}, "x");
    fv_tape_free(t);
}

/* ---- parameters ------------------------------------------------------------------------------------ */

Test(tape, a_parameter_is_one_value)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    enum { MANY = 300 }; /* more than the table of uses starts with */
    fv_param *p[MANY];
    fv_var *v[MANY], *sum = NULL;
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = counting_param(params, name, FV_SHAPE(2));
    }
    for (int step = 0; step < 2; step++) {
        fv_tape_begin(t, FV_GRAD, 1, (uint64_t)step);
        sum = NULL;
        for (int i = step; i < MANY; i++) {
            v[i] = fv_use(t, p[i]);
            sum = sum ? fv_add(t, sum, v[i]) : v[i];
        }
        for (int i = step; i < MANY; i++)
            cr_expect(fv_use(t, p[i]) == v[i] && strcmp(v[i]->name, p[i]->name) == 0);
        cr_assert(fv_backward(t, fv_sum(t, fv_scale(t, sum, 1 + step), NULL)));
        for (int i = step; i < MANY; i++)
            expect_real(fv_param_grad(t, p[i]), 2, (double[]){1 + step, 1 + step}, p[i]->name);
    }
    cr_expect_null(fv_param_grad(t, p[0]), "not used in the second step");
    fv_tape_free(t);
    fv_params_free(params);
}

Test(tape, touched_rows)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *table = counting_param(params, "table", FV_SHAPE(6, 2));
    const int32_t ids[] = {3, 1, 3}, bag_ids[] = {1, 4, 4, 1, 0};
    const size_t at[] = {0, 4, 4, 5};
    const fv_segments bags = {3, at};
    const fv_real a[] = {1, 2, 3, 4, 5, 6}, b[] = {10, 20, 30, 40, 50, 60};
    for (uint64_t step = 0; step < 3; step++) {
        fv_tape_begin(t, FV_TRAIN, 1, step);
        fv_var *one = fv_gather(t, fv_use(t, table), ids, 3);
        fv_var *other = fv_gather_bags(t, fv_use(t, table), bag_ids, &bags);
        fv_var *unused = fv_gather(t, fv_use(t, table), (int32_t[]){5}, 1);
        expect_real(one->value.data, 6, (double[]){7, 8, 3, 4, 7, 8}, "gather");
        /* (2 row 1 + 2 row 4) / sqrt(4), nothing, row 0 */
        expect_real(other->value.data, 6, (double[]){12, 14, 0, 0, 1, 2}, "bags");
        cr_assert_not_null(unused);
        fv_var *loss = fv_add(t, fv_sum(t, fv_mul(t, one, fv_constant(t, FV_SHAPE(3, 2), a)), NULL),
                              fv_sum(t, fv_mul(t, other, fv_constant(t, FV_SHAPE(3, 2), b)), NULL));
        const int32_t *rows = NULL;
        const fv_real *grad = NULL;
        cr_expect_eq(fv_touched(t, table, &rows, &grad), 0, "before fv_backward");
        cr_assert(fv_backward(t, loss));
        cr_assert_eq(fv_touched(t, table, &rows, &grad), 4);
        cr_expect_arr_eq(rows, ((int32_t[]){3, 1, 4, 0}), 4 * sizeof *rows);
        expect_real(grad, 8, (double[]){1 + 5, 2 + 6, 3 + 10, 4 + 20, 10, 20, 50, 60}, "rows");
        cr_expect_null(fv_param_grad(t, table), "a table has its gradient by rows");
    }
    fv_tape_free(t);
    fv_params_free(params);
}

Test(tape, a_table_also_used_densely)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *table = counting_param(params, "table", FV_SHAPE(3, 2));
    const int32_t ids[] = {2, 0, 2}, bag_ids[] = {1, 1, 1, 1};
    const size_t at[] = {0, 4};
    const fv_segments bags = {1, at};
    for (int order = 0; order < 2; order++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *dense = order == 0 ? fv_sum(t, fv_scale(t, fv_use(t, table), 100), NULL) : NULL;
        fv_var *rows = fv_sum(t, fv_gather(t, fv_use(t, table), ids, 3), NULL);
        fv_var *bag = fv_sum(t, fv_gather_bags(t, fv_use(t, table), bag_ids, &bags), NULL);
        if (order == 1)
            dense = fv_sum(t, fv_scale(t, fv_use(t, table), 100), NULL);
        cr_assert(fv_backward(t, fv_add(t, dense, fv_add(t, rows, bag))));
        const int32_t *numbers;
        const fv_real *grad;
        cr_expect_eq(fv_touched(t, table, &numbers, &grad), 0);
        expect_real(fv_param_grad(t, table), 6, (double[]){101, 101, 102, 102, 102, 102}, "table");
    }
    fv_tape_free(t);
    fv_params_free(params);
}

/* A set may be replaced by another while the tape lives; then addresses may be met again. */
Test(tape, a_table_of_another_size_at_the_same_address)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *table = counting_param(params, "table", FV_SHAPE(2, 1)), kept = *table;
    fv_real large[1000];
    for (size_t i = 0; i < 1000; i++)
        large[i] = (fv_real)(double)i;
    for (int32_t round = 0; round < 3; round++) {
        const int32_t id = round ? 900 + round : 1, *rows;
        const fv_real *grad;
        if (round == 1)
            table->value = (fv_tensor){FV_SHAPE(1000, 1), large};
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        cr_assert(fv_backward(t, fv_sum(t, fv_gather(t, fv_use(t, table), &id, 1), NULL)));
        cr_expect(fv_touched(t, table, &rows, &grad) == 1 && rows[0] == id);
        expect_real(grad, 1, (double[]){1}, "the row");
    }
    *table = kept;
    fv_tape_free(t);
    fv_params_free(params);
}

Test(tape, frozen_parameters)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *w = counting_param(params, "w", FV_SHAPE(2, 2)),
             *table = counting_param(params, "table", FV_SHAPE(3, 2));
    const int32_t ids[] = {2, 2}, *rows;
    const fv_real *grad, data[] = {1, 1, 1, 1};
    table->frozen = true;
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *x = fv_gather(t, fv_use(t, table), ids, 2);
    cr_expect_not(x->needs_grad);
    cr_assert(fv_backward(t, fv_sum(t, fv_affine(t, x, fv_use(t, w), NULL), NULL)));
    cr_expect_eq(fv_touched(t, table, &rows, &grad), 0);
    cr_expect_null(fv_param_grad(t, table));
    expect_real(fv_param_grad(t, w), 4, (double[]){10, 12, 10, 12}, "w");
    w->frozen = true;
    fv_tape_begin(t, FV_TRAIN, 1, 2);
    fv_var *input = fv_input(t, FV_SHAPE(2, 2), data);
    cr_assert(fv_backward(t, fv_sum(t, fv_affine(t, input, fv_use(t, w), NULL), NULL)));
    expect_real(input->grad, 4, (double[]){4, 6, 4, 6}, "through a frozen weight");
    cr_expect_null(fv_param_grad(t, w));
    fv_tape_begin(t, FV_TRAIN, 1, 3);
    cr_expect_not(fv_backward(t, fv_sum(t, fv_use(t, w), NULL)), "nothing to train");
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- modes and dropout -------------------------------------------------------------------------------- */

Test(tape, modes)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_params *params = fv_params_new(1);
    fv_param *w = counting_param(params, "w", FV_SHAPE(2));
    const fv_real data[] = {1, 2};
    const fv_mode modes[] = {FV_EVAL, FV_TRAIN, FV_GRAD};
    for (int i = 0; i < 3; i++) {
        fv_tape_begin(t, modes[i], 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(2), data), *p = fv_use(t, w);
        fv_var *c = fv_constant(t, FV_SHAPE(2), data), *y = fv_add(t, fv_mul(t, x, p), c);
        cr_expect_eq(fv_tape_mode(t), modes[i]);
        cr_expect_eq(x->needs_grad, modes[i] != FV_EVAL);
        cr_expect_eq(p->needs_grad, modes[i] != FV_EVAL);
        cr_expect_eq(y->needs_grad, modes[i] != FV_EVAL);
        cr_expect_not(c->needs_grad);
        cr_expect_eq(fv_dropout(t, x, 0.9) == x, modes[i] != FV_TRAIN);
        cr_expect(fv_dropout(t, x, 0) == x);
    }
    fv_tape_free(t);
    fv_params_free(params);
}

enum { DROPPED = 40001 }; /* odd, so that the last block is cut */

Test(tape, dropout)
{
    fv_tape *t = fv_tape_new(NULL);
    static fv_real ones[DROPPED], first[DROPPED];
    for (size_t i = 0; i < DROPPED; i++)
        ones[i] = 1;
    const double rates[] = {0.1, 0.5, 0.9};
    for (int k = 0; k < 3; k++) {
        const double p = rates[k];
        fv_tape_begin(t, FV_TRAIN, 7, 3);
        fv_var *x = fv_input(t, FV_SHAPE(DROPPED), ones);
        fv_var *a = fv_dropout(t, x, p), *b = fv_dropout(t, x, p);
        size_t zeros = 0, both = 0;
        for (size_t i = 0; i < DROPPED; i++) {
            const fv_real v = a->value.data[i];
            cr_assert(v == 0 || v == (fv_real)(1 / (1 - p)), "scaled by 1 / (1 - p)");
            zeros += v == 0;
            both += v == 0 && b->value.data[i] == 0;
        }
        /* five standard deviations */
        cr_expect_float_eq((double)zeros / DROPPED, p, 5 * sqrt(p * (1 - p) / DROPPED));
        cr_expect_float_eq((double)both / DROPPED, p * p, 5 * sqrt(p * p * (1 - p * p) / DROPPED),
                           "places are independent");
        cr_assert(fv_backward(t, fv_sum(t, a, NULL)));
        cr_expect_arr_eq(x->grad, a->value.data, sizeof ones, "backward drops the same numbers");
        memcpy(first, a->value.data, sizeof first);
    }
    for (uint64_t changed = 0; changed < 3; changed++) {
        fv_tape_begin(t, FV_TRAIN, 7 + (changed == 1), 3 + (changed == 2));
        fv_var *again = fv_dropout(t, fv_input(t, FV_SHAPE(DROPPED), ones), 0.9);
        bool same = memcmp(first, again->value.data, sizeof first) == 0;
        cr_expect_eq(same, changed == 0, "a function of (seed, step, place)");
    }
    fv_tape_free(t);
}

Test(tape, dropout_of_attention_weights)
{
    enum { ROWS = 60 };
    fv_tape *t = fv_tape_new(NULL);
    static fv_real zeros[ROWS], hot[ROWS * ROWS], y[4][ROWS * ROWS];
    const fv_attention_opts drop = {.dropout = 0.25}, none = {0};
    for (size_t i = 0; i < ROWS; i++)
        hot[i * ROWS + i] = ROWS; /* so that y shows the weights, times ROWS */
    for (int run = 0; run < 4; run++) {
        fv_tape_begin(t, run == 3 ? FV_GRAD : FV_TRAIN, 1, run == 1);
        fv_var *q = fv_constant(t, FV_SHAPE(ROWS, 1), zeros);
        fv_var *v = fv_input(t, FV_SHAPE(ROWS, ROWS), hot);
        fv_var *out = fv_attention(t, q, q, v, NULL, &drop);
        cr_assert_not_null(out, "%s", fv_tape_error(t)->text);
        memcpy(y[run], out->value.data, sizeof y[run]);
        if (run != 0)
            continue;
        cr_assert(fv_backward(t, fv_sum(t, out, NULL)));
        size_t dropped = 0;
        for (size_t j = 0; j < ROWS; j++) {
            double column = 0;
            for (size_t i = 0; i < ROWS; i++) {
                const double w = (double)fv_re(y[0][i * ROWS + j]);
                dropped += w == 0;
                column += w / ROWS;
                cr_expect(w == 0 || fabs(w - 1 / 0.75) < 1e-5, "%g", w);
            }
            cr_expect_float_eq((double)fv_re(v->grad[j * ROWS]), column, 1e-5,
                               "backward drops the same weights");
        }
        cr_expect_float_eq((double)dropped / (ROWS * ROWS), 0.25, 0.04);
    }
    cr_expect_arr_neq(y[0], y[1], sizeof y[0], "another step drops others");
    cr_expect_arr_eq(y[0], y[2], sizeof y[0]);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *q = fv_constant(t, FV_SHAPE(ROWS, 1), zeros);
    fv_var *out = fv_attention(t, q, q, fv_constant(t, FV_SHAPE(ROWS, ROWS), hot), NULL, &none);
    cr_expect_arr_eq(y[3], out->value.data, sizeof y[3], "off without FV_TRAIN");
    fv_tape_free(t);
}

/* A NaN must reach the loss, or nobody hears of it. */
Test(tape, nan_passes_every_activation)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {(fv_real)NAN}, one[] = {1};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(1, 1), data), *w = fv_input(t, FV_SHAPE(1, 1), one);
    cr_expect(isnan((double)fv_re(fv_relu(t, x)->value.data[0])), "relu");
    cr_expect(isnan((double)fv_re(fv_gelu(t, x)->value.data[0])), "gelu");
    cr_expect(isnan((double)fv_re(fv_tanh(t, x)->value.data[0])), "tanh");
    cr_expect(isnan((double)fv_re(fv_affine_relu(t, x, w, NULL)->value.data[0])), "affine_relu");
    fv_tape_free(t);
}

/* ---- the tape as a list ---------------------------------------------------------------------------------- */

Test(tape, find)
{
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {1, 2};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(2), data), *a = fv_scale(t, x, 2), *b = fv_scale(t, a, 2);
    cr_expect(fv_tape_find(t, "scale", 0) == a);
    cr_expect(fv_tape_find(t, "scale", 1) == b);
    cr_expect_null(fv_tape_find(t, "scale", 2));
    cr_expect_null(fv_tape_find(t, "scale", SIZE_MAX));
    cr_expect_null(fv_tape_find(t, "mul", 0));
    fv_tape_begin(t, FV_EVAL, 1, 2);
    cr_expect_null(fv_tape_find(t, "scale", 0));
    fv_tape_free(t);
}

/* ---- memory ---------------------------------------------------------------------------------------- */

/* Bytes that fv_backward takes for the gradients of 20 values in a row; the input's must be right. */
static size_t gradients_of_a_chain(fv_mode mode)
{
    enum { COUNT = 1024, LENGTH = 20 };
    static fv_real data[COUNT];
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, mode, 1, 1);
    fv_var *x = fv_input(t, FV_SHAPE(COUNT), data), *y = x;
    for (int i = 0; i < LENGTH; i++)
        y = fv_scale(t, fv_reshape(t, y, FV_SHAPE(COUNT / 2, 2)), 2);
    fv_var *loss = fv_sum(t, y, NULL);
    const size_t before = fv_tape_bytes(t, NULL);
    cr_assert(fv_backward(t, loss));
    for (size_t i = 0; i < COUNT; i++)
        cr_assert_eq(fv_re(x->grad[i]), 1 << LENGTH);
    cr_expect_eq(y->grad == NULL, mode == FV_TRAIN);
    cr_expect_eq(y->in[0]->grad == NULL, mode == FV_TRAIN);
    const size_t taken = (fv_tape_bytes(t, NULL) - before) / (COUNT * sizeof(fv_real));
    fv_tape_free(t);
    return taken;
}

Test(tape, training_gives_back_gradients_that_are_used_up)
{
    cr_expect_eq(gradients_of_a_chain(FV_GRAD), 21, "one of the input and of each value");
    cr_expect_eq(gradients_of_a_chain(FV_TRAIN), 2, "one of the value before and of the one after");
}

/* A tape that was made with a name of no instruction set keeps that error; a known one never fails. */
Test(tape, instruction_sets)
{
    const char *const known[] = {"base", "avx2", "avx512"}, *const unknown[] = {"", "sse9", "AVX2"};
    for (int i = 0; i < 3; i++) {
        char text[100];
        fv_tape *t = fv_tape_new(&(fv_tape_opts){.isa = known[i]});
        fv_tape_begin(t, FV_EVAL, 1, 1);
        cr_expect(fv_tape_ok(t), "%s", fv_tape_error(t)->text);
        fv_tape_free(t);
        t = fv_tape_new(&(fv_tape_opts){.isa = unknown[i]});
        snprintf(text, sizeof text,
                 "tape: no instruction set \"%s\", expected base, avx2 or avx512", unknown[i]);
        for (int round = 0; round < 3; round++) {
            cr_expect_str_eq(fv_tape_error(t)->text, text);
            cr_expect_eq(fv_tape_error(t)->status, FV_USAGE);
            cr_expect_null(fv_input(t, FV_SHAPE(1), &(fv_real){1}));
            fv_tape_begin(t, FV_EVAL, 1, 1);
        }
        fv_tape_free(t);
    }
}
