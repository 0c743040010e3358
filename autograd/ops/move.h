/* Numbers that move from place to place: every permute, slice, expand, pad is such a copy. */
#ifndef FVI_MOVE_H
#define FVI_MOVE_H

#include "autograd/ops/walk.h"

/* A copy y = x over some axes, with the steps of both along each. Where x does not step, it repeats; y
 * never does. */
typedef struct {
    int axes;
    size_t size[FVI_AXES];
    ptrdiff_t x[FVI_AXES], y[FVI_AXES];
    ptrdiff_t x_first, y_first; /* places of the first number */
} move;

/* Adds the next inner axis. */
static inline void move_axis(move *m, size_t size, ptrdiff_t x, ptrdiff_t y)
{
    m->size[m->axes] = size;
    m->x[m->axes] = x;
    m->y[m->axes++] = y;
}

#define fvi_move      FVI_NAME(fvi_move)
#define fvi_move_back FVI_NAME(fvi_move_back)
/* y = x. */
void fvi_move(fv_tape *t, const move *m, const fv_real *x, fv_real *y);
/* dx += dy, where x repeats the sum of its copies; nothing when dx is NULL. */
void fvi_move_back(fv_tape *t, const move *m, const fv_real *dy, fv_real *dx);

#endif
