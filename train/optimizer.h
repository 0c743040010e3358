/* The inside of an optimiser, shared by optimizer.c (what it holds) and optimizer_step.c (what it does). */
#ifndef FVI_OPTIMIZER_H
#define FVI_OPTIMIZER_H

#include "tensor/update.h"
#include "train/internal.h"

enum { FVI_MAX_SLOTS = 2 };

/* One parameter as [rows, d]: what is kept for it, and what this step found. */
typedef struct {
    fv_param *param;
    size_t rows, d;
    fv_real *slot[FVI_MAX_SLOTS];
    fv_real *sum;          /* [rows, d]: where gradients of several tapes are added up */
    const fv_real **dense; /* [tapes]: gradients [rows, d], or NULL */

    /* Tables: the rows that any tape touched, in order of first use. */
    int32_t *place;       /* [rows]: 1 + the place of a touched row; zero between steps */
    int32_t *touched;     /* [rows]: the row at each place */
    const fv_real **from; /* [rows, tapes]: gradients [d] of the row at each place, or NULL */
    size_t touched_count;

    bool by_rows;        /* grad is [touched_count, d], not [rows, d] */
    const fv_real *grad; /* the sum over tapes; NULL: the parameter had no part in this step */
    bool shared;         /* several tapes have a part, so grad is sum */
} fvi_state;

/* A fixed share of the work, never a function of the threads: rows first .. end - 1 of a parameter, or
 * the touched rows at these places. */
typedef struct {
    size_t state, first, end;
} fvi_piece;

struct fv_optimizer {
    fv_params *params;
    fv_optimizer_opts opts;
    const fvi_update *loops;
    uint64_t steps;
    fvi_arena arena; /* everything below */
    size_t count, pieces_count, numbers;
    fvi_state *states;
    fvi_piece *pieces;
    fvi_wide *squares; /* [pieces_count]: each piece's share of the squared norm */
    int tapes;         /* as many as there is room for */
};

#endif
