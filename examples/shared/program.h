/* What the example programs share: messages, exit codes, Ctrl-C. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "fovea.h"

/* Prints "program: message" to stderr and gives the exit code of the error. */
int program_failed(const char *program, const fv_error *error);
/* Makes Ctrl-C and SIGTERM set the flag that fv_fit_opts.stop wants; a second Ctrl-C ends at once. */
const volatile sig_atomic_t *program_stop_flag(void);
/* Numbers of options: the whole text must be a number within [low, high]; false prints what was expected. */
bool option_number(const char *option, const char *text, double low, double high, double *out);
bool option_count(const char *option, const char *text, long low, long high, long *out);
/* Whether a path can be read (or, for "-", is standard input); says why not. */
bool file_exists(const char *path);
/* Peak memory of this process in MB, and seconds since the first call. */
double peak_memory_mb(void);
double seconds(void);

#endif
