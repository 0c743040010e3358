/* Random numbers without state: Philox 4x32-10, keyed by (seed, step, name). */
#include "tensor/internal.h"
#include "tensor/philox.h"

#include <math.h>
#include <string.h>

fv_rng fv_rng_make(uint64_t seed, uint64_t step, const char *name)
{
    uint64_t mixed[3] = {seed, step, fvi_hash(name, strlen(name))};
    uint64_t key = fvi_hash(mixed, sizeof mixed);
    mixed[2] = ~mixed[2];
    uint64_t high = fvi_hash(mixed, sizeof mixed);
    return (fv_rng){{(uint32_t)key, (uint32_t)(key >> 32)},
                    {(uint32_t)high, (uint32_t)(high >> 32)}};
}

uint32_t fv_rng_bits(fv_rng rng, uint64_t index)
{
    uint32_t four[4];
    fvi_philox(rng, index / 4, four);
    return four[index % 4];
}

double fv_rng_uniform(fv_rng rng, uint64_t index)
{
    uint32_t four[4];
    fvi_philox(rng, index, four);
    return (double)(((uint64_t)four[0] << 32 | four[1]) >> 11) * 0x1p-53;
}

double fv_rng_normal(fv_rng rng, uint64_t index)
{
    uint32_t four[4];
    fvi_philox(rng, index, four);
    double u = ((double)(((uint64_t)four[0] << 32 | four[1]) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double v = (double)(((uint64_t)four[2] << 32 | four[3]) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

uint32_t fv_rng_below(fv_rng rng, uint64_t index, uint32_t bound)
{
    uint32_t four[4];
    fvi_philox(rng, index, four);
    return (uint32_t)(((uint64_t)four[0] * bound) >> 32);
}

void fv_rng_shuffle(fv_rng rng, size_t count, size_t *order)
{
    for (size_t i = 0; i < count; i++)
        order[i] = i;
    for (size_t i = count; i > 1; i--) {
        size_t j = fv_rng_below(rng, i, (uint32_t)i), kept = order[i - 1];
        order[i - 1] = order[j];
        order[j] = kept;
    }
}
