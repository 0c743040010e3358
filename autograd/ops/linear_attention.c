/* Linear attention: a state S [wk, wv] a head, which each row of a segment changes and then reads
 * (Katharopoulos et al., 2020, arXiv 2006.16236), with gates and the delta rule (Yang et al., 2024, arXiv
 * 2412.06464). With g = e^decay, one for each row of S, row i does
 *
 *     S = g S;   u = v - k S with beta, else v;   S = S + beta k' u;   y = scale q S
 *
 * Forward keeps the state at the start of every CHUNK rows; backward makes the states of a chunk again from
 * that, the last chunk first, while the gradient of the state goes from row to row. */
#include "tensor/kernel/tile.h"

#include <math.h>
#include <string.h>

#include "autograd/ops/rows.h"

enum { CHUNK = 64 };

typedef struct {
    const fv_segments *segments; /* NULL: one of all rows */
    size_t heads, kv_heads, wk, wv;
    double scale;
} linear_options;

enum { IN_Q, IN_K, IN_V, IN_DECAY, IN_BETA, IN_STATE, INPUTS };

/* A recorded call, and what it kept: the states after each segment [segments, kv_heads, wk, wv], and those at
 * the start of each chunk [chunks, kv_heads, wk, wv], with a gradient to come. */
typedef struct {
    const linear_options *o;
    size_t rows, segments, state; /* state: wk * wv */
    size_t decays, betas; /* numbers of a head in a row of decay; of all heads in a row of beta */
    const fv_real *q, *k, *v, *decay, *beta, *start;
    fv_real *after, *chunks;
} linear_call;

static linear_call linear_call_of(const fv_var *y)
{
    const linear_options *o = y->options;
    const fv_real *data[INPUTS];
    for (int i = 0; i < INPUTS; i++)
        data[i] = y->in[i] ? y->in[i]->value.data : NULL;
    linear_call c = {.o = o,
                     .rows = fvi_rows(y),
                     .segments = o->segments ? o->segments->count : 1,
                     .state = o->wk * o->wv,
                     .decays = y->in[IN_DECAY] ? fvi_columns(y->in[IN_DECAY]) / o->kv_heads : 0,
                     .betas = y->in[IN_BETA] ? fvi_columns(y->in[IN_BETA]) : 0,
                     .q = data[IN_Q],
                     .k = data[IN_K],
                     .v = data[IN_V],
                     .decay = data[IN_DECAY],
                     .beta = data[IN_BETA],
                     .start = data[IN_STATE],
                     .after = y->saved};
    if (c.after != NULL)
        c.chunks = c.after + c.segments * o->kv_heads * c.state;
    return c;
}

static part rows_of(const linear_call *c, size_t s)
{
    const fv_segments *cut = c->o->segments;
    return cut ? (part){cut->offsets[s], cut->offsets[s + 1]} : (part){0, c->rows};
}

/* The number of the first chunk of a segment: each has at most one that is not full. */
static size_t first_chunk(const linear_call *c, size_t s)
{
    return rows_of(c, s).from / CHUNK + s;
}

/* out = x S [wk, wv], the rows of S in order. */
static inline void read_state(const linear_options *o, const fv_real *restrict x,
                              const fv_real *restrict state, fv_real *restrict out)
{
    for (size_t j = 0; j < o->wv; j++)
        out[j] = 0;
    for (size_t i = 0; i < o->wk; i++)
        for (size_t j = 0; j < o->wv; j++)
            out[j] = fvi_fma(x[i], state[i * o->wv + j], out[j]);
}

/* S += x' u */
static inline void add_outer(const linear_options *o, const fv_real *restrict x, fv_real by,
                             const fv_real *restrict u, fv_real *restrict state)
{
    for (size_t i = 0; i < o->wk; i++) {
        const fv_real a = by * x[i];
        for (size_t j = 0; j < o->wv; j++)
            state[i * o->wv + j] = fvi_fma(a, u[j], state[i * o->wv + j]);
    }
}

/* e^decay of row i of the state. */
static inline fv_real gate(const linear_call *c, size_t row, size_t head, size_t i)
{
    const fv_real *decay = c->decay + (row * c->o->kv_heads + head) * c->decays;
    return fvi_exp(decay[c->decays > 1 ? i : 0]);
}

static inline size_t beta_at(const linear_call *c, size_t row, size_t head)
{
    return row * c->betas + (c->betas > 1 ? head : 0);
}

/* Multiplies the rows of a state, or of its gradient, by their gates. */
static inline void decay_state(const linear_call *c, size_t row, size_t head,
                               fv_real *restrict state)
{
    for (size_t i = 0; c->decay != NULL && i < c->o->wk; i++) {
        const fv_real g = gate(c, row, head, i);
        for (size_t j = 0; j < c->o->wv; j++)
            state[i * c->o->wv + j] *= g;
    }
}

/* Row row changes the state of a key head; u [wv] is what it adds, before beta. */
static inline void change_state(const linear_call *c, size_t row, size_t head,
                                fv_real *restrict state, fv_real *restrict u)
{
    const linear_options *o = c->o;
    const fv_real *k = c->k + (row * o->kv_heads + head) * o->wk;
    const fv_real *restrict v = c->v + (row * o->kv_heads + head) * o->wv;
    decay_state(c, row, head, state);
    if (c->beta != NULL)
        read_state(o, k, state, u);
    for (size_t j = 0; j < o->wv; j++)
        u[j] = c->beta != NULL ? v[j] - u[j] : v[j];
    add_outer(o, k, c->beta ? c->beta[beta_at(c, row, head)] : 1, u, state);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One segment for one key head, and the query heads that read its state. u: wv numbers of scratch. */
static void run_segment(const linear_call *c, size_t s, size_t head, fv_real *u, fv_real *y)
{
    const linear_options *o = c->o;
    const size_t group = o->heads / o->kv_heads;
    const part rows = rows_of(c, s);
    fv_real *state = c->after + (s * o->kv_heads + head) * c->state;
    if (c->start != NULL)
        memcpy(state, c->start + (s * o->kv_heads + head) * c->state, c->state * sizeof *state);
    else
        memset(state, 0, c->state * sizeof *state);
    for (size_t r = rows.from; r < rows.to; r++) {
        const size_t chunk = first_chunk(c, s) + (r - rows.from) / CHUNK;
        if (c->chunks != NULL && (r - rows.from) % CHUNK == 0)
            memcpy(c->chunks + (chunk * o->kv_heads + head) * c->state, state,
                   c->state * sizeof *state);
        change_state(c, r, head, state, u);
        for (size_t h = head * group; h < (head + 1) * group; h++) {
            fv_real *restrict out = y + (r * o->heads + h) * o->wv;
            read_state(o, c->q + (r * o->heads + h) * o->wk, state, out);
            for (size_t j = 0; j < o->wv; j++)
                out[j] *= (fv_real)o->scale;
        }
    }
}

static bool linear_attention_forward(fv_tape *t, fv_var *y)
{
    linear_call c = linear_call_of(y);
    const linear_options *o = c.o;
    const size_t chunks = y->needs_grad ? c.rows / CHUNK + c.segments : 0;
    y->saved = fvi_tape_take(t, (c.segments + chunks) * o->kv_heads * c.state, sizeof(fv_real));
    if (y->saved == NULL)
        return false;
    c = linear_call_of(y);
    c.chunks = y->needs_grad ? c.chunks : NULL;
    const size_t tasks = c.segments * o->kv_heads;
    const int parts = parts_of(t, tasks, tasks ? 2 * c.rows * o->heads / tasks * c.state : 0);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * o->wv, sizeof *scratch);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = scratch ? part_at(tasks, parts, k) : (part){0, 0};
        for (size_t i = p.from; i < p.to; i++)
            run_segment(&c, i / o->kv_heads, i % o->kv_heads, scratch + (size_t)k * o->wv,
                        y->value.data);
    }
    fvi_arena_release(&t->arena, mark);
    return scratch != NULL;
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct {
    const fv_real *dy;
    fv_real *dq, *dk, *dv, *ddecay, *dstart;
    fv_real *
        dbeta; /* [rows, kv_heads] whatever beta's shape: heads that share a number are added later */
} linear_grad;

/* Scratch of a thread: the states before and after each row of a chunk [CHUNK + 1, wk, wv], what each row
 * added [CHUNK, wv], the gradients of a state and of u. */
static size_t scratch_of(const linear_options *o)
{
    return (CHUNK + 2) * o->wk * o->wv + (CHUNK + 1) * o->wv;
}

/* dq = scale S dy, for the query heads that read S. */
static void query_backward(const linear_call *c, const linear_grad *g, size_t row, size_t head,
                           const fv_real *state)
{
    const linear_options *o = c->o;
    const size_t group = o->heads / o->kv_heads;
    for (size_t h = head * group; g->dq != NULL && h < (head + 1) * group; h++) {
        const fv_real *dy = g->dy + (row * o->heads + h) * o->wv;
        fv_real *dq = g->dq + (row * o->heads + h) * o->wk;
        for (size_t i = 0; i < o->wk; i++)
            dq[i] += (fv_real)o->scale * lane_dot(o->wv, state + i * o->wv, dy);
    }
}

/* Z += scale q' dy, for the same. */
static void read_backward(const linear_call *c, const linear_grad *g, size_t row, size_t head,
                          fv_real *z)
{
    const linear_options *o = c->o;
    const size_t group = o->heads / o->kv_heads;
    for (size_t h = head * group; h < (head + 1) * group; h++)
        add_outer(o, c->q + (row * o->heads + h) * o->wk, (fv_real)o->scale,
                  g->dy + (row * o->heads + h) * o->wv, z);
}

/* With Z the gradient of the state after a row, and S the state that it found, decayed: du = beta k Z,
 * dk = beta Z u - S du, dbeta = k Z u, dv = du, and Z -= k' du, of which -S du, dbeta and -k' du are the delta
 * rule's. before is replaced by S. */
static void change_backward(const linear_call *c, const linear_grad *g, size_t row, size_t head,
                            const fv_real *restrict u, fv_real *before, fv_real *restrict du,
                            fv_real *restrict z)
{
    const linear_options *o = c->o;
    const size_t at = row * o->kv_heads + head;
    const fv_real *k = c->k + at * o->wk;
    const fv_real beta = c->beta ? c->beta[beta_at(c, row, head)] : 1;
    fv_real *dk = g->dk ? g->dk + at * o->wk : NULL;
    decay_state(c, row, head, before);
    read_state(o, k, z, du);
    if (g->dbeta != NULL)
        g->dbeta[at] = lane_dot(o->wv, du, u);
    for (size_t j = 0; j < o->wv; j++) {
        du[j] *= beta;
        if (g->dv != NULL)
            g->dv[at * o->wv + j] += du[j];
    }
    for (size_t i = 0; dk != NULL && i < o->wk; i++) {
        dk[i] += beta * lane_dot(o->wv, z + i * o->wv, u);
        if (c->beta != NULL)
            dk[i] -= lane_dot(o->wv, before + i * o->wv, du);
    }
    if (c->beta != NULL)
        add_outer(o, k, -1, du, z);
}

/* With Z the gradient of the decayed state S: ddecay = Z * S summed over what a number decays, Z = g Z. */
static void decay_backward(const linear_call *c, const linear_grad *g, size_t row, size_t head,
                           const fv_real *decayed, fv_real *z)
{
    const linear_options *o = c->o;
    fv_real *ddecay = g->ddecay ? g->ddecay + (row * o->kv_heads + head) * c->decays : NULL;
    for (size_t i = 0; ddecay != NULL && i < o->wk; i++)
        ddecay[c->decays > 1 ? i : 0] += lane_dot(o->wv, z + i * o->wv, decayed + i * o->wv);
    decay_state(c, row, head, z);
}

/* One segment for one key head, the last row first. */
static void run_segment_back(const linear_call *c, const linear_grad *g, size_t s, size_t head,
                             fv_real *scratch)
{
    const linear_options *o = c->o;
    const part rows = rows_of(c, s);
    const size_t chunks = (rows.to - rows.from + CHUNK - 1) / CHUNK;
    fv_real *states = scratch, *z = states + (CHUNK + 1) * c->state, *added = z + c->state,
            *du = added + CHUNK * o->wv;
    memset(z, 0, c->state * sizeof *z);
    for (size_t n = chunks; n-- > 0;) {
        const size_t first = rows.from + n * CHUNK;
        const size_t count = rows.to - first < CHUNK ? rows.to - first : CHUNK;
        memcpy(states, c->chunks + ((first_chunk(c, s) + n) * o->kv_heads + head) * c->state,
               c->state * sizeof *states);
        for (size_t i = 0; i < count; i++) {
            fv_real *state = states + (i + 1) * c->state;
            memcpy(state, state - c->state, c->state * sizeof *state);
            change_state(c, first + i, head, state, added + i * o->wv);
            query_backward(c, g, first + i, head, state);
        }
        for (size_t i = count; i-- > 0;) {
            fv_real *before = states + i * c->state;
            read_backward(c, g, first + i, head, z);
            change_backward(c, g, first + i, head, added + i * o->wv, before, du, z);
            if (c->decay != NULL)
                decay_backward(c, g, first + i, head, before, z);
        }
    }
    if (g->dstart != NULL)
        add_to(c->state, z, g->dstart + (s * o->kv_heads + head) * c->state);
}

/* dbeta of the heads that share a number, in their order. */
static void add_betas(const linear_call *c, const fv_real *each, fv_real *dbeta)
{
    const size_t heads = c->o->kv_heads;
    for (size_t r = 0; r < c->rows; r++)
        for (size_t h = 0; h < heads; h++)
            dbeta[beta_at(c, r, h)] += each[r * heads + h];
}

/* Z, the gradient of the state, goes from the last row to the first; the rules stand with the steps above */
static void linear_attention_backward(fv_tape *t, fv_var *y)
{
    const linear_call c = linear_call_of(y);
    const linear_options *o = c.o;
    fv_real *dbeta = fv_grad(t, y->in[IN_BETA]);
    linear_grad g = {.dy = y->grad,
                     .dq = fv_grad(t, y->in[IN_Q]),
                     .dk = fv_grad(t, y->in[IN_K]),
                     .dv = fv_grad(t, y->in[IN_V]),
                     .ddecay = fv_grad(t, y->in[IN_DECAY]),
                     .dstart = fv_grad(t, y->in[IN_STATE])};
    const size_t tasks = c.segments * o->kv_heads;
    const int parts = parts_of(t, tasks, tasks ? 6 * c.rows * o->heads / tasks * c.state : 0);
    const fvi_mark mark = fvi_arena_mark(&t->arena);
    fv_real *scratch = fvi_tape_take(t, (size_t)parts * scratch_of(o), sizeof *scratch);
    if (dbeta != NULL)
        g.dbeta = fvi_tape_take(t, c.rows * o->kv_heads, sizeof *dbeta);
    const bool ready = fv_tape_ok(t);
#pragma omp parallel for num_threads(parts) if (parts > 1)
    for (int k = 0; k < parts; k++) {
        const part p = ready ? part_at(tasks, parts, k) : (part){0, 0};
        for (size_t i = p.from; i < p.to; i++)
            run_segment_back(&c, &g, i / o->kv_heads, i % o->kv_heads,
                             scratch + (size_t)k * scratch_of(o));
    }
    if (ready && dbeta != NULL)
        add_betas(&c, g.dbeta, dbeta);
    fvi_arena_release(&t->arena, mark);
}

/* Each option, segments of none, of one and of many rows, more rows than a chunk, inputs that are one. */
static fv_var *linear_attention_sample(fv_sampler *s, int which)
{
    static const size_t at[] = {0, 3, 3, 4, 9}, long_at[] = {0, 66, 69};
    static const fv_segments segments = {4, at}, longer = {2, long_at};
    fv_tape *t = fv_sampler_tape(s);
    const bool many = which == 5, grouped = which == 1 || which == 3;
    const size_t rows = many ? 69 : which == 6 ? 0 : 9, kv = many ? 1 : 2, wk = many ? 2 : 3;
    const size_t wv = many ? 2 : 4, samples = which == 0 ? 1 : which == 5 ? 2 : 4;
    fv_linear_attention_opts opts = {.heads = grouped ? 4 : kv, .kv_heads = grouped ? kv : 0};
    const fv_segments *cut = which == 0 || which == 6 ? NULL : many ? &longer : &segments;
    if (which == 7) {
        fv_var *x = fv_sample(s, FV_SHAPE(9, 4), -1, 1);
        opts = (fv_linear_attention_opts){.heads = 1, .decay = x};
        return fv_linear_attention(t, x, x, x, cut, &opts);
    }
    fv_var *q = fv_sample(s, FV_SHAPE(rows, opts.heads * wk), -1, 1);
    fv_var *k = fv_sample(s, FV_SHAPE(rows, kv * wk), -1, 1);
    fv_var *v = fv_sample(s, FV_SHAPE(rows, kv * wv), -1, 1);
    if (which == 1 || which == 3 || many)
        opts.decay = fv_sample(s, FV_SHAPE(rows, which == 1 ? kv : kv * wk), -1, 0);
    if (which == 2 || which == 3 || many)
        opts.beta = fv_sample(s, FV_SHAPE(rows, which == 3 ? 1 : kv), 0, 1);
    if (which >= 3 && which != 6)
        opts.state = fv_sample(s, FV_SHAPE(samples, kv, wk, wv), -1, 1);
    opts.scale = which == 2 ? 1.5 : 0;
    return fv_linear_attention(t, q, k, v, cut, &opts);
}
FVI_OP(linear_attention,
       "S = e^decay S; S += beta k' (v - k S), or k' v without beta; y = scale q S",
       "Katharopoulos et al., 2020, arXiv 2006.16236; Yang et al., 2024, arXiv 2412.06464", 8)

#if FVI_ONCE
/* Whether x is absent or a matrix of these rows and one of two numbers of columns. */
static bool has_columns(fv_tape *t, const char *op, const char *what, const fv_var *x, size_t rows,
                        size_t one, size_t other)
{
    if (x == NULL || fv_shape_equal(x->value.shape, FV_SHAPE(rows, one)) ||
        fv_shape_equal(x->value.shape, FV_SHAPE(rows, other)))
        return true;
    return fv_refuse(t, op, "%s %s, expected [%zu, %zu] or [%zu, %zu]", what, fv_describe(t, x),
                     rows, one, rows, other) != NULL;
}

/* Heads and widths; false after a refusal. */
static bool resolve_widths(fv_tape *t, const char *op, const fv_var *q, const fv_var *k,
                           const fv_var *v, const fv_linear_attention_opts *opts, linear_options *o)
{
    o->heads = opts->heads ? opts->heads : 1;
    o->kv_heads = opts->kv_heads ? opts->kv_heads : o->heads;
    if (fvi_rows(k) != fvi_rows(q) || fvi_rows(v) != fvi_rows(q))
        return fv_refuse(t, op, "queries %s, keys %s, values %s: rows differ", fv_describe(t, q),
                         fv_describe(t, k), fv_describe(t, v)) != NULL;
    if (o->heads % o->kv_heads != 0 || fvi_columns(q) % o->heads != 0 ||
        fvi_columns(v) % o->kv_heads != 0 ||
        fvi_columns(k) != fvi_columns(q) / o->heads * o->kv_heads)
        return fv_refuse(t, op,
                         "queries %s of %zu heads, keys %s and values %s of %zu: widths do not fit",
                         fv_describe(t, q), o->heads, fv_describe(t, k), fv_describe(t, v),
                         o->kv_heads) != NULL;
    o->wk = fvi_columns(q) / o->heads;
    o->wv = fvi_columns(v) / o->kv_heads;
    o->scale = opts->scale != 0 ? opts->scale : 1 / sqrt((double)o->wk);
    return true;
}

/* Whether all states of a call, and those that it keeps, can be counted. */
static bool states_fit(const linear_options *o, size_t rows, size_t segments)
{
    size_t states, numbers;
    return fvi_add(rows / CHUNK + CHUNK + 2, segments, &states) &&
           fvi_add(states, segments, &states) && fvi_mul(states, o->kv_heads, &states) &&
           fvi_mul(o->wk, o->wv, &numbers) && fvi_mul(states, numbers, &numbers) &&
           numbers <= SIZE_MAX / 64;
}

fv_var *fv_linear_attention(fv_tape *t, fv_var *q, fv_var *k, fv_var *v,
                            const fv_segments *segments, const fv_linear_attention_opts *opts)
{
    const char *op = "linear_attention";
    const fv_linear_attention_opts none = {0};
    char text[160];
    linear_options o = {.segments = segments};
    if (opts == NULL)
        opts = &none;
    if (opts->after != NULL)
        *opts->after = (fv_tensor){FV_SCALAR, NULL};
    if (!given(t, op, q) || !given(t, op, k) || !given(t, op, v) ||
        !fvi_is_matrix(t, op, "query", q) || !fvi_is_matrix(t, op, "key", k) ||
        !fvi_is_matrix(t, op, "value", v) || (segments != NULL && !segmented(t, op, q, segments)) ||
        !resolve_widths(t, op, q, k, v, opts, &o))
        return NULL;
    const size_t rows = fvi_rows(q), samples = segments ? segments->count : 1;
    const fv_shape states = FV_SHAPE(samples, o.kv_heads, o.wk, o.wv);
    if (!states_fit(&o, rows, samples))
        return fv_refuse(t, op, "%s holds more numbers than there can be",
                         fv_shape_text(states, text));
    if (!has_columns(t, op, "decay", opts->decay, rows, o.kv_heads, o.kv_heads * o.wk) ||
        !has_columns(t, op, "beta", opts->beta, rows, 1, o.kv_heads))
        return NULL;
    if (opts->state != NULL && !fv_shape_equal(opts->state->value.shape, states))
        return fv_refuse(t, op, "state %s, expected %s", fv_describe(t, opts->state),
                         fv_shape_text(states, text));
    fv_var *y = fvi_record(t, FVI_OP_linear_attention, FV_SHAPE(rows, o.heads * o.wv), &o, sizeof o,
                           INPUTS, (fv_var *[]){q, k, v, opts->decay, opts->beta, opts->state});
    if (y != NULL && opts->after != NULL)
        *opts->after = (fv_tensor){states, y->saved};
    return y;
}
#endif
