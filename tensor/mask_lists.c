/* Masks by name, and masks made of lists: coordinates of edges, lengths, padded booleans. */
#include "tensor/mask.h"

#include <string.h>

fv_mask fv_mask_causal(const fv_segments *segments)
{
    return (fv_mask){.queries = segments, .causal = true};
}

/* The radius of a window as fv_mask has it, where 0 means no limit. */
static int stated(int radius)
{
    return radius < 0 ? 0 : radius == 0 ? FV_NONE : radius;
}

fv_mask fv_mask_window(const fv_segments *segments, int left, int right)
{
    return (fv_mask){.queries = segments, .left = stated(left), .right = stated(right)};
}

fv_mask fv_mask_segments(const fv_segments *queries, const fv_segments *keys)
{
    return (fv_mask){.queries = queries, .keys = keys};
}

/* ---- edges ----------------------------------------------------------------------------------- */

/* Edges as the caller lists them, then those that are added from a row to itself. */
typedef struct {
    const int64_t *list; /* [2, count] */
    size_t count, total;
    size_t *loops; /* [total - count]: rows */
} edge_list;

static size_t source_of(const edge_list *l, size_t e)
{
    return e < l->count ? (size_t)l->list[e] : l->loops[e - l->count];
}

static size_t target_of(const edge_list *l, size_t e)
{
    return e < l->count ? (size_t)l->list[l->count + e] : l->loops[e - l->count];
}

/* Adds to the list the rows that do not see themselves yet. */
static void add_loops(edge_list *l, size_t rows)
{
    for (size_t i = 0; i < rows; i++)
        l->loops[i] = 0;
    for (size_t e = 0; e < l->count; e++)
        if (l->list[e] == l->list[l->count + e])
            l->loops[l->list[e]] = 1;
    for (size_t i = 0; i < rows;
         i++) /* the rows that are written stand before the marks still to read */
        if (l->loops[i] == 0)
            l->loops[l->total++ - l->count] = i;
}

/* Two sorts by counting, by source and then, in that order, by target, so that keys ascend in each row.
 * Scratch: where each source's edges begin [keys + 1], and edges by source [total]. order [total]: the place in
 * the list of each edge of m. */
static void sort_edges(const edge_list *l, size_t keys, size_t *starts, size_t *by_source,
                       fvi_owned_mask *m, size_t *order)
{
    size_t *next = m->row_ends + 1; /* where the next edge of a row goes: at last, where it ends */
    for (size_t e = 0; e < l->total; e++) {
        starts[source_of(l, e) + 1]++;
        next[target_of(l, e)]++;
    }
    for (size_t j = 0; j < keys; j++)
        starts[j + 1] += starts[j];
    for (size_t i = 0, before = 0; i < m->edges.rows; i++) {
        const size_t here = next[i];
        next[i] = before;
        before += here;
    }
    for (size_t e = 0; e < l->total; e++)
        by_source[starts[source_of(l, e)]++] = e;
    for (size_t n = 0; n < l->total; n++) {
        const size_t e = by_source[n], at = next[target_of(l, e)]++;
        m->edge_keys[at] = (int32_t)source_of(l, e);
        order[at] = e < l->count ? e : l->count;
    }
}

/* Whether every edge of the list leads from a key to a query. */
static bool edges_in_range(const edge_list *l, size_t queries, size_t keys, fv_error *error)
{
    for (size_t e = 0; e < l->count; e++) {
        const int64_t from = l->list[e], to = l->list[l->count + e];
        if (from < 0 || (uint64_t)from >= keys || to < 0 || (uint64_t)to >= queries)
            return fv_fail(error, FV_USAGE,
                           "mask: edge %zu leads from %lld to %lld, of %zu keys and %zu queries", e,
                           (long long)from, (long long)to, keys, queries);
    }
    return true;
}

/* Whether no edge of a sorted mask comes twice. */
static bool edges_differ(const fv_graph *g, const size_t *order, fv_error *error)
{
    for (size_t i = 0; i < g->rows; i++)
        for (size_t e = g->offsets[i] + 1; e < g->offsets[i + 1]; e++)
            if (g->keys[e] == g->keys[e - 1])
                return fv_fail(error, FV_USAGE, "mask: edges %zu and %zu both lead from %d to %zu",
                               order[e - 1], order[e], (int)g->keys[e], i);
    return true;
}

/* What there is to refuse before memory is taken. */
static bool list_fits(const edge_list *l, size_t queries, size_t keys, bool self_loops,
                      fv_error *error)
{
    if (l->list == NULL && l->count > 0)
        return fv_fail(error, FV_USAGE, "mask: no list of %zu edges", l->count);
    if (self_loops && queries != keys)
        return fv_fail(error, FV_USAGE, "mask: loops of rows, of %zu queries and %zu keys", queries,
                       keys);
    if (keys > (size_t)INT32_MAX + 1)
        return fv_fail(error, FV_USAGE, "mask: %zu keys, more than edges can number", keys);
    return edges_in_range(l, queries, keys, error);
}

fv_mask *fv_mask_from_edge_index(size_t queries, size_t keys, size_t count, const int64_t *list,
                                 bool self_loops, size_t *order, fv_error *error)
{
    static const fv_mask nothing = {0};
    edge_list l = {list, count, count, NULL};
    size_t most, numbers, *scratch = NULL;
    if (!list_fits(&l, queries, keys, self_loops, error))
        return NULL;
    if (fvi_add(count, queries, &most) && fvi_mul(most, 2, &numbers) &&
        fvi_add(numbers, queries, &numbers) && fvi_add(numbers, keys + 1, &numbers))
        scratch = fvi_calloc(numbers, sizeof *scratch);
    if (scratch == NULL) {
        fv_fail(error, FV_FAILED, "mask: out of memory for %zu edges", count);
        return NULL;
    }
    size_t *by_source = scratch, *places = by_source + most, *starts = places + most;
    l.loops = starts + keys + 1;
    if (self_loops)
        add_loops(&l, queries);
    fvi_owned_mask *m = fvi_mask_new(&nothing, queries, FVI_EDGES, l.total, error);
    if (m != NULL) {
        sort_edges(&l, keys, starts, by_source, m, places);
        if (!edges_differ(&m->edges, places, error)) {
            fv_mask_free(&m->mask);
            m = NULL;
        }
    }
    if (m != NULL && order != NULL && l.total > 0)
        memcpy(order, places, l.total * sizeof *order);
    fvi_free(scratch);
    return m ? &m->mask : NULL;
}

/* ---- padded batches -------------------------------------------------------------------------- */

/* A mask of samples of so many queries and keys each, with room for their bytes, or for a count of keys each,
 * where m->numbers holds the offsets of both, and then the counts. NULL: the error says why. */
static fvi_owned_mask *padded(size_t samples, size_t queries, size_t keys, fvi_pair_kind kind,
                              const size_t *counts, fv_error *error)
{
    size_t rows, key_rows, pairs;
    if (!fvi_mul(samples, queries, &rows) || !fvi_mul(samples, keys, &key_rows) ||
        !fvi_mul(rows, keys, &pairs) || samples > SIZE_MAX / 4) {
        fv_fail(error, FV_USAGE, "mask: %zu samples of %zu queries and %zu keys: more than can be",
                samples, queries, keys);
        return NULL;
    }
    const fv_segments unfilled = {samples, NULL};
    const fv_mask like = {.queries = &unfilled, .keys = &unfilled, .key_counts = counts};
    fvi_owned_mask *m = fvi_mask_new(&like, rows, kind, kind == FVI_BYTES ? pairs : 0, error);
    for (size_t s = 0; m != NULL && s <= samples; s++) {
        m->numbers[s] = s * queries;
        m->numbers[samples + 1 + s] = s * keys;
    }
    return m;
}

/* Whether the caller gave what is to be read. */
static bool is_there(const void *list, size_t samples, const char *what, fv_error *error)
{
    return list != NULL || samples == 0 || fv_fail(error, FV_USAGE, "mask: no %s", what);
}

fv_mask *fv_mask_from_lengths(size_t samples, size_t queries, size_t keys, const size_t *lengths,
                              fv_error *error)
{
    if (!is_there(lengths, samples, "lengths", error))
        return NULL;
    for (size_t s = 0; s < samples; s++)
        if (lengths[s] > keys) {
            fv_fail(error, FV_USAGE, "mask: sample %zu has %zu keys, padded to %zu", s, lengths[s],
                    keys);
            return NULL;
        }
    fvi_owned_mask *m = padded(samples, queries, keys, FVI_RULES, lengths, error);
    return m ? &m->mask : NULL;
}

/* Bytes of a padded batch: those of a sample start at sample * step, those of a query row after that. */
static fv_mask *from_bytes(size_t samples, size_t queries, size_t keys, const unsigned char *bytes,
                           unsigned char visible, size_t sample_step, size_t row_step,
                           fv_error *error)
{
    if (!is_there(bytes, samples, "bytes", error))
        return NULL;
    fvi_owned_mask *m = padded(samples, queries, keys, FVI_BYTES, NULL, error);
    for (size_t s = 0; m != NULL && s < samples; s++)
        for (size_t i = 0; i < queries; i++)
            for (size_t j = 0; j < keys; j++)
                m->bytes[(s * queries + i) * keys + j] =
                    (bytes[s * sample_step + i * row_step + j] != 0) == visible;
    return m ? &m->mask : NULL;
}

fv_mask *fv_mask_from_key_padding(size_t samples, size_t queries, size_t keys,
                                  const unsigned char *hidden, fv_error *error)
{
    return from_bytes(samples, queries, keys, hidden, 0, keys, 0, error);
}

fv_mask *fv_mask_from_hidden(size_t samples, size_t queries, size_t keys,
                             const unsigned char *hidden, bool each_sample, fv_error *error)
{
    return from_bytes(samples, queries, keys, hidden, 0, each_sample ? queries * keys : 0, keys,
                      error);
}

fv_mask *fv_mask_from_visible(size_t samples, size_t queries, size_t keys,
                              const unsigned char *visible, bool each_sample, fv_error *error)
{
    return from_bytes(samples, queries, keys, visible, 1, each_sample ? queries * keys : 0, keys,
                      error);
}
