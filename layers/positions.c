/* Positions, learned or sinusoidal: a vector for each place in a sample. */
#include "layers/layers.h"

#include <math.h>

fv_positions fv_positions_init(fv_scope scope, size_t positions, size_t d,
                               const fv_positions_opts *opts)
{
    const bool fixed = opts != NULL && opts->sinusoidal;
    const fv_init start = {fixed ? FV_ZEROS : FV_NORMAL, 0.02};
    fv_positions layer = {fv_param_new(scope, "weight", FV_SHAPE(positions, d), start)};
    if (layer.weight == NULL)
        return layer;
    layer.weight->no_decay = true;
    layer.weight->frozen = fixed;
    for (size_t p = 0; fixed && p < positions; p++)
        for (size_t c = 0; c < d; c++) {
            double angle = (double)p / pow(10000, (double)(c - c % 2) / (double)d);
            layer.weight->value.data[p * d + c] = (fv_real)(c % 2 ? cos(angle) : sin(angle));
        }
    return layer;
}

fv_var *fv_positions_forward(fv_tape *t, const fv_positions *layer, fv_var *x,
                             const fv_segments *segments)
{
    return fv_add_positions(t, x, fv_use(t, layer->weight), segments);
}
