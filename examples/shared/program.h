/* What the example programs share: messages, exit codes, Ctrl-C. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "fovea.h"

/* The end of a program: makes sure that stdout was written, prints what went wrong to stderr as one line
 * "program: message", and gives the exit code. */
int program_end(const char *program, fv_error *error);
/* Makes Ctrl-C and SIGTERM set the flag that fv_fit_opts.stop wants; a second Ctrl-C ends at once. */
const volatile sig_atomic_t *program_stop_flag(void);
/* One long option: where its value goes in a struct of arguments. A NUMBER of 0 is stored as FV_NONE,
 * so that fields may use 0 for "the default"; a NAME is stored as its place in names. */
typedef enum { OPTION_TEXT, OPTION_COUNT, OPTION_NUMBER, OPTION_FLAG, OPTION_NAME } option_kind;
typedef struct {
    const char *name;
    option_kind kind;
    size_t at;
    double low, high;         /* of COUNT (long) and NUMBER (double) */
    const char *const *names; /* of NAME (int), ends with NULL */
} option;
/* Reads the options into a struct of arguments. False: there is nothing more to do, since --help or
 * --version was printed, or error says what is wrong. */
bool read_options(int argc, char **argv, const char *program, const char *usage,
                  const option *options, size_t count, void *arguments, fv_error *error);
/* Whether an option that a command cannot do without was given. */
bool has_option(const char *command, const char *name, const char *value, fv_error *error);
/* All of standard input, checked to be UTF-8, without a byte-order mark, ended with a NUL; NULL and an
 * error that names line and column otherwise. */
char *read_input(size_t *length, fv_error *error);
/* Peak memory of this process in MB. */
double peak_memory_mb(void);

#endif
