/* One block of Philox 4x32-10, inline so that loops over counters vectorise. */
#ifndef FVI_PHILOX_H
#define FVI_PHILOX_H

#include "tensor/tensor.h"

/* The four words of block number counter of a stream. */
static inline void fvi_philox(fv_rng rng, uint64_t counter, uint32_t out[4])
{
    uint32_t k0 = rng.key[0], k1 = rng.key[1];
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = rng.high[0], c3 = rng.high[1];
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

#endif
