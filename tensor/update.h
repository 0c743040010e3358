/* The loops of an optimiser's step, once for each instruction set; see kernel/update.c. */
#ifndef FVI_UPDATE_H
#define FVI_UPDATE_H

#include "tensor/internal.h"

/* One step of Adam on a number p with gradient g:
 *   g = scale g + l2 p;  m = beta1 m + rest1 g;  v = beta2 v + rest2 g^2;
 *   p = keep p - rate m / (sqrt(v) root + eps). */
typedef struct {
    fv_real scale, l2, keep, beta1, rest1, beta2, rest2, rate, root, eps;
} fvi_adam_step;

/* One step of SGD: g = scale g + l2 p;  b = momentum b + g;  p -= rate b (Nesterov: momentum b + g). */
typedef struct {
    fv_real scale, l2, momentum, rate;
    bool nesterov;
} fvi_sgd_step;

typedef struct {
    /* y[n] = the sum of x[t] + at over count tapes as a binary tree. A NULL x[t] adds nothing; not all
     * may be. Returns the sum of squares of y. With y NULL: that of x[0] + at. */
    fvi_wide (*sum)(size_t n, size_t at, int count, const fv_real *const *x, fv_real *y);
    /* g NULL: a gradient of zero. */
    void (*adam)(size_t n, const fvi_adam_step *step, const fv_real *g, fv_real *p, fv_real *m,
                 fv_real *v);
    /* b NULL: no momentum. */
    void (*sgd)(size_t n, const fvi_sgd_step *step, const fv_real *g, fv_real *p, fv_real *b);
} fvi_update;

#define X(isa) extern const fvi_update FVI_JOIN(fvi_update, isa);
FVI_EACH_ISA(X)
#undef X
/* The loops of an instruction set. */
const fvi_update *fvi_update_for(fvi_isa isa);

#endif
