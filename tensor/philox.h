/* One block of Philox 4x32-10, inline so that loops over counters vectorise. */
#ifndef FVI_PHILOX_H
#define FVI_PHILOX_H

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

enum { FVI_PHILOX_LANES = 16, FVI_PHILOX_BLOCK = 4 * FVI_PHILOX_LANES };

/* The words of FVI_PHILOX_LANES blocks from number counter on, in order, computed side by side. */
static inline void fvi_philox_block(fv_rng rng, uint64_t counter, uint32_t out[FVI_PHILOX_BLOCK])
{
    uint32_t c0[FVI_PHILOX_LANES], c1[FVI_PHILOX_LANES], c2[FVI_PHILOX_LANES], c3[FVI_PHILOX_LANES];
    uint32_t k0 = rng.key[0], k1 = rng.key[1];
    for (int l = 0; l < FVI_PHILOX_LANES; l++) {
        c0[l] = (uint32_t)(counter + (uint64_t)l);
        c1[l] = (uint32_t)((counter + (uint64_t)l) >> 32);
        c2[l] = rng.high[0];
        c3[l] = rng.high[1];
    }
    for (int round = 0; round < 10; round++) {
        for (int l = 0; l < FVI_PHILOX_LANES; l++) {
            uint64_t a = (uint64_t)0xD2511F53u * c0[l], b = (uint64_t)0xCD9E8D57u * c2[l];
            c0[l] = (uint32_t)(b >> 32) ^ c1[l] ^ k0;
            c1[l] = (uint32_t)b;
            c2[l] = (uint32_t)(a >> 32) ^ c3[l] ^ k1;
            c3[l] = (uint32_t)a;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int l = 0; l < FVI_PHILOX_LANES; l++) {
        out[4 * l] = c0[l];
        out[4 * l + 1] = c1[l];
        out[4 * l + 2] = c2[l];
        out[4 * l + 3] = c3[l];
    }
}

#endif
