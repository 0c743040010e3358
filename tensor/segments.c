/* Segments: which rows of a batch are one sample. */
#include "tensor/internal.h"

size_t fv_segments_rows(const fv_segments *segments)
{
    return segments ? segments->offsets[segments->count] : 0;
}

bool fv_segments_check(const fv_segments *segments, size_t rows, fv_error *error)
{
    const size_t *at = segments != NULL ? segments->offsets : NULL;
    if (at == NULL)
        return fv_fail(error, FV_USAGE, "segments: no offsets");
    if (at[0] != 0)
        return fv_fail(error, FV_USAGE, "segments: the first offset is %zu, not 0", at[0]);
    for (size_t s = 0; s < segments->count; s++)
        if (at[s + 1] < at[s])
            return fv_fail(error, FV_USAGE, "segments: offset %zu falls from %zu to %zu", s + 1,
                           at[s], at[s + 1]);
    if (at[segments->count] != rows)
        return fv_fail(error, FV_USAGE, "segments: they hold %zu rows, the input has %zu",
                       at[segments->count], rows);
    return true;
}

size_t fv_segments_find(const fv_segments *segments, size_t row)
{
    size_t low = 0, high = segments->count;
    while (low < high) { /* the first segment that ends after row */
        size_t middle = low + (high - low) / 2;
        if (segments->offsets[middle + 1] > row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}
