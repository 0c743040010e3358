/* Segments and the mask relation, exhaustively for every mask of up to five rows. */
#include <criterion/criterion.h>
#include <string.h>

#include "tensor/internal.h"

Test(segments, find_and_check)
{
    const size_t at[] = {0, 2, 2, 5};
    const fv_segments s = {3, at};
    fv_error error = {0};
    cr_expect(fv_segments_check(&s, 5, &error));
    cr_expect_eq(fv_segments_find(&s, 0), 0);
    cr_expect_eq(fv_segments_find(&s, 1), 0);
    cr_expect_eq(fv_segments_find(&s, 2), 2);
    cr_expect_eq(fv_segments_find(&s, 4), 2);
    cr_expect_eq(fv_segments_find(&s, 5), 3);
    cr_expect_not(fv_segments_check(&s, 6, &error));
    cr_expect(strstr(error.text, "they hold 5 rows, the input has 6"), "%s", error.text);
    error = (fv_error){0};
    cr_expect_not(fv_segments_check(NULL, 0, &error));
    cr_expect_str_eq(error.text, "segments: no offsets");
}

/* The rule read off the documentation, pair by pair. */
static bool rule(const fv_mask *m, long i, long j)
{
    long at = i + m->offset, left = m->left == FV_NONE ? 0 : m->left,
         right = m->right == FV_NONE ? 0 : m->right;
    if (m->causal && j > at)
        return false;
    if (m->left != 0 && j < at - left)
        return false;
    return m->right == 0 || j <= at + right;
}

static void agree(const fv_mask *m, size_t queries, size_t keys, const bool expected[36])
{
    size_t pairs = 0, empty = 0, rows[6];
    for (size_t i = 0; i < queries; i++) {
        size_t seen = 0;
        for (size_t j = 0; j < keys; j++) {
            cr_assert_eq(fv_mask_sees(m, queries, keys, i, j), expected[i * 6 + j],
                         "row %zu key %zu causal %d offset %d window %d %d", i, j, m->causal,
                         m->offset, m->left, m->right);
            seen += expected[i * 6 + j];
        }
        pairs += seen;
        empty += seen == 0;
    }
    cr_assert_eq(fv_mask_pairs(m, queries, keys), pairs);
    cr_assert_eq(fv_mask_empty_rows(m, queries, keys, rows), empty);
    for (size_t e = 0; e < empty; e++)
        for (size_t j = 0; j < keys; j++)
            cr_assert_not(expected[rows[e] * 6 + j]);
}

/* Every rule over every way to cut up to five query and key rows into two segments. */
Test(mask, rules_exhaustive)
{
    for (size_t q = 0; q <= 5; q++)
        for (size_t k = 0; k <= 5; k++)
            for (size_t cut = 0; cut <= q; cut++) {
                const size_t qa[] = {0, cut, q}, ka[] = {0, k / 2, k};
                const fv_segments qs = {2, qa}, ks = {2, ka};
                for (int bits = 0; bits < 2 * 7 * 5 * 5; bits++) {
                    fv_mask m = {.queries = &qs, .keys = &ks, .causal = bits & 1};
                    m.offset = bits / 2 % 7 - 3;
                    m.left = bits / 14 % 5 - 1;
                    m.right = bits / 70 - 1;
                    bool expected[36] = {false};
                    for (size_t i = 0; i < q; i++)
                        for (size_t j = 0; j < k; j++) {
                            size_t s = i >= cut, t = j >= k / 2;
                            expected[i * 6 + j] =
                                s == t && rule(&m, (long)(i - qa[s]), (long)(j - ka[t]));
                        }
                    agree(&m, q, k, expected);
                }
            }
}

/* Every relation on up to four rows, and every one of five rows with a sparse pattern, as bytes and as edges. */
Test(mask, dense_and_edges_exhaustive)
{
    for (size_t n = 1; n <= 5; n++) {
        const size_t all = n < 5 ? (size_t)1 << (n * n) : (size_t)1 << 16;
        for (size_t code = 0; code < all; code++) {
            size_t bits = n < 5 ? code : code * 509 % ((size_t)1 << 25);
            unsigned char visible[25];
            size_t offsets[6] = {0}, count = 0;
            int32_t keys[25];
            bool expected[36] = {false};
            for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j < n; j++) {
                    bool on = bits >> (i * n + j) & 1;
                    visible[i * n + j] = on;
                    expected[i * 6 + j] = on;
                    if (on)
                        keys[count++] = (int32_t)j;
                }
                offsets[i + 1] = count;
            }
            const fv_graph graph = {n, offsets, keys};
            const fv_mask dense = {.visible = visible}, edges = {.edges = &graph};
            cr_assert(fv_mask_check(&edges, n, n, NULL));
            agree(&dense, n, n, expected);
            agree(&edges, n, n, expected);
        }
    }
}

Test(mask, refuses_what_does_not_fit)
{
    const size_t at[] = {0, 2, 4}, one[] = {0, 4}, edge_at[] = {0, 1, 2, 2, 2};
    const fv_segments two = {2, at}, single = {1, one};
    const int32_t far[] = {0, 9}, twice[] = {1, 0};
    const size_t pair_at[] = {0, 2, 2, 2, 2};
    const fv_graph out = {4, edge_at, far}, falls = {4, pair_at, twice}, bare = {4, edge_at, NULL};
    const struct {
        fv_mask mask;
        const char *says;
    } cases[] = {
        {{.queries = &two, .keys = &single}, "2 query segments meet 1 key segments"},
        {{.queries = &two, .left = -2}, "window radii -2 and 0"},
        {{.edges = &out}, "edge 1 of row 1 leads to key 9 of 4"},
        {{.edges = &bare}, "edges without keys"},
        {{.edges = &falls}, "the keys of row 0 do not ascend at edge 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_error error = {0};
        cr_expect_not(fv_mask_check(&cases[i].mask, 4, 4, &error));
        cr_expect(strstr(error.text, cases[i].says), "%s", error.text);
    }
}
