/* Another project's operators, by this library's ops: what the files of the program share.
 *
 * An operator is one short function: it reads attributes and inputs of its call, and gives the value
 * that the ops make of them. Everything is a number on the tape: whole numbers and truths (0 or 1) too,
 * which is exact up to 2^53; what leaves that range is skipped. */
#ifndef CONFORMANCE_H
#define CONFORMANCE_H

#include <jansson.h>

#include "autograd/op.h"
#include "fovea.h"
#include "tensor/internal.h"

enum { MOST = 32 /* inputs, outputs, sizes in an attribute */ };

/* A named value of a case; without var when it is absent. */
typedef struct {
    const char *name;
    const char *type; /* "float32", "int64", "bool" .. */
    fv_var *var;
} named;

/* One operator at work. */
typedef struct {
    fv_tape *t;
    const char *op;
    int opset;
    const json_t *attributes;
    const char *folder; /* of the case: attributes may name files in it */
    named *known;       /* all values so far, for Gradient */
    int known_count;
    int inputs, outputs; /* as the case lists them */
    named in[MOST], out[MOST];
    const char *lacks; /* why it is skipped: what the library does not have */
} call;

/* What an operator's name stands for: one of these. */
typedef struct {
    const char *name;
    fv_var *(*run)(call *c); /* gives the first output; the others by give */
    fv_var *(*unary)(fv_tape *t, fv_var *x);
    fv_var *(*binary)(fv_tape *t, fv_var *a, fv_var *b);
    int needs;         /* inputs that must be there; default 1, FV_NONE: none */
    const char *lacks; /* why there is none of it */
} operation;

/* The tables, each ended by a row without a name. */
extern const operation elementwise_operations[], shape_operations[], choosing_operations[],
    reduction_operations[], product_operations[], norm_operations[], loss_operations[],
    recurrent_operations[], attention_operations[], missing_operations[];

/* ---- what an operator reads -------------------------------------------------------------------- */

/* Input i; NULL when it is absent. */
fv_var *input(const call *c, int i);
/* The number of an input of one number, or of an attribute. */
double input_number(const call *c, int i, double otherwise);
double number(const call *c, const char *name, double otherwise);
int whole(const call *c, const char *name, int otherwise);
const char *text(const call *c, const char *name, const char *otherwise);
bool has(const call *c, const char *name);
/* Whole numbers of an input, or of an attribute; how many, 0 when there is none. */
int input_list(const call *c, int i, int64_t list[MOST]);
int list(const call *c, const char *name, int64_t numbers[MOST]);
/* A list that is an input from that opset on (input i) and was an attribute before. */
int list_or_input(const call *c, const char *name, int i, int64_t numbers[MOST]);
/* An axis counted from 0; one that x does not have is an error of the tape, and gives 0. */
int axis_of(const call *c, const fv_var *x, int64_t axis);
/* An input as truths, and as places of an axis (negative ones count from its end). */
fv_bools truths(const call *c, int i);
int32_t *places(const call *c, int i, size_t size);
bool is_float(const char *type);

/* ---- what it gives ----------------------------------------------------------------------------- */

/* Sets output i, unless the case does not want it. */
void give(call *c, int i, fv_var *y);
bool wants(const call *c, int i);
/* The case is skipped, since the library does not have this. Returns NULL. */
fv_var *lacks(call *c, const char *what);
/* Values made of numbers that are not a function of values. */
fv_var *constant(const call *c, fv_shape shape, double number);
fv_var *from_numbers(const call *c, fv_shape shape, const double *numbers);
fv_var *from_truths(const call *c, fv_bools yes);
fv_var *from_places(const call *c, fv_shape shape, const int32_t *places);

/* ---- cases ------------------------------------------------------------------------------------- */

typedef enum { PASSED, FAILED, SKIPPED } verdict;
/* What became of a case; op is what the table of skips is grouped by. */
typedef struct {
    verdict verdict;
    char name[200], op[100];
    char text[1200]; /* of a failure or a skip */
} outcome;

/* Reads folder/case.json and its arrays, runs it on the tape, compares. */
void run_case(fv_tape *t, const char *folder, outcome *result);
/* The tensor that {"file", "dtype", "shape"} describes, in memory of the tape. False: an error. */
bool read_tensor(fv_tape *t, const char *folder, const json_t *json, fv_tensor *x, fv_error *error);
/* Runs what c->op names; false when there was nothing for it (c->lacks), or the tape has an error. */
bool run_operation(call *c);

#endif
