/* Attention as a grid: every score x normaliser x mask x option, its values against the definition, its
 * gradients checked, hidden rows painted NaN, and no gradient from a query to a key it does not see. */
#include "tests/attention_grid.h"

/* No two cells are the same. */
Test(attention_grid, size)
{
    static bool seen[NORMALIZERS][MASKS][OPTIONS];
    for (size_t n = 0; n < CELLS / SCORES; n++) {
        const cell c = cell_at(0, n);
        cr_assert_not(seen[c.normalizer][c.mask][c.option], "cell %zu twice", n);
        seen[c.normalizer][c.mask][c.option] = true;
    }
    printf(
        "attention: %d scores x %d normalisers x (%d masks x %d options + 2 of edges) = %d cells\n",
        (int)SCORES, (int)NORMALIZERS, (int)MASKS, (int)EDGE_KEYS, (int)CELLS);
    fflush(stdout);
}

ParameterizedTestParameters(attention_grid, values)
{
    return each_score();
}

/* Values, and rows that see nothing. */
ParameterizedTest(size_t *score, attention_grid, values)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 0; n < CELLS / SCORES; n++) {
        const cell c = cell_at(*score, n);
        char text[200];
        call made;
        fv_tape_begin(t, FV_TRAIN, 7, n);
        source from = {.t = t};
        cr_assert_not_null(attend(&from, &c, &made), "%s: %s", cell_text(&c, text),
                           fv_tape_error(t)->text);
        for (size_t i = 0; i < QUERIES; i++)
            for (size_t h = 0; h < HEADS; h++) {
                double y[VALUE];
                define_row(&made, h, i, y);
                for (size_t x = 0; x < VALUE; x++) {
                    const double is = number(made.y, (i * HEADS + h) * VALUE + x);
                    cr_assert(fabs(is - y[x]) <= tolerance * (1 + fabs(y[x])) &&
                                  (!made.lonely_query[i] || is == 0),
                              "%s: row %zu of head %zu: %.17g, not %.17g", cell_text(&c, text), i,
                              h, is, y[x]);
                }
            }
    }
    fv_tape_free(t);
}

ParameterizedTestParameters(attention_grid, gradients)
{
    return each_score();
}

static fv_var *checked(fv_sampler *s, void *context)
{
    call made;
    source from = {.t = fv_sampler_tape(s), .s = s};
    return attend(&from, context, &made);
}

ParameterizedTest(size_t *score, attention_grid, gradients)
{
    fv_gradcheck_result r;
    (void)score, (void)checked, (void)r;
#if defined(FV_F64) || defined(FV_COMPLEX)
    for (size_t n = 0; n < CELLS / SCORES; n++) {
        cell c = cell_at(*score, n);
        char text[200];
        cr_assert(fv_gradcheck(checked, &c, NULL, &r), "%s: %s", cell_text(&c, text), r.error.text);
    }
#endif
}

/* Numbers of y and of the gradients of q, k, v for a loss that weighs y, in one list; rows of y that are
 * not chosen weigh 0. */
enum { LISTED = QUERIES * HEADS * (VALUE + WIDTH) + KEYS * HEADS * (WIDTH + VALUE) };

static void list_numbers(fv_tape *t, const cell *c, bool paint, int only, call *made,
                         fv_real to[LISTED])
{
    char text[200];
    fv_real weigh[QUERIES * HEADS * VALUE];
    fv_tape_begin(t, FV_GRAD, 7, 7);
    source from = {.t = t, .paint = paint};
    fv_var *y = attend(&from, c, made);
    for (size_t n = 0; n < QUERIES * HEADS * VALUE; n++)
        weigh[n] = only < 0 || n / (HEADS * VALUE) == (size_t)only
                       ? (fv_real)(1 + (double)(n % 7) / 4)
                       : 0;
    fv_var *loss =
        fv_sum(t, fv_mul(t, y, fv_constant(t, FV_SHAPE(QUERIES, HEADS * VALUE), weigh)), NULL);
    cr_assert(fv_backward(t, loss), "%s: %s", cell_text(c, text), fv_tape_error(t)->text);
    const fv_var *x[] = {made->q, made->k, made->v};
    size_t at = QUERIES * HEADS * VALUE;
    memcpy(to, y->value.data, at * sizeof *to);
    for (int n = 0; n < 3; n++)
        for (size_t i = 0; i < fvi_count(x[n]); i++)
            to[at++] = x[n]->grad ? x[n]->grad[i] : 0;
}

ParameterizedTestParameters(attention_grid, hidden)
{
    return each_score();
}

/* Whatever stands in a row that sees nothing, or that nobody sees, no bit of a value or a gradient is
 * another; and what one row's value makes of a key that it does not see, or of another query, is 0. */
ParameterizedTest(size_t *score, attention_grid, hidden)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 0; n < CELLS / SCORES; n++) {
        const cell c = cell_at(*score, n);
        char text[200];
        call made;
        fv_real plain[LISTED] = {0}, painted[LISTED] = {0};
        list_numbers(t, &c, false, -1, &made, plain);
        list_numbers(t, &c, true, -1, &made, painted);
        for (size_t x = 0; x < LISTED; x++)
            cr_assert(memcmp(&plain[x], &painted[x], sizeof *plain) == 0,
                      "%s: number %zu is %g, with NaN in rows that do not matter %g",
                      cell_text(&c, text), x, real(plain[x]), real(painted[x]));
        for (int i = 0; c.option == PLAIN && i < QUERIES; i++) {
            list_numbers(t, &c, false, i, &made, plain);
            for (size_t j = 0; j < KEYS; j++)
                for (size_t x = 0; x < HEADS * WIDTH; x++)
                    cr_assert(fv_mask_sees(&made.mask, QUERIES, KEYS, (size_t)i, j) ||
                                  (real(made.k->grad[j * HEADS * WIDTH + x]) == 0 &&
                                   real(made.v->grad[j * HEADS * WIDTH + x]) == 0),
                              "%s: row %d leaks to key %zu", cell_text(&c, text), i, j);
            for (size_t x = 0; x < QUERIES * HEADS * WIDTH; x++)
                cr_assert(x / (HEADS * WIDTH) == (size_t)i || real(made.q->grad[x]) == 0,
                          "%s: row %d leaks to number %zu of the queries", cell_text(&c, text), i,
                          x);
        }
    }
    fv_tape_free(t);
}
