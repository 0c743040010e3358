/* Elementwise ops: every way to broadcast against a loop over indices, long sums, the same bits for any
 * number of threads. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "autograd/internal.h"

static const double eps = sizeof(fv_real) == sizeof(float) ? 4e-7 : 1e-14;

/* The place in a tensor of shape `from` that number i of the shape it broadcasts to has. */
static size_t place(fv_shape from, fv_shape to, size_t i)
{
    size_t at = 0, step = 1;
    for (int axis = to.rank - 1, k = from.rank - 1; k >= 0; axis--, k--) {
        const size_t index = i % to.size[axis];
        i /= to.size[axis];
        at += from.size[k] == 1 ? 0 : index * step;
        step *= from.size[k];
    }
    return at;
}

enum { MOST = 1 << 16 };

/* a * b of these shapes against a loop over indices, values and both gradients. */
static void check_broadcast(fv_shape of_a, fv_shape of_b, fv_shape of_y)
{
    static fv_real a[MOST], b[MOST], w[MOST];
    static double da[MOST], db[MOST];
    char text[2][160];
    const size_t count = fv_shape_count(of_y);
    for (size_t i = 0; i < MOST; i++) { /* small whole numbers: sums are exact in any order */
        a[i] = (fv_real)((int)(i * 7 % 11) - 5);
        b[i] = (fv_real)((int)(i * 5 % 13) - 6);
        w[i] = (fv_real)((int)(i * 3 % 5) - 2);
        da[i] = db[i] = 0;
    }
    fv_shape_text(of_a, text[0]);
    fv_shape_text(of_b, text[1]);
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = 2});
    for (int swapped = 0; swapped < 2; swapped++) {
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = fv_input(t, of_a, a), *z = fv_input(t, of_b, b);
        fv_var *y = swapped ? fv_mul(t, z, x) : fv_mul(t, x, z);
        cr_assert(y != NULL && fv_shape_equal(y->value.shape, of_y), "%s %s", text[0], text[1]);
        cr_assert(fv_backward(t, fv_sum(t, fv_mul(t, y, fv_constant(t, of_y, w)), NULL)));
        memset(da, 0, sizeof da);
        memset(db, 0, sizeof db);
        for (size_t i = 0; i < count; i++) {
            const size_t k = place(of_a, of_y, i), l = place(of_b, of_y, i);
            cr_assert_eq(fv_re(y->value.data[i]), fv_re(a[k]) * fv_re(b[l]), "%s %s", text[0],
                         text[1]);
            da[k] += fv_re(w[i]) * fv_re(b[l]);
            db[l] += fv_re(w[i]) * fv_re(a[k]);
        }
        for (size_t i = 0; i < fv_shape_count(of_a); i++)
            cr_assert_eq(fv_re(x->grad[i]), da[i], "da[%zu] of %s %s", i, text[0], text[1]);
        for (size_t i = 0; i < fv_shape_count(of_b); i++)
            cr_assert_eq(fv_re(z->grad[i]), db[i], "db[%zu] of %s %s", i, text[0], text[1]);
    }
    fv_tape_free(t);
}

Test(broadcast, all_shapes)
{
    for (int which = 0; which < 5 * 5 * 5; which++) { /* all of three axes */
        fv_shape a = {.rank = 3}, b = {.rank = 3}, y = {.rank = 3};
        for (int axis = 0, rest = which; axis < 3; axis++, rest /= 5) {
            const int way = rest % 5; /* both 1, a repeats, b repeats, both 2, both 3 */
            a.size[axis] = way == 1 || way == 0 ? 1 : way == 3 ? 2 : 3;
            b.size[axis] = way == 2 || way == 0 ? 1 : way == 3 ? 2 : 3;
            y.size[axis] = a.size[axis] > b.size[axis] ? a.size[axis] : b.size[axis];
        }
        check_broadcast(a, b, y);
    }
    check_broadcast(FV_SHAPE(2, 3, 2, 1, 2, 3), FV_SHAPE(3, 1, 4, 1, 3),
                    FV_SHAPE(2, 3, 2, 4, 2, 3));
    check_broadcast(FV_SCALAR, FV_SHAPE(2, 1, 2, 1, 2, 2), FV_SHAPE(2, 1, 2, 1, 2, 2));
    check_broadcast(FV_SCALAR, FV_SCALAR, FV_SCALAR);
    check_broadcast(FV_SHAPE(1, 1, 1), FV_SHAPE(1), FV_SHAPE(1, 1, 1));
    check_broadcast(FV_SHAPE(0, 3), FV_SHAPE(3), FV_SHAPE(0, 3));
    check_broadcast(FV_SHAPE(4, 0, 3), FV_SHAPE(4, 1, 1), FV_SHAPE(4, 0, 3));
    check_broadcast(FV_SHAPE(0), FV_SHAPE(1), FV_SHAPE(0));
    check_broadcast(FV_SHAPE(2500, 3), FV_SHAPE(3), FV_SHAPE(2500, 3)); /* sums in several chunks */
    check_broadcast(FV_SHAPE(3, 2500), FV_SHAPE(3, 1), FV_SHAPE(3, 2500));
    check_broadcast(FV_SHAPE(20, 2100), FV_SHAPE(2100), FV_SHAPE(20, 2100)); /* rows in pieces */
    check_broadcast(FV_SHAPE(MOST), FV_SCALAR, FV_SHAPE(MOST));
    check_broadcast(FV_SHAPE(300, 1), FV_SHAPE(200), FV_SHAPE(300, 200));
    check_broadcast(FV_SHAPE(2, 1, 3000), FV_SHAPE(4, 1), FV_SHAPE(2, 4, 3000));
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The gradient of a number that a million others are scaled by keeps its digits. */
Test(broadcast, long_sums_keep_their_digits)
{
    enum { N = 1 << 20 };
    fv_real *x = fvi_calloc(N, sizeof *x);
    const fv_real one = 1;
    double exact = 0;
    for (size_t i = 0; i < N; i++) {
        x[i] = (fv_real)(0.1 + 1e-7 * (double)(i % 1000));
        exact += fv_re(x[i]);
    }
    fv_tape *t = fv_tape_new(NULL);
    for (int rows = 0; rows < 3; rows++) {
        const fv_shape shape[] = {FV_SHAPE(N), FV_SHAPE(N, 1, 1), FV_SHAPE(N / 4, 4)};
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *b = fv_input(t, FV_SHAPE(1), &one);
        fv_var *y = fv_mul(t, fv_constant(t, shape[rows], x), b);
        cr_assert(fv_backward(t, fv_sum(t, y, NULL)));
        cr_expect(fabs(fv_re(b->grad[0]) - exact) <= (3 * eps + 1e-12) * exact,
                  "%.9g instead of %.9g", (double)fv_re(b->grad[0]), exact);
    }
    fv_tape_free(t);
    fvi_free(x);
}

/* ---- threads --------------------------------------------------------------------------------- */

/* Values and gradients of several passes over 300,000 numbers as one digest. */
static uint64_t digest(int threads, int which)
{
    enum { ROWS = 3000, WIDTH = 100 };
    static fv_real x[ROWS * WIDTH + 7];
    static unsigned char yes[ROWS];
    for (size_t i = 0; i < ROWS * WIDTH + 7; i++)
        x[i] = (fv_real)(0.01 + fv_rng_uniform(fv_rng_make(1, 1, "x"), i));
    for (size_t i = 0; i < ROWS; i++)
        yes[i] = i % 3 == 0;
    fv_tape *t = fv_tape_new(&(fv_tape_opts){.threads = threads});
    fv_tape_begin(t, FV_GRAD, 1, 1);
    const fv_shape other[] = {FV_SHAPE(ROWS, WIDTH), FV_SHAPE(WIDTH), FV_SHAPE(ROWS, 1), FV_SCALAR,
                              FV_SHAPE(10, 1, 100)};
    fv_var *a = fv_input(t, which == 4 ? FV_SHAPE(10, 300, 100) : FV_SHAPE(ROWS, WIDTH), x);
    fv_var *b = fv_input(t, other[which % 5], x + 7);
    fv_var *y = fv_power(t, fv_div(t, a, b), b);
    y = fv_where(t, (fv_bools){which == 4 ? FV_SHAPE(300, 1) : FV_SHAPE(ROWS, 1), yes},
                 fv_gelu(t, y), fv_lerp(t, b, a, y));
    y = fv_reshape(t, y, FV_SHAPE(ROWS, WIDTH));
    fv_var *halves = fv_glu(t, fv_concat(t, 2, (fv_var *[]){y, y}, -1), 0);
    y = fv_add_many(t, 3, (fv_var *[]){y, y, fv_reshape(t, halves, FV_SHAPE(ROWS, WIDTH))});
    cr_assert(fv_backward(t, fv_sum(t, y, NULL)), "%s", fv_tape_error(t)->text);
    uint64_t sum = 0;
    for (const fv_var *v = t->last; v != NULL; v = v->previous) {
        sum = 31 * sum + fvi_hash(v->value.data, fvi_count(v) * sizeof(fv_real));
        if (v->grad != NULL)
            sum = 31 * sum + fvi_hash(v->grad, fvi_count(v) * sizeof(fv_real));
    }
    fv_tape_free(t);
    return sum;
}

Test(broadcast, the_same_bits_for_any_number_of_threads)
{
    for (int which = 0; which < 5; which++) {
        const uint64_t expected = digest(1, which);
        cr_expect_eq(digest(2, which), expected, "2 threads, operand %d", which);
        cr_expect_eq(digest(3, which), expected, "3 threads, operand %d", which);
        cr_expect_eq(digest(8, which), expected, "8 threads, operand %d", which);
    }
}
