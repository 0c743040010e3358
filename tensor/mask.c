/* The relation "query row i may see key row j", and what one may ask of it. */
#include "tensor/mask.h"

/* Positions are compared as signed 64-bit numbers; a segment is shorter than 2^62 rows. */
static int64_t radius(int stated)
{
    return stated == FV_NONE ? 0 : stated;
}

void fvi_mask_range(const fv_mask *mask, const fvi_patch *p, size_t i, size_t *first, size_t *end)
{
    int64_t low = 0, high = (int64_t)p->keys;
    const int64_t at = (int64_t)i + p->offset;
    if (mask != NULL) {
        if (mask->causal && at + 1 < high)
            high = at + 1;
        if (mask->left != 0 && at - radius(mask->left) > low)
            low = at - radius(mask->left);
        if (mask->right != 0 && at + radius(mask->right) + 1 < high)
            high = at + radius(mask->right) + 1;
    }
    if (low >= high)
        low = high = 0;
    *first = (size_t)low;
    *end = (size_t)high;
}

size_t fvi_mask_patches(const fv_mask *mask)
{
    return mask != NULL && mask->queries != NULL ? mask->queries->count : 1;
}

fvi_patch fvi_mask_patch(const fv_mask *mask, size_t queries, size_t keys, size_t s,
                         const fvi_patch *before)
{
    fvi_patch p = {.queries = queries, .keys = keys, .width = keys};
    if (mask == NULL)
        return p;
    const fv_segments *q = mask->queries, *k = mask->keys ? mask->keys : q;
    if (q != NULL) {
        p.query = q->offsets[s];
        p.queries = q->offsets[s + 1] - p.query;
    }
    if (k != NULL) {
        p.key = k->offsets[s];
        p.keys = p.width = k->offsets[s + 1] - p.key;
    }
    if (mask->key_counts != NULL)
        p.keys = mask->key_counts[s];
    p.offset = mask->offset + (mask->align_end ? (int64_t)p.keys - (int64_t)p.queries : 0);
    if (before != NULL)
        p.byte = before->byte + before->queries * before->width;
    return p;
}

bool fvi_mask_all_pairs(const fv_mask *mask, size_t queries, size_t keys, size_t *pairs)
{
    fvi_patch p;
    *pairs = 0;
    for (size_t s = 0; s < fvi_mask_patches(mask); s++) {
        size_t some;
        p = fvi_mask_patch(mask, queries, keys, s, s ? &p : NULL);
        if (!fvi_mul(p.queries, p.width, &some) || !fvi_add(*pairs, some, pairs))
            return false;
    }
    return true;
}

/* What the segments of a mask refuse, with whose they are. */
static bool segments_fit(const char *whose, const fv_segments *segments, size_t rows,
                         fv_error *error)
{
    fv_error why = {FV_OK, ""};
    return fv_segments_check(segments, rows, &why) ||
           fv_fail(error, FV_USAGE, "mask: %s %s", whose, why.text);
}

bool fv_mask_check(const fv_mask *mask, size_t queries, size_t keys, fv_error *error)
{
    if (mask == NULL)
        return true;
    const fv_segments *k = mask->keys ? mask->keys : mask->queries;
    if (mask->queries != NULL && !segments_fit("query", mask->queries, queries, error))
        return false;
    if (k != NULL && !segments_fit("key", k, keys, error))
        return false;
    if (mask->keys != NULL && mask->keys->count != fvi_mask_patches(mask))
        return fv_fail(error, FV_USAGE, "mask: %zu query segments meet %zu key segments",
                       fvi_mask_patches(mask), mask->keys->count);
    for (size_t i = 0; mask->key_counts != NULL && i < fvi_mask_patches(mask); i++)
        if (mask->key_counts[i] > fvi_mask_patch(mask, queries, keys, i, NULL).width)
            return fv_fail(error, FV_USAGE, "mask: %zu keys of segment %zu are filled, it has %zu",
                           mask->key_counts[i], i,
                           fvi_mask_patch(mask, queries, keys, i, NULL).width);
    if (mask->left < FV_NONE || mask->right < FV_NONE)
        return fv_fail(error, FV_USAGE, "mask: window radii %d and %d: at least 0, or FV_NONE",
                       mask->left, mask->right);
    if (mask->edges != NULL && mask->visible != NULL)
        return fv_fail(error, FV_USAGE, "mask: edges and dense bytes at once");
    const fv_graph *edges = mask->edges;
    if (edges == NULL)
        return true;
    if (edges->rows != queries)
        return fv_fail(error, FV_USAGE, "mask: edges for %zu rows, queries have %zu", edges->rows,
                       queries);
    const fv_segments rows = {edges->rows, edges->offsets};
    if (!segments_fit("edges as", &rows, edges->offsets ? edges->offsets[edges->rows] : 0, error))
        return false;
    if (edges->keys == NULL && edges->offsets[edges->rows] > 0)
        return fv_fail(error, FV_USAGE, "mask: edges without keys");
    for (size_t i = 0; i < edges->rows; i++)
        for (size_t e = edges->offsets[i]; e < edges->offsets[i + 1]; e++) {
            if (edges->keys[e] < 0 || (size_t)edges->keys[e] >= keys)
                return fv_fail(error, FV_USAGE, "mask: edge %zu of row %zu leads to key %d of %zu",
                               e, i, (int)edges->keys[e], keys);
            if (e > edges->offsets[i] && edges->keys[e] <= edges->keys[e - 1])
                return fv_fail(error, FV_USAGE,
                               "mask: the keys of row %zu do not ascend at edge %zu", i, e);
        }
    return true;
}

size_t fvi_edge_from(const fv_graph *edges, size_t row, size_t key)
{
    size_t low = edges->offsets[row], high = edges->offsets[row + 1];
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if ((size_t)edges->keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool edge(const fv_graph *edges, size_t i, size_t j)
{
    const size_t e = fvi_edge_from(edges, i, j);
    return e < edges->offsets[i + 1] && (size_t)edges->keys[e] == j;
}

/* Whether position i of the part sees its position j, the rules apart. */
static bool listed(const fv_mask *mask, const fvi_patch *p, size_t i, size_t j)
{
    if (mask == NULL)
        return true;
    if (mask->edges != NULL)
        return edge(mask->edges, p->query + i, p->key + j);
    return mask->visible == NULL || mask->visible[p->byte + i * p->width + j] != 0;
}

bool fv_mask_sees(const fv_mask *mask, size_t queries, size_t keys, size_t i, size_t j)
{
    size_t first, end;
    fvi_patch p;
    if (i >= queries || j >= keys)
        return false;
    for (size_t s = 0; s < fvi_mask_patches(mask); s++) {
        p = fvi_mask_patch(mask, queries, keys, s, s ? &p : NULL);
        if (i >= p.query && i - p.query < p.queries) {
            if (j < p.key || j - p.key >= p.keys)
                return false;
            fvi_mask_range(mask, &p, i - p.query, &first, &end);
            j -= p.key;
            return j >= first && j < end && listed(mask, &p, i - p.query, j);
        }
    }
    return false;
}

/* Pairs that position i of a part sees. */
static size_t pairs_of(const fv_mask *mask, const fvi_patch *p, size_t i)
{
    size_t first, end, pairs = 0;
    fvi_mask_range(mask, p, i, &first, &end);
    if (mask == NULL || (mask->edges == NULL && mask->visible == NULL))
        return end - first;
    if (mask->edges != NULL) {
        const fv_graph *g = mask->edges;
        for (size_t e = g->offsets[p->query + i]; e < g->offsets[p->query + i + 1]; e++) {
            size_t key = (size_t)g->keys[e];
            pairs += key >= p->key + first && key < p->key + end;
        }
        return pairs;
    }
    for (size_t j = first; j < end; j++)
        pairs += listed(mask, p, i, j);
    return pairs;
}

size_t fv_mask_pairs(const fv_mask *mask, size_t queries, size_t keys)
{
    size_t pairs = 0;
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(mask); s++) {
        p = fvi_mask_patch(mask, queries, keys, s, s ? &p : NULL);
        for (size_t i = 0; i < p.queries; i++)
            pairs += pairs_of(mask, &p, i);
    }
    return pairs;
}

size_t fv_mask_empty_rows(const fv_mask *mask, size_t queries, size_t keys, size_t *rows)
{
    size_t empty = 0;
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(mask); s++) {
        p = fvi_mask_patch(mask, queries, keys, s, s ? &p : NULL);
        for (size_t i = 0; i < p.queries; i++)
            if (pairs_of(mask, &p, i) == 0) {
                if (rows != NULL)
                    rows[empty] = p.query + i;
                empty++;
            }
    }
    return empty;
}

/* One query's line: '#' for each key that it sees, '.' for the others. */
static void print_row(FILE *out, const fv_mask *mask, const fvi_patch *p, size_t i, size_t most)
{
    size_t first, end;
    fvi_mask_range(mask, p, i, &first, &end);
    for (size_t j = 0; j < p->width && j < most; j++)
        fputc(j >= first && j < end && listed(mask, p, i, j) ? '#' : '.', out);
    fputs(p->width > most ? " ..\n" : "\n", out);
}

void fv_mask_print(FILE *out, const fv_mask *mask, size_t queries, size_t keys)
{
    enum { MOST_SEGMENTS = 16, MOST_ROWS = 64 };
    const size_t patches = fvi_mask_patches(mask);
    fvi_patch p;
    for (size_t s = 0; s < patches && s < MOST_SEGMENTS; s++) {
        p = fvi_mask_patch(mask, queries, keys, s, s ? &p : NULL);
        fprintf(out, "segment %zu, %zu queries, %zu keys\n", s, p.queries, p.width);
        for (size_t i = 0; i < p.queries && i < MOST_ROWS; i++)
            print_row(out, mask, &p, i, MOST_ROWS);
        if (p.queries > MOST_ROWS)
            fprintf(out, ".. %zu more queries\n", p.queries - MOST_ROWS);
    }
    if (patches > MOST_SEGMENTS)
        fprintf(out, ".. %zu more segments\n", patches - MOST_SEGMENTS);
}
