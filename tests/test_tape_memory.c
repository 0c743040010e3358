/* The tape's memory: an arena that never moves, steps that allocate nothing, and running out of it. */
#include <criterion/criterion.h>
#include <string.h>

#include "autograd/internal.h"
#include "tests/memory.h"
#include "tests/small_model.h"

static const int all[SMALL_SENTENCES] = {0, 1, 2, 3, 4, 5, 6};

Test(tape_memory, values_never_move)
{
    enum { COUNT = 120, NUMBERS = 5000 };
    fv_tape *t = fv_tape_new(NULL);
    static fv_real data[NUMBERS];
    fv_var *v[COUNT];
    fv_real *place[COUNT];
    for (size_t i = 0; i < NUMBERS; i++)
        data[i] = (fv_real)(double)i;
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    v[0] = fv_input(t, FV_SHAPE(NUMBERS), data);
    for (int i = 1; i < COUNT; i++) {
        v[i] = fv_scale(t, v[0], i);
        place[i] = v[i]->value.data;
        cr_assert_eq((uintptr_t)place[i] % FVI_ALIGN, 0);
    }
    for (int i = 1; i < COUNT; i++) {
        cr_expect(v[i]->value.data == place[i]);
        for (size_t k = 0; k < NUMBERS; k++)
            cr_assert(fv_re(place[i][k]) == (double)i * (double)k);
    }
    size_t peak, now = fv_tape_bytes(t, &peak);
    cr_expect_geq(now, (COUNT - 1) * NUMBERS * sizeof(fv_real));
    cr_expect_geq(peak, now);
    fv_tape_begin(t, FV_TRAIN, 1, 2);
    cr_expect_eq(fv_tape_bytes(t, &now), 0);
    cr_expect_eq(now, peak);
    fv_tape_free(t);
}

/* What the last step held is overwritten, so that a stale pointer shows. */
Test(tape_memory, poison)
{
#ifdef FV_POISON
    fv_tape *t = fv_tape_new(NULL);
    const fv_real data[] = {1, 2, 3};
    fv_tape_begin(t, FV_EVAL, 1, 1);
    fv_real *old = fv_scale(t, fv_constant(t, FV_SHAPE(3), data), 2)->value.data;
    fv_tape_begin(t, FV_EVAL, 1, 2);
    unsigned char poisoned[3 * sizeof *old];
    memset(poisoned, 0xa5, sizeof poisoned);
    cr_expect_arr_eq(old, poisoned, sizeof poisoned);
    fv_tape_free(t);
#else
    cr_skip_test("built without -DFV_POISON");
#endif
}

static bool step(fv_tape *t, const small_model *m, const small_batch *b, uint64_t number)
{
    fv_tape_begin(t, FV_TRAIN, 5, number);
    return fv_backward(t, small_model_loss(t, m, b));
}

Test(tape_memory, a_second_step_allocates_nothing)
{
    static small_batch b;
    small_batch_make(&b, SMALL_SENTENCES, all);
    fv_params *params = fv_params_new(1);
    const small_model m = small_model_init(params, 40, 0.1);
    for (int threads = 1; threads <= 2; threads++) {
        fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
        cr_assert(step(t, &m, &b, 0), "%s", fv_tape_error(t)->text);
        size_t before = test_requests(), peak, next_peak;
        fv_tape_bytes(t, &peak);
        for (uint64_t i = 1; i < 4; i++)
            cr_assert(step(t, &m, &b, i), "%s", fv_tape_error(t)->text);
        cr_expect_eq(test_requests(), before, "%zu requests", test_requests() - before);
        fv_tape_bytes(t, &next_peak);
        cr_expect_eq(peak, next_peak);
        fv_tape_free(t);
    }
    fv_params_free(params);
}

/* A digest of all gradients of the last step. */
static uint64_t digest(const fv_tape *t, const fv_params *params)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const fv_param *p = fv_params_at(params, i);
        const int32_t *rows;
        const fv_real *grad = fv_param_grad(t, p);
        size_t count = fv_shape_count(p->value.shape), touched = fv_touched(t, p, &rows, &grad);
        if (touched > 0)
            count = touched * p->value.shape.size[1];
        cr_assert_not_null(grad, "%s has no gradient", p->name);
        sum = sum * 31 + fvi_hash(grad, count * sizeof *grad);
    }
    return sum;
}

/* Fails each request for memory in turn, from building the set to the end of a step. */
Test(tape_memory, every_request_may_fail)
{
    static small_batch b;
    small_batch_make(&b, 5, all);
    const size_t blocks = test_blocks();
    uint64_t right = 0;
    size_t n = 0, in_params = 0, in_tape = 0;
    for (bool done = false; !done; n++) {
        test_fail_after(n); /* 0: the first round fails nothing */
        const size_t before = test_requests();
        fv_params *params = fv_params_new(1);
        const small_model m = small_model_init(params, 40, 0.1);
        fv_tape *t = fv_tape_new(NULL);
        if (params != NULL && t != NULL) {
            const bool whole = fv_params_error(params)->status == FV_OK;
            bool ok = step(t, &m, &b, 1);
            test_fail_after(0);
            if (n == 0)
                right = digest(t, params);
            else if (!whole) {
                in_params++;
                cr_expect_not(ok, "half a model ran, request %zu", n);
                cr_expect_not_null(strstr(fv_params_error(params)->text, "out of memory"), "%s",
                                   fv_params_error(params)->text);
                cr_expect_str_eq(fv_tape_error(t)->text,
                                 "use: no parameter (the set's error says why)");
            } else if (!ok) {
                in_tape++;
                cr_expect_eq(fv_tape_error(t)->status, FV_FAILED);
                cr_expect_not_null(strstr(fv_tape_error(t)->text, "out of memory"), "%s",
                                   fv_tape_error(t)->text);
            }
            if (whole) { /* the tape goes on as if nothing had happened */
                cr_expect(step(t, &m, &b, 1), "%s", fv_tape_error(t)->text);
                cr_expect_eq(digest(t, params), right, "request %zu broke something", n);
            }
        }
        test_fail_after(0);
        done = n > test_requests() - before;
        fv_tape_free(t);
        fv_params_free(params);
        cr_assert_eq(test_blocks(), blocks, "request %zu: %zu blocks leaked", n,
                     test_blocks() - blocks);
    }
    cr_expect_gt(in_params, 70, "%zu", in_params);
    cr_expect_gt(in_tape, 3, "%zu", in_tape);
}
