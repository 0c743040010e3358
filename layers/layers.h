/* Parameters with names, and the layers made of them. A layer is a plain struct that owns nothing: _init
 * makes its parameters in a scope, _forward builds its part of the tape. Names and shapes are those of
 * PyTorch's state_dict. When an init fails the parameter set keeps the error, and forward gives NULL. */
#ifndef FV_LAYERS_H
#define FV_LAYERS_H

#include "autograd/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- linear ------------------------------------------------------------------------------------ */

typedef struct {
    fv_param *weight; /* [out, in], uniform in +-1 / sqrt(in) */
    fv_param *bias;   /* [out] or NULL, the same */
} fv_linear;
typedef struct {
    bool no_bias;
} fv_linear_opts;
/* opts NULL: with bias. */
fv_linear fv_linear_init(fv_scope scope, size_t in, size_t out, const fv_linear_opts *opts);
/* [rows, in] -> [rows, out], and the same with relu folded in. */
fv_var *fv_linear_forward(fv_tape *t, const fv_linear *layer, fv_var *x);
fv_var *fv_linear_relu_forward(fv_tape *t, const fv_linear *layer, fv_var *x);

/* ---- embedding ----------------------------------------------------------------------------------- */

typedef struct {
    fv_param *weight; /* [count, d], normal */
} fv_embedding;
typedef struct {
    double deviation;  /* of the initial values; default 1 */
    bool touched_rows; /* the optimiser updates only the rows of a step, as of a sparse embedding */
} fv_embedding_opts;
/* A table of count rows; no_decay. */
fv_embedding fv_embedding_init(fv_scope scope, size_t count, size_t d,
                               const fv_embedding_opts *opts);
/* ids[rows] -> [rows, d] */
fv_var *fv_embedding_forward(fv_tape *t, const fv_embedding *layer, const int32_t *ids,
                             size_t rows);
/* Bags of ids -> [bags, d]: the sum of a bag's rows / sqrt(its size). */
fv_var *fv_embedding_bags(fv_tape *t, const fv_embedding *layer, const int32_t *ids,
                          const fv_segments *bags);

/* ---- layer norm ---------------------------------------------------------------------------------- */

typedef struct {
    fv_param *weight, *bias; /* [d] ones, [d] zeros */
} fv_norm;
/* Ba, Kiros, Hinton, 2016, arXiv 1607.06450; no_decay. */
fv_norm fv_norm_init(fv_scope scope, size_t d);
/* [rows, d] -> [rows, d] */
fv_var *fv_norm_forward(fv_tape *t, const fv_norm *layer, fv_var *x);

/* ---- positions ----------------------------------------------------------------------------------- */

/* A vector for each position of a sample: learned (normal, deviation 0.02), or fixed sines and cosines,
 * sin(p / 10000^(2i/d)) at 2i and cos at 2i + 1 (Vaswani et al., 2017, arXiv 1706.03762). */
typedef struct {
    fv_param *weight; /* [positions, d] */
} fv_positions;
typedef struct {
    bool sinusoidal;
} fv_positions_opts;
/* opts NULL: learned. A table of sines and cosines is frozen. */
fv_positions fv_positions_init(fv_scope scope, size_t positions, size_t d,
                               const fv_positions_opts *opts);
/* Adds to each row the vector of its position inside its segment: [rows, d] -> [rows, d]. A segment
 * longer than the table is an error. */
fv_var *fv_positions_forward(fv_tape *t, const fv_positions *layer, fv_var *x,
                             const fv_segments *segments);

/* ---- multi-head attention ------------------------------------------------------------------------ */

typedef struct {
    size_t heads;
    double dropout;
    fv_param *in_proj_weight; /* [3 d, d]: query, key, value; Xavier uniform */
    fv_param *in_proj_bias;   /* [3 d] zeros, or NULL */
    fv_linear out_proj;
    fv_param *relative; /* "relative_bias" [heads, 2 clip + 1], or NULL */
} fv_multihead;
typedef struct {
    bool no_bias;
    double dropout;    /* of the weights */
    int relative_clip; /* learned bias a head by distance, clamped to +-clip; default: none */
    /* When not 0: heads 0, 1, 2, 3, .. start with this bias at distance -1, +1, -2, +2, .. */
    double relative_start;
} fv_multihead_opts;
/* heads must divide d: forward refuses otherwise. Vaswani et al., 2017, arXiv 1706.03762; the bias by
 * distance after Shaw, Uszkoreit, Vaswani, 2018, arXiv 1803.02155. */
fv_multihead fv_multihead_init(fv_scope scope, size_t d, size_t heads,
                               const fv_multihead_opts *opts);
/* Self-attention: [rows, d] -> [rows, d]; mask says which rows see which (NULL: all). */
fv_var *fv_multihead_forward(fv_tape *t, const fv_multihead *layer, fv_var *x, const fv_mask *mask);

/* ---- encoder block --------------------------------------------------------------------------------- */

typedef enum { FV_ACT_RELU, FV_ACT_GELU } fv_activation; /* of the FC part */

/* Attention for the whole, a feed-forward part (FC) for the place, each added to its input. Names as in
 * TransformerEncoderLayer: self_attn, linear1, linear2, norm1, norm2. */
typedef struct {
    fv_multihead self_attn;
    fv_linear linear1, linear2;
    fv_norm norm1, norm2;
    double dropout;
    bool post_norm;
    fv_activation activation;
} fv_block;
typedef struct {
    size_t hidden;  /* width of the FC part; default 4 d */
    double dropout; /* of both branches */
    bool post_norm; /* norm after the sum (2017) instead of before the branch */
    fv_activation activation;
    fv_multihead_opts attention;
} fv_block_opts;
/* Pre-norm as in Xiong et al., 2020, arXiv 2002.04745, unless post_norm; opts NULL: no dropout, relu. */
fv_block fv_block_init(fv_scope scope, size_t d, size_t heads, const fv_block_opts *opts);
/* [rows, d] -> [rows, d] */
fv_var *fv_block_forward(fv_tape *t, const fv_block *layer, fv_var *x, const fv_mask *mask);

#ifdef __cplusplus
}
#endif
#endif
