/* Times attention on graphs, forward and backward: GAT (an additive score of width 1 with a leaky relu) and
 * GATv2 (of width 8), 8 heads of 8, random edges. Usage: graph_attention [threads [part of a name]]. */
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

enum { HEADS = 8, VALUE = 8, ROUNDS = 15 };
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
        x[i] = (fv_real)(fv_rng_uniform(draws, i) - 0.5);
    return x;
}

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* So many edges a node, one drawn from each of as many equal runs of keys: they ascend. */
static fv_graph random_graph(size_t nodes, size_t degree)
{
    size_t *offsets = malloc((nodes + 1) * sizeof *offsets);
    int32_t *keys = malloc(nodes * degree * sizeof *keys);
    for (size_t i = 0; i <= nodes; i++)
        offsets[i] = i * degree;
    for (size_t e = 0; e < nodes * degree; e++) {
        const size_t from = nodes * (e % degree) / degree, to = nodes * (e % degree + 1) / degree;
        keys[e] = (int32_t)(from + fv_rng_below(draws, e, (uint32_t)(to - from)));
    }
    return (fv_graph){nodes, offsets, keys};
}

/* Prints the least and the median time of forward and of backward, in milliseconds. */
static void measure(const char *name, const char *only, const fv_graph *graph, size_t qk,
                    int threads)
{
    if (strstr(name, only) == NULL)
        return;
    const kernel *run = &kernels[fvi_isa_best()];
    const size_t n = graph->rows;
    const fv_mask mask = {.edges = graph};
    fv_real *q = numbers(n * HEADS * qk), *k = numbers(n * HEADS * qk),
            *v = numbers(n * HEADS * VALUE), *w = numbers(HEADS * qk),
            *y = numbers(n * HEADS * VALUE), *lse = numbers(n * HEADS),
            *dy = numbers(n * HEADS * VALUE);
    const fvi_attention a = {.mask = &mask,
                             .queries = n,
                             .keys = n,
                             .heads = HEADS,
                             .kv_heads = HEADS,
                             .qk = qk,
                             .vd = VALUE,
                             .q = q,
                             .k = k,
                             .v = v,
                             .q_row = HEADS * qk,
                             .k_row = HEADS * qk,
                             .v_row = HEADS * VALUE,
                             .y = y,
                             .lse = lse,
                             .score = FV_SCORE_ADDITIVE,
                             .inner = FV_INNER_LEAKY_RELU,
                             .inner_slope = 0.2,
                             .weight = w,
                             .weights = qk,
                             .scale = 1};
    const fvi_attention_grad g = {.dy = dy,
                                  .dq = numbers(n * HEADS * qk),
                                  .dk = numbers(n * HEADS * qk),
                                  .dv = numbers(n * HEADS * VALUE),
                                  .dweight = numbers(HEADS * qk)};
    fv_real *scratch = numbers(run->scratch(&a, threads, true) + run->scratch(&a, threads, false));
    double forward[ROUNDS], backward[ROUNDS];
    for (int r = -1; r < ROUNDS; r++) {
        const double start = now();
        run->forward(&a, threads, scratch);
        const double middle = now();
        run->backward(&a, &g, threads, scratch);
        if (r >= 0) {
            forward[r] = middle - start;
            backward[r] = now() - middle;
        }
    }
    qsort(forward, ROUNDS, sizeof *forward, by_number);
    qsort(backward, ROUNDS, sizeof *backward, by_number);
    printf("%-8s %7zu nodes %8zu edges: forward %7.2f (%.2f) backward %7.2f (%.2f) ms\n", name, n,
           graph->offsets[n], forward[ROUNDS / 2], forward[0], backward[ROUNDS / 2], backward[0]);
    fv_real *all[] = {q, k, v, w, y, lse, dy, g.dq, g.dk, g.dv, g.dweight, scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const char *only = argc > 2 ? argv[2] : "";
    printf("median (least) of %d rounds, %d threads, %s\n", ROUNDS, threads,
           fvi_isa_name(fvi_isa_best()));
    for (size_t nodes = 10000; nodes <= 100000; nodes *= 10) {
        const fv_graph graph = random_graph(nodes, 10);
        measure("GAT", only, &graph, 1, threads);
        measure("GATv2", only, &graph, 8, threads);
        free((void *)graph.offsets);
        free((void *)graph.keys);
    }
    return 0;
}
