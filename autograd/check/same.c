/* Whether a function gives the same bits when it runs again, in memory that held something else, and with
 * other thread counts. */
#include "autograd/check/check.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

#include <string.h>

/* Overwrites what the tape's memory holds, so that reading it before writing shows. */
static void spoil(fv_tape *t, int byte)
{
    const size_t peak = t->arena.peak;
    fv_tape_begin(t, FV_TRAIN, 0, 0);
    while (t->arena.used < peak) {
        enum { PIECE = 4096 };
        void *piece = fvi_arena_take(&t->arena, 1, PIECE);
        if (piece == NULL)
            break;
        memset(piece, byte, PIECE);
    }
}

/* A hash of each value that the function recorded, in order. */
static void digest(const fvi_check *c, uint64_t *hash)
{
    const fv_tape *t = c->sampler.tape;
    size_t place = t->recorded;
    for (const fv_var *v = t->last; v != NULL; v = v->previous)
        if (--place < c->values)
            hash[place] = fvi_hash(v->value.data, fvi_count(v) * sizeof(fv_real));
}

/* Says what differs: the first value on the tape, or else the first gradient. */
static bool say_differs(fvi_check *c, int threads, const uint64_t *hash, const uint64_t *again,
                        const fv_real *gradient)
{
    char what[80], opening[120], name[300], a[FVI_NUMBER], b[FVI_NUMBER];
    if (threads == 0)
        snprintf(what, sizeof what, "two runs");
    else
        snprintf(what, sizeof what, "1 thread and %d", threads);
    const char *why = threads == 0
                          ? "memory read before it is written, or numbers from outside the tape"
                          : "threads share a sum, or write to one place";
    fvi_check_opening(c, opening);
    for (size_t i = 0; i < c->values; i++)
        if (hash[i] != again[i]) {
            size_t place = c->sampler.tape->recorded;
            const fv_var *v = c->sampler.tape->last;
            while (v != NULL && --place > i)
                v = v->previous;
            const char *op = v != NULL && v->op != NULL ? v->op->name : "input";
            snprintf(c->result->op, sizeof c->result->op, "%s", op);
            c->result->place = c->of_rule ? c->place : i;
            return fvi_check_say(c, FV_CHECK_FAILED, FV_CAUSE_UNEQUAL,
                                 "%s%s differ: the output of op %s (value %zu on the tape): %s",
                                 opening, what, op, i, why);
        }
    for (int k = 0; k < c->parts; k++)
        for (size_t i = 0; i < c->part[k].count; i++) {
            const size_t at = c->part[k].at + i;
            if (memcmp(&gradient[at], &c->gradient[at], sizeof *gradient) == 0)
                continue;
            return fvi_check_say(
                c, FV_CHECK_FAILED, FV_CAUSE_UNEQUAL,
                "%s%s differ: the gradient of %s at element %zu is %s, then %s: %s", opening, what,
                fvi_check_name(c, k, name), i, fvi_number(a, (double)fv_re(c->gradient[at]), 17),
                fvi_number(b, (double)fv_re(gradient[at]), 17), why);
        }
    return true;
}

bool fvi_check_same(fvi_check *c)
{
    static const int standard[] = {1, 2, 3, 0};
    const int *threads = c->o.threads ? c->o.threads : standard;
    uint64_t *hash = fvi_check_take(c, c->values, sizeof *hash),
             *again = fvi_check_take(c, c->values, sizeof *again);
    fv_real *gradient = fvi_check_take(c, c->total, sizeof *gradient);
    if (hash == NULL || again == NULL || gradient == NULL)
        return false;
    fv_tape *t = c->sampler.tape;
    fvi_check_stay(c);
    if (!fvi_check_gradient(c, c->weights, gradient))
        return false;
    digest(c, hash);
    bool same = true;
    for (int i = -1; same && (i < 0 || threads[i] > 0); i++) {
        if (i >= 0 && threads[i] == 1)
            continue;
        spoil(t, 0x41 + i);
        t->threads = i < 0 ? 1 : threads[i];
        same = fvi_check_gradient(c, c->weights, gradient);
        digest(c, again);
        if (same && (memcmp(hash, again, c->values * sizeof *hash) != 0 ||
                     memcmp(gradient, c->gradient, c->total * sizeof *gradient) != 0))
            same = say_differs(c, i < 0 ? 0 : threads[i], hash, again, gradient);
    }
    t->threads = 1;
    return same;
}

#endif
