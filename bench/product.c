/* Speed of the matrix product on the shapes of small models, alone or beside the sgemm_ of a library.
 *
 *     build/bench/product [--threads N] [--yardstick libblas.so] [--large]
 *
 * A pair runs one side after the other for the same time; the figures are medians over the pairs. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensor/internal.h"

typedef void sgemm(const char *trans_a, const char *trans_b, const int *m, const int *n,
                   const int *k, const float *alpha, const float *a, const int *lda, const float *b,
                   const int *ldb, const float *beta, float *c, const int *ldc);

/* NN: C = A B. NT: B is stored [n, k]. TN: C += A B with A stored [k, m]. */
typedef enum { NN, NT, TN } form;
static const char *const form_name[] = {"nn", "nt", "tn"};

typedef struct {
    form form;
    size_t m, n, k;
} task;

static const task small[] = {
    {NT, 60, 192, 64},   {NT, 320, 192, 64},  {NT, 640, 192, 64},  {NT, 60, 64, 64},
    {NT, 320, 64, 64},   {NT, 320, 256, 64},  {NT, 320, 64, 256},  {NT, 320, 384, 128},
    {NT, 320, 128, 128}, {NT, 320, 256, 128}, {NT, 320, 128, 256}, {NT, 320, 128, 384},
    {NT, 320, 17, 64},   {NN, 60, 64, 192},   {NN, 320, 64, 192},  {NN, 320, 64, 64},
    {NN, 320, 64, 256},  {NN, 320, 256, 64},  {NN, 320, 128, 384}, {NN, 320, 384, 128},
    {NN, 320, 64, 17},   {TN, 192, 64, 60},   {TN, 192, 64, 320},  {TN, 192, 64, 640},
    {TN, 64, 64, 320},   {TN, 256, 64, 320},  {TN, 64, 256, 320},  {TN, 384, 128, 320},
    {TN, 128, 128, 320}, {TN, 17, 64, 320},   {NN, 32, 32, 32},    {NN, 1, 256, 256},
    {NT, 1, 256, 256},   {NT, 768, 384, 128}, {NT, 768, 512, 128}, {NN, 768, 128, 512},
    {TN, 512, 128, 768},
};
static const task large[] = {
    {NN, 512, 512, 512},  {NN, 1024, 1024, 1024}, {NT, 1024, 1024, 1024}, {TN, 1024, 1024, 1024},
    {NT, 1024, 192, 64},  {NN, 768, 512, 128},    {NN, 2048, 2048, 2048}, {NN, 1000, 1000, 1000},
    {NN, 4096, 64, 4096}, {NT, 64, 4096, 1024},   {NN, 1, 1024, 1024},    {NT, 1, 1024, 1024},
    {NT, 4096, 8000, 64},
};

enum { PAIRS = 21 };

/* One thread is timed by its own processor time, so that other programs do not count. */
static double now(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int ascending(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(double x[PAIRS])
{
    qsort(x, PAIRS, sizeof *x, ascending);
    return x[PAIRS / 2];
}

static void ours(const fvi_product *p, int threads, fv_real *scratch)
{
    switch (fvi_isa_best()) {
#define X(isa)                                                                                     \
    case FVI_ISA_##isa:                                                                            \
        fvi_product_run_##isa(p, threads, scratch);                                                \
        break;
        FVI_EACH_ISA(X)
#undef X
    case FVI_ISA_COUNT:
        break;
    }
}

static size_t scratch_size(const fvi_product *p, int threads)
{
    switch (fvi_isa_best()) {
#define X(isa)                                                                                     \
    case FVI_ISA_##isa:                                                                            \
        return fvi_product_scratch_##isa(p, threads);
        FVI_EACH_ISA(X)
#undef X
    case FVI_ISA_COUNT:
        break;
    }
    return 0;
}

/* Row-major C = A B is the column-major transpose: C' = B' A'. */
static void theirs(sgemm *f, const task *t, const fvi_product *p)
{
    const int m = (int)p->m, n = (int)p->n, k = (int)p->k;
    const int lda = t->form == TN ? m : k, ldb = t->form == NT ? k : n;
    const float one = 1, beta = p->add ? 1 : 0;
    f(t->form == NT ? "T" : "N", t->form == TN ? "T" : "N", &n, &m, &k, &one, p->b, &ldb, p->a,
      &lda, &beta, p->c, &n);
}

/* Seconds a product takes, measured over count of them. */
static double seconds(sgemm *f, const task *t, const fvi_product *p, int threads, fv_real *scratch,
                      size_t count)
{
    const double start = now(threads);
    for (size_t i = 0; i < count; i++)
        if (f != NULL)
            theirs(f, t, p);
        else
            ours(p, threads, scratch);
    return (now(threads) - start) / (double)count;
}

static bool run(const task *t, int threads, sgemm *yardstick)
{
    const size_t m = t->m, n = t->n, k = t->k;
    fvi_product p = {.m = m, .n = n, .k = k, .c_row = n, .add = t->form == TN};
    p.a_row = t->form == TN ? 1 : k;
    p.a_col = t->form == TN ? m : 1;
    p.b_row = t->form == NT ? 1 : n;
    p.b_col = t->form == NT ? k : 1;
    fvi_arena arena = {0};
    fv_real *a = fvi_arena_take(&arena, m * k, sizeof *a);
    fv_real *b = fvi_arena_take(&arena, k * n, sizeof *b);
    p.c = fvi_arena_take(&arena, m * n, sizeof *p.c);
    fv_real *scratch = fvi_arena_take(&arena, scratch_size(&p, threads), sizeof *scratch);
    if (a == NULL || b == NULL || p.c == NULL || scratch == NULL) {
        fvi_arena_free(&arena);
        return false;
    }
    const fv_rng rng = fv_rng_make(1, 0, "bench");
    for (size_t i = 0; i < m * k; i++)
        a[i] = (fv_real)(fv_rng_uniform(rng, i) - 0.5);
    for (size_t i = 0; i < k * n; i++)
        b[i] = (fv_real)(fv_rng_uniform(rng, m * k + i) - 0.5);
    memset(p.c, 0, m * n * sizeof *p.c);
    p.a = a;
    p.b = b;

    const double operations = 2 * (double)m * (double)n * (double)k;
    const size_t count = (size_t)(1e8 * threads / operations) + 1;
    double mine[PAIRS], other[PAIRS], ratio[PAIRS];
    seconds(NULL, t, &p, threads, scratch, count);
    if (yardstick != NULL)
        seconds(yardstick, t, &p, threads, scratch, count);
    for (int i = 0; i < PAIRS; i++) {
        mine[i] = seconds(NULL, t, &p, threads, scratch, count);
        other[i] = yardstick ? seconds(yardstick, t, &p, threads, scratch, count) : mine[i];
        ratio[i] = other[i] / mine[i];
    }
    printf("%s %4zu %4zu %4zu  %8.2f us  %6.1f GFLOP/s", form_name[t->form], m, n, k,
           1e6 * median(mine), 1e-9 * operations / median(mine));
    if (yardstick != NULL)
        printf("  yardstick %6.1f  ratio %.2f", 1e-9 * operations / median(other), median(ratio));
    printf("\n");
    fvi_arena_free(&arena);
    return true;
}

int main(int count, char **word)
{
    int threads = 1;
    bool big = false, good = true;
    sgemm *yardstick = NULL;
    for (int i = 1; i < count; i++) {
        if (strcmp(word[i], "--large") == 0) {
            big = true;
        } else if (strcmp(word[i], "--threads") == 0 && i + 1 < count) {
            threads = atoi(word[++i]);
        } else if (strcmp(word[i], "--yardstick") == 0 && i + 1 < count) {
            void *library = dlopen(word[++i], RTLD_NOW | RTLD_GLOBAL);
            if (library != NULL)
                *(void **)&yardstick = dlsym(library, "sgemm_");
            if (yardstick == NULL) {
                fprintf(stderr, "product: %s: no sgemm_: %s\n", word[i], dlerror());
                return FV_FAILED;
            }
        } else {
            fprintf(stderr, "usage: product [--threads N] [--yardstick LIBRARY] [--large]\n");
            return FV_USAGE;
        }
    }
    threads = threads < 1 ? 1 : threads;
    printf("product: %s, %d thread%s; m n k\n", fvi_isa_name(fvi_isa_best()), threads,
           threads == 1 ? "" : "s");
    for (size_t i = 0; !big && i < sizeof small / sizeof *small; i++)
        good = run(&small[i], threads, yardstick) && good;
    for (size_t i = 0; big && i < sizeof large / sizeof *large; i++)
        good = run(&large[i], threads, yardstick) && good;
    return good ? FV_OK : FV_FAILED;
}
