/* Rows that move inside their segments or between padded and packed: neighbours, positions, first, last,
 * pick, reverse, concat, pack, unpack. */
#include "autograd/ops/slices.h"

typedef struct {
    const fv_segments *segments;
    int radius;
} segment_options;

static const size_t sample_at[] = {0, 4, 4, 5, 9}, one_at[] = {0, 1}, empty_at[] = {0, 0, 0};
static const fv_segments samples[] = {{4, sample_at}, {1, one_at}, {2, empty_at}};

static fv_var *sample_rows(fv_sampler *s, const fv_segments *segments)
{
    return fv_sample(s, FV_SHAPE(fv_segments_rows(segments), 3), -2, 2);
}

/* ---- neighbours: the rows at -radius .. radius side by side ------------------------------------------ */

/* Those of row r that lie inside segment s: first .. end - 1. */
static inline part neighbours_of(const segment_options *o, size_t s, size_t r)
{
    const size_t radius = (size_t)o->radius, first = o->segments->offsets[s],
                 end = o->segments->offsets[s + 1];
    return (part){r - first > radius ? r - radius : first, end - r > radius ? r + radius + 1 : end};
}

static bool neighbours_forward(fv_tape *t, fv_var *y)
{
    const segment_options *o = y->options;
    const size_t d = fvi_columns(y->in[0]), rows = fvi_rows(y), width = fvi_columns(y);
    const int parts = parts_of(t, rows, 2 * width);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from, s = fv_segments_find(o->segments, r); r < p.to; r++) {
            s = segment_at(o->segments, s, r);
            const part near = neighbours_of(o, s, r);
            const size_t before = ((size_t)o->radius + near.from - r) * d,
                         inside = (near.to - near.from) * d;
            fv_real *out = y->value.data + r * width;
            memset(out, 0, before * sizeof *out);
            memcpy(out + before, y->in[0]->value.data + near.from * d, inside * sizeof *out);
            memset(out + before + inside, 0, (width - before - inside) * sizeof *out);
        }
    }
    return true;
}

/* dx[r] = sum over the places where row r stands as a neighbour, of the rows in order */
static void neighbours_backward(fv_tape *t, fv_var *y)
{
    const segment_options *o = y->options;
    const size_t d = fvi_columns(y->in[0]), rows = fvi_rows(y), width = fvi_columns(y);
    fv_real *dx = fv_grad(t, y->in[0]);
    const int parts = parts_of(t, rows, 2 * width);
    if (dx == NULL)
        return;
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from, s = fv_segments_find(o->segments, r); r < p.to; r++) {
            s = segment_at(o->segments, s, r);
            const part near = neighbours_of(o, s, r);
            for (size_t q = near.from; q < near.to; q++) /* r stands at radius + r - q in y[q] */
                add_to(d, y->grad + q * width + ((size_t)o->radius + r - q) * d, dx + r * d);
        }
    }
}

static fv_var *neighbours_sample(fv_sampler *s, int which)
{
    static const int radius[] = {1, 2, 0, 5, 1, 1}, of[] = {0, 0, 0, 0, 1, 2};
    const fv_segments *segments = &samples[of[which]];
    return fv_neighbours(fv_sampler_tape(s), sample_rows(s, segments), segments, radius[which]);
}
FVI_OP(neighbours, "y[r] = [x[r - radius] | .. | x[r + radius]], zeros outside the segment", "", 6)

/* ---- add_positions -------------------------------------------------------------------------------------- */

static bool add_positions_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y), rows = fvi_rows(y);
    const int parts = parts_of(t, rows, 3 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        for (size_t r = p.from, s = fv_segments_find(segments, r); r < p.to; r++) {
            s = segment_at(segments, s, r);
            const fv_real *restrict x = y->in[0]->value.data + r * d;
            const fv_real *restrict e = y->in[1]->value.data + (r - segments->offsets[s]) * d;
            fv_real *restrict out = y->value.data + r * d;
            for (size_t c = 0; c < d; c++)
                out[c] = x[c] + e[c];
        }
    }
    return true;
}

/* dx = dy, dtable[position] = dy summed over the rows at that position, the segments in order */
static void add_positions_backward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t d = fvi_columns(y), rows = fvi_rows(y), positions = fvi_rows(y->in[1]);
    fv_real *dx = fv_grad(t, y->in[0]), *de = fv_grad(t, y->in[1]);
    const int parts = parts_of(t, rows, 3 * d);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(rows, parts, k);
        if (dx != NULL)
            add_to((p.to - p.from) * d, y->grad + p.from * d, dx + p.from * d);
    }
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(positions, parts, k);
        for (size_t s = 0; de != NULL && s < segments->count; s++) {
            const size_t length = segment_length(segments, s), to = length < p.to ? length : p.to;
            if (p.from < to)
                add_to((to - p.from) * d, y->grad + (segments->offsets[s] + p.from) * d,
                       de + p.from * d);
        }
    }
}

static fv_var *add_positions_sample(fv_sampler *s, int which)
{
    const fv_segments *segments = &samples[which < 3 ? 0 : which - 2];
    fv_var *x = sample_rows(s, segments);
    if (which == 2) /* its own table */
        return fv_add_positions(fv_sampler_tape(s), x, x, segments);
    return fv_add_positions(fv_sampler_tape(s), x, fv_sample(s, FV_SHAPE(which ? 4 : 6, 3), -2, 2),
                            segments);
}
FVI_OP(add_positions, "y[r] = x[r] + table[position of r in its segment]", "", 5)

/* ---- pick ------------------------------------------------------------------------------------------------ */

typedef struct {
    const fv_segments *segments;
    const int32_t *position; /* NULL: position every for all */
    int32_t every;
} pick_options;

static inline int32_t position_of(const pick_options *o, size_t s)
{
    return o->position ? o->position[s] : o->every;
}

/* saved: the row that each sample picks */
static bool segment_pick_forward(fv_tape *t, fv_var *y)
{
    const pick_options *o = y->options;
    size_t *from = fvi_tape_take(t, o->segments->count, sizeof *from);
    y->saved = from;
    for (size_t s = 0; from != NULL && s < o->segments->count; s++) {
        const int64_t position = position_of(o, s);
        const size_t back = position < 0 ? (size_t)-position : 0;
        if (segment_length(o->segments, s) == 0)
            from[s] = NO_ROW;
        else
            from[s] = back ? o->segments->offsets[s + 1] - back
                           : o->segments->offsets[s] + (size_t)position;
    }
    return from != NULL && move_rows(t, y);
}

/* dx = dy at the rows that were picked */
static void segment_pick_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *segment_pick_sample(fv_sampler *s, int which)
{
    static const int32_t position[] = {2, 0, -1, -4};
    const fv_segments *segments = &samples[which < 3 ? 0 : which - 2];
    fv_var *x = sample_rows(s, segments);
    if (which == 1)
        return fv_segment_first(fv_sampler_tape(s), x, segments);
    if (which == 2)
        return fv_segment_last(fv_sampler_tape(s), x, segments);
    return fv_segment_pick(fv_sampler_tape(s), x, segments, which == 0 ? position : position + 1);
}
FVI_OP(segment_pick, "y[s] = row position[s] of segment s; also segment_first (0) and _last (-1)",
       "", 5)

/* ---- reverse, concat ------------------------------------------------------------------------------------- */

/* saved: the row of x that each row is */
static bool segment_reverse_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    size_t *from = fvi_tape_take(t, fvi_rows(y), sizeof *from);
    y->saved = from;
    for (size_t s = 0; from != NULL && s < segments->count; s++)
        for (size_t r = segments->offsets[s], end = segments->offsets[s + 1]; r < end; r++)
            from[r] = segments->offsets[s] + (end - 1 - r);
    return from != NULL && move_rows(t, y);
}

/* dx = dy reversed */
static void segment_reverse_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *segment_reverse_sample(fv_sampler *s, int which)
{
    return fv_segment_reverse(fv_sampler_tape(s), sample_rows(s, &samples[which]), &samples[which]);
}
FVI_OP(segment_reverse, "y[first + i] = x[end - 1 - i] in each segment", "", 3)

typedef struct {
    const fv_segments *a, *b;
} concat_options;

/* saved: the row of a, or after those of b, that each row is */
static bool segment_concat_forward(fv_tape *t, fv_var *y)
{
    const concat_options *o = y->options;
    size_t *from = fvi_tape_take(t, fvi_rows(y), sizeof *from), at = 0;
    y->saved = from;
    for (size_t s = 0; from != NULL && s < o->a->count; s++) {
        for (size_t r = o->a->offsets[s]; r < o->a->offsets[s + 1]; r++)
            from[at++] = r;
        for (size_t r = o->b->offsets[s]; r < o->b->offsets[s + 1]; r++)
            from[at++] = fvi_rows(y->in[0]) + r;
    }
    return from != NULL && move_rows(t, y);
}

/* da, db = dy at the rows that came from there */
static void segment_concat_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *segment_concat_sample(fv_sampler *s, int which)
{
    static const size_t other_at[] = {0, 1, 3, 3, 4};
    static const fv_segments other = {4, other_at};
    const fv_segments *joined, *of_a = &samples[which % 3], *of_b = which ? of_a : &other;
    fv_var *a = sample_rows(s, of_a), *b = which == 3 ? a : sample_rows(s, of_b);
    return fv_segment_concat(fv_sampler_tape(s), a, of_a, b, which == 3 ? of_a : of_b, &joined);
}
FVI_OP(segment_concat, "y = [a[0]; b[0]; a[1]; b[1]; ..], sample by sample", "", 4)

/* ---- pack and unpack: each is the other's transpose -------------------------------------------------------- */

/* saved: the row of x [samples * time, d] that each row is */
static bool pack_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t time = y->in[0]->value.shape.size[1];
    size_t *from = fvi_tape_take(t, fvi_rows(y), sizeof *from);
    y->saved = from;
    for (size_t s = 0; from != NULL && s < segments->count; s++)
        for (size_t r = segments->offsets[s]; r < segments->offsets[s + 1]; r++)
            from[r] = s * time + (r - segments->offsets[s]);
    return from != NULL && move_rows(t, y);
}

/* dx = dy where there is a row, zeros behind */
static void pack_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *pack_sample(fv_sampler *s, int which)
{
    static const size_t time[] = {5, 1, 2, 4};
    const fv_segments *segments = &samples[which % 3];
    return fv_pack(fv_sampler_tape(s),
                   fv_sample(s, FV_SHAPE(segments->count, time[which], 3), -2, 2), segments);
}
FVI_OP(pack, "y[r] = x[s, position of r], s its segment", "", 4)

/* saved: the row of x that each place is */
static bool unpack_forward(fv_tape *t, fv_var *y)
{
    const fv_segments *segments = ((const segment_options *)y->options)->segments;
    const size_t time = y->value.shape.size[1];
    size_t *from = fvi_tape_take(t, fvi_rows(y), sizeof *from);
    y->saved = from;
    for (size_t s = 0; from != NULL && s < segments->count; s++)
        for (size_t i = 0; i < time; i++)
            from[s * time + i] =
                i < segment_length(segments, s) ? segments->offsets[s] + i : NO_ROW;
    return from != NULL && move_rows(t, y);
}

/* dx = dy of the row's place */
static void unpack_backward(fv_tape *t, fv_var *y)
{
    move_rows_back(t, y);
}

static fv_var *unpack_sample(fv_sampler *s, int which)
{
    static const size_t time[] = {5, 1, 2, 4};
    const fv_segments *segments = &samples[which % 3];
    return fv_unpack(fv_sampler_tape(s), sample_rows(s, segments), segments, time[which]);
}
FVI_OP(unpack, "y[s, position of r] = x[r], s its segment, else 0", "", 4)

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
        if (segment_length(segments, s) > fvi_rows(table))
            return fv_refuse(t, op, "segment %zu has %zu rows, more than the positions of %s", s,
                             segment_length(segments, s), fv_describe(t, table));
    const segment_options options = {segments, 0};
    return fvi_record(t, FVI_OP_add_positions, x->value.shape, &options, sizeof options, 2,
                      (fv_var *[]){x, table});
}

static fv_var *pick(fv_tape *t, const char *op, fv_var *x, pick_options o)
{
    if (!given(t, op, x) || !segmented(t, op, x, o.segments))
        return NULL;
    for (size_t s = 0; s < o.segments->count; s++) {
        const int64_t p = position_of(&o, s);
        const size_t length = segment_length(o.segments, s), least = length ? length : 1;
        if (p < 0 ? (uint64_t)-p > least : (uint64_t)p >= least)
            return fv_refuse(t, op, "position %d of sample %zu is outside its %zu rows", (int)p, s,
                             length);
    }
    return fvi_record(t, FVI_OP_segment_pick, FV_SHAPE(o.segments->count, fvi_columns(x)), &o,
                      sizeof o, 1, &x);
}

fv_var *fv_segment_first(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pick(t, "segment_first", x, (pick_options){segments, NULL, 0});
}

fv_var *fv_segment_last(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    return pick(t, "segment_last", x, (pick_options){segments, NULL, -1});
}

fv_var *fv_segment_pick(fv_tape *t, fv_var *x, const fv_segments *segments, const int32_t *position)
{
    if (x != NULL && segments != NULL && segments->count > 0 && position == NULL)
        return fv_refuse(t, "segment_pick", "no positions");
    return pick(t, "segment_pick", x, (pick_options){segments, position, 0});
}

fv_var *fv_segment_reverse(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    const char *op = "segment_reverse";
    if (!given(t, op, x) || !segmented(t, op, x, segments))
        return NULL;
    const segment_options options = {segments, 0};
    return fvi_record(t, FVI_OP_segment_reverse, x->value.shape, &options, sizeof options, 1, &x);
}

/* The segments that hold those of a and of b, sample by sample; NULL when memory is out. */
static const fv_segments *join(fv_tape *t, const fv_segments *a, const fv_segments *b)
{
    fv_segments *joined = fvi_tape_take(t, 1, sizeof *joined);
    size_t *offsets = fvi_tape_take(t, a->count + 1, sizeof *offsets);
    if (joined == NULL || offsets == NULL)
        return NULL;
    for (size_t s = 0; s <= a->count; s++)
        offsets[s] = a->offsets[s] + b->offsets[s];
    *joined = (fv_segments){a->count, offsets};
    return joined;
}

fv_var *fv_segment_concat(fv_tape *t, fv_var *a, const fv_segments *of_a, fv_var *b,
                          const fv_segments *of_b, const fv_segments **joined)
{
    const char *op = "segment_concat";
    size_t rows;
    if (joined != NULL)
        *joined = NULL;
    if (!given(t, op, a) || !given(t, op, b) || !segmented(t, op, a, of_a) ||
        !segmented(t, op, b, of_b))
        return NULL;
    if (of_a->count != of_b->count)
        return fv_refuse(t, op, "%zu segments with %zu: the samples differ", of_a->count,
                         of_b->count);
    if (fvi_columns(a) != fvi_columns(b) || !fvi_add(fvi_rows(a), fvi_rows(b), &rows))
        return fv_refuse(t, op, "%s with %s: widths differ", fv_describe(t, a), fv_describe(t, b));
    const concat_options options = {of_a, of_b};
    fv_var *y = fvi_record(t, FVI_OP_segment_concat, FV_SHAPE(rows, fvi_columns(a)), &options,
                           sizeof options, 2, (fv_var *[]){a, b});
    const fv_segments *of_y = y ? join(t, of_a, of_b) : NULL;
    if (of_y == NULL)
        return NULL;
    if (joined != NULL)
        *joined = of_y;
    return y;
}

const int32_t *fv_segment_positions(fv_tape *t, const fv_segments *segments)
{
    const char *op = "segment_positions";
    if (!are_segments(t, op, segments))
        return NULL;
    for (size_t s = 0; s < segments->count; s++)
        if (segment_length(segments, s) > INT32_MAX) {
            fv_refuse(t, op, "segment %zu has %zu rows, more than can be numbered", s,
                      segment_length(segments, s));
            return NULL;
        }
    int32_t *position = fvi_tape_take(t, fv_segments_rows(segments), sizeof *position);
    for (size_t s = 0; position != NULL && s < segments->count; s++)
        for (size_t i = 0, length = segment_length(segments, s); i < length; i++)
            position[segments->offsets[s] + i] = (int32_t)i;
    return position;
}

fv_var *fv_pack(fv_tape *t, fv_var *x, const fv_segments *segments)
{
    const char *op = "pack";
    if (!given(t, op, x) || !are_segments(t, op, segments))
        return NULL;
    const fv_shape shape = x->value.shape;
    if (shape.rank != 3 || shape.size[2] == 0)
        return fv_refuse(t, op, "input is %s, expected [samples, time, d]", fv_describe(t, x));
    if (shape.size[0] != segments->count)
        return fv_refuse(t, op, "%s with %zu segments: the samples differ", fv_describe(t, x),
                         segments->count);
    for (size_t s = 0; s < segments->count; s++)
        if (segment_length(segments, s) > shape.size[1])
            return fv_refuse(t, op, "segment %zu has %zu rows, more than the time of %s", s,
                             segment_length(segments, s), fv_describe(t, x));
    const segment_options options = {segments, 0};
    return fvi_record(t, FVI_OP_pack, FV_SHAPE(fv_segments_rows(segments), shape.size[2]), &options,
                      sizeof options, 1, &x);
}

fv_var *fv_unpack(fv_tape *t, fv_var *x, const fv_segments *segments, size_t time)
{
    const char *op = "unpack";
    if (!given(t, op, x) || !segmented(t, op, x, segments))
        return NULL;
    for (size_t s = 0; s < segments->count; s++)
        if (segment_length(segments, s) > time)
            return fv_refuse(t, op, "segment %zu has %zu rows, more than time %zu", s,
                             segment_length(segments, s), time);
    const segment_options options = {segments, 0};
    return fvi_record(t, FVI_OP_unpack, FV_SHAPE(segments->count, time, fvi_columns(x)), &options,
                      sizeof options, 1, &x);
}
#endif
