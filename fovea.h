/* fovea: attention models in C. The whole API, in the order in which its rooms build on each other. */
#ifndef FOVEA_H
#define FOVEA_H

#include "tensor/tensor.h"
#include "autograd/autograd.h"
#include "layers/layers.h"
#include "train/train.h"

#endif
