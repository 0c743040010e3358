/* One step of an optimiser: two passes over memory, each cut into fixed pieces that threads share.
 *
 *   1. sum: gradients added over the tapes in a binary tree, with each piece's sum of squares;
 *   2. update: scale, clip factor, decay, moments and parameter in one loop.
 * Between them the pieces' squares are added in order, so the norm does not depend on the threads, and a
 * norm that is not finite stops the step before anything has changed. */
#include "train/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WORTH_THREADS = 65536 }; /* numbers from which waking a team pays */

/* ---- what the tapes hold --------------------------------------------------------------------- */

/* Memory for that many tapes, taken at the first step. Tables are matrices, so only those get rows. */
static bool room_for(fv_optimizer *o, int tapes)
{
    if (tapes <= o->tapes)
        return true;
    const size_t n = (size_t)tapes;
    for (size_t i = 0; i < o->count; i++) {
        fvi_state *s = &o->states[i];
        size_t pointers;
        s->dense = fvi_arena_take(&o->arena, n, sizeof *s->dense);
        if (tapes > 1 && s->sum == NULL)
            s->sum = fvi_arena_take(&o->arena, s->rows * s->d, sizeof *s->sum);
        if (s->dense == NULL || (tapes > 1 && s->sum == NULL))
            return false;
        if (s->param->value.shape.rank != 2)
            continue;
        if (s->place == NULL) {
            s->place = fvi_arena_take(&o->arena, s->rows, sizeof *s->place);
            if (s->place != NULL)
                memset(s->place, 0, s->rows * sizeof *s->place);
        }
        if (s->touched == NULL)
            s->touched = fvi_arena_take(&o->arena, s->rows, sizeof *s->touched);
        s->from = fvi_mul(s->rows, n, &pointers)
                      ? fvi_arena_take(&o->arena, pointers, sizeof *s->from)
                      : NULL;
        if (s->place == NULL || s->touched == NULL || s->from == NULL)
            return false;
    }
    o->tapes = tapes;
    return true;
}

/* Notes where a tape's gradient of each touched row is. A row that is new gets the next place. */
static void find_rows(fvi_state *s, int tape, int tapes, size_t count, const int32_t *rows,
                      const fv_real *grad)
{
    const size_t n = (size_t)tapes;
    for (size_t i = 0; i < count; i++) {
        int32_t *place = &s->place[rows[i]];
        if (*place == 0) {
            const fv_real **from = s->from + s->touched_count * n;
            for (size_t t = 0; t < n; t++)
                from[t] = s->dense[t] ? s->dense[t] + (size_t)rows[i] * s->d : NULL;
            s->touched[s->touched_count++] = rows[i];
            *place = (int32_t)s->touched_count;
        }
        s->from[(size_t)(*place - 1) * n + (size_t)tape] = grad + i * s->d;
    }
}

/* Finds a parameter's gradients. Each tape holds all of it, rows of it, or nothing. */
static void find_gradients(fvi_state *s, fv_tape *const *tapes, int count)
{
    const fv_real *grad = NULL;
    const int32_t *rows;
    int parts = 0;
    s->by_rows = true;
    for (int t = 0; t < count; t++) {
        s->dense[t] = fv_param_grad(tapes[t], s->param);
        if (s->dense[t] == NULL)
            continue;
        grad = s->dense[t];
        s->by_rows = false;
        parts++;
    }
    if (s->place != NULL)
        for (int t = 0; t < count; t++) {
            const fv_real *row_grad;
            size_t touched = fv_touched(tapes[t], s->param, &rows, &row_grad);
            if (touched == 0 || s->dense[t] != NULL)
                continue;
            grad = row_grad;
            parts++;
            find_rows(s, t, count, touched, rows, row_grad);
        }
    s->shared = parts > 1;
    s->grad = s->shared ? s->sum : grad;
}

static void forget_rows(fv_optimizer *o)
{
    for (size_t i = 0; i < o->count; i++) {
        fvi_state *s = &o->states[i];
        for (size_t k = 0; k < s->touched_count; k++)
            s->place[s->touched[k]] = 0;
        s->touched_count = 0;
        s->grad = NULL;
    }
}

/* How many rows of grad a piece stands for. */
static size_t rows_of(const fvi_state *s, const fvi_piece *piece)
{
    size_t end = s->by_rows && s->touched_count < piece->end ? s->touched_count : piece->end;
    return s->grad != NULL && end > piece->first ? end - piece->first : 0;
}

/* ---- first pass: sum ------------------------------------------------------------------------- */

static fvi_wide sum_piece(const fv_optimizer *o, const fvi_piece *piece, int tapes)
{
    const fvi_state *s = &o->states[piece->state];
    const size_t rows = rows_of(s, piece), at = piece->first * s->d, n = (size_t)tapes;
    fvi_wide squares = 0;
    if (rows == 0)
        return 0;
    if (!s->shared)
        return o->loops->sum(rows * s->d, at, 1, &s->grad, NULL);
    if (s->by_rows) {
        for (size_t k = piece->first; k < piece->first + rows; k++)
            squares += o->loops->sum(s->d, 0, tapes, s->from + k * n, s->sum + k * s->d);
        return squares;
    }
    squares = o->loops->sum(rows * s->d, at, tapes, s->dense, s->sum + at);
    if (s->touched_count == 0)
        return squares;
    for (size_t row = piece->first; row < piece->end; row++) /* some tapes hold rows only */
        if (s->place[row] != 0)
            o->loops->sum(s->d, 0, tapes, s->from + (size_t)(s->place[row] - 1) * n,
                          s->sum + row * s->d);
    return o->loops->sum(rows * s->d, at, 1, &s->grad, NULL);
}

static fvi_wide sum_all(fv_optimizer *o, int tapes, int threads)
{
    const int64_t pieces = (int64_t)o->pieces_count;
    fvi_wide squares = 0;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < pieces; i++)
        o->squares[i] = sum_piece(o, &o->pieces[i], tapes);
    for (int64_t i = 0; i < pieces; i++)
        squares += o->squares[i];
    return squares;
}

/* Names the first parameter whose gradient is not finite. */
static bool refuse_gradient(const fv_optimizer *o, fv_error *error)
{
    for (size_t i = 0; i < o->pieces_count; i++) {
        const fvi_state *s = &o->states[o->pieces[i].state];
        const size_t numbers = rows_of(s, &o->pieces[i]) * s->d;
        for (size_t k = 0; k < numbers; k++) {
            double g = (double)fv_re(s->grad[o->pieces[i].first * s->d + k]);
            if (!isfinite(g))
                return fv_fail(error, FV_NONFINITE, "gradient of %s is %s at step %" PRIu64,
                               s->param->name, isnan(g) ? "NaN" : "Inf", o->steps + 1);
        }
    }
    return fv_fail(error, FV_NONFINITE, "the norm of the gradient overflows at step %" PRIu64,
                   o->steps + 1);
}

/* ---- second pass: update --------------------------------------------------------------------- */

/* What one step does to every parameter. */
typedef struct {
    fvi_wide scale;
    double lr, correction1, correction2; /* 1 - beta^t */
} fvi_step;

typedef struct {
    const fv_optimizer *o;
    const fvi_state *s;
    fvi_adam_step adam;
    fvi_sgd_step sgd;
} update;

static update update_of(const fv_optimizer *o, const fvi_state *s, const fvi_step *step)
{
    const fv_optimizer_opts *opts = &o->opts;
    const double decay = s->param->no_decay ? 0 : opts->weight_decay;
    const double root = sqrt(step->correction2);
    if (opts->kind == FV_SGD)
        return (update){.o = o,
                        .s = s,
                        .sgd = {.scale = (fv_real)step->scale,
                                .l2 = (fv_real)decay,
                                .momentum = (fv_real)opts->momentum,
                                .rate = (fv_real)step->lr,
                                .nesterov = opts->nesterov}};
    /* PyTorch's SparseAdam adds eps before the bias correction, Adam and AdamW after it. */
    const bool sparse = s->by_rows && s->param->touched_rows;
    return (update){.o = o,
                    .s = s,
                    .adam = {.scale = (fv_real)step->scale,
                             .l2 = (fv_real)(opts->kind == FV_ADAM ? decay : 0),
                             .keep = (fv_real)(opts->kind == FV_ADAM ? 1 : 1 - step->lr * decay),
                             .beta1 = (fv_real)opts->beta1,
                             .rest1 = (fv_real)(1 - opts->beta1),
                             .beta2 = (fv_real)opts->beta2,
                             .rest2 = (fv_real)(1 - opts->beta2),
                             .rate = (fv_real)(step->lr / step->correction1),
                             .root = (fv_real)(1 / root),
                             .eps = (fv_real)(sparse ? opts->eps / root : opts->eps)}};
}

/* Updates adjacent rows; g NULL: with a gradient of zero. */
static void update_rows(const update *u, size_t first, size_t rows, const fv_real *g)
{
    const fvi_state *s = u->s;
    const size_t at = first * s->d, n = rows * s->d;
    fv_real *value = s->param->value.data + at;
    fv_real *slot[FVI_MAX_SLOTS];
    if (rows == 0)
        return;
    for (int i = 0; i < FVI_MAX_SLOTS; i++)
        slot[i] = s->slot[i] != NULL ? s->slot[i] + at : NULL;
    if (u->o->opts.kind == FV_SGD)
        u->o->loops->sgd(n, &u->sgd, g, value, slot[0]);
    else
        u->o->loops->adam(n, &u->adam, g, value, slot[0], slot[1]);
}

static void update_piece(const fv_optimizer *o, const fvi_piece *piece, const fvi_step *step)
{
    const fvi_state *s = &o->states[piece->state];
    if (s->grad == NULL)
        return;
    const update u = update_of(o, s, step);
    const size_t rows = rows_of(s, piece);
    if (!s->by_rows) {
        update_rows(&u, piece->first, rows, s->grad + piece->first * s->d);
    } else if (s->param->touched_rows) {
        for (size_t k = piece->first; k < piece->first + rows; k++)
            update_rows(&u, (size_t)s->touched[k], 1, s->grad + k * s->d);
    } else {
        size_t untouched =
            piece->first; /* where the run of untouched rows before this one starts */
        for (size_t row = piece->first; row < piece->end; row++)
            if (s->place[row] != 0) {
                update_rows(&u, untouched, row - untouched, NULL);
                update_rows(&u, row, 1, s->grad + (size_t)(s->place[row] - 1) * s->d);
                untouched = row + 1;
            }
        update_rows(&u, untouched, piece->end - untouched, NULL);
    }
}

static void update_all(const fv_optimizer *o, const fvi_step *step, int threads)
{
    const int64_t pieces = (int64_t)o->pieces_count;
    (void)threads;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (threads > 1)
    for (int64_t i = 0; i < pieces; i++)
        update_piece(o, &o->pieces[i], step);
}

/* ---- the step -------------------------------------------------------------------------------- */

static bool check(const fv_optimizer *o, fv_tape *const *tapes, int count, double scale, double lr,
                  double clip, fv_error *error)
{
    if (o == NULL)
        return fv_fail(error, FV_USAGE, "optimiser: there is none (fv_optimizer_new says why)");
    if (fv_params_count(o->params) != o->count)
        return fv_fail(error, FV_USAGE,
                       "optimiser: made for %zu parameters, the set now has %zu: make it last",
                       o->count, fv_params_count(o->params));
    if (tapes == NULL || count < 1)
        return fv_fail(error, FV_USAGE, "optimiser: a step needs a tape");
    for (int t = 0; t < count; t++) {
        if (tapes[t] == NULL)
            return fv_fail(error, FV_USAGE, "optimiser: tape %d is NULL", t);
        const fv_error *first = fv_tape_error(tapes[t]);
        if (first->status != FV_OK)
            return fv_fail(error, first->status, "%s", first->text);
    }
    if (!isfinite(scale))
        return fv_fail(error, FV_USAGE, "optimiser: scale is not finite");
    if (!(lr >= 0 && isfinite(lr)))
        return fv_fail(error, FV_USAGE, "optimiser: lr must be 0 or more and finite");
    if (!(clip >= 0))
        return fv_fail(error, FV_USAGE, "optimiser: clip must be 0 (off) or more");
    return true;
}

static fvi_wide square_root(fvi_wide x)
{
#if defined(FV_COMPLEX)
    return csqrt(x);
#else
    return sqrt(x);
#endif
}

/* What clipping multiplies by, as torch.nn.utils.clip_grad_norm_ does. */
static fvi_wide clip_factor(fvi_wide norm, double clip)
{
    if (!(clip > 0))
        return 1;
    fvi_wide factor = clip / (norm + 1e-6);
    return fv_re(factor) < 1 ? factor : 1;
}

bool fv_optimizer_step(fv_optimizer *optimizer, fv_tape *const *tapes, int count, double scale,
                       double lr, double clip, int threads, double *norm, fv_error *error)
{
    fv_optimizer *o = optimizer;
    if (!check(o, tapes, count, scale, lr, clip, error))
        return false;
    if (!room_for(o, count))
        return fv_fail(error, FV_FAILED, "optimiser: out of memory for gradients of %d tapes",
                       count);
    if (threads < 1 || o->numbers < WORTH_THREADS)
        threads = 1;

    for (size_t i = 0; i < o->count; i++)
        find_gradients(&o->states[i], tapes, count);
    const fvi_wide total = fabs(scale) * square_root(sum_all(o, count, threads));
    const bool finite = isfinite(fv_re(total));
    if (finite) {
        const double t = (double)++o->steps;
        const fvi_step step = {.scale = scale * clip_factor(total, clip),
                               .lr = lr,
                               .correction1 = 1 - pow(o->opts.beta1, t),
                               .correction2 = 1 - pow(o->opts.beta2, t)};
        update_all(o, &step, threads);
        if (norm != NULL)
            *norm = fv_re(total);
    } else {
        refuse_gradient(o, error);
    }
    forget_rows(o);
    return finite;
}
