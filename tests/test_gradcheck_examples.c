/* The programs that differentiate or compare exactly: what they print, and their exit codes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/tensor.h"

#if defined(FV_COMPLEX) || defined(FV_F64)

static char output[20000];

/* Runs a program that stands beside the test runner; gives its exit code, and its output. */
static int run(const char *name, const char *arguments)
{
    char command[4200], path[4000];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 40);
    cr_assert_gt(length, 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, name);
    if (access(path, X_OK) != 0)
        cr_skip_test("%s: not built", path);
    snprintf(command, sizeof command, "'%s' %s 2>&1", path, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = 0;
    const int status = pclose(pipe);
    cr_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define EXPECT_SAYS(text) cr_expect_not_null(strstr(output, text), "%s", output)

#if defined(FV_COMPLEX) /* the two that show the gradient check */

Test(gradcheck_examples, attention)
{
    cr_expect_eq(run("gradcheck_attention", ""), 0, "%s", output);
    EXPECT_SAYS("attention by hand: passed\n  gradient within ");
    EXPECT_SAYS("softmax without its sum: found\n  op softmax_by_hand (value 8 on the tape): ");
    EXPECT_SAYS("a term is missing: y times a number of each row (a sum over the row?)");
    EXPECT_SAYS("scores without their scale: found\n  op scores_by_hand (value 7 on the tape): ");
    EXPECT_SAYS("a factor of 2 too much");
    EXPECT_SAYS("= where += belongs: found\n  op softmax_by_hand (value 8 on the tape): backward "
                "assigns to the gradient");
}

Test(gradcheck_examples, my_op)
{
    cr_expect_eq(run("my_op", ""), 0, "%s", output);
    EXPECT_SAYS("swish, sample 0: passed (first order error ");
    EXPECT_SAYS("swish, sample 1: passed (first order error ");
}

Test(gradcheck_examples, usage)
{
    static const char *const names[] = {"gradcheck_attention", "my_op"};
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(run(names[i], "--help"), 0);
        cr_expect_eq(strncmp(output, "examples:\n", 10), 0);
        cr_expect_eq(run(names[i], "--nope"), 2);
    }
}

#else

/* Each claim is one line that ends with ok. */
Test(gradcheck_examples, theorems)
{
    cr_expect_eq(run("theorems", ""), 0, "%s", output);
    EXPECT_SAYS("claim                  ");
    int lines = 0, ok = 0;
    for (char *line = strtok(output, "\n"); line != NULL; line = strtok(NULL, "\n"), lines++)
        ok += strcmp(line + strlen(line) - 3, " ok") == 0;
    cr_expect(lines >= 19 && ok == lines - 1, "%d of %d lines", ok, lines);
    cr_expect_eq(run("theorems", "--help"), 0);
    cr_expect_eq(strncmp(output, "examples:\n", 10), 0);
    cr_expect_eq(run("theorems", "--nope"), 2);
}

#endif
#endif
