/* Shared by the library's own rooms: checked sizes, the arena, and the kernels compiled once for each
 * instruction set. Names start fvi_; nothing here is public. */
#ifndef FVI_TENSOR_H
#define FVI_TENSOR_H

#include "tensor/tensor.h"

#if defined(FV_COMPLEX)
#include <complex.h>
#define fv_re(x) creal(x)
#define fv_im(x) cimag(x)
typedef double complex fvi_wide; /* what losses are summed in */
#else
#define fv_re(x) (x)
#define fv_im(x) (0.0)
typedef double fvi_wide;
#endif

/* ---- instruction sets --------------------------------------------------------------------------
 * Every file in tensor/kernel/ and autograd/ops/ is compiled once for each instruction set, with
 * FVI_ISA set to its name; FVI_NAME(x) then gives x_avx512, x_avx2 or x_base. What must exist only
 * once in such a file stands under #if FVI_ONCE. */
#ifndef FVI_ISA
#define FVI_ISA base
#endif
#define FVI_JOIN2(a, b) a##_##b
#define FVI_JOIN(a, b)  FVI_JOIN2(a, b)
#define FVI_NAME(x)     FVI_JOIN(x, FVI_ISA)

/* Lanes of every sum: fixed, so that the order of additions does not depend on the processor. */
enum { FVI_LANES = 16 };

#if defined(__x86_64__) && !defined(FV_COMPLEX)
#define FVI_EACH_ISA(X) X(base) X(avx2) X(avx512)
#else
#define FVI_EACH_ISA(X) X(base)
#endif

typedef enum {
#define X(isa) FVI_ISA_##isa,
    FVI_EACH_ISA(X)
#undef X
        FVI_ISA_COUNT
} fvi_isa;

/* The best instruction set this processor has, at most the one that FOVEA_ISA=base|avx2|avx512 names. */
fvi_isa fvi_isa_best(void);
/* "base", "avx2", "avx512". */
const char *fvi_isa_name(fvi_isa isa);
/* Whether this is such a name, of any build or processor. */
bool fvi_isa_known(const char *name);

/* ---- checked sizes ----------------------------------------------------------------------------- */

/* Product and sum of sizes; false on overflow, and then *out is 0. */
static inline bool fvi_mul(size_t a, size_t b, size_t *out)
{
    if (__builtin_mul_overflow(a, b, out)) {
        *out = 0;
        return false;
    }
    return true;
}
static inline bool fvi_add(size_t a, size_t b, size_t *out)
{
    if (__builtin_add_overflow(a, b, out)) {
        *out = 0;
        return false;
    }
    return true;
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* count * size bytes through fv_memory, zeroed; NULL when there are none or on overflow. */
void *fvi_calloc(size_t count, size_t size);
/* Resizes to count * size bytes; NULL (and the old block kept) on failure. */
void *fvi_resize(void *old, size_t count, size_t size);
/* NULL is fine. */
void fvi_free(void *block);
/* A copy of length bytes of text and a final NUL; NULL when memory is out. */
char *fvi_text(const char *text, size_t length);

/* A grow-only list: makes room for one more of size bytes in *list; false when memory is out. */
bool fvi_grow(void *list, size_t count, size_t *capacity, size_t size);

/* An arena: memory taken piece by piece and given back all at once. It grows by chunks, so what was
 * taken never moves, and keeps its chunks, so that a second round allocates nothing. With FV_POISON
 * (debug builds) what is given back is overwritten. */
typedef struct fvi_chunk fvi_chunk;
typedef struct {
    fvi_chunk *first, *now;
    size_t used; /* bytes taken since the last reset, for accounting */
    size_t peak;
} fvi_arena;
typedef struct {
    fvi_chunk *chunk;
    size_t at, used;
} fvi_mark;

enum { FVI_ALIGN = 64 };
/* count * size bytes, aligned to FVI_ALIGN, not cleared; NULL on overflow or when memory is out. */
void *fvi_arena_take(fvi_arena *arena, size_t count, size_t size);
/* Gives back all that was taken after the mark; everything; and the memory itself. */
fvi_mark fvi_arena_mark(const fvi_arena *arena);
void fvi_arena_release(fvi_arena *arena, fvi_mark mark);
void fvi_arena_reset(fvi_arena *arena);
void fvi_arena_free(fvi_arena *arena);

/* A 64-bit hash of bytes (FNV-1a, then mixed). */
uint64_t fvi_hash(const void *bytes, size_t length);

/* ---- numbers as texts ---------------------------------------------------------------------------- */

/* What printf("%.*g") writes, 1 to 17 digits, with a point in every locale. */
enum { FVI_NUMBER = 40 };
const char *fvi_number(char text[FVI_NUMBER], double x, int digits);
/* Puts a point where a locale's decimal separator stands in a printed number. */
void fvi_use_point(char *text);

/* ---- masks, for kernels -------------------------------------------------------------------------- */

/* Where query segment s meets key segment s: first row and number of its queries and of its filled keys,
 * and how far the queries' positions are shifted. Its dense bytes start at byte, a row every width. */
typedef struct {
    size_t query, queries, key, keys;
    size_t byte, width;
    int64_t offset;
} fvi_patch;
/* How many patches a mask of so many rows has: its segments. */
size_t fvi_mask_patches(const fv_mask *mask);
/* Patch s, which follows the one before (NULL for the first). */
fvi_patch fvi_mask_patch(const fv_mask *mask, size_t queries, size_t keys, size_t s,
                         const fvi_patch *before);
/* All pairs of rows that meet in patches, as dense bytes lie; false when they are too many to count. */
bool fvi_mask_all_pairs(const fv_mask *mask, size_t queries, size_t keys, size_t *pairs);
/* The key positions that rules alone (not edges, not bytes) allow query position i of a patch to see:
 * first .. end - 1. */
void fvi_mask_range(const fv_mask *mask, const fvi_patch *p, size_t i, size_t *first, size_t *end);

/* ---- kernels ------------------------------------------------------------------------------------- */

typedef enum { FVI_IDENTITY, FVI_RELU } fvi_activation;

/* C[m, n] = act(A[m, k] B[k, n] + bias[n]), or C += A B when add is set (then no bias, no activation).
 * A and B are read through strides, so a transpose is a swap of strides; C's columns are adjacent.
 * The order of every sum is fixed by k alone: one multiply-add chain a block of at most 384. */
typedef struct {
    size_t m, n, k;
    const fv_real *a;
    size_t a_row, a_col; /* A(i, p) = a[i * a_row + p * a_col] */
    const fv_real *b;
    size_t b_row, b_col; /* B(p, j) = b[p * b_row + j * b_col] */
    fv_real *c;
    size_t c_row; /* C(i, j) = c[i * c_row + j] */
    const fv_real *bias;
    fvi_activation activation;
    bool add;
} fvi_product;

/* Attention on segments: weights of the visible pairs from scores and a normaliser, and the weighted sum of
 * values. Dot products go by tiles and store no scores (Dao et al., 2022, arXiv 2205.14135; Rabe and Staats,
 * 2021, arXiv 2112.05682); edges, other scores, sparsemax and vectors of a pair go row by row, with the
 * scores of one row in scratch. Row i of head h starts at q + i * q_row + h * qk. A weight is
 *
 *     w = normaliser over j of (softcap(scale score(q, k + pair_k)) + relative - slope |j - i| + bias)
 *     y = sum over j of dropout(w) (v + pair_v + relative_v)
 *
 * A score of -inf, as a bias may make it, hides the pair. */
typedef struct {
    const fv_mask *mask;  /* already checked; NULL: all rows see all rows */
    size_t queries, keys; /* rows in all */
    /* kv_heads divides heads: query head h uses key head h / (heads / kv_heads). */
    size_t heads, kv_heads;
    size_t qk, vd; /* widths of a head */
    const fv_real *q, *k, *v;
    size_t q_row, k_row, v_row; /* row strides */
    fv_real *y;                 /* [queries, heads * vd], adjacent */
    /* [queries, heads]: what turns a score into its weight again. Softmax and plus one: the log of the
     * sum (-inf for a row that sees nothing); relu: the sum; sparsemax: the threshold; mean: the count;
     * else 0. */
    fv_real *lse;
    fv_score score; /* FV_SCORE_DOT, _DISTANCE, _ADDITIVE or _USER: the others are made of these */
    fv_score_inner inner;
    double inner_slope;    /* of a leaky relu */
    const fv_real *weight; /* [heads, weights] of an additive or user score */
    size_t weights;
    const fv_score_function *user;
    fv_normalizer normalizer;
    double scale;
    double softcap; /* c tanh(s / c); 0: none */
    /* Added to the score at clamp(j - i, -clip, clip) + clip: [heads, 2 clip + 1], or, when
     * relative_rows, [queries, heads, 2 clip + 1]; or NULL. */
    const fv_real *relative;
    bool relative_rows;
    int clip;
    const fv_real *slopes; /* [heads]: minus slope * |j - i| is added to the score; or NULL */
    /* Added to the score: [bias_heads, pairs], or with edges [edges, bias_heads]; bias_heads is heads
     * or 1. */
    const fv_real *bias;
    size_t bias_heads, pairs; /* pairs: all dense bytes of the mask, in its order */
    /* With edges, vectors of each: [edges, kv_heads * qk] and [edges, kv_heads * vd]; or NULL. */
    const fv_real *pair_k, *pair_v;
    /* Added to the value, at the place of relative: [2 clip + 1, vd] for all heads; or NULL. */
    const fv_real *relative_v;
    double dropout; /* of the weights; 0: none */
    /* Bits of a weight: index ((head * queries + i) << 32) + j, with query row i and key position j
     * inside the segment; kept when bits >= dropout * 2^32. */
    fv_rng rng;
} fvi_attention;

/* The gradients of fvi_attention, all added to; any of them may be NULL. */
typedef struct {
    const fv_real *dy;     /* like y */
    fv_real *dq, *dk, *dv; /* with the row strides of q, k, v */
    fv_real *drelative, *dslopes, *dbias, *dweight, *dpair_k, *dpair_v,
        *drelative_v; /* like theirs */
} fvi_attention_grad;

/* Each of these exists once for each instruction set; inside such a file the plain name means its own. */
#define FVI_KERNELS(ISA)                                                                           \
    size_t FVI_JOIN(fvi_product_scratch, ISA)(const fvi_product *p, int threads);                  \
    void FVI_JOIN(fvi_product_run, ISA)(const fvi_product *p, int threads, fv_real *scratch);      \
    size_t FVI_JOIN(fvi_attention_scratch, ISA)(const fvi_attention *a, int threads, bool grad);   \
    void FVI_JOIN(fvi_attention_forward, ISA)(const fvi_attention *a, int threads,                 \
                                              fv_real *scratch);                                   \
    void FVI_JOIN(fvi_attention_backward, ISA)(                                                    \
        const fvi_attention *a, const fvi_attention_grad *g, int threads, fv_real *scratch);
#define X(isa) FVI_KERNELS(isa)
FVI_EACH_ISA(X)
#undef X

#define fvi_product_scratch    FVI_NAME(fvi_product_scratch)
#define fvi_product_run        FVI_NAME(fvi_product_run)
#define fvi_attention_scratch  FVI_NAME(fvi_attention_scratch)
#define fvi_attention_forward  FVI_NAME(fvi_attention_forward)
#define fvi_attention_backward FVI_NAME(fvi_attention_backward)

#endif
