/* C += A B for a tile that stays in the cache: A and B are read in place through strides, B and C by
 * whole vectors along their columns. An element is one multiply-add chain over k, ascending, from
 * zero, whatever the instruction set and wherever it lies in the tile. */
#ifndef FVI_ATTENTION_TILE_H
#define FVI_ATTENTION_TILE_H

#include "tensor/internal.h"

#include <string.h>

#if defined(FV_COMPLEX)
enum { TILE_BYTES = sizeof(fv_real), TILE_ROWS = 4 };
typedef fv_real tile_vector, tile_vector_anywhere;
#else
#if defined(__AVX512F__)
enum { TILE_BYTES = 64, TILE_ROWS = 14 };
#elif defined(__AVX2__)
enum { TILE_BYTES = 32, TILE_ROWS = 6 };
#else
enum { TILE_BYTES = 16, TILE_ROWS = 6 };
#endif
typedef fv_real tile_vector __attribute__((vector_size(TILE_BYTES)));
typedef fv_real tile_vector_anywhere
    __attribute__((vector_size(TILE_BYTES), aligned(sizeof(fv_real)), may_alias));
#endif
enum { TILE_LANES = TILE_BYTES / sizeof(fv_real) };

/* sum + x y in one rounding where the instruction set has it, as in the blocks below. */
static inline fv_real tile_chain(fv_real x, fv_real y, fv_real sum)
{
#if defined(FV_COMPLEX) || !defined(__FMA__)
    return sum + x * y;
#elif defined(FV_F64)
    return __builtin_fma(x, y, sum);
#else
    return __builtin_fmaf(x, y, sum);
#endif
}

#if defined(__clang__)
#define TILE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TILE_UNROLL _Pragma("GCC unroll 16")
#endif

/* rows x (vectors * TILE_LANES) elements of C; rows and vectors are constants where it is inlined. */
__attribute__((always_inline)) static inline void
tile_block(int rows, int vectors, size_t k, const fv_real *a, size_t a_row, size_t a_col,
           const fv_real *b, size_t b_row, fv_real *c, size_t c_row, bool add)
{
    tile_vector sum[TILE_ROWS][2];
    TILE_UNROLL
    for (int r = 0; r < rows; r++)
        TILE_UNROLL
    for (int v = 0; v < vectors; v++)
        sum[r][v] = (tile_vector){0};
    for (size_t p = 0; p < k; p++) {
        const fv_real *bp = b + p * b_row, *ap = a + p * a_col;
        tile_vector right[2];
        TILE_UNROLL
        for (int v = 0; v < vectors; v++)
            right[v] = *(const tile_vector_anywhere *)(bp + v * (int)TILE_LANES);
        TILE_UNROLL
        for (int r = 0; r < rows; r++)
            TILE_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] += ap[(size_t)r * a_row] * right[v];
    }
    TILE_UNROLL
    for (int r = 0; r < rows; r++)
        TILE_UNROLL
    for (int v = 0; v < vectors; v++) {
        tile_vector_anywhere *to =
            (tile_vector_anywhere *)(c + (size_t)r * c_row + v * (int)TILE_LANES);
        if (add)
            sum[r][v] += *to;
        *to = sum[r][v];
    }
}

/* A column of blocks, n = vectors * TILE_LANES wide. The rows are dealt evenly, so that no block is too
 * short to hide the latency of its chains. */
__attribute__((always_inline)) static inline void
tile_column(int vectors, size_t m, size_t k, const fv_real *a, size_t a_row, size_t a_col,
            const fv_real *b, size_t b_row, fv_real *c, size_t c_row, bool add)
{
    size_t blocks = (m + TILE_ROWS - 1) / TILE_ROWS;
    for (size_t i = 0; i < m; blocks--) {
        const size_t rows = (m - i + blocks - 1) / blocks;
        const fv_real *from = a + i * a_row;
        fv_real *to = c + i * c_row;
        switch (rows) {
#define BLOCK(rows)                                                                                \
    case rows:                                                                                     \
        tile_block(rows, vectors, k, from, a_row, a_col, b, b_row, to, c_row, add);                \
        break;
#if defined(__AVX512F__) && !defined(FV_COMPLEX)
            BLOCK(14)
            BLOCK(13)
            BLOCK(12)
            BLOCK(11)
            BLOCK(10)
            BLOCK(9)
            BLOCK(8)
            BLOCK(7)
#endif
#if !defined(FV_COMPLEX)
            BLOCK(6)
            BLOCK(5)
#endif
            BLOCK(4)
            BLOCK(3)
            BLOCK(2)
        default:
            BLOCK(1)
#undef BLOCK
        }
        i += rows;
    }
}

/* C[m, n] = A[m, k] B[k, n], or C += A B. A(i, p) = a[i * a_row + p * a_col]; rows of B must be readable
 * up to the next multiple of TILE_LANES; of C nothing beyond n is touched. */
static inline void tile_product(size_t m, size_t n, size_t k, const fv_real *a, size_t a_row,
                                size_t a_col, const fv_real *b, size_t b_row, fv_real *c,
                                size_t c_row, bool add)
{
    size_t j = 0;
    for (; j + 2 * TILE_LANES <= n; j += 2 * TILE_LANES)
        tile_column(2, m, k, a, a_row, a_col, b + j, b_row, c + j, c_row, add);
    for (; j + TILE_LANES <= n; j += TILE_LANES)
        tile_column(1, m, k, a, a_row, a_col, b + j, b_row, c + j, c_row, add);
    for (size_t i = 0; j < n && i < m;
         i += TILE_ROWS) { /* the last columns pass through whole vectors */
        fv_real last[TILE_ROWS * TILE_LANES];
        const size_t rows = m - i < TILE_ROWS ? m - i : TILE_ROWS;
        tile_column(1, rows, k, a + i * a_row, a_row, a_col, b + j, b_row, last, TILE_LANES, false);
        for (size_t r = 0; r < rows; r++)
            for (size_t l = 0; l < n - j; l++) {
                fv_real *to = c + (i + r) * c_row + j + l, one = last[r * TILE_LANES + l];
                *to = add ? *to + one : one;
            }
    }
}

#endif
