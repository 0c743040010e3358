/* For those who add an op: what an op is, and what it may ask of the tape. See docs/add-an-op.md. */
#ifndef FV_OP_H
#define FV_OP_H

#include "autograd/autograd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One differentiable function. Forward fills y->value.data from y->in; backward adds to the gradients
 * that fv_grad gives for y->in, from y->grad. Neither may keep state outside the tape. */
struct fv_op {
    const char *name;
    const char *formula;
    const char *paper;                       /* "" when there is none */
    bool (*forward)(fv_tape *t, fv_var *y);  /* false: it called fv_refuse */
    void (*backward)(fv_tape *t, fv_var *y); /* NULL: not differentiable */
    int samples;                             /* how many calls of sample differ */
    fv_var *(*sample)(fv_sampler *s, int which);
};

/* Records y = op(in ..), copying size bytes of options, and runs forward. An input may be NULL when the op
 * takes it as absent. An earlier error, a shape that cannot be, or memory that is out give NULL. */
fv_var *fv_record(fv_tape *t, const fv_op *op, fv_shape shape, const void *options, size_t size,
                  int inputs, fv_var *const *in);
/* The gradient of an input, zeroed when first asked for; NULL when it needs none. */
fv_real *fv_grad(fv_tape *t, fv_var *x);
/* Keeps "op: message" as the tape's error unless it has one; returns NULL. */
fv_var *fv_refuse(fv_tape *t, const char *op, const char *format, ...) FV_PRINTF(3, 4);
/* "[4, 6] of name", for messages; lives until the next fv_tape_begin. */
const char *fv_describe(fv_tape *t, const fv_var *x);
/* Threads that a kernel may use. */
int fv_tape_threads(const fv_tape *t);

#ifdef __cplusplus
}
#endif
#endif
