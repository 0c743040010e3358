/* What `make mutants` puts around the places where a number may be made wrong: see rewrite.c, which writes
 * MUTANT and MUTANT_CALL into copies of the sources, and run.c, which makes mistakes there. */
#ifndef MUTANTS_H
#define MUTANTS_H

/* The ways to be wrong. */
typedef enum {
    MUTANT_NEGATE, /* -x */
    MUTANT_SCALE,  /* 1.01 x */
    MUTANT_DROP,   /* 0: a term */
    MUTANT_ONE,    /* 1: a factor */
    MUTANT_CALL,   /* the call is left out */
    MUTANT_KINDS
} mutant_kind;

/* A place as the compiler saw it. */
typedef struct {
    int place;
    int is_number;
} mutant_seen;

/* The place that is wrong now, MUTANT_NONE, or MUTANT_WATCH: all tell what they compute. */
enum { MUTANT_NONE = -1, MUTANT_WATCH = -2 };
extern int mutant_now;
double mutant_double(const mutant_seen *at, double x);
int mutant_dropped(const mutant_seen *at);

#if defined(FV_COMPLEX)
#include <complex.h>
double complex mutant_complex(const mutant_seen *at, double complex x);

#define MUTANT_NUMBER(x, yes, no)                                                                  \
    _Generic((x), double complex : yes, double : yes, float : yes, default : no)
/* x where it can be part of a number, else 0 */
#define MUTANT_PART(x)                                                                             \
    _Generic((x), double complex                                                                   \
             : x, double                                                                           \
             : x, float                                                                            \
             : x, int                                                                              \
             : x, unsigned                                                                         \
             : x, long                                                                             \
             : x, unsigned long                                                                    \
             : x, default : 0)

/* The value of an expression whose place has the witness's type: as it is unless that is a number. */
#define MUTANT(place, witness, ...)                                                                \
    __extension__({                                                                                \
        static const mutant_seen mutant_here                                                       \
            __attribute__((section("mutants"))) = {place, MUTANT_NUMBER(witness, 1, 0)};           \
        __auto_type mutant_x = (__VA_ARGS__);                                                      \
        _Generic((witness), double complex                                                         \
                 : mutant_now == MUTANT_WATCH || mutant_now == (place)                             \
                       ? mutant_complex(&mutant_here, MUTANT_PART(mutant_x))                       \
                       : MUTANT_PART(mutant_x),                                                    \
                   double                                                                          \
                 : mutant_now == MUTANT_WATCH || mutant_now == (place)                             \
                       ? mutant_double(&mutant_here, (double)MUTANT_PART(mutant_x))                \
                       : (double)MUTANT_PART(mutant_x),                                            \
                   default                                                                         \
                 : mutant_x);                                                                      \
    })

#define MUTANT_CALL(place, ...)                                                                    \
    __extension__({                                                                                \
        static const mutant_seen mutant_here __attribute__((section("mutants"))) = {place, 1};     \
        if ((mutant_now != MUTANT_WATCH && mutant_now != (place)) ||                               \
            !mutant_dropped(&mutant_here))                                                         \
            __VA_ARGS__;                                                                           \
    })
#endif

#endif
