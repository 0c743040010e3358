/* One block of Philox 4x32-10, inline so that loops over counters vectorise. */
#ifndef FVI_PHILOX_H
#define FVI_PHILOX_H

#include <string.h>

#include "tensor/tensor.h"

/* The four words of block number counter of a stream. */
static inline void fvi_philox(fv_rng rng, uint64_t counter, uint32_t out[4])
{
    uint32_t k0 = rng.key[0], k1 = rng.key[1];
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = rng.high[0],
             c3 = rng.high[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

enum { FVI_PHILOX_BLOCK = 64 }; /* words */

#if defined(__AVX512F__)
#include <immintrin.h>
typedef uint64_t fvi_lanes64 __attribute__((vector_size(64)));
#define FVI_MUL32(a, b)    ((fvi_lanes64)_mm512_mul_epu32((__m512i)(a), (__m512i)(b)))
#define FVI_ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define FVI_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif defined(__AVX2__)
#include <immintrin.h>
typedef uint64_t fvi_lanes64 __attribute__((vector_size(32)));
#define FVI_MUL32(a, b)    ((fvi_lanes64)_mm256_mul_epu32((__m256i)(a), (__m256i)(b)))
#define FVI_ZIP_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define FVI_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* The words of FVI_PHILOX_BLOCK / 4 blocks from number counter on, in order. */
#if defined(FVI_MUL32)
/* A 32-bit word in each 64-bit lane, whose upper half is left to whatever the rounds put there. */
static inline void fvi_philox_block(fv_rng rng, uint64_t counter, uint32_t out[FVI_PHILOX_BLOCK])
{
    enum { LANES = sizeof(fvi_lanes64) / 8 };
    const fvi_lanes64 zero = {0}, low = zero + 0xffffffffu;
    const fvi_lanes64 m0 = zero + 0xD2511F53u, m1 = zero + 0xCD9E8D57u;
    fvi_lanes64 step;
    for (int l = 0; l < LANES; l++)
        step[l] = (uint64_t)l;
    for (int first = 0; first < FVI_PHILOX_BLOCK / 4; first += LANES) {
        fvi_lanes64 c0 = step + (counter + (uint64_t)first), c1 = c0 >> 32;
        fvi_lanes64 c2 = zero + rng.high[0], c3 = zero + rng.high[1];
        uint32_t k0 = rng.key[0], k1 = rng.key[1];
        for (int round = 0; round < 10; round++) {
            const fvi_lanes64 a = FVI_MUL32(m0, c0), b = FVI_MUL32(m1, c2);
            c0 = (b >> 32) ^ c1 ^ k0;
            c1 = b;
            c2 = (a >> 32) ^ c3 ^ k1;
            c3 = a;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        c0 = (c0 & low) | (c1 << 32);
        c2 = (c2 & low) | (c3 << 32);
        const fvi_lanes64 words[2] = {FVI_ZIP_LOW(c0, c2), FVI_ZIP_HIGH(c0, c2)};
        memcpy(out + 4 * first, words, sizeof words);
    }
}
#else
static inline void fvi_philox_block(fv_rng rng, uint64_t counter, uint32_t out[FVI_PHILOX_BLOCK])
{
    for (size_t i = 0; i < FVI_PHILOX_BLOCK / 4; i++)
        fvi_philox(rng, counter + i, out + 4 * i);
}
#endif

#endif
