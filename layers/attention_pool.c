/* Attention pooling: learned queries ask the rows of each segment. */
#include "layers/multihead.h"

#include <math.h>

fv_attention_pool fv_attention_pool_init(fv_scope scope, size_t d, size_t queries, size_t heads,
                                         const fv_multihead_opts *opts)
{
    const double sum = (double)queries + (double)d;
    const fv_init xavier = {FV_UNIFORM, sum > 0 ? sqrt(6 / sum) : 0};
    fv_attention_pool layer = {.query = fv_param_new(scope, "query", FV_SHAPE(queries, d), xavier)};
    if (layer.query != NULL)
        layer.attention = fv_multihead_init(fv_under(scope, "attention"), d, heads, opts);
    return layer;
}

fv_var *fv_attention_pool_forward(fv_tape *t, const fv_attention_pool *layer, fv_var *x,
                                  const fv_segments *segments)
{
    fv_var *query = fv_use(t, layer->query);
    if (query == NULL || segments == NULL)
        return query ? fv_refuse(t, "attention_pool", "no segments") : NULL;
    const size_t n = fvi_rows(query), d = fvi_columns(query), samples = segments->count;
    const fv_segments *of_queries = fvi_equal_segments(t, samples, n);
    query = fv_expand(t, fv_reshape(t, query, FV_SHAPE(1, n, d)), FV_SHAPE(samples, n, d));
    query = fv_reshape(t, query, FV_SHAPE(samples * n, d));
    const fv_mask mask = {.queries = of_queries, .keys = segments};
    return of_queries ? fv_multihead_cross(t, &layer->attention, query, x, x, &mask) : NULL;
}
