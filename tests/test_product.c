/* Matrix products: against plain sums, the same bits however they are cut, and only the asked-for memory. */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"

typedef enum { AS_IS, TRANSPOSED, SPREAD } layout;

/* A product with its own memory. What lies between the numbers of A, B and C holds GUARD. */
typedef struct {
    fvi_product p;
    fv_real *a, *b, *c, *bias;
    size_t c_size;
} task;

static const double GUARD = 1e30;

static fv_real *guarded(size_t count)
{
    fv_real *x = malloc((count + 1) * sizeof *x);
    cr_assert_not_null(x);
    for (size_t i = 0; i <= count; i++)
        x[i] = (fv_real)GUARD;
    return x;
}

/* A number in [-1, 1), with a tangent in the complex build. */
static fv_real number(uint64_t stream, size_t index)
{
    const fv_rng rng = fv_rng_make(7, stream, "product");
    const double x = 2 * fv_rng_uniform(rng, 2 * index) - 1;
#if defined(FV_COMPLEX)
    return CMPLX(x, 2 * fv_rng_uniform(rng, 2 * index + 1) - 1);
#else
    return (fv_real)x;
#endif
}

static void strides(layout how, size_t rows, size_t columns, size_t *row, size_t *column)
{
    *row = how == TRANSPOSED ? 1 : how == AS_IS ? columns : 2 * columns + 3;
    *column = how == TRANSPOSED ? rows : how == AS_IS ? 1 : 2;
}

static fv_real *matrix(uint64_t stream, size_t rows, size_t columns, size_t row, size_t column)
{
    fv_real *x = guarded(rows * row + columns * column);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            x[i * row + j * column] = number(stream, i * columns + j);
    return x;
}

static task make(size_t m, size_t n, size_t k, layout a, layout b)
{
    task t = {.p = {.m = m, .n = n, .k = k, .c_row = n + 3}, .c_size = m * (n + 3)};
    strides(a, m, k, &t.p.a_row, &t.p.a_col);
    strides(b, k, n, &t.p.b_row, &t.p.b_col);
    t.p.a = t.a = matrix(1, m, k, t.p.a_row, t.p.a_col);
    t.p.b = t.b = matrix(2, k, n, t.p.b_row, t.p.b_col);
    t.p.c = t.c = matrix(3, m, n, t.p.c_row, 1);
    t.bias = matrix(4, 1, n, n, 1);
    return t;
}

static void drop(task *t)
{
    free(t->a);
    free(t->b);
    free(t->c);
    free(t->bias);
}

static fv_real at_a(const task *t, size_t i, size_t x)
{
    return t->a[i * t->p.a_row + x * t->p.a_col];
}

static fv_real at_b(const task *t, size_t x, size_t j)
{
    return t->b[x * t->p.b_row + j * t->p.b_col];
}

static void run(const fvi_product *p, int threads, fvi_isa isa)
{
    switch (isa) {
#define X(name)                                                                                    \
    case FVI_ISA_##name: {                                                                         \
        const size_t size = fvi_product_scratch_##name(p, threads);                                \
        fv_real *scratch = guarded(size);                                                          \
        fvi_product_run_##name(p, threads, scratch);                                               \
        cr_expect(fv_re(scratch[size]) == fv_re((fv_real)GUARD), "wrote beyond its scratch");      \
        free(scratch);                                                                             \
        break;                                                                                     \
    }
        FVI_EACH_ISA(X)
#undef X
    case FVI_ISA_COUNT:
        break;
    }
}

static double size_of(fvi_wide x)
{
    return fabs(fv_re(x)) + fabs(fv_im(x));
}

/* Runs t and compares it with plain sums in double: each of k + 2 roundings errs by at most epsilon / 2
 * of the sum of sizes, here or there; a complex product counts four times. */
static void check(task *t, fvi_isa isa)
{
#if defined(FV_F64) || defined(FV_COMPLEX)
    const double epsilon = DBL_EPSILON, slack = 4;
#else
    const double epsilon = FLT_EPSILON, slack = 1;
#endif
    const fvi_product *p = &t->p;
    fv_real *before = malloc((t->c_size + 1) * sizeof *before);
    cr_assert_not_null(before);
    memcpy(before, t->c, (t->c_size + 1) * sizeof *before);
    run(p, 1, isa);
    size_t wrong = 0, touched = 0;
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->c_row; j++) {
            const size_t at = i * p->c_row + j;
            if (j >= p->n) {
                touched += memcmp(&t->c[at], &before[at], sizeof *before) != 0;
                continue;
            }
            fvi_wide sum = 0;
            double sizes = 0;
            for (size_t x = 0; x < p->k; x++) {
                sum += (fvi_wide)at_a(t, i, x) * at_b(t, x, j);
                sizes += size_of(at_a(t, i, x)) * size_of(at_b(t, x, j));
            }
            if (p->add)
                sum += before[at];
            if (p->bias != NULL)
                sum += p->bias[j];
            sizes += size_of(before[at]) + size_of(t->bias[j]);
            const double bound = slack * (double)(p->k + 2) * epsilon / 2 * sizes;
            if (p->activation == FVI_RELU && !(fv_re(sum) > bound)) {
                if (fv_re(sum) < -bound)
                    wrong += size_of(t->c[at]) != 0;
                continue;
            }
            wrong += !(size_of(t->c[at] - sum) <= bound);
        }
    cr_expect(wrong == 0 && touched == 0, "%s [%zu, %zu, %zu] add %d: %zu wrong, %zu outside",
              fvi_isa_name(isa), p->m, p->n, p->k, p->add, wrong, touched);
    free(before);
}

static const size_t edges[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 14, 15, 16, 17, 29, 31, 32, 33, 47, 65};
static const size_t deep[] = {0, 1, 2, 3, 5, 16, 63, 64, 67, 383, 384, 385, 768, 769, 1000};
enum { EDGES = sizeof edges / sizeof *edges, DEEP = sizeof deep / sizeof *deep };

static void check_all(size_t m, size_t n, size_t k, layout a, layout b)
{
    for (int isa = 0; isa <= (int)fvi_isa_best(); isa++)
        for (int end = 0; end < 5; end++) { /* plain, add, bias, relu, bias and relu */
            task t = make(m, n, k, a, b);
            t.p.add = end == 1;
            t.p.bias = end == 2 || end == 4 ? t.bias : NULL;
            t.p.activation = end >= 3 ? FVI_RELU : FVI_IDENTITY;
            check(&t, (fvi_isa)isa);
            drop(&t);
        }
}

Test(product, any_rows_and_columns)
{
    for (int i = 0; i < EDGES; i++)
        for (int j = 0; j < EDGES; j++)
            check_all(edges[i], edges[j], 5, AS_IS, (i + j) % 2 ? AS_IS : TRANSPOSED);
}

Test(product, any_layout_and_depth)
{
    const size_t shape[][2] = {{1, 1}, {5, 33}, {31, 17}, {15, 140}};
    for (int i = 0; i < DEEP; i++)
        for (int s = 0; s < 4; s++)
            for (int how = 0; how < 9; how++)
                if (deep[i] < 100 || how == (i + s) % 9)
                    check_all(shape[s][0], shape[s][1], deep[i], (layout)(how % 3),
                              (layout)(how / 3));
}

/* Rows that lie a multiple of the first cache apart are packed; both ways of A. */
Test(product, rows_that_clash)
{
    for (int how = AS_IS; how <= TRANSPOSED; how++) {
        task t = make(how == AS_IS ? 31 : 1024, 150, how == AS_IS ? 1024 : 31, (layout)how, AS_IS);
        for (int isa = 0; isa <= (int)fvi_isa_best(); isa++)
            check(&t, (fvi_isa)isa);
        drop(&t);
    }
}

/* Several column blocks: more of B than a block holds. */
Test(product, many_columns)
{
    check_all(3, 5000, 40, AS_IS, TRANSPOSED);
    check_all(31, 900, 400, AS_IS, AS_IS);
}

Test(product, nothing_to_do)
{
    for (int isa = 0; isa <= (int)fvi_isa_best(); isa++) {
        task t = make(0, 3, 4, AS_IS, AS_IS), u = make(3, 0, 4, AS_IS, AS_IS);
        run(&t.p, 2, (fvi_isa)isa);
        run(&u.p, 2, (fvi_isa)isa);
        drop(&t);
        drop(&u);
    }
}

static bool same(const task *x, const task *y)
{
    return memcmp(x->c, y->c, x->c_size * sizeof *x->c) == 0;
}

Test(product, same_bits_for_any_threads)
{
    const size_t shape[][3] = {{97, 131, 420}, {300, 40, 90}, {9, 700, 130}};
    for (int s = 0; s < 3; s++)
        for (int isa = 0; isa <= (int)fvi_isa_best(); isa++) {
            task one = make(shape[s][0], shape[s][1], shape[s][2], AS_IS, TRANSPOSED);
            run(&one.p, 1, (fvi_isa)isa);
            for (int threads = 2; threads <= 5; threads++) {
                task t = make(shape[s][0], shape[s][1], shape[s][2], AS_IS, TRANSPOSED);
                run(&t.p, threads, (fvi_isa)isa);
                cr_expect(same(&one, &t), "shape %d, %d threads", s, threads);
                drop(&t);
            }
            drop(&one);
        }
}

/* A number of C has the same bits in any batch, beside any columns, from any layout. */
Test(product, same_bits_for_any_neighbours)
{
    enum { M = 33, N = 70, K = 500 };
    for (int isa = 0; isa <= (int)fvi_isa_best(); isa++) {
        task t = make(M, N, K, AS_IS, AS_IS);
        run(&t.p, 1, (fvi_isa)isa);
        for (int how = 0; how < 9; how++) {
            task u = make(M, N, K, (layout)(how % 3), (layout)(how / 3));
            run(&u.p, 1, (fvi_isa)isa);
            cr_expect(same(&t, &u), "layouts %d", how);
            drop(&u);
        }
        fv_real alone[N];
        for (size_t i = 0; i < M; i++) {
            fvi_product row = t.p;
            row.m = 1;
            row.a += i * row.a_row;
            row.c = alone;
            run(&row, 1, (fvi_isa)isa);
            cr_expect(memcmp(alone, t.c + i * t.p.c_row, sizeof alone) == 0, "row %zu", i);
        }
        for (size_t few = 1; few <= 5;
             few++) { /* B transposed is turned, not packed, for few rows */
            task u = make(few, N, K, AS_IS, TRANSPOSED);
            run(&u.p, 1, (fvi_isa)isa);
            cr_expect(memcmp(u.c, t.c, few * (N + 3) * sizeof *u.c) == 0, "%zu rows", few);
            drop(&u);
        }
        for (size_t j = 0; j < N; j++) {
            fvi_product column = t.p;
            column.m = 2;
            column.n = 1;
            column.b += j * column.b_col;
            column.c = alone;
            column.c_row = 1;
            run(&column, 1, (fvi_isa)isa);
            cr_expect(memcmp(alone, t.c + j, sizeof *alone) == 0, "column %zu", j);
            cr_expect(memcmp(alone + 1, t.c + t.p.c_row + j, sizeof *alone) == 0, "column %zu", j);
        }
        drop(&t);
    }
}

#if defined(__x86_64__) && !defined(FV_COMPLEX)
Test(product, same_bits_on_avx2_and_avx512)
{
    if (fvi_isa_best() < FVI_ISA_avx512)
        cr_skip_test("this processor has no AVX-512");
    const size_t shape[][3] = {{1, 1, 1}, {61, 67, 129}, {29, 150, 1024}, {100, 17, 385}};
    for (int s = 0; s < 4; s++)
        for (int add = 0; add < 2; add++) {
            task t = make(shape[s][0], shape[s][1], shape[s][2], AS_IS, TRANSPOSED);
            task u = make(shape[s][0], shape[s][1], shape[s][2], AS_IS, TRANSPOSED);
            t.p.add = u.p.add = add;
            t.p.bias = u.p.bias = add ? NULL : t.bias;
            run(&t.p, 1, FVI_ISA_avx2);
            run(&u.p, 1, FVI_ISA_avx512);
            cr_expect(same(&t, &u), "shape %d", s);
            drop(&t);
            drop(&u);
        }
}
#endif

/* A NaN or an infinity reaches its own row or column, whole, and nothing else. */
Test(product, nan_stays_in_its_row_and_column)
{
    enum { M = 17, N = 37, K = 70 };
    const double bad[] = {NAN, INFINITY};
    for (int isa = 0; isa <= (int)fvi_isa_best(); isa++)
        for (int kind = 0; kind < 2; kind++)
            for (int how = 0; how < 4; how++) {
                task t = make(M, N, K, (layout)(how % 2), (layout)(how / 2));
                t.a[16 * t.p.a_row + 69 * t.p.a_col] = (fv_real)bad[kind];
                t.b[69 * t.p.b_row + 36 * t.p.b_col] = (fv_real)bad[kind];
                run(&t.p, 1, (fvi_isa)isa);
                size_t wrong = 0;
                for (size_t i = 0; i < M; i++)
                    for (size_t j = 0; j < N; j++)
                        wrong += isfinite(size_of(t.c[i * t.p.c_row + j])) == (i == 16 || j == 36);
                cr_expect_eq(wrong, 0, "isa %d, %f, layouts %d: %zu", isa, bad[kind], how, wrong);
                drop(&t);
            }
}
