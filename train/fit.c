/* fv_fit: batches cut into shards, one tape a shard, gradients summed in a fixed tree. */
#include <math.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "autograd/internal.h"
#include "train/cursor.h"
#include "train/files/files.h"
#include "train/internal.h"
#include "train/report/decimal.h"

/* What one call of fv_fit holds while it runs. */
typedef struct {
    fv_params *params;
    const fv_task *task;
    fv_fit_opts o;
    fv_optimizer *optimizer;
    size_t *rows;      /* [samples] */
    fv_tape **tapes;   /* [shards] */
    fvi_arena *memory; /* [threads]: of the values of the shard that a thread is at */
    size_t *cuts;      /* [shards + 1] into the samples of a batch */
    double *losses;    /* [shards] */
    double *weights;   /* [shards] */
    uint64_t total;    /* updates in all epochs */
    fvi_cursor at;
    fv_progress bar;
    fv_error *error;
} run;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool resolve(fv_fit_opts *o, const fv_task *task, fv_error *error)
{
    if (!fvi_task_check(task, "fit", error))
        return false;
    if (task->loss == NULL || task->samples == 0)
        return fv_fail(error, FV_USAGE, "fit: the task has no samples or no loss");
    o->epochs = o->epochs ? o->epochs : 1;
    o->shards = o->shards ? o->shards : 4;
    o->threads = o->threads ? o->threads : fv_threads_available();
    if (o->epochs < 0 || o->threads < 0)
        return fv_fail(error, FV_USAGE, "fit: %d epochs with %d threads", o->epochs, o->threads);
    if (o->shards < 1 || o->shards > 4096 || (o->shards & (o->shards - 1)) != 0)
        return fv_fail(error, FV_USAGE, "fit: %d shards, expected a power of two up to 4096",
                       o->shards);
    if (o->resume && o->checkpoint == NULL)
        return fv_fail(error, FV_USAGE, "fit: resume without a checkpoint");
    return fvi_schedule_check(&o->schedule, error) &&
           (o->checkpoint == NULL || fvi_can_write_file(o->checkpoint, error)) &&
           (o->metrics == NULL || fvi_can_write_file(o->metrics, error));
}

static bool make_batches(run *r, int epoch, fv_batches *batches)
{
    return fv_batches_make(batches, r->task->samples, r->rows, &r->o.batch, r->o.seed,
                           (uint64_t)epoch, r->error);
}

static bool count_steps(run *r)
{
    for (int epoch = 0; epoch < r->o.epochs; epoch++) {
        fv_batches batches = {0};
        if (!make_batches(r, epoch, &batches))
            return false;
        r->total += batches.count;
        fv_batches_free(&batches);
    }
    return true;
}

static bool prepare(run *r)
{
    const size_t shards = (size_t)r->o.shards;
    r->optimizer = fv_optimizer_new(r->params, &r->o.optimizer, r->error);
    if (r->optimizer == NULL)
        return false;
    r->rows = fvi_calloc(r->task->samples, sizeof *r->rows);
    r->tapes = fvi_calloc(shards, sizeof(fv_tape *));
    r->memory = fvi_calloc((size_t)r->o.threads, sizeof *r->memory);
    r->cuts = fvi_calloc(shards + 1, sizeof *r->cuts);
    r->losses = fvi_calloc(shards, sizeof *r->losses);
    r->weights = fvi_calloc(shards, sizeof *r->weights);
    const fv_tape_opts inside = {.threads = shards == 1 ? r->o.threads : 1};
    bool ok = r->rows && r->tapes && r->memory && r->cuts && r->losses && r->weights;
    for (size_t s = 0; ok && s < r->task->samples; s++)
        r->rows[s] = r->task->offsets[s + 1] - r->task->offsets[s];
    for (size_t s = 0; ok && s < shards; s++) {
        ok = (r->tapes[s] = fv_tape_new(&inside)) != NULL;
        if (ok)
            r->tapes[s]->shards = r->o.shards;
    }
    return ok ? count_steps(r) : fv_fail(r->error, FV_FAILED, "fit: out of memory");
}

static void release(run *r)
{
    for (int s = 0; r->tapes != NULL && s < r->o.shards; s++)
        fv_tape_free(r->tapes[s]);
    for (int i = 0; r->memory != NULL && i < r->o.threads; i++)
        fvi_arena_free(&r->memory[i]);
    fvi_free(r->rows);
    fvi_free(r->tapes);
    fvi_free(r->memory);
    fvi_free(r->cuts);
    fvi_free(r->losses);
    fvi_free(r->weights);
    fv_optimizer_free(r->optimizer);
}

/* ---- checkpoints --------------------------------------------------------------------------------- */

static char *cursor_json(run *r)
{
    return fvi_cursor_to_json(&r->at, r->task, &r->o, fv_optimizer_get(r->optimizer), r->error);
}

static bool save(run *r)
{
    if (r->o.checkpoint == NULL)
        return true;
    char *json = cursor_json(r);
    bool ok = json != NULL &&
              fv_checkpoint_save(r->o.checkpoint, r->params, r->optimizer, json, r->error);
    fvi_free(json);
    return ok;
}

static bool resume(run *r)
{
    if (!r->o.resume || access(r->o.checkpoint, F_OK) != 0)
        return true;
    char *now = cursor_json(r);
    fv_checkpoint *file = now ? fv_checkpoint_open(r->o.checkpoint, r->error) : NULL;
    bool ok =
        file != NULL &&
        fvi_cursor_from_json(&r->at, fv_checkpoint_json(file), now, r->o.checkpoint, r->error) &&
        fv_checkpoint_restore(file, r->params, r->optimizer, r->error);
    fv_checkpoint_close(file);
    fvi_free(now);
    return ok;
}

/* ---- one step -------------------------------------------------------------------------------------- */

/* Cuts a batch into runs of samples with about equal rows: a function of the batch alone. */
static void cut(run *r, const size_t *samples, size_t count)
{
    const size_t shards = (size_t)r->o.shards;
    double rows = 0, seen = 0;
    size_t shard = 0;
    for (size_t i = 0; i < count; i++)
        rows += (double)r->rows[samples[i]];
    r->cuts[0] = 0;
    for (size_t i = 0; i < count; i++) {
        /* a sample belongs to the shard that its middle falls into */
        double middle = seen + (double)r->rows[samples[i]] / 2;
        seen += (double)r->rows[samples[i]];
        while (shard + 1 < shards && middle * (double)shards >= rows * (double)(shard + 1))
            r->cuts[++shard] = i;
    }
    while (shard < shards)
        r->cuts[++shard] = count;
}

/* The values of one shard after the other stand in a thread's memory, which the cache then holds; what is
 * left of a shard is its loss and its gradients. */
static void run_shard(run *r, const size_t *samples, size_t s, fvi_arena *memory)
{
    fv_tape *t = r->tapes[s];
    const size_t count = r->cuts[s + 1] - r->cuts[s];
    r->weights[s] = 0;
    r->losses[s] = 0;
    fvi_tape_swap(t, memory);
    fv_tape_begin(t, FV_TRAIN, r->o.seed, r->at.step * (uint64_t)r->o.shards + s);
    if (count > 0) {
        fv_var *loss =
            r->task->loss(r->task->model, t, samples + r->cuts[s], count, &r->weights[s]);
        if (fv_backward(t, loss))
            r->losses[s] = (double)fv_re(loss->value.data[0]);
    }
    fvi_tape_swap(t, memory);
}

/* A single shard has the threads inside its kernels. It must not run in a parallel region, not even of one
 * thread: those of its kernels would be nested, and OpenMP makes new threads for each of them. */
static void run_shards(run *r, const size_t *samples)
{
    if (r->o.shards == 1) {
        run_shard(r, samples, 0, r->memory);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(r->o.threads) if (r->o.threads > 1)
    for (int s = 0; s < r->o.shards; s++) {
#ifdef _OPENMP
        const int thread = omp_get_thread_num();
#else
        const int thread = 0;
#endif
        run_shard(r, samples, (size_t)s, &r->memory[thread]);
    }
}

/* Forward, backward, update. The loss and its weight are added to the epoch's. */
static bool step(run *r, const size_t *samples, size_t count)
{
    const int shards = r->o.shards;
    double loss = 0, weight = 0;
    char text[FVI_NUMBER];
    cut(r, samples, count);
    run_shards(r, samples);
    for (int s = 0; s < shards; s++) {
        if (!fv_tape_ok(r->tapes[s])) {
            const fv_error *why = fv_tape_error(r->tapes[s]);
            return fv_fail(r->error, why->status, "step %llu: %s", (unsigned long long)r->at.step,
                           why->text);
        }
        loss += r->losses[s];
        weight += r->weights[s];
    }
    if (!(weight >= 0 && isfinite(weight)))
        return fv_fail(r->error, FV_USAGE,
                       "step %llu: the loss is a sum over %s, expected 0 or more",
                       (unsigned long long)r->at.step, fvi_number(text, weight, 6));
    if (weight == 0) { /* nothing to learn from, say, a batch without labels */
        r->at.step++;
        return true;
    }
    const double rate =
        fv_optimizer_get(r->optimizer)->lr * fv_schedule_at(&r->o.schedule, r->at.step, r->total);
    if (!fv_optimizer_step(r->optimizer, r->tapes, shards, 1 / weight, rate, r->o.clip,
                           r->o.threads, NULL, r->error))
        return false;
    r->at.step++;
    r->at.loss += loss;
    r->at.weight += weight;
    return true;
}

static bool stopped(run *r)
{
    if (r->o.stop == NULL || *r->o.stop == 0)
        return false;
    if (save(r))
        fv_fail(r->error, FV_INTERRUPTED, "stopped after step %llu of %llu%s%s",
                (unsigned long long)r->at.step, (unsigned long long)r->total,
                r->o.checkpoint ? ", saved to " : "", r->o.checkpoint ? r->o.checkpoint : "");
    return true;
}

/* "epoch 3/8  loss 1.2345  dev 95.06 %" for the progress bar. */
static void describe(const run *r, int epoch, double loss, bool scored, char text[120])
{
    char a[40], b[40];
    fvi_decimal(a, loss, 4);
    fvi_decimal(b, 100 * r->at.score, 2);
    if (scored)
        snprintf(text, 120, "epoch %d/%d  loss %s  dev %s %%", epoch, r->o.epochs, a, b);
    else
        snprintf(text, 120, "epoch %d/%d  loss %s", epoch, r->o.epochs, a);
}

static bool epoch_batches(run *r, const fv_batches *batches)
{
    while (r->at.batch < batches->count) {
        const size_t first = batches->offsets[r->at.batch], end = batches->offsets[r->at.batch + 1];
        if (!step(r, batches->order + first, end - first))
            return false;
        r->at.batch++;
        if (r->o.progress != NULL) {
            char text[120];
            describe(r, r->at.epoch + 1, r->at.weight > 0 ? r->at.loss / r->at.weight : 0, false,
                     text);
            fv_progress_update(&r->bar, r->at.step, text);
        }
        const bool last = r->at.batch == batches->count;
        if (!last && r->o.save_every > 0 && r->at.step % r->o.save_every == 0 && !save(r))
            return false;
        if (!last && stopped(r))
            return false;
    }
    return true;
}

/* ---- epochs ---------------------------------------------------------------------------------------- */

static bool report(run *r, double started)
{
    if (r->o.metrics == NULL)
        return true;
    char *line = fvi_metrics_line(&r->at, now() - started, r->error);
    bool ok = line != NULL && fv_metrics_append(r->o.metrics, line, r->error);
    fvi_free(line);
    return ok;
}

static void finish_epoch(run *r)
{
    r->at.last_loss = r->at.weight > 0 ? r->at.loss / r->at.weight : 0;
    r->at.loss = r->at.weight = 0;
    r->at.batch = 0;
    r->at.epoch++;
    if (r->task->evaluate == NULL)
        return;
    r->at.score = r->task->evaluate(r->task->model);
    if (!r->at.scored || r->at.score > r->at.best)
        r->at.best = r->at.score;
    r->at.scored = true;
}

static bool epochs(run *r, double started)
{
    while (r->at.epoch < r->o.epochs) {
        fv_batches batches = {0};
        if (!make_batches(r, r->at.epoch, &batches))
            return false;
        bool ok = epoch_batches(r, &batches);
        fv_batches_free(&batches);
        if (!ok)
            return false;
        finish_epoch(r);
        if (r->o.progress != NULL) {
            char text[120];
            describe(r, r->at.epoch, r->at.last_loss, r->at.scored, text);
            fv_progress_end(&r->bar, text);
            if (r->at.epoch < r->o.epochs)
                fv_progress_begin(&r->bar, r->o.progress, r->at.step, r->total);
        }
        /* the metrics first: a line too many is cut on resume, one too few would be lost */
        if (!report(r, started) || !save(r))
            return false;
        if (r->at.epoch < r->o.epochs && stopped(r))
            return false;
    }
    return true;
}

bool fv_fit(fv_params *params, const fv_task *task, const fv_fit_opts *opts, fv_fit_result *result,
            fv_error *error)
{
    fv_error own = {FV_OK, ""};
    fv_fit_result ignored;
    run r = {.params = params, .task = task, .error = error ? error : &own};
    if (opts != NULL)
        r.o = *opts;
    if (result == NULL)
        result = &ignored;
    *result = (fv_fit_result){0};
    const double started = now();
    if (params == NULL || fv_params_error(params)->status != FV_OK)
        return fv_fail(r.error, FV_USAGE, "fit: %s",
                       params ? fv_params_error(params)->text : "no parameters");
    bool ok = resolve(&r.o, task, r.error) && prepare(&r) && resume(&r) &&
              (r.o.metrics == NULL || fv_metrics_cut(r.o.metrics, (uint64_t)r.at.epoch, r.error));
    if (ok) {
        if (r.o.progress != NULL)
            fv_progress_begin(&r.bar, r.o.progress, r.at.step, r.total);
        ok = epochs(&r, started);
        if (!ok && r.o.progress != NULL)
            fv_progress_end(&r.bar, NULL);
    }
    *result = (fv_fit_result){r.at.step,       r.at.epoch, r.at.last_loss, r.at.score, r.at.best,
                              now() - started, 0};
    for (int s = 0; r.tapes != NULL && s < r.o.shards && r.tapes[s] != NULL; s++) {
        size_t peak;
        fv_tape_bytes(r.tapes[s], &peak);
        result->tape_bytes += peak;
    }
    for (int i = 0; r.memory != NULL && i < r.o.threads; i++)
        result->tape_bytes += r.memory[i].peak;
    release(&r);
    return ok;
}
