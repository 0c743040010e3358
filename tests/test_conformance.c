/* The program that runs other projects' vectors: on tiny cases with known verdicts, and on all of ONNX's.
 *
 * The program is of the double build, and so is this test. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tensor/tensor.h"

#if defined(FV_F64)

enum { ONNX_PASSES = 663 /* of 714: the others name an operator or a type that is not here */ };

/* Beside the runner of the tests; skips the test when it is not built. */
static const char *program(void)
{
    static char path[4000];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 20);
    cr_assert_gt(length, 0);
    path[length] = 0;
    strcpy(strrchr(path, '/') + 1, "conformance");
    if (access(path, X_OK) != 0)
        cr_skip_test("%s: not built", path);
    return path;
}

/* Runs it with these arguments; its output, until the next call. */
static const char *run(const char *arguments, int *code)
{
    static char command[5000], output[1 << 20];
    snprintf(command, sizeof command, "%s %s", program(), arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    output[fread(output, 1, sizeof output - 1, pipe)] = 0;
    const int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s: ended by a signal", command);
    *code = WEXITSTATUS(status);
    return output;
}

static json_t *run_json(const char *folder, int *code)
{
    char arguments[4500];
    snprintf(arguments, sizeof arguments, "--json %s", folder);
    json_t *report = json_loads(run(arguments, code), 0, NULL);
    cr_assert_not_null(report);
    return report;
}

static int count_of(const json_t *report, const char *name)
{
    return (int)json_integer_value(json_object_get(report, name));
}

static void counts(const char *folder, int passed, int failed, int skipped)
{
    int code;
    json_t *report = run_json(folder, &code);
    cr_expect_eq(count_of(report, "passed"), passed, "%s", folder);
    cr_expect_eq(count_of(report, "failed"), failed, "%s", folder);
    cr_expect_eq(count_of(report, "skipped"), skipped, "%s", folder);
    cr_expect_eq(code, failed > 0);
    json_decref(report);
}

#define TINY "tests/fixtures/conformance/"

Test(conformance, verdicts)
{
    counts(TINY "right", 12, 0, 0);
    counts(TINY "wrong", 0, 8, 0);
    counts(TINY "unknown", 0, 0, 4);
    counts(TINY, 12, 8, 4);
}

Test(conformance, what_it_says)
{
    static const char *const lines[] = {
        "failed   number: output 0 (y0), index 4 of [2, 3]: got 25, want 25.1000004\n",
        "failed   whole_number: output 0 (y0), index 0 of [1]: got 2, want 3\n",
        "failed   shape: output 0 (y0): got shape [2, 3], want [3, 2]\n",
        "failed   not_a_number: output 0 (y0), index 0 of [1]: got 1, want nan\n",
        "failed   sizes: Add: add: [2, 3] with [2]: ",
        "failed   second_output: output 1 (y1), index 1 of [2]: got 2, want 0\n",
        "failed   no_file: " TINY
        "wrong/no_file/in_1.npy: cannot open: No such file or directory\n",
        "failed   no_json: " TINY "wrong/no_json/case.json:2:13: unexpected token near '}'\n",
        "skipped  operator: Frobnicate: an operator that the table does not list\n",
        "skipped  attribute: ScatterND: reduction other than none and add: scatter adds\n",
        "skipped  long_numbers: Neg: whole numbers beyond 2^53, where double is not exact\n",
        "\nFloor                          1  no such op: rounding has no gradient\n",
        "\n12 passed, 8 failed, 4 skipped\n"};
    int code;
    const char *said = run(TINY, &code);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect_not_null(strstr(said, lines[i]), "%s", lines[i]);
    cr_expect_null(strstr(run("--quiet " TINY, &code), "skipped  operator"));
}

Test(conformance, usage)
{
    int code;
    cr_expect_eq(strncmp(run("--help", &code), "examples:\n", 10), 0);
    cr_expect_eq(code, 0);
    run("2>/dev/null", &code);
    cr_expect_eq(code, 2);
    run("--frob " TINY " 2>/dev/null", &code);
    cr_expect_eq(code, 2);
    run(TINY "none 2>/dev/null", &code);
    cr_expect_eq(code, 3);
    run("tools 2>/dev/null", &code);
    cr_expect_eq(code, 3);
}

Test(conformance, onnx)
{
    const char *shared = getenv("FOVEA_SHARED");
    char folder[4000];
    int code;
    snprintf(folder, sizeof folder, "%s/conformance/onnx", shared != NULL ? shared : "../shared");
    if (access(folder, R_OK) != 0)
        cr_skip_test("%s: not there", folder);
    json_t *report = run_json(folder, &code);
    char *failures = json_dumps(json_object_get(report, "failures"), JSON_INDENT(1));
    cr_expect_eq(count_of(report, "failed"), 0, "%s", failures);
    cr_expect_geq(count_of(report, "passed"), ONNX_PASSES);
    free(failures);
    json_decref(report);
}

#endif
