/* Masks that own what they point to: any mask as bytes or as edges, and, or, not.
 *
 * Every relation is walked by next_seen, which gives the keys that a row sees in ascending order. So a mask of
 * edges costs its edges, and a rule the pairs that it allows. */
#include "tensor/mask.h"

#include <string.h>

/* ---- the block ------------------------------------------------------------------------------- */

void fv_mask_free(fv_mask *mask)
{
    fvi_free(mask);
}

/* The next count numbers of a block, copied from there unless that is NULL. */
static const size_t *next_numbers(size_t **at, const size_t *from, size_t count)
{
    size_t *here = *at;
    if (from != NULL)
        memcpy(here, from, count * sizeof *here);
    *at += count;
    return here;
}

fvi_owned_mask *fvi_mask_new(const fv_mask *like, size_t queries, fvi_pair_kind kind, size_t pairs,
                             fv_error *error)
{
    const size_t patches = fvi_mask_patches(like), size = kind == FVI_EDGES ? sizeof(int32_t) : 1;
    size_t numbers = kind == FVI_EDGES ? queries + 1 : 0, bytes, more;
    fvi_owned_mask *m = NULL;
    if (like->queries != NULL)
        numbers += patches + 1;
    if (like->keys != NULL)
        numbers += patches + 1;
    if (like->key_counts != NULL)
        numbers += patches;
    if (fvi_mul(pairs, size, &more) && fvi_mul(numbers, sizeof(size_t), &bytes) &&
        fvi_add(bytes, more, &bytes) && fvi_add(bytes, sizeof *m, &bytes))
        m = fvi_calloc(bytes, 1);
    if (m == NULL) {
        fv_fail(error, FV_FAILED, "mask: out of memory for %zu %s", pairs,
                kind == FVI_EDGES ? "edges" : "bytes");
        return NULL;
    }
    size_t *at = m->numbers;
    m->mask.offset = like->offset;
    m->mask.align_end = like->align_end;
    if (like->queries != NULL) {
        m->queries = (fv_segments){patches, next_numbers(&at, like->queries->offsets, patches + 1)};
        m->mask.queries = &m->queries;
    }
    if (like->keys != NULL) {
        m->keys = (fv_segments){patches, next_numbers(&at, like->keys->offsets, patches + 1)};
        m->mask.keys = &m->keys;
    }
    if (like->key_counts != NULL)
        m->mask.key_counts = next_numbers(&at, like->key_counts, patches);
    if (kind == FVI_EDGES) {
        m->row_ends = at;
        m->edge_keys = (int32_t *)(at + queries + 1);
        m->edges = (fv_graph){queries, at, m->edge_keys};
        m->mask.edges = &m->edges;
    } else if (kind == FVI_BYTES) {
        m->bytes = (unsigned char *)at;
        m->mask.visible = m->bytes;
    }
    return m;
}

/* ---- walking --------------------------------------------------------------------------------- */

static const size_t NONE = SIZE_MAX;

/* The first key position, not before from, that position i of a patch sees. */
static size_t next_seen(const fv_mask *mask, const fvi_patch *p, size_t i, size_t from)
{
    size_t first, end;
    fvi_mask_range(mask, p, i, &first, &end);
    size_t j = from > first ? from : first;
    if (j < end && mask->edges != NULL) {
        const size_t e = fvi_edge_from(mask->edges, p->query + i, p->key + j);
        if (e == mask->edges->offsets[p->query + i + 1])
            return NONE;
        j = (size_t)mask->edges->keys[e] - p->key;
    }
    while (j < end && mask->visible != NULL && mask->visible[p->byte + i * p->width + j] == 0)
        j++;
    return j < end ? j : NONE;
}

typedef enum { SAME, AND, OR, NOT } combination;

/* One or two masks with the same segments, and where the walk stands in each. */
typedef struct {
    combination how;
    const fv_mask *a, *b;
    size_t queries, keys;
    fvi_patch in_a, in_b;
} relation;

/* next_seen of the result. */
static size_t next_pair(const relation *r, size_t i, size_t from)
{
    size_t j = next_seen(r->a, &r->in_a, i, from);
    if (r->how == NOT) {
        for (; j == from && from < r->in_a.keys; j = next_seen(r->a, &r->in_a, i, from))
            from++;
        return from < r->in_a.keys ? from : NONE;
    }
    if (r->how == SAME || (r->how == AND && j == NONE))
        return j;
    size_t k = next_seen(r->b, &r->in_b, i, r->how == AND ? j : from);
    if (r->how == OR)
        return j < k ? j : k;
    while (j !=
           k) { /* the one behind catches up, until both see the same key or one sees no more */
        if (j == NONE || k == NONE)
            return NONE;
        if (j < k)
            j = next_seen(r->a, &r->in_a, i, k);
        else
            k = next_seen(r->b, &r->in_b, i, j);
    }
    return j;
}

/* Writes the pairs of the result into m, unless that is NULL; how many there are. */
static size_t walk_pairs(relation *r, fvi_owned_mask *m)
{
    size_t pairs = 0;
    for (size_t s = 0; s < fvi_mask_patches(r->a); s++) {
        r->in_a = fvi_mask_patch(r->a, r->queries, r->keys, s, s ? &r->in_a : NULL);
        r->in_b = fvi_mask_patch(r->b, r->queries, r->keys, s, s ? &r->in_b : NULL);
        const fvi_patch *p = &r->in_a;
        for (size_t i = 0; i < p->queries; i++) {
            for (size_t j = next_pair(r, i, 0); j != NONE; j = next_pair(r, i, j + 1), pairs++)
                if (m != NULL && m->edge_keys != NULL)
                    m->edge_keys[pairs] = (int32_t)(p->key + j);
                else if (m != NULL)
                    m->bytes[p->byte + i * p->width + j] = 1;
            if (m != NULL && m->row_ends != NULL)
                m->row_ends[p->query + i + 1] = pairs;
        }
    }
    return pairs;
}

/* The result of r as edges or bytes, with the segments, counts and positions of another mask. */
static fv_mask *make(relation *r, const fv_mask *like, fvi_pair_kind kind, fv_error *error)
{
    size_t pairs = 0;
    if (kind == FVI_EDGES && r->keys > (size_t)INT32_MAX + 1) {
        fv_fail(error, FV_USAGE, "mask: %zu keys, more than edges can number", r->keys);
        return NULL;
    }
    if (kind == FVI_EDGES)
        pairs = walk_pairs(r, NULL);
    else if (!fvi_mask_all_pairs(like, r->queries, r->keys, &pairs)) {
        fv_fail(error, FV_USAGE, "mask: more pairs of %zu queries and %zu keys than there can be",
                r->queries, r->keys);
        return NULL;
    }
    fvi_owned_mask *m = fvi_mask_new(like, r->queries, kind, pairs, error);
    if (m == NULL)
        return NULL;
    walk_pairs(r, m);
    return &m->mask;
}

/* ---- the operations -------------------------------------------------------------------------- */

static const fv_mask everything = {0};

/* A mask and what becomes of it alone. */
static fv_mask *make_alone(combination how, const fv_mask *a, size_t queries, size_t keys,
                           fvi_pair_kind kind, fv_error *error)
{
    relation r = {how, a ? a : &everything, a ? a : &everything, queries, keys, {0}, {0}};
    return fv_mask_check(a, queries, keys, error) ? make(&r, r.a, kind, error) : NULL;
}

fv_mask *fv_mask_to_bytes(const fv_mask *mask, size_t queries, size_t keys, fv_error *error)
{
    return make_alone(SAME, mask, queries, keys, FVI_BYTES, error);
}

fv_mask *fv_mask_to_edges(const fv_mask *mask, size_t queries, size_t keys, fv_error *error)
{
    return make_alone(SAME, mask, queries, keys, FVI_EDGES, error);
}

fv_mask *fv_mask_not(const fv_mask *a, size_t queries, size_t keys, fv_error *error)
{
    return make_alone(NOT, a, queries, keys, FVI_BYTES, error);
}

/* Whether two masks that fit have the same segments; *same_keys: and the same keys filled. */
static bool same_segments(const relation *r, bool *same_keys, fv_error *error)
{
    const size_t patches = fvi_mask_patches(r->a);
    *same_keys = true;
    if (fvi_mask_patches(r->b) != patches)
        return fv_fail(error, FV_USAGE, "mask: %zu segments in one, %zu in the other", patches,
                       fvi_mask_patches(r->b));
    for (size_t s = 0; s < patches; s++) {
        const fvi_patch a = fvi_mask_patch(r->a, r->queries, r->keys, s, NULL),
                        b = fvi_mask_patch(r->b, r->queries, r->keys, s, NULL);
        if (a.queries != b.queries || a.width != b.width)
            return fv_fail(error, FV_USAGE,
                           "mask: segment %zu has %zu queries and %zu keys in one, %zu and %zu in "
                           "the other",
                           s, a.queries, a.width, b.queries, b.width);
        *same_keys = *same_keys && a.keys == b.keys;
    }
    return true;
}

static fv_mask *make_of_two(combination how, const fv_mask *a, const fv_mask *b, size_t queries,
                            size_t keys, fv_error *error)
{
    relation r = {how, a ? a : &everything, b ? b : &everything, queries, keys, {0}, {0}};
    bool same_keys;
    if (!fv_mask_check(a, queries, keys, error) || !fv_mask_check(b, queries, keys, error) ||
        !same_segments(&r, &same_keys, error))
        return NULL;
    fv_mask like = *r.a;
    if (how == OR && !same_keys) {
        if (like.align_end) {
            fv_fail(error, FV_USAGE,
                    "mask: positions are counted from the last key, and other keys are filled");
            return NULL;
        }
        like.key_counts = NULL;
    }
    const bool in_a = r.a->edges != NULL, in_b = r.b->edges != NULL;
    const bool edges = how == AND ? in_a || in_b : in_a && in_b;
    return make(&r, &like, edges ? FVI_EDGES : FVI_BYTES, error);
}

fv_mask *fv_mask_and(const fv_mask *a, const fv_mask *b, size_t queries, size_t keys,
                     fv_error *error)
{
    return make_of_two(AND, a, b, queries, keys, error);
}

fv_mask *fv_mask_or(const fv_mask *a, const fv_mask *b, size_t queries, size_t keys,
                    fv_error *error)
{
    return make_of_two(OR, a, b, queries, keys, error);
}
