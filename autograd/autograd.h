/* Values that remember how they were made: the tape, the ops, gradient checks.
 *
 * Ops take NULL and give NULL; the tape keeps the first error. So write a whole model without checks
 * and check fv_backward (or fv_tape_ok) once. In the comments, "rows" counts the rows of a batch. */
#ifndef FV_AUTOGRAD_H
#define FV_AUTOGRAD_H

#include "tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tape, what was computed on it and how (see op.h), and the parameters it may use. */
typedef struct fv_tape fv_tape;
typedef struct fv_op fv_op;
typedef struct fv_var fv_var;
typedef struct fv_params fv_params;

/* A tensor on a tape. Read it; the tape owns it until the next fv_tape_begin. */
struct fv_var {
    fv_tensor value;
    fv_real *grad;   /* like value.data; NULL until fv_backward reaches it. With FV_TRAIN only
                      * parameters and inputs keep theirs: that of a computed value is used up */
    const fv_op *op; /* NULL: not computed on the tape */
    fv_var **in;     /* [inputs]: what it was computed from; an absent one is NULL */
    int inputs;
    bool needs_grad;
    const void *options; /* what the op keeps from its call */
    void *saved;         /* what forward leaves for backward */
    const char *name;    /* of a parameter; else NULL */
    fv_var *previous;    /* the value recorded before this one */
    struct fvi_use *use; /* of a parameter: what the tape knows about it */
};

/* ---- parameters -------------------------------------------------------------------------------- */

/* How a parameter starts: zeros, ones, normal (standard deviation scale), uniform in [-scale, scale). */
typedef enum { FV_ZEROS, FV_ONES, FV_NORMAL, FV_UNIFORM } fv_init_kind;
typedef struct {
    fv_init_kind kind;
    double scale;
} fv_init;

/* One named tensor that training changes. */
typedef struct {
    const char *name;
    fv_tensor value;
    size_t index;      /* its place in the set */
    bool no_decay;     /* weight decay leaves it alone (biases, norms, tables) */
    bool touched_rows; /* the optimiser updates only the rows that a step used */
    bool frozen;       /* saved with the rest, but never trained */
} fv_param;

/* A place in a parameter set: names are made under its prefix. Passed by value. */
typedef struct {
    fv_params *params;
    const char *prefix;
} fv_scope;

/* An empty set whose initial values are a function of (seed, name). NULL when memory is out. Free it
 * last: layers point into it. */
fv_params *fv_params_new(uint64_t seed);
void fv_params_free(fv_params *params);
/* The root scope, and one below another: fv_under(s, "layers.%d", i), in at most 199 bytes. */
fv_scope fv_root(fv_params *params);
fv_scope fv_under(fv_scope scope, const char *format, ...) FV_PRINTF(2, 3);
/* A new parameter, owned by the set. NULL, and the set keeps the error, when the name is taken, the shape
 * holds no numbers, a limit is passed or memory is out; or after an earlier error. */
fv_param *fv_param_new(fv_scope scope, const char *name, fv_shape shape, fv_init init);
/* For a layer that cannot be made: keeps "prefix: message" as the set's error unless it has one. */
void fv_scope_refuse(fv_scope scope, const char *format, ...) FV_PRINTF(2, 3);
/* How many parameters there are, and each of them, by place or by name; NULL when there is none such. */
size_t fv_params_count(const fv_params *params);
fv_param *fv_params_at(const fv_params *params, size_t index);
fv_param *fv_params_find(const fv_params *params, const char *name);
/* How many numbers in all. */
size_t fv_params_numbers(const fv_params *params);
/* From now on the set refuses to hold more numbers than this (0: no limit), say, than the file holds
 * that names its sizes. */
void fv_params_limit(fv_params *params, size_t numbers);
/* The set's first error; status FV_OK when there is none. */
const fv_error *fv_params_error(const fv_params *params);
/* The seed the set was made with. */
uint64_t fv_params_seed(const fv_params *params);

/* ---- the tape ---------------------------------------------------------------------------------- */

typedef enum {
    FV_EVAL,  /* dropout off, no gradients */
    FV_TRAIN, /* dropout on, gradients */
    FV_GRAD   /* dropout off, gradients */
} fv_mode;

typedef struct {
    int threads;     /* inside the kernels; default 1 */
    const char *isa; /* "base", "avx2", "avx512": at most this one; default: the best there is */
} fv_tape_opts;

/* A new tape; NULL when memory is out. With a name of no instruction set it has an error that
 * fv_tape_begin does not forget. One thread uses it at a time; several tapes are independent. */
fv_tape *fv_tape_new(const fv_tape_opts *opts);
void fv_tape_free(fv_tape *tape);
/* Forgets the last step and its error. (seed, step) key the random numbers of this one. */
void fv_tape_begin(fv_tape *tape, fv_mode mode, uint64_t seed, uint64_t step);
/* Whether no op failed so far. */
bool fv_tape_ok(const fv_tape *tape);
/* The first error since fv_tape_begin; status FV_OK when there is none. */
const fv_error *fv_tape_error(const fv_tape *tape);
/* The mode that fv_tape_begin set. */
fv_mode fv_tape_mode(const fv_tape *tape);
/* The random stream of the value that is recorded next: a function of (seed, step, place on the tape). */
fv_rng fv_tape_rng(const fv_tape *tape);
/* Bytes of values and gradients: now, and the most there ever were. */
size_t fv_tape_bytes(const fv_tape *tape, size_t *peak);
/* Memory that lives until the next fv_tape_begin, cleared; NULL (and the tape keeps the error) when out. */
void *fv_tape_alloc(fv_tape *tape, size_t count, size_t size);
/* The n-th value (from 0) that the op of that name in docs/ops.md recorded; NULL when there are fewer. */
fv_var *fv_tape_find(const fv_tape *tape, const char *op, size_t n);

/* A value from numbers that the caller keeps alive until the tape is done with them; it only reads them.
 * NULL without data, or when the shape cannot be. */
fv_var *fv_constant(fv_tape *t, fv_shape shape, const fv_real *data);
/* The same, with a gradient. */
fv_var *fv_input(fv_tape *t, fv_shape shape, const fv_real *data);
/* A parameter on this tape: the same value each time in a step. NULL (an error) for NULL. */
fv_var *fv_use(fv_tape *t, const fv_param *param);
/* Fills the gradients of everything that the one-number loss depends on, seeded with 1. False: the
 * tape's error says why (the first failed op, or a loss that is not one number). */
FV_MUST_CHECK bool fv_backward(fv_tape *t, fv_var *loss);

/* The gradient that the last fv_backward left for a parameter; NULL when it had no part. Tables have
 * theirs by rows: fv_touched gives how many rows, their numbers, and the gradient of each [count, d]. */
const fv_real *fv_param_grad(const fv_tape *t, const fv_param *param);
size_t fv_touched(const fv_tape *t, const fv_param *param, const int32_t **rows,
                  const fv_real **grad);

/* ---- gradient checks ----------------------------------------------------------------------------
 * The complex build differentiates exactly (an imaginary step, no difference taken), the double build by
 * central differences; the float build refuses and names the library to link. Squire and Trapp, 1998. */

/* Hands out the inputs of a function under check: the same numbers on every call, plus the step that
 * the check takes. */
typedef struct fv_sampler fv_sampler;
/* An input with values uniform in [low, high), kept at least 0.05 away from zero. */
fv_var *fv_sample(fv_sampler *s, fv_shape shape, double low, double high);
/* An input that starts at given numbers. */
fv_var *fv_sample_from(fv_sampler *s, fv_shape shape, const fv_real *numbers);
/* The tape of this call, and a random stream for what is not an input. */
fv_tape *fv_sampler_tape(fv_sampler *s);
fv_rng fv_sampler_rng(const fv_sampler *s);

/* A function under check: builds its output, of any shape, from sampled inputs; a model under check: from
 * its parameters; a function for fv_jvp: from the inputs x. Each call must build the same. */
typedef fv_var *(*fv_check_fn)(fv_sampler *s, void *context);
typedef fv_var *(*fv_model_fn)(fv_tape *t, void *context);
typedef fv_var *(*fv_tape_fn)(fv_tape *t, fv_var *const *x, void *context);

typedef struct {
    uint64_t seed;
    /* Largest relative error of the gradient accepted; default 1e-12 where exact, else 1e-7. */
    double first_order;
    /* The same for the Hessian's symmetry; default 1e-10. It must also be what differences of gradients
     * give, to 1e-7. */
    double second_order;
    int directions;  /* random directions tried besides each input's own; default 3 */
    bool full;       /* looks at every element of every input, one at a time */
    bool jacobian;   /* compares every output with every input element, forward against reverse */
    bool first_only; /* leaves second derivatives out */
    int points;  /* 2 or 4: differences, in the complex build too; default: exact there, else 4 */
    double step; /* of differences; default 1e-3 of four points, 1e-5 of two */
    const int *threads; /* counts that must give the same bits, ended by 0; default 1, 2, 3 */
    const char *isa;    /* as in fv_tape_opts */
} fv_gradcheck_opts;

typedef enum {
    FV_CHECK_PASSED,
    FV_CHECK_FAILED, /* a gradient is wrong, or the function cannot be checked */
    FV_CHECK_KINK, /* an input sits where the slope jumps: there is no gradient to compare, move it */
    FV_CHECK_NOISY /* rounding hides what differences could tell */
} fv_check_verdict;

/* The likeliest cause of a wrong gradient, read off all of its elements. */
typedef enum {
    FV_CAUSE_NONE,       /* nothing is wrong, or the function could not be run */
    FV_CAUSE_UNKNOWN,    /* no pattern */
    FV_CAUSE_NOT_FINITE, /* NaN or Inf */
    FV_CAUSE_FORGOTTEN,  /* zero everywhere */
    FV_CAUSE_SIGN,       /* the negative */
    FV_CAUSE_FACTOR,     /* a multiple */
    FV_CAUSE_TRANSPOSED, /* rows and columns exchanged */
    FV_CAUSE_ORDER,      /* the right rows, or numbers, in other places */
    FV_CAUSE_ELEMENTS,   /* only some elements differ */
    FV_CAUSE_TERM,       /* a term is missing, or too much */
    FV_CAUSE_ASSIGNED,   /* backward assigns to a gradient that it should add to */
    FV_CAUSE_TANGENT,    /* forward loses the imaginary part */
    FV_CAUSE_DETACHED,   /* each op is right: part of the function goes around the tape */
    FV_CAUSE_UNEQUAL,    /* two runs, or two thread counts, differ */
    FV_CAUSE_SECOND      /* only the second derivative is wrong */
} fv_check_cause;

typedef struct {
    fv_check_verdict verdict;
    double first_order;  /* largest relative error of the gradient that was seen */
    double second_order; /* of u'Hv against v'Hu; -1 when not looked at: differences cannot tell */
    double tangent; /* of forward mode w'(Jv) against reverse mode (J'w)'v; -1 when not looked at */
    double rounding; /* relative error that rounding alone may make of first_order */
    /* Of a failure, a kink or noise: */
    fv_check_cause cause;
    char op[64];  /* the op whose rule is wrong; "" when none is by itself */
    size_t place; /* of its value on the tape, from 0 */
    int input;    /* the op's input; without an op, the function's (a parameter: its index) */
    size_t index; /* the element that differs most */
    double given, exact;   /* what backward gives, how the function changes */
    double given_rounding; /* estimated error of exact */
    fv_error error;        /* all of it as one line */
} fv_gradcheck_result;

/* Compares fv_backward with how the function changes, the output projected on fixed random weights; forward
 * with reverse mode; second derivatives in the complex build; bits of runs and threads; and that each op adds
 * to gradients. False: result->verdict and the fields after it say what differs, and the likeliest cause. */
bool fv_gradcheck(fv_check_fn fn, void *context, const fv_gradcheck_opts *opts,
                  fv_gradcheck_result *result);
/* The same for the parameters that a model uses, tables and shared ones included; frozen ones stay. They
 * have their bits back at the end, whatever happens. */
bool fv_gradcheck_params(fv_model_fn fn, fv_params *params, void *context,
                         const fv_gradcheck_opts *opts, fv_gradcheck_result *result);
/* Forward mode: y = fn(x) and how it changes when x[i] moves along v[i] (one without data: not at all), in
 * memory of the tape, which is left after fn's run in its mode, seed and step. Exact in the complex build,
 * by four points of the double build. False: the tape's error says why. value may be NULL. */
bool fv_jvp(fv_tape *t, fv_tape_fn fn, void *context, int count, const fv_tensor *x,
            const fv_tensor *v, fv_tensor *value, fv_tensor *tangent);

#ifdef __cplusplus
}
#endif
#include "autograd/ops.h"

#endif
