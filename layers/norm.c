/* Layer norm with learned scale and shift. */
#include "layers/layers.h"

fv_norm fv_norm_init(fv_scope scope, size_t d)
{
    fv_norm layer;
    layer.weight = fv_param_new(scope, "weight", FV_SHAPE(d), (fv_init){FV_ONES, 0});
    layer.bias = fv_param_new(scope, "bias", FV_SHAPE(d), (fv_init){FV_ZEROS, 0});
    if (layer.weight != NULL)
        layer.weight->no_decay = true;
    if (layer.bias != NULL)
        layer.bias->no_decay = true;
    return layer;
}

fv_var *fv_norm_forward(fv_tape *t, const fv_norm *layer, fv_var *x)
{
    fv_var *weight = fv_use(t, layer->weight);
    return fv_layer_norm(t, x, weight, fv_use(t, layer->bias), NULL);
}
