/* The cursor of a run as JSON, and the check that a resumed run is the same run. */
#include "train/cursor.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tensor/internal.h"

/* What decides the numbers of a run: it may not change between stop and resume. Threads may. Of the data
 * it is the number of samples and a checksum of their lengths, in order. */
static json_t *options_json(const fv_task *task, const fv_fit_opts *o, const fv_optimizer_opts *p)
{
    const uLong lengths =
        crc32_z(0, (const Bytef *)task->offsets, (task->samples + 1) * sizeof *task->offsets);
    return json_pack(
        "{s:I, s:I, s:i, s:I, s:I, s:b, s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:i, "
        "s:f, s:f, s:f}",
        "samples", (json_int_t)task->samples, "samples_checksum", (json_int_t)lengths, "epochs",
        o->epochs, "batch_rows", (json_int_t)o->batch.batch_rows, "batch_samples",
        (json_int_t)o->batch.batch_samples, "keep_order", (int)o->batch.keep_order, "seed",
        (json_int_t)o->seed, "shards", o->shards, "optimizer", (int)p->kind, "lr", p->lr, "beta1",
        p->beta1, "beta2", p->beta2, "eps", p->eps, "weight_decay", p->weight_decay, "momentum",
        p->momentum, "nesterov", (int)p->nesterov, "schedule", (int)o->schedule.kind, "warmup",
        o->schedule.warmup, "final", o->schedule.final, "clip", o->clip);
}

/* The text of a value that is then freed; jansson writes numbers alike under every locale. */
static char *dump_and_free(json_t *value, fv_error *error)
{
    char *dump =
        value ? json_dumps(value, JSON_SORT_KEYS | JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    char *text = dump ? fvi_text(dump, strlen(dump)) : NULL;
    free(dump);
    json_decref(value);
    if (text == NULL)
        fv_fail(error, FV_FAILED,
                "fit: out of memory, or a number that is not finite, while writing JSON");
    return text;
}

char *fvi_cursor_to_json(const fvi_cursor *c, const fv_task *task, const fv_fit_opts *opts,
                         const fv_optimizer_opts *optimizer, fv_error *error)
{
    json_error_t why = {.text = ""};
    json_t *meta =
        opts->meta ? json_loads(opts->meta, JSON_REJECT_DUPLICATES, &why) : json_object();
    if (!json_is_object(meta)) {
        json_decref(meta);
        fv_fail(error, FV_USAGE, "fit: the meta text is not a JSON object: %s", why.text);
        return NULL;
    }
    json_t *whole = json_pack(
        "{s:{s:I, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:b}, s:o, s:o}", "cursor", "step",
        (json_int_t)c->step, "epoch", c->epoch, "batch", (json_int_t)c->batch, "loss", c->loss,
        "weight", c->weight, "last_loss", c->last_loss, "score", c->score, "best", c->best,
        "scored", (int)c->scored, "options", options_json(task, opts, optimizer), "model", meta);
    return dump_and_free(whole, error);
}

char *fvi_metrics_line(const fvi_cursor *c, double seconds, fv_error *error)
{
    json_t *line =
        json_pack("{s:i, s:I, s:f, s:f, s:f}", "epoch", c->epoch, "step", (json_int_t)c->step,
                  "loss", c->last_loss, "score", c->score, "seconds", seconds);
    return dump_and_free(line, error);
}

/* What is compared in turn: which task it is, its numbers, its vocabularies. */
typedef enum { TEXTS, NUMBERS, LISTS, KINDS } kind;

static kind kind_of(const json_t *value)
{
    return json_is_string(value) ? TEXTS : json_is_array(value) ? LISTS : NUMBERS;
}

/* Names the first value of a kind in this run that differs in the file. The recursion follows this run's
 * JSON, never the file's. */
static bool same(const json_t *was, const json_t *now, kind compared, const char *path,
                 fv_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *old = json_object_get(was, key);
        if (json_is_object(value) ? same(old, value, compared, path, error)
                                  : kind_of(value) != compared || json_equal(old, value))
            continue;
        if (json_is_object(value))
            return false;
        if (old == NULL)
            return fv_fail(error, FV_CHECKPOINT, "%s: is of another model or version: it has no %s",
                           path, key);
        if (compared == LISTS)
            return fv_fail(error, FV_CHECKPOINT,
                           "%s: was trained with other %s: resume with the same options and data",
                           path, key);
        char *before = json_dumps(old, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)),
             *after = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
        fv_fail(error, FV_CHECKPOINT,
                "%s: was trained with %s %.60s, now it is %.60s: resume with the same options and "
                "data",
                path, key, before ? before : "?", after ? after : "?");
        free(before);
        free(after);
        return false;
    }
    return true;
}

bool fvi_cursor_from_json(fvi_cursor *c, const char *text, const char *current, const char *path,
                          fv_error *error)
{
    json_t *whole = json_loads(text, JSON_REJECT_DUPLICATES, NULL),
           *now = json_loads(current, JSON_REJECT_DUPLICATES, NULL);
    json_int_t step = -1, batch = -1;
    int scored = 0;
    *c = (fvi_cursor){.epoch = -1};
    bool ok = json_unpack(whole, "{s:{s:I, s:i, s:I, s:F, s:F, s:F, s:F, s:F, s:b}}", "cursor",
                          "step", &step, "epoch", &c->epoch, "batch", &batch, "loss", &c->loss,
                          "weight", &c->weight, "last_loss", &c->last_loss, "score", &c->score,
                          "best", &c->best, "scored", &scored) == 0 &&
              step >= 0 && batch >= 0 && c->epoch >= 0;
    if (!ok)
        fv_fail(error, FV_CHECKPOINT, "%s: holds no cursor of a training run to resume", path);
    c->step = (uint64_t)step;
    c->batch = (size_t)batch;
    c->scored = scored != 0;
    json_object_del(now, "cursor");
    for (int k = TEXTS; ok && k < KINDS; k++)
        ok = same(whole, now, (kind)k, path, error);
    json_decref(now);
    json_decref(whole);
    return ok;
}
