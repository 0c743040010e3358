/* The inner loop of the product and of attention: a tile of C that stays in registers while k passes.
 *
 * A tile is at most FVI_MR rows by FVI_NR columns (two vectors). Each of its numbers is one multiply-add
 * chain over ascending k, so its bits do not depend on the tile's shape, on its neighbours or on the
 * width of a vector. A is read one number at a time through strides; B comes in panels [k][FVI_NR]. */
#ifndef FVI_TILE_H
#define FVI_TILE_H

#include <string.h>

#include "tensor/internal.h"

/* ---- vectors ------------------------------------------------------------------------------------- */

#define FVI_ROWS_4(X)  X(0) X(1) X(2) X(3)
#define FVI_ROWS_6(X)  FVI_ROWS_4(X) X(4) X(5)
#define FVI_ROWS_14(X) FVI_ROWS_6(X) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

/* FVI_MR rows of two sums, two vectors of B and one of A fill the registers: 32, or 16 without AVX-512
 * (where a product that is not fused needs one more). FVI_ROWS(X) is X(0) .. X(FVI_MR - 1). */
#if defined(FV_COMPLEX)
enum { FVI_MR = 4 };
#define FVI_ROWS FVI_ROWS_4
#elif defined(__AVX512F__) && defined(__AVX512VL__)
enum { FVI_MR = 14 };
#define FVI_ROWS  FVI_ROWS_14
#define FVI_BYTES 64
#elif defined(__AVX2__) && defined(__FMA__)
enum { FVI_MR = 6 };
#define FVI_ROWS  FVI_ROWS_6
#define FVI_BYTES 32
#elif defined(__x86_64__)
enum { FVI_MR = 4 };
#define FVI_ROWS  FVI_ROWS_4
#define FVI_BYTES 16
#else
enum { FVI_MR = 6 };
#define FVI_ROWS  FVI_ROWS_6
#define FVI_BYTES 16
#endif

#if defined(FV_COMPLEX)
typedef fv_real fvi_vec;
#else
typedef fv_real fvi_vec __attribute__((vector_size(FVI_BYTES)));
#if defined(FV_F64)
typedef int64_t fvi_vec_int __attribute__((vector_size(FVI_BYTES)));
#else
typedef int32_t fvi_vec_int __attribute__((vector_size(FVI_BYTES)));
#endif
#endif
enum { FVI_WIDTH = sizeof(fvi_vec) / sizeof(fv_real), FVI_NR = 2 * FVI_WIDTH };

#define FVI_INLINE static inline __attribute__((always_inline))

FVI_INLINE fvi_vec fvi_load(const fv_real *x)
{
    fvi_vec v;
    memcpy(&v, x, sizeof v);
    return v;
}

FVI_INLINE void fvi_store(fv_real *x, fvi_vec v)
{
    memcpy(x, &v, sizeof v);
}

/* x in every lane. */
FVI_INLINE fvi_vec fvi_splat(fv_real x)
{
    return x - (fvi_vec){0};
}

#if defined(FVI_BYTES) && FVI_BYTES > 16
#include <immintrin.h>
#endif

/* a * b + c, rounded once where the instruction set can, however the compiler optimises. */
FVI_INLINE fvi_vec fvi_multiply_add(fvi_vec a, fvi_vec b, fvi_vec c)
{
#if defined(FVI_BYTES) && FVI_BYTES == 64 && defined(FV_F64)
    return _mm512_fmadd_pd(a, b, c);
#elif defined(FVI_BYTES) && FVI_BYTES == 64
    return _mm512_fmadd_ps(a, b, c);
#elif defined(FVI_BYTES) && FVI_BYTES == 32 && defined(FV_F64)
    return _mm256_fmadd_pd(a, b, c);
#elif defined(FVI_BYTES) && FVI_BYTES == 32
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* The first count numbers (fewer than FVI_WIDTH, or all), zeros after them; nothing else is touched. */
#if defined(FVI_BYTES) && FVI_BYTES > 16
#if FVI_BYTES == 64 && defined(FV_F64)
#define FVI_MASK(count)            ((__mmask8)((1u << (count)) - 1))
#define FVI_MASK_LOAD(x, mask)     _mm512_maskz_loadu_pd(mask, x)
#define FVI_MASK_STORE(x, mask, v) _mm512_mask_storeu_pd(x, mask, v)
#elif FVI_BYTES == 64
#define FVI_MASK(count)            ((__mmask16)((1u << (count)) - 1))
#define FVI_MASK_LOAD(x, mask)     _mm512_maskz_loadu_ps(mask, x)
#define FVI_MASK_STORE(x, mask, v) _mm512_mask_storeu_ps(x, mask, v)
#elif defined(FV_F64)
#define FVI_MASK(count)            ((__m256i)((fvi_vec_int){0, 1, 2, 3} < (int64_t)(count)))
#define FVI_MASK_LOAD(x, mask)     _mm256_maskload_pd(x, mask)
#define FVI_MASK_STORE(x, mask, v) _mm256_maskstore_pd(x, mask, v)
#else
#define FVI_MASK(count)            ((__m256i)((fvi_vec_int){0, 1, 2, 3, 4, 5, 6, 7} < (int32_t)(count)))
#define FVI_MASK_LOAD(x, mask)     _mm256_maskload_ps(x, mask)
#define FVI_MASK_STORE(x, mask, v) _mm256_maskstore_ps(x, mask, v)
#endif
FVI_INLINE fvi_vec fvi_load_part(const fv_real *x, size_t count)
{
    return FVI_MASK_LOAD(x, FVI_MASK(count));
}
FVI_INLINE void fvi_store_part(fv_real *x, fvi_vec v, size_t count)
{
    FVI_MASK_STORE(x, FVI_MASK(count), v);
}
#else
FVI_INLINE fvi_vec fvi_load_part(const fv_real *x, size_t count)
{
    fv_real part[FVI_WIDTH] = {0};
    for (size_t i = 0; i < count; i++)
        part[i] = x[i];
    return fvi_load(part);
}
FVI_INLINE void fvi_store_part(fv_real *x, fvi_vec v, size_t count)
{
    fv_real part[FVI_WIDTH];
    fvi_store(part, v);
    for (size_t i = 0; i < count; i++)
        x[i] = part[i];
}
#endif

/* 0 for each lane whose real part is at most 0, else the lane: a NaN passes. */
FVI_INLINE fvi_vec fvi_positive(fvi_vec v)
{
#if defined(FV_COMPLEX)
    return fv_re(v) <= 0 ? 0 : v;
#else
    return (fvi_vec)((fvi_vec_int)v & ~(v <= (fvi_vec){0}));
#endif
}

/* ---- packing ------------------------------------------------------------------------------------- */

#if defined(FV_COMPLEX)
enum { FVI_QUAD = 1 };
#else
/* Sixteen bytes: a transpose of so small a square needs the fewest shuffles on every processor. */
typedef fv_real fvi_quad __attribute__((vector_size(16)));
enum { FVI_QUAD = sizeof(fvi_quad) / sizeof(fv_real) };

/* out[p * step + i] = in[i * stride + p] for a square of FVI_QUAD. */
FVI_INLINE void fvi_transpose_quad(const fv_real *in, size_t stride, fv_real *out, size_t step)
{
    fvi_quad r[FVI_QUAD], c[FVI_QUAD];
    for (size_t i = 0; i < FVI_QUAD; i++)
        memcpy(&r[i], in + i * stride, sizeof r[i]);
#if defined(FV_F64)
    c[0] = __builtin_shufflevector(r[0], r[1], 0, 2);
    c[1] = __builtin_shufflevector(r[0], r[1], 1, 3);
#else
    const fvi_quad low = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const fvi_quad high = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const fvi_quad next_low = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const fvi_quad next_high = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    c[0] = __builtin_shufflevector(low, next_low, 0, 1, 4, 5);
    c[1] = __builtin_shufflevector(low, next_low, 2, 3, 6, 7);
    c[2] = __builtin_shufflevector(high, next_high, 0, 1, 4, 5);
    c[3] = __builtin_shufflevector(high, next_high, 2, 3, 6, 7);
#endif
    for (size_t p = 0; p < FVI_QUAD; p++)
        memcpy(out + p * step, &c[p], sizeof c[p]);
}
#endif

/* out[p * step + i] = in[i * stride + p] for i < rows, p < k: rows become columns. */
static inline void fvi_transpose(size_t rows, size_t k, const fv_real *in, size_t stride,
                                 fv_real *out, size_t step)
{
    enum { DEEP = 64 }; /* of k at a time, so that what is written stays in the nearest cache */
    for (size_t from = 0; from < k; from += DEEP) {
        const size_t end = k - from < DEEP ? k : from + DEEP;
        for (size_t i = 0; i < rows; i += FVI_QUAD) {
            size_t p = from, count = rows - i < FVI_QUAD ? rows - i : FVI_QUAD;
#if !defined(FV_COMPLEX)
            if (rows >= FVI_QUAD) {
                i = i < rows - FVI_QUAD ? i : rows - FVI_QUAD; /* the last square may overlap */
                count = FVI_QUAD;
                for (; p + FVI_QUAD <= end; p += FVI_QUAD)
                    fvi_transpose_quad(in + i * stride + p, stride, out + p * step + i, step);
            }
#endif
            for (; p < end; p++)
                for (size_t r = i; r < i + count; r++)
                    out[p * step + r] = in[r * stride + p];
        }
    }
}

/* B[k, n] as a panel [k][FVI_NR], n <= FVI_NR; columns from n on are 0. */
static inline void fvi_pack_panel(size_t n, size_t k, const fv_real *b, size_t b_row, size_t b_col,
                                  fv_real *panel)
{
    for (size_t p = 0; n < FVI_NR && p < k; p++)
        for (size_t j = n; j < FVI_NR; j++)
            panel[p * FVI_NR + j] = 0;
    if (b_row == 1)
        fvi_transpose(n, k, b, b_col, panel, FVI_NR);
    else if (b_col == 1 && n == FVI_NR)
        for (size_t p = 0; p < k; p++) {
            fvi_store(panel + p * FVI_NR, fvi_load(b + p * b_row));
            fvi_store(panel + p * FVI_NR + FVI_WIDTH, fvi_load(b + p * b_row + FVI_WIDTH));
        }
    else
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < n; j++)
                panel[p * FVI_NR + j] = b[p * b_row + j * b_col];
}

/* A[rows, k] as [k][rows], for a tile whose rows lie badly in the cache. */
static inline void fvi_pack_rows(size_t rows, size_t k, const fv_real *a, size_t a_row,
                                 size_t a_col, fv_real *packed)
{
    if (a_col == 1) {
        fvi_transpose(rows, k, a, a_row, packed, rows);
        return;
    }
    for (size_t p = 0; p < k; p++, a += a_col, packed += rows) {
        size_t i = 0;
        if (a_row == 1)
            __builtin_prefetch(a + 2 * rows, 0, 2); /* rows of a later tile */
        for (; a_row == 1 && i + FVI_QUAD <= rows; i += FVI_QUAD)
            memcpy(packed + i, a + i, FVI_QUAD * sizeof *a);
        for (; i < rows; i++)
            packed[i] = a[i * a_row];
    }
}

/* B[k, n] with B(p, j) = b[p * b_row + j * b_col], as panels [ceil(n / FVI_NR)][k][FVI_NR]. */
static inline void fvi_pack(size_t n, size_t k, const fv_real *b, size_t b_row, size_t b_col,
                            fv_real *packed)
{
    for (size_t j = 0; j < n; j += FVI_NR)
        fvi_pack_panel(n - j < FVI_NR ? n - j : FVI_NR, k, b + j * b_col, b_row, b_col,
                       packed + j * k);
}

/* ---- the tile ------------------------------------------------------------------------------------ */

/* What happens to a sum before it is stored: C is added, then a bias [n], then negative ones become 0. */
typedef struct {
    bool add, relu;
    const fv_real *bias;
} fvi_tile_end;

/* The loop over k, for a number of rows known when compiling; wide: more than one vector of columns. */
FVI_INLINE void fvi_tile_loop(const int m, const bool wide, size_t n, size_t k, const fv_real *a,
                              const size_t a_row, size_t a_col, const fv_real *b, size_t b_step,
                              fv_real *c, size_t c_row, const fvi_tile_end *end)
{
#define X(i) fvi_vec x##i = {0}, y##i = {0};
    FVI_ROWS(X)
#undef X
    for (size_t p = 0; p < k; p++, a += a_col, b += b_step) {
        const fvi_vec u = fvi_load(b), v = wide ? fvi_load(b + FVI_WIDTH) : (fvi_vec){0};
#define X(i)                                                                                       \
    if (i < m) {                                                                                   \
        const fvi_vec s = fvi_splat(a[i * a_row]);                                                 \
        x##i = fvi_multiply_add(s, u, x##i);                                                       \
        if (wide)                                                                                  \
            y##i = fvi_multiply_add(s, v, y##i);                                                   \
    }
        FVI_ROWS(X)
#undef X
    }
    /* A row's last vector holds some or all of its columns; step by step, to branch once a tile. */
    const size_t some = wide ? n - FVI_WIDTH : n;
    const bool all = some == FVI_WIDTH;
    fv_real *tail = wide ? c + FVI_WIDTH : c;
#define LAST(i) (*(wide ? &y##i : &x##i))
    if (end->add) {
#define X(i)                                                                                       \
    if (wide && i < m)                                                                             \
        x##i = fvi_load(c + i * c_row) + x##i;
        FVI_ROWS(X)
#undef X
        if (all) {
#define X(i)                                                                                       \
    if (i < m)                                                                                     \
        LAST(i) = fvi_load(tail + i * c_row) + LAST(i);
            FVI_ROWS(X)
#undef X
        } else {
#define X(i)                                                                                       \
    if (i < m)                                                                                     \
        LAST(i) = fvi_load_part(tail + i * c_row, some) + LAST(i);
            FVI_ROWS(X)
#undef X
        }
    }
    if (end->bias != NULL) {
        const fv_real *rest = wide ? end->bias + FVI_WIDTH : end->bias;
        const fvi_vec u = wide ? fvi_load(end->bias) : (fvi_vec){0};
        const fvi_vec v = all ? fvi_load(rest) : fvi_load_part(rest, some);
#define X(i)                                                                                       \
    x##i += wide ? u : v;                                                                          \
    y##i += v;
        FVI_ROWS(X)
#undef X
    }
    if (end->relu) {
#define X(i)                                                                                       \
    x##i = fvi_positive(x##i);                                                                     \
    y##i = fvi_positive(y##i);
        FVI_ROWS(X)
#undef X
    }
#define X(i)                                                                                       \
    if (wide && i < m)                                                                             \
        fvi_store(c + i * c_row, x##i);
    FVI_ROWS(X)
#undef X
    if (all) {
#define X(i)                                                                                       \
    if (i < m)                                                                                     \
        fvi_store(tail + i * c_row, LAST(i));
        FVI_ROWS(X)
#undef X
    } else {
#define X(i)                                                                                       \
    if (i < m)                                                                                     \
        fvi_store_part(tail + i * c_row, LAST(i), some);
        FVI_ROWS(X)
#undef X
    }
#undef LAST
}

/* One function for each number of rows: fvi_tile_i has i + 1. */
typedef void fvi_tile_run(size_t n, size_t k, const fv_real *a, size_t a_row, size_t a_col,
                          const fv_real *b, size_t b_step, fv_real *c, size_t c_row,
                          const fvi_tile_end *end);
#define X(i)                                                                                       \
    static inline void fvi_tile_##i(size_t n, size_t k, const fv_real *a, size_t a_row,            \
                                    size_t a_col, const fv_real *b, size_t b_step, fv_real *c,     \
                                    size_t c_row, const fvi_tile_end *end)                         \
    {                                                                                              \
        if (n > FVI_WIDTH && a_row == 1)                                                           \
            fvi_tile_loop(i + 1, true, n, k, a, 1, a_col, b, b_step, c, c_row, end);               \
        else if (n > FVI_WIDTH)                                                                    \
            fvi_tile_loop(i + 1, true, n, k, a, a_row, a_col, b, b_step, c, c_row, end);           \
        else                                                                                       \
            fvi_tile_loop(i + 1, false, n, k, a, a_row, a_col, b, b_step, c, c_row, end);          \
    }
FVI_ROWS(X)
#undef X

/* C[m, n] from A[m, k] and B[k, n], for 1 <= m <= FVI_MR and 1 <= n <= FVI_NR. Row p of B starts at
 * b + p * b_step and may be read over all FVI_NR columns (over FVI_WIDTH when n <= FVI_WIDTH). */
static inline void fvi_tile_any(size_t m, size_t n, size_t k, const fv_real *a, size_t a_row,
                                size_t a_col, const fv_real *b, size_t b_step, fv_real *c,
                                size_t c_row, const fvi_tile_end *end)
{
#define X(i) fvi_tile_##i,
    static fvi_tile_run *const by_rows[FVI_MR] = {FVI_ROWS(X)};
#undef X
    by_rows[m - 1](n, k, a, a_row, a_col, b, b_step, c, c_row, end);
}

/* How many tiles m rows need: they then share the rows evenly, since a short tile is a slow one. */
static inline size_t fvi_tiles(size_t m)
{
    return (m + FVI_MR - 1) / FVI_MR;
}

/* The first row of a tile of so many. */
static inline size_t fvi_tile_row(size_t m, size_t tiles, size_t tile)
{
    const size_t rows = m / tiles, more = m % tiles;
    return tile * rows + (tile < more ? tile : more);
}

#endif
