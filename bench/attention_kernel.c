/* Times the attention kernel alone, forward and backward: a long causal sequence, short
 * sentences, a window, a graph. Usage: attention_kernel [threads [part of a line's name]]. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensor/internal.h"

typedef struct {
    size_t (*scratch)(const fvi_attention *, int, bool);
    void (*forward)(const fvi_attention *, int, fv_real *);
    void (*backward)(const fvi_attention *, const fvi_attention_grad *, int, fv_real *);
} kernel;

static const kernel kernels[] = {
#define X(isa)                                                                                     \
    {FVI_JOIN2(fvi_attention_scratch, isa), FVI_JOIN2(fvi_attention_forward, isa),                 \
     FVI_JOIN2(fvi_attention_backward, isa)},
    FVI_EACH_ISA(X)
#undef X
};

static const fv_rng draws = {{1, 2}, {3, 4}};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static fv_real *numbers(size_t count)
{
    fv_real *x = aligned_alloc(64, (count * sizeof(fv_real) / 64 + 1) * 64);
    for (size_t i = 0; x != NULL && i < count; i++)
        x[i] = (fv_real)fv_rng_normal(draws, i);
    return x;
}

static const char *only = "";

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Prints the medians of forward and of backward, in milliseconds, and the speed in visible
 * pairs. */
static void measure(const char *name, const fv_mask *mask, size_t rows, size_t heads, size_t width,
                    double dropout, int threads, int rounds)
{
    if (strstr(name, only) == NULL)
        return;
    const kernel *run = &kernels[fvi_isa_best()];
    const size_t d = heads * width;
    fv_real *in[4], *out[5];
    for (int i = 0; i < 4; i++)
        in[i] = numbers(rows * d);
    for (int i = 0; i < 5; i++)
        out[i] = numbers(rows * d);
    fv_real *lse = numbers(rows * heads);
    const fvi_attention a = {.mask = mask,
                             .queries = rows,
                             .keys = rows,
                             .heads = heads,
                             .kv_heads = heads,
                             .qk = width,
                             .vd = width,
                             .q = in[0],
                             .k = in[1],
                             .v = in[2],
                             .q_row = d,
                             .k_row = d,
                             .v_row = d,
                             .y = out[0],
                             .lse = lse,
                             .scale = 1 / sqrt((double)width),
                             .dropout = dropout,
                             .rng = draws};
    const fvi_attention_grad g = {.dy = in[3], .dq = out[1], .dk = out[2], .dv = out[3]};
    const size_t need[] = {run->scratch(&a, threads, false), run->scratch(&a, threads, true)};
    fv_real *scratch = numbers(need[0] > need[1] ? need[0] : need[1]);
    double *forward = malloc((size_t)rounds * sizeof *forward);
    double *backward = malloc((size_t)rounds * sizeof *backward);
    for (int round = -2; round < rounds; round++) {
        const double start = now();
        run->forward(&a, threads, scratch);
        const double middle = now();
        run->backward(&a, &g, threads, scratch);
        if (round >= 0) {
            forward[round] = middle - start;
            backward[round] = now() - middle;
        }
    }
    qsort(forward, (size_t)rounds, sizeof *forward, ascending);
    qsort(backward, (size_t)rounds, sizeof *backward, ascending);
    const double f = forward[rounds / 2], b = backward[rounds / 2];
    const double operations = 14.0 * (double)fv_mask_pairs(mask, rows, rows) * (double)d;
    printf("%-34s %9.4f + %9.4f = %9.4f ms  %6.1f GFLOP/s  scratch %zu KB\n", name, f, b, f + b,
           operations / (f + b) * 1e-6, need[1] * sizeof(fv_real) >> 10);
    for (int i = 0; i < 4; i++)
        free(in[i]);
    for (int i = 0; i < 5; i++)
        free(out[i]);
    free(lse);
    free(scratch);
    free(forward);
    free(backward);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    only = argc > 2 ? argv[2] : "";
    const size_t four[] = {0, 1024, 2048, 3072, 4096};
    size_t short_at[33] = {0}, edge_at[10001] = {0};
    for (size_t s = 0; s < 32; s++)
        short_at[s + 1] = short_at[s] + 8 + fv_rng_below(draws, s, 25);
    int32_t *edges = malloc(100000 * sizeof *edges);
    for (size_t i = 0; edges != NULL && i < 10000; i++) {
        for (int32_t e = 0; e < 10; e++) /* ascending */
            edges[i * 10 + (size_t)e] =
                e * 1000 + (int32_t)fv_rng_below(draws, i * 10 + (size_t)e, 1000);
        edge_at[i + 1] = (i + 1) * 10;
    }
    const fv_segments batch = {4, four}, sentences = {32, short_at};
    const fv_graph graph = {10000, edge_at, edges};
    const fv_mask causal = {.queries = &batch, .causal = true}, words = {.queries = &sentences},
                  words_causal = {.queries = &sentences, .causal = true},
                  window = {.left = 128, .right = 128}, graph_mask = {.edges = &graph};
    printf("%d threads, %s\n", threads, fvi_isa_name(fvi_isa_best()));
    measure("B=4 H=8 T=1024 D=64 causal", &causal, 4096, 8, 64, 0, threads, 9);
    measure("the same, dropout 0.1", &causal, 4096, 8, 64, 0.1, threads, 5);
    measure("32 sentences of 8..32, 4 x 16", &words, short_at[32], 4, 16, 0, 1, 501);
    measure("the same, causal", &words_causal, short_at[32], 4, 16, 0, 1, 501);
    measure("the same, dropout 0.1", &words, short_at[32], 4, 16, 0.1, 1, 501);
    measure("window 128, T=8192 H=4 D=32", &window, 8192, 4, 32, 0, threads, 9);
    measure("10000 nodes, 100000 edges, 8 x 8", &graph_mask, 10000, 8, 8, 0, threads, 9);
    free(edges);
    return 0;
}
