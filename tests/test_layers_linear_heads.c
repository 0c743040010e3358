/* Linear attention: its definition as a sum over earlier rows, its state step by step, gradients. */
#include "tests/layers.h"

enum { ROWS = 9, D = 6, HEADS = 2, WIDTH = 3 };
static const size_t offsets[] = {0, 4, 5, 9};
static const fv_segments segments = {3, offsets};

static double phi(double x)
{
    return x > 0 ? x + 1 : exp(x);
}

/* Row r of the layer's input maps, without biases. */
static double projected(const fv_linear_heads *l, const fv_real *x, size_t r, size_t column)
{
    double sum = 0;
    for (size_t c = 0; c < D; c++)
        sum += (double)fv_re(l->in_proj_weight->value.data[column * D + c] * x[r * D + c]);
    return sum;
}

Test(layers_linear_heads, as_a_sum_over_earlier_rows)
{
    fv_params *params = fv_params_new(1);
    const fv_linear_heads_opts opts = {.kv_heads = 1, .no_bias = true};
    const fv_linear_heads layer = fv_linear_heads_init(fv_root(params), D, HEADS, &opts);
    fill_times(params, 3);
    for (size_t i = 0; i < D * D; i++) /* W_O as it were not there */
        layer.out_proj.weight->value.data[i] = i / D == i % D;
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
    fv_var *y = fv_linear_heads_forward(t, &layer, x, &segments);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    double wanted[ROWS * D];
    for (size_t s = 0; s < 3; s++)
        for (size_t i = offsets[s]; i < offsets[s + 1]; i++)
            for (size_t h = 0; h < HEADS; h++) {
                double all = 0, out[WIDTH] = {0};
                for (size_t j = offsets[s]; j <= i; j++) {
                    double w = 0;
                    for (size_t c = 0; c < WIDTH; c++)
                        w += phi(projected(&layer, x->value.data, i, h * WIDTH + c)) *
                             phi(projected(&layer, x->value.data, j, D + c));
                    all += w;
                    for (size_t c = 0; c < WIDTH; c++)
                        out[c] += w * projected(&layer, x->value.data, j, D + WIDTH + c);
                }
                for (size_t c = 0; c < WIDTH; c++)
                    wanted[i * D + h * WIDTH + c] = out[c] / all;
            }
    expect_close("y", ROWS * D, y->value.data, wanted);
    fv_tape_free(t);
    fv_params_free(params);
}

/* Two samples of 150 and 80 rows, a row at a time and in pieces: the bits of the whole. */
Test(layers_linear_heads, steps_have_the_bits_of_the_whole)
{
    enum { ALL = 230 };
    static const size_t at[] = {0, 150, 230}, pieces[] = {1, 90, 3, 64};
    const fv_segments two = {2, at};
    fv_params *params = fv_params_new(1);
    const fv_linear_heads layer = fv_linear_heads_init(fv_root(params), D, HEADS, NULL);
    fv_tape *t = fv_tape_new(NULL), *step = fv_tape_new(&(fv_tape_opts){.threads = 2});
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(ALL, D), 3);
    fv_var *whole = fv_linear_heads_forward(t, &layer, x, &two);
    cr_assert_not_null(whole, "%s", fv_tape_error(t)->text);
    for (int way = 0; way < 2; way++) {
        const size_t numbers = fv_linear_heads_numbers(&layer, 2);
        cr_assert_eq(numbers, 2 * HEADS * WIDTH * (WIDTH + 1));
        fv_real *state = fv_tape_alloc(t, numbers, sizeof *state);
        size_t done[2] = {0, 0};
        for (size_t n = 0; done[0] < 150 || done[1] < 80; n++) {
            size_t cut[] = {0, 0, 0};
            const fv_segments next = {2, cut};
            fv_real rows[ALL * D];
            for (size_t s = 0; s < 2; s++) {
                const size_t left = at[s + 1] - at[s] - done[s],
                             want = way ? pieces[(n + s) % 4] : 1, k = want < left ? want : left;
                memcpy(rows + cut[s] * D, x->value.data + (at[s] + done[s]) * D,
                       k * D * sizeof *rows);
                cut[s + 1] = cut[s] + k;
            }
            fv_tape_begin(step, FV_EVAL, 1, n);
            fv_var *y = fv_linear_heads_step(
                step, &layer, fv_input(step, FV_SHAPE(cut[2], D), rows), &next, state);
            cr_assert_not_null(y, "%s", fv_tape_error(step)->text);
            for (size_t s = 0; s < 2; s++) {
                const size_t k = cut[s + 1] - cut[s];
                cr_expect_arr_eq(y->value.data + cut[s] * D,
                                 whole->value.data + (at[s] + done[s]) * D, k * D * sizeof *rows,
                                 "way %d, sample %zu, row %zu", way, s, done[s]);
                done[s] += k;
            }
        }
    }
    fv_tape_free(step);
    fv_tape_free(t);
    fv_params_free(params);
}

Test(layers_linear_heads, refuses)
{
    const struct {
        size_t d, heads, kv_heads;
    } wrong[] = {{6, 0, 0}, {6, 4, 0}, {6, 3, 2}};
    for (size_t i = 0; i < 3; i++) {
        fv_params *params = fv_params_new(1);
        const fv_linear_heads_opts opts = {.kv_heads = wrong[i].kv_heads};
        cr_expect_eq(fv_linear_heads_init(fv_root(params), wrong[i].d, wrong[i].heads, &opts).heads,
                     0);
        cr_expect_not_null(strstr(fv_params_error(params)->text, "they must divide each other"));
        fv_params_free(params);
    }
    cr_expect_eq(fv_linear_heads_init(fv_root(NULL), 6, 2, NULL).heads, 0);
    const fv_linear_heads none = {0};
    fv_real state[1];
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *x = input_numbers(t, FV_SHAPE(ROWS, D), 3);
    cr_expect_null(fv_linear_heads_forward(t, &none, x, NULL));
    cr_expect_str_eq(fv_tape_error(t)->text, "use: no parameter (the set's error says why)");
    fv_tape_begin(t, FV_GRAD, 1, 1);
    cr_expect_null(fv_linear_heads_step(t, &none, x, NULL, state));
    cr_expect_str_eq(fv_tape_error(t)->text,
                     "linear_heads_step: a state has no gradients: in FV_EVAL only");
    fv_tape_begin(t, FV_EVAL, 1, 1);
    cr_expect_null(fv_linear_heads_step(t, &none, x, NULL, state));
    cr_expect_str_eq(fv_tape_error(t)->text, "use: no parameter (the set's error says why)");
    fv_tape_free(t);
}

#if defined(FV_F64) || defined(FV_COMPLEX)
static fv_var *run(fv_tape *t, void *context)
{
    static fv_real x[ROWS * D];
    for (size_t i = 0; i < ROWS * D; i++)
        x[i] = number(i, 3);
    return fv_linear_heads_forward(t, context, fv_constant(t, FV_SHAPE(ROWS, D), x), &segments);
}

Test(layers_linear_heads, gradients)
{
    for (size_t kv_heads = 1; kv_heads <= 2; kv_heads++) {
        fv_gradcheck_result result;
        fv_params *params = fv_params_new(1);
        const fv_linear_heads_opts opts = {.kv_heads = kv_heads};
        fv_linear_heads layer = fv_linear_heads_init(fv_root(params), D, HEADS, &opts);
        fill_times(params, 3);
        cr_expect(fv_gradcheck_params(run, params, &layer, NULL, &result), "%s", result.error.text);
        fv_params_free(params);
    }
}
#endif
