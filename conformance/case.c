/* One case: reads case.json and its arrays, runs its nodes in order, compares what came out. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "conformance/conformance.h"
#include "train/files/npz.h"

enum { MOST_VALUES = 200 };
static const double EXACT = 9007199254740992.0; /* 2^53: whole numbers up to it are exact */

static void end_as(outcome *o, verdict v, const char *format, ...) FV_PRINTF(3, 4);
static void end_as(outcome *o, verdict v, const char *format, ...)
{
    va_list args;
    o->verdict = v;
    va_start(args, format);
    vsnprintf(o->text, sizeof o->text, format, args);
    va_end(args);
}

/* ---- reading ------------------------------------------------------------------------------------- */

static const char *word(const json_t *object, const char *name)
{
    const char *found = json_string_value(json_object_get(object, name));
    return found != NULL ? found : "";
}

/* bfloat16 has no type of its own in an .npy file: its bits, as whole numbers, are the upper half of
 * a float's. */
static void from_bfloat(fv_real *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)fv_re(x[i]) << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        x[i] = f;
    }
}

bool read_tensor(fv_tape *t, const char *folder, const json_t *json, fv_tensor *x, fv_error *error)
{
    char path[4096];
    size_t length;
    fvi_npy npy;
    snprintf(path, sizeof path, "%s/%s", folder, word(json, "file"));
    char *bytes = fvi_read_regular(path, &length, error, FV_DATA);
    if (bytes == NULL)
        return false;
    bool ok = fvi_npy_parse(&npy, path, word(json, "name"), (unsigned char *)bytes, length, error);
    if (ok && npy.kind == 'S')
        ok = fv_fail(error, FV_DATA, "%s: texts are not read", path);
    if (ok) {
        *x = (fv_tensor){npy.shape, fv_tape_alloc(t, npy.count + 1, sizeof *x->data)};
        ok = x->data != NULL;
    }
    if (ok) {
        fvi_npy_copy(&npy, x->data);
        if (strcmp(word(json, "dtype"), "bfloat16") == 0)
            from_bfloat(x->data, npy.count);
    }
    fvi_free(bytes);
    return ok || fv_fail(error, FV_FAILED, "%s: out of memory", path);
}

/* The values of "inputs" or of "outputs". *unheld: what of them no tape holds. */
static int read_values(fv_tape *t, const char *folder, const json_t *list, named *values,
                       const char **unheld, fv_error *error)
{
    const int count = (int)json_array_size(list);
    if (!json_is_array(list) || count > MOST) {
        fv_fail(error, FV_DATA, "%s: expected lists of at most %d inputs and outputs", folder,
                MOST);
        return 0;
    }
    for (int i = 0; i < count && error->status == FV_OK; i++) {
        const json_t *entry = json_array_get(list, (size_t)i);
        fv_tensor x;
        values[i] = (named){word(entry, "name"), word(entry, "dtype"), NULL};
        if (json_array_size(json_object_get(entry, "shape")) > FV_MAX_RANK) {
            *unheld = "more than six axes";
            continue;
        }
        if (json_is_true(json_object_get(entry, "absent")) ||
            !read_tensor(t, folder, entry, &x, error))
            continue;
        if (is_float(values[i].type)) {
            values[i].var = fv_input(t, x.shape, x.data);
            continue;
        }
        values[i].var = fv_constant(t, x.shape, x.data);
        for (size_t k = 0, n = fv_shape_count(x.shape); k < n; k++)
            if (fabs(fv_re(x.data[k])) > EXACT)
                *unheld = "whole numbers beyond 2^53, where double is not exact";
    }
    return count;
}

/* ---- running ------------------------------------------------------------------------------------- */

static named *find_value(named *known, int count, const char *name)
{
    for (int i = count - 1; i >= 0; i--)
        if (strcmp(known[i].name, name) == 0)
            return &known[i];
    return NULL;
}

/* One node of a graph: its inputs are looked up among the values known, its outputs added to them. */
static bool run_node(call *c, const char *folder, const json_t *node, int opset, outcome *o)
{
    const json_t *names = json_object_get(node, "inputs"), *outs = json_object_get(node, "outputs");
    c->op = word(node, "op");
    c->opset = opset;
    c->folder = folder;
    c->attributes = json_object_get(node, "attributes");
    c->inputs = (int)json_array_size(names);
    c->outputs = (int)json_array_size(outs);
    if (c->inputs > MOST || c->outputs > MOST || c->known_count + c->outputs > MOST_VALUES)
        return end_as(o, FAILED, "%s: too many values", c->op), false;
    for (int i = 0; i < c->inputs; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        const named *found = find_value(c->known, c->known_count, name != NULL ? name : "");
        c->in[i] = found != NULL ? *found : (named){"", "", NULL};
    }
    const char *type = c->inputs > 0 ? c->in[0].type : "float32";
    for (int i = 0; i < c->outputs; i++) {
        const char *name = json_string_value(json_array_get(outs, (size_t)i));
        c->out[i] = (named){name != NULL ? name : "", type, NULL};
    }
    if (!run_operation(c)) {
        const char *error = fv_tape_error(c->t)->text;
        snprintf(o->op, sizeof o->op, "%s", c->op);
        if (c->lacks != NULL)
            end_as(o, SKIPPED, "%s", c->lacks);
        else
            end_as(o, FAILED, "%s: %s", c->op, *error != 0 ? error : "gave nothing");
        return false;
    }
    for (int i = 0; i < c->outputs; i++)
        c->known[c->known_count++] = c->out[i];
    return true;
}

/* ---- comparing ----------------------------------------------------------------------------------- */

/* Rounded to so many bits of fraction, ties to even, as the type of an output holds it. */
static double round_to(double x, int bits, int least_exponent)
{
    int exponent;
    if (!isfinite(x) || x == 0)
        return x;
    frexp(x, &exponent);
    if (exponent < least_exponent)
        exponent = least_exponent;
    return ldexp(nearbyint(ldexp(x, bits - exponent)), exponent - bits);
}

static double as_type(const char *type, double x)
{
    if (strcmp(type, "float32") == 0)
        return (float)x;
    if (strcmp(type, "float16") == 0)
        return fabs(x) >= 65520 ? copysign((double)INFINITY, x) : round_to(x, 11, -13);
    return strcmp(type, "bfloat16") == 0 ? round_to(x, 8, -125) : x;
}

static bool agree(const char *type, double got, double want, double atol, double rtol)
{
    if (!is_float(type))
        return got == want;
    if (isnan(want) || isnan(got))
        return isnan(want) && isnan(got);
    if (isinf(want) || isinf(got))
        return want == got;
    return fabs(as_type(type, got) - want) <= atol + rtol * fabs(want);
}

static void compare(const named *got, const named *want, int output, const json_t *json, outcome *o)
{
    char ours[160], theirs[160];
    if (got == NULL || got->var == NULL) {
        end_as(o, FAILED, "output %d (%s): nothing came out", output, want->name);
        return;
    }
    const fv_tensor x = got->var->value, y = want->var->value;
    if (!fv_shape_equal(x.shape, y.shape)) {
        end_as(o, FAILED, "output %d (%s): got shape %s, want %s", output, want->name,
               fv_shape_text(x.shape, ours), fv_shape_text(y.shape, theirs));
        return;
    }
    const double atol = json_number_value(json_object_get(json, "atol")),
                 rtol = json_number_value(json_object_get(json, "rtol"));
    for (size_t i = 0, n = fv_shape_count(y.shape); i < n; i++)
        if (!agree(want->type, fv_re(x.data[i]), fv_re(y.data[i]), atol, rtol)) {
            end_as(o, FAILED, "output %d (%s), index %zu of %s: got %.9g, want %.9g", output,
                   want->name, i, fv_shape_text(y.shape, theirs), fv_re(x.data[i]),
                   fv_re(y.data[i]));
            return;
        }
}

static int opset_of(const json_t *json)
{
    return (int)json_integer_value(json_object_get(json, "opset"));
}

static void run_json(fv_tape *t, const char *folder, const json_t *json, outcome *o)
{
    named known[MOST_VALUES], wanted[MOST];
    const char *unheld = NULL;
    fv_error error = {0};
    call c = {.t = t, .known = known};
    snprintf(o->op, sizeof o->op, "%s", word(json, "op"));
    c.known_count = read_values(t, folder, json_object_get(json, "inputs"), known, &unheld, &error);
    const int outputs =
        read_values(t, folder, json_object_get(json, "outputs"), wanted, &unheld, &error);
    if (error.status != FV_OK) {
        end_as(o, FAILED, "%s", error.text);
        return;
    }
    if (unheld != NULL) {
        end_as(o, SKIPPED, "%s", unheld);
        return;
    }
    const json_t *nodes = json_object_get(json, "nodes"), *node;
    size_t i;
    if (nodes != NULL) {
        json_array_foreach(nodes, i,
                           node) if (!run_node(&c, folder, node, opset_of(node), o)) return;
    } else {
        /* A single operator is a graph of one node whose names are numbers. */
        json_t *only = json_object(), *in = json_array(), *out = json_array();
        json_object_set(only, "op", json_object_get(json, "op"));
        json_object_set(only, "attributes", json_object_get(json, "attributes"));
        for (int k = 0; k < c.known_count; k++)
            json_array_append_new(in, json_string(known[k].name));
        for (int k = 0; k < outputs; k++)
            json_array_append_new(out, json_string(wanted[k].name));
        json_object_set_new(only, "inputs", in);
        json_object_set_new(only, "outputs", out);
        const bool ran = run_node(&c, folder, only, opset_of(json), o);
        for (int k = 0; ran && k < outputs && o->verdict == PASSED; k++)
            if (wanted[k].var != NULL)
                compare(&c.out[k], &wanted[k], k, json, o);
        json_decref(only);
        return;
    }
    for (int k = 0; k < outputs && o->verdict == PASSED; k++)
        if (wanted[k].var != NULL)
            compare(find_value(known, c.known_count, wanted[k].name), &wanted[k], k, json, o);
}

void run_case(fv_tape *t, const char *folder, outcome *o)
{
    char path[4096];
    json_error_t where;
    const char *slash = strrchr(folder, '/');
    *o = (outcome){.verdict = PASSED};
    snprintf(o->name, sizeof o->name, "%s", slash != NULL ? slash + 1 : folder);
    snprintf(path, sizeof path, "%s/case.json", folder);
    json_t *json = json_load_file(path, 0, &where);
    if (json == NULL) {
        end_as(o, FAILED, "%s:%d:%d: %s", path, where.line, where.column, where.text);
        return;
    }
    fv_tape_begin(t, FV_GRAD, 1, 1);
    run_json(t, folder, json, o);
    json_decref(json);
}
