/* Rows of a table by number (embedding), alone or summed in bags. A parameter's gradient is kept by
 * touched rows: it costs what the step used, not what the table holds. */
#include "autograd/ops/ops.h"

#include <math.h>
#include <string.h>

typedef struct {
    const int32_t *ids;
    size_t count;
    const fv_segments *bags;
} gather_options;

static fv_real bag_scale(const fv_segments *bags, size_t bag)
{
    size_t size = bags->offsets[bag + 1] - bags->offsets[bag];
    return size ? (fv_real)(1 / sqrt((double)size)) : 0;
}

static bool gather_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const gather_options *o = y->options;
    const size_t d = fvi_columns(y);
    for (size_t i = 0; i < o->count; i++)
        memcpy(y->value.data + i * d, y->in[0]->value.data + (size_t)o->ids[i] * d,
               d * sizeof(fv_real));
    return true;
}

/* Adds entry by entry to the gradient of a table that is no parameter. */
static void add_dense(const fvi_gathered *g, size_t d, fv_real *restrict table)
{
    for (size_t i = 0; i < g->count; i++) {
        const fv_real *restrict dy = g->grad + i * d;
        if (g->bags == NULL) {
            add_to(d, dy, table + (size_t)g->ids[i] * d);
            continue;
        }
        const fv_real scale = bag_scale(g->bags, i);
        for (size_t e = g->bags->offsets[i]; e < g->bags->offsets[i + 1]; e++) {
            fv_real *restrict row = table + (size_t)g->ids[e] * d;
            for (size_t c = 0; c < d; c++)
                row[c] += scale * dy[c];
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
            add_dense(&entry, fvi_columns(y), dense);
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
    fv_var *table = fv_sample(s, FV_SHAPE(6, 5), -2, 2);
    return fv_gather(fv_sampler_tape(s), table, sample_ids, which ? 1 : 7);
}
FVI_OP(gather, "y[i] = table[ids[i]]", "", 2)

static bool gather_bags_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const gather_options *o = y->options;
    const size_t d = fvi_columns(y);
    for (size_t bag = 0; bag < o->count; bag++) {
        fv_real *restrict out = y->value.data + bag * d;
        const fv_real scale = bag_scale(o->bags, bag);
        memset(out, 0, d * sizeof *out);
        for (size_t e = o->bags->offsets[bag]; e < o->bags->offsets[bag + 1]; e++)
            add_to(d, y->in[0]->value.data + (size_t)o->ids[e] * d, out);
        for (size_t c = 0; c < d; c++)
            out[c] *= scale;
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
    static const size_t at[] = {0, 3, 3, 7}, one[] = {0, 1};
    static const fv_segments bags = {3, at}, single = {1, one};
    fv_var *table = fv_sample(s, FV_SHAPE(6, 5), -2, 2);
    return fv_gather_bags(fv_sampler_tape(s), table, sample_ids, which ? &single : &bags);
}
FVI_OP(gather_bags, "y[bag] = sum of table[id] over the bag's ids / sqrt(size of the bag)", "", 2)

/* The slot of a row, given in order of first use; slots count from 1 in use->slot. */
static fv_real *row_of(fvi_use *use, int32_t id, size_t d)
{
    int32_t *slot = &use->slot[id];
    if (*slot == 0) {
        use->rows[use->touched++] = id;
        *slot = (int32_t)use->touched;
    }
    return use->row_grad + (size_t)(*slot - 1) * d;
}

void FVI_NAME(fvi_sum_gathered)(fvi_use *use, size_t d, fv_real *dense)
{
    for (const fvi_gathered *g = use->gathered; g != NULL; g = g->next) {
        if (dense != NULL) {
            add_dense(g, d, dense);
            continue;
        }
        for (size_t i = 0; i < g->count; i++) {
            const fv_real *restrict dy = g->grad + i * d;
            size_t first = g->bags ? g->bags->offsets[i] : i,
                   end = g->bags ? g->bags->offsets[i + 1] : i + 1;
            const fv_real scale = g->bags ? bag_scale(g->bags, i) : 1;
            for (size_t e = first; e < end; e++) {
                fv_real *restrict row = row_of(use, g->ids[e], d);
                for (size_t c = 0; c < d; c++)
                    row[c] += scale * dy[c];
            }
        }
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
    for (size_t i = 0; i < entries; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= fvi_rows(table))
            return fv_refuse(t, op, "id %d at %zu is outside table %s", (int)ids[i], i,
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
    fv_error error = {FV_OK, ""};
    if (!fv_tape_ok(t))
        return NULL;
    if (bags == NULL || bags->offsets == NULL)
        return fv_refuse(t, "gather_bags", "no bags");
    if (!fv_segments_check(bags, fv_segments_rows(bags), &error))
        return fv_refuse(t, "gather_bags", "%s", error.text);
    return gather(t, "gather_bags", FVI_OP_gather_bags, table, ids, fv_segments_rows(bags),
                  bags->count, bags);
}
#endif
