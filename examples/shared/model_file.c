/* Settings and vocabularies of a model as JSON, and back with checks. */
#include "examples/shared/model_file.h"

#include <stdlib.h>
#include <string.h>

static void *place(const setting *s, void *options)
{
    return (char *)options + s->at;
}

void settings_resolve(const setting *settings, size_t count, void *options)
{
    for (size_t i = 0; i < count; i++) {
        const setting *s = &settings[i];
        if (s->real) {
            double *x = place(s, options);
            *x = *x < 0 ? 0 : *x > 0 ? *x : s->standard;
        } else {
            long *x = place(s, options);
            *x = *x > 0 ? *x : (long)s->standard;
        }
    }
}

void settings_to_json(const setting *settings, size_t count, const void *options, json_t *object)
{
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)options + settings[i].at;
        json_object_set_new(object, settings[i].name,
                            settings[i].real ? json_real(*(const double *)at)
                                             : json_integer(*(const long *)at));
    }
}

bool settings_from_json(const setting *settings, size_t count, void *options, const json_t *object)
{
    for (size_t i = 0; i < count; i++) {
        const setting *s = &settings[i];
        const json_t *value = json_object_get(object, s->name);
        const double x = json_number_value(value);
        if (!(s->real ? json_is_number(value) : json_is_integer(value)) || x > s->most ||
            x < (s->real ? 0 : 1))
            return false;
        if (s->real)
            *(double *)place(s, options) = x;
        else
            *(long *)place(s, options) = (long)x;
    }
    return true;
}

bool vocab_to_json(const fv_vocab *vocab, const char *name, json_t *object, fv_error *error)
{
    char *text = fv_vocab_to_json(vocab, error);
    json_t *list = text ? json_loads(text, 0, NULL) : NULL;
    fv_memory(text, 0);
    return json_object_set_new(object, name, list) == 0;
}

fv_vocab *vocab_from_json(const char *name, const json_t *object, fv_error *error)
{
    char *text = json_dumps(json_object_get(object, name), JSON_COMPACT);
    fv_vocab *vocab = text ? fv_vocab_from_json(text, error) : NULL;
    free(text);
    return vocab;
}

char *model_json(json_t *object, bool complete, fv_error *error)
{
    char *text = complete ? json_dumps(object, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL)
        fv_fail(error, FV_FAILED, "out of memory for the model's vocabularies");
    return text;
}

bool model_made(const fv_params *params, fv_error *error)
{
    const fv_error *why = fv_params_error(params);
    return why->status == FV_OK || fv_fail(error, why->status, "%s", why->text);
}

const json_t *model_open(const char *path, const char *task, fv_checkpoint **file, json_t **root,
                         fv_error *error)
{
    *root = NULL;
    *file = fv_checkpoint_open(path, error);
    if (*file == NULL)
        return NULL;
    *root = json_loads(fv_checkpoint_json(*file), 0, NULL);
    const json_t *model = json_object_get(*root, "model");
    const char *is = json_string_value(json_object_get(model, "task"));
    if (is != NULL && strcmp(is, task) == 0)
        return model;
    fv_fail(error, FV_CHECKPOINT, "%s: is a model for %s, expected one for %s", path,
            is ? is : "another task", task);
    return NULL;
}

bool model_close(const char *path, fv_checkpoint *file, json_t *root, bool built, fv_params *params,
                 fv_error *error)
{
    fv_error why = {FV_OK, ""};
    const bool ok =
        built && model_made(params, &why) && fv_checkpoint_restore(file, params, NULL, error);
    if (!ok)
        fv_fail(error, FV_CHECKPOINT, "%s: meta.json: %s", path,
                why.status ? why.text : "settings or vocabularies are missing or out of range");
    json_decref(root);
    fv_checkpoint_close(file);
    return ok;
}
