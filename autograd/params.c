/* Parameter sets: names, initial values, order. */
#include "autograd/internal.h"

#include <stdarg.h>
#include <string.h>

struct fv_params {
    fv_param **list;
    size_t count, capacity;
    fvi_arena texts; /* prefixes and names */
    uint64_t seed;
    size_t limit; /* of numbers in all; 0: none */
    fv_error error;
};

fv_params *fv_params_new(uint64_t seed)
{
    fv_params *params = fvi_calloc(1, sizeof *params);
    if (params != NULL)
        params->seed = seed;
    return params;
}

void fv_params_free(fv_params *params)
{
    if (params == NULL)
        return;
    for (size_t i = 0; i < params->count; i++) {
        fvi_free(params->list[i]->value.data);
        fvi_free(params->list[i]);
    }
    fvi_free(params->list);
    fvi_arena_free(&params->texts);
    fvi_free(params);
}

fv_scope fv_root(fv_params *params)
{
    return (fv_scope){params, ""};
}

/* "prefix.name", or "name" at the root, kept as long as the set. */
static const char *join(fv_params *params, const char *prefix, const char *name)
{
    size_t a = strlen(prefix), b = strlen(name);
    char *text = fvi_arena_take(&params->texts, a + b + 2, 1);
    if (text == NULL) {
        fv_fail(&params->error, FV_FAILED, "out of memory for the name %s", name);
        return "";
    }
    memcpy(text, prefix, a);
    if (a > 0)
        text[a++] = '.';
    memcpy(text + a, name, b + 1);
    return text;
}

fv_scope fv_under(fv_scope scope, const char *format, ...)
{
    char name[200];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (scope.params == NULL)
        return scope;
    if (length < 0 || (size_t)length >= sizeof name)
        fv_fail(&scope.params->error, FV_USAGE, "a scope's name has %d bytes, at most %zu: %s",
                length, sizeof name - 1, name);
    return (fv_scope){scope.params, join(scope.params, scope.prefix, name)};
}

void fv_scope_refuse(fv_scope scope, const char *format, ...)
{
    char text[800];
    va_list args;
    if (scope.params == NULL)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fv_fail(&scope.params->error, FV_USAGE, "%s%s%s", scope.prefix, scope.prefix[0] ? ": " : "",
            text);
}

static void fill(const fv_params *params, fv_param *p, fv_init init)
{
    size_t count = fv_shape_count(p->value.shape);
    fv_rng rng = fv_rng_make(params->seed, 0, p->name);
    for (size_t i = 0; i < count; i++) {
        double x = 0;
        if (init.kind == FV_ONES)
            x = 1;
        else if (init.kind == FV_NORMAL)
            x = init.scale * fv_rng_normal(rng, i);
        else if (init.kind == FV_UNIFORM)
            x = init.scale * (2 * fv_rng_uniform(rng, i) - 1);
        p->value.data[i] = (fv_real)x;
    }
}

fv_param *fv_param_new(fv_scope scope, const char *name, fv_shape shape, fv_init init)
{
    fv_params *params = scope.params;
    char text[160];
    if (params == NULL || params->error.status != FV_OK)
        return NULL;
    const char *full = join(params, scope.prefix, name);
    if (params->error.status == FV_OK && fv_params_find(params, full) != NULL)
        fv_fail(&params->error, FV_USAGE, "parameter %s: the name is taken", full);
    if (fv_shape_count(shape) == 0)
        fv_fail(&params->error, FV_USAGE, "parameter %s: shape %s holds no numbers", full,
                fv_shape_text(shape, text));
    if (params->limit > 0 && (fv_shape_count(shape) > params->limit ||
                              fv_params_numbers(params) > params->limit - fv_shape_count(shape)))
        fv_fail(&params->error, FV_USAGE, "parameter %s: %s goes beyond the limit of %zu numbers",
                full, fv_shape_text(shape, text), params->limit);
    if (params->error.status != FV_OK)
        return NULL;
    fv_param *p = fvi_calloc(1, sizeof *p);
    fv_real *data = fvi_calloc(fv_shape_count(shape), sizeof *data);
    if (p == NULL || data == NULL ||
        !fvi_grow(&params->list, params->count, &params->capacity, sizeof *params->list)) {
        fvi_free(p);
        fvi_free(data);
        fv_fail(&params->error, FV_FAILED, "parameter %s: out of memory for %s", full,
                fv_shape_text(shape, text));
        return NULL;
    }
    *p = (fv_param){.name = full, .value = {shape, data}, .index = params->count};
    fill(params, p, init);
    params->list[params->count++] = p;
    return p;
}

void fv_params_limit(fv_params *params, size_t numbers)
{
    params->limit = numbers;
}

size_t fv_params_count(const fv_params *params)
{
    return params->count;
}

fv_param *fv_params_at(const fv_params *params, size_t index)
{
    return index < params->count ? params->list[index] : NULL;
}

fv_param *fv_params_find(const fv_params *params, const char *name)
{
    for (size_t i = 0; i < params->count; i++)
        if (strcmp(params->list[i]->name, name) == 0)
            return params->list[i];
    return NULL;
}

size_t fv_params_numbers(const fv_params *params)
{
    size_t numbers = 0;
    for (size_t i = 0; i < params->count; i++)
        numbers += fv_shape_count(params->list[i]->value.shape);
    return numbers;
}

const fv_error *fv_params_error(const fv_params *params)
{
    return &params->error;
}

uint64_t fv_params_seed(const fv_params *params)
{
    return params->seed;
}
