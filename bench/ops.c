/* Speed of single ops, forward and backward, on numbers out of cache and in it, beside a triad.
 *
 *     build/bench/ops [--threads N] [--isa NAME] [--only OP] [--repeats N] [--json]
 *
 * Out of cache a [16384, 1024] tensor is read; the figures are nanoseconds a number, gigabytes a second and
 * the share of what a triad c = a + s b reaches, which is timed in turn with the op. Bytes are those that
 * must be read or written at least, as for the triad. In cache, on [16, 1024], the figure is numbers a second.
 * All times are the best of the repeats, and hold all that the tape adds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "autograd/op.h"

enum { WIDTH = 1024, LARGE = 16384, SMALL = 16, TRIAD = 1 << 24 };

/* The shape of operand b beside a [rows, WIDTH]. */
typedef enum { NONE, FULL, ROW, COLUMN, NUMBER } second;

/* One op a line: its name, the shape of b, a call on a and b, and how many numbers forward and backward must
 * read and write for each number of a. bench/ops.py has PyTorch's call under the same name. */
#define CASES(X)                                                                                   \
    X(add, FULL, fv_add(t, a, b), 3, 4)                                                            \
    X(add_row, ROW, fv_add(t, a, b), 2, 3)                                                         \
    X(add_column, COLUMN, fv_add(t, a, b), 2, 3)                                                   \
    X(mul, FULL, fv_mul(t, a, b), 3, 6)                                                            \
    X(mul_row, ROW, fv_mul(t, a, b), 2, 4)                                                         \
    X(mul_column, COLUMN, fv_mul(t, a, b), 2, 4)                                                   \
    X(mul_number, NUMBER, fv_mul(t, a, b), 2, 4)                                                   \
    X(div, FULL, fv_div(t, a, b), 3, 6)                                                            \
    X(power, FULL, fv_power(t, a, b), 3, 8)                                                        \
    X(maximum, FULL, fv_maximum(t, a, b), 3, 8)                                                    \
    X(lerp, FULL, fv_lerp(t, a, b, a), 3, 10)                                                      \
    X(add_many, FULL, fv_add_many(t, 3, (fv_var *[]){a, b, a}), 4, 7)                              \
    X(scale, NONE, fv_scale(t, a, 3), 2, 2)                                                        \
    X(pow_2, NONE, fv_pow(t, a, 2), 2, 3)                                                          \
    X(pow_1_7, NONE, fv_pow(t, a, 1.7), 2, 3)                                                      \
    X(clamp, NONE, fv_clamp(t, a, 0.2, 0.6), 2, 3)                                                 \
    X(abs, NONE, fv_abs(t, a), 2, 3)                                                               \
    X(sqrt, NONE, fv_sqrt(t, a), 2, 3)                                                             \
    X(exp, NONE, fv_exp(t, a), 2, 3)                                                               \
    X(log, NONE, fv_log(t, a), 2, 3)                                                               \
    X(sin, NONE, fv_sin(t, a), 2, 3)                                                               \
    X(erf, NONE, fv_erf(t, a), 2, 3)                                                               \
    X(atan, NONE, fv_atan(t, a), 2, 3)                                                             \
    X(relu, NONE, fv_relu(t, a), 2, 3)                                                             \
    X(elu, NONE, fv_elu(t, a, 1), 2, 3)                                                            \
    X(gelu, NONE, fv_gelu(t, a), 2, 3)                                                             \
    X(gelu_tanh, NONE, fv_gelu_tanh(t, a), 2, 3)                                                   \
    X(silu, NONE, fv_silu(t, a), 2, 3)                                                             \
    X(mish, NONE, fv_mish(t, a), 2, 3)                                                             \
    X(softplus, NONE, fv_softplus(t, a), 2, 3)                                                     \
    X(sigmoid, NONE, fv_sigmoid(t, a), 2, 3)                                                       \
    X(tanh, NONE, fv_tanh(t, a), 2, 3)                                                             \
    X(hardswish, NONE, fv_hardswish(t, a), 2, 3)                                                   \
    X(swiglu, NONE, fv_swiglu(t, a, -1), 1.5, 2.5)                                                 \
    X(sum, NONE, fv_sum(t, a, NULL), 1, 1)                                                         \
    X(sum_rows, NONE, fv_sum(t, a, FV_AXES(-1)), 1, 1)                                             \
    X(sum_columns, NONE, fv_sum(t, a, FV_AXES(0)), 1, 1)                                           \
    X(mean, NONE, fv_mean(t, a, FV_AXES(-1)), 1, 1)                                                \
    X(prod, NONE, fv_prod(t, a, FV_AXES(-1)), 1, 2)                                                \
    X(max, NONE, fv_max(t, a, FV_AXES(-1)), 1, 2)                                                  \
    X(variance, NONE, fv_variance(t, a, FV_AXES(-1), 1), 1, 2)                                     \
    X(logsumexp, NONE, fv_logsumexp(t, a, FV_AXES(-1)), 1, 2)                                      \
    X(norm, NONE, fv_vector_norm(t, a, FV_AXES(-1), 2), 1, 2)                                      \
    X(cumsum, NONE, fv_cumsum(t, a, -1, NULL), 2, 2)                                               \
    X(softmax, NONE, fv_softmax(t, a, -1), 2, 3)                                                   \
    X(log_softmax, NONE, fv_log_softmax(t, a, -1), 2, 3)                                           \
    X(layer_norm, ROW, fv_layer_norm(t, a, b, NULL, NULL), 2, 3)                                   \
    X(rms_norm, ROW, fv_rms_norm(t, a, b, NULL), 2, 3)

#define X(name, b_shape, call, forward, backward)                                                  \
    static fv_var *call_##name(fv_tape *t, fv_var *a, fv_var *b)                                   \
    {                                                                                              \
        (void)b;                                                                                   \
        return call;                                                                               \
    }
CASES(X)
#undef X

static const struct {
    const char *name;
    second second;
    fv_var *(*call)(fv_tape *t, fv_var *a, fv_var *b);
    double moved[2]; /* forward, backward */
} cases[] = {
#define X(name, b_shape, call, forward, backward)                                                  \
    {#name, b_shape, call_##name, {forward, backward}},
    CASES(X)
#undef X
};
enum { COUNT = sizeof cases / sizeof *cases };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- an end of the chain that tells when the op's own backward starts --------------------------- */

static bool end_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    y->value.data[0] = 0;
    return true;
}

static void end_backward(fv_tape *t, fv_var *y)
{
    fv_real *dx = fv_grad(t, y->in[0]);
    const ptrdiff_t n = dx ? (ptrdiff_t)fv_shape_count(y->in[0]->value.shape) : 0;
    const int threads = fv_tape_threads(t);
    (void)threads;
#pragma omp parallel for num_threads(threads) if (n > 100000)
    for (ptrdiff_t i = 0; i < n; i++)
        dx[i] = (fv_real)0.5;
    **(double *const *)y->options = now();
}

static const fv_op end_op = {"end", "", "", end_forward, end_backward, 0, NULL};

/* ---- one measurement --------------------------------------------------------------------------- */

typedef struct {
    int threads, repeats;
    bool json;
    const char *isa, *only;
    fv_tape *tape;
    float *numbers[3]; /* TRIAD each; the last is written by the triad alone */
} bench;

static double triad(const bench *o)
{
    const float *a = o->numbers[0], *b = o->numbers[1];
    float *c = o->numbers[2];
    const double start = now();
#pragma omp parallel for num_threads(o->threads) schedule(static)
    for (ptrdiff_t i = 0; i < TRIAD; i++)
        c[i] = a[i] + 3 * b[i];
    return now() - start;
}

/* Seconds that one forward and one backward take on so many rows; false: the op failed. */
static bool once(const bench *o, int which, size_t rows, double seconds[2])
{
    fv_tape *t = o->tape;
    const fv_shape b_shape[] = {FV_SCALAR, FV_SHAPE(rows, WIDTH), FV_SHAPE(WIDTH),
                                FV_SHAPE(rows, 1), FV_SCALAR};
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fv_var *a = fv_input(t, FV_SHAPE(rows, WIDTH), o->numbers[0]);
    fv_var *b = fv_input(t, b_shape[cases[which].second], o->numbers[1]);
    double start = now(), middle = 0, *at = &middle;
    fv_var *y = cases[which].call(t, a, b);
    seconds[0] = now() - start;
    if (y == NULL || !fv_backward(t, fv_record(t, &end_op, FV_SCALAR, &at, sizeof at, 1, &y))) {
        fprintf(stderr, "ops: %s: %s\n", cases[which].name, fv_tape_error(t)->text);
        return false;
    }
    seconds[1] = now() - middle;
    return true;
}

static void keep_less(double *best, double x)
{
    *best = x < *best ? x : *best;
}

static bool run(const bench *o, int which)
{
    double large[2] = {1e9, 1e9}, small[2] = {1e9, 1e9}, stream = 1e9, seconds[2];
    for (int i = 0; i < o->repeats; i++) {
        keep_less(&stream, triad(o));
        if (!once(o, which, LARGE, seconds))
            return false;
        for (int k = 0; i > 0 && k < 2; k++) /* the first round grows the arena */
            keep_less(&large[k], seconds[k]);
    }
    for (int i = 0; i < 50 * o->repeats; i++) {
        if (!once(o, which, SMALL, seconds))
            return false;
        for (int k = 0; i > 5 && k < 2; k++)
            keep_less(&small[k], seconds[k]);
    }
    const double n = (double)LARGE * WIDTH, m = (double)SMALL * WIDTH;
    const double rate = 3 * sizeof(float) * (double)TRIAD / stream;
    if (o->json)
        printf("{\"op\": \"%s\", \"threads\": %d, \"triad_gb\": %.2f, \"forward_ns\": %.4f, "
               "\"backward_ns\": %.4f, \"small_forward_ns\": %.4f, \"small_backward_ns\": %.4f}\n",
               cases[which].name, o->threads, 1e-9 * rate, 1e9 * large[0] / n, 1e9 * large[1] / n,
               1e9 * small[0] / m, 1e9 * small[1] / m);
    else {
        printf("%-12s", cases[which].name);
        for (int k = 0; k < 2; k++) {
            const double speed = cases[which].moved[k] * sizeof(float) * n / large[k];
            printf("  %7.3f %6.1f %5.0f%%", 1e9 * large[k] / n, 1e-9 * speed, 100 * speed / rate);
        }
        printf("  %8.2f %8.2f\n", 1e-9 * m / small[0], 1e-9 * m / small[1]);
    }
    fflush(stdout);
    return true;
}

int main(int count, char **word)
{
    bench o = {.threads = 1, .repeats = 7};
    for (int i = 1; i < count; i++) {
        const bool more = i + 1 < count;
        if (strcmp(word[i], "--json") == 0) {
            o.json = true;
        } else if (more && strcmp(word[i], "--threads") == 0) {
            o.threads = atoi(word[++i]);
        } else if (more && strcmp(word[i], "--repeats") == 0) {
            o.repeats = atoi(word[++i]);
        } else if (more && strcmp(word[i], "--isa") == 0) {
            o.isa = word[++i];
        } else if (more && strcmp(word[i], "--only") == 0) {
            o.only = word[++i];
        } else {
            fprintf(stderr, "usage: ops [--threads N] [--isa NAME] [--only OP] [--repeats N] "
                            "[--json]\n");
            return FV_USAGE;
        }
    }
    o.threads = o.threads < 1 ? 1 : o.threads;
    o.repeats = o.repeats < 2 ? 2 : o.repeats;
    o.tape = fv_tape_new(&(fv_tape_opts){.threads = o.threads, .isa = o.isa});
    bool good = o.tape != NULL;
    for (int k = 0; k < 3; k++) {
        o.numbers[k] = malloc(TRIAD * sizeof(float));
        good = good && o.numbers[k] != NULL;
    }
    for (ptrdiff_t i = 0; good && i < TRIAD; i++) { /* where all ops are defined */
        o.numbers[0][i] = 0.1f + 0.8f * (float)(i * 7919 % 10007) / 10007;
        o.numbers[1][i] = 0.5f + (float)(i * 5039 % 10009) / 10009;
        o.numbers[2][i] = 0;
    }
    if (good && !o.json)
        printf("%d thread%s; of [%d, %d]: ns a number, GB/s, share of a triad; of [%d, %d]: 1e9 "
               "numbers/s\n%-12s  %22s  %22s  %8s %8s\n",
               o.threads, o.threads == 1 ? "" : "s", LARGE, WIDTH, SMALL, WIDTH, "op", "forward",
               "backward", "forward", "backward");
    for (int i = 0; good && i < COUNT; i++)
        if (o.only == NULL || strcmp(o.only, cases[i].name) == 0)
            good = run(&o, i);
    for (int k = 0; k < 3; k++)
        free(o.numbers[k]);
    fv_tape_free(o.tape);
    return good ? FV_OK : FV_FAILED;
}
