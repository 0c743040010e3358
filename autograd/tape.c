/* The tape: one step's values, how they were made, and the first error. */
#include "autograd/internal.h"

#include <stdarg.h>
#include <string.h>

fv_tape *fv_tape_new(const fv_tape_opts *opts)
{
    fv_tape *t = fvi_calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    fvi_isa isa = fvi_isa_best();
    for (int i = 0; opts != NULL && opts->isa != NULL && i < (int)isa; i++)
        if (strcmp(opts->isa, fvi_isa_name((fvi_isa)i)) == 0)
            isa = (fvi_isa)i;
    if (opts != NULL && opts->isa != NULL && !fvi_isa_known(opts->isa))
        fv_fail(&t->lasting, FV_USAGE,
                "tape: no instruction set \"%s\", expected base, avx2 or avx512", opts->isa);
    t->error = t->lasting;
    t->ops = fvi_ops_for(isa);
    t->threads = opts != NULL && opts->threads > 1 ? opts->threads : 1;
    return t;
}

void fv_tape_free(fv_tape *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->uses_capacity; i++)
        fvi_free(t->uses[i].slot);
    fvi_free(t->uses);
    fvi_arena_free(&t->arena);
    fvi_arena_free(&t->result);
    fvi_free(t);
}

void fv_tape_begin(fv_tape *t, fv_mode mode, uint64_t seed, uint64_t step)
{
    fvi_arena_reset(&t->arena);
    fvi_arena_reset(&t->result);
    t->mode = mode;
    t->seed = seed;
    t->step = step;
    t->last = NULL;
    t->spare = NULL;
    t->recorded = 0;
    t->error = t->lasting;
    for (size_t i = 0; i < t->uses_capacity; i++) {
        fvi_use *use = &t->uses[i];
        *use = (fvi_use){.param = use->param, .slot = use->slot, .slots = use->slots};
    }
}

bool fv_tape_ok(const fv_tape *t)
{
    return t->error.status == FV_OK;
}

const fv_error *fv_tape_error(const fv_tape *t)
{
    return &t->error;
}

fv_mode fv_tape_mode(const fv_tape *t)
{
    return t->mode;
}

int fv_tape_threads(const fv_tape *t)
{
    return t->threads;
}

size_t fv_tape_bytes(const fv_tape *t, size_t *peak)
{
    if (peak != NULL)
        *peak = t->arena.peak + t->result.peak;
    return t->arena.used + t->result.used;
}

static void *take(fv_tape *t, fvi_arena *arena, size_t count, size_t size)
{
    void *block = fvi_arena_take(arena, count, size);
    if (block == NULL)
        fv_fail(&t->error, FV_FAILED, "out of memory for %zu x %zu bytes (the step holds %zu)",
                count, size, fv_tape_bytes(t, NULL));
    return block;
}

void *fvi_tape_take(fv_tape *t, size_t count, size_t size)
{
    return take(t, &t->arena, count, size);
}

void *fvi_tape_result(fv_tape *t, size_t count, size_t size)
{
    void *block = take(t, &t->result, count, size);
    return block == NULL ? NULL : memset(block, 0, count * size);
}

void fvi_tape_swap(fv_tape *t, fvi_arena *values)
{
    const fvi_arena mine = t->arena;
    t->arena = *values;
    *values = mine;
    t->last = NULL;
    t->spare = NULL;
    for (size_t i = 0; i < t->uses_capacity; i++) {
        t->uses[i].var = NULL;
        t->uses[i].gathered = NULL;
    }
}

void *fv_tape_alloc(fv_tape *t, size_t count, size_t size)
{
    void *block = fvi_tape_take(t, count, size);
    if (block != NULL)
        memset(block, 0, count * size);
    return block;
}

fv_var *fv_tape_find(const fv_tape *t, const char *op, size_t n)
{
    size_t found = 0;
    for (fv_var *v = t->last; v != NULL; v = v->previous)
        found += v->op != NULL && strcmp(v->op->name, op) == 0;
    for (fv_var *v = t->last; v != NULL; v = v->previous)
        if (v->op != NULL && strcmp(v->op->name, op) == 0 && --found == n)
            return v;
    return NULL;
}

fv_var *fv_refuse(fv_tape *t, const char *op, const char *format, ...)
{
    char text[sizeof t->error.text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fv_fail(&t->error, FV_USAGE, "%s: %s", op, text);
    return NULL;
}

const char *fv_describe(fv_tape *t, const fv_var *x)
{
    char shape[160], text[400];
    fv_shape_text(x->value.shape, shape);
    if (x->name == NULL)
        snprintf(text, sizeof text, "%s", shape);
    else
        snprintf(text, sizeof text, "%s %s", x->name, shape);
    char *copy = fvi_tape_take(t, strlen(text) + 1, 1);
    return copy == NULL ? "" : strcpy(copy, text);
}

fv_rng fv_tape_rng(const fv_tape *t)
{
    char place[32];
    snprintf(place, sizeof place, "value %zu", t->recorded);
    return fv_rng_make(t->seed, t->step, place);
}

/* ---- values ------------------------------------------------------------------------------------ */

/* Whether a shape can be: fv_shape_count gives 0 for a bad one, which must not pass for an empty one. */
static bool sound(fv_tape *t, const char *op, fv_shape shape)
{
    char text[160];
    if (shape.rank < 0 || shape.rank > FV_MAX_RANK) {
        fv_refuse(t, op, "rank %d, expected 0 to %d", shape.rank, FV_MAX_RANK);
        return false;
    }
    for (int i = 0; i < shape.rank; i++)
        if (shape.size[i] == 0)
            return true;
    if (fv_shape_count(shape) == 0)
        fv_refuse(t, op, "%s holds more numbers than there can be", fv_shape_text(shape, text));
    return fv_tape_ok(t);
}

static fv_var *append(fv_tape *t, fv_shape shape, fv_real *data)
{
    fv_var *v = fv_tape_alloc(t, 1, sizeof *v);
    if (v == NULL)
        return NULL;
    v->value = (fv_tensor){shape, data};
    v->previous = t->last;
    t->last = v;
    t->recorded++;
    return v;
}

static fv_var *leaf(fv_tape *t, const char *what, fv_shape shape, const fv_real *data)
{
    if (!fv_tape_ok(t) || !sound(t, what, shape))
        return NULL;
    if (data == NULL)
        return fv_refuse(t, what, "no data");
    fv_real *kept;
    memcpy(&kept, &data, sizeof kept); /* the tape never writes through it */
    return append(t, shape, kept);
}

fv_var *fv_constant(fv_tape *t, fv_shape shape, const fv_real *data)
{
    return leaf(t, "constant", shape, data);
}

fv_var *fv_input(fv_tape *t, fv_shape shape, const fv_real *data)
{
    fv_var *v = leaf(t, "input", shape, data);
    if (v != NULL)
        v->needs_grad = t->mode != FV_EVAL;
    return v;
}

fvi_use *fvi_find_use(const fv_tape *t, const fv_param *param)
{
    if (t->uses_capacity == 0)
        return NULL;
    size_t at = (size_t)fvi_hash(&param, sizeof param);
    while (true) {
        fvi_use *use = &t->uses[at++ & (t->uses_capacity - 1)];
        if (use->param == param || use->param == NULL)
            return use;
    }
}

/* Keeps the table at most half full. */
static bool room_for_use(fv_tape *t)
{
    if (2 * (t->uses_count + 1) <= t->uses_capacity)
        return true;
    fvi_use *old = t->uses;
    size_t old_capacity = t->uses_capacity, capacity = old_capacity ? 2 * old_capacity : 64;
    fvi_use *uses = fvi_calloc(capacity, sizeof *uses);
    if (uses == NULL)
        return fv_fail(&t->error, FV_FAILED, "out of memory for %zu parameters", capacity);
    t->uses = uses;
    t->uses_capacity = capacity;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].param != NULL) {
            fvi_use *use = fvi_find_use(t, old[i].param);
            *use = old[i];
            if (use->var != NULL)
                use->var->use = use;
        }
    fvi_free(old);
    return true;
}

fv_var *fv_use(fv_tape *t, const fv_param *param)
{
    if (!fv_tape_ok(t))
        return NULL;
    if (param == NULL)
        return fv_refuse(t, "use", "no parameter (the set's error says why)");
    if (!room_for_use(t))
        return NULL;
    fvi_use *use = fvi_find_use(t, param);
    if (use->var != NULL)
        return use->var;
    fv_var *v = append(t, param->value.shape, param->value.data);
    if (v == NULL)
        return NULL;
    t->uses_count += use->param == NULL;
    use->param = param;
    use->var = v;
    v->name = param->name;
    v->use = use;
    v->needs_grad = t->mode != FV_EVAL && !param->frozen;
    return v;
}

fv_var *fv_record(fv_tape *t, const fv_op *op, fv_shape shape, const void *options, size_t size,
                  int inputs, fv_var *const *in)
{
    if (!fv_tape_ok(t))
        return NULL;
    if (inputs < 0)
        return fv_refuse(t, op->name, "%d inputs", inputs);
    if (!sound(t, op->name, shape))
        return NULL;
    bool needs_grad = false;
    for (int i = 0; i < inputs; i++)
        needs_grad |= in[i] != NULL && in[i]->needs_grad;
    const bool view = op == t->ops->op[FVI_OP_reshape]; /* has no numbers of its own */
    fv_real *data = view ? NULL : fvi_tape_take(t, fv_shape_count(shape), sizeof *data);
    void *kept = size ? fvi_tape_take(t, size, 1) : NULL;
    fv_var **from = fvi_tape_take(t, (size_t)inputs, sizeof(fv_var *));
    fv_var *y = fv_tape_ok(t) ? append(t, shape, data) : NULL;
    if (y == NULL)
        return NULL;
    if (size)
        memcpy(kept, options, size);
    y->op = op;
    y->options = kept;
    y->inputs = inputs;
    y->in = from;
    for (int i = 0; i < inputs; i++)
        from[i] = in[i];
    y->needs_grad = needs_grad && op->backward != NULL;
    return op->forward(t, y) && fv_tape_ok(t) ? y : NULL;
}

fv_var *fvi_record(fv_tape *t, fvi_op_id id, fv_shape shape, const void *options, size_t size,
                   int inputs, fv_var *const *in)
{
    return fv_record(t, t->ops->op[id], shape, options, size, inputs, in);
}

bool fvi_is_matrix(fv_tape *t, const char *op, const char *what, const fv_var *x)
{
    if (x->value.shape.rank == 2 && x->value.shape.size[1] > 0)
        return true;
    fv_refuse(t, op, "%s is %s, expected [rows, d]", what, fv_describe(t, x));
    return false;
}
