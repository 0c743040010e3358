/* A run of an optimiser: the same bits for any threads, instruction set, kind of table or restart, and
 * whatever goes wrong on the way. */
#include <float.h>

#include "memory.h"
#include "optimizer.h"

/* Matrices of awkward sizes, a table of words, biases: enough numbers for several pieces and threads. */
enum { WORDS = 700, WIDTH = 50, TAPES = 3 };

typedef struct {
    fv_params *params;
    fv_tape *tapes[TAPES];
    fv_optimizer *optimizer;
    unsigned dense_tapes; /* bits: tapes on which the words' gradient comes as a whole matrix */
} model;

static model model_new(const fv_optimizer_opts *opts)
{
    model m = {.params = fv_params_new(3)};
    noisy_param(m.params, "words", FV_SHAPE(WORDS, WIDTH), 0);
    noisy_param(m.params, "weight", FV_SHAPE(301, 107), 40000);
    noisy_param(m.params, "bias", FV_SHAPE(107), 90000)->no_decay = true;
    noisy_param(m.params, "cube", FV_SHAPE(3, 17, 13), 95000);
    noisy_param(m.params, "scale", FV_SCALAR, 99000);
    for (int t = 0; t < TAPES; t++)
        m.tapes[t] = fv_tape_new(NULL);
    m.optimizer = fv_optimizer_new(m.params, opts, NULL);
    cr_assert_not_null(m.optimizer);
    return m;
}

static void model_free(model *m)
{
    fv_optimizer_free(m->optimizer);
    for (int t = 0; t < TAPES; t++)
        fv_tape_free(m->tapes[t]);
    fv_params_free(m->params);
}

/* Each tape uses some words, some of them twice; the last tape leaves out the weight. */
static void model_gradients(model *m, uint64_t step)
{
    enum { USED = 40 };
    for (uint64_t tape = 0; tape < TAPES; tape++) {
        fv_tape *t = m->tapes[tape];
        const uint64_t key = step * TAPES + tape;
        fv_tape_begin(t, FV_TRAIN, 1, step);
        int32_t *ids = fv_tape_alloc(t, USED, sizeof *ids);
        for (uint64_t i = 0; i < USED; i++)
            ids[i] = (int32_t)((noise(key, 7000 + i) + 0.5) * (i % 2 ? WORDS : 60));
        fv_real *g = noise_on(t, key, 0, USED * WIDTH);
        fv_var *words = fv_use(t, fv_params_at(m->params, 0)), *loss;
        if (m->dense_tapes >> tape & 1) {
            fv_real *whole = fv_tape_alloc(t, WORDS * WIDTH, sizeof *whole);
            for (size_t i = 0; i < USED * WIDTH; i++)
                whole[(size_t)ids[i / WIDTH] * WIDTH + i % WIDTH] += g[i];
            loss = pull(t, NULL, words, whole);
        } else {
            loss = pull(t, NULL, fv_gather(t, words, ids, USED), g);
        }
        for (size_t p = tape + 1 == TAPES ? 2 : 1; p < fv_params_count(m->params); p++)
            loss = pull_noise(t, loss, fv_params_at(m->params, p), key, 5000 * p);
        cr_assert(fv_backward(t, loss));
    }
}

static bool model_step(model *m, double clip, int threads, double *norm, fv_error *error)
{
    return fv_optimizer_step(m->optimizer, m->tapes, TAPES, 0.5,
                             rate(fv_optimizer_steps(m->optimizer)), clip, threads, norm, error);
}

static void model_run(model *m, int steps, double clip, int threads)
{
    for (int i = 0; i < steps; i++) {
        model_gradients(m, fv_optimizer_steps(m->optimizer) + 1);
        cr_assert(model_step(m, clip, threads, NULL, NULL));
    }
}

/* The largest difference between two models' parameters and slots; 0 only when all bits agree. */
static double difference(const model *a, const model *b)
{
    double largest = 0;
    for (size_t i = 0; i < fv_params_count(a->params); i++)
        for (int slot = -1; slot < fv_optimizer_slots(a->optimizer); slot++) {
            const fv_param *p = fv_params_at(a->params, i), *q = fv_params_at(b->params, i);
            fv_tensor x = slot < 0 ? p->value : fv_optimizer_slot(a->optimizer, slot, p);
            fv_tensor y = slot < 0 ? q->value : fv_optimizer_slot(b->optimizer, slot, q);
            size_t count = fv_shape_count(x.shape);
            if (memcmp(x.data, y.data, count * sizeof *x.data) == 0)
                continue;
            for (size_t k = 0; k < count; k++) {
                double d = fabs((double)fv_re(x.data[k]) - (double)fv_re(y.data[k]));
                largest = d > largest ? d : largest;
            }
            largest = largest > 0 ? largest : 1e-300;
        }
    return largest;
}

Test(optimizer_run, same_bits_for_any_threads)
{
    static const int threads[] = {2, 3, 8};
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 3; i++) {
            model one = model_new(&kinds[kind]), many = model_new(&kinds[kind]);
            fv_params_at(one.params, 0)->touched_rows = i == 2;
            fv_params_at(many.params, 0)->touched_rows = i == 2;
            model_run(&one, 4, 0.7, 1);
            model_run(&many, 4, 0.7, threads[i]);
            cr_expect_eq(difference(&one, &many), 0, "kind %d, %d threads", kind, threads[i]);
            model_free(&one);
            model_free(&many);
        }
}

Test(optimizer_run, same_bits_for_avx2_and_avx512)
{
    if (strcmp(fvi_isa_name(fvi_isa_best()), "avx512") != 0)
        cr_skip_test("this processor or build has no AVX-512");
    for (int kind = 0; kind < KINDS; kind++) {
        setenv("FOVEA_ISA", "avx2", 1);
        model narrow = model_new(&kinds[kind]);
        unsetenv("FOVEA_ISA");
        model wide = model_new(&kinds[kind]);
        model_run(&narrow, 4, 0.7, 1);
        model_run(&wide, 4, 0.7, 1);
        cr_expect_eq(difference(&narrow, &wide), 0, "kind %d", kind);
        model_free(&narrow);
        model_free(&wide);
    }
}

/* Rows that no tape used decay and move just as under a gradient of zeros. */
Test(optimizer_run, table_by_rows_equals_dense)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int clipped = 0; clipped < 2; clipped++) {
            model rows = model_new(&kinds[kind]), dense = model_new(&kinds[kind]);
            dense.dense_tapes = ~0u;
            model_run(&rows, 5, clipped ? 0.7 : 0, 1);
            model_run(&dense, 5, clipped ? 0.7 : 0, 1);
            if (clipped) /* the norm is summed in another order */
                cr_expect_lt(difference(&rows, &dense), tolerance, "kind %d", kind);
            else
                cr_expect_eq(difference(&rows, &dense), 0, "kind %d", kind);
            model_free(&rows);
            model_free(&dense);
        }
}

/* One tape used a table as a matrix (say, as the output layer too), another one rows of it. */
Test(optimizer_run, table_dense_on_one_tape_and_by_rows_on_another)
{
    model mixed = model_new(&kinds[1]), dense = model_new(&kinds[1]);
    dense.dense_tapes = ~0u;
    for (uint64_t step = 1; step <= 6; step++) {
        double norms[2];
        mixed.dense_tapes = (unsigned)step; /* every subset but none and all of them */
        model_gradients(&mixed, step);
        model_gradients(&dense, step);
        cr_assert(model_step(&mixed, 0.7, 1, &norms[0], NULL));
        cr_assert(model_step(&dense, 0.7, 1, &norms[1], NULL));
        cr_expect_eq(norms[0], norms[1]);
    }
    cr_expect_eq(difference(&mixed, &dense), 0);
    model_free(&mixed);
    model_free(&dense);
}

#if !defined(FV_COMPLEX)
/* Else every row that is no longer used would cost subnormal arithmetic in every step that follows. */
Test(optimizer_run, moments_do_not_stay_subnormal)
{
    for (int kind = 0; kind < KINDS; kind++) {
        model m = model_new(&kinds[kind]);
        for (int slot = 0; slot < fv_optimizer_slots(m.optimizer); slot++) {
            fv_real *x = fv_optimizer_slot(m.optimizer, slot, fv_params_at(m.params, 0)).data;
            for (size_t i = 0; i < WORDS * WIDTH; i++)
                x[i] = sizeof(fv_real) == 4 ? (fv_real)1e-40 : (fv_real)1e-310;
        }
        model_run(&m, 1, 0, 1);
        for (int slot = 0; slot < fv_optimizer_slots(m.optimizer); slot++) {
            size_t zeros = 0;
            const fv_real *x = fv_optimizer_slot(m.optimizer, slot, fv_params_at(m.params, 0)).data;
            for (size_t i = 0; i < WORDS * WIDTH; i++) {
                cr_assert(x[i] == 0 || isnormal(x[i]));
                zeros += x[i] == 0;
            }
            if (kind == 0)
                cr_expect_gt(zeros, WORDS * WIDTH / 2);
        }
        model_free(&m);
    }
}
#endif

/* As PyTorch does with a gradient of None: no decay, no momentum. */
Test(optimizer_run, parameters_without_a_part_stay)
{
    for (int kind = 0; kind < KINDS; kind++) {
        model m = model_new(&kinds[kind]), still = model_new(&kinds[kind]);
        model_run(&m, 2, 0, 1);
        model_run(&still, 2, 0, 1);
        fv_params_at(m.params, 1)->frozen = true;
        for (int t = 0; t < TAPES; t++) {
            fv_tape *tape = m.tapes[t];
            fv_tape_begin(tape, FV_TRAIN, 1, 3);
            fv_var *weight = pull_noise(tape, NULL, fv_params_at(m.params, 1), 3, 0);
            cr_assert(fv_backward(tape, pull_noise(tape, weight, fv_params_at(m.params, 2), 3, 0)));
        }
        cr_assert(model_step(&m, 0, 1, NULL, NULL));
        cr_expect_gt(difference(&m, &still), 0);
        memcpy(fv_params_at(still.params, 2)->value.data, fv_params_at(m.params, 2)->value.data,
               107 * sizeof(fv_real));
        for (int slot = 0; slot < fv_optimizer_slots(m.optimizer); slot++)
            memcpy(fv_optimizer_slot(still.optimizer, slot, fv_params_at(still.params, 2)).data,
                   fv_optimizer_slot(m.optimizer, slot, fv_params_at(m.params, 2)).data,
                   107 * sizeof(fv_real));
        cr_expect_eq(difference(&m, &still), 0, "kind %d", kind);
        model_free(&m);
        model_free(&still);
    }
}

/* ---- restart --------------------------------------------------------------------------------- */

Test(optimizer_run, exact_restart_from_slots_and_steps)
{
    for (int kind = 0; kind < KINDS; kind++) {
        model whole = model_new(&kinds[kind]), first = model_new(&kinds[kind]);
        model_run(&whole, 6, 0.7, 1);
        model_run(&first, 3, 0.7, 1);
        model second = model_new(&kinds[kind]);
        for (size_t i = 0; i < fv_params_count(first.params); i++) {
            const fv_param *from = fv_params_at(first.params, i),
                           *to = fv_params_at(second.params, i);
            size_t bytes = fv_shape_count(to->value.shape) * sizeof(fv_real);
            memcpy(to->value.data, from->value.data, bytes);
            for (int slot = 0; slot < fv_optimizer_slots(first.optimizer); slot++)
                memcpy(fv_optimizer_slot(second.optimizer, slot, to).data,
                       fv_optimizer_slot(first.optimizer, slot, from).data, bytes);
        }
        fv_optimizer_set_steps(second.optimizer, fv_optimizer_steps(first.optimizer));
        model_run(&second, 3, 0.7, 2);
        cr_expect_eq(difference(&whole, &second), 0, "kind %d", kind);
        model_free(&whole);
        model_free(&first);
        model_free(&second);
    }
}

Test(optimizer_run, slots)
{
    model adam = model_new(&kinds[0]), sgd = model_new(&kinds[2]), momentum = model_new(&kinds[3]);
    cr_expect_eq(fv_optimizer_slots(adam.optimizer), 2);
    cr_expect_str_eq(fv_optimizer_slot_name(adam.optimizer, 0), "exp_avg");
    cr_expect_str_eq(fv_optimizer_slot_name(adam.optimizer, 1), "exp_avg_sq");
    cr_expect_null(fv_optimizer_slot_name(adam.optimizer, 2));
    cr_expect_eq(fv_optimizer_slots(sgd.optimizer), 0);
    cr_expect_eq(fv_optimizer_slots(momentum.optimizer), 1);
    cr_expect_str_eq(fv_optimizer_slot_name(momentum.optimizer, 0), "momentum_buffer");
    fv_tensor slot = fv_optimizer_slot(adam.optimizer, 1, fv_params_at(adam.params, 3));
    cr_expect(fv_shape_equal(slot.shape, FV_SHAPE(3, 17, 13)));
    cr_expect_eq(slot.data[5], 0);
    cr_expect_null(fv_optimizer_slot(adam.optimizer, 2, fv_params_at(adam.params, 3)).data);
    cr_expect_null(fv_optimizer_slot(adam.optimizer, -1, fv_params_at(adam.params, 3)).data);
    cr_expect_null(fv_optimizer_slot(adam.optimizer, 0, NULL).data);
    cr_expect_null(fv_optimizer_slot(adam.optimizer, 0, fv_params_at(sgd.params, 3)).data);
    model_free(&adam);
    model_free(&sgd);
    model_free(&momentum);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

/* NaN and Inf in each parameter, on each tape that uses it: named, nothing changed, the next step as ever. */
Test(optimizer_run, a_gradient_that_is_not_finite_changes_nothing)
{
    for (size_t p = 0; p < 5; p++)
        for (int tape = 0; tape < TAPES; tape++) {
            if (p == 1 && tape == 2)
                continue;
            model m = model_new(&kinds[0]), healthy = model_new(&kinds[0]);
            model_run(&m, 2, 0.7, 1);
            model_run(&healthy, 2, 0.7, 1);
            for (int inf = 0; inf < 2; inf++) {
                char right[100];
                fv_error error = {0};
                double norm = 5;
                const fv_param *param = fv_params_at(m.params, p);
                model_gradients(&m, 3);
                const int32_t *rows;
                const fv_real *by_rows, *found = fv_param_grad(m.tapes[tape], param);
                fv_real *g;
                if (found == NULL && fv_touched(m.tapes[tape], param, &rows, &by_rows) > 0)
                    found = by_rows;
                memcpy(&g, &found, sizeof g);
                g[p == 4 ? 0 : 100] = inf ? (fv_real)INFINITY : (fv_real)NAN;
                cr_expect_not(model_step(&m, 0.7, 1, &norm, &error));
                snprintf(right, sizeof right, "gradient of %s is %s at step 3", param->name,
                         inf ? "Inf" : "NaN");
                cr_expect_str_eq(error.text, right);
                cr_expect_eq(error.status, FV_NONFINITE);
                cr_expect_eq(norm, 5);
                cr_expect_eq(fv_optimizer_steps(m.optimizer), 2);
                cr_expect_eq(difference(&m, &healthy), 0);
            }
            model_run(&m, 1, 0.7, 1);
            model_run(&healthy, 1, 0.7, 1);
            cr_expect_eq(difference(&m, &healthy), 0);
            model_free(&m);
            model_free(&healthy);
        }
}

/* Steps on one, three and two tapes; it does not matter when there was first room for three. */
Test(optimizer_run, any_number_of_tapes_at_each_step)
{
    static const int counts[] = {1, 3, 2, 1};
    model grown = model_new(&kinds[0]), roomy = model_new(&kinds[0]);
    model_gradients(&roomy, 1);
    cr_assert_not(
        fv_optimizer_step(roomy.optimizer, roomy.tapes, TAPES, DBL_MAX, 1, 1, 1, NULL, NULL));
    for (uint64_t step = 1; step <= 4; step++) {
        model_gradients(&grown, step);
        model_gradients(&roomy, step);
        cr_assert(fv_optimizer_step(grown.optimizer, grown.tapes, counts[step - 1], 1, 0.1, 1, 1,
                                    NULL, NULL));
        cr_assert(fv_optimizer_step(roomy.optimizer, roomy.tapes, counts[step - 1], 1, 0.1, 1, 1,
                                    NULL, NULL));
        cr_expect_eq(difference(&grown, &roomy), 0);
    }
    model_free(&grown);
    model_free(&roomy);
}

/* ---- memory ---------------------------------------------------------------------------------- */

Test(optimizer_run, a_step_after_the_first_takes_no_memory)
{
    model m = model_new(&kinds[0]);
    model_run(&m, 1, 0.7, 1);
    model_gradients(&m, 2);
    const size_t before = test_requests();
    for (int step = 0; step < 500; step++) /* so many that an arena could not hide it */
        cr_assert(model_step(&m, 0.7, 1, NULL, NULL));
    cr_expect_eq(test_requests(), before);
    model_free(&m);
}

/* Whichever request fails: a clear error, nothing changed, nothing lost, and the next try succeeds. */
Test(optimizer_run, out_of_memory)
{
    model m = model_new(&kinds[0]), right = model_new(&kinds[0]);
    model_gradients(&m, 1);
    model_run(&right, 1, 0.7, 1);
    fv_optimizer_free(m.optimizer);
    bool done = false;
    const size_t blocks = test_blocks();
    for (size_t n = 1; !done; n++) {
        fv_error error = {0};
        cr_assert_lt(n, 100);
        test_fail_after(n);
        m.optimizer = fv_optimizer_new(m.params, &kinds[0], &error);
        done = m.optimizer &&
               fv_optimizer_step(m.optimizer, m.tapes, TAPES, 0.5, rate(0), 0.7, 1, NULL, &error);
        test_fail_after(0);
        if (!done) {
            cr_expect_eq(error.status, FV_FAILED);
            cr_expect_eq(strncmp(error.text, "optimiser: out of memory for ", 29), 0, "%s",
                         error.text);
        }
        if (!done && m.optimizer != NULL) { /* the optimiser that failed half way goes on */
            cr_expect(model_step(&m, 0.7, 1, NULL, NULL));
            cr_expect_eq(difference(&m, &right), 0);
            for (size_t i = 0; i < fv_params_count(m.params); i++) {
                fv_tensor x = fv_params_at(m.params, i)->value;
                const uint64_t first[] = {0, 40000, 90000, 95000, 99000};
                for (size_t k = 0; k < fv_shape_count(x.shape); k++)
                    x.data[k] = (fv_real)noise(0, first[i] + k);
            }
        }
        if (!done) {
            fv_optimizer_free(m.optimizer);
            cr_assert_eq(test_blocks(), blocks);
        }
    }
    cr_expect_eq(difference(&m, &right), 0);
    model_free(&m);
    model_free(&right);
}
