/* Mistakes planted into every backward rule of ops.def: each must be found, and blamed on that op. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/internal.h"

#if defined(FV_F64) || defined(FV_COMPLEX)

typedef enum { SIGN, SCALE, ONE_ELEMENT, MUTATIONS } mutation;

/* What is planted; a check runs one function on one thread of this process. */
static struct {
    const fv_op *right;
    fv_op wrong;
    fvi_ops ops; /* with wrong in the place of right */
    int input;   /* whose gradient is wrong */
    mutation what;
    double changed; /* the largest change that was made */
} planted;

/* What the rule adds to the gradient of one input, changed on the way. */
static void mutated_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[planted.input]);
    const size_t n = dx ? fvi_count(y->in[planted.input]) : 0;
    fv_real *before = calloc(n + 1, sizeof *before);
    if (n > 0)
        memcpy(before, dx, n * sizeof *dx);
    planted.right->backward(t, y);
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        if (fabs((double)fv_re(dx[i] - before[i])) > fabs((double)fv_re(dx[most] - before[most])))
            most = i;
    for (size_t i = 0; i < n; i++) {
        const fv_real added = dx[i] - before[i];
        const double factor = planted.what == SIGN                       ? -1
                              : planted.what == SCALE                    ? 1.01
                              : planted.what == ONE_ELEMENT && i == most ? 0
                                                                         : 1;
        if (factor != 1)
            dx[i] = before[i] + (fv_real)factor * added;
        const double change = fabs((factor - 1) * (double)fv_re(added));
        planted.changed = change > planted.changed ? change : planted.changed;
    }
    free(before);
}

static fv_var *run_mutated(fv_sampler *s, void *context)
{
    s->tape->ops = &planted.ops;
    return planted.right->sample(s, *(const int *)context);
}

/* How many inputs the op's own value of a sample has. */
static int inputs_of(const fv_op *op, int which)
{
    fv_tape *t = fv_tape_new(NULL);
    fv_sampler s = {.tape = t, .only = -1, .only_index = SIZE_MAX};
    fv_tape_begin(t, FV_TRAIN, 0, 0);
    op->sample(&s, which);
    int inputs = 0;
    for (const fv_var *v = t->last; v != NULL; v = v->previous)
        if (v->op == op)
            inputs = v->inputs;
    fv_tape_free(t);
    return inputs;
}

ParameterizedTestParameters(gradcheck_mutants, every_rule)
{
    static int ids[FVI_OP_COUNT];
    for (int i = 0; i < FVI_OP_COUNT; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, FVI_OP_COUNT);
}

ParameterizedTest(int *id, gradcheck_mutants, every_rule)
{
    const fvi_ops *all = fvi_ops_for(fvi_isa_best());
    int made = 0;
    planted.right = all->op[*id];
    planted.wrong = *planted.right;
    planted.wrong.backward = mutated_backward;
    planted.ops = *all;
    planted.ops.op[*id] = &planted.wrong;
    for (int which = 0; which < planted.right->samples; which++)
        for (planted.input = 0; planted.input < inputs_of(planted.right, which); planted.input++)
            for (int m = 0; m < MUTATIONS; m++) {
                fv_gradcheck_result r;
                planted.what = (mutation)((m + which) % MUTATIONS);
                planted.changed = 0;
                const bool ok =
                    fv_gradcheck(run_mutated, &which, &(fv_gradcheck_opts){.first_only = true}, &r);
                if (!ok) {
                    cr_expect_str_eq(r.op, planted.right->name, "%s", r.error.text);
                    cr_expect_eq(r.verdict, FV_CHECK_FAILED, "%s", r.error.text);
                }
                cr_expect_eq(ok, planted.changed < 1e-6,
                             "%s, sample %d, input %d, mutation %d: changed by %g", r.op, which,
                             planted.input, (int)planted.what, planted.changed);
                made += planted.changed > 0;
                if (which > 1) /* one kind will do */
                    break;
            }
    /* a view has no rule of its own that could go wrong */
    cr_expect(made > 0 || strcmp(planted.right->name, "reshape") == 0, "%s", planted.right->name);
}

#endif
