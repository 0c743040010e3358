/* Rotary positions: pairs of columns of each head turn by an angle that grows with the position (Su et al.,
 * 2021, arXiv 2104.09864). Cosines and sines stand in a table that the heads share: one row for each position
 * that a segment can have, or, where positions are given, one for each row of x. */
#include "tensor/kernel/tile.h"

#include <math.h>

#include "autograd/ops/slices.h"
#include "tensor/math.h"

typedef struct {
    const fv_segments *segments; /* NULL: one of all rows, or positions are given */
    size_t heads, width;
    bool interleaved;
    double base, scaling;
    int offset;
    const int32_t *positions;
    const fv_real *cosines, *sines;
    size_t turns; /* rows of the table */
} rotary_options;

/* Position of row n of the table. */
static inline int64_t position_of(const rotary_options *o, size_t n)
{
    return o->positions ? o->positions[n] : (int64_t)n + o->offset;
}

/* y->saved: [turns, 2, width / 2], the cosines of a position and then its sines. Angles are in double, since
 * they may be many turns. */
static void fill_turns(const fv_tape *t, const rotary_options *o, fv_real *table)
{
    const size_t half = o->width / 2;
    const int parts = parts_of(t, o->turns, 60 * half);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(o->turns, parts, k);
        for (size_t i = 0; i < half; i++) {
            const double slow = pow(o->base, -2.0 * (double)i / (double)o->width);
            for (size_t n = p.from; n < p.to; n++) {
                fv_real *cosine = table + n * o->width + i, *sine = cosine + half;
                const double angle = (double)position_of(o, n) / o->scaling * slow;
                const size_t given = o->cosines ? (size_t)position_of(o, n) * half + i : 0;
                *cosine = o->cosines ? o->cosines[given] : (fv_real)cos(angle);
                *sine = o->cosines ? o->sines[given] : (fv_real)sin(angle);
            }
        }
    }
}

/* Pairs of columns x[i step] and x[i step + second], turned forward into out, or back and added to it. */
FVI_INLINE void turn_pairs(size_t pairs, size_t step, size_t second, bool back,
                           const fv_real *restrict cosine, const fv_real *restrict sine,
                           const fv_real *restrict x, fv_real *restrict out)
{
    for (size_t i = 0; i < pairs; i++) {
        const fv_real s = back ? -sine[i] : sine[i];
        const fv_real a = x[i * step], b = x[i * step + second];
        const fv_real first = fvi_fma(a, cosine[i], -(b * s)), other = fvi_fma(b, cosine[i], a * s);
        out[i * step] = back ? out[i * step] + first : first;
        out[i * step + second] = back ? out[i * step + second] + other : other;
    }
}

/* One head of d columns of one row, whose cosines and sines stand at angles. */
FVI_INLINE void turn_head(const rotary_options *o, size_t d, bool back, const fv_real *angles,
                          const fv_real *restrict x, fv_real *restrict out)
{
    const size_t half = o->width / 2;
    if (o->interleaved)
        turn_pairs(half, 2, 1, back, angles, angles + half, x, out);
    else
        turn_pairs(half, 1, half, back, angles, angles + half, x, out);
    for (size_t i = o->width; i < d; i++)
        out[i] = back ? out[i] + x[i] : x[i];
}

/* Every row of x: turned into out, or turned back and added to it. */
FVI_INLINE void turn_rows(const fv_tape *t, const fv_var *y, bool back, const fv_real *x,
                          fv_real *out)
{
    const rotary_options *o = y->options;
    const size_t rows = fvi_rows(y), columns = fvi_columns(y), d = columns / o->heads;
    const fv_real *table = y->saved;
    const int parts = parts_of(t, rows, 3 * columns);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        size_t s = o->segments ? fv_segments_find(o->segments, p.from) : 0;
        for (size_t r = p.from; r < p.to; r++) {
            s = o->segments ? segment_at(o->segments, s, r) : 0;
            const size_t at = o->segments ? r - o->segments->offsets[s] : r;
            for (size_t h = 0; h < o->heads; h++)
                turn_head(o, d, back, table + at * o->width, x + r * columns + h * d,
                          out + r * columns + h * d);
        }
    }
}

static bool rotary_forward(fv_tape *t, fv_var *y)
{
    const rotary_options *o = y->options;
    y->saved = fvi_tape_take(t, o->turns * o->width, sizeof(fv_real));
    if (y->saved == NULL)
        return false;
    fill_turns(t, o, y->saved);
    turn_rows(t, y, false, y->in[0]->value.data, y->value.data);
    return true;
}

/* of a pair (a, b) turned by an angle: dy turned by minus the angle; the other columns: dx = dy */
static void rotary_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        turn_rows(t, y, true, y->grad, dx);
}

static fv_var *rotary_sample(fv_sampler *s, int which)
{
    static const size_t at[] = {0, 3, 3, 4, 9}, none_at[] = {0, 0};
    static const fv_segments segments = {4, at}, none = {1, none_at};
    static const int32_t positions[] = {5, 0, -3, 100000, 2, 2, 7, 1, 4}, few[] = {1, 0, 1, 0};
    static const fv_real cosines[] = {0.5f, -1.25f, 2, 0.25f}, sines[] = {-0.75f, 1, 0.5f, 1.5f};
    const fv_rotary_opts opts[] = {
        {0},
        {.heads = 2, .interleaved = true, .base = 100},
        {.heads = 3, .width = 2, .scaling = 4, .offset = 7},
        {.heads = 2, .positions = positions, .width = 4, .interleaved = true, .offset = 9},
        {.heads = 3, .positions = few, .cosines = cosines, .sines = sines, .positions_given = 2},
        {.heads = 1, .offset = -2},
        {.heads = 2}};
    const size_t rows = which == 4 ? 4 : which == 6 ? 0 : 9;
    const fv_segments *cut = which == 6 ? &none : which < 3 ? &segments : NULL;
    fv_tape *t = fv_sampler_tape(s);
    return fv_rotary(t, fv_sample(s, FV_SHAPE(rows, 12), -2, 2), cut, which ? &opts[which] : NULL);
}
FVI_OP(rotary, "(a, b) -> (a cos r - b sin r, b cos r + a sin r), r = position base^(-2i / width)",
       "Su et al., 2021, arXiv 2104.09864", 7)

#if FVI_ONCE
/* How positions turn, from the options; false after a refusal. */
static bool resolve_turns(fv_tape *t, const char *op, const fv_rotary_opts *opts, size_t rows,
                          rotary_options *o)
{
    char text[FVI_NUMBER];
    o->base = opts->base != 0 ? opts->base : 10000;
    o->scaling = opts->scaling != 0 ? opts->scaling : 1;
    o->offset = opts->offset;
    o->positions = opts->positions;
    o->cosines = opts->cosines;
    o->sines = opts->sines;
    if (!(o->base > 0) || isinf(o->base))
        return fv_refuse(t, op, "base %s, expected a positive number",
                         fvi_number(text, o->base, 6)) != NULL;
    if (!(o->scaling > 0) || isinf(o->scaling))
        return fv_refuse(t, op, "scaling %s, expected a positive number",
                         fvi_number(text, o->scaling, 6)) != NULL;
    o->segments = o->positions ? NULL : o->segments;
    o->turns = o->segments ? 0 : rows;
    for (size_t s = 0; o->segments != NULL && s < o->segments->count; s++)
        if (segment_length(o->segments, s) > o->turns)
            o->turns = segment_length(o->segments, s);
    if ((o->cosines == NULL) != (o->sines == NULL) ||
        (o->cosines == NULL && opts->positions_given != 0))
        return fv_refuse(t, op, "cosines, sines and positions_given: all of them, or none") != NULL;
    for (size_t n = 0; o->cosines != NULL && n < o->turns; n++) {
        const int64_t at = position_of(o, n);
        if (at < 0 || (size_t)at >= opts->positions_given)
            return fv_refuse(t, op, "position %lld, cosines and sines are given for %zu",
                             (long long)at, opts->positions_given) != NULL;
    }
    return true;
}

fv_var *fv_rotary(fv_tape *t, fv_var *x, const fv_segments *segments, const fv_rotary_opts *opts)
{
    const char *op = "rotary";
    const fv_rotary_opts none = {0};
    if (opts == NULL)
        opts = &none;
    rotary_options o = {.segments = segments, .heads = opts->heads ? opts->heads : 1};
    if (!given(t, op, x) || !fvi_is_matrix(t, op, "input", x) ||
        (segments != NULL && !segmented(t, op, x, segments)))
        return NULL;
    if (fvi_columns(x) % o.heads != 0)
        return fv_refuse(t, op, "%s of %zu heads: they must divide its columns", fv_describe(t, x),
                         o.heads);
    const size_t d = fvi_columns(x) / o.heads;
    o.width = opts->width ? opts->width : d;
    o.interleaved = opts->interleaved;
    if (o.width % 2 != 0 || o.width > d)
        return fv_refuse(t, op,
                         "%zu columns of a head of %zu turn: expected an even number of them",
                         o.width, d);
    if (!resolve_turns(t, op, opts, fvi_rows(x), &o))
        return NULL;
    return fvi_record(t, FVI_OP_rotary, x->value.shape, &o, sizeof o, 1, &x);
}
#endif
