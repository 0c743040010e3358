/* Many numbers folded into one: sums, products, largest numbers, over any axes. */
#ifndef FVI_FOLD_H
#define FVI_FOLD_H

#include "autograd/ops/walk.h"

/* What each number x counts, where c is a number of its result's own; and how these are put together. */
typedef enum {
    FOLD_SUM,       /* x, added up */
    FOLD_SQUARES,   /* x^2 */
    FOLD_CENTRED,   /* (x - c)^2 */
    FOLD_EXPS,      /* e^(x - c), 1 where x is an infinite c */
    FOLD_ABS,       /* |x| */
    FOLD_POWERS,    /* |x|^p */
    FOLD_NOT_ZERO,  /* x != 0 */
    FOLD_EQUAL,     /* x == c */
    FOLD_EQUAL_ABS, /* |x| == c, or x is NaN */
    FOLD_PRODUCT,   /* x, multiplied */
    FOLD_MAX,       /* the largest x, or NaN when there is one */
    FOLD_MIN,
    FOLD_MAX_ABS, /* of |x| */
    FOLD_MIN_ABS
} fold_kind;

/* A fold walks twice: over what is kept (tensor 0: the numbers, 1: the results), and at each place of
 * that over what goes (tensor 0: the numbers). The numbers' innermost axis of more than one has step 1. */
typedef struct fold fold;
struct fold {
    walk kept, gone;
    fold_kind kind;
    double p;          /* of FOLD_POWERS */
    const fvi_wide *c; /* one a result, for the kinds that have it */
    /* Where result / over goes, unless these are NULL: set, set, or added to. */
    fvi_wide *wide;
    fv_real *y, *dx;
    double over;
    /* Another fold of the same numbers, whose c are the wide results of this one: done tile by tile,
     * while the cache holds the numbers. */
    const fold *then;
};

/* Folds x. Each result's order of additions depends on the sizes alone. */
#define fvi_fold FVI_NAME(fvi_fold)
void fvi_fold(fv_tape *t, const fold *f, const fv_real *x);

/* The way back: dx += factor * slope, with a factor of each result. */
typedef enum {
    SLOPE_ONE,
    SLOPE_X,
    SLOPE_CENTRED,    /* x - c */
    SLOPE_EXP,        /* e^(x - c), c a number of the build's own and about x or more */
    SLOPE_SIGN,       /* of x */
    SLOPE_QUOTIENT,   /* c / x, 0 where c is 0 */
    SLOPE_EQUAL,      /* x == c, of such a c */
    SLOPE_EQUAL_SIGN, /* sign of x where |x| == c */
    SLOPE_POWER       /* sign of x times |x|^(p - 1), 0 at 0 */
} slope_kind;

/* A walk over the numbers (tensor 0) with the results of each (tensor 1). */
typedef struct {
    walk numbers;
    slope_kind kind;
    double p;
    double scale; /* of all */
    const fv_real *factor;
    const fvi_wide *c;
    bool blank; /* dx is not yet zeroed */
} spread;

#define fvi_spread FVI_NAME(fvi_spread)
void fvi_spread(fv_tape *t, const spread *s, const fv_real *x, fv_real *dx);

#endif
