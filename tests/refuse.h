/* Wrong calls and the messages they must leave, one a line. */
#ifndef TEST_REFUSE_H
#define TEST_REFUSE_H

#include <criterion/criterion.h>

#include "autograd/internal.h"

/* Makes call number which and puts its message into *text; *text is NULL behind the last call. */
typedef fv_var *refused(int which, fv_tape *t, const char **text);

#define REFUSED(name) static fv_var *name(int which, fv_tape *t, const char **text)
/* In such a function: one wrong call. */
#define WRONG(message, ...)                                                                        \
    if (which == at++) {                                                                           \
        *text = message;                                                                           \
        return __VA_ARGS__;                                                                        \
    }
#define NO_MORE                                                                                    \
    *text = NULL;                                                                                  \
    return NULL;
/* An input of that shape; wrong calls never read its numbers. */
#define IN(...) fv_input(t, FV_SHAPE(__VA_ARGS__), refused_numbers)
#define SCALAR  fv_input(t, FV_SCALAR, refused_numbers)

static const fv_real refused_numbers[1];

/* Each call gives NULL, keeps its message and records nothing; after an earlier error it keeps that. */
static inline void refuse_each(refused *call)
{
    fv_tape *t = fv_tape_new(NULL);
    const char *text = "";
    int which = 0;
    for (; text != NULL; which++) {
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *y = call(which, t, &text);
        if (text == NULL)
            break;
        cr_expect_null(y, "%s", text);
        cr_expect_str_eq(fv_tape_error(t)->text, text);
        cr_expect_eq(fv_tape_error(t)->status, FV_USAGE);
        cr_expect(t->last == NULL || t->last->op == NULL, "%s: a value was recorded", text);
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_refuse(t, "test", "an earlier error");
        cr_expect_null(call(which, t, &text), "%s", text);
        cr_expect_str_eq(fv_tape_error(t)->text, "test: an earlier error");
    }
    cr_expect_geq(which, 8, "only %d wrong calls", which);
    fv_tape_free(t);
}

#endif
