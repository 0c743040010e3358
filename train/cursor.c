/* The cursor of a run as JSON, and the check that a resumed run is the same run. */
#include "train/cursor.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"

/* What decides the numbers of a run: it may not change between stop and resume. Threads may. */
static json_t *options_json(const fv_fit_opts *o, const fv_optimizer_opts *p)
{
    return json_pack("{s:i, s:I, s:I, s:b, s:I, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:b, s:i, "
                     "s:f, s:f, s:f}",
                     "epochs", o->epochs, "batch_rows", (json_int_t)o->batch.batch_rows,
                     "batch_samples", (json_int_t)o->batch.batch_samples, "keep_order",
                     (int)o->batch.keep_order, "seed", (json_int_t)o->seed, "shards", o->shards,
                     "optimizer", (int)p->kind, "lr", p->lr, "beta1", p->beta1, "beta2", p->beta2,
                     "eps", p->eps, "weight_decay", p->weight_decay, "momentum", p->momentum,
                     "nesterov", (int)p->nesterov, "schedule", (int)o->schedule.kind, "warmup",
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

char *fvi_cursor_to_json(const fvi_cursor *c, const fv_fit_opts *opts,
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
        "scored", (int)c->scored, "options", options_json(opts, optimizer), "model", meta);
    return dump_and_free(whole, error);
}

char *fvi_metrics_line(const fvi_cursor *c, double seconds, fv_error *error)
{
    json_t *line =
        json_pack("{s:i, s:I, s:f, s:f, s:f}", "epoch", c->epoch, "step", (json_int_t)c->step,
                  "loss", c->last_loss, "score", c->score, "seconds", seconds);
    return dump_and_free(line, error);
}

/* Names the first option that differs from the run in the checkpoint. */
static bool same_options(const json_t *was, const json_t *now, const char *path, fv_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        const json_t *old = json_object_get(was, key);
        if (old == NULL || json_number_value(old) != json_number_value(value) ||
            json_is_true(old) != json_is_true(value))
            return fv_fail(error, FV_CHECKPOINT,
                           "%s: was trained with %s %g, now it is %g: resume with the same options",
                           path, key,
                           json_is_boolean(old) ? json_is_true(old) : json_number_value(old),
                           json_is_boolean(value) ? json_is_true(value) : json_number_value(value));
    }
    return true;
}

bool fvi_cursor_from_json(fvi_cursor *c, const char *text, const fv_fit_opts *opts,
                          const fv_optimizer_opts *optimizer, const char *path, fv_error *error)
{
    json_t *whole = json_loads(text, JSON_REJECT_DUPLICATES, NULL),
           *now = options_json(opts, optimizer);
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
    ok = ok && same_options(json_object_get(whole, "options"), now, path, error);
    json_decref(now);
    json_decref(whole);
    return ok;
}
