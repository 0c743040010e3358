/* Rows of a table by number (embedding), alone or summed in bags. A parameter's gradient is kept by
 * touched rows: it costs what the step used, not what the table holds. */
#include "autograd/ops/slices.h"

#include <math.h>

typedef struct {
    const int32_t *ids;
    size_t count;
    const fv_segments *bags;
} gather_options;

static fv_real bag_scale(const fv_segments *bags, size_t bag)
{
    const size_t size = segment_length(bags, bag);
    return size ? (fv_real)(1 / sqrt((double)size)) : 0;
}

static bool gather_forward(fv_tape *t, fv_var *y)
{
    const gather_options *o = y->options;
    const fv_var *table = y->in[0];
    take_slices(t, view_axis(table->value.shape, 0), o->ids, o->count, table->value.data,
                y->value.data, false);
    return true;
}

/* Adds entry by entry, in order, to the rows of a table: row slot[id] - 1 of those that were touched, or
 * row id when slot is NULL. Threads share the columns, so that no sum is cut. */
static void add_gathered(const fv_tape *t, const fvi_gathered *g, size_t d, const int32_t *slot,
                         fv_real *rows)
{
    const size_t entries = g->bags ? fv_segments_rows(g->bags) : g->count;
    const axis_view v = {1, entries, d};
    const int parts = parts_beside(t, v, 3 * entries);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = beside_at(v, parts, k).inner;
        for (size_t i = 0; i < g->count; i++) {
            const fv_real *restrict dy = g->grad + i * d,
                                    scale = g->bags ? bag_scale(g->bags, i) : 1;
            const size_t first = g->bags ? g->bags->offsets[i] : i,
                         end = g->bags ? g->bags->offsets[i + 1] : i + 1;
            for (size_t e = first; e < end; e++) {
                const int32_t row = slot ? slot[g->ids[e]] - 1 : g->ids[e];
                fv_real *restrict to = rows + (size_t)row * d;
                for (size_t c = p.from; c < p.to; c++)
                    to[c] += scale * dy[c];
            }
        }
    }
}

/* dtable[ids[i]] += dy[i], left for the end of fv_backward when the table is a parameter */
static void gather_backward(fv_tape *t, fv_var *y)
{
    const gather_options *o = y->options;
    fv_var *table = y->in[0];
    if (!table->needs_grad)
        return;
    const fvi_gathered entry = {o->ids, o->count, o->bags, y->grad,
                                table->use ? table->use->gathered : NULL};
    if (table->use == NULL) {
        fv_real *dense = fv_grad(t, table);
        if (dense != NULL)
            add_gathered(t, &entry, fvi_columns(y), NULL, dense);
        return;
    }
    fvi_gathered *kept = fvi_tape_take(t, 1, sizeof *kept);
    if (kept != NULL) {
        *kept = entry;
        table->use->gathered = kept;
    }
}

static const int32_t sample_ids[] = {3, 0, 3, 5, 1, 3, 3};

static fv_var *gather_sample(fv_sampler *s, int which)
{
    static const size_t counts[] = {7, 1, 0};
    fv_var *table = fv_sample(s, which == 3 ? FV_SHAPE(6, 1) : FV_SHAPE(6, 5), -2, 2);
    return fv_gather(fv_sampler_tape(s), table, sample_ids, counts[which % 3]);
}
FVI_OP(gather, "y[i] = table[ids[i]]", "", 4)

static bool gather_bags_forward(fv_tape *t, fv_var *y)
{
    const gather_options *o = y->options;
    const size_t d = fvi_columns(y), entries = fv_segments_rows(o->bags);
    const int parts = parts_of(t, o->count, o->count ? entries * d / o->count : 0);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = part_at(o->count, parts, k);
        for (size_t bag = p.from; bag < p.to; bag++) {
            fv_real *restrict out = y->value.data + bag * d;
            const fv_real scale = bag_scale(o->bags, bag);
            memset(out, 0, d * sizeof *out);
            for (size_t e = o->bags->offsets[bag]; e < o->bags->offsets[bag + 1]; e++)
                add_to(d, y->in[0]->value.data + (size_t)o->ids[e] * d, out);
            for (size_t c = 0; c < d; c++)
                out[c] *= scale;
        }
    }
    return true;
}

/* dtable[id] += dy[bag] / sqrt(size) for every id of the bag */
static void gather_bags_backward(fv_tape *t, fv_var *y)
{
    gather_backward(t, y);
}

static fv_var *gather_bags_sample(fv_sampler *s, int which)
{
    static const size_t at[] = {0, 3, 3, 7}, one[] = {0, 1}, empties[] = {0, 0, 0};
    static const fv_segments bags[] = {{3, at}, {1, one}, {2, empties}};
    fv_var *table = fv_sample(s, FV_SHAPE(6, 5), -2, 2);
    return fv_gather_bags(fv_sampler_tape(s), table, sample_ids, &bags[which]);
}
FVI_OP(gather_bags, "y[bag] = sum of table[id] over the bag's ids / sqrt(size of the bag)", "", 3)

/* Gives each row of a gather's ids a slot, in order of first use; slots count from 1 in use->slot. */
static void give_slots(fvi_use *use, const fvi_gathered *g)
{
    const size_t entries = g->bags ? fv_segments_rows(g->bags) : g->count;
    for (size_t e = 0; e < entries; e++)
        if (use->slot[g->ids[e]] == 0) {
            use->rows[use->touched++] = g->ids[e];
            use->slot[g->ids[e]] = (int32_t)use->touched;
        }
}

void FVI_NAME(fvi_sum_gathered)(const fv_tape *t, fvi_use *use, size_t d, fv_real *dense)
{
    for (const fvi_gathered *g = use->gathered; g != NULL; g = g->next) {
        if (dense == NULL)
            give_slots(use, g);
        add_gathered(t, g, d, dense ? NULL : use->slot, dense ? dense : use->row_grad);
    }
    for (size_t i = 0; i < use->touched; i++) /* zero between steps */
        use->slot[use->rows[i]] = 0;
}

#if FVI_ONCE
static fv_var *gather(fv_tape *t, const char *op, fvi_op_id id, fv_var *table, const int32_t *ids,
                      size_t entries, size_t count, const fv_segments *bags)
{
    if (!given(t, op, table) || !fvi_is_matrix(t, op, "table", table))
        return NULL;
    if (ids == NULL && entries > 0)
        return fv_refuse(t, op, "no ids");
    const size_t stray = stray_id(ids, entries, fvi_rows(table));
    if (stray < entries)
        return fv_refuse(t, op, "id %d at %zu is outside table %s", (int)ids[stray], stray,
                         fv_describe(t, table));
    const gather_options options = {ids, count, bags};
    return fvi_record(t, id, FV_SHAPE(count, fvi_columns(table)), &options, sizeof options, 1,
                      &table);
}

fv_var *fv_gather(fv_tape *t, fv_var *table, const int32_t *ids, size_t count)
{
    return gather(t, "gather", FVI_OP_gather, table, ids, count, count, NULL);
}

fv_var *fv_gather_bags(fv_tape *t, fv_var *table, const int32_t *ids, const fv_segments *bags)
{
    if (fv_tape_ok(t) && (bags == NULL || bags->offsets == NULL))
        return fv_refuse(t, "gather_bags", "no bags");
    if (!are_segments(t, "gather_bags", bags))
        return NULL;
    return gather(t, "gather_bags", FVI_OP_gather_bags, table, ids, fv_segments_rows(bags),
                  bags->count, bags);
}
#endif
