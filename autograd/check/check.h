/* The inside of gradient checks: what moves, how the output follows, and what to say when it does not. */
#ifndef FVI_CHECK_H
#define FVI_CHECK_H

#include "autograd/internal.h"

/* ---- moving inputs (sampler.c) --------------------------------------------------------------- */

/* The stream of a random direction for an input, and how far its element i goes for a step of 1. */
fv_rng fvi_direction(const fv_sampler *s, int input);
double fvi_share(const fv_sampler *s, fv_rng direction, int input, size_t i);
/* Moves the numbers of an input as the sampler says. */
void fvi_move(const fv_sampler *s, int input, size_t count, fv_real *data);

/* ---- one check (check.c) --------------------------------------------------------------------- */

/* One thing that moves: a sampled input, or a parameter. */
typedef struct {
    fv_param *param; /* or NULL */
    fv_shape shape;
    size_t count, at; /* its numbers start there in lists over all parts */
} fvi_part;

typedef struct {
    fv_sampler sampler;
    fv_check_fn fn;    /* of sampled inputs; */
    fv_model_fn model; /* or of parameters */
    fv_params *params;
    void *context;
    fv_gradcheck_opts o; /* defaults filled in */
    fv_gradcheck_result *result;
    bool exact;   /* imaginary steps, no differences */
    bool of_rule; /* the function is one op's, replayed (rule.c) */
    const fv_var *rule;
    size_t place;     /* of the op's value */
    bool rules_right; /* each op that is recorded was found right by itself */
    bool one_output;  /* only this output is looked at: */
    size_t output;
    fvi_arena memory; /* all that follows */
    int parts;
    fvi_part *part;
    size_t total;
    fv_real *start;    /* [total]: where the parts stand */
    fv_real *gradient; /* [total]: of the output projected on weights, by fv_backward */
    size_t outputs;
    double *weights, *value, *tangent; /* [outputs]; the value at start, the last tangent */
    double size;                       /* of the projected output: sqrt(sum (weight y)^2) */
    size_t values;                     /* that one run records */
} fvi_check;

/* Fills defaults, makes the tape, runs once, takes the gradient. False: the result says why. */
bool fvi_check_open(fvi_check *c);
/* Puts parameters back and frees all. */
void fvi_check_close(fvi_check *c);
/* Memory of the check, cleared; NULL and the error when out. */
void *fvi_check_take(fvi_check *c, size_t count, size_t size);
/* The function where the sampler says. NULL: fvi_check_stop tells why. */
fv_var *fvi_check_run(fvi_check *c);
/* Keeps the tape's error as the result's. Returns false. */
bool fvi_check_stop(fvi_check *c);
/* Keeps a verdict and its line unless there is one. Returns false. */
bool fvi_check_say(fvi_check *c, fv_check_verdict verdict, fv_check_cause cause, const char *format,
                   ...) FV_PRINTF(4, 5);

/* The sampler's move: nothing; a random direction of one part or (-1) all; one element. */
void fvi_check_stay(fvi_check *c);
void fvi_check_along(fvi_check *c, int only, uint64_t direction);
void fvi_check_element(fvi_check *c, int part, size_t index);

/* fv_backward where the sampler says, of the output projected on weights: into[total]. */
bool fvi_check_gradient(fvi_check *c, const double *weights, fv_real *into);
/* How the outputs follow the sampler's move, into c->tangent: exact, or by differences of that step. */
bool fvi_check_tangent(fvi_check *c, double step);
/* The same, projected on c->weights; NAN after a failed run. */
double fvi_check_slope(fvi_check *c, double step);
/* The projected output a real step along the move, less what it is at start; NAN after a failed run. */
double fvi_check_change(fvi_check *c, double step);
/* A gradient's share along the move, and the scale that errors are measured against. */
double fvi_check_given(const fvi_check *c, const fv_real *gradient, double *scale);

/* ---- looking closer (look.c) ----------------------------------------------------------------- */

/* The function's own noise, a standard deviation of its projected output, from fourth differences on
 * fine grids along the move. More and Wild, "Estimating computational noise", 2011. */
double fvi_check_noise(fvi_check *c);
/* Whether the slope along the move jumps right where the inputs stand; real_slope gets what tiny real
 * steps give. */
bool fvi_check_jump(fvi_check *c, double scale, double *real_slope);

typedef struct {
    fv_check_verdict verdict;
    double slope, rounding; /* the best estimate of the derivative, and of its error */
} fvi_look;
/* Whether the derivative along the move is what backward gives, within tolerance; else why not. */
fvi_look fvi_check_look(fvi_check *c, double given, double scale, double tolerance);

/* ---- what is looked at (gradcheck.c, second.c, same.c, every.c) ------------------------------ */

/* Each says what is wrong and gives false. The gradient against the derivative along each part alone and along
 * random directions; */
bool fvi_check_first(fvi_check *c);
/* second derivatives, of the complex build; */
bool fvi_check_second(fvi_check *c);
/* the bits of another run, and of other thread counts; */
bool fvi_check_same(fvi_check *c);
/* every element of every input; the Jacobian of forward against reverse mode. */
bool fvi_check_elements(fvi_check *c);
bool fvi_check_jacobian(fvi_check *c);

/* ---- naming what is wrong (find.c, cause.c, rule.c) ------------------------------------------ */

/* After a mismatch along the elements of a part (-1: all): says the worst element, with a cause. */
void fvi_check_find(fvi_check *c, int part, fv_check_verdict verdict);
/* "input 0 [4, 3]", "head.weight [2, 3]"; of a rule: "its input 0 [4, 3]". */
const char *fvi_check_name(const fvi_check *c, int part, char text[300]);
/* "op tanh (value 4 on the tape): ", "output 3: " or "", to open a line. */
const char *fvi_check_opening(const fvi_check *c, char text[120]);

/* Two gradients of one part. */
typedef struct {
    size_t count, columns;
    const double *given, *exact, *x;
    size_t outputs;
    const double *y, *dy; /* the function's output, and the gradient that came from above */
} fvi_compared;
/* The likeliest cause of the difference, in words; differences below tolerance are none. */
fv_check_cause fvi_check_cause(const fvi_compared *p, double tolerance, char text[200]);

/* Checks every op that one run records alone, on the inputs it had, the last first, and says which is wrong.
 * By one of the above, */
bool fvi_check_rules(fvi_check *c, bool (*look)(fvi_check *), const char *seen);
/* and whether it adds to gradients. */
bool fvi_check_rules_add(fvi_check *c);
/* The op's input that is a part of such a check. */
int fvi_rule_input(const fv_var *v, int part);

#endif
