/* Attention row by row: a query row walks the keys it sees, sixty-four at a time, so that any mask
 * costs its visible pairs and nothing is stored for a pair. Sums run in ascending key order. */
#include "tensor/kernel/attention_scores.h"

enum { BLOCK = 64 };

/* The keys that one query row sees, from low up to high: positions, or edges when there are any. */
typedef struct {
    size_t next, end;
} seen_keys;

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

static seen_keys keys_from(const fvi_attention *a, const fvi_patch *p, size_t i, size_t low,
                           size_t high)
{
    seen_keys w;
    fvi_mask_range(a->mask, p, i, &w.next, &w.end);
    w.next = w.next > low ? w.next : low;
    w.end = w.end < high ? w.end : high;
    if (w.next >= w.end)
        return (seen_keys){0, 0};
    if (a->mask != NULL && a->mask->edges != NULL) {
        const fv_graph *g = a->mask->edges;
        const size_t from = g->offsets[p->query + i], to = g->offsets[p->query + i + 1];
        const size_t first = lower_edge(g->keys, from, to, p->key + w.next);
        w = (seen_keys){first, lower_edge(g->keys, first, to, p->key + w.end)};
    }
    return w;
}

/* Writes the next visible positions, at most BLOCK, and returns how many. */
static size_t next_keys(const fvi_attention *a, const fvi_patch *p, size_t i, seen_keys *w,
                        size_t at[BLOCK])
{
    const fv_graph *edges = a->mask != NULL ? a->mask->edges : NULL;
    const unsigned char *visible = a->mask != NULL ? a->mask->visible : NULL;
    size_t count = 0;
    for (; w->next < w->end && count < BLOCK; w->next++) {
        if (edges != NULL)
            at[count++] = (size_t)edges->keys[w->next] - p->key;
        else if (visible == NULL || visible[p->byte + i * p->width + w->next] != 0)
            at[count++] = w->next;
    }
    return count;
}

#if defined(FV_COMPLEX)
typedef fv_real quad;
#else
typedef fvi_quad quad; /* sixteen bytes, which every processor has: heads of graphs are narrow */
#endif

static inline quad load_quad(const fv_real *x)
{
    quad q;
    memcpy(&q, x, sizeof q);
    return q;
}

/* Lanes of a quad, folded in halves, then one chain over what is left: the same on every
 * processor. */
static inline fv_real dot(size_t n, const fv_real *x, const fv_real *y)
{
    quad part[4];
    fv_real lane[FVI_QUAD];
    size_t c = 0;
    for (size_t v = 0; v < 4; v++)
        part[v] = (quad){0};
    for (; c + 4 * FVI_QUAD <= n; c += 4 * FVI_QUAD)
        for (size_t v = 0; v < 4; v++)
            part[v] += load_quad(x + c + v * FVI_QUAD) * load_quad(y + c + v * FVI_QUAD);
    for (; c + FVI_QUAD <= n; c += FVI_QUAD)
        part[0] += load_quad(x + c) * load_quad(y + c);
    part[0] = (part[0] + part[2]) + (part[1] + part[3]);
    memcpy(lane, &part[0], sizeof lane);
    for (size_t half = FVI_QUAD / 2; half > 0; half /= 2)
        for (size_t l = 0; l < half; l++)
            lane[l] += lane[l + half];
    for (; c < n; c++)
        lane[0] = fvi_fma(x[c], y[c], lane[0]);
    return lane[0];
}

/* y += alpha x */
static inline void add_scaled(size_t n, fv_real alpha, const fv_real *x, fv_real *y)
{
    size_t c = 0;
    for (; c + FVI_WIDTH <= n; c += FVI_WIDTH)
        fvi_store(y + c, fvi_load(y + c) + alpha * fvi_load(x + c));
    for (; c + FVI_QUAD <= n; c += FVI_QUAD) {
        const quad sum = load_quad(y + c) + alpha * load_quad(x + c);
        memcpy(y + c, &sum, sizeof sum);
    }
    for (; c < n; c++)
        y[c] = fvi_fma(alpha, x[c], y[c]);
}

/* One query row of one head. */
typedef struct {
    size_t i, head, kv; /* position in the patch, head, and the key head it uses */
    const fv_real *q;
    const fv_real *relative;
    uint64_t below, bits; /* dropout */
    fv_real kept;
} row;

static row row_at(const fvi_attention *a, const fvi_patch *p, size_t i, size_t head)
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

static const fv_real *key_of(const fvi_attention *a, const fvi_patch *p, const row *r, size_t j)
{
    return a->k + (p->key + j) * a->k_row + r->kv * a->qk;
}

static const fv_real *value_of(const fvi_attention *a, const fvi_patch *p, const row *r, size_t j)
{
    return a->v + (p->key + j) * a->v_row + r->kv * a->vd;
}

/* The scores of count keys; up to the next whole vectors they are -inf, as of hidden keys. */
static inline size_t score(const fvi_attention *a, const fvi_patch *p, const row *r,
                           const size_t *at, size_t count, fv_real s[BLOCK])
{
    const size_t lanes = fvi_lanes(count);
    for (size_t b = 0; b < count; b++) {
        s[b] = dot(a->qk, r->q, key_of(a, p, r, at[b])) * (fv_real)a->scale;
        if (r->relative != NULL)
            s[b] += r->relative[fvi_relative_at(a, (int64_t)r->i + p->offset, at[b])];
    }
    for (size_t b = count; b < lanes; b++)
        s[b] = (fv_real)-INFINITY;
    return lanes;
}

/* What dropout multiplies the weight at position j by. */
static fv_real dropped(const fvi_attention *a, const row *r, size_t j)
{
    if (r->below == 0)
        return 1;
    return fv_rng_bits(a->rng, r->bits + j) >= r->below ? r->kept : 0;
}

static void forward_row(const fvi_attention *a, const fvi_patch *p, size_t i, size_t head,
                        seen_keys w)
{
    const row r = row_at(a, p, i, head);
    fv_real *y = a->y + (p->query + i) * a->heads * a->vd + head * a->vd;
    fv_real *lse = a->lse + (p->query + i) * a->heads + head;
    fvi_part highest = -INFINITY;
    fv_real sum = 0, s[BLOCK];
    size_t at[BLOCK], count;
    for (size_t c = 0; c < a->vd; c++)
        y[c] = 0;
    while ((count = next_keys(a, p, i, &w, at)) > 0) {
        const fvi_part before = highest;
        const size_t lanes = fvi_whole(score(a, p, &r, at, count, s));
        for (size_t b = 0; b < count; b++)
            highest = fv_re(s[b]) > highest ? fv_re(s[b]) : highest;
        const fvi_part base = highest == (fvi_part)-INFINITY ? 0 : highest;
        if (fv_re(sum) != 0 && highest > before) {
            const fv_real shrink = fvi_weight((fv_real)(before - highest));
            sum *= shrink;
            for (size_t c = 0; c < a->vd; c++)
                y[c] *= shrink;
        }
        for (size_t b = 0; b < lanes; b++)
            s[b] = fvi_weight(s[b] - base);
        for (size_t b = 0; b < count; b++) {
            const fv_real keep = dropped(a, &r, at[b]);
            sum += s[b];
            if (fv_re(keep) > 0)
                add_scaled(a->vd, s[b] * keep, value_of(a, p, &r, at[b]), y);
        }
    }
    const bool saw = fv_re(sum) != 0;
    const fv_real inverse = saw ? 1 / sum : 0;
    for (size_t c = 0; c < a->vd; c++)
        y[c] = saw ? y[c] * inverse : 0;
    *lse = saw ? highest + fvi_log(sum) : (fv_real)-INFINITY;
}

/* What a call of backward_row adds to. */
typedef struct {
    fv_real *dq, *dk, *dv, *drelative; /* or NULL */
    size_t low, high;                  /* keys */
} share;

/* The gradients between row i of a head and the keys it sees. The weight is P = exp(S - lse), Z its
 * dropout factor: dV += P Z dy, dS = P (Z dy.V - dy.y), dQ += scale dS K, dK += scale dS Q. */
static void backward_row(const fvi_attention *a, const fv_real *dy, const share *to,
                         const fvi_patch *p, size_t i, size_t head, seen_keys w)
{
    const row r = row_at(a, p, i, head);
    const size_t place = (p->query + i) * a->heads * a->vd + head * a->vd;
    const fv_real lse = a->lse[(p->query + i) * a->heads + head];
    const fv_real base = fv_re(lse) == (fvi_part)-INFINITY ? 0 : lse;
    fv_real *dq = to->dq ? to->dq + (p->query + i) * a->q_row + head * a->qk : NULL;
    fv_real s[BLOCK];
    size_t at[BLOCK], count;
    if (w.next >= w.end)
        return;
    dy += place;
    const fv_real level = dot(a->vd, dy, a->y + place);
    while ((count = next_keys(a, p, i, &w, at)) > 0) {
        const size_t lanes = fvi_whole(score(a, p, &r, at, count, s));
        for (size_t b = 0; b < lanes; b++)
            s[b] = fvi_weight(s[b] - base);
        for (size_t b = 0; b < count; b++) {
            const size_t j = at[b], k_at = (p->key + j) * a->k_row + r.kv * a->qk;
            const fv_real keep = dropped(a, &r, j);
            fv_real slope = -level;
            if (fv_re(keep) > 0) {
                slope = fvi_fma(keep, dot(a->vd, dy, value_of(a, p, &r, j)), slope);
                if (to->dv != NULL)
                    add_scaled(a->vd, s[b] * keep, dy,
                               to->dv + (p->key + j) * a->v_row + r.kv * a->vd);
            }
            slope *= s[b];
            if (to->drelative != NULL)
                to->drelative[fvi_relative_at(a, (int64_t)i + p->offset, j)] += slope;
            slope *= (fv_real)a->scale;
            if (dq != NULL)
                add_scaled(a->qk, slope, a->k + k_at, dq);
            if (to->dk != NULL)
                add_scaled(a->qk, slope, r.q, to->dk + k_at);
        }
    }
}

static size_t columns(const fvi_attention *a)
{
    return a->relative != NULL ? 2 * (size_t)a->clip + 1 : 0;
}

size_t fvi_attention_rows_scratch(const fvi_attention *a, int threads, bool grad)
{
    (void)threads;
    return 1 + (grad ? a->heads * columns(a) : 0);
}

/* Runs the tasks drawn: a task is BLOCK rows, all heads. */
static void forward_share(const fvi_attention *a, size_t *ticket)
{
    size_t task = 0, mine = fvi_draw(ticket);
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        for (size_t from = 0; from < p.queries; from += BLOCK, task++) {
            if (task != mine)
                continue;
            for (size_t i = from; i < p.queries && i < from + BLOCK; i++) {
                const seen_keys w = keys_from(a, &p, i, 0, p.keys);
                for (size_t head = 0; head < a->heads; head++)
                    forward_row(a, &p, i, head, w);
            }
            mine = fvi_draw(ticket);
        }
    }
}

void fvi_attention_rows_forward(const fvi_attention *a, int threads, fv_real *scratch)
{
    size_t ticket = 0;
    (void)scratch;
    if (threads <= 1) {
        forward_share(a, &ticket);
        return;
    }
#pragma omp parallel num_threads(threads)
    forward_share(a, &ticket);
}

/* The work of the heads first .. end - 1 on rows and keys that fall into one of so many parts. */
typedef struct {
    size_t first, end;                 /* heads */
    size_t part, row_parts, key_parts; /* which part, of rows and of keys: one of them is 1 */
} cut;

static void backward_cut(const fvi_attention *a, const fv_real *dy, share to, cut c, fv_real *bias,
                         fv_real *drelative)
{
    fvi_patch p;
    for (size_t s = 0; s < fvi_mask_patches(a->mask); s++) {
        p = fvi_mask_patch(a->mask, a->queries, a->keys, s, s ? &p : NULL);
        const size_t from = c.row_parts > 1 ? p.queries * c.part / c.row_parts : 0;
        const size_t end = c.row_parts > 1 ? p.queries * (c.part + 1) / c.row_parts : p.queries;
        to.low = c.key_parts > 1 ? p.keys * c.part / c.key_parts : 0;
        to.high = c.key_parts > 1 ? p.keys * (c.part + 1) / c.key_parts : p.keys;
        for (size_t x = c.first * columns(a); bias != NULL && x < c.end * columns(a); x++)
            bias[x] = 0;
        for (size_t i = from; i < end; i++) {
            const seen_keys w = keys_from(a, &p, i, to.low, to.high);
            for (size_t head = c.first; head < c.end; head++) {
                to.drelative = bias != NULL ? bias + head * columns(a) : NULL;
                backward_row(a, dy, &to, &p, i, head, w);
            }
        }
        for (size_t x = c.first * columns(a); bias != NULL && x < c.end * columns(a); x++)
            drelative[x] += bias[x];
    }
}

/* Threads take heads when there are enough; otherwise rows for dq, and then keys for dk and dv. */
void fvi_attention_rows_backward(const fvi_attention *a, const fvi_attention_grad *g, int threads,
                                 fv_real *scratch)
{
    const share all = {.dq = g->dq, .dk = g->dk, .dv = g->dv}, rows = {.dq = g->dq},
                keys = {.dk = g->dk, .dv = g->dv};
    const size_t parts = threads > 1 ? (size_t)threads : 1, group = a->heads / a->kv_heads;
    fv_real *bias = a->relative != NULL && g->drelative != NULL ? scratch : NULL;
    if (parts == 1) {
        backward_cut(a, g->dy, all, (cut){0, a->heads, 0, 1, 1}, bias, g->drelative);
        return;
    }
    if (a->kv_heads >= parts || bias != NULL) {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (size_t t = 0; t < parts; t++)
            backward_cut(a, g->dy, all,
                         (cut){a->kv_heads * t / parts * group,
                               a->kv_heads * (t + 1) / parts * group, 0, 1, 1},
                         bias, g->drelative);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (size_t t = 0; t < parts; t++)
        backward_cut(a, g->dy, rows, (cut){0, a->heads, t, parts, 1}, NULL, NULL);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (size_t t = 0; t < parts; t++)
        backward_cut(a, g->dy, keys, (cut){0, a->heads, t, 1, parts}, NULL, NULL);
}
