/* What a program keeps of its model in a checkpoint's JSON: the task's name, settings, vocabularies. */
#ifndef MODEL_FILE_H
#define MODEL_FILE_H

#include <jansson.h>

#include "fovea.h"

/* One number of a model's options: a whole one (long) or a real one (double). Zero stands for the
 * standard value; FV_NONE stands for a real number that is really zero. */
typedef struct {
    const char *name;
    size_t at; /* in the struct of options */
    bool real;
    double standard, most; /* whole numbers go from 1 to most */
} setting;

/* Fills in the standard values. */
void settings_resolve(const setting *settings, size_t count, void *options);
void settings_to_json(const setting *settings, size_t count, const void *options, json_t *object);
/* False: a number is missing or out of range. */
bool settings_from_json(const setting *settings, size_t count, void *options, const json_t *object);

bool vocab_to_json(const fv_vocab *vocab, const char *name, json_t *object, fv_error *error);
fv_vocab *vocab_from_json(const char *name, const json_t *object, fv_error *error);
/* The text of a model's JSON, which is then let go; freed with free. NULL and an error otherwise. */
char *model_json(json_t *object, bool complete, fv_error *error);

/* Whether every parameter could be made; says which could not. */
bool model_made(const fv_params *params, fv_error *error);

/* A checkpoint of that task, opened: file and root are to be let go after use. NULL: error says why. */
const json_t *model_open(const char *path, const char *task, fv_checkpoint **file, json_t **root,
                         fv_error *error);
/* Values from the file into a model that was just made; frees file and root. Says that the file is
 * damaged when built is false and no error explains it. */
bool model_close(const char *path, fv_checkpoint *file, json_t *root, bool built, fv_params *params,
                 fv_error *error);

#endif
