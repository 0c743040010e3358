/* Ops that know which rows are one sample: neighbours, positions, pooling. */
#include "autograd/ops/ops.h"

#include <string.h>

typedef struct {
    const fv_segments *segments;
    int radius;
} segment_options;

static const size_t sample_at[] = {0, 4, 4, 5, 9};
static const fv_segments sample_segments = {4, sample_at};

/* ---- neighbours: the rows at -radius .. radius side by side ------------------------------------------ */

/* For every row r of segment s and every neighbour inside it: copies x to y, or adds dy to dx. */
static void each_neighbour(const segment_options *o, size_t d, const fv_real *from, fv_real *to,
                           bool back)
{
    const size_t radius = (size_t)o->radius, width = (2 * radius + 1) * d;
    for (size_t s = 0; s < o->segments->count; s++) {
        size_t first = o->segments->offsets[s], end = o->segments->offsets[s + 1];
        for (size_t r = first; r < end; r++)
            for (size_t k = 0; k <= 2 * radius; k++) {
                size_t place = r * width + k * d,
                       other = r + k; /* shifted by radius: no negatives */
                bool inside = other >= first + radius && other < end + radius;
                if (inside && back)
                    add_to(d, from + place, to + (other - radius) * d);
                else if (inside)
                    memcpy(to + place, from + (other - radius) * d, d * sizeof *to);
                else if (!back)
                    memset(to + place, 0, d * sizeof *to);
            }
    }
}

static bool neighbours_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    each_neighbour(y->options, fvi_columns(y->in[0]), y->in[0]->value.data, y->value.data, false);
    return true;
}

/* dx[r] = sum over the places where row r stands as a neighbour */
static void neighbours_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        each_neighbour(y->options, fvi_columns(y->in[0]), y->grad, dx, true);
}

static fv_var *neighbours_sample(fv_sampler *s, int which)
{
    return fv_neighbours(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 3), -2, 2), &sample_segments,
                         which + 1);
}
FVI_OP(neighbours, "y[r] = [x[r - radius] | .. | x[r + radius]], zeros outside the segment", "", 2)

/* ---- add_positions -------------------------------------------------------------------------------------- */

static bool add_positions_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y);
    const fv_real *table = y->in[1]->value.data;
    for (size_t s = 0; s < segments->count; s++)
        for (size_t r = segments->offsets[s]; r < segments->offsets[s + 1]; r++) {
            const fv_real *restrict x = y->in[0]->value.data + r * d;
            const fv_real *restrict e = table + (r - segments->offsets[s]) * d;
            fv_real *restrict out = y->value.data + r * d;
            for (size_t c = 0; c < d; c++)
                out[c] = x[c] + e[c];
        }
    return true;
}

/* dx = dy, dtable[position] = dy summed over the rows at that position */
static void add_positions_backward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y);
    fv_real *dx = fv_grad(t, y->in[0]), *de = fv_grad(t, y->in[1]);
    if (dx != NULL)
        add_to(fvi_count(y), y->grad, dx);
    for (size_t s = 0; de != NULL && s < segments->count; s++)
        add_to((segments->offsets[s + 1] - segments->offsets[s]) * d,
               y->grad + segments->offsets[s] * d, de);
}

static fv_var *add_positions_sample(fv_sampler *s, int which)
{
    fv_var *x = fv_sample(s, FV_SHAPE(9, 3), -2, 2);
    return fv_add_positions(fv_sampler_tape(s), x, fv_sample(s, FV_SHAPE(which ? 4 : 6, 3), -2, 2),
                            &sample_segments);
}
FVI_OP(add_positions, "y[r] = x[r] + table[position of r in its segment]", "", 2)

/* ---- pooling ------------------------------------------------------------------------------------------- */

static void pool(const fv_var *y, bool mean)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y);
    for (size_t s = 0; s < segments->count; s++) {
        size_t first = segments->offsets[s], end = segments->offsets[s + 1];
        fv_real *restrict out = y->value.data + s * d;
        const fv_real scale = mean && end > first ? 1 / (fv_real)(end - first) : 1;
        memset(out, 0, d * sizeof *out);
        for (size_t r = first; r < end; r++)
            add_to(d, y->in[0]->value.data + r * d, out);
        for (size_t c = 0; c < d; c++)
            out[c] *= scale;
    }
}

static void pool_back(fv_tape *t, fv_var *y, bool mean)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y);
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t s = 0; dx != NULL && s < segments->count; s++) {
        size_t first = segments->offsets[s], end = segments->offsets[s + 1];
        const fv_real *restrict dy = y->grad + s * d;
        const fv_real scale = mean && end > first ? 1 / (fv_real)(end - first) : 1;
        for (size_t r = first; r < end; r++)
            for (size_t c = 0; c < d; c++)
                dx[r * d + c] += scale * dy[c];
    }
}

static bool segment_mean_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    pool(y, true);
    return true;
}

/* dx = dy of the segment / its rows */
static void segment_mean_backward(fv_tape *t, fv_var *y)
{
    pool_back(t, y, true);
}

static fv_var *segment_mean_sample(fv_sampler *s, int which)
{
    (void)which;
    return fv_segment_mean(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 5), -2, 2),
                           &sample_segments);
}
FVI_OP(segment_mean, "y[s] = mean of x over the rows of segment s", "", 1)

static bool segment_sum_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    pool(y, false);
    return true;
}

/* dx = dy of the segment */
static void segment_sum_backward(fv_tape *t, fv_var *y)
{
    pool_back(t, y, false);
}

static fv_var *segment_sum_sample(fv_sampler *s, int which)
{
    (void)which;
    return fv_segment_sum(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 5), -2, 2),
                          &sample_segments);
}
FVI_OP(segment_sum, "y[s] = sum of x over the rows of segment s", "", 1)

/* saved: the row that won each number, SIZE_MAX for an empty segment */
static bool segment_max_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y);
    size_t *won = fvi_tape_take(t, fvi_count(y), sizeof *won);
    y->saved = won;
    for (size_t s = 0; won != NULL && s < segments->count; s++)
        for (size_t c = 0; c < d; c++) {
            size_t best = SIZE_MAX;
            for (size_t r = segments->offsets[s]; r < segments->offsets[s + 1]; r++)
                if (best == SIZE_MAX || fv_re(y->in[0]->value.data[r * d + c]) >
                                            fv_re(y->in[0]->value.data[best * d + c]))
                    best = r;
            won[s * d + c] = best;
            y->value.data[s * d + c] = best == SIZE_MAX ? 0 : y->in[0]->value.data[best * d + c];
        }
    return won != NULL;
}

/* dx = dy at the row that won */
static void segment_max_backward(fv_tape *t, fv_var *y)
{
    const size_t d = fvi_columns(y), *won = y->saved;
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t i = 0, n = dx ? fvi_count(y) : 0; i < n; i++)
        if (won[i] != SIZE_MAX)
            dx[won[i] * d + i % d] += y->grad[i];
}

static fv_var *segment_max_sample(fv_sampler *s, int which)
{
    (void)which;
    /* far apart, so that no difference step changes the winner */
    return fv_segment_max(fv_sampler_tape(s), fv_sample(s, FV_SHAPE(9, 5), -20, 20),
                          &sample_segments);
}
FVI_OP(segment_max, "y[s] = largest of x over the rows of segment s", "", 1)

#if FVI_ONCE
fv_var *fv_neighbours(fv_tape *t, fv_var *x, const fv_segments *segments, int radius)
{
    if (!given(t, "neighbours", x) || !segmented(t, "neighbours", x, segments))
        return NULL;
    size_t width;
    if (radius < 0 || !fvi_mul(2 * (size_t)radius + 1, fvi_columns(x), &width))
        return fv_refuse(t, "neighbours", "radius %d for %s", radius, fv_describe(t, x));
    const segment_options options = {segments, radius};
    return fvi_record(t, FVI_OP_neighbours, FV_SHAPE(fvi_rows(x), width), &options, sizeof options,
                      1, &x);
}

fv_var *fv_add_positions(fv_tape *t, fv_var *x, fv_var *table, const fv_segments *segments)
{
    const char *op = "add_positions";
    if (!given(t, op, x) || !given(t, op, table) || !segmented(t, op, x, segments) ||
        !fvi_is_matrix(t, op, "table", table))
        return NULL;
    if (fvi_columns(table) != fvi_columns(x))
        return fv_refuse(t, op, "%s with %s: widths differ", fv_describe(t, x),
                         fv_describe(t, table));
    for (size_t s = 0; s < segments->count; s++)
        if (segments->offsets[s + 1] - segments->offsets[s] > fvi_rows(table))
            return fv_refuse(t, op, "segment %zu has %zu rows, more than the positions of %s", s,
                             segments->offsets[s + 1] - segments->offsets[s],
                             fv_describe(t, table));
    const segment_options options = {segments, 0};
    return fvi_record(t, FVI_OP_add_positions, x->value.shape, &options, sizeof options, 2,
                      (fv_var *[]){x, table});
}

static fv_var *pooled(fv_tape *t, const char *op, fvi_op_id id, fv_var *x,
                      const fv_segments *segments)
{
    if (!given(t, op, x) || !segmented(t, op, x, segments))
        return NULL;
    const segment_options options = {segments, 0};
    return fvi_record(t, id, FV_SHAPE(segments->count, fvi_columns(x)), &options, sizeof options, 1,
                      &x);
}

fv_var *fv_segment_mean(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pooled(t, "segment_mean", FVI_OP_segment_mean, x, segments);
}

fv_var *fv_segment_sum(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pooled(t, "segment_sum", FVI_OP_segment_sum, x, segments);
}

fv_var *fv_segment_max(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pooled(t, "segment_max", FVI_OP_segment_max, x, segments);
}
#endif
