/* Times attention as a user calls it, forward and backward, on one thread or more, and prints a JSON line. The
 * cases are those of docs/attention.md; bench/attention.py has PyTorch's side of them on the same numbers. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "autograd/op.h"

static const char usage[] =
    "usage: attention [--case causal|window|ragged|dropout|bias|graph|every|edges [--size N]]\n"
    "                 [--threads N] [--seconds X]     without a case: all, at their sizes\n"
    "  causal   4 samples of N = 1024 rows, 8 heads of 64; dropout: the same with dropout 0.1\n"
    "  window   N = 8192 rows, 128 to each side, 4 heads of 32\n"
    "  ragged   N = 32 samples of 8 to 512 rows, 8 heads of 64\n"
    "  bias     N = 2048 rows, 8 heads of 64, a bias for each pair, with its gradient\n"
    "  graph    N = 10000 nodes, 10 edges each, 8 heads of 8, as a graph attention network (GAT)\n"
    "  every    N rows, causal, 8 heads of 64 for 2 key heads, with every option that needs no "
    "numbers of a pair\n"
    "  edges    N nodes, 10 edges each, 4 heads of 16, dot product, a bias an edge\n";

enum { EDGES = 10, MOST_ROUNDS = 1000 };

typedef struct {
    const char *name;
    size_t size, heads, kv_heads, width;
} kind;
static const kind kinds[] = {
    {"causal", 1024, 8, 8, 64},  {"window", 8192, 4, 4, 32}, {"ragged", 32, 8, 8, 64},
    {"dropout", 1024, 8, 8, 64}, {"bias", 2048, 8, 8, 64},   {"graph", 10000, 8, 8, 8},
    {"every", 4096, 8, 2, 64},   {"edges", 10000, 4, 4, 16},
};

typedef struct {
    const kind *kind;
    size_t rows;
    size_t *offsets; /* of the samples */
    fv_segments samples;
    fv_graph graph;
    fv_mask mask;
    fv_real *q, *k, *v, *dy, *bias, *left, *right, *ones, *relative, *slopes;
    size_t pairs;
} problem;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void *room(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    if (p == NULL) {
        fputs("attention: no memory\n", stderr);
        exit(1);
    }
    return p;
}

/* Numbers between -1 and 1 that both sides can make. */
static fv_real *numbers(size_t count, size_t step)
{
    fv_real *x = room(count, sizeof *x);
    for (size_t i = 0; i < count; i++)
        x[i] = (fv_real)(2.0 * (double)(i * step % 10007) / 10007 - 1);
    return x;
}

static bool is(const problem *p, const char *name)
{
    return strcmp(p->kind->name, name) == 0;
}

static int ascending_keys(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void make_graph(problem *p)
{
    const size_t n = p->rows;
    size_t *at = room(n + 1, sizeof *at);
    int32_t *keys = room(n * EDGES, sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        int32_t *row = keys + at[i];
        for (size_t e = 0; e < EDGES; e++)
            row[e] = (int32_t)((i * 7919 + e * 4999 + i % 97 * e * e) % n);
        qsort(row, EDGES, sizeof *row, ascending_keys);
        size_t kept = 1;
        for (size_t e = 1; e < EDGES; e++)
            if (row[e] != row[kept - 1])
                row[kept++] = row[e];
        at[i + 1] = at[i] + kept;
    }
    p->graph = (fv_graph){n, at, keys};
    p->mask.edges = &p->graph;
    p->pairs = at[n];
}

static void make(problem *p, size_t size)
{
    const size_t samples = is(p, "causal") || is(p, "dropout") ? 4 : is(p, "ragged") ? size : 1;
    const size_t heads = p->kind->heads, width = p->kind->width, kv = p->kind->kv_heads;
    p->offsets = room(samples + 1, sizeof *p->offsets);
    for (size_t s = 0; s < samples; s++)
        p->offsets[s + 1] = p->offsets[s] + (is(p, "ragged") ? 8 + s * 211 % 505 : size);
    p->samples = (fv_segments){samples, p->offsets};
    p->rows = p->offsets[samples];
    p->mask = (fv_mask){.queries = &p->samples};
    p->mask.causal = is(p, "causal") || is(p, "dropout") || is(p, "every");
    if (is(p, "window"))
        p->mask.left = p->mask.right = 128;
    if (is(p, "graph") || is(p, "edges"))
        make_graph(p);
    if (is(p, "bias"))
        p->pairs = p->rows * p->rows;
    p->q = numbers(p->rows * heads * width, 7919);
    p->k = numbers(p->rows * kv * width, 5039);
    p->v = numbers(p->rows * kv * width, 3571);
    p->dy = numbers(p->rows * heads * width, 6151);
    p->bias = numbers(p->pairs * (is(p, "bias") ? heads : 1), 4421);
    p->left = numbers(heads * width, 2003);
    p->right = numbers(heads * width, 1009);
    p->relative = numbers(heads * 129, 1201);
    p->slopes = numbers(heads, 1301);
    p->ones = room(heads, sizeof *p->ones);
    for (size_t h = 0; h < heads; h++)
        p->ones[h] = 1;
}

/* Ends a step: a number whose gradient for y is dy. */
static bool end_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    y->value.data[0] = 0;
    return true;
}
static void end_backward(fv_tape *t, fv_var *y)
{
    const fv_real *const *dy = y->options;
    fv_real *to = fv_grad(t, y->in[0]);
    const size_t count = fv_shape_count(y->in[0]->value.shape);
    for (size_t i = 0; to != NULL && i < count; i++)
        to[i] += (*dy)[i];
}
static const fv_op end = {"end", "", "", end_forward, end_backward, 0, NULL};

/* GAT: what a node says about itself and about others, each a number a head. */
static fv_var *graph_attention(fv_tape *t, const problem *p, fv_var *nodes)
{
    const size_t h = p->kind->heads, d = p->kind->width;
    const fv_axes last = {.count = 1, .axis = {-1}};
    fv_var *x = fv_reshape(t, nodes, FV_SHAPE(p->rows, h, d));
    fv_var *left = fv_input(t, FV_SHAPE(h, d), p->left),
           *right = fv_input(t, FV_SHAPE(h, d), p->right);
    const fv_attention_opts opts = {.heads = h,
                                    .score = FV_SCORE_ADDITIVE,
                                    .inner = FV_INNER_LEAKY_RELU,
                                    .weight = fv_constant(t, FV_SHAPE(h, 1), p->ones)};
    fv_var *of_source = fv_sum(t, fv_mul(t, x, left), &last);
    fv_var *of_target = fv_sum(t, fv_mul(t, x, right), &last);
    return fv_attention(t, of_target, of_source, nodes, &p->mask, &opts);
}

static fv_var *attention(fv_tape *t, const problem *p, fv_var *in[3])
{
    const size_t h = p->kind->heads, d = p->kind->width, kv = p->kind->kv_heads;
    fv_attention_opts opts = {.heads = h, .kv_heads = kv};
    in[0] = fv_input(t, FV_SHAPE(p->rows, h * d), p->q);
    if (is(p, "graph"))
        return graph_attention(t, p, in[0]);
    in[1] = fv_input(t, FV_SHAPE(p->rows, kv * d), p->k);
    in[2] = fv_input(t, FV_SHAPE(p->rows, kv * d), p->v);
    if (is(p, "dropout") || is(p, "every"))
        opts.dropout = 0.1;
    if (is(p, "bias"))
        opts.bias = fv_input(t, FV_SHAPE(h, p->pairs), p->bias);
    if (is(p, "edges"))
        opts.bias = fv_input(t, FV_SHAPE(p->pairs, 1), p->bias);
    if (is(p, "every")) {
        opts.softcap = 20;
        opts.relative = fv_input(t, FV_SHAPE(h, 129), p->relative);
        opts.slopes = fv_input(t, FV_SHAPE(h), p->slopes);
    }
    return fv_attention(t, in[0], in[1], in[2], &p->mask, &opts);
}

/* One step; false (and a message) after an error. seconds: forward, backward, in milliseconds. */
static bool step(fv_tape *t, const problem *p, double ms[2], fv_var **y, fv_var *in[3])
{
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    const double start = now();
    *y = attention(t, p, in);
    const double middle = now();
    fv_var *loss = *y ? fv_record(t, &end, FV_SCALAR, &p->dy, sizeof p->dy, 1, y) : NULL;
    const bool ok = fv_backward(t, loss);
    ms[0] = middle - start;
    ms[1] = now() - middle;
    if (!ok)
        fprintf(stderr, "attention: %s\n", fv_tape_error(t)->text);
    return ok;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The length of a list of numbers, for comparing both sides. */
static double length(const fv_real *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; x != NULL && i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static bool run(const problem *p, int threads, double seconds)
{
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
    double ms[MOST_ROUNDS], forward[MOST_ROUNDS], each[2], loss = 0, begun = 0;
    size_t rounds = 0;
    fv_var *y, *in[3] = {NULL};
    bool ok = step(t, p, each, &y, in); /* the first one makes the room */
    begun = now();
    while (ok && rounds < MOST_ROUNDS && (rounds < 3 || now() - begun < 1e3 * seconds)) {
        ok = step(t, p, each, &y, in);
        forward[rounds] = each[0];
        ms[rounds++] = each[0] + each[1];
    }
    if (ok) {
        struct rusage used;
        size_t peak;
        const size_t count = fv_shape_count(y->value.shape);
        getrusage(RUSAGE_SELF, &used);
        fv_tape_bytes(t, &peak);
        for (size_t i = 0; i < count; i++)
            loss += (double)y->value.data[i] * (double)p->dy[i];
        qsort(ms, rounds, sizeof *ms, ascending);
        qsort(forward, rounds, sizeof *forward, ascending);
        printf("{\"name\": \"%s\", \"rows\": %zu, \"pairs\": %zu, \"threads\": %d, \"ms_median\": "
               "%.3f, "
               "\"ms_min\": %.3f, \"forward_ms\": %.3f, \"peak_rss_mb\": %.1f, \"tape_mb\": %.1f, "
               "\"loss\": %.9g, \"y\": %.9g, \"dq\": %.9g}\n",
               p->kind->name, p->rows, fv_mask_pairs(&p->mask, p->rows, p->rows), threads,
               ms[rounds / 2], ms[0], forward[rounds / 2], (double)used.ru_maxrss / 1024,
               (double)peak / 0x1p20, loss, length(y->value.data, count),
               length(in[0]->grad, fv_shape_count(in[0]->value.shape)));
    }
    fv_tape_free(t);
    return ok;
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"case", required_argument, NULL, 'c'},
                                          {"size", required_argument, NULL, 'n'},
                                          {"threads", required_argument, NULL, 't'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {NULL, 0, NULL, 0}};
    const kind *only = NULL;
    bool unknown = false;
    size_t size = 0;
    int threads = 1, c;
    double seconds = 2;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (c == 'c') {
            only = NULL;
            for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
                only = strcmp(kinds[i].name, optarg) == 0 ? &kinds[i] : only;
            unknown = only == NULL;
        } else if (c == 'n')
            size = strtoul(optarg, NULL, 10);
        else if (c == 't')
            threads = atoi(optarg);
        else if (c == 's')
            seconds = atof(optarg);
        else
            break;
    }
    if (c != -1 || optind < argc || threads < 1 || unknown) {
        fputs(usage, stderr);
        return 2;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        problem p = {.kind = &kinds[i]};
        if (only != NULL && only != p.kind)
            continue;
        make(&p, only != NULL && size > 0 ? size : p.kind->size);
        if (!run(&p, threads, seconds))
            return 1;
    }
    return 0;
}
