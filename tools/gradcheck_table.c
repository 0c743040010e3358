/* Checks the gradients of every op and prints a table; exits with 1 when one fails. See `make gradcheck`. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "autograd/internal.h"

static const char usage[] =
    "examples:\n"
    "  gradcheck-complex                the table of every op, exact derivatives\n"
    "  gradcheck-double                 the same by central differences\n"
    "  gradcheck-complex softmax mul    some ops only\n"
    "  gradcheck-complex --full         each element of each input, one at a time\n"
    "\n"
    "Errors are relative: of the gradient (first order), of the Hessian's symmetry (second order), "
    "of forward\n"
    "against reverse mode (tangent). Exit codes: 0 all passed, 1 one failed, 2 usage.\n";

typedef struct {
    const fv_op *op;
    int which;
} sample_of;

static fv_var *run_sample(fv_sampler *s, void *context)
{
    const sample_of *c = context;
    return c->op->sample(s, c->which);
}

/* An op's worst over all its samples, and the first that did not pass. */
typedef struct {
    double first_order, second_order, tangent;
    fv_gradcheck_result failed;
    int sample;
} row;

static row check_op(const fv_op *op, const fv_gradcheck_opts *opts)
{
    row r = {.second_order = -1, .tangent = -1};
    for (int which = 0; which < op->samples; which++) {
        fv_gradcheck_result result;
        sample_of c = {op, which};
        const bool ok = fv_gradcheck(run_sample, &c, opts, &result);
        if (!(result.first_order <= r.first_order))
            r.first_order = result.first_order;
        if (!(result.second_order <= r.second_order))
            r.second_order = result.second_order;
        if (!(result.tangent <= r.tangent))
            r.tangent = result.tangent;
        if (!ok && r.failed.error.status == FV_OK) {
            r.failed = result;
            r.sample = which;
        }
    }
    return r;
}

/* An error in eight columns; nothing where it was not looked at. */
static const char *error_text(double error, char text[20])
{
    if (error < 0)
        return "-";
    snprintf(text, 20, "%.1e", error);
    return error == 0 ? "0" : text;
}

static void print_row(const fv_op *op, const row *r, bool colour)
{
    static const char *const verdicts[] = {"passed", "FAILED", "kink", "too noisy"};
    static const char *const colours[] = {"\033[32m", "\033[31m", "\033[33m", "\033[33m"};
    const fv_check_verdict v = op->samples > 0 ? r->failed.verdict : FV_CHECK_FAILED;
    char a[20], b[20], c[20];
    printf("%-20s %7d %12s %13s %9s  %s%s%s\n", op->name, op->samples,
           error_text(r->first_order, a), error_text(r->second_order, b), error_text(r->tangent, c),
           colour ? colours[v] : "", op->samples > 0 ? verdicts[v] : "NO SAMPLES",
           colour ? "\033[0m" : "");
    fflush(stdout);
    if (r->failed.error.status != FV_OK)
        fprintf(stderr, "  %s, sample %d: %s\n", op->name, r->sample, r->failed.error.text);
}

static bool is_chosen(const char *name, int count, char *const *names)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return count == 0;
}

int main(int argc, char **argv)
{
    const char *none = getenv("NO_COLOR");
    const bool colour = isatty(STDOUT_FILENO) && (none == NULL || *none == 0);
    fv_gradcheck_opts opts = {0};
    int names = 0, checked = 0, failed = 0;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return fputs(usage, stdout) < 0;
        else if (strcmp(argv[i], "--full") == 0)
            opts.full = true;
        else if (argv[i][0] == '-')
            return fprintf(stderr, "gradcheck: %s: unknown option (see --help)\n", argv[i]), 2;
        else
            argv[1 + names++] = argv[i];
    printf("%s build\n%-20s %7s %12s %13s %9s  %s\n", FV_BUILD, "op", "samples", "first order",
           "second order", "tangent", "verdict");
    for (int i = 0; i < FVI_OP_COUNT; i++) {
        const fv_op *op = fvi_ops_for(fvi_isa_best())->op[i];
        if (!is_chosen(op->name, names, argv + 1))
            continue;
        const row r = check_op(op, &opts);
        print_row(op, &r, colour);
        checked++;
        failed += op->samples == 0 || r.failed.verdict != FV_CHECK_PASSED;
    }
    if (checked < (names > 0 ? names : 1))
        return fprintf(stderr, "gradcheck: an op of that name is not in ops.def\n"), 2;
    fprintf(stderr, "%d of %d ops passed\n", checked - failed, checked);
    return failed > 0;
}
