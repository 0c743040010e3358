/* Products against numbers worked out by hand, at every rank, with empty and repeated inputs. */
#include "tests/expect.h"

Test(op_products, affine)
{
    fv_tape *t = begin(1);
    fv_var *x = fv_input(t, FV_SHAPE(1, 2, 3), up), *w = fv_input(t, FV_SHAPE(2, 3), up + 1);
    fv_var *b = fv_input(t, FV_SHAPE(2), up), *y = fv_affine(t, x, w, b);
    expect(t, y, FV_SHAPE(1, 2, 2), (const double[]){21, 40, 48, 94});
    expect_grad(t, y, x, (const double[]){7, 9, 11, 7, 9, 11});
    expect_grad(t, y, w, (const double[]){5, 7, 9, 5, 7, 9});
    expect_grad(t, y, b, (const double[]){2, 2});
    expect(t, fv_affine(t, fv_input(t, FV_SHAPE(3), up), w, NULL), FV_SHAPE(2),
           (const double[]){20, 38});
    static const fv_real mixed[] = {1, -1, 1, -1};
    fv_var *z = fv_affine_relu(t, fv_input(t, FV_SHAPE(2, 2), up),
                               fv_input(t, FV_SHAPE(2, 2), mixed), fv_input(t, FV_SHAPE(2), up));
    expect(t, z, FV_SHAPE(2, 2), (const double[]){0, 1, 0, 1});
    fv_tape_free(t);
}

Test(op_products, affine_without_inputs)
{
    fv_tape *t = begin(2);
    fv_var *b = fv_input(t, FV_SHAPE(2), up);
    fv_var *y = fv_affine(t, fv_input(t, FV_SHAPE(3, 0), up), fv_input(t, FV_SHAPE(2, 0), up), b);
    expect(t, y, FV_SHAPE(3, 2), (const double[]){1, 2, 1, 2, 1, 2});
    expect_grad(t, y, b, (const double[]){3, 3});
    fv_var *none =
        fv_affine(t, fv_input(t, FV_SHAPE(0, 2), up), fv_input(t, FV_SHAPE(2, 2), up), b);
    expect(t, none, FV_SHAPE(0, 2), NULL);
    expect_grad(t, none, b, (const double[]){0, 0});
    fv_tape_free(t);
}

Test(op_products, matmul)
{
    fv_tape *t = begin(1);
    fv_var *a = fv_input(t, FV_SHAPE(2, 3), up), *b = fv_input(t, FV_SHAPE(3, 2), up);
    const double ab[] = {22, 28, 49, 64};
    expect(t, fv_matmul(t, a, b, NULL), FV_SHAPE(2, 2), ab);
    fv_matmul_opts opts = {.transpose_a = true, .transpose_b = true};
    expect(t, fv_matmul(t, a, b, &opts), FV_SHAPE(3, 3),
           (const double[]){9, 19, 29, 12, 26, 40, 15, 33, 51});
    opts = (fv_matmul_opts){.transpose_b = true};
    fv_var *y = fv_matmul(t, a, a, &opts); /* the same input twice */
    expect(t, y, FV_SHAPE(2, 2), (const double[]){14, 32, 32, 77});
    expect_grad(t, y, a, (const double[]){10, 14, 18, 10, 14, 18});
    opts = (fv_matmul_opts){.transpose_a = true};
    expect(t, fv_matmul(t, b, b, &opts), FV_SHAPE(2, 2), (const double[]){35, 44, 44, 56});
    fv_tape_free(t);
}

Test(op_products, matmul_of_vectors)
{
    fv_tape *t = begin(1);
    fv_var *v = fv_input(t, FV_SHAPE(2), up), *m = fv_input(t, FV_SHAPE(2, 2), up);
    fv_var *batch = fv_input(t, FV_SHAPE(2, 2, 2), up);
    expect(t, fv_matmul(t, v, v, NULL), FV_SCALAR, (const double[]){5});
    expect(t, fv_matmul(t, v, m, NULL), FV_SHAPE(2), (const double[]){7, 10});
    expect(t, fv_matmul(t, m, v, NULL), FV_SHAPE(2), (const double[]){5, 11});
    expect(t, fv_matmul(t, v, batch, NULL), FV_SHAPE(2, 2), (const double[]){7, 10, 19, 22});
    fv_var *y = fv_matmul(t, batch, v, NULL);
    expect(t, y, FV_SHAPE(2, 2), (const double[]){5, 11, 17, 23});
    expect_grad(t, y, v, (const double[]){16, 20});
    fv_tape_free(t);
}

/* Rank 6, an axis of 1 on either side; the gradient of what repeats is summed. */
Test(op_products, matmul_broadcast)
{
    fv_tape *t = begin(2);
    fv_var *a = fv_input(t, FV_SHAPE(1, 2, 1, 1, 1, 2), up);
    fv_var *b = fv_input(t, FV_SHAPE(2, 1, 1, 1, 2, 1), up);
    fv_var *y = fv_matmul(t, a, b, NULL);
    expect(t, y, FV_SHAPE(2, 2, 1, 1, 1, 1), (const double[]){5, 11, 11, 25});
    expect_grad(t, y, a, (const double[]){4, 6, 4, 6});
    expect_grad(t, y, b, (const double[]){4, 6, 4, 6});
    fv_tape_free(t);
}

Test(op_products, nothing_to_sum)
{
    fv_tape *t = begin(1);
    fv_var *a = fv_input(t, FV_SHAPE(2, 0), up), *b = fv_input(t, FV_SHAPE(0, 2), up);
    const double zeros[4] = {0};
    fv_var *y = fv_matmul(t, a, b, NULL);
    expect(t, y, FV_SHAPE(2, 2), zeros);
    expect_grad(t, y, a, zeros);
    expect(t, fv_matmul(t, b, a, NULL), FV_SHAPE(0, 0), NULL);
    expect(t, fv_einsum(t, "ij,jk->k", a, b), FV_SHAPE(2), zeros);
    expect(t, fv_einsum(t, "ij->", b, NULL), FV_SCALAR, zeros);
    expect(t, fv_dot(t, a, a), FV_SHAPE(2), zeros);
    expect(t, fv_outer(t, a, a), FV_SHAPE(2, 0, 0), NULL);
    fv_var *w = fv_input(t, FV_SHAPE(1, 0, 2), up), *bias = fv_input(t, FV_SHAPE(1), up + 6);
    expect(t, fv_bilinear(t, a, fv_input(t, FV_SHAPE(2, 2), up), w, bias), FV_SHAPE(2, 1),
           (const double[]){7, 7});
    fv_tape_free(t);
}

/* a row, b row and W of both outputs: y = a W b' + bias */
Test(op_products, bilinear)
{
    fv_tape *t = begin(1);
    fv_var *a = fv_input(t, FV_SHAPE(1, 2), up), *b = fv_input(t, FV_SHAPE(1, 3), up);
    fv_var *w = fv_input(t, FV_SHAPE(2, 2, 3), up), *bias = fv_input(t, FV_SHAPE(2), up);
    fv_var *y = fv_bilinear(t, a, b, w, bias);
    expect(t, y, FV_SHAPE(1, 2), (const double[]){1 + 14 + 2 * 32, 2 + 50 + 2 * 68});
    expect_grad(t, y, a, (const double[]){14 + 50, 32 + 68});
    expect_grad(t, y, b, (const double[]){36, 42, 48});
    expect_grad(t, y, w, (const double[]){1, 2, 3, 2, 4, 6, 1, 2, 3, 2, 4, 6});
    expect_grad(t, y, bias, (const double[]){1, 1});
    fv_tape_free(t);
}

Test(op_products, outer_and_dot)
{
    fv_tape *t = begin(1);
    fv_var *a = fv_input(t, FV_SHAPE(2), up), *b = fv_input(t, FV_SHAPE(2, 3), up);
    fv_var *y = fv_outer(t, a, b);
    expect(t, y, FV_SHAPE(2, 2, 3), (const double[]){1, 2, 3, 2, 4, 6, 4, 5, 6, 8, 10, 12});
    expect_grad(t, y, a, (const double[]){21, 21});
    expect_grad(t, y, b, (const double[]){3, 3, 3, 3, 3, 3});
    fv_var *squares = fv_dot(t, b, b);
    expect(t, squares, FV_SHAPE(2), (const double[]){14, 77});
    expect_grad(t, squares, b, (const double[]){2, 4, 6, 8, 10, 12});
    fv_var *c = fv_input(t, FV_SHAPE(3), up);
    expect(t, fv_dot(t, b, c), FV_SHAPE(2), (const double[]){14, 32});
    expect(t, fv_dot(t, c, c), FV_SCALAR, (const double[]){14});
    fv_tape_free(t);
}

Test(op_products, einsum)
{
    fv_tape *t = begin(1);
    fv_var *s = fv_input(t, FV_SCALAR, up + 2), *m = fv_input(t, FV_SHAPE(2, 2), up);
    fv_var *v = fv_input(t, FV_SHAPE(2), up), *w = fv_input(t, FV_SHAPE(2, 3), up);
    fv_var *b = fv_input(t, FV_SHAPE(2, 2, 2), up);
    expect(t, fv_einsum(t, "->", s, NULL), FV_SCALAR, (const double[]){3});
    expect(t, fv_einsum(t, ",ij", s, m), FV_SHAPE(2, 2), (const double[]){3, 6, 9, 12});
    expect(t, fv_einsum(t, "ba", w, NULL), FV_SHAPE(3, 2), (const double[]){1, 4, 2, 5, 3, 6});
    expect(t, fv_einsum(t, "ii", m, NULL), FV_SCALAR, (const double[]){5});
    expect(t, fv_einsum(t, " i i -> i ", m, NULL), FV_SHAPE(2), (const double[]){1, 4});
    expect(t, fv_einsum(t, "ij->j", w, NULL), FV_SHAPE(3), (const double[]){5, 7, 9});
    expect(t, fv_einsum(t, "ij->i", w, NULL), FV_SHAPE(2), (const double[]){6, 15});
    expect(t, fv_einsum(t, "ij,ij->ij", m, m), FV_SHAPE(2, 2), (const double[]){1, 4, 9, 16});
    expect(t, fv_einsum(t, "ij,jk", m, w), FV_SHAPE(2, 3), (const double[]){9, 12, 15, 19, 26, 33});
    expect(t, fv_einsum(t, "...j,j->...", b, v), FV_SHAPE(2, 2), (const double[]){5, 11, 17, 23});
    expect(t, fv_einsum(t, "...ij->...ji", b, NULL), FV_SHAPE(2, 2, 2),
           (const double[]){1, 3, 2, 4, 5, 7, 6, 8});
    expect(t, fv_einsum(t, "...i->i", w, NULL), FV_SHAPE(3), (const double[]){5, 7, 9});
    expect(t, fv_einsum(t, "bij,jk->kb", b, m), FV_SHAPE(2, 2), (const double[]){22, 54, 32, 80});
    fv_tape_free(t);
}

/* The diagonal's gradient goes to the diagonal; a letter that a alone has is summed, so da repeats. */
Test(op_products, einsum_gradients)
{
    fv_tape *t = begin(1);
    fv_var *m = fv_input(t, FV_SHAPE(2, 2), up), *v = fv_input(t, FV_SHAPE(2), up);
    fv_var *w = fv_input(t, FV_SHAPE(2, 3), up);
    expect_grad(t, fv_einsum(t, "ii,i->i", m, v), m, (const double[]){1, 0, 0, 2});
    fv_var *y = fv_einsum(t, "ik,i->i", w, v);
    expect(t, y, FV_SHAPE(2), (const double[]){6, 30});
    expect_grad(t, y, w, (const double[]){1, 1, 1, 2, 2, 2});
    expect_grad(t, y, v, (const double[]){6, 15});
    expect_grad(t, fv_einsum(t, "ij,jk", m, m), m, (const double[]){3 + 4, 7 + 4, 3 + 6, 7 + 6});
    fv_tape_free(t);
}

/* A row has the same bits alone and in a batch, with any threads, however its product is cut. */
Test(op_products, same_bits)
{
    enum { ROWS = 33, K = 420, N = 50, COUNT = ROWS * K + K * N };
    static fv_real x[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        x[i] = (fv_real)fv_rng_normal(fv_rng_make(3, 1, "x"), i);
    static const size_t columns[] = {N, 1};
    for (int c = 0; c < 2; c++)
        for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
            fv_tape *t = begin(threads);
            fv_var *b = fv_input(t, FV_SHAPE(K, columns[c]), x + ROWS * K);
            fv_var *all = fv_matmul(t, fv_input(t, FV_SHAPE(ROWS, K), x), b, NULL);
            fv_var *split = fv_einsum(t, "bij,jk->bik", fv_input(t, FV_SHAPE(11, 3, K), x), b);
            cr_expect_arr_eq(all->value.data, split->value.data, fvi_count(all) * sizeof *x);
            for (size_t r = 0; r < ROWS; r++) {
                fv_var *y = fv_matmul(t, fv_input(t, FV_SHAPE(1, K), x + r * K), b, NULL);
                cr_expect_arr_eq(y->value.data, all->value.data + r * columns[c],
                                 columns[c] * sizeof *x, "row %zu, %d threads", r, threads);
            }
            fv_tape_free(t);
        }
}
