/* Runs the example programs for tests: commands in a shell, in a folder of their own, with $POS and $SENT
 * for the programs that stand beside the test runner; TRAIN and LEARN train tiny models. */
#ifndef TEST_PROGRAMS_H
#define TEST_PROGRAMS_H

#include <stddef.h>

#define TRAIN                                                                                      \
    "$POS train --train train.conllu --width 8 --layers 1 --tables 8 --hash-rows 64 --threads 1 "  \
    "--quiet --min-count 1 --batch-words 8 "
#define LEARN                                                                                      \
    "$SENT train --train train.tsv --width 8 --hash-rows 64 --threads 1 --quiet --min-count 1 "    \
    "--batch 2 "

/* Makes the folder with train.conllu (5 sentences, 25 words) and train.tsv (6 texts, good or bad), and
 * removes it; skips the test when the programs are not built. */
void programs_begin(void);
void programs_end(void);
/* Runs a shell command in the folder; gives its exit code. */
int programs_run(const char *format, ...);
void programs_put(const char *name, const char *bytes, size_t length);
/* The bytes of a file until the next call, and a NUL; "" when there is none. */
const char *programs_get(const char *name, size_t *length);
/* The folder with /name behind it, until the next call. */
const char *programs_path(const char *name);

/* A command, and what must come of it. */
typedef struct {
    const char *command;
    int code;
    const char *says; /* the one line on stderr, or how it starts when this has no newline */
} failure;
/* Runs them; each must give its code and exactly one line on stderr. */
void programs_fail(const failure *failures, size_t count);
#define EXPECT_FAILURES(failures) programs_fail(failures, sizeof failures / sizeof *failures)

#endif
