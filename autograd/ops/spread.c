/* The loops behind the gradients of reductions: each number gets its share of its result's. */
#include "tensor/kernel/tile.h"
#include "tensor/math.h"

#include "autograd/ops/fold.h"
#include "autograd/ops/rows.h"

FVI_INLINE fv_real slope(slope_kind kind, double p, fv_real x, fvi_wide c)
{
    const double sign = (fv_re(x) > 0) - (fv_re(x) < 0);
    switch (kind) {
    case SLOPE_X:
        return x;
    case SLOPE_CENTRED:
        return (fv_real)(x - c);
    case SLOPE_EXP:
        return exp_of_shifted(x - (fv_real)c);
    case SLOPE_SIGN:
        return (fv_real)sign;
    case SLOPE_QUOTIENT:
        return fv_re(c) == 0 ? 0 : (fv_real)c / x;
    case SLOPE_EQUAL:
        return fv_re(x) == fv_re((fv_real)c);
    case SLOPE_EQUAL_SIGN:
        return fv_re(fvi_abs(x)) == fv_re(c) ? (fv_real)sign : 0;
    case SLOPE_POWER:
        return fv_re(x) == 0 ? 0 : (fv_real)sign * fvi_pow(fvi_abs(x), p - 1);
    default:
        return 1;
    }
}

/* n adjacent numbers: of one result, or (across) each of its own. */
FVI_INLINE void spread_run(slope_kind kind, const spread *s, size_t n, bool across,
                           const fv_real *restrict x, ptrdiff_t result, fv_real *restrict dx)
{
    const fv_real *restrict factor = s->factor + result;
    const fvi_wide *restrict c = s->c ? s->c + result : NULL;
    const fvi_wide c0 = c && !across ? c[0] : 0;
    const fv_real scale = (fv_real)s->scale, f0 = across ? 0 : factor[0] * scale;
    if (!across)
        for (size_t i = 0; i < n; i++)
            dx[i] += f0 * slope(kind, s->p, x[i], c0);
    else
        for (size_t i = 0; i < n; i++)
            dx[i] += factor[i] * scale * slope(kind, s->p, x[i], c ? c[i] : 0);
}

/* Some runs, and how far apart they and their results are. */
typedef struct {
    size_t count;
    const fv_real *x;
    fv_real *dx;
    ptrdiff_t step, result, result_step;
} rows;

static void spread_rows(const spread *s, size_t n, const rows *r)
{
    const bool across = s->numbers.run[1] != 0;
#define KIND(kind)                                                                                 \
    case kind:                                                                                     \
        for (ptrdiff_t i = 0; i < (ptrdiff_t)r->count; i++)                                        \
            spread_run(kind, s, n, across, r->x + i * r->step, r->result + i * r->result_step,     \
                       r->dx + i * r->step);                                                       \
        return;
    switch (s->kind) {
        KIND(SLOPE_ONE)
        KIND(SLOPE_X)
        KIND(SLOPE_CENTRED)
        KIND(SLOPE_EXP)
        KIND(SLOPE_SIGN)
        KIND(SLOPE_QUOTIENT)
        KIND(SLOPE_EQUAL)
        KIND(SLOPE_EQUAL_SIGN)
        KIND(SLOPE_POWER)
    }
#undef KIND
}

enum {
    LONG =
        1024, /* numbers of a run that is cut for threads; shorter ones go whole, many at a time */
    NEAR = 2048 /* numbers that go together, zeroed just before they are added to */
};

void fvi_spread(fv_tape *t, const spread *s, const fv_real *x, fv_real *dx)
{
    const walk runs = walk_runs(&s->numbers);
    const bool whole = s->numbers.n < LONG && s->numbers.n > 0;
    const walk *w = whole ? &runs : &s->numbers;
    const size_t count = w->runs * w->n, each = whole ? s->numbers.n : 1, most = NEAR / each;
    const int parts = parts_of(t, count, 3 * each);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(count, parts, k);
        for (stretch r = stretch_first(w, p.from, p.to); r.n > 0; stretch_next(w, &r))
            for (size_t i = 0; i < r.n; i += most) {
                const size_t n = r.n - i < most ? r.n - i : most;
                const ptrdiff_t at = r.at[0] + (ptrdiff_t)i * w->run[0];
                const ptrdiff_t result = r.at[1] + (ptrdiff_t)i * w->run[1];
                const rows some = {whole ? n : 1, x + at, dx + at, w->run[0], result, w->run[1]};
                if (s->blank)
                    memset(dx + at, 0, n * each * sizeof *dx);
                spread_rows(s, whole ? each : n, &some);
            }
    }
}
