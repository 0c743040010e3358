/* Sums of products over letters: what matmul, outer, dot and einsum have in common.
 *
 * z[its letters] = sum over all other letters of x[its letters] y[its letters]. The plan and its
 * order of sums follow from letters, sizes and steps alone. */
#ifndef FVI_CONTRACT_H
#define FVI_CONTRACT_H

#include "autograd/ops/walk.h"

enum { FVI_LETTERS = 2 * FV_MAX_RANK }; /* two operands have at most so many */

typedef struct {
    int letters;
    size_t size[FVI_LETTERS];
    ptrdiff_t step[3][FVI_LETTERS]; /* of x, y and z; 0: it has not that letter */
    bool lanes; /* each number is a sum in lanes, however many rows and columns there are */
} contraction;

/* Appends a letter that is an axis of x, y and z, or of some of them (-1: it has not that letter). Where
 * its size there is 1 instead of size, it repeats. */
static inline void add_letter(contraction *c, size_t size, const fv_shape shape[3],
                              const int axis[3])
{
    for (int who = 0; who < 3; who++) {
        ptrdiff_t step = axis[who] >= 0 && shape[who].size[axis[who]] == size;
        for (int i = axis[who] + 1; axis[who] >= 0 && i < shape[who].rank; i++)
            step *= shape[who].size[i] > 0 ? (ptrdiff_t)shape[who].size[i] : 1;
        c->step[who][c->letters] = step;
    }
    c->size[c->letters++] = size;
}

/* z = the contraction, or z += it. Without add, z is contiguous. */
void FVI_NAME(fvi_contract)(fv_tape *t, const contraction *c, const fv_real *x, const fv_real *y,
                            bool add, fv_real *z);
/* The rules of an op whose options are a contraction of its one or two inputs. */
bool FVI_NAME(fvi_contract_forward)(fv_tape *t, fv_var *y);
void FVI_NAME(fvi_contract_backward)(fv_tape *t, fv_var *y);
#define fvi_contract          FVI_NAME(fvi_contract)
#define fvi_contract_forward  FVI_NAME(fvi_contract_forward)
#define fvi_contract_backward FVI_NAME(fvi_contract_backward)

#endif
