/* What the machine offers: cores and instruction sets. */
#include "tensor/internal.h"

#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

int fv_threads_available(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static const char *const names[] = {
#define X(isa) #isa,
    FVI_EACH_ISA(X)
#undef X
};

static bool has(fvi_isa isa)
{
#if defined(__x86_64__) && !defined(FV_COMPLEX)
    if (isa == FVI_ISA_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (isa == FVI_ISA_avx2)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return isa == FVI_ISA_base;
}

fvi_isa fvi_isa_best(void)
{
    const char *wanted = getenv("FOVEA_ISA");
    fvi_isa best = FVI_ISA_base;
    for (int i = 0; i < FVI_ISA_COUNT; i++) {
        if (has((fvi_isa)i))
            best = (fvi_isa)i;
        if (wanted != NULL && strcmp(wanted, names[i]) == 0)
            break;
    }
    return best;
}

const char *fvi_isa_name(fvi_isa isa)
{
    return names[isa];
}

bool fvi_isa_known(const char *name)
{
    return strcmp(name, "base") == 0 || strcmp(name, "avx2") == 0 || strcmp(name, "avx512") == 0;
}
