/* Every relation on up to four rows, for each normaliser, as dense bytes and as edges: values against the
 * definition, both ways of walking against each other, NaN in rows that do not matter. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

enum { MOST = 4, WIDTH = 2, NORMALIZERS = FV_NORMALIZE_NONE + 1 };

#if defined(FV_F64) || defined(FV_COMPLEX)
static const double tolerance = 1e-12;
#else
static const double tolerance = 1e-5;
#endif

static double real(fv_real x)
{
    return (double)fv_re(x);
}

/* Weights of the scores that are not -inf. */
static void define(fv_normalizer how, size_t n, double *s)
{
    double sum = how == FV_NORMALIZE_SOFTMAX_PLUS_ONE, seen = 0, tau = -INFINITY;
    for (size_t j = 0; j < n; j++) {
        sum += how == FV_NORMALIZE_RELU ? fmax(s[j], 0) : exp(s[j]);
        seen += s[j] > -INFINITY;
    }
    /* The support is the numbers above some of them: its threshold is the largest that any such set gives. */
    for (size_t a = 0; a < n; a++) {
        double above = 0, count = 0;
        for (size_t j = 0; j < n; j++)
            if (s[j] > -INFINITY && s[j] >= s[a]) {
                above += s[j];
                count++;
            }
        if (s[a] > -INFINITY)
            tau = fmax(tau, (above - 1) / count);
    }
    for (size_t j = 0; j < n; j++) {
        const double x = s[j];
        s[j] = x == -INFINITY                  ? 0
               : how == FV_NORMALIZE_SPARSEMAX ? fmax(x - tau, 0)
               : how == FV_NORMALIZE_RELU      ? (x > 0 ? x / sum : 0)
               : how == FV_NORMALIZE_SIGMOID   ? 1 / (1 + exp(-x))
               : how == FV_NORMALIZE_MEAN      ? x / seen
               : how == FV_NORMALIZE_NONE      ? x
                                               : exp(x) / sum;
    }
}

typedef struct {
    fv_real q[MOST * WIDTH], k[MOST * WIDTH], v[MOST * WIDTH];
} numbers;

/* Numbers 0 .. 3 n WIDTH - 1 are the gradients of q, k and v, the others y. */
static void run(fv_tape *t, const fv_mask *mask, fv_normalizer how, size_t n, const numbers *x,
                fv_real to[4 * MOST * WIDTH])
{
    static const fv_real weigh[MOST * WIDTH] = {1, -2, 3, 1, -1, 2, -3, 2};
    const fv_shape shape = FV_SHAPE(n, WIDTH);
    fv_tape_begin(t, FV_GRAD, 1, 1);
    fv_var *in[] = {fv_input(t, shape, x->q), fv_input(t, shape, x->k), fv_input(t, shape, x->v)};
    fv_var *y = fv_attention(t, in[0], in[1], in[2], mask,
                             &(fv_attention_opts){.normalizer = how, .scale = 1});
    cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, fv_constant(t, shape, weigh)), NULL)));
    for (int i = 0; i < 3; i++)
        memcpy(to + (size_t)i * n * WIDTH, in[i]->grad, n * WIDTH * sizeof *to);
    memcpy(to + 3 * n * WIDTH, y->value.data, n * WIDTH * sizeof *to);
}

static void check(fv_tape *t, fv_normalizer how, size_t n, uint64_t bits)
{
    n = n < MOST ? n : MOST; /* as it is: so the compiler knows */
    unsigned char visible[MOST * MOST];
    size_t offsets[MOST + 1] = {0};
    int32_t keys[MOST * MOST];
    numbers x;
    bool seen[MOST] = {false};
    for (size_t i = 0; i < n; i++) {
        offsets[i + 1] = offsets[i];
        for (size_t j = 0; j < n; j++) {
            visible[i * n + j] = bits >> (i * n + j) & 1;
            if (visible[i * n + j]) {
                keys[offsets[i + 1]++] = (int32_t)j;
                seen[j] = true;
            }
        }
    }
    for (size_t c = 0; c < n * WIDTH; c++) {
        const size_t row = c / WIDTH;
        x.q[c] = (fv_real)(offsets[row] < offsets[row + 1] ? 0.3 + 0.1 * (double)(c % 3) : NAN);
        x.k[c] = (fv_real)(seen[row] ? 0.7 - 0.23 * (double)c : NAN);
        x.v[c] = (fv_real)(seen[row] ? 0.5 - 0.4 * (double)(c % 5) : NAN);
    }
    const fv_graph graph = {n, offsets, keys};
    fv_real by_bytes[4 * MOST * WIDTH], by_edges[4 * MOST * WIDTH];
    run(t, &(fv_mask){.visible = visible}, how, n, &x, by_bytes);
    run(t, &(fv_mask){.edges = &graph}, how, n, &x, by_edges);
    for (size_t c = 0; c < 4 * n * WIDTH; c++)
        cr_assert(fabs(real(by_bytes[c]) - real(by_edges[c])) <=
                      tolerance * 10 * (1 + fabs(real(by_edges[c]))),
                  "%zu rows, relation %llx, normaliser %d: number %zu is %g by bytes, %g by edges",
                  n, (unsigned long long)bits, (int)how, c, real(by_bytes[c]), real(by_edges[c]));
    for (size_t i = 0; i < n; i++) {
        double s[MOST];
        for (size_t j = 0; j < n; j++)
            s[j] = visible[i * n + j] ? real(x.q[i * WIDTH]) * real(x.k[j * WIDTH]) +
                                            real(x.q[i * WIDTH + 1]) * real(x.k[j * WIDTH + 1])
                                      : -INFINITY;
        define(how, n, s);
        for (size_t c = 0; c < WIDTH; c++) {
            double y = 0;
            for (size_t j = 0; j < n; j++)
                y += s[j] == 0 ? 0 : s[j] * real(x.v[j * WIDTH + c]);
            const double is = real(by_edges[(3 * n + i) * WIDTH + c]);
            cr_assert(fabs(is - y) <= tolerance * (1 + fabs(y)) &&
                          (offsets[i] < offsets[i + 1] ||
                           (is == 0 && real(by_bytes[(3 * n + i) * WIDTH + c]) == 0 &&
                            real(by_bytes[i * WIDTH + c]) == 0)),
                      "%zu rows, relation %llx, normaliser %d: row %zu is %g, not %g", n,
                      (unsigned long long)bits, (int)how, i, is, y);
        }
    }
}

ParameterizedTestParameters(attention_relations, all)
{
    static size_t ids[NORMALIZERS];
    for (size_t i = 0; i < NORMALIZERS; i++)
        ids[i] = i;
    return cr_make_param_array(size_t, ids, NORMALIZERS);
}

ParameterizedTest(size_t *how, attention_relations, all)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 1; n <= MOST; n++)
        for (uint64_t bits = 0; bits < (uint64_t)1 << (n * n); bits++)
            check(t, (fv_normalizer)*how, n, bits);
    fv_tape_free(t);
}
