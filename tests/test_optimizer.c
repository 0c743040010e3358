/* Optimisers: PyTorch's numbers, sums over tapes, options, errors, derivatives. */
#include "optimizer.h"

#include "data/optimizers.h"

/* Weight [3, 4] and bias [5], the parameters of the fixtures. */
static fv_params *small_set(void)
{
    fv_params *params = fv_params_new(1);
    noisy_param(params, "weight", FV_SHAPE(3, 4), 0);
    noisy_param(params, "bias", FV_SHAPE(5), 12)->no_decay = true;
    return params;
}

static void small_gradients(fv_tape *t, const fv_params *params, uint64_t step)
{
    fv_tape_begin(t, FV_TRAIN, 1, step);
    fv_var *loss = pull_noise(t, NULL, fv_params_at(params, 0), step, 0);
    cr_assert(fv_backward(t, pull_noise(t, loss, fv_params_at(params, 1), step, 12)));
}

/* ---- values ---------------------------------------------------------------------------------- */

enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

static void expect_numbers(const fv_params *params, const double *right, const char *what)
{
    for (size_t p = 0, i = 0; p < fv_params_count(params); p++) {
        const fv_tensor x = fv_params_at(params, p)->value;
        for (size_t k = 0; k < fv_shape_count(x.shape); k++, i++)
            cr_expect_float_eq((double)fv_re(x.data[k]), right[i], tolerance,
                               "%s: %zu is %.17g, not %.17g", what, i, (double)fv_re(x.data[k]),
                               right[i]);
    }
}

Test(optimizer, agrees_with_pytorch)
{
    for (int f = 0; f < FIXTURES; f++) {
        fv_params *params = small_set();
        fv_tape *t = fv_tape_new(NULL);
        fv_optimizer *o = fv_optimizer_new(params, &fixtures[f].opts, NULL);
        int kept = 0;
        char what[40];
        for (uint64_t step = 1; step <= FIXTURE_STEPS; step++) {
            double norm;
            small_gradients(t, params, step);
            cr_assert(fv_optimizer_step(o, &t, 1, fixture_scale, rate(step), fixtures[f].clip, 1,
                                        &norm, NULL));
            if (step == (uint64_t)fixture_kept[kept]) {
                snprintf(what, sizeof what, "fixture %d, step %d", f, (int)step);
                cr_expect_float_eq(norm, fixtures[f].norm[kept], tolerance);
                expect_numbers(params, fixtures[f].after[kept++], what);
            }
        }
        cr_expect_eq(kept, 3);
        cr_expect_eq(fv_optimizer_steps(o), FIXTURE_STEPS);
        fv_optimizer_free(o);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

Test(optimizer, touched_rows_agree_with_sparse_adam)
{
    fv_params *params = fv_params_new(1);
    fv_param *table = noisy_param(params, "table", FV_SHAPE(6, 2), 0);
    table->touched_rows = true;
    fv_tape *t = fv_tape_new(NULL);
    fv_optimizer *o = fv_optimizer_new(params, &(fv_optimizer_opts){.kind = FV_ADAM}, NULL);
    int kept = 0;
    for (uint64_t step = 1; step <= FIXTURE_STEPS; step++) {
        int32_t rows[6];
        fv_real g[12];
        size_t count = 0;
        for (int32_t row = 5; row >= 0; row--)
            if (noise(step, 100 + (uint64_t)row) > 0) {
                for (uint64_t c = 0; c < 2; c++)
                    g[2 * count + c] = (fv_real)noise(step, 2 * (uint64_t)row + c);
                rows[count++] = row;
            }
        touch(t, table, step, rows, count, g);
        cr_assert(fv_optimizer_step(o, &t, 1, 1, rate(step), 0, 1, NULL, NULL));
        if (step == (uint64_t)fixture_kept[kept])
            expect_numbers(params, sparse_adam[kept++], "SparseAdam");
    }
    fv_optimizer_free(o);
    fv_tape_free(t);
    fv_params_free(params);
}

/* The binary tree in its plainest form; absent tapes add nothing. */
static bool tree(const fv_real *g, const bool *present, int first, int span, int count,
                 fv_real *sum)
{
    fv_real left = 0, right = 0;
    if (first >= count)
        return false;
    if (span == 1) {
        *sum = g[first];
        return present[first];
    }
    bool has_left = tree(g, present, first, span / 2, count, &left);
    bool has_right = tree(g, present, first + span / 2, span / 2, count, &right);
    *sum = has_left && has_right ? left + right : has_left ? left : right;
    return has_left || has_right;
}

enum { MOST_TAPES = 9 };

/* Every number of tapes, each subset of them with a gradient: the sum has the tree's bits, by rows or dense. */
Test(optimizer, tapes_are_summed_in_a_binary_tree)
{
    for (int dense = 0; dense < 2; dense++)
        for (int count = 1; count <= MOST_TAPES; count++)
            for (int subset = 1; subset < 1 << count; subset += count < 6 ? 1 : 7) {
                fv_params *params = fv_params_new(1);
                fv_param *p =
                    fv_param_new(fv_root(params), "p", FV_SHAPE(2, 1), (fv_init){FV_ZEROS, 0});
                const int32_t row = 1;
                fv_real g[MOST_TAPES], pair[MOST_TAPES][2], sum;
                bool present[MOST_TAPES];
                fv_tape *t[MOST_TAPES];
                for (int i = 0; i < count; i++) {
                    g[i] = (fv_real)(noise((uint64_t)subset, (uint64_t)i) * pow(10, i % 3) / 3);
                    pair[i][0] = 0;
                    pair[i][1] = g[i];
                    present[i] = subset >> i & 1;
                    t[i] = fv_tape_new(NULL);
                    fv_tape_begin(t[i], FV_TRAIN, 1, 1);
                    if (present[i] && dense)
                        cr_assert(fv_backward(t[i], pull(t[i], NULL, fv_use(t[i], p), pair[i])));
                    else if (present[i])
                        touch(t[i], p, 1, &row, 1, &g[i]);
                }
                cr_assert(tree(g, present, 0, 16, count, &sum));
                fv_optimizer *o =
                    fv_optimizer_new(params, &(fv_optimizer_opts){.kind = FV_SGD}, NULL);
                double norm;
                cr_assert(fv_optimizer_step(o, t, count, 1, 1, 0, 1, &norm, NULL));
                cr_assert_eq(p->value.data[0], 0);
                cr_assert_eq(p->value.data[1], -sum, "%d tapes, subset %x", count, subset);
                cr_assert_float_eq(norm, fabs((double)fv_re(sum)), 1e-14);
                for (int i = 0; i < count; i++)
                    fv_tape_free(t[i]);
                fv_optimizer_free(o);
                fv_params_free(params);
            }
}

Test(optimizer, touched_rows_leave_the_others_alone)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fv_params *params = fv_params_new(1);
        fv_param *table = noisy_param(params, "table", FV_SHAPE(4, 3), 0);
        fv_real before[12], g[3] = {1, 2, 3};
        memcpy(before, table->value.data, sizeof before);
        table->touched_rows = true;
        fv_tape *t = fv_tape_new(NULL);
        fv_optimizer *o = fv_optimizer_new(params, &kinds[kind], NULL);
        for (uint64_t step = 1; step <= 3; step++) {
            touch(t, table, step, &(int32_t){2}, 1, g);
            cr_assert(fv_optimizer_step(o, &t, 1, 1, 0.1, 0, 1, NULL, NULL));
        }
        for (size_t i = 0; i < 12; i++) {
            bool touched = i / 3 == 2;
            cr_expect_eq(table->value.data[i] != before[i], touched);
            for (int slot = 0; slot < fv_optimizer_slots(o); slot++)
                cr_expect_eq(fv_optimizer_slot(o, slot, table).data[i] != 0, touched);
        }
        fv_optimizer_free(o);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

#if defined(FV_F64)
Test(optimizer, a_norm_that_overflows_changes_nothing)
{
    fv_params *params = fv_params_new(1);
    fv_param *p = noisy_param(params, "p", FV_SHAPE(1, 2), 0);
    const fv_real g[] = {1e200, 1e200}, before = p->value.data[0];
    fv_error error = {0};
    fv_tape *t = fv_tape_new(NULL);
    fv_optimizer *o = fv_optimizer_new(params, NULL, NULL);
    touch(t, p, 1, &(int32_t){0}, 1, g);
    cr_expect_not(fv_optimizer_step(o, &t, 1, 1, 0.1, 1, 1, NULL, &error));
    cr_expect_str_eq(error.text, "the norm of the gradient overflows at step 1");
    cr_expect_eq(p->value.data[0], before);
    fv_optimizer_free(o);
    fv_tape_free(t);
    fv_params_free(params);
}
#endif

static void expect_refused(fv_optimizer_opts opts, const char *right)
{
    fv_error error = {0};
    fv_params *params = small_set();
    cr_expect_null(fv_optimizer_new(params, &opts, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, right);
    fv_params_free(params);
}

Test(optimizer, options_out_of_range)
{
    const char *betas = "optimiser: beta1 and beta2 must be at least 0 and below 1";
    const char *momentum = "optimiser: momentum must be at least 0 and below 1";
    const char *lr = "optimiser: lr must be above 0 and finite";
    const char *eps = "optimiser: eps must be above 0 and finite";
    const char *decay = "optimiser: weight_decay must be 0 or more and finite";
    expect_refused((fv_optimizer_opts){.kind = (fv_optimizer_kind)9},
                   "optimiser: no kind has number 9");
    expect_refused((fv_optimizer_opts){.lr = -0.1}, lr);
    expect_refused((fv_optimizer_opts){.lr = (double)NAN}, lr);
    expect_refused((fv_optimizer_opts){.lr = (double)INFINITY}, lr);
    expect_refused((fv_optimizer_opts){.beta1 = 1}, betas);
    expect_refused((fv_optimizer_opts){.beta2 = -0.5}, betas);
    expect_refused((fv_optimizer_opts){.beta2 = (double)NAN}, betas);
    expect_refused((fv_optimizer_opts){.eps = FV_NONE}, eps);
    expect_refused((fv_optimizer_opts){.weight_decay = -2}, decay);
    expect_refused((fv_optimizer_opts){.weight_decay = (double)INFINITY}, decay);
    expect_refused((fv_optimizer_opts){.kind = FV_SGD, .momentum = 1}, momentum);
    expect_refused((fv_optimizer_opts){.kind = FV_SGD, .momentum = -0.9}, momentum);
    expect_refused((fv_optimizer_opts){.kind = FV_SGD, .nesterov = true},
                   "optimiser: nesterov needs momentum");
    expect_refused((fv_optimizer_opts){.kind = FV_SGD, .beta1 = 0.9},
                   "optimiser: beta1, beta2 and eps are Adam's, not SGD's");
    expect_refused((fv_optimizer_opts){.momentum = 0.9},
                   "optimiser: momentum and nesterov are SGD's, not Adam's");
}

Test(optimizer, defaults)
{
    fv_params *params = small_set();
    fv_optimizer *o = fv_optimizer_new(params, NULL, NULL);
    const fv_optimizer_opts *got = fv_optimizer_get(o);
    cr_expect(got->kind == FV_ADAMW && got->lr == 1e-3 && got->beta1 == 0.9 && got->beta2 == 0.999);
    cr_expect(got->eps == 1e-8 && got->weight_decay == 0.01 && got->momentum == 0);
    fv_optimizer_free(o);
    o = fv_optimizer_new(
        params, &(fv_optimizer_opts){.weight_decay = FV_NONE, .beta1 = FV_NONE, .lr = 0.5}, NULL);
    got = fv_optimizer_get(o);
    cr_expect(got->weight_decay == 0 && got->beta1 == 0 && got->lr == 0.5);
    fv_optimizer_free(o);
    o = fv_optimizer_new(params, &(fv_optimizer_opts){.kind = FV_SGD}, NULL);
    got = fv_optimizer_get(o);
    cr_expect(got->weight_decay == 0 && got->momentum == 0 && got->lr == 1e-3);
    fv_optimizer_free(o);
    fv_optimizer_free(NULL);
    fv_params_free(params);
}

Test(optimizer, steps_that_cannot_be_taken)
{
    fv_params *params = small_set();
    fv_tape *t = fv_tape_new(NULL), *none = NULL;
    fv_optimizer *o = fv_optimizer_new(params, NULL, NULL);
    const struct {
        fv_tape *const *tapes;
        int count;
        double scale, lr, clip;
        const char *right;
    } bad[] = {
        {NULL, 1, 1, 1, 0, "optimiser: a step needs a tape"},
        {&t, 0, 1, 1, 0, "optimiser: a step needs a tape"},
        {&none, 1, 1, 1, 0, "optimiser: tape 0 is NULL"},
        {&t, 1, (double)NAN, 1, 0, "optimiser: scale is not finite"},
        {&t, 1, 1, -1, 0, "optimiser: lr must be 0 or more and finite"},
        {&t, 1, 1, (double)INFINITY, 0, "optimiser: lr must be 0 or more and finite"},
        {&t, 1, 1, 1, -1, "optimiser: clip must be 0 (off) or more"},
    };
    small_gradients(t, params, 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fv_error error = {0};
        cr_expect_not(fv_optimizer_step(o, bad[i].tapes, bad[i].count, bad[i].scale, bad[i].lr,
                                        bad[i].clip, 1, NULL, &error));
        cr_expect_eq(error.status, FV_USAGE);
        cr_expect_str_eq(error.text, bad[i].right);
    }
    fv_error error = {0};
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    cr_expect_null(fv_matmul(t, fv_use(t, fv_params_at(params, 1)), fv_use(t, NULL), NULL));
    cr_expect_not(fv_optimizer_step(o, &t, 1, 1, 1, 0, 1, NULL, &error));
    cr_expect_str_eq(error.text, fv_tape_error(t)->text, "the tape's own error");

    error = (fv_error){0};
    noisy_param(params, "late", FV_SHAPE(2), 0);
    cr_expect_not(fv_optimizer_step(o, &t, 1, 1, 1, 0, 1, NULL, &error));
    cr_expect_str_eq(error.text,
                     "optimiser: made for 2 parameters, the set now has 3: make it last");
    cr_expect_eq(fv_optimizer_steps(o), 0);
    fv_optimizer_free(o);

    error = (fv_error){0};
    cr_expect_null(fv_optimizer_new(NULL, NULL, &error));
    cr_expect_str_eq(error.text, "optimiser: no parameters");
    error = (fv_error){0};
    cr_expect_null(fv_param_new(fv_root(params), "late", FV_SHAPE(2), (fv_init){FV_ZEROS, 0}));
    cr_expect_null(fv_optimizer_new(params, NULL, &error));
    cr_expect_str_eq(error.text, "parameter late: the name is taken");
    fv_tape_free(t);
    fv_params_free(params);
}

/* ---- derivatives ----------------------------------------------------------------------------- */

#if defined(FV_COMPLEX)
/* Three clipped steps: the tangent that an imaginary gradient carries into the parameters against
 * differences of runs without it. */
static void run_along(const fv_optimizer_opts *opts, fv_real along, fv_real out[12])
{
    fv_params *params = fv_params_new(1);
    fv_param *p = noisy_param(params, "p", FV_SHAPE(12), 0);
    fv_tape *t = fv_tape_new(NULL);
    fv_optimizer *o = fv_optimizer_new(params, opts, NULL);
    for (uint64_t step = 1; step <= 3; step++) {
        fv_tape_begin(t, FV_TRAIN, 1, step);
        fv_real *g = noise_on(t, step, 0, 12);
        for (uint64_t i = 0; i < 12; i++)
            g[i] += along * noise(step, 50 + i);
        cr_assert(fv_backward(t, pull(t, NULL, fv_use(t, p), g)));
        cr_assert(fv_optimizer_step(o, &t, 1, 1, 0.1, 0.6, 1, NULL, NULL));
    }
    memcpy(out, p->value.data, 12 * sizeof *out);
    fv_optimizer_free(o);
    fv_tape_free(t);
    fv_params_free(params);
}

Test(optimizer, tangents_pass_through)
{
    for (int kind = 0; kind < KINDS; kind++) {
        fv_real tangent[12], more[12], less[12];
        run_along(&kinds[kind], 1e-30 * (fv_real)_Complex_I, tangent);
        run_along(&kinds[kind], 1e-5, more);
        run_along(&kinds[kind], -1e-5, less);
        for (int i = 0; i < 12; i++)
            cr_expect_float_eq(fv_im(tangent[i]) * 1e30, fv_re(more[i] - less[i]) / 2e-5, 1e-7);
    }
}
#endif
