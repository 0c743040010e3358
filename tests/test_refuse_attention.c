/* Wrong choices of attention, and looks at what is none. */
#include <math.h>

#include "tests/refuse.h"

REFUSED(choices)
{
    static const size_t edges_at[] = {0, 2, 2, 3};
    static const int32_t edge_keys[] = {0, 2, 1};
    static const fv_graph graph = {3, edges_at, edge_keys};
    const fv_mask edges = {.edges = &graph};
    fv_var *x = IN(3, 4);
    const struct {
        const char *message;
        const fv_mask *mask;
        fv_attention_opts opts;
    } calls[] = {
        {"attention: score 6 with inner function 0, normalizer 0: no such choice",
         NULL,
         {.score = (fv_score)6}},
        {"attention: score 0 with inner function 4, normalizer 0: no such choice",
         NULL,
         {.inner = (fv_score_inner)4}},
        {"attention: score 0 with inner function 0, normalizer 7: no such choice",
         NULL,
         {.normalizer = (fv_normalizer)7}},
        {"attention: softcap -1, expected a number of at least 0", NULL, {.softcap = -1}},
        {"attention: softcap inf, expected a number of at least 0", NULL, {.softcap = INFINITY}},
        {"attention: an additive score needs its weight, [2, 2]",
         NULL,
         {.heads = 2, .score = FV_SCORE_ADDITIVE}},
        {"attention: weight [2, 3], expected [2, 2]",
         NULL,
         {.heads = 2, .score = FV_SCORE_ADDITIVE, .weight = IN(2, 3)}},
        {"attention: a score of one's own needs its two functions", NULL, {.score = FV_SCORE_USER}},
        {"attention: a weight, but the score has none", NULL, {.weight = IN(1, 4)}},
        {"attention: a weight, but the score has none",
         NULL,
         {.score = FV_SCORE_COSINE, .weight = IN(1, 4)}},
        {"attention: a bilinear score needs its weight, [2, 2, width of k]",
         NULL,
         {.heads = 2, .score = FV_SCORE_BILINEAR}},
        {"attention: weight [2, 2], expected [2, 2, width of k]",
         NULL,
         {.heads = 2, .score = FV_SCORE_BILINEAR, .weight = IN(2, 2)}},
        {"attention: slopes [3], expected [2]", NULL, {.heads = 2, .slopes = IN(3)}},
        {"attention: bias [2, 8], expected [2, 9] or [1, 9]", NULL, {.heads = 2, .bias = IN(2, 8)}},
        {"attention: bias [2, 3], expected [3, 2] or [3, 1]",
         &edges,
         {.heads = 2, .bias = IN(2, 3)}},
        {"attention: relative values [3, 4], expected [3, 2]",
         NULL,
         {.heads = 2, .relative_values = IN(3, 4)}},
        {"attention: vectors of edges, but the mask has no edges", NULL, {.edge_keys = IN(3, 4)}},
        {"attention: keys of edges [4, 4], expected [3, 4]", &edges, {.edge_keys = IN(4, 4)}},
        {"attention: values of edges [3, 3], expected [3, 4]", &edges, {.edge_values = IN(3, 3)}},
    };
    *text = NULL;
    if (which >= (int)(sizeof calls / sizeof *calls))
        return NULL;
    *text = calls[which].message;
    return fv_attention(t, x, x, x, calls[which].mask, &calls[which].opts);
}

Test(refuse_attention, choices)
{
    refuse_each(choices);
}

/* A look at a value that is no attention, at a segment that is not there, for no weights. */
Test(refuse_attention, looks)
{
    fv_tape *t = fv_tape_new(NULL);
    const int32_t *keys;
    static const char *const messages[] = {
        "attention_weights: the value is no attention",
        "attention_lse: the value is no attention",
        "attention_entropy: the value is no attention",
        "attention_received: the value is no attention",
        "attention_top: the value is no attention",
        "attention_weights: segment 1 of 1",
        "attention_top: 0 weights a row, a place for their keys: expected at least 1, and a place",
        "attention_top: 1 weights a row, no place for their keys: expected at least 1, and a place",
    };
    static const fv_real zeros[12];
    for (int which = 0; which < 8; which++) {
        fv_tape_begin(t, FV_GRAD, 1, 1);
        fv_var *x = fv_input(t, FV_SHAPE(3, 4), zeros), *y = fv_attention(t, x, x, x, NULL, NULL);
        const fv_tensor seen = which == 0   ? fv_attention_weights(t, x, 0)
                               : which == 1 ? fv_attention_lse(t, x)
                               : which == 2 ? fv_attention_entropy(t, NULL)
                               : which == 3 ? fv_attention_received(t, x)
                               : which == 4 ? fv_attention_top(t, x, 1, &keys)
                               : which == 5 ? fv_attention_weights(t, y, 1)
                               : which == 6 ? fv_attention_top(t, y, 0, &keys)
                                            : fv_attention_top(t, y, 1, NULL);
        cr_expect_null(seen.data);
        cr_expect_str_eq(fv_tape_error(t)->text, messages[which]);
    }
    fv_tape_free(t);
}
