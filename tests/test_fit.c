/* fv_fit: the same bits at any number of threads, exact resume, exact means, nothing learned from NaN. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/internal.h"
#include "tests/memory.h"
#include "train/train.h"

enum { SAMPLES = 37, WORDS = 11, CLASSES = 3, D = 8 };

/* A tagger of toy sentences whose label depends on a word and its left neighbour. */
typedef struct {
    fv_params *params;
    fv_embedding words;
    fv_block block;
    fv_linear output;
    size_t offsets[SAMPLES + 1];
    int32_t ids[SAMPLES * 9], labels[SAMPLES * 9];
    uint64_t poison; /* at this call of the loss a NaN enters; 0: never */
    uint64_t calls;
    volatile sig_atomic_t stop;
    uint64_t stop_at; /* calls after which stop is set; 0: never */
} toy;

static void make(toy *m)
{
    const fv_rng rng = fv_rng_make(3, 0, "toy");
    memset(m, 0, sizeof *m);
    for (size_t s = 0, at = 0; s < SAMPLES; s++) {
        size_t rows = 1 + fv_rng_below(rng, s, 9);
        for (size_t r = 0; r < rows; r++, at++) {
            m->ids[at] = (int32_t)fv_rng_below(rng, 1000 + at, WORDS);
            m->labels[at] = (m->ids[at] + (r > 0 ? m->ids[at - 1] : 0)) % CLASSES;
        }
        m->offsets[s + 1] = at;
    }
    m->params = fv_params_new(1);
    const fv_scope root = fv_root(m->params);
    const fv_block_opts block = {.dropout = 0.2, .attention = {.dropout = 0.1, .relative_clip = 3}};
    m->words = fv_embedding_init(fv_under(root, "words"), WORDS, D,
                                 &(fv_embedding_opts){.touched_rows = true});
    m->block = fv_block_init(fv_under(root, "block"), D, 2, &block);
    m->output = fv_linear_init(fv_under(root, "output"), D, CLASSES, NULL);
}

static fv_var *scores(const void *model, fv_tape *t, const size_t *samples, size_t count)
{
    const toy *m = model;
    const fv_ragged ids = {SAMPLES, m->offsets, m->ids};
    const fv_segments *segments = fv_pick_segments(t, m->offsets, samples, count);
    fv_var *x = fv_embedding_forward(t, &m->words, fv_pick(t, &ids, samples, count),
                                     fv_segments_rows(segments));
    x = fv_block_forward(t, &m->block, x, &(fv_mask){.queries = segments});
    return fv_linear_forward(t, &m->output, x);
}

static fv_var *loss(const void *model, fv_tape *t, const size_t *samples, size_t count,
                    double *weight)
{
    toy *m = (toy *)(uintptr_t)model;
    const fv_ragged labels = {SAMPLES, m->offsets, m->labels};
    uint64_t call = __atomic_add_fetch(&m->calls, 1, __ATOMIC_SEQ_CST);
    fv_var *y = fv_cross_entropy_sum(t, scores(m, t, samples, count),
                                     fv_pick(t, &labels, samples, count), NULL, weight);
    if (m->stop_at != 0 && call >= m->stop_at)
        m->stop = 1;
    return m->poison != 0 && call >= m->poison ? fv_scale(t, y, (double)NAN) : y;
}

static bool fit_with(toy *m, fv_fit_opts o, fv_fit_result *result, fv_error *error)
{
    const fv_task task = {m, SAMPLES, m->offsets, loss, scores, false, NULL};
    o.epochs = o.epochs ? o.epochs : 3;
    o.batch.batch_rows = o.batch.batch_rows ? o.batch.batch_rows : 40;
    o.seed = 5;
    o.clip = 1;
    o.schedule = (fv_schedule){.kind = FV_COSINE, .warmup = 3};
    o.stop = &m->stop;
    return fv_fit(m->params, &task, &o, result, error);
}

static uint64_t digest(const fv_params *params)
{
    uint64_t all[64] = {0};
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const fv_tensor v = fv_params_at(params, i)->value;
        all[i] = fvi_hash(v.data, fv_shape_count(v.shape) * sizeof *v.data);
    }
    return fvi_hash(all, sizeof all);
}

Test(fit, same_bits_at_any_number_of_threads)
{
    uint64_t first = 0;
    for (int threads = 1; threads <= 8; threads += threads < 4 ? 1 : 4) {
        toy m;
        fv_error error = {FV_OK, ""};
        make(&m);
        cr_assert(fit_with(&m, (fv_fit_opts){.threads = threads}, NULL, &error), "%s", error.text);
        if (threads == 1)
            first = digest(m.params);
        cr_expect_eq(digest(m.params), first, "%d threads", threads);
        fv_params_free(m.params);
    }
}

/* Stops after each third call of the loss, resumes with other threads: the final file is the uninterrupted run's. */
static void resume_everywhere(fv_optimizer_opts optimizer)
{
    char whole[64], part[64];
    snprintf(whole, sizeof whole, "fit-whole-%ld.npz", (long)getpid());
    snprintf(part, sizeof part, "fit-part-%ld.npz", (long)getpid());
    toy m;
    fv_error error = {FV_OK, ""};
    make(&m);
    cr_assert(fit_with(&m, (fv_fit_opts){.threads = 1, .optimizer = optimizer, .checkpoint = whole},
                       NULL, &error),
              "%s", error.text);
    const uint64_t expected = digest(m.params), calls = m.calls; /* at most four a step */
    fv_params_free(m.params);
    for (uint64_t at = 1; at + 8 < calls; at += 3) {
        unlink(part);
        make(&m);
        m.stop_at = at;
        fv_fit_opts o = {.threads = 2, .optimizer = optimizer, .checkpoint = part, .resume = true};
        error = (fv_error){FV_OK, ""};
        bool ok = fit_with(&m, o, NULL, &error);
        cr_expect(!ok && error.status == FV_INTERRUPTED, "stop at call %d: %s", (int)at,
                  error.text);
        fv_params_free(m.params);
        make(&m); /* another process would start like this */
        o.threads = 1;
        error = (fv_error){FV_OK, ""};
        cr_assert(fit_with(&m, o, NULL, &error), "%s", error.text);
        cr_expect_eq(digest(m.params), expected, "stopped at call %d", (int)at);
        fv_params_free(m.params);
        char command[200];
        snprintf(command, sizeof command, "cmp -s %s %s", whole, part);
        cr_expect_eq(system(command), 0, "the files differ after a stop at call %d", (int)at);
    }
    unlink(whole);
    unlink(part);
}

Test(fit, resume_is_exact_adamw)
{
    resume_everywhere((fv_optimizer_opts){.kind = FV_ADAMW, .lr = 0.01});
}

Test(fit, resume_is_exact_sgd)
{
    resume_everywhere(
        (fv_optimizer_opts){.kind = FV_SGD, .lr = 0.05, .momentum = 0.9, .nesterov = true});
}

Test(fit, resume_refuses_another_run)
{
    char path[64];
    snprintf(path, sizeof path, "fit-other-%ld.npz", (long)getpid());
    toy m;
    fv_error error = {FV_OK, ""};
    make(&m);
    cr_assert(fit_with(&m, (fv_fit_opts){.checkpoint = path}, NULL, &error), "%s", error.text);
    cr_expect_not(
        fit_with(&m, (fv_fit_opts){.checkpoint = path, .resume = true, .epochs = 4}, NULL, &error));
    cr_expect_eq(error.status, FV_CHECKPOINT);
    cr_expect(strstr(error.text, "was trained with epochs 3, now it is 4"), "%s", error.text);
    fv_params_free(m.params);
    unlink(path);
}

/* One shard or eight, however uneven: the gradient of the mean is the same, up to the order of sums. */
Test(fit, a_mean_is_taken_once)
{
    double reference = 0;
    for (int shards = 1; shards <= 8; shards *= 2) {
        toy m;
        fv_fit_result result;
        fv_error error = {FV_OK, ""};
        make(&m);
        m.block.dropout = m.block.self_attn.how.dropout = 0;
        cr_assert(fit_with(&m, (fv_fit_opts){.shards = shards}, &result, &error), "%s", error.text);
        if (shards == 1)
            reference = result.loss;
        cr_expect_float_eq(result.loss, reference, sizeof(fv_real) == 4 ? 1e-4 : 1e-10, "%d shards",
                           shards);
        fv_params_free(m.params);
    }
}

Test(fit, nan_stops_before_the_update)
{
    char path[64];
    snprintf(path, sizeof path, "fit-nan-%ld.npz", (long)getpid());
    for (uint64_t at = 1; at <= 9; at += 4) {
        toy clean, m;
        fv_error error = {FV_OK, ""};
        make(&clean);
        clean.stop_at = at > 4 ? at - 4 : 0; /* the run that ends just before the bad step */
        fit_with(&clean, (fv_fit_opts){.threads = 1}, NULL, NULL);
        make(&m);
        m.poison = at;
        cr_expect_not(fit_with(&m, (fv_fit_opts){.threads = 1, .checkpoint = path}, NULL, &error));
        cr_expect_eq(error.status, FV_NONFINITE, "%s", error.text);
        char step[40];
        snprintf(step, sizeof step, "at step %d", (int)(at / 4 + 1));
        cr_expect(strstr(error.text, "gradient of ") && strstr(error.text, step), "%s", error.text);
        for (size_t i = 0; i < fv_params_count(m.params); i++) {
            const fv_tensor v = fv_params_at(m.params, i)->value;
            for (size_t k = 0; k < fv_shape_count(v.shape); k++)
                cr_assert(isfinite((double)fv_re(v.data[k])));
        }
        if (at > 1)
            cr_expect_eq(digest(m.params), digest(clean.params), "poison at call %d", (int)at);
        fv_params_free(m.params);
        fv_params_free(clean.params);
    }
    unlink(path);
}

static uint64_t requests_at[200];

static fv_var *counting_loss(const void *model, fv_tape *t, const size_t *samples, size_t count,
                             double *weight)
{
    toy *m = (toy *)(uintptr_t)model;
    if (m->calls < 200)
        requests_at[m->calls] = test_requests();
    return loss(model, t, samples, count, weight);
}

/* Equal samples in one batch an epoch: after the first steps nothing asks for memory but the epoch's order. */
Test(fit, a_step_allocates_nothing)
{
    toy m;
    fv_error error = {FV_OK, ""};
    make(&m);
    for (size_t s = 0; s <= SAMPLES; s++)
        m.offsets[s] = 4 * s;
    const fv_task task = {&m, SAMPLES - 1, m.offsets, counting_loss, NULL, false, NULL};
    const fv_fit_opts o = {.epochs = 1, .batch = {.batch_samples = 4}, .threads = 1};
    cr_assert(fv_fit(m.params, &task, &o, NULL, &error), "%s", error.text);
    cr_assert_eq(m.calls, 4 * (SAMPLES - 1) / 4);
    for (uint64_t call = 5; call < m.calls; call++) /* the first step had calls 0 to 3 */
        cr_expect_eq(requests_at[call], requests_at[4], "call %d", (int)call);
    fv_params_free(m.params);
}

/* Samples without rows are left out of the mean, a batch of nothing else teaches nothing. */
Test(fit, samples_without_rows)
{
    fv_error error = {FV_OK, ""};
    fv_fit_result result;
    toy m;
    make(&m);
    const uint64_t before = digest(m.params);
    for (size_t s = 1; s < 10; s++)
        m.offsets[s] = 0;
    cr_assert(fit_with(&m, (fv_fit_opts){.batch.batch_rows = 12}, &result, &error), "%s",
              error.text);
    cr_expect(result.loss > 0 && isfinite(result.loss));
    fv_params_free(m.params);
    make(&m);
    memset(m.offsets, 0, sizeof m.offsets);
    cr_assert(fit_with(&m, (fv_fit_opts){.epochs = 2}, &result, &error), "%s", error.text);
    cr_expect(result.steps > 0 && result.loss == 0);
    cr_expect_eq(digest(m.params), before);
    int32_t none = 7;
    const fv_task task = {&m, SAMPLES, m.offsets, NULL, scores, false, NULL};
    cr_assert(fv_predict(&task, 2, &none, NULL, &error), "%s", error.text);
    cr_expect_eq(none, 7);
    fv_params_free(m.params);
}

Test(fit, one_sample_and_none)
{
    fv_error error = {FV_OK, ""};
    fv_fit_result result;
    int32_t labels[9];
    toy m;
    make(&m);
    fv_task task = {&m, 1, m.offsets, loss, scores, false, NULL};
    cr_assert(fv_fit(m.params, &task, NULL, &result, &error), "%s", error.text);
    cr_expect_eq(result.steps, 1);
    cr_assert(fv_predict(&task, 8, labels, NULL, &error), "%s", error.text);
    task.samples = 0;
    cr_assert(fv_predict(&task, 8, NULL, NULL, &error), "%s", error.text);
    cr_expect_not(fv_fit(m.params, &task, NULL, &result, &error));
    cr_expect_str_eq(error.text, "fit: the task has no samples or no loss");
    fv_params_free(m.params);
}

static fv_var *loss_over_nan(const void *model, fv_tape *t, const size_t *samples, size_t count,
                             double *weight)
{
    fv_var *y = loss(model, t, samples, count, weight);
    *weight = (double)NAN;
    return y;
}

static fv_var *no_classes(const void *model, fv_tape *t, const size_t *samples, size_t count)
{
    static const fv_real nothing[1];
    const toy *m = model;
    return fv_constant(t, FV_SHAPE(m->offsets[samples[count - 1] + 1] - m->offsets[samples[0]], 0),
                       nothing);
}

Test(fit, refuses_what_makes_no_sense)
{
    int32_t labels[SAMPLES * 9];
    double probability[SAMPLES * 9];
    fv_error error = {FV_OK, ""};
    toy m;
    make(&m);
    fv_task task = {&m, SAMPLES, m.offsets, loss_over_nan, no_classes, false, NULL};
    cr_expect_not(fv_fit(m.params, &task, NULL, NULL, &error));
    cr_expect_str_eq(error.text, "step 0: the loss is a sum over nan, expected 0 or more");
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_predict(&task, 1, labels, probability, &error));
    cr_expect(strstr(error.text, "the scores are not"), "%s", error.text);
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_predict(&task, 1, NULL, NULL, &error));
    cr_expect_str_eq(error.text, "predict: no scores, or no room for labels");
    m.offsets[1] = 7;
    m.offsets[2] = 3;
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_fit(m.params, &task, NULL, NULL, &error));
    cr_expect_str_eq(error.text, "fit: the task's samples: segments: offset 2 falls from 7 to 3");
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_predict(&task, 1, labels, NULL, &error));
    cr_expect(strstr(error.text, "predict: the task's samples: segments: offset 2 falls"));
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_predict(NULL, 1, labels, NULL, &error));
    cr_expect_str_eq(error.text, "predict: no task, or one without offsets");
    error = (fv_error){FV_OK, ""};
    cr_expect_not(fv_optimizer_step(NULL, NULL, 0, 1, 1, 0, 1, NULL, &error));
    cr_expect_eq(error.status, FV_USAGE);
    fv_params_free(m.params);
}

/* One shard after the other: the memory is that of the largest, and of gradients for each. */
Test(fit, shards_share_the_memory_of_values)
{
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        toy m;
        fv_error error = {FV_OK, ""};
        fv_fit_result result;
        make(&m);
        const fv_fit_opts o = {
            .threads = 1, .shards = i == 0 ? 1 : 8, .batch = {.batch_rows = SAMPLES * 9}};
        cr_assert(fit_with(&m, o, &result, &error), "%s", error.text);
        bytes[i] = result.tape_bytes;
        fv_params_free(m.params);
    }
    cr_expect_lt(bytes[1], bytes[0] / 2, "%zu bytes with 8 shards, %zu with one", bytes[1],
                 bytes[0]);
}

Test(fit, predict_is_the_same_alone_and_in_chunks)
{
    toy m;
    int32_t labels[SAMPLES * 9], alone[9];
    double probability[SAMPLES * 9];
    fv_error error = {FV_OK, ""};
    make(&m);
    const fv_task task = {&m, SAMPLES, m.offsets, NULL, scores, false, NULL};
    cr_assert(fv_predict(&task, 2, labels, probability, &error), "%s", error.text);
    fv_tape *t = fv_tape_new(NULL);
    for (size_t s = 0; s < SAMPLES; s++) {
        fv_tape_begin(t, FV_EVAL, 0, 0);
        fv_argmax_rows(scores(&m, t, &s, 1), alone);
        for (size_t r = m.offsets[s]; r < m.offsets[s + 1]; r++) {
            cr_expect_eq(alone[r - m.offsets[s]], labels[r]);
            cr_expect(probability[r] > 1.0 / CLASSES - 1e-6 && probability[r] <= 1);
        }
    }
    fv_tape_free(t);
    const fv_task wrong = {&m, SAMPLES, m.offsets, NULL, scores, true, NULL};
    cr_expect_not(fv_predict(&wrong, 1, labels, NULL, &error));
    cr_expect(strstr(error.text, "the scores are not"), "%s", error.text);
    fv_params_free(m.params);
}
