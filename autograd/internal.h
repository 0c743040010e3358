/* The inside of a tape, shared by autograd/ and the rooms to its right. */
#ifndef FVI_AUTOGRAD_H
#define FVI_AUTOGRAD_H

#include "autograd/op.h"
#include "tensor/internal.h"

/* ops.def lists every op once; from it come the numbers, the tables and docs/ops.md. */
typedef enum {
#define X(name) FVI_OP_##name,
#include "autograd/ops.def"
#undef X
    FVI_OP_COUNT
} fvi_op_id;

/* Rows of a table that one gather used, and where their gradient stands. */
typedef struct fvi_gathered fvi_gathered;
struct fvi_gathered {
    const int32_t *ids;
    size_t count;            /* ids, or bags */
    const fv_segments *bags; /* NULL: id i belongs to gradient row i */
    const fv_real *grad;     /* [count, d] */
    fvi_gathered *next;
};

/* A parameter on a tape; fv_tape_begin keeps param, slot and slots. */
typedef struct fvi_use {
    const fv_param *param;
    fv_var *var;
    fvi_gathered *gathered; /* newest first */
    fv_real *grad;          /* after fv_backward: all of the gradient, */
    size_t touched;         /* or rows of a table, their numbers and gradients */
    int32_t *rows;
    fv_real *row_grad;
    int32_t *slot; /* [slots]: one a row of the table, zero between steps */
    size_t slots;
} fvi_use;

/* What is compiled once for each instruction set. */
typedef struct {
    const fv_op *op[FVI_OP_COUNT];
    /* Sums what the gathers of a table left into use->rows and use->row_grad, or into dense. */
    void (*sum_gathered)(const fv_tape *t, fvi_use *use, size_t d, fv_real *dense);
} fvi_ops;
#define X(isa) extern const fvi_ops FVI_JOIN(fvi_ops, isa);
FVI_EACH_ISA(X)
#undef X
/* The ops of an instruction set. */
const fvi_ops *fvi_ops_for(fvi_isa isa);

struct fv_tape {
    fvi_arena arena;  /* values */
    fvi_arena result; /* gradients of parameters */
    fv_mode mode;
    uint64_t seed, step;
    int threads;
    int shards; /* that the batch is cut into, as fv_fit does; 0 or 1: it is whole */
    const fvi_ops *ops;
    fv_var *last;            /* newest value; the others hang on its previous */
    struct fvi_spare *spare; /* memory of gradients that are used up */
    size_t recorded;
    fv_error error;
    fv_error lasting; /* of fv_tape_new: what fv_tape_begin does not forget */
    fvi_use *uses;    /* open-addressed by parameter; capacity a power of two */
    size_t uses_count, uses_capacity;
};

/* What the tape knows about a parameter, or where that will be kept (param is NULL there); NULL when the
 * tape has met no parameter yet. */
fvi_use *fvi_find_use(const fv_tape *t, const fv_param *param);
/* fv_record of a built-in op. */
fv_var *fvi_record(fv_tape *t, fvi_op_id id, fv_shape shape, const void *options, size_t size,
                   int inputs, fv_var *const *in);
/* fv_grad that leaves the zeroing to the caller: when *blank, the memory holds anything, and the caller
 * must zero or write all of it, best piece by piece where it is about to be added to. */
fv_real *fvi_grad_blank(fv_tape *t, fv_var *x, bool *blank);
/* Memory of the tape that is not cleared; NULL and the error kept when out. */
void *fvi_tape_take(fv_tape *t, size_t count, size_t size);
/* Cleared memory that lives as long as the gradients of parameters. */
void *fvi_tape_result(fv_tape *t, size_t count, size_t size);
/* Exchanges the tape's memory of values for another. Its values are then out of reach, while the error and
 * the gradients of parameters stay: so tapes that run one after the other need the memory of one. */
void fvi_tape_swap(fv_tape *t, fvi_arena *values);
/* Whether x is one of the tape's matrices [rows, d] (d > 0 columns); refuses with the op's name otherwise. */
bool fvi_is_matrix(fv_tape *t, const char *op, const char *what, const fv_var *x);
/* How many numbers x holds. */
static inline size_t fvi_count(const fv_var *x)
{
    return fv_shape_count(x->value.shape);
}
/* x's sizes as a matrix: the last axis, and all others. */
static inline size_t fvi_columns(const fv_var *x)
{
    return x->value.shape.rank == 0 ? 1 : x->value.shape.size[x->value.shape.rank - 1];
}
static inline size_t fvi_rows(const fv_var *x)
{
    size_t d = fvi_columns(x);
    return d ? fvi_count(x) / d : 0;
}

/* The inputs of a check, and how they move; see check/sampler.c. */
struct fv_sampler {
    fv_tape *tape;
    uint64_t seed;
    int inputs, room;       /* handed out so far in this call; what the list holds */
    fv_var **input;         /* in memory of the tape */
    int only;               /* the input that is moved; -1: all */
    size_t only_index;      /* its only element that is moved; SIZE_MAX: all, along a direction: */
    uint64_t direction;     /* random, of that seed, */
    const fv_tensor *along; /* or these; NULL: random */
    size_t first, end;      /* a direction moves these elements of each input only; end 0: all */
    fv_real step;           /* how far: real for differences, imaginary for the exact tangent */
};

#endif
