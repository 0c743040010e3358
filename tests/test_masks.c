/* Masks: made by name and of lists, combined, printed, and refused, against pairs counted one by one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensor/internal.h"
#include "tests/memory.h"

/* ---- random masks ------------------------------------------------------------------------------ */

enum { SAMPLES = 4, ROWS = 6, ALL = SAMPLES * ROWS };

/* Rows of a batch, and masks on them. */
typedef struct {
    size_t samples, query_at[SAMPLES + 1], key_at[SAMPLES + 1];
    fv_segments queries, keys;
} batch;

typedef struct {
    fv_mask mask;
    size_t counts[SAMPLES], edge_at[ALL + 1];
    int32_t edge_keys[ALL * ALL];
    fv_graph edges;
    unsigned char visible[ALL * ALL];
} random_mask;

typedef struct {
    fv_rng rng;
    uint64_t drawn;
} dice;

static size_t roll(dice *d, size_t below)
{
    return fv_rng_below(d->rng, d->drawn++, (uint32_t)below);
}

static void make_batch(dice *d, batch *b)
{
    memset(b, 0, sizeof *b);
    b->samples = roll(d, SAMPLES + 1);
    for (size_t s = 0; s < b->samples; s++) {
        b->query_at[s + 1] = b->query_at[s] + roll(d, ROWS + 1);
        b->key_at[s + 1] = b->key_at[s] + roll(d, ROWS + 1);
    }
    b->queries = (fv_segments){b->samples, b->query_at};
    b->keys = (fv_segments){b->samples, b->key_at};
}

/* Rules, filled keys, and edges or bytes or neither. */
static void make_mask(dice *d, const batch *b, random_mask *m)
{
    const size_t queries = b->query_at[b->samples], keys = b->key_at[b->samples];
    memset(m, 0, sizeof *m);
    m->mask = (fv_mask){.queries = &b->queries,
                        .keys = &b->keys,
                        .causal = roll(d, 2),
                        .offset = (int)roll(d, 5) - 2,
                        .align_end = roll(d, 2),
                        .left = (int)roll(d, 4) - 1,
                        .right = (int)roll(d, 4) - 1};
    for (size_t s = 0; s < b->samples; s++)
        m->counts[s] = roll(d, b->key_at[s + 1] - b->key_at[s] + 1);
    if (roll(d, 2))
        m->mask.key_counts = m->counts;
    const size_t kind = roll(d, 3), dense = 1 + roll(d, 4);
    for (size_t i = 0, e = 0; kind == 1 && i < queries; i++) {
        for (size_t j = 0; j < keys; j++) /* edges may lead out of a segment: they are not seen */
            if (roll(d, 5) < dense)
                m->edge_keys[e++] = (int32_t)j;
        m->edge_at[i + 1] = e;
    }
    m->edges = (fv_graph){queries, m->edge_at, m->edge_keys};
    for (size_t n = 0; n < sizeof m->visible; n++)
        m->visible[n] = roll(d, 5) < dense;
    m->mask.edges = kind == 1 ? &m->edges : NULL;
    m->mask.visible = kind == 2 ? m->visible : NULL;
}

/* The relation read off the documentation of fv_mask. */
static bool sees(const fv_mask *m, size_t i, size_t j)
{
    size_t s = 0, byte = 0;
    for (; i >= m->queries->offsets[s + 1]; s++)
        byte += (m->queries->offsets[s + 1] - m->queries->offsets[s]) *
                (m->keys->offsets[s + 1] - m->keys->offsets[s]);
    const size_t first = m->queries->offsets[s], key = m->keys->offsets[s];
    const size_t queries = m->queries->offsets[s + 1] - first,
                 width = m->keys->offsets[s + 1] - key,
                 filled = m->key_counts ? m->key_counts[s] : width;
    if (j < key || j - key >= filled)
        return false;
    const long at =
        (long)(i - first) + m->offset + (m->align_end ? (long)filled - (long)queries : 0);
    const long to = (long)(j - key), left = m->left < 0 ? 0 : m->left,
               right = m->right < 0 ? 0 : m->right;
    if ((m->causal && to > at) || (m->left != 0 && to < at - left) ||
        (m->right != 0 && to > at + right))
        return false;
    bool listed = m->edges == NULL;
    for (size_t e = m->edges ? m->edges->offsets[i] : 0; m->edges && e < m->edges->offsets[i + 1];
         e++)
        listed |= m->edges->keys[e] == (int32_t)j;
    return listed && (m->visible == NULL || m->visible[byte + (i - first) * width + j - key]);
}

/* Whether query i may see key j at all: the same segment, and the key is filled. */
static bool meets(const batch *b, const size_t *counts, size_t i, size_t j)
{
    const size_t s = fv_segments_find(&b->queries, i);
    return j >= b->key_at[s] && j < (counts ? b->key_at[s] + counts[s] : b->key_at[s + 1]);
}

typedef enum { SAME, AND, OR, NOT, COMBINATIONS } combination;

static bool combined(combination how, bool a, bool b, bool meet)
{
    return how == SAME ? a : how == AND ? a && b : how == OR ? a || b : meet && !a;
}

/* The mask that owns its relation has exactly the expected pairs, and a's positions. */
static void expect_pairs(const batch *b, const fv_mask *m, combination how, const fv_mask *x,
                         const fv_mask *y)
{
    const size_t queries = b->query_at[b->samples], keys = b->key_at[b->samples];
    size_t pairs = 0, empty = 0, rows[ALL];
    fv_error error = {0};
    cr_assert_not_null(m);
    cr_assert(fv_mask_check(m, queries, keys, &error), "%s", error.text);
    cr_assert(!m->causal && m->left == 0 && m->right == 0);
    cr_assert(m->queries != &b->queries && m->keys != &b->keys, "it points to what is not its own");
    for (size_t s = 0; s < b->samples; s++)
        cr_assert_eq(fvi_mask_patch(m, queries, keys, s, NULL).offset,
                     fvi_mask_patch(x, queries, keys, s, NULL).offset);
    const size_t found = fv_mask_empty_rows(m, queries, keys, rows);
    for (size_t i = 0; i < queries; i++) {
        size_t seen = 0;
        for (size_t j = 0; j < keys; j++) {
            const bool should =
                combined(how, sees(x, i, j), sees(y, i, j), meets(b, x->key_counts, i, j));
            cr_assert_eq(fv_mask_sees(m, queries, keys, i, j), should, "%d: row %zu, key %zu", how,
                         i, j);
            seen += should;
        }
        if (seen == 0)
            cr_assert(empty < found && rows[empty] == i);
        empty += seen == 0;
        pairs += seen;
    }
    cr_assert_eq(found, empty);
    cr_assert_eq(fv_mask_pairs(m, queries, keys), pairs);
    if (m->edges != NULL)
        cr_assert_eq(m->edges->offsets[queries], pairs, "edges that are not seen");
}

Test(masks, algebra_of_random_masks)
{
    static random_mask x, y;
    dice d = {fv_rng_make(3, 0, "masks"), 0};
    size_t unions_refused = 0;
    for (int round = 0; round < 4000; round++) {
        batch b;
        make_batch(&d, &b);
        make_mask(&d, &b, &x);
        make_mask(&d, &b, &y);
        const size_t queries = b.query_at[b.samples], keys = b.key_at[b.samples];
        fv_error error = {0};
        size_t pairs = 0;
        for (size_t i = 0; i < queries; i++)
            for (size_t j = 0; j < keys; j++) {
                cr_assert_eq(fv_mask_sees(&x.mask, queries, keys, i, j), sees(&x.mask, i, j));
                pairs += sees(&x.mask, i, j);
            }
        cr_assert_eq(fv_mask_pairs(&x.mask, queries, keys), pairs);
        fv_mask *made[] = {fv_mask_to_bytes(&x.mask, queries, keys, &error),
                           fv_mask_to_edges(&x.mask, queries, keys, &error),
                           fv_mask_not(&x.mask, queries, keys, &error),
                           fv_mask_and(&x.mask, &y.mask, queries, keys, &error),
                           fv_mask_or(&x.mask, &y.mask, queries, keys, &error)};
        static const combination how[] = {SAME, SAME, NOT, AND, OR};
        const bool has[] = {x.mask.edges != NULL, y.mask.edges != NULL};
        const bool edges[] = {false, true, false, has[0] || has[1], has[0] && has[1]};
        for (int k = 0; k < 5; k++) {
            if (k == 4 && made[k] == NULL && x.mask.align_end) {
                cr_assert_str_eq(error.text, "mask: positions are counted from the last key, and "
                                             "other keys are filled");
                unions_refused++;
                continue;
            }
            expect_pairs(&b, made[k], how[k], &x.mask, &y.mask);
            cr_assert_eq(made[k]->edges != NULL, edges[k]);
            cr_assert_eq(made[k]->visible != NULL, !edges[k]);
            fv_mask_free(made[k]);
        }
    }
    cr_expect(unions_refused > 100 && unions_refused < 2000, "%zu", unions_refused);
}

/* What holds for all sets holds here: not not, De Morgan. */
Test(masks, algebra_laws)
{
    static random_mask x, y;
    dice d = {fv_rng_make(4, 0, "masks"), 0};
    for (int round = 0; round < 300; round++) {
        batch b;
        make_batch(&d, &b);
        make_mask(&d, &b, &x);
        make_mask(&d, &b, &y);
        x.mask.key_counts = y.mask.key_counts = NULL;
        const size_t q = b.query_at[b.samples], k = b.key_at[b.samples];
        fv_mask *both = fv_mask_and(&x.mask, &y.mask, q, k, NULL),
                *neither = fv_mask_not(both, q, k, NULL);
        fv_mask *not_x = fv_mask_not(&x.mask, q, k, NULL),
                *not_y = fv_mask_not(&y.mask, q, k, NULL);
        fv_mask *either = fv_mask_or(not_x, not_y, q, k, NULL),
                *again = fv_mask_not(not_x, q, k, NULL);
        cr_assert(neither && either && again);
        for (size_t i = 0; i < q; i++)
            for (size_t j = 0; j < k; j++) {
                cr_assert_eq(fv_mask_sees(neither, q, k, i, j), fv_mask_sees(either, q, k, i, j));
                cr_assert_eq(fv_mask_sees(again, q, k, i, j), fv_mask_sees(&x.mask, q, k, i, j));
            }
        fv_mask *const all[] = {both, neither, not_x, not_y, either, again};
        for (int n = 0; n < 6; n++)
            fv_mask_free(all[n]);
    }
    fv_mask_free(NULL);
}

Test(masks, everything_has_no_segments)
{
    fv_mask *all = fv_mask_to_edges(NULL, 2, 3, NULL), *none = fv_mask_not(NULL, 2, 3, NULL);
    cr_assert(all && none);
    cr_expect_null(all->queries);
    cr_expect_eq(fv_mask_pairs(all, 2, 3), 6);
    cr_expect_eq(fv_mask_pairs(none, 2, 3), 0);
    /* segments of all rows, and none: the same */
    const size_t at[] = {0, 2}, key_at[] = {0, 3};
    const fv_segments one = {1, at}, one_of_keys = {1, key_at};
    const fv_mask whole = fv_mask_segments(&one, &one_of_keys);
    fv_mask *either = fv_mask_or(none, &whole, 2, 3, NULL);
    cr_assert_not_null(either);
    cr_expect_eq(fv_mask_pairs(either, 2, 3), 6);
    fv_mask_free(all);
    fv_mask_free(none);
    fv_mask_free(either);
}

/* A chain of 100,000 rows as edges: bytes would be 10 GB. */
Test(masks, edges_cost_their_number)
{
    const size_t n = 100000;
    const fv_mask window = fv_mask_window(NULL, 1, 1), causal = fv_mask_causal(NULL);
    fv_mask *near = fv_mask_to_edges(&window, n, n, NULL),
            *past = fv_mask_and(&causal, near, n, n, NULL);
    cr_assert(near && past && past->edges);
    cr_expect_eq(fv_mask_pairs(near, n, n), 3 * n - 2);
    cr_expect_eq(fv_mask_pairs(past, n, n), 2 * n - 1);
    fv_mask *either = fv_mask_or(past, near, n, n, NULL);
    cr_assert(either && either->edges);
    cr_expect_eq(fv_mask_pairs(either, n, n), 3 * n - 2);
    fv_mask_free(near);
    fv_mask_free(past);
    fv_mask_free(either);
}

/* ---- by name and of lists ------------------------------------------------------------------------ */

static const char *picture(const fv_mask *mask, size_t queries, size_t keys)
{
    static char text[20000];
    FILE *out = tmpfile();
    cr_assert_not_null(out);
    fv_mask_print(out, mask, queries, keys);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = 0;
    fclose(out);
    return text;
}

Test(masks, by_name)
{
    const size_t at[] = {0, 3, 5}, key_at[] = {0, 2, 3};
    const fv_segments two = {2, at}, keys = {2, key_at};
    const fv_mask causal = fv_mask_causal(&two), none = fv_mask_causal(NULL);
    cr_expect_str_eq(picture(&causal, 5, 5), "segment 0, 3 queries, 3 keys\n#..\n##.\n###\n"
                                             "segment 1, 2 queries, 2 keys\n#.\n##\n");
    cr_expect_str_eq(picture(&none, 2, 2), "segment 0, 2 queries, 2 keys\n#.\n##\n");
    const fv_mask self = fv_mask_window(NULL, 0, 0), left = fv_mask_window(NULL, 1, 0),
                  ahead = fv_mask_window(NULL, -1, 1);
    cr_expect_str_eq(picture(&self, 3, 3), "segment 0, 3 queries, 3 keys\n#..\n.#.\n..#\n");
    cr_expect_str_eq(picture(&left, 3, 3), "segment 0, 3 queries, 3 keys\n#..\n##.\n.##\n");
    cr_expect_str_eq(picture(&ahead, 3, 4), "segment 0, 3 queries, 4 keys\n##..\n###.\n####\n");
    const fv_mask cross = fv_mask_segments(&two, &keys);
    cr_expect_str_eq(picture(&cross, 5, 3), "segment 0, 3 queries, 2 keys\n##\n##\n##\n"
                                            "segment 1, 2 queries, 1 keys\n#\n#\n");
    cr_expect_str_eq(picture(NULL, 1, 3), "segment 0, 1 queries, 3 keys\n###\n");
}

Test(masks, large_pictures_end)
{
    size_t at[19];
    for (size_t s = 0; s < 19; s++)
        at[s] = s;
    const fv_segments many = {18, at};
    const fv_mask mask = {.queries = &many};
    const char *text = picture(&mask, 18, 18);
    cr_expect(strstr(text, "segment 15, 1 queries, 1 keys\n#\n.. 2 more segments\n"), "%s", text);
    text = picture(NULL, 70, 65);
    char line[70] = "";
    memset(line, '#', 64);
    strcpy(line + 64, " ..\n");
    cr_expect_eq(strlen(text),
                 strlen("segment 0, 70 queries, 65 keys\n.. 6 more queries\n") + 64 * 68);
    cr_expect(strstr(text, line) != NULL);
    cr_expect_str_eq(strrchr(text, '#') + 1, " ..\n.. 6 more queries\n");
}

Test(masks, from_edge_index)
{
    /* sources, then targets: 2 -> 0, 0 -> 1, 1 -> 1, 0 -> 2, 3 -> 1 */
    static const int64_t list[] = {2, 0, 1, 0, 3, 0, 1, 1, 2, 1};
    size_t order[9];
    fv_mask *m = fv_mask_from_edge_index(4, 4, 5, list, false, order, NULL);
    cr_assert_not_null(m);
    cr_expect_str_eq(picture(m, 4, 4), "segment 0, 4 queries, 4 keys\n..#.\n##.#\n#...\n....\n");
    static const size_t plain[] = {0, 1, 2, 4, 3};
    cr_expect_arr_eq(order, plain, sizeof plain);
    fv_mask_free(m);
    m = fv_mask_from_edge_index(4, 4, 5, list, true, order, NULL);
    cr_assert_not_null(m);
    cr_expect(fv_mask_check(m, 4, 4, NULL));
    cr_expect_str_eq(picture(m, 4, 4), "segment 0, 4 queries, 4 keys\n#.#.\n##.#\n#.#.\n...#\n");
    static const size_t looped[] = {5, 0, 1, 2, 4, 3, 5, 5};
    cr_expect_arr_eq(order, looped, sizeof looped);
    fv_mask_free(m);
    m = fv_mask_from_edge_index(3, 2, 0, NULL, false, NULL, NULL);
    cr_assert_not_null(m);
    cr_expect_eq(fv_mask_empty_rows(m, 3, 2, NULL), 3);
    fv_mask_free(m);
}

Test(masks, from_edge_index_random)
{
    dice d = {fv_rng_make(5, 0, "edges"), 0};
    for (int round = 0; round < 300; round++) {
        const size_t queries = 1 + roll(&d, 6), keys = roll(&d, 2) ? queries : 1 + roll(&d, 6);
        const bool loops = queries == keys && roll(&d, 2);
        size_t count = 0, at[36], order[42];
        int64_t list[72];
        bool on[36] = {false};
        for (size_t n = 0; n < queries * keys; n++)
            if (roll(&d, 3) == 0)
                at[count++] = n;
        for (size_t n = count; n > 1; n--) { /* in any order */
            const size_t other = roll(&d, n), swap = at[n - 1];
            at[n - 1] = at[other];
            at[other] = swap;
        }
        for (size_t e = 0; e < count; e++) {
            list[e] = (int64_t)(at[e] % keys);
            list[count + e] = (int64_t)(at[e] / keys);
            on[at[e]] = true;
        }
        fv_mask *m = fv_mask_from_edge_index(queries, keys, count, list, loops, order, NULL);
        cr_assert_not_null(m);
        cr_assert(fv_mask_check(m, queries, keys, NULL));
        for (size_t i = 0; i < queries; i++) {
            for (size_t j = 0; j < keys; j++)
                cr_assert_eq(fv_mask_sees(m, queries, keys, i, j),
                             on[i * keys + j] || (loops && i == j));
            for (size_t e = m->edges->offsets[i]; e < m->edges->offsets[i + 1]; e++)
                cr_assert(order[e] == count ? m->edges->keys[e] == (int32_t)i
                                            : list[order[e]] == m->edges->keys[e] &&
                                                  list[count + order[e]] == (int64_t)i);
        }
        fv_mask_free(m);
    }
}

Test(masks, from_padded)
{
    static const size_t lengths[] = {2, 0, 3};
    fv_mask *m = fv_mask_from_lengths(3, 2, 3, lengths, NULL);
    cr_assert(m && m->key_counts && m->key_counts != lengths);
    cr_expect(fv_mask_check(m, 6, 9, NULL));
    cr_expect_str_eq(picture(m, 6, 9), "segment 0, 2 queries, 3 keys\n##.\n##.\n"
                                       "segment 1, 2 queries, 3 keys\n...\n...\n"
                                       "segment 2, 2 queries, 3 keys\n###\n###\n");
    fv_mask_free(m);
    static const unsigned char bytes[] = {0, 1, 0, 1, 1, 0, 0, 0, 2, 0, 0, 1};
    m = fv_mask_from_key_padding(2, 1, 3, bytes, NULL);
    cr_assert_not_null(m);
    cr_expect_str_eq(picture(m, 2, 6), "segment 0, 1 queries, 3 keys\n#.#\n"
                                       "segment 1, 1 queries, 3 keys\n..#\n");
    fv_mask_free(m);
    m = fv_mask_from_hidden(2, 2, 3, bytes, false, NULL);
    cr_assert_not_null(m);
    cr_expect_str_eq(picture(m, 4, 6), "segment 0, 2 queries, 3 keys\n#.#\n..#\n"
                                       "segment 1, 2 queries, 3 keys\n#.#\n..#\n");
    fv_mask_free(m);
    m = fv_mask_from_visible(2, 2, 3, bytes, true, NULL);
    cr_assert_not_null(m);
    cr_expect_str_eq(picture(m, 4, 6), "segment 0, 2 queries, 3 keys\n.#.\n##.\n"
                                       "segment 1, 2 queries, 3 keys\n..#\n..#\n");
    fv_mask_free(m);
    m = fv_mask_from_visible(0, 2, 3, NULL, true, NULL);
    cr_assert_not_null(m);
    cr_expect_eq(fv_mask_pairs(m, 0, 0), 0);
    fv_mask_free(m);
}

/* ---- refusals ------------------------------------------------------------------------------------ */

Test(masks, check_says_what_does_not_fit)
{
    const size_t at[] = {0, 2, 4}, other_at[] = {0, 1, 3}, falls_at[] = {0, 3, 2},
                 late_at[] = {1, 4};
    const size_t edge_at[] = {0, 1, 1, 1, 1}, fall_at[] = {0, 2, 1, 2, 2}, counts[] = {2, 3};
    const fv_segments two = {2, at}, other = {2, other_at}, falls = {2, falls_at},
                      late = {1, late_at}, bare = {1, NULL};
    const int32_t keys[] = {0, 1}, low[] = {-1};
    const fv_graph edges = {4, edge_at, keys}, few = {3, edge_at, keys}, none = {4, NULL, keys},
                   falling = {4, fall_at, keys}, negative = {4, edge_at, low};
    static const unsigned char bytes[16];
    const struct {
        fv_mask mask;
        const char *says;
    } wrong[] = {
        {{.queries = &other}, "mask: query segments: they hold 3 rows, the input has 4"},
        {{.queries = &falls}, "mask: query segments: offset 2 falls from 3 to 2"},
        {{.queries = &late}, "mask: query segments: the first offset is 1, not 0"},
        {{.queries = &bare}, "mask: query segments: no offsets"},
        {{.queries = &two, .keys = &other},
         "mask: key segments: they hold 3 rows, the input has 4"},
        {{.keys = &two}, "mask: 1 query segments meet 2 key segments"},
        {{.queries = &two, .key_counts = counts}, "mask: 3 keys of segment 1 are filled, it has 2"},
        {{.right = -5}, "mask: window radii 0 and -5: at least 0, or FV_NONE"},
        {{.edges = &edges, .visible = bytes}, "mask: edges and dense bytes at once"},
        {{.edges = &few}, "mask: edges for 3 rows, queries have 4"},
        {{.edges = &none}, "mask: edges as segments: no offsets"},
        {{.edges = &falling}, "mask: edges as segments: offset 2 falls from 2 to 1"},
        {{.edges = &negative}, "mask: edge 0 of row 0 leads to key -1 of 4"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_error error = {0};
        cr_expect_not(fv_mask_check(&wrong[i].mask, 4, 4, &error));
        cr_expect_str_eq(error.text, wrong[i].says);
        cr_expect_eq(error.status, FV_USAGE);
        error = (fv_error){0}; /* and so does what is made of it */
        cr_expect_null(fv_mask_to_bytes(&wrong[i].mask, 4, 4, &error));
        cr_expect_str_eq(error.text, wrong[i].says);
        cr_expect_null(fv_mask_to_edges(&wrong[i].mask, 4, 4, NULL));
        cr_expect_null(fv_mask_not(&wrong[i].mask, 4, 4, NULL));
        cr_expect_null(fv_mask_and(NULL, &wrong[i].mask, 4, 4, NULL));
        cr_expect_null(fv_mask_or(&wrong[i].mask, NULL, 4, 4, NULL));
    }
    cr_expect(fv_mask_check(NULL, 4, 4, NULL));
}

static void refused(const fv_mask *m, fv_error *error, const char *text)
{
    cr_expect_null(m);
    cr_expect_str_eq(error->text, text);
    cr_expect_eq(error->status, FV_USAGE);
    *error = (fv_error){0};
}

Test(masks, makers_refuse)
{
    const size_t at[] = {0, 2, 4}, other_at[] = {0, 1, 4}, lengths[] = {1, 4}, counts[] = {1, 1},
                 half = SIZE_MAX / 2;
    const fv_segments two = {2, at}, other = {2, other_at};
    const fv_mask a = {.queries = &two}, b = {.queries = &other},
                  end = {.queries = &two, .align_end = true},
                  filled = {.queries = &two, .key_counts = counts};
    static const int64_t far[] = {0, 4, 1, 1}, low[] = {0, 1, -1, 0}, twice[] = {1, 0, 1, 2, 0, 2};
    fv_error error = {0};
    refused(fv_mask_and(&a, NULL, 4, 4, &error), &error, "mask: 2 segments in one, 1 in the other");
    refused(fv_mask_or(&a, &b, 4, 4, &error), &error,
            "mask: segment 0 has 2 queries and 2 keys in one, 1 and 1 in the other");
    refused(fv_mask_or(&end, &filled, 4, 4, &error), &error,
            "mask: positions are counted from the last key, and other keys are filled");
    refused(fv_mask_to_edges(NULL, 0, (size_t)1 << 40, &error), &error,
            "mask: 1099511627776 keys, more than edges can number");
    refused(fv_mask_to_bytes(NULL, half, 4, &error), &error,
            "mask: more pairs of 9223372036854775807 queries and 4 keys than there can be");
    refused(fv_mask_from_edge_index(4, 4, 2, NULL, false, NULL, &error), &error,
            "mask: no list of 2 edges");
    refused(fv_mask_from_edge_index(4, 4, 2, far, false, NULL, &error), &error,
            "mask: edge 1 leads from 4 to 1, of 4 keys and 4 queries");
    refused(fv_mask_from_edge_index(4, 4, 2, low, false, NULL, &error), &error,
            "mask: edge 0 leads from 0 to -1, of 4 keys and 4 queries");
    refused(fv_mask_from_edge_index(4, 4, 3, twice, false, NULL, &error), &error,
            "mask: edges 0 and 2 both lead from 1 to 2");
    refused(fv_mask_from_edge_index(4, 3, 0, NULL, true, NULL, &error), &error,
            "mask: loops of rows, of 4 queries and 3 keys");
    refused(fv_mask_from_edge_index(4, (size_t)1 << 40, 0, NULL, false, NULL, &error), &error,
            "mask: 1099511627776 keys, more than edges can number");
    refused(fv_mask_from_lengths(2, 3, 3, NULL, &error), &error, "mask: no lengths");
    refused(fv_mask_from_lengths(2, 3, 3, lengths, &error), &error,
            "mask: sample 1 has 4 keys, padded to 3");
    refused(fv_mask_from_key_padding(2, 3, 3, NULL, &error), &error, "mask: no bytes");
    refused(fv_mask_from_visible(2, half, 4, (const unsigned char *)"", true, &error), &error,
            "mask: 2 samples of 9223372036854775807 queries and 4 keys: more than can be");
}

/* Whatever request for memory fails: an error, and nothing is lost. */
Test(masks, without_memory)
{
    static const int64_t list[] = {2, 0, 1, 1};
    static const unsigned char bytes[6];
    static const size_t lengths[] = {1, 2};
    const size_t blocks = test_blocks();
    for (size_t n = 1; n <= 3; n++)
        for (int which = 0; which < 5; which++) {
            fv_error error = {0};
            const size_t before = test_requests();
            test_fail_after(n);
            fv_mask *m = which == 0   ? fv_mask_to_bytes(NULL, 3, 4, &error)
                         : which == 1 ? fv_mask_or(NULL, NULL, 3, 4, &error)
                         : which == 2 ? fv_mask_from_edge_index(3, 3, 2, list, true, NULL, &error)
                         : which == 3 ? fv_mask_from_lengths(2, 3, 2, lengths, &error)
                                      : fv_mask_from_key_padding(2, 1, 3, bytes, &error);
            test_fail_after(0);
            const bool failed = n <= (which == 2 ? 2 : 1);
            cr_expect_eq(test_requests() - before, which == 2 && n > 1 ? 2 : 1);
            cr_expect_eq(m == NULL, failed, "%d", which);
            cr_expect_eq(error.status, failed ? FV_FAILED : FV_OK);
            if (failed)
                cr_expect(strstr(error.text, "mask: out of memory for "), "%s", error.text);
            fv_mask_free(m);
        }
    cr_expect_eq(test_blocks(), blocks);
}
