/* Looks at attention: weights of every cell of the grid, and what is said of them. */
#include "tests/attention_grid.h"

/* Weights as looked at: full ones [heads, queries, keys] of each segment against the definition, and against
 * them what else can be looked at. */
static void check_looks(fv_tape *t, const call *c, const char *text)
{
    enum { TOP = 3 };
    const int32_t *keys = NULL;
    const fv_tensor entropy = fv_attention_entropy(t, c->y),
                    received = fv_attention_received(t, c->y), lse = fv_attention_lse(t, c->y),
                    top = fv_attention_top(t, c->y, TOP, &keys);
    double sum[KEYS * HEADS] = {0};
    cr_assert(fv_tape_ok(t), "%s: %s", text, fv_tape_error(t)->text);
    for (size_t seg = 0; seg < 2; seg++) {
        const fv_tensor w = fv_attention_weights(t, c->y, seg);
        const size_t queries = queries_at[seg + 1] - queries_at[seg], first = keys_at[seg],
                     count = keys_at[seg + 1] - first;
        cr_assert(fv_shape_equal(w.shape, FV_SHAPE(HEADS, queries, count)), "%s", text);
        for (size_t h = 0; h < HEADS; h++)
            for (size_t x = 0; x < queries; x++) {
                const size_t row = (queries_at[seg] + x) * HEADS + h;
                const fv_real *is = w.data + (h * queries + x) * count;
                double should[KEYS], spread = 0, last = INFINITY;
                define_weights(c, h, queries_at[seg] + x, should);
                for (size_t j = 0; j < count; j++) {
                    cr_assert(fabs(real(is[j]) - should[first + j]) <= tolerance * 10,
                              "%s: weight %g, not %g", text, real(is[j]), should[first + j]);
                    sum[(first + j) * HEADS + h] += real(is[j]);
                    spread -= real(is[j]) == 0 ? 0 : real(is[j]) * log(real(is[j]));
                }
                const double said = real(entropy.data[row]);
                cr_assert(isnan(spread) ? isnan(said) : fabs(said - spread) <= tolerance * 10,
                          "%s: entropy %g, not %g", text, said, spread);
                if (c->o.normalizer <= FV_NORMALIZE_SOFTMAX_PLUS_ONE)
                    cr_assert(!c->lonely_query[row / HEADS] || real(lse.data[row]) == -INFINITY);
                for (size_t n = 0; n < TOP; n++) {
                    const double weight = real(top.data[row * TOP + n]);
                    const int32_t key = keys[row * TOP + n];
                    size_t larger = 0;
                    for (size_t j = 0; j < count; j++)
                        larger += real(is[j]) > weight ||
                                  (real(is[j]) == weight && (int32_t)(first + j) < key &&
                                   fv_mask_sees(&c->mask, QUERIES, KEYS, row / HEADS, first + j));
                    cr_assert(key < 0 ? weight == 0
                                      : weight == real(is[(size_t)key - first]) && weight <= last,
                              "%s: %zu of row %zu: key %d, %g", text, n, row, (int)key, weight);
                    cr_assert(key < 0 || c->o.bias || c->o.normalizer > FV_NORMALIZE_SIGMOID ||
                                  larger == n,
                              "%s: %zu of row %zu: key %d has %zu before it", text, n, row,
                              (int)key, larger);
                    last = key < 0 ? -INFINITY : weight;
                }
            }
    }
    for (size_t n = 0; n < KEYS * HEADS; n++)
        cr_assert(fabs(real(received.data[n]) - sum[n]) <= tolerance * 10 * (1 + fabs(sum[n])),
                  "%s", text);
}

ParameterizedTestParameters(attention_looks, all)
{
    return each_score();
}

ParameterizedTest(size_t *score, attention_looks, all)
{
    fv_tape *t = fv_tape_new(NULL);
    for (size_t n = 0; n < CELLS / SCORES; n++) {
        const cell c = cell_at(*score, n);
        char text[200];
        call made;
        fv_tape_begin(t, FV_TRAIN, 7, n);
        source from = {.t = t};
        cr_assert_not_null(attend(&from, &c, &made));
        check_looks(t, &made, cell_text(&c, text));
    }
    fv_tape_free(t);
}
