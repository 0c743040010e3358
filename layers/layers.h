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
 * sin(p / base^(2i/d)) at 2i and cos at 2i + 1 (Vaswani et al., 2017, arXiv 1706.03762). */
typedef struct {
    fv_param *weight; /* [positions, d] */
    bool concatenated;
} fv_positions;
typedef struct {
    bool sinusoidal;
    double base;       /* of sines and cosines; default 10000 */
    bool concatenated; /* the vector stands behind the row's own numbers instead of being added */
} fv_positions_opts;
/* opts NULL: learned and added. A table of sines and cosines is frozen; d may be odd, and then the last
 * cosine is left out. A base that is not above 0 is an error of the set. */
fv_positions fv_positions_init(fv_scope scope, size_t positions, size_t d,
                               const fv_positions_opts *opts);
/* Adds to each row the vector of its position inside its segment: [rows, d] -> [rows, d]; concatenated
 * [rows, any] -> [rows, any + d]. A segment longer than the table is an error. */
fv_var *fv_positions_forward(fv_tape *t, const fv_positions *layer, fv_var *x,
                             const fv_segments *segments);
/* The same when the first row of segment s stands at position start[s], as in decoding. */
fv_var *fv_positions_after(fv_tape *t, const fv_positions *layer, fv_var *x,
                           const fv_segments *segments, const size_t *start);

/* ---- multi-head attention ------------------------------------------------------------------------ */

typedef struct {
    size_t kv_heads;    /* grouped heads (Ainslie et al., 2023, arXiv 2305.13245); default: heads */
    size_t kdim, vdim;  /* width of the rows that keys and values are made of; default d */
    size_t key_width;   /* of a head's query and key; default d / heads */
    size_t value_width; /* of a head's value; default d / heads, with no_values vdim / kv_heads */
    size_t out;         /* width of the result; default d */
    bool no_bias;       /* of the maps to queries, keys, values and out */
    bool no_values;     /* values are the rows as they are, cut into kv_heads: no W_v */
    bool no_output;     /* the result is the heads side by side: no W_O */
    /* One more key and value in each segment, visible to all its queries whatever the mask: learned, or
     * zeros, or both. For biases by distance they stand in front of the segment. */
    bool add_bias_kv, add_zero_attn;
    double dropout; /* of the weights */
    /* As in fv_attention_opts; weights of an additive, bilinear or user's score are the layer's. */
    fv_score score;
    fv_normalizer normalizer;
    double scale, softcap;
    fv_score_inner inner;
    double inner_slope;
    const fv_score_function *user;
    size_t user_weights; /* a head; default: none */
    int left, right;     /* a window of the layer's own, as in fv_mask, within the mask's */
    /* At most one of the next three, which add to a score by distance:
     * a number a head and distance, clamped to +-relative_clip, learned; when relative_start is not 0,
     * heads 0, 1, 2, 3, .. start with it at distance -1, +1, -2, +2, ..; */
    int relative_clip;
    double relative_start;
    /* a number a head and bucket of distances: half of the buckets hold one distance each, the others grow
     * like its logarithm up to t5_distance (default 128); t5_causal: all that is ahead is one bucket,
     * not half of them (Raffel et al., 2020, arXiv 1910.10683); */
    size_t t5_buckets, t5_distance;
    bool t5_causal;
    /* q . a[distance] with learned vectors, clamped to +-shaw_clip, and vectors added to the values, unless
     * no_shaw_values (Shaw, Uszkoreit, Vaswani, 2018, arXiv 1803.02155). */
    int shaw_clip;
    bool no_shaw_values;
    /* -slope |distance| is added to a score, slopes 2^-(8 / heads), 2^-(16 / heads), .., fixed or
     * learned (Press, Smith, Lewis, 2022, arXiv 2108.12409). */
    bool alibi, alibi_learned;
    /* Queries and keys turn by their positions in the segment, a query's with the mask's offset: the first
     * rotary_width columns of each head (default: all), as in fv_rotary_opts. */
    bool rotary, rotary_interleaved;
    size_t rotary_width;
    double rotary_base, rotary_scaling;
} fv_multihead_opts;
/* Names and shapes as in nn.MultiheadAttention where it has them; those that are not used are NULL. Rows of
 * in_proj are query, key, value: heads * key_width, kv_heads * key_width, kv_heads * value_width. */
typedef struct {
    size_t heads;             /* 0 when the init failed */
    fv_multihead_opts how;    /* resolved */
    fv_param *in_proj_weight; /* [in_proj, d]; Xavier uniform */
    fv_param *q_proj_weight, *k_proj_weight,
        *v_proj_weight;        /* instead, when kdim or vdim is not d */
    fv_param *in_proj_bias;    /* [in_proj] zeros */
    fv_linear out_proj;        /* bias: zeros */
    fv_param *bias_k, *bias_v; /* [1, 1, kv_heads * width], normal */
    fv_param *score_weight;    /* of the score: uniform in +-1 / sqrt(key_width) */
    fv_param *relative;        /* "relative_bias" [heads, 2 clip + 1] zeros */
    fv_param *buckets;         /* "relative_attention_bias.weight" [buckets, heads], normal */
    fv_param *relative_keys, *relative_values; /* [2 clip + 1, width], Xavier uniform */
    fv_param *slopes;                          /* "alibi_slopes" [heads] */
} fv_multihead;
/* Vaswani et al., 2017, arXiv 1706.03762. Widths that do not divide, choices that exclude each other, or
 * a number out of range are an error of the set. */
fv_multihead fv_multihead_init(fv_scope scope, size_t d, size_t heads,
                               const fv_multihead_opts *opts);
/* Self-attention: [rows, d] -> [rows, out]; mask says which rows see which (NULL: all). */
fv_var *fv_multihead_forward(fv_tape *t, const fv_multihead *layer, fv_var *x, const fv_mask *mask);
/* Rows of one space ask those of another: q [queries, d], k [keys, kdim], v [keys, vdim], which may be the
 * same value -> [queries, out]. */
fv_var *fv_multihead_cross(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k, fv_var *v,
                           const fv_mask *mask);
/* The same with a number added to the score of each pair, as fv_attention_opts.bias has it; NULL: none. */
fv_var *fv_multihead_biased(fv_tape *t, const fv_multihead *layer, fv_var *q, fv_var *k, fv_var *v,
                            const fv_mask *mask, fv_var *bias);
/* The weights behind the result y of such a call for one segment, before dropout, in memory of the tape:
 * [heads, queries, keys], or their mean over the heads, [queries, keys]. Behind the segment's keys come
 * bias_k's and zero's. Without data (an error) when y is no such result. */
fv_tensor fv_multihead_weights(fv_tape *t, const fv_multihead *layer, const fv_var *y,
                               size_t segment, bool average);

/* ---- multi-head attention, one step after the other ---------------------------------------------- */

/* Keys and values of the rows that several samples had so far, of one layer. */
typedef struct {
    size_t samples, capacity;      /* rows that each sample has room for */
    size_t key_width, value_width; /* of a row */
    fv_real *keys, *values;        /* [samples, capacity, width] */
    size_t *counts;                /* [samples]: rows at the front that are filled; 0 begins anew */
} fv_kv_cache;
/* An empty cache for that layer; false, and nothing to free, when it cannot be. */
bool fv_kv_cache_init(fv_kv_cache *cache, const fv_multihead *layer, size_t samples,
                      size_t capacity, fv_error *error);
/* Room for more rows; what there is stays. Values of the tape so far must not be looked at after it. False
 * when memory is out. */
bool fv_kv_cache_reserve(fv_kv_cache *cache, size_t capacity, fv_error *error);
void fv_kv_cache_free(fv_kv_cache *cache);
/* The next rows of each sample, one or many or none, segment s of x behind those that sample s has in the
 * cache, to which they are added: causal self-attention, [rows, d] -> [rows, out]. The results have the
 * bits of fv_multihead_forward over all rows with a causal mask. In FV_EVAL only, as the cache has no
 * gradients; a full cache, or a layer with keys of its own, is an error and nothing is added. */
fv_var *fv_multihead_step(fv_tape *t, const fv_multihead *layer, fv_var *x,
                          const fv_segments *segments, fv_kv_cache *cache);

/* ---- multi-head attention with a matrix a head ------------------------------------------------------ */

/* The other construction of heads: q, k and v are mapped once more by matrices of each head, W^q,1 q,
 * W^q,2 q, .. These fold into the first maps, so it is as large a class as fv_multihead of the same
 * widths, reached on other paths. */
typedef struct {
    size_t heads, head_width; /* heads 0: a failed init */
    double dropout;
    fv_linear query, key, value;                     /* "q_proj" [d, d] and so on */
    fv_param *query_heads, *key_heads, *value_heads; /* [heads, head_width, d], Xavier uniform */
    fv_linear out_proj;                              /* [d, heads * head_width] */
} fv_headwise;
typedef struct {
    size_t head_width; /* default d / heads */
    bool no_bias;
    double dropout; /* of the weights */
} fv_headwise_opts;
/* Heads that do not divide d without a head_width are an error of the set. */
fv_headwise fv_headwise_init(fv_scope scope, size_t d, size_t heads, const fv_headwise_opts *opts);
/* Self-attention: [rows, d] -> [rows, d]; mask NULL: all rows see all rows. */
fv_var *fv_headwise_forward(fv_tape *t, const fv_headwise *layer, fv_var *x, const fv_mask *mask);
/* Gives a layer of split channels the parameters that compute the same: products of those of from. False when
 * heads, widths or biases differ. */
bool fv_headwise_fold(const fv_headwise *from, const fv_multihead *into, fv_error *error);
/* The way back: the first maps are those of from, and the heads' matrices cut out their channels. False
 * also when heads * head_width is wider than d. */
bool fv_headwise_unfold(const fv_multihead *from, const fv_headwise *into, fv_error *error);

/* ---- attention pooling ------------------------------------------------------------------------------- */

/* Learned queries look at all rows of a segment (Lee et al., 2019, arXiv 1810.00825). */
typedef struct {
    fv_param *query; /* [queries, d], Xavier uniform */
    fv_multihead attention;
} fv_attention_pool;
/* d: width of rows and result, unless opts (NULL: defaults) says otherwise; parameters "query" and those of
 * fv_multihead under "attention". */
fv_attention_pool fv_attention_pool_init(fv_scope scope, size_t d, size_t queries, size_t heads,
                                         const fv_multihead_opts *opts);
/* [rows, d] -> [samples * queries, out], the queries of a sample one after the other. An empty segment
 * attends to nothing. */
fv_var *fv_attention_pool_forward(fv_tape *t, const fv_attention_pool *layer, fv_var *x,
                                  const fv_segments *segments);

/* ---- linear attention --------------------------------------------------------------------------------- */

/* Causal attention whose weights are phi(q) . phi(k), phi = elu + 1, so that a state of fixed size stands for
 * all earlier rows: time and memory grow with the rows only. Katharopoulos, Vyas, Pappas, Fleuret, 2020,
 * arXiv 2006.16236. */
typedef struct {
    size_t heads, kv_heads, width; /* of a head; heads 0: a failed init */
    fv_param
        *in_proj_weight; /* [(heads + 2 kv_heads) * width, d]: query, key, value; Xavier uniform */
    fv_param *in_proj_bias; /* the same rows, zeros; or NULL */
    fv_linear out_proj;     /* [d, d] */
} fv_linear_heads;
typedef struct {
    size_t kv_heads; /* grouped heads; default: heads */
    bool no_bias;
} fv_linear_heads_opts;
/* Numbers of heads that do not divide each other and d are an error of the set. */
fv_linear_heads fv_linear_heads_init(fv_scope scope, size_t d, size_t heads,
                                     const fv_linear_heads_opts *opts);
/* [rows, d] -> [rows, d]; each row sees those of its segment (NULL: one of all rows) up to itself. */
fv_var *fv_linear_heads_forward(fv_tape *t, const fv_linear_heads *layer, fv_var *x,
                                const fv_segments *segments);
/* The next rows of each sample, for which state holds what the earlier ones left: fv_linear_heads_numbers
 * numbers of the caller, zeros at the start, changed by the call. The results have the bits of
 * fv_linear_heads_forward over all rows. In FV_EVAL only, as a state has no gradients. */
fv_var *fv_linear_heads_step(fv_tape *t, const fv_linear_heads *layer, fv_var *x,
                             const fv_segments *segments, fv_real *state);
/* How many numbers the states of that many samples have; 0 when too many. */
size_t fv_linear_heads_numbers(const fv_linear_heads *layer, size_t samples);

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

/* ---- graphs ---------------------------------------------------------------------------------------- */

/* Layers on nodes: a target's result is a weighted sum over its sources, the rows that the mask shows it. The
 * edges of a graph are fv_mask.edges, a row of them the sources of a target; all cost is by edges then. The
 * mask decides alone: a node sees itself only by an edge to itself, which fv_mask_from_edge_index adds when
 * asked. Names, shapes and initial values are PyTorch Geometric's. */
typedef struct {
    size_t heads;        /* default 1 */
    size_t target_width; /* of targets that are other nodes than sources, with maps of their own */
    size_t edge_width;   /* of the vector that each edge has; default: none */
    bool mean;           /* of the heads, which else stand side by side */
    double dropout;      /* of the weights */
    bool no_bias; /* of GAT and GATv2 in all, of the map of the target in a transformer's layer */
    double negative_slope; /* GAT and GATv2: of the leaky relu; default 0.2 */
    bool residual;         /* the same: a map of the target is added */
    bool shared;           /* GATv2: one map for both; a state_dict must not have its copy, lin_r */
    bool no_root; /* transformer's: no map of the target is added; lin_skip is there, but frozen */
    bool beta;    /* transformer's: a gate between that map and the attention, not their sum */
} fv_graph_opts;
/* What the forward functions take: sources [sources, in], targets [targets, target_width or in], for each edge
 * of the mask a row of edges [edges, edge_width] (NULL: none) -> [targets, heads * out], of a mean [targets,
 * out]. What does not fit is an error of the tape. fv_tape_find(t, "attention", n) has the weights. */

/* Score: leaky relu of att_src . W k + att_dst . W q + att_edge . W_e e (Velickovic et al., 2018, arXiv
 * 1710.10903). */
typedef struct {
    size_t width;      /* of a head's result; 0: a failed init */
    fv_graph_opts how; /* resolved */
    fv_linear lin;     /* [heads * out, in]; with target_width lin_src and lin_dst instead */
    fv_linear lin_src, lin_dst;
    fv_param *att_src, *att_dst;
    fv_linear lin_edge, res;
    fv_param *att_edge, *bias; /* [1, heads, out], [heads * out] or [out] */
} fv_gat;
/* opts NULL: one head. An option of another layer, or a number out of range, is an error of the set. */
fv_gat fv_gat_init(fv_scope scope, size_t in, size_t out, const fv_graph_opts *opts);
fv_var *fv_gat_forward(fv_tape *t, const fv_gat *layer, fv_var *sources, fv_var *targets,
                       fv_var *edges, const fv_mask *mask);

/* Score: att . leaky relu of W_r q + W_l k + W_e e, so that the order of sources is each target's own (Brody,
 * Alon, Yahav, 2022, arXiv 2105.14491). */
typedef struct {
    size_t width; /* as in fv_gat */
    fv_graph_opts how;
    fv_linear lin_l, lin_r; /* of sources and targets */
    fv_param *att;          /* [1, heads, out] */
    fv_linear lin_edge, res;
    fv_param *bias;
} fv_gatv2;
/* As fv_gat_init and fv_gat_forward. */
fv_gatv2 fv_gatv2_init(fv_scope scope, size_t in, size_t out, const fv_graph_opts *opts);
fv_var *fv_gatv2_forward(fv_tape *t, const fv_gatv2 *layer, fv_var *sources, fv_var *targets,
                         fv_var *edges, const fv_mask *mask);

/* Scaled dots of queries and keys; W_e e is added to key and value of its edge (Shi et al., 2021, arXiv
 * 2009.03509). */
typedef struct {
    size_t width; /* as in fv_gat */
    fv_graph_opts how;
    fv_linear lin_key, lin_query, lin_value, lin_edge; /* [heads * out, ..] */
    fv_linear lin_skip, lin_beta; /* of the target, and of [attention, target, difference] */
} fv_transformer_conv;
/* As fv_gat_init and fv_gat_forward. */
fv_transformer_conv fv_transformer_conv_init(fv_scope scope, size_t in, size_t out,
                                             const fv_graph_opts *opts);
fv_var *fv_transformer_conv_forward(fv_tape *t, const fv_transformer_conv *layer, fv_var *sources,
                                    fv_var *targets, fv_var *edges, const fv_mask *mask);

#ifdef __cplusplus
}
#endif
#endif
