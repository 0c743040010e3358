/* Linear: x W^T + b. */
#include "layers/layers.h"

#include <math.h>

fv_linear fv_linear_init(fv_scope scope, size_t in, size_t out, const fv_linear_opts *opts)
{
    const fv_init uniform = {FV_UNIFORM, in ? 1 / sqrt((double)in) : 0};
    fv_linear layer = {.weight = fv_param_new(scope, "weight", FV_SHAPE(out, in), uniform)};
    if (opts != NULL && opts->no_bias)
        return layer;
    layer.bias = fv_param_new(scope, "bias", FV_SHAPE(out), uniform);
    if (layer.bias == NULL)
        layer.weight = NULL; /* half a layer must not run */
    else
        layer.bias->no_decay = true;
    return layer;
}

fv_var *fv_linear_forward(fv_tape *t, const fv_linear *layer, fv_var *x)
{
    fv_var *weight = fv_use(t, layer->weight);
    return fv_affine(t, x, weight, layer->bias ? fv_use(t, layer->bias) : NULL);
}

fv_var *fv_linear_relu_forward(fv_tape *t, const fv_linear *layer, fv_var *x)
{
    fv_var *weight = fv_use(t, layer->weight);
    return fv_affine_relu(t, x, weight, layer->bias ? fv_use(t, layer->bias) : NULL);
}
