/* The one door to the machine's memory, and the arena that a step lives in. */
#include "tensor/internal.h"

#include <stdlib.h>
#include <string.h>

__attribute__((weak)) void *fv_memory(void *old, size_t size)
{
    if (size == 0) {
        free(old);
        return NULL;
    }
    return realloc(old, size);
}

void *fvi_calloc(size_t count, size_t size)
{
    size_t bytes;
    if (!fvi_mul(count, size, &bytes) || bytes == 0)
        return NULL;
    void *block = fv_memory(NULL, bytes);
    if (block != NULL)
        memset(block, 0, bytes);
    return block;
}

void *fvi_resize(void *old, size_t count, size_t size)
{
    size_t bytes;
    if (!fvi_mul(count, size, &bytes) || bytes == 0)
        return NULL;
    return fv_memory(old, bytes);
}

void fvi_free(void *block)
{
    if (block != NULL)
        fv_memory(block, 0);
}

char *fvi_text(const char *text, size_t length)
{
    size_t bytes;
    if (!fvi_add(length, 1, &bytes))
        return NULL;
    char *copy = fv_memory(NULL, bytes);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

bool fvi_grow(void *list, size_t count, size_t *capacity, size_t size)
{
    void *block;
    if (count < *capacity)
        return true;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    if (!fvi_mul(wanted, 2, &wanted))
        return false;
    memcpy(&block, list, sizeof block);
    block = fvi_resize(block, wanted, size);
    if (block == NULL)
        return false;
    memcpy(list, &block, sizeof block);
    *capacity = wanted;
    return true;
}

uint64_t fvi_hash(const void *bytes, size_t length)
{
    const unsigned char *b = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++)
        h = (h ^ b[i]) * 0x100000001b3u;
    h ^= h >> 33;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 33;
    return h;
}

/* ---- arena ------------------------------------------------------------------------------------- */

struct fvi_chunk {
    fvi_chunk *next;
    size_t size, at; /* bytes behind the header, bytes taken */
    unsigned char *bytes;
};

enum { FIRST_CHUNK = 1 << 18 };

static fvi_chunk *new_chunk(size_t size)
{
    size_t bytes;
    if (!fvi_add(size, sizeof(fvi_chunk) + FVI_ALIGN, &bytes))
        return NULL;
    fvi_chunk *chunk = fv_memory(NULL, bytes);
    if (chunk == NULL)
        return NULL;
    uintptr_t start = (uintptr_t)(chunk + 1);
    start = (start + FVI_ALIGN - 1) / FVI_ALIGN * FVI_ALIGN;
    *chunk = (fvi_chunk){.size = size, .bytes = (unsigned char *)start};
    return chunk;
}

void *fvi_arena_take(fvi_arena *arena, size_t count, size_t size)
{
    size_t bytes;
    if (!fvi_mul(count, size, &bytes) || !fvi_add(bytes, FVI_ALIGN - 1, &bytes))
        return NULL;
    bytes = bytes / FVI_ALIGN * FVI_ALIGN;
    if (bytes == 0)
        bytes = FVI_ALIGN;
    fvi_chunk *last = NULL, *chunk = arena->now ? arena->now : arena->first;
    while (chunk != NULL && chunk->size - chunk->at < bytes) {
        last = chunk;
        chunk = chunk->next;
        if (chunk != NULL)
            chunk->at = 0;
    }
    if (chunk == NULL) {
        size_t wanted = last ? last->size : FIRST_CHUNK / 2;
        if (!fvi_mul(wanted, 2, &wanted) || wanted < bytes)
            wanted = bytes;
        chunk = new_chunk(wanted);
        if (chunk == NULL)
            return NULL;
        if (last == NULL)
            arena->first = chunk;
        else
            last->next = chunk;
    }
    arena->now = chunk;
    void *block = chunk->bytes + chunk->at;
    chunk->at += bytes;
    arena->used += bytes;
    if (arena->used > arena->peak)
        arena->peak = arena->used;
    return block;
}

fvi_mark fvi_arena_mark(const fvi_arena *arena)
{
    return (fvi_mark){arena->now, arena->now ? arena->now->at : 0, arena->used};
}

void fvi_arena_release(fvi_arena *arena, fvi_mark mark)
{
    fvi_chunk *chunk = mark.chunk ? mark.chunk : arena->first;
    size_t at = mark.at;
#ifdef FV_POISON
    for (fvi_chunk *c = chunk; c != NULL; c = c->next) {
        size_t from = c == chunk ? at : 0;
        memset(c->bytes + from, 0xa5, c->size - from);
    }
#endif
    if (chunk != NULL)
        chunk->at = at;
    arena->now = chunk;
    arena->used = mark.used;
}

void fvi_arena_reset(fvi_arena *arena)
{
    fvi_arena_release(arena, (fvi_mark){0});
}

void fvi_arena_free(fvi_arena *arena)
{
    for (fvi_chunk *c = arena->first, *next; c != NULL; c = next) {
        next = c->next;
        fvi_free(c);
    }
    *arena = (fvi_arena){0};
}
