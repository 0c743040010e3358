/* Segments into rows and rows into segments: mean, sum, largest, softmax, expand.
 *
 * Columns are taken in blocks, and each block of a segment is one piece of work. Sums run over the rows
 * of their segment alone, in order and in double, so that a segment's result does not depend on where it
 * stands nor on its neighbours. */
#include "autograd/ops/slices.h"
#include "tensor/math.h"

enum { BLOCK = 64 }; /* columns */

/* One block of columns of one segment. */
typedef struct {
    size_t segment, first, end; /* rows first .. end - 1 */
    size_t column, width;
} piece;

static inline size_t pieces_of(const fv_segments *segments, size_t d)
{
    return segments->count * (d / BLOCK + (d % BLOCK > 0));
}

static inline piece piece_at(const fv_segments *segments, size_t d, size_t i)
{
    const size_t blocks = d / BLOCK + (d % BLOCK > 0), s = i / blocks, column = i % blocks * BLOCK;
    return (piece){s, segments->offsets[s], segments->offsets[s + 1], column,
                   d - column < BLOCK ? d - column : BLOCK};
}

/* The parts that pieces are cut into, where each number of the rows costs so much. */
static inline int parts_of_pieces(const fv_tape *t, const fv_segments *segments, size_t d,
                                  size_t cost)
{
    const size_t pieces = pieces_of(segments, d), numbers = fv_segments_rows(segments) * d;
    return parts_of(t, pieces, pieces > 0 ? numbers / pieces * cost + 1 : 0);
}

static inline const fv_segments *segments_of(const fv_var *y)
{
    return *(const fv_segments *const *)y->options;
}

/* ---- sum, mean, expand ----------------------------------------------------------------------------- */

/* y[s] (+)= sum of the segment's rows of x, divided by their number for a mean */
static void pool(const fv_tape *t, const fv_segments *segments, size_t d, const fv_real *x,
                 fv_real *y, bool mean, bool add)
{
    const size_t pieces = pieces_of(segments, d);
    const int parts = parts_of_pieces(t, segments, d, 1);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part all = part_at(pieces, parts, k);
        for (size_t i = all.from; i < all.to; i++) {
            const piece p = piece_at(segments, d, i);
            const double rows = mean && p.end > p.first ? (double)(p.end - p.first) : 1;
            fv_real *restrict out = y + p.segment * d + p.column;
            fvi_wide sum[BLOCK] = {0};
            for (size_t r = p.first; r < p.end; r++) {
                const fv_real *restrict row = x + r * d + p.column;
                for (size_t c = 0; c < p.width; c++)
                    sum[c] += row[c];
            }
            for (size_t c = 0; c < p.width; c++)
                out[c] = (add ? out[c] : 0) + (fv_real)(sum[c] / rows);
        }
    }
}

/* y[r] (+)= x[s] for every row r of segment s, divided by their number for a mean */
static void spread(const fv_tape *t, const fv_segments *segments, size_t d, const fv_real *x,
                   fv_real *y, bool mean, bool add)
{
    const size_t rows = fv_segments_rows(segments);
    const int parts = parts_of(t, rows, 2 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from, s = fv_segments_find(segments, r); r < p.to; r++) {
            s = segment_at(segments, s, r);
            const fv_real scale = mean ? 1 / (fv_real)segment_length(segments, s) : 1;
            const fv_real *restrict from = x + s * d;
            fv_real *restrict to = y + r * d;
            if (add)
                for (size_t c = 0; c < d; c++)
                    to[c] += scale * from[c];
            else
                for (size_t c = 0; c < d; c++)
                    to[c] = scale * from[c];
        }
    }
}

static const size_t sample_at[] = {0, 4, 4, 5, 9}, one_at[] = {0, 1}, empty_at[] = {0, 0, 0};
static const fv_segments samples[] = {{4, sample_at}, {1, one_at}, {2, empty_at}, {4, sample_at}};
static const size_t sample_width[] = {5, 3, 2, 1};

/* The input of a sample, a row for each of its segments' rows. */
static fv_var *sample_rows(fv_sampler *s, int which, double size)
{
    const size_t rows = fv_segments_rows(&samples[which]);
    return fv_sample(s, FV_SHAPE(rows, sample_width[which]), -size, size);
}

static bool segment_mean_forward(fv_tape *t, fv_var *y)
{
    pool(t, segments_of(y), fvi_columns(y), y->in[0]->value.data, y->value.data, true, false);
    return true;
}

/* dx = dy of the segment / its rows */
static void segment_mean_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        spread(t, segments_of(y), fvi_columns(y), y->grad, dx, true, !blank);
}

static fv_var *segment_mean_sample(fv_sampler *s, int which)
{
    return fv_segment_mean(fv_sampler_tape(s), sample_rows(s, which, 2), &samples[which]);
}
FVI_OP(segment_mean, "y[s] = mean of x over the rows of segment s", "", 4)

static bool segment_sum_forward(fv_tape *t, fv_var *y)
{
    pool(t, segments_of(y), fvi_columns(y), y->in[0]->value.data, y->value.data, false, false);
    return true;
}

/* dx = dy of the segment */
static void segment_sum_backward(fv_tape *t, fv_var *y)
{
    bool blank;
    fv_real *dx = fvi_grad_blank(t, y->in[0], &blank);
    if (dx != NULL)
        spread(t, segments_of(y), fvi_columns(y), y->grad, dx, false, !blank);
}

static fv_var *segment_sum_sample(fv_sampler *s, int which)
{
    return fv_segment_sum(fv_sampler_tape(s), sample_rows(s, which, 2), &samples[which]);
}
FVI_OP(segment_sum, "y[s] = sum of x over the rows of segment s", "", 4)

static bool segment_expand_forward(fv_tape *t, fv_var *y)
{
    spread(t, segments_of(y), fvi_columns(y), y->in[0]->value.data, y->value.data, false, false);
    return true;
}

/* dx = sum of dy over the rows of the segment */
static void segment_expand_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    if (dx != NULL)
        pool(t, segments_of(y), fvi_columns(y), y->grad, dx, false, true);
}

static fv_var *segment_expand_sample(fv_sampler *s, int which)
{
    const fv_shape shape = FV_SHAPE(samples[which].count, sample_width[which]);
    return fv_segment_expand(fv_sampler_tape(s), fv_sample(s, shape, -2, 2), &samples[which]);
}
FVI_OP(segment_expand, "y[r] = x[s] for every row r of segment s", "", 4)

/* ---- largest ------------------------------------------------------------------------------------------- */

/* Whether x takes the place of the largest so far: it is larger, or the first NaN. */
static inline bool beats(fv_real x, fv_real most)
{
    return !(fv_re(x) <= fv_re(most)) && fv_re(most) == fv_re(most);
}

/* saved: the row that won each number, the first of equals; nothing is read of an empty segment */
static bool segment_max_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = segments_of(y);
    const size_t d = fvi_columns(y), pieces = pieces_of(segments, d);
    const fv_real *x = y->in[0]->value.data;
    size_t *won = fvi_tape_take(t, fvi_count(y), sizeof *won);
    const int parts = parts_of_pieces(t, segments, d, 2);
    y->saved = won;
    if (won == NULL)
        return false;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part all = part_at(pieces, parts, k);
        for (size_t i = all.from; i < all.to; i++) {
            const piece p = piece_at(segments, d, i);
            fv_real *restrict most = y->value.data + p.segment * d + p.column;
            size_t *restrict row = won + p.segment * d + p.column;
            if (p.first == p.end) {
                memset(most, 0, p.width * sizeof *most);
                continue;
            }
            memcpy(most, x + p.first * d + p.column, p.width * sizeof *most);
            for (size_t c = 0; c < p.width; c++)
                row[c] = p.first;
            for (size_t r = p.first + 1; r < p.end; r++) {
                const fv_real *restrict here = x + r * d + p.column;
                for (size_t c = 0; c < p.width; c++) {
                    const bool better = beats(here[c], most[c]);
                    row[c] = better ? r : row[c];
                    most[c] = better ? here[c] : most[c];
                }
            }
        }
    }
    return true;
}

/* dx = dy at the row that won */
static void segment_max_backward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = segments_of(y);
    const size_t d = fvi_columns(y), *won = y->saved;
    fv_real *dx = fv_grad(t, y->in[0]);
    const int parts = parts_of(t, segments->count, 3 * d);
    if (dx == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(segments->count, parts, k);
        for (size_t s = p.from; s < p.to; s++)
            for (size_t c = 0; c < d && segment_length(segments, s) > 0; c++)
                dx[won[s * d + c] * d + c] += y->grad[s * d + c];
    }
}

static fv_var *segment_max_sample(fv_sampler *s, int which)
{
    /* far apart, so that no difference step changes the winner */
    return fv_segment_max(fv_sampler_tape(s), sample_rows(s, which, 20), &samples[which]);
}
FVI_OP(segment_max, "y[s] = largest of x over the rows of segment s", "", 4)

/* ---- softmax ------------------------------------------------------------------------------------------- */

/* y = exp(x - most) / its sum, down the rows. A column of -inf alone has sum 0, and stays zeros. */
static void softmax_piece(piece p, size_t d, const fv_real *x, fv_real *y)
{
    fv_real most[BLOCK], share[BLOCK];
    fvi_wide sum[BLOCK] = {0};
    for (size_t c = 0; c < p.width; c++)
        most[c] = -(fv_real)INFINITY;
    for (size_t r = p.first; r < p.end; r++) {
        const fv_real *restrict row = x + r * d + p.column;
        for (size_t c = 0; c < p.width; c++)
            most[c] = beats(row[c], most[c]) ? row[c] : most[c];
    }
    for (size_t c = 0; c < p.width; c++)
        most[c] = fv_re(most[c]) == -INFINITY ? 0 : most[c];
    for (size_t r = p.first; r < p.end; r++) {
        const fv_real *restrict row = x + r * d + p.column;
        fv_real *restrict out = y + r * d + p.column;
        for (size_t c = 0; c < p.width; c++) {
            out[c] = fvi_exp(row[c] - most[c]);
            sum[c] += out[c];
        }
    }
    for (size_t c = 0; c < p.width; c++)
        share[c] = fv_re(sum[c]) == 0 ? 0 : (fv_real)(1 / sum[c]);
    for (size_t r = p.first; r < p.end; r++) {
        fv_real *restrict out = y + r * d + p.column;
        for (size_t c = 0; c < p.width; c++)
            out[c] *= share[c];
    }
}

/* Where y is 0 nothing of dy is read, not even NaN; chosen before the product, so that the sums are
 * multiply-adds with every instruction set. */
static void softmax_piece_back(piece p, size_t d, const fv_real *y, const fv_real *dy, fv_real *dx)
{
    fvi_wide dot[BLOCK] = {0};
    for (size_t r = p.first; r < p.end; r++) {
        const size_t at = r * d + p.column;
        for (size_t c = 0; c < p.width; c++)
            dot[c] += (fvi_wide)y[at + c] * (fv_re(y[at + c]) == 0 ? 0 : dy[at + c]);
    }
    for (size_t r = p.first; r < p.end; r++) {
        const size_t at = r * d + p.column;
        for (size_t c = 0; c < p.width; c++)
            dx[at + c] += y[at + c] * (fv_re(y[at + c]) == 0 ? 0 : dy[at + c] - (fv_real)dot[c]);
    }
}

static bool segment_softmax_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = segments_of(y);
    const size_t d = fvi_columns(y), pieces = pieces_of(segments, d);
    const int parts = parts_of_pieces(t, segments, d, 8);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part all = part_at(pieces, parts, k);
        for (size_t i = all.from; i < all.to; i++)
            softmax_piece(piece_at(segments, d, i), d, y->in[0]->value.data, y->value.data);
    }
    return true;
}

/* dx = y * (dy - sum of y * dy over the segment), column by column */
static void segment_softmax_backward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = segments_of(y);
    const size_t d = fvi_columns(y), pieces = pieces_of(segments, d);
    fv_real *dx = fv_grad(t, y->in[0]);
    const int parts = parts_of_pieces(t, segments, d, 5);
    if (dx == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part all = part_at(pieces, parts, k);
        for (size_t i = all.from; i < all.to; i++)
            softmax_piece_back(piece_at(segments, d, i), d, y->value.data, y->grad, dx);
    }
}

static fv_var *segment_softmax_sample(fv_sampler *s, int which)
{
    /* sample 4: one row of -inf among four, and a segment of one such row alone */
    static const unsigned char hidden[] = {0, 1, 0, 0, 1, 0, 0, 0, 0};
    fv_var *x = sample_rows(s, which % 4, which == 3 ? 20 : 2);
    if (which == 4)
        x = fv_masked_fill(fv_sampler_tape(s), x, (fv_bools){FV_SHAPE(9, 1), hidden}, -INFINITY);
    return fv_segment_softmax(fv_sampler_tape(s), x, &samples[which % 4]);
}
FVI_OP(segment_softmax, "y[r] = e^x[r] / sum of e^x over the rows of r's segment", "", 5)

#if FVI_ONCE
static fv_var *pooled(fv_tape *t, const char *op, fvi_op_id id, fv_var *x,
                      const fv_segments *segments)
{
    if (!given(t, op, x) || !segmented(t, op, x, segments))
        return NULL;
    const size_t rows = id == FVI_OP_segment_softmax ? fvi_rows(x) : segments->count;
    return fvi_record(t, id, FV_SHAPE(rows, fvi_columns(x)), &segments, sizeof segments, 1, &x);
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

fv_var *fv_segment_softmax(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pooled(t, "segment_softmax", FVI_OP_segment_softmax, x, segments);
}

fv_var *fv_segment_expand(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    const char *op = "segment_expand";
    if (!given(t, op, x) || !are_segments(t, op, segments) || !fvi_is_matrix(t, op, "input", x))
        return NULL;
    if (segments->count != fvi_rows(x))
        return fv_refuse(t, op, "%s for %zu segments: one row each is expected", fv_describe(t, x),
                         segments->count);
    return fvi_record(t, FVI_OP_segment_expand,
                      FV_SHAPE(fv_segments_rows(segments), fvi_columns(x)), &segments,
                      sizeof segments, 1, &x);
}
#endif
