/* A stable sort that takes no memory of its own (qsort is neither stable nor sure not to call malloc). */
#include "train/data/data.h"

#include <string.h>

/* Merges the sorted runs from[first .. middle - 1] and from[middle .. end - 1] into to[first ..]. */
static void merge(const size_t *from, size_t *to, size_t first, size_t middle, size_t end,
                  bool (*before)(const void *context, size_t a, size_t b), const void *context)
{
    size_t i = first, j = middle;
    for (size_t k = first; k < end; k++)
        if (i < middle && (j == end || !before(context, from[j], from[i])))
            to[k] = from[i++];
        else
            to[k] = from[j++];
}

void fvi_sort(size_t count, size_t *items, size_t *scratch,
              bool (*before)(const void *context, size_t a, size_t b), const void *context)
{
    size_t *from = items, *to = scratch;
    for (size_t run = 1; run < count; run *= 2) {
        for (size_t first = 0; first < count; first += 2 * run) {
            size_t middle = count - first < run ? count : first + run;
            size_t end = count - middle < run ? count : middle + run;
            merge(from, to, first, middle, end, before, context);
        }
        size_t *other = from;
        from = to;
        to = other;
    }
    if (from != items)
        memcpy(items, from, count * sizeof *items);
}
