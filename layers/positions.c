/* Positions, learned or sinusoidal: a vector for each place in a sample, added or put beside it. */
#include "autograd/internal.h"
#include "layers/layers.h"

#include <math.h>

fv_positions fv_positions_init(fv_scope scope, size_t positions, size_t d,
                               const fv_positions_opts *opts)
{
    const fv_positions_opts none = {.sinusoidal = false}, *o = opts ? opts : &none;
    const double base = o->base != 0 ? o->base : 10000;
    const fv_init start = {o->sinusoidal ? FV_ZEROS : FV_NORMAL, 0.02};
    fv_positions layer = {.concatenated = o->concatenated};
    if (!(base > 0)) {
        fv_scope_refuse(scope, "positions: the base must be above 0");
        return layer;
    }
    layer.weight = fv_param_new(scope, "weight", FV_SHAPE(positions, d), start);
    if (layer.weight == NULL)
        return layer;
    layer.weight->no_decay = true;
    layer.weight->frozen = o->sinusoidal;
    for (size_t p = 0; o->sinusoidal && p < positions; p++)
        for (size_t c = 0; c < d; c++) {
            double angle = (double)p / pow(base, (double)(c - c % 2) / (double)d);
            layer.weight->value.data[p * d + c] = (fv_real)(c % 2 ? cos(angle) : sin(angle));
        }
    return layer;
}

/* The table's row for each row of the segments. */
static fv_var *vectors(fv_tape *t, const fv_positions *layer, const fv_segments *segments,
                       const size_t *start)
{
    fv_var *table = fv_use(t, layer->weight);
    const int32_t *position = fv_segment_positions(t, segments);
    if (table == NULL || position == NULL)
        return NULL;
    const size_t rows = fv_segments_rows(segments), there_are = fvi_rows(table);
    int32_t *ids = fv_tape_alloc(t, rows, sizeof *ids);
    for (size_t s = 0; ids != NULL && s < segments->count; s++) {
        const size_t first = start ? start[s] : 0, at = segments->offsets[s],
                     length = segments->offsets[s + 1] - at;
        if (length > there_are || first > there_are - length)
            return fv_refuse(t, "positions", "segment %zu has positions %zu .. %zu, the table %zu",
                             s, first, first + length - 1, there_are);
        for (size_t i = 0; i < length; i++)
            ids[at + i] = (int32_t)(first + (size_t)position[at + i]);
    }
    return ids ? fv_gather(t, table, ids, rows) : NULL;
}

fv_var *fv_positions_after(fv_tape *t, const fv_positions *layer, fv_var *x,
                           const fv_segments *segments, const size_t *start)
{
    if (x == NULL)
        return NULL;
    if (layer->concatenated)
        return fv_concat(t, 2, (fv_var *[]){x, vectors(t, layer, segments, start)}, 1);
    if (start == NULL)
        return fv_add_positions(t, x, fv_use(t, layer->weight), segments);
    return fv_add(t, x, vectors(t, layer, segments, start));
}

fv_var *fv_positions_forward(fv_tape *t, const fv_positions *layer, fv_var *x,
                             const fv_segments *segments)
{
    return fv_positions_after(t, layer, x, segments, NULL);
}
