/* Checkpoints: parameters, optimiser state and a JSON object in one .npz.
 *
 *   <parameter>.npy                    its values
 *   optimizer/<slot>/<parameter>.npy   its optimiser state, say optimizer/exp_avg/head.weight.npy
 *   optimizer/steps.npy                updates taken so far, one '<u8'
 *   meta.json                          the caller's object
 *
 * A file that numpy wrote anew (numpy.savez of what numpy.load gave) is read as well: there the JSON is an
 * array of bytes, meta.json.npy. */
#include "train/files/checkpoint.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define META      "meta.json"
#define OPTIMIZER "optimizer/"
#define NPY       ".npy"
#define STEPS     OPTIMIZER "steps" NPY

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Calls visit for every tensor a checkpoint holds, with the name of its member, until one says false. */
typedef bool (*visitor)(void *context, const char *name, fv_tensor x);
static bool each_tensor(const fv_params *params, const fv_optimizer *optimizer, visitor visit,
                        void *context)
{
    char name[FVI_ZIP_NAME_MAX + 2]; /* a longer one is cut, and still too long for a zip */
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const fv_param *p = fv_params_at(params, i);
        snprintf(name, sizeof name, "%s" NPY, p->name);
        if (!visit(context, name, p->value))
            return false;
    }
    for (int slot = 0; optimizer != NULL && slot < fv_optimizer_slots(optimizer); slot++)
        for (size_t i = 0; i < fv_params_count(params); i++) {
            const fv_param *p = fv_params_at(params, i);
            const fv_tensor state = fv_optimizer_slot(optimizer, slot, p);
            snprintf(name, sizeof name, OPTIMIZER "%s/%s" NPY,
                     fv_optimizer_slot_name(optimizer, slot), p->name);
            if (state.data != NULL && !visit(context, name, state))
                return false;
        }
    return true;
}

/* The JSON must be an object, on both ways: what could not be read is not written. */
static bool check_json(const char *path, const char *json, size_t length, fv_status status,
                       fv_error *error)
{
    json_error_t why = {.text = "expected an object"};
    json_t *value = json_loadb(json, length, JSON_REJECT_DUPLICATES, &why);
    const bool ok = json_is_object(value);
    if (value != NULL && !ok)
        fv_fail(error, status, "%s: " META ": not a JSON object", path);
    else if (!ok)
        fv_fail(error, status, "%s: " META ": line %d, column %d: %s", path, why.line, why.column,
                why.text);
    json_decref(value);
    return ok;
}

/* ---- saving ---------------------------------------------------------------------------------------- */

typedef struct {
    fvi_zip_writer zip;
    fvi_bytes npy; /* of one member after the other */
} saving;

static bool add_npy(saving *s, const char *name, bool written)
{
    if (!written)
        return fv_fail(s->zip.error, FV_FAILED, "%s: %s: out of memory", s->zip.path, name);
    return fvi_zip_add(&s->zip, name, s->npy.at, s->npy.length, FVI_NUMBERS);
}

static bool add_tensor(void *context, const char *name, fv_tensor x)
{
    saving *s = context;
    s->npy.length = 0;
    return add_npy(s, name, fvi_npy_write(&s->npy, x));
}

static bool add_steps(saving *s, uint64_t steps)
{
    s->npy.length = 0;
    return add_npy(s, STEPS, fvi_npy_write_u64(&s->npy, steps));
}

/* A parameter must not be taken for what else a checkpoint holds. */
static bool check_names(const char *path, const fv_params *params, fv_error *error)
{
    for (size_t i = 0; i < fv_params_count(params); i++) {
        const char *name = fv_params_at(params, i)->name;
        if (starts(name, OPTIMIZER) || strcmp(name, META) == 0)
            return fv_fail(error, FV_USAGE, "%s: %s: no parameter may be called so", path, name);
    }
    return true;
}

bool fvi_checkpoint_save_by(const fvi_system *system, const char *path, const fv_params *params,
                            const fv_optimizer *optimizer, const char *json, fv_error *error)
{
    saving s = {.zip = {.path = path, .error = error}};
    if (json == NULL)
        json = "{}";
    const size_t length = strlen(json);
    const bool ok = check_json(path, json, length, FV_USAGE, error) &&
                    check_names(path, params, error) &&
                    each_tensor(params, optimizer, add_tensor, &s) &&
                    (optimizer == NULL || add_steps(&s, fv_optimizer_steps(optimizer))) &&
                    fvi_zip_add(&s.zip, META, json, length, FVI_TEXT) && fvi_zip_end(&s.zip) &&
                    fvi_write_file_by(system, path, s.zip.file.at, s.zip.file.length, error);
    fvi_zip_writer_free(&s.zip);
    fvi_bytes_free(&s.npy);
    return ok;
}

bool fv_checkpoint_save(const char *path, const fv_params *params, const fv_optimizer *optimizer,
                        const char *json, fv_error *error)
{
    return fvi_checkpoint_save_by(&fvi_system_real, path, params, optimizer, json, error);
}

/* ---- opening --------------------------------------------------------------------------------------- */

/* A member as it was unpacked. */
typedef struct {
    unsigned char *bytes; /* and a NUL behind them */
    fvi_npy npy;          /* of arrays */
} content;

struct fv_checkpoint {
    char *path;
    fvi_zip zip;       /* names and sizes of the members; its bytes are gone after opening */
    content *contents; /* [zip.count] */
    const char *json;  /* points into a content, or is "{}" */
    size_t params;     /* members that are a parameter */
    size_t states;     /* and of an optimiser, without its steps */
};

/* An array: its header, and whether its type is the one its name calls for. */
static bool open_array(fv_checkpoint *c, const fvi_member *m, content *to, fv_error *error)
{
    fvi_npy *npy = &to->npy;
    char kind = 'f';
    if (!fvi_npy_parse(npy, c->path, m->name, to->bytes, m->length, error))
        return false;
    if (strcmp(m->name, META NPY) == 0)
        kind = 'S';
    else if (strcmp(m->name, STEPS) == 0)
        kind = 'u';
    if (npy->kind != kind || (kind == 'f' && npy->width < 4) || (kind == 'u' && npy->width != 8) ||
        (kind != 'f' && npy->shape.rank != 0))
        return fv_fail(error, FV_CHECKPOINT, "%s: %s: expected %s", c->path, m->name,
                       kind == 'f'   ? "an array of '<f4' or '<f8'"
                       : kind == 'u' ? "one '<u8'"
                                     : "one text of bytes");
    if (kind == 'S') {
        c->json = (const char *)npy->data;
        return check_json(c->path, c->json, strnlen(c->json, npy->width), FV_CHECKPOINT, error);
    }
    if (kind == 'f' && starts(m->name, OPTIMIZER))
        c->states++;
    else if (kind == 'f')
        c->params++;
    return true;
}

static bool open_member(fv_checkpoint *c, const fvi_member *m, content *to, fv_error *error)
{
    const size_t name = strlen(m->name), npy = strlen(NPY);
    size_t room;
    if (!fvi_add(m->length, 1, &room) || (to->bytes = fvi_resize(NULL, room, 1)) == NULL)
        return fv_fail(error, FV_FAILED, "%s: %s: out of memory for %zu bytes", c->path, m->name,
                       m->length);
    to->bytes[m->length] = 0;
    if (!fvi_zip_unpack(&c->zip, m, to->bytes, error))
        return false;
    if (name > npy && strcmp(m->name + name - npy, NPY) == 0)
        return open_array(c, m, to, error);
    if (strcmp(m->name, META) != 0)
        return fv_fail(error, FV_CHECKPOINT, "%s: %s: expected arrays (.npy) and " META " only",
                       c->path, m->name);
    c->json = (const char *)to->bytes;
    return check_json(c->path, c->json, m->length, FV_CHECKPOINT, error);
}

static bool open_members(fv_checkpoint *c, const void *bytes, size_t length, fv_error *error)
{
    if (!fvi_zip_parse(&c->zip, c->path, bytes, length, error))
        return false;
    c->contents = fvi_calloc(c->zip.count + 1, sizeof *c->contents); /* never none */
    if (c->contents == NULL)
        return fv_fail(error, FV_FAILED, "%s: out of memory for %zu members", c->path,
                       c->zip.count);
    for (size_t i = 0; i < c->zip.count; i++)
        if (!open_member(c, &c->zip.members[i], &c->contents[i], error))
            return false;
    return fvi_zip_check_whole(&c->zip, error);
}

fv_checkpoint *fvi_checkpoint_parse(const char *path, const void *bytes, size_t length,
                                    fv_error *error)
{
    fv_checkpoint *c = fvi_calloc(1, sizeof *c);
    if (c == NULL || (c->path = fvi_text(path, strlen(path))) == NULL)
        fv_fail(error, FV_FAILED, "%s: out of memory", path);
    else if (c->json = "{}", open_members(c, bytes, length, error))
        return c;
    fv_checkpoint_close(c);
    return NULL;
}

fv_checkpoint *fv_checkpoint_open(const char *path, fv_error *error)
{
    size_t length;
    char *bytes = fvi_read_regular(path, &length, error, FV_CHECKPOINT);
    if (bytes == NULL)
        return NULL;
    fv_checkpoint *c = fvi_checkpoint_parse(path, bytes, length, error);
    fvi_free(bytes);
    return c;
}

size_t fv_checkpoint_numbers(const fv_checkpoint *checkpoint)
{
    size_t numbers = 0;
    for (size_t i = 0; i < checkpoint->zip.count; i++)
        numbers += checkpoint->contents[i].npy.count;
    return numbers;
}

const char *fv_checkpoint_json(const fv_checkpoint *checkpoint)
{
    return checkpoint->json;
}

void fv_checkpoint_close(fv_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (size_t i = 0; i < checkpoint->zip.count && checkpoint->contents != NULL; i++)
        fvi_free(checkpoint->contents[i].bytes);
    fvi_free(checkpoint->contents);
    fvi_zip_free(&checkpoint->zip);
    fvi_free(checkpoint->path);
    fvi_free(checkpoint);
}

/* ---- restoring ------------------------------------------------------------------------------------- */

static int compare_name(const void *name, const void *member)
{
    return strcmp(name, ((const fvi_member *)member)->name);
}

/* NULL when there is no such member. */
static const fvi_npy *find(const fv_checkpoint *c, const char *name)
{
    const fvi_member *m =
        bsearch(name, c->zip.members, c->zip.count, sizeof *c->zip.members, compare_name);
    return m ? &c->contents[m - c->zip.members].npy : NULL;
}

/* A walk over what the model asks of the file. */
typedef struct {
    const fv_checkpoint *file;
    size_t found;
    fv_error *error;
} restoring;

static int without_npy(const char *name)
{
    return (int)(strlen(name) - strlen(NPY));
}

static bool check_tensor(void *context, const char *name, fv_tensor x)
{
    restoring *r = context;
    char in_file[160], in_model[160];
    const fvi_npy *npy = find(r->file, name);
    fv_shape_text(x.shape, in_model);
    if (npy == NULL || npy->kind != 'f')
        return fv_fail(r->error, FV_CHECKPOINT,
                       "%s: %.*s: missing in the file, shape %s in the model", r->file->path,
                       without_npy(name), name, in_model);
    if (!fv_shape_equal(npy->shape, x.shape))
        return fv_fail(r->error, FV_CHECKPOINT, "%s: %.*s: shape %s in the file, %s in the model",
                       r->file->path, without_npy(name), name, fv_shape_text(npy->shape, in_file),
                       in_model);
    r->found++;
    return true;
}

static bool differs(void *context, const char *name, fv_tensor x)
{
    (void)x;
    return strcmp(context, name) != 0;
}

/* Names the first tensor of the file that the model does not have. */
static bool fail_surplus(const restoring *r, const fv_params *params, const fv_optimizer *optimizer)
{
    const fv_checkpoint *c = r->file;
    char name[FVI_ZIP_NAME_MAX + 1], text[160];
    for (size_t i = 0; i < c->zip.count; i++) {
        const fvi_npy *npy = &c->contents[i].npy;
        snprintf(name, sizeof name, "%s", c->zip.members[i].name);
        if (npy->kind == 'f' && (optimizer != NULL || !starts(name, OPTIMIZER)) &&
            each_tensor(params, optimizer, differs, name))
            return fv_fail(r->error, FV_CHECKPOINT,
                           "%s: %.*s: shape %s in the file, none in the model", c->path,
                           without_npy(name), name, fv_shape_text(npy->shape, text));
    }
    return false;
}

static bool copy_tensor(void *context, const char *name, fv_tensor x)
{
    const restoring *r = context;
    fvi_npy_copy(find(r->file, name), x.data);
    return true;
}

bool fv_checkpoint_restore(const fv_checkpoint *checkpoint, fv_params *params,
                           fv_optimizer *optimizer, fv_error *error)
{
    restoring r = {.file = checkpoint, .error = error};
    const fvi_npy *steps = find(checkpoint, STEPS);
    if (optimizer != NULL && steps == NULL)
        return fv_fail(error, FV_CHECKPOINT, "%s: holds no state of an optimiser",
                       checkpoint->path);
    if (!each_tensor(params, optimizer, check_tensor, &r))
        return false;
    if (r.found < checkpoint->params + (optimizer != NULL ? checkpoint->states : 0))
        return fail_surplus(&r, params, NULL) || /* a parameter first: it says more */
               (optimizer != NULL && fail_surplus(&r, params, optimizer));
    each_tensor(params, optimizer, copy_tensor, &r);
    if (optimizer != NULL)
        fv_optimizer_set_steps(optimizer, fvi_get(steps->data, 8));
    return true;
}
