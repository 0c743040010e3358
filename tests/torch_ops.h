/* Fixtures of ops (tests/fixtures, tools/make_op_fixtures.py): one case, and what the tables of calls ask of it. */
#ifndef TEST_TORCH_OPS_H
#define TEST_TORCH_OPS_H

#include <jansson.h>

#include "autograd/autograd.h"
#include "tensor/internal.h"

enum { MOST_INPUTS = 8 };

/* A case: its options as JSON, its inputs on the tape. */
typedef struct {
    fv_tape *t;
    const json_t *json;
    int inputs;
    fv_var *x[MOST_INPUTS]; /* NULL behind the last one */
    double count;           /* what a loss says it is a sum over */
} fixture;

/* An op by its name in the fixtures: without options by a pointer, else by a call. */
typedef struct {
    const char *name;
    fv_var *(*call)(fixture *f);
    fv_var *(*unary)(fv_tape *t, fv_var *x);
    fv_var *(*binary)(fv_tape *t, fv_var *a, fv_var *b);
    fv_var *(*along)(fv_tape *t, fv_var *x, int axis);
    fv_var *(*segments)(fv_tape *t, fv_var *x, const fv_segments *s);
    fv_var *(*over)(fv_tape *t, fv_var *x, const fv_axes *axes);
} torch_call;

/* The tables, each ended by a row without a name. */
extern const torch_call torch_number_calls[], torch_shape_calls[], torch_row_calls[],
    torch_window_calls[], torch_attention_calls[];

/* Options; numbers and lists that are left out are 0, NULL or empty. */
bool option_is(const fixture *f, const char *name);
double option_number(const fixture *f, const char *name);
int option_int(const fixture *f, const char *name);
/* A list's length, and its whole numbers or reals in memory of the tape. */
size_t option_count(const fixture *f, const char *name);
int32_t *option_ids(const fixture *f, const char *name);
fv_real *option_reals(const fixture *f, const char *name);
size_t *option_sizes(const fixture *f, const char *name);
fv_shape option_shape(const fixture *f, const char *name);
fv_segments option_segments(const fixture *f, const char *name);
/* "yes" and "yes_shape" as truths. */
fv_bools option_truths(const fixture *f);
/* Numbers as a value without gradient. */
fv_var *as_value(const fixture *f, fv_shape shape, const int32_t *numbers);

#endif
