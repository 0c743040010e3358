/* Optimisers: options, and the state kept for every parameter. The step itself is in optimizer_step.c. */
#include "train/optimizer.h"

#include <math.h>
#include <string.h>

enum { PIECE = 16384 }; /* numbers that one thread takes at a time */

/* ---- options --------------------------------------------------------------------------------- */

static double option(double value, double when_zero)
{
    return value == 0 ? when_zero : value == FV_NONE ? 0 : value;
}

static bool is_share(double x)
{
    return x >= 0 && x < 1;
}

/* Fills in the defaults. False: an option is out of range, or belongs to another kind. */
static bool resolve(fv_optimizer_opts *o, fv_error *error)
{
    const bool sgd = o->kind == FV_SGD;
    if ((unsigned)o->kind > FV_SGD)
        return fv_fail(error, FV_USAGE, "optimiser: no kind has number %d", (int)o->kind);
    if (sgd && (o->beta1 != 0 || o->beta2 != 0 || o->eps != 0))
        return fv_fail(error, FV_USAGE, "optimiser: beta1, beta2 and eps are Adam's, not SGD's");
    if (!sgd && (o->momentum != 0 || o->nesterov))
        return fv_fail(error, FV_USAGE, "optimiser: momentum and nesterov are SGD's, not Adam's");

    o->lr = o->lr == 0 ? 1e-3 : o->lr;
    o->weight_decay = option(o->weight_decay, o->kind == FV_ADAMW ? 0.01 : 0);
    o->momentum = option(o->momentum, 0);
    if (!sgd) {
        o->beta1 = option(o->beta1, 0.9);
        o->beta2 = option(o->beta2, 0.999);
        o->eps = o->eps == 0 ? 1e-8 : o->eps;
    }

    if (!(o->lr > 0 && isfinite(o->lr)))
        return fv_fail(error, FV_USAGE, "optimiser: lr must be above 0 and finite");
    if (!(o->weight_decay >= 0 && isfinite(o->weight_decay)))
        return fv_fail(error, FV_USAGE, "optimiser: weight_decay must be 0 or more and finite");
    if (!is_share(o->momentum))
        return fv_fail(error, FV_USAGE, "optimiser: momentum must be at least 0 and below 1");
    if (o->nesterov && o->momentum == 0)
        return fv_fail(error, FV_USAGE, "optimiser: nesterov needs momentum");
    if (!sgd && !(is_share(o->beta1) && is_share(o->beta2)))
        return fv_fail(error, FV_USAGE,
                       "optimiser: beta1 and beta2 must be at least 0 and below 1");
    if (!sgd && !(o->eps > 0 && isfinite(o->eps)))
        return fv_fail(error, FV_USAGE, "optimiser: eps must be above 0 and finite");
    return true;
}

/* ---- state ----------------------------------------------------------------------------------- */

static size_t rows_a_piece(const fvi_state *s)
{
    return s->d < PIECE ? PIECE / s->d : 1;
}

/* Views a parameter as rows, with zeroed slots. */
static bool make_state(fv_optimizer *o, fvi_state *s, fv_param *param)
{
    const fv_shape shape = param->value.shape;
    size_t numbers = fv_shape_count(shape);
    *s = (fvi_state){.param = param, .rows = shape.rank > 0 ? shape.size[0] : 1};
    s->d = numbers / s->rows;
    for (int i = 0; i < fv_optimizer_slots(o); i++) {
        s->slot[i] = fvi_arena_take(&o->arena, numbers, sizeof(fv_real));
        if (s->slot[i] == NULL)
            return false;
        memset(s->slot[i], 0, numbers * sizeof(fv_real));
    }
    o->numbers += numbers;
    o->pieces_count += (s->rows - 1) / rows_a_piece(s) + 1;
    return true;
}

static bool make_states(fv_optimizer *o)
{
    o->count = fv_params_count(o->params);
    o->states = fvi_arena_take(&o->arena, o->count, sizeof *o->states);
    if (o->states == NULL)
        return false;
    for (size_t i = 0; i < o->count; i++)
        if (!make_state(o, &o->states[i], fv_params_at(o->params, i)))
            return false;

    o->pieces = fvi_arena_take(&o->arena, o->pieces_count, sizeof *o->pieces);
    o->squares = fvi_arena_take(&o->arena, o->pieces_count, sizeof *o->squares);
    if (o->pieces == NULL || o->squares == NULL)
        return false;
    fvi_piece *piece = o->pieces;
    for (size_t i = 0; i < o->count; i++) {
        const fvi_state *s = &o->states[i];
        const size_t length = rows_a_piece(s);
        for (size_t first = 0; first < s->rows; first += length)
            *piece++ = (fvi_piece){i, first, s->rows - first > length ? first + length : s->rows};
    }
    return true;
}

fv_optimizer *fv_optimizer_new(fv_params *params, const fv_optimizer_opts *opts, fv_error *error)
{
    fv_optimizer_opts resolved = opts != NULL ? *opts : (fv_optimizer_opts){0};
    if (params == NULL) {
        fv_fail(error, FV_USAGE, "optimiser: no parameters");
        return NULL;
    }
    if (fv_params_error(params)->status != FV_OK) {
        fv_fail(error, fv_params_error(params)->status, "%s", fv_params_error(params)->text);
        return NULL;
    }
    if (!resolve(&resolved, error))
        return NULL;

    fv_optimizer *o = fvi_calloc(1, sizeof *o);
    if (o != NULL) {
        o->params = params;
        o->opts = resolved;
        o->loops = fvi_update_for(fvi_isa_best());
    }
    if (o == NULL || !make_states(o)) {
        fv_fail(error, FV_FAILED, "optimiser: out of memory for the state of %zu parameters",
                fv_params_count(params));
        fv_optimizer_free(o);
        return NULL;
    }
    return o;
}

void fv_optimizer_free(fv_optimizer *optimizer)
{
    if (optimizer == NULL)
        return;
    fvi_arena_free(&optimizer->arena);
    fvi_free(optimizer);
}

/* ---- what there is to save ------------------------------------------------------------------- */

uint64_t fv_optimizer_steps(const fv_optimizer *optimizer)
{
    return optimizer->steps;
}

void fv_optimizer_set_steps(fv_optimizer *optimizer, uint64_t steps)
{
    optimizer->steps = steps;
}

int fv_optimizer_slots(const fv_optimizer *optimizer)
{
    if (optimizer->opts.kind != FV_SGD)
        return 2;
    return optimizer->opts.momentum > 0 ? 1 : 0;
}

const char *fv_optimizer_slot_name(const fv_optimizer *optimizer, int slot)
{
    static const char *const adam[] = {"exp_avg", "exp_avg_sq"};
    if (slot < 0 || slot >= fv_optimizer_slots(optimizer))
        return NULL;
    return optimizer->opts.kind == FV_SGD ? "momentum_buffer" : adam[slot];
}

fv_tensor fv_optimizer_slot(const fv_optimizer *optimizer, int slot, const fv_param *param)
{
    if (slot < 0 || slot >= fv_optimizer_slots(optimizer) || param == NULL ||
        param->index >= optimizer->count || optimizer->states[param->index].param != param)
        return (fv_tensor){0};
    return (fv_tensor){param->value.shape, optimizer->states[param->index].slot[slot]};
}

const fv_optimizer_opts *fv_optimizer_get(const fv_optimizer *optimizer)
{
    return &optimizer->opts;
}
