/* The functions of tensor/math.h against what numpy's tests expect of its own: files of the shared data,
 * lines "type,input,output,largest error in units of the last place", numbers as bits. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/math.h"

typedef struct {
    const char *name;
    fv_real (*ours)(fv_real x);
} function;

static const function functions[] = {
    {"exp", fvi_exp},     {"exp2", fvi_exp2}, {"expm1", fvi_expm1}, {"log", fvi_log},
    {"log1p", fvi_log1p}, {"log2", fvi_log2}, {"log10", fvi_log10}, {"sin", fvi_sin},
    {"cos", fvi_cos},     {"tan", fvi_tan},   {"sinh", fvi_sinh},   {"cosh", fvi_cosh},
    {"tanh", fvi_tanh},   {"cbrt", fvi_cbrt},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

#if defined(FV_F64) || defined(FV_COMPLEX)
#define TYPE "np.float64"
typedef double number;
typedef uint64_t number_bits;
#else
#define TYPE "np.float32"
typedef float number;
typedef uint32_t number_bits;
#endif

static number from_bits(uint64_t wide)
{
    const number_bits bits = (number_bits)wide;
    number x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Numbers in their order, one apart from the next, both zeros at the same place. */
static int64_t place(number x)
{
    number_bits bits;
    const number size = x < 0 ? -x : x == 0 ? 0 : x;
    memcpy(&bits, &size, sizeof bits);
    return x < 0 ? -(int64_t)bits : (int64_t)bits;
}

/* How many numbers y is away from the expected one. */
static double distance(number y, number expected)
{
    if (isnan(y) || isnan(expected))
        return isnan(y) && isnan(expected) ? 0 : INFINITY;
    const int64_t a = place(y), b = place(expected);
    return (double)(a > b ? (uint64_t)a - (uint64_t)b : (uint64_t)b - (uint64_t)a);
}

/* Checks one line; returns its distance, or -1 when it is of another type or a comment. */
static double check_line(const function *f, char *line, int number_of_line)
{
    char *input = strchr(line, ','), *output = input ? strchr(input + 1, ',') : NULL;
    char *limit = output ? strchr(output + 1, ',') : NULL;
    if (limit == NULL || strncmp(line, TYPE ",", strlen(TYPE ",")) != 0)
        return -1;
    const number x = from_bits(strtoull(input + 1, NULL, 16));
    const number expected = from_bits(strtoull(output + 1, NULL, 16));
    const double away = distance((number)fv_re(f->ours((fv_real)x)), expected);
    cr_expect(away <= strtod(limit + 1, NULL), "%s.csv:%d: %s(%a) is %g ulp from %a", f->name,
              number_of_line, f->name, (double)x, away, (double)expected);
    return away;
}

Test(umath, as_near_as_numpy)
{
    const char *root = getenv("FOVEA_SHARED");
    for (int f = 0; f < FUNCTIONS; f++) {
        char path[1000], line[200];
        snprintf(path, sizeof path, "%s/conformance/umath/%s.csv", root ? root : "../shared",
                 functions[f].name);
        FILE *file = fopen(path, "r");
        if (file == NULL)
            cr_skip_test("%s is not there", path);
        double worst = 0;
        int lines = 0;
        for (int number_of_line = 1; fgets(line, sizeof line, file) != NULL; number_of_line++) {
            const double away = check_line(&functions[f], line, number_of_line);
            worst = away > worst ? away : worst;
            lines += away >= 0;
        }
        fclose(file);
        cr_expect_geq(lines, 100, "%s has %d lines of " TYPE, path, lines);
        cr_log_info("%s: at most %g ulp on %d numbers", functions[f].name, worst, lines);
    }
}
