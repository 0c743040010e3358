/* Looks at attention that was computed, again from the kernel's own scores and kept statistics, before
 * dropout: all weights of a segment, or what they say in memory that is linear in the rows. */
#include "autograd/ops/attention.h"
#include "tensor/kernel/attention.h"
#include "tensor/math.h"

#if FVI_ONCE
static const fv_tensor nothing = {.shape = {.rank = 0}};

/* A look: the call behind a value, and scratch for its rows. */
typedef struct {
    fvi_attention a;
    fv_real *scratch;
} look;

/* What a look does with a row of one head: position and weight of each key that query row of patch p sees. */
typedef void (*row_fn)(const look *l, const fvi_patch *p, size_t row, size_t head, size_t count,
                       const uint32_t *at, const fv_real *w, void *result);

/* Opens the call behind y; refuses when it is no attention. */
static bool look_at(fv_tape *t, const char *name, const fv_var *y, look *l)
{
    const bool together = y != NULL && y->op == t->ops->op[FVI_OP_self_attention];
    if (y == NULL || (!together && y->op != t->ops->op[FVI_OP_attention])) {
        fv_refuse(t, name, "the value is no attention");
        return false;
    }
    l->a = call_of(y, together);
    return true;
}

/* Walks all rows of the segments first .. end - 1; false when memory is out. */
static bool walk(fv_tape *t, look *l, size_t first, size_t end, row_fn row, void *result)
{
    const fvi_attention *a = &l->a;
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    l->scratch = fvi_tape_take(t, fvi_attention_rows_scratch(a, 1, false), sizeof *l->scratch);
    fvi_patch p;
    for (size_t s = 0; l->scratch != NULL && s < end; s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        for (size_t i = 0; s >= first && i < p.queries; i++)
            for (size_t head = 0; head < a->heads; head++) {
                const uint32_t *at;
                const fv_real *w;
                const size_t count = fvi_attention_row_weights(a, &p, i, head, l->scratch, &at, &w);
                row(l, &p, p.query + i, head, count, at, w, result);
            }
    }
    fvi_arena_release(&t->arena, mark);
    return l->scratch != NULL;
}

static void write_weights(const look *l, const fvi_patch *p, size_t row, size_t head, size_t count,
                          const uint32_t *at, const fv_real *w, void *result)
{
    (void)l;
    fv_real *to = (fv_real *)result + (head * p->queries + row - p->query) * p->width;
    for (size_t b = 0; b < count; b++)
        to[at[b]] = w[b];
}

fv_tensor fv_attention_weights(fv_tape *t, const fv_var *y, size_t segment)
{
    const char *name = "attention_weights";
    look l;
    if (!look_at(t, name, y, &l))
        return nothing;
    const fv_mask *mask = l.a.mask;
    if (segment >= fvi_mask_patches(mask)) {
        fv_refuse(t, name, "segment %zu of %zu", segment, fvi_mask_patches(mask));
        return nothing;
    }
    const fvi_patch p = fvi_mask_patch(mask, l.a.queries, l.a.keys, segment, NULL);
    size_t count;
    if (!fvi_mul(p.queries, p.width, &count) || !fvi_mul(count, l.a.heads, &count)) {
        fv_refuse(t, name, "more weights than there can be");
        return nothing;
    }
    fv_real *w = fv_tape_alloc(t, count, sizeof *w);
    if (w == NULL || !walk(t, &l, segment, segment + 1, write_weights, w))
        return nothing;
    return (fv_tensor){FV_SHAPE(l.a.heads, p.queries, p.width), w};
}

fv_tensor fv_attention_lse(fv_tape *t, const fv_var *y)
{
    look l;
    if (!look_at(t, "attention_lse", y, &l))
        return nothing;
    const size_t count = l.a.queries * l.a.heads;
    fv_real *lse = fv_tape_alloc(t, count, sizeof *lse);
    for (size_t i = 0; lse != NULL && i < count; i++)
        lse[i] = l.a.lse[i];
    return (fv_tensor){FV_SHAPE(l.a.queries, l.a.heads), lse};
}

static void write_entropy(const look *l, const fvi_patch *p, size_t row, size_t head, size_t count,
                          const uint32_t *at, const fv_real *w, void *result)
{
    (void)p, (void)at;
    fvi_wide sum = 0;
    for (size_t b = 0; b < count; b++)
        sum -= fv_re(w[b]) == 0 ? 0 : (fvi_wide)(w[b] * fvi_log(w[b]));
    ((fv_real *)result)[row * l->a.heads + head] = (fv_real)sum;
}

fv_tensor fv_attention_entropy(fv_tape *t, const fv_var *y)
{
    look l;
    if (!look_at(t, "attention_entropy", y, &l))
        return nothing;
    fv_real *entropy = fv_tape_alloc(t, l.a.queries * l.a.heads, sizeof *entropy);
    if (entropy == NULL || !walk(t, &l, 0, fvi_mask_patches(l.a.mask), write_entropy, entropy))
        return nothing;
    return (fv_tensor){FV_SHAPE(l.a.queries, l.a.heads), entropy};
}

static void add_received(const look *l, const fvi_patch *p, size_t row, size_t head, size_t count,
                         const uint32_t *at, const fv_real *w, void *result)
{
    (void)row;
    for (size_t b = 0; b < count; b++)
        ((fv_real *)result)[(p->key + at[b]) * l->a.heads + head] += w[b];
}

fv_tensor fv_attention_received(fv_tape *t, const fv_var *y)
{
    look l;
    if (!look_at(t, "attention_received", y, &l))
        return nothing;
    fv_real *sum = fv_tape_alloc(t, l.a.keys * l.a.heads, sizeof *sum);
    if (sum == NULL || !walk(t, &l, 0, fvi_mask_patches(l.a.mask), add_received, sum))
        return nothing;
    return (fv_tensor){FV_SHAPE(l.a.keys, l.a.heads), sum};
}

/* The largest weights so far, and their keys. */
typedef struct {
    size_t k;
    fv_real *weights;
    int32_t *keys;
} largest;

static void write_top(const look *l, const fvi_patch *p, size_t row, size_t head, size_t count,
                      const uint32_t *at, const fv_real *w, void *result)
{
    const largest *top = result;
    fv_real *weight = top->weights + (row * l->a.heads + head) * top->k;
    int32_t *key = top->keys + (row * l->a.heads + head) * top->k;
    size_t held = 0;
    for (size_t x = 0; x < top->k; x++)
        key[x] = -1;
    for (size_t b = 0; b < count; b++) {
        if (held == top->k && !(fv_re(w[b]) > fv_re(weight[held - 1])))
            continue;
        held += held < top->k;
        size_t x = held - 1;
        for (; x > 0 && fv_re(w[b]) > fv_re(weight[x - 1]); x--) {
            weight[x] = weight[x - 1];
            key[x] = key[x - 1];
        }
        weight[x] = w[b];
        key[x] = (int32_t)(p->key + at[b]);
    }
}

fv_tensor fv_attention_top(fv_tape *t, const fv_var *y, size_t k, const int32_t **keys)
{
    const char *name = "attention_top";
    look l;
    size_t count;
    if (!look_at(t, name, y, &l))
        return nothing;
    if (k == 0 || keys == NULL) {
        fv_refuse(t, name, "%zu weights a row, %s for their keys: expected at least 1, and a place",
                  k, keys == NULL ? "no place" : "a place");
        return nothing;
    }
    if (!fvi_mul(l.a.queries * l.a.heads, k, &count)) {
        fv_refuse(t, name, "more weights than there can be");
        return nothing;
    }
    const largest top = {k, fv_tape_alloc(t, count, sizeof(fv_real)),
                         fv_tape_alloc(t, count, sizeof(int32_t))};
    if (top.weights == NULL || top.keys == NULL ||
        !walk(t, &l, 0, fvi_mask_patches(l.a.mask), write_top, (void *)&top))
        return nothing;
    *keys = top.keys;
    return (fv_tensor){FV_SHAPE(l.a.queries, l.a.heads, k), top.weights};
}
#endif
