/* fv_predict: the likeliest labels of all samples, chunks of them side by side. */
#include "train/internal.h"

enum { CHUNK_ROWS = 1024 };

bool fvi_task_check(const fv_task *task, const char *who, fv_error *error)
{
    fv_error why = {FV_OK, ""};
    if (task == NULL || task->offsets == NULL)
        return fv_fail(error, FV_USAGE, "%s: no task, or one without offsets", who);
    const fv_segments samples = {task->samples, task->offsets};
    return fv_segments_check(&samples, task->offsets[task->samples], &why) ||
           fv_fail(error, FV_USAGE, "%s: the task's samples: %s", who, why.text);
}

/* Samples first .. end - 1 on one tape. */
static bool predict_chunk(const fv_task *task, fv_tape *t, const size_t *samples, size_t first,
                          size_t end, int32_t *labels, double *probability)
{
    fv_tape_begin(t, FV_EVAL, 0, 0);
    const fv_var *y = task->scores(task->model, t, samples + first, end - first);
    if (y == NULL || y->value.shape.rank != 2 || y->value.shape.size[1] == 0)
        return false;
    const size_t results = y->value.shape.size[0], classes = y->value.shape.size[1];
    const size_t at = task->per_sample ? first : task->offsets[first];
    if (results != (task->per_sample ? end : task->offsets[end]) - at)
        return false;
    fv_argmax_rows(y, labels + at);
    if (probability == NULL)
        return true;
    const fv_tensor p = fv_softmax_rows(t, y);
    for (size_t i = 0; p.data != NULL && i < results; i++)
        probability[at + i] = (double)fv_re(p.data[i * classes + (size_t)labels[at + i]]);
    return p.data != NULL;
}

/* Cuts the samples into chunks of about CHUNK_ROWS rows; cuts has room for one a sample. How many. */
static size_t cut_chunks(const fv_task *task, size_t *cuts)
{
    size_t chunks = 0;
    for (size_t s = 0, end; s < task->samples; s = end) {
        for (end = s + 1;
             end < task->samples && task->offsets[end + 1] - task->offsets[s] <= CHUNK_ROWS;)
            end++;
        cuts[++chunks] = end;
    }
    return chunks;
}

static void keep_error(const fv_tape *t, fv_error *error)
{
    if (fv_tape_ok(t))
        fv_fail(error, FV_USAGE,
                "predict: the scores are not [rows, classes], or [samples, classes] per sample");
    else
        fv_fail(error, fv_tape_error(t)->status, "predict: %s", fv_tape_error(t)->text);
}

bool fv_predict(const fv_task *task, int threads, int32_t *labels, double *probability,
                fv_error *error)
{
    if (!fvi_task_check(task, "predict", error))
        return false;
    if (task->scores == NULL || (labels == NULL && task->samples > 0))
        return fv_fail(error, FV_USAGE, "predict: no scores, or no room for labels");
    size_t *samples = fvi_calloc(task->samples + 1, sizeof *samples);
    size_t *cuts = fvi_calloc(task->samples + 1, sizeof *cuts);
    bool ok = samples != NULL && cuts != NULL;
    for (size_t s = 0; ok && s < task->samples; s++)
        samples[s] = s;
    const size_t chunks = ok ? cut_chunks(task, cuts) : 0;
    threads = threads > 0 ? threads : fv_threads_available();
    if ((size_t)threads > chunks)
        threads = chunks > 0 ? (int)chunks : 1;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        fv_tape *t = fv_tape_new(NULL);
        bool mine = t != NULL;
#pragma omp for schedule(dynamic, 1)
        for (size_t c = 0; c < chunks; c++)
            mine =
                mine && predict_chunk(task, t, samples, cuts[c], cuts[c + 1], labels, probability);
        if (!mine) {
#pragma omp critical(fvi_predict)
            {
                ok = false;
                if (t != NULL)
                    keep_error(t, error);
            }
        }
        fv_tape_free(t);
    }
    fvi_free(samples);
    fvi_free(cuts);
    return ok || fv_fail(error, FV_FAILED, "predict: out of memory");
}
