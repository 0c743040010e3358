/* Replaces fv_memory in the test programs. */
#include "memory.h"

#include <stdlib.h>

#include "tensor/tensor.h"

static size_t requests, blocks, fails;

void test_fail_after(size_t n)
{
    fails = n;
}

size_t test_requests(void)
{
    return requests;
}

size_t test_blocks(void)
{
    return blocks;
}

void *fv_memory(void *old, size_t size)
{
    if (size == 0) {
        if (old != NULL)
            __atomic_sub_fetch(&blocks, 1, __ATOMIC_RELAXED);
        free(old);
        return NULL;
    }
    __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED);
    if (fails != 0 && __atomic_sub_fetch(&fails, 1, __ATOMIC_RELAXED) == 0)
        return NULL;
    void *block = realloc(old, size);
    if (block != NULL && old == NULL)
        __atomic_add_fetch(&blocks, 1, __ATOMIC_RELAXED);
    return block;
}
