/* Rotary positions of the queries and keys of multi-head attention. Su et al., 2021, arXiv 2104.09864. */
#include "layers/multihead.h"

fv_var *fvi_rotary_use(fv_tape *t, const fv_multihead *layer, fv_var *x, size_t heads,
                       const int32_t *positions)
{
    const fv_rotary_opts opts = {.heads = heads,
                                 .interleaved = layer->how.rotary_interleaved,
                                 .width = layer->how.rotary_width,
                                 .base = layer->how.rotary_base,
                                 .scaling = layer->how.rotary_scaling,
                                 .positions = positions};
    return fv_rotary(t, x, NULL, &opts);
}

/* Query i of a segment stands at i + offset, as for distances, and key j at j. */
bool fvi_rotary_by_mask(fv_tape *t, const fv_multihead *layer, fvi_heads *h, const fv_mask *mask)
{
    const size_t queries = fvi_rows(h->q), keys = fvi_rows(h->k);
    fv_error error = {FV_OK, ""};
    if (!fv_mask_check(mask, queries, keys, &error)) {
        fv_refuse(t, "multihead", "%s", error.text);
        return false;
    }
    int32_t *of_q = fv_tape_alloc(t, queries, sizeof *of_q),
            *of_k = fv_tape_alloc(t, keys, sizeof *of_k);
    if (of_q == NULL || of_k == NULL)
        return false;
    for (size_t s = 0; s < fvi_mask_patches(mask); s++) {
        const fvi_patch p = fvi_mask_patch(mask, queries, keys, s, NULL);
        for (size_t i = 0; i < p.queries; i++)
            of_q[p.query + i] = (int32_t)((int64_t)i + p.offset);
        for (size_t j = 0; j < p.width; j++)
            of_k[p.key + j] = (int32_t)j;
    }
    h->q = fvi_rotary_use(t, layer, h->q, layer->heads, of_q);
    h->k = fvi_rotary_use(t, layer, h->k, layer->how.kv_heads, of_k);
    return h->q != NULL && h->k != NULL;
}
