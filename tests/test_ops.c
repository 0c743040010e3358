/* Every op of ops.def: exact gradients, symmetric Hessians, forward against reverse mode, the same bits for
 * 1, 2 and 3 threads, backward that adds. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "autograd/internal.h"

typedef struct {
    int op, which;
} sample_of;

static fv_var *run_sample(fv_sampler *s, void *context)
{
    const sample_of *c = context;
    return fvi_ops_for(fvi_isa_best())->op[c->op]->sample(s, c->which);
}

ParameterizedTestParameters(ops, gradients)
{
    static int ids[FVI_OP_COUNT];
    for (int i = 0; i < FVI_OP_COUNT; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, FVI_OP_COUNT);
}

ParameterizedTest(int *id, ops, gradients)
{
    const fv_op *op = fvi_ops_for(fvi_isa_best())->op[*id];
    cr_assert_gt(op->samples, 0, "%s has no samples", op->name);
    for (int which = 0; which < op->samples; which++) {
        fv_gradcheck_result result;
        sample_of c = {*id, which};
        bool ok = fv_gradcheck(run_sample, &c, NULL, &result);
#if defined(FV_F64) || defined(FV_COMPLEX)
        cr_expect_geq(result.tangent, ok ? 0 : -1, "forward mode was looked at");
        cr_expect(ok, "%s, sample %d: first order %g, second order %g: %s", op->name, which,
                  result.first_order, result.second_order, result.error.text);
#else
        cr_expect_not(ok);
        cr_expect_eq(result.error.status, FV_USAGE);
#endif
    }
}
