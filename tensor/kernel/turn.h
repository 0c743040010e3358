/* A tile of few rows whose B is stored transposed: small squares of it are turned in registers.
 *
 * Packing such a B first costs more than the few rows do with it. A number of C is the same chain over
 * ascending k as in tile.h, so its bits do not depend on which of the two computed it. */
#ifndef FVI_TURN_H
#define FVI_TURN_H

#include "tensor/kernel/tile.h"

#if defined(FVI_BYTES) && FVI_BYTES > 16
enum { FVI_FEW = 4 }; /* rows at most */

/* Quads that lie FVI_QUAD * stride apart, side by side. */
FVI_INLINE fvi_vec fvi_gather_quads(const fv_real *b, size_t stride)
{
    const size_t step = FVI_QUAD * stride;
#if FVI_BYTES == 64 && defined(FV_F64)
    __m512d v = _mm512_castpd128_pd512(_mm_loadu_pd(b));
    v = _mm512_mask_broadcast_f64x2(v, 0x0c, _mm_loadu_pd(b + step));
    v = _mm512_mask_broadcast_f64x2(v, 0x30, _mm_loadu_pd(b + 2 * step));
    return _mm512_mask_broadcast_f64x2(v, 0xc0, _mm_loadu_pd(b + 3 * step));
#elif FVI_BYTES == 64
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(b));
    v = _mm512_mask_broadcast_f32x4(v, 0x00f0, _mm_loadu_ps(b + step));
    v = _mm512_mask_broadcast_f32x4(v, 0x0f00, _mm_loadu_ps(b + 2 * step));
    return _mm512_mask_broadcast_f32x4(v, 0xf000, _mm_loadu_ps(b + 3 * step));
#elif defined(FV_F64)
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(b)), _mm_loadu_pd(b + step), 1);
#else
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(b)), _mm_loadu_ps(b + step), 1);
#endif
}

#if FVI_BYTES == 64 && defined(FV_F64)
#define FVI_LOW(a, b)  _mm512_unpacklo_pd(a, b)
#define FVI_HIGH(a, b) _mm512_unpackhi_pd(a, b)
#elif FVI_BYTES == 64
#define FVI_LOW(a, b)       _mm512_unpacklo_ps(a, b)
#define FVI_HIGH(a, b)      _mm512_unpackhi_ps(a, b)
#define FVI_LOW_PAIR(a, b)  ((fvi_vec)_mm512_unpacklo_pd((__m512d)(a), (__m512d)(b)))
#define FVI_HIGH_PAIR(a, b) ((fvi_vec)_mm512_unpackhi_pd((__m512d)(a), (__m512d)(b)))
#elif defined(FV_F64)
#define FVI_LOW(a, b)  _mm256_unpacklo_pd(a, b)
#define FVI_HIGH(a, b) _mm256_unpackhi_pd(a, b)
#else
#define FVI_LOW(a, b)       _mm256_unpacklo_ps(a, b)
#define FVI_HIGH(a, b)      _mm256_unpackhi_ps(a, b)
#define FVI_LOW_PAIR(a, b)  ((fvi_vec)_mm256_unpacklo_pd((__m256d)(a), (__m256d)(b)))
#define FVI_HIGH_PAIR(a, b) ((fvi_vec)_mm256_unpackhi_pd((__m256d)(a), (__m256d)(b)))
#endif

/* row[q][j] = b[j * stride + q] for FVI_WIDTH columns j and FVI_QUAD rows q of B. */
FVI_INLINE void fvi_turn(const fv_real *b, size_t stride, fvi_vec row[FVI_QUAD])
{
    const fvi_vec first = fvi_gather_quads(b, stride),
                  second = fvi_gather_quads(b + stride, stride);
#if defined(FV_F64)
    row[0] = FVI_LOW(first, second);
    row[1] = FVI_HIGH(first, second);
#else
    const fvi_vec third = fvi_gather_quads(b + 2 * stride, stride);
    const fvi_vec fourth = fvi_gather_quads(b + 3 * stride, stride);
    const fvi_vec low = FVI_LOW(first, second), next_low = FVI_LOW(third, fourth);
    const fvi_vec high = FVI_HIGH(first, second), next_high = FVI_HIGH(third, fourth);
    row[0] = FVI_LOW_PAIR(low, next_low);
    row[1] = FVI_HIGH_PAIR(low, next_low);
    row[2] = FVI_LOW_PAIR(high, next_high);
    row[3] = FVI_HIGH_PAIR(high, next_high);
#endif
}

/* One row of B, when fewer than FVI_QUAD are left. */
FVI_INLINE fvi_vec fvi_turn_one(const fv_real *b, size_t stride)
{
    fv_real row[FVI_WIDTH];
    for (size_t j = 0; j < FVI_WIDTH; j++)
        row[j] = b[j * stride];
    return fvi_load(row);
}

/* Sums of m rows, known when compiling, by FVI_NR columns. */
typedef struct {
    fvi_vec sum[FVI_FEW][2];
} fvi_turned_sums;

/* One step over FVI_QUAD of k. */
FVI_INLINE void fvi_turned_step(const size_t m, const fv_real *a, size_t a_row, size_t a_col,
                                const fv_real *b, size_t b_col, fvi_turned_sums *s)
{
    fvi_vec left[FVI_QUAD], right[FVI_QUAD];
    fvi_turn(b, b_col, left);
    fvi_turn(b + FVI_WIDTH * b_col, b_col, right);
#pragma GCC unroll 4
    for (size_t q = 0; q < FVI_QUAD; q++)
#pragma GCC unroll 4
        for (size_t i = 0; i < m; i++) {
            const fvi_vec x = fvi_splat(a[i * a_row + q * a_col]);
            s->sum[i][0] = fvi_multiply_add(x, left[q], s->sum[i][0]);
            s->sum[i][1] = fvi_multiply_add(x, right[q], s->sum[i][1]);
        }
}

/* The loop over k. */
FVI_INLINE void fvi_turned_loop(const size_t m, size_t k, const fv_real *a, size_t a_row,
                                size_t a_col, const fv_real *b, size_t b_col, fv_real *c,
                                size_t c_row, const fvi_tile_end *end)
{
    fvi_turned_sums s = {{{{0}}}};
    size_t p = 0;
    for (; p + FVI_QUAD <= k; p += FVI_QUAD)
        fvi_turned_step(m, a + p * a_col, a_row, a_col, b + p, b_col, &s);
    for (; p < k; p++) {
        const fvi_vec left = fvi_turn_one(b + p, b_col);
        const fvi_vec right = fvi_turn_one(b + p + FVI_WIDTH * b_col, b_col);
        for (size_t i = 0; i < m; i++) {
            const fvi_vec x = fvi_splat(a[i * a_row + p * a_col]);
            s.sum[i][0] = fvi_multiply_add(x, left, s.sum[i][0]);
            s.sum[i][1] = fvi_multiply_add(x, right, s.sum[i][1]);
        }
    }
    for (size_t i = 0; i < m; i++)
        for (size_t v = 0; v < 2; v++) {
            fv_real *to = c + i * c_row + v * FVI_WIDTH;
            fvi_vec x = s.sum[i][v];
            x = end->add ? fvi_load(to) + x : x;
            x = end->bias != NULL ? x + fvi_load(end->bias + v * FVI_WIDTH) : x;
            fvi_store(to, end->relu ? fvi_positive(x) : x);
        }
}

/* C[m, FVI_NR] from A[m, k] and B(p, j) = b[j * b_col + p], for 1 <= m <= FVI_FEW. */
static inline void fvi_turned_tile(size_t m, size_t k, const fv_real *a, size_t a_row, size_t a_col,
                                   const fv_real *b, size_t b_col, fv_real *c, size_t c_row,
                                   const fvi_tile_end *end)
{
    if (m == 1)
        fvi_turned_loop(1, k, a, a_row, a_col, b, b_col, c, c_row, end);
    else if (m == 2)
        fvi_turned_loop(2, k, a, a_row, a_col, b, b_col, c, c_row, end);
    else if (m == 3)
        fvi_turned_loop(3, k, a, a_row, a_col, b, b_col, c, c_row, end);
    else
        fvi_turned_loop(4, k, a, a_row, a_col, b, b_col, c, c_row, end);
}
#else
enum { FVI_FEW = 0 };

/* Never called: no product has fewer rows than 1. */
static inline void fvi_turned_tile(size_t m, size_t k, const fv_real *a, size_t a_row, size_t a_col,
                                   const fv_real *b, size_t b_col, fv_real *c, size_t c_row,
                                   const fvi_tile_end *end)
{
    (void)m, (void)k, (void)a, (void)a_row, (void)a_col, (void)b, (void)b_col, (void)c, (void)c_row;
    (void)end;
}
#endif

#endif
