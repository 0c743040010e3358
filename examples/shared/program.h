/* What the example programs share: messages, exit codes, Ctrl-C. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "fovea.h"

/* Prints "program: message" to stderr and gives the exit code of the error. */
int program_failed(const char *program, const fv_error *error);
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
/* Reads the options; -1: go on, otherwise the exit code (after --help, --version or a message). */
int read_options(int argc, char **argv, const char *program, const char *usage,
                 const option *options, size_t count, void *arguments);
/* 1, with a message, when a value that a command needs was not given. */
int missing_option(const char *program, const char *command, const char *option, const char *value);
/* All of standard input, ended with a NUL; NULL when reading or memory fails. */
char *read_input(size_t *length);
/* Peak memory of this process in MB. */
double peak_memory_mb(void);

#endif
