/* Embedding: a row of a table for each id, or a sum of rows for each bag of ids. */
#include "layers/layers.h"

fv_embedding fv_embedding_init(fv_scope scope, size_t count, size_t d,
                               const fv_embedding_opts *opts)
{
    const fv_init normal = {FV_NORMAL, opts && opts->deviation > 0 ? opts->deviation : 1};
    fv_embedding layer = {fv_param_new(scope, "weight", FV_SHAPE(count, d), normal)};
    if (layer.weight != NULL) {
        layer.weight->no_decay = true;
        layer.weight->touched_rows = opts != NULL && opts->touched_rows;
    }
    return layer;
}

fv_var *fv_embedding_forward(fv_tape *t, const fv_embedding *layer, const int32_t *ids, size_t rows)
{
    return fv_gather(t, fv_use(t, layer->weight), ids, rows);
}

fv_var *fv_embedding_bags(fv_tape *t, const fv_embedding *layer, const int32_t *ids,
                          const fv_segments *bags)
{
    return fv_gather_bags(t, fv_use(t, layer->weight), ids, bags);
}
