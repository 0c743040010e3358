/* What the files on masks share: a mask in one block with all it points to, and the search for an edge. */
#ifndef FVI_MASK_H
#define FVI_MASK_H

#include "tensor/internal.h"

typedef enum { FVI_RULES, FVI_EDGES, FVI_BYTES } fvi_pair_kind;

/* What fv_mask_free gives back. */
typedef struct {
    fv_mask mask; /* first: it is what the caller holds */
    fv_segments queries, keys;
    fv_graph edges;
    size_t *row_ends;     /* the offsets of edges [queries + 1], */
    int32_t *edge_keys;   /* and their keys [pairs]; NULL when there are none */
    unsigned char *bytes; /* [pairs]; NULL when there are none */
    size_t numbers[];     /* offsets of segments, key_counts; then edges or bytes */
} fvi_owned_mask;

/* A mask that has the segments, key_counts, offset and align_end of another (copied; where an fv_segments there
 * has no offsets, to be filled in), and room for so many edges or bytes, all zero. NULL: memory is out. */
fvi_owned_mask *fvi_mask_new(const fv_mask *like, size_t queries, fvi_pair_kind kind, size_t pairs,
                             fv_error *error);
/* The first edge of a row that leads to this key or one after it; the row's end when none does. */
size_t fvi_edge_from(const fv_graph *edges, size_t row, size_t key);

#endif
