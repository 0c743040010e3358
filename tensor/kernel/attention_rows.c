/* Attention row by row: a query row walks the keys it sees, sixty-four at a time, so that any mask
 * costs its visible pairs and nothing is stored for a pair. Sums run in ascending key order. */
#include "tensor/kernel/attention.h"

enum { BLOCK = 64 };

#if defined(FV_COMPLEX)
#define exp_of cexp
#define log_of clog
#elif defined(FV_F64)
#define exp_of exp
#define log_of log
#else
#define exp_of expf
#define log_of logf
#endif

/* The keys that one query row sees, from low up to high: positions, or edges when there are any. */
typedef struct {
    size_t next, end;
} walk;

/* The first edge in from .. end - 1 whose key is at least key. */
static size_t lower_edge(const int32_t *keys, size_t from, size_t end, size_t key)
{
    while (from < end) {
        size_t middle = from + (end - from) / 2;
        if ((size_t)keys[middle] < key)
            from = middle + 1;
        else
            end = middle;
    }
    return from;
}

static walk walk_start(const fvi_attention *a, const fvi_piece *p, size_t i, size_t low,
                       size_t high)
{
    walk w;
    fvi_mask_range(a->mask, i, p->keys, &w.next, &w.end);
    w.next = w.next > low ? w.next : low;
    w.end = w.end < high ? w.end : high;
    if (w.next >= w.end)
        return (walk){0, 0};
    if (a->mask != NULL && a->mask->edges != NULL) {
        const fv_graph *g = a->mask->edges;
        const size_t from = g->offsets[p->query + i], to = g->offsets[p->query + i + 1];
        const size_t first = lower_edge(g->keys, from, to, p->key + w.next);
        w = (walk){first, lower_edge(g->keys, first, to, p->key + w.end)};
    }
    return w;
}

/* Writes the next visible positions, at most BLOCK, and returns how many. */
static size_t walk_on(const fvi_attention *a, const fvi_piece *p, size_t i, walk *w,
                      size_t at[BLOCK])
{
    const fv_graph *edges = a->mask != NULL ? a->mask->edges : NULL;
    const unsigned char *visible = a->mask != NULL ? a->mask->visible : NULL;
    size_t count = 0;
    for (; w->next < w->end && count < BLOCK; w->next++) {
        if (edges != NULL)
            at[count++] = (size_t)edges->keys[w->next] - p->key;
        else if (visible == NULL || visible[p->byte + i * p->keys + w->next] != 0)
            at[count++] = w->next;
    }
    return count;
}

static fv_real dot(size_t n, const fv_real *x, const fv_real *y)
{
    fv_real sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += x[c] * y[c];
    return sum;
}

static void add_scaled(size_t n, fv_real alpha, const fv_real *x, fv_real *y)
{
    for (size_t c = 0; c < n; c++)
        y[c] += alpha * x[c];
}

/* One query row of one head. */
typedef struct {
    size_t i, head, kv; /* position in the piece, head, and the key head it uses */
    const fv_real *q;
    const fv_real *relative;
    uint64_t below, bits; /* dropout */
    fv_real kept;
} row;

static row row_at(const fvi_attention *a, const fvi_piece *p, size_t i, size_t head)
{
    row r = {.i = i, .head = head, .kv = head / (a->heads / a->kv_heads)};
    r.q = a->q + (p->query + i) * a->q_row + head * a->qk;
    if (a->relative != NULL)
        r.relative = a->relative + head * (2 * (size_t)a->clip + 1);
    r.below = fvi_drop_below(a);
    r.bits = fvi_drop_index(a, head, p->query + i);
    r.kept = (fv_real)(1 / (1 - a->dropout));
    return r;
}

static const fv_real *key_of(const fvi_attention *a, const fvi_piece *p, const row *r, size_t j)
{
    return a->k + (p->key + j) * a->k_row + r->kv * a->qk;
}

static const fv_real *value_of(const fvi_attention *a, const fvi_piece *p, const row *r, size_t j)
{
    return a->v + (p->key + j) * a->v_row + r->kv * a->vd;
}

static fv_real score(const fvi_attention *a, const fvi_piece *p, const row *r, size_t j)
{
    fv_real s = dot(a->qk, r->q, key_of(a, p, r, j)) * (fv_real)a->scale;
    return r->relative != NULL ? s + r->relative[fvi_relative_at(a, r->i, j)] : s;
}

/* What dropout multiplies the weight at position j by. */
static fv_real dropped(const fvi_attention *a, const row *r, size_t j)
{
    if (r->below == 0)
        return 1;
    return fv_rng_bits(a->rng, r->bits + j) >= r->below ? r->kept : 0;
}

static void forward_row(const fvi_attention *a, const fvi_piece *p, size_t i, size_t head)
{
    const row r = row_at(a, p, i, head);
    fv_real *y = a->y + (p->query + i) * a->heads * a->vd + head * a->vd;
    fv_real *lse = a->lse + (p->query + i) * a->heads + head;
    fvi_part highest = -INFINITY;
    fv_real sum = 0, s[BLOCK];
    size_t at[BLOCK], seen = 0, count;
    for (size_t c = 0; c < a->vd; c++)
        y[c] = 0;
    walk w = walk_start(a, p, i, 0, p->keys);
    while ((count = walk_on(a, p, i, &w, at)) > 0) {
        fvi_part before = highest;
        for (size_t b = 0; b < count; b++) {
            s[b] = score(a, p, &r, at[b]);
            if (fv_re(s[b]) > highest)
                highest = fv_re(s[b]);
        }
        if (seen > 0 && highest > before) {
            fv_real shrink = exp_of((fv_real)(before - highest));
            sum *= shrink;
            for (size_t c = 0; c < a->vd; c++)
                y[c] *= shrink;
        }
        for (size_t b = 0; b < count; b++) {
            fv_real weight = exp_of(s[b] - highest), keep = dropped(a, &r, at[b]);
            sum += weight;
            if (fv_re(keep) > 0)
                add_scaled(a->vd, weight * keep, value_of(a, p, &r, at[b]), y);
        }
        seen += count;
    }
    if (seen == 0) {
        *lse = (fv_real)-INFINITY;
        return;
    }
    fv_real inverse = 1 / sum;
    for (size_t c = 0; c < a->vd; c++)
        y[c] *= inverse;
    *lse = highest + log_of(sum);
}

/* The gradients that row i of a head gives to the keys from low up to high, and gets from them. The
 * weight is P = exp(S - lse), Z its dropout factor: dV += P Z dy, dS = P (Z dy.V - dy.y), dQ += scale dS K. */
static void backward_row(const fvi_attention *a, const fvi_attention_grad *g, const fvi_piece *p,
                         size_t i, size_t head, size_t low, size_t high, fv_real *drelative)
{
    const row r = row_at(a, p, i, head);
    const size_t place = (p->query + i) * a->heads * a->vd + head * a->vd;
    const fv_real *dy = g->dy + place;
    const fv_real lse = a->lse[(p->query + i) * a->heads + head];
    fv_real *dq = g->dq ? g->dq + (p->query + i) * a->q_row + head * a->qk : NULL;
    size_t at[BLOCK], count;
    walk w = walk_start(a, p, i, low, high);
    if (w.next >= w.end)
        return;
    const fv_real level = dot(a->vd, dy, a->y + place);
    while ((count = walk_on(a, p, i, &w, at)) > 0)
        for (size_t b = 0; b < count; b++) {
            const size_t j = at[b], k_at = (p->key + j) * a->k_row + r.kv * a->qk;
            const fv_real weight = exp_of(score(a, p, &r, j) - lse), keep = dropped(a, &r, j);
            fv_real slope = -level;
            if (fv_re(keep) > 0) {
                slope += keep * dot(a->vd, dy, value_of(a, p, &r, j));
                if (g->dv != NULL)
                    add_scaled(a->vd, weight * keep, dy,
                               g->dv + (p->key + j) * a->v_row + r.kv * a->vd);
            }
            slope *= weight;
            if (drelative != NULL)
                drelative[fvi_relative_at(a, i, j)] += slope;
            slope *= (fv_real)a->scale;
            if (dq != NULL)
                add_scaled(a->qk, slope, a->k + k_at, dq);
            if (g->dk != NULL)
                add_scaled(a->qk, slope, r.q, g->dk + k_at);
        }
}

size_t fvi_attention_rows_scratch(const fvi_attention *a, int threads, bool grad)
{
    (void)threads;
    return grad && a->relative != NULL ? 2 * (size_t)a->clip + 1 : 1;
}

void fvi_attention_rows_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    (void)threads;
    (void)scratch;
    size_t byte = 0;
    for (size_t s = 0; s < fvi_pieces(a); s++) {
        const fvi_piece p = fvi_piece_at(a, s, byte);
        for (size_t i = 0; i < p.queries; i++)
            for (size_t head = 0; head < a->heads; head++)
                forward_row(a, &p, i, head);
        byte += fvi_piece_bytes(&p);
    }
}

void fvi_attention_rows_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                 fv_real *scratch)
{
    (void)threads;
    const bool relative = a->relative != NULL && g->drelative != NULL;
    const size_t columns = 2 * (size_t)a->clip + 1;
    size_t byte = 0;
    for (size_t s = 0; s < fvi_pieces(a); s++) {
        const fvi_piece p = fvi_piece_at(a, s, byte);
        for (size_t head = 0; head < a->heads; head++) {
            for (size_t c = 0; relative && c < columns; c++)
                scratch[c] = 0;
            for (size_t i = 0; i < p.queries; i++)
                backward_row(a, g, &p, i, head, 0, p.keys, relative ? scratch : NULL);
            for (size_t c = 0; relative && c < columns; c++)
                g->drelative[head * columns + c] += scratch[c];
        }
        byte += fvi_piece_bytes(&p);
    }
}
