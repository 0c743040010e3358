/* Numbers without gradients: reals, errors, memory, shapes, segments, masks, random numbers. */
#ifndef FV_TENSOR_H
#define FV_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Of the library; a program may compare it with what it was written for. */
#define FV_VERSION "0.1.0"

/* The number type is a property of the build: float (default), double (-DFV_F64) or, to differentiate
 * the derivatives themselves, double complex (-DFV_COMPLEX). A constructor's link name carries it, so
 * a program built for one type does not link with a library of another. */
#if defined(FV_COMPLEX)
__extension__ typedef double _Complex fv_real;
#define FV_BUILD      "complex"
#define fv_tape_new   fv_tape_new_complex
#define fv_params_new fv_params_new_complex
#elif defined(FV_F64)
typedef double fv_real;
#define FV_BUILD      "double"
#define fv_tape_new   fv_tape_new_f64
#define fv_params_new fv_params_new_f64
#else
typedef float fv_real;
#define FV_BUILD "float"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What gcc and clang check for the caller: formats against arguments, results that must be looked at. */
#if defined(__GNUC__)
#define FV_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define FV_MUST_CHECK          __attribute__((warn_unused_result))
#else
#define FV_PRINTF(text, first)
#define FV_MUST_CHECK
#endif

/* Really zero, for an option whose zero means "the default". */
#define FV_NONE (-1)

/* ---- errors ---------------------------------------------------------------------------------- */

/* What went wrong; a program may return it as its exit code. */
typedef enum {
    FV_OK = 0,
    FV_FAILED = 1,     /* out of memory, or a call that cannot be served */
    FV_USAGE = 2,      /* wrong arguments or shapes */
    FV_DATA = 3,       /* a data file is missing or malformed */
    FV_CHECKPOINT = 4, /* a model file is missing, damaged, or of another model */
    FV_NONFINITE = 5,  /* NaN or Inf in a gradient */
    FV_DISK = 6,       /* writing failed */
    FV_INTERRUPTED = 130
} fv_status;

/* The first thing that went wrong. Functions that take one accept NULL; text is one line, no newline. */
typedef struct {
    fv_status status;
    char text[1000];
} fv_error;

/* Records an error unless one is already kept. Returns false, so that `return fv_fail(...)` reads well. */
bool fv_fail(fv_error *error, fv_status status, const char *format, ...) FV_PRINTF(3, 4);

/* ---- memory ---------------------------------------------------------------------------------- */

/* The one function through which the library takes and gives back memory: realloc for size > 0, free
 * for size 0. It is a weak symbol: a program that defines its own replaces it. */
void *fv_memory(void *old, size_t size);

/* ---- shapes and tensors ------------------------------------------------------------------------ */

enum { FV_MAX_RANK = 6 }; /* axes of a tensor, at most */

/* Sizes of the axes, slowest first. Rank 0 is a single number. */
typedef struct {
    int rank;
    size_t size[FV_MAX_RANK];
} fv_shape;

/* FV_SHAPE(rows, d): a shape literal of rank 1 to 6. FV_SCALAR: rank 0. */
#define FV_SHAPE(...)                                                                              \
    ((fv_shape){(int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), {__VA_ARGS__}})
#define FV_SCALAR ((fv_shape){0, {0}})

/* Contiguous row-major numbers; a plain view that owns nothing. */
typedef struct {
    fv_shape shape;
    fv_real *data;
} fv_tensor;

/* How many numbers a shape holds; 0 when the product overflows size_t or the rank is bad. */
size_t fv_shape_count(fv_shape shape);
/* Whether rank and all sizes agree. */
bool fv_shape_equal(fv_shape a, fv_shape b);
/* Writes "[4, 6]" into text and returns it. */
const char *fv_shape_text(fv_shape shape, char text[160]);
/* Prints a tensor to a stream: nested brackets, six digits a number, "..." for the middle of an axis of more
 * than eight; "(none)" without data. */
void fv_tensor_print(FILE *out, fv_tensor x);

/* ---- segments -------------------------------------------------------------------------------- */

/* Which rows are one sample: sample s is the rows offsets[s] .. offsets[s + 1] - 1. */
typedef struct {
    size_t count;
    const size_t *offsets; /* [count + 1], offsets[0] == 0, never falling */
} fv_segments;

/* All rows together: the last offset; 0 for NULL. */
size_t fv_segments_rows(const fv_segments *segments);
/* Whether the offsets start at 0, never fall and end at rows; says what is wrong otherwise. */
bool fv_segments_check(const fv_segments *segments, size_t rows, fv_error *error);
/* The segment that holds a row (binary search); count when none does. */
size_t fv_segments_find(const fv_segments *segments, size_t row);

/* ---- masks ----------------------------------------------------------------------------------- */

/* Edges in compressed rows: query row i sees keys[offsets[i]] .. keys[offsets[i + 1] - 1]. */
typedef struct {
    size_t rows;
    const size_t *offsets; /* [rows + 1] */
    const int32_t *keys;   /* row numbers among the keys, ascending within a row */
} fv_graph;

/* The relation "query row i may see key row j". All zero: everything within a segment is visible.
 * Rules combine by AND; query segment s meets key segment s only; positions count inside a segment. */
typedef struct {
    const fv_segments *queries; /* rows that ask; NULL: one segment of all rows */
    const fv_segments *keys;    /* rows that answer; NULL: the same as queries */
    /* [segments]: how many rows at the front of each key segment are filled; the others are hidden.
     * NULL: all. So padded keys and growing caches are read in place. */
    const size_t *key_counts;
    bool causal;    /* key j is visible to query i when j <= i + offset */
    int offset;     /* query i stands at position i + offset, for causal, window and distances */
    bool align_end; /* offset is counted from where the last query stands at the last filled key */
    /* Window: i + offset - left <= j <= i + offset + right; 0: no limit, FV_NONE: radius 0. */
    int left, right;
    /* Only these pairs, rows numbered over the whole batch; */
    const fv_graph *edges;
    /* or dense bytes, 1 = visible: segment after segment, [queries, keys] each. */
    const unsigned char *visible;
} fv_mask;

/* Masks by name: causal, each row sees itself and what comes before it in its segment (NULL: one of all rows);
 * a window of so many rows to the left and to the right of a row, and itself (a negative number: no limit on
 * that side); query segment s sees all of key segment s. */
fv_mask fv_mask_causal(const fv_segments *segments);
fv_mask fv_mask_window(const fv_segments *segments, int left, int right);
fv_mask fv_mask_segments(const fv_segments *queries, const fv_segments *keys);

/* Whether the mask fits that many query and key rows; says which segment, row or edge does not otherwise. The
 * questions below are for masks that fit. */
bool fv_mask_check(const fv_mask *mask, size_t queries, size_t keys, fv_error *error);
/* Whether query row i sees key row j (row numbers over the whole batch); NULL mask: everything sees everything. */
bool fv_mask_sees(const fv_mask *mask, size_t queries, size_t keys, size_t i, size_t j);
/* How many pairs are visible. */
size_t fv_mask_pairs(const fv_mask *mask, size_t queries, size_t keys);
/* How many query rows see nothing; when rows is not NULL, writes their numbers there. */
size_t fv_mask_empty_rows(const fv_mask *mask, size_t queries, size_t keys, size_t *rows);
/* Draws it: a line for each query, '#' for a key that it sees, '.' for one that it does not, segment by
 * segment. Of a segment the first 64 queries and keys, of a batch the first 16 segments. */
void fv_mask_print(FILE *out, const fv_mask *mask, size_t queries, size_t keys);

/* Masks that hold all they point to: one block of memory, given back by fv_mask_free (NULL is fine). Each
 * function gives NULL when its arguments do not fit (FV_USAGE) or memory is out (FV_FAILED); error says why.
 *
 * The same relation as dense bytes [pairs], or as edges (one for each visible pair). Segments, key_counts,
 * offset and align_end stay; rules are gone. A NULL mask is one segment of all rows. */
fv_mask *fv_mask_to_bytes(const fv_mask *mask, size_t queries, size_t keys, fv_error *error);
fv_mask *fv_mask_to_edges(const fv_mask *mask, size_t queries, size_t keys, fv_error *error);
/* Pairs that a and b both see; that one of them sees; that a does not see (rows beyond key_counts stay hidden).
 * Both need the same segments; key_counts, offset and align_end are a's. The result has edges when a or b (or:
 * a and b) has edges, and bytes otherwise. Where the keys that are filled differ, fv_mask_or has no key_counts,
 * and refuses an a that is aligned to its end. */
fv_mask *fv_mask_and(const fv_mask *a, const fv_mask *b, size_t queries, size_t keys,
                     fv_error *error);
fv_mask *fv_mask_or(const fv_mask *a, const fv_mask *b, size_t queries, size_t keys,
                    fv_error *error);
fv_mask *fv_mask_not(const fv_mask *a, size_t queries, size_t keys, fv_error *error);
/* Edges from a list of coordinates as PyTorch Geometric's edge_index, [2, count]: edge e leads from source
 * list[e], a key row, to target list[count + e], a query row: the target sees the source. An edge that comes
 * twice is refused. With self_loops row i sees row i too, whether or not the list says so (queries == keys).
 * When order is not NULL, order[e] becomes the place in the list of the mask's edge e (count: an added
 * loop); it has room for count numbers, with self_loops for count + queries. */
fv_mask *fv_mask_from_edge_index(size_t queries, size_t keys, size_t count, const int64_t *list,
                                 bool self_loops, size_t *order, fv_error *error);
/* A padded batch, queries and keys rows a sample: sample s has lengths[s] keys, [samples]. */
fv_mask *fv_mask_from_lengths(size_t samples, size_t queries, size_t keys, const size_t *lengths,
                              fv_error *error);
/* A padded batch from bytes: PyTorch's key_padding_mask [samples, keys], 1 = hidden; */
fv_mask *fv_mask_from_key_padding(size_t samples, size_t queries, size_t keys,
                                  const unsigned char *hidden, fv_error *error);
/* nn.MultiheadAttention's attn_mask, 1 = hidden; and scaled_dot_product_attention's, 1 = visible: both
 * [queries, keys] for all samples, or, with each_sample, [samples, queries, keys]. */
fv_mask *fv_mask_from_hidden(size_t samples, size_t queries, size_t keys,
                             const unsigned char *hidden, bool each_sample, fv_error *error);
fv_mask *fv_mask_from_visible(size_t samples, size_t queries, size_t keys,
                              const unsigned char *visible, bool each_sample, fv_error *error);
void fv_mask_free(fv_mask *mask);

/* ---- attention: score x normaliser ------------------------------------------------------------- */

/* How well key k answers query q; scale stands before each, softcap and biases follow. */
typedef enum {
    FV_SCORE_DOT,      /* q . k; scale's default is 1 / sqrt(width) here, 1 in the others */
    FV_SCORE_COSINE,   /* q . k / (|q| |k|) */
    FV_SCORE_DISTANCE, /* -|q - k|^2 */
    FV_SCORE_ADDITIVE, /* w . f(q + k), f tanh by default; Bahdanau, Cho, Bengio, 2015 */
    FV_SCORE_BILINEAR, /* q W k; Luong, Pham, Manning, 2015 */
    FV_SCORE_USER      /* a function of the program's own */
} fv_score;
/* The f of an additive score. */
typedef enum {
    FV_INNER_TANH,
    FV_INNER_RELU,
    FV_INNER_LEAKY_RELU,
    FV_INNER_IDENTITY
} fv_score_inner;
/* How the scores s of the keys that a row sees become weights. */
typedef enum {
    FV_NORMALIZE_SOFTMAX,          /* e^s / sum e^s */
    FV_NORMALIZE_SOFTMAX_PLUS_ONE, /* e^s / (1 + sum e^s) */
    FV_NORMALIZE_SPARSEMAX,        /* nearest point of the simplex; Martins, Astudillo, 2016 */
    FV_NORMALIZE_RELU,             /* max(s, 0) / sum max(s, 0) */
    FV_NORMALIZE_SIGMOID,          /* 1 / (1 + e^-s) */
    FV_NORMALIZE_MEAN,             /* s / how many keys the row sees */
    FV_NORMALIZE_NONE              /* s */
} fv_normalizer;
/* A score of one's own between a query row and count key rows, each [width], and a weight that training
 * changes (NULL when the call has none). Called by several threads at once. */
typedef struct {
    void *context;
    /* Fills score[0 .. count - 1]. */
    void (*forward)(void *context, size_t width, const fv_real *q, size_t count,
                    const fv_real *const *keys, const fv_real *weight, fv_real *score);
    /* Adds slope[j] times the derivative of score j to dq, dkeys[j] and dweight, where not NULL. */
    void (*backward)(void *context, size_t width, const fv_real *q, size_t count,
                     const fv_real *const *keys, const fv_real *weight, const fv_real *slope,
                     fv_real *dq, fv_real *const *dkeys, fv_real *dweight);
} fv_score_function;

/* ---- random numbers -------------------------------------------------------------------------- */

/* Numbers that are a function of (seed, step, name, index), with no state to save: Philox 4x32-10
 * (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011). */
typedef struct {
    uint32_t key[2];
    uint32_t high[2];
} fv_rng;

/* The stream of that name in that step. */
fv_rng fv_rng_make(uint64_t seed, uint64_t step, const char *name);
/* The index-th 32 random bits. */
uint32_t fv_rng_bits(fv_rng rng, uint64_t index);
/* The index-th number, uniform in [0, 1), 53 bits. */
double fv_rng_uniform(fv_rng rng, uint64_t index);
/* The index-th normal number, mean 0, variance 1 (Box and Muller, 1958). */
double fv_rng_normal(fv_rng rng, uint64_t index);
/* The index-th whole number below bound (> 0), without bias beyond 2^-32. */
uint32_t fv_rng_below(fv_rng rng, uint64_t index, uint32_t bound);
/* Writes a random order of 0 .. count - 1 (Fisher and Yates); count < 2^32. */
void fv_rng_shuffle(fv_rng rng, size_t count, size_t *order);

/* ---- machine --------------------------------------------------------------------------------- */

/* Cores that OpenMP would use; 1 without OpenMP. */
int fv_threads_available(void);

#ifdef __cplusplus
}
#endif
#endif
