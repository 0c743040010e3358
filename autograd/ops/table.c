/* The table of ops of one instruction set, read off ops.def. */
#include "autograd/ops/ops.h"

#define X(name) extern const fv_op FVI_NAME(fvi_op_##name);
#include "autograd/ops.def"
#undef X
void FVI_NAME(fvi_sum_gathered)(const fv_tape *t, fvi_use *use, size_t d, fv_real *dense);

const fvi_ops FVI_NAME(fvi_ops) = {
    .op =
        {
#define X(name) [FVI_OP_##name] = &FVI_NAME(fvi_op_##name),
#include "autograd/ops.def"
#undef X
        },
    .sum_gathered = FVI_NAME(fvi_sum_gathered),
};

#if FVI_ONCE
const fvi_ops *fvi_ops_for(fvi_isa isa)
{
    static const fvi_ops *const all[] = {
#define X(isa) &FVI_JOIN(fvi_ops, isa),
        FVI_EACH_ISA(X)
#undef X
    };
    return all[isa];
}
#endif
